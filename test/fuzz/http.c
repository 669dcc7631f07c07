/* SPDX-License-Identifier: PostgreSQL */
/*
 * http.c: what a service answers, over a socket, through the transport as it
 * is: status lines, headers, chunks, Retry-After; the first byte says whether
 * as a call, a stream or a WebSocket, and whether redirects are followed. The answer that comes out is whole: each header a
 * name and a value within its memory, a body no larger than allowed.
 *
 * Sources: src/transport/?*.c src/base/networks.c -lcurl -lpthread
 */
#include "transport/transport.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_RESPONSE 5000

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char answer[60000];
static size_t answer_len;
static int	listener = -1;
static char origin[48];
static char url[64];
static SasTransport *transport;

/* Answers one request after the other with the bytes of this moment. */
static void *
serve(void *arg)
{
	for (;;)
	{
		int			s = accept(listener, NULL, NULL);
		char		request[4096];
		char		copy[sizeof(answer)];
		size_t		len;
		size_t		had = 0;

		if (s < 0)
			continue;
		while (had < sizeof(request) - 1)
		{
			ssize_t		n = recv(s, request + had, sizeof(request) - 1 - had, 0);

			if (n <= 0)
				break;
			had += (size_t) n;
			request[had] = '\0';
			if (strstr(request, "\r\n\r\n") != NULL)
			{
				pthread_mutex_lock(&lock);
				len = answer_len;
				memcpy(copy, answer, len);
				pthread_mutex_unlock(&lock);
				(void) !send(s, copy, len, MSG_NOSIGNAL);
				break;
			}
		}
		shutdown(s, SHUT_WR);
		close(s);
	}
	return arg;
}

static void
set_up(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	len = sizeof(address);
	char		why[200];
	pthread_t	thread;

	signal(SIGPIPE, SIG_IGN);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	/* an ephemeral port of the kernel's choice would do for one run; tests keep below these */
	for (int port = 20000 + (int) (getpid() % 10000);; port++)
	{
		address.sin_port = htons((uint16_t) port);
		if (bind(listener, (struct sockaddr *) &address, len) == 0)
			break;
	}
	if (listen(listener, 16) != 0 || getsockname(listener, (struct sockaddr *) &address, &len) != 0)
		abort();
	snprintf(origin, sizeof(origin), "http://127.0.0.1:%d", ntohs(address.sin_port));
	snprintf(url, sizeof(url), "%s/", origin);
	transport = sas_transport_open(4, why, sizeof(why));
	if (transport == NULL || pthread_create(&thread, NULL, serve, NULL) != 0)
		abort();
}

static void
check(const SasReply *reply)
{
	const char *p = reply->headers;

	for (int i = 0; i < 2 * reply->n_headers; i++)
		p += strlen(p) + 1;
	if (p != NULL && (size_t) (p - reply->headers) != reply->headers_len)
		abort();
	if (reply->kind == SAS_REPLY_HTTP && (reply->status < 200 || reply->status > 999))
		abort();
	if (reply->kind != SAS_REPLY_HTTP && reply->error[0] == '\0')
		abort();
	if (reply->kind == SAS_REPLY_NO_CONNECTION)
		abort();				/* there was one */
	if (reply->body_len > MAX_RESPONSE || (reply->body_len > 0 && reply->body[reply->body_len] != '\0'))
		abort();
	if (sas_transport_retry_after_ms(reply) > 86400000.0 || sas_transport_retry_after_ms(reply) < -1)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	SasCall		call = {.method = "GET",.url = url,.below = origin,.timeout_ms = 5000,.max_response = MAX_RESPONSE};
	char		why[200];
	void	   *handle;
	SasReply   *reply = NULL;

	if (listener < 0)
		set_up();
	if (size < 1 || size > sizeof(answer))
		return 0;
	pthread_mutex_lock(&lock);
	answer_len = size - 1;
	memcpy(answer, data + 1, answer_len);
	pthread_mutex_unlock(&lock);
	if (data[0] & 1)
		call.window = 1000;
	if (data[0] & 2)
		call.follow_redirects = true;
	if ((data[0] & 5) == 5)
		call.websocket = true;
	handle = sas_transport_start(transport, &call, why, sizeof(why));
	if (handle == NULL)
		abort();
	while (reply == NULL)
	{
		long		wait = sas_transport_timeout_ms(transport);
		struct pollfd fd = {sas_transport_fd(transport), POLLIN, 0};
		const char *bytes;
		size_t		n;

		(void) poll(&fd, 1, wait < 0 || wait > 100 ? 100 : (int) wait);
		sas_transport_work(transport);
		if (sas_transport_next_news(transport) != NULL || call.window > 0)
			if (!sas_transport_is_finished(handle) && (n = sas_transport_stream_bytes(handle, &bytes)) > 0)
				sas_transport_stream_read(handle, n);
		reply = sas_transport_next(transport);
	}
	check(reply);
	sas_transport_reply_free(reply);
	return 0;
}
