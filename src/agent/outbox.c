/* SPDX-License-Identifier: PostgreSQL */
/*
 * outbox.c: verdicts, attempts and finished leases on their way to the store.
 */
#include "postgres.h"

#include "agent/outbox.h"
#include "base/clock.h"
#include "base/peers.h"
#include "metrics/metrics.h"
#include "utils/memutils.h"
#include "work/agents.h"

/* after this many aborts with a single reply the reply is given up */
#define SAS_OUTBOX_TRIES 3
/* the same where the server lacks something: for minutes, since the loop pauses longer and longer */
#define SAS_OUTBOX_TRIES_LACKING 100
#define SAS_HEALTH_RETRY_US 20000
#define SAS_OUTBOX_BATCH 1000
/* One transaction writes small replies until they exceed this many bytes. */
#define SAS_OUTBOX_BYTES (4 * 1024 * 1024)

typedef struct OutboxEntry
{
	SasStoredReply reply;
	SasLeaseEntry *lease;
	SasTransportShare *memory;	/* of its agent */
	Size		size;			/* of output and error */
	int			tries;			/* transactions that failed with it, each time as the oldest */
	bool		sent;			/* in the transaction that is open */
} OutboxEntry;

static MemoryContext outbox_context; /* long-lived */
static SasTransport *outbox_transport;
static List *outbox_entries = NIL; /* of OutboxEntry, oldest first */
static List *outbox_attempts = NIL; /* of SasStoredAttempt */
static List *outbox_leases = NIL; /* of SasLeaseEntry whose flights are over, with nothing left to write */
static int	outbox_n_large; /* of the entries */
static int	outbox_batch = SAS_OUTBOX_BATCH;
static int	outbox_tries = 0; /* to write attempts without a reply */
static bool outbox_writing = false; /* replies, in the transaction that is open or was aborted */
static int	outbox_attempts_sent;
static int	outbox_leases_sent;
static int64 outbox_health_not_before_us; /* the row of an agent was locked; 0: none was */

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

static bool
outbox_is_large(const OutboxEntry *e)
{
	return e->size > SAS_TRANSPORT_LARGE;
}

/* It is written, or given up. */
static void
outbox_forget_entry(OutboxEntry *e)
{
	if (--e->lease->left == 0)
		pfree(e->lease);
	outbox_n_large -= outbox_is_large(e);
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
	outbox_n_large += outbox_is_large(e);
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

bool
sas_agent_outbox_due(void)
{
	return list_length(outbox_entries) > outbox_n_large || outbox_attempts != NIL || outbox_leases != NIL ||
		(sas_work_health_due && outbox_health_not_before_us <= sas_base_clock_monotonic_us());
}

bool
sas_agent_outbox_has_large(void)
{
	return outbox_n_large > 0;
}

bool
sas_agent_outbox_waiting(void)
{
	return sas_work_health_due;
}

static void
outbox_write_health(SasAgentEntry *agents, int n_agents)
{
	static const char *const names[] = {"closed", "open", "half-open"};

	for (int i = 0; i < n_agents; i++)
	{
		SasAgentEntry *e = &agents[i];

		if (!e->error_seen && !e->breaker_changed)
			continue;
		/* a note that has waited must not overwrite a newer one of another worker: write the state as it is now */
		if (e->breaker_changed && outbox_health_not_before_us != 0)
			e->breaker = sas_limits_breaker(e->stored->agent_id);
		e->health_written = sas_store_write_health(e->stored->agent_id, e->breaker_changed ? names[e->breaker] : NULL,
												   e->limits.breaker_open_us / 1000.0, e->error_seen ? e->last_error : NULL);
	}
}

/* After the commit: agents whose row was written are done; those whose row was locked are tried again soon. */
static void
outbox_health_written(SasAgentEntry *agents, int n_agents)
{
	sas_work_health_due = false;
	for (int i = 0; i < n_agents; i++)
	{
		SasAgentEntry *e = &agents[i];

		if (e->health_written)
			e->error_seen = e->breaker_changed = false;
		e->health_written = false;
		sas_work_health_due |= e->error_seen || e->breaker_changed;
	}
	outbox_health_not_before_us = sas_work_health_due ? sas_base_clock_monotonic_us() + SAS_HEALTH_RETRY_US : 0;
}

/* What is to be written now, the oldest first: small ones as far as they fit, or a large one. Returns how many. */
static int
outbox_choose(OutboxEntry **chosen, bool large)
{
	int			batch = large ? 1 : outbox_batch;
	Size		bytes = 0;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		e->sent = false;
		e->lease->sending = 0;
		if (outbox_is_large(e) != large || n == batch || bytes > SAS_OUTBOX_BYTES)
			continue;
		bytes += e->size;
		e->sent = true;
		chosen[n++] = e;
	}
	return n;
}

