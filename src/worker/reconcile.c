/* SPDX-License-Identifier: PostgreSQL */
/*
 * reconcile.c: decides which workers are stopped and which are started.
 *
 * The launcher has a slot for each worker: (database, actor, index). Each
 * tick takes a snapshot of the registry and compares every slot with it:
 * either its process is still busy, or the slot is vacant, and then it has a
 * time from which it may be filled again. The tick fills each slot that is
 * vacant, wanted and due.
 *
 * Pauses: none after an orderly exit. After a failure 100 ms, doubling up to
 * eight seconds; from 100 ms again once a worker has lived for a minute. When
 * the server has no process slot left, all that is due waits until a process
 * ends, or for a pause of one to five seconds.
 *
 * A worker that is too many leaves after ten seconds, once it holds nothing.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/settings.h"
#include "wake/wakeup.h"
#include "worker/databases.h"
#include "worker/exclusion.h"
#include "worker/reconcile.h"
#include "worker/request.h"
#include "worker/session.h"
#include "worker/shmem.h"
#include "worker/tick.h"
#include "worker/wanted.h"

#define PAUSE_MS 100
#define PAUSE_MAX_MS (8 * 1000)
#define FULL_PAUSE_MS 1000
#define FULL_PAUSE_MAX_MS (5 * 1000)
#define SURPLUS_US INT64CONST(10000000)
#define STARTING_PAUSE_MS 100
#define WARN_AGAIN_US INT64CONST(60000000)

/* The picture of one tick. */
static int64 reconcile_now_us;
static int64 reconcile_next_us;	/* when to tick again; -1: never */
static SasDatabase **reconcile_databases;
static int	reconcile_n_databases;
static bool reconcile_any_ended;
static bool reconcile_refused;	/* the server had no process slot */

/* From tick to tick. */
static bool reconcile_scan_wanted = true;
static int	reconcile_full_pause_ms = 0; /* 0: no process slot is missing */
static int64 reconcile_full_until_us = 0;
static bool reconcile_warned = false; /* and it is in the log */
static int64 reconcile_warned_us = -WARN_AGAIN_US;

static void
reconcile_again_at(int64 at_us)
{
	if (reconcile_next_us < 0 || at_us < reconcile_next_us)
		reconcile_next_us = at_us;
}

/* ---------------------------------------------------------------- workers that have ended */

/* After a failure the slot waits; after anything else it is filled again at once. */
static void
reconcile_note_exit(SasDatabase *database, SasWorkerSlot *slot, int actor, int index, SasExit reason)
{
	bool		failed = reason == SAS_EXIT_FAILED || reason == SAS_EXIT_RETIRED;

	reconcile_any_ended = true;
	if (actor == SAS_PROBE && (reason == SAS_EXIT_PRESENT || reason == SAS_EXIT_ABSENT))
	{
		database->presence = reason == SAS_EXIT_PRESENT ? SAS_PRESENCE_PRESENT : SAS_PRESENCE_ABSENT;
		sas_worker_request_probed();
	}
	else if (actor == SAS_PROBE || reason == SAS_EXIT_RETIRED)
		database->probe = true;
	if (reason == SAS_EXIT_FAILED)
		reconcile_scan_wanted = true;

	if (!failed || reconcile_now_us - slot->born_us > SAS_LONG_LIFE_US)
		slot->pause_ms = slot->failures = 0;
	slot->failures += failed;
	sas_worker_registry_trouble(database->oid, actor, index, slot->failures);
	if (failed)
		slot->pause_ms = slot->pause_ms > 0 ? Min(slot->pause_ms * 2, PAUSE_MAX_MS) : PAUSE_MS;
	slot->not_before_us = reconcile_now_us + slot->pause_ms * INT64CONST(1000);
}

static bool
reconcile_is_gone(const SasWorkerSlot *slot)
{
	pid_t		pid;

	return slot->handle == NULL || GetBackgroundWorkerPid(slot->handle, &pid) == BGWH_STOPPED;
}

/*
 * True when the slot is vacant. A process that has freed its entry in the
 * registry but still exists uses one of the server's process slots. A signal
 * announces its end, so there is nothing to time.
 */
