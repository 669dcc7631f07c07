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

/* Whom this transaction wakes, or nudges, and for what. */
typedef struct WakeupCommitCalls
{
	int			actors;			/* one bit each; 0: none, and nothing below */
	bool		any_lane;
	bool		items;
	int			versions;		/* one bit each */
	uint32		lanes[SAS_WAKE_LANE_WORDS];
} WakeupCommitCalls;

/* Of this transaction. */
static WakeupCommitCalls wakeup_commit_calls[2];	/* wake-ups, nudges */
static int	wakeup_commit_steps = 0;	/* of functions, not among those; above 1: many, perhaps */
static bool wakeup_commit_all = false;	/* also on abort */
static TimestampTz wakeup_commit_due = DT_NOEND;
static int64 *wakeup_commit_runs = NULL;	/* in TopTransactionContext */
static int	wakeup_commit_n_runs = 0;
static int	wakeup_commit_runs_room = 0;

void
sas_wake_actor_at_commit(SasActor actor, bool nudge)
{
	wakeup_commit_calls[nudge].actors |= 1 << actor;
}

static void
wakeup_commit_add_lane(int lane, bool nudge)
{
	uint32		bit = (uint32) lane % SAS_WAKE_LANES;

	sas_wake_actor_at_commit(lane == 0 ? SAS_FUNCTION : SAS_AGENT, nudge);
	wakeup_commit_calls[nudge].any_lane = true;
	wakeup_commit_calls[nudge].lanes[bit / 32] |= (uint32) 1 << (bit % 32);
}

void
sas_wake_lane_at_commit(int lane, bool nudge)
{
	if (lane == 0 && !nudge)
		wakeup_commit_steps = 2;
	else
		wakeup_commit_add_lane(lane, nudge);
}

void
sas_wake_step_at_commit(void)
{
	wakeup_commit_steps++;
}

bool
sas_wake_steps_at_commit(void)
{
	return wakeup_commit_steps > 0 || wakeup_commit_all;
}

int
sas_wake_withdraw_steps(void)
{
	int			steps = wakeup_commit_steps;

	wakeup_commit_steps = 0;
	return steps;
}

void
sas_wake_restore_steps(int steps)
{
	wakeup_commit_steps += steps;
}

void
sas_wake_items_at_commit(bool nudge)
{
	sas_wake_actor_at_commit(SAS_FUNCTION, nudge);
	wakeup_commit_calls[nudge].items = true;
}

void
sas_wake_version_at_commit(SasWakeVersion version)
{
	bool		nudge = version == SAS_WAKE_WATCHES_NUDGED;

	sas_wake_actor_at_commit(SAS_AGENT, nudge);
	if (version >= SAS_WAKE_WATCHES)
		sas_wake_actor_at_commit(SAS_FUNCTION, nudge);
	wakeup_commit_calls[nudge].versions |= 1 << version;
}

void
sas_wake_due_at_commit(TimestampTz at)
{
	wakeup_commit_due = Min(wakeup_commit_due, at);
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
	for (int nudge = 0; nudge < 2; nudge++)
		if (wakeup_commit_calls[nudge].actors != 0)
			memset(&wakeup_commit_calls[nudge], 0, sizeof(WakeupCommitCalls));
	wakeup_commit_steps = 0;
	wakeup_commit_due = DT_NOEND;
	wakeup_commit_all = false;
	wakeup_commit_runs = NULL;
	wakeup_commit_n_runs = wakeup_commit_runs_room = 0;
}

static void
wakeup_commit_wake(void)
{
	if (sas_wake_shmem == NULL)
		return;
	/* nothing else for function workers: one of them may do */
	if (wakeup_commit_steps == 1 && (wakeup_commit_calls[false].actors & (1 << SAS_FUNCTION)) == 0)
		sas_wake_hand_over(MyDatabaseId);
	else if (wakeup_commit_steps > 0)
		wakeup_commit_add_lane(0, false);
	for (int nudge = 0; nudge < 2; nudge++)
	{
		const WakeupCommitCalls *calls = &wakeup_commit_calls[nudge];

		if (calls->actors != 0)
			sas_wake_listeners(MyDatabaseId, calls->actors,
							   (SasWakeupCounts) {.nudge = nudge,.items = calls->items,.lanes = calls->any_lane ? calls->lanes : NULL,.versions = calls->versions},
							   false);
	}
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
			sas_wake_tell_followers(wakeup_commit_calls[false].actors != 0 || wakeup_commit_calls[true].actors != 0 || wakeup_commit_steps > 0 ||
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
