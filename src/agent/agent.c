/* SPDX-License-Identifier: PostgreSQL */
/*
 * agent.c: one loop that makes up to sas.agent_slots HTTP calls at once.
 *
 * A tick:
 *	 1. moves the network, evaluates the small answers that came (an attempt each),
 *		as many as one tick may; ends flights that are past complete-by: their
 *		call is stopped, nothing is reported
 *	 2. asks the limits how many calls each agent may take
 *	 3. in one transaction: writes what flights ended with, looks up which of
 *		their claims are no longer valid (an operator has stopped them), claims as
 *		many calls as were granted.  Under load a commit carries what came in
 *		during the one before; on an idle system it carries one reply, at once.
 *	 4. composes and starts the claimed calls
 *	 5. evaluates one large answer, or writes what one came to, in a transaction
 *		of its own; not while a call that was claimed just now may be answered, so
 *		a call of another agent waits for one such tick
 *	 6. does the same for the watches it hosts, in a transaction of their own: see
 *		src/stream
 *
 * No transaction is open while a call is in flight.  The outbox stores
 * verdicts until they are committed, so an ERROR in the transaction costs
 * nothing but time.  A worker that is asked to end gives back what it has not
 * begun to send, and writes the answers that come in a moment.  Everything
 * else in memory here is lost with the worker: the supervisor finds its
 * leases.
 */
#include "postgres.h"

#include "access/xact.h"
#include "agent/agent.h"
#include "agent/flights.h"
#include "agent/health.h"
#include "agent/large.h"
#include "agent/outbox.h"
#include "agent/stuck.h"
#include "base/capacity.h"
#include "base/clock.h"
#include "base/settings.h"
#include "base/sockets.h"
#include "miscadmin.h"
#include "stream/watch.h"
#include "utils/memutils.h"
#include "template/budget.h"
#include "wake/wakeup.h"
#include "work/agents.h"
#include "work/late.h"

/* the most steps of one claim: a batch of a hundred gets most of what batching gives */
#define SAS_CLAIM_BATCH 500
/* what a claim spends on evaluations */
#define SAS_CLAIM_US 100000
#define SAS_MEMORY_RETRY_MS 50

static bool agent_open;			/* a transaction has begun and has not committed yet */
static bool agent_careful;		/* the last one did not commit */
static int	agent_batch = SAS_CLAIM_BATCH; /* the most steps of the next claim */
static bool agent_claiming;		/* the transaction that is open has begun to claim; or the last one that did, failed */
static bool agent_overran;		/* evaluations of the last claim took too long: nothing was claimed */
static bool agent_wrote_alone;	/* in it, nothing was done but to write one kind of thing */
static bool agent_door_shut;	/* an agent holds so much memory here that it is not asked for */
static bool agent_share_taken;	/* an agent has so many of the slots that it gets no more */
static bool agent_door_passed_on; /* other workers have been woken because of one of these two */
static int *agent_lanes;		/* what the last claim asked the limits for */
static int *agent_quantities;
static int	agent_n_lanes;
static bool agent_cut_short;	/* the last claim did not ask for every agent */
static int	agent_lanes_room;

/*
 * A call needs up to three sockets: its own, one kept open for the next call,
 * and more for a moment while its host name is looked up.
 */
#define SAS_SOCKETS_OF_CALL 3

static int	agent_slots;
static int	agent_slots_asked;	/* sas.agent_slots then */
static int	agent_streams = -1;

/*
 * As many calls and streams as the settings allow and this process may open
 * sockets for. If sockets are short, calls get half of them, or what streams
 * leave over.
 */
