/* SPDX-License-Identifier: PostgreSQL */
/*
 * outcome.h: what an answer of a service means, and how it is stored.
 */
#ifndef SAS_WORK_OUTCOME_H
#define SAS_WORK_OUTCOME_H

#include "work/request.h"

typedef enum SasOutcomeKind
{
	SAS_OUTCOME_DONE,
	SAS_OUTCOME_TRANSIENT,
	SAS_OUTCOME_PERMANENT
} SasOutcomeKind;

typedef struct SasOutcome
{
	SasOutcomeKind kind;
	bool		in_doubt;		/* transient: something may have been done */
	bool		fault;			/* counts for the breaker */
	int			status;			/* 0: no answer */
	double		retry_after_ms; /* -1: the service sent none */
} SasOutcome;

/* expect, retry_on: arrays of statuses, or NULL */
extern void sas_work_outcome_of(const SasReply *reply, Jsonb *expect, Jsonb *retry_on, SasOutcome *outcome);

/* The problem object of an attempt that failed; instance: where. Secrets are masked. */
extern Jsonb *sas_work_outcome_problem(const SasReply *reply, const SasStoredAgent *agent, const SasOutcome *outcome, const char *instance);

/* {status, headers, body} of an answer. Secrets are masked. */
extern Jsonb *sas_work_outcome_output(const SasReply *reply, const SasStoredAgent *agent);

#endif							/* SAS_WORK_OUTCOME_H */
