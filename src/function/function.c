/* SPDX-License-Identifier: PostgreSQL */
/*
 * function.c: function steps, each exactly once.
 *
 * Steps are claimed durably first, in a batch.  A second transaction locks
 * their runs and checks that the claims are still valid.  It calls the
 * functions of one owner, each in a subtransaction, and what they wrote
 * commits together with the states of their steps.
 *
 *	- Many short functions share a commit.  A slow one (function/batch_size.h) ends
 *	  the batch: it is committed, the rest is given back to other workers, and next
 *	  time that function is run alone.
 *	- A failure beside others is tried alone before it counts, since a function
 *	  that ran earlier in the transaction might be the cause.
 *	- A function is cancelled a little before complete-by, so that its failure
 *	  still counts; the supervisor ends the worker of one that ignores the cancel.
 *
 * A step whose run is locked is deferred, and other batches are claimed
 * meanwhile: a session that locks one run does not delay the functions of
 * others.
 *
 * When the worker or the server dies, the second transaction is gone as a
 * whole; the supervisor finds the lease.
 */
#include "postgres.h"

#include "base/clock.h"
#include "function/batch_size.h"
#include "function/function.h"
#include "function/repeat.h"
#include "metrics/metrics.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/late.h"
#include "work/request.h"
#include "work/verdict.h"

#define SAS_LOCKED_PAUSE_US 50000
/* transactions that may abort with a step in them before it is given up */
#define SAS_GIVE_UP_AFTER 5
/* batches that may wait for locked runs */
#define SAS_OPEN_BATCHES 16

typedef struct Batch Batch;

typedef struct Work
{
	Batch	   *batch;
	SasClaimedFunction *step;
	int64		deadline_us;
	int64		not_before_us;	/* its run was locked */
	bool		solo;			/* failed beside others, or known to be slow or dangerous */
	int			tries;			/* transactions that aborted with it */
	bool		done;

	/* of the transaction that is open */
	SasInvoked	invoked;
	TimestampTz started_at;		/* 0: not called */
	const char *verdict;		/* NULL: none yet */
	const char *attempt_status;	/* status of the attempt's row; NULL: none */
	bool		lost;
	double		again_in_ms;
} Work;

/* What was claimed under one lease. */
struct Batch
{
	MemoryContext context;
	int64		lease_id;
	int			left;
	Work	   *work;
	int			n;
};

static MemoryContext function_context;
static List *function_batches = NIL; /* oldest first */
static Work **function_group;	/* of the transaction that is open or has aborted */
static int	function_n_group;
static uint32 function_wake_count;	/* count of wake-ups for functions at the last look */
static bool function_found_none;	/* and it left nothing behind */

static void
function_start(void)
{
	sas_function_repeat_open();
	function_context = AllocSetContextCreate(CurrentMemoryContext, "sas functions", ALLOCSET_DEFAULT_SIZES);
	function_group = MemoryContextAlloc(function_context, sizeof(Work *) * SAS_FUNCTION_BATCH);
}

/* In a transaction: claims into a context of its own; after the commit the batch counts. */
static Batch *
function_claim(void)
{
	MemoryContext context = AllocSetContextCreate(function_context, "sas batch", ALLOCSET_SMALL_SIZES);
	int64		claimed_us = sas_base_clock_monotonic_us();
	List	   *claimed;
	Batch	   *batch;
	ListCell   *lc;
	uint32		wake_count = sas_wake_lane_count(0);

	/* read before the look, which then sees the work that was counted */
	if (function_found_none && wake_count == function_wake_count)
		sas_work_late_look(SAS_LATE_STEP, 0, sas_wake_lane_count, wake_count, DT_NOEND);
	claimed = sas_store_claim_functions(context, sas_function_batch_size(), sas_function_batch_is_short());
	function_wake_count = wake_count;
	function_found_none = claimed == NIL;
	sas_function_batch_claimed(list_length(claimed));
	if (claimed == NIL)
	{
		MemoryContextDelete(context);
		return NULL;
	}
	batch = MemoryContextAllocZero(context, sizeof(Batch));
	batch->context = context;
	batch->work = MemoryContextAllocZero(context, sizeof(Work) * list_length(claimed));
	foreach(lc, claimed)
	{
		Work	   *w = &batch->work[batch->n++];

		w->batch = batch;
		w->step = lfirst(lc);
		w->deadline_us = claimed_us + (int64) (w->step->window_ms * 1000);
		w->solo = w->step->isolated || sas_function_was_slow(w->step->function);
		batch->lease_id = w->step->lease_id;
	}
	batch->left = batch->n;
	return batch;
}

