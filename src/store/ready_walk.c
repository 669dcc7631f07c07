/* SPDX-License-Identifier: PostgreSQL */
/* ready_walk.c: see ready_walk.h. */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "store/ready_walk.h"

/* One that has come to its end begins anew so much later: even a long one is not always under way. */
#define READY_WALK_US (10 * INT64CONST(1000000))

typedef struct ReadyWalk
{
	int			lane;
	Oid			owner;
	SasReadyPlace at;
	int64		ended_us;
	bool		ended;
	bool		goes_on;		/* in this tick */
} ReadyWalk;

/* All of them: if one made room for another, none of the two would ever come to its end. */
static ReadyWalk *ready_walk_all = NULL;
static int	ready_walk_room = 0;
static int	ready_walk_n = 0;
static SubTransactionId ready_walk_within = InvalidSubTransactionId;	/* that of the last step, while it is open */

static ReadyWalk *
ready_walk_find(int lane, Oid owner)
{
	for (int i = 0; i < ready_walk_n; i++)
		if (ready_walk_all[i].lane == lane && ready_walk_all[i].owner == owner)
			return &ready_walk_all[i];
	return NULL;
}

/* What was to leave the lane, and an abort leaves there, lies before the place that the walk has come to. */
static void
ready_walk_on_subxact(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && ready_walk_within >= id)
		ready_walk_n = 0;
}

static void
ready_walk_on_xact(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT && ready_walk_within != InvalidSubTransactionId)
		ready_walk_n = 0;
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		ready_walk_within = InvalidSubTransactionId;
}

static void
ready_walk_note_transaction(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(ready_walk_on_xact, NULL);
		RegisterSubXactCallback(ready_walk_on_subxact, NULL);
		registered = true;
	}
	ready_walk_within = GetCurrentSubTransactionId();
}

static ReadyWalk *
ready_walk_new(void)
{
	if (ready_walk_n == ready_walk_room)
	{
		int			room = Max(64, 2 * ready_walk_room);

		ready_walk_all = ready_walk_all == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(ReadyWalk) * room)
			: repalloc(ready_walk_all, sizeof(ReadyWalk) * room);
		ready_walk_room = room;
	}
	return &ready_walk_all[ready_walk_n++];
}

void
sas_store_ready_walks_begin(void)
{
	int			left = 0;

	for (int i = 0; i < ready_walk_n; i++)
	{
		ReadyWalk	walk = ready_walk_all[i];

		if (!walk.goes_on)
			continue;
		walk.goes_on = false;
		ready_walk_all[left++] = walk;
	}
	ready_walk_n = left;
}

bool
sas_store_ready_walk_from(int lane, Oid owner, SasReadyPlace *at)
{
	ReadyWalk  *walk = ready_walk_find(lane, owner);

	if (walk == NULL)
		return false;
	if (walk->ended && sas_base_clock_monotonic_us() - walk->ended_us > READY_WALK_US)
	{
		*walk = ready_walk_all[--ready_walk_n];
		return false;
	}
	*at = walk->at;
	return true;
}

void
sas_store_ready_walk_to(int lane, Oid owner, const SasReadyPlace *at, bool ended)
{
	ReadyWalk  *walk = ready_walk_find(lane, owner);

	if (walk == NULL)
	{
		if (ended)
			return;
		walk = ready_walk_new();
		*walk = (ReadyWalk) {lane, owner, *at, 0, false, true};
	}
	ready_walk_note_transaction();
	walk->at = *at;
	if (ended && walk->ended_us == 0)
		walk->ended_us = sas_base_clock_monotonic_us();
	walk->ended = ended;
	walk->goes_on = true;
}

bool
sas_store_ready_walk_is_open(void)
{
	for (int i = 0; i < ready_walk_n; i++)
		if (ready_walk_all[i].goes_on && !ready_walk_all[i].ended)
			return true;
	return false;
}
