/* SPDX-License-Identifier: PostgreSQL */
/*
 * apply.c: applies the answers of the store to each watch.
 *
 * Only a lack of memory can stop this half-way; it ends the worker, see
 * report.c.
 */
#include "postgres.h"

#include "base/clock.h"
#include "stream/hosted.h"
#include "stream/report.h"
#include "utils/memutils.h"
#include "work/json.h"

static double
apply_number(Jsonb *request, const char *name)
{
	return Max(0, sas_work_json_number(request, name, 0));
}

static SasWatchKind
apply_kind(const SasWatchRequest *r)
{
	char	   *format = sas_work_json_string(r->request, "format");

	if (strcmp(r->kind, "poll") == 0)
		return SAS_WATCH_POLL;
	return format == NULL || strcmp(format, "sse") == 0 ? SAS_WATCH_SSE :
		strcmp(format, "ndjson") == 0 ? SAS_WATCH_LINES :
		strcmp(format, "ws") == 0 ? SAS_WATCH_WEBSOCKET : SAS_WATCH_LONG_POLL;
}

/* Decides the next action of the watch; without a request it is asked for again (apply_left_out). */
static void
apply_request(SasWatch *w, const SasWatchRequest *r)
{
	double		wait_ms = r->wait_ms;
	bool		has_room;

	w->agent_id = r->agent_id;
	w->owner = r->owner;
	w->room = r->room;
	w->ask = false;
	w->next_at = r->next_at;
	w->looked = false;
	if (r->problem != NULL)
	{
		sas_stream_watch_report(w, r->problem, -1);
		return;
	}
	if (r->request == NULL)
		return;
	w->kind = apply_kind(r);
	has_room = sas_stream_hosted_keep_request(w, r->request);
	sas_stream_hosted_replace(&w->cursor, NULL);
	if (r->cursor != NULL && JB_ROOT_IS_SCALAR(r->cursor))
	{
		JsonbValue	v;

		if (JsonbExtractScalar(&r->cursor->root, &v) && v.type == jbvString)
			sas_stream_hosted_replace(&w->cursor, sas_work_json_text(&v));
	}
	sas_stream_hosted_replace(&w->digest, r->digest);
	w->idle_ms = apply_number(r->request, "idle_timeout_ms");
	w->every_ms = apply_number(r->request, "every_ms");
	w->timeout_ms = apply_number(r->request, "timeout_ms");
	/* a poll that has delivered an item is repeated at its next time */
	if (w->kind == SAS_WATCH_POLL && w->begun_us != 0)
		wait_ms = Max(wait_ms, w->every_ms - (sas_base_clock_monotonic_us() - w->begun_us) / 1000.0);
	if (wait_ms <= 0 && !sas_stream_watch_rest(w))
	{
		if (has_room)
			sas_stream_watch_set_line(w, SAS_LINE_READY);
		else
			sas_stream_watch_wait_for_room(w);
		return;
	}
	if (wait_ms > 0)
		sas_stream_watch_set_timer(w, sas_base_clock_monotonic_us() + (int64) (wait_ms * 1000));
	sas_stream_hosted_put_away(w);
}

/*
 * Some requests are not built yet, because those before them took long.  They go to the end of the
 * line, so that no role's requests keep all others waiting.
 */
static void
apply_left_out(List *requests)
{
	ListCell   *lc;

	foreach(lc, requests)
	{
		SasWatchRequest *r = lfirst(lc);
		SasWatch   *w = r->request == NULL && r->problem == NULL ? sas_stream_hosted_find(&r->id) : NULL;

		if (w == NULL || w->release)
			continue;
		w->ask = true;
		sas_stream_watch_set_line(w, SAS_LINE_NONE);
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
	}
}

static void
apply_claims(List *claimed)
{
	ListCell   *lc;

	foreach(lc, claimed)
	{
		SasWatchRequest *r = lfirst(lc);
		SasWatch   *w = hash_search(sas_stream_hosted.watches, &r->id.watch_id, HASH_FIND, NULL);

		if (w != NULL)
			sas_stream_hosted_forget(w);
		w = hash_search(sas_stream_hosted.watches, &r->id.watch_id, HASH_ENTER, NULL);
		memset(w, 0, sizeof(*w));
		w->id = r->id;
		apply_request(w, r);
	}
	apply_left_out(claimed);
}

/* Takes the requests that were asked for; watches without an answer are no longer hosted here. */
static void
apply_requests(const SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->requests)
	{
		SasWatchRequest *r = lfirst(lc);
		SasWatch   *w = sas_stream_hosted_find(&r->id);

		if (w != NULL && w->ask)
			apply_request(w, r);
	}
	for (int i = 0; i < report->n_asked; i++)
	{
		SasWatch   *w = sas_stream_hosted_find(&report->asked[i].id);

		if (w != NULL && w->ask && !w->release)
			sas_stream_hosted_forget(w);
	}
	apply_left_out(report->requests);
}

