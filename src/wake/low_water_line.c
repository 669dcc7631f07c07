/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water_line.c: the owners that have steps in a lane, messages to an
 * actor, or schedules, in line for their turn; see low_water.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "base/settings.h"
#include "wake/low_water_shmem.h"

bool
sas_wake_line_is_line(const SasLowWater *f)
{
	return f->key.kind != SAS_LOW_WATER_UNTIMED && !OidIsValid(f->key.owner);
}

SasLowWater *
sas_wake_line_of(const SasLowWaterKey *key)
{
	SasLowWaterKey all = {key->dboid, key->kind, key->n, InvalidOid};

	return sas_base_table_find(&sas_wake_low_water_table, &all);
}

static SasLowWater *
low_water_line_find(SasLowWaterKind kind, int n)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, InvalidOid};

	return sas_wake_line_of(&key);
}

void
sas_wake_line_remove(SasLowWater *line, SasLowWater *f)
{
	if (!f->listed)
		return;
	dlist_delete(&f->node);
	f->listed = false;
	line->n_listed--;
}

/* The place is looked for from the end: few others have been served since this owner was. */
void
sas_wake_line_insert(SasLowWater *line, SasLowWater *f)
{
	dlist_node *before;

	if (f->listed)
		return;
	for (before = line->owners.head.prev; before != &line->owners.head; before = before->prev)
		if (dlist_container(SasLowWater, node, before)->served <= f->served)
			break;
	dlist_insert_after(before, &f->node);
	f->listed = true;
	line->n_listed++;
}

/* Not all owners with rows are in line. */
void
sas_wake_line_lose(SasLowWater *line)
{
	line->complete = false;
	line->finding = 0;
}

/* An owner in line is unknown from now on; of a line that is removed, all are found again. */
void
sas_wake_line_removing(void *entry)
{
	SasLowWater *f = entry;
	SasLowWater *line;

	if (sas_wake_line_is_line(f))
		while (!dlist_is_empty(&f->owners))
			sas_wake_line_remove(f, dlist_head_element(SasLowWater, node, &f->owners));
	else if (f->listed && (line = sas_wake_line_of(&f->key)) != NULL)
	{
		sas_wake_line_remove(line, f);
		sas_wake_line_lose(line);
	}
}

/* ---------------------------------------------------------------- turns of owners */

static uint64 low_water_line_finding = 0;	/* when this session last looked for unknown owners */

void
sas_wake_lines_begin_finding(void)
{
	low_water_line_finding = sas_wake_low_water_unique();
}

bool
sas_wake_line_is_unknown(SasLowWaterKind kind, int n)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, InvalidOid};
	int64		now = sas_base_clock_monotonic_us();
	bool		unknown = true;
	SasLowWater *f;

	if (sas_wake_low_water_noted_all || !sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return true;
	f = sas_wake_low_water_find_or_make(&key, now);
	if (f != NULL)
	{
		f->begun_us = now;
		unknown = !f->complete;
		if (unknown)
			f->finding = low_water_line_finding;
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	return unknown;
}

void
sas_wake_line_add_owner(SasLowWaterKind kind, int n, Oid owner, TimestampTz first)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, owner};
	bool		added = false;

	/* an old snapshot has not seen what was noted before the line was made */
	if (IsolationUsesXactSnapshot())
		first = DT_NOBEGIN;
	if (sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
	{
		added = sas_wake_low_water_lower_key(&key, first) && sas_wake_line_of(&key) != NULL;
		sas_base_table_unlock(&sas_wake_low_water_table);
	}
	/* without room it is known to this transaction only, as one whose row it has written */
	if (!added)
		sas_wake_low_water_note(kind, n, owner, first);
}

void
sas_wake_line_found_owners(SasLowWaterKind kind, int n)
{
	SasLowWater *f;

	if (IsolationUsesXactSnapshot() || !sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	f = low_water_line_find(kind, n);
	if (f != NULL && f->finding == low_water_line_finding)
		f->complete = true;
	sas_base_table_unlock(&sas_wake_low_water_table);
}

void
sas_wake_line_forget_owners(SasLowWaterKind kind, int n)
{
	SasLowWater *f;

	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	if ((f = low_water_line_find(kind, n)) != NULL)
		sas_wake_line_lose(f);
	sas_base_table_unlock(&sas_wake_low_water_table);
}

int
sas_wake_line_owners(SasLowWaterKind kind, int n, Oid *owners, int max)
{
	SasLowWater *line;
	dlist_iter	i;
	int			found = -1;

	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_SHARED))
		return -1;
	line = low_water_line_find(kind, n);
	if (line != NULL && line->complete && line->n_listed <= max)
	{
		found = 0;
		dlist_foreach(i, &line->owners)
			owners[found++] = dlist_container(SasLowWater, node, i.cur)->key.owner;
	}
	sas_base_table_unlock(&sas_wake_low_water_table);
	return found;
}

