/* SPDX-License-Identifier: PostgreSQL */
/*
 * plan.c: saved plans, and the way of values into and out of them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "store/extension.h"
#include "store/plan.h"
#include "store/store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

static void
plan_run(SasPlan *plan, Datum *args, const char *nulls, Snapshot snapshot)
{
	bool		older = plan->older != NULL && sas_store_schema_is_older();
	const char *text = older ? plan->older : plan->text;
	SPIPlanPtr *prepared = older ? &plan->older_plan : &plan->plan;
	bool		reads = snapshot != InvalidSnapshot;
	MemoryContext results = sas_store_results;
	int			rc;

	if (*prepared == NULL)
	{
		SPIPlanPtr	made = SPI_prepare(text, plan->n_args, plan->types);

		if (made == NULL || SPI_keepplan(made) != 0)
			elog(ERROR, "could not prepare \"%s\": %s", text, SPI_result_code_string(SPI_result));
		*prepared = made;
	}
	rc = SPI_execute_snapshot(*prepared, args, nulls, snapshot, InvalidSnapshot, reads, !reads, 0);
	/* a function in it may have made calls of its own (sas_store_enter) */
	sas_store_results = results;
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", text, SPI_result_code_string(rc));
}

void
sas_store_plan_run(SasPlan *plan, Datum *args, const char *nulls)
{
	plan_run(plan, args, nulls, InvalidSnapshot);
}

void
sas_store_plan_read(SasPlan *plan, Datum *args, const char *nulls, Snapshot snapshot)
{
	plan_run(plan, args, nulls, snapshot);
}

int
sas_store_plan_tick(SasPlan *plan, Datum *args, TimestampTz *next_due)
{
	sas_store_plan_run(plan, args, NULL);
	*next_due = sas_store_cell_time(0, 2);
	return sas_store_cell_int(0, 1);
}

static void
plan_open_column(SasColumn *column, Oid type, int rows)
{
	column->type = type;
	column->values = palloc(sizeof(Datum) * Max(rows, 1));
	column->nulls = palloc(sizeof(bool) * Max(rows, 1));
	column->n = 0;
}

void
sas_store_columns_open(SasColumn *columns, const SasPlan *plan, int rows)
{
	for (int i = 0; i < plan->n_args; i++)
	{
		Oid			type = get_element_type(plan->types[i]);

		if (OidIsValid(type))
			plan_open_column(columns++, type, rows);
	}
}

void
sas_store_column_add(SasColumn *column, Datum value, bool isnull)
{
	column->values[column->n] = value;
	column->nulls[column->n++] = isnull;
}

static Datum
plan_column_array(SasColumn *column)
{
	int16		typlen;
	bool		typbyval;
	char		typalign;
	int			dims[1] = {column->n};
	int			lower[1] = {1};

	get_typlenbyvalalign(column->type, &typlen, &typbyval, &typalign);
	if (column->n == 0)
		return PointerGetDatum(construct_empty_array(column->type));
	return PointerGetDatum(construct_md_array(column->values, column->nulls, 1, dims, lower,
											  column->type, typlen, typbyval, typalign));
}

void
sas_store_columns_close(SasColumn *columns, const SasPlan *plan, Datum *args)
{
	for (int i = 0; i < plan->n_args; i++)
		if (OidIsValid(get_element_type(plan->types[i])))
			args[i] = plan_column_array(columns++);
}

Datum
sas_store_int4_array(const int *values, int n)
{
	SasColumn	column;

	plan_open_column(&column, INT4OID, n);
	for (int i = 0; i < n; i++)
		sas_store_column_add(&column, Int32GetDatum(values[i]), false);
	return plan_column_array(&column);
}

Datum
sas_store_int8_array(const int64 *values, int n)
{
	SasColumn	column;

	plan_open_column(&column, INT8OID, n);
	for (int i = 0; i < n; i++)
		sas_store_column_add(&column, Int64GetDatum(values[i]), false);
	return plan_column_array(&column);
}

static Datum
plan_cell(int row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

int64
sas_store_cell_int(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);
	Oid			type = SPI_gettypeid(SPI_tuptable->tupdesc, column);

	if (isnull)
		return 0;
	return type == INT8OID ? DatumGetInt64(value) : type == OIDOID ? (int64) DatumGetObjectId(value) : DatumGetInt32(value);
}

double
sas_store_cell_float(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);

	return isnull ? 0 : DatumGetFloat8(value);
}

bool
sas_store_cell_bool(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);

	return !isnull && DatumGetBool(value);
}

bool
sas_store_cell_null(int row, int column)
{
	bool		isnull;

	(void) plan_cell(row, column, &isnull);
	return isnull;
}

char *
sas_store_cell_text(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);
	MemoryContext old;
	char	   *copy;

	if (isnull)
		return NULL;
	old = MemoryContextSwitchTo(sas_store_results);
	copy = TextDatumGetCString(value);
	MemoryContextSwitchTo(old);
	return copy;
}

Jsonb *
sas_store_cell_jsonb(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);
	MemoryContext old;
	Jsonb	   *jsonb;

	if (isnull)
		return NULL;
	old = MemoryContextSwitchTo(sas_store_results);
	jsonb = DatumGetJsonbPCopy(value);
	MemoryContextSwitchTo(old);
	return jsonb;
}

void
sas_store_cell_uuid(int row, int column, pg_uuid_t *uuid)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);

	if (isnull)
		memset(uuid, 0, sizeof(*uuid));
	else
		*uuid = *DatumGetUUIDP(value);
}

TimestampTz
sas_store_cell_time(int row, int column)
{
	bool		isnull;
	Datum		value = plan_cell(row, column, &isnull);

	return isnull ? DT_NOEND : DatumGetTimestampTz(value);
}
