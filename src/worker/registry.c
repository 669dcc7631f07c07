/* SPDX-License-Identifier: PostgreSQL */
/*
 * registry.c: the slots of the workers, in shared memory.
 *
 * A worker's slot proves that it lives: actors read it to find the leases of
 * dead workers (base/peers.h), the launcher to find duplicates, an exclusion
 * to find the workers to stop. The exit callback runs after the worker's
 * transaction is over. It wakes the supervisors of its database (its leases
 * are free), its deputies if it led, and the launcher.
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
#include "worker/exclusion.h"
#include "worker/request.h"
#include "worker/session.h"
#include "worker/shmem.h"
#include "worker/tick.h"

SasWorkerShmem *sas_worker_shmem = NULL;

SasSlot    *sas_worker_my_slot = NULL;

/* ---------------------------------------------------------------- launcher */

/* With the lock held. */
SasSlot *
sas_worker_registry_find(int64 worker_id)
{
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
		if (sas_worker_shmem->slots[i].state != SAS_SLOT_FREE && sas_worker_shmem->slots[i].worker_id == worker_id)
			return &sas_worker_shmem->slots[i];
	return NULL;
}

int
sas_worker_registry_reserve(Oid dboid, int actor, int index, int64 *worker_id)
{
	int			found = -1;

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_worker_shmem->capacity && found < 0; i++)
	{
		SasSlot    *slot = &sas_worker_shmem->slots[i];

		if (slot->state != SAS_SLOT_FREE)
			continue;
		memset(slot, 0, sizeof(SasSlot));
		slot->state = SAS_SLOT_STARTING;
		slot->worker_id = *worker_id = ++sas_worker_shmem->last_worker_id;
		slot->dboid = dboid;
		slot->actor = actor;
		slot->index = index;
		slot->started_at = slot->last_activity_at = GetCurrentTimestamp();
		slot->started_us = sas_base_clock_monotonic_us();
		found = i;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return found;
}

SasExit
sas_worker_registry_release(int64 worker_id)
{
	SasSlot    *slot;
	SasExit		reason = SAS_EXIT_FAILED;	/* it never attached */

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	slot = sas_worker_registry_find(worker_id);
	if (slot != NULL && slot->state == SAS_SLOT_EXITED)
		reason = slot->exit;
	if (slot != NULL && (slot->state == SAS_SLOT_STARTING || slot->state == SAS_SLOT_EXITED))
		slot->state = SAS_SLOT_FREE;
	LWLockRelease(&sas_worker_shmem->lock);
	return reason;
}

