/* SPDX-License-Identifier: PostgreSQL */
/*
 * schedules.c: the calls about schedules.
 */
#include "postgres.h"

#include "base/actor.h"
#include "catalog/pg_type.h"
#include "store/plan.h"
#include "store/schedules.h"
#include "store/store.h"
#include "utils/builtins.h"

int
sas_store_fire_schedules(int quantity, int64 most_us, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.fire_schedules($1, $2)", 2, {INT4OID, INT8OID}};
	Datum		args[2] = {Int32GetDatum(quantity), Int64GetDatum(most_us)};

	return sas_store_plan_tick(&plan, args, next_due);
}

void
sas_store_offer_plans(const int64 *live, int n_live, int64 newest, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT _sas.offer_plans($1, $2, $3)", 3, {INT8OID, INT8ARRAYOID, INT8OID}};
	Datum		args[3] = {Int64GetDatum(sas_base_self.boot), sas_store_int8_array(live, n_live), Int64GetDatum(newest)};

	sas_store_plan_run(&plan, args, NULL);
	*next_due = sas_store_cell_time(0, 1);
}

SasClaimedPlan *
sas_store_claim_plan(MemoryContext context)
{
	static SasPlan plan = {"SELECT schedule_id, name, request_id, owner, window_ms FROM _sas.claim_plan($1, $2)", 2, {INT8OID, INT8OID}};
	Datum		args[2] = {Int64GetDatum(sas_base_self.boot), Int64GetDatum(sas_base_self.worker_id)};
	MemoryContext results = sas_store_results;
	SasClaimedPlan *claimed;

	sas_store_plan_run(&plan, args, NULL);
	if (SPI_processed == 0)
		return NULL;
	sas_store_results = context;
	claimed = MemoryContextAllocZero(context, sizeof(SasClaimedPlan));
	claimed->schedule_id = sas_store_cell_int(0, 1);
	claimed->name = sas_store_cell_text(0, 2);
	sas_store_cell_uuid(0, 3, &claimed->request_id);
	claimed->owner = (Oid) sas_store_cell_int(0, 4);
	claimed->window_ms = sas_store_cell_float(0, 5);
	sas_store_results = results;
	return claimed;
}

bool
sas_store_valid_plan(const SasClaimedPlan *claimed)
{
	static SasPlan plan = {"SELECT _sas.is_plan_claimed($1, $2)", 2, {INT4OID, UUIDOID}};
	Datum		args[2] = {Int32GetDatum(claimed->schedule_id), UUIDPGetDatum(&claimed->request_id)};

	sas_store_plan_run(&plan, args, NULL);
	return sas_store_cell_bool(0, 1);
}

bool
sas_store_end_plan(const SasClaimedPlan *claimed, Jsonb *done, int sqlstate, Jsonb *error)
{
	static SasPlan plan = {"SELECT _sas.end_planned($1, $2, $3, $4, $5)", 5, {INT4OID, UUIDOID, JSONBOID, TEXTOID, JSONBOID}};
	Datum		args[5] = {Int32GetDatum(claimed->schedule_id), UUIDPGetDatum(&claimed->request_id), PointerGetDatum(done),
	CStringGetTextDatum(unpack_sql_state(sqlstate)), PointerGetDatum(error)};
	char		nulls[6] = "     ";

	if (done == NULL)
		nulls[2] = 'n';
	if (error == NULL)
		nulls[4] = 'n';
	sas_store_plan_run(&plan, args, nulls);
	return sas_store_cell_bool(0, 1);
}

void
sas_store_put_back_plan(const SasClaimedPlan *claimed)
{
	static SasPlan plan = {"SELECT _sas.put_back_plan($1, $2)", 2, {INT4OID, UUIDOID}};
	Datum		args[2] = {Int32GetDatum(claimed->schedule_id), UUIDPGetDatum(&claimed->request_id)};

	sas_store_plan_run(&plan, args, NULL);
}
