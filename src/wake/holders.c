/* SPDX-License-Identifier: PostgreSQL */
/*
 * holders.c: transactions that hold runs which ticks wait for.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "wake/holders.h"
#include "wake/wakeup_shmem.h"

/*
 * An entry whose worker has not come back for it is dropped so long after its message was due.  A
 * holder that says so long that it has ended after others have seen it has said nothing.
 */
#define HOLDERS_STALE_US (10 * INT64CONST(1000000))

/* its worker looks at one that was taken untold before that, also if it has nothing to do */
#define HOLDERS_UNTOLD_US (120 * INT64CONST(1000000))

static bool holders_took = false;	/* this process, in this transaction */

static SasActor
holders_actor(char actor)
{
	return actor == 'v' || actor == SAS_WAKE_HELD_LEASE ? SAS_SUPERVISOR : SAS_SCHEDULER;
}

/* With the lock held. */
static void
holders_remove(SasWakeHolder *holder)
{
	*holder = sas_wake_shmem->holders[--sas_wake_shmem->n_holders];
	pg_atomic_write_u32(&sas_wake_shmem->any_holders, sas_wake_shmem->n_holders);
}

/* A worker that is alive has judged it before, if it was taken untold. */
static bool
holders_is_stale(const SasWakeHolder *holder, TimestampTz now)
{
	if (holder->untold_us != 0)
		return sas_base_clock_monotonic_us() - holder->untold_us > HOLDERS_UNTOLD_US;
	return holder->held.due_at < now - HOLDERS_STALE_US;
}

/* With the lock held. NULL: no room. One entry is enough for each run of a worker. */
static SasWakeHolder *
holders_enter(const SasWakeHeld *held)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->pid == MyProcPid && h->held.actor == held->actor && h->held.run_id == held->run_id)
			return h;
		if (holders_is_stale(h, now))
			holders_remove(h);
	}
	if (sas_wake_shmem->n_holders == SAS_WAKE_HOLDERS)
		return NULL;
	return &sas_wake_shmem->holders[sas_wake_shmem->n_holders++];
}

SasWakeAwait
sas_wake_holders_await(const SasWakeHeld *held, TransactionId holder)
{
	TransactionId top = holder;
	SasWakeAwait result = SAS_WAKE_AWAIT_NO_ROOM;
	SasWakeHolder *h;

	if (sas_wake_shmem == NULL)
		return result;
	if (TransactionIdFollowsOrEquals(holder, TransactionXmin))
		top = SubTransGetTopmostTransaction(holder);
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	h = holders_enter(held);
	if (h != NULL)
	{
		*h = (SasWakeHolder) {*held, MyDatabaseId, MyProcPid, top, holder, false, 0, 0};
		pg_atomic_write_u32(&sas_wake_shmem->any_holders, sas_wake_shmem->n_holders);
		/* after it was noted: one that ended before may have looked already, and says nothing */
		result = TransactionIdIsInProgress(holder) ? SAS_WAKE_AWAIT_NOTED : SAS_WAKE_AWAIT_ENDED;
		if (result == SAS_WAKE_AWAIT_ENDED)
			holders_remove(h);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return result;
}

static bool
holders_is_mine(const SasWakeHolder *holder, char actor)
{
	return holder->pid == MyProcPid && holder->held.actor == actor && holder->dboid == MyDatabaseId;
}

/* Taken by a transaction that has committed; only whether its holder says that it has ended is open. */
static bool
holders_is_untold(const SasWakeHolder *holder)
{
	return holder->untold_us != 0 && holder->taken_level == 0;
}

/* An untold one, whose holder could have said long ago that it has ended. */
static bool
holders_is_missed(const SasWakeHolder *holder, int64 now_us)
{
	return now_us - holder->untold_us > HOLDERS_STALE_US;
}

int
sas_wake_holders_take(char actor, SasWakeHeld *held, int max, int *missed)
{
	TimestampTz now = sas_base_clock_now();
	int64		now_us = sas_base_clock_monotonic_us();
	int			n = 0;

	*missed = 0;
	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return 0;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0 && n < max; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (!holders_is_mine(h, actor) || h->taken_level > 0)
			continue;
		if (holders_is_untold(h))
		{
			if (holders_is_missed(h, now_us))
			{
				(*missed)++;
				holders_remove(h);
			}
			continue;
		}
		if (!h->ended && TransactionIdIsInProgress(h->holder))
			continue;
		h->taken_level = GetCurrentTransactionNestLevel();
		h->untold_us = !h->ended && h->held.due_at <= now ? now_us : 0;
		held[n++] = h->held;
	}
	LWLockRelease(&sas_wake_shmem->lock);
	holders_took |= n > 0;
	return n;
}

