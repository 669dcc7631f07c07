/* SPDX-License-Identifier: PostgreSQL */
/*
 * supervisor.c: one tick of the leading supervisor.
 *
 * The lead is a flag in shared memory that is free again when its owner
 * dies; the other supervisors sleep until they are woken, and try to take
 * it.  All decisions are made in _sas.supervisor_tick, about runs, and in
 * _sas.supervise_watches, about infinite tasks, each in a transaction of its
 * own.  This file passes them the live workers, and ends workers that run a
 * function step past complete-by, or the function of an infinite task for
 * longer than its time-out: a function that catches its own cancellation can
 * be stopped in no other way.
 *
 * Now and then, and when the retention of the oldest run is over, it also
 * checks conditions and purges, in a transaction of its own and in small
 * batches, with a tick for everything overdue in between: several times per
 * interval while something is open, once while nothing is open and nobody
 * wakes it.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "limits/quotas.h"
#include "store/rights.h"
#include "store/store.h"
#include "supervisor/supervisor.h"
#include "template/budget.h"
#include "wake/wakeup.h"
#include "work/batch.h"
#include "work/late.h"

/* at most */
#define SAS_SUPERVISOR_BATCH 200
/* so few messages may cost what they do; one of them is urgent, one is not */
#define SAS_SUPERVISOR_FEW 2
/*
 * timers are set at most this often, and for at most this long in one tick;
 * all unsettled runs are swept again at intervals
 */
#define SAS_TIMERS_MS 5000
#define SAS_TIMERS_TICK_MS 200
#define SAS_ALL_TIMERS_MS (5 * 60 * 1000)
#define SAS_MAX_PEERS 1024
#define SAS_SHORTEST_SLEEP_MS 100

/* checks per interval while something is open, and the shortest time between them */
#define SAS_CHECKS_PER_INTERVAL 6
#define SAS_CHECK_MS 1000

/* what roles have open is counted again after so long, as a net; it may use one part of the time in so many */
#define SAS_RECOUNT_US INT64CONST(21600000000)
#define SAS_RECOUNT_PART 200

/* what waits for a long call, and no other worker had time for, is looked at again */
#define SAS_RELIEVE_MS 500

/* a session that ends is visible for a moment longer: how often, and for how long, to check for it */
#define SAS_DEPARTURE_CHECK_MS 20
#define SAS_DEPARTURE_FOR_MS 1000

/* The sooner of two spans; below 0: none. */
static int64
supervisor_sooner_ms(int64 a, int64 b)
{
	return a < 0 ? b : b < 0 ? a : Min(a, b);
}

/* How long to sleep at most while the session of an outside node may be ending; -1: no limit. */
static int64
supervisor_departure_ms(void)
{
	static uint32 seen = 0;
	static int64 until_us = 0;
	int64		now = sas_base_clock_monotonic_us();

	if (seen != sas_wake_departures())
	{
		seen = sas_wake_departures();
		until_us = now + SAS_DEPARTURE_FOR_MS * 1000;
	}
	return now < until_us ? SAS_DEPARTURE_CHECK_MS : -1;
}

/*
 * the rows that go with an old run are few: a batch takes about 30 ms.  Runs that end one after the
 * other are due one after the other: they are gathered, because a batch of few costs almost as much
 */
#define SAS_PURGE_BATCH 500
#define SAS_PURGE_PAUSE_MS 10
#define SAS_PURGE_GATHER_MS 5000

/* when to check and purge again, monotonic */
static int64 supervisor_check_us = 0;

/* nothing was open at the last check, and no wake-up came since */
static bool supervisor_quiet = false;

static int64
supervisor_longest_sleep_ms(void)
{
	int64		longest = sas_base_supervisor_interval;
	int64		check = Min(longest, Max(longest / SAS_CHECKS_PER_INTERVAL, SAS_CHECK_MS));

	/*
	 * a worker does not wake the supervisor when it begins an invocation, and
	 * must not hang in one for much longer than this
	 */
	return supervisor_quiet ? Max(check, Min(longest, sas_base_complete_in)) : check;
}

/* Has any wake-up come since the last tick? */
static bool
supervisor_was_woken(void)
{
	static uint32 seen = 0;
	uint32		wake_count = sas_wake_count();
	bool		any = wake_count != seen;

	seen = wake_count;
	return any;
}

static uint32
supervisor_count(int n)
{
	return sas_wake_count();
}

/* When nothing has woken it: what was due before what the last tick saw was not announced. */
static void
supervisor_judge_looks(TimestampTz known_from)
{
	uint32		wake_count = sas_wake_count();

	sas_work_late_look(SAS_LATE_MESSAGE, 0, supervisor_count, wake_count, known_from);
	sas_work_late_look(SAS_LATE_LEASE, 0, supervisor_count, wake_count, known_from);
	sas_work_late_look(SAS_LATE_NODE, 0, supervisor_count, wake_count, known_from);
}

