/* SPDX-License-Identifier: PostgreSQL */
/*
 * flight.c: one call, from its first attempt to its verdict.
 *
 * An answer is evaluated as soon as it is there: it becomes a verdict in the
 * outbox, or another attempt inside the window.  A flight past complete-by
 * is stopped, and nothing is reported.
 */
#include "postgres.h"

#include "agent/flight.h"
#include "agent/flights.h"
#include "agent/outbox.h"
#include "agent/replies.h"
#include "work/room.h"
#include "base/clock.h"
#include "limits/owners.h"
#include "metrics/metrics.h"
#include "utils/memutils.h"
#include "wake/wakeup.h"
#include "work/failure.h"
#include "work/json.h"
#include "work/oauth.h"
#include "work/outcome.h"
#include "work/secrets.h"
#include "work/sign.h"

/* a call that has rested, and finds no slot, asks again so often */
#define FLIGHT_ASK_AGAIN_US 20000

static void
flight_free_slot(SasFlight *flight)
{
	if (flight->has_slot)
		sas_work_agent_free_slot(flight->agent_id, flight->owner);
	flight->has_slot = false;
}

/* ---------------------------------------------------------------- breakers of paths */

/* The agent's limits without its slots and rate, which the call has passed. */
static SasLimits
flight_path_limits(const SasAgentEntry *agent)
{
	SasLimits	limits = agent->limits;

	limits.max_in_flight = PG_INT32_MAX;
	limits.rate_per_s = 0;
	return limits;
}

/*
 * Does the breaker of the call's path let the attempt begin? If not, *again_us
 * is the time to ask again.
 */
static bool
flight_path_lets_through(SasFlight *flight, const SasAgentEntry *agent, int64 *again_us)
{
	SasLimits	limits = flight_path_limits(agent);

	if (flight->path_no == 0 || flight->path_open || limits.breaker_failures == 0)
		return true;
	flight->path_open = sas_limits_ask(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no), flight->owner, &limits, 1, false, again_us) == 1;
	return flight->path_open;
}

/* Until the breaker of the path may let a call through; at least a while, since only a probe is. */
static double
flight_path_rest_ms(int64 again_us)
{
	return Max(1000.0, (again_us - sas_base_clock_monotonic_us()) / 1000.0);
}

static void
flight_leave_path(SasFlight *flight)
{
	if (flight->path_open)
		(void) sas_limits_free(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no));
	flight->path_open = false;
}

/*
 * A fault below a path that has its own breaker says nothing about the rest of
 * the service; an answer does.
 */
static void
flight_report_health(SasFlight *flight, SasAgentEntry *agent, bool success)
{
	SasLimits	limits = flight_path_limits(agent);
	SasBreaker	now_is;

	if (flight->path_no > 0)
		(void) sas_limits_report(SAS_LIMITS_PATH_ID(flight->agent_id, flight->path_no), flight->owner, &limits, success,
								 flight->begun_us, &now_is);
	if (success || flight->path_no == 0)
		sas_work_agent_report(agent, flight->owner, success, flight->begun_us);
	flight_leave_path(flight);
}

void
sas_agent_flight_end(SasFlight *flight, bool dropped)
{
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);

	if (flight->handle != NULL)
		sas_transport_stop_call(sas_agent_flights.transport, flight->handle);
	flight_free_slot(flight);
	flight_leave_path(flight);
	pairingheap_remove(sas_agent_flights.by_time, &flight->heap);
	dlist_delete(&flight->node);
	sas_agent_flights.n--;
	sas_agent_flights.last_ended |= flight->deadline_us >= sas_agent_flights.until_us;
	if (agent != NULL)
		agent->calls--;
	sas_agent_outbox_leave(flight->lease, dropped);
	sas_transport_hold(sas_agent_flights.transport, flight->memory, -(ptrdiff_t) flight->held);
	sas_work_room_leave(flight->memory);
	if (sas_agent_flights.current == flight)
		sas_agent_flights.current = NULL;
	MemoryContextDelete(flight->context);
}

static void
flight_set_wake(SasFlight *flight, int64 wake_us)
{
	pairingheap_remove(sas_agent_flights.by_time, &flight->heap);
	flight->wake_us = Min(wake_us, flight->deadline_us);
	pairingheap_add(sas_agent_flights.by_time, &flight->heap);
}

/* The error of a call that was stopped. */
static Jsonb *
flight_stopped(const SasFlight *flight)
{
	return sas_work_json_problem("cancelled", "its call was stopped", NULL, 0, sas_work_json_instance(&flight->id, flight->step));
}

