/* SPDX-License-Identifier: PostgreSQL */
/*
 * shares.c: what each role has open, in shared memory.
 *
 * An entry has what is committed and what open transactions have taken.  A
 * count of the rows replaces the first only.  It has one snapshot, which is
 * noted, so it is exact: it adds what transactions tell since then, but not
 * what the snapshot has seen, though its session tells it only later.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/grow.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "limits/seen.h"
#include "limits/shares.h"

/* Submits that were not made are saved for so long. */
#define SAS_SHARE_BURST_S 10

typedef struct SasShareKey
{
	Oid			dboid;
	Oid			owner;			/* InvalidOid: the counts of that database */
} SasShareKey;

typedef struct SharesCount
{
	int64		doubts;			/* how many counts have begun, and how often one has become wrong */
	int64		begun;			/* the doubts at the begin of the last count, */
	int64		ended;			/* and of the last one that has ended */
	int64		counted_us;		/* when that was; 0: never */
	bool		prepares;		/* transactions with work of sas are prepared */
} SharesCount;

/* Beside the entries. */
typedef struct SharesExtra
{
	int64		generation;		/* of limits */
	SasLimitsSeen seen;			/* by the last count of each database */
} SharesExtra;

typedef struct SasShare
{
	SasShareKey key;
	int64		counts[SAS_SHARE_KINDS];	/* committed */
	int64		taken[SAS_SHARE_KINDS]; /* by open transactions */
	int64		since[SAS_SHARE_KINDS]; /* committed, and not seen by the count that goes on */
	int64		counted[SAS_SHARE_KINDS];	/* by the count that ends now */
	SharesCount count;			/* of a database */
	SasShareLimits limits;		/* generation 0: not read yet */
	double		tokens;
	int64		filled_us;		/* 0: never */
} SasShare;

