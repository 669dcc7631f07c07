/* SPDX-License-Identifier: PostgreSQL */
/*
 * flights.c: all calls that are in flight or pause between two attempts.
 *
 * A tick evaluates answers (flight.c) and wakes the flights whose time has
 * come.  Whatever raises costs that flight alone.
 */
#include "postgres.h"

#include "agent/flight.h"
#include "agent/flights.h"
#include "agent/outbox.h"
#include "agent/replies.h"
#include "work/room.h"
#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "limits/owners.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "stream/watch.h"
#include "wake/wakeup.h"
#include "work/oauth.h"

/*
 * One tick evaluates small answers for at most this time; then it writes,
 * claims and starts calls.
 */
#define FLIGHTS_TICK_BYTES (4 * 1024 * 1024)

/*
 * No request begins in the last tenth of a window, a second at most: it has to
 * reach the service before the undo that may follow complete-by.  A call that
 * is stopped has as long (flight.c).
 */
#define FLIGHTS_LAST_US 1000000
/* when the last of them is over: so many are looked at each time, more after a pause */
#define FLIGHTS_FEW 100
#define FLIGHTS_PAUSE_US 1000000

SasFlights	sas_agent_flights = {.all = DLIST_STATIC_INIT(sas_agent_flights.all)};

static int
flights_earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasFlight, heap, a)->wake_us;
	int64		y = pairingheap_const_container(SasFlight, heap, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

SasTransport *
sas_agent_flights_open(int slots)
{
	char		why[256];

	sas_agent_flights.context = AllocSetContextCreate(CurrentMemoryContext, "sas flights", ALLOCSET_DEFAULT_SIZES);
	sas_agent_flights.by_time = pairingheap_allocate(flights_earlier, NULL);
	sas_agent_flights.transport = sas_transport_open(slots, why, sizeof(why));
	if (sas_agent_flights.transport == NULL)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up HTTP calls: %s", why)));
	sas_work_tokens_open(sas_agent_flights.transport);
	sas_work_room_open(sas_agent_flights.context, sas_agent_flights.transport);
	sas_agent_outbox_open(sas_agent_flights.context, sas_agent_flights.transport);
	return sas_agent_flights.transport;
}

void
sas_agent_flights_resize(int slots)
{
	sas_transport_resize(sas_agent_flights.transport, slots);
}

void
sas_agent_flights_close(void)
{
	sas_work_tokens_close();
	if (sas_agent_flights.transport != NULL)
		sas_transport_close(sas_agent_flights.transport);
	sas_agent_flights.transport = NULL;
}

int
sas_agent_flights_fd(void)
{
	return sas_agent_flights.transport != NULL ? sas_transport_fd(sas_agent_flights.transport) : -1;
}

int
sas_agent_in_flight(void)
{
	return sas_agent_flights.n;
}

int64
sas_agent_flights_memory(void)
{
	return sas_transport_held(sas_agent_flights.transport);
}

bool
sas_agent_flights_starved(void)
{
	return sas_transport_is_starved(sas_agent_flights.transport);
}

int
sas_agent_flights_share(const SasAgentEntry *agent, int free_slots)
{
	return Max(0, 3 * free_slots + 1 - agent->calls) / 4;
}

bool
sas_agent_flights_more(void)
{
	return sas_transport_has_small(sas_agent_flights.transport);
}

bool
sas_agent_flights_has_large(void)
{
	return sas_transport_has_large(sas_agent_flights.transport);
}

int64
sas_agent_flights_wake_in_ms(void)
{
	int64		network_ms = sas_transport_timeout_ms(sas_agent_flights.transport);
	int64		tokens_ms = sas_work_tokens_wake_in_ms();
	int64		own_ms = -1;

	if (network_ms < 0 || (tokens_ms >= 0 && tokens_ms < network_ms))
		network_ms = tokens_ms;

	if (!pairingheap_is_empty(sas_agent_flights.by_time))
	{
		int64		wake_us = pairingheap_container(SasFlight, heap, pairingheap_first(sas_agent_flights.by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_base_clock_monotonic_us() + 999) / 1000);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

/* ---------------------------------------------------------------- stopped by an operator */

static uint32 flights_stops_seen = 0; /* sas_wake_version(SAS_WAKE_STOPS) at the last look-up of claims */
static uint32 flights_stops_asked;

bool
sas_agent_flights_stale(void)
{
	flights_stops_asked = sas_wake_version(SAS_WAKE_STOPS);
	if (sas_agent_flights.n == 0)
		flights_stops_seen = flights_stops_asked; /* a call that starts from here on is claimed later */
	return flights_stops_seen != flights_stops_asked;
}

void
sas_agent_flights_find_lost(void)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * sas_agent_flights.n);
	SasClaimState *states = palloc(sizeof(SasClaimState) * sas_agent_flights.n);
	dlist_iter	iter;
	int			i = 0;

	dlist_foreach(iter, &sas_agent_flights.all)
		ids[i++] = dlist_container(SasFlight, node, iter.cur)->id;
	sas_store_claims_of_calls(ids, sas_agent_flights.n, states);
	i = 0;
	dlist_foreach(iter, &sas_agent_flights.all)
		dlist_container(SasFlight, node, iter.cur)->claim = states[i++];
}

/*
 * Where the store has ended the claim, there is nothing to report, and its
 * lease may go.  This says nothing about the service: the breaker gets no
 * report.
 */
void
sas_agent_flights_stop_lost(void)
{
	dlist_mutable_iter iter;

	flights_stops_seen = flights_stops_asked;
	dlist_foreach_modify(iter, &sas_agent_flights.all)
	{
		SasFlight  *flight = dlist_container(SasFlight, node, iter.cur);

		if (flight->claim == SAS_CLAIM_LOST)
			sas_agent_flight_end(flight, false);
		else if (flight->claim == SAS_CLAIM_STOP)
			sas_agent_flight_stop(flight);
	}
}

void
sas_agent_flights_give_back(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &sas_agent_flights.all)
		sas_agent_flight_give_back(dlist_container(SasFlight, node, iter.cur));
}

