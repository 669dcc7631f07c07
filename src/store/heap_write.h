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

typedef struct SasTable
{
	const char *name;
	const char *trigger;		/* the one on INSERT that it may have: the caller does its work */
	int			n_columns;
	struct
	{
		const char *name;
		Oid			type;
	}			columns[SAS_TABLE_COLUMNS]; /* that are given with each row; others are null */

	/* The cached layout; heap_write.c only. */
	bool		listed;			/* in the list of all that were opened in this process */
	Oid			relid;			/* InvalidOid: nothing */
	bool		fits;			/* rows can be written this way */
	AttrNumber	attributes[SAS_TABLE_COLUMNS];
	struct SasTable *next;

	/* While it is open. */
	Relation	relation;
	EState	   *estate;
	ResultRelInfo *target;
	TupleTableSlot *row;
} SasTable;

/* False, and nothing is open, when SQL has to write these rows. */
extern bool sas_store_table_open(SasTable *table);

/* A row: a value for each of the columns, in their order; nulls may be NULL. */
extern void sas_store_table_insert(SasTable *table, const Datum *values, const bool *nulls);

extern void sas_store_table_close(SasTable *table);

#endif							/* SAS_STORE_HEAP_WRITE_H */
