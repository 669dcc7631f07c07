/* SPDX-License-Identifier: PostgreSQL */
/*
 * registry.c: the slots of the workers, in shared memory.
 *
 * A worker's slot is the proof that it lives: actors ask it for the leases of
 * the dead (base/peers.h), the launcher for duplicates, a hold for who must
 * leave.  The exit callback runs after the worker's transaction is over, then
 * wakes the supervisors of its database (its leases are free), its deputies if
 * it led, and the launcher.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/peers.h"
#include "wake/wakeup.h"
#include "worker/board.h"
#include "worker/request.h"
#include "worker/session.h"

SasBoard   *sas_board = NULL;

static SasSlot *my_slot = NULL;

/* ---------------------------------------------------------------- launcher */

/* With the lock held. */
static SasSlot *
sas_registry_find(int64 worker_id)
{
	for (int i = 0; i < sas_board->capacity; i++)
		if (sas_board->slots[i].state != SAS_SLOT_FREE && sas_board->slots[i].worker_id == worker_id)
			return &sas_board->slots[i];
	return NULL;
}

int
sas_registry_reserve(Oid dboid, int actor, int index, int64 *worker_id)
{
	int			found = -1;

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_board->capacity && found < 0; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];

		if (slot->state != SAS_SLOT_FREE)
			continue;
		memset(slot, 0, sizeof(SasSlot));
		slot->state = SAS_SLOT_STARTING;
		slot->worker_id = *worker_id = ++sas_board->last_worker_id;
		slot->dboid = dboid;
		slot->actor = actor;
		slot->index = index;
		slot->started_at = slot->last_activity_at = GetCurrentTimestamp();
		found = i;
	}
	LWLockRelease(&sas_board->lock);
	return found;
}

SasExit
sas_registry_release(int64 worker_id)
{
	SasSlot    *slot;
	SasExit		reason = SAS_EXIT_FAILED;	/* it never attached */

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	slot = sas_registry_find(worker_id);
	if (slot != NULL && slot->state == SAS_SLOT_EXITED)
		reason = slot->exit;
	if (slot != NULL && (slot->state == SAS_SLOT_STARTING || slot->state == SAS_SLOT_EXITED))
		slot->state = SAS_SLOT_FREE;
	LWLockRelease(&sas_board->lock);
	return reason;
}

/* Asks one worker to leave; false when it is not running (any more). */
bool
sas_registry_stop(int64 worker_id)
{
	SasSlot    *slot;
	bool		stopped = false;

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	slot = sas_registry_find(worker_id);
	if (slot != NULL && slot->state == SAS_SLOT_RUNNING)
	{
		slot->state = SAS_SLOT_STOPPING;
		stopped = kill(slot->pid, SIGTERM) == 0;
	}
	LWLockRelease(&sas_board->lock);
	return stopped;
}

/*
 * A new launcher cannot hear of processes that its predecessor asked for and
 * that have not come up yet: it takes their slots away, so that they leave
 * when they come.
 */
void
sas_registry_forget_starting(void)
{
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_board->capacity; i++)
		if (sas_board->slots[i].state == SAS_SLOT_STARTING)
			sas_board->slots[i].state = SAS_SLOT_FREE;
	LWLockRelease(&sas_board->lock);
}

/* ---------------------------------------------------------------- worker */

static void
sas_registry_exit(int code, Datum arg)
{
	Oid			dboid = my_slot->dboid;
	SasActor	actor = my_slot->actor;
	bool		probe = my_slot->actor == SAS_PROBE;
	bool		leader;

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	leader = my_slot->leader;
	my_slot->leader = false;
	my_slot->in_flight = 0;
	if (my_slot->exit == SAS_EXIT_FAILED && sas_session_stop)
		my_slot->exit = SAS_EXIT_ORDERLY;
	my_slot->state = SAS_SLOT_EXITED;
	LWLockRelease(&sas_board->lock);
	my_slot = NULL;

	if (!probe)
		sas_wake_actor(dboid, SAS_SUPERVISOR);
	if (leader && actor != SAS_SUPERVISOR)
		sas_wake_actor(dboid, actor);
	sas_request_wake();
}

