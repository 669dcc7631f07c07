/* SPDX-License-Identifier: PostgreSQL */
/*
 * failure.c: the cause of a failure, as it is stored and as the server log shows it.
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/context.h"
#include "mb/pg_wchar.h"
#include "work/failure.h"
#include "work/json.h"

/* bytes */
#define FAILURE_TEXT_MAX 1000
#define FAILURE_CONTEXT_LINES 5

/* An outage makes every call fail, so only this many lines are logged in this time. */
#define FAILURE_LINES 20
#define FAILURE_LINES_US (10 * INT64CONST(1000000))

static int64 failure_since_us = 0;
static int	failure_lines = 0;
static int64 failure_unlogged = 0;

/* ---------------------------------------------------------------- stored */

static char *
failure_clip(const char *text, int len)
{
	return pnstrdup(text, pg_mbcliplen(text, len, FAILURE_TEXT_MAX));
}

/* The first lines, up to the one that begins with outermost, or is that of a function in PL/pgSQL that does. */
static char *
failure_first_lines(const char *context, const char *outermost)
{
	const char *end = context;

	for (int line = 0; line < FAILURE_CONTEXT_LINES && *end != '\0'; line++)
	{
		const char *next = end + (line > 0 ? 1 : 0);
		const char *called = outermost != NULL ? sas_base_context_line(next, SAS_CONTEXT_PLPGSQL) : NULL;

		if (outermost != NULL && (strncmp(next, outermost, strlen(outermost)) == 0 ||
								  (called != NULL && strncmp(called, outermost, strlen(outermost)) == 0)))
			break;
		end = next + strcspn(next, "\n");
	}
	return end > context ? failure_clip(context, end - context) : NULL;
}

Jsonb *
sas_work_failure_problem(const ErrorData *edata, const char *instance, const char *outermost)
{
	JsonbParseState *state = NULL;
	const char *message = edata->message ? edata->message : "unknown error";
	char	   *context = edata->context ? failure_first_lines(edata->context, outermost) : NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	sas_work_json_push(&state, "type", psprintf("urn:sas:sqlstate:%s", unpack_sql_state(edata->sqlerrcode)));
	sas_work_json_push(&state, "title", failure_clip(message, strlen(message)));
	if (edata->detail != NULL)
		sas_work_json_push(&state, "detail", failure_clip(edata->detail, strlen(edata->detail)));
	if (edata->hint != NULL)
		sas_work_json_push(&state, "hint", failure_clip(edata->hint, strlen(edata->hint)));
	if (context != NULL)
		sas_work_json_push(&state, "context", context);
	sas_work_json_push(&state, "instance", instance);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* ---------------------------------------------------------------- logged */

/* May another line be written now? */
static bool
failure_may_log(void)
{
	int64		now = sas_base_clock_monotonic_us();

	if (failure_since_us == 0 || now - failure_since_us >= FAILURE_LINES_US)
	{
		if (failure_unlogged > 0)
			ereport(LOG,
					(errmsg("%lld more failures were not logged", (long long) failure_unlogged),
					 errhint("See \"sas.attempts\".")));
		failure_since_us = now;
		failure_lines = 0;
		failure_unlogged = 0;
	}
	if (failure_lines < FAILURE_LINES)
	{
		failure_lines++;
		return true;
	}
	failure_unlogged++;
	return false;
}

void
sas_work_failure_log(const char *what, Jsonb *problem)
{
	char	   *title = sas_work_json_string(problem, "title");
	char	   *detail = sas_work_json_string(problem, "detail");
	char	   *hint = sas_work_json_string(problem, "hint");
	char	   *context = sas_work_json_string(problem, "context");

	if (title == NULL || !failure_may_log())
		return;
	ereport(LOG,
			(errmsg("%s failed: %s", what, title),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0,
			 context ? errcontext_msg("%s", context) : 0));
}

void
sas_work_failure_log_step(const SasStepId *id, const char *step, bool undo, int attempt, Jsonb *problem)
{
	char	   *element = id->element > 0 ? psprintf("[%d]", id->element) : "";

	sas_work_failure_log(psprintf("run " INT64_FORMAT " %sstep \"%s%s\" attempt %d", id->run_id, undo ? "undo of " : "", step, element, attempt), problem);
}

bool
sas_work_failure_is_final(const char *verdict)
{
	return strcmp(verdict, "permanent") == 0 || strcmp(verdict, "transient") == 0;
}
