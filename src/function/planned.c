/* SPDX-License-Identifier: PostgreSQL */
/*
 * planned.c: submits runs of schedules whose workflow a function of a user plans.
 *
 * A schedule's instant is claimed durably first.  A second transaction
 * submits its run: functions that plan it, and middleware around that, are
 * called with the owner's rights, in a subtransaction and within
 * complete_in, as the function of a step is.  Nothing is locked meanwhile.
 * Then the schedule is locked, the claim is checked, and what became of the
 * instant commits together with the run and with what the functions wrote.
 *
 * When the transaction aborts as a whole, the instant is put back for a
 * while.  When the worker dies, the scheduler offers it again.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "function/planned.h"
#include "limits/shares.h"
#include "parser/parse_func.h"
#include "store/schedules.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"

/* a function that does not listen when it is cancelled has this long; then its worker is ended */
#define PLANNED_CANCEL_GRACE_US 500000

typedef struct PlannedSubmit
{
	const SasClaimedPlan *plan;
	Oid			function;
} PlannedSubmit;

static SasClaimedPlan planned_running; /* of the transaction that is open or has aborted; schedule_id 0: none */
static char planned_name[NAMEDATALEN];
static uint32 planned_seen;		/* count of wake-ups at the last look that found nothing */
static bool planned_looked = false;

bool
sas_function_planned_waits(void)
{
	return !planned_looked || planned_seen != sas_wake_items_count();
}

/* With the rights of the worker. */
static void
planned_prepare(void *arg)
{
	PlannedSubmit *submit = arg;
	Oid			types[2] = {INT4OID, UUIDOID};

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(submit->plan->owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the owner of the schedule does not exist"),
				 errhint("Remove it with sas.unschedule, and create it again.")));
	submit->function = LookupFuncName(list_make2(makeString("_sas"), makeString("submit_planned")), 2, types, false);
}

/*
 * The internal function runs as the owner of sas, and calls functions of
 * users as the owner of the schedule.  This call needs no grant, because it
 * does not go through the executor.
 */
static Jsonb *
planned_submit(void *arg, MemoryContext context)
{
	PlannedSubmit *submit = arg;
	LOCAL_FCINFO(fcinfo, 2);
	FmgrInfo	flinfo;
	MemoryContext old;
	Datum		result;
	Jsonb	   *done;

	sas_limits_share_in_run = true;
	fmgr_info(submit->function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = Int32GetDatum(submit->plan->schedule_id);
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = UUIDPGetDatum(&submit->plan->request_id);
	fcinfo->args[1].isnull = false;
	result = FunctionCallInvoke(fcinfo);
	if (fcinfo->isnull)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE), errmsg("the schedule has changed while its run was planned")));
	old = MemoryContextSwitchTo(context);
	done = DatumGetJsonbPCopy(result);
	MemoryContextSwitchTo(old);
	return done;
}

/* One transaction. */
static void
planned_run(void)
{
	PlannedSubmit	submit = {&planned_running};
	SasInvocation invocation = {planned_running.owner, planned_prepare, planned_submit, NULL, &submit, psprintf("/schedules/%s", planned_running.name),
	"PL/pgSQL function _sas."};
	SasInvoked	invoked;
	int64		timeout_ms = Max(1, (int64) planned_running.window_ms);

	sas_work_change_owner(planned_running.owner);
	if (!sas_store_begin())
		return;
	sas_base_peers_begin_invocation(sas_base_peers_step(planned_running.request_id.data),
									sas_base_clock_monotonic_us() + timeout_ms * 1000 + PLANNED_CANCEL_GRACE_US);
	sas_work_invoke(&invocation, timeout_ms, &invoked);
	sas_base_peers_end_invocation();
	if (!invoked.ok && sas_base_stopping && invoked.sqlstate == ERRCODE_QUERY_CANCELED)
		sas_store_put_back_plan(&planned_running);
	else
	{
		if (!invoked.ok)
			sas_work_failure_log(psprintf("schedule \"%s\"", planned_running.name), invoked.error);
		sas_store_end_plan(&planned_running, invoked.ok ? invoked.output : NULL, invoked.sqlstate, invoked.error);
	}
	sas_store_commit();
	planned_running.schedule_id = 0;
}

static bool
planned_after_abort(void)
{
	sas_base_peers_end_invocation();
	if (!sas_store_begin())
		return false;
	sas_store_put_back_plan(&planned_running);
	sas_store_commit();
	planned_running.schedule_id = 0;
	return true;
}

bool
sas_function_planned_tick(void)
{
	uint32		wake_count = sas_wake_items_count();
	SasClaimedPlan *claimed;

	if (planned_running.schedule_id != 0 && !planned_after_abort())
		return false;
	if (sas_base_leaving || !sas_function_planned_waits() || !sas_store_begin())
		return false;
	claimed = sas_store_claim_plan();
	sas_store_commit();
	planned_looked = claimed == NULL;
	planned_seen = wake_count;
	if (claimed == NULL)
		return false;
	planned_running = *claimed;
	strlcpy(planned_name, claimed->name, sizeof(planned_name));
	planned_running.name = planned_name;
	planned_run();
	return true;
}
