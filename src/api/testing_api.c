/* SPDX-License-Identifier: PostgreSQL */
/*
 * testing_api.c: stubbed calls, in the session that tests a workflow.
 *
 *		_sas.stub_compose(...)	the request that would be sent, or why it cannot be
 *		_sas.stub_evaluate(...)	what an answer means
 *		_sas.stub_invoke(...)	a function step, called here
 *
 * Requests are composed and answers evaluated by the workers' own code
 * (work/request.c, outcome.c, verdict.c).  Only the network is missing: an
 * answer in JSON takes its part.  Secrets are not read: requests show their
 * names.
 */
#include "postgres.h"

#include "api/row.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "api/testing_only.h"
#include "work/json.h"
#include "work/verdict.h"

PG_FUNCTION_INFO_V1(sas_api_stub_compose);
PG_FUNCTION_INFO_V1(sas_api_stub_evaluate);
PG_FUNCTION_INFO_V1(sas_api_stub_invoke);

static Jsonb *
testing_api_jsonb(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : PG_GETARG_JSONB_P(n);
}

static char *
testing_api_text(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* These functions are not strict, since some arguments may be null: but not those from first to last. */
static void
testing_api_need_arguments(FunctionCallInfo fcinfo, int first, int last)
{
	for (int i = first; i <= last; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d must not be null", i + 1)));
}

static void
testing_api_set_jsonb(Datum *values, bool *nulls, int n, const Jsonb *value)
{
	nulls[n] = value == NULL;
	values[n] = PointerGetDatum(value);
}

static void
testing_api_set_text(Datum *values, bool *nulls, int n, const char *value)
{
	nulls[n] = value == NULL;
	values[n] = value ? CStringGetTextDatum(value) : (Datum) 0;
}

/* The agent of compose and evaluate; checks their first six arguments. */
static SasStoredAgent *
testing_api_agent(FunctionCallInfo fcinfo)
{
	SasStoredAgent *agent;
	int			agent_id = PG_GETARG_INT32(0);
	int			level;

	testing_api_need_arguments(fcinfo, 0, 5);
	level = sas_store_enter();
	agent = sas_store_stubbed_agent(agent_id);
	sas_store_leave(level);
	if (agent == NULL)
		elog(ERROR, "agent %d does not exist", agent_id);
	return agent;
}

/*
 * Arguments 0 to 8 of compose and evaluate: agent_id, run_id, step, undo,
 * attempt (made before this claim), trace, idempotency_key, request, policy.
 */
static SasFlight *
testing_api_flight(FunctionCallInfo fcinfo, SasStoredAgent *agent, SasClaimedCall *claimed)
{
	SasFlight  *flight = palloc0(sizeof(SasFlight));

	memset(claimed, 0, sizeof(*claimed));
	claimed->id.run_id = PG_GETARG_INT64(1);
	claimed->step = testing_api_text(fcinfo, 2);
	claimed->undo = PG_GETARG_BOOL(3);
	claimed->attempt = PG_GETARG_INT32(4);
	claimed->trace = *PG_GETARG_UUID_P(5);
	claimed->idempotency_key = testing_api_text(fcinfo, 6);
	claimed->request = testing_api_jsonb(fcinfo, 7);
	claimed->policy = testing_api_jsonb(fcinfo, 8);
	flight->context = CurrentMemoryContext;
	sas_work_flight_fill(flight, claimed, agent);
	return flight;
}

/* -------------------------------------------------------------------- request */

static void
testing_api_push_header(JsonbParseState **state, const char *line)
{
	const char *colon = strchr(line, ':');
	char	   *name = pnstrdup(line, colon - line);
	const char *value = colon + 1 + strspn(colon + 1, " ");

	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : pg_tolower((unsigned char) *p);
	sas_work_json_push(state, name, value);
}

static void
testing_api_push_value(JsonbParseState **state, const char *name, Jsonb *request)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	value;

	if (!sas_work_json_member(request, name, &value))
		return;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	pushJsonbValue(state, WJB_KEY, &key);
	if (IsAJsonbScalar(&value))
		pushJsonbValue(state, WJB_VALUE, &value);
	else
	{
		Jsonb	   *jsonb = JsonbValueToJsonb(&value);

		value.type = jbvBinary;
		value.val.binary.data = &jsonb->root;
		value.val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
		pushJsonbValue(state, WJB_VALUE, &value);
	}
}

/* {method, url, path, query, headers, body | form | text} of a call. */
static Jsonb *
testing_api_shown(const SasCall *call, const SasStoredAgent *agent, Jsonb *request)
{
	JsonbParseState *state = NULL;
	JsonbValue	key = {.type = jbvString};
	size_t		base = strlen(agent->base_url);
	const char *rest = strncmp(call->url, agent->base_url, base) == 0 ? call->url + base : call->url;
	const char *query = strchr(rest, '?');

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	sas_work_json_push(&state, "method", call->method);
	sas_work_json_push(&state, "url", call->url);
	sas_work_json_push(&state, "path", query ? pnstrdup(rest, query - rest) : rest);
	if (query)
		sas_work_json_push(&state, "query", query + 1);
	key.val.string.val = "headers";
	key.val.string.len = 7;
	pushJsonbValue(&state, WJB_KEY, &key);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < call->n_headers; i++)
		testing_api_push_header(&state, call->headers[i]);
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	testing_api_push_value(&state, "body", request);
	testing_api_push_value(&state, "form", request);
	testing_api_push_value(&state, "text", request);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* (nine of testing_api_flight, problem, left_ms) -> sent, timeout_ms, problem: why it cannot be made or sent. */
Datum
sas_api_stub_compose(PG_FUNCTION_ARGS)
{
	SasStoredAgent *agent = testing_api_agent(fcinfo);
	SasClaimedCall claimed;
	SasFlight  *flight = testing_api_flight(fcinfo, agent, &claimed);
	SasVerdict	verdict = {0};
	SasCall		call = {0};
	Jsonb	   *sent = NULL;
	const char *why;
	char		reason[SAS_TRANSPORT_ERROR_LEN];
	Datum		values[3];
	bool		nulls[3];

	claimed.problem = testing_api_jsonb(fcinfo, 9);
	why = sas_work_flight_compose(flight, agent, &claimed);
	if (why != NULL)
		sas_work_verdict_of_request(&verdict, flight, "could not build the request", why);
	else
	{
		sas_work_flight_call(flight, agent, PG_GETARG_FLOAT8(10), &call);
		if (sas_transport_call_check(&call, reason, sizeof(reason)))
			sent = testing_api_shown(&call, agent, claimed.request);
		else
			sas_work_verdict_of_request(&verdict, flight, "could not send the request", reason);
	}
	testing_api_set_jsonb(values, nulls, 0, sent);
	nulls[1] = sent == NULL;
	values[1] = Float8GetDatum(call.timeout_ms);
	testing_api_set_jsonb(values, nulls, 2, verdict.problem);
	return sas_api_row(fcinfo, values, nulls);
}

/* --------------------------------------------------------------------- answer */

static void
testing_api_add_header(SasReply *reply, StringInfo headers, const char *name, const char *value)
{
	for (const char *p = name; *p; p++)
		appendStringInfoChar(headers, *p == '_' ? '-' : pg_tolower((unsigned char) *p));
	appendStringInfoChar(headers, '\0');
	appendStringInfoString(headers, value);
	appendStringInfoChar(headers, '\0');
	reply->n_headers++;
}

static void
testing_api_add_headers(SasReply *reply, StringInfo headers, JsonbContainer *object)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue	v;
	JsonbIteratorToken token;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE && v.type != jbvNull)
			testing_api_add_header(reply, headers, name, sas_work_json_text(&v));
}

