/* SPDX-License-Identifier: PostgreSQL */
/*
 * bare.c: how many calls this machine makes with libcurl and nothing else.
 *
 *	  bare URL CALLS AT_ONCE		prints calls per second
 *
 * The same shape as an agent worker's loop: one multi handle, its sockets in
 * one epoll descriptor, the same POST each time, connections kept.  No
 * database and no JSON.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define BODY "{\"order\": 12345, \"amount\": 19.99}"

static CURLM *multi;
static int	epoll_fd;
static long timeout_ms = -1;
static long left;
static long failed;

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int
on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct epoll_event ev = {.data.fd = fd};

	(void) easy;
	(void) arg;
	if (what == CURL_POLL_REMOVE)
		return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL), 0;
	ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
	if (epoll_ctl(epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) != 0)
		epoll_ctl(epoll_fd, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &ev);
	curl_multi_assign(multi, fd, &epoll_fd);
	return 0;
}

static int
on_timer(CURLM *m, long ms, void *arg)
{
	(void) m;
	(void) arg;
	timeout_ms = ms;
	return 0;
}

static size_t
on_body(char *data, size_t size, size_t n, void *arg)
{
	(void) data;
	(void) arg;
	return size * n;
}

static void
collect(void)
{
	CURLMsg    *msg;
	int			queued;

	while ((msg = curl_multi_info_read(multi, &queued)) != NULL)
	{
		CURL	   *easy = msg->easy_handle;
		long		status = 0;

		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
		if (msg->data.result != CURLE_OK || status != 200)
			failed++;
		curl_multi_remove_handle(multi, easy);
		if (left-- > 0)
			curl_multi_add_handle(multi, easy);
		else
			curl_easy_cleanup(easy);
	}
}

int
main(int argc, char **argv)
{
	long		calls = argc > 2 ? atol(argv[2]) : 0;
	int			at_once = argc > 3 ? atoi(argv[3]) : 0;
	struct curl_slist *headers = NULL;
	struct epoll_event events[256];
	double		begun;
	int			running;

	if (calls <= 0 || at_once <= 0 || at_once > calls)
	{
		fprintf(stderr, "usage: bare URL CALLS AT_ONCE\n");
		return 2;
	}
	curl_global_init(CURL_GLOBAL_DEFAULT);
	multi = curl_multi_init();
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) at_once);
	headers = curl_slist_append(headers, "Content-Type: application/json");

	begun = seconds();
	left = calls - at_once;
	for (int i = 0; i < at_once; i++)
	{
		CURL	   *easy = curl_easy_init();

		curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, BODY);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
		curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
		curl_multi_add_handle(multi, easy);
	}
	do
	{
		int			n = epoll_wait(epoll_fd, events, 256, (int) timeout_ms);

		if (n == 0)
			curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
		for (int i = 0; i < n; i++)
			curl_multi_socket_action(multi, events[i].data.fd,
									 (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
									 (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0), &running);
		collect();
	} while (left > -at_once);
	printf("%.0f\n", calls / (seconds() - begun));
	if (failed > 0)
		fprintf(stderr, "bare: %ld calls failed\n", failed);
	return failed > 0;
}
