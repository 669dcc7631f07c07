/* SPDX-License-Identifier: PostgreSQL */
/*
 * replies.c: replies that are not written yet.
 *
 * Each has its way: together with others, alone since it is large, or with
 * others of its owner, whose paths cost much.
 */
#include "postgres.h"

#include "agent/dear.h"
#include "agent/replies.h"
#include "work/room.h"
#include "agent/stuck.h"
#include "base/clock.h"
#include "base/peers.h"
#include "metrics/metrics.h"
#include "utils/memutils.h"
#include "work/json.h"

/* One transaction writes small replies until they exceed this many bytes. */
#define SAS_REPLIES_BYTES (4 * 1024 * 1024)

static MemoryContext replies_context; /* long-lived */
static SasTransport *replies_transport;
static List *replies_list = NIL; /* of SasUnwrittenReply, oldest first */
static int	replies_n[SAS_REPLY_DEAR + 1]; /* of the list, for each way */
static bool replies_unread = false; /* some may have arrived that are not read */

void
sas_agent_replies_open(MemoryContext context, SasTransport *transport)
{
	replies_context = context;
	replies_transport = transport;
}

/* What has arrived is a reply that is not written yet, before it is evaluated too. */
void
sas_agent_replies_note_unwritten(void)
{
	sas_base_peers_set_unwritten(replies_unread || replies_list != NIL || sas_transport_has_small(replies_transport) ||
								 sas_transport_has_large(replies_transport));
}

void
sas_agent_replies_leave_unread(void)
{
	replies_unread = true;
	sas_base_peers_set_unwritten(true);
}

void
sas_agent_replies_note_read(void)
{
	replies_unread = false;
	sas_agent_replies_note_unwritten();
}

bool
sas_agent_replies_are_unread(void)
{
	return replies_unread;
}

static SasReplyWay
replies_way_of(const SasUnwrittenReply *e)
{
	if (e->size > SAS_TRANSPORT_LARGE)
		return SAS_REPLY_LARGE;
	return sas_agent_dear_is(e->owner) && !sas_base_stopping ? SAS_REPLY_DEAR : SAS_REPLY_TOGETHER;
}

void
sas_agent_replies_part(void)
{
	ListCell   *lc;

	memset(replies_n, 0, sizeof(replies_n));
	foreach(lc, replies_list)
	{
		SasUnwrittenReply *e = lfirst(lc);

		e->way = replies_way_of(e);
		replies_n[e->way]++;
	}
}

void
sas_agent_replies_suspect_chosen(void)
{
	ListCell   *lc;
	bool		any = false;

	foreach(lc, replies_list)
		if (((SasUnwrittenReply *) lfirst(lc))->chosen)
			any |= sas_agent_dear_suspect(((SasUnwrittenReply *) lfirst(lc))->owner);
	if (any)
		sas_agent_replies_part();
}

/* It is written, or given up. */
static void
replies_forget(SasUnwrittenReply *e)
{
	if (--e->lease->left == 0)
		pfree(e->lease);
	replies_n[e->way]--;
	sas_transport_hold(replies_transport, e->memory, -(ptrdiff_t) e->size);
	sas_work_room_leave(e->memory);
	if (e->reply.output != NULL)
		pfree((void *) e->reply.output);
	if (e->reply.error != NULL)
		pfree((void *) e->reply.error);
	pfree(e);
}

