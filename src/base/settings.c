/* SPDX-License-Identifier: PostgreSQL */
/*
 * settings.c: defines the sas.* settings.
 *
 * Those that workers read are changed by a reload of the configuration; the
 * launcher then brings the numbers of workers in line.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "base/clock.h"
#include "base/networks.h"
#include "base/secret_file.h"
#include "base/settings.h"
#include "base/version.h"

#define SAS_DAY (24 * 3600)

int			sas_base_schedulers = 1;
int			sas_base_agents = 1;
int			sas_base_function_workers = 1;
int			sas_base_function_workers_max = 8;
int			sas_base_supervisors = 1;
int			sas_base_agent_slots = 1000;
int			sas_base_agent_memory = 256;
int			sas_base_max_agents = 4096;
int			sas_base_max_low_water_marks = 16384;
int			sas_base_max_metrics = 8192;
int			sas_base_max_exclusions = 256;
int			sas_base_max_owners = 1024;
int			sas_base_supervisor_interval = 60 * 1000;
int			sas_base_complete_in = 60 * 1000;
int			sas_base_run_deadline = 30 * 24 * 3600;
int			sas_base_priority_step = 3600;
int			sas_base_max_definition_size = 1024 * 1024;
int			sas_base_max_input_size = 1024 * 1024;
int			sas_base_max_output_size = 8 * 1024 * 1024;
int			sas_base_max_steps = 10000;
int			sas_base_node_id = -1;
int			sas_base_watch_slots = -1;
int			sas_base_watch_window = 10000;
bool		sas_base_auto_rescue = true;
int			sas_base_this_node_only = SAS_ALL_NODES;
static char *settings_deny_networks = NULL;
static char *settings_allow_networks = NULL;
static char *settings_reason = NULL;	/* read by the default of a column */
static char *settings_known_versions;
int			sas_base_retain_success = 30 * SAS_DAY;
int			sas_base_retain_warning = 90 * SAS_DAY;
int			sas_base_retain_error = 90 * SAS_DAY;
int			sas_base_retain_compensated = 90 * SAS_DAY;
int			sas_base_retain_cancelled = 30 * SAS_DAY;

typedef struct SasIntSetting
{
	const char *name;
	const char *description;
	const char *detail;
	int		   *variable;
	int			min;
	int			max;
	int			unit;
} SasIntSetting;

#define RETAINED "They are purged then, and their keys are free. -1 keeps them for ever."

