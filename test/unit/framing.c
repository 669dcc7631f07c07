/* SPDX-License-Identifier: PostgreSQL */
/*
 * framing.c: the framers give the same items however the bytes are cut.
 *
 * Each input is fed whole, byte by byte and cut at every one and every two
 * places, and must always give what its row says.  Then random bytes of a
 * small alphabet, cut at random, are compared with a second reading of the
 * standard, written for the whole input at once.  TAP, exits 1 on failure.
 */
#include "framing/framer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int	tests;
static int	failures;

static void
claim(int ok, const char *name, const char *told)
{
	printf("%s %d - %s\n", ok ? "ok" : "not ok", ++tests, name);
	if (!ok)
	{
		failures++;
		printf("#   %s\n", told);
	}
}

/* -------------------------------------------------------------- what is told */

typedef struct Text
{
	char	   *bytes;
	size_t		len;
	size_t		size;
} Text;

static void
add(Text *t, const char *bytes, size_t len)
{
	if (t->len + len + 1 > t->size)
	{
		t->size = (t->len + len + 1) * 2;
		t->bytes = realloc(t->bytes, t->size);
	}
	if (len > 0)
		memcpy(t->bytes + t->len, bytes, len);
	t->len += len;
	t->bytes[t->len] = '\0';
}

static void
add_item(Text *t, const char *event, size_t event_len, const char *data, size_t data_len)
{
	if (event != NULL)
	{
		add(t, "<", 1);
		add(t, event, event_len);
		add(t, ">", 1);
	}
	add(t, "[", 1);
	add(t, data, data_len);
	add(t, "]", 1);
}

static void
add_end(Text *t, const char *id, bool cleared, long retry)
{
	char		text[40];

	if (cleared)
		add(t, "-", 1);
	if (id != NULL)
	{
		add(t, "#", 1);
		add(t, id, strlen(id));
	}
	if (retry >= 0)
	{
		snprintf(text, sizeof(text), "~%ld", retry);
		add(t, text, strlen(text));
	}
}

/* Items as [data], with an event <event>[data], then | for an item that has begun, #id or - for one taken back, and ~retry; "!" for too large, "." for closed, "x" for broken. */
static bool
feed(SasFramer *f, const char *bytes, size_t len, Text *told)
{
	while (len > 0)
	{
		size_t		used = 0;
		SasFrame	frame;
		/* memory of its own, so that a read beyond the chunk is seen */
		char	   *chunk = malloc(len);
		SasFrameResult result;

		memcpy(chunk, bytes, len);
		result = sas_framing_feed(f, chunk, len, &used, &frame);
		if (used > len || (result == SAS_FRAME_MORE && used != len))
			add(told, "?", 1);
		bytes += used;
		len -= used;
		if (result == SAS_FRAME_ITEM)
			add_item(told, frame.event, frame.event_len, frame.data, frame.data_len);
		free(chunk);
		if (result != SAS_FRAME_ITEM && result != SAS_FRAME_MORE)
		{
			add(told, result == SAS_FRAME_CLOSED ? "." : result == SAS_FRAME_BROKEN ? "x" : "!", 1);
			return false;
		}
	}
	sas_framing_rest(f);
	return true;
}

/* What a WebSocket says: " A<data>" for a pong, " 8<code>" for a close frame, " 1<data>" for text; "?" where no mask is. */
static void
add_output(Text *t, const SasFramer *f)
{
	const char *bytes;
	size_t		len = sas_framing_output(f, &bytes);

	for (size_t at = 0; at < len;)
	{
		unsigned	opcode = (unsigned char) bytes[at] & 15;
		size_t		size = (unsigned char) bytes[at + 1] & 127;
		char		data[126] = {0};
		char		text[140];

		if (((unsigned char) bytes[at] & 0xf0) != 0x80 || ((unsigned char) bytes[at + 1] & 0x80) == 0 || size > 125)
		{
			add(t, " ?", 2);
			return;
		}
		for (size_t i = 0; i < size; i++)
			data[i] = bytes[at + 6 + i] ^ bytes[at + 2 + i % 4];
		if (opcode == 8)
			snprintf(text, sizeof(text), " 8%d", size >= 2 ? (unsigned char) data[0] << 8 | (unsigned char) data[1] : 0);
		else
			snprintf(text, sizeof(text), " %X%s", opcode, data);
		add(t, text, strlen(text));
		at += 6 + size;
	}
}

