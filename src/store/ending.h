/* SPDX-License-Identifier: PostgreSQL */
/*
 * ending.h: which runs another transaction is stopping at this moment.
 */
#ifndef SAS_STORE_ENDING_H
#define SAS_STORE_ENDING_H

/*
 * Sets ending[i] for a run that is stopped in a transaction that has not
 * committed yet, or has just committed.  Nothing is locked, and nothing is
 * waited for.  In the caller's transaction.
 */
extern void sas_store_find_ending(const int64 *run_ids, int n, bool *ending);

#endif							/* SAS_STORE_ENDING_H */
