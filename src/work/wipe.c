/* SPDX-License-Identifier: PostgreSQL */
/*
 * wipe.c: removes what the functions of one owner left in the session.
 *
 * Dropping an object takes locks until the end of its transaction.  Functions
 * may leave more temporary objects, commit by commit, than the lock table of
 * the server has room for, so they are dropped in batches.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "work/connections.h"
#include "work/wipe.h"

/* objects that are dropped in one transaction */
#define WIPE_BATCH 100
/* errors in a row after which the worker ends */
#define WIPE_GIVE_UP_AFTER 5

static int	wipe_errors = 0;	/* in a row */

static void
wipe_begin(void)
{
	StartTransactionCommand();
	/* rows of the catalog may be toasted */
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
wipe_commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* The younger first: an object depends on older ones. */
static int
wipe_compare(const ListCell *a, const ListCell *b)
{
	Oid			oid_a = ((ObjectAddress *) lfirst(a))->objectId;
	Oid			oid_b = ((ObjectAddress *) lfirst(b))->objectId;

	return oid_a < oid_b ? 1 : oid_a > oid_b ? -1 : 0;
}

/* The objects of this schema, in the memory context of the caller. */
static List *
wipe_find(Oid namespace, MemoryContext context)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *objects = NIL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(namespace));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);
		ObjectAddress *object = palloc(sizeof(ObjectAddress));

		ObjectAddressSet(*object, row->classid, row->objid);
		objects = lappend(objects, object);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	list_sort(objects, wipe_compare);
	MemoryContextSwitchTo(old);
	return objects;
}

/* Can it be dropped by itself?  Not if it is gone, nor as a part of another object. */
static bool
wipe_stands_alone(const ObjectAddress *object, Oid namespace)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	bool		exists = false;
	bool		part = false;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object->classId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object->objectId));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = (Form_pg_depend) GETSTRUCT(tuple);

		exists |= row->refclassid == NamespaceRelationId && row->refobjid == namespace;
		part |= row->deptype != DEPENDENCY_NORMAL && row->deptype != DEPENDENCY_AUTO;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return exists && !part;
}

/* Drops them, all but the last batch; how many there were. */
static int
wipe_temporary_objects(Oid namespace)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *objects;
	int			n;

	wipe_begin();
	objects = wipe_find(namespace, context);
	wipe_commit();
	n = list_length(objects);
	/* the last batch is left to the server */
	for (int next = 0; list_length(objects) - next > WIPE_BATCH; next += WIPE_BATCH)
	{
		ObjectAddresses *batch;

		wipe_begin();
		batch = new_object_addresses();
		for (int i = next; i < next + WIPE_BATCH; i++)
		{
			ObjectAddress *object = list_nth(objects, i);

			if (wipe_stands_alone(object, namespace))
				add_exact_object_address(object, batch);
		}
		performMultipleDeletions(batch, DROP_CASCADE,
								 PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY | PERFORM_DELETION_SKIP_EXTENSIONS);
		free_object_addresses(batch);
		wipe_commit();
		MemoryContextSwitchTo(context);
	}
	list_free_deep(objects);
	return n;
}

/* A worker that fails at this again and again would carry out nothing. */
static void
wipe_count_try(void)
{
	if (wipe_errors++ >= WIPE_GIVE_UP_AFTER)
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("worker could not remove what functions left in its session"),
				 errdetail("Another worker with a new session takes its place.")));
}

/* A seed that an owner has set would tell it the random numbers of the next one. */
static void
wipe_seed(void)
{
	uint32		bits;

	if (!pg_strong_random(&bits, sizeof(bits)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	(void) DirectFunctionCall1(setseed, Float8GetDatum((double) bits / PG_UINT32_MAX * 2 - 1));
}

void
sas_work_wipe_session(void)
{
	Oid			namespace;
	Oid			toast;

	wipe_count_try();
	wipe_begin();
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	LockReleaseAll(USER_LOCKMETHOD, true);
	sas_work_close_connections();
	wipe_commit();
	GetTempNamespaceState(&namespace, &toast);
	if (OidIsValid(namespace))
		(void) wipe_temporary_objects(namespace);
	wipe_begin();
	ResetTempTableNamespace();
	ResetSequenceCaches();
	wipe_seed();
	wipe_commit();
	wipe_errors = 0;
}

void
sas_work_wipe_temporary(void)
{
	Oid			namespace;
	Oid			toast;

	GetTempNamespaceState(&namespace, &toast);
	if (!OidIsValid(namespace))
		return;
	wipe_count_try();
	if (wipe_temporary_objects(namespace) > 0)
	{
		wipe_begin();
		ResetTempTableNamespace();
		wipe_commit();
	}
	wipe_errors = 0;
}