/*
 * The last replies of a lease also report that the lease is over.  The store
 * keeps it while a step still has a valid claim under it: the reply came too
 * late or was given up, and the supervisor finds the step.
 */
static void
outbox_write_replies(bool large)
{
	SasStoredReply *replies = palloc(sizeof(SasStoredReply) * Max(Min(list_length(outbox_entries), outbox_batch), 1));
	OutboxEntry **sent = palloc(sizeof(OutboxEntry *) * Max(Min(list_length(outbox_entries), outbox_batch), 1));
	int64	   *done;
	int			n_done = 0;
	SasStoredAttempt *rows = palloc(sizeof(SasStoredAttempt) * Max(list_length(outbox_attempts), 1));
	int			n = outbox_choose(sent, large);
	ListCell   *lc;

	for (int i = 0; i < n; i++)
		replies[i] = sent[i]->reply;
	outbox_attempts_sent = outbox_leases_sent = 0;
	foreach(lc, outbox_attempts)
		rows[outbox_attempts_sent++] = *(SasStoredAttempt *) lfirst(lc);
	done = palloc(sizeof(int64) * Max(list_length(outbox_leases) + n, 1));
	foreach(lc, outbox_leases)
		done[n_done++] = ((SasLeaseEntry *) lfirst(lc))->lease_id;
	outbox_leases_sent = n_done;
	for (int i = 0; i < n; i++)
		sent[i]->lease->sending++;
	for (int i = 0; i < n; i++)
	{
		SasLeaseEntry *lease = sent[i]->lease;

		if (lease->sending < lease->left || lease->dropped)
			continue;
		done[n_done++] = lease->lease_id;
		lease->sending = 0;		/* once */
	}

	outbox_writing = true;
	sas_store_write_attempts(rows, outbox_attempts_sent);
	if (n > 0 || n_done > 0)
		sas_store_write_replies(replies, n, done, n_done, false, palloc(Max(n, 1)));
	outbox_writing = false;
}

void
sas_agent_outbox_write(SasAgentEntry *agents, int n_agents)
{
	outbox_write_replies(false);
	outbox_write_health(agents, n_agents);
}

void
sas_agent_outbox_write_large(void)
{
	outbox_write_replies(true);
}

void
sas_agent_outbox_written(SasAgentEntry *agents, int n_agents)
{
	ListCell   *lc;

	if (agents != NULL)
		outbox_health_written(agents, n_agents);
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
	outbox_attempts_sent = outbox_leases_sent = 0;
	sas_agent_outbox_note_unwritten();
	outbox_tries = 0;
	outbox_batch = Min(SAS_OUTBOX_BATCH, outbox_batch * 2);
}

void
sas_agent_outbox_failed(bool alone)
{
	bool		tried = outbox_writing || alone;
	int			tries = sas_base_tick_lacked ? SAS_OUTBOX_TRIES_LACKING : SAS_OUTBOX_TRIES;
	ListCell   *lc;

	outbox_writing = false;
	outbox_batch = 1;
	if (!tried || sas_base_tick_cancelled)
		return;
	/* one at a time has been tried by now */
	foreach(lc, outbox_entries)
	{
		OutboxEntry *e = lfirst(lc);

		if (!e->sent)
			continue;
		if (++e->tries < tries)
		{
			/* it may be lacking for this one only: others first */
			if (sas_base_tick_lacked && list_length(outbox_entries) > 1)
				outbox_entries = lappend(foreach_delete_current(outbox_entries, lc), e);
			return;
		}
		ereport(WARNING,
				(errmsg("could not store a reply to run %lld", (long long) e->reply.id.run_id),
				 errdetail("The supervisor takes the step back after its complete-by.")));
		e->lease->dropped = true;
		outbox_forget_entry(e);
		outbox_entries = foreach_delete_current(outbox_entries, lc);
		sas_agent_outbox_note_unwritten();
		return;
	}
	if (++outbox_tries < tries)
		return;
	outbox_tries = 0;
	outbox_attempts = NIL;
}
