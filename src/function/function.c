/* SPDX-License-Identifier: PostgreSQL */
/*
 * function.c: function steps, each exactly once.
 *
 * Steps are claimed durably first, in a batch.  A second transaction calls
 * the functions of one owner, each in a subtransaction.  No row of sas is
 * locked meanwhile: functions of one run run beside each other, on as many
 * workers as there are, and others go on with the run.
 *
 * When the functions are done, deferred triggers fired and rights restored,
 * the transaction locks its leases, which only ticks lock, and asks with a
 * fresh snapshot whether the claims are still valid: else all of it rolls
 * back.  What the functions wrote commits together with the states of their
 * steps, or, where somebody holds a run, together with a row that says what
 * its step has come to (_sas.answer).
 *
 *	- Many short functions share a commit.  A slow one (function/batch_size.h) ends
 *	  the batch: it is committed, the rest is given back to other workers.  One that
 *	  was slow last time, or is not known, is run alone, and all else that is
 *	  claimed is given back before: it must not wait for it.
 *	- A failure beside others is tried alone before it counts, since a function
 *	  that ran earlier in the transaction might be the cause.
 *	- A function is cancelled a little before complete-by, so that its failure
 *	  still counts, and when its claim is revoked, since its run was cancelled or
 *	  halted.  The supervisor ends the worker of one that ignores the cancel.
 *
 * A worker that is asked to end cancels its function, which is rolled back,
 * commits those before it, and gives back all others: nothing is counted.
 * When the worker or the server dies, the second transaction is gone as a
 * whole; the supervisor finds the lease.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "function/batch_size.h"
#include "function/function.h"
#include "function/planned.h"
#include "function/repeat.h"
#include "function/work.h"
#include "metrics/metrics.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/json.h"
#include "work/late.h"
#include "work/request.h"
#include "work/verdict.h"

/* a function that does not listen when it is cancelled has this long after complete-by; then its worker is ended */
#define SAS_CANCEL_GRACE_US 500000

static MemoryContext function_context;
static List *function_batches = NIL; /* oldest first */
static SasFunctionWork **function_group;	/* of the transaction that is open or has aborted */
static int	function_n_group;
static uint32 function_wake_count;	/* count of wake-ups for functions at the last look */
static bool function_found_none;	/* and it left nothing behind */

static void
function_start(void)
{
	sas_function_repeat_open();
	function_context = AllocSetContextCreate(CurrentMemoryContext, "sas functions", ALLOCSET_DEFAULT_SIZES);
	function_group = MemoryContextAlloc(function_context, sizeof(SasFunctionWork *) * SAS_FUNCTION_BATCH);
}

/* In a transaction: claims into a context of its own; after the commit the batch counts. */
static SasFunctionBatch *
function_claim(void)
{
	MemoryContext context = AllocSetContextCreate(function_context, "sas batch", ALLOCSET_SMALL_SIZES);
	int64		claimed_us = sas_base_clock_monotonic_us();
	List	   *claimed;
	SasFunctionBatch *batch;
	ListCell   *lc;
	uint32		wake_count = sas_wake_lane_count(0);

	/* read before the look, which then sees the work that was counted */
	if (function_found_none && wake_count == function_wake_count)
		sas_work_late_look(SAS_LATE_STEP, 0, sas_wake_lane_count, wake_count, DT_NOEND);
	claimed = sas_store_claim_functions(context, sas_function_batch_size(), sas_function_batch_is_short());
	function_wake_count = wake_count;
	/* what it leaves since its owner has as many workers as may is left behind */
	function_found_none = claimed == NIL && !sas_base_peers_waits_for_owner();
	sas_function_batch_claimed(list_length(claimed));
	if (claimed == NIL)
	{
		MemoryContextDelete(context);
		return NULL;
	}
	batch = MemoryContextAllocZero(context, sizeof(SasFunctionBatch));
	batch->context = context;
	batch->work = MemoryContextAllocZero(context, sizeof(SasFunctionWork) * list_length(claimed));
	foreach(lc, claimed)
	{
		SasFunctionWork *w = &batch->work[batch->n++];

		w->batch = batch;
		w->step = lfirst(lc);
		w->deadline_us = claimed_us + (int64) (w->step->window_ms * 1000);
		w->solo = w->step->isolated;
		batch->lease_id = w->step->lease_id;
	}
	batch->left = batch->n;
	return batch;
}

