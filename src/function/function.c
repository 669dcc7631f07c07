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

#include "function/function.h"
#include "function/machine.h"

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

static SasTick
function_tick(void)
{
	return sas_function_machine_tick(function_kinds, lengthof(function_kinds));
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
};
