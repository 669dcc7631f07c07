/* SPDX-License-Identifier: PostgreSQL */
/*
 * rehearsal.c: a transaction in which something is only tried out.
 *
 * The testing aids (frozen clock, stubs, runs carried out in the session) make
 * states that must never be seen by a worker or by another session, and times
 * that nobody could trust.  So a transaction that has used one of them cannot
 * be committed or prepared: it ends with ROLLBACK.  What was used below a
 * savepoint that is rolled back is forgotten with it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"

#include "api/rehearsal.h"
#include "base/actor.h"
#include "store/submit.h"

PG_FUNCTION_INFO_V1(sas_api_rehearse);
PG_FUNCTION_INFO_V1(sas_api_rehearsing);
PG_FUNCTION_INFO_V1(sas_api_submitted_here);

/* the subtransaction that the first aid was used in; InvalidSubTransactionId: none was */
static SubTransactionId since = InvalidSubTransactionId;
static bool registered = false;

bool		sas_rehearsal_performs = false;

static void
at_end(XactEvent event, void *arg)
{
	if (since == InvalidSubTransactionId)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
					 errmsg("a transaction that has used testing aids of sas cannot be committed"),
					 errdetail("The clock was moved, an agent was stubbed, or a run was carried out in this session."),
					 errhint("Use them between BEGIN and ROLLBACK.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			since = InvalidSubTransactionId;
			break;
		default:
			break;
	}
}

static void
at_end_of_sub(SubXactEvent event, SubTransactionId self, SubTransactionId parent, void *arg)
{
	if (since != self)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		since = InvalidSubTransactionId;
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		since = parent;
}

/* _sas.rehearse(): from now on this transaction cannot be committed. */
Datum
sas_api_rehearse(PG_FUNCTION_ARGS)
{
	if (sas_base_self.worker_id != 0 || sas_rehearsal_performs)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("testing aids cannot be used by the function of a step"),
				 errhint("Use them in a session of your own, between BEGIN and ROLLBACK.")));
	if (!registered)
	{
		RegisterXactCallback(at_end, NULL);
		RegisterSubXactCallback(at_end_of_sub, NULL);
		registered = true;
	}
	if (since == InvalidSubTransactionId)
		since = GetCurrentSubTransactionId();
	PG_RETURN_VOID();
}

/* _sas.rehearsing(): has this transaction used one of the aids? */
Datum
sas_api_rehearsing(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(since != InvalidSubTransactionId);
}

/* _sas.submitted_here(run_id): was it submitted in this transaction? */
Datum
sas_api_submitted_here(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_submitted_here(PG_GETARG_INT64(0)));
}