static void
function_take(Batch *batch)
{
	MemoryContext old;

	if (batch == NULL)
		return;
	old = MemoryContextSwitchTo(function_context);
	function_batches = lappend(function_batches, batch);
	MemoryContextSwitchTo(old);
}

/*
 * The next group: steps of one owner that may share a transaction, or one
 * that goes solo; those that may share first.  *wake_us: when one that is set
 * aside is to be tried again.
 */
static int
function_choose(int64 *wake_us)
{
	int64		now = sas_base_clock_monotonic_us();
	ListCell   *lc;

	*wake_us = 0;
	function_n_group = 0;
	for (int pass = 0; pass < 2 && function_n_group == 0; pass++)
		foreach(lc, function_batches)
		{
			Batch	   *batch = lfirst(lc);

			for (int i = 0; i < batch->n && function_n_group < (pass == 0 ? SAS_FUNCTION_BATCH : 1); i++)
			{
				Work	   *w = &batch->work[i];

				if (w->done || w->solo != (pass == 1))
					continue;
				if (w->not_before_us > now)
				{
					if (*wake_us == 0 || w->not_before_us < *wake_us)
						*wake_us = w->not_before_us;
					continue;
				}
				if (function_n_group == 0 || w->step->owner == function_group[0]->step->owner)
					function_group[function_n_group++] = w;
			}
		}
	return function_n_group;
}

/* A function is cancelled a little early: a reply after complete-by would not count. */
static int64
function_cancel_at_us(const Work *w)
{
	return w->deadline_us - Min(250, (int64) w->step->window_ms / 10) * 1000;
}

static void
function_evaluate(Work *w, bool in_company)
{
	SasVerdict	verdict;

	if (!w->invoked.ok && in_company)
	{
		w->solo = true;
		return;
	}
	sas_work_verdict_of_function(&verdict, w->step, &w->invoked, function_cancel_at_us(w) <= sas_base_clock_monotonic_us());
	w->verdict = verdict.reply;
	w->attempt_status = verdict.attempt_status;
	w->again_in_ms = verdict.pause_ms;
}

/* Calls one function; true when it was slow. */
static bool
function_call(Work *w, bool in_company)
{
	int64		begun = sas_base_clock_monotonic_us();
	int64		left_ms = (function_cancel_at_us(w) - begun + 999) / 1000;

	w->started_at = sas_base_clock_now();
	if (w->step->problem != NULL)
	{
		memset(&w->invoked, 0, sizeof(w->invoked));
		w->invoked.error = sas_work_verdict_no_input(w->step);
		in_company = false;
	}
	else
	{
		sas_work_invoke_step(w->step, Max(1, left_ms), &w->invoked);
		sas_function_note_time(w->step->function, sas_base_clock_monotonic_us() - begun);
	}
	sas_metrics_add(SAS_METRIC_CALL, 0, w->step->workflow_id, w->invoked.ok ? "succeeded" : "failed", 1, (sas_base_clock_monotonic_us() - begun) / 1e6);
	function_evaluate(w, in_company);
	return sas_function_is_slow(sas_base_clock_monotonic_us() - begun);
}

/* The leases of which nothing is left after this group, also when its claims were lost; returns how many. */
static int
function_finished_leases(int64 *leases)
{
	int			n = 0;

	for (int i = 0; i < function_n_group; i++)
	{
		Batch	   *batch = function_group[i]->batch;
		int			left = batch->left;

		for (int k = 0; k < function_n_group; k++)
			left -= function_group[k]->batch == batch && (function_group[k]->verdict != NULL || function_group[k]->lost);
		if (left == 0 && (n == 0 || leases[n - 1] != batch->lease_id))
			leases[n++] = batch->lease_id;
	}
	return n;
}

