/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water.c: low-water marks; see low_water.h.
 *
 * The first scan of a lane or of due rows makes an entry. A missing entry has
 * no mark, so there is nothing to lower: a scan that makes the entry
 * afterwards takes its snapshot afterwards, too, and sees the row. So an entry
 * may be removed at any time, and a scan that finds no room begins at the
 * first row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "wake/low_water.h"

/* of one transaction; with more, all marks of the database are reset */
#define SAS_LOW_WATER_NOTES 64
/* a token that a transaction has for longer, because it stays open, may be taken by another scan */
#define SAS_TOKEN_US 1000000

/* A lane that no scan has read for so long makes room for others. */
#define SAS_LOW_WATER_IDLE_US 10000000

typedef struct SasLowWaterKey
{
	Oid			dboid;
	SasLowWaterKind kind;
	int			n;
} SasLowWaterKey;

typedef struct SasLowWater
{
	SasLowWaterKey key;
	TimestampTz mark;			/* no row can be seen before it */
	TimestampTz noted_low;		/* the least that was noted since the token was taken */
	uint64		token;			/* of the scan that may raise the mark; 0: free */
	int64		taken_us;
	int64		begun_us;		/* the last scan */
	int64		checked_us;
} SasLowWater;

typedef struct SasLowWaterNote
{
	SasLowWaterKind kind;
	int			n;
	TimestampTz at;
} SasLowWaterNote;

typedef struct SasLowWaterScan
{
	SasLowWaterKey key;
	uint64		token;
	bool		found;
	TimestampTz first;
} SasLowWaterScan;

static bool
low_water_is_idle(const void *entry, int64 now)
{
	return now - ((const SasLowWater *) entry)->begun_us > SAS_LOW_WATER_IDLE_US;
}

static SasSharedTable low_water_table = {
	.name = "low-water marks",.setting = "sas.max_low_water_marks",.capacity = &sas_base_max_low_water_marks,
	.key_size = sizeof(SasLowWaterKey),.entry_size = sizeof(SasLowWater),.idle = low_water_is_idle
};

/* Of this transaction. */
static SasLowWaterNote low_water_notes[SAS_LOW_WATER_NOTES];
static int	low_water_n_notes = 0;
static bool low_water_noted_all = false;
static SasLowWaterScan low_water_scans[SAS_LOW_WATER_NOTES];
static int	low_water_n_scans = 0;

/* With the lock held; NULL: there is no room. */
static SasLowWater *
low_water_find_or_make(const SasLowWaterKey *key, int64 now)
{
	SasLowWater *f = sas_base_table_find(&low_water_table, key);

	if (f == NULL && (f = sas_base_table_enter(&low_water_table, key)) != NULL)
	{
		f->mark = f->noted_low = DT_NOBEGIN;
		f->checked_us = now;
	}
	return f;
}

/* ---------------------------------------------------------------- rows come */

void
sas_wake_low_water_note(SasLowWaterKind kind, int n, TimestampTz at)
{
	if (low_water_table.state == NULL || low_water_noted_all)
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
	f->mark = Min(f->mark, at);
	f->noted_low = Min(f->noted_low, at);
}

void
sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, TimestampTz at)
{
	SasLowWaterKey key = {dboid, kind, n};
	SasLowWater *f;

	if (!sas_base_table_lock(&low_water_table, LW_EXCLUSIVE))
		return;
	f = sas_base_table_find(&low_water_table, &key);
	if (f != NULL)
		low_water_lower_entry(f, at);
	sas_base_table_unlock(&low_water_table);
}

void
sas_wake_low_water_lower_all(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	SasLowWater *f;

	if (!sas_base_table_lock(&low_water_table, LW_EXCLUSIVE))
		return;
	hash_seq_init(&scan, low_water_table.entries);
	while ((f = hash_seq_search(&scan)) != NULL)
		if (f->key.dboid == dboid)
			low_water_lower_entry(f, DT_NOBEGIN);
	sas_base_table_unlock(&low_water_table);
}

/* ---------------------------------------------------------------- looks */

