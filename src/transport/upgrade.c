/* SPDX-License-Identifier: PostgreSQL */
/*
 * upgrade.c
 *	  A connection that becomes a WebSocket (RFC 6455, section 4).
 *
 * libcurl makes the connection (name, border, proxy, TLS) and then hands it over
 * (CURLOPT_CONNECT_ONLY).  This file sends the request and reads the head of the answer.  After
 * status 101, bytes go unchanged in both directions.  Any other answer is the reply, without its
 * body.
 *
 * The easy handle stays with the multi handle: the connection lives as long
 * as it does there.  Its socket is in the same epoll descriptor as those that
 * libcurl waits for.
 *
 *	  libcurl connects -> begin -> request -> head -> bytes -> end
 */
#include "transport/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#define READ_AT_ONCE ((size_t) 16 * 1024)

/*
 * Unsent bytes; a service that does not read the answers to its pings is cut off. One piece may be
 * larger.
 */
#define MAX_UNSENT ((size_t) 64 * 1024)

struct SasUpgrade
{
	char	   *out;			/* to be sent */
	size_t		out_size;
	size_t		out_len;
	size_t		out_sent;
	char	   *head;			/* of the answer, as far as it has come */
	size_t		head_size;
	size_t		head_len;
	curl_socket_t fd;
	uint32_t	events;			/* that are waited for; 0: it is not in the epoll descriptor */
};

static bool
upgrade_say(SasRequest *r, const char *bytes, size_t len)
{
	SasUpgrade *u = r->upgrade;

	if (!sas_transport_request_reserve(&u->out, &u->out_size, u->out_len, len))
	{
		r->refused = "out of memory";
		return false;
	}
	memcpy(u->out + u->out_len, bytes, len);
	u->out_len += len;
	return true;
}

static bool
upgrade_say_text(SasRequest *r, const char *text)
{
	return upgrade_say(r, text, strlen(text));
}

/* A header of libcurl's list: "Name:" keeps one away that libcurl would add, "Name;" is an empty one. */
static bool
upgrade_say_header(SasRequest *r, const char *line)
{
	const char *colon = strchr(line, ':');

	if (colon == NULL)
		return upgrade_say(r, line, strcspn(line, ";")) && upgrade_say_text(r, ":\r\n");
	return colon[1] == '\0' || (upgrade_say_text(r, line) && upgrade_say_text(r, "\r\n"));
}

/* The address was checked (origin.c): scheme, authority, and what may follow them. */
static bool
upgrade_write_request(SasRequest *r)
{
	const char *authority = strstr(r->url, "://") + 3;
	size_t		authority_len = strcspn(authority, "/?");
	const char *target = authority + authority_len;
	bool		has_host = false;

	if (!upgrade_say_text(r, "GET ") || (*target != '/' && !upgrade_say_text(r, "/")) || !upgrade_say_text(r, target) ||
		!upgrade_say_text(r, " HTTP/1.1\r\n"))
		return false;
	for (struct curl_slist *h = r->headers; h != NULL; h = h->next)
		has_host = has_host || strncasecmp(h->data, "host:", 5) == 0;
	if (!has_host && (!upgrade_say_text(r, "Host: ") || !upgrade_say(r, authority, authority_len) || !upgrade_say_text(r, "\r\n")))
		return false;
	for (struct curl_slist *h = r->headers; h != NULL; h = h->next)
		if (!upgrade_say_header(r, h->data))
			return false;
	return upgrade_say_text(r, "\r\n");
}

/* ------------------------------------------------------------------- socket */

static void
upgrade_wait_for(SasRequest *r, uint32_t events)
{
	SasUpgrade *u = r->upgrade;
	struct epoll_event ev = {.events = events};

	if (u->events == events)
		return;
	ev.data.u64 = SAS_POLL_OF_REQUEST(r);
	/* a broken connection is always reported, so one that is not read is taken out */
	epoll_ctl(r->transport->epoll_fd, events == 0 ? EPOLL_CTL_DEL : u->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, u->fd, &ev);
	u->events = events;
}

void
sas_transport_upgrade_leave(SasRequest *r)
{
	SasUpgrade *u = r->upgrade;

	if (u == NULL)
		return;
	upgrade_wait_for(r, 0);
	free(u->out);
	free(u->head);
	free(u);
	r->upgrade = NULL;
}

/* Sends the bytes that the kernel, and TLS, accept now. */
static CURLcode
upgrade_send(SasRequest *r)
{
	SasUpgrade *u = r->upgrade;
	CURLcode	code = CURLE_OK;

	while (u->out_sent < u->out_len && code == CURLE_OK)
	{
		size_t		n = 0;

		code = curl_easy_send(r->easy, u->out + u->out_sent, u->out_len - u->out_sent, &n);
		r->sent = r->sent || n > 0;
		u->out_sent += n;
	}
	if (u->out_sent == u->out_len)
	{
		free(u->out);
		u->out = NULL;
		u->out_size = u->out_len = u->out_sent = 0;
	}
	return code == CURLE_AGAIN ? CURLE_OK : code;
}

/* ------------------------------------------------------------------- answer */

/* Returns the end of the head in these bytes, or NULL. */
static char *
upgrade_head_end(char *from, char *end)
{
	for (char *p = from; (p = memchr(p, '\n', end - p)) != NULL; p++)
	{
		if (p + 1 < end && p[1] == '\n')
			return p + 2;
		if (p + 2 < end && p[1] == '\r' && p[2] == '\n')
			return p + 3;
	}
	return NULL;
}