static void
function_log_failures(void)
{
	for (int i = 0; i < function_n_group; i++)
	{
		Work	   *w = function_group[i];

		if (w->verdict != NULL && w->started_at != 0 && sas_work_failure_is_final(w->verdict))
			sas_work_failure_log_step(&w->step->id, w->step->step, w->step->undo, w->step->attempt + 1, w->invoked.error);
	}
}

static void
function_write_group(void)
{
	SasStoredReply *replies = palloc0(sizeof(SasStoredReply) * function_n_group);
	SasStoredAttempt *attempts = palloc0(sizeof(SasStoredAttempt) * function_n_group);
	int64	   *leases = palloc(sizeof(int64) * function_n_group);
	bool	   *aside = palloc0(function_n_group);
	int			n_leases = function_finished_leases(leases);
	int			n_replies = 0;
	int			n_attempts = 0;

	for (int i = 0; i < function_n_group; i++)
	{
		Work	   *w = function_group[i];
		SasStoredReply *r;
		int			attempt = w->step->attempt + 1;

		if (w->verdict == NULL)
			continue;
		r = &replies[n_replies++];
		r->id = w->step->id;
		r->verdict = w->verdict;
		r->attempts = w->started_at != 0 ? 1 : 0;
		r->output = w->invoked.ok ? w->invoked.output : NULL;
		r->error = w->invoked.ok ? NULL : w->invoked.error;
		r->again_in_ms = w->again_in_ms;
		if (w->started_at != 0 && w->attempt_status != NULL)
		{
			SasStoredAttempt *a = &attempts[n_attempts++];

			a->id = w->step->id;
			a->attempt = attempt;
			a->undo = w->step->undo;
			a->status = w->attempt_status;
			a->error = r->error;
			a->started_at = w->started_at;
			a->finished_at = sas_base_clock_now();
		}
	}
	if (n_replies == 0 && n_leases == 0)
		return;
	sas_store_write_attempts(attempts, n_attempts);
	/* strict: what a function wrote must not be committed when its reply does not count */
	sas_store_write_replies(replies, n_replies, leases, n_leases, true, aside);
	function_log_failures();
}

/* After the commit: what the group's steps came to. */
static void
function_settle_group(void)
{
	for (int i = 0; i < function_n_group; i++)
		if (function_group[i]->lost || function_group[i]->verdict != NULL)
		{
			if (!function_group[i]->lost)
				sas_metrics_add(SAS_METRIC_STEP, 0, function_group[i]->step->workflow_id, function_group[i]->verdict, 1,
								(sas_base_clock_monotonic_us() - function_group[i]->deadline_us) / 1e6 + function_group[i]->step->window_ms / 1e3);
			function_group[i]->done = true;
			function_group[i]->batch->left--;
		}
	function_n_group = 0;
	for (int i = list_length(function_batches) - 1; i >= 0; i--)
	{
		Batch	   *batch = list_nth(function_batches, i);

		if (batch->left == 0)
		{
			function_batches = list_delete_nth_cell(function_batches, i);
			MemoryContextDelete(batch->context);
		}
	}
}

/* Will nothing be left to do at once when this group is through? */
static bool
function_is_last(void)
{
	int			runnable = 0;
	ListCell   *lc;

	foreach(lc, function_batches)
	{
		Batch	   *batch = lfirst(lc);

		for (int i = 0; i < batch->n; i++)
			runnable += !batch->work[i].done && batch->work[i].not_before_us == 0;
	}
	/* not beside one that took a transaction down before: a claim must not cost what a function did */
	for (int i = 0; i < function_n_group; i++)
		if (function_group[i]->tries > 0)
			return false;
	for (int i = 0; i < function_n_group; i++)
		runnable -= function_group[i]->not_before_us == 0 && (function_group[i]->lost || function_group[i]->verdict != NULL);
	return runnable == 0 && !sas_base_leaving && list_length(function_batches) < SAS_OPEN_BATCHES;
}

