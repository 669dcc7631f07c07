/* SPDX-License-Identifier: PostgreSQL */
/*
 * outcome.c: statuses (RFC 9110, section 15), and the jsonb that is stored of
 * an answer.
 *
 * A request that was refused before it was processed (408, 425, 429, 503)
 * was not carried out.  Any other failure after the connection was made
 * leaves that in doubt.
 */
#include "postgres.h"

#include "base/utf8.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "template/template.h"
#include "work/json.h"
#include "work/keep.h"
#include "work/outcome.h"
#include "work/value.h"

/* Is the status among "404", "2xx", ...? */
static bool
outcome_is_among(Jsonb *statuses, int status)
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
		text = sas_work_json_text(&v);
		if (text != NULL && strlen(text) == 3 && text[0] == '0' + status / 100 &&
			(strcmp(text + 1, "xx") == 0 || atoi(text) == status))
			return true;
	}
	return false;
}

void
sas_work_outcome_of(const SasReply *reply, Jsonb *expect, Jsonb *retry_on, SasOutcome *outcome)
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
	if (outcome_is_among(expect, status))
	{
		outcome->kind = SAS_OUTCOME_DONE;
		outcome->fault = false;
	}
	else if (status >= 200 && status < 300)
		outcome->kind = SAS_OUTCOME_DONE;
	else if (status == 408 || status == 425 || status == 429 || status >= 500 || outcome_is_among(retry_on, status))
	{
		outcome->kind = SAS_OUTCOME_TRANSIENT;
		outcome->in_doubt = status >= 500 && status != 503;
		outcome->retry_after_ms = sas_transport_retry_after_ms(reply);
	}
	else
		outcome->kind = SAS_OUTCOME_PERMANENT;
}

static bool
outcome_is_json(const char *content_type)
{
	size_t		len;

	if (content_type == NULL)
		return false;
	len = strcspn(content_type, "; \t");
	return (len == 16 && pg_strncasecmp(content_type, "application/json", 16) == 0) ||
		(len > 5 && pg_strncasecmp(content_type + len - 5, "+json", 5) == 0);
}

Jsonb *
sas_work_outcome_problem(const SasReply *reply, const SasStoredAgent *agent, const SasOutcome *outcome, const char *instance)
{
	char	   *detail = NULL;
	const char *title;
	Jsonb	   *parsed;

	if (reply->kind == SAS_REPLY_HTTP)
	{
		title = psprintf("the service answered %d", outcome->status);
		if (sas_work_keeps_parts(agent))
			detail = sas_work_kept_text(sas_work_outcome_output(reply, agent));
		else
			detail = reply->body_len > 0 ? sas_base_utf8_text(reply->body, reply->body_len) : NULL;
		if (detail != NULL)
		{
			/* masked before it is cut, or the cut might hide a secret's end */
			if (agent->secrets != NIL && outcome_is_json(reply->content_type) && (parsed = sas_work_value_parse(detail)) != NULL)
				detail = JsonbToCString(NULL, &parsed->root, VARSIZE(parsed));	/* no escape hides one */
			sas_work_value_mask(detail, strlen(detail), agent);
			detail = pnstrdup(detail, pg_mbcliplen(detail, strlen(detail), 500));
		}
		return sas_work_json_problem("http", title, detail, outcome->status, instance);
	}
	detail = pstrdup(reply->error);
	sas_work_value_mask(detail, strlen(detail), agent);
	title = reply->kind == SAS_REPLY_BROKEN ? "the service gave no usable answer" : "the service could not be reached";
	return sas_work_json_problem("transport", title, detail, 0, instance);
}

static void
outcome_push_text(JsonbParseState **state, JsonbIteratorToken as, char *text)
{
	JsonbValue	v = {.type = jbvString};

	v.val.string.val = text;
	v.val.string.len = strlen(text);
	pushJsonbValue(state, as, &v);
}

/*
 * All names, or all values, one after the other. A secret may be split over several: they are masked as if
 * they were one. The length stays.
 */
