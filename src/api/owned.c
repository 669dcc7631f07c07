/* SPDX-License-Identifier: PostgreSQL */
/*
 * owned.c: what a role has in sas when it is dropped, or its things are.
 *
 * DROP OWNED: before it, the rights of its roles in the schemas of sas go.
 * PostgreSQL takes away what a role was granted as the role that says DROP
 * OWNED.  Who is no superuser, and drops what is his own, can take away
 * nothing that another has granted: a warning at tables, an error where the
 * role has rights on single columns only.  What sas has granted, sas takes
 * away.  After it, a role that still owns something of sas is tied to the
 * schema: so DROP ROLE is refused in every database of the cluster.
 *
 * REASSIGN OWNED: what the role owns of sas follows.  DROP ROLE: refused with
 * what it owns, in the database where it is said.  No event trigger is called
 * for these two, so it is a hook.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "api/owned.h"
#include "base/compat.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(sas_api_drop_owned);

static ProcessUtility_hook_type owned_previous_hook = NULL;

/* The function of schema _sas with n such arguments; InvalidOid: the extension is not here. */
static Oid
owned_function(const char *name, int n)
{
	Oid			schema = get_namespace_oid("_sas", true);
	Oid			types[3] = {REGROLEOID, REGROLEOID, REGROLEOID};

	if (!OidIsValid(schema) || !OidIsValid(get_extension_oid("sas", true)))
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(buildoidvector(types, n)), ObjectIdGetDatum(schema));
}

/* Calls that function for each of the roles that the current user may act for: (caller, role), or (role). */
static void
owned_call_for(const char *name, bool with_caller, List *roles)
{
	Oid			function = owned_function(name, with_caller ? 2 : 1);
	ListCell   *cell;

	foreach(cell, roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, cell), true);

		if (!OidIsValid(function) || !OidIsValid(role) || !has_privs_of_role(GetUserId(), role))
			continue;
		if (with_caller)
			OidFunctionCall2(function, ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(role));
		else
			OidFunctionCall1(function, ObjectIdGetDatum(role));
	}
}

/*
 * _sas.drop_owned(), an event trigger. It skips roles that the user may not
 * act for: DROP OWNED itself refuses those.
 */
Datum
sas_api_drop_owned(PG_FUNCTION_ARGS)
{
	EventTriggerData *data = (EventTriggerData *) fcinfo->context;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by an event trigger")));
	if (IsA(data->parsetree, DropOwnedStmt))
	{
		bool		before = strcmp(data->event, "ddl_command_start") == 0;

		owned_call_for(before ? "drop_rights" : "tie_owner", before, castNode(DropOwnedStmt, data->parsetree)->roles);
	}
	PG_RETURN_NULL();
}

/* REASSIGN OWNED has checked what its user may do. */
static void
owned_reassign(ReassignOwnedStmt *statement)
{
	Oid			function = owned_function("reassign_owned", 3);
	Oid			to = get_rolespec_oid(statement->newrole, false);
	ListCell   *cell;

	if (!OidIsValid(function))
		return;
	CommandCounterIncrement();
	foreach(cell, statement->roles)
		OidFunctionCall3(function, ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(get_rolespec_oid(lfirst_node(RoleSpec, cell), false)), ObjectIdGetDatum(to));
}

/* Would DROP ROLE itself drop this role for this user? */
static bool
owned_may_drop(Oid role)
{
	return has_createrole_privilege(GetUserId()) && (superuser() || (!superuser_arg(role) && sas_compat_administers(GetUserId(), role)));
}

/*
 * Refuses DROP ROLE for a role that has something in sas. A user who may not
 * drop the role gets the error of DROP ROLE itself, and learns nothing about
 * what the role has.
 */
static void
owned_refuse_drop(DropRoleStmt *statement)
{
	Oid			function = owned_function("owned_by", 1);
	ListCell   *cell;

	foreach(cell, statement->roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, cell), true);
		char	   *left;

		if (!OidIsValid(function) || !OidIsValid(role) || !owned_may_drop(role))
			continue;
		/* what one role of the list was tied by is seen */
		CommandCounterIncrement();
		left = TextDatumGetCString(OidFunctionCall1(function, ObjectIdGetDatum(role)));
		if (*left != '\0')
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("role \"%s\" cannot be dropped because some objects depend on it", GetUserNameFromId(role, false)),
					 errdetail("%s", left),
					 errhint("REASSIGN OWNED gives them to another role; or drop them, and cancel or halt the runs.")));
		(void) OidFunctionCall1(owned_function("untie_owner", 1), ObjectIdGetDatum(role));
	}
}

static void
owned_utility(PlannedStmt *statement, const char *query, bool read_only,
			  ProcessUtilityContext context, ParamListInfo params,
			  QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	/* a CALL or DO that rolls back may free its statement before it returns */
	ReassignOwnedStmt *reassign = IsA(statement->utilityStmt, ReassignOwnedStmt) ? (ReassignOwnedStmt *) statement->utilityStmt : NULL;

	if (IsA(statement->utilityStmt, DropRoleStmt) && IsTransactionState() && !RecoveryInProgress())
		owned_refuse_drop(castNode(DropRoleStmt, statement->utilityStmt));
	if (owned_previous_hook)
		owned_previous_hook(statement, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest, qc);
	if (reassign != NULL)
		owned_reassign(reassign);
}

void
sas_api_owned_install(void)
{
	owned_previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = owned_utility;
}
