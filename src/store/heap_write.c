/* SPDX-License-Identifier: PostgreSQL */
/*
 * heap_write.c: inserts rows into a table without a statement.
 *
 * An INSERT of three rows takes the planner and the executor several times as
 * long as the storage beneath them.  This code calls what the executor calls
 * for a row of given values: the access method of the table, then
 * ExecInsertIndexTuples().
 *
 * It fires no trigger, checks no constraint and computes no column.  So it
 * writes only tables that need none of it: no trigger on INSERT but the one
 * named, no check, no default or NOT NULL on a column that is left out.  For
 * any other table sas_store_table_open() returns false, and SQL writes the
 * rows.  What was found of a table is cached until the table changes.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "base/compat.h"
#include "catalog/namespace.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "store/heap_write.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

static SasTable *heap_write_tables = NULL;

/* A relation has changed: the layout of its table is read again when the table is opened the next time. */
static void
heap_write_forget_tables(Datum arg, Oid relid)
{
	for (SasTable *t = heap_write_tables; t != NULL; t = t->next)
		if (relid == InvalidOid || relid == t->relid)
			t->relid = InvalidOid;
}

/* Can a column be left out, and is null then? */
static bool
heap_write_stays_null(Form_pg_attribute a)
{
	return a->attisdropped ||
		(!a->attnotnull && !a->atthasdef && a->attgenerated == '\0' && a->attidentity == '\0' &&
		 get_typtype(a->atttypid) != TYPTYPE_DOMAIN);
}

/* Finds the columns that are given; false when one is missing or another one cannot stay null. */
static bool
heap_write_find_columns(SasTable *table, TupleDesc desc)
{
	int			found = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		int			k = 0;

		while (k < table->n_columns && (a->attisdropped || strcmp(NameStr(a->attname), table->columns[k].name) != 0))
			k++;
		if (k == table->n_columns ? !heap_write_stays_null(a) : a->atttypid != table->columns[k].type || a->attgenerated != '\0')
			return false;
		if (k == table->n_columns)
			continue;
		table->attributes[k] = a->attnum;
		found++;
	}
	return found == table->n_columns;
}

/* Is there a trigger on INSERT, other than the one whose work the caller does? */
static bool
heap_write_has_trigger(const TriggerDesc *t, const char *but)
{
	for (int i = 0; t != NULL && i < t->numtriggers; i++)
		if (TRIGGER_FOR_INSERT(t->triggers[i].tgtype) && strcmp(t->triggers[i].tgname, but) != 0)
			return true;
	return false;
}

/* Does a row of this table need no more than storage? Row security without FORCE is not for its owner, who writes. */
static bool
heap_write_fits(SasTable *table)
{
	Relation	relation = table->relation;
	Form_pg_class class = RelationGetForm(relation);
	TupleConstr *constr = RelationGetDescr(relation)->constr;

	return class->relkind == RELKIND_RELATION && class->relpersistence == RELPERSISTENCE_PERMANENT &&
		!class->relforcerowsecurity && !class->relhasrules && !class->relispartition &&
		!heap_write_has_trigger(relation->trigdesc, table->trigger) && (constr == NULL || constr->num_check == 0) &&
		heap_write_find_columns(table, RelationGetDescr(relation));
}

bool
sas_store_table_open(SasTable *table)
{
	MemoryContext old;

	if (heap_write_tables == NULL)
		CacheRegisterRelcacheCallback(heap_write_forget_tables, (Datum) 0);
	if (!table->listed)
	{
		table->next = heap_write_tables;
		heap_write_tables = table;
		table->listed = true;
	}
	table->relation = try_table_open(OidIsValid(table->relid) ? table->relid : get_relname_relid(table->name, get_namespace_oid("_sas", false)),
									 RowExclusiveLock);
	if (table->relation == NULL)
		return false;
	/* with the lock taken, no session changes it */
	if (!OidIsValid(table->relid))
	{
		table->fits = heap_write_fits(table);
		table->relid = RelationGetRelid(table->relation);
	}
	if (!table->fits)
	{
		table_close(table->relation, NoLock);
		return false;
	}
	table->estate = CreateExecutorState();
	old = MemoryContextSwitchTo(table->estate->es_query_cxt);
	table->target = makeNode(ResultRelInfo);
	InitResultRelInfo(table->target, table->relation, 0, NULL, 0);
	ExecOpenIndices(table->target, false);
	table->row = table_slot_create(table->relation, &table->estate->es_tupleTable);
	MemoryContextSwitchTo(old);
	return true;
}

void
sas_store_table_insert(SasTable *table, const Datum *values, const bool *nulls)
{
	TupleTableSlot *row = ExecClearTuple(table->row);

	memset(row->tts_isnull, true, sizeof(bool) * row->tts_tupleDescriptor->natts);
	for (int i = 0; i < table->n_columns; i++)
	{
		row->tts_values[table->attributes[i] - 1] = values[i];
		row->tts_isnull[table->attributes[i] - 1] = nulls != NULL && nulls[i];
	}
	ExecStoreVirtualTuple(row);
	table_tuple_insert(table->relation, row, GetCurrentCommandId(true), 0, NULL);
	if (table->target->ri_NumIndices > 0)
		sas_compat_insert_index_tuples(table->target, row, table->estate);
	ResetPerTupleExprContext(table->estate);
}

void
sas_store_table_close(SasTable *table)
{
	ExecCloseIndices(table->target);
	ExecResetTupleTable(table->estate->es_tupleTable, false);
	FreeExecutorState(table->estate);
	table_close(table->relation, NoLock);
}
