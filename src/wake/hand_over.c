/* SPDX-License-Identifier: PostgreSQL */
/*
 * hand_over.c: function steps that one worker is woken for, in place of all.
 *
 * To wake all of them for each step costs more than the step, if few come: all
 * but one look in vain.  So a step that comes by itself is handed over to one
 * worker: to one that will be through with a short tick in a moment, or that
 * sleeps.
 *
 * That worker may be slow, or frozen, or its claim may not find the step.  So
 * a step is handed over only if all others guard it.  A worker that is awake
 * does: before it sleeps it asks whether all that has been counted is settled,
 * that is, whether a claim of somebody that had read the count has left nothing
 * behind and is committed.  If not, it sleeps with one eye open: it takes naps,
 * and after a nap it looks itself if what was counted before the nap is not
 * settled.  It goes on like that while steps come quickly, so that they can be
 * handed over.  Otherwise it sleeps well, and the next step wakes all.
 *
 * Whether it may sleep well is decided with the lock held, and so is to whom a
 * step goes.  So no step is handed over behind the back of a worker that does
 * not guard it.  The model test/model/wake.pml (PART 4) tries all orders.
 *
 * Beside that, the worker to which a step was handed over tells the others at
 * once if its claim has left something behind, or if it calls something slow
 * before it has looked: they need not wait for the end of their naps.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/clock.h"
#include "wake/wakeup_shmem.h"

#define HAND_OVER_NAP_MS 10
/* steps come quickly if there is no longer pause than that */
#define HAND_OVER_PAUSE_US 100000
/* a tick, of one that is to be through in a moment */
#define HAND_OVER_QUICK_US 5000
/* a session that waits for a run: steps do not wait for it to come back */
#define HAND_OVER_HURRY_US 20000

static bool hand_over_mine = false; /* a step was handed over to this worker */
static uint32 hand_over_seen;	/* the count when this tick began */
static uint32 hand_over_napped; /* and when this nap did */
static bool hand_over_often = false;	/* steps have come quickly */
static int64 hand_over_came_us = 0;
static int64 hand_over_begun_us = 0;	/* this tick */
static bool hand_over_quick = false;	/* the last tick was */

/* ---------------------------------------------------------------- who has a step */

/* May this one have it? With the lock held. */
static bool
hand_over_may(SasWakeupListener *l, uint32 rest, int64 now_us)
{
	int64		since_us;

	if (rest == SAS_WAKE_QUICK)
		return now_us - (int64) pg_atomic_read_u64(&l->begun_us) < HAND_OVER_QUICK_US;
	if (rest != SAS_WAKE_HANDED)
		return rest == SAS_WAKE_SLEEPS;
	/* has it been woken long ago? */
	since_us = pg_atomic_read_u64(&l->woken_us);
	return since_us == 0 || now_us - since_us < HAND_OVER_NAP_MS * 1000;
}

/* With the lock held; it was in that state. */
static bool
hand_over_to(SasWakeupListener *l, uint32 rest, int64 now_us)
{
	uint32		was = rest;

	if (rest == SAS_WAKE_HANDED)
		return true;
	if (!pg_atomic_compare_exchange_u32(&l->rest, &was, SAS_WAKE_HANDED))
		return was == SAS_WAKE_HANDED;
	pg_atomic_fetch_add_u32(&l->handed, 1);
	if (pg_atomic_read_u64(&l->woken_us) == 0)
		pg_atomic_write_u64(&l->woken_us, now_us);
	if (rest == SAS_WAKE_SLEEPS)
		SetLatch(l->latch);
	return true;
}

static bool
hand_over_hurries(SasWakeupDatabase *database, int64 now_us)
{
	return now_us - (int64) pg_atomic_read_u64(&database->waited_us) < HAND_OVER_HURRY_US;
}

