/* SPDX-License-Identifier: PostgreSQL */
/*
 * places.c: in flight, rate and breaker of each agent.
 *
 * Without shared memory (library not preloaded) everything is granted: there
 * are no workers then that could ask.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/settings.h"
#include "miscadmin.h"
#include "places/table.h"

/* a second's worth of tokens times this may be used at once */
#define SAS_BURST_S 0.1

/* a call that has rested asks again well within this */
#define SAS_RESTED_US 100000

/* For want of room in the table, one call at a time in this process, and its share of the rate. */
static const SasLimits *
limits_of(const SasPlace *p, const SasHeld *h, const SasLimits *limits, SasLimits *closer)
{
	if (p != &h->own)
		return limits;
	*closer = *limits;
	closer->max_in_flight = Min(1, limits->max_in_flight);
	closer->rate_per_s = limits->rate_per_s / Max(1, sas_agents);
	return closer;
}

void
sas_places_load(int agent_id, SasBreaker breaker, int64 open_for_us)
{
	SasHeld    *h;
	SasPlace   *p;

	/* one that is closed is as good as new; nobody else's entry is touched */
	if (breaker == SAS_BREAKER_CLOSED)
		return;
	p = sas_places_open(agent_id, false, &h);
	if (p != NULL)
	{
		sas_places_close(p, h);
		return;
	}
	p = sas_places_open(agent_id, true, &h);
	if (p == NULL)
		return;
	/* it may have been made by others just now, and be in use */
	if (p->breaker == SAS_BREAKER_CLOSED && p->in_flight == 0)
	{
		p->breaker = breaker;
		p->open_until_us = sas_clock_monotonic_us() + open_for_us;
	}
	sas_places_close(p, h);
}

static double
burst(const SasLimits *limits)
{
	return Max(1.0, limits->rate_per_s * SAS_BURST_S);
}

static void
fill(SasPlace *p, const SasLimits *limits, int64 now)
{
	if (p->filled_us == 0)
		p->tokens = burst(limits);
	else
		p->tokens = Min(burst(limits), p->tokens + (now - p->filled_us) * limits->rate_per_s / 1e6);
	p->filled_us = now;
}

/* Takes n tokens, as of the time of the last fill, or gives them back. */
static void
take_tokens(SasPlace *p, const SasLimits *limits, int n)
{
	p->tokens = Min(burst(limits), p->tokens - n);
	p->full_us = p->filled_us + (int64) ((burst(limits) - p->tokens) * 1e6 / limits->rate_per_s) + 1;
}

int
sas_places_ask(int agent_id, const SasLimits *limits, int want, bool rested, int64 *retry_us)
{
	int64		now = sas_clock_monotonic_us();
	SasHeld    *h;
	SasPlace   *p = sas_places_open(agent_id, true, &h);
	SasLimits	closer;
	int			granted = want;
	int			room;

	*retry_us = 0;
	if (p == NULL)
		return want;
	limits = limits_of(p, h, limits, &closer);

	if (p->breaker == SAS_BREAKER_OPEN && limits->breaker_failures > 0)
	{
		if (now < p->open_until_us)
		{
			*retry_us = p->open_until_us;
			granted = 0;
		}
		else
		{
			p->breaker = SAS_BREAKER_HALF_OPEN;
			p->probe_pid = 0;
		}
	}
	if (p->breaker == SAS_BREAKER_HALF_OPEN && granted > 0 && limits->breaker_failures > 0)
		granted = p->probe_pid == 0 ? 1 : 0;

	room = Max(0, limits->max_in_flight - p->in_flight);
	if (rested)
		p->rested_until_us = room > 0 ? 0 : now + SAS_RESTED_US;
	else if (room > 0 && now < p->rested_until_us)
	{
		room--;
		*retry_us = Max(*retry_us, p->rested_until_us);
	}
	if (granted > room)
	{
		granted = room;
		p->refused = true;
	}
	if (limits->rate_per_s <= 0)
		p->full_us = 0;			/* it may have had a rate before */
	else if (granted > 0)
	{
		fill(p, limits, now);
		if (granted > (int) p->tokens)
		{
			granted = (int) p->tokens;
			p->rate_until_us = now + (int64) ((1.0 + granted - p->tokens) * 1e6 / limits->rate_per_s) + 1;
			*retry_us = p->rate_until_us;
		}
		take_tokens(p, limits, granted);
	}
	if (granted > 0)
	{
		if (p->breaker == SAS_BREAKER_HALF_OPEN)
			p->probe_pid = MyProcPid;
		(void) sas_places_count(p, h, granted);
	}
	/* who is granted a place looks afterwards, and finds what others came for */
	if (!rested && (granted > 0 || *retry_us == 0))
		p->turned_away = granted == 0;
	sas_places_close(p, h);
	return granted;
}

