/* SPDX-License-Identifier: PostgreSQL */
/*
 * outbox.c: verdicts, attempts and finished leases on their way to the store.
 *
 * They are written as a set: attempts, then replies, then finished leases.
 * Large replies, and those of owners whose paths cost much, are written apart
 * from these: one of them, or some of one owner.
 * After an abort one item is written at a time.  What cannot be written by
 * itself several times is given up, with an alert, and holds up nothing else.
 */
#include "postgres.h"

#include "agent/dear.h"
#include "agent/outbox.h"
#include "agent/replies.h"
#include "agent/stuck.h"
#include "base/clock.h"
#include "template/budget.h"
#include "utils/memutils.h"
#include "work/json.h"

/* after this many aborts of a transaction that writes nothing else, an item is given up */
#define SAS_OUTBOX_TRIES 3
/* the same where the server lacks something: for minutes, since the loop pauses longer and longer */
#define SAS_OUTBOX_TRIES_LACKING 100
/* A reply that changes more steps than this costs much. */
#define OUTBOX_MANY_STEPS 200
/* The most items of one transaction.  After an abort it is one item, then twice as many each time. */
#define SAS_OUTBOX_BATCH 1000
/* Replies of one transaction that has changed too many steps: the next one takes this part of them. */
#define OUTBOX_FEWER 8

static MemoryContext outbox_context; /* long-lived */
static List *outbox_attempts = NIL; /* of SasStoredAttempt */
static List *outbox_leases = NIL; /* of SasLeaseEntry whose flights are over, with nothing left to write */
static int	outbox_batch = SAS_OUTBOX_BATCH;
static int	outbox_most_replies = SAS_OUTBOX_BATCH; /* that are written together: as many as change few enough steps */
static int	outbox_tries = 0; /* to write the oldest attempt, or the oldest lease, and nothing else */

/* of the transaction that is open or was aborted */
static bool outbox_writing = false;
static SasReplyWay outbox_way;
static Oid	outbox_owner;	/* whose replies are written apart */
static int64 outbox_spent_us;	/* by evaluations; by all of it, where many steps were changed */
static int64 outbox_fitting;	/* so many replies may be written next, by the steps that these change */
static int	outbox_replies_sent;
static int	outbox_attempts_sent;
static int	outbox_leases_sent;

void
sas_agent_outbox_open(MemoryContext context, SasTransport *transport)
{
	outbox_context = AllocSetContextCreate(context, "sas outbox", ALLOCSET_DEFAULT_SIZES);
	sas_agent_replies_open(outbox_context, transport);
}

static void
outbox_free_attempt(SasStoredAttempt *a)
{
	if (a->error != NULL)
		pfree((void *) a->error);
	pfree(a);
}

SasLeaseEntry *
sas_agent_outbox_lease(int64 lease_id, int flights)
{
	SasLeaseEntry *lease = MemoryContextAllocZero(outbox_context, sizeof(SasLeaseEntry));

	lease->lease_id = lease_id;
	lease->left = flights;
	return lease;
}

void
sas_agent_outbox_leave(SasLeaseEntry *lease, bool dropped)
{
	lease->dropped |= dropped;
	if (--lease->left > 0)
		return;
	if (lease->dropped)
		pfree(lease);
	else
	{
		MemoryContext old = MemoryContextSwitchTo(outbox_context);

		outbox_leases = lappend(outbox_leases, lease);
		MemoryContextSwitchTo(old);
	}
}

void
sas_agent_outbox_attempt(const SasFlight *flight, const char *status, int http_status, const Jsonb *error)
{
	MemoryContext old = MemoryContextSwitchTo(outbox_context);
	SasStoredAttempt *a = palloc0(sizeof(SasStoredAttempt));

	a->id = flight->id;
	a->attempt = flight->attempts_before + flight->attempts;
	a->undo = flight->undo;
	a->agent_id = flight->agent_id;
	a->status = status;
	a->http_status = http_status;
	a->error = sas_work_json_copy(outbox_context, error);
	a->started_at = flight->started_at;
	a->finished_at = sas_base_clock_now();
	outbox_attempts = lappend(outbox_attempts, a);
	MemoryContextSwitchTo(old);
}

