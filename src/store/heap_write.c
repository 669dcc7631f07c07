/* SPDX-License-Identifier: PostgreSQL */
/*
 * heap_write.c: inserts rows into a table without a statement.
 *
 * An INSERT of three rows takes the executor several times as long as the
 * storage beneath it.  This code does what the executor does for a row of
 * given values, and caches the layout of a table until the table or one of
 * its indexes changes.
 *
 * It works only for plain tables: no trigger but the one named, no check, no
 * index on an expression, no column with a default that is left out.  For
 * any other table, sas_store_table_open() returns false, and SQL writes the
 * rows.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "store/heap_write.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct SasTableIndex
{
	Oid			oid;
	IndexInfo  *info;
	IndexUniqueCheck unique;
	Relation	relation;		/* while its table is open and a row went in */
} SasTableIndex;

static SasTable *heap_write_tables = NULL;

/* A relation has changed: the layout of its table is read again when the table is opened the next time. */
static void
heap_write_forget_tables(Datum arg, Oid relid)
{
	for (SasTable *t = heap_write_tables; t != NULL; t = t->next)
	{
		ListCell   *cell;

		if (relid == InvalidOid || relid == t->relid)
			t->relid = InvalidOid;
		foreach(cell, t->indexes)
			if (((SasTableIndex *) lfirst(cell))->oid == relid)
				t->relid = InvalidOid;
	}
}

/* ----------------------------------------------------------- what is known */

/* The attribute of a column, if it is there and of that type. */
static Form_pg_attribute
heap_write_find_column(TupleDesc desc, const SasTableColumn *column)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);

		if (!a->attisdropped && strcmp(NameStr(a->attname), column->name) == 0)
			return a->atttypid == column->type && a->attgenerated == '\0' ? a : NULL;
	}
	return NULL;
}

/* Can it be left out, and is null then? */
static bool
heap_write_stays_null(Form_pg_attribute a)
{
	return a->attisdropped ||
		(!a->attnotnull && !a->atthasdef && a->attgenerated == '\0' && a->attidentity == '\0' &&
		 get_typtype(a->atttypid) != TYPTYPE_DOMAIN);
}

/* Lays out a row; false when a column is missing or another one cannot stay null. */
static bool
heap_write_read_columns(SasTable *table, TupleDesc desc)
{
	bool	   *listed = palloc0(sizeof(bool) * desc->natts);

	table->values = palloc0(sizeof(Datum) * desc->natts);
	table->nulls = palloc(sizeof(bool) * desc->natts);
	memset(table->nulls, true, sizeof(bool) * desc->natts);
	table->n_given = 0;
	for (int k = 0; k < table->n_columns; k++)
	{
		const SasTableColumn *column = &table->columns[k];
		Form_pg_attribute a = heap_write_find_column(desc, column);
		Oid			input;
		Oid			parameter;

		if (a == NULL)
			return false;
		listed[a->attnum - 1] = true;
		if (column->always == NULL)
		{
			table->given[table->n_given++] = a->attnum;
			continue;
		}
		getTypeInputInfo(a->atttypid, &input, &parameter);
		table->values[a->attnum - 1] = OidInputFunctionCall(input, unconstify(char *, column->always), parameter, a->atttypmod);
		table->nulls[a->attnum - 1] = false;
	}
	for (int i = 0; i < desc->natts; i++)
		if (!listed[i] && !heap_write_stays_null(TupleDescAttr(desc, i)))
			return false;
	return true;
}

/*
 * Are all given columns at the same offset in every row? Then no column
 * before them has a variable length or is null.
 */
static bool
heap_write_find_offsets(SasTable *table, TupleDesc desc)
{
	int			offset = 0;
	int			found = 0;

	for (int i = 0; i < desc->natts && found < table->n_given; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		int			k = 0;

		while (k < table->n_given && table->given[k] != a->attnum)
			k++;
		if (a->attlen <= 0 || (k < table->n_given ? !a->attbyval : table->nulls[i]))
			return false;
		offset = att_align_nominal(offset, a->attalign);
		if (k < table->n_given)
		{
			table->offsets[k] = offset;
			found++;
		}
		offset += a->attlen;
	}
	return true;
}

