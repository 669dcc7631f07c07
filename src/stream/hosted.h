/* SPDX-License-Identifier: PostgreSQL */
/*
 * hosted.h: the watches that this worker holds; for host.c, report.c, apply.c.
 */
#ifndef SAS_STREAM_HOSTED_H
#define SAS_STREAM_HOSTED_H

#include "stream/watch.h"
#include "utils/hsearch.h"

typedef struct SasHosted
{
	HTAB	   *watches;		/* of SasWatch, by watch_id */
	int			capacity;		/* watches that it may hold */
	pairingheap *by_time;
	dlist_head	ready;			/* to be begun */
	dlist_head	due;			/* with something for the store */
} SasHosted;

extern SasHosted sas_stream_hosted;

extern void sas_stream_hosted_open(int capacity);

/* NULL: not held, or in another epoch. */
extern SasWatch *sas_stream_hosted_find(const SasWatchId *id);

/* Held no more. */
extern void sas_stream_hosted_forget(SasWatch *w);

/* Its connection, if any, is of no use any more; what it brought is kept. */
extern void sas_stream_hosted_ask_again(SasWatch *w);
extern void sas_stream_hosted_drop_request(SasWatch *w);

/* A text of a watch: *text becomes a copy, or NULL. */
extern void sas_stream_hosted_replace(char **text, const char *with);

#endif							/* SAS_STREAM_HOSTED_H */
