/* SPDX-License-Identifier: PostgreSQL */
/*
 * middleware.c: the functions around a step, each as the role that made it.
 *
 * _sas.wrap_function and _sas.phase_function say what a function worker calls for a
 * step that middleware applies to, as one object:
 *
 *	chain		the middleware from the outermost on: {name, owner, former, before, after}
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
 * Each of the chain opens a level of settings: what its before sets holds for
 * all that is inside, and for its after, whatever is set inside. Where it
 * belongs to another role than the run, it is a security-restricted operation
 * (work/become.c), and what the function of the run left in the transaction is
 * gone before an after is called.
 *
 * This is C because a role needs no right on anything in schema _sas for it:
 * the owner of a run may have no level.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "libpq/be-fsstubs.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/syscache.h"
#include "work/become.h"
#include "work/callable.h"
#include "work/connections.h"
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
	bool		in_worker;
	bool		restricted;		/* the run itself is in a security-restricted operation */
	bool		ran;			/* code of the owner of the run, which may have left something */
	SasRights  *levels;			/* to go back to from each of the chain */
	int			open;			/* how many of these */
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

	return sas_base_array(values, second ? 2 : 1, TEXTOID);
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

/* The first keys of the object, as a list in quotes: what it holds is limited, but not what a message should be. */
static char *
middleware_key_names(Jsonb *object)
{
	StringInfoData names;
	JsonbIterator *each = JsonbIteratorInit(&object->root);
	JsonbValue	key;
	JsonbIteratorToken token;
	int			n = 0;

	initStringInfo(&names);
	while ((token = JsonbIteratorNext(&each, &key, true)) != WJB_DONE)
	{
		if (token != WJB_KEY)
			continue;
		if (++n > 10)
		{
			appendStringInfoString(&names, ", ...");
			break;
		}
		appendStringInfo(&names, "%s\"%.*s\"", n > 1 ? ", " : "",
						 pg_mbcliplen(key.val.string.val, key.val.string.len, NAMEDATALEN), key.val.string.val);
	}
	return names.data;
}

Jsonb *
sas_work_middleware_answer(const char *middleware, Jsonb *answer, ArrayType *keys)
{
	bool		is_object;
	Jsonb	   *rest = NULL;

	if (middleware_is_null(answer))
		return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	is_object = JB_ROOT_IS_OBJECT(answer);
	if (is_object)
		rest = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete_array, JsonbPGetDatum(answer), PointerGetDatum(keys)));
	if (!is_object || JB_ROOT_COUNT(rest) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("middleware \"%s\" returned %s", middleware,
						is_object ? psprintf("unknown keys: %s", middleware_key_names(rest)) : TextDatumGetCString(DirectFunctionCall1(jsonb_typeof, JsonbPGetDatum(answer)))),
				 errhint("It returns null, or an object with %s.",
						 TextDatumGetCString(OidFunctionCall2(F_ARRAY_TO_STRING_ANYARRAY_TEXT, PointerGetDatum(keys), CStringGetTextDatum(" or "))))));
	return answer;
}

static Jsonb *
middleware_nth(const Around *a, int n)
{
	return JsonbValueToJsonb(getIthJsonbValueFromContainer(&a->chain->root, n));
}

/* The role that this one of the chain belongs to. A superuser's run takes only what superusers made, others also what admins made. */
static Oid
middleware_owner(const Around *a, Jsonb *middleware)
{
	Oid			owner = (Oid) sas_work_json_number(middleware, "owner", InvalidOid);

	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the role that created middleware \"%s\" no longer exists", sas_work_json_string(middleware, "name"))));
	/* transient: an admin decides what becomes of it, and no run is undone until then */
	if (sas_work_json_bool(middleware, "former", false))
		ereport(ERROR,
				(errcode(ERRCODE_OPERATOR_INTERVENTION),
				 errmsg("the role that created middleware \"%s\" is no admin any more", sas_work_json_string(middleware, "name")),
				 errhint("An admin can create it again, or drop it.")));
	if (superuser_arg(a->owner) && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("middleware \"%s\" is not owned by a superuser, and the owner of the run is one", sas_work_json_string(middleware, "name"))));
	return owner;
}

/* Code of that role comes next. What the owner of the run left in the transaction is not for others. */
static void
middleware_change_to(Around *a, Oid role)
{
	if (!a->in_worker || role == GetUserId())
		return;
	if (a->ran && role != a->owner)
	{
		sas_work_clean_up();
		a->ran = false;
	}
	sas_work_close_dblink();
	/* whoever knows the number of one that is open may read it */
	AtEOXact_LargeObject(true);
}

static void
middleware_become(Around *a, SasRights *before, Oid role)
{
	middleware_change_to(a, role);
	sas_work_become(before, role, (a->in_worker ? SAS_BECOME_SESSION : 0) |
					(role != a->owner ? SAS_BECOME_RESTRICTED : a->restricted ? 0 : SAS_BECOME_UNRESTRICTED));
}

