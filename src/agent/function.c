/* SPDX-License-Identifier: PostgreSQL */
/*
 * function.c: function steps, each exactly once.
 *
 * Steps are claimed durably first, in a batch.  Then, in a second
 * transaction, their runs are locked and the claims are asked whether they
 * still hold; the functions of one owner are called, each in a subtransaction,
 * and what they wrote commits together with the states of their steps.
 *
 *	- Many short ones share a commit.  What takes over SAS_SLOW_MS ends the
 *	  batch: it is committed, the rest is given back so that others can have
 *	  it, and next time that function is run alone.
 *	- Whatever fails in company is tried alone before it counts, since what
 *	  ran before it in the transaction might be to blame.
 *	- A function is cancelled a little before complete-by, so that its failure
 *	  still counts; one that does not listen is ended by the supervisor.
 *
 * When the worker or the server dies, the second transaction is gone as a
 * whole; the lease tells the supervisor.
 */
#include "postgres.h"

#include "agent/flight.h"
#include "agent/function.h"
#include "agent/json.h"
#include "agent/perform.h"
#include "base/clock.h"
#include "base/context.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define SAS_FUNCTION_BATCH 100
#define SAS_SLOW_MS 50
#define SAS_LOCKED_PAUSE_US 50000
#define SAS_GIVE_UP_AFTER 3

typedef struct Work
{
	SasClaimedFunction *step;
	int64		deadline_us;
	int64		not_before_us;	/* its run was held by somebody */
	bool		solo;			/* failed in company, or known to be slow or dangerous */
	int			tries;			/* transactions that aborted with it */
	bool		done;
	bool		lost;
	SasPerformed performed;
	TimestampTz started_at;
	const char *verdict;
	double		again_in_ms;
} Work;

static MemoryContext claim_context; /* the batch that is being worked on */
static MemoryContext spare_context; /* for the next one */
static Work *work;
static int	n_work;
static int64 lease_id;
static bool lease_stays;		/* something of it was lost or given up */
static int	quantity = SAS_FUNCTION_BATCH;
static bool transaction_failed;
static Oid	last_owner = InvalidOid;

/* functions that were slow when they ran last, by hash */
static bool slow[1024];

static bool *
slow_flag(const char *function)
{
	return &slow[hash_bytes((const unsigned char *) function, strlen(function)) % lengthof(slow)];
}

static void
start(void)
{
	sas_perform_remember_settings();
	sas_store_prepare_session();
	claim_context = AllocSetContextCreate(CurrentMemoryContext, "sas functions", ALLOCSET_DEFAULT_SIZES);
	spare_context = AllocSetContextCreate(CurrentMemoryContext, "sas functions", ALLOCSET_DEFAULT_SIZES);
}

/* Makes the claimed steps the batch that is worked on; they were read into the spare context. */
static void
take_batch(List *claimed, int64 claimed_us)
{
	MemoryContext batch = spare_context;
	MemoryContext old = MemoryContextSwitchTo(batch);
	ListCell   *lc;

	work = palloc0(sizeof(Work) * Max(list_length(claimed), 1));
	n_work = 0;
	lease_stays = false;
	foreach(lc, claimed)
	{
		Work	   *w = &work[n_work++];

		w->step = lfirst(lc);
		w->deadline_us = claimed_us + (int64) (w->step->window_ms * 1000);
		w->solo = w->step->alone || *slow_flag(w->step->function);
		lease_id = w->step->lease_id;
	}
	MemoryContextSwitchTo(old);
	spare_context = claim_context;
	claim_context = batch;
	MemoryContextReset(spare_context);
	quantity = Min(SAS_FUNCTION_BATCH, quantity * 2);
}

/* A batch in a transaction of its own: nothing is in hand. */
static void
claim(void)
{
	MemoryContext old = MemoryContextSwitchTo(spare_context);
	int64		claimed_us = sas_clock_monotonic_us();
	List	   *claimed;

	work = NULL;
	n_work = 0;
	if (!sas_store_begin())
	{
		MemoryContextSwitchTo(old);
		return;
	}
	claimed = sas_store_claim_functions(spare_context, quantity);
	sas_store_commit();
	MemoryContextSwitchTo(old);
	take_batch(claimed, claimed_us);
}

