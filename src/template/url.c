/* SPDX-License-Identifier: PostgreSQL */
/*
 * url.c
 *		Percent-encoding and dot segments (RFC 3986).
 *
 * A value with dots could leave its place in a path: a dot segment is refused, not resolved. The
 * service decides about an encoded slash.
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"

#include "template/url.h"

void
sas_template_encode(StringInfo out, const char *string, int len)
{
	static const char hex[] = "0123456789ABCDEF";
	const char *utf8 = string;

	/* Without an encoding there is nothing to convert from, and checking would raise. */
	if (GetDatabaseEncoding() != PG_SQL_ASCII)
		utf8 = pg_server_to_any(string, len, PG_UTF8);
	if (utf8 != string)
		len = strlen(utf8);

	enlargeStringInfo(out, len);
	for (int i = 0; i < len; i++)
	{
		unsigned char c = utf8[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			c == '-' || c == '.' || c == '_' || c == '~')
			appendStringInfoCharMacro(out, c);
		else
		{
			appendStringInfoCharMacro(out, '%');
			appendStringInfoCharMacro(out, hex[c >> 4]);
			appendStringInfoCharMacro(out, hex[c & 0x0f]);
		}
	}
}

/* Is it "." or "..", with plain dots or %2e? */
static bool
url_is_dots(const char *segment, int len)
{
	int			dots = 0;

	while (len > 0)
	{
		int			one = 1;

		if (segment[0] != '.')
		{
			if (len < 3 || pg_strncasecmp(segment, "%2e", 3) != 0)
				return false;
			one = 3;
		}
		dots++;
		segment += one;
		len -= one;
	}
	return dots == 1 || dots == 2;
}

/* The "://" of a full URL, or NULL for a path. */
static const char *
url_after_scheme(const char *url, const char *end)
{
	const char *p = url;

	while (p < end && (isalnum((unsigned char) *p) || *p == '+' || *p == '-' || *p == '.'))
		p++;
	if (p > url && end - p >= 3 && memcmp(p, "://", 3) == 0)
		return p + 3;
	return NULL;
}

bool
sas_template_has_dot_segment(const char *url, int len)
{
	const char *end = url + len;
	const char *p = url_after_scheme(url, end);

	if (p == NULL)
		p = url;
	else
		while (p < end && *p != '/' && *p != '?' && *p != '#')
			p++;

	while (p < end && *p != '?' && *p != '#')
	{
		const char *start = p;

		while (p < end && *p != '/' && *p != '?' && *p != '#')
			p++;
		if (url_is_dots(start, p - start))
			return true;
		if (p < end && *p == '/')
			p++;
	}
	return false;
}
