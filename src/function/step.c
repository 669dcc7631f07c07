/* SPDX-License-Identifier: PostgreSQL */
/*
 * step.c: function steps, each exactly once.
 *
 * Their leases, which only ticks lock, are locked when the functions are
 * done.  What the functions wrote commits together with the states of their
 * steps, or, where somebody holds a run, together with a row that says what
 * its step has come to (_sas.answer).
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "function/batch_size.h"
#include "work/turns.h"
#include "function/work.h"
#include "metrics/metrics.h"
#include "store/ready_claim.h"
#include "template/budget.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/json.h"
#include "work/late.h"
#include "work/verdict.h"

/* whether a claim so young still holds is not asked before its function is called, only with its reply */
#define STEP_FRESH_US 10000

/* if as many steps a second have come lately as that, others will come: they gather for so long */
#define STEP_OFTEN 300
#define STEP_LATELY_US 20000
#define STEP_GATHER_US 2000

typedef struct Step
{
	SasFunctionWork work;
	SasClaimedFunction *claimed;

	/* of the transaction that is open */
	const char *verdict;		/* NULL: none yet */
	const char *attempt_status; /* status of the attempt's row; NULL: none */
	double		again_in_ms;
} Step;

static uint32 step_wake_count; /* count of wake-ups for functions at the last look */
static int64 step_looked_us;	/* when that was */
static int64 step_counted_us;	/* since when steps are counted */
static uint32 step_counted;		/* from this count on */
static bool step_often;			/* many have come before that */
static bool step_overran;		/* templates of the last claim cost too much: nothing was claimed */
static bool step_cut;			/* the last claim passed many steps that others have locked: the next one goes on there */
static bool step_claiming;		/* the transaction that is open has begun to claim; or the last one that did, failed */
static int64 step_called_us;	/* what the functions of this group have taken */
static bool step_writing;		/* replies; after an abort: that failed */
static bool step_left_none;	/* the last look, which saw that count, has left nothing behind, and is committed */
static bool step_emptied;		/* the last look would be that, if it were committed */

/* ---------------------------------------------------------------- claims */

/* A function step is looked for whenever the worker is awake. */
static bool
step_looks(void)
{
	return true;
}

/* How many a second come, whoever claims them. */
static void
step_count_steps(void)
{
	int64		since_us = step_looked_us - step_counted_us;

	if (since_us < STEP_LATELY_US)
		return;
	step_often = (int64) (step_wake_count - step_counted) * 1000000 >= STEP_OFTEN * since_us;
	step_counted = step_wake_count;
	step_counted_us = step_looked_us;
}

static List *
step_claim(void)
{
	SasFunctionBatch *batch = sas_function_batch_open();
	int64		claimed_us = sas_base_clock_monotonic_us();
	int			quantity = sas_function_batch_size();
	List	   *claimed;
	List	   *works = NIL;
	ListCell   *lc;
	uint32		wake_count = sas_wake_lane_count(0);
	bool		apart = step_claiming;
	int			announces;

	/* read before the look, which then sees the work that was counted */
	if (step_left_none && wake_count == step_wake_count)
		sas_work_late_look(SAS_LATE_STEP, 0, sas_wake_lane_count, wake_count, DT_NOEND);
	step_claiming = true;
	step_left_none = false;
	/* it takes what this transaction has made ready, but not what follows from the claim itself: hooks of runs that begin */
	announces = sas_wake_withdraw_steps();
	sas_template_budget_begin(apart || quantity == 1);
	sas_store_ready_begin(sas_wake_latch_count());
	claimed = sas_store_claim_functions(batch->context, quantity, sas_function_batch_is_short(), apart);
	sas_template_budget_end();
	step_overran = sas_template_budget_overran();
	step_cut = sas_store_ready_was_cut(0);
	sas_function_batch_evaluated(list_length(claimed), sas_template_budget_us(), sas_template_budget_bytes(), step_overran);
	step_wake_count = wake_count;
	step_looked_us = claimed_us;
	step_count_steps();
	/* what it leaves since its owner has as many workers as may, or lets others go first, is left behind */
	step_emptied = (claimed == NIL || sas_store_ready_was_emptied(quantity)) && !step_overran && !step_cut &&
		!sas_base_peers_waits_for_owner() && !sas_work_turns_open();
	if (!step_emptied)
		sas_wake_restore_steps(announces);
	if (!step_overran && (claimed != NIL || !sas_work_turns_open()))
		sas_function_batch_claimed(list_length(claimed), sas_base_clock_monotonic_us() - claimed_us);
	if (claimed == NIL)
	{
		MemoryContextDelete(batch->context);
		return NIL;
	}
	foreach(lc, claimed)
	{
		SasClaimedFunction *c = lfirst(lc);
		MemoryContext old = MemoryContextSwitchTo(batch->context);
		Step	   *s = sas_function_work_new(&sas_function_steps, batch, sizeof(Step), c->owner, c->window_ms);

		s->claimed = c;
		s->work.task = sas_base_peers_step(c->id.request_id.data);
		s->work.instance = sas_work_json_instance(&c->id, c->step);
		s->work.function = c->function;
		s->work.deadline_us = claimed_us + (int64) (c->window_ms * 1000);
		s->work.solo = c->isolated;
		if (c->problem != NULL)
			s->work.problem = sas_work_verdict_no_input(c);
		works = lappend(works, s);
		MemoryContextSwitchTo(old);
	}
	return works;
}

