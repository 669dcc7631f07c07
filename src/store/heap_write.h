/* SPDX-License-Identifier: PostgreSQL */
/*
 * heap_write.h: inside the store only: inserts rows into a table without a
 * statement.
 *
 * It is for the few rows that every submit writes.  SQL defines the columns
 * and indexes of a table: columns are looked up by name, and a table that is
 * not as the caller expects is left to SQL.
 */
#ifndef SAS_STORE_HEAP_WRITE_H
#define SAS_STORE_HEAP_WRITE_H

#include "access/attnum.h"
#include "nodes/execnodes.h"
#include "utils/relcache.h"

#define SAS_TABLE_COLUMNS 16
#define SAS_TABLE_INDEXES 8

typedef struct SasTable
{
	const char *name;
	const char *trigger;		/* the one on INSERT that it may have: the caller does its work */
	int			n_columns;
	struct
	{
		const char *name;
		Oid			type;
		bool		is_false;	/* always, a boolean */
	}			columns[SAS_TABLE_COLUMNS]; /* that are given with each row; others are null */

	/* The cached layout; heap_write.c only. */
	bool		listed;			/* in the list of all that were opened in this process */
	Oid			relid;			/* InvalidOid: nothing */
	bool		fits;			/* rows can be written this way */
	AttrNumber	attributes[SAS_TABLE_COLUMNS];
	int			n_indexes;
	Oid			indexes[SAS_TABLE_INDEXES]; /* without those that no such row enters */
	struct SasTable *next;

	/* While it is open. */
	Relation	relation;
	EState	   *estate;			/* of all that were opened together */
	ResultRelInfo *target;
	TupleTableSlot *row;
} SasTable;

/* All of them, or none: then SQL has to write these rows. */
extern bool sas_store_tables_open(SasTable *const *tables, int n);

/* A row: a value for each of the columns, in their order; nulls may be NULL. */
extern void sas_store_table_insert(SasTable *table, const Datum *values, const bool *nulls);

/* At the end of the statement that has opened them. */
extern void sas_store_tables_close(SasTable *const *tables, int n);

#endif							/* SAS_STORE_HEAP_WRITE_H */