static void
agent_reserve_sockets(void)
{
	int			streams = agent_streams < 0 ? sas_base_capacity_watches() : agent_streams;
	int			sockets = sas_base_sockets_reserve(sas_base_agent_slots * SAS_SOCKETS_OF_CALL + streams);

	agent_slots_asked = sas_base_agent_slots;
	agent_slots = Max(1, Min(sas_base_agent_slots, Max(sockets / 2, sockets - streams) / SAS_SOCKETS_OF_CALL));
	agent_streams = Min(streams, Max(0, sockets - agent_slots * SAS_SOCKETS_OF_CALL));
	/* nobody has asked for more than the machine has room for */
	if (agent_slots < sas_base_agent_slots || (sas_base_watch_slots >= 0 && agent_streams < streams))
		ereport(LOG,
				(errmsg("this sas agent worker makes %d calls and hosts %d infinite tasks at once, not %d and %d",
						agent_slots, agent_streams, sas_base_agent_slots, streams),
				 errdetail("It may open %d sockets.", sockets),
				 errhint("Raise the server's hard limit of open files (LimitNOFILE, ulimit -Hn), or lower sas.agent_slots and sas.watch_slots.")));
}

static void
agent_start(void)
{
	sas_work_agents_open();
	agent_reserve_sockets();
	sas_stream_open(sas_agent_flights_open(agent_slots), agent_streams);
}

/* Asks the limits. Returns how many lanes are to be claimed from; *retry_us: when a limit may be lifted. */
static int
agent_ask_limits(int64 *retry_us)
{
	int			free_slots = Max(0, agent_slots - sas_agent_in_flight());
	int			batch = agent_batch;
	int64		now = sas_base_clock_monotonic_us();
	static unsigned first = 0;
	bool		full = free_slots == 0;
	int			n = 0;

	agent_cut_short = agent_door_shut = agent_share_taken = false;
	first++;
	for (int i = 0; i < sas_work_n_agents; i++)
	{
		/* each tick begins with another agent, so that a busy one cannot always take all slots */
		SasAgentEntry *e = &sas_work_agents[(first + i) % sas_work_n_agents];
		int64		again;
		int			share;
		int			granted;
		uint32		wake_count;
		uint32		nudges;
		bool		unprompted;

		/* without a free slot this worker scans later: the end of a flight makes it scan again */
		if (free_slots == 0 || batch == 0)
		{
			agent_cut_short = true;
			break;
		}
		/* read before the scan, which then sees the work that was counted */
		wake_count = sas_wake_lane_count(e->stored->agent_id);
		if (e->wake_count != wake_count)
			e->scan = true;
		e->wake_count = wake_count;
		if (e->ask_again_us != 0 && now >= e->ask_again_us)
		{
			e->scan = true;
			e->ask_again_us = 0;
		}
		nudges = sas_wake_lane_nudges(e->stored->agent_id);
		unprompted = !e->scan && e->ask_again_us == 0 && e->nudges != nudges;
		e->scan |= e->nudges != nudges;
		e->nudges = nudges;
		if (!e->scan || !e->stored->enabled)
			continue;
		if (!sas_agent_flights_may_claim(e))
		{
			agent_door_shut = true;
			continue;
		}
		share = sas_agent_flights_share(e, free_slots);
		if (share == 0)
		{
			/* the end of a flight makes this worker scan again */
			agent_share_taken = true;
			continue;
		}
		granted = sas_limits_ask(e->stored->agent_id, &e->limits, Min(share, batch), false, &again);
		if (again != 0)
			e->ask_again_us = again;
		e->refused = granted == 0;
		if (e->refused)
		{
			e->scan = false;
			continue;
		}
		if (unprompted)
			sas_work_late_look(SAS_LATE_STEP, e->stored->agent_id, sas_wake_lane_count, wake_count, DT_NOEND);
		agent_lanes[n] = e->stored->agent_id;
		agent_quantities[n++] = granted;
		free_slots -= granted;
		batch -= granted;
	}
	for (int i = 0; i < sas_work_n_agents && !full; i++)
		if (sas_work_agents[i].ask_again_us != 0 && (*retry_us == 0 || sas_work_agents[i].ask_again_us < *retry_us))
			*retry_us = sas_work_agents[i].ask_again_us;
	return n;
}

