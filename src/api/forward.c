/* SPDX-License-Identifier: PostgreSQL */
/*
 * forward.c: verbs whose run is on another node, and those that hold for all.
 *
 * A run id names the node that assigned it, and a run stays there. So a verb
 * for it is called again on that node, in this transaction, as the same role:
 * that node decides what the role may do. Definitions are made on the
 * coordinator and, in the same transaction, on all other nodes. There,
 * sas.this_node_only says that the call comes from the coordinator. Any role
 * may set it: it gives no right, and it only keeps nodes from differing by
 * mistake.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "base/array.h"
#include "base/settings.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgtime.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "api/forward.h"
#include "api/key_nodes.h"
#include "store/cluster.h"
#include "store/node.h"
#include "store/store.h"

/* What is the same on all nodes is changed by these. */
static const char *const forward_everywhere[] = {
	"create_agent", "alter_agent", "drop_agent", "grant_agent", "revoke_agent", "reset_agent", "pause_agent", "resume_agent",
	"set_secret", "set_secret_file", "drop_secret",
	"create_workflow", "drop_workflow", "grant_workflow", "revoke_workflow", "pause_workflow", "resume_workflow",
	"distribute_keys", "subscribe", "unsubscribe", "create_middleware", "drop_middleware",
	"create_queue", "alter_queue", "drop_queue", "pause_queue", "resume_queue",
	"create_watcher", "drop_watcher", "set_limit", "set_alert_hook", "grant_usage", "revoke_usage",
	"schedule", "unschedule", "pause_schedule", "resume_schedule"
};

/* Schedules fire there. */
static const char *const forward_on_coordinator[] = {"trigger_schedule", "backfill_schedule"};

/* Ids of one node among those of a verb for many. */
typedef struct ForwardPart
{
	SasNode    *node;
	Datum	   *ids;
	int			n;
} ForwardPart;

static bool
forward_is_among(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

SasReach
sas_api_reach(HeapTuple function)
{
	static const struct
	{
		const char *parameter;
		SasReach	reach;
	}			by_parameter[] = {
		{"run_id", SAS_REACH_RUN}, {"run_ids", SAS_REACH_RUNS}, {"alert_ids", SAS_REACH_ALERTS}
	};
	static const struct
	{
		const char *name;
		SasReach	reach;
	}			by_name[] = {
		{"signal_key", SAS_REACH_KEY}, {"signal_token", SAS_REACH_TOKEN},
		{"submit", SAS_REACH_SUBMIT}, {"submit_batch", SAS_REACH_BATCH}
	};
	const char *name = NameStr(((Form_pg_proc) GETSTRUCT(function))->proname);
	char	  **names;
	Oid		   *types;
	char	   *modes;

	if (forward_is_among(name, forward_everywhere, lengthof(forward_everywhere)))
		return SAS_REACH_ALL;
	if (forward_is_among(name, forward_on_coordinator, lengthof(forward_on_coordinator)))
		return SAS_REACH_COORDINATOR;
	for (int i = 0; i < lengthof(by_name); i++)
		if (strcmp(name, by_name[i].name) == 0)
			return by_name[i].reach;
	if (((Form_pg_proc) GETSTRUCT(function))->pronargs > 0 && get_func_arg_info(function, &types, &names, &modes) > 0 && names != NULL)
		for (int i = 0; i < lengthof(by_parameter); i++)
			if (strcmp(names[0], by_parameter[i].parameter) == 0)
				return by_parameter[i].reach;
	return SAS_REACH_HERE;
}

void
sas_api_check_node(SasReach reach, const char *name)
{
	if ((reach != SAS_REACH_ALL && reach != SAS_REACH_COORDINATOR) || sas_base_this_node_only || sas_store_is_coordinator())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sas.%s must be called on the coordinator", name),
			 errdetail(reach == SAS_REACH_ALL ? "It holds for all nodes, and is carried out on them in one transaction." :
					   "Schedules fire on the coordinator alone, so that each instant has one run."),
			 errhint("Connect to the coordinator. For this node alone, set sas.this_node_only to on.")));
}

/* ------------------------------------------------------------------ the call */

/* A value as every node reads it, whatever the settings of this session. */
static char *
forward_text(Oid type, Datum value)
{
	int			level = sas_store_pin_text();
	Oid			output;
	bool		varlena;
	char	   *text;

	getTypeOutputInfo(type, &output, &varlena);
	text = OidOutputFunctionCall(output, value);
	sas_store_unpin_path(level);
	return text;
}

