/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water_api.c: the SQL-callable side of wake/low_water.h.  Internal: see sql/base/low_water.sql.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/array.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "store/submit.h"
#include "wake/low_water.h"

/* The supervisor, when it is idle, scans a lane from its very beginning when nothing has done so for this long. */
#define SAS_LOW_WATER_CHECK_US (5 * 60 * INT64CONST(1000000))

PG_FUNCTION_INFO_V1(sas_api_note_low_water);
PG_FUNCTION_INFO_V1(sas_api_begin_low_water);
PG_FUNCTION_INFO_V1(sas_api_raise_low_water);
PG_FUNCTION_INFO_V1(sas_api_lower_low_water);
PG_FUNCTION_INFO_V1(sas_api_low_water_marks);
PG_FUNCTION_INFO_V1(sas_api_take_noted_untimed);

static SasLowWaterKind
low_water_api_kind(FunctionCallInfo fcinfo, int argument)
{
	char		kind = PG_GETARG_CHAR(argument);

	if (kind != SAS_LOW_WATER_LANE && kind != SAS_LOW_WATER_DUE && kind != SAS_LOW_WATER_UNTIMED)
		elog(ERROR, "there is no kind of front \"%c\"", kind);
	return kind;
}

static bool
low_water_api_has_value(HeapTuple tuple, TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return !heap_attisnull(tuple, i + 1, desc);
	return false;
}

static Datum
low_water_api_column(HeapTuple tuple, TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
	{
		bool		isnull;

		if (!TupleDescAttr(desc, i)->attisdropped && strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
		{
			Datum		value = heap_getattr(tuple, i + 1, desc, &isnull);

			if (!isnull)
				return value;
			break;
		}
	}
	elog(ERROR, "column \"%s\" is missing or null", name);
}

/* _sas.note_low_water(): before a row of such a table is written. */
Datum
sas_api_note_low_water(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple	tuple;
	TupleDesc	desc;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigger->tg_event) || trigger->tg_trigger->tgnargs != 1)
		elog(ERROR, "_sas.note_low_water() is a trigger before the insert or update of a row, with one argument");
	tuple = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	desc = RelationGetDescr(trigger->tg_relation);
	switch (trigger->tg_trigger->tgargs[0][0])
	{
		case SAS_LOW_WATER_LANE:
			sas_wake_low_water_note(SAS_LOW_WATER_LANE, DatumGetInt32(low_water_api_column(tuple, desc, "lane")),
									DatumGetObjectId(low_water_api_column(tuple, desc, "owner")),
									DatumGetTimestampTz(low_water_api_column(tuple, desc, "rank")));
			break;
		case SAS_LOW_WATER_SCHEDULES:
			if (low_water_api_has_value(tuple, desc, "due_at"))
				sas_wake_low_water_note(SAS_LOW_WATER_DUE, SAS_LOW_WATER_SCHEDULES, DatumGetObjectId(low_water_api_column(tuple, desc, "owner")),
										DatumGetTimestampTz(low_water_api_column(tuple, desc, "due_at")));
			break;
		case SAS_LOW_WATER_PLANS:
		case SAS_LOW_WATER_ITEMS:
			sas_wake_low_water_note(SAS_LOW_WATER_DUE, trigger->tg_trigger->tgargs[0][0], DatumGetObjectId(low_water_api_column(tuple, desc, "owner")),
									DatumGetTimestampTz(low_water_api_column(tuple, desc, "due_at")));
			break;
		case SAS_LOW_WATER_LEASES:
			sas_wake_low_water_note(SAS_LOW_WATER_DUE, SAS_LOW_WATER_LEASES, InvalidOid, DatumGetTimestampTz(low_water_api_column(tuple, desc, "next_by")));
			break;
		case SAS_LOW_WATER_UNTIMED:
			sas_store_note_submitted(DatumGetInt64(low_water_api_column(tuple, desc, "run_id")));
			sas_wake_low_water_note(SAS_LOW_WATER_UNTIMED, 0, InvalidOid, DatumGetInt64(low_water_api_column(tuple, desc, "run_id")));
			break;
	}
	return PointerGetDatum(tuple);
}

/* _sas.begin_low_water(kind, ns): their low-water marks. */
Datum
sas_api_begin_low_water(PG_FUNCTION_ARGS)
{
	SasLowWaterKind kind = low_water_api_kind(fcinfo, 0);
	Datum	   *values;
	bool	   *nulls;
	int			n;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(1), &values, &nulls, &n);
	for (int i = 0; i < n; i++)
		values[i] = TimestampTzGetDatum(nulls[i] ? DT_NOBEGIN : sas_wake_low_water_begin(kind, DatumGetInt32(values[i]), InvalidOid));
	PG_RETURN_ARRAYTYPE_P(sas_base_array(values, n, TIMESTAMPTZOID));
}

/* _sas.raise_low_water(kind, n, owner, first); first null: no row was seen */
Datum
sas_api_raise_low_water(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	sas_wake_low_water_raise(low_water_api_kind(fcinfo, 0), PG_GETARG_INT32(1), PG_GETARG_OID(2),
							 PG_ARGISNULL(3) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(3));
	PG_RETURN_INT32(PG_GETARG_INT32(1));
}

/* _sas.lower_low_water(kind, n, owner, first): at once */
Datum
sas_api_lower_low_water(PG_FUNCTION_ARGS)
{
	sas_wake_low_water_lower(MyDatabaseId, low_water_api_kind(fcinfo, 0), PG_GETARG_INT32(1), PG_GETARG_OID(2), PG_GETARG_TIMESTAMPTZ(3));
	PG_RETURN_VOID();
}

/* _sas.low_water_marks(unchecked) */
Datum
sas_api_low_water_marks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasLowWaterView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_wake_low_water_view(&views, PG_GETARG_BOOL(0) ? SAS_LOW_WATER_CHECK_US : 0);
	for (int i = 0; i < n; i++)
	{
		Datum		values[4] = {CharGetDatum(views[i].kind), Int32GetDatum(views[i].n), ObjectIdGetDatum(views[i].owner),
		TimestampTzGetDatum(views[i].mark)};
		bool		nulls[4] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* _sas.take_noted_untimed() */
Datum
sas_api_take_noted_untimed(PG_FUNCTION_ARGS)
{
	int64		first = sas_wake_low_water_begin(SAS_LOW_WATER_UNTIMED, 0, InvalidOid);

	sas_wake_low_water_raise(SAS_LOW_WATER_UNTIMED, 0, InvalidOid, DT_NOEND);
	if (first == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_INT64(first);
}