/* The next group: steps of one owner that may share a transaction, or one that goes solo. Fast ones first. */
static int
choose(Work **group, int64 *wake_us)
{
	int64		now = sas_clock_monotonic_us();
	int			n = 0;

	*wake_us = 0;
	for (int pass = 0; pass < 2 && n == 0; pass++)
		for (int i = 0; i < n_work; i++)
		{
			Work	   *w = &work[i];

			if (w->done || w->solo != (pass == 1))
				continue;
			if (w->not_before_us > now)
			{
				if (*wake_us == 0 || w->not_before_us < *wake_us)
					*wake_us = w->not_before_us;
				continue;
			}
			if (n > 0 && w->step->owner != group[0]->step->owner)
				continue;
			group[n++] = w;
			if (pass == 1)
				break;
		}
	return n;
}

static void
judge(Work *w, bool in_company)
{
	if (w->performed.ok)
		w->verdict = "done";
	else if (in_company)
	{
		w->solo = true;
		w->verdict = NULL;
	}
	else if (w->performed.transient)
	{
		SasRetry	retry;

		sas_flight_retry_policy(&retry, NULL, w->step->retry);
		/* the pauses of one window are short, so the claim is given back between them */
		w->verdict = (w->step->attempt + 1) % retry.max_attempts == 0 ? "transient" : "hand_back";
		w->again_in_ms = Max(1, sas_flight_pause_ms(&retry, w->step->attempt % retry.max_attempts + 1));
	}
	else
		w->verdict = "permanent";
}

/* Calls one function; true when it was slow. */
static bool
call(Work *w, bool in_company)
{
	SasContext	context;
	int64		begun = sas_clock_monotonic_us();
	int64		left_ms = (w->deadline_us - begun) / 1000;

	/* cancelled a little early: a reply after complete-by would not count */
	left_ms -= Min(250, (int64) w->step->window_ms / 10);
	w->started_at = sas_clock_now();
	if (w->step->problem != NULL)
	{
		char	   *path = sas_json_string(w->step->problem, "path");
		char	   *what = sas_json_string(w->step->problem, "what");

		w->performed.ok = w->performed.transient = false;
		w->performed.error = sas_json_problem("template", "the input of the step cannot be made",
											  psprintf("%s: %s", path ? path : "template", what ? what : "malformed"),
											  0, w->step->id.run_id, w->step->step);
		in_company = false;
	}
	else
	{
		sas_context_push(&context, w->step->id.run_id, w->step->step, w->step->attempt + 1);
		sas_perform(w->step, Max(1, left_ms), &w->performed);
		sas_context_pop(&context);
		*slow_flag(w->step->function) = sas_clock_monotonic_us() - begun > SAS_SLOW_MS * 1000;
	}
	judge(w, in_company);
	return sas_clock_monotonic_us() - begun > SAS_SLOW_MS * 1000;
}

static void
write_group(Work **group, int n)
{
	SasStoredReply *replies = palloc0(sizeof(SasStoredReply) * n);
	SasStoredAttempt *attempts = palloc0(sizeof(SasStoredAttempt) * n);
	bool	   *aside = palloc0(n);
	int			n_replies = 0;
	int			n_attempts = 0;
	int			left = 0;

	for (int i = 0; i < n_work; i++)
		left += !work[i].done;
	for (int i = 0; i < n; i++)
	{
		Work	   *w = group[i];
		SasStoredReply *r;
		int			attempt = w->step->attempt + 1;

		if (w->verdict == NULL)
			continue;
		r = &replies[n_replies++];
		r->id = w->step->id;
		r->verdict = w->verdict;
		r->attempts = w->started_at != 0 ? 1 : 0;
		r->output = w->performed.ok ? w->performed.output : NULL;
		r->error = w->performed.ok ? NULL : w->performed.error;
		r->again_in_ms = w->again_in_ms;
		left--;
		if (w->started_at != 0 && (!w->performed.ok || attempt > 1 || w->step->undo))
		{
			SasStoredAttempt *a = &attempts[n_attempts++];

			a->id = w->step->id;
			a->attempt = attempt;
			a->undo = w->step->undo;
			a->status = w->performed.ok ? "succeeded" : "failed";
			a->error = r->error;
			a->started_at = w->started_at;
			a->finished_at = sas_clock_now();
		}
	}
	if (n_replies == 0)
		return;
	sas_store_write_attempts(attempts, n_attempts);
	/* the runs are locked already, so nothing can be set aside */
	sas_store_write_replies(replies, n_replies, &lease_id, left == 0 && !lease_stays ? 1 : 0, aside);
}

