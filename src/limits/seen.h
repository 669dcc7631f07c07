/* SPDX-License-Identifier: PostgreSQL */
/*
 * seen.h: which transactions a count has seen.
 *
 * A transaction ends for others a moment before its callback comes.  A count
 * that is made in that moment has seen what it did, so the callback must not
 * add it again.
 */
#ifndef SAS_LIMITS_SEEN_H
#define SAS_LIMITS_SEEN_H

#include "access/transam.h"
#include "utils/snapshot.h"

/* Of more transactions that run at the same time it is not known. */
#define SAS_SEEN_RUNNING 128

/* In shared memory. All zero: nothing was seen. */
typedef struct SasLimitsSeen
{
	uint64		next;			/* from there on nothing was seen */
	TransactionId xmin;			/* all before have ended */
	int			n_running;		/* -1: too many */
	TransactionId running[SAS_SEEN_RUNNING];
} SasLimitsSeen;

extern void sas_limits_seen_note(SasLimitsSeen *seen, const SnapshotData *snapshot);

/* Has it seen what this transaction did, which has committed?  False: no, or it is not known. */
extern bool sas_limits_seen_own(const SasLimitsSeen *seen);

#endif							/* SAS_LIMITS_SEEN_H */
