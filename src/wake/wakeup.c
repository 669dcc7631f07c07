/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup.c: the bell.
 *
 * Shared memory holds who listens (one entry per worker: its database, actor
 * and latch), who waits for a run (one entry per session in sas.wait()) and,
 * per database with a worker in it, one count per lane that says "there may be
 * work since".  A latch that is set already, or whose owner is awake, costs its
 * ringer a memory barrier and no signal.
 *
 * A transaction's marks stay in this process until the transaction callback:
 * by then others see the rows.  A lane is counted before the latches are set,
 * and a worker reads the count before it looks, so that no mark falls between
 * two looks.  Nobody resets a count: what one worker has seen takes nothing
 * from the others.
 * Rings are counted beside the latch, which others reset that wait for
 * something of their own.  A prepared transaction drops its marks; COMMIT PREPARED rings everything.
 *
 * Nothing here survives a crash: workers look at the tables when they start.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "wake/wakeup.h"
#include "wake/low_water.h"

#define LANE_WORDS (SAS_WAKE_LANES / 32)
#define MAX_WAITERS 1024
#define ALL_ACTORS ((1 << SAS_ACTORS) - 1)

typedef struct SasWakeupListener
{
	Oid			dboid;			/* InvalidOid: free */
	SasActor	actor;
	pg_atomic_uint32 wakeups;	/* counts; the latch alone is not enough: see sas_wake_count() */
	Latch	   *latch;
} SasWakeupListener;

/* A database with at least one listener. */
typedef struct SasWakeupDatabase
{
	Oid			dboid;			/* InvalidOid: free */
	int			listeners;
	pg_atomic_uint64 supervisor_sleeps_until;	/* a TimestampTz */
	pg_atomic_uint32 everything;	/* counts for all lanes, and for items */
	pg_atomic_uint32 items;
	pg_atomic_uint32 lanes[SAS_WAKE_LANES];
} SasWakeupDatabase;

typedef struct SasWakeupWaiter
{
	int64		run_id;
	Oid			dboid;			/* InvalidOid: free */
	Latch	   *latch;
} SasWakeupWaiter;

typedef struct SasWakeupShmem
{
	LWLock		lock;			/* shared to ring, exclusive to come and go */
	int			tranche;
	pg_atomic_uint32 agents_version;	/* counts changes of agents */
	pg_atomic_uint32 watches_version;	/* counts what hosts of infinite tasks should look at */
	pg_atomic_uint32 departures;	/* counts sessions of outside nodes that have ended */
	pg_atomic_uint32 stops_version; /* counts transactions that had calls stopped */
	int			capacity;		/* of listeners, and of houses */
	int			waiters_end;	/* entries from here on are free */
	SasWakeupWaiter waiters[MAX_WAITERS];
	SasWakeupListener listeners[FLEXIBLE_ARRAY_MEMBER];
	/* followed by capacity houses */
} SasWakeupShmem;

static SasWakeupShmem *wakeup_shmem = NULL;
static SasWakeupDatabase *wakeup_databases = NULL;

/* This worker's entries. */
static SasWakeupListener *wakeup_my_listener = NULL;
static SasWakeupDatabase *wakeup_my_database = NULL;
static SasWakeupWaiter *wakeup_my_waiter = NULL;

