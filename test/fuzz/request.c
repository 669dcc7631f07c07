/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.c: what templates make of a request: method, address and headers, a line each, but for
 * a line feed that is written as a byte 1. What is accepted has nothing in it that would end a
 * line, or be another request.
 *
 * Sources: src/transport/?*.c src/base/networks.c -lcurl -lpthread
 */
#include "transport/transport.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* a line as HTTP sends it: no control character but a tab */
static void
check_line(const char *line, const char *forbidden)
{
	for (const unsigned char *p = (const unsigned char *) line; *p != '\0'; p++)
		if ((*p < ' ' && *p != '\t') || *p == 0x7f || strchr(forbidden, *p) != NULL)
			abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text = malloc(size + 1);
	char	   *lines[3 + 20] = {"", "", NULL};
	int			n = 0;
	SasCall		call = {0};
	char		why[200] = "";

	memcpy(text, data, size);
	text[size] = '\0';
	for (char *line = text; line != NULL && n < 22;)
	{
		char	   *end = strchr(line, '\n');

		if (end != NULL)
			*end++ = '\0';
		for (char *p = line; *p != '\0'; p++)
			if (*p == 1)
				*p = '\n';
		lines[n++] = line;
		line = end;
	}
	call.method = lines[0];
	call.url = lines[1];
	call.headers = (const char *const *) lines + 2;
	call.n_headers = n > 2 ? n - 2 : 0;
	if (sas_transport_call_check(&call, why, sizeof(why)))
	{
		check_line(call.method, " \t\r\n");
		check_line(call.url, " \t\r\n");
		if (*call.method == '\0' || (strncmp(call.url, "http://", 7) != 0 && strncmp(call.url, "https://", 8) != 0 && strncasecmp(call.url, "http", 4) != 0))
			abort();
		for (int i = 0; i < call.n_headers; i++)
		{
			check_line(call.headers[i], "\r\n");
			if (strchr(call.headers[i], ':') == NULL || call.headers[i][0] == ':')
				abort();
		}
	}
	else if (why[0] == '\0')
		abort();
	free(text);
	return 0;
}
