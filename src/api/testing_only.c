/* SPDX-License-Identifier: PostgreSQL */
/*
 * testing_only.c: a testing transaction, which can only be rolled back.
 *
 * The testing aids (frozen clock, stubs, runs in the session) make states
 * that no worker and no other session may see, and times that are not true.
 * So a transaction that has used one of them cannot be committed or
 * prepared: it ends with ROLLBACK. A savepoint that is rolled back takes
 * along what was used below it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"

#include "api/testing_only.h"
#include "base/actor.h"
#include "store/submit.h"

PG_FUNCTION_INFO_V1(sas_api_testing_begin);
PG_FUNCTION_INFO_V1(sas_api_testing_begun);
PG_FUNCTION_INFO_V1(sas_api_submitted_here);

/* the subtransaction that the first aid was used in; InvalidSubTransactionId: none was */
static SubTransactionId testing_only_since = InvalidSubTransactionId;
static bool testing_only_registered = false;

bool		sas_api_testing_invokes = false;

static void
testing_only_xact_callback(XactEvent event, void *arg)
{
	if (testing_only_since == InvalidSubTransactionId)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
					 errmsg("a transaction that has used testing aids of sas cannot be committed"),
					 errdetail("The clock was moved, an agent was stubbed, or a run was executed in this session."),
					 errhint("Use them between BEGIN and ROLLBACK.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			testing_only_since = InvalidSubTransactionId;
			break;
		default:
			break;
	}
}

static void
testing_only_subxact_callback(SubXactEvent event, SubTransactionId self, SubTransactionId parent, void *arg)
{
	if (testing_only_since != self)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		testing_only_since = InvalidSubTransactionId;
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		testing_only_since = parent;
}

/* _sas.begin_testing(): from now on this transaction cannot be committed. */
Datum
sas_api_testing_begin(PG_FUNCTION_ARGS)
{
	if (sas_base_self.worker_id != 0 || sas_api_testing_invokes)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("testing aids cannot be used by the function of a step"),
				 errhint("Use them in a session of your own, between BEGIN and ROLLBACK.")));
	if (!testing_only_registered)
	{
		RegisterXactCallback(testing_only_xact_callback, NULL);
		RegisterSubXactCallback(testing_only_subxact_callback, NULL);
		testing_only_registered = true;
	}
	if (testing_only_since == InvalidSubTransactionId)
		testing_only_since = GetCurrentSubTransactionId();
	PG_RETURN_VOID();
}

/* _sas.is_testing(): has this transaction used one of the aids? */
Datum
sas_api_testing_begun(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(testing_only_since != InvalidSubTransactionId);
}

/* _sas.submitted_here(run_id): was it submitted in this transaction? */
Datum
sas_api_submitted_here(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_submitted_here(PG_GETARG_INT64(0)));
}
