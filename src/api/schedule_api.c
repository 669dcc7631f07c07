/* SPDX-License-Identifier: PostgreSQL */
/*
 * schedule_api.c: the SQL-callable side of schedule/spec.h.
 */
#include "postgres.h"

#include "api/row.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "schedule/spec.h"

#define MOST_TIMES 10000

PG_FUNCTION_INFO_V1(sas_api_next_times);
PG_FUNCTION_INFO_V1(sas_api_check_spec);
PG_FUNCTION_INFO_V1(sas_api_next_instant);
PG_FUNCTION_INFO_V1(sas_api_newest_instant);
PG_FUNCTION_INFO_V1(sas_api_instants);

/* Names of IANA with a number that is no offset of their own making: see schedule_api_zone(). */
static bool
schedule_api_is_numbered_zone(const char *name)
{
	static const char *const names[] = {"EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "GMT0", "GMT+0", "GMT-0", "Etc/GMT0"};

	if (pg_strncasecmp(name, "Etc/GMT", 7) == 0 && (name[7] == '+' || name[7] == '-'))
		return true;
	for (int i = 0; i < lengthof(names); i++)
		if (pg_strcasecmp(name, names[i]) == 0)
			return true;
	return false;
}

/*
 * <+03>-03: an offset, by the name that PostgreSQL gives it, for SET timezone = 3.  By another name,
 * such as <+03>+03, it may be another one than was meant.
 */
static bool
schedule_api_is_offset(const char *name)
{
	pg_tz	   *tz = name[0] == '<' ? pg_tzset(name) : NULL;
	long		east;

	return tz != NULL && pg_get_timezone_offset(tz, &east) && strcmp(pg_get_timezone_name(pg_tzset_offset(-east)), name) == 0;
}

/*
 * The session's zone. Drivers also set rules of POSIX, such as GMT-03:00; one
 * without summer time gets the name of its offset.
 */
static const char *
schedule_api_session_zone(void)
{
	const char *name = pg_get_timezone_name(session_timezone);
	long		east;

	if (strpbrk(name, "0123456789") == NULL || schedule_api_is_numbered_zone(name) ||
		!pg_get_timezone_offset(session_timezone, &east))
		return name;
	return pg_get_timezone_name(pg_tzset_offset(-east));
}

/* NULL: that of the session. pg_tzset() also takes rules of POSIX, in which a typing error goes unnoticed; they have digits. */
static pg_tz *
schedule_api_zone(const char *name)
{
	pg_tz	   *tz;

	if (name == NULL)
		name = schedule_api_session_zone();
	tz = strlen(name) <= TZ_STRLEN_MAX &&
		(strpbrk(name, "0123456789") == NULL || schedule_api_is_numbered_zone(name) || schedule_api_is_offset(name)) ? pg_tzset(name) : NULL;
	if (tz == NULL || !pg_tz_acceptable(tz))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%.*s\" is unknown", pg_mbcliplen(name, strlen(name), 80), name),
				 errdetail("At /timezone."),
				 errhint("Write the name of a region, such as \"Europe/London\" or \"UTC\". See pg_timezone_names.")));
	return tz;
}

static void
schedule_api_parse(const char *text, SasScheduleSpec *spec)
{
	SasScheduleProblem problem;

	if (sas_schedule_parse(text, spec, &problem))
		return;
	ereport(ERROR,
			(errcode(problem.unsupported ? ERRCODE_FEATURE_NOT_SUPPORTED : ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("schedule \"%.*s\" is invalid: %s", pg_mbcliplen(text, strlen(text), 80), text, problem.what),
			 problem.field > 0 ? errdetail("At /spec, field %d (%s).", problem.field, problem.field_name) : errdetail("At /spec."),
			 errhint("%s", problem.hint)));
}

/* The spec and the zone of a call, its first two arguments. */
static pg_tz *
schedule_api_read(FunctionCallInfo fcinfo, SasScheduleSpec *spec)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the schedule is null"),
				 errdetail("At /spec."),
				 errhint("Write a cron pattern or \"every 15 min\".")));
	schedule_api_parse(text_to_cstring(PG_GETARG_TEXT_PP(0)), spec);
	return schedule_api_zone(PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1)));
}

