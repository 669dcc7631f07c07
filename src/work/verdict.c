/* SPDX-License-Identifier: PostgreSQL */
/*
 * verdict.c: turns an outcome into a verdict: done, failed for good, another
 * attempt inside the window, or the end of the window.
 */
#include "postgres.h"

#include "utils/elog.h"
#include "work/json.h"
#include "work/verdict.h"

void
sas_work_verdict_of_call(SasVerdict *verdict, SasFlight *flight, const SasReply *reply, const SasOutcome *outcome,
						 const SasStoredAgent *agent, double left_ms)
{
	memset(verdict, 0, sizeof(*verdict));
	if (outcome->kind == SAS_OUTCOME_DONE)
	{
		verdict->reply = "done";
		verdict->output = sas_work_outcome_output(reply, agent);
		/* the asks of a poll that are answered are counted, without a row for each */
		if (flight->key != NULL && (flight->attempts_before + flight->attempts > 1 || flight->undo))
			verdict->attempt_status = "succeeded";
		return;
	}

	verdict->problem = sas_work_outcome_problem(reply, agent, outcome, sas_work_json_instance(&flight->id, flight->step));
	verdict->attempt_status = "failed";
	if (outcome->kind == SAS_OUTCOME_PERMANENT)
	{
		verdict->reply = "permanent";
		return;
	}

	flight->in_doubt |= outcome->in_doubt;
	verdict->pause_ms = Max(sas_work_retry_pause_ms(&flight->retry, flight->attempts), Min(outcome->retry_after_ms, SAS_RETRY_AFTER_CAP_MS));
	if (outcome->retry_after_ms >= 0 && verdict->pause_ms >= left_ms)
		verdict->reply = "hand_back";	/* the service asks for a pause beyond the window */
	else if (flight->attempts >= flight->retry.max_attempts || verdict->pause_ms >= left_ms)
		verdict->reply = "transient";
}

void
sas_work_verdict_of_request(SasVerdict *verdict, const SasFlight *flight, const char *title, const char *why)
{
	memset(verdict, 0, sizeof(*verdict));
	verdict->reply = "permanent";
	verdict->attempt_status = "failed";
	verdict->problem = sas_work_json_problem("request", title, why, 0, sas_work_json_instance(&flight->id, flight->step));
}

/* Does the step's retry name this SQLSTATE? */
static bool
verdict_is_named(Jsonb *on, int sqlstate)
{
	JsonbIterator *it;
	JsonbValue	v;
	JsonbIteratorToken token;

	if (on == NULL || sqlstate == 0)
		return false;
	it = JsonbIteratorInit(&on->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM && v.type == jbvString && v.val.string.len == 5 &&
			strncmp(v.val.string.val, unpack_sql_state(sqlstate), 5) == 0)
			return true;
	return false;
}

void
sas_work_verdict_of_function(SasVerdict *verdict, const SasClaimedFunction *step, const SasInvoked *invoked, bool late)
{
	SasRetry	retry;
	int			attempt = step->attempt + 1;

	memset(verdict, 0, sizeof(*verdict));
	if (!invoked->ok || attempt > 1 || step->undo)
		verdict->attempt_status = invoked->ok ? "succeeded" : "failed";
	verdict->output = invoked->ok ? invoked->output : NULL;
	verdict->problem = invoked->ok ? NULL : invoked->error;
	sas_work_retry_policy(&retry, NULL, step->retry);
	if (invoked->ok)
		verdict->reply = "done";
	else if (invoked->transient || verdict_is_named(retry.on, invoked->sqlstate))
	{
		/* the pauses of one window are short, so the claim is given back between them; one that was used up counts */
		verdict->pause_ms = Max(1, sas_work_retry_pause_ms(&retry, step->attempt % retry.max_attempts + 1));
		verdict->reply = attempt % retry.max_attempts == 0 || late ? "transient" : "hand_back";
	}
	else
		verdict->reply = "permanent";
}

Jsonb *
sas_work_verdict_no_input(const SasClaimedFunction *step)
{
	char	   *path = sas_work_json_string(step->problem, "path");
	char	   *what = sas_work_json_string(step->problem, "what");

	return sas_work_json_problem("template", "could not build the input of the step",
								 psprintf("%s: %s", path ? path : "template", what ? what : "malformed"),
								 0, sas_work_json_instance(&step->id, step->step));
}
