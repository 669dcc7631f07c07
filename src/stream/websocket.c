/* SPDX-License-Identifier: PostgreSQL */
/*
 * websocket.c: watches over WebSocket (RFC 6455): the handshake, the first
 * message, pings, and how the service closes.
 *
 * The frames are src/framing's business, the connection is src/transport's.
 */
#include "postgres.h"

#include "base/digest.h"
#include "base/utf8.h"
#include "stream/hosted.h"
#include "utils/memutils.h"
#include "work/value.h"

#define WEBSOCKET_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define WEBSOCKET_GOING_AWAY 1001
#define WEBSOCKET_PROTOCOL "sec-websocket-protocol:"

/* Headers that the handshake sets itself, whatever the definition or the agent says. */
static const char *const stream_websocket_own[] = {
	"connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-accept"
};

static bool
stream_websocket_is_own(const char *line)
{
	for (int i = 0; i < lengthof(stream_websocket_own); i++)
		if (pg_strncasecmp(line, stream_websocket_own[i], strlen(stream_websocket_own[i])) == 0 && line[strlen(stream_websocket_own[i])] == ':')
			return true;
	return false;
}

static void
stream_websocket_add_headers(SasWatch *w, SasCall *call)
{
	const char **headers = palloc(sizeof(char *) * (call->n_headers + 4));
	int			n = 0;

	sas_stream_hosted_replace(&w->ws_protocols, NULL);
	for (int i = 0; i < call->n_headers; i++)
	{
		if (pg_strncasecmp(call->headers[i], WEBSOCKET_PROTOCOL, strlen(WEBSOCKET_PROTOCOL)) == 0)
			sas_stream_hosted_replace(&w->ws_protocols, call->headers[i] + strlen(WEBSOCKET_PROTOCOL));
		if (!stream_websocket_is_own(call->headers[i]))
			headers[n++] = call->headers[i];
	}
	headers[n++] = "Connection: Upgrade";
	headers[n++] = "Upgrade: websocket";
	headers[n++] = "Sec-WebSocket-Version: 13";
	headers[n++] = psprintf("Sec-WebSocket-Key: %s", w->ws_key);
	call->headers = headers;
	call->n_headers = n;
}

void
sas_stream_websocket_prepare(SasWatch *w, SasCall *call)
{
	uint8		key[16];

	if (!pg_strong_random(key, sizeof(key)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random bytes")));
	sas_stream_hosted_replace(&w->ws_key, sas_base_base64(key, sizeof(key)));
	sas_stream_hosted_replace(&w->hello, call->body != NULL ? sas_base_utf8_of((char *) call->body) : NULL);
	w->pinged = false;
	stream_websocket_add_headers(w, call);
	call->websocket = true;
	call->method = "GET";
	call->body = NULL;
	call->body_len = 0;
}

/* ---------------------------------------------------------------- handshake */

/* What the service has to answer to the key. */
static char *
stream_websocket_accept(const char *key)
{
	char	   *asked = psprintf("%s" WEBSOCKET_GUID, key);
	uint8		sum[SHA1_DIGEST_LENGTH];

	sas_base_digest(PG_SHA1, asked, strlen(asked), sum, sizeof(sum));
	return sas_base_base64(sum, sizeof(sum));
}

/* Is this word one of a list with commas? */
static bool
stream_websocket_has_word(const char *list, const char *word)
{
	while (list != NULL && *list != '\0')
	{
		size_t		n;

		list += strspn(list, " \t,");
		n = strcspn(list, ",");
		while (n > 0 && (list[n - 1] == ' ' || list[n - 1] == '\t'))
			n--;
		if (n == strlen(word) && pg_strncasecmp(list, word, n) == 0)
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

static const char *
stream_websocket_check(const SasWatch *w, const SasReply *head)
{
	const char *accept;
	const char *protocol;

	if (!head->stream)
		return "the service does not speak WebSocket here";
	if (!stream_websocket_has_word(sas_transport_reply_header(head, "upgrade"), "websocket") ||
		!stream_websocket_has_word(sas_transport_reply_header(head, "connection"), "upgrade"))
		return "the service has switched to something else than WebSocket";
	accept = sas_transport_reply_header(head, "sec-websocket-accept");
	if (accept == NULL || strcmp(accept, stream_websocket_accept(w->ws_key)) != 0)
		return "the answer has no valid Sec-WebSocket-Accept";
	if (sas_transport_reply_header(head, "sec-websocket-extensions") != NULL)
		return "the service uses an extension of WebSocket that was not offered";
	protocol = sas_transport_reply_header(head, "sec-websocket-protocol");
	if (protocol != NULL && (w->ws_protocols == NULL || !stream_websocket_has_word(w->ws_protocols, protocol)))
		return "the service uses a subprotocol that was not offered";
	return NULL;
}

const char *
sas_stream_websocket_begin(SasWatch *w, const SasReply *head)
{
	const char *why = stream_websocket_check(w, head);

	if (why == NULL && w->hello != NULL &&
		(!sas_framing_websocket_say(w->framer, w->hello, strlen(w->hello)) || !sas_stream_websocket_flush(w)))
		why = "the first message could not be sent";
	return why;
}

/* ------------------------------------------------------------- conversation */

bool
sas_stream_websocket_flush(SasWatch *w)
{
	const char *bytes;
	size_t		len = sas_framing_output(w->framer, &bytes);
	bool		taken = true;

	if (len == 0)
		return true;
	if (w->handle != NULL)
		taken = sas_transport_stream_send(w->handle, bytes, len);
	sas_framing_output_taken(w->framer);
	return taken;
}

bool
sas_stream_websocket_ping(SasWatch *w)
{
	return sas_framing_websocket_ping(w->framer) && sas_stream_websocket_flush(w);
}

void
sas_stream_websocket_leave(SasWatch *w)
{
	if (w->framer != NULL && sas_framing_websocket_close(w->framer, WEBSOCKET_GOING_AWAY))
		(void) sas_stream_websocket_flush(w);
}

bool
sas_stream_websocket_closed(SasWatch *w, const SasStoredAgent *masking, const char **problem)
{
	const char *reason;
	int			code = sas_framing_websocket_close_code(w->framer, &reason);
	char	   *text;

	*problem = NULL;
	if (code < 0)
		return false;
	/* done, leaving, or without a word */
	if (code == 0 || code == 1000 || code == 1001)
		return true;
	text = sas_base_utf8_text(reason, strlen(reason));
	if (text != NULL)
		sas_work_value_mask(text, strlen(text), masking);
	*problem = psprintf("close code %d%s%s", code, text != NULL && text[0] != '\0' ? ": " : "", text != NULL ? text : "");
	return true;
}
