/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.c
 *	  Requests: turns a SasCall into the options of a libcurl handle.
 *
 * sas_transport_request_load() is called with a new or reset easy handle,
 * before libcurl's multi handle gets it; sas_transport_request_redirect()
 * between two hops, while the multi handle does not have it;
 * sas_transport_request_unload() at the end.
 */
#include "transport/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * Servers often drop idle connections after a minute.  A connection that has not been reused by
 * then is not worth the race.
 */
#define MAX_IDLE_SECONDS 50L

static bool
transport_request_fail(char *errbuf, size_t errlen, const char *why)
{
	snprintf(errbuf, errlen, "%s", why);
	return false;
}

/* the characters of a token in RFC 9110 */
static bool
transport_request_is_token(const char *s, size_t len)
{
	static const char allowed[] = "!#$%&'*+-.^_`|~0123456789"
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	return len > 0 && strspn(s, allowed) >= len;
}

static bool
transport_request_name_is(const char *line, size_t name_len, const char *name)
{
	return strlen(name) == name_len && strncasecmp(line, name, name_len) == 0;
}

/*
 * Appends one line to libcurl's list.  If memory is short, the list does not change.
 */
static bool
transport_request_append(struct curl_slist **list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (longer == NULL)
		return false;
	*list = longer;
	return true;
}

bool
sas_transport_is_header_value(const char *value)
{
	for (const char *c = value; *c != '\0'; c++)
		if (((unsigned char) *c < ' ' && *c != '\t') || *c == 0x7f)
			return false;
	return true;
}

static const char *
transport_request_header_problem(const char *line)
{
	const char *colon = strchr(line, ':');
	size_t		name_len = colon ? (size_t) (colon - line) : 0;

	if (!transport_request_is_token(line, name_len))
		return "a header is not of the form name: value";
	if (!sas_transport_is_header_value(colon))
		return "the value of a header has a control character";
	if (transport_request_name_is(line, name_len, "content-length") ||
		transport_request_name_is(line, name_len, "transfer-encoding") ||
		transport_request_name_is(line, name_len, "expect"))
		return "the headers content-length, transfer-encoding and expect cannot be set";
	return NULL;
}

/*
 * A header line of the caller, which was checked before. libcurl takes
 * "Name:" as "do not send" and sends an empty value for "Name;".
 */
static const char *
transport_request_add_header(SasRequest *r, const char *line)
{
	const char *colon = strchr(line, ':');
	char	   *empty;
	bool		added;

	if (colon[1 + strspn(colon + 1, " \t")] != '\0')
		return transport_request_append(&r->headers, line) ? NULL : "out of memory";

	empty = strdup(line);
	if (empty == NULL)
		return "out of memory";
	memcpy(empty + (colon - line), ";", sizeof(";"));
	added = transport_request_append(&r->headers, empty);
	free(empty);
	return added ? NULL : "out of memory";
}

/*
 * Sets the headers, and removes those that libcurl would add on its own.
 */
static const char *
transport_request_add_headers(SasRequest *r, const SasCall *call)
{
	const char *why = NULL;
	bool		typed = false;

	for (int i = 0; i < call->n_headers && why == NULL; i++)
	{
		typed = typed || strncasecmp(call->headers[i], "content-type:", 13) == 0;
		why = transport_request_add_header(r, call->headers[i]);
	}
	if (why == NULL && !transport_request_append(&r->headers, "Expect:"))
		why = "out of memory";
	if (why == NULL && !typed && !transport_request_append(&r->headers, "Content-Type:"))
		why = "out of memory";
	return why;
}

static bool
transport_request_method_is(const SasRequest *r, const char *method)
{
	return strcmp(r->method, method) == 0;
}

/*
 * Method and body.  Methods whose request is expected to have content say
 * "Content-Length: 0" when there is none (RFC 9110, 8.6).
 */
