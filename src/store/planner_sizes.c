/* SPDX-License-Identifier: PostgreSQL */
/*
 * planner_sizes.c: gives the planner a least size for tables that grow.
 *
 * Plans are cached.  A plan that was made when such a table was empty may scan
 * all of it instead of looking up a key.  It stays until the table is
 * analyzed, however many rows have come by then.  So the planner never takes
 * these tables for small ones; a look-up by key costs next to nothing in a
 * small table, too.  This applies in workers, and to the statements inside a
 * verb: both cache plans.  What a person writes in a session has the plans that
 * the sizes of the tables give, whatever the settings are.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "store/pins.h"
#include "utils/lsyscache.h"

/* such a table has no fewer rows, and pages */
#define LEAST_TUPLES 10000
#define LEAST_PAGES 200
#define LEAST_INDEX_PAGES 40

static const char *const planner_sizes_growing[] = {
	"abandoned_run", "alert_run", "answer", "attempt", "concurrency_key", "concurrency_slot", "deferred_run",
	"finished_run", "freed_key", "item", "lease", "map_key", "map_list", "map_progress", "message", "override", "parked_step",
	"phase", "purged_run", "queue_slot", "ready", "reply", "run", "run_dependency", "run_key", "run_label", "schedule", "signal", "step",
	"task", "token_key", "undo_order", "watch", "watch_batch", "watch_check", "watch_done", "watch_ended", "watch_flow",
	"watch_held", "watch_note", "watch_wait", "watch_work",
};

static get_relation_info_hook_type planner_sizes_previous_hook = NULL;
static bool planner_sizes_installed = false;
static bool planner_sizes_assumed = false;

static bool
planner_sizes_grows(Oid relid)
{
	Oid	  schema = get_rel_namespace(relid);
	char *name;

	if (!OidIsValid(schema) || schema != get_namespace_oid("_sas", true))
		return false;
	name = get_rel_name(relid);
	for (int i = 0; name != NULL && i < lengthof(planner_sizes_growing); i++)
		if (strcmp(name, planner_sizes_growing[i]) == 0)
			return true;
	return false;
}

static void
planner_sizes_set(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	ListCell *cell;

	if (planner_sizes_previous_hook != NULL)
		planner_sizes_previous_hook(root, relid, inhparent, rel);
	if (!planner_sizes_assumed || inhparent || rel->tuples >= LEAST_TUPLES || !planner_sizes_grows(relid))
		return;
	rel->tuples = LEAST_TUPLES;
	rel->pages = Max(rel->pages, LEAST_PAGES);
	foreach (cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);
		int			share;

		/*
		 * A partial index has fewer, so it is taken where it fits; but not so
		 * few that it is scanned as a whole in place of a look-up by key.
		 */
		share = index->indpred != NIL ? 2 : 1;
		index->tuples = Max(index->tuples, LEAST_TUPLES / share);
		index->pages = Max(index->pages, LEAST_INDEX_PAGES / share);
		index->tree_height = Max(index->tree_height, 1);
	}
}

bool
sas_store_assume_sizes(bool assume)
{
	bool		before = planner_sizes_assumed;

	if (!planner_sizes_installed)
	{
		planner_sizes_previous_hook = get_relation_info_hook;
		get_relation_info_hook = planner_sizes_set;
		planner_sizes_installed = true;
	}
	planner_sizes_assumed = assume;
	return before;
}
