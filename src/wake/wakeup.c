/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup.c: listeners, and the counts of what they listen for.
 *
 * Shared memory holds an entry for each worker (its database, actor and latch)
 * and, for each database with a worker, a count per lane.  A count means "there
 * may be work since".  Setting a latch that is set already, or whose owner is
 * awake, costs a memory barrier and no signal.
 *
 * A lane is counted before the latches are set, and a worker reads the count
 * before it scans, so no wake-up is lost between two scans.  Nobody resets a
 * count: what one worker has seen takes nothing from the others.  Wake-ups are
 * counted beside the latch, because code that waits for something of its own
 * resets the latch.
 *
 * Nothing here survives a crash: workers scan the tables when they start.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "wake/low_water.h"
#include "wake/wakeup_shmem.h"

SasWakeupShmem *sas_wake_shmem = NULL;
static SasWakeupDatabase *wakeup_databases = NULL;

/* This worker's entries. */
SasWakeupListener *sas_wake_my_listener = NULL;
SasWakeupDatabase *sas_wake_my_database = NULL;

static int
wakeup_capacity(void)
{
	return max_worker_processes + 8;
}

Size
sas_wake_shmem_size(void)
{
	Size		size = offsetof(SasWakeupShmem, listeners);

	size = add_size(size, mul_size(wakeup_capacity(), sizeof(SasWakeupListener)));
	size = add_size(MAXALIGN(size), mul_size(wakeup_capacity(), sizeof(SasWakeupDatabase)));
	return size;
}

/* In the start-up hook, which holds AddinShmemInitLock. */
void
sas_wake_shmem_init(void)
{
	bool		found;

	sas_wake_shmem = ShmemInitStruct("sas wake-ups", sas_wake_shmem_size(), &found);
	wakeup_databases = (SasWakeupDatabase *) ((char *) sas_wake_shmem +
											  MAXALIGN(offsetof(SasWakeupShmem, listeners) +
													   wakeup_capacity() * sizeof(SasWakeupListener)));
	if (!found)
	{
		memset(sas_wake_shmem, 0, sas_wake_shmem_size());
		sas_wake_shmem->tranche = LWLockNewTrancheId();
		sas_wake_shmem->capacity = wakeup_capacity();
		pg_atomic_init_u32(&sas_wake_shmem->departures, 1);
		for (int i = 0; i < SAS_WAKE_WAITERS; i++)
			pg_atomic_init_u32(&sas_wake_shmem->waiters[i].told, 0);
		pg_atomic_init_u32(&sas_wake_shmem->any_holders, 0);
		pg_atomic_init_u32(&sas_wake_shmem->any_followed, 0);
		LWLockInitialize(&sas_wake_shmem->lock, sas_wake_shmem->tranche);
		for (int i = 0; i < sas_wake_shmem->capacity; i++)
		{
			for (int lane = 0; lane < SAS_WAKE_LANES; lane++)
			{
				pg_atomic_init_u32(&wakeup_databases[i].lanes[lane], 0);
				pg_atomic_init_u32(&wakeup_databases[i].nudged_lanes[lane], 0);
			}
			for (int version = 0; version < SAS_WAKE_VERSIONS; version++)
				pg_atomic_init_u32(&wakeup_databases[i].versions[version], 1);
			pg_atomic_init_u32(&wakeup_databases[i].everything, 0);
			pg_atomic_init_u32(&wakeup_databases[i].items, 0);
			pg_atomic_init_u32(&wakeup_databases[i].settled, 0);
			pg_atomic_init_u64(&wakeup_databases[i].waited_us, 0);
			pg_atomic_init_u32(&wakeup_databases[i].nudged_items, 0);
			pg_atomic_init_u64(&wakeup_databases[i].supervisor_sleeps_until, 0);
			pg_atomic_init_u32(&sas_wake_shmem->listeners[i].wakeups, 0);
			pg_atomic_init_u32(&sas_wake_shmem->listeners[i].nudges, 0);
			pg_atomic_init_u64(&sas_wake_shmem->listeners[i].woken_us, 0);
			pg_atomic_init_u32(&sas_wake_shmem->listeners[i].handed, 0);
			pg_atomic_init_u32(&sas_wake_shmem->listeners[i].rest, SAS_WAKE_AWAKE);
			pg_atomic_init_u32(&sas_wake_shmem->listeners[i].guards, 1);
			pg_atomic_init_u64(&sas_wake_shmem->listeners[i].begun_us, 0);
		}
	}
	LWLockRegisterTranche(sas_wake_shmem->tranche, "sas_bell");
}

/* ---------------------------------------------------------------- wake now */

SasWakeupDatabase *
sas_wake_find_database(Oid dboid)
{
	if (sas_wake_my_database != NULL && sas_wake_my_database->dboid == dboid)
		return sas_wake_my_database;
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
		if (wakeup_databases[i].dboid == dboid)
			return &wakeup_databases[i];
	return NULL;
}

