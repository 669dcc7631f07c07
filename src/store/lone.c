/* SPDX-License-Identifier: PostgreSQL */
/*
 * lone.c: a call that is alone in its lane, claimed without the interpreter.
 *
 * The same rows are written as by _sas.claim_ready(): the row of _sas.ready goes, one
 * of _sas.lease and one of _sas.step come, and a run that is pending says that it
 * runs.  Nothing is waited for: a row that somebody holds is left to SQL, which
 * passes it by, and a run that somebody holds is started by the reply.
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
#include "store/lone.h"
#include "store/rows.h"
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

/* More calls than that are not kept. */
#define MOST_KEPT 1000

/* The input of a run that is larger is left to SQL, which bears whatever it brings. */
#define LARGEST_INPUT (1024 * 1024)

typedef struct Known
{
	struct
	{
		int			version_id;
		int			step_no;
	}			key;
	bool		plain;
	SasPlainCall call;
} Known;

static HTAB *known = NULL;
static MemoryContext known_context = NULL;

static SasTable step = {"step", 13, {
	{"run_id", INT8OID}, {"step_no", INT4OID}, {"element", INT4OID, "0"}, {"state", TEXTOID, "running"}, {"attempt", INT4OID, "0"},
	{"failure_count", INT4OID, "0"}, {"in_doubt", BOOLOID, "false"}, {"alone", BOOLOID, "false"}, {"parked", BOOLOID, "false"},
	{"lease_id", INT8OID}, {"request_id", UUIDOID}, {"complete_by", TIMESTAMPTZOID}, {"started_at", TIMESTAMPTZOID}}};
static SasTable lease = {"lease", 8, {
	{"lease_id", INT8OID}, {"boot", INT8OID}, {"worker_id", INT8OID}, {"locked_by", TEXTOID}, {"next_by", TIMESTAMPTZOID},
	{"run_ids", INT8ARRAYOID}, {"step_nos", INT4ARRAYOID}, {"elements", INT4ARRAYOID}}};

/* While one is looked at, or was found. */
static Oid	schema;
static Relation ready;
static Relation run;
static Snapshot snapshot;
static HeapTuple ready_row;
static HeapTuple run_row;

/* ----------------------------------------------------------- what is known */

/* A value that outlives the transaction. */
static void *
kept(Datum value)
{
	struct varlena *whole = PG_DETOAST_DATUM(value);

	return memcpy(MemoryContextAlloc(known_context, VARSIZE(whole)), whole, VARSIZE(whole));
}

/* Asks _sas.plain_call(). */
static bool
read_call(int version_id, int step_no, SasPlainCall *call)
{
	Oid			types[2] = {INT4OID, INT4OID};
	Oid			function = LookupFuncName(list_make2(makeString("_sas"), makeString("plain_call")), 2, types, false);
	HeapTupleHeader row;
	bool		isnull;
	Datum		value;
	Datum	   *members;

	/* the snapshot of the transaction may be older than the version, and what is answered is kept */
	PushActiveSnapshot(snapshot);
	row = DatumGetHeapTupleHeader(OidFunctionCall2(function, Int32GetDatum(version_id), Int32GetDatum(step_no)));
	PopActiveSnapshot();
	value = GetAttributeByName(row, "name", &isnull);
	if (isnull)
		return false;
	call->name = MemoryContextStrdup(known_context, TextDatumGetCString(value));
	call->workflow_id = DatumGetInt32(GetAttributeByName(row, "workflow_id", &isnull));
	call->window_ms = DatumGetFloat8(GetAttributeByName(row, "window_ms", &isnull));
	call->request = kept(GetAttributeByName(row, "request", &isnull));
	call->policy = kept(GetAttributeByName(row, "policy", &isnull));
	value = GetAttributeByName(row, "reads", &isnull);
	call->reads = -1;
	if (isnull)
		return true;
	deconstruct_array(DatumGetArrayTypeP(value), TEXTOID, -1, false, TYPALIGN_INT, &members, NULL, &call->reads);
	call->members = MemoryContextAlloc(known_context, sizeof(text *) * Max(call->reads, 1));
	for (int i = 0; i < call->reads; i++)
		call->members[i] = kept(members[i]);
	return true;
}

