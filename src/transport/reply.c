/* SPDX-License-Identifier: PostgreSQL */
/*
 * reply.c
 *	  Replies: the callbacks of libcurl, the kind of a reply, its error.
 *
 * The callbacks run inside libcurl. They only store bytes. They give up by returning a short
 * count, with the reason in r->refused.
 *
 * The error texts are our own. libcurl's texts name the host and sometimes
 * the address, which may contain a secret; a reply ends up in tables and
 * logs.
 */
#include "transport/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

int64_t
sas_transport_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/*
 * Makes room for len more bytes and one NUL behind them.
 */
bool
sas_transport_request_reserve(char **buf, size_t *size, size_t used, size_t len)
{
	size_t		want = used + len + 1;
	size_t		bigger = *size > 0 ? *size : 512;
	char	   *moved;

	if (want <= *size)
		return true;
	while (bigger < want)
		bigger *= 2;
	moved = realloc(*buf, bigger);
	if (moved == NULL)
		return false;
	*buf = moved;
	*size = bigger;
	return true;
}

static bool
reply_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void
reply_trim(const char **s, size_t *len)
{
	for (; *len > 0 && reply_is_blank(**s); (*s)++, (*len)--)
		;
	for (; *len > 0 && reply_is_blank((*s)[*len - 1]); (*len)--)
		;
}

/*
 * A header, or the continuation of the one before (an obsolete form).
 */
static bool
reply_store_header(SasRequest *r, const char *line, size_t len)
{
	SasReply   *reply = r->reply;
	const char *colon = memchr(line, ':', len);
	bool		folded = (line[0] == ' ' || line[0] == '\t') && reply->n_headers > 0;
	size_t		name_len = colon ? (size_t) (colon - line) : 0;
	char	   *to;

	if (!folded && name_len == 0)
		return true;			/* not a header at all: left out */
	if (!sas_transport_request_reserve(&reply->headers, &r->headers_size, reply->headers_len, len + 2))
		return false;
	if (folded)
		reply->headers[reply->headers_len - 1] = ' ';
	else
	{
		to = reply->headers + reply->headers_len;
		for (size_t i = 0; i < name_len; i++)
			*to++ = (line[i] >= 'A' && line[i] <= 'Z') ? (char) (line[i] - 'A' + 'a') : line[i];
		*to = '\0';
		reply->headers_len += name_len + 1;
		reply->n_headers++;
		line = colon + 1;
		len -= name_len + 1;
	}
	reply_trim(&line, &len);
	memcpy(reply->headers + reply->headers_len, line, len);
	reply->headers_len += len;
	reply->headers[reply->headers_len++] = '\0';
	return true;
}

/*
 * A status line begins a new list: the headers of an interim answer (1xx) are dropped.  Fields
 * after the final answer's body are trailers, and are not stored: they must not be taken for
 * headers.
 */
size_t
sas_transport_request_on_header(char *data, size_t size, size_t n, void *arg)
{
	SasRequest *r = arg;
	SasReply   *reply = r->reply;
	size_t		len = size * n;

	if (reply->first_byte_us == 0)
		reply->first_byte_us = sas_transport_now_us();
	if (r->window > 0)
		r->received_us = sas_transport_now_us();
	r->header_bytes += len;
	if (r->header_bytes > SAS_TRANSPORT_MAX_HEADERS)
		r->refused = "the headers of the answer are too large";
	else if (memchr(data, '\0', len) != NULL)
		r->refused = "the answer is not valid HTTP";
	/* a blank line that breaks off: libcurl 8.22 gives what it has when the connection ends */
	else if (r->answer_done || len == 0 || (len == 1 && data[0] == '\r'))
		return len;
	else if (len > 5 && memcmp(data, "HTTP/", 5) == 0)
	{
		const char *blank = memchr(data, ' ', len);

		if (data[5] == '1')
			sas_transport_kept_note_http1(r);
		reply->headers_len = 0;
		reply->n_headers = 0;
		r->line_status = 0;
		for (const char *p = blank ? blank + 1 : data + len;
			 p < data + len && *p >= '0' && *p <= '9' && r->line_status < 1000; p++)
			r->line_status = r->line_status * 10 + (*p - '0');
	}
	else if (data[0] == '\r' || data[0] == '\n')
	{
		sas_transport_kept_note_arrival(r);
		r->answer_done = r->line_status >= 200 || (r->websocket && r->line_status == 101);
		if (r->answer_done && !sas_transport_whole_has_clear_length(reply))
			r->refused = "the answer is not valid HTTP";
		reply->stream = r->refused == NULL && sas_transport_request_is_stream(r);
		if (reply->stream)
			sas_transport_request_note_news(r);
	}
	else if (!reply_store_header(r, data, len))
		r->refused = "out of memory";
	return r->refused == NULL ? len : 0;
}

