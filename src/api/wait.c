/* SPDX-License-Identifier: PostgreSQL */
/*
 * wait.c: sas.wait(), which sleeps until a run has stopped or is paused.
 *
 * The session registers its latch for the run, checks the run, and sleeps.  A
 * transaction that moves the run to such a state counts that and sets the
 * latch when it has committed.  The session registers before it checks, and
 * sleeps only if nothing was counted since: so a change that the check misses
 * has yet to set the latch.
 *
 * A transaction that wrote is refused: its own submit is invisible to the
 * workers until it commits, and it would keep its locks all the while.  So
 * is a transaction above READ COMMITTED, whose snapshot would never show the
 * end.
 *
 * While it sleeps the session keeps no snapshot, where it can let go of it:
 * where a query of the client calls the function and reads no table.  Else
 * VACUUM could remove nothing that is dead since the wait began, and a run of
 * a thousand steps would go over a thousand dead versions of its row.
 *
 * Nothing is stored: after a crash or a cancel, call it again.  A lost
 * wake-up costs time, not the answer: the session checks again every
 * SAS_WAIT_CHECK_MS by itself.  On a standby nothing can wake it, because the
 * change comes with the WAL: there it checks every SAS_WAIT_POLL_MS.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/execdesc.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "api/forward.h"
#include "base/clock.h"
#include "base/compat.h"
#include "store/store.h"
#include "wake/wakeup.h"

PG_FUNCTION_INFO_V1(sas_api_wait);

#define SAS_WAIT_CHECK_MS 10000	/* with wake-ups */
#define SAS_WAIT_POLL_MS 100	/* without: a standby, or all entries are taken */

/* some three thousand years: fits int64 together with any reading of the clock */
#define SAS_WAIT_MAX_US 1e17

/* state, result, output, error */
typedef struct SasWaitRow
{
	Datum		values[4];
	bool		nulls[4];
} SasWaitRow;

/* An interval as a span; a month is 30 days, as in EXTRACT(epoch). */
static int64
wait_span_us(const Interval *timeout)
{
	double		us = (double) timeout->time +
		((double) timeout->month * DAYS_PER_MONTH + (double) timeout->day) * (double) USECS_PER_DAY;

	if (us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the timeout must not be negative"),
				 errdetail("At /timeout."),
				 errhint("An interval of zero checks once and returns.")));
	return (int64) Min(us, SAS_WAIT_MAX_US);
}

static void
wait_check_transaction(void)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot wait for a run in a transaction that has written"),
				 errdetail("What the transaction did is not visible to the workers before it commits."),
				 errhint("Commit first, then call sas.wait in a transaction of its own.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot wait for a run above isolation level READ COMMITTED"),
				 errdetail("The snapshot of the transaction would never show the end of the run."),
				 errhint("Call sas.wait in a READ COMMITTED transaction.")));
}

/* Checks the run; true when there is nothing to wait for. */
static bool
wait_check_run(int64 run_id, SasWaitRow *row)
{
	char	   *state;
	bool		over;

	if (!sas_store_run_state(run_id, row->values, row->nulls))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("run %lld does not exist", (long long) run_id),
				 errdetail("At /run_id."),
				 errhint("See sas.runs for the runs that you may see.")));
	state = TextDatumGetCString(row->values[0]);
	over = strcmp(state, "stopped") == 0 || strcmp(state, "paused") == 0;
	pfree(state);
	return over;
}

/*
 * Does this plan only call functions, this one among them?  In FROM that is
 * one node; in the select list, up to three below each other.
 */
static bool
wait_is_alone(PlanState *plan, ExprContext *context)
{
	bool		calls = false;

	for (; plan != NULL; plan = outerPlanState(plan))
	{
		if (!IsA(plan, FunctionScanState) && !IsA(plan, ProjectSetState) && !IsA(plan, ResultState))
			return false;
		calls |= plan->ps_ExprContext == context;
	}
	return calls;
}

/*
 * The query of the client, if it calls this function and reads nothing: then
 * nobody but the query itself refers to its snapshot, and it may get a new
 * one in between.  NULL: something else does.
 */
