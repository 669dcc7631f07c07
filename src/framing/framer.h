/* SPDX-License-Identifier: PostgreSQL */
/*
 * framer.h
 *	  Splits the bytes of a stream into items, however the bytes are cut.
 *
 * Feed bytes until they are used up; each call uses some and returns at most one item:
 *
 *	  while (len > 0)
 *	  {
 *		  result = sas_framing_feed(framer, bytes, len, &used, &frame);
 *		  bytes += used;
 *		  len -= used;
 *		  if (result == SAS_FRAME_ITEM) ... frame is valid until the next call
 *		  else if (result != SAS_FRAME_MORE) ... this stream has failed
 *	  }
 *
 * A framer stores the beginning of an item, max_item bytes at most; between
 * two items it stores next to nothing.  Like the transport it is plain C:
 * memory comes from malloc, and failures are returned.
 */
#ifndef SAS_FRAMING_FRAMER_H
#define SAS_FRAMING_FRAMER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum SasFraming
{
	SAS_FRAMING_SSE,			/* Server-Sent Events, as WHATWG HTML 9.2.6 reads them */
	SAS_FRAMING_LINES,			/* an item per line, as in newline-delimited JSON */
	SAS_FRAMING_WEBSOCKET		/* the messages of a WebSocket (RFC 6455); empty ones are no items */
} SasFraming;

typedef enum SasFrameResult
{
	SAS_FRAME_MORE,				/* all bytes are used, no item is complete */
	SAS_FRAME_ITEM,
	SAS_FRAME_TOO_LARGE,		/* an item is larger than max_item */
	SAS_FRAME_CLOSED,			/* a WebSocket: the service has closed it, nothing follows */
	SAS_FRAME_BROKEN,			/* likewise: the service breaks its rules */
	SAS_FRAME_NO_MEMORY
} SasFrameResult;

/* The longest id of an event: it is sent back to the service in a header. */
#define SAS_FRAME_MAX_ID 4096

/* Bytes as they came, any of them: not checked for an encoding, no NUL behind them. */
typedef struct SasFrame
{
	const char *data;
	size_t		data_len;
	const char *event;			/* NULL where the stream names none */
	size_t		event_len;
} SasFrame;

typedef struct SasFramer SasFramer;

/* NULL: no memory */
extern SasFramer *sas_framing_open(SasFraming framing, size_t max_item);
extern void sas_framing_close(SasFramer *f);

/* See above; *used is at most len, and less than len only with an item or a failure. */
extern SasFrameResult sas_framing_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame);

/*
 * Has a line or a message begun that is not complete?  If the stream ends there, it was cut off,
 * and the incomplete item is no item.  This does not apply to events: a stream may end in the
 * middle of one.
 */
extern bool sas_framing_begun(const SasFramer *f);

/*
 * A WebSocket answers, and says something of its own accord: a message of
 * text, a ping, a close frame (code 0: without one; the second one is none).
 * What it has to send is its output, until it is taken.  False: no memory, or
 * no random bytes.
 */
extern bool sas_framing_websocket_say(SasFramer *f, const char *text, size_t len);
extern bool sas_framing_websocket_ping(SasFramer *f);
extern bool sas_framing_websocket_close(SasFramer *f, int code);
extern size_t sas_framing_output(const SasFramer *f, const char **bytes);
extern void sas_framing_output_taken(SasFramer *f);

/* How the service broke the rules, or NULL. */
extern const char *sas_framing_websocket_problem(const SasFramer *f);

/* The code and reason (UTF-8) that the service closed with, 0: none; -1: it has not closed. */
extern int	sas_framing_websocket_close_code(const SasFramer *f, const char **reason);

/* Frees memory that only a busy stream needs. This invalidates the last frame. */
extern void sas_framing_rest(SasFramer *f);

/*
 * The id of the last event so far (also of one that was no item, having no
 * data), NUL-terminated; NULL: none, or it was set to nothing.  An id with a
 * control character is ignored: it could not go into a header.
 */
extern const char *sas_framing_last_id(const SasFramer *f);

/*
 * Has the stream cleared its last event id, without a new one since? Then a new connection must not
 * send the old one.
 */
extern bool sas_framing_id_cleared(const SasFramer *f);

/* The pause before a reconnect that the stream asked for, in ms; -1: none. */
extern long sas_framing_retry_ms(const SasFramer *f);

/* The memory of the framer in bytes, without its output. */
extern size_t sas_framing_size(const SasFramer *f);

#endif							/* SAS_FRAMING_FRAMER_H */
