/* SPDX-License-Identifier: PostgreSQL */
/*
 * watches.c: the watches that this worker hosts, and what it says of them to the store.
 *
 * The worker is a node from its first turn. When the bell says that something
 * has changed it asks for its news and claims what waits, as far as it has
 * slots. In one transaction it then
 *
 *	 1. appends the batches: items and cursor of each watch, one commit for all
 *	 2. tells the connections that are over; the store says how long to rest
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

#include "agent/json.h"
#include "agent/known.h"
#include "agent/watch.h"
#include "base/clock.h"
#include "base/settings.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "wake/bell.h"

/* Calls and streams share one loop: a flood may hold a call up for some ten milliseconds, no more. */
#define SAS_WATCHES_AT_ONCE 250 /* in one transaction */
#define SAS_WATCHES_CLAIM 250
#define SAS_WATCHES_BYTES ((size_t) 1024 * 1024)	/* of items in one transaction, if there are several batches */
#define SAS_WATCHES_ITEMS 4000	/* likewise */
#define SAS_WATCHES_READ_US 10000	/* reading, between two looks at calls */
#define SAS_WATCHES_BEGIN 100	/* connections begun between two looks at the network */
#define SAS_WATCHES_TRIES 3

/* What one transaction says and hears. */
typedef struct Talk
{
	SasWatchBatch *batches;
	int			n_batches;
	SasWatchFailure *failures;
	int			n_failures;
	SasWatchId *released;
	int			n_released;
	SasWatchId *asked;
	int			n_asked;
	int			quantity;		/* to be claimed */

	List	   *taken;			/* SasWatchVerdict */
	List	   *rests;			/* SasWatchVerdict */
	List	   *news;			/* SasWatchNews */
	List	   *requests;		/* SasWatchRequest */
	List	   *claimed;		/* SasWatchRequest */
} Talk;

MemoryContext sas_watches_context;
SasTransport *sas_watches_streams;
SasTransport *sas_watches_polls;

static HTAB *watches;			/* of SasWatch, by watch_id */
static pairingheap *by_time;
static dlist_head ready = DLIST_STATIC_INIT(ready);
static dlist_head due = DLIST_STATIC_INIT(due);

static int	capacity;			/* watches that it may hold */
static int64 node_id;			/* 0: not registered yet */
static uint32 version_read;		/* of the store's news */
static bool claim_more;			/* the last claim gave all that was asked for */
static bool failed;				/* the last transaction did not commit */
static bool hearing;			/* a commit has happened whose answers are not all applied */
static int	at_once = SAS_WATCHES_AT_ONCE;
static SasWatch *in_hand;		/* what the network has brought something for, while that is looked at */

/* -------------------------------------------------------------------- lines */

static int
earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasWatch, timer, a)->wake_us;
	int64		y = pairingheap_const_container(SasWatch, timer, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
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
		dlist_push_tail(&ready, &w->node);
	else if (line == SAS_LINE_DUE)
		dlist_push_tail(&due, &w->node);
}

void
sas_watch_set_timer(SasWatch *w, int64 wake_us)
{
	if (w->wake_us != 0)
		pairingheap_remove(by_time, &w->timer);
	w->wake_us = wake_us;
	if (wake_us != 0)
		pairingheap_add(by_time, &w->timer);
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
	return sas_json_problem_at(kind, title, detail, 0, psprintf("/watches/" INT64_FORMAT, w->id.watch_id));
}

static SasWatch *
find(const SasWatchId *id)
{
	SasWatch   *w = hash_search(watches, &id->watch_id, HASH_FIND, NULL);

	return w != NULL && w->id.epoch == id->epoch ? w : NULL;
}

static void
replace(char **text, const char *with)
{
	if (*text != NULL)
		pfree(*text);
	*text = with ? MemoryContextStrdup(sas_watches_context, with) : NULL;
}

static void
drop_request(SasWatch *w)
{
	if (w->request != NULL)
		pfree(w->request);
	w->request = NULL;
}

/* Held no more. */
static void
forget(SasWatch *w)
{
	sas_watch_close(w);
	sas_items_drop(w);
	sas_watch_set_timer(w, 0);
	sas_watch_set_line(w, SAS_LINE_NONE);
	drop_request(w);
	replace(&w->cursor, NULL);
	replace(&w->hello, NULL);
	replace(&w->etag, NULL);
	replace(&w->digest, NULL);
	if (w->error != NULL)
		pfree(w->error);
	hash_search(watches, &w->id.watch_id, HASH_REMOVE, NULL);
}

