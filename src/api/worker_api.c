/* SPDX-License-Identifier: PostgreSQL */
/*
 * worker_api.c: the SQL-callable functions about workers, wake-ups, clock
 * and settings.
 *
 * They are internal (sas._...); the views and public functions over them
 * decide which role sees what.
 */
#include "postgres.h"

#include "api/row.h"
#include "base/array.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/peers.h"
#include "base/settings.h"
#include "store/ending.h"
#include "store/submit.h"
#include "wake/wakeup.h"
#include "work/late.h"
#include "worker/exclusion.h"
#include "worker/lifecycle.h"
#include "worker/registry.h"

/* more than a server has background workers for one database */
#define SAS_API_MAX_WORKERS 1024

PG_FUNCTION_INFO_V1(sas_api_follow);
PG_FUNCTION_INFO_V1(sas_api_live_workers);
PG_FUNCTION_INFO_V1(sas_api_writing_workers);
PG_FUNCTION_INFO_V1(sas_api_holding_workers);
PG_FUNCTION_INFO_V1(sas_api_workers);
PG_FUNCTION_INFO_V1(sas_api_worker_restart);
PG_FUNCTION_INFO_V1(sas_api_launcher_state);
PG_FUNCTION_INFO_V1(sas_api_wake);
PG_FUNCTION_INFO_V1(sas_api_wake_on_abort);
PG_FUNCTION_INFO_V1(sas_api_now);
PG_FUNCTION_INFO_V1(sas_api_boot);
PG_FUNCTION_INFO_V1(sas_api_complete_in);
PG_FUNCTION_INFO_V1(sas_api_run_deadline);
PG_FUNCTION_INFO_V1(sas_api_priority_step);
PG_FUNCTION_INFO_V1(sas_api_max_definition_size);
PG_FUNCTION_INFO_V1(sas_api_max_input_size);
PG_FUNCTION_INFO_V1(sas_api_max_output_size);
PG_FUNCTION_INFO_V1(sas_api_max_steps);
PG_FUNCTION_INFO_V1(sas_api_retain);
PG_FUNCTION_INFO_V1(sas_api_untimed_from);
PG_FUNCTION_INFO_V1(sas_api_untimed_check);
PG_FUNCTION_INFO_V1(sas_api_crash_loops);

/* ---------------------------------------------------------------- workers */

static Datum
worker_api_interval(int64 milliseconds)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = milliseconds * 1000;
	return IntervalPGetDatum(span);
}

static void
worker_api_put_worker(ReturnSetInfo *rsinfo, const SasSlot *slot)
{
	char	   *database = get_database_name(slot->dboid);
	int64		woken_us = sas_wake_unanswered_us(slot->dboid, slot->pid);
	int64		now_us = sas_base_clock_monotonic_us();
	Datum		values[14];
	bool		nulls[14] = {false};

	values[0] = Int32GetDatum(slot->pid);
	values[1] = CStringGetTextDatum(sas_base_actor_name(slot->actor));
	nulls[2] = database == NULL;
	values[2] = database ? CStringGetTextDatum(database) : (Datum) 0;
	values[3] = BoolGetDatum(slot->leader);
	values[4] = Int32GetDatum(slot->in_flight);
	values[5] = TimestampTzGetDatum(slot->started_at);
	values[6] = TimestampTzGetDatum(slot->last_activity_at);
	values[7] = Int64GetDatum(slot->worker_id);
	nulls[8] = slot->tick_since_us == 0;
	values[8] = worker_api_interval((now_us - slot->tick_since_us) / 1000);
	nulls[9] = slot->user_code[0] == '\0';
	values[9] = CStringGetTextDatum(slot->user_code);
	values[10] = Int64GetDatum(slot->memory);
	/* its tick answers what came before, and what comes meanwhile has its turn then */
	nulls[11] = woken_us == 0 || slot->tick_since_us != 0;
	values[11] = worker_api_interval((now_us - Max(woken_us, slot->tick_ended_us)) / 1000);
	values[12] = Int32GetDatum(slot->failed_ticks);
	values[13] = BoolGetDatum(slot->has_worked);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
sas_api_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasSlot    *slots;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_worker_registry_snapshot(&slots);
	for (int i = 0; i < n; i++)
		if (slots[i].actor != SAS_PROBE &&
			(slots[i].state == SAS_SLOT_RUNNING || slots[i].state == SAS_SLOT_STOPPING))
			worker_api_put_worker(rsinfo, &slots[i]);
	return (Datum) 0;
}

