/* SPDX-License-Identifier: PostgreSQL */
/*
 * launcher.c: the process "sas launcher".
 *
 * The postmaster starts it once the server is out of recovery, and again
 * when it ends: it always ends with code 1. It is connected to no database,
 * so it blocks no DROP DATABASE. It sleeps until a request (request.h), the
 * end of a worker, a reload, or the end of a pause. When all workers run as
 * they should, it waits for no pause.
 *
 * The next launcher does not need its memory: it finds the running workers
 * in the registry and probes the other databases again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/place.h"
#include "worker/databases.h"
#include "worker/launcher.h"
#include "worker/reconcile.h"
#include "worker/registry.h"
#include "worker/request.h"
#include "worker/session.h"

void
sas_worker_launcher_register(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "sas launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sas launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "sas", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "sas_worker_launcher_main", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);
}

void
sas_worker_launcher_main(Datum arg)
{
	MemoryContext scratch;

	/* it does nothing that could be cancelled */
	pqsignal(SIGINT, SIG_IGN);
	sas_worker_session_signals();
	BackgroundWorkerInitializeConnectionByOid(InvalidOid, InvalidOid, 0);
	sas_worker_session_interruptible = true;
	sas_base_place_write();
	sas_worker_registry_forget_starting();
	sas_worker_request_serve();
	sas_worker_databases_init(AllocSetContextCreate(TopMemoryContext, "sas databases", ALLOCSET_DEFAULT_SIZES));
	scratch = AllocSetContextCreate(TopMemoryContext, "sas launcher tick", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		long		timeout;

		ResetLatch(MyLatch);
		if (sas_base_stopping)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextSwitchTo(scratch);
		timeout = sas_worker_reconcile();
		MemoryContextReset(scratch);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0),
						 timeout, PG_WAIT_EXTENSION);
	}
}
