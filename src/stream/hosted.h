/* SPDX-License-Identifier: PostgreSQL */
/*
 * hosted.h: the watches that this worker hosts; for host.c, report.c,
 * apply.c.
 */
#ifndef SAS_STREAM_HOSTED_H
#define SAS_STREAM_HOSTED_H

#include "stream/watch.h"
#include "utils/hsearch.h"

typedef struct SasHosted
{
	HTAB	   *watches;		/* of SasWatch, by watch_id */
	int			capacity;		/* watches that it may host */
	pairingheap *by_time;
	dlist_head	ready;			/* to connect */
	dlist_head	due;			/* with a report for the store */
	dlist_head	locked;			/* the same, but not before locked_until_us */
	int64		locked_until_us;
	int			locked_pause_ms;	/* grows while rows stay locked */
} SasHosted;

extern SasHosted sas_stream_hosted;

/* Once in an agent worker: room for that many watches. */
extern void sas_stream_hosted_open(int capacity);

/* NULL: not hosted, or in another epoch. */
extern SasWatch *sas_stream_hosted_find(const SasWatchId *id);

/*
 * Updates the pause after the store has answered which watches have locked
 * rows; they are reported again after it.
 */
extern void sas_stream_hosted_set_locked(void);

/* When that pause is over, the watches with locked rows are due again. */
extern void sas_stream_hosted_end_pause(int64 now_us);

/* It connects, if it may: it has a request, and waits for nothing. */
extern void sas_stream_hosted_continue(SasWatch *w);

/* No longer hosted. */
extern void sas_stream_hosted_forget(SasWatch *w);

/* Closes its connection, if any, and asks for its request again; the received items stay. */
extern void sas_stream_hosted_ask_again(SasWatch *w);

/* Keeps a copy of its request until it is dropped; of a large one, only if there is room.  False: there is none. */
extern bool sas_stream_hosted_keep_request(SasWatch *w, Jsonb *request);
extern void sas_stream_hosted_drop_request(SasWatch *w);

/* It needs its request only later: a large one is dropped, and asked for again. */
extern void sas_stream_hosted_put_away(SasWatch *w);

/* A poll of it begins: the share that it counts in.  over: it is over, and so for anything else that counts. */
extern SasTransportShare *sas_stream_hosted_enter(SasWatch *w);
extern void sas_stream_hosted_leave(SasWatch *w);

/* A text of a watch: *text becomes a copy, or NULL. */
extern void sas_stream_hosted_replace(char **text, const char *with);

#endif							/* SAS_STREAM_HOSTED_H */