/* cuts: places in order, the last is the length */
static Text
read_cut(SasFraming framing, size_t max_item, const char *bytes, const size_t *cuts, int n)
{
	SasFramer  *f = sas_framing_open(framing, max_item);
	Text		told = {0};
	size_t		at = 0;
	bool		good = true;

	add(&told, "", 0);
	for (int i = 0; i < n && good; i++)
	{
		good = feed(f, bytes + at, cuts[i] - at, &told);
		at = cuts[i];
	}
	if (good && sas_framing_begun(f))
		add(&told, "|", 1);
	add_end(&told, sas_framing_last_id(f), sas_framing_id_cleared(f), sas_framing_retry_ms(f));
	add_output(&told, f);
	sas_framing_close(f);
	return told;
}

/* ------------------------------------------------------------------- tables */

typedef struct Case
{
	const char *name;
	SasFraming	framing;
	size_t		max_item;
	const char *bytes;
	size_t		len;
	const char *told;
} Case;

#define SSE(name, max, bytes, told) {name, SAS_FRAMING_SSE, max, bytes, sizeof(bytes) - 1, told}
#define WS(name, max, bytes, told) {name, SAS_FRAMING_WEBSOCKET, max, bytes, sizeof(bytes) - 1, told}
#define LINES(name, max, bytes, told) {name, SAS_FRAMING_LINES, max, bytes, sizeof(bytes) - 1, told}

