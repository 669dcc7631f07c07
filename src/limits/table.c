/* SPDX-License-Identifier: PostgreSQL */
/*
 * table.c: a hash of entries in shared memory, and what this process uses of
 * them.
 *
 * The lock is taken for a moment only, and nothing is allocated under it:
 * code that may fail comes first. The slots of a process move together with
 * their entry, so that they are given back to the entry that counts them.
 *
 * An entry is removed when its agent or its database is dropped, at that
 * commit; while calls are in flight, the last of them removes it. A worker
 * also removes entries of agents that it does not find any longer, because
 * COMMIT PREPARED reports no dropped agent.
 *
 * An agent without an entry has one in each process that calls it. Its call,
 * one for all processes, has a spare place. Whoever makes the entry counts
 * that call in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/settings.h"
#include "base/shared_table.h"
#include "limits/table.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

/* So many agents without an entry may have a call each. */
#define SAS_SPARES 64

/* An agent that this transaction drops, or reports as repaired. */
typedef struct SasLimitsEnd
{
	int			agent_id;
	bool		repaired;
	SubTransactionId within;
} SasLimitsEnd;

static bool table_is_idle(const void *entry, int64 now);
static bool table_forget(void *entry);

static const int table_n_spares = SAS_SPARES;

static SasSharedTable table_places = {
	.name = "places",.setting = "sas.max_agents",.capacity = &sas_base_max_agents,
	.key_size = sizeof(SasLimitsKey),.entry_size = sizeof(SasLimitsEntry),
	.extra_size = sizeof(int64),	/* when an agent without an entry was reported repaired */
	.idle = table_is_idle,.forget = table_forget
};

static SasSharedTable table_spares = {
	.name = "spare places",.setting = "sas.max_agents",.capacity = &table_n_spares,
	.key_size = sizeof(SasLimitsKey),.entry_size = sizeof(SasLimitsKey)
};

static HTAB *table_uses = NULL;	/* SasLimitsUse by agent, of those with something in it */

static SasLimitsEnd *table_ends = NULL; /* in TopTransactionContext */
static int	table_n_ends = 0;
static int	table_room_ends = 0;

/* ---------------------------------------------------------------- of the process */

/* The entry is not needed any longer; while it has calls, the last of them removes it. Lock held. */
static bool
table_forget(void *entry)
{
	SasLimitsEntry *e = entry;

	e->dropped = e->in_flight > 0;
	return !e->dropped;
}

static void
table_drop(SasLimitsEntry *e)
{
	if (e != NULL && table_forget(e))
		sas_base_table_remove(&table_places, e);
}

bool
sas_limits_take_spare(const SasLimitsUse *use)
{
	bool		taken;

	sas_base_table_lock(&table_spares, LW_EXCLUSIVE);
	taken = sas_base_table_find(&table_spares, &use->own.key) == NULL &&
		sas_base_table_enter(&table_spares, &use->own.key) != NULL;
	sas_base_table_unlock(&table_spares);
	return taken;
}

/* False: there was none. */
static bool
table_give_spare(const SasLimitsKey *key)
{
	void	   *spare;

	sas_base_table_lock(&table_spares, LW_EXCLUSIVE);
	spare = sas_base_table_find(&table_spares, key);
	if (spare != NULL)
		sas_base_table_remove(&table_spares, spare);
	sas_base_table_unlock(&table_spares);
	return spare != NULL;
}

static void
table_release_all(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	SasLimitsUse *use;

	sas_base_table_lock(&table_places, LW_EXCLUSIVE);
	hash_seq_init(&scan, table_uses);
	while ((use = hash_seq_search(&scan)) != NULL)
	{
		SasLimitsKey key = {MyDatabaseId, use->agent_id};
		SasLimitsEntry *e = sas_base_table_find(&table_places, &key);
		int			in_flight = use->in_flight + (use->unshared ? use->own.in_flight : 0);

		use->in_flight = use->own.in_flight = 0;
		if (e == NULL)
		{
			if (in_flight > 0)
				table_give_spare(&key);
			continue;
		}
		e->in_flight -= in_flight;
		if (e->probe_pid == MyProcPid)
			e->probe_pid = 0;
		if (e->dropped)
			table_drop(e);
	}
	sas_base_table_unlock(&table_places);
}

