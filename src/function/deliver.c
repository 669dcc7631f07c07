/* SPDX-License-Identifier: PostgreSQL */
/*
 * deliver.c: delivers items of infinite tasks to their targets.
 *
 * It works as for steps.  Inboxes are claimed durably first, up to a batch
 * of them.  A second transaction checks that the claims are valid, and for
 * those of one owner calls or writes to each target in a subtransaction.  No
 * row of sas is locked meanwhile: verbs, hosts and other workers go on.  Then
 * the claims are locked and checked again, and what the targets got commits
 * together with the progress of the tasks.  Where a claim is lost by then, or
 * another transaction holds its row, all of it is undone, and each of the
 * group is delivered by itself.  A failure beside others is tried alone before
 * it counts.
 */
#include "postgres.h"

#include "base/clock.h"
#include "function/give_up.h"
#include "function/repeat.h"
#include "store/items.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/late.h"

#define SAS_DELIVER_BATCH 50
#define SAS_DELIVER_SLOW_MS 50
/* a claim whose row another transaction holds is tried again after this, which doubles while it stays locked */
#define SAS_DELIVER_LOCKED_US 20000
#define SAS_DELIVER_LOCKED_MAX_US 1000000

/* An inbox that this worker has claimed. */
typedef struct DeliverClaim
{
	SasClaimedItems *items;
	int64		deadline_us;
	int64		not_before_us;	/* its row was locked; 0: it was not */
	int64		pause_us;
	bool		solo;			/* delivered by itself */
	SasAborts	aborts;
} DeliverClaim;

static MemoryContext deliver_context;
static List *deliver_claimed = NIL; /* of DeliverClaim, in deliver_context */
static int	deliver_quantity = SAS_DELIVER_BATCH;
static bool deliver_scan = true;
static uint32 deliver_wake_count; /* count of wake-ups for items at the last scan */
static uint32 deliver_nudges;	/* count of nudges likewise */
static DeliverClaim *deliver_group[SAS_DELIVER_BATCH]; /* of the transaction that is open or has aborted */
static int	deliver_n_group;

void
sas_function_deliver_open(void)
{
	deliver_context = AllocSetContextCreate(CurrentMemoryContext, "sas items", ALLOCSET_DEFAULT_SIZES);
}

/* After the commit of a claim. */
static void
deliver_take(List *found, int64 claimed_us)
{
	MemoryContext old = MemoryContextSwitchTo(deliver_context);
	ListCell   *lc;

	foreach(lc, found)
	{
		DeliverClaim *c = palloc0(sizeof(DeliverClaim));

		c->items = lfirst(lc);
		c->deadline_us = claimed_us + (int64) (c->items->window_ms * 1000);
		c->solo = c->items->isolated;
		deliver_claimed = lappend(deliver_claimed, c);
	}
	MemoryContextSwitchTo(old);
	deliver_scan = found != NIL;
	if (found == NIL)
		return;
	if (list_length(found) >= deliver_quantity)
	{
		/* there may be more, for other workers too */
		sas_wake_count_items();
		sas_wake_others(SAS_FUNCTION);
	}
	deliver_quantity = Min(SAS_DELIVER_BATCH, deliver_quantity * 2);
}

/* Those of one owner, or one that is delivered alone; none while all that is claimed is locked. */
static int
deliver_choose(void)
{
	int64		now = sas_base_clock_monotonic_us();
	ListCell   *lc;

	deliver_n_group = 0;
	foreach(lc, deliver_claimed)
	{
		DeliverClaim *c = lfirst(lc);

		if (c->not_before_us > now || deliver_n_group == SAS_DELIVER_BATCH ||
			(deliver_n_group > 0 && (deliver_group[0]->solo || c->solo || c->items->owner != deliver_group[0]->items->owner)))
			continue;
		deliver_group[deliver_n_group++] = c;
	}
	return deliver_n_group;
}