/* The steps of a version never change, and its number is never given to another one while the extension lives. */
static const SasPlainCall *
plain_call(int version_id, int step_no)
{
	Known		look = {{version_id, step_no}};
	Known	   *found;

	if (known == NULL || hash_get_num_entries(known) >= MOST_KEPT)
	{
		HASHCTL		control = {.keysize = sizeof(((Known *) NULL)->key), .entrysize = sizeof(Known)};

		if (known_context == NULL)
			known_context = AllocSetContextCreate(TopMemoryContext, "sas calls", ALLOCSET_SMALL_SIZES);
		known = NULL;
		MemoryContextReset(known_context);
		control.hcxt = known_context;
		known = hash_create("sas calls", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	found = hash_search(known, &look.key, HASH_FIND, NULL);
	if (found == NULL)
	{
		look.plain = read_call(version_id, step_no, &look.call);
		found = hash_search(known, &look.key, HASH_ENTER, NULL);
		found->plain = look.plain;
		found->call = look.call;
	}
	return found->plain ? &found->call : NULL;
}

/* -------------------------------------------------------------------- rows */

static AttrNumber
column(Relation table, const char *name)
{
	TupleDesc	desc = RelationGetDescr(table);

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped && namestrcmp(&TupleDescAttr(desc, i)->attname, name) == 0)
			return i + 1;
	elog(ERROR, "there is no column \"%s\" in _sas.%s", name, RelationGetRelationName(table));
}

static Datum
get(Relation table, HeapTuple row, const char *name, bool *isnull)
{
	bool		none;

	return heap_getattr(row, column(table, name), RelationGetDescr(table), isnull ? isnull : &none);
}

static bool
says(Relation table, HeapTuple row, const char *name, const char *word)
{
	text	   *value = DatumGetTextPP(get(table, row, name, NULL));

	return VARSIZE_ANY_EXHDR(value) == strlen(word) && memcmp(VARDATA_ANY(value), word, strlen(word)) == 0;
}

static Relation
open_table(const char *name, LOCKMODE mode)
{
	return try_table_open(get_relname_relid(name, schema), mode);
}

/* The key of a step, or, with one column, of a run. */
static void
set_key(Relation table, ScanKeyData *key, int n, const SasStepId *id)
{
	ScanKeyInit(&key[0], column(table, "run_id"), BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id->run_id));
	if (n == 1)
		return;
	ScanKeyInit(&key[1], column(table, "step_no"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->step_no));
	ScanKeyInit(&key[2], column(table, "element"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(id->element));
}

/* The first n rows of a scan by that index, copied, NULL where there are no more. */
static void
find_rows(Relation table, const char *index, ScanKeyData *key, int n_keys, HeapTuple *rows, int n)
{
	SysScanDesc scan = systable_beginscan(table, get_relname_relid(index, schema), true, snapshot, n_keys, key);

	for (int i = 0; i < n; i++)
	{
		HeapTuple	row = i > 0 && rows[i - 1] == NULL ? NULL : systable_getnext(scan);

		rows[i] = HeapTupleIsValid(row) ? heap_copytuple(row) : NULL;
	}
	systable_endscan(scan);
}

/* Is there a row of this step in that table?  By the first columns of its primary key. */
static bool
has_row(const char *name, const char *index, const SasStepId *id)
{
	Relation	table = open_table(name, AccessShareLock);
	ScanKeyData key[3];
	HeapTuple	row;

	if (table == NULL)
		return true;
	set_key(table, key, 3, id);
	find_rows(table, index, key, 3, &row, 1);
	table_close(table, NoLock);
	return row != NULL;
}

static bool
has_trigger(Relation table, bool on_update)
{
	const TriggerDesc *t = table->trigdesc;

	if (t == NULL)
		return false;
	return on_update ? t->trig_update_before_row || t->trig_update_after_row || t->trig_update_instead_row || t->trig_update_before_statement || t->trig_update_after_statement
		: t->trig_delete_before_row || t->trig_delete_after_row || t->trig_delete_instead_row || t->trig_delete_before_statement || t->trig_delete_after_statement;
}

/* ----------------------------------------------------------------- looking */

/* The first row of the lane, if it is the only one, and that of a step as a whole. */
static SasLone
find_ready(int lane, TimestampTz mark, SasLoneCall *lone)
{
	ScanKeyData key[2];
	HeapTuple	rows[2];

	ScanKeyInit(&key[0], column(ready, "lane"), BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(lane));
	ScanKeyInit(&key[1], column(ready, "rank"), BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(mark));
	find_rows(ready, "ready_claim", key, 2, rows, 2);
	if (rows[0] == NULL)
		return SAS_LONE_NOTHING;
	ready_row = rows[0];
	lone->id.run_id = DatumGetInt64(get(ready, ready_row, "run_id", NULL));
	lone->id.step_no = DatumGetInt32(get(ready, ready_row, "step_no", NULL));
	lone->id.element = DatumGetInt32(get(ready, ready_row, "element", NULL));
	lone->rank = DatumGetTimestampTz(get(ready, ready_row, "rank", NULL));
	lone->ready_at = DatumGetTimestampTz(get(ready, ready_row, "ready_at", NULL));
	return rows[1] == NULL && lone->id.element == 0 && !DatumGetBool(get(ready, ready_row, "undo", NULL)) &&
		!DatumGetBool(get(ready, ready_row, "alone", NULL)) ? SAS_LONE_FOUND : SAS_LONE_OTHER;
}

/*
 * Locks that row, unless somebody else is at it, and looks anew: what was put
 * in the place of the step's own by who held the row is seen, and nobody can
 * add to it any more.
 */
static bool
hold_ready(void)
{
	HeapTupleData row = {.t_self = ready_row->t_self};
	TM_FailureData failure;
	Buffer		buffer;
	TM_Result	result = heap_lock_tuple(ready, &row, GetCurrentCommandId(true), LockTupleExclusive, LockWaitSkip, false, &buffer, &failure);

	ReleaseBuffer(buffer);
	if (result != TM_Ok)
		return false;
	UnregisterSnapshot(snapshot);
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	return true;
}

/* What the templates see of the run; false when SQL has to look at it. */
static bool
read_run(SasLoneCall *lone)
{
	ScanKeyData key[1];
	bool		isnull;
	Datum		value;

	set_key(run, key, 1, &lone->id);
	find_rows(run, "run_pkey", key, 1, &run_row, 1);
	if (run_row == NULL)
		return false;
	lone->begins = says(run, run_row, "state", "pending");
	get(run, run_row, "start_before", &isnull);
	if (!isnull || !(lone->begins || says(run, run_row, "state", "running")))
		return false;
	lone->call = plain_call(DatumGetInt32(get(run, run_row, "version_id", NULL)), lone->id.step_no);
	value = get(run, run_row, "input", NULL);
	if (lone->call == NULL || toast_raw_datum_size(value) > LARGEST_INPUT)
		return false;
	lone->input = DatumGetJsonbP(value);
	lone->labels = DatumGetJsonbP(get(run, run_row, "labels", NULL));
	lone->trace = *DatumGetUUIDP(get(run, run_row, "trace", NULL));
	value = get(run, run_row, "key", &isnull);
	lone->run_key = isnull ? NULL : DatumGetTextPP(value);
	lone->created_at = DatumGetTimestampTz(get(run, run_row, "created_at", NULL));
	lone->deadline = DatumGetTimestampTz(get(run, run_row, "deadline", NULL));
	return true;
}

void
sas_store_leave_lone(void)
{
	UnregisterSnapshot(snapshot);
	if (run != NULL)
		table_close(run, NoLock);
	if (ready != NULL)
		table_close(ready, NoLock);
}

SasLone
sas_store_find_lone(int lane, TimestampTz mark, SasLoneCall *lone)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	SasLone		found = SAS_LONE_OTHER;

	memset(lone, 0, sizeof(*lone));
	schema = get_namespace_oid("_sas", false);
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	ready = open_table("ready", RowExclusiveLock);
	run = open_table("run", RowExclusiveLock);
	if (ready != NULL && run != NULL && !has_trigger(ready, false) && !has_trigger(run, true))
		found = find_ready(lane, mark, lone);
	/* a later try has a row; what an operator has given it, or middleware made of it, stands elsewhere */
	if (found == SAS_LONE_FOUND &&
		(!hold_ready() || !read_run(lone) || has_row("step", "step_pkey", &lone->id) || has_row("edit", "edit_pkey", &lone->id) || has_row("stage", "stage_pkey", &lone->id)))
		found = SAS_LONE_OTHER;
	if (found != SAS_LONE_FOUND)
		sas_store_leave_lone();
	MemoryContextSwitchTo(old);
	return found;
}

