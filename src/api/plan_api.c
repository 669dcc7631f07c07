/* SPDX-License-Identifier: PostgreSQL */
/*
 * plan_api.c: calls plan functions and the middleware of phase plan inside
 * sas.submit, as the caller and in the caller's transaction.
 */
#include "postgres.h"

#include "agent/perform.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

PG_FUNCTION_INFO_V1(sas_api_call_as);

/* sas._call_as(role, function, input): what the function returns. Internal: granted to nobody. */
Datum
sas_api_call_as(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(sas_perform_in_place(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_JSONB_P(2)));
}