static CURLcode
transport_request_set_method(SasRequest *r)
{
	CURL	   *easy = r->easy;
	bool		content = r->body != NULL || transport_request_method_is(r, "POST") || transport_request_method_is(r, "PUT") ||
		transport_request_method_is(r, "PATCH");
	CURLcode	rc;

	if (transport_request_method_is(r, "HEAD"))
		return curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	if (!content)
	{
		rc = curl_easy_setopt(easy, CURLOPT_POSTFIELDS, NULL);
		if (rc == CURLE_OK)
			rc = curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	}
	else
	{
		rc = curl_easy_setopt(easy, CURLOPT_POST, 1L);
		if (rc == CURLE_OK)
			rc = curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) r->body_len);
		if (rc == CURLE_OK)
			rc = curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body ? (char *) r->body : "");
	}
	if (rc == CURLE_OK)
		rc = curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST,
							  transport_request_method_is(r, content ? "POST" : "GET") ? NULL : r->method);
	return rc;
}

/*
 * Options that no agent can change: no cookies, no netrc, no environment, no other protocol, no
 * redirect without our check, certificates verified.
 *
 * A buffer of 2 kB instead of 16 saves memory, since each easy handle of 7.88 has one of its own.
 * 7.88 keeps the buffer of a call whose name look-up failed, while curl_easy_reset() forgets its
 * size: a smaller one would be overrun by the next call. So only handles without a next call have
 * it. Frames of HTTP/2 have 16 kB: there it would have to be filled several times for each.
 */
static CURLcode
transport_request_set_rules(SasRequest *r)
{
	CURL	   *easy = r->easy;
	CURLcode	rc = CURLE_OK;

#define SET(option, value) \
	do { if (rc == CURLE_OK) rc = curl_easy_setopt(easy, option, value); } while (0)

	if (sas_transport_request_wears_out() && !r->http2)
		SET(CURLOPT_BUFFERSIZE, 2048L);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_QUICK_EXIT, 1L);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_HTTP09_ALLOWED, 0L);
	SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET(CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	SET(CURLOPT_NOPROXY, "");
	SET(CURLOPT_HEADEROPT, (long) CURLHEADER_SEPARATE);
	SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	SET(CURLOPT_TCP_NODELAY, 1L);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_MAXAGE_CONN, MAX_IDLE_SECONDS);
	SET(CURLOPT_NOPROGRESS, 1L);
	SET(CURLOPT_PRIVATE, r);
	SET(CURLOPT_WRITEFUNCTION, sas_transport_request_on_body);
	SET(CURLOPT_WRITEDATA, r);
	SET(CURLOPT_HEADERFUNCTION, sas_transport_request_on_header);
	SET(CURLOPT_HEADERDATA, r);
	SET(CURLOPT_PREREQFUNCTION, sas_transport_request_before_send);
	SET(CURLOPT_PREREQDATA, r);
	SET(CURLOPT_OPENSOCKETFUNCTION, sas_transport_request_open_socket);
	SET(CURLOPT_OPENSOCKETDATA, r);
	return rc;
}

/* What the agent decides. */
static CURLcode
transport_request_set_options(SasRequest *r, const SasCall *call)
{
	CURL	   *easy = r->easy;
	CURLcode	rc = CURLE_OK;

	SET(CURLOPT_URL, r->url);
	SET(CURLOPT_HTTPHEADER, r->headers);
	SET(CURLOPT_TIMEOUT_MS, call->timeout_ms > 0 ? call->timeout_ms : 0L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, call->connect_timeout_ms > 0 ? call->connect_timeout_ms : 0L);
	SET(CURLOPT_HTTP_VERSION,
		r->http2 ? (long) CURL_HTTP_VERSION_2TLS : (long) CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_PROXY, call->proxy ? call->proxy : "");

	/* a stream has its own connection, so libcurl does not search thousands of used ones */
	SET(CURLOPT_FRESH_CONNECT, call->window > 0 ? 1L : 0L);
	SET(CURLOPT_FORBID_REUSE, call->window > 0 && !call->websocket ? 1L : 0L);
	SET(CURLOPT_CONNECT_ONLY, call->websocket ? 1L : 0L);
	SET(CURLOPT_HTTPPROXYTUNNEL, call->websocket ? 1L : 0L);
	if (call->window > 0)
		SET(CURLOPT_SOCKOPTFUNCTION, sas_transport_request_on_socket);
	return rc == CURLE_OK ? sas_transport_request_set_files(r, call) : rc;
}

