/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_index.h: scans of the index ready_claim of _sas.ready, entry by entry.
 *
 * A statement cannot pass a bounded number of rows: an index scan of the
 * executor goes on until it has a visible row, and SKIP LOCKED until it has
 * one that is free.
 */
#ifndef SAS_STORE_READY_INDEX_H
#define SAS_STORE_READY_INDEX_H

#include "access/genam.h"
#include "access/skey.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

/* So many rows are passed in a scan, shared by its owners. */
#define SAS_READY_PASS 4000

/* Lanes of tests in a transaction (sql/testing/inline.sql): they have only the rows of that transaction, and no next claim. */
#define SAS_READY_INLINE_LANE 1000000000

/* The order of the rows of an owner. */
typedef struct SasReadyPlace
{
	TimestampTz rank;
	int64		run_id;
} SasReadyPlace;

/* An open scan. Its rows come from two ranges of the index: the rest of the rank where it begins, and all higher ranks. */
typedef struct SasReadyScan
{
	Relation	table;
	Relation	index;
	AttrNumber	alone;
	AttrNumber	ready_at;
	TupleTableSlot *slot;
	TupleTableSlot *locked;
	IndexScanDesc scan;
	ScanKeyData keys[4];
	bool		higher;			/* in the second range */
	SasReadyPlace at;			/* of the last entry, visible or not */
} SasReadyScan;

/* open, then scans with an end each, then close. */
extern void sas_store_ready_open(SasReadyScan *s, LOCKMODE mode);
extern void sas_store_ready_end(SasReadyScan *s);
extern void sas_store_ready_close(SasReadyScan *s);

/* All rows of that owner in that lane, from that place on; or all rows of these lanes. */
extern void sas_store_ready_from(SasReadyScan *s, int lane, Oid owner, const SasReadyPlace *from);
extern void sas_store_ready_from_lanes(SasReadyScan *s, int first, int last);

/* The next entry of the index; false: there is none.  index_fetch_heap(s->scan, s->slot): is it visible? */
extern bool sas_store_ready_next(SasReadyScan *s);

#endif							/* SAS_STORE_READY_INDEX_H */
