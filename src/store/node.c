/* SPDX-License-Identifier: PostgreSQL */
/*
 * node.c: the number of this server among the nodes of a cluster.
 *
 * Citus keeps it in a table of its own, which is replicated: a promoted
 * standby goes on with the number of its primary. A trigger there announces a
 * change, so a session reads the table once.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "base/settings.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "store/node.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

static bool node_known = false;
static int	node_group;
static Oid	node_table;			/* InvalidOid: there is no Citus */

static void
node_relation_changed(Datum arg, Oid relid)
{
	/* where there is none, any new table may be it */
	if (relid == InvalidOid || relid == node_table || node_table == InvalidOid)
		node_known = false;
}

/* The one row of the table; 0: there is none yet. */
static int
node_read_group(void)
{
	Relation	relation = table_open(node_table, AccessShareLock);
	AttrNumber	column = get_attnum(node_table, "groupid");
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	row = systable_getnext(scan);
	bool		isnull = true;
	Datum		group = (Datum) 0;

	if (HeapTupleIsValid(row) && column != InvalidAttrNumber)
		group = heap_getattr(row, column, RelationGetDescr(relation), &isnull);
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return isnull ? 0 : DatumGetInt32(group);
}

static void
node_look(void)
{
	static bool listens = false;

	if (node_known)
		return;
	if (!listens)
		CacheRegisterRelcacheCallback(node_relation_changed, (Datum) 0);
	listens = true;
	node_known = true;
	node_table = get_relname_relid("pg_dist_local_group", PG_CATALOG_NAMESPACE);
	node_group = OidIsValid(node_table) ? node_read_group() : 0;
}

bool
sas_store_in_cluster(void)
{
	node_look();
	return OidIsValid(node_table);
}

int
sas_store_group_id(void)
{
	node_look();
	return node_group;
}

int
sas_store_node_id(void)
{
	if (sas_base_node_id >= 0)
		return sas_base_node_id;
	node_look();
	if (node_group < 0 || node_group >= SAS_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the group %d of this node is too large for a run id", node_group),
				 errhint("Set sas.node_id to a number from 0 to %d that no other node has.", SAS_NODES - 1)));
	return node_group;
}
