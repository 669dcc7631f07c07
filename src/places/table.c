/* SPDX-License-Identifier: PostgreSQL */
/*
 * table.c: a hash of entries in shared memory, and what this process has of them.
 *
 * The lock is held for a moment only, and nothing is allocated under it: what
 * may fail comes first.  What a process holds is moved together with its
 * entry, so that it is given back where it counts.
 *
 * An entry goes when its agent or its database is dropped, with the commit of
 * that; calls that are on their way keep it until the last has ended.  Agents
 * that a worker does not find any more are forgotten too, for what is not told
 * at a commit (COMMIT PREPARED).
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/clock.h"
#include "base/settings.h"
#include "miscadmin.h"
#include "places/table.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* A table that had hardly anything to give is not searched again before that. */
#define SAS_FULL_US 5000

typedef struct SasPlaces
{
	LWLock		lock;
	int64		full_until_us;
	int64		alone_us;		/* when a process last had to do with an entry of its own; 0: never */
	int64		mended_us;		/* when an agent without an entry was said to be mended */
} SasPlaces;

/* An agent that this transaction drops. */
typedef struct SasDrop
{
	int			agent_id;
	SubTransactionId within;
} SasDrop;

static SasPlaces *places = NULL;
static HTAB *table = NULL;

static HTAB *mine = NULL;		/* SasHeld by agent, of those with something in it */

static SasDrop *drops = NULL;	/* in TopTransactionContext */
static int	n_drops = 0;
static int	room_drops = 0;

Size
sas_places_shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(SasPlaces)), hash_estimate_size(sas_max_agents, sizeof(SasPlace)));
}

