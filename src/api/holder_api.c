/* SPDX-License-Identifier: PostgreSQL */
/*
 * holder_api.c: the SQL-callable side of wake/holders.h.  Internal: see
 * sql/state/message.sql.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/xact.h"
#include "base/array.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/actor.h"
#include "metrics/metrics.h"
#include "wake/holders.h"
#include "wake/wakeup.h"

PG_FUNCTION_INFO_V1(sas_api_await_holders);
PG_FUNCTION_INFO_V1(sas_api_await_senders);
PG_FUNCTION_INFO_V1(sas_api_run_is_held);
PG_FUNCTION_INFO_V1(sas_api_await_run);
PG_FUNCTION_INFO_V1(sas_api_freed_runs);

/* The transaction that has locked this row, as far as it has not ended. */
static TransactionId
holder_api_of_row(HeapTuple row)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(row->t_data);
	TransactionId holder = InvalidTransactionId;
	MultiXactMember *members;
	int			n;

	if (row->t_data->t_infomask & HEAP_XMAX_INVALID)
		return InvalidTransactionId;
	if (!(row->t_data->t_infomask & HEAP_XMAX_IS_MULTI))
		return TransactionIdIsInProgress(xmax) ? xmax : InvalidTransactionId;
	n = GetMultiXactIdMembers(xmax, &members, false, HEAP_XMAX_IS_LOCKED_ONLY(row->t_data->t_infomask));
	for (int i = 0; i < n && !TransactionIdIsValid(holder); i++)
		if (members[i].status >= MultiXactStatusForShare && TransactionIdIsInProgress(members[i].xid))
			holder = members[i].xid;
	return holder;
}

/* A table whose rows are found by their run. */
typedef struct HolderTable
{
	Relation	relation;
	Oid			key;
	AttrNumber	column;
} HolderTable;

static HolderTable
holder_api_open(const char *table, const char *key)
{
	Oid			schema = get_namespace_oid("_sas", false);
	HolderTable opened = {table_open(get_relname_relid(table, schema), AccessShareLock), get_relname_relid(key, schema)};

	opened.column = get_attnum(RelationGetRelid(opened.relation), "run_id");
	return opened;
}

static TransactionId
holder_api_of_run(const HolderTable *runs, int64 run_id)
{
	ScanKeyData by_id;
	SysScanDesc scan;
	HeapTuple	row;
	TransactionId holder = InvalidTransactionId;

	ScanKeyInit(&by_id, runs->column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(run_id));
	scan = systable_beginscan(runs->relation, runs->key, true, GetActiveSnapshot(), 1, &by_id);
	row = systable_getnext(scan);
	if (HeapTupleIsValid(row))
		holder = holder_api_of_row(row);
	systable_endscan(scan);
	return holder;
}

static Datum *
holder_api_run_ids(Datum array, int *n)
{
	Datum	   *run_ids;
	bool	   *nulls;

	sas_base_elements(DatumGetArrayTypeP(array), &run_ids, &nulls, n);
	return run_ids;
}

static Datum
holder_api_array(Datum *run_ids, int n)
{
	return PointerGetDatum(sas_base_array(run_ids, n, INT8OID));
}

/* _sas.await_holders(actor, run_ids, due_at): those whose holder wakes this worker */
Datum
sas_api_await_holders(PG_FUNCTION_ARGS)
{
	HolderTable runs = holder_api_open("run", "run_pkey");
	int			n;
	int			awaited = 0;
	Datum	   *run_ids = holder_api_run_ids(PG_GETARG_DATUM(1), &n);

	for (int i = 0; i < n; i++)
	{
		SasWakeHeld held = {PG_GETARG_CHAR(0), DatumGetInt64(run_ids[i]), PG_GETARG_TIMESTAMPTZ(2)};
		TransactionId holder = holder_api_of_run(&runs, held.run_id);

		if (TransactionIdIsValid(holder) && sas_wake_holders_await(&held, holder) == SAS_WAKE_AWAIT_NOTED)
			run_ids[awaited++] = run_ids[i];
	}
	table_close(runs.relation, AccessShareLock);
	return holder_api_array(run_ids, awaited);
}

