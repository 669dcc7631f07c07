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
#include "agent/stuck.h"
#include "base/clock.h"
#include "base/peers.h"
#include "metrics/metrics.h"
#include "template/budget.h"
#include "utils/memutils.h"

/* after this many aborts of a transaction that writes nothing else, an item is given up */
#define SAS_OUTBOX_TRIES 3
/* the same where the server lacks something: for minutes, since the loop pauses longer and longer */
#define SAS_OUTBOX_TRIES_LACKING 100
/* The most items of one transaction.  After an abort it is one item, then twice as many each time. */
#define SAS_OUTBOX_BATCH 1000
/* One transaction writes small replies until they exceed this many bytes. */
#define SAS_OUTBOX_BYTES (4 * 1024 * 1024)

/* The transaction that a reply is written in. */
typedef enum OutboxWay
{
	OUTBOX_TOGETHER,
	OUTBOX_LARGE,				/* one at a time */
	OUTBOX_DEAR					/* with others of its owner, see dear.h */
} OutboxWay;

typedef struct OutboxEntry
{
	SasStoredReply reply;
	Oid			owner;
	OutboxWay	way;
	SasLeaseEntry *lease;
	SasTransportShare *memory;	/* of its agent */
	Size		size;			/* of output and error */
	int			tries;			/* transactions that wrote nothing else and failed */
	bool		sent;			/* in the transaction that is open */
} OutboxEntry;

static MemoryContext outbox_context; /* long-lived */
static SasTransport *outbox_transport;
static List *outbox_entries = NIL; /* of OutboxEntry, oldest first */
static List *outbox_attempts = NIL; /* of SasStoredAttempt */
static List *outbox_leases = NIL; /* of SasLeaseEntry whose flights are over, with nothing left to write */
static int	outbox_n[OUTBOX_DEAR + 1]; /* of the entries, for each way */
static int	outbox_batch = SAS_OUTBOX_BATCH;
static int	outbox_tries = 0; /* to write the oldest attempt, or the oldest lease, and nothing else */

/* of the transaction that is open or was aborted */
static bool outbox_writing = false;
static OutboxWay outbox_way;
static Oid	outbox_owner;	/* whose replies are written apart */
static int64 outbox_spent_us;	/* by evaluations */
static int	outbox_replies_sent;
static int	outbox_attempts_sent;
static int	outbox_leases_sent;

void
sas_agent_outbox_open(MemoryContext context, SasTransport *transport)
{
	outbox_transport = transport;
	outbox_context = AllocSetContextCreate(context, "sas outbox", ALLOCSET_DEFAULT_SIZES);
}

/* What has arrived is a reply that is not written yet, before it is evaluated too. */
void
sas_agent_outbox_note_unwritten(void)
{
	sas_base_peers_set_unwritten(outbox_entries != NIL || sas_transport_has_small(outbox_transport) ||
								 sas_transport_has_large(outbox_transport));
}

static Jsonb *
outbox_copy(const Jsonb *jsonb)
{
	Jsonb	   *copy;

	if (jsonb == NULL)
		return NULL;
	copy = MemoryContextAlloc(outbox_context, VARSIZE(jsonb));
	memcpy(copy, jsonb, VARSIZE(jsonb));
	return copy;
}

static void
outbox_free(const Jsonb *jsonb)
{
	if (jsonb != NULL)
		pfree((void *) jsonb);
}

static OutboxWay
outbox_way_of(const OutboxEntry *e)
{
	if (e->size > SAS_TRANSPORT_LARGE)
		return OUTBOX_LARGE;
	return sas_agent_dear_is(e->owner) && !sas_base_stopping ? OUTBOX_DEAR : OUTBOX_TOGETHER;
}

/* Other owners are dear than before. */
static void
outbox_part(void)
{
	ListCell   *lc;

	memset(outbox_n, 0, sizeof(outbox_n));
	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		e->way = outbox_way_of(e);
		outbox_n[e->way]++;
	}
}

void
sas_agent_outbox_part_no_more(void)
{
	outbox_part();
}

/* Evaluations of what was sent took too long: whose they were is not known. */
static void
outbox_suspect_sent(void)
{
	ListCell   *lc;
	bool		any = false;

	foreach(lc, outbox_entries)
		if (((OutboxEntry *) lfirst(lc))->sent)
			any |= sas_agent_dear_suspect(((OutboxEntry *) lfirst(lc))->owner);
	if (any)
		outbox_part();
}

