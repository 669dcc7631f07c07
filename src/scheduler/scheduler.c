/* SPDX-License-Identifier: PostgreSQL */
/*
 * scheduler.c: one tick takes a batch of due rows, and returns when to wake.
 *
 * All decisions are made in _sas.scheduler_tick.  Several schedulers share
 * the work by SKIP LOCKED. Nothing is stored between ticks, so nothing can
 * be lost.
 *
 * It also applies replies that came while somebody held their run, in a
 * transaction of their own (_sas.answer_tick), and submits the runs of
 * schedules (_sas.fire_schedules).
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "scheduler/scheduler.h"
#include "store/ready_claim.h"
#include "store/schedules.h"
#include "store/store.h"
#include "template/budget.h"
#include "wake/holders.h"
#include "wake/low_water.h"
#include "wake/wakeup.h"
#include "work/batch.h"
#include "work/late.h"
#include "work/turns.h"

/* at most, of each kind of work */
#define SAS_SCHEDULER_BATCH 1000

/* clocks jump: while something timed waits, check at least once a minute */
#define SAS_LONGEST_SLEEP_MS 60000
#define SAS_SHORTEST_SLEEP_MS 100
#define SAS_MAX_PEERS 1024

static SasBatch scheduler_messages = {SAS_SCHEDULER_BATCH};
static SasBatch scheduler_others = {SAS_SCHEDULER_BATCH};
static SasBatch scheduler_answers = {SAS_SCHEDULER_BATCH};
static SasBatch scheduler_schedules = {SAS_SCHEDULER_BATCH};
static int64 scheduler_dear_us[2] = {0, 0}; /* of all and of the others: when messages last cost much; 0: never */

/* so few messages may cost what they do; one of them is urgent, one is not */
#define SAS_SCHEDULER_FEW 2
/* that long after one that cost much, it is known whose each is */
#define SAS_SCHEDULER_DEAR_US 2000000

/* A transaction begins that may evaluate templates and paths, and change many steps; returns how many messages it may take. */
static int
scheduler_begin(SasBatch *batch)
{
	int			size = sas_work_batch_begin(batch);

	sas_template_budget_begin(size <= SAS_SCHEDULER_FEW);
	sas_template_budget_limit_steps();
	return size;
}

/* It took n, and committed; true: there may be more. */
static bool
scheduler_end(SasBatch *batch, int n)
{
	bool		full = sas_work_batch_end(batch, n);
	int64		spent_us = sas_template_budget_processor_us();

	sas_template_budget_end();
	if (spent_us > SAS_BATCH_MS * INT64CONST(1000))
		batch->size = Max(SAS_SCHEDULER_FEW, Min(batch->size, SAS_BATCH_MS * INT64CONST(1000) * n / spent_us));
	if (n > 0)
		batch->size = Max(SAS_SCHEDULER_FEW, Min(batch->size, sas_template_budget_fitting(n)));
	/* they would have changed too many steps, which is known before it takes long */
	if (sas_template_budget_overran())
		batch->size = SAS_SCHEDULER_FEW;
	return full || sas_template_budget_overran();
}

/*
 * May rows of that kind be due?  If not, no statement looks for them.
 * *next_due: none is due earlier.  A row that comes meanwhile lowers the mark
 * before it wakes this worker.
 */
static bool
scheduler_is_due(int n, TimestampTz *next_due)
{
	*next_due = sas_wake_low_water_look(SAS_LOW_WATER_DUE, n);
	return *next_due <= sas_base_clock_now() || sas_wake_holders_awaits(n);
}

/* As after a look that found nothing. */
static int
scheduler_none(SasBatch *batch)
{
	sas_work_batch_begin(batch);
	sas_work_batch_end(batch, 0);
	return 0;
}

/* Answers, in a transaction of their own; returns how many. */
static int
scheduler_answers_tick(SasTick *next, TimestampTz *next_due)
{
	int			applied;

	if (!scheduler_is_due(SAS_LOW_WATER_ANSWERS, next_due))
		return scheduler_none(&scheduler_answers);
	if (!sas_store_begin())
		return 0;
	applied = sas_store_answer_tick(scheduler_begin(&scheduler_answers), next_due);
	sas_store_commit();
	next->again |= scheduler_end(&scheduler_answers, applied);
	return applied;
}

/*
 * Messages, in a transaction of their own; returns how many.  An owner whose
 * message cost much lets the others go first.  For a while after that, each
 * owner's messages are carried out apart, so that it is known whose cost much.
 */
