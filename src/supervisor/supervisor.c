/* SPDX-License-Identifier: PostgreSQL */
/*
 * supervisor.c: one turn of the leading supervisor.
 *
 * The leader's place is a slot in shared memory that is freed when its holder
 * dies; the others sleep until they are rung, and try again.  All judging is
 * in sas._supervisor_tick; this file brings it the workers that live, and
 * ends those that hold a local step past complete-by, since a function that
 * catches its own cancellation can be stopped in no other way.
 *
 * Once per interval, and when the time of the oldest run is over, it also
 * watches and keeps house, in a transaction of its own and in small batches
 * between which everything overdue has its turn.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "store/store.h"
#include "supervisor/supervisor.h"
#include "wake/bell.h"

#define SAS_SUPERVISOR_BATCH 200
#define SAS_MAX_PEERS 1024
#define SAS_SHORTEST_SLEEP_MS 100

/* what an old run takes with it is little: a batch is over within some 30 ms */
#define SAS_PURGE_BATCH 500
#define SAS_PURGE_PAUSE_MS 10

/* when to keep house again, monotonic */
static int64 house_us = 0;

/* Returns in how many ms it is to be called again. */
static int64
keep_house(void)
{
	int64		now = sas_clock_monotonic_us();
	int64		next_ms;
	int			purged;

	if (now < house_us)
		return (house_us - now) / 1000 + 1;
	/* in an error, not at once again */
	house_us = now + sas_supervisor_interval * INT64CONST(1000);
	if (!sas_store_begin())
		return -1;
	sas_store_watch();
	purged = sas_store_keep_house(SAS_PURGE_BATCH, &next_ms);
	sas_store_commit();

	/* a setting may have changed by then, and the watch is due */
	if (next_ms < 0 || next_ms > sas_supervisor_interval)
		next_ms = sas_supervisor_interval;
	next_ms = Max(next_ms, purged > 0 ? SAS_PURGE_PAUSE_MS : SAS_SHORTEST_SLEEP_MS);
	house_us = sas_clock_monotonic_us() + next_ms * 1000;
	return next_ms;
}

static SasTurn
turn(void)
{
	SasTurn		next = {false, -1};
	int64		live[SAS_MAX_PEERS];
	int64		newest;
	int64		house_ms;
	int			n_live;
	int			worked;
	int64	   *stuck;
	int			n_stuck;

	if (!sas_peers_lead(SAS_SUPERVISOR))
		return next;

	sas_bell_supervisor_sleeps_until(DT_NOEND);

	/* the living first, the leases afterwards: see base/peers.h */
	n_live = sas_peers_live(live, SAS_MAX_PEERS, &newest);
	if (n_live > SAS_MAX_PEERS)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("too many workers to watch: %d", n_live)));
	if (!sas_store_begin())
		return next;
	worked = sas_store_supervisor_tick(live, n_live, newest, SAS_SUPERVISOR_BATCH, &next.wake_in_ms, &stuck, &n_stuck);
	sas_store_commit();

	for (int i = 0; i < n_stuck; i++)
		sas_peers_terminate(stuck[i]);
	next.again = worked >= SAS_SUPERVISOR_BATCH;
	/* what is due and could not be taken is held by a session: not before a while */
	if (worked == 0 && next.wake_in_ms >= 0 && next.wake_in_ms < SAS_SHORTEST_SLEEP_MS)
		next.wake_in_ms = SAS_SHORTEST_SLEEP_MS;
	if (next.wake_in_ms < 0 || next.wake_in_ms > sas_supervisor_interval)
		next.wake_in_ms = sas_supervisor_interval;
	house_ms = keep_house();
	if (house_ms >= 0 && house_ms < next.wake_in_ms)
		next.wake_in_ms = house_ms;
	sas_bell_supervisor_sleeps_until(sas_clock_now() + next.wake_in_ms * 1000);
	return next;
}

const SasActorMethods sas_supervisor_methods = {
	.start = sas_store_prepare_session,
	.turn = turn,
};