bool
sas_registry_attach(int slot_number, int64 worker_id)
{
	SasSlot    *slot = &sas_board->slots[slot_number];
	bool		mine;

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	mine = slot->state == SAS_SLOT_STARTING && slot->worker_id == worker_id;
	if (mine && sas_board_held(slot->dboid))
	{
		slot->state = SAS_SLOT_FREE;
		mine = false;
	}
	if (mine)
	{
		slot->pid = MyProcPid;
		slot->exit = SAS_EXIT_FAILED;
		slot->state = SAS_SLOT_RUNNING;
		my_slot = slot;
	}
	LWLockRelease(&sas_board->lock);
	if (mine)
		before_shmem_exit(sas_registry_exit, (Datum) 0);
	return mine;
}

void
sas_registry_set_exit(SasExit reason)
{
	if (my_slot != NULL)
		my_slot->exit = reason;
}

/* Without the lock: only this process writes them, and readers can do with an old figure. */
void
sas_registry_publish(int in_flight)
{
	if (my_slot == NULL)
		return;
	my_slot->in_flight = in_flight;
	my_slot->last_activity_at = GetCurrentTimestamp();
}

/* ---------------------------------------------------------------- everybody */

int
sas_registry_snapshot(SasSlot **slots)
{
	int			n = 0;

	*slots = NULL;
	if (sas_board == NULL)
		return 0;
	*slots = palloc(sas_board->capacity * sizeof(SasSlot));
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	for (int i = 0; i < sas_board->capacity; i++)
		if (sas_board->slots[i].state != SAS_SLOT_FREE)
			(*slots)[n++] = sas_board->slots[i];
	LWLockRelease(&sas_board->lock);
	return n;
}

SasLauncherState
sas_registry_launcher(void)
{
	SasLauncherState state = {0};

	if (sas_board == NULL)
		return state;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	state = sas_board->launcher;
	LWLockRelease(&sas_board->lock);
	return state;
}

static bool
sas_registry_alive(const SasSlot *slot, Oid dboid)
{
	return slot->dboid == dboid && slot->actor != SAS_PROBE &&
		(slot->state == SAS_SLOT_STARTING || slot->state == SAS_SLOT_RUNNING ||
		 slot->state == SAS_SLOT_STOPPING);
}

bool
sas_registry_has_workers(Oid dboid)
{
	bool		has = false;

	if (sas_board == NULL)
		return false;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	for (int i = 0; i < sas_board->capacity && !has; i++)
		has = sas_registry_alive(&sas_board->slots[i], dboid);
	LWLockRelease(&sas_board->lock);
	return has;
}

/* ---------------------------------------------------------------- crash loops */

/* so many failures in a row are no accident */
#define CRASH_LOOP 5
#define LONG_LIFE_MS 60000

void
sas_registry_trouble(Oid dboid, int actor, int index, int failures)
{
	SasTrouble *free_one = NULL;
	SasTrouble *mine = NULL;

	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_MAX_TROUBLES && mine == NULL; i++)
	{
		SasTrouble *t = &sas_board->troubles[i];

		if (t->dboid == dboid && t->actor == actor && t->index == index)
			mine = t;
		else if (t->dboid == InvalidOid && free_one == NULL)
			free_one = t;
	}
	if (mine == NULL && failures > 0)
		mine = free_one;
	if (mine != NULL)
	{
		mine->dboid = failures > 0 ? dboid : InvalidOid;
		mine->actor = actor;
		mine->index = index;
		mine->failures = failures;
	}
	LWLockRelease(&sas_board->lock);
}

static bool
sas_registry_recovered(const SasTrouble *trouble)
{
	for (int i = 0; i < sas_board->capacity; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];

		if (slot->state == SAS_SLOT_RUNNING && slot->dboid == trouble->dboid && slot->actor == trouble->actor &&
			slot->index == trouble->index &&
			TimestampDifferenceExceeds(slot->started_at, GetCurrentTimestamp(), LONG_LIFE_MS))
			return true;
	}
	return false;
}

int
sas_registry_crash_loops(Oid dboid, SasTrouble **troubles)
{
	int			n = 0;

	*troubles = palloc(sizeof(SasTrouble) * SAS_MAX_TROUBLES);
	if (sas_board == NULL)
		return 0;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	for (int i = 0; i < SAS_MAX_TROUBLES; i++)
	{
		SasTrouble *t = &sas_board->troubles[i];

		if (t->dboid == dboid && t->actor != SAS_PROBE && t->failures >= CRASH_LOOP && !sas_registry_recovered(t))
			(*troubles)[n++] = *t;
	}
	LWLockRelease(&sas_board->lock);
	return n;
}

int
sas_registry_terminate(Oid dboid)
{
	int			n = 0;

	if (sas_board == NULL)
		return 0;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	for (int i = 0; i < sas_board->capacity; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];

		if (sas_registry_alive(slot, dboid) && slot->pid != 0 && kill(slot->pid, SIGTERM) == 0)
			n++;
	}
	LWLockRelease(&sas_board->lock);
	return n;
}

