/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.c: sas.submit and sas.submit_batch.
 *
 * Most runs are plain: only their input, priority, deadline and labels are
 * given, and they begin with the claim of their first steps.  Their rows are
 * written here.  SQL writes every other submit, and refuses what is to be
 * refused, as for any verb.
 *
 * Where sas.submit is in FROM with only a workflow and an input, the planner
 * gets _sas.submit_plain instead: to prepare a call of eleven parameters,
 * whose result has no type of its own, costs the executor more than a heap
 * row and an index entry.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/planmain.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "api/verb.h"
#include "base/compat.h"
#include "base/settings.h"
#include "metrics/metrics.h"
#include "store/submit.h"
#include "wake/low_water.h"
#include "wake/wakeup.h"
#include "worker/lifecycle.h"

PG_FUNCTION_INFO_V1(sas_api_submit);
PG_FUNCTION_INFO_V1(sas_api_submit_plain);
PG_FUNCTION_INFO_V1(sas_api_submit_support);
PG_FUNCTION_INFO_V1(sas_api_submit_batch);
PG_FUNCTION_INFO_V1(sas_api_announce_workflows);

/* The parameters of both, in their order; of sas.submit_batch INPUT and KEY are arrays. */
enum
{
	WORKFLOW, INPUT, KEY, PRIORITY, START_AT, START_BEFORE, DEADLINE, AFTER_RUN, REPLY_TO, LABELS, AFTER_RESULT, PARAMETERS
};

/* Is that an object, and no larger than an input may be? */
static bool
api_submit_fits(Datum value, bool limited)
{
	Jsonb	   *object;
	bool		is;

	if (limited && toast_datum_size(value) > sas_base_max_input_size)
		return false;
	object = DatumGetJsonbP(value);
	is = JB_ROOT_IS_OBJECT(object);
	if ((Pointer) object != DatumGetPointer(value))
		pfree(object);
	return is;
}

/* What after_result is when nothing is given. */
static ArrayType *
api_submit_default_result(void)
{
	static ArrayType *wanted = NULL;

	if (wanted == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		Datum		words[2] = {CStringGetTextDatum("success"), CStringGetTextDatum("warning")};

		wanted = construct_array(words, 2, TEXTOID, -1, false, TYPALIGN_INT);
		MemoryContextSwitchTo(old);
	}
	return wanted;
}

static bool
api_submit_is_default_result(Datum given)
{
	ArrayType  *wanted = api_submit_default_result();
	ArrayType  *array = DatumGetArrayTypeP(given);

	return VARSIZE(array) == VARSIZE(wanted) && memcmp(array, wanted, VARSIZE(wanted)) == 0;
}

/* What labels are when nothing is given. */
static Datum
api_submit_no_labels(void)
{
	static Datum none = 0;

	if (none == 0)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		none = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
		MemoryContextSwitchTo(old);
	}
	return none;
}

/* Positive, and at most ten years? */
static bool
api_submit_is_deadline(Datum given)
{
	Interval	none = {0};
	Interval	most = {.month = 120};

	return DatumGetBool(DirectFunctionCall2(interval_gt, given, IntervalPGetDatum(&none))) &&
		DatumGetBool(DirectFunctionCall2(interval_le, given, IntervalPGetDatum(&most)));
}

/* Nothing is given that needs more than the rows of the run, and nothing but the input can be wrong. */
static bool
api_submit_is_plain(FunctionCallInfo fcinfo)
{
	static const int needed[] = {WORKFLOW, INPUT, PRIORITY, LABELS, AFTER_RESULT};
	static const int unwanted[] = {START_AT, START_BEFORE, AFTER_RUN, REPLY_TO};

	if (PG_NARGS() != PARAMETERS)
		return false;
	for (int i = 0; i < lengthof(needed); i++)
		if (PG_ARGISNULL(needed[i]))
			return false;
	for (int i = 0; i < lengthof(unwanted); i++)
		if (!PG_ARGISNULL(unwanted[i]))
			return false;
	return PG_GETARG_INT32(PRIORITY) >= -1000 && PG_GETARG_INT32(PRIORITY) <= 1000 &&
		api_submit_fits(PG_GETARG_DATUM(LABELS), false) && api_submit_is_default_result(PG_GETARG_DATUM(AFTER_RESULT)) &&
		(PG_ARGISNULL(DEADLINE) || api_submit_is_deadline(PG_GETARG_DATUM(DEADLINE)));
}