size_t
sas_transport_request_on_body(char *data, size_t size, size_t n, void *arg)
{
	SasRequest *r = arg;
	SasReply   *reply = r->reply;
	size_t		len = size * n;

	if (sas_transport_request_is_stream(r))
		return sas_transport_request_on_stream(r, data, len);
	sas_transport_kept_note_arrival(r);
	r->pieces++;
	if (len > r->max_response - reply->body_len)
		r->refused = "the answer is larger than max_response";
	else if (!sas_transport_request_may_read(r, len))
		return CURL_WRITEFUNC_PAUSE;
	else if (!sas_transport_request_reserve(&reply->body, &r->body_size, reply->body_len, len))
		r->refused = "out of memory";
	else
	{
		memcpy(reply->body + reply->body_len, data, len);
		reply->body_len += len;
		reply->body[reply->body_len] = '\0';
		sas_transport_request_hold(r, len);
		return len;
	}
	return 0;
}

void
sas_transport_request_note_sent(SasRequest *r)
{
	long		bytes = 0;

	if (r->begun == 0)
		return;
	curl_easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &bytes);
	/* the first of several frames may be sent, and libcurl counts none if another fails */
	if (bytes > 0 || r->reply->first_byte_us != 0 || r->http2)
		r->sent = true;
}

/*
 * Nothing is sent, and the connection is closed: newer versions of libcurl would keep it, even one of
 * HTTP/2 that has not said hello, and the next request on it would break.
 */
static int
reply_refuse(SasRequest *r)
{
	(void) curl_easy_setopt(r->easy, CURLOPT_FORBID_REUSE, 1L);
	return CURL_PREREQFUNC_ABORT;
}

/*
 * libcurl has a connection and is about to send the request.  When a reused
 * connection breaks before the first byte of an answer, libcurl sends the
 * request again by itself.  But for methods that only ask, that would be an
 * attempt that is not counted: the caller, which counts attempts, decides.
 */
int
sas_transport_request_before_send(void *arg, char *remote_ip, char *local_ip,
								  int remote_port, int local_port)
{
	SasRequest *r = arg;

	(void) local_ip;
	sas_transport_request_note_sent(r);
	/* a kept connection, and a newer setting */
	if (!sas_transport_request_may_use(r, remote_ip))
		return reply_refuse(r);
	/*
	 * the process was stopped, or the connection took long: the supervisor may have taken the work
	 * back
	 */
	if (r->send_by_us > 0 && sas_transport_now_us() >= r->send_by_us)
	{
		r->refused = "its time was over before the request was sent";
		return reply_refuse(r);
	}
	if (r->begun > 0 && r->sent &&
		strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0 && strcmp(r->method, "OPTIONS") != 0)
	{
		r->resend_refused = true;
		return reply_refuse(r);
	}
	if (!sas_transport_kept_is_clean(r, local_port, remote_ip, remote_port))
	{
		r->unclean = true;
		return reply_refuse(r);
	}
	r->begun++;
	r->begun_us = sas_transport_now_us();
	return CURL_PREREQFUNC_OK;
}