Datum
sas_api_worker_restart(PG_FUNCTION_ARGS)
{
	sas_worker_lifecycle_restored();
	PG_RETURN_INT32(sas_worker_registry_terminate(MyDatabaseId));
}

Datum
sas_api_crash_loops(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasTrouble *troubles;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = sas_worker_registry_crash_loops(MyDatabaseId, &troubles);
	for (int i = 0; i < n; i++)
	{
		Datum		values[2];
		bool		nulls[2] = {false};

		values[0] = CStringGetTextDatum(sas_base_actor_name(troubles[i].actor));
		values[1] = Int32GetDatum(troubles[i].failures);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
sas_api_launcher_state(PG_FUNCTION_ARGS)
{
	SasLauncherState state = sas_worker_registry_launcher();
	int			excluded_by = sas_worker_excluded_by(MyDatabaseId);
	Datum		values[6];
	bool		nulls[6] = {false};

	values[0] = BoolGetDatum(sas_base_self.boot != 0);
	nulls[1] = state.pid == 0;
	values[1] = Int32GetDatum(state.pid);
	values[2] = Int32GetDatum(state.slots_missing);
	nulls[3] = state.missing_since == 0;
	values[3] = TimestampTzGetDatum(state.missing_since);
	nulls[4] = state.probed_at == 0;
	values[4] = TimestampTzGetDatum(state.probed_at);
	nulls[5] = excluded_by == 0;
	values[5] = Int32GetDatum(excluded_by);
	return sas_api_row(fcinfo, values, nulls);
}

/* ---------------------------------------------------------------- waking */

/* The elements of an array argument without the nulls; 0 for a null array. */
static int
worker_api_elements(FunctionCallInfo fcinfo, int argument, Datum **elements)
{
	Datum	   *all;
	bool	   *nulls;
	int			n;
	int			kept = 0;

	*elements = NULL;
	if (PG_ARGISNULL(argument))
		return 0;
	sas_base_elements(PG_GETARG_ARRAYTYPE_P(argument), &all, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			all[kept++] = all[i];
	*elements = all;
	return kept;
}

Datum
sas_api_wake(PG_FUNCTION_ARGS)
{
	Datum	   *elements;
	int			n;

	n = worker_api_elements(fcinfo, 0, &elements);
	for (int i = 0; i < n; i++)
		sas_wake_lane_at_commit(DatumGetInt32(elements[i]), false);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
		sas_wake_actor_at_commit(SAS_SCHEDULER, false);
	if (!PG_ARGISNULL(2) && PG_GETARG_BOOL(2))
		sas_wake_actor_at_commit(SAS_SUPERVISOR, false);
	n = worker_api_elements(fcinfo, 3, &elements);
	for (int i = 0; i < n; i++)
		sas_wake_run_at_commit(DatumGetInt64(elements[i]));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(sas_api_ending);

/* _sas.ending(run_ids): those of the runs that a transaction in progress is stopping. */
Datum
sas_api_ending(PG_FUNCTION_ARGS)
{
	Datum	   *elements;
	int			n = worker_api_elements(fcinfo, 0, &elements);
	int64	   *run_ids = palloc(sizeof(int64) * Max(n, 1));
	bool	   *ending = palloc(sizeof(bool) * Max(n, 1));
	int			n_ending = 0;

	for (int i = 0; i < n; i++)
		run_ids[i] = DatumGetInt64(elements[i]);
	sas_store_find_ending(run_ids, n, ending);
	for (int i = 0; i < n; i++)
		if (ending[i])
			elements[n_ending++] = elements[i];
	PG_RETURN_ARRAYTYPE_P(sas_base_array(elements, n_ending, INT8OID));
}

PG_FUNCTION_INFO_V1(sas_api_nudge);
PG_FUNCTION_INFO_V1(sas_api_found);
PG_FUNCTION_INFO_V1(sas_api_passed_by);
PG_FUNCTION_INFO_V1(sas_api_last_tick);

/*
 * _sas.nudge(lanes, scheduler, items, watches): at commit, these look for
 * work, though none was announced.
 */
Datum
sas_api_nudge(PG_FUNCTION_ARGS)
{
	Datum	   *lanes;
	int			n = worker_api_elements(fcinfo, 0, &lanes);

	for (int i = 0; i < n; i++)
		sas_wake_lane_at_commit(DatumGetInt32(lanes[i]), true);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
		sas_wake_actor_at_commit(SAS_SCHEDULER, true);
	if (!PG_ARGISNULL(2) && PG_GETARG_BOOL(2))
		sas_wake_items_at_commit(true);
	if (!PG_ARGISNULL(3) && PG_GETARG_BOOL(3))
		sas_wake_version_at_commit(SAS_WAKE_WATCHES_NUDGED);
	PG_RETURN_VOID();
}

static SasLateKind
worker_api_late_kind(const text *name)
{
	int			kind = sas_work_late_by_name(text_to_cstring(name));

	if (kind < 0)
		elog(ERROR, "there is no kind of work \"%s\"", text_to_cstring(name));
	return kind;
}

/*
 * _sas.found(kind, label, since): this worker has looked for work and found
 * some of that kind. Returns true.
 */
Datum
sas_api_found(PG_FUNCTION_ARGS)
{
	sas_work_late_found(worker_api_late_kind(PG_GETARG_TEXT_PP(0)), 0, text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_TIMESTAMPTZ(2));
	PG_RETURN_BOOL(true);
}

/* _sas.passed_by(kind, passed) */
Datum
sas_api_passed_by(PG_FUNCTION_ARGS)
{
	sas_work_late_pass(worker_api_late_kind(PG_GETARG_TEXT_PP(0)), PG_GETARG_BOOL(1));
	PG_RETURN_VOID();
}

/* _sas.last_tick(): -infinity before the first one, and in a session */
Datum
sas_api_last_tick(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(sas_base_last_tick != 0 ? sas_base_last_tick : DT_NOBEGIN);
}

Datum
sas_api_wake_on_abort(PG_FUNCTION_ARGS)
{
	sas_wake_all_at_end();
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- clock and settings */

Datum
sas_api_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(sas_base_clock_now());
}

Datum
sas_api_boot(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sas_base_self.boot);
}

Datum
sas_api_complete_in(PG_FUNCTION_ARGS)
{
	return worker_api_interval(sas_base_complete_in);
}

Datum
sas_api_run_deadline(PG_FUNCTION_ARGS)
{
	return worker_api_interval(sas_base_run_deadline * INT64CONST(1000));
}

Datum
sas_api_priority_step(PG_FUNCTION_ARGS)
{
	return worker_api_interval(sas_base_priority_step * INT64CONST(1000));
}

Datum
sas_api_max_definition_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_base_max_definition_size);
}

Datum
sas_api_max_input_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_base_max_input_size);
}

