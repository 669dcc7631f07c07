/* SPDX-License-Identifier: PostgreSQL */
/*
 * overdue.c
 *	  Calls whose time is over when the transport comes late to its sockets.
 *
 * Their answers may be in the sockets, and count when they arrived in time.  libcurl asks the clock
 * before it reads, so it gets no clock until what has come is read: from each socket until it is
 * empty, or READS_WHEN_LATE times.  Calls that have no whole answer then end.
 *
 * What has come may be much, in very small pieces.  So the time for it is limited, and the next
 * work goes on: until then the transport is late.
 */
#include "transport/request.h"

#include <poll.h>

/* So often is a socket read that is always full. */
#define READS_WHEN_LATE 32

/* Is the answer of this call waited for, though its time is over? */
static bool
overdue_is(const SasRequest *r, int64_t now)
{
	return r->begun > 0 && !r->websocket && r->deadline_us > 0 && now >= r->deadline_us;
}

/* Has something come that was not read, or has not been read too often? */
static bool
overdue_has_more(const SasRequest *r)
{
	struct pollfd there = {.fd = sas_transport_kept_socket(r), .events = POLLIN};

	return r->reads_late < READS_WHEN_LATE && !r->starved && there.fd >= 0 && poll(&there, 1, 0) == 1;
}

/* Marks calls whose time is over: libcurl does not end them. How many are marked now? */
static int
overdue_mark(SasTransport *t, int64_t now)
{
	int			marked = 0;

	for (SasRequest *r = t->active.head; r != NULL; r = r->next)
	{
		if (!r->overdue && overdue_is(r, now))
			r->overdue = curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, 0L) == CURLE_OK;
		marked += r->overdue;
	}
	return marked;
}

/* Reads what has come for the overdue calls, as far as there is time; for one of them there always is. */
static void
overdue_read(SasTransport *t)
{
	bool		has_read = false;
	int			running;

	for (SasRequest *r = t->active.head; r != NULL; r = r->next)
		while (r->overdue && overdue_has_more(r) && (!has_read || sas_transport_now_us() < t->work_until_us))
		{
			r->reads_late++;
			curl_multi_socket_action(t->multi, sas_transport_kept_socket(r), CURL_CSELECT_IN, &running);
			has_read = true;
		}
	/* after many reads in turn libcurl goes on with its timer: OpenSSL may have the rest, not the socket */
	if (has_read)
	{
		(void) overdue_mark(t, sas_transport_now_us());
		curl_multi_socket_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	sas_transport_collect(t);
}

/*
 * Which calls are overdue, before any is read: these are read on, however long that takes. When
 * libcurl's timer was due says nothing: a call that was started since has set it anew.
 */
void
sas_transport_note_overdue(SasTransport *t)
{
	if (t->late || t->n_overdue > 0)
		t->n_overdue = overdue_mark(t, sas_transport_now_us());
}

void
sas_transport_come_late(SasTransport *t)
{
	int64_t		now = sas_transport_now_us();
	SasRequest *next;

	if (t->n_overdue == 0)
		return;
	overdue_read(t);
	t->n_overdue = 0;
	for (SasRequest *r = t->active.head; r != NULL; r = next)
	{
		next = r->next;
		if (!r->overdue)
			continue;
		if (!overdue_is(r, now) || overdue_has_more(r))
		{
			/* the next work goes on */
			t->n_overdue++;
			t->cut_short = t->behind = true;
			continue;
		}
		sas_transport_request_note_sent(r);
		sas_transport_detach(t, r, false);
		sas_transport_finish(t, r, CURLE_OPERATION_TIMEDOUT);
	}
}
