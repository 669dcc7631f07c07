/* SPDX-License-Identifier: PostgreSQL */
/*
 * verb_error.c: what a user reads of an error that a verb raises.
 *
 * The message, the DETAIL with the place and the HINT say what is wrong.  The
 * functions of schema _sas through which the error came do not: their lines
 * are left out of CONTEXT.  What stays is the context of the user's own code,
 * on both sides: of functions that the verb has called, and of functions that
 * have called the verb.
 *
 * An internal error keeps all of its context, because it is to be reported.
 */
#include "postgres.h"

#include "api/verb.h"
#include "base/context.h"
#include "store/pins.h"

/* Does a line of context say that a function of schema _sas, or the function of a verb, was running? */
static bool
verb_error_internal(const char *line)
{
	const char *name = sas_base_context_line(line, SAS_CONTEXT_PLPGSQL);
	size_t		len;

	if (name != NULL)
		return strncmp(name, "_sas.", strlen("_sas.")) == 0;
	name = sas_base_context_line(line, SAS_CONTEXT_SQL);
	if (name == NULL)
		return false;
	len = strspn(name, "abcdefghijklmnopqrstuvwxyz_");
	return len > 3 && strncmp(name + len - 3, "_as", 3) == 0;
}

/*
 * Cuts the context of an error, which was collected inside the verb only: the
 * lines of the innermost functions come first.  So everything is internal from
 * the first internal function on, and the statement before it is its own.
 */
static char *
verb_error_cut(char *context)
{
	char	   *statement = NULL;
	char	   *line = context;

	while (line != NULL && !verb_error_internal(line))
	{
		if (sas_base_context_line(line, SAS_CONTEXT_STATEMENT) != NULL)
			statement = line;
		else if (sas_base_context_line(line, SAS_CONTEXT_PLPGSQL) != NULL ||
				 sas_base_context_line(line, SAS_CONTEXT_SQL) != NULL)
			statement = NULL;
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	if (line == NULL)
		return context;
	if (statement != NULL)
		line = statement;
	if (line == context)
		return NULL;
	line[-1] = '\0';
	return context;
}

/* Calls the function of a verb.  What encloses this call adds its context when the error is thrown again. */
Datum
sas_api_verb_invoke(FunctionCallInfo call)
{
	MemoryContext caller = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;
	volatile Datum result = (Datum) 0;
	SasOwnPlans outer = sas_store_note_plans();
	int			level = sas_store_pin_plans();
	bool		sizes = sas_store_assume_sizes(true);

	PG_TRY();
	{
		error_context_stack = NULL;
		result = FunctionCallInvoke(call);
	}
	PG_CATCH();
	{
		(void) sas_store_assume_sizes(sizes);
		sas_store_forget_plans(outer);
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		if (error->context != NULL &&
			ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TO_CATEGORY(ERRCODE_INTERNAL_ERROR))
			error->context = verb_error_cut(error->context);
		ThrowErrorData(error);
	}
	PG_END_TRY();
	(void) sas_store_assume_sizes(sizes);
	sas_store_forget_plans(outer);
	sas_store_unpin_plans(level);
	return result;
}
