/* SPDX-License-Identifier: PostgreSQL */
/*
 * outcome.c: statuses (RFC 9110, section 15), Retry-After (10.2.3), and the
 * jsonb that is kept of an answer.
 *
 * A request that was refused before anything was done with it (408, 425, 429,
 * 503) is known not to have been carried out; any other failure after the
 * connection was made leaves that in doubt.
 */
#include "postgres.h"

#include <ctype.h>
#include <time.h>

#include "agent/json.h"
#include "agent/outcome.h"
#include "base/compat.h"
#include "common/base64.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "transport/origin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/memutils.h"

/* Is the status among "404", "2xx", ...? */
static bool
among(Jsonb *statuses, int status)
{
	JsonbIterator *it;
	JsonbValue	v;
	JsonbIteratorToken token;

	if (statuses == NULL || !JB_ROOT_IS_ARRAY(statuses))
		return false;
	it = JsonbIteratorInit(&statuses->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		char	   *text;

		if (token != WJB_ELEM)
			continue;
		text = sas_json_text(&v);
		if (text != NULL && strlen(text) == 3 && text[0] == '0' + status / 100 &&
			(strcmp(text + 1, "xx") == 0 || atoi(text) == status))
			return true;
	}
	return false;
}

static double
retry_after_ms(const SasReply *reply)
{
	const char *value = sas_reply_header(reply, "retry-after");
	struct tm	tm;

	if (value == NULL)
		return -1;
	if (isdigit((unsigned char) value[0]))
		return Min(strtod(value, NULL), 86400.0) * 1000;
	memset(&tm, 0, sizeof(tm));
	if (strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &tm) != NULL)
		return Max(0, difftime(timegm(&tm), time(NULL)) * 1000);
	return -1;
}

void
sas_outcome_of(const SasReply *reply, const SasFlight *flight, SasOutcome *outcome)
{
	int			status = (int) reply->status;

	memset(outcome, 0, sizeof(*outcome));
	outcome->retry_after_ms = -1;
	if (reply->kind != SAS_REPLY_HTTP)
	{
		outcome->kind = SAS_OUTCOME_TRANSIENT;
		outcome->in_doubt = reply->kind == SAS_REPLY_BROKEN;
		outcome->fault = true;
		return;
	}
	outcome->status = status;
	outcome->fault = status >= 500;
	if (among(flight->expect, status))
	{
		outcome->kind = SAS_OUTCOME_DONE;
		outcome->fault = false;
	}
	else if (status >= 200 && status < 300)
		outcome->kind = SAS_OUTCOME_DONE;
	else if (status == 408 || status == 425 || status == 429 || status >= 500 || among(flight->retry.on, status))
	{
		outcome->kind = SAS_OUTCOME_TRANSIENT;
		outcome->in_doubt = status >= 500 && status != 503;
		outcome->retry_after_ms = retry_after_ms(reply);
	}
	else
		outcome->kind = SAS_OUTCOME_PERMANENT;
}

static void
mask_one(char *bytes, size_t len, const char *secret)
{
	size_t		n = strlen(secret);
	char	   *at = bytes;

	while (n > 0 && (at = memmem(at, len - (at - bytes), secret, n)) != NULL)
	{
		memset(at, '*', n);
		at += n;
	}
}

/*
 * Overwrites each secret of the agent in the bytes, as it is, as a part of an
 * address and as JSON writes it; the length stays.
 */
static void
mask(char *bytes, size_t len, const SasStoredAgent *agent)
{
	ListCell   *lc;

	foreach(lc, agent->secrets)
	{
		const char *secret = lfirst(lc);
		char	   *encoded = sas_url_encode_segment(secret, strlen(secret));
		StringInfoData json;

		mask_one(bytes, len, secret);
		if (encoded != NULL)
			mask_one(bytes, len, encoded);
		free(encoded);
		initStringInfo(&json);
		escape_json(&json, secret);
		json.data[json.len - 1] = '\0';
		mask_one(bytes, len, json.data + 1);
	}
}

