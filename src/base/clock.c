/* SPDX-License-Identifier: PostgreSQL */
/*
 * clock.c: the clock, and the setting that freezes it.
 */
#include "postgres.h"

#include <time.h>

#include "access/xact.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"

char	   *sas_base_clock_setting = NULL;

/* NULL while the clock runs. */
static TimestampTz *clock_frozen = NULL;

/* Both clocks run alike, unless this one is set; a millisecond is more than what they round. */
#define CLOCK_SET_BACK_US 1000

static TimestampTz clock_twice_from = 0;
static TimestampTz clock_twice_until = 0;

/*
 * Reads the clock, and notes whether it was set back since the last time. How
 * far it is ahead of the monotonic clock is at most its distance from what that
 * said before the reading, and at least that from what it said after it: the
 * process may have waited for a processor between the two.
 */
static TimestampTz
clock_read(void)
{
	static int64 least_ahead = PG_INT64_MIN;
	static int64 most_ahead;
	int64		before = sas_base_clock_monotonic_us();
	TimestampTz now = GetCurrentTimestamp();
	int64		after = sas_base_clock_monotonic_us();

	if (least_ahead != PG_INT64_MIN && now - before < least_ahead - CLOCK_SET_BACK_US)
	{
		/* set back again and again, it is one time */
		if (now > clock_twice_until + USECS_PER_MINUTE || now < clock_twice_from)
			clock_twice_from = now;
		clock_twice_until = Max(clock_twice_until, now + most_ahead - (now - after));
	}
	least_ahead = now - after;
	most_ahead = now - before;
	return now;
}

/*
 * A tick takes the timers that are due, and then asks each step whether its
 * time has come. A clock that went back in between would say no, and the timer
 * would be lost: so within a transaction it stands still instead.
 */
TimestampTz
sas_base_clock_now(void)
{
	static TimestampTz transaction = 0;
	static TimestampTz latest = 0;
	TimestampTz now;

	if (clock_frozen != NULL)
		return *clock_frozen;
	now = clock_read();
	if (!IsTransactionState())
		return now;
	if (transaction != GetCurrentTransactionStartTimestamp())
	{
		transaction = GetCurrentTransactionStartTimestamp();
		latest = now;
	}
	latest = Max(latest, now);
	return latest;
}

bool
sas_base_clock_shown_twice(TimestampTz at)
{
	return at >= clock_twice_from && at <= clock_twice_until;
}

int64
sas_base_clock_ms_until(TimestampTz at)
{
	TimestampTz now = sas_base_clock_now();

	if (TIMESTAMP_IS_NOEND(at))
		return -1;
	return at <= now ? 0 : (at - now) / 1000 + 1;
}

int64
sas_base_clock_monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

static bool
clock_parse(const char *text, TimestampTz *instant)
{
	char		buffer[MAXDATELEN + 1];
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	int			nf;
	int			dtype;
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	return ParseDateTime(text, buffer, sizeof(buffer), field, ftype, MAXDATEFIELDS, &nf) == 0 &&
		sas_compat_decode_timestamp(field, ftype, nf, &dtype, &tm, &fsec, &tz) &&
		dtype == DTK_DATE &&
		tm2timestamp(&tm, fsec, &tz, instant) == 0;
}

bool
sas_base_clock_check(char **newval, void **extra, int source)
{
	TimestampTz instant;

	if (*newval == NULL || **newval == '\0')
		return true;
	if (!clock_parse(*newval, &instant))
	{
		GUC_check_errdetail("The value is neither empty nor a date and time.");
		return false;
	}
	*extra = sas_compat_guc_malloc(sizeof(TimestampTz));
	if (*extra == NULL)
		return false;
	*(TimestampTz *) *extra = instant;
	return true;
}

void
sas_base_clock_assign(void *extra)
{
	clock_frozen = extra;
}
