/* SPDX-License-Identifier: PostgreSQL */
/*
 * context.c: the error context of a run, a step and an attempt, and what
 * others have added to it.
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

/* What comes after the text of a format before its first value. */
static const char *
context_after(const char *line, const char *format)
{
	size_t		len = strcspn(format, "%");

	return len > 0 && strncmp(line, format, len) == 0 ? line + len : NULL;
}

const char *
sas_base_context_line(const char *line, SasContextLine kind)
{
	/* the translations of a kind may begin differently */
	const char *formats[4] = {NULL};

	switch (kind)
	{
		case SAS_CONTEXT_PLPGSQL:
			formats[0] = dgettext(PG_TEXTDOMAIN("plpgsql"), "PL/pgSQL function %s line %d at %s");
			formats[1] = dgettext(PG_TEXTDOMAIN("plpgsql"), "PL/pgSQL function %s line %d %s");
			formats[2] = dgettext(PG_TEXTDOMAIN("plpgsql"), "PL/pgSQL function %s %s");
			formats[3] = dgettext(PG_TEXTDOMAIN("plpgsql"), "PL/pgSQL function %s");
			break;
		case SAS_CONTEXT_SQL:
			formats[0] = gettext("SQL function \"%s\" statement %d");
			formats[1] = gettext("SQL function \"%s\" during startup");
			formats[2] = gettext("SQL function \"%s\" during inlining");
			break;
		case SAS_CONTEXT_STATEMENT:
			formats[0] = gettext("SQL statement \"%s\"");
			formats[1] = gettext("SQL expression \"%s\"");
			formats[2] = gettext("PL/pgSQL assignment \"%s\"");
			break;
	}
	for (int i = 0; i < lengthof(formats) && formats[i] != NULL; i++)
	{
		const char *rest = context_after(line, formats[i]);

		if (rest != NULL)
			return rest;
	}
	return NULL;
}