/* With the lock held. False: to nobody, or not everybody else guards it. */
static bool
hand_over_one(SasWakeupDatabase *database, int64 now_us)
{
	SasWakeupListener *best = NULL;
	SasWakeupListener *unguarded = NULL;
	uint32		best_rest = SAS_WAKE_AWAKE;
	int			best_rank = 0;
	int			n_unguarded = 0;
	bool		hurries = hand_over_hurries(database, now_us);

	for (int i = 0; i < sas_wake_shmem->capacity; i++)
	{
		SasWakeupListener *l = &sas_wake_shmem->listeners[i];
		uint32		rest;
		int			rank;

		if (l->dboid != database->dboid || l->actor != SAS_FUNCTION)
			continue;
		if (pg_atomic_read_u32(&l->guards) == 0)
		{
			unguarded = l;
			n_unguarded++;
		}
		rest = pg_atomic_read_u32(&l->rest);
		if (!hand_over_may(l, rest, now_us))
			continue;
		/* one that is about to look; if somebody waits, one that has nothing else to do, else one that looks soon */
		rank = rest == SAS_WAKE_HANDED ? 3 : (rest == SAS_WAKE_QUICK) != hurries ? 2 : 1;
		if (rank <= best_rank)
			continue;
		best = l;
		best_rest = rest;
		best_rank = rank;
	}
	if (n_unguarded > 1 || (n_unguarded == 1 && unguarded != best))
		return false;
	return best != NULL && hand_over_to(best, best_rest, now_us);
}

void
sas_wake_hand_over(Oid dboid)
{
	SasWakeupDatabase *database;
	bool		done = true;

	if (sas_wake_shmem == NULL)
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	database = sas_wake_find_database(dboid);
	if (database != NULL)
	{
		pg_atomic_fetch_add_u32(&database->lanes[0], 1);
		done = hand_over_one(database, sas_base_clock_monotonic_us());
	}
	LWLockRelease(&sas_wake_shmem->lock);
	if (!done)
		sas_wake_actor(dboid, SAS_FUNCTION);
}

void
sas_wake_hurry(Oid dboid)
{
	SasWakeupDatabase *database = sas_wake_find_database(dboid);

	if (database == NULL)
		return;
	pg_atomic_write_u64(&database->waited_us, sas_base_clock_monotonic_us());
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
	{
		SasWakeupListener *l = &sas_wake_shmem->listeners[i];

		if (l->dboid == dboid && l->actor == SAS_FUNCTION && pg_atomic_read_u32(&l->rest) == SAS_WAKE_HANDED)
			SetLatch(l->latch);
	}
}

/* ---------------------------------------------------------------- workers */

static bool
hand_over_concerns_me(void)
{
	return sas_wake_my_listener != NULL && sas_wake_my_listener->actor == SAS_FUNCTION;
}

/* Is there anything since that count that nobody may have found? */
bool
sas_wake_steps_open(uint32 seen)
{
	uint32		count = sas_wake_lane_count(0);

	return sas_wake_my_database != NULL && count != seen &&
		(int32) (count - pg_atomic_read_u32(&sas_wake_my_database->settled)) > 0;
}

bool
sas_wake_may_gather(void)
{
	return hand_over_concerns_me() && pg_atomic_read_u32(&sas_wake_my_listener->rest) == SAS_WAKE_HANDED &&
		!hand_over_hurries(sas_wake_my_database, sas_base_clock_monotonic_us());
}

void
sas_wake_get_up(void)
{
	uint32		count;

	if (!hand_over_concerns_me())
		return;
	hand_over_begun_us = sas_base_clock_monotonic_us();
	pg_atomic_write_u64(&sas_wake_my_listener->begun_us, hand_over_begun_us);
	hand_over_mine |= pg_atomic_exchange_u32(&sas_wake_my_listener->rest,
											 hand_over_quick && !sas_base_stopping && !sas_base_leaving ? SAS_WAKE_QUICK : SAS_WAKE_AWAKE) == SAS_WAKE_HANDED;
	pg_atomic_exchange_u32(&sas_wake_my_listener->guards, 1);
	count = sas_wake_lane_count(0);
	if (count == hand_over_seen)
		return;
	hand_over_seen = count;
	hand_over_often = hand_over_begun_us - hand_over_came_us < HAND_OVER_PAUSE_US;
	hand_over_came_us = hand_over_begun_us;
}

