/* SPDX-License-Identifier: PostgreSQL */
/* room.c: whose calls take up how much memory; see room.h. */
#include "postgres.h"

#include "work/room.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* in the place of an agent: what the owner has at all of them */
#define ROOM_ALL 0

typedef struct RoomKey
{
	int			agent_id;
	Oid			owner;
} RoomKey;

typedef struct RoomEntry
{
	RoomKey		key;
	SasTransportShare share;
	int			users;			/* calls and replies */
} RoomEntry;

static SasTransport *room_transport;
static HTAB *room_entries;

void
sas_work_room_open(MemoryContext context, SasTransport *transport)
{
	HASHCTL		control = {.keysize = sizeof(RoomKey), .entrysize = sizeof(RoomEntry), .hcxt = context};

	room_transport = transport;
	room_entries = hash_create("sas memory of owners", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static RoomEntry *
room_find(int agent_id, Oid owner)
{
	RoomKey		key = {agent_id, owner};

	return hash_search(room_entries, &key, HASH_FIND, NULL);
}

static RoomEntry *
room_enter(int agent_id, Oid owner)
{
	RoomKey		key = {agent_id, owner};
	bool		found;
	RoomEntry  *e = hash_search(room_entries, &key, HASH_ENTER, &found);

	if (!found)
	{
		memset(&e->share, 0, sizeof(e->share));
		e->users = 0;
	}
	e->users++;
	return e;
}

static void
room_leave(RoomEntry *e)
{
	if (--e->users == 0)
		hash_search(room_entries, &e->key, HASH_REMOVE, NULL);
}

static RoomEntry *
room_of(SasTransportShare *share)
{
	return (RoomEntry *) ((char *) share - offsetof(RoomEntry, share));
}

bool
sas_work_room_for(int agent_id, Oid owner)
{
	RoomEntry  *e = room_find(agent_id, owner);
	RoomEntry  *all = room_find(ROOM_ALL, owner);
	SasTransportShare none = {.all = all != NULL ? &all->share : NULL};

	return sas_transport_has_room(room_transport, e != NULL ? &e->share : &none, 0);
}

SasTransportShare *
sas_work_room_enter(int agent_id, Oid owner)
{
	RoomEntry  *all = room_enter(ROOM_ALL, owner);
	RoomEntry  *e = room_enter(agent_id, owner);

	e->share.all = &all->share;
	return &e->share;
}

void
sas_work_room_stay(SasTransportShare *share)
{
	room_of(share)->users++;
	room_of(share->all)->users++;
}

void
sas_work_room_leave(SasTransportShare *share)
{
	RoomEntry  *all = room_of(share->all);

	room_leave(room_of(share));
	room_leave(all);
}