Datum
sas_api_max_output_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_base_max_output_size);
}

Datum
sas_api_max_steps(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_base_max_steps);
}

Datum
sas_api_untimed_from(PG_FUNCTION_ARGS)
{
	return worker_api_interval(SAS_UNTIMED_FROM_MS);
}

Datum
sas_api_untimed_check(PG_FUNCTION_ARGS)
{
	return worker_api_interval(SAS_UNTIMED_CHECK_MS);
}

/* _sas.retain(result): how long a run with that result is kept; null: for ever */
Datum
sas_api_retain(PG_FUNCTION_ARGS)
{
	static const struct
	{
		const char *result;
		const int  *seconds;
	}			kept[] = {
		{"success", &sas_base_retain_success},
		{"warning", &sas_base_retain_warning},
		{"error", &sas_base_retain_error},
		{"compensated", &sas_base_retain_compensated},
		{"cancelled", &sas_base_retain_cancelled},
	};
	char	   *result = text_to_cstring(PG_GETARG_TEXT_PP(0));

	for (int i = 0; i < lengthof(kept); i++)
		if (strcmp(result, kept[i].result) == 0 && *kept[i].seconds >= 0)
			return worker_api_interval(*kept[i].seconds * INT64CONST(1000));
	PG_RETURN_NULL();
}

