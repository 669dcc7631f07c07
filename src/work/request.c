/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.c: turns a rendered request into a URL, headers and a body.
 *
 * The origin is the agent's, whatever the step says: a path is appended to
 * the base address, and a full address is accepted only with the same
 * origin, at or below the path of the base address.
 */
#include "postgres.h"

#include "base/utf8.h"
#include "lib/stringinfo.h"
#include "transport/origin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "work/json.h"
#include "work/request.h"
#include "work/secrets.h"

/* Appends text percent-encoded, in UTF-8. */
static void
work_request_append_encoded(StringInfo out, char *text)
{
	char	   *utf8 = sas_base_utf8_of(text);
	char	   *encoded = sas_transport_encode_segment(utf8, strlen(utf8));

	if (encoded == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	appendStringInfoString(out, encoded);
	free(encoded);
}

static void
work_request_append_parameter(StringInfo out, char *name, JsonbValue *value, char *separator)
{
	char	   *text = sas_work_json_text(value);

	if (text == NULL)
		return;					/* null leaves the parameter out */
	if (*separator != '\0')
		appendStringInfoChar(out, *separator);
	*separator = '&';
	work_request_append_encoded(out, name);
	appendStringInfoChar(out, '=');
	work_request_append_encoded(out, text);
}

/* Appends the members of an object as parameters; an array gives its name once per element. */
static void
work_request_append_parameters(StringInfo out, JsonbContainer *object, char *separator)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	v;
	JsonbIteratorToken token;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE && v.type == jbvBinary && JsonContainerIsArray(v.val.binary.data))
		{
			JsonbIterator *elements = JsonbIteratorInit(v.val.binary.data);
			JsonbValue	e;

			while ((token = JsonbIteratorNext(&elements, &e, true)) != WJB_DONE)
				if (token == WJB_ELEM)
					work_request_append_parameter(out, name, &e, separator);
		}
		else if (token == WJB_VALUE)
			work_request_append_parameter(out, name, &v, separator);
	}
}

static const char *
work_request_compose_url(SasSent *sent, SasStoredAgent *agent, Jsonb *request)
{
	StringInfoData url;
	char	   *path = sas_work_json_string(request, "path");
	const char *place;
	JsonbValue	query;
	char		separator;

	initStringInfo(&url);
	if (path == NULL)
		path = "";
	place = path;
	if (pg_strncasecmp(path, "http://", 7) == 0 || pg_strncasecmp(path, "https://", 8) == 0)
	{
		char		origin[SAS_ORIGIN_LEN];
		const char *why;

		if (!sas_transport_origin_of_call(path, origin, sizeof(origin), &why) || !sas_transport_same_origin(path, agent->base_url))
			return "the path would leave the origin of the agent";
		if (!sas_transport_is_below(path, agent->base_url))
			return "the path would leave the path of the agent's base_url";
		place = sas_transport_after_origin(path);
		appendStringInfoString(&url, path);
	}
	else if (*path == '\0' || *path == '/' || *path == '?')
		appendStringInfo(&url, "%s%s", agent->base_url, path);
	else
		return "the path would leave the origin of the agent";
	if (sas_transport_path_has_dot_segment(path))
		return "the path has a dot segment";
	/* a definition cannot have it, either: servers may take it for a host; an admin may have meant it */
	if (strncmp(place, "//", 2) == 0 && strncmp(sas_transport_after_origin(agent->base_url), "//", 2) != 0)
		return "the path begins with two slashes";

	separator = strchr(url.data, '?') != NULL ? '&' : '?';
	if (agent->query != NULL && JB_ROOT_IS_OBJECT(agent->query))
		work_request_append_parameters(&url, &agent->query->root, &separator);
	if (sas_work_json_member(request, "query", &query) && query.type == jbvBinary)
		work_request_append_parameters(&url, query.val.binary.data, &separator);
	sent->url = url.data;
	return NULL;
}

/* Adds "name: value" unless a header of that name is there. */
static void
work_request_add_header(SasSent *sent, int room, const char *name, const char *value)
{
	size_t		len = strlen(name);

	for (int i = 0; i < sent->n_headers; i++)
		if (pg_strncasecmp(sent->headers[i], name, len) == 0 && sent->headers[i][len] == ':')
			return;
	Assert(sent->n_headers < room);
	sent->headers[sent->n_headers++] = psprintf("%s: %s", name, value);
}