/* Another transaction that has stored a signal for this run and has not ended. */
static TransactionId
holder_api_of_signal(const HolderTable *signals, int64 run_id)
{
	ScanKeyData by_run;
	SysScanDesc scan;
	SnapshotData dirty;
	TransactionId sender = InvalidTransactionId;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&by_run, signals->column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(run_id));
	scan = systable_beginscan(signals->relation, signals->key, true, &dirty, 1, &by_run);
	while (!TransactionIdIsValid(sender) && HeapTupleIsValid(systable_getnext(scan)))
		sender = dirty.xmin;
	systable_endscan(scan);
	return sender;
}

/*
 * _sas.await_senders(actor, run_ids, due_at): those to which an open
 * transaction has sent a signal; its end wakes this worker
 */
Datum
sas_api_await_senders(PG_FUNCTION_ARGS)
{
	HolderTable signals = holder_api_open("signal", "signal_pkey");
	int			n;
	int			awaited = 0;
	Datum	   *run_ids = holder_api_run_ids(PG_GETARG_DATUM(1), &n);

	for (int i = 0; i < n; i++)
	{
		SasWakeHeld held = {PG_GETARG_CHAR(0), DatumGetInt64(run_ids[i]), PG_GETARG_TIMESTAMPTZ(2)};
		TransactionId sender;

		while (TransactionIdIsValid(sender = holder_api_of_signal(&signals, held.run_id)))
		{
			/* without room to note it, the message is due by itself; a sender that has ended is read again */
			if (sas_wake_holders_await(&held, sender) == SAS_WAKE_AWAIT_ENDED)
				continue;
			run_ids[awaited++] = run_ids[i];
			break;
		}
	}
	table_close(signals.relation, AccessShareLock);
	return holder_api_array(run_ids, awaited);
}

/* Another transaction that has locked this run and has not ended. */
static TransactionId
holder_api_other(int64 run_id)
{
	HolderTable runs = holder_api_open("run", "run_pkey");
	TransactionId holder = holder_api_of_run(&runs, run_id);

	table_close(runs.relation, AccessShareLock);
	return TransactionIdIsValid(holder) && !TransactionIdIsCurrentTransactionId(holder) ? holder : InvalidTransactionId;
}

/* _sas.run_is_held(run_id) */
Datum
sas_api_run_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(TransactionIdIsValid(holder_api_other(PG_GETARG_INT64(0))));
}

/* _sas.await_run(run_id): waits until the transaction that has locked it has ended */
Datum
sas_api_await_run(PG_FUNCTION_ARGS)
{
	TransactionId holder = holder_api_other(PG_GETARG_INT64(0));

	if (TransactionIdIsValid(holder))
		XactLockTableWait(holder, NULL, NULL, XLTW_None);
	PG_RETURN_VOID();
}

/* _sas.freed_runs(actor): (run_id, due_at) */
Datum
sas_api_freed_runs(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasWakeHeld *held = palloc(sizeof(SasWakeHeld) * SAS_WAKE_HOLDERS);
	int			missed;
	int			n = sas_wake_holders_take(PG_GETARG_CHAR(0), held, SAS_WAKE_HOLDERS, &missed);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < n; i++)
	{
		Datum		values[2] = {Int64GetDatum(held[i].run_id), TimestampTzGetDatum(held[i].due_at)};
		bool		nulls[2] = {false, false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	if (missed > 0)
	{
		sas_metrics_add(SAS_METRIC_FOUND_LATE, 0, 0, psprintf("%s held", sas_base_actor_name(sas_base_self.actor)), missed, -1);
		ereport(LOG,
				(errmsg("sas %s found work that was not announced: %d of kind \"held\"", sas_base_actor_name(sas_base_self.actor), missed),
				 errdetail("A transaction that held a run has ended, and woke nobody.")));
	}
	return (Datum) 0;
}