/* Will the batch be over when this group is? */
static bool
is_last(Work **group, int n)
{
	int			left = 0;

	for (int i = 0; i < n_work; i++)
		left += !work[i].done;
	for (int i = 0; i < n; i++)
		left -= group[i]->lost || group[i]->verdict != NULL;
	return left == 0;
}

/* One transaction: what the group's functions write, and the states of their steps. */
static void
run_group(Work **group, int n)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * n);
	char	   *held;
	int			called = 0;
	bool		was_slow = false;
	List	   *claimed = NIL;
	int64		claimed_us = 0;

	if (last_owner != group[0]->step->owner)
	{
		if (OidIsValid(last_owner))
			sas_perform_wipe_session();
		last_owner = group[0]->step->owner;
	}
	transaction_failed = true;
	for (int i = 0; i < n; i++)
	{
		ids[i] = group[i]->step->id;
		group[i]->verdict = NULL;
		group[i]->started_at = 0;
	}
	if (!sas_store_begin())
		return;
	held = sas_store_held(ids, n);
	for (int i = 0; i < n; i++)
	{
		Work	   *w = group[i];

		if (held[i] == 'x')
			w->lost = true;
		else if (held[i] == 'l')
			w->not_before_us = sas_clock_monotonic_us() + SAS_LOCKED_PAUSE_US;
		else if (was_slow)
			w->verdict = "hand_back";	/* not begun: others can have it, with a window of its own */
		else
			was_slow = call(w, called++ > 0 || n > 1);
	}
	write_group(group, n);
	/* the last of a batch claims the next one along: one commit for both */
	if (!was_slow && is_last(group, n))
	{
		claimed_us = sas_clock_monotonic_us();
		claimed = sas_store_claim_functions(spare_context, quantity);
	}
	sas_store_commit();
	transaction_failed = false;

	for (int i = 0; i < n; i++)
	{
		if (group[i]->lost)
			lease_stays = true;
		if (group[i]->lost || group[i]->verdict != NULL)
			group[i]->done = true;
	}
	if (was_slow)
		quantity = 1;
	if (claimed != NIL)
		take_batch(claimed, claimed_us);
}

/* The transaction of the last group aborted as a whole: each of the batch goes solo, and is given up in the end. */
static void
after_abort(void)
{
	transaction_failed = false;
	for (int i = 0; i < n_work; i++)
	{
		Work	   *w = &work[i];

		if (w->done)
			continue;
		w->solo = true;
		if (++w->tries >= SAS_GIVE_UP_AFTER * n_work)
		{
			w->done = lease_stays = true;
			ereport(WARNING,
					(errmsg("step \"%s\" of run %lld is given up by its worker", w->step->step, (long long) w->step->id.run_id),
					 errdetail("It is taken back when its complete-by has passed.")));
		}
	}
}

static SasTurn
turn(void)
{
	SasTurn		next = {false, -1};
	Work	  **group;
	int64		wake_us;
	int			n;
	int			left = 0;

	if (transaction_failed)
		after_abort();
	for (int i = 0; i < n_work; i++)
		left += !work[i].done;
	if (left == 0)
	{
		claim();
		if (n_work == 0)
			return next;
	}
	group = palloc(sizeof(Work *) * n_work);
	n = choose(group, &wake_us);
	if (n > 0)
	{
		run_group(group, n);
		next.again = true;
	}
	else if (wake_us != 0)
		next.wake_in_ms = Max(1, (wake_us - sas_clock_monotonic_us()) / 1000 + 1);
	else
		next.again = true;
	return next;
}

static int
in_flight(void)
{
	int			left = 0;

	for (int i = 0; i < n_work; i++)
		left += !work[i].done;
	return left;
}

const SasActorMethods sas_function_methods = {
	.start = start,
	.turn = turn,
	.in_flight = in_flight,
};
