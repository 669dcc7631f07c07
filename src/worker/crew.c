/* SPDX-License-Identifier: PostgreSQL */
/*
 * crew.c: the launcher's one decision: who is to be stopped, who to be started.
 *
 * A post is one worker's place: (database, actor, index).  Each tick takes a
 * snapshot of the registry, settles every post against it (still busy, or
 * vacant since somebody left, and then from when on it may be filled again),
 * and fills what is vacant, wanted and due.
 *
 * Pauses: none after an orderly exit; after a failure 100 ms, doubling up to a
 * minute, from the start again once a worker has lived for a minute.  When the
 * server has no process slot left, all that is due waits for somebody to
 * leave, or for a pause of one to thirty seconds.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "worker/board.h"
#include "worker/crew.h"
#include "worker/databases.h"
#include "worker/hold.h"
#include "worker/request.h"
#include "worker/session.h"

#define PAUSE_MS 100
#define PAUSE_MAX_MS (60 * 1000)
#define LONG_LIFE_US INT64CONST(60000000)
#define FULL_PAUSE_MS 1000
#define FULL_PAUSE_MAX_MS (30 * 1000)
#define SAY_AGAIN_US INT64CONST(60000000)

/* The picture of one tick. */
static int64 now_us;
static int64 next_us;			/* when to look again; -1: never */
static SasDatabase **bases;
static int	nbases;
static bool somebody_left;
static bool refused;			/* the server had no process slot */

/* From tick to tick. */
static bool scan_wanted = true;
static int	full_pause_ms = 0;	/* 0: no process slot is missing */
static int64 full_until_us = 0;
static bool said = false;		/* and it is in the log */
static int64 said_us = -SAY_AGAIN_US;

static void
sas_crew_look_again(int64 at_us)
{
	if (next_us < 0 || at_us < next_us)
		next_us = at_us;
}

/* ---------------------------------------------------------------- who left */

/* A failure makes the post wait, anything else fills it again at once. */
static void
sas_crew_note_exit(SasDatabase *database, SasPost *post, int actor, int index, SasExit reason)
{
	bool		failed = reason == SAS_EXIT_FAILED || reason == SAS_EXIT_RETIRED;

	somebody_left = true;
	if (actor == SAS_PROBE && (reason == SAS_EXIT_PRESENT || reason == SAS_EXIT_ABSENT))
	{
		database->presence = reason == SAS_EXIT_PRESENT ? SAS_PRESENCE_PRESENT : SAS_PRESENCE_ABSENT;
		sas_request_probed();
	}
	else if (actor == SAS_PROBE || reason == SAS_EXIT_RETIRED)
		database->probe = true;
	if (reason == SAS_EXIT_FAILED)
		scan_wanted = true;

	if (!failed || now_us - post->born_us > LONG_LIFE_US)
		post->pause_ms = post->failures = 0;
	post->failures += failed;
	sas_registry_trouble(database->oid, actor, index, post->failures);
	if (failed)
		post->pause_ms = post->pause_ms > 0 ? Min(post->pause_ms * 2, PAUSE_MAX_MS) : PAUSE_MS;
	post->not_before_us = now_us + post->pause_ms * INT64CONST(1000);
}

static bool
sas_crew_gone(const SasPost *post)
{
	pid_t		pid;

	return post->handle == NULL || GetBackgroundWorkerPid(post->handle, &pid) == BGWH_STOPPED;
}

/*
 * True when the post is vacant.  A process that has freed its slot but is not
 * gone yet still holds one of the server's process slots: its end is
 * announced by a signal, so there is nothing to time.
 */
static bool
sas_crew_settle(SasDatabase *database, SasPost *post, int actor, int index)
{
	SasExit		reason = SAS_EXIT_ORDERLY;

	if (post->slot == NULL && post->handle == NULL)
		return true;
	if (post->slot != NULL &&
		(post->slot->state == SAS_SLOT_RUNNING || post->slot->state == SAS_SLOT_STOPPING))
		return false;
	if (!sas_crew_gone(post))
		return false;
	if (post->slot != NULL)
	{
		reason = sas_registry_release(post->slot->worker_id);
		post->slot = NULL;
	}
	if (post->handle)
		pfree(post->handle);
	post->handle = NULL;
	sas_crew_note_exit(database, post, actor, index, reason);
	return true;
}