/* The marks of this transaction. */
static int	wakeup_pending_actors = 0; /* one bit each */
static bool wakeup_pending_any_lane = false;
static bool wakeup_pending_items = false;
static bool wakeup_pending_agents = false;
static bool wakeup_pending_watches = false;
static bool wakeup_pending_stops = false;
static TimestampTz wakeup_pending_due = DT_NOEND;
static uint32 wakeup_pending_lanes[LANE_WORDS];
static bool wakeup_pending_all = false; /* ring everything, commit or abort */
static int64 *wakeup_pending_runs = NULL; /* in TopTransactionContext */
static int	wakeup_pending_n_runs = 0;
static int	wakeup_pending_runs_room = 0;

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

	wakeup_shmem = ShmemInitStruct("sas bell", sas_wake_shmem_size(), &found);
	wakeup_databases = (SasWakeupDatabase *) ((char *) wakeup_shmem +
											  MAXALIGN(offsetof(SasWakeupShmem, listeners) +
													   wakeup_capacity() * sizeof(SasWakeupListener)));
	if (!found)
	{
		memset(wakeup_shmem, 0, sas_wake_shmem_size());
		wakeup_shmem->tranche = LWLockNewTrancheId();
		wakeup_shmem->capacity = wakeup_capacity();
		pg_atomic_init_u32(&wakeup_shmem->agents_version, 1);
		pg_atomic_init_u32(&wakeup_shmem->watches_version, 1);
		pg_atomic_init_u32(&wakeup_shmem->departures, 1);
		pg_atomic_init_u32(&wakeup_shmem->stops_version, 1);
		LWLockInitialize(&wakeup_shmem->lock, wakeup_shmem->tranche);
		for (int i = 0; i < wakeup_shmem->capacity; i++)
		{
			for (int lane = 0; lane < SAS_WAKE_LANES; lane++)
				pg_atomic_init_u32(&wakeup_databases[i].lanes[lane], 0);
			pg_atomic_init_u32(&wakeup_databases[i].everything, 0);
			pg_atomic_init_u32(&wakeup_databases[i].items, 0);
			pg_atomic_init_u64(&wakeup_databases[i].supervisor_sleeps_until, 0);
		}
		for (int i = 0; i < wakeup_shmem->capacity; i++)
			pg_atomic_init_u32(&wakeup_shmem->listeners[i].wakeups, 0);
	}
	LWLockRegisterTranche(wakeup_shmem->tranche, "sas_bell");
}

/* With the lock held. */
static SasWakeupDatabase *
wakeup_find_database(Oid dboid)
{
	if (wakeup_my_database != NULL && wakeup_my_database->dboid == dboid)
		return wakeup_my_database;
	for (int i = 0; i < wakeup_shmem->capacity; i++)
		if (wakeup_databases[i].dboid == dboid)
			return &wakeup_databases[i];
	return NULL;
}

/* With the lock held; lanes is a set of bits. */
static void
wakeup_count_lanes(SasWakeupDatabase *database, const uint32 *lanes)
{
	for (int w = 0; w < LANE_WORDS; w++)
		for (uint32 bits = lanes[w]; bits != 0; bits &= bits - 1)
			pg_atomic_fetch_add_u32(&database->lanes[w * 32 + pg_rightmost_one_pos32(bits)], 1);
}

/* Sets the latches of these actors in that database; with the lock held. */
static void
wakeup_set_latches(Oid dboid, int actors, const SasWakeupListener *but)
{
	for (int i = 0; i < wakeup_shmem->capacity; i++)
	{
		SasWakeupListener *l = &wakeup_shmem->listeners[i];

		if (l->dboid != dboid || (actors & (1 << l->actor)) == 0 || l == but)
			continue;
		pg_atomic_fetch_add_u32(&l->wakeups, 1);
		SetLatch(l->latch);
	}
}

/* What is counted before the latches are set. */
typedef enum SasWakeupCounted
{
	SAS_COUNT_NOTHING,
	SAS_COUNT_PENDING,			/* the lanes and items that this transaction has marked */
	SAS_COUNT_EVERYTHING
} SasWakeupCounted;

/* Rings: actors is a set of bits. */
static void
wakeup_wake(Oid dboid, int actors, SasWakeupCounted counted, const SasWakeupListener *but)
{
	SasWakeupDatabase *database;

	if (wakeup_shmem == NULL || !OidIsValid(dboid))
		return;
	LWLockAcquire(&wakeup_shmem->lock, LW_SHARED);
	database = wakeup_find_database(dboid);
	if (database != NULL)
	{
		if (counted == SAS_COUNT_EVERYTHING)
			pg_atomic_fetch_add_u32(&database->everything, 1);
		if (counted == SAS_COUNT_PENDING && wakeup_pending_items)
			pg_atomic_fetch_add_u32(&database->items, 1);
		if (counted == SAS_COUNT_PENDING && wakeup_pending_any_lane)
			wakeup_count_lanes(database, wakeup_pending_lanes);
		wakeup_set_latches(dboid, actors, but);
	}
	LWLockRelease(&wakeup_shmem->lock);
}

void
sas_wake_database(Oid dboid)
{
	if (wakeup_shmem != NULL)
	{
		pg_atomic_fetch_add_u32(&wakeup_shmem->agents_version, 1);
		pg_atomic_fetch_add_u32(&wakeup_shmem->watches_version, 1);
		pg_atomic_fetch_add_u32(&wakeup_shmem->stops_version, 1);
	}
	sas_wake_low_water_lower_all(dboid);
	wakeup_wake(dboid, ALL_ACTORS, SAS_COUNT_EVERYTHING, NULL);
}

