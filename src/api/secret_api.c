/* SPDX-License-Identifier: PostgreSQL */
/*
 * secret_api.c: the SQL-callable side of base/secret_file.h.  Internal: see sql/definition/secret.sql.
 */
#include "postgres.h"

#include "api/row.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/elog.h"

#include "base/secret_file.h"

PG_FUNCTION_INFO_V1(sas_api_read_secret_file);
PG_FUNCTION_INFO_V1(sas_api_secret_file_stamp);

Datum
sas_api_read_secret_file(PG_FUNCTION_ARGS)
{
	Datum		values[3] = {0};
	bool		nulls[3] = {true, true, true};
	const char *problem;
	int			sqlerrcode;
	char	   *value = sas_base_secret_file_read(text_to_cstring(PG_GETARG_TEXT_PP(0)), &problem, &sqlerrcode);

	if (value != NULL)
	{
		values[0] = CStringGetTextDatum(value);
		nulls[0] = false;
	}
	else
	{
		values[1] = CStringGetTextDatum(problem);
		values[2] = CStringGetTextDatum(unpack_sql_state(sqlerrcode));
		nulls[1] = nulls[2] = false;
	}
	return sas_api_row(fcinfo, values, nulls);
}

Datum
sas_api_secret_file_stamp(PG_FUNCTION_ARGS)
{
	char		stamp[SAS_SECRET_STAMP_LEN];

	sas_base_secret_file_stamp(text_to_cstring(PG_GETARG_TEXT_PP(0)), stamp);
	PG_RETURN_TEXT_P(cstring_to_text(stamp));
}
