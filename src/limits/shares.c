/* SPDX-License-Identifier: PostgreSQL */
/*
 * shares.c: what each role has open, in shared memory.
 *
 * An entry has what is committed and what open transactions have taken.  A
 * recount replaces the first only.  It goes on in parts, from the newest runs
 * to the oldest, each with a snapshot of its own.  So it adds what was
 * committed to the runs of a part since that part was begun: the oldest of
 * these runs is the frontier, and what a transaction does to runs is kept
 * apart for each block of their ids.  New runs belong to the first part.  What
 * the snapshot of a part has seen is not added, though its transaction says
 * only later that it has committed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/grow.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "limits/seen.h"
#include "limits/shares.h"
#include "utils/snapmgr.h"

/* Submits that were not made are saved for so long. */
#define SAS_SHARE_BURST_S 10

typedef struct SasShareKey
{
	Oid			dboid;
	Oid			owner;			/* InvalidOid: that database was counted */
} SasShareKey;

typedef struct SharesRecount
{
	bool		going_on;
	bool		in_part;		/* that part has not ended */
	int64		frontier;		/* the runs from there on are counted */
	int64		last_before;	/* the runs before are those of the last part that was begun */
	int64		first_from;		/* the runs from there on are those of the first part */
	int64		settled;		/* how many transactions have changed what is open */
	int64		counted_us;		/* when the last one ended; 0: none has */
} SharesRecount;

/* Beside the entries. */
typedef struct SharesExtra
{
	int64		generation;		/* of limits */
	Oid			first_of;		/* the database whose first part was begun last, */
	Oid			last_of;		/* and that of any part */
	SasLimitsSeen first;		/* what these parts have seen */
	SasLimitsSeen last;
} SharesExtra;

typedef struct SasShare
{
	SasShareKey key;
	int64		counts[SAS_SHARE_KINDS];	/* committed */
	int64		taken[SAS_SHARE_KINDS]; /* by open transactions */
	int64		since[SAS_SHARE_KINDS]; /* committed since the recount came to it */
	int64		counted[SAS_SHARE_KINDS];	/* by the parts of the recount so far */
	SharesRecount walk;			/* of a database */
	SasShareLimits limits;		/* generation 0: not read yet */
	double		tokens;
	int64		filled_us;		/* 0: never */
} SasShare;

/* A part of a recount ends between two blocks of that many run ids. */
#define SHARES_BLOCK SAS_SHARE_BLOCK
/* the block of new runs, and of infinite tasks */
#define SHARES_NEW (-1)
/* so many of the last entries may be of the same owner and block */
#define SHARES_LAST 8

/* What this transaction has taken, and gives back when it commits: in its order, of one block. */
typedef struct SharesPending
{
	Oid			owner;
	SubTransactionId within;
	int64		block;
	int64		taken[SAS_SHARE_KINDS];
	int64		given[SAS_SHARE_KINDS];
} SharesPending;

static bool shares_is_idle(const void *entry, int64 now);

static SasSharedTable shares_table = {
	.name = "owners",.setting = "sas.max_owners",.capacity = &sas_base_max_owners,
	.key_size = sizeof(SasShareKey),.entry_size = sizeof(SasShare),
	.extra_size = sizeof(SharesExtra),
	.idle = shares_is_idle
};

static SharesExtra *
shares_extra(void)
{
	return shares_table.extra;
}

bool		sas_limits_share_in_run = false;

static SharesPending *shares_pending = NULL;	/* in TopMemoryContext */
static int	shares_n_pending = 0;
static int	shares_pending_room = 0;
static bool shares_forgets = false; /* this transaction changes limits */

static bool
shares_is_idle(const void *entry, int64 now)
{
	const SasShare *s = entry;

	if (!OidIsValid(s->key.owner))
		return false;
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
		if (s->counts[k] != 0 || s->taken[k] != 0 || s->since[k] != 0 || s->counted[k] != 0)
			return false;
	return now - s->filled_us > SAS_SHARE_BURST_S * INT64CONST(1000000);
}

/* Lock held. NULL: no room. */
static SasShare *
shares_enter(Oid owner)
{
	SasShareKey key = {MyDatabaseId, owner};

	return sas_base_table_enter(&shares_table, &key);
}

static SasShare *
shares_find(Oid owner)
{
	SasShareKey key = {MyDatabaseId, owner};

	return sas_base_table_find(&shares_table, &key);
}

