/* SPDX-License-Identifier: PostgreSQL */
/*
 * owners.c: the calls in flight of each owner, by agent; see owners.h.
 *
 * The entry of the agent knows the sum, and which two owners used it last. The
 * lock of the places comes before the lock of this table.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "limits/owners.h"
#include "limits/table.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

/* One owner has at most so many times the slots that are left. */
#define OWNERS_TIMES 7

/* so long after its last claim an owner uses the agent */
#define OWNERS_LATELY_US ((int64) 3600 * 1000000)

/* a call that has rested asks again well within this */
#define OWNERS_RESTED_US 100000

typedef struct OwnersKey
{
	Oid			dboid;
	int			agent_id;
	Oid			owner;
} OwnersKey;

typedef struct OwnersEntry
{
	OwnersKey	key;
	int			in_flight;		/* claims that are under way included */
	int64		rested_until_us;	/* the next slot is for a call between two attempts */
} OwnersEntry;

/* What this process has of it. */
typedef struct OwnersUse
{
	OwnersKey	key;
	int			in_flight;
	int			taken;			/* of these, by the claim that is under way */
	bool		touched;		/* by that claim */
	bool		refused;
	bool		crowded;		/* refused for lack of room in this process */
} OwnersUse;

static SasSharedTable owners_table = {
	.name = "calls of owners",.setting = "sas.max_agents",.capacity = &sas_base_max_agents,
	.key_size = sizeof(OwnersKey),.entry_size = sizeof(OwnersEntry)
};

static HTAB *owners_uses = NULL; /* NULL: this process does not count */
static SasOwnersRoom owners_has_room;
static OwnersKey *owners_touched = NULL;
static int	owners_n_touched = 0;
static int	owners_room_touched = 0;

/* ---------------------------------------------------------------- counts */

/* n more, or fewer, of this owner. The places are locked, unless the agent has no entry. False: there is no room. */
static bool
owners_count(SasLimitsEntry *e, const OwnersKey *key, int n)
{
	OwnersEntry *o;

	sas_base_table_lock(&owners_table, LW_EXCLUSIVE);
	o = n > 0 ? sas_base_table_enter(&owners_table, key) : sas_base_table_find(&owners_table, key);
	if (o != NULL)
	{
		o->in_flight += n;
		if (e != NULL)
			e->of_owners += n;
		if (o->in_flight <= 0)
			sas_base_table_remove(&owners_table, o);
	}
	sas_base_table_unlock(&owners_table);
	return o != NULL;
}

static void
owners_give(const OwnersKey *key, int n)
{
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(key->agent_id, false, &use);

	(void) owners_count(e, key, -n);
	if (e != NULL)
		sas_limits_close(e, use);
}

static void
owners_release_all(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	OwnersUse  *use;

	hash_seq_init(&scan, owners_uses);
	while ((use = hash_seq_search(&scan)) != NULL)
		if (use->in_flight > 0)
		{
			owners_give(&use->key, use->in_flight);
			use->in_flight = 0;
		}
}

