/* SPDX-License-Identifier: PostgreSQL */
/*
 * quotas.c: what each role has open, in shared memory.
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
#include "limits/quotas.h"

/* Submits that were not made are saved for so long. */
#define SAS_QUOTA_BURST_S 10

typedef struct SasQuotaKey
{
	Oid			dboid;
	Oid			owner;			/* InvalidOid: the counts of that database */
} SasQuotaKey;

typedef struct QuotasCount
{
	int64		doubts;			/* how many counts have begun, and how often one has become wrong */
	int64		begun;			/* the doubts at the begin of the last count, */
	int64		ended;			/* and of the last one that has ended */
	int64		counted_us;		/* when that was; 0: never */
	bool		prepares;		/* transactions with work of sas are prepared */
} QuotasCount;

/* Beside the entries. */
typedef struct QuotasExtra
{
	int64		generation;		/* of limits */
	SasLimitsSeen seen;			/* by the last count of each database */
} QuotasExtra;

typedef struct SasQuota
{
	SasQuotaKey key;
	int64		counts[SAS_QUOTA_KINDS];	/* committed */
	int64		taken[SAS_QUOTA_KINDS]; /* by open transactions */
	int64		since[SAS_QUOTA_KINDS]; /* committed, and not seen by the count that goes on */
	int64		counted[SAS_QUOTA_KINDS];	/* by the count that ends now */
	QuotasCount count;			/* of a database */
	SasQuotaLimits limits;		/* generation 0: not read yet */
	double		tokens;
	int64		filled_us;		/* 0: never */
} SasQuota;

/* What this transaction has taken, and gives back when it commits. */
typedef struct QuotasPending
{
	Oid			owner;
	SubTransactionId within;
	int64		taken[SAS_QUOTA_KINDS];
	int64		given[SAS_QUOTA_KINDS];
} QuotasPending;

static bool quotas_is_idle(const void *entry, int64 now);

static SasSharedTable quotas_table = {
	.name = "owners",.setting = "sas.max_owners",.capacity = &sas_base_max_owners,
	.key_size = sizeof(SasQuotaKey),.entry_size = sizeof(SasQuota),
	.extra_size = sizeof(QuotasExtra),
	.idle = quotas_is_idle
};

bool		sas_limits_quota_in_run = false;

static QuotasPending *quotas_pending = NULL;	/* in TopMemoryContext */
static int	quotas_n_pending = 0;
static int	quotas_pending_room = 0;
static bool quotas_forgets = false; /* this transaction changes limits */
static bool quotas_doubts = false;	/* it changes what roles have, and does not say how */

static bool
quotas_is_idle(const void *entry, int64 now)
{
	const SasQuota *s = entry;

	if (!OidIsValid(s->key.owner))
		return false;
	for (int k = 0; k < SAS_QUOTA_KINDS; k++)
		if (s->counts[k] != 0 || s->taken[k] != 0 || s->since[k] != 0 || s->counted[k] != 0)
			return false;
	return now - s->filled_us > SAS_QUOTA_BURST_S * INT64CONST(1000000);
}

static QuotasExtra *
quotas_extra(void)
{
	return quotas_table.extra;
}

/* Lock held. NULL: no room. */
static SasQuota *
quotas_enter(Oid owner)
{
	SasQuotaKey key = {MyDatabaseId, owner};

	return sas_base_table_enter(&quotas_table, &key);
}

static SasQuota *
quotas_find(Oid owner)
{
	SasQuotaKey key = {MyDatabaseId, owner};

	return sas_base_table_find(&quotas_table, &key);
}

/* Of this database. Lock held. NULL: no count of it has begun. */
static QuotasCount *
quotas_count(void)
{
	SasQuota   *s = quotas_find(InvalidOid);

	return s == NULL ? NULL : &s->count;
}

