/* SPDX-License-Identifier: PostgreSQL */
/*
 * heap_write.h: inside the store only: rows put into a table without a statement.
 *
 * For the few rows that every submit writes.  Which columns and indexes a
 * table has is the SQL's business: they are looked up by name, and a table
 * that is not quite as the caller knows it is left to SQL.
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
	SasTableColumn columns[SAS_TABLE_COLUMNS];	/* that are written; others stay null */
	const char *trigger;		/* the one on INSERT that it may have: the caller does its work; NULL: none */

	/* What is known of it; heap_write.c only. */
	Oid			relid;			/* InvalidOid: nothing */
	bool		fits;			/* rows can be written this way */
	MemoryContext context;
	int			n_given;
	AttrNumber	given[SAS_TABLE_COLUMNS];	/* the columns given with each row */
	Datum	   *values;			/* of a row, in the order of the table */
	bool	   *nulls;
	struct HeapTupleData *row;	/* where what is given stands in the same place in all rows: the last one; NULL: every row is formed anew */
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
