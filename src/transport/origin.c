/* SPDX-License-Identifier: PostgreSQL */
/*
 * origin.c
 *	  Addresses: origins, segments, dot segments.
 *
 * libcurl's URL parser accepts much (one slash or three, escapes in the host, decimal IPv4).  This
 * file first refuses what libcurl would repair, so that an address means the same to a reader of
 * the definition and to libcurl.
 */
#include "transport/origin.h"

#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char
origin_lower(char c)
{
	return (c >= 'A' && c <= 'Z') ? (char) (c - 'A' + 'a') : c;
}

/*
 * Checks that need no parser.  The authority is everything between the slashes and the path.
 */
static const char *
origin_check_authority(const char *url)
{
	const char *p;
	const char *end;

	if (strncasecmp(url, "http://", 7) == 0)
		p = url + 7;
	else if (strncasecmp(url, "https://", 8) == 0)
		p = url + 8;
	else
		return "it must begin with http:// or https://";

	end = p + strcspn(p, "/?#");
	if (p == end || *p == ':')
		return "it has no host";
	for (; p < end; p++)
	{
		if (*p == '@')
			return "it must not contain a user name or a password";
		if ((unsigned char) *p > 0x7e)
			return "its host must be written in ASCII (xn--...)";
		if ((unsigned char) *p <= ' ' || strchr("%\\\"<>^`{|}", *p) != NULL)
			return "its host contains a character that is not allowed";
	}
	return NULL;
}

/*
 * Writes the origin of a parsed address. Returns NULL, or what is wrong with it.
 */
static const char *
origin_write(CURLU *u, bool https, char *origin, size_t len)
{
	const char *why = NULL;
	char	   *host = NULL;
	char	   *port = NULL;
	int			n;

	if (curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK || host[0] == '\0')
		why = "it has no host";
	else if (curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
			 strcmp(port, "0") == 0)
		why = "its port is not valid";
	else
	{
		n = snprintf(origin, len, "%s://%s:%s", https ? "https" : "http", host, port);
		if (n < 0 || (size_t) n >= len)
			why = "its host name is too long";
		else
			for (; *origin; origin++)
				*origin = origin_lower(*origin);
	}
	curl_free(host);
	curl_free(port);
	return why;
}

