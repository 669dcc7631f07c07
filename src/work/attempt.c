/* SPDX-License-Identifier: PostgreSQL */
/*
 * attempt.c: what a call needs from its claim to its last attempt, and when it is tried again.
 *
 * It is put together in a context of the caller, which takes the many small pieces of that with
 * it; what the flight needs for all of its time is copied in the end.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "work/json.h"
#include "work/request.h"
#include "work/secrets.h"

void
sas_work_flight_fill(SasFlight *flight, const SasClaimedCall *claimed, const SasStoredAgent *agent)
{
	JsonbValue	value;

	flight->id = claimed->id;
	/* what stops a flight, or reports that it cannot begin, names it */
	flight->step = MemoryContextStrdup(flight->context, claimed->step);
	flight->undo = claimed->undo;
	flight->attempts_before = claimed->attempt;
	flight->key = claimed->idempotency_key != NULL ? pstrdup(claimed->idempotency_key) : NULL;
	flight->trace = palloc(33);
	for (int i = 0; i < UUID_LEN; i++)
		snprintf(flight->trace + 2 * i, 3, "%02x", claimed->trace.data[i]);
	if (sas_work_json_member(claimed->policy, "expect", &value) && value.type == jbvBinary)
		flight->expect = JsonbValueToJsonb(&value);
	sas_work_retry_policy(&flight->retry, agent->retry,
						  sas_work_json_member(claimed->policy, "retry", &value) ? JsonbValueToJsonb(&value) : NULL);
}

const char *
sas_work_flight_compose(SasFlight *flight, SasStoredAgent *agent, const SasClaimedCall *claimed)
{
	char	   *path;

	if (claimed->problem == NULL)
	{
		const char *why = sas_work_request_compose(&flight->sent, agent, claimed->request, flight->key);

		flight->secrets = sas_work_secrets_sent(agent, flight->context);
		return why;
	}
	path = sas_work_json_string(claimed->problem, "path");
	return psprintf("%s: %s", path ? path : "template", sas_work_json_string(claimed->problem, "what"));
}

static char *
attempt_keep_text(const char *text)
{
	return text != NULL ? pstrdup(text) : NULL;
}

static Jsonb *
attempt_keep_jsonb(const Jsonb *jsonb)
{
	return jsonb != NULL ? (Jsonb *) memcpy(palloc(VARSIZE(jsonb)), jsonb, VARSIZE(jsonb)) : NULL;
}

void
sas_work_flight_keep(SasFlight *flight)
{
	MemoryContext old = MemoryContextSwitchTo(flight->context);
	SasSent    *sent = &flight->sent;
	char	  **headers = palloc(sizeof(char *) * Max(sent->n_headers, 1));

	for (int i = 0; i < sent->n_headers; i++)
		headers[i] = pstrdup(sent->headers[i]);
	sent->headers = headers;
	sent->method = attempt_keep_text(sent->method);
	sent->url = attempt_keep_text(sent->url);
	sent->body = attempt_keep_text(sent->body);
	flight->key = attempt_keep_text(flight->key);
	flight->trace = attempt_keep_text(flight->trace);
	flight->expect = attempt_keep_jsonb(flight->expect);
	flight->retry.on = attempt_keep_jsonb(flight->retry.on);
	flight->retry.pauses = attempt_keep_jsonb(flight->retry.pauses);
	MemoryContextSwitchTo(old);
}

void
sas_work_flight_call(const SasFlight *flight, SasStoredAgent *agent, double left_ms, SasCall *call)
{
	const SasSent *sent = &flight->sent;
	const char **headers = palloc(sizeof(char *) * (sent->n_headers + 1));
	uint64		span;

	if (!pg_strong_random(&span, sizeof(span)) || span == 0)
		span = 1;
	for (int i = 0; i < sent->n_headers; i++)
		headers[i] = sent->headers[i];
	/* W3C Trace Context: one trace per run, a span per attempt */
	headers[sent->n_headers] = psprintf("traceparent: 00-%s-%016llx-01", flight->trace, (unsigned long long) span);

	sas_work_request_call(sent, agent, call);
	call->headers = headers;
	call->n_headers = sent->n_headers + 1;
	/* a time-out beyond complete-by comes a second after it: nothing is reported after the window */
	call->timeout_ms = Max(1, (long) Min(sent->timeout_ms, left_ms + 1000));
	call->send_by_us = flight->send_by_us;
	call->share = flight->memory;
	call->owner = (void *) flight;
}

void
sas_work_retry_policy(SasRetry *retry, Jsonb *of_agent, Jsonb *of_step)
{
	Jsonb	   *policies[2] = {of_agent, of_step};

	retry->max_attempts = 5;
	retry->initial_ms = 200;
	retry->max_ms = 30000;
	retry->backoff = 'e';
	retry->jitter = true;
	retry->on = NULL;
	retry->pauses = NULL;
	for (int i = 0; i < 2; i++)
	{
		Jsonb	   *p = policies[i];
		char	   *backoff;
		JsonbValue	value;

		retry->max_attempts = (int) sas_work_json_number(p, "max_attempts", retry->max_attempts);
		retry->initial_ms = sas_work_json_number(p, "initial_ms", retry->initial_ms);
		retry->max_ms = sas_work_json_number(p, "max_ms", retry->max_ms);
		retry->jitter = sas_work_json_bool(p, "jitter", retry->jitter);
		backoff = sas_work_json_string(p, "backoff");
		if (backoff != NULL)
			retry->backoff = backoff[0];
		if (sas_work_json_member(p, "on", &value))
			retry->on = JsonbValueToJsonb(&value);
		/* pauses one by one take the place of what computes pauses, and the other way round */
		if (sas_work_json_member(p, "pauses", &value))
			retry->pauses = JsonbValueToJsonb(&value);
		else if (backoff != NULL || sas_work_json_member(p, "initial_ms", &value) || sas_work_json_member(p, "max_ms", &value))
			retry->pauses = NULL;
	}
}

/* The last of the listed pauses is used for all further attempts. */
static double
attempt_listed_pause_ms(Jsonb *pauses, int attempt)
{
	int			last = (int) JB_ROOT_COUNT(pauses) - 1;
	JsonbValue *pause = getIthJsonbValueFromContainer(&pauses->root, Min(attempt - 1, last));

	return pause == NULL ? 0 : DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(pause->val.numeric)));
}

double
sas_work_retry_pause_ms(const SasRetry *retry, int attempt)
{
	double		pause = retry->initial_ms;

	if (retry->backoff == 'e')
		pause *= pow(2, Min(attempt - 1, 30));
	else if (retry->backoff == 'l')
		pause *= attempt;
	pause = retry->pauses != NULL ? attempt_listed_pause_ms(retry->pauses, attempt) : Min(pause, retry->max_ms);
	/* full jitter: anything from nothing to the whole pause spreads a crowd best */
	if (retry->jitter)
		pause *= random() / (double) RAND_MAX;
	return pause;
}
