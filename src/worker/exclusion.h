/* SPDX-License-Identifier: PostgreSQL */
/*
 * exclusion.h: excludes workers from a database that a statement needs for
 * itself.
 */
#ifndef SAS_WORKER_EXCLUSION_H
#define SAS_WORKER_EXCLUSION_H

/* In _PG_init: shared memory. */
extern void sas_worker_exclusion_install(void);

/*
 * From now on no worker starts in that database. Those that run are stopped,
 * and the call returns when they are gone (or after 10 s with a WARNING).
 * The exclusion ends with sas_worker_exclusion_end_all() or with this
 * process.
 */
extern void sas_worker_exclusion_begin(Oid dboid);
extern void sas_worker_exclusion_end_all(void);

/*
 * The same, of this database, beyond the end of the transaction: until
 * sas_worker_exclusion_end_all() or the end of this process.
 */
extern void sas_worker_exclusion_keep(void);

/* Ends the exclusions that last for a transaction. */
extern void sas_worker_exclusion_end_transaction(void);
extern bool sas_worker_exclusion_mine(void);

/* Does any session exclude workers from that database?  by: one that does, or 0. */
extern bool sas_worker_exclusion_active(Oid dboid);
extern int	sas_worker_excluded_by(Oid dboid);

#endif							/* SAS_WORKER_EXCLUSION_H */
