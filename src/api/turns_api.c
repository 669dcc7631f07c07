/* SPDX-License-Identifier: PostgreSQL */
/*
 * turns_api.c: the SQL-callable side of the lines of owners in
 * wake/low_water.h.  Internal: see sql/state/turns.sql.
 */
#include "postgres.h"

#include "api/row.h"
#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "limits/owners.h"
#include "store/ready_claim.h"
#include "store/ready_scan.h"
#include "store/ready_walk.h"
#include "wake/low_water.h"

PG_FUNCTION_INFO_V1(sas_api_unknown_lines);
PG_FUNCTION_INFO_V1(sas_api_add_owner);
PG_FUNCTION_INFO_V1(sas_api_found_owners);
PG_FUNCTION_INFO_V1(sas_api_next_owners);
PG_FUNCTION_INFO_V1(sas_api_share_out);
PG_FUNCTION_INFO_V1(sas_api_take_shares);
PG_FUNCTION_INFO_V1(sas_api_owner_room);
PG_FUNCTION_INFO_V1(sas_api_forget_owners);
PG_FUNCTION_INFO_V1(sas_api_first_ready);
PG_FUNCTION_INFO_V1(sas_api_urgent_shares);
PG_FUNCTION_INFO_V1(sas_api_first_steps);
PG_FUNCTION_INFO_V1(sas_api_claim_rows);
PG_FUNCTION_INFO_V1(sas_api_lock_ready);
PG_FUNCTION_INFO_V1(sas_api_begin_taking);
PG_FUNCTION_INFO_V1(sas_api_taking_was_cut);
PG_FUNCTION_INFO_V1(sas_api_some_ready);
PG_FUNCTION_INFO_V1(sas_api_begin_walks);
PG_FUNCTION_INFO_V1(sas_api_walk_from);
PG_FUNCTION_INFO_V1(sas_api_walk_to);
PG_FUNCTION_INFO_V1(sas_api_walk_is_open);

/* How far this session has gone along the lines that it asked about last. */
static int *turns_api_left = NULL;
static int	turns_api_n = 0;

static int
turns_api_read(FunctionCallInfo fcinfo, int argument, Datum **values)
{
	int			n;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(argument), values, NULL, &n);
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
	PG_RETURN_ARRAYTYPE_P(sas_base_array(ns, unknown, INT4OID));
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

static Datum
turns_api_int_array(Datum *values, int n)
{
	return PointerGetDatum(sas_base_array(values, n, INT4OID));
}

/* How far the line at that position is: a place for each of the lines of this call. */
static void
turns_api_room(int n)
{
	if (n <= turns_api_n)
		return;
	turns_api_left = turns_api_left == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(int) * n) : repalloc(turns_api_left, sizeof(int) * n);
	turns_api_n = n;
}

