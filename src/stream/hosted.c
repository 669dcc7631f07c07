/* SPDX-License-Identifier: PostgreSQL */
/*
 * hosted.c: the hosted watches, the lines in which they wait, and their timers.
 */
#include "postgres.h"

#include "base/clock.h"
#include "stream/hosted.h"
#include "utils/memutils.h"
#include "work/failure.h"
#include "work/json.h"

/*
 * Rows that other transactions have locked are tried again after this time, which doubles while
 * they stay locked.
 */
#define HOSTED_LOCKED_MS 20
#define HOSTED_LOCKED_MAX_MS 1000
/* A request of so many bytes counts, and is kept only until it is sent. */
#define HOSTED_LARGE 8192
#define SAS_LOOK_US (60 * INT64CONST(1000000))

SasHosted	sas_stream_hosted;
MemoryContext sas_stream_context;

static int
hosted_earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasWatch, timer, a)->wake_us;
	int64		y = pairingheap_const_container(SasWatch, timer, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

void
sas_stream_hosted_open(int capacity)
{
	HASHCTL		ctl = {.keysize = sizeof(int64), .entrysize = sizeof(SasWatch)};

	sas_stream_context = AllocSetContextCreate(CurrentMemoryContext, "sas watches", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = sas_stream_context;
	sas_stream_hosted.watches = hash_create("sas watches", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	sas_stream_hosted.by_time = pairingheap_allocate(hosted_earlier, NULL);
	sas_stream_hosted.capacity = capacity;
	dlist_init(&sas_stream_hosted.ready);
	dlist_init(&sas_stream_hosted.due);
	dlist_init(&sas_stream_hosted.locked);
}

void
sas_stream_watch_set_line(SasWatch *w, SasWatchLine line)
{
	/* a due watch does not connect before it has reported */
	if (w->line == line || (w->line == SAS_LINE_DUE && line == SAS_LINE_READY) ||
		(w->line == SAS_LINE_LOCKED && line != SAS_LINE_NONE))
		return;
	if (w->line != SAS_LINE_NONE)
		dlist_delete(&w->node);
	w->line = line;
	if (line == SAS_LINE_READY)
		dlist_push_tail(&sas_stream_hosted.ready, &w->node);
	else if (line == SAS_LINE_DUE)
		dlist_push_tail(&sas_stream_hosted.due, &w->node);
	else if (line == SAS_LINE_LOCKED)
		dlist_push_tail(&sas_stream_hosted.locked, &w->node);
}

void
sas_stream_hosted_set_locked(void)
{
	dlist_mutable_iter iter;
	bool		none = dlist_is_empty(&sas_stream_hosted.locked);

	dlist_foreach_modify(iter, &sas_stream_hosted.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->locked)
			sas_stream_watch_set_line(w, SAS_LINE_LOCKED);
	}
	if (dlist_is_empty(&sas_stream_hosted.locked))
		sas_stream_hosted.locked_pause_ms = HOSTED_LOCKED_MS;
	else if (none)
	{
		sas_stream_hosted.locked_until_us = sas_base_clock_monotonic_us() + sas_stream_hosted.locked_pause_ms * 1000;
		sas_stream_hosted.locked_pause_ms = Min(HOSTED_LOCKED_MAX_MS, sas_stream_hosted.locked_pause_ms * 2);
	}
}

void
sas_stream_hosted_end_pause(int64 now_us)
{
	if (dlist_is_empty(&sas_stream_hosted.locked) || sas_stream_hosted.locked_until_us > now_us)
		return;
	while (!dlist_is_empty(&sas_stream_hosted.locked))
	{
		SasWatch   *w = dlist_head_element(SasWatch, node, &sas_stream_hosted.locked);

		w->locked = false;
		sas_stream_watch_set_line(w, SAS_LINE_NONE);
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	}
}

void
sas_stream_watch_set_timer(SasWatch *w, int64 wake_us)
{
	if (w->wake_us != 0)
		pairingheap_remove(sas_stream_hosted.by_time, &w->timer);
	w->wake_us = wake_us;
	if (wake_us != 0)
		pairingheap_add(sas_stream_hosted.by_time, &w->timer);
}

bool
sas_stream_watch_rest(SasWatch *w)
{
	int64		left_us = w->kind == SAS_WATCH_POLL && w->next_at != DT_NOEND ? w->next_at - sas_base_clock_now() : 0;

	if (left_us <= 0)
		return false;
	sas_stream_watch_set_timer(w, sas_base_clock_monotonic_us() + Min(left_us, SAS_LOOK_US));
	return true;
}

void
sas_stream_watch_report(SasWatch *w, Jsonb *error, double at_least_ms)
{
	w->report = true;
	w->at_least_ms = at_least_ms;
	if (w->error != NULL)
		pfree(w->error);
	w->error = sas_work_json_copy(sas_stream_context, error);
	if (error != NULL)
		sas_work_failure_log(psprintf("watch " INT64_FORMAT, w->id.watch_id), error);
	sas_stream_watch_set_timer(w, 0);
	sas_stream_watch_set_line(w, SAS_LINE_DUE);
}

Jsonb *
sas_stream_watch_problem(const SasWatch *w, const char *kind, const char *title, const char *detail)
{
	return sas_work_json_problem(kind, title, detail, 0, psprintf("/watches/" INT64_FORMAT, w->id.watch_id));
}

SasWatch *
sas_stream_hosted_find(const SasWatchId *id)
{
	SasWatch   *w = hash_search(sas_stream_hosted.watches, &id->watch_id, HASH_FIND, NULL);

	return w != NULL && w->id.epoch == id->epoch ? w : NULL;
}

void
sas_stream_hosted_replace(char **text, const char *with)
{
	if (*text != NULL)
		pfree(*text);
	*text = with ? MemoryContextStrdup(sas_stream_context, with) : NULL;
}

SasTransportShare *
sas_stream_hosted_enter(SasWatch *w)
{
	if (w->memory == NULL)
		w->memory = sas_work_room_enter(w->agent_id, w->owner);
	return w->memory;
}

void
sas_stream_hosted_leave(SasWatch *w)
{
	if (w->memory == NULL || w->held > 0 || w->answered > 0 || w->handle != NULL)
		return;
	sas_work_room_leave(w->memory);
	w->memory = NULL;
}

bool
sas_stream_hosted_keep_request(SasWatch *w, Jsonb *request)
{
	size_t		size = VARSIZE(request);

	w->put_away = 0;
	sas_stream_hosted_drop_request(w);
	if (size > HOSTED_LARGE)
	{
		if (!sas_work_room_for(w->agent_id, w->owner))
		{
			w->put_away = size;
			return false;
		}
		w->held = size;
		sas_transport_hold(sas_stream_polls, sas_stream_hosted_enter(w), w->held);
	}
	w->request = sas_work_json_copy(sas_stream_context, request);
	return true;
}

void
sas_stream_hosted_drop_request(SasWatch *w)
{
	if (w->request != NULL)
		pfree(w->request);
	w->request = NULL;
	if (w->held > 0)
		sas_transport_hold(sas_stream_polls, w->memory, -(ptrdiff_t) w->held);
	w->held = 0;
	sas_stream_hosted_leave(w);
}

void
sas_stream_hosted_put_away(SasWatch *w)
{
	size_t		size = w->held;

	if (size == 0)
		return;
	sas_stream_hosted_drop_request(w);
	w->put_away = size;
}

void
sas_stream_hosted_continue(SasWatch *w)
{
	if (w->handle != NULL || w->wake_us != 0)
		return;
	if (w->request != NULL)
		sas_stream_watch_set_line(w, SAS_LINE_READY);
	else if (w->put_away > 0 && !w->report && !w->release)
	{
		w->ask = true;
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	}
}

void
sas_stream_hosted_forget(SasWatch *w)
{
	sas_stream_watch_close(w);
	sas_stream_items_drop(w);
	sas_stream_watch_set_timer(w, 0);
	sas_stream_watch_set_line(w, SAS_LINE_NONE);
	sas_stream_hosted_drop_request(w);
	sas_stream_hosted_replace(&w->cursor, NULL);
	sas_stream_hosted_replace(&w->hello, NULL);
	sas_stream_hosted_replace(&w->ws_key, NULL);
	sas_stream_hosted_replace(&w->ws_protocols, NULL);
	sas_stream_hosted_replace(&w->etag, NULL);
	sas_stream_hosted_replace(&w->digest, NULL);
	list_free_deep(w->secrets);
	if (w->error != NULL)
		pfree(w->error);
	hash_search(sas_stream_hosted.watches, &w->id.watch_id, HASH_REMOVE, NULL);
}

void
sas_stream_hosted_ask_again(SasWatch *w)
{
	sas_stream_watch_close(w);
	sas_stream_hosted_drop_request(w);
	sas_stream_hosted_replace(&w->etag, NULL);
	w->ask = true;
	sas_stream_watch_set_timer(w, 0);
	sas_stream_watch_set_line(w, SAS_LINE_DUE);
}
