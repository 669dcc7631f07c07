/* SPDX-License-Identifier: PostgreSQL */
/*
 * service.c: the service that the benchmarks call.
 *
 *	  service [port]		listens on loopback, prints its port
 *
 *	  ANY /stamp/N			answers at once; keeps when its first byte was there
 *	  ANY /hold/MS			answers after MS milliseconds
 *	  GET /stamps			"N microseconds" a line, since the epoch, and forgets them
 *	  GET /counts			requests seen and the most that were held at once, and starts anew
 *	  GET /stream/N			Server-Sent Events: items 1 to N, or behind Last-Event-ID, as fast as
 *							they are read; then silence
 *	  GET /streams			streams open and begun, items told, when the last one was begun
 *
 * One thread, one epoll.  All calls to /hold of a run are expected to ask for
 * the same time, so what is held stands in a queue.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER 4096				/* a request has to fit */
#define EVENTS 512
#define BODY "{\"ok\": true}"

typedef struct Connection
{
	int			fd;
	bool		held;
	bool		closed;			/* while held: freed when its time comes */
	int			have;
	int64_t		first_byte_us;	/* of the request that is being read */
	int64_t		due_us;
	struct Connection *next;	/* in the queue of the held */
	bool		stream;
	long		item;			/* the last one in the buffer */
	long		last;
	int			sent;			/* of the buffer */
	char		buffer[BUFFER];
} Connection;

typedef struct Stamp
{
	long		n;
	int64_t		at_us;
} Stamp;

static int	epoll_fd;
static Connection *held_first;
static Connection *held_last;
static long held;
static long held_most;
static long seen;
static long streams_open;
static long streams_begun;
static long items_told;
static int64_t last_begun_us;
static Stamp *stamps;
static size_t n_stamps;
static size_t room;

static int64_t
clock_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void *
need(void *memory)
{
	if (memory == NULL)
	{
		fprintf(stderr, "service: out of memory\n");
		exit(1);
	}
	return memory;
}

static void
drop(Connection *c)
{
	close(c->fd);
	streams_open -= c->stream;
	if (c->held)
		c->closed = true;
	else
		free(c);
}

/* All answers are short: what the socket does not take at once breaks the connection. */
static bool
answer(Connection *c, const char *body, size_t length)
{
	char		head[160];
	int			n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
							 "Content-Length: %zu\r\n\r\n", length);
	char	   *all = need(malloc(n + length));
	ssize_t		sent;

	memcpy(all, head, n);
	memcpy(all + n, body, length);
	sent = send(c->fd, all, n + length, MSG_NOSIGNAL);
	free(all);
	return sent == (ssize_t) (n + length);
}

static void
hold(Connection *c, long ms)
{
	c->held = true;
	c->due_us = clock_us(CLOCK_MONOTONIC) + ms * 1000;
	c->next = NULL;
	if (held_last != NULL)
		held_last->next = c;
	else
		held_first = c;
	held_last = c;
	if (++held > held_most)
		held_most = held;
}

static void
stamp(long n, int64_t at_us)
{
	if (n_stamps == room)
	{
		room = room ? room * 2 : 1024;
		stamps = need(realloc(stamps, room * sizeof(Stamp)));
	}
	stamps[n_stamps].n = n;
	stamps[n_stamps++].at_us = at_us;
}

static bool
tell_stamps(Connection *c)
{
	char	   *text = need(malloc(n_stamps * 48 + 1));
	size_t		length = 0;
	bool		ok;

	for (size_t i = 0; i < n_stamps; i++)
		length += sprintf(text + length, "%ld %lld\n", stamps[i].n, (long long) stamps[i].at_us);
	n_stamps = 0;
	ok = answer(c, text, length);
	free(text);
	return ok;
}

static bool
tell_counts(Connection *c)
{
	char		text[80];
	int			length = snprintf(text, sizeof(text), "{\"seen\": %ld, \"held_at_once\": %ld}", seen, held_most);

	seen = held_most = 0;
	return answer(c, text, length);
}

/* What the socket takes; with more to tell the socket is waited for. False: the connection is of no use any more. */
static bool
tell_items(Connection *c)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};

	for (;;)
	{
		ssize_t		n;

		while (c->have < BUFFER - 100 && c->item < c->last)
		{
			c->item++;
			c->have += sprintf(c->buffer + c->have, "id: %ld\ndata: {\"n\": %ld, \"price\": 19.99}\n\n", c->item, c->item);
			items_told++;
		}
		if (c->sent == c->have)
			break;
		n = send(c->fd, c->buffer + c->sent, c->have - c->sent, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (n < 0)
		{
			ev.events |= EPOLLOUT;
			break;
		}
		c->sent += n;
		if (c->sent == c->have)
			c->sent = c->have = 0;
	}
	return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &ev) == 0;
}