static QueryDesc *
wait_own_query(ReturnSetInfo *rsinfo)
{
	QueryDesc  *query = ActivePortal != NULL && ActivePortal->strategy == PORTAL_ONE_SELECT ? ActivePortal->queryDesc : NULL;

	if (query == NULL || !wait_is_alone(query->planstate, rsinfo->econtext) || query->estate->es_subplanstates != NIL ||
		query->estate->es_snapshot != query->snapshot || CurrentResourceOwner != ActivePortal->resowner ||
		!ActiveSnapshotSet() || GetActiveSnapshot() != query->snapshot)
		return NULL;
	return query;
}

/* An ERROR in between ends the transaction, and the query with it. */
static void
wait_let_go(QueryDesc *query)
{
	Snapshot	snapshot = query->snapshot;

	PopActiveSnapshot();
	query->snapshot = query->estate->es_snapshot = InvalidSnapshot;
	UnregisterSnapshot(snapshot);	/* of the executor */
	UnregisterSnapshot(snapshot);	/* of the query */
}

static void
wait_look_again(QueryDesc *query)
{
	query->snapshot = RegisterSnapshot(GetTransactionSnapshot());
	query->estate->es_snapshot = RegisterSnapshot(query->snapshot);
	PushActiveSnapshot(query->snapshot);
}

/* Until the latch is set, or so many milliseconds.  A client that has gone would else keep its connection until the time-out. */
static void
wait_for_events(long ms)
{
	WaitEvent	event = {.events = 0};

	if (FeBeWaitSet == NULL || !WaitEventSetCanReportClosed())
	{
		WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
		return;
	}
	/* whoever waits for the client next says what for */
	ModifyWaitEvent(FeBeWaitSet, SAS_COMPAT_CLIENT_POS, WL_SOCKET_CLOSED, NULL);
	WaitEventSetWait(FeBeWaitSet, ms, &event, 1, PG_WAIT_EXTENSION);
	if (event.events & WL_POSTMASTER_DEATH)
		proc_exit(1);
	if (event.events & WL_SOCKET_CLOSED)
		ClientConnectionLost = InterruptPending = true;
}

static void
wait_sleep(QueryDesc *query, long ms)
{
	if (query != NULL)
		wait_let_go(query);
	wait_for_events(ms);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (query != NULL)
		wait_look_again(query);
}

/* Sleeps and checks in turn; the row is in the scratch context at the end. */
static void
wait_until_over(int64 run_id, int64 span_us, QueryDesc *query, MemoryContext scratch, SasWaitRow *row)
{
	int64		end_us = sas_base_clock_monotonic_us() + span_us;
	bool		woken = sas_wake_wait_begin(run_id) && !RecoveryInProgress();
	long		nap_ms = woken ? SAS_WAIT_CHECK_MS : SAS_WAIT_POLL_MS;
	uint32		told = sas_wake_wait_told();
	MemoryContext old = MemoryContextSwitchTo(scratch);

	while (!wait_check_run(run_id, row))
	{
		int64		left_us = end_us - sas_base_clock_monotonic_us();

		if (left_us <= 0)
			break;
		if (told == sas_wake_wait_told())
			wait_sleep(query, Min((long) Min((left_us + 999) / 1000, SAS_WAIT_CHECK_MS), nap_ms));
		told = sas_wake_wait_told();
		MemoryContextReset(scratch);
	}
	MemoryContextSwitchTo(old);
}

Datum
sas_api_wait(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext scratch;
	SasWaitRow	row;
	int64		run_id;
	int64		span_us;
	Datum		result;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(0) ? "run_id" : "timeout"),
				 errdetail("At /%s.", PG_ARGISNULL(0) ? "run_id" : "timeout"),
				 errhint("Name a run, as sas.submit returns it; leave the timeout out for a minute.")));
	run_id = PG_GETARG_INT64(0);
	span_us = wait_span_us(PG_GETARG_INTERVAL_P(1));
	wait_check_transaction();
	if (sas_api_forward(fcinfo, SAS_REACH_RUN, "wait", false, &result))
		return result;

	InitMaterializedSRF(fcinfo, 0);
	scratch = AllocSetContextCreate(CurrentMemoryContext, "sas wait", ALLOCSET_SMALL_SIZES);
	PG_TRY();
	{
		wait_until_over(run_id, span_us, wait_own_query(rsinfo), scratch, &row);
	}
	PG_FINALLY();
	{
		sas_wake_wait_end();
	}
	PG_END_TRY();
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	MemoryContextDelete(scratch);
	return (Datum) 0;
}
