/* SPDX-License-Identifier: PostgreSQL */
/*
 * lifecycle.c: a utility hook that clears the way for some statements.
 *
 *	DROP, RENAME, SET TABLESPACE of a database		the database is held
 *	CREATE DATABASE ... TEMPLATE					the template is held
 *	DROP EXTENSION sas, ALTER EXTENSION sas			this database is held, probed at commit
 *	CREATE EXTENSION								this database is probed at commit
 *	DROP SCHEMA, DROP OWNED							the same, when they took sas along
 *	COMMIT PREPARED, ROLLBACK PREPARED				everything in this database is rung
 *	CREATE EXTENSION by a restore, COPY ... FROM	this database is held by this session
 *
 * A hold lasts until the transaction ends, so workers are back right after an
 * error or a ROLLBACK.  SET TABLESPACE commits half way: while the statement
 * runs, the end of a transaction ends no hold.
 *
 * A dump is restored table by table: a worker that saw the messages of runs
 * that are not there yet would throw them away, and nodes that are born before
 * theirs are loaded would have their numbers.  So whoever restores one holds
 * the database for as long as its session lasts, or until it calls a verb.  It
 * is told by check_function_bodies, which pg_dump and pg_restore turn off
 * before they create anything, and by a COPY into a table of sas.
 *
 * Nobody is stopped for a statement that is going to be refused: the checks
 * below repeat those of the server, and when in doubt leave the workers alone.
 * Workers that were stopped in vain would come back at once, but their calls
 * would have been cut off.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "limits/limits.h"
#include "wake/wakeup.h"
#include "worker/board.h"
#include "worker/hold.h"
#include "worker/lifecycle.h"
#include "worker/request.h"

/* What a statement means for us. */
typedef struct SasIntent
{
	Oid			hold;			/* database to be held */
	bool		probe;			/* probe this database at commit */
	bool		created;		/* CREATE EXTENSION of any name */
	bool		dropped;		/* something that may have taken the extension along */
	bool		rescan;			/* read pg_database again at commit */
	Oid			gone;			/* database to be dropped */
	bool		prepared;		/* ends a prepared transaction */
	bool		discards;		/* DISCARD ALL */
	bool		restores;		/* a dump */
} SasIntent;

static ProcessUtility_hook_type previous_hook = NULL;

/* Of this transaction. */
static bool pending_probe = false;
static bool pending_rescan = false;
static bool pending_drop = false;	/* the extension may be gone */
static Oid	pending_gone = InvalidOid;	/* database that was dropped */
static int	statements = 0;		/* depth of hooked statements */

/* Of this session. */
static bool restoring = false;

/* ---------------------------------------------------------------- privileges */

/* Another database by name, if this role owns it. */
static Oid
sas_lifecycle_owned_database(const char *name)
{
	Oid			dboid = get_database_oid(name, true);

	if (!OidIsValid(dboid) || dboid == MyDatabaseId ||
		!sas_compat_owns_database(dboid, GetUserId()))
		return InvalidOid;
	return dboid;
}

static bool
sas_lifecycle_may_create_database(void)
{
	HeapTuple	tuple;
	bool		may = superuser();

	if (may)
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		may = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	return may;
}