void
sas_wake_left_none(uint32 seen)
{
	uint32		settled;

	if (sas_wake_my_database == NULL)
		return;
	hand_over_mine = false;
	settled = pg_atomic_read_u32(&sas_wake_my_database->settled);
	while ((int32) (seen - settled) > 0 && !pg_atomic_compare_exchange_u32(&sas_wake_my_database->settled, &settled, seen))
		;
}

void
sas_wake_pass_on(void)
{
	if (!hand_over_mine)
		return;
	hand_over_mine = false;
	sas_wake_count_lane(0);
	sas_wake_others(SAS_FUNCTION);
}

void
sas_wake_tick_over(void)
{
	if (!hand_over_concerns_me())
		return;
	hand_over_quick = sas_base_clock_monotonic_us() - hand_over_begun_us < HAND_OVER_QUICK_US;
	/* it has not looked for what it was woken for, or has left something */
	sas_wake_pass_on();
}

void
sas_wake_may_be_slow(void)
{
	if (!hand_over_concerns_me())
		return;
	hand_over_mine |= pg_atomic_exchange_u32(&sas_wake_my_listener->rest, SAS_WAKE_AWAKE) == SAS_WAKE_HANDED;
	sas_wake_pass_on();
}

/* ---------------------------------------------------------------- sleep */

/* False: it keeps one eye open. */
static bool
hand_over_sleep_well(void)
{
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	if (!sas_wake_steps_open(hand_over_seen))
		pg_atomic_write_u32(&sas_wake_my_listener->guards, 0);
	LWLockRelease(&sas_wake_shmem->lock);
	return pg_atomic_read_u32(&sas_wake_my_listener->guards) == 0;
}

static bool
hand_over_is_alone(void)
{
	int			n = 0;

	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->capacity; i++)
		n += sas_wake_shmem->listeners[i].dboid == MyDatabaseId && sas_wake_shmem->listeners[i].actor == SAS_FUNCTION;
	LWLockRelease(&sas_wake_shmem->lock);
	return n == 1;
}

/* How long it may sleep before it looks after the others; -1: for ever. */
static int
hand_over_nap(int64 now_us)
{
	if (!(hand_over_often && now_us - hand_over_came_us < HAND_OVER_PAUSE_US && !hand_over_is_alone()) &&
		hand_over_sleep_well())
		return -1;
	hand_over_napped = sas_wake_lane_count(0);
	return HAND_OVER_NAP_MS;
}

bool
sas_wake_sleep(int *nap_ms)
{
	int64		now_us;
	uint32		rest;

	*nap_ms = -1;
	if (!hand_over_concerns_me())
		return true;
	now_us = sas_base_clock_monotonic_us();
	rest = pg_atomic_read_u32(&sas_wake_my_listener->rest);
	while (rest != SAS_WAKE_HANDED)
		if (pg_atomic_compare_exchange_u32(&sas_wake_my_listener->rest, &rest, SAS_WAKE_SLEEPS))
		{
			*nap_ms = hand_over_nap(now_us);
			return true;
		}
	return false;
}

bool
sas_wake_sleep_on(int *nap_ms)
{
	int64		now_us = sas_base_clock_monotonic_us();
	uint32		settled = pg_atomic_read_u32(&sas_wake_my_database->settled);

	if (hand_over_napped != hand_over_seen && (int32) (hand_over_napped - settled) > 0)
		return false;
	if (sas_wake_lane_count(0) != hand_over_napped)
		hand_over_came_us = now_us;
	*nap_ms = hand_over_nap(now_us);
	return true;
}
