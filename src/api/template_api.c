/* SPDX-License-Identifier: PostgreSQL */
/*
 * template_api.c: templates and predicates as SQL functions, for the ticks
 * and for validation.
 *
 *		_sas.render(template, root)				-> result, problem
 *		_sas.render_path(template, root)		-> result, problem
 *		_sas.render_request(request, root)		-> result, problem
 *		_sas.evaluated_us(), _sas.evaluated_bytes()	-> what evaluations have cost
 *		_sas.processor_us()						-> processor time of the process
 *		_sas.check_budget()						-> an error if the tick has cost too much
 *		_sas.root(...)							-> the root
 *		_sas.with_member(object, name, member)	-> the object with it
 *		_sas.references(template)				-> one row per value that a template reads
 *		_sas.predicate(path, root)				-> true, false, or null; and why it is neither
 *		_sas.predicate_problem(path)			-> problem and hint, null when it is accepted
 *		_sas.predicate_references(path)			-> one row per value that a predicate reads
 *
 * All but _root, which needs a run and its times, are strict.  They raise
 * only for reasons outside their arguments; _predicate also for a predicate
 * that was never validated.  Exactly one of result and problem is null.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "api/row.h"
#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "template/budget.h"
#include "template/template.h"

PG_FUNCTION_INFO_V1(sas_api_template_render);
PG_FUNCTION_INFO_V1(sas_api_template_render_path);
PG_FUNCTION_INFO_V1(sas_api_template_render_request);
PG_FUNCTION_INFO_V1(sas_api_template_evaluated_us);
PG_FUNCTION_INFO_V1(sas_api_template_evaluated_bytes);
PG_FUNCTION_INFO_V1(sas_api_processor_us);
PG_FUNCTION_INFO_V1(sas_api_check_budget);
PG_FUNCTION_INFO_V1(sas_api_check_steps);
PG_FUNCTION_INFO_V1(sas_api_add_steps);
PG_FUNCTION_INFO_V1(sas_api_budget_is_spent);
PG_FUNCTION_INFO_V1(sas_api_template_root);
PG_FUNCTION_INFO_V1(sas_api_step_key);
PG_FUNCTION_INFO_V1(sas_api_template_with_member);
PG_FUNCTION_INFO_V1(sas_api_template_references);
PG_FUNCTION_INFO_V1(sas_api_template_predicate);
PG_FUNCTION_INFO_V1(sas_api_template_predicate_problem);
PG_FUNCTION_INFO_V1(sas_api_template_predicate_references);

static void
template_api_push_member(JsonbParseState **state, const char *key, const char *string)
{
	JsonbValue	value;

	if (string == NULL)
		return;
	value.type = jbvString;
	value.val.string.val = unconstify(char *, key);
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
	value.val.string.val = unconstify(char *, string);
	value.val.string.len = strlen(string);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static Jsonb *
template_api_problem(const SasTemplateProblem *problem)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	template_api_push_member(&state, "pointer", problem->pointer);
	template_api_push_member(&state, "path", problem->path);
	template_api_push_member(&state, "what", problem->what);
	template_api_push_member(&state, "hint", problem->hint);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static Datum
template_api_result_or_problem(FunctionCallInfo fcinfo, bool good, Datum result,
							   const SasTemplateProblem *problem)
{
	Datum		values[2] = {0, 0};
	bool		nulls[2] = {!good, good};

	if (good)
		values[0] = result;
	else
		values[1] = JsonbPGetDatum(template_api_problem(problem));
	return sas_api_row(fcinfo, values, nulls);
}

static Datum
template_api_rendered(FunctionCallInfo fcinfo, bool (*render) (Jsonb *, Jsonb *, Jsonb **, SasTemplateProblem *))
{
	SasTemplateProblem problem;
	Jsonb	   *result;
	bool		good = render(PG_GETARG_JSONB_P(0), PG_GETARG_JSONB_P(1), &result, &problem);

	return template_api_result_or_problem(fcinfo, good, JsonbPGetDatum(result), &problem);
}

Datum
sas_api_template_render(PG_FUNCTION_ARGS)
{
	return template_api_rendered(fcinfo, sas_template_render);
}

Datum
sas_api_template_render_path(PG_FUNCTION_ARGS)
{
	SasTemplateProblem problem;
	text	   *result;
	bool		good;

	good = sas_template_render_path(PG_GETARG_TEXT_PP(0), PG_GETARG_JSONB_P(1), &result, &problem);
	return template_api_result_or_problem(fcinfo, good, PointerGetDatum(result), &problem);
}

Datum
sas_api_template_render_request(PG_FUNCTION_ARGS)
{
	return template_api_rendered(fcinfo, sas_template_render_request);
}

Datum
sas_api_template_evaluated_us(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_template_budget_us());
}

Datum
sas_api_template_evaluated_bytes(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_template_budget_bytes());
}

Datum
sas_api_processor_us(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_template_processor_us());
}

Datum
sas_api_check_budget(PG_FUNCTION_ARGS)
{
	sas_template_budget_check();
	PG_RETURN_VOID();
}

Datum
sas_api_check_steps(PG_FUNCTION_ARGS)
{
	sas_template_budget_check_steps(PG_GETARG_INT64(0));
	PG_RETURN_BOOL(true);
}

Datum
sas_api_add_steps(PG_FUNCTION_ARGS)
{
	sas_template_budget_add_steps(PG_GETARG_INT64(0));
	PG_RETURN_BOOL(true);
}

Datum
sas_api_budget_is_spent(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_template_budget_is_spent());
}

/* What a call site keeps of the last input that is stored out of line, or compressed. */
typedef struct TemplateApiInput
{
	struct varlena *stored;
	Jsonb	   *value;
} TemplateApiInput;

