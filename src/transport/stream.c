/* SPDX-License-Identifier: PostgreSQL */
/*
 * stream.c
 *	  The body of a stream, read as it arrives.
 *
 * The bytes of a 2xx answer are in the reply's body until they are read.  If they would exceed the
 * window, libcurl is paused: it keeps the bytes that it has read (one buffer), reads no more from
 * the socket, and the kernel closes the window of the connection.  An empty window takes any
 * number of bytes, so a stream always makes progress, and an idle one needs no memory.
 *
 * Reading happens outside libcurl's callbacks, and may run them.
 */
#include "transport/request.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The kernel's buffer of an unread stream: without a limit it would grow to megabytes. */
#define RECEIVE_BUFFER (256 * 1024)

int
sas_transport_request_on_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
	int			size = RECEIVE_BUFFER;

	(void) arg;
	(void) purpose;
	/* the stream also works without it */
	(void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	return CURL_SOCKOPT_OK;
}

bool
sas_transport_request_is_stream(const SasRequest *r)
{
	return r->window > 0 && r->answer_done &&
		(r->websocket ? r->line_status == 101 : r->line_status >= 200 && r->line_status < 300);
}

void
sas_transport_request_note_news(SasRequest *r)
{
	SasRequestNews *list = r->news_list;

	if (r->has_news)
		return;
	r->has_news = true;
	r->news_prev = list->tail;
	r->news_next = NULL;
	if (list->tail != NULL)
		list->tail->news_next = r;
	else
		list->head = r;
	list->tail = r;
}

void
sas_transport_request_forget_news(SasRequest *r)
{
	SasRequestNews *list = r->news_list;

	if (!r->has_news)
		return;
	r->has_news = false;
	if (r->news_prev != NULL)
		r->news_prev->news_next = r->news_next;
	else
		list->head = r->news_next;
	if (r->news_next != NULL)
		r->news_next->news_prev = r->news_prev;
	else
		list->tail = r->news_prev;
}

/* Appends bytes to the window, which has room for them. */
static bool
stream_append(SasRequest *r, const char *data, size_t len)
{
	SasReply   *reply = r->reply;

	if (!sas_transport_request_reserve(&reply->body, &r->body_size, reply->body_len, len))
	{
		r->refused = "out of memory";
		return false;
	}
	memcpy(reply->body + reply->body_len, data, len);
	reply->body_len += len;
	reply->body[reply->body_len] = '\0';
	return true;
}

size_t
sas_transport_request_on_stream(SasRequest *r, const char *data, size_t len)
{
	SasReply   *reply = r->reply;
	size_t		unread = reply->body_len - r->read;

	r->received_us = sas_transport_now_us();
	/* what came in single bytes takes libcurl long, too; it keeps them, whereas those of a WebSocket were read */
	if (unread > 0 && (unread + len > r->window || (!r->websocket && r->received_us >= r->transport->work_until_us)))
	{
		r->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (r->read > 0)
	{
		memmove(reply->body, reply->body + r->read, unread);
		reply->body_len = unread;
		r->read = 0;
	}
	if (!stream_append(r, data, len))
		return 0;
	sas_transport_request_note_news(r);
	return len;
}

/* Leaves the unread bytes in the reply: its owner gets them, and the request ends. */
void
sas_transport_request_drop_read(SasRequest *r)
{
	SasReply   *reply = r->reply;

	if (r->read == 0)
		return;
	reply->body_len -= r->read;
	memmove(reply->body, reply->body + r->read, reply->body_len + 1);
	r->read = 0;
}

const SasReply *
sas_transport_stream_head(void *handle)
{
	SasRequest *r = handle;

	return r->answer_done ? r->reply : NULL;
}

int64_t
sas_transport_stream_received_us(void *handle)
{
	return ((SasRequest *) handle)->received_us;
}

size_t
sas_transport_stream_bytes(void *handle, const char **bytes)
{
	SasRequest *r = handle;

	if (!sas_transport_request_is_stream(r) || r->reply->body_len == r->read)
		return 0;
	*bytes = r->reply->body + r->read;
	return r->reply->body_len - r->read;
}

void
sas_transport_stream_announce_again(void *handle)
{
	SasRequest *r = handle;

	if (sas_transport_request_is_stream(r) && r->reply->body_len > r->read)
		sas_transport_request_note_news(r);
}

void
sas_transport_stream_read(void *handle, size_t len)
{
	SasRequest *r = handle;
	SasReply   *reply = r->reply;
	sigset_t	before;

	r->read += len;
	if (r->read < reply->body_len)
		return;
	free(reply->body);
	reply->body = NULL;
	reply->body_len = 0;
	r->body_size = 0;
	r->read = 0;
	if (!r->paused || r->finished)
		return;
	r->paused = false;
	sas_transport_block_signals(&before);
	if (r->websocket)
		sas_transport_upgrade_go_on(r);
	else
		curl_easy_pause(r->easy, CURLPAUSE_CONT);
	sas_transport_restore_signals(&before);
}
