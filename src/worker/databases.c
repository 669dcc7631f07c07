/* SPDX-License-Identifier: PostgreSQL */
/*
 * databases.c: the launcher's table of databases.
 *
 * pg_database says which databases there are. The registry says where
 * workers run already: a restarted launcher finds them there. A probe says
 * where the extension is.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "worker/databases.h"

static HTAB *databases_table = NULL;
static MemoryContext databases_context = NULL;

void
sas_worker_databases_init(MemoryContext context)
{
	HASHCTL		control = {0};

	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(SasDatabase);
	control.hcxt = context;
	databases_context = context;
	databases_table = hash_create("sas databases", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* One that is not in pg_database stays unlisted: it gets no workers. */
SasDatabase *
sas_worker_databases_get(Oid oid)
{
	bool		found;
	SasDatabase *database = hash_search(databases_table, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(database, 0, sizeof(SasDatabase));
		database->oid = oid;
		database->probe = true;
	}
	return database;
}

void
sas_worker_databases_remove(SasDatabase *database)
{
	if (database->slots)
		pfree(database->slots);
	hash_search(databases_table, &database->oid, HASH_REMOVE, NULL);
}

SasWorkerSlot *
sas_worker_databases_slot(SasDatabase *database, int actor, int index)
{
	if (actor == SAS_PROBE)
		return &database->prober;
	if (database->slots == NULL)
		database->slots = MemoryContextAllocZero(databases_context,
												 SAS_ACTORS * SAS_MAX_WORKERS * sizeof(SasWorkerSlot));
	return &database->slots[actor * SAS_MAX_WORKERS + index];
}

int
sas_worker_databases_list(SasDatabase ***list)
{
	HASH_SEQ_STATUS status;
	SasDatabase *database;
	int			n = 0;

	*list = palloc(Max(hash_get_num_entries(databases_table), 1) * sizeof(SasDatabase *));
	hash_seq_init(&status, databases_table);
	while ((database = hash_seq_search(&status)) != NULL)
		(*list)[n++] = database;
	return n;
}

void
sas_worker_databases_probe(Oid oid)
{
	SasDatabase *database = sas_worker_databases_get(oid);

	database->probe = true;
	database->prober.not_before_us = 0;
	database->prober.pause_ms = 0;
}

void
sas_worker_databases_probe_all(void)
{
	SasDatabase **list;
	int			n = sas_worker_databases_list(&list);

	for (int i = 0; i < n; i++)
		list[i]->probe = true;
	pfree(list);
}

static void
databases_note(Form_pg_database form)
{
	SasDatabase *database;

	if (!form->datallowconn || !SAS_COMPAT_DATABASE_VALID(form) ||
		strcmp(NameStr(form->datname), "template0") == 0)
		return;
	database = sas_worker_databases_get(form->oid);
	database->listed = true;
	database->name = form->datname;
}

void
sas_worker_databases_scan(void)
{
	MemoryContext context = CurrentMemoryContext;
	SasDatabase **list;
	int			n = sas_worker_databases_list(&list);
	Relation	relation;
	TableScanDesc scan;
	HeapTuple	tuple;

	for (int i = 0; i < n; i++)
		list[i]->listed = false;
	pfree(list);

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		databases_note((Form_pg_database) GETSTRUCT(tuple));
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	pgstat_report_stat(true);
	MemoryContextSwitchTo(context);
	/* a wait for a lock resets the latch: what came meanwhile is looked for in another tick */
	SetLatch(MyLatch);
}