/* One of the last entries. NULL: none is of that subtransaction, owner and block. */
static SharesPending *
shares_last_of(SubTransactionId within, Oid owner, int64 block)
{
	for (int i = shares_n_pending - 1; i >= Max(0, shares_n_pending - SHARES_LAST) && shares_pending[i].within == within; i--)
		if (shares_pending[i].owner == owner && shares_pending[i].block == block)
			return &shares_pending[i];
	return NULL;
}

/* Of this (sub)transaction; may fail, so before any lock. run_id 0: new runs. */
static SharesPending *
shares_own(Oid owner, int64 run_id)
{
	SubTransactionId within = GetCurrentSubTransactionId();
	int64		block = run_id == 0 ? SHARES_NEW : run_id / SHARES_BLOCK;
	SharesPending *p = shares_last_of(within, owner, block);

	if (p != NULL)
		return p;
	shares_pending = sas_base_grow(TopMemoryContext, shares_pending, shares_n_pending, &shares_pending_room, sizeof(SharesPending));
	p = &shares_pending[shares_n_pending++];
	*p = (SharesPending) {.owner = owner,.within = within,.block = block};
	return p;
}

/* ---------------------------------------------------------------- taken and given */

static bool
shares_is_over(const SasShare *s, const int64 *more, SasShareKind *over, int64 *used)
{
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
		if (more[k] > 0 && s->counts[k] + s->taken[k] + more[k] > s->limits.most[k])
		{
			*over = k;
			*used = s->counts[k] + s->taken[k];
			return true;
		}
	return false;
}

SasShareAnswer
sas_limits_share_take(Oid owner, int64 run_id, const int64 *more, const SasShareLimits *limits, bool check, SasShareKind *over, int64 *used)
{
	SharesPending *own;
	SasShare   *s;
	SasShareAnswer answer = SAS_SHARE_TAKEN;

	if (shares_table.state == NULL)
		return SAS_SHARE_TAKEN;
	own = shares_own(owner, run_id);
	sas_base_table_lock(&shares_table, LW_EXCLUSIVE);
	s = shares_enter(owner);
	if (s != NULL)
	{
		if (limits != NULL)
			s->limits = *limits;
		/* those in memory may be older than the table */
		if (check && s->limits.generation != 1 + shares_extra()->generation)
			answer = SAS_SHARE_UNKNOWN;
		else if (check && shares_is_over(s, more, over, used))
			answer = SAS_SHARE_OVER;
		for (int k = 0; k < SAS_SHARE_KINDS && answer == SAS_SHARE_TAKEN; k++)
		{
			s->taken[k] += more[k];
			own->taken[k] += more[k];
		}
	}
	sas_base_table_unlock(&shares_table);
	return answer;
}

bool
sas_limits_share_submit(Oid owner, int64 n, int64 submits_per_s)
{
	int64		now = sas_base_clock_monotonic_us();
	SasShare   *s;
	bool		granted = true;

	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return true;
	s = shares_enter(owner);
	if (s != NULL)
	{
		double		most;

		if (submits_per_s == 0)
			submits_per_s = s->limits.submits_per_s;
		most = (double) submits_per_s * SAS_SHARE_BURST_S;
		s->tokens = s->filled_us == 0 ? most : Min(most, s->tokens + (now - s->filled_us) * (double) submits_per_s / 1e6);
		s->filled_us = now;
		/* a batch may be larger than what is saved: the next one waits for it */
		granted = s->tokens >= 1;
		if (granted)
			s->tokens -= n;
	}
	sas_base_table_unlock(&shares_table);
	return granted;
}

void
sas_limits_share_give(Oid owner, int64 run_id, const int64 *less)
{
	SharesPending *own;

	if (shares_table.state == NULL)
		return;
	own = shares_own(owner, run_id);
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
		own->given[k] += less[k];
}

/* Lock held. NULL: this database has no entry. */
static SharesRecount *
shares_recount(void)
{
	SasShare   *s = shares_find(InvalidOid);

	return s == NULL ? NULL : &s->walk;
}

/* Has the recount that goes on, or the last one, seen what this transaction did there? Lock held. */
static bool
shares_is_seen(const SharesPending *p, const SharesRecount *r)
{
	const SharesExtra *extra = shares_extra();

	if (r == NULL)
		return false;
	if (p->block == SHARES_NEW || p->block * SHARES_BLOCK >= r->first_from)
		return extra->first_of == MyDatabaseId && sas_limits_seen_own(&extra->first);
	/* of parts between the first and the last one it is not known: the transaction ended long before its callback */
	return extra->last_of == MyDatabaseId && p->block * SHARES_BLOCK >= r->frontier && p->block * SHARES_BLOCK < r->last_before && sas_limits_seen_own(&extra->last);
}