/* Starts the claimed calls and gives back the slots that found no step. True: there may be more. */
static bool
agent_use_claims(List *claimed, int64 claimed_us)
{
	SasLeaseEntry *lease = NULL;
	bool		more = false;
	ListCell   *lc;

	if (claimed != NIL)
		lease = sas_agent_outbox_lease(((SasClaimedCall *) linitial(claimed))->lease_id, list_length(claimed));
	for (int i = 0; i < agent_n_lanes; i++)
	{
		SasAgentEntry *e = sas_work_agent(agent_lanes[i]);
		int			got = 0;

		foreach(lc, claimed)
			if (((SasClaimedCall *) lfirst(lc))->agent_id == agent_lanes[i])
				got++;
		if (e == NULL)
			continue;
		e->scan = sas_limits_return(agent_lanes[i], &e->limits, agent_quantities[i] - got) || got == agent_quantities[i] || agent_overran;
		more |= e->scan;
		/* a token that was not needed makes waiting for the next one needless */
		if (got < agent_quantities[i])
			e->ask_again_us = 0;
	}
	foreach(lc, claimed)
		sas_agent_flight_start(lfirst(lc), lease, claimed_us);
	return more;
}

/* A worker whose slots, or whose memory, is all taken leaves the lanes that it would scan to the others. */
static void
agent_pass_on(void)
{
	bool		any = false;

	for (int i = 0; i < sas_work_n_agents; i++)
		if (sas_work_agents[i].scan && sas_work_agents[i].stored->enabled)
		{
			sas_wake_count_lane(sas_work_agents[i].stored->agent_id);
			any = true;
		}
	if (any)
		sas_wake_others(SAS_AGENT);
}

/* The last transaction did not commit: nothing was claimed, and what is in the outbox stays there. */
static void
agent_after_abort(void)
{
	for (int i = 0; i < agent_n_lanes; i++)
	{
		SasAgentEntry *e = sas_work_agent(agent_lanes[i]);

		if (e == NULL)
			continue;
		sas_limits_return(agent_lanes[i], &e->limits, agent_quantities[i]);
		e->scan = true;
	}
	sas_template_turn_end();
	sas_transport_reuse_memory(false);
	agent_n_lanes = 0;
	agent_open = false;
	agent_careful = true;
	if (!sas_template_turn_overran())
		agent_batch = 1;
	sas_agent_outbox_failed(agent_wrote_alone);
	sas_agent_stuck_failed(agent_wrote_alone);
	sas_agent_health_failed();
}

static bool
agent_write_due(void)
{
	return sas_agent_outbox_due() || sas_agent_stuck_due() || sas_agent_health_due();
}

/* Writes what waits for it; after an abort one thing. */
static void
agent_write(void)
{
	bool		alone = agent_wrote_alone;
	int			kinds;

	/* what raises an error knows so itself: this is for errors of the commit */
	agent_wrote_alone = false;
	kinds = sas_agent_outbox_write();
	if (kinds == 0 || !agent_careful)
		kinds += sas_agent_stuck_write();
	if (kinds == 0 || !agent_careful)
		kinds += sas_agent_health_write(agent_careful);
	agent_wrote_alone = alone && kinds == 1;
}

/* Slots and agents may have become others since the last tick. */
static void
agent_fit(void)
{
	if (agent_slots_asked != sas_base_agent_slots)
	{
		agent_reserve_sockets();
		sas_agent_flights_resize(agent_slots);
	}
	if (agent_lanes_room < sas_work_n_agents)
	{
		agent_lanes_room = sas_work_n_agents;
		agent_lanes = MemoryContextAlloc(TopMemoryContext, sizeof(int) * agent_lanes_room);
		agent_quantities = MemoryContextAlloc(TopMemoryContext, sizeof(int) * agent_lanes_room);
	}
}

/* The next claim takes as much as it can evaluate within a moment, judged by this one. */
static void
agent_fit_batch(int n)
{
	int64		spent_us = sas_template_turn_us();

	agent_batch = Min(SAS_CLAIM_BATCH, agent_batch * 2);
	if (spent_us > SAS_CLAIM_US / 10)
		agent_batch = Max(1, Min(agent_batch, SAS_CLAIM_US * n / spent_us));
	/* nothing was claimed: there is more in each lane */
	agent_overran = sas_template_turn_overran();
}

