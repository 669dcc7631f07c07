/* SPDX-License-Identifier: PostgreSQL */
/*
 * owned.c: before DROP OWNED, the rights of its roles in the schemas of sas go.
 *
 * PostgreSQL takes away what a role was granted as the role that says DROP
 * OWNED.  Who is no superuser, and drops what is his own, can take away
 * nothing that another has granted: a warning at tables, an error where the
 * role has rights on single columns only.  What sas has granted, sas takes
 * away.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(sas_api_drop_owned);

/* _sas.drop_owned(), an event trigger: DROP OWNED itself refuses roles that one may not act for, and says so. */
Datum
sas_api_drop_owned(PG_FUNCTION_ARGS)
{
	EventTriggerData *data = (EventTriggerData *) fcinfo->context;
	Oid			types[1] = {REGROLEOID};
	Oid			function;
	ListCell   *cell;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by an event trigger")));
	if (!IsA(data->parsetree, DropOwnedStmt))
		PG_RETURN_NULL();
	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("drop_rights"),
							   PointerGetDatum(buildoidvector(types, 1)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	foreach(cell, castNode(DropOwnedStmt, data->parsetree)->roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, cell), true);

		if (OidIsValid(role) && has_privs_of_role(GetUserId(), role))
			OidFunctionCall1(function, ObjectIdGetDatum(role));
	}
	PG_RETURN_NULL();
}
