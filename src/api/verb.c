/* SPDX-License-Identifier: PostgreSQL */
/*
 * verb.c: the one C function behind every public verb.
 *
 * sas.pause_runs(bigint[]) and the other verbs are all declared over
 * sas_api_verb().  It looks up its own entry in pg_proc and calls the function
 * of schema _sas that has the same name with "_as" behind it, with the caller's
 * role before the arguments:
 *
 *	  sas.pause_runs(run_ids)  ->  _sas.pause_runs_as(caller, run_ids)
 *
 * The internal function is SECURITY DEFINER with a search_path of its own,
 * where current_user is no longer the caller.  So the role is taken here,
 * one step before: it is the caller as SQL sees it, also inside a SECURITY
 * DEFINER function of the application and inside a function step.  No other
 * code can pass a role, since the internal functions are granted to no role;
 * this call needs no grant because it does not go through the executor.
 *
 * A verb whose internal function is volatile writes.  It is refused in a
 * read-only transaction, whatever it would have found: an outside program
 * that asks a standby about its task must not be answered that it has lost
 * it.
 *
 * The text of a statement that sets a secret may contain it. From the call on,
 * pg_stat_activity and errors in the log show another text in its place. What
 * PostgreSQL logs before the call, and log_duration after it, is not ours.
 *
 * The caller does not choose how the internal function compares texts,
 * either: it gets the database's collation, whatever an argument's collation
 * is.
 *
 * The result of the look-up is cached for the life of the call site
 * (FmgrInfo).  The role is not, since a cached plan may run as one role
 * after the other.
 *
 * Set-returning verbs pass on their ReturnSetInfo.  The internal function
 * may fill a tuplestore or return a row per call; its state for the latter
 * is in the cached FmgrInfo.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "api/forward.h"
#include "api/verb.h"
#include "store/cluster.h"
#include "store/node.h"
#include "store/store.h"
#include "worker/lifecycle.h"

PG_FUNCTION_INFO_V1(sas_api_verb);

/* What a call site caches in fn_extra. */
typedef struct SasVerb
{
	FmgrInfo	inner;
	int			nargs;			/* of the verb: inner has one more */
	bool		writes;
	bool		secret;			/* an argument is the value of a secret */
	SasReach	reach;
	char		name[NAMEDATALEN];
} SasVerb;

/* The internal function of a verb; an error when there is none that fits. */
static Oid
verb_inner(Form_pg_proc verb)
{
	char		name[NAMEDATALEN + 3];
	Oid			types[FUNC_MAX_ARGS];
	HeapTuple	tuple;
	Form_pg_proc inner;
	Oid			result;

	if (verb->pronargs >= FUNC_MAX_ARGS)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("verb \"%s\" has too many arguments", NameStr(verb->proname))));
	snprintf(name, sizeof(name), "%s_as", NameStr(verb->proname));
	types[0] = OIDOID;
	memcpy(&types[1], verb->proargtypes.values, sizeof(Oid) * verb->pronargs);
	tuple = SearchSysCache3(PROCNAMEARGSNSP,
							CStringGetDatum(name),
							PointerGetDatum(buildoidvector(types, verb->pronargs + 1)),
							ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("verb \"%s\" has no internal function", NameStr(verb->proname)),
				 errdetail("The extension and its library do not belong together.")));
	inner = (Form_pg_proc) GETSTRUCT(tuple);
	if (inner->prorettype != verb->prorettype ||
		inner->proretset != verb->proretset ||
		inner->prokind != PROKIND_FUNCTION)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("the internal function of verb \"%s\" returns something else", NameStr(verb->proname)),
				 errdetail("The extension and its library do not belong together.")));
	result = inner->oid;
	ReleaseSysCache(tuple);
	return result;
}

