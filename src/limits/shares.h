/* SPDX-License-Identifier: PostgreSQL */
/*
 * shares.h: what each role has open, and how much it may have.
 *
 * Shared memory has an entry for each role that owns open runs or infinite
 * tasks: the number of runs, that of the child runs among them, the bytes of
 * their inputs, and the number of tasks that are not deleted.  What a
 * transaction opens counts at once, so that sessions which submit at the same
 * moment do not pass a limit together; an abort takes it back.  What it ends
 * counts when it has committed.  The supervisor counts the rows after a start
 * and when it may be wrong: see below.
 *
 * There is room for sas.max_owners entries of all databases.  A role without
 * an entry is not limited; an alert says that the table fills.
 */
#ifndef SAS_LIMITS_SHARES_H
#define SAS_LIMITS_SHARES_H

#include "utils/snapshot.h"

typedef enum SasShareKind
{
	SAS_SHARE_OPEN_RUNS,
	SAS_SHARE_CHILDREN,
	SAS_SHARE_BYTES,
	SAS_SHARE_WATCHES
} SasShareKind;

#define SAS_SHARE_KINDS (SAS_SHARE_WATCHES + 1)

/* The limits of a role, as read from the table of that generation. */
typedef struct SasShareLimits
{
	int64		generation;
	int64		most[SAS_SHARE_KINDS];
	int64		submits_per_s;
} SasShareLimits;

typedef enum SasShareAnswer
{
	SAS_SHARE_TAKEN,
	SAS_SHARE_UNKNOWN,			/* the limits of the role have to be read */
	SAS_SHARE_OVER,				/* one of most[] */
	SAS_SHARE_TOO_FAST			/* submits from within runs */
} SasShareAnswer;

/* A function of a user runs in this worker; until the transaction ends, its submits have a rate. */
extern bool sas_limits_share_in_run;

/* In _PG_init: shared memory, and callbacks of transactions. */
extern void sas_limits_shares_install(void);

/*
 * The owner opens this much more, in this transaction.  limits NULL: the
 * limits in shared memory, if they are current.  check false: the limits do
 * not apply.  SAS_SHARE_OVER: *over says which limit would be passed, *used
 * how much the owner has without it.
 */
extern SasShareAnswer sas_limits_share_take(Oid owner, const int64 *more, const SasShareLimits *limits, bool check,
											SasShareKind *over, int64 *used);

/* The same for the rate of submits from within runs: n more; false: later. submits_per_s 0: as in shared memory. */
extern bool sas_limits_share_submit(Oid owner, int64 n, int64 submits_per_s);

/* The owner has this much less, once this transaction has committed. */
extern void sas_limits_share_give(Oid owner, const int64 *less);

/* This transaction changes what roles have in another way: what is counted is wrong when it has ended. */
extern void sas_limits_share_doubt(void);

/* Which generation of limits is current; forget begins another when this transaction ends. */
extern int64 sas_limits_share_generation(void);
extern void sas_limits_share_forget(void);

/* What changes what roles have, and does not say how. */
typedef enum SasShareNote
{
	SAS_SHARE_DOUBT,			/* a dump was restored */
	SAS_SHARE_PREPARED,			/* there are prepared transactions that have opened or ended something */
	SAS_SHARE_PREPARED_ENDED	/* a prepared transaction was committed or rolled back */
} SasShareNote;

/* Counts are in doubt for that reason, or no longer. */
extern void sas_limits_share_note(SasShareNote what);

typedef struct SasShareView
{
	Oid			owner;
	int64		used[SAS_SHARE_KINDS];
} SasShareView;

/* The owners of this database, palloc'd; returns how many. */
extern int	sas_limits_share_view(SasShareView **views);

/*
 * A count of the rows.  begin returns its number, and the snapshot by which
 * they are to be counted; 0: it cannot be noted.  end sets what was counted.
 * Of two counts at the same time, that which began last counts.
 */
extern int64 sas_limits_share_begin_count(Snapshot *snapshot);
extern void sas_limits_share_end_count(int64 count, const SasShareView *views, int n);

/* How long ago all owners of this database were counted; -1: not since the start. doubtful: it may be wrong. */
extern int64 sas_limits_share_counted_us_ago(bool *doubtful);

#endif							/* SAS_LIMITS_SHARES_H */
