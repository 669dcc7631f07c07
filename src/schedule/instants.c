/* SPDX-License-Identifier: PostgreSQL */
/*
 * instants.c: when a spec happens.
 *
 * A cron pattern says times of the clock on the wall. First the times are
 * found on a calendar without zones; then each is looked up in the zone data
 * of the server. The rules where clocks change:
 *
 *	  a time that does not exist	is the first instant after the gap
 *	  a time that comes twice		is the first of the two
 *	  the hour begins with "*"		every hour that passes: only times that the
 *									clock shows, and both of those that come twice
 *
 * With the first two rules a later time on the wall never has an earlier
 * instant, so the search goes forward only, and several times within one gap
 * are one instant.
 *
 * The calendar repeats itself after 400 years, days of the week included. So a
 * search that finds nothing within them has proved that there is nothing.
 */
#include "postgres.h"

#include "schedule/spec.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#define SECONDS_OF_A_DAY 86400
#define UNIX_DAYS_AT_PG_EPOCH (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)
#define MONTHS_OF_THE_CALENDAR (400 * 12)
/* No search begins later; so no date overflows. */
#define LAST_UNIX_SECOND (INT64CONST(365) * 200000 * SECONDS_OF_A_DAY)
#define FIRST_UNIX_SECOND (-INT64CONST(365) * 4000 * SECONDS_OF_A_DAY)
/* No two clocks are further apart than that, and no change moves one further: see instants_of_wall(). */
#define MOST_APART_S (52 * 3600)

/* ----------------------------------------------------------------- calendar */

static int
instants_days_in_month(int year, int month)
{
	return day_tab[isleap(year)][month - 1];
}

/* The days of a month that the fields of weekdays name; first: the weekday of the 1st. */
static uint32
instants_weekdays(const SasScheduleSpec *spec, int first, int n_days)
{
	uint32		days = 0;

	for (int day = 1; day <= n_days; day++)
	{
		uint8		wanted = spec->weekdays[(first + day - 1) % 7];

		if (wanted & (1 << ((day - 1) / 7)) || (day + 7 > n_days && wanted & SAS_SCHEDULE_LAST_OF_MONTH))
			days |= 1U << day;
	}
	return days;
}

/* The weekday next to a day, within its month; 0: the month has no such day. */
static int
instants_nearest_weekday(int day, int first, int n_days)
{
	int			weekday;

	if (day == SAS_SCHEDULE_LAST_WEEKDAY)
		day = n_days;
	if (day > n_days)
		return 0;
	weekday = (first + day - 1) % 7;
	if (weekday == 6)
		return day > 1 ? day - 1 : day + 2;
	if (weekday == 0)
		return day < n_days ? day + 1 : day - 2;
	return day;
}

/* The days of a month, a bit for each. */
static uint32
instants_days(const SasScheduleSpec *spec, int year, int month)
{
	int			first = j2day(date2j(year, month, 1));
	int			n_days = instants_days_in_month(year, month);
	uint32		days = spec->days;
	uint32		weekdays;

	if (spec->last_day)
		days |= 1U << n_days;
	if (spec->nearest_weekday > 0)
		days |= 1U << instants_nearest_weekday(spec->nearest_weekday, first, n_days);
	weekdays = instants_weekdays(spec, first, n_days);
	if (spec->both_days)
		days &= weekdays;
	else if (spec->any_day)
		days = weekdays;
	else if (!spec->any_weekday)
		days |= weekdays;
	/* bits 1 to n_days */
	return days & (uint32) ((UINT64CONST(1) << (n_days + 1)) - 2);
}

/* The lowest bit from a number on; -1: there is none. */
static int
instants_bit_from(uint64 bits, int from)
{
	for (; from < 64; from++)
		if (bits >> from & 1)
			return from;
	return -1;
}

/* The first time of a day from that second on; -1: there is none. */
static int
instants_time_from(const SasScheduleSpec *spec, int from)
{
	for (int hour = from / 3600; (hour = hour < 24 ? instants_bit_from(spec->hours, hour) : -1) >= 0; hour++)
	{
		int			second_of_hour = hour == from / 3600 ? from % 3600 : 0;

		for (int minute = second_of_hour / 60; (minute = instants_bit_from(spec->minutes, minute)) >= 0; minute++)
		{
			int			second = instants_bit_from(spec->seconds, minute == second_of_hour / 60 ? second_of_hour % 60 : 0);

			if (second >= 0)
				return hour * 3600 + minute * 60 + second;
		}
	}
	return -1;
}

static bool
instants_has_year(const SasScheduleSpec *spec, int year)
{
	int			n = year - SAS_SCHEDULE_FIRST_YEAR;

	return spec->any_year || (year >= SAS_SCHEDULE_FIRST_YEAR && year <= SAS_SCHEDULE_LAST_YEAR && (spec->years[n / 64] >> (n % 64) & 1));
}

/* The first time on the wall later than that; both in seconds, as if the clock showed UTC. */
static bool
instants_next_wall(const SasScheduleSpec *spec, int64 after, int64 *wall)
{
	int64		from = after + 1;
	int64		unix_day = from >= 0 ? from / SECONDS_OF_A_DAY : -((-from + SECONDS_OF_A_DAY - 1) / SECONDS_OF_A_DAY);
	int			time = (int) (from - unix_day * SECONDS_OF_A_DAY);
	int			year;
	int			month;
	int			day;

	j2date((int) (unix_day + UNIX_EPOCH_JDATE), &year, &month, &day);
	for (int i = 0; i <= MONTHS_OF_THE_CALENDAR; i++)
	{
		if (spec->months >> month & 1 && instants_has_year(spec, year))
		{
			uint32		days = instants_days(spec, year, month);

			for (int first = day; (day = instants_bit_from(days, day)) >= 0; day++)
			{
				int			found = instants_time_from(spec, day == first ? time : 0);

				if (found >= 0)
				{
					*wall = (int64) (date2j(year, month, day) - UNIX_EPOCH_JDATE) * SECONDS_OF_A_DAY + found;
					return true;
				}
			}
		}
		day = 1;
		time = 0;
		if (++month > 12)
		{
			month = 1;
			year++;
		}
	}
	return false;
}

