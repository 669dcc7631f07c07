/* SPDX-License-Identifier: PostgreSQL */
/*
 * claim_one.c: claims a single call without the interpreter.
 *
 * It writes the same rows as _sas.claim_ready(): it deletes the row of _sas.ready,
 * inserts one into _sas.lease and one into _sas.step, and sets a pending run
 * to running.  It waits for no lock: a locked row of _sas.ready is left to
 * SQL, which skips it, and a locked run is started by the reply.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "base/actor.h"
#include "base/clock.h"
#include "base/settings.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "storage/bufmgr.h"
#include "store/claim_one.h"
#include "store/heap_write.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

/* The cache has no more calls. */
#define MAX_CACHED_CALLS 1000

/* A run with a larger input is left to SQL, which copes with any problem of it. */
#define LARGEST_INPUT (1024 * 1024)

typedef struct CachedCall
{
	struct
	{
		int			version_id;
		int			step_no;
	}			key;
	bool		plain;
	SasPlainCall call;
} CachedCall;

static HTAB *claim_one_cache = NULL;
static MemoryContext claim_one_cache_context = NULL;

static SasTable claim_one_step = {"step", 13, {
	{"run_id", INT8OID}, {"step_no", INT4OID}, {"element", INT4OID, "0"}, {"state", TEXTOID, "running"}, {"attempt", INT4OID, "0"},
	{"failure_count", INT4OID, "0"}, {"in_doubt", BOOLOID, "false"}, {"alone", BOOLOID, "false"}, {"deferred", BOOLOID, "false"},
	{"lease_id", INT8OID}, {"request_id", UUIDOID}, {"complete_by", TIMESTAMPTZOID}, {"started_at", TIMESTAMPTZOID}}};
static SasTable claim_one_lease = {"lease", 8, {
	{"lease_id", INT8OID}, {"boot", INT8OID}, {"worker_id", INT8OID}, {"locked_by", TEXTOID}, {"next_by", TIMESTAMPTZOID},
	{"run_ids", INT8ARRAYOID}, {"step_nos", INT4ARRAYOID}, {"elements", INT4ARRAYOID}}};

/* While a call is checked, or was found. */
static Oid	claim_one_schema;
static Relation claim_one_ready;
static Relation claim_one_run;
static Snapshot claim_one_snapshot;
static HeapTuple claim_one_ready_row;
static HeapTuple claim_one_run_row;

/* ----------------------------------------------------------- what is known */

/* A value that outlives the transaction. */
static void *
claim_one_cache_value(Datum value)
{
	struct varlena *whole = PG_DETOAST_DATUM(value);

	return memcpy(MemoryContextAlloc(claim_one_cache_context, VARSIZE(whole)), whole, VARSIZE(whole));
}

/* Asks _sas.plain_call(). */
static bool
claim_one_read_call(int version_id, int step_no, SasPlainCall *call)
{
	Oid			types[2] = {INT4OID, INT4OID};
	Oid			function = LookupFuncName(list_make2(makeString("_sas"), makeString("plain_call")), 2, types, false);
	HeapTupleHeader row;
	bool		isnull;
	Datum		value;
	Datum	   *members;

	/* the snapshot of the transaction may be older than the version, and the result is cached */
	PushActiveSnapshot(claim_one_snapshot);
	row = DatumGetHeapTupleHeader(OidFunctionCall2(function, Int32GetDatum(version_id), Int32GetDatum(step_no)));
	PopActiveSnapshot();
	value = GetAttributeByName(row, "name", &isnull);
	if (isnull)
		return false;
	call->name = MemoryContextStrdup(claim_one_cache_context, TextDatumGetCString(value));
	call->workflow_id = DatumGetInt32(GetAttributeByName(row, "workflow_id", &isnull));
	call->window_ms = DatumGetFloat8(GetAttributeByName(row, "window_ms", &isnull));
	call->request = claim_one_cache_value(GetAttributeByName(row, "request", &isnull));
	call->policy = claim_one_cache_value(GetAttributeByName(row, "policy", &isnull));
	value = GetAttributeByName(row, "reads", &isnull);
	call->reads = -1;
	if (isnull)
		return true;
	deconstruct_array(DatumGetArrayTypeP(value), TEXTOID, -1, false, TYPALIGN_INT, &members, NULL, &call->reads);
	call->members = MemoryContextAlloc(claim_one_cache_context, sizeof(text *) * Max(call->reads, 1));
	for (int i = 0; i < call->reads; i++)
		call->members[i] = claim_one_cache_value(members[i]);
	return true;
}

