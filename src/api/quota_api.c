/* SPDX-License-Identifier: PostgreSQL */
/*
 * quota_api.c: the SQL-callable side of limits/quotas.h.  Internal:
 * sql/flow/quota.sql asks, sas.limits shows.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "api/row.h"
#include "base/array.h"
#include "base/written.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "limits/quotas.h"
#include "store/latest.h"

PG_FUNCTION_INFO_V1(sas_api_take_quota);
PG_FUNCTION_INFO_V1(sas_api_give_quota);
PG_FUNCTION_INFO_V1(sas_api_give_watches);
PG_FUNCTION_INFO_V1(sas_api_value_size);
PG_FUNCTION_INFO_V1(sas_api_written_size);
PG_FUNCTION_INFO_V1(sas_api_spend_submits);
PG_FUNCTION_INFO_V1(sas_api_is_in_run);
PG_FUNCTION_INFO_V1(sas_api_quota_generation);
PG_FUNCTION_INFO_V1(sas_api_forget_quotas);
PG_FUNCTION_INFO_V1(sas_api_recount_quotas);
PG_FUNCTION_INFO_V1(sas_api_doubt_quotas);
PG_FUNCTION_INFO_V1(sas_api_note_prepared);
PG_FUNCTION_INFO_V1(sas_api_quotas_counted_ago);
PG_FUNCTION_INFO_V1(sas_api_quotas);

/* What an array says of that many kinds, which are in the order of SasQuotaKind. */
static void
quota_api_read(ArrayType *array, int expected, int64 *values)
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

/* _sas.take_quota(owner, more, most, generation, checks): (over, used) */
Datum
sas_api_take_quota(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {"open_runs", "children", "bytes", "watches"};
	int64		more[SAS_QUOTA_KINDS];
	int64		most[SAS_QUOTA_KINDS + 1];
	SasQuotaLimits limits;
	SasQuotaKind over = SAS_QUOTA_OPEN_RUNS;
	int64		used = 0;
	SasQuotaAnswer answer;
	Datum		values[2];
	bool		nulls[2] = {false};

	if (PG_ARGISNULL(1))
		elog(ERROR, "expected %d numbers", SAS_QUOTA_KINDS);
	quota_api_read(PG_GETARG_ARRAYTYPE_P(1), SAS_QUOTA_KINDS, more);
	if (!PG_ARGISNULL(2))
	{
		quota_api_read(PG_GETARG_ARRAYTYPE_P(2), SAS_QUOTA_KINDS + 1, most);
		memcpy(limits.most, most, sizeof(limits.most));
		limits.submits_per_s = most[SAS_QUOTA_KINDS];
		limits.generation = PG_GETARG_INT64(3);
	}
	answer = sas_limits_quota_take(PG_GETARG_OID(0), more, PG_ARGISNULL(2) ? NULL : &limits, PG_GETARG_BOOL(4), &over, &used);
	nulls[0] = answer == SAS_QUOTA_TAKEN;
	values[0] = nulls[0] ? (Datum) 0 : CStringGetTextDatum(answer == SAS_QUOTA_OVER ? names[over] : "unknown");
	values[1] = Int64GetDatum(used);
	return sas_api_row(fcinfo, values, nulls);
}

/* _sas.give_quota(owner, is_child, input): 1 */
Datum
sas_api_give_quota(PG_FUNCTION_ARGS)
{
	int64		less[SAS_QUOTA_KINDS] = {1, PG_GETARG_BOOL(1) ? 1 : 0, toast_raw_datum_size(PG_GETARG_DATUM(2))};

	sas_limits_quota_give(PG_GETARG_OID(0), less);
	PG_RETURN_INT64(1);
}

