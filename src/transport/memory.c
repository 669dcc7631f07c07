/* SPDX-License-Identifier: PostgreSQL */
/*
 * memory.c
 *	  Bytes of requests and answers that are held in memory.
 *
 * Those of one agent may grow as long as they are no more than what is left
 * of the limit.  So one agent alone gets half of it, two get a third each:
 * large answers of some never keep those of others out.  Beyond that an
 * answer is not read on: libcurl leaves the socket alone, and TCP slows the
 * service down.
 *
 *	  reading -> [starved: paused] -> reading, when there is room again
 *
 * One call at a time may read beyond the limit, or starved calls could wait
 * for each other.  It is let go when its reply was taken.
 */
#include "transport/request.h"

void
sas_transport_limit_memory(SasTransport *t, size_t limit)
{
	t->memory_limit = limit;
}

size_t
sas_transport_held(const SasTransport *t)
{
	return t->held;
}

bool
sas_transport_is_starved(const SasTransport *t)
{
	return t->n_starved > 0;
}

void
sas_transport_hold(SasTransport *t, SasTransportShare *share, ptrdiff_t bytes)
{
	t->held += bytes;
	share->bytes += bytes;
}

bool
sas_transport_has_room(const SasTransport *t, const SasTransportShare *share, size_t bytes)
{
	if (t->memory_limit == 0)
		return true;
	return t->held + bytes <= t->memory_limit && share->bytes + bytes <= t->memory_limit - t->held;
}

void
sas_transport_request_hold(SasRequest *r, ptrdiff_t bytes)
{
	if (r->share == NULL)
		return;
	r->held += bytes;
	sas_transport_hold(r->transport, r->share, bytes);
}

/* Nothing of it is held any longer. */
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

/* May these bytes of its answer be taken in?  False: they are offered again. */
bool
sas_transport_request_may_read(SasRequest *r, size_t bytes)
{
	SasTransport *t = r->transport;

	if (r->share == NULL || t->beyond == r || sas_transport_has_room(t, r->share, bytes))
		return true;
	if (t->beyond == NULL)
	{
		t->beyond = r;
		return true;
	}
	r->starved = true;
	t->n_starved++;
	return false;
}

/* Lets starved calls read on as far as there is room; the oldest goes first. */
void
sas_transport_feed(SasTransport *t)
{
	SasRequest *next;

	for (SasRequest *r = t->active.head; r != NULL && t->n_starved > 0; r = next)
	{
		next = r->next;
		if (!r->starved || (t->beyond != NULL && !sas_transport_has_room(t, r->share, CURL_MAX_WRITE_SIZE)))
			continue;
		r->starved = false;
		t->n_starved--;
		/* this may run the callback, which may starve it again */
		curl_easy_pause(r->easy, CURLPAUSE_CONT);
	}
}
