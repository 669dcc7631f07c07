/* SPDX-License-Identifier: PostgreSQL */
/*
 * metrics_api.c: the SQL-callable side of metrics/.  Internal: sas.metrics() names the series.
 *
 * What SQL counts is added when its transaction has committed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/clock.h"
#include "metrics/metrics.h"
#include "work/late.h"

PG_FUNCTION_INFO_V1(sas_api_count);
PG_FUNCTION_INFO_V1(sas_api_observe);
PG_FUNCTION_INFO_V1(sas_api_waited);
PG_FUNCTION_INFO_V1(sas_api_count_moves);
PG_FUNCTION_INFO_V1(sas_api_series);
PG_FUNCTION_INFO_V1(sas_api_metric_bounds);

static SasMetric
metrics_api_metric(FunctionCallInfo fcinfo)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			metric = sas_metrics_by_name(name);

	if (metric < 0)
		elog(ERROR, "there is no metric \"%s\"", name);
	return metric;
}

/* _sas.count_metric(metric, id1, id2, label, n): n */
Datum
sas_api_count(PG_FUNCTION_ARGS)
{
	sas_metrics_add_at_commit(metrics_api_metric(fcinfo), PG_GETARG_INT32(1), PG_GETARG_INT32(2), text_to_cstring(PG_GETARG_TEXT_PP(3)),
							  PG_GETARG_INT64(4), -1);
	PG_RETURN_INT64(PG_GETARG_INT64(4));
}

/* One of the arrays of _sas.observe; NULL when the argument is null. */
static Datum *
metrics_api_column(FunctionCallInfo fcinfo, int argument, bool **nulls, int *n)
{
	Datum	   *values;

	*n = 0;
	*nulls = NULL;
	if (PG_ARGISNULL(argument))
		return NULL;
	sas_base_elements(PG_GETARG_ARRAYTYPE_P(argument), &values, nulls, n);
	return values;
}

/* _sas.observe(metric, ids, ids2, labels, seconds): arrays of equal length; ids2 and labels may be null. A null span is not observed. */
Datum
sas_api_observe(PG_FUNCTION_ARGS)
{
	SasMetric	metric;
	bool	   *no_id1;
	bool	   *no_id2;
	bool	   *no_label;
	bool	   *no_span;
	int			n[4];
	Datum	   *id1;
	Datum	   *id2;
	Datum	   *label;
	Datum	   *span;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(4))
		PG_RETURN_VOID();
	metric = metrics_api_metric(fcinfo);
	id1 = metrics_api_column(fcinfo, 1, &no_id1, &n[0]);
	id2 = metrics_api_column(fcinfo, 2, &no_id2, &n[1]);
	label = metrics_api_column(fcinfo, 3, &no_label, &n[2]);
	span = metrics_api_column(fcinfo, 4, &no_span, &n[3]);
	if (n[3] != n[0] || (id2 && n[1] != n[0]) || (label && n[2] != n[0]))
		elog(ERROR, "arrays of different lengths");
	for (int i = 0; i < n[0]; i++)
	{
		if (no_span[i])
			continue;
		sas_metrics_add_at_commit(metric, no_id1[i] ? 0 : DatumGetInt32(id1[i]), id2 && !no_id2[i] ? DatumGetInt32(id2[i]) : 0,
								  label && !no_label[i] ? TextDatumGetCString(label[i]) : "", 1, Max(0, DatumGetFloat8(span[i])));
	}
	PG_RETURN_VOID();
}

/* _sas.waited(lane, ready_at): the seconds since then, observed as step_wait */
Datum
sas_api_waited(PG_FUNCTION_ARGS)
{
	double		seconds = (sas_base_clock_now() - PG_GETARG_TIMESTAMPTZ(1)) / 1e6;

	sas_metrics_add_at_commit(SAS_METRIC_STEP_WAIT, PG_GETARG_INT32(0), 0, "", 1, Max(0, seconds));
	sas_work_late_found(SAS_LATE_STEP, PG_GETARG_INT32(0), NULL, PG_GETARG_TIMESTAMPTZ(1));
	PG_RETURN_FLOAT8(seconds);
}

/* The number of a column; there is one of that name, of type text. */
static AttrNumber
metrics_api_column_number(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (namestrcmp(&TupleDescAttr(desc, i)->attname, name) == 0 && TupleDescAttr(desc, i)->atttypid == TEXTOID)
			return i + 1;
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN), errmsg("column \"%s\" of type text does not exist", name)));
}