static bool
low_water_has_scan(SasLowWaterKind kind, int n)
{
	for (int i = 0; i < low_water_n_scans; i++)
		if (low_water_scans[i].key.kind == kind && low_water_scans[i].key.n == n)
			return true;
	return false;
}

/* With the lock held: the scan may raise the mark, unless another may. */
static void
low_water_take_token(SasLowWater *f, int64 now)
{
	static uint32 last = 0;

	/* a snapshot of the whole transaction may be older than what was noted since: it sees less, and raises nothing */
	if (IsolationUsesXactSnapshot() || low_water_n_scans == SAS_LOW_WATER_NOTES ||
		low_water_has_scan(f->key.kind, f->key.n) || (f->token != 0 && now - f->taken_us <= SAS_TOKEN_US))
		return;
	f->token = (uint64) MyProcPid << 32 | ++last;
	f->taken_us = now;
	f->noted_low = DT_NOEND;
	low_water_scans[low_water_n_scans++] = (SasLowWaterScan) {f->key, f->token, false, 0};
}

TimestampTz
sas_wake_low_water_begin(SasLowWaterKind kind, int n)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n};
	int64		now = sas_base_clock_monotonic_us();
	TimestampTz mark = DT_NOBEGIN;
	SasLowWater *f;

	if (low_water_noted_all || !sas_base_table_lock(&low_water_table, LW_EXCLUSIVE))
		return DT_NOBEGIN;
	f = low_water_find_or_make(&key, now);
	if (f != NULL)
	{
		mark = f->mark;
		f->begun_us = now;
		low_water_take_token(f, now);
	}
	sas_base_table_unlock(&low_water_table);
	for (int i = 0; i < low_water_n_notes; i++)
		if (low_water_notes[i].kind == kind && low_water_notes[i].n == n)
			mark = Min(mark, low_water_notes[i].at);
	return mark;
}

void
sas_wake_low_water_raise(SasLowWaterKind kind, int n, TimestampTz first)
{
	for (int i = 0; i < low_water_n_scans; i++)
		if (low_water_scans[i].key.kind == kind && low_water_scans[i].key.n == n)
		{
			low_water_scans[i].found = true;
			low_water_scans[i].first = first;
		}
}

/* Gives the tokens back; committed: also raises their marks. */
static void
low_water_end_scans(bool committed)
{
	if (low_water_n_scans == 0)
		return;
	sas_base_table_lock(&low_water_table, LW_EXCLUSIVE);
	for (int i = 0; i < low_water_n_scans; i++)
	{
		SasLowWaterScan *scan = &low_water_scans[i];
		SasLowWater *f = sas_base_table_find(&low_water_table, &scan->key);

		/* another scan may have taken the token since, or the entry may be a new one */
		if (f == NULL || f->token != scan->token)
			continue;
		f->token = 0;
		if (committed && scan->found)
			f->mark = Min(scan->first, f->noted_low);
	}
	sas_base_table_unlock(&low_water_table);
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
	if (event == SUBXACT_EVENT_ABORT_SUB)
		low_water_end_scans(false);
}

void
sas_wake_low_water_install(void)
{
	sas_base_table_register(&low_water_table);
	RegisterSubXactCallback(low_water_subxact_callback, NULL);
}

/* ---------------------------------------------------------------- seeing them */

int
sas_wake_low_water_view(SasLowWaterView **views, int64 unchecked_for_us)
{
	int64		now = sas_base_clock_monotonic_us();
	HASH_SEQ_STATUS scan;
	SasLowWater *f;
	int			n = 0;

	*views = palloc(sizeof(SasLowWaterView) * sas_base_max_low_water_marks);
	if (!sas_base_table_lock(&low_water_table, LW_EXCLUSIVE))
		return 0;
	hash_seq_init(&scan, low_water_table.entries);
	while ((f = hash_seq_search(&scan)) != NULL)
	{
		if (f->key.dboid != MyDatabaseId || (unchecked_for_us > 0 && now - f->checked_us <= unchecked_for_us))
			continue;
		if (unchecked_for_us > 0)
			f->checked_us = now;
		(*views)[n++] = (SasLowWaterView) {f->key.kind, f->key.n, f->mark};
	}
	sas_base_table_unlock(&low_water_table);
	return n;
}
