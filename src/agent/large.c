/* SPDX-License-Identifier: PostgreSQL */
/*
 * large.c: small calls go before the next large answer.
 *
 * What is small was claimed and written before a large answer is moved on, and
 * comes again after it.  What was claimed since the last one may be answered
 * first, in a tick or until most services have; where calls are claimed all
 * the time, large answers get half of it.
 */
#include "postgres.h"

#include "agent/large.h"
#include "base/clock.h"

/* For so long after a claim a large answer waits: most services answer within it. */
#define SAS_SMALL_FIRST_US 20000

static bool large_claimed;		/* calls were claimed in this tick */
static int64 large_claimed_us;	/* and last at this time */
static int64 large_begin_us;	/* no large answer waits beyond this time, however many are claimed */
static bool large_seen;			/* one waited in the tick before */
static bool large_held;			/* and it let what was claimed go first */
static int64 large_wait_us;		/* one waits until then; 0: none waits */

void
sas_agent_large_claimed(int64 at_us)
{
	large_claimed = true;
	large_claimed_us = at_us;
}

SasLargeWhen
sas_agent_large_when(bool waits, int64 now_us)
{
	bool		claimed = large_claimed;

	large_claimed = false;
	large_wait_us = 0;
	if (!waits)
	{
		large_seen = large_held = false;
		return SAS_LARGE_LATER;
	}
	/* to read it may have taken long: what came meanwhile is claimed first */
	if (!large_seen || (claimed && !large_held))
	{
		large_held = large_seen;
		large_seen = true;
		return SAS_LARGE_NEXT_TICK;
	}
	if (now_us < Min(large_begin_us, large_claimed_us + SAS_SMALL_FIRST_US))
	{
		large_wait_us = Min(large_begin_us, large_claimed_us + SAS_SMALL_FIRST_US);
		return SAS_LARGE_LATER;
	}
	return SAS_LARGE_NOW;
}

void
sas_agent_large_moved(int64 begun_us, int64 ended_us)
{
	large_held = false;
	large_begin_us = 2 * ended_us - begun_us;
}

int64
sas_agent_large_wake_in_ms(void)
{
	return large_wait_us == 0 ? -1 : Max(0, (large_wait_us - sas_base_clock_monotonic_us() + 999) / 1000);
}