/* A state in a row; empty when it is null, which no state is. */
static void
metrics_api_read_state(HeapTuple row, AttrNumber number, TupleDesc desc, char *state, int size)
{
	bool		isnull;
	Datum		value = heap_getattr(row, number, desc, &isnull);

	state[0] = '\0';
	if (!isnull)
		text_to_cstring_buffer(DatumGetTextPP(value), state, size);
}

/* Counts n changes of state, and adds what they were to a list. */
static void
metrics_api_count_move(const char *subject, const char *from, const char *to, uint64 n, Datum *counted, int *n_counted)
{
	char		label[SAS_METRICS_LABEL];

	if (n == 0)
		return;
	snprintf(label, sizeof(label), "%s %s %s", subject, from, to);
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, label, n, -1);
	/* the label may have been cut */
	counted[(*n_counted)++] = CStringGetTextDatum(psprintf("%s %s", from, to));
}

/* _sas.count_moves(subject, changes): an array of rows with from_state and to_state. */
Datum
sas_api_count_moves(PG_FUNCTION_ARGS)
{
	char	   *subject = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ArrayType  *changes = PG_GETARG_ARRAYTYPE_P(1);
	TupleDesc	desc = lookup_rowtype_tupdesc(ARR_ELEMTYPE(changes), -1);
	AttrNumber	from_number = metrics_api_column_number(desc, "from_state");
	AttrNumber	to_number = metrics_api_column_number(desc, "to_state");
	ArrayIterator each = array_create_iterator(changes, 0, NULL);
	Datum	   *counted = palloc(sizeof(Datum) * Max(1, ArrayGetNItems(ARR_NDIM(changes), ARR_DIMS(changes))));
	int			n_counted = 0;
	char		from[SAS_METRICS_LABEL];
	char		to[SAS_METRICS_LABEL];
	char		last_from[SAS_METRICS_LABEL] = "";
	char		last_to[SAS_METRICS_LABEL] = "";
	uint64		n = 0;
	Datum		change;
	bool		isnull;

	/* mostly the same change many times over */
	while (array_iterate(each, &change, &isnull))
	{
		HeapTupleHeader header;
		HeapTupleData row = {0};

		if (isnull)
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a change must not be null")));
		header = DatumGetHeapTupleHeader(change);
		row.t_len = HeapTupleHeaderGetDatumLength(header);
		row.t_data = header;
		metrics_api_read_state(&row, from_number, desc, from, sizeof(from));
		metrics_api_read_state(&row, to_number, desc, to, sizeof(to));
		if (strcmp(from, last_from) != 0 || strcmp(to, last_to) != 0)
		{
			metrics_api_count_move(subject, last_from, last_to, n, counted, &n_counted);
			strcpy(last_from, from);
			strcpy(last_to, to);
			n = 0;
		}
		n++;
	}
	metrics_api_count_move(subject, last_from, last_to, n, counted, &n_counted);
	ReleaseTupleDesc(desc);
	PG_RETURN_ARRAYTYPE_P(sas_base_array(counted, n_counted, TEXTOID));
}

/* _sas.series(): what was counted in this database; "dropped" counts what found no room. */
Datum
sas_api_series(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasSeriesView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_metrics_view(&views);
	for (int i = 0; i <= n; i++)
	{
		bool		rest = i == n;
		Datum		values[7];
		bool		nulls[7] = {false};
		Datum		buckets[SAS_METRICS_BUCKETS];

		values[0] = CStringGetTextDatum(rest ? "dropped" : sas_metrics_name(views[i].metric));
		values[1] = Int32GetDatum(rest ? 0 : views[i].id1);
		values[2] = Int32GetDatum(rest ? 0 : views[i].id2);
		values[3] = CStringGetTextDatum(rest ? "" : views[i].label);
		values[4] = Int64GetDatum(rest ? sas_metrics_dropped() : views[i].n);
		values[5] = Float8GetDatum(rest ? 0 : views[i].sum);
		for (int k = 0; k < SAS_METRICS_BUCKETS; k++)
			buckets[k] = Int64GetDatum(rest ? 0 : views[i].buckets[k]);
		values[6] = PointerGetDatum(sas_base_array(buckets, SAS_METRICS_BUCKETS, INT8OID));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
sas_api_metric_bounds(PG_FUNCTION_ARGS)
{
	Datum		bounds[SAS_METRICS_BUCKETS];

	for (int i = 0; i < SAS_METRICS_BUCKETS; i++)
		bounds[i] = Float8GetDatum(sas_metrics_bounds[i]);
	PG_RETURN_ARRAYTYPE_P(sas_base_array(bounds, SAS_METRICS_BUCKETS, FLOAT8OID));
}