void
sas_agent_replies_add(const SasFlight *flight, const char *verdict, const Jsonb *output, const Jsonb *error, double again_in_ms)
{
	MemoryContext old = MemoryContextSwitchTo(replies_context);
	SasUnwrittenReply *e = palloc0(sizeof(SasUnwrittenReply));

	e->owner = flight->owner;
	e->lease = flight->lease;
	e->lease->left++;
	e->reply.id = flight->id;
	e->reply.verdict = verdict;
	e->reply.attempts = flight->attempts;
	e->reply.output = sas_work_json_copy(replies_context, output);
	e->reply.error = sas_work_json_copy(replies_context, error);
	e->reply.in_doubt = flight->in_doubt;
	e->reply.again_in_ms = again_in_ms;
	sas_base_peers_set_unwritten(true);
	e->reply.arrived_at = sas_base_clock_now();
	/* its answer may have waited for its evaluation */
	if (flight->arrived_us != 0)
	{
		e->reply.arrived_at -= sas_base_clock_monotonic_us() - flight->arrived_us;
		/* the clock may have jumped ahead since the claim; the monotonic one tells what is in time */
		e->reply.arrived_at = Min(e->reply.arrived_at, flight->claimed_at + (flight->arrived_us - flight->claimed_us));
	}
	e->memory = flight->memory;
	sas_work_room_stay(e->memory);
	e->size = (output != NULL ? VARSIZE(output) : 0) + (error != NULL ? VARSIZE(error) : 0);
	e->way = replies_way_of(e);
	replies_n[e->way]++;
	sas_transport_hold(replies_transport, e->memory, e->size);
	sas_metrics_add(SAS_METRIC_STEP, flight->agent_id, flight->workflow_id, verdict, 1, (sas_base_clock_monotonic_us() - flight->claimed_us) / 1e6);
	replies_list = lappend(replies_list, e);
	MemoryContextSwitchTo(old);
}

int
sas_agent_replies_count(void)
{
	return list_length(replies_list);
}

bool
sas_agent_replies_has(SasReplyWay way)
{
	return replies_n[way] > 0;
}

Oid
sas_agent_replies_next_owner(void)
{
	Oid			next = InvalidOid;
	int64		last_us = 0;
	ListCell   *lc;

	foreach(lc, replies_list)
	{
		SasUnwrittenReply *e = lfirst(lc);

		if (e->way != SAS_REPLY_DEAR || e->owner == next)
			continue;
		if (!OidIsValid(next) || sas_agent_dear_last_us(e->owner) < last_us)
		{
			next = e->owner;
			last_us = sas_agent_dear_last_us(next);
		}
	}
	return next;
}

int
sas_agent_replies_choose(SasUnwrittenReply **chosen, SasReplyWay way, Oid owner, int most)
{
	Size		bytes = 0;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, replies_list)
	{
		SasUnwrittenReply *e = lfirst(lc);

		e->chosen = false;
		e->lease->sending = 0;
		if (e->way != way || (way == SAS_REPLY_DEAR && e->owner != owner) || n == most || bytes > SAS_REPLIES_BYTES)
			continue;
		bytes += e->size;
		e->chosen = true;
		chosen[n++] = e;
	}
	return n;
}

void
sas_agent_replies_forget_chosen(void)
{
	ListCell   *lc;

	foreach(lc, replies_list)
	{
		SasUnwrittenReply *e = lfirst(lc);

		if (!e->chosen)
			continue;
		replies_forget(e);
		replies_list = foreach_delete_current(replies_list, lc);
	}
	sas_agent_replies_note_unwritten();
}

static SasUnwrittenReply *
replies_chosen(void)
{
	ListCell   *lc;

	foreach(lc, replies_list)
		if (((SasUnwrittenReply *) lfirst(lc))->chosen)
			return lfirst(lc);
	return NULL;
}

void
sas_agent_replies_fail_chosen(int tries)
{
	SasUnwrittenReply *e = replies_chosen();

	if (++e->tries < tries)
	{
		/* it may be lacking for this one only: others first */
		if (sas_base_tick_lacked && list_length(replies_list) > 1)
			replies_list = lappend(list_delete_ptr(replies_list, e), e);
		return;
	}
	sas_agent_stuck_note("reply", e->reply.id.run_id, psprintf("could not store a reply to step %d", e->reply.id.step_no),
						 "The supervisor takes the step back after its complete-by.");
	e->lease->dropped = true;
	replies_list = list_delete_ptr(replies_list, e);
	replies_forget(e);
	sas_agent_replies_note_unwritten();
}