static bool
origin_parse(const char *url, bool base, char *origin, size_t len, const char **why)
{
	CURLU	   *u;

	*why = origin_check_authority(url);
	if (*why == NULL && strchr(url, '#') != NULL)
		*why = "it must not contain a fragment (#)";
	if (*why == NULL && base && strchr(url, '?') != NULL)
		*why = "it must not contain a query (?)";
	if (*why != NULL)
		return false;

	u = curl_url();
	if (u == NULL)
	{
		*why = "out of memory";
		return false;
	}
	if (curl_url_set(u, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
		*why = "it is not a well-formed URL";
	else
		*why = origin_write(u, origin_lower(url[4]) == 's', origin, len);
	curl_url_cleanup(u);
	return *why == NULL;
}

bool
sas_transport_origin_parse(const char *url, char *origin, size_t len, const char **why)
{
	return origin_parse(url, true, origin, len, why);
}

bool
sas_transport_origin_of_call(const char *url, char *origin, size_t len, const char **why)
{
	return origin_parse(url, false, origin, len, why);
}

bool
sas_transport_same_origin(const char *a, const char *b)
{
	char		origin_a[SAS_ORIGIN_LEN];
	char		origin_b[SAS_ORIGIN_LEN];
	const char *why;

	return origin_parse(a, false, origin_a, sizeof(origin_a), &why) &&
		origin_parse(b, false, origin_b, sizeof(origin_b), &why) &&
		strcmp(origin_a, origin_b) == 0;
}

const char *
sas_transport_after_origin(const char *url)
{
	const char *authority = strstr(url, "://") + 3;

	return authority + strcspn(authority, "/?#");
}

bool
sas_transport_is_below(const char *url, const char *base)
{
	const char *path = sas_transport_after_origin(url);
	const char *of_base = sas_transport_after_origin(base);
	size_t		len = strlen(of_base);

	return strncmp(path, of_base, len) == 0 && (path[len] == '\0' || path[len] == '/' || path[len] == '?');
}

/*
 * The fragment is dropped; blanks that servers leave in a Location header are
 * encoded, as browsers do.
 */
char *
sas_transport_origin_resolve(const char *base, const char *reference)
{
	CURLU	   *u = curl_url();
	char	   *url = NULL;
	char	   *copy = NULL;

	if (u == NULL)
		return NULL;
	if (curl_url_set(u, CURLUPART_URL, base, 0) == CURLUE_OK &&
		curl_url_set(u, CURLUPART_URL, reference, CURLU_URLENCODE) == CURLUE_OK &&
		curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
		curl_url_get(u, CURLUPART_URL, &url, 0) == CURLUE_OK)
		copy = strdup(url);
	curl_free(url);
	curl_url_cleanup(u);
	return copy;
}

char *
sas_transport_encode_segment(const char *in, size_t len)
{
	static const char hex[] = "0123456789ABCDEF";
	char	   *out;
	char	   *o;

	if (len > (SIZE_MAX - 1) / 3)
		return NULL;
	o = out = malloc(len * 3 + 1);
	if (out == NULL)
		return NULL;
	for (; len > 0; in++, len--)
	{
		unsigned char c = (unsigned char) *in;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			c == '-' || c == '.' || c == '_' || c == '~')
			*o++ = (char) c;
		else
		{
			*o++ = '%';
			*o++ = hex[c >> 4];
			*o++ = hex[c & 15];
		}
	}
	*o = '\0';
	return out;
}

/* The value of a hexadecimal digit; -1: it is none. */
static int
origin_hex(char c)
{
	c = origin_lower(c);
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Characters that a server may take for a dot, two of them, or a slash, when it normalises Unicode (NFKC). */
static const struct
{
	const char *utf8;			/* three bytes */
	const char *ascii;
}			origin_compatible[] = {
	{"\xe2\x80\xa4", "."}, {"\xe2\x80\xa5", ".."}, {"\xef\xb9\x92", "."}, {"\xef\xbc\x8e", "."},
	{"\xef\xbc\x8f", "/"}, {"\xef\xbc\xbc", "\\"}, {"\xef\xb9\xa8", "\\"}
};

/* Writes a code point below 0x10000 in UTF-8; returns how many bytes that are. */
static size_t
origin_write_utf8(int code, char *to)
{
	if (code < 0x80)
	{
		to[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		to[0] = (char) (0xc0 | code >> 6);
		to[1] = (char) (0x80 | (code & 0x3f));
		return 2;
	}
	to[0] = (char) (0xe0 | code >> 12);
	to[1] = (char) (0x80 | (code >> 6 & 0x3f));
	to[2] = (char) (0x80 | (code & 0x3f));
	return 3;
}

/* The number in these hexadecimal digits; -1: not all of them are. */
static int
origin_hex_number(const char *digits, int n)
{
	int			number = 0;

	for (int i = 0; i < n; i++)
	{
		int			digit = origin_hex(digits[i]);

		if (digit < 0)
			return -1;
		number = number * 16 + digit;
	}
	return number;
}

/*
 * The ASCII character whose overlong UTF-8 these bytes end with, and how many bytes that is; -1: there
 * is none. Some servers do not look at the upper bits of the last byte.
 */
static int
origin_overlong(const unsigned char *end, size_t n, size_t *len)
{
	unsigned char last = n > 0 ? end[-1] : '%';

	if (last == '%')
		return -1;
	if (n >= 2 && (end[-2] & 0xfe) == 0xc0)
		*len = 2;
	else if (n >= 3 && end[-3] == 0xe0 && (end[-2] & 0xfe) == 0x80)
		*len = 3;
	else if (n >= 4 && end[-4] == 0xf0 && end[-3] == 0x80 && (end[-2] & 0xfe) == 0x80)
		*len = 4;
	else
		return -1;
	return (end[-2] & 1) << 6 | (last & 0x3f);
}

/* Takes one escape back with which these bytes end; returns their new number. */
static size_t
origin_reduce(char *path, size_t n)
{
	int			code;
	size_t		len;

	if (n >= 3 && path[n - 3] == '%' && (code = origin_hex_number(path + n - 2, 2)) >= 0)
	{
		path[n - 3] = (char) code;
		return n - 2;
	}
	if (n >= 6 && path[n - 6] == '%' && origin_lower(path[n - 5]) == 'u' && (code = origin_hex_number(path + n - 4, 4)) >= 0)
		return n - 6 + origin_write_utf8(code, path + n - 6);
	if ((code = origin_overlong((unsigned char *) path + n, n, &len)) >= 0)
	{
		path[n - len] = (char) code;
		return n - len + 1;
	}
	for (size_t i = 0; n >= 3 && i < sizeof(origin_compatible) / sizeof(origin_compatible[0]); i++)
		if (memcmp(path + n - 3, origin_compatible[i].utf8, 3) == 0)
		{
			len = strlen(origin_compatible[i].ascii);
			memcpy(path + n - 3, origin_compatible[i].ascii, len);
			return n - 3 + len;
		}
	return n;
}

/*
 * Takes all escapes back, also those of which another escape is a part: some servers do so more than
 * once, and %%32%65 is then a dot.  So does %u002e, the overlong UTF-8 of an ASCII character, and what
 * Unicode has beside it.
 */
static size_t
origin_unescape(char *path, size_t len)
{
	size_t		n = 0;

	for (size_t i = 0; i < len; i++)
	{
		size_t		before;

		path[n++] = path[i];
		do
		{
			before = n;
			n = origin_reduce(path, n);
		} while (n != before);
	}
	return n;
}

/* How many bytes the character has that begins here; 0: these are not UTF-8. */
static size_t
origin_character(const unsigned char *bytes, size_t len)
{
	size_t		n = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc2 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : bytes[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++)
		if (i >= len || (bytes[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/*
 * Is one of its segments dots, as any server may read it?  Some leave out control characters, bytes that
 * are not UTF-8, and what follows a semicolon, or the start of what was not meant as a query.
 */
static bool
origin_has_dots(const char *path, size_t len)
{
	int			dots = 0;
	bool		others = false;
	bool		counts = true;

	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) path[i];

		if (c == '/' || c == '\\')
		{
			if (!others && (dots == 1 || dots == 2))
				return true;
			dots = 0;
			others = false;
			counts = true;
		}
		else if (c == ';' || c == '?' || c == '#')
			counts = false;
		else if (counts && c == '.')
			dots++;
		else if (counts && c > ' ' && c != 0x7f && origin_character((const unsigned char *) path + i, len - i) > 0)
			others = true;
	}
	return !others && (dots == 1 || dots == 2);
}

bool
sas_transport_path_has_dot_segment(const char *path)
{
	size_t		len = strcspn(path, "?#");
	char	   *copy = malloc(len + 1);
	bool		has;

	/* without memory it is not known */
	if (copy == NULL)
		return true;
	memcpy(copy, path, len);
	has = origin_has_dots(copy, origin_unescape(copy, len));
	free(copy);
	return has;
}
