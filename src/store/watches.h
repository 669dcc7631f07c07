/* SPDX-License-Identifier: PostgreSQL */
/*
 * watches.h: what a node asks of the state store for the watches it hosts.
 *
 * A watch is hosted under its epoch, which counts up with every claim.  The
 * answer "fenced" means that another node hosts it, or none, and that
 * nothing was taken.  All calls are made between sas_store_begin() and
 * sas_store_commit().
 */
#ifndef SAS_STORE_WATCHES_H
#define SAS_STORE_WATCHES_H

#include "store/store.h"

typedef struct SasWatchId
{
	int64		watch_id;
	int64		epoch;
} SasWatchId;

/* What a watch does next, of _claim_watches and _watch_requests. */
typedef struct SasWatchRequest
{
	SasWatchId	id;
	int			agent_id;
	Oid			owner;
	char	   *kind;			/* stream, poll */
	Jsonb	   *request;		/* NULL: see problem; without one it is not built yet, ask again */
	Jsonb	   *cursor;			/* NULL: none */
	char	   *digest;			/* of a poll: what was passed on last; NULL: nothing yet */
	int			room;			/* items that may be appended before the window closes */
	double		wait_ms;
	Jsonb	   *problem;
	TimestampTz next_at;		/* when its schedule lets it look again; DT_NOEND: it has no schedule */
} SasWatchRequest;

/* Registers this process as a node; capacity: how many watches it can host. */
extern int64 sas_store_register_node(int capacity);

/* Up to quantity watches that wait for a node. Lists of SasWatchRequest. */
extern List *sas_store_claim_watches(int64 node_id, int quantity);

typedef struct SasWatchAsk
{
	SasWatchId	id;
	bool		looked;			/* it has made the poll that was due */
} SasWatchAsk;

/* The same rows for hosted watches. A watch that is no longer hosted here is missing. */
extern List *sas_store_watch_requests(int64 node_id, const SasWatchAsk *asked, int n);

/* The store's answer to a batch or a failure. */
typedef enum SasWatchAnswer
{
	SAS_WATCH_FENCED,			/* not hosted here any longer: forget it, report nothing */
	SAS_WATCH_LOCKED,			/* another transaction holds its row, nothing was taken: report it again in a moment */
	SAS_WATCH_GO,				/* ok, retry */
	SAS_WATCH_CUT,				/* the end of the batch was not taken: begin again, as after a failure */
	SAS_WATCH_STOP,				/* end it and release it */
	SAS_WATCH_FAILED			/* given up: forget it */
} SasWatchAnswer;

typedef struct SasWatchVerdict
{
	SasWatchId	id;
	SasWatchAnswer answer;
	int			room;			/* to a batch */
	double		pause_ms;		/* to a failure */
} SasWatchVerdict;

/* Items of one watch, and its cursor after them. */
typedef struct SasWatchBatch
{
	SasWatchId	id;
	Jsonb	   *items;			/* an array */
	const char *cursor;			/* NULL: left to the definition */
	const char *digest;			/* NULL: as before */
} SasWatchBatch;

/* Lists of SasWatchVerdict. */
extern List *sas_store_append_items(int64 node_id, const SasWatchBatch *batches, int n);

typedef struct SasWatchFailure
{
	SasWatchId	id;
	Jsonb	   *error;			/* NULL: ended in good order */
	double		at_least_ms;	/* -1: the service asked for no pause */
} SasWatchFailure;

/* Tasks have ended with these failures: a list of SasWatchVerdict. */
extern List *sas_store_fail_watches(int64 node_id, const SasWatchFailure *failures, int n);

/* News for this node, each given once: lists of SasWatchNews. */
typedef struct SasWatchNews
{
	SasWatchId	id;
	char		news;			/* s: stop, r: reload, o: the window is open again, f: fenced */
	int			room;
} SasWatchNews;

/* At most about so many. */
extern List *sas_store_node_news(int64 node_id, int quantity);

/* Returns those that are still hosted here, since another transaction holds their rows: a list of SasWatchId *. */
extern List *sas_store_release_watches(int64 node_id, const SasWatchId *ids, int n);

#endif							/* SAS_STORE_WATCHES_H */
