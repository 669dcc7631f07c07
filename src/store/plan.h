/* SPDX-License-Identifier: PostgreSQL */
/*
 * plan.h: inside the store only: saved plans and arrays for their parameters.
 */
#ifndef SAS_STORE_PLAN_H
#define SAS_STORE_PLAN_H

#include "executor/spi.h"
#include "utils/jsonb.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/*
 * A statement, prepared when it is first used, for the life of the process. If
 * the schema of the release before does not understand the statement, older is
 * the one that release ran, with the same parameters and columns.
 */
typedef struct SasPlan
{
	const char *text;
	int			n_args;
	Oid			types[14];
	const char *older;			/* NULL: the same */
	SPIPlanPtr	plan;
	SPIPlanPtr	older_plan;
} SasPlan;

/* Runs it; nulls may be NULL. The result is in SPI_tuptable. */
extern void sas_store_plan_run(SasPlan *plan, Datum *args, const char *nulls);

/* The same for a statement that only reads, by this snapshot. */
extern void sas_store_plan_read(SasPlan *plan, Datum *args, const char *nulls, Snapshot snapshot);

/* Runs the statement of a tick, which answers with worked and next_due; returns worked. */
extern int	sas_store_plan_tick(SasPlan *plan, Datum *args, TimestampTz *next_due);

/* One parameter that is an array: filled row by row. */
typedef struct SasColumn
{
	Oid			type;
	Datum	   *values;
	bool	   *nulls;
	int			n;
} SasColumn;

/* One column for each array among the plan's parameters, in their order; at last, the arrays go to their places in args. */
extern void sas_store_columns_open(SasColumn *columns, const SasPlan *plan, int rows);
extern void sas_store_column_add(SasColumn *column, Datum value, bool isnull);
extern void sas_store_columns_close(SasColumn *columns, const SasPlan *plan, Datum *args);

/* Arrays of SQL with these values. */
extern Datum sas_store_int4_array(const int *values, int n);
extern Datum sas_store_int8_array(const int64 *values, int n);

/* Cells of the current result, copied to sas_store_results where they are not by value. */
extern int64 sas_store_cell_int(int row, int column);
extern double sas_store_cell_float(int row, int column);
extern bool sas_store_cell_bool(int row, int column);
extern bool sas_store_cell_null(int row, int column);
extern char *sas_store_cell_text(int row, int column);
extern Jsonb *sas_store_cell_jsonb(int row, int column);
extern void sas_store_cell_uuid(int row, int column, pg_uuid_t *uuid);
extern TimestampTz sas_store_cell_time(int row, int column);

#endif							/* SAS_STORE_PLAN_H */