bool
sas_transport_call_check(const SasCall *call, char *errbuf, size_t errlen)
{
	char		origin[SAS_ORIGIN_LEN];
	const char *why = NULL;

	if (call->url == NULL || call->method == NULL)
		return transport_request_fail(errbuf, errlen, "a call needs a method and an address");
	if (!sas_transport_origin_of_call(call->url, origin, sizeof(origin), &why))
	{
		snprintf(errbuf, errlen, "the address cannot be called: %s", why);
		return false;
	}
	if (!transport_request_is_token(call->method, strlen(call->method)))
		return transport_request_fail(errbuf, errlen, "the method is not valid");
	if (call->body != NULL && strcmp(call->method, "HEAD") == 0)
		return transport_request_fail(errbuf, errlen, "a HEAD request has no body");
	for (int i = 0; i < call->n_headers && why == NULL; i++)
		why = transport_request_header_problem(call->headers[i]);
	return why == NULL || transport_request_fail(errbuf, errlen, why);
}

/*
 * Copies the call and sets up the easy handle.  On false r may be half full:
 * unload it.
 */
bool
sas_transport_request_load(SasRequest *r, const SasCall *call, char *errbuf, size_t errlen)
{
	const char *why;
	CURLcode	rc;

	if (!sas_transport_call_check(call, errbuf, errlen))
		return false;

	r->method = strdup(call->method);
	r->url = strdup(call->url);
	r->reply = calloc(1, sizeof(SasReply));
	if (call->body != NULL)
	{
		r->body = malloc(call->body_len + 1);
		r->body_len = call->body_len;
	}
	if (!r->method || !r->url || !r->reply || (call->body != NULL && !r->body))
		return transport_request_fail(errbuf, errlen, "out of memory");
	if (call->body_len > 0 && call->body != NULL)
		memcpy(r->body, call->body, call->body_len);

	r->reply->owner = call->owner;
	r->reply->started_us = sas_transport_now_us();
	r->deadline_us = call->timeout_ms > 0 ?
		r->reply->started_us + (int64_t) call->timeout_ms * 1000 : 0;
	r->send_by_us = call->send_by_us;
	r->max_response = call->max_response;
	r->window = call->window;
	r->http2 = call->http2 && call->window == 0;
	r->follow = call->follow_redirects && call->below != NULL && !call->websocket;
	r->websocket = call->websocket;
	if (r->follow && (r->below = strdup(call->below)) == NULL)
		return transport_request_fail(errbuf, errlen, "out of memory");

	why = transport_request_add_headers(r, call);
	if (why != NULL)
		return transport_request_fail(errbuf, errlen, why);
	rc = transport_request_set_rules(r);
	if (rc == CURLE_OK)
		rc = transport_request_set_options(r, call);
	if (rc == CURLE_OK)
		rc = transport_request_set_method(r);
	if (rc != CURLE_OK)
	{
		snprintf(errbuf, errlen, "the call cannot be set up: %s", curl_easy_strerror(rc));
		return false;
	}
	return true;
}

/*
 * The method becomes GET; the body and its headers are dropped.
 */
static bool
transport_request_turn_into_get(SasRequest *r)
{
	struct curl_slist *remaining = NULL;
	char	   *get = strdup("GET");
	bool		ok = get != NULL;

	for (struct curl_slist *h = r->headers; h != NULL && ok; h = h->next)
		if (strncasecmp(h->data, "content-", 8) != 0)
			ok = transport_request_append(&remaining, h->data);
	if (!ok || curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, remaining) != CURLE_OK)
	{
		curl_slist_free_all(remaining);
		free(get);
		return false;
	}
	curl_slist_free_all(r->headers);
	r->headers = remaining;
	free(r->method);
	r->method = get;
	free(r->body);
	r->body = NULL;
	r->body_len = 0;
	return true;
}

/* May a redirect lead there? The target is within the border of a path, also as a server may read it. */
static bool
transport_request_may_lead_to(const SasRequest *r, const char *target)
{
	return sas_transport_same_origin(r->url, target) && sas_transport_is_below(target, r->below) &&
		!sas_transport_path_has_dot_segment(sas_transport_after_origin(target));
}

