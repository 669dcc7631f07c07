/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water.c: low-water marks; see low_water.h.
 *
 * The first scan of a lane or of due rows makes an entry, which is never
 * removed. A spinlock of its own guards the numbers of an entry; one lock
 * for all guards finding (shared) and making entries. A missing entry has no
 * mark, so there is nothing to lower: a scan that makes the entry afterwards
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
#include "wake/low_water.h"

#define SAS_LOW_WATER_ENTRIES 1024
/* of one transaction; with more, all marks of the database are reset */
#define SAS_LOW_WATER_NOTES 64
/* a token that a transaction has for longer, because it stays open, may be taken by another scan */
#define SAS_TOKEN_US 1000000

typedef struct SasLowWater
{
	Oid			dboid;			/* InvalidOid: free */
	SasLowWaterKind kind;
	int			n;
	slock_t		mutex;
	TimestampTz mark;			/* no row can be seen before it */
	TimestampTz noted_low;		/* the least that was noted since the token was taken */
	uint64		token;			/* of the scan that may raise the mark; 0: free */
	int64		taken_us;
	int64		checked_us;
} SasLowWater;

typedef struct SasLowWaterShmem
{
	LWLock		lock;
	pg_atomic_uint64 next_token;
	SasLowWater	entries[SAS_LOW_WATER_ENTRIES];
} SasLowWaterShmem;

typedef struct SasLowWaterNote
{
	SasLowWaterKind kind;
	int			n;
	TimestampTz at;
} SasLowWaterNote;

typedef struct SasLowWaterScan
{
	SasLowWater *entry;
	uint64		token;
	bool		found;
	TimestampTz first;
} SasLowWaterScan;

static SasLowWaterShmem *low_water_shmem = NULL;

/* Of this transaction. */
static SasLowWaterNote low_water_notes[SAS_LOW_WATER_NOTES];
static int	low_water_n_notes = 0;
static bool low_water_noted_all = false;
static SasLowWaterScan low_water_scans[SAS_LOW_WATER_NOTES];
static int	low_water_n_scans = 0;

Size
sas_wake_low_water_shmem_size(void)
{
	return sizeof(SasLowWaterShmem);
}

/* With AddinShmemInitLock held. */
void
sas_wake_low_water_shmem_init(void)
{
	bool		found;

	low_water_shmem = ShmemInitStruct("sas low-water marks", sizeof(SasLowWaterShmem), &found);
	if (!found)
	{
		memset(low_water_shmem, 0, sizeof(SasLowWaterShmem));
		LWLockInitialize(&low_water_shmem->lock, LWLockNewTrancheId());
		pg_atomic_init_u64(&low_water_shmem->next_token, 1);
		for (int i = 0; i < SAS_LOW_WATER_ENTRIES; i++)
			SpinLockInit(&low_water_shmem->entries[i].mutex);
	}
	LWLockRegisterTranche(low_water_shmem->lock.tranche, "sas_fronts");
}