/* Submits runs that are plain; false, and nothing has happened, when they are not. */
static bool
api_submit_runs(const text *name, const SasSubmission *submission, const Datum *inputs, int n, int64 *run_ids)
{
	const SasPlainWorkflow *workflow;
	SasSubmitted submitted = {.run_ids = run_ids};

	if (XactReadOnly || IsInParallelMode())
		return false;
	workflow = sas_store_plain_workflow(submission->owner, name);
	/* as every verb does */
	sas_worker_lifecycle_restored();
	if (workflow == NULL)
		return false;
	submitted.ranks = palloc(sizeof(TimestampTz) * workflow->n_roots);
	if (!sas_store_submit_plain(workflow, submission, inputs, n, &submitted))
		return false;
	sas_wake_low_water_note(SAS_LOW_WATER_UNTIMED, 0, run_ids[0]);
	if (submitted.timer != DT_NOEND)
		sas_wake_low_water_note(SAS_LOW_WATER_DUE, 'v', submitted.timer);
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "run none pending", n, -1);
	sas_wake_due_at_commit(submitted.check_by);
	for (int i = 0; i < workflow->n_roots; i++)
	{
		sas_wake_low_water_note(SAS_LOW_WATER_LANE, workflow->root_lanes[i], submitted.ranks[i]);
		sas_wake_lane_at_commit(workflow->root_lanes[i]);
	}
	return true;
}

/* What api_submit_is_plain() has found good. */
static SasSubmission
api_submit_read(FunctionCallInfo fcinfo)
{
	SasSubmission submission = {.owner = GetUserId(),.priority = PG_GETARG_INT32(PRIORITY),.labels = PG_GETARG_DATUM(LABELS)};

	if (!PG_ARGISNULL(DEADLINE))
		submission.deadline = PG_GETARG_INTERVAL_P(DEADLINE);
	if (!PG_ARGISNULL(KEY))
		submission.key = PG_GETARG_TEXT_PP(KEY);
	return submission;
}

/* (run_id, created) */
static TupleDesc
api_submit_result_row(void)
{
	static TupleDesc row = NULL;
	MemoryContext old;

	if (row != NULL)
		return row;
	old = MemoryContextSwitchTo(TopMemoryContext);
	row = CreateTemplateTupleDesc(2);
	TupleDescInitEntry(row, 1, "run_id", INT8OID, -1, 0);
	TupleDescInitEntry(row, 2, "created", BOOLOID, -1, 0);
	row = BlessTupleDesc(row);
	MemoryContextSwitchTo(old);
	return row;
}

static Datum
api_submit_form_result(int64 run_id)
{
	Datum		values[2] = {Int64GetDatum(run_id), BoolGetDatum(true)};
	bool		nulls[2] = {false};

	return HeapTupleGetDatum(heap_form_tuple(api_submit_result_row(), values, nulls));
}

/* sas.submit(...) */
Datum
sas_api_submit(PG_FUNCTION_ARGS)
{
	SasSubmission submission;
	int64		run_id;

	if (!api_submit_is_plain(fcinfo) || !api_submit_fits(PG_GETARG_DATUM(INPUT), true))
		return sas_api_verb(fcinfo);
	submission = api_submit_read(fcinfo);
	if (!api_submit_runs(PG_GETARG_TEXT_PP(WORKFLOW), &submission, &PG_GETARG_DATUM(INPUT), 1, &run_id))
		return sas_api_verb(fcinfo);
	PG_RETURN_DATUM(api_submit_form_result(run_id));
}

/* ------------------------------------------------------------ the shorter call */

