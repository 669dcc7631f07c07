/* SPDX-License-Identifier: PostgreSQL */
/*
 * agents.c: reads the agents, and stores the health that is still to be
 * written.
 *
 * When agents have changed, those are read again that have another version
 * than the cached ones: a change costs what it changes, with thousands of
 * agents, too.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/grow.h"
#include "limits/owners.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/agents.h"
#include "work/json.h"
#include "work/oauth.h"
#include "work/secrets.h"

SasAgentEntry *sas_work_agents;
int			sas_work_n_agents;
bool		sas_work_health_due = false;

static uint32 agents_version_read = 0; /* of the agents in memory; 0: none were read */
static uint32 agents_version_seen;
#define SAS_FILES_US 1000000
static int64 agents_files_us;	/* when the files of secrets were last checked */

static int64 agents_asked_us;	/* what is read afterwards is no older than this */

static MemoryContext agents_context; /* of the entries, and of the context of each agent */
static int	agents_room;

void
sas_work_agents_open(void)
{
	agents_context = AllocSetContextCreate(CurrentMemoryContext, "sas agents", ALLOCSET_DEFAULT_SIZES);
}

/*
 * Nothing announces that a file has changed. So the files are checked before
 * calls are claimed, at most once a second.
 */
static bool
agents_files_changed(int64 now)
{
	if (now - agents_files_us < SAS_FILES_US)
		return false;
	agents_files_us = now;
	for (int i = 0; i < sas_work_n_agents; i++)
		if (sas_work_secrets_stale(sas_work_agents[i].stored))
			return true;
	return false;
}

bool
sas_work_agents_stale(void)
{
	agents_version_seen = sas_wake_version(SAS_WAKE_AGENTS);
	agents_asked_us = sas_base_clock_monotonic_us();
	return agents_version_seen != agents_version_read || agents_files_changed(agents_asked_us);
}

/* The place of the agent among the entries, which are in the order of agent_id; or where it would be. */
static int
agents_find(int agent_id)
{
	int			low = 0;
	int			high = sas_work_n_agents;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (sas_work_agents[middle].stored->agent_id < agent_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

SasAgentEntry *
sas_work_agent(int agent_id)
{
	int			i = agents_find(agent_id);

	return i < sas_work_n_agents && sas_work_agents[i].stored->agent_id == agent_id ? &sas_work_agents[i] : NULL;
}

static void
agents_remove(SasAgentEntry *e)
{
	sas_work_token_forget(e->stored->agent_id);
	MemoryContextDelete(e->stored->context);
	if (e->last_error != NULL)
		pfree(e->last_error);
	sas_work_n_agents--;
	memmove(e, e + 1, sizeof(SasAgentEntry) * (&sas_work_agents[sas_work_n_agents] - e));
}

static SasAgentEntry *
agents_insert(int agent_id)
{
	int			i = agents_find(agent_id);

	sas_work_agents = sas_base_grow(agents_context, sas_work_agents, sas_work_n_agents, &agents_room, sizeof(SasAgentEntry));
	memmove(&sas_work_agents[i + 1], &sas_work_agents[i], sizeof(SasAgentEntry) * (sas_work_n_agents - i));
	memset(&sas_work_agents[i], 0, sizeof(SasAgentEntry));
	sas_work_n_agents++;
	return &sas_work_agents[i];
}

/* This is what the agent is now; what is still to be written of it stays. */
static void
agents_set(SasStoredAgent *a)
{
	SasAgentEntry *e = sas_work_agent(a->agent_id);

	if (e != NULL)
	{
		sas_work_secrets_carry(a, e->stored);
		MemoryContextDelete(e->stored->context);
	}
	else
		e = agents_insert(a->agent_id);
	MemoryContextSetParent(a->context, agents_context);
	e->stored = a;
	e->ask_again_us = 0;
	e->scan = true;
	e->limits.max_in_flight = a->max_in_flight;
	e->limits.shared = a->shared;
	e->limits.rate_per_s = a->rate_per_s;
	e->limits.breaker_failures = a->breaker_failures;
	e->limits.breaker_window_us = (int64) (a->breaker_window_ms * 1000);
	e->limits.breaker_open_us = (int64) (a->breaker_open_ms * 1000);
	if (a->breaker_failures > 0)
		sas_limits_load(a->agent_id,
						strcmp(a->breaker, "open") == 0 ? SAS_BREAKER_OPEN :
						strcmp(a->breaker, "half-open") == 0 ? SAS_BREAKER_HALF_OPEN : SAS_BREAKER_CLOSED,
						(int64) (a->open_for_ms * 1000));
}

/* The agents that there are now: the limits of others can go. */
static void
agents_keep_limits(void)
{
	int		   *ids = palloc(sizeof(int) * Max(sas_work_n_agents, 1));

	for (int i = 0; i < sas_work_n_agents; i++)
		ids[i] = sas_work_agents[i].stored->agent_id;
	sas_limits_keep(ids, sas_work_n_agents, agents_asked_us);
	pfree(ids);
}

/*
 * Flights refer to agents by id, so the old entries can be freed.  If the
 * transaction fails after this, the agents that were read are still right, and
 * the others are read again.
 */
void
sas_work_agents_read(void)
{
	SasStoredAgent **known = palloc(sizeof(SasStoredAgent *) * Max(sas_work_n_agents, 1));
	bool		gone = agents_version_read == 0;
	List	   *changed;
	ListCell   *lc;

	for (int i = 0; i < sas_work_n_agents; i++)
		known[i] = sas_work_agents[i].stored;
	changed = sas_store_agents(known, sas_work_n_agents);
	foreach(lc, changed)
	{
		SasStoredAgent *a = lfirst(lc);

		if (a->version != NULL)
			agents_set(a);
		else
		{
			agents_remove(sas_work_agent(a->agent_id));
			gone = true;
		}
	}
	/* of what was dropped without a word at its commit */
	if (gone)
		agents_keep_limits();
}

void
sas_work_agents_applied(void)
{
	agents_version_read = agents_version_seen;
}

void
sas_work_agent_error(SasAgentEntry *agent, const Jsonb *error)
{
	if (agent->last_error != NULL)
		pfree(agent->last_error);
	/* entries move */
	agent->last_error = sas_work_json_copy(TopMemoryContext, error);
	agent->error_seen = true;
	sas_work_health_due = true;
}

void
sas_work_agent_report(SasAgentEntry *agent, Oid owner, bool success, int64 begun_us)
{
	if (!sas_limits_report(agent->stored->agent_id, owner, &agent->limits, success, begun_us, &agent->breaker))
		return;
	agent->scan = true;
	agent->breaker_changed = true;
	sas_work_health_due = true;
	/* others may have been refused because of this probe: they ask again when the breaker allows it */
	sas_wake_count_lane(agent->stored->agent_id);
	sas_wake_others(SAS_AGENT);
}

void
sas_work_agent_free_slot(int agent_id, Oid owner)
{
	SasAgentEntry *agent = sas_work_agent(agent_id);

	sas_limits_owner_end(agent_id, owner);
	/* for a worker that was refused: this one may have no slot for the call */
	if (sas_limits_free(agent_id))
	{
		sas_wake_count_lane(agent_id);
		sas_wake_others(SAS_AGENT);
	}
	/* what becomes ready is announced: only what this worker was refused is still to be scanned for */
	if (agent != NULL && agent->refused)
		agent->scan = true;
}