int
sas_agent_outbox_batch(void)
{
	return outbox_batch;
}

bool
sas_agent_outbox_due(void)
{
	return sas_agent_replies_has(SAS_REPLY_TOGETHER) || outbox_attempts != NIL || outbox_leases != NIL;
}

/* Chooses what to write: as many items as one transaction may, or some replies apart. */
static void
outbox_choose(SasUnwrittenReply **chosen, SasReplyWay way)
{
	int			left = outbox_batch;

	outbox_way = way;
	if (way != SAS_REPLY_TOGETHER)
	{
		outbox_owner = way == SAS_REPLY_DEAR ? sas_agent_replies_next_owner() : InvalidOid;
		outbox_attempts_sent = outbox_leases_sent = 0;
		outbox_replies_sent = sas_agent_replies_choose(chosen, way, outbox_owner, way == SAS_REPLY_DEAR ? sas_agent_dear_batch(outbox_owner) : 1);
		return;
	}
	outbox_attempts_sent = Min(list_length(outbox_attempts), left);
	left -= outbox_attempts_sent;
	outbox_replies_sent = sas_agent_replies_choose(chosen, way, InvalidOid, Min(left, outbox_most_replies));
	left -= outbox_replies_sent;
	outbox_leases_sent = Min(list_length(outbox_leases), left);
}

/*
 * The leases that are over.  The last replies of a lease also report that the
 * lease is over.  The store keeps it while a step still has a valid claim
 * under it: the reply came too late or was given up, and the supervisor finds
 * the step.
 */
static int64 *
outbox_done_leases(SasUnwrittenReply **sent, int *n_done)
{
	int64	   *done = palloc(sizeof(int64) * Max(outbox_leases_sent + outbox_replies_sent, 1));
	int			n = 0;

	for (int i = 0; i < outbox_leases_sent; i++)
		done[n++] = ((SasLeaseEntry *) list_nth(outbox_leases, i))->lease_id;
	for (int i = 0; i < outbox_replies_sent; i++)
		sent[i]->lease->sending++;
	for (int i = 0; i < outbox_replies_sent; i++)
	{
		SasLeaseEntry *lease = sent[i]->lease;

		if (lease->sending < lease->left || lease->dropped)
			continue;
		done[n++] = lease->lease_id;
		lease->sending = 0;		/* once */
	}
	*n_done = n;
	return done;
}

static void
outbox_write(SasReplyWay way)
{
	int			room = Max(sas_agent_replies_count(), 1);
	SasUnwrittenReply **sent = palloc(sizeof(SasUnwrittenReply *) * room);
	SasStoredReply *replies = palloc(sizeof(SasStoredReply) * room);
	SasStoredAttempt *rows = palloc(sizeof(SasStoredAttempt) * Max(list_length(outbox_attempts), 1));
	int64	   *done;
	int			n_done;
	int64		begun_us;

	outbox_choose(sent, way);
	if (way == SAS_REPLY_DEAR)
		sas_template_budget_begin(outbox_replies_sent == 1);
	if (way != SAS_REPLY_LARGE)
		sas_template_budget_limit_steps();
	begun_us = sas_template_budget_us();
	for (int i = 0; i < outbox_replies_sent; i++)
		replies[i] = sent[i]->reply;
	for (int i = 0; i < outbox_attempts_sent; i++)
		rows[i] = *(SasStoredAttempt *) list_nth(outbox_attempts, i);
	done = outbox_done_leases(sent, &n_done);

	outbox_writing = true;
	sas_store_write_attempts(rows, outbox_attempts_sent);
	if (outbox_replies_sent > 0 || n_done > 0)
		sas_store_write_replies(replies, outbox_replies_sent, done, n_done, NULL, 0, palloc(room));
	outbox_writing = false;
	outbox_spent_us = sas_template_budget_us() - begun_us;
	outbox_fitting = sas_template_budget_fitting(outbox_replies_sent);
	/* to change the steps that waited for these is no evaluation, but it takes as long */
	if (way == SAS_REPLY_DEAR && sas_template_budget_steps() > OUTBOX_MANY_STEPS * (int64) outbox_replies_sent)
		outbox_spent_us = Max(sas_template_budget_processor_us(), SAS_AGENT_DEAR_US + 1);
}

