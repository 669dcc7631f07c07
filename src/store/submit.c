/* SPDX-License-Identifier: PostgreSQL */
/*
 * submit.c: runs that begin with the claim of their first steps, submitted
 * without the interpreter.
 *
 * What such a run is made of is the same as that of the one before, but for
 * its number, its input and the time.  So a session keeps what it has learned
 * of a workflow, and writes the rows itself.  _sas.submit_runs() does the same
 * for every other run; a test compares the two.
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
#include "store/plan.h"
#include "store/rows.h"
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

/* More names than that are not kept. */
#define MOST_KEPT 1000
/* More sequences of numbers than that are not remembered of a transaction. */
#define MOST_SPANS 65536
/* A run with more time than that has no timer at first. Its supervisor looks within the second span: twice _sas.timer_age(). */
#define LONG_US (5 * 60 * INT64CONST(1000000))
#define LOOK_US (2 * 60 * INT64CONST(1000000))

typedef struct Known
{
	struct
	{
		Oid			caller;
		char		name[NAMEDATALEN];
	}			key;
	bool		plain;
	SasPlainWorkflow workflow;
} Known;

static HTAB *known = NULL;
static MemoryContext known_context = NULL;
static bool known_stale = true;
static Oid	token = InvalidOid;		/* sas.workflows: announces every change */
static Oid	sequence = InvalidOid;

static SasTable run = {"run", 13, {
	{"run_id", INT8OID}, {"version_id", INT4OID}, {"owner", REGROLEOID}, {"trace", UUIDOID}, {"key", TEXTOID}, {"state", TEXTOID, "pending"},
	{"open_steps", INT4OID}, {"priority", INT4OID}, {"input", JSONBOID}, {"labels", JSONBOID}, {"created_at", TIMESTAMPTZOID},
	{"deadline", TIMESTAMPTZOID}, {"own_version", BOOLOID, "false"}}, "front"};
#define READY(is_fresh) {"ready", 9, { \
	{"run_id", INT8OID}, {"step_no", INT4OID}, {"element", INT4OID, "0"}, {"lane", INT4OID}, {"rank", TIMESTAMPTZOID}, \
	{"ready_at", TIMESTAMPTZOID}, {"undo", BOOLOID, "false"}, {"alone", BOOLOID, "false"}, {"fresh", BOOLOID, is_fresh}}, "front"}
static SasTable ready = READY("false");
static SasTable fresh = READY("true");
static SasTable due = {"due", 4, {
	{"actor", CHAROID, "v"}, {"due_at", TIMESTAMPTZOID}, {"run_id", INT8OID}, {"kind", TEXTOID, "deadline"}}, "front"};

/* ------------------------------------------------------------ what is known */

static void
forget_if_announced(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == token)
		known_stale = true;
}

/* A function, a schema, a role or a membership has changed: who may submit and call what is asked again. */
static void
forget(Datum arg, int cache, uint32 hash)
{
	known_stale = true;
}

