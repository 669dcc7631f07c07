/* SPDX-License-Identifier: PostgreSQL */
/*
 * written.c: how long a value is as text.
 *
 * Only numbers can be much longer than the value that contains them. What their text needs stands
 * in the header of a numeric: the weight of the first digit, and the digits after the point. The
 * layout is that of numeric.c, the same on disk since PostgreSQL 9.1.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "utils/numeric.h"

#include "base/written.h"

#define HEADER_KIND 0xC000
#define HEADER_SPECIAL 0xC000	/* NaN and infinities */
#define HEADER_SHORT 0x8000
#define DIGITS 4				/* decimal ones, in each digit of a numeric */

/* The longest text of a number, and the least that it takes in a jsonb, as a level does: value and JEntry. */
#define LONGEST_NUMBER (131072 + 16383 + 2)
#define LEAST_NUMBER 12
#define LEAST_LEVEL 8
/* By so much its text may be longer before it counts: that of a string may have six times as many bytes. */
#define FEW_DIGITS 64

static Size
written_number_more(Numeric number)
{
	uint16		head[2] = {0, 0};
	int			weight,
				scale;
	Size		size = VARSIZE_ANY(number),
				text;

	memcpy(head, VARDATA_ANY(number), Min(sizeof(head), VARSIZE_ANY_EXHDR(number)));
	if ((head[0] & HEADER_KIND) == HEADER_SPECIAL)
		return 0;
	if ((head[0] & HEADER_KIND) == HEADER_SHORT)
	{
		weight = (head[0] & 0x0040) ? -1 : head[0] & 0x003F;
		scale = (head[0] & 0x1F80) >> 7;
	}
	else
	{
		weight = (int16) head[1];
		scale = head[0] & 0x3FFF;
	}
	text = (weight >= 0 ? (weight + 1) * DIGITS : 1) + scale;
	return text > size + FEW_DIGITS ? text - size : 0;
}

/* What its numbers add; *levels is how deep it is. */
static Size
written_container_more(JsonbContainer *container, int *levels)
{
	JsonbIterator *iterator = JsonbIteratorInit(container);
	JsonbIteratorToken token;
	JsonbValue	part;
	Size		more = 0;
	int			level = 0;

	*levels = 0;
	while ((token = JsonbIteratorNext(&iterator, &part, false)) != WJB_DONE)
	{
		if (token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT)
		{
			level++;
			*levels = Max(*levels, level);
		}
		else if (token == WJB_END_ARRAY || token == WJB_END_OBJECT)
			level--;
		else if (token != WJB_KEY && part.type == jbvNumeric)
			more += written_number_more(part.val.numeric);
	}
	return more;
}

Size
sas_base_written_value(const JsonbValue *value)
{
	int			levels;

	switch (value->type)
	{
		case jbvString:
			return value->val.string.len;
		case jbvNumeric:
			return VARSIZE_ANY(value->val.numeric) + written_number_more(value->val.numeric);
		case jbvBinary:
			return value->val.binary.len + written_container_more(value->val.binary.data, &levels);
		default:
			return sizeof(JEntry);
	}
}

Size
sas_base_written_size(Datum jsonb, Size most)
{
	Size		size = toast_raw_datum_size(jsonb);
	Jsonb	   *whole;
	int			levels;

	if (size > most || ((size / LEAST_NUMBER + 1) * LONGEST_NUMBER <= most && size / LEAST_LEVEL < SAS_WRITTEN_LEVELS))
		return size;
	whole = DatumGetJsonbP(jsonb);
	size += written_container_more(&whole->root, &levels);
	if (levels > SAS_WRITTEN_LEVELS)
		size = SAS_WRITTEN_TOO_DEEP;
	if ((Pointer) whole != DatumGetPointer(jsonb))
		pfree(whole);
	return size;
}
