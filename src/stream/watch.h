/* SPDX-License-Identifier: PostgreSQL */
/*
 * watch.h: one watch that this worker hosts, from its claim until it is
 * given away.
 *
 *	  claimed -> [request] -> connected -> opened -> over -> reported -> [pause] -> asks for its request -> ...
 *								 |		   |
 *								 +- items -+-> batch -> appended, with the cursor, in one commit
 *
 *	  hosted.c		which watches are hosted, in which line, timers
 *	  report.c		what is reported to the store; apply.c: what it answers
 *	  host.c		the network of all of them
 *	  connection.c	connections: how they begin, are read, and end
 *	  polls.c		answers to polls
 *	  websocket.c	what is particular to those over WebSocket
 *	  items.c		bytes of a connection become the items of a batch
 *
 * None of it survives the worker, and none of it has to: the store has the
 * cursor of the last batch, and what came after is requested again.
 */
#ifndef SAS_STREAM_WATCH_H
#define SAS_STREAM_WATCH_H

#include "framing/framer.h"
#include "store/watches.h"
#include "work/request.h"
#include "work/room.h"

typedef enum SasWatchKind
{
	SAS_WATCH_SSE,
	SAS_WATCH_LINES,
	SAS_WATCH_WEBSOCKET,
	SAS_WATCH_LONG_POLL,
	SAS_WATCH_POLL
} SasWatchKind;

/* The line in which a watch waits. */
typedef enum SasWatchLine
{
	SAS_LINE_NONE,
	SAS_LINE_READY,				/* to connect */
	SAS_LINE_DUE,				/* has a report for the store */
	SAS_LINE_LOCKED				/* the same, but in a moment: another transaction holds its row */
} SasWatchLine;

typedef struct SasWatch
{
	SasWatchId	id;				/* watch_id is the hash key, and comes first */
	int			agent_id;
	Oid			owner;
	SasWatchKind kind;
	SasWatchLine line;
	dlist_node	node;			/* in that line */
	pairingheap_node timer;
	int64		wake_us;		/* 0: not among the timers */

	Jsonb	   *request;		/* NULL: to be asked for before the next connection */
	SasTransportShare *memory;	/* that a large request, a poll and what it was answered count in; NULL: there is none */
	size_t		held;			/* of the request */
	size_t		put_away;		/* bytes of a large one that was dropped until it is needed; 0: none was */
	char	   *cursor;			/* goes out as Last-Event-ID, or NULL */
	List	   *secrets;		/* of its agent, that the last connection was made with */
	char	   *hello;			/* the first message over a WebSocket, or NULL */
	char	   *ws_key;			/* of its handshake */
	char	   *ws_protocols;	/* that it offers, or NULL */
	bool		pinged;			/* and nothing has come since */
	double		idle_ms;		/* 0: none */
	double		every_ms;
	double		timeout_ms;		/* 0: the agent's */
	TimestampTz next_at;		/* of a poll with a schedule: not before; DT_NOEND: it has none */
	bool		looked;			/* it has made the poll that was due */
	char	   *etag;			/* of a poll, in memory only */
	char	   *digest;			/* of what a poll passed on last */

	void	   *handle;			/* NULL: no connection; that of a poll counts in memory */
	bool		opened;			/* the answer is a stream */
	bool		has_slot;
	bool		deferred;			/* until its agent is enabled, or its access token is there */
	bool		has_token;		/* the last connection was made with an access token, the last of its secrets */
	int64		begun_us;
	SasFramer  *framer;
	size_t		buffered;		/* of it, as items.c has counted it */
	int			room;			/* items that may be appended before the window closes */

	/* items that are not stored yet */
	MemoryContext batch;		/* NULL: nothing */
	JsonbParseState *items;
	Jsonb	   *built;			/* the same, once it has been sent */
	int			n_items;
	size_t		bytes;
	size_t		answered;		/* of the answers to polls in it, which count in memory */
	char	   *new_digest;		/* in batch */
	char	   *new_cursor;		/* in batch; the cursor of a connection that is over */
	int			tries;			/* transactions that aborted with it */
	bool		locked;			/* the store took nothing: another transaction has locked its row */

	/* what is to be reported */
	bool		report;			/* the connection has ended; error NULL: cleanly */
	Jsonb	   *error;
	double		at_least_ms;
	bool		ask;			/* for the next request */
	bool		release;
} SasWatch;

/* hosted.c, host.c */
extern MemoryContext sas_stream_context;
extern SasTransport *sas_stream_streams;
extern SasTransport *sas_stream_polls;

