/* SPDX-License-Identifier: PostgreSQL */
/*
 * front.c: the marks of fronts; see front.h.
 *
 * An entry is made by the first look at a front and never goes.  Its numbers
 * are guarded by a spinlock of its own; the lock of all is for finding
 * (shared) and making entries.  One that is missing has no mark, so whoever
 * finds none has nothing to lower: a look that makes the entry afterwards
 * takes its snapshot afterwards, too, and sees the row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "base/clock.h"
#include "wake/front.h"

#define SAS_FRONTS 1024
/* of one transaction; beyond, the marks of the whole database are taken back */
#define SAS_NOTED 64
/* a token that is kept longer, by a transaction that stays open, may be taken by another look */
#define SAS_TOKEN_US 1000000

typedef struct SasFront
{
	Oid			dboid;			/* InvalidOid: free */
	SasFrontKind kind;
	int			n;
	slock_t		mutex;
	TimestampTz mark;			/* no row can be seen before it */
	TimestampTz low;			/* the least that was noted since the token was taken */
	uint64		token;			/* of the look that may raise the mark; 0: free */
	int64		taken_us;
	int64		checked_us;
} SasFront;

typedef struct SasFronts
{
	LWLock		lock;
	pg_atomic_uint64 next_token;
	SasFront	fronts[SAS_FRONTS];
} SasFronts;

typedef struct Noted
{
	SasFrontKind kind;
	int			n;
	TimestampTz at;
} Noted;

typedef struct Look
{
	SasFront   *front;
	uint64		token;
	bool		found;
	TimestampTz first;
} Look;

static SasFronts *area = NULL;

/* Of this transaction. */
static Noted noted[SAS_NOTED];
static int	n_noted = 0;
static bool noted_all = false;
static Look looks[SAS_NOTED];
static int	n_looks = 0;

Size
sas_fronts_shmem_size(void)
{
	return sizeof(SasFronts);
}

/* With AddinShmemInitLock held. */
void
sas_fronts_shmem_init(void)
{
	bool		found;

	area = ShmemInitStruct("sas fronts", sizeof(SasFronts), &found);
	if (!found)
	{
		memset(area, 0, sizeof(SasFronts));
		LWLockInitialize(&area->lock, LWLockNewTrancheId());
		pg_atomic_init_u64(&area->next_token, 1);
		for (int i = 0; i < SAS_FRONTS; i++)
			SpinLockInit(&area->fronts[i].mutex);
	}
	LWLockRegisterTranche(area->lock.tranche, "sas_fronts");
}

/* With the lock held; NULL: there is none, and *room is where it would be, NULL when all are taken. */
static SasFront *
find(Oid dboid, SasFrontKind kind, int n, SasFront **room)
{
	uint32		h = hash_combine(hash_combine(murmurhash32(dboid), (uint32) kind), murmurhash32((uint32) n));

	*room = NULL;
	for (int i = 0; i < SAS_FRONTS; i++)
	{
		SasFront   *f = &area->fronts[(h + i) % SAS_FRONTS];

		if (!OidIsValid(f->dboid))
		{
			*room = f;
			return NULL;
		}
		if (f->dboid == dboid && f->kind == kind && f->n == n)
			return f;
	}
	return NULL;
}

static SasFront *
find_or_make(SasFrontKind kind, int n)
{
	SasFront   *room;
	SasFront   *f;

	LWLockAcquire(&area->lock, LW_SHARED);
	f = find(MyDatabaseId, kind, n, &room);
	LWLockRelease(&area->lock);
	if (f != NULL || room == NULL)
		return f;
	LWLockAcquire(&area->lock, LW_EXCLUSIVE);
	f = find(MyDatabaseId, kind, n, &room);
	if (f == NULL && room != NULL)
	{
		f = room;
		f->kind = kind;
		f->n = n;
		f->mark = f->low = DT_NOBEGIN;
		f->token = 0;
		f->checked_us = sas_clock_monotonic_us();
		f->dboid = MyDatabaseId;
	}
	LWLockRelease(&area->lock);
	return f;
}

/* ---------------------------------------------------------------- rows come */

void
sas_fronts_note(SasFrontKind kind, int n, TimestampTz at)
{
	if (area == NULL || noted_all)
		return;
	for (int i = n_noted - 1; i >= 0; i--)
		if (noted[i].kind == kind && noted[i].n == n)
		{
			noted[i].at = Min(noted[i].at, at);
			return;
		}
	if (n_noted == SAS_NOTED)
	{
		noted_all = true;
		return;
	}
	noted[n_noted++] = (Noted) {kind, n, at};
}

static void
lower(SasFront *f, TimestampTz at)
{
	SpinLockAcquire(&f->mutex);
	f->mark = Min(f->mark, at);
	f->low = Min(f->low, at);
	SpinLockRelease(&f->mutex);
}

