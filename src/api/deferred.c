/* SPDX-License-Identifier: PostgreSQL */
/*
 * deferred.c: refuses SET CONSTRAINTS ... IMMEDIATE in code of one role in the
 * transaction of another one's session, which is middleware of phase plan.
 *
 * The statement fires what the session has deferred: triggers of the other
 * role, which would run with the rights of the role that created the
 * middleware.  Workers fire these before (work/become.c); a session's must
 * stay deferred.
 */
#include "postgres.h"

#include "api/deferred.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "work/callable.h"

static ProcessUtility_hook_type deferred_previous_hook = NULL;

static void
deferred_utility(PlannedStmt *statement, const char *query, bool read_only,
				 ProcessUtilityContext context, ParamListInfo params,
				 QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	if (sas_work_is_beside && IsA(statement->utilityStmt, ConstraintsSetStmt) &&
		!((ConstraintsSetStmt *) statement->utilityStmt)->deferred)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("constraints cannot be set to immediate in the session of another role"),
				 errdetail("What that role has deferred would happen with the rights of role \"%s\".", GetUserNameFromId(GetUserId(), false))));
	if (deferred_previous_hook)
		deferred_previous_hook(statement, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest, qc);
}

void
sas_api_deferred_install(void)
{
	deferred_previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = deferred_utility;
}
