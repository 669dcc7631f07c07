/* SPDX-License-Identifier: PostgreSQL */
/*
 * health.h: inside the agent worker only: the breakers and last errors of
 * agents on their way to the store.
 */
#ifndef SAS_AGENT_HEALTH_H
#define SAS_AGENT_HEALTH_H

#include "postgres.h"

/* Is there something to write now? In how many ms will there be? -1: nothing is known. */
extern bool sas_agent_health_due(void);
extern int64 sas_agent_health_wake_in_ms(void);

/*
 * In a transaction: writes what agents have to write; single: one of them, as
 * the last thing.  False: nothing.  After its commit: forgets it; a row that was locked is
 * written a little later.  After its abort: an agent whose row cannot be
 * written several times is tried again a minute later, with an alert.
 */
extern bool sas_agent_health_write(bool single);
extern void sas_agent_health_written(void);
extern void sas_agent_health_failed(void);

#endif							/* SAS_AGENT_HEALTH_H */
