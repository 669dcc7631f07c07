/* SPDX-License-Identifier: PostgreSQL */
/*
 * websocket.c
 *	  The frames of a WebSocket (RFC 6455, the side of the client): messages
 *	  are items.
 *
 * libwslay reads and writes frames.  It gets one byte at a time between two
 * frames and never more than the rest of a frame.  So it buffers nothing, and
 * the count of used bytes is exact.  This file checks what libwslay does not:
 * the order of fragments, UTF-8, the largest message, close codes, and that a
 * service does not mask.
 *
 * Output (pongs, the answer to a close) is collected, and the owner of the
 * connection sends it.
 */
#include "framing/buffer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <wslay/wslay.h>

/* one byte of text at a time: RFC 3629, without surrogates and beyond U+10FFFF */
typedef struct WebsocketText
{
	int			left;			/* missing bytes of the character that has begun */
	unsigned char low;			/* bounds of the next one */
	unsigned char high;
} WebsocketText;

struct SasFramingWebsocket
{
	wslay_frame_context_ptr frames;

	/* the input of the call that is under way */
	const char *in;
	size_t		in_len;

	/* the frame that has begun */
	bool		in_frame;
	bool		final;
	int			opcode;
	uint64_t	left;			/* bytes that have not come */
	unsigned char control[125];
	size_t		control_len;

	/* the message that has begun */
	int			message;		/* its opcode; 0: none has begun */
	WebsocketText text;

	SasFramingBuffer out;
	bool		close_sent;
	int			close_code;		/* of the service; -1: it has not closed */
	char		reason[124];	/* with it */
	const char *problem;		/* the fault of the service, or NULL */
};

/* ------------------------------------------------------------ for libwslay */

static ssize_t
framing_websocket_on_recv(uint8_t *buf, size_t len, int flags, void *arg)
{
	SasFramingWebsocket *ws = ((SasFramer *) arg)->websocket;
	size_t		n = ws->left > 1 ? (ws->left < len ? (size_t) ws->left : len) : 1;

	(void) flags;
	if (n > ws->in_len)
		n = ws->in_len;
	if (n == 0 || len == 0)
		return -1;
	memcpy(buf, ws->in, n);
	ws->in += n;
	ws->in_len -= n;
	return (ssize_t) n;
}

static ssize_t
framing_websocket_on_send(const uint8_t *data, size_t len, int flags, void *arg)
{
	(void) flags;
	return sas_framing_buffer_append(&((SasFramer *) arg)->websocket->out, (const char *) data, len) ? (ssize_t) len : -1;
}

static int
framing_websocket_on_mask(uint8_t *buf, size_t len, void *arg)
{
	(void) arg;
	return getrandom(buf, len, 0) == (ssize_t) len ? 0 : -1;
}

bool
sas_framing_websocket_open(SasFramer *f)
{
	struct wslay_frame_callbacks callbacks = {framing_websocket_on_send, framing_websocket_on_recv, framing_websocket_on_mask};

	f->websocket = calloc(1, sizeof(SasFramingWebsocket));
	if (f->websocket == NULL)
		return false;
	f->websocket->close_code = -1;
	return wslay_frame_context_init(&f->websocket->frames, &callbacks, f) == 0;
}

void
sas_framing_websocket_free(SasFramer *f)
{
	SasFramingWebsocket *ws = f->websocket;

	if (ws == NULL)
		return;
	if (ws->frames != NULL)
		wslay_frame_context_free(ws->frames);
	sas_framing_buffer_free(&ws->out);
	free(ws);
	f->websocket = NULL;
}

/* --------------------------------------------------------------------- sent */

static bool
framing_websocket_send(SasFramer *f, int opcode, const char *bytes, size_t len)
{
	struct wslay_frame_iocb frame = {0};

	frame.fin = 1;
	frame.opcode = (uint8_t) opcode;
	frame.mask = 1;
	frame.payload_length = len;
	frame.data = (const uint8_t *) bytes;
	frame.data_length = len;
	return wslay_frame_send(f->websocket->frames, &frame) == (ssize_t) len;
}

bool
sas_framing_websocket_say(SasFramer *f, const char *text, size_t len)
{
	return framing_websocket_send(f, WSLAY_TEXT_FRAME, text, len);
}

