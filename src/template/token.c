/* SPDX-License-Identifier: PostgreSQL */
/*
 * token.c
 *		Cuts a template string into text and references.
 *
 * Tokens are slices of the string, so nothing is allocated here.  A reference ends at the first
 * "}}" outside double quotes and outside its own braces: {{steps."a}}b"}} and {{input.**{2}}} are
 * one reference each.  It is correct to compare single bytes in every server encoding.
 *
 *		"id-{{ input.id? }} \{{"  ->  text "id-", reference "input.id" (optional), text " ", text "{{"
 *
 * A backslash means something only directly before "{{".
 */
#include "postgres.h"

#include "template/token.h"

static SasTokenKind token_next_reference(SasTokenScan *scan, SasToken *token);

static inline bool
token_is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

const char *
sas_template_braces(const char *bytes, int len)
{
	const char *end = bytes + len;

	while (end - bytes >= 2)
	{
		const char *brace = memchr(bytes, '{', end - bytes - 1);

		if (brace == NULL)
			return NULL;
		if (brace[1] == '{')
			return brace;
		bytes = brace + 1;
	}
	return NULL;
}

void
sas_template_scan(SasTokenScan *scan, const char *string, int len)
{
	scan->begin = string;
	scan->at = string;
	scan->end = string + len;
}

SasTokenKind
sas_template_next_token(SasTokenScan *scan, SasToken *token)
{
	const char *at = scan->at;
	const char *braces = sas_template_braces(at, scan->end - at);

	memset(token, 0, sizeof(SasToken));

	if (at == scan->end)
		return token->kind = SAS_TOKEN_END;

	if (braces == at)
		return token_next_reference(scan, token);

	token->kind = SAS_TOKEN_TEXT;
	token->start = at;
	if (braces == at + 1 && *at == '\\')
	{
		token->start = braces;
		token->len = 2;
		scan->at = braces + 2;
		return token->kind;
	}

	if (braces == NULL)
		scan->at = scan->end;
	else if (braces[-1] == '\\')
		scan->at = braces - 1;
	else
		scan->at = braces;
	token->len = scan->at - at;
	return token->kind;
}

/* The "}}" of the reference that begins at "from", or NULL. */
static const char *
token_closing_braces(const char *from, const char *end)
{
	bool		quoted = false;
	int			depth = 0;

	for (const char *p = from; p < end; p++)
	{
		if (*p == '\\')
			p++;
		else if (*p == '"')
			quoted = !quoted;
		else if (quoted)
			continue;
		else if (*p == '{')
			depth++;
		else if (*p == '}')
		{
			if (depth > 0)
				depth--;
			else if (p + 1 < end && p[1] == '}')
				return p;
		}
	}
	return NULL;
}

/* Does it end in a question mark that is not escaped by a backslash? */
static bool
token_ends_in_question(const char *start, const char *end)
{
	const char *p = end - 1;

	if (p < start || *p != '?')
		return false;
	while (p > start && p[-1] == '\\')
		p--;
	return (end - 1 - p) % 2 == 0;
}

static SasTokenKind
token_next_reference(SasTokenScan *scan, SasToken *token)
{
	const char *open = scan->at;
	const char *start = open + 2;
	const char *close = token_closing_braces(start, scan->end);
	const char *end = close;

	if (close == NULL)
	{
		token->kind = SAS_TOKEN_MALFORMED;
		token->start = start;
		token->len = scan->end - start;
		token->reason = "it is not closed by }}";
		scan->at = scan->end;
		return token->kind;
	}

	while (start < end && token_is_space(*start))
		start++;
	while (end > start && token_is_space(end[-1]))
		end--;
	if (token_ends_in_question(start, end))
	{
		token->optional = true;
		end--;
		while (end > start && token_is_space(end[-1]))
			end--;
	}

	token->kind = SAS_TOKEN_REFERENCE;
	token->start = start;
	token->len = end - start;
	if (token->len == 0)
	{
		token->kind = SAS_TOKEN_MALFORMED;
		token->reason = "it is empty";
	}
	scan->at = close + 2;
	token->whole = (open == scan->begin && scan->at == scan->end);
	return token->kind;
}