/* Its connection, if any, is of no use any more; what it brought is kept. */
static void
ask_anew(SasWatch *w)
{
	sas_watch_close(w);
	drop_request(w);
	replace(&w->etag, NULL);
	w->ask = true;
	sas_watch_set_timer(w, 0);
	sas_watch_set_line(w, SAS_LINE_DUE);
}

/* ---------------------------------------------------------------- the answers */

static double
number_of(Jsonb *request, const char *name)
{
	return Max(0, sas_json_number(request, name, 0));
}

static SasWatchKind
kind_of(const SasWatchRequest *r)
{
	char	   *format = sas_json_string(r->request, "format");

	if (strcmp(r->kind, "poll") == 0)
		return SAS_WATCH_POLL;
	return format == NULL || strcmp(format, "sse") == 0 ? SAS_WATCH_SSE :
		strcmp(format, "ndjson") == 0 ? SAS_WATCH_LINES :
		strcmp(format, "ws") == 0 ? SAS_WATCH_WEBSOCKET : SAS_WATCH_LONG_POLL;
}

/* What it does next. */
static void
install(SasWatch *w, const SasWatchRequest *r)
{
	double		wait_ms = r->wait_ms;

	w->agent_id = r->agent_id;
	w->room = r->room;
	w->ask = false;
	if (r->request == NULL)
	{
		sas_watch_tell(w, r->problem ? r->problem : sas_watch_problem(w, "template", "the request cannot be made", NULL), -1);
		return;
	}
	w->kind = kind_of(r);
	drop_request(w);
	w->request = MemoryContextAlloc(sas_watches_context, VARSIZE(r->request));
	memcpy(w->request, r->request, VARSIZE(r->request));
	replace(&w->cursor, NULL);
	if (r->cursor != NULL && JB_ROOT_IS_SCALAR(r->cursor))
	{
		JsonbValue	v;

		if (JsonbExtractScalar(&r->cursor->root, &v) && v.type == jbvString)
			replace(&w->cursor, sas_json_text(&v));
	}
	replace(&w->digest, r->digest);
	w->idle_ms = number_of(r->request, "idle_timeout_ms");
	w->every_ms = number_of(r->request, "every_ms");
	w->timeout_ms = number_of(r->request, "timeout_ms");
	/* a poll that has passed something on comes again when its time has come */
	if (w->kind == SAS_WATCH_POLL && w->begun_us != 0)
		wait_ms = Max(wait_ms, w->every_ms - (sas_clock_monotonic_us() - w->begun_us) / 1000.0);
	if (wait_ms > 0)
		sas_watch_again(w, sas_clock_monotonic_us() + (int64) (wait_ms * 1000));
	else
		sas_watch_set_line(w, SAS_LINE_READY);
}

static void
take_claims(List *claimed)
{
	ListCell   *lc;

	foreach(lc, claimed)
	{
		SasWatchRequest *r = lfirst(lc);
		SasWatch   *w = hash_search(watches, &r->id.watch_id, HASH_FIND, NULL);

		if (w != NULL)
			forget(w);
		w = hash_search(watches, &r->id.watch_id, HASH_ENTER, NULL);
		memset(w, 0, sizeof(*w));
		w->id = r->id;
		install(w, r);
	}
}

/* What was asked for; those that got no answer are held no more. */
static void
take_requests(const Talk *talk)
{
	ListCell   *lc;

	foreach(lc, talk->requests)
	{
		SasWatchRequest *r = lfirst(lc);
		SasWatch   *w = find(&r->id);

		if (w != NULL && w->ask)
			install(w, r);
	}
	for (int i = 0; i < talk->n_asked; i++)
	{
		SasWatch   *w = find(&talk->asked[i]);

		if (w != NULL && w->ask && !w->release)
			forget(w);
	}
}

static void
stop(SasWatch *w)
{
	sas_watch_close(w);
	sas_watch_set_timer(w, 0);
	w->tell = w->ask = false;
	w->release = true;
	sas_watch_set_line(w, SAS_LINE_DUE);
}

/* Each batch was taken, or its watch is not ours any more. */
static void
take_verdicts(const Talk *talk)
{
	ListCell   *lc;

	foreach(lc, talk->taken)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = find(&v->id);

		if (w == NULL || w->built == NULL)
			continue;
		if (w->new_digest != NULL)
			replace(&w->digest, w->new_digest);
		sas_items_drop(w);
		w->room = v->room;
		if (v->answer == SAS_WATCH_STOP)
			stop(w);
		else if (v->answer != SAS_WATCH_GO)
			forget(w);
	}
	for (int i = 0; i < talk->n_batches; i++)
	{
		SasWatch   *w = find(&talk->batches[i].id);

		if (w != NULL && w->built != NULL)
			forget(w);
	}
}