static bool
reconcile_is_vacant(SasDatabase *database, SasWorkerSlot *slot, int actor, int index)
{
	SasExit		reason = SAS_EXIT_ORDERLY;

	if (slot->registered == NULL && slot->handle == NULL)
		return true;
	if (slot->registered != NULL &&
		(slot->registered->state == SAS_SLOT_RUNNING || slot->registered->state == SAS_SLOT_STOPPING))
		return false;
	if (!reconcile_is_gone(slot))
		return false;
	if (slot->registered != NULL)
	{
		reason = sas_worker_registry_release(slot->registered->worker_id);
		slot->registered = NULL;
	}
	if (slot->handle)
		pfree(slot->handle);
	slot->handle = NULL;
	reconcile_note_exit(database, slot, actor, index, reason);
	return true;
}

/* ---------------------------------------------------------------- workers to start */

static bool
reconcile_start_worker(SasDatabase *database, SasWorkerSlot *slot, int actor, int index)
{
	BackgroundWorker worker = {0};
	SasOrders	orders = {0};
	MemoryContext context;
	const char *kind;
	int			slot_number;
	bool		hired;

	slot_number = sas_worker_registry_reserve(database->oid, actor, index, &orders.worker_id);
	if (slot_number < 0)
		return false;
	orders.dboid = database->oid;
	orders.actor = actor;
	orders.index = index;

	kind = actor == SAS_PROBE ? "probe" : sas_base_actor_name(actor);
	snprintf(worker.bgw_type, BGW_MAXLEN, "sas %s", kind);
	snprintf(worker.bgw_name, BGW_MAXLEN, "sas %s %s", kind, NameStr(database->name));
	strlcpy(worker.bgw_library_name, "sas", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, actor == SAS_PROBE ? "sas_worker_probe_main" : "sas_worker_main",
			BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = Int32GetDatum(slot_number);
	memcpy(worker.bgw_extra, &orders, sizeof(orders));

	context = MemoryContextSwitchTo(TopMemoryContext);
	hired = RegisterDynamicBackgroundWorker(&worker, &slot->handle);
	MemoryContextSwitchTo(context);
	if (hired)
		slot->born_us = reconcile_now_us;
	else
	{
		slot->handle = NULL;
		sas_worker_registry_release(orders.worker_id);
	}
	return hired;
}

/*
 * Fills a vacant slot when it is due. Returns 1 when the server has no
 * process slot for it, so that the results can be added up.
 */
static int
reconcile_fill(SasDatabase *database, SasWorkerSlot *slot, int actor, int index)
{
	if (slot->not_before_us > reconcile_now_us)
	{
		reconcile_again_at(slot->not_before_us);
		return 0;
	}
	if (reconcile_refused || (reconcile_full_pause_ms > 0 && reconcile_now_us < reconcile_full_until_us && !reconcile_any_ended))
		return 1;
	reconcile_refused = !reconcile_start_worker(database, slot, actor, index);
	return reconcile_refused ? 1 : 0;
}

/* ---------------------------------------------------------------- the tick */

/*
 * An exclusion ends after its statement's requests are stored. It is read
 * before the requests, and again before a worker is started, so that a
 * dropped database never looks free and still present.
 */
static void
reconcile_read_exclusions(void)
{
	SasDatabase **list;
	int			n = sas_worker_databases_list(&list);

	for (int i = 0; i < n; i++)
		list[i]->excluded = sas_worker_exclusion_active(list[i]->oid);
}

static bool
reconcile_is_excluded(const SasDatabase *database)
{
	return database->excluded || sas_worker_exclusion_active(database->oid);
}

static void
reconcile_read_requests(void)
{
	Oid			probes[SAS_MAX_REQUESTS];
	int			nprobes;
	bool		all;
	bool		rescan;

	if (sas_worker_request_take(probes, &nprobes, &all, &rescan) && rescan)
		reconcile_scan_wanted = true;
	if (reconcile_scan_wanted)
		sas_worker_databases_scan();
	reconcile_scan_wanted = false;
	for (int i = 0; i < nprobes; i++)
		sas_worker_databases_probe(probes[i]);
	if (all)
		sas_worker_databases_probe_all();
}

/*
 * Logs a worker that does not end its tick, and wakes the supervisors of its
 * database, which report it. If it is one of them, only the log has it.
 */
static void
reconcile_note_stall(SasWorkerSlot *slot)
{
	const SasSlot *worker = slot->registered;

	if (!sas_worker_tick_stalled(worker, reconcile_now_us) || slot->stalled_tick_us == worker->tick_since_us)
		return;
	slot->stalled_tick_us = worker->tick_since_us;
	ereport(WARNING,
			(errmsg("sas %s with PID %d has been in one tick for %d seconds", sas_base_actor_name(worker->actor),
					worker->pid, (int) ((reconcile_now_us - worker->tick_since_us) / 1000000)),
			 errhint("See pg_stat_activity and pg_blocking_pids() for that process.")));
	sas_wake_actor(worker->dboid, SAS_SUPERVISOR);
}

/* A call that takes long: the supervisors of its database give what else the worker holds to others. */
static void
reconcile_note_long_call(SasWorkerSlot *slot)
{
	const SasSlot *worker = slot->registered;

	if (worker->long_call && !slot->long_call)
		sas_wake_actor(worker->dboid, SAS_SUPERVISOR);
	slot->long_call = worker->long_call;
}

/* Pairs the launcher's slots with the registry; a running worker proves that the extension is there. */
static void
reconcile_read_registry(void)
{
	SasSlot    *slots;
	int			n = sas_worker_registry_snapshot(&slots);

	reconcile_n_databases = sas_worker_databases_list(&reconcile_databases);
	for (int i = 0; i < reconcile_n_databases; i++)
	{
		reconcile_databases[i]->prober.registered = NULL;
		for (int p = 0; reconcile_databases[i]->slots != NULL && p < SAS_ACTORS * SAS_MAX_WORKERS; p++)
			reconcile_databases[i]->slots[p].registered = NULL;
	}
	for (int i = 0; i < n; i++)
	{
		SasDatabase *database = sas_worker_databases_get(slots[i].dboid);

		sas_worker_databases_slot(database, slots[i].actor, slots[i].index)->registered = &slots[i];
		reconcile_note_stall(sas_worker_databases_slot(database, slots[i].actor, slots[i].index));
		reconcile_note_long_call(sas_worker_databases_slot(database, slots[i].actor, slots[i].index));
		if (slots[i].actor != SAS_PROBE && slots[i].state == SAS_SLOT_RUNNING &&
			database->presence == SAS_PRESENCE_UNKNOWN)
		{
			database->presence = SAS_PRESENCE_PRESENT;
			database->probe = false;
		}
	}
	reconcile_n_databases = sas_worker_databases_list(&reconcile_databases);
}

/*
 * Handles a worker that is no longer wanted. If it occupies no place that
 * another one needs, it need not leave at once.
 */
static void
reconcile_let_go(SasDatabase *database, SasWorkerSlot *slot, int actor, int index)
{
	bool		extra = actor == SAS_FUNCTION && index < sas_base_function_workers_max && sas_worker_n_wanted(database, actor) > 0;

	if (!extra)
	{
		(void) sas_worker_registry_stop(slot->registered->worker_id);
		return;
	}
	if (slot->surplus_us == 0)
		slot->surplus_us = reconcile_now_us;
	if (reconcile_now_us - slot->surplus_us < SURPLUS_US)
		reconcile_again_at(slot->surplus_us + SURPLUS_US);
	else if (!slot->registered->dismissed)
	{
		sas_worker_registry_dismiss(slot->registered->worker_id);
		sas_wake_actor(database->oid, actor);
	}
}

/* One probe at a time in the whole server. */
static int
reconcile_probes(void)
{
	SasDatabase *next = NULL;

	for (int i = 0; i < reconcile_n_databases; i++)
	{
		SasDatabase *database = reconcile_databases[i];

		if (!reconcile_is_vacant(database, &database->prober, SAS_PROBE, 0))
			return 0;
		if (!database->probe || !database->listed || reconcile_is_excluded(database))
			continue;
		if (database->prober.not_before_us > reconcile_now_us)
			reconcile_again_at(database->prober.not_before_us);
		else if (next == NULL)
			next = database;
	}
	if (next == NULL)
		return 0;
	if (reconcile_fill(next, &next->prober, SAS_PROBE, 0) > 0)
		return 1;
	next->probe = false;
	return 0;
}

/*
 * Fills the slot of an actor at that index when it is vacant and wanted, and
 * stops its worker when it is not wanted.
 */
static int
reconcile_slot(SasDatabase *database, int actor, int index)
{
	SasWorkerSlot *slot = sas_worker_databases_slot(database, actor, index);
	bool		wanted = sas_worker_is_wanted(database, actor, index);
	int			missing = 0;

	if (wanted)
		slot->surplus_us = 0;
	if (reconcile_is_vacant(database, slot, actor, index))
	{
		if (wanted && !database->probe && database->prober.handle == NULL &&
			!reconcile_is_excluded(database))
			missing = reconcile_fill(database, slot, actor, index);
		/* one that takes another's place is not missing where there is no process slot for it */
		if (missing > 0 && index >= sas_worker_n_wanted(database, actor))
		{
			slot->not_before_us = reconcile_now_us + FULL_PAUSE_MS * INT64CONST(1000);
			reconcile_again_at(slot->not_before_us);
			reconcile_refused = false;
			missing = 0;
		}
	}
	else if (!wanted && slot->registered != NULL && slot->registered->state == SAS_SLOT_RUNNING)
		reconcile_let_go(database, slot, actor, index);
	/*
	 * a starting worker is asked to leave once it runs; it does not announce
	 * that, so the launcher looks again
	 */
	else if (!wanted && slot->registered != NULL && slot->registered->state == SAS_SLOT_STARTING)
		reconcile_again_at(reconcile_now_us + STARTING_PAUSE_MS * INT64CONST(1000));
	return missing;
}

/* An unlisted database is forgotten when no process is left in it. */
static void
reconcile_forget(SasDatabase *database)
{
	if (database->listed || database->prober.registered || database->prober.handle)
		return;
	for (int p = 0; database->slots != NULL && p < SAS_ACTORS * SAS_MAX_WORKERS; p++)
		if (database->slots[p].registered || database->slots[p].handle)
			return;
	sas_worker_databases_remove(database);
}

/* Logs that process slots are missing, once, and that they are there again. */
static void
reconcile_log(int missing)
{
	if (missing > 0 && !reconcile_warned && reconcile_now_us - reconcile_warned_us > WARN_AGAIN_US)
	{
		reconcile_warned = true;
		reconcile_warned_us = reconcile_now_us;
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no free process slot for %d sas workers", missing),
				 errdetail("The launcher tries again until a slot is free."),
				 errhint("Raise \"max_worker_processes\", or reduce the number of workers per database.")));
	}
	else if (missing == 0 && reconcile_warned)
	{
		reconcile_warned = false;
		ereport(LOG, (errmsg("all sas workers have a process slot again")));
	}
}