static void
testing_api_broken(SasReply *reply, SasReplyKind kind, const char *why)
{
	memset(reply, 0, sizeof(*reply));
	reply->kind = kind;
	strlcpy(reply->error, why, sizeof(reply->error));
}

/* The answer as the transport would have brought it. */
static void
testing_api_reply(SasReply *reply, Jsonb *answer, const SasStoredAgent *agent)
{
	char	   *error = sas_work_json_string(answer, "error");
	StringInfoData headers;
	JsonbValue	value;

	memset(reply, 0, sizeof(*reply));
	if (error != NULL)
	{
		if (strcmp(error, "no connection") == 0)
			testing_api_broken(reply, SAS_REPLY_NO_CONNECTION, "connection refused");
		else
			testing_api_broken(reply, SAS_REPLY_BROKEN, strcmp(error, "timeout") == 0 ? "no answer in time" : "the connection broke before an answer came");
		return;
	}
	reply->kind = SAS_REPLY_HTTP;
	reply->status = (long) sas_work_json_number(answer, "status", 200);
	initStringInfo(&headers);
	if (sas_work_json_member(answer, "body", &value))
	{
		Jsonb	   *jsonb = JsonbValueToJsonb(&value);

		testing_api_add_header(reply, &headers, "content-type", "application/json");
		reply->body = JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
	}
	else if (sas_work_json_member(answer, "text", &value))
	{
		testing_api_add_header(reply, &headers, "content-type", "text/plain; charset=utf-8");
		reply->body = sas_work_json_text(&value);
	}
	if (sas_work_json_member(answer, "headers", &value) && value.type == jbvBinary)
	{
		SasReply	said = {0};
		StringInfoData own;

		initStringInfo(&own);
		testing_api_add_headers(&said, &own, value.val.binary.data);
		said.headers = own.data;
		/* a type that the answer names replaces the default */
		if (sas_transport_reply_header(&said, "content-type") != NULL)
		{
			resetStringInfo(&headers);
			reply->n_headers = 0;
		}
		appendBinaryStringInfo(&headers, own.data, own.len);
		reply->n_headers += said.n_headers;
	}
	reply->headers = headers.data;
	reply->headers_len = headers.len;
	reply->body_len = reply->body ? strlen(reply->body) : 0;
	reply->content_type = sas_transport_reply_header(reply, "content-type");
	if (reply->body_len > agent->max_response)
		testing_api_broken(reply, SAS_REPLY_BROKEN, "the answer is larger than max_response");
}

