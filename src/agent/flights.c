/* SPDX-License-Identifier: PostgreSQL */
/*
 * flights.c: the calls that are in flight or pause between two attempts.
 *
 * An answer is evaluated as soon as it is there: it becomes a verdict in the
 * outbox, or another attempt inside the window.  A flight past complete-by
 * is stopped, and nothing is reported.
 */
#include "postgres.h"

#include "agent/flights.h"
#include "agent/outbox.h"
#include "base/clock.h"
#include "base/settings.h"
#include "metrics/metrics.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/agents.h"
#include "work/failure.h"
#include "work/outcome.h"
#include "work/verdict.h"

/* What one tick evaluates of answers: then it writes, claims, and goes on. */
#define FLIGHTS_TICK_BYTES (4 * 1024 * 1024)
#define FLIGHTS_TICK_US 100000

static MemoryContext flights_context;
static SasTransport *flights_transport;
static dlist_head flights_all = DLIST_STATIC_INIT(flights_all);
static int	flights_n;
static SasFlight *flights_current; /* being started, or evaluated; NULL: it has ended meanwhile */
static pairingheap *flights_by_time;

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

	flights_context = AllocSetContextCreate(CurrentMemoryContext, "sas flights", ALLOCSET_DEFAULT_SIZES);
	flights_by_time = pairingheap_allocate(flights_earlier, NULL);
	flights_transport = sas_transport_open(slots, why, sizeof(why));
	if (flights_transport == NULL)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up HTTP calls: %s", why)));
	sas_agent_outbox_open(flights_context, flights_transport);
	return flights_transport;
}

void
sas_agent_flights_resize(int slots)
{
	sas_transport_resize(flights_transport, slots);
}

void
sas_agent_flights_close(void)
{
	if (flights_transport != NULL)
		sas_transport_close(flights_transport);
	flights_transport = NULL;
}

int
sas_agent_flights_fd(void)
{
	return flights_transport != NULL ? sas_transport_fd(flights_transport) : -1;
}

int
sas_agent_in_flight(void)
{
	return flights_n;
}

int64
sas_agent_flights_memory(void)
{
	return sas_transport_held(flights_transport);
}

bool
sas_agent_flights_starved(void)
{
	return sas_transport_is_starved(flights_transport);
}

bool
sas_agent_flights_may_claim(const SasAgentEntry *agent)
{
	return sas_transport_has_room(flights_transport, agent->memory, 0);
}

bool
sas_agent_flights_more(void)
{
	return sas_transport_has_reply(flights_transport);
}

int64
sas_agent_flights_wake_in_ms(void)
{
	long		network_ms = sas_transport_timeout_ms(flights_transport);
	int64		own_ms = -1;

	if (!pairingheap_is_empty(flights_by_time))
	{
		int64		wake_us = pairingheap_container(SasFlight, heap, pairingheap_first(flights_by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_base_clock_monotonic_us() + 999) / 1000);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

static void
flights_free_slot(SasFlight *flight)
{
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);

	if (!flight->has_slot)
		return;
	flight->has_slot = false;
	/* for a worker that was refused: this one may have no slot for the call */
	if (sas_limits_free(flight->agent_id))
	{
		sas_wake_count_lane(flight->agent_id);
		sas_wake_others(SAS_AGENT);
	}
	/* what becomes ready is announced: only what this worker was refused is still to be scanned for */
	if (agent != NULL && agent->refused)
		agent->scan = true;
}

/* ---------------------------------------------------------------- breakers of paths */

/* The agent's limits without its slots and rate, which the call has passed. */
static SasLimits
flights_path_limits(const SasAgentEntry *agent)
{
	SasLimits	limits = agent->limits;

	limits.max_in_flight = PG_INT32_MAX;
	limits.rate_per_s = 0;
	return limits;
}

/* May the attempt begin, as far as the breaker of its path says? False: *again_us is when to ask again. */
static bool
flights_path_lets_through(SasFlight *flight, const SasAgentEntry *agent, int64 *again_us)
{
	SasLimits	limits = flights_path_limits(agent);

	if (flight->path_no == 0 || flight->path_open || limits.breaker_failures == 0)
		return true;
	flight->path_open = sas_limits_ask(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no), &limits, 1, false, again_us) == 1;
	return flight->path_open;
}

/* Until the breaker of the path may let a call through; at least a while, since only a probe is. */
static double
flights_path_rest_ms(int64 again_us)
{
	return Max(1000.0, (again_us - sas_base_clock_monotonic_us()) / 1000.0);
}