/* InvalidOid: there is none. */
static Oid
api_submit_find_function(const char *schema, const char *name, const Oid *types, int n)
{
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name), PointerGetDatum(buildoidvector(types, n)),
						   ObjectIdGetDatum(get_namespace_oid(schema, false)));
}

/* sas.submit(workflow, input), by SQL */
static Datum
api_submit_by_sql(FunctionCallInfo fcinfo)
{
	static const Oid types[] = {TEXTOID, JSONBOID, TEXTOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INTERVALOID, INT8OID, TEXTOID, JSONBOID, TEXTARRAYOID};
	LOCAL_FCINFO(call, PARAMETERS);
	FmgrInfo	verb;

	StaticAssertStmt(lengthof(types) == PARAMETERS, "a parameter of sas.submit is missing here");
	fmgr_info(api_submit_find_function("sas", "submit", types, lengthof(types)), &verb);
	InitFunctionCallInfoData(*call, &verb, PARAMETERS, PG_GET_COLLATION(), NULL, NULL);
	for (int i = 0; i < PARAMETERS; i++)
		call->args[i] = (NullableDatum) {0, true};
	call->args[WORKFLOW] = fcinfo->args[WORKFLOW];
	call->args[INPUT] = fcinfo->args[INPUT];
	call->args[PRIORITY] = (NullableDatum) {Int32GetDatum(0), false};
	call->args[LABELS] = (NullableDatum) {api_submit_no_labels(), false};
	call->args[AFTER_RESULT] = (NullableDatum) {PointerGetDatum(api_submit_default_result()), false};
	return sas_api_verb(call);
}

/* _sas.submit_plain(workflow, input): sas.submit with no more than that; a row of the type _sas.submitted */
Datum
sas_api_submit_plain(PG_FUNCTION_ARGS)
{
	SasSubmission submission = {.owner = GetUserId()};
	HeapTupleHeader row;
	int64		run_id;

	submission.labels = api_submit_no_labels();
	if (!PG_ARGISNULL(WORKFLOW) && !PG_ARGISNULL(INPUT) && api_submit_fits(PG_GETARG_DATUM(INPUT), true) &&
		api_submit_runs(PG_GETARG_TEXT_PP(WORKFLOW), &submission, &PG_GETARG_DATUM(INPUT), 1, &run_id))
		row = DatumGetHeapTupleHeader(api_submit_form_result(run_id));
	else
		row = DatumGetHeapTupleHeader(api_submit_by_sql(fcinfo));
	HeapTupleHeaderSetTypeId(row, get_fn_expr_rettype(fcinfo->flinfo));
	HeapTupleHeaderSetTypMod(row, -1);
	PG_RETURN_HEAPTUPLEHEADER(row);
}

/* Is only WORKFLOW and INPUT given, or a default besides? */
static bool
api_submit_is_short(List *args)
{
	if (list_length(args) != PARAMETERS)
		return false;
	for (int i = KEY; i < PARAMETERS; i++)
	{
		const Const *given = list_nth(args, i);
		bool		wanted = i == PRIORITY || i == LABELS || i == AFTER_RESULT;

		if (!IsA(given, Const) || given->constisnull == wanted)
			return false;
		if ((i == PRIORITY && DatumGetInt32(given->constvalue) != 0) ||
			(i == LABELS && !DatumGetBool(DirectFunctionCall2(jsonb_eq, given->constvalue, api_submit_no_labels()))) ||
			(i == AFTER_RESULT && !api_submit_is_default_result(given->constvalue)))
			return false;
	}
	return true;
}

/* Elsewhere than in FROM the type of the result is seen. */
static bool
api_submit_is_in_from(const Query *query, Oid function)
{
	ListCell   *table;
	ListCell   *cell;

	foreach(table, query->rtable)
		foreach(cell, lfirst_node(RangeTblEntry, table)->functions)
		{
			const FuncExpr *call = (FuncExpr *) lfirst_node(RangeTblFunction, cell)->funcexpr;

			if (IsA(call, FuncExpr) && call->funcid == function)
				return true;
		}
	return false;
}