static bool
upgrade_read_head(SasRequest *r, char *head, size_t len)
{
	if (len < 5 || memcmp(head, "HTTP/", 5) != 0)
	{
		r->refused = "the answer is not valid HTTP";
		return false;
	}
	while (len > 0)
	{
		char	   *line_end = memchr(head, '\n', len);
		size_t		n = line_end + 1 - head;

		if (sas_transport_request_on_header(head, 1, n, r) != n)
			return false;
		head += n;
		len -= n;
	}
	return true;
}

/* Handles bytes of the answer: of its head until that is complete, then of the stream. */
static bool
upgrade_take(SasRequest *r, const char *bytes, size_t len)
{
	SasUpgrade *u = r->upgrade;

	if (r->answer_done)
		return sas_transport_request_on_stream(r, bytes, len) == len;
	if (!sas_transport_request_reserve(&u->head, &u->head_size, u->head_len, len))
	{
		r->refused = "out of memory";
		return false;
	}
	memcpy(u->head + u->head_len, bytes, len);
	u->head_len += len;
	while (!r->answer_done)
	{
		size_t		seen = u->head_len - len;
		char	   *end = upgrade_head_end(u->head + (seen > 3 ? seen - 3 : 0), u->head + u->head_len);
		size_t		n = end != NULL ? end - u->head : 0;

		if (end == NULL)
		{
			if (u->head_len > SAS_TRANSPORT_MAX_HEADERS)
				r->refused = "the headers of the answer are too large";
			return r->refused == NULL;
		}
		if (!upgrade_read_head(r, u->head, n))
			return false;
		u->head_len -= n;
		memmove(u->head, u->head + n, u->head_len);
		len = u->head_len;
	}
	if (r->line_status == 101 && u->head_len > 0 && sas_transport_request_on_stream(r, u->head, u->head_len) != u->head_len)
		return false;
	free(u->head);
	u->head = NULL;
	u->head_size = u->head_len = 0;
	return true;
}

/* How many bytes may be read now: those after the head fit into any window. */
static size_t
upgrade_room(const SasRequest *r)
{
	size_t		unread = r->reply->body_len - r->read;

	if (!r->answer_done)
		return READ_AT_ONCE;
	return unread >= r->window ? 0 : r->window - unread < READ_AT_ONCE ? r->window - unread : READ_AT_ONCE;
}

/* Reads as much as there is room for. *over: the service has closed the connection, or given another answer. */
static CURLcode
upgrade_recv(SasRequest *r, bool *over)
{
	char		bytes[READ_AT_ONCE];
	size_t		room;

	while ((room = upgrade_room(r)) > 0 && (r->reply->body_len == r->read || sas_transport_now_us() < r->transport->work_until_us))
	{
		size_t		n = 0;
		CURLcode	code = curl_easy_recv(r->easy, bytes, room, &n);

		if (code == CURLE_AGAIN)
			return CURLE_OK;
		*over = code == CURLE_OK && n == 0;
		if (code != CURLE_OK || *over)
			return code;
		r->received_us = sas_transport_now_us();
		if (!upgrade_take(r, bytes, n))
			return CURLE_WRITE_ERROR;
		*over = r->answer_done && r->line_status != 101;
		if (*over)
			return CURLE_OK;
	}
	r->paused = true;
	return CURLE_OK;
}

/* ----------------------------------------------------------------- movement */

/* libcurl has connected. False: it cannot be used, or must not be. */
bool
sas_transport_upgrade_begin(SasRequest *r)
{
	SasUpgrade *u = calloc(1, sizeof(SasUpgrade));

	r->upgrade = u;
	if (u == NULL || curl_easy_getinfo(r->easy, CURLINFO_ACTIVESOCKET, &u->fd) != CURLE_OK || u->fd == CURL_SOCKET_BAD ||
		!upgrade_write_request(r))
		return false;
	/* at once: libcurl takes a connection that nobody has used for one that it may close */
	if (upgrade_send(r) != CURLE_OK)
		return false;
	upgrade_wait_for(r, u->out_len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
	return true;
}

/* The socket is ready. *code: how the request has ended; false: it continues. */
bool
sas_transport_upgrade_move(SasRequest *r, CURLcode *code)
{
	bool		over = false;

	*code = upgrade_send(r);
	if (*code == CURLE_OK && !r->paused)
		*code = upgrade_recv(r, &over);
	if (*code == CURLE_OK && !over)
	{
		upgrade_wait_for(r, (r->paused ? 0 : EPOLLIN) | (r->upgrade->out_len > 0 ? EPOLLOUT : 0));
		return false;
	}
	if (*code == CURLE_OK && !r->answer_done)
		*code = CURLE_GOT_NOTHING;
	return true;
}

/*
 * There is room again. TLS may have read more bytes than the socket shows, so it is read once in
 * any case.
 */
void
sas_transport_upgrade_go_on(SasRequest *r)
{
	if (r->upgrade != NULL)
		upgrade_wait_for(r, EPOLLIN | EPOLLOUT);
}

bool
sas_transport_stream_send(void *handle, const char *bytes, size_t len)
{
	SasRequest *r = handle;
	SasUpgrade *u = r->upgrade;
	sigset_t	before;
	bool		done;

	/* its end is on its way to the owner */
	if (r->finished || u == NULL)
		return true;
	if (u->out_len > 0 && u->out_len - u->out_sent + len > MAX_UNSENT)
		return false;
	sas_transport_block_signals(&before);
	done = upgrade_say(r, bytes, len) && upgrade_send(r) == CURLE_OK;
	if (done && u->out_len > 0)
		upgrade_wait_for(r, (r->paused ? 0 : EPOLLIN) | EPOLLOUT);
	sas_transport_restore_signals(&before);
	return done;
}
