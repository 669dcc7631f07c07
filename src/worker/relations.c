/* SPDX-License-Identifier: PostgreSQL */
/*
 * relations.c: locks the tables, views and sequences of sas, all of them.
 *
 * A session inside sas keeps no order of tables.  One that locked them one by
 * one would wait for it while it waits for that one.  So a table that a session
 * has is waited for while no other is held; then the others are tried again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "storage/lmgr.h"

#include "worker/relations.h"

/* The tables, views and sequences of sas. */
static List *
relations_of_sas(void)
{
	Oid			internal = get_namespace_oid("_sas", true);
	Oid			public = get_namespace_oid("sas", true);
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(classes, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	List	   *oids = NIL;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if ((form->relnamespace == internal || form->relnamespace == public) &&
			(form->relkind == RELKIND_RELATION || form->relkind == RELKIND_VIEW || form->relkind == RELKIND_SEQUENCE ||
			 form->relkind == RELKIND_FOREIGN_TABLE))
			oids = lappend_oid(oids, form->oid);
	}
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
	return oids;
}

void
sas_worker_lock_relations(void)
{
	List	   *oids = relations_of_sas();
	Oid			waited = InvalidOid;

	for (;;)
	{
		Oid			taken = InvalidOid;
		int			n = 0;
		ListCell   *cell;

		foreach(cell, oids)
		{
			if (!ConditionalLockRelationOid(lfirst_oid(cell), AccessExclusiveLock))
			{
				taken = lfirst_oid(cell);
				break;
			}
			n++;
		}
		if (!OidIsValid(taken))
			return;
		for (int i = 0; i < n; i++)
			UnlockRelationOid(list_nth_oid(oids, i), AccessExclusiveLock);
		if (OidIsValid(waited))
			UnlockRelationOid(waited, AccessExclusiveLock);
		LockRelationOid(taken, AccessExclusiveLock);
		waited = taken;
	}
}