/* With AddinShmemInitLock held. */
void
sas_places_shmem_init(void)
{
	HASHCTL		control = {.keysize = sizeof(SasPlaceKey), .entrysize = sizeof(SasPlace)};
	bool		found;

	places = ShmemInitStruct("sas places", sizeof(SasPlaces), &found);
	if (!found)
	{
		memset(places, 0, sizeof(SasPlaces));
		LWLockInitialize(&places->lock, LWLockNewTrancheId());
	}
	LWLockRegisterTranche(places->lock.tranche, "sas_places");
	table = ShmemInitHash("sas agents in places", sas_max_agents, sas_max_agents, &control,
						  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* ---------------------------------------------------------------- of the process */

/* Takes an entry away, or has that done by the last call of it. Lock held. */
static void
drop(SasPlace *p)
{
	if (p->in_flight > 0)
		p->dropped = true;
	else
		hash_search(table, &p->key, HASH_REMOVE, NULL);
}

static void
release_all(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	SasHeld    *h;

	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, mine);
	while ((h = hash_seq_search(&scan)) != NULL)
	{
		SasPlaceKey key = {MyDatabaseId, h->agent_id};
		SasPlace   *p = hash_search(table, &key, HASH_FIND, NULL);

		if (p == NULL)
			continue;
		p->in_flight -= h->in_flight;
		h->in_flight = 0;
		if (p->probe_pid == MyProcPid)
			p->probe_pid = 0;
		if (p->dropped)
			drop(p);
	}
	LWLockRelease(&places->lock);
}

static void
prepare_mine(void)
{
	HASHCTL		control = {.keysize = sizeof(int), .entrysize = sizeof(SasHeld), .hcxt = TopMemoryContext};

	mine = hash_create("sas places of this process", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(release_all, (Datum) 0);
}

/* An entry of this process, for want of room. Its tokens are its share of those of all workers. */
static void
go_alone(SasHeld *h, const SasPlaceKey *key, int64 now)
{
	memset(&h->own, 0, sizeof(h->own));
	h->own.key = *key;
	h->own.made_us = now;
	h->own.tokens = 1.0 / Max(1, sas_agents);
	h->own.filled_us = now;
	h->alone = true;
}

/* There is room again, or others had made an entry: what this process knew and holds goes into it. */
static void
move_in(SasPlace *p, bool fresh, SasHeld *h)
{
	SasPlace   *own = &h->own;

	h->alone = false;
	h->in_flight += own->in_flight;
	if (fresh)
	{
		*p = *own;
		return;
	}
	p->in_flight += own->in_flight;
	p->refused |= own->refused;
	p->full_us = Max(p->full_us, own->full_us);
	p->rate_until_us = Max(p->rate_until_us, own->rate_until_us);
	p->mended_us = Max(p->mended_us, own->mended_us);
	if (p->filled_us == 0 || own->tokens < p->tokens)
	{
		p->tokens = own->tokens;
		p->filled_us = own->filled_us;
	}
	if (p->breaker != SAS_BREAKER_CLOSED)
		return;
	if (own->breaker != SAS_BREAKER_CLOSED)
	{
		p->breaker = own->breaker;
		p->open_until_us = own->open_until_us;
		p->probe_pid = own->probe_pid;
	}
	if (p->failures == 0)
		p->first_failure_us = own->first_failure_us;
	p->failures += own->failures;
	p->window_us = Max(p->window_us, own->window_us);
}

/* ---------------------------------------------------------------- entries */

/* Would a new entry in its stead say anything else? */
static bool
worth_keeping(const SasPlace *p, int64 now)
{
	return p->in_flight > 0 || p->breaker != SAS_BREAKER_CLOSED ||
		(p->failures > 0 && now - p->first_failure_us <= p->window_us) ||
		now < p->full_us || now < p->rested_until_us;
}

/* Takes away what is not worth keeping. Lock held. */
static bool
make_room(int64 now)
{
	HASH_SEQ_STATUS scan;
	SasPlace   *p;
	int			n = 0;

	if (now < places->full_until_us)
		return false;
	hash_seq_init(&scan, table);
	while ((p = hash_seq_search(&scan)) != NULL)
		if (!worth_keeping(p, now))
		{
			hash_search(table, &p->key, HASH_REMOVE, NULL);
			n++;
		}
	if (n <= sas_max_agents / 16)
		places->full_until_us = now + SAS_FULL_US;
	return n > 0;
}

/* A new entry; NULL when there is no room. Lock held. */
static SasPlace *
enter(const SasPlaceKey *key, int64 now)
{
	SasPlace   *p = hash_search(table, key, HASH_ENTER_NULL, NULL);

	if (p == NULL && make_room(now))
		p = hash_search(table, key, HASH_ENTER_NULL, NULL);
	if (p != NULL)
	{
		memset(p, 0, sizeof(*p));
		p->key = *key;
		p->made_us = now;
	}
	return p;
}

/* Its number is that of another agent now (DROP and CREATE EXTENSION): only calls on their way are kept. */
static void
revive(SasPlace *p)
{
	SasPlaceKey key = p->key;
	int			in_flight = p->in_flight;

	memset(p, 0, sizeof(*p));
	p->key = key;
	p->made_us = sas_clock_monotonic_us();
	p->in_flight = in_flight;
}

SasPlace *
sas_places_open(int agent_id, bool make, SasHeld **held)
{
	SasPlaceKey key = {MyDatabaseId, agent_id};
	SasHeld    *h;
	SasPlace   *p;
	bool		known;
	bool		fresh;
	int64		now;

	if (places == NULL)
		return NULL;
	if (mine == NULL)
		prepare_mine();
	*held = h = hash_search(mine, &agent_id, make ? HASH_ENTER : HASH_FIND, &known);
	if (make && !known)
	{
		h->in_flight = 0;
		h->alone = false;
	}
	now = sas_clock_monotonic_us();

	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	p = hash_search(table, &key, HASH_FIND, NULL);
	fresh = p == NULL;
	if (fresh && (make || (h != NULL && h->alone)))
		p = enter(&key, now);
	if (p != NULL)
	{
		if (h != NULL && h->alone)
			move_in(p, fresh, h);
	}
	else if (h != NULL && (make || h->alone))
	{
		if (!h->alone)
			go_alone(h, &key, now);
		p = &h->own;
		if (p->mended_us < places->mended_us)
			sas_places_mend(p, places->mended_us);
		if (make)
			places->alone_us = now;
	}
	if (p == NULL)
		LWLockRelease(&places->lock);
	else if (make && p->dropped)
		revive(p);
	return p;
}

void
sas_places_close(SasPlace *p, SasHeld *h)
{
	if (p->dropped && (h == NULL || p != &h->own))
		drop(p);
	LWLockRelease(&places->lock);
	if (h != NULL && !h->alone && h->in_flight == 0)
		hash_search(mine, &h->agent_id, HASH_REMOVE, NULL);
}

int
sas_places_count(SasPlace *p, SasHeld *h, int n)
{
	p->in_flight += n;
	if (p == &h->own)
		return p->in_flight;
	return h->in_flight += n;
}

void
sas_places_mend(SasPlace *p, int64 at_us)
{
	p->mended_us = at_us;
	p->failures = 0;
	/* a probe that is on its way may hang for long in what has been mended */
	if (p->breaker != SAS_BREAKER_CLOSED)
	{
		p->breaker = SAS_BREAKER_HALF_OPEN;
		p->probe_pid = 0;
	}
}

void
sas_places_mend_own(int64 at_us)
{
	if (places == NULL)
		return;
	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	places->mended_us = at_us;
	LWLockRelease(&places->lock);
}

/* ---------------------------------------------------------------- dropped */

static int
compare_ids(const void *a, const void *b)
{
	int			x = *(const int *) a;
	int			y = *(const int *) b;

	return x < y ? -1 : x > y;
}

void
sas_places_keep(const int *agent_ids, int n, int64 read_us)
{
	int		   *sorted;
	HASH_SEQ_STATUS scan;
	SasPlace   *p;
	SasHeld    *h;

	if (places == NULL)
		return;
	sorted = palloc(sizeof(int) * Max(n, 1));
	memcpy(sorted, agent_ids, sizeof(int) * n);
	qsort(sorted, n, sizeof(int), compare_ids);
	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, table);
	while ((p = hash_seq_search(&scan)) != NULL)
		/* of an agent that was made since, this list does not know, but another worker may */
		if (p->key.dboid == MyDatabaseId && p->made_us < read_us &&
			bsearch(&p->key.agent_id, sorted, n, sizeof(int), compare_ids) == NULL)
			drop(p);
	LWLockRelease(&places->lock);
	if (mine != NULL)
	{
		hash_seq_init(&scan, mine);
		while ((h = hash_seq_search(&scan)) != NULL)
			if (h->alone && h->own.in_flight == 0 && bsearch(&h->agent_id, sorted, n, sizeof(int), compare_ids) == NULL)
				hash_search(mine, &h->agent_id, HASH_REMOVE, NULL);
	}
	pfree(sorted);
}

void
sas_places_drop_database(Oid dboid)
{
	HASH_SEQ_STATUS scan;
	SasPlace   *p;

	if (places == NULL)
		return;
	LWLockAcquire(&places->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, table);
	while ((p = hash_seq_search(&scan)) != NULL)
		if (p->key.dboid == dboid)
			drop(p);
	LWLockRelease(&places->lock);
}

void
sas_places_drop_at_commit(int agent_id)
{
	if (places == NULL)
		return;
	if (n_drops == room_drops)
	{
		int			more = Max(8, room_drops * 2);

		if (drops == NULL)
			drops = MemoryContextAlloc(TopTransactionContext, more * sizeof(SasDrop));
		else
			drops = repalloc(drops, more * sizeof(SasDrop));
		room_drops = more;
	}
	drops[n_drops].agent_id = agent_id;
	drops[n_drops++].within = GetCurrentSubTransactionId();
}

static void
at_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && n_drops > 0)
	{
		LWLockAcquire(&places->lock, LW_EXCLUSIVE);
		for (int i = 0; i < n_drops; i++)
		{
			SasPlaceKey key = {MyDatabaseId, drops[i].agent_id};
			SasPlace   *p = hash_search(table, &key, HASH_FIND, NULL);

			if (p != NULL)
				drop(p);
		}
		LWLockRelease(&places->lock);
	}
	drops = NULL;
	n_drops = room_drops = 0;
}

