/* SPDX-License-Identifier: PostgreSQL */
/*
 * crew.h: brings the workers that run in line with those that should.
 */
#ifndef SAS_WORKER_CREW_H
#define SAS_WORKER_CREW_H

/*
 * One look at everything: notes who left, stops who is too many, starts who
 * is missing, and one probe.  Returns the milliseconds until the next look is
 * due without a wake-up, -1 for never.
 */
extern long sas_crew_tick(void);

#endif							/* SAS_WORKER_CREW_H */
