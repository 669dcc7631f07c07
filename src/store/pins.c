/* SPDX-License-Identifier: PostgreSQL */
/*
 * pins.c: the settings of a worker's session.
 *
 * ALTER DATABASE ... SET and ALTER ROLE ... SET reach background workers
 * too.  So each setting that a statement or a function body depends on is
 * set for the session, which overrides all of these.  The value that the
 * setting would have otherwise is its "reset" value; where the two differ,
 * functions of users get the reset value.
 *
 * With two settings, a function of a user could end the worker by a mere
 * ERROR or pause, and so delay everything: in this process they are settings
 * of superusers.
 */
#include "postgres.h"

#include "base/compat.h"
#include "fmgr.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "store/pins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

typedef struct SasPin
{
	const char *name;
	const char *value;
	bool		worker_only;	/* functions of users are called under it, too */
} SasPin;

/* A setting that this server does not have is passed over. */
static const SasPin pins_settings[] = {
	/* the limits of a transaction are the worker's; a user's function may set some of them, until it returns */
	{"search_path", "pg_catalog, pg_temp", true},
	{"statement_timeout", "0", true},
	/* no tick waits for a lock that a session holds; where one does after all, it gives way to what it can do */
	{"lock_timeout", "1s"},
	{"transaction_timeout", "0", true},
	{"idle_in_transaction_session_timeout", "0", true},
	{"idle_session_timeout", "0", true},
	{"default_transaction_isolation", "read committed", true},
	{"default_transaction_read_only", "off", true},
	{"default_transaction_deferrable", "off", true},
	{"row_security", "on", true},
	{"exit_on_error", "off", true},

	/*
	 * All statements reach few rows by an index.  A plan that was made while
	 * a table was empty must stay right when it has a million rows.
	 */
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_indexscan", "on"},
	{"enable_indexonlyscan", "on"},
	{"enable_bitmapscan", "on"},
	{"enable_tidscan", "on"},
	{"enable_nestloop", "on"},
	{"enable_sort", "on"},
	{"enable_incremental_sort", "on"},
	{"enable_hashagg", "on"},
	{"enable_material", "on"},
	{"enable_memoize", "on"},
	{"enable_presorted_aggregate", "on"},
	{"enable_group_by_reordering", "on"},
	{"enable_distinct_reordering", "on"},
	{"enable_self_join_elimination", "on"},
	{"enable_partition_pruning", "on"},
	{"constraint_exclusion", "partition"},
	{"from_collapse_limit", "8"},
	{"join_collapse_limit", "8"},
	{"geqo", "on"},
	{"geqo_threshold", "12"},
	{"seq_page_cost", "1"},
	{"random_page_cost", "4"},
	{"cpu_tuple_cost", "0.01"},
	{"cpu_index_tuple_cost", "0.005"},
	{"cpu_operator_cost", "0.0025"},
	{"cursor_tuple_fraction", "0.1"},
	{"max_parallel_workers_per_gather", "0"},
	{"jit", "off"},

	/* what bodies are parsed under */
	{"standard_conforming_strings", "on"},
	{"backslash_quote", "safe_encoding"},
	{"escape_string_warning", "on"},
	{"transform_null_equals", "off"},
	{"array_nulls", "on"},
	{"quote_all_identifiers", "off"},
	{"restrict_nonsystem_relation_kind", ""},
	{"plpgsql.variable_conflict", "error"},
	{"plpgsql.print_strict_params", "off"},
	{"plpgsql.check_asserts", "on"},
	{"plpgsql.extra_warnings", "none"},
	{"plpgsql.extra_errors", "none"},

	/* how values become text, and text becomes values */
	{"DateStyle", "ISO, MDY"},
	{"IntervalStyle", "postgres"},
	{"TimeZone", "UTC"},
	{"timezone_abbreviations", "Default"},
	{"extra_float_digits", "1"},
	{"bytea_output", "hex"},
	{"xmlbinary", "base64"},
	{"xmloption", "content"},

	/* what is written */
	{"session_replication_role", "origin"},
	{"gin_fuzzy_search_limit", "0"},
};

/*
 * What a verb pins in a session, too.  The statements of verbs reach few rows
 * by an index, in nested loops.  Where a session forbids these, plans read
 * whole tables; and a forbidden plan seems so dear that it is compiled, which
 * takes longer than all of the verb.  A body may set its own on top of that,
 * also of the last ones.
 */
typedef struct SasPlanPin
{
	const char *name;
	const bool *now;
	enum
	{
		PINS_OFF, PINS_ON, PINS_AS_IT_IS
	}			value;
} SasPlanPin;

