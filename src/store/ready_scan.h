/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_scan.h: the first rows of an owner in a lane of _sas.ready.
 *
 * A role may have a million rows there that no claim can take: one of its
 * transactions is deleting or inserting them, and has not ended.  A scan
 * passes only so many of them.  The next one continues where it stopped, so
 * that the rows of others are claimed in between, and those behind it, too.
 */
#ifndef SAS_STORE_READY_SCAN_H
#define SAS_STORE_READY_SCAN_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"

/*
 * The rank of the first row from the mark on that is visible; DT_NOEND: there
 * is none.  After so many rows that are not visible, it returns the rank
 * where it has stopped: no visible row is below it.
 */
extern TimestampTz sas_store_first_ready(int lane, Oid owner, TimestampTz mark);

/*
 * If the first steps of the owner have a higher priority than those behind
 * them: how many these are. Else share. Only the first few are compared.
 */
extern int	sas_store_urgent_share(int lane, Oid owner, int share, TimestampTz mark);

/* Up to share rows of an owner in a lane, from the mark on. */
typedef struct SasReadyShare
{
	int			lane;
	Oid			owner;
	int			share;
	TimestampTz mark;
} SasReadyShare;

/*
 * Locks rows of _sas.ready for a claim, without waiting, in the order of the
 * shares and then of the ranks.  Returns how many; *places is palloc'd.  A
 * function that must run alone is locked only if it is the first row, and
 * then it is the only one.
 */
extern int	sas_store_lock_ready(const SasReadyShare *shares, int n, ItemPointerData **places);

/*
 * A worker is about to claim.  woken: how often it has been woken by now; it
 * may have been for rows that it has passed.  anew: its last claim was rolled
 * back, so it begins with the first rows.
 */
extern void sas_store_ready_begin(uint32 woken, bool anew);

/*
 * Did a scan for the last claim in this lane stop before it knew all rows?
 * Then the next claim continues there, and should come at once.
 */
extern bool sas_store_ready_was_cut(int lane);

#endif							/* SAS_STORE_READY_SCAN_H */
