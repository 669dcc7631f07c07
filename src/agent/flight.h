/* SPDX-License-Identifier: PostgreSQL */
/*
 * flight.h: one call in flight, for flights.c only.
 */
#ifndef SAS_AGENT_FLIGHT_H
#define SAS_AGENT_FLIGHT_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "work/agents.h"
#include "work/request.h"
#include "work/verdict.h"

/* One tick evaluates answers for at most this time; then it writes, claims and starts calls. */
#define SAS_FLIGHTS_TICK_US 100000

/* An answer that was not read yet, because there is much to read, is waited for so long. */
#define SAS_FLIGHTS_UNREAD_US INT64CONST(5000000)

typedef struct SasFlights
{
	MemoryContext context;
	SasTransport *transport;
	dlist_head	all;
	int			n;
	int64		until_us;		/* all are over then; not before, unless the last of them has ended */
	bool		last_ended;
	SasFlight  *current;		/* being started, or evaluated; NULL: it has ended meanwhile */
	pairingheap *by_time;
} SasFlights;

extern SasFlights sas_agent_flights;

/* A claimed call gets its request and its first attempt, or fails at once. */
extern void sas_agent_flight_compose(SasFlight *flight, SasClaimedCall *claimed, SasAgentEntry *agent);

/* What an answer means for its flight: a verdict, or another attempt inside the window. */
extern void sas_agent_flight_evaluate(SasReply *reply);

/* A flight whose time has come: past complete-by, or rested. */
extern void sas_agent_flight_wake(SasFlight *flight, int64 now);

/*
 * The flight waited for the access token of its agent. Now the token is there,
 * or the request for it has failed.
 */
extern void sas_agent_flight_go_on(SasFlight *flight);

/* Reports the result of an attempt; true when that ended the flight. */
extern bool sas_agent_flight_report(SasFlight *flight, const SasVerdict *verdict, int http_status);

/*
 * Its run was cancelled: closes its connection, and reports that as
 * soon as its request has had the time to reach the service: an undo may
 * follow.  An answer that has arrived counts.
 */
extern void sas_agent_flight_stop(SasFlight *flight);

/*
 * The worker is asked to end: gives the call back if nothing of it was sent.
 * Another worker takes it; no attempt is counted.
 */
extern void sas_agent_flight_give_back(SasFlight *flight);

/* The flight is over; its verdict is in the outbox, or it is left to the supervisor (dropped). */
extern void sas_agent_flight_end(SasFlight *flight, bool dropped);

#endif							/* SAS_AGENT_FLIGHT_H */