/* Lock held. */
static void
quotas_note(SasQuotaNote what)
{
	SasQuota   *s = quotas_enter(InvalidOid);

	if (s == NULL)
		return;
	s->count.prepares |= what == SAS_QUOTA_PREPARED;
	if (what == SAS_QUOTA_DOUBT || (what == SAS_QUOTA_PREPARED_ENDED && s->count.prepares))
		s->count.doubts++;
}

/* Of that (sub)transaction; may fail, so before any lock. */
static QuotasPending *
quotas_of(SubTransactionId within, Oid owner)
{
	QuotasPending *p;

	for (int i = quotas_n_pending - 1; i >= 0 && quotas_pending[i].within == within; i--)
		if (quotas_pending[i].owner == owner)
			return &quotas_pending[i];
	quotas_pending = sas_base_grow(TopMemoryContext, quotas_pending, quotas_n_pending, &quotas_pending_room, sizeof(QuotasPending));
	p = &quotas_pending[quotas_n_pending++];
	*p = (QuotasPending) {.owner = owner,.within = within};
	return p;
}

/* ---------------------------------------------------------------- taken and given */

static bool
quotas_is_over(const SasQuota *s, const int64 *more, SasQuotaKind *over, int64 *used)
{
	for (int k = 0; k < SAS_QUOTA_KINDS; k++)
		if (more[k] > 0 && s->counts[k] + s->taken[k] + more[k] > s->limits.most[k])
		{
			*over = k;
			*used = s->counts[k] + s->taken[k];
			return true;
		}
	return false;
}

SasQuotaAnswer
sas_limits_quota_take(Oid owner, const int64 *more, const SasQuotaLimits *limits, bool check, SasQuotaKind *over, int64 *used)
{
	QuotasPending *own;
	SasQuota   *s;
	SasQuotaAnswer answer = SAS_QUOTA_TAKEN;

	if (quotas_table.state == NULL)
		return SAS_QUOTA_TAKEN;
	own = quotas_of(GetCurrentSubTransactionId(), owner);
	sas_base_table_lock(&quotas_table, LW_EXCLUSIVE);
	s = quotas_enter(owner);
	if (s == NULL)
		quotas_note(SAS_QUOTA_DOUBT);	/* there may be room later */
	else
	{
		if (limits != NULL)
			s->limits = *limits;
		/* those in memory may be older than the table */
		if (check && s->limits.generation != 1 + quotas_extra()->generation)
			answer = SAS_QUOTA_UNKNOWN;
		else if (check && quotas_is_over(s, more, over, used))
			answer = SAS_QUOTA_OVER;
		for (int k = 0; k < SAS_QUOTA_KINDS && answer == SAS_QUOTA_TAKEN; k++)
		{
			s->taken[k] += more[k];
			own->taken[k] += more[k];
		}
	}
	sas_base_table_unlock(&quotas_table);
	return answer;
}

bool
sas_limits_quota_submit(Oid owner, int64 n, int64 submits_per_s)
{
	int64		now = sas_base_clock_monotonic_us();
	SasQuota   *s;
	bool		granted = true;

	if (!sas_base_table_lock(&quotas_table, LW_EXCLUSIVE))
		return true;
	s = quotas_enter(owner);
	if (s != NULL)
	{
		double		most;

		if (submits_per_s == 0)
			submits_per_s = s->limits.submits_per_s;
		most = (double) submits_per_s * SAS_QUOTA_BURST_S;
		s->tokens = s->filled_us == 0 ? most : Min(most, s->tokens + (now - s->filled_us) * (double) submits_per_s / 1e6);
		s->filled_us = now;
		/* a batch may be larger than what is saved: the next one waits for it */
		granted = s->tokens >= 1;
		if (granted)
			s->tokens -= n;
	}
	sas_base_table_unlock(&quotas_table);
	return granted;
}

void
sas_limits_quota_give(Oid owner, const int64 *less)
{
	QuotasPending *own;

	if (quotas_table.state == NULL)
		return;
	own = quotas_of(GetCurrentSubTransactionId(), owner);
	for (int k = 0; k < SAS_QUOTA_KINDS; k++)
		own->given[k] += less[k];
}

