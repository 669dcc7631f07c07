/* SPDX-License-Identifier: PostgreSQL */
/*
 * open_runs.c: queries of sas.runs for open runs find them by their keys.
 *
 * No index has the state of a run, so that its changes stay HOT.  So a query
 * such as
 *
 *	  SELECT ... FROM sas.runs WHERE state <> 'stopped' ORDER BY run_id DESC LIMIT 20
 *
 * would walk over all runs that are kept.  But which runs are open is known
 * without the state (_sas.not_ended).  So where the conditions of a query say
 * that the state is another one than "stopped", the planner is given one more
 * condition, which follows from them:
 *
 *	  run_id = ANY (ARRAY(SELECT _sas.open_run_ids()))
 *
 * A query that names ids of runs gets no other condition.
 *
 * It is added when the planner reads what it knows of the table: its
 * conditions are simplified by then, and not yet spread over the tables.
 * _sas.open_run_ids() returns what the current user may see.  While very many
 * of these runs are open, they are not hard to find, and the condition is left
 * out.
 */
#include "postgres.h"

#include "access/attnum.h"
#include "catalog/namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"
#include "optimizer/subselect.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "api/open_runs.h"
#include "base/compat.h"
#include "limits/quotas.h"

/* With more open runs, it costs more to list them than to walk. */
#define OPEN_RUNS_MOST 20000

static get_relation_info_hook_type open_runs_previous_hook = NULL;

/* Is this _sas.run, in a query that contains sas.runs? */
static bool
open_runs_is_viewed(PlannerInfo *root, Oid relid)
{
	Oid			internal = get_namespace_oid("_sas", true);
	Oid			view;
	ListCell   *cell;

	if (!OidIsValid(internal) || get_relname_relid("run", internal) != relid)
		return false;
	view = get_relname_relid("runs", get_namespace_oid("sas", true));
	foreach(cell, root->parse->rtable)
		if (((RangeTblEntry *) lfirst(cell))->relid == view && OidIsValid(view))
			return true;
	return false;
}

/* The conditions that every row of the result fulfils. */
static List *
open_runs_conditions(Node *jointree)
{
	List	   *found = NIL;

	if (jointree != NULL && IsA(jointree, FromExpr))
	{
		ListCell   *cell;

		found = list_copy((List *) ((FromExpr *) jointree)->quals);
		foreach(cell, ((FromExpr *) jointree)->fromlist)
			found = list_concat(found, open_runs_conditions(lfirst(cell)));
	}
	return found;
}

static Var *
open_runs_column(Oid relid, Index relation, const char *name)
{
	AttrNumber	attribute = get_attnum(relid, name);
	Oid			type;
	int32		typmod;
	Oid			collation;

	if (attribute == InvalidAttrNumber)
		return NULL;
	get_atttypetypmodcoll(relid, attribute, &type, &typmod, &collation);
	return makeVar(relation, attribute, type, typmod, collation, 0);
}

/* Do these conditions say that the run is open, and no run of a hook, which sas.runs does not show? */
static bool
open_runs_are_asked_for(List *conditions, Var *state, Var *hook_of)
{
	NullTest   *no_hook = makeNode(NullTest);
	Expr	   *open = make_opclause(get_negator(TextEqualOperator), BOOLOID, false, (Expr *) state,
									 (Expr *) makeConst(TEXTOID, -1, state->varcollid, -1, CStringGetTextDatum("stopped"), false, false),
									 InvalidOid, state->varcollid);

	no_hook->arg = (Expr *) hook_of;
	no_hook->nulltesttype = IS_NULL;
	no_hook->argisrow = false;
	no_hook->location = -1;
	return predicate_implied_by(list_make2(open, no_hook), conditions, false);
}

/*
 * Do the conditions name the ids of runs themselves?  These are fewer than the
 * open ones, and before version 17 an index is searched for each pair of two
 * arrays of ids.
 */