static void
begin_to_know(void)
{
	HASHCTL		control = {.keysize = sizeof(((Known *) NULL)->key), .entrysize = sizeof(Known)};
	if (known_context == NULL)
	{
		CacheRegisterRelcacheCallback(forget_if_announced, (Datum) 0);
		CacheRegisterSyscacheCallback(PROCOID, forget, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, forget, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, forget, (Datum) 0);
		known_context = AllocSetContextCreate(CacheMemoryContext, "sas workflows", ALLOCSET_SMALL_SIZES);
	}
	/* until the end: after an error half-way it begins anew */
	known_stale = true;
	known = NULL;
	MemoryContextReset(known_context);
	token = get_relname_relid("workflows", get_namespace_oid("sas", false));
	sequence = get_relname_relid("run_run_id_seq", get_namespace_oid("_sas", false));
	control.hcxt = known_context;
	known = hash_create("sas workflows", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	known_stale = false;
}

static int *
read_numbers(HeapTupleHeader row, const char *name, int *n)
{
	bool		isnull;
	Datum		value = GetAttributeByName(row, name, &isnull);
	Datum	   *elements;
	int		   *numbers;

	*n = 0;
	if (isnull)
		return NULL;
	deconstruct_array(DatumGetArrayTypeP(value), INT4OID, sizeof(int32), true, TYPALIGN_INT, &elements, NULL, n);
	numbers = MemoryContextAlloc(known_context, sizeof(int) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		numbers[i] = DatumGetInt32(elements[i]);
	return numbers;
}

/* Asks _sas.plain_workflow(); an internal function is called without a grant, and runs as its owner. */
static bool
read_workflow(Oid caller, const text *name, SasPlainWorkflow *workflow)
{
	Oid			types[2] = {OIDOID, TEXTOID};
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("plain_workflow"),
										   PointerGetDatum(buildoidvector(types, 2)), ObjectIdGetDatum(get_namespace_oid("_sas", false)));
	HeapTupleHeader row = DatumGetHeapTupleHeader(OidFunctionCall2(function, ObjectIdGetDatum(caller), PointerGetDatum(name)));
	bool		isnull;
	Datum		value = GetAttributeByName(row, "version_id", &isnull);
	int			n;

	if (isnull)
		return false;
	workflow->version_id = DatumGetInt32(value);
	workflow->workflow_id = DatumGetInt32(GetAttributeByName(row, "workflow_id", &isnull));
	workflow->priority = DatumGetInt32(GetAttributeByName(row, "priority", &isnull));
	value = GetAttributeByName(row, "deadline", &isnull);
	workflow->deadline = NULL;
	if (!isnull)
	{
		workflow->deadline = MemoryContextAlloc(known_context, sizeof(Interval));
		*workflow->deadline = *DatumGetIntervalP(value);
	}
	workflow->root_nos = read_numbers(row, "root_nos", &workflow->n_roots);
	workflow->root_lanes = read_numbers(row, "root_lanes", &n);
	workflow->root_priorities = read_numbers(row, "root_priorities", &n);
	return true;
}

const SasPlainWorkflow *
sas_store_plain_workflow(Oid caller, const text *name)
{
	Known		look = {0};
	Known	   *found;

	if (VARSIZE_ANY_EXHDR(name) >= NAMEDATALEN)
		return NULL;
	AcceptInvalidationMessages();
	if (known_stale || hash_get_num_entries(known) >= MOST_KEPT)
		begin_to_know();
	look.key.caller = caller;
	memcpy(look.key.name, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	found = hash_search(known, &look.key, HASH_FIND, NULL);
	if (found == NULL)
	{
		look.plain = read_workflow(caller, name, &look.workflow);
		found = hash_search(known, &look.key, HASH_ENTER, NULL);
		found->plain = look.plain;
		found->workflow = look.workflow;
		/* read with a snapshot that may be older than the last change heard of: it is not for the next */
		if (IsolationUsesXactSnapshot())
			known_stale = true;
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
in_seconds(int seconds)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = seconds * INT64CONST(1000000);
	return IntervalPGetDatum(span);
}

/* now - priority * sas.priority_step */
static Datum
rank(TimestampTz now, int priority)
{
	if (priority == 0)
		return TimestampTzGetDatum(now);
	return DirectFunctionCall2(timestamptz_mi_interval, TimestampTzGetDatum(now),
							   DirectFunctionCall2(interval_mul, in_seconds(sas_priority_step), Float8GetDatum(priority)));
}

/* A random uuid: the randomness of many is fetched at once. */
static Datum
new_uuid(void)
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
	/* nobody finds it there again */
	memset(&drawn[left], 0, sizeof(pg_uuid_t));
	uuid->data[6] = (uuid->data[6] & 0x0f) | 0x40;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
	return UUIDPGetDatum(uuid);
}

/* The key of a run, as the owner of the tables; false when another run has it. */
static bool
take_key(Oid owner, int workflow_id, text *key, int64 run_id)
{
	static SasPlan plan = {"INSERT INTO _sas.run_key (owner, workflow_id, key, run_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
	4, {REGROLEOID, INT4OID, TEXTOID, INT8OID}};
	Datum		args[4] = {ObjectIdGetDatum(owner), Int32GetDatum(workflow_id), PointerGetDatum(key), Int64GetDatum(run_id)};
	Oid			caller;
	int			context;
	int			level;
	bool		taken;

	GetUserIdAndSecContext(&caller, &context);
	SetUserIdAndSecContext(run.relation->rd_rel->relowner, context | SECURITY_LOCAL_USERID_CHANGE);
	level = sas_store_pin_path();
	SPI_connect();
	sas_plan_run(&plan, args, NULL);
	taken = SPI_processed == 1;
	SPI_finish();
	sas_store_unpin_path(level);
	SetUserIdAndSecContext(caller, context);
	return taken;
}

/* A row for each run, and one for each of its deadlines if they are near. */
static void
write_runs(const SasPlainWorkflow *w, const SasSubmission *s, const Datum *inputs, int n, TimestampTz now, Datum ends, const SasSubmitted *made)
{
	Datum		priority = Int32GetDatum(s->priority + w->priority);
	const bool	nulls[11] = {[4] = s->key == NULL};

	for (int i = 0; i < n; i++)
	{
		Datum		id = Int64GetDatum(made->run_ids[i]);

		sas_table_insert(&run, (Datum[]) {id, Int32GetDatum(w->version_id), ObjectIdGetDatum(s->owner), new_uuid(), PointerGetDatum(s->key),
						 Int32GetDatum(w->n_roots), priority, inputs[i], s->labels, TimestampTzGetDatum(now), ends}, nulls);
		if (made->timer != DT_NOEND)
			sas_table_insert(&due, (Datum[]) {ends, id}, NULL);
		sas_store_note_submitted(made->run_ids[i]);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Where the first steps go: fresh rows have the rank of the moment at which the run was created. */
static SasTable *
table_of_roots(const SasPlainWorkflow *w, const SasSubmission *s)
{
	return w->n_roots == 1 && s->priority + w->priority + w->root_priorities[0] == 0 ? &fresh : &ready;
}

/* What may be claimed now: the first steps. Their ranks are the same in all runs. */
static void
write_roots(SasTable *table, const SasPlainWorkflow *w, const SasSubmission *s, TimestampTz now, int n, SasSubmitted *made)
{
	for (int k = 0; k < w->n_roots; k++)
	{
		Datum		place = rank(now, s->priority + w->priority + w->root_priorities[k]);

		made->ranks[k] = DatumGetTimestampTz(place);
		for (int i = 0; i < n; i++)
			sas_table_insert(table, (Datum[]) {Int64GetDatum(made->run_ids[i]), Int32GetDatum(w->root_nos[k]), Int32GetDatum(w->root_lanes[k]),
							 place, TimestampTzGetDatum(now)}, NULL);
	}
}

static void
close_tables(SasTable *const *tables, int n)
{
	while (--n >= 0)
		sas_table_close(tables[n]);
}

/* All of them, or none. */
static bool
open_tables(SasTable *const *tables, int n)
{
	for (int i = 0; i < n; i++)
		if (!sas_table_open(tables[i]))
		{
			close_tables(tables, i);
			return false;
		}
	return true;
}

bool
sas_store_submit_plain(const SasPlainWorkflow *w, const SasSubmission *s, const Datum *inputs, int n, SasSubmitted *made)
{
	TimestampTz now = sas_clock_now();
	Datum		span = s->deadline ? IntervalPGetDatum(s->deadline) : w->deadline ? IntervalPGetDatum(w->deadline) : in_seconds(sas_run_deadline);
	Datum		ends = DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), span);
	bool		near = DatumGetTimestampTz(ends) - now < LONG_US;
	SasTable   *const roots = table_of_roots(w, s);
	SasTable   *const needed[] = {&run, roots, &due};
	int			n_needed = near ? 3 : 2;
	bool		is_new;

	if (!open_tables(needed, n_needed))
		return false;
	made->timer = near ? DatumGetTimestampTz(ends) : DT_NOEND;
	made->look_by = near ? made->timer : now + LOOK_US;
	/* before the run gets its number: see _sas.set_timers() */
	GetCurrentTransactionId();
	for (int i = 0; i < n; i++)
		made->run_ids[i] = nextval_internal(sequence, false);
	is_new = s->key == NULL || take_key(s->owner, w->workflow_id, s->key, made->run_ids[0]);
	if (is_new)
	{
		write_runs(w, s, inputs, n, now, ends, made);
		write_roots(roots, w, s, now, n, made);
	}
	close_tables(needed, n_needed);
	CommandCounterIncrement();
	return is_new;
}

/* --------------------------------------------- what was submitted just here */

typedef struct Span
{
	int64		first;
	int64		last;
} Span;

static Span *spans = NULL;
static int	n_spans = 0;
static int	room = 0;
static FullTransactionId spans_of;

void
sas_store_note_submitted(int64 run_id)
{
	FullTransactionId self = GetTopFullTransactionId();

	if (!FullTransactionIdEquals(self, spans_of))
	{
		spans_of = self;
		n_spans = 0;
	}
	if (n_spans > 0 && spans[n_spans - 1].last + 1 == run_id)
	{
		spans[n_spans - 1].last = run_id;
		return;
	}
	if (n_spans == MOST_SPANS)
		return;
	if (n_spans == room)
	{
		int			more = Max(16, room * 2);

		spans = spans == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(Span) * more) : repalloc(spans, sizeof(Span) * more);
		room = more;
	}
	spans[n_spans++] = (Span) {run_id, run_id};
}

bool
sas_store_submitted_here(int64 run_id)
{
	if (!FullTransactionIdEquals(GetTopFullTransactionIdIfAny(), spans_of))
		return false;
	for (int i = 0; i < n_spans; i++)
		if (run_id >= spans[i].first && run_id <= spans[i].last)
			return true;
	return false;
}
