/* SPDX-License-Identifier: PostgreSQL */
/*
 * hold.h: a submit holds its workflow until its transaction ends.
 */
#ifndef SAS_STORE_HOLD_H
#define SAS_STORE_HOLD_H

/*
 * Nobody drops the workflow, or what a version of it names, until this
 * transaction ends.  Waits for a transaction that is dropping it; a scheduler
 * does not wait, and fails (55P03).  True: it was not held before, so what is
 * known of it may be out of date.
 */
extern bool sas_store_hold_workflow(int workflow_id);

/* Waits for the transactions that hold it; none comes to hold it until this transaction ends. */
extern void sas_store_await_submits(int workflow_id);

#endif							/* SAS_STORE_HOLD_H */
