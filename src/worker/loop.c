/* SPDX-License-Identifier: PostgreSQL */
/*
 * loop.c: runs the ticks of one actor.
 *
 * A tick works in a scratch context and returns what comes next: another
 * tick at once, or sleep until a wake-up, input on the actor's descriptor,
 * or a time. The latch is reset before the tick reads anything. A wake-up
 * during the tick is not lost: code in the tick that waits for a lock or for
 * a standby resets the latch, too, so wake-ups are counted.
 *
 * An ERROR ends the tick, not the process: it is logged, the transaction is
 * rolled back, and the next tick comes after a pause that grows while errors
 * repeat. After ten in a row the process leaves with code 1, and the
 * launcher starts another one after a pause of its own.
 *
 * pg_cancel_backend() ends what a tick does, and does nothing between ticks:
 * a cancel does not mean that the worker is broken. Neither does a lock
 * timeout: a session holds a table, and the tick is tried again until it does
 * not. Such ticks are counted in a metric, and logged once a minute.
 *
 * A worker that is asked to end ticks on until it has given back what it holds
 * and what is under way has ended, for a moment (session.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/sinval.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/compat.h"
#include "metrics/metrics.h"
#include "template/budget.h"
#include "wake/wakeup.h"
#include "work/invoke.h"
#include "work/late.h"
#include "worker/loop.h"
#include "worker/registry.h"
#include "worker/session.h"
#include "worker/tick.h"

#define ERRORS_MAX 10
#define ERROR_PAUSE_MS 100
#define ERROR_PAUSE_MAX_MS 5000

/* A table that a session holds is waited for in every tick: not each one is logged. */
#define LOCK_LOG_US (60 * INT64CONST(1000000))

/* Alarms that do not end a sleep: one may be left of the last tick, one may come. */
#define ALARMS_MAX 3

/* Whatever a tick asks for: the machine's clock may jump. */
#define SLEEP_MAX_MS (60 * 1000)

static const SasActorMethods *loop_actors[SAS_ACTORS];
static const SasActorMethods *loop_methods = NULL;
static MemoryContext loop_scratch = NULL;

static WaitEventSet *loop_events = NULL;
static int	loop_events_fd = -1;

void
sas_worker_set_methods(SasActor actor, const SasActorMethods *methods)
{
	loop_actors[actor] = methods;
}

/* ---------------------------------------------------------------- leaving */

static void
loop_exit(int code, Datum arg)
{
	loop_methods->stop();
}

static void
loop_leave(SasExit reason)
{
	sas_worker_registry_set_exit(reason);
	proc_exit(reason == SAS_EXIT_FAILED ? 1 : 0);
}

static int64 loop_stop_us = 0;	/* it was seen that the worker is asked to end, and it leaves then */

/* How long the worker may still tick; -1: it is not asked to end. */
static int64
loop_grace_us(void)
{
	int64		now_us;

	if (!sas_base_stopping)
		return -1;
	now_us = sas_base_clock_monotonic_us();
	if (loop_stop_us == 0)
		loop_stop_us = now_us + (loop_methods->gives_back ? SAS_STOP_GRACE_MS * INT64CONST(1000) : 0);
	return Max(0, loop_stop_us - now_us);
}

/* Checked between two ticks, and while waiting. Cancels are blocked then: their ERROR would end the process. */
static void
loop_interrupts(void)
{
	if (loop_grace_us() == 0)
		loop_leave(SAS_EXIT_ORDERLY);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		sas_worker_session_reload();
	}
	/* nothing is going on that could be cancelled */
	QueryCancelPending = false;
}

/* ---------------------------------------------------------------- ticks */

typedef enum SasTickEnd
{
	SAS_TICK_DONE,
	SAS_TICK_CANCELLED,
	SAS_TICK_LOCKED_OUT,
	SAS_TICK_FAILED
} SasTickEnd;

/* Counts a tick that gave up a lock; true when that is to be logged. */
static bool
loop_count_lock(void)
{
	static int64 logged_us = 0;
	int64		now = sas_base_clock_monotonic_us();
	bool		due = logged_us == 0 || now - logged_us >= LOCK_LOG_US;

	sas_metrics_add(SAS_METRIC_LOCK_TIMEOUT, 0, 0, sas_base_actor_name(sas_base_self.actor), 1, -1);
	if (due)
		logged_us = now;
	return due;
}

