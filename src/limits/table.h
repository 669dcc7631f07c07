/* SPDX-License-Identifier: PostgreSQL */
/*
 * table.h: the entries behind limits.h: made, found, moved and given back.
 *
 * A call to an agent makes its entry. An entry is needed only while it
 * differs from a new one; in a full table, entries that do not are replaced.
 * When all are needed, the process that asks has an entry of its own, under
 * closer limits, until there is room.
 */
#ifndef SAS_LIMITS_TABLE_H
#define SAS_LIMITS_TABLE_H

#include "limits/limits.h"

typedef struct SasLimitsKey
{
	Oid			dboid;
	int			agent_id;
} SasLimitsKey;

typedef struct SasLimitsUser
{
	Oid			owner;
	int64		used_us;
} SasLimitsUser;

typedef struct SasLimitsFailing
{
	Oid			owner;
	int			n;
} SasLimitsFailing;

typedef struct SasLimitsEntry
{
	SasLimitsKey key;
	int64		made_us;
	int			in_flight;
	int			max_in_flight;	/* as the last worker that asked knew it */
	bool		shared;			/* several roles have a grant */
	int			of_owners;		/* of in_flight, those that owners.c counts */
	int			owner_refused_pid;	/* the worker that got fewer calls of an owner than it wanted, last; 0: none */
	SasLimitsUser users[2];		/* who used it last, the latest first */
	bool		dropped;		/* goes when the last call has ended */
	bool		refused;		/* a worker waits for a slot */
	bool		none_granted;	/* a worker got no slot since one was granted the last time */
	int64		rested_until_us;	/* the next free slot is for a call between two attempts */
	double		tokens;
	int64		filled_us;
	int64		full_us;		/* by then all tokens are back */
	int64		rate_until_us;	/* there is no token before that */
	SasBreaker	breaker;
	int			failures;		/* in a row */
	SasLimitsFailing failing[2];	/* those of the two owners that failed first */
	SasLimitsUser succeeded[2];	/* whose calls succeeded last, the latest first */
	int64		first_failure_us;
	int64		window_us;		/* after that long they do not count */
	int64		opened_us;
	int64		open_until_us;
	Oid			blamed;			/* open: only calls of this owner showed that the service fails; others may probe it */
	int			probe_pid;		/* not closed: the process with the probe; 0: none */
	int64		repaired_us;	/* when the service was reported repaired */
} SasLimitsEntry;

/* What this process has of an agent. */
typedef struct SasLimitsUse
{
	int			agent_id;
	int			in_flight;		/* of the shared entry's */
	bool		unshared;		/* there was no room: this process has an entry of its own */
	SasLimitsEntry own;
} SasLimitsUse;

/*
 * The entry of an agent of this database, with the lock; NULL, and no lock,
 * when there is none. make: it is made, so that NULL means no shared memory
 * only. *use is not NULL when make, or when this process uses the entry.
 */
extern SasLimitsEntry *sas_limits_open(int agent_id, bool make, SasLimitsUse **use);

/* The end of that; the entry may be gone afterwards. */
extern void sas_limits_close(SasLimitsEntry *e, SasLimitsUse *use);

/*
 * Before a call of an agent without a shared entry: all processes together
 * make one such call at a time.  False: ask again later, since nothing wakes.
 */
extern bool sas_limits_take_spare(const SasLimitsUse *use);

/* n calls more (or fewer) of this process. Returns how many it has now. */
extern int	sas_limits_count(SasLimitsEntry *e, SasLimitsUse *use, int n);

/* Its service is repaired: a breaker that is not closed lets a new probe through. */
extern void sas_limits_repair(SasLimitsEntry *e, int64 at_us);

/* The same for an agent that has no shared entry: the processes' own learn it when they are asked for. */
extern void sas_limits_repair_unshared(int64 at_us);

/* This owner has just used it; the pair has the latest two. */
extern void sas_limits_note_user(SasLimitsUser pair[2], Oid owner, int64 now);

/* So many failures are of this owner, unless two others failed before it. */
extern void sas_limits_note_failures(SasLimitsEntry *e, Oid owner, int n);

/* Has another owner used it since then? */
extern bool sas_limits_has_other_user(const SasLimitsUser pair[2], Oid owner, int64 since);

/* Calls visit for each entry of this database, under the lock: it must not raise. */
typedef void (*SasLimitsVisit) (const SasLimitsEntry *e, void *arg);
extern void sas_limits_visit(SasLimitsVisit visit, void *arg);

#endif							/* SAS_LIMITS_TABLE_H */
