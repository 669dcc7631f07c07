/* SPDX-License-Identifier: PostgreSQL */
/*
 * event_triggers.c: event triggers are called for the statements in which sas needs them.
 *
 * From PostgreSQL 17 on a session may turn event triggers off (event_triggers),
 * also ENABLE ALWAYS ones, if it was granted that setting.  DROP OWNED would
 * then leave levels and grants; and CREATE EXTENSION could put functions into
 * the schemas of sas, which only a superuser may do otherwise.  So in a
 * database with sas they are on, all of them, for DROP OWNED, and for
 * CREATE EXTENSION of roles that are no superusers.
 */
#include "postgres.h"

#include "access/xact.h"
#include "api/event_triggers.h"
#include "base/compat.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/guc.h"

static ProcessUtility_hook_type event_triggers_previous_hook = NULL;

static bool
event_triggers_are_needed(Node *statement)
{
	if (sas_compat_event_triggers_on() || !IsTransactionState() ||
		!(IsA(statement, DropOwnedStmt) || (IsA(statement, CreateExtensionStmt) && !superuser())))
		return false;
	return OidIsValid(get_extension_oid("sas", true));
}

static void
event_triggers_utility(PlannedStmt *statement, const char *query, bool read_only,
					   ProcessUtilityContext context, ParamListInfo params,
					   QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	int			level = 0;		/* no setting has this one */

	if (event_triggers_are_needed(statement->utilityStmt))
	{
		level = NewGUCNestLevel();
		(void) set_config_option("event_triggers", "on", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	}
	if (event_triggers_previous_hook)
		event_triggers_previous_hook(statement, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest, qc);
	/* an error has ended it already */
	if (level > 0)
		AtEOXact_GUC(true, level);
}

void
sas_api_event_triggers_install(void)
{
	event_triggers_previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = event_triggers_utility;
}