/*
 * An argument that may be large. The steps of a batch often belong to one run, such as the elements of a
 * map: its input is read and unpacked once in a query, not once per step.
 */
static Jsonb *
template_api_input(FunctionCallInfo fcinfo, int n)
{
	struct varlena *raw = (struct varlena *) PG_GETARG_POINTER(n);
	TemplateApiInput *kept = fcinfo->flinfo->fn_extra;
	MemoryContext caller;

	if (!VARATT_IS_EXTERNAL_ONDISK(raw) && !VARATT_IS_COMPRESSED(raw))
		return PG_GETARG_JSONB_P(n);
	if (kept != NULL && VARSIZE_ANY(kept->stored) == VARSIZE_ANY(raw) && memcmp(kept->stored, raw, VARSIZE_ANY(raw)) == 0)
		return kept->value;
	caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	fcinfo->flinfo->fn_extra = NULL;	/* until it is whole */
	if (kept == NULL)
		kept = palloc(sizeof(TemplateApiInput));
	else
	{
		pfree(kept->stored);
		pfree(kept->value);
	}
	kept->stored = palloc(VARSIZE_ANY(raw));
	memcpy(kept->stored, raw, VARSIZE_ANY(raw));
	kept->value = PG_GETARG_JSONB_P(n);
	fcinfo->flinfo->fn_extra = kept;
	MemoryContextSwitchTo(caller);
	return kept->value;
}

/* _sas.root(input, reads, key, run_id, run_key, labels, created_at, deadline, steps, schedule, scheduled_at, index, item, last) */
Datum
sas_api_template_root(PG_FUNCTION_ARGS)
{
	SasTemplateRoot of = {0};

	if (PG_ARGISNULL(3) || PG_ARGISNULL(6) || PG_ARGISNULL(7))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("run_id, created_at and deadline must not be null")));
	of.input = PG_ARGISNULL(0) ? NULL : template_api_input(fcinfo, 0);
	of.reads = -1;
	if (!PG_ARGISNULL(1))
	{
		Datum	   *names;

		sas_base_elements(PG_GETARG_ARRAYTYPE_P(1), &names, NULL, &of.reads);
		of.members = palloc(sizeof(text *) * Max(of.reads, 1));
		for (int i = 0; i < of.reads; i++)
			of.members[i] = DatumGetTextPP(names[i]);
	}
	of.key = PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2);
	of.run_id = PG_GETARG_INT64(3);
	of.run_key = PG_ARGISNULL(4) ? NULL : PG_GETARG_TEXT_PP(4);
	of.labels = PG_ARGISNULL(5) ? NULL : PG_GETARG_JSONB_P(5);
	of.created_at = PG_GETARG_TIMESTAMPTZ(6);
	of.deadline = PG_GETARG_TIMESTAMPTZ(7);
	of.steps = PG_ARGISNULL(8) ? NULL : PG_GETARG_JSONB_P(8);
	if (!PG_ARGISNULL(9) && !PG_ARGISNULL(10))
	{
		of.schedule = PG_GETARG_TEXT_PP(9);
		of.scheduled_at = PG_GETARG_TIMESTAMPTZ(10);
	}
	of.index = PG_ARGISNULL(11) ? -1 : PG_GETARG_INT32(11);
	of.item = PG_ARGISNULL(12) ? NULL : PG_GETARG_JSONB_P(12);
	of.last = PG_ARGISNULL(13) ? NULL : PG_GETARG_JSONB_P(13);
	return JsonbPGetDatum(sas_template_root(&of));
}

