/* SPDX-License-Identifier: PostgreSQL */
/*
 * clock.h: the one clock.
 *
 * Everything that is compared with an instant in a table asks
 * sas_base_clock_now(), so that a test can freeze it with sas.clock. Spans
 * inside one process are measured on the monotonic clock, which cannot be
 * set back.
 */
#ifndef SAS_BASE_CLOCK_H
#define SAS_BASE_CLOCK_H

#include "datatype/timestamp.h"

/*
 * clock_timestamp(), which does not go back within a transaction, or the
 * instant of sas.clock when it is set.
 */
extern TimestampTz sas_base_clock_now(void);

/*
 * Is it of the time that the clock has shown twice, because it was set back?
 * What was due at that instant may have been looked at when it was not due yet.
 */
extern bool sas_base_clock_shown_twice(TimestampTz at);

/* Milliseconds from now until that instant, rounded up; 0: it has passed; -1: it is infinity. */
extern int64 sas_base_clock_ms_until(TimestampTz at);

/* Microseconds on CLOCK_MONOTONIC. */
extern int64 sas_base_clock_monotonic_us(void);

/* sas.clock's storage and hooks, for settings.c. */
extern char *sas_base_clock_setting;
extern bool sas_base_clock_check(char **newval, void **extra, int source);
extern void sas_base_clock_assign(void *extra);

#endif							/* SAS_BASE_CLOCK_H */
