/* SPDX-License-Identifier: PostgreSQL */
/*
 * connection.c: begins, reads and ends the connections of watches.
 *
 * A stream begins like a call, with the agent's request_timeout until its answer begins.  From
 * then on only silence ends it (idle_timeout).  It takes no slot of its agent, but a token of its
 * rate; while the breaker is not closed, it may be the probe like any call.  Polls are calls, with
 * a slot each.
 *
 * When a service fails, the connection of one watch ends.  That is reported
 * to the store, which answers how long to pause.
 */
#include "postgres.h"

#include "base/clock.h"
#include "limits/owners.h"
#include "miscadmin.h"
#include "stream/hosted.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "work/agents.h"
#include "work/json.h"
#include "work/oauth.h"
#include "work/outcome.h"
#include "work/secrets.h"
#include "work/sign.h"

/*
 * The largest number of unread bytes of a stream; libcurl buffers as many again, and so does the
 * kernel.
 */
#define SAS_WINDOW ((size_t) 16 * 1024)

/*
 * If a limit has no known end, it is checked again after this time, plus a random time: thousands
 * of watches may wait for it.
 */
#define SAS_LIMITED_US 250000
#define SAS_LIMITED_JITTER_US 1000000

static bool
connection_is_stream(const SasWatch *w)
{
	return w->kind == SAS_WATCH_SSE || w->kind == SAS_WATCH_LINES || w->kind == SAS_WATCH_WEBSOCKET;
}

static SasTransport *
connection_transport(const SasWatch *w)
{
	return connection_is_stream(w) ? sas_stream_streams : sas_stream_polls;
}

static void
connection_free_slot(SasWatch *w)
{
	if (w->has_slot)
		sas_work_agent_free_slot(w->agent_id, w->owner);
	w->has_slot = false;
}

void
sas_stream_watch_close(SasWatch *w)
{
	if (w->handle != NULL && w->opened && w->kind == SAS_WATCH_WEBSOCKET)
		sas_stream_websocket_leave(w);
	if (w->handle != NULL)
		sas_transport_stop_call(connection_transport(w), w->handle);
	w->handle = NULL;
	w->opened = false;
	sas_stream_hosted_leave(w);
	sas_stream_items_close(w);
	connection_free_slot(w);
}

/* -------------------------------------------------------------------- begun */

/* A slot, unless its owner has to leave it to others. */
static bool
connection_take_slot(SasWatch *w, SasAgentEntry *agent, int64 *again_us)
{
	if (sas_limits_ask(w->agent_id, w->owner, &agent->limits, 1, false, again_us) == 0)
		return false;
	if (sas_limits_owner_poll(w->agent_id, w->owner))
		return true;
	agent->scan |= sas_limits_return(w->agent_id, &agent->limits, 1);
	return false;
}

/* Thousands of them do not come back together. */
static void
connection_try_again(SasWatch *w, int64 at_us)
{
	sas_stream_watch_set_timer(w, at_us + (int64) (random() / (RAND_MAX + 1.0) * SAS_LIMITED_JITTER_US));
}

void
sas_stream_watch_wait_for_room(SasWatch *w)
{
	sas_stream_hosted_put_away(w);
	connection_try_again(w, sas_base_clock_monotonic_us() + SAS_LIMITED_US);
}

/* A poll that begins may have room for its answer, and for a copy of its request. */
static bool
connection_has_room(SasWatch *w)
{
	/* there was room when a large request was kept; it may be more than half of all */
	if (connection_is_stream(w) || w->held > 0 || sas_work_room_for(w->agent_id, w->owner))
		return true;
	sas_stream_watch_wait_for_room(w);
	return false;
}

/* Takes a slot, or a token; false: the timer is set for another try. */
static bool
connection_ask_limits(SasWatch *w, SasAgentEntry *agent)
{
	int64		again = 0;
	int64		now = sas_base_clock_monotonic_us();
	bool		closed = agent->limits.breaker_failures > 0 && sas_limits_breaker(w->agent_id) != SAS_BREAKER_CLOSED;

	if (w->kind == SAS_WATCH_POLL || closed)
		w->has_slot = connection_take_slot(w, agent, &again);
	else if (sas_limits_spend(w->agent_id, &agent->limits, &again))
		return true;
	if (!w->has_slot)
	{
		connection_try_again(w, again > now ? again : now + SAS_LIMITED_US);
		sas_stream_hosted_put_away(w);
	}
	return w->has_slot;
}

/*
 * False: the watch waits for the access token of its agent, or the lack of one was reported. token
 * NULL: it needs none.
 */
