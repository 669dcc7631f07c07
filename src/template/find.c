/* SPDX-License-Identifier: PostgreSQL */
/*
 * find.c
 *		Finds the values that paths point to.
 *
 * Most paths consist of members and plain subscripts: this file follows them without the executor
 * of PostgreSQL. If lax mode requires more (unwrap an array, wrap a scalar), the executor does it,
 * within a budget.  It is called in its variant with time zone: the other one raises an error,
 * even when silent, if a comparison of dates needs a time zone.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "template/budget.h"
#include "template/path.h"

typedef enum Walked
{
	WALKED_FOUND,
	WALKED_NOTHING,
	WALKED_UNSURE				/* ask the executor */
} Walked;

const char *
sas_template_kind(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return "null";
		case jbvString:
			return "a string";
		case jbvNumeric:
			return "a number";
		case jbvBool:
			return "a boolean";
		case jbvBinary:
			return JsonContainerIsArray(value->val.binary.data) ? "an array" : "an object";
		default:
			return "a value";
	}
}

/* Why the walk ended at this step; value is the result of the earlier steps. */
static char *
find_explain(const SasPath *path, int stop, const JsonbValue *value)
{
	StringInfoData before;
	const SasPathStep *step = &path->steps[stop];

	initStringInfo(&before);
	for (int i = 0; i < stop; i++)
	{
		if (path->steps[i].key != NULL)
			appendStringInfo(&before, "%s%s", i > 0 ? "." : "", path->steps[i].key);
		else if (path->steps[i].index < 0)
			appendStringInfoString(&before, "[last]");
		else
			appendStringInfo(&before, "[%d]", path->steps[i].index);
	}

	if (stop == 0)
		return psprintf("There is no \"%s\" here.", step->key != NULL ? step->key : "");
	if (step->key == NULL)
		return psprintf("\"%s\" is an array of length %d.", before.data,
						(int) JsonContainerSize(value->val.binary.data));
	if (value->type != jbvBinary)
		return psprintf("\"%s\" is %s.", before.data, sas_template_kind(value));
	return psprintf("\"%s\" has no member \"%s\".", before.data, step->key);
}

static Walked
find_walk(const SasPath *path, Jsonb *root, JsonbValue *value, char **hint)
{
	JsonbValue	at;

	at.type = jbvBinary;
	at.val.binary.data = &root->root;
	at.val.binary.len = VARSIZE(root) - VARHDRSZ;
	if (JB_ROOT_IS_SCALAR(root))
		return WALKED_UNSURE;

	for (int i = 0; i < path->nsteps; i++)
	{
		const SasPathStep *step = &path->steps[i];
		bool		object = at.type == jbvBinary && JsonContainerIsObject(at.val.binary.data);
		bool		array = at.type == jbvBinary && JsonContainerIsArray(at.val.binary.data);
		JsonbValue *next = NULL;

		if (step->key == NULL ? !array : array)
			return WALKED_UNSURE;
		if (step->key == NULL)
		{
			int			count = JsonContainerSize(at.val.binary.data);
			int			index = step->index < 0 ? count - 1 : step->index;

			if (index >= 0 && index < count)
				next = getIthJsonbValueFromContainer(at.val.binary.data, index);
		}
		else if (object)
			next = getKeyJsonValueFromContainer(at.val.binary.data, step->key, step->key_len, NULL);
		if (next == NULL)
		{
			*hint = find_explain(path, i, &at);
			return WALKED_NOTHING;
		}
		at = *next;
	}
	*value = at;
	return WALKED_FOUND;
}

static Jsonb *
find_no_variables(void)
{
	static Jsonb *empty = NULL;

	if (empty == NULL)
	{
		empty = MemoryContextAllocZero(TopMemoryContext, VARHDRSZ + sizeof(uint32));
		SET_VARSIZE(empty, VARHDRSZ + sizeof(uint32));
		empty->root.header = JB_FOBJECT;
	}
	return empty;
}

/* Does the root contain a number that is too long to be multiplied? */
static bool
find_has_long_number(Jsonb *root)
{
	JsonbIterator *iterator = JsonbIteratorInit(&root->root);
	JsonbValue	value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		if ((token == WJB_VALUE || token == WJB_ELEM) && value.type == jbvNumeric &&
			sas_template_number_is_long(value.val.numeric))
			return true;
	}
	return false;
}

/* Copies a value, piece by piece: pushing a container does not check for interrupts. */
static void
find_push(JsonbParseState **state, Jsonb *jsonb)
{
	JsonbIterator *iterator = JsonbIteratorInit(&jsonb->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	if (JB_ROOT_IS_SCALAR(jsonb))
	{
		(void) JsonbExtractScalar(&jsonb->root, &value);
		pushJsonbValue(state, WJB_ELEM, &value);
		return;
	}
	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		pushJsonbValue(state, token, token < WJB_BEGIN_ARRAY ? &value : NULL);
	}
}