/* ---------------------------------------------------------------- one by one */

/*
 * Called in a catch block: fails the flight that was being worked on
 * (sas_agent_flights.current), so that the others can continue. sent: a
 * request was sent and answered.
 */
static void
flights_fail(const char *title, bool sent, MemoryContext caller)
{
	SasFlight  *flight = sas_agent_flights.current;
	SasVerdict	verdict;
	ErrorData  *error;

	EmitErrorReport();
	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	sas_agent_flights.current = NULL;
	if (flight == NULL)
		return;
	if (flight->attempts == 0)
	{
		flight->attempts = 1;
		flight->started_at = sas_base_clock_now();
	}
	sas_work_verdict_of_request(&verdict, flight, title, error->message);
	flight->in_doubt |= sent;
	/* what is wrong with the request will be wrong again; what the server lacks may be there then */
	if (sent || ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
		verdict.reply = "transient";
	(void) sas_agent_flight_report(flight, &verdict, 0);
}

/* The answer of one flight, in a context of its own: it may be large. */
static void
flights_take_in(SasReply *reply)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(caller, "sas answer", ALLOCSET_DEFAULT_SIZES);

	sas_agent_flights.current = reply->owner;
	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		MemoryContextSwitchTo(scratch);
		sas_agent_flight_evaluate(reply);
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS(); /* the ERROR let go of it */
		flights_fail("could not evaluate the answer", true, caller);
	}
	PG_END_TRY();
	RESUME_CANCEL_INTERRUPTS();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	sas_transport_reply_free(reply);
}

void
sas_agent_flights_take_large(void)
{
	SasReply   *reply = sas_transport_next_large(sas_agent_flights.transport);

	if (reply != NULL)
		flights_take_in(reply);
	sas_agent_replies_note_unwritten();
}

SasClaimTime
sas_agent_flights_claim_time(void)
{
	SasClaimTime when = {.us = sas_base_clock_monotonic_us(), .at = sas_base_clock_now(), .ahead_us = GetCurrentTimestamp()};

	when.ahead_us -= sas_base_clock_monotonic_us();
	return when;
}

static SasFlight *
flights_create(SasClaimedCall *claimed, SasLeaseEntry *lease, const SasClaimTime *when, SasAgentEntry *agent)
{
	MemoryContext context = AllocSetContextCreate(sas_agent_flights.context, "sas flight", 0, 1024, 1024);
	SasFlight  *flight = MemoryContextAllocZero(context, sizeof(SasFlight));

	flight->context = context;
	flight->agent_id = claimed->agent_id;
	flight->workflow_id = claimed->workflow_id;
	flight->owner = claimed->owner;
	flight->claimed_us = when->us;
	flight->claimed_at = when->at;
	flight->lease = lease;
	flight->has_slot = true;
	flight->deadline_us = when->us + (int64) (claimed->window_ms * 1000);
	flight->send_by_us = flight->deadline_us - Min(FLIGHTS_LAST_US, (flight->deadline_us - when->us) / 10);
	flight->wake_us = flight->deadline_us;
	sas_agent_flights.until_us = Max(sas_agent_flights.until_us, flight->deadline_us);
	sas_base_peers_hold_calls(sas_agent_flights.until_us, when->ahead_us);
	sas_work_flight_fill(flight, claimed, agent->stored);
	flight->memory = sas_work_room_enter(flight->agent_id, flight->owner);
	dlist_push_tail(&sas_agent_flights.all, &flight->node);
	sas_agent_flights.n++;
	agent->calls++;
	pairingheap_add(sas_agent_flights.by_time, &flight->heap);
	return flight;
}