/* It is written, or given up. */
static void
outbox_forget_entry(OutboxEntry *e)
{
	if (--e->lease->left == 0)
		pfree(e->lease);
	outbox_n[e->way]--;
	sas_transport_hold(outbox_transport, e->memory, -(ptrdiff_t) e->size);
	outbox_free(e->reply.output);
	outbox_free(e->reply.error);
	pfree(e);
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
sas_agent_outbox_reply(const SasFlight *flight, const char *verdict, const Jsonb *output, const Jsonb *error, double again_in_ms)
{
	MemoryContext old = MemoryContextSwitchTo(outbox_context);
	OutboxEntry *e = palloc0(sizeof(OutboxEntry));

	e->owner = flight->owner;
	e->lease = flight->lease;
	e->lease->left++;
	e->reply.id = flight->id;
	e->reply.verdict = verdict;
	e->reply.attempts = flight->attempts;
	e->reply.output = outbox_copy(output);
	e->reply.error = outbox_copy(error);
	e->reply.in_doubt = flight->in_doubt;
	e->reply.again_in_ms = again_in_ms;
	sas_base_peers_set_unwritten(true);
	e->reply.arrived_at = sas_base_clock_now();
	/* its answer may have waited for its evaluation */
	if (flight->arrived_us != 0)
		e->reply.arrived_at -= sas_base_clock_monotonic_us() - flight->arrived_us;
	e->memory = flight->memory;
	e->size = (output != NULL ? VARSIZE(output) : 0) + (error != NULL ? VARSIZE(error) : 0);
	e->way = outbox_way_of(e);
	outbox_n[e->way]++;
	sas_transport_hold(outbox_transport, e->memory, e->size);
	sas_metrics_add(SAS_METRIC_STEP, flight->agent_id, flight->workflow_id, verdict, 1, (sas_base_clock_monotonic_us() - flight->claimed_us) / 1e6);
	outbox_entries = lappend(outbox_entries, e);
	MemoryContextSwitchTo(old);
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
	a->error = outbox_copy(error);
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

int
sas_agent_outbox_replies(void)
{
	return list_length(outbox_entries);
}

bool
sas_agent_outbox_due(void)
{
	return outbox_n[OUTBOX_TOGETHER] > 0 || outbox_attempts != NIL || outbox_leases != NIL;
}

bool
sas_agent_outbox_has_large(void)
{
	return outbox_n[OUTBOX_LARGE] > 0;
}

bool
sas_agent_outbox_has_dear(void)
{
	return outbox_n[OUTBOX_DEAR] > 0;
}

/* The owner of dear replies whose last turn is longest ago. */
static Oid
outbox_next_owner(void)
{
	Oid			next = InvalidOid;
	int64		last_us = 0;
	ListCell   *lc;

	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		if (e->way != OUTBOX_DEAR || e->owner == next)
			continue;
		if (!OidIsValid(next) || sas_agent_dear_last_us(e->owner) < last_us)
		{
			next = e->owner;
			last_us = sas_agent_dear_last_us(next);
		}
	}
	return next;
}

/* The replies to write now, at most so many, the oldest first: as far as they fit, or a large one. Returns how many. */
static int
outbox_choose_replies(OutboxEntry **chosen, OutboxWay way, int batch)
{
	Size		bytes = 0;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		e->sent = false;
		e->lease->sending = 0;
		if (e->way != way || (way == OUTBOX_DEAR && e->owner != outbox_owner) || n == batch || bytes > SAS_OUTBOX_BYTES)
			continue;
		bytes += e->size;
		e->sent = true;
		chosen[n++] = e;
	}
	return n;
}