void
sas_wake_actor(Oid dboid, SasActor actor)
{
	wakeup_wake(dboid, 1 << actor, SAS_COUNT_NOTHING, NULL);
}

void
sas_wake_others(SasActor actor)
{
	wakeup_wake(MyDatabaseId, 1 << actor, SAS_COUNT_NOTHING, wakeup_my_listener);
}

/* ---------------------------------------------------------------- marks */

void
sas_wake_actor_at_commit(SasActor actor)
{
	wakeup_pending_actors |= 1 << actor;
}

void
sas_wake_lane_at_commit(int lane)
{
	uint32		bit = (uint32) lane % SAS_WAKE_LANES;

	wakeup_pending_actors |= 1 << (lane == 0 ? SAS_FUNCTION : SAS_AGENT);
	wakeup_pending_any_lane = true;
	wakeup_pending_lanes[bit / 32] |= (uint32) 1 << (bit % 32);
}

void
sas_wake_items_at_commit(void)
{
	wakeup_pending_actors |= 1 << SAS_FUNCTION;
	wakeup_pending_items = true;
}

void
sas_wake_due_at_commit(TimestampTz at)
{
	wakeup_pending_due = Min(wakeup_pending_due, at);
}

void
sas_wake_supervisor_sleeps_until(TimestampTz at)
{
	if (wakeup_my_database != NULL)
		pg_atomic_write_u64(&wakeup_my_database->supervisor_sleeps_until, (uint64) at);
	pg_memory_barrier();
}

/* The rows that are due can be seen by now: whoever looks from here on finds them. */
static void
wakeup_wake_due(void)
{
	SasWakeupDatabase *database;

	if (wakeup_shmem == NULL)
		return;
	pg_memory_barrier();
	LWLockAcquire(&wakeup_shmem->lock, LW_SHARED);
	database = wakeup_find_database(MyDatabaseId);
	if (database != NULL && wakeup_pending_due < (TimestampTz) pg_atomic_read_u64(&database->supervisor_sleeps_until))
		wakeup_set_latches(MyDatabaseId, 1 << SAS_SUPERVISOR, NULL);
	LWLockRelease(&wakeup_shmem->lock);
}

void
sas_wake_agents_at_commit(void)
{
	wakeup_pending_actors |= 1 << SAS_AGENT;
	wakeup_pending_agents = true;
}

uint32
sas_wake_agents_version(void)
{
	return wakeup_shmem != NULL ? pg_atomic_read_u32(&wakeup_shmem->agents_version) : 1;
}

void
sas_wake_watches_at_commit(void)
{
	wakeup_pending_actors |= (1 << SAS_AGENT) | (1 << SAS_FUNCTION);
	wakeup_pending_watches = true;
}

uint32
sas_wake_watches_version(void)
{
	return wakeup_shmem != NULL ? pg_atomic_read_u32(&wakeup_shmem->watches_version) : 1;
}

/*
 * The session leaves; it can be seen for a moment longer, so the supervisor
 * is told that one is leaving, and looks more than once.
 */
static void
wakeup_depart(int code, Datum arg)
{
	pg_atomic_fetch_add_u32(&wakeup_shmem->departures, 1);
	sas_wake_actor(MyDatabaseId, SAS_SUPERVISOR);
}

void
sas_wake_report_departure(void)
{
	static bool registered = false;

	if (wakeup_shmem == NULL || registered)
		return;
	before_shmem_exit(wakeup_depart, (Datum) 0);
	registered = true;
}

uint32
sas_wake_departures(void)
{
	return wakeup_shmem != NULL ? pg_atomic_read_u32(&wakeup_shmem->departures) : 1;
}

void
sas_wake_stops_at_commit(void)
{
	wakeup_pending_actors |= 1 << SAS_AGENT;
	wakeup_pending_stops = true;
}

uint32
sas_wake_stops_version(void)
{
	return wakeup_shmem != NULL ? pg_atomic_read_u32(&wakeup_shmem->stops_version) : 1;
}

void
sas_wake_all_at_end(void)
{
	wakeup_pending_all = true;
}

