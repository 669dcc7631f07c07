/* SPDX-License-Identifier: PostgreSQL */
/*
 * hold.c: a submit holds its workflow until its transaction ends.
 *
 * A run that is not committed is seen by nobody.  So who drops its workflow, or
 * an agent that the workflow names, waits for the transactions that have
 * submitted, and looks for open runs then.
 *
 * This is a lock of PostgreSQL's lock table, not of the row: submits are many,
 * and a row that each of them locks would be written by each.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lock.h"
#include "store/hold.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

static LockAcquireResult
hold_lock(int workflow_id, LOCKMODE mode, bool waits)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, get_relname_relid("workflow", get_namespace_oid("_sas", false)), (Oid) workflow_id, 0);
	return LockAcquire(&tag, mode, false, !waits);
}

/* No tick waits for what a session holds. */
static bool
hold_may_wait(void)
{
	return MyBgworkerEntry == NULL || strcmp(MyBgworkerEntry->bgw_type, "sas scheduler") != 0;
}

bool
sas_store_hold_workflow(int workflow_id)
{
	LockAcquireResult result = hold_lock(workflow_id, RowExclusiveLock, hold_may_wait());

	if (result == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on workflow %d", workflow_id),
				 errdetail("A session is dropping it, or something that it names."),
				 errhint("It is tried again.")));
	if (result != LOCKACQUIRE_OK)
		return false;
	AcceptInvalidationMessages();
	return true;
}

void
sas_store_await_submits(int workflow_id)
{
	(void) hold_lock(workflow_id, ShareLock, true);
	AcceptInvalidationMessages();
}
