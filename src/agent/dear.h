/* SPDX-License-Identifier: PostgreSQL */
/*
 * dear.h: owners whose replies cost much to write, since their paths and
 * templates do, or many steps wait for theirs.
 *
 * A transaction whose evaluations took long does not say whose they were: all
 * owners in it are under suspicion.  Replies of such an owner are written
 * apart, as many as take a moment.  The first transaction of its own that is
 * cheap clears an owner; one that was not keeps it apart for some seconds.
 */
#ifndef SAS_AGENT_DEAR_H
#define SAS_AGENT_DEAR_H

/* Evaluations of one transaction that take longer cause suspicion; a turn is to take about as long. */
#define SAS_AGENT_DEAR_US 50000

/* True: the owner was not under suspicion before. */
extern bool sas_agent_dear_suspect(Oid owner);

/* Evaluations of one transaction for several owners took that long: is each of them under suspicion? */
extern bool sas_agent_dear_is_long(int64 spent_us);

/* Is the owner under suspicion? */
extern bool sas_agent_dear_is(Oid owner);

/* The time of its last turn; how many replies the next one may write. */
extern int64 sas_agent_dear_last_us(Oid owner);
extern int	sas_agent_dear_batch(Oid owner);

/*
 * The owner had its turn: that many replies, whose evaluations took so long.
 * n 0: the transaction failed.  True: it is cleared.
 */
extern bool sas_agent_dear_wrote(Oid owner, int n, int64 spent_us);

#endif							/* SAS_AGENT_DEAR_H */
