/* SPDX-License-Identifier: PostgreSQL */
/*
 * items.c: turns the bytes of a connection into the items of a batch.
 *
 *	  Server-Sent Events	{"id": ..., "event": ..., "data": ...}
 *	  lines					the value of the line
 *	  WebSocket				the value of the message
 *	  long poll				each element of the array, or the body
 *	  poll					{"status": ..., "headers": ..., "body": ...}
 *
 * Text that is not JSON becomes a string, bytes that are not text become
 * {"base64": ...}: whatever a service sends, the watch continues.  The size
 * of a batch is bounded, and so are the incomplete items of all streams
 * together.
 */
#include "postgres.h"

#include "base/utf8.h"
#include "lib/stringinfo.h"
#include "stream/hosted.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "work/agents.h"
#include "work/json.h"
#include "work/outcome.h"
#include "work/secrets.h"
#include "work/value.h"

#define SAS_BATCH_ITEMS 1000
#define SAS_BATCH_BYTES (1024 * 1024)

/* of all streams together; a stream that buffers less than its share never fails because of it */
#define SAS_BUFFERED_BYTES ((size_t) 256 * 1024 * 1024)
#define SAS_BUFFERED_SHARE ((size_t) 64 * 1024)

static size_t stream_items_buffered;

/* Counts what the framer of the watch buffers now. */
static void
stream_items_count(SasWatch *w)
{
	size_t		size = w->framer != NULL ? sas_framing_size(w->framer) : 0;

	stream_items_buffered += size - w->buffered;
	w->buffered = size;
}

static void
stream_items_open_batch(SasWatch *w)
{
	if (w->batch != NULL)
		return;
	w->batch = AllocSetContextCreate(sas_stream_context, "sas items", ALLOCSET_SMALL_SIZES);
	w->items = NULL;
	w->n_items = 0;
	w->bytes = 0;
}

void
sas_stream_items_drop(SasWatch *w)
{
	if (w->batch != NULL)
		MemoryContextDelete(w->batch);
	w->batch = NULL;
	w->items = NULL;
	w->built = NULL;
	w->new_digest = NULL;
	w->new_cursor = NULL;
	w->n_items = 0;
	w->bytes = 0;
	w->tries = 0;
	if (w->answered > 0)
		sas_transport_hold(sas_stream_polls, w->memory, -(ptrdiff_t) w->answered);
	w->answered = 0;
	sas_stream_hosted_leave(w);
}

bool
sas_stream_items_room(const SasWatch *w)
{
	return w->n_items < Min(SAS_BATCH_ITEMS, w->room) && w->bytes < SAS_BATCH_BYTES;
}

/* Reopens the batch: it grows until a transaction takes it. */
static void
stream_items_reopen(SasWatch *w)
{
	JsonbIterator *it = JsonbIteratorInit(&w->built->root);
	JsonbIteratorToken token;
	JsonbValue	v;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM)
			pushJsonbValue(&w->items, WJB_ELEM, &v);
	w->built = NULL;
}

static void
stream_items_begin_item(SasWatch *w, size_t len)
{
	if (w->items == NULL)
	{
		pushJsonbValue(&w->items, WJB_BEGIN_ARRAY, NULL);
		if (w->built != NULL)
			stream_items_reopen(w);
	}
	w->n_items++;
	w->bytes += len;
}

/* A word of a service as text, with secrets masked; NULL if it is no text. */
static char *
stream_items_word(const char *bytes, size_t len, const SasStoredAgent *agent)
{
	char	   *masked = palloc(len + 1);

	memcpy(masked, bytes, len);
	sas_work_value_mask(masked, len, agent);
	return sas_base_utf8_text(masked, len);
}

/* The id or name of an event; null if there is none or it is no text. */
static void
stream_items_push_word(SasWatch *w, const char *key, const char *bytes, size_t len, const SasStoredAgent *agent)
{
	JsonbValue	v = {.type = jbvString};
	char	   *text;

	v.val.string.val = (char *) key;
	v.val.string.len = strlen(key);
	pushJsonbValue(&w->items, WJB_KEY, &v);
	v.type = jbvNull;
	text = bytes != NULL ? stream_items_word(bytes, len, agent) : NULL;
	if (text != NULL)
	{
		v.type = jbvString;
		v.val.string.val = text;
		v.val.string.len = strlen(text);
	}
	pushJsonbValue(&w->items, WJB_VALUE, &v);
}

static void
stream_items_add_event(SasWatch *w, const SasFrame *frame, const SasStoredAgent *agent)
{
	JsonbValue	key = {.type = jbvString, .val.string = {.val = "data", .len = 4}};
	const char *id = sas_framing_last_id(w->framer);

	pushJsonbValue(&w->items, WJB_BEGIN_OBJECT, NULL);
	stream_items_push_word(w, "id", id, id ? strlen(id) : 0, agent);
	stream_items_push_word(w, "event", frame->event ? frame->event : "message", frame->event ? frame->event_len : 7, agent);
	pushJsonbValue(&w->items, WJB_KEY, &key);
	sas_work_value_push(&w->items, WJB_VALUE, frame->data, frame->data_len, true, agent);
	pushJsonbValue(&w->items, WJB_END_OBJECT, NULL);
}

static void
stream_items_add_frame(SasWatch *w, const SasFrame *frame, const SasStoredAgent *agent)
{
	MemoryContext old;

	stream_items_open_batch(w);
	old = MemoryContextSwitchTo(w->batch);
	stream_items_begin_item(w, frame->data_len);
	if (w->kind == SAS_WATCH_SSE)
		stream_items_add_event(w, frame, agent);
	else
		sas_work_value_push(&w->items, WJB_ELEM, frame->data, frame->data_len, true, agent);
	MemoryContextSwitchTo(old);
}

