/* SPDX-License-Identifier: PostgreSQL */
/*
 * call.c: the middle of a transaction of the machine (machine.c): which of a
 * group are called, and what that has come to.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "function/batch_size.h"
#include "function/work.h"
#include "miscadmin.h"

/* one after the other may take this long in one transaction; the others come after those of other owners */
#define CALL_GROUP_US 100000
/* and leave so much behind: to write that takes time, too */
#define CALL_GROUP_BYTES (1024 * 1024)
/* a function that does not listen when it is cancelled has this long after complete-by; then its worker is ended */
#define CALL_CANCEL_GRACE_US 500000

/* When the function is cancelled: a little early, because a reply after complete-by would not count. */
static int64
call_cancel_at_us(const SasFunctionWork *w)
{
	return w->deadline_us - Min(250, (int64) w->window_ms / 10) * 1000;
}

/* What a function of an earlier transaction left is in memory that is gone. */
void
sas_function_clear(SasFunctionWork *w)
{
	memset(&w->invoked, 0, sizeof(w->invoked));
	w->fate = SAS_FATE_OPEN;
	w->late = false;
	w->started_at = 0;
}

/* Was the function cancelled for another reason than its time? Then what it has come to is decided. */
static bool
call_judge_cancel(SasFunctionWork *w)
{
	SasInterrupted interrupted = w->late ? SAS_INTERRUPTED_NOT : sas_base_peers_interrupted(w->task);

	if (interrupted != SAS_INTERRUPTED_NOT)
	{
		/* the claim was revoked; or a cancel was meant for a function that had just ended, and this one is called again */
		if (interrupted == SAS_INTERRUPTED_MEANT)
			w->fate = SAS_FATE_LOST;
		w->solo = true;
		return true;
	}
	if (!sas_base_stopping)
		return false;
	/* its writes are gone: as if it had not been called */
	w->fate = SAS_FATE_BACK;
	w->started_at = 0;
	return true;
}

static void
call_judge(SasFunctionWork *w, bool in_company)
{
	w->late = w->aborts.problem != NULL || call_cancel_at_us(w) <= sas_base_clock_monotonic_us();
	if (!w->invoked.ok && w->invoked.sqlstate == ERRCODE_QUERY_CANCELED && call_judge_cancel(w))
		return;
	if (!w->invoked.ok && in_company)
		w->solo = true;
	else
		w->fate = SAS_FATE_DONE;
}

/* Does one work; true when it was slow. */
static bool
call_work(SasFunctionWork *w, bool in_company)
{
	int64		begun = sas_base_clock_monotonic_us();
	int64		left_ms = (call_cancel_at_us(w) - begun + 999) / 1000;
	int64		spent;

	w->started_at = sas_base_clock_now();
	if (w->aborts.problem != NULL || w->problem != NULL)
	{
		/* what has aborted: memory that was lacking may be there in the next window */
		w->invoked.error = w->aborts.problem != NULL ? w->aborts.problem : w->problem;
		w->invoked.transient = w->aborts.problem != NULL;
		in_company = false;
	}
	else
	{
		sas_base_peers_begin_invocation(w->task, w->deadline_us + CALL_CANCEL_GRACE_US);
		if (w->function != NULL)
			sas_function_note_begin(w->function);
		w->kind->call(w, Max(1, left_ms));
		sas_base_peers_end_invocation();
		if (w->function != NULL)
			sas_function_note_time(w->function, sas_base_clock_monotonic_us() - begun);
	}
	sas_base_peers_set_unwritten(true);
	w->arrived_at = sas_base_clock_now();
	call_judge(w, in_company);
	spent = sas_base_clock_monotonic_us() - begun;
	if (w->started_at != 0 && w->kind->called)
		w->kind->called(w, spent);
	return sas_function_is_slow(spent);
}

static Size
call_bytes(const SasFunctionWork *w)
{
	return (w->invoked.output != NULL ? VARSIZE(w->invoked.output) : 0) + (w->invoked.error != NULL ? VARSIZE(w->invoked.error) : 0);
}

/* Does those whose claims are valid; true when the last one was slow. */
bool
sas_function_call_group(SasFunctionWork **group, int n)
{
	SasFunctionWork *first = group[0];
	int64		until_us = 0;	/* 0: none is called yet */
	Size		bytes = 0;
	bool		was_slow = false;
	bool		may_call;

	for (int i = 0; i < n; i++)
		sas_function_clear(group[i]);
	first->kind->check(group, n);
	may_call = sas_base_peers_enter_owner(first->owner, sas_function_workers_of(first->owner));
	for (int i = 0; i < n; i++)
	{
		SasFunctionWork *w = group[i];
		int64		left_us = w->deadline_us - sas_base_clock_monotonic_us();

		if (w->fate != SAS_FATE_OPEN)
			continue;
		/* not begun: for another worker, or another transaction, with a new window */
		if (was_slow || bytes > CALL_GROUP_BYTES || (until_us != 0 && sas_base_clock_monotonic_us() > until_us) || !may_call || sas_base_stopping || (w->aborts.problem == NULL && left_us < w->window_ms * 500))
			w->fate = SAS_FATE_BACK;
		else
		{
			if (until_us == 0)
				until_us = sas_base_clock_monotonic_us() + CALL_GROUP_US;
			was_slow = call_work(w, n > 1);
			bytes += call_bytes(w);
		}
	}
	return was_slow;
}

Jsonb *
sas_function_error(const SasFunctionWork *w)
{
	return w->fate == SAS_FATE_DONE && !w->invoked.ok ? w->invoked.error : NULL;
}
