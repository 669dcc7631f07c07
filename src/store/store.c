/* SPDX-License-Identifier: PostgreSQL */
/*
 * store.c: the one transaction helper, and the calls that belong to no actor.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/actor.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "catalog/pg_type.h"
#include "pgstat.h"
#include "store/extension.h"
#include "store/pins.h"
#include "store/plan.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

MemoryContext sas_store_results = NULL;

bool
sas_store_begin(void)
{
	sas_store_results = CurrentMemoryContext;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (!sas_store_installed())
	{
		PopActiveSnapshot();
		CommitTransactionCommand();
		MemoryContextSwitchTo(sas_store_results);
		sas_base_retire = true;
		return false;
	}
	sas_base_utf8_prepare();
	SPI_connect();
	return true;
}

void
sas_store_commit(void)
{
	bool		wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());

	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	/* otherwise autovacuum does not see what was written */
	if (wrote)
		pgstat_report_stat(false);
	MemoryContextSwitchTo(sas_store_results);
}

void
sas_store_rollback(void)
{
	AbortCurrentTransaction();
	MemoryContextSwitchTo(sas_store_results);
}

/* A cell of type text[], as a list of char *. */
static List *
store_read_texts(int row, int column)
{
	bool		isnull;
	Datum		array = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);
	List	   *texts = NIL;
	Datum	   *values;
	int			n;

	if (isnull)
		return NIL;
	sas_base_elements(DatumGetArrayTypeP(array), &values, NULL, &n);
	for (int i = 0; i < n; i++)
		texts = lappend(texts, TextDatumGetCString(values[i]));
	return texts;
}

/* A row of type _sas.worker_agent, in sas_store_results. */
static SasStoredAgent *
store_read_agent(int row)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	SasStoredAgent *a = palloc0(sizeof(SasStoredAgent));

	a->agent_id = sas_store_cell_int(row, 1);
	a->name = sas_store_cell_text(row, 2);
	a->base_url = sas_store_cell_text(row, 3);
	a->enabled = sas_store_cell_bool(row, 4);
	a->max_in_flight = sas_store_cell_int(row, 5);
	a->rate_per_s = sas_store_cell_float(row, 6);
	a->request_timeout_ms = sas_store_cell_float(row, 7);
	a->headers = sas_store_cell_jsonb(row, 8);
	a->query = sas_store_cell_jsonb(row, 9);
	a->options = sas_store_cell_jsonb(row, 10);
	a->retry = sas_store_cell_jsonb(row, 11);
	a->breaker_failures = sas_store_cell_int(row, 12);
	a->breaker_window_ms = sas_store_cell_float(row, 13);
	a->breaker_open_ms = sas_store_cell_float(row, 14);
	a->breaker = sas_store_cell_text(row, 15);
	a->open_for_ms = sas_store_cell_float(row, 16);
	a->max_response = sas_store_cell_int(row, 17);
	a->connect_timeout_ms = sas_store_cell_float(row, 18);
	a->secrets = store_read_texts(row, 19);
	a->breaker_paths = store_read_texts(row, 20);
	a->version = sas_store_cell_text(row, 21);
	a->current = store_read_texts(row, 22);
	a->secret_files = store_read_texts(row, 23);
	a->secret_stamps = store_read_texts(row, 24);
	a->problem = sas_store_cell_text(row, 25);
	a->shared = sas_store_cell_bool(row, 26);
	MemoryContextSwitchTo(old);
	return a;
}

List *
sas_store_agents(SasStoredAgent *const *known, int n)
{
	static SasPlan plan = {"SELECT * FROM _sas.agents_for_workers($1, $2)", 2, {INT4ARRAYOID, TEXTARRAYOID}};
	SasColumn	c[2];
	Datum		args[2];
	List	   *agents = NIL;
	MemoryContext results = sas_store_results;

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		sas_store_column_add(&c[0], Int32GetDatum(known[i]->agent_id), false);
		sas_store_column_add(&c[1], CStringGetTextDatum(known[i]->version), false);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < SPI_processed; i++)
	{
		MemoryContext context = AllocSetContextCreate(results, "sas agent", ALLOCSET_SMALL_SIZES);
		SasStoredAgent *a;

		sas_store_results = context;
		a = store_read_agent(i);
		a->context = context;
		sas_store_results = results;
		agents = lappend(agents, a);
	}
	return agents;
}

SasStoredAgent *
sas_store_stubbed_agent(int agent_id)
{
	static SasPlan plan = {"SELECT * FROM _sas.agents_for_stubs() WHERE agent_id = $1", 1, {INT4OID}};
	Datum		args[1] = {Int32GetDatum(agent_id)};
	SasStoredAgent *agent = NULL;

	sas_store_plan_run(&plan, args, NULL);
	if (SPI_processed == 1)
		agent = store_read_agent(0);
	return agent;
}

int
sas_store_pin_path(void)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

int
sas_store_pin_text(void)
{
	static const char *const settings[][2] = {{"datestyle", "ISO"}, {"intervalstyle", "iso_8601"}, {"extra_float_digits", "1"}};
	int			level = sas_store_pin_path();

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

void
sas_store_unpin_path(int level)
{
	AtEOXact_GUC(true, level);
}

int
sas_store_enter(void)
{
	int			level = sas_store_pin_path();

	sas_store_results = CurrentMemoryContext;
	SPI_connect();
	MemoryContextSwitchTo(sas_store_results);
	return level;
}

void
sas_store_leave(int level)
{
	SPI_finish();
	sas_store_unpin_path(level);
}

bool
sas_store_at_home(void)
{
	static SasPlan plan = {"SELECT _sas.at_home()", 0};
	bool		at_home;

	if (!sas_store_begin())
		return false;
	sas_store_plan_run(&plan, NULL, NULL);
	at_home = sas_store_cell_bool(0, 1);
	sas_store_commit();
	return at_home;
}

bool
sas_store_run_state(int64 run_id, Datum values[4], bool nulls[4])
{
	static SasPlan plan = {"SELECT state, result, output, error FROM sas.runs WHERE run_id = $1", 1, {INT8OID}};
	Datum		args[1] = {Int64GetDatum(run_id)};
	MemoryContext caller = CurrentMemoryContext;
	int			plans = sas_store_pin_plans();
	int			level = sas_store_pin_path();
	bool		found;

	SPI_connect();
	sas_store_plan_run(&plan, args, NULL);
	found = SPI_processed == 1;
	for (int i = 0; found && i < 4; i++)
	{
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &nulls[i]);
		MemoryContext old = MemoryContextSwitchTo(caller);

		if (!nulls[i])
			values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	sas_store_unpin_path(level);
	sas_store_unpin_plans(plans);
	return found;
}

void
sas_store_constraints_immediate(void)
{
	/* what SET CONSTRAINTS ALL IMMEDIATE does, without parsing it for each step */
	ConstraintsSetStmt all = {.type = T_ConstraintsSetStmt, .constraints = NIL, .deferred = false};

	AfterTriggerSetState(&all);
}
