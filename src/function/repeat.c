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

/* what was undone, or could not be written, is tried again after this */
#define SAS_REPEAT_AGAIN_MS 1000

/* clocks jump: a task that waits for an instant is looked at as often */
#define SAS_REPEAT_LOOK_US (60 * INT64CONST(1000000))

/* a cancelled function should end within this time */
#define SAS_REPEAT_CANCEL_MS 500

typedef struct Task
{
	SasWatchId	id;				/* the key of the table is its watch_id */
	pairingheap_node node;		/* by due_us */
	int64		due_us;
	TimestampTz next_at;		/* it has a schedule, and is not called before; DT_NOEND: it has none */
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
repeat_forget_these(const int64 *watch_ids, int n)
{
	for (int i = 0; i < n; i++)
	{
		Task	   *task = hash_search(repeat_tasks, &watch_ids[i], HASH_FIND, NULL);

		if (task != NULL)
			repeat_forget(task);
	}
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
	task->next_at = request->next_at;
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
	/* one whose row another transaction holds stays here in the store: its request to stop comes again */
	if (n_stopped > 0)
		(void) sas_store_release_watches(repeat_node_id, stopped, n_stopped);
	/* each iteration reads the definition anyway; this records that the change was taken up */
	if (n_changed > 0)
		(void) sas_store_watch_requests(repeat_node_id, changed, NULL, n_changed);
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
		{
			task->next_at = DT_NOEND;
			repeat_set_due(task, 0);
		}
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
 * ended a worker lately is noted.  Returns 'h' when the task is still hosted
 * here, and iteration is filled in; 'x' when it is not; 'l' when another
 * transaction holds its row; 0 when the extension is gone.
 */
static char
repeat_open_iteration(Task *task, SasIteration *iteration)
{
	bool		noted;

	if (!sas_store_begin())
		return 0;
	if (!sas_store_begin_iteration(repeat_node_id, &task->id, iteration))
		return 'x';
	if (!iteration->stop && (iteration->suspect || sas_work_changes_owner(iteration->owner)))
	{
		noted = !iteration->suspect || sas_store_note_iteration(repeat_node_id, &task->id);
		sas_store_commit();
		sas_work_change_owner(iteration->owner);
		if (!sas_store_begin())
			return 0;
		if (!noted)
			return 'l';
		return sas_store_begin_iteration(repeat_node_id, &task->id, iteration) && !sas_work_changes_owner(iteration->owner) ? 'h' : 'x';
	}
	if (!iteration->stop)
		sas_work_change_owner(iteration->owner);	/* the first one of this worker */
	return 'h';
}

/* Calls the function; returns in how many ms it is due again, or -1: the task is not hosted here any longer. */
static double
repeat_invoke(Task *task, const SasIteration *iteration)
{
	int64		begun = sas_base_clock_monotonic_us();
	SasInvoked	invoked;
	SasPart		part;
	bool		keep = true;
	bool		moved;

	sas_base_peers_begin_invocation(task->id.watch_id, begun + (int64) (iteration->timeout_ms + SAS_REPEAT_CANCEL_MS) * 1000);
	sas_store_begin_part(&part);
	sas_work_invoke_function(iteration->owner, iteration->function, iteration->input, psprintf("/watches/" INT64_FORMAT, task->id.watch_id),
							 (int64) iteration->timeout_ms, &invoked);
	sas_base_peers_end_invocation();
	moved = invoked.ok && repeat_is_new_cursor(iteration->cursor, invoked.output);
	if (invoked.ok && (moved || iteration->noted || iteration->next_at != DT_NOEND))
		keep = sas_store_end_iteration(repeat_node_id, &task->id, moved ? invoked.output : NULL);
	sas_store_end_part(&part, keep);
	if (!invoked.ok && sas_base_stopping && invoked.sqlstate == ERRCODE_QUERY_CANCELED)
		/* as if it had not been called */
		return sas_store_release_watches(repeat_node_id, &task->id, 1) == NIL ? -1 : SAS_REPEAT_AGAIN_MS;
	if (!invoked.ok)
	{
		SasWatchFailure failure = {task->id, invoked.error, -1};
		SasWatchVerdict *verdict = linitial(sas_store_fail_watches(repeat_node_id, &failure, 1));

		sas_work_failure_log(psprintf("watch " INT64_FORMAT, task->id.watch_id), invoked.error);
		return verdict->answer == SAS_WATCH_FENCED || verdict->answer == SAS_WATCH_FAILED ? -1 :
			verdict->answer == SAS_WATCH_STOP ? 0 :
			verdict->answer == SAS_WATCH_LOCKED ? SAS_REPEAT_AGAIN_MS : verdict->pause_ms;
	}
	/* where the task has gone to another node, the next look says so */
	return keep ? iteration->every_ms : SAS_REPEAT_AGAIN_MS;
}

/* Its schedule does not want it called yet; it is looked at again then. */
static bool
repeat_rests(Task *task)
{
	int64		left_us = task->next_at == DT_NOEND ? 0 : task->next_at - sas_base_clock_now();

	if (left_us <= 0)
		return false;
	repeat_set_due(task, Min(left_us, SAS_REPEAT_LOOK_US) / 1000.0);
	return true;
}

/* One transaction: calls the function of a task that is due. */
static void
repeat_call(Task *task)
{
	SasIteration iteration;
	int64	   *gone = NULL;
	int			n_gone = 0;
	int64		begun;
	double		again_in_ms = -1;
	char		may;

	repeat_running = task;
	may = repeat_open_iteration(task, &iteration);
	if (may == 0)
		return;
	task->next_at = may == 'h' && !iteration.stop ? iteration.next_at : DT_NOEND;
	if (repeat_rests(task))
	{
		sas_store_commit();
		repeat_running = NULL;
		return;
	}
	begun = sas_base_clock_monotonic_us();
	if (may == 'l')
		again_in_ms = SAS_REPEAT_AGAIN_MS;
	else if (may == 'h' && iteration.stop)
		again_in_ms = sas_store_release_watches(repeat_node_id, &task->id, 1) == NIL ? -1 : SAS_REPEAT_AGAIN_MS;
	else if (may == 'h')
		again_in_ms = repeat_invoke(task, &iteration);
	if (sas_base_clock_monotonic_us() - begun > SAS_REPEAT_SLOW_MS * 1000 && hash_get_num_entries(repeat_tasks) > 1)
		n_gone = sas_store_make_way(repeat_node_id, task->id.watch_id, &gone);
	sas_store_commit();
	repeat_running = NULL;
	repeat_forget_these(gone, n_gone);
	if (again_in_ms < 0)
		repeat_forget(task);
	else
		repeat_set_due(task, again_in_ms);
}

/* The transaction of the last call aborted as a whole, which is seldom: another one in a while. */
static void
repeat_after_abort(void)
{
	Task	   *task = repeat_running;

	repeat_running = NULL;
	sas_base_peers_end_invocation();
	repeat_set_due(task, SAS_REPEAT_AGAIN_MS);
}

/* All tasks go to other workers; the supervisor finds those whose row another transaction holds. */
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
	(void) sas_store_release_watches(repeat_node_id, ids, n);
	sas_store_commit();
	for (int i = 0; i < n; i++)
		repeat_forget(hash_search(repeat_tasks, &ids[i].watch_id, HASH_FIND, NULL));
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
		if (!repeat_rests(task))
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
