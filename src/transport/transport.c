/* SPDX-License-Identifier: PostgreSQL */
/*
 * transport.c
 *	  The descriptor, the timer, and who is where.
 *
 * libcurl tells us which sockets it waits for and when it wants to be called;
 * the sockets go into one epoll descriptor and the time becomes a deadline on
 * the monotonic clock, so that the owner waits for one descriptor with one
 * time-out and never sees a socket.
 *
 * A request is in one of three lists: active (libcurl has it), finished (its
 * reply waits to be taken), idle (an easy handle kept for the next call).
 * Connections outlive requests: the multi handle keeps them for reuse.
 */
#include "transport/request.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 256
#define ROUNDS_OF_WORK 4

typedef struct SasRequestList
{
	SasRequest *head;
	SasRequest *tail;
	int			length;
} SasRequestList;

struct SasTransport
{
	CURLM	   *multi;
	int			epoll_fd;
	int			joined[2];		/* descriptors of other transports, for the owner's wait only; -1: none */
	int64_t		deadline_us;	/* of libcurl's timer; -1: none */
	int			max_calls;
	bool		lookup_left;	/* a call ended while its host was looked up */
	SasRequestList active;
	SasRequestList finished;
	SasRequestList idle;
	SasRequestNews has_news;	/* streams with something new; active, or finished */
};

/*
 * Threads begin with the signal mask of whoever starts them.
 */
void
sas_transport_block_signals(sigset_t *before)
{
	sigset_t	all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

void
sas_transport_restore_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

static void
transport_list_add(SasRequestList *list, SasRequest *r)
{
	r->prev = list->tail;
	r->next = NULL;
	if (list->tail != NULL)
		list->tail->next = r;
	else
		list->head = r;
	list->tail = r;
	list->length++;
}

static void
transport_list_remove(SasRequestList *list, SasRequest *r)
{
	if (r->prev != NULL)
		r->prev->next = r->next;
	else
		list->head = r->next;
	if (r->next != NULL)
		r->next->prev = r->prev;
	else
		list->tail = r->prev;
	r->prev = r->next = NULL;
	list->length--;
}

/*
 * libcurl's wish for a socket.  in_epoll is what we assigned to the socket.
 * When the kernel refuses, the call runs into its time-out: an error given to
 * libcurl here would end all calls.
 */
static int
transport_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *in_epoll)
{
	SasTransport *t = arg;
	struct epoll_event ev = {0};

	(void) easy;
	if (what == CURL_POLL_REMOVE)
	{
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	ev.data.fd = fd;
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
transport_on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	SasTransport *t = arg;

	(void) multi;
	t->deadline_us = timeout_ms < 0 ? -1 :
		sas_transport_now_us() + (int64_t) timeout_ms * 1000;
	return 0;
}

/*
 * Two sockets for a call (one while its host is looked up), one for a kept
 * connection, and the server's own files.
 */
static void
transport_raise_open_files(int max_calls)
{
	struct rlimit limit;
	rlim_t		want = (rlim_t) max_calls * 3 + 1024;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
		return;
	limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void
transport_free_request(SasRequest *r)
{
	curl_easy_cleanup(r->easy);
	free(r);
}

static void
transport_apply_size(SasTransport *t, int max_calls)
{
	t->max_calls = max_calls > 0 ? max_calls : 1;
	transport_raise_open_files(t->max_calls);
	curl_multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long) t->max_calls);
	while (t->idle.length > t->max_calls)
	{
		SasRequest *r = t->idle.head;

		transport_list_remove(&t->idle, r);
		transport_free_request(r);
	}
}

static bool
transport_set_up(SasTransport *t)
{
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->multi = curl_multi_init();
	return t->epoll_fd >= 0 && t->multi != NULL &&
		curl_multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, transport_on_socket) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, transport_on_timer) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_TIMERDATA, t) == CURLM_OK &&
		curl_multi_setopt(t->multi, CURLMOPT_MAX_HOST_CONNECTIONS, 0L) == CURLM_OK;
}

