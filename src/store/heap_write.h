/* SPDX-License-Identifier: PostgreSQL */
/*
 * heap_write.h: inside the store only: inserts rows into a table without a
 * statement.
 *
 * It is for the few rows that every submit writes.  SQL defines the columns
 * and indexes of a table: they are looked up by name, and a table that is
 * not as the caller expects is left to SQL.
 */
#ifndef SAS_STORE_HEAP_WRITE_H
#define SAS_STORE_HEAP_WRITE_H

#include "access/attnum.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#define SAS_TABLE_COLUMNS 16

typedef struct SasTableColumn
{
	const char *name;
	Oid			type;
	const char *always;			/* the value of every row, as a literal; NULL: given with each row */
} SasTableColumn;

typedef struct SasTable
{
	const char *name;
	int			n_columns;
	SasTableColumn columns[SAS_TABLE_COLUMNS];	/* that are written; others are null */
	const char *trigger;		/* the one on INSERT that it may have: the caller does its work; NULL: none */

	/* The cached layout; heap_write.c only. */
	Oid			relid;			/* InvalidOid: nothing */
	bool		fits;			/* rows can be written this way */
	MemoryContext context;
	int			n_given;
	AttrNumber	given[SAS_TABLE_COLUMNS];	/* the columns given with each row */
	Datum	   *values;			/* of a row, in the order of the table */
	bool	   *nulls;
	struct HeapTupleData *row;	/* where all given columns have the same offset in all rows: the last row; NULL: every row is formed again */
	int			offsets[SAS_TABLE_COLUMNS];
	List	   *indexes;		/* of SasTableIndex */
	Relation	relation;		/* while it is open */
	struct SasTable *next;		/* of all that were opened in this process */
} SasTable;

/* False, and nothing is open, when SQL has to write these rows. */
extern bool sas_store_table_open(SasTable *table);

/* A row: a value for each of the columns that are given, in their order; nulls may be NULL. */
extern void sas_store_table_insert(SasTable *table, const Datum *values, const bool *nulls);

extern void sas_store_table_close(SasTable *table);

#endif							/* SAS_STORE_HEAP_WRITE_H */
