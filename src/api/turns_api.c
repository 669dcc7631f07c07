/* SPDX-License-Identifier: PostgreSQL */
/*
 * turns_api.c: the SQL-callable side of the lines of owners in
 * wake/low_water.h.  Internal: see sql/state/turns.sql.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "wake/low_water.h"

PG_FUNCTION_INFO_V1(sas_api_unknown_lanes);
PG_FUNCTION_INFO_V1(sas_api_add_owner);
PG_FUNCTION_INFO_V1(sas_api_found_owners);
PG_FUNCTION_INFO_V1(sas_api_next_owners);
PG_FUNCTION_INFO_V1(sas_api_forget_owners);

/* How far this session has gone along the lines of the lanes that it asked about last. */
static int *turns_api_left = NULL;
static int	turns_api_n = 0;

static int
turns_api_read(FunctionCallInfo fcinfo, int argument, Datum **values)
{
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), INT4OID, sizeof(int32), true, TYPALIGN_INT, values, NULL, &n);
	return n;
}

/* _sas.unknown_lanes(lanes): those where an owner with steps may not be in line */
Datum
sas_api_unknown_lanes(PG_FUNCTION_ARGS)
{
	Datum	   *lanes;
	int			n = turns_api_read(fcinfo, 0, &lanes);
	int			unknown = 0;

	sas_wake_lanes_begin_finding();
	for (int i = 0; i < n; i++)
		if (sas_wake_lane_is_unknown(DatumGetInt32(lanes[i])))
			lanes[unknown++] = lanes[i];
	PG_RETURN_ARRAYTYPE_P(construct_array(lanes, unknown, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/* _sas.add_owner(lane, owner, first): this owner has a step there */
Datum
sas_api_add_owner(PG_FUNCTION_ARGS)
{
	sas_wake_lane_add_owner(PG_GETARG_INT32(0), PG_GETARG_OID(1), PG_GETARG_TIMESTAMPTZ(2));
	PG_RETURN_VOID();
}

/* _sas.found_owners(lanes): all owners with steps there have been added */
Datum
sas_api_found_owners(PG_FUNCTION_ARGS)
{
	Datum	   *lanes;
	int			n = turns_api_read(fcinfo, 0, &lanes);

	for (int i = 0; i < n; i++)
		sas_wake_lane_found_owners(DatumGetInt32(lanes[i]));
	PG_RETURN_VOID();
}

/* _sas.next_owners(lanes, quantities, further) */
Datum
sas_api_next_owners(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		further = PG_GETARG_BOOL(2);
	Datum	   *lanes;
	Datum	   *quantities;
	int			n = Min(turns_api_read(fcinfo, 0, &lanes), turns_api_read(fcinfo, 1, &quantities));

	InitMaterializedSRF(fcinfo, 0);
	if (n > turns_api_n)
	{
		turns_api_left = turns_api_left == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(int) * n) : repalloc(turns_api_left, sizeof(int) * n);
		turns_api_n = n;
	}
	for (int i = 0; i < n; i++)
	{
		SasLaneTurns turns = {.left = further ? turns_api_left[i] : -1};

		/* further: as many as are still wanted */
		if (turns.left == 0 || (further && DatumGetInt32(quantities[i]) <= 0))
			continue;
		sas_wake_lane_next_owners(DatumGetInt32(lanes[i]), Max(1, DatumGetInt32(quantities[i])), &turns);
		turns_api_left[i] = turns.left;
		for (int k = 0; k < turns.n; k++)
		{
			Datum		values[4] = {Int32GetDatum(i + 1), ObjectIdGetDatum(turns.owners[k]), TimestampTzGetDatum(turns.marks[k]), Int32GetDatum(turns.left)};

			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, (bool[4]) {false});
		}
	}
	return (Datum) 0;
}

/* _sas.forget_owners(lane) */
Datum
sas_api_forget_owners(PG_FUNCTION_ARGS)
{
	sas_wake_lane_forget_owners(PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}