/*
 * What was taken at that level or below it has been written, or has not.
 * level 1: the transaction has ended.
 */
static void
holders_settle(int level, bool written)
{
	if (!holders_took)
		return;
	holders_took = level > 1;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->pid != MyProcPid || h->taken_level < level)
			continue;
		h->taken_level = written ? level - 1 : 0;
		if (!written)
			h->untold_us = 0;
		else if (level == 1 && (h->ended || h->untold_us == 0))
			holders_remove(h);
	}
	LWLockRelease(&sas_wake_shmem->lock);
}

bool
sas_wake_holders_awaits(char actor)
{
	int64		now_us = sas_base_clock_monotonic_us();
	bool		awaits = false;

	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return false;
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->n_holders && !awaits; i++)
	{
		const SasWakeHolder *h = &sas_wake_shmem->holders[i];

		awaits = holders_is_mine(h, actor) && (!holders_is_untold(h) || holders_is_missed(h, now_us));
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return awaits;
}

/* With the lock held. */
static bool
holders_concerns(const SasWakeHolder *holder, TransactionId xid, bool subtransaction)
{
	return holder->top == xid && holder->dboid == MyDatabaseId && !holder->ended &&
		!(subtransaction && TransactionIdIsInProgress(holder->holder));
}

/*
 * Is there an entry for this transaction, or a stale one that nobody will
 * remove?  As long as there are entries, each transaction of the server that
 * has written asks this, so the lock is a shared one.
 */
static bool
holders_is_noted(TransactionId xid, bool subtransaction, TimestampTz now)
{
	bool		noted = false;

	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->n_holders && !noted; i++)
	{
		const SasWakeHolder *h = &sas_wake_shmem->holders[i];

		noted = holders_is_stale(h, now) || holders_concerns(h, xid, subtransaction);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return noted;
}

/* With the lock held. Adds the actor to wake: none for what was taken without it. */
static void
holders_told(SasWakeHolder *holder, int *actors)
{
	if (holders_is_untold(holder))
	{
		holders_remove(holder);
		return;
	}
	holder->ended = true;
	*actors |= 1 << holders_actor(holder->held.actor);
}

/*
 * This transaction has ended, or one of its subtransactions was rolled back
 * together with those released into it, and holds nothing any longer.  Other
 * sessions see that before the callback runs: a worker that notes the
 * transaction after this function has looked finds it ended.
 */
static void
holders_end(bool subtransaction)
{
	TransactionId xid = GetTopTransactionIdIfAny();
	TimestampTz now = GetCurrentTimestamp();
	int			actors = 0;

	if (!TransactionIdIsValid(xid) || !holders_is_noted(xid, subtransaction, now))
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (holders_concerns(h, xid, subtransaction))
			holders_told(h, &actors);
		else if (holders_is_stale(h, now))
			holders_remove(h);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	if (actors != 0)
		sas_wake_listeners(MyDatabaseId, actors, (SasWakeupCounts) {0}, false);
}

/* Those of this database that have ended without a callback. */
void
sas_wake_holders_prepared_ended(void)
{
	int			actors = 0;

	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->dboid == MyDatabaseId && !h->ended && !TransactionIdIsInProgress(h->holder))
			holders_told(h, &actors);
	}
	LWLockRelease(&sas_wake_shmem->lock);
}

static bool
holders_any(void)
{
	return sas_wake_shmem != NULL && pg_atomic_read_u32(&sas_wake_shmem->any_holders) > 0;
}

/* A prepared transaction keeps its locks. */
static void
holders_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	holders_settle(1, event == XACT_EVENT_COMMIT);
	if (holders_any())
		holders_end(false);
}

static void
holders_subxact_callback(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB || event == SUBXACT_EVENT_ABORT_SUB)
		holders_settle(GetCurrentTransactionNestLevel(), event == SUBXACT_EVENT_COMMIT_SUB);
	if (event == SUBXACT_EVENT_ABORT_SUB && holders_any())
		holders_end(true);
}

void
sas_wake_holders_install(void)
{
	RegisterXactCallback(holders_xact_callback, NULL);
	RegisterSubXactCallback(holders_subxact_callback, NULL);
}
