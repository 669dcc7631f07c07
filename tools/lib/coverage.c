/*-------------------------------------------------------------------------
 *
 * coverage.c
 *	  What a process has executed, written as it ends: for tools/check_coverage
 *
 * It is linked into the extension that is measured, and into no other. gcov counts the lines of
 * C. For functions in SQL, each process appends lines to a file of SAS_CALLED:
 *
 *		FUNCTION LINE		a statement of PL/pgSQL that begins in this line of its body
 *		FUNCTION			a function in SQL that was called
 *
 * A call is what the server itself counts (track_functions), or runs with rights or settings of
 * the function (fmgr_hook). A function that the planner has put into a query is never called: it
 * counts if the planner has looked at it.
 *
 * SPDX-License-Identifier: PostgreSQL
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "plpgsql.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#define COVERAGE_LINES 1024

typedef struct CoverageFunction
{
	Oid			oid;			/* hash key */
	char	   *name;			/* NULL: not one of ours */
	bool		sql;			/* in SQL: counts when it was called */
	bool		called;
	uint8		lines[COVERAGE_LINES / 8];
} CoverageFunction;

extern void (*coverage_write) (void) __attribute__((weak));
extern void __gcov_dump(void);

static HTAB *coverage_functions = NULL;
static needs_fmgr_hook_type coverage_needs_before = NULL;
static fmgr_hook_type coverage_calls_before = NULL;

/* Looked up once in a process: names of functions do not change in tests. */
static CoverageFunction *
coverage_function(Oid oid)
{
	CoverageFunction *function;
	bool		found;
	HeapTuple	tuple;
	Form_pg_proc proc;
	char	   *name;

	if (coverage_functions == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(CoverageFunction)};

		coverage_functions = hash_create("coverage", 1024, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	function = hash_search(coverage_functions, &oid, HASH_ENTER, &found);
	if (found)
		return function;
	memset((char *) function + sizeof(Oid), 0, sizeof(CoverageFunction) - sizeof(Oid));
	name = format_procedure_extended(oid, FORMAT_PROC_INVALID_AS_NULL | FORMAT_PROC_FORCE_QUALIFY);
	if (name == NULL || (strncmp(name, "sas.", 4) != 0 && strncmp(name, "_sas.", 5) != 0))
		return function;
	function->name = MemoryContextStrdup(TopMemoryContext, name);
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	function->sql = proc->prolang == SQLlanguageId;
	/* the planner puts no other one into a query */
	function->called = function->sql && !proc->prosecdef && heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL);
	ReleaseSysCache(tuple);
	return function;
}

/* The planner and the executor ask this of each function that they meet. No hook is needed. */
static bool
coverage_meets(Oid oid)
{
	if (oid >= FirstNormalObjectId && IsTransactionState())
		coverage_function(oid);
	return coverage_needs_before != NULL && coverage_needs_before(oid);
}

/* The call of a function with SECURITY DEFINER or SET, which the hook above may not have met. */
static void
coverage_calls(FmgrHookEventType event, FmgrInfo *info, Datum *private)
{
	if (event == FHET_START && info->fn_oid >= FirstNormalObjectId)
	{
		CoverageFunction *function = coverage_function(info->fn_oid);

		function->called = function->sql;
	}
	if (coverage_calls_before != NULL)
		coverage_calls_before(event, info, private);
}

/* The server's own counts of this transaction are still in this process. */
static void
coverage_xact(XactEvent event, void *arg)
{
	HASH_SEQ_STATUS scan;
	CoverageFunction *function;

	if (coverage_functions == NULL || (event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_ABORT &&
									   event != XACT_EVENT_PRE_PREPARE && event != XACT_EVENT_PARALLEL_PRE_COMMIT))
		return;
	hash_seq_init(&scan, coverage_functions);
	while ((function = hash_seq_search(&scan)) != NULL)
		if (function->sql && !function->called)
			function->called = find_funcstat_entry(function->oid) != NULL;
}

static void
coverage_statement(PLpgSQL_execstate *estate, PLpgSQL_stmt *statement)
{
	CoverageFunction *function;

	if (!OidIsValid(estate->func->fn_oid) || statement->lineno < 0 || statement->lineno >= COVERAGE_LINES)
		return;
	function = coverage_function(estate->func->fn_oid);
	function->lines[statement->lineno / 8] |= 1 << statement->lineno % 8;
}

/* Two processes never have the same number at a time, and what is appended is short enough to be whole. */
static void __attribute__((destructor))
coverage_write_called(void)
{
	HASH_SEQ_STATUS scan;
	CoverageFunction *function;
	char		path[MAXPGPATH];
	FILE	   *file;

	if (coverage_functions == NULL || getenv("SAS_CALLED") == NULL)
		return;
	snprintf(path, sizeof(path), "%s/%d", getenv("SAS_CALLED"), (int) getpid());
	file = fopen(path, "a");
	if (file == NULL)
		return;
	hash_seq_init(&scan, coverage_functions);
	while ((function = hash_seq_search(&scan)) != NULL)
	{
		if (function->name == NULL)
			continue;
		if (function->called)
			fprintf(file, "%s\n", function->name);
		for (int line = 0; line < COVERAGE_LINES; line++)
			if (function->lines[line / 8] & 1 << line % 8)
				fprintf(file, "%s\t%d\n", function->name, line);
	}
	fclose(file);
	coverage_functions = NULL;
}

static void
coverage_write_all(void)
{
	coverage_write_called();
	__gcov_dump();
}

static void __attribute__((constructor))
coverage_begin(void)
{
	static PLpgSQL_plugin plugin = {.stmt_beg = coverage_statement};
	PLpgSQL_plugin **slot = (PLpgSQL_plugin **) find_rendezvous_variable("PLpgSQL_plugin");

	if (&coverage_write != NULL)
		coverage_write = coverage_write_all;
	*slot = &plugin;
	coverage_needs_before = needs_fmgr_hook;
	needs_fmgr_hook = coverage_meets;
	coverage_calls_before = fmgr_hook;
	fmgr_hook = coverage_calls;
	RegisterXactCallback(coverage_xact, NULL);
	pgstat_track_functions = TRACK_FUNC_ALL;
}