/* With the lock held. NULL: there is no entry, and *room is where it belongs; NULL when all are taken. */
static SasLowWater *
low_water_find(Oid dboid, SasLowWaterKind kind, int n, SasLowWater **room)
{
	uint32		h = hash_combine(hash_combine(murmurhash32(dboid), (uint32) kind), murmurhash32((uint32) n));

	*room = NULL;
	for (int i = 0; i < SAS_LOW_WATER_ENTRIES; i++)
	{
		SasLowWater *f = &low_water_shmem->entries[(h + i) % SAS_LOW_WATER_ENTRIES];

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

static SasLowWater *
low_water_find_or_make(SasLowWaterKind kind, int n)
{
	SasLowWater *room;
	SasLowWater *f;

	LWLockAcquire(&low_water_shmem->lock, LW_SHARED);
	f = low_water_find(MyDatabaseId, kind, n, &room);
	LWLockRelease(&low_water_shmem->lock);
	if (f != NULL || room == NULL)
		return f;
	LWLockAcquire(&low_water_shmem->lock, LW_EXCLUSIVE);
	f = low_water_find(MyDatabaseId, kind, n, &room);
	if (f == NULL && room != NULL)
	{
		f = room;
		f->kind = kind;
		f->n = n;
		f->mark = f->noted_low = DT_NOBEGIN;
		f->token = 0;
		f->checked_us = sas_base_clock_monotonic_us();
		f->dboid = MyDatabaseId;
	}
	LWLockRelease(&low_water_shmem->lock);
	return f;
}

/* ---------------------------------------------------------------- rows come */

void
sas_wake_low_water_note(SasLowWaterKind kind, int n, TimestampTz at)
{
	if (low_water_shmem == NULL || low_water_noted_all)
		return;
	for (int i = low_water_n_notes - 1; i >= 0; i--)
		if (low_water_notes[i].kind == kind && low_water_notes[i].n == n)
		{
			low_water_notes[i].at = Min(low_water_notes[i].at, at);
			return;
		}
	if (low_water_n_notes == SAS_LOW_WATER_NOTES)
	{
		low_water_noted_all = true;
		return;
	}
	low_water_notes[low_water_n_notes++] = (SasLowWaterNote) {kind, n, at};
}

static void
low_water_lower_entry(SasLowWater *f, TimestampTz at)
{
	SpinLockAcquire(&f->mutex);
	f->mark = Min(f->mark, at);
	f->noted_low = Min(f->noted_low, at);
	SpinLockRelease(&f->mutex);
}

void
sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, TimestampTz at)
{
	SasLowWater *room;
	SasLowWater *f;

	if (low_water_shmem == NULL)
		return;
	LWLockAcquire(&low_water_shmem->lock, LW_SHARED);
	f = low_water_find(dboid, kind, n, &room);
	if (f != NULL)
		low_water_lower_entry(f, at);
	LWLockRelease(&low_water_shmem->lock);
}

void
sas_wake_low_water_lower_all(Oid dboid)
{
	if (low_water_shmem == NULL)
		return;
	LWLockAcquire(&low_water_shmem->lock, LW_SHARED);
	for (int i = 0; i < SAS_LOW_WATER_ENTRIES; i++)
		if (low_water_shmem->entries[i].dboid == dboid)
			low_water_lower_entry(&low_water_shmem->entries[i], DT_NOBEGIN);
	LWLockRelease(&low_water_shmem->lock);
}

/* ---------------------------------------------------------------- looks */

static SasLowWaterScan *
low_water_scan_of(const SasLowWater *f)
{
	for (int i = 0; i < low_water_n_scans; i++)
		if (low_water_scans[i].entry == f)
			return &low_water_scans[i];
	return NULL;
}

TimestampTz
sas_wake_low_water_begin(SasLowWaterKind kind, int n)
{
	SasLowWater *f;
	TimestampTz mark;
	uint64		token = 0;

	/* a snapshot of the whole transaction may be older than what was noted since: it sees less, and raises nothing */
	bool		may_raise = !IsolationUsesXactSnapshot() && low_water_n_scans < SAS_LOW_WATER_NOTES;

	if (low_water_shmem == NULL || low_water_noted_all || (f = low_water_find_or_make(kind, n)) == NULL)
		return DT_NOBEGIN;
	if (may_raise && low_water_scan_of(f) == NULL)
		token = pg_atomic_fetch_add_u64(&low_water_shmem->next_token, 1);
	SpinLockAcquire(&f->mutex);
	mark = f->mark;
	if (token != 0)
	{
		int64		now = sas_base_clock_monotonic_us();

		if (f->token == 0 || now - f->taken_us > SAS_TOKEN_US)
		{
			f->token = token;
			f->taken_us = now;
			f->noted_low = DT_NOEND;
		}
		else
			token = 0;
	}
	SpinLockRelease(&f->mutex);
	if (token != 0)
		low_water_scans[low_water_n_scans++] = (SasLowWaterScan) {f, token, false, 0};
	for (int i = 0; i < low_water_n_notes; i++)
		if (low_water_notes[i].kind == kind && low_water_notes[i].n == n)
			mark = Min(mark, low_water_notes[i].at);
	return mark;
}

void
sas_wake_low_water_raise(SasLowWaterKind kind, int n, TimestampTz first)
{
	for (int i = 0; i < low_water_n_scans; i++)
		if (low_water_scans[i].entry->kind == kind && low_water_scans[i].entry->n == n)
		{
			low_water_scans[i].found = true;
			low_water_scans[i].first = first;
		}
}

/* Gives the tokens back; committed: also raises their marks. */
static void
low_water_end_scans(bool committed)
{
	for (int i = 0; i < low_water_n_scans; i++)
	{
		SasLowWater *f = low_water_scans[i].entry;

		SpinLockAcquire(&f->mutex);
		if (f->token == low_water_scans[i].token)
		{
			f->token = 0;
			if (committed && low_water_scans[i].found)
				f->mark = Min(low_water_scans[i].first, f->noted_low);
		}
		SpinLockRelease(&f->mutex);
	}
	low_water_n_scans = 0;
}

void
sas_wake_low_water_commit(void)
{
	low_water_end_scans(true);
	if (low_water_noted_all)
		sas_wake_low_water_lower_all(MyDatabaseId);
	else
		for (int i = 0; i < low_water_n_notes; i++)
			sas_wake_low_water_lower(MyDatabaseId, low_water_notes[i].kind, low_water_notes[i].n, low_water_notes[i].at);
	sas_wake_low_water_forget();
}

void
sas_wake_low_water_forget(void)
{
	low_water_end_scans(false);
	low_water_n_notes = 0;
	low_water_noted_all = false;
}

/* The rows that a subtransaction deleted are back, and a scan within it did not see them. */
static void
low_water_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && low_water_n_scans > 0)
		low_water_end_scans(false);
}

void
sas_wake_low_water_install(void)
{
	RegisterSubXactCallback(low_water_subxact_callback, NULL);
}

/* ---------------------------------------------------------------- seeing them */

int
sas_wake_low_water_view(SasLowWaterView **views, int64 unchecked_for_us)
{
	int64		now = sas_base_clock_monotonic_us();
	int			n = 0;

	*views = palloc(sizeof(SasLowWaterView) * SAS_LOW_WATER_ENTRIES);
	if (low_water_shmem == NULL)
		return 0;
	LWLockAcquire(&low_water_shmem->lock, LW_SHARED);
	for (int i = 0; i < SAS_LOW_WATER_ENTRIES; i++)
	{
		SasLowWater *f = &low_water_shmem->entries[i];
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
		(*views)[n] = (SasLowWaterView) {f->kind, f->n, f->mark};
		SpinLockRelease(&f->mutex);
		n += wanted;
	}
	LWLockRelease(&low_water_shmem->lock);
	return n;
}
