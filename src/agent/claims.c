/* SPDX-License-Identifier: PostgreSQL */
/* claims.c: from which agents an agent worker claims calls, and how many; see claims.h. */
#include "postgres.h"

#include "agent/claims.h"
#include "agent/flights.h"
#include "agent/outbox.h"
#include "work/room.h"
#include "base/actor.h"
#include "base/clock.h"
#include "limits/owners.h"
#include "store/ready_claim.h"
#include "template/budget.h"
#include "utils/memutils.h"
#include "wake/low_water.h"
#include "wake/wakeup.h"
#include "work/agents.h"
#include "work/late.h"

/* the most steps of one claim: a batch of a hundred gets most of what batching gives */
#define CLAIMS_BATCH 500
/* of so many owners in line, each is asked for whether it may have more */
#define CLAIMS_OWNERS 8
/* what a claim spends on evaluations */
#define CLAIMS_US 100000
/* and what the requests that it makes may take together */
#define CLAIMS_BYTES (INT64CONST(4) * 1024 * 1024)

static int	claims_batch = CLAIMS_BATCH; /* the most steps of the next claim */
static bool claims_claiming;	/* the transaction that is open has begun to claim; or the last one that did, failed */
static bool claims_overran;		/* evaluations of the last claim took too long: nothing was claimed */
static bool claims_door_shut;	/* calls of an owner take up so much memory here that no more of them begin */
static bool claims_share_taken; /* an agent has so many of the slots that it gets no more */
static bool claims_passed_on;	/* other workers have been woken because of one of these two */
static bool claims_cut_short;	/* the last claim did not ask for every agent */

/* what the limits were asked for, until it is used */
static int *claims_lanes;
static int *claims_quantities;
static int	claims_n_lanes;
static int	claims_room;

/* Agents may have become more since the last claim. */
static void
claims_fit(void)
{
	if (claims_room >= sas_work_n_agents)
		return;
	if (claims_room > 0)
	{
		pfree(claims_lanes);
		pfree(claims_quantities);
	}
	claims_room = sas_work_n_agents;
	claims_lanes = MemoryContextAlloc(TopMemoryContext, sizeof(int) * claims_room);
	claims_quantities = MemoryContextAlloc(TopMemoryContext, sizeof(int) * claims_room);
}

/* The last claim from this agent found only owners that may have no more calls: is that so still? Then a claim would be in vain. */
static bool
claims_owners_are_full(SasAgentEntry *e)
{
	Oid			owners[CLAIMS_OWNERS];
	int			n = e->owners_refused ? sas_wake_line_owners(SAS_LOW_WATER_LANE, e->stored->agent_id, owners, CLAIMS_OWNERS) : 0;

	for (int i = 0; i < n; i++)
	{
		bool		crowded = !sas_work_room_for(e->stored->agent_id, owners[i]);

		if (!crowded && !sas_limits_owner_is_full(e->stored->agent_id, owners[i]))
			return false;
		e->crowded |= crowded;
	}
	return n > 0;
}

/* What takes up the memory of this worker is written in a moment. Nothing else makes it scan again. */
static void
claims_come_back(SasAgentEntry *e, int64 now)
{
	int64		again = now + SAS_CLAIMS_CROWDED_MS * 1000;

	claims_door_shut |= e->crowded;
	if (e->crowded && (e->ask_again_us == 0 || e->ask_again_us > again))
		e->ask_again_us = again;
}

/* After a claim: what the limits of owners have refused there. */
static void
claims_told(int agent_id, bool again, bool refused, bool crowded)
{
	SasAgentEntry *e = sas_work_agent(agent_id);

	if (e == NULL)
		return;
	e->scan |= again;
	e->refused |= refused;
	e->owners_refused |= refused || crowded;
	e->crowded |= crowded;
}

/* What the work of an agent was counted as before a scan, which then sees that work. */
typedef struct ClaimsSeen
{
	uint32		wake_count;
	bool		unprompted;		/* only a nudge makes it scan */
} ClaimsSeen;

