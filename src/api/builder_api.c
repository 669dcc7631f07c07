/* SPDX-License-Identifier: PostgreSQL */
/*
 * builder_api.c: sas.sequence() and sas.concurrence(): parts of a flow.
 *
 * Their parts are names, which are text, and other parts, which are jsonb,
 * side by side.  VARIADIC "any" takes both, and only C functions can have
 * it.  Parts may also come as one array (VARIADIC), which must not be null.
 * A null part becomes a JSON null, which sas.create_workflow refuses.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

PG_FUNCTION_INFO_V1(sas_api_sequence);
PG_FUNCTION_INFO_V1(sas_api_concurrence);

/* {"key": [parts]} */
static Datum
builder_api_part(FunctionCallInfo fcinfo, char *key)
{
	Jsonb	   *parts;
	JsonbParseState *state = NULL;
	JsonbValue	name = {.type = jbvString};
	JsonbValue	value = {.type = jbvBinary};

	/* jsonb_build_array() would return NULL for it */
	if (get_fn_expr_variadic(fcinfo->flinfo) && PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the parts of a %s must not be null", key),
				 errdetail("At /parts."),
				 errhint("Pass an array of the names of steps, which may be empty.")));
	parts = DatumGetJsonbP(jsonb_build_array(fcinfo));
	name.val.string.val = key;
	name.val.string.len = strlen(key);
	value.val.binary.data = &parts->root;
	value.val.binary.len = VARSIZE(parts) - VARHDRSZ;
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &name);
	pushJsonbValue(&state, WJB_VALUE, &value);
	PG_RETURN_JSONB_P(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
}

Datum
sas_api_sequence(PG_FUNCTION_ARGS)
{
	return builder_api_part(fcinfo, "sequence");
}

Datum
sas_api_concurrence(PG_FUNCTION_ARGS)
{
	return builder_api_part(fcinfo, "concurrence");
}
