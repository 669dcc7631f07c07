/* SPDX-License-Identifier: PostgreSQL */
/*
 * json.c: small jsonb objects.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"
#include "work/json.h"

bool
sas_work_json_member(Jsonb *object, const char *name, JsonbValue *value)
{
	if (object == NULL || !JB_ROOT_IS_OBJECT(object))
		return false;
	return getKeyJsonValueFromContainer(&object->root, name, strlen(name), value) != NULL;
}

char *
sas_work_json_text(const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			return NULL;
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
		default:
			{
				Jsonb	   *jsonb = JsonbValueToJsonb((JsonbValue *) value);

				return JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
			}
	}
}

char *
sas_work_json_string(Jsonb *object, const char *name)
{
	JsonbValue	value;

	return sas_work_json_member(object, name, &value) ? sas_work_json_text(&value) : NULL;
}

double
sas_work_json_number(Jsonb *object, const char *name, double otherwise)
{
	JsonbValue	value;

	if (!sas_work_json_member(object, name, &value) || value.type != jbvNumeric)
		return otherwise;
	/* what a service says may be out of range: no error, but infinity or zero */
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(value.val.numeric)));
}

bool
sas_work_json_bool(Jsonb *object, const char *name, bool otherwise)
{
	JsonbValue	value;

	if (!sas_work_json_member(object, name, &value) || value.type != jbvBool)
		return otherwise;
	return value.val.boolean;
}

static void
json_push_key(JsonbParseState **state, const char *name)
{
	JsonbValue	key = {.type = jbvString};

	key.val.string.val = (char *) name;
	key.val.string.len = strlen(name);
	pushJsonbValue(state, WJB_KEY, &key);
}

Jsonb *
sas_work_json_copy(MemoryContext context, const Jsonb *jsonb)
{
	return jsonb == NULL ? NULL : memcpy(MemoryContextAlloc(context, VARSIZE(jsonb)), jsonb, VARSIZE(jsonb));
}

void
sas_work_json_push(JsonbParseState **state, const char *name, const char *value)
{
	JsonbValue	v = {.type = jbvString};

	json_push_key(state, name);
	v.val.string.val = (char *) value;
	v.val.string.len = strlen(value);
	pushJsonbValue(state, WJB_VALUE, &v);
}

char *
sas_work_json_instance(const SasStepId *id, const char *step)
{
	return psprintf("/runs/" INT64_FORMAT "/steps/%s%s", id->run_id, step,
					id->element > 0 ? psprintf("/elements/%d", id->element) : "");
}

Jsonb *
sas_work_json_problem(const char *kind, const char *title, const char *detail, int status, const char *instance)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	sas_work_json_push(&state, "type", psprintf("urn:sas:%s", kind));
	sas_work_json_push(&state, "title", title);
	if (detail != NULL)
		sas_work_json_push(&state, "detail", detail);
	if (status != 0)
	{
		JsonbValue	v = {.type = jbvNumeric};

		json_push_key(&state, "status");
		v.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum(status)));
		pushJsonbValue(&state, WJB_VALUE, &v);
	}
	sas_work_json_push(&state, "instance", instance);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