/* ---------------------------------------------------------------- who comes */

static bool
sas_crew_hire(SasDatabase *database, SasPost *post, int actor, int index)
{
	BackgroundWorker worker = {0};
	SasOrders	orders = {0};
	MemoryContext context;
	const char *kind;
	int			slot;
	bool		hired;

	slot = sas_registry_reserve(database->oid, actor, index, &orders.worker_id);
	if (slot < 0)
		return false;
	orders.dboid = database->oid;
	orders.actor = actor;
	orders.index = index;

	kind = actor == SAS_PROBE ? "probe" : sas_actor_name(actor);
	snprintf(worker.bgw_type, BGW_MAXLEN, "sas %s", kind);
	snprintf(worker.bgw_name, BGW_MAXLEN, "sas %s %s", kind, NameStr(database->name));
	strlcpy(worker.bgw_library_name, "sas", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, actor == SAS_PROBE ? "sas_probe_main" : "sas_worker_main",
			BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = Int32GetDatum(slot);
	memcpy(worker.bgw_extra, &orders, sizeof(orders));

	context = MemoryContextSwitchTo(TopMemoryContext);
	hired = RegisterDynamicBackgroundWorker(&worker, &post->handle);
	MemoryContextSwitchTo(context);
	if (hired)
		post->born_us = now_us;
	else
	{
		post->handle = NULL;
		sas_registry_release(orders.worker_id);
	}
	return hired;
}

/*
 * Fills a vacant post when it is due.  Returns 1 when the server has no
 * process slot for it, so that the answers can be added up.
 */
static int
sas_crew_fill(SasDatabase *database, SasPost *post, int actor, int index)
{
	if (post->not_before_us > now_us)
	{
		sas_crew_look_again(post->not_before_us);
		return 0;
	}
	if (refused || (full_pause_ms > 0 && now_us < full_until_us && !somebody_left))
		return 1;
	refused = !sas_crew_hire(database, post, actor, index);
	return refused ? 1 : 0;
}

/* ---------------------------------------------------------------- the tick */

/*
 * A hold ends after its statement's requests are noted.  Looking at the holds
 * before the requests, and again before a worker is started, leaves no moment
 * in which a dropped database looks free and still there.
 */
static void
sas_crew_holds(void)
{
	SasDatabase **list;
	int			n = sas_databases_list(&list);

	for (int i = 0; i < n; i++)
		list[i]->held = sas_hold_active(list[i]->oid);
}

static bool
sas_crew_held(const SasDatabase *database)
{
	return database->held || sas_hold_active(database->oid);
}

static void
sas_crew_requests(void)
{
	Oid			probes[SAS_MAX_REQUESTS];
	int			nprobes;
	bool		all;
	bool		rescan;

	if (sas_request_take(probes, &nprobes, &all, &rescan) && rescan)
		scan_wanted = true;
	if (scan_wanted)
		sas_databases_scan();
	scan_wanted = false;
	for (int i = 0; i < nprobes; i++)
		sas_databases_probe(probes[i]);
	if (all)
		sas_databases_probe_all();
}

/* Pairs posts and slots; a worker that runs is proof enough of the extension. */
static void
sas_crew_look(void)
{
	SasSlot    *slots;
	int			n = sas_registry_snapshot(&slots);

	nbases = sas_databases_list(&bases);
	for (int i = 0; i < nbases; i++)
	{
		bases[i]->prober.slot = NULL;
		for (int p = 0; bases[i]->posts != NULL && p < SAS_ACTORS * SAS_MAX_CREW; p++)
			bases[i]->posts[p].slot = NULL;
	}
	for (int i = 0; i < n; i++)
	{
		SasDatabase *database = sas_databases_get(slots[i].dboid);

		sas_databases_post(database, slots[i].actor, slots[i].index)->slot = &slots[i];
		if (slots[i].actor != SAS_PROBE && slots[i].state == SAS_SLOT_RUNNING &&
			database->presence == SAS_PRESENCE_UNKNOWN)
		{
			database->presence = SAS_PRESENCE_PRESENT;
			database->probe = false;
		}
	}
	nbases = sas_databases_list(&bases);
}

static int
sas_crew_wanted(const SasDatabase *database, int actor)
{
	if (!database->listed || database->presence != SAS_PRESENCE_PRESENT)
		return 0;
	return sas_settings_crew(actor);
}

/* One probe at a time in the whole server. */
static int
sas_crew_probe(void)
{
	SasDatabase *next = NULL;

	for (int i = 0; i < nbases; i++)
	{
		SasDatabase *database = bases[i];

		if (!sas_crew_settle(database, &database->prober, SAS_PROBE, 0))
			return 0;
		if (!database->probe || !database->listed || sas_crew_held(database))
			continue;
		if (database->prober.not_before_us > now_us)
			sas_crew_look_again(database->prober.not_before_us);
		else if (next == NULL)
			next = database;
	}
	if (next == NULL)
		return 0;
	if (sas_crew_fill(next, &next->prober, SAS_PROBE, 0) > 0)
		return 1;
	next->probe = false;
	return 0;
}

/*
 * Settles the posts of one actor of a database, from the given index on.
 * Those within the wanted number are filled, the others are asked to leave.
 */
static int
sas_crew_post(SasDatabase *database, int actor, int index)
{
	SasPost    *post = sas_databases_post(database, actor, index);
	bool		wanted = index < sas_crew_wanted(database, actor);

	if (sas_crew_settle(database, post, actor, index))
	{
		if (wanted && !database->probe && database->prober.handle == NULL &&
			!sas_crew_held(database))
			return sas_crew_fill(database, post, actor, index);
	}
	else if (!wanted && post->slot != NULL && post->slot->state == SAS_SLOT_RUNNING)
		(void) sas_registry_stop(post->slot->worker_id);
	return 0;
}

/* An unlisted database is forgotten when nobody is left in it. */
static void
sas_crew_forget(SasDatabase *database)
{
	if (database->listed || database->prober.slot || database->prober.handle)
		return;
	for (int p = 0; database->posts != NULL && p < SAS_ACTORS * SAS_MAX_CREW; p++)
		if (database->posts[p].slot || database->posts[p].handle)
			return;
	sas_databases_remove(database);
}

/* Says in the log that process slots are missing, once, and that they are there again. */
static void
sas_crew_say(int missing)
{
	if (missing > 0 && !said && now_us - said_us > SAY_AGAIN_US)
	{
		said = true;
		said_us = now_us;
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no free process slot for %d of the workers of sas", missing),
				 errdetail("It is tried again until there is one."),
				 errhint("Raise \"max_worker_processes\", or lower the numbers of workers per database.")));
	}
	else if (missing == 0 && said)
	{
		said = false;
		ereport(LOG, (errmsg("all workers of sas have a process slot again")));
	}
}

