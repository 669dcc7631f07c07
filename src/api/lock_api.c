/* SPDX-License-Identifier: PostgreSQL */
/*
 * lock_api.c: locks by name for the functions of sas, to the end of the
 * transaction.
 *
 * They are advisory locks of a class that no function of PostgreSQL can name:
 * pg_advisory_lock() and its kin set the last field of the tag to 1 or 2.  So
 * no role of the database holds one of them against sas, whatever it guesses.
 * pg_locks shows them with objsubid 29537.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "api/forward.h"
#include "base/actor.h"
#include "base/clock.h"

#define SAS_LOCK_CLASS 29537

/* A worker that gave up a lock waits less for locks for so long. */
#define LOCK_SHORT_US INT64CONST(10000000)
#define LOCK_SHORT "100ms"

PG_FUNCTION_INFO_V1(sas_api_lock);
PG_FUNCTION_INFO_V1(sas_api_try_lock);
PG_FUNCTION_INFO_V1(sas_api_shorten_locks);

static bool
lock_api_take(const char *words, LOCKMODE mode, bool dont_wait)
{
	uint64		key = hash_bytes_extended((unsigned char *) words, strlen(words), 0);
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, SAS_LOCK_CLASS);
	return LockAcquire(&tag, mode, false, dont_wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* sas.distribute_keys takes it alone. */
void
sas_api_hold_keys(const char *workflow)
{
	lock_api_take(psprintf("keys %s", workflow), ShareLock, false);
}

Datum
sas_api_lock(PG_FUNCTION_ARGS)
{
	lock_api_take(text_to_cstring(PG_GETARG_TEXT_PP(0)), ExclusiveLock, false);
	PG_RETURN_VOID();
}

Datum
sas_api_try_lock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lock_api_take(text_to_cstring(PG_GETARG_TEXT_PP(0)), ExclusiveLock, true));
}

/*
 * What was put off for a locked table is tried again every second, beside the
 * work of others: it may not wait for the whole lock timeout each time.  A
 * function of a user that calls a verb keeps its own lock timeout.
 */
Datum
sas_api_shorten_locks(PG_FUNCTION_ARGS)
{
	static int64 until_us = 0;
	int64		now_us = sas_base_clock_monotonic_us();

	if (sas_base_self.worker_id == 0 || sas_base_in_user_code)
		PG_RETURN_VOID();
	if (PG_GETARG_BOOL(0))
		until_us = now_us + LOCK_SHORT_US;
	if (now_us < until_us)
		(void) set_config_option("lock_timeout", LOCK_SHORT, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	PG_RETURN_VOID();
}