static bool
connection_ask_token(SasWatch *w, SasAgentEntry *agent, const char **token)
{
	const char *what = NULL;
	SasTokenState state = sas_work_token_ask(agent->stored, &what);

	*token = state == SAS_TOKEN_READY ? what : NULL;
	w->deferred = state == SAS_TOKEN_COMES;
	if (state == SAS_TOKEN_FAILED)
	{
		Jsonb	   *problem = sas_stream_watch_problem(w, "transport", "the service could not be reached", psprintf("no access token: %s", what));

		sas_work_agent_error(agent, problem);
		sas_stream_watch_report(w, problem, -1);
	}
	return state == SAS_TOKEN_NONE || state == SAS_TOKEN_READY;
}

/* The watch stores it with the secrets, so that it is masked. */
static void
connection_add_token(SasWatch *w, SasCall *call, const char *token)
{
	MemoryContext old;

	w->has_token = token != NULL;
	if (token == NULL)
		return;
	sas_work_token_add(call, token);
	old = MemoryContextSwitchTo(sas_stream_context);
	w->secrets = lappend(w->secrets, pstrdup(token));
	MemoryContextSwitchTo(old);
}

static void
connection_add_header(SasSent *sent, const char *name, const char *value)
{
	size_t		len = strlen(name);

	for (int i = 0; i < sent->n_headers; i++)
		if (pg_strncasecmp(sent->headers[i], name, len) == 0 && sent->headers[i][len] == ':')
			return;
	sent->headers = repalloc(sent->headers, sizeof(char *) * (sent->n_headers + 1));
	sent->headers[sent->n_headers++] = psprintf("%s: %s", name, value);
}

/* The headers of the kind, unless the definition sets them. */
static void
connection_add_headers(SasWatch *w, SasSent *sent)
{
	if (w->kind == SAS_WATCH_SSE)
	{
		connection_add_header(sent, "Accept", "text/event-stream");
		connection_add_header(sent, "Cache-Control", "no-cache");
		if (w->cursor != NULL && w->cursor[0] != '\0')
			connection_add_header(sent, "Last-Event-ID", w->cursor);
	}
	else if (w->kind == SAS_WATCH_POLL && w->etag != NULL)
		connection_add_header(sent, "If-None-Match", w->etag);
}

static long
connection_timeout_ms(SasWatch *w, SasAgentEntry *agent)
{
	double		ms = w->timeout_ms > 0 ? w->timeout_ms : agent->stored->request_timeout_ms;

	if (w->kind == SAS_WATCH_LONG_POLL && w->idle_ms > 0)
		ms = w->idle_ms;
	return Max(1, (long) Min(ms, 86400000.0 * 365));
}

void
sas_stream_watch_connect(SasWatch *w)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	SasSent		sent = {0};
	SasCall		call;
	const char *why;
	const char *token = NULL;
	char		errbuf[256];

	sas_stream_watch_set_line(w, SAS_LINE_NONE);
	w->deferred = agent == NULL || !agent->stored->enabled;
	/* without room, it begins when there is room */
	if (w->deferred || w->room <= 0)
	{
		sas_stream_hosted_put_away(w);
		return;
	}
	if (!connection_has_room(w) || !connection_ask_token(w, agent, &token) || !connection_ask_limits(w, agent))
		return;
	why = sas_work_request_compose(&sent, agent->stored, w->request, NULL);
	if (why == NULL)
	{
		list_free_deep(w->secrets);
		w->secrets = sas_work_secrets_sent(agent->stored, sas_stream_context);
		connection_add_headers(w, &sent);
		sas_work_request_call(&sent, agent->stored, &call);
		call.window = connection_is_stream(w) ? SAS_WINDOW : 0;
		call.timeout_ms = connection_is_stream(w) ? 0 : connection_timeout_ms(w, agent);
		call.owner = w;
		call.share = connection_is_stream(w) ? NULL : sas_stream_hosted_enter(w);
		if (w->kind == SAS_WATCH_WEBSOCKET)
			sas_stream_websocket_prepare(w, &call);
		w->begun_us = sas_base_clock_monotonic_us();
		sas_work_call_in_utf8(&call);
		connection_add_token(w, &call, token);
		why = sas_work_sign(&call, agent->stored, NULL);
	}
	if (why == NULL)
	{
		w->handle = sas_transport_start(connection_transport(w), &call, errbuf, sizeof(errbuf));
		why = w->handle == NULL ? errbuf : NULL;
	}
	if (why != NULL)
	{
		connection_free_slot(w);
		sas_stream_watch_report(w, sas_stream_watch_problem(w, "request", "could not build the request", why), -1);
		return;
	}
	if (!connection_is_stream(w))
	{
		/* if it is large, it is asked for again before the next poll */
		sas_stream_hosted_put_away(w);
		return;
	}
	/* a stream no longer needs its request: it is requested again before the next connection */
	sas_stream_hosted_drop_request(w);
	sas_stream_watch_set_timer(w, w->begun_us + (int64) (agent->stored->request_timeout_ms * 1000));
}