/* Does a partial index contain none of our rows, or each of them? That must not depend on what is given with a row. */
static bool
heap_write_read_predicate(const SasTable *table, List *predicate, bool *holds)
{
	Bitmapset  *columns = NULL;
	TupleTableSlot *slot;
	ExprContext *context;

	pull_varattnos((Node *) predicate, 1, &columns);
	for (AttrNumber a = FirstLowInvalidHeapAttributeNumber; a <= 0; a++)
		if (bms_is_member(a - FirstLowInvalidHeapAttributeNumber, columns))
			return false;
	for (int i = 0; i < table->n_given; i++)
		if (bms_is_member(table->given[i] - FirstLowInvalidHeapAttributeNumber, columns))
			return false;
	if (contain_mutable_functions((Node *) predicate))
		return false;
	slot = MakeSingleTupleTableSlot(RelationGetDescr(table->relation), &TTSOpsVirtual);
	context = CreateStandaloneExprContext();
	memcpy(slot->tts_values, table->values, sizeof(Datum) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_isnull, table->nulls, sizeof(bool) * slot->tts_tupleDescriptor->natts);
	ExecStoreVirtualTuple(slot);
	context->ecxt_scantuple = slot;
	*holds = ExecQual(ExecInitQual(predicate, NULL), context);
	FreeExprContext(context, true);
	ExecDropSingleTupleTableSlot(slot);
	return true;
}

/* Reads what there is to know of an index; false when it needs more than the values of a row. */
static bool
heap_write_read_index(SasTable *table, Oid oid)
{
	Relation	relation = index_open(oid, RowExclusiveLock);
	SasTableIndex *index = palloc0(sizeof(SasTableIndex));
	IndexInfo  *info = BuildIndexInfo(relation);
	bool		holds = true;
	bool		fits;

	/* other access methods store more between two rows than this code may */
	fits = relation->rd_rel->relam == BTREE_AM_OID && info->ii_Expressions == NIL &&
		info->ii_ExclusionOps == NULL && info->ii_ReadyForInserts && relation->rd_index->indimmediate &&
		(info->ii_Predicate == NIL || heap_write_read_predicate(table, info->ii_Predicate, &holds));
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
		if (info->ii_IndexAttrNumbers[i] <= 0)
			fits = false;
	index->oid = oid;
	index->info = info;
	index->unique = relation->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO;
	index_close(relation, NoLock);
	/* an index that does not fit is listed, too, so that its change is noticed */
	if (holds || !fits)
		table->indexes = lappend(table->indexes, index);
	return fits;
}

/* Is there a trigger on INSERT, other than the one whose work the caller does? */
static bool
heap_write_has_insert_trigger(const TriggerDesc *t, const char *but)
{
	for (int i = 0; t != NULL && i < t->numtriggers; i++)
		if (TRIGGER_FOR_INSERT(t->triggers[i].tgtype) && (but == NULL || strcmp(t->triggers[i].tgname, but) != 0))
			return true;
	return false;
}

/* What there is to know of the table, which is open. */
static void
heap_write_read_table(SasTable *table)
{
	Relation	relation = table->relation;
	Form_pg_class class = RelationGetForm(relation);
	TupleConstr *constr = RelationGetDescr(relation)->constr;
	MemoryContext old;
	List	   *oids;
	ListCell   *cell;
	bool		fits;

	table->indexes = NIL;
	table->row = NULL;
	table->fits = false;
	MemoryContextReset(table->context);
	/* from here on a change is noticed */
	table->relid = RelationGetRelid(relation);
	if (class->relkind != RELKIND_RELATION || class->relpersistence != RELPERSISTENCE_PERMANENT ||
		relation->rd_tableam != GetHeapamTableAmRoutine() || class->relrowsecurity || class->relhasrules ||
		class->relispartition || heap_write_has_insert_trigger(relation->trigdesc, table->trigger) || (constr != NULL && constr->num_check > 0))
		return;
	old = MemoryContextSwitchTo(table->context);
	fits = heap_write_read_columns(table, RelationGetDescr(relation));
	if (fits && heap_write_find_offsets(table, RelationGetDescr(relation)))
	{
		for (int i = 0; i < table->n_given; i++)
			table->nulls[table->given[i] - 1] = false;
		table->row = heap_form_tuple(RelationGetDescr(relation), table->values, table->nulls);
		table->row->t_tableOid = table->relid;
	}
	oids = fits ? RelationGetIndexList(relation) : NIL;
	foreach(cell, oids)
		if (!heap_write_read_index(table, lfirst_oid(cell)))
			fits = false;
	MemoryContextSwitchTo(old);
	/* at last: after an error half-way SQL writes the rows */
	table->fits = fits;
}