/* Is there anything to scan for? */
static bool
claims_scans(SasAgentEntry *e, int64 now, ClaimsSeen *seen)
{
	uint32		nudges;

	seen->wake_count = sas_wake_lane_count(e->stored->agent_id);
	if (e->wake_count != seen->wake_count)
		e->scan = true;
	e->wake_count = seen->wake_count;
	if (e->ask_again_us != 0 && now >= e->ask_again_us)
	{
		e->scan = true;
		e->ask_again_us = 0;
	}
	nudges = sas_wake_lane_nudges(e->stored->agent_id);
	seen->unprompted = !e->scan && e->ask_again_us == 0 && e->nudges != nudges;
	e->scan |= e->nudges != nudges;
	e->nudges = nudges;
	e->crowded &= !e->scan;
	return e->scan && e->stored->enabled;
}

/* How many calls this worker could take from an agent, whatever the limits of the agent say. */
static int
claims_room_for(SasAgentEntry *e, int free_slots)
{
	int			share;

	share = sas_agent_flights_share(e, free_slots);
	/* the end of a flight makes this worker scan again */
	claims_share_taken |= share == 0;
	return share;
}

/* The only owner with calls that are ready; invalid: there are several, or it is not known. */
static Oid
claims_only_owner(int agent_id)
{
	Oid			owner;

	return sas_wake_line_owners(SAS_LOW_WATER_LANE, agent_id, &owner, 1) == 1 ? owner : InvalidOid;
}

/* Takes slots of the agent for so many calls at most; returns how many it got. */
static int
claims_ask_agent(SasAgentEntry *e, int most)
{
	int64		again;
	int			granted;

	if (claims_owners_are_full(e))
	{
		/* the end of a call wakes */
		e->refused = true;
		e->scan = false;
		claims_come_back(e, sas_base_clock_monotonic_us());
		return 0;
	}
	e->owners_refused = false;
	granted = sas_limits_ask(e->stored->agent_id, claims_only_owner(e->stored->agent_id), &e->limits, most, false, &again);
	if (again != 0)
		e->ask_again_us = again;
	e->refused = granted == 0;
	if (e->refused)
		e->scan = false;
	return granted;
}

void
sas_agent_claims_ask(int slots, int64 *retry_us)
{
	int			free_slots = Max(0, slots - sas_agent_in_flight());
	int			batch = claims_batch;
	int64		now = sas_base_clock_monotonic_us();
	static unsigned first = 0;
	bool		full = free_slots == 0;
	int			n = 0;

	claims_fit();
	claims_cut_short = claims_door_shut = claims_share_taken = false;
	first++;
	for (int i = 0; i < sas_work_n_agents; i++)
	{
		/* each tick begins with another agent, so that a busy one cannot always take all slots */
		SasAgentEntry *e = &sas_work_agents[(first + i) % sas_work_n_agents];
		ClaimsSeen	seen;
		int			room;
		int			granted;

		/* without a free slot this worker scans later: the end of a flight makes it scan again */
		if (free_slots == 0 || batch == 0)
		{
			claims_cut_short = true;
			break;
		}
		if (!claims_scans(e, now, &seen) || (room = claims_room_for(e, free_slots)) == 0 ||
			(granted = claims_ask_agent(e, Min(room, batch))) == 0)
			continue;
		if (seen.unprompted)
			sas_work_late_look(SAS_LATE_STEP, e->stored->agent_id, sas_wake_lane_count, seen.wake_count, DT_NOEND);
		claims_lanes[n] = e->stored->agent_id;
		claims_quantities[n++] = granted;
		free_slots -= granted;
		batch -= granted;
	}
	for (int i = 0; i < sas_work_n_agents && !full; i++)
	{
		claims_door_shut |= sas_work_agents[i].crowded;
		if (sas_work_agents[i].ask_again_us != 0 && (*retry_us == 0 || sas_work_agents[i].ask_again_us < *retry_us))
			*retry_us = sas_work_agents[i].ask_again_us;
	}
	claims_n_lanes = n;
}

bool
sas_agent_claims_wanted(void)
{
	return claims_n_lanes > 0;
}

List *
sas_agent_claims_take(void)
{
	bool		apart = claims_claiming;

	claims_claiming = true;
	/* an agent that is read after the claim is scanned again, whatever that finds */
	for (int i = 0; i < claims_n_lanes; i++)
		sas_work_agent(claims_lanes[i])->scan = false;
	sas_template_budget_begin(apart || claims_batch == 1);
	sas_store_ready_begin(sas_wake_latch_count());
	return sas_store_claim_calls(claims_lanes, claims_quantities, claims_n_lanes, apart);
}

