/* SPDX-License-Identifier: PostgreSQL */
/*
 * limits.c: in flight, rate and breaker of each agent.
 *
 * Without shared memory (library not preloaded) everything is granted: there
 * are no workers then that could ask.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/settings.h"
#include "limits/table.h"
#include "miscadmin.h"

/* a second's worth of tokens times this may be used at once */
#define SAS_BURST_S 0.1

/* a call that has rested asks again well within this */
#define SAS_RESTED_US 100000

/*
 * An agent that found no room asks again after this time, since others have
 * the only call that it may have, or all spare places. After a call it leaves
 * its spare place to others for twice as long.
 */
#define SAS_SPARE_RETRY_US 50000

/* For want of room in the table, one call at a time, and this worker's share of the rate. */
static const SasLimits *
limits_closer(const SasLimitsEntry *e, const SasLimitsUse *use, const SasLimits *limits, SasLimits *closer)
{
	if (e != &use->own)
		return limits;
	*closer = *limits;
	closer->max_in_flight = Min(1, limits->max_in_flight);
	closer->rate_per_s = limits->rate_per_s / Max(1, sas_base_agents);
	return closer;
}

void
sas_limits_load(int agent_id, SasBreaker breaker, int64 open_for_us)
{
	SasLimitsUse *use;
	SasLimitsEntry *e;

	/* a closed breaker needs no entry; the entry of others is not changed */
	if (breaker == SAS_BREAKER_CLOSED)
		return;
	e = sas_limits_open(agent_id, false, &use);
	if (e != NULL)
	{
		sas_limits_close(e, use);
		return;
	}
	e = sas_limits_open(agent_id, true, &use);
	if (e == NULL)
		return;
	/* others may have made it just now, and use it */
	if (e->breaker == SAS_BREAKER_CLOSED && e->in_flight == 0)
	{
		e->breaker = breaker;
		e->open_until_us = sas_base_clock_monotonic_us() + open_for_us;
	}
	sas_limits_close(e, use);
}

/* May a call begin, as far as the breaker is concerned? For an owner that is not known yet, if one may. */
static bool
limits_lets_through(SasLimitsEntry *e, bool own, Oid owner, int64 now, int64 *retry_us)
{
	if (e->breaker == SAS_BREAKER_CLOSED)
		return true;
	if (e->breaker == SAS_BREAKER_OPEN && now >= e->open_until_us)
	{
		e->breaker = SAS_BREAKER_HALF_OPEN;
		e->blamed = InvalidOid;
		e->probe_pid = 0;
	}
	if (e->breaker == SAS_BREAKER_HALF_OPEN)
		return e->probe_pid == 0;
	*retry_us = e->open_until_us;
	if (own || !OidIsValid(e->blamed) || owner == e->blamed)
		return false;
	/* the process with the probe may find no call of another owner, while there is one here */
	e->none_granted |= e->probe_pid != 0;
	return e->probe_pid == 0;
}

static double
limits_burst(const SasLimits *limits)
{
	return Max(1.0, limits->rate_per_s * SAS_BURST_S);
}

static void
limits_fill(SasLimitsEntry *e, const SasLimits *limits, int64 now)
{
	if (e->filled_us == 0)
		e->tokens = limits_burst(limits);
	else
		e->tokens = Min(limits_burst(limits), e->tokens + (now - e->filled_us) * limits->rate_per_s / 1e6);
	e->filled_us = now;
}

/* Takes n tokens, as of the time of the last fill, or gives them back. */
static void
limits_take_tokens(SasLimitsEntry *e, const SasLimits *limits, int n)
{
	e->tokens = Min(limits_burst(limits), e->tokens - n);
	e->full_us = e->filled_us + (int64) ((limits_burst(limits) - e->tokens) * 1e6 / limits->rate_per_s) + 1;
}