void
sas_wake_run_at_commit(int64 run_id)
{
	if (wakeup_shmem == NULL)
		return;
	if (wakeup_pending_n_runs > 0 && wakeup_pending_runs[wakeup_pending_n_runs - 1] == run_id)
		return;
	if (wakeup_pending_n_runs == wakeup_pending_runs_room)
	{
		int			room = Max(64, wakeup_pending_runs_room * 2);

		if (wakeup_pending_runs == NULL)
			wakeup_pending_runs = MemoryContextAlloc(TopTransactionContext, room * sizeof(int64));
		else
			wakeup_pending_runs = repalloc_huge(wakeup_pending_runs, room * sizeof(int64));
		wakeup_pending_runs_room = room;
	}
	wakeup_pending_runs[wakeup_pending_n_runs++] = run_id;
}

static int
wakeup_compare_runs(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : (x > y);
}

/* Wakes the waiters of the marked runs. */
static void
wakeup_wake_runs(void)
{
	/* Who registers after this look finds the run changed already. */
	pg_memory_barrier();
	if (wakeup_shmem->waiters_end == 0)
		return;
	qsort(wakeup_pending_runs, wakeup_pending_n_runs, sizeof(int64), wakeup_compare_runs);
	LWLockAcquire(&wakeup_shmem->lock, LW_SHARED);
	for (int i = 0; i < wakeup_shmem->waiters_end; i++)
	{
		SasWakeupWaiter *w = &wakeup_shmem->waiters[i];

		if (w->dboid == MyDatabaseId &&
			bsearch(&w->run_id, wakeup_pending_runs, wakeup_pending_n_runs, sizeof(int64), wakeup_compare_runs))
			SetLatch(w->latch);
	}
	LWLockRelease(&wakeup_shmem->lock);
}

static void
wakeup_forget_pending(void)
{
	if (wakeup_pending_any_lane)
		memset(wakeup_pending_lanes, 0, sizeof(wakeup_pending_lanes));
	wakeup_pending_any_lane = false;
	wakeup_pending_items = false;
	wakeup_pending_agents = false;
	wakeup_pending_watches = false;
	wakeup_pending_stops = false;
	wakeup_pending_due = DT_NOEND;
	wakeup_pending_actors = 0;
	wakeup_pending_all = false;
	wakeup_pending_runs = NULL;
	wakeup_pending_n_runs = wakeup_pending_runs_room = 0;
}

/* Everything marked; forgotten first, so that nothing is rung twice. */
static void
wakeup_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			sas_wake_low_water_commit();
			if (wakeup_pending_agents && wakeup_shmem != NULL)
				pg_atomic_fetch_add_u32(&wakeup_shmem->agents_version, 1);
			if (wakeup_pending_watches && wakeup_shmem != NULL)
				pg_atomic_fetch_add_u32(&wakeup_shmem->watches_version, 1);
			if (wakeup_pending_stops && wakeup_shmem != NULL)
				pg_atomic_fetch_add_u32(&wakeup_shmem->stops_version, 1);
			if (wakeup_pending_actors != 0)
				wakeup_wake(MyDatabaseId, wakeup_pending_actors, SAS_COUNT_PENDING, NULL);
			if (wakeup_pending_due != DT_NOEND)
				wakeup_wake_due();
			if (wakeup_pending_n_runs > 0)
				wakeup_wake_runs();
			/* FALLTHROUGH */
		case XACT_EVENT_ABORT:
			if (wakeup_pending_all)
				wakeup_wake(MyDatabaseId, ALL_ACTORS, SAS_COUNT_EVERYTHING, wakeup_my_listener);
			/* FALLTHROUGH */
		case XACT_EVENT_PREPARE:
			sas_wake_low_water_forget();
			wakeup_forget_pending();
			sas_wake_wait_end();
			break;
		default:
			break;
	}
}

void
sas_wake_install(void)
{
	RegisterXactCallback(wakeup_xact_callback, NULL);
	sas_wake_low_water_install();
}

/* ---------------------------------------------------------------- workers */

static void
wakeup_detach(int code, Datum arg)
{
	if (wakeup_my_listener == NULL)
		return;
	/* what only this worker knew of, and the limits of agents that it gives back, are for the others */
	wakeup_wake(MyDatabaseId, 1 << wakeup_my_listener->actor, SAS_COUNT_EVERYTHING, wakeup_my_listener);
	LWLockAcquire(&wakeup_shmem->lock, LW_EXCLUSIVE);
	wakeup_my_listener->dboid = InvalidOid;
	if (--wakeup_my_database->listeners == 0)
		wakeup_my_database->dboid = InvalidOid;
	LWLockRelease(&wakeup_shmem->lock);
	wakeup_my_listener = NULL;
	wakeup_my_database = NULL;
}