void
sas_agent_flight_start(SasClaimedCall *claimed, SasLeaseEntry *lease, const SasClaimTime *when)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext volatile scratch = NULL;
	SasAgentEntry *agent = sas_work_agent(claimed->agent_id);
	volatile bool created = false;

	if (agent == NULL)
	{
		/* its agent went away while it was claimed: it is taken back */
		sas_limits_owner_end(claimed->agent_id, claimed->owner);
		sas_agent_outbox_leave(lease, true);
		return;
	}
	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		sas_agent_flights.current = NULL;
		scratch = AllocSetContextCreate(caller, "sas call", ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(scratch);
		sas_agent_flights.current = flights_create(claimed, lease, when, agent);
		created = true;
		sas_agent_flight_compose(sas_agent_flights.current, claimed, agent);
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS();	/* the ERROR let go of it */
		flights_fail("could not start the call", false, caller);
		if (!created)
		{
			/* the supervisor takes it back */
			sas_work_agent_free_slot(claimed->agent_id, claimed->owner);
			sas_agent_outbox_leave(lease, true);
		}
	}
	PG_END_TRY();
	RESUME_CANCEL_INTERRUPTS();
	MemoryContextSwitchTo(caller);
	if (scratch != NULL)
		MemoryContextDelete(scratch);
}

/* Takes the outcomes of requests for access tokens, and continues the flights that wait for one. */
static void
flights_take_tokens(void)
{
	dlist_mutable_iter iter;
	int			agent_id;

	sas_work_tokens_move();
	while ((agent_id = sas_work_tokens_next_news()) != 0)
	{
		dlist_foreach_modify(iter, &sas_agent_flights.all)
		{
			SasFlight  *flight = dlist_container(SasFlight, node, iter.cur);

			if (flight->agent_id == agent_id && flight->token_comes)
				sas_agent_flight_go_on(flight);
		}
		sas_stream_agents_changed();
	}
}

/* If that has ended after which all others are over: says when they are. Many are looked at once a second. */
static void
flights_note_end(int64 now)
{
	static int64 last_us = 0;
	dlist_iter	iter;

	if (!sas_agent_flights.last_ended || (sas_agent_flights.n > FLIGHTS_FEW && now < last_us + FLIGHTS_PAUSE_US))
		return;
	last_us = now;
	sas_agent_flights.last_ended = false;
	sas_agent_flights.until_us = 0;
	dlist_foreach(iter, &sas_agent_flights.all)
		sas_agent_flights.until_us = Max(sas_agent_flights.until_us, dlist_container(SasFlight, node, iter.cur)->deadline_us);
	sas_base_peers_hold_calls(sas_agent_flights.until_us, 0);
}

/*
 * What is in the sockets counts as unwritten until all of it was read; but a worker that never gets
 * so far keeps the supervisor from its leases no longer than it waits for an answer itself.
 */
static void
flights_note_read(int64 now)
{
	static int64 all_read_us = 0;

	if (!sas_transport_was_cut_short(sas_agent_flights.transport))
		all_read_us = now;
	if (now < all_read_us + SAS_FLIGHTS_UNREAD_US && now > all_read_us)
		sas_agent_replies_leave_unread();
	else
		sas_agent_replies_note_read();
}

bool
sas_agent_flights_move(void)
{
	SasReply   *reply;
	int64		now = sas_base_clock_monotonic_us();
	int64		until_us = now + SAS_FLIGHTS_TICK_US;
	Size		bytes = 0;
	bool		moved = false;

	sas_transport_limit_memory(sas_agent_flights.transport, (Size) sas_base_agent_memory * 1024 * 1024);
	/* before the transport notes when an answer arrived: test/model/run.pml, LATE_UNWRITTEN */
	if (sas_agent_flights.n > 0)
		sas_base_peers_set_unwritten(true);
	sas_transport_work(sas_agent_flights.transport);
	flights_take_tokens();
	while (bytes < FLIGHTS_TICK_BYTES && now < until_us && (reply = sas_transport_next_small(sas_agent_flights.transport)) != NULL)
	{
		moved = true;
		bytes += reply->body_len;
		flights_take_in(reply);
		now = sas_base_clock_monotonic_us();
	}
	while (!pairingheap_is_empty(sas_agent_flights.by_time))
	{
		SasFlight  *flight = pairingheap_container(SasFlight, heap, pairingheap_first(sas_agent_flights.by_time));

		if (flight->wake_us > now)
			break;
		sas_agent_flight_wake(flight, now);
	}
	flights_note_end(now);
	flights_note_read(now);
	return moved;
}
