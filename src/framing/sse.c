/* SPDX-License-Identifier: PostgreSQL */
/*
 * sse.c
 *	  Server-Sent Events, as "interpreting an event stream" of the WHATWG HTML
 *	  standard (9.2.6) says.
 *
 * A line ends with CR, LF or CRLF. It is empty (the event is complete), a
 * comment (begins with a colon), or "name: value", with the name alone for
 * an empty value.  Values are stored at once; comments and unknown fields
 * are not stored, however long they are.
 */
#include "framing/buffer.h"

#include <stdlib.h>
#include <string.h>

static SasSseField
sse_field(const SasFramer *f)
{
	static const struct
	{
		const char *name;
		SasSseField field;
	}			fields[] = {{"data", SAS_SSE_DATA}, {"event", SAS_SSE_EVENT}, {"id", SAS_SSE_ID}, {"retry", SAS_SSE_RETRY}};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strlen(fields[i].name) == (size_t) f->name_len && memcmp(fields[i].name, f->name, f->name_len) == 0)
			return fields[i].field;
	return SAS_SSE_NONE;
}

/* The name of a field is complete. */
static void
sse_begin_value(SasFramer *f)
{
	f->field = sse_field(f);
	f->state = f->field == SAS_SSE_NONE ? SAS_SSE_SKIP : SAS_SSE_COLON;
	f->bad = false;
	f->retry = -1;
	f->id.len = 0;
	if (f->field == SAS_SSE_EVENT)
		f->event.len = 0;
}

static SasFrameResult
sse_add_bytes(SasFramer *f, SasFramingBuffer *buffer, const char *bytes, size_t len)
{
	if (len > f->max_item - f->data.len - f->event.len || (buffer == &f->id && len > SAS_FRAME_MAX_ID - buffer->len))
		return SAS_FRAME_TOO_LARGE;
	return sas_framing_buffer_append(buffer, bytes, len) ? SAS_FRAME_MORE : SAS_FRAME_NO_MEMORY;
}

static void
sse_add_digits(SasFramer *f, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		if (bytes[i] < '0' || bytes[i] > '9')
			f->bad = true;
		else if (f->retry < 1000000000)
			f->retry = (f->retry < 0 ? 0 : f->retry) * 10 + (bytes[i] - '0');
	}
}

static SasFrameResult
sse_add_value(SasFramer *f, const char *bytes, size_t len)
{
	switch (f->field)
	{
		case SAS_SSE_DATA:
			return sse_add_bytes(f, &f->data, bytes, len);
		case SAS_SSE_EVENT:
			return sse_add_bytes(f, &f->event, bytes, len);
		case SAS_SSE_ID:
			for (size_t i = 0; i < len; i++)
				f->bad = f->bad || ((unsigned char) bytes[i] < ' ' && bytes[i] != '\t') || bytes[i] == 0x7f;
			return f->bad ? SAS_FRAME_MORE : sse_add_bytes(f, &f->id, bytes, len);
		case SAS_SSE_RETRY:
			sse_add_digits(f, bytes, len);
			return SAS_FRAME_MORE;
		default:
			return SAS_FRAME_MORE;
	}
}

/* A copy of the id that was read; NULL in *copy if it is empty. */
static bool
sse_copy_id(const SasFramer *f, char **copy)
{
	*copy = NULL;
	if (f->id.len == 0)
		return true;
	*copy = malloc(f->id.len + 1);
	if (*copy == NULL)
		return false;
	memcpy(*copy, f->id.bytes, f->id.len);
	(*copy)[f->id.len] = '\0';
	return true;
}

/* The line that has ended was a field. */
static SasFrameResult
sse_end_field(SasFramer *f)
{
	char	   *id;

	if (f->field == SAS_SSE_DATA)
		return sse_add_bytes(f, &f->data, "\n", 1);
	if (f->field == SAS_SSE_RETRY && !f->bad && f->retry >= 0)
		f->retry_ms = f->retry;
	if (f->field == SAS_SSE_ID && !f->bad)
	{
		if (!sse_copy_id(f, &id))
			return SAS_FRAME_NO_MEMORY;
		free(f->next_id);
		f->next_id = id;
		f->id_seen = true;
		f->id.len = 0;
	}
	return SAS_FRAME_MORE;
}

/* An empty line: the event is complete, if it has data. */
static SasFrameResult
sse_dispatch(SasFramer *f, SasFrame *frame)
{
	if (f->id_seen)
	{
		free(f->last_id);
		f->last_id = f->next_id;
		f->id_cleared = f->last_id == NULL;
		f->next_id = NULL;
		f->id_seen = false;
	}
	if (f->data.len == 0)
	{
		f->event.len = 0;
		return SAS_FRAME_MORE;
	}
	frame->data = f->data.bytes;
	frame->data_len = f->data.len - 1;	/* without the last line feed */
	frame->event = f->event.len > 0 ? f->event.bytes : NULL;
	frame->event_len = f->event.len;
	f->taken = true;
	return SAS_FRAME_ITEM;
}

static SasFrameResult
sse_end_line(SasFramer *f, SasFrame *frame)
{
	SasFrameResult result = SAS_FRAME_MORE;

	if (f->state == SAS_SSE_NAME && f->name_len == 0)
		return sse_dispatch(f, frame);
	if (f->state == SAS_SSE_NAME)
		sse_begin_value(f);
	if (f->state != SAS_SSE_SKIP)
		result = sse_end_field(f);
	f->state = SAS_SSE_NAME;
	f->name_len = 0;
	return result;
}

/* A byte of a name, no line end. */
static void
sse_add_name(SasFramer *f, char c)
{
	if (c == ':' && f->name_len > 0)
		sse_begin_value(f);
	else if (c == ':' || f->name_len == sizeof(f->name))
		f->state = SAS_SSE_SKIP;
	else
		f->name[f->name_len++] = c;
}

static const char *
sse_find_line_end(const char *at, const char *end)
{
	const char *feed = memchr(at, '\n', end - at);
	const char *ret = memchr(at, '\r', (feed ? feed : end) - at);

	return ret ? ret : feed ? feed : end;
}

SasFrameResult
sas_framing_sse_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame)
{
	SasFrameResult result = SAS_FRAME_MORE;
	const char *at = bytes;
	const char *end = bytes + len;

	while (at < end && result == SAS_FRAME_MORE)
	{
		bool		belongs = f->after_cr && *at == '\n';

		f->after_cr = false;
		if (belongs)
			at++;
		else if (*at == '\n' || *at == '\r')
		{
			f->after_cr = *at++ == '\r';
			result = sse_end_line(f, frame);
		}
		else if (f->state == SAS_SSE_NAME)
			sse_add_name(f, *at++);
		else if (f->state == SAS_SSE_COLON)
		{
			at += *at == ' ';
			f->state = SAS_SSE_VALUE;
		}
		else
		{
			const char *stop = sse_find_line_end(at, end);

			if (f->state == SAS_SSE_VALUE)
				result = sse_add_value(f, at, stop - at);
			at = stop;
		}
	}
	*used = at - bytes;
	return result;
}
