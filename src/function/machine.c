/* SPDX-License-Identifier: PostgreSQL */
/*
 * machine.c: the one machine that carries out what a function worker has
 * claimed, whatever kind of work it is (work.h).
 *
 * Work is claimed durably first, in a transaction of its own.  A second
 * transaction does what was claimed for one owner, each in a subtransaction:
 *
 *	  the session is wiped, where another owner's code ran in it before
 *	  check		which claims are valid, and what is called with what
 *	  call		code of users, as the owner, within its time
 *	  write		the claims are locked and checked again, and what became
 *				of them is written
 *
 * No row of sas is locked while code of users runs: functions of one run run
 * beside each other, on as many workers as there are, and others go on with
 * the run.  What the functions wrote commits together with what is written of
 * them.  Where a claim is over by then, or another transaction holds its row,
 * all of it is rolled back, and each of the group is done by itself after a
 * moment.
 *
 *	- Much that is short shares a commit.  What is slow (batch_size.h) ends the
 *	  group: it is committed, the rest is given back to other workers.  What was
 *	  slow last time, or is not known, is done alone, and all else that is
 *	  claimed, of any kind, is given back before: it must not wait for it.
 *	- A failure beside others is tried alone before it counts, since a function
 *	  that ran earlier in the transaction might be the cause.
 *	- A function is cancelled a little before its time is over, so that its
 *	  failure still counts, and when its claim is revoked.  The supervisor ends
 *	  the worker of one that ignores the cancel.
 *	- Owners take turns with the time of the worker (turns.h): a tick serves the
 *	  others first, and those who had much when there are none.
 *	- An owner whose functions run on as many workers as they may gets its work
 *	  done when one of these is through.
 *
 * A worker that is asked to end cancels its function, which is rolled back,
 * commits those before it, and gives back all else: nothing is counted.  When
 * the worker or the server dies, the second transaction is gone as a whole,
 * and the claim is found.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/peers.h"
#include "base/settings.h"
#include "function/batch_size.h"
#include "function/machine.h"
#include "work/turns.h"
#include "store/store.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"

/* what was undone, or is locked, is done again after this, which doubles */
#define MACHINE_PAUSE_US 20000
#define MACHINE_PAUSE_MAX_US 1000000

MemoryContext sas_function_context;

static SasFunctionKind *const *machine_kinds;
static int	machine_n_kinds;
static SasFunctionWork **machine_group; /* of the transaction that is open or has aborted; all of one kind */
static int	machine_n_group;
static int64 machine_begun_us;	/* of the last one */
static bool machine_has_run;	/* a group, in this pass */

void
sas_function_machine_open(void)
{
	sas_function_context = AllocSetContextCreate(CurrentMemoryContext, "sas functions", ALLOCSET_DEFAULT_SIZES);
	machine_group = MemoryContextAlloc(sas_function_context, sizeof(SasFunctionWork *) * SAS_FUNCTION_BATCH);
}

SasFunctionBatch *
sas_function_batch_open(void)
{
	/* it ends with the tick if its claim is not committed; machine_take() keeps it */
	MemoryContext context = AllocSetContextCreate(sas_store_results, "sas batch", ALLOCSET_SMALL_SIZES);
	SasFunctionBatch *batch = MemoryContextAllocZero(context, sizeof(SasFunctionBatch));

	batch->context = context;
	return batch;
}

void *
sas_function_work_new(SasFunctionKind *kind, SasFunctionBatch *batch, Size size, Oid owner, double window_ms)
{
	SasFunctionWork *w = MemoryContextAllocZero(batch->context, size);

	w->kind = kind;
	w->batch = batch;
	w->owner = owner;
	w->window_ms = window_ms;
	batch->left++;
	return w;
}

void
sas_function_add(SasFunctionWork *w)
{
	SasFunctionKind *kind = w->kind;

	kind->works = sas_base_grow(sas_function_context, kind->works, kind->n_works, &kind->room, sizeof(SasFunctionWork *));
	kind->works[kind->n_works++] = w;
}