static void
middleware_go_back(Around *a, const SasRights *before)
{
	middleware_change_to(a, before->user);
	sas_work_go_back(before);
}

/* Opens the level of the next of the chain. */
static void
middleware_enter(Around *a)
{
	middleware_become(a, &a->levels[a->open], middleware_owner(a, middleware_nth(a, a->open)));
	a->open++;
}

static void
middleware_leave(Around *a)
{
	middleware_go_back(a, &a->levels[--a->open]);
}

/* Calls functions with the rights that hold now. */
static Jsonb *
middleware_call(Around *a, const char *names, Jsonb *input)
{
	List	   *functions = sas_work_callables(names, GetUserId());

	a->ran |= GetUserId() == a->owner;
	if (!a->in_worker && GetUserId() != a->owner && functions != NIL)
		return sas_work_call_beside(linitial_oid(functions), input, CurrentMemoryContext);
	return sas_work_call_all(functions, input, CurrentMemoryContext);
}

/* Calls the before or after of a middleware, whose level is open; what it answered, NULL when there is none. */
static Jsonb *
middleware_ask(Around *a, int n, const char *which, ArrayType *keys)
{
	Jsonb	   *middleware = middleware_nth(a, n);
	char	   *function = sas_work_json_string(middleware, which);
	char	   *name = sas_work_json_string(middleware, "name");
	Jsonb	   *told;

	if (function == NULL || name == NULL)
		return NULL;
	told = middleware_with(middleware_with(a->context, "middleware", middleware_member(middleware, "name")), "request", a->request);
	if (a->response != NULL)
		told = middleware_with(told, "response", a->response);
	return sas_work_middleware_answer(name, middleware_call(a, function, told), keys);
}

/* The levels of those inside of which the call is stay open. */
static void
middleware_go_in(Around *a)
{
	ArrayType  *keys = middleware_texts("request", "response");

	while (a->open < a->inside)
	{
		Jsonb	   *answer;
		Jsonb	   *request;

		middleware_enter(a);
		answer = middleware_ask(a, a->open - 1, "before", keys);
		request = middleware_member(answer, "request");
		if (request != NULL)
			a->request = request;
		a->response = middleware_member(answer, "response");
		if (a->response != NULL)
		{
			middleware_leave(a);
			a->inside = a->open;
		}
	}
}

/* The functions of the step, as the owner of the run. */
static void
middleware_call_step(Around *a, const char *names)
{
	SasRights	before;

	middleware_become(a, &before, a->owner);
	a->response = middleware_call(a, names, a->request);
	middleware_go_back(a, &before);
}

static Jsonb *
middleware_go_out(Around *a)
{
	ArrayType  *keys = middleware_texts("response", NULL);

	while (a->open > 0)
	{
		Jsonb	   *response = middleware_member(middleware_ask(a, a->open - 1, "after", keys), "response");

		if (response != NULL)
			a->response = response;
		middleware_leave(a);
	}
	return a->response;
}

/* The result of one way, or of both. */
static Jsonb *
middleware_pass(Around *a, Jsonb *input)
{
	JsonbValue	function;

	if (a->response != NULL)
	{
		while (a->open < a->inside)
			middleware_enter(a);
		return middleware_go_out(a);
	}
	middleware_go_in(a);
	if (sas_work_json_member(input, "function", &function))
	{
		char	   *names = sas_work_json_text(&function);

		if (a->response == NULL)
			middleware_call_step(a, names ? names : "");
		return middleware_go_out(a);
	}
	if (a->response != NULL)
		return middleware_object_of("response", middleware_go_out(a));
	while (a->open > 0)
		middleware_leave(a);
	return middleware_object_of("request", a->request);
}

Jsonb *
sas_work_through_middleware(Oid owner, Jsonb *input, bool in_worker, MemoryContext context)
{
	Around		a = {owner, middleware_member(input, "chain"), middleware_member(input, "context"), middleware_member(input, "request"), middleware_member(input, "response")};
	Jsonb	   *output;
	MemoryContext old;

	if (a.chain == NULL || !JB_ROOT_IS_ARRAY(a.chain) || a.context == NULL || !JB_ROOT_IS_OBJECT(a.context) || a.request == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("this is no call with middleware around it")));
	a.in_worker = in_worker;
	a.restricted = InSecurityRestrictedOperation();
	a.inside = JB_ROOT_COUNT(a.chain);
	a.levels = palloc(sizeof(SasRights) * a.inside);
	output = middleware_pass(&a, input);
	old = MemoryContextSwitchTo(context);
	output = DatumGetJsonbPCopy(JsonbPGetDatum(output));
	MemoryContextSwitchTo(old);
	return output;
}
