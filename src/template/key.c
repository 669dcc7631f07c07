/* SPDX-License-Identifier: PostgreSQL */
/*
 * key.c
 *		The Idempotency-Key of a step.
 *
 * The first half of SHA-256 over "trace/step/element", or "trace/step/element/undo", written as a
 * UUID: every attempt of every worker gets the same key, and no key helps to guess another one.
 */
#include "postgres.h"

#include "base/digest.h"
#include "template/template.h"
#include "utils/fmgrprotos.h"

static char *
key_uuid_text(const void *bytes)
{
	return DatumGetCString(DirectFunctionCall1(uuid_out, PointerGetDatum(bytes)));
}

char *
sas_template_step_key(const pg_uuid_t *trace, const char *step, int element, bool undo)
{
	char	   *of = psprintf("%s/%s/%d%s", key_uuid_text(trace->data), step, element, undo ? "/undo" : "");
	uint8		sum[PG_SHA256_DIGEST_LENGTH];

	sas_base_digest(PG_SHA256, of, strlen(of), sum, sizeof(sum));
	return key_uuid_text(sum);
}