/* The end of what this transaction has taken. Lock held. */
static void
quotas_settle(const QuotasPending *p, bool adds, bool counting)
{
	SasQuota   *s = quotas_find(p->owner);

	for (int k = 0; s != NULL && k < SAS_QUOTA_KINDS; k++)
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
quotas_settle_all(XactEvent event)
{
	const QuotasCount *c = quotas_count();
	bool		seen = event == XACT_EVENT_COMMIT && sas_limits_seen_own(&quotas_extra()->seen);

	for (int i = 0; i < quotas_n_pending; i++)
		quotas_settle(&quotas_pending[i], event != XACT_EVENT_ABORT && !seen, c != NULL && c->begun != c->ended);
	if (event == XACT_EVENT_PREPARE)
		quotas_note(SAS_QUOTA_PREPARED);
	if (quotas_doubts)
		quotas_note(SAS_QUOTA_DOUBT);
	if (quotas_forgets)
		quotas_extra()->generation++;
}

static void
quotas_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	sas_limits_quota_in_run = false;
	if ((quotas_n_pending > 0 || quotas_forgets || quotas_doubts) && sas_base_table_lock(&quotas_table, LW_EXCLUSIVE))
	{
		quotas_settle_all(event);
		sas_base_table_unlock(&quotas_table);
	}
	quotas_n_pending = 0;
	quotas_forgets = quotas_doubts = false;
	/* one large transaction leaves no large list behind */
	if (quotas_pending_room > 1024)
	{
		pfree(quotas_pending);
		quotas_pending = NULL;
		quotas_pending_room = 0;
	}
}

/* What it took, and those within it, which began later, goes back; what they gave is not given. */
static void
quotas_abort_sub(SubTransactionId own)
{
	sas_base_table_lock(&quotas_table, LW_EXCLUSIVE);
	while (quotas_n_pending > 0 && quotas_pending[quotas_n_pending - 1].within >= own)
		quotas_settle(&quotas_pending[--quotas_n_pending], false, false);
	sas_base_table_unlock(&quotas_table);
}

/* Those within it have become part of it before. */
static void
quotas_commit_sub(SubTransactionId own, SubTransactionId parent)
{
	int			first = quotas_n_pending;
	int			end = quotas_n_pending;

	while (first > 0 && quotas_pending[first - 1].within == own)
		first--;
	quotas_n_pending = first;
	for (int i = first; i < end; i++)
	{
		QuotasPending child = quotas_pending[i];
		QuotasPending *p = quotas_of(parent, child.owner);	/* there is room */

		for (int k = 0; k < SAS_QUOTA_KINDS; k++)
		{
			p->taken[k] += child.taken[k];
			p->given[k] += child.given[k];
		}
	}
}

/* The list is in the order of subtransactions, so only its end is looked at: others wait for the lock. */
static void
quotas_subxact_callback(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	if (quotas_n_pending == 0 || quotas_pending[quotas_n_pending - 1].within < own)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		quotas_abort_sub(own);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		quotas_commit_sub(own, parent);
}

void
sas_limits_quotas_install(void)
{
	sas_base_table_register(&quotas_table);
	RegisterXactCallback(quotas_xact_callback, NULL);
	RegisterSubXactCallback(quotas_subxact_callback, NULL);
}

int64
sas_limits_quota_generation(void)
{
	int64		generation = 1;

	if (sas_base_table_lock(&quotas_table, LW_SHARED))
	{
		generation += quotas_extra()->generation;
		sas_base_table_unlock(&quotas_table);
	}
	return generation;
}

void
sas_limits_quota_forget(void)
{
	quotas_forgets = true;
}

void
sas_limits_quota_doubt(void)
{
	quotas_doubts = true;
}

void
sas_limits_quota_note(SasQuotaNote what)
{
	if (!sas_base_table_lock(&quotas_table, LW_EXCLUSIVE))
		return;
	quotas_note(what);
	sas_base_table_unlock(&quotas_table);
}

