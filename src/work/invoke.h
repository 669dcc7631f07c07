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

/* Work that is done as an owner: all code of users that it reaches has the owner's rights and no others. */
typedef struct SasInvocation
{
	Oid			owner;
	void		(*prepare) (void *arg); /* before, with the worker's rights */
	Jsonb	   *(*work) (void *arg, MemoryContext context); /* its result goes into that context */
	Jsonb	   *(*evaluate) (void *arg, Jsonb *output);	/* afterwards: a problem object undoes it; may be NULL */
	void	   *arg;
	const char *instance;		/* of a problem object */
	const char *outermost;		/* its context ends before the line, or the function in PL/pgSQL, that begins so; may be NULL */
} SasInvocation;

/*
 * Does the work in a subtransaction, within timeout_ms.  A failure rolls
 * back what it wrote.  Never throws for errors of users' code; a FATAL ends
 * the process as anywhere.
 */
extern void sas_work_invoke(const SasInvocation *p, int64 timeout_ms, SasInvoked *invoked);

/*
 * Calls the function of a step in a subtransaction, as its owner, within
 * timeout_ms.  A failure rolls back what it wrote.  Never throws for errors
 * of the function; a FATAL ends the process as anywhere.
 *
 * With timeout_ms 0 it is called in a session that is not a worker's, for a
 * test: without a limit of time.  Cursors, settings and deferred triggers
 * stay the session's, and a cancel of the session's statement is not a
 * failure of the function.
 */
extern void sas_work_invoke_step(const SasClaimedFunction *step, int64 timeout_ms, SasInvoked *invoked);

/* The step whose function this process calls at the moment; NULL: none. */
extern const SasStepId *sas_work_invoked_step(void);

/* The same for a function that is no step. */
extern void sas_work_invoke_function(Oid owner, const char *function, Jsonb *input, const char *instance, int64 timeout_ms, SasInvoked *invoked);

/* The same for items of an infinite task: brings them to their target. */
extern void sas_work_invoke_items(const SasClaimedItems *items, int64 timeout_ms, SasInvoked *invoked);

/*
 * Calls a function as that role in the transaction of the session that asks
 * for it, which is the caller's own: nothing deferred is fired, no portal is
 * closed. For another role it is a security-restricted operation. Raises what
 * the function raises.
 */
extern Jsonb *sas_work_invoke_in_place(Oid caller, Oid role, const char *function, Jsonb *input);

/*
 * Outside a transaction, before anything is done as that owner: nothing of
 * another one's session is left for it, and no temporary object of its own.
 */
extern void sas_work_change_owner(Oid owner);

/*
 * At the end of a tick: releases the advisory locks of the session that
 * functions have taken and kept.  An idle worker would hold them until a
 * function of another owner runs in it, however long that takes.
 */
extern void sas_work_release_locks(void);

#endif							/* SAS_WORK_INVOKE_H */