int64
sas_function_step_gather_us(void)
{
	if (!step_often || !sas_wake_may_gather() || sas_base_clock_monotonic_us() - step_looked_us > STEP_LATELY_US)
		return 0;
	return STEP_GATHER_US;
}

/* Nothing, if nothing has come since a claim that got less than it asked for. */
static bool
step_more(void)
{
	return !step_left_none || sas_wake_steps_open(step_wake_count);
}

static bool
step_claimed(int n)
{
	step_claiming = false;
	step_left_none = step_emptied;
	if (step_left_none)
		sas_wake_left_none(step_wake_count);
	else
		sas_wake_pass_on();
	return (n > 0 && step_more()) || step_overran || step_cut;
}

/*
 * A run that is to be submitted comes before the next batch: none waits for a
 * function that plans it.  What was handed over to this worker gathers before
 * it is claimed.
 */
static bool
step_claims_along(void)
{
	if (sas_function_plan_waits())
		return false;
	return !step_left_none || sas_wake_steps_at_commit() ||
		(sas_wake_steps_open(step_wake_count) && sas_function_step_gather_us() == 0);
}

/* ---------------------------------------------------------------- calls */

/* All claimed a moment ago: the answer would be older when the last function of a long group begins. */
static bool
step_are_fresh(SasFunctionWork **group, int n)
{
	int64		now = sas_base_clock_monotonic_us();

	for (int i = 0; i < n; i++)
		if (now - (group[i]->deadline_us - (int64) (group[i]->window_ms * 1000)) > STEP_FRESH_US)
			return false;
	return true;
}

static void
step_check(SasFunctionWork **group, int n)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * n);
	bool	   *valid;

	step_called_us = 0;
	if (step_are_fresh(group, n))
		return;
	for (int i = 0; i < n; i++)
		ids[i] = ((Step *) group[i])->claimed->id;
	valid = sas_store_valid_claims(ids, n);
	for (int i = 0; i < n; i++)
		if (!valid[i])
			group[i]->fate = SAS_FATE_LOST;
}

static void
step_call(SasFunctionWork *w, int64 timeout_ms)
{
	sas_work_invoke_step(((Step *) w)->claimed, timeout_ms, &w->invoked);
}

static void
step_called(SasFunctionWork *w, int64 spent_us)
{
	Step	   *s = (Step *) w;

	step_called_us += spent_us;
	if (w->problem != NULL && w->aborts.problem == NULL)
		w->invoked.transient = sas_work_json_bool(s->claimed->problem, "transient", false);
	sas_metrics_add(SAS_METRIC_CALL, 0, s->claimed->workflow_id, w->invoked.ok ? "succeeded" : "failed", 1, spent_us / 1e6);
}

/* ---------------------------------------------------------------- replies */

static void
step_judge(Step *s)
{
	SasVerdict	verdict;

	s->verdict = NULL;
	s->attempt_status = NULL;
	s->again_in_ms = 0;
	if (s->work.fate == SAS_FATE_BACK)
		s->verdict = "hand_back";
	if (s->work.fate != SAS_FATE_DONE)
		return;
	sas_work_verdict_of_function(&verdict, s->claimed, &s->work.invoked, s->work.late);
	s->verdict = verdict.reply;
	s->attempt_status = verdict.attempt_status;
	s->again_in_ms = verdict.pause_ms;
}

/* The leases of the claims of these; returns how many. */
static int
step_under_leases(Step **replied, int n_replied, int64 *leases)
{
	int			n = 0;

	for (int i = 0; i < n_replied; i++)
		if (n == 0 || leases[n - 1] != replied[i]->claimed->lease_id)
			leases[n++] = replied[i]->claimed->lease_id;
	return n;
}

/* The leases of which nothing is left after this group, also when its claims were lost; returns how many. */
static int
step_ended_leases(SasFunctionWork **group, int n_group, int64 *leases)
{
	int			n = 0;

	for (int i = 0; i < n_group; i++)
	{
		int64		lease_id = ((Step *) group[i])->claimed->lease_id;
		int			left = group[i]->batch->left;

		for (int k = 0; k < n_group; k++)
			left -= group[k]->batch == group[i]->batch && group[k]->fate != SAS_FATE_OPEN;
		if (left == 0 && (n == 0 || leases[n - 1] != lease_id))
			leases[n++] = lease_id;
	}
	return n;
}

