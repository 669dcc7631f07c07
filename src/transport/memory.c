/* SPDX-License-Identifier: PostgreSQL */
/*
 * memory.c
 *	  Counts the bytes of requests and answers in memory.
 *
 * Those of one share may grow as long as they are no more than the free rest of the limit.  So a
 * single share gets half of it, two get a third each: large answers of some shares never block
 * those of others.  All shares that belong together may have seven times the free rest, so that
 * very many of them leave something to the others; and what has little can always have a little
 * more.  Beyond that an answer is not read further: libcurl does not read the socket, and TCP slows
 * the service down.
 *
 *	  reading -> [starved: paused] -> reading, when there is room again
 *
 * Small answers are not to wait for large ones: when the transport has worked for long, what is
 * large already, or has come in many pieces, is paused in the same way, until it works again.
 *
 * One call at a time may read beyond the limit, because starved calls could wait for each other.
 * It gives up this right when its reply was taken.
 */
#include "transport/request.h"

/*
 * An answer that has fewer bytes is read, however long the transport has worked.  But libcurl takes
 * long for each piece, and a service can send single bytes.
 */
#define SMALL (256 * 1024)
#define FEW_PIECES 1000

/* Shares that belong together have no more than so many times the free rest, but always so much. */
#define TIMES 7
#define LITTLE SAS_TRANSPORT_LARGE

void
sas_transport_limit_memory(SasTransport *t, size_t limit)
{
	t->memory->limit = limit;
}

size_t
sas_transport_held(const SasTransport *t)
{
	return t->memory->held;
}

bool
sas_transport_is_starved(const SasTransport *t)
{
	return t->n_starved > 0;
}

void
sas_transport_hold(SasTransport *t, SasTransportShare *share, ptrdiff_t bytes)
{
	t->memory->held += bytes;
	share->bytes += bytes;
	if (share->all != NULL)
		share->all->bytes += bytes;
}

bool
sas_transport_has_room(const SasTransport *t, const SasTransportShare *share, size_t bytes)
{
	const SasTransportShare *all = share->all != NULL ? share->all : share;
	size_t		rest = t->memory->held + bytes <= t->memory->limit ? t->memory->limit - t->memory->held : 0;	/* 0: too much is held */

	if (t->memory->limit == 0 || all->bytes + bytes <= LITTLE)
		return true;
	return rest > 0 && share->bytes + bytes <= rest && all->bytes + bytes <= TIMES * rest;
}

void
sas_transport_request_hold(SasRequest *r, ptrdiff_t bytes)
{
	if (r->share == NULL)
		return;
	r->held += bytes;
	sas_transport_hold(r->transport, r->share, bytes);
}

/* Subtracts all bytes of the call. */
void
sas_transport_request_release(SasRequest *r)
{
	SasTransport *t = r->transport;

	if (r->share == NULL)
		return;
	sas_transport_request_hold(r, -(ptrdiff_t) r->held);
	if (t->beyond == r)
		t->beyond = NULL;
	if (r->starved)
		t->n_starved--;
	r->starved = false;
}

static bool
memory_has_room(SasRequest *r, size_t bytes)
{
	SasTransport *t = r->transport;

	if (r->share == NULL || t->beyond == r || sas_transport_has_room(t, r->share, bytes))
		return true;
	if (t->beyond != NULL)
		return false;
	t->beyond = r;
	return true;
}

/* May these bytes of its answer be stored? False: libcurl offers them again. */
bool
sas_transport_request_may_read(SasRequest *r, size_t bytes)
{
	SasTransport *t = r->transport;
	bool		large = r->reply->body_len >= SMALL || r->pieces > FEW_PIECES;
	bool		late = large && r->share != NULL && !r->overdue && sas_transport_now_us() >= t->work_until_us;

	if (!late && memory_has_room(r, bytes))
		return true;
	t->behind |= late;
	r->starved = true;
	r->reply->held_back = true;
	t->n_starved++;
	return false;
}

/* Lets starved calls continue to read as far as there is room, the oldest first. */
void
sas_transport_feed(SasTransport *t)
{
	SasRequest *next;

	for (SasRequest *r = t->active.head; r != NULL && t->n_starved > 0; r = next)
	{
		next = r->next;
		if (!r->starved || (t->beyond != NULL && t->beyond != r && !sas_transport_has_room(t, r->share, CURL_MAX_WRITE_SIZE)))
			continue;
		r->starved = false;
		t->n_starved--;
		/* this may run the callback, which may starve it again */
		curl_easy_pause(r->easy, CURLPAUSE_CONT);
	}
}
