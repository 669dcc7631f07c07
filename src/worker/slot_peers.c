/* SPDX-License-Identifier: PostgreSQL */
/*
 * slot_peers.c: answers what an actor asks of the other workers of its database
 * (base/peers.h), from the slots in shared memory.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "wake/wakeup.h"
#include "worker/request.h"
#include "worker/shmem.h"
#include "worker/tick.h"

/* a function that was interrupted has this long to listen; then its worker is ended */
#define INTERRUPT_GRACE_US (3 * INT64CONST(1000000))

/* The next worker of this database that is not gone, behind this one; NULL: the first, or no more. */
static SasSlot *
slot_peers_next(SasSlot *slot)
{
	SasSlot    *end = sas_worker_shmem->slots + sas_worker_shmem->capacity;

	slot = slot == NULL ? sas_worker_shmem->slots : slot + 1;
	while (slot < end && !sas_worker_registry_is_alive(slot, MyDatabaseId))
		slot++;
	return slot < end ? slot : NULL;
}

static int
slot_peers_live(int64 *ids, int max, int64 *newest)
{
	int			n = 0;

	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	*newest = sas_worker_shmem->last_worker_id;
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
	{
		if (n < max)
			ids[n] = slot->worker_id;
		n++;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

static void
slot_peers_terminate(int64 worker_id)
{
	SasSlot    *slot;

	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	slot = sas_worker_registry_find(worker_id);
	if (slot != NULL && sas_worker_registry_is_alive(slot, MyDatabaseId) && slot->pid != 0)
	{
		slot->end_now = true;
		kill(slot->pid, SIGTERM);
	}
	LWLockRelease(&sas_worker_shmem->lock);
}

static bool
slot_peers_lead(SasActor actor)
{
	bool		taken = false;

	if (sas_worker_my_slot != NULL && sas_worker_my_slot->leader && sas_worker_my_slot->actor == (int) actor)
		return true;
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		taken |= slot->leader && slot->actor == (int) actor;
	if (!taken && sas_worker_my_slot != NULL && sas_worker_my_slot->actor == (int) actor)
		sas_worker_my_slot->leader = true;
	LWLockRelease(&sas_worker_shmem->lock);
	return !taken;
}

/* Without the lock, as what is published: a task is never seen with the time of the one before. */
static void
slot_peers_invocation(int64 task, int64 until_us)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->invocation = 0;
	pg_write_barrier();
	sas_worker_my_slot->invocation_until_us = until_us;
	pg_write_barrier();
	sas_worker_my_slot->invocation = task;
}

/*
 * The worker may end that invocation meanwhile: then the cancel comes too
 * late, and the worker finds that it was not meant.
 */
static void
slot_peers_interrupt(int64 task)
{
	int			pid = 0;

	if (sas_worker_shmem == NULL)
		return;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
	{
		if (slot->pid == 0 || slot->invocation != task)
			continue;
		slot->interrupted_until_us = sas_base_clock_monotonic_us() + INTERRUPT_GRACE_US;
		pg_write_barrier();
		slot->interrupted = task;
		pid = slot->pid;
		kill(pid, SIGINT);
	}
	LWLockRelease(&sas_worker_shmem->lock);
	/* the supervisor ends the worker when that time is over */
	if (pid != 0)
		sas_wake_actor(MyDatabaseId, SAS_SUPERVISOR);
}

static bool
slot_peers_works_for(int64 task)
{
	bool		works = false;

	if (sas_worker_shmem == NULL)
		return false;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		works |= slot->invocation == task;
	LWLockRelease(&sas_worker_shmem->lock);
	return works;
}

static SasInterrupted
slot_peers_interrupted(int64 task)
{
	int64		interrupted;

	if (sas_worker_my_slot == NULL)
		return SAS_INTERRUPTED_NOT;
	interrupted = sas_worker_my_slot->interrupted;
	sas_worker_my_slot->interrupted = 0;
	return interrupted == 0 ? SAS_INTERRUPTED_NOT : interrupted == task ? SAS_INTERRUPTED_MEANT : SAS_INTERRUPTED_STRAY;
}

/* ---------------------------------------------------------------- owners of functions */

/* With the lock held. */
static int
slot_peers_count_owner(Oid owner)
{
	int			n = 0;

	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		n += slot != sas_worker_my_slot && slot->function_owner == owner;
	return n;
}

/*
 * The owner who would take the last function worker of this database: it has
 * more than half of the other workers, and all the rest are in long calls.
 * There may be no process slot for a further worker, and then other owners
 * would wait for as long as these calls take.  Where no call of that owner is
 * long, and no worker is there because one was, its calls are short.  None,
 * as long as nobody else has had functions.
 */
static Oid
slot_peers_owner_of_last(void)
{
	Oid			owner = InvalidOid;
	int			n = 0;
	int			n_owned = 0;
	int			n_workers = 1;
	bool		is_long = false;
	bool		several;

	if (sas_worker_my_slot == NULL || sas_base_function_workers_max <= Max(sas_base_function_workers, 1))
		return InvalidOid;
	several = sas_worker_my_slot->several_owners;
	/* without the lock: an old value is as good; first whose it would be, the one of more than half */
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < sas_worker_shmem->capacity; i++)
		{
			const SasSlot *slot = &sas_worker_shmem->slots[i];
			Oid			of = slot->function_owner;

			if (slot == sas_worker_my_slot || slot->actor != SAS_FUNCTION || slot->state != SAS_SLOT_RUNNING ||
				slot->dboid != MyDatabaseId)
				continue;
			if (pass == 0 && n == 0)
				owner = of;
			if (pass == 0)
			{
				n += of == owner ? 1 : -1;
				n_workers++;
			}
			else if (of != owner && !slot->long_call)
				return InvalidOid;
			else
			{
				n_owned += of == owner ? 1 : -1;
				is_long |= of == owner && slot->long_call;
				several |= slot->several_owners || slot->last_owner != owner;
			}
		}
	is_long |= n_workers > Max(sas_base_function_workers, 1);
	several |= OidIsValid(sas_worker_my_slot->last_owner) && sas_worker_my_slot->last_owner != owner;
	return is_long && several && n_owned > 0 ? owner : InvalidOid;
}

