/* SPDX-License-Identifier: PostgreSQL */
/*
 * health.c: writes the breakers and last errors of agents.
 *
 * An agent whose row is locked, or cannot be written, holds up neither the
 * others nor the claims of the worker.
 */
#include "postgres.h"

#include "agent/health.h"
#include "agent/stuck.h"
#include "base/actor.h"
#include "base/clock.h"
#include "work/agents.h"

/* the row was locked, or there was an error that may have been another one's */
#define SAS_HEALTH_RETRY_US 20000
/* the row cannot be written */
#define SAS_HEALTH_DEFER_US (60 * INT64CONST(1000000))
/* after this many aborts because of it, and after each further one */
#define SAS_HEALTH_TRIES 3

static int64 health_retry_us = 0;	/* when what is left over is to be written; 0: nothing is */
static int	health_agent_id = 0; /* whose row is being written */
static int	health_sent = 0;	/* agents in the transaction that is open or was aborted */

static bool
health_is_pending(const SasAgentEntry *e)
{
	return e->error_seen || e->breaker_changed;
}

bool
sas_agent_health_due(void)
{
	return sas_work_health_due || (health_retry_us != 0 && health_retry_us <= sas_base_clock_monotonic_us());
}

int64
sas_agent_health_wake_in_ms(void)
{
	if (health_retry_us == 0)
		return -1;
	return Max(0, (health_retry_us - sas_base_clock_monotonic_us() + 999) / 1000);
}

static void
health_write_agent(SasAgentEntry *e)
{
	static const char *const names[] = {"closed", "open", "half-open"};

	health_agent_id = e->stored->agent_id;
	health_sent++;
	/* a note that has waited must not overwrite a newer one of another worker: write the state as it is now */
	if (e->breaker_changed && e->health_not_before_us != 0)
		e->breaker = sas_limits_breaker(e->stored->agent_id);
	e->health_written = sas_store_write_health(e->stored->agent_id, e->breaker_changed ? names[e->breaker] : NULL,
											   e->limits.breaker_open_us / 1000.0, e->error_seen ? e->last_error : NULL);
	if (!e->health_written)
		e->health_not_before_us = sas_base_clock_monotonic_us() + SAS_HEALTH_RETRY_US;
}

bool
sas_agent_health_write(bool single)
{
	int64		now = sas_base_clock_monotonic_us();

	if (!sas_agent_health_due())
		return false;
	for (int i = 0; i < sas_work_n_agents && !(single && health_sent > 0); i++)
		if (health_is_pending(&sas_work_agents[i]) && sas_work_agents[i].health_not_before_us <= now)
			health_write_agent(&sas_work_agents[i]);
	/* what fails from now on is not the fault of this one */
	if (!single)
		health_agent_id = 0;
	return health_sent > 0;
}

/* When what is pending is to be written. */
static void
health_set_retry(void)
{
	sas_work_health_due = false;
	health_retry_us = 0;
	health_agent_id = health_sent = 0;
	for (int i = 0; i < sas_work_n_agents; i++)
	{
		SasAgentEntry *e = &sas_work_agents[i];
		int64		at = Max(e->health_not_before_us, 1);

		e->health_written = false;
		if (health_is_pending(e) && (health_retry_us == 0 || at < health_retry_us))
			health_retry_us = at;
	}
}

void
sas_agent_health_written(void)
{
	if (!sas_agent_health_due() && health_sent == 0)
		return;
	for (int i = 0; i < sas_work_n_agents; i++)
	{
		SasAgentEntry *e = &sas_work_agents[i];

		if (!e->health_written)
			continue;
		e->error_seen = e->breaker_changed = false;
		e->health_not_before_us = 0;
		e->health_tries = 0;
	}
	health_set_retry();
}

/* This agent's row could not be written. */
static void
health_fail(SasAgentEntry *e)
{
	int64		now = sas_base_clock_monotonic_us();

	if (++e->health_tries < SAS_HEALTH_TRIES)
	{
		e->health_not_before_us = now + SAS_HEALTH_RETRY_US;
		return;
	}
	e->health_not_before_us = now + SAS_HEALTH_DEFER_US;
	sas_agent_stuck_note(psprintf("health of agent %d", e->stored->agent_id), 0,
						 psprintf("could not store the breaker or last error of agent \"%s\"", e->stored->name),
						 "sas.agents does not show it.");
}

void
sas_agent_health_failed(void)
{
	SasAgentEntry *e = health_agent_id != 0 ? sas_work_agent(health_agent_id) : NULL;

	if (e != NULL && !sas_base_tick_cancelled)
		health_fail(e);
	if (health_sent > 0)
		health_set_retry();
}