/* The body as jsonb when it is JSON that fits; NULL when it is not. */
static Jsonb *
parse_json(char *body)
{
	MemoryContext context = CurrentMemoryContext;
	Jsonb	   *volatile result = NULL;

	/* jsonb_in takes nothing but memory, so its error can be caught without a subtransaction */
	PG_TRY();
	{
		result = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(body)));
	}
	PG_CATCH();
	{
		ErrorData  *edata;
		int			category;

		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		category = ERRCODE_TO_CATEGORY(edata->sqlerrcode);
		if (category != ERRCODE_DATA_EXCEPTION && category != ERRCODE_TO_CATEGORY(ERRCODE_SYNTAX_ERROR) &&
			category != ERRCODE_PROGRAM_LIMIT_EXCEEDED && category != ERRCODE_FEATURE_NOT_SUPPORTED)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(edata);
	}
	PG_END_TRY();
	return result;
}

static bool
says_json(const char *content_type)
{
	size_t		len;

	if (content_type == NULL)
		return false;
	len = strcspn(content_type, "; \t");
	return (len == 16 && pg_strncasecmp(content_type, "application/json", 16) == 0) ||
		(len > 5 && pg_strncasecmp(content_type + len - 5, "+json", 5) == 0);
}

Jsonb *
sas_outcome_problem(const SasReply *reply, const SasFlight *flight, const SasStoredAgent *agent, const SasOutcome *outcome)
{
	char	   *detail = NULL;
	const char *title;
	Jsonb	   *parsed;

	if (reply->kind == SAS_REPLY_HTTP)
	{
		title = psprintf("the service answered %d", outcome->status);
		if (reply->body_len > 0 && pg_verify_mbstr(GetDatabaseEncoding(), reply->body, reply->body_len, true))
		{
			/* masked before it is cut, or the cut might hide a secret's end */
			detail = pnstrdup(reply->body, reply->body_len);
			if (agent->secrets != NIL && says_json(reply->content_type) && (parsed = parse_json(detail)) != NULL)
				detail = JsonbToCString(NULL, &parsed->root, VARSIZE(parsed));	/* no escape hides one */
			mask(detail, strlen(detail), agent);
			detail = pnstrdup(detail, pg_mbcliplen(detail, strlen(detail), 500));
		}
		return sas_json_problem("http", title, detail, outcome->status, flight->id.run_id, flight->step);
	}
	detail = pstrdup(reply->error);
	mask(detail, strlen(detail), agent);
	title = reply->kind == SAS_REPLY_BROKEN ? "the service gave no usable answer" : "the service could not be reached";
	return sas_json_problem("transport", title, detail, 0, flight->id.run_id, flight->step);
}

static void
push_jsonb(JsonbParseState **state, Jsonb *jsonb)
{
	JsonbValue	v;

	if (JB_ROOT_IS_SCALAR(jsonb))
	{
		JsonbExtractScalar(&jsonb->root, &v);
		pushJsonbValue(state, WJB_VALUE, &v);
		return;
	}
	v.type = jbvBinary;
	v.val.binary.data = &jsonb->root;
	v.val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
	pushJsonbValue(state, WJB_VALUE, &v);
}

static void
push_body(JsonbParseState **state, const SasReply *reply, const SasStoredAgent *agent, char *body)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	v = {.type = jbvNull};
	Jsonb	   *parsed;
	bool		is_text;

	key.val.string.val = "body";
	key.val.string.len = 4;
	pushJsonbValue(state, WJB_KEY, &key);
	if (reply->body_len == 0)
	{
		pushJsonbValue(state, WJB_VALUE, &v);
		return;
	}
	is_text = memchr(body, '\0', reply->body_len) == NULL &&
		pg_verify_mbstr(GetDatabaseEncoding(), body, reply->body_len, true);
	if (is_text && says_json(reply->content_type) &&
		(parsed = parse_json(body)) != NULL)
	{
		if (agent->secrets != NIL)
		{
			/* an escape may have hidden a secret: look at it as PostgreSQL writes it */
			char	   *text = JsonbToCString(NULL, &parsed->root, VARSIZE(parsed));

			mask(text, strlen(text), agent);
			parsed = parse_json(text);
			body = text;
		}
		if (parsed != NULL)
		{
			push_jsonb(state, parsed);
			return;
		}
	}
	v.type = jbvString;
	if (is_text)
	{
		v.val.string.val = body;
		v.val.string.len = strlen(body);
		pushJsonbValue(state, WJB_VALUE, &v);
	}
	else
	{
		int			room = pg_b64_enc_len(reply->body_len);

		v.val.string.val = palloc(room);
		v.val.string.len = sas_compat_base64(body, reply->body_len, v.val.string.val, room);
		pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
		key.val.string.val = "base64";
		key.val.string.len = 6;
		pushJsonbValue(state, WJB_KEY, &key);
		pushJsonbValue(state, WJB_VALUE, &v);
		pushJsonbValue(state, WJB_END_OBJECT, NULL);
	}
}

