/* SPDX-License-Identifier: PostgreSQL */
/*
 * transition_api.c: the legal changes of state, as functions in SQL.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"
#include "store/transitions.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sas_api_legal_state);
PG_FUNCTION_INFO_V1(sas_api_announce_transitions);

Datum
sas_api_legal_state(PG_FUNCTION_ARGS)
{
	text	   *to = PG_GETARG_TEXT_PP(2);

	if (!sas_store_is_legal(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)), text_to_cstring(to)))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(to);
}

Datum
sas_api_announce_transitions(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");
	sas_store_announce_transitions();
	PG_RETURN_POINTER(NULL);
}