/* With the lock held; lanes is a set of bits. */
static void
wakeup_count_lanes(pg_atomic_uint32 *counts, const uint32 *lanes)
{
	for (int w = 0; w < SAS_WAKE_LANE_WORDS; w++)
		for (uint32 bits = lanes[w]; bits != 0; bits &= bits - 1)
			pg_atomic_fetch_add_u32(&counts[w * 32 + pg_rightmost_one_pos32(bits)], 1);
}

/* Sets the latches of these actors in that database; with the lock held. A nudge is not counted as a wake-up. */
static void
wakeup_set_latches(Oid dboid, int actors, const SasWakeupListener *but, bool nudge)
{
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
	{
		SasWakeupListener *l = &sas_wake_shmem->listeners[i];

		if (l->dboid != dboid || (actors & (1 << l->actor)) == 0 || l == but)
			continue;
		if (nudge)
			pg_atomic_fetch_add_u32(&l->nudges, 1);
		else
		{
			pg_atomic_fetch_add_u32(&l->wakeups, 1);
			if (pg_atomic_read_u64(&l->woken_us) == 0)
				pg_atomic_write_u64(&l->woken_us, sas_base_clock_monotonic_us());
		}
		SetLatch(l->latch);
	}
}

void
sas_wake_listeners(Oid dboid, int actors, SasWakeupCounts counts, bool but_me)
{
	SasWakeupDatabase *database;

	if (sas_wake_shmem == NULL || !OidIsValid(dboid))
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	database = sas_wake_find_database(dboid);
	if (database != NULL)
	{
		if (counts.everything)
			pg_atomic_fetch_add_u32(&database->everything, 1);
		if (counts.items)
			pg_atomic_fetch_add_u32(counts.nudge ? &database->nudged_items : &database->items, 1);
		if (counts.lanes != NULL)
			wakeup_count_lanes(counts.nudge ? database->nudged_lanes : database->lanes, counts.lanes);
		for (int version = 0; version < SAS_WAKE_VERSIONS; version++)
			if (counts.versions & 1 << version)
				pg_atomic_fetch_add_u32(&database->versions[version], 1);
		wakeup_set_latches(dboid, actors, but_me ? sas_wake_my_listener : NULL, counts.nudge);
	}
	LWLockRelease(&sas_wake_shmem->lock);
}

void
sas_wake_database(Oid dboid)
{
	int			versions = 1 << SAS_WAKE_AGENTS | 1 << SAS_WAKE_STOPS | 1 << SAS_WAKE_WATCHES;

	sas_wake_low_water_lower_all(dboid);
	sas_wake_listeners(dboid, SAS_WAKE_ALL_ACTORS, (SasWakeupCounts) {.everything = true,.versions = versions}, false);
}

void
sas_wake_actor(Oid dboid, SasActor actor)
{
	sas_wake_listeners(dboid, 1 << actor, (SasWakeupCounts) {0}, false);
}

void
sas_wake_others(SasActor actor)
{
	sas_wake_listeners(MyDatabaseId, 1 << actor, (SasWakeupCounts) {0}, true);
}

/* ---------------------------------------------------------------- supervisor */

void
sas_wake_supervisor_sleeps_until(TimestampTz at)
{
	if (sas_wake_my_database != NULL)
		pg_atomic_write_u64(&sas_wake_my_database->supervisor_sleeps_until, (uint64) at);
	pg_memory_barrier();
}

/* The rows that are due are visible by now: a scan that begins from here on finds them. */
void
sas_wake_supervisor_by(TimestampTz at)
{
	SasWakeupDatabase *database;

	if (sas_wake_shmem == NULL)
		return;
	pg_memory_barrier();
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	database = sas_wake_find_database(MyDatabaseId);
	if (database != NULL && at < (TimestampTz) pg_atomic_read_u64(&database->supervisor_sleeps_until))
		wakeup_set_latches(MyDatabaseId, 1 << SAS_SUPERVISOR, NULL, false);
	LWLockRelease(&sas_wake_shmem->lock);
}

/*
 * The session leaves.  It stays visible for a moment longer, so the supervisor
 * is notified that a session is leaving, and checks more than once.
 */
static void
wakeup_depart(int code, Datum arg)
{
	pg_atomic_fetch_add_u32(&sas_wake_shmem->departures, 1);
	sas_wake_actor(MyDatabaseId, SAS_SUPERVISOR);
}

void
sas_wake_report_departure(void)
{
	static bool registered = false;

	if (sas_wake_shmem == NULL || registered)
		return;
	before_shmem_exit(wakeup_depart, (Datum) 0);
	registered = true;
}

/* ---------------------------------------------------------------- listeners */

static void
wakeup_detach(int code, Datum arg)
{
	if (sas_wake_my_listener == NULL)
		return;
	pg_atomic_exchange_u32(&sas_wake_my_listener->rest, SAS_WAKE_AWAKE);
	/* work that only this worker knew of, and limits that it gives back, are for the others */
	sas_wake_listeners(MyDatabaseId, 1 << sas_wake_my_listener->actor, (SasWakeupCounts) {.everything = true}, true);
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	sas_wake_my_listener->dboid = InvalidOid;
	if (--sas_wake_my_database->listeners == 0)
		sas_wake_my_database->dboid = InvalidOid;
	LWLockRelease(&sas_wake_shmem->lock);
	sas_wake_my_listener = NULL;
	sas_wake_my_database = NULL;
}

