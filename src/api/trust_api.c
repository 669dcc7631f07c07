/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust_api.c: the SQL-callable side of base/trust.h.  Internal: see sql/base/native.sql.
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/trust.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sas_api_function_distrust);
PG_FUNCTION_INFO_V1(sas_api_table_distrust);
PG_FUNCTION_INFO_V1(sas_api_is_superuser);
PG_FUNCTION_INFO_V1(sas_api_may_stand_for);
PG_FUNCTION_INFO_V1(sas_api_stands_for);

Datum
sas_api_function_distrust(PG_FUNCTION_ARGS)
{
	const char *distrust = sas_base_function_distrust(PG_GETARG_OID(0), PG_GETARG_OID(1));

	if (distrust == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(distrust));
}

Datum
sas_api_table_distrust(PG_FUNCTION_ARGS)
{
	const char *distrust = sas_base_table_distrust(PG_GETARG_OID(0));

	if (distrust == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(distrust));
}

/* _sas.is_superuser(role) */
Datum
sas_api_is_superuser(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!PG_ARGISNULL(0) && superuser_arg(PG_GETARG_OID(0)));
}

Datum
sas_api_may_stand_for(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_compat_may_stand_for(PG_GETARG_OID(0), PG_GETARG_OID(1)));
}

Datum
sas_api_stands_for(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_compat_may_stand_for(GetUserId(), PG_GETARG_OID(0)));
}
