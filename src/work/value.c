/* SPDX-License-Identifier: PostgreSQL */
/*
 * value.c: bytes from a service as jsonb, with the secrets of its agent masked.
 *
 * JSON that fits jsonb becomes a value, other text that the database can hold
 * a string, anything else {"base64": "..."}: whatever a service sends can be
 * stored.
 */
#include "postgres.h"

#include <ctype.h>

#include "base/digest.h"
#include "base/utf8.h"
#include "base/written.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "transport/origin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "work/json.h"
#include "work/value.h"

/* Fewer digits of base64 than this are not searched for. */
#define SAS_MIN_BASE64 6

/* Fewer characters of a word after Bearer are not taken for a token. */
#define SAS_MIN_BEARER 16

static void
value_mask_bytes(char *bytes, size_t len, const char *needle, size_t n)
{
	char	   *at = bytes;

	while (n > 0 && (at = memmem(at, len - (at - bytes), needle, n)) != NULL)
	{
		memset(at, '*', n);
		at += n;
	}
}

static void
value_mask_one(char *bytes, size_t len, const char *secret)
{
	value_mask_bytes(bytes, len, secret, strlen(secret));
}

static int
value_hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* How many bytes at p are a character reference of HTML to this byte; 0: they are not. */
static size_t
value_is_reference(const char *p, const char *end, unsigned char byte)
{
	static const struct
	{
		const char *name;
		unsigned char byte;
	}			named[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
	size_t		left = end - p;
	size_t		at = 2;
	int			base = 10;
	int			code = 0;

	if (left < 4 || p[0] != '&')
		return 0;
	for (int i = 0; i < lengthof(named); i++)
		if (named[i].byte == byte && left >= strlen(named[i].name) && memcmp(p, named[i].name, strlen(named[i].name)) == 0)
			return strlen(named[i].name);
	if (p[1] != '#' || byte >= 0x80)
		return 0;
	if (p[2] == 'x' || p[2] == 'X')
	{
		base = 16;
		at++;
	}
	/* leading zeros may stand before the digits */
	for (int digit; at < left && code < 0x80 && (digit = value_hex_digit(p[at])) >= 0 && digit < base; at++)
		code = code * base + digit;
	return at < left && p[at] == ';' && code == byte ? at + 1 : 0;
}

/*
 * How many bytes at p stand for this byte, as itself, %xx, + for a space, an
 * escape of JSON, or a character reference of HTML; 0: they do not.
 */
static size_t
value_stands_for(const char *p, const char *end, unsigned char byte)
{
	size_t		at = 0;
	size_t		left = end - p;

	if (left > 0 && p[0] == '&' && (at = value_is_reference(p, end, byte)) > 0)
		return at;
	if (left > 0 && ((unsigned char) p[0] == byte || (p[0] == '+' && byte == ' ')))
		return 1;
	if (left >= 2 && p[0] == '\\' && strchr("\"\\/", p[1]) != NULL && (unsigned char) p[1] == byte)
		return 2;
	if (left >= 3 && p[0] == '%')
		at = 1;
	else if (left >= 6 && memcmp(p, "\\u00", 4) == 0 && byte < 0x80)
		at = 4;
	if (at == 0 || value_hex_digit(p[at]) < 0 || value_hex_digit(p[at + 1]) < 0 ||
		value_hex_digit(p[at]) * 16 + value_hex_digit(p[at + 1]) != byte)
		return 0;
	return at + 2;
}

/* Overwrites the secret where any of its bytes are escaped, in any case. */
static void
value_mask_escaped(char *bytes, size_t len, const char *secret)
{
	char	   *end = bytes + len;

	if (secret[0] == '\0' || (memchr(bytes, '%', len) == NULL && memchr(bytes, '\\', len) == NULL && memchr(bytes, '&', len) == NULL &&
							 (strchr(secret, ' ') == NULL || memchr(bytes, '+', len) == NULL)))
		return;
	for (char *start = bytes; start < end; start++)
	{
		char	   *p = start;
		const char *s = secret;
		size_t		n;

		/* most bytes begin no form of the first one */
		if (*start != *secret && *start != '%' && *start != '\\' && *start != '&' && *start != '+')
			continue;
		while (*s != '\0' && (n = value_stands_for(p, end, (unsigned char) *s)) > 0)
		{
			p += n;
			s++;
		}
		if (*s == '\0')
		{
			memset(start, '*', p - start);
			start = p - 1;
		}
	}
}

/* Overwrites the secret as hexadecimal digits, of one case. */
static void
value_mask_hex(char *bytes, size_t len, const char *secret)
{
	static const char *const cases[] = {"0123456789abcdef", "0123456789ABCDEF"};
	size_t		n = strlen(secret);
	char	   *digits;

	if (len < n * 2)
		return;
	digits = palloc(n * 2);
	for (int c = 0; c < lengthof(cases); c++)
	{
		for (size_t i = 0; i < n; i++)
		{
			digits[i * 2] = cases[c][(unsigned char) secret[i] >> 4];
			digits[i * 2 + 1] = cases[c][(unsigned char) secret[i] & 15];
		}
		value_mask_bytes(bytes, len, digits, n * 2);
	}
	pfree(digits);
}

/*
 * Overwrites the secret within base64, at any offset in the encoded text and
 * in both alphabets.  Only the digits that do not depend on neighbouring bytes
 * are searched for; where there are few of them, they may be there by chance,
 * and are left.
 */
static void
value_mask_base64(char *bytes, size_t len, const char *secret)
{
	int			n = strlen(secret);
	char	   *plain = palloc0(n + 3);

	for (int before = 0; before < 3; before++)
	{
		int			from = (before * 8 + 5) / 6;
		int			to = (before + n) * 8 / 6;
		char	   *digits;

		if (to - from < SAS_MIN_BASE64)
			continue;
		memcpy(plain + before, secret, n);
		digits = sas_base_base64(plain, before + n);
		digits[to] = '\0';
		value_mask_one(bytes, len, digits + from);
		for (char *p = digits; *p != '\0'; p++)
			*p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
		if (strpbrk(digits + from, "-_") != NULL)
			value_mask_one(bytes, len, digits + from);
		memset(plain, 0, n + 3);
		pfree(digits);
	}
	pfree(plain);
}

/* Overwrites the secret in text of two or four bytes for each character, in either order. */
static void
value_mask_wide(char *bytes, size_t len, const char *secret)
{
	int			n = strlen(secret);
	char	   *wide;

	if (memchr(bytes, '\0', len) == NULL || !sas_base_is_utf8(unconstify(char *, secret)))
		return;
	wide = palloc(n * 4);
	for (int width = 2; width <= 4; width += 2)
		for (int last = 0; last <= 1; last++)
		{
			int			used = 0;

			for (int at = 0; at < n; at += pg_utf_mblen((const unsigned char *) secret + at), used += width)
			{
				pg_wchar	c = utf8_to_unicode((const unsigned char *) secret + at);

				for (int i = 0; i < width; i++)
					wide[used + (last ? width - 1 - i : i)] = (char) (c >> 8 * i);
			}
			value_mask_bytes(bytes, len, wide, used);
		}
	pfree(wide);
}

void
sas_work_value_mask_bearer(char *bytes, size_t len, const SasStoredAgent *agent)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=%";
	static const char *const blanks[] = {" ", "+", "%20", "\\u0020"};
	char	   *end = bytes + len;
	JsonbValue	oauth2;

	if (!sas_work_json_member(agent->options, "oauth2", &oauth2))
		return;
	for (char *p = bytes; p + strlen("bearer") < end; p++)
	{
		char	   *token = p + strlen("bearer");
		size_t		n;

		if ((*p != 'b' && *p != 'B') || pg_strncasecmp(p, "bearer", strlen("bearer")) != 0)
			continue;
		for (int i = 0; i < lengthof(blanks); i++)
		{
			n = strlen(blanks[i]);
			if ((size_t) (end - token) > n && memcmp(token, blanks[i], n) == 0)
			{
				token += n;
				i = -1;
			}
		}
		if (token == p + strlen("bearer"))
			continue;
		for (n = 0; token + n < end && token[n] != '\0' && strchr(allowed, token[n]) != NULL; n++)
			;
		if (n >= SAS_MIN_BEARER)
			memset(token, '*', n);
	}
}

