/* SPDX-License-Identifier: PostgreSQL */
/*
 * next_key_api.c: the SQL-callable side of store/next_key.h.  Internal: see
 * sql/base/role.sql and sql/inspect/find.sql.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/fmgroids.h"

#include "store/next_key.h"

PG_FUNCTION_INFO_V1(sas_api_next_run_owner);
PG_FUNCTION_INFO_V1(sas_api_next_run_version);
PG_FUNCTION_INFO_V1(sas_api_next_label_owner);

static Datum
next_key_api_find(FunctionCallInfo fcinfo, const SasKeySearch *search)
{
	Datum		found;

	if (!sas_store_next_key(search, &found))
		PG_RETURN_NULL();
	return found;
}

/* _sas.next_run_owner(after) */
Datum
sas_api_next_run_owner(PG_FUNCTION_ARGS)
{
	SasKeySearch search = {"run", "run_by_owner", 0, InvalidOid, 0, F_OIDGT, PG_GETARG_DATUM(0)};

	return next_key_api_find(fcinfo, &search);
}

/* _sas.next_run_version(owner, after) */
Datum
sas_api_next_run_version(PG_FUNCTION_ARGS)
{
	SasKeySearch search = {"run", "run_by_owner", 1, F_OIDEQ, PG_GETARG_DATUM(0), F_INT4GT, PG_GETARG_DATUM(1)};

	return next_key_api_find(fcinfo, &search);
}

/* _sas.next_label_owner(label, after) */
Datum
sas_api_next_label_owner(PG_FUNCTION_ARGS)
{
	SasKeySearch search = {"run_label", "run_label_pkey", 1, F_INT8EQ, PG_GETARG_DATUM(0), F_OIDGT, PG_GETARG_DATUM(1)};

	return next_key_api_find(fcinfo, &search);
}