/* The steps of a version never change, and its number is never given to another one while the extension lives. */
static const SasPlainCall *
claim_one_plain_call(int version_id, int step_no)
{
	CachedCall	wanted = {{version_id, step_no}};
	CachedCall *found;

	if (claim_one_cache == NULL || hash_get_num_entries(claim_one_cache) >= MAX_CACHED_CALLS)
	{
		HASHCTL		control = {.keysize = sizeof(((CachedCall *) NULL)->key), .entrysize = sizeof(CachedCall)};

		if (claim_one_cache_context == NULL)
			claim_one_cache_context = AllocSetContextCreate(TopMemoryContext, "sas calls", ALLOCSET_SMALL_SIZES);
		claim_one_cache = NULL;
		MemoryContextReset(claim_one_cache_context);
		control.hcxt = claim_one_cache_context;
		claim_one_cache = hash_create("sas calls", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	found = hash_search(claim_one_cache, &wanted.key, HASH_FIND, NULL);
	if (found == NULL)
	{
		wanted.plain = claim_one_read_call(version_id, step_no, &wanted.call);
		found = hash_search(claim_one_cache, &wanted.key, HASH_ENTER, NULL);
		found->plain = wanted.plain;
		found->call = wanted.call;
	}
	return found->plain ? &found->call : NULL;
}

/* -------------------------------------------------------------------- rows */

static AttrNumber
claim_one_column(Relation table, const char *name)
{
	TupleDesc	desc = RelationGetDescr(table);

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && namestrcmp(&TupleDescAttr(desc, i)->attname, name) == 0)
			return i + 1;
	elog(ERROR, "there is no column \"%s\" in _sas.%s", name, RelationGetRelationName(table));
}

static Datum
claim_one_get(Relation table, HeapTuple row, const char *name, bool *isnull)
{
	bool		none;

	return heap_getattr(row, claim_one_column(table, name), RelationGetDescr(table), isnull ? isnull : &none);
}

static bool
claim_one_equals(Relation table, HeapTuple row, const char *name, const char *word)
{
	text	   *value = DatumGetTextPP(claim_one_get(table, row, name, NULL));

	return VARSIZE_ANY_EXHDR(value) == strlen(word) && memcmp(VARDATA_ANY(value), word, strlen(word)) == 0;
}

static Relation
claim_one_open_table(const char *name, LOCKMODE mode)
{
	return try_table_open(get_relname_relid(name, claim_one_schema), mode);
}

/* The key of a step, or, with one column, of a run. */
static void
claim_one_set_key(Relation table, ScanKeyData *key, int n, const SasStepId *id)
{
	ScanKeyInit(&key[0], claim_one_column(table, "run_id"), BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id->run_id));
	if (n == 1)
		return;
	ScanKeyInit(&key[1], claim_one_column(table, "step_no"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->step_no));
	ScanKeyInit(&key[2], claim_one_column(table, "element"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->element));
}

/* The first n rows of a scan by that index, copied, NULL behind the last. */
static void
claim_one_find_rows(Relation table, const char *index, ScanKeyData *key, int n_keys, HeapTuple *rows, int n)
{
	SysScanDesc scan = systable_beginscan(table, get_relname_relid(index, claim_one_schema), true, claim_one_snapshot, n_keys, key);

	for (int i = 0; i < n; i++)
	{
		HeapTuple	row = i > 0 && rows[i - 1] == NULL ? NULL : systable_getnext(scan);

		rows[i] = HeapTupleIsValid(row) ? heap_copytuple(row) : NULL;
	}
	systable_endscan(scan);
}

