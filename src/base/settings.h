/* SPDX-License-Identifier: PostgreSQL */
/*
 * settings.h: the sas.* settings as C variables, in the unit of their names' comments.
 */
#ifndef SAS_BASE_SETTINGS_H
#define SAS_BASE_SETTINGS_H

#include "base/actor.h"

/* No actor may have more workers than this in one database. */
#define SAS_MAX_WORKERS 64

/* Is a definition made on this node alone? Copy: the coordinator makes it here, too. */
typedef enum SasThisNodeOnly
{
	SAS_ALL_NODES,
	SAS_THIS_NODE_ONLY,
	SAS_COPY_ON_THIS_NODE
} SasThisNodeOnly;

extern int	sas_base_schedulers;
extern int	sas_base_agents;
extern int	sas_base_function_workers;
extern int	sas_base_function_workers_max;
extern int	sas_base_supervisors;
extern int	sas_base_agent_slots;
extern int	sas_base_agent_memory; /* MB */
extern int	sas_base_max_agents; /* set when the server starts, as the next ones */
extern int	sas_base_max_low_water_marks;
extern int	sas_base_max_metrics;
extern int	sas_base_max_exclusions;
extern int	sas_base_max_owners;
extern int	sas_base_supervisor_interval; /* ms */
extern int	sas_base_complete_in; /* ms */
extern int	sas_base_run_deadline; /* s */
extern int	sas_base_priority_step; /* s */
extern int	sas_base_max_definition_size; /* bytes */
extern int	sas_base_max_input_size; /* bytes */
extern int	sas_base_max_output_size; /* bytes */
extern int	sas_base_max_steps;
extern int	sas_base_node_id;	/* -1: as sas_store_node_id() finds it */
extern int	sas_base_watch_slots;
extern int	sas_base_watch_window; /* items */
extern bool sas_base_auto_rescue;
extern int	sas_base_this_node_only; /* a SasThisNodeOnly */
extern int	sas_base_retain_success; /* s; -1: for ever; also in the settings below */
extern int	sas_base_retain_warning;
extern int	sas_base_retain_error;
extern int	sas_base_retain_compensated;
extern int	sas_base_retain_cancelled;

/* In _PG_init: defines all settings. */
extern void sas_base_settings_define(void);

/* How many workers of that actor each database should have. */
extern int	sas_base_settings_workers(SasActor actor);

#endif							/* SAS_BASE_SETTINGS_H */
