/* SPDX-License-Identifier: PostgreSQL */
/*
 * exclusion.c: a session excludes workers from a database for a while.
 *
 * Exclusions are entries in shared memory. A worker checks them when it
 * attaches, and then loses its slot; the launcher checks them before it
 * starts a worker. The entry is made before workers are stopped, so no
 * worker slips in after the check. A session that dies removes its entries
 * in its exit callback; a crash removes all. An exclusion that finds no room
 * is of all databases: no worker starts in any until it ends.
 *
 * A worker that is this session itself (a function step that drops the
 * extension) is not stopped.
 */
#include "postgres.h"

#include <signal.h>

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "limits/quotas.h"
#include "worker/exclusion.h"
#include "worker/request.h"
#include "worker/shmem.h"

#define EXCLUSION_WAIT_MS 10000

typedef struct SasExclusion
{
	Oid			dboid;
	int			pid;			/* of the session */
} SasExclusion;

/* Only the session ends its exclusion, even if the database is dropped. */
static bool
exclusion_forget(void *entry)
{
	return false;
}

static SasSharedTable exclusion_table = {
	.name = "exclusions",.setting = "sas.max_exclusions",.capacity = &sas_base_max_exclusions,
	.key_size = sizeof(SasExclusion),.entry_size = sizeof(SasExclusion),
	.extra_size = sizeof(int),	/* exclusions of all databases */
	.forget = exclusion_forget
};

/* How many exclusions this process has, and how many of them are for all databases. */
static int	exclusion_n_mine = 0;
static int	exclusion_n_everywhere = 0;

/* The database whose entry stays when a transaction ends. */
static Oid	exclusion_lasting = InvalidOid;

void
sas_worker_exclusion_install(void)
{
	sas_base_table_register(&exclusion_table);
}

bool
sas_worker_exclusion_mine(void)
{
	return exclusion_n_mine > 0;
}

int
sas_worker_excluded_by(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	SasExclusion *e;
	int			pid = 0;

	if (sas_worker_shmem == NULL)
		return 0;
	sas_base_table_lock(&exclusion_table, LW_SHARED);
	hash_seq_init(&scan, exclusion_table.entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		if (e->dboid == dboid)
			pid = e->pid;
	sas_base_table_unlock(&exclusion_table);
	return pid;
}

bool
sas_worker_exclusion_active(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	SasExclusion *e;
	bool		excluded;

	sas_base_table_lock(&exclusion_table, LW_SHARED);
	excluded = *(int *) exclusion_table.extra > 0;
	hash_seq_init(&scan, exclusion_table.entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		excluded |= e->dboid == dboid;
	sas_base_table_unlock(&exclusion_table);
	return excluded;
}

static void
exclusion_exit(int code, Datum arg)
{
	sas_worker_exclusion_end_all();
}

static void
exclusion_enter(Oid dboid)
{
	SasExclusion mine = {dboid, MyProcPid};

	sas_base_table_lock(&exclusion_table, LW_EXCLUSIVE);
	if (sas_base_table_find(&exclusion_table, &mine) == NULL)
	{
		exclusion_n_mine++;
		if (sas_base_table_enter(&exclusion_table, &mine) == NULL)
		{
			exclusion_n_everywhere++;
			++*(int *) exclusion_table.extra;
		}
	}
	sas_base_table_unlock(&exclusion_table);
}

/*
 * With the lock held: stops the workers and the probe of that database,
 * writes their pids, and returns how many there are.
 */
static int
exclusion_stop_workers(Oid dboid, int *pids)
{
	int			n = 0;

	for (int i = 0; i < sas_worker_shmem->capacity; i++)
	{
		SasSlot    *slot = &sas_worker_shmem->slots[i];

		if (slot->state == SAS_SLOT_FREE || slot->dboid != dboid || slot->pid == MyProcPid)
			continue;
		if (slot->state == SAS_SLOT_STARTING)
		{
			slot->state = SAS_SLOT_FREE;
			continue;
		}
		if (slot->state != SAS_SLOT_EXITED)
		{
			slot->state = SAS_SLOT_STOPPING;
			kill(slot->pid, SIGTERM);
		}
		pids[n++] = slot->pid;
	}
	return n;
}

/* Whether one of these processes is still counted as a user of a database. */
static bool
exclusion_any_alive(const int *pids, int n)
{
	for (int i = 0; i < n; i++)
		if (BackendPidGetProc(pids[i]) != NULL)
			return true;
	return false;
}

static void
exclusion_wait(Oid dboid, const int *pids, int n)
{
	int64		until = sas_base_clock_monotonic_us() + EXCLUSION_WAIT_MS * INT64CONST(1000);
	long		pause_ms = 1;

	while (exclusion_any_alive(pids, n))
	{
		CHECK_FOR_INTERRUPTS();
		if (sas_base_clock_monotonic_us() > until)
		{
			char	   *name = get_database_name(dboid);

			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("sas workers in database \"%s\" did not stop within %d s",
							name ? name : "?", EXCLUSION_WAIT_MS / 1000)));
			return;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause_ms,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		pause_ms = Min(pause_ms * 2, 20);
	}
}

void
sas_worker_exclusion_begin(Oid dboid)
{
	static bool registered = false;
	int		   *pids;
	int			n;

	if (sas_worker_shmem == NULL)
		return;
	if (!registered)
		before_shmem_exit(exclusion_exit, (Datum) 0);
	registered = true;
	pids = palloc(sas_worker_shmem->capacity * sizeof(int));
	exclusion_enter(dboid);
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	n = exclusion_stop_workers(dboid, pids);
	LWLockRelease(&sas_worker_shmem->lock);
	exclusion_wait(dboid, pids, n);
	pfree(pids);
}

void
sas_worker_exclusion_keep(void)
{
	exclusion_lasting = MyDatabaseId;
	sas_worker_exclusion_begin(MyDatabaseId);
}

void
sas_worker_exclusion_end_transaction(void)
{
	int			before = exclusion_n_mine;
	HASH_SEQ_STATUS scan;
	SasExclusion *e;

	if (exclusion_n_mine == 0)
		return;
	sas_base_table_lock(&exclusion_table, LW_EXCLUSIVE);
	hash_seq_init(&scan, exclusion_table.entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		if (e->pid == MyProcPid && e->dboid != exclusion_lasting)
		{
			sas_base_table_remove(&exclusion_table, e);
			exclusion_n_mine--;
		}
	/* which of them lasts is not known: all do */
	if (!OidIsValid(exclusion_lasting))
	{
		*(int *) exclusion_table.extra -= exclusion_n_everywhere;
		exclusion_n_mine -= exclusion_n_everywhere;
		exclusion_n_everywhere = 0;
	}
	sas_base_table_unlock(&exclusion_table);
	if (exclusion_n_mine < before)
		sas_worker_request_wake();
}

/* What a session has restored may be a copy that must not call out. */
void
sas_worker_exclusion_end_all(void)
{
	if (OidIsValid(exclusion_lasting))
	{
		sas_worker_request_probe(exclusion_lasting);
		sas_limits_quota_note(SAS_QUOTA_DOUBT);
	}
	exclusion_lasting = InvalidOid;
	sas_worker_exclusion_end_transaction();
}
