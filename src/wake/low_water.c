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
#include "base/grow.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/settings.h"
#include "wake/low_water_shmem.h"

/*
 * keys of one transaction: a new key is compared with the last ones; with more
 * distinct keys than this, all marks of the database are reset
 */
#define SAS_LOW_WATER_RECENT 64
#define SAS_LOW_WATER_NOTES 100000
/* a token that a transaction has for longer, because it stays open, may be taken by another scan */
#define SAS_TOKEN_US 1000000

/* A lane that no scan has read for so long makes room for others. */
#define SAS_LOW_WATER_IDLE_US 10000000

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

SasSharedTable sas_wake_low_water_table = {
	.name = "low-water marks",.setting = "sas.max_low_water_marks",.capacity = &sas_base_max_low_water_marks,
	.key_size = sizeof(SasLowWaterKey),.entry_size = sizeof(SasLowWater),.idle = low_water_is_idle,.removing = sas_wake_line_removing
};

/* Of this transaction. */
SasLowWaterNote *sas_wake_low_water_notes = NULL;
int			sas_wake_low_water_n_notes = 0;
static int	low_water_room_notes = 0;
bool		sas_wake_low_water_noted_all = false;
static SasLowWaterScan *low_water_scans = NULL;
static int	low_water_n_scans = 0;
static int	low_water_room_scans = 0;

uint64
sas_wake_low_water_unique(void)
{
	static uint32 last = 0;

	return (uint64) MyProcPid << 32 | ++last;
}

/* With the lock held; NULL: there is no room. */
SasLowWater *
sas_wake_low_water_find_or_make(const SasLowWaterKey *key, int64 now)
{
	SasLowWater *f = sas_base_table_find(&sas_wake_low_water_table, key);

	if (f == NULL && (f = sas_base_table_enter(&sas_wake_low_water_table, key)) != NULL)
	{
		f->mark = f->noted_low = OidIsValid(key->owner) ? DT_NOEND : DT_NOBEGIN;
		f->checked_us = f->begun_us = now;
		dlist_init(&f->owners);
	}
	return f;
}

/* ---------------------------------------------------------------- rows come */

void
sas_wake_low_water_note(SasLowWaterKind kind, int n, Oid owner, TimestampTz at)
{
	if (sas_wake_low_water_noted_all)
		return;
	if (kind == SAS_LOW_WATER_LANE && n < 0)
		sas_wake_low_water_note(SAS_LOW_WATER_DUE, SAS_LOW_WATER_QUEUES, InvalidOid, DT_NOBEGIN);
	for (int i = sas_wake_low_water_n_notes - 1; i >= Max(0, sas_wake_low_water_n_notes - SAS_LOW_WATER_RECENT); i--)
	{
		SasLowWaterNote *note = &sas_wake_low_water_notes[i];

		if (note->kind == kind && note->n == n && note->owner == owner)
		{
			note->at = Min(note->at, at);
			return;
		}
	}
	if (sas_wake_low_water_n_notes >= SAS_LOW_WATER_NOTES)
	{
		sas_wake_low_water_noted_all = true;
		return;
	}
	sas_wake_low_water_notes = sas_base_grow(TopMemoryContext, sas_wake_low_water_notes, sas_wake_low_water_n_notes, &low_water_room_notes, sizeof(SasLowWaterNote));
	sas_wake_low_water_notes[sas_wake_low_water_n_notes++] = (SasLowWaterNote) {kind, n, owner, at};
}

static void
low_water_lower_entry(SasLowWater *f, TimestampTz at)
{
	f->mark = Min(f->mark, at);
	f->noted_low = Min(f->noted_low, at);
}

/* With the lock held; false: there is no room for the owner. */
bool
sas_wake_low_water_lower_key(const SasLowWaterKey *key, TimestampTz at)
{
	SasLowWater *f = sas_base_table_find(&sas_wake_low_water_table, key);
	SasLowWater *line = sas_wake_line_of(key);

	/* a new entry may take the room of the line */
	if (f == NULL && line != NULL)
	{
		f = sas_wake_low_water_find_or_make(key, sas_base_clock_monotonic_us());
		line = sas_wake_line_of(key);
	}
	if (f != NULL)
		low_water_lower_entry(f, at);
	if (line == NULL || line == f)
		return f != NULL;
	low_water_lower_entry(line, at);
	if (f == NULL)
		sas_wake_line_lose(line);
	else
		sas_wake_line_insert(line, f);
	return f != NULL;
}

void
sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, Oid owner, TimestampTz at)
{
	SasLowWaterKey key = {dboid, kind, n, owner};

	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	(void) sas_wake_low_water_lower_key(&key, at);
	sas_base_table_unlock(&sas_wake_low_water_table);
}

void
sas_wake_low_water_lower_all(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	SasLowWater *f;

	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	hash_seq_init(&scan, sas_wake_low_water_table.entries);
	while ((f = hash_seq_search(&scan)) != NULL)
		if (f->key.dboid == dboid)
		{
			low_water_lower_entry(f, DT_NOBEGIN);
			if (sas_wake_line_is_line(f))
				sas_wake_line_lose(f);
		}
	sas_base_table_unlock(&sas_wake_low_water_table);
}

/* ---------------------------------------------------------------- views */

static bool
low_water_has_scan(const SasLowWaterKey *key)
{
	for (int i = 0; i < low_water_n_scans; i++)
		if (memcmp(&low_water_scans[i].key, key, sizeof(*key)) == 0)
			return true;
	return false;
}

