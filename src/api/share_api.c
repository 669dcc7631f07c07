/* SPDX-License-Identifier: PostgreSQL */
/*
 * share_api.c: the SQL-callable side of limits/shares.h.  Internal:
 * sql/flow/share.sql asks, sas.limits shows.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "api/row.h"
#include "base/array.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "limits/shares.h"

PG_FUNCTION_INFO_V1(sas_api_share_take);
PG_FUNCTION_INFO_V1(sas_api_give_share);
PG_FUNCTION_INFO_V1(sas_api_give_watches);
PG_FUNCTION_INFO_V1(sas_api_share_size);
PG_FUNCTION_INFO_V1(sas_api_spend_submits);
PG_FUNCTION_INFO_V1(sas_api_is_in_run);
PG_FUNCTION_INFO_V1(sas_api_share_generation);
PG_FUNCTION_INFO_V1(sas_api_forget_shares);
PG_FUNCTION_INFO_V1(sas_api_recounted_from);
PG_FUNCTION_INFO_V1(sas_api_settled_shares);
PG_FUNCTION_INFO_V1(sas_api_first_behind);
PG_FUNCTION_INFO_V1(sas_api_begin_part);
PG_FUNCTION_INFO_V1(sas_api_add_share);
PG_FUNCTION_INFO_V1(sas_api_end_part);
PG_FUNCTION_INFO_V1(sas_api_shares_counted_ago);
PG_FUNCTION_INFO_V1(sas_api_shares);

/* What an array says of that many kinds, which are in the order of SasShareKind. */
static void
share_api_read(ArrayType *array, int expected, int64 *values)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	sas_base_elements(array, &elements, &nulls, &n);
	if (n != expected)
		elog(ERROR, "expected %d numbers, not %d", expected, n);
	for (int k = 0; k < n; k++)
		values[k] = nulls[k] ? 0 : DatumGetInt64(elements[k]);
}

/* _sas.take_share(owner, more, most, generation, checks, run_id): (over, used) */
Datum
sas_api_share_take(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"open_runs", "children", "bytes", "watches"};
	int64		more[SAS_SHARE_KINDS];
	int64		most[SAS_SHARE_KINDS + 1];
	SasShareLimits limits;
	SasShareKind over = SAS_SHARE_OPEN_RUNS;
	int64		used = 0;
	SasShareAnswer answer;
	Datum		values[2];
	bool		nulls[2] = {false};

	if (PG_ARGISNULL(1))
		elog(ERROR, "expected %d numbers", SAS_SHARE_KINDS);
	share_api_read(PG_GETARG_ARRAYTYPE_P(1), SAS_SHARE_KINDS, more);
	if (!PG_ARGISNULL(2))
	{
		share_api_read(PG_GETARG_ARRAYTYPE_P(2), SAS_SHARE_KINDS + 1, most);
		memcpy(limits.most, most, sizeof(limits.most));
		limits.submits_per_s = most[SAS_SHARE_KINDS];
		limits.generation = PG_GETARG_INT64(3);
	}
	answer = sas_limits_share_take(PG_GETARG_OID(0), PG_ARGISNULL(5) ? 0 : PG_GETARG_INT64(5), more, PG_ARGISNULL(2) ? NULL : &limits, PG_GETARG_BOOL(4), &over, &used);
	nulls[0] = answer == SAS_SHARE_TAKEN;
	values[0] = nulls[0] ? (Datum) 0 : CStringGetTextDatum(answer == SAS_SHARE_OVER ? names[over] : "unknown");
	values[1] = Int64GetDatum(used);
	return sas_api_row(fcinfo, values, nulls);
}

/* _sas.give_share(owner, is_child, input, run_id): 1 */
Datum
sas_api_give_share(PG_FUNCTION_ARGS)
{
	int64		less[SAS_SHARE_KINDS] = {1, PG_GETARG_BOOL(1) ? 1 : 0, toast_raw_datum_size(PG_GETARG_DATUM(2))};

	sas_limits_share_give(PG_GETARG_OID(0), PG_GETARG_INT64(3), less);
	PG_RETURN_INT64(1);
}

/* _sas.give_watches(owner, n): n */
Datum
sas_api_give_watches(PG_FUNCTION_ARGS)
{
	int64		less[SAS_SHARE_KINDS] = {[SAS_SHARE_WATCHES] = PG_GETARG_INT64(1)};

	sas_limits_share_give(PG_GETARG_OID(0), 0, less);
	PG_RETURN_INT64(PG_GETARG_INT64(1));
}

/* _sas.share_size(input): its bytes, without compression; the same wherever it is stored */
Datum
sas_api_share_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(toast_raw_datum_size(PG_GETARG_DATUM(0)));
}

Datum
sas_api_spend_submits(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_share_submit(PG_GETARG_OID(0), PG_GETARG_INT64(1), PG_GETARG_INT64(2)));
}

Datum
sas_api_is_in_run(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_share_in_run);
}

Datum
sas_api_share_generation(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_limits_share_generation());
}

/* The trigger of _sas.role_limit. */
Datum
sas_api_forget_shares(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "forget_shares is called by a trigger only");
	sas_limits_share_forget();
	PG_RETURN_POINTER(NULL);
}

/* _sas.recounted_from(): a run; null: no recount is going on */
Datum
sas_api_recounted_from(PG_FUNCTION_ARGS)
{
	int64		from = sas_limits_share_recounted_from();

	if (from == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(from);
}

/* _sas.settled_shares(): a number; null: there is no room for a recount */
Datum
sas_api_settled_shares(PG_FUNCTION_ARGS)
{
	int64		settled = sas_limits_share_settled();

	if (settled < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(settled);
}

/* _sas.first_behind(run_id): the first run of a part that begins behind this one */
Datum
sas_api_first_behind(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((PG_GETARG_INT64(0) / SAS_SHARE_BLOCK + 1) * SAS_SHARE_BLOCK);
}

/* _sas.begin_part(is_first, first, settled): has it begun? */
Datum
sas_api_begin_part(PG_FUNCTION_ARGS)
{
	int64		from = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	int64		settled = PG_ARGISNULL(2) ? -1 : PG_GETARG_INT64(2);

	PG_RETURN_BOOL(sas_limits_share_begin_part(PG_GETARG_BOOL(0), from, settled));
}

/* _sas.add_share(owner, counted): 1 */
Datum
sas_api_add_share(PG_FUNCTION_ARGS)
{
	int64		counted[SAS_SHARE_KINDS];

	share_api_read(PG_GETARG_ARRAYTYPE_P(1), SAS_SHARE_KINDS, counted);
	sas_limits_share_add(PG_GETARG_OID(0), counted);
	PG_RETURN_INT64(1);
}

Datum
sas_api_end_part(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_share_end_part(PG_GETARG_BOOL(0)));
}

/* Seconds; null: not since the start */
Datum
sas_api_shares_counted_ago(PG_FUNCTION_ARGS)
{
	int64		ago = sas_limits_share_counted_us_ago();

	if (ago < 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(ago / 1e6);
}

Datum
sas_api_shares(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasShareView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_limits_share_view(&views);
	for (int i = 0; i < n; i++)
	{
		Datum		values[1 + SAS_SHARE_KINDS];
		bool		nulls[1 + SAS_SHARE_KINDS] = {false};

		values[0] = ObjectIdGetDatum(views[i].owner);
		for (int k = 0; k < SAS_SHARE_KINDS; k++)
			values[1 + k] = Int64GetDatum(views[i].used[k]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
