/* SPDX-License-Identifier: PostgreSQL */
/*
 * cluster_scan.c: the views over all nodes: sas.cluster_runs and its kin.
 *
 * Each is a foreign table whose rows are those of a view of the same columns
 * on each node, this one included, as the current user sees them there. What
 * a query asks of the columns is asked on the nodes, as far as it means the
 * same there: operators and functions of PostgreSQL, no settings, no
 * collation but the default. Rows come by a cursor, so the memory that a scan
 * takes does not grow with the table.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "base/compat.h"
#include "store/cluster.h"
#include "store/node.h"
#include "store/store.h"

PG_FUNCTION_INFO_V1(sas_api_cluster_handler);
PG_FUNCTION_INFO_V1(sas_api_cluster_health);

/* Of all the tables the first column is the node. */
#define CLUSTER_NODE 1
#define CLUSTER_ROWS_AT_ONCE 1000
#define CLUSTER_ROWS_GUESSED 1000

typedef struct ClusterScan
{
	const char *query;
	char	   *cursor;
	AttInMetadata *input;
	List	   *nodes;			/* that are still to be asked; NULL: this one */
	bool		open;
	SasNodeRows *rows;			/* of the first of them */
	int			next;
	MemoryContext batch;
} ClusterScan;

/* ------------------------------------------------------------------- planning */

static bool
cluster_scan_is_foreign_function(Oid function, void *context)
{
	return function >= FirstNormalObjectId;
}

/*
 * Can it mean something else on a node? Operators of PostgreSQL over columns
 * and constants of exactly their types cannot: whatever the search_path of the
 * role is there, the operator that is found is the same. No implicit cast is
 * among them, since the text of a query does not show it.
 */
static bool
cluster_scan_differs(Node *node, void *relid)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			{
				const Var  *var = (const Var *) node;

				return var->varno != *(Index *) relid || var->varlevelsup != 0 || var->varattno <= CLUSTER_NODE;
			}
		case T_List:
		case T_Const:
		case T_BoolExpr:
		case T_OpExpr:
		case T_ScalarArrayOpExpr:
		case T_NullTest:
		case T_BooleanTest:
			break;
		default:
			return true;
	}
	if (!IsA(node, List) &&
		(exprType(node) >= FirstNormalObjectId ||
		 (OidIsValid(exprCollation(node)) && exprCollation(node) != DEFAULT_COLLATION_OID && exprCollation(node) != C_COLLATION_OID) ||
		 check_functions_in_node(node, cluster_scan_is_foreign_function, NULL)))
		return true;
	return expression_tree_walker(node, cluster_scan_differs, relid);
}

static void
cluster_scan_size(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	rel->rows = CLUSTER_ROWS_GUESSED;
}

static void
cluster_scan_paths(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	add_path(rel, (Path *) sas_compat_foreign_path(root, rel, rel->rows, 100, 100 + rel->rows));
}

/* What is asked of the rows on their node, as one condition; NIL: nothing. */
static List *
cluster_scan_conditions(RelOptInfo *rel, List *clauses)
{
	List	   *asked = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		Node	   *clause = (Node *) ((RestrictInfo *) lfirst(lc))->clause;

		if (!contain_mutable_functions(clause) && !cluster_scan_differs(clause, &rel->relid))
			asked = lappend(asked, clause);
	}
	return asked;
}

static char *
cluster_scan_query(Oid table, List *conditions)
{
	Relation	relation = RelationIdGetRelation(table);
	TupleDesc	desc = RelationGetDescr(relation);
	StringInfoData query;
	ListCell   *lc;
	int			level = sas_store_pin_text();

	initStringInfo(&query);
	for (int i = CLUSTER_NODE; i < desc->natts; i++)
		appendStringInfo(&query, "%s%s", i > CLUSTER_NODE ? ", " : "SELECT ", quote_identifier(NameStr(TupleDescAttr(desc, i)->attname)));
	foreach(lc, GetForeignTable(table)->options)
		if (strcmp(((DefElem *) lfirst(lc))->defname, "view") == 0)
			appendStringInfo(&query, " FROM sas.%s", quote_identifier(defGetString(lfirst(lc))));
	for (int i = 0; i < list_length(conditions); i++)
		appendStringInfo(&query, "%s%s", i > 0 ? " AND " : " WHERE ",
						 deparse_expression(list_nth(conditions, i), deparse_context_for(RelationGetRelationName(relation), table), false, false));
	sas_store_unpin_path(level);
	RelationClose(relation);
	return query.data;
}

/* All conditions are checked here too: those of this node's number can be nowhere else. */
static ForeignScan *
cluster_scan_plan(PlannerInfo *root, RelOptInfo *rel, Oid table, ForeignPath *best, List *targets, List *clauses, Plan *outer)
{
	List	   *conditions = cluster_scan_conditions(rel, clauses);
	char	   *query;

	ChangeVarNodes((Node *) (conditions = copyObject(conditions)), rel->relid, 1, 0);
	query = cluster_scan_query(table, conditions);
	return make_foreignscan(targets, extract_actual_clauses(clauses, false), rel->relid, NIL,
							list_make1(makeString(query)), NIL, NIL, outer);
}

/* ------------------------------------------------------------------- scanning */

