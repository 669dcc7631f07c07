/* SPDX-License-Identifier: PostgreSQL */
/*
 * large.h: when a large answer is evaluated, or written: see large.c.
 */
#ifndef SAS_AGENT_LARGE_H
#define SAS_AGENT_LARGE_H

typedef enum SasLargeWhen
{
	SAS_LARGE_NOW,
	SAS_LARGE_NEXT_TICK,
	SAS_LARGE_LATER				/* or never: none waits */
} SasLargeWhen;

extern void sas_agent_large_claimed(int64 at_us); /* calls, in this tick */

/* waits: a large answer is there. */
extern SasLargeWhen sas_agent_large_when(bool waits, int64 now_us);

/* One was evaluated, or written. */
extern void sas_agent_large_moved(int64 begun_us, int64 ended_us);
extern int64 sas_agent_large_wake_in_ms(void); /* -1: none waits for a time */

#endif							/* SAS_AGENT_LARGE_H */
