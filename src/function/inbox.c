/* SPDX-License-Identifier: PostgreSQL */
/*
 * inbox.c: items of infinite tasks go to their targets: a function, a table or
 * a workflow.
 *
 * The inbox of a task is claimed as a whole.  What the target got commits
 * together with the progress of the task.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "work/turns.h"
#include "function/work.h"
#include "store/items.h"
#include "template/budget.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/late.h"

#define SAS_INBOX_BATCH 50
#define SAS_INBOX_US 100000		/* of evaluations, in one claim */

/* An inbox that this worker has claimed. */
typedef struct Inbox
{
	SasFunctionWork work;
	SasClaimedItems *claimed;
} Inbox;

static int	inbox_quantity = SAS_INBOX_BATCH;
static bool inbox_scan = true;
static int64 inbox_spent_us;	/* what the evaluations of the last claim took */
static uint32 inbox_wake_count; /* count of wake-ups for items at the last scan */
static uint32 inbox_nudges;		/* count of nudges likewise */

static uint32
inbox_count(int n)
{
	return sas_wake_items_count();
}

static bool
inbox_looks(void)
{
	/* read before the scan, which then sees the items that were counted */
	uint32		wake_count = sas_wake_items_count();
	uint32		nudges = sas_wake_items_nudges();

	if (inbox_wake_count != wake_count)
		inbox_scan = true;
	inbox_wake_count = wake_count;
	if (!inbox_scan && inbox_nudges != nudges)
	{
		sas_work_late_look(SAS_LATE_ITEMS, 0, inbox_count, wake_count, DT_NOEND);
		inbox_scan = true;
	}
	inbox_nudges = nudges;
	return inbox_scan;
}

static List *
inbox_claim(void)
{
	SasFunctionBatch *batch = sas_function_batch_open();
	int64		claimed_us = sas_base_clock_monotonic_us();
	int64		before_us = sas_template_budget_us();
	List	   *found = sas_store_claim_items(batch->context, inbox_quantity);
	List	   *works = NIL;
	ListCell   *lc;

	inbox_spent_us = sas_template_budget_us() - before_us;
	if (found == NIL)
		MemoryContextDelete(batch->context);
	foreach(lc, found)
	{
		SasClaimedItems *c = lfirst(lc);
		MemoryContext old = MemoryContextSwitchTo(batch->context);
		Inbox	   *in = sas_function_work_new(&sas_function_items, batch, sizeof(Inbox), c->owner, c->window_ms);

		in->claimed = c;
		in->work.task = sas_base_peers_step(c->request_id.data);
		in->work.instance = psprintf("/watches/" INT64_FORMAT, c->watch_id);
		in->work.function = c->target;
		in->work.deadline_us = claimed_us + (int64) (c->window_ms * 1000);
		in->work.solo = c->isolated;
		in->work.problem = c->problem;
		works = lappend(works, in);
		MemoryContextSwitchTo(old);
	}
	return works;
}

/* Items that came meanwhile were not claimed by other workers, because a claim of this one blocked them. */
static void
inbox_tell_others(void)
{
	sas_wake_count_items();
	sas_work_late_counted(SAS_LATE_ITEMS);
	sas_wake_others(SAS_FUNCTION);
}

static bool
inbox_claimed(int n)
{
	if (n == 0 && sas_work_turns_open())
		return false;
	inbox_scan = n > 0;
	if (n == 0)
		return false;
	/* there may be more, for other workers too */
	if (n >= inbox_quantity)
		inbox_tell_others();
	inbox_quantity = Min(SAS_INBOX_BATCH, inbox_quantity * 2);
	/* so many that owners take turns */
	if (inbox_spent_us > SAS_INBOX_US)
		inbox_quantity = Max(1, Min(inbox_quantity, SAS_INBOX_US * n / inbox_spent_us));
	return true;
}

static void
inbox_check(SasFunctionWork **group, int n)
{
	SasClaimedItems **items = palloc(sizeof(SasClaimedItems *) * n);
	bool	   *valid;

	for (int i = 0; i < n; i++)
		items[i] = ((Inbox *) group[i])->claimed;
	valid = sas_store_valid_items(items, n);
	for (int i = 0; i < n; i++)
	{
		if (!valid[i])
			group[i]->fate = SAS_FATE_BACK;
		else if (items[i]->up_to == 0 && items[i]->problem == NULL)
		{
			/* the inbox is empty */
			group[i]->fate = SAS_FATE_DONE;
			group[i]->invoked.ok = true;
		}
	}
}

static void
inbox_call(SasFunctionWork *w, int64 timeout_ms)
{
	sas_work_invoke_items(((Inbox *) w)->claimed, timeout_ms, &w->invoked);
}

static void
inbox_log_failure(const SasItemsDone *done)
{
	if (done->error != NULL && done->claim == 'h')
		sas_work_failure_log(psprintf("delivery of watch \"%s\" of watcher \"%s\"", done->items->key, done->items->watcher), done->error);
}

static bool
inbox_write(SasFunctionWork **group, int n)
{
	SasItemsDone *done = palloc0(sizeof(SasItemsDone) * n);
	bool		kept;

	for (int i = 0; i < n; i++)
	{
		done[i].items = ((Inbox *) group[i])->claimed;
		done[i].error = sas_function_error(group[i]);
		done[i].again = group[i]->fate != SAS_FATE_DONE;
		done[i].worked = group[i]->started_at != 0 && group[i]->fate == SAS_FATE_DONE && group[i]->invoked.ok;
	}
	kept = sas_store_write_items(done, n);
	for (int i = 0; i < n; i++)
	{
		if (kept)
			inbox_log_failure(&done[i]);
		if (done[i].claim == 'l')
			group[i]->fate = SAS_FATE_LOCKED;
		else if (done[i].claim == 'x')
			group[i]->fate = SAS_FATE_LOST;
		else if (group[i]->fate == SAS_FATE_OPEN)
			group[i]->fate = SAS_FATE_BACK;	/* that is written; it comes again, by itself */
	}
	return kept;
}

static void
inbox_leave(SasFunctionWork *w)
{
}

static void
inbox_written(int64 spent_us, int n, bool was_slow)
{
	/* this worker scans only when it is idle, which may be long after */
	inbox_tell_others();
	if (was_slow)
		inbox_quantity = 1;
}

SasFunctionKind sas_function_items = {
	.most = SAS_INBOX_BATCH,
	.looks = inbox_looks,
	.claim = inbox_claim,
	.claimed = inbox_claimed,
	.check = inbox_check,
	.call = inbox_call,
	.write = inbox_write,
	.leave = inbox_leave,
	.written = inbox_written,
};
