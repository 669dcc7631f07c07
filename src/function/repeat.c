/* SPDX-License-Identifier: PostgreSQL */
/*
 * repeat.c: repeats functions for ever.
 *
 * The worker is a node: it takes waiting tasks, and stores in memory when
 * each is due.  An iteration is one transaction: it reads the arguments of
 * the function, calls the function as the owner of the task, and commits the
 * result as the cursor, together with what the function wrote.  An iteration
 * that wrote nothing and returned the same cursor writes nothing at all.
 *
 * A slow function delays the other tasks: they are given back when another
 * worker has room for them.  It is cancelled when its time is over.  When it
 * ignores the cancel, the supervisor gives all tasks of the worker to others
 * and ends the worker.
 *
 * When the version of watches changes, a task waits or there is news, and
 * the node polls.  When the worker dies, the supervisor finds its tasks by
 * the node's id.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "common/hashfn.h"
#include "function/repeat.h"
#include "lib/pairingheap.h"
#include "store/items.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/invoke.h"
#include "work/late.h"

#define SAS_REPEAT_CLAIM 500

/* a function that takes this long delays the others */
#define SAS_REPEAT_SLOW_MS 500

/* a cancelled function should end within this time */
#define SAS_REPEAT_CANCEL_MS 500

typedef struct Task
{
	SasWatchId	id;				/* the key of the table is its watch_id */
	pairingheap_node node;		/* by due_us */
	int64		due_us;
} Task;

static int64 repeat_node_id;	/* 0: not born yet */
static int	repeat_capacity;
static uint32 repeat_version_seen; /* the version of watches at the last poll */
static uint32 repeat_nudges_seen;	/* count of nudges likewise */
static bool repeat_more;		/* the last claim was a full one */
static HTAB *repeat_tasks;
static pairingheap *repeat_heap;
static Task *repeat_running;	/* of the transaction that is open or has aborted */

