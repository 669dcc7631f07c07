/* SPDX-License-Identifier: PostgreSQL */
/*
 * scheduler.c: one turn takes what is due, in a batch, and tells when to wake.
 *
 * All thinking is in _sas.scheduler_tick.  Several schedulers share the work
 * by SKIP LOCKED.  Nothing is kept between turns, so nothing can be lost.
 */
#include "postgres.h"

#include "scheduler/scheduler.h"
#include "store/store.h"

#define SAS_SCHEDULER_BATCH 1000

/* clocks jump: while something timed waits, look at least once a minute */
#define SAS_LONGEST_SLEEP_MS 60000
#define SAS_SHORTEST_SLEEP_MS 100

static SasTick
scheduler_tick(void)
{
	SasTick		next = {false, -1};
	int			worked;

	if (!sas_store_begin())
		return next;
	worked = sas_store_scheduler_tick(SAS_SCHEDULER_BATCH, &next.wake_in_ms);
	sas_store_commit();
	next.again = worked > 0 && (worked == SAS_SCHEDULER_BATCH || next.wake_in_ms == 0);
	/* what is due and could not be taken is held by a session: not before a while */
	if (worked == 0 && next.wake_in_ms >= 0 && next.wake_in_ms < SAS_SHORTEST_SLEEP_MS)
		next.wake_in_ms = SAS_SHORTEST_SLEEP_MS;
	if (next.wake_in_ms > SAS_LONGEST_SLEEP_MS)
		next.wake_in_ms = SAS_LONGEST_SLEEP_MS;
	return next;
}

const SasActorMethods sas_scheduler_methods = {
	.tick = scheduler_tick,
};
