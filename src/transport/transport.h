/* SPDX-License-Identifier: PostgreSQL */
/*
 * transport.h
 *	  HTTP calls out, replies in, one pollable descriptor.
 *
 * The owner's loop is: sas_transport_start() for each new call; wait until
 * sas_transport_fd() is readable or sas_transport_timeout_ms() is over;
 * sas_transport_work(); then sas_transport_next() until it returns NULL.
 *
 *	  start -> [active: curl owns it] -> work -> [finished] -> next -> free
 *				  |								 |
 *				  +--------- stop_call ----------+	no reply is given
 *
 * A call with a window is a stream: its body is read as it arrives, with sas_transport_next_news()
 * and sas_transport_stream_...().  Unread bytes fill the window; then the connection is not read
 * until there is room, and TCP slows the service down.
 *
 * A handle is valid from start until next has returned its reply, or until
 * stop_call.  Nothing here throws, longjmps, or knows of PostgreSQL: memory
 * comes from malloc, failures are returned.  All signals are blocked while
 * libcurl runs, so that the threads it starts for name look-ups never run a
 * signal handler of the server.  The process must ignore SIGPIPE, as every
 * PostgreSQL process does.
 *
 * Nothing survives a crash or an exit of the process: the calls in flight
 * are in doubt, and their leases are in the state store.
 */
#ifndef SAS_TRANSPORT_H
#define SAS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* all headers of one answer, interim answers included */
#define SAS_TRANSPORT_MAX_HEADERS ((size_t) 256 * 1024)
#define SAS_TRANSPORT_MAX_REDIRECTS 5
#define SAS_TRANSPORT_ERROR_LEN 256

/* a finished reply with a larger body is a large one */
#define SAS_TRANSPORT_LARGE ((size_t) 64 * 1024)

typedef struct SasTransport SasTransport;

/* What calls that belong together take up of the memory; zero at first; it must live as long as they do. */
typedef struct SasTransportShare
{
	size_t		bytes;
	uint64_t	turn;			/* when the last large answer of a share that has this one as "all" was given */
	struct SasTransportShare *all;	/* what several shares have together; NULL: there are no others */
} SasTransportShare;

/*
 * What to send.  Strings and body are copied by sas_transport_start().
 *
 * The transport sets Content-Length, Transfer-Encoding and Expect: a call that contains one of
 * them is refused.  No User-Agent is sent unless it is among the headers.
 */
typedef struct SasCall
{
	const char *method;
	const char *url;
	const char *const *headers; /* "Name: value", no line ends */
	int			n_headers;
	const void *body;			/* NULL: no body */
	size_t		body_len;
	long		timeout_ms;		/* the whole call, redirects included; 0: none */
	int64_t		send_by_us;		/* CLOCK_MONOTONIC; no request begins after it; 0: none */
	long		connect_timeout_ms; /* 0: libcurl's five minutes */
	size_t		max_response;	/* bytes of body; one more is a broken reply */
	bool		http2;			/* offer HTTP/2 on https, else HTTP/1.1 */
	bool		follow_redirects;	/* same origin only, at or below the next, at most 5 */
	const char *below;			/* an address of that origin; NULL: no redirect is followed */
	const char *ca_file;		/* the only trusted authorities; NULL: the system's */
	const char *cert;			/* PEM file with client certificate and key */
	const char *proxy;			/* NULL: none, whatever the environment names */
	size_t		window;			/* bytes; > 0: a stream, if the answer is 2xx; in HTTP/1.1 */
	bool		websocket;		/* a stream that begins with status 101; its headers ask for that, and it has no body */
	SasTransportShare *share;	/* counts the bytes of request and answer; NULL: not counted */
	void	   *owner;			/* handed back in the reply */
} SasCall;

/*
 * NO_CONNECTION is a promise: not one byte of any request of this call was
 * handed to the network.  When in doubt it is BROKEN.
 */
typedef enum SasReplyKind
{
	SAS_REPLY_HTTP,				/* a whole answer with a final status */
	SAS_REPLY_NO_CONNECTION,	/* refused, no such host, TLS, connect time-out */
	SAS_REPLY_BROKEN			/* sent, and no usable answer */
} SasReplyKind;

typedef struct SasReply
{
	void	   *owner;
	SasReplyKind kind;

	/*
	 * From here to content_type: only for SAS_REPLY_HTTP, else 0 and NULL.
	 * A stream, however it ended, has its headers; what is unread is the body.
	 */
	bool		stream;			/* a 2xx or 101 answer to a call with a window; its head has come */
	long		status;
	char	   *headers;		/* "name\0value\0" n_headers times, in order, names
								 * lower-case, values as sent (any bytes but NUL) */
	size_t		headers_len;
	int			n_headers;
	char	   *body;			/* NUL behind the end; NULL when empty */
	size_t		body_len;
	const char *content_type;	/* within headers; NULL: none */

	/* a fragment without url, host or secret; empty for SAS_REPLY_HTTP */
	char		error[SAS_TRANSPORT_ERROR_LEN];
	bool		timed_out;		/* of a call with timeout_ms: it is over */
	bool		held_back;		/* a part of its body has waited for room, or for time, in this process */

	int64_t		started_us;		/* CLOCK_MONOTONIC */
	int64_t		first_byte_us;	/* of the last answer; 0: none came */
	int64_t		finished_us;
	const char *primary_ip;		/* NULL: never connected */
	bool		reused;			/* the last request reused a connection */
	int			redirects;		/* followed */
	char		ip[64];			/* storage of primary_ip */
} SasReply;