/* --------------------------------------------------------------------- rows */

bool
sas_store_table_open(SasTable *table)
{
	ListCell   *cell;

	if (table->context == NULL)
	{
		if (heap_write_tables == NULL)
			CacheRegisterRelcacheCallback(heap_write_forget_tables, (Datum) 0);
		table->context = AllocSetContextCreate(CacheMemoryContext, "sas table", ALLOCSET_SMALL_SIZES);
		table->next = heap_write_tables;
		heap_write_tables = table;
	}
	table->relation = try_table_open(OidIsValid(table->relid) ? table->relid : get_relname_relid(table->name, get_namespace_oid("_sas", false)),
									 RowExclusiveLock);
	if (table->relation == NULL)
		return false;
	/* with the lock taken, no session changes it */
	if (!OidIsValid(table->relid))
		heap_write_read_table(table);
	if (!table->fits)
	{
		table_close(table->relation, NoLock);
		return false;
	}
	foreach(cell, table->indexes)
		((SasTableIndex *) lfirst(cell))->relation = NULL;
	return true;
}

/* An entry for the row that was written last. */
static void
heap_write_insert_into_index(SasTable *table, SasTableIndex *index, ItemPointer at)
{
	const IndexInfo *info = index->info;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	if (index->relation == NULL)
		index->relation = index_open(index->oid, RowExclusiveLock);
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		values[i] = table->values[info->ii_IndexAttrNumbers[i] - 1];
		nulls[i] = table->nulls[info->ii_IndexAttrNumbers[i] - 1];
	}
	index_insert(index->relation, values, nulls, at, table->relation, index->unique, false, index->info);
}

/* The last row with other values: two rows differ in nothing but these, and what heap_insert() sets. */
static void
heap_write_change_row(SasTable *table, const Datum *values)
{
	char	   *data = (char *) table->row->t_data + table->row->t_data->t_hoff;

	for (int i = 0; i < table->n_given; i++)
		store_att_byval(data + table->offsets[i], values[i], TupleDescAttr(RelationGetDescr(table->relation), table->given[i] - 1)->attlen);
}

void
sas_store_table_insert(SasTable *table, const Datum *values, const bool *nulls)
{
	HeapTuple	row = table->row;
	ListCell   *cell;

	for (int i = 0; i < table->n_given; i++)
	{
		table->values[table->given[i] - 1] = values[i];
		table->nulls[table->given[i] - 1] = nulls != NULL && nulls[i];
	}
	if (row != NULL && nulls == NULL)
		heap_write_change_row(table, values);
	else
	{
		row = heap_form_tuple(RelationGetDescr(table->relation), table->values, table->nulls);
		row->t_tableOid = RelationGetRelid(table->relation);
	}
	heap_insert(table->relation, row, GetCurrentCommandId(true), 0, NULL);
	foreach(cell, table->indexes)
		heap_write_insert_into_index(table, lfirst(cell), &row->t_self);
	if (row != table->row)
		heap_freetuple(row);
}

void
sas_store_table_close(SasTable *table)
{
	ListCell   *cell;

	foreach(cell, table->indexes)
	{
		SasTableIndex *index = lfirst(cell);

		if (index->relation != NULL)
			index_close(index->relation, NoLock);
	}
	table_close(table->relation, NoLock);
}
