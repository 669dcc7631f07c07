/* SPDX-License-Identifier: PostgreSQL */
/*
 * tasks.c: repeats functions for ever.
 *
 * The worker is a node: it takes waiting tasks, and stores in memory when
 * each is due.  An iteration reads the arguments of the function, calls the
 * function as the owner of the task, and commits the result as the cursor,
 * together with what the function wrote.  An iteration that wrote nothing and
 * returned the same cursor writes nothing at all.
 *
 * A slow function delays the other tasks: they are given back when another
 * worker has room for them.  When it ignores the cancel, the supervisor gives
 * all tasks of the worker to others and ends the worker.
 *
 * When the version of watches changes, a task waits or there is news, and
 * the node polls.  When the worker dies, the supervisor finds its tasks by
 * the node's id.
 */
#include "postgres.h"

#include "base/capacity.h"
#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "common/hashfn.h"
#include "function/batch_size.h"
#include "function/work.h"
#include "lib/pairingheap.h"
#include "store/items.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/late.h"
#include "work/turns.h"

#define SAS_TASKS_CLAIM 500

/* a function that takes this long delays the others */
#define SAS_TASKS_SLOW_MS 500

/* what was undone, or could not be written, is tried again after this */
#define SAS_TASKS_AGAIN_MS 1000

/* clocks jump: a task that waits for an instant is looked at as often */
#define SAS_TASKS_LOOK_US (60 * INT64CONST(1000000))

typedef struct Task
{
	SasWatchId	id;				/* the key of the table is its watch_id */
	SasFunctionWork work;		/* while it is due */
	char		instance[32];
	bool		due;			/* it is among what the machine is to do, and not in the heap */
	pairingheap_node node;		/* by due_us */
	int64		due_us;
	TimestampTz next_at;		/* it has a schedule, and is not called before; DT_NOEND: it has none */
	bool		slow;			/* it was, when it was called last, or was not called here */

	/* of the transaction that is open */
	SasIteration iteration;
	double		again_in_ms;	/* -1: it is not hosted here any longer */
} Task;

static int64 tasks_node_id;		/* 0: not born yet */
static int	tasks_capacity;
static uint32 tasks_version_seen;	/* the version of watches at the last poll */
static uint32 tasks_nudges_seen;	/* count of nudges likewise */
static bool tasks_more_wait;	/* the last claim was a full one */
static HTAB *tasks_hosted;
static pairingheap *tasks_heap;

/* of the poll that is open */
static struct
{
	int64		node_id;
	uint32		version;
	uint32		nudges;
	List	   *news;
	List	   *claimed;
	int			room;
}			tasks_poll;

/* that went to other workers, of the transaction that is open */
static int64 *tasks_gone;
static int	tasks_n_gone;

static Task *
tasks_of_work(SasFunctionWork *w)
{
	return (Task *) ((char *) w - offsetof(Task, work));
}

