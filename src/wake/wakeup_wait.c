/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup_wait.c: sessions that wait for a run, in sas.wait().
 *
 * Each has an entry in shared memory: its database, its run and its latch.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "base/array.h"
#include "wake/wakeup_shmem.h"

/* The entry of this session. */
static SasWakeupWaiter *wakeup_wait_mine = NULL;

void
sas_wake_waiters(int64 *run_ids, int n)
{
	/* a session that registers after this check finds the run changed already */
	pg_memory_barrier();
	if (sas_wake_shmem->waiters_end == 0)
		return;
	qsort(run_ids, n, sizeof(int64), sas_base_compare_int64);
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->waiters_end; i++)
	{
		SasWakeupWaiter *w = &sas_wake_shmem->waiters[i];

		if (w->dboid == MyDatabaseId &&
			bsearch(&w->run_id, run_ids, n, sizeof(int64), sas_base_compare_int64))
		{
			pg_atomic_fetch_add_u32(&w->told, 1);
			SetLatch(w->latch);
		}
	}
	LWLockRelease(&sas_wake_shmem->lock);
}

static void
wakeup_wait_exit(int code, Datum arg)
{
	sas_wake_wait_end();
}

bool
sas_wake_wait_begin(int64 run_id)
{
	static bool registered = false;

	if (sas_wake_shmem == NULL)
		return false;
	if (!registered)
		before_shmem_exit(wakeup_wait_exit, (Datum) 0);
	registered = true;
	sas_wake_wait_end();
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_WAKE_WAITERS && wakeup_wait_mine == NULL; i++)
	{
		SasWakeupWaiter *w = &sas_wake_shmem->waiters[i];

		if (OidIsValid(w->dboid))
			continue;
		w->run_id = run_id;
		w->latch = MyLatch;
		w->dboid = MyDatabaseId;
		sas_wake_hurry(MyDatabaseId);
		sas_wake_shmem->waiters_end = Max(sas_wake_shmem->waiters_end, i + 1);
		wakeup_wait_mine = w;
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return wakeup_wait_mine != NULL;
}

void
sas_wake_wait_end(void)
{
	if (wakeup_wait_mine == NULL)
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	wakeup_wait_mine->dboid = InvalidOid;
	while (sas_wake_shmem->waiters_end > 0 && !OidIsValid(sas_wake_shmem->waiters[sas_wake_shmem->waiters_end - 1].dboid))
		sas_wake_shmem->waiters_end--;
	LWLockRelease(&sas_wake_shmem->lock);
	wakeup_wait_mine = NULL;
}

uint32
sas_wake_wait_told(void)
{
	return wakeup_wait_mine != NULL ? pg_atomic_read_u32(&wakeup_wait_mine->told) : 0;
}