/*
 * The end of what this transaction has taken. Lock held.  What it did to runs that the recount has not come
 * to is counted there, and not added.  The ids of new runs are not known here: they count as those of the
 * first part.  Runs of a transaction that has been open for long may have lower ids; if it commits between
 * the first part and theirs, they count twice until the next recount.
 */
static void
shares_settle(const SharesPending *p, bool committed, SharesRecount *r)
{
	SasShare   *s = shares_find(p->owner);
	bool		goes_on = r != NULL && r->going_on;
	bool		adds = p->block == SHARES_NEW || (goes_on && p->block * SHARES_BLOCK >= r->frontier);
	bool		seen = committed && shares_is_seen(p, r);

	if (s == NULL)
		return;
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
	{
		int64		change = committed ? p->taken[k] - p->given[k] : 0;

		s->taken[k] = Max(0, s->taken[k] - p->taken[k]);
		if (goes_on || !seen)
			s->counts[k] = Max(0, s->counts[k] + change);
		if (goes_on && adds && !seen)
			s->since[k] += change;
	}
}

/* All of it. Lock held. */
static void
shares_settle_all(bool committed)
{
	SharesRecount *r = shares_recount();

	for (int i = 0; i < shares_n_pending; i++)
		shares_settle(&shares_pending[i], committed, r);
	if (r != NULL && committed && shares_n_pending > 0)
		r->settled++;
}

