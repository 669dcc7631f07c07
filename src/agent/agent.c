/* SPDX-License-Identifier: PostgreSQL */
/*
 * agent.c: one loop that holds up to sas.agent_slots HTTP calls at once.
 *
 * A turn:
 *	 1. move the network, judge the answers that came (attempt), end flights
 *		that are past complete-by: their call is stopped and nothing is said
 *	 2. ask the doors (places) how many calls each agent may take
 *	 3. one transaction: write what flights ended with, claim for the doors
 *		that are open.  Under load a commit carries what came in during the
 *		one before; on an idle system it carries one reply, at once.
 *	 4. compose and start the claimed calls
 *
 * No transaction is open while a call is on its way.  The outbox keeps
 * verdicts until a commit has taken them; an ERROR in the transaction costs
 * nothing but time.  What is in memory here is lost with the worker: its
 * leases tell the supervisor.
 */
#include "postgres.h"

#include "access/xact.h"
#include "agent/agent.h"
#include "agent/json.h"
#include "agent/outcome.h"
#include "agent/outbox.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/settings.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "wake/bell.h"

/* at most so many steps in one claim: a batch of a hundred gets most of what batching gives */
#define SAS_CLAIM_BATCH 500
#define SAS_LOCKED_RETRY_MS 50
#define SAS_RETRY_AFTER_CAP_MS 3600000.0

static MemoryContext flights_context;	/* flights, outbox */
static MemoryContext agents_context;	/* the agents, anew when they change */
static SasTransport *transport;
static SasAgentEntry *agents;
static int	n_agents;
static bool agents_stale = true;
static dlist_head flights = DLIST_STATIC_INIT(flights);
static int	n_flights;
static pairingheap *by_time;
static bool transaction_failed; /* the last one did not commit */
static int *lanes;				/* what was asked of the doors for it */
static int *quantities;
static int	n_lanes;

static SasAgentEntry *
agent_of(int agent_id)
{
	for (int i = 0; i < n_agents; i++)
		if (agents[i].stored->agent_id == agent_id)
			return &agents[i];
	return NULL;
}

static void
agents_changed(Datum arg, Oid relid)
{
	/* sas.agent is announced; other relations change rarely enough */
	agents_stale = true;
}

