/* SPDX-License-Identifier: PostgreSQL */
/*
 * framer.c
 *	  The common part of all framings: memory, the byte order mark, beginning and end.
 */
#include "framing/buffer.h"

#include <stdlib.h>
#include <string.h>

static const char framer_bom[3] = {'\xef', '\xbb', '\xbf'};

bool
sas_framing_buffer_append(SasFramingBuffer *buffer, const char *bytes, size_t len)
{
	size_t		want = buffer->len + len;
	size_t		bigger = buffer->size > 0 ? buffer->size : 128;
	char	   *moved;

	if (want > buffer->size)
	{
		while (bigger < want)
			bigger *= 2;
		moved = realloc(buffer->bytes, bigger);
		if (moved == NULL)
			return false;
		buffer->bytes = moved;
		buffer->size = bigger;
	}
	if (len > 0)
		memcpy(buffer->bytes + buffer->len, bytes, len);
	buffer->len = want;
	return true;
}

void
sas_framing_buffer_free(SasFramingBuffer *buffer)
{
	free(buffer->bytes);
	memset(buffer, 0, sizeof(*buffer));
}

SasFramer *
sas_framing_open(SasFraming framing, size_t max_item)
{
	SasFramer  *f = calloc(1, sizeof(SasFramer));

	if (f == NULL)
		return NULL;
	f->framing = framing;
	f->max_item = max_item;
	f->retry_ms = -1;
	f->bom = framing == SAS_FRAMING_WEBSOCKET ? -1 : 0;
	if (framing == SAS_FRAMING_WEBSOCKET && !sas_framing_websocket_open(f))
	{
		sas_framing_close(f);
		return NULL;
	}
	return f;
}

void
sas_framing_close(SasFramer *f)
{
	if (f == NULL)
		return;
	sas_framing_websocket_free(f);
	sas_framing_buffer_free(&f->data);
	sas_framing_buffer_free(&f->event);
	sas_framing_buffer_free(&f->id);
	free(f->next_id);
	free(f->last_id);
	free(f);
}

/* Invalidates the frame that was returned. */
static void
framer_drop_taken(SasFramer *f)
{
	if (!f->taken)
		return;
	f->taken = false;
	f->data.len = 0;
	f->event.len = 0;
}

static SasFrameResult
framer_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame)
{
	switch (f->framing)
	{
		case SAS_FRAMING_SSE:
			return sas_framing_sse_feed(f, bytes, len, used, frame);
		case SAS_FRAMING_LINES:
			return sas_framing_lines_feed(f, bytes, len, used, frame);
		default:
			return sas_framing_websocket_feed(f, bytes, len, used, frame);
	}
}

/*
 * One byte order mark at the very beginning is skipped.  Bytes that only looked like one are fed
 * after all: three bytes without a line end, no item.
 */
SasFrameResult
sas_framing_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame)
{
	SasFrameResult result = SAS_FRAME_MORE;
	size_t		skipped = 0;
	size_t		ignored;

	framer_drop_taken(f);
	memset(frame, 0, sizeof(*frame));
	while (f->bom >= 0 && skipped < len)
	{
		int			seen = f->bom;

		if (seen == 3 || bytes[skipped] != framer_bom[seen])
		{
			f->bom = -1;
			if (seen < 3 && seen > 0)
				result = framer_feed(f, framer_bom, seen, &ignored, frame);
		}
		else
		{
			f->bom++;
			skipped++;
		}
	}
	*used = skipped;
	if (result != SAS_FRAME_MORE || skipped == len)
		return result;
	result = framer_feed(f, bytes + skipped, len - skipped, used, frame);
	*used += skipped;
	return result;
}

bool
sas_framing_begun(const SasFramer *f)
{
	switch (f->framing)
	{
		case SAS_FRAMING_LINES:
			return sas_framing_lines_begun(f);
		case SAS_FRAMING_WEBSOCKET:
			return sas_framing_websocket_begun(f);
		default:
			/* the standard says that such an event is discarded */
			return false;
	}
}

void
sas_framing_rest(SasFramer *f)
{
	framer_drop_taken(f);
	if (f->data.len == 0)
		sas_framing_buffer_free(&f->data);
	if (f->event.len == 0)
		sas_framing_buffer_free(&f->event);
	if (f->id.len == 0)
		sas_framing_buffer_free(&f->id);
}

const char *
sas_framing_last_id(const SasFramer *f)
{
	return f->last_id;
}

bool
sas_framing_id_cleared(const SasFramer *f)
{
	return f->id_cleared;
}

long
sas_framing_retry_ms(const SasFramer *f)
{
	return f->retry_ms;
}

size_t
sas_framing_size(const SasFramer *f)
{
	return sizeof(SasFramer) + sas_framing_websocket_size(f) + f->data.size + f->event.size + f->id.size +
		(f->next_id ? strlen(f->next_id) + 1 : 0) + (f->last_id ? strlen(f->last_id) + 1 : 0);
}