SasTransport *
sas_transport_open(int max_calls, char *errbuf, size_t errlen)
{
	static bool global = false;
	sigset_t	before;
	SasTransport *t;

	sas_transport_block_signals(&before);
	if (!global)
		global = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	t = global ? calloc(1, sizeof(SasTransport)) : NULL;
	if (t != NULL)
	{
		t->deadline_us = -1;
		t->joined[0] = t->joined[1] = -1;
		if (transport_set_up(t))
			transport_apply_size(t, max_calls);
		else
		{
			curl_multi_cleanup(t->multi);
			if (t->epoll_fd >= 0)
				close(t->epoll_fd);
			free(t);
			t = NULL;
		}
	}
	sas_transport_restore_signals(&before);
	if (t == NULL)
		snprintf(errbuf, errlen, "%s", global ? "no memory or no descriptor for HTTP calls" :
				 "libcurl could not be initialised");
	return t;
}

int
sas_transport_fd(SasTransport *t)
{
	return t->epoll_fd;
}

bool
sas_transport_join(SasTransport *t, SasTransport *other)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int			place = t->joined[0] < 0 ? 0 : 1;

	ev.data.fd = other->epoll_fd;
	if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, other->epoll_fd, &ev) != 0)
		return false;
	t->joined[place] = other->epoll_fd;
	return true;
}

long
sas_transport_timeout_ms(SasTransport *t)
{
	int64_t		left_us;

	if (t->has_news.head != NULL || t->finished.head != NULL)
		return 0;
	if (t->deadline_us < 0)
		return -1;
	left_us = t->deadline_us - sas_transport_now_us();
	return left_us <= 0 ? 0 : (long) ((left_us + 999) / 1000);
}

/*
 * An idle request, or a new one.  The last one used has the warmest memory.
 */
static SasRequest *
transport_take_idle(SasTransport *t)
{
	SasRequest *r = t->idle.tail;

	if (r != NULL)
	{
		transport_list_remove(&t->idle, r);
		return r;
	}
	r = calloc(1, sizeof(SasRequest));
	if (r != NULL && (r->easy = curl_easy_init()) == NULL)
	{
		free(r);
		r = NULL;
	}
	return r;
}

static void
transport_give_back(SasTransport *t, SasRequest *r)
{
	sas_transport_request_forget_news(r);
	sas_transport_request_unload(r);
	if (t->idle.length + t->active.length + t->finished.length < t->max_calls)
		transport_list_add(&t->idle, r);
	else
		transport_free_request(r);
}

static SasRequest *
transport_start(SasTransport *t, const SasCall *call, char *errbuf, size_t errlen)
{
	SasRequest *r;

	if (sas_transport_in_flight(t) >= t->max_calls)
	{
		snprintf(errbuf, errlen, "all %d calls are in use", t->max_calls);
		return NULL;
	}
	r = transport_take_idle(t);
	if (r == NULL)
	{
		snprintf(errbuf, errlen, "out of memory");
		return NULL;
	}
	if (!sas_transport_request_load(r, call, errbuf, errlen))
	{
		transport_give_back(t, r);
		return NULL;
	}
	if (curl_multi_add_handle(t->multi, r->easy) != CURLM_OK)
	{
		snprintf(errbuf, errlen, "libcurl did not take the call");
		transport_give_back(t, r);
		return NULL;
	}
	r->news_list = &t->has_news;
	transport_list_add(&t->active, r);
	return r;
}

void *
sas_transport_start(SasTransport *t, const SasCall *call, char *errbuf, size_t errlen)
{
	sigset_t	before;
	SasRequest *r;

	sas_transport_block_signals(&before);
	r = transport_start(t, call, errbuf, errlen);
	sas_transport_restore_signals(&before);
	return r;
}

/*
 * Takes the request from libcurl.  When that cuts it short, a thread may go on
 * looking for its host.
 */
static void
transport_detach(SasTransport *t, SasRequest *r, bool cut_short)
{
	curl_off_t	lookup = 0;

	if (cut_short && r->begun == 0 &&
		(curl_easy_getinfo(r->easy, CURLINFO_NAMELOOKUP_TIME_T, &lookup) != CURLE_OK ||
		 lookup == 0))
		t->lookup_left = true;
	curl_multi_remove_handle(t->multi, r->easy);
}

void
sas_transport_stop_call(SasTransport *t, void *handle)
{
	SasRequest *r = handle;
	sigset_t	before;

	if (r == NULL)
		return;
	sas_transport_block_signals(&before);
	if (r->finished)
		transport_list_remove(&t->finished, r);
	else
	{
		transport_list_remove(&t->active, r);
		transport_detach(t, r, true);
	}
	transport_give_back(t, r);
	sas_transport_restore_signals(&before);
}

