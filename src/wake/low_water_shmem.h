/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water_shmem.h: the shared memory of low-water marks; private to
 * src/wake.
 *
 *	  low_water.c		marks: rows that are noted, and scans
 *	  low_water_line.c	owners in line, and their turns
 *
 * One lock guards all entries.  Functions about entries are called with it held.
 */
#ifndef SAS_WAKE_LOW_WATER_SHMEM_H
#define SAS_WAKE_LOW_WATER_SHMEM_H

#include "lib/ilist.h"

#include "base/shared_table.h"
#include "wake/low_water.h"

typedef struct SasLowWaterKey
{
	Oid			dboid;
	SasLowWaterKind kind;
	int			n;
	Oid			owner;			/* InvalidOid: all of them; such an entry has the line */
} SasLowWaterKey;

typedef struct SasLowWater
{
	SasLowWaterKey key;
	TimestampTz mark;			/* no row can be seen before it */
	TimestampTz noted_low;		/* the least that was noted since the token was taken */
	uint64		token;			/* of the scan that may raise the mark; 0: free */
	int64		taken_us;
	int64		begun_us;		/* the last scan */
	int64		checked_us;

	/* an owner */
	dlist_node	node;
	bool		listed;			/* in line */
	uint64		served;			/* number of the turn in which it was served last; 0: never */

	/* all owners of a lane, or of an actor's messages */
	dlist_head	owners;			/* in line, by served */
	int			n_listed;
	uint64		turn;
	uint64		finding;		/* the session that finds all owners; 0: none does */
	bool		complete;		/* all owners with rows are in line */
} SasLowWater;

/* A row that this transaction has written. */
typedef struct SasLowWaterNote
{
	SasLowWaterKind kind;
	int			n;
	Oid			owner;
	TimestampTz at;
} SasLowWaterNote;

/* low_water.c */
extern SasSharedTable sas_wake_low_water_table;
extern SasLowWaterNote *sas_wake_low_water_notes;
extern int	sas_wake_low_water_n_notes;
extern bool sas_wake_low_water_noted_all;	/* too many: all marks are reset */

/* A number that no other process, and no other call, gets. */
extern uint64 sas_wake_low_water_unique(void);

/* NULL: there is no room. */
extern SasLowWater *sas_wake_low_water_find_or_make(const SasLowWaterKey *key, int64 now);

/* False: there is no room for the owner. */
extern bool sas_wake_low_water_lower_key(const SasLowWaterKey *key, TimestampTz at);

/* The scan that begins may raise the mark, unless another may.  There must be room for it, made without the lock. */
extern void sas_wake_low_water_take_token(SasLowWater *f, int64 now);
extern void sas_wake_low_water_room_for_scans(int n);

/* The mark, or the least of the rows that this transaction has written. */
extern TimestampTz sas_wake_low_water_own(SasLowWaterKind kind, int n, Oid owner, TimestampTz mark);

/* low_water_line.c */

/* The entry with the line; NULL: there is none. */
extern SasLowWater *sas_wake_line_of(const SasLowWaterKey *key);
extern void sas_wake_line_insert(SasLowWater *line, SasLowWater *f);
extern void sas_wake_line_remove(SasLowWater *line, SasLowWater *f);

/* Not all owners with rows are in line. */
extern void sas_wake_line_lose(SasLowWater *line);
extern bool sas_wake_line_is_line(const SasLowWater *f);

/* An entry is removed for want of room. */
extern void sas_wake_line_removing(void *entry);

#endif							/* SAS_WAKE_LOW_WATER_SHMEM_H */
