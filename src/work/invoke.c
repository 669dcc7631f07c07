/* SPDX-License-Identifier: PostgreSQL */
/*
 * invoke.c: the border between sas and functions of users.
 *
 * The worker is a superuser's session; a function must not get back to these
 * rights, nor may row policies and definer functions take it for a superuser:
 *	- the session is the owner's (become.c)
 *	- deferred constraints and constraint triggers are fired before switching
 *	  back, with those that these triggers defer, or they would run as the
 *	  superuser at commit
 *	- portals are dropped, or a WITH HOLD cursor would be run at commit
 * All of it is a subtransaction, so that a failure rolls back its writes.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/context.h"
#include "base/peers.h"
#include "base/settings.h"
#include "base/written.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "limits/quotas.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "storage/lock.h"
#include "store/pins.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "work/become.h"
#include "work/callable.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/json.h"
#include "work/middleware.h"
#include "work/wipe.h"

static bool
invoke_is_transient(int sqlstate)
{
	int			category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_TO_CATEGORY(ERRCODE_CONNECTION_EXCEPTION) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_TRANSACTION_ROLLBACK) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION) ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

/*
 * In a user's session, deferred triggers belong to the session's
 * transaction: this only checks whether they would fail, and they stay
 * deferred.
 */
static void
invoke_check_deferred(void)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		sas_store_constraints_immediate();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(edata);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* Within the subtransaction, up to the point where the owner's rights are given up. */
static Jsonb *
invoke_as_owner(const SasInvocation *p, int64 timeout_ms, MemoryContext context)
{
	SasRights	before;
	Jsonb	   *output;

	p->prepare(p->arg);
	sas_work_become(&before, p->owner, timeout_ms > 0 ? SAS_BECOME_SESSION : 0);
	if (timeout_ms > 0)
		sas_store_unpin_settings();
	else
		sas_store_own_plans();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (timeout_ms > 0)
	{
		sas_base_peers_begin_user_code(p->instance);
		enable_timeout_after(STATEMENT_TIMEOUT, (int) Min(timeout_ms, INT_MAX));
	}

	output = p->work(p->arg, context);
	if (timeout_ms > 0)
	{
		sas_work_fire_deferred();
		PortalHashTableDeleteAll();
		disable_timeout(STATEMENT_TIMEOUT, false);
		sas_base_peers_end_user_code();
	}
	else
		invoke_check_deferred();
	CHECK_FOR_INTERRUPTS();
	PopActiveSnapshot();
	sas_work_go_back(&before);
	return output;
}

void
sas_work_invoke(const SasInvocation *p, int64 timeout_ms, SasInvoked *invoked)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext results = sas_store_results;

	memset(invoked, 0, sizeof(*invoked));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		invoked->output = invoke_as_owner(p, timeout_ms, context);
		/* a verb that it called may have made calls of its own (sas_store_enter) */
		sas_store_results = results;
		invoked->error = p->evaluate ? p->evaluate(p->arg, invoked->output) : NULL;
		invoked->ok = invoked->error == NULL;
		if (invoked->ok)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		if (timeout_ms > 0)
		{
			disable_timeout(STATEMENT_TIMEOUT, false);
			sas_base_peers_end_user_code();
		}
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		sas_store_results = results;
		/* in a session it is the session's statement that is cancelled */
		if (timeout_ms == 0 && edata->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(edata);
		if (timeout_ms > 0)
			QueryCancelPending = false;

		invoked->ok = false;
		invoked->sqlstate = edata->sqlerrcode;
		invoked->transient = invoke_is_transient(edata->sqlerrcode);
		invoked->error = sas_work_failure_problem(edata, p->instance, p->outermost);
	}
	PG_END_TRY();
}

/* ---------------------------------------------------------------- functions */

/* in place of the name of a function: no user has one of that name and signature */
#define INVOKE_PLAN_CHILD "_sas.plan_child"

static const SasStepId *invoke_step = NULL; /* whose function is called now */

/* A step, or anything else that calls functions. */
typedef struct Calls
{
	Oid			owner;
	const char *names;			/* a line each */
	Jsonb	   *input;
	const SasClaimedFunction *step; /* NULL: it is none */
	bool		around;			/* middleware: input says which functions */
	bool		in_worker;
	List	   *functions;
	Oid			plans;			/* the internal function that plans a child run; invalid: it is none */
} Calls;

static void
invoke_find_functions(void *arg)
{
	Calls	   *c = arg;

	c->around = strcmp(c->names, SAS_THROUGH_MIDDLEWARE) == 0;
	if (strcmp(c->names, INVOKE_PLAN_CHILD) == 0)
		c->plans = LookupFuncName(list_make2(makeString("_sas"), makeString("plan_child")), 2, (Oid[]) {OIDOID, JSONBOID}, false);
	else if (!c->around)
		c->functions = sas_work_callables(c->names, c->owner);
}