void
sas_limits_owners_open(SasOwnersRoom has_room)
{
	HASHCTL		control = {.keysize = sizeof(OwnersKey), .entrysize = sizeof(OwnersUse), .hcxt = TopMemoryContext};

	if (owners_uses != NULL || owners_table.state == NULL)
		return;
	owners_has_room = has_room;
	owners_uses = hash_create("sas calls of owners", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(owners_release_all, (Datum) 0);
}

void
sas_limits_owners_install(void)
{
	sas_base_table_register(&owners_table);
}

/* ---------------------------------------------------------------- how many an owner may have */

static bool
owners_are_several(const SasLimitsEntry *e, Oid owner, int64 now)
{
	return sas_limits_has_other_user(e->users, owner, now - OWNERS_LATELY_US) ||
		(e->shared && now - e->made_us < OWNERS_LATELY_US);
}

int
sas_limits_owner_room(int slots, int taken, int of_owner)
{
	int			others = Max(0, slots - taken - 1); /* free slots beside the last one */
	int64		room = (int64) OWNERS_TIMES * others - of_owner;

	if (slots < 2)
		return PG_INT32_MAX;
	/* each that it takes is one fewer that is free */
	room = room > 0 ? (room + OWNERS_TIMES) / (OWNERS_TIMES + 1) : 0;
	return of_owner == 0 ? Max(1, room) : room;
}

/* How many more calls an owner may have that has so many. */
static int
owners_room(const SasLimitsEntry *e, Oid owner, int in_flight, int64 now)
{
	return owners_are_several(e, owner, now) ? sas_limits_owner_room(e->max_in_flight, e->of_owners, in_flight) : PG_INT32_MAX;
}

/* Under the lock of the places. rested: the call goes before those that have not begun. */
static int
owners_may(SasLimitsEntry *e, const OwnersKey *key, int want, bool rested, int64 now)
{
	OwnersEntry *o;
	int			room;

	sas_base_table_lock(&owners_table, LW_EXCLUSIVE);
	o = sas_base_table_find(&owners_table, key);
	room = owners_room(e, key->owner, o != NULL ? o->in_flight : 0, now);
	if (o != NULL && rested)
		o->rested_until_us = room > 0 ? 0 : now + OWNERS_RESTED_US;
	else if (o != NULL && room > 0 && now < o->rested_until_us)
		room--;
	sas_base_table_unlock(&owners_table);
	return Min(want, room);
}

/* The entry of an agent whose owners are counted, with the lock; NULL: they are not. */
static SasLimitsEntry *
owners_open(int agent_id, SasLimitsUse **use)
{
	SasLimitsEntry *e = owners_uses == NULL ? NULL : sas_limits_open(agent_id, false, use);

	if (e == NULL || *use == NULL || e != &(*use)->own)
		return e;
	sas_limits_close(e, *use);
	return NULL;
}

static OwnersUse *
owners_use(const OwnersKey *key)
{
	bool		found;
	OwnersUse  *use = hash_search(owners_uses, key, HASH_ENTER, &found);

	if (!found)
	{
		use->in_flight = use->taken = 0;
		use->touched = use->refused = use->crowded = false;
	}
	return use;
}

/* Makes this use known to settle. */
static void
owners_touch(OwnersUse *use)
{
	if (use->touched)
		return;
	owners_touched = sas_base_grow(TopMemoryContext, owners_touched, owners_n_touched, &owners_room_touched, sizeof(OwnersKey));
	owners_touched[owners_n_touched++] = use->key;
	use->touched = true;
}

/*
 * So many calls of an owner want slots: counts those that it may have, and returns how many. claim: settle
 * comes after it; all others ask again by themselves. rested: as in owners_may.
 */
static int
owners_get(OwnersUse *use, int want, bool claim, bool rested)
{
	int64		now = sas_base_clock_monotonic_us();
	SasLimitsUse *places;
	SasLimitsEntry *e = owners_open(use->key.agent_id, &places);
	int			may;

	if (e == NULL)
		return want;
	sas_limits_note_user(e->users, use->key.owner, now);
	/* an open breaker lets others probe, but not the owner that opened it */
	may = e->breaker == SAS_BREAKER_OPEN && e->blamed == use->key.owner && now < e->open_until_us ? 0 :
		owners_may(e, &use->key, want, rested, now);
	if (may < want && claim)
	{
		use->refused = true;
		e->refused = true;
		e->owner_refused_pid = MyProcPid;
	}
	if (may > 0 && owners_count(e, &use->key, may))
	{
		use->in_flight += may;
		if (claim)
			use->taken += may;
	}
	sas_limits_close(e, places);
	return may;
}

int
sas_limits_owner_take(int agent_id, Oid owner, int want)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	OwnersUse  *use;

	if (owners_uses == NULL || want <= 0)
		return want;
	use = owners_use(&key);
	owners_touch(use);
	use->crowded = !owners_has_room(agent_id, owner);
	return use->crowded ? 0 : owners_get(use, want, true, false);
}

