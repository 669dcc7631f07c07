/* SPDX-License-Identifier: PostgreSQL */
/*
 * cluster.c: the other nodes of a cluster, and statements there.
 *
 * This file and node.c are the only ones that know of Citus. It is needed
 * neither to build nor to run: its functions, and those of the libpq that it
 * is linked with, are looked up by name when the first statement is to run on
 * another node. Citus opens the connections, prepares and commits on all
 * nodes, and finishes after a crash what was prepared.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "store/cluster.h"
#include "store/node.h"
#include "store/plan.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define CLUSTER_LIBRARY "$libdir/citus"

/* of Citus: all that is sent to a node in a transaction goes over one connection, so it sees what went before */
#define CLUSTER_ONE_CONNECTION (1 << 5)

/* What Citus and its libpq are called for. Connections and results are theirs. */
typedef struct ClusterCalls
{
	void		(*begin_all) (void);
	void		(*commit_in_two_phases) (void);
	void	   *(*connect) (uint32 flags, const char *host, int32 port, const char *user, const char *database);
	void		(*fail_with_it) (void *connection);
	void		(*begin) (void *connection);
	int			(*send) (void *connection, const char *statement, int n, const Oid *types, const char *const *values, bool binary);
	void	   *(*receive) (void *connection, bool interruptible);
	bool		(*succeeded) (void *result);
	void		(*throw_result) (void *connection, void *result, int elevel);
	void		(*throw_connection) (void *connection, int elevel);
	void		(*finish) (void *connection);
	int			(*n_rows) (const void *result);
	int			(*n_columns) (const void *result);
	char	   *(*value) (const void *result, int row, int column);
	int			(*is_null) (const void *result, int row, int column);
	void		(*clear) (void *result);
} ClusterCalls;

/* In the order of the struct. */
static const char *const cluster_names[] = {
	"UseCoordinatedTransaction", "Use2PCForCoordinatedTransaction", "GetNodeUserDatabaseConnection",
	"MarkRemoteTransactionCritical", "RemoteTransactionBeginIfNecessary", "SendRemoteCommandParams",
	"GetRemoteCommandResult", "IsResponseOK", "ReportResultError", "ReportConnectionError", "ForgetResults",
	"PQntuples", "PQnfields", "PQgetvalue", "PQgetisnull", "PQclear"
};

static const ClusterCalls *
cluster_find_calls(void)
{
	static ClusterCalls calls;
	static bool found = false;

	StaticAssertStmt(sizeof(ClusterCalls) == lengthof(cluster_names) * sizeof(void *), "a name for each call");
	for (int i = 0; !found && i < lengthof(cluster_names); i++)
		((void **) &calls)[i] = load_external_function(CLUSTER_LIBRARY, cluster_names[i], true, NULL);
	found = true;
	return &calls;
}

bool
sas_store_is_coordinator(void)
{
	return sas_store_group_id() == 0;
}

/* ---------------------------------------------------------------------- nodes */

List *
sas_store_other_nodes(void)
{
	static SasPlan plan = {"SELECT n.groupid, n.nodename, n.nodeport FROM pg_catalog.pg_dist_node n"
		" WHERE n.isactive AND n.noderole = 'primary' AND n.groupid <> $1 ORDER BY n.groupid", 1, {INT4OID}};
	List	   *nodes = NIL;
	int			level;

	if (!sas_store_in_cluster())
		return NIL;
	level = sas_store_enter();
	sas_store_plan_run(&plan, (Datum[]) {Int32GetDatum(sas_store_group_id())}, NULL);
	for (int i = 0; i < SPI_processed; i++)
	{
		SasNode    *node = MemoryContextAlloc(sas_store_results, sizeof(SasNode));
		MemoryContext old;

		node->id = (int) sas_store_cell_int(i, 1);
		node->host = sas_store_cell_text(i, 2);
		node->port = (int) sas_store_cell_int(i, 3);
		old = MemoryContextSwitchTo(sas_store_results);
		nodes = lappend(nodes, node);
		MemoryContextSwitchTo(old);
	}
	sas_store_leave(level);
	return nodes;
}

SasNode *
sas_store_other_node(int id)
{
	ListCell   *lc;

	foreach(lc, sas_store_other_nodes())
		if (((SasNode *) lfirst(lc))->id == id)
			return lfirst(lc);
	return NULL;
}

/* ----------------------------------------------------------------- statements */

static SasNodeRows *
cluster_copy_rows(const ClusterCalls *calls, const void *result)
{
	SasNodeRows *rows = palloc(sizeof(SasNodeRows));

	rows->n_rows = calls->n_rows(result);
	rows->n_columns = calls->n_columns(result);
	rows->values = palloc(sizeof(char **) * Max(rows->n_rows, 1));
	for (int i = 0; i < rows->n_rows; i++)
	{
		rows->values[i] = palloc(sizeof(char *) * Max(rows->n_columns, 1));
		for (int k = 0; k < rows->n_columns; k++)
			rows->values[i][k] = calls->is_null(result, i, k) ? NULL : pstrdup(calls->value(result, i, k));
	}
	return rows;
}

