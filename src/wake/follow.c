/* SPDX-License-Identifier: PostgreSQL */
/*
 * follow.c: tells sessions that listen (LISTEN sas_change) that something has
 * changed.
 *
 * A NOTIFY costs each commit, so there is one only if a session has asked for
 * it within the last half minute, and at most two a second.  A session that
 * gets one waits for FOLLOW_EVERY_MS before it looks, and so also sees the
 * changes that caused no NOTIFY.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "wake/wakeup_shmem.h"

#define FOLLOW_FOR_MS 30000
#define FOLLOW_EVERY_MS 500
#define FOLLOW_AGAIN_MS 1000

/* Somebody follows this database for the next half minute. */
void
sas_wake_follow(void)
{
	static TimestampTz asked_until = 0;
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), FOLLOW_FOR_MS);
	SasWakeFollowed *entry = NULL;

	/* a session that asks without end does not hold up who takes the lock to wake others */
	if (sas_wake_shmem == NULL || (until >= asked_until && !TimestampDifferenceExceeds(asked_until, until, FOLLOW_AGAIN_MS)))
		return;
	asked_until = until;
	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_WAKE_FOLLOWED; i++)
	{
		SasWakeFollowed *e = &sas_wake_shmem->followed[i];

		if (e->dboid == MyDatabaseId)
		{
			entry = e;
			break;
		}
		/* else the one that was asked for least recently */
		if (entry == NULL || e->until < entry->until)
			entry = e;
	}
	if (entry->dboid != MyDatabaseId)
		entry->told = 0;
	entry->dboid = MyDatabaseId;
	entry->until = until;
	LWLockRelease(&sas_wake_shmem->lock);
	pg_atomic_write_u32(&sas_wake_shmem->any_followed, 1);
}

/*
 * Does a session follow this database, and was the last NOTIFY more than
 * FOLLOW_EVERY_MS ago?  If so, counts this as the last one.
 */
static bool
follow_is_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		due = false;
	bool		any = false;

	LWLockAcquire(&sas_wake_shmem->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SAS_WAKE_FOLLOWED; i++)
	{
		SasWakeFollowed *e = &sas_wake_shmem->followed[i];

		if (e->dboid == InvalidOid || e->until < now)
			continue;
		any = true;
		if (e->dboid == MyDatabaseId &&
			(e->told > now || TimestampDifferenceExceeds(e->told, now, FOLLOW_EVERY_MS)))
		{
			e->told = now;
			due = true;
		}
	}
	if (!any)
		pg_atomic_write_u32(&sas_wake_shmem->any_followed, 0);
	LWLockRelease(&sas_wake_shmem->lock);
	return due;
}

/*
 * Called before a transaction commits that has changed something.  Every write
 * of a worker is a change of sas; in a session only one that wakes is.
 */
void
sas_wake_tell_followers(bool wakes)
{
	if (sas_wake_shmem == NULL || pg_atomic_read_u32(&sas_wake_shmem->any_followed) == 0)
		return;
	if ((wakes || MyBackendType == B_BG_WORKER) && TransactionIdIsValid(GetTopTransactionIdIfAny()) && follow_is_due())
	{
		/* a full queue, which any role can make, would fail the commit; see _sas.notify */
		if (DatumGetFloat8(OidFunctionCall0(F_PG_NOTIFICATION_QUEUE_USAGE)) < 0.9)
			Async_Notify("sas_change", "");
	}
}