void
sas_work_value_mask_secrets(char *bytes, size_t len, const SasStoredAgent *agent)
{
	ListCell   *lc;

	foreach(lc, agent->secrets)
	{
		const char *secret = lfirst(lc);
		const char *utf8 = sas_base_utf8_of(lfirst(lc));
		char	   *encoded;
		StringInfoData json;

		/* no form has fewer bytes: UTF-16 may have half of those of UTF-8 */
		if (len < Min(strlen(secret), strlen(utf8) / 2))
			continue;
		encoded = sas_transport_encode_segment(utf8, strlen(utf8));
		value_mask_one(bytes, len, secret);
		if (utf8 != secret)
			value_mask_one(bytes, len, utf8);
		if (encoded != NULL)
			value_mask_one(bytes, len, encoded);
		free(encoded);
		initStringInfo(&json);
		escape_json(&json, secret);
		json.data[json.len - 1] = '\0';
		value_mask_one(bytes, len, json.data + 1);
		pfree(json.data);
		value_mask_escaped(bytes, len, utf8);
		value_mask_hex(bytes, len, utf8);
		value_mask_base64(bytes, len, utf8);
		value_mask_wide(bytes, len, utf8);
	}
}

void
sas_work_value_mask(char *bytes, size_t len, const SasStoredAgent *agent)
{
	sas_work_value_mask_secrets(bytes, len, agent);
	sas_work_value_mask_bearer(bytes, len, agent);
}