/*
 * (nine of testing_api_flight, attempts begun under this claim, in_doubt,
 * answer, left_ms)
 * -> reply, pause_ms, attempt_status, http_status, in_doubt, output, problem.
 */
Datum
sas_api_stub_evaluate(PG_FUNCTION_ARGS)
{
	SasStoredAgent *agent = testing_api_agent(fcinfo);
	SasClaimedCall claimed;
	SasFlight  *flight = testing_api_flight(fcinfo, agent, &claimed);
	SasReply	reply;
	SasOutcome	outcome;
	SasVerdict	verdict;
	Datum		values[7];
	bool		nulls[7] = {false};

	testing_api_need_arguments(fcinfo, 9, 11);
	flight->attempts = PG_GETARG_INT32(9);
	flight->in_doubt = PG_GETARG_BOOL(10);
	testing_api_reply(&reply, PG_GETARG_JSONB_P(11), agent);
	sas_work_outcome_of(&reply, flight->expect, flight->retry.on, &outcome);
	sas_work_verdict_of_call(&verdict, flight, &reply, &outcome, agent, PG_GETARG_FLOAT8(12));
	testing_api_set_text(values, nulls, 0, verdict.reply);
	values[1] = Float8GetDatum(verdict.pause_ms);
	testing_api_set_text(values, nulls, 2, verdict.attempt_status);
	values[3] = Int32GetDatum(outcome.status);
	values[4] = BoolGetDatum(flight->in_doubt);
	testing_api_set_jsonb(values, nulls, 5, verdict.output);
	testing_api_set_jsonb(values, nulls, 6, verdict.problem);
	return sas_api_row(fcinfo, values, nulls);
}

/* ------------------------------------------------------------------- function */

/*
 * (owner, run_id, step_no, element, step, undo, attempt, function, input,
 * problem, retry, evaluates)
 * -> reply, pause_ms, attempt_status, output, problem.
 */
Datum
sas_api_stub_invoke(PG_FUNCTION_ARGS)
{
	SasClaimedFunction step = {0};
	SasInvoked	invoked = {0};
	SasVerdict	verdict;
	Datum		values[5];
	bool		nulls[5] = {false};

	testing_api_need_arguments(fcinfo, 0, 6);
	if (PG_ARGISNULL(9))
		testing_api_need_arguments(fcinfo, 7, 7);
	step.owner = PG_GETARG_OID(0);
	step.id.run_id = PG_GETARG_INT64(1);
	step.id.step_no = PG_GETARG_INT32(2);
	step.id.element = PG_GETARG_INT32(3);
	step.step = testing_api_text(fcinfo, 4);
	step.undo = PG_GETARG_BOOL(5);
	step.attempt = PG_GETARG_INT32(6);
	step.function = testing_api_text(fcinfo, 7);
	step.input = testing_api_jsonb(fcinfo, 8);
	step.problem = testing_api_jsonb(fcinfo, 9);
	step.retry = testing_api_jsonb(fcinfo, 10);
	step.evaluates = !PG_ARGISNULL(11) && PG_GETARG_BOOL(11);
	if (step.problem != NULL)
		invoked.error = sas_work_verdict_no_input(&step);
	else
	{
		sas_api_testing_invokes = true;
		PG_TRY();
		{
			int			level = sas_store_enter();

			sas_work_invoke_step(&step, 0, &invoked);
			sas_store_leave(level);
		}
		PG_FINALLY();
		{
			sas_api_testing_invokes = false;
		}
		PG_END_TRY();
	}
	sas_work_verdict_of_function(&verdict, &step, &invoked, false);
	testing_api_set_text(values, nulls, 0, verdict.reply);
	values[1] = Float8GetDatum(verdict.pause_ms);
	testing_api_set_text(values, nulls, 2, verdict.attempt_status);
	testing_api_set_jsonb(values, nulls, 3, verdict.output);
	testing_api_set_jsonb(values, nulls, 4, verdict.problem);
	return sas_api_row(fcinfo, values, nulls);
}
