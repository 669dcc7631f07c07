/* SPDX-License-Identifier: PostgreSQL */
/*
 * reconcile.h: brings the workers that run in line with those that should.
 */
#ifndef SAS_WORKER_RECONCILE_H
#define SAS_WORKER_RECONCILE_H

/*
 * Compares the workers that run with those that should: notes which have
 * exited, stops those that are too many, starts those that are missing, and
 * one probe. Returns the milliseconds until the next tick without a wake-up,
 * -1 for never.
 */
extern long sas_worker_reconcile(void);

#endif							/* SAS_WORKER_RECONCILE_H */