static void
flight_hand_back(SasFlight *flight, double again_in_ms)
{
	sas_agent_replies_add(flight, "hand_back", NULL, NULL, again_in_ms);
	sas_agent_flight_end(flight, false);
}

/* The error is for a step that has a fallback for an open breaker: only this worker knows the path. */
static void
flight_hand_back_path(SasFlight *flight, int64 again_us)
{
	Jsonb	   *why = sas_work_json_problem("breaker", "the breaker of its path is open", NULL, 0,
											   sas_work_json_instance(&flight->id, flight->step));

	sas_agent_replies_add(flight, "hand_back", NULL, why, flight_path_rest_ms(again_us));
	sas_agent_flight_end(flight, false);
}

static void
flight_report_stopped(SasFlight *flight)
{
	sas_agent_replies_add(flight, "stopped", NULL, flight_stopped(flight), 0);
	sas_agent_flight_end(flight, false);
}

void
sas_agent_flight_stop(SasFlight *flight)
{
	int64		wake_us = 0;

	if (flight->stopped)
		return;
	flight->stopped = true;
	/* its answer has arrived, and is evaluated in one of the next ticks */
	if (flight->handle != NULL && sas_transport_is_finished(flight->handle))
		return;
	if (flight->handle != NULL)
	{
		if (sas_transport_may_have_sent(flight->handle))
		{
			flight->in_doubt = true;
			wake_us = sas_transport_begun_us(flight->handle) + flight->deadline_us - flight->send_by_us;
		}
		sas_transport_stop_call(sas_agent_flights.transport, flight->handle);
		flight->handle = NULL;
		sas_agent_outbox_attempt(flight, "cancelled", 0, flight_stopped(flight));
	}
	flight_free_slot(flight);
	flight_leave_path(flight);
	flight_set_wake(flight, wake_us);
}

void
sas_agent_flight_give_back(SasFlight *flight)
{
	int64		rest_us = flight->token_comes ? 0 : flight->wake_us - sas_base_clock_monotonic_us();

	if (flight->stopped)
		return;					/* it is reported within a second, or found under the lease */
	if (flight->handle == NULL)
		flight_hand_back(flight, Max(0, rest_us) / 1000.0);
	else if (!sas_transport_is_finished(flight->handle) && !sas_transport_may_have_sent(flight->handle))
	{
		flight->attempts--;
		flight_hand_back(flight, 0);
	}
}

bool
sas_agent_flight_report(SasFlight *flight, const SasVerdict *verdict, int http_status)
{
	if (verdict->attempt_status != NULL)
		sas_agent_outbox_attempt(flight, verdict->attempt_status, http_status, verdict->problem);
	if (verdict->reply == NULL)
		return false;
	if (sas_work_failure_is_final(verdict->reply))
		sas_work_failure_log_step(&flight->id, flight->step, flight->undo, flight->attempts_before + flight->attempts, verdict->problem);
	sas_agent_replies_add(flight, verdict->reply, verdict->output,
						   strcmp(verdict->reply, "hand_back") == 0 ? NULL : verdict->problem, verdict->pause_ms);
	sas_agent_flight_end(flight, false);
	return true;
}

static void
flight_begin_count(SasFlight *flight)
{
	flight->attempts++;
	flight->started_at = sas_base_clock_now();
	flight->begun_us = sas_base_clock_monotonic_us();
	flight->arrived_us = 0;
}

/* Turns an answer, or the lack of one, into a verdict in the outbox or into another attempt. */
static void
flight_judge(SasFlight *flight, SasAgentEntry *agent, const SasReply *reply, const SasOutcome *outcome)
{
	SasVerdict	verdict;
	int64		now = sas_base_clock_monotonic_us();

	sas_work_verdict_of_call(&verdict, flight, reply, outcome, sas_work_secrets_masking(agent->stored, flight->secrets),
							 (flight->send_by_us - now) / 1000.0);
	if (verdict.problem != NULL)
		sas_work_agent_error(agent, verdict.problem);
	/* another token may work, whatever the policy says about attempts */
	if (reply->kind == SAS_REPLY_HTTP && reply->status == 401 && outcome->kind != SAS_OUTCOME_DONE && flight->token != NULL && !flight->token_renewed)
	{
		flight->token_renewed = true;
		sas_work_token_refused(flight->agent_id, flight->token);
		verdict.reply = NULL;
		verdict.pause_ms = 0;
	}
	if (flight->stopped && verdict.reply != NULL && strcmp(verdict.reply, "hand_back") == 0)
		verdict.reply = NULL;
	if (sas_agent_flight_report(flight, &verdict, outcome->status))
		return;
	if (flight->stopped)
	{
		flight_report_stopped(flight);
		return;
	}
	if (verdict.pause_ms > 1000)
		flight_free_slot(flight);
	flight_set_wake(flight, now + (int64) (verdict.pause_ms * 1000));
}