size_t
sas_stream_items_feed(SasWatch *w, const SasStoredAgent *agent, const char *bytes, size_t len, bool all, const char **why)
{
	size_t		total = 0;

	*why = NULL;
	while (total < len && (all || sas_stream_items_room(w)) && *why == NULL)
	{
		SasFrame	frame;
		size_t		used;

		switch (sas_framing_feed(w->framer, bytes + total, len - total, &used, &frame))
		{
			case SAS_FRAME_ITEM:
				stream_items_add_frame(w, &frame, agent);
				break;
			case SAS_FRAME_MORE:
				break;
			case SAS_FRAME_TOO_LARGE:
				*why = "an item is larger than max_response";
				break;
			case SAS_FRAME_BROKEN:
				*why = sas_framing_websocket_problem(w->framer);
				break;
			case SAS_FRAME_CLOSED:
				used = len - total; /* nothing follows */
				break;
			case SAS_FRAME_NO_MEMORY:
				*why = "out of memory";
				break;
		}
		total += used;
	}
	if (total == len)
		sas_framing_rest(w->framer);
	stream_items_count(w);
	if (stream_items_buffered > SAS_BUFFERED_BYTES && w->buffered > SAS_BUFFERED_SHARE && *why == NULL)
		*why = "the unfinished items of all streams are too large together";
	return total;
}

/* What is masked in the answers of the connection. */
static const SasStoredAgent *
stream_items_masking(const SasWatch *w)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	SasStoredAgent *gone;

	if (agent != NULL)
		return sas_work_secrets_masking(agent->stored, w->secrets);
	gone = palloc0(sizeof(SasStoredAgent));
	gone->secrets = w->secrets;
	return gone;
}

/* A service that puts a secret into an id gets it back masked. */
const char *
sas_stream_items_cursor(const SasWatch *w)
{
	const char *id;
	char	   *text;

	if (w->framer == NULL)
		return w->new_cursor;
	/* with the old cursor, the service would send the newer items again */
	if (w->kind == SAS_WATCH_SSE && sas_framing_id_cleared(w->framer))
		return "";
	id = w->kind == SAS_WATCH_SSE ? sas_framing_last_id(w->framer) : NULL;
	text = id != NULL ? stream_items_word(id, strlen(id), stream_items_masking(w)) : NULL;
	return text != NULL ? text : w->new_cursor;
}

void
sas_stream_items_close(SasWatch *w)
{
	const char *cursor;

	if (w->framer == NULL)
		return;
	/* the batch ends where the connection does */
	cursor = w->batch != NULL ? sas_stream_items_cursor(w) : NULL;
	if (cursor != NULL)
		w->new_cursor = MemoryContextStrdup(w->batch, cursor);
	sas_framing_close(w->framer);
	w->framer = NULL;
	stream_items_count(w);
}

bool
sas_stream_items_open(SasWatch *w, const SasStoredAgent *agent)
{
	w->framer = sas_framing_open(w->kind == SAS_WATCH_SSE ? SAS_FRAMING_SSE :
								 w->kind == SAS_WATCH_LINES ? SAS_FRAMING_LINES : SAS_FRAMING_WEBSOCKET, agent->max_response);
	stream_items_count(w);
	return w->framer != NULL;
}

/* The body of a long poll: the elements of an array, or itself. */
static void
stream_items_add_body(SasWatch *w, const SasReply *reply, const SasStoredAgent *agent)
{
	JsonbParseState *state = NULL;
	Jsonb	   *whole;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	v;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	sas_work_value_push(&state, WJB_ELEM, reply->body, reply->body_len, true, agent);
	whole = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
	v = *getIthJsonbValueFromContainer(&whole->root, 0);
	if (v.type != jbvBinary || !JsonContainerIsArray(v.val.binary.data))
	{
		stream_items_begin_item(w, reply->body_len);
		pushJsonbValue(&w->items, WJB_ELEM, &v);
		return;
	}
	it = JsonbIteratorInit(v.val.binary.data);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM)
		{
			stream_items_begin_item(w, 0);
			pushJsonbValue(&w->items, WJB_ELEM, &v);
		}
}

void
sas_stream_items_answer(SasWatch *w, const SasReply *reply, const SasStoredAgent *agent)
{
	MemoryContext old;

	stream_items_open_batch(w);
	old = MemoryContextSwitchTo(w->batch);
	if (w->kind == SAS_WATCH_LONG_POLL)
		stream_items_add_body(w, reply, agent);
	else
	{
		Jsonb	   *output = sas_work_outcome_output(reply, agent);
		JsonbValue	v = {.type = jbvBinary};

		stream_items_begin_item(w, reply->body_len);
		v.val.binary.data = &output->root;
		v.val.binary.len = VARSIZE(output) - VARHDRSZ;
		pushJsonbValue(&w->items, WJB_ELEM, &v);
	}
	MemoryContextSwitchTo(old);
	if (w->n_items == 0)
	{
		sas_stream_items_drop(w);
		return;
	}
	sas_transport_hold(sas_stream_polls, sas_stream_hosted_enter(w), reply->body_len);
	w->answered += reply->body_len;
}

Jsonb *
sas_stream_items_build(SasWatch *w)
{
	MemoryContext old = MemoryContextSwitchTo(w->batch);

	if (w->built == NULL)
	{
		w->built = JsonbValueToJsonb(pushJsonbValue(&w->items, WJB_END_ARRAY, NULL));
		w->items = NULL;
	}
	MemoryContextSwitchTo(old);
	return w->built;
}
