/* SPDX-License-Identifier: PostgreSQL */
/*
 * context.h: adds the run, step and attempt to every message; and reads CONTEXT.
 *
 *	SasContext context;
 *
 *	sas_base_context_push(&context, run_id, "charge", 2);
 *	...										errors carry 'run 17 step "charge" attempt 2'
 *	sas_base_context_pop(&context);
 *
 * An ERROR that leaves the block needs no pop: PG_TRY restores the stack.
 */
#ifndef SAS_BASE_CONTEXT_H
#define SAS_BASE_CONTEXT_H

typedef struct SasContext
{
	ErrorContextCallback callback;
	int64		run_id;
	const char *step;			/* NULL: the message is about the run */
	int			attempt;		/* 0: about the step, not about one attempt */
} SasContext;

/* step is not copied: it must live until the pop. */
extern void sas_base_context_push(SasContext *context, int64 run_id, const char *step, int attempt);
extern void sas_base_context_pop(SasContext *context);

typedef enum SasContextLine
{
	SAS_CONTEXT_PLPGSQL,		/* what follows is the function, with its arguments */
	SAS_CONTEXT_SQL,			/* what follows is the function's name */
	SAS_CONTEXT_STATEMENT,		/* what the function of a later line was carrying out */
} SasContextLine;

/*
 * What follows where a line of CONTEXT begins as PostgreSQL itself writes
 * this kind, in the language of lc_messages; NULL: it does not.
 */
extern const char *sas_base_context_line(const char *line, SasContextLine kind);

#endif							/* SAS_BASE_CONTEXT_H */
