/* SPDX-License-Identifier: PostgreSQL */
/*
 * nodes_api.c: sas.sync_nodes(): other nodes get the definitions of the coordinator.
 *
 * It reads secrets and definitions of all roles, and makes them there, so only
 * superusers may call it: on each node it is a superuser, too.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "api/forward.h"
#include "base/compat.h"
#include "store/cluster.h"

PG_FUNCTION_INFO_V1(sas_api_sync_nodes);

/* node_id, applied, surplus of each other node */
Datum
sas_api_sync_nodes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasNodeRows *definitions;
	ListCell   *lc;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to make the definitions of all roles on other nodes"),
				 errdetail("Secrets are among them."),
				 errhint("Ask a superuser.")));
	PreventCommandIfReadOnly("sas.sync_nodes");
	sas_api_check_node(SAS_REACH_ALL, "sync_nodes");
	InitMaterializedSRF(fcinfo, 0);
	definitions = sas_store_run_here("SELECT coalesce(jsonb_agg(to_jsonb(d)), '[]') FROM _sas.definitions() d");
	foreach(lc, sas_store_other_nodes())
	{
		const SasNode *node = lfirst(lc);
		SasNodeRows *done;

		sas_store_pin_ddl_on_node(node, true);
		done = sas_store_run_on_node(node, true, "SELECT applied, surplus FROM _sas.apply_definitions($1)",
									 1, (Oid[]) {JSONBOID}, (const char *const[]) {definitions->values[0][0]});
		sas_store_pin_ddl_on_node(node, false);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
							 (Datum[]) {Int32GetDatum(node->id), Int32GetDatum(pg_strtoint32(done->values[0][0])),
		Int32GetDatum(pg_strtoint32(done->values[0][1]))}, (bool[]) {false, false, false});
	}
	return (Datum) 0;
}