/* _sas.give_watches(owner, n): n */
Datum
sas_api_give_watches(PG_FUNCTION_ARGS)
{
	int64		less[SAS_QUOTA_KINDS] = {[SAS_QUOTA_WATCHES] = PG_GETARG_INT64(1)};

	sas_limits_quota_give(PG_GETARG_OID(0), less);
	PG_RETURN_INT64(PG_GETARG_INT64(1));
}

/* _sas.value_size(input): its bytes, without compression; the same wherever it is stored */
Datum
sas_api_value_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(toast_raw_datum_size(PG_GETARG_DATUM(0)));
}

/* _sas.written_size(value, most): its bytes with the text of long numbers, as far as that may be more than "most"; null: too deep */
Datum
sas_api_written_size(PG_FUNCTION_ARGS)
{
	Size		size = sas_base_written_size(PG_GETARG_DATUM(0), Max(PG_GETARG_INT64(1), 0));

	if (size == SAS_WRITTEN_TOO_DEEP)
		PG_RETURN_NULL();
	PG_RETURN_INT64(size);
}

Datum
sas_api_spend_submits(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_quota_submit(PG_GETARG_OID(0), PG_GETARG_INT64(1), PG_GETARG_INT64(2)));
}

Datum
sas_api_is_in_run(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_quota_in_run);
}

Datum
sas_api_quota_generation(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_limits_quota_generation());
}

/* The trigger of _sas.role_limit. */
Datum
sas_api_forget_quotas(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "forget_quotas is called by a trigger only");
	sas_limits_quota_forget();
	PG_RETURN_POINTER(NULL);
}

/* What _sas.count_quotas() has found, in rows of these numbers: the owner, and those of SasQuotaKind. */
static int
quota_api_counted(Datum found, SasQuotaView **views)
{
	Datum	   *numbers;
	bool	   *nulls;
	int			n;

	sas_base_elements(DatumGetArrayTypeP(found), &numbers, &nulls, &n);
	n /= 1 + SAS_QUOTA_KINDS;
	*views = palloc(sizeof(SasQuotaView) * n);
	for (int i = 0; i < n; i++)
	{
		(*views)[i].owner = (Oid) DatumGetInt64(*numbers++);
		for (int k = 0; k < SAS_QUOTA_KINDS; k++)
			(*views)[i].used[k] = DatumGetInt64(*numbers++);
	}
	return n;
}

/* _sas.recount_quotas(): how many roles have something open; null: there is no room to note the count */
Datum
sas_api_recount_quotas(PG_FUNCTION_ARGS)
{
	Snapshot	snapshot;
	int64		count = sas_limits_quota_begin_count(&snapshot);
	SasQuotaView *views;
	int			n;

	if (count == 0)
		PG_RETURN_NULL();
	n = quota_api_counted(sas_store_count_quotas(snapshot), &views);
	sas_limits_quota_end_count(count, views, n);
	PG_RETURN_INT64(n);
}

Datum
sas_api_doubt_quotas(PG_FUNCTION_ARGS)
{
	sas_limits_quota_doubt();
	PG_RETURN_VOID();
}

Datum
sas_api_note_prepared(PG_FUNCTION_ARGS)
{
	sas_limits_quota_note(SAS_QUOTA_PREPARED);
	PG_RETURN_VOID();
}

/* Seconds; null: not since the start */
Datum
sas_api_quotas_counted_ago(PG_FUNCTION_ARGS)
{
	bool		doubtful;
	int64		ago = sas_limits_quota_counted_us_ago(&doubtful);

	if (ago < 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(ago / 1e6);
}

Datum
sas_api_quotas(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasQuotaView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_limits_quota_view(&views);
	for (int i = 0; i < n; i++)
	{
		Datum		values[1 + SAS_QUOTA_KINDS];
		bool		nulls[1 + SAS_QUOTA_KINDS] = {false};

		values[0] = ObjectIdGetDatum(views[i].owner);
		for (int k = 0; k < SAS_QUOTA_KINDS; k++)
			values[1 + k] = Int64GetDatum(views[i].used[k]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
