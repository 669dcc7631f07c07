/* SPDX-License-Identifier: PostgreSQL */
/*
 * row.c: a row as the result of a function.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "api/row.h"
#include "funcapi.h"

Datum
sas_api_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	desc = fcinfo->flinfo->fn_extra;

	if (desc == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		desc = BlessTupleDesc(desc);
		fcinfo->flinfo->fn_extra = desc;
		MemoryContextSwitchTo(caller);
	}
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}
