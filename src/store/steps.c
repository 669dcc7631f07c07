/* SPDX-License-Identifier: PostgreSQL */
/*
 * steps.c: the calls that claim steps and write what became of them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/actor.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "store/extension.h"
#include "store/plan.h"
#include "store/store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

static void
steps_read_id(int row, int column, SasStepId *id)
{
	id->run_id = sas_store_cell_int(row, column);
	id->step_no = sas_store_cell_int(row, column + 1);
	id->element = sas_store_cell_int(row, column + 2);
}

/* Was the claim rolled back, since its templates cost too much? The last row says so, and no other counts. */
static bool
steps_cost_too_much(void)
{
	return SPI_processed > 0 && sas_store_cell_null(SPI_processed - 1, 1);
}

List *
sas_store_claim_calls(const int *lanes, const int *quantities, int n, bool apart)
{
	static SasPlan plan = {"SELECT lease_id, agent_id, run_id, step_no, element, step, undo, attempt, request_id, window_ms, "
		"trace, idempotency_key, request, policy, problem, workflow_id, owner FROM _sas.claim_calls($1, $2, $3, $4, $5, $6)",
	6, {INT4ARRAYOID, INT4ARRAYOID, INT8OID, INT8OID, TEXTOID, BOOLOID}};
	Datum		args[6] = {sas_store_int4_array(lanes, n), sas_store_int4_array(quantities, n), Int64GetDatum(sas_base_self.boot),
	Int64GetDatum(sas_base_self.worker_id), CStringGetTextDatum(sas_base_self.name), BoolGetDatum(apart)};
	List	   *calls = NIL;

	sas_store_plan_run(&plan, args, NULL);
	if (steps_cost_too_much())
		return NIL;
	for (int i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(sas_store_results);
		SasClaimedCall *c = palloc0(sizeof(SasClaimedCall));

		c->lease_id = sas_store_cell_int(i, 1);
		c->agent_id = sas_store_cell_int(i, 2);
		steps_read_id(i, 3, &c->id);
		c->step = sas_store_cell_text(i, 6);
		c->undo = sas_store_cell_bool(i, 7);
		c->attempt = sas_store_cell_int(i, 8);
		sas_store_cell_uuid(i, 9, &c->id.request_id);
		c->window_ms = sas_store_cell_float(i, 10);
		sas_store_cell_uuid(i, 11, &c->trace);
		c->idempotency_key = sas_store_cell_text(i, 12);
		c->request = sas_store_cell_jsonb(i, 13);
		c->policy = sas_store_cell_jsonb(i, 14);
		c->problem = sas_store_cell_jsonb(i, 15);
		c->workflow_id = sas_store_cell_int(i, 16);
		c->owner = (Oid) sas_store_cell_int(i, 17);
		calls = lappend(calls, c);
		MemoryContextSwitchTo(old);
	}
	return calls;
}

List *
sas_store_claim_functions(MemoryContext context, int quantity, bool urgent, bool apart)
{
	static SasPlan plan = {"SELECT lease_id, owner, run_id, step_no, element, step, undo, attempt, alone, request_id, window_ms, "
		"function, input, problem, retry, judges, workflow_id FROM _sas.claim_functions($1, $2, $3, $4, urgent => $5, apart => $6)",
	6, {INT4OID, INT8OID, INT8OID, TEXTOID, BOOLOID, BOOLOID}};
	Datum		args[6] = {Int32GetDatum(quantity), Int64GetDatum(sas_base_self.boot), Int64GetDatum(sas_base_self.worker_id),
	CStringGetTextDatum(sas_base_self.name), BoolGetDatum(urgent), BoolGetDatum(apart)};
	List	   *steps = NIL;
	MemoryContext results = sas_store_results;

	sas_store_plan_run(&plan, args, NULL);
	if (steps_cost_too_much())
		return NIL;
	sas_store_results = context;
	for (int i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(sas_store_results);
		SasClaimedFunction *c = palloc0(sizeof(SasClaimedFunction));

		c->lease_id = sas_store_cell_int(i, 1);
		c->owner = (Oid) sas_store_cell_int(i, 2);
		steps_read_id(i, 3, &c->id);
		c->step = sas_store_cell_text(i, 6);
		c->undo = sas_store_cell_bool(i, 7);
		c->attempt = sas_store_cell_int(i, 8);
		c->isolated = sas_store_cell_bool(i, 9);
		sas_store_cell_uuid(i, 10, &c->id.request_id);
		c->window_ms = sas_store_cell_float(i, 11);
		c->function = sas_store_cell_text(i, 12);
		c->input = sas_store_cell_jsonb(i, 13);
		c->problem = sas_store_cell_jsonb(i, 14);
		c->retry = sas_store_cell_jsonb(i, 15);
		c->evaluates = sas_store_cell_bool(i, 16);
		c->workflow_id = sas_store_cell_int(i, 17);
		steps = lappend(steps, c);
		MemoryContextSwitchTo(old);
	}
	sas_store_results = results;
	return steps;
}