/* Checks that the claims are still valid, and calls; true when the last function was slow. */
static bool
function_call_group(void)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * function_n_group);
	char	   *valid;
	bool		was_slow = false;
	int			called = 0;

	for (int i = 0; i < function_n_group; i++)
	{
		ids[i] = function_group[i]->step->id;
		function_group[i]->verdict = NULL;
		function_group[i]->attempt_status = NULL;
		function_group[i]->lost = false;
		function_group[i]->started_at = 0;
		function_group[i]->not_before_us = 0;
		function_group[i]->again_in_ms = 0;
	}
	valid = sas_store_valid_claims(ids, function_n_group);
	for (int i = 0; i < function_n_group; i++)
	{
		Work	   *w = function_group[i];
		int64		left_us = w->deadline_us - sas_base_clock_monotonic_us();

		if (valid[i] == 'x')
			w->lost = true;
		else if (valid[i] == 'l')
			w->not_before_us = sas_base_clock_monotonic_us() + SAS_LOCKED_PAUSE_US;
		else if (was_slow || left_us < w->step->window_ms * 500)
			w->verdict = "hand_back";	/* not begun, and half of its window is over: another worker can have it, with a new window */
		else
			was_slow = function_call(w, function_n_group > 1 || called++ > 0);
	}
	return was_slow;
}

/* One transaction: what the group's functions write, and the states of their steps. */
static void
function_run_group(void)
{
	Batch	   *next = NULL;
	int64		begun = sas_base_clock_monotonic_us();
	bool		was_slow;

	sas_work_change_owner(function_group[0]->step->owner);
	if (!sas_store_begin())
		return;
	was_slow = function_call_group();
	function_write_group();
	/* the last of a batch claims the next one along: one commit for both */
	if (!was_slow && function_is_last())
		next = function_claim();
	sas_function_batch_done(sas_base_clock_monotonic_us() - begun, function_n_group, was_slow);
	sas_store_commit();
	function_settle_group();
	function_take(next);
}

/* The transaction of the last group aborted as a whole: each goes solo, and is given up in the end. */
static void
function_after_abort(void)
{
	for (int i = 0; i < function_n_group; i++)
	{
		Work	   *w = function_group[i];

		w->solo = true;
		w->verdict = NULL;
		if (!sas_base_tick_cancelled)
			w->tries++;
		w->lost = w->tries >= SAS_GIVE_UP_AFTER;
		if (w->lost)
			ereport(WARNING,
					(errmsg("worker gives up step \"%s\" of run %lld", w->step->step, (long long) w->step->id.run_id),
					 errdetail("The supervisor takes it back after its complete-by.")));
	}
	function_settle_group();
}

static SasTick
function_step_tick(void)
{
	SasTick		next = {false, -1};
	int64		wake_us;
	Batch	   *batch;

	if (function_n_group > 0)
		function_after_abort();
	if (function_choose(&wake_us) > 0)
	{
		function_run_group();
		next.again = true;
		return next;
	}
	if (wake_us != 0)
		next.wake_in_ms = Max(1, (wake_us - sas_base_clock_monotonic_us()) / 1000 + 1);
	if (sas_base_leaving || list_length(function_batches) >= SAS_OPEN_BATCHES || !sas_store_begin())
		return next;
	batch = function_claim();
	sas_store_commit();
	function_take(batch);
	next.again = batch != NULL;
	return next;
}

/* A tick for steps and one for infinite tasks. */
static SasTick
function_tick(void)
{
	SasTick		next = function_step_tick();
	SasTick		other = {false, -1};

	if (!sas_base_retire)
		other = sas_function_repeat_tick();
	next.again |= other.again;
	if (other.wake_in_ms >= 0 && (next.wake_in_ms < 0 || other.wake_in_ms < next.wake_in_ms))
		next.wake_in_ms = other.wake_in_ms;
	return next;
}

static int
function_in_flight(void)
{
	int			left = 0;
	ListCell   *lc;

	foreach(lc, function_batches)
		left += ((Batch *) lfirst(lc))->left;
	return left;
}

const SasActorMethods sas_function_methods = {
	.start = function_start,
	.tick = function_tick,
	.in_flight = function_in_flight,
};
