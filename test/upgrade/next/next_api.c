/* SPDX-License-Identifier: PostgreSQL */
/*
 * next_api.c: a function that only the library of the next version has.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "base/version.h"

PG_FUNCTION_INFO_V1(sas_api_next);

Datum
sas_api_next(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(SAS_VERSION));
}