static bool
open_runs_are_named(Node *node, void *run_id)
{
	const Var  *column = run_id;
	List	   *args = NIL;

	if (node == NULL || IsA(node, SubLink) || (IsA(node, BoolExpr) && ((BoolExpr *) node)->boolop != AND_EXPR))
		return false;
	if (IsA(node, OpExpr) && get_oprrest(((OpExpr *) node)->opno) == F_EQSEL)
		args = ((OpExpr *) node)->args;
	else if (IsA(node, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) node)->useOr &&
			 get_oprrest(((ScalarArrayOpExpr *) node)->opno) == F_EQSEL)
		args = ((ScalarArrayOpExpr *) node)->args;
	if (list_length(args) != 2)
		return expression_tree_walker(node, open_runs_are_named, run_id);
	for (int i = 0; i < 2; i++)
	{
		const Var  *side = list_nth(args, i);

		if (IsA(side, Var) && side->varno == column->varno && side->varattno == column->varattno &&
			side->varlevelsup == 0 && !contain_var_clause(list_nth(args, 1 - i)))
			return true;
	}
	return false;
}

/* A function of _sas without arguments */
static Oid
open_runs_function(const char *name)
{
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(buildoidvector(NULL, 0)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
}

/* As _sas.owners_seen_by() */
static bool
open_runs_sees_all(Oid role)
{
	static const char *const levels[] = {"level_admin", "level_operator", "level_monitor"};

	if (has_bypassrls_privilege(role))
		return true;

	for (int i = 0; i < lengthof(levels); i++)
	{
		Oid			level = open_runs_function(levels[i]);

		if (OidIsValid(level) && sas_compat_may_execute(level, role))
			return true;
	}
	return false;
}

/* How many of the open runs the current user sees */
static int64
open_runs_count(void)
{
	bool		all = open_runs_sees_all(GetUserId());
	SasQuotaView *owners;
	int			n = sas_limits_quota_view(&owners);
	int64		open = 0;

	for (int i = 0; i < n; i++)
		if (all || sas_compat_may_stand_for(GetUserId(), owners[i].owner))
			open += owners[i].used[SAS_QUOTA_OPEN_RUNS];
	pfree(owners);
	return open;
}

/* run_id = ANY (ARRAY(SELECT _sas.open_run_ids())) */
static Node *
open_runs_condition(Var *run_id, Oid function)
{
	FuncExpr   *call = makeFuncExpr(function, INT8OID, NIL, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	Query	   *query = makeNode(Query);
	SubLink    *array = makeNode(SubLink);
	ScalarArrayOpExpr *condition = makeNode(ScalarArrayOpExpr);

	call->funcretset = true;
	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->hasTargetSRFs = true;
	query->jointree = makeFromExpr(NIL, NULL);
	query->targetList = list_make1(makeTargetEntry((Expr *) call, 1, "open_run_ids", false));
	array->subLinkType = ARRAY_SUBLINK;
	array->subselect = (Node *) query;
	array->location = -1;
	condition->opno = lookup_type_cache(INT8OID, TYPECACHE_EQ_OPR)->eq_opr;
	condition->opfuncid = F_INT8EQ;
	condition->useOr = true;
	condition->args = list_make2(run_id, array);
	condition->location = -1;
	return (Node *) condition;
}

static void
open_runs_plan(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	Var		   *run_id;
	Var		   *state;
	Var		   *hook_of;
	Oid			function;
	FromExpr   *jointree = root->parse->jointree;

	if (open_runs_previous_hook != NULL)
		open_runs_previous_hook(root, relid, inhparent, rel);
	if (inhparent || !open_runs_is_viewed(root, relid))
		return;
	run_id = open_runs_column(relid, rel->relid, "run_id");
	state = open_runs_column(relid, rel->relid, "state");
	hook_of = open_runs_column(relid, rel->relid, "hook_of");
	function = open_runs_function("open_run_ids");
	if (run_id == NULL || state == NULL || hook_of == NULL || !OidIsValid(function) ||
		!open_runs_are_asked_for(open_runs_conditions((Node *) jointree), state, hook_of) ||
		open_runs_are_named((Node *) jointree, run_id) ||
		!sas_compat_may_execute(function, GetUserId()) || open_runs_count() > OPEN_RUNS_MOST)
		return;
	jointree->quals = (Node *) lappend(list_copy((List *) jointree->quals),
									   SS_process_sublinks(root, open_runs_condition(run_id, function), true));
}

void
sas_api_open_runs_install(void)
{
	open_runs_previous_hook = get_relation_info_hook;
	get_relation_info_hook = open_runs_plan;
}
