/* SPDX-License-Identifier: PostgreSQL */
/*
 * outbox.h: results that are to be written, stored until a commit.
 *
 * A large reply is written in a transaction of its own, so that nothing else
 * waits for it.
 *
 * Replies of a locked run are deferred and written again a little later.  A
 * reply that the server refuses even when it is written alone is left to the
 * supervisor, which finds its lease.
 */
#ifndef SAS_AGENT_OUTBOX_H
#define SAS_AGENT_OUTBOX_H

#include "work/request.h"

/* transport: accounts for what is stored here. */
extern void sas_agent_outbox_open(MemoryContext context, SasTransport *transport);

/* A lease with that many flights. */
extern SasLeaseEntry *sas_agent_outbox_lease(int64 lease_id, int flights);

/* One flight of the lease is over. dropped: nothing was reported for it, so the lease must stay. */
extern void sas_agent_outbox_leave(SasLeaseEntry *lease, bool dropped);

/* Keeps an attempt of the flight, which has ended now, to be written with the next replies. */
extern void sas_agent_outbox_attempt(const SasFlight *flight, const char *status, int http_status, const Jsonb *error);

/* How many replies the next transaction writes at most. */
extern int	sas_agent_outbox_batch(void);

/* Is there something to write now, other than large and dear replies? */
extern bool sas_agent_outbox_due(void);

/*
 * In a transaction: writes all but large replies and dear ones, or one large
 * one, or some of one owner.  False: there was nothing to write.  After its
 * commit: forgets what was written.
 */
extern bool sas_agent_outbox_write(void);
extern void sas_agent_outbox_write_large(void);
extern void sas_agent_outbox_write_dear(void);
extern void sas_agent_outbox_written(void);

/*
 * After its abort: writes one item at a time. A try counts for an item that
 * was being written by itself, or that was all of that transaction (alone).
 */
extern void sas_agent_outbox_failed(bool alone);

#endif							/* SAS_AGENT_OUTBOX_H */