void
sas_fronts_lower(Oid dboid, SasFrontKind kind, int n, TimestampTz at)
{
	SasFront   *room;
	SasFront   *f;

	if (area == NULL)
		return;
	LWLockAcquire(&area->lock, LW_SHARED);
	f = find(dboid, kind, n, &room);
	if (f != NULL)
		lower(f, at);
	LWLockRelease(&area->lock);
}

void
sas_fronts_lower_all(Oid dboid)
{
	if (area == NULL)
		return;
	LWLockAcquire(&area->lock, LW_SHARED);
	for (int i = 0; i < SAS_FRONTS; i++)
		if (area->fronts[i].dboid == dboid)
			lower(&area->fronts[i], DT_NOBEGIN);
	LWLockRelease(&area->lock);
}

/* ---------------------------------------------------------------- looks */

static Look *
look_at(const SasFront *f)
{
	for (int i = 0; i < n_looks; i++)
		if (looks[i].front == f)
			return &looks[i];
	return NULL;
}

TimestampTz
sas_fronts_begin(SasFrontKind kind, int n)
{
	SasFront   *f;
	TimestampTz mark;
	uint64		token = 0;

	/* a snapshot of the whole transaction may be older than what was noted since: it sees less, and raises nothing */
	bool		may_raise = !IsolationUsesXactSnapshot() && n_looks < SAS_NOTED;

	if (area == NULL || noted_all || (f = find_or_make(kind, n)) == NULL)
		return DT_NOBEGIN;
	if (may_raise && look_at(f) == NULL)
		token = pg_atomic_fetch_add_u64(&area->next_token, 1);
	SpinLockAcquire(&f->mutex);
	mark = f->mark;
	if (token != 0)
	{
		int64		now = sas_clock_monotonic_us();

		if (f->token == 0 || now - f->taken_us > SAS_TOKEN_US)
		{
			f->token = token;
			f->taken_us = now;
			f->low = DT_NOEND;
		}
		else
			token = 0;
	}
	SpinLockRelease(&f->mutex);
	if (token != 0)
		looks[n_looks++] = (Look) {f, token, false, 0};
	for (int i = 0; i < n_noted; i++)
		if (noted[i].kind == kind && noted[i].n == n)
			mark = Min(mark, noted[i].at);
	return mark;
}

void
sas_fronts_raise(SasFrontKind kind, int n, TimestampTz first)
{
	for (int i = 0; i < n_looks; i++)
		if (looks[i].front->kind == kind && looks[i].front->n == n)
		{
			looks[i].found = true;
			looks[i].first = first;
		}
}

/* Gives the tokens back; committed: and raises the marks that they stand for. */
static void
end_looks(bool committed)
{
	for (int i = 0; i < n_looks; i++)
	{
		SasFront   *f = looks[i].front;

		SpinLockAcquire(&f->mutex);
		if (f->token == looks[i].token)
		{
			f->token = 0;
			if (committed && looks[i].found)
				f->mark = Min(looks[i].first, f->low);
		}
		SpinLockRelease(&f->mutex);
	}
	n_looks = 0;
}

void
sas_fronts_commit(void)
{
	end_looks(true);
	if (noted_all)
		sas_fronts_lower_all(MyDatabaseId);
	else
		for (int i = 0; i < n_noted; i++)
			sas_fronts_lower(MyDatabaseId, noted[i].kind, noted[i].n, noted[i].at);
	sas_fronts_forget();
}

void
sas_fronts_forget(void)
{
	end_looks(false);
	n_noted = 0;
	noted_all = false;
}

/* What a subtransaction has deleted is back, and a look within it did not see it. */
static void
sas_fronts_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && n_looks > 0)
		end_looks(false);
}

void
sas_fronts_install(void)
{
	RegisterSubXactCallback(sas_fronts_subxact_callback, NULL);
}

/* ---------------------------------------------------------------- seeing them */

int
sas_fronts_view(SasFrontView **views, int64 unchecked_for_us)
{
	int64		now = sas_clock_monotonic_us();
	int			n = 0;

	*views = palloc(sizeof(SasFrontView) * SAS_FRONTS);
	if (area == NULL)
		return 0;
	LWLockAcquire(&area->lock, LW_SHARED);
	for (int i = 0; i < SAS_FRONTS; i++)
	{
		SasFront   *f = &area->fronts[i];
		bool		wanted = f->dboid == MyDatabaseId;

		if (!wanted)
			continue;
		SpinLockAcquire(&f->mutex);
		if (unchecked_for_us > 0)
		{
			wanted = now - f->checked_us > unchecked_for_us;
			if (wanted)
				f->checked_us = now;
		}
		(*views)[n] = (SasFrontView) {f->kind, f->n, f->mark};
		SpinLockRelease(&f->mutex);
		n += wanted;
	}
	LWLockRelease(&area->lock);
	return n;
}
