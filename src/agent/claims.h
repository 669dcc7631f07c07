/* SPDX-License-Identifier: PostgreSQL */
/*
 * claims.h: what a tick of an agent worker claims: as much from each agent as
 * its limits and the free slots allow, and together as much as is evaluated
 * within a moment.
 */
#ifndef SAS_AGENT_CLAIMS_H
#define SAS_AGENT_CLAIMS_H

#include "agent/flights.h"
#include "nodes/pg_list.h"

/* Asks the limits for calls of at most the free ones of so many slots; *retry_us: when a limit may be lifted. */
extern void sas_agent_claims_ask(int slots, int64 *retry_us);

/* Is there anything that the limits have granted? */
extern bool sas_agent_claims_wanted(void);

/* In a transaction: claims what was granted. */
extern List *sas_agent_claims_take(void);

/* After the commit: starts the calls, and gives back the slots that found no step.  True: there may be more. */
extern bool sas_agent_claims_use(List *claimed, const SasClaimTime *when);

/* The transaction did not commit: nothing was claimed. */
extern void sas_agent_claims_failed(void);

/* A worker whose slots are all taken leaves the lanes that it would scan to the others; so it does where an agent has its share. */
extern void sas_agent_claims_pass_on(void);
extern void sas_agent_claims_pass_on_shut(void);

/* Calls of an owner take up so much memory here that it got no more: it is looked for again after a while. */
#define SAS_CLAIMS_CROWDED_MS 50

/* Did the last claim leave calls of an owner because of the memory that its calls take up here? */
extern bool sas_agent_claims_door_is_shut(void);

/* Not every agent was asked for. */
extern bool sas_agent_claims_were_cut_short(void);

#endif							/* SAS_AGENT_CLAIMS_H */