static void
shares_xact_callback(XactEvent event, void *arg)
{
	bool		committed = event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE;

	if (!committed && event != XACT_EVENT_ABORT)
		return;
	sas_limits_share_in_run = false;
	if ((shares_n_pending > 0 || shares_forgets) && sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
	{
		shares_settle_all(committed);
		if (shares_forgets)
			shares_extra()->generation++;
		sas_base_table_unlock(&shares_table);
	}
	shares_n_pending = 0;
	shares_forgets = false;
	/* one large transaction leaves no large list behind */
	if (shares_pending_room > 1024)
	{
		pfree(shares_pending);
		shares_pending = NULL;
		shares_pending_room = 0;
	}
}

/* What it took, and those within it, which began later, goes back; what they gave is not given. */
static void
shares_abort_sub(SubTransactionId own)
{
	sas_base_table_lock(&shares_table, LW_EXCLUSIVE);
	while (shares_n_pending > 0 && shares_pending[shares_n_pending - 1].within >= own)
		shares_settle(&shares_pending[--shares_n_pending], false, NULL);
	sas_base_table_unlock(&shares_table);
}

/* Those within it have become part of it before. */
static void
shares_commit_sub(SubTransactionId own, SubTransactionId parent)
{
	int			first = shares_n_pending;
	int			end = shares_n_pending;

	while (first > 0 && shares_pending[first - 1].within == own)
		first--;
	shares_n_pending = first;
	for (int i = first; i < end; i++)
	{
		SharesPending child = shares_pending[i];
		SharesPending *p = shares_last_of(parent, child.owner, child.block);

		child.within = parent;
		if (p == NULL)
		{
			shares_pending[shares_n_pending++] = child;
			continue;
		}
		for (int k = 0; k < SAS_SHARE_KINDS; k++)
		{
			p->taken[k] += child.taken[k];
			p->given[k] += child.given[k];
		}
	}
}

/* The list is in the order of subtransactions, so only its end is looked at: others wait for the lock. */
static void
shares_subxact_callback(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	if (shares_n_pending == 0 || shares_pending[shares_n_pending - 1].within < own)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		shares_abort_sub(own);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		shares_commit_sub(own, parent);
}

void
sas_limits_shares_install(void)
{
	sas_base_table_register(&shares_table);
	RegisterXactCallback(shares_xact_callback, NULL);
	RegisterSubXactCallback(shares_subxact_callback, NULL);
}

int64
sas_limits_share_generation(void)
{
	int64		generation = 1;

	if (sas_base_table_lock(&shares_table, LW_SHARED))
	{
		generation += shares_extra()->generation;
		sas_base_table_unlock(&shares_table);
	}
	return generation;
}

void
sas_limits_share_forget(void)
{
	shares_forgets = true;
}

/* ---------------------------------------------------------------- counted again */

/* Lock held. */
static void
shares_begin_recount(SharesRecount *r)
{
	HASH_SEQ_STATUS scan;
	SasShare   *s;

	hash_seq_init(&scan, shares_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
		if (s->key.dboid == MyDatabaseId)
		{
			memset(s->since, 0, sizeof(s->since));
			memset(s->counted, 0, sizeof(s->counted));
		}
	r->going_on = true;
}

int64
sas_limits_share_recounted_from(void)
{
	int64		from = 0;
	SharesRecount *r;

	if (!sas_base_table_lock(&shares_table, LW_SHARED))
		return 0;
	r = shares_recount();
	if (r != NULL && r->going_on && !r->in_part)
		from = r->frontier;
	sas_base_table_unlock(&shares_table);
	return from;
}

int64
sas_limits_share_settled(void)
{
	int64		settled = -1;
	SasShare   *s;

	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return -1;
	s = shares_enter(InvalidOid);
	if (s != NULL)
		settled = s->walk.settled;
	sas_base_table_unlock(&shares_table);
	return settled;
}

/* Lock held. */
static void
shares_begin_part(SharesRecount *r, bool first, int64 from, const SasLimitsSeen *seen)
{
	SharesExtra *extra = shares_extra();

	if (first)
	{
		shares_begin_recount(r);
		r->first_from = from;
		extra->first = *seen;
		extra->first_of = MyDatabaseId;
	}
	r->last_before = first ? PG_INT64_MAX : r->frontier;
	r->frontier = from;
	r->in_part = true;
	extra->last = *seen;
	extra->last_of = MyDatabaseId;
}

bool
sas_limits_share_begin_part(bool first, int64 from, int64 settled)
{
	SasLimitsSeen seen;
	SasShare   *s;
	bool		begun = true;

	Assert(from % SHARES_BLOCK == 0);
	sas_limits_seen_note(&seen, GetActiveSnapshot());
	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return true;
	s = shares_enter(InvalidOid);
	if (s != NULL)
	{
		begun = settled < 0 || settled == s->walk.settled;
		if (begun)
			shares_begin_part(&s->walk, first, from, &seen);
	}
	sas_base_table_unlock(&shares_table);
	return begun;
}

void
sas_limits_share_add(Oid owner, const int64 *counted)
{
	SasShare   *s;

	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return;
	s = shares_enter(owner);
	for (int k = 0; s != NULL && k < SAS_SHARE_KINDS; k++)
		s->counted[k] += counted[k];
	sas_base_table_unlock(&shares_table);
}

/* Lock held. What this transaction has done itself was counted, and counts when it ends. */
static void
shares_set_counts(SasShare *s)
{
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
	{
		int64		count = s->counted[k] + s->since[k];

		for (int i = 0; i < shares_n_pending; i++)
			if (shares_pending[i].owner == s->key.owner)
				count += shares_pending[i].given[k] - shares_pending[i].taken[k];
		s->counts[k] = Max(0, count);
	}
	memset(s->since, 0, sizeof(s->since));
	memset(s->counted, 0, sizeof(s->counted));
}

/* Lock held. */
static void
shares_end_recount(SharesRecount *r)
{
	HASH_SEQ_STATUS scan;
	SasShare   *s;

	hash_seq_init(&scan, shares_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
		if (s->key.dboid == MyDatabaseId)
			shares_set_counts(s);
	r->going_on = false;
	r->counted_us = sas_base_clock_monotonic_us();
}

bool
sas_limits_share_end_part(bool last)
{
	SharesRecount *r;

	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return false;
	r = shares_recount();
	if (r != NULL)
	{
		r->in_part = false;
		if (last)
			shares_end_recount(r);
	}
	sas_base_table_unlock(&shares_table);
	return r != NULL;
}

int64
sas_limits_share_counted_us_ago(void)
{
	int64		ago = -1;
	SharesRecount *r;

	if (!sas_base_table_lock(&shares_table, LW_SHARED))
		return 0;
	r = shares_recount();
	if (r != NULL && r->counted_us != 0)
		ago = Max(0, sas_base_clock_monotonic_us() - r->counted_us);
	sas_base_table_unlock(&shares_table);
	return ago;
}

int
sas_limits_share_view(SasShareView **views)
{
	HASH_SEQ_STATUS scan;
	SasShare   *s;
	int			n = 0;

	*views = palloc(sizeof(SasShareView) * sas_base_max_owners);
	if (!sas_base_table_lock(&shares_table, LW_SHARED))
		return 0;
	hash_seq_init(&scan, shares_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
		if (s->key.dboid == MyDatabaseId && OidIsValid(s->key.owner))
		{
			(*views)[n].owner = s->key.owner;
			for (int k = 0; k < SAS_SHARE_KINDS; k++)
				(*views)[n].used[k] = s->counts[k] + s->taken[k];
			n++;
		}
	sas_base_table_unlock(&shares_table);
	return n;
}