/* -------------------------------------------------------------------- heard */

/* The connection failed in a way that the service is to blame for. */
static void
connection_fail(SasWatch *w, const char *title, const char *detail)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	Jsonb	   *problem = sas_stream_watch_problem(w, "transport", title, detail);

	if (agent != NULL)
		sas_work_agent_error(agent, problem);
	sas_stream_watch_close(w);
	sas_stream_watch_report(w, problem, -1);
}

/*
 * The answer has begun: checks that it is a stream, and opens it. False: it is not the expected
 * answer.
 */
static bool
connection_open_stream(SasWatch *w, SasAgentEntry *agent, const SasReply *head)
{
	const char *content_type = sas_transport_reply_header(head, "content-type");
	const char *why;

	sas_work_agent_report(agent, w->owner, true, w->begun_us);
	connection_free_slot(w);
	if (w->kind == SAS_WATCH_SSE && (content_type == NULL || pg_strncasecmp(content_type, "text/event-stream", 17) != 0))
	{
		connection_fail(w, "the service gave no usable answer", "the answer is not of type text/event-stream");
		return false;
	}
	if (!sas_stream_items_open(w, agent->stored))
	{
		connection_fail(w, "could not read the stream", "out of memory");
		return false;
	}
	why = w->kind == SAS_WATCH_WEBSOCKET ? sas_stream_websocket_begin(w, head) : NULL;
	if (why != NULL)
	{
		connection_fail(w, "the service gave no usable answer", why);
		return false;
	}
	w->opened = true;
	return true;
}

/* After half of the time, a WebSocket gets a ping. */
static void
connection_set_idle_timer(SasWatch *w)
{
	int64		received_us = sas_transport_stream_received_us(w->handle);
	double		share = w->kind == SAS_WATCH_WEBSOCKET && !w->pinged ? 500 : 1000;

	sas_stream_watch_set_timer(w, w->idle_ms > 0 ? received_us + (int64) (w->idle_ms * share) : 0);
}

/* The service has closed a WebSocket: an incomplete message is no item. */
static bool
connection_is_closed(SasWatch *w, const SasStoredAgent *masking, const char **why)
{
	if (w->kind != SAS_WATCH_WEBSOCKET || !sas_stream_websocket_closed(w, masking, why))
		return false;
	if (*why == NULL && sas_framing_begun(w->framer))
		*why = "the stream ended in the middle of an item";
	return true;
}

void
sas_stream_watch_read(SasWatch *w)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	const SasReply *head = w->handle != NULL ? sas_transport_stream_head(w->handle) : NULL;
	const SasStoredAgent *masking;
	const char *bytes;
	const char *why;
	size_t		len;

	if (agent == NULL || head == NULL || !head->stream)
		return;
	if (!w->opened)
	{
		if (!connection_open_stream(w, agent, head))
			return;
		connection_set_idle_timer(w);
	}
	masking = sas_work_secrets_masking(agent->stored, w->secrets);
	while (sas_stream_items_room(w) && (len = sas_transport_stream_bytes(w->handle, &bytes)) > 0)
	{
		w->pinged = false;
		len = sas_stream_items_feed(w, masking, bytes, len, false, &why);
		if (w->kind == SAS_WATCH_WEBSOCKET && !sas_stream_websocket_flush(w) && why == NULL)
			why = "the service does not read what is sent";
		if (why != NULL)
		{
			connection_fail(w, "the service gave no usable answer", why);
			return;
		}
		sas_transport_stream_read(w->handle, len);
		if (connection_is_closed(w, masking, &why))
		{
			if (why != NULL)
				connection_fail(w, "the service closed the stream", why);
			else
			{
				sas_stream_watch_close(w);
				sas_stream_watch_report(w, NULL, -1);
			}
			return;
		}
	}
	if (w->n_items > 0)
		sas_stream_watch_set_line(w, SAS_LINE_DUE);
}