/* When to try again, and what sas.health() is told. */
static void
sas_crew_report(int missing)
{
	sas_crew_say(missing);
	if (missing == 0)
		full_pause_ms = 0;
	else if (refused)
	{
		full_pause_ms = full_pause_ms > 0 ? Min(full_pause_ms * 2, FULL_PAUSE_MAX_MS) : FULL_PAUSE_MS;
		full_until_us = now_us + full_pause_ms * INT64CONST(1000);
	}
	if (missing > 0)
		sas_crew_look_again(full_until_us);
	sas_request_report(missing);
}

long
sas_crew_tick(void)
{
	int			missing;

	now_us = sas_clock_monotonic_us();
	next_us = -1;
	somebody_left = refused = false;
	sas_crew_holds();
	sas_crew_requests();
	sas_crew_look();

	/* The first of every actor everywhere, before the second of any. */
	missing = sas_crew_probe();
	for (int index = 0; index < SAS_MAX_CREW; index++)
		for (int actor = 0; actor < SAS_ACTORS; actor++)
			for (int i = 0; i < nbases; i++)
				if (bases[i]->posts != NULL || index < sas_crew_wanted(bases[i], actor))
					missing += sas_crew_post(bases[i], actor, index);
	for (int i = 0; i < nbases; i++)
		sas_crew_forget(bases[i]);
	sas_crew_report(missing);

	if (next_us < 0)
		return -1;
	return (long) Max((next_us - sas_clock_monotonic_us() + 999) / 1000, 0);
}