static const SasPlanPin pins_plans[] = {
	{"jit", &jit_enabled, PINS_OFF},
	{"enable_seqscan", &enable_seqscan, PINS_OFF},
	{"enable_indexscan", &enable_indexscan, PINS_ON},
	{"enable_indexonlyscan", &enable_indexonlyscan, PINS_ON},
	{"enable_bitmapscan", &enable_bitmapscan, PINS_ON},
	{"enable_nestloop", &enable_nestloop, PINS_ON},
	{"enable_sort", &enable_sort, PINS_ON},
	{"enable_hashagg", &enable_hashagg, PINS_ON},
	{"enable_material", &enable_material, PINS_ON},
	{"enable_hashjoin", &enable_hashjoin, PINS_AS_IT_IS},
	{"enable_mergejoin", &enable_mergejoin, PINS_AS_IT_IS},
};

/* What the session has for these and for plan_cache_mode, while a verb runs there. */
static SasOwnPlans pins_own;

/* What users' functions are given; NULL: nothing else than the pin. */
static char *pins_unpinned[lengthof(pins_settings)];

/* What ends the process instead of the transaction. */
static const char *const pins_fatal[] = {"exit_on_error", "transaction_timeout"};

static bool
pins_exists(const SasPin *pin)
{
	return GetConfigOption(pin->name, true, false) != NULL;
}

void
sas_store_reload_pins(void)
{
	for (int i = 0; i < lengthof(pins_settings); i++)
	{
		const char *reset;

		if (pins_unpinned[i] != NULL)
			pfree(pins_unpinned[i]);
		pins_unpinned[i] = NULL;
		if (pins_settings[i].worker_only || !pins_exists(&pins_settings[i]))
			continue;
		reset = GetConfigOptionResetString(pins_settings[i].name);
		if (reset != NULL && strcmp(reset, pins_settings[i].value) != 0)
			pins_unpinned[i] = MemoryContextStrdup(TopMemoryContext, reset);
	}
}

static void
pins_keep_from_users(void)
{
	for (int i = 0; i < lengthof(pins_fatal); i++)
	{
		struct config_generic *setting = sas_compat_setting(pins_fatal[i]);

		if (setting != NULL && setting->context == PGC_USERSET)
			setting->context = PGC_SUSET;
	}
}

void
sas_store_pin_settings(void)
{
	/* its settings exist once it is loaded */
	load_file("$libdir/plpgsql", false);
	for (int i = 0; i < lengthof(pins_settings); i++)
		if (pins_exists(&pins_settings[i]))
			SetConfigOption(pins_settings[i].name, pins_settings[i].value, PGC_SUSET, PGC_S_SESSION);
	pins_keep_from_users();
}

void
sas_store_unpin_settings(void)
{
	for (int i = 0; i < lengthof(pins_settings); i++)
		if (pins_unpinned[i] != NULL)
			(void) set_config_option(pins_settings[i].name, pins_unpinned[i], PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static void
pins_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

int
sas_store_pin_plans(void)
{
	int			level = 0;

	for (int i = 0; i < lengthof(pins_plans); i++)
	{
		const SasPlanPin *pin = &pins_plans[i];

		if (pin->value == PINS_AS_IT_IS || *pin->now == (pin->value == PINS_ON))
			continue;
		if (level == 0)
			level = NewGUCNestLevel();
		pins_set(pin->name, pin->value == PINS_ON ? "on" : "off");
	}
	return level;
}

void
sas_store_unpin_plans(int level)
{
	if (level != 0)
		AtEOXact_GUC(true, level);
}

SasOwnPlans
sas_store_note_plans(void)
{
	SasOwnPlans before = pins_own;

	StaticAssertStmt(lengthof(pins_plans) <= 32, "a bit for each");
	pins_own.noted = true;
	pins_own.cache_mode = plan_cache_mode;
	pins_own.on = 0;
	for (int i = 0; i < lengthof(pins_plans); i++)
		pins_own.on |= (uint32) *pins_plans[i].now << i;
	return before;
}

void
sas_store_forget_plans(SasOwnPlans before)
{
	pins_own = before;
}

void
sas_store_own_plans(void)
{
	static const char *const modes[] = {"auto", "force_generic_plan", "force_custom_plan"};

	if (!pins_own.noted)
		return;
	if (plan_cache_mode != pins_own.cache_mode)
		pins_set("plan_cache_mode", modes[pins_own.cache_mode]);
	for (int i = 0; i < lengthof(pins_plans); i++)
	{
		bool		own = (pins_own.on >> i) & 1;

		if (*pins_plans[i].now != own)
			pins_set(pins_plans[i].name, own ? "on" : "off");
	}
}
