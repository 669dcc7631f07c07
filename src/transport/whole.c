/* SPDX-License-Identifier: PostgreSQL */
/*
 * whole.c: checks whether an answer is complete, in cases that libcurl cannot or does not check.
 */
#include <string.h>

#include "transport/request.h"

/*
 * A Content-Length that is no number, or two that differ, say nothing about where the answer ends
 * (RFC 9112, 6.3). libcurl uses the last one, and so takes a part of the answer for all of it.
 */
bool
sas_transport_whole_has_clear_length(const SasReply *reply)
{
	const char *first = NULL;
	const char *name = reply->headers;

	for (int i = 0; i < reply->n_headers; i++)
	{
		const char *value = name + strlen(name) + 1;
		size_t		len = strlen(value);

		if (strcmp(name, "content-length") == 0)
		{
			if (len == 0 || len > 18 || strspn(value, "0123456789") != len || (first != NULL && strcmp(first, value) != 0))
				return false;
			first = value;
		}
		name = value + len + 1;
	}
	return true;
}

/* Strings and brackets that are open at the end. */
static bool
whole_json_is_open(const char *body, size_t len)
{
	long		depth = 0;
	bool		in_string = false;

	for (size_t i = 0; i < len; i++)
	{
		if (body[i] == '"')
			in_string = !in_string;
		else if (in_string)
			i += body[i] == '\\';
		else if (body[i] == '[' || body[i] == '{')
			depth++;
		else if (body[i] == ']' || body[i] == '}')
			depth--;
	}
	return in_string || depth > 0;
}

/*
 * An answer without a length ends with its connection, and so does one whose service was killed in
 * the middle of it.  JSON shows the difference.  HTTP/2 marks the end of an answer, but libcurl
 * 7.88 also reports success at a frame that violates the protocol.
 */
bool
sas_transport_whole_is_cut(const SasRequest *r)
{
	const SasReply *reply = r->reply;
	const char *type = sas_transport_reply_header(reply, "content-type");

	if (sas_transport_request_is_stream(r) || reply->body_len == 0 || type == NULL || strcasestr(type, "json") == NULL ||
		sas_transport_reply_header(reply, "content-length") != NULL ||
		sas_transport_reply_header(reply, "transfer-encoding") != NULL)
		return false;
	return whole_json_is_open(reply->body, reply->body_len);
}
