/* SPDX-License-Identifier: PostgreSQL */
/*
 * limits.h: the limits of an agent that hold for all workers together.
 *
 * One entry per agent that is called, in shared memory: places in use, a token
 * bucket and the circuit breaker.  A worker asks before it claims a step, so
 * that a closed door burns no attempt.  What a worker holds is given back when
 * it exits; a crash empties all.  The breaker's state is also a row
 * (_sas.agent_health), from which the first worker after a start loads it.
 *
 * There is room for sas.max_agents entries of all databases.  Those of agents
 * that rest make way for others; when there are none, a worker calls the agent
 * under limits of its own: one call at a time, and its share of the rate.
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
	double		rate_per_s;		/* 0: none */
	int			breaker_failures;	/* in a row; 0: no breaker */
	int64		breaker_window_us;
	int64		breaker_open_us;
} SasLimits;

/* What _sas.places() shows. */
typedef struct SasLimitsView
{
	int			agent_id;
	int			in_flight;
	SasBreaker	breaker;
	int64		open_for_us;
	int64		rate_for_us;	/* until there is a token; 0: there is one, or no rate */
} SasLimitsView;

extern Size sas_limits_shmem_size(void);
extern void sas_limits_shmem_init(void);
extern void sas_limits_install(void);	/* callbacks of transactions */

/* Tells the breaker's stored state, of an agent that has no entry yet. */
extern void sas_limits_load(int agent_id, SasBreaker breaker, int64 open_for_us);

/*
 * Asks for up to want places, with a token each.  Returns how many are
 * granted; *retry_us says when it may be worth while to ask again when fewer
 * were (monotonic; 0: when a place is given back, which rings).
 *
 * A call that has rested between two attempts and asks again goes before
 * steps that have not begun: the next place that is free is kept for it.
 */
extern int	sas_limits_ask(int agent_id, const SasLimits *limits, int want, bool rested, int64 *retry_us);

/*
 * Gives back places that were granted and not used: with their tokens.  True:
 * meanwhile somebody was turned away, with what he would have taken, and only
 * who gives them back can look for it now.
 */
extern bool sas_limits_return(int agent_id, const SasLimits *limits, int n);

/* Takes a token for a further attempt of a call that has its place; false: *retry_us says when there may be one. */
extern bool sas_limits_spend(int agent_id, const SasLimits *limits, int64 *retry_us);

/* A call is over, or rests: its place is free.  True: others were refused one and should be woken. */
extern bool sas_limits_free(int agent_id);

extern SasBreaker sas_limits_breaker(int agent_id);

/*
 * What a call, begun then, showed about the service.  True when the breaker
 * changed, to *now_is.  A success closes it; failures in a row within the
 * window, or a failed probe, open it.  That a call from before somebody said
 * that the service is mended has failed is no news.
 */
extern bool sas_limits_report(int agent_id, const SasLimits *limits, bool success, int64 begun_us, SasBreaker *now_is);

/* The service is mended, somebody says: a breaker that is not closed lets a new probe through now. */
extern void sas_limits_half_open(int agent_id);

/*
 * The agents of this database that have an entry, palloc'd; returns how many.
 * Any other is closed and has no call on its way, but for those that workers
 * call under limits of their own: nobody else can see these.
 */
extern int	sas_limits_view(SasLimitsView **views);

/* The agent is dropped, if this transaction commits: its entry goes when its last call has ended. */
extern void sas_limits_drop_at_commit(int agent_id);

/*
 * The same, at once, for all agents of this database but these, which are all
 * that there were at that instant (monotonic).
 */
extern void sas_limits_keep(const int *agent_ids, int n, int64 read_us);

/* The same for all agents of a database. */
extern void sas_limits_drop_database(Oid dboid);

/*
 * How many entries cannot make way for others; while there is much room, just
 * how many there are.  *unshared_ago_us: when a worker last had to use limits of
 * its own; -1: never.  False: no shared memory.
 */
extern bool sas_limits_state(int *taken, int64 *unshared_ago_us);

#endif							/* SAS_LIMITS_LIMITS_H */