/* _sas.next_owners(kind, ns, quantities, until, further) */
Datum
sas_api_next_owners(PG_FUNCTION_ARGS)
{
	TimestampTz until = PG_GETARG_TIMESTAMPTZ(3);
	bool		further = PG_GETARG_BOOL(4);
	Datum	   *ns;
	Datum	   *quantities;
	int			n = Min(turns_api_read(fcinfo, 1, &ns), turns_api_read(fcinfo, 2, &quantities));
	int			room = n;
	int			found = 0;
	int			n_remaining = 0;
	Datum	   *lines = palloc(sizeof(Datum) * Max(1, room));
	Datum	   *owners = palloc(sizeof(Datum) * Max(1, room));
	Datum	   *marks = palloc(sizeof(Datum) * Max(1, room));
	Datum	   *remaining = palloc(sizeof(Datum) * Max(1, n));
	Datum		values[4];

	turns_api_room(n);
	for (int i = 0; i < n; i++)
	{
		SasOwnerTurns turns = {.left = further ? turns_api_left[i] : -1};

		/* further: only lines from which more is still wanted */
		if (turns.left == 0 || (further && DatumGetInt32(quantities[i]) <= 0))
			continue;
		sas_wake_line_next_owners(turns_api_kind(fcinfo), DatumGetInt32(ns[i]), Max(1, DatumGetInt32(quantities[i])), until, &turns);
		turns_api_left[i] = turns.left;
		if (turns.left > 0)
			remaining[n_remaining++] = ns[i];
		if (found + turns.n > room)
		{
			room = Max(2 * room, found + turns.n);
			lines = repalloc(lines, sizeof(Datum) * room);
			owners = repalloc(owners, sizeof(Datum) * room);
			marks = repalloc(marks, sizeof(Datum) * room);
		}
		for (int k = 0; k < turns.n; k++, found++)
		{
			lines[found] = ns[i];
			owners[found] = ObjectIdGetDatum(turns.owners[k]);
			marks[found] = TimestampTzGetDatum(turns.marks[k]);
		}
	}
	values[0] = turns_api_int_array(lines, found);
	values[1] = PointerGetDatum(sas_base_array(owners, found, OIDOID));
	values[2] = PointerGetDatum(sas_base_array(marks, found, TIMESTAMPTZOID));
	values[3] = turns_api_int_array(remaining, n_remaining);
	return sas_api_row(fcinfo, values, (bool[4]) {false});
}

/* _sas.share_out(ns, quantities, lines) */
Datum
sas_api_share_out(PG_FUNCTION_ARGS)
{
	Datum	   *ns;
	Datum	   *quantities;
	Datum	   *lines;
	int			n = Min(turns_api_read(fcinfo, 0, &ns), turns_api_read(fcinfo, 1, &quantities));
	int			n_owners = turns_api_read(fcinfo, 2, &lines);
	int		   *owners = palloc0(sizeof(int) * Max(1, n));
	int		   *turn = palloc0(sizeof(int) * Max(1, n));
	int		   *at = palloc(sizeof(int) * Max(1, n_owners));
	Datum	   *shared = palloc(sizeof(Datum) * Max(1, n));
	int			n_shared = 0;
	Datum		values[2];

	/* the owners of one line are adjacent: the search begins where the last one ended */
	for (int j = 0, i = 0; j < n_owners; j++)
	{
		int			tried = 0;

		while (tried < n && ns[i] != lines[j])
		{
			i = (i + 1) % n;
			tried++;
		}
		if (tried == n)
			elog(ERROR, "line %d is not among those that are shared out", DatumGetInt32(lines[j]));
		at[j] = i;
		if (++owners[i] == 2)
			shared[n_shared++] = ns[i];
	}
	for (int j = 0; j < n_owners; j++)
	{
		int			i = at[j];
		int			quantity = DatumGetInt32(quantities[i]);

		lines[j] = Int32GetDatum(quantity / owners[i] + (turn[i]++ < quantity % owners[i]));
	}
	values[0] = turns_api_int_array(lines, n_owners);
	values[1] = turns_api_int_array(shared, n_shared);
	return sas_api_row(fcinfo, values, (bool[2]) {false, n_shared == 0});
}

/* _sas.take_shares(lanes, owners, shares) */
Datum
sas_api_take_shares(PG_FUNCTION_ARGS)
{
	ArrayType  *of_shares = PG_GETARG_ARRAYTYPE_P(2);
	Datum	   *lanes;
	Datum	   *owners;
	Datum	   *shares;
	int			n = turns_api_read(fcinfo, 0, &lanes);
	int			n_owners;
	bool		taken = false;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(1), &owners, NULL, &n_owners);
	n = Min(Min(n, n_owners), turns_api_read(fcinfo, 2, &shares));
	for (int i = 0; i < n; i++)
	{
		int			wanted = DatumGetInt32(shares[i]);
		int			got = DatumGetInt32(lanes[i]) <= 0 ? wanted :
			sas_limits_owner_take(DatumGetInt32(lanes[i]), DatumGetObjectId(owners[i]), wanted);

		taken |= got != wanted;
		shares[i] = Int32GetDatum(got);
	}
	if (!taken)
		PG_RETURN_ARRAYTYPE_P(of_shares);
	PG_RETURN_DATUM(turns_api_int_array(shares, n));
}

