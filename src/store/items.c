/* SPDX-License-Identifier: PostgreSQL */
/*
 * items.c: the calls of function workers about infinite tasks.
 */
#include "postgres.h"

#include "access/attnum.h"
#include "base/actor.h"
#include "base/trust.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "store/items.h"
#include "store/plan.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

static ArrayType *
store_items_cell_array(int row, int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);

	return isnull ? NULL : DatumGetArrayTypePCopy(value);
}

List *
sas_store_claim_items(MemoryContext context, int quantity)
{
	static SasPlan plan = {"SELECT watch_id, request_id, owner, watcher, key, alone, window_ms, target_kind, target, items, keys, up_to, problem "
	"FROM _sas.claim_items($1, $2, $3)", 3, {INT4OID, INT8OID, INT8OID}};
	Datum		args[3] = {Int32GetDatum(quantity), Int64GetDatum(sas_base_self.boot), Int64GetDatum(sas_base_self.worker_id)};
	List	   *list = NIL;
	MemoryContext results = sas_store_results;

	sas_store_plan_run(&plan, args, NULL);
	sas_store_results = context;
	for (int i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(sas_store_results);
		SasClaimedItems *c = palloc0(sizeof(SasClaimedItems));

		c->watch_id = sas_store_cell_int(i, 1);
		sas_store_cell_uuid(i, 2, &c->request_id);
		c->owner = (Oid) sas_store_cell_int(i, 3);
		c->watcher = sas_store_cell_text(i, 4);
		c->key = sas_store_cell_text(i, 5);
		c->isolated = sas_store_cell_bool(i, 6);
		c->window_ms = sas_store_cell_float(i, 7);
		c->target_kind = sas_store_cell_text(i, 8);
		c->target = sas_store_cell_text(i, 9);
		c->items = sas_store_cell_jsonb(i, 10);
		c->keys = store_items_cell_array(i, 11);
		c->up_to = sas_store_cell_int(i, 12);
		c->problem = sas_store_cell_jsonb(i, 13);
		list = lappend(list, c);
		MemoryContextSwitchTo(old);
	}
	sas_store_results = results;
	return list;
}

/* The columns that name claims. */
static void
store_items_add_claims(SasColumn c[2], const SasClaimedItems *items)
{
	sas_store_column_add(&c[0], Int64GetDatum(items->watch_id), false);
	sas_store_column_add(&c[1], UUIDPGetDatum(&items->request_id), false);
}

bool *
sas_store_valid_items(SasClaimedItems *const *items, int n)
{
	static SasPlan plan = {"SELECT v FROM unnest(_sas.valid_items($1, $2)) v", 2, {INT8ARRAYOID, UUIDARRAYOID}};
	bool	   *valid = MemoryContextAllocZero(sas_store_results, n);
	SasColumn	c[2];
	Datum		args[2];

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
		store_items_add_claims(c, items[i]);
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < Min(n, (int) SPI_processed); i++)
		valid[i] = sas_store_cell_bool(i, 1);
	return valid;
}

bool
sas_store_write_items(SasItemsDone *done, int n)
{
	static SasPlan plan = {"SELECT c FROM unnest(_sas.write_items($1, $2, $3, $4, $5, $6)) c", 6,
	{INT8ARRAYOID, UUIDARRAYOID, INT8ARRAYOID, JSONBARRAYOID, BOOLARRAYOID, BOOLARRAYOID}};
	bool		all = true;
	SasColumn	c[6];
	Datum		args[6];

	sas_store_columns_open(c, &plan, n);
	for (int i = 0; i < n; i++)
	{
		store_items_add_claims(c, done[i].items);
		sas_store_column_add(&c[2], Int64GetDatum(done[i].items->up_to), false);
		sas_store_column_add(&c[3], PointerGetDatum(done[i].error), done[i].error == NULL);
		sas_store_column_add(&c[4], BoolGetDatum(done[i].again), false);
		sas_store_column_add(&c[5], BoolGetDatum(done[i].worked), false);
	}
	sas_store_columns_close(c, &plan, args);
	sas_store_plan_run(&plan, args, NULL);
	for (int i = 0; i < Min(n, (int) SPI_processed); i++)
	{
		const char *claim = sas_store_cell_text(i, 1);

		done[i].claim = strcmp(claim, "held") == 0 ? 'h' : strcmp(claim, "locked") == 0 ? 'l' : 'x';
		all &= done[i].claim == 'h' || !done[i].worked;
	}
	return all;
}

/* Is there a column of that name and type? */
static bool
store_items_has_column(Oid table, const char *name, Oid type)
{
	AttrNumber	number = get_attnum(table, name);

	return number > 0 && get_atttype(table, number) == type;
}

static Oid
store_items_find_table(const char *name)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		found;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(name);
	fcinfo->args[0].isnull = false;
	found = to_regclass(fcinfo);
	if (fcinfo->isnull)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table %s does not exist", name)));
	return DatumGetObjectId(found);
}

/*
 * Not a saved plan: the table is another one each time, and may have changed.
 * Its name is the catalog's, quoted; for a superuser nobody else makes
 * another table of it in between.
 */