/* After the abort, which has freed the memory that this takes. */
static void
loop_keep_error(void)
{
	ErrorData  *edata = CopyErrorData();
	const char *message = edata->message ? edata->message : "unknown error";
	int			len = pg_mbcliplen(message, strlen(message), sizeof(sas_base_tick_error.message) - 1);

	sas_base_tick_error.sqlstate = edata->sqlerrcode;
	memcpy(sas_base_tick_error.message, message, len);
	sas_base_tick_error.message[len] = '\0';
}

/* In the catch block of a tick: logs the error and cleans up. */
static SasTickEnd
loop_recover(void)
{
	SasTickEnd	end = SAS_TICK_FAILED;
	bool		logs = true;

	HOLD_INTERRUPTS();
	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		end = SAS_TICK_CANCELLED;
	else if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		end = SAS_TICK_LOCKED_OUT;
		logs = loop_count_lock();
	}
	sas_base_tick_lacked = ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INSUFFICIENT_RESOURCES &&
		geterrcode() != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
	if (logs)
		EmitErrorReport();
	AbortOutOfAnyTransaction();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	pgstat_report_wait_end();
	MemoryContextSwitchTo(loop_scratch);
	loop_keep_error();
	FlushErrorState();
	RESUME_INTERRUPTS();
	return end;
}

static int
loop_in_flight(void)
{
	return loop_methods->in_flight ? loop_methods->in_flight() : 0;
}

static SasTickEnd
loop_tick(SasTick *tick)
{
	volatile SasTickEnd end = SAS_TICK_DONE;
	TimestampTz begun = sas_base_clock_now();

	MemoryContextSwitchTo(loop_scratch);
	sas_worker_session_interruptible = true;
	if (loop_grace_us() == 0)
		loop_leave(SAS_EXIT_ORDERLY);
	sas_worker_tick_begin();
	PG_TRY();
	{
		RESUME_CANCEL_INTERRUPTS();
		*tick = loop_methods->tick();
	}
	PG_CATCH();
	{
		end = loop_recover();
	}
	PG_END_TRY();
	/* an ERROR let all of them go */
	HOLD_CANCEL_INTERRUPTS();
	sas_base_tick_cancelled = end == SAS_TICK_CANCELLED || end == SAS_TICK_LOCKED_OUT;
	sas_worker_session_interruptible = false;
	Assert(!IsTransactionState());
	sas_work_release_locks();
	/* an ERROR left it open: what follows has not spent what it had */
	sas_template_budget_end();
	MemoryContextSwitchTo(loop_scratch);
	sas_work_late_end(end == SAS_TICK_DONE);
	if (end == SAS_TICK_DONE)
		sas_base_last_tick = begun;
	MemoryContextReset(loop_scratch);
	sas_worker_tick_end(end == SAS_TICK_DONE, loop_in_flight(), loop_methods->memory ? loop_methods->memory() : 0);
	return end;
}

/* ---------------------------------------------------------------- waiting */