/* _sas.owner_room(slots, taken, of_owner) */
Datum
sas_api_owner_room(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_limits_owner_room(PG_GETARG_INT32(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2)));
}

/* _sas.forget_owners(kind, n) */
Datum
sas_api_forget_owners(PG_FUNCTION_ARGS)
{
	sas_wake_line_forget_owners(turns_api_kind(fcinfo), PG_GETARG_INT32(1));
	PG_RETURN_VOID();
}

/* _sas.first_ready(lane, owner, mark) */
Datum
sas_api_first_ready(PG_FUNCTION_ARGS)
{
	TimestampTz first = sas_store_first_ready(PG_GETARG_INT32(0), PG_GETARG_OID(1), PG_GETARG_TIMESTAMPTZ(2));

	if (first == DT_NOEND)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(first);
}

/* Of arrays of lanes, owners, shares and marks. */
static SasReadyShare *
turns_api_shares(FunctionCallInfo fcinfo, int *n)
{
	Datum	   *columns[4];
	SasReadyShare *shares;

	*n = PG_INT32_MAX;
	for (int i = 0; i < 4; i++)
		*n = Min(*n, turns_api_read(fcinfo, i, &columns[i]));
	shares = palloc(sizeof(SasReadyShare) * Max(1, *n));
	for (int i = 0; i < *n; i++)
	{
		shares[i].lane = DatumGetInt32(columns[0][i]);
		shares[i].owner = DatumGetObjectId(columns[1][i]);
		shares[i].share = DatumGetInt32(columns[2][i]);
		shares[i].mark = DatumGetTimestampTz(columns[3][i]);
	}
	return shares;
}

/* _sas.urgent_shares(lanes, owners, shares, marks) */
Datum
sas_api_urgent_shares(PG_FUNCTION_ARGS)
{
	int			n;
	SasReadyShare *shares = turns_api_shares(fcinfo, &n);
	Datum	   *urgent = palloc(sizeof(Datum) * Max(1, n));

	for (int i = 0; i < n; i++)
		urgent[i] = Int32GetDatum(sas_store_urgent_share(shares[i].lane, shares[i].owner, shares[i].share, shares[i].mark));
	PG_RETURN_ARRAYTYPE_P(sas_base_array(urgent, n, INT4OID));
}

static bool
turns_api_contains(const Datum *oids, int n, Oid oid)
{
	for (int i = 0; i < n; i++)
		if (DatumGetObjectId(oids[i]) == oid)
			return true;
	return false;
}

/* _sas.first_steps(lanes, owners, marks, left_out): of those that have any, with the ranks of these */
Datum
sas_api_first_steps(PG_FUNCTION_ARGS)
{
	Datum	   *lanes;
	Datum	   *owners;
	Datum	   *marks;
	Datum	   *left_out;
	int			n_left_out = turns_api_read(fcinfo, 3, &left_out);
	int			n = Min(turns_api_read(fcinfo, 0, &lanes), Min(turns_api_read(fcinfo, 1, &owners), turns_api_read(fcinfo, 2, &marks)));
	int			found = 0;
	Datum		values[3];

	for (int i = 0; i < n; i++)
	{
		int			lane = DatumGetInt32(lanes[i]);
		Oid			owner = DatumGetObjectId(owners[i]);
		TimestampTz first = sas_store_first_ready(lane, owner, DatumGetTimestampTz(marks[i]));

		sas_wake_low_water_raise(SAS_LOW_WATER_LANE, lane, owner, first);
		if (first == DT_NOEND || turns_api_contains(left_out, n_left_out, owner))
			continue;
		lanes[found] = lanes[i];
		owners[found] = owners[i];
		marks[found++] = TimestampTzGetDatum(first);
	}
	values[0] = PointerGetDatum(sas_base_array(lanes, found, INT4OID));
	values[1] = PointerGetDatum(sas_base_array(owners, found, OIDOID));
	values[2] = PointerGetDatum(sas_base_array(marks, found, TIMESTAMPTZOID));
	return sas_api_row(fcinfo, values, (bool[3]) {false});
}

