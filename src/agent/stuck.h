/* SPDX-License-Identifier: PostgreSQL */
/*
 * stuck.h: inside the agent worker only: alerts about what could not be
 * stored, until they are.
 */
#ifndef SAS_AGENT_STUCK_H
#define SAS_AGENT_STUCK_H

/*
 * After an abort: this could not be stored, because of the last error.  A
 * warning now, an alert in the next transaction.  run_id 0: of no run.
 */
extern void sas_agent_stuck_note(const char *what, int64 run_id, const char *message, const char *detail);

/* Is there one that has raised no alert yet? */
extern bool sas_agent_stuck_due(void);

/* In a transaction: raises them. False: there was none. After its commit, or its abort: forgets them. */
extern bool sas_agent_stuck_write(void);
extern void sas_agent_stuck_written(void);
extern void sas_agent_stuck_failed(bool alone);

#endif							/* SAS_AGENT_STUCK_H */
