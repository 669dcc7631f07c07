/* SPDX-License-Identifier: PostgreSQL */
/*
 * planner_jit.c: statements that read the views of sas are not compiled.
 *
 * A view such as sas.steps has a hundred expressions, of which a row evaluates
 * few.  The planner adds up what all of them could cost, and from about a
 * thousand steps on, a look at all of them costs more than jit_above_cost.
 * Compilation then takes seconds, whatever the look takes.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "jit/jit.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "store/planner_jit.h"
#include "utils/lsyscache.h"

static planner_hook_type planner_jit_previous_hook = NULL;

static bool
planner_jit_reads_sas(PlannedStmt *statement)
{
	Oid			schema = get_namespace_oid("_sas", true);
	ListCell   *cell;

	if (!OidIsValid(schema))
		return false;
	foreach (cell, statement->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_RELATION && get_rel_namespace(entry->relid) == schema)
			return true;
	}
	return false;
}

static PlannedStmt *
planner_jit_plan(Query *parse, const char *query_string, int cursor_options, ParamListInfo params)
{
	PlannedStmt *statement;

	if (planner_jit_previous_hook != NULL)
		statement = planner_jit_previous_hook(parse, query_string, cursor_options, params);
	else
		statement = standard_planner(parse, query_string, cursor_options, params);
	/* a statement that is cheap is not looked at */
	if (statement->jitFlags != PGJIT_NONE && planner_jit_reads_sas(statement))
		statement->jitFlags = PGJIT_NONE;
	return statement;
}

void
sas_store_planner_jit_install(void)
{
	planner_jit_previous_hook = planner_hook;
	planner_hook = planner_jit_plan;
}
