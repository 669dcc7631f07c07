/* SPDX-License-Identifier: PostgreSQL */
/*
 * flights.h: all calls that this worker has in flight.
 */
#ifndef SAS_AGENT_FLIGHTS_H
#define SAS_AGENT_FLIGHTS_H

#include "work/request.h"

/* Their transport, with room for so many; its descriptor, -1 when it is closed; how many there are. */
extern SasTransport *sas_agent_flights_open(int slots);
extern void sas_agent_flights_resize(int slots);
extern void sas_agent_flights_close(void);
extern int	sas_agent_flights_fd(void);
extern int	sas_agent_in_flight(void);

/* When sas_agent_flights_move must be called at the latest; -1: when the descriptor is readable. */
extern int64 sas_agent_flights_wake_in_ms(void);

/*
 * Moves the network and evaluates small answers, as many as one tick may; true
 * when answers came.  sas_agent_flights_more: are there others?
 */
extern bool sas_agent_flights_move(void);
extern bool sas_agent_flights_more(void);

/* Evaluates one large answer, if there is one. */
extern void sas_agent_flights_take_large(void);
extern bool sas_agent_flights_has_large(void);

/* Bytes of requests and answers. */
extern int64 sas_agent_flights_memory(void);
extern bool sas_agent_flights_starved(void); /* answers are read on when there is room */

/*
 * How many calls of this agent may begin beside the others: what one agent
 * has in flight may be three times as much as what is left.  So agents whose
 * services do not answer never take all slots.
 */
extern int	sas_agent_flights_share(const SasAgentEntry *agent, int free_slots);

/*
 * May claims of these flights have been taken away, or their runs have been
 * cancelled?  Called before the transaction in which
 * sas_agent_flights_find_lost looks the claims up.  When that transaction has
 * committed, sas_agent_flights_stop_lost stops their calls, and reports
 * nothing for lost claims.
 */
extern bool sas_agent_flights_stale(void);
extern void sas_agent_flights_find_lost(void);
extern void sas_agent_flights_stop_lost(void);

/* The worker is asked to end: gives back every call of which nothing was sent yet. */
extern void sas_agent_flights_give_back(void);

/* Before a claim: when it was made, on both clocks. */
typedef struct SasClaimTime
{
	int64		us;				/* monotonic */
	TimestampTz at;
	int64		ahead_us;		/* of the server's clock, of the monotonic one */
} SasClaimTime;

/* The time of a claim that is about to be made. */
extern SasClaimTime sas_agent_flights_claim_time(void);

/* Starts a claimed call, or fails it at once when it cannot be composed. It has its slot already. */
extern void sas_agent_flight_start(SasClaimedCall *claimed, SasLeaseEntry *lease, const SasClaimTime *when);

#endif							/* SAS_AGENT_FLIGHTS_H */