static int
earlier(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	int64		x = pairingheap_const_container(SasFlight, heap, a)->wake_us;
	int64		y = pairingheap_const_container(SasFlight, heap, b)->wake_us;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void
start(void)
{
	char		why[256];

	sas_store_prepare_session();
	flights_context = AllocSetContextCreate(CurrentMemoryContext, "sas flights", ALLOCSET_DEFAULT_SIZES);
	agents_context = AllocSetContextCreate(CurrentMemoryContext, "sas agents", ALLOCSET_DEFAULT_SIZES);
	by_time = pairingheap_allocate(earlier, NULL);
	CacheRegisterRelcacheCallback(agents_changed, (Datum) 0);
	sas_outbox_open(flights_context);
	transport = sas_transport_open(sas_agent_slots, why, sizeof(why));
	if (transport == NULL)
		ereport(ERROR, (errcode(ERRCODE_SYSTEM_ERROR), errmsg("could not set up HTTP calls: %s", why)));
}

/* Reads the agents; flights refer to them by id, so the old ones can go. */
static void
read_agents(void)
{
	List	   *list;
	ListCell   *lc;
	MemoryContext fresh = AllocSetContextCreate(TopMemoryContext, "sas agents", ALLOCSET_DEFAULT_SIZES);
	SasAgentEntry *entries;
	int			n = 0;

	list = sas_store_agents(fresh);
	entries = MemoryContextAllocZero(fresh, sizeof(SasAgentEntry) * Max(list_length(list), 1));
	foreach(lc, list)
	{
		SasAgentEntry *e = &entries[n++];
		SasStoredAgent *a = lfirst(lc);
		SasAgentEntry *before = agent_of(a->agent_id);

		if (before != NULL)
			*e = *before;		/* what is still to be written of it */
		e->ask_again_us = 0;
		e->stored = a;
		e->look = true;
		e->limits.max_in_flight = a->max_in_flight;
		e->limits.rate_per_s = a->rate_per_s;
		e->limits.breaker_failures = a->breaker_failures;
		e->limits.breaker_window_us = (int64) (a->breaker_window_ms * 1000);
		e->limits.breaker_open_us = (int64) (a->breaker_open_ms * 1000);
		sas_places_load(a->agent_id,
						strcmp(a->breaker, "open") == 0 ? SAS_BREAKER_OPEN :
						strcmp(a->breaker, "half-open") == 0 ? SAS_BREAKER_HALF_OPEN : SAS_BREAKER_CLOSED,
						(int64) (a->open_for_ms * 1000));
	}
	MemoryContextDelete(agents_context);
	agents_context = fresh;
	agents = entries;
	n_agents = n;
	lanes = MemoryContextAlloc(fresh, sizeof(int) * Max(n, 1));
	quantities = MemoryContextAlloc(fresh, sizeof(int) * Max(n, 1));
	agents_stale = false;
}

static void
free_place(SasFlight *flight)
{
	SasAgentEntry *agent = agent_of(flight->agent_id);

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
	SasCall		call = {0};
	char		traceparent[80];
	char		why[256];
	uint64		span;
	const char **headers = palloc(sizeof(char *) * (flight->n_headers + 1));
	int64		left_us = flight->deadline_us - sas_clock_monotonic_us();
	char	   *max_http = sas_json_string(agent->options, "http_version");

	if (!pg_strong_random(&span, sizeof(span)) || span == 0)
		span = 1;
	/* W3C Trace Context: one trace per run, a span per attempt */
	snprintf(traceparent, sizeof(traceparent), "traceparent: 00-%s-%016llx-01", flight->trace, (unsigned long long) span);
	for (int i = 0; i < flight->n_headers; i++)
		headers[i] = flight->headers[i];
	headers[flight->n_headers] = traceparent;

	call.method = flight->method;
	call.url = flight->url;
	call.headers = headers;
	call.n_headers = flight->n_headers + 1;
	call.body = flight->body;
	call.body_len = flight->body_len;
	call.timeout_ms = Max(1, (long) Min(flight->timeout_ms, left_us / 1000.0));
	call.connect_timeout_ms = (long) agent->connect_timeout_ms;
	call.max_response = agent->max_response;
	call.http2 = max_http != NULL && strcmp(max_http, "2") == 0;
	call.follow_redirects = sas_json_bool(agent->options, "follow_redirects", false);
	call.ca_file = sas_json_string(agent->options, "ca_file");
	call.cert = sas_json_string(agent->options, "cert");
	call.proxy = sas_json_string(agent->options, "proxy");
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

/* Tells the breaker what a call showed of its service. */
static void
report(SasAgentEntry *agent, bool success)
{
	if (!sas_places_report(agent->stored->agent_id, &agent->limits, success, &agent->breaker))
		return;
	agent->look = true;
	sas_outbox_breaker(agent);
}

/* What an answer means for its flight: a verdict, or another attempt inside the window. */
static void
judge(SasReply *reply)
{
	SasFlight  *flight = reply->owner;
	SasAgentEntry *agent = agent_of(flight->agent_id);
	SasOutcome	outcome;
	Jsonb	   *problem;
	double		pause;

	flight->handle = NULL;
	sas_outcome_of(reply, flight, &outcome);
	if (agent == NULL)
	{
		/* dropped while a call was on its way: it cannot be, open runs keep it */
		end_flight(flight, true);
		return;
	}
	report(agent, !outcome.fault);

	if (outcome.kind == SAS_OUTCOME_DONE)
	{
		if (flight->attempts_before + flight->attempts > 1 || flight->undo)
			sas_outbox_attempt(flight, "succeeded", outcome.status, NULL);
		sas_outbox_reply(flight, "done", sas_outcome_output(reply, agent->stored), NULL, 0);
		end_flight(flight, false);
		return;
	}

	problem = sas_outcome_problem(reply, flight, agent->stored, &outcome);
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
	SasAgentEntry *agent = agent_of(flight->agent_id);
	int64		again;

	if (now >= flight->deadline_us || agent == NULL)
	{
		/* past complete-by: the answer would not count any more, so say nothing */
		if (flight->handle != NULL && agent != NULL)
			report(agent, false);
		end_flight(flight, true);
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
		if (sas_places_ask(flight->agent_id, &agent->limits, 1, &again) == 0)
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

/* A claimed call takes off, or fails at once when it cannot be composed. */
static void
take_off(SasClaimedCall *claimed, SasLeaseEntry *lease, int64 claimed_us)
{
	MemoryContext context = AllocSetContextCreate(flights_context, "sas flight", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	SasFlight  *flight = palloc0(sizeof(SasFlight));
	SasAgentEntry *agent = agent_of(claimed->agent_id);
	JsonbValue	expect;
	const char *why;

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
	flight->key = pstrdup(claimed->idempotency_key);
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
		why = sas_flight_compose(flight, agent->stored, claimed->request);
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

/* Asks the doors. Returns how many lanes are to be claimed from; *retry_us: when a closed door may open. */
static int
ask_doors(int64 *retry_us)
{
	int			free_slots = Max(0, sas_agent_slots - n_flights);
	int			batch = transaction_failed ? 1 : SAS_CLAIM_BATCH;
	int64		now = sas_clock_monotonic_us();
	int			n = 0;

	for (int i = 0; i < n_agents; i++)
	{
		SasAgentEntry *e = &agents[i];
		int64		again;
		int			granted;

		if (sas_bell_take_lane(e->stored->agent_id))
			e->look = true;
		if (e->ask_again_us != 0 && now >= e->ask_again_us)
		{
			e->look = true;
			e->ask_again_us = 0;
		}
		if (!e->look || !e->stored->enabled)
			continue;
		if (free_slots == 0 || batch == 0)
			break;				/* a flight that ends makes this look again */
		granted = sas_places_ask(e->stored->agent_id, &e->limits, Min(free_slots, batch), &again);
		if (again != 0)
			e->ask_again_us = again;
		if (granted == 0)
		{
			e->look = false;
			continue;
		}
		lanes[n] = e->stored->agent_id;
		quantities[n++] = granted;
		free_slots -= granted;
		batch -= granted;
	}
	for (int i = 0; i < n_agents; i++)
		if (agents[i].ask_again_us != 0 && (*retry_us == 0 || agents[i].ask_again_us < *retry_us))
			*retry_us = agents[i].ask_again_us;
	return n;
}

/* Starts what was claimed and gives back the places that found no step. True: there may be more. */
static bool
use_claims(List *claimed, int64 claimed_us)
{
	SasLeaseEntry *lease = NULL;
	bool		more = false;
	ListCell   *lc;

	if (claimed != NIL)
		lease = sas_outbox_lease(((SasClaimedCall *) linitial(claimed))->lease_id, list_length(claimed));
	for (int i = 0; i < n_lanes; i++)
	{
		SasAgentEntry *e = agent_of(lanes[i]);
		int			got = 0;

		foreach(lc, claimed)
			if (((SasClaimedCall *) lfirst(lc))->agent_id == lanes[i])
				got++;
		e->look = got == quantities[i];
		more |= e->look;
		sas_places_return(lanes[i], &e->limits, quantities[i] - got);
		/* a token that was not needed makes waiting for the next one needless */
		if (got < quantities[i])
			e->ask_again_us = 0;
	}
	foreach(lc, claimed)
		take_off(lfirst(lc), lease, claimed_us);
	return more;
}

static bool
network(void)
{
	SasReply   *reply;
	int64		now;
	bool		moved = false;

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

/*
 * A worker that was rung and had no answers to judge may have been rung for
 * an agent that it does not know yet: that news comes with a transaction.
 */
static void
hear_of_changes(void)
{
	MemoryContext old = CurrentMemoryContext;

	StartTransactionCommand();
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
}

/* The last transaction did not commit: nothing was claimed, and what is in the outbox stays there. */
static void
after_abort(void)
{
	for (int i = 0; i < n_lanes; i++)
	{
		SasAgentEntry *e = agent_of(lanes[i]);

		sas_places_return(lanes[i], &e->limits, quantities[i]);
		e->look = true;
	}
	n_lanes = 0;
	sas_outbox_failed();
}

static SasTurn
turn(void)
{
	SasTurn		next = {false, -1};
	int64		retry_us = 0;
	int64		wake_us = 0;
	int64		now;
	List	   *claimed = NIL;
	int64		claimed_us;
	bool		more = false;
	long		transport_ms;

	if (transaction_failed)
		after_abort();
	sas_transport_resize(transport, sas_agent_slots);
	if (!network())
		hear_of_changes();

	n_lanes = agents_stale ? 0 : ask_doors(&retry_us);
	if (agents_stale || n_lanes > 0 || sas_outbox_due())
	{
		transaction_failed = true;
		if (!sas_store_begin())
			return next;
		if (agents_stale)
		{
			read_agents();
			next.again = true;
		}
		sas_outbox_write(agents, n_agents);
		claimed_us = sas_clock_monotonic_us();
		if (n_lanes > 0)
			claimed = sas_store_claim_calls(lanes, quantities, n_lanes);
		sas_store_commit();
		transaction_failed = false;
		sas_outbox_written(agents, n_agents);
		more = use_claims(claimed, claimed_us);
		/* the claimed calls go out now; an answer may be there already, and nothing would tell of it again */
		next.again |= network();
	}

	now = sas_clock_monotonic_us();
	if (!pairingheap_is_empty(by_time))
		wake_us = pairingheap_container(SasFlight, heap, pairingheap_first(by_time))->wake_us;
	if (retry_us != 0 && (wake_us == 0 || retry_us < wake_us))
		wake_us = retry_us;
	if (wake_us != 0)
		next.wake_in_ms = Max(0, (wake_us - now + 999) / 1000);
	transport_ms = sas_transport_timeout_ms(transport);
	if (transport_ms >= 0 && (next.wake_in_ms < 0 || transport_ms < next.wake_in_ms))
		next.wake_in_ms = transport_ms;
	if (sas_outbox_waiting() && (next.wake_in_ms < 0 || next.wake_in_ms > SAS_LOCKED_RETRY_MS))
		next.wake_in_ms = SAS_LOCKED_RETRY_MS;
	next.again |= (more && n_flights < sas_agent_slots) || sas_outbox_due();
	return next;
}

static int
pollfd_of(void)
{
	return transport != NULL ? sas_transport_fd(transport) : -1;
}

static void
stop(void)
{
	if (transport != NULL)
		sas_transport_close(transport);
	transport = NULL;
}

static int
in_flight(void)
{
	return n_flights;
}

const SasActorMethods sas_agent_methods = {
	.start = start,
	.turn = turn,
	.pollfd = pollfd_of,
	.stop = stop,
	.in_flight = in_flight,
};
