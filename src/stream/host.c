/* SPDX-License-Identifier: PostgreSQL */
/*
 * host.c: the network of the watches that this worker hosts: who is begun,
 * what has been heard, whose time has come.
 *
 *	hosted.c		who is held
 *	report.c		what is said to the store
 *	apply.c			what becomes of it
 *	connection.c	the connection of one watch
 */
#include "postgres.h"

#include "stream/hosted.h"
#include "work/agents.h"
#include "base/clock.h"
#include "base/settings.h"

/* Calls and streams share one loop: a flood may hold a call up for some ten milliseconds, no more. */
#define SAS_WATCHES_READ_US 10000	/* reading, between two looks at calls */
#define SAS_WATCHES_BEGIN 100	/* connections begun between two looks at the network */

SasTransport *sas_watches_streams;
SasTransport *sas_watches_polls;

static SasWatch *in_hand;		/* what the network has brought something for, while that is looked at */

/* What an error left half done is begun anew, from the cursor in the store. */
static void
mend(void)
{
	SasWatch   *w = in_hand;

	in_hand = NULL;
	sas_items_drop(w);
	sas_watch_close(w);
	sas_watch_tell(w, sas_watch_problem(w, "transport", "the stream cannot be read", NULL), -1);
}

static void
wake(SasWatch *w)
{
	sas_watch_set_timer(w, 0);
	if (w->handle != NULL)
		sas_watch_timed_out(w);
	else if (w->request != NULL)
		sas_watch_set_line(w, SAS_LINE_READY);
	else
	{
		w->ask = true;
		sas_watch_set_line(w, SAS_LINE_DUE);
	}
}

static void
begin_some(void)
{
	for (int i = 0; i < SAS_WATCHES_BEGIN && !dlist_is_empty(&sas_held.ready); i++)
	{
		in_hand = dlist_head_element(SasWatch, node, &sas_held.ready);
		sas_watch_begin(in_hand);
	}
	in_hand = NULL;
}

static void
move(SasTransport *t)
{
	SasReply   *reply;
	int64		until_us;

	sas_transport_work(t);
	until_us = sas_base_clock_monotonic_us() + SAS_WATCHES_READ_US;
	while ((in_hand = sas_transport_next_news(t)) != NULL)
	{
		sas_watch_listen(in_hand);
		if (sas_base_clock_monotonic_us() >= until_us)
			break;
	}
	while ((reply = sas_transport_next(t)) != NULL)
	{
		in_hand = reply->owner;
		sas_watch_judge(in_hand, reply);
		sas_transport_reply_free(reply);
	}
}

bool
sas_watches_move(void)
{
	int64		now;

	if (in_hand != NULL)
		mend();
	begin_some();
	move(sas_watches_streams);
	move(sas_watches_polls);
	now = sas_base_clock_monotonic_us();
	while (!pairingheap_is_empty(sas_held.by_time))
	{
		in_hand = pairingheap_container(SasWatch, timer, pairingheap_first(sas_held.by_time));
		if (in_hand->wake_us > now)
			break;
		wake(in_hand);
	}
	in_hand = NULL;
	return !dlist_is_empty(&sas_held.ready);
}

int64
sas_watches_wake_in_ms(void)
{
	long		network_ms = sas_transport_timeout_ms(sas_watches_streams);
	long		polls_ms = sas_transport_timeout_ms(sas_watches_polls);
	int64		own_ms = -1;

	if (network_ms < 0 || (polls_ms >= 0 && polls_ms < network_ms))
		network_ms = polls_ms;

	if (!pairingheap_is_empty(sas_held.by_time))
	{
		int64		wake_us = pairingheap_container(SasWatch, timer, pairingheap_first(sas_held.by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_base_clock_monotonic_us() + 999) / 1000);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

/* Those of an agent that was disabled rest, those of one that was enabled begin. */
void
sas_watches_agents_changed(void)
{
	HASH_SEQ_STATUS seq;
	SasWatch   *w;

	hash_seq_init(&seq, sas_held.watches);
	while ((w = hash_seq_search(&seq)) != NULL)
	{
		SasAgentEntry *agent = sas_work_agent(w->agent_id);
		bool		may = agent != NULL && agent->stored->enabled;

		if (may && w->parked && w->request != NULL && w->handle == NULL)
			sas_watch_set_line(w, SAS_LINE_READY);
		else if (!may && w->handle != NULL)
			sas_held_ask_anew(w);
	}
}

static SasTransport *
open_transport(SasTransport *calls)
{
	char		why[256] = "its descriptor cannot be waited for";
	SasTransport *t = sas_transport_open(Max(sas_held.capacity, 1), why, sizeof(why));

	if (t == NULL || !sas_transport_join(calls, t))
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up streams: %s", why)));
	return t;
}

void
sas_watches_open(SasTransport *calls)
{
	sas_held_open(sas_base_watch_slots);
	sas_watches_streams = open_transport(calls);
	sas_watches_polls = open_transport(calls);
}

void
sas_watches_close(void)
{
	if (sas_watches_streams != NULL)
		sas_transport_close(sas_watches_streams);
	if (sas_watches_polls != NULL)
		sas_transport_close(sas_watches_polls);
	sas_watches_streams = sas_watches_polls = NULL;
}
