/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.c: sas.submit and sas.submit_batch.
 *
 * Most runs are plain: nothing but their input, priority, deadline and labels
 * is given, and they begin with the claim of their first steps.  Their rows
 * are written here; every other submit, and every one that is to be refused,
 * is left to SQL, like any verb.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "api/verb.h"
#include "base/settings.h"
#include "metrics/metrics.h"
#include "store/submit.h"
#include "wake/bell.h"
#include "wake/front.h"
#include "worker/lifecycle.h"

PG_FUNCTION_INFO_V1(sas_api_submit);
PG_FUNCTION_INFO_V1(sas_api_submit_batch);
PG_FUNCTION_INFO_V1(sas_api_announce_workflows);

/* The parameters of both, in their order; of sas.submit_batch INPUT and KEY are arrays. */
enum
{
	WORKFLOW, INPUT, KEY, PRIORITY, START_AT, START_BEFORE, DEADLINE, AFTER_RUN, REPLY_TO, LABELS, AFTER_RESULT, PARAMETERS
};

/* Is that an object, and no larger than an input may be? */
static bool
fits(Datum value, bool limited)
{
	Jsonb	   *object;
	bool		is;

	if (limited && toast_datum_size(value) > sas_max_input_size)
		return false;
	object = DatumGetJsonbP(value);
	is = JB_ROOT_IS_OBJECT(object);
	if ((Pointer) object != DatumGetPointer(value))
		pfree(object);
	return is;
}

/* Is after_result what stands there when nothing is given? */
static bool
is_default_result(Datum given)
{
	static ArrayType *wanted = NULL;
	ArrayType  *array = DatumGetArrayTypeP(given);

	if (wanted == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		Datum		words[2] = {CStringGetTextDatum("success"), CStringGetTextDatum("warning")};

		wanted = construct_array(words, 2, TEXTOID, -1, false, TYPALIGN_INT);
		MemoryContextSwitchTo(old);
	}
	return VARSIZE(array) == VARSIZE(wanted) && memcmp(array, wanted, VARSIZE(wanted)) == 0;
}

/* Positive, and at most ten years? */
static bool
is_deadline(Datum given)
{
	Interval	none = {0};
	Interval	most = {.month = 120};

	return DatumGetBool(DirectFunctionCall2(interval_gt, given, IntervalPGetDatum(&none))) &&
		DatumGetBool(DirectFunctionCall2(interval_le, given, IntervalPGetDatum(&most)));
}

/* Nothing is given that needs more than the rows of the run, and nothing but the input can be wrong. */
static bool
is_plain(FunctionCallInfo fcinfo)
{
	static const int needed[] = {WORKFLOW, INPUT, PRIORITY, LABELS, AFTER_RESULT};
	static const int unwanted[] = {START_AT, START_BEFORE, AFTER_RUN, REPLY_TO};

	if (PG_NARGS() != PARAMETERS || XactReadOnly || IsInParallelMode())
		return false;
	for (int i = 0; i < lengthof(needed); i++)
		if (PG_ARGISNULL(needed[i]))
			return false;
	for (int i = 0; i < lengthof(unwanted); i++)
		if (!PG_ARGISNULL(unwanted[i]))
			return false;
	return PG_GETARG_INT32(PRIORITY) >= -1000 && PG_GETARG_INT32(PRIORITY) <= 1000 &&
		fits(PG_GETARG_DATUM(LABELS), false) && is_default_result(PG_GETARG_DATUM(AFTER_RESULT)) &&
		(PG_ARGISNULL(DEADLINE) || is_deadline(PG_GETARG_DATUM(DEADLINE)));
}

/* Submits runs that are plain; false, and nothing has happened, when they are not. */
static bool
submit(FunctionCallInfo fcinfo, const Datum *inputs, int n, int64 *run_ids)
{
	const SasPlainWorkflow *workflow = sas_store_plain_workflow(GetUserId(), PG_GETARG_TEXT_PP(WORKFLOW));
	SasSubmission submission;
	TimestampTz deadline;
	TimestampTz *ranks;

	/* as every verb says */
	sas_lifecycle_restored();
	if (workflow == NULL)
		return false;
	ranks = palloc(sizeof(TimestampTz) * workflow->n_roots);
	submission.owner = GetUserId();
	submission.priority = PG_GETARG_INT32(PRIORITY);
	submission.deadline = PG_ARGISNULL(DEADLINE) ? NULL : PG_GETARG_INTERVAL_P(DEADLINE);
	submission.labels = PG_GETARG_DATUM(LABELS);
	submission.key = PG_ARGISNULL(KEY) ? NULL : PG_GETARG_TEXT_PP(KEY);
	if (!sas_store_submit_plain(workflow, &submission, inputs, n, run_ids, &deadline, ranks))
		return false;
	sas_fronts_note(SAS_FRONT_DUE, 'v', deadline);
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "run none pending", n, -1);
	sas_bell_mark_due(deadline);
	for (int i = 0; i < workflow->n_roots; i++)
	{
		sas_fronts_note(SAS_FRONT_LANE, workflow->root_lanes[i], ranks[i]);
		sas_bell_mark_lane(workflow->root_lanes[i]);
	}
	return true;
}

/* (run_id, created) */
static TupleDesc
result_row(void)
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

/* sas.submit(...) */
Datum
sas_api_submit(PG_FUNCTION_ARGS)
{
	int64		run_id;
	Datum		values[2];
	bool		nulls[2] = {false};

	if (!is_plain(fcinfo) || !fits(PG_GETARG_DATUM(INPUT), true) || !submit(fcinfo, &PG_GETARG_DATUM(INPUT), 1, &run_id))
		return sas_api_verb(fcinfo);
	values[0] = Int64GetDatum(run_id);
	values[1] = BoolGetDatum(true);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(result_row(), values, nulls)));
}

/* The inputs of a batch; 0 when one of them is to be refused, or there is none. */
static int
read_inputs(Datum array, Datum **inputs)
{
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(array), JSONBOID, -1, false, TYPALIGN_INT, inputs, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i] || !fits((*inputs)[i], true))
			return 0;
	return n;
}

/* sas.submit_batch(...): whose keys have to be taken in an order of their own */
Datum
sas_api_submit_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum	   *inputs;
	int64	   *run_ids;
	int			n;

	if (!is_plain(fcinfo) || !PG_ARGISNULL(KEY))
		return sas_api_verb(fcinfo);
	n = read_inputs(PG_GETARG_DATUM(INPUT), &inputs);
	run_ids = palloc(sizeof(int64) * Max(n, 1));
	if (n == 0 || !submit(fcinfo, inputs, n, run_ids))
		return sas_api_verb(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 (Datum[]) {Int64GetDatum(run_ids[i]), BoolGetDatum(true)}, (bool[]) {false, false});
	return (Datum) 0;
}

/* sas._announce_workflows(), a trigger */
Datum
sas_api_announce_workflows(PG_FUNCTION_ARGS)
{
	sas_store_announce_workflows();
	PG_RETURN_POINTER(NULL);
}
