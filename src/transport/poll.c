/* SPDX-License-Identifier: PostgreSQL */
/*
 * poll.c
 *	  One descriptor and one timer for all sockets of a transport.
 *
 * libcurl reports which sockets it waits for and when it wants to be called.  The sockets go into
 * one epoll descriptor, and the time becomes a deadline on the monotonic clock.  So the owner
 * waits for one descriptor with one time-out and never sees a socket.
 */
#include "transport/request.h"

#include <errno.h>
#include <sys/epoll.h>

/* The kernel gives those that were given least lately first. */
#define EVENTS_AT_ONCE 16
#define EVENTS_OF_ROUND 256

/*
 * libcurl reports which events of a socket it waits for. in_epoll is what we assigned to the
 * socket.  When the kernel refuses, the call runs into its time-out: an error returned to libcurl
 * here would end all calls.
 */
static int
poll_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *in_epoll)
{
	SasTransport *t = arg;
	struct epoll_event ev = {0};

	(void) easy;
	if (what == CURL_POLL_REMOVE)
	{
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	ev.data.u64 = SAS_POLL_OF_SOCKET(fd);
	if (what & CURL_POLL_IN)
		ev.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		ev.events |= EPOLLOUT;
	if (epoll_ctl(t->epoll_fd, in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) != 0)
	{
		if (errno == ENOENT)
			epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
		else if (errno == EEXIST)
			epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
	}
	if (in_epoll == NULL)
		curl_multi_assign(t->multi, fd, t);
	return 0;
}

static int
poll_on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	SasTransport *t = arg;

	(void) multi;
	t->deadline_us = timeout_ms < 0 ? -1 :
		sas_transport_now_us() + (int64_t) timeout_ms * 1000;
	return 0;
}

bool
sas_transport_poll_set_up(SasTransport *t)
{
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->multi = curl_multi_init();
	return t->epoll_fd >= 0 && t->multi != NULL &&
		curl_multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, poll_on_socket) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, poll_on_timer) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_TIMERDATA, t) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_MAX_HOST_CONNECTIONS, 0L) == CURLM_OK;
}

int
sas_transport_fd(SasTransport *t)
{
	return t->epoll_fd;
}

static bool
poll_is_joined(const SasTransport *t, int fd)
{
	for (int i = 0; i < SAS_TRANSPORT_JOINED; i++)
		if (fd == t->joined[i])
			return true;
	return false;
}

bool
sas_transport_join(SasTransport *t, SasTransport *other)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int			free_one = 0;

	while (free_one < SAS_TRANSPORT_JOINED && t->joined[free_one] >= 0)
		free_one++;
	if (free_one == SAS_TRANSPORT_JOINED)
		return false;
	ev.data.u64 = SAS_POLL_OF_SOCKET(other->epoll_fd);
	if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, other->epoll_fd, &ev) != 0)
		return false;
	t->joined[free_one] = other->epoll_fd;
	other->memory = t->memory;
	return true;
}

long
sas_transport_timeout_ms(SasTransport *t)
{
	int64_t		left_us;

	if (t->news.head != NULL || t->finished.head != NULL || t->behind)
		return 0;
	if (t->deadline_us < 0)
		return -1;
	left_us = t->deadline_us - sas_transport_now_us();
	return left_us <= 0 ? 0 : (long) ((left_us + 999) / 1000);
}

/*
 * Checks some sockets; how many were ready.  libcurl gets an error or hang-up of a socket as
 * readable and writable: it finds the reason itself, and reads what came before.
 */
static int
poll_some_sockets(SasTransport *t, bool *did)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int			running;
	int			n = epoll_wait(t->epoll_fd, events, EVENTS_AT_ONCE, 0);

	for (int i = 0; i < n; i++)
	{
		uint32_t	e = events[i].events;
		int			fd = SAS_POLL_SOCKET(events[i].data.u64);
		int			mask = 0;

		if (SAS_POLL_IS_REQUEST(events[i].data.u64))
		{
			sas_transport_move_upgraded(t, SAS_POLL_REQUEST(events[i].data.u64));
			*did = true;
			continue;
		}
		if (poll_is_joined(t, fd))
			continue;

		if (e & (EPOLLIN | EPOLLERR | EPOLLHUP))
			mask |= CURL_CSELECT_IN;
		if (e & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			mask |= CURL_CSELECT_OUT;
		curl_multi_socket_action(t->multi, fd, mask, &running);
		*did = true;
	}
	return n;
}

/* Checks the sockets once, as far as there is time; false: none was ready. */
static bool
poll_sockets(SasTransport *t)
{
	bool		did = false;
	int			n;

	for (int checked = 0; checked < EVENTS_OF_ROUND; checked += n)
	{
		n = poll_some_sockets(t, &did);
		if (n < EVENTS_AT_ONCE)
			break;
		if (sas_transport_now_us() >= t->work_until_us)
		{
			t->cut_short = true;
			break;
		}
	}
	return did;
}

/* Checks the timer and the sockets once; false: nothing was ready. */
bool
sas_transport_poll_once(SasTransport *t)
{
	int			running;
	bool		is_due = t->deadline_us >= 0 && sas_transport_now_us() >= t->deadline_us;

	if (is_due)
	{
		t->deadline_us = -1;
		curl_multi_socket_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	return poll_sockets(t) || is_due;
}