static void
flights_leave_path(SasFlight *flight)
{
	if (flight->path_open)
		(void) sas_limits_free(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no));
	flight->path_open = false;
}

/* A fault below a path with a breaker says nothing of the rest of the service; an answer does. */
static void
flights_report_health(SasFlight *flight, SasAgentEntry *agent, bool success)
{
	SasLimits	limits = flights_path_limits(agent);
	SasBreaker	now_is;

	if (flight->path_no > 0)
		(void) sas_limits_report(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no), &limits, success, flight->begun_us, &now_is);
	if (success || flight->path_no == 0)
		sas_work_agent_report(agent, success, flight->begun_us);
	flights_leave_path(flight);
}

/* The flight is over; its verdict is in the outbox, or it is left to the supervisor. */
static void
flights_end(SasFlight *flight, bool dropped)
{
	if (flight->handle != NULL)
		sas_transport_stop_call(flights_transport, flight->handle);
	flights_free_slot(flight);
	flights_leave_path(flight);
	pairingheap_remove(flights_by_time, &flight->heap);
	dlist_delete(&flight->node);
	flights_n--;
	sas_agent_outbox_leave(flight->lease, dropped);
	sas_transport_hold(flights_transport, flight->memory, -(ptrdiff_t) flight->held);
	if (flights_current == flight)
		flights_current = NULL;
	MemoryContextDelete(flight->context);
}

static void
flights_set_wake(SasFlight *flight, int64 wake_us)
{
	pairingheap_remove(flights_by_time, &flight->heap);
	flight->wake_us = Min(wake_us, flight->deadline_us);
	pairingheap_add(flights_by_time, &flight->heap);
}

static void
flights_hand_back(SasFlight *flight, double again_in_ms)
{
	sas_agent_outbox_reply(flight, "hand_back", NULL, NULL, again_in_ms);
	flights_end(flight, false);
}

/* Reports the result of an attempt; true when that ended the flight. */
static bool
flights_report(SasFlight *flight, const SasVerdict *verdict, int http_status)
{
	if (verdict->attempt_status != NULL)
		sas_agent_outbox_attempt(flight, verdict->attempt_status, http_status, verdict->problem);
	if (verdict->reply == NULL)
		return false;
	if (sas_work_failure_is_final(verdict->reply))
		sas_work_failure_log_step(&flight->id, flight->step, flight->undo, flight->attempts_before + flight->attempts, verdict->problem);
	sas_agent_outbox_reply(flight, verdict->reply, verdict->output,
						   strcmp(verdict->reply, "hand_back") == 0 ? NULL : verdict->problem, verdict->pause_ms);
	flights_end(flight, false);
	return true;
}

/* The next attempt of a flight that has its slot. */
static void
flights_begin_attempt(SasFlight *flight, SasStoredAgent *agent)
{
	SasCall		call = {0};
	char		why[256];
	int64		left_us = flight->deadline_us - sas_base_clock_monotonic_us();

	sas_work_flight_call(flight, agent, left_us / 1000.0, &call);
	flight->attempts++;
	flight->started_at = sas_base_clock_now();
	flight->begun_us = sas_base_clock_monotonic_us();
	flight->arrived_us = 0;
	sas_work_call_in_utf8(&call);
	flight->handle = sas_transport_start(flights_transport, &call, why, sizeof(why));
	if (flight->handle == NULL)
	{
		SasVerdict	verdict;

		sas_work_verdict_of_request(&verdict, flight, "could not send the request", why);
		(void) flights_report(flight, &verdict, 0);
		return;
	}
	flights_set_wake(flight, flight->deadline_us);
}

