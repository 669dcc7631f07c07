/* SPDX-License-Identifier: PostgreSQL */
/*
 * lifecycle.c: a utility hook that stops workers for some statements.
 *
 *	DROP, RENAME, SET TABLESPACE of a database		excludes workers from that database
 *	CREATE DATABASE ... TEMPLATE					excludes workers from the template
 *	DROP EXTENSION sas, ALTER EXTENSION sas			excludes workers from this database, probes it at commit
 *	CREATE EXTENSION								probes this database at commit
 *	DROP SCHEMA, DROP OWNED							the same, when they dropped sas too
 *	COMMIT PREPARED, ROLLBACK PREPARED				wakes everything in this database
 *	CREATE EXTENSION by a restore, COPY ... FROM	this session excludes workers from this database
 *
 * An exclusion lasts until the transaction ends, so workers are back right
 * after an error or a ROLLBACK. SET TABLESPACE commits half way: while the
 * statement runs, the end of a transaction ends no exclusion.
 *
 * A dump is restored table by table. A worker that saw messages of runs that
 * are not loaded yet would delete them, and nodes that register before
 * theirs are loaded would take their numbers. So a session that restores a
 * dump excludes workers until it ends, or until it calls a verb. Two signs
 * show a restore: check_function_bodies is off, as pg_dump and pg_restore
 * set it before they create anything; or a COPY that has put rows into a
 * table of sas. Until it has, workers are excluded for its transaction.
 *
 * Several sessions may load the tables at once, in any order (pg_restore -j).
 * So the COPY of a superuser checks no foreign key: the dump was taken in one
 * snapshot, where they hold.
 *
 * DROP and ALTER EXTENSION lock the tables one by one. They are locked before
 * (src/worker/relations.c).
 *
 * No worker is stopped for a statement that is going to be refused: the
 * checks below repeat those of the server, and in doubt they stop none.
 * Workers that were stopped in vain would come back at once, but their calls
 * would have been aborted.
 */
#include "postgres.h"

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
#include "base/shared_table.h"
#include "limits/quotas.h"
#include "wake/holders.h"
#include "wake/wakeup.h"
#include "worker/exclusion.h"
#include "worker/lifecycle.h"
#include "worker/relations.h"
#include "worker/request.h"
#include "worker/shmem.h"
#include "worker/update.h"

/* What a statement means for us. */
typedef struct SasIntent
{
	Oid			exclude;		/* database from which workers are excluded */
	bool		probe;			/* probe this database at commit */
	bool		created;		/* CREATE EXTENSION of any name */
	bool		locks;			/* changes tables of sas: DROP or ALTER EXTENSION sas */
	bool		dropped;		/* something that may have taken the extension along */
	bool		rescan;			/* read pg_database again at commit */
	Oid			gone;			/* database to be dropped */
	bool		prepared;		/* ends a prepared transaction */
	bool		discards;		/* DISCARD ALL */
	bool		restores;		/* a dump */
	bool		loads;			/* a COPY that may be part of a restore */
} SasIntent;

static ProcessUtility_hook_type lifecycle_previous_hook = NULL;

/* Of this transaction. */
static bool lifecycle_pending_probe = false;
static bool lifecycle_pending_rescan = false;
static bool lifecycle_pending_drop = false; /* the extension may be gone */
static Oid	lifecycle_pending_gone = InvalidOid; /* database that was dropped */
static int	lifecycle_statements = 0; /* depth of hooked statements */

/* Of this session. */
static bool lifecycle_restoring = false;

/* ---------------------------------------------------------------- privileges */

/* Another database by name, if this role owns it. */
static Oid
lifecycle_owned_database(const char *name)
{
	Oid			dboid = get_database_oid(name, true);

	if (!OidIsValid(dboid) || dboid == MyDatabaseId ||
		!sas_compat_owns_database(dboid, GetUserId()))
		return InvalidOid;
	return dboid;
}

static bool
lifecycle_may_create_database(void)
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
lifecycle_is_template(Oid dboid)
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
lifecycle_owned_extension(void)
{
	Oid			extoid = get_extension_oid("sas", true);

	if (!OidIsValid(extoid) || !sas_compat_owns_extension(extoid, GetUserId()))
		return InvalidOid;
	return MyDatabaseId;
}

/* ---------------------------------------------------------------- statements */

/* The database that CREATE DATABASE is going to copy. */
static Oid
lifecycle_template(CreatedbStmt *stmt)
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
	if (!OidIsValid(dboid) || !lifecycle_may_create_database() ||
		OidIsValid(get_database_oid(stmt->dbname, true)) ||
		!(lifecycle_is_template(dboid) || sas_compat_owns_database(dboid, GetUserId())))
		return InvalidOid;
	return dboid;
}