bool
sas_framing_websocket_ping(SasFramer *f)
{
	return framing_websocket_send(f, WSLAY_PING, NULL, 0);
}

bool
sas_framing_websocket_close(SasFramer *f, int code)
{
	char		bytes[2] = {(char) (code >> 8), (char) (code & 0xff)};

	if (f->websocket->close_sent)
		return true;
	f->websocket->close_sent = true;
	return framing_websocket_send(f, WSLAY_CONNECTION_CLOSE, bytes, code > 0 ? 2 : 0);
}

size_t
sas_framing_output(const SasFramer *f, const char **bytes)
{
	*bytes = f->websocket != NULL ? f->websocket->out.bytes : NULL;
	return f->websocket != NULL ? f->websocket->out.len : 0;
}

void
sas_framing_output_taken(SasFramer *f)
{
	sas_framing_buffer_free(&f->websocket->out);
}

/* ------------------------------------------------------------------ checked */

static SasFrameResult
framing_websocket_fail(SasFramer *f, int code, const char *problem)
{
	f->websocket->problem = problem;
	return sas_framing_websocket_close(f, code) ? SAS_FRAME_BROKEN : SAS_FRAME_NO_MEMORY;
}

/* Checks the first byte of a character; false: it is invalid. */
static bool
framing_websocket_begin_character(WebsocketText *t, unsigned char c)
{
	if (c < 0x80)
		return true;
	if (c < 0xc2 || c > 0xf4)
		return false;
	t->left = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	t->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	t->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	return true;
}

static bool
framing_websocket_is_text(WebsocketText *t, const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		if (t->left == 0)
		{
			if (!framing_websocket_begin_character(t, bytes[i]))
				return false;
			continue;
		}
		if (bytes[i] < t->low || bytes[i] > t->high)
			return false;
		t->low = 0x80;
		t->high = 0xbf;
		t->left--;
	}
	return true;
}

