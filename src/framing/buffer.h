/* SPDX-License-Identifier: PostgreSQL */
/*
 * buffer.h
 *	  The state of a framer between two calls; private to src/framing.
 */
#ifndef SAS_FRAMING_BUFFER_H
#define SAS_FRAMING_BUFFER_H

#include "framing/framer.h"

/* Bytes that grow. */
typedef struct SasFramingBuffer
{
	char	   *bytes;
	size_t		len;
	size_t		size;			/* allocated */
} SasFramingBuffer;

/* The position in a line of an event stream. */
typedef enum SasSseState
{
	SAS_SSE_NAME,				/* also at the beginning of a line */
	SAS_SSE_COLON,				/* just after it: one blank is skipped */
	SAS_SSE_VALUE,
	SAS_SSE_SKIP				/* a comment, or an unknown field */
} SasSseState;

typedef enum SasSseField
{
	SAS_SSE_NONE,
	SAS_SSE_DATA,
	SAS_SSE_EVENT,
	SAS_SSE_ID,
	SAS_SSE_RETRY
} SasSseField;

typedef struct SasFramingWebsocket SasFramingWebsocket;

struct SasFramer
{
	SasFraming	framing;
	size_t		max_item;
	int			bom;			/* bytes of a byte order mark seen; -1: past the beginning */
	bool		taken;			/* data was returned and becomes invalid with the next call */
	bool		after_cr;		/* a line feed here belongs to the previous line end */
	SasFramingBuffer data;		/* of the event, the line or the message that is not complete */

	SasFramingWebsocket *websocket; /* NULL: it is none */

	/* events only */
	SasSseState state;
	SasSseField field;
	char		name[6];
	int			name_len;
	bool		bad;			/* the value of the field is invalid */
	SasFramingBuffer event;
	SasFramingBuffer id;		/* of the field that is being read */
	char	   *next_id;		/* of the event that is being read; see id_seen */
	bool		id_seen;
	char	   *last_id;
	bool		id_cleared;		/* the last one was empty */
	long		retry;			/* of the field that is being read */
	long		retry_ms;
};

/* framer.c */
extern bool sas_framing_buffer_append(SasFramingBuffer *buffer, const char *bytes, size_t len);
extern void sas_framing_buffer_free(SasFramingBuffer *buffer);

/* websocket.c */
extern bool sas_framing_websocket_open(SasFramer *f);
extern void sas_framing_websocket_free(SasFramer *f);
extern SasFrameResult sas_framing_websocket_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame);
extern bool sas_framing_websocket_begun(const SasFramer *f);
extern size_t sas_framing_websocket_size(const SasFramer *f);

/* sse.c, lines.c */
extern SasFrameResult sas_framing_sse_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame);
extern SasFrameResult sas_framing_lines_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame);
extern bool sas_framing_lines_begun(const SasFramer *f);

#endif							/* SAS_FRAMING_BUFFER_H */