/* The same for a worker that looks for work. */
static Oid
slot_peers_leave_last(bool begins)
{
	Oid			owner = slot_peers_owner_of_last();

	if (sas_worker_my_slot == NULL)
		return InvalidOid;
	if (begins && !OidIsValid(owner))
		sas_worker_my_slot->leaves_last = false;
	if (begins)
		sas_worker_my_slot->waits_for_owner = false;
	return owner;
}

/* That owner has something to do: the launcher is to start another worker. */
static void
slot_peers_left_last(void)
{
	if (sas_worker_my_slot == NULL || sas_worker_my_slot->leaves_last)
		return;
	sas_worker_my_slot->leaves_last = true;
	sas_worker_request_wake();
}

/* An owner without a limit needs no lock: a limit that is set just now holds from the next function on. */
static bool
slot_peers_enter_owner(Oid owner, int64 most)
{
	bool		entered = true;

	if (sas_worker_my_slot == NULL)
		return true;
	if (most < sas_base_function_workers_max && OidIsValid(owner) && slot_peers_owner_of_last() == owner)
	{
		slot_peers_left_last();
		return false;
	}
	if (OidIsValid(owner))
	{
		sas_worker_my_slot->several_owners |= OidIsValid(sas_worker_my_slot->last_owner) && sas_worker_my_slot->last_owner != owner;
		sas_worker_my_slot->last_owner = owner;
	}
	if (most >= SAS_ANY_WORKERS)
	{
		sas_worker_my_slot->function_owner = owner;
		return true;
	}
	LWLockAcquire(&sas_worker_shmem->lock, LW_EXCLUSIVE);
	entered = slot_peers_count_owner(owner) < most;
	if (entered)
		sas_worker_my_slot->function_owner = owner;
	LWLockRelease(&sas_worker_shmem->lock);
	return entered;
}

/* Who has written that it waits has counted after that: one of both sees the other. */
static void
slot_peers_leave_owner(void)
{
	bool		any = false;

	if (sas_worker_my_slot == NULL || !OidIsValid(sas_worker_my_slot->function_owner))
		return;
	sas_worker_my_slot->function_owner = InvalidOid;
	pg_memory_barrier();
	for (int i = 0; i < sas_worker_shmem->capacity && !any; i++)
		any = sas_worker_shmem->slots[i].waits_for_owner && sas_worker_shmem->slots[i].dboid == MyDatabaseId;
	if (!any)
		return;
	sas_wake_count_lane(0);
	sas_wake_count_items();
	sas_wake_actor(MyDatabaseId, SAS_FUNCTION);
}

static void
slot_peers_wait_for_owner(bool waits)
{
	if (sas_worker_my_slot == NULL)
		return;
	sas_worker_my_slot->waits_for_owner = waits;
	pg_memory_barrier();
}

static bool
slot_peers_waits_for_owner(void)
{
	return sas_worker_my_slot != NULL && sas_worker_my_slot->waits_for_owner;
}