static SasWakeupDatabase *
wakeup_enter_database(Oid dboid)
{
	SasWakeupDatabase *database = wakeup_find_database(dboid);

	if (database == NULL)
	{
		database = wakeup_find_database(InvalidOid);
		if (database == NULL)
			return NULL;
		database->dboid = dboid;
		database->listeners = 0;
		/* the number of a database that is gone may come back */
		sas_wake_low_water_lower_all(dboid);
	}
	database->listeners++;
	return database;
}

void
sas_wake_attach(SasActor actor)
{
	if (wakeup_shmem == NULL || wakeup_my_listener != NULL)
		return;
	before_shmem_exit(wakeup_detach, (Datum) 0);
	LWLockAcquire(&wakeup_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < wakeup_shmem->capacity; i++)
	{
		SasWakeupListener *l = &wakeup_shmem->listeners[i];

		if (OidIsValid(l->dboid))
			continue;
		wakeup_my_database = wakeup_enter_database(MyDatabaseId);
		if (wakeup_my_database == NULL)
			break;
		l->actor = actor;
		l->latch = MyLatch;
		l->dboid = MyDatabaseId;
		wakeup_my_listener = l;
		break;
	}
	LWLockRelease(&wakeup_shmem->lock);
	if (wakeup_my_listener == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("no room for another listener of the sas bell")));
}

uint32
sas_wake_count(void)
{
	return wakeup_my_listener != NULL ? pg_atomic_read_u32(&wakeup_my_listener->wakeups) : 0;
}

static pg_atomic_uint32 *
wakeup_lane(int lane)
{
	return &wakeup_my_database->lanes[(uint32) lane % SAS_WAKE_LANES];
}

/* The sum of two counts that only grow is another number when either has grown. */
uint32
sas_wake_lane_count(int lane)
{
	if (wakeup_my_database == NULL)
		return 0;
	return pg_atomic_read_u32(wakeup_lane(lane)) + pg_atomic_read_u32(&wakeup_my_database->everything);
}

uint32
sas_wake_items_count(void)
{
	if (wakeup_my_database == NULL)
		return 0;
	return pg_atomic_read_u32(&wakeup_my_database->items) + pg_atomic_read_u32(&wakeup_my_database->everything);
}

void
sas_wake_count_lane(int lane)
{
	if (wakeup_my_database != NULL)
		pg_atomic_fetch_add_u32(wakeup_lane(lane), 1);
}

void
sas_wake_count_items(void)
{
	if (wakeup_my_database != NULL)
		pg_atomic_fetch_add_u32(&wakeup_my_database->items, 1);
}

/* ---------------------------------------------------------------- waiters */

static void
wakeup_wait_exit(int code, Datum arg)
{
	sas_wake_wait_end();
}

bool
sas_wake_wait_begin(int64 run_id)
{
	static bool registered = false;

	if (wakeup_shmem == NULL)
		return false;
	if (!registered)
		before_shmem_exit(wakeup_wait_exit, (Datum) 0);
	registered = true;
	sas_wake_wait_end();
	LWLockAcquire(&wakeup_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_WAITERS && wakeup_my_waiter == NULL; i++)
	{
		SasWakeupWaiter *w = &wakeup_shmem->waiters[i];

		if (OidIsValid(w->dboid))
			continue;
		w->run_id = run_id;
		w->latch = MyLatch;
		w->dboid = MyDatabaseId;
		wakeup_shmem->waiters_end = Max(wakeup_shmem->waiters_end, i + 1);
		wakeup_my_waiter = w;
	}
	LWLockRelease(&wakeup_shmem->lock);
	return wakeup_my_waiter != NULL;
}

void
sas_wake_wait_end(void)
{
	if (wakeup_my_waiter == NULL)
		return;
	LWLockAcquire(&wakeup_shmem->lock, LW_EXCLUSIVE);
	wakeup_my_waiter->dboid = InvalidOid;
	while (wakeup_shmem->waiters_end > 0 && !OidIsValid(wakeup_shmem->waiters[wakeup_shmem->waiters_end - 1].dboid))
		wakeup_shmem->waiters_end--;
	LWLockRelease(&wakeup_shmem->lock);
	wakeup_my_waiter = NULL;
}