/* When to try again, and the number that sas.health() shows. */
static void
reconcile_report(int missing)
{
	reconcile_log(missing);
	if (missing == 0)
		reconcile_full_pause_ms = 0;
	else if (reconcile_refused)
	{
		reconcile_full_pause_ms = reconcile_full_pause_ms > 0 ? Min(reconcile_full_pause_ms * 2, FULL_PAUSE_MAX_MS) : FULL_PAUSE_MS;
		reconcile_full_until_us = reconcile_now_us + reconcile_full_pause_ms * INT64CONST(1000);
	}
	if (missing > 0)
		reconcile_again_at(reconcile_full_until_us);
	sas_worker_request_report(missing);
}

long
sas_worker_reconcile(void)
{
	int			missing;

	reconcile_now_us = sas_base_clock_monotonic_us();
	reconcile_next_us = -1;
	reconcile_any_ended = reconcile_refused = false;
	reconcile_read_exclusions();
	reconcile_read_requests();
	reconcile_read_registry();

	/*
	 * The first of every actor everywhere, before the second of any. The supervisor comes first, so that it has
	 * a slot where some find none: it tells of that in an alert, and takes back what others leave behind.
	 */
	missing = reconcile_probes();
	for (int index = 0; index < SAS_MAX_WORKERS; index++)
		for (int n = 0; n < SAS_ACTORS; n++)
		{
			SasActor	actor = (SAS_SUPERVISOR + n) % SAS_ACTORS;

			for (int i = 0; i < reconcile_n_databases; i++)
				if (reconcile_databases[i]->slots != NULL || index < sas_worker_n_wanted(reconcile_databases[i], actor))
					missing += reconcile_slot(reconcile_databases[i], actor, index);
		}
	for (int i = 0; i < reconcile_n_databases; i++)
		reconcile_forget(reconcile_databases[i]);
	reconcile_report(missing);

	if (reconcile_next_us < 0)
		return -1;
	return (long) Max((reconcile_next_us - sas_base_clock_monotonic_us() + 999) / 1000, 0);
}
