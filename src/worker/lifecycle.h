/* SPDX-License-Identifier: PostgreSQL */
/*
 * lifecycle.h: the statements that change databases or the extension find no worker in the way.
 */
#ifndef SAS_WORKER_LIFECYCLE_H
#define SAS_WORKER_LIFECYCLE_H

/* This session does what no restore of a dump does: the workers may come back. */
extern void sas_worker_lifecycle_restored(void);

/* The launcher probes this database when the transaction has committed. */
extern void sas_worker_lifecycle_probe(void);

/* The utility hook and its transaction callback, once per server. */
extern void sas_worker_lifecycle_install(void);

#endif							/* SAS_WORKER_LIFECYCLE_H */
