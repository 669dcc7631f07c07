/* SPDX-License-Identifier: PostgreSQL */
/*
 * table_api.c: what statements ask of tables and sequences that costs less
 * than the start of a statement.  Internal: see sql/base/native.sql.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(sas_api_has_pages);
PG_FUNCTION_INFO_V1(sas_api_next_numbers);

/* _sas.has_pages(of_table) */
Datum
sas_api_has_pages(PG_FUNCTION_ARGS)
{
	Relation	table = table_open(PG_GETARG_OID(0), AccessShareLock);
	bool		has_pages = RelationGetNumberOfBlocks(table) > 0;

	table_close(table, NoLock);
	PG_RETURN_BOOL(has_pages);
}

/* _sas.next_numbers(sequence, n) */
Datum
sas_api_next_numbers(PG_FUNCTION_ARGS)
{
	Oid			sequence = PG_GETARG_OID(0);
	int			n = Max(0, PG_GETARG_INT32(1));
	Datum	   *numbers = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		numbers[i] = Int64GetDatum(nextval_internal(sequence, false));
	PG_RETURN_ARRAYTYPE_P(construct_array(numbers, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
