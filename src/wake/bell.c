/* SPDX-License-Identifier: PostgreSQL */
/*
 * bell.c: the bell.
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

#include "wake/bell.h"
#include "wake/front.h"

#define LANE_WORDS (SAS_BELL_LANES / 32)
#define MAX_WAITERS 1024
#define ALL_ACTORS ((1 << SAS_ACTORS) - 1)

typedef struct SasListener
{
	Oid			dboid;			/* InvalidOid: free */
	SasActor	actor;
	pg_atomic_uint32 rings;		/* counts; the latch alone is not enough: see sas_bell_rings() */
	Latch	   *latch;
} SasListener;

/* A database with at least one listener. */
typedef struct SasHouse
{
	Oid			dboid;			/* InvalidOid: free */
	int			listeners;
	pg_atomic_uint64 supervisor_sleeps_until;	/* a TimestampTz */
	pg_atomic_uint32 everything;	/* counts for all lanes, and for items */
	pg_atomic_uint32 items;
	pg_atomic_uint32 lanes[SAS_BELL_LANES];
} SasHouse;

typedef struct SasWaiter
{
	int64		run_id;
	Oid			dboid;			/* InvalidOid: free */
	Latch	   *latch;
} SasWaiter;

typedef struct SasBell
{
	LWLock		lock;			/* shared to ring, exclusive to come and go */
	int			tranche;
	pg_atomic_uint32 agents_version;	/* counts changes of agents */
	pg_atomic_uint32 watches_version;	/* counts what hosts of infinite tasks should look at */
	pg_atomic_uint32 departures;	/* counts sessions of outside nodes that have ended */
	pg_atomic_uint32 stops_version; /* counts transactions that had calls stopped */
	int			capacity;		/* of listeners, and of houses */
	int			waiters_end;	/* entries from here on are free */
	SasWaiter	waiters[MAX_WAITERS];
	SasListener listeners[FLEXIBLE_ARRAY_MEMBER];
	/* followed by capacity houses */
} SasBell;

static SasBell *bell = NULL;
static SasHouse *houses = NULL;

/* This worker's entries. */
static SasListener *my_listener = NULL;
static SasHouse *my_house = NULL;
static SasWaiter *my_waiter = NULL;

/* The marks of this transaction. */
static int	marked_actors = 0;	/* one bit each */
static bool marked_any_lane = false;
static bool marked_items = false;
static bool marked_agents = false;
static bool marked_watches = false;
static bool marked_stops = false;
static TimestampTz marked_due = DT_NOEND;
static uint32 marked_lanes[LANE_WORDS];
static bool marked_end = false; /* ring everything, commit or abort */
static int64 *marked_runs = NULL;	/* in TopTransactionContext */
static int	marked_nruns = 0;
static int	marked_runs_room = 0;

static int
sas_bell_capacity(void)
{
	return max_worker_processes + 8;
}

Size
sas_bell_shmem_size(void)
{
	Size		size = offsetof(SasBell, listeners);

	size = add_size(size, mul_size(sas_bell_capacity(), sizeof(SasListener)));
	size = add_size(MAXALIGN(size), mul_size(sas_bell_capacity(), sizeof(SasHouse)));
	return size;
}

/* In the start-up hook, which holds AddinShmemInitLock. */
void
sas_bell_shmem_init(void)
{
	bool		found;

	bell = ShmemInitStruct("sas bell", sas_bell_shmem_size(), &found);
	houses = (SasHouse *) ((char *) bell +
						   MAXALIGN(offsetof(SasBell, listeners) +
									sas_bell_capacity() * sizeof(SasListener)));
	if (!found)
	{
		memset(bell, 0, sas_bell_shmem_size());
		bell->tranche = LWLockNewTrancheId();
		bell->capacity = sas_bell_capacity();
		pg_atomic_init_u32(&bell->agents_version, 1);
		pg_atomic_init_u32(&bell->watches_version, 1);
		pg_atomic_init_u32(&bell->departures, 1);
		pg_atomic_init_u32(&bell->stops_version, 1);
		LWLockInitialize(&bell->lock, bell->tranche);
		for (int i = 0; i < bell->capacity; i++)
		{
			for (int lane = 0; lane < SAS_BELL_LANES; lane++)
				pg_atomic_init_u32(&houses[i].lanes[lane], 0);
			pg_atomic_init_u32(&houses[i].everything, 0);
			pg_atomic_init_u32(&houses[i].items, 0);
			pg_atomic_init_u64(&houses[i].supervisor_sleeps_until, 0);
		}
		for (int i = 0; i < bell->capacity; i++)
			pg_atomic_init_u32(&bell->listeners[i].rings, 0);
	}
	LWLockRegisterTranche(bell->tranche, "sas_bell");
}

