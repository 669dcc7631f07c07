/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.c: notes for the launcher.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "worker/request.h"
#include "worker/shmem.h"

/* With the lock held. */
static void
worker_request_set_latch(void)
{
	if (sas_worker_shmem->launcher_latch != NULL)
		SetLatch(sas_worker_shmem->launcher_latch);
}

void
sas_worker_request_wake(void)
{
	if (sas_worker_shmem == NULL)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	worker_request_set_latch();
	LWLockRelease(&sas_worker_shmem->lock);
}

void
sas_worker_request_rescan(void)
{
	if (sas_worker_shmem == NULL)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	sas_worker_shmem->rescan = true;
	worker_request_set_latch();
	LWLockRelease(&sas_worker_shmem->lock);
}

void
sas_worker_request_probe(Oid dboid)
{
	bool		noted = false;

	if (sas_worker_shmem == NULL)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_worker_shmem->nprobes && !noted; i++)
		noted = sas_worker_shmem->probes[i] == dboid;
	if (noted)
		 /* asked already */ ;
	else if (sas_worker_shmem->nprobes < SAS_MAX_REQUESTS)
		sas_worker_shmem->probes[sas_worker_shmem->nprobes++] = dboid;
	else
		sas_worker_shmem->probe_all = true;
	worker_request_set_latch();
	LWLockRelease(&sas_worker_shmem->lock);
}

/* ---------------------------------------------------------------- launcher */

static void
worker_request_exit(int code, Datum arg)
{
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	sas_worker_shmem->launcher.pid = 0;
	sas_worker_shmem->launcher_latch = NULL;
	LWLockRelease(&sas_worker_shmem->lock);
}

void
sas_worker_request_serve(void)
{
	before_shmem_exit(worker_request_exit, (Datum) 0);
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	sas_worker_shmem->launcher.pid = MyProcPid;
	sas_worker_shmem->launcher_latch = MyLatch;
	LWLockRelease(&sas_worker_shmem->lock);
}

/* probes has room for SAS_MAX_REQUESTS. */
bool
sas_worker_request_take(Oid *probes, int *nprobes, bool *all, bool *rescan)
{
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	*nprobes = sas_worker_shmem->nprobes;
	memcpy(probes, sas_worker_shmem->probes, sas_worker_shmem->nprobes * sizeof(Oid));
	*all = sas_worker_shmem->probe_all;
	*rescan = sas_worker_shmem->rescan;
	sas_worker_shmem->nprobes = 0;
	sas_worker_shmem->probe_all = sas_worker_shmem->rescan = false;
	LWLockRelease(&sas_worker_shmem->lock);
	return *nprobes > 0 || *all || *rescan;
}

void
sas_worker_request_report(int slots_missing)
{
	if (sas_worker_shmem->launcher.slots_missing == slots_missing)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	if (slots_missing == 0)
		sas_worker_shmem->launcher.missing_since = 0;
	else if (sas_worker_shmem->launcher.slots_missing == 0)
		sas_worker_shmem->launcher.missing_since = GetCurrentTimestamp();
	sas_worker_shmem->launcher.slots_missing = slots_missing;
	LWLockRelease(&sas_worker_shmem->lock);
}

void
sas_worker_request_probed(void)
{
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	sas_worker_shmem->launcher.probed_at = GetCurrentTimestamp();
	LWLockRelease(&sas_worker_shmem->lock);
}
