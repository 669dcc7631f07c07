/* SPDX-License-Identifier: PostgreSQL */
/*
 * plan_api.c: what SQL has to do with functions of users: in the transaction of
 * the caller, sas.submit calls plan functions as the caller and the middleware
 * of phase plan as its owners, and asks whether the caller may call the
 * functions of the steps.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "work/callable.h"
#include "work/invoke.h"
#include "work/middleware.h"

PG_FUNCTION_INFO_V1(sas_api_call_as);
PG_FUNCTION_INFO_V1(sas_api_may_call);
PG_FUNCTION_INFO_V1(sas_api_through_middleware);
PG_FUNCTION_INFO_V1(sas_api_middleware_answer);

/* _sas.call_as(caller, role, function, input): what the function returns. Internal: granted to nobody. */
Datum
sas_api_call_as(PG_FUNCTION_ARGS)
{
	PG_RETURN_JSONB_P(sas_work_invoke_in_place(PG_GETARG_OID(0), PG_GETARG_OID(1), text_to_cstring(PG_GETARG_TEXT_PP(2)), PG_GETARG_JSONB_P(3)));
}

/* _sas.may_call(role, functions): may the role call all of these? Internal: granted to nobody. */
Datum
sas_api_may_call(PG_FUNCTION_ARGS)
{
	Datum	   *names;
	int			n;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(1), &names, NULL, &n);
	for (int i = 0; i < n; i++)
		if (!sas_work_may_call(PG_GETARG_OID(0), TextDatumGetCString(names[i])))
			PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(true);
}

/* _sas.through_middleware(input): what a worker does with it, in this session. Internal: granted to nobody. */
Datum
sas_api_through_middleware(PG_FUNCTION_ARGS)
{
	int			nest_level = NewGUCNestLevel();
	Jsonb	   *output;

	PushCopiedSnapshot(GetActiveSnapshot());
	output = sas_work_through_middleware(GetUserId(), PG_GETARG_JSONB_P(0), false, CurrentMemoryContext);
	PopActiveSnapshot();
	AtEOXact_GUC(false, nest_level);
	PG_RETURN_JSONB_P(output);
}

/* _sas.middleware_answer(middleware, answer, keys). Internal: granted to nobody. */
Datum
sas_api_middleware_answer(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(sas_work_middleware_answer(text_to_cstring(PG_GETARG_TEXT_PP(0)),
											PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1), PG_GETARG_ARRAYTYPE_P(2)));
}