/* Asks one worker to leave; false when it is not running. */
bool
sas_worker_registry_stop(int64 worker_id)
{
	SasSlot    *slot;
	bool		stopped = false;

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	slot = sas_worker_registry_find(worker_id);
	if (slot != NULL && slot->state == SAS_SLOT_RUNNING)
	{
		slot->state = SAS_SLOT_STOPPING;
		stopped = kill(slot->pid, SIGTERM) == 0;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return stopped;
}

/*
 * A new launcher gets no signal of processes that its predecessor asked for
 * and that have not started yet. It frees their slots, so that they leave
 * when they start.
 */
void
sas_worker_registry_forget_starting(void)
{
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
		if (sas_worker_shmem->slots[i].state == SAS_SLOT_STARTING)
			sas_worker_shmem->slots[i].state = SAS_SLOT_FREE;
	LWLockRelease(&sas_worker_shmem->lock);
}

/* ---------------------------------------------------------------- worker */

static void
registry_exit(int code, Datum arg)
{
	Oid			dboid = sas_worker_my_slot->dboid;
	SasActor	actor = sas_worker_my_slot->actor;
	bool		probe = sas_worker_my_slot->actor == SAS_PROBE;
	bool		leader;

	sas_base_peers_leave_owner();
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	sas_worker_my_slot->waits_for_owner = false;
	leader = sas_worker_my_slot->leader;
	sas_worker_my_slot->leader = false;
	sas_worker_my_slot->in_flight = 0;
	sas_worker_my_slot->memory = 0;
	if (sas_worker_my_slot->exit == SAS_EXIT_FAILED && sas_base_stopping)
		sas_worker_my_slot->exit = SAS_EXIT_ORDERLY;
	sas_worker_my_slot->state = SAS_SLOT_EXITED;
	/* with the lock: who sees that it is gone has been told of it */
	if (!probe)
		sas_wake_actor(dboid, SAS_SUPERVISOR);
	LWLockRelease(&sas_worker_shmem->lock);
	sas_worker_my_slot = NULL;

	if (leader && actor != SAS_SUPERVISOR)
		sas_wake_actor(dboid, actor);
	sas_worker_request_wake();
}

bool
sas_worker_registry_attach(int slot_number, int64 worker_id)
{
	SasSlot    *slot = &sas_worker_shmem->slots[slot_number];
	bool		mine;

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	mine = slot->state == SAS_SLOT_STARTING && slot->worker_id == worker_id;
	if (mine && sas_worker_exclusion_active(slot->dboid))
	{
		slot->state = SAS_SLOT_FREE;
		mine = false;
	}
	if (mine)
	{
		slot->pid = MyProcPid;
		slot->exit = SAS_EXIT_FAILED;
		slot->state = SAS_SLOT_RUNNING;
		sas_worker_my_slot = slot;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	if (mine)
		before_shmem_exit(registry_exit, (Datum) 0);
	return mine;
}

void
sas_worker_registry_set_exit(SasExit reason)
{
	if (sas_worker_my_slot != NULL)
		sas_worker_my_slot->exit = reason;
}

void
sas_worker_registry_dismiss(int64 worker_id)
{
	SasSlot    *slot;

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	slot = sas_worker_registry_find(worker_id);
	if (slot != NULL)
		slot->dismissed = true;
	LWLockRelease(&sas_worker_shmem->lock);
}

/* ---------------------------------------------------------------- everybody */

int
sas_worker_registry_snapshot(SasSlot **slots)
{
	int			n = 0;

	*slots = NULL;
	if (sas_worker_shmem == NULL)
		return 0;
	*slots = palloc(sas_worker_shmem->capacity * sizeof(SasSlot));
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
		if (sas_worker_shmem->slots[i].state != SAS_SLOT_FREE)
			(*slots)[n++] = sas_worker_shmem->slots[i];
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

SasLauncherState
sas_worker_registry_launcher(void)
{
	SasLauncherState state = {0};

	if (sas_worker_shmem == NULL)
		return state;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	state = sas_worker_shmem->launcher;
	LWLockRelease(&sas_worker_shmem->lock);
	return state;
}

bool
sas_worker_registry_is_alive(const SasSlot *slot, Oid dboid)
{
	return slot->dboid == dboid && slot->actor != SAS_PROBE &&
		(slot->state == SAS_SLOT_STARTING || slot->state == SAS_SLOT_RUNNING ||
		 slot->state == SAS_SLOT_STOPPING);
}

bool
sas_worker_registry_has_workers(Oid dboid)
{
	bool		has = false;

	if (sas_worker_shmem == NULL)
		return false;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_worker_shmem->capacity && !has; i++)
		has = sas_worker_registry_is_alive(&sas_worker_shmem->slots[i], dboid);
	LWLockRelease(&sas_worker_shmem->lock);
	return has;
}

/* ---------------------------------------------------------------- crash loops */

/* this many failures in a row are no accident */
#define CRASH_LOOP 5

void
sas_worker_registry_trouble(Oid dboid, int actor, int index, int failures)
{
	SasTrouble *free_one = NULL;
	SasTrouble *mine = NULL;

	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_MAX_TROUBLES && mine == NULL; i++)
	{
		SasTrouble *t = &sas_worker_shmem->troubles[i];

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
	LWLockRelease(&sas_worker_shmem->lock);
}

static bool
registry_has_recovered(const SasTrouble *trouble)
{
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
	{
		SasSlot    *slot = &sas_worker_shmem->slots[i];

		if (slot->state == SAS_SLOT_RUNNING && slot->dboid == trouble->dboid && slot->actor == trouble->actor &&
			slot->index == trouble->index &&
			sas_base_clock_monotonic_us() - slot->started_us > SAS_LONG_LIFE_US)
			return true;
	}
	return false;
}

int
sas_worker_registry_crash_loops(Oid dboid, SasTrouble **troubles)
{
	int			n = 0;

	*troubles = palloc(sizeof(SasTrouble) * SAS_MAX_TROUBLES);
	if (sas_worker_shmem == NULL)
		return 0;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (int i = 0; i < SAS_MAX_TROUBLES; i++)
	{
		SasTrouble *t = &sas_worker_shmem->troubles[i];

		if (t->dboid == dboid && t->actor != SAS_PROBE && t->failures >= CRASH_LOOP && !registry_has_recovered(t))
			(*troubles)[n++] = *t;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

int
sas_worker_registry_terminate(Oid dboid)
{
	int			n = 0;

	if (sas_worker_shmem == NULL)
		return 0;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
	{
		SasSlot    *slot = &sas_worker_shmem->slots[i];

		if (sas_worker_registry_is_alive(slot, dboid) && slot->pid != 0 && kill(slot->pid, SIGTERM) == 0)
			n++;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

/* ---------------------------------------------------------------- set-up */

Size
sas_worker_registry_shmem_size(void)
{
	return add_size(offsetof(SasWorkerShmem, slots),
					mul_size(max_worker_processes + 8, sizeof(SasSlot)));
}

/* In the start-up hook, which holds AddinShmemInitLock. */
void
sas_worker_registry_shmem_init(void)
{
	bool		found;

	sas_worker_shmem = ShmemInitStruct("sas workers", sas_worker_registry_shmem_size(), &found);
	if (!found)
	{
		memset(sas_worker_shmem, 0, sas_worker_registry_shmem_size());
		sas_worker_shmem->capacity = max_worker_processes + 8;
		sas_worker_shmem->tranche = LWLockNewTrancheId();
		LWLockInitialize(&sas_worker_shmem->lock, sas_worker_shmem->tranche);
		if (!pg_strong_random(&sas_worker_shmem->boot, sizeof(sas_worker_shmem->boot)))
			sas_worker_shmem->boot = GetCurrentTimestamp();
		sas_worker_shmem->boot &= PG_INT64_MAX;
		sas_worker_shmem->boot = Max(sas_worker_shmem->boot, 1);
	}
	LWLockRegisterTranche(sas_worker_shmem->tranche, "sas_workers");
	sas_base_self.boot = sas_worker_shmem->boot;
	sas_base_peers_set_methods(&sas_worker_peers);
}