static void
table_prepare_uses(void)
{
	HASHCTL		control = {.keysize = sizeof(int), .entrysize = sizeof(SasLimitsUse), .hcxt = TopMemoryContext};

	table_uses = hash_create("sas limits of this process", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(table_release_all, (Datum) 0);
}

/*
 * Makes an entry of this process only, because shared memory has no room. It
 * gets this worker's share of the tokens.
 */
static void
table_begin_unshared(SasLimitsUse *use, const SasLimitsKey *key, int64 now)
{
	memset(&use->own, 0, sizeof(use->own));
	use->own.key = *key;
	use->own.made_us = now;
	use->own.tokens = 1.0 / Max(1, sas_base_agents);
	use->own.filled_us = now;
	use->unshared = true;
}

/* There is room again, or others have made an entry, which counts the call: the limits of this process go into it. */
static void
table_end_unshared(SasLimitsEntry *e, bool fresh, SasLimitsUse *use)
{
	SasLimitsEntry *own = &use->own;

	use->unshared = false;
	use->in_flight += own->in_flight;
	if (fresh)
	{
		own->in_flight = e->in_flight;
		*e = *own;
		return;
	}
	e->refused |= own->refused;
	e->full_us = Max(e->full_us, own->full_us);
	e->rate_until_us = Max(e->rate_until_us, own->rate_until_us);
	e->repaired_us = Max(e->repaired_us, own->repaired_us);
	if (e->filled_us == 0 || own->tokens < e->tokens)
	{
		e->tokens = own->tokens;
		e->filled_us = own->filled_us;
	}
	if (e->breaker != SAS_BREAKER_CLOSED)
		return;
	if (own->breaker != SAS_BREAKER_CLOSED)
	{
		e->breaker = own->breaker;
		e->opened_us = own->opened_us;
		e->open_until_us = own->open_until_us;
		e->blamed = own->blamed;
		e->probe_pid = own->probe_pid;
	}
	if (e->failures == 0)
	{
		e->first_failure_us = own->first_failure_us;
		memset(e->failing, 0, sizeof(e->failing));
	}
	/* those that a success has ended do not count */
	for (int i = 0; i < lengthof(own->failing) && own->failures > 0; i++)
		sas_limits_note_failures(e, own->failing[i].owner, own->failing[i].n);
	e->failures += own->failures;
	e->window_us = Max(e->window_us, own->window_us);
}

/* ---------------------------------------------------------------- entries */

/*
 * Does the entry not differ from a new one?  But for whose calls succeeded
 * last: room for another agent is worth more.  Until a call succeeds again,
 * failures of one role open the breaker of that agent as after a start.
 */
static bool
table_is_idle(const void *entry, int64 now)
{
	const SasLimitsEntry *e = entry;

	return e->in_flight == 0 && e->breaker == SAS_BREAKER_CLOSED &&
		(e->failures == 0 || now - e->first_failure_us > e->window_us) &&
		now >= e->full_us && now >= e->rested_until_us;
}

/* A new entry, with the call that has a spare place; NULL when there is no room. Lock held. */
static SasLimitsEntry *
table_enter(const SasLimitsKey *key, int64 now)
{
	SasLimitsEntry *e = sas_base_table_enter(&table_places, key);

	if (e != NULL)
	{
		e->made_us = now;
		e->in_flight = table_give_spare(key);
	}
	return e;
}

/* Another agent has its number now (DROP and CREATE EXTENSION): only calls in flight are counted on. */
static void
table_revive(SasLimitsEntry *e)
{
	SasLimitsKey key = e->key;
	int			in_flight = e->in_flight;
	int			of_owners = e->of_owners;

	memset(e, 0, sizeof(*e));
	e->key = key;
	e->made_us = sas_base_clock_monotonic_us();
	e->in_flight = in_flight;
	e->of_owners = of_owners;
}

SasLimitsEntry *
sas_limits_open(int agent_id, bool make, SasLimitsUse **use_out)
{
	SasLimitsKey key = {MyDatabaseId, agent_id};
	SasLimitsUse *use;
	SasLimitsEntry *e;
	bool		found;
	bool		fresh;
	int64		now;

	if (table_places.state == NULL)
		return NULL;
	if (table_uses == NULL)
		table_prepare_uses();
	*use_out = use = hash_search(table_uses, &agent_id, make ? HASH_ENTER : HASH_FIND, &found);
	if (make && !found)
	{
		use->in_flight = 0;
		use->unshared = false;
	}
	now = sas_base_clock_monotonic_us();

	sas_base_table_lock(&table_places, LW_EXCLUSIVE);
	e = sas_base_table_find(&table_places, &key);
	fresh = e == NULL;
	if (fresh && (make || (use != NULL && use->unshared)))
		e = table_enter(&key, now);
	if (e != NULL)
	{
		if (use != NULL && use->unshared)
			table_end_unshared(e, fresh, use);
	}
	else if (use != NULL && (make || use->unshared))
	{
		if (!use->unshared)
			table_begin_unshared(use, &key, now);
		e = &use->own;
		if (e->repaired_us < *(int64 *) table_places.extra)
			sas_limits_repair(e, *(int64 *) table_places.extra);
	}
	if (e == NULL)
		sas_base_table_unlock(&table_places);
	else if (make && e->dropped)
		table_revive(e);
	return e;
}

void
sas_limits_close(SasLimitsEntry *e, SasLimitsUse *use)
{
	if (e->dropped && (use == NULL || e != &use->own))
		table_drop(e);
	sas_base_table_unlock(&table_places);
	if (use != NULL && !use->unshared && use->in_flight == 0)
		hash_search(table_uses, &use->agent_id, HASH_REMOVE, NULL);
}

int
sas_limits_count(SasLimitsEntry *e, SasLimitsUse *use, int n)
{
	e->in_flight += n;
	if (e != &use->own)
		return use->in_flight += n;
	if (e->in_flight == 0)
		table_give_spare(&e->key);
	return e->in_flight;
}

void
sas_limits_repair(SasLimitsEntry *e, int64 at_us)
{
	e->repaired_us = at_us;
	e->failures = 0;
	/* a probe in flight may hang for long in a service that has been repaired since */
	if (e->breaker != SAS_BREAKER_CLOSED)
	{
		e->breaker = SAS_BREAKER_HALF_OPEN;
		e->probe_pid = 0;
	}
}

void
sas_limits_repair_unshared(int64 at_us)
{
	if (!sas_base_table_lock(&table_places, LW_EXCLUSIVE))
		return;
	*(int64 *) table_places.extra = at_us;
	sas_base_table_unlock(&table_places);
}

/* ---------------------------------------------------------------- dropped */

static int
table_compare_ids(const void *a, const void *b)
{
	int			x = *(const int *) a;
	int			y = *(const int *) b;

	return x < y ? -1 : x > y;
}

void
sas_limits_keep(const int *agent_ids, int n, int64 read_us)
{
	int		   *sorted;
	HASH_SEQ_STATUS scan;
	SasLimitsEntry *e;
	SasLimitsUse *use;

	if (table_places.state == NULL)
		return;
	sorted = palloc(sizeof(int) * Max(n, 1));
	memcpy(sorted, agent_ids, sizeof(int) * n);
	qsort(sorted, n, sizeof(int), table_compare_ids);
	sas_base_table_lock(&table_places, LW_EXCLUSIVE);
	hash_seq_init(&scan, table_places.entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		/* of an agent that was made since, this list does not know, but another worker may */
		if (e->key.dboid == MyDatabaseId && e->made_us < read_us &&
			bsearch(&(int) {SAS_LIMITS_AGENT_OF(e->key.agent_id)}, sorted, n, sizeof(int), table_compare_ids) == NULL)
			table_drop(e);
	sas_base_table_unlock(&table_places);
	if (table_uses != NULL)
	{
		hash_seq_init(&scan, table_uses);
		while ((use = hash_seq_search(&scan)) != NULL)
			if (use->unshared && use->own.in_flight == 0 && bsearch(&(int) {SAS_LIMITS_AGENT_OF(use->agent_id)}, sorted, n, sizeof(int), table_compare_ids) == NULL)
				hash_search(table_uses, &use->agent_id, HASH_REMOVE, NULL);
	}
	pfree(sorted);
}

static void
table_at_commit(int agent_id, bool repaired)
{
	if (table_places.state == NULL)
		return;
	/* nothing is allocated in the callback */
	if (table_uses == NULL)
		table_prepare_uses();
	table_ends = sas_base_grow(TopTransactionContext, table_ends, table_n_ends, &table_room_ends, sizeof(SasLimitsEnd));
	table_ends[table_n_ends++] = (SasLimitsEnd) {agent_id, repaired, GetCurrentSubTransactionId()};
}

void
sas_limits_drop_at_commit(int agent_id)
{
	table_at_commit(agent_id, false);
}

void
sas_limits_half_open_at_commit(int agent_id)
{
	table_at_commit(agent_id, true);
}

static void
table_drop_now(int agent_id)
{
	SasLimitsKey key = {MyDatabaseId, agent_id};

	sas_base_table_lock(&table_places, LW_EXCLUSIVE);
	table_drop(sas_base_table_find(&table_places, &key));
	sas_base_table_unlock(&table_places);
}

/* Runs before that of the wake-ups: a worker that is woken finds the door open, and none before. */
static void
table_xact_callback(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	for (int i = 0; i < table_n_ends && event != XACT_EVENT_ABORT; i++)
	{
		/* COMMIT PREPARED knows nothing of it */
		if (table_ends[i].repaired)
			sas_limits_half_open(table_ends[i].agent_id);
		else if (event == XACT_EVENT_COMMIT)
			table_drop_now(table_ends[i].agent_id);
	}
	table_ends = NULL;
	table_n_ends = table_room_ends = 0;
}

/* What was dropped or half-opened in it, and in those within it, which began later. */
static void
table_subxact_callback(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	int			n_left = 0;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < table_n_ends; i++)
		if (table_ends[i].within < own)
			table_ends[n_left++] = table_ends[i];
	table_n_ends = n_left;
}

void
sas_limits_install(void)
{
	sas_base_table_register(&table_places);
	sas_base_table_register(&table_spares);
	RegisterXactCallback(table_xact_callback, NULL);
	RegisterSubXactCallback(table_subxact_callback, NULL);
}

/* ---------------------------------------------------------------- views */

void
sas_limits_visit(SasLimitsVisit visit, void *arg)
{
	HASH_SEQ_STATUS scan;
	SasLimitsEntry *e;

	if (!sas_base_table_lock(&table_places, LW_SHARED))
		return;
	hash_seq_init(&scan, table_places.entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		if (e->key.dboid == MyDatabaseId)
			visit(e, arg);
	sas_base_table_unlock(&table_places);
}
