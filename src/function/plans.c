/* SPDX-License-Identifier: PostgreSQL */
/*
 * plans.c: submits runs of schedules whose workflow a function of a user plans.
 *
 * An instant of a schedule is claimed.  Functions that plan its run, and
 * middleware around that, are called with the owner's rights within
 * complete_in, as the function of a step is.  Then the schedule is locked,
 * the claim is checked, and what became of the instant commits together with
 * the run and with what the functions wrote.
 *
 * One that is given back is put off for a while.  When the worker dies, the
 * scheduler offers it again.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "work/turns.h"
#include "function/work.h"
#include "limits/quotas.h"
#include "parser/parse_func.h"
#include "store/schedules.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"

typedef struct Plan
{
	SasFunctionWork work;
	SasClaimedPlan *claimed;
	Oid			function;
} Plan;

static uint32 plans_seen;		/* count of wake-ups at the last look that found nothing */
static uint32 plans_wake_count; /* likewise at the last look */
static bool plans_looked = false;

bool
sas_function_plan_waits(void)
{
	return !plans_looked || plans_seen != sas_wake_items_count();
}

/* Not before steps that are claimed. */
static bool
plans_looks(void)
{
	return sas_function_steps.n_works == 0 && sas_function_plan_waits();
}

static List *
plans_claim(void)
{
	SasFunctionBatch *batch = sas_function_batch_open();
	int64		claimed_us = sas_base_clock_monotonic_us();
	SasClaimedPlan *claimed;
	List	   *works;
	MemoryContext old;
	Plan	   *p;

	plans_wake_count = sas_wake_items_count();
	claimed = sas_store_claim_plan(batch->context);
	if (claimed == NULL)
	{
		MemoryContextDelete(batch->context);
		return NIL;
	}
	old = MemoryContextSwitchTo(batch->context);
	p = sas_function_work_new(&sas_function_plans, batch, sizeof(Plan), claimed->owner, claimed->window_ms);
	p->claimed = claimed;
	p->work.task = sas_base_peers_step(claimed->request_id.data);
	p->work.instance = psprintf("/schedules/%s", claimed->name);
	p->work.deadline_us = claimed_us + (int64) (claimed->window_ms * 1000);
	p->work.solo = true;
	works = list_make1(p);
	MemoryContextSwitchTo(old);
	return works;
}

static bool
plans_claimed(int n)
{
	if (n == 0 && sas_work_turns_open())
		return false;
	plans_looked = n == 0;
	plans_seen = plans_wake_count;
	return n > 0;
}

static void
plans_check(SasFunctionWork **group, int n)
{
	if (!sas_store_valid_plan(((Plan *) group[0])->claimed))
		group[0]->fate = SAS_FATE_LOST;
}

/* With the rights of the worker. */
static void
plans_prepare(void *arg)
{
	Plan	   *p = arg;
	Oid			types[2] = {INT4OID, UUIDOID};

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(p->claimed->owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the owner of the schedule does not exist"),
				 errhint("Remove it with sas.unschedule, and create it again.")));
	p->function = LookupFuncName(list_make2(makeString("_sas"), makeString("submit_planned")), 2, types, false);
}

/*
 * The internal function runs as the owner of sas, and calls functions of
 * users as the owner of the schedule.  This call needs no grant, because it
 * does not go through the executor.
 */
static Jsonb *
plans_submit(void *arg, MemoryContext context)
{
	Plan	   *p = arg;
	LOCAL_FCINFO(fcinfo, 2);
	FmgrInfo	flinfo;
	MemoryContext old;
	Datum		result;
	Jsonb	   *done;

	sas_limits_quota_in_run = true;
	fmgr_info(p->function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = Int32GetDatum(p->claimed->schedule_id);
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = UUIDPGetDatum(&p->claimed->request_id);
	fcinfo->args[1].isnull = false;
	result = FunctionCallInvoke(fcinfo);
	if (fcinfo->isnull)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE), errmsg("the schedule has changed while its run was planned")));
	old = MemoryContextSwitchTo(context);
	done = DatumGetJsonbPCopy(result);
	MemoryContextSwitchTo(old);
	return done;
}

static void
plans_call(SasFunctionWork *w, int64 timeout_ms)
{
	Plan	   *p = (Plan *) w;
	SasInvocation invocation = {w->owner, plans_prepare, plans_submit, NULL, p, w->instance, "_sas."};

	sas_work_invoke(&invocation, timeout_ms, &w->invoked);
}

static bool
plans_write(SasFunctionWork **group, int n)
{
	SasFunctionWork *w = group[0];
	Plan	   *p = (Plan *) w;

	if (w->fate == SAS_FATE_BACK)
		sas_store_put_back_plan(p->claimed);
	if (w->fate != SAS_FATE_DONE)
		return true;
	if (!sas_store_end_plan(p->claimed, w->invoked.ok ? w->invoked.output : NULL, w->invoked.sqlstate, sas_function_error(w)))
		return false;
	if (!w->invoked.ok)
		sas_work_failure_log(psprintf("schedule \"%s\"", p->claimed->name), w->invoked.error);
	return true;
}

SasFunctionKind sas_function_plans = {
	.most = 1,
	.looks = plans_looks,
	.claim = plans_claim,
	.claimed = plans_claimed,
	.check = plans_check,
	.call = plans_call,
	.write = plans_write,
};
