/* SPDX-License-Identifier: PostgreSQL */
/*
 * report.c: reports to the store on the watches that this worker hosts.
 *
 * The worker is a node from its first tick.  When the version of watches has
 * changed, it asks for its news and claims waiting watches, while it has
 * slots.  In one transaction it then
 *
 *	 1. appends the batches: items and cursor of each watch, one commit for all
 *	 2. reports the connections that are over, and batches that yielded no cursor
 *		at their end; the store answers how long to pause
 *	 3. releases what it was asked to stop; nothing is written for a watch whose
 *		row another transaction holds: all that is reported again in a moment
 *	 4. reads its news, asks for requests of watches that are to connect, claims
 *
 * Answers are applied after the commit, so an abort needs no clean-up.  After an abort, batches
 * are written one at a time, then in growing numbers.  A batch that is refused repeatedly is given
 * up with its connection: the store has the cursor.  An error between the commit and the last of
 * its answers ends the worker, because it would not know which watches it hosts; as after any
 * crash, its watches move to other workers.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "stream/hosted.h"
#include "stream/report.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/late.h"

/*
 * Calls and streams share one loop, and a flood of items must not delay a call
 * by more than some ten milliseconds.
 */
#define SAS_WATCHES_AT_ONCE 250 /* in one transaction */
#define SAS_WATCHES_CLAIM 250
#define SAS_WATCHES_NEWS 10000 /* most of them need nothing written */
#define SAS_WATCHES_BYTES ((size_t) 1024 * 1024)	/* of items in one transaction, if there are several batches */
#define SAS_WATCHES_ITEMS 4000	/* likewise */
#define SAS_WATCHES_ASKED ((size_t) 4 * 1024 * 1024) /* of large requests, likewise: there may be room for so many */
#define SAS_WATCHES_TRIES 3

static int64 report_node_id;	/* 0: not registered yet */
static bool report_registered;	/* and that transaction has committed */
static uint32 report_version_read; /* of the store's news */
static uint32 report_nudges_read;	/* likewise, of nudges */
static bool report_claim_more;	/* the last claim gave all that was asked for */
static bool report_failed;		/* the last transaction did not commit */
static bool report_applying;	/* the answers of the last commit are not all applied */
static int	report_at_once = SAS_WATCHES_AT_ONCE;

/* Collects the reports of the due watches, as many as fit. */
static void
report_gather(SasStreamReport *report)
{
	int			most = report_at_once;
	size_t		bytes = 0;
	size_t		asked = 0;
	int			items = 0;
	dlist_iter	iter;

	report->batches = palloc(sizeof(SasWatchBatch) * most);
	report->failures = palloc(sizeof(SasWatchFailure) * most);
	report->released = palloc(sizeof(SasWatchId) * most);
	report->asked = palloc(sizeof(SasWatchAsk) * most);
	dlist_foreach(iter, &sas_stream_hosted.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (most-- == 0 || (items > 0 && (bytes + w->bytes > SAS_WATCHES_BYTES || items + w->n_items > SAS_WATCHES_ITEMS)) ||
			(asked > 0 && asked + w->put_away > SAS_WATCHES_ASKED))
			break;
		if (w->batch != NULL)
		{
			SasWatchBatch *b = &report->batches[report->n_batches++];

			b->id = w->id;
			b->items = sas_stream_items_build(w);
			b->cursor = sas_stream_items_cursor(w);
			b->digest = w->new_digest;
			bytes += w->bytes;
			items += w->n_items;
			w->tries += report_at_once == 1;
		}
		if (w->report)
		{
			SasWatchFailure *f = &report->failures[report->n_failures++];

			f->id = w->id;
			f->error = w->error;
			f->at_least_ms = w->at_least_ms;
		}
		else if (w->release)
			report->released[report->n_released++] = w->id;
		else if (w->ask)
		{
			report->asked[report->n_asked++] = (SasWatchAsk) {w->id, w->looked};
			asked += w->put_away;
		}
	}
}

/* After an abort: a batch that was refused repeatedly is given up, with its connection. */
static void
report_give_up(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &sas_stream_hosted.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->tries < SAS_WATCHES_TRIES)
			continue;
		ereport(WARNING,
				(errmsg("could not store items of watch %lld", (long long) w->id.watch_id),
				 errdetail("The watch reconnects and reads from its cursor.")));
		sas_stream_items_drop(w);
		sas_stream_watch_close(w);
		/* otherwise the service would answer that nothing has changed */
		sas_stream_hosted_replace(&w->etag, NULL);
		if (!w->release)
			sas_stream_watch_report(w, sas_stream_watch_problem(w, "store", "could not store items", NULL), -1);
	}
}

/* Watches whose batch was cut have failed; a connection that is over is reported anyway. */
static void
report_add_cuts(SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->taken)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = v->answer == SAS_WATCH_CUT ? sas_stream_hosted_find(&v->id) : NULL;
		SasWatchFailure *f = NULL;

		if (w == NULL || w->release)
			continue;
		for (int i = 0; i < report->n_failures; i++)
			if (report->failures[i].id.watch_id == v->id.watch_id)
				f = &report->failures[i];
		/* there is room: a watch that is in line fails once */
		if (f == NULL)
		{
			f = &report->failures[report->n_failures++];
			f->id = v->id;
			f->at_least_ms = -1;
			f->error = NULL;
		}
		if (f->error == NULL)
			f->error = sas_stream_watch_problem(w, "cursor", "items yield no cursor",
												"\"cursor\" of the watcher yields nothing for the items after the last stored one");
	}
}

