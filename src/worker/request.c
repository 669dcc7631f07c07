/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.c: notes for the launcher.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "worker/board.h"
#include "worker/request.h"

/* With the lock held. */
static void
sas_request_ring(void)
{
	if (sas_board->launcher_latch != NULL)
		SetLatch(sas_board->launcher_latch);
}

void
sas_request_wake(void)
{
	if (sas_board == NULL)
		return;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	sas_request_ring();
	LWLockRelease(&sas_board->lock);
}

void
sas_request_rescan(void)
{
	if (sas_board == NULL)
		return;
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	sas_board->rescan = true;
	sas_request_ring();
	LWLockRelease(&sas_board->lock);
}

void
sas_request_probe(Oid dboid)
{
	bool		noted = false;

	if (sas_board == NULL)
		return;
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_board->nprobes && !noted; i++)
		noted = sas_board->probes[i] == dboid;
	if (noted)
		 /* asked already */ ;
	else if (sas_board->nprobes < SAS_MAX_REQUESTS)
		sas_board->probes[sas_board->nprobes++] = dboid;
	else
		sas_board->probe_all = true;
	sas_request_ring();
	LWLockRelease(&sas_board->lock);
}

/* ---------------------------------------------------------------- launcher */

static void
sas_request_exit(int code, Datum arg)
{
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	sas_board->launcher.pid = 0;
	sas_board->launcher_latch = NULL;
	LWLockRelease(&sas_board->lock);
}

void
sas_request_serve(void)
{
	before_shmem_exit(sas_request_exit, (Datum) 0);
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	sas_board->launcher.pid = MyProcPid;
	sas_board->launcher_latch = MyLatch;
	LWLockRelease(&sas_board->lock);
}

/* probes has room for SAS_MAX_REQUESTS. */
bool
sas_request_take(Oid *probes, int *nprobes, bool *all, bool *rescan)
{
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	*nprobes = sas_board->nprobes;
	memcpy(probes, sas_board->probes, sas_board->nprobes * sizeof(Oid));
	*all = sas_board->probe_all;
	*rescan = sas_board->rescan;
	sas_board->nprobes = 0;
	sas_board->probe_all = sas_board->rescan = false;
	LWLockRelease(&sas_board->lock);
	return *nprobes > 0 || *all || *rescan;
}

void
sas_request_report(int slots_missing)
{
	if (sas_board->launcher.slots_missing == slots_missing)
		return;
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	if (slots_missing == 0)
		sas_board->launcher.missing_since = 0;
	else if (sas_board->launcher.slots_missing == 0)
		sas_board->launcher.missing_since = GetCurrentTimestamp();
	sas_board->launcher.slots_missing = slots_missing;
	LWLockRelease(&sas_board->lock);
}

void
sas_request_probed(void)
{
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	sas_board->launcher.probed_at = GetCurrentTimestamp();
	LWLockRelease(&sas_board->lock);
}