static bool
sas_lifecycle_is_template(Oid dboid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool		is_template = false;

	if (HeapTupleIsValid(tuple))
	{
		is_template = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return is_template;
}

/* This database, if this role may change its extension. */
static Oid
sas_lifecycle_owned_extension(void)
{
	Oid			extoid = get_extension_oid("sas", true);

	if (!OidIsValid(extoid) || !sas_compat_owns_extension(extoid, GetUserId()))
		return InvalidOid;
	return MyDatabaseId;
}

/* ---------------------------------------------------------------- statements */

/* The database that CREATE DATABASE is going to copy. */
static Oid
sas_lifecycle_template(CreatedbStmt *stmt)
{
	const char *name = "template1";
	ListCell   *cell;
	Oid			dboid;

	foreach(cell, stmt->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			name = defGetString(option);
	}
	dboid = get_database_oid(name, true);
	if (!OidIsValid(dboid) || !sas_lifecycle_may_create_database() ||
		OidIsValid(get_database_oid(stmt->dbname, true)) ||
		!(sas_lifecycle_is_template(dboid) || sas_compat_owns_database(dboid, GetUserId())))
		return InvalidOid;
	return dboid;
}

static bool
sas_lifecycle_drops_extension(DropStmt *stmt)
{
	ListCell   *cell;

	if (stmt->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, stmt->objects)
		if (strcmp(strVal(lfirst(cell)), "sas") == 0)
			return true;
	return false;
}

/* COPY into a table of sas, by who may write there. */
static bool
sas_lifecycle_loads(CopyStmt *stmt)
{
	return stmt->is_from && stmt->relation != NULL && stmt->relation->schemaname != NULL &&
		strcmp(stmt->relation->schemaname, "_sas") == 0 &&
		OidIsValid(sas_lifecycle_owned_extension());
}

static bool
sas_lifecycle_moves_database(AlterDatabaseStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, stmt->options)
		if (strcmp(((DefElem *) lfirst(cell))->defname, "tablespace") == 0)
			return true;
	return false;
}

/*
 * False for the statements that are none of our business, which is nearly all.
 * alone: the statement may commit by itself.
 */
static bool
sas_lifecycle_intent(Node *node, bool alone, SasIntent *intent)
{
	switch (nodeTag(node))
	{
		case T_DropdbStmt:
			intent->rescan = true;
			intent->gone = get_database_oid(((DropdbStmt *) node)->dbname, true);
			if (alone)
				intent->hold = sas_lifecycle_owned_database(((DropdbStmt *) node)->dbname);
			if (OidIsValid(intent->hold) && sas_lifecycle_is_template(intent->hold))
				intent->hold = InvalidOid;
			return true;
		case T_AlterDatabaseStmt:
			intent->rescan = true;
			if (alone && sas_lifecycle_moves_database((AlterDatabaseStmt *) node))
				intent->hold = sas_lifecycle_owned_database(((AlterDatabaseStmt *) node)->dbname);
			return true;
		case T_CreatedbStmt:
			intent->rescan = true;
			if (alone)
				intent->hold = sas_lifecycle_template((CreatedbStmt *) node);
			return true;
		case T_RenameStmt:
			if (((RenameStmt *) node)->renameType != OBJECT_DATABASE)
				return false;
			intent->rescan = true;
			if (sas_lifecycle_may_create_database())
				intent->hold = sas_lifecycle_owned_database(((RenameStmt *) node)->subname);
			return true;
		case T_DropOwnedStmt:
			intent->dropped = true;
			return true;
		case T_DropStmt:
			intent->dropped = ((DropStmt *) node)->removeType == OBJECT_SCHEMA;
			if (intent->dropped)
				return true;
			if (!sas_lifecycle_drops_extension((DropStmt *) node))
				return false;
			intent->probe = true;
			intent->hold = sas_lifecycle_owned_extension();
			return true;
		case T_AlterExtensionStmt:
			if (strcmp(((AlterExtensionStmt *) node)->extname, "sas") != 0)
				return false;
			intent->probe = true;
			intent->hold = sas_lifecycle_owned_extension();
			return true;
		case T_CreateExtensionStmt:
			intent->created = true;
			/* of one that is there already, a dump fills the tables: see below */
			intent->restores = !check_function_bodies && superuser() &&
				strcmp(((CreateExtensionStmt *) node)->extname, "sas") == 0 &&
				!OidIsValid(get_extension_oid("sas", true));
			return true;
		case T_CopyStmt:
			intent->restores = sas_lifecycle_loads((CopyStmt *) node);
			return intent->restores;
		case T_DiscardStmt:
			/* a pooled connection is handed on */
			intent->discards = ((DiscardStmt *) node)->target == DISCARD_ALL;
			return intent->discards;
		case T_TransactionStmt:
			intent->prepared = ((TransactionStmt *) node)->kind == TRANS_STMT_COMMIT_PREPARED ||
				((TransactionStmt *) node)->kind == TRANS_STMT_ROLLBACK_PREPARED;
			return intent->prepared;
		default:
			return false;
	}
}