/* Owners that only this transaction knows there, from any one on. */
static void
low_water_line_add_own(SasLowWater *line, const SasLowWaterKey *all, TimestampTz until, SasOwnerTurns *turns)
{
	int			from = sas_wake_low_water_n_notes == 0 ? 0 : sas_base_clock_monotonic_us() % sas_wake_low_water_n_notes;

	for (int i = 0; i < sas_wake_low_water_n_notes; i++)
	{
		const SasLowWaterNote *note = &sas_wake_low_water_notes[(from + i) % sas_wake_low_water_n_notes];
		SasLowWaterKey key = {MyDatabaseId, all->kind, all->n, note->owner};
		SasLowWater *f;
		bool		known = false;

		if (note->kind != all->kind || note->n != all->n || note->at > until)
			continue;
		f = line == NULL ? NULL : sas_base_table_find(&sas_wake_low_water_table, &key);
		for (int k = 0; k < turns->n && !known; k++)
			known = turns->owners[k] == note->owner;
		if (known || (f != NULL && f->listed && f->mark <= until))
			continue;
		turns->owners[turns->n] = note->owner;
		turns->marks[turns->n++] = note->at;
	}
}

/* How many have a row until then, perhaps?  Without a bound this is known. */
static int
low_water_line_count(SasLowWater *line, TimestampTz until)
{
	dlist_iter	i;
	int			n = 0;

	if (line == NULL || until == DT_NOEND)
		return line == NULL ? 0 : line->n_listed;
	dlist_foreach(i, &line->owners)
		n += dlist_container(SasLowWater, node, i.cur)->mark <= until;
	return n;
}

/* Takes the first owners out of the line, at most that many. */
static int
low_water_line_take(SasLowWater *line, int most, TimestampTz until, SasLowWater **taken)
{
	dlist_mutable_iter i;
	int			n = 0;

	dlist_foreach_modify(i, &line->owners)
	{
		SasLowWater *f = dlist_container(SasLowWater, node, i.cur);

		if (n == most)
			break;
		if (f->mark > until)
			continue;
		sas_wake_line_remove(line, f);
		taken[n++] = f;
	}
	return n;
}

void
sas_wake_line_next_owners(SasLowWaterKind kind, int n, int most, TimestampTz until, SasOwnerTurns *turns)
{
	SasLowWaterKey key = {MyDatabaseId, kind, n, InvalidOid};
	int64		now = sas_base_clock_monotonic_us();
	bool		first = turns->left < 0;
	SasLowWater *line;
	SasLowWater **taken;

	/* no line is longer */
	most = Min(most, sas_base_max_low_water_marks);
	sas_wake_low_water_room_for_scans(most);
	turns->n = 0;
	turns->owners = palloc(sizeof(Oid) * (most + sas_wake_low_water_n_notes));
	turns->marks = palloc(sizeof(TimestampTz) * (most + sas_wake_low_water_n_notes));
	taken = palloc(sizeof(SasLowWater *) * most);
	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		line = NULL;
	else
		line = sas_wake_line_of(&key);
	if (first)
		turns->left = low_water_line_count(line, until);
	most = line == NULL ? 0 : low_water_line_take(line, Min(most, turns->left), until, taken);
	turns->left = most == 0 ? 0 : turns->left - most;
	/* of those that are served together, the last one is the first one next time */
	if (most > 0)
		line->turn += most;
	for (int i = 0; i < most; i++)
	{
		SasLowWater *o = taken[i];

		o->served = line->turn - i;
		o->begun_us = now;
		sas_wake_low_water_take_token(o, now);
		turns->owners[turns->n] = o->key.owner;
		turns->marks[turns->n++] = sas_wake_low_water_noted_all ? DT_NOBEGIN : sas_wake_low_water_own(kind, n, o->key.owner, o->mark);
	}
	for (int i = most - 1; i >= 0; i--)
		sas_wake_line_insert(line, taken[i]);
	if (first)
		low_water_line_add_own(line, &key, until, turns);
	if (sas_wake_low_water_table.state != NULL)
		sas_base_table_unlock(&sas_wake_low_water_table);
}
