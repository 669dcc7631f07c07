/* SPDX-License-Identifier: PostgreSQL */
/*
 * digest.h: hashes of bytes, and bytes as text. Whether a transaction is open or not.
 */
#ifndef SAS_BASE_DIGEST_H
#define SAS_BASE_DIGEST_H

#include "common/cryptohash.h"
#include "common/sha1.h"
#include "common/sha2.h"

/* The sum of these bytes, of sum_len bytes. An ERROR if it cannot be computed. */
extern void sas_base_digest(pg_cryptohash_type type, const char *bytes, size_t len, uint8 *sum, size_t sum_len);

/* HMAC-SHA256 of head and body; false: it could not be computed. */
extern bool sas_base_hmac(const char *secret, size_t secret_len, const char *head, const char *body, size_t body_len, uint8 *sum);

/* palloc'd */
extern char *sas_base_base64(const void *bytes, int len);
extern char *sas_base_hex(const void *bytes, size_t len);

#endif							/* SAS_BASE_DIGEST_H */
