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
	dlist_head	ready;			/* to be begun */
	dlist_head	due;			/* with something for the store */
	dlist_head	locked;			/* likewise, from locked_until_us on */
	int64		locked_until_us;
	int			locked_pause_ms;	/* grows while rows stay locked */
} SasHosted;

extern SasHosted sas_stream_hosted;

extern void sas_stream_hosted_open(int capacity);

/* NULL: not hosted, or in another epoch. */
extern SasWatch *sas_stream_hosted_find(const SasWatchId *id);

/* The store answered that other transactions hold the rows of these watches, or of none: reported again after a pause. */
extern void sas_stream_hosted_set_locked(void);

/* Their pause is over: they are due. */
extern void sas_stream_hosted_end_pause(int64 now_us);

/* Not hosted any longer. */
extern void sas_stream_hosted_forget(SasWatch *w);

/* Closes its connection, if any, and asks for its request again; what the connection brought stays. */
extern void sas_stream_hosted_ask_again(SasWatch *w);
extern void sas_stream_hosted_drop_request(SasWatch *w);

/* A text of a watch: *text becomes a copy, or NULL. */
extern void sas_stream_hosted_replace(char **text, const char *with);

#endif							/* SAS_STREAM_HOSTED_H */