/*
 * The address to which this answer redirects, if we follow it: malloc'd, or NULL.
 */
static char *
transport_request_redirect_target(SasRequest *r, long status)
{
	const char *location;
	char	   *target;

	if (!r->follow || r->reply->redirects >= SAS_TRANSPORT_MAX_REDIRECTS)
		return NULL;
	if (status != 301 && status != 302 && status != 303 && status != 307 && status != 308)
		return NULL;
	location = sas_transport_reply_header(r->reply, "location");
	if (location == NULL)
		return NULL;
	target = sas_transport_origin_resolve(r->url, location);
	if (target != NULL && !transport_request_may_lead_to(r, target))
	{
		free(target);
		target = NULL;
	}
	return target;
}

/*
 * Can an easy handle be used for one transfer only? Before 8.1.1 libcurl keeps a pointer to the
 * last header of the transfer before, which is freed: an answer whose first header is folded would
 * be appended there.
 */
bool
sas_transport_request_wears_out(void)
{
	static int	wears_out = -1;

	if (wears_out < 0)
		wears_out = curl_version_info(CURLVERSION_NOW)->version_num < 0x080101;
	return wears_out;
}

/* Another easy handle with the same options. */
static bool
transport_request_renew(SasRequest *r)
{
	CURL	   *renewed = curl_easy_duphandle(r->easy);

	if (renewed == NULL)
		return false;
	curl_easy_cleanup(r->easy);
	r->easy = renewed;
	return true;
}

/* The remaining time of the call; 0: it has no limit. */
long
sas_transport_request_left_ms(const SasRequest *r)
{
	long		left_ms = (long) ((r->deadline_us - sas_transport_now_us()) / 1000);

	if (r->deadline_us <= 0)
		return 0;
	return left_ms <= 0 ? 1 : left_ms;	/* let it run into its time-out */
}

/*
 * After a hop: true if there is another one, and r is set up for it.  On false the answer (or the
 * lack of one) is the reply.
 */
bool
sas_transport_request_redirect(SasRequest *r, CURLcode code)
{
	SasReply   *reply = r->reply;
	long		status = 0;
	char	   *target;

	if (code != CURLE_OK || !r->answer_done ||
		curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status) != CURLE_OK)
		return false;
	target = transport_request_redirect_target(r, status);
	if (target == NULL)
		return false;
	if (curl_easy_setopt(r->easy, CURLOPT_URL, target) != CURLE_OK ||
		curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, sas_transport_request_left_ms(r)) != CURLE_OK ||
		(status < 304 && !transport_request_method_is(r, "HEAD") && !transport_request_method_is(r, "GET") && !transport_request_turn_into_get(r)) ||
		transport_request_set_method(r) != CURLE_OK ||
		(sas_transport_request_wears_out() && !transport_request_renew(r)))
	{
		free(target);
		return false;
	}
	free(r->url);
	r->url = target;

	reply->redirects++;
	sas_transport_request_hold(r, -(ptrdiff_t) reply->body_len);
	reply->headers_len = 0;
	reply->n_headers = 0;
	reply->body_len = 0;
	reply->first_byte_us = 0;
	r->begun = 0;
	r->denied_by = NULL;
	r->answer_done = false;
	r->line_status = 0;
	r->header_bytes = 0;
	/* the next request may go out on this connection: it is one that was kept, like any other (kept.c) */
	memset(r->sockets, 0, sizeof(r->sockets));
	r->pieces = 0;
	r->overdue = false;
	r->reads_late = 0;
	return true;
}

/*
 * Gives back all memory of the call; the easy handle stays, clean.
 */
void
sas_transport_request_unload(SasRequest *r)
{
	CURL	   *easy = r->easy;

	sas_transport_request_release(r);
	curl_easy_reset(easy);
	curl_slist_free_all(r->headers);
	free(r->method);
	free(r->url);
	free(r->below);
	free(r->body);
	sas_transport_reply_free(r->reply);
	memset(r, 0, sizeof(*r));
	r->easy = easy;
}
