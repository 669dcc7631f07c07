/* SPDX-License-Identifier: PostgreSQL */
/*
 * utf8.c: between the encoding of the database and UTF-8.
 *
 * Replies come when no transaction is open, and whatever they hold must not
 * raise: so the functions that convert are looked up before, and asked not to.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/utf8.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

static bool prepared = false;
static bool converts = false;
static FmgrInfo to_utf8;
static FmgrInfo from_utf8;

void
sas_utf8_prepare(void)
{
	int			encoding = GetDatabaseEncoding();
	Oid			to;
	Oid			from;

	if (prepared)
		return;
	if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII)
	{
		if (!IsTransactionState())
			return;
		to = FindDefaultConversionProc(encoding, PG_UTF8);
		from = FindDefaultConversionProc(PG_UTF8, encoding);
		if (OidIsValid(to) && OidIsValid(from))
		{
			fmgr_info_cxt(to, &to_utf8, TopMemoryContext);
			fmgr_info_cxt(from, &from_utf8, TopMemoryContext);
			converts = true;
		}
	}
	prepared = true;
}

static bool
is_ascii(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (IS_HIGHBIT_SET(bytes[i]))
			return false;
	return true;
}

/* The converted bytes; NULL when one has no counterpart. */
static char *
convert(FmgrInfo *how, int from, int to, const char *bytes, size_t len)
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
sas_utf8_of(char *text)
{
	size_t		len = strlen(text);
	char	   *made;

	sas_utf8_prepare();
	if (!converts || is_ascii(text, len))
		return text;
	made = convert(&to_utf8, GetDatabaseEncoding(), PG_UTF8, text, len);
	return made != NULL ? made : text;
}

char *
sas_utf8_text(const char *bytes, size_t len)
{
	char	   *text;

	sas_utf8_prepare();
	if (memchr(bytes, '\0', len) != NULL)
		return NULL;
	if (converts && !is_ascii(bytes, len) && pg_verify_mbstr(PG_UTF8, bytes, len, true))
		return convert(&from_utf8, PG_UTF8, GetDatabaseEncoding(), bytes, len);
	if (!pg_verify_mbstr(GetDatabaseEncoding(), bytes, len, true))
		return NULL;
	text = MemoryContextAllocHuge(CurrentMemoryContext, len + 1);
	memcpy(text, bytes, len);
	text[len] = '\0';
	return text;
}