/* _sas.claim_rows(lanes, owners, shares, marks) */
Datum
sas_api_claim_rows(PG_FUNCTION_ARGS)
{
	int			n;
	SasReadyShare *shares = turns_api_shares(fcinfo, &n);
	SasReadyRules rules = {0};
	ItemPointerData *places;

	InitMaterializedSRF(fcinfo, 0);
	rules.rows = ((ReturnSetInfo *) fcinfo->resultinfo)->setResult;
	(void) sas_store_lock_ready(shares, n, &rules, &places);
	return (Datum) 0;
}

/* _sas.lock_ready(lanes, owners, shares, marks, left_out, locks_runs) */
Datum
sas_api_lock_ready(PG_FUNCTION_ARGS)
{
	Datum	   *left_out;
	int64	   *ids;
	int			n;
	SasReadyRules rules = {.locks_runs = PG_GETARG_BOOL(5)};
	SasReadyShare *shares = turns_api_shares(fcinfo, &n);
	ItemPointerData *places;
	Datum	   *values;

	rules.n_left_out = turns_api_read(fcinfo, 4, &left_out);
	ids = palloc(sizeof(int64) * Max(1, rules.n_left_out));
	for (int i = 0; i < rules.n_left_out; i++)
		ids[i] = DatumGetInt64(left_out[i]);
	qsort(ids, rules.n_left_out, sizeof(int64), sas_base_compare_int64);
	rules.left_out = ids;
	n = sas_store_lock_ready(shares, n, &rules, &places);
	values = palloc(sizeof(Datum) * Max(1, n));
	for (int i = 0; i < n; i++)
		values[i] = PointerGetDatum(&places[i]);
	PG_RETURN_ARRAYTYPE_P(sas_base_array(values, n, TIDOID));
}

/* _sas.begin_taking(first) */
Datum
sas_api_begin_taking(PG_FUNCTION_ARGS)
{
	static uint32 looks = 0;

	looks += PG_GETARG_BOOL(0);
	sas_store_ready_begin(looks);
	PG_RETURN_VOID();
}

/* _sas.taking_was_cut(lane) */
Datum
sas_api_taking_was_cut(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_ready_was_cut(PG_GETARG_INT32(0)));
}

/* _sas.some_ready(first, last, most) */
Datum
sas_api_some_ready(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_store_some_ready(PG_GETARG_INT32(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2)));
}

/* _sas.begin_walks() */
Datum
sas_api_begin_walks(PG_FUNCTION_ARGS)
{
	sas_store_ready_walks_begin();
	PG_RETURN_VOID();
}

/* _sas.walk_from(lane, owner) */
Datum
sas_api_walk_from(PG_FUNCTION_ARGS)
{
	SasReadyPlace at = {DT_NOBEGIN, PG_INT64_MIN};
	Datum		values[2];

	(void) sas_store_ready_walk_from(PG_GETARG_INT32(0), PG_GETARG_OID(1), &at);
	values[0] = TimestampTzGetDatum(at.rank);
	values[1] = Int64GetDatum(at.run_id);
	return sas_api_row(fcinfo, values, (bool[2]) {false});
}

/* _sas.walk_to(lane, owner, rank, run_id, ended) */
Datum
sas_api_walk_to(PG_FUNCTION_ARGS)
{
	SasReadyPlace at = {PG_GETARG_TIMESTAMPTZ(2), PG_GETARG_INT64(3)};

	sas_store_ready_walk_to(PG_GETARG_INT32(0), PG_GETARG_OID(1), &at, PG_GETARG_BOOL(4));
	PG_RETURN_VOID();
}

/* _sas.walk_is_open() */
Datum
sas_api_walk_is_open(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_ready_walk_is_open());
}