/*
 * The access token that its agent needs, if it needs one. False: the flight
 * waits for it, or this attempt has failed: nothing was sent to the service.
 */
static bool
flight_has_token(SasFlight *flight, SasAgentEntry *agent)
{
	const char *what = NULL;
	SasReply	none = {.kind = SAS_REPLY_NO_CONNECTION};
	SasOutcome	outcome;
	MemoryContext old;

	flight->token = NULL;
	flight->token_comes = false;
	switch (sas_work_token_ask(agent->stored, &what))
	{
		case SAS_TOKEN_NONE:
			return true;
		case SAS_TOKEN_READY:
			old = MemoryContextSwitchTo(flight->context);
			flight->token = pstrdup(what);
			flight->secrets = lappend(flight->secrets, flight->token);
			MemoryContextSwitchTo(old);
			return true;
		case SAS_TOKEN_COMES:
			flight->token_comes = true;
			flight_set_wake(flight, flight->deadline_us);
			return false;
		case SAS_TOKEN_FAILED:
			break;
	}
	flight_begin_count(flight);
	snprintf(none.error, sizeof(none.error), "no access token: %s", what);
	sas_work_outcome_of(&none, flight->expect, flight->retry.on, &outcome);
	flight_report_health(flight, agent, false);
	flight_judge(flight, agent, &none, &outcome);
	return false;
}

/* The next attempt of a flight that has its slot. */
static void
flight_begin_attempt(SasFlight *flight, SasAgentEntry *agent)
{
	SasCall		call = {0};
	char		errbuf[256];
	const char *why;
	int64		left_us = flight->deadline_us - sas_base_clock_monotonic_us();

	if (left_us <= 0)
	{
		/* the commit of the claim took as long, or the process was stopped: the supervisor takes it back */
		sas_agent_flight_end(flight, true);
		sas_wake_others(SAS_SUPERVISOR);
		return;
	}
	if (!flight_has_token(flight, agent))
		return;
	sas_work_flight_call(flight, agent->stored, left_us / 1000.0, &call);
	flight_begin_count(flight);
	sas_work_call_in_utf8(&call);
	if (flight->token != NULL)
		sas_work_token_add(&call, flight->token);
	why = sas_work_sign(&call, agent->stored, flight->key);
	if (why == NULL)
		flight->handle = sas_transport_start(sas_agent_flights.transport, &call, errbuf, sizeof(errbuf));
	if (flight->handle == NULL)
	{
		SasVerdict	verdict;

		sas_work_verdict_of_request(&verdict, flight, "could not send the request", why != NULL ? why : errbuf);
		(void) sas_agent_flight_report(flight, &verdict, 0);
		return;
	}
	flight_set_wake(flight, flight->deadline_us);
}

void
sas_agent_flight_go_on(SasFlight *flight)
{
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);

	/* without its agent it waits for complete-by */
	if (agent == NULL || flight->stopped)
		return;
	if (agent->limits.breaker_failures > 0 && !sas_limits_may_begin(flight->agent_id))
		flight_hand_back(flight, 0);	/* it opened meanwhile */
	else
		flight_begin_attempt(flight, agent);
}

void
sas_agent_flight_evaluate(SasReply *reply)
{
	SasFlight  *flight = reply->owner;
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);
	SasOutcome	outcome;

	flight->handle = NULL;
	flight->arrived_us = reply->finished_us;
	sas_work_outcome_of(reply, flight->expect, flight->retry.on, &outcome);
	if (agent == NULL)
	{
		/* the agent was dropped during a call: that cannot happen, open runs prevent it */
		sas_agent_flight_end(flight, true);
		return;
	}
	/* the service has answered: what this worker did not read in time is no fault of it */
	flight_report_health(flight, agent, !outcome.fault || (reply->held_back && reply->kind != SAS_REPLY_HTTP));
	if (reply->finished_us >= flight->deadline_us)
	{
		/* it arrived past complete-by: it does not count any longer, so nothing is reported */
		sas_agent_flight_end(flight, true);
		return;
	}
	sas_metrics_add(SAS_METRIC_CALL, flight->agent_id, flight->workflow_id, outcome.kind == SAS_OUTCOME_DONE ? "succeeded" : "failed", 1,
					(sas_base_clock_monotonic_us() - flight->begun_us) / 1e6);
	flight_judge(flight, agent, reply, &outcome);
}

