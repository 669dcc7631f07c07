/* SPDX-License-Identifier: PostgreSQL */
/*
 * late.h: counts work that nobody announced.
 *
 * Each commit that makes work visible raises a count and wakes. A worker
 * compares that count with the one that it read before its last look. When
 * the count is the same and the last look left nothing behind, nobody has
 * announced anything since: the look is unprompted. Work that an unprompted
 * look finds, and that has been there for a second, was found late: a
 * wake-up was lost. It is counted as found_late, by actor and kind, and
 * logged.
 *
 * The instants in rows are not those of their commits. A transaction that
 * stays open leaves old rows behind, but its commit raises the count, so the
 * look is prompted. The first look of a worker is never judged: it follows a
 * start, a promotion or a restore. Nor is work of a time that the clock has
 * shown twice, because it was set back: the look that its commit prompted may
 * have come before its time.
 */
#ifndef SAS_WORK_LATE_H
#define SAS_WORK_LATE_H

#include "datatype/timestamp.h"

typedef enum SasLateKind
{
	SAS_LATE_STEP,				/* ready steps: n is the lane */
	SAS_LATE_MESSAGE,			/* to the scheduler or the supervisor */
	SAS_LATE_LEASE,
	SAS_LATE_NODE,
	SAS_LATE_ITEMS,
	SAS_LATE_WATCH
} SasLateKind;

#define SAS_LATE_KINDS (SAS_LATE_WATCH + 1)

/*
 * An unprompted look for work of that kind begins.  count returns the count
 * that announces such work; seen is its value before the look.  Rows that are
 * due from known_from on were seen by an earlier look; DT_NOEND: none were.
 */
extern void sas_work_late_look(SasLateKind kind, int n, uint32 (*count) (int n), uint32 seen, TimestampTz known_from);

/*
 * known_from after a look whose next row is due at that instant; infinity: it
 * saw none. If it has passed, rows were left behind, whenever they were due. A
 * second is taken off, because sleeps are rounded.
 */
extern TimestampTz sas_work_late_known_from(TimestampTz next_due);

/*
 * A look has found work of that kind. since: a time no later than when it
 * became visible. label NULL: the kind's own name.
 */
extern void sas_work_late_found(SasLateKind kind, int n, const char *label, TimestampTz since);

/* Did the look that ends pass by rows that another transaction has locked? Then the next one is not judged. */
extern void sas_work_late_pass(SasLateKind kind, bool passed);

/* This worker has raised the count of that kind itself, once, for others: that announces nothing that a look has found. */
extern void sas_work_late_counted(SasLateKind kind);

/* The tick is over; done: its transactions have committed. */
extern void sas_work_late_end(bool done);

/* "step", "message", ...; -1: there is none of that name. */
extern int	sas_work_late_by_name(const char *name);

#endif							/* SAS_WORK_LATE_H */