/* Is there a row of this step in that table?  By the first columns of its primary key. */
static bool
claim_one_has_row(const char *name, const char *index, const SasStepId *id)
{
	Relation	table = claim_one_open_table(name, AccessShareLock);
	ScanKeyData key[3];
	HeapTuple	row;

	if (table == NULL)
		return true;
	claim_one_set_key(table, key, 3, id);
	claim_one_find_rows(table, index, key, 3, &row, 1);
	table_close(table, NoLock);
	return row != NULL;
}

static bool
claim_one_has_trigger(Relation table, bool on_update)
{
	const TriggerDesc *t = table->trigdesc;

	if (t == NULL)
		return false;
	return on_update ? t->trig_update_before_row || t->trig_update_after_row || t->trig_update_instead_row || t->trig_update_before_statement || t->trig_update_after_statement
		: t->trig_delete_before_row || t->trig_delete_after_row || t->trig_delete_instead_row || t->trig_delete_before_statement || t->trig_delete_after_statement;
}

/* ----------------------------------------------------------------- looking */

/* The first row of the lane, if it is the only one, and that of a step as a whole. */
static SasClaimOne
claim_one_find_ready(int lane, TimestampTz mark, SasSingleCall *single)
{
	ScanKeyData key[2];
	HeapTuple	rows[2];

	ScanKeyInit(&key[0], claim_one_column(claim_one_ready, "lane"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane));
	ScanKeyInit(&key[1], claim_one_column(claim_one_ready, "rank"), BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(mark));
	claim_one_find_rows(claim_one_ready, "ready_claim", key, 2, rows, 2);
	if (rows[0] == NULL)
		return SAS_CLAIM_ONE_NOTHING;
	claim_one_ready_row = rows[0];
	single->id.run_id = DatumGetInt64(claim_one_get(claim_one_ready, claim_one_ready_row, "run_id", NULL));
	single->id.step_no = DatumGetInt32(claim_one_get(claim_one_ready, claim_one_ready_row, "step_no", NULL));
	single->id.element = DatumGetInt32(claim_one_get(claim_one_ready, claim_one_ready_row, "element", NULL));
	single->rank = DatumGetTimestampTz(claim_one_get(claim_one_ready, claim_one_ready_row, "rank", NULL));
	single->ready_at = DatumGetTimestampTz(claim_one_get(claim_one_ready, claim_one_ready_row, "ready_at", NULL));
	return rows[1] == NULL && single->id.element == 0 && !DatumGetBool(claim_one_get(claim_one_ready, claim_one_ready_row, "undo", NULL)) &&
		!DatumGetBool(claim_one_get(claim_one_ready, claim_one_ready_row, "alone", NULL)) ? SAS_CLAIM_ONE_FOUND : SAS_CLAIM_ONE_OTHER;
}

/*
 * Locks that row, unless it is locked already, and takes a new snapshot: it
 * shows what the session that had the row locked put in front of the step,
 * and now no session can add to it.
 */
static bool
claim_one_lock_ready(void)
{
	HeapTupleData row = {.t_self = claim_one_ready_row->t_self};
	TM_FailureData failure;
	Buffer		buffer;
	TM_Result	result = heap_lock_tuple(claim_one_ready, &row, GetCurrentCommandId(true), LockTupleExclusive, LockWaitSkip, false, &buffer, &failure);

	ReleaseBuffer(buffer);
	if (result != TM_Ok)
		return false;
	UnregisterSnapshot(claim_one_snapshot);
	claim_one_snapshot = RegisterSnapshot(GetTransactionSnapshot());
	return true;
}