/* With the lock held. */
static SasHouse *
sas_bell_house(Oid dboid)
{
	if (my_house != NULL && my_house->dboid == dboid)
		return my_house;
	for (int i = 0; i < bell->capacity; i++)
		if (houses[i].dboid == dboid)
			return &houses[i];
	return NULL;
}

/* With the lock held; lanes is a set of bits. */
static void
sas_bell_count_lanes(SasHouse *house, const uint32 *lanes)
{
	for (int w = 0; w < LANE_WORDS; w++)
		for (uint32 bits = lanes[w]; bits != 0; bits &= bits - 1)
			pg_atomic_fetch_add_u32(&house->lanes[w * 32 + pg_rightmost_one_pos32(bits)], 1);
}

/* Sets the latches of these actors in that database; with the lock held. */
static void
sas_bell_set_latches(Oid dboid, int actors, const SasListener *but)
{
	for (int i = 0; i < bell->capacity; i++)
	{
		SasListener *l = &bell->listeners[i];

		if (l->dboid != dboid || (actors & (1 << l->actor)) == 0 || l == but)
			continue;
		pg_atomic_fetch_add_u32(&l->rings, 1);
		SetLatch(l->latch);
	}
}

/* What is counted before the latches are set. */
typedef enum SasCounted
{
	SAS_COUNT_NOTHING,
	SAS_COUNT_MARKED,			/* the lanes and items that this transaction has marked */
	SAS_COUNT_EVERYTHING
} SasCounted;

/* Rings: actors is a set of bits. */
static void
sas_bell_ring(Oid dboid, int actors, SasCounted counted, const SasListener *but)
{
	SasHouse   *house;

	if (bell == NULL || !OidIsValid(dboid))
		return;
	LWLockAcquire(&bell->lock, LW_SHARED);
	house = sas_bell_house(dboid);
	if (house != NULL)
	{
		if (counted == SAS_COUNT_EVERYTHING)
			pg_atomic_fetch_add_u32(&house->everything, 1);
		if (counted == SAS_COUNT_MARKED && marked_items)
			pg_atomic_fetch_add_u32(&house->items, 1);
		if (counted == SAS_COUNT_MARKED && marked_any_lane)
			sas_bell_count_lanes(house, marked_lanes);
		sas_bell_set_latches(dboid, actors, but);
	}
	LWLockRelease(&bell->lock);
}

void
sas_bell_ring_database(Oid dboid)
{
	if (bell != NULL)
	{
		pg_atomic_fetch_add_u32(&bell->agents_version, 1);
		pg_atomic_fetch_add_u32(&bell->watches_version, 1);
		pg_atomic_fetch_add_u32(&bell->stops_version, 1);
	}
	sas_fronts_lower_all(dboid);
	sas_bell_ring(dboid, ALL_ACTORS, SAS_COUNT_EVERYTHING, NULL);
}

void
sas_bell_ring_actor(Oid dboid, SasActor actor)
{
	sas_bell_ring(dboid, 1 << actor, SAS_COUNT_NOTHING, NULL);
}

void
sas_bell_wake_other(SasActor actor)
{
	sas_bell_ring(MyDatabaseId, 1 << actor, SAS_COUNT_NOTHING, my_listener);
}

/* ---------------------------------------------------------------- marks */

void
sas_bell_mark(SasActor actor)
{
	marked_actors |= 1 << actor;
}

void
sas_bell_mark_lane(int lane)
{
	uint32		bit = (uint32) lane % SAS_BELL_LANES;

	marked_actors |= 1 << (lane == 0 ? SAS_FUNCTION : SAS_AGENT);
	marked_any_lane = true;
	marked_lanes[bit / 32] |= (uint32) 1 << (bit % 32);
}

void
sas_bell_mark_items(void)
{
	marked_actors |= 1 << SAS_FUNCTION;
	marked_items = true;
}

void
sas_bell_mark_due(TimestampTz at)
{
	marked_due = Min(marked_due, at);
}

void
sas_bell_supervisor_sleeps_until(TimestampTz at)
{
	if (my_house != NULL)
		pg_atomic_write_u64(&my_house->supervisor_sleeps_until, (uint64) at);
	pg_memory_barrier();
}

/* The rows that are due can be seen by now: whoever looks from here on finds them. */
static void
sas_bell_ring_due(void)
{
	SasHouse   *house;

	if (bell == NULL)
		return;
	pg_memory_barrier();
	LWLockAcquire(&bell->lock, LW_SHARED);
	house = sas_bell_house(MyDatabaseId);
	if (house != NULL && marked_due < (TimestampTz) pg_atomic_read_u64(&house->supervisor_sleeps_until))
		sas_bell_set_latches(MyDatabaseId, 1 << SAS_SUPERVISOR, NULL);
	LWLockRelease(&bell->lock);
}

