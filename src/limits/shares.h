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
 * how much the owner has without it.  run_id: the run is this one, which
 * existed before; 0: it is new, or more are, or these are infinite tasks.
 */
extern SasShareAnswer sas_limits_share_take(Oid owner, int64 run_id, const int64 *more, const SasShareLimits *limits, bool check,
											SasShareKind *over, int64 *used);

/* The same for the rate of submits from within runs: n more; false: later. submits_per_s 0: as in shared memory. */
extern bool sas_limits_share_submit(Oid owner, int64 n, int64 submits_per_s);

/* The owner has this much less, of that run or of infinite tasks (0), once this transaction has committed. */
extern void sas_limits_share_give(Oid owner, int64 run_id, const int64 *less);

/* Which generation of limits is current; forget begins another when this transaction ends. */
extern int64 sas_limits_share_generation(void);
extern void sas_limits_share_forget(void);

/*
 * Recount: in parts, from the newest runs to the oldest, each in a
 * transaction of its own: settled, then one query that calls begin_part
 * first, and then add for each owner of runs from there on that no part before
 * had, then end_part; false: there is no room to note a recount.  from: a
 * multiple of SAS_SHARE_BLOCK; 0: this is the last part.  Infinite tasks belong
 * to the first one.  What commits meanwhile is added.  begin_part false: a
 * transaction has committed since "settled" was asked for, and it is not known
 * whether the snapshot of the query sees it: begin again.  settled -1: begin
 * anyway, a little wrong.
 */
#define SAS_SHARE_BLOCK 4096
extern int64 sas_limits_share_settled(void);
extern bool sas_limits_share_begin_part(bool first, int64 from, int64 settled);
extern void sas_limits_share_add(Oid owner, const int64 *counted);
extern bool sas_limits_share_end_part(bool last);

/* The first run that the recount which is going on has counted; 0: none is, or its last part has failed. */
extern int64 sas_limits_share_recounted_from(void);

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