/* The set of what ends a sleep; made again when the actor's descriptor changed. */
static void
loop_set_events(void)
{
	int			fd = loop_methods->pollfd ? loop_methods->pollfd() : -1;

	if (loop_events != NULL && fd == loop_events_fd)
		return;
	if (loop_events != NULL)
		FreeWaitEventSet(loop_events);
	loop_events = sas_compat_wait_event_set(3);
	AddWaitEventToSet(loop_events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(loop_events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (fd >= 0)
		AddWaitEventToSet(loop_events, WL_SOCKET_READABLE, fd, NULL, NULL);
	loop_events_fd = fd;
}

/* Has anything come since that count of wake-ups, which the latch may not show any longer? */
static bool
loop_is_woken(uint32 wake_count)
{
	return sas_wake_latch_count() != wake_count || InterruptPending || ConfigReloadPending ||
		(sas_base_stopping && !sas_base_leaving);
}

/*
 * A timeout that was disabled still leaves the process an alarm, which sets
 * the latch when it is due.  A tick because of it would set the timer of ticks
 * again, and so on for ever.  So a latch that was set while nothing asks for a
 * tick does not end a sleep; nor does a latch that the last tick left set.
 */
static bool
loop_is_alarm(const WaitEvent *event, uint32 wake_count)
{
	if ((event->events & WL_LATCH_SET) == 0)
		return false;
	ResetLatch(MyLatch);
	/* the server wants its invalidations read; nobody else clears that */
	if (catchupInterruptPending)
		ProcessCatchupInterrupt();
	return !loop_is_woken(wake_count);
}

/* What ends a sleep, or interrupts it. */
enum
{
	SLEEP_TICK,
	SLEEP_STATS,
	SLEEP_NAP,
	SLEEP_ENDS
};

static void
loop_end_in(int64 *end_us, int64 ms)
{
	*end_us = ms < 0 ? -1 : sas_base_clock_monotonic_us() + ms * 1000;
}

static bool
loop_has_ended(int64 end_us, int64 now_us)
{
	return end_us >= 0 && end_us <= now_us;
}

/* Until the first of these; -1: there is none. */
static long
loop_left_ms(const int64 *ends_us)
{
	int64		first_us = -1;

	for (int i = 0; i < SLEEP_ENDS; i++)
		if (ends_us[i] >= 0 && (first_us < 0 || ends_us[i] < first_us))
			first_us = ends_us[i];
	if (first_us < 0)
		return -1;
	return (long) Max((first_us - sas_base_clock_monotonic_us() + 999) / 1000, 0);
}

/*
 * Sleeps. Statistics that are too recent to be sent are sent from here a
 * little later, without a tick: a tick may make new ones.
 */
static void
loop_sleep(int64 wake_in_ms, uint32 wake_count)
{
	int64		ends_us[SLEEP_ENDS] = {-1, -1, -1};
	int			alarms = 0;
	int			nap_ms = -1;
	long		stats_ms;
	WaitEvent	event;

	stats_ms = pgstat_report_stat(false);
	loop_end_in(&ends_us[SLEEP_STATS], stats_ms > 0 ? stats_ms : -1);
	if (sas_base_stopping)
		wake_in_ms = wake_in_ms < 0 ? loop_grace_us() / 1000 : Min(wake_in_ms, loop_grace_us() / 1000);
	loop_end_in(&ends_us[SLEEP_TICK], Min(wake_in_ms, SLEEP_MAX_MS));
	loop_set_events();
	if (!sas_base_stopping && !sas_base_leaving && !sas_wake_sleep(&nap_ms))
		return;
	loop_end_in(&ends_us[SLEEP_NAP], nap_ms);
	pgstat_report_activity(STATE_IDLE, NULL);
	for (;;)
	{
		int64		now_us;

		if (WaitEventSetWait(loop_events, loop_left_ms(ends_us), &event, 1, PG_WAIT_EXTENSION) > 0)
		{
			if (!loop_is_alarm(&event, wake_count) || ++alarms > ALARMS_MAX)
				break;
		}
		now_us = sas_base_clock_monotonic_us();
		if (loop_has_ended(ends_us[SLEEP_TICK], now_us))
			break;
		if (loop_has_ended(ends_us[SLEEP_NAP], now_us))
		{
			if (!sas_wake_sleep_on(&nap_ms))
				break;
			loop_end_in(&ends_us[SLEEP_NAP], nap_ms);
		}
		if (loop_has_ended(ends_us[SLEEP_STATS], now_us))
		{
			pgstat_report_stat(true);
			ends_us[SLEEP_STATS] = -1;
		}
	}
	pgstat_report_activity(STATE_RUNNING, NULL);
}

/*
 * Lets work gather before a tick that nothing else was announced for since that
 * count.  What comes meanwhile wakes nobody else; whatever sets the latch ends it.
 */
static void
loop_gather(uint32 told)
{
	int64		gather_us;
	WaitEvent	event;

	if (loop_methods->gather_us == NULL || sas_base_stopping || sas_wake_told_count() != told ||
		(gather_us = loop_methods->gather_us()) <= 0)
		return;
	loop_set_events();
	(void) WaitEventSetWait(loop_events, (long) (gather_us / 1000), &event, 1, PG_WAIT_EXTENSION);
}

/* After an error; wake-ups do not shorten it. */
static void
loop_pause(int errors)
{
	int			pause_ms = ERROR_PAUSE_MAX_MS;
	int64		until_us;

	if (errors < ERRORS_MAX)
		pause_ms = Min(ERROR_PAUSE_MS << (errors - 1), ERROR_PAUSE_MAX_MS);
	until_us = sas_base_clock_monotonic_us() + pause_ms * INT64CONST(1000);
	pgstat_report_activity(STATE_IDLE, NULL);
	for (;;)
	{
		int64		left_us = until_us - sas_base_clock_monotonic_us();

		if (left_us <= 0)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((left_us + 999) / 1000), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		loop_interrupts();
	}
	pgstat_report_activity(STATE_RUNNING, NULL);
}

/* ---------------------------------------------------------------- process */

static void
loop_start(const SasOrders *orders)
{
	char		application[NAMEDATALEN];
	MemoryContext lasting;

	sas_base_self.worker_id = orders->worker_id;
	sas_base_self.actor = orders->actor;
	snprintf(sas_base_self.name, sizeof(sas_base_self.name), "%s %d", sas_base_actor_name(orders->actor), MyProcPid);
	snprintf(application, sizeof(application), "sas %s", sas_base_actor_name(orders->actor));
	sas_worker_session_configure(application);

	lasting = AllocSetContextCreate(TopMemoryContext, "sas actor", ALLOCSET_DEFAULT_SIZES);
	loop_scratch = AllocSetContextCreate(TopMemoryContext, "sas tick", ALLOCSET_DEFAULT_SIZES);
	loop_methods = loop_actors[orders->actor];
	if (loop_methods == NULL)
		elog(ERROR, "actor %d has no methods", orders->actor);

	sas_worker_tick_open();
	sas_wake_attach(orders->actor);
	pgstat_report_activity(STATE_RUNNING, NULL);
	MemoryContextSwitchTo(lasting);
	sas_worker_session_interruptible = true;
	if (sas_base_stopping)
		loop_leave(SAS_EXIT_ORDERLY);
	if (loop_methods->start)
		loop_methods->start();
	sas_worker_session_interruptible = false;
	if (loop_methods->gives_back)
		sas_worker_session_allow_grace();
	if (loop_methods->stop)
		before_shmem_exit(loop_exit, (Datum) 0);
}

void
sas_worker_main(Datum arg)
{
	SasOrders	orders = sas_worker_session_open(DatumGetInt32(arg));
	int			errors = 0;
	uint32		told = 0;

	HOLD_CANCEL_INTERRUPTS();
	loop_start(&orders);
	for (;;)
	{
		SasTick		tick = {false, -1};
		SasTickEnd	end;
		uint32		wake_count;

		loop_gather(told);
		ResetLatch(MyLatch);
		sas_wake_answer();
		wake_count = sas_wake_latch_count();
		told = sas_wake_told_count();
		loop_interrupts();
		end = loop_tick(&tick);
		sas_wake_tick_over();
		if (end == SAS_TICK_DONE)
			errors = 0;
		/* what is under way would be lost: it ends first, at its complete-by at the latest */
		else if (end == SAS_TICK_FAILED && ++errors >= ERRORS_MAX &&
				 loop_in_flight() == 0)
		{
			ereport(LOG,
					(errmsg("sas %s exits after %d consecutive errors",
							sas_base_actor_name(orders.actor), errors),
					 errdetail("The launcher starts another one after a pause.")));
			loop_leave(SAS_EXIT_FAILED);
		}
		if (sas_base_retire)
			loop_leave(SAS_EXIT_RETIRED);
		if (sas_base_leaving && end == SAS_TICK_DONE && !tick.again && loop_in_flight() == 0)
			loop_leave(SAS_EXIT_ORDERLY);
		if (end != SAS_TICK_DONE)
		{
			sas_wake_may_be_slow();
			loop_pause(Max(errors, 1));
		}
		else if (!tick.again && !loop_is_woken(wake_count))
			loop_sleep(tick.wake_in_ms, wake_count);
	}
}
