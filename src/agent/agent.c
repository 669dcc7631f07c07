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

#include "agent/agent.h"
#include "agent/claims.h"
#include "agent/flights.h"
#include "agent/health.h"
#include "agent/large.h"
#include "agent/outbox.h"
#include "agent/replies.h"
#include "work/room.h"
#include "agent/stuck.h"
#include "base/capacity.h"
#include "base/clock.h"
#include "base/settings.h"
#include "base/sockets.h"
#include "limits/owners.h"
#include "stream/watch.h"
#include "template/budget.h"
#include "work/agents.h"

#define SAS_MEMORY_RETRY_MS 50

static bool agent_open;			/* a transaction has begun and has not committed yet */
static bool agent_careful;		/* the last one did not commit */
static bool agent_wrote_alone;	/* in it, nothing was done but to write one kind of thing */

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
	sas_limits_owners_open(sas_work_room_for);
	agent_reserve_sockets();
	sas_stream_open(sas_agent_flights_open(agent_slots), agent_streams);
}

/* The last transaction did not commit: nothing was claimed, and what is in the outbox stays there. */
static void
agent_after_abort(void)
{
	sas_agent_claims_failed();
	sas_template_budget_end();
	sas_transport_reuse_memory(false);
	agent_open = false;
	agent_careful = true;
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

/* The slots may have become others since the last tick. */
static void
agent_fit(void)
{
	if (agent_slots_asked != sas_base_agent_slots)
	{
		agent_reserve_sockets();
		sas_agent_flights_resize(agent_slots);
	}
}

/* False: the extension is gone. */
static bool
agent_begin(void)
{
	if (sas_agent_in_flight() > 0)
		sas_agent_replies_leave_unread();
	return sas_store_begin();
}

/*
 * One transaction: what is known of agents, claims that were lost, replies,
 * and claims.  What it claimed is sent after the commit.
 * False: the extension is gone.  *more: there may be more to claim.
 */
static bool
agent_exchange(bool stale, bool stops, bool *more)
{
	List	   *claimed = NIL;
	SasClaimTime when;

	agent_open = true;
	agent_wrote_alone = !stale && !stops && !sas_agent_claims_wanted();
	if (!agent_begin())
		return false;
	if (stale)
		sas_work_agents_read();
	if (stops)
		sas_agent_flights_find_lost();
	sas_template_budget_begin(sas_agent_outbox_batch() == 1);
	agent_write();
	when = sas_agent_flights_claim_time();
	if (sas_agent_claims_wanted())
		claimed = sas_agent_claims_take();
	/* what was submitted after a change of its agent is called as the agent is then */
	if (claimed != NIL && sas_work_agents_stale())
	{
		sas_template_budget_end();
		sas_work_agents_read();
		stale = true;
	}
	sas_store_commit();
	sas_template_budget_end();
	agent_open = agent_careful = false;
	sas_agent_outbox_written();
	sas_agent_stuck_written();
	sas_agent_health_written();
	if (stops)
		sas_agent_flights_stop_lost();
	if (claimed != NIL)
		sas_agent_large_claimed(when.us);
	*more = sas_agent_claims_use(claimed, &when);
	if (stale)
	{
		*more = true;
		sas_stream_agents_changed();
		sas_work_agents_applied();
	}
	if (claimed != NIL && sas_agent_in_flight() >= agent_slots)
		sas_agent_claims_pass_on();
	return true;
}

static bool
agent_has_large(void)
{
	return sas_agent_replies_has(SAS_REPLY_LARGE) || sas_agent_flights_has_large();
}

/* Writes replies of one owner whose paths cost much. False: the extension is gone. */
static bool
agent_write_dear(void)
{
	agent_open = agent_wrote_alone = true;
	if (!agent_begin())
		return false;
	sas_agent_outbox_write_dear();
	sas_store_commit();
	sas_template_budget_end();
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

	dear_next = sas_agent_replies_has(SAS_REPLY_DEAR) && (!dear_next || !agent_has_large());
	if (dear_next)
		return agent_write_dear() && (agent_has_large() || sas_agent_replies_has(SAS_REPLY_DEAR) || sas_agent_outbox_due());
	if (!sas_agent_replies_has(SAS_REPLY_LARGE))
	{
		sas_transport_reuse_memory(true);
		sas_agent_flights_take_large();
		sas_transport_reuse_memory(false);
		return agent_has_large() || sas_agent_replies_has(SAS_REPLY_DEAR) || sas_agent_outbox_due();
	}
	agent_open = agent_wrote_alone = true;
	if (!agent_begin())
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
	if (agent_has_large() || sas_agent_replies_has(SAS_REPLY_DEAR))
		return true;
	sas_transport_release_memory();
	return false;
}

/* When a large answer, or dear replies, are due. True: there is more to do for it, or another one. */
static bool
agent_do_large(void)
{
	int64		begun_us = sas_base_clock_monotonic_us();
	bool		more = false;

	switch (sas_agent_large_when(agent_has_large() || sas_agent_replies_has(SAS_REPLY_DEAR), begun_us))
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
	if (sas_agent_claims_door_is_shut() || sas_agent_flights_starved() || sas_stream_is_starved())
		wake_in_ms = agent_sooner_ms(wake_in_ms, SAS_MEMORY_RETRY_MS);
	return agent_sooner_ms(wake_in_ms, sas_agent_health_wake_in_ms());
}

/*
 * Agents that have changed are read in a transaction of their own, before calls
 * are claimed.  They may change all the time, so the claims of this tick wait for
 * no later change.
 * False: the extension is gone.
 */
static bool
agent_exchange_all(SasTick *next, bool *more, int64 *retry_us)
{
	bool		stale = sas_work_agents_stale();
	bool		stops = sas_agent_flights_stale();
	bool		failed_before = agent_careful;

	if (stale && !sas_base_stopping)
	{
		if (!agent_exchange(stale, stops, more))
			return false;
		stale = stops = false;
		/* streams that this has moved connect in the next tick */
		next->again = true;
	}
	/* after an abort, replies are written without a claim: a claim that fails must not cost replies */
	if (!sas_base_stopping && !(agent_careful && agent_write_due()))
		sas_agent_claims_ask(agent_slots, retry_us);
	if (stale || stops || sas_agent_claims_wanted() || agent_write_due())
	{
		if (!agent_exchange(stale, stops, more))
			return false;
		/* the transaction that failed was to claim from some lanes: scan them */
		next->again |= failed_before;
		/* the claimed calls are sent now; an answer may be there already, and no event would report it again */
		if (!sas_base_stopping)
			next->again |= sas_agent_flights_move();
	}
	return true;
}

static SasTick
agent_tick(void)
{
	SasTick		next = {false, -1};
	int64		retry_us = 0;
	bool		more = false;

	if (agent_open)
		agent_after_abort();
	agent_fit();
	sas_agent_flights_move();
	if (sas_base_stopping)
	{
		sas_agent_replies_part();
		sas_agent_flights_give_back();
	}
	next.again = !sas_base_stopping && sas_stream_move();
	if (!agent_exchange_all(&next, &more, &retry_us))
		return next;

	if (sas_base_stopping)
	{
		/* what was claimed in this tick, too */
		sas_agent_flights_give_back();
		next.again = sas_agent_flights_more() || agent_write_due() || sas_agent_replies_are_unread();
		next.wake_in_ms = sas_agent_flights_wake_in_ms();
		return next;
	}
	sas_agent_claims_pass_on_shut();
	next.again |= agent_do_large();
	/* it has a transaction, too */
	if (sas_agent_in_flight() > 0)
		sas_agent_replies_leave_unread();
	next.again |= sas_stream_tick();
	if (sas_agent_replies_are_unread())
		next.again |= sas_agent_flights_move();
	next.again |= sas_agent_flights_more();
	next.wake_in_ms = agent_wake_in_ms(retry_us);
	next.again |= ((more || sas_agent_claims_were_cut_short()) && sas_agent_in_flight() < agent_slots) || agent_write_due();
	return next;
}

/* A reply that is not written yet is under way, too: the worker does not exit with it because of errors. */
static int
agent_under_way(void)
{
	return sas_agent_in_flight() + sas_agent_replies_count();
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
