/* SPDX-License-Identifier: PostgreSQL */
/*
 * claim.c: calls are claimed.
 *
 * In batches, by SQL; but for a call that is alone, which somebody waits for:
 * that one is claimed, and its request composed, without the interpreter.
 */
#include "postgres.h"

#include "agent/claim.h"
#include "base/clock.h"
#include "metrics/metrics.h"
#include "store/lone.h"
#include "template/template.h"
#include "utils/builtins.h"
#include "wake/wakeup.h"
#include "wake/low_water.h"

/* An empty object. */
static Jsonb *
no_steps(void)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* What is sent, with its templates filled in; NULL: they cannot be, and SQL says why. */
static Jsonb *
compose(const SasLoneCall *lone, char *key)
{
	SasTemplateRoot root = {0};
	SasTemplateProblem problem;
	Jsonb	   *request;

	root.input = lone->input;
	root.reads = lone->call->reads;
	root.members = lone->call->members;
	root.key = cstring_to_text(key);
	root.run_id = lone->id.run_id;
	root.run_key = lone->run_key;
	root.labels = lone->labels;
	root.created_at = lone->created_at;
	root.deadline = lone->deadline;
	root.steps = no_steps();
	return sas_template_render_request(lone->call->request, sas_template_root(&root), &request, &problem) ? request : NULL;
}

static void
tell(int lane, const SasLoneCall *lone)
{
	sas_wake_due_at_commit(lone->complete_by);
	sas_metrics_add_at_commit(SAS_METRIC_STEP_WAIT, lane, 0, "", 1, Max(0, (sas_clock_now() - lone->ready_at) / 1e6));
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "step none running", 1, -1);
	if (lone->begins)
		sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "run pending running", 1, -1);
}

/* False, and nothing has happened: SQL has to look. */
static bool
claim_lone(int lane, List **claimed)
{
	/* before the snapshot that looks */
	TimestampTz mark = sas_wake_low_water_begin(SAS_LOW_WATER_LANE, lane);
	SasLoneCall lone;
	SasLone		found = sas_store_find_lone(lane, mark, &lone);
	SasClaimedCall *c;

	if (found == SAS_LONE_NOTHING)
		sas_wake_low_water_raise(SAS_LOW_WATER_LANE, lane, DT_NOEND);
	if (found != SAS_LONE_FOUND)
		return found == SAS_LONE_NOTHING;
	c = palloc0(sizeof(SasClaimedCall));
	c->idempotency_key = sas_template_step_key(&lone.trace, lone.call->name, 0, false);
	c->request = compose(&lone, c->idempotency_key);
	if (c->request == NULL)
	{
		sas_store_leave_lone();
		return false;
	}
	if (!sas_store_take_lone(&lone))
		return false;
	sas_wake_low_water_raise(SAS_LOW_WATER_LANE, lane, lone.rank);
	tell(lane, &lone);
	c->id = lone.id;
	c->lease_id = lone.lease_id;
	c->agent_id = lane;
	c->step = lone.call->name;
	c->window_ms = lone.window_ms;
	c->trace = lone.trace;
	c->policy = lone.call->policy;
	c->workflow_id = lone.call->workflow_id;
	*claimed = list_make1(c);
	return true;
}

List *
sas_agent_claim(const int *lanes, const int *quantities, int n, bool plainly)
{
	/* what ended in an error is for SQL the next time, which takes apart what cannot be claimed together */
	static bool broke_off = false;
	List	   *claimed = NIL;
	bool		done = false;

	if (plainly && n == 1 && !broke_off)
	{
		MemoryContext old = MemoryContextSwitchTo(sas_store_results);

		broke_off = true;
		done = claim_lone(lanes[0], &claimed);
		MemoryContextSwitchTo(old);
	}
	broke_off = false;
	return done ? claimed : sas_store_claim_calls(lanes, quantities, n);
}