/* It runs as the owner of sas. This call needs no grant, because it does not go through the executor. */
static Jsonb *
invoke_plan_child(const Calls *c, MemoryContext context)
{
	Datum		result = OidFunctionCall2(c->plans, ObjectIdGetDatum(c->owner), JsonbPGetDatum(c->input));
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *output = DatumGetJsonbPCopy(result);

	MemoryContextSwitchTo(old);
	return output;
}

static Jsonb *
invoke_call_functions(void *arg, MemoryContext context)
{
	Calls	   *c = arg;
	Jsonb	   *output;
	Size		size;

	sas_limits_quota_in_run = true;
	if (OidIsValid(c->plans))
		return invoke_plan_child(c, context);
	output = c->around ? sas_work_through_middleware(c->owner, c->input, c->in_worker, context) : sas_work_call_all(c->functions, c->input, context);
	size = sas_base_written_size(JsonbPGetDatum(output), sas_base_max_output_size);
	if (size == SAS_WRITTEN_TOO_DEEP)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the output has more than %d levels", SAS_WRITTEN_LEVELS)));
	if (size > sas_base_max_output_size)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the output has more than %d bytes", sas_base_max_output_size),
				 errhint("See the setting sas.max_output_size.")));
	return output;
}

static Jsonb *
invoke_evaluate(void *arg, Jsonb *output)
{
	return sas_store_evaluate_output(((Calls *) arg)->step, output);
}

void
sas_work_invoke_step(const SasClaimedFunction *step, int64 timeout_ms, SasInvoked *invoked)
{
	Calls		calls = {step->owner, step->function, step->input, step, false, timeout_ms > 0, NIL, InvalidOid};
	SasInvocation p = {step->owner, invoke_find_functions, invoke_call_functions, step->evaluates ? invoke_evaluate : NULL, &calls,
	sas_work_json_instance(&step->id, step->step),
	psprintf("run " INT64_FORMAT " step ", step->id.run_id)};
	SasContext	context;

	sas_base_context_push(&context, step->id.run_id, step->step, step->attempt + 1);
	invoke_step = &step->id;
	/* a cancel of the session in which a test runs goes through */
	PG_TRY();
	{
		sas_work_invoke(&p, timeout_ms, invoked);
	}
	PG_FINALLY();
	{
		invoke_step = NULL;
	}
	PG_END_TRY();
	sas_base_context_pop(&context);
}

const SasStepId *
sas_work_invoked_step(void)
{
	return invoke_step;
}

void
sas_work_invoke_function(Oid owner, const char *function, Jsonb *input, const char *instance, int64 timeout_ms, SasInvoked *invoked)
{
	Calls		calls = {owner, function, input, NULL, false, timeout_ms > 0, NIL, InvalidOid};
	SasInvocation p = {owner, invoke_find_functions, invoke_call_functions, NULL, &calls, instance};

	sas_work_invoke(&p, timeout_ms, invoked);
}

/* ---------------------------------------------------------------- items */

static void
invoke_check_owner(void *arg)
{
	const SasClaimedItems *items = arg;

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(items->owner)))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("the owner of the task no longer exists")));
}

/* Puts items into a table, or submits runs of them. */
static Jsonb *
invoke_deliver(void *arg, MemoryContext context)
{
	const SasClaimedItems *items = arg;

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (items->target_kind[0] == 't')
		sas_store_insert_items(items);
	else
		sas_store_submit_items(items);
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
	return NULL;
}

void
sas_work_invoke_items(const SasClaimedItems *items, int64 timeout_ms, SasInvoked *invoked)
{
	const char *instance = psprintf("/watches/" INT64_FORMAT, items->watch_id);
	SasInvocation p = {items->owner, invoke_check_owner, invoke_deliver, NULL, unconstify(SasClaimedItems *, items), instance};

	if (items->target_kind[0] == 'f')
		sas_work_invoke_function(items->owner, items->target, items->items, instance, timeout_ms, invoked);
	else
		sas_work_invoke(&p, timeout_ms, invoked);
}

Jsonb *
sas_work_invoke_in_place(Oid caller, Oid role, const char *function, Jsonb *input)
{
	Oid			oid = sas_work_callable(function, role);
	SasRights	before;
	Jsonb	   *output;

	sas_work_become(&before, role, role != caller ? SAS_BECOME_RESTRICTED : 0);
	sas_store_own_plans();
	if (role != caller)
		output = sas_work_call_beside(oid, input, CurrentMemoryContext);
	else
		output = sas_work_call(oid, input, CurrentMemoryContext);
	sas_work_go_back(&before);
	return output;
}

static Oid	invoke_last_owner = InvalidOid;

void
sas_work_change_owner(Oid owner)
{
	if (invoke_last_owner != owner && OidIsValid(invoke_last_owner))
		sas_work_wipe_session();
	else
		sas_work_wipe_temporary();
	invoke_last_owner = owner;
}

void
sas_work_release_locks(void)
{
	if (OidIsValid(invoke_last_owner))
		LockReleaseAll(USER_LOCKMETHOD, true);
}