static bool
report_is_locked(const SasStreamReport *report, const SasWatchId *id)
{
	ListCell   *lc;

	foreach(lc, report->taken)
	{
		SasWatchVerdict *v = lfirst(lc);

		if (v->id.watch_id == id->watch_id)
			return v->answer == SAS_WATCH_LOCKED;
	}
	return false;
}

/*
 * Later reports of a watch wait for its batch: otherwise a connection would begin before its items
 * are stored.  Each entry begins with the id of its watch.
 */
static void
report_drop_locked(const SasStreamReport *report, void *entries, size_t size, int *n)
{
	int			left = 0;

	for (int i = 0; i < *n; i++)
	{
		char	   *entry = (char *) entries + i * size;

		if (!report_is_locked(report, (SasWatchId *) entry))
			memmove((char *) entries + left++ * size, entry, size);
	}
	*n = left;
}

static void
report_write(SasStreamReport *report, bool read_news)
{
	if (report_node_id == 0)
		report_node_id = sas_store_register_node(sas_stream_hosted.capacity);
	if (report->n_batches > 0)
		report->taken = sas_store_append_items(report_node_id, report->batches, report->n_batches);
	report_drop_locked(report, report->failures, sizeof(SasWatchFailure), &report->n_failures);
	report_drop_locked(report, report->released, sizeof(SasWatchId), &report->n_released);
	report_drop_locked(report, report->asked, sizeof(SasWatchAsk), &report->n_asked);
	report_add_cuts(report);
	if (report->n_failures > 0)
		report->pauses = sas_store_fail_watches(report_node_id, report->failures, report->n_failures);
	if (report->n_released > 0)
		report->kept = sas_store_release_watches(report_node_id, report->released, report->n_released);
	if (read_news)
		report->news = sas_store_node_news(report_node_id, SAS_WATCHES_NEWS);
	if (report->n_asked > 0)
		report->requests = sas_store_watch_requests(report_node_id, report->asked, report->n_asked);
	if (report->quantity > 0)
		report->claimed = sas_store_claim_watches(report_node_id, report->quantity);
}

/* Items that did not fit into a batch can be read now. */
static void
report_read_again(const SasWatchId *id)
{
	SasWatch   *w = sas_stream_hosted_find(id);

	if (w != NULL && w->handle != NULL)
		sas_transport_stream_announce_again(w->handle);
}

static uint32
report_version(int n)
{
	return sas_wake_version(SAS_WAKE_WATCHES);
}

bool
sas_stream_tick(void)
{
	SasStreamReport report = {0};
	uint32		version = sas_wake_version(SAS_WAKE_WATCHES);
	uint32		nudges = sas_wake_version(SAS_WAKE_WATCHES_NUDGED);
	bool		prompted = version != report_version_read || report_node_id == 0;
	bool		read_news = prompted || nudges != report_nudges_read;
	int			slots = sas_stream_hosted.capacity - (int) hash_get_num_entries(sas_stream_hosted.watches);
	ListCell   *lc;

	if (report_applying)
		ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("sas agent has lost track of its watches")));
	if (report_failed)
	{
		if (!report_registered)
			report_node_id = 0;
		report_at_once = 1;
		report_give_up();
	}
	if (dlist_is_empty(&sas_stream_hosted.due) && !read_news && !(report_claim_more && slots > 0))
		return !dlist_is_empty(&sas_stream_hosted.ready);
	if (read_news && !prompted && !report_claim_more)
		sas_work_late_look(SAS_LATE_WATCH, 0, report_version, version, DT_NOEND);
	report_gather(&report);
	/* after an abort, batches are written without news and claims */
	if (report_failed && report.n_batches > 0)
		read_news = false;
	else if (read_news || report_claim_more)
		report.quantity = Max(0, Min(slots, SAS_WATCHES_CLAIM));
	report_failed = true;
	if (!sas_store_begin())
		return false;
	report_write(&report, read_news);
	sas_store_commit();
	report_registered = true;
	report_applying = true;
	report_failed = false;
	report_at_once = Min(SAS_WATCHES_AT_ONCE, report_at_once * 2);
	if (read_news)
	{
		report_version_read = version;
		report_nudges_read = nudges;
	}
	if (report.quantity > 0)
		report_claim_more = list_length(report.claimed) == report.quantity;
	sas_stream_apply(&report);
	report_applying = false;

	for (int i = 0; i < report.n_batches; i++)
		report_read_again(&report.batches[i].id);
	foreach(lc, report.news)
		report_read_again(&((SasWatchNews *) lfirst(lc))->id);
	return (report_claim_more && sas_stream_hosted.capacity > (int) hash_get_num_entries(sas_stream_hosted.watches)) ||
		version != sas_wake_version(SAS_WAKE_WATCHES) || !dlist_is_empty(&sas_stream_hosted.due) || !dlist_is_empty(&sas_stream_hosted.ready);
}