/*
 * Once per worker, after the fork.  NULL with a reason in errbuf.  Raises the
 * soft limit of open files as far as max_calls asks for and the hard limit
 * allows.
 */
extern SasTransport *sas_transport_open(int max_calls, char *errbuf, size_t errlen);

/* readable (level-triggered) when sas_transport_work() has something to do */
extern int	sas_transport_fd(SasTransport *t);

/*
 * When the other's descriptor is readable, t's is, too.  For an owner that
 * separates calls and streams, so that a call does not search the
 * connections of all streams for a free one, and that waits for one
 * descriptor.  The calls of both count against one limit, that of t, which
 * is closed last.  False: the kernel refused, or there are as many already.
 */
#define SAS_TRANSPORT_JOINED 3

/* other is closed first. */
extern bool sas_transport_join(SasTransport *t, SasTransport *other);

/* the longest wait before sas_transport_work(); -1: wait only for the fd */
extern long sas_transport_timeout_ms(SasTransport *t);

/* can it be the value of a header? */
extern bool sas_transport_is_header_value(const char *value);

/* can this be sent? false with a reason in errbuf: what sas_transport_start() would refuse */
extern bool sas_transport_call_check(const SasCall *call, char *errbuf, size_t errlen);

/*
 * Takes a call; the network is touched by the next sas_transport_work(), and
 * the times of the call begin to count here.  NULL with a reason in errbuf: a
 * url, method or header that cannot be sent, no memory, all max_calls in use.
 */
extern void *sas_transport_start(SasTransport *t, const SasCall *call,
								 char *errbuf, size_t errlen);

/* aborts a call, active or finished; no reply is given for it */
extern void sas_transport_stop_call(SasTransport *t, void *handle);

/* makes all possible progress; never blocks, and ends soon; true: more may be ready */
extern bool sas_transport_work(SasTransport *t);

/* Did the last work end before all sockets were read, because its time was over? */
extern bool sas_transport_was_cut_short(const SasTransport *t);

/* the next finished reply, small or large, in order of finishing, or NULL; next: small ones first */
extern SasReply *sas_transport_next_small(SasTransport *t);
extern SasReply *sas_transport_next_large(SasTransport *t);
extern SasReply *sas_transport_next(SasTransport *t);
extern void sas_transport_reply_free(SasReply *reply);

/*
 * The owner of a stream with news: its answer has begun, or there are bytes
 * to read.  Each is returned once until there is more; NULL: no other.
 */
extern void *sas_transport_next_news(SasTransport *t);

/*
 * the reply of a handle so far: whether it is a stream, and its headers; NULL: there is no answer
 * yet
 */
extern const SasReply *sas_transport_stream_head(void *handle);

/* what can be read; reading opens the window again */
extern size_t sas_transport_stream_bytes(void *handle, const char **bytes);
extern void sas_transport_stream_read(void *handle, size_t len);

/* makes unread bytes news again */
extern void sas_transport_stream_announce_again(void *handle);

/*
 * Sends over a stream that began with status 101, as soon as the connection
 * takes it.  False: the connection is broken, or too much waits already.
 */
extern bool sas_transport_stream_send(void *handle, const char *bytes, size_t len);

/* when bytes of the service last came, CLOCK_MONOTONIC; 0: never */
extern int64_t sas_transport_stream_received_us(void *handle);

/* the first value of a header (lower-case name), or NULL */
extern const char *sas_transport_reply_header(const SasReply *reply, const char *name);

/* how long the service asks to wait, a day at most; -1: it does not */
extern double sas_transport_retry_after_ms(const SasReply *reply);

/* will sas_transport_next_small() or ..._large() return one? */
extern bool sas_transport_has_small(const SasTransport *t);
extern bool sas_transport_has_large(const SasTransport *t);

/* has this call finished? Its reply was not given yet. */
extern bool sas_transport_is_finished(const void *handle);

/*
 * may bytes of a request of this call have been sent? If not, it can be stopped as if it had not
 * been started.
 */
extern bool sas_transport_may_have_sent(const void *handle);

/* when libcurl began to send the request last; 0: it has not begun */
extern int64_t sas_transport_begun_us(const void *handle);

/*
 * Memory of calls with a share. limit: bytes for all of them, 0: none.
 * hold: the owner keeps so many bytes more (or less) for the share.
 * has_room: may the share have so many bytes more?
 */
extern void sas_transport_limit_memory(SasTransport *t, size_t limit);
extern size_t sas_transport_held(const SasTransport *t);
extern bool sas_transport_is_starved(const SasTransport *t); /* answers wait for room */
extern void sas_transport_hold(SasTransport *t, SasTransportShare *share, ptrdiff_t bytes);
extern bool sas_transport_has_room(const SasTransport *t, const SasTransportShare *share, size_t bytes);

/*
 * Memory for frequent large copies in this process: from now on freed large pieces are reused, not
 * returned to the system; or as before. release: returns free memory now.
 */
extern void sas_transport_reuse_memory(bool reuse);
extern void sas_transport_release_memory(void);

/* calls beyond a smaller limit continue; only new ones are refused */
extern void sas_transport_resize(SasTransport *t, int max_calls);

/*
 * At exit of the process.  With pending calls (or name look-ups of stopped
 * calls) it does not free libcurl's memory, because newer libcurl waits for
 * its threads in curl_multi_cleanup().
 */
extern void sas_transport_close(SasTransport *t);

#endif							/* SAS_TRANSPORT_H */
