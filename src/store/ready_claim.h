/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_claim.h: the rows of _sas.ready that a claim takes.
 *
 * A role may have a million rows there that no claim can take: one of its
 * transactions is deleting or inserting them, and has not ended.  A claim
 * passes only so many of them.  The next one continues where it stopped, so
 * that the rows of others are claimed in between, and those behind it, too.
 */
#ifndef SAS_STORE_READY_CLAIM_H
#define SAS_STORE_READY_CLAIM_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/tuplestore.h"

/* Up to share rows of an owner in a lane, from the mark on. */
typedef struct SasReadyShare
{
	int			lane;
	Oid			owner;
	int			share;
	TimestampTz mark;
} SasReadyShare;

/* Which rows are taken, and what is locked with them. */
typedef struct SasReadyRules
{
	bool		locks_runs;		/* FOR SHARE, before the row; a row whose run is locked is passed */
	const int64 *left_out;		/* runs whose rows are passed, in order */
	int			n_left_out;
	Tuplestorestate *rows;		/* the rows are deleted, and put there; NULL: they are only locked */
} SasReadyRules;

/*
 * Locks, or deletes, rows of _sas.ready for a claim, without waiting, in the order of the
 * shares and then of the ranks.  Returns how many; *places is palloc'd.  A
 * function that must run alone is locked only if it is the first row, and
 * then it is the only one.
 */
extern int	sas_store_lock_ready(const SasReadyShare *shares, int n, const SasReadyRules *rules, ItemPointerData **places);

/*
 * A worker, or a session, is about to claim.  woken: how often it has been
 * woken by now; it may have been for rows that it has passed.
 */
extern void sas_store_ready_begin(uint32 woken);

/*
 * Did a scan for the last claim in this lane stop before it knew all rows?
 * Then the next claim continues there, and should come at once.
 */
extern bool sas_store_ready_was_cut(int lane);

/* In any lane? */
extern bool sas_store_ready_any_cut(void);

/*
 * Did the last claim, which asked for that many rows, come to the end of the
 * rows of every owner in line?  Then it has left none but those that others
 * have locked, and whatever comes is announced.
 */
extern bool sas_store_ready_was_emptied(int quantity);

#endif							/* SAS_STORE_READY_CLAIM_H */
