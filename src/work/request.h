/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.h: one claimed call, from its claim to its verdict.
 *
 *	  claimed -> ACTIVE -> (verdict)
 *				 |	  ^
 *				 v	  |
 *				RESTING	   between two attempts inside the window
 *
 * A flight lives in a memory context of its own.  It is lost with its worker;
 * its lease is what the supervisor finds then.
 */
#ifndef SAS_WORK_REQUEST_H
#define SAS_WORK_REQUEST_H

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "limits/limits.h"
#include "store/store.h"
#include "transport/transport.h"

/* An agent as this worker knows it. */
typedef struct SasAgentEntry
{
	SasStoredAgent *stored;
	SasLimits	limits;
	int64		ask_again_us;	/* when the limits may allow a call again; 0: at a wake-up */
	bool		scan;			/* something may be ready in its lane */
	bool		refused;		/* the limits granted nothing when it asked last */
	bool		owners_refused; /* the last claim got fewer calls of an owner than it wanted */
	bool		crowded;		/* it got none of an owner whose calls take up too much memory here */
	int			calls;			/* that are in flight here */
	uint32		wake_count;		/* count of wake-ups of its lane at the last scan */
	uint32		nudges;			/* count of nudges likewise */
	bool		error_seen;		/* last_error is to be written */
	Jsonb	   *last_error;
	bool		breaker_changed;
	SasBreaker	breaker;
	bool		health_written; /* by the transaction that is open */
	int			health_tries;	/* to write them that failed */
	int64		health_not_before_us;	/* they are not written before; 0: they have not waited */
} SasAgentEntry;

/* How a flight retries inside its window: agent's policy, overlaid by the step's. */
typedef struct SasRetry
{
	int			max_attempts;
	double		initial_ms;
	double		max_ms;
	char		backoff;		/* e l c */
	bool		jitter;
	Jsonb	   *on;				/* array of further statuses, or NULL */
	Jsonb	   *pauses;			/* array of pauses in ms, in place of what computes them, or NULL */
} SasRetry;

/* A claimed batch: when nothing of it is left its lease is deleted. */
typedef struct SasLeaseEntry
{
	int64		lease_id;
	int			left;			/* flights, and replies that are not written yet */
	int			sending;		/* of these in the transaction that is open */
	bool		dropped;		/* something of it was left to the supervisor */
} SasLeaseEntry;

/* What goes to a service, put together of a request and its agent. */
typedef struct SasSent
{
	char	   *method;
	char	   *url;
	char	  **headers;
	int			n_headers;
	char	   *body;
	size_t		body_len;
	double		timeout_ms;
} SasSent;

typedef struct SasFlight
{
	pairingheap_node heap;		/* by wake_us */
	dlist_node	node;			/* in the list of all flights */
	MemoryContext context;
	int			agent_id;
	int			workflow_id;
	Oid			owner;			/* of the run */
	int64		claimed_us;
	TimestampTz claimed_at;		/* the same on the clock */
	SasLeaseEntry *lease;
	SasStepId	id;
	char	   *step;
	bool		undo;
	int			attempts_before;
	int			attempts;		/* begun under this claim */
	bool		in_doubt;		/* one of them may have done something */
	bool		has_slot;
	int			path_no;		/* its breaker, from 1 on; 0: that of the agent */
	bool		path_open;		/* its breaker let this attempt through */
	int64		deadline_us;	/* complete-by on the monotonic clock */
	int64		send_by_us;		/* no request begins from then on */
	int64		wake_us;		/* deadline, or the end of the rest */
	void	   *handle;			/* NULL: resting */
	SasClaimState claim;		/* as it was found last */
	bool		stopped;		/* its run was cancelled: no attempt begins, and it ends as stopped */
	TimestampTz started_at;		/* of the current attempt */
	int64		begun_us;		/* the same on the monotonic clock */
	int64		arrived_us;		/* of its answer, likewise; 0: there is none */
	SasRetry	retry;
	Jsonb	   *expect;			/* array of statuses, or NULL */
	char	   *token;			/* the access token of its last attempt, or NULL */
	bool		token_comes;	/* it waits for one */
	bool		token_renewed;	/* the service did not take one: that happens once */
	char	   *key;			/* NULL: it only asks, and needs none */
	char	   *trace;			/* 32 hex digits */
	SasSent		sent;			/* made once */
	List	   *secrets;		/* with these values of its agent */
	SasTransportShare *memory;	/* of its owner at its agent */
	Size		held;			/* bytes of it that the flight itself takes up */
} SasFlight;

/* Fills in what is sent, key NULL: without Idempotency-Key. NULL when that went well, else why not (a fragment without secrets). */
extern const char *sas_work_request_compose(SasSent *sent, SasStoredAgent *agent, Jsonb *request, const char *key);

/* The number of the longest of the agent's breaker paths that the URL is below, from 1 on; 0: none. */
extern int	sas_work_request_path_no(const SasSent *sent, const SasStoredAgent *agent);

/* The call that sends it; time-outs, sizes and owner are the caller's business. */
extern void sas_work_request_call(const SasSent *sent, SasStoredAgent *agent, SasCall *call);

/* The call has this header once, with this value; in the current context. */
extern void sas_work_call_set_header(SasCall *call, const char *name, const char *value);

/* What is written in the encoding of the database goes out in UTF-8; in the current context. */
extern void sas_work_call_in_utf8(SasCall *call);

/* Copies the claim and its step, in the current context; the flight was zeroed before, but for its own context. */
extern void sas_work_flight_fill(SasFlight *flight, const SasClaimedCall *claimed, const SasStoredAgent *agent);

/* Fills in what is sent, in the current context; NULL when that went well, else why not (a fragment without secrets). */
extern const char *sas_work_flight_compose(SasFlight *flight, SasStoredAgent *agent, const SasClaimedCall *claimed);

/* Copies what the flight refers to into its own context: it goes on when the current one is gone. */
extern void sas_work_flight_keep(SasFlight *flight);

/* The call of the next attempt, with a span of its own; left_ms until complete-by. */
extern void sas_work_flight_call(const SasFlight *flight, SasStoredAgent *agent, double left_ms, SasCall *call);

/* Reads the policies of agent and step. */
extern void sas_work_retry_policy(SasRetry *retry, Jsonb *of_agent, Jsonb *of_step);

/* The pause after the attempt with this number (from 1), in ms. */
extern double sas_work_retry_pause_ms(const SasRetry *retry, int attempt);

#endif							/* SAS_WORK_REQUEST_H */