/* After success. */
static void
sas_lifecycle_note(const SasIntent *intent)
{
	pending_rescan |= intent->rescan;
	pending_probe |= intent->probe;
	pending_drop |= intent->probe || intent->dropped || intent->prepared;
	if (OidIsValid(intent->gone))
		pending_gone = intent->gone;

	/* Another extension may have brought sas along, or a prepared transaction. */
	if (intent->created || (intent->prepared && !sas_registry_has_workers(MyDatabaseId)))
		pending_probe |= OidIsValid(get_extension_oid("sas", true));
	if (intent->dropped && sas_registry_has_workers(MyDatabaseId))
		pending_probe |= !OidIsValid(get_extension_oid("sas", true));
	if (intent->prepared)
		sas_wake_database(MyDatabaseId);
	if (intent->discards)
		sas_lifecycle_restored();
}

static void
sas_lifecycle_restores(void)
{
	if (!restoring)
		ereport(LOG,
				(errmsg("workers of sas in database \"%s\" wait until this session has restored its dump",
						get_database_name(MyDatabaseId))));
	restoring = true;
	sas_hold_keep();
}

void
sas_lifecycle_restored(void)
{
	if (!restoring)
		return;
	restoring = false;
	sas_hold_end_all();
}

static void
sas_lifecycle_next(PlannedStmt *pstmt, const char *query, bool read_only,
				   ProcessUtilityContext context, ParamListInfo params,
				   QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	if (previous_hook)
		previous_hook(pstmt, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only, context, params, environment, dest, qc);
}

/* Carries out a statement that concerns workers. */
static void
sas_lifecycle_follow(const SasIntent *intent, PlannedStmt *pstmt, const char *query, bool read_only,
					 ProcessUtilityContext context, ParamListInfo params,
					 QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	statements++;
	PG_TRY();
	{
		if (OidIsValid(intent->hold))
			sas_hold_begin(intent->hold);
		if (intent->restores)
			sas_lifecycle_restores();
		sas_lifecycle_next(pstmt, query, read_only, context, params, environment, dest, qc);
		sas_lifecycle_note(intent);
	}
	PG_FINALLY();
	{
		statements--;
	}
	PG_END_TRY();
}

static void
sas_lifecycle_utility(PlannedStmt *pstmt, const char *query, bool read_only,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	SasIntent	intent = {0};
	bool		alone = context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() &&
		!IsSubTransaction();

	if (sas_board == NULL || !IsTransactionState() || RecoveryInProgress() ||
		!sas_lifecycle_intent(pstmt->utilityStmt, alone, &intent))
		sas_lifecycle_next(pstmt, query, read_only, context, params, environment, dest, qc);
	else
		sas_lifecycle_follow(&intent, pstmt, query, read_only, context, params, environment, dest, qc);
}

/* ---------------------------------------------------------------- end of transaction */

static void
sas_lifecycle_xact_callback(XactEvent event, void *arg)
{
	/* a savepoint may have brought it back; only now is it certain, and can be looked up */
	if (event == XACT_EVENT_PRE_COMMIT && pending_drop)
		pending_drop = !OidIsValid(get_extension_oid("sas", true));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (statements > 0 && event == XACT_EVENT_COMMIT)
		return;
	if (event == XACT_EVENT_COMMIT)
	{
		if (pending_probe)
			sas_request_probe(MyDatabaseId);
		if (pending_rescan)
			sas_request_rescan();
		if (pending_drop)
			sas_limits_drop_database(MyDatabaseId);
		if (OidIsValid(pending_gone))
			sas_limits_drop_database(pending_gone);
	}
	pending_probe = pending_rescan = pending_drop = false;
	pending_gone = InvalidOid;
	if (sas_hold_mine())
		sas_hold_end_transaction();
}

void
sas_lifecycle_install(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = sas_lifecycle_utility;
	RegisterXactCallback(sas_lifecycle_xact_callback, NULL);
}