int
sas_limits_ask(int agent_id, Oid owner, const SasLimits *limits, int want, bool rested, int64 *retry_us)
{
	int64		now = sas_base_clock_monotonic_us();
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(agent_id, true, &use);
	SasLimits	closer;
	int			granted = want;
	bool		probe;
	int			room;

	*retry_us = 0;
	if (e == NULL)
		return want;
	e->max_in_flight = limits->max_in_flight;
	e->shared = limits->shared;
	limits = limits_closer(e, use, limits, &closer);

	/* it may have had a breaker before */
	if (limits->breaker_failures == 0)
		e->breaker = SAS_BREAKER_CLOSED;
	probe = e->breaker != SAS_BREAKER_CLOSED;
	if (probe)
		granted = limits_lets_through(e, e == &use->own, owner, now, retry_us) ? Min(1, want) : 0;

	room = Max(0, limits->max_in_flight - e->in_flight);
	if (rested)
		e->rested_until_us = room > 0 ? 0 : now + SAS_RESTED_US;
	else if (room > 0 && now < e->rested_until_us)
	{
		room--;
		*retry_us = Max(*retry_us, e->rested_until_us);
	}
	/* a caller that is granted fewer than it needs asks again */
	if (granted > room)
	{
		granted = room;
		e->refused |= room == 0;
	}
	if (limits->rate_per_s <= 0)
		e->full_us = 0;			/* it may have had a rate before */
	else if (granted > 0)
	{
		limits_fill(e, limits, now);
		if (granted > (int) e->tokens)
		{
			granted = (int) e->tokens;
			e->rate_until_us = now + (int64) ((1.0 + granted - e->tokens) * 1e6 / limits->rate_per_s) + 1;
			*retry_us = e->rate_until_us;
		}
		limits_take_tokens(e, limits, granted);
	}
	if (granted > 0 && e == &use->own && !sas_limits_take_spare(use))
	{
		if (limits->rate_per_s > 0)
			limits_take_tokens(e, limits, -granted);
		granted = 0;
		*retry_us = now + SAS_SPARE_RETRY_US;
	}
	if (granted > 0)
	{
		if (probe)
			e->probe_pid = MyProcPid;
		(void) sas_limits_count(e, use, granted);
	}
	/* a worker that is granted a slot scans afterwards, and finds the work that others came for */
	if (!rested && (granted > 0 || *retry_us == 0))
		e->none_granted = granted == 0;
	sas_limits_close(e, use);
	return granted;
}

bool
sas_limits_return(int agent_id, const SasLimits *limits, int n)
{
	SasLimitsUse *use;
	SasLimitsEntry *e;
	SasLimits	closer;
	bool		none_granted;

	if (n <= 0 || (e = sas_limits_open(agent_id, false, &use)) == NULL)
		return false;
	if (use != NULL)
	{
		limits = limits_closer(e, use, limits, &closer);
		(void) sas_limits_count(e, use, -n);
	}
	if (limits->rate_per_s > 0)
	{
		limits_take_tokens(e, limits, -n);
		e->rate_until_us = 0;
	}
	/* if the breaker is not closed, one slot is granted: an unused one is the probe */
	if (e->probe_pid == MyProcPid)
		e->probe_pid = 0;
	none_granted = e->none_granted;
	e->none_granted = false;
	sas_limits_close(e, use);
	return none_granted;
}

bool
sas_limits_spend(int agent_id, const SasLimits *limits, int64 *retry_us)
{
	int64		now = sas_base_clock_monotonic_us();
	SasLimitsUse *use;
	SasLimitsEntry *e;
	SasLimits	closer;
	bool		spent = true;

	if (limits->rate_per_s <= 0 || (e = sas_limits_open(agent_id, true, &use)) == NULL)
		return true;
	limits = limits_closer(e, use, limits, &closer);
	limits_fill(e, limits, now);
	if (e->tokens >= 1)
		limits_take_tokens(e, limits, 1);
	else
	{
		spent = false;
		*retry_us = now + (int64) ((1.0 - e->tokens) * 1e6 / limits->rate_per_s) + 1;
		e->rate_until_us = *retry_us;
	}
	sas_limits_close(e, use);
	return spent;
}

bool
sas_limits_free(int agent_id)
{
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(agent_id, false, &use);
	bool		refused;

	if (e == NULL)
		return false;
	if (use != NULL && sas_limits_count(e, use, -1) == 0 && e->probe_pid == MyProcPid)
		e->probe_pid = 0;
	if (use != NULL && e == &use->own)
		e->rested_until_us = sas_base_clock_monotonic_us() + 2 * SAS_SPARE_RETRY_US;
	refused = e->refused;
	e->refused = false;
	sas_limits_close(e, use);
	return refused;
}

SasBreaker
sas_limits_breaker(int agent_id)
{
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(agent_id, false, &use);
	SasBreaker	breaker;

	if (e == NULL)
		return SAS_BREAKER_CLOSED;
	breaker = e->breaker;
	sas_limits_close(e, use);
	return breaker;
}

bool
sas_limits_may_begin(int agent_id)
{
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(agent_id, false, &use);
	bool		may;

	if (e == NULL)
		return true;
	may = e->breaker == SAS_BREAKER_CLOSED || e->probe_pid == MyProcPid;
	sas_limits_close(e, use);
	return may;
}

