/* SPDX-License-Identifier: PostgreSQL */
/*
 * spec.h: when a schedule runs: a cron pattern as OCPS 1.4 reads it, or "every ...".
 */
#ifndef SAS_SCHEDULE_SPEC_H
#define SAS_SCHEDULE_SPEC_H

#include "datatype/timestamp.h"
#include "pgtime.h"

/* Which of the weekdays of that name in a month: the first to the fifth, and the last. */
#define SAS_SCHEDULE_LAST_OF_MONTH 0x20
#define SAS_SCHEDULE_ANY_OF_MONTH 0x3f
#define SAS_SCHEDULE_FIRST_YEAR 1970
#define SAS_SCHEDULE_LAST_YEAR 2199
/* nearest_weekday of "LW" */
#define SAS_SCHEDULE_LAST_WEEKDAY 32

typedef struct SasScheduleSpec
{
	/* "every ...": 0 for a cron pattern */
	int64		period_s;
	int64		offset_s;
	/* a bit for each value */
	uint64		seconds;
	uint64		minutes;
	uint32		hours;
	uint32		days;
	uint32		months;
	uint8		weekdays[7];	/* from Sunday on: which of the month */
	uint64		years[4];		/* from SAS_SCHEDULE_FIRST_YEAR on */
	bool		any_year;
	bool		last_day;
	int			nearest_weekday;	/* to that day of the month; 0: not given */
	bool		any_day;		/* day of month is "*" */
	bool		any_weekday;
	bool		both_days;		/* "+": day of month and weekday, not one of them */
	bool		every_hour;		/* the hour begins with "*" */
} SasScheduleSpec;

typedef struct SasScheduleProblem
{
	int			field;			/* from 1; 0: the whole */
	const char *field_name;
	char		what[200];
	const char *hint;
	bool		unsupported;	/* it is no error in the text */
} SasScheduleProblem;

/* false: problem says what is wrong, and where. Nothing is allocated. */
extern bool sas_schedule_parse(const char *text, SasScheduleSpec *spec, SasScheduleProblem *problem);

/* false: there is no such day in 400 years, after which the calendar repeats itself. */
extern bool sas_schedule_happens(const SasScheduleSpec *spec);

/*
 * The first instant later than after; false: there is none. tz: of the clock on the wall. anchor: what "every ..."
 * counts from, DT_NOBEGIN for the epoch.
 */
extern bool sas_schedule_next(const SasScheduleSpec *spec, pg_tz *tz, TimestampTz anchor, TimestampTz after, TimestampTz *next);

/*
 * The last instant later than after and not later than until; how many there are, counted up to limit. 0: none.
 */
extern int	sas_schedule_newest(const SasScheduleSpec *spec, pg_tz *tz, TimestampTz anchor, TimestampTz after, TimestampTz until, int limit,
								TimestampTz *newest);

#endif							/* SAS_SCHEDULE_SPEC_H */