static const Case cases[] = {
	SSE("an event", 100, "data: a\n\n", "[a]"),
	SSE("lines may end with LF, CR or CRLF", 100, "data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[a][b][c]"),
	SSE("CR and LF of one line end may come apart", 100, "data: a\r\ndata: b\r\n\r\n", "[a\nb]"),
	SSE("CR LF LF is a line end and an empty line", 100, "data: a\r\n\n", "[a]"),
	SSE("several lines of data are joined by line feeds", 100, "data: a\ndata:\ndata\ndata:b\n\n", "[a\n\n\nb]"),
	SSE("one blank behind the colon is left out, and only one", 100, "data:  a\n\ndata:a\n\ndata: \ta\n\n", "[ a][a][\ta]"),
	SSE("a field without a colon has an empty value", 100, "data\n\n", "[]"),
	SSE("an event without data is none", 100, "event: x\n\nid: 1\n\n\n\n", "#1"),
	SSE("its name does not stay for the next", 100, "event: x\n\ndata: a\n\nevent: y\ndata: b\n\ndata: c\n\n", "[a]<y>[b][c]"),
	SSE("the last name counts, and may be empty", 100, "event: x\nevent: y\ndata: a\n\nevent: x\nevent\ndata: b\n\n", "<y>[a][b]"),
	SSE("comments and unknown fields are nothing", 100, ": hello\n:\nfoo: bar\ndatum: x\ndat: x\ndata1: x\nDATA: x\n data: x\ndata: a\n\n", "[a]"),
	SSE("a long comment and a long unknown field need no room", 10, ": 0123456789012345678901234567890123456789\nunknown: 0123456789012345678901234567890\ndata: a\n\n", "[a]"),
	SSE("the id is that of the last event", 100, "id: 1\ndata: a\n\ndata: b\n\nid: 2\n\nid: 3\n", "[a][b]#2"),
	SSE("an empty id takes it back", 100, "id: 1\ndata: a\n\nid\ndata: b\n\n", "[a][b]-"),
	SSE("until there is another", 100, "id: 1\ndata: a\n\nid\ndata: b\n\nid: 2\ndata: c\n\n", "[a][b][c]#2"),
	SSE("an empty id of an event that is not complete takes none back", 100, "id: 1\ndata: a\n\nid\ndata: b\n", "[a]#1"),
	SSE("an id with a NUL or another control character is ignored", 100, "id: 1\ndata: a\n\nid: 2\0003\ndata: b\n\nid: \1\ndata: c\n\n", "[a][b][c]#1"),
	SSE("the last of several ids counts", 100, "id: 1\nid: 2\ndata: a\n\n", "[a]#2"),
	SSE("retry takes digits only", 100, "retry: 250\nretry: 1s\nretry:\nretry: -1\n\n", "~250"),
	SSE("a byte order mark at the beginning is left out, once", 100, "\xef\xbb\xbf" "data: a\n\n\xef\xbb\xbf" "data: b\n\n", "[a]"),
	SSE("half a byte order mark belongs to a name that nobody knows", 100, "\xef\xbb" "data: a\ndata: b\n\n", "[b]"),
	SSE("an event that is not complete at the end is none", 100, "data: a\n\ndata: b\n", "[a]"),
	SSE("nor is one whose last line has no end", 100, "data: a\n\nid: 2\ndata: b", "[a]"),
	SSE("max_item itself is not too large", 4, "data: abc\n\n", "[abc]"),
	SSE("one byte more is", 4, "data: a\n\ndata: abcd\n\n", "[a]!"),
	SSE("many short lines of one event are too large together", 6, "data\ndata\ndata\ndata\ndata\ndata\ndata\n\n", "!"),
	SSE("an event's name counts", 6, "event: abcdefg\n\n", "!"),
	SSE("a colon in a value belongs to it", 100, "data: a:b: c\n\n", "[a:b: c]"),
	SSE("a NUL in data stays", 4, "data: a\0b\n\n", "[a"),
	LINES("a line is an item", 100, "{\"a\":1}\n[2]\n", "[{\"a\":1}][[2]]"),
	LINES("a line without its end is none", 100, "1\n2", "[1]|"),
	LINES("nor is one that a CR ends", 100, "1\n2\r", "[1]|"),
	LINES("nor is a first line", 100, "{\"a\": 12", "|"),
	LINES("what is blank has not begun", 100, "1\n \r\t", "[1]"),
	LINES("blank lines are nothing", 100, "\n \n\r\n\t\r\n1\n\n\n", "[1]"),
	LINES("CRLF ends a line as LF does", 100, "1\r\n2\r\n", "[1][2]"),
	LINES("a CR alone ends none", 100, "1\r2\n", "[1\r2]"),
	LINES("a byte order mark at the beginning is left out", 100, "\xef\xbb\xbf" "1\n", "[1]"),
	LINES("half a byte order mark stays", 100, "\xef\xbb" "1\n", "[\xef\xbb" "1]"),
	LINES("max_item itself is not too large", 3, "123\n456\n", "[123][456]"),
	LINES("one byte more is", 3, "123\n4567\n", "[123]!"),
	WS("a message is an item, of text or not", 100, "\x81\3abc\x82\1d", "[abc][d]"),
	WS("fragments are one item", 100, "\1\2ab\0\0\0\1c\x80\1d", "[abcd]"),
	WS("control frames may come between them, pings are answered", 100, "\1\1a\x89\2hi\x80\1b\x8a\1x", "[ab] Ahi"),
	WS("each ping is answered, in order", 100, "\x89\1a\x89\1b\x89\0", " Aa Ab A"),
	WS("a message without bytes is no item", 100, "\x81\0\1\0\x80\0\x81\1a", "[a]"),
	WS("a message that has begun is none", 100, "\x81\1a\1\1b", "[a]|"),
	WS("nor is half a frame", 100, "\x81\3ab", "|"),
	WS("nor the beginning of a fragment without bytes", 100, "\1\0", "|"),
	WS("a byte order mark and line ends are bytes like others", 100, "\x81\5\xef\xbb\xbf\n\r", "[\xef\xbb\xbf\n\r]"),
	WS("a length may have two bytes", 200, "\x82\x7e\0\x7e" "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345", "[012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345]"),
	WS("but not where one is enough", 200, "\x82\x7e\0\3abc", "x 81002"),
	WS("nor eight where two are enough", 200, "\x82\x7f\0\0\0\0\0\0\0\3abc", "x 81002"),
	WS("a length of 2^63 is none", 200, "\x82\x7f\x80\0\0\0\0\0\0\0abc", "x 81002"),
	WS("max_item itself is not too large", 4, "\x81\4abcd\1\2ab\x80\2cd", "[abcd][abcd]"),
	WS("one byte more is, before it has come", 4, "\x81\4abcd\x81\5a", "[abcd]! 81009"),
	WS("and in fragments", 4, "\1\3abc\x80\2d", "! 81009"),
	WS("a huge length is too large at once", 4, "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff" "a", "! 81009"),
	WS("each reserved bit is refused", 100, "\xc1\1a", "x 81002"),
	WS("also the second", 100, "\xa1\1a", "x 81002"),
	WS("and the third, of a control frame too", 100, "\x81\1a\x99\0", "[a]x 81002"),
	WS("a mask is refused", 100, "\x81\x81\1\2\3\4`", "x 81002"),
	WS("unknown opcodes are", 100, "\x83\0", "x 81002"),
	WS("of control frames too", 100, "\x8b\0", "x 81002"),
	WS("a ping is not longer than 125 bytes", 200, "\x89\x7e\0\x7e", "x 81002"),
	WS("nor comes it in fragments", 100, "\x09\1a", "x 81002"),
	WS("nothing is continued that has not begun", 100, "\x80\1a", "x 81002"),
	WS("nor after the end of a message", 100, "\x81\1a\x80\1b", "[a]x 81002"),
	WS("no message begins in the middle of one", 100, "\1\1a\x81\1b", "x 81002"),
	WS("text is UTF-8, whatever the fragments", 100, "\1\2\xce\xba\0\1\xe1\0\1\xbd\x80\3\xb9\xcf\x83", "[\xce\xba\xe1\xbd\xb9\xcf\x83]"),
	WS("a surrogate is not", 100, "\x81\3\xed\xa0\x80", "x 81007"),
	WS("nor what is beyond U+10FFFF, told by its second byte", 100, "\1\2\xf4\x90", "x 81007"),
	WS("nor what is written too long", 100, "\x81\2\xc0\xaf", "x 81007"),
	WS("nor in three bytes", 100, "\x81\3\xe0\x80\xaf", "x 81007"),
	WS("nor in four", 100, "\x81\4\xf0\x80\x80\xaf", "x 81007"),
	WS("nor a byte that continues nothing", 100, "\x81\1\x80", "x 81007"),
	WS("nor a character that is cut off", 100, "\x81\2\xe1\xbd", "x 81007"),
	WS("the last characters are", 100, "\x81\4\xf4\x8f\xbf\xbf\x81\3\xef\xbf\xbf\x81\3\xed\x9f\xbf", "[\xf4\x8f\xbf\xbf][\xef\xbf\xbf][\xed\x9f\xbf]"),
	WS("other messages are any bytes", 100, "\x82\2\xc0\xaf", "[\xc0\xaf]"),
	WS("a close is answered with its code, and the rest ignored", 100, "\x88\2\3\xe8\x81\1a\x89\0", ". 81000"),
	WS("one without a code, without", 100, "\x81\1a\x88\0", "[a]. 80"),
	WS("with a reason", 100, "\x88\4\x0f\xa0no", ". 84000"),
	WS("in the middle of a message", 100, "\1\1a\x88\2\3\xe9", ". 81001"),
	WS("half a code is none", 100, "\x88\1\3", "x 81002"),
	WS("0 is none", 100, "\x88\2\0\0", "x 81002"),
	WS("nor 999", 100, "\x88\2\3\xe7", "x 81002"),
	WS("nor 1004", 100, "\x88\2\3\xec", "x 81002"),
	WS("nor 1005", 100, "\x88\2\3\xed", "x 81002"),
	WS("nor 1006", 100, "\x88\2\3\xee", "x 81002"),
	WS("nor 1015", 100, "\x88\2\3\xf7", "x 81002"),
	WS("nor 2999", 100, "\x88\2\x0b\xb7", "x 81002"),
	WS("nor 5000", 100, "\x88\2\x13\x88", "x 81002"),
	WS("a reason is UTF-8", 100, "\x88\4\3\xe8\xc0\xaf", "x 81007"),
	WS("a pong that nobody asked for is nothing", 100, "\x8a\1a\x81\1b", "[b]"),
	LINES("also without an end", 3, "123\n45678901234567890", "[123]!"),
};