static void
take_rests(const Talk *talk)
{
	ListCell   *lc;

	foreach(lc, talk->rests)
	{
		SasWatchVerdict *v = lfirst(lc);
		SasWatch   *w = find(&v->id);

		if (w == NULL || !w->tell)
			continue;
		w->tell = false;
		if (v->answer == SAS_WATCH_STOP)
			stop(w);
		else if (v->answer != SAS_WATCH_GO)
			forget(w);
		else
		{
			drop_request(w);
			sas_watch_set_timer(w, sas_clock_monotonic_us() + (int64) (v->pause_ms * 1000));
		}
	}
	for (int i = 0; i < talk->n_failures; i++)
	{
		SasWatch   *w = find(&talk->failures[i].id);

		if (w != NULL && w->tell)
			forget(w);
	}
}

static void
take_news(const Talk *talk)
{
	ListCell   *lc;

	foreach(lc, talk->news)
	{
		SasWatchNews *news = lfirst(lc);
		SasWatch   *w = news->news == 'f' ? hash_search(watches, &news->id.watch_id, HASH_FIND, NULL) : find(&news->id);

		if (w == NULL)
			continue;
		if (news->news == 's')
			stop(w);
		else if (news->news == 'f')
			forget(w);
		else if (news->news == 'r')
			ask_anew(w);
		else
		{
			w->room = news->room;
			if (w->handle == NULL && w->request != NULL && w->wake_us == 0)
				sas_watch_set_line(w, SAS_LINE_READY);
		}
	}
}

/* -------------------------------------------------------------- the transaction */

/* What those in line have to say, as much as fits. */
static void
gather(Talk *talk)
{
	int			most = at_once;
	size_t		bytes = 0;
	int			items = 0;
	dlist_iter	iter;

	talk->batches = palloc(sizeof(SasWatchBatch) * most);
	talk->failures = palloc(sizeof(SasWatchFailure) * most);
	talk->released = palloc(sizeof(SasWatchId) * most);
	talk->asked = palloc(sizeof(SasWatchId) * most);
	dlist_foreach(iter, &due)
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

	dlist_foreach_modify(iter, &due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->tries < SAS_WATCHES_TRIES)
			continue;
		ereport(WARNING,
				(errmsg("items of watch %lld could not be written", (long long) w->id.watch_id),
				 errdetail("It connects again and reads from its cursor.")));
		sas_items_drop(w);
		sas_watch_close(w);
		if (!w->release)
			sas_watch_tell(w, sas_watch_problem(w, "store", "items could not be written", NULL), -1);
	}
}

static void
speak(Talk *talk, bool look)
{
	if (node_id == 0)
		node_id = sas_store_register_node(capacity);
	if (talk->n_batches > 0)
		talk->taken = sas_store_append_items(node_id, talk->batches, talk->n_batches);
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

/* After the commit: all that were said leave the line, then the answers count. */
static void
hear(Talk *talk)
{
	dlist_mutable_iter iter;

	take_verdicts(talk);
	take_rests(talk);
	for (int i = 0; i < talk->n_released; i++)
	{
		SasWatch   *w = find(&talk->released[i]);

		if (w != NULL && w->release)
			forget(w);
	}
	take_requests(talk);
	dlist_foreach_modify(iter, &due)
	{
		SasWatch   *w = dlist_container(SasWatch, node, iter.cur);

		if (w->batch != NULL || w->tell || w->ask || w->release)
			continue;
		sas_watch_set_line(w, SAS_LINE_NONE);
		if (w->handle == NULL && w->request != NULL && w->wake_us == 0)
			sas_watch_set_line(w, SAS_LINE_READY);
	}
	take_news(talk);
	take_claims(talk->claimed);
}

/* What did not fit into a batch can be read now. */
static void
listen_again(const SasWatchId *id)
{
	SasWatch   *w = find(id);

	if (w != NULL && w->handle != NULL)
		sas_stream_hear_again(w->handle);
}

bool
sas_watches_turn(void)
{
	Talk		talk = {0};
	uint32		version = sas_bell_watches_version();
	bool		look = version != version_read || node_id == 0;
	int			slots = capacity - (int) hash_get_num_entries(watches);
	ListCell   *lc;

	if (hearing)
		ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("sas agent does not know which watches it holds")));
	if (failed)
	{
		at_once = 1;
		give_up();
	}
	if (dlist_is_empty(&due) && !look && !(claim_more && slots > 0))
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
	hear(&talk);
	hearing = false;

	for (int i = 0; i < talk.n_batches; i++)
		listen_again(&talk.batches[i].id);
	foreach(lc, talk.news)
		listen_again(&((SasWatchNews *) lfirst(lc))->id);
	return (claim_more && capacity > (int) hash_get_num_entries(watches)) || version != sas_bell_watches_version() || !dlist_is_empty(&due) || !dlist_is_empty(&ready);
}

