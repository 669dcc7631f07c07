/* SPDX-License-Identifier: PostgreSQL */
/*
 * context.c: the error context of a run, a step and an attempt.
 */
#include "postgres.h"

#include "base/context.h"

static void
context_callback(void *arg)
{
	SasContext *context = arg;

	if (context->step == NULL)
		errcontext("run %lld", (long long) context->run_id);
	else if (context->attempt <= 0)
		errcontext("run %lld step \"%s\"", (long long) context->run_id, context->step);
	else
		errcontext("run %lld step \"%s\" attempt %d", (long long) context->run_id, context->step,
				   context->attempt);
}

void
sas_base_context_push(SasContext *context, int64 run_id, const char *step, int attempt)
{
	context->run_id = run_id;
	context->step = step;
	context->attempt = attempt;
	context->callback.callback = context_callback;
	context->callback.arg = context;
	context->callback.previous = error_context_stack;
	error_context_stack = &context->callback;
}

void
sas_base_context_pop(SasContext *context)
{
	error_context_stack = context->callback.previous;
}