/* ---------------------------------------------------------------- choosing */

static bool
machine_goes_alone(const SasFunctionWork *w)
{
	return w->solo || (w->function != NULL && !sas_function_was_fast(w->function));
}

/*
 * The next group: what may share a transaction, of one owner, or one that
 * goes alone; those that may share first. Not so tasks, which come one by one
 * and without end: one that goes alone would never have its turn.
 */
static int
machine_choose(const SasFunctionKind *kind)
{
	int64		now = sas_base_clock_monotonic_us();

	machine_n_group = 0;
	for (int pass = 0; pass < 2 && machine_n_group == 0; pass++)
		for (int i = 0; i < kind->n_works && machine_n_group < (pass == 0 ? kind->most : 1); i++)
		{
			SasFunctionWork *w = kind->works[i];

			if (w->not_before_us > now || (!kind->hosts && machine_goes_alone(w) != (pass == 1)) || sas_work_turns_owes(w->owner))
				continue;
			if (machine_n_group == 0 || w->owner == machine_group[0]->owner)
				machine_group[machine_n_group++] = w;
		}
	return machine_n_group;
}

/* ---------------------------------------------------------------- the end of a group */

static void
machine_leave(SasFunctionWork *w)
{
	SasFunctionBatch *batch = w->batch;

	if (w->kind->leave != NULL)
		w->kind->leave(w);
	if (batch != NULL && --batch->left == 0)
		MemoryContextDelete(batch->context);
}

/* It is done again, by itself, in a moment. */
static void
machine_put_off(SasFunctionWork *w)
{
	w->solo = true;
	w->pause_us = w->pause_us == 0 ? MACHINE_PAUSE_US : Min(w->pause_us * 2, MACHINE_PAUSE_MAX_US);
	w->not_before_us = sas_base_clock_monotonic_us() + w->pause_us;
}

/* After the transaction; not kept: it was rolled back. */
static void
machine_settle(bool kept)
{
	SasFunctionKind *kind = machine_group[0]->kind;
	int			n = machine_n_group;
	int			left = 0;

	machine_n_group = 0;
	sas_base_peers_set_unwritten(false);
	sas_base_peers_leave_owner();
	for (int i = 0; i < n; i++)
	{
		SasFunctionWork *w = machine_group[i];

		w->leaves = kept && w->fate != SAS_FATE_OPEN && w->fate != SAS_FATE_NEXT && w->fate != SAS_FATE_LOCKED;
		if (!kept || w->fate == SAS_FATE_LOCKED)
			machine_put_off(w);
	}
	for (int i = 0; i < kind->n_works; i++)
		if (!kind->works[i]->leaves)
			kind->works[left++] = kind->works[i];
	kind->n_works = left;
	for (int i = 0; i < n; i++)
		if (machine_group[i]->leaves)
		{
			machine_group[i]->leaves = false;
			machine_leave(machine_group[i]);
		}
}

/* The transaction of the last group aborted as a whole: each goes solo, and fails in the end. */
static void
machine_after_abort(void)
{
	SasFunctionKind *kind = machine_group[0]->kind;
	bool		overran = kind->overran != NULL && kind->overran() && machine_n_group > 1;

	sas_work_turns_charge(machine_group[0]->owner, sas_base_clock_monotonic_us() - machine_begun_us, true);
	for (int i = 0; i < machine_n_group; i++)
	{
		SasFunctionWork *w = machine_group[i];

		w->solo = true;
		w->fate = SAS_FATE_OPEN;
		if (overran || sas_function_count_abort(&w->aborts, w->deadline_us, w->window_ms, w->instance,
									 w->batch != NULL ? w->batch->context : sas_function_context))
			continue;
		w->fate = SAS_FATE_LOST;
		ereport(WARNING,
				(errmsg("worker gives up %s", w->instance),
				 errdetail("The supervisor takes it back after its complete-by.")));
	}
	machine_settle(true);
}

/* ---------------------------------------------------------------- giving back */

