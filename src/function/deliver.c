/* SPDX-License-Identifier: PostgreSQL */
/*
 * deliver.c: delivers items of infinite tasks to their targets.
 *
 * It works as for steps.  Inboxes are claimed durably first, up to a batch
 * of them.  A second transaction checks that the claims are still valid.  For
 * those of one owner, it calls or writes to each target in a subtransaction;
 * what that wrote commits together with the progress of the tasks.  A
 * failure beside others is tried alone before it counts.
 */
#include "postgres.h"

#include "base/clock.h"
#include "function/repeat.h"
#include "store/items.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/late.h"

#define SAS_DELIVER_BATCH 50
#define SAS_DELIVER_SLOW_MS 50
/* a claim whose row is locked by another worker's look is tried again after this */
#define SAS_DELIVER_LOCKED_US 20000
/* transactions that may abort with an inbox before it is left to its time */
#define SAS_DELIVER_GIVE_UP 5

static MemoryContext deliver_context;
static List *deliver_claimed = NIL; /* of SasClaimedItems, in deliver_context */
static int64 deliver_deadline_us;
static int64 deliver_not_before_us; /* the row of a claim was locked */
static int	deliver_quantity = SAS_DELIVER_BATCH;
static bool deliver_scan = true;
static uint32 deliver_wake_count; /* count of wake-ups for items at the last scan */
static uint32 deliver_nudges;	/* count of nudges likewise */
static int	deliver_aborted;	/* transactions, in a row */
static SasClaimedItems *deliver_group[SAS_DELIVER_BATCH]; /* of the transaction that is open or has aborted */
static bool deliver_locked[SAS_DELIVER_BATCH]; /* of that group: left for another try */
static int	deliver_n_group;

void
sas_function_deliver_open(void)
{
	deliver_context = AllocSetContextCreate(CurrentMemoryContext, "sas items", ALLOCSET_DEFAULT_SIZES);
}

/* In a transaction. */
static List *
deliver_claim(void)
{
	MemoryContext old;
	List	   *found;

	found = sas_store_claim_items(deliver_context, deliver_quantity);
	if (found == NIL)
		return NIL;
	old = MemoryContextSwitchTo(deliver_context);
	found = list_copy(found);
	MemoryContextSwitchTo(old);
	return found;
}

/* After the commit of a claim. */
static void
deliver_take(List *found, int64 claimed_us)
{
	deliver_claimed = found;
	deliver_scan = found != NIL;
	if (found == NIL)
		return;
	deliver_deadline_us = claimed_us + (int64) (((SasClaimedItems *) linitial(found))->window_ms * 1000);
	if (list_length(found) >= deliver_quantity)
	{
		/* there may be more, for other workers too */
		sas_wake_count_items();
		sas_wake_others(SAS_FUNCTION);
	}
	deliver_quantity = Min(SAS_DELIVER_BATCH, deliver_quantity * 2);
}

/* Those of one owner, or one that is delivered alone. */
static void
deliver_choose(void)
{
	ListCell   *lc;

	deliver_n_group = 0;
	foreach(lc, deliver_claimed)
	{
		SasClaimedItems *c = lfirst(lc);

		if (deliver_n_group > 0 && (deliver_aborted > 0 || deliver_group[0]->isolated || c->isolated || c->owner != deliver_group[0]->owner))
			continue;
		deliver_group[deliver_n_group++] = c;
	}
}

/* Delivers those whose claim is valid; true when it took long: the rest is given back. */
static bool
deliver_call_group(SasItemsDone *done, int *n_done)
{
	char	   *valid = sas_store_lock_items(deliver_group, deliver_n_group);
	bool		was_slow = false;

	for (int i = 0; i < deliver_n_group; i++)
	{
		SasClaimedItems *c = deliver_group[i];
		SasItemsDone *d;
		SasInvoked	invoked;
		int64		begun = sas_base_clock_monotonic_us();
		int64		left_ms = (deliver_deadline_us - begun) / 1000;

		deliver_locked[i] = valid[i] == 'l' && left_ms > 0;
		if (valid[i] != 'h')
			continue;
		d = &done[(*n_done)++];
		d->items = c;
		d->error = c->problem;
		d->again = d->error == NULL && (was_slow || sas_base_stopping || left_ms < c->window_ms / 2);
		if (d->again || d->error != NULL || c->up_to == 0)
			continue;
		sas_work_invoke_items(c, Max(1, left_ms - Min(250, (int64) c->window_ms / 10)), &invoked);
		was_slow = sas_base_clock_monotonic_us() - begun > SAS_DELIVER_SLOW_MS * 1000;
		if (!invoked.ok && (deliver_n_group > 1 || (sas_base_stopping && invoked.sqlstate == ERRCODE_QUERY_CANCELED)))
			d->again = true;
		else if (!invoked.ok)
			d->error = invoked.error;
	}
	return was_slow;
}

