/* SPDX-License-Identifier: PostgreSQL */
/*
 * report.c: what this worker says to the store of the watches that it hosts.
 *
 * The worker is a node from its first turn. When the bell says that something
 * has changed it asks for its news and claims what waits, as far as it has
 * slots. In one transaction it then
 *
 *	 1. appends the batches: items and cursor of each watch, one commit for all
 *	 2. tells the connections that are over, and batches that yielded no cursor
 *		at their end; the store says how long to rest
 *	 3. releases what it was asked to stop
 *	 4. reads its news, asks for requests of watches that are to connect, claims
 *
 * Answers are applied after the commit: what an abort takes back was never
 * believed. After an abort batches go alone, then in growing numbers; one that
 * is refused again and again is given up with its connection: the store knows
 * where it was. An error between the commit and the last of its answers ends
 * the worker, since it would not know what it holds; as with any death its
 * watches are given to others.
 */
#include "postgres.h"

#include "stream/hosted.h"
#include "stream/report.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"

/* Calls and streams share one loop: a flood may hold a call up for some ten milliseconds, no more. */
#define SAS_WATCHES_AT_ONCE 250 /* in one transaction */
#define SAS_WATCHES_CLAIM 250
#define SAS_WATCHES_BYTES ((size_t) 1024 * 1024)	/* of items in one transaction, if there are several batches */
#define SAS_WATCHES_ITEMS 4000	/* likewise */
#define SAS_WATCHES_TRIES 3

static int64 node_id;			/* 0: not registered yet */
static uint32 version_read;		/* of the store's news */
static bool claim_more;			/* the last claim gave all that was asked for */
static bool failed;				/* the last transaction did not commit */
static bool hearing;			/* a commit has happened whose answers are not all applied */
static int	at_once = SAS_WATCHES_AT_ONCE;

/* What those in line have to say, as much as fits. */
static void
gather(SasTalk *talk)
{
	int			most = at_once;
	size_t		bytes = 0;
	int			items = 0;
	dlist_iter	iter;

	talk->batches = palloc(sizeof(SasWatchBatch) * most);
	talk->failures = palloc(sizeof(SasWatchFailure) * most);
	talk->released = palloc(sizeof(SasWatchId) * most);
	talk->asked = palloc(sizeof(SasWatchId) * most);
	dlist_foreach(iter, &sas_held.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (most-- == 0 || (items > 0 && (bytes + w->bytes > SAS_WATCHES_BYTES || items + w->n_items > SAS_WATCHES_ITEMS)))
			break;
		if (w->batch != NULL)
		{
			SasWatchBatch *b = &talk->batches[talk->n_batches++];

			b->id = w->id;
			b->items = sas_items_build(w);
			b->cursor = sas_items_cursor(w);
			b->digest = w->new_digest;
			bytes += w->bytes;
			items += w->n_items;
			w->tries += at_once == 1;
		}
		if (w->tell)
		{
			SasWatchFailure *f = &talk->failures[talk->n_failures++];

			f->id = w->id;
			f->error = w->error;
			f->at_least_ms = w->at_least_ms;
		}
		else if (w->release)
			talk->released[talk->n_released++] = w->id;
		else if (w->ask)
			talk->asked[talk->n_asked++] = w->id;
	}
}

/* After an abort: a batch that was refused again and again is given up, with its connection. */
static void
give_up(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &sas_held.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->tries < SAS_WATCHES_TRIES)
			continue;
		ereport(WARNING,
				(errmsg("items of watch %lld could not be written", (long long) w->id.watch_id),
				 errdetail("It connects again and reads from its cursor.")));
		sas_items_drop(w);
		sas_watch_close(w);
		/* or the service would say that nothing has changed */
		sas_held_replace(&w->etag, NULL);
		if (!w->release)
			sas_watch_tell(w, sas_watch_problem(w, "store", "items could not be written", NULL), -1);
	}
}

/* Watches whose batch was cut have failed; those whose connection is over are told anyway. */
static void
add_cuts(SasTalk *talk)
{
	ListCell   *lc;

	foreach(lc, talk->taken)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = v->answer == SAS_WATCH_CUT ? sas_held_find(&v->id) : NULL;
		SasWatchFailure *f = NULL;

		if (w == NULL || w->release)
			continue;
		for (int i = 0; i < talk->n_failures; i++)
			if (talk->failures[i].id.watch_id == v->id.watch_id)
				f = &talk->failures[i];
		/* there is room: a watch that is in line fails once */
		if (f == NULL)
		{
			f = &talk->failures[talk->n_failures++];
			f->id = v->id;
			f->at_least_ms = -1;
			f->error = NULL;
		}
		if (f->error == NULL)
			f->error = sas_watch_problem(w, "cursor", "items yield no cursor",
										 "of the items behind the last one that was taken in, \"cursor\" of the watcher makes nothing");
	}
}

static void
speak(SasTalk *talk, bool look)
{
	if (node_id == 0)
		node_id = sas_store_register_node(sas_held.capacity);
	if (talk->n_batches > 0)
		talk->taken = sas_store_append_items(node_id, talk->batches, talk->n_batches);
	add_cuts(talk);
	if (talk->n_failures > 0)
		talk->rests = sas_store_fail_watches(node_id, talk->failures, talk->n_failures);
	if (talk->n_released > 0)
		sas_store_release_watches(node_id, talk->released, talk->n_released);
	if (look)
		talk->news = sas_store_node_news(node_id);
	if (talk->n_asked > 0)
		talk->requests = sas_store_watch_requests(node_id, talk->asked, talk->n_asked);
	if (talk->quantity > 0)
		talk->claimed = sas_store_claim_watches(node_id, talk->quantity);
}

/* What did not fit into a batch can be read now. */
static void
listen_again(const SasWatchId *id)
{
	SasWatch   *w = sas_held_find(id);

	if (w != NULL && w->handle != NULL)
		sas_transport_stream_announce_again(w->handle);
}

bool
sas_watches_turn(void)
{
	SasTalk		talk = {0};
	uint32		version = sas_wake_watches_version();
	bool		look = version != version_read || node_id == 0;
	int			slots = sas_held.capacity - (int) hash_get_num_entries(sas_held.watches);
	ListCell   *lc;

	if (hearing)
		ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("sas agent does not know which watches it holds")));
	if (failed)
	{
		at_once = 1;
		give_up();
	}
	if (dlist_is_empty(&sas_held.due) && !look && !(claim_more && slots > 0))
		return false;
	gather(&talk);
	/* what is written after an abort goes alone */
	if (failed && talk.n_batches > 0)
		look = false;
	else if (look || claim_more)
		talk.quantity = Max(0, Min(slots, SAS_WATCHES_CLAIM));
	failed = true;
	if (!sas_store_begin())
		return false;
	speak(&talk, look);
	sas_store_commit();
	hearing = true;
	failed = false;
	at_once = Min(SAS_WATCHES_AT_ONCE, at_once * 2);
	if (look)
		version_read = version;
	if (talk.quantity > 0)
		claim_more = list_length(talk.claimed) == talk.quantity;
	sas_talk_hear(&talk);
	hearing = false;

	for (int i = 0; i < talk.n_batches; i++)
		listen_again(&talk.batches[i].id);
	foreach(lc, talk.news)
		listen_again(&((SasWatchNews *) lfirst(lc))->id);
	return (claim_more && sas_held.capacity > (int) hash_get_num_entries(sas_held.watches)) || version != sas_wake_watches_version() || !dlist_is_empty(&sas_held.due) || !dlist_is_empty(&sas_held.ready);
}