void
sas_stream_watch_timed_out(SasWatch *w)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	const SasReply *head = sas_transport_stream_head(w->handle);
	const char *bytes;

	/* this worker was late: the answer has begun, and is read in one of the next ticks */
	if (!w->opened && agent != NULL && head != NULL && head->stream)
		sas_stream_watch_set_timer(w, sas_base_clock_monotonic_us() + (int64) (agent->stored->request_timeout_ms * 1000));
	else if (!w->opened)
	{
		if (agent != NULL)
			sas_work_agent_report(agent, w->owner, false, w->begun_us);
		connection_fail(w, "the service gave no usable answer", "no answer in time");
	}
	else if (sas_transport_stream_bytes(w->handle, &bytes) > 0)
		sas_stream_watch_set_timer(w, sas_base_clock_monotonic_us() + (int64) (w->idle_ms * 1000)); /* unread bytes have arrived */
	else if (sas_base_clock_monotonic_us() - sas_transport_stream_received_us(w->handle) < (int64) (w->idle_ms * 1000))
	{
		int64		silent_us = sas_base_clock_monotonic_us() - sas_transport_stream_received_us(w->handle);

		if (w->kind == SAS_WATCH_WEBSOCKET && silent_us >= (int64) (w->idle_ms * 500) && !w->pinged)
		{
			/* if it cannot be sent, silence ends the connection anyway */
			(void) sas_stream_websocket_ping(w);
			w->pinged = true;
		}
		connection_set_idle_timer(w);
	}
	else
		connection_fail(w, "the stream was idle for too long", "no data arrived within idle_timeout");
}

/* --------------------------------------------------------------------- over */

/*
 * Reads the rest of a stream at its end. True: it ended cleanly. An incomplete item at the end is
 * discarded.
 */
static bool
connection_finish_stream(SasWatch *w, SasReply *reply, SasAgentEntry *agent, const SasStoredAgent *masking, const char **why)
{
	/* the beginning of the answer has not been checked yet */
	if (!w->opened && !connection_open_stream(w, agent, reply))
		return false;
	sas_stream_items_feed(w, masking, reply->body ? reply->body : "", reply->body_len, true, why);
	if (*why != NULL)
		return false;
	if (connection_is_closed(w, masking, why))
		return *why == NULL;
	if (reply->kind != SAS_REPLY_HTTP)
		return false;
	if (sas_framing_begun(w->framer))
		*why = "the stream ended in the middle of an item";
	return *why == NULL;
}

void
sas_stream_watch_finish(SasWatch *w, SasReply *reply)
{
	SasAgentEntry *agent = sas_work_agent(w->agent_id);
	SasOutcome	outcome;
	Jsonb	   *problem = NULL;
	double		at_least_ms = -1;
	const char *why = NULL;
	const SasStoredAgent *masking;
	bool		done;

	w->handle = NULL;
	sas_stream_hosted_leave(w);
	if (agent == NULL)
	{
		sas_stream_watch_close(w);
		sas_stream_watch_report(w, NULL, -1);
		return;
	}
	masking = sas_work_secrets_masking(agent->stored, w->secrets);
	sas_work_outcome_of(reply, NULL, NULL, &outcome);
	done = outcome.kind == SAS_OUTCOME_DONE;
	if (w->kind == SAS_WATCH_POLL || w->kind == SAS_WATCH_LONG_POLL)
		done = done || outcome.status == 304 || (w->kind == SAS_WATCH_LONG_POLL && reply->timed_out && outcome.in_doubt);
	if (connection_is_stream(w) && (done || w->opened || reply->stream))
	{
		done = connection_finish_stream(w, reply, agent, masking, &why);
		if (!done && w->report)
			return;				/* reported already */
	}
	if (!w->opened)
		sas_work_agent_report(agent, w->owner, done || !outcome.fault, w->begun_us);
	if (done && !connection_is_stream(w))
	{
		connection_free_slot(w);
		if (w->kind == SAS_WATCH_POLL)
			sas_stream_poll_finish(w, reply, masking);
		else
			sas_stream_long_poll_finish(w, reply, masking);
		return;
	}
	if (!done)
	{
		problem = why != NULL ? sas_stream_watch_problem(w, "transport", "the service gave no usable answer", why) :
			sas_work_outcome_problem(reply, masking, &outcome, psprintf("/watches/" INT64_FORMAT, w->id.watch_id));
		at_least_ms = outcome.retry_after_ms;
		sas_work_agent_error(agent, problem);
		if (w->has_token && outcome.status == 401)
			sas_work_token_refused(w->agent_id, llast(w->secrets));
	}
	if (w->framer != NULL && sas_framing_retry_ms(w->framer) >= 0)
		at_least_ms = sas_framing_retry_ms(w->framer);
	sas_stream_watch_close(w);
	sas_stream_watch_report(w, problem, at_least_ms);
}