static SasNodeRows *
cluster_run(const SasNode *node, bool writes, const char *statement, int n, const Oid *types, const char *const *values)
{
	const ClusterCalls *calls = cluster_find_calls();
	SasNodeRows *volatile rows = NULL;
	void	   *connection;
	void	   *result;

	calls->begin_all();
	if (writes)
		calls->commit_in_two_phases();
	connection = calls->connect(CLUSTER_ONE_CONNECTION, node->host, node->port, GetUserNameFromId(GetUserId(), false), NULL);
	calls->fail_with_it(connection);
	calls->begin(connection);
	if (calls->send(connection, statement, n, types, values, false) == 0)
		calls->throw_connection(connection, ERROR);
	result = calls->receive(connection, true);
	if (!calls->succeeded(result))
		calls->throw_result(connection, result, ERROR);
	PG_TRY();
	{
		rows = cluster_copy_rows(calls, result);
	}
	PG_FINALLY();
	{
		calls->clear(result);
	}
	PG_END_TRY();
	calls->finish(connection);
	return rows;
}

/* What the node says keeps its place and its advice; what Citus says of a node gets them. */
SasNodeRows *
sas_store_run_on_node(const SasNode *node, bool writes, const char *statement, int n, const Oid *types, const char *const *values)
{
	MemoryContext caller = CurrentMemoryContext;
	SasNodeRows *volatile rows = NULL;

	PG_TRY();
	{
		rows = cluster_run(node, writes, statement, n, types, values);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		if (error->detail == NULL)
			error->detail = psprintf("At node %d, %s:%d.", node->id, node->host, node->port);
		if (error->hint == NULL && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_CONNECTION_EXCEPTION)
			error->hint = pstrdup("Nothing was changed on any node. Every node must run, and let the role log in.");
		else if (error->hint == NULL)
			error->hint = pstrdup("The node may lack grants or definitions: a superuser calls sas.sync_nodes() on the coordinator.");
		ReThrowError(error);
	}
	PG_END_TRY();
	return rows;
}

void
sas_store_pin_text_on_node(const SasNode *node)
{
	(void) sas_store_run_on_node(node, false, "SELECT pg_catalog.set_config('datestyle', 'ISO', true),"
								 " pg_catalog.set_config('intervalstyle', 'iso_8601', true)", 0, NULL, NULL);
}

void
sas_store_pin_ddl_on_node(const SasNode *node, bool pinned)
{
	(void) sas_store_run_on_node(node, true, "SELECT pg_catalog.set_config('citus.enable_ddl_propagation', $1, true)",
								 1, (Oid[]) {TEXTOID}, (const char *const[]) {pinned ? "off" : "on"});
}

int
sas_store_pin_ddl(void)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("citus.enable_ddl_propagation", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

/* What SPI has returned, as texts. */
static SasNodeRows *
cluster_copy_table(void)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	SasNodeRows *rows = palloc0(sizeof(SasNodeRows));

	rows->n_rows = SPI_tuptable == NULL ? 0 : (int) SPI_processed;
	rows->n_columns = SPI_tuptable == NULL ? 0 : SPI_tuptable->tupdesc->natts;
	rows->values = palloc(sizeof(char **) * Max(rows->n_rows, 1));
	for (int i = 0; i < rows->n_rows; i++)
	{
		rows->values[i] = palloc(sizeof(char *) * Max(rows->n_columns, 1));
		for (int k = 0; k < rows->n_columns; k++)
			rows->values[i][k] = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, k + 1);
	}
	MemoryContextSwitchTo(old);
	return rows;
}

SasNodeRows *
sas_store_run_here(const char *statement)
{
	int			level = sas_store_enter();
	int			rc = SPI_execute(statement, false, 0);
	SasNodeRows *rows;

	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", statement, SPI_result_code_string(rc));
	rows = cluster_copy_table();
	sas_store_leave(level);
	return rows;
}

void
sas_store_close_here(const char *cursor)
{
	int			level = sas_store_enter();
	Portal		portal = SPI_cursor_find(cursor);

	if (portal != NULL)
		SPI_cursor_close(portal);
	sas_store_leave(level);
}