static int
slot_peers_other_owners(Oid *owners, int max)
{
	int			n = 0;

	if (sas_worker_shmem == NULL)
		return 0;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		if (n < max && slot != sas_worker_my_slot && OidIsValid(slot->function_owner))
			owners[n++] = slot->function_owner;
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

/*
 * With a full barrier: a process that does not see the flag has read the clock
 * earlier than this worker will read it.
 */
static void
slot_peers_set_unwritten(bool unwritten)
{
	if (sas_worker_my_slot == NULL || sas_worker_my_slot->unwritten == unwritten)
		return;
	sas_worker_my_slot->unwritten = unwritten;
	pg_memory_barrier();
}

static int
slot_peers_unwritten(int64 *ids, int max)
{
	int			n = 0;

	if (sas_worker_shmem == NULL)
		return 0;
	pg_memory_barrier();
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		if (n < max && slot->unwritten)
			ids[n++] = slot->worker_id;
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

/* By how much the clock may gain on the monotonic one before that counts as a jump. */
#define JUMP_US 100000

/* Between looks at two clocks this process may wait: a clock that seems to jump holds its calls as long as they last. */
static void
slot_peers_hold_calls(int64 until_us, int64 ahead_us)
{
	SasSlot    *slot = sas_worker_my_slot;

	if (slot == NULL)
		return;
	if (ahead_us == 0)
		slot->calls_jumped_us = Min(slot->calls_jumped_us, until_us);
	else if (ahead_us > slot->calls_ahead_us + JUMP_US)
		slot->calls_jumped_us = slot->calls_until_us;
	if (ahead_us != 0)
		slot->calls_ahead_us = ahead_us;
	slot->calls_until_us = until_us;
}

static int
slot_peers_holding(int64 *ids, int max)
{
	int64		now_us = sas_base_clock_monotonic_us();
	int64		ahead_us = GetCurrentTimestamp() - now_us;
	int			n = 0;

	if (sas_worker_shmem == NULL)
		return 0;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		if (n < max && now_us < (ahead_us > slot->calls_ahead_us + JUMP_US ? slot->calls_until_us : slot->calls_jumped_us))
			ids[n++] = slot->worker_id;
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

static int
slot_peers_overdue(SasPeerInvocation *invocations, int max, int64 *next_us)
{
	int64		now = sas_base_clock_monotonic_us();
	int			n = 0;

	*next_us = 0;
	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
	{
		int64		task = slot->invocation;
		int64		until_us;

		pg_read_barrier();
		until_us = slot->invocation_until_us;
		if (task == 0 || n == max)
			continue;
		if (slot->interrupted == task)
		{
			pg_read_barrier();
			until_us = Min(until_us, slot->interrupted_until_us);
		}
		if (until_us <= now)
			invocations[n++] = (SasPeerInvocation) {slot->worker_id, task};
		else if (*next_us == 0 || until_us < *next_us)
			*next_us = until_us;
	}
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

static int
slot_peers_long_calls(SasPeerCall *calls, int max)
{
	int			n = 0;

	LWLockAcquire(&sas_worker_shmem->lock, LW_SHARED);
	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		if (n < max && slot->long_call && slot->invocation != 0)
			calls[n++] = (SasPeerCall) {slot->worker_id, slot->invocation, slot->function_owner};
	LWLockRelease(&sas_worker_shmem->lock);
	return n;
}

/* Without the lock: an old value is as good. */
static bool
slot_peers_only_free(void)
{
	bool		others = false;

	if (sas_worker_my_slot == NULL)
		return false;
	for (int i = 0; i < sas_worker_shmem->capacity; i++)
	{
		const SasSlot *slot = &sas_worker_shmem->slots[i];

		if (slot == sas_worker_my_slot || slot->actor != sas_worker_my_slot->actor || slot->state != SAS_SLOT_RUNNING ||
			slot->dboid != MyDatabaseId)
			continue;
		if (!slot->long_call)
			return false;
		others = true;
	}
	return others;
}

static void
slot_peers_lack(bool lacks)
{
	if (sas_worker_my_slot == NULL || sas_worker_my_slot->lacks == lacks)
		return;
	sas_worker_my_slot->lacks = lacks;
	sas_worker_request_wake();
}

static int
slot_peers_stalled(void)
{
	int64		now_us = sas_base_clock_monotonic_us();
	int			n = 0;

	for (SasSlot *slot = slot_peers_next(NULL); slot != NULL; slot = slot_peers_next(slot))
		n += sas_worker_tick_stalled(slot, now_us);
	return n;
}

const SasPeersMethods sas_worker_peers = {
	.live = slot_peers_live,
	.terminate = slot_peers_terminate,
	.lead = slot_peers_lead,
	.invocation = slot_peers_invocation,
	.interrupt = slot_peers_interrupt,
	.works_for = slot_peers_works_for,
	.interrupted = slot_peers_interrupted,
	.enter_owner = slot_peers_enter_owner,
	.leave_owner = slot_peers_leave_owner,
	.leave_last = slot_peers_leave_last,
	.left_last = slot_peers_left_last,
	.wait_for_owner = slot_peers_wait_for_owner,
	.waits_for_owner = slot_peers_waits_for_owner,
	.other_owners = slot_peers_other_owners,
	.set_unwritten = slot_peers_set_unwritten,
	.unwritten = slot_peers_unwritten,
	.hold_calls = slot_peers_hold_calls,
	.holding = slot_peers_holding,
	.overdue = slot_peers_overdue,
	.user_code = sas_worker_tick_user_code,
	.long_calls = slot_peers_long_calls,
	.only_free = slot_peers_only_free,
	.lack = slot_peers_lack,
	.stalled = slot_peers_stalled,
};
