/* SPDX-License-Identifier: PostgreSQL */
/*
 * forward.h: verbs whose run is on another node, and those that hold for all.
 */
#ifndef SAS_API_FORWARD_H
#define SAS_API_FORWARD_H

#include "postgres.h"

#include "access/htup.h"
#include "fmgr.h"
#include "nodes/pg_list.h"

/* Which nodes a verb is for. */
typedef enum SasReach
{
	SAS_REACH_HERE,
	SAS_REACH_RUN,				/* that of the run: its first parameter is run_id */
	SAS_REACH_RUNS,				/* those of the runs: run_ids */
	SAS_REACH_ALERTS,			/* those of the alerts: alert_ids */
	SAS_REACH_KEY,				/* that of the run with this workflow and key */
	SAS_REACH_SUBMIT,			/* that of the key of a new run */
	SAS_REACH_BATCH,			/* here, if that is the one of all the keys */
	SAS_REACH_TOKEN,			/* that of the run in the token */
	SAS_REACH_ALL,				/* all; it is called on the coordinator */
	SAS_REACH_COORDINATOR		/* the coordinator alone */
} SasReach;

/* Asked once per call site, of the verb's row in pg_proc. */
extern SasReach sas_api_reach(HeapTuple function);

/* Raises an error if the verb is not for this node: it is called on the coordinator. */
extern void sas_api_check_node(SasReach reach, const char *name);

/*
 * Calls the verb of that name on the node where it belongs, if that is another
 * one that can be asked; false: nothing has happened. An id that is here is
 * for this node, whatever node it names.
 */
extern bool sas_api_forward(FunctionCallInfo fcinfo, SasReach reach, const char *name, bool writes, Datum *result);

/* Takes the ids of other nodes out of *array, and returns them by node. */
extern List *sas_api_forward_split(SasReach reach, Datum *array);

/* Calls the verb for these on their nodes, and adds its rows to those that the call here has returned. */
extern void sas_api_forward_rest(FunctionCallInfo fcinfo, List *parts, const char *name, bool writes);

/* Calls the verb on all other nodes, after it was called here with this result. */
extern void sas_api_forward_to_all(FunctionCallInfo fcinfo, const char *name, Datum result);

/*
 * lock_api.c: until this transaction ends, no other one changes what the keys
 * of that workflow follow. Comes before that is read.
 */
extern void sas_api_hold_keys(const char *workflow);

#endif							/* SAS_API_FORWARD_H */
