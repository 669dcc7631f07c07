/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water.h: low-water marks: where scans of an owner's steps in a lane,
 * and of due rows, begin; and which owners have any.
 *
 * Rows leave at the low end of an index all the time. While any transaction
 * of the cluster keeps its snapshot, their entries stay there, dead. To skip
 * them, shared memory stores a mark for each owner in a lane, for each actor of
 * a database and each owner of messages to it: no row below the mark is visible,
 * now or later.
 *
 * The mark is a hint that must never be too high:
 *
 *	- A trigger notes the key of each row that is written.  When the
 *	  transaction has committed and others see the row, the mark is lowered to
 *	  that key, before the workers are woken.
 *	- A scan reads the mark before it takes its snapshot.  Afterwards it may
 *	  report the first key that its snapshot sees: a row that was deleted before
 *	  the snapshot does not come back.  The mark is raised at the commit of the
 *	  scanning transaction, since an abort brings back what it deleted itself,
 *	  and never above a key that was noted since the scan began.
 *	- COMMIT PREPARED, and everything else that wakes a whole database, resets
 *	  its marks.
 *
 * A scan takes a token, so that only one at a time raises a mark; a scan
 * without the token reads the mark all the same. Nothing here survives a
 * crash: then there are no marks.
 *
 * Owners take turns.  A lane is an entry, too, with a line of its owners that
 * have rows, who was served the longest ago first; an actor likewise. Who is not in line has no
 * row: an owner comes into the line when a row is noted, and leaves it when
 * its mark is above all keys.  The line is complete once somebody has found all
 * owners with rows, with a snapshot that is younger than the entry of the
 * lane: what comes later is noted.  It is not complete any longer when an owner
 * in line is removed for want of room (sas.max_low_water_marks), or all marks
 * are reset: then all owners are found again.
 */
#ifndef SAS_WAKE_LOW_WATER_H
#define SAS_WAKE_LOW_WATER_H

#include "datatype/timestamp.h"

/*
 * Which mark: an owner's steps in a lane of _sas.ready by rank; rows of
 * _sas.message to an actor by due_at, of an owner or of all; or untimed runs by run_id (n is 0): those
 * that the sweep of deadlines has not seen yet.
 */
typedef enum SasLowWaterKind
{
	SAS_LOW_WATER_LANE = 'r',
	SAS_LOW_WATER_DUE = 'd',
	SAS_LOW_WATER_UNTIMED = 'y'
} SasLowWaterKind;

extern void sas_wake_low_water_install(void);

/* This transaction has written a row with that key. owner: of a step in a lane, a message, a schedule; else InvalidOid. */
extern void sas_wake_low_water_note(SasLowWaterKind kind, int n, Oid owner, TimestampTz at);

/*
 * The key to scan from: no row is below it, rows of this transaction
 * included. Must come before the snapshot of the scan.
 */
extern TimestampTz sas_wake_low_water_begin(SasLowWaterKind kind, int n, Oid owner);

/* The first key that the scan has seen, locked by others or not; DT_NOEND: there was no row. */
extern void sas_wake_low_water_raise(SasLowWaterKind kind, int n, Oid owner, TimestampTz first);

/* Now: there is a row with that key, whatever the mark says. */
extern void sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, Oid owner, TimestampTz at);

/* Now: resets all marks of that database. */
extern void sas_wake_low_water_lower_all(Oid dboid);

/* By the callback of wake-ups, which wakes afterwards. */
extern void sas_wake_low_water_commit(void);
extern void sas_wake_low_water_forget(void);

/*
 * Is an owner with rows not in line, perhaps?  Then the caller
 * finds all of them, in a statement of its own, adds each with its first key,
 * and says when that is done.
 */
extern void sas_wake_lines_begin_finding(void);
extern bool sas_wake_line_is_unknown(SasLowWaterKind kind, int n);
extern void sas_wake_line_add_owner(SasLowWaterKind kind, int n, Oid owner, TimestampTz first);
extern void sas_wake_line_found_owners(SasLowWaterKind kind, int n);
extern void sas_wake_line_forget_owners(SasLowWaterKind kind, int n);

/* Owners that have their turn, palloc'd, with the marks of their rows. */
typedef struct SasOwnerTurns
{
	int			n;
	Oid		   *owners;
	TimestampTz *marks;
	int			left;			/* of the line as it was at the first call; before that -1 */
} SasOwnerTurns;

/*
 * The next owners in line, about so many, who go to its end: scans of their
 * rows begin.  With turns of an earlier call: go on along the same line. Those
 * whose mark is above until have nothing that is due, and are passed by.
 */
extern void sas_wake_line_next_owners(SasLowWaterKind kind, int n, int most, TimestampTz until, SasOwnerTurns *turns);

typedef struct SasLowWaterView
{
	SasLowWaterKind kind;
	int			n;
	Oid			owner;			/* InvalidOid: all */
	TimestampTz mark;
} SasLowWaterView;

/*
 * The marks of this database, palloc'd; returns how many. unchecked_for_us
 * above 0: only those that no such call has returned for so long.
 */
extern int	sas_wake_low_water_view(SasLowWaterView **views, int64 unchecked_for_us);

#endif							/* SAS_WAKE_LOW_WATER_H */