static void
apply_stop(SasWatch *w)
{
	sas_stream_watch_close(w);
	sas_stream_watch_set_timer(w, 0);
	w->report = w->ask = false;
	w->release = true;
	sas_stream_watch_set_line(w, SAS_LINE_DUE);
}

/*
 * The end of its batch was not stored, and is reported as a failure: the service sends these items
 * again after the cursor.
 */
static void
apply_cut(SasWatch *w)
{
	sas_stream_watch_close(w);
	/* otherwise the service would answer that nothing has changed */
	sas_stream_hosted_replace(&w->etag, NULL);
	if (w->release)
		return;
	w->ask = w->looked = false;
	w->report = true;
}

/* Each batch was stored, or its watch is no longer hosted here. */
static void
apply_verdicts(const SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->taken)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = sas_stream_hosted_find(&v->id);

		if (w == NULL || w->built == NULL)
			continue;
		w->locked = v->answer == SAS_WATCH_LOCKED;
		if (w->locked)
		{
			w->tries = 0;
			continue;
		}
		if (w->new_digest != NULL && v->answer != SAS_WATCH_CUT)
			sas_stream_hosted_replace(&w->digest, w->new_digest);
		sas_stream_items_drop(w);
		w->room = v->room;
		if (v->answer == SAS_WATCH_STOP)
			apply_stop(w);
		else if (v->answer == SAS_WATCH_CUT)
			apply_cut(w);
		else if (v->answer != SAS_WATCH_GO)
			sas_stream_hosted_forget(w);
	}
	for (int i = 0; i < report->n_batches; i++)
	{
		SasWatch   *w = sas_stream_hosted_find(&report->batches[i].id);

		if (w != NULL && w->built != NULL && !w->locked)
			sas_stream_hosted_forget(w);
	}
}

static void
apply_pauses(const SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->pauses)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = sas_stream_hosted_find(&v->id);

		if (w == NULL || !w->report)
			continue;
		if (v->answer == SAS_WATCH_LOCKED)
		{
			w->locked = true;
			continue;
		}
		w->report = false;
		if (v->answer == SAS_WATCH_STOP)
			apply_stop(w);
		else if (v->answer != SAS_WATCH_GO)
			sas_stream_hosted_forget(w);
		else
		{
			sas_stream_hosted_drop_request(w);
			sas_stream_watch_set_timer(w, sas_base_clock_monotonic_us() + (int64) (v->pause_ms * 1000));
		}
	}
	for (int i = 0; i < report->n_failures; i++)
	{
		SasWatch   *w = sas_stream_hosted_find(&report->failures[i].id);

		if (w != NULL && w->report && !w->locked)
			sas_stream_hosted_forget(w);
	}
}

/* Released watches are no longer hosted here, except those that another transaction has locked. */
static void
apply_releases(const SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->kept)
	{
		SasWatch   *w = sas_stream_hosted_find(lfirst(lc));

		if (w != NULL)
			w->locked = true;
	}
	for (int i = 0; i < report->n_released; i++)
	{
		SasWatch   *w = sas_stream_hosted_find(&report->released[i]);

		if (w != NULL && w->release && !w->locked)
			sas_stream_hosted_forget(w);
	}
}

static void
apply_news(const SasStreamReport *report)
{
	ListCell   *lc;

	foreach(lc, report->news)
	{
		SasWatchNews *news = lfirst(lc);
		SasWatch   *w = news->news == 'f' ? hash_search(sas_stream_hosted.watches, &news->id.watch_id, HASH_FIND, NULL) : sas_stream_hosted_find(&news->id);

		if (w == NULL)
			continue;
		if (news->news == 's')
			apply_stop(w);
		else if (news->news == 'f')
			sas_stream_hosted_forget(w);
		else if (news->news == 'r')
			sas_stream_hosted_ask_again(w);
		else
		{
			w->room = news->room;
			sas_stream_hosted_continue(w);
		}
	}
}

void
sas_stream_apply(SasStreamReport *report)
{
	dlist_mutable_iter iter;

	apply_verdicts(report);
	apply_pauses(report);
	apply_releases(report);
	apply_requests(report);
	dlist_foreach_modify(iter, &sas_stream_hosted.due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->batch != NULL || w->report || w->ask || w->release)
			continue;
		sas_stream_watch_set_line(w, SAS_LINE_NONE);
		sas_stream_hosted_continue(w);
	}
	sas_stream_hosted_set_locked();
	apply_news(report);
	apply_claims(report->claimed);
}
