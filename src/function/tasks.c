/* SPDX-License-Identifier: PostgreSQL */
/*
 * tasks.c: repeats functions for ever.
 *
 * An iteration of a task that the worker hosts (task_host.c) reads the arguments
 * of the function, calls the function as the owner of the task, and commits
 * the result as the cursor, together with what the function wrote.  An
 * iteration that wrote nothing and returned the same cursor writes nothing at
 * all.
 *
 * A slow function delays the other tasks: they are given back when another
 * worker has room for them.  When it ignores the cancel, the supervisor gives
 * all tasks of the worker to others and ends the worker.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "function/batch_size.h"
#include "function/task_host.h"
#include "store/items.h"
#include "utils/jsonb.h"
#include "work/failure.h"

/* a function that takes this long delays the others */
#define SAS_TASKS_SLOW_MS 500

/* what was undone, or could not be written, is tried again after this */
#define SAS_TASKS_AGAIN_MS 1000

/* that went to other workers, of the transaction that is open */
static int64 *tasks_gone;
static int	tasks_n_gone;

static SasHostedTask *
tasks_of_work(SasFunctionWork *w)
{
	return (SasHostedTask *) ((char *) w - offsetof(SasHostedTask, work));
}

/*
 * Reads what the function is called with.  In another owner's session, or
 * where the function may have ended a worker lately, which is noted, the next
 * transaction calls it, with nothing in between: it alone is to be blamed.
 */
static void
tasks_check(SasFunctionWork **group, int n)
{
	SasFunctionWork *w = group[0];
	SasHostedTask *task = tasks_of_work(w);
	SasIteration *it = &task->iteration;
	double		in_ms;

	task->again_in_ms = -1;
	tasks_n_gone = 0;
	w->fate = SAS_FATE_LOST;
	if (!sas_store_begin_iteration(sas_function_hosted_node, &task->id, it))
	{
		task->next_at = DT_NOEND;
		return;
	}
	task->next_at = it->stop ? DT_NOEND : it->next_at;
	w->fate = SAS_FATE_BACK;
	if (it->stop)
		return;
	/* its row is locked, or its owner's functions run on as many workers as they may */
	task->again_in_ms = SAS_TASKS_AGAIN_MS;
	if (sas_function_hosted_rests(task, &in_ms))
		task->again_in_ms = in_ms;
	else if (it->suspect)
		w->fate = sas_store_note_iteration(sas_function_hosted_node, &task->id) ? SAS_FATE_NEXT : SAS_FATE_BACK;
	else
		w->fate = w->owner == it->owner ? SAS_FATE_OPEN : SAS_FATE_NEXT;
	w->owner = it->owner;
	w->window_ms = it->timeout_ms;
	w->deadline_us = sas_base_clock_monotonic_us() + (int64) (it->timeout_ms * 1000);
}

static void
tasks_call(SasFunctionWork *w, int64 timeout_ms)
{
	const SasIteration *it = &tasks_of_work(w)->iteration;

	sas_work_invoke_function(w->owner, it->function, it->input, w->instance, timeout_ms, &w->invoked);
}

/* Is the result another cursor? Null leaves it as it is. */
static bool
tasks_is_new_cursor(Jsonb *cursor, Jsonb *result)
{
	if (JB_ROOT_IS_SCALAR(result))
	{
		JsonbValue	v;

		if (JsonbExtractScalar(&result->root, &v) && v.type == jbvNull)
			return false;
	}
	return cursor == NULL || compareJsonbContainers(&cursor->root, &result->root) != 0;
}

static void
tasks_called(SasFunctionWork *w, int64 spent_us)
{
	SasHostedTask *task = tasks_of_work(w);

	task->slow = sas_function_is_slow(spent_us);
	if (spent_us > SAS_TASKS_SLOW_MS * 1000 && sas_function_hosted_count() > 1)
		tasks_n_gone = -1;		/* that many are not known yet */
}

/* The function has returned. False: where the task has gone to another node, or its row is locked, what it did is undone. */
static bool
tasks_end_iteration(SasHostedTask *task)
{
	SasFunctionWork *w = &task->work;
	const SasIteration *it = &task->iteration;
	bool		moved = tasks_is_new_cursor(it->cursor, w->invoked.output);

	task->again_in_ms = it->every_ms;
	if (!moved && !it->noted && it->next_at == DT_NOEND)
		return true;
	return sas_store_end_iteration(sas_function_hosted_node, &task->id, moved ? w->invoked.output : NULL);
}

static void
tasks_fail(SasHostedTask *task)
{
	SasWatchFailure failure = {task->id, task->work.invoked.error, -1};
	SasWatchVerdict *verdict = linitial(sas_store_fail_watches(sas_function_hosted_node, &failure, 1));

	sas_work_failure_log(psprintf("watch " INT64_FORMAT, task->id.watch_id), task->work.invoked.error);
	task->again_in_ms = verdict->answer == SAS_WATCH_FENCED || verdict->answer == SAS_WATCH_FAILED ? -1 :
		verdict->answer == SAS_WATCH_STOP ? 0 :
		verdict->answer == SAS_WATCH_LOCKED ? SAS_TASKS_AGAIN_MS : verdict->pause_ms;
}

static bool
tasks_write(SasFunctionWork **group, int n)
{
	SasFunctionWork *w = group[0];
	SasHostedTask *task = tasks_of_work(w);

	/* it is to stop, or the worker leaves; else it stays here, and is due again */
	if (w->fate == SAS_FATE_BACK && (task->again_in_ms < 0 || sas_base_leaving))
		task->again_in_ms = sas_store_release_watches(sas_function_hosted_node, &task->id, 1) == NIL ? -1 : SAS_TASKS_AGAIN_MS;
	else if (sas_function_error(w) != NULL)
		tasks_fail(task);
	else if (w->fate == SAS_FATE_DONE && !tasks_end_iteration(task))
		return false;
	if (w->fate == SAS_FATE_DONE && tasks_n_gone < 0)
		tasks_n_gone = sas_store_make_way(sas_function_hosted_node, task->id.watch_id, &tasks_gone);
	return true;
}

static void
tasks_leave(SasFunctionWork *w)
{
	SasHostedTask *task = tasks_of_work(w);

	memset(&w->aborts, 0, sizeof(w->aborts));
	if (task->again_in_ms < 0)
		sas_function_hosted_forget(task);
	else
		sas_function_hosted_set_due(task, task->again_in_ms);
}

static void
tasks_written(int64 spent_us, int n, bool was_slow)
{
	for (int i = 0; i < tasks_n_gone; i++)
	{
		SasHostedTask *task = sas_function_hosted_find(tasks_gone[i]);

		if (task != NULL && !task->due)
			sas_function_hosted_forget(task);
	}
	tasks_n_gone = 0;
}

SasFunctionKind sas_function_tasks = {
	.most = 1,
	.hosts = true,
	.looks = sas_function_hosted_looks,
	.claim = sas_function_hosted_claim,
	.claimed = sas_function_hosted_claimed,
	.due = sas_function_hosted_due,
	.check = tasks_check,
	.call = tasks_call,
	.called = tasks_called,
	.write = tasks_write,
	.leave = tasks_leave,
	.written = tasks_written,
	.more = sas_function_hosted_more,
	.release = sas_function_hosted_release,
	.wake_in_ms = sas_function_hosted_wake_in_ms,
};
