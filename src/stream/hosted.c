/* SPDX-License-Identifier: PostgreSQL */
/*
 * hosted.c: who is held, in which line, and until when.
 */
#include "postgres.h"

#include "stream/hosted.h"
#include "work/json.h"
#include "utils/memutils.h"

SasHeld		sas_held;
MemoryContext sas_watches_context;

static int
earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasWatch, timer, a)->wake_us;
	int64		y = pairingheap_const_container(SasWatch, timer, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

void
sas_held_open(int capacity)
{
	HASHCTL		ctl = {.keysize = sizeof(int64), .entrysize = sizeof(SasWatch)};

	sas_watches_context = AllocSetContextCreate(CurrentMemoryContext, "sas watches", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = sas_watches_context;
	sas_held.watches = hash_create("sas watches", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	sas_held.by_time = pairingheap_allocate(earlier, NULL);
	sas_held.capacity = capacity;
	dlist_init(&sas_held.ready);
	dlist_init(&sas_held.due);
}

void
sas_watch_set_line(SasWatch *w, SasWatchLine line)
{
	/* what is due is not begun before it is said */
	if (w->line == line || (w->line == SAS_LINE_DUE && line == SAS_LINE_READY))
		return;
	if (w->line != SAS_LINE_NONE)
		dlist_delete(&w->node);
	w->line = line;
	if (line == SAS_LINE_READY)
		dlist_push_tail(&sas_held.ready, &w->node);
	else if (line == SAS_LINE_DUE)
		dlist_push_tail(&sas_held.due, &w->node);
}

void
sas_watch_set_timer(SasWatch *w, int64 wake_us)
{
	if (w->wake_us != 0)
		pairingheap_remove(sas_held.by_time, &w->timer);
	w->wake_us = wake_us;
	if (wake_us != 0)
		pairingheap_add(sas_held.by_time, &w->timer);
}

void
sas_watch_again(SasWatch *w, int64 at_us)
{
	sas_watch_set_timer(w, at_us);
}

void
sas_watch_tell(SasWatch *w, Jsonb *error, double at_least_ms)
{
	w->tell = true;
	w->at_least_ms = at_least_ms;
	if (w->error != NULL)
		pfree(w->error);
	w->error = NULL;
	if (error != NULL)
	{
		w->error = MemoryContextAlloc(sas_watches_context, VARSIZE(error));
		memcpy(w->error, error, VARSIZE(error));
	}
	sas_watch_set_timer(w, 0);
	sas_watch_set_line(w, SAS_LINE_DUE);
}

Jsonb *
sas_watch_problem(const SasWatch *w, const char *kind, const char *title, const char *detail)
{
	return sas_work_json_problem_at(kind, title, detail, 0, psprintf("/watches/" INT64_FORMAT, w->id.watch_id));
}

SasWatch *
sas_held_find(const SasWatchId *id)
{
	SasWatch   *w = hash_search(sas_held.watches, &id->watch_id, HASH_FIND, NULL);

	return w != NULL && w->id.epoch == id->epoch ? w : NULL;
}

void
sas_held_replace(char **text, const char *with)
{
	if (*text != NULL)
		pfree(*text);
	*text = with ? MemoryContextStrdup(sas_watches_context, with) : NULL;
}

void
sas_held_drop_request(SasWatch *w)
{
	if (w->request != NULL)
		pfree(w->request);
	w->request = NULL;
}

void
sas_held_forget(SasWatch *w)
{
	sas_watch_close(w);
	sas_items_drop(w);
	sas_watch_set_timer(w, 0);
	sas_watch_set_line(w, SAS_LINE_NONE);
	sas_held_drop_request(w);
	sas_held_replace(&w->cursor, NULL);
	sas_held_replace(&w->hello, NULL);
	sas_held_replace(&w->etag, NULL);
	sas_held_replace(&w->digest, NULL);
	if (w->error != NULL)
		pfree(w->error);
	hash_search(sas_held.watches, &w->id.watch_id, HASH_REMOVE, NULL);
}

void
sas_held_ask_anew(SasWatch *w)
{
	sas_watch_close(w);
	sas_held_drop_request(w);
	sas_held_replace(&w->etag, NULL);
	w->ask = true;
	sas_watch_set_timer(w, 0);
	sas_watch_set_line(w, SAS_LINE_DUE);
}
