/* SPDX-License-Identifier: PostgreSQL */
/*
 * become.c: code of users runs with the rights of its role and no others.
 *
 *	- in a worker the session authorization is the role's, as a setting that is
 *	  rolled back: so are session_user and is_superuser
 *	- the user is switched with SECURITY_LOCAL_USERID_CHANGE, under which SET
 *	  ROLE and SET SESSION AUTHORIZATION are refused
 *	- settings are rolled back with a nest level of their own
 *	- code of one role in the transaction of another, which is middleware, is a
 *	  security-restricted operation: it makes no temporary object, prepared
 *	  statement, held cursor or deferred trigger, which would run later with
 *	  the rights of the other role
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/prepare.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "store/store.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "work/become.h"

/* The whole session is the role's.  Not within a change of the user, which forbids that. */
static void
become_set_session(Oid role)
{
	(void) set_config_option("session_authorization", GetUserNameFromId(role, false), PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* it goes by the name, and roles can be renamed at any moment */
	if (GetSessionUserId() != role)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the owner has changed its name in this moment")));
}

void
sas_work_become(SasRights *before, Oid role, int flags)
{
	int			security;

	GetUserIdAndSecContext(&before->user, &before->security);
	before->nest_level = NewGUCNestLevel();
	if ((flags & SAS_BECOME_SESSION) && GetSessionUserId() != role)
	{
		SetUserIdAndSecContext(before->user, 0);
		become_set_session(role);
	}
	security = before->security | SECURITY_LOCAL_USERID_CHANGE;
	if (flags & SAS_BECOME_RESTRICTED)
		security |= SECURITY_RESTRICTED_OPERATION;
	if (flags & SAS_BECOME_UNRESTRICTED)
		security &= ~SECURITY_RESTRICTED_OPERATION;
	SetUserIdAndSecContext(role, security);
}

/* Within a change of the user the session authorization would stay as it is. */
void
sas_work_go_back(const SasRights *before)
{
	SetUserIdAndSecContext(before->user, 0);
	AtEOXact_GUC(false, before->nest_level);
	SetUserIdAndSecContext(before->user, before->security);
}

/*
 * Until none is left: a trigger may defer others, also by SET CONSTRAINTS.
 * That statement would only fire those that are immediate now, and what comes
 * later in the transaction would find its constraints immediate.
 */
void
sas_work_fire_deferred(void)
{
	AfterTriggerFireDeferred();
}

void
sas_work_clean_up(void)
{
	sas_work_fire_deferred();
	/* code of another role leaves none */
	sas_store_constraints_immediate();
	PortalHashTableDeleteAll();
	DropAllPreparedStatements();
	ResetTempTableNamespace();
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
}