/* Gives back what is claimed, but for that one (NULL: all), a transaction for each kind.  False: the extension is gone. */
static bool
machine_give_back(const SasFunctionWork *alone)
{
	for (int k = 0; k < machine_n_kinds; k++)
	{
		SasFunctionKind *kind = machine_kinds[k];
		bool		kept;

		machine_n_group = 0;
		for (int i = 0; i < kind->n_works && machine_n_group < SAS_FUNCTION_BATCH; i++)
		{
			SasFunctionWork *w = kind->works[i];

			if (w == alone)
				continue;
			sas_function_clear(w);
			w->fate = SAS_FATE_BACK;
			machine_group[machine_n_group++] = w;
		}
		if (machine_n_group == 0)
			continue;
		if (!sas_store_begin())
			return false;
		kept = kind->write(machine_group, machine_n_group);
		Assert(kept);
		sas_store_commit();
		machine_settle(kept);
		if (kind->written)
			kind->written(0, 0, false);
	}
	return true;
}

/*
 * Before what goes alone: all else that is claimed is given back, if there
 * are other workers.  It would wait for this function otherwise, for as long
 * as that takes.  False: the extension is gone.
 */
static bool
machine_leave_rest(void)
{
	SasFunctionWork *alone = machine_group[0];

	if (machine_n_group > 1 || !machine_goes_alone(alone) || Max(sas_base_function_workers, sas_base_function_workers_max) < 2)
		return true;
	if (!machine_give_back(alone))
		return false;
	machine_group[0] = alone;
	machine_n_group = 1;
	return true;
}

/* ---------------------------------------------------------------- transactions */

/* After the commit: what was claimed counts. */
static bool
machine_take(SasFunctionKind *kind, List *claimed)
{
	ListCell   *lc;

	foreach(lc, claimed)
	{
		SasFunctionWork *w = lfirst(lc);

		if (w->batch != NULL)
			MemoryContextSetParent(w->batch->context, sas_function_context);
		sas_function_add(w);
	}
	return kind->claimed(list_length(claimed));
}

/* One transaction: claims, where there is a reason to look. True: there may be more. */
static bool
machine_claim(SasFunctionKind *kind)
{
	List	   *claimed;

	if (!kind->looks() || !sas_store_begin())
		return false;
	claimed = kind->claim();
	sas_store_commit();
	return machine_take(kind, claimed);
}

/* Will nothing that is claimed be left of this kind when this group is through? */
static bool
machine_is_last(const SasFunctionKind *kind)
{
	int			left = kind->n_works;

	/* not beside one that took a transaction down before: a claim must not cost what a function did */
	for (int i = 0; i < machine_n_group; i++)
	{
		if (machine_group[i]->aborts.tries > 0)
			return false;
		left -= machine_group[i]->fate != SAS_FATE_OPEN;
	}
	return left == 0 && !sas_base_leaving && !sas_base_stopping;
}