static int
scheduler_messages_tick(SasTick *next, TimestampTz *next_due)
{
	SasBatch   *batch = sas_work_turns_open() ? &scheduler_others : &scheduler_messages;
	int64	   *dear_us = &scheduler_dear_us[batch == &scheduler_others];
	bool		by_owner = *dear_us != 0 && sas_base_clock_monotonic_us() - *dear_us < SAS_SCHEDULER_DEAR_US;
	TimestampTz queues_due;
	int64		spent_us;
	int			worked;

	if (!scheduler_is_due(SAS_LOW_WATER_MESSAGES, next_due) && !scheduler_is_due(SAS_LOW_WATER_QUEUES, &queues_due))
		return scheduler_none(batch);
	if (!sas_store_begin())
		return 0;
	sas_store_ready_begin(sas_wake_latch_count());
	worked = sas_store_scheduler_tick(scheduler_begin(batch), by_owner, next_due);
	sas_store_commit();
	spent_us = sas_template_budget_processor_us();
	next->again |= scheduler_end(batch, worked) || (worked > 0 && sas_base_clock_ms_until(*next_due) == 0) || sas_store_ready_any_cut();
	/* many that cost little may take together what a tick may take, and not much longer */
	if (sas_template_budget_us() > SAS_BUDGET_FAIR_US / 2 || spent_us > SAS_BUDGET_FAIR_US * 2 || (batch == &scheduler_messages && sas_work_turns_owed()))
		*dear_us = sas_base_clock_monotonic_us();
	/* what each owner had is charged already */
	if (batch == &scheduler_others && !by_owner)
		sas_work_turns_charge(InvalidOid, spent_us, false);
	return worked;
}

static uint32
scheduler_count(int n)
{
	return sas_wake_count();
}

/*
 * How long to sleep at most until that instant; -1: no limit.  Due rows that
 * could not be taken are locked by a session: try again after a while.
 */
static int64
scheduler_sleep_ms(TimestampTz next_due, int worked)
{
	int64		ms = sas_base_clock_ms_until(next_due);

	return worked == 0 && ms >= 0 ? Max(ms, SAS_SHORTEST_SLEEP_MS) : ms;
}

/* Schedules that are due submit their runs, in a transaction of their own; returns how many. */
static int
scheduler_fire(SasTick *next, TimestampTz *next_due)
{
	int			worked;
	bool		full;

	if (!scheduler_is_due(SAS_LOW_WATER_SCHEDULES, next_due))
		return scheduler_none(&scheduler_schedules);
	if (!sas_store_begin())
		return 0;
	worked = sas_store_fire_schedules(sas_work_batch_begin(&scheduler_schedules), SAS_BATCH_MS * INT64CONST(1000), next_due);
	sas_store_commit();
	full = sas_work_batch_end(&scheduler_schedules, worked);
	next->again |= worked > 0 && full;
	return worked;
}

/* Runs of theirs that function workers plan, in another: an error in this is not theirs. */
static void
scheduler_offer(TimestampTz *next_due)
{
	int64		live[SAS_MAX_PEERS];
	int64		newest;
	int			n_live;

	*next_due = DT_NOEND;
	/* also what is due later is looked at: its worker may be gone */
	if (sas_wake_low_water_look(SAS_LOW_WATER_DUE, SAS_LOW_WATER_PLANS) == DT_NOEND)
		return;
	/* the living first, the claims afterwards: see base/peers.h */
	n_live = Min(sas_base_peers_live(live, SAS_MAX_PEERS, &newest), SAS_MAX_PEERS);
	if (!sas_store_begin())
		return;
	sas_store_offer_plans(live, n_live, newest, next_due);
	sas_store_commit();
}

static SasTick
scheduler_tick(void)
{
	/* of the last tick */
	static uint32 seen = 0;
	static TimestampTz known_from = DT_NOEND;

	SasTick		next = {false, -1};
	uint32		wake_count = sas_wake_count();
	TimestampTz answers_due = DT_NOEND;
	TimestampTz messages_due = DT_NOEND;
	TimestampTz schedules_due = DT_NOEND;
	TimestampTz plans_due;
	int64		sleeps[3];
	int			worked = 0;
	int			applied;
	int			fired;
	bool		overran = false;	/* theirs have cost too much, and come again first */

	if (seen == wake_count)
		sas_work_late_look(SAS_LATE_MESSAGE, 0, scheduler_count, wake_count, known_from);
	applied = scheduler_answers_tick(&next, &answers_due);
	if (sas_base_retire)
		return next;
	if (sas_work_turns_begin())
	{
		worked = scheduler_messages_tick(&next, &messages_due);
		overran = sas_template_budget_overran();
		sas_work_turns_end(worked > 0 || overran);
		next.again |= worked > 0;
	}
	if (worked == 0 && !overran)
		worked = scheduler_messages_tick(&next, &messages_due);
	seen = wake_count;
	known_from = sas_work_late_known_from(Min(messages_due, answers_due));
	fired = scheduler_fire(&next, &schedules_due);
	scheduler_offer(&plans_due);
	sleeps[0] = scheduler_sleep_ms(Min(schedules_due, plans_due), fired);
	next.again |= fired > 0 && sleeps[0] == 0;
	sleeps[1] = scheduler_sleep_ms(messages_due, worked);
	sleeps[2] = sas_base_clock_ms_until(answers_due);
	if (applied == 0 && sleeps[2] == 0)
		sleeps[2] = SAS_SHORTEST_SLEEP_MS;
	next.wake_in_ms = SAS_LONGEST_SLEEP_MS;
	for (int i = 0; i < lengthof(sleeps); i++)
		if (sleeps[i] >= 0)
			next.wake_in_ms = Min(next.wake_in_ms, sleeps[i]);
	return next;
}

const SasActorMethods sas_scheduler_methods = {
	.tick = scheduler_tick,
};
