/* SPDX-License-Identifier: PostgreSQL */
/*
 * exclusion.h: keeps workers out of a database while a statement needs it alone.
 */
#ifndef SAS_WORKER_EXCLUSION_H
#define SAS_WORKER_EXCLUSION_H

/*
 * No worker starts in that database any more, those that are there are told
 * to leave, and the call returns when they are gone (or after 10 s with a
 * WARNING).  The hold ends with sas_worker_exclusion_end_all() or with this process.
 */
extern void sas_worker_exclusion_begin(Oid dboid);
extern void sas_worker_exclusion_end_all(void);

/*
 * The same, of this database, beyond the end of the transaction: until
 * sas_worker_exclusion_end_all() or the end of this process.
 */
extern void sas_worker_exclusion_keep(void);

/* Ends the holds that last for a transaction. */
extern void sas_worker_exclusion_end_transaction(void);
extern bool sas_worker_exclusion_mine(void);

/* Whether anybody holds that database. */
extern bool sas_worker_exclusion_active(Oid dboid);

#endif							/* SAS_WORKER_EXCLUSION_H */