/* What the templates see of the run; false when SQL has to claim. */
static bool
claim_one_read_run(SasSingleCall *single)
{
	ScanKeyData key[1];
	bool		isnull;
	Datum		value;

	claim_one_set_key(claim_one_run, key, 1, &single->id);
	claim_one_find_rows(claim_one_run, "run_pkey", key, 1, &claim_one_run_row, 1);
	if (claim_one_run_row == NULL)
		return false;
	single->begins = claim_one_equals(claim_one_run, claim_one_run_row, "state", "pending");
	claim_one_get(claim_one_run, claim_one_run_row, "start_before", &isnull);
	if (!isnull || !(single->begins || claim_one_equals(claim_one_run, claim_one_run_row, "state", "running")))
		return false;
	single->call = claim_one_plain_call(DatumGetInt32(claim_one_get(claim_one_run, claim_one_run_row, "version_id", NULL)), single->id.step_no);
	value = claim_one_get(claim_one_run, claim_one_run_row, "input", NULL);
	if (single->call == NULL || toast_raw_datum_size(value) > LARGEST_INPUT)
		return false;
	single->input = DatumGetJsonbP(value);
	single->labels = DatumGetJsonbP(claim_one_get(claim_one_run, claim_one_run_row, "labels", NULL));
	single->trace = *DatumGetUUIDP(claim_one_get(claim_one_run, claim_one_run_row, "trace", NULL));
	value = claim_one_get(claim_one_run, claim_one_run_row, "key", &isnull);
	single->run_key = isnull ? NULL : DatumGetTextPP(value);
	single->created_at = DatumGetTimestampTz(claim_one_get(claim_one_run, claim_one_run_row, "created_at", NULL));
	single->deadline = DatumGetTimestampTz(claim_one_get(claim_one_run, claim_one_run_row, "deadline", NULL));
	return true;
}

void
sas_store_claim_one_release(void)
{
	UnregisterSnapshot(claim_one_snapshot);
	if (claim_one_run != NULL)
		table_close(claim_one_run, NoLock);
	if (claim_one_ready != NULL)
		table_close(claim_one_ready, NoLock);
}

SasClaimOne
sas_store_claim_one_find(int lane, TimestampTz mark, SasSingleCall *single)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	SasClaimOne	found = SAS_CLAIM_ONE_OTHER;

	memset(single, 0, sizeof(*single));
	claim_one_schema = get_namespace_oid("_sas", false);
	claim_one_snapshot = RegisterSnapshot(GetTransactionSnapshot());
	claim_one_ready = claim_one_open_table("ready", RowExclusiveLock);
	claim_one_run = claim_one_open_table("run", RowExclusiveLock);
	if (claim_one_ready != NULL && claim_one_run != NULL && !claim_one_has_trigger(claim_one_ready, false) && !claim_one_has_trigger(claim_one_run, true))
		found = claim_one_find_ready(lane, mark, single);
	/* a later attempt has a row in sas.step; an operator's override or middleware has one in _sas.override or _sas.phase */
	if (found == SAS_CLAIM_ONE_FOUND &&
		(!claim_one_lock_ready() || !claim_one_read_run(single) || claim_one_has_row("step", "step_pkey", &single->id) ||
		 claim_one_has_row("override", "override_pkey", &single->id) || claim_one_has_row("phase", "phase_pkey", &single->id)))
		found = SAS_CLAIM_ONE_OTHER;
	if (found != SAS_CLAIM_ONE_FOUND)
		sas_store_claim_one_release();
	MemoryContextSwitchTo(old);
	return found;
}

/* ------------------------------------------------------------------ taking */

static Datum
claim_one_array(Datum value, Oid type, int size)
{
	return PointerGetDatum(construct_array(&value, 1, type, size, size == 4 || FLOAT8PASSBYVAL, size == 4 ? TYPALIGN_INT : TYPALIGN_DOUBLE));
}