static void
function_take(SasFunctionBatch *batch)
{
	MemoryContext old;

	if (batch == NULL)
		return;
	old = MemoryContextSwitchTo(function_context);
	function_batches = lappend(function_batches, batch);
	MemoryContextSwitchTo(old);
}

static bool
function_goes_alone(const SasFunctionWork *w)
{
	return w->solo || !sas_function_was_fast(w->step->function);
}

/* The next group: steps of one owner that may share a transaction, or one that goes alone; those that may share first. */
static int
function_choose(void)
{
	ListCell   *lc;

	function_n_group = 0;
	for (int pass = 0; pass < 2 && function_n_group == 0; pass++)
		foreach(lc, function_batches)
		{
			SasFunctionBatch *batch = lfirst(lc);

			for (int i = 0; i < batch->n && function_n_group < (pass == 0 ? SAS_FUNCTION_BATCH : 1); i++)
			{
				SasFunctionWork *w = &batch->work[i];

				if (w->done || function_goes_alone(w) != (pass == 1))
					continue;
				if (function_n_group == 0 || w->step->owner == function_group[0]->step->owner)
					function_group[function_n_group++] = w;
			}
		}
	return function_n_group;
}

/* A function is cancelled a little early: a reply after complete-by would not count. */
static int64
function_cancel_at_us(const SasFunctionWork *w)
{
	return w->deadline_us - Min(250, (int64) w->step->window_ms / 10) * 1000;
}

static void
function_evaluate(SasFunctionWork *w, bool in_company)
{
	SasVerdict	verdict;
	bool		late = w->aborts.problem != NULL || function_cancel_at_us(w) <= sas_base_clock_monotonic_us();

	if (!w->invoked.ok && w->invoked.sqlstate == ERRCODE_QUERY_CANCELED && !late)
	{
		SasInterrupted interrupted = sas_base_peers_interrupted(sas_base_peers_step(w->step->id.request_id.data));

		/* the claim was revoked; or a cancel was meant for a function that had just ended, and this one is called again */
		w->lost = interrupted == SAS_INTERRUPTED_MEANT;
		w->solo |= interrupted == SAS_INTERRUPTED_STRAY;
		if (interrupted != SAS_INTERRUPTED_NOT)
			return;
	}
	if (sas_base_stopping && !w->invoked.ok && w->invoked.sqlstate == ERRCODE_QUERY_CANCELED)
	{
		/* its writes are gone: as if it had not been called */
		w->verdict = "hand_back";
		w->started_at = 0;
		return;
	}
	if (!w->invoked.ok && in_company)
	{
		w->solo = true;
		return;
	}
	sas_work_verdict_of_function(&verdict, w->step, &w->invoked, late);
	w->verdict = verdict.reply;
	w->attempt_status = verdict.attempt_status;
	w->again_in_ms = verdict.pause_ms;
}