/* After a wake-up: the next check is due soon. */
static void
supervisor_end_quiet(void)
{
	if (!supervisor_quiet)
		return;
	supervisor_quiet = false;
	supervisor_check_us = Min(supervisor_check_us, sas_base_clock_monotonic_us() + supervisor_longest_sleep_ms() * 1000);
}

/* If another worker has been in one tick for a long time, the next check is due now. */
static void
supervisor_note_stalls(void)
{
	static int	noted = 0;
	int			stalled = sas_base_peers_stalled();

	if (stalled > noted)
		supervisor_check_us = 0;
	noted = stalled;
}

/* After a purge of so many. Some of a whole batch may have to stay. */
static int64
supervisor_purge_pause_ms(int purged)
{
	if (purged >= SAS_PURGE_BATCH / 2)
		return SAS_PURGE_PAUSE_MS;
	return purged > 0 ? Min(SAS_PURGE_GATHER_MS, supervisor_longest_sleep_ms()) : SAS_SHORTEST_SLEEP_MS;
}

/* Returns in how many ms it is to be called again. */
static int64
supervisor_check_and_purge(void)
{
	int64		now = sas_base_clock_monotonic_us();
	TimestampTz next_due;
	int64		next_ms;
	int			purged;

	if (now < supervisor_check_us)
		return (supervisor_check_us - now) / 1000 + 1;
	/* in an error, not at once again */
	supervisor_check_us = now + supervisor_longest_sleep_ms() * 1000;
	if (!sas_store_begin())
		return -1;
	supervisor_quiet = !sas_store_check_conditions();
	purged = sas_store_purge(SAS_PURGE_BATCH, &next_due);
	sas_store_commit();
	next_ms = sas_base_clock_ms_until(next_due);

	/* a setting may have changed by then, and the watch is due */
	if (next_ms < 0 || next_ms > supervisor_longest_sleep_ms())
		next_ms = supervisor_longest_sleep_ms();
	next_ms = Max(next_ms, supervisor_purge_pause_ms(purged));
	supervisor_check_us = sas_base_clock_monotonic_us() + next_ms * 1000;
	return next_ms;
}

/*
 * Counts what roles have open, when it is not known, or may be wrong.  One that
 * failed is made again with the next check.
 */
static void
supervisor_count_open(void)
{
	static int64 due_us = 0;
	int64		now = sas_base_clock_monotonic_us();
	int64		began_us = sas_template_processor_us();
	bool		doubtful;

	if (now < due_us || (sas_limits_quota_counted_us_ago(&doubtful) < SAS_RECOUNT_US && !doubtful))
		return;
	due_us = now + supervisor_longest_sleep_ms() * 1000;
	if (!sas_store_begin())
		return;
	sas_store_count_open();
	sas_store_commit();
	due_us = Max(due_us, now + (sas_template_processor_us() - began_us) * SAS_RECOUNT_PART);
}

/*
 * Timers of deadlines, in short transactions.  Returns in how many ms to
 * call again; -1: after anything else is done.
 */
static int64
supervisor_set_timers(void)
{
	/* of this process: the next leader begins again */
	static SasTimerSweep sweep = {-1, -1, -1};
	static int64 due_us = 0;
	static int64 whole_us = 0;
	static bool more = false;
	int64		now = sas_base_clock_monotonic_us();
	TimestampTz next_due = DT_NOEND;
	int64		next_ms;

	if (now < due_us)
		return (due_us - now) / 1000 + 1;
	due_us = now + SAS_TIMERS_MS * 1000;
	/* a sweep that settles something begins where a full sweep does */
	if (!more && sweep.settles < 0 && now >= whole_us)
	{
		sweep = (SasTimerSweep) {-1, -1, -1};
		whole_us = now + SAS_ALL_TIMERS_MS * 1000;
	}
	more = true;
	while (more && sas_base_clock_monotonic_us() - now < SAS_TIMERS_TICK_MS * 1000)
	{
		SasTimerSweep next = sweep;

		if (!sas_store_begin())
			return -1;
		more = sas_store_set_timers(&next, &next_due);
		sas_store_commit();
		sweep = next;
	}
	if (more)
	{
		due_us = 0;
		return 0;
	}
	due_us = sas_base_clock_monotonic_us() + SAS_TIMERS_MS * 1000;
	next_ms = sas_base_clock_ms_until(next_due);
	return next_ms < 0 ? -1 : Max(next_ms, SAS_TIMERS_MS);
}

/* Runs: what is overdue or has failed.  Returns how much was found, and whether there may be more; -1: there is no store. */
static int
supervisor_tick_runs(const int64 *live, int n_live, int64 newest, TimestampTz *next_due, bool *more)
{
	static SasBatch batch = {SAS_SUPERVISOR_BATCH};
	int			size = sas_work_batch_begin(&batch);
	int			worked;

	if (!sas_store_begin())
		return -1;
	sas_template_budget_begin(size <= SAS_SUPERVISOR_FEW);
	sas_template_budget_limit_steps();
	worked = sas_store_supervisor_tick(live, n_live, newest, size, next_due);
	sas_store_commit();
	sas_template_budget_end();
	*more = sas_work_batch_end(&batch, worked) || (worked > 0 && sas_base_clock_ms_until(*next_due) == 0) || sas_template_budget_overran();
	if (worked > 0)
		batch.size = Max(SAS_SUPERVISOR_FEW, Min(batch.size, sas_template_budget_fitting(worked)));
	if (sas_template_budget_overran())
		batch.size = SAS_SUPERVISOR_FEW;
	return worked;
}

