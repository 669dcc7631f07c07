/* SPDX-License-Identifier: PostgreSQL */
/*
 * ending.c: which runs another transaction is stopping at this moment.
 *
 * A dirty snapshot shows the versions of a row that transactions in progress
 * have written.  So a run that a session or a worker has only locked, or is
 * changing in another way, is told from one that it stops.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "store/ending.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static AttrNumber
ending_column(Relation run, const char *name)
{
	AttrNumber	number = get_attnum(RelationGetRelid(run), name);

	if (number == InvalidAttrNumber)
		elog(ERROR, "there is no column \"%s\" in _sas.run", name);
	return number;
}

void
sas_store_find_ending(const int64 *run_ids, int n, bool *ending)
{
	Oid			schema = get_namespace_oid("_sas", false);
	Relation	run = table_open(get_relname_relid("run", schema), AccessShareLock);
	AttrNumber	id = ending_column(run, "run_id");
	AttrNumber	state = ending_column(run, "state");
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	for (int i = 0; i < n; i++)
	{
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple	row;

		ending[i] = false;
		ScanKeyInit(&key, id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(run_ids[i]));
		scan = systable_beginscan(run, get_relname_relid("run_pkey", schema), true, &dirty, 1, &key);
		/* the version that is being replaced, and the one in its place */
		while (HeapTupleIsValid(row = systable_getnext(scan)))
		{
			bool		isnull;
			char	   *word = TextDatumGetCString(heap_getattr(row, state, RelationGetDescr(run), &isnull));

			ending[i] |= strcmp(word, "stopped") == 0;
			pfree(word);
		}
		systable_endscan(scan);
	}
	table_close(run, AccessShareLock);
}
