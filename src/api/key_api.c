/* SPDX-License-Identifier: PostgreSQL */
/*
 * key_api.c: the SQL-callable side of the places of keys in a cluster.
 */
#include "postgres.h"

#include "api/row.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "store/cluster.h"

PG_FUNCTION_INFO_V1(sas_api_key_place);
PG_FUNCTION_INFO_V1(sas_api_placements);

/* _sas.key_place(workflow, key) */
Datum
sas_api_key_place(PG_FUNCTION_ARGS)
{
	SasKeyPlace place = sas_store_key_place(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)), false);

	return sas_api_row(fcinfo, (Datum[]) {Int32GetDatum(place.node), BoolGetDatum(place.moved)}, (bool[]) {!place.follows, !place.follows});
}

/* _sas.placements(follows) */
Datum
sas_api_placements(PG_FUNCTION_ARGS)
{
	Jsonb	   *placements = sas_store_placements(PG_GETARG_OID(0));

	if (placements == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(placements);
}
