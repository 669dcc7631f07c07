/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.h
 *	  A call and its transport; private to src/transport.
 *
 *	  transport.c	lists: which call is in which state
 *	  finished.c	finished calls, until their owners take the replies
 *	  poll.c		descriptor and timer
 *	  request.c		what is sent: options of the easy handle, redirects
 *	  reply.c		what comes back: callbacks of libcurl, kind, error text
 *	  whole.c		whether all of an answer came
 *	  stream.c		the body of a stream, read as it comes
 *	  upgrade.c		a connection that becomes a WebSocket
 *	  memory.c		bytes that are held, and who may read on
 *	  border.c		addresses that may not be connected to
 *	  kept.c		kept connections on which bytes wait that nobody asked for
 */
#ifndef SAS_REQUEST_H
#define SAS_REQUEST_H

#include <curl/curl.h>
#include <signal.h>

#include "transport/origin.h"
#include "transport/transport.h"

#if LIBCURL_VERSION_NUM < 0x075800
#error "sas needs libcurl 7.88 or later"
#endif

/* Streams with news (bytes, or the beginning of the answer), in order. */
typedef struct SasRequestNews
{
	struct SasRequest *head;
	struct SasRequest *tail;
} SasRequestNews;

/*
 * The source of an event of epoll: a socket of libcurl, or a request with its own socket
 * (upgrade.c).
 */
#define SAS_POLL_OF_SOCKET(fd) ((uint64_t) (uint32_t) (fd) << 1)
#define SAS_POLL_OF_REQUEST(r) ((uint64_t) (uintptr_t) (r) | 1)
#define SAS_POLL_IS_REQUEST(u64) (((u64) & 1) != 0)
#define SAS_POLL_SOCKET(u64) ((int) ((u64) >> 1))
#define SAS_POLL_REQUEST(u64) ((SasRequest *) (uintptr_t) ((u64) & ~(uint64_t) 1))

/* So many sockets of a request are known; see kept.c. */
#define SAS_REQUEST_SOCKETS 8

/* A connection that is no longer libcurl's (upgrade.c). */
typedef struct SasUpgrade SasUpgrade;

typedef struct SasRequest
{
	struct SasRequest *prev;	/* in the list of active or of finished calls */
	struct SasRequest *next;
	bool		finished;
	struct SasRequestList *waits_in;	/* of a finished call; a stream is read there, too, and shrinks */
	CURL	   *easy;

	/* the call; what libcurl does not copy, and what redirects need */
	char	   *method;
	char	   *url;
	void	   *body;			/* NULL: none */
	size_t		body_len;
	struct curl_slist *headers;
	int64_t		deadline_us;	/* 0: none */
	size_t		max_response;
	bool		follow;
	char	   *below;			/* if it follows */
	bool		http2;

	/* one hop: a call has several when it follows redirects */
	int			begun;			/* times libcurl was about to send the request */
	int64_t		begun_us;		/* the last time */
	int64_t		arrived_us;		/* at this machine: the bytes that were read last, when they were read late; 0: at once */
	bool		resend_refused;
	bool		answer_done;	/* the headers of the final answer are complete */
	long		line_status;	/* of the last status line */
	size_t		header_bytes;
	int			pieces;			/* in which its body came, so far */
	size_t		headers_size;	/* allocated */
	size_t		body_size;		/* allocated */
	const char *refused;		/* the reason why a callback gave up, or NULL */
	int64_t		send_by_us;		/* 0: none */
	int			sockets[SAS_REQUEST_SOCKETS];	/* the last that were opened for it; 0: none */
	int			local_port;		/* of its connection; 0: unknown */
	int			fd;				/* likewise, its socket */
	bool		unclean;		/* bytes without a request were on the kept connection */
	const char *denied_by;		/* the setting that forbids an address that was tried, or NULL */

	/* memory */
	SasTransport *transport;
	SasTransportShare *share;	/* NULL: it is not counted */
	size_t		held;			/* of the share */
	bool		starved;		/* paused until there is room, and time */

	/* its time is over, and what came in time is read */
	bool		overdue;
	int			reads_late;		/* so often */

	/* a stream */
	size_t		window;			/* 0: it is none */
	size_t		read;			/* bytes of the body that have been read */
	bool		websocket;
	SasUpgrade *upgrade;		/* NULL: libcurl has the connection */
	bool		paused;			/* the window is full, the socket is not read */
	bool		has_news;		/* in the list of streams with news */
	struct SasRequest *news_prev;
	struct SasRequest *news_next;
	struct SasRequestNews *news_list;
	int64_t		received_us;

	/* all hops */
	bool		sent;			/* bytes of a request may have been sent */
	SasReply   *reply;			/* there from the start: finishing needs no memory */
} SasRequest;

/* The calls in one state, in order. */
typedef struct SasRequestList
{
	SasRequest *head;
	SasRequest *tail;
	int			length;
} SasRequestList;

/* Of all transports of a process. */
typedef struct SasTransportMemory
{
	size_t		limit;			/* 0: none */
	size_t		held;
} SasTransportMemory;

