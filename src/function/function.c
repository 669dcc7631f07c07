/* SPDX-License-Identifier: PostgreSQL */
/*
 * function.c: the function worker: calls functions of users, and does what
 * else may run code of theirs.
 *
 * There are four kinds of such work. machine.c carries out all of them in the
 * same way, and each file says what is its own:
 *
 *	  step.c	the functions of steps
 *	  plans.c	runs of schedules whose workflow a function plans
 *	  inbox.c	items of infinite tasks go to their targets
 *	  tasks.c	functions that are repeated for ever; task_host.c has those of the worker
 */
#include "postgres.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "function/function.h"
#include "function/machine.h"
#include "store/store.h"

/* in the order of a tick */
static SasFunctionKind *const function_kinds[] = {
	&sas_function_steps, &sas_function_plans, &sas_function_items, &sas_function_tasks
};

static void
function_start(void)
{
	sas_function_machine_open();
	sas_function_hosted_open();
}

/* the first batches need about so much memory; of what is freed, more than that goes back to the system */
#define FUNCTION_MEMORY (8 * 1024 * 1024)
#define FUNCTION_MEMORY_KEPT (24 * 1024 * 1024)
#define FUNCTION_PIECE (64 * 1024)
#define FUNCTION_PAGE 4096

/* Each page of memory that a process uses for the first time costs it a fault: half a microsecond or more. */
static void
function_rehearse_memory(void)
{
#ifdef __GLIBC__
	char	   *pieces[FUNCTION_MEMORY / FUNCTION_PIECE];

	mallopt(M_TRIM_THRESHOLD, FUNCTION_MEMORY_KEPT);
	mallopt(M_MMAP_THRESHOLD, FUNCTION_MEMORY / 2);
	for (int i = 0; i < lengthof(pieces); i++)
	{
		pieces[i] = malloc(FUNCTION_PIECE);
		/* volatile: it is not in vain */
		for (int at = 0; pieces[i] != NULL && at < FUNCTION_PIECE; at += FUNCTION_PAGE)
			((volatile char *) pieces[i])[at] = 0;
	}
	for (int i = 0; i < lengthof(pieces); i++)
		free(pieces[i]);
#endif
}

/*
 * A new process reads the catalog and plans each statement when it first
 * comes to it: some 40 ms of CPU time.  A worker that finds nothing to do at
 * its start does that before the first step comes.
 */
static void
function_rehearse(void)
{
	static bool is_done = false;

	if (is_done || !sas_store_begin())
		return;
	is_done = true;
	PG_TRY();
	{
		sas_store_rehearse_functions();
	}
	PG_CATCH();
	{
		/* somebody holds a lock on a table: it does without */
		MemoryContextSwitchTo(sas_store_results);
		FlushErrorState();
	}
	PG_END_TRY();
	sas_store_rollback();
	function_rehearse_memory();
}

static SasTick
function_tick(void)
{
	SasTick		next = sas_function_machine_tick(function_kinds, lengthof(function_kinds));

	if (!next.again && !sas_base_retire && !sas_base_leaving)
		function_rehearse();
	return next;
}

static int
function_in_flight(void)
{
	return sas_function_machine_count(function_kinds, lengthof(function_kinds));
}

const SasActorMethods sas_function_methods = {
	.start = function_start,
	.tick = function_tick,
	.in_flight = function_in_flight,
	.gives_back = true,
	.gather_us = sas_function_step_gather_us,
};