void
sas_bell_mark_agents(void)
{
	marked_actors |= 1 << SAS_AGENT;
	marked_agents = true;
}

uint32
sas_bell_agents_version(void)
{
	return bell != NULL ? pg_atomic_read_u32(&bell->agents_version) : 1;
}

void
sas_bell_mark_watches(void)
{
	marked_actors |= (1 << SAS_AGENT) | (1 << SAS_FUNCTION);
	marked_watches = true;
}

uint32
sas_bell_watches_version(void)
{
	return bell != NULL ? pg_atomic_read_u32(&bell->watches_version) : 1;
}

/*
 * The session leaves; it can be seen for a moment longer, so the supervisor
 * is told that one is leaving, and looks more than once.
 */
static void
sas_bell_depart(int code, Datum arg)
{
	pg_atomic_fetch_add_u32(&bell->departures, 1);
	sas_bell_ring_actor(MyDatabaseId, SAS_SUPERVISOR);
}

void
sas_bell_tell_departure(void)
{
	static bool registered = false;

	if (bell == NULL || registered)
		return;
	before_shmem_exit(sas_bell_depart, (Datum) 0);
	registered = true;
}

uint32
sas_bell_departures(void)
{
	return bell != NULL ? pg_atomic_read_u32(&bell->departures) : 1;
}

void
sas_bell_mark_stops(void)
{
	marked_actors |= 1 << SAS_AGENT;
	marked_stops = true;
}

uint32
sas_bell_stops_version(void)
{
	return bell != NULL ? pg_atomic_read_u32(&bell->stops_version) : 1;
}

void
sas_bell_mark_on_abort(void)
{
	marked_end = true;
}

void
sas_bell_mark_run(int64 run_id)
{
	if (bell == NULL)
		return;
	if (marked_nruns > 0 && marked_runs[marked_nruns - 1] == run_id)
		return;
	if (marked_nruns == marked_runs_room)
	{
		int			room = Max(64, marked_runs_room * 2);

		if (marked_runs == NULL)
			marked_runs = MemoryContextAlloc(TopTransactionContext, room * sizeof(int64));
		else
			marked_runs = repalloc_huge(marked_runs, room * sizeof(int64));
		marked_runs_room = room;
	}
	marked_runs[marked_nruns++] = run_id;
}

static int
sas_bell_compare_runs(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : (x > y);
}

/* Wakes the waiters of the marked runs. */
static void
sas_bell_ring_runs(void)
{
	/* Who registers after this look finds the run changed already. */
	pg_memory_barrier();
	if (bell->waiters_end == 0)
		return;
	qsort(marked_runs, marked_nruns, sizeof(int64), sas_bell_compare_runs);
	LWLockAcquire(&bell->lock, LW_SHARED);
	for (int i = 0; i < bell->waiters_end; i++)
	{
		SasWaiter  *w = &bell->waiters[i];

		if (w->dboid == MyDatabaseId &&
			bsearch(&w->run_id, marked_runs, marked_nruns, sizeof(int64), sas_bell_compare_runs))
			SetLatch(w->latch);
	}
	LWLockRelease(&bell->lock);
}

static void
sas_bell_forget_marks(void)
{
	if (marked_any_lane)
		memset(marked_lanes, 0, sizeof(marked_lanes));
	marked_any_lane = false;
	marked_items = false;
	marked_agents = false;
	marked_watches = false;
	marked_stops = false;
	marked_due = DT_NOEND;
	marked_actors = 0;
	marked_end = false;
	marked_runs = NULL;
	marked_nruns = marked_runs_room = 0;
}

/* Everything marked; forgotten first, so that nothing is rung twice. */
static void
sas_bell_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			sas_fronts_commit();
			if (marked_agents && bell != NULL)
				pg_atomic_fetch_add_u32(&bell->agents_version, 1);
			if (marked_watches && bell != NULL)
				pg_atomic_fetch_add_u32(&bell->watches_version, 1);
			if (marked_stops && bell != NULL)
				pg_atomic_fetch_add_u32(&bell->stops_version, 1);
			if (marked_actors != 0)
				sas_bell_ring(MyDatabaseId, marked_actors, SAS_COUNT_MARKED, NULL);
			if (marked_due != DT_NOEND)
				sas_bell_ring_due();
			if (marked_nruns > 0)
				sas_bell_ring_runs();
			/* FALLTHROUGH */
		case XACT_EVENT_ABORT:
			if (marked_end)
				sas_bell_ring(MyDatabaseId, ALL_ACTORS, SAS_COUNT_EVERYTHING, my_listener);
			/* FALLTHROUGH */
		case XACT_EVENT_PREPARE:
			sas_fronts_forget();
			sas_bell_forget_marks();
			sas_bell_wait_end();
			break;
		default:
			break;
	}
}