/* _sas.with_member(object, name, member) */
Datum
sas_api_template_with_member(PG_FUNCTION_ARGS)
{
	text	   *name = PG_GETARG_TEXT_PP(1);

	return JsonbPGetDatum(sas_template_with_member(PG_GETARG_JSONB_P(0), VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name),
												   PG_GETARG_JSONB_P(2)));
}

static void
template_api_set_text(Datum *value, bool *null, const char *string)
{
	*null = (string == NULL);
	if (string != NULL)
		*value = CStringGetTextDatum(string);
}

static void
template_api_put_references(FunctionCallInfo fcinfo, List *references)
{
	ReturnSetInfo *info;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	info = (ReturnSetInfo *) fcinfo->resultinfo;
	foreach(cell, references)
	{
		SasTemplateReference *reference = lfirst(cell);
		Datum		values[9] = {0};
		bool		nulls[9] = {false};

		template_api_set_text(&values[0], &nulls[0], reference->pointer);
		template_api_set_text(&values[1], &nulls[1], reference->path);
		template_api_set_text(&values[2], &nulls[2], reference->root);
		template_api_set_text(&values[3], &nulls[3], reference->member);
		template_api_set_text(&values[4], &nulls[4], reference->third);
		values[5] = BoolGetDatum(reference->optional);
		template_api_set_text(&values[6], &nulls[6], reference->problem);
		template_api_set_text(&values[7], &nulls[7], reference->hint);
		template_api_set_text(&values[8], &nulls[8], reference->fourth);
		tuplestore_putvalues(info->setResult, info->setDesc, values, nulls);
	}
}

Datum
sas_api_template_references(PG_FUNCTION_ARGS)
{
	template_api_put_references(fcinfo, sas_template_references(PG_GETARG_JSONB_P(0)));
	return (Datum) 0;
}

Datum
sas_api_template_predicate_references(PG_FUNCTION_ARGS)
{
	template_api_put_references(fcinfo, sas_template_predicate_references(PG_GETARG_TEXT_PP(0)));
	return (Datum) 0;
}

Datum
sas_api_template_predicate(PG_FUNCTION_ARGS)
{
	const char *reason;
	int			answer = sas_template_predicate(PG_GETARG_TEXT_PP(0), PG_GETARG_JSONB_P(1), &reason);
	Datum		values[2] = {BoolGetDatum(answer == 1)};
	bool		nulls[2] = {answer < 0};

	template_api_set_text(&values[1], &nulls[1], reason);
	return sas_api_row(fcinfo, values, nulls);
}

Datum
sas_api_template_predicate_problem(PG_FUNCTION_ARGS)
{
	const char *hint;
	char	   *problem = sas_template_predicate_problem(PG_GETARG_TEXT_PP(0), &hint);
	Datum		values[2] = {0};
	bool		nulls[2];

	template_api_set_text(&values[0], &nulls[0], problem);
	template_api_set_text(&values[1], &nulls[1], hint);
	return sas_api_row(fcinfo, values, nulls);
}

/* _sas.step_key(trace, step, element, undo) */
Datum
sas_api_step_key(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(sas_template_step_key(PG_GETARG_UUID_P(0), text_to_cstring(PG_GETARG_TEXT_PP(1)),
														   PG_GETARG_INT32(2), PG_GETARG_BOOL(3))));
}
