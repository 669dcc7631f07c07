/* SPDX-License-Identifier: PostgreSQL */
/*
 * rows.c: rows put into a table without a statement.
 *
 * An INSERT of three rows takes the executor several times as long as the
 * storage beneath it.  This does what the executor does for a row of given
 * values, and keeps what it finds out about a table until the table or one of
 * its indexes changes.
 *
 * Only for a table that asks for no more than that: no trigger, no check, no
 * index on an expression, nothing that fills a column left out.  For any
 * other, sas_table_open() says no.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "store/rows.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct SasTableIndex
{
	Oid			oid;
	IndexInfo  *info;
	ExprState  *predicate;		/* NULL: every row is in it */
	ExprContext *context;		/* for the predicate */
	Relation	relation;		/* while its table is open and a row went in */
} SasTableIndex;

static SasTable *tables = NULL;

/* A relation has changed: what is known of its table is looked up anew when it is opened the next time. */
static void
forget_tables(Datum arg, Oid relid)
{
	for (SasTable *t = tables; t != NULL; t = t->next)
	{
		ListCell   *cell;

		if (relid == InvalidOid || relid == t->relid)
			t->relid = InvalidOid;
		foreach(cell, t->indexes)
			if (((SasTableIndex *) lfirst(cell))->oid == relid)
				t->relid = InvalidOid;
	}
}

/* Finds the columns; false when one is missing or another one cannot stay null. */
static bool
find_columns(SasTable *table, TupleDesc desc)
{
	int			found = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		int			k = 0;

		if (a->attisdropped)
			continue;
		while (k < table->n_columns && strcmp(NameStr(a->attname), table->columns[k].name) != 0)
			k++;
		if (k == table->n_columns)
		{
			if (a->attnotnull || a->atthasdef || a->attgenerated != '\0' || a->attidentity != '\0' || get_typtype(a->atttypid) == TYPTYPE_DOMAIN)
				return false;
			continue;
		}
		if (a->atttypid != table->columns[k].type || a->attgenerated != '\0')
			return false;
		table->numbers[k] = a->attnum;
		found++;
	}
	return found == table->n_columns;
}

/* Reads what there is to know of an index; false when it needs more than the values of a row. */
static bool
read_index(SasTable *table, Oid oid)
{
	Relation	relation = index_open(oid, RowExclusiveLock);
	SasTableIndex *index = palloc0(sizeof(SasTableIndex));
	bool		fits;

	index->oid = oid;
	index->info = BuildIndexInfo(relation);
	/* other access methods keep more between two rows than may be kept here */
	fits = relation->rd_rel->relam == BTREE_AM_OID && index->info->ii_Expressions == NIL &&
		index->info->ii_ExclusionOps == NULL && index->info->ii_ReadyForInserts && relation->rd_index->indimmediate;
	if (fits && index->info->ii_Predicate != NIL)
	{
		index->predicate = ExecInitQual(index->info->ii_Predicate, NULL);
		index->context = CreateStandaloneExprContext();
	}
	index_close(relation, NoLock);
	table->indexes = lappend(table->indexes, index);
	return fits;
}

/* What there is to know of the table. */
static void
read_table(SasTable *table)
{
	Relation	relation = table->relation;
	Form_pg_class class = RelationGetForm(relation);
	TupleConstr *constr = RelationGetDescr(relation)->constr;
	MemoryContext old;
	List	   *oids;
	ListCell   *cell;

	table->indexes = NIL;
	table->fits = false;
	MemoryContextReset(table->context);
	/* from here on a change is heard of */
	table->relid = RelationGetRelid(relation);
	if (class->relkind != RELKIND_RELATION || class->relpersistence != RELPERSISTENCE_PERMANENT ||
		class->relrowsecurity || class->relhasrules || class->relispartition || relation->trigdesc != NULL ||
		(constr != NULL && constr->num_check > 0) || !find_columns(table, RelationGetDescr(relation)))
		return;
	old = MemoryContextSwitchTo(table->context);
	oids = RelationGetIndexList(relation);
	table->fits = true;
	foreach(cell, oids)
		if (!read_index(table, lfirst_oid(cell)))
			table->fits = false;
	MemoryContextSwitchTo(old);
}

bool
sas_table_open(SasTable *table)
{
	static bool listens = false;
	Oid			relid = table->relid;
	ListCell   *cell;

	if (!listens)
		CacheRegisterRelcacheCallback(forget_tables, (Datum) 0);
	listens = true;
	if (table->context == NULL)
	{
		table->context = AllocSetContextCreate(CacheMemoryContext, "sas table", ALLOCSET_SMALL_SIZES);
		table->next = tables;
		tables = table;
	}
	if (!OidIsValid(relid))
		relid = get_relname_relid(table->name, get_namespace_oid("sas", false));
	table->relation = try_table_open(relid, RowExclusiveLock);
	if (table->relation == NULL)
		return false;
	/* with the lock held nobody changes it any more */
	if (!OidIsValid(table->relid))
		read_table(table);
	if (!table->fits)
	{
		table_close(table->relation, NoLock);
		return false;
	}
	table->slot = table_slot_create(table->relation, NULL);
	foreach(cell, table->indexes)
		((SasTableIndex *) lfirst(cell))->relation = NULL;
	return true;
}

/* An entry for the row in the slot. */
static void
insert_into_index(SasTable *table, SasTableIndex *index)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	if (index->predicate != NULL)
	{
		index->context->ecxt_scantuple = table->slot;
		if (!ExecQual(index->predicate, index->context))
			return;
	}
	if (index->relation == NULL)
		index->relation = index_open(index->oid, RowExclusiveLock);
	FormIndexDatum(index->info, table->slot, NULL, values, nulls);
	index_insert(index->relation, values, nulls, &table->slot->tts_tid, table->relation,
				 index->relation->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, index->info);
}

void
sas_table_insert(SasTable *table, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = table->slot;
	ListCell   *cell;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, sizeof(bool) * slot->tts_tupleDescriptor->natts);
	for (int i = 0; i < table->n_columns; i++)
	{
		slot->tts_values[table->numbers[i] - 1] = values[i];
		slot->tts_isnull[table->numbers[i] - 1] = nulls != NULL && nulls[i];
	}
	ExecStoreVirtualTuple(slot);
	table_tuple_insert(table->relation, slot, GetCurrentCommandId(true), 0, NULL);
	foreach(cell, table->indexes)
		insert_into_index(table, lfirst(cell));
}

void
sas_table_close(SasTable *table)
{
	ListCell   *cell;

	ExecDropSingleTupleTableSlot(table->slot);
	foreach(cell, table->indexes)
	{
		SasTableIndex *index = lfirst(cell);

		if (index->relation != NULL)
			index_close(index->relation, NoLock);
	}
	table_close(table->relation, NoLock);
}