/* ---------------------------------------------------------------- counted again */

int64
sas_limits_quota_begin_count(Snapshot *snapshot)
{
	HASH_SEQ_STATUS scan;
	SasQuota   *s;
	int64		count = 0;

	if (!sas_base_table_lock(&quotas_table, LW_EXCLUSIVE))
		return 0;
	s = quotas_enter(InvalidOid);
	/* nobody tells anything between the snapshot and its note */
	*snapshot = GetLatestSnapshot();
	if (s != NULL && sas_limits_seen_note(&quotas_extra()->seen, *snapshot))
	{
		count = s->count.begun = ++s->count.doubts;
		hash_seq_init(&scan, quotas_table.entries);
		while ((s = hash_seq_search(&scan)) != NULL)
			if (s->key.dboid == MyDatabaseId)
				memset(s->since, 0, sizeof(s->since));
	}
	sas_base_table_unlock(&quotas_table);
	return count;
}

/* Lock held. What this transaction has done itself was counted, and counts when it ends. */
static void
quotas_set(SasQuota *s)
{
	for (int k = 0; k < SAS_QUOTA_KINDS; k++)
	{
		int64		count = s->counted[k] + s->since[k];

		for (int i = 0; i < quotas_n_pending; i++)
			if (quotas_pending[i].owner == s->key.owner)
				count += quotas_pending[i].given[k] - quotas_pending[i].taken[k];
		s->counts[k] = Max(0, count);
		s->since[k] = s->counted[k] = 0;
	}
}

void
sas_limits_quota_end_count(int64 count, const SasQuotaView *views, int n)
{
	HASH_SEQ_STATUS scan;
	SasQuota   *s;
	QuotasCount *c;

	sas_base_table_lock(&quotas_table, LW_EXCLUSIVE);
	c = quotas_count();
	if (c != NULL && c->begun == count)
	{
		c->ended = count;
		c->counted_us = sas_base_clock_monotonic_us();
		for (int i = 0; i < n; i++)
			if ((s = quotas_enter(views[i].owner)) != NULL)
				memcpy(s->counted, views[i].used, sizeof(s->counted));
			else
				quotas_note(SAS_QUOTA_DOUBT);
		hash_seq_init(&scan, quotas_table.entries);
		while ((s = hash_seq_search(&scan)) != NULL)
			if (s->key.dboid == MyDatabaseId)
				quotas_set(s);
	}
	sas_base_table_unlock(&quotas_table);
}

int64
sas_limits_quota_counted_us_ago(bool *doubtful)
{
	int64		ago = -1;
	const QuotasCount *c;

	*doubtful = false;
	if (!sas_base_table_lock(&quotas_table, LW_SHARED))
		return 0;
	c = quotas_count();
	if (c != NULL && c->counted_us != 0)
		ago = Max(0, sas_base_clock_monotonic_us() - c->counted_us);
	*doubtful = ago < 0 || c->ended != c->doubts;
	sas_base_table_unlock(&quotas_table);
	return ago;
}

int
sas_limits_quota_view(SasQuotaView **views)
{
	HASH_SEQ_STATUS scan;
	SasQuota   *s;
	int			n = 0;

	*views = palloc(sizeof(SasQuotaView) * sas_base_max_owners);
	if (!sas_base_table_lock(&quotas_table, LW_SHARED))
		return 0;
	hash_seq_init(&scan, quotas_table.entries);
	while ((s = hash_seq_search(&scan)) != NULL)
		if (s->key.dboid == MyDatabaseId && OidIsValid(s->key.owner))
		{
			(*views)[n].owner = s->key.owner;
			for (int k = 0; k < SAS_QUOTA_KINDS; k++)
				(*views)[n].used[k] = s->counts[k] + s->taken[k];
			n++;
		}
	sas_base_table_unlock(&quotas_table);
	return n;
}
