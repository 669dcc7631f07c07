/* SPDX-License-Identifier: PostgreSQL */
/*
 * key.c: the Idempotency-Key of a step.
 *
 * The first half of SHA-256 over "trace/step/element", or
 * "trace/step/element/undo", written as a UUID: the same in every attempt of
 * every worker, and of no use for guessing another one.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/uuid.h"

PG_FUNCTION_INFO_V1(sas_api_step_key);

static char *
uuid_text(const unsigned char *bytes)
{
	static const char digits[] = "0123456789abcdef";
	char	   *text = palloc(2 * UUID_LEN + 4 + 1);
	char	   *at = text;

	for (int i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 0xf];
	}
	*at = '\0';
	return text;
}

Datum
sas_api_step_key(PG_FUNCTION_ARGS)
{
	char	   *of = psprintf("%s/%s/%d%s", uuid_text(PG_GETARG_UUID_P(0)->data), text_to_cstring(PG_GETARG_TEXT_PP(1)),
							  PG_GETARG_INT32(2), PG_GETARG_BOOL(3) ? "/undo" : "");
	uint8		sum[PG_SHA256_DIGEST_LENGTH];
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(hash) < 0 || pg_cryptohash_update(hash, (uint8 *) of, strlen(of)) < 0 ||
		pg_cryptohash_final(hash, sum, sizeof(sum)) < 0)
		elog(ERROR, "could not compute a key: %s", pg_cryptohash_error(hash));
	pg_cryptohash_free(hash);
	PG_RETURN_TEXT_P(cstring_to_text(uuid_text(sum)));
}
