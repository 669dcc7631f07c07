/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_scan.c: looks at _sas.ready that pass a bounded number of rows.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "store/ready_index.h"
#include "store/ready_scan.h"

/* So many of the first rows of an owner are compared. */
#define READY_SCAN_URGENT 20
#define READY_SCAN_PASS_URGENT 1000

TimestampTz
sas_store_first_ready(int lane, Oid owner, TimestampTz mark)
{
	SasReadyScan	s;
	SasReadyPlace from = {mark, PG_INT64_MIN};
	TimestampTz first = DT_NOEND;
	TimestampTz last = DT_NOBEGIN;
	int			passed = 0;

	sas_store_ready_open(&s, AccessShareLock);
	sas_store_ready_from(&s, lane, owner, &from);
	while (sas_store_ready_next(&s))
	{
		/* a mark is a rank: it must pass all rows of one */
		if (index_fetch_heap(s.scan, s.slot) || (passed++ >= SAS_READY_PASS && s.at.rank != last && lane < SAS_READY_INLINE_LANE))
		{
			first = s.at.rank;
			break;
		}
		last = s.at.rank;
		CHECK_FOR_INTERRUPTS();
	}
	sas_store_ready_end(&s);
	sas_store_ready_close(&s);
	return first;
}

/*
 * The rank is the time minus the priority (a second each, at least) plus some
 * microseconds, so that a step's lead says its priority.  Only a few are
 * compared, so that alternating priorities make no batch smaller.
 */
int
sas_store_urgent_share(int lane, Oid owner, int share, TimestampTz mark)
{
	SasReadyScan	s;
	SasReadyPlace from = {mark, PG_INT64_MIN};
	int64		lead = 0;
	int			passed = 0;
	int			urgent = share;

	if (share <= READY_SCAN_URGENT)
		return share;
	sas_store_ready_open(&s, AccessShareLock);
	sas_store_ready_from(&s, lane, owner, &from);
	for (int n = 0; n <= READY_SCAN_URGENT && passed < READY_SCAN_PASS_URGENT && sas_store_ready_next(&s);)
	{
		int64		last = lead;
		bool		isnull;

		if (!index_fetch_heap(s.scan, s.slot))
		{
			passed++;
			continue;
		}
		lead = DatumGetTimestampTz(slot_getattr(s.slot, s.ready_at, &isnull)) - s.at.rank;
		if (n > 0 && last > lead + USECS_PER_SEC / 2)
			urgent = n;
		n++;
	}
	sas_store_ready_end(&s);
	sas_store_ready_close(&s);
	return urgent;
}

int
sas_store_some_ready(int first, int last, int most)
{
	SasReadyScan s;
	int			passed = 0;
	int			n = 0;

	sas_store_ready_open(&s, AccessShareLock);
	sas_store_ready_from_lanes(&s, first, last);
	while (n < most && sas_store_ready_next(&s))
	{
		if (index_fetch_heap(s.scan, s.slot))
			n++;
		else if (passed++ >= SAS_READY_PASS)
			n = most;
		CHECK_FOR_INTERRUPTS();
	}
	sas_store_ready_end(&s);
	sas_store_ready_close(&s);
	return n;
}