/* With the lock held, and room for a scan: it may raise the mark, unless another may. */
void
sas_wake_low_water_take_token(SasLowWater *f, int64 now)
{
	/* a snapshot of the whole transaction may be older than what was noted since: it sees less, and raises nothing */
	if (IsolationUsesXactSnapshot() || low_water_n_scans == low_water_room_scans ||
		(f->token != 0 && (now - f->taken_us <= SAS_TOKEN_US || low_water_has_scan(&f->key))))
		return;
	f->token = sas_wake_low_water_unique();
	f->taken_us = now;
	f->noted_low = DT_NOEND;
	low_water_scans[low_water_n_scans++] = (SasLowWaterScan) {f->key, f->token, false, 0};
}

TimestampTz
sas_wake_low_water_own(SasLowWaterKind kind, int n, Oid owner, TimestampTz mark)
{
	for (int i = 0; i < sas_wake_low_water_n_notes; i++)
		if (sas_wake_low_water_notes[i].kind == kind && sas_wake_low_water_notes[i].n == n &&
			(!OidIsValid(owner) || sas_wake_low_water_notes[i].owner == owner))
			mark = Min(mark, sas_wake_low_water_notes[i].at);
	return mark;
}

void
sas_wake_low_water_room_for_scans(int n)
{
	while (low_water_n_scans + n > low_water_room_scans)
		low_water_scans = sas_base_grow(TopMemoryContext, low_water_scans, low_water_room_scans, &low_water_room_scans, sizeof(SasLowWaterScan));
}

TimestampTz
sas_wake_low_water_begin(SasLowWaterKind kind, int n, Oid owner)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, owner};
	int64		now = sas_base_clock_monotonic_us();
	TimestampTz mark = DT_NOBEGIN;
	SasLowWater *f;

	sas_wake_low_water_room_for_scans(1);
	if (sas_wake_low_water_noted_all || !sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return DT_NOBEGIN;
	f = sas_wake_low_water_find_or_make(&key, now);
	if (f != NULL)
	{
		mark = f->mark;
		f->begun_us = now;
		sas_wake_low_water_take_token(f, now);
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	return sas_wake_low_water_own(kind, n, owner, mark);
}

TimestampTz
sas_wake_low_water_look(SasLowWaterKind kind, int n)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, InvalidOid};
	TimestampTz mark = DT_NOBEGIN;
	SasLowWater *f;

	if (sas_wake_low_water_noted_all || !sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return DT_NOBEGIN;
	f = sas_base_table_find(&sas_wake_low_water_table, &key);
	if (f != NULL)
	{
		mark = f->mark;
		/* it is in use, and keeps its room */
		f->begun_us = sas_base_clock_monotonic_us();
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	return sas_wake_low_water_own(kind, n, InvalidOid, mark);
}

void
sas_wake_low_water_raise(SasLowWaterKind kind, int n, Oid owner, TimestampTz first)
{
	for (int i = low_water_n_scans - 1; i >= 0; i--)
	{
		SasLowWaterScan *scan = &low_water_scans[i];

		if (scan->key.kind == kind && scan->key.n == n && scan->key.owner == owner)
		{
			scan->found = true;
			scan->first = first;
			return;
		}
	}
}

/* Gives the tokens back; committed: also raises their marks. */
static void
low_water_end_scans(bool committed)
{
	if (low_water_n_scans == 0)
		return;
	sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE);
	for (int i = 0; i < low_water_n_scans; i++)
	{
		SasLowWaterScan *scan = &low_water_scans[i];
		SasLowWater *f = sas_base_table_find(&sas_wake_low_water_table, &scan->key);

		/* another scan may have taken the token since, or the entry may be a new one */
		if (f == NULL || f->token != scan->token)
			continue;
		f->token = 0;
		if (!committed || !scan->found)
			continue;
		f->mark = Min(scan->first, f->noted_low);
		if (f->mark == DT_NOEND && f->listed)
			sas_wake_line_remove(sas_wake_line_of(&f->key), f);
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	low_water_n_scans = 0;
}

void
sas_wake_low_water_commit(void)
{
	low_water_end_scans(true);
	if (sas_wake_low_water_noted_all)
		sas_wake_low_water_lower_all(MyDatabaseId);
	else
		for (int i = 0; i < sas_wake_low_water_n_notes; i++)
			sas_wake_low_water_lower(MyDatabaseId, sas_wake_low_water_notes[i].kind, sas_wake_low_water_notes[i].n, sas_wake_low_water_notes[i].owner, sas_wake_low_water_notes[i].at);
	sas_wake_low_water_forget();
}

void
sas_wake_low_water_forget(void)
{
	low_water_end_scans(false);
	sas_wake_low_water_n_notes = 0;
	sas_wake_low_water_noted_all = false;
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
	sas_base_table_register(&sas_wake_low_water_table);
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
	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return 0;
	hash_seq_init(&scan, sas_wake_low_water_table.entries);
	while ((f = hash_seq_search(&scan)) != NULL)
	{
		if (f->key.dboid != MyDatabaseId || (unchecked_for_us > 0 && now - f->checked_us <= unchecked_for_us))
			continue;
		if (unchecked_for_us > 0)
			f->checked_us = now;
		(*views)[n++] = (SasLowWaterView) {f->key.kind, f->key.n, f->key.owner, f->mark};
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	return n;
}
