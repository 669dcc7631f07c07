/* SPDX-License-Identifier: PostgreSQL */
/*
 * agent_api.c: the SQL-callable functions about agents.
 *
 * They are internal (sas._...). sas.create_agent and sas.create_workflow
 * check addresses with the parser that the workers send with.  A change of
 * the agents wakes the agent workers when it commits; a worker that starts
 * later reads the table anyway.  Limits, breakers and the other tables in
 * shared memory are gone after a crash.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/execnodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/uuid.h"

#include "base/peers.h"
#include "base/shared_table.h"
#include "work/turns.h"
#include "limits/limits.h"
#include "limits/owners.h"
#include "store/rights.h"
#include "transport/origin.h"
#include "transport/transport.h"
#include "wake/wakeup.h"

PG_FUNCTION_INFO_V1(sas_api_url_problem);
PG_FUNCTION_INFO_V1(sas_api_path_has_dot_segment);
PG_FUNCTION_INFO_V1(sas_api_agent_right);
PG_FUNCTION_INFO_V1(sas_api_announce_agents);
PG_FUNCTION_INFO_V1(sas_api_stop_calls);
PG_FUNCTION_INFO_V1(sas_api_interrupt_functions);
PG_FUNCTION_INFO_V1(sas_api_is_executed);
PG_FUNCTION_INFO_V1(sas_api_busy_functions);
PG_FUNCTION_INFO_V1(sas_api_function_owners);
PG_FUNCTION_INFO_V1(sas_api_wait_for_owners);
PG_FUNCTION_INFO_V1(sas_api_leave_last);
PG_FUNCTION_INFO_V1(sas_api_left_last);
PG_FUNCTION_INFO_V1(sas_api_owners_in_wait);
PG_FUNCTION_INFO_V1(sas_api_charge_owner);
PG_FUNCTION_INFO_V1(sas_api_limits);
PG_FUNCTION_INFO_V1(sas_api_path_breakers);
PG_FUNCTION_INFO_V1(sas_api_half_open);
PG_FUNCTION_INFO_V1(sas_api_spend_tokens);
PG_FUNCTION_INFO_V1(sas_api_lacks_slots);
PG_FUNCTION_INFO_V1(sas_api_forget_limits);
PG_FUNCTION_INFO_V1(sas_api_shared_tables);

/* -------------------------------------------------------------- addresses */

Datum
sas_api_url_problem(PG_FUNCTION_ARGS)
{
	char		origin[SAS_ORIGIN_LEN];
	const char *why = NULL;

	if (sas_transport_origin_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), origin, sizeof(origin), &why))
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(why ? why : "it is not an address"));
}

