/* SPDX-License-Identifier: PostgreSQL */
/*
 * verdict.h: what one attempt means for its flight, or its function step.
 *
 * It is the same for a worker that made the call, and for a test that only
 * gives the answer: all times are arguments.
 */
#ifndef SAS_WORK_VERDICT_H
#define SAS_WORK_VERDICT_H

#include "work/invoke.h"
#include "work/outcome.h"

/* Retry-After counts up to this */
#define SAS_RETRY_AFTER_CAP_MS 3600000.0

typedef struct SasVerdict
{
	const char *reply;			/* the verdict of the step, see _sas.call_reply; NULL: another attempt after the pause */
	double		pause_ms;		/* before another attempt, or of a hand_back until the next claim */
	const char *attempt_status;	/* status of the attempt in sas.attempts; NULL: no row, its step shows it */
	Jsonb	   *output;
	Jsonb	   *problem;
} SasVerdict;

/*
 * The answer to a call; left_ms until complete-by, more than 0.  Marks the flight as in
 * doubt when the call may have done something.
 */
extern void sas_work_verdict_of_call(SasVerdict *verdict, SasFlight *flight, const SasReply *reply, const SasOutcome *outcome,
									 const SasStoredAgent *agent, double left_ms);

/* A request that cannot be made or sent: why is a fragment without secrets. */
extern void sas_work_verdict_of_request(SasVerdict *verdict, const SasFlight *flight, const char *title, const char *why);

/* Judges a function that was called; late: it ended after its time limit. */
extern void sas_work_verdict_of_function(SasVerdict *verdict, const SasClaimedFunction *step, const SasInvoked *invoked, bool late);

/* The problem of a function whose argument cannot be made. */
extern Jsonb *sas_work_verdict_no_input(const SasClaimedFunction *step);

#endif							/* SAS_WORK_VERDICT_H */
