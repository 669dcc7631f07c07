/* SPDX-License-Identifier: PostgreSQL */
/*
 * token.c: strings of templates into tokens. The tokens are slices of the
 * string, in order, and come to an end; without braces there is one text.
 *
 * Sources: src/template/token.c
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "template/token.h"

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *string = malloc(size + 1);
	const char *before = string;
	SasTokenScan scan;
	SasToken	token;
	size_t		n = 0;

	/* not terminated, as within a jsonb */
	memcpy(string, data, size);
	sas_template_scan(&scan, string, (int) size);
	while (sas_template_next_token(&scan, &token) != SAS_TOKEN_END && n++ <= size)
	{
		if (token.kind == SAS_TOKEN_MALFORMED)
		{
			if (token.reason == NULL)
				abort();
			break;
		}
		if (token.start < before || token.len < 0 || token.start + token.len > string + size)
			abort();
		if (token.kind == SAS_TOKEN_REFERENCE && token.len == 0)
			abort();
		before = token.start + token.len;
	}
	if (n > size)
		abort();
	if (sas_template_braces(string, (int) size) == NULL)
	{
		sas_template_scan(&scan, string, (int) size);
		if (size > 0 && (sas_template_next_token(&scan, &token) != SAS_TOKEN_TEXT || token.len != (int) size))
			abort();
	}
	free(string);
	return 0;
}