/* -------------------------------------------------------------------- network */

/* What an error left half done is begun anew, from the cursor in the store. */
static void
mend(void)
{
	SasWatch   *w = in_hand;

	in_hand = NULL;
	sas_items_drop(w);
	sas_watch_close(w);
	sas_watch_tell(w, sas_watch_problem(w, "transport", "the stream cannot be read", NULL), -1);
}

static void
wake(SasWatch *w)
{
	sas_watch_set_timer(w, 0);
	if (w->handle != NULL)
		sas_watch_timed_out(w);
	else if (w->request != NULL)
		sas_watch_set_line(w, SAS_LINE_READY);
	else
	{
		w->ask = true;
		sas_watch_set_line(w, SAS_LINE_DUE);
	}
}

static void
begin_some(void)
{
	for (int i = 0; i < SAS_WATCHES_BEGIN && !dlist_is_empty(&ready); i++)
	{
		in_hand = dlist_head_element(SasWatch, node, &ready);
		sas_watch_begin(in_hand);
	}
	in_hand = NULL;
}

static void
move(SasTransport *t)
{
	SasReply   *reply;
	int64		until_us;

	sas_transport_work(t);
	until_us = sas_clock_monotonic_us() + SAS_WATCHES_READ_US;
	while ((in_hand = sas_transport_heard(t)) != NULL)
	{
		sas_watch_listen(in_hand);
		if (sas_clock_monotonic_us() >= until_us)
			break;
	}
	while ((reply = sas_transport_next(t)) != NULL)
	{
		in_hand = reply->owner;
		sas_watch_judge(in_hand, reply);
		sas_reply_free(reply);
	}
}

bool
sas_watches_move(void)
{
	int64		now;

	if (in_hand != NULL)
		mend();
	begin_some();
	move(sas_watches_streams);
	move(sas_watches_polls);
	now = sas_clock_monotonic_us();
	while (!pairingheap_is_empty(by_time))
	{
		in_hand = pairingheap_container(SasWatch, timer, pairingheap_first(by_time));
		if (in_hand->wake_us > now)
			break;
		wake(in_hand);
	}
	in_hand = NULL;
	return !dlist_is_empty(&ready);
}

int64
sas_watches_wake_in_ms(void)
{
	long		network_ms = sas_transport_timeout_ms(sas_watches_streams);
	long		polls_ms = sas_transport_timeout_ms(sas_watches_polls);
	int64		own_ms = -1;

	if (network_ms < 0 || (polls_ms >= 0 && polls_ms < network_ms))
		network_ms = polls_ms;

	if (!pairingheap_is_empty(by_time))
	{
		int64		wake_us = pairingheap_container(SasWatch, timer, pairingheap_first(by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_clock_monotonic_us() + 999) / 1000);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

/* Those of an agent that was disabled rest, those of one that was enabled begin. */
void
sas_watches_agents_changed(void)
{
	HASH_SEQ_STATUS seq;
	SasWatch   *w;

	hash_seq_init(&seq, watches);
	while ((w = hash_seq_search(&seq)) != NULL)
	{
		SasAgentEntry *agent = sas_known_agent(w->agent_id);
		bool		may = agent != NULL && agent->stored->enabled;

		if (may && w->parked && w->request != NULL && w->handle == NULL)
			sas_watch_set_line(w, SAS_LINE_READY);
		else if (!may && w->handle != NULL)
			ask_anew(w);
	}
}

static SasTransport *
open_transport(SasTransport *calls)
{
	char		why[256] = "its descriptor cannot be waited for";
	SasTransport *t = sas_transport_open(Max(capacity, 1), why, sizeof(why));

	if (t == NULL || !sas_transport_join(calls, t))
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up streams: %s", why)));
	return t;
}

void
sas_watches_open(SasTransport *calls)
{
	HASHCTL		ctl = {.keysize = sizeof(int64), .entrysize = sizeof(SasWatch)};

	sas_watches_context = AllocSetContextCreate(CurrentMemoryContext, "sas watches", ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = sas_watches_context;
	watches = hash_create("sas watches", 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	by_time = pairingheap_allocate(earlier, NULL);
	capacity = sas_watch_slots;
	sas_watches_streams = open_transport(calls);
	sas_watches_polls = open_transport(calls);
}

void
sas_watches_close(void)
{
	if (sas_watches_streams != NULL)
		sas_transport_close(sas_watches_streams);
	if (sas_watches_polls != NULL)
		sas_transport_close(sas_watches_polls);
	sas_watches_streams = sas_watches_polls = NULL;
}
