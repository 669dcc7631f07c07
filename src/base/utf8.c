/* SPDX-License-Identifier: PostgreSQL */
/*
 * utf8.c: converts between the encoding of the database and UTF-8.
 *
 * Replies come while no transaction is open, and no reply may raise an
 * error, whatever its bytes are. So the conversion functions are looked up
 * before, and are called so that they do not raise.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/utf8.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

static bool utf8_prepared = false;
static bool utf8_converts = false;
static FmgrInfo utf8_to_utf8;
static FmgrInfo utf8_from_utf8;

void
sas_base_utf8_prepare(void)
{
	int			encoding = GetDatabaseEncoding();
	Oid			to;
	Oid			from;

	if (utf8_prepared)
		return;
	if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII)
	{
		if (!IsTransactionState())
			return;
		to = FindDefaultConversionProc(encoding, PG_UTF8);
		from = FindDefaultConversionProc(PG_UTF8, encoding);
		if (OidIsValid(to) && OidIsValid(from))
		{
			fmgr_info_cxt(to, &utf8_to_utf8, TopMemoryContext);
			fmgr_info_cxt(from, &utf8_from_utf8, TopMemoryContext);
			utf8_converts = true;
		}
	}
	utf8_prepared = true;
}

static bool
utf8_is_ascii(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (IS_HIGHBIT_SET(bytes[i]))
			return false;
	return true;
}

/* The converted bytes; NULL when one has no counterpart. */
static char *
utf8_convert(FmgrInfo *how, int from, int to, const char *bytes, size_t len)
{
	char	   *made = MemoryContextAllocHuge(CurrentMemoryContext, (Size) len * MAX_CONVERSION_GROWTH + 1);
	int			done = DatumGetInt32(FunctionCall6(how, Int32GetDatum(from), Int32GetDatum(to), CStringGetDatum(bytes),
												   CStringGetDatum(made), Int32GetDatum((int) len), BoolGetDatum(true)));

	if (done == (int) len)
		return made;
	pfree(made);
	return NULL;
}

char *
sas_base_utf8_of(char *text)
{
	size_t		len = strlen(text);
	char	   *made;

	sas_base_utf8_prepare();
	if (!utf8_converts || utf8_is_ascii(text, len))
		return text;
	made = utf8_convert(&utf8_to_utf8, GetDatabaseEncoding(), PG_UTF8, text, len);
	return made != NULL ? made : text;
}

bool
sas_base_is_utf8(char *text)
{
	const char *utf8;

	if (GetDatabaseEncoding() == PG_UTF8)
		return true;
	utf8 = sas_base_utf8_of(text);
	return pg_verify_mbstr(PG_UTF8, utf8, strlen(utf8), true);
}

char *
sas_base_utf8_text(const char *bytes, size_t len)
{
	char	   *text;

	sas_base_utf8_prepare();
	if (memchr(bytes, '\0', len) != NULL)
		return NULL;
	if (utf8_converts && !utf8_is_ascii(bytes, len) && pg_verify_mbstr(PG_UTF8, bytes, len, true))
		return utf8_convert(&utf8_from_utf8, PG_UTF8, GetDatabaseEncoding(), bytes, len);
	if (!pg_verify_mbstr(GetDatabaseEncoding(), bytes, len, true))
		return NULL;
	text = MemoryContextAllocHuge(CurrentMemoryContext, len + 1);
	memcpy(text, bytes, len);
	text[len] = '\0';
	return text;
}