static const SasIntSetting settings_ints[] = {
	{"sas.schedulers", "Number of scheduler workers per database.",
		"0 stops them.", &sas_base_schedulers, 0, 16, 0},
	{"sas.agents", "Number of agent workers per database that make calls.",
		"0 stops them.", &sas_base_agents, 0, SAS_MAX_WORKERS, 0},
	{"sas.function_workers", "Number of function workers per database.",
		"0 stops them.", &sas_base_function_workers, 0, SAS_MAX_WORKERS, 0},
	{"sas.function_workers_max", "Largest number of function workers per database.",
		"A worker whose function runs for more than a second is replaced until it returns, up to this number.",
		&sas_base_function_workers_max, 0, SAS_MAX_WORKERS, 0},
	{"sas.supervisors", "Number of supervisor workers per database.",
		"One leads, the others stand by. 0 stops them.", &sas_base_supervisors, 0, 16, 0},
	{"sas.agent_slots", "Number of calls that one agent worker keeps in flight at once.",
		NULL, &sas_base_agent_slots, 1, 100000, 0},
	{"sas.agent_memory", "Memory of one agent worker for requests and answers.",
		"Beyond it, answers are read when there is room again, and an agent that holds more than is left is not called.",
		&sas_base_agent_memory, 16, 1024 * 1024, GUC_UNIT_MB},
	{"sas.supervisor_interval", "Longest sleep of the supervisor.",
		"While something is open it looks up to six times as often.", &sas_base_supervisor_interval, 100, 3600 * 1000, GUC_UNIT_MS},
	{"sas.complete_in", "Window of a step that names none.",
		"A step that has not completed by then is taken back.", &sas_base_complete_in, 1, INT_MAX, GUC_UNIT_MS},
	{"sas.run_deadline", "Deadline of a run that names none.",
		NULL, &sas_base_run_deadline, 1, INT_MAX, GUC_UNIT_S},
	{"sas.priority_step", "How much earlier one unit of priority counts.",
		"A ready step of priority 2 goes before one of priority 0 that has waited up to twice this long.",
		&sas_base_priority_step, 1, 365 * 24 * 3600, GUC_UNIT_S},
	{"sas.max_definition_size", "Largest workflow definition that is accepted.",
		NULL, &sas_base_max_definition_size, 1024, 512 * 1024 * 1024, GUC_UNIT_BYTE},
	{"sas.max_input_size", "Largest input of a run that is accepted.",
		NULL, &sas_base_max_input_size, 1024, 512 * 1024 * 1024, GUC_UNIT_BYTE},
	{"sas.max_output_size", "Largest output of a function, a task or an operator that is accepted.",
		"That of calls is limited by max_response of their agents.", &sas_base_max_output_size, 1024, 256 * 1024 * 1024, GUC_UNIT_BYTE},
	{"sas.max_steps", "Largest number of steps of one run.",
		NULL, &sas_base_max_steps, 1, 1000000, 0},
	{"sas.watch_slots", "Number of infinite tasks that one worker hosts.",
		"It holds for workers that start from then on. 0: it hosts none. -1: as many as the machine has memory for.",
		&sas_base_watch_slots, -1, 1000000, 0},
	{"sas.watch_window", "Number of items of one infinite task that may wait for their target.",
		"A host that has taken in so many takes in no more until there is room.", &sas_base_watch_window, 1, 10000000, 0},
	{"sas.retain_success", "How long runs that ended with success are kept, and infinite tasks that were deleted.",
		RETAINED, &sas_base_retain_success, -1, INT_MAX, GUC_UNIT_S},
	{"sas.retain_warning", "How long runs that ended with a warning are kept.",
		RETAINED, &sas_base_retain_warning, -1, INT_MAX, GUC_UNIT_S},
	{"sas.retain_error", "How long runs that ended with an error are kept, and closed alerts that belong to no run.",
		RETAINED, &sas_base_retain_error, -1, INT_MAX, GUC_UNIT_S},
	{"sas.retain_compensated", "How long runs that were undone are kept.",
		RETAINED, &sas_base_retain_compensated, -1, INT_MAX, GUC_UNIT_S},
	{"sas.retain_cancelled", "How long cancelled runs are kept.",
		RETAINED, &sas_base_retain_cancelled, -1, INT_MAX, GUC_UNIT_S},
};

/* The capacities of tables in shared memory, of all databases together. */
static const SasIntSetting settings_capacities[] = {
	{"sas.max_agents", "Number of agents that may be busy at once.",
		"Further agents are called more slowly.", &sas_base_max_agents, 8, 1000000, 0},
	{"sas.max_low_water_marks", "Number of owners in lanes whose first row is remembered.",
		"Further ones are scanned from the beginning.", &sas_base_max_low_water_marks, 8, 1000000, 0},
	{"sas.max_metrics", "Number of counters and histograms.",
		"What finds no room is counted under the name \"_other\".", &sas_base_max_metrics, 64, 1000000, 0},
	{"sas.max_exclusions", "Number of databases from which sessions exclude workers at once.",
		"While there are more, no worker starts in any database.", &sas_base_max_exclusions, 1, 100000, 0},
	{"sas.max_owners", "Number of roles with open runs whose runs are counted.",
		"The runs of further roles are not limited.", &sas_base_max_owners, 8, 1000000, 0},
};

static bool
settings_check_clock(char **newval, void **extra, GucSource source)
{
	return sas_base_clock_check(newval, extra, source);
}

static void
settings_assign_clock(const char *newval, void *extra)
{
	sas_base_clock_assign(extra);
}

static bool
settings_check_networks(char **newval, void **extra, GucSource source)
{
	const char *at;
	size_t		len;

	if (*newval == NULL || sas_base_networks_check(*newval, &at, &len))
		return true;
	GUC_check_errdetail("\"%.*s\" is not a network, or there are more than %d.", (int) Min(len, 64), at, SAS_MAX_NETWORKS);
	GUC_check_errhint("Networks are written as 10.0.0.0/8 or fe80::/10, with commas between them.");
	return false;
}

static void
settings_assign_deny_networks(const char *newval, void *extra)
{
	sas_base_networks_assign(SAS_NETWORKS_DENIED, newval ? newval : "");
}

static void
settings_assign_allow_networks(const char *newval, void *extra)
{
	sas_base_networks_assign(SAS_NETWORKS_ALLOWED, newval ? newval : "");
}