/* What an answer means for its flight: a verdict, or another attempt inside the window. */
static void
flights_evaluate(SasReply *reply)
{
	SasFlight  *flight = reply->owner;
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);
	SasOutcome	outcome;
	SasVerdict	verdict;
	int64		now;

	flight->handle = NULL;
	flight->arrived_us = reply->finished_us;
	sas_work_outcome_of(reply, flight->expect, flight->retry.on, &outcome);
	if (agent == NULL)
	{
		/* the agent was dropped during a call: that cannot happen, open runs prevent it */
		flights_end(flight, true);
		return;
	}
	flights_report_health(flight, agent, !outcome.fault);

	now = sas_base_clock_monotonic_us();
	if (reply->finished_us >= flight->deadline_us)
	{
		/* it arrived past complete-by: it does not count any longer, so nothing is reported */
		flights_end(flight, true);
		return;
	}
	sas_metrics_add(SAS_METRIC_CALL, flight->agent_id, flight->workflow_id, outcome.kind == SAS_OUTCOME_DONE ? "succeeded" : "failed", 1,
					(sas_base_clock_monotonic_us() - flight->begun_us) / 1e6);
	sas_work_verdict_of_call(&verdict, flight, reply, &outcome, agent->stored, (flight->deadline_us - now) / 1000.0);
	if (verdict.problem != NULL)
		sas_work_agent_error(agent, verdict.problem);
	if (flights_report(flight, &verdict, outcome.status))
		return;
	if (verdict.pause_ms > 1000)
		flights_free_slot(flight);
	flights_set_wake(flight, now + (int64) (verdict.pause_ms * 1000));
}

/* A flight whose time has come: past complete-by, or rested. */
static void
flights_wake(SasFlight *flight, int64 now)
{
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);
	int64		again;

	/* its answer arrived, and is evaluated in one of the next ticks */
	if (flight->handle != NULL && sas_transport_is_finished(flight->handle))
	{
		pairingheap_remove(flights_by_time, &flight->heap);
		flight->wake_us = now + FLIGHTS_TICK_US;
		pairingheap_add(flights_by_time, &flight->heap);
		return;
	}
	if (now >= flight->deadline_us || agent == NULL)
	{
		/* past complete-by: the answer would not count any longer, so nothing is reported */
		if (flight->handle != NULL && agent != NULL)
			flights_report_health(flight, agent, false);
		flights_end(flight, true);
		sas_wake_others(SAS_SUPERVISOR);
		return;
	}
	if (flight->handle != NULL)
		return;
	if (sas_limits_breaker(flight->agent_id) != SAS_BREAKER_CLOSED && agent->limits.breaker_failures > 0)
	{
		flights_hand_back(flight, 0); /* not a failure: it waits for the limits like all others */
		return;
	}
	if (!flights_path_lets_through(flight, agent, &again))
	{
		flights_hand_back(flight, flights_path_rest_ms(again));
		return;
	}
	if (!flight->has_slot)
	{
		if (sas_limits_ask(flight->agent_id, &agent->limits, 1, true, &again) == 0)
		{
			flights_set_wake(flight, again > now ? again : now + 20000);
			return;
		}
		flight->has_slot = true;
	}
	else if (!sas_limits_spend(flight->agent_id, &agent->limits, &again))
	{
		flights_set_wake(flight, again);
		return;
	}
	flights_begin_attempt(flight, agent->stored);
}

/* ---------------------------------------------------------------- stopped by an operator */

static uint32 flights_stops_seen = 0; /* flights were looked up to this version */
static uint32 flights_stops_asked;

bool
sas_agent_flights_stale(void)
{
	flights_stops_asked = sas_wake_stops_version();
	if (flights_n == 0)
		flights_stops_seen = flights_stops_asked; /* a call that starts from here on is claimed later */
	return flights_stops_seen != flights_stops_asked;
}

void
sas_agent_flights_find_lost(void)
{
	SasStepId  *ids = palloc(sizeof(SasStepId) * flights_n);
	bool	   *lost = palloc(sizeof(bool) * flights_n);
	dlist_iter	iter;
	int			i = 0;

	dlist_foreach(iter, &flights_all)
		ids[i++] = dlist_container(SasFlight, node, iter.cur)->id;
	sas_store_lost(ids, flights_n, lost);
	i = 0;
	dlist_foreach(iter, &flights_all)
		dlist_container(SasFlight, node, iter.cur)->lost = lost[i++];
}

/*
 * The store has ended the claim, so there is nothing to report, and its
 * lease may go.  This says nothing about the service: the breaker gets no
 * report.
 */
void
sas_agent_flights_stop_lost(void)
{
	dlist_mutable_iter iter;

	flights_stops_seen = flights_stops_asked;
	dlist_foreach_modify(iter, &flights_all)
	{
		SasFlight  *flight = dlist_container(SasFlight, node, iter.cur);

		if (flight->lost)
			flights_end(flight, false);
	}
}

/* ---------------------------------------------------------------- one by one */

/*
 * In a catch block, the flight of which is flights_current: that one fails,
 * and the others go on. sent: something was sent, and an answer came.
 */
