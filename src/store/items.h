/* SPDX-License-Identifier: PostgreSQL */
/*
 * items.h: what function workers ask of the state store for infinite tasks:
 * the items of their inboxes, and the iterations of functions that are
 * repeated for ever.
 */
#ifndef SAS_STORE_ITEMS_H
#define SAS_STORE_ITEMS_H

#include "store/store.h"
#include "store/watches.h"
#include "utils/array.h"

/* The inbox of one task, claimed. */
typedef struct SasClaimedItems
{
	int64		watch_id;
	pg_uuid_t	request_id;
	Oid			owner;
	char	   *watcher;
	char	   *key;
	bool		isolated;		/* not together with others */
	double		window_ms;
	char	   *target_kind;	/* function, table, workflow */
	char	   *target;
	Jsonb	   *items;			/* an array */
	ArrayType  *keys;			/* of runs, text[]; NULL: none */
	int64		up_to;			/* the last batch; 0: the inbox is empty */
	Jsonb	   *problem;		/* they could not be brought into their shape */
} SasClaimedItems;

/* Allocated in that context. */
extern List *sas_store_claim_items(MemoryContext context, int quantity);

/* Which of these claims are valid; nothing is locked. */
extern bool *sas_store_valid_items(SasClaimedItems *const *items, int n);

typedef struct SasItemsDone
{
	const SasClaimedItems *items;
	Jsonb	   *error;			/* NULL: done */
	bool		again;			/* nothing is counted, and they come again, without others */
	bool		worked;			/* the target was written to, in this transaction */
	char		claim;			/* the answer: 'h' it is valid, 'l' another transaction holds its row, 'x' it is lost */
} SasItemsDone;

/*
 * Fills in the answers, and writes what was done under valid claims.  False:
 * nothing is written, since one that worked has no valid claim: what the
 * targets got is to be undone.
 */
extern bool sas_store_write_items(SasItemsDone *done, int n);

/* As the current user, with its rights. */
extern void sas_store_insert_items(const SasClaimedItems *items);
extern void sas_store_submit_items(const SasClaimedItems *items);

/* The arguments of a function that is called again and again. */
typedef struct SasIteration
{
	Oid			owner;
	char	   *function;
	Jsonb	   *input;			/* watcher, key, input, cursor */
	Jsonb	   *cursor;			/* NULL: none */
	double		every_ms;
	double		timeout_ms;
	bool		stop;			/* the task is to be given back instead */
	bool		suspect;		/* it is to be noted before it is called */
	bool		noted;			/* it was */
	TimestampTz next_at;		/* it has a schedule, and is not called before; DT_NOEND: it has none */
} SasIteration;

/* False: the task is not hosted here any longer. */
extern bool sas_store_begin_iteration(int64 node_id, const SasWatchId *id, SasIteration *iteration);

/* The function is called next: if the worker dies, this function is blamed. False: nothing is noted, as below. */
extern bool sas_store_note_iteration(int64 node_id, const SasWatchId *id);

/*
 * The function returned this cursor, NULL: unchanged.  False: the task is not
 * hosted here any longer, or another transaction holds its row; what the
 * function wrote is to be undone.
 */
extern bool sas_store_end_iteration(int64 node_id, const SasWatchId *id, Jsonb *cursor);

/*
 * The function of this task took long: all other tasks may go to another
 * worker.  Returns how many did, and their watch_ids in *gone.
 */
extern int	sas_store_make_way(int64 node_id, int64 watch_id, int64 **gone);

#endif							/* SAS_STORE_ITEMS_H */