static void
step_fill_reply(const Step *s, SasStoredReply *r)
{
	const SasFunctionWork *w = &s->work;

	r->id = s->claimed->id;
	r->verdict = s->verdict;
	r->attempts = w->started_at != 0 ? 1 : 0;
	r->output = w->invoked.ok ? w->invoked.output : NULL;
	r->error = w->invoked.ok ? NULL : w->invoked.error;
	r->again_in_ms = s->again_in_ms;
	r->arrived_at = w->started_at != 0 ? w->arrived_at : sas_base_clock_now();
}

/* The attempts that have a row of their own; not those of claims that were lost meanwhile. */
static void
step_write_attempts(SasFunctionWork **group, int n_group)
{
	SasStoredAttempt *attempts = palloc0(sizeof(SasStoredAttempt) * n_group);
	int			n = 0;

	for (int i = 0; i < n_group; i++)
	{
		const SasFunctionWork *w = group[i];
		const Step *s = (const Step *) w;
		SasStoredAttempt *a;

		if (s->verdict == NULL || w->started_at == 0 || s->attempt_status == NULL)
			continue;
		a = &attempts[n++];
		a->id = s->claimed->id;
		a->attempt = s->claimed->attempt + 1;
		a->undo = s->claimed->undo;
		a->status = s->attempt_status;
		a->error = w->invoked.ok ? NULL : w->invoked.error;
		a->started_at = w->started_at;
		a->finished_at = w->arrived_at;
	}
	sas_store_write_attempts(attempts, n);
}

static void
step_log_failures(SasFunctionWork **group, int n_group)
{
	for (int i = 0; i < n_group; i++)
	{
		const SasFunctionWork *w = group[i];
		const Step *s = (const Step *) w;

		if (s->verdict != NULL && w->started_at != 0 && sas_work_failure_is_final(s->verdict))
			sas_work_failure_log_step(&s->claimed->id, s->claimed->step, s->claimed->undo, s->claimed->attempt + 1, w->invoked.error);
	}
}

/* Replies of those whose claim is over do not count; where the function of one has done its work, that is undone. */
static bool
step_take_lost(Step **replied, const bool *lost, int n)
{
	bool		kept = true;

	for (int i = 0; i < n; i++)
	{
		if (!lost[i])
			continue;
		kept &= strcmp(replied[i]->verdict, "done") != 0;
		replied[i]->work.fate = SAS_FATE_LOST;
		replied[i]->verdict = NULL;
	}
	return kept;
}

static bool
step_write(SasFunctionWork **group, int n_group)
{
	SasStoredReply *replies = palloc0(sizeof(SasStoredReply) * n_group);
	int64	   *leases = palloc(sizeof(int64) * n_group);
	int64	   *under = palloc(sizeof(int64) * n_group);
	bool	   *lost = palloc0(n_group);
	Step	  **replied = palloc(sizeof(Step *) * n_group);
	int			n_leases = step_ended_leases(group, n_group, leases);
	int			n = 0;

	for (int i = 0; i < n_group; i++)
	{
		Step	   *s = (Step *) group[i];

		step_judge(s);
		if (s->verdict == NULL)
			continue;
		replied[n] = s;
		step_fill_reply(s, &replies[n++]);
	}
	if (n == 0 && n_leases == 0)
		return true;
	/* what follows from it is evaluated, too: if that costs much for all of them, each is done by itself */
	step_writing = true;
	sas_template_budget_begin(n <= 1);
	sas_store_write_replies(replies, n, leases, n_leases, under, step_under_leases(replied, n, under), lost);
	sas_template_budget_end();
	step_writing = false;
	if (!step_take_lost(replied, lost, n))
		return false;
	step_write_attempts(group, n_group);
	step_log_failures(group, n_group);
	return true;
}

static void
step_leave(SasFunctionWork *w)
{
	const Step *s = (const Step *) w;

	if (w->fate != SAS_FATE_LOST)
		sas_metrics_add(SAS_METRIC_STEP, 0, s->claimed->workflow_id, s->verdict, 1,
						(sas_base_clock_monotonic_us() - w->deadline_us) / 1e6 + w->window_ms / 1e3);
}

/* The last transaction was rolled back: the evaluations of a group cost too much, which is no fault of one of them. */
static bool
step_overran_writing(void)
{
	bool		overran = step_writing && sas_template_budget_overran();

	step_writing = false;
	sas_template_budget_end();
	if (overran)
		sas_function_batch_done(0, 0, 1, true);
	return overran;
}

static void
step_written(int64 spent_us, int n, bool was_slow)
{
	if (n > 0)
		sas_function_batch_done(spent_us, step_called_us, n, was_slow);
}

SasFunctionKind sas_function_steps = {
	.most = SAS_FUNCTION_BATCH,
	.looks = step_looks,
	.claim = step_claim,
	.claimed = step_claimed,
	.claims_along = step_claims_along,
	.check = step_check,
	.call = step_call,
	.called = step_called,
	.write = step_write,
	.leave = step_leave,
	.written = step_written,
	.overran = step_overran_writing,
	.more = step_more,
};
