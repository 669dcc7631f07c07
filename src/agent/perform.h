/* SPDX-License-Identifier: PostgreSQL */
/*
 * perform.h: one function of a user, called with the user's rights.
 */
#ifndef SAS_AGENT_PERFORM_H
#define SAS_AGENT_PERFORM_H

#include "store/store.h"

typedef struct SasPerformed
{
	bool		ok;
	Jsonb	   *output;			/* when ok */
	Jsonb	   *error;			/* a problem object, when not */
	bool		transient;
	int			sqlstate;		/* 0: none */
} SasPerformed;

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
extern void sas_perform(const SasClaimedFunction *step, int64 timeout_ms, SasPerformed *performed);

/*
 * Calls a function as that role in the transaction of the session that asks
 * for it, which is the role's own: nothing deferred is fired, no portal is
 * closed. Raises what the function raises.
 */
extern Jsonb *sas_perform_in_place(Oid role, const char *function, Jsonb *input);

/* Is it a function(jsonb) that returns one jsonb and that this role may call? In a transaction. */
extern bool sas_perform_may_call(Oid role, const char *function);

/* Before the store changes the session's settings: functions are given those that hold now. */
extern void sas_perform_remember_settings(void);

/* Outside a transaction: nothing of one owner's session is left for the next. */
extern void sas_perform_wipe_session(void);

#endif							/* SAS_AGENT_PERFORM_H */