/* Calls one function; true when it was slow. */
static bool
function_call(SasFunctionWork *w, bool in_company)
{
	int64		begun = sas_base_clock_monotonic_us();
	int64		left_ms = (function_cancel_at_us(w) - begun + 999) / 1000;

	w->started_at = sas_base_clock_now();
	if (w->aborts.problem != NULL)
	{
		/* its window is over: memory that was lacking may be there in the next one */
		w->invoked.error = w->aborts.problem;
		w->invoked.transient = true;
		in_company = false;
	}
	else if (w->step->problem != NULL)
	{
		w->invoked.error = sas_work_verdict_no_input(w->step);
		w->invoked.transient = sas_work_json_bool(w->step->problem, "transient", false);
		in_company = false;
	}
	else
	{
		sas_base_peers_begin_invocation(sas_base_peers_step(w->step->id.request_id.data), w->deadline_us + SAS_CANCEL_GRACE_US);
		sas_work_invoke_step(w->step, Max(1, left_ms), &w->invoked);
		sas_base_peers_end_invocation();
		sas_function_note_time(w->step->function, sas_base_clock_monotonic_us() - begun);
	}
	sas_base_peers_set_unwritten(true);
	w->arrived_at = sas_base_clock_now();
	function_evaluate(w, in_company);
	if (w->started_at != 0)
		sas_metrics_add(SAS_METRIC_CALL, 0, w->step->workflow_id, w->invoked.ok ? "succeeded" : "failed", 1, (sas_base_clock_monotonic_us() - begun) / 1e6);
	return sas_function_is_slow(sas_base_clock_monotonic_us() - begun);
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
	sas_base_peers_set_unwritten(false);
	sas_base_peers_leave_owner();
	function_n_group = 0;
	for (int i = list_length(function_batches) - 1; i >= 0; i--)
	{
		SasFunctionBatch *batch = list_nth(function_batches, i);

		if (batch->left == 0)
		{
			function_batches = list_delete_nth_cell(function_batches, i);
			MemoryContextDelete(batch->context);
		}
	}
}

/* Will nothing be left to do when this group is through? */
static bool
function_is_last(void)
{
	int			left = 0;
	ListCell   *lc;

	foreach(lc, function_batches)
		left += ((SasFunctionBatch *) lfirst(lc))->left;
	/* a run that is to be submitted comes before the next batch: none waits for a function that plans it */
	if (sas_function_planned_waits())
		return false;
	/* not beside one that took a transaction down before: a claim must not cost what a function did */
	for (int i = 0; i < function_n_group; i++)
		if (function_group[i]->aborts.tries > 0)
			return false;
	for (int i = 0; i < function_n_group; i++)
		left -= function_group[i]->lost || function_group[i]->verdict != NULL;
	return left == 0 && !sas_base_leaving && !sas_base_stopping;
}

/* What a function of an earlier transaction left is in memory that is gone. */
static void
function_clear(SasFunctionWork *w)
{
	memset(&w->invoked, 0, sizeof(w->invoked));
	w->verdict = NULL;
	w->attempt_status = NULL;
	w->lost = false;
	w->started_at = 0;
	w->again_in_ms = 0;
}

/* Calls those whose claims are still valid; true when the last function was slow. */
static bool
function_call_group(void)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * function_n_group);
	bool	   *valid;
	bool		was_slow = false;
	int			called = 0;
	Oid			owner = function_group[0]->step->owner;
	bool		may_call = sas_base_peers_enter_owner(owner, sas_function_workers_of(owner));

	for (int i = 0; i < function_n_group; i++)
	{
		ids[i] = function_group[i]->step->id;
		function_clear(function_group[i]);
	}
	valid = sas_store_valid_claims(ids, function_n_group);
	for (int i = 0; i < function_n_group; i++)
	{
		SasFunctionWork *w = function_group[i];
		int64		left_us = w->deadline_us - sas_base_clock_monotonic_us();

		if (!valid[i])
			w->lost = true;
		else if (was_slow || !may_call || sas_base_stopping ||
				 (w->aborts.problem == NULL && left_us < w->step->window_ms * 500))
			w->verdict = "hand_back";	/* not begun: for another worker, with a new window */
		else
			was_slow = function_call(w, function_n_group > 1 || called++ > 0);
	}
	return was_slow;
}

/* One transaction: gives back what is claimed, but for that one (NULL: all).  False: the extension is gone. */
static bool
function_give_back(const SasFunctionWork *alone)
{
	ListCell   *lc;

	function_n_group = 0;
	foreach(lc, function_batches)
	{
		SasFunctionBatch *batch = lfirst(lc);

		for (int i = 0; i < batch->n && function_n_group < SAS_FUNCTION_BATCH; i++)
		{
			SasFunctionWork *w = &batch->work[i];

			if (w->done || w == alone)
				continue;
			function_clear(w);
			w->verdict = "hand_back";
			function_group[function_n_group++] = w;
		}
	}
	if (function_n_group > 0)
	{
		if (!sas_store_begin())
			return false;
		sas_function_write_group(function_group, function_n_group);
		sas_store_commit();
		function_settle_group();
	}
	return true;
}

