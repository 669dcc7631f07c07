/* SPDX-License-Identifier: PostgreSQL */
/*
 * turns_api.c: which owners this session has seen in a lane, and which of
 * them it has served the longest ago.
 *
 * Owners take turns within a lane.  A claim looks up each owner that it has
 * seen before by the whole key of the index, from the low-water mark on, and
 * then one more between each two of them.  So it never walks over the dead
 * entries of an owner that it knows.  This is memory of one session: when an
 * owner that is not in it is found between two others, all owners are looked
 * for once.  One that has nothing ready costs two look-ups.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(sas_api_lane_owners);
PG_FUNCTION_INFO_V1(sas_api_serve_owner);

/* Of one lane; the owner that was served the longest ago makes room. */
#define MOST_OWNERS 250
/* The owners that were seen, and one between each two of them: fewer than this. */
#define MOST_TURNS 1000
/* With more lanes all is forgotten. */
#define MOST_LANES 10000

typedef struct SeenOwner
{
	Oid			owner;
	int64		served;			/* a number that grows with each service */
} SeenOwner;

typedef struct SeenLane
{
	int			lane;			/* the key */
	int			n;
	int			room;
	SeenOwner  *owners;			/* by oid */
} SeenLane;

static HTAB *turns_api_lanes = NULL;
static MemoryContext turns_api_context = NULL;
static int64 turns_api_served = 0;

static SeenLane *
turns_api_make_lane(int lane)
{
	SeenLane   *made;
	bool		found;

	if (turns_api_context == NULL)
		turns_api_context = AllocSetContextCreate(TopMemoryContext, "sas turns", ALLOCSET_SMALL_SIZES);
	if (turns_api_lanes == NULL || hash_get_num_entries(turns_api_lanes) >= MOST_LANES)
	{
		HASHCTL		control = {.keysize = sizeof(int),.entrysize = sizeof(SeenLane),.hcxt = turns_api_context};

		turns_api_lanes = NULL;
		MemoryContextReset(turns_api_context);
		turns_api_lanes = hash_create("sas turns", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	made = hash_search(turns_api_lanes, &lane, HASH_ENTER, &found);
	if (!found)
	{
		made->n = made->room = 0;
		made->owners = NULL;
	}
	return made;
}

static void
turns_api_forget_oldest(SeenLane *lane)
{
	int			oldest = 0;

	for (int i = 1; i < lane->n; i++)
		if (lane->owners[i].served < lane->owners[oldest].served)
			oldest = i;
	lane->n--;
	memmove(&lane->owners[oldest], &lane->owners[oldest + 1], sizeof(SeenOwner) * (lane->n - oldest));
}

/* _sas.lane_owners(lane): 0 and each owner that was seen, with the next one, and how long ago it was served. */
Datum
sas_api_lane_owners(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			number = PG_GETARG_INT32(0);
	SeenLane   *lane = turns_api_lanes == NULL ? NULL : hash_search(turns_api_lanes, &number, HASH_FIND, NULL);
	int			n = lane == NULL ? 0 : lane->n;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = -1; i < n; i++)
	{
		Datum		values[3] = {ObjectIdGetDatum(i < 0 ? InvalidOid : lane->owners[i].owner),
			ObjectIdGetDatum(i + 1 < n ? lane->owners[i + 1].owner : OID_MAX),
		Int64GetDatum(i < 0 ? 0 : lane->owners[i].served)};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, (bool[3]) {false});
	}
	return (Datum) 0;
}

/* Where that owner is in the lane, or belongs. */
static int
turns_api_find(const SeenLane *lane, Oid owner)
{
	int			at = 0;

	while (at < lane->n && lane->owners[at].owner < owner)
		at++;
	return at;
}

static SeenOwner *
turns_api_add(SeenLane *lane, Oid owner)
{
	int			at;

	if (lane->n == MOST_OWNERS)
		turns_api_forget_oldest(lane);
	if (lane->n == lane->room)
	{
		int			more = Max(4, lane->room * 2);

		lane->owners = lane->owners == NULL ? MemoryContextAlloc(turns_api_context, sizeof(SeenOwner) * more) :
			repalloc(lane->owners, sizeof(SeenOwner) * more);
		lane->room = more;
	}
	at = turns_api_find(lane, owner);
	memmove(&lane->owners[at + 1], &lane->owners[at], sizeof(SeenOwner) * (lane->n - at));
	lane->n++;
	lane->owners[at] = (SeenOwner) {owner, 0};
	return &lane->owners[at];
}

/* _sas.serve_owner(lane, owner, turn): it has this turn now; 0: it is seen, and not served. Returns the owner. */
Datum
sas_api_serve_owner(PG_FUNCTION_ARGS)
{
	SeenLane   *lane = turns_api_make_lane(PG_GETARG_INT32(0));
	Oid			owner = PG_GETARG_OID(1);
	int			turn = PG_GETARG_INT32(2);
	int			at = turns_api_find(lane, owner);
	SeenOwner  *seen = at < lane->n && lane->owners[at].owner == owner ? &lane->owners[at] : turns_api_add(lane, owner);

	/* of those that are served together the last is first the next time: nobody is always behind another one */
	if (turn == 1)
		turns_api_served += MOST_TURNS;
	if (turn > 0)
		seen->served = turns_api_served - turn;
	PG_RETURN_OID(owner);
}