/* ------------------------------------------------------------------ taking */

static Datum
array_of(Datum value, Oid type, int size)
{
	return PointerGetDatum(construct_array(&value, 1, type, size, size == 4 || FLOAT8PASSBYVAL, size == 4 ? TYPALIGN_INT : TYPALIGN_DOUBLE));
}

/* Is it pending still?  Then says that it runs, as _sas.start_runs() does. */
static bool
start_run(TimestampTz now)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *target = makeNode(ResultRelInfo);
	TupleTableSlot *found = table_slot_create(run, &estate->es_tupleTable);
	TupleTableSlot *changed = ExecInitExtraTupleSlot(estate, RelationGetDescr(run), &TTSOpsVirtual);
	AttrNumber	state = column(run, "state");
	AttrNumber	started = column(run, "started_at");
	TM_FailureData failure;
	bool		starts;

	estate->es_snapshot = snapshot;
	estate->es_output_cid = GetCurrentCommandId(true);
	InitResultRelInfo(target, run, 0, NULL, 0);
	starts = table_tuple_lock(run, &run_row->t_self, snapshot, found, estate->es_output_cid, LockTupleNoKeyExclusive, LockWaitSkip,
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
write_rows(SasLoneCall *lone, TimestampTz now)
{
	pg_uuid_t  *request_id = DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum) 0));
	Datum		run_id = Int64GetDatum(lone->id.run_id);
	Datum		step_no = Int32GetDatum(lone->id.step_no);

	lone->id.request_id = *request_id;
	lone->lease_id = nextval_internal(get_relname_relid("lease_lease_id_seq", schema), false);
	lone->window_ms = lone->call->window_ms < 0 ? sas_complete_in : lone->call->window_ms;
	lone->complete_by = now + (int64) (lone->window_ms * 1000);
	sas_table_insert(&lease, (Datum[]) {Int64GetDatum(lone->lease_id), Int64GetDatum(sas_self.boot), Int64GetDatum(sas_self.worker_id),
					 CStringGetTextDatum(sas_self.name), TimestampTzGetDatum(lone->complete_by),
					 array_of(run_id, INT8OID, 8), array_of(step_no, INT4OID, 4), array_of(Int32GetDatum(lone->id.element), INT4OID, 4)}, NULL);
	sas_table_insert(&step, (Datum[]) {run_id, step_no, Int64GetDatum(lone->lease_id), UUIDPGetDatum(request_id),
					 TimestampTzGetDatum(lone->complete_by), TimestampTzGetDatum(now)}, NULL);
	lone->begins = lone->begins && start_run(now);
}

/* Both, or none. */
static bool
open_tables(void)
{
	if (!sas_table_open(&lease))
		return false;
	if (sas_table_open(&step))
		return true;
	sas_table_close(&lease);
	return false;
}

bool
sas_store_take_lone(SasLoneCall *lone)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);
	TM_FailureData failure;
	bool		taken = false;

	if (open_tables())
	{
		/* it is held, so there is nothing to wait for */
		if (heap_delete(ready, &ready_row->t_self, GetCurrentCommandId(true), InvalidSnapshot, true, &failure, false) != TM_Ok)
			elog(ERROR, "a row of _sas.ready that is held was changed");
		write_rows(lone, sas_clock_now());
		taken = true;
		sas_table_close(&step);
		sas_table_close(&lease);
	}
	sas_store_leave_lone();
	if (taken)
		CommandCounterIncrement();
	MemoryContextSwitchTo(old);
	return taken;
}