static Jsonb *
find_gather(List *found)
{
	JsonbParseState *state = NULL;
	ListCell   *cell;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	foreach(cell, found)
		find_push(&state, lfirst(cell));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/*
 * All values found, as an array, when the path may find one several times ([0, 0]).  A few bytes
 * of path could then make an array many times as large as the root.  PostgreSQL's function that
 * returns an array does not check for interrupts, so this one fetches the values one by one.
 */
static Jsonb *
find_fetch(const SasPath *path, Datum *args)
{
	LOCAL_FCINFO(fcinfo, 4);
	FmgrInfo	function;
	ReturnSetInfo set = {.type = T_ReturnSetInfo};
	List	   *found = NIL;

	fmgr_info_cxt(F_JSONB_PATH_QUERY_TZ, &function, CurrentMemoryContext);
	set.econtext = CreateStandaloneExprContext();
	set.allowedModes = SFRM_ValuePerCall;
	InitFunctionCallInfoData(*fcinfo, &function, 4, InvalidOid, NULL, (Node *) &set);
	for (;;)
	{
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < 4; i++)
		{
			fcinfo->args[i].value = args[i];
			fcinfo->args[i].isnull = false;
		}
		fcinfo->isnull = false;
		set.returnMode = SFRM_ValuePerCall;
		set.isDone = ExprSingleResult;
		value = FunctionCallInvoke(fcinfo);
		if (set.isDone == ExprEndResult)
			break;
		found = lappend(found, DatumGetJsonbP(value));
	}
	FreeExprContext(set.econtext, true);
	return find_gather(found);
}

/* All values found, as an array; NULL with *hint set if they cannot be determined. */
static Jsonb *
find_query(const SasPath *path, Jsonb *root, char **hint)
{
	MemoryContext caller = CurrentMemoryContext;
	Jsonb	   *volatile found = NULL;

	sas_template_budget_arm(path->repeats ? VARSIZE(root) : 0);
	if (path->multiplies && find_has_long_number(root))
	{
		*hint = pstrdup("A number is too long for *, / and %.");
		return NULL;
	}
	PG_TRY();
	{
		Datum		args[4] = {JsonbPGetDatum(root), PointerGetDatum(path->jsonpath),
			JsonbPGetDatum(find_no_variables()), BoolGetDatum(true)};

		found = path->repeats ? find_fetch(path, args) :
			DatumGetJsonbP(DirectFunctionCall4(jsonb_path_query_array_tz, args[0], args[1], args[2], args[3]));
	}
	PG_CATCH();
	{
		found = NULL;
		*hint = sas_template_caught(caller);
	}
	PG_END_TRY();
	return found;
}

bool
sas_template_find(const SasPath *path, Jsonb *root, bool optional, JsonbValue *value,
				  SasTemplateProblem *problem)
{
	char	   *hint = NULL;
	Walked		walked = find_walk(path, root, value, &hint);
	Jsonb	   *found;

	if (walked == WALKED_FOUND && path->plain)
		return true;

	if (walked != WALKED_NOTHING)
	{
		found = find_query(path, root, &hint);
		if (found == NULL)
		{
			problem->what = SAS_TEMPLATE_NOT_EVALUATED;
			problem->hint = hint;
			return false;
		}
		if (path->many)
		{
			value->type = jbvBinary;
			value->val.binary.data = &found->root;
			value->val.binary.len = VARSIZE(found) - VARHDRSZ;
			return true;
		}
		if (JB_ROOT_COUNT(found) == 1)
		{
			*value = *getIthJsonbValueFromContainer(&found->root, 0);
			return true;
		}
		if (JB_ROOT_COUNT(found) > 1)
		{
			problem->what = SAS_TEMPLATE_SEVERAL_FOUND;
			problem->hint = pstrdup("Write [*] to get an array, or a subscript to get one element.");
			return false;
		}
	}

	value->type = jbvNull;
	if (optional)
		return true;
	problem->what = SAS_TEMPLATE_NOTHING_FOUND;
	problem->hint = hint;
	return false;
}

int
sas_template_match(const SasPath *path, Jsonb *root, const char **reason)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int answer = -1;

	sas_template_budget_arm(0);
	if (path->multiplies && find_has_long_number(root))
	{
		*reason = "multiplies or divides a number that is too long";
		return -1;
	}
	PG_TRY();
	{
		LOCAL_FCINFO(fcinfo, 4);
		Datum		matched;

		InitFunctionCallInfoData(*fcinfo, NULL, 4, InvalidOid, NULL, NULL);
		fcinfo->args[0].value = JsonbPGetDatum(root);
		fcinfo->args[1].value = PointerGetDatum(path->jsonpath);
		fcinfo->args[2].value = JsonbPGetDatum(find_no_variables());
		fcinfo->args[3].value = BoolGetDatum(true);
		for (int i = 0; i < 4; i++)
			fcinfo->args[i].isnull = false;

		matched = jsonb_path_match_tz(fcinfo);
		if (!fcinfo->isnull)
			answer = DatumGetBool(matched) ? 1 : 0;
	}
	PG_CATCH();
	{
		answer = -1;
		pfree(sas_template_caught(caller));
	}
	PG_END_TRY();
	return answer;
}
