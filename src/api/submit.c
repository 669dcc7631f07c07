/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.c: sas.submit and sas.submit_batch.
 *
 * Most runs are plain: only their input, priority, deadline and labels are
 * given, and they begin with the claim of their first steps.  Their rows are
 * written here.  SQL writes every other submit, and refuses what is to be
 * refused, as for any verb.
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
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "api/forward.h"
#include "api/verb.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/written.h"
#include "limits/quotas.h"
#include "metrics/metrics.h"
#include "store/hold.h"
#include "store/node.h"
#include "store/submit.h"
#include "template/budget.h"
#include "wake/low_water.h"
#include "wake/wakeup.h"
#include "worker/lifecycle.h"

PG_FUNCTION_INFO_V1(sas_api_submit);
PG_FUNCTION_INFO_V1(sas_api_submit_batch);
PG_FUNCTION_INFO_V1(sas_api_submit_plain_children);
PG_FUNCTION_INFO_V1(sas_api_announce_workflows);

/* SQL refuses more, see _sas.check_submit. */
#define MAX_LABELS 64
#define MAX_LABELS_SIZE 16384
#define MAX_KEY_SIZE 2000

/* The parameters of both, in their order; of sas.submit_batch INPUT and KEY are arrays. */
enum
{
	WORKFLOW, INPUT, KEY, PRIORITY, START_AT, START_BEFORE, DEADLINE, AFTER_RUN, AFTER_RUNS, REPLY_TO, LABELS, VERSION, AFTER_RESULT, PARAMETERS
};

/* Is that an object, and no larger than an input may be? */
static bool
api_submit_fits(Datum value, bool limited)
{
	Jsonb	   *object;
	bool		is;

	if (limited && sas_base_written_size(value, sas_base_max_input_size) > sas_base_max_input_size)
		return false;
	object = DatumGetJsonbP(value);
	is = JB_ROOT_IS_OBJECT(object);
	if ((Pointer) object != DatumGetPointer(value))
		pfree(object);
	return is;
}

/* Is it what a null after_result means? */
static bool
api_submit_is_default_result(Datum given)
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
api_submit_is_deadline(Datum given)
{
	Interval	none = {0};
	Interval	most = {.month = 120};

	return DatumGetBool(DirectFunctionCall2(interval_gt, given, IntervalPGetDatum(&none))) &&
		DatumGetBool(DirectFunctionCall2(interval_le, given, IntervalPGetDatum(&most)));
}

/* A key that only the run of a schedule may have? SQL refuses it. */
static bool
api_submit_has_odd_key(FunctionCallInfo fcinfo)
{
	static const char reserved[] = "schedule:";
	const text *key = PG_ARGISNULL(KEY) ? NULL : PG_GETARG_TEXT_PP(KEY);

	return key != NULL && (VARSIZE_ANY_EXHDR(key) > MAX_KEY_SIZE ||
						   (VARSIZE_ANY_EXHDR(key) >= strlen(reserved) && memcmp(VARDATA_ANY(key), reserved, strlen(reserved)) == 0));
}

/* Nothing is given that needs more than the rows of the run, and nothing but the input can be wrong. */
static bool
api_submit_is_plain(FunctionCallInfo fcinfo)
{
	static const int needed[] = {WORKFLOW, INPUT, PRIORITY, LABELS};
	static const int unwanted[] = {START_AT, START_BEFORE, AFTER_RUN, AFTER_RUNS, REPLY_TO, VERSION};

	if (PG_NARGS() != PARAMETERS)
		return false;
	for (int i = 0; i < lengthof(needed); i++)
		if (PG_ARGISNULL(needed[i]))
			return false;
	for (int i = 0; i < lengthof(unwanted); i++)
		if (!PG_ARGISNULL(unwanted[i]))
			return false;
	return PG_GETARG_INT32(PRIORITY) >= -1000 && PG_GETARG_INT32(PRIORITY) <= 1000 &&
		api_submit_fits(PG_GETARG_DATUM(LABELS), false) && sas_base_written_size(PG_GETARG_DATUM(LABELS), MAX_LABELS_SIZE) <= MAX_LABELS_SIZE &&
		JB_ROOT_COUNT(PG_GETARG_JSONB_P(LABELS)) <= MAX_LABELS &&
		(PG_ARGISNULL(AFTER_RESULT) || api_submit_is_default_result(PG_GETARG_DATUM(AFTER_RESULT))) &&
		(PG_ARGISNULL(DEADLINE) || api_submit_is_deadline(PG_GETARG_DATUM(DEADLINE)));
}

