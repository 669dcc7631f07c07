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

/* An entry whose worker has not come back for it is dropped so long after its message was due. */
#define HOLDERS_STALE_US (10 * INT64CONST(1000000))

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

/* With the lock held. NULL: no room. One entry is enough for each run of a worker. */
static SasWakeHolder *
holders_enter(const SasWakeHeld *held)
{
	TimestampTz stale = GetCurrentTimestamp() - HOLDERS_STALE_US;

	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->pid == MyProcPid && h->held.actor == held->actor && h->held.run_id == held->run_id)
			return h;
		if (h->held.due_at < stale)
			holders_remove(h);
	}
	if (sas_wake_shmem->n_holders == SAS_WAKE_HOLDERS)
		return NULL;
	return &sas_wake_shmem->holders[sas_wake_shmem->n_holders++];
}

bool
sas_wake_holders_await(const SasWakeHeld *held, TransactionId holder)
{
	TransactionId top = holder;
	SasWakeHolder *h;

	if (sas_wake_shmem == NULL)
		return false;
	if (TransactionIdFollowsOrEquals(holder, TransactionXmin))
		top = SubTransGetTopmostTransaction(holder);
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	h = holders_enter(held);
	if (h != NULL)
	{
		*h = (SasWakeHolder) {*held, MyDatabaseId, MyProcPid, top, holder, false};
		pg_atomic_write_u32(&sas_wake_shmem->any_holders, sas_wake_shmem->n_holders);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return h != NULL;
}

int
sas_wake_holders_take(char actor, SasWakeHeld *held, int max, int *missed)
{
	TimestampTz now = sas_base_clock_now();
	int			n = 0;

	*missed = 0;
	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return 0;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0 && n < max; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->pid != MyProcPid || h->held.actor != actor || h->dboid != MyDatabaseId)
			continue;
		if (!h->ended && TransactionIdIsInProgress(h->holder))
			continue;
		*missed += !h->ended && h->held.due_at <= now;
		held[n++] = h->held;
		holders_remove(h);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return n;
}

bool
sas_wake_holders_awaits(char actor)
{
	bool		awaits = false;

	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return false;
	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->n_holders && !awaits; i++)
		awaits = sas_wake_shmem->holders[i].pid == MyProcPid && sas_wake_shmem->holders[i].held.actor == actor;
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
holders_is_noted(TransactionId xid, bool subtransaction, TimestampTz stale)
{
	bool		noted = false;

	LWLockAcquire(&sas_wake_shmem->lock, LW_SHARED);
	for (int i = 0; i < sas_wake_shmem->n_holders && !noted; i++)
	{
		const SasWakeHolder *h = &sas_wake_shmem->holders[i];

		noted = h->held.due_at < stale || holders_concerns(h, xid, subtransaction);
	}
	LWLockRelease(&sas_wake_shmem->lock);
	return noted;
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
	TimestampTz stale = GetCurrentTimestamp() - HOLDERS_STALE_US;
	int			actors = 0;

	if (!TransactionIdIsValid(xid) || !holders_is_noted(xid, subtransaction, stale))
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = sas_wake_shmem->n_holders - 1; i >= 0; i--)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (holders_concerns(h, xid, subtransaction))
		{
			h->ended = true;
			actors |= 1 << holders_actor(h->held.actor);
		}
		else if (h->held.due_at < stale)
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
	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_holders) == 0)
		return;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < sas_wake_shmem->n_holders; i++)
	{
		SasWakeHolder *h = &sas_wake_shmem->holders[i];

		if (h->dboid == MyDatabaseId && !h->ended && !TransactionIdIsInProgress(h->holder))
			h->ended = true;
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
	if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT) && holders_any())
		holders_end(false);
}

static void
holders_subxact_callback(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && holders_any())
		holders_end(true);
}

void
sas_wake_holders_install(void)
{
	RegisterXactCallback(holders_xact_callback, NULL);
	RegisterSubXactCallback(holders_subxact_callback, NULL);
}