/* With the lock held exclusively; NULL: no entry is free. */
static SasWakeupDatabase *
wakeup_enter_database(Oid dboid)
{
	SasWakeupDatabase *database = sas_wake_find_database(dboid);

	if (database == NULL)
	{
		database = sas_wake_find_database(InvalidOid);
		if (database == NULL)
			return NULL;
		database->dboid = dboid;
		database->listeners = 0;
		/* the number of a dropped database can come back */
		sas_wake_low_water_lower_all(dboid);
	}
	database->listeners++;
	return database;
}

void
sas_wake_attach(SasActor actor)
{
	if (sas_wake_shmem == NULL || sas_wake_my_listener != NULL)
		return;
	before_shmem_exit(wakeup_detach, (Datum) 0);
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
	{
		SasWakeupListener *l = &sas_wake_shmem->listeners[i];

		if (OidIsValid(l->dboid))
			continue;
		sas_wake_my_database = wakeup_enter_database(MyDatabaseId);
		if (sas_wake_my_database == NULL)
			break;
		l->actor = actor;
		l->latch = MyLatch;
		pg_atomic_write_u64(&l->woken_us, 0);
		pg_atomic_write_u32(&l->rest, SAS_WAKE_AWAKE);
		pg_atomic_write_u32(&l->guards, 1);
		l->dboid = MyDatabaseId;
		sas_wake_my_listener = l;
		break;
	}
	LWLockRelease(&sas_wake_shmem->lock);
	if (sas_wake_my_listener == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many listeners for sas wakeups")));
}

/* ---------------------------------------------------------------- counts */

uint32
sas_wake_count(void)
{
	return sas_wake_my_listener != NULL ? pg_atomic_read_u32(&sas_wake_my_listener->wakeups) : 0;
}

uint32
sas_wake_told_count(void)
{
	return sas_wake_my_listener != NULL ? sas_wake_count() + pg_atomic_read_u32(&sas_wake_my_listener->nudges) : 0;
}

uint32
sas_wake_latch_count(void)
{
	return sas_wake_my_listener != NULL ? sas_wake_told_count() + pg_atomic_read_u32(&sas_wake_my_listener->handed) : 0;
}

void
sas_wake_answer(void)
{
	if (sas_wake_my_listener == NULL)
		return;
	/* before the tick looks: what it was woken for is visible by now */
	sas_wake_get_up();
	pg_atomic_write_u64(&sas_wake_my_listener->woken_us, 0);
	/* what wakes from here on is noted again */
	pg_memory_barrier();
}

int64
sas_wake_unanswered_us(Oid dboid, int pid)
{
	int64		since_us = 0;

	if (sas_wake_shmem == NULL)
		return 0;
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
		if (sas_wake_shmem->listeners[i].dboid == dboid && sas_wake_shmem->listeners[i].latch->owner_pid == pid)
			since_us = pg_atomic_read_u64(&sas_wake_shmem->listeners[i].woken_us);
	LWLockRelease(&sas_wake_shmem->lock);
	return since_us;
}

static pg_atomic_uint32 *
wakeup_lane(int lane)
{
	return &sas_wake_my_database->lanes[(uint32) lane % SAS_WAKE_LANES];
}

/* Two counts that only grow: their sum changes when either of them does. */
uint32
sas_wake_lane_count(int lane)
{
	if (sas_wake_my_database == NULL)
		return 0;
	return pg_atomic_read_u32(wakeup_lane(lane)) + pg_atomic_read_u32(&sas_wake_my_database->everything);
}

uint32
sas_wake_items_count(void)
{
	if (sas_wake_my_database == NULL)
		return 0;
	return pg_atomic_read_u32(&sas_wake_my_database->items) + pg_atomic_read_u32(&sas_wake_my_database->everything);
}

uint32
sas_wake_lane_nudges(int lane)
{
	return sas_wake_my_database != NULL ? pg_atomic_read_u32(&sas_wake_my_database->nudged_lanes[(uint32) lane % SAS_WAKE_LANES]) : 0;
}

uint32
sas_wake_items_nudges(void)
{
	return sas_wake_my_database != NULL ? pg_atomic_read_u32(&sas_wake_my_database->nudged_items) : 0;
}

void
sas_wake_count_lane(int lane)
{
	if (sas_wake_my_database != NULL)
		pg_atomic_fetch_add_u32(wakeup_lane(lane), 1);
}

void
sas_wake_count_items(void)
{
	if (sas_wake_my_database != NULL)
		pg_atomic_fetch_add_u32(&sas_wake_my_database->items, 1);
}

uint32
sas_wake_departures(void)
{
	return sas_wake_shmem != NULL ? pg_atomic_read_u32(&sas_wake_shmem->departures) : 1;
}

uint32
sas_wake_version(SasWakeVersion version)
{
	return sas_wake_my_database != NULL ? pg_atomic_read_u32(&sas_wake_my_database->versions[version]) : 1;
}
