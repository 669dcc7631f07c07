/* SPDX-License-Identifier: PostgreSQL */
/*
 * reconcile.h: brings the workers that run in line with those that should.
 */
#ifndef SAS_WORKER_RECONCILE_H
#define SAS_WORKER_RECONCILE_H

/*
 * One look at everything: notes who left, stops who is too many, starts who
 * is missing, and one probe.  Returns the milliseconds until the next look is
 * due without a wake-up, -1 for never.
 */
extern long sas_worker_reconcile(void);

#endif							/* SAS_WORKER_RECONCILE_H */