/* The same call on that node; first: in place of the first argument, NULL: that one. */
static SasNodeRows *
forward_call(FunctionCallInfo fcinfo, const SasNode *node, const char *name, bool writes, const Datum *first)
{
	const char *values[FUNC_MAX_ARGS];
	StringInfoData statement;
	Oid		   *types;
	int			n;

	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &n);
	initStringInfo(&statement);
	appendStringInfo(&statement, "SELECT * FROM sas.%s(", quote_identifier(name));
	for (int i = 0; i < n; i++)
	{
		appendStringInfo(&statement, "%s$%d", i > 0 ? ", " : "", i + 1);
		if (i == 0 && first != NULL)
			values[i] = forward_text(types[i], *first);
		else
			values[i] = PG_ARGISNULL(i) ? NULL : forward_text(types[i], PG_GETARG_DATUM(i));
	}
	appendStringInfoChar(&statement, ')');
	return sas_store_run_on_node(node, writes, statement.data, n, types, values);
}

/* Adds the rows to the result, which is made if there is none yet. */
static void
forward_add_rows(FunctionCallInfo fcinfo, const SasNodeRows *rows)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	AttInMetadata *input;

	if (rsinfo->returnMode != SFRM_Materialize || rsinfo->setResult == NULL)
		InitMaterializedSRF(fcinfo, 0);
	if (rows->n_rows > 0 && rows->n_columns != rsinfo->setDesc->natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a node returns %d columns, not %d", rows->n_columns, rsinfo->setDesc->natts),
				 errdetail("It has another version of sas."),
				 errhint("Update the extension on the coordinator: ALTER EXTENSION sas UPDATE.")));
	input = TupleDescGetAttInMetadata(rsinfo->setDesc);
	for (int i = 0; i < rows->n_rows; i++)
		tuplestore_puttuple(rsinfo->setResult, BuildTupleFromCStrings(input, rows->values[i]));
}

static Datum
forward_value(FunctionCallInfo fcinfo, const SasNodeRows *rows)
{
	Oid			type = get_func_rettype(fcinfo->flinfo->fn_oid);
	Oid			input;
	Oid			parameter;
	TupleDesc	row;

	if (type == VOIDOID)
		return (Datum) 0;
	if (rows->n_rows > 0 && get_call_result_type(fcinfo, NULL, &row) == TYPEFUNC_COMPOSITE)
		return HeapTupleGetDatum(BuildTupleFromCStrings(TupleDescGetAttInMetadata(BlessTupleDesc(row)), rows->values[0]));
	if (rows->n_rows == 0 || rows->values[0][0] == NULL)
	{
		fcinfo->isnull = true;
		return (Datum) 0;
	}
	getTypeInputInfo(type, &input, &parameter);
	return OidInputFunctionCall(input, rows->values[0][0], parameter, -1);
}

/* ---------------------------------------------------------------- which node */

static SasNode *
forward_node_of_id(SasReach reach, int64 id)
{
	if (sas_store_node_of(id) == sas_store_node_id() ||
		(reach == SAS_REACH_ALERTS ? sas_store_has_id("alert", "alert_id", "alert_pkey", id) : sas_store_has_id("run", "run_id", "run_pkey", id)))
		return NULL;
	return sas_store_other_node(sas_store_node_of(id));
}

/* A token begins with the id of its run. */
static SasNode *
forward_node_of_token(const char *token)
{
	char	   *end;
	int64		id = strtoi64(token, &end, 10);

	return *end == '-' && id > 0 ? forward_node_of_id(SAS_REACH_RUN, id) : NULL;
}

/* NULL: this one. left: see key_nodes.h. */
static SasNode *
forward_node(FunctionCallInfo fcinfo, SasReach reach, bool *left)
{
	if (PG_NARGS() == 0 || PG_ARGISNULL(0))
		return NULL;
	switch (reach)
	{
		case SAS_REACH_RUN:
			return forward_node_of_id(reach, PG_GETARG_INT64(0));
		case SAS_REACH_KEY:
			return PG_ARGISNULL(1) || sas_base_this_node_only ? NULL :
				sas_api_node_of_key(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)), left);
		case SAS_REACH_SUBMIT:
			return PG_ARGISNULL(2) || sas_base_this_node_only ? NULL :
				sas_api_node_to_submit(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(2)), left);
		case SAS_REACH_BATCH:
			if (!PG_ARGISNULL(2) && !sas_base_this_node_only)
				sas_api_check_batch(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_DATUM(2));
			return NULL;
		case SAS_REACH_TOKEN:
			return forward_node_of_token(text_to_cstring(PG_GETARG_TEXT_PP(0)));
		default:
			return NULL;
	}
}

static void
forward_mark(const SasNode *node, const char *value)
{
	(void) sas_store_run_on_node(node, true, "SELECT pg_catalog.set_config('sas.this_node_only', $1, true)",
								 1, (Oid[]) {TEXTOID}, (const char *const[]) {value});
}

