/* SPDX-License-Identifier: PostgreSQL */
/*
 * token.h
 *		The one tokenizer of template strings.
 */
#ifndef SAS_TEMPLATE_TOKEN_H
#define SAS_TEMPLATE_TOKEN_H

typedef enum SasTokenKind
{
	SAS_TOKEN_END,
	SAS_TOKEN_TEXT,				/* to be copied as it stands */
	SAS_TOKEN_REFERENCE,		/* the path between the braces, trimmed, "?" taken off */
	SAS_TOKEN_MALFORMED			/* the text between the braces, or the rest of the string */
} SasTokenKind;

typedef struct SasToken
{
	SasTokenKind kind;
	const char *start;			/* a slice of the string, not terminated */
	int			len;
	bool		optional;
	bool		whole;			/* this reference is the whole string */
	const char *reason;			/* of SAS_TOKEN_MALFORMED */
} SasToken;

typedef struct SasTokenScan
{
	const char *begin;
	const char *at;
	const char *end;
} SasTokenScan;

/* Begins a scan of the string; each call of next returns its next token, SAS_TOKEN_END at the end. */
extern void sas_template_scan(SasTokenScan *scan, const char *string, int len);
extern SasTokenKind sas_template_next_token(SasTokenScan *scan, SasToken *token);

/* First "{{" in these bytes, or NULL: then there is nothing to expand. */
extern const char *sas_template_braces(const char *bytes, int len);

#endif							/* SAS_TEMPLATE_TOKEN_H */
