/* SPDX-License-Identifier: PostgreSQL */
/*
 * outbox.h: what is to be written, kept until a commit has taken it.
 *
 * Replies whose run somebody holds are set aside and written again a little
 * later; one that the server will not take, however alone, is left to the
 * supervisor by its lease.
 */
#ifndef SAS_AGENT_OUTBOX_H
#define SAS_AGENT_OUTBOX_H

#include "work/request.h"

extern void sas_agent_outbox_open(MemoryContext context);

/* A lease with so many flights. */
extern SasLeaseEntry *sas_agent_outbox_lease(int64 lease_id, int flights);

/* One flight of the lease is over; dropped: with nothing said, so that the lease must stay. */
extern void sas_agent_outbox_leave(SasLeaseEntry *lease, bool dropped);

extern void sas_agent_outbox_reply(const SasFlight *flight, const char *verdict, const Jsonb *output, const Jsonb *error, double again_in_ms);
extern void sas_agent_outbox_attempt(const SasFlight *flight, const char *status, int http_status, const Jsonb *error);

/* Is there something to write now? And something that waits for a run? */
extern bool sas_agent_outbox_due(void);
extern bool sas_agent_outbox_waiting(void);

/* In a transaction: writes. After its commit: forgets what was written. After its abort: takes smaller bites. */
extern void sas_agent_outbox_write(SasAgentEntry *agents, int n_agents);
extern void sas_agent_outbox_written(SasAgentEntry *agents, int n_agents);
extern void sas_agent_outbox_failed(void);

#endif							/* SAS_AGENT_OUTBOX_H */