bool
sas_api_forward(FunctionCallInfo fcinfo, SasReach reach, const char *name, bool writes, Datum *result)
{
	bool		left = false;
	SasNode    *node = sas_store_in_cluster() ? forward_node(fcinfo, reach, &left) : NULL;
	SasNodeRows *rows;

	if (node == NULL)
		return false;
	if (get_func_retset(fcinfo->flinfo->fn_oid))
		sas_store_pin_text_on_node(node);
	if (left)
		forward_mark(node, "on");
	rows = forward_call(fcinfo, node, name, writes, NULL);
	if (left)
		forward_mark(node, "off");
	fcinfo->isnull = false;
	*result = (Datum) 0;
	if (get_func_retset(fcinfo->flinfo->fn_oid))
	{
		((ReturnSetInfo *) fcinfo->resultinfo)->setResult = NULL;
		forward_add_rows(fcinfo, rows);
	}
	else
		*result = forward_value(fcinfo, rows);
	return true;
}

/* ------------------------------------------------------------------ many runs */

static ForwardPart *
forward_part_of(List **parts, SasNode *node, int room)
{
	ForwardPart *part;
	ListCell   *lc;

	foreach(lc, *parts)
		if (((ForwardPart *) lfirst(lc))->node->id == node->id)
			return lfirst(lc);
	part = palloc0(sizeof(ForwardPart));
	part->node = node;
	part->ids = palloc(sizeof(Datum) * room);
	*parts = lappend(*parts, part);
	return part;
}

static Datum
forward_array(Datum *ids, int n)
{
	return PointerGetDatum(sas_base_array(ids, n, INT8OID));
}

List *
sas_api_forward_split(SasReach reach, Datum *array)
{
	List	   *parts = NIL;
	Datum	   *ids;
	bool	   *nulls;
	int			n;
	int			kept = 0;

	if (!sas_store_in_cluster())
		return NIL;
	sas_base_elements(DatumGetArrayTypeP(*array), &ids, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		SasNode    *node = nulls[i] ? NULL : forward_node_of_id(reach, DatumGetInt64(ids[i]));
		ForwardPart *part = node == NULL ? NULL : forward_part_of(&parts, node, n);

		/* an array with nulls is the verb's to refuse */
		if (nulls[i])
			return NIL;
		if (part == NULL)
			ids[kept++] = ids[i];
		else
			part->ids[part->n++] = ids[i];
	}
	if (parts != NIL)
		*array = forward_array(ids, kept);
	return parts;
}

void
sas_api_forward_rest(FunctionCallInfo fcinfo, List *parts, const char *name, bool writes)
{
	ListCell   *lc;

	foreach(lc, parts)
	{
		ForwardPart *part = lfirst(lc);
		Datum		ids = forward_array(part->ids, part->n);

		forward_add_rows(fcinfo, forward_call(fcinfo, part->node, name, writes, &ids));
	}
}

/* ------------------------------------------------------------------ all nodes */

/* The time zone of a schedule is that of this session, on all nodes. */
static void
forward_set_zone(FunctionCallInfo fcinfo, const char *name)
{
	enum
	{
		ZONE = 4
	};

	if (strcmp(name, "schedule") != 0 || !PG_ARGISNULL(ZONE))
		return;
	fcinfo->args[ZONE].value = CStringGetTextDatum(pg_get_timezone_name(session_timezone));
	fcinfo->args[ZONE].isnull = false;
}

void
sas_api_forward_to_all(FunctionCallInfo fcinfo, const char *name, Datum result)
{
	Oid			type = get_func_rettype(fcinfo->flinfo->fn_oid);
	char	   *here = type == INT4OID && !fcinfo->isnull ? forward_text(type, result) : NULL;
	ListCell   *lc;

	if (sas_base_this_node_only)
		return;
	forward_set_zone(fcinfo, name);
	foreach(lc, sas_store_other_nodes())
	{
		SasNode    *node = lfirst(lc);
		SasNodeRows *rows;

		forward_mark(node, "copy");
		rows = forward_call(fcinfo, node, name, true, NULL);
		forward_mark(node, "off");
		if (here != NULL && (rows->n_rows == 0 || rows->values[0][0] == NULL || strcmp(rows->values[0][0], here) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("node %d makes another version than this node", node->id),
					 errdetail("This node makes %s, that one %s.", here,
							   rows->n_rows == 0 || rows->values[0][0] == NULL ? "none" : rows->values[0][0]),
					 errhint("A superuser calls sas.sync_nodes() on the coordinator; then try again.")));
	}
}