/* One transaction: what the group's functions write, and what became of them. True: it was made ready for the next one. */
static bool
machine_run_group(SasFunctionKind *kind)
{
	List	   *next = NIL;
	Oid			owner;
	int64		spent;
	int			n;
	int			n_done = 0;
	bool		was_slow;
	bool		solo;
	bool		kept;
	bool		along = false;
	bool		ready;

	if (!machine_leave_rest())
		return false;
	if (kind->hosts || machine_goes_alone(machine_group[0]))
		sas_wake_may_be_slow();
	else
		sas_wake_pass_on();
	machine_has_run = true;
	machine_begun_us = sas_base_clock_monotonic_us();
	/* an error in this is not theirs: they are chosen again */
	n = machine_n_group;
	machine_n_group = 0;
	if (OidIsValid(machine_group[0]->owner))
		sas_work_change_owner(machine_group[0]->owner);
	machine_n_group = n;
	if (!sas_store_begin())
		return false;
	was_slow = sas_function_call_group(machine_group, machine_n_group);
	kept = kind->write(machine_group, n);
	ready = kept && machine_group[0]->fate == SAS_FATE_NEXT;
	owner = machine_group[0]->owner;
	/* of such a one, what is written counts, too: its end may change thousands of steps that wait for it */
	solo = machine_group[0]->solo;
	for (int i = 0; i < n; i++)
		n_done += machine_group[i]->fate != SAS_FATE_BACK;
	spent = sas_base_clock_monotonic_us() - machine_begun_us;
	if (kept)
	{
		/* one commit for both */
		along = !was_slow && !sas_work_turns_open() && kind->claims_along && kind->claims_along() && machine_is_last(kind);
		if (along)
		{
			if (kind->written)
				kind->written(spent, n_done, was_slow);
			next = kind->claim();
		}
		sas_store_commit();
	}
	else
		sas_store_rollback();
	machine_settle(kept);
	sas_work_turns_charge(owner, spent, was_slow || kind->hosts || (solo && sas_function_is_slow(spent)));
	if (kind->written && !along)
		kind->written(spent, n_done, was_slow);
	if (along)
		(void) machine_take(kind, next);
	return ready;
}

/* ---------------------------------------------------------------- ticks */

/* Serves one kind. True: there may be more to do. */
static bool
machine_serve(SasFunctionKind *kind)
{
	bool		again = false;

	if (!sas_base_leaving && (kind->hosts || machine_choose(kind) == 0))
		again = machine_claim(kind);
	if (sas_base_retire)
		return false;
	if (kind->due && !sas_base_leaving)
		kind->due();
	if (machine_choose(kind) > 0)
	{
		while (machine_run_group(kind) && machine_choose(kind) > 0)
			;
		again |= kind->more == NULL || kind->more();
	}
	else if (sas_base_leaving && kind->release)
		kind->release();
	return again;
}

/* When what is claimed of this kind, or has come to be due, is to be done. */
static int64
machine_wake_in_ms(const SasFunctionKind *kind)
{
	int64		now = sas_base_clock_monotonic_us();
	int64		wake_in_ms = kind->wake_in_ms ? kind->wake_in_ms() : -1;

	for (int i = 0; i < kind->n_works; i++)
	{
		int64		in_ms = Max(0, (kind->works[i]->not_before_us - now + 999) / 1000);

		wake_in_ms = wake_in_ms < 0 ? in_ms : Min(wake_in_ms, in_ms);
	}
	return wake_in_ms;
}

/* Serves each kind. True: there may be more to do. */
static bool
machine_pass(void)
{
	bool		again = false;

	machine_has_run = false;
	for (int i = 0; i < machine_n_kinds && !sas_base_retire; i++)
		again |= machine_serve(machine_kinds[i]);
	return again;
}

/* Owners that let others go first have their turn when these have nothing. True: there may be more to do. */
static bool
machine_serve_all(void)
{
	if (sas_work_turns_begin())
	{
		(void) machine_pass();
		sas_work_turns_end(machine_has_run);
		if (machine_has_run)
			return true;
	}
	return machine_pass();
}

SasTick
sas_function_machine_tick(SasFunctionKind *const *kinds, int n)
{
	SasTick		next = {false, -1};

	machine_kinds = kinds;
	machine_n_kinds = n;
	sas_base_peers_end_invocation();
	if (machine_n_group > 0)
		machine_after_abort();
	if (sas_base_stopping && !machine_give_back(NULL))
		return next;
	next.again = machine_serve_all();
	for (int i = 0; i < n; i++)
	{
		int64		in_ms = machine_wake_in_ms(kinds[i]);

		next.again |= in_ms == 0;
		if (in_ms >= 0 && (next.wake_in_ms < 0 || in_ms < next.wake_in_ms))
			next.wake_in_ms = in_ms;
	}
	return next;
}

int
sas_function_machine_count(SasFunctionKind *const *kinds, int n)
{
	int			count = 0;

	for (int i = 0; i < n; i++)
		count += kinds[i]->n_works;
	return count;
}