/* One header: what is not text in this database's encoding is left out. */
static void
push_header_value(JsonbParseState **state, JsonbIteratorToken as, char *value)
{
	JsonbValue	v = {.type = jbvString};

	v.val.string.val = value;
	v.val.string.len = strlen(value);
	pushJsonbValue(state, as, &v);
}

static void
push_headers(JsonbParseState **state, const SasReply *reply, const SasStoredAgent *agent)
{
	char	  **names = palloc(sizeof(char *) * Max(reply->n_headers, 1));
	char	  **values = palloc(sizeof(char *) * Max(reply->n_headers, 1));
	int			n = 0;
	char	   *at = reply->headers;

	for (int i = 0; i < reply->n_headers; i++)
	{
		char	   *name = pstrdup(at);
		char	   *value = pstrdup(at + strlen(at) + 1);

		at += strlen(at) + 1;
		at += strlen(at) + 1;
		mask(name, strlen(name), agent);
		mask(value, strlen(value), agent);
		if (!pg_verify_mbstr(GetDatabaseEncoding(), name, strlen(name), true) ||
			!pg_verify_mbstr(GetDatabaseEncoding(), value, strlen(value), true))
			continue;
		for (char *p = name; *p; p++)
			if (*p == '-')
				*p = '_';
		names[n] = name;
		values[n++] = value;
	}
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < n; i++)
	{
		JsonbValue	key = {.type = jbvString};
		int			more = 0;

		if (names[i] == NULL)
			continue;
		for (int k = i + 1; k < n; k++)
			if (names[k] != NULL && strcmp(names[k], names[i]) == 0)
				more++;
		key.val.string.val = names[i];
		key.val.string.len = strlen(names[i]);
		pushJsonbValue(state, WJB_KEY, &key);
		if (more == 0)
		{
			push_header_value(state, WJB_VALUE, values[i]);
			continue;
		}
		pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
		push_header_value(state, WJB_ELEM, values[i]);
		for (int k = i + 1; k < n; k++)
			if (names[k] != NULL && strcmp(names[k], names[i]) == 0)
			{
				push_header_value(state, WJB_ELEM, values[k]);
				names[k] = NULL;
			}
		pushJsonbValue(state, WJB_END_ARRAY, NULL);
	}
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

Jsonb *
sas_outcome_output(const SasReply *reply, const SasStoredAgent *agent)
{
	JsonbParseState *state = NULL;
	JsonbValue	key = {.type = jbvString};
	JsonbValue	v = {.type = jbvNumeric};
	char	   *body = NULL;

	if (reply->body_len > 0)
	{
		body = palloc(reply->body_len + 1);
		memcpy(body, reply->body, reply->body_len);
		body[reply->body_len] = '\0';
		mask(body, reply->body_len, agent);
	}
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	key.val.string.val = "status";
	key.val.string.len = 6;
	pushJsonbValue(&state, WJB_KEY, &key);
	v.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum((int) reply->status)));
	pushJsonbValue(&state, WJB_VALUE, &v);
	key.val.string.val = "headers";
	key.val.string.len = 7;
	pushJsonbValue(&state, WJB_KEY, &key);
	push_headers(&state, reply, agent);
	push_body(&state, reply, agent, body);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