SasNodeRows *
sas_store_ask_all_nodes(const char *query)
{
	static SasPlan plan = {"WITH n AS (SELECT array_agg(n.nodename) AS hosts, array_agg(n.nodeport) AS ports"
		" FROM pg_catalog.pg_dist_node n WHERE n.isactive AND n.noderole = 'primary' AND n.groupid <> $1)"
		" SELECT d.groupid, a.success, a.result FROM n CROSS JOIN LATERAL pg_catalog.master_run_on_worker("
		" n.hosts, n.ports, pg_catalog.array_fill($2, ARRAY[pg_catalog.cardinality(n.hosts)]), true) a (host, port, success, result)"
		" JOIN pg_catalog.pg_dist_node d ON d.nodename = a.host AND d.nodeport = a.port WHERE n.hosts IS NOT NULL"
		" ORDER BY 1", 2, {INT4OID, TEXTOID}};
	SasNodeRows *rows;
	int			level;

	if (!sas_store_in_cluster())
		return palloc0(sizeof(SasNodeRows));
	level = sas_store_enter();
	sas_store_plan_run(&plan, (Datum[]) {Int32GetDatum(sas_store_group_id()), CStringGetTextDatum(query)}, NULL);
	rows = cluster_copy_table();
	sas_store_leave(level);
	return rows;
}

/* ------------------------------------------------------------- what is here */