/*
 * Infinite tasks, and functions of both that have not returned in time: the
 * task of such a function, and all others of its worker, go to other
 * workers; a step has been taken back, or revoked.  The workers are ended
 * after the commit.  Returns how much was found; -1: there is no store.
 */
static int
supervisor_tick_watches(const int64 *live, int n_live, int64 newest, TimestampTz *next_due, int64 *overdue_ms)
{
	SasPeerInvocation overdue[SAS_MAX_PEERS];
	int64		overdue_us;
	int			n_overdue = sas_base_peers_overdue(overdue, SAS_MAX_PEERS, &overdue_us);
	int			worked;

	if (!sas_store_begin())
		return -1;
	if (n_overdue > 0)
		sas_store_give_up_invocations(overdue, n_overdue);
	worked = sas_store_supervise_watches(live, n_live, newest, next_due);
	/* last: what follows must not undo it */
	sas_store_check_watch_rights();
	sas_store_commit();
	for (int i = 0; i < n_overdue; i++)
		sas_base_peers_terminate(overdue[i].worker_id);
	*overdue_ms = overdue_us == 0 ? -1 :
		Max(SAS_SHORTEST_SLEEP_MS, (overdue_us - sas_base_clock_monotonic_us()) / 1000 + 1);
	return worked;
}

/*
 * What waits for a call that takes long goes to other workers, in a
 * transaction of its own.  Returns in how many ms to call again; -1: when the
 * launcher tells of another one.
 */
static int64
supervisor_relieve(void)
{
	SasPeerCall calls[SAS_MAX_PEERS];
	int			n = sas_base_peers_long_calls(calls, SAS_MAX_PEERS);
	bool		left;

	if (n == 0 || !sas_store_begin())
		return -1;
	left = sas_store_relieve(calls, n);
	sas_store_commit();
	return left ? SAS_RELIEVE_MS : -1;
}

static SasTick
supervisor_tick(void)
{
	/* of the last tick */
	static TimestampTz known_from = DT_NOEND;

	SasTick		next = {false, -1};
	int64		live[SAS_MAX_PEERS];
	int64		newest;
	int			n_live;
	int64		departing;
	int64		timers_ms;
	TimestampTz runs_due;
	TimestampTz watches_due;
	TimestampTz next_due;
	int64		overdue_ms;
	int64		due_ms;
	int			runs;
	int			watches;

	if (!sas_base_peers_lead(SAS_SUPERVISOR))
		return next;

	sas_wake_supervisor_sleeps_until(DT_NOEND);
	if (supervisor_was_woken())
		supervisor_end_quiet();
	else
		supervisor_judge_looks(known_from);
	supervisor_note_stalls();
	departing = supervisor_departure_ms();

	timers_ms = supervisor_set_timers();
	/* the living first, the leases afterwards: see base/peers.h */
	n_live = sas_base_peers_live(live, SAS_MAX_PEERS, &newest);
	if (n_live > SAS_MAX_PEERS)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("too many workers to watch: %d", n_live)));
	runs = supervisor_tick_runs(live, n_live, newest, &runs_due, &next.again);
	watches = runs < 0 ? -1 : supervisor_tick_watches(live, n_live, newest, &watches_due, &overdue_ms);
	if (watches < 0)
		return next;

	next.again |= watches >= SAS_SUPERVISOR_BATCH || timers_ms == 0;
	supervisor_count_open();
	next_due = Min(runs_due, watches_due);
	known_from = sas_work_late_known_from(next_due);
	next.wake_in_ms = supervisor_sooner_ms(supervisor_check_and_purge(), supervisor_relieve());
	due_ms = sas_base_clock_ms_until(next_due);
	/* due rows that could not be taken are locked by a session: try again after a while */
	if (runs + watches == 0 && due_ms >= 0)
		due_ms = Max(due_ms, SAS_SHORTEST_SLEEP_MS);
	next.wake_in_ms = supervisor_sooner_ms(next.wake_in_ms, due_ms);
	next.wake_in_ms = supervisor_sooner_ms(next.wake_in_ms, overdue_ms);
	next.wake_in_ms = supervisor_sooner_ms(next.wake_in_ms, supervisor_longest_sleep_ms());
	next.wake_in_ms = supervisor_sooner_ms(next.wake_in_ms, timers_ms);
	next.wake_in_ms = supervisor_sooner_ms(next.wake_in_ms, departing);
	sas_wake_supervisor_sleeps_until(sas_base_clock_now() + next.wake_in_ms * 1000);
	return next;
}

const SasActorMethods sas_supervisor_methods = {
	.tick = supervisor_tick,
};
