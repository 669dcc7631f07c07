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

/*
 * How many rows are visible in lanes first to last, most at most.  After so
 * many that are not visible, it is most: there may be as many.
 */
extern int	sas_store_some_ready(int first, int last, int most);

#endif							/* SAS_STORE_READY_SCAN_H */
