/* SPDX-License-Identifier: PostgreSQL */
/*
 * task_host.c: the infinite tasks that a function worker hosts.
 *
 * The worker is a node: it takes waiting tasks, and stores in memory when
 * each is due.  When the version of watches changes, a task waits or there is
 * news, and the node polls.  When the worker dies, the supervisor finds its
 * tasks by the node's id.
 */
#include "postgres.h"

#include "base/capacity.h"
#include "base/clock.h"
#include "function/task_host.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/late.h"
#include "work/turns.h"

#define TASK_HOST_CLAIM 500
/* News of one tick: a role may stop all of its tasks at once, and functions of others wait for the tick. */
#define TASK_HOST_NEWS 500

/* clocks jump: a task that waits for an instant is looked at as often */
#define TASK_HOST_LOOK_US (60 * INT64CONST(1000000))

int64		sas_function_hosted_node;
static int	task_host_capacity;
static uint32 task_host_version_seen;	/* the version of watches at the last poll */
static uint32 task_host_nudges_seen;	/* count of nudges likewise */
static bool task_host_more_wait;	/* the last claim was a full one, or there was news */
static HTAB *task_host_tasks;
static pairingheap *task_host_heap;

/* of the poll that is open */
static struct
{
	int64		node_id;
	uint32		version;
	uint32		nudges;
	List	   *news;
	List	   *claimed;
	int			room;
}			task_host_poll;

static int
task_host_later(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasHostedTask, node, a)->due_us;
	int64		y = pairingheap_const_container(SasHostedTask, node, b)->due_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

