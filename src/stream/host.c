/* SPDX-License-Identifier: PostgreSQL */
/*
 * host.c: the network of the watches that this worker hosts: connects,
 * reads, and handles timers.
 *
 *	hosted.c		which watches are hosted
 *	report.c		what is reported to the store
 *	apply.c			what the store answers
 *	connection.c	the connection of one watch
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/settings.h"
#include "stream/hosted.h"
#include "work/agents.h"

/*
 * Calls and streams share one loop, and a flood of items must not delay a call
 * by more than some ten milliseconds.
 */
#define SAS_WATCHES_READ_US 10000	/* time to begin connections, or to read streams, before calls are served again */
#define SAS_WATCHES_BEGIN 100	/* connections to begin before the network is served again */

SasTransport *sas_stream_streams;
SasTransport *sas_stream_polls;

/* So many ticks in a row read on before the time is asked for: after them, whatever is ready. */
#define HOST_MAX_BEHIND 32

static SasWatch *host_current;	/* the watch whose network event is being handled */
static SasReply *host_reply;	/* and its reply; NULL: there is none */

static void
host_free_reply(void)
{
	sas_transport_reply_free(host_reply);
	host_reply = NULL;
}

/* After an error half-way: the watch restarts at the cursor in the store. */
static void
host_repair(void)
{
	SasWatch   *w = host_current;

	host_current = NULL;
	host_free_reply();
	sas_stream_items_drop(w);
	sas_stream_watch_close(w);
	sas_stream_watch_report(w, sas_stream_watch_problem(w, "transport", "could not read the stream", NULL), -1);
}

static void
host_wake(SasWatch *w)
{
	sas_stream_watch_set_timer(w, 0);
	if (w->handle != NULL)
		sas_stream_watch_timed_out(w);
	else if (sas_stream_watch_rest(w))
		return;
	else if (w->request != NULL)
		sas_stream_watch_set_line(w, SAS_LINE_READY);
	else if (w->put_away > 0 && !sas_work_room_for(w->agent_id, w->owner))
		sas_stream_watch_wait_for_room(w);
	else
	{
		w->ask = true;
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	}
}

/* Requests may be large: to compose a hundred of them may take seconds. */
static void
host_connect_some(void)
{
	int64		until_us = sas_base_clock_monotonic_us() + SAS_WATCHES_READ_US;

	for (int i = 0; i < SAS_WATCHES_BEGIN && !dlist_is_empty(&sas_stream_hosted.ready); i++)
	{
		if (i > 0 && sas_base_clock_monotonic_us() >= until_us)
			break;
		host_current = dlist_head_element(SasWatch, node, &sas_stream_hosted.ready);
		sas_stream_watch_connect(host_current);
	}
	host_current = NULL;
}

/* True: more may be ready. */
static bool
host_move(SasTransport *t)
{
	bool		more = sas_transport_work(t);
	int64		until_us = sas_base_clock_monotonic_us() + SAS_WATCHES_READ_US;

	while ((host_current = sas_transport_next_news(t)) != NULL)
	{
		sas_stream_watch_read(host_current);
		if (sas_base_clock_monotonic_us() >= until_us)
			break;
	}
	until_us = sas_base_clock_monotonic_us() + SAS_WATCHES_READ_US;
	while ((host_reply = sas_transport_next(t)) != NULL)
	{
		host_current = host_reply->owner;
		sas_stream_watch_finish(host_current, host_reply);
		host_free_reply();
		if (sas_base_clock_monotonic_us() >= until_us)
			break;
	}
	return more || sas_transport_has_small(t) || sas_transport_has_large(t);
}

/*
 * A worker that was stopped finds thousands of streams readable, and their
 * time over.  What has come is read first.
 */
bool
sas_stream_move(void)
{
	static int	behind = 0;
	int64		now;
	bool		more;

	if (host_current != NULL)
		host_repair();
	host_connect_some();
	more = host_move(sas_stream_streams);
	more |= host_move(sas_stream_polls);
	host_current = NULL;
	now = sas_base_clock_monotonic_us();
	sas_stream_hosted_end_pause(now);
	behind = more ? behind + 1 : 0;
	if (more && behind <= HOST_MAX_BEHIND)
		return true;
	while (!pairingheap_is_empty(sas_stream_hosted.by_time))
	{
		host_current = pairingheap_container(SasWatch, timer, pairingheap_first(sas_stream_hosted.by_time));
		if (host_current->wake_us > now)
			break;
		host_wake(host_current);
	}
	host_current = NULL;
	return !dlist_is_empty(&sas_stream_hosted.ready);
}

int64
sas_stream_wake_in_ms(void)
{
	long		network_ms = sas_transport_timeout_ms(sas_stream_streams);
	long		polls_ms = sas_transport_timeout_ms(sas_stream_polls);
	int64		own_ms = -1;

	if (network_ms < 0 || (polls_ms >= 0 && polls_ms < network_ms))
		network_ms = polls_ms;

	if (!pairingheap_is_empty(sas_stream_hosted.by_time))
	{
		int64		wake_us = pairingheap_container(SasWatch, timer, pairingheap_first(sas_stream_hosted.by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_base_clock_monotonic_us() + 999) / 1000);
	}
	if (!dlist_is_empty(&sas_stream_hosted.locked))
	{
		int64		locked_ms = Max(0, (sas_stream_hosted.locked_until_us - sas_base_clock_monotonic_us() + 999) / 1000);

		own_ms = own_ms < 0 ? locked_ms : Min(own_ms, locked_ms);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

bool
sas_stream_is_starved(void)
{
	return sas_transport_is_starved(sas_stream_polls);
}

/* Watches of an agent that was disabled pause; those of one that was enabled connect. */
void
sas_stream_agents_changed(void)
{
	HASH_SEQ_STATUS seq;
	SasWatch   *w;

	hash_seq_init(&seq, sas_stream_hosted.watches);
	while ((w = hash_seq_search(&seq)) != NULL)
	{
		SasAgentEntry *agent = sas_work_agent(w->agent_id);
		bool		may = agent != NULL && agent->stored->enabled;

		if (may && w->deferred)
			sas_stream_hosted_continue(w);
		else if (!may && w->handle != NULL)
			sas_stream_hosted_ask_again(w);
	}
}

static SasTransport *
host_open_transport(SasTransport *calls)
{
	char		why[256] = "its descriptor does not support waiting";
	SasTransport *t = sas_transport_open(Max(sas_stream_hosted.capacity, 1), why, sizeof(why));

	if (t == NULL || !sas_transport_join(calls, t))
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up streams: %s", why)));
	return t;
}

void
sas_stream_open(SasTransport *calls, int capacity)
{
	sas_stream_hosted_open(capacity);
	sas_stream_streams = host_open_transport(calls);
	sas_stream_polls = host_open_transport(calls);
}

void
sas_stream_close(void)
{
	if (sas_stream_streams != NULL)
		sas_transport_close(sas_stream_streams);
	if (sas_stream_polls != NULL)
		sas_transport_close(sas_stream_polls);
	sas_stream_streams = sas_stream_polls = NULL;
}
