/* SPDX-License-Identifier: PostgreSQL */
/*
 * sign.c: signatures of calls, by which a service knows who sent them.
 *
 * standard-webhooks: the specification "Standard Webhooks" 1.0: the headers
 * webhook-id, webhook-timestamp and webhook-signature, the last with one
 * signature per secret, so that a service can change its secret without a gap.
 *
 * hmac-sha256: one header with the digits of HMAC-SHA256 (RFC 2104) over the
 * body, or over "<seconds>.<body>" where a header tells the seconds.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/digest.h"
#include "common/base64.h"
#include "lib/stringinfo.h"
#include "utils/timestamp.h"
#include "work/json.h"
#include "work/request.h"
#include "work/sign.h"

#define SIGN_WEBHOOK_PREFIX "whsec_"

/* NULL, or why there is no signature. */
static const char *
sign_digest(const char *secret, size_t secret_len, const char *head, const SasCall *call, uint8 *digest)
{
	return sas_base_hmac(secret, secret_len, head, call->body != NULL ? call->body : "", call->body_len, digest) ? NULL :
		"the signature could not be computed";
}

/* ----------------------------------------------------------- standard-webhooks */

/* Adds "v1,<signature>" by one secret: base64, with or without whsec_ before it. */
static const char *
sign_add_webhook(StringInfo signatures, const JsonbValue *secret, const char *head, const SasCall *call)
{
	char	   *text = secret->type == jbvString ? pnstrdup(secret->val.string.val, secret->val.string.len) : "";
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	const char *why;
	char	   *bytes;
	int			len;

	if (strncmp(text, SIGN_WEBHOOK_PREFIX, strlen(SIGN_WEBHOOK_PREFIX)) == 0)
		text += strlen(SIGN_WEBHOOK_PREFIX);
	bytes = palloc(pg_b64_dec_len(strlen(text)) + 1);
	len = sas_compat_base64_decode(text, strlen(text), bytes, pg_b64_dec_len(strlen(text)));
	if (len <= 0)
		return "the secret of its signature is not base64";
	why = sign_digest(bytes, len, head, call, digest);
	explicit_bzero(bytes, len);
	if (why == NULL)
		appendStringInfo(signatures, "%sv1,%s", signatures->len > 0 ? " " : "", sas_base_base64(digest, sizeof(digest)));
	return why;
}

static const char *
sign_as_webhook(SasCall *call, const char *id, const char *seconds, const JsonbValue *secret)
{
	char	   *head = psprintf("%s.%s.", id, seconds);
	StringInfoData signatures;
	const char *why = NULL;

	initStringInfo(&signatures);
	if (secret->type == jbvBinary)
		for (uint32 i = 0; why == NULL && i < JsonContainerSize(secret->val.binary.data); i++)
			why = sign_add_webhook(&signatures, getIthJsonbValueFromContainer(secret->val.binary.data, i), head, call);
	else
		why = sign_add_webhook(&signatures, secret, head, call);
	if (why != NULL)
		return why;
	sas_work_call_set_header(call, "webhook-id", id);
	sas_work_call_set_header(call, "webhook-timestamp", seconds);
	sas_work_call_set_header(call, "webhook-signature", signatures.data);
	return NULL;
}

/* ----------------------------------------------------------------- hmac-sha256 */

static const char *
sign_as_hmac(SasCall *call, const char *seconds, const JsonbValue *secret, Jsonb *sign)
{
	const char *header = sas_work_json_string(sign, "header");
	const char *prefix = sas_work_json_string(sign, "prefix");
	const char *encoding = sas_work_json_string(sign, "encoding");
	const char *timestamp_header = sas_work_json_string(sign, "timestamp_header");
	const char *head = timestamp_header != NULL ? psprintf("%s.", seconds) : "";
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	const char *why;

	if (secret->type != jbvString || secret->val.string.len == 0)
		return "the secret of its signature is empty";
	why = sign_digest(secret->val.string.val, secret->val.string.len, head, call, digest);
	if (why != NULL)
		return why;
	if (timestamp_header != NULL)
		sas_work_call_set_header(call, timestamp_header, seconds);
	sas_work_call_set_header(call, header != NULL ? header : "X-Signature",
					psprintf("%s%s", prefix != NULL ? prefix : "",
							 encoding != NULL && strcmp(encoding, "base64") == 0 ? sas_base_base64(digest, sizeof(digest)) :
							 sas_base_hex(digest, sizeof(digest))));
	return NULL;
}

static const char *
sign_random_id(void)
{
	uint8		bytes[16];

	if (!pg_strong_random(bytes, sizeof(bytes)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));
	return sas_base_hex(bytes, sizeof(bytes));
}

const char *
sas_work_sign(SasCall *call, const SasStoredAgent *agent, const char *key)
{
	JsonbValue	value;
	JsonbValue	secret;
	Jsonb	   *sign;
	const char *scheme;
	char	   *seconds;

	if (!sas_work_json_member(agent->options, "sign", &value) || value.type != jbvBinary)
		return NULL;
	sign = JsonbValueToJsonb(&value);
	scheme = sas_work_json_string(sign, "scheme");
	if (!sas_work_json_member(sign, "secret", &secret))
		return "the secret of its signature is empty";
	seconds = psprintf(INT64_FORMAT, (int64) timestamptz_to_time_t(sas_base_clock_now()));
	if (scheme != NULL && strcmp(scheme, "standard-webhooks") == 0)
		return sign_as_webhook(call, key != NULL ? key : sign_random_id(), seconds, &secret);
	return sign_as_hmac(call, seconds, &secret, sign);
}