static const char *
reply_connect_error(CURL *easy)
{
	long		os_errno = 0;

	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
	switch (os_errno)
	{
		case ECONNREFUSED:
			return "connection refused";
		case ENETUNREACH:
		case EHOSTUNREACH:
			return "no route to the host";
		case ETIMEDOUT:
			return "could not connect in time";
		case EMFILE:
		case ENFILE:
			return "could not connect: too many open files";
		case EADDRNOTAVAIL:
			return "could not connect: no local port is free";
		default:
			return "could not connect";
	}
}

/* X509_V_ERR_... of OpenSSL, the ones people meet */
static const char *
reply_certificate_error(CURL *easy)
{
	long		result = 0;

	curl_easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &result);
	switch (result)
	{
		case 9:
			return "the certificate of the server is not valid yet";
		case 10:
			return "the certificate of the server has expired";
		case 18:
		case 19:
			return "the certificate of the server is self-signed";
		case 2:
		case 20:
		case 21:
			return "the certificate of the server is from an unknown authority";
		case 62:
			return "the certificate of the server is for another host";
		default:
			return "the certificate of the server was not accepted";
	}
}

static const char *
reply_timeout_error(const SasRequest *r)
{
	curl_off_t	lookup = 0;

	if (r->reply->first_byte_us != 0)
		return "the answer did not end in time";
	if (r->begun > 0)
		return "no answer in time";
	curl_easy_getinfo(r->easy, CURLINFO_NAMELOOKUP_TIME_T, &lookup);
	return lookup > 0 ? "could not connect in time" : "the name of the host was not found in time";
}