static void
limits_break(SasLimitsEntry *e, Oid blamed, const SasLimits *limits, int64 now)
{
	e->breaker = SAS_BREAKER_OPEN;
	e->opened_us = now;
	e->open_until_us = now + limits->breaker_open_us;
	e->blamed = blamed;
	e->probe_pid = 0;
	e->failures = 0;
}

/*
 * A failure while the breaker is closed. It does not open while the service
 * does what others ask, if all failures are of one owner, but for a single
 * one of another: both may be their own.
 */
static void
limits_count_failure(SasLimitsEntry *e, Oid owner, const SasLimits *limits, int64 now)
{
	const SasLimitsFailing *most;
	int			others;

	if (e->failures == 0 || now - e->first_failure_us > limits->breaker_window_us)
	{
		e->failures = 0;
		memset(e->failing, 0, sizeof(e->failing));
		e->first_failure_us = now;
		e->window_us = limits->breaker_window_us;
	}
	sas_limits_note_failures(e, owner, 1);
	if (++e->failures < limits->breaker_failures)
		return;
	most = &e->failing[e->failing[1].n > e->failing[0].n];
	others = e->failures - most->n;
	if (others < Min(2, limits->breaker_failures) && sas_limits_has_other_user(e->succeeded, most->owner, now - e->window_us))
		return;
	limits_break(e, others == 0 ? most->owner : InvalidOid, limits, now);
}

/* Is this the probe that another owner may make before the breaker is half-open? */
static bool
limits_is_spared(const SasLimitsEntry *e, Oid owner, int64 begun_us)
{
	return e->breaker == SAS_BREAKER_OPEN && OidIsValid(e->blamed) && owner != e->blamed && begun_us >= e->opened_us;
}

bool
sas_limits_report(int agent_id, Oid owner, const SasLimits *limits, bool success, int64 begun_us, SasBreaker *now_is)
{
	int64		now = sas_base_clock_monotonic_us();
	SasLimitsUse *use;
	SasLimitsEntry *e;
	SasBreaker	before;

	*now_is = SAS_BREAKER_CLOSED;
	/* a success needs no entry to be reported */
	if (limits->breaker_failures == 0 || (e = sas_limits_open(agent_id, !success, &use)) == NULL)
		return false;
	before = e->breaker;
	if (!success && begun_us < e->repaired_us)
		;
	else if (success)
	{
		e->failures = 0;
		sas_limits_note_user(e->succeeded, owner, now);
		/* an answer to a call that began before the breaker opened is no news */
		if (e->breaker == SAS_BREAKER_HALF_OPEN || limits_is_spared(e, owner, begun_us))
		{
			e->breaker = SAS_BREAKER_CLOSED;
			e->probe_pid = 0;
		}
	}
	else if (e->breaker == SAS_BREAKER_HALF_OPEN)
		limits_break(e, owner, limits, now);
	else if (limits_is_spared(e, owner, begun_us))
		limits_break(e, InvalidOid, limits, now);
	else if (e->breaker == SAS_BREAKER_CLOSED)
		limits_count_failure(e, owner, limits, now);
	*now_is = e->breaker;
	sas_limits_close(e, use);
	return before != *now_is;
}

void
sas_limits_half_open(int agent_id)
{
	int64		now = sas_base_clock_monotonic_us();
	SasLimitsUse *use;
	SasLimitsEntry *e = sas_limits_open(agent_id, false, &use);

	if (e == NULL)
	{
		sas_limits_repair_unshared(now);
		return;
	}
	sas_limits_repair(e, now);
	sas_limits_close(e, use);
}

typedef struct SasLimitsListing
{
	SasLimitsView *views;
	int			n;
	int64		now;
} SasLimitsListing;

static void
limits_add_view(const SasLimitsEntry *e, void *arg)
{
	SasLimitsListing *l = arg;
	SasLimitsView *v = &l->views[l->n++];

	v->agent_id = e->key.agent_id;
	v->in_flight = e->in_flight;
	v->breaker = e->breaker;
	v->open_for_us = e->breaker == SAS_BREAKER_OPEN ? Max(0, e->open_until_us - l->now) : 0;
	v->rate_for_us = Max(0, e->rate_until_us - l->now);
}

int
sas_limits_view(SasLimitsView **views)
{
	SasLimitsListing l = {.n = 0,.now = sas_base_clock_monotonic_us()};

	*views = l.views = palloc(sizeof(SasLimitsView) * sas_base_max_agents);
	sas_limits_visit(limits_add_view, &l);
	return l.n;
}
