/* SPDX-License-Identifier: PostgreSQL */
/*
 * latest.c: what is committed now, for a transaction with an older snapshot.
 *
 * A session in REPEATABLE READ or SERIALIZABLE sees what was committed when its
 * transaction began.  PostgreSQL finds out that another session has been first
 * when both write the same row.  A signal is a row of its own, and so are a chunk
 * and the items of an infinite task: the row that says whether they are still
 * allowed is only read.  So it is read with the latest snapshot, as PostgreSQL
 * reads rows for foreign keys.
 *
 * Nothing is locked, and nothing is waited for.  What another transaction has
 * written and not committed is not seen, as in READ COMMITTED.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "store/latest.h"
#include "store/plan.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

static SasPlan latest_refusal = {
	"SELECT _sas.refuse_signal(r, $2, $3, $4) FROM _sas.run r WHERE r.run_id = $1",
4, {INT8OID, TEXTOID, INT4OID, INT4OID}};

static SasPlan latest_host = {"SELECT _sas.hosted_by($1)", 1, {INT8OID}};
static SasPlan latest_node = {"SELECT true FROM _sas.node n WHERE n.node_id = $1", 1, {INT8OID}};
static SasPlan latest_use = {"SELECT _sas.user_of($1, $2)", 2, {TEXTOID, TEXTOID}};
static SasPlan latest_rows = {"SELECT _sas.rows_of($1, $2)", 2, {TEXTOID, INT8OID}};
static SasPlan latest_rows_text = {"SELECT _sas.rows_of($1, $2)::text", 2, {TEXTOID, INT8OID}};
static SasPlan latest_workflow = {"SELECT _sas.workflow_mark($1)", 1, {INT4OID}};
static SasPlan latest_secrets = {"SELECT _sas.secrets_mark()", 0};
static SasPlan latest_claim = {"SELECT _sas.claimed_until($1)", 1, {UUIDOID}};

static SasPlan latest_quotas = {"SELECT _sas.count_quotas()", 0};

bool
sas_store_keeps_snapshot(void)
{
	return IsolationUsesXactSnapshot();
}

/* The value by that snapshot, in the memory of the caller. */
static Datum
latest_read_by(Snapshot snapshot, SasPlan *plan, Datum *args, const char *nulls, bool *isnull)
{
	Datum		value = (Datum) 0;

	*isnull = true;
	SPI_connect();
	sas_store_plan_read(plan, args, nulls, snapshot);
	if (SPI_processed == 1)
	{
		Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, 0);

		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, isnull);
		if (!*isnull)
			value = SPI_datumTransfer(value, column->attbyval, column->attlen);
	}
	SPI_finish();
	return value;
}

static Datum
latest_read(SasPlan *plan, Datum *args, const char *nulls, bool *isnull)
{
	return latest_read_by(GetLatestSnapshot(), plan, args, nulls, isnull);
}

/* Does this text differ from what the snapshot of the transaction shows? */
static bool
latest_differs(SasPlan *plan, Datum *args)
{
	bool		no_seen;
	bool		no_now;
	Datum		seen = latest_read_by(GetTransactionSnapshot(), plan, args, NULL, &no_seen);
	Datum		now = latest_read(plan, args, NULL, &no_now);

	return no_seen != no_now || (!no_seen && strcmp(TextDatumGetCString(seen), TextDatumGetCString(now)) != 0);
}

text *
sas_store_latest_refusal(int64 run_id, text *signal, const int32 *for_step, const int32 *for_element)
{
	Datum		args[4] = {Int64GetDatum(run_id), PointerGetDatum(signal),
		for_step ? Int32GetDatum(*for_step) : 0,
	for_element ? Int32GetDatum(*for_element) : 0};
	char		nulls[4] = {' ', ' ', for_step ? ' ' : 'n', for_element ? ' ' : 'n'};
	bool		isnull;
	Datum		why = latest_read(&latest_refusal, args, nulls, &isnull);

	return isnull ? NULL : DatumGetTextPP(why);
}

TimestampTz
sas_store_latest_claim(const pg_uuid_t *request_id)
{
	Datum		args[1] = {UUIDPGetDatum(request_id)};
	bool		isnull;
	Datum		until = latest_read(&latest_claim, args, NULL, &isnull);

	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(until);
}

text *
sas_store_latest_host(int64 watch_id)
{
	Datum		args[1] = {Int64GetDatum(watch_id)};
	bool		isnull;
	Datum		host = latest_read(&latest_host, args, NULL, &isnull);

	return isnull ? NULL : DatumGetTextPP(host);
}

bool
sas_store_latest_node(int64 node_id)
{
	Datum		args[1] = {Int64GetDatum(node_id)};
	bool		isnull;

	(void) latest_read(&latest_node, args, NULL, &isnull);
	return !isnull;
}

bool
sas_store_latest_use(text *kind, text *name)
{
	Datum		args[2] = {PointerGetDatum(kind), PointerGetDatum(name)};
	bool		isnull;

	(void) latest_read(&latest_use, args, NULL, &isnull);
	return !isnull;
}

Datum
sas_store_latest_rows(text *kind, int64 id)
{
	Datum		args[2] = {PointerGetDatum(kind), Int64GetDatum(id)};
	bool		isnull;

	return latest_read(&latest_rows, args, NULL, &isnull);
}

bool
sas_store_rows_changed(text *kind, int64 id)
{
	Datum		args[2] = {PointerGetDatum(kind), Int64GetDatum(id)};

	return latest_differs(&latest_rows_text, args);
}

bool
sas_store_workflow_changed(int workflow_id)
{
	Datum		args[1] = {Int32GetDatum(workflow_id)};

	return latest_differs(&latest_workflow, args);
}

bool
sas_store_secrets_changed(void)
{
	return latest_differs(&latest_secrets, NULL);
}

Datum
sas_store_count_quotas(Snapshot snapshot)
{
	Snapshot	kept = RegisterSnapshot(snapshot);
	bool		isnull;
	Datum		shares = latest_read_by(kept, &latest_quotas, NULL, NULL, &isnull);

	UnregisterSnapshot(kept);
	return shares;
}