static void
flights_fail(const char *title, bool sent, MemoryContext caller)
{
	SasFlight  *flight = flights_current;
	SasVerdict	verdict;
	ErrorData  *error;

	EmitErrorReport();
	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	flights_current = NULL;
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
	(void) flights_report(flight, &verdict, 0);
}

/* The answer of one flight, in a context of its own: it may be large. */
static void
flights_take_in(SasReply *reply)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(caller, "sas answer", ALLOCSET_DEFAULT_SIZES);

	flights_current = reply->owner;
	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		MemoryContextSwitchTo(scratch);
		flights_evaluate(reply);
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

static SasFlight *
flights_create(SasClaimedCall *claimed, SasLeaseEntry *lease, int64 claimed_us, SasAgentEntry *agent)
{
	MemoryContext context = AllocSetContextCreate(flights_context, "sas flight", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	SasFlight  *flight = palloc0(sizeof(SasFlight));

	flight->context = context;
	flight->agent_id = claimed->agent_id;
	flight->workflow_id = claimed->workflow_id;
	flight->claimed_us = claimed_us;
	flight->lease = lease;
	flight->memory = agent->memory;
	flight->has_slot = true;
	flight->deadline_us = claimed_us + (int64) (claimed->window_ms * 1000);
	flight->wake_us = flight->deadline_us;
	sas_work_flight_fill(flight, claimed, agent->stored);
	dlist_push_tail(&flights_all, &flight->node);
	flights_n++;
	pairingheap_add(flights_by_time, &flight->heap);
	MemoryContextSwitchTo(old);
	return flight;
}

static void
flights_compose(SasFlight *flight, SasClaimedCall *claimed, SasAgentEntry *agent)
{
	const char *why = sas_work_flight_compose(flight, agent->stored, claimed);
	int64		again = 0;

	if (why != NULL)
	{
		SasVerdict	verdict;

		flight->attempts++;
		flight->started_at = sas_base_clock_now();
		sas_work_verdict_of_request(&verdict, flight, "could not build the request", why);
		(void) flights_report(flight, &verdict, 0);
		return;
	}
	flight->held = flight->sent.body_len;
	sas_transport_hold(flights_transport, flight->memory, flight->held);
	flight->path_no = sas_work_request_path_no(&flight->sent, agent->stored);
	if (!flights_path_lets_through(flight, agent, &again))
		flights_hand_back(flight, flights_path_rest_ms(again)); /* not a failure, and no attempt */
	else
		flights_begin_attempt(flight, agent->stored);
}

void
sas_agent_flight_start(SasClaimedCall *claimed, SasLeaseEntry *lease, int64 claimed_us)
{
	MemoryContext caller = CurrentMemoryContext;
	SasAgentEntry *agent = sas_work_agent(claimed->agent_id);
	volatile bool created = false;

	if (agent == NULL)
	{
		/* its agent went away while it was claimed: it is taken back */
		sas_agent_outbox_leave(lease, true);
		return;
	}
	HOLD_CANCEL_INTERRUPTS();
	PG_TRY();
	{
		flights_current = NULL;
		flights_current = flights_create(claimed, lease, claimed_us, agent);
		created = true;
		flights_compose(flights_current, claimed, agent);
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS();	/* the ERROR let go of it */
		flights_fail("could not start the call", false, caller);
		if (!created)
		{
			/* the supervisor takes it back */
			sas_limits_free(claimed->agent_id);
			sas_agent_outbox_leave(lease, true);
		}
	}
	PG_END_TRY();
	RESUME_CANCEL_INTERRUPTS();
}

bool
sas_agent_flights_move(void)
{
	SasReply   *reply;
	int64		now = sas_base_clock_monotonic_us();
	int64		until_us = now + FLIGHTS_TICK_US;
	Size		bytes = 0;
	bool		moved = false;

	sas_transport_limit_memory(flights_transport, (Size) sas_base_agent_memory * 1024 * 1024);
	sas_transport_work(flights_transport);
	while (bytes < FLIGHTS_TICK_BYTES && now < until_us && (reply = sas_transport_next(flights_transport)) != NULL)
	{
		moved = true;
		bytes += reply->body_len;
		flights_take_in(reply);
		now = sas_base_clock_monotonic_us();
	}
	while (!pairingheap_is_empty(flights_by_time))
	{
		SasFlight  *flight = pairingheap_container(SasFlight, heap, pairingheap_first(flights_by_time));

		if (flight->wake_us > now)
			break;
		flights_wake(flight, now);
	}
	return moved;
}
