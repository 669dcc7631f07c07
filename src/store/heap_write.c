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
 * any other table sas_store_tables_open() returns false, and SQL writes the
 * rows.  What was found of a table is cached until the table changes: also
 * which partial indexes no such row enters, because of a column that is left
 * out, or false.  Those are not opened.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "base/compat.h"
#include "catalog/index.h"
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

/* The column of the row, as the caller gives it; -1: it is left out, and null. */
static int
heap_write_given(const SasTable *table, AttrNumber attribute)
{
	int			k = 0;

	while (k < table->n_columns && table->attributes[k] != attribute)
		k++;
	return k < table->n_columns ? k : -1;
}

/* Does this part of the predicate of an index hold for no row? */
static bool
heap_write_never_holds(const SasTable *table, Node *part)
{
	if (IsA(part, NullTest))
	{
		NullTest   *test = (NullTest *) part;

		return test->nulltesttype == IS_NOT_NULL && !test->argisrow && IsA(test->arg, Var) &&
			((Var *) test->arg)->varattno > 0 && heap_write_given(table, ((Var *) test->arg)->varattno) < 0;
	}
	if (IsA(part, Var) && ((Var *) part)->varattno > 0)
	{
		int			k = heap_write_given(table, ((Var *) part)->varattno);

		return k < 0 || table->columns[k].is_false;
	}
	return false;
}

/* Notes the indexes that rows may enter; false: there are too many. */
static bool
heap_write_find_indexes(SasTable *table)
{
	List	   *all = RelationGetIndexList(table->relation);
	ListCell   *lc;

	table->n_indexes = 0;
	foreach(lc, all)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);
		bool		never = false;
		ListCell   *part;

		foreach(part, RelationGetIndexPredicate(index))
			never |= heap_write_never_holds(table, lfirst(part));
		index_close(index, NoLock);
		if (never)
			continue;
		if (table->n_indexes == SAS_TABLE_INDEXES)
			return false;
		table->indexes[table->n_indexes++] = lfirst_oid(lc);
	}
	list_free(all);
	return true;
}

/*
 * Does a row of this table only need to be stored? Row security without FORCE
 * does not count: it does not apply to the table's owner, who writes.
 */
static bool
heap_write_fits(SasTable *table)
{
	Relation	relation = table->relation;
	Form_pg_class class = RelationGetForm(relation);
	TupleConstr *constr = RelationGetDescr(relation)->constr;

	return class->relkind == RELKIND_RELATION && class->relpersistence == RELPERSISTENCE_PERMANENT &&
		!class->relforcerowsecurity && !class->relhasrules && !class->relispartition &&
		!heap_write_has_trigger(relation->trigdesc, table->trigger) && (constr == NULL || constr->num_check == 0) &&
		heap_write_find_columns(table, RelationGetDescr(relation)) && heap_write_find_indexes(table);
}

/* As ExecOpenIndices(), without the indexes that no row enters. */
static void
heap_write_open_indexes(SasTable *table)
{
	ResultRelInfo *target = table->target;

	target->ri_IndexRelationDescs = palloc(sizeof(Relation) * Max(table->n_indexes, 1));
	target->ri_IndexRelationInfo = palloc(sizeof(IndexInfo *) * Max(table->n_indexes, 1));
	for (int i = 0; i < table->n_indexes; i++)
	{
		target->ri_IndexRelationDescs[i] = index_open(table->indexes[i], RowExclusiveLock);
		target->ri_IndexRelationInfo[i] = BuildIndexInfo(target->ri_IndexRelationDescs[i]);
	}
	target->ri_NumIndices = table->n_indexes;
}

static bool
heap_write_open(SasTable *table, EState *estate)
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
	table->estate = estate;
	old = MemoryContextSwitchTo(estate->es_query_cxt);
	table->target = makeNode(ResultRelInfo);
	InitResultRelInfo(table->target, table->relation, 0, NULL, 0);
	heap_write_open_indexes(table);
	table->row = table_slot_create(table->relation, &estate->es_tupleTable);
	MemoryContextSwitchTo(old);
	return true;
}

static void
heap_write_close(SasTable *const *tables, int n, EState *estate)
{
	ExecResetTupleTable(estate->es_tupleTable, false);
	while (--n >= 0)
	{
		ExecCloseIndices(tables[n]->target);
		table_close(tables[n]->relation, NoLock);
	}
	FreeExecutorState(estate);
}

bool
sas_store_tables_open(SasTable *const *tables, int n)
{
	EState	   *estate = CreateExecutorState();

	for (int i = 0; i < n; i++)
		if (!heap_write_open(tables[i], estate))
		{
			heap_write_close(tables, i, estate);
			return false;
		}
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
sas_store_tables_close(SasTable *const *tables, int n)
{
	heap_write_close(tables, n, tables[0]->estate);
}
