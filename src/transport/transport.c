/* SPDX-License-Identifier: PostgreSQL */
/*
 * transport.c
 *	  Starts, ends and stops calls.
 *
 * A request is in one of three lists: active (libcurl has it), finished (its
 * reply waits for its owner), idle (an easy handle for the next call).
 * Connections outlive requests: the multi handle keeps them for reuse.
 */
#include "base/networks.h"
#include "transport/request.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So many rounds, and none begins after so long. */
#define ROUNDS_OF_WORK 4
#define WORK_US 50000

/* Sockets that were not read for so long: the process was stopped, kept busy, or had nothing to do. */
#define LATE_US 20000

/* Pieces of memory of this size go back to the system when they are freed; the larger number, while they are used again. */
#define LARGE_PIECE (512 * 1024)
#define LARGE_PIECE_REUSED (32 * 1024 * 1024)
#define FREE_AT_END (128 * 1024)
#define FREE_AT_END_REUSED (256 * 1024 * 1024)

/*
 * Options of libcurl 8.20, which looks names up in a pool of 20 threads: names that hang would hold
 * up all others.  A name that hangs keeps its thread when its call has given up, so there may be
 * more of them than calls.  Any older libcurl has a thread for each look-up, and refuses the options.
 */
#define MULTI_RESOLVE_THREADS_MAX ((CURLMoption) (CURLOPTTYPE_LONG + 20))
#define MULTI_QUICK_EXIT ((CURLMoption) (CURLOPTTYPE_LONG + 21))
#define LOOKUPS_PER_CALL 4

/* A thread inherits the signal mask of the thread that starts it. */
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

void
sas_transport_list_add(SasRequestList *list, SasRequest *r)
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

void
sas_transport_list_remove(SasRequestList *list, SasRequest *r)
{
	if (r == list->head)
		list->head = r->next;
	else
		r->prev->next = r->next;
	if (r == list->tail)
		list->tail = r->prev;
	else
		r->next->prev = r->prev;
	r->prev = r->next = NULL;
	list->length--;
}

static void
transport_free_request(SasRequest *r)
{
	curl_easy_cleanup(r->easy);
	free(r);
}

/* Frees the first requests of a list, all but so many. */
static void
transport_free_list(SasRequestList *list, int keep)
{
	while (list->length > keep)
	{
		SasRequest *r = list->head;

		sas_transport_list_remove(list, r);
		sas_transport_request_unload(r);
		transport_free_request(r);
	}
}

static void
transport_apply_size(SasTransport *t, int max_calls)
{
	t->max_calls = max_calls > 0 ? max_calls : 1;
	curl_multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long) t->max_calls);
	curl_multi_setopt(t->multi, MULTI_RESOLVE_THREADS_MAX, (long) t->max_calls * LOOKUPS_PER_CALL);
	/* a worker that ends does not wait for names */
	curl_multi_setopt(t->multi, MULTI_QUICK_EXIT, 1L);
	transport_free_list(&t->idle, t->max_calls);
}

void
sas_transport_reuse_memory(bool reuse)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, reuse ? LARGE_PIECE_REUSED : LARGE_PIECE);
	if (reuse)
		mallopt(M_TRIM_THRESHOLD, FREE_AT_END_REUSED);
#endif
}

void
sas_transport_release_memory(void)
{
#ifdef __GLIBC__
	mallopt(M_TRIM_THRESHOLD, FREE_AT_END);
	malloc_trim(0);
#endif
}