bool
sas_store_has_id(const char *table, const char *column, const char *index, int64 id)
{
	Oid			schema = get_namespace_oid("_sas", false);
	Oid			relid = get_relname_relid(table, schema);
	Relation	relation = table_open(relid, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, get_attnum(relid, column), BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(relation, get_relname_relid(index, schema), true, GetActiveSnapshot(), 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return found;
}

bool
sas_store_has_run(const SasNode *node, SasKeyRun which, const char *workflow, const char *key)
{
	static SasPlan plans[] = {
		[SAS_OWN_RUN] = {"SELECT 1 FROM sas.runs r WHERE r.workflow = $1 AND r.key = $2 AND r.submitted_by = current_user LIMIT 1", 2, {TEXTOID, TEXTOID}},
		[SAS_ANY_RUN] = {"SELECT 1 FROM sas.runs r WHERE r.workflow = $1 AND r.key = $2 LIMIT 1", 2, {TEXTOID, TEXTOID}},
		[SAS_OPEN_RUN] = {"SELECT 1 FROM sas.runs r WHERE r.workflow = $1 AND r.key = $2 AND r.state <> 'stopped' LIMIT 1", 2, {TEXTOID, TEXTOID}}
	};
	SasPlan    *plan = &plans[which];
	int			level;
	bool		found;

	if (node != NULL)
		return sas_store_run_on_node(node, false, plan->text, 2, plan->types, (const char *const[]) {workflow, key})->n_rows > 0;
	level = sas_store_enter();
	sas_store_plan_run(plan, (Datum[]) {CStringGetTextDatum(workflow), CStringGetTextDatum(key)}, NULL);
	found = SPI_processed > 0;
	sas_store_leave(level);
	return found;
}

/* ------------------------------------------------------------ places of keys */

/* As the owner of the extension, who reads the tables of both: the one before is in caller and context. */
static void
cluster_become_owner(Oid *caller, int *context)
{
	HeapTuple	table = SearchSysCache1(RELOID, ObjectIdGetDatum(get_relname_relid("workflow", get_namespace_oid("_sas", false))));
	Oid			owner;

	if (!HeapTupleIsValid(table))
		elog(ERROR, "there is no table of workflows");
	owner = ((Form_pg_class) GETSTRUCT(table))->relowner;
	ReleaseSysCache(table);
	GetUserIdAndSecContext(caller, context);
	SetUserIdAndSecContext(owner, *context | SECURITY_LOCAL_USERID_CHANGE);
}

/*
 * The tables that keys can follow. The input function of the column's type
 * runs as the owner of the extension; that of a domain, or of what may
 * contain one, would call functions of users.
 */
#define CLUSTER_KEY_TABLE \
	" FROM pg_catalog.pg_dist_partition t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.logicalrelid" \
	" AND a.attname = pg_catalog.column_to_column_name(t.logicalrelid, t.partkey)" \
	" JOIN pg_catalog.pg_type y ON y.oid = a.atttypid AND y.typtype IN ('b', 'e') AND y.typcategory <> 'A'"

/* The shard of the key; 0: there is none, or the table is not one that keys can follow. */
static int64
cluster_find_shard(Datum follows, Datum key, Datum separator, bool whole)
{
	static SasPlan plan = {"WITH t AS MATERIALIZED (SELECT t.logicalrelid" CLUSTER_KEY_TABLE
		" WHERE t.logicalrelid = pg_catalog.to_regclass($1) AND t.partmethod = 'h')"
		" SELECT pg_catalog.get_shard_id_for_distribution_column(t.logicalrelid,"
	" CASE WHEN $3 IS NULL THEN $2 ELSE pg_catalog.split_part($2, $3, 1) END) FROM t", 3, {TEXTOID, TEXTOID, TEXTOID}};
	MemoryContext caller = CurrentMemoryContext;

	PG_TRY();
	{
		sas_store_plan_run(&plan, (Datum[]) {follows, key, separator}, whole ? "  n" : NULL);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		if (error->detail == NULL)
			error->detail = pstrdup("At /key.");
		if (error->hint == NULL)
			error->hint = psprintf("The key has to be a value of the distribution column of table %s: see sas.workflows.", TextDatumGetCString(follows));
		ReThrowError(error);
	}
	PG_END_TRY();
	return SPI_processed == 0 ? 0 : sas_store_cell_int(0, 1);
}

/* The same, after which the shard does not move. A split gives the key another one while this waits. */
static int64
cluster_hold_shard(Datum follows, Datum key, Datum separator, bool whole)
{
	/* 5: ShareLock */
	static SasPlan plan = {"SELECT pg_catalog.lock_shard_metadata(5, ARRAY[$1])", 1, {INT8OID}};
	int64		shard = cluster_find_shard(follows, key, separator, whole);
	int64		held = 0;

	while (shard != held)
	{
		held = shard;
		sas_store_plan_run(&plan, (Datum[]) {Int64GetDatum(held)}, NULL);
		shard = cluster_find_shard(follows, key, separator, whole);
	}
	return shard;
}

static void
cluster_find_place(const char *workflow, const char *key, bool hold, SasKeyPlace *place)
{
	static SasPlan declared = {"SELECT w.workflow_id, w.keys_follow, w.key_separator FROM _sas.workflow w"
	" WHERE w.name = $1 AND w.dropped_at IS NULL AND w.keys_follow IS NOT NULL", 1, {TEXTOID}};
	static SasPlan placed = {"SELECT p.groupid, (p.xmin::text = w.key_shards ->> $1::text) IS NOT TRUE FROM pg_catalog.pg_dist_placement p"
	" CROSS JOIN _sas.workflow w WHERE p.shardid = $1 AND w.workflow_id = $2 ORDER BY 1 LIMIT 1", 2, {INT8OID, INT4OID}};
	int			id;
	bool		whole;
	Datum		follows;
	Datum		separator;
	int64		shard;

	sas_store_plan_run(&declared, (Datum[]) {CStringGetTextDatum(workflow)}, NULL);
	if (SPI_processed == 0)
		return;
	id = (int) sas_store_cell_int(0, 1);
	follows = CStringGetTextDatum(sas_store_cell_text(0, 2));
	whole = sas_store_cell_null(0, 3);
	separator = whole ? (Datum) 0 : CStringGetTextDatum(sas_store_cell_text(0, 3));
	shard = (hold ? cluster_hold_shard : cluster_find_shard) (follows, CStringGetTextDatum(key), separator, whole);
	sas_store_plan_run(&placed, (Datum[]) {Int64GetDatum(shard), Int32GetDatum(id)}, NULL);
	if (SPI_processed == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the key belongs to no shard of table %s", TextDatumGetCString(follows)),
				 errdetail("At /key. The keys of workflow \"%s\" follow that table.", workflow),
				 errhint("Call sas.distribute_keys with another table, or with null.")));
	place->follows = true;
	place->node = (int) sas_store_cell_int(0, 1);
	place->moved = sas_store_cell_bool(0, 2);
}

SasKeyPlace
sas_store_key_place(const char *workflow, const char *key, bool hold)
{
	/* of _sas.instant_key(): the runs of a schedule are where it fires */
	static const char of_schedules[] = "schedule:";
	SasKeyPlace place = {0};
	Oid			caller;
	int			context;
	int			level;

	if (!sas_store_in_cluster() || strncmp(key, of_schedules, strlen(of_schedules)) == 0)
		return place;
	cluster_become_owner(&caller, &context);
	level = sas_store_enter();
	cluster_find_place(workflow, key, hold, &place);
	sas_store_leave(level);
	SetUserIdAndSecContext(caller, context);
	return place;
}

Jsonb *
sas_store_placements(Oid table)
{
	static SasPlan plan = {"SELECT jsonb_object_agg(p.shardid, p.xmin::text)" CLUSTER_KEY_TABLE
		" JOIN pg_catalog.pg_dist_shard s ON s.logicalrelid = t.logicalrelid JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid"
	" WHERE t.logicalrelid = $1 AND t.partmethod = 'h'", 1, {REGCLASSOID}};
	Jsonb	   *placements = NULL;
	Oid			caller;
	int			context;
	int			level;

	if (!sas_store_in_cluster())
		return NULL;
	cluster_become_owner(&caller, &context);
	level = sas_store_enter();
	sas_store_plan_run(&plan, (Datum[]) {ObjectIdGetDatum(table)}, NULL);
	if (!sas_store_cell_null(0, 1))
		placements = sas_store_cell_jsonb(0, 1);
	sas_store_leave(level);
	SetUserIdAndSecContext(caller, context);
	return placements;
}