void
sas_agent_flight_wake(SasFlight *flight, int64 now)
{
	SasAgentEntry *agent = sas_work_agent(flight->agent_id);
	int64		again;

	/* its answer arrived, or may be in its socket: it is evaluated, or read, in one of the next ticks */
	if (flight->handle != NULL &&
		(sas_transport_is_finished(flight->handle) ||
		 (sas_transport_was_cut_short(sas_agent_flights.transport) && now < flight->deadline_us + SAS_FLIGHTS_UNREAD_US)))
	{
		pairingheap_remove(sas_agent_flights.by_time, &flight->heap);
		flight->wake_us = now + SAS_FLIGHTS_TICK_US;
		pairingheap_add(sas_agent_flights.by_time, &flight->heap);
		return;
	}
	if (now >= flight->deadline_us || agent == NULL)
	{
		/* past complete-by: the answer would not count any longer, so nothing is reported */
		if (flight->handle != NULL && agent != NULL)
			flight_report_health(flight, agent, false);
		sas_agent_flight_end(flight, true);
		sas_wake_others(SAS_SUPERVISOR);
		return;
	}
	if (flight->handle != NULL)
		return;
	if (flight->stopped)
	{
		flight_report_stopped(flight);
		return;
	}
	if (sas_agent_flights_stale())
	{
		/* it may be one that was stopped: this tick looks that up first */
		flight_set_wake(flight, now + 1000);
		return;
	}
	if (sas_limits_breaker(flight->agent_id) != SAS_BREAKER_CLOSED && agent->limits.breaker_failures > 0)
	{
		flight_hand_back(flight, 0); /* not a failure: it waits for the limits like all others */
		return;
	}
	if (!flight_path_lets_through(flight, agent, &again))
	{
		flight_hand_back_path(flight, again);
		return;
	}
	if (!flight->has_slot)
	{
		if (!sas_limits_owner_again(flight->agent_id, flight->owner))
		{
			flight_set_wake(flight, now + FLIGHT_ASK_AGAIN_US);
			return;
		}
		if (sas_limits_ask(flight->agent_id, flight->owner, &agent->limits, 1, true, &again) == 0)
		{
			sas_limits_owner_end(flight->agent_id, flight->owner);
			flight_set_wake(flight, again > now ? again : now + FLIGHT_ASK_AGAIN_US);
			return;
		}
		flight->has_slot = true;
	}
	else if (!sas_limits_spend(flight->agent_id, &agent->limits, &again))
	{
		flight_set_wake(flight, again);
		return;
	}
	flight_begin_attempt(flight, agent);
}

void
sas_agent_flight_compose(SasFlight *flight, SasClaimedCall *claimed, SasAgentEntry *agent)
{
	const char *why;
	int64		again = 0;

	/* it was paused while this worker claimed: that is neither a failure nor an attempt */
	if (!agent->stored->enabled)
	{
		flight_hand_back(flight, 0);
		return;
	}
	why = sas_work_flight_compose(flight, agent->stored, claimed);
	if (why != NULL)
	{
		SasVerdict	verdict;
		JsonbValue	error;

		flight->attempts++;
		flight->started_at = sas_base_clock_now();
		sas_work_verdict_of_request(&verdict, flight, "could not build the request", why);
		if (agent->stored->problem != NULL)
			verdict.reply = "transient";	/* the file of a secret may be back soon */
		if (claimed->problem != NULL && sas_work_json_bool(claimed->problem, "transient", false))
			verdict.reply = "transient";
		if (claimed->problem != NULL && sas_work_json_member(claimed->problem, "error", &error))
			verdict.problem = JsonbValueToJsonb(&error);
		(void) sas_agent_flight_report(flight, &verdict, 0);
		return;
	}
	sas_work_flight_keep(flight);
	flight->held = flight->sent.body_len;
	sas_transport_hold(sas_agent_flights.transport, flight->memory, flight->held);
	flight->path_no = sas_work_request_path_no(&flight->sent, agent->stored);
	/* neither is a failure, or an attempt */
	if (agent->limits.breaker_failures > 0 && !sas_limits_may_begin(flight->agent_id))
		flight_hand_back(flight, 0);	/* it opened while this worker claimed */
	else if (!flight_path_lets_through(flight, agent, &again))
		flight_hand_back_path(flight, again);
	else
		flight_begin_attempt(flight, agent);
}
