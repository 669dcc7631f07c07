/* SPDX-License-Identifier: PostgreSQL */
/*
 * quotas.h: what each role has open, and how much it may have.
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
#ifndef SAS_LIMITS_QUOTAS_H
#define SAS_LIMITS_QUOTAS_H

#include "utils/snapshot.h"

typedef enum SasQuotaKind
{
	SAS_QUOTA_OPEN_RUNS,
	SAS_QUOTA_CHILDREN,
	SAS_QUOTA_BYTES,
	SAS_QUOTA_WATCHES
} SasQuotaKind;

#define SAS_QUOTA_KINDS (SAS_QUOTA_WATCHES + 1)

/* The limits of a role, as read from the table of that generation. */
typedef struct SasQuotaLimits
{
	int64		generation;
	int64		most[SAS_QUOTA_KINDS];
	int64		submits_per_s;
} SasQuotaLimits;

typedef enum SasQuotaAnswer
{
	SAS_QUOTA_TAKEN,
	SAS_QUOTA_UNKNOWN,			/* the limits of the role have to be read */
	SAS_QUOTA_OVER,				/* one of most[] */
	SAS_QUOTA_TOO_FAST			/* submits from within runs */
} SasQuotaAnswer;

/* A function of a user runs in this worker; until the transaction ends, its submits have a rate. */
extern bool sas_limits_quota_in_run;

/* In _PG_init: shared memory, and callbacks of transactions. */
extern void sas_limits_quotas_install(void);

/*
 * The owner opens this much more, in this transaction.  limits NULL: the
 * limits in shared memory, if they are current.  check false: the limits do
 * not apply.  SAS_QUOTA_OVER: *over says which limit would be passed, *used
 * how much the owner has without it.
 */
extern SasQuotaAnswer sas_limits_quota_take(Oid owner, const int64 *more, const SasQuotaLimits *limits, bool check,
											SasQuotaKind *over, int64 *used);

/* The same for the rate of submits from within runs: n more; false: later. submits_per_s 0: as in shared memory. */
extern bool sas_limits_quota_submit(Oid owner, int64 n, int64 submits_per_s);

/* The owner has this much less, once this transaction has committed. */
extern void sas_limits_quota_give(Oid owner, const int64 *less);

/* This transaction changes what roles have in another way: what is counted is wrong when it has ended. */
extern void sas_limits_quota_doubt(void);

/* Which generation of limits is current; forget begins another when this transaction ends. */
extern int64 sas_limits_quota_generation(void);
extern void sas_limits_quota_forget(void);

/* What changes what roles have, and does not say how. */
typedef enum SasQuotaNote
{
	SAS_QUOTA_DOUBT,			/* a dump was restored */
	SAS_QUOTA_PREPARED,			/* there are prepared transactions that have opened or ended something */
	SAS_QUOTA_PREPARED_ENDED	/* a prepared transaction was committed or rolled back */
} SasQuotaNote;

/* Counts are in doubt for that reason, or no longer. */
extern void sas_limits_quota_note(SasQuotaNote what);

typedef struct SasQuotaView
{
	Oid			owner;
	int64		used[SAS_QUOTA_KINDS];
} SasQuotaView;

/* The owners of this database, palloc'd; returns how many. */
extern int	sas_limits_quota_view(SasQuotaView **views);

/*
 * A count of the rows.  begin returns its number, and the snapshot by which
 * they are to be counted; 0: it cannot be noted.  end sets what was counted.
 * Of two counts at the same time, that which began last counts.
 */
extern int64 sas_limits_quota_begin_count(Snapshot *snapshot);
extern void sas_limits_quota_end_count(int64 count, const SasQuotaView *views, int n);

/* How long ago all owners of this database were counted; -1: not since the start. doubtful: it may be wrong. */
extern int64 sas_limits_quota_counted_us_ago(bool *doubtful);

#endif							/* SAS_LIMITS_QUOTAS_H */