/*
 * Before a function that goes alone: all else that is claimed is given back,
 * if there are other workers.  It would wait for this function otherwise,
 * for as long as that takes.  False: the extension is gone.
 */
static bool
function_leave_rest(void)
{
	SasFunctionWork *alone = function_group[0];

	if (function_n_group > 1 || !function_goes_alone(alone) || Max(sas_base_function_workers, sas_base_function_workers_max) < 2)
		return true;
	if (!function_give_back(alone))
		return false;
	function_group[0] = alone;
	function_n_group = 1;
	return true;
}

/* One transaction: what the group's functions write, and the states of their steps. */
static void
function_run_group(void)
{
	SasFunctionBatch *next = NULL;
	int64		begun;
	int			n;
	bool		was_slow;

	if (!function_leave_rest())
		return;
	begun = sas_base_clock_monotonic_us();
	/* an error in this is not theirs: they are chosen again */
	n = function_n_group;
	function_n_group = 0;
	sas_work_change_owner(function_group[0]->step->owner);
	function_n_group = n;
	if (!sas_store_begin())
		return;
	was_slow = function_call_group();
	sas_function_write_group(function_group, function_n_group);
	/* the last of a batch claims the next one along: one commit for both */
	if (!was_slow && function_is_last())
		next = function_claim();
	sas_function_batch_done(sas_base_clock_monotonic_us() - begun, function_n_group, was_slow);
	sas_store_commit();
	function_settle_group();
	function_take(next);
}

/* The transaction of the last group aborted as a whole: each goes solo, and fails in the end. */
static void
function_after_abort(void)
{
	for (int i = 0; i < function_n_group; i++)
	{
		SasFunctionWork *w = function_group[i];

		w->solo = true;
		w->verdict = NULL;
		w->lost = !sas_function_count_abort(&w->aborts, w->deadline_us, w->step->window_ms,
											psprintf("/runs/" INT64_FORMAT "/steps/%s", w->step->id.run_id, w->step->step), w->batch->context);
		if (w->lost)
			ereport(WARNING,
					(errmsg("worker gives up step \"%s\" of run %lld", w->step->step, (long long) w->step->id.run_id),
					 errdetail("The supervisor takes it back after its complete-by.")));
	}
	function_settle_group();
}

static int
function_in_flight(void)
{
	int			left = 0;
	ListCell   *lc;

	foreach(lc, function_batches)
		left += ((SasFunctionBatch *) lfirst(lc))->left;
	return left;
}

static SasTick
function_step_tick(void)
{
	SasTick		next = {false, -1};
	SasFunctionBatch *batch;

	sas_base_peers_end_invocation();
	if (function_n_group > 0)
		function_after_abort();
	if (sas_base_stopping && function_in_flight() > 0)
	{
		next.again = function_give_back(NULL);
		return next;
	}
	if (function_choose() > 0)
	{
		function_run_group();
		/* it may have claimed along, in vain, and nothing has come since */
		next.again = !function_found_none || function_wake_count != sas_wake_lane_count(0) || function_in_flight() > 0;
		return next;
	}
	if (sas_base_leaving || !sas_store_begin())
		return next;
	batch = function_claim();
	sas_store_commit();
	function_take(batch);
	next.again = batch != NULL;
	return next;
}

/* A tick for steps, one for schedules, and one for infinite tasks. */
static SasTick
function_tick(void)
{
	SasTick		next = function_step_tick();
	SasTick		other = {false, -1};

	if (function_batches == NIL && !sas_base_retire)
		next.again |= sas_function_planned_tick();
	if (!sas_base_retire)
		other = sas_function_repeat_tick();
	next.again |= other.again;
	if (other.wake_in_ms >= 0 && (next.wake_in_ms < 0 || other.wake_in_ms < next.wake_in_ms))
		next.wake_in_ms = other.wake_in_ms;
	return next;
}

const SasActorMethods sas_function_methods = {
	.start = function_start,
	.tick = function_tick,
	.in_flight = function_in_flight,
	.gives_back = true,
};
