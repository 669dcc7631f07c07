/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup_commit.c: what a transaction wakes when it has committed.
 *
 * A transaction's wake-ups stay in this process until the transaction callback
 * runs: by then others see its rows.  A prepared transaction drops them;
 * COMMIT PREPARED wakes everything of the database.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/grow.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "wake/low_water.h"
#include "wake/wakeup_shmem.h"

/* Of this transaction. */
static int	wakeup_commit_actors = 0;	/* one bit each */
static bool wakeup_commit_any_lane = false;
static uint32 wakeup_commit_lanes[SAS_WAKE_LANE_WORDS];
static bool wakeup_commit_items = false;
static int	wakeup_commit_nudged_actors = 0;
static bool wakeup_commit_any_nudged_lane = false;
static uint32 wakeup_commit_nudged_lanes[SAS_WAKE_LANE_WORDS];
static bool wakeup_commit_nudged_items = false;
static bool wakeup_commit_nudged_watches = false;
static bool wakeup_commit_agents = false;
static bool wakeup_commit_watches = false;
static bool wakeup_commit_stops = false;
static bool wakeup_commit_all = false;	/* also on abort */
static TimestampTz wakeup_commit_due = DT_NOEND;
static int64 *wakeup_commit_runs = NULL;	/* in TopTransactionContext */
static int	wakeup_commit_n_runs = 0;
static int	wakeup_commit_runs_room = 0;

void
sas_wake_actor_at_commit(SasActor actor)
{
	wakeup_commit_actors |= 1 << actor;
}

void
sas_wake_lane_at_commit(int lane)
{
	uint32		bit = (uint32) lane % SAS_WAKE_LANES;

	wakeup_commit_actors |= 1 << (lane == 0 ? SAS_FUNCTION : SAS_AGENT);
	wakeup_commit_any_lane = true;
	wakeup_commit_lanes[bit / 32] |= (uint32) 1 << (bit % 32);
}

void
sas_wake_items_at_commit(void)
{
	wakeup_commit_actors |= 1 << SAS_FUNCTION;
	wakeup_commit_items = true;
}

void
sas_wake_nudge_lane_at_commit(int lane)
{
	uint32		bit = (uint32) lane % SAS_WAKE_LANES;

	wakeup_commit_nudged_actors |= 1 << (lane == 0 ? SAS_FUNCTION : SAS_AGENT);
	wakeup_commit_any_nudged_lane = true;
	wakeup_commit_nudged_lanes[bit / 32] |= (uint32) 1 << (bit % 32);
}

void
sas_wake_nudge_items_at_commit(void)
{
	wakeup_commit_nudged_actors |= 1 << SAS_FUNCTION;
	wakeup_commit_nudged_items = true;
}

void
sas_wake_nudge_watches_at_commit(void)
{
	wakeup_commit_nudged_actors |= (1 << SAS_AGENT) | (1 << SAS_FUNCTION);
	wakeup_commit_nudged_watches = true;
}

void
sas_wake_nudge_actor_at_commit(SasActor actor)
{
	wakeup_commit_nudged_actors |= 1 << actor;
}

void
sas_wake_due_at_commit(TimestampTz at)
{
	wakeup_commit_due = Min(wakeup_commit_due, at);
}

void
sas_wake_agents_at_commit(void)
{
	wakeup_commit_actors |= 1 << SAS_AGENT;
	wakeup_commit_agents = true;
}

void
sas_wake_watches_at_commit(void)
{
	wakeup_commit_actors |= (1 << SAS_AGENT) | (1 << SAS_FUNCTION);
	wakeup_commit_watches = true;
}

void
sas_wake_stops_at_commit(void)
{
	wakeup_commit_actors |= 1 << SAS_AGENT;
	wakeup_commit_stops = true;
}

void
sas_wake_all_at_end(void)
{
	wakeup_commit_all = true;
}

