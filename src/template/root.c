/* SPDX-License-Identifier: PostgreSQL */
/*
 * root.c
 *		The root object of the paths of a step or of a run.
 *
 * It is built for each claimed step, so in one pass.  Only those members of a large input that the
 * templates use are copied.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/numeric.h"

#include "base/clock.h"
#include "template/template.h"

static void
root_put_key(JsonbParseState **state, const char *key)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, key);
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
}

static void
root_put_text(JsonbParseState **state, const char *key, const char *string, int len)
{
	JsonbValue	value;

	root_put_key(state, key);
	value.type = string != NULL ? jbvString : jbvNull;
	if (string != NULL)
	{
		value.val.string.val = unconstify(char *, string);
		value.val.string.len = len;
	}
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
root_put_varlena(JsonbParseState **state, const char *key, const text *string)
{
	root_put_text(state, key, string != NULL ? VARDATA_ANY(string) : NULL, string != NULL ? VARSIZE_ANY_EXHDR(string) : 0);
}

static void
root_put_time(JsonbParseState **state, const char *key, TimestampTz at)
{
	char		buffer[MAXDATELEN + 1];

	JsonEncodeDateTime(buffer, TimestampTzGetDatum(at), TIMESTAMPTZOID, NULL);
	root_put_text(state, key, pstrdup(buffer), strlen(buffer));
}

static void
root_put_number(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue	value;

	root_put_key(state, key);
	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(number);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
root_put_jsonb(JsonbParseState **state, const char *key, Jsonb *jsonb)
{
	JsonbValue	value;

	root_put_key(state, key);
	if (jsonb == NULL)
		value.type = jbvNull;
	else if (!JsonbExtractScalar(&jsonb->root, &value))
	{
		value.type = jbvBinary;
		value.val.binary.data = &jsonb->root;
		value.val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
	}
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
root_put_input(JsonbParseState **state, const SasTemplateRoot *of)
{
	if (of->input == NULL || of->reads < 0 || !JB_ROOT_IS_OBJECT(of->input))
	{
		root_put_jsonb(state, "input", of->input);
		return;
	}
	root_put_key(state, "input");
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < of->reads; i++)
	{
		JsonbValue	key;
		JsonbValue *member;

		key.type = jbvString;
		key.val.string.val = VARDATA_ANY(of->members[i]);
		key.val.string.len = VARSIZE_ANY_EXHDR(of->members[i]);
		member = findJsonbValueFromContainer(&of->input->root, JB_FOBJECT, &key);
		if (member == NULL)
			continue;
		pushJsonbValue(state, WJB_KEY, &key);
		pushJsonbValue(state, WJB_VALUE, member);
	}
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* Members come in the order in which jsonb stores them, by length: to sort them takes a third of the time otherwise. */
static void
root_put_run(JsonbParseState **state, const SasTemplateRoot *of)
{
	root_put_key(state, "run");
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	root_put_number(state, "id", of->run_id);
	root_put_varlena(state, "key", of->run_key);
	root_put_time(state, "now", sas_base_clock_now());
	root_put_jsonb(state, "labels", of->labels);
	root_put_time(state, "deadline", of->deadline);
	if (of->schedule != NULL)
		root_put_varlena(state, "schedule", of->schedule);
	root_put_time(state, "created_at", of->created_at);
	if (of->schedule != NULL)
		root_put_time(state, "scheduled_at", of->scheduled_at);
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/* Likewise. */
Jsonb *
sas_template_root(const SasTemplateRoot *of)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	root_put_varlena(&state, "key", of->key);
	root_put_run(&state, of);
	if (of->index >= 0)
	{
		root_put_jsonb(&state, "item", of->item);
		root_put_jsonb(&state, "last", of->last);
		root_put_number(&state, "index", of->index);
	}
	root_put_input(&state, of);
	root_put_jsonb(&state, "steps", of->steps);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
