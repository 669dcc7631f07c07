/* SPDX-License-Identifier: PostgreSQL */
/*
 * sas.c: what happens when the library is loaded.
 *
 * By shared_preload_libraries: settings, shared memory, hooks, and the
 * launcher, which starts everything else.  By a session: the settings only;
 * the functions work, and what is submitted waits for a server that has the
 * library preloaded.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "agent/agent.h"
#include "api/deferred.h"
#include "api/event_triggers.h"
#include "api/notes.h"
#include "api/open_runs.h"
#include "api/owned.h"
#include "api/stored_values.h"
#include "base/place.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "function/batch_size.h"
#include "function/function.h"
#include "limits/limits.h"
#include "limits/owners.h"
#include "limits/quotas.h"
#include "metrics/metrics.h"
#include "scheduler/scheduler.h"
#include "store/planner_jit.h"
#include "supervisor/supervisor.h"
#include "wake/wakeup.h"
#include "worker/launcher.h"
#include "worker/lifecycle.h"
#include "worker/loop.h"
#include "worker/registry.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static shmem_request_hook_type sas_previous_shmem_request_hook = NULL;
static shmem_startup_hook_type sas_previous_shmem_startup_hook = NULL;

static void
sas_request_shmem(void)
{
	if (sas_previous_shmem_request_hook)
		sas_previous_shmem_request_hook();
	RequestAddinShmemSpace(sas_worker_registry_shmem_size());
	RequestAddinShmemSpace(sas_wake_shmem_size());
	RequestAddinShmemSpace(sas_base_tables_shmem_size());
	RequestAddinShmemSpace(sas_function_batch_shmem_size());
}

static void
sas_startup_shmem(void)
{
	if (sas_previous_shmem_startup_hook)
		sas_previous_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	sas_worker_registry_shmem_init();
	sas_wake_shmem_init();
	sas_base_tables_shmem_init();
	sas_function_batch_shmem_init();
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	sas_base_settings_define();
	sas_api_deferred_install();
	sas_api_event_triggers_install();
	if (!process_shared_preload_libraries_in_progress)
		return;

	sas_base_place_note();
	sas_previous_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = sas_request_shmem;
	sas_previous_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = sas_startup_shmem;

	sas_wake_install();
	sas_metrics_install();
	sas_store_planner_jit_install();
	sas_limits_install();
	sas_limits_owners_install();
	sas_limits_quotas_install();
	sas_worker_lifecycle_install();
	sas_api_owned_install();
	sas_api_open_runs_install();
	sas_api_notes_install();
	sas_api_stored_values_install();
	sas_worker_set_methods(SAS_SCHEDULER, &sas_scheduler_methods);
	sas_worker_set_methods(SAS_AGENT, &sas_agent_methods);
	sas_worker_set_methods(SAS_FUNCTION, &sas_function_methods);
	sas_worker_set_methods(SAS_SUPERVISOR, &sas_supervisor_methods);

	/* pg_upgrade moves the tables; no worker may change them meanwhile. */
	if (!IsBinaryUpgrade)
		sas_worker_launcher_register();
}