static void
deliver_log_failures(const SasItemsDone *done, int n_done)
{
	for (int i = 0; i < n_done; i++)
		if (done[i].error != NULL)
			sas_work_failure_log(psprintf("delivery of watch \"%s\" of watcher \"%s\"", done[i].items->key, done[i].items->watcher),
								 done[i].error);
}

/* All of the group but those that are locked: they are tried again in a moment. */
static void
deliver_forget_group(void)
{
	deliver_not_before_us = 0;
	for (int i = 0; i < deliver_n_group; i++)
		if (deliver_locked[i])
			deliver_not_before_us = sas_base_clock_monotonic_us() + SAS_DELIVER_LOCKED_US;
		else
			deliver_claimed = list_delete_ptr(deliver_claimed, deliver_group[i]);
	deliver_n_group = 0;
	if (deliver_claimed == NIL)
		MemoryContextReset(deliver_context);
}

/* One transaction. False: the extension is gone. */
static bool
deliver_run_group(void)
{
	SasItemsDone *done = palloc0(sizeof(SasItemsDone) * deliver_n_group);
	int			n_done = 0;
	bool		was_slow;

	if (!sas_store_begin())
		return false;
	was_slow = deliver_call_group(done, &n_done);
	if (n_done > 0)
		sas_store_finish_items(done, n_done);
	deliver_log_failures(done, n_done);
	sas_store_commit();
	deliver_aborted = 0;
	deliver_forget_group();
	/*
	 * Items that came meanwhile were not claimed by other workers, because
	 * this claim blocked them.  This worker scans only when it is idle,
	 * which may be long after.
	 */
	sas_wake_count_items();
	sas_wake_others(SAS_FUNCTION);
	if (was_slow)
		deliver_quantity = 1;
	return true;
}

/* The last transaction aborted: each inbox is delivered alone, and given up in the end. */
static void
deliver_after_abort(void)
{
	if (!sas_base_tick_cancelled)
		deliver_aborted++;
	if (deliver_aborted >= SAS_DELIVER_GIVE_UP && deliver_n_group == 1)
	{
		ereport(WARNING,
				(errmsg("worker gives up items of task \"%s\" of watcher \"%s\"", deliver_group[0]->key, deliver_group[0]->watcher),
				 errdetail("They are delivered again when the claim has expired.")));
		deliver_locked[0] = false;
		deliver_forget_group();
		deliver_aborted = 0;
	}
	deliver_n_group = 0;
}

int64
sas_function_deliver_wake_in_ms(void)
{
	if (deliver_claimed == NIL || deliver_not_before_us == 0)
		return -1;
	return Max(0, (deliver_not_before_us - sas_base_clock_monotonic_us() + 999) / 1000);
}

static uint32
deliver_count(int n)
{
	return sas_wake_items_count();
}

bool
sas_function_deliver_tick(void)
{
	List	   *found;
	int64		claimed_us;
	uint32		wake_count;
	uint32		nudges;
	int			n;

	if (deliver_n_group > 0)
		deliver_after_abort();
	if (deliver_claimed != NIL)
	{
		if (deliver_not_before_us > sas_base_clock_monotonic_us())
			return false;
		deliver_choose();
		/* an error in this is not theirs: they are chosen again */
		n = deliver_n_group;
		deliver_n_group = 0;
		sas_work_change_owner(deliver_group[0]->owner);
		deliver_n_group = n;
		return deliver_run_group();
	}
	if (sas_base_leaving)
		return false;
	/* read before the scan, which then sees the items that were counted */
	wake_count = sas_wake_items_count();
	if (deliver_wake_count != wake_count)
		deliver_scan = true;
	deliver_wake_count = wake_count;
	nudges = sas_wake_items_nudges();
	if (!deliver_scan && deliver_nudges != nudges)
	{
		sas_work_late_look(SAS_LATE_ITEMS, 0, deliver_count, wake_count, DT_NOEND);
		deliver_scan = true;
	}
	deliver_nudges = nudges;
	if (!deliver_scan)
		return false;
	claimed_us = sas_base_clock_monotonic_us();
	if (!sas_store_begin())
		return false;
	found = deliver_claim();
	sas_store_commit();
	deliver_take(found, claimed_us);
	return found != NIL;
}
