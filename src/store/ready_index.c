/* SPDX-License-Identifier: PostgreSQL */
/* ready_index.c: see ready_index.h. */
#include "postgres.h"

#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "store/ready_index.h"

void
sas_store_ready_open(SasReadyScan *s, LOCKMODE mode)
{
	Oid			schema = get_namespace_oid("_sas", false);

	memset(s, 0, sizeof(SasReadyScan));
	s->table = table_open(get_relname_relid("ready", schema), mode);
	s->index = index_open(get_relname_relid("ready_claim", schema), AccessShareLock);
	s->alone = get_attnum(RelationGetRelid(s->table), "alone");
	s->ready_at = get_attnum(RelationGetRelid(s->table), "ready_at");
	if (s->alone == InvalidAttrNumber || s->ready_at == InvalidAttrNumber)
		elog(ERROR, "a column of _sas.ready is missing");
	s->slot = table_slot_create(s->table, NULL);
	s->locked = table_slot_create(s->table, NULL);
}

void
sas_store_ready_end(SasReadyScan *s)
{
	if (s->scan != NULL)
		index_endscan(s->scan);
	s->scan = NULL;
	ExecClearTuple(s->slot);
	ExecClearTuple(s->locked);
}

void
sas_store_ready_close(SasReadyScan *s)
{
	ExecDropSingleTupleTableSlot(s->slot);
	ExecDropSingleTupleTableSlot(s->locked);
	index_close(s->index, NoLock);
	table_close(s->table, NoLock);
}

/* n keys: lane and owner, then either the rank, or the rank and the run. */
static void
ready_index_range(SasReadyScan *s, int n)
{
	if (s->scan != NULL)
		index_endscan(s->scan);
	s->scan = sas_compat_index_beginscan(s->table, s->index, GetActiveSnapshot(), n);
	s->scan->xs_want_itup = true;
	index_rescan(s->scan, s->keys, n, NULL, 0);
}

void
sas_store_ready_from(SasReadyScan *s, int lane, Oid owner, const SasReadyPlace *from)
{
	ScanKeyInit(&s->keys[0], 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane));
	ScanKeyInit(&s->keys[1], 2, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	s->higher = from->run_id == PG_INT64_MIN;
	if (s->higher)
	{
		ScanKeyInit(&s->keys[2], 3, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from->rank));
		ready_index_range(s, 3);
		return;
	}
	ScanKeyInit(&s->keys[2], 3, BTEqualStrategyNumber, F_TIMESTAMPTZ_EQ, TimestampTzGetDatum(from->rank));
	ScanKeyInit(&s->keys[3], 4, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from->run_id));
	ready_index_range(s, 4);
}

void
sas_store_ready_from_lanes(SasReadyScan *s, int first, int last)
{
	ScanKeyInit(&s->keys[0], 1, BTGreaterEqualStrategyNumber, F_INT4GE, Int32GetDatum(first));
	ScanKeyInit(&s->keys[1], 1, BTLessEqualStrategyNumber, F_INT4LE, Int32GetDatum(last));
	s->higher = true;
	ready_index_range(s, 2);
}

bool
sas_store_ready_next(SasReadyScan *s)
{
	bool		isnull;

	if (index_getnext_tid(s->scan, ForwardScanDirection) == NULL)
	{
		if (s->higher)
			return false;
		s->higher = true;
		ScanKeyInit(&s->keys[2], 3, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT, s->keys[2].sk_argument);
		ready_index_range(s, 3);
		if (index_getnext_tid(s->scan, ForwardScanDirection) == NULL)
			return false;
	}
	s->at.rank = DatumGetTimestampTz(index_getattr(s->scan->xs_itup, 3, s->scan->xs_itupdesc, &isnull));
	s->at.run_id = DatumGetInt64(index_getattr(s->scan->xs_itup, 4, s->scan->xs_itupdesc, &isnull));
	return true;
}
