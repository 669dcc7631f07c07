/* SPDX-License-Identifier: PostgreSQL */
/*
 * limits.h: the limits of an agent, shared by all workers.
 *
 * Shared memory has an entry for each agent that is called: slots in use, a
 * token bucket and the circuit breaker. A worker asks before it claims a
 * step, so that a limit costs no attempt. When a worker exits, its slots are
 * free again; a crash empties all. A row of _sas.agent_health stores the
 * state of the breaker, and the first worker after a start loads it.
 *
 * There is room for sas.max_agents entries of all databases. Entries of idle
 * agents are replaced. When none is idle, the agent is called more slowly:
 * one call at a time, and each worker keeps to its share of the rate and has
 * a breaker of its own.
 */
#ifndef SAS_LIMITS_LIMITS_H
#define SAS_LIMITS_LIMITS_H

typedef enum SasBreaker
{
	SAS_BREAKER_CLOSED,
	SAS_BREAKER_OPEN,
	SAS_BREAKER_HALF_OPEN
} SasBreaker;

typedef struct SasLimits
{
	int			max_in_flight;
	bool		shared;			/* several roles have a grant: see owners.h */
	double		rate_per_s;		/* 0: none */
	int			breaker_failures;	/* in a row; 0: no breaker */
	int64		breaker_window_us;
	int64		breaker_open_us;
} SasLimits;

/*
 * A breaker of an agent for calls below one of its paths is an entry of its
 * own: it has a number made of the agent's and that of the path, from 1 on.
 */
#define SAS_LIMITS_PATHS 15
#define SAS_LIMITS_PATH_ID(agent_id, path_no) (-((agent_id) * (SAS_LIMITS_PATHS + 1) + (path_no)))
#define SAS_LIMITS_AGENT_OF(id) ((id) < 0 ? -(id) / (SAS_LIMITS_PATHS + 1) : (id))
#define SAS_LIMITS_PATH_OF(id) ((id) < 0 ? -(id) % (SAS_LIMITS_PATHS + 1) : 0)

/* What _sas.limit_entries() shows. */
typedef struct SasLimitsView
{
	int			agent_id;
	int			in_flight;
	SasBreaker	breaker;
	int64		open_for_us;
	int64		rate_for_us;	/* until there is a token; 0: there is one, or no rate */
} SasLimitsView;

/* In _PG_init: shared memory, and callbacks of transactions. */
extern void sas_limits_install(void);

/* Loads the breaker's stored state, for an agent that has no entry yet. */
extern void sas_limits_load(int agent_id, SasBreaker breaker, int64 open_for_us);

/*
 * Asks for up to want slots, with a token each. Returns how many are
 * granted. When that is fewer, *retry_us is the time to ask again
 * (monotonic; 0: when a slot is given back, which wakes).  owner is invalid
 * if it is not known yet whose calls they will be: see sas_limits_owner_take.
 *
 * A call that asks again between two attempts goes before steps that have
 * not begun: the next free slot is reserved for it.
 */
extern int	sas_limits_ask(int agent_id, Oid owner, const SasLimits *limits, int want, bool rested, int64 *retry_us);

/*
 * Gives back slots that were granted and not used, with their tokens. True:
 * meanwhile another worker was granted none, with the work that it would
 * have claimed; now only the caller can scan for that work.
 */
extern bool sas_limits_return(int agent_id, const SasLimits *limits, int n);

/* Takes a token for a further attempt of a call that has its slot; false: *retry_us says when there may be one. */
extern bool sas_limits_spend(int agent_id, const SasLimits *limits, int64 *retry_us);

/* A call is over, or pauses: its slot is free. True: others were refused a slot and should be woken. */
extern bool sas_limits_free(int agent_id);

/* The state of its breaker; closed for an agent that has no entry. */
extern SasBreaker sas_limits_breaker(int agent_id);

/* May a call that was granted go out now? The breaker may have opened since: then only the probe of this worker may. */
extern bool sas_limits_may_begin(int agent_id);

/*
 * Reports what a call of this owner, begun then, showed about the service.
 * True when the breaker changed, to *now_is. A success closes it. Failures in
 * a row within the window, or a failed probe, open it; failures of one owner,
 * with one of others at most, do not if a call of another has succeeded
 * within the window. If only calls of one owner have opened it, a call of
 * another may be the probe at once. A failed call that began before the
 * service was reported repaired is ignored.
 */
extern bool sas_limits_report(int agent_id, Oid owner, const SasLimits *limits, bool success, int64 begun_us, SasBreaker *now_is);

/* An operator reports that the service is repaired: a breaker that is not closed lets a new probe through now. */
extern void sas_limits_half_open(int agent_id);

/* The same, if this transaction commits, before it wakes the workers. */
extern void sas_limits_half_open_at_commit(int agent_id);

/*
 * The agents of this database that have an entry, palloc'd; returns how
 * many. Any other breaker is closed, and no call is in flight, except those
 * of agents that found no room.
 */
extern int	sas_limits_view(SasLimitsView **views);

/* The agent is dropped, if this transaction commits: its entry goes when its last call has ended. */
extern void sas_limits_drop_at_commit(int agent_id);

/*
 * The same, at once, for all agents of this database but these, which are all
 * that there were at that instant (monotonic).
 */
extern void sas_limits_keep(const int *agent_ids, int n, int64 read_us);

#endif							/* SAS_LIMITS_LIMITS_H */