struct SasTransport
{
	CURLM	   *multi;
	int			epoll_fd;
	int			joined[SAS_TRANSPORT_JOINED];		/* descriptors of other transports, for the owner's wait only; -1: none */
	int64_t		deadline_us;	/* of libcurl's timer; -1: none */
	int			max_calls;
	unsigned	networks;		/* generation of the networks that were asked about last */
	bool		lookup_left;	/* a call ended while its host was looked up */
	SasRequestList active;
	SasRequestList finished;	/* with small answers */
	SasRequestList large;		/* finished, with large ones */
	SasRequestList idle;
	SasRequestNews news;		/* streams with news; active or finished */
	SasTransportMemory own_memory;
	SasTransportMemory *memory; /* its own, or that of the transport it has joined */
	int			n_starved;
	uint64_t	turns;			/* large answers that were given */
	int64_t		work_until_us;	/* then what is large is not read on */
	int64_t		worked_us;		/* when the sockets were read last, all that were ready */
	bool		cut_short;		/* the time was over, and there may be more to read */
	int			n_overdue;		/* calls whose time is over, and whose answers are read */
	bool		late;			/* they were not read for a while until now */
	bool		behind;			/* and something was not */
	SasRequest *beyond;			/* the one that may read beyond the limit */
};

/* request.c */
extern bool sas_transport_request_load(SasRequest *r, const SasCall *call, char *errbuf, size_t errlen);
extern bool sas_transport_request_wears_out(void);
extern bool sas_transport_request_redirect(SasRequest *r, CURLcode code);
extern long sas_transport_request_left_ms(const SasRequest *r);
extern void sas_transport_request_unload(SasRequest *r);

/* files.c */
extern CURLcode sas_transport_request_set_files(SasRequest *r, const SasCall *call);

/* kept.c */
extern void sas_transport_kept_note(SasRequest *r, int fd);
extern bool sas_transport_kept_is_clean(SasRequest *r, int local_port, const char *remote_ip, int remote_port);
extern void sas_transport_kept_note_arrival(SasRequest *r);
extern void sas_transport_kept_note_http1(const SasRequest *r);
extern int	sas_transport_kept_socket(const SasRequest *r);
extern bool sas_transport_kept_again(SasRequest *r);

/* whole.c */
extern bool sas_transport_whole_has_clear_length(const SasReply *reply);
extern bool sas_transport_whole_is_cut(const SasRequest *r);

/* poll.c */
extern bool sas_transport_poll_set_up(SasTransport *t);
extern bool sas_transport_poll_once(SasTransport *t);

/* overdue.c */
extern void sas_transport_note_overdue(SasTransport *t);
extern void sas_transport_come_late(SasTransport *t);

/* finished.c */
extern void sas_transport_finish(SasTransport *t, SasRequest *r, CURLcode code);

/* transport.c */
extern void sas_transport_list_add(SasRequestList *list, SasRequest *r);
extern void sas_transport_list_remove(SasRequestList *list, SasRequest *r);
extern void sas_transport_give_back(SasTransport *t, SasRequest *r);
extern void sas_transport_block_signals(sigset_t *before);
extern void sas_transport_restore_signals(const sigset_t *before);
extern void sas_transport_detach(SasTransport *t, SasRequest *r, bool cut_short);
extern void sas_transport_collect(SasTransport *t);
extern void sas_transport_move_upgraded(SasTransport *t, SasRequest *r);

/* stream.c */
extern bool sas_transport_request_is_stream(const SasRequest *r);
extern void sas_transport_request_drop_read(SasRequest *r);
extern void sas_transport_request_note_news(SasRequest *r);
extern void sas_transport_request_forget_news(SasRequest *r);
extern size_t sas_transport_request_on_stream(SasRequest *r, const char *data, size_t len);
extern int	sas_transport_request_on_socket(void *arg, curl_socket_t fd, curlsocktype purpose);

/* upgrade.c */
extern bool sas_transport_upgrade_begin(SasRequest *r);
extern bool sas_transport_upgrade_move(SasRequest *r, CURLcode *code);
extern void sas_transport_upgrade_go_on(SasRequest *r);
extern void sas_transport_upgrade_leave(SasRequest *r);

/* memory.c */
extern void sas_transport_request_hold(SasRequest *r, ptrdiff_t bytes);
extern void sas_transport_request_release(SasRequest *r);
extern bool sas_transport_request_may_read(SasRequest *r, size_t bytes);
extern void sas_transport_feed(SasTransport *t);

/* reply.c */
extern bool sas_transport_request_reserve(char **buf, size_t *size, size_t used, size_t len);
extern size_t sas_transport_request_on_header(char *data, size_t size, size_t n, void *arg);
extern size_t sas_transport_request_on_body(char *data, size_t size, size_t n, void *arg);
extern int	sas_transport_request_before_send(void *arg, char *remote_ip, char *local_ip,
											  int remote_port, int local_port);
extern void sas_transport_request_note_sent(SasRequest *r);
extern void sas_transport_request_finish(SasRequest *r, CURLcode code);
extern int64_t sas_transport_now_us(void);

/* border.c */
extern curl_socket_t sas_transport_request_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address);
extern bool sas_transport_request_may_use(SasRequest *r, const char *ip);
extern bool sas_transport_request_may_go_on(SasRequest *r);

#endif							/* SAS_REQUEST_H */