/* Is it pending still? Then sets it to running, as _sas.start_runs() does. */
static bool
claim_one_start_run(TimestampTz now)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *target = makeNode(ResultRelInfo);
	TupleTableSlot *found = table_slot_create(claim_one_run, &estate->es_tupleTable);
	TupleTableSlot *changed = ExecInitExtraTupleSlot(estate, RelationGetDescr(claim_one_run), &TTSOpsVirtual);
	AttrNumber	state = claim_one_column(claim_one_run, "state");
	AttrNumber	started = claim_one_column(claim_one_run, "started_at");
	TM_FailureData failure;
	bool		starts;

	estate->es_snapshot = claim_one_snapshot;
	estate->es_output_cid = GetCurrentCommandId(true);
	InitResultRelInfo(target, claim_one_run, 0, NULL, 0);
	starts = table_tuple_lock(claim_one_run, &claim_one_run_row->t_self, claim_one_snapshot, found, estate->es_output_cid,
							  LockTupleNoKeyExclusive, LockWaitSkip,
							  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) == TM_Ok;
	if (starts)
	{
		slot_getallattrs(found);
		starts = strcmp(TextDatumGetCString(found->tts_values[state - 1]), "pending") == 0;
	}
	if (starts)
	{
		memcpy(changed->tts_values, found->tts_values, sizeof(Datum) * found->tts_nvalid);
		memcpy(changed->tts_isnull, found->tts_isnull, sizeof(bool) * found->tts_nvalid);
		changed->tts_values[state - 1] = CStringGetTextDatum("running");
		if (changed->tts_isnull[started - 1])
		{
			changed->tts_values[started - 1] = TimestampTzGetDatum(now);
			changed->tts_isnull[started - 1] = false;
		}
		ExecStoreVirtualTuple(changed);
		ExecOpenIndices(target, false);
		/* without triggers nothing is evaluated again */
		ExecSimpleRelationUpdate(target, estate, NULL, found, changed);
		ExecCloseIndices(target);
	}
	ExecResetTupleTable(estate->es_tupleTable, false);
	MemoryContextSwitchTo(old);
	FreeExecutorState(estate);
	return starts;
}

static void
claim_one_write_rows(SasSingleCall *single, TimestampTz now)
{
	pg_uuid_t  *request_id = DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum) 0));
	Datum		run_id = Int64GetDatum(single->id.run_id);
	Datum		step_no = Int32GetDatum(single->id.step_no);

	single->id.request_id = *request_id;
	single->lease_id = nextval_internal(get_relname_relid("lease_lease_id_seq", claim_one_schema), false);
	single->window_ms = single->call->window_ms < 0 ? sas_base_complete_in : single->call->window_ms;
	single->complete_by = now + (int64) (single->window_ms * 1000);
	sas_store_table_insert(&claim_one_lease, (Datum[]) {Int64GetDatum(single->lease_id), Int64GetDatum(sas_base_self.boot), Int64GetDatum(sas_base_self.worker_id),
						   CStringGetTextDatum(sas_base_self.name), TimestampTzGetDatum(single->complete_by),
						   claim_one_array(run_id, INT8OID, 8), claim_one_array(step_no, INT4OID, 4),
						   claim_one_array(Int32GetDatum(single->id.element), INT4OID, 4)}, NULL);
	sas_store_table_insert(&claim_one_step, (Datum[]) {run_id, step_no, Int64GetDatum(single->lease_id), UUIDPGetDatum(request_id),
						   TimestampTzGetDatum(single->complete_by), TimestampTzGetDatum(now)}, NULL);
	single->begins = single->begins && claim_one_start_run(now);
}

/* Both, or none. */
static bool
claim_one_open_tables(void)
{
	if (!sas_store_table_open(&claim_one_lease))
		return false;
	if (sas_store_table_open(&claim_one_step))
		return true;
	sas_store_table_close(&claim_one_lease);
	return false;
}

bool
sas_store_claim_one_take(SasSingleCall *single)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	TM_FailureData failure;
	bool		taken = false;

	if (claim_one_open_tables())
	{
		/* it is locked, so there is nothing to wait for */
		if (heap_delete(claim_one_ready, &claim_one_ready_row->t_self, GetCurrentCommandId(true), InvalidSnapshot, true, &failure, false) != TM_Ok)
			elog(ERROR, "a row of _sas.ready that is held was changed");
		claim_one_write_rows(single, sas_base_clock_now());
		taken = true;
		sas_store_table_close(&claim_one_step);
		sas_store_table_close(&claim_one_lease);
	}
	sas_store_claim_one_release();
	if (taken)
		CommandCounterIncrement();
	MemoryContextSwitchTo(old);
	return taken;
}