PG_FUNCTION_INFO_V1(sas_api_due_by);

/* _sas.due_by(at): at commit, wakes the supervisor when it means to sleep longer than that; returns it. */
Datum
sas_api_due_by(PG_FUNCTION_ARGS)
{
	sas_wake_due_at_commit(PG_GETARG_TIMESTAMPTZ(0));
	PG_RETURN_TIMESTAMPTZ(PG_GETARG_TIMESTAMPTZ(0));
}

PG_FUNCTION_INFO_V1(sas_api_wake_watches);
PG_FUNCTION_INFO_V1(sas_api_wake_items);
PG_FUNCTION_INFO_V1(sas_api_watch_window);

/* _sas.wake_watches(): at commit, wakes every host of infinite tasks in this database. */
Datum
sas_api_wake_watches(PG_FUNCTION_ARGS)
{
	sas_wake_version_at_commit(SAS_WAKE_WATCHES);
	PG_RETURN_VOID();
}

/* _sas.wake_items(): at commit, wakes a function worker for the inboxes of infinite tasks. */
Datum
sas_api_wake_items(PG_FUNCTION_ARGS)
{
	sas_wake_items_at_commit(false);
	PG_RETURN_VOID();
}

Datum
sas_api_watch_window(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sas_base_watch_window);
}

PG_FUNCTION_INFO_V1(sas_api_report_departure);

/* _sas.report_departure(): the end of this session wakes the supervisor. */
Datum
sas_api_report_departure(PG_FUNCTION_ARGS)
{
	sas_wake_report_departure();
	PG_RETURN_VOID();
}

static Datum
worker_api_ids(const int64 *ids, int n)
{
	Datum		values[SAS_API_MAX_WORKERS];

	for (int i = 0; i < n; i++)
		values[i] = Int64GetDatum(ids[i]);
	return PointerGetDatum(sas_base_array(values, n, INT8OID));
}

/* _sas.live_workers() */
Datum
sas_api_live_workers(PG_FUNCTION_ARGS)
{
	int64		ids[SAS_API_MAX_WORKERS];
	int64		newest;

	return worker_api_ids(ids, Min(sas_base_peers_live(ids, SAS_API_MAX_WORKERS, &newest), SAS_API_MAX_WORKERS));
}

/* _sas.writing_workers() */
Datum
sas_api_writing_workers(PG_FUNCTION_ARGS)
{
	int64		ids[SAS_API_MAX_WORKERS];

	return worker_api_ids(ids, sas_base_peers_unwritten(ids, SAS_API_MAX_WORKERS));
}

/* _sas.holding_workers() */
Datum
sas_api_holding_workers(PG_FUNCTION_ARGS)
{
	int64		ids[SAS_API_MAX_WORKERS];

	return worker_api_ids(ids, sas_base_peers_holding(ids, SAS_API_MAX_WORKERS));
}

/* sas.follow() */
Datum
sas_api_follow(PG_FUNCTION_ARGS)
{
	sas_wake_follow();
	PG_RETURN_VOID();
}
