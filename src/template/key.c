/* SPDX-License-Identifier: PostgreSQL */
/*
 * key.c
 *		The Idempotency-Key of a step.
 *
 * The first half of SHA-256 over "trace/step/element", or "trace/step/element/undo", written as a
 * UUID: every attempt of every worker gets the same key, and no key helps to guess another one.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "template/template.h"

static char *
key_uuid_text(const unsigned char *bytes)
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

char *
sas_template_step_key(const pg_uuid_t *trace, const char *step, int element, bool undo)
{
	char	   *of = psprintf("%s/%s/%d%s", key_uuid_text(trace->data), step, element, undo ? "/undo" : "");
	uint8		sum[PG_SHA256_DIGEST_LENGTH];
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(hash) < 0 || pg_cryptohash_update(hash, (uint8 *) of, strlen(of)) < 0 ||
		pg_cryptohash_final(hash, sum, sizeof(sum)) < 0)
		elog(ERROR, "could not compute a key: %s", pg_cryptohash_error(hash));
	pg_cryptohash_free(hash);
	return key_uuid_text(sum);
}