static void
check_case(const Case *c)
{
	size_t		len = c->len;
	size_t	   *every = malloc(sizeof(size_t) * (len + 1));
	Text		wrong = {0};

	for (size_t i = 0; i < len; i++)
		every[i] = i + 1;
	for (size_t a = 0; a <= len; a++)
		for (size_t b = a; b <= len; b++)
		{
			size_t		cuts[3] = {a, b, len};
			Text		told = read_cut(c->framing, c->max_item, c->bytes, cuts, 3);

			/* with a NUL in what is told, its beginning is compared */
			if (strcmp(told.bytes, c->told) != 0 && wrong.len == 0)
			{
				char		where[60];

				snprintf(where, sizeof(where), "cut at %zu and %zu: ", a, b);
				add(&wrong, where, strlen(where));
				add(&wrong, told.bytes, told.len);
			}
			free(told.bytes);
		}
	{
		Text		told = read_cut(c->framing, c->max_item, c->bytes, every, (int) len);

		if (strcmp(told.bytes, c->told) != 0 && wrong.len == 0)
			add(&wrong, told.bytes, told.len);
		free(told.bytes);
	}
	claim(wrong.len == 0, c->name, wrong.bytes);
	free(wrong.bytes);
	free(every);
}

/* ----------------------------------------------------- a second reading of it */

