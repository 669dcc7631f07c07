/* SPDX-License-Identifier: PostgreSQL */
/*
 * trust_api.c: the SQL-callable side of base/trust.h.  Internal: see sql/base/native.sql.
 */
#include "postgres.h"

#include "base/trust.h"
#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sas_api_function_distrust);
PG_FUNCTION_INFO_V1(sas_api_table_distrust);

Datum
sas_api_function_distrust(PG_FUNCTION_ARGS)
{
	const char *distrust = sas_base_function_distrust(PG_GETARG_OID(0));

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
