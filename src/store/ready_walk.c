/* SPDX-License-Identifier: PostgreSQL */
/* ready_walk.c: see ready_walk.h. */
#include "postgres.h"

#include "base/clock.h"
#include "store/ready_walk.h"

/* One that has come to its end begins anew so long after it has begun. */
#define READY_WALK_US (10 * INT64CONST(1000000))
#define READY_WALKS 256

typedef struct ReadyWalk
{
	int			lane;
	Oid			owner;
	SasReadyPlace at;
	int64		begun_us;
	bool		ended;
	bool		goes_on;		/* in this turn */
} ReadyWalk;

static ReadyWalk ready_walk_all[READY_WALKS];
static int	ready_walk_n = 0;

static ReadyWalk *
ready_walk_find(int lane, Oid owner)
{
	for (int i = 0; i < ready_walk_n; i++)
		if (ready_walk_all[i].lane == lane && ready_walk_all[i].owner == owner)
			return &ready_walk_all[i];
	return NULL;
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
	if (walk->ended && sas_base_clock_monotonic_us() - walk->begun_us > READY_WALK_US)
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
		/* without room, the one that is forgotten begins anew */
		walk = &ready_walk_all[ready_walk_n < READY_WALKS ? ready_walk_n++ : (uint32) owner % READY_WALKS];
		*walk = (ReadyWalk) {lane, owner, *at, sas_base_clock_monotonic_us(), false, true};
	}
	walk->at = *at;
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