/* Delivers those whose claim is valid; true when it took long: the rest is given back. */
static bool
deliver_call_group(SasItemsDone *done)
{
	SasClaimedItems **items = palloc(sizeof(SasClaimedItems *) * deliver_n_group);
	bool	   *valid;
	bool		was_slow = false;

	for (int i = 0; i < deliver_n_group; i++)
		items[i] = deliver_group[i]->items;
	valid = sas_store_valid_items(items, deliver_n_group);
	for (int i = 0; i < deliver_n_group; i++)
	{
		SasClaimedItems *c = items[i];
		SasItemsDone *d = &done[i];
		SasInvoked	invoked;
		int64		begun = sas_base_clock_monotonic_us();
		int64		left_ms = (deliver_group[i]->deadline_us - begun) / 1000;

		d->items = c;
		d->error = deliver_group[i]->aborts.problem != NULL ? deliver_group[i]->aborts.problem : c->problem;
		d->again = d->error == NULL && (!valid[i] || was_slow || sas_base_stopping || left_ms < c->window_ms / 2);
		if (d->again || d->error != NULL || c->up_to == 0)
			continue;
		d->worked = true;
		sas_work_invoke_items(c, Max(1, left_ms - Min(250, (int64) c->window_ms / 10)), &invoked);
		was_slow = sas_base_clock_monotonic_us() - begun > SAS_DELIVER_SLOW_MS * 1000;
		if (invoked.ok)
			continue;
		d->worked = false;
		if (deliver_n_group > 1 || (sas_base_stopping && invoked.sqlstate == ERRCODE_QUERY_CANCELED))
			d->again = true;
		else
			d->error = invoked.error;
	}
	return was_slow;
}

static void
deliver_log_failures(const SasItemsDone *done, int n_done)
{
	for (int i = 0; i < n_done; i++)
		if (done[i].error != NULL && done[i].claim == 'h')
			sas_work_failure_log(psprintf("delivery of watch \"%s\" of watcher \"%s\"", done[i].items->key, done[i].items->watcher),
								 done[i].error);
}

static void
deliver_forget(DeliverClaim *c)
{
	deliver_claimed = list_delete_ptr(deliver_claimed, c);
	if (deliver_claimed == NIL)
		MemoryContextReset(deliver_context);
}

/*
 * After the commit: all of the group but those that are locked leave.  Where
 * the targets were undone, only those whose claim is lost do.
 */
static void
deliver_settle_group(const SasItemsDone *done, bool kept)
{
	for (int i = 0; i < deliver_n_group; i++)
	{
		DeliverClaim *c = deliver_group[i];

		if (done[i].claim == 'x' || (done[i].claim == 'h' && kept))
		{
			deliver_forget(c);
			continue;
		}
		c->solo = true;
		if (done[i].claim == 'h')
			continue;
		c->pause_us = c->pause_us == 0 ? SAS_DELIVER_LOCKED_US : Min(c->pause_us * 2, SAS_DELIVER_LOCKED_MAX_US);
		c->not_before_us = sas_base_clock_monotonic_us() + c->pause_us;
	}
	deliver_n_group = 0;
}

/* One transaction. False: the extension is gone. */
static bool
deliver_run_group(void)
{
	SasItemsDone *done = palloc0(sizeof(SasItemsDone) * deliver_n_group);
	SasPart		part;
	int			n = deliver_n_group;
	bool		was_slow;
	bool		kept;

	/* an error in this is not theirs: they are chosen again */
	deliver_n_group = 0;
	sas_work_change_owner(deliver_group[0]->items->owner);
	deliver_n_group = n;
	if (!sas_store_begin())
		return false;
	sas_store_begin_part(&part);
	was_slow = deliver_call_group(done);
	kept = sas_store_write_items(done, deliver_n_group);
	sas_store_end_part(&part, kept);
	if (kept)
		deliver_log_failures(done, deliver_n_group);
	sas_store_commit();
	deliver_settle_group(done, kept);
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

/* The last transaction aborted: each inbox is delivered alone, and fails in the end. */
static void
deliver_after_abort(void)
{
	for (int i = 0; i < deliver_n_group; i++)
	{
		DeliverClaim *c = deliver_group[i];

		c->solo = true;
		if (sas_function_count_abort(&c->aborts, c->deadline_us, c->items->window_ms,
									 psprintf("/watches/" INT64_FORMAT, c->items->watch_id), deliver_context))
			continue;
		ereport(WARNING,
				(errmsg("worker gives up items of task \"%s\" of watcher \"%s\"", c->items->key, c->items->watcher),
				 errdetail("They are delivered again when the claim has expired.")));
		deliver_forget(c);
	}
	deliver_n_group = 0;
}

int64
sas_function_deliver_wake_in_ms(void)
{
	int64		first_us = 0;
	ListCell   *lc;

	foreach(lc, deliver_claimed)
	{
		DeliverClaim *c = lfirst(lc);

		first_us = first_us == 0 ? c->not_before_us : Min(first_us, c->not_before_us);
	}
	return first_us == 0 ? -1 : Max(0, (first_us - sas_base_clock_monotonic_us() + 999) / 1000);
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

	if (deliver_n_group > 0)
		deliver_after_abort();
	if (deliver_choose() > 0)
		return deliver_run_group();
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
	found = sas_store_claim_items(deliver_context, deliver_quantity);
	sas_store_commit();
	deliver_take(found, claimed_us);
	return found != NIL;
}
