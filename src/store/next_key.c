/* SPDX-License-Identifier: PostgreSQL */
/*
 * next_key.c: see next_key.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "store/next_key.h"

bool
sas_store_next_key(const SasKeySearch *search, Datum *found)
{
	Oid			schema = get_namespace_oid("_sas", false);
	Relation	table = table_open(get_relname_relid(search->table, schema), AccessShareLock);
	Relation	index = index_open(get_relname_relid(search->index, schema), AccessShareLock);
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool		any;
	bool		isnull;

	if (search->n == 1)
		ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, search->equal, search->prefix);
	ScanKeyInit(&keys[search->n], search->n + 1, BTGreaterStrategyNumber, search->greater, search->after);
	scan = sas_compat_index_beginscan(table, index, GetActiveSnapshot(), search->n + 1);
	scan->xs_want_itup = true;
	index_rescan(scan, keys, search->n + 1, NULL, 0);
	any = index_getnext_tid(scan, ForwardScanDirection) != NULL;
	if (any)
		*found = index_getattr(scan->xs_itup, search->n + 1, scan->xs_itupdesc, &isnull);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	return any;
}
