/* SPDX-License-Identifier: PostgreSQL */
/*
 * oauth.c: asks token services for access tokens, one request for all
 * calls of an agent.
 *
 * Requests for tokens have a transport of their own: they are no calls of
 * steps, take no place of their agent, and never wait behind its calls.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/digest.h"
#include "lib/ilist.h"
#include "template/url.h"
#include "utils/memutils.h"
#include "work/agents.h"
#include "work/json.h"
#include "work/oauth.h"
#include "work/request.h"
#include "work/secrets.h"
#include "work/value.h"

#define OAUTH_REQUESTS 64		/* at once; more wait for a second */
#define OAUTH_ANSWER ((size_t) 256 * 1024)
#define OAUTH_MAX 16384			/* bytes of a token */
#define OAUTH_LIFE_S 3600.0		/* of a token whose service does not say */
#define OAUTH_EARLY_S 60.0		/* before its end it is renewed, or at nine tenths of its life */
#define OAUTH_PAUSE_MS 1000.0	/* after a failure, doubled each time */
#define OAUTH_MAX_PAUSE_MS 30000.0

typedef struct AccessToken
{
	dlist_node	node;
	MemoryContext context;
	int			agent_id;
	Jsonb	   *asked_with;		/* the option, secrets filled in */
	char	   *token;			/* NULL: none */
	int64		got_us;
	int64		renew_us;
	int64		expires_us;
	void	   *handle;			/* of the request for a token; NULL: none is in flight */
	char	   *why;			/* why the last request failed; NULL: it did not */
	double		pause_ms;
	int64		again_us;		/* no request before */
	int64		refused_us;		/* when a service refused the last token that was dropped for that; 0: none */
	bool		news;
} AccessToken;

static dlist_head oauth_tokens = DLIST_STATIC_INIT(oauth_tokens);
static SasTransport *oauth_transport = NULL;
static SasTransport *oauth_calls;
static MemoryContext oauth_context;

void
sas_work_tokens_open(SasTransport *calls)
{
	oauth_calls = calls;
	oauth_context = AllocSetContextCreate(CurrentMemoryContext, "sas access tokens", ALLOCSET_SMALL_SIZES);
}

void
sas_work_tokens_close(void)
{
	if (oauth_transport != NULL)
		sas_transport_close(oauth_transport);
	oauth_transport = NULL;
}

static void
oauth_drop(AccessToken *t)
{
	if (t->token == NULL)
		return;
	explicit_bzero(t->token, strlen(t->token));
	pfree(t->token);
	t->token = NULL;
}

static void
oauth_free(AccessToken *t)
{
	if (t->handle != NULL)
		sas_transport_stop_call(oauth_transport, t->handle);
	oauth_drop(t);
	dlist_delete(&t->node);
	MemoryContextDelete(t->context);
}

static AccessToken *
oauth_find(int agent_id)
{
	dlist_iter	iter;

	dlist_foreach(iter, &oauth_tokens)
	{
		AccessToken *t = dlist_container(AccessToken, node, iter.cur);

		if (t->agent_id == agent_id)
			return t;
	}
	return NULL;
}

/* That of the agent as it is now: what was got with another secret, or elsewhere, goes. */
static AccessToken *
oauth_of(const SasStoredAgent *agent, Jsonb *option)
{
	AccessToken *t = oauth_find(agent->agent_id);
	MemoryContext context;

	if (t != NULL && VARSIZE(t->asked_with) == VARSIZE(option) && memcmp(t->asked_with, option, VARSIZE(option)) == 0)
		return t;
	if (t != NULL)
		oauth_free(t);
	context = AllocSetContextCreate(oauth_context, "sas access token", ALLOCSET_SMALL_SIZES);
	t = MemoryContextAllocZero(context, sizeof(AccessToken));
	t->context = context;
	t->agent_id = agent->agent_id;
	t->asked_with = sas_work_json_copy(context, option);
	t->pause_ms = OAUTH_PAUSE_MS;
	dlist_push_tail(&oauth_tokens, &t->node);
	return t;
}

void
sas_work_token_forget(int agent_id)
{
	AccessToken *t = oauth_find(agent_id);

	if (t != NULL)
		oauth_free(t);
}

static void
oauth_fail(AccessToken *t, const char *why)
{
	if (t->why != NULL)
		pfree(t->why);
	t->why = MemoryContextStrdup(t->context, why);
	t->again_us = sas_base_clock_monotonic_us() + (int64) (t->pause_ms * 1000);
	t->pause_ms = Min(t->pause_ms * 2, OAUTH_MAX_PAUSE_MS);
}

/* ------------------------------------------------------------------ the request */

static void
oauth_add_field(StringInfo form, const char *name, const char *value)
{
	if (form->len > 0)
		appendStringInfoChar(form, '&');
	sas_template_encode(form, name, strlen(name));
	appendStringInfoChar(form, '=');
	sas_template_encode(form, value, strlen(value));
}