static void
work_request_add_headers(SasSent *sent, int room, JsonbContainer *object)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	v;
	JsonbIteratorToken token;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE)
		{
			char	   *text = sas_work_json_text(&v);

			if (text != NULL)
				work_request_add_header(sent, room, name, text);
		}
	}
}

static void
work_request_compose_body(SasSent *sent, Jsonb *request, const char **content_type)
{
	JsonbValue	value;

	if (sas_work_json_member(request, "body", &value))
	{
		Jsonb	   *jsonb = JsonbValueToJsonb(&value);

		/* a string is sent as a JSON string: the type says JSON */
		sent->body = JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
		*content_type = "application/json";
	}
	else if (sas_work_json_member(request, "text", &value))
	{
		sent->body = sas_work_json_text(&value);
		*content_type = "text/plain; charset=utf-8";
	}
	else if (sas_work_json_member(request, "form", &value) && value.type == jbvBinary)
	{
		StringInfoData form;
		char		separator = '\0';

		initStringInfo(&form);
		work_request_append_parameters(&form, value.val.binary.data, &separator);
		sent->body = form.data;
		*content_type = "application/x-www-form-urlencoded";
	}
	sent->body_len = sent->body != NULL ? strlen(sent->body) : 0;
}

/* Can all of it be sent?  A database in SQL_ASCII stores any bytes. */
static bool
work_request_is_utf8(Jsonb *request, const SasStoredAgent *agent)
{
	return (request == NULL || sas_base_is_utf8(JsonbToCString(NULL, &request->root, VARSIZE(request)))) &&
		(agent->headers == NULL || sas_base_is_utf8(JsonbToCString(NULL, &agent->headers->root, VARSIZE(agent->headers))));
}

/* Does it ask for a part of the answer? That may have a part of a secret in it, which is not found. */
static bool
work_request_is_partial(const SasSent *sent)
{
	for (int i = 0; i < sent->n_headers; i++)
		if (pg_strncasecmp(sent->headers[i], "range:", strlen("range:")) == 0)
			return true;
	return false;
}

/* Do these characters name an encoding of text that writes ASCII as it is? */
static bool
work_request_keeps_ascii(const char *charset)
{
	static const char *const kept[] = {"utf-8", "us-ascii", "iso-8859-", "windows-125", "*"};

	charset += strspn(charset, " \t=\"");
	for (int i = 0; i < lengthof(kept); i++)
		if (pg_strncasecmp(charset, kept[i], strlen(kept[i])) == 0)
			return true;
	return false;
}

/* Does it ask for text in an encoding in which a secret is not found, such as EBCDIC? */
static bool
work_request_is_recoded(const SasSent *sent)
{
	for (int i = 0; i < sent->n_headers; i++)
	{
		const char *header = sent->headers[i];

		if (pg_strncasecmp(header, "accept-charset:", strlen("accept-charset:")) == 0)
		{
			for (const char *c = header + strlen("accept-charset:"); c != NULL; c = (c = strchr(c, ',')) ? c + 1 : NULL)
				if (!work_request_keeps_ascii(c))
					return true;
		}
		else if (pg_strncasecmp(header, "accept:", strlen("accept:")) == 0)
			for (const char *c = header; *c != '\0'; c++)
				if (pg_strncasecmp(c, "charset", strlen("charset")) == 0 && !work_request_keeps_ascii(c + strlen("charset")))
					return true;
	}
	return false;
}