static char *
outcome_mask_parts(const SasReply *reply, const SasStoredAgent *agent, bool values)
{
	StringInfoData all;
	char	   *at = reply->headers;
	int		   *ends = palloc(sizeof(int) * Max(reply->n_headers, 1));

	initStringInfo(&all);
	for (int i = 0; i < reply->n_headers; i++)
	{
		char	   *value = at + strlen(at) + 1;

		appendStringInfoString(&all, values ? value : at);
		ends[i] = all.len;
		at = value + strlen(value) + 1;
	}
	sas_work_value_mask_secrets(all.data, all.len, agent);
	/* a token ends with its header */
	for (int i = 0, begin = 0, len; i < reply->n_headers; i++, begin += len)
	{
		len = ends[i] - begin;
		sas_work_value_mask_bearer(all.data + begin, len, agent);
	}
	return all.data;
}

typedef struct OutcomeHeader
{
	char	   *name;
	char	   *value;
	int			n;				/* its place in the answer */
} OutcomeHeader;

/* By name, and those of one name in their order. */
static int
outcome_compare_headers(const void *a, const void *b)
{
	const OutcomeHeader *x = a;
	const OutcomeHeader *y = b;
	int			names = strcmp(x->name, y->name);

	return names != 0 ? names : x->n - y->n;
}

/* What is not text, or does not fit into this database's encoding, is left out. How many are not. */
static int
outcome_read_headers(const SasReply *reply, const SasStoredAgent *agent, OutcomeHeader *headers)
{
	char	   *names = outcome_mask_parts(reply, agent, false);
	char	   *values = outcome_mask_parts(reply, agent, true);
	char	   *at = reply->headers;
	int			n = 0;

	for (int i = 0; i < reply->n_headers; i++)
	{
		size_t		name_len = strlen(at);
		size_t		value_len = strlen(at + name_len + 1);
		char	   *name = sas_base_utf8_text(names, name_len);
		char	   *value = sas_base_utf8_text(values, value_len);

		at += name_len + value_len + 2;
		names += name_len;
		values += value_len;
		if (name == NULL || value == NULL)
			continue;
		for (char *p = name; *p; p++)
			if (*p == '-')
				*p = '_';
		headers[n] = (OutcomeHeader) {name, value, n};
		n++;
	}
	return n;
}

/* A service may send tens of thousands: they are sorted, not compared with each other. */
static Jsonb *
outcome_headers(const SasReply *reply, const SasStoredAgent *agent)
{
	OutcomeHeader *headers = palloc(sizeof(OutcomeHeader) * Max(reply->n_headers, 1));
	int			n = outcome_read_headers(reply, agent, headers);
	JsonbParseState *state = NULL;

	qsort(headers, n, sizeof(OutcomeHeader), outcome_compare_headers);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0, next; i < n; i = next)
	{
		next = i + 1;
		while (next < n && strcmp(headers[next].name, headers[i].name) == 0)
			next++;
		outcome_push_text(&state, WJB_KEY, headers[i].name);
		if (next == i + 1)
		{
			outcome_push_text(&state, WJB_VALUE, headers[i].value);
			continue;
		}
		pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
		for (int k = i; k < next; k++)
			outcome_push_text(&state, WJB_ELEM, headers[k].value);
		pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static void
outcome_set_member(JsonbPair *pair, char *name, Jsonb *value)
{
	pair->key.type = jbvString;
	pair->key.val.string.val = name;
	pair->key.val.string.len = strlen(name);
	sas_template_object_value(&pair->value, value);
}

Jsonb *
sas_work_outcome_output(const SasReply *reply, const SasStoredAgent *agent)
{
	JsonbPair	pairs[3];
	JsonbValue	status = {.type = jbvNumeric};
	JsonbValue	nothing = {.type = jbvNull};

	status.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum((int) reply->status)));
	outcome_set_member(&pairs[0], "status", JsonbValueToJsonb(&status));
	outcome_set_member(&pairs[1], "headers", outcome_headers(reply, agent));
	outcome_set_member(&pairs[2], "body", reply->body_len == 0 ? JsonbValueToJsonb(&nothing) :
					   sas_work_value(reply->body, reply->body_len, outcome_is_json(reply->content_type), agent));
	return sas_work_keep(agent, sas_template_object(pairs, lengthof(pairs)));
}