/* RFC 6749, section 2.3.1: both are encoded like fields of a form before they become user and password. */
static char *
oauth_basic(const char *id, const char *secret)
{
	StringInfoData pair;

	initStringInfo(&pair);
	sas_template_encode(&pair, id, strlen(id));
	appendStringInfoChar(&pair, ':');
	sas_template_encode(&pair, secret, strlen(secret));
	return psprintf("Authorization: Basic %s", sas_base_base64(pair.data, pair.len));
}

static void
oauth_add_params(StringInfo form, Jsonb *option)
{
	JsonbValue	params;
	JsonbIterator *it;
	JsonbIteratorToken part;
	JsonbValue	v;
	char	   *name = NULL;

	if (!sas_work_json_member(option, "params", &params) || params.type != jbvBinary)
		return;
	it = JsonbIteratorInit(params.val.binary.data);
	while ((part = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (part == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		else if (part == WJB_VALUE && name != NULL && v.type == jbvString)
			oauth_add_field(form, name, pnstrdup(v.val.string.val, v.val.string.len));
	}
}

/* NULL, or why it cannot be asked for. */
static const char *
oauth_request(AccessToken *t, const SasStoredAgent *agent)
{
	Jsonb	   *option = t->asked_with;
	char	   *id = sas_work_json_string(option, "client_id");
	char	   *secret = sas_work_json_string(option, "client_secret");
	char	   *scope = sas_work_json_string(option, "scope");
	char	   *auth = sas_work_json_string(option, "auth");
	bool		in_body = auth != NULL && strcmp(auth, "body") == 0;
	const char *headers[3] = {"Content-Type: application/x-www-form-urlencoded", "Accept: application/json", NULL};
	char	   *errbuf = palloc0(256);
	StringInfoData form;
	SasSent		sent = {.method = "POST"};
	SasCall		call;

	if (id == NULL || secret == NULL)
		return "client_id or client_secret is missing";
	initStringInfo(&form);
	oauth_add_field(&form, "grant_type", "client_credentials");
	if (scope != NULL)
		oauth_add_field(&form, "scope", scope);
	oauth_add_params(&form, option);
	if (in_body)
	{
		oauth_add_field(&form, "client_id", id);
		oauth_add_field(&form, "client_secret", secret);
	}
	else
		headers[2] = oauth_basic(id, secret);
	sent.url = sas_work_json_string(option, "token_url");
	sent.body = form.data;
	sent.body_len = form.len;
	sas_work_request_call(&sent, (SasStoredAgent *) agent, &call);
	call.headers = headers;
	call.n_headers = in_body ? 2 : 3;
	call.timeout_ms = Max(1, (long) agent->request_timeout_ms);
	call.max_response = OAUTH_ANSWER;
	call.follow_redirects = false;
	call.owner = t;
	sas_work_call_in_utf8(&call);
	t->handle = sas_transport_start(oauth_transport, &call, errbuf, 256);
	return t->handle == NULL ? errbuf : NULL;
}

/* The transport is opened when an agent first needs it. */
static const char *
oauth_begin(AccessToken *t, const SasStoredAgent *agent)
{
	char	   *errbuf = palloc0(256);

	if (oauth_transport == NULL)
	{
		oauth_transport = sas_transport_open(OAUTH_REQUESTS, errbuf, 256);
		if (oauth_transport == NULL)
			return errbuf;
		if (!sas_transport_join(oauth_calls, oauth_transport))
		{
			sas_work_tokens_close();
			return "its descriptor does not support waiting";
		}
	}
	return oauth_request(t, agent);
}

SasTokenState
sas_work_token_ask(const SasStoredAgent *agent, const char **what)
{
	int64		now = sas_base_clock_monotonic_us();
	JsonbValue	value;
	AccessToken *t;
	const char *why = NULL;

	if (!sas_work_json_member(agent->options, "oauth2", &value) || value.type != jbvBinary)
		return SAS_TOKEN_NONE;
	t = oauth_of(agent, JsonbValueToJsonb(&value));
	if (t->token != NULL && now >= t->expires_us)
		oauth_drop(t);
	if (t->handle == NULL && now >= t->again_us && (t->token == NULL || now >= t->renew_us))
	{
		why = oauth_begin(t, agent);
		if (why != NULL)
			oauth_fail(t, why);
	}
	*what = t->token != NULL ? t->token : t->why;
	return t->token != NULL ? SAS_TOKEN_READY : t->handle != NULL ? SAS_TOKEN_COMES : SAS_TOKEN_FAILED;
}

void
sas_work_token_add(SasCall *call, const char *token)
{
	sas_work_call_set_header(call, "Authorization", psprintf("Bearer %s", token));
}

void
sas_work_token_refused(int agent_id, const char *token)
{
	AccessToken *t = oauth_find(agent_id);
	int64		now = sas_base_clock_monotonic_us();
	int64		just_now = now - (int64) (OAUTH_PAUSE_MS * 1000);

	/* others may have noticed before */
	if (t == NULL || t->token == NULL || strcmp(t->token, token) != 0)
		return;
	/* a service that refuses each token is no reason to ask for one after the other without a pause */
	if (t->refused_us > just_now && t->got_us > just_now)
		return;
	t->refused_us = now;
	oauth_drop(t);
}

/* ------------------------------------------------------------------- the answer */

/*
 * The error code of the answer, if it is one of RFC 6749, section 5.2. No
 * other part of the answer is reported.
 */
static const char *
oauth_error_word(Jsonb *answer)
{
	static const char *const words[] = {
		"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"
	};
	char	   *error = sas_work_json_string(answer, "error");

	for (int i = 0; error != NULL && i < lengthof(words); i++)
		if (strcmp(error, words[i]) == 0)
			return words[i];
	return NULL;
}

/* May the token stand in a header (RFC 6750, section 2.1)? */
static bool
oauth_is_usable(const char *token)
{
	size_t		len = token == NULL ? 0 : strlen(token);

	for (size_t i = 0; i < len; i++)
		if (token[i] <= ' ' || token[i] > '~')
			return false;
	return len > 0 && len <= OAUTH_MAX;
}

/* NULL: there is a new token; else why not. */
static const char *
oauth_read(AccessToken *t, const SasReply *reply)
{
	SasAgentEntry *agent = sas_work_agent(t->agent_id);
	Jsonb	   *answer;
	char	   *token;
	char	   *type;
	double		life_s;

	if (reply->kind != SAS_REPLY_HTTP)
		return psprintf("the token service could not be asked: %s", reply->error);
	answer = reply->body_len > 0 ? sas_work_value_parse(pnstrdup(reply->body, reply->body_len)) : NULL;
	if (answer != NULL && !JB_ROOT_IS_OBJECT(answer))
		answer = NULL;
	if (reply->status < 200 || reply->status > 299)
		return oauth_error_word(answer) != NULL ?
			psprintf("the token service answered %ld, %s", reply->status, oauth_error_word(answer)) :
			psprintf("the token service answered %ld", reply->status);
	token = sas_work_json_string(answer, "access_token");
	type = sas_work_json_string(answer, "token_type");
	if (type != NULL && pg_strcasecmp(type, "bearer") != 0)
		return "the token service gave a token of another type than Bearer";
	if (!oauth_is_usable(token))
		return "the answer of the token service has no usable access_token";
	life_s = sas_work_json_number(answer, "expires_in", OAUTH_LIFE_S);
	if (!(life_s >= 1))
		return "the token service gave a token that has expired";
	life_s = Min(life_s, 86400.0 * 365);
	oauth_drop(t);
	t->token = MemoryContextStrdup(t->context, token);
	/* a service may repeat it when another one is in use */
	if (agent != NULL)
		sas_work_secrets_learn(agent->stored, token);
	/* its life began before the answer arrived */
	t->got_us = reply->finished_us;
	t->expires_us = reply->started_us + (int64) (life_s * 1000000);
	t->renew_us = t->expires_us - (int64) (Min(OAUTH_EARLY_S, life_s / 10) * 1000000);
	explicit_bzero(token, strlen(token));
	return NULL;
}

static void
oauth_take(SasReply *reply)
{
	AccessToken *t = reply->owner;
	const char *why;

	t->handle = NULL;
	t->news = true;
	why = oauth_read(t, reply);
	if (why != NULL)
		oauth_fail(t, why);
	else
		t->pause_ms = OAUTH_PAUSE_MS;
	if (reply->body != NULL)
		explicit_bzero(reply->body, reply->body_len);
	sas_transport_reply_free(reply);
}

void
sas_work_tokens_move(void)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch;
	SasReply   *reply;

	if (oauth_transport == NULL)
		return;
	sas_transport_work(oauth_transport);
	while ((reply = sas_transport_next(oauth_transport)) != NULL)
	{
		scratch = AllocSetContextCreate(caller, "sas answer", ALLOCSET_SMALL_SIZES);
		MemoryContextSwitchTo(scratch);
		oauth_take(reply);
		MemoryContextSwitchTo(caller);
		MemoryContextDelete(scratch);
	}
}

int
sas_work_tokens_next_news(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &oauth_tokens)
	{
		AccessToken *t = dlist_container(AccessToken, node, iter.cur);

		if (t->news)
		{
			t->news = false;
			return t->agent_id;
		}
	}
	return 0;
}

int64
sas_work_tokens_wake_in_ms(void)
{
	return oauth_transport != NULL ? sas_transport_timeout_ms(oauth_transport) : -1;
}