void
sas_store_rehearse_functions(void)
{
	static SasPlan plan = {"SELECT _sas.rehearse_functions(), _sas.rehearse_replies()", 0};

	if (!sas_store_schema_is_older())
		sas_store_plan_run(&plan, NULL, NULL);
}

int64
sas_store_function_workers(Oid owner)
{
	static SasPlan plan = {"SELECT _sas.limit_of($1, 'function_workers')", 1, {OIDOID}};
	Datum		args[1] = {ObjectIdGetDatum(owner)};

	sas_store_plan_run(&plan, args, NULL);
	return sas_store_cell_int(0, 1);
}

static void
steps_add_id(SasColumn c[3], const SasStepId *id)
{
	sas_store_column_add(&c[0], Int64GetDatum(id->run_id), false);
	sas_store_column_add(&c[1], Int32GetDatum(id->step_no), false);
	sas_store_column_add(&c[2], Int32GetDatum(id->element), false);
}

/* Runs a statement about claims, whose parameters are the four columns that name them. */
static void
steps_run_claims(SasPlan *plan, const SasStepId *ids, int n)
{
	SasColumn	c[4];
	Datum		args[4];

	sas_store_columns_open(c, plan, n);
	for (int i = 0; i < n; i++)
	{
		steps_add_id(c, &ids[i]);
		sas_store_column_add(&c[3], UUIDPGetDatum(&ids[i].request_id), false);
	}
	sas_store_columns_close(c, plan, args);
	sas_store_plan_run(plan, args, NULL);
}

bool *
sas_store_valid_claims(const SasStepId *ids, int n)
{
	static SasPlan plan = {"SELECT unnest(_sas.claims_held($1, $2, $3, $4))",
	4, {INT8ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, UUIDARRAYOID}};
	bool	   *valid = MemoryContextAllocZero(sas_store_results, n);

	steps_run_claims(&plan, ids, n);
	Assert(SPI_processed == n);
	for (int i = 0; i < n; i++)
		valid[i] = strcmp(sas_store_cell_text(i, 1), "held") == 0;
	return valid;
}

/* The current result is the numbers, from 1, of what was lost of n. */
static void
steps_read_lost(bool *lost, int n)
{
	memset(lost, 0, n);
	for (int i = 0; i < SPI_processed; i++)
		lost[sas_store_cell_int(i, 1) - 1] = true;
}

void
sas_store_claims_of_calls(const SasStepId *ids, int n, SasClaimState *states)
{
	static SasPlan plan = {"SELECT unnest(_sas.claims_of_calls($1, $2, $3, $4))",
	4, {INT8ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, UUIDARRAYOID}};

	steps_run_claims(&plan, ids, n);
	Assert(SPI_processed == n);
	for (int i = 0; i < n; i++)
	{
		const char *state = sas_store_cell_text(i, 1);

		states[i] = strcmp(state, "held") == 0 ? SAS_CLAIM_HELD : strcmp(state, "stop") == 0 ? SAS_CLAIM_STOP : SAS_CLAIM_LOST;
	}
}

/*
 * Replies as an array of _sas.call_reply.  The rows are formed here, because to
 * unnest eleven arrays side by side costs the statement more than all else that
 * it does with a reply.
 */
