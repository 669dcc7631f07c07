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
#include "store/pins.h"

/* Does a line of context say that a function of schema _sas, or the function of a verb, was running? */
static bool
verb_error_internal(const char *line)
{
	const char *name = "SQL function \"";
	const char *end;

	if (strncmp(line, "PL/pgSQL function _sas.", strlen("PL/pgSQL function _sas.")) == 0)
		return true;
	if (strncmp(line, name, strlen(name)) != 0)
		return false;
	end = strchr(line + strlen(name), '"');
	return end != NULL && end - (line + strlen(name)) > 3 && strncmp(end - 3, "_as", 3) == 0;
}

/* Does a line say which statement the function of the next line was carrying out? */
static bool
verb_error_statement(const char *line)
{
	static const char *const starts[] = {"SQL statement \"", "SQL expression \"", "PL/pgSQL assignment \""};

	for (int i = 0; i < lengthof(starts); i++)
		if (strncmp(line, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
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
		if (verb_error_statement(line))
			statement = line;
		else if (strncmp(line, "PL/pgSQL function ", strlen("PL/pgSQL function ")) == 0 ||
				 strncmp(line, "SQL function ", strlen("SQL function ")) == 0)
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
	sas_store_unpin_plans(level);
	return result;
}
