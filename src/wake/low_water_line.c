/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water_line.c: the owners that have steps in a lane, in line for their
 * turn; see low_water.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "base/settings.h"
#include "wake/low_water_shmem.h"

bool
sas_wake_line_is_lane(const SasLowWater *f)
{
	return f->key.kind == SAS_LOW_WATER_LANE && !OidIsValid(f->key.owner);
}

SasLowWater *
sas_wake_line_lane(Oid dboid, int n)
{
	SasLowWaterKey key = {dboid, SAS_LOW_WATER_LANE, n, InvalidOid};

	return sas_base_table_find(&sas_wake_low_water_table, &key);
}

void
sas_wake_line_remove(SasLowWater *lane, SasLowWater *f)
{
	if (!f->listed)
		return;
	dlist_delete(&f->node);
	f->listed = false;
	lane->n_listed--;
}

/* Who was served last is looked for first: few others have been served since. */
void
sas_wake_line_insert(SasLowWater *lane, SasLowWater *f)
{
	dlist_node *before;

	if (f->listed)
		return;
	for (before = lane->line.head.prev; before != &lane->line.head; before = before->prev)
		if (dlist_container(SasLowWater, node, before)->served <= f->served)
			break;
	dlist_insert_after(before, &f->node);
	f->listed = true;
	lane->n_listed++;
}

/* Not all owners with rows are in line. */
void
sas_wake_line_lose(SasLowWater *lane)
{
	lane->complete = false;
	lane->finding = 0;
}

/* An owner in line is unknown from now on; of a lane that is removed, all are found again. */
void
sas_wake_line_removing(void *entry)
{
	SasLowWater *f = entry;
	SasLowWater *lane;

	if (sas_wake_line_is_lane(f))
		while (!dlist_is_empty(&f->line))
			sas_wake_line_remove(f, dlist_head_element(SasLowWater, node, &f->line));
	else if (f->listed && (lane = sas_wake_line_lane(f->key.dboid, f->key.n)) != NULL)
	{
		sas_wake_line_remove(lane, f);
		sas_wake_line_lose(lane);
	}
}

/* ---------------------------------------------------------------- turns of owners */

static uint64 low_water_line_finding = 0;	/* the last time that this session looked for unknown owners */

void
sas_wake_lanes_begin_finding(void)
{
	low_water_line_finding = sas_wake_low_water_unique();
}

bool
sas_wake_lane_is_unknown(int lane)
{
	SasLowWaterKey key = {MyDatabaseId, SAS_LOW_WATER_LANE, lane, InvalidOid};
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
sas_wake_lane_add_owner(int lane, Oid owner, TimestampTz first)
{
	SasLowWaterKey key = {MyDatabaseId, SAS_LOW_WATER_LANE, lane, owner};
	bool		added = false;

	/* an old snapshot has not seen what was noted before the entry of the lane was made */
	if (IsolationUsesXactSnapshot())
		first = DT_NOBEGIN;
	if (sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
	{
		added = sas_wake_low_water_lower_key(&key, first) && sas_wake_line_lane(MyDatabaseId, lane) != NULL;
		sas_base_table_unlock(&sas_wake_low_water_table);
	}
	/* without room it is known to this transaction only, as one whose row it has written */
	if (!added)
		sas_wake_low_water_note(SAS_LOW_WATER_LANE, lane, owner, first);
}

void
sas_wake_lane_found_owners(int lane)
{
	SasLowWater *f;

	if (IsolationUsesXactSnapshot() || !sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	f = sas_wake_line_lane(MyDatabaseId, lane);
	if (f != NULL && f->finding == low_water_line_finding)
		f->complete = true;
	sas_base_table_unlock(&sas_wake_low_water_table);
}

void
sas_wake_lane_forget_owners(int lane)
{
	SasLowWater *f;

	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		return;
	if ((f = sas_wake_line_lane(MyDatabaseId, lane)) != NULL)
		sas_wake_line_lose(f);
	sas_base_table_unlock(&sas_wake_low_water_table);
}

/* Owners that only this transaction knows in the lane, from any one on. */
static void
low_water_line_add_own(SasLowWater *lane_entry, int lane, SasLaneTurns *turns)
{
	int			from = sas_wake_low_water_n_notes == 0 ? 0 : sas_base_clock_monotonic_us() % sas_wake_low_water_n_notes;

	for (int i = 0; i < sas_wake_low_water_n_notes; i++)
	{
		const SasLowWaterNote *note = &sas_wake_low_water_notes[(from + i) % sas_wake_low_water_n_notes];
		SasLowWaterKey key = {MyDatabaseId, SAS_LOW_WATER_LANE, lane, note->owner};
		SasLowWater *f;
		bool		known = false;

		if (note->kind != SAS_LOW_WATER_LANE || note->n != lane)
			continue;
		f = lane_entry == NULL ? NULL : sas_base_table_find(&sas_wake_low_water_table, &key);
		for (int k = 0; k < turns->n && !known; k++)
			known = turns->owners[k] == note->owner;
		if (known || (f != NULL && f->listed))
			continue;
		turns->owners[turns->n] = note->owner;
		turns->marks[turns->n++] = note->at;
	}
}

void
sas_wake_lane_next_owners(int lane, int most, SasLaneTurns *turns)
{
	int64		now = sas_base_clock_monotonic_us();
	bool		first = turns->left < 0;
	SasLowWater *f;

	/* no line is longer */
	most = Min(most, sas_base_max_low_water_marks);
	sas_wake_low_water_room_for_scans(most);
	turns->n = 0;
	turns->owners = palloc(sizeof(Oid) * (most + sas_wake_low_water_n_notes));
	turns->marks = palloc(sizeof(TimestampTz) * (most + sas_wake_low_water_n_notes));
	if (!sas_base_table_lock(&sas_wake_low_water_table, LW_EXCLUSIVE))
		f = NULL;
	else
		f = sas_wake_line_lane(MyDatabaseId, lane);
	if (first)
		turns->left = f == NULL ? 0 : f->n_listed;
	/* of those that are served together, the last one is the first one next time */
	most = f == NULL ? 0 : Min(Min(most, turns->left), f->n_listed);
	turns->left -= most;
	if (most > 0)
		f->turn += most;
	for (int i = 0; i < most; i++)
	{
		SasLowWater *o = dlist_head_element(SasLowWater, node, &f->line);

		sas_wake_line_remove(f, o);
		o->served = f->turn - i;
		o->begun_us = now;
		sas_wake_low_water_take_token(o, now);
		turns->owners[turns->n] = o->key.owner;
		turns->marks[turns->n++] = sas_wake_low_water_noted_all ? DT_NOBEGIN : sas_wake_low_water_own(SAS_LOW_WATER_LANE, lane, o->key.owner, o->mark);
	}
	for (int i = turns->n - 1; i >= 0; i--)
	{
		SasLowWaterKey key = {MyDatabaseId, SAS_LOW_WATER_LANE, lane, turns->owners[i]};

		sas_wake_line_insert(f, sas_base_table_find(&sas_wake_low_water_table, &key));
	}
	if (first)
		low_water_line_add_own(f, lane, turns);
	if (sas_wake_low_water_table.state != NULL)
		sas_base_table_unlock(&sas_wake_low_water_table);
}
