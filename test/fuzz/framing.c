/* SPDX-License-Identifier: PostgreSQL */
/*
 * framing.c: Server-Sent Events, lines (ndjson) and WebSocket frames. The first
 * byte says which, the second where the bytes are cut: the items must be the
 * same as of the whole.
 *
 * Sources: src/framing/framer.c src/framing/lines.c src/framing/sse.c src/framing/websocket.c -lwslay
 */
#include "framing/framer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEM 1000

/* What came out: a number made of all items, and how it ended. */
typedef struct Told
{
	uint64_t	items;
	size_t		n;
	SasFrameResult end;
} Told;

static void
note(Told *told, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		told->items = (told->items ^ (uint8_t) bytes[i]) * 1099511628211u;
	told->items = (told->items ^ len) * 1099511628211u;
}

static Told
feed(SasFraming framing, const char *bytes, size_t len, size_t piece)
{
	SasFramer  *f = sas_framing_open(framing, MAX_ITEM);
	Told		told = {14695981039346656037u, 0, SAS_FRAME_MORE};

	for (size_t at = 0; f != NULL && at < len && told.end == SAS_FRAME_MORE;)
	{
		size_t		left = len - at < piece ? len - at : piece;

		/* bytes of their own: a read behind them is seen */
		char	   *copy = malloc(left);
		size_t		from = 0;

		memcpy(copy, bytes + at, left);
		while (from < left && told.end == SAS_FRAME_MORE)
		{
			SasFrame	frame;
			size_t		used = 0;
			SasFrameResult result = sas_framing_feed(f, copy + from, left - from, &used, &frame);

			if (used > left - from || (result == SAS_FRAME_MORE && used != left - from))
				abort();
			from += used;
			if (result == SAS_FRAME_ITEM)
			{
				if (frame.data_len + frame.event_len > MAX_ITEM)
					abort();
				note(&told, frame.data, frame.data_len);
				note(&told, frame.event, frame.event == NULL ? 0 : frame.event_len);
				told.n++;
			}
			else if (result != SAS_FRAME_MORE)
				told.end = result;
			if (told.n % 7 == 3)
				sas_framing_rest(f);
		}
		free(copy);
		at += left;
	}
	if (f != NULL)
	{
		const char *id = sas_framing_last_id(f);

		if (id != NULL && framing == SAS_FRAMING_SSE)
			note(&told, id, strlen(id));
		(void) sas_framing_begun(f);
		sas_framing_close(f);
	}
	return told;
}

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const SasFraming framings[] = {SAS_FRAMING_SSE, SAS_FRAMING_LINES, SAS_FRAMING_WEBSOCKET};
	SasFraming	framing;
	Told		whole;
	Told		cut;

	if (size < 2)
		return 0;
	framing = framings[data[0] % 3];
	whole = feed(framing, (const char *) data + 2, size - 2, size);
	cut = feed(framing, (const char *) data + 2, size - 2, 1 + data[1] % 16);
	if (whole.items != cut.items || whole.n != cut.n || whole.end != cut.end)
		abort();
	return 0;
}
