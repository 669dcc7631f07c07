/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.c: submits runs that begin with the claim of their first steps,
 * without the interpreter.
 *
 * Such a run differs from the one before only in its number, its input and
 * the time.  So a session caches what it has read of a workflow, and writes
 * the rows itself. _sas.submit_runs() does the same for every other run; a
 * test compares the two.
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/clock.h"
#include "base/settings.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "store/heap_write.h"
#include "store/node.h"
#include "store/pins.h"
#include "store/plan.h"
#include "store/store.h"
#include "store/submit.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

/* The most names in the cache. */
#define MAX_CACHED_WORKFLOWS 1000
/* More sequences of numbers than that are not remembered of a transaction. */
#define MAX_SPANS 65536

typedef struct CachedWorkflow
{
	struct
	{
		Oid			caller;
		char		name[NAMEDATALEN];
	}			key;
	bool		plain;
	SasPlainWorkflow workflow;
} CachedWorkflow;

static HTAB *store_submit_cache = NULL;
static MemoryContext store_submit_cache_context = NULL;
static bool store_submit_cache_stale = true;
static Oid	store_submit_token = InvalidOid; /* sas.workflows: announces every change */
static Oid	store_submit_sequence = InvalidOid;

#define RUN_COLUMNS \
	{"run_id", INT8OID}, {"version_id", INT4OID}, {"owner", REGROLEOID}, {"trace", UUIDOID}, {"key", TEXTOID}, {"state", TEXTOID}, \
	{"open_steps", INT4OID}, {"priority", INT4OID}, {"input", JSONBOID}, {"labels", JSONBOID}, {"created_at", TIMESTAMPTZOID}, \
	{"deadline", TIMESTAMPTZOID}, {"own_version", BOOLOID, true}

static SasTable store_submit_run = {"run", "front", 13, {RUN_COLUMNS}};
static SasTable store_submit_child = {"run", "front", 16, {
	RUN_COLUMNS, {"parent_run_id", INT8OID}, {"parent_step_no", INT4OID}, {"parent_element", INT4OID}}};
static SasTable store_submit_ready = {"ready", "front", 9, {
	{"run_id", INT8OID}, {"step_no", INT4OID}, {"element", INT4OID}, {"lane", INT4OID}, {"owner", REGROLEOID}, {"rank", TIMESTAMPTZOID},
	{"ready_at", TIMESTAMPTZOID}, {"undo", BOOLOID}, {"alone", BOOLOID}}};
static SasTable store_submit_timer = {"message", "front", 5, {
	{"actor", CHAROID}, {"due_at", TIMESTAMPTZOID}, {"run_id", INT8OID}, {"kind", TEXTOID}, {"owner", REGROLEOID}}};

/* ------------------------------------------------------------ what is known */

static void
store_submit_relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == store_submit_token)
		store_submit_cache_stale = true;
}

/* A function, a schema, a role or a membership has changed: the rights to submit and to call are checked again. */
static void
store_submit_catalog_changed(Datum arg, int cache, uint32 hash)
{
	store_submit_cache_stale = true;
}