/* May the same roles call both? */
static bool
api_submit_have_same_rights(Oid one, Oid other)
{
	HeapTuple	a = SearchSysCache1(PROCOID, ObjectIdGetDatum(one));
	HeapTuple	b = SearchSysCache1(PROCOID, ObjectIdGetDatum(other));
	bool		same = false;

	if (HeapTupleIsValid(a) && HeapTupleIsValid(b) && ((Form_pg_proc) GETSTRUCT(a))->proowner == ((Form_pg_proc) GETSTRUCT(b))->proowner)
	{
		bool		none_a;
		bool		none_b;
		Datum		acl_a = SysCacheGetAttr(PROCOID, a, Anum_pg_proc_proacl, &none_a);
		Datum		acl_b = SysCacheGetAttr(PROCOID, b, Anum_pg_proc_proacl, &none_b);

		same = !none_a && !none_b && aclequal(DatumGetAclP(acl_a), DatumGetAclP(acl_b));
	}
	if (HeapTupleIsValid(a))
		ReleaseSysCache(a);
	if (HeapTupleIsValid(b))
		ReleaseSysCache(b);
	return same;
}

/* _sas.submit_support(request): of the planner; what is called instead of sas.submit. */
Datum
sas_api_submit_support(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TEXTOID, JSONBOID};
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	const FuncExpr *call;
	Oid			plain;

	if (!IsA(request, SupportRequestSimplify) || request->root == NULL)
		PG_RETURN_POINTER(NULL);
	call = request->fcall;
	if (!api_submit_is_short(call->args) || !api_submit_is_in_from(request->root->parse, call->funcid))
		PG_RETURN_POINTER(NULL);
	plain = api_submit_find_function("_sas", "submit_plain", types, lengthof(types));
	/* a role that may call neither gets the error for sas.submit */
	if (!OidIsValid(plain) || !sas_compat_may_call(plain, GetUserId()) || !api_submit_have_same_rights(call->funcid, plain))
		PG_RETURN_POINTER(NULL);
	/* the plan depends on the rights of submit_plain anyway: it is to depend on those of sas.submit, too */
	record_plan_function_dependency(request->root, call->funcid);
	PG_RETURN_POINTER(makeFuncExpr(plain, get_func_rettype(plain), list_make2(list_nth(call->args, WORKFLOW), list_nth(call->args, INPUT)),
								   InvalidOid, call->inputcollid, COERCE_EXPLICIT_CALL));
}

/* ------------------------------------------------------------------ batches */

/* The inputs of a batch; 0 when one of them is to be refused, or there is none. */
static int
api_submit_read_inputs(Datum array, Datum **inputs)
{
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), JSONBOID, -1, false, TYPALIGN_INT, inputs, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i] || !api_submit_fits((*inputs)[i], true))
			return 0;
	return n;
}

/* sas.submit_batch(...): whose keys have to be taken in an order of their own */
Datum
sas_api_submit_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasSubmission submission;
	Datum	   *inputs;
	int64	   *run_ids;
	int			n;

	if (!api_submit_is_plain(fcinfo) || !PG_ARGISNULL(KEY))
		return sas_api_verb(fcinfo);
	submission = api_submit_read(fcinfo);
	n = api_submit_read_inputs(PG_GETARG_DATUM(INPUT), &inputs);
	run_ids = palloc(sizeof(int64) * Max(n, 1));
	if (n == 0 || !api_submit_runs(PG_GETARG_TEXT_PP(WORKFLOW), &submission, inputs, n, run_ids))
		return sas_api_verb(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 (Datum[]) {Int64GetDatum(run_ids[i]), BoolGetDatum(true)}, (bool[]) {false, false});
	return (Datum) 0;
}

/* _sas.announce_workflows(), a trigger */
Datum
sas_api_announce_workflows(PG_FUNCTION_ARGS)
{
	sas_store_announce_workflows();
	PG_RETURN_POINTER(NULL);
}