/* May a close frame have this code? Those in between never go over the wire. */
static bool
framing_websocket_is_close_code(int code)
{
	return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

/* Checks the header of a frame. */
static SasFrameResult
framing_websocket_begin_frame(SasFramer *f, const struct wslay_frame_iocb *frame)
{
	SasFramingWebsocket *ws = f->websocket;

	if (frame->rsv != 0)
		return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a frame has a reserved bit set");
	if (frame->mask)
		return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a frame of the service is masked");
	ws->in_frame = true;
	ws->final = frame->fin;
	ws->opcode = frame->opcode;
	ws->left = frame->payload_length;
	switch (frame->opcode)
	{
		case WSLAY_TEXT_FRAME:
		case WSLAY_BINARY_FRAME:
			if (ws->message != 0)
				return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a message begins in the middle of another one");
			ws->message = frame->opcode;
			memset(&ws->text, 0, sizeof(ws->text));
			break;
		case WSLAY_CONTINUATION_FRAME:
			if (ws->message == 0)
				return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a frame continues no message");
			break;
		case WSLAY_CONNECTION_CLOSE:
		case WSLAY_PING:
		case WSLAY_PONG:
			ws->control_len = 0;
			return SAS_FRAME_MORE;
		default:
			return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a frame has an unknown opcode");
	}
	if (frame->payload_length > f->max_item - f->data.len)
		return sas_framing_websocket_close(f, WSLAY_CODE_MESSAGE_TOO_BIG) ? SAS_FRAME_TOO_LARGE : SAS_FRAME_NO_MEMORY;
	return SAS_FRAME_MORE;
}

/* ----------------------------------------------------------------- received */

static SasFrameResult
framing_websocket_take(SasFramer *f, const struct wslay_frame_iocb *frame)
{
	SasFramingWebsocket *ws = f->websocket;

	ws->left -= frame->data_length;
	if (wslay_is_ctrl_frame(ws->opcode))
	{
		if (frame->data_length > 0)
			memcpy(ws->control + ws->control_len, frame->data, frame->data_length);
		ws->control_len += frame->data_length;
		return SAS_FRAME_MORE;
	}
	if (ws->message == WSLAY_TEXT_FRAME && !framing_websocket_is_text(&ws->text, frame->data, frame->data_length))
		return framing_websocket_fail(f, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "a text message is not valid UTF-8");
	return sas_framing_buffer_append(&f->data, (const char *) frame->data, frame->data_length) ? SAS_FRAME_MORE : SAS_FRAME_NO_MEMORY;
}

/* The service closes: the same code goes back. */
static SasFrameResult
framing_websocket_end_close(SasFramer *f)
{
	SasFramingWebsocket *ws = f->websocket;
	WebsocketText text = {0};
	int			code = ws->control_len >= 2 ? ws->control[0] << 8 | ws->control[1] : 0;

	if (ws->control_len == 1 || (code != 0 && !framing_websocket_is_close_code(code)) || (code == 0 && ws->control_len > 0))
		return framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a close frame has no valid code");
	if (code != 0 && (!framing_websocket_is_text(&text, ws->control + 2, ws->control_len - 2) || text.left > 0))
		return framing_websocket_fail(f, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "the reason of a close frame is not valid UTF-8");
	ws->close_code = code;
	if (code != 0)
		memcpy(ws->reason, ws->control + 2, ws->control_len - 2);
	return sas_framing_websocket_close(f, code) ? SAS_FRAME_CLOSED : SAS_FRAME_NO_MEMORY;
}

static SasFrameResult
framing_websocket_end_frame(SasFramer *f, SasFrame *item)
{
	SasFramingWebsocket *ws = f->websocket;

	ws->in_frame = false;
	ws->left = 0;
	if (ws->opcode == WSLAY_CONNECTION_CLOSE)
		return framing_websocket_end_close(f);
	if (ws->opcode == WSLAY_PING)
		return ws->close_sent || framing_websocket_send(f, WSLAY_PONG, (char *) ws->control, ws->control_len) ? SAS_FRAME_MORE : SAS_FRAME_NO_MEMORY;
	if (ws->opcode == WSLAY_PONG || !ws->final)
		return SAS_FRAME_MORE;
	if (ws->message == WSLAY_TEXT_FRAME && ws->text.left > 0)
		return framing_websocket_fail(f, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "a text message is not valid UTF-8");
	ws->message = 0;
	if (f->data.len == 0)
		return SAS_FRAME_MORE;
	item->data = f->data.bytes;
	item->data_len = f->data.len;
	f->taken = true;
	return SAS_FRAME_ITEM;
}

/* Reads until there is a result or no more input. */
SasFrameResult
sas_framing_websocket_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *item)
{
	SasFramingWebsocket *ws = f->websocket;
	SasFrameResult result = ws->close_code >= 0 ? SAS_FRAME_CLOSED : ws->problem != NULL ? SAS_FRAME_BROKEN : SAS_FRAME_MORE;

	ws->in = bytes;
	ws->in_len = len;
	while (result == SAS_FRAME_MORE)
	{
		struct wslay_frame_iocb frame = {0};
		ssize_t		n = wslay_frame_recv(ws->frames, &frame);

		if (n == WSLAY_ERR_WANT_READ && ws->in_len > 0)
			continue;
		if (n == WSLAY_ERR_WANT_READ)
			break;
		if (n < 0)
			result = framing_websocket_fail(f, WSLAY_CODE_PROTOCOL_ERROR, "a frame is not valid");
		if (result == SAS_FRAME_MORE && !ws->in_frame)
			result = framing_websocket_begin_frame(f, &frame);
		if (result == SAS_FRAME_MORE)
			result = framing_websocket_take(f, &frame);
		if (result == SAS_FRAME_MORE && ws->left == 0)
			result = framing_websocket_end_frame(f, item);
	}
	*used = len - ws->in_len;
	ws->in = NULL;
	ws->in_len = 0;
	return result;
}

bool
sas_framing_websocket_begun(const SasFramer *f)
{
	return f->websocket->message != 0 || f->websocket->in_frame;
}

const char *
sas_framing_websocket_problem(const SasFramer *f)
{
	return f->websocket->problem;
}

int
sas_framing_websocket_close_code(const SasFramer *f, const char **reason)
{
	*reason = f->websocket->reason;
	return f->websocket->close_code;
}

size_t
sas_framing_websocket_size(const SasFramer *f)
{
	return f->websocket != NULL ? sizeof(SasFramingWebsocket) : 0;
}