void
sas_bell_install(void)
{
	RegisterXactCallback(sas_bell_xact_callback, NULL);
	sas_fronts_install();
}

/* ---------------------------------------------------------------- workers */

static void
sas_bell_detach(int code, Datum arg)
{
	if (my_listener == NULL)
		return;
	/* what only this worker knew of, and the limits of agents that it gives back, are for the others */
	sas_bell_ring(MyDatabaseId, 1 << my_listener->actor, SAS_COUNT_EVERYTHING, my_listener);
	LWLockAcquire(&bell->lock, LW_EXCLUSIVE);
	my_listener->dboid = InvalidOid;
	if (--my_house->listeners == 0)
		my_house->dboid = InvalidOid;
	LWLockRelease(&bell->lock);
	my_listener = NULL;
	my_house = NULL;
}

static SasHouse *
sas_bell_enter_house(Oid dboid)
{
	SasHouse   *house = sas_bell_house(dboid);

	if (house == NULL)
	{
		house = sas_bell_house(InvalidOid);
		if (house == NULL)
			return NULL;
		house->dboid = dboid;
		house->listeners = 0;
		/* the number of a database that is gone may come back */
		sas_fronts_lower_all(dboid);
	}
	house->listeners++;
	return house;
}

void
sas_bell_attach(SasActor actor)
{
	if (bell == NULL || my_listener != NULL)
		return;
	before_shmem_exit(sas_bell_detach, (Datum) 0);
	LWLockAcquire(&bell->lock, LW_EXCLUSIVE);
	for (int i = 0; i < bell->capacity; i++)
	{
		SasListener *l = &bell->listeners[i];

		if (OidIsValid(l->dboid))
			continue;
		my_house = sas_bell_enter_house(MyDatabaseId);
		if (my_house == NULL)
			break;
		l->actor = actor;
		l->latch = MyLatch;
		l->dboid = MyDatabaseId;
		my_listener = l;
		break;
	}
	LWLockRelease(&bell->lock);
	if (my_listener == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("no room for another listener of the sas bell")));
}

uint32
sas_bell_rings(void)
{
	return my_listener != NULL ? pg_atomic_read_u32(&my_listener->rings) : 0;
}

static pg_atomic_uint32 *
sas_bell_lane(int lane)
{
	return &my_house->lanes[(uint32) lane % SAS_BELL_LANES];
}

/* The sum of two counts that only grow is another number when either has grown. */
uint32
sas_bell_lane_rings(int lane)
{
	if (my_house == NULL)
		return 0;
	return pg_atomic_read_u32(sas_bell_lane(lane)) + pg_atomic_read_u32(&my_house->everything);
}

uint32
sas_bell_items_rings(void)
{
	if (my_house == NULL)
		return 0;
	return pg_atomic_read_u32(&my_house->items) + pg_atomic_read_u32(&my_house->everything);
}

void
sas_bell_pass_lane(int lane)
{
	if (my_house != NULL)
		pg_atomic_fetch_add_u32(sas_bell_lane(lane), 1);
}

void
sas_bell_pass_items(void)
{
	if (my_house != NULL)
		pg_atomic_fetch_add_u32(&my_house->items, 1);
}

/* ---------------------------------------------------------------- waiters */

static void
sas_bell_wait_exit(int code, Datum arg)
{
	sas_bell_wait_end();
}

bool
sas_bell_wait_begin(int64 run_id)
{
	static bool registered = false;

	if (bell == NULL)
		return false;
	if (!registered)
		before_shmem_exit(sas_bell_wait_exit, (Datum) 0);
	registered = true;
	sas_bell_wait_end();
	LWLockAcquire(&bell->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_WAITERS && my_waiter == NULL; i++)
	{
		SasWaiter  *w = &bell->waiters[i];

		if (OidIsValid(w->dboid))
			continue;
		w->run_id = run_id;
		w->latch = MyLatch;
		w->dboid = MyDatabaseId;
		bell->waiters_end = Max(bell->waiters_end, i + 1);
		my_waiter = w;
	}
	LWLockRelease(&bell->lock);
	return my_waiter != NULL;
}

void
sas_bell_wait_end(void)
{
	if (my_waiter == NULL)
		return;
	LWLockAcquire(&bell->lock, LW_EXCLUSIVE);
	my_waiter->dboid = InvalidOid;
	while (bell->waiters_end > 0 && !OidIsValid(bell->waiters[bell->waiters_end - 1].dboid))
		bell->waiters_end--;
	LWLockRelease(&bell->lock);
	my_waiter = NULL;
}
