/* SPDX-License-Identifier: PostgreSQL */
/*
 * callable.c: functions of users by their names, whether a role may call them,
 * and how one is called.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "base/trust.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "work/callable.h"
#include "work/sql_function.h"

/* What callable_find() has found; all is forgotten when a function, schema, role, membership or database changes. */
typedef struct CachedCallable
{
	char		name[NAMEDATALEN * 2];
	Oid			role;
	Oid			function;		/* InvalidOid: the entry is empty */
} CachedCallable;

static CachedCallable callable_cache[64];

static void
callable_forget(Datum arg, int cache, uint32 hash)
{
	memset(callable_cache, 0, sizeof(callable_cache));
}

/* The function by its name; else the reason why this role cannot call it, and the SQLSTATE. */
static const char *
callable_look_up(const char *name, Oid role, Oid *function, int *sqlstate)
{
	char	   *signature = psprintf("%s(pg_catalog.jsonb)", name);
	LOCAL_FCINFO(fcinfo, 1);
	Datum		found;
	Datum		execute = CStringGetTextDatum("EXECUTE");
	Datum		usage = CStringGetTextDatum("USAGE");

	*sqlstate = ERRCODE_UNDEFINED_OBJECT;
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		return "the owner of the run no longer exists";
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(signature);
	fcinfo->args[0].isnull = false;
	found = to_regprocedure(fcinfo);
	*sqlstate = ERRCODE_UNDEFINED_FUNCTION;
	if (fcinfo->isnull)
		return psprintf("function %s does not exist", signature);
	*function = DatumGetObjectId(found);
	*sqlstate = ERRCODE_INVALID_FUNCTION_DEFINITION;
	if ((get_func_rettype(*function) != JSONBOID && get_func_rettype(*function) != VOIDOID) || get_func_retset(*function))
		return psprintf("function %s does not return jsonb", signature);
	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	if (!DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(role), ObjectIdGetDatum(*function), execute)) ||
		!DatumGetBool(DirectFunctionCall3(has_schema_privilege_id_id, ObjectIdGetDatum(role),
										  ObjectIdGetDatum(get_func_namespace(*function)), usage)))
		return psprintf("permission denied for function %s", signature);
	return NULL;
}

/* Why a superuser does not call it, which each call asks; NULL: it does. */
static const char *
callable_distrust(const char *name, Oid role, Oid function, int *sqlstate)
{
	const char *distrust = superuser_arg(role) ? sas_base_function_distrust(function, role) : NULL;

	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	return distrust == NULL ? NULL : psprintf("function %s(pg_catalog.jsonb) %s, and the owner of the run is one", name, distrust);
}

/* The function by its name, as callable_look_up() finds it, for names that come again and again. */
static const char *
callable_find(const char *name, Oid role, Oid *function, int *sqlstate)
{
	static bool listens = false;
	size_t		length = strlen(name);
	CachedCallable *cached = &callable_cache[(hash_bytes((const unsigned char *) name, length) ^ role) % lengthof(callable_cache)];
	const char *objection;

	if (!listens)
	{
		CacheRegisterSyscacheCallback(PROCOID, callable_forget, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, callable_forget, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, callable_forget, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, callable_forget, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, callable_forget, (Datum) 0);
		listens = true;
	}
	AcceptInvalidationMessages();
	*function = cached->function;
	if (OidIsValid(cached->function) && cached->role == role && strcmp(cached->name, name) == 0)
		return callable_distrust(name, role, *function, sqlstate);
	objection = callable_look_up(name, role, function, sqlstate);
	if (objection == NULL && length < sizeof(cached->name))
	{
		strlcpy(cached->name, name, sizeof(cached->name));
		cached->role = role;
		cached->function = *function;
	}
	if (objection == NULL)
		objection = callable_distrust(name, role, *function, sqlstate);
	return objection;
}

Oid
sas_work_callable(const char *name, Oid role)
{
	int			sqlstate;
	Oid			function;
	const char *objection = callable_find(name, role, &function, &sqlstate);

	if (objection != NULL)
		ereport(ERROR, (errcode(sqlstate), errmsg_internal("%s", objection)));
	return function;
}

List *
sas_work_callables(const char *names, Oid role)
{
	char	   *rest = pstrdup(names);
	char	   *name;
	List	   *functions = NIL;

	while ((name = strsep(&rest, "\n")) != NULL)
		if (*name != '\0')
			functions = lappend_oid(functions, sas_work_callable(name, role));
	return functions;
}

bool
sas_work_may_call(Oid role, const char *function)
{
	int			sqlstate;
	Oid			oid;

	return callable_find(function, role, &oid, &sqlstate) == NULL;
}

/*
 * The search_path of a user's function. One with a bound body needs none, and a
 * superuser may call it wherever it is; what it calls finds nothing of others.
 */
static void
callable_set_search_path(Oid namespace)
{
	bool		misleads = superuser() && sas_base_schema_misleads(namespace);
	char	   *path = misleads ? "pg_catalog, pg_temp" :
		psprintf("pg_catalog, %s, pg_temp", quote_identifier(get_namespace_name(namespace)));

	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static Jsonb *
callable_copy_result(Datum result, bool isnull, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *copy;

	if (isnull)
	{
		JsonbValue	null = {.type = jbvNull};

		copy = JsonbValueToJsonb(&null);
	}
	else
		copy = DatumGetJsonbPCopy(result);
	MemoryContextSwitchTo(old);
	return copy;
}

Jsonb *
sas_work_call(Oid function, Jsonb *input, MemoryContext context)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;
	Datum		result;
	bool		isnull;

	callable_set_search_path(get_func_namespace(function));
	/* as everywhere: a strict function is not called with a null */
	if (input == NULL && func_strict(function))
		return callable_copy_result((Datum) 0, true, context);
	if (sas_work_sql_evaluate(function, input, &result, &isnull))
		return callable_copy_result(result, isnull, context);
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = JsonbPGetDatum(input);
	fcinfo->args[0].isnull = input == NULL;
	result = FunctionCallInvoke(fcinfo);
	/* finalize, hooks and items need no result: then void counts as null */
	return callable_copy_result(result, fcinfo->isnull || get_func_rettype(function) == VOIDOID, context);
}

bool		sas_work_is_beside = false;

Jsonb *
sas_work_call_beside(Oid function, Jsonb *input, MemoryContext context)
{
	bool		outer = sas_work_is_beside;
	Jsonb	   *volatile output = NULL;

	sas_work_is_beside = true;
	PG_TRY();
	{
		output = sas_work_call(function, input, context);
	}
	PG_FINALLY();
	{
		sas_work_is_beside = outer;
	}
	PG_END_TRY();
	return output;
}

Jsonb *
sas_work_call_all(List *functions, Jsonb *input, MemoryContext context)
{
	Jsonb	   *output = callable_copy_result((Datum) 0, true, context);
	ListCell   *lc;

	foreach(lc, functions)
	{
		output = sas_work_call(lfirst_oid(lc), input, context);
		CommandCounterIncrement();
		UpdateActiveSnapshotCommandId();
	}
	return output;
}