static int
repeat_later(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(Task, node, a)->due_us;
	int64		y = pairingheap_const_container(Task, node, b)->due_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

void
sas_function_repeat_open(void)
{
	HASHCTL		control = {.keysize = sizeof(int64), .entrysize = sizeof(Task), .hcxt = CurrentMemoryContext};

	repeat_capacity = sas_base_watch_slots;
	repeat_tasks = hash_create("sas tasks", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	repeat_heap = pairingheap_allocate(repeat_later, NULL);
	repeat_version_seen = sas_wake_watches_version() - 1;
	sas_function_deliver_open();
}

static void
repeat_forget(Task *task)
{
	pairingheap_remove(repeat_heap, &task->node);
	hash_search(repeat_tasks, &task->id.watch_id, HASH_REMOVE, NULL);
}

static void
repeat_forget_all_but(Task *task)
{
	HASH_SEQ_STATUS status;
	Task	   *t;

	hash_seq_init(&status, repeat_tasks);
	while ((t = hash_seq_search(&status)) != NULL)
		if (t != task)
			repeat_forget(t);
}

static void
repeat_set_due(Task *task, double in_ms)
{
	pairingheap_remove(repeat_heap, &task->node);
	task->due_us = sas_base_clock_monotonic_us() + (int64) (in_ms * 1000);
	pairingheap_add(repeat_heap, &task->node);
}

static void
repeat_take(const SasWatchRequest *request)
{
	bool		found;
	Task	   *task = hash_search(repeat_tasks, &request->id.watch_id, HASH_ENTER, &found);

	if (found)
		pairingheap_remove(repeat_heap, &task->node);
	task->id = request->id;
	task->due_us = sas_base_clock_monotonic_us() + (int64) (request->wait_ms * 1000);
	pairingheap_add(repeat_heap, &task->node);
}

/* In a transaction: gives back what is to stop. */
static void
repeat_read_news(List *news)
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
	if (n_stopped > 0)
		sas_store_release_watches(repeat_node_id, stopped, n_stopped);
	/* each iteration reads the definition anyway; this records that the change was taken up */
	if (n_changed > 0)
		(void) sas_store_watch_requests(repeat_node_id, changed, n_changed);
}

/* After the commit. */
static void
repeat_follow_news(List *news)
{
	ListCell   *lc;

	foreach(lc, news)
	{
		SasWatchNews *n = lfirst(lc);
		Task	   *task = hash_search(repeat_tasks, &n->id.watch_id, HASH_FIND, NULL);

		if (task == NULL || (n->news != 'f' && task->id.epoch != n->id.epoch))
			continue;
		if (n->news == 's' || n->news == 'f')
			repeat_forget(task);
		else if (n->news == 'r')
			repeat_set_due(task, 0);
	}
}

static uint32
repeat_version(int n)
{
	return sas_wake_watches_version();
}

/* One transaction: news of the tasks, and more tasks, while there is room. */
static void
repeat_poll(void)
{
	uint32		version = sas_wake_watches_version();
	uint32		nudges = sas_wake_watches_nudges();
	List	   *news = NIL;
	List	   *claimed = NIL;
	int			room;
	int64		new_node_id = repeat_node_id;
	ListCell   *lc;

	if (repeat_node_id != 0 && !repeat_more && version == repeat_version_seen)
		sas_work_late_look(SAS_LATE_WATCH, 0, repeat_version, version, DT_NOEND);
	if (!sas_store_begin())
		return;
	if (new_node_id == 0)
		new_node_id = sas_store_register_node(repeat_capacity);
	else
	{
		news = sas_store_node_news(repeat_node_id);
		repeat_read_news(news);
	}
	room = Min(SAS_REPEAT_CLAIM, repeat_capacity - (int) hash_get_num_entries(repeat_tasks));
	if (room > 0)
		claimed = sas_store_claim_watches(new_node_id, room);
	sas_store_commit();

	repeat_node_id = new_node_id;
	repeat_version_seen = version;
	repeat_nudges_seen = nudges;
	repeat_follow_news(news);
	foreach(lc, claimed)
		repeat_take(lfirst(lc));
	repeat_more = claimed != NIL && list_length(claimed) == room;
}

/* Is the result another cursor? Null leaves it as it is. */
static bool
repeat_is_new_cursor(Jsonb *cursor, Jsonb *result)
{
	if (JB_ROOT_IS_SCALAR(result))
	{
		JsonbValue	v;

		if (JsonbExtractScalar(&result->root, &v) && v.type == jbvNull)
			return false;
	}
	return cursor == NULL || compareJsonbContainers(&cursor->root, &result->root) != 0;
}

/*
 * Opens the transaction in which the function may be called.  Before, the
 * session is wiped of another owner's state, and a function that may have
 * ended a worker lately is noted. *hosted: the task is still hosted here,
 * and iteration is filled in.  Returns false when the extension is gone.
 */
static bool
repeat_open_iteration(Task *task, SasIteration *iteration, bool *hosted)
{
	if (!sas_store_begin())
		return false;
	*hosted = sas_store_begin_iteration(repeat_node_id, &task->id, iteration);
	if (!*hosted || iteration->stop)
		return true;
	if (iteration->suspect || sas_work_changes_owner(iteration->owner))
	{
		if (iteration->suspect)
			sas_store_note_iteration(repeat_node_id, &task->id);
		sas_store_commit();
		sas_work_change_owner(iteration->owner);
		if (!sas_store_begin())
			return false;
		*hosted = sas_store_begin_iteration(repeat_node_id, &task->id, iteration) && !sas_work_changes_owner(iteration->owner);
	}
	else
		sas_work_change_owner(iteration->owner);	/* the first one of this worker */
	return true;
}

/* One transaction: calls the function of a task that is due. */
static void
repeat_call(Task *task)
{
	SasIteration iteration;
	SasInvoked	invoked = {0};
	SasWatchVerdict *verdict = NULL;
	bool		hosted;
	bool		gone = false;	/* the other tasks, to another worker */
	int64		begun;

	repeat_running = task;
	if (!repeat_open_iteration(task, &iteration, &hosted))
		return;
	if (hosted && iteration.stop)
	{
		sas_store_release_watches(repeat_node_id, &task->id, 1);
		hosted = false;
	}
	begun = sas_base_clock_monotonic_us();
	if (hosted)
	{
		sas_base_peers_begin_invocation(task->id.watch_id, begun + (int64) (iteration.timeout_ms + SAS_REPEAT_CANCEL_MS) * 1000);
		sas_work_invoke_function(iteration.owner, iteration.function, iteration.input, psprintf("/watches/" INT64_FORMAT, task->id.watch_id),
								 (int64) iteration.timeout_ms, &invoked);
		sas_base_peers_end_invocation();
		if (!invoked.ok && sas_base_stopping && invoked.sqlstate == ERRCODE_QUERY_CANCELED)
		{
			/* as if it had not been called */
			sas_store_release_watches(repeat_node_id, &task->id, 1);
			hosted = false;
		}
		else if (!invoked.ok)
		{
			SasWatchFailure failure = {task->id, invoked.error, -1};

			verdict = linitial(sas_store_fail_watches(repeat_node_id, &failure, 1));
			sas_work_failure_log(psprintf("watch " INT64_FORMAT, task->id.watch_id), invoked.error);
		}
		else if (iteration.noted || repeat_is_new_cursor(iteration.cursor, invoked.output))
			sas_store_end_iteration(repeat_node_id, &task->id, repeat_is_new_cursor(iteration.cursor, invoked.output) ? invoked.output : NULL);
		if (sas_base_clock_monotonic_us() - begun > SAS_REPEAT_SLOW_MS * 1000 && hash_get_num_entries(repeat_tasks) > 1)
			gone = sas_store_make_way(repeat_node_id, task->id.watch_id);
	}
	sas_store_commit();
	repeat_running = NULL;
	if (gone)
		repeat_forget_all_but(task);
	if (!hosted || (verdict != NULL && (verdict->answer == SAS_WATCH_FENCED || verdict->answer == SAS_WATCH_FAILED)))
		repeat_forget(task);
	else
		repeat_set_due(task, verdict != NULL ? (verdict->answer == SAS_WATCH_STOP ? 0 : verdict->pause_ms) : iteration.every_ms);
}

/* The transaction of the last call aborted as a whole, which is seldom: another one in a while. */
static void
repeat_after_abort(void)
{
	Task	   *task = repeat_running;

	repeat_running = NULL;
	sas_base_peers_end_invocation();
	repeat_set_due(task, 1000);
}

/* All tasks go to other workers. */
static void
repeat_leave(void)
{
	SasWatchId *ids = palloc(sizeof(SasWatchId) * (hash_get_num_entries(repeat_tasks) + 1));
	HASH_SEQ_STATUS status;
	Task	   *task;
	int			n = 0;

	hash_seq_init(&status, repeat_tasks);
	while ((task = hash_seq_search(&status)) != NULL)
		ids[n++] = task->id;
	if (n == 0 || !sas_store_begin())
		return;
	sas_store_release_watches(repeat_node_id, ids, n);
	sas_store_commit();
	repeat_forget_all_but(NULL);
}

static Task *
repeat_first(void)
{
	return pairingheap_is_empty(repeat_heap) ? NULL : pairingheap_container(Task, node, pairingheap_first(repeat_heap));
}

SasTick
sas_function_repeat_tick(void)
{
	SasTick		next = {false, -1};
	Task	   *task;

	if (repeat_running != NULL)
		repeat_after_abort();
	next.again = sas_function_deliver_tick();
	if (sas_base_leaving)
	{
		repeat_leave();
		return next;
	}
	if (repeat_capacity > 0 && (repeat_more || repeat_version_seen != sas_wake_watches_version() ||
								repeat_nudges_seen != sas_wake_watches_nudges()))
		repeat_poll();
	task = repeat_first();
	if (task != NULL && task->due_us <= sas_base_clock_monotonic_us())
	{
		repeat_call(task);
		task = repeat_first();
	}
	next.wake_in_ms = sas_function_deliver_wake_in_ms();
	if (task != NULL)
	{
		int64		task_ms = Max(0, (task->due_us - sas_base_clock_monotonic_us() + 999) / 1000);

		next.again |= task_ms == 0;
		next.wake_in_ms = next.wake_in_ms < 0 ? task_ms : Min(next.wake_in_ms, task_ms);
	}
	next.again |= repeat_more;
	return next;
}