static bool
lifecycle_drops_extension(DropStmt *stmt)
{
	ListCell   *cell;

	if (stmt->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, stmt->objects)
		if (strcmp(strVal(lfirst(cell)), "sas") == 0)
			return true;
	return false;
}

/* COPY into a table of sas, by a role that may write there. */
static bool
lifecycle_loads(CopyStmt *stmt)
{
	return stmt->is_from && stmt->relation != NULL && stmt->relation->schemaname != NULL &&
		strcmp(stmt->relation->schemaname, "_sas") == 0 &&
		OidIsValid(lifecycle_owned_extension());
}

static bool
lifecycle_moves_database(AlterDatabaseStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, stmt->options)
		if (strcmp(((DefElem *) lfirst(cell))->defname, "tablespace") == 0)
			return true;
	return false;
}

/*
 * False for the statements that do not concern workers, which is nearly all.
 * top_level: the statement may commit by itself.
 */
static bool
lifecycle_intent(Node *node, bool top_level, SasIntent *intent)
{
	switch (nodeTag(node))
	{
		case T_DropdbStmt:
			intent->rescan = true;
			intent->gone = get_database_oid(((DropdbStmt *) node)->dbname, true);
			if (top_level)
				intent->exclude = lifecycle_owned_database(((DropdbStmt *) node)->dbname);
			if (OidIsValid(intent->exclude) && lifecycle_is_template(intent->exclude))
				intent->exclude = InvalidOid;
			return true;
		case T_AlterDatabaseStmt:
			intent->rescan = true;
			if (top_level && lifecycle_moves_database((AlterDatabaseStmt *) node))
				intent->exclude = lifecycle_owned_database(((AlterDatabaseStmt *) node)->dbname);
			return true;
		case T_CreatedbStmt:
			intent->rescan = true;
			if (top_level)
				intent->exclude = lifecycle_template((CreatedbStmt *) node);
			return true;
		case T_RenameStmt:
			if (((RenameStmt *) node)->renameType != OBJECT_DATABASE)
				return false;
			intent->rescan = true;
			if (lifecycle_may_create_database())
				intent->exclude = lifecycle_owned_database(((RenameStmt *) node)->subname);
			return true;
		case T_DropOwnedStmt:
			intent->dropped = true;
			return true;
		case T_DropStmt:
			intent->dropped = ((DropStmt *) node)->removeType == OBJECT_SCHEMA;
			if (intent->dropped)
				return true;
			if (!lifecycle_drops_extension((DropStmt *) node))
				return false;
			intent->probe = intent->locks = true;
			intent->exclude = lifecycle_owned_extension();
			return true;
		case T_AlterExtensionStmt:
			if (strcmp(((AlterExtensionStmt *) node)->extname, "sas") != 0)
				return false;
			intent->probe = intent->locks = true;
			intent->exclude = lifecycle_owned_extension();
			return true;
		case T_CreateExtensionStmt:
			intent->created = true;
			/* of one that is there already, a dump fills the tables: see below */
			intent->restores = !check_function_bodies && superuser() &&
				strcmp(((CreateExtensionStmt *) node)->extname, "sas") == 0 &&
				!OidIsValid(get_extension_oid("sas", true));
			return true;
		case T_CopyStmt:
			intent->loads = lifecycle_loads((CopyStmt *) node);
			if (intent->loads)
				intent->exclude = MyDatabaseId;
			return intent->loads;
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
lifecycle_note(const SasIntent *intent)
{
	lifecycle_pending_rescan |= intent->rescan;
	lifecycle_pending_probe |= intent->probe;
	lifecycle_pending_drop |= intent->probe || intent->dropped || intent->prepared;
	if (OidIsValid(intent->gone))
		lifecycle_pending_gone = intent->gone;

	/* Another extension may have brought sas along, or a prepared transaction. */
	if (intent->created || (intent->prepared && !sas_worker_registry_has_workers(MyDatabaseId)))
		lifecycle_pending_probe |= OidIsValid(get_extension_oid("sas", true));
	if (intent->dropped && sas_worker_registry_has_workers(MyDatabaseId))
		lifecycle_pending_probe |= !OidIsValid(get_extension_oid("sas", true));
	if (intent->prepared)
	{
		sas_wake_holders_prepared_ended();
		sas_limits_quota_note(SAS_QUOTA_PREPARED_ENDED);
		sas_wake_database(MyDatabaseId);
	}
	if (intent->discards)
		sas_worker_lifecycle_restored();
}

static void
lifecycle_restores(void)
{
	if (!lifecycle_restoring)
		ereport(LOG,
				(errmsg("sas workers in database \"%s\" wait until this session has restored its dump",
						get_database_name(MyDatabaseId))));
	lifecycle_restoring = true;
	sas_worker_exclusion_keep();
}

void
sas_worker_lifecycle_probe(void)
{
	lifecycle_pending_probe = true;
}

void
sas_worker_lifecycle_restored(void)
{
	if (!lifecycle_restoring)
		return;
	lifecycle_restoring = false;
	sas_worker_exclusion_end_all();
}

static void
lifecycle_next(PlannedStmt *pstmt, const char *query, bool read_only,
			   ProcessUtilityContext context, ParamListInfo params,
			   QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	if (lifecycle_previous_hook)
		lifecycle_previous_hook(pstmt, query, read_only, context, params, environment, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only, context, params, environment, dest, qc);
}

/* For this statement. The triggers of sas itself fire all the same (ENABLE ALWAYS). */
static void
lifecycle_load_in_any_order(void)
{
	(void) set_config_option("session_replication_role", "replica", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Carries out a statement that concerns workers. */
static void
lifecycle_follow(const SasIntent *intent, PlannedStmt *pstmt, const char *query, bool read_only,
				 ProcessUtilityContext context, ParamListInfo params,
				 QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	int			level = intent->loads ? NewGUCNestLevel() : 0;
	SasUpdate	update;

	lifecycle_statements++;
	PG_TRY();
	{
		if (OidIsValid(intent->exclude))
			sas_worker_exclusion_begin(intent->exclude);
		if (intent->locks && OidIsValid(intent->exclude))
			sas_worker_lock_relations();
		if (intent->restores)
			lifecycle_restores();
		if (intent->loads && superuser())
			lifecycle_load_in_any_order();
		sas_worker_update_begin(&update, pstmt->utilityStmt);
		lifecycle_next(pstmt, query, read_only, context, params, environment, dest, qc);
		sas_worker_update_end(&update);
		if (intent->loads && (qc == NULL || qc->nprocessed > 0))
			lifecycle_restores();
		lifecycle_note(intent);
		if (level > 0)
			AtEOXact_GUC(true, level);
	}
	PG_FINALLY();
	{
		lifecycle_statements--;
	}
	PG_END_TRY();
}

static void
lifecycle_utility(PlannedStmt *pstmt, const char *query, bool read_only,
				  ProcessUtilityContext context, ParamListInfo params,
				  QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *qc)
{
	SasIntent	intent = {0};
	bool		top_level = context == PROCESS_UTILITY_TOPLEVEL && !IsTransactionBlock() &&
		!IsSubTransaction();

	if (sas_worker_shmem == NULL || !IsTransactionState() || RecoveryInProgress() ||
		!lifecycle_intent(pstmt->utilityStmt, top_level, &intent))
		lifecycle_next(pstmt, query, read_only, context, params, environment, dest, qc);
	else
		lifecycle_follow(&intent, pstmt, query, read_only, context, params, environment, dest, qc);
}

/* ---------------------------------------------------------------- end of transaction */

static void
lifecycle_xact_callback(XactEvent event, void *arg)
{
	/* a savepoint may have restored the extension; now it is certain, and can be looked up */
	if (event == XACT_EVENT_PRE_COMMIT && lifecycle_pending_drop)
		lifecycle_pending_drop = !OidIsValid(get_extension_oid("sas", true));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (lifecycle_statements > 0 && event == XACT_EVENT_COMMIT)
		return;
	if (event == XACT_EVENT_COMMIT)
	{
		if (lifecycle_pending_probe)
			sas_worker_request_probe(MyDatabaseId);
		if (lifecycle_pending_rescan)
			sas_worker_request_rescan();
		if (lifecycle_pending_drop)
			sas_base_tables_forget(MyDatabaseId);
		if (OidIsValid(lifecycle_pending_gone))
			sas_base_tables_forget(lifecycle_pending_gone);
	}
	lifecycle_pending_probe = lifecycle_pending_rescan = lifecycle_pending_drop = false;
	lifecycle_pending_gone = InvalidOid;
	if (sas_worker_exclusion_mine())
		sas_worker_exclusion_end_transaction();
}

void
sas_worker_lifecycle_install(void)
{
	sas_worker_exclusion_install();
	lifecycle_previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = lifecycle_utility;
	RegisterXactCallback(lifecycle_xact_callback, NULL);
}