/* Looks up the function that a call site calls; fn_extra is set only when all went well. */
static SasVerb *
verb_prepare(FmgrInfo *flinfo)
{
	HeapTuple	tuple;
	SasVerb    *verb;
	Oid			inner;

	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(flinfo->fn_oid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", flinfo->fn_oid);
	inner = verb_inner((Form_pg_proc) GETSTRUCT(tuple));
	verb = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(SasVerb));
	verb->nargs = ((Form_pg_proc) GETSTRUCT(tuple))->pronargs;
	strlcpy(verb->name, NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname), NAMEDATALEN);
	verb->reach = sas_store_in_cluster() ? sas_api_reach(tuple) : SAS_REACH_HERE;
	ReleaseSysCache(tuple);
	fmgr_info_cxt(inner, &verb->inner, flinfo->fn_mcxt);
	verb->writes = func_volatile(inner) == PROVOLATILE_VOLATILE;
	verb->secret = strcmp(verb->name, "set_secret") == 0;
	flinfo->fn_extra = verb;
	return verb;
}

/* A strict function is not to be called with a null: that is the caller's to see to. */
static bool
verb_skips(const SasVerb *verb, FunctionCallInfo call)
{
	if (verb->inner.fn_strict)
		for (int i = 0; i < call->nargs; i++)
			if (call->args[i].isnull)
				return true;
	return false;
}

/* Rows of other nodes are added to the result, so it must be complete before. */
static Datum
verb_call_at_once(FunctionCallInfo call)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) call->resultinfo;
	int			modes = rsinfo->allowedModes;
	Datum		result;

	rsinfo->allowedModes = SFRM_Materialize;
	rsinfo->setResult = NULL;
	result = sas_api_verb_invoke(call);
	rsinfo->allowedModes = modes;
	return result;
}

/* For a worker its own text is right: it says what it does. */
static void
verb_hide_statement(void)
{
	static const char shown[] = "SELECT sas.set_secret(/* hidden */)";

	if (MyBackendType != B_BACKEND)
		return;
	pgstat_report_activity(STATE_RUNNING, shown);
	debug_query_string = shown;
}

/* Here and, where it holds for more, on the other nodes. */
static Datum
verb_call(FunctionCallInfo fcinfo, const SasVerb *verb, FunctionCallInfo call)
{
	bool		everywhere = verb->reach == SAS_REACH_ALL;
	List	   *parts = NIL;
	Datum		result;
	int			level = 0;

	sas_api_check_node(verb->reach, verb->name);
	if (everywhere)
		level = sas_store_pin_ddl();
	if ((verb->reach == SAS_REACH_RUNS || verb->reach == SAS_REACH_ALERTS) && !call->args[1].isnull)
		parts = sas_api_forward_split(verb->reach, &call->args[1].value);
	if (parts == NIL)
		result = sas_api_verb_invoke(call);
	else
	{
		result = verb_call_at_once(call);
		sas_api_forward_rest(fcinfo, parts, verb->name, verb->writes);
	}
	fcinfo->isnull = call->isnull;
	if (everywhere)
	{
		sas_store_unpin_path(level);
		sas_api_forward_to_all(fcinfo, verb->name, result);
	}
	return result;
}

Datum
sas_api_verb(PG_FUNCTION_ARGS)
{
	LOCAL_FCINFO(call, FUNC_MAX_ARGS);
	SasVerb    *verb = fcinfo->flinfo->fn_extra;
	Datum		result;

	if (verb == NULL)
		verb = verb_prepare(fcinfo->flinfo);
	if (PG_NARGS() != verb->nargs)
		elog(ERROR, "function %u called with %d arguments", fcinfo->flinfo->fn_oid, PG_NARGS());

	if (verb->secret)
		verb_hide_statement();
	sas_worker_lifecycle_restored();
	if (verb->writes && XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute sas.%s in a read-only transaction", verb->name),
				 RecoveryInProgress() ? errhint("This server is a standby: connect to the primary.") : 0));

	InitFunctionCallInfoData(*call, &verb->inner, verb->nargs + 1, DEFAULT_COLLATION_OID, NULL, fcinfo->resultinfo);
	call->args[0].value = ObjectIdGetDatum(GetUserId());
	call->args[0].isnull = false;
	memcpy(&call->args[1], fcinfo->args, sizeof(NullableDatum) * verb->nargs);
	if (verb_skips(verb, call))
	{
		if (verb->inner.fn_retset)
			((ReturnSetInfo *) fcinfo->resultinfo)->isDone = ExprEndResult;
		PG_RETURN_NULL();
	}
	if (sas_api_forward(fcinfo, verb->reach, verb->name, verb->writes, &result))
		return result;
	return verb_call(fcinfo, verb, call);
}