/* ---------------------------------------------------------------- peers */

static int
sas_registry_peers_live(int64 *ids, int max, int64 *newest)
{
	int			n = 0;

	LWLockAcquire(&sas_board->lock, LW_SHARED);
	*newest = sas_board->last_worker_id;
	for (int i = 0; i < sas_board->capacity; i++)
	{
		if (!sas_registry_alive(&sas_board->slots[i], MyDatabaseId))
			continue;
		if (n < max)
			ids[n] = sas_board->slots[i].worker_id;
		n++;
	}
	LWLockRelease(&sas_board->lock);
	return n;
}

static void
sas_registry_peers_terminate(int64 worker_id)
{
	SasSlot    *slot;

	LWLockAcquire(&sas_board->lock, LW_SHARED);
	slot = sas_registry_find(worker_id);
	if (slot != NULL && sas_registry_alive(slot, MyDatabaseId) && slot->pid != 0)
		kill(slot->pid, SIGTERM);
	LWLockRelease(&sas_board->lock);
}

static bool
sas_registry_peers_lead(SasActor actor)
{
	bool		taken = false;

	if (my_slot != NULL && my_slot->leader && my_slot->actor == (int) actor)
		return true;
	LWLockAcquire(&sas_board->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_board->capacity && !taken; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];

		taken = slot->leader && slot->actor == (int) actor &&
			sas_registry_alive(slot, MyDatabaseId);
	}
	if (!taken && my_slot != NULL && my_slot->actor == (int) actor)
		my_slot->leader = true;
	LWLockRelease(&sas_board->lock);
	return !taken;
}

/* Without the lock, as what is published: a task is never seen with the time of the one before. */
static void
sas_registry_peers_turn(int64 task, int64 until_us)
{
	if (my_slot == NULL)
		return;
	my_slot->turn = 0;
	pg_write_barrier();
	my_slot->turn_until_us = until_us;
	pg_write_barrier();
	my_slot->turn = task;
}

static int
sas_registry_peers_overdue(SasPeerTurn *turns, int max, int64 *next_us)
{
	int64		now = sas_clock_monotonic_us();
	int			n = 0;

	*next_us = 0;
	LWLockAcquire(&sas_board->lock, LW_SHARED);
	for (int i = 0; i < sas_board->capacity && n < max; i++)
	{
		SasSlot    *slot = &sas_board->slots[i];
		int64		task;
		int64		until_us;

		if (!sas_registry_alive(slot, MyDatabaseId))
			continue;
		task = slot->turn;
		pg_read_barrier();
		until_us = slot->turn_until_us;
		if (task == 0)
			continue;
		if (until_us <= now)
			turns[n++] = (SasPeerTurn) {slot->worker_id, task};
		else if (*next_us == 0 || until_us < *next_us)
			*next_us = until_us;
	}
	LWLockRelease(&sas_board->lock);
	return n;
}

/* ---------------------------------------------------------------- set-up */

static const SasPeersMethods registry_peers = {
	.live = sas_registry_peers_live,
	.terminate = sas_registry_peers_terminate,
	.lead = sas_registry_peers_lead,
	.turn = sas_registry_peers_turn,
	.overdue = sas_registry_peers_overdue,
};

Size
sas_registry_shmem_size(void)
{
	return add_size(offsetof(SasBoard, slots),
					mul_size(max_worker_processes + 8, sizeof(SasSlot)));
}

/* In the start-up hook, which holds AddinShmemInitLock. */
void
sas_registry_shmem_init(void)
{
	bool		found;

	sas_board = ShmemInitStruct("sas workers", sas_registry_shmem_size(), &found);
	if (!found)
	{
		memset(sas_board, 0, sas_registry_shmem_size());
		sas_board->capacity = max_worker_processes + 8;
		sas_board->tranche = LWLockNewTrancheId();
		LWLockInitialize(&sas_board->lock, sas_board->tranche);
		if (!pg_strong_random(&sas_board->boot, sizeof(sas_board->boot)))
			sas_board->boot = GetCurrentTimestamp();
		sas_board->boot &= PG_INT64_MAX;
		sas_board->boot = Max(sas_board->boot, 1);
	}
	LWLockRegisterTranche(sas_board->tranche, "sas_workers");
	sas_self.boot = sas_board->boot;
	sas_peers_set_methods(&registry_peers);
}
