/* SPDX-License-Identifier: PostgreSQL */
/*
 * records.c
 *	  Items in records, as they are made where a protocol has messages of its
 *	  own. Empty items are none.
 */
#include "framing/buffer.h"

/* Bytes of the header that is not complete. */
static size_t
records_read_header(SasFramer *f, const char *bytes, size_t len)
{
	size_t		n = 0;

	while (f->header_len < 5 && n < len)
		f->header[f->header_len++] = (unsigned char) bytes[n++];
	if (f->header_len == 5)
		f->left = ((size_t) f->header[0] << 24) | ((size_t) f->header[1] << 16) | ((size_t) f->header[2] << 8) | f->header[3];
	return n;
}

SasFrameResult
sas_framing_records_feed(SasFramer *f, const char *bytes, size_t len, size_t *used, SasFrame *frame)
{
	size_t		at = 0;

	while (at < len)
	{
		size_t		n;

		if (f->header_len < 5)
			at += records_read_header(f, bytes + at, len - at);
		if (f->header_len < 5)
			break;
		n = f->left < len - at ? f->left : len - at;
		*used = at;
		if (n > f->max_item - f->data.len)
			return SAS_FRAME_TOO_LARGE;
		if (!sas_framing_buffer_append(&f->data, bytes + at, n))
			return SAS_FRAME_NO_MEMORY;
		at += n;
		f->left -= n;
		if (f->left > 0)
			break;
		f->header_len = 0;
		if (f->header[4] != 1 || f->data.len == 0)
			continue;
		frame->data = f->data.bytes;
		frame->data_len = f->data.len;
		f->taken = true;
		*used = at;
		return SAS_FRAME_ITEM;
	}
	*used = len;
	return SAS_FRAME_MORE;
}