/*
 * jsonb writes numbers out: the text of 1e131071 is 128 kB long.  JSON whose
 * text would be many times what came does not fit: a short answer would need
 * gigabytes wherever it is read.  Nor does JSON with more levels than a value
 * that is stored may have.
 */
static bool
value_is_bomb(const char *body)
{
	uint64		zeros = 0;
	uint64		most = 65536 + 8 * (uint64) strlen(body);
	bool		in_string = false;
	int			levels = 0;

	for (const char *p = body; *p != '\0'; p++)
	{
		if (*p == '"')
			in_string = !in_string;
		else if (in_string && *p == '\\' && p[1] != '\0')
			p++;
		else if (!in_string && (*p == '[' || *p == '{') && ++levels > SAS_WRITTEN_LEVELS)
			return true;
		else if (!in_string && (*p == ']' || *p == '}'))
			levels--;
		else if (!in_string && (*p == 'e' || *p == 'E') && p > body && (isdigit((unsigned char) p[-1]) || p[-1] == '.'))
		{
			long		exponent = strtol(p + 1, NULL, 10);

			zeros += Min(exponent < 0 ? -Max(exponent, -1000000) : exponent, 1000000);
			if (zeros > most)
				return true;
		}
	}
	return false;
}

/* The body as jsonb when it is JSON that fits; NULL when it is not. */
Jsonb *
sas_work_value_parse(char *body)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile result = NULL;

	if (value_is_bomb(body))
		return NULL;
	/* jsonb_in takes nothing but memory, so its error can be caught without a subtransaction */
	PG_TRY();
	{
		result = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(body)));
	}
	PG_CATCH();
	{
		ErrorData  *edata;
		int			category;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		category = ERRCODE_TO_CATEGORY(edata->sqlerrcode);
		if (category != ERRCODE_DATA_EXCEPTION && category != ERRCODE_TO_CATEGORY(ERRCODE_SYNTAX_ERROR) &&
			category != ERRCODE_PROGRAM_LIMIT_EXCEEDED && category != ERRCODE_FEATURE_NOT_SUPPORTED)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(edata);
	}
	PG_END_TRY();
	return result;
}

static void
value_push_jsonb(JsonbParseState **state, JsonbIteratorToken as, Jsonb *jsonb)
{
	JsonbValue	v;

	if (JB_ROOT_IS_SCALAR(jsonb))
	{
		JsonbExtractScalar(&jsonb->root, &v);
		pushJsonbValue(state, as, &v);
		return;
	}
	v.type = jbvBinary;
	v.val.binary.data = &jsonb->root;
	v.val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
	pushJsonbValue(state, as, &v);
}

static Jsonb *
value_base64(const char *bytes, size_t len)
{
	JsonbParseState *state = NULL;
	JsonbValue	v = {.type = jbvString};

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	v.val.string.val = "base64";
	v.val.string.len = 6;
	pushJsonbValue(&state, WJB_KEY, &v);
	v.val.string.val = sas_base_base64(bytes, len);
	v.val.string.len = strlen(v.val.string.val);
	pushJsonbValue(&state, WJB_VALUE, &v);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Jsonb *
sas_work_value(const char *bytes, size_t len, bool json, const SasStoredAgent *agent)
{
	char	   *masked = palloc(len);
	char	   *copy;
	JsonbValue	v = {.type = jbvString};
	Jsonb	   *parsed = NULL;

	memcpy(masked, bytes, len);
	sas_work_value_mask(masked, len, agent);
	copy = sas_base_utf8_text(masked, len);
	if (copy == NULL)
		return value_base64(masked, len);
	pfree(masked);
	if (json)
		parsed = sas_work_value_parse(copy);
	if (parsed != NULL && agent->secrets != NIL)
	{
		/* an escape may have hidden a secret: check the text as PostgreSQL writes it */
		copy = JsonbToCString(NULL, &parsed->root, VARSIZE(parsed));
		sas_work_value_mask(copy, strlen(copy), agent);
		parsed = sas_work_value_parse(copy);
	}
	if (parsed != NULL)
		return parsed;
	v.val.string.val = copy;
	v.val.string.len = strlen(copy);
	return JsonbValueToJsonb(&v);
}

void
sas_work_value_push(JsonbParseState **state, JsonbIteratorToken as, const char *bytes, size_t len, bool json, const SasStoredAgent *agent)
{
	value_push_jsonb(state, as, sas_work_value(bytes, len, json, agent));
}
