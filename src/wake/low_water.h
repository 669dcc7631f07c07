/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water.h: where the rows of a lane, and of what is due, begin.
 *
 * Rows go from the front of an index all the time, and while some transaction
 * in the cluster keeps its snapshot their entries stay there, dead.  So that
 * nobody walks over them again and again, a mark in shared memory says for
 * each front, in each database, below what no row can be seen, now or later.
 *
 * The mark is a hint that must never be too high:
 *
 *	- Whoever writes a row notes its place (a trigger of the table does); the
 *	  mark is lowered to it when the transaction has committed and others see
 *	  the row, before the bell rings for it.
 *	- Who looks from the mark on begins before it takes its snapshot, and may
 *	  say afterwards where the first row stood that this snapshot sees: what
 *	  was deleted before it is gone for good.  The mark is raised when the
 *	  transaction has committed, since what it has deleted itself comes back
 *	  otherwise; and not above anything that was noted since it began.
 *	- COMMIT PREPARED, and whatever else rings a whole database, takes all
 *	  marks of it back.
 *
 * A look holds a token, so that one at a time raises a mark; who does not get
 * it looks from the mark all the same.  Nothing here survives a crash: fronts
 * begin without a mark.
 */
#ifndef SAS_WAKE_LOW_WATER_H
#define SAS_WAKE_LOW_WATER_H

#include "datatype/timestamp.h"

/*
 * Which front: a lane of _sas.ready by rank, an actor's rows of _sas.due by
 * due_at, or (n is 0, and a place no time but a run_id) the runs that the one
 * who sets timers has not heard of.
 */
typedef enum SasLowWaterKind
{
	SAS_LOW_WATER_LANE = 'r',
	SAS_LOW_WATER_DUE = 'd',
	SAS_LOW_WATER_UNTIMED = 'y'
} SasLowWaterKind;

extern Size sas_wake_low_water_shmem_size(void);
extern void sas_wake_low_water_shmem_init(void);
extern void sas_wake_low_water_install(void);

/* This transaction has written a row that stands there. */
extern void sas_wake_low_water_note(SasLowWaterKind kind, int n, TimestampTz at);

/*
 * Where to look from: no row stands before it, those of this transaction
 * included.  Must come before the snapshot of the look.
 */
extern TimestampTz sas_wake_low_water_begin(SasLowWaterKind kind, int n);

/* The first row that the look has seen, held by others or not, stands there; DT_NOEND: there was none. */
extern void sas_wake_low_water_raise(SasLowWaterKind kind, int n, TimestampTz first);

/* Now: a row stands there, whatever the mark says. */
extern void sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, TimestampTz at);

/* Now: all marks of that database are taken back. */
extern void sas_wake_low_water_lower_all(Oid dboid);

/* By the callback of the bell, which rings afterwards. */
extern void sas_wake_low_water_commit(void);
extern void sas_wake_low_water_forget(void);

typedef struct SasLowWaterView
{
	SasLowWaterKind kind;
	int			n;
	TimestampTz mark;
} SasLowWaterView;

/*
 * The fronts of this database, palloc'd; returns how many.  unchecked_for_us
 * above 0: only those that have not been told by this for so long.
 */
extern int	sas_wake_low_water_view(SasLowWaterView **views, int64 unchecked_for_us);

#endif							/* SAS_WAKE_LOW_WATER_H */