/*
 * One transaction: what is known of agents, claims that were lost, replies,
 * and claims from agent_lanes.  What it claimed is sent after the commit.
 * False: the extension is gone.  *more: there may be more to claim.
 */
static bool
agent_exchange(bool stale, bool stops, bool *more)
{
	List	   *claimed = NIL;
	int64		claimed_us;

	agent_open = true;
	agent_wrote_alone = !stale && !stops && agent_n_lanes == 0;
	if (!sas_store_begin())
		return false;
	if (stale)
		sas_work_agents_read();
	if (stops)
		sas_agent_flights_find_lost();
	sas_template_turn_begin(sas_agent_outbox_batch() == 1);
	agent_write();
	claimed_us = sas_base_clock_monotonic_us();
	if (agent_n_lanes > 0)
	{
		bool		apart = agent_claiming;

		agent_claiming = true;
		sas_template_turn_begin(apart || agent_batch == 1);
		claimed = sas_store_claim_calls(agent_lanes, agent_quantities, agent_n_lanes, apart);
	}
	sas_store_commit();
	sas_template_turn_end();
	agent_open = agent_careful = false;
	if (agent_n_lanes > 0)
	{
		agent_claiming = false;
		agent_fit_batch(list_length(claimed));
	}
	sas_agent_outbox_written();
	sas_agent_stuck_written();
	sas_agent_health_written();
	if (stops)
		sas_agent_flights_stop_lost();
	if (claimed != NIL)
		sas_agent_large_claimed(claimed_us);
	*more = agent_use_claims(claimed, claimed_us);
	if (stale)
	{
		sas_stream_agents_changed();
		sas_work_agents_applied();
	}
	if (claimed != NIL && sas_agent_in_flight() >= agent_slots)
		agent_pass_on();
	return true;
}

static bool
agent_has_large(void)
{
	return sas_agent_outbox_has_large() || sas_agent_flights_has_large();
}

/* Writes replies of one owner whose paths cost much. False: the extension is gone. */
static bool
agent_write_dear(void)
{
	agent_open = agent_wrote_alone = true;
	agent_n_lanes = 0;
	if (!sas_store_begin())
		return false;
	sas_agent_outbox_write_dear();
	sas_store_commit();
	sas_template_turn_end();
	agent_open = agent_careful = false;
	sas_agent_outbox_written();
	return true;
}

/*
 * Evaluates one large answer, or writes it in a transaction of its own.  The
 * next one is evaluated when this one is written, so the outbox holds one.
 * Replies of owners whose paths cost much take turns with it.
 * True: there is more to do for it, or another one.
 */
static bool
agent_move_large(void)
{
	static bool dear_next = false;

	dear_next = sas_agent_outbox_has_dear() && (!dear_next || !agent_has_large());
	if (dear_next)
		return agent_write_dear() && (agent_has_large() || sas_agent_outbox_has_dear() || sas_agent_outbox_due());
	if (!sas_agent_outbox_has_large())
	{
		sas_transport_reuse_memory(true);
		sas_agent_flights_take_large();
		sas_transport_reuse_memory(false);
		return agent_has_large() || sas_agent_outbox_has_dear() || sas_agent_outbox_due();
	}
	agent_open = agent_wrote_alone = true;
	agent_n_lanes = 0;
	if (!sas_store_begin())
		return false;
	/*
	 * statements copy the answer many times; to get new pages from the system
	 * each time would cost more than the copies
	 */
	sas_transport_reuse_memory(true);
	sas_agent_outbox_write_large();
	sas_store_commit();
	sas_transport_reuse_memory(false);
	agent_open = agent_careful = false;
	sas_agent_outbox_written();
	if (agent_has_large() || sas_agent_outbox_has_dear())
		return true;
	sas_transport_release_memory();
	return false;
}

