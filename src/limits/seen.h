/* SPDX-License-Identifier: PostgreSQL */
/*
 * seen.h: which transactions the last count of a database has seen.
 *
 * A transaction ends for others a moment before its callback comes.  A count
 * that is made in that moment has seen what it did, so the callback must not
 * add it again.
 */
#ifndef SAS_LIMITS_SEEN_H
#define SAS_LIMITS_SEEN_H

#include "access/transam.h"
#include "utils/snapshot.h"

/* Nothing is noted while more transactions that write run at the same time. */
#define SAS_SEEN_RUNNING 1024

/* A note matters for moments, so a few are enough for all databases. */
#define SAS_SEEN_DATABASES 8

typedef struct SasLimitsSeenNote
{
	Oid			dboid;
	TransactionId xmin;			/* all before have ended */
	uint64		next;			/* from there on nothing was seen */
	int			n_running;
	TransactionId running[SAS_SEEN_RUNNING + 1];
} SasLimitsSeenNote;

/* In shared memory. All zero: nothing was seen. */
typedef struct SasLimitsSeen
{
	SasLimitsSeenNote notes[SAS_SEEN_DATABASES];
} SasLimitsSeen;

/* The snapshot of now, by which this transaction counts. False: it cannot be noted. */
extern bool sas_limits_seen_note(SasLimitsSeen *seen, const SnapshotData *snapshot);

/* Has the last count seen what this transaction did, which has committed? */
extern bool sas_limits_seen_own(const SasLimitsSeen *seen);

#endif							/* SAS_LIMITS_SEEN_H */
