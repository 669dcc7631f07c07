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

PG_FUNCTION_INFO_V1(sas_api_unknown_lines);
PG_FUNCTION_INFO_V1(sas_api_add_owner);
PG_FUNCTION_INFO_V1(sas_api_found_owners);
PG_FUNCTION_INFO_V1(sas_api_next_owners);
PG_FUNCTION_INFO_V1(sas_api_forget_owners);

/* How far this session has gone along the lines that it asked about last. */
static int *turns_api_left = NULL;
static int	turns_api_n = 0;

static int
turns_api_read(FunctionCallInfo fcinfo, int argument, Datum **values)
{
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), INT4OID, sizeof(int32), true, TYPALIGN_INT, values, NULL, &n);
	return n;
}

static SasLowWaterKind
turns_api_kind(FunctionCallInfo fcinfo)
{
	char		kind = PG_GETARG_CHAR(0);

	if (kind != SAS_LOW_WATER_LANE && kind != SAS_LOW_WATER_DUE)
		elog(ERROR, "nobody is in line for kind \"%c\"", kind);
	return kind;
}

/* _sas.unknown_lines(kind, ns): those where an owner with rows may not be in line */
Datum
sas_api_unknown_lines(PG_FUNCTION_ARGS)
{
	Datum	   *ns;
	int			n = turns_api_read(fcinfo, 1, &ns);
	int			unknown = 0;

	sas_wake_lines_begin_finding();
	for (int i = 0; i < n; i++)
		if (sas_wake_line_is_unknown(turns_api_kind(fcinfo), DatumGetInt32(ns[i])))
			ns[unknown++] = ns[i];
	PG_RETURN_ARRAYTYPE_P(construct_array(ns, unknown, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/* _sas.add_owner(kind, n, owner, first): this owner has a row there */
Datum
sas_api_add_owner(PG_FUNCTION_ARGS)
{
	sas_wake_line_add_owner(turns_api_kind(fcinfo), PG_GETARG_INT32(1), PG_GETARG_OID(2), PG_GETARG_TIMESTAMPTZ(3));
	PG_RETURN_VOID();
}

/* _sas.found_owners(kind, ns): all owners with rows there have been added */
Datum
sas_api_found_owners(PG_FUNCTION_ARGS)
{
	Datum	   *ns;
	int			n = turns_api_read(fcinfo, 1, &ns);

	for (int i = 0; i < n; i++)
		sas_wake_line_found_owners(turns_api_kind(fcinfo), DatumGetInt32(ns[i]));
	PG_RETURN_VOID();
}

/* _sas.next_owners(kind, ns, quantities, until, further) */
Datum
sas_api_next_owners(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz until = PG_GETARG_TIMESTAMPTZ(3);
	bool		further = PG_GETARG_BOOL(4);
	Datum	   *ns;
	Datum	   *quantities;
	int			n = Min(turns_api_read(fcinfo, 1, &ns), turns_api_read(fcinfo, 2, &quantities));

	InitMaterializedSRF(fcinfo, 0);
	if (n > turns_api_n)
	{
		turns_api_left = turns_api_left == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(int) * n) : repalloc(turns_api_left, sizeof(int) * n);
		turns_api_n = n;
	}
	for (int i = 0; i < n; i++)
	{
		SasOwnerTurns turns = {.left = further ? turns_api_left[i] : -1};

		/* further: as many as are still wanted */
		if (turns.left == 0 || (further && DatumGetInt32(quantities[i]) <= 0))
			continue;
		sas_wake_line_next_owners(turns_api_kind(fcinfo), DatumGetInt32(ns[i]), Max(1, DatumGetInt32(quantities[i])), until, &turns);
		turns_api_left[i] = turns.left;
		for (int k = 0; k < turns.n; k++)
		{
			Datum		values[4] = {Int32GetDatum(i + 1), ObjectIdGetDatum(turns.owners[k]), TimestampTzGetDatum(turns.marks[k]), Int32GetDatum(turns.left)};

			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, (bool[4]) {false});
		}
	}
	return (Datum) 0;
}

/* _sas.forget_owners(kind, n) */
Datum
sas_api_forget_owners(PG_FUNCTION_ARGS)
{
	sas_wake_line_forget_owners(turns_api_kind(fcinfo), PG_GETARG_INT32(1));
	PG_RETURN_VOID();
}
