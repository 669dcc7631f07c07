/* SPDX-License-Identifier: PostgreSQL */
/*
 * place_api.c: where this database is, for sql/base/place.sql and native.sql.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "api/row.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/place.h"
#include "store/node.h"
#include "worker/lifecycle.h"

PG_FUNCTION_INFO_V1(sas_api_place);
PG_FUNCTION_INFO_V1(sas_api_probe);
PG_FUNCTION_INFO_V1(sas_api_id_base);

Datum
sas_api_place(PG_FUNCTION_ARGS)
{
	Datum		values[5];
	bool		nulls[5] = {false};

	values[0] = Int64GetDatum((int64) GetSystemIdentifier());
	values[1] = ObjectIdGetDatum(MyDatabaseId);
	values[2] = Int64GetDatum((int64) sas_base_place_timeline());
	values[3] = CStringGetTextDatum(sas_base_place_backup());
	values[4] = BoolGetDatum(sas_base_place_continues());
	return sas_api_row(fcinfo, values, nulls);
}

/* _sas.id_base() */
Datum
sas_api_id_base(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_store_id_base());
}

/* At commit the launcher looks at this database again. */
Datum
sas_api_probe(PG_FUNCTION_ARGS)
{
	sas_worker_lifecycle_probe();
	PG_RETURN_VOID();
}