static bool
settings_check_secret_directory(char **newval, void **extra, GucSource source)
{
	if (*newval == NULL || (*newval)[0] == '\0' || is_absolute_path(*newval))
		return true;
	GUC_check_errdetail("The directory is an absolute path, or empty.");
	return false;
}

static void
settings_define_ints(const SasIntSetting *settings, int n, GucContext context)
{
	for (int i = 0; i < n; i++)
	{
		const SasIntSetting *s = &settings[i];

		DefineCustomIntVariable(s->name, s->description, s->detail, s->variable, *s->variable,
								s->min, s->max, context, s->unit, NULL, NULL, NULL);
	}
}

/* As a boolean; "copy" comes from the coordinator. */
static const struct config_enum_entry settings_this_node_only[] = {
	{"off", SAS_ALL_NODES, false}, {"on", SAS_THIS_NODE_ONLY, false}, {"copy", SAS_COPY_ON_THIS_NODE, true},
	{"false", SAS_ALL_NODES, true}, {"no", SAS_ALL_NODES, true}, {"0", SAS_ALL_NODES, true},
	{"true", SAS_THIS_NODE_ONLY, true}, {"yes", SAS_THIS_NODE_ONLY, true}, {"1", SAS_THIS_NODE_ONLY, true},
	{NULL, 0, false}
};

void
sas_base_settings_define(void)
{
	settings_define_ints(settings_ints, lengthof(settings_ints), PGC_SIGHUP);
	/* shared memory has its size when the server starts; nothing is there to be sized in a session that loads the library */
	settings_define_ints(settings_capacities, lengthof(settings_capacities),
						 process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP);
	/* so that ALTER DATABASE sets it, which a standby takes over */
	DefineCustomIntVariable("sas.node_id", "The number of this server among the nodes of a cluster, in each run id that it gives out.",
							"No two nodes have the same. -1: the number that Citus knows the node by, and 0 without Citus.",
							&sas_base_node_id, -1, -1, 4095, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("sas.this_node_only", "Make definitions and schedules on this node of a cluster alone.",
							 "Off: the coordinator makes definitions and schedules on all nodes.",
							 &sas_base_this_node_only, SAS_ALL_NODES, settings_this_node_only, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("sas.auto_rescue", "Carry out what on_failure says.",
							 "Off: the run is paused, and its alert says what on_failure suggests. A workflow may say otherwise.",
							 &sas_base_auto_rescue, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("sas.clock", "The instant that sas takes for now.",
							   "Empty: the clock of the machine. For tests.",
							   &sas_base_clock_setting, "", PGC_SUSET, 0,
							   settings_check_clock, settings_assign_clock, NULL);
	DefineCustomStringVariable("sas.deny_networks", "Networks whose addresses no call and no stream connects to.",
							   "It is the address that is connected to, whatever name led there; with a proxy, that of the proxy.",
							   &settings_deny_networks, SAS_DENY_NETWORKS, PGC_SIGHUP, GUC_LIST_INPUT,
							   settings_check_networks, settings_assign_deny_networks, NULL);
	DefineCustomStringVariable("sas.allow_networks", "The only networks whose addresses calls and streams connect to.",
							   "Empty: all. Those of sas.deny_networks are denied all the same.",
							   &settings_allow_networks, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   settings_check_networks, settings_assign_allow_networks, NULL);
	DefineCustomStringVariable("sas.reason", "Why the session does what it does next, for sas.history.",
							   NULL, &settings_reason, "", PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("sas.secret_directory", "The directory below which files may be values of secrets.",
							   "Empty: no secret is a file.",
							   &sas_base_secret_directory, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   settings_check_secret_directory, NULL, NULL);
	DefineCustomStringVariable("sas.known_versions", "The versions of the extension that the loaded library runs, the newest first.",
							   "The newest is that of the library itself.",
							   &settings_known_versions, SAS_SCHEMAS, PGC_INTERNAL, GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);
	MarkGUCPrefixReserved("sas");
}

int
sas_base_settings_workers(SasActor actor)
{
	switch (actor)
	{
		case SAS_SCHEDULER:
			return sas_base_schedulers;
		case SAS_AGENT:
			return sas_base_agents;
		case SAS_FUNCTION:
			return sas_base_function_workers;
		case SAS_SUPERVISOR:
			return sas_base_supervisors;
	}
	return 0;
}
