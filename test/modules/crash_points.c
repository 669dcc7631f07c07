/* SPDX-License-Identifier: PostgreSQL */
/*
 * crash_points.c: the server crashes at a named point of a worker of sas, for
 * t/497_crash_points.  Loaded after sas; it does nothing until it is told.
 *
 * Points are the begin and the end of each function of _sas that a worker
 * calls, and of each transaction of a worker: before its commit record, after
 * it and before anybody is woken, and after its abort.  A point's name begins
 * with the actor: "agent begin write_replies", "function committed".  A session
 * that names itself "points" (application_name) has them as well.
 *
 * The worker kills itself, so the postmaster ends all other processes, makes
 * shared memory anew and recovers.  What is armed is in shared memory: it is
 * gone with the crash.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

PG_MODULE_MAGIC;

#define POINTS_MAX 4096
#define POINT_LEN 96

typedef struct CrashPoints
{
	slock_t		lock;
	bool		recording;
	char		armed[POINT_LEN];	/* "": none */
	bool		stops;			/* the worker is only stopped there: SIGSTOP */
	int			countdown;
	int			n;
	char		seen[POINTS_MAX][POINT_LEN];
} CrashPoints;

static CrashPoints *points = NULL;
static shmem_request_hook_type next_request = NULL;
static shmem_startup_hook_type next_startup = NULL;
static needs_fmgr_hook_type next_needs = NULL;
static fmgr_hook_type next_fmgr = NULL;

/* "agent" and so on; "session": one whose application_name is points; NULL: another process */
static const char *
actor(void)
{
	const char *type = MyBgworkerEntry != NULL ? MyBgworkerEntry->bgw_type : "";

	if (MyBackendType == B_BACKEND && strcmp(application_name, "points") == 0)
		return "session";
	return strncmp(type, "sas ", 4) == 0 && strcmp(type, "sas probe") != 0 ? type + 4 : NULL;
}

static void
reach(const char *what, const char *name)
{
	char		point[POINT_LEN];
	bool		dies = false;
	bool		stops;

	if (points == NULL || actor() == NULL || (!points->recording && points->armed[0] == '\0'))
		return;
	snprintf(point, sizeof(point), "%s %s%s%s", actor(), what, name[0] ? " " : "", name);
	SpinLockAcquire(&points->lock);
	if (points->recording)
	{
		int			i = 0;

		while (i < points->n && strcmp(points->seen[i], point) != 0)
			i++;
		if (i == points->n && i < POINTS_MAX)
			strcpy(points->seen[points->n++], point);
	}
	dies = strcmp(points->armed, point) == 0 && --points->countdown == 0;
	stops = dies && points->stops;
	if (stops)
		points->armed[0] = '\0';
	SpinLockRelease(&points->lock);
	if (stops)
		kill(getpid(), SIGSTOP);
	else if (dies)
	{
		write_stderr("crash point: %s\n", point);
		kill(getpid(), SIGKILL);
		pause();
	}
}

static void
at_xact(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		reach("commits", "");
	else if (event == XACT_EVENT_COMMIT)
		reach("committed", "");
	else if (event == XACT_EVENT_ABORT)
		reach("aborted", "");
}

static bool
needs(Oid fn_oid)
{
	if (next_needs != NULL && next_needs(fn_oid))
		return true;
	return fn_oid >= FirstNormalObjectId && actor() != NULL && IsTransactionState() &&
		get_func_namespace(fn_oid) == get_namespace_oid("_sas", true);
}

static void
at_function(FmgrHookEventType event, FmgrInfo *flinfo, Datum *arg)
{
	if (next_fmgr != NULL)
		next_fmgr(event, flinfo, arg);
	if (event != FHET_ABORT && actor() != NULL)
	{
		char	   *name = get_func_name(flinfo->fn_oid);

		reach(event == FHET_START ? "begin" : "end", name != NULL ? name : "?");
	}
}

static void
request(void)
{
	if (next_request)
		next_request();
	RequestAddinShmemSpace(sizeof(CrashPoints));
}

static void
startup(void)
{
	bool		found;

	if (next_startup)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	points = ShmemInitStruct("crash points", sizeof(CrashPoints), &found);
	if (!found)
	{
		memset(points, 0, sizeof(CrashPoints));
		SpinLockInit(&points->lock);
	}
	LWLockRelease(AddinShmemInitLock);
}

void		_PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	next_request = shmem_request_hook;
	shmem_request_hook = request;
	next_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
	next_needs = needs_fmgr_hook;
	needs_fmgr_hook = needs;
	next_fmgr = fmgr_hook;
	fmgr_hook = at_function;
	/* the last that is registered is called first: before sas wakes anybody */
	RegisterXactCallback(at_xact, NULL);
}

PG_FUNCTION_INFO_V1(crash_record);
PG_FUNCTION_INFO_V1(crash_seen);
PG_FUNCTION_INFO_V1(crash_arm);
PG_FUNCTION_INFO_V1(crash_arm_stop);
PG_FUNCTION_INFO_V1(crash_armed);

/* crash_record(boolean): notes from now on which points are reached, or no longer */
Datum
crash_record(PG_FUNCTION_ARGS)
{
	points->recording = PG_GETARG_BOOL(0);
	PG_RETURN_VOID();
}

/* crash_seen(): the points that were reached, one a line */
Datum
crash_seen(PG_FUNCTION_ARGS)
{
	StringInfoData all;

	initStringInfo(&all);
	for (int i = 0; i < points->n; i++)
		appendStringInfo(&all, "%s\n", points->seen[i]);
	PG_RETURN_TEXT_P(cstring_to_text(all.data));
}

static void
arm(FunctionCallInfo fcinfo, bool stops)
{
	char	   *point = text_to_cstring(PG_GETARG_TEXT_PP(0));

	SpinLockAcquire(&points->lock);
	points->countdown = PG_GETARG_INT32(1);
	points->stops = stops;
	strlcpy(points->armed, point, POINT_LEN);
	SpinLockRelease(&points->lock);
}

/* crash_arm(point, n): the server crashes when it is reached for the n-th time; '': it does not */
Datum
crash_arm(PG_FUNCTION_ARGS)
{
	arm(fcinfo, false);
	PG_RETURN_VOID();
}

/* crash_arm_stop(point, n): the worker that reaches it for the n-th time stops there, until it gets SIGCONT */
Datum
crash_arm_stop(PG_FUNCTION_ARGS)
{
	arm(fcinfo, true);
	PG_RETURN_VOID();
}

/* crash_armed(): has it not happened yet? */
Datum
crash_armed(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(points->armed[0] != '\0');
}