const char *
sas_work_request_compose(SasSent *sent, SasStoredAgent *agent, Jsonb *request, const char *key)
{
	const char *content_type = NULL;
	const char *why;
	JsonbValue	headers;
	char	   *timeout;
	int			room = 6;

	if (agent->problem != NULL)
		return agent->problem;
	if (!work_request_is_utf8(request, agent))
		return "a text in it is not UTF-8";
	why = work_request_compose_url(sent, agent, request);
	work_request_compose_body(sent, request, &content_type);
	sent->method = sas_work_json_string(request, "method");
	if (sent->method == NULL)
		sent->method = sent->body != NULL ? "POST" : "GET";

	/* the step's headers win over the agent's */
	if (sas_work_json_member(request, "headers", &headers) && headers.type == jbvBinary)
		room += JsonContainerSize(headers.val.binary.data);
	if (agent->headers != NULL && JB_ROOT_IS_OBJECT(agent->headers))
		room += JB_ROOT_COUNT(agent->headers);
	sent->headers = palloc(sizeof(char *) * room);
	if (sas_work_json_member(request, "headers", &headers) && headers.type == jbvBinary)
		work_request_add_headers(sent, room, headers.val.binary.data);
	if (why == NULL && agent->secrets != NIL && work_request_is_partial(sent))
		why = "the header Range asks for a part of the answer, in which a secret of the agent could not be masked";
	if (why == NULL && agent->secrets != NIL && work_request_is_recoded(sent))
		why = "a header asks for an encoding of text in which a secret of the agent could not be masked";
	if (agent->headers != NULL && JB_ROOT_IS_OBJECT(agent->headers))
		work_request_add_headers(sent, room, &agent->headers->root);
	if (content_type != NULL)
		work_request_add_header(sent, room, "Content-Type", content_type);
	work_request_add_header(sent, room, "User-Agent", "sas");
	if (key != NULL)
		work_request_add_header(sent, room, "Idempotency-Key", key);

	sent->timeout_ms = agent->request_timeout_ms;
	timeout = sas_work_json_string(request, "timeout");
	if (timeout != NULL)
	{
		Interval   *span = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(timeout),
																 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));

		sent->timeout_ms = span->time / 1000.0 + span->day * 86400000.0 + span->month * 2592000000.0;
	}
	return why;
}

void
sas_work_request_call(const SasSent *sent, SasStoredAgent *agent, SasCall *call)
{
	char	   *max_http = sas_work_json_string(agent->options, "http_version");

	memset(call, 0, sizeof(*call));
	call->method = sent->method;
	call->url = sent->url;
	call->headers = (const char *const *) sent->headers;
	call->n_headers = sent->n_headers;
	call->body = sent->body;
	call->body_len = sent->body_len;
	call->connect_timeout_ms = (long) agent->connect_timeout_ms;
	call->max_response = agent->max_response;
	call->http2 = max_http != NULL && strcmp(max_http, "2") == 0;
	call->follow_redirects = sas_work_json_bool(agent->options, "follow_redirects", false);
	call->below = agent->base_url;
	call->ca_file = sas_work_json_string(agent->options, "ca_file");
	call->cert = sas_work_json_string(agent->options, "cert");
	call->proxy = sas_work_json_string(agent->options, "proxy");
}

void
sas_work_call_set_header(SasCall *call, const char *name, const char *value)
{
	const char **headers = palloc(sizeof(char *) * (call->n_headers + 1));
	size_t		len = strlen(name);
	int			n = 0;

	for (int i = 0; i < call->n_headers; i++)
		if (pg_strncasecmp(call->headers[i], name, len) != 0 || call->headers[i][len] != ':')
			headers[n++] = call->headers[i];
	headers[n++] = psprintf("%s: %s", name, value);
	call->headers = headers;
	call->n_headers = n;
}

void
sas_work_call_in_utf8(SasCall *call)
{
	const char **headers = palloc(sizeof(char *) * Max(call->n_headers, 1));

	call->url = sas_base_utf8_of((char *) call->url);
	call->below = sas_base_utf8_of((char *) call->below);
	for (int i = 0; i < call->n_headers; i++)
		headers[i] = sas_base_utf8_of((char *) call->headers[i]);
	call->headers = headers;
	if (call->body != NULL)
	{
		call->body = sas_base_utf8_of((char *) call->body);
		call->body_len = strlen(call->body);
	}
}

int
sas_work_request_path_no(const SasSent *sent, const SasStoredAgent *agent)
{
	size_t		base_len = strlen(agent->base_url);
	size_t		longest = 0;
	int			path_no = 0;
	int			n = 0;
	ListCell   *lc;

	if (sent->url == NULL || strncmp(sent->url, agent->base_url, base_len) != 0)
		return 0;
	foreach(lc, agent->breaker_paths)
	{
		const char *path = lfirst(lc);
		size_t		len = strlen(path);
		const char *below = sent->url + base_len;

		n++;
		if (len <= longest || strncmp(below, path, len) != 0)
			continue;
		/* whole segments: /charges is not above /charges_old */
		if (path[len - 1] == '/' || strchr("/?#", below[len]) != NULL)
		{
			longest = len;
			path_no = n;
		}
	}
	return path_no;
}