void
sas_function_hosted_open(void)
{
	HASHCTL		control = {.keysize = sizeof(int64), .entrysize = sizeof(SasHostedTask), .hcxt = CurrentMemoryContext};

	task_host_capacity = sas_base_capacity_watches();
	task_host_tasks = hash_create("sas tasks", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	task_host_heap = pairingheap_allocate(task_host_later, NULL);
	task_host_version_seen = sas_wake_version(SAS_WAKE_WATCHES) - 1;
}

SasHostedTask *
sas_function_hosted_find(int64 watch_id)
{
	return hash_search(task_host_tasks, &watch_id, HASH_FIND, NULL);
}

int
sas_function_hosted_count(void)
{
	return (int) hash_get_num_entries(task_host_tasks);
}

void
sas_function_hosted_forget(SasHostedTask *task)
{
	if (!task->due)
		pairingheap_remove(task_host_heap, &task->node);
	hash_search(task_host_tasks, &task->id.watch_id, HASH_REMOVE, NULL);
}

void
sas_function_hosted_set_due(SasHostedTask *task, double in_ms)
{
	if (!task->due)
		pairingheap_remove(task_host_heap, &task->node);
	task->due = false;
	task->due_us = sas_base_clock_monotonic_us() + (int64) (in_ms * 1000);
	pairingheap_add(task_host_heap, &task->node);
}

static void
task_host_take(const SasWatchRequest *request)
{
	bool		found;
	SasHostedTask *task = hash_search(task_host_tasks, &request->id.watch_id, HASH_ENTER, &found);

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
		sas_function_hosted_set_due(task, request->wait_ms);
}

/* ---------------------------------------------------------------- claims and news */

/* In a transaction: gives back what is to stop. */
static void
task_host_read_news(List *news)
{
	SasWatchId *stopped = palloc(sizeof(SasWatchId) * Max(1, list_length(news)));
	SasWatchAsk *changed = palloc(sizeof(SasWatchAsk) * Max(1, list_length(news)));
	int			n_stopped = 0;
	int			n_changed = 0;
	ListCell   *lc;

	foreach(lc, news)
	{
		SasWatchNews *n = lfirst(lc);

		if (n->news == 's')
			stopped[n_stopped++] = n->id;
		else if (n->news == 'r')
			changed[n_changed++] = (SasWatchAsk) {n->id, false};
	}
	/* one whose row another transaction holds stays here in the store: its request to stop comes again */
	if (n_stopped > 0)
		(void) sas_store_release_watches(sas_function_hosted_node, stopped, n_stopped);
	/* each iteration reads the definition anyway; this records that the change was taken up */
	if (n_changed > 0)
		(void) sas_store_watch_requests(sas_function_hosted_node, changed, n_changed);
}

/* After the commit. What is due finds its news when it is called. */
static void
task_host_follow_news(List *news)
{
	ListCell   *lc;

	foreach(lc, news)
	{
		SasWatchNews *n = lfirst(lc);
		SasHostedTask *task = sas_function_hosted_find(n->id.watch_id);

		if (task == NULL || task->due || (n->news != 'f' && task->id.epoch != n->id.epoch))
			continue;
		if (n->news == 's' || n->news == 'f')
			sas_function_hosted_forget(task);
		else if (n->news == 'r')
		{
			task->next_at = DT_NOEND;
			sas_function_hosted_set_due(task, 0);
		}
	}
}

static uint32
task_host_version(int n)
{
	return sas_wake_version(SAS_WAKE_WATCHES);
}

bool
sas_function_hosted_looks(void)
{
	return task_host_capacity > 0 && (task_host_more_wait || task_host_version_seen != sas_wake_version(SAS_WAKE_WATCHES) ||
								  task_host_nudges_seen != sas_wake_version(SAS_WAKE_WATCHES_NUDGED));
}

/* News of the tasks, and more tasks, while there is room: they become due later. */
List *
sas_function_hosted_claim(void)
{
	task_host_poll.version = sas_wake_version(SAS_WAKE_WATCHES);
	task_host_poll.nudges = sas_wake_version(SAS_WAKE_WATCHES_NUDGED);
	task_host_poll.news = task_host_poll.claimed = NIL;
	task_host_poll.node_id = sas_function_hosted_node;
	if (sas_function_hosted_node != 0 && !task_host_more_wait && task_host_poll.version == task_host_version_seen)
		sas_work_late_look(SAS_LATE_WATCH, 0, task_host_version, task_host_poll.version, DT_NOEND);
	if (sas_function_hosted_node == 0)
		task_host_poll.node_id = sas_store_register_node(task_host_capacity);
	else
	{
		task_host_poll.news = sas_store_node_news(sas_function_hosted_node, TASK_HOST_NEWS);
		task_host_read_news(task_host_poll.news);
	}
	task_host_poll.room = Min(TASK_HOST_CLAIM, task_host_capacity - sas_function_hosted_count());
	if (task_host_poll.room > 0)
		task_host_poll.claimed = sas_store_claim_watches(task_host_poll.node_id, task_host_poll.room);
	return NIL;
}

bool
sas_function_hosted_claimed(int n)
{
	ListCell   *lc;

	sas_function_hosted_node = task_host_poll.node_id;
	task_host_version_seen = task_host_poll.version;
	task_host_nudges_seen = task_host_poll.nudges;
	task_host_follow_news(task_host_poll.news);
	foreach(lc, task_host_poll.claimed)
		task_host_take(lfirst(lc));
	/* news that are read are gone, so this ends */
	task_host_more_wait = task_host_poll.news != NIL ||
		(task_host_poll.claimed != NIL && list_length(task_host_poll.claimed) == task_host_poll.room);
	return task_host_more_wait;
}

/* ---------------------------------------------------------------- what is due */

bool
sas_function_hosted_rests(const SasHostedTask *task, double *in_ms)
{
	int64		left_us = task->next_at == DT_NOEND ? 0 : task->next_at - sas_base_clock_now();

	*in_ms = Min(left_us, TASK_HOST_LOOK_US) / 1000.0;
	return left_us > 0;
}

static SasHostedTask *
task_host_first_due(void)
{
	SasHostedTask *task = pairingheap_is_empty(task_host_heap) ? NULL : pairingheap_container(SasHostedTask, node, pairingheap_first(task_host_heap));

	return task != NULL && task->due_us <= sas_base_clock_monotonic_us() ? task : NULL;
}

/* One whose time has come, and whose owner does not let others go first: at most one, so that no other waits behind it. */
void
sas_function_hosted_due(void)
{
	List	   *passed = NIL;
	SasHostedTask *task;
	ListCell   *lc;
	double		in_ms;

	while ((task = task_host_first_due()) != NULL && sas_work_turns_waits(task->work.owner))
	{
		pairingheap_remove(task_host_heap, &task->node);
		passed = lappend(passed, task);
	}
	foreach(lc, passed)
		pairingheap_add(task_host_heap, &((SasHostedTask *) lfirst(lc))->node);
	if (task == NULL)
		return;
	if (sas_function_hosted_rests(task, &in_ms))
	{
		sas_function_hosted_set_due(task, in_ms);
		return;
	}
	pairingheap_remove(task_host_heap, &task->node);
	task->due = true;
	task->work.solo = task->slow;
	task->work.not_before_us = task->work.pause_us = 0;
	task->again_in_ms = 0;		/* if it is given back before it is checked */
	sas_function_add(&task->work);
}

bool
sas_function_hosted_more(void)
{
	return task_host_more_wait;
}

/* All tasks go to other workers; the supervisor finds those whose row another transaction holds. */
void
sas_function_hosted_release(void)
{
	SasWatchId *ids = palloc(sizeof(SasWatchId) * (sas_function_hosted_count() + 1));
	HASH_SEQ_STATUS status;
	SasHostedTask *task;
	int			n = 0;

	hash_seq_init(&status, task_host_tasks);
	while ((task = hash_seq_search(&status)) != NULL)
		if (!task->due)
			ids[n++] = task->id;
	if (n == 0 || !sas_store_begin())
		return;
	(void) sas_store_release_watches(sas_function_hosted_node, ids, n);
	sas_store_commit();
	for (int i = 0; i < n; i++)
		sas_function_hosted_forget(sas_function_hosted_find(ids[i].watch_id));
}

int64
sas_function_hosted_wake_in_ms(void)
{
	const SasHostedTask *task;

	if (pairingheap_is_empty(task_host_heap))
		return -1;
	task = pairingheap_container(SasHostedTask, node, pairingheap_first(task_host_heap));
	return Max(0, (task->due_us - sas_base_clock_monotonic_us() + 999) / 1000);
}