void
sas_store_insert_items(const SasClaimedItems *items)
{
	Oid			table = store_items_find_table(items->target);
	bool		with_watcher = store_items_has_column(table, "watcher", TEXTOID);
	bool		with_key = store_items_has_column(table, "key", TEXTOID);
	char	   *command = psprintf("INSERT INTO %s (item%s%s) SELECT i.item%s%s FROM pg_catalog.jsonb_array_elements($1) WITH ORDINALITY AS i (item, n) ORDER BY i.n",
								   quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table)),
								   with_watcher ? ", watcher" : "", with_key ? ", key" : "",
								   with_watcher ? ", $2" : "", with_key ? ", $3" : "");
	Oid			types[3] = {JSONBOID, TEXTOID, TEXTOID};
	Datum		args[3] = {JsonbPGetDatum(items->items), CStringGetTextDatum(items->watcher), CStringGetTextDatum(items->key)};
	const char *distrust = superuser_arg(items->owner) ? sas_base_table_distrust(table) : NULL;

	if (distrust != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("table %s %s, and the owner of the task is one", items->target, distrust)));
	if (SPI_execute_with_args(command, 3, types, args, NULL, false, 0) < 0)
		elog(ERROR, "could not insert items");
}

void
sas_store_submit_items(const SasClaimedItems *items)
{
	Oid			types[3] = {TEXTOID, JSONBOID, TEXTARRAYOID};
	Datum		args[3] = {CStringGetTextDatum(items->target), JsonbPGetDatum(items->items), PointerGetDatum(items->keys)};

	if (SPI_execute_with_args("SELECT pg_catalog.count(*) FROM sas.submit_batch($1, ARRAY(SELECT i.item FROM pg_catalog.jsonb_array_elements($2) WITH ORDINALITY AS i (item, n) ORDER BY i.n), $3)",
							  3, types, args, items->keys ? NULL : "  n", false, 0) < 0)
		elog(ERROR, "could not submit items");
}

bool
sas_store_begin_iteration(int64 node_id, const SasWatchId *id, SasIteration *iteration)
{
	static SasPlan plan = {"SELECT owner, function, input, cursor, every_ms, timeout_ms, stop, suspect, noted, next_at FROM _sas.begin_invocation($1, $2, $3)",
	3, {INT8OID, INT8OID, INT8OID}};
	Datum		args[3] = {Int64GetDatum(node_id), Int64GetDatum(id->watch_id), Int64GetDatum(id->epoch)};

	sas_store_plan_run(&plan, args, NULL);
	if (SPI_processed == 0)
		return false;
	iteration->owner = (Oid) sas_store_cell_int(0, 1);
	iteration->function = sas_store_cell_text(0, 2);
	iteration->input = sas_store_cell_jsonb(0, 3);
	iteration->cursor = sas_store_cell_jsonb(0, 4);
	iteration->every_ms = sas_store_cell_float(0, 5);
	iteration->timeout_ms = sas_store_cell_float(0, 6);
	iteration->stop = sas_store_cell_bool(0, 7);
	iteration->suspect = sas_store_cell_bool(0, 8);
	iteration->noted = sas_store_cell_bool(0, 9);
	iteration->next_at = sas_store_cell_time(0, 10);
	return true;
}

bool
sas_store_note_iteration(int64 node_id, const SasWatchId *id)
{
	static SasPlan plan = {"SELECT _sas.note_invocation($1, $2, $3) = 'mine'", 3, {INT8OID, INT8OID, INT8OID}};
	Datum		args[3] = {Int64GetDatum(node_id), Int64GetDatum(id->watch_id), Int64GetDatum(id->epoch)};

	sas_store_plan_run(&plan, args, NULL);
	return sas_store_cell_bool(0, 1);
}

bool
sas_store_end_iteration(int64 node_id, const SasWatchId *id, Jsonb *cursor)
{
	static SasPlan plan = {"SELECT _sas.end_invocation($1, $2, $3, $4) = 'mine'", 4, {INT8OID, INT8OID, INT8OID, JSONBOID}};
	Datum		args[4] = {Int64GetDatum(node_id), Int64GetDatum(id->watch_id), Int64GetDatum(id->epoch), PointerGetDatum(cursor)};

	sas_store_plan_run(&plan, args, cursor ? NULL : "   n");
	return sas_store_cell_bool(0, 1);
}

int
sas_store_make_way(int64 node_id, int64 watch_id, int64 **gone)
{
	static SasPlan plan = {"SELECT g FROM unnest(_sas.make_way($1, $2)) g", 2, {INT8OID, INT8OID}};
	Datum		args[2] = {Int64GetDatum(node_id), Int64GetDatum(watch_id)};

	sas_store_plan_run(&plan, args, NULL);
	*gone = MemoryContextAlloc(sas_store_results, sizeof(int64) * (SPI_processed + 1));
	for (int i = 0; i < SPI_processed; i++)
		(*gone)[i] = sas_store_cell_int(i, 1);
	return (int) SPI_processed;
}