static void
store_submit_reset_cache(void)
{
	HASHCTL		control = {.keysize = sizeof(((CachedWorkflow *) NULL)->key), .entrysize = sizeof(CachedWorkflow)};

	if (store_submit_cache_context == NULL)
	{
		CacheRegisterRelcacheCallback(store_submit_relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, store_submit_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(OPEROID, store_submit_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, store_submit_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, store_submit_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, store_submit_catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, store_submit_catalog_changed, (Datum) 0);
		store_submit_cache_context = AllocSetContextCreate(CacheMemoryContext, "sas workflows", ALLOCSET_SMALL_SIZES);
	}
	/* until the end: after an error half-way it is reset again */
	store_submit_cache_stale = true;
	store_submit_cache = NULL;
	MemoryContextReset(store_submit_cache_context);
	store_submit_token = get_relname_relid("workflows", get_namespace_oid("sas", false));
	store_submit_sequence = get_relname_relid("run_run_id_seq", get_namespace_oid("_sas", false));
	control.hcxt = store_submit_cache_context;
	store_submit_cache = hash_create("sas workflows", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	store_submit_cache_stale = false;
}

static int *
store_submit_read_numbers(HeapTupleHeader row, const char *name, int *n)
{
	bool		isnull;
	Datum		value = GetAttributeByName(row, name, &isnull);
	Datum	   *elements;
	int		   *numbers;

	*n = 0;
	if (isnull)
		return NULL;
	deconstruct_array(DatumGetArrayTypeP(value), INT4OID, sizeof(int32), true, TYPALIGN_INT, &elements, NULL, n);
	numbers = MemoryContextAlloc(store_submit_cache_context, sizeof(int) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		numbers[i] = DatumGetInt32(elements[i]);
	return numbers;
}

/* Asks _sas.plain_workflow(); an internal function is called without a grant, and runs as its owner. */
static bool
store_submit_read_workflow(Oid caller, const text *name, SasPlainWorkflow *workflow)
{
	Oid			types[2] = {OIDOID, TEXTOID};
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("plain_workflow"),
										   PointerGetDatum(buildoidvector(types, 2)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	int			level = sas_store_pin_plans();
	HeapTupleHeader row = DatumGetHeapTupleHeader(OidFunctionCall2(function, ObjectIdGetDatum(caller), PointerGetDatum(name)));
	bool		isnull;
	Datum		value = GetAttributeByName(row, "version_id", &isnull);
	int			n;

	sas_store_unpin_plans(level);
	if (isnull)
		return false;
	workflow->version_id = DatumGetInt32(value);
	workflow->workflow_id = DatumGetInt32(GetAttributeByName(row, "workflow_id", &isnull));
	workflow->priority = DatumGetInt32(GetAttributeByName(row, "priority", &isnull));
	workflow->keys_follow = DatumGetBool(GetAttributeByName(row, "keys_follow", &isnull));
	value = GetAttributeByName(row, "deadline", &isnull);
	workflow->deadline = NULL;
	if (!isnull)
	{
		workflow->deadline = MemoryContextAlloc(store_submit_cache_context, sizeof(Interval));
		*workflow->deadline = *DatumGetIntervalP(value);
	}
	workflow->root_nos = store_submit_read_numbers(row, "root_nos", &workflow->n_roots);
	workflow->root_lanes = store_submit_read_numbers(row, "root_lanes", &n);
	workflow->root_priorities = store_submit_read_numbers(row, "root_priorities", &n);
	return true;
}

const SasPlainWorkflow *
sas_store_plain_workflow(Oid caller, const text *name)
{
	CachedWorkflow wanted = {0};
	CachedWorkflow *found;

	if (VARSIZE_ANY_EXHDR(name) >= NAMEDATALEN)
		return NULL;
	AcceptInvalidationMessages();
	if (store_submit_cache_stale || hash_get_num_entries(store_submit_cache) >= MAX_CACHED_WORKFLOWS)
		store_submit_reset_cache();
	wanted.key.caller = caller;
	memcpy(wanted.key.name, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	found = hash_search(store_submit_cache, &wanted.key, HASH_FIND, NULL);
	if (found == NULL)
	{
		wanted.plain = store_submit_read_workflow(caller, name, &wanted.workflow);
		found = hash_search(store_submit_cache, &wanted.key, HASH_ENTER, NULL);
		found->plain = wanted.plain;
		found->workflow = wanted.workflow;
		/* its snapshot may be older than the last change that was noticed: the next submit reads it again */
		if (IsolationUsesXactSnapshot())
			store_submit_cache_stale = true;
	}
	return found->plain ? &found->workflow : NULL;
}

void
sas_store_announce_workflows(void)
{
	Oid			view = get_relname_relid("workflows", get_namespace_oid("sas", false));

	if (OidIsValid(view))
		CacheInvalidateRelcacheByRelid(view);
}

/* ------------------------------------------------------------------- rows */

static Datum
store_submit_seconds(int seconds)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = seconds * INT64CONST(1000000);
	return IntervalPGetDatum(span);
}

/* now - priority * sas.priority_step */
static Datum
store_submit_rank(TimestampTz now, int priority)
{
	if (priority == 0)
		return TimestampTzGetDatum(now);
	return DirectFunctionCall2(timestamptz_mi_interval, TimestampTzGetDatum(now),
							   DirectFunctionCall2(interval_mul, store_submit_seconds(sas_base_priority_step), Float8GetDatum(priority)));
}

/* A random uuid: the randomness of many is fetched at once. */
static Datum
store_submit_new_uuid(void)
{
	static pg_uuid_t drawn[64];
	static int	left = 0;
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

	if (left == 0)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		left = lengthof(drawn);
	}
	*uuid = drawn[--left];
	/* no later reader of this memory finds it */
	memset(&drawn[left], 0, sizeof(pg_uuid_t));
	uuid->data[6] = (uuid->data[6] & 0x0f) | 0x40;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
	return UUIDPGetDatum(uuid);
}

/* Runs this as the owner of the tables: how many rows it made. */
static uint64
store_submit_as_owner(SasPlan *plan, Datum *args)
{
	Oid			caller;
	int			context;
	int			level;
	uint64		processed;

	GetUserIdAndSecContext(&caller, &context);
	SetUserIdAndSecContext(store_submit_ready.relation->rd_rel->relowner, context | SECURITY_LOCAL_USERID_CHANGE);
	level = sas_store_pin_path();
	SPI_connect();
	sas_store_plan_run(plan, args, NULL);
	processed = SPI_processed;
	SPI_finish();
	sas_store_unpin_path(level);
	SetUserIdAndSecContext(caller, context);
	return processed;
}

/* The key of a run; false when another run has it. */
static bool
store_submit_take_key(Oid owner, int workflow_id, text *key, int64 run_id)
{
	static SasPlan plan = {"INSERT INTO _sas.run_key (owner, workflow_id, key, run_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
	4, {REGROLEOID, INT4OID, TEXTOID, INT8OID}};
	Datum		args[4] = {ObjectIdGetDatum(owner), Int32GetDatum(workflow_id), PointerGetDatum(key), Int64GetDatum(run_id)};

	return store_submit_as_owner(&plan, args) == 1;
}

/* The labels of the runs, which are the same. */
static void
store_submit_write_labels(Oid owner, Datum labels, const int64 *run_ids, int n)
{
	static SasPlan plan = {"SELECT _sas.note_labels($1, $2, $3)", 3, {OIDOID, INT8ARRAYOID, JSONBOID}};
	Datum	   *ids;

	if (JB_ROOT_COUNT(DatumGetJsonbP(labels)) == 0)
		return;
	ids = palloc(sizeof(Datum) * n);
	for (int i = 0; i < n; i++)
		ids[i] = Int64GetDatum(run_ids[i]);
	store_submit_as_owner(&plan, (Datum[]) {ObjectIdGetDatum(owner), PointerGetDatum(construct_array(ids, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)), labels});
}

static bool
store_submit_is_near(Datum end, TimestampTz now)
{
	return DatumGetTimestampTz(end) - now < SAS_UNTIMED_FROM_MS * INT64CONST(1000);
}

/* A row for each run, and one for each deadline that is near. */
static void
store_submit_write_runs(const SasPlainWorkflow *w, const SasSubmission *s, const Datum *inputs, int n, TimestampTz now, const Datum *ends, const SasSubmitted *made)
{
	Datum		priority = Int32GetDatum(s->priority + w->priority);
	Datum		pending = CStringGetTextDatum("pending");
	Datum		kind = CStringGetTextDatum("deadline");
	const SasParents *p = s->parents;
	const bool	nulls[16] = {[4] = s->key == NULL};

	for (int i = 0; i < n; i++)
	{
		Datum		id = Int64GetDatum(made->run_ids[i]);

		sas_store_table_insert(p ? &store_submit_child : &store_submit_run,
							   (Datum[]) {id, Int32GetDatum(w->version_id), ObjectIdGetDatum(s->owner), store_submit_new_uuid(),
							   PointerGetDatum(s->key), pending, Int32GetDatum(w->n_roots), priority, inputs[i], s->labels,
							   TimestampTzGetDatum(now), ends[i], BoolGetDatum(false),
							   p ? p->run_ids[i] : 0, p ? p->step_nos[i] : 0, p ? p->elements[i] : 0}, nulls);
		if (store_submit_is_near(ends[i], now))
			sas_store_table_insert(&store_submit_timer, (Datum[]) {CharGetDatum('v'), ends[i], id, kind, ObjectIdGetDatum(s->owner)}, NULL);
		sas_store_note_submitted(made->run_ids[i]);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Steps that become ready together have ranks of their own, a microsecond
 * apart, since a low-water mark is a rank and must be able to separate them.
 * The ranks of a large batch are spread over this many microseconds.
 */
#define STORE_SUBMIT_SPREAD_US 100000

static TimestampTz
store_submit_place(TimestampTz rank, int i, int n)
{
	return rank + (n <= STORE_SUBMIT_SPREAD_US ? i : (int64) i * STORE_SUBMIT_SPREAD_US / n);
}

/* What may be claimed now: the first steps. */
static void
store_submit_write_roots(const SasPlainWorkflow *w, const SasSubmission *s, TimestampTz now, int n, SasSubmitted *made)
{
	Datum		no = BoolGetDatum(false);

	for (int k = 0; k < w->n_roots; k++)
	{
		made->ranks[k] = DatumGetTimestampTz(store_submit_rank(now, s->priority + w->priority + w->root_priorities[k]));
		for (int i = 0; i < n; i++)
			sas_store_table_insert(&store_submit_ready, (Datum[]) {Int64GetDatum(made->run_ids[i]), Int32GetDatum(w->root_nos[k]), Int32GetDatum(0),
								   Int32GetDatum(w->root_lanes[k]), ObjectIdGetDatum(s->owner), TimestampTzGetDatum(store_submit_place(made->ranks[k], i, n)),
								   TimestampTzGetDatum(now), no, no}, NULL);
	}
}

/* The deadline of each run; notes the first one that is near. */
static const Datum *
store_submit_ends(const SasPlainWorkflow *w, const SasSubmission *s, int n, TimestampTz now, SasSubmitted *made)
{
	const Datum *ends = s->parents ? s->parents->deadlines : NULL;

	if (ends == NULL)
	{
		Datum		span = s->deadline ? IntervalPGetDatum(s->deadline) :
			w->deadline ? IntervalPGetDatum(w->deadline) : store_submit_seconds(sas_base_run_deadline);
		Datum		end = DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), span);
		Datum	   *all = palloc(sizeof(Datum) * n);

		for (int i = 0; i < n; i++)
			all[i] = end;
		ends = all;
	}
	made->timer = DT_NOEND;
	for (int i = 0; i < n; i++)
		if (store_submit_is_near(ends[i], now))
			made->timer = Min(made->timer, DatumGetTimestampTz(ends[i]));
	made->check_by = Min(made->timer, now + SAS_UNTIMED_CHECK_MS * INT64CONST(1000));
	return ends;
}

bool
sas_store_submit_plain(const SasPlainWorkflow *w, const SasSubmission *s, const Datum *inputs, int n, SasSubmitted *made)
{
	TimestampTz now = sas_base_clock_now();
	const Datum *ends = store_submit_ends(w, s, n, now, made);
	SasTable   *const needed[] = {s->parents ? &store_submit_child : &store_submit_run, &store_submit_ready, &store_submit_timer};
	int			n_needed = made->timer != DT_NOEND ? 3 : 2;
	bool		is_new;

	if (!sas_store_tables_open(needed, n_needed))
		return false;
	/* before the run gets its number: see _sas.set_timers() */
	GetCurrentTransactionId();
	for (int i = 0; i < n; i++)
		made->run_ids[i] = sas_store_id_base() + nextval_internal(store_submit_sequence, false);
	is_new = s->key == NULL || store_submit_take_key(s->owner, w->workflow_id, s->key, made->run_ids[0]);
	if (is_new)
	{
		store_submit_write_runs(w, s, inputs, n, now, ends, made);
		store_submit_write_labels(s->owner, s->labels, made->run_ids, n);
		store_submit_write_roots(w, s, now, n, made);
	}
	sas_store_tables_close(needed, n_needed);
	CommandCounterIncrement();
	return is_new;
}

/* --------------------------------------------- what was submitted just here */

typedef struct SubmittedSpan
{
	int64		first;
	int64		last;
} SubmittedSpan;

static SubmittedSpan *store_submit_spans = NULL;
static int	store_submit_n_spans = 0;
static int	store_submit_spans_room = 0;
static FullTransactionId store_submit_spans_of;

void
sas_store_note_submitted(int64 run_id)
{
	FullTransactionId self = GetTopFullTransactionId();

	if (!FullTransactionIdEquals(self, store_submit_spans_of))
	{
		store_submit_spans_of = self;
		store_submit_n_spans = 0;
	}
	if (store_submit_n_spans > 0 && store_submit_spans[store_submit_n_spans - 1].last + 1 == run_id)
	{
		store_submit_spans[store_submit_n_spans - 1].last = run_id;
		return;
	}
	if (store_submit_n_spans == MAX_SPANS)
		return;
	if (store_submit_n_spans == store_submit_spans_room)
	{
		int			more = Max(16, store_submit_spans_room * 2);

		store_submit_spans = store_submit_spans == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(SubmittedSpan) * more) :
			repalloc(store_submit_spans, sizeof(SubmittedSpan) * more);
		store_submit_spans_room = more;
	}
	store_submit_spans[store_submit_n_spans++] = (SubmittedSpan) {run_id, run_id};
}

bool
sas_store_submitted_here(int64 run_id)
{
	if (!FullTransactionIdEquals(GetTopFullTransactionIdIfAny(), store_submit_spans_of))
		return false;
	for (int i = 0; i < store_submit_n_spans; i++)
		if (run_id >= store_submit_spans[i].first && run_id <= store_submit_spans[i].last)
			return true;
	return false;
}