static SasNodeRows *
cluster_scan_run(ClusterScan *scan, const char *statement)
{
	const SasNode *node = linitial(scan->nodes);
	MemoryContext old = MemoryContextSwitchTo(scan->batch);
	SasNodeRows *rows;
	int			level = sas_store_pin_text();

	rows = node == NULL ? sas_store_run_here(statement) : sas_store_run_on_node(node, false, statement, 0, NULL, NULL);
	sas_store_unpin_path(level);
	MemoryContextSwitchTo(old);
	return rows;
}

static void
cluster_scan_begin(ForeignScanState *state, int flags)
{
	static int	last = 0;
	ForeignScan *plan = (ForeignScan *) state->ss.ps.plan;
	ClusterScan *scan = palloc0(sizeof(ClusterScan));

	state->fdw_state = scan;
	scan->query = strVal(linitial(plan->fdw_private));
	if (flags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	scan->cursor = psprintf("sas_cluster_%d", ++last);
	scan->input = TupleDescGetAttInMetadata(RelationGetDescr(state->ss.ss_currentRelation));
	scan->batch = AllocSetContextCreate(CurrentMemoryContext, "sas rows of a node", ALLOCSET_DEFAULT_SIZES);
	scan->nodes = lcons(NULL, sas_store_other_nodes());
}

/* A query that needs no more rows ends with the cursor open. */
static void
cluster_scan_close(ClusterScan *scan)
{
	if (scan->open && linitial(scan->nodes) == NULL)
		sas_store_close_here(scan->cursor);
	else if (scan->open)
		(void) cluster_scan_run(scan, psprintf("CLOSE %s", scan->cursor));
	scan->open = false;
}

/* The next rows of the node, or of the one after it; false: there are none. */
static bool
cluster_scan_fetch(ClusterScan *scan)
{
	scan->next = 0;
	while (scan->nodes != NIL)
	{
		MemoryContextReset(scan->batch);
		scan->rows = NULL;
		if (!scan->open)
		{
			if (linitial(scan->nodes) != NULL)
				sas_store_pin_text_on_node(linitial(scan->nodes));
			(void) cluster_scan_run(scan, psprintf("DECLARE %s NO SCROLL CURSOR FOR %s", scan->cursor, scan->query));
			scan->open = true;
		}
		scan->rows = cluster_scan_run(scan, psprintf("FETCH %d FROM %s", CLUSTER_ROWS_AT_ONCE, scan->cursor));
		if (scan->rows->n_rows > 0)
			return true;
		cluster_scan_close(scan);
		scan->nodes = list_delete_first(scan->nodes);
	}
	scan->rows = NULL;
	return false;
}

static TupleTableSlot *
cluster_scan_next(ForeignScanState *state)
{
	ClusterScan *scan = state->fdw_state;
	TupleTableSlot *slot = ExecClearTuple(state->ss.ss_ScanTupleSlot);
	char	  **values;
	const SasNode *node;

	if ((scan->rows == NULL || scan->next >= scan->rows->n_rows) && !cluster_scan_fetch(scan))
		return slot;
	values = scan->rows->values[scan->next++];
	node = linitial(scan->nodes);
	slot->tts_values[0] = Int32GetDatum(node == NULL ? sas_store_node_id() : node->id);
	slot->tts_isnull[0] = false;
	for (int i = CLUSTER_NODE; i < slot->tts_tupleDescriptor->natts; i++)
	{
		char	   *value = values[i - CLUSTER_NODE];

		slot->tts_isnull[i] = value == NULL;
		slot->tts_values[i] = InputFunctionCall(&scan->input->attinfuncs[i], value, scan->input->attioparams[i], scan->input->atttypmods[i]);
	}
	return ExecStoreVirtualTuple(slot);
}

static void
cluster_scan_end(ForeignScanState *state)
{
	ClusterScan *scan = state->fdw_state;

	if (scan != NULL)
		cluster_scan_close(scan);
}

static void
cluster_scan_again(ForeignScanState *state)
{
	ClusterScan *scan = state->fdw_state;

	cluster_scan_end(state);
	scan->rows = NULL;
	scan->nodes = lcons(NULL, sas_store_other_nodes());
}

static void
cluster_scan_explain(ForeignScanState *state, ExplainState *es)
{
	ExplainPropertyText("Query on each node", ((ClusterScan *) state->fdw_state)->query, es);
}

Datum
sas_api_cluster_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = cluster_scan_size;
	routine->GetForeignPaths = cluster_scan_paths;
	routine->GetForeignPlan = cluster_scan_plan;
	routine->BeginForeignScan = cluster_scan_begin;
	routine->IterateForeignScan = cluster_scan_next;
	routine->ReScanForeignScan = cluster_scan_again;
	routine->EndForeignScan = cluster_scan_end;
	routine->ExplainForeignScan = cluster_scan_explain;
	PG_RETURN_POINTER(routine);
}

/* _sas.other_health(): node_id, answers, answer of the other nodes; no node's fault is an error. */
Datum
sas_api_cluster_health(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasNodeRows *rows = sas_store_ask_all_nodes("SELECT to_jsonb(h) FROM sas.health() h");
	AttInMetadata *input;

	InitMaterializedSRF(fcinfo, 0);
	input = TupleDescGetAttInMetadata(rsinfo->setDesc);
	for (int i = 0; i < rows->n_rows; i++)
		tuplestore_puttuple(rsinfo->setResult, BuildTupleFromCStrings(input, rows->values[i]));
	return (Datum) 0;
}