/* ---------------------------------------------------------------- the clock */

/* The change of the clock after an instant; false: there is none. */
static bool
instants_next_change(pg_tz *tz, pg_time_t at, long *before, pg_time_t *change, long *after)
{
	int			is_dst;
	int			found = pg_next_dst_boundary(&at, before, &is_dst, change, after, &is_dst, tz);

	if (found < 0)
	{
		struct pg_tm *tm = pg_localtime(&at, tz);

		*before = tm ? tm->tm_gmtoff : 0;
	}
	return found > 0;
}

/*
 * The instant of a time on the wall. The changes are walked from so far back
 * that the time has not come yet, whatever the clock shows there.
 */
static int64
instants_of_wall(pg_tz *tz, int64 wall)
{
	pg_time_t	at = wall - MOST_APART_S;
	pg_time_t	change;
	long		before;
	long		after;

	while (instants_next_change(tz, at, &before, &change, &after))
	{
		if (wall - before < change)
			return wall - before;
		if (wall - after < change)
			return change;
		at = change;
	}
	return wall - before;
}

/* Every hour that passes. */
static bool
instants_next_shown(const SasScheduleSpec *spec, pg_tz *tz, int64 after, int64 *next)
{
	pg_time_t	at = after;
	int64		later = 0;		/* 1: an instant at a change counts */

	for (;;)
	{
		pg_time_t	change;
		long		before;
		long		behind;
		bool		changes = instants_next_change(tz, at, &before, &change, &behind);
		int64		wall;

		if (!instants_next_wall(spec, at + before - later, &wall))
			return false;
		*next = wall - before;
		if (!changes || *next < change)
			return true;
		at = change;
		later = 1;
	}
}

static bool
instants_next_fixed(const SasScheduleSpec *spec, pg_tz *tz, int64 after, int64 *next)
{
	pg_time_t	at = after;
	pg_time_t	change;
	long		offset;
	long		behind;
	int64		wall;

	instants_next_change(tz, at, &offset, &change, &behind);
	wall = after + offset;
	do
	{
		if (!instants_next_wall(spec, wall, &wall))
			return false;
		*next = instants_of_wall(tz, wall);
	} while (*next <= after);
	return true;
}

/* ----------------------------------------------------------------- instants */

static int64
instants_floor(int64 value, int64 by)
{
	return value / by - (value % by < 0);
}

static bool
instants_next_of_period(const SasScheduleSpec *spec, TimestampTz anchor, TimestampTz after, TimestampTz *next)
{
	int64		period = spec->period_s * USECS_PER_SEC;
	int64		base = (TIMESTAMP_NOT_FINITE(anchor) ? -UNIX_DAYS_AT_PG_EPOCH * USECS_PER_DAY : anchor) + spec->offset_s * USECS_PER_SEC;

	/* both are far from the ends of int64 */
	*next = base + (instants_floor(after - base, period) + 1) * period;
	return true;
}

bool
sas_schedule_happens(const SasScheduleSpec *spec)
{
	int64		wall;

	return spec->period_s > 0 || instants_next_wall(spec, 0, &wall);
}

bool
sas_schedule_next(const SasScheduleSpec *spec, pg_tz *tz, TimestampTz anchor, TimestampTz after, TimestampTz *next)
{
	int64		second = instants_floor(after, USECS_PER_SEC) + UNIX_DAYS_AT_PG_EPOCH * SECONDS_OF_A_DAY;
	int64		found = 0;

	if (after == DT_NOEND || second > LAST_UNIX_SECOND)
		return false;
	if (second < FIRST_UNIX_SECOND)
		second = FIRST_UNIX_SECOND;
	if (spec->period_s > 0)
		return instants_next_of_period(spec, anchor, Max(after, (second - UNIX_DAYS_AT_PG_EPOCH * SECONDS_OF_A_DAY) * USECS_PER_SEC), next);
	if (spec->every_hour ? !instants_next_shown(spec, tz, second, &found) : !instants_next_fixed(spec, tz, second, &found))
		return false;
	*next = (found - UNIX_DAYS_AT_PG_EPOCH * SECONDS_OF_A_DAY) * USECS_PER_SEC;
	return true;
}

int
sas_schedule_newest(const SasScheduleSpec *spec, pg_tz *tz, TimestampTz anchor, TimestampTz after, TimestampTz until, int limit, TimestampTz *newest)
{
	TimestampTz at = after;
	TimestampTz next;
	int			n = 0;

	while (n < limit && sas_schedule_next(spec, tz, anchor, at, &next) && next <= until)
	{
		*newest = at = next;
		n++;
	}
	if (n < limit)
		return n;
	/* there are more than are counted: the last one is searched backwards, in spans that grow */
	for (int64 span = USECS_PER_MINUTE; until - span > at; span *= 4)
	{
		if (!sas_schedule_next(spec, tz, anchor, until - span, &next) || next > until)
			continue;
		do
			*newest = next;
		while (sas_schedule_next(spec, tz, anchor, *newest, &next) && next <= until);
		return n;
	}
	while (sas_schedule_next(spec, tz, anchor, at, &next) && next <= until)
		*newest = at = next;
	return n;
}