bool
sas_agent_outbox_write(void)
{
	outbox_write(SAS_REPLY_TOGETHER);
	return outbox_attempts_sent + outbox_replies_sent + outbox_leases_sent > 0;
}

void
sas_agent_outbox_write_large(void)
{
	outbox_write(SAS_REPLY_LARGE);
}

void
sas_agent_outbox_write_dear(void)
{
	outbox_write(SAS_REPLY_DEAR);
}

static void
outbox_forget_transaction(void)
{
	outbox_writing = false;
	outbox_way = SAS_REPLY_TOGETHER;
	outbox_spent_us = 0;
	outbox_replies_sent = outbox_attempts_sent = outbox_leases_sent = 0;
}

/* After the commit: which owners are dear from now on? */
static void
outbox_judge_owners(void)
{
	if (outbox_way == SAS_REPLY_DEAR && sas_agent_dear_wrote(outbox_owner, outbox_replies_sent, outbox_spent_us))
		sas_agent_replies_part();
	if (outbox_way == SAS_REPLY_TOGETHER && sas_agent_dear_is_long(outbox_spent_us))
		sas_agent_replies_suspect_chosen();
}

void
sas_agent_outbox_written(void)
{
	outbox_judge_owners();
	if (outbox_way == SAS_REPLY_TOGETHER && outbox_replies_sent > 0)
		outbox_most_replies = Max(1, Min(Min(SAS_OUTBOX_BATCH, outbox_most_replies * 2), outbox_fitting));
	sas_agent_replies_forget_chosen();
	for (int i = 0; i < outbox_attempts_sent; i++)
		outbox_free_attempt(list_nth(outbox_attempts, i));
	outbox_attempts = list_delete_first_n(outbox_attempts, outbox_attempts_sent);
	for (int i = 0; i < outbox_leases_sent; i++)
		pfree(list_nth(outbox_leases, i));
	outbox_leases = list_delete_first_n(outbox_leases, outbox_leases_sent);
	if (outbox_attempts_sent + outbox_leases_sent > 0)
		outbox_tries = 0;
	outbox_forget_transaction();
	outbox_batch = Min(SAS_OUTBOX_BATCH, outbox_batch * 2);
}

/* The transaction that wrote this attempt, or this lease, and nothing else has failed. */
static void
outbox_fail_oldest(int tries)
{
	if (++outbox_tries < tries)
		return;
	outbox_tries = 0;
	if (outbox_attempts_sent > 0)
	{
		SasStoredAttempt *a = linitial(outbox_attempts);

		sas_agent_stuck_note("attempt", a->id.run_id, psprintf("could not store attempt %d of step %d", a->attempt, a->id.step_no),
							 "It is missing from sas.attempts.");
		outbox_free_attempt(a);
		outbox_attempts = list_delete_first(outbox_attempts);
	}
	else
	{
		SasLeaseEntry *lease = linitial(outbox_leases);

		sas_agent_stuck_note("lease", 0, psprintf("could not store the end of lease " INT64_FORMAT, lease->lease_id),
							 "The supervisor ends it.");
		pfree(lease);
		outbox_leases = list_delete_first(outbox_leases);
	}
}

void
sas_agent_outbox_failed(bool alone)
{
	int			tries = sas_base_tick_lacked ? SAS_OUTBOX_TRIES_LACKING : SAS_OUTBOX_TRIES;
	int			n = outbox_replies_sent + outbox_attempts_sent + outbox_leases_sent;

	if (outbox_way == SAS_REPLY_DEAR)
		(void) sas_agent_dear_wrote(outbox_owner, 0, 0);
	else if (!sas_template_budget_overran() || sas_base_stopping)
		outbox_batch = 1;
	else if (outbox_writing)
	{
		/* those of one owner may be cheap by themselves */
		sas_agent_replies_suspect_chosen();
		outbox_most_replies = Max(1, outbox_replies_sent / OUTBOX_FEWER);
	}
	if (n == 1 && (outbox_writing || alone) && !sas_base_tick_cancelled)
	{
		if (outbox_replies_sent > 0)
			sas_agent_replies_fail_chosen(tries);
		else
			outbox_fail_oldest(tries);
	}
	outbox_forget_transaction();
}
