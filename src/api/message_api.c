/* SPDX-License-Identifier: PostgreSQL */
/*
 * message_api.c: the trigger on _sas.message.  Internal: see
 * sql/base/low_water.sql.
 *
 * Many functions write messages, and each would have to look up the owner of
 * its runs.  The trigger does it in one place.  An owner hardly ever changes,
 * so any version of the run's row will do, even one that this very statement
 * writes.  After REASSIGN OWNED it may be the owner before: then messages are
 * taken in the wrong owner's turn, but no rights depend on it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "wake/low_water.h"

PG_FUNCTION_INFO_V1(sas_api_note_message);

static AttrNumber
message_api_column(Relation table, const char *name)
{
	AttrNumber	column = get_attnum(RelationGetRelid(table), name);

	if (column == InvalidAttrNumber)
		elog(ERROR, "column \"%s\" is missing", name);
	return column;
}

static Datum
message_api_value(Relation table, HeapTuple row, AttrNumber column)
{
	bool		isnull;
	Datum		value = heap_getattr(row, column, RelationGetDescr(table), &isnull);

	if (isnull)
		elog(ERROR, "column %d is null", column);
	return value;
}

/* What one statement remembers: the columns of the table, and the owner of the last run that it has written a message about. */
typedef struct MessageApiSite
{
	AttrNumber	owner_column;
	AttrNumber	urgent_column;
	AttrNumber	run_id_column;
	AttrNumber	kind_column;
	AttrNumber	actor_column;
	AttrNumber	due_at_column;
	int64		run_id;
	Oid			owner;
} MessageApiSite;

static MessageApiSite *
message_api_site(FmgrInfo *flinfo, Relation table)
{
	MessageApiSite *site = flinfo->fn_extra;

	if (site != NULL)
		return site;
	site = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(MessageApiSite));
	site->owner_column = message_api_column(table, "owner");
	site->urgent_column = message_api_column(table, "urgent");
	site->run_id_column = message_api_column(table, "run_id");
	site->kind_column = message_api_column(table, "kind");
	site->actor_column = message_api_column(table, "actor");
	site->due_at_column = message_api_column(table, "due_at");
	flinfo->fn_extra = site;
	return site;
}

/* The owner of the run, or the bootstrap superuser if there is no such run. */
static Oid
message_api_read_owner(Datum run_id)
{
	Oid			schema = get_namespace_oid("_sas", false);
	Relation	runs = table_open(get_relname_relid("run", schema), AccessShareLock);
	Oid			owner = BOOTSTRAP_SUPERUSERID;
	ScanKeyData by_id;
	SysScanDesc scan;
	HeapTuple	row;

	ScanKeyInit(&by_id, message_api_column(runs, "run_id"), BTEqualStrategyNumber, F_INT8EQ, run_id);
	scan = systable_beginscan(runs, get_relname_relid("run_pkey", schema), true, SnapshotAny, 1, &by_id);
	row = systable_getnext(scan);
	if (HeapTupleIsValid(row))
		owner = DatumGetObjectId(message_api_value(runs, row, message_api_column(runs, "owner")));
	systable_endscan(scan);
	table_close(runs, AccessShareLock);
	return owner;
}

/* There may be many messages about one run, about the elements of a map. */
static Oid
message_api_run_owner(MessageApiSite *last, int64 run_id)
{
	if (last->owner == InvalidOid || last->run_id != run_id)
	{
		last->owner = InvalidOid;	/* until it is known */
		last->run_id = run_id;
		last->owner = message_api_read_owner(Int64GetDatum(run_id));
	}
	return last->owner;
}

/*
 * Does somebody wait for this kind of message?  That is an operator who ends a
 * run or lets it continue, or who sends a signal.
 */
static bool
message_api_is_urgent(Datum kind)
{
	static const char *const urgent[] = {"halt", "cancel", "abort", "fail", "revoke", "signal", "undo", "reverse", "held"};
	char	   *name = TextDatumGetCString(kind);

	for (int i = 0; i < lengthof(urgent); i++)
		if (strcmp(name, urgent[i]) == 0)
			return true;
	return false;
}

/* _sas.note_message(): before a row of _sas.message is written. */
Datum
sas_api_note_message(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	MessageApiSite *site;
	TupleDesc	desc;
	HeapTuple	row;
	int			columns[2];
	Datum		values[2];
	bool		isnull[2];
	TimestampTz due_at;
	char		actor;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		elog(ERROR, "_sas.note_message() is a trigger before the insert or update of a row");
	desc = RelationGetDescr(trigger->tg_relation);
	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	site = message_api_site(fcinfo->flinfo, trigger->tg_relation);
	columns[0] = site->owner_column;
	columns[1] = site->urgent_column;
	for (int i = 0; i < lengthof(columns); i++)
		values[i] = heap_getattr(row, columns[i], desc, &isnull[i]);
	if (isnull[0] || isnull[1])
	{
		if (isnull[0])
			values[0] = ObjectIdGetDatum(message_api_run_owner(site, DatumGetInt64(message_api_value(trigger->tg_relation, row, site->run_id_column))));
		isnull[0] = false;
		if (isnull[1] && message_api_is_urgent(message_api_value(trigger->tg_relation, row, site->kind_column)))
		{
			values[1] = BoolGetDatum(true);
			isnull[1] = false;
		}
		row = heap_modify_tuple_by_cols(row, desc, lengthof(columns), columns, values, isnull);
	}
	actor = DatumGetChar(message_api_value(trigger->tg_relation, row, site->actor_column));
	due_at = DatumGetTimestampTz(message_api_value(trigger->tg_relation, row, site->due_at_column));
	sas_wake_low_water_note(SAS_LOW_WATER_DUE, actor, DatumGetObjectId(values[0]), due_at);
	/* under the capital letter, too */
	if (!isnull[1] && DatumGetBool(values[1]))
		sas_wake_low_water_note(SAS_LOW_WATER_DUE, pg_toupper(actor), DatumGetObjectId(values[0]), due_at);
	return PointerGetDatum(row);
}