/* All lines of the input, ended by CRLF, LF or CR. Returns the line's length; *next behind its end, NULL: it has none. */
static size_t
line_of(const char *at, const char *end, const char **next)
{
	const char *p = at;

	while (p < end && *p != '\r' && *p != '\n')
		p++;
	*next = p == end ? NULL : p + 1;
	if (p + 1 < end && p[0] == '\r' && p[1] == '\n')
		*next = p + 2;
	return p - at;
}

static Text
reference(const char *bytes, size_t len)
{
	Text		told = {0};
	Text		data = {0};
	char		event[512] = "";
	char		id[512] = "";
	char		last[512] = "";
	bool		seen = false;
	bool		cleared = false;
	long		retry = -1;
	const char *end = bytes + len;
	const char *next;

	add(&told, "", 0);
	if (len >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
		bytes += 3;
	for (const char *at = bytes; at < end; at = next)
	{
		size_t		n = line_of(at, end, &next);
		const char *colon = memchr(at, ':', n);
		size_t		name = colon ? (size_t) (colon - at) : n;
		const char *value = colon ? colon + 1 : at + n;

		if (next == NULL)
			break;
		if (value < at + n && *value == ' ')
			value++;
		if (n == 0)
		{
			strcpy(last, id);
			cleared = seen && !*id;
			if (data.len > 0)
				add_item(&told, *event ? event : NULL, strlen(event), data.bytes, data.len - 1);
			data.len = 0;
			*event = '\0';
		}
		else if (name == 4 && memcmp(at, "data", 4) == 0)
		{
			add(&data, value, at + n - value);
			add(&data, "\n", 1);
		}
		else if (name == 5 && memcmp(at, "event", 5) == 0)
			snprintf(event, sizeof(event), "%.*s", (int) (at + n - value), value);
		else if (name == 2 && memcmp(at, "id", 2) == 0 && memchr(value, '\1', at + n - value) == NULL)
		{
			seen = true;
			snprintf(id, sizeof(id), "%.*s", (int) (at + n - value), value);
		}
		else if (name == 5 && memcmp(at, "retry", 5) == 0 && value < at + n &&
				 strspn(value, "0123456789") >= (size_t) (at + n - value))
		{
			retry = 0;
			for (const char *d = value; d < at + n; d++)
				if (retry < 1000000000)
					retry = retry * 10 + (*d - '0');
		}
	}
	add_end(&told, *last ? last : NULL, cleared, retry);
	free(data.bytes);
	return told;
}

/* Words of the language, so that random input says something. */
static void
check_random(int rounds)
{
	static const char *const words[] = {"data", "data:", "data: ", "event:", "id:", "id", "retry:", "retry: ", ":", "\n", "\n", "\r", "\r\n",
	"\n\n", " ", "a", "17", "\1", "\xef\xbb\xbf", "\xc3\xa4", "x", "datax"};
	Text		wrong = {0};

	srand(4711);
	for (int i = 0; i < rounds && wrong.len == 0; i++)
	{
		Text		input = {0};
		size_t		cuts[40];
		int			n = 0;
		Text		told;
		Text		expected;

		add(&input, "", 0);
		for (int w = rand() % 60; w >= 0; w--)
		{
			const char *word = words[rand() % (sizeof(words) / sizeof(words[0]))];

			add(&input, word, strlen(word));
		}
		for (size_t at = 0; at < input.len && n < 39;)
		{
			at += rand() % 9;
			cuts[n++] = at < input.len ? at : input.len;
		}
		cuts[n++] = input.len;
		told = read_cut(SAS_FRAMING_SSE, 100000, input.bytes, cuts, n);
		expected = reference(input.bytes, input.len);
		if (strcmp(told.bytes, expected.bytes) != 0)
		{
			add(&wrong, "input: ", 7);
			for (size_t k = 0; k < input.len; k++)
			{
				char		c[8];

				snprintf(c, sizeof(c), input.bytes[k] > ' ' ? "%c" : "\\%o", (unsigned char) input.bytes[k]);
				add(&wrong, c, strlen(c));
			}
			add(&wrong, " told: ", 7);
			add(&wrong, told.bytes, told.len);
			add(&wrong, " expected: ", 11);
			add(&wrong, expected.bytes, expected.len);
		}
		free(told.bytes);
		free(expected.bytes);
		free(input.bytes);
	}
	claim(wrong.len == 0, "random events, cut at random, are read as the standard reads them", wrong.bytes);
	free(wrong.bytes);
}

/* -------------------------------------------------------------------- memory */

/* Frames and what is broken about them: whatever comes, what is told does not depend on where it is cut. */
static void
check_random_frames(int rounds)
{
	static const unsigned char heads[] = {0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x88, 0x81, 0x82, 0x80};
	char		bytes[400];
	int			different = 0;

	srand(11);
	for (int round = 0; round < rounds && different == 0; round++)
	{
		size_t		len = 0;
		Text		whole;
		Text		torn;

		while (len < 300 && rand() % 20 != 0)
		{
			size_t		n = rand() % 9 == 0 ? rand() % 64 : rand() % 5;

			bytes[len++] = (char) heads[rand() % sizeof(heads)];
			bytes[len++] = (char) n;
			for (size_t i = 0; i < n; i++)
				bytes[len++] = (char) (rand() % 12 == 0 ? rand() : 'a' + rand() % 26);
		}
		if (len > 0 && rand() % 2 == 0)
			bytes[rand() % len] = (char) rand();
		{
			size_t		cuts[4] = {len / 4, len / 3, len / 2, len};
			size_t		once[1] = {len};

			cuts[1] = cuts[0] + (len > 1 ? rand() % (len / 2 + 1) : 0);
			cuts[2] = cuts[1] > cuts[2] ? cuts[1] : cuts[2];
			whole = read_cut(SAS_FRAMING_WEBSOCKET, 50, bytes, once, 1);
			torn = read_cut(SAS_FRAMING_WEBSOCKET, 50, bytes, cuts, 4);
		}
		different = whole.len != torn.len || memcmp(whole.bytes, torn.bytes, whole.len) != 0;
		free(whole.bytes);
		free(torn.bytes);
	}
	claim(different == 0, "random and broken frames tell the same however they are cut", "they do not");
}

/* A WebSocket speaks: text of any size, in frames that are masked by random bytes. */
static void
check_said(void)
{
	SasFramer  *f = sas_framing_open(SAS_FRAMING_WEBSOCKET, 100);
	char		text[70000];
	const char *out;
	size_t		len;
	int			same = 0;
	char		first[4] = {0};

	memset(text, 'x', sizeof(text));
	claim(sas_framing_websocket_say(f, text, 5) && sas_framing_websocket_ping(f), "text and a ping are said", "they are not");
	len = sas_framing_output(f, &out);
	claim(len == 5 + 6 + 6 && (unsigned char) out[0] == 0x81 && (unsigned char) out[1] == 0x85 && (unsigned char) out[11] == 0x89 && (unsigned char) out[12] == 0x80,
		  "each in a frame with a mask", "it is not");
	sas_framing_output_taken(f);
	claim(sas_framing_output(f, &out) == 0, "what is taken is gone", "it is not");
	for (int i = 0; i < 16; i++)
	{
		sas_framing_websocket_ping(f);
		sas_framing_output(f, &out);
		same += memcmp(first, out + 2, 4) == 0;
		memcpy(first, out + 2, 4);
		sas_framing_output_taken(f);
	}
	claim(same <= 1, "a mask is not used again", "it is");
	sas_framing_websocket_say(f, text, sizeof(text));
	len = sas_framing_output(f, &out);
	claim(len == sizeof(text) + 14 && (unsigned char) out[1] == 0xff && (out[14 + 69999] ^ out[10 + 69999 % 4]) == 'x', "a long text is one frame", "it is not");
	sas_framing_output_taken(f);
	sas_framing_websocket_close(f, 1000);
	sas_framing_websocket_close(f, 1001);
	claim(sas_framing_output(f, &out) == 8 && sas_framing_size(f) < 1000, "it closes once", "it does not");
	sas_framing_close(f);
}

static void
check_memory(void)
{
	SasFramer  *f = sas_framing_open(SAS_FRAMING_SSE, 1000000);
	char	   *many = malloc(65536);
	Text		told = {0};
	size_t		most = 0;

	memset(many, 'x', 65536);
	feed(f, "id: 7\ndata: a\n\n: ", 17, &told);
	for (int i = 0; i < 1000; i++)
	{
		feed(f, many, 65536, &told);
		if (sas_framing_size(f) > most)
			most = sas_framing_size(f);
	}
	claim(most < 1000, "a comment of 64 MB needs no memory", "it does");
	feed(f, "\ndata: ", 7, &told);
	for (int i = 0; i < 10; i++)
		feed(f, many, 65536, &told);
	claim(sas_framing_size(f) > 600000, "half an event is kept", "it is not");
	feed(f, "\n\n", 2, &told);
	claim(sas_framing_size(f) < 1000, "and given back with the event", "it is not");
	sas_framing_close(f);
	free(told.bytes);
	free(many);
}

int
main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_case(&cases[i]);
	check_random(50000);
	check_random_frames(20000);
	check_said();
	check_memory();
	printf("1..%d\n", tests);
	return failures > 0;
}