SasTransport *
sas_transport_open(int max_calls, char *errbuf, size_t errlen)
{
	static bool global = false;
	sigset_t	before;
	SasTransport *t;

	sas_transport_block_signals(&before);
#ifdef __GLIBC__
	/* without it the threshold grows with what was freed */
	mallopt(M_MMAP_THRESHOLD, LARGE_PIECE);
#endif
	if (!global)
		global = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	t = global ? calloc(1, sizeof(SasTransport)) : NULL;
	if (t != NULL)
	{
		t->deadline_us = -1;
		t->memory = &t->own_memory;
		for (int i = 0; i < SAS_TRANSPORT_JOINED; i++)
			t->joined[i] = -1;
		if (sas_transport_poll_set_up(t))
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

/*
 * An idle request, or a new one.  The one used last has the warmest memory.
 */
static SasRequest *
transport_take_idle(SasTransport *t)
{
	SasRequest *r = t->idle.tail;

	if (r != NULL)
	{
		sas_transport_list_remove(&t->idle, r);
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

bool
sas_transport_may_have_sent(const void *handle)
{
	const SasRequest *r = handle;

	return r->sent || r->begun > 0;
}

int64_t
sas_transport_begun_us(const void *handle)
{
	return ((const SasRequest *) handle)->begun_us;
}

/* Calls that were started, and neither stopped nor given back by sas_transport_next(). */
static int
transport_in_flight(SasTransport *t)
{
	return t->active.length + t->finished.length + t->large.length;
}

void
sas_transport_give_back(SasTransport *t, SasRequest *r)
{
	sas_transport_request_forget_news(r);
	sas_transport_request_unload(r);
	if (!sas_transport_request_wears_out() && t->idle.length + transport_in_flight(t) < t->max_calls)
		sas_transport_list_add(&t->idle, r);
	else
		transport_free_request(r);
}

static SasRequest *
transport_start(SasTransport *t, const SasCall *call, char *errbuf, size_t errlen)
{
	SasRequest *r;

	if (transport_in_flight(t) >= t->max_calls)
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
		sas_transport_give_back(t, r);
		return NULL;
	}
	if (curl_multi_add_handle(t->multi, r->easy) != CURLM_OK)
	{
		snprintf(errbuf, errlen, "libcurl rejected the call");
		sas_transport_give_back(t, r);
		return NULL;
	}
	r->news_list = &t->news;
	r->transport = t;
	r->share = call->share;
	sas_transport_request_hold(r, r->body_len);
	sas_transport_list_add(&t->active, r);
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
 * Removes the request from libcurl.  If it had not ended, a thread may still look up its host.
 */
void
sas_transport_detach(SasTransport *t, SasRequest *r, bool cut_short)
{
	curl_off_t	lookup = 0;

	sas_transport_upgrade_leave(r);
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
		sas_transport_list_remove(r->waits_in, r);
	else
	{
		sas_transport_list_remove(&t->active, r);
		sas_transport_detach(t, r, true);
	}
	sas_transport_give_back(t, r);
	sas_transport_restore_signals(&before);
}

/* The socket of a call that has left libcurl is ready. */
void
sas_transport_move_upgraded(SasTransport *t, SasRequest *r)
{
	CURLcode	code;

	if (!sas_transport_upgrade_move(r, &code))
		return;
	sas_transport_detach(t, r, false);
	sas_transport_finish(t, r, code);
}

/*
 * Collects the finished requests of libcurl.  A redirect makes a request active again; a
 * connection for a WebSocket begins its handshake.
 */
void
sas_transport_collect(SasTransport *t)
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
		if (r->websocket && code == CURLE_OK)
		{
			if (sas_transport_upgrade_begin(r))
				continue;
			code = CURLE_SEND_ERROR;
		}
		sas_transport_request_note_sent(r);
		sas_transport_detach(t, r, code == CURLE_OPERATION_TIMEDOUT);
		if (sas_transport_kept_again(r) || sas_transport_request_redirect(r, code))
		{
			if (curl_multi_add_handle(t->multi, r->easy) == CURLM_OK)
				continue;
			code = CURLE_OUT_OF_MEMORY;
		}
		sas_transport_finish(t, r, code);
	}
}

/*
 * Ends requests that are connected to an address that is now denied: a silent stream makes no
 * further request that would check it.
 */
static void
transport_ask_border(SasTransport *t)
{
	SasRequest *next;

	if (t->networks == sas_base_networks_generation)
		return;
	t->networks = sas_base_networks_generation;
	for (SasRequest *r = t->active.head; r != NULL; r = next)
	{
		next = r->next;
		if (sas_transport_request_may_go_on(r))
			continue;
		sas_transport_request_note_sent(r);
		sas_transport_detach(t, r, false);
		sas_transport_finish(t, r, CURLE_ABORTED_BY_CALLBACK);
	}
}

bool
sas_transport_work(SasTransport *t)
{
	sigset_t	before;
	bool		did = true;

	sas_transport_block_signals(&before);
	t->late = sas_transport_now_us() >= t->worked_us + LATE_US;
	t->work_until_us = sas_transport_now_us() + WORK_US;
	t->behind = t->cut_short = false;
	sas_transport_note_overdue(t);
	sas_transport_feed(t);
	transport_ask_border(t);
	sas_transport_come_late(t);
	for (int i = 0; did && i < ROUNDS_OF_WORK && (i == 0 || sas_transport_now_us() < t->work_until_us); i++)
	{
		did = sas_transport_poll_once(t);
		sas_transport_collect(t);
	}
	if (!t->cut_short)
		t->worked_us = sas_transport_now_us();
	sas_transport_restore_signals(&before);
	return did;
}

bool
sas_transport_was_cut_short(const SasTransport *t)
{
	return t->cut_short;
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

	if (t == NULL)
		return;
	sas_transport_block_signals(&before);
	close(t->epoll_fd);
	t->epoll_fd = -1;
	if (t->active.length == 0 && !t->lookup_left)
	{
		transport_free_list(&t->finished, 0);
		transport_free_list(&t->large, 0);
		transport_free_list(&t->idle, 0);
		curl_multi_cleanup(t->multi);
		free(t);
	}
	sas_transport_restore_signals(&before);
}