/* What this transaction has taken, and gives back when it commits. */
typedef struct SharesPending
{
	Oid			owner;
	SubTransactionId within;
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

bool		sas_limits_share_in_run = false;

static SharesPending *shares_pending = NULL;	/* in TopMemoryContext */
static int	shares_n_pending = 0;
static int	shares_pending_room = 0;
static bool shares_forgets = false; /* this transaction changes limits */
static bool shares_doubts = false;	/* it changes what roles have, and does not say how */

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

static SharesExtra *
shares_extra(void)
{
	return shares_table.extra;
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

/* Of this database. Lock held. NULL: no count of it has begun. */
static SharesCount *
shares_count(void)
{
	SasShare   *s = shares_find(InvalidOid);

	return s == NULL ? NULL : &s->count;
}

/* Lock held. */
static void
shares_note(SasShareNote what)
{
	SasShare   *s = shares_enter(InvalidOid);

	if (s == NULL)
		return;
	s->count.prepares |= what == SAS_SHARE_PREPARED;
	if (what == SAS_SHARE_DOUBT || (what == SAS_SHARE_PREPARED_ENDED && s->count.prepares))
		s->count.doubts++;
}

/* Of that (sub)transaction; may fail, so before any lock. */
static SharesPending *
shares_of(SubTransactionId within, Oid owner)
{
	SharesPending *p;

	for (int i = shares_n_pending - 1; i >= 0 && shares_pending[i].within == within; i--)
		if (shares_pending[i].owner == owner)
			return &shares_pending[i];
	shares_pending = sas_base_grow(TopMemoryContext, shares_pending, shares_n_pending, &shares_pending_room, sizeof(SharesPending));
	p = &shares_pending[shares_n_pending++];
	*p = (SharesPending) {.owner = owner,.within = within};
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
sas_limits_share_take(Oid owner, const int64 *more, const SasShareLimits *limits, bool check, SasShareKind *over, int64 *used)
{
	SharesPending *own;
	SasShare   *s;
	SasShareAnswer answer = SAS_SHARE_TAKEN;

	if (shares_table.state == NULL)
		return SAS_SHARE_TAKEN;
	own = shares_of(GetCurrentSubTransactionId(), owner);
	sas_base_table_lock(&shares_table, LW_EXCLUSIVE);
	s = shares_enter(owner);
	if (s == NULL)
		shares_note(SAS_SHARE_DOUBT);	/* there may be room later */
	else
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
sas_limits_share_give(Oid owner, const int64 *less)
{
	SharesPending *own;

	if (shares_table.state == NULL)
		return;
	own = shares_of(GetCurrentSubTransactionId(), owner);
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
		own->given[k] += less[k];
}

/* The end of what this transaction has taken. Lock held. */
static void
shares_settle(const SharesPending *p, bool adds, bool counting)
{
	SasShare   *s = shares_find(p->owner);

	for (int k = 0; s != NULL && k < SAS_SHARE_KINDS; k++)
	{
		int64		change = adds ? p->taken[k] - p->given[k] : 0;

		s->taken[k] = Max(0, s->taken[k] - p->taken[k]);
		s->counts[k] = Max(0, s->counts[k] + change);
		if (counting)
			s->since[k] += change;
	}
}

/* All of it. Lock held.  What the last count has seen already is not added. */
static void
shares_settle_all(XactEvent event)
{
	const SharesCount *c = shares_count();
	bool		seen = event == XACT_EVENT_COMMIT && sas_limits_seen_own(&shares_extra()->seen);

	for (int i = 0; i < shares_n_pending; i++)
		shares_settle(&shares_pending[i], event != XACT_EVENT_ABORT && !seen, c != NULL && c->begun != c->ended);
	if (event == XACT_EVENT_PREPARE)
		shares_note(SAS_SHARE_PREPARED);
	if (shares_doubts)
		shares_note(SAS_SHARE_DOUBT);
	if (shares_forgets)
		shares_extra()->generation++;
}

static void
shares_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	sas_limits_share_in_run = false;
	if ((shares_n_pending > 0 || shares_forgets || shares_doubts) && sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
	{
		shares_settle_all(event);
		sas_base_table_unlock(&shares_table);
	}
	shares_n_pending = 0;
	shares_forgets = shares_doubts = false;
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
		shares_settle(&shares_pending[--shares_n_pending], false, false);
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
		SharesPending *p = shares_of(parent, child.owner);	/* there is room */

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

void
sas_limits_share_doubt(void)
{
	shares_doubts = true;
}

void
sas_limits_share_note(SasShareNote what)
{
	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return;
	shares_note(what);
	sas_base_table_unlock(&shares_table);
}

/* ---------------------------------------------------------------- counted again */

int64
sas_limits_share_begin_count(Snapshot *snapshot)
{
	HASH_SEQ_STATUS scan;
	SasShare   *s;
	int64		count = 0;

	if (!sas_base_table_lock(&shares_table, LW_EXCLUSIVE))
		return 0;
	s = shares_enter(InvalidOid);
	/* nobody tells anything between the snapshot and its note */
	*snapshot = GetLatestSnapshot();
	if (s != NULL && sas_limits_seen_note(&shares_extra()->seen, *snapshot))
	{
		count = s->count.begun = ++s->count.doubts;
		hash_seq_init(&scan, shares_table.entries);
		while ((s = hash_seq_search(&scan)) != NULL)
			if (s->key.dboid == MyDatabaseId)
				memset(s->since, 0, sizeof(s->since));
	}
	sas_base_table_unlock(&shares_table);
	return count;
}

/* Lock held. What this transaction has done itself was counted, and counts when it ends. */
static void
shares_set(SasShare *s)
{
	for (int k = 0; k < SAS_SHARE_KINDS; k++)
	{
		int64		count = s->counted[k] + s->since[k];

		for (int i = 0; i < shares_n_pending; i++)
			if (shares_pending[i].owner == s->key.owner)
				count += shares_pending[i].given[k] - shares_pending[i].taken[k];
		s->counts[k] = Max(0, count);
		s->since[k] = s->counted[k] = 0;
	}
}

void
sas_limits_share_end_count(int64 count, const SasShareView *views, int n)
{
	HASH_SEQ_STATUS scan;
	SasShare   *s;
	SharesCount *c;

	sas_base_table_lock(&shares_table, LW_EXCLUSIVE);
	c = shares_count();
	if (c != NULL && c->begun == count)
	{
		c->ended = count;
		c->counted_us = sas_base_clock_monotonic_us();
		for (int i = 0; i < n; i++)
			if ((s = shares_enter(views[i].owner)) != NULL)
				memcpy(s->counted, views[i].used, sizeof(s->counted));
			else
				shares_note(SAS_SHARE_DOUBT);
		hash_seq_init(&scan, shares_table.entries);
		while ((s = hash_seq_search(&scan)) != NULL)
			if (s->key.dboid == MyDatabaseId)
				shares_set(s);
	}
	sas_base_table_unlock(&shares_table);
}

int64
sas_limits_share_counted_us_ago(bool *doubtful)
{
	int64		ago = -1;
	const SharesCount *c;

	*doubtful = false;
	if (!sas_base_table_lock(&shares_table, LW_SHARED))
		return 0;
	c = shares_count();
	if (c != NULL && c->counted_us != 0)
		ago = Max(0, sas_base_clock_monotonic_us() - c->counted_us);
	*doubtful = ago < 0 || c->ended != c->doubts;
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