void
sas_limits_owner_begin(int agent_id, Oid owner)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	OwnersUse  *use = owners_uses == NULL ? NULL : hash_search(owners_uses, &key, HASH_FIND, NULL);

	if (use != NULL && use->taken > 0)
		use->taken--;
}

/* Has another worker been refused calls of an owner since this process was? Then that is this process's to know from here on. */
static bool
owners_refused_another(int agent_id)
{
	SasLimitsUse *places;
	SasLimitsEntry *e = owners_open(agent_id, &places);
	bool		another;

	if (e == NULL)
		return false;
	another = e->owner_refused_pid != 0 && e->owner_refused_pid != MyProcPid;
	if (another)
		e->owner_refused_pid = 0;
	sas_limits_close(e, places);
	return another;
}

void
sas_limits_owners_settle(SasOwnersTold told)
{
	for (int i = 0; i < owners_n_touched; i++)
	{
		OwnersUse  *use = hash_search(owners_uses, &owners_touched[i], HASH_FIND, NULL);
		bool		again = false;

		if (use == NULL)
			continue;
		if (use->taken > 0)
		{
			owners_give(&use->key, use->taken);
			use->in_flight -= use->taken;
			again = owners_refused_another(use->key.agent_id);
		}
		if (told != NULL)
			told(use->key.agent_id, again, use->refused, use->crowded);
		use->taken = 0;
		use->touched = use->refused = use->crowded = false;
		if (use->in_flight == 0)
			hash_search(owners_uses, &owners_touched[i], HASH_REMOVE, NULL);
	}
	owners_n_touched = 0;
}

/* One slot, outside of a claim. */
static bool
owners_get_one(int agent_id, Oid owner, bool rested)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	OwnersUse  *use;
	bool		may;

	if (owners_uses == NULL)
		return true;
	use = owners_use(&key);
	may = owners_get(use, 1, false, rested) == 1;
	if (use->in_flight == 0 && !use->touched)
		hash_search(owners_uses, &key, HASH_REMOVE, NULL);
	return may;
}

bool
sas_limits_owner_again(int agent_id, Oid owner)
{
	return owners_get_one(agent_id, owner, true);
}

bool
sas_limits_owner_poll(int agent_id, Oid owner)
{
	return owners_get_one(agent_id, owner, false);
}

void
sas_limits_owner_end(int agent_id, Oid owner)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	OwnersUse  *use = owners_uses == NULL ? NULL : hash_search(owners_uses, &key, HASH_FIND, NULL);

	if (use == NULL || use->in_flight <= use->taken)
		return;
	owners_give(&key, 1);
	use->in_flight--;
	if (use->in_flight == 0 && !use->touched)
		hash_search(owners_uses, &key, HASH_REMOVE, NULL);
}

bool
sas_limits_owner_is_full(int agent_id, Oid owner)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	SasLimitsUse *places;
	SasLimitsEntry *e = owners_open(agent_id, &places);
	bool		full;

	if (e == NULL)
		return false;
	full = owners_may(e, &key, 1, false, sas_base_clock_monotonic_us()) == 0;
	e->refused |= full;
	sas_limits_close(e, places);
	return full;
}

bool
sas_limits_owner_lacks_slots(int agent_id, Oid owner)
{
	OwnersKey	key = {MyDatabaseId, agent_id, owner};
	SasLimitsUse *places;
	SasLimitsEntry *e = owners_table.state == NULL ? NULL : sas_limits_open(agent_id, false, &places);
	bool		lacks;

	if (e == NULL)
		return false;
	lacks = e->in_flight < e->max_in_flight && owners_may(e, &key, 1, false, sas_base_clock_monotonic_us()) == 0;
	sas_limits_close(e, places);
	return lacks;
}