/* What was dropped in it, and in those within it, which began later. */
static void
at_subtransaction(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	int			kept = 0;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < n_drops; i++)
		if (drops[i].within < own)
			drops[kept++] = drops[i];
	n_drops = kept;
}

void
sas_places_install(void)
{
	RegisterXactCallback(at_end, NULL);
	RegisterSubXactCallback(at_subtransaction, NULL);
}

/* ---------------------------------------------------------------- look */

void
sas_places_visit(SasPlaceVisit visit, void *arg)
{
	HASH_SEQ_STATUS scan;
	SasPlace   *p;

	if (places == NULL)
		return;
	LWLockAcquire(&places->lock, LW_SHARED);
	hash_seq_init(&scan, table);
	while ((p = hash_seq_search(&scan)) != NULL)
		if (p->key.dboid == MyDatabaseId)
			visit(p, arg);
	LWLockRelease(&places->lock);
}

bool
sas_places_state(int *taken, int64 *alone_ago_us)
{
	HASH_SEQ_STATUS scan;
	SasPlace   *p;
	int64		now = sas_clock_monotonic_us();

	if (places == NULL)
		return false;
	LWLockAcquire(&places->lock, LW_SHARED);
	*alone_ago_us = places->alone_us == 0 ? -1 : Max(0, now - places->alone_us);
	*taken = (int) hash_get_num_entries(table);
	/* as long as there is much room, nobody cares how many of them would go */
	if (*taken > sas_max_agents / 2)
	{
		*taken = 0;
		hash_seq_init(&scan, table);
		while ((p = hash_seq_search(&scan)) != NULL)
			if (worth_keeping(p, now))
				(*taken)++;
	}
	LWLockRelease(&places->lock);
	return true;
}
