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
 * and from time to time (sql/flow/share.sql), since nothing here survives a
 * crash, and COMMIT PREPARED and a restored dump are not seen.
 *
 * There is room for sas.max_owners entries of all databases.  A role without
 * an entry is not limited; an alert says that the table fills.
 */
#ifndef SAS_LIMITS_SHARES_H
#define SAS_LIMITS_SHARES_H

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

/* The owner has this much less once this transaction has committed. */
extern void sas_limits_share_give(Oid owner, const int64 *less);

/* Which generation of limits is current; forget begins another when this transaction ends. */
extern int64 sas_limits_share_generation(void);
extern void sas_limits_share_forget(void);

/*
 * Recount: begin, then a query with a snapshot of its own, then set for each
 * owner of something, then end, which sets all others to nothing.  What
 * commits meanwhile is added; what this transaction has done itself counts
 * when it ends.
 */
extern void sas_limits_share_begin_recount(void);
extern void sas_limits_share_set(Oid owner, const int64 *counted);
extern void sas_limits_share_end_recount(void);

/* How long ago all owners of this database were counted; -1: not since the start. */
extern int64 sas_limits_share_counted_us_ago(void);

typedef struct SasShareView
{
	Oid			owner;
	int64		used[SAS_SHARE_KINDS];
} SasShareView;

/* The owners of this database, palloc'd; returns how many. */
extern int	sas_limits_share_view(SasShareView **views);

#endif							/* SAS_LIMITS_SHARES_H */