/* Puts the watch into that line. A watch that is due, or locked, does not become ready before it has reported. */
extern void sas_stream_watch_set_line(SasWatch *w, SasWatchLine line);

/* Then it connects, asks for its request, or its connection has timed out. 0: never */
extern void sas_stream_watch_set_timer(SasWatch *w, int64 wake_us);

/*
 * The connection is over, or never began; this is to be reported to the store.
 * error NULL: in good order.
 */
extern void sas_stream_watch_report(SasWatch *w, Jsonb *error, double at_least_ms);

/*
 * Waits until its schedule allows the next poll; false: that is now. It checks
 * once a minute, since clocks jump.
 */
extern bool sas_stream_watch_rest(SasWatch *w);

/* There is no room in memory for its poll, or for its request: it tries again later. */
extern void sas_stream_watch_wait_for_room(SasWatch *w);

/* A problem object about the watch. */
extern Jsonb *sas_stream_watch_problem(const SasWatch *w, const char *kind, const char *title, const char *detail);

/* connection.c */
extern void sas_stream_watch_connect(SasWatch *w);
extern void sas_stream_watch_close(SasWatch *w);

/* Reads what can be read now, as far as the batch has room. */
extern void sas_stream_watch_read(SasWatch *w);

/* The call of the watch is over. */
extern void sas_stream_watch_finish(SasWatch *w, SasReply *reply);

/* The timer of the watch fires while it is connected. */
extern void sas_stream_watch_timed_out(SasWatch *w);

/* polls.c */

/* A poll was answered: has the body changed? */
extern void sas_stream_poll_finish(SasWatch *w, SasReply *reply, const SasStoredAgent *agent);

/* A long poll was answered, or not in time, which means that there is nothing. */
extern void sas_stream_long_poll_finish(SasWatch *w, SasReply *reply, const SasStoredAgent *agent);

/* websocket.c */

/* Makes the call one that asks for a WebSocket: its body is the first message. */
extern void sas_stream_websocket_prepare(SasWatch *w, SasCall *call);

/*
 * Returns NULL when the answer has made the connection a WebSocket and the
 * first message is on its way, else why not.
 */
extern const char *sas_stream_websocket_begin(SasWatch *w, const SasReply *head);

/* Sends the frames that the framer wants to send; false: the service does not take them. */
extern bool sas_stream_websocket_flush(SasWatch *w);

/* Has the service closed it? *problem: and why that is a failure, or NULL. */
extern bool sas_stream_websocket_closed(SasWatch *w, const SasStoredAgent *masking, const char **problem);

/* Sends a ping. */
extern bool sas_stream_websocket_ping(SasWatch *w);

/* Sends a close frame. */
extern void sas_stream_websocket_leave(SasWatch *w);

/* items.c */

/* The framer of a stream; false: no memory. */
extern bool sas_stream_items_open(SasWatch *w, const SasStoredAgent *agent);
extern void sas_stream_items_close(SasWatch *w);

/* May another item be taken into the batch? */
extern bool sas_stream_items_room(const SasWatch *w);

/*
 * Reads bytes of a stream; all: even if the batch is full. Returns how many were used; *why: the
 * stream has failed.
 */
extern size_t sas_stream_items_feed(SasWatch *w, const SasStoredAgent *agent, const char *bytes, size_t len, bool all, const char **why);

/* The answer to a poll, as of a call; to a long poll, its body. */
extern void sas_stream_items_answer(SasWatch *w, const SasReply *reply, const SasStoredAgent *agent);

/* The event id that the batch ends with; empty: the service has taken it back; NULL: there was none. */
extern const char *sas_stream_items_cursor(const SasWatch *w);

/* The batch as one array. */
extern Jsonb *sas_stream_items_build(SasWatch *w);
extern void sas_stream_items_drop(SasWatch *w);

/* All watches: for agent.c */
extern void sas_stream_open(SasTransport *calls, int capacity);
extern void sas_stream_close(void);

/* The agents were read again. */
extern void sas_stream_agents_changed(void);

/* Moves the network; true: there is more to do at once. */
extern bool sas_stream_move(void);

/* Reports to the store what is due, and asks it for more; one transaction, if any. True: there is more. */
extern bool sas_stream_tick(void);
extern int64 sas_stream_wake_in_ms(void);

/* Answers to polls are read on when there is room. */
extern bool sas_stream_is_starved(void);

#endif							/* SAS_STREAM_WATCH_H */