static Datum
steps_reply_array(const SasStoredReply *replies, int n, Oid type)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);
	Datum	   *rows = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
	{
		const SasStoredReply *r = &replies[i];
		Interval	span = {.time = (TimeOffset) (r->again_in_ms * 1000)};
		Datum		values[11] = {Int64GetDatum(r->id.run_id), Int32GetDatum(r->id.step_no), Int32GetDatum(r->id.element),
			UUIDPGetDatum(&r->id.request_id), CStringGetTextDatum(r->verdict), Int32GetDatum(r->attempts),
		PointerGetDatum(r->output), PointerGetDatum(r->error), BoolGetDatum(r->in_doubt), IntervalPGetDatum(&span),
		TimestampTzGetDatum(r->arrived_at)};
		bool		nulls[11] = {[6] = r->output == NULL,[7] = r->error == NULL};

		rows[i] = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	}
	ReleaseTupleDesc(desc);
	return PointerGetDatum(construct_array(rows, n, type, -1, false, TYPALIGN_DOUBLE));
}

void
sas_store_write_replies(const SasStoredReply *replies, int n, const int64 *done_leases, int n_done, const int64 *under_leases, int n_under, bool *lost)
{
	static SasPlan plan = {"SELECT unnest(_sas.write_replies($1, $2, $3))", 3, {InvalidOid, INT8ARRAYOID, INT8ARRAYOID}};
	Oid			type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("call_reply"), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	Datum		args[3] = {steps_reply_array(replies, n, type), sas_store_int8_array(done_leases, n_done), sas_store_int8_array(under_leases, n_under)};

	/* the extension was dropped and created again */
	if (plan.plan != NULL && plan.types[0] != get_array_type(type))
	{
		SPI_freeplan(plan.plan);
		plan.plan = NULL;
	}
	plan.types[0] = get_array_type(type);
	sas_store_plan_run(&plan, args, NULL);
	steps_read_lost(lost, n);
}

Jsonb *
sas_store_evaluate_output(const SasClaimedFunction *step, Jsonb *output)
{
	static SasPlan plan = {"SELECT _sas.objection($1, $2, $3, $4, $5)", 5, {INT8OID, INT4OID, INT4OID, BOOLOID, JSONBOID}};
	Datum		args[5] = {Int64GetDatum(step->id.run_id), Int32GetDatum(step->id.step_no), Int32GetDatum(step->id.element),
	BoolGetDatum(step->undo), PointerGetDatum(output)};

	sas_store_plan_run(&plan, args, NULL);
	return sas_store_cell_jsonb(0, 1);
}

void
sas_store_write_attempts(const SasStoredAttempt *attempts, int n)
{
	static SasPlan plan = {"SELECT _sas.write_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		12, {INT8ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, INT4ARRAYOID, BOOLARRAYOID, INT4ARRAYOID, TEXTOID, TEXTARRAYOID,
	INT4ARRAYOID, JSONBARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID}};
	SasColumn	c[11];
	Datum		args[12];

	if (n == 0)
		return;
	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		const SasStoredAttempt *a = &attempts[i];

		steps_add_id(c, &a->id);
		sas_store_column_add(&c[3], Int32GetDatum(a->attempt), false);
		sas_store_column_add(&c[4], BoolGetDatum(a->undo), false);
		sas_store_column_add(&c[5], Int32GetDatum(a->agent_id), false);
		sas_store_column_add(&c[6], CStringGetTextDatum(a->status), false);
		sas_store_column_add(&c[7], Int32GetDatum(a->http_status), false);
		sas_store_column_add(&c[8], PointerGetDatum(a->error), a->error == NULL);
		sas_store_column_add(&c[9], TimestampTzGetDatum(a->started_at), false);
		sas_store_column_add(&c[10], TimestampTzGetDatum(a->finished_at), false);
	}
	sas_store_columns_close(c, &plan, args);
	args[6] = CStringGetTextDatum(sas_base_self.name);
	sas_store_plan_run(&plan, args, NULL);
}

