/* SPDX-License-Identifier: PostgreSQL */
/*
 * digest.c: hashes of bytes, and bytes as text; see digest.h.
 */
#include "postgres.h"

#include "common/base64.h"
#include "common/hmac.h"
#include "utils/builtins.h"
#include "utils/resowner.h"

#include "base/compat.h"
#include "base/digest.h"

/* The server wants a resource owner for each computation, and workers have none outside of a transaction. */
static ResourceOwner
digest_own(void)
{
	static ResourceOwner owner = NULL;
	ResourceOwner before = CurrentResourceOwner;

	if (owner == NULL)
		owner = ResourceOwnerCreate(NULL, "sas digest");
	CurrentResourceOwner = owner;
	return before;
}

void
sas_base_digest(pg_cryptohash_type type, const char *bytes, size_t len, uint8 *sum, size_t sum_len)
{
	ResourceOwner before = digest_own();
	pg_cryptohash_ctx *hash = pg_cryptohash_create(type);
	bool		done = hash != NULL && pg_cryptohash_init(hash) >= 0 &&
		pg_cryptohash_update(hash, (const uint8 *) bytes, len) >= 0 && pg_cryptohash_final(hash, sum, sum_len) >= 0;

	pg_cryptohash_free(hash);
	CurrentResourceOwner = before;
	if (!done)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a digest")));
}

bool
sas_base_hmac(const char *secret, size_t secret_len, const char *head, const char *body, size_t body_len, uint8 *sum)
{
	ResourceOwner before = digest_own();
	pg_hmac_ctx *hmac = pg_hmac_create(PG_SHA256);
	bool		done = hmac != NULL &&
		pg_hmac_init(hmac, (const uint8 *) secret, secret_len) == 0 &&
		pg_hmac_update(hmac, (const uint8 *) head, strlen(head)) == 0 &&
		pg_hmac_update(hmac, (const uint8 *) body, body_len) == 0 &&
		pg_hmac_final(hmac, sum, PG_SHA256_DIGEST_LENGTH) == 0;

	pg_hmac_free(hmac);
	CurrentResourceOwner = before;
	return done;
}

char *
sas_base_base64(const void *bytes, int len)
{
	int			room = pg_b64_enc_len(len) + 1;
	char	   *text = palloc0(room);

	(void) sas_compat_base64(bytes, len, text, room);
	return text;
}

char *
sas_base_hex(const void *bytes, size_t len)
{
	char	   *text = palloc0(2 * len + 1);

	hex_encode(bytes, len, text);
	return text;
}
