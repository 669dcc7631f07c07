/* SPDX-License-Identifier: PostgreSQL */
/*
 * middleware.c: the functions around a step, as the owner of its run.
 *
 * _sas.wrap_function and _sas.phase_function say what a function worker calls for a
 * step that middleware applies to, as one object:
 *
 *	chain		the middleware from the outermost on: {name, before, after}
 *	context		what each of the functions is told of the step
 *	request		what goes in
 *	function	of a function step: its functions, a line each
 *	response	of a call that was made: what the service answered
 *
 * The befores are called from the outermost on, the afters from the innermost
 * on. A before may change the request, or give the response itself: then
 * nothing inside is called, and only the afters outside of it see that
 * response. An after may change the response.
 *
 * A function step goes in, is called, and goes out; the result is the
 * response. A call of an agent is two inputs, one on either side of the call:
 * the way in, whose result is {request} or {response}, and the way out.
 *
 * This is C because a role needs no right on anything in schema _sas for it:
 * the owner of a run may have no level.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "work/callable.h"
#include "work/json.h"
#include "work/middleware.h"

typedef struct Around
{
	Oid			owner;
	Jsonb	   *chain;
	Jsonb	   *context;
	Jsonb	   *request;
	Jsonb	   *response;		/* NULL: there is none yet */
	int			inside;			/* how many of the chain see the response */
} Around;

/* NULL: not there. */
static Jsonb *
middleware_member(Jsonb *object, const char *name)
{
	JsonbValue	value;

	return sas_work_json_member(object, name, &value) ? JsonbValueToJsonb(&value) : NULL;
}

static ArrayType *
middleware_texts(const char *first, const char *second)
{
	Datum		values[2] = {CStringGetTextDatum(first), second ? CStringGetTextDatum(second) : 0};

	return construct_array(values, second ? 2 : 1, TEXTOID, -1, false, TYPALIGN_INT);
}

/* The object with that member. */
static Jsonb *
middleware_with(Jsonb *object, const char *name, Jsonb *value)
{
	return DatumGetJsonbP(DirectFunctionCall4(jsonb_set, JsonbPGetDatum(object), PointerGetDatum(middleware_texts(name, NULL)),
											  JsonbPGetDatum(value), BoolGetDatum(true)));
}

static Jsonb *
middleware_object_of(const char *name, Jsonb *value)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	return middleware_with(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)), name, value);
}

static bool
middleware_is_null(Jsonb *value)
{
	JsonbValue	scalar;

	return value == NULL || (JsonbExtractScalar(&value->root, &scalar) && scalar.type == jbvNull);
}

Jsonb *
sas_work_middleware_answer(const char *middleware, Jsonb *answer, ArrayType *keys)
{
	bool		is_object;

	if (middleware_is_null(answer))
		return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	is_object = JB_ROOT_IS_OBJECT(answer);
	if (!is_object ||
		JB_ROOT_COUNT(DatumGetJsonbP(DirectFunctionCall2(jsonb_delete_array, JsonbPGetDatum(answer), PointerGetDatum(keys)))) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("middleware \"%s\" returned %s", middleware,
						is_object ? "unknown keys" : TextDatumGetCString(DirectFunctionCall1(jsonb_typeof, JsonbPGetDatum(answer)))),
				 errhint("It returns null, or an object with %s.",
						 TextDatumGetCString(OidFunctionCall2(F_ARRAY_TO_STRING_ANYARRAY_TEXT, PointerGetDatum(keys), CStringGetTextDatum(" or "))))));
	return answer;
}

/* Calls the before or after of a middleware; what it answered, NULL when there is none. */
static Jsonb *
middleware_ask(const Around *a, int n, const char *which, ArrayType *keys)
{
	JsonbValue *element = getIthJsonbValueFromContainer(&a->chain->root, n);
	Jsonb	   *middleware = JsonbValueToJsonb(element);
	char	   *function = sas_work_json_string(middleware, which);
	char	   *name = sas_work_json_string(middleware, "name");
	Jsonb	   *told;

	if (function == NULL || name == NULL)
		return NULL;
	told = middleware_with(middleware_with(a->context, "middleware", middleware_member(middleware, "name")), "request", a->request);
	if (a->response != NULL)
		told = middleware_with(told, "response", a->response);
	return sas_work_middleware_answer(name, sas_work_call_all(sas_work_callables(function, a->owner), told, CurrentMemoryContext), keys);
}

static void
middleware_go_in(Around *a)
{
	ArrayType  *keys = middleware_texts("request", "response");

	for (int n = 0; n < a->inside; n++)
	{
		Jsonb	   *answer = middleware_ask(a, n, "before", keys);
		Jsonb	   *request = middleware_member(answer, "request");

		if (request != NULL)
			a->request = request;
		a->response = middleware_member(answer, "response");
		if (a->response != NULL)
			a->inside = n;
	}
}

static Jsonb *
middleware_go_out(Around *a)
{
	ArrayType  *keys = middleware_texts("response", NULL);

	while (a->inside > 0)
	{
		Jsonb	   *response = middleware_member(middleware_ask(a, --a->inside, "after", keys), "response");

		if (response != NULL)
			a->response = response;
	}
	return a->response;
}

Jsonb *
sas_work_through_middleware(Oid owner, Jsonb *input, MemoryContext context)
{
	Around		a = {owner, middleware_member(input, "chain"), middleware_member(input, "context"), middleware_member(input, "request"), middleware_member(input, "response")};
	JsonbValue	function;
	Jsonb	   *output;
	MemoryContext old;

	if (a.chain == NULL || !JB_ROOT_IS_ARRAY(a.chain) || a.context == NULL || !JB_ROOT_IS_OBJECT(a.context) || a.request == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("this is no call with middleware around it")));
	a.inside = JB_ROOT_COUNT(a.chain);
	if (a.response != NULL)
		output = middleware_go_out(&a);
	else
	{
		middleware_go_in(&a);
		if (sas_work_json_member(input, "function", &function))
		{
			char	   *names = sas_work_json_text(&function);

			if (a.response == NULL)
				a.response = sas_work_call_all(sas_work_callables(names ? names : "", owner), a.request, CurrentMemoryContext);
			output = middleware_go_out(&a);
		}
		else
			output = a.response != NULL ? middleware_object_of("response", middleware_go_out(&a)) : middleware_object_of("request", a.request);
	}
	old = MemoryContextSwitchTo(context);
	output = DatumGetJsonbPCopy(JsonbPGetDatum(output));
	MemoryContextSwitchTo(old);
	return output;
}
