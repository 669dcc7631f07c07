/* SPDX-License-Identifier: PostgreSQL */
/*
 * agents.c: reads the agents, and stores the health that is still to be
 * written.
 */
#include "postgres.h"

#include "base/clock.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/agents.h"

SasAgentEntry *sas_work_agents;
int			sas_work_n_agents;
bool		sas_work_health_due = false;

static uint32 agents_version_read = 0; /* of the agents in memory; 0: none were read */
static uint32 agents_version_seen;
static int64 agents_asked_us;	/* what is read afterwards is no older than this */

static MemoryContext agents_context; /* of all agents in memory; a new one with each reading */

void
sas_work_agents_open(void)
{
	agents_context = AllocSetContextCreate(CurrentMemoryContext, "sas agents", ALLOCSET_DEFAULT_SIZES);
}

bool
sas_work_agents_stale(void)
{
	agents_version_seen = sas_wake_agents_version();
	agents_asked_us = sas_base_clock_monotonic_us();
	return agents_version_seen != agents_version_read;
}

SasAgentEntry *
sas_work_agent(int agent_id)
{
	for (int i = 0; i < sas_work_n_agents; i++)
		if (sas_work_agents[i].stored->agent_id == agent_id)
			return &sas_work_agents[i];
	return NULL;
}

/* Reads the agents; flights refer to them by id, so the old ones can go. */
void
sas_work_agents_read(void)
{
	List	   *list;
	ListCell   *lc;
	MemoryContext fresh = AllocSetContextCreate(TopMemoryContext, "sas agents", ALLOCSET_DEFAULT_SIZES);
	SasAgentEntry *entries;
	int		   *ids;
	int			n = 0;

	list = sas_store_agents(fresh);
	entries = MemoryContextAllocZero(fresh, sizeof(SasAgentEntry) * Max(list_length(list), 1));
	ids = palloc(sizeof(int) * Max(list_length(list), 1));
	foreach(lc, list)
	{
		SasAgentEntry *e = &entries[n];
		SasStoredAgent *a = lfirst(lc);
		SasAgentEntry *before = sas_work_agent(a->agent_id);

		if (before != NULL)
			*e = *before;		/* what is still to be written of it */
		else
			e->memory = MemoryContextAllocZero(TopMemoryContext, sizeof(SasTransportShare)); /* calls may outlive it */
		ids[n++] = a->agent_id;
		e->ask_again_us = 0;
		e->stored = a;
		e->scan = true;
		e->limits.max_in_flight = a->max_in_flight;
		e->limits.rate_per_s = a->rate_per_s;
		e->limits.breaker_failures = a->breaker_failures;
		e->limits.breaker_window_us = (int64) (a->breaker_window_ms * 1000);
		e->limits.breaker_open_us = (int64) (a->breaker_open_ms * 1000);
		if (a->breaker_failures == 0)
			continue;
		sas_limits_load(a->agent_id,
						strcmp(a->breaker, "open") == 0 ? SAS_BREAKER_OPEN :
						strcmp(a->breaker, "half-open") == 0 ? SAS_BREAKER_HALF_OPEN : SAS_BREAKER_CLOSED,
						(int64) (a->open_for_ms * 1000));
	}
	/* of what was dropped without a word at its commit */
	sas_limits_keep(ids, n, agents_asked_us);
	MemoryContextDelete(agents_context);
	agents_context = fresh;
	sas_work_agents = entries;
	sas_work_n_agents = n;
}

void
sas_work_agents_applied(void)
{
	agents_version_read = agents_version_seen;
}

void
sas_work_agent_error(SasAgentEntry *agent, const Jsonb *error)
{
	Jsonb	   *copy = NULL;

	if (agent->last_error != NULL)
		pfree(agent->last_error);
	if (error != NULL)
	{
		/* entries move, and their context goes */
		copy = MemoryContextAlloc(TopMemoryContext, VARSIZE(error));
		memcpy(copy, error, VARSIZE(error));
	}
	agent->last_error = copy;
	agent->error_seen = true;
	sas_work_health_due = true;
}

void
sas_work_agent_report(SasAgentEntry *agent, bool success, int64 begun_us)
{
	if (!sas_limits_report(agent->stored->agent_id, &agent->limits, success, begun_us, &agent->breaker))
		return;
	agent->scan = true;
	agent->breaker_changed = true;
	sas_work_health_due = true;
	/* others may have been refused because of this probe: they ask again when the breaker allows it */
	sas_wake_count_lane(agent->stored->agent_id);
	sas_wake_others(SAS_AGENT);
}