static void
schedule_api_check_happens(const SasScheduleSpec *spec, const char *text)
{
	if (!sas_schedule_happens(spec))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("schedule \"%s\" never happens", text),
				 errdetail("At /spec: no year has such a day."),
				 errhint("For the last day of each month, write L as the day of month.")));
}

static TimestampTz
schedule_api_instant(FunctionCallInfo fcinfo, int n, TimestampTz otherwise)
{
	return PG_ARGISNULL(n) ? otherwise : PG_GETARG_TIMESTAMPTZ(n);
}

/* sas.next_times(spec, timezone, quantity, after) */
Datum
sas_api_next_times(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasScheduleSpec spec;
	pg_tz	   *tz = schedule_api_read(fcinfo, &spec);
	int			quantity = PG_ARGISNULL(2) ? 10 : PG_GETARG_INT32(2);
	TimestampTz at = schedule_api_instant(fcinfo, 3, sas_base_clock_now());

	if (quantity < 0 || quantity > MOST_TIMES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the quantity must be between 0 and %d", MOST_TIMES),
				 errdetail("At /quantity."),
				 errhint("Ask again from the last instant on, with \"after\".")));
	schedule_api_check_happens(&spec, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < quantity && sas_schedule_next(&spec, tz, DT_NOBEGIN, at, &at); i++)
	{
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, (Datum[]) {TimestampTzGetDatum(at)}, (bool[]) {false});
		CHECK_FOR_INTERRUPTS();
	}
	return (Datum) 0;
}

/* _sas.check_spec(spec, timezone): refuses them, or returns the name of the zone as its data has it. */
Datum
sas_api_check_spec(PG_FUNCTION_ARGS)
{
	SasScheduleSpec spec;
	pg_tz	   *tz = schedule_api_read(fcinfo, &spec);

	schedule_api_check_happens(&spec, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_TEXT_P(cstring_to_text(pg_get_timezone_name(tz)));
}

/* _sas.next_instant(spec, timezone, anchor, after) */
Datum
sas_api_next_instant(PG_FUNCTION_ARGS)
{
	SasScheduleSpec spec;
	pg_tz	   *tz = schedule_api_read(fcinfo, &spec);
	TimestampTz next;

	if (PG_ARGISNULL(3) || !sas_schedule_next(&spec, tz, schedule_api_instant(fcinfo, 2, DT_NOBEGIN), PG_GETARG_TIMESTAMPTZ(3), &next))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}

/* _sas.newest_instant(spec, timezone, anchor, after, until, most, OUT newest, OUT passed) */
Datum
sas_api_newest_instant(PG_FUNCTION_ARGS)
{
	SasScheduleSpec spec;
	pg_tz	   *tz = schedule_api_read(fcinfo, &spec);
	TimestampTz newest = 0;
	int			passed = 0;

	if (!PG_ARGISNULL(3) && !PG_ARGISNULL(4) && !PG_ARGISNULL(5))
		passed = sas_schedule_newest(&spec, tz, schedule_api_instant(fcinfo, 2, DT_NOBEGIN), PG_GETARG_TIMESTAMPTZ(3), PG_GETARG_TIMESTAMPTZ(4),
									 PG_GETARG_INT32(5), &newest);
	return sas_api_row(fcinfo, (Datum[]) {TimestampTzGetDatum(newest), Int32GetDatum(passed)}, (bool[]) {passed == 0, false});
}

/* _sas.instants(spec, timezone, anchor, after, until, most) */
Datum
sas_api_instants(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SasScheduleSpec spec;
	pg_tz	   *tz = schedule_api_read(fcinfo, &spec);
	TimestampTz at = schedule_api_instant(fcinfo, 3, DT_NOEND);
	TimestampTz until = schedule_api_instant(fcinfo, 4, DT_NOBEGIN);
	int			most = PG_ARGISNULL(5) ? 0 : PG_GETARG_INT32(5);

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < most && sas_schedule_next(&spec, tz, schedule_api_instant(fcinfo, 2, DT_NOBEGIN), at, &at) && at <= until; i++)
	{
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, (Datum[]) {TimestampTzGetDatum(at)}, (bool[]) {false});
		CHECK_FOR_INTERRUPTS();
	}
	return (Datum) 0;
}
