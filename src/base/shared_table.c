/* SPDX-License-Identifier: PostgreSQL */
/*
 * shared_table.c: tables in shared memory that cannot fill for good.
 *
 * Each is a hash table of the server with a fixed size and one lock, which is
 * taken for a moment only.  Nothing here survives a crash.
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/shared_table.h"

#define SAS_TABLES 16

/* A table that had hardly anything to remove is not searched again before that. */
#define SAS_TABLE_FULL_US 5000

typedef struct SasSharedTableState
{
	LWLock		lock;
	int64		full_until_us;
	uint64		refused;
	int64		refused_us;		/* 0: never */
	char		extra[FLEXIBLE_ARRAY_MEMBER] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} SasSharedTableState;

static SasSharedTable *shared_table_all[SAS_TABLES];
static int	shared_table_n = 0;

void
sas_base_table_register(SasSharedTable *t)
{
	Assert(shared_table_n < SAS_TABLES);
	shared_table_all[shared_table_n++] = t;
}

static Size
shared_table_state_size(const SasSharedTable *t)
{
	return add_size(offsetof(SasSharedTableState, extra), t->extra_size);
}

Size
sas_base_tables_shmem_size(void)
{
	Size		size = 0;

	for (int i = 0; i < shared_table_n; i++)
		size = add_size(size, add_size(CACHELINEALIGN(shared_table_state_size(shared_table_all[i])),
									   hash_estimate_size(*shared_table_all[i]->capacity, shared_table_all[i]->entry_size)));
	return size;
}

static void
shared_table_init(SasSharedTable *t)
{
	HASHCTL		control = {.keysize = t->key_size,.entrysize = t->entry_size};
	char		name[SHMEM_INDEX_KEYSIZE];
	bool		found;

	snprintf(name, sizeof(name), "sas %s", t->name);
	t->state = ShmemInitStruct(name, shared_table_state_size(t), &found);
	t->extra = t->state->extra;
	if (!found)
	{
		memset(t->state, 0, shared_table_state_size(t));
		LWLockInitialize(&t->state->lock, LWLockNewTrancheId());
	}
	LWLockRegisterTranche(t->state->lock.tranche, MemoryContextStrdup(TopMemoryContext, name));
	snprintf(name, sizeof(name), "sas entries of %s", t->name);
	t->entries = ShmemInitHash(name, *t->capacity, *t->capacity, &control, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

void
sas_base_tables_shmem_init(void)
{
	for (int i = 0; i < shared_table_n; i++)
		shared_table_init(shared_table_all[i]);
}

bool
sas_base_table_lock(SasSharedTable *t, LWLockMode mode)
{
	if (t->state == NULL)
		return false;
	LWLockAcquire(&t->state->lock, mode);
	return true;
}

void
sas_base_table_unlock(SasSharedTable *t)
{
	LWLockRelease(&t->state->lock);
}

void *
sas_base_table_find(SasSharedTable *t, const void *key)
{
	return hash_search(t->entries, key, HASH_FIND, NULL);
}

void
sas_base_table_remove(SasSharedTable *t, void *entry)
{
	/* the key is the first thing in an entry */
	hash_search(t->entries, entry, HASH_REMOVE, NULL);
}

/* Removes entries that are idle; false: there was none. */
static bool
shared_table_make_room(SasSharedTable *t, int64 now)
{
	HASH_SEQ_STATUS scan;
	void	   *e;
	int			n = 0;

	if (t->idle == NULL || now < t->state->full_until_us)
		return false;
	hash_seq_init(&scan, t->entries);
	while ((e = hash_seq_search(&scan)) != NULL)
	{
		if (!t->idle(e, now))
			continue;
		if (t->removing != NULL)
			t->removing(e);
		sas_base_table_remove(t, e);
		n++;
	}
	if (n <= *t->capacity / 16)
		t->state->full_until_us = now + SAS_TABLE_FULL_US;
	return n > 0;
}

void *
sas_base_table_enter(SasSharedTable *t, const void *key)
{
	bool		found;
	void	   *e = hash_search(t->entries, key, HASH_ENTER_NULL, &found);

	if (e == NULL)
	{
		int64		now = sas_base_clock_monotonic_us();

		if (shared_table_make_room(t, now))
			e = hash_search(t->entries, key, HASH_ENTER_NULL, &found);
		if (e == NULL)
		{
			t->state->refused++;
			t->state->refused_us = now;
			return NULL;
		}
	}
	if (!found)
		memset((char *) e + t->key_size, 0, t->entry_size - t->key_size);
	return e;
}

void
sas_base_tables_forget(Oid dboid)
{
	for (int i = 0; i < shared_table_n; i++)
	{
		SasSharedTable *t = shared_table_all[i];
		HASH_SEQ_STATUS scan;
		void	   *e;

		if (!sas_base_table_lock(t, LW_EXCLUSIVE))
			continue;
		hash_seq_init(&scan, t->entries);
		while ((e = hash_seq_search(&scan)) != NULL)
			if (*(Oid *) e == dboid && (t->forget == NULL || t->forget(e)))
				sas_base_table_remove(t, e);
		sas_base_table_unlock(t);
	}
}

/* While there is much room, it does not matter how many of them are idle. */
static int
shared_table_taken(SasSharedTable *t, int64 now)
{
	int			taken = (int) hash_get_num_entries(t->entries);
	HASH_SEQ_STATUS scan;
	void	   *e;

	if (t->idle == NULL || taken <= *t->capacity / 2)
		return taken;
	taken = 0;
	hash_seq_init(&scan, t->entries);
	while ((e = hash_seq_search(&scan)) != NULL)
		taken += !t->idle(e, now);
	return taken;
}

int
sas_base_tables_view(SasSharedTableView **views)
{
	int64		now = sas_base_clock_monotonic_us();
	int			n = 0;

	*views = palloc(sizeof(SasSharedTableView) * SAS_TABLES);
	for (int i = 0; i < shared_table_n; i++)
	{
		SasSharedTable *t = shared_table_all[i];
		SasSharedTableView *v = &(*views)[n];

		if (!sas_base_table_lock(t, LW_SHARED))
			continue;
		v->name = t->name;
		v->setting = t->setting;
		v->capacity = *t->capacity;
		v->taken = shared_table_taken(t, now);
		v->refused = t->state->refused;
		v->refused_ago_us = t->state->refused_us == 0 ? -1 : Max(0, now - t->state->refused_us);
		sas_base_table_unlock(t);
		n++;
	}
	return n;
}
