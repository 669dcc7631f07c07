/* SPDX-License-Identifier: PostgreSQL */
/*
 * shared_table.h: tables in shared memory that cannot fill for good.
 *
 * A table has room for as many entries as its setting says.  When it is full,
 * entries that are idle are removed.  When none is idle, enter returns NULL,
 * and the caller works without an entry: slower, or less exactly.  The
 * entries of a database are removed when it is dropped.  The supervisor
 * raises an alert when four fifths of a table are taken, and when an entry
 * found no room; the alert names the setting.
 *
 * How to have one: a static SasSharedTable, registered in _PG_init
 * (src/sas.c) by sas_base_table_register().  Its shared memory, lock, wait event,
 * alert, metrics and removal with the database come with that.
 *
 *	sas_base_table_lock(&t, LW_EXCLUSIVE);		false: the library is not preloaded
 *	e = sas_base_table_enter(&t, &key);			or _find, with LW_SHARED
 *	...											nothing here may raise an error
 *	sas_base_table_unlock(&t);
 *
 * An entry stays where it is until it is removed, so its own numbers may be
 * atomic and change under LW_SHARED.  Without the lock it may be removed at
 * any time, and its place may be given to another key.
 */
#ifndef SAS_BASE_SHARED_TABLE_H
#define SAS_BASE_SHARED_TABLE_H

#include "storage/lwlock.h"
#include "utils/hsearch.h"

typedef struct SasSharedTable
{
	const char *name;			/* of its shared memory, wait event and alert: "places" */
	const char *setting;		/* its capacity, which an operator can raise */
	const int  *capacity;		/* of all databases; set when the server starts */
	Size		key_size;		/* without holes; begins with the Oid of its database */
	Size		entry_size;		/* begins with the key */
	Size		extra_size;		/* beside the entries; all zero at the start */

	/*
	 * With the lock held, and must not raise an error.  idle: the entry may
	 * be removed to make room (NULL: none may).  removing: it is going to
	 * be, for want of room.  forget: its database is dropped; false: the
	 * entry stays for now, and its owner removes it (NULL: it never stays).
	 */
	bool		(*idle) (const void *entry, int64 now_us);
	void		(*removing) (void *entry);
	bool		(*forget) (void *entry);

	/* set at start; NULL when the library is not preloaded */
	struct SasSharedTableState *state;
	HTAB	   *entries;		/* for hash_seq_search, with the lock held */
	void	   *extra;
} SasSharedTable;

/* How full a table is. */
typedef struct SasSharedTableView
{
	const char *name;
	const char *setting;
	int			capacity;
	int			taken;			/* entries that cannot be removed; while there is much room, all entries */
	uint64		refused;		/* how often an entry found no room */
	int64		refused_ago_us; /* the last time; -1: never */
} SasSharedTableView;

/* In _PG_init: the table gets its part of shared memory. */
extern void sas_base_table_register(SasSharedTable *t);

/* Of all tables that are registered; init with AddinShmemInitLock held. */
extern Size sas_base_tables_shmem_size(void);
extern void sas_base_tables_shmem_init(void);

/* False, and no lock, when there is no shared memory. */
extern bool sas_base_table_lock(SasSharedTable *t, LWLockMode mode);
extern void sas_base_table_unlock(SasSharedTable *t);

/*
 * find: NULL when there is no entry.  enter (LW_EXCLUSIVE): makes it when
 * there is none, all zero but for its key; NULL when there is no room.
 */
extern void *sas_base_table_find(SasSharedTable *t, const void *key);
extern void *sas_base_table_enter(SasSharedTable *t, const void *key);
extern void sas_base_table_remove(SasSharedTable *t, void *entry);

/* In all tables: the database is dropped, or sas in it.  May be called after a commit: it raises no error. */
extern void sas_base_tables_forget(Oid dboid);

/* One row for each table, palloc'd; returns how many. */
extern int	sas_base_tables_view(SasSharedTableView **views);

#endif							/* SAS_BASE_SHARED_TABLE_H */