/* When it is the turn of a large answer, or of dear replies. True: there is more to do for it, or another one. */
static bool
agent_do_large(void)
{
	int64		begun_us = sas_base_clock_monotonic_us();
	bool		more = false;

	switch (sas_agent_large_turn(agent_has_large() || sas_agent_outbox_has_dear(), begun_us))
	{
		case SAS_LARGE_NEXT_TICK:
			return true;
		case SAS_LARGE_LATER:
			return false;
		case SAS_LARGE_NOW:
			more = agent_move_large();
			sas_agent_large_moved(begun_us, sas_base_clock_monotonic_us());
	}
	return more;
}

static int64
agent_sooner_ms(int64 one, int64 other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* retry_us: when the limits are to be asked again; 0: they were not. */
static int64
agent_wake_in_ms(int64 retry_us)
{
	int64		wake_in_ms = agent_sooner_ms(sas_agent_flights_wake_in_ms(), sas_stream_wake_in_ms());

	if (retry_us != 0)
		wake_in_ms = agent_sooner_ms(wake_in_ms, Max(0, (retry_us - sas_base_clock_monotonic_us() + 999) / 1000));
	wake_in_ms = agent_sooner_ms(wake_in_ms, sas_agent_large_wake_in_ms());
	if (agent_door_shut || sas_agent_flights_starved())
		wake_in_ms = agent_sooner_ms(wake_in_ms, SAS_MEMORY_RETRY_MS);
	return agent_sooner_ms(wake_in_ms, sas_agent_health_wake_in_ms());
}

static SasTick
agent_tick(void)
{
	SasTick		next = {false, -1};
	bool		stale;
	bool		stops;
	int64		retry_us = 0;
	bool		more = false;
	bool		failed_before;

	if (agent_open)
		agent_after_abort();
	failed_before = agent_careful;
	agent_fit();
	sas_agent_flights_move();
	if (sas_base_stopping)
	{
		sas_agent_outbox_part_no_more();
		sas_agent_flights_give_back();
	}
	next.again = !sas_base_stopping && sas_stream_move();
	stale = sas_work_agents_stale();
	stops = sas_agent_flights_stale();

	/* after an abort, replies are written without a claim: a claim that fails must not cost replies */
	agent_n_lanes = stale || sas_base_stopping || (agent_careful && agent_write_due()) ? 0 : agent_ask_limits(&retry_us);
	if (stale || stops || agent_n_lanes > 0 || agent_write_due())
	{
		if (!agent_exchange(stale, stops, &more))
			return next;
		/* the transaction that failed was to claim from some lanes: scan them */
		next.again |= stale || failed_before;
		/* the claimed calls are sent now; an answer may be there already, and no event would report it again */
		if (!sas_base_stopping)
			next.again |= sas_agent_flights_move();
	}

	if (sas_base_stopping)
	{
		/* what was claimed in this tick, too */
		sas_agent_flights_give_back();
		next.again = sas_agent_flights_more() || agent_write_due();
		next.wake_in_ms = sas_agent_flights_wake_in_ms();
		return next;
	}
	if ((agent_door_shut || agent_share_taken) && !agent_door_passed_on)
		agent_pass_on();
	agent_door_passed_on = agent_door_shut || agent_share_taken;
	next.again |= agent_do_large();
	next.again |= sas_stream_tick();
	next.again |= sas_agent_flights_more();
	next.wake_in_ms = agent_wake_in_ms(retry_us);
	next.again |= ((more || agent_cut_short) && sas_agent_in_flight() < agent_slots) || agent_write_due();
	return next;
}

/* A reply that is not written yet is under way, too: the worker does not exit with it because of errors. */
static int
agent_under_way(void)
{
	return sas_agent_in_flight() + sas_agent_outbox_replies();
}

static void
agent_stop(void)
{
	sas_stream_close();
	sas_agent_flights_close();
}

const SasActorMethods sas_agent_methods = {
	.start = agent_start,
	.tick = agent_tick,
	.pollfd = sas_agent_flights_fd,
	.stop = agent_stop,
	.in_flight = agent_under_way,
	.gives_back = true,
	.memory = sas_agent_flights_memory,
};
