/* SPDX-License-Identifier: PostgreSQL */
/*
 * watches.c: the calls of a node that hosts watches.
 */
#include "postgres.h"

#include "base/actor.h"
#include "catalog/pg_type.h"
#include "store/plan.h"
#include "store/watches.h"
#include "utils/builtins.h"

/* The two columns that name hosted watches. */
static void
watches_add_id(SasColumn c[2], const SasWatchId *id)
{
	sas_store_column_add(&c[0], Int64GetDatum(id->watch_id), false);
	sas_store_column_add(&c[1], Int64GetDatum(id->epoch), false);
}

static void
watches_read_id(int row, SasWatchId *id)
{
	id->watch_id = sas_store_cell_int(row, 1);
	id->epoch = sas_store_cell_int(row, 2);
}

int64
sas_store_register_node(int capacity)
{
	static SasPlan plan = {"SELECT _sas.register_worker($1, $2, $3, $4, $5)", 5, {TEXTOID, TEXTOID, INT4OID, INT8OID, INT8OID}};
	Datum		args[5] = {CStringGetTextDatum(sas_base_actor_name(sas_base_self.actor)), CStringGetTextDatum(sas_base_self.name), Int32GetDatum(capacity),
	Int64GetDatum(sas_base_self.boot), Int64GetDatum(sas_base_self.worker_id)};

	sas_store_plan_run(&plan, args, NULL);
	return sas_store_cell_int(0, 1);
}

/* The rows of the current result. */
static List *
watches_requests(void)
{
	List	   *list = NIL;

	for (int i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(sas_store_results);
		SasWatchRequest *r = palloc0(sizeof(SasWatchRequest));

		watches_read_id(i, &r->id);
		r->agent_id = sas_store_cell_int(i, 3);
		r->kind = sas_store_cell_text(i, 4);
		r->request = sas_store_cell_jsonb(i, 5);
		r->cursor = sas_store_cell_jsonb(i, 6);
		r->digest = sas_store_cell_text(i, 7);
		r->room = sas_store_cell_int(i, 8);
		r->wait_ms = sas_store_cell_float(i, 9);
		r->problem = sas_store_cell_jsonb(i, 10);
		r->next_at = sas_store_cell_time(i, 11);
		r->owner = (Oid) sas_store_cell_int(i, 12);
		list = lappend(list, r);
		MemoryContextSwitchTo(old);
	}
	return list;
}

List *
sas_store_claim_watches(int64 node_id, int quantity)
{
	static SasPlan plan = {"SELECT watch_id, epoch, agent_id, kind, request, cursor, digest, room, wait_ms, problem, next_at, owner "
	"FROM _sas.claim_watches($1, $2)", 2, {INT8OID, INT4OID}};
	Datum		args[2] = {Int64GetDatum(node_id), Int32GetDatum(quantity)};

	sas_store_plan_run(&plan, args, NULL);
	return watches_requests();
}

List *
sas_store_watch_requests(int64 node_id, const SasWatchAsk *asked, int n)
{
	static SasPlan plan = {"SELECT watch_id, epoch, agent_id, kind, request, cursor, digest, room, wait_ms, problem, next_at, owner "
	"FROM _sas.watch_requests($1, $2, $3, $4)", 4, {INT8OID, INT8ARRAYOID, INT8ARRAYOID, BOOLARRAYOID}};
	SasColumn	c[3];
	Datum		args[4] = {Int64GetDatum(node_id)};

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		watches_add_id(c, &asked[i].id);
		sas_store_column_add(&c[2], BoolGetDatum(asked[i].looked), false);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	return watches_requests();
}

static SasWatchAnswer
watches_answer(const char *word)
{
	return strcmp(word, "ok") == 0 || strcmp(word, "retry") == 0 ? SAS_WATCH_GO :
		strcmp(word, "cut") == 0 ? SAS_WATCH_CUT :
		strcmp(word, "stop") == 0 ? SAS_WATCH_STOP :
		strcmp(word, "failed") == 0 ? SAS_WATCH_FAILED :
		strcmp(word, "locked") == 0 ? SAS_WATCH_LOCKED : SAS_WATCH_FENCED;
}

static SasWatchVerdict *
watches_verdict(int row)
{
	SasWatchVerdict *v = MemoryContextAllocZero(sas_store_results, sizeof(SasWatchVerdict));

	watches_read_id(row, &v->id);
	v->answer = watches_answer(sas_store_cell_text(row, 3));
	return v;
}

static List *
watches_append(List *list, void *element)
{
	MemoryContext old = MemoryContextSwitchTo(sas_store_results);

	list = lappend(list, element);
	MemoryContextSwitchTo(old);
	return list;
}

void
sas_store_give_up_invocations(const SasPeerInvocation *invocations, int n)
{
	static SasPlan plan = {"SELECT _sas.give_up_invocations($1, $2, $3)", 3, {INT8OID, INT8ARRAYOID, INT8ARRAYOID}};
	SasColumn	c[2];
	Datum		args[3] = {Int64GetDatum(sas_base_self.boot)};

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		sas_store_column_add(&c[0], Int64GetDatum(invocations[i].worker_id), false);
		sas_store_column_add(&c[1], Int64GetDatum(invocations[i].task), false);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
}