static bool
begin_stream(Connection *c, const char *request, long last)
{
	const char *id = strcasestr(request, "\r\nLast-Event-ID:");

	c->item = id != NULL ? atol(id + 16) : 0;
	c->last = last;
	c->stream = true;
	streams_open++;
	streams_begun++;
	last_begun_us = clock_us(CLOCK_REALTIME);
	c->sent = 0;
	c->have = sprintf(c->buffer, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
	return tell_items(c);
}

static bool
tell_streams(Connection *c)
{
	char		text[200];
	int			length = snprintf(text, sizeof(text), "{\"open\": %ld, \"begun\": %ld, \"told\": %ld, \"last_begun_us\": %lld}",
								  streams_open, streams_begun, items_told, (long long) last_begun_us);

	return answer(c, text, length);
}

/* One whole request; false: the connection is of no use any more. */
static bool
serve(Connection *c, const char *request)
{
	const char *path = strchr(request, ' ');

	if (path++ == NULL)
		return false;
	if (strncmp(path, "/stamps", 7) == 0)
		return tell_stamps(c);
	if (strncmp(path, "/counts", 7) == 0)
		return tell_counts(c);
	if (strncmp(path, "/streams", 8) == 0)
		return tell_streams(c);
	if (strncmp(path, "/stream/", 8) == 0)
		return begin_stream(c, request, atol(path + 8));
	seen++;
	if (strncmp(path, "/stamp/", 7) == 0)
		stamp(atol(path + 7), c->first_byte_us);
	else if (strncmp(path, "/hold/", 6) == 0)
	{
		hold(c, atol(path + 6));
		return true;
	}
	return answer(c, BODY, strlen(BODY));
}

/* Length of the first request in the buffer; 0: not all of it is there. */
static int
request_length(Connection *c)
{
	char	   *end;
	char	   *length;
	int			total;

	c->buffer[c->have] = '\0';
	end = strstr(c->buffer, "\r\n\r\n");
	if (end == NULL)
		return 0;
	total = end + 4 - c->buffer;
	length = strcasestr(c->buffer, "\r\nContent-Length:");
	if (length != NULL && length < end)
		total += atoi(length + 17);
	return total <= c->have ? total : 0;
}

static void
readable(Connection *c)
{
	char		ignored[64];
	ssize_t		n = c->stream ? recv(c->fd, ignored, sizeof(ignored), 0) :
		recv(c->fd, c->buffer + c->have, BUFFER - 1 - c->have, 0);
	int			length;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
	{
		drop(c);
		return;
	}
	if (c->stream)
		return;
	if (c->have == 0)
		c->first_byte_us = clock_us(CLOCK_REALTIME);
	c->have += n;
	length = request_length(c);
	if (length == 0 ? c->have == BUFFER - 1 : !serve(c, c->buffer))
		drop(c);
	else if (length > 0 && !c->stream)
		c->have = 0;			/* nobody sends a second request before the answer */
}

static void
accept_all(int listener)
{
	int			fd;
	int			on = 1;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
	{
		Connection *c = need(calloc(1, sizeof(Connection)));
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		c->fd = fd;
		epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
	}
}

/* Answers those whose time has come; how long to sleep until the next. */
static int
release(void)
{
	int64_t		now = clock_us(CLOCK_MONOTONIC);

	while (held_first != NULL && held_first->due_us <= now)
	{
		Connection *c = held_first;

		held_first = c->next;
		if (held_first == NULL)
			held_last = NULL;
		held--;
		c->held = false;
		if (c->closed)
			free(c);
		else if (!answer(c, BODY, strlen(BODY)))
			drop(c);
	}
	return held_first == NULL ? -1 : (int) ((held_first->due_us - now) / 1000 + 1);
}

/* Below 32768, where outgoing connections have their ports. */
static int
listen_somewhere(int port)
{
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	srand(getpid());
	for (int i = 0; i < 100; i++)
	{
		int			p = port > 0 ? port : 20000 + rand() % 12000;

		at.sin_port = htons(p);
		if (bind(fd, (struct sockaddr *) &at, sizeof(at)) == 0 && listen(fd, 4096) == 0)
		{
			printf("%d\n", p);
			fflush(stdout);
			return fd;
		}
	}
	perror("service: no port");
	exit(1);
}

int
main(int argc, char **argv)
{
	struct rlimit limit;
	struct epoll_event events[EVENTS];
	struct epoll_event ev = {.events = EPOLLIN};
	int			listener;

	signal(SIGPIPE, SIG_IGN);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	listener = listen_somewhere(argc > 1 ? atoi(argv[1]) : 0);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &ev);
	for (;;)
	{
		int			n = epoll_wait(epoll_fd, events, EVENTS, release());

		for (int i = 0; i < n; i++)
			if (events[i].data.ptr == NULL)
				accept_all(listener);
			else if ((events[i].events & EPOLLOUT) && !tell_items(events[i].data.ptr))
				drop(events[i].data.ptr);
			else if (events[i].events & ~EPOLLOUT)
				readable(events[i].data.ptr);
	}
}