static int
tasks_later(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(Task, node, a)->due_us;
	int64		y = pairingheap_const_container(Task, node, b)->due_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

void
sas_function_tasks_open(void)
{
	HASHCTL		control = {.keysize = sizeof(int64), .entrysize = sizeof(Task), .hcxt = CurrentMemoryContext};

	tasks_capacity = sas_base_capacity_watches();
	tasks_hosted = hash_create("sas tasks", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	tasks_heap = pairingheap_allocate(tasks_later, NULL);
	tasks_version_seen = sas_wake_watches_version() - 1;
}

static void
tasks_forget(Task *task)
{
	if (!task->due)
		pairingheap_remove(tasks_heap, &task->node);
	hash_search(tasks_hosted, &task->id.watch_id, HASH_REMOVE, NULL);
}

static void
tasks_set_due(Task *task, double in_ms)
{
	if (!task->due)
		pairingheap_remove(tasks_heap, &task->node);
	task->due = false;
	task->due_us = sas_base_clock_monotonic_us() + (int64) (in_ms * 1000);
	pairingheap_add(tasks_heap, &task->node);
}

static void
tasks_take(const SasWatchRequest *request)
{
	bool		found;
	Task	   *task = hash_search(tasks_hosted, &request->id.watch_id, HASH_ENTER, &found);

	if (!found)
	{
		memset(&task->work, 0, sizeof(task->work));
		task->work.kind = &sas_function_tasks;
		task->work.task = request->id.watch_id;
		task->work.instance = task->instance;
		snprintf(task->instance, sizeof(task->instance), "/watches/" INT64_FORMAT, request->id.watch_id);
		task->slow = true;
		task->due = true;		/* it is not in the heap */
	}
	task->id = request->id;
	task->next_at = request->next_at;
	/* one that is due finds what has changed when it is called */
	if (!found || !task->due)
		tasks_set_due(task, request->wait_ms);
}

/* ---------------------------------------------------------------- claims and news */

/* In a transaction: gives back what is to stop. */
static void
tasks_read_news(List *news)
{
	SasWatchId *stopped = palloc(sizeof(SasWatchId) * Max(1, list_length(news)));
	SasWatchId *changed = palloc(sizeof(SasWatchId) * Max(1, list_length(news)));
	int			n_stopped = 0;
	int			n_changed = 0;
	ListCell   *lc;

	foreach(lc, news)
	{
		SasWatchNews *n = lfirst(lc);

		if (n->news == 's')
			stopped[n_stopped++] = n->id;
		else if (n->news == 'r')
			changed[n_changed++] = n->id;
	}
	/* one whose row another transaction holds stays here in the store: its request to stop comes again */
	if (n_stopped > 0)
		(void) sas_store_release_watches(tasks_node_id, stopped, n_stopped);
	/* each iteration reads the definition anyway; this records that the change was taken up */
	if (n_changed > 0)
		(void) sas_store_watch_requests(tasks_node_id, changed, NULL, n_changed);
}

/* After the commit. What is due finds its news when it is called. */
static void
tasks_follow_news(List *news)
{
	ListCell   *lc;

	foreach(lc, news)
	{
		SasWatchNews *n = lfirst(lc);
		Task	   *task = hash_search(tasks_hosted, &n->id.watch_id, HASH_FIND, NULL);

		if (task == NULL || task->due || (n->news != 'f' && task->id.epoch != n->id.epoch))
			continue;
		if (n->news == 's' || n->news == 'f')
			tasks_forget(task);
		else if (n->news == 'r')
		{
			task->next_at = DT_NOEND;
			tasks_set_due(task, 0);
		}
	}
}

static uint32
tasks_version(int n)
{
	return sas_wake_watches_version();
}

static bool
tasks_look(void)
{
	return tasks_capacity > 0 && (tasks_more_wait || tasks_version_seen != sas_wake_watches_version() ||
								  tasks_nudges_seen != sas_wake_watches_nudges());
}

/* News of the tasks, and more tasks, while there is room: they become due later. */
static List *
tasks_claim(void)
{
	tasks_poll.version = sas_wake_watches_version();
	tasks_poll.nudges = sas_wake_watches_nudges();
	tasks_poll.news = tasks_poll.claimed = NIL;
	tasks_poll.node_id = tasks_node_id;
	if (tasks_node_id != 0 && !tasks_more_wait && tasks_poll.version == tasks_version_seen)
		sas_work_late_look(SAS_LATE_WATCH, 0, tasks_version, tasks_poll.version, DT_NOEND);
	if (tasks_node_id == 0)
		tasks_poll.node_id = sas_store_register_node(tasks_capacity);
	else
	{
		tasks_poll.news = sas_store_node_news(tasks_node_id);
		tasks_read_news(tasks_poll.news);
	}
	tasks_poll.room = Min(SAS_TASKS_CLAIM, tasks_capacity - (int) hash_get_num_entries(tasks_hosted));
	if (tasks_poll.room > 0)
		tasks_poll.claimed = sas_store_claim_watches(tasks_poll.node_id, tasks_poll.room);
	return NIL;
}

static bool
tasks_claimed(int n)
{
	ListCell   *lc;

	tasks_node_id = tasks_poll.node_id;
	tasks_version_seen = tasks_poll.version;
	tasks_nudges_seen = tasks_poll.nudges;
	tasks_follow_news(tasks_poll.news);
	foreach(lc, tasks_poll.claimed)
		tasks_take(lfirst(lc));
	tasks_more_wait = tasks_poll.claimed != NIL && list_length(tasks_poll.claimed) == tasks_poll.room;
	return tasks_more_wait;
}

/* ---------------------------------------------------------------- iterations */

/* Its schedule does not want it called yet; it is looked at again then. */
static bool
tasks_rests(const Task *task, double *in_ms)
{
	int64		left_us = task->next_at == DT_NOEND ? 0 : task->next_at - sas_base_clock_now();

	*in_ms = Min(left_us, SAS_TASKS_LOOK_US) / 1000.0;
	return left_us > 0;
}

static Task *
tasks_first_due(void)
{
	Task	   *task = pairingheap_is_empty(tasks_heap) ? NULL : pairingheap_container(Task, node, pairingheap_first(tasks_heap));

	return task != NULL && task->due_us <= sas_base_clock_monotonic_us() ? task : NULL;
}

/* One whose time has come, and whose owner does not let others go first: at most one, so that no other waits behind it. */
static void
tasks_add_due(void)
{
	List	   *passed = NIL;
	Task	   *task;
	ListCell   *lc;
	double		in_ms;

	while ((task = tasks_first_due()) != NULL && sas_work_turns_waits(task->work.owner))
	{
		pairingheap_remove(tasks_heap, &task->node);
		passed = lappend(passed, task);
	}
	foreach(lc, passed)
		pairingheap_add(tasks_heap, &((Task *) lfirst(lc))->node);
	if (task == NULL)
		return;
	if (tasks_rests(task, &in_ms))
	{
		tasks_set_due(task, in_ms);
		return;
	}
	pairingheap_remove(tasks_heap, &task->node);
	task->due = true;
	task->work.solo = task->slow;
	task->work.not_before_us = task->work.pause_us = 0;
	task->again_in_ms = 0;		/* if it is given back before it is checked */
	sas_function_add(&task->work);
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
	Task	   *task = tasks_of_work(w);
	SasIteration *it = &task->iteration;
	double		in_ms;

	task->again_in_ms = -1;
	tasks_n_gone = 0;
	w->fate = SAS_FATE_LOST;
	if (!sas_store_begin_iteration(tasks_node_id, &task->id, it))
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
	if (tasks_rests(task, &in_ms))
		task->again_in_ms = in_ms;
	else if (it->suspect)
		w->fate = sas_store_note_iteration(tasks_node_id, &task->id) ? SAS_FATE_NEXT : SAS_FATE_BACK;
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
	Task	   *task = tasks_of_work(w);

	task->slow = sas_function_is_slow(spent_us);
	if (spent_us > SAS_TASKS_SLOW_MS * 1000 && hash_get_num_entries(tasks_hosted) > 1)
		tasks_n_gone = -1;		/* that many are not known yet */
}

/* The function has returned. False: where the task has gone to another node, or its row is locked, what it did is undone. */
static bool
tasks_end_iteration(Task *task)
{
	SasFunctionWork *w = &task->work;
	const SasIteration *it = &task->iteration;
	bool		moved = tasks_is_new_cursor(it->cursor, w->invoked.output);

	task->again_in_ms = it->every_ms;
	if (!moved && !it->noted && it->next_at == DT_NOEND)
		return true;
	return sas_store_end_iteration(tasks_node_id, &task->id, moved ? w->invoked.output : NULL);
}

static void
tasks_fail(Task *task)
{
	SasWatchFailure failure = {task->id, task->work.invoked.error, -1};
	SasWatchVerdict *verdict = linitial(sas_store_fail_watches(tasks_node_id, &failure, 1));

	sas_work_failure_log(psprintf("watch " INT64_FORMAT, task->id.watch_id), task->work.invoked.error);
	task->again_in_ms = verdict->answer == SAS_WATCH_FENCED || verdict->answer == SAS_WATCH_FAILED ? -1 :
		verdict->answer == SAS_WATCH_STOP ? 0 :
		verdict->answer == SAS_WATCH_LOCKED ? SAS_TASKS_AGAIN_MS : verdict->pause_ms;
}

static bool
tasks_write(SasFunctionWork **group, int n)
{
	SasFunctionWork *w = group[0];
	Task	   *task = tasks_of_work(w);

	/* it is to stop, or the worker leaves; else it stays here, and is due again */
	if (w->fate == SAS_FATE_BACK && (task->again_in_ms < 0 || sas_base_leaving))
		task->again_in_ms = sas_store_release_watches(tasks_node_id, &task->id, 1) == NIL ? -1 : SAS_TASKS_AGAIN_MS;
	else if (sas_function_error(w) != NULL)
		tasks_fail(task);
	else if (w->fate == SAS_FATE_DONE && !tasks_end_iteration(task))
		return false;
	if (w->fate == SAS_FATE_DONE && tasks_n_gone < 0)
		tasks_n_gone = sas_store_make_way(tasks_node_id, task->id.watch_id, &tasks_gone);
	return true;
}

static void
tasks_leave(SasFunctionWork *w)
{
	Task	   *task = tasks_of_work(w);

	memset(&w->aborts, 0, sizeof(w->aborts));
	if (task->again_in_ms < 0)
		tasks_forget(task);
	else
		tasks_set_due(task, task->again_in_ms);
}

static void
tasks_written(int64 spent_us, int n, bool was_slow)
{
	for (int i = 0; i < tasks_n_gone; i++)
	{
		Task	   *task = hash_search(tasks_hosted, &tasks_gone[i], HASH_FIND, NULL);

		if (task != NULL && !task->due)
			tasks_forget(task);
	}
	tasks_n_gone = 0;
}

static bool
tasks_more(void)
{
	return tasks_more_wait;
}

/* All tasks go to other workers; the supervisor finds those whose row another transaction holds. */
static void
tasks_release(void)
{
	SasWatchId *ids = palloc(sizeof(SasWatchId) * (hash_get_num_entries(tasks_hosted) + 1));
	HASH_SEQ_STATUS status;
	Task	   *task;
	int			n = 0;

	hash_seq_init(&status, tasks_hosted);
	while ((task = hash_seq_search(&status)) != NULL)
		if (!task->due)
			ids[n++] = task->id;
	if (n == 0 || !sas_store_begin())
		return;
	(void) sas_store_release_watches(tasks_node_id, ids, n);
	sas_store_commit();
	for (int i = 0; i < n; i++)
		tasks_forget(hash_search(tasks_hosted, &ids[i].watch_id, HASH_FIND, NULL));
}

static int64
tasks_wake_in_ms(void)
{
	const Task *task;

	if (pairingheap_is_empty(tasks_heap))
		return -1;
	task = pairingheap_container(Task, node, pairingheap_first(tasks_heap));
	return Max(0, (task->due_us - sas_base_clock_monotonic_us() + 999) / 1000);
}

SasFunctionKind sas_function_tasks = {
	.most = 1,
	.hosts = true,
	.looks = tasks_look,
	.claim = tasks_claim,
	.claimed = tasks_claimed,
	.due = tasks_add_due,
	.check = tasks_check,
	.call = tasks_call,
	.called = tasks_called,
	.write = tasks_write,
	.leave = tasks_leave,
	.written = tasks_written,
	.more = tasks_more,
	.release = tasks_release,
	.wake_in_ms = tasks_wake_in_ms,
};
