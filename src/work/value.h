/* SPDX-License-Identifier: PostgreSQL */
/*
 * value.h: bytes from a service as jsonb, with the secrets of its agent masked.
 */
#ifndef SAS_WORK_VALUE_H
#define SAS_WORK_VALUE_H

#include "store/store.h"

/*
 * Overwrites each secret of the agent in the bytes, as it is, in UTF-8, as a
 * part of an address, as JSON writes it, escaped in part, as hexadecimal
 * digits, in base64, and in UTF-16 and UTF-32; the length stays.
 */
extern void sas_work_value_mask_secrets(char *bytes, size_t len, const SasStoredAgent *agent);

/*
 * Overwrites what follows the word Bearer, for an agent with access tokens: it
 * may be one of another worker, which this one does not know.
 */
extern void sas_work_value_mask_bearer(char *bytes, size_t len, const SasStoredAgent *agent);

/* Both. */
extern void sas_work_value_mask(char *bytes, size_t len, const SasStoredAgent *agent);

/* Text as jsonb when it is JSON that fits; NULL when it is not. */
extern Jsonb *sas_work_value_parse(char *text);

/* The bytes: JSON if json is set and it is, else text, else {"base64"}. */
extern Jsonb *sas_work_value(const char *bytes, size_t len, bool json, const SasStoredAgent *agent);

/* Pushes that; as: WJB_VALUE or WJB_ELEM. */
extern void sas_work_value_push(JsonbParseState **state, JsonbIteratorToken as, const char *bytes, size_t len, bool json, const SasStoredAgent *agent);

#endif							/* SAS_WORK_VALUE_H */
