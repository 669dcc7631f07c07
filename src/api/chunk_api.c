/* SPDX-License-Identifier: PostgreSQL */
/*
 * chunk_api.c: the step whose function this session calls, for sas.emit.
 * Internal: sql/agent/chunk.sql asks.
 */
#include "postgres.h"

#include "api/row.h"
#include "fmgr.h"

#include "work/invoke.h"

PG_FUNCTION_INFO_V1(sas_api_invoked_step);

/* _sas.invoked_step() */
Datum
sas_api_invoked_step(PG_FUNCTION_ARGS)
{
	const SasStepId *step = sas_work_invoked_step();
	Datum		values[3] = {0};
	bool		nulls[3] = {true, true, true};

	if (step != NULL)
	{
		values[0] = Int64GetDatum(step->run_id);
		values[1] = Int32GetDatum(step->step_no);
		values[2] = Int32GetDatum(step->element);
		memset(nulls, false, sizeof(nulls));
	}
	return sas_api_row(fcinfo, values, nulls);
}
