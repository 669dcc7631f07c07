/* SPDX-License-Identifier: PostgreSQL */
/*
 * claim.c: claims calls.
 *
 * Calls are claimed in batches, by SQL. A call that is the only one in its
 * lane is urgent, since its run waits for it: it is claimed, and its request
 * composed, without the interpreter.
 */
#include "postgres.h"

#include "agent/claim.h"
#include "base/clock.h"
#include "metrics/metrics.h"
#include "store/claim_one.h"
#include "template/template.h"
#include "utils/builtins.h"
#include "wake/low_water.h"
#include "wake/wakeup.h"
#include "work/late.h"

/* An empty object. */
static Jsonb *
claim_no_steps(void)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* The request with its templates filled in; NULL: a template cannot be filled in, and SQL reports why. */
static Jsonb *
claim_compose(const SasSingleCall *single, char *key)
{
	SasTemplateRoot root = {0};
	SasTemplateProblem problem;
	Jsonb	   *request;

	root.input = single->input;
	root.reads = single->call->reads;
	root.members = single->call->members;
	root.key = cstring_to_text(key);
	root.run_id = single->id.run_id;
	root.run_key = single->run_key;
	root.labels = single->labels;
	root.created_at = single->created_at;
	root.deadline = single->deadline;
	root.steps = claim_no_steps();
	return sas_template_render_request(single->call->request, sas_template_root(&root), &request, &problem) ? request : NULL;
}

static void
claim_report(int lane, const SasSingleCall *single)
{
	sas_wake_due_at_commit(single->complete_by);
	sas_metrics_add_at_commit(SAS_METRIC_STEP_WAIT, lane, 0, "", 1, Max(0, (sas_base_clock_now() - single->ready_at) / 1e6));
	sas_work_late_found(SAS_LATE_STEP, lane, NULL, single->ready_at);
	sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "step none running", 1, -1);
	if (single->begins)
		sas_metrics_add_at_commit(SAS_METRIC_TRANSITION, 0, 0, "run pending running", 1, -1);
}

/* False: nothing has happened, and SQL has to scan. */
static bool
claim_single(int lane, List **claimed)
{
	/* before the snapshot of the scan */
	TimestampTz mark = sas_wake_low_water_begin(SAS_LOW_WATER_LANE, lane);
	SasSingleCall single;
	SasClaimOne	found = sas_store_claim_one_find(lane, mark, &single);
	SasClaimedCall *c;

	if (found == SAS_CLAIM_ONE_NOTHING)
		sas_wake_low_water_raise(SAS_LOW_WATER_LANE, lane, DT_NOEND);
	if (found != SAS_CLAIM_ONE_FOUND)
		return found == SAS_CLAIM_ONE_NOTHING;
	c = palloc0(sizeof(SasClaimedCall));
	c->idempotency_key = sas_template_step_key(&single.trace, single.call->name, 0, false);
	c->request = claim_compose(&single, c->idempotency_key);
	if (c->request == NULL)
	{
		sas_store_claim_one_release();
		return false;
	}
	if (!sas_store_claim_one_take(&single))
		return false;
	sas_wake_low_water_raise(SAS_LOW_WATER_LANE, lane, single.rank);
	claim_report(lane, &single);
	c->id = single.id;
	c->lease_id = single.lease_id;
	c->agent_id = lane;
	c->step = single.call->name;
	c->window_ms = single.window_ms;
	c->trace = single.trace;
	c->policy = single.call->policy;
	c->workflow_id = single.call->workflow_id;
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
		done = claim_single(lanes[0], &claimed);
		MemoryContextSwitchTo(old);
	}
	broke_off = false;
	return done ? claimed : sas_store_claim_calls(lanes, quantities, n);
}
