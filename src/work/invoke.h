/* SPDX-License-Identifier: PostgreSQL */
/*
 * invoke.h: one function of a user, called with the user's rights.
 */
#ifndef SAS_WORK_INVOKE_H
#define SAS_WORK_INVOKE_H

#include "store/items.h"
#include "store/store.h"

typedef struct SasInvoked
{
	bool		ok;
	Jsonb	   *output;			/* when ok */
	Jsonb	   *error;			/* a problem object, when not */
	bool		transient;
	int			sqlstate;		/* 0: none */
} SasInvoked;

/* What is done as an owner: any code of users that this reaches has the owner's rights and no others. */
typedef struct SasInvocation
{
	Oid			owner;
	void		(*prepare) (void *arg); /* before, with the worker's rights */
	Jsonb	   *(*work) (void *arg, MemoryContext context); /* its result goes into that context */
	Jsonb	   *(*evaluate) (void *arg, Jsonb *output);	/* afterwards: a problem object undoes it; may be NULL */
	void	   *arg;
	const char *instance;		/* of a problem object */
} SasInvocation;

/*
 * Does it in a subtransaction, with at most so many milliseconds. What it
 * wrote is rolled back when it fails. Never throws for what users' code does;
 * a FATAL ends the process as anywhere.
 */
extern void sas_work_invoke(const SasInvocation *p, int64 timeout_ms, SasInvoked *invoked);

/*
 * Calls the function in a subtransaction, as its owner, with at most so many
 * milliseconds. What it wrote is rolled back when it fails. Never throws for
 * what the function does; a FATAL ends the process as anywhere.
 *
 * With timeout_ms 0 it is called in a session that is not a worker's, for a
 * test: without a limit of time; cursors, settings and what is deferred stay
 * the session's; and to cancel the session's statement is not the function's
 * failure.
 */
extern void sas_work_invoke_step(const SasClaimedFunction *step, int64 timeout_ms, SasInvoked *invoked);

/* The same for a function that is no step. */
extern void sas_work_invoke_function(Oid owner, const char *function, Jsonb *input, const char *instance, int64 timeout_ms, SasInvoked *invoked);

/* The same for items of an infinite task: brings them to their target. */
extern void sas_work_invoke_items(const SasClaimedItems *items, int64 timeout_ms, SasInvoked *invoked);

/*
 * Calls a function as that role in the transaction of the session that asks
 * for it, which is the role's own: nothing deferred is fired, no portal is
 * closed. Raises what the function raises.
 */
extern Jsonb *sas_work_invoke_in_place(Oid role, const char *function, Jsonb *input);

/* Outside a transaction, before anything is done as that owner: nothing of another one's session is left for it. */
extern void sas_work_change_owner(Oid owner);

/* Would it wipe the session? */
extern bool sas_work_changes_owner(Oid owner);

#endif							/* SAS_WORK_INVOKE_H */
