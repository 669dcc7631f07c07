/* SPDX-License-Identifier: PostgreSQL */
/*
 * exclusion.c: a session excludes workers from a database for a while.
 *
 * Exclusions are entries in shared memory. A worker checks them when it
 * attaches, and then loses its slot; the launcher checks them before it
 * starts a worker. The entry is made before workers are stopped, so no
 * worker slips in after the check. A session that dies removes its entries
 * in its exit callback; a crash removes all.
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
#include "worker/exclusion.h"
#include "worker/request.h"
#include "worker/shmem.h"

#define EXCLUSION_WAIT_MS 10000

/* Entries of this process. */
static int	exclusion_n_mine = 0;

/* The database whose entry stays when a transaction ends. */
static Oid	exclusion_lasting = InvalidOid;

bool
sas_worker_exclusion_mine(void)
{
	return exclusion_n_mine > 0;
}

bool
sas_worker_is_excluded(Oid dboid)
{
	for (int i = 0; i < SAS_MAX_EXCLUSIONS; i++)
		if (sas_worker_shmem->exclusions[i].pid != 0 && sas_worker_shmem->exclusions[i].dboid == dboid)
			return true;
	return false;
}

bool
sas_worker_exclusion_active(Oid dboid)
{
	bool		excluded;

	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	excluded = sas_worker_is_excluded(dboid);
	LWLockRelease(&sas_worker_shmem->lock);
	return excluded;
}

static void
exclusion_exit(int code, Datum arg)
{
	sas_worker_exclusion_end_all();
}

/* With the lock held: makes the entry; false when there is no room. */
static bool
exclusion_enter(Oid dboid)
{
	SasExclusion *free_entry = NULL;

	for (int i = 0; i < SAS_MAX_EXCLUSIONS; i++)
	{
		SasExclusion *exclusion = &sas_worker_shmem->exclusions[i];

		if (exclusion->pid == MyProcPid && exclusion->dboid == dboid)
			return true;
		if (exclusion->pid == 0 && free_entry == NULL)
			free_entry = exclusion;
	}
	if (free_entry == NULL)
		return false;
	free_entry->dboid = dboid;
	free_entry->pid = MyProcPid;
	exclusion_n_mine++;
	return true;
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
	int			n = 0;

	if (sas_worker_shmem == NULL)
		return;
	if (!registered)
		before_shmem_exit(exclusion_exit, (Datum) 0);
	registered = true;
	pids = palloc(sas_worker_shmem->capacity * sizeof(int));
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	if (exclusion_enter(dboid))
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
	int			ended = 0;

	if (exclusion_n_mine == 0)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_MAX_EXCLUSIONS; i++)
		if (sas_worker_shmem->exclusions[i].pid == MyProcPid && sas_worker_shmem->exclusions[i].dboid != exclusion_lasting)
		{
			sas_worker_shmem->exclusions[i].pid = 0;
			ended++;
		}
	LWLockRelease(&sas_worker_shmem->lock);
	exclusion_n_mine -= ended;
	if (ended > 0)
		sas_worker_request_wake();
}

void
sas_worker_exclusion_end_all(void)
{
	exclusion_lasting = InvalidOid;
	sas_worker_exclusion_end_transaction();
}