/*
 * The owner has so much more (or less) open, as far as its limits are known
 * and it is within them; false: SQL reads the limits, and refuses.
 */
static bool
api_submit_take_quota(const SasSubmission *submission, const Datum *inputs, int n, int sign)
{
	int64		more[SAS_QUOTA_KINDS] = {[SAS_QUOTA_OPEN_RUNS] = sign * n,[SAS_QUOTA_CHILDREN] = submission->parents ? sign * n : 0};
	SasQuotaKind over;
	int64		used;

	for (int i = 0; i < n; i++)
		more[SAS_QUOTA_BYTES] += sign * (int64) toast_raw_datum_size(inputs[i]);
	return sas_limits_quota_take(submission->owner, more, NULL, sign > 0, &over, &used) == SAS_QUOTA_TAKEN;
}

/* Submits runs that are plain; false, and nothing has happened, when they are not. workflow_id: the workflow of that name must be this one, if not 0. */
static bool
api_submit_runs(const text *name, int workflow_id, const SasSubmission *submission, const Datum *inputs, int n, int64 *run_ids)
{
	const SasPlainWorkflow *workflow;
	SasSubmitted submitted = {.run_ids = run_ids};

	if (XactReadOnly || IsInParallelMode())
		return false;
	workflow = sas_store_plain_workflow(submission->owner, name);
	/* it may have been dropped before this transaction held it */
	if (workflow != NULL && sas_store_hold_workflow(workflow->workflow_id))
	{
		int			held = workflow->workflow_id;

		workflow = sas_store_plain_workflow(submission->owner, name);
		if (workflow != NULL && workflow->workflow_id != held)
			return false;
	}
	/* as every verb does */
	sas_worker_lifecycle_restored();
	if (workflow == NULL || (workflow_id != 0 && workflow->workflow_id != workflow_id))
		return false;
	sas_template_budget_add_steps((int64) n * workflow->n_roots);
	if (!api_submit_take_quota(submission, inputs, n, 1))
		return false;
	submitted.ranks = palloc(sizeof(TimestampTz) * workflow->n_roots);
	if ((sas_limits_quota_in_run && !sas_limits_quota_submit(submission->owner, n, 0)) ||
		!sas_store_submit_plain(workflow, submission, inputs, n, &submitted))
	{
		api_submit_take_quota(submission, inputs, n, -1);
		return false;
	}
	sas_wake_low_water_note(SAS_LOW_WATER_UNTIMED, 0, InvalidOid, run_ids[0]);
	if (submitted.timer != DT_NOEND)
		sas_wake_low_water_note(SAS_LOW_WATER_DUE, 'v', submission->owner, submitted.timer);
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "run none pending", n, -1);
	sas_wake_due_at_commit(submitted.check_by);
	for (int i = 0; i < workflow->n_roots; i++)
	{
		sas_wake_low_water_note(SAS_LOW_WATER_LANE, workflow->root_lanes[i], submission->owner, submitted.ranks[i]);
		if (n == 1 && workflow->n_roots == 1 && workflow->root_lanes[i] == 0)
			sas_wake_step_at_commit();
		else
			sas_wake_lane_at_commit(workflow->root_lanes[i], false);
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

/* In a cluster: the run is made on the node to which its key belongs, if that is another one. */
static bool
api_submit_elsewhere(FunctionCallInfo fcinfo, Oid owner, Datum *result)
{
	const SasPlainWorkflow *workflow;

	if (!sas_store_in_cluster() || XactReadOnly)
		return false;
	sas_api_hold_keys(text_to_cstring(PG_GETARG_TEXT_PP(WORKFLOW)));
	workflow = sas_store_plain_workflow(owner, PG_GETARG_TEXT_PP(WORKFLOW));
	return workflow != NULL && workflow->keys_follow && sas_api_forward(fcinfo, SAS_REACH_SUBMIT, "submit", true, result);
}

/* sas.submit(...) */
Datum
sas_api_submit(PG_FUNCTION_ARGS)
{
	SasSubmission submission;
	int64		run_id;
	Datum		result;
	Datum		values[2];

	if (!api_submit_is_plain(fcinfo) || api_submit_has_odd_key(fcinfo) || !api_submit_fits(PG_GETARG_DATUM(INPUT), true))
		return sas_api_verb(fcinfo);
	submission = api_submit_read(fcinfo);
	if (submission.key != NULL && api_submit_elsewhere(fcinfo, submission.owner, &result))
		return result;
	if (!api_submit_runs(PG_GETARG_TEXT_PP(WORKFLOW), 0, &submission, &PG_GETARG_DATUM(INPUT), 1, &run_id))
		return sas_api_verb(fcinfo);
	values[0] = Int64GetDatum(run_id);
	values[1] = BoolGetDatum(true);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(api_submit_result_row(), values, (bool[2]) {false})));
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
	if (n == 0 || !api_submit_runs(PG_GETARG_TEXT_PP(WORKFLOW), 0, &submission, inputs, n, run_ids))
		return sas_api_verb(fcinfo);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 (Datum[]) {Int64GetDatum(run_ids[i]), BoolGetDatum(true)}, (bool[]) {false, false});
	return (Datum) 0;
}

