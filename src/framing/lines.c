/* SPDX-License-Identifier: PostgreSQL */
/*
 * lines.c
 *	  An item per line.
 *
 * A line ends with LF; a CR before it is not part of it.  Blank lines, which
 * services send to keep a connection open, are no items.  Neither is a line
 * without its LF, however the stream ends: 12 may be the beginning of 123.
 */
#include "framing/buffer.h"

#include <string.h>

static bool
lines_is_blank(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != ' ' && bytes[i] != '\t' && bytes[i] != '\r')
			return false;
	return true;
}

static bool
lines_take(SasFrame *frame, const char *bytes, size_t len)
{
	if (lines_is_blank(bytes, len))
		return false;
	frame->data = bytes;
	frame->data_len = bytes[len - 1] == '\r' ? len - 1 : len;
	return true;
}

/*
 * A line that is complete in the bytes is returned without a copy.
 */
SasFrameResult
sas_framing_lines_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame)
{
	const char *at = bytes;
	const char *end = bytes + len;

	while (at < end)
	{
		const char *feed = memchr(at, '\n', end - at);
		size_t		n = (feed ? feed : end) - at;
		const char *line = at;

		if (n > f->max_item - f->data.len)
		{
			*used = at - bytes;
			return SAS_FRAME_TOO_LARGE;
		}
		if (f->data.len > 0 || feed == NULL)
		{
			if (!sas_framing_buffer_append(&f->data, at, n))
			{
				*used = at - bytes;
				return SAS_FRAME_NO_MEMORY;
			}
			line = f->data.bytes;
			n = f->data.len;
		}
		if (feed == NULL)
			break;
		at = feed + 1;
		if (lines_take(frame, line, n))
		{
			f->taken = true;
			*used = at - bytes;
			return SAS_FRAME_ITEM;
		}
		f->data.len = 0;
	}
	*used = len;
	return SAS_FRAME_MORE;
}

bool
sas_framing_lines_begun(const SasFramer *f)
{
	return !f->taken && !lines_is_blank(f->data.bytes, f->data.len);
}
