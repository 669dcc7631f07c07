/* SPDX-License-Identifier: PostgreSQL */
/*
 * flights.c: the calls that are on their way or rest between two attempts.
 *
 * An answer is judged as soon as it is there: it becomes a verdict in the
 * outbox, or another attempt inside the window.  A flight past complete-by is
 * stopped and says nothing.
 */
#include "postgres.h"

#include "agent/json.h"
#include "agent/known.h"
#include "agent/outbox.h"
#include "agent/outcome.h"
#include "base/clock.h"
#include "base/settings.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "wake/bell.h"

#define SAS_RETRY_AFTER_CAP_MS 3600000.0

static MemoryContext flights_context;
static SasTransport *transport;
static dlist_head flights = DLIST_STATIC_INIT(flights);
static int	n_flights;
static pairingheap *by_time;

static int
earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasFlight, heap, a)->wake_us;
	int64		y = pairingheap_const_container(SasFlight, heap, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

SasTransport *
sas_flights_open(void)
{
	char		why[256];

	flights_context = AllocSetContextCreate(CurrentMemoryContext, "sas flights", ALLOCSET_DEFAULT_SIZES);
	by_time = pairingheap_allocate(earlier, NULL);
	sas_outbox_open(flights_context);
	transport = sas_transport_open(sas_agent_slots, why, sizeof(why));
	if (transport == NULL)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up HTTP calls: %s", why)));
	return transport;
}

void
sas_flights_close(void)
{
	if (transport != NULL)
		sas_transport_close(transport);
	transport = NULL;
}

int
sas_flights_fd(void)
{
	return transport != NULL ? sas_transport_fd(transport) : -1;
}

int
sas_flights_in_the_air(void)
{
	return n_flights;
}

int64
sas_flights_wake_in_ms(void)
{
	long		network_ms = sas_transport_timeout_ms(transport);
	int64		own_ms = -1;

	if (!pairingheap_is_empty(by_time))
	{
		int64		wake_us = pairingheap_container(SasFlight, heap, pairingheap_first(by_time))->wake_us;

		own_ms = Max(0, (wake_us - sas_clock_monotonic_us() + 999) / 1000);
	}
	return network_ms < 0 ? own_ms : own_ms < 0 ? network_ms : Min(network_ms, own_ms);
}

static void
free_place(SasFlight *flight)
{
	SasAgentEntry *agent = sas_known_agent(flight->agent_id);

	if (!flight->has_place)
		return;
	flight->has_place = false;
	if (sas_places_free(flight->agent_id))
		sas_bell_wake_other(SAS_AGENT);
	if (agent != NULL)
		agent->look = true;
}

/* The flight is over; what it ended with stands in the outbox, or is left to the supervisor. */
static void
end_flight(SasFlight *flight, bool dropped)
{
	if (flight->handle != NULL)
		sas_transport_stop_call(transport, flight->handle);
	free_place(flight);
	pairingheap_remove(by_time, &flight->heap);
	dlist_delete(&flight->node);
	n_flights--;
	sas_outbox_leave(flight->lease, dropped);
	MemoryContextDelete(flight->context);
}

static void
set_wake(SasFlight *flight, int64 wake_us)
{
	pairingheap_remove(by_time, &flight->heap);
	flight->wake_us = Min(wake_us, flight->deadline_us);
	pairingheap_add(by_time, &flight->heap);
}

static void
hand_back(SasFlight *flight, double again_in_ms)
{
	sas_outbox_reply(flight, "hand_back", NULL, NULL, again_in_ms);
	end_flight(flight, false);
}

/* The next attempt of a flight that has its place. */
static void
begin_attempt(SasFlight *flight, SasStoredAgent *agent)
{
	SasCall		call;
	char		traceparent[80];
	char		why[256];
	uint64		span;
	const char **headers = palloc(sizeof(char *) * (flight->sent.n_headers + 1));
	int64		left_us = flight->deadline_us - sas_clock_monotonic_us();

	if (!pg_strong_random(&span, sizeof(span)) || span == 0)
		span = 1;
	/* W3C Trace Context: one trace per run, a span per attempt */
	snprintf(traceparent, sizeof(traceparent), "traceparent: 00-%s-%016llx-01", flight->trace, (unsigned long long) span);
	for (int i = 0; i < flight->sent.n_headers; i++)
		headers[i] = flight->sent.headers[i];
	headers[flight->sent.n_headers] = traceparent;

	sas_sent_call(&flight->sent, agent, &call);
	call.headers = headers;
	call.n_headers = flight->sent.n_headers + 1;
	/* a time-out behind complete-by comes after it for certain: a window that has passed says nothing */
	call.timeout_ms = Max(1, (long) Min(flight->sent.timeout_ms, left_us / 1000.0 + 1000));
	call.owner = flight;

	flight->attempts++;
	flight->started_at = sas_clock_now();
	flight->handle = sas_transport_start(transport, &call, why, sizeof(why));
	if (flight->handle == NULL)
	{
		Jsonb	   *problem = sas_json_problem("request", "the request cannot be sent", why, 0, flight->id.run_id, flight->step);

		sas_outbox_attempt(flight, "failed", 0, problem);
		sas_outbox_reply(flight, "permanent", NULL, problem, 0);
		end_flight(flight, false);
		return;
	}
	set_wake(flight, flight->deadline_us);
}

/* What an answer means for its flight: a verdict, or another attempt inside the window. */
static void
judge(SasReply *reply)
{
	SasFlight  *flight = reply->owner;
	SasAgentEntry *agent = sas_known_agent(flight->agent_id);
	SasOutcome	outcome;
	Jsonb	   *problem;
	double		pause;

	flight->handle = NULL;
	sas_outcome_of(reply, flight->expect, flight->retry.on, &outcome);
	if (agent == NULL)
	{
		/* dropped while a call was on its way: it cannot be, open runs keep it */
		end_flight(flight, true);
		return;
	}
	sas_known_report(agent, !outcome.fault);

	if (sas_clock_monotonic_us() >= flight->deadline_us)
	{
		/* past complete-by: the answer does not count any more, so nothing is said of it */
		end_flight(flight, true);
		return;
	}
	if (outcome.kind == SAS_OUTCOME_DONE)
	{
		/* the asks of a poll that are answered are counted, not told one by one */
		if ((flight->attempts_before + flight->attempts > 1 && flight->key != NULL) || flight->undo)
			sas_outbox_attempt(flight, "succeeded", outcome.status, NULL);
		sas_outbox_reply(flight, "done", sas_outcome_output(reply, agent->stored), NULL, 0);
		end_flight(flight, false);
		return;
	}

	problem = sas_outcome_problem(reply, agent->stored, &outcome, psprintf("/runs/" INT64_FORMAT "/steps/%s", flight->id.run_id, flight->step));
	sas_outbox_attempt(flight, "failed", outcome.status, problem);
	sas_outbox_error(agent, problem);
	if (outcome.kind == SAS_OUTCOME_PERMANENT)
	{
		sas_outbox_reply(flight, "permanent", NULL, problem, 0);
		end_flight(flight, false);
		return;
	}

	flight->in_doubt |= outcome.in_doubt;
	pause = Max(sas_flight_pause_ms(&flight->retry, flight->attempts), Min(outcome.retry_after_ms, SAS_RETRY_AFTER_CAP_MS));
	if (outcome.retry_after_ms >= 0 && sas_clock_monotonic_us() + (int64) (pause * 1000) >= flight->deadline_us)
		hand_back(flight, pause);	/* the service wants to be left alone beyond the window */
	else if (flight->attempts >= flight->retry.max_attempts ||
			 sas_clock_monotonic_us() + (int64) (pause * 1000) >= flight->deadline_us)
	{
		sas_outbox_reply(flight, "transient", NULL, problem, 0);
		end_flight(flight, false);
	}
	else
	{
		if (pause > 1000)
			free_place(flight);
		set_wake(flight, sas_clock_monotonic_us() + (int64) (pause * 1000));
	}
}

/* A flight whose time has come: past complete-by, or rested. */
static void
wake_flight(SasFlight *flight, int64 now)
{
	SasAgentEntry *agent = sas_known_agent(flight->agent_id);
	int64		again;

	if (now >= flight->deadline_us || agent == NULL)
	{
		/* past complete-by: the answer would not count any more, so say nothing */
		if (flight->handle != NULL && agent != NULL)
			sas_known_report(agent, false);
		end_flight(flight, true);
		sas_bell_wake_other(SAS_SUPERVISOR);
		return;
	}
	if (flight->handle != NULL)
		return;
	if (sas_places_breaker(flight->agent_id) != SAS_BREAKER_CLOSED && agent->limits.breaker_failures > 0)
	{
		hand_back(flight, 0);	/* not a failure: it waits before the door like all others */
		return;
	}
	if (!flight->has_place)
	{
		if (sas_places_ask(flight->agent_id, &agent->limits, 1, true, &again) == 0)
		{
			set_wake(flight, again > now ? again : now + 20000);
			return;
		}
		flight->has_place = true;
	}
	else if (!sas_places_spend(flight->agent_id, &agent->limits, &again))
	{
		set_wake(flight, again);
		return;
	}
	begin_attempt(flight, agent->stored);
}

void
sas_flight_take_off(SasClaimedCall *claimed, SasLeaseEntry *lease, int64 claimed_us)
{
	MemoryContext context = AllocSetContextCreate(flights_context, "sas flight", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	SasFlight  *flight = palloc0(sizeof(SasFlight));
	SasAgentEntry *agent = sas_known_agent(claimed->agent_id);
	JsonbValue	expect;
	const char *why;

	if (agent == NULL)
	{
		/* its agent went away while it was claimed: it is taken back */
		MemoryContextSwitchTo(old);
		MemoryContextDelete(context);
		sas_outbox_leave(lease, true);
		return;
	}
	flight->context = context;
	flight->agent_id = claimed->agent_id;
	flight->lease = lease;
	flight->id = claimed->id;
	flight->step = pstrdup(claimed->step);
	flight->undo = claimed->undo;
	flight->attempts_before = claimed->attempt;
	flight->has_place = true;
	flight->deadline_us = claimed_us + (int64) (claimed->window_ms * 1000);
	flight->wake_us = flight->deadline_us;
	flight->key = claimed->idempotency_key != NULL ? pstrdup(claimed->idempotency_key) : NULL;
	flight->trace = palloc(33);
	for (int i = 0; i < UUID_LEN; i++)
		snprintf(flight->trace + 2 * i, 3, "%02x", claimed->trace.data[i]);
	if (sas_json_member(claimed->policy, "expect", &expect) && expect.type == jbvBinary)
		flight->expect = JsonbValueToJsonb(&expect);
	{
		JsonbValue	retry;
		Jsonb	   *of_step = sas_json_member(claimed->policy, "retry", &retry) ? JsonbValueToJsonb(&retry) : NULL;

		sas_flight_retry_policy(&flight->retry, agent->stored->retry, of_step);
	}
	dlist_push_tail(&flights, &flight->node);
	n_flights++;
	pairingheap_add(by_time, &flight->heap);
	MemoryContextSwitchTo(old);

	if (claimed->problem != NULL)
		why = psprintf("%s: %s", sas_json_string(claimed->problem, "path") ? sas_json_string(claimed->problem, "path") : "template",
					   sas_json_string(claimed->problem, "what"));
	else
	{
		old = MemoryContextSwitchTo(context);
		why = sas_sent_compose(&flight->sent, agent->stored, claimed->request, flight->key);
		MemoryContextSwitchTo(old);
	}
	if (why != NULL)
	{
		Jsonb	   *problem = sas_json_problem("request", "the request cannot be made", why, 0, flight->id.run_id, flight->step);

		flight->attempts++;
		flight->started_at = sas_clock_now();
		sas_outbox_attempt(flight, "failed", 0, problem);
		sas_outbox_reply(flight, "permanent", NULL, problem, 0);
		end_flight(flight, false);
		return;
	}
	begin_attempt(flight, agent->stored);
}

bool
sas_flights_move(void)
{
	SasReply   *reply;
	int64		now;
	bool		moved = false;

	sas_transport_resize(transport, sas_agent_slots);
	sas_transport_work(transport);
	while ((reply = sas_transport_next(transport)) != NULL)
	{
		moved = true;
		judge(reply);
		sas_reply_free(reply);
	}
	now = sas_clock_monotonic_us();
	while (!pairingheap_is_empty(by_time))
	{
		SasFlight  *flight = pairingheap_container(SasFlight, heap, pairingheap_first(by_time));

		if (flight->wake_us > now)
			break;
		wake_flight(flight, now);
	}
	return moved;
}
