/* SPDX-License-Identifier: PostgreSQL */
/*
 * notes_api.c: NOTIFY in a transaction that commits together with one of another node.
 *
 * PostgreSQL prepares no transaction that has executed NOTIFY. In a
 * transaction that Citus has begun here for another node, a notification
 * becomes a row (_sas.delayed_note). It is sent when that transaction commits,
 * in one phase or in two. After a crash in between, it is sent with the next.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "base/compat.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "api/notes.h"
#include "store/node.h"

PG_FUNCTION_INFO_V1(sas_api_delays_notes);

/* of Citus: how its sessions on other nodes name themselves */
#define NOTES_SESSION "citus_internal"

static ProcessUtility_hook_type notes_api_previous_hook = NULL;
static bool notes_api_delayed = false;

/* _sas.delays_notes(): does this transaction perhaps commit in two phases? */
Datum
sas_api_delays_notes(PG_FUNCTION_ARGS)
{
	bool		delays = IsTransactionBlock() && sas_store_in_cluster() && application_name != NULL &&
		strncmp(application_name, NOTES_SESSION, strlen(NOTES_SESSION)) == 0;

	notes_api_delayed |= delays;
	PG_RETURN_BOOL(delays);
}

static void
notes_api_send(void)
{
	Oid			schema = get_namespace_oid("_sas", true);
	Oid			function = InvalidOid;

	notes_api_delayed = false;
	if (OidIsValid(schema) && OidIsValid(get_extension_oid("sas", true)))
		function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("send_notes"),
								   PointerGetDatum(buildoidvector(NULL, 0)), ObjectIdGetDatum(schema));
	if (!OidIsValid(function))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	(void) OidFunctionCall0(function);
	PopActiveSnapshot();
}

static void
notes_api_utility(PlannedStmt *statement, const char *query, bool read_only,
				  ProcessUtilityContext context, ParamListInfo params,
				  QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	TransactionStmt *transaction = IsA(statement->utilityStmt, TransactionStmt) ? (TransactionStmt *) statement->utilityStmt : NULL;
	/* noted before: the statement may be freed when it returns */
	bool		ends_prepared = transaction != NULL && transaction->kind == TRANS_STMT_COMMIT_PREPARED;

	if (transaction != NULL && transaction->kind == TRANS_STMT_COMMIT && notes_api_delayed &&
		IsTransactionState() && !IsAbortedTransactionBlockState())
		notes_api_send();
	if (notes_api_previous_hook)
		notes_api_previous_hook(statement, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest, qc);
	if (ends_prepared && !RecoveryInProgress() && sas_store_in_cluster())
		notes_api_send();
}

void
sas_api_notes_install(void)
{
	notes_api_previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = notes_api_utility;
}