bool
sas_store_relieve(const SasPeerCall *calls, int n)
{
	static SasPlan steps = {"SELECT _sas.relieve_claims($1, $2, $3)", 3, {INT8OID, INT8ARRAYOID, OIDARRAYOID}};
	static SasPlan hosts = {"SELECT _sas.relieve_hosts($1, $2, $4, $3)", 4, {INT8OID, INT8ARRAYOID, OIDARRAYOID, INT8ARRAYOID}};
	SasColumn	c[3];
	Datum		args[4] = {Int64GetDatum(sas_base_self.boot)};

	sas_store_columns_open(c, &hosts, n);
	for (int i = 0; i < n; i++)
	{
		sas_store_column_add(&c[0], Int64GetDatum(calls[i].worker_id), false);
		sas_store_column_add(&c[1], ObjectIdGetDatum(calls[i].owner), false);
		sas_store_column_add(&c[2], Int64GetDatum(calls[i].task), false);
	}
	sas_store_columns_close(c, &hosts, args);
	sas_store_plan_run(&steps, args, NULL);
	sas_store_plan_run(&hosts, args, NULL);
	return sas_store_cell_bool(0, 1);
}

/* A text as a jsonb string. */
static Jsonb *
watches_json_string(const char *text)
{
	JsonbValue	v = {.type = jbvString};

	v.val.string.val = (char *) text;
	v.val.string.len = strlen(text);
	return JsonbValueToJsonb(&v);
}

List *
sas_store_append_items(int64 node_id, const SasWatchBatch *batches, int n)
{
	static SasPlan plan = {"SELECT watch_id, epoch, answer, room FROM _sas.append_batches($1, $2, $3, $4, $5, $6)",
	6, {INT8OID, INT8ARRAYOID, INT8ARRAYOID, JSONBARRAYOID, JSONBARRAYOID, TEXTARRAYOID}};
	SasColumn	c[5];
	Datum		args[6] = {Int64GetDatum(node_id)};
	List	   *list = NIL;

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		const SasWatchBatch *b = &batches[i];

		watches_add_id(c, &b->id);
		sas_store_column_add(&c[2], PointerGetDatum(b->items), false);
		sas_store_column_add(&c[3], b->cursor ? PointerGetDatum(watches_json_string(b->cursor)) : (Datum) 0, b->cursor == NULL);
		sas_store_column_add(&c[4], b->digest ? CStringGetTextDatum(b->digest) : (Datum) 0, b->digest == NULL);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < SPI_processed; i++)
	{
		SasWatchVerdict *v = watches_verdict(i);

		v->room = sas_store_cell_int(i, 4);
		list = watches_append(list, v);
	}
	return list;
}

List *
sas_store_fail_watches(int64 node_id, const SasWatchFailure *failures, int n)
{
	static SasPlan plan = {"SELECT watch_id, epoch, answer, pause_ms FROM _sas.fail_watches($1, $2, $3, $4, $5)",
	5, {INT8OID, INT8ARRAYOID, INT8ARRAYOID, JSONBARRAYOID, FLOAT8ARRAYOID}};
	SasColumn	c[4];
	Datum		args[5] = {Int64GetDatum(node_id)};
	List	   *list = NIL;

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		const SasWatchFailure *f = &failures[i];

		watches_add_id(c, &f->id);
		sas_store_column_add(&c[2], PointerGetDatum(f->error), f->error == NULL);
		sas_store_column_add(&c[3], Float8GetDatum(f->at_least_ms), f->at_least_ms < 0);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < SPI_processed; i++)
	{
		SasWatchVerdict *v = watches_verdict(i);

		v->pause_ms = sas_store_cell_null(i, 4) ? 0 : sas_store_cell_float(i, 4);
		list = watches_append(list, v);
	}
	return list;
}

List *
sas_store_node_news(int64 node_id, int quantity)
{
	static SasPlan plan = {"SELECT watch_id, epoch, news, room FROM _sas.node_news($1, $2)", 2, {INT8OID, INT4OID}};
	Datum		args[2] = {Int64GetDatum(node_id), Int32GetDatum(quantity)};
	List	   *list = NIL;

	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < SPI_processed; i++)
	{
		SasWatchNews *news = MemoryContextAllocZero(sas_store_results, sizeof(SasWatchNews));
		char	   *word = sas_store_cell_text(i, 3);

		watches_read_id(i, &news->id);
		news->news = strcmp(word, "room") == 0 ? 'o' : word[0];
		news->room = sas_store_cell_null(i, 4) ? 0 : sas_store_cell_int(i, 4);
		list = watches_append(list, news);
	}
	return list;
}

List *
sas_store_release_watches(int64 node_id, const SasWatchId *ids, int n)
{
	static SasPlan plan = {"SELECT k FROM unnest(_sas.give_back_watches($1, $2, $3)) k", 3, {INT8OID, INT8ARRAYOID, INT8ARRAYOID}};
	List	   *kept = NIL;
	SasColumn	c[2];
	Datum		args[3] = {Int64GetDatum(node_id)};

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
		watches_add_id(c, &ids[i]);
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < SPI_processed; i++)
		for (int k = 0; k < n; k++)
			if (ids[k].watch_id == sas_store_cell_int(i, 1))
				kept = watches_append(kept, unconstify(SasWatchId *, &ids[k]));
	return kept;
}