bool
sas_store_write_health(int agent_id, const char *breaker, double open_ms, Jsonb *error)
{
	static SasPlan plan = {"SELECT _sas.write_health(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4]) "
		"FROM (SELECT FROM _sas.agent_health h WHERE h.agent_id = $1 FOR UPDATE SKIP LOCKED) locked",
	4, {INT4OID, TEXTOID, FLOAT8OID, JSONBOID}};
	Datum		args[4] = {Int32GetDatum(agent_id), breaker ? CStringGetTextDatum(breaker) : (Datum) 0,
	Float8GetDatum(open_ms), PointerGetDatum(error)};
	char		nulls[5] = {' ', breaker ? ' ' : 'n', ' ', error ? ' ' : 'n', '\0'};

	sas_store_plan_run(&plan, args, nulls);
	return SPI_processed > 0;
}

void
sas_store_raise_stuck(const SasStuck *stuck)
{
	static SasPlan plan = {"SELECT _sas.raise_failing('stuck', $1 || ' stuck', $3, "
		"_sas.problem_object('sqlstate:' || $4, $5), nullif($2, 0), more => '. ' || $6)",
	6, {TEXTOID, INT8OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID}};
	Datum		args[6] = {CStringGetTextDatum(stuck->what), Int64GetDatum(stuck->run_id), CStringGetTextDatum(stuck->message),
		CStringGetTextDatum(unpack_sql_state(stuck->sqlstate)), CStringGetTextDatum(stuck->error), CStringGetTextDatum(stuck->detail)};

	sas_store_plan_run(&plan, args, NULL);
}

int
sas_store_scheduler_tick(int quantity, bool by_owner, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.scheduler_tick($1, $2)", 2, {INT4OID, BOOLOID}};
	Datum		args[2] = {Int32GetDatum(quantity), BoolGetDatum(by_owner)};

	return sas_store_plan_tick(&plan, args, next_due);
}

int
sas_store_answer_tick(int quantity, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.answer_tick($1)", 1, {INT4OID}};
	Datum		args[1] = {Int32GetDatum(quantity)};

	return sas_store_plan_tick(&plan, args, next_due);
}

bool
sas_store_check_conditions(void)
{
	static SasPlan plan = {"SELECT _sas.check_conditions()", 0};

	sas_store_plan_run(&plan, NULL, NULL);
	return sas_store_cell_bool(0, 1);
}

void
sas_store_count_open(void)
{
	static SasPlan plan = {"SELECT _sas.count_open()", 0};

	sas_store_plan_run(&plan, NULL, NULL);
}

int
sas_store_purge(int quantity, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.purge_tick($1)", 1, {INT4OID}};
	Datum		args[1] = {Int32GetDatum(quantity)};

	return sas_store_plan_tick(&plan, args, next_due);
}

int
sas_store_supervisor_tick(const int64 *live, int n_live, int64 newest, int quantity, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.supervisor_tick($1, $2, $3, $4)",
	4, {INT8OID, INT8ARRAYOID, INT8OID, INT4OID}};
	Datum		args[4] = {Int64GetDatum(sas_base_self.boot), sas_store_int8_array(live, n_live), Int64GetDatum(newest), Int32GetDatum(quantity)};

	return sas_store_plan_tick(&plan, args, next_due);
}

int
sas_store_supervise_watches(const int64 *live, int n_live, int64 newest, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT worked, next_due FROM _sas.supervise_watches($1, $2, $3)",
	3, {INT8OID, INT8ARRAYOID, INT8OID}};
	Datum		args[3] = {Int64GetDatum(sas_base_self.boot), sas_store_int8_array(live, n_live), Int64GetDatum(newest)};

	return sas_store_plan_tick(&plan, args, next_due);
}

bool
sas_store_set_timers(SasTimerSweep *sweep, TimestampTz *next_due)
{
	static SasPlan plan = {"SELECT coalesce(at, -1), coalesce(again, -1), coalesce(settles, -1), more, next_look"
		" FROM _sas.set_timers(nullif($1, -1), nullif($2, -1), nullif($3, -1))",
	3, {INT8OID, INT8OID, INT8OID}};
	Datum		args[3] = {Int64GetDatum(sweep->at), Int64GetDatum(sweep->again), Int64GetDatum(sweep->settles)};

	sas_store_plan_run(&plan, args, NULL);
	*sweep = (SasTimerSweep) {sas_store_cell_int(0, 1), sas_store_cell_int(0, 2), sas_store_cell_int(0, 3)};
	*next_due = sas_store_cell_time(0, 5);
	return sas_store_cell_bool(0, 4);
}