/*
 * Takes from libcurl what is done.  A redirect makes it active again.
 */
static void
transport_collect(SasTransport *t)
{
	CURLMsg    *msg;
	int			left;

	while ((msg = curl_multi_info_read(t->multi, &left)) != NULL)
	{
		SasRequest *r = NULL;
		CURLcode	code = msg->data.result;

		if (msg->msg != CURLMSG_DONE ||
			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **) &r) != CURLE_OK ||
			r == NULL)
			continue;
		sas_transport_request_note_sent(r);
		transport_detach(t, r, code == CURLE_OPERATION_TIMEDOUT);
		if (sas_transport_request_redirect(r, code))
		{
			if (curl_multi_add_handle(t->multi, r->easy) == CURLM_OK)
				continue;
			code = CURLE_OUT_OF_MEMORY;
		}
		sas_transport_request_finish(r, code);
		transport_list_remove(&t->active, r);
		r->finished = true;
		transport_list_add(&t->finished, r);
	}
}

/*
 * One look at the timer and the sockets; false: nothing was ready.  An error
 * or hang-up of a socket is given to libcurl as readable and writable: it
 * finds out the reason itself, and reads what came before.
 */
static bool
transport_work_once(SasTransport *t)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	bool		did = false;
	int			running;
	int			n;

	if (t->deadline_us >= 0 && sas_transport_now_us() >= t->deadline_us)
	{
		t->deadline_us = -1;
		curl_multi_socket_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		did = true;
	}
	n = epoll_wait(t->epoll_fd, events, EVENTS_AT_ONCE, 0);
	for (int i = 0; i < n; i++)
	{
		uint32_t	e = events[i].events;
		int			mask = 0;

		if (events[i].data.fd == t->joined[0] || events[i].data.fd == t->joined[1])
			continue;

		if (e & (EPOLLIN | EPOLLERR | EPOLLHUP))
			mask |= CURL_CSELECT_IN;
		if (e & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			mask |= CURL_CSELECT_OUT;
		curl_multi_socket_action(t->multi, events[i].data.fd, mask, &running);
		did = true;
	}
	transport_collect(t);
	return did;
}

void
sas_transport_work(SasTransport *t)
{
	sigset_t	before;

	sas_transport_block_signals(&before);
	for (int i = 0; i < ROUNDS_OF_WORK; i++)
		if (!transport_work_once(t))
			break;
	sas_transport_restore_signals(&before);
}

SasReply *
sas_transport_next(SasTransport *t)
{
	SasRequest *r = t->finished.head;
	SasReply   *reply;
	sigset_t	before;

	if (r == NULL)
		return NULL;
	reply = r->reply;
	r->reply = NULL;
	sas_transport_block_signals(&before);
	transport_list_remove(&t->finished, r);
	transport_give_back(t, r);
	sas_transport_restore_signals(&before);
	return reply;
}

void *
sas_transport_next_news(SasTransport *t)
{
	SasRequest *r = t->has_news.head;

	if (r == NULL)
		return NULL;
	sas_transport_request_forget_news(r);
	return r->reply->owner;
}

int
sas_transport_in_flight(SasTransport *t)
{
	return t->active.length + t->finished.length;
}

void
sas_transport_resize(SasTransport *t, int max_calls)
{
	sigset_t	before;

	if (max_calls == t->max_calls)
		return;
	sas_transport_block_signals(&before);
	transport_apply_size(t, max_calls);
	sas_transport_restore_signals(&before);
}

void
sas_transport_close(SasTransport *t)
{
	sigset_t	before;
	SasRequest *r;

	if (t == NULL)
		return;
	sas_transport_block_signals(&before);
	close(t->epoll_fd);
	t->epoll_fd = -1;
	if (t->active.length == 0 && !t->lookup_left)
	{
		while ((r = t->finished.head) != NULL)
		{
			transport_list_remove(&t->finished, r);
			sas_transport_request_unload(r);
			transport_free_request(r);
		}
		while ((r = t->idle.head) != NULL)
		{
			transport_list_remove(&t->idle, r);
			transport_free_request(r);
		}
		curl_multi_cleanup(t->multi);
		free(t);
	}
	sas_transport_restore_signals(&before);
}
