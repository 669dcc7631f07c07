/* SPDX-License-Identifier: PostgreSQL */
/*
 * low_water.h: low-water marks: where scans of an owner's steps in a lane, and
 * of due rows, begin; and which owners have any.
 *
 * Rows leave at the low end of an index all the time.  While any transaction
 * of the cluster keeps its snapshot, their index entries stay there, dead.  To
 * skip them, shared memory stores a mark for each owner in a lane, for each
 * actor of a database, and for each owner of messages to an actor: no row
 * below the mark is visible, now or later.
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
 * without the token reads the mark all the same.  Nothing here survives a
 * crash: afterwards there are no marks.
 *
 * Owners take turns.  The entry of a lane, or of an actor, has a line of the
 * owners that have rows there; the owner that was served the longest time ago
 * is first.  An owner that is not in line has no row: it comes into the line
 * when a row is noted, and leaves it when its mark is above all keys.  The
 * line is complete once a session has found all owners with rows, with a
 * snapshot that is younger than the entry: rows that come later are noted.  It
 * is no longer complete when an owner in line is removed because the table is
 * full (sas.max_low_water_marks), or when all marks are reset: then all owners
 * are found again.
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

/*
 * What is due: messages to the scheduler, and about answers; rows of
 * _sas.schedule, never, or at due_at; of _sas.schedule_plan; of
 * _sas.watch_work; of _sas.lease, by next_by; steps in queues, at once.
 */
#define SAS_LOW_WATER_MESSAGES 's'
#define SAS_LOW_WATER_ANSWERS 'a'
#define SAS_LOW_WATER_SCHEDULES 'c'
#define SAS_LOW_WATER_PLANS 'p'
#define SAS_LOW_WATER_ITEMS 'i'
#define SAS_LOW_WATER_LEASES 'l'
#define SAS_LOW_WATER_QUEUES 'q'

/* In _PG_init: shared memory, and a callback of transactions. */
extern void sas_wake_low_water_install(void);

/* This transaction has written a row with that key. owner: of a step in a lane, a message, a schedule; else InvalidOid. */
extern void sas_wake_low_water_note(SasLowWaterKind kind, int n, Oid owner, TimestampTz at);

/*
 * The key to scan from: no row is below it, rows of this transaction
 * included. Must come before the snapshot of the scan.
 */
extern TimestampTz sas_wake_low_water_begin(SasLowWaterKind kind, int n, Oid owner);

/*
 * The mark of all owners, for what would be a scan: nothing is due if the mark
 * is later.  It also says when something may be.  DT_NOBEGIN: nothing is known.
 */
extern TimestampTz sas_wake_low_water_look(SasLowWaterKind kind, int n);

/* The first key that the scan has seen, locked by others or not; DT_NOEND: there was no row. */
extern void sas_wake_low_water_raise(SasLowWaterKind kind, int n, Oid owner, TimestampTz first);

/* At once: there is a row with that key, so the mark must not be above it. */
extern void sas_wake_low_water_lower(Oid dboid, SasLowWaterKind kind, int n, Oid owner, TimestampTz at);

/* At once: resets all marks of that database. */
extern void sas_wake_low_water_lower_all(Oid dboid);

/* Called by the callback of wake-ups, before it wakes. */
extern void sas_wake_low_water_commit(void);
extern void sas_wake_low_water_forget(void);

/*
 * is_unknown: may there be an owner with rows who is not in line?  Then the
 * caller finds all owners with rows in a statement of its own, adds each with
 * its first key (add_owner), and says when that is done (found_owners).
 */
extern void sas_wake_lines_begin_finding(void);
extern bool sas_wake_line_is_unknown(SasLowWaterKind kind, int n);
extern void sas_wake_line_add_owner(SasLowWaterKind kind, int n, Oid owner, TimestampTz first);
extern void sas_wake_line_found_owners(SasLowWaterKind kind, int n);
extern void sas_wake_line_forget_owners(SasLowWaterKind kind, int n);

/* All owners in that line, at most max; -1: there may be others. Nobody loses a turn. */
extern int	sas_wake_line_owners(SasLowWaterKind kind, int n, Oid *owners, int max);

/* Owners whose turn it is, palloc'd, with the marks of their rows. */
typedef struct SasOwnerTurns
{
	int			n;
	Oid		   *owners;
	TimestampTz *marks;
	int			left;			/* left of those in line at the first call; before that -1 */
} SasOwnerTurns;

/*
 * Takes the next owners in line, about that many, and puts them at its end;
 * scans of their rows begin.  With turns of an earlier call it continues along
 * the same line.  Owners whose mark is above until have nothing that is due,
 * and are skipped.
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
