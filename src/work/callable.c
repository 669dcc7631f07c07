/* SPDX-License-Identifier: PostgreSQL */
/*
 * callable.c: functions of users by their names, and whether a role may call
 * them.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "work/callable.h"

/* What callable_find() has found; all is forgotten when a function, schema, role or membership changes. */
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
		return "the owner of the run does not exist any more";
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(signature);
	fcinfo->args[0].isnull = false;
	found = to_regprocedure(fcinfo);
	*sqlstate = ERRCODE_UNDEFINED_FUNCTION;
	if (fcinfo->isnull)
		return psprintf("function %s does not exist", signature);
	*function = DatumGetObjectId(found);
	*sqlstate = ERRCODE_INVALID_FUNCTION_DEFINITION;
	if (get_func_rettype(*function) != JSONBOID || get_func_retset(*function))
		return psprintf("function %s does not return one jsonb", signature);
	*sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	if (!DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(role), ObjectIdGetDatum(*function), execute)) ||
		!DatumGetBool(DirectFunctionCall3(has_schema_privilege_id_id, ObjectIdGetDatum(role),
										  ObjectIdGetDatum(get_func_namespace(*function)), usage)))
		return psprintf("permission denied for function %s", signature);
	return NULL;
}

/* The same, for names that come again and again. */
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
		listens = true;
	}
	AcceptInvalidationMessages();
	*function = cached->function;
	if (OidIsValid(cached->function) && cached->role == role && strcmp(cached->name, name) == 0)
		return NULL;
	objection = callable_look_up(name, role, function, sqlstate);
	if (objection == NULL && length < sizeof(cached->name))
	{
		strlcpy(cached->name, name, sizeof(cached->name));
		cached->role = role;
		cached->function = *function;
	}
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

bool
sas_work_may_call(Oid role, const char *function)
{
	int			sqlstate;
	Oid			oid;

	return callable_find(function, role, &oid, &sqlstate) == NULL;
}