/* Chooses what to write: as many items as one transaction may, or some replies apart. */
static void
outbox_choose(OutboxEntry **chosen, OutboxWay way)
{
	int			left = outbox_batch;

	outbox_way = way;
	if (way != OUTBOX_TOGETHER)
	{
		outbox_owner = way == OUTBOX_DEAR ? outbox_next_owner() : InvalidOid;
		outbox_attempts_sent = outbox_leases_sent = 0;
		outbox_replies_sent = outbox_choose_replies(chosen, way, way == OUTBOX_DEAR ? sas_agent_dear_batch(outbox_owner) : 1);
		return;
	}
	outbox_attempts_sent = Min(list_length(outbox_attempts), left);
	left -= outbox_attempts_sent;
	outbox_replies_sent = outbox_choose_replies(chosen, way, left);
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
outbox_done_leases(OutboxEntry **sent, int *n_done)
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
outbox_write(OutboxWay way)
{
	int			room = Max(list_length(outbox_entries), 1);
	OutboxEntry **sent = palloc(sizeof(OutboxEntry *) * room);
	SasStoredReply *replies = palloc(sizeof(SasStoredReply) * room);
	SasStoredAttempt *rows = palloc(sizeof(SasStoredAttempt) * Max(list_length(outbox_attempts), 1));
	int64	   *done;
	int			n_done;
	int64		begun_us;

	outbox_choose(sent, way);
	if (way == OUTBOX_DEAR)
		sas_template_turn_begin(outbox_replies_sent == 1);
	begun_us = sas_template_turn_us();
	for (int i = 0; i < outbox_replies_sent; i++)
		replies[i] = sent[i]->reply;
	for (int i = 0; i < outbox_attempts_sent; i++)
		rows[i] = *(SasStoredAttempt *) list_nth(outbox_attempts, i);
	done = outbox_done_leases(sent, &n_done);

	outbox_writing = true;
	sas_store_write_attempts(rows, outbox_attempts_sent);
	if (outbox_replies_sent > 0 || n_done > 0)
		sas_store_write_replies(replies, outbox_replies_sent, done, n_done, false, palloc(room));
	outbox_writing = false;
	outbox_spent_us = sas_template_turn_us() - begun_us;
}

bool
sas_agent_outbox_write(void)
{
	outbox_write(OUTBOX_TOGETHER);
	return outbox_attempts_sent + outbox_replies_sent + outbox_leases_sent > 0;
}

void
sas_agent_outbox_write_large(void)
{
	outbox_write(OUTBOX_LARGE);
}

void
sas_agent_outbox_write_dear(void)
{
	outbox_write(OUTBOX_DEAR);
}

static void
outbox_forget_transaction(void)
{
	outbox_writing = false;
	outbox_way = OUTBOX_TOGETHER;
	outbox_spent_us = 0;
	outbox_replies_sent = outbox_attempts_sent = outbox_leases_sent = 0;
}

/* After the commit: which owners are dear from now on? */
static void
outbox_judge_owners(void)
{
	if (outbox_way == OUTBOX_DEAR && sas_agent_dear_wrote(outbox_owner, outbox_replies_sent, outbox_spent_us))
		outbox_part();
	if (outbox_way == OUTBOX_TOGETHER && sas_agent_dear_is_long(outbox_spent_us))
		outbox_suspect_sent();
}

void
sas_agent_outbox_written(void)
{
	ListCell   *lc;

	outbox_judge_owners();
	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		if (!e->sent)
			continue;
		outbox_forget_entry(e);
		outbox_entries = foreach_delete_current(outbox_entries, lc);
	}
	for (int i = 0; i < outbox_attempts_sent; i++)
	{
		SasStoredAttempt *a = list_nth(outbox_attempts, i);

		outbox_free(a->error);
		pfree(a);
	}
	outbox_attempts = list_delete_first_n(outbox_attempts, outbox_attempts_sent);
	for (int i = 0; i < outbox_leases_sent; i++)
		pfree(list_nth(outbox_leases, i));
	outbox_leases = list_delete_first_n(outbox_leases, outbox_leases_sent);
	if (outbox_attempts_sent + outbox_leases_sent > 0)
		outbox_tries = 0;
	outbox_forget_transaction();
	sas_agent_outbox_note_unwritten();
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
		outbox_free(a->error);
		pfree(a);
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

/* Likewise with this reply. */
static void
outbox_fail_reply(OutboxEntry *e, int tries)
{
	if (++e->tries < tries)
	{
		/* it may be lacking for this one only: others first */
		if (sas_base_tick_lacked && list_length(outbox_entries) > 1)
			outbox_entries = lappend(list_delete_ptr(outbox_entries, e), e);
		return;
	}
	sas_agent_stuck_note("reply", e->reply.id.run_id, psprintf("could not store a reply to step %d", e->reply.id.step_no),
						 "The supervisor takes the step back after its complete-by.");
	e->lease->dropped = true;
	outbox_entries = list_delete_ptr(outbox_entries, e);
	outbox_forget_entry(e);
	sas_agent_outbox_note_unwritten();
}

static OutboxEntry *
outbox_sent_reply(void)
{
	ListCell   *lc;

	foreach(lc, outbox_entries)
		if (((OutboxEntry *) lfirst(lc))->sent)
			return lfirst(lc);
	return NULL;
}

void
sas_agent_outbox_failed(bool alone)
{
	int			tries = sas_base_tick_lacked ? SAS_OUTBOX_TRIES_LACKING : SAS_OUTBOX_TRIES;
	int			n = outbox_replies_sent + outbox_attempts_sent + outbox_leases_sent;

	if (outbox_way == OUTBOX_DEAR)
		(void) sas_agent_dear_wrote(outbox_owner, 0, 0);
	else if (!sas_template_turn_overran() || sas_base_stopping)
		outbox_batch = 1;
	else if (outbox_writing)
		outbox_suspect_sent();
	if (n == 1 && (outbox_writing || alone) && !sas_base_tick_cancelled)
	{
		if (outbox_replies_sent > 0)
			outbox_fail_reply(outbox_sent_reply(), tries);
		else
			outbox_fail_oldest(tries);
	}
	outbox_forget_transaction();
}