/* The values of an array without nulls, one for each of n runs; NULL: there are not so many. */
static const Datum *
api_submit_read_array(Datum array, Oid type, int n)
{
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *values;
	bool	   *nulls;
	int			found;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	deconstruct_array(DatumGetArrayTypeP(array), type, typlen, typbyval, typalign, &values, &nulls, &found);
	for (int i = 0; i < found; i++)
		if (nulls[i])
			return NULL;
	return found == n ? values : NULL;
}

/* _sas.submit_plain_children(owner, workflow, workflow_id, priority, labels, inputs, parents, step_nos, elements, deadlines): done? */
Datum
sas_api_submit_plain_children(PG_FUNCTION_ARGS)
{
	Datum	   *inputs;
	int			n;
	SasParents	parents = {0};
	SasSubmission submission = {.parents = &parents};

	for (int i = 0; i < 9; i++)
		if (PG_ARGISNULL(i))
			PG_RETURN_BOOL(false);
	submission.owner = PG_GETARG_OID(0);
	submission.priority = PG_GETARG_INT32(3);
	submission.labels = PG_GETARG_DATUM(4);
	n = api_submit_read_inputs(PG_GETARG_DATUM(5), &inputs);
	parents.run_ids = api_submit_read_array(PG_GETARG_DATUM(6), INT8OID, n);
	parents.step_nos = api_submit_read_array(PG_GETARG_DATUM(7), INT4OID, n);
	parents.elements = api_submit_read_array(PG_GETARG_DATUM(8), INT4OID, n);
	if (n == 0 || parents.run_ids == NULL || parents.step_nos == NULL || parents.elements == NULL)
		PG_RETURN_BOOL(false);
	if (!PG_ARGISNULL(9) && (parents.deadlines = api_submit_read_array(PG_GETARG_DATUM(9), TIMESTAMPTZOID, n)) == NULL)
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(api_submit_runs(PG_GETARG_TEXT_PP(1), PG_GETARG_INT32(2), &submission, inputs, n, palloc(sizeof(int64) * n)));
}

/* _sas.announce_workflows(), a trigger */
Datum
sas_api_announce_workflows(PG_FUNCTION_ARGS)
{
	sas_store_announce_workflows();
	PG_RETURN_POINTER(NULL);
}