/* The next claim takes as much as it can evaluate within a moment, judged by this one. */
static void
claims_fit_batch(int n)
{
	int64		spent_us = sas_template_budget_us();
	int64		bytes = sas_template_budget_bytes();

	claims_batch = Min(CLAIMS_BATCH, claims_batch * 2);
	if (spent_us > CLAIMS_US / 10)
		claims_batch = Max(1, Min(claims_batch, CLAIMS_US * n / spent_us));
	if (bytes > CLAIMS_BYTES)
		claims_batch = Max(1, Min(claims_batch, CLAIMS_BYTES * n / bytes));
	/* nothing was claimed: there is more in each lane, and one is claimed whatever it costs */
	claims_overran = sas_template_budget_overran();
	if (claims_overran)
		claims_batch = 1;
}

/* The agent was dropped while this worker claimed. */
static void
claims_return_of_gone(int i)
{
	const SasLimits none = {0};

	(void) sas_limits_return(claims_lanes[i], &none, claims_quantities[i]);
}

bool
sas_agent_claims_use(List *claimed, const SasClaimTime *when)
{
	SasLeaseEntry *lease = NULL;
	bool		more = false;
	ListCell   *lc;

	if (claims_n_lanes > 0)
	{
		claims_claiming = false;
		claims_fit_batch(list_length(claimed));
	}
	if (claimed != NIL)
		lease = sas_agent_outbox_lease(((SasClaimedCall *) linitial(claimed))->lease_id, list_length(claimed));
	foreach(lc, claimed)
	{
		SasClaimedCall *call = lfirst(lc);

		sas_limits_owner_begin(call->agent_id, call->owner);
	}
	sas_limits_owners_settle(claims_told);
	for (int i = 0; i < claims_n_lanes; i++)
	{
		SasAgentEntry *e = sas_work_agent(claims_lanes[i]);
		int			got = 0;

		foreach(lc, claimed)
			if (((SasClaimedCall *) lfirst(lc))->agent_id == claims_lanes[i])
				got++;
		if (e == NULL)
		{
			claims_return_of_gone(i);
			continue;
		}
		e->scan |= sas_limits_return(claims_lanes[i], &e->limits, claims_quantities[i] - got) || got == claims_quantities[i] || claims_overran ||
			sas_store_ready_was_cut(claims_lanes[i]);
		more |= e->scan;
		/* a token that was not needed makes waiting for the next one needless, but not for the breaker */
		if (got < claims_quantities[i] && sas_limits_breaker(claims_lanes[i]) != SAS_BREAKER_OPEN)
			e->ask_again_us = 0;
		claims_come_back(e, sas_base_clock_monotonic_us());
	}
	foreach(lc, claimed)
		sas_agent_flight_start(lfirst(lc), lease, when);
	claims_n_lanes = 0;
	return more;
}

void
sas_agent_claims_pass_on(void)
{
	bool		any = false;

	for (int i = 0; i < sas_work_n_agents; i++)
		if ((sas_work_agents[i].scan || sas_work_agents[i].crowded) && sas_work_agents[i].stored->enabled)
		{
			sas_wake_count_lane(sas_work_agents[i].stored->agent_id);
			any = true;
		}
	if (any)
		sas_wake_others(SAS_AGENT);
}

void
sas_agent_claims_pass_on_shut(void)
{
	bool		shut = claims_door_shut || claims_share_taken;

	if (shut && !claims_passed_on)
		sas_agent_claims_pass_on();
	claims_passed_on = shut;
}

void
sas_agent_claims_failed(void)
{
	sas_limits_owners_settle(NULL);
	for (int i = 0; i < claims_n_lanes; i++)
	{
		SasAgentEntry *e = sas_work_agent(claims_lanes[i]);

		if (e == NULL)
		{
			claims_return_of_gone(i);
			continue;
		}
		sas_limits_return(claims_lanes[i], &e->limits, claims_quantities[i]);
		e->scan = true;
	}
	claims_n_lanes = 0;
	if (!sas_template_budget_overran())
		claims_batch = 1;
}

bool
sas_agent_claims_door_is_shut(void)
{
	return claims_door_shut;
}

bool
sas_agent_claims_were_cut_short(void)
{
	return claims_cut_short;
}