Datum
sas_api_path_has_dot_segment(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_transport_path_has_dot_segment(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

/* _sas.agent_right(role, agent_id). Internal: granted to nobody. */
Datum
sas_api_agent_right(PG_FUNCTION_ARGS)
{
	PG_RETURN_CHAR(sas_store_agent_right(PG_GETARG_OID(0), PG_GETARG_INT32(1)));
}

/* ------------------------------------------------------------ announcement */

Datum
sas_api_announce_agents(PG_FUNCTION_ARGS)
{
	sas_wake_version_at_commit(SAS_WAKE_AGENTS);
	PG_RETURN_VOID();
}

Datum
sas_api_stop_calls(PG_FUNCTION_ARGS)
{
	sas_wake_version_at_commit(SAS_WAKE_STOPS);
	PG_RETURN_VOID();
}

Datum
sas_api_interrupt_functions(PG_FUNCTION_ARGS)
{
	Datum	   *request_ids;
	bool	   *nulls;
	int			n;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(0), &request_ids, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			sas_base_peers_interrupt_at_commit(sas_base_peers_step(DatumGetUUIDP(request_ids[i])->data));
	PG_RETURN_VOID();
}

Datum
sas_api_is_executed(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_base_peers_works_for(sas_base_peers_step(PG_GETARG_UUID_P(0)->data)));
}

Datum
sas_api_busy_functions(PG_FUNCTION_ARGS)
{
	Oid			owners[1024];

	PG_RETURN_INT32(sas_base_peers_other_owners(owners, lengthof(owners)));
}

/* A row for each of the other workers that calls functions. */
Datum
sas_api_function_owners(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			owners[1024];
	int			n;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	n = sas_base_peers_other_owners(owners, lengthof(owners));
	for (int i = 0; i < n; i++)
	{
		Datum		value = ObjectIdGetDatum(owners[i]);
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}

/* _sas.owners_in_wait() */
Datum
sas_api_owners_in_wait(PG_FUNCTION_ARGS)
{
	Oid			owners[1024];
	Datum		values[lengthof(owners)];
	int			n = sas_work_turns_owners(owners, lengthof(owners));

	for (int i = 0; i < n; i++)
		values[i] = ObjectIdGetDatum(owners[i]);
	PG_RETURN_ARRAYTYPE_P(sas_base_array(values, n, OIDOID));
}

/* _sas.charge_owner(owner, spent_us, messages): so many messages of that owner took so long together */
Datum
sas_api_charge_owner(PG_FUNCTION_ARGS)
{
	int64		spent_us = PG_GETARG_INT64(1);

	sas_work_turns_charge(PG_GETARG_OID(0), spent_us, spent_us / Max(PG_GETARG_INT32(2), 1) > SAS_WORK_TURNS_SLOW_US);
	PG_RETURN_VOID();
}

Datum
sas_api_leave_last(PG_FUNCTION_ARGS)
{
	Oid			owner = sas_base_peers_leave_last(PG_GETARG_BOOL(0));

	if (!OidIsValid(owner))
		PG_RETURN_NULL();
	PG_RETURN_OID(owner);
}

Datum
sas_api_left_last(PG_FUNCTION_ARGS)
{
	sas_base_peers_left_last();
	PG_RETURN_VOID();
}

Datum
sas_api_wait_for_owners(PG_FUNCTION_ARGS)
{
	sas_base_peers_wait_for_owner(PG_GETARG_BOOL(0));
	PG_RETURN_VOID();
}

/* ------------------------------------------------------ places and breakers */

static const char *
agent_api_breaker_name(SasBreaker breaker)
{
	switch (breaker)
	{
		case SAS_BREAKER_CLOSED:
			return "closed";
		case SAS_BREAKER_OPEN:
			return "open";
		case SAS_BREAKER_HALF_OPEN:
			return "half-open";
	}
	elog(ERROR, "unknown state of a breaker: %d", (int) breaker);
	return NULL;				/* not reached */
}

Datum
sas_api_limits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasLimitsView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_limits_view(&views);
	for (int i = 0; i < n; i++)
	{
		Datum		values[5];
		bool		nulls[5] = {false};

		if (views[i].agent_id < 0)
			continue;			/* of a path */
		values[0] = Int32GetDatum(views[i].agent_id);
		values[1] = Int32GetDatum(views[i].in_flight);
		values[2] = CStringGetTextDatum(agent_api_breaker_name(views[i].breaker));
		values[3] = Float8GetDatum(views[i].open_for_us / 1000.0);
		values[4] = Float8GetDatum(views[i].rate_for_us / 1000.0);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* _sas.path_breakers(): those that are not closed */
Datum
sas_api_path_breakers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasLimitsView *views;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_limits_view(&views);
	for (int i = 0; i < n; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {false};
		bool		over = views[i].breaker == SAS_BREAKER_OPEN && views[i].open_for_us == 0;

		if (views[i].agent_id > 0 || views[i].breaker == SAS_BREAKER_CLOSED)
			continue;
		values[0] = Int32GetDatum(SAS_LIMITS_AGENT_OF(views[i].agent_id));
		values[1] = Int32GetDatum(SAS_LIMITS_PATH_OF(views[i].agent_id));
		/* when the open time of a breaker is over, it lets the next call through as a probe */
		values[2] = CStringGetTextDatum(agent_api_breaker_name(over ? SAS_BREAKER_HALF_OPEN : views[i].breaker));
		values[3] = Float8GetDatum(views[i].open_for_us / 1000.0);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* No claim takes more: see sas.claim. */
#define SPEND_MAX 1000

/* _sas.spend_tokens(agent_id, rate_per_s, want) */
Datum
sas_api_spend_tokens(PG_FUNCTION_ARGS)
{
	SasLimits	limits = {.max_in_flight = INT_MAX,.rate_per_s = PG_GETARG_FLOAT8(1)};
	int			want = Min(PG_GETARG_INT32(2), SPEND_MAX);
	int			spent = 0;
	int64		retry_us;

	while (spent < want && sas_limits_spend(PG_GETARG_INT32(0), &limits, &retry_us))
		spent++;
	PG_RETURN_INT32(spent);
}

/* _sas.lacks_slots(agent_id, owner) */
Datum
sas_api_lacks_slots(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_limits_owner_lacks_slots(PG_GETARG_INT32(0), PG_GETARG_OID(1)));
}

Datum
sas_api_half_open(PG_FUNCTION_ARGS)
{
	sas_limits_half_open_at_commit(PG_GETARG_INT32(0));
	for (int n = 1; n <= SAS_LIMITS_PATHS; n++)
		sas_limits_half_open_at_commit(SAS_LIMITS_PATH_ID(PG_GETARG_INT32(0), n));
	PG_RETURN_VOID();
}

Datum
sas_api_forget_limits(PG_FUNCTION_ARGS)
{
	sas_limits_drop_at_commit(PG_GETARG_INT32(0));
	for (int n = 1; n <= SAS_LIMITS_PATHS; n++)
		sas_limits_drop_at_commit(SAS_LIMITS_PATH_ID(PG_GETARG_INT32(0), n));
	PG_RETURN_VOID();
}

/* _sas.shared_tables() */
Datum
sas_api_shared_tables(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasSharedTableView *views;
	int			n = sas_base_tables_view(&views);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = CStringGetTextDatum(views[i].name);
		values[1] = CStringGetTextDatum(views[i].setting);
		values[2] = Int32GetDatum(views[i].capacity);
		values[3] = Int32GetDatum(views[i].taken);
		values[4] = Int64GetDatum(views[i].refused);
		values[5] = Float8GetDatum(views[i].refused_ago_us / 1000.0);
		nulls[5] = views[i].refused_ago_us < 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