static const char *
reply_broken_connection_error(const SasRequest *r)
{
	long		proxy_status = 0;

	curl_easy_getinfo(r->easy, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
	if (!r->sent)
		return proxy_status >= 300 ? "the proxy refused to connect" :
			"the connection broke before the request was sent";
	return r->reply->first_byte_us != 0 ? "the connection broke in the middle of the answer" :
		"the connection broke before an answer came";
}

static const char *
reply_border_error(const SasRequest *r)
{
	return strcmp(r->denied_by, "sas.deny_networks") == 0 ? "sas.deny_networks forbids the address of the service" :
		"sas.allow_networks does not have the address of the service";
}

static const char *
reply_error_text(const SasRequest *r, CURLcode code)
{
	if (r->resend_refused)
		return "the connection broke before an answer came";
	if (r->refused != NULL)
		return r->refused;
	if (r->denied_by != NULL && (code == CURLE_COULDNT_CONNECT || code == CURLE_ABORTED_BY_CALLBACK))
		return reply_border_error(r);
	switch (code)
	{
		case CURLE_OK:
			if (r->websocket && r->answer_done)
				return "the connection ended without a close frame";
			return r->line_status >= 200 ? "the connection broke in the middle of the answer" :
				"the answer has no final status";
		case CURLE_COULDNT_RESOLVE_HOST:
			return "the host name could not be resolved";
		case CURLE_COULDNT_RESOLVE_PROXY:
			return "the host name of the proxy could not be resolved";
		case CURLE_COULDNT_CONNECT:
			return reply_connect_error(r->easy);
		case CURLE_PROXY:
			return "the proxy refused to connect";
		case CURLE_OPERATION_TIMEDOUT:
			return reply_timeout_error(r);
		case CURLE_SSL_CONNECT_ERROR:
			return "the TLS handshake failed";
		case CURLE_PEER_FAILED_VERIFICATION:
			return reply_certificate_error(r->easy);
		case CURLE_SSL_CERTPROBLEM:
			return "the client certificate or its key cannot be used";
		case CURLE_SSL_CACERT_BADFILE:
			return "the file of certificate authorities cannot be used";
		case CURLE_GOT_NOTHING:
		case CURLE_SEND_ERROR:
		case CURLE_RECV_ERROR:
		case CURLE_PARTIAL_FILE:
			return reply_broken_connection_error(r);
		case CURLE_UNSUPPORTED_PROTOCOL:	/* HTTP/0.9, or none at all */
		case CURLE_WEIRD_SERVER_REPLY:
			return "the answer is not valid HTTP";
		case CURLE_HTTP2:
		case CURLE_HTTP2_STREAM:
			return "the HTTP/2 stream broke";
		case CURLE_OUT_OF_MEMORY:	/* libcurl 7.88 reports a long line so, too */
			return r->begun > 0 ? "out of memory, or a header of the answer is too large" :
				"out of memory";
#if LIBCURL_VERSION_NUM >= 0x080600
		case CURLE_TOO_LARGE:
			return "the headers of the answer are too large";
#endif
		default:
			return NULL;
	}
}

static void
reply_set_error(SasRequest *r, CURLcode code)
{
	const char *text = reply_error_text(r, code);

	if (text != NULL)
		snprintf(r->reply->error, SAS_TRANSPORT_ERROR_LEN, "%s", text);
	else
		snprintf(r->reply->error, SAS_TRANSPORT_ERROR_LEN, "libcurl error %d (%s)",
				 (int) code, curl_easy_strerror(code));
}

/*
 * The call has ended; code is libcurl's result of its last hop. libcurl accepts headers that end
 * in the middle; sas does not.
 */
void
sas_transport_request_finish(SasRequest *r, CURLcode code)
{
	SasReply   *reply = r->reply;
	long		status = 0;
	long		connects = 0;
	const char *ip = NULL;

	reply->finished_us = sas_transport_now_us();
	if (code == CURLE_OK && r->transport->late && r->arrived_us > r->begun_us && r->arrived_us >= r->transport->worked_us)
		reply->finished_us = r->arrived_us;
	sas_transport_request_note_sent(r);
	curl_easy_getinfo(r->easy, CURLINFO_PRIMARY_IP, &ip);
	if (ip != NULL && ip[0] != '\0')
	{
		snprintf(reply->ip, sizeof(reply->ip), "%s", ip);
		reply->primary_ip = reply->ip;
	}
	if (r->sent && curl_easy_getinfo(r->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK)
		reply->reused = connects == 0;

	if (r->websocket)
		status = r->line_status;
	else if (code == CURLE_OK)
		curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && r->answer_done && sas_transport_whole_is_cut(r))
		r->refused = "the connection broke in the middle of the answer";
	if (code == CURLE_OK && r->answer_done && r->refused == NULL && status >= 200 && status <= 999)
	{
		reply->kind = SAS_REPLY_HTTP;
		reply->status = status;
		reply->content_type = sas_transport_reply_header(reply, "content-type");
	}
	else
	{
		reply->kind = r->sent ? SAS_REPLY_BROKEN : SAS_REPLY_NO_CONNECTION;
		reply_set_error(r, code);
		reply->timed_out = code == CURLE_OPERATION_TIMEDOUT;
		/* the owner of a stream may not have looked at its beginning yet */
		if (!reply->stream)
		{
			free(reply->headers);
			reply->headers = NULL;
			reply->headers_len = 0;
			reply->n_headers = 0;
			reply->body_len = 0;
		}
	}
	if (reply->body_len == 0)
	{
		free(reply->body);
		reply->body = NULL;
	}
}

const char *
sas_transport_reply_header(const SasReply *reply, const char *name)
{
	const char *p = reply->headers;

	for (int i = 0; i < reply->n_headers; i++)
	{
		const char *value = p + strlen(p) + 1;

		if (strcmp(p, name) == 0)
			return value;
		p = value + strlen(value) + 1;
	}
	return NULL;
}

void
sas_transport_reply_free(SasReply *reply)
{
	if (reply == NULL)
		return;
	free(reply->headers);
	free(reply->body);
	free(reply);
}