bool
sas_places_return(int agent_id, const SasLimits *limits, int n)
{
	SasHeld    *h;
	SasPlace   *p;
	SasLimits	closer;
	bool		turned_away;

	if (n <= 0 || (p = sas_places_open(agent_id, false, &h)) == NULL)
		return false;
	if (h != NULL)
	{
		limits = limits_of(p, h, limits, &closer);
		(void) sas_places_count(p, h, -n);
	}
	if (limits->rate_per_s > 0)
	{
		take_tokens(p, limits, -n);
		p->rate_until_us = 0;
	}
	/* half-open grants one place, so what comes back unused is the probe */
	if (p->probe_pid == MyProcPid)
		p->probe_pid = 0;
	turned_away = p->turned_away;
	p->turned_away = false;
	sas_places_close(p, h);
	return turned_away;
}

bool
sas_places_spend(int agent_id, const SasLimits *limits, int64 *retry_us)
{
	int64		now = sas_clock_monotonic_us();
	SasHeld    *h;
	SasPlace   *p;
	SasLimits	closer;
	bool		spent = true;

	if (limits->rate_per_s <= 0 || (p = sas_places_open(agent_id, true, &h)) == NULL)
		return true;
	limits = limits_of(p, h, limits, &closer);
	fill(p, limits, now);
	if (p->tokens >= 1)
		take_tokens(p, limits, 1);
	else
	{
		spent = false;
		*retry_us = now + (int64) ((1.0 - p->tokens) * 1e6 / limits->rate_per_s) + 1;
	}
	sas_places_close(p, h);
	return spent;
}

bool
sas_places_free(int agent_id)
{
	SasHeld    *h;
	SasPlace   *p = sas_places_open(agent_id, false, &h);
	bool		refused;

	if (p == NULL)
		return false;
	if (h != NULL && sas_places_count(p, h, -1) == 0 && p->probe_pid == MyProcPid)
		p->probe_pid = 0;
	refused = p->refused;
	p->refused = false;
	sas_places_close(p, h);
	return refused;
}

SasBreaker
sas_places_breaker(int agent_id)
{
	SasHeld    *h;
	SasPlace   *p = sas_places_open(agent_id, false, &h);
	SasBreaker	breaker;

	if (p == NULL)
		return SAS_BREAKER_CLOSED;
	breaker = p->breaker;
	sas_places_close(p, h);
	return breaker;
}

bool
sas_places_report(int agent_id, const SasLimits *limits, bool success, int64 begun_us, SasBreaker *now_is)
{
	int64		now = sas_clock_monotonic_us();
	SasHeld    *h;
	SasPlace   *p;
	SasBreaker	before;

	*now_is = SAS_BREAKER_CLOSED;
	/* that there is nothing to tell needs no entry */
	if (limits->breaker_failures == 0 || (p = sas_places_open(agent_id, !success, &h)) == NULL)
		return false;
	before = p->breaker;
	if (!success && begun_us < p->mended_us)
		;
	else if (success)
	{
		p->failures = 0;
		/* an answer to a call from before the breaker opened says nothing new */
		if (p->breaker == SAS_BREAKER_HALF_OPEN)
		{
			p->breaker = SAS_BREAKER_CLOSED;
			p->probe_pid = 0;
		}
	}
	else if (p->breaker == SAS_BREAKER_HALF_OPEN)
	{
		p->breaker = SAS_BREAKER_OPEN;
		p->open_until_us = now + limits->breaker_open_us;
		p->probe_pid = 0;
	}
	else if (p->breaker == SAS_BREAKER_CLOSED)
	{
		if (p->failures == 0 || now - p->first_failure_us > limits->breaker_window_us)
		{
			p->failures = 0;
			p->first_failure_us = now;
			p->window_us = limits->breaker_window_us;
		}
		if (++p->failures >= limits->breaker_failures)
		{
			p->breaker = SAS_BREAKER_OPEN;
			p->open_until_us = now + limits->breaker_open_us;
			p->failures = 0;
		}
	}
	*now_is = p->breaker;
	sas_places_close(p, h);
	return before != *now_is;
}

void
sas_places_half_open(int agent_id)
{
	int64		now = sas_clock_monotonic_us();
	SasHeld    *h;
	SasPlace   *p = sas_places_open(agent_id, false, &h);

	if (p == NULL)
	{
		sas_places_mend_own(now);
		return;
	}
	sas_places_mend(p, now);
	sas_places_close(p, h);
}

typedef struct SasLook
{
	SasPlaceView *views;
	int			n;
	int64		now;
} SasLook;

static void
look(const SasPlace *p, void *arg)
{
	SasLook    *l = arg;
	SasPlaceView *v = &l->views[l->n++];

	v->agent_id = p->key.agent_id;
	v->in_flight = p->in_flight;
	v->breaker = p->breaker;
	v->open_for_us = p->breaker == SAS_BREAKER_OPEN ? Max(0, p->open_until_us - l->now) : 0;
	v->rate_for_us = Max(0, p->rate_until_us - l->now);
}

int
sas_places_view(SasPlaceView **views)
{
	SasLook		l = {.n = 0,.now = sas_clock_monotonic_us()};

	*views = l.views = palloc(sizeof(SasPlaceView) * sas_max_agents);
	sas_places_visit(look, &l);
	return l.n;
}
