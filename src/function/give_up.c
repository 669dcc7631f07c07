/* SPDX-License-Identifier: PostgreSQL */
/*
 * give_up.c: the end of work with which transactions abort as a whole.
 *
 * A failure of a function is caught in its subtransaction.  What fails after
 * that takes the transaction down: triggers that were deferred twice, and
 * whatever stores the result, above all for lack of memory.  The work is
 * tried alone, some times.  Then it fails with the error of the last abort,
 * in a transaction that does not call the function, so that the policy of
 * the step or task applies at once.
 */
#include "postgres.h"

#include "base/actor.h"
#include "base/clock.h"
#include "function/give_up.h"
#include "utils/memutils.h"
#include "work/failure.h"

/* transactions that may abort with the work in them; then as many that may abort with its failure */
#define SAS_GIVE_UP_AFTER 5

static Jsonb *
give_up_problem(const char *instance, MemoryContext context)
{
	ErrorData	edata = {.sqlerrcode = sas_base_tick_error.sqlstate,.message = sas_base_tick_error.message,
	.detail = "The transaction was rolled back as a whole, after the function had returned."};
	MemoryContext old = MemoryContextSwitchTo(context);
	Jsonb	   *problem = sas_work_failure_problem(&edata, instance, NULL);

	MemoryContextSwitchTo(old);
	return problem;
}

bool
sas_function_count_abort(SasAborts *aborts, int64 deadline_us, double window_ms, const char *instance, MemoryContext context)
{
	int64		left_us = deadline_us - sas_base_clock_monotonic_us();

	if (sas_base_tick_cancelled)
		return true;
	aborts->tries++;
	if (aborts->problem == NULL && (aborts->tries >= SAS_GIVE_UP_AFTER || left_us < window_ms * 500))
	{
		aborts->problem = give_up_problem(instance, context);
		aborts->tries = SAS_GIVE_UP_AFTER;
	}
	return aborts->tries < 2 * SAS_GIVE_UP_AFTER;
}