void
sas_wake_run_at_commit(int64 run_id)
{
	if (sas_wake_shmem == NULL)
		return;
	if (wakeup_commit_n_runs > 0 && wakeup_commit_runs[wakeup_commit_n_runs - 1] == run_id)
		return;
	wakeup_commit_runs = sas_base_grow(TopTransactionContext, wakeup_commit_runs, wakeup_commit_n_runs, &wakeup_commit_runs_room, sizeof(int64));
	wakeup_commit_runs[wakeup_commit_n_runs++] = run_id;
}

static void
wakeup_commit_forget(void)
{
	if (wakeup_commit_any_lane)
		memset(wakeup_commit_lanes, 0, sizeof(wakeup_commit_lanes));
	wakeup_commit_any_lane = false;
	wakeup_commit_items = false;
	if (wakeup_commit_any_nudged_lane)
		memset(wakeup_commit_nudged_lanes, 0, sizeof(wakeup_commit_nudged_lanes));
	wakeup_commit_any_nudged_lane = false;
	wakeup_commit_nudged_items = false;
	wakeup_commit_nudged_watches = false;
	wakeup_commit_nudged_actors = 0;
	wakeup_commit_agents = false;
	wakeup_commit_watches = false;
	wakeup_commit_stops = false;
	wakeup_commit_due = DT_NOEND;
	wakeup_commit_actors = 0;
	wakeup_commit_all = false;
	wakeup_commit_runs = NULL;
	wakeup_commit_n_runs = wakeup_commit_runs_room = 0;
}

/* The versions go up first: a worker that wakes sees them. */
static void
wakeup_commit_wake(void)
{
	if (sas_wake_shmem != NULL)
	{
		if (wakeup_commit_agents)
			pg_atomic_fetch_add_u32(&sas_wake_shmem->agents_version, 1);
		if (wakeup_commit_watches)
			pg_atomic_fetch_add_u32(&sas_wake_shmem->watches_version, 1);
		if (wakeup_commit_nudged_watches)
			pg_atomic_fetch_add_u32(&sas_wake_shmem->watches_nudges, 1);
		if (wakeup_commit_stops)
			pg_atomic_fetch_add_u32(&sas_wake_shmem->stops_version, 1);
	}
	if (wakeup_commit_actors != 0)
		sas_wake_listeners(MyDatabaseId, wakeup_commit_actors,
						   (SasWakeupCounts) {.items = wakeup_commit_items,.lanes = wakeup_commit_any_lane ? wakeup_commit_lanes : NULL},
						   false);
	if (wakeup_commit_nudged_actors != 0)
		sas_wake_listeners(MyDatabaseId, wakeup_commit_nudged_actors,
						   (SasWakeupCounts) {.nudge = true,.items = wakeup_commit_nudged_items,.lanes = wakeup_commit_any_nudged_lane ? wakeup_commit_nudged_lanes : NULL},
						   false);
	if (wakeup_commit_due != DT_NOEND)
		sas_wake_supervisor_by(wakeup_commit_due);
	if (wakeup_commit_n_runs > 0)
		sas_wake_waiters(wakeup_commit_runs, wakeup_commit_n_runs);
}

static void
wakeup_commit_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			sas_wake_tell_followers(wakeup_commit_actors != 0 || wakeup_commit_nudged_actors != 0 ||
									wakeup_commit_due != DT_NOEND || wakeup_commit_n_runs > 0);
			break;
		case XACT_EVENT_COMMIT:
			sas_wake_low_water_commit();
			wakeup_commit_wake();
			/* FALLTHROUGH */
		case XACT_EVENT_ABORT:
			if (wakeup_commit_all)
				sas_wake_listeners(MyDatabaseId, SAS_WAKE_ALL_ACTORS, (SasWakeupCounts) {.everything = true}, true);
			/* FALLTHROUGH */
		case XACT_EVENT_PREPARE:
			sas_wake_low_water_forget();
			wakeup_commit_forget();
			sas_wake_wait_end();
			break;
		default:
			break;
	}
}

void
sas_wake_install(void)
{
	RegisterXactCallback(wakeup_commit_xact_callback, NULL);
	sas_wake_low_water_install();
	sas_wake_holders_install();
}
