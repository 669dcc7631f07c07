/* SPDX-License-Identifier: PostgreSQL */
/*
 * latest_api.c: the SQL-callable side of store/latest.h and store/hold.h.
 * Internal: see sql/base/latest.sql, sql/definition/drop.sql,
 * sql/flow/signal.sql, sql/agent/external_reply.sql and sql/watch/node.sql.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "store/hold.h"
#include "store/latest.h"

PG_FUNCTION_INFO_V1(sas_api_keeps_snapshot);
PG_FUNCTION_INFO_V1(sas_api_latest_refusal);
PG_FUNCTION_INFO_V1(sas_api_check_latest_claim);
PG_FUNCTION_INFO_V1(sas_api_check_latest_host);
PG_FUNCTION_INFO_V1(sas_api_check_latest_node);
PG_FUNCTION_INFO_V1(sas_api_check_latest_use);
PG_FUNCTION_INFO_V1(sas_api_latest_rows);
PG_FUNCTION_INFO_V1(sas_api_check_latest_rows);
PG_FUNCTION_INFO_V1(sas_api_check_latest_workflow);
PG_FUNCTION_INFO_V1(sas_api_check_latest_secrets);
PG_FUNCTION_INFO_V1(sas_api_hold_workflow);
PG_FUNCTION_INFO_V1(sas_api_await_submits);

/* _sas.keeps_snapshot() */
Datum
sas_api_keeps_snapshot(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_keeps_snapshot());
}

static void
latest_api_fail(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errdetail("%s", detail),
			 errhint("Try the transaction again.")));
}

/* _sas.latest_refusal(run_id, signal, for_step, for_element): null if the snapshot is never older */
Datum
sas_api_latest_refusal(PG_FUNCTION_ARGS)
{
	int32		step_no = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT32(2);
	int32		element = PG_ARGISNULL(3) ? 0 : PG_GETARG_INT32(3);
	text	   *why;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || !sas_store_keeps_snapshot())
		PG_RETURN_NULL();
	why = sas_store_latest_refusal(PG_GETARG_INT64(0), PG_GETARG_TEXT_PP(1),
								   PG_ARGISNULL(2) ? NULL : &step_no,
								   PG_ARGISNULL(3) ? NULL : &element);
	if (why == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(why);
}

/* _sas.check_latest_claim(request_id, seen): does the claim hold until then, or until no time, also now? */
Datum
sas_api_check_latest_claim(PG_FUNCTION_ARGS)
{
	TimestampTz seen = PG_ARGISNULL(1) ? DT_NOBEGIN : PG_GETARG_TIMESTAMPTZ(1);

	if (PG_ARGISNULL(0) || !sas_store_keeps_snapshot())
		PG_RETURN_VOID();
	if (sas_store_latest_claim(PG_GETARG_UUID_P(0)) != seen)
		latest_api_fail("The claim has changed since this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.check_latest_host(watch_id, seen): does the same node hold the task now, in the same epoch? */
Datum
sas_api_check_latest_host(PG_FUNCTION_ARGS)
{
	text	   *now;

	if (PG_ARGISNULL(0) || !sas_store_keeps_snapshot())
		PG_RETURN_VOID();
	now = sas_store_latest_host(PG_GETARG_INT64(0));
	if ((now == NULL) != PG_ARGISNULL(1) ||
		(now != NULL && strcmp(text_to_cstring(now), text_to_cstring(PG_GETARG_TEXT_PP(1))) != 0))
		latest_api_fail("Another node holds the task, or none, since this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.check_latest_node(node_id): this transaction sees no such node */
Datum
sas_api_check_latest_node(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && sas_store_keeps_snapshot() && sas_store_latest_node(PG_GETARG_INT64(0)))
		latest_api_fail("The node was registered after this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.check_latest_use(kind, name): this transaction sees nothing that uses the object */
Datum
sas_api_check_latest_use(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && !PG_ARGISNULL(1) && sas_store_keeps_snapshot() &&
		sas_store_latest_use(PG_GETARG_TEXT_PP(0), PG_GETARG_TEXT_PP(1)))
		latest_api_fail("What uses it was defined after this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.latest_rows(kind, id) */
Datum
sas_api_latest_rows(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(sas_store_latest_rows(PG_GETARG_TEXT_PP(0), PG_GETARG_INT64(1)));
}

/* _sas.check_latest_rows(kind, id) */
Datum
sas_api_check_latest_rows(PG_FUNCTION_ARGS)
{
	if (sas_store_keeps_snapshot() && sas_store_rows_changed(PG_GETARG_TEXT_PP(0), PG_GETARG_INT64(1)))
		latest_api_fail("Middleware, or the watcher, was changed after this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.check_latest_workflow(id) */
Datum
sas_api_check_latest_workflow(PG_FUNCTION_ARGS)
{
	if (sas_store_keeps_snapshot() && sas_store_workflow_changed(PG_GETARG_INT32(0)))
		latest_api_fail("The workflow was dropped, paused, resumed or given to another role, or an agent or a queue was dropped, after this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.check_latest_secrets() */
Datum
sas_api_check_latest_secrets(PG_FUNCTION_ARGS)
{
	if (sas_store_keeps_snapshot() && sas_store_secrets_changed())
		latest_api_fail("A secret was set or dropped after this transaction began.");
	PG_RETURN_VOID();
}

/* _sas.hold_workflow(id): was it not held before? */
Datum
sas_api_hold_workflow(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(sas_store_hold_workflow(PG_GETARG_INT32(0)));
}

/* _sas.await_submits(ids) */
Datum
sas_api_await_submits(PG_FUNCTION_ARGS)
{
	Datum	   *ids;
	bool	   *nulls;
	int			n;

	sas_base_elements(PG_GETARG_ARRAYTYPE_P(0), &ids, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			sas_store_await_submits(DatumGetInt32(ids[i]));
	PG_RETURN_VOID();
}
