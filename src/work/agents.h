/* SPDX-License-Identifier: PostgreSQL */
/*
 * agents.h: the agents, cached by this worker.
 *
 * When the version of agents has changed, those that were altered are read
 * again.  Flights refer to agents by number, since entries move then.
 */
#ifndef SAS_WORK_AGENTS_H
#define SAS_WORK_AGENTS_H

#include "work/request.h"

extern SasAgentEntry *sas_work_agents;
extern int	sas_work_n_agents;

/* Have they changed? Asked before the statement that reads them again; each sees what was committed by then. */
extern bool sas_work_agents_stale(void);

/* Once in a worker, before its first read of the agents. */
extern void sas_work_agents_open(void);

/* NULL: dropped, or not read yet */
extern SasAgentEntry *sas_work_agent(int agent_id);

/* In a transaction of the store; when it has committed, and what follows from it is done, they are no longer stale. */
extern void sas_work_agents_read(void);
extern void sas_work_agents_applied(void);

/* The breaker or the last error of an agent has changed, and is to be written: by the outbox. */
extern bool sas_work_health_due;

/* Notes it as the last error of the agent. */
extern void sas_work_agent_error(SasAgentEntry *agent, const Jsonb *error);

/* A call is over, or pauses, or the request of a watch is over: its slot is free. */
extern void sas_work_agent_free_slot(int agent_id, Oid owner);

/* Reports to the breaker what a call that began then has shown about its service. */
extern void sas_work_agent_report(SasAgentEntry *agent, Oid owner, bool success, int64 begun_us);

#endif							/* SAS_WORK_AGENTS_H */
