/* SPDX-License-Identifier: PostgreSQL */
/*
 * request.h: what sessions and workers ask of the launcher.
 *
 * A request is a note in shared memory and a set latch; code that must not
 * fail may make one. Without a launcher it waits for the next one, which
 * reads everything anyway.
 */
#ifndef SAS_WORKER_REQUEST_H
#define SAS_WORKER_REQUEST_H

/* wake: the launcher looks at everything. */
extern void sas_worker_request_wake(void);
extern void sas_worker_request_rescan(void); /* databases came, went or changed their names */
extern void sas_worker_request_probe(Oid dboid); /* the extension may have come or gone */

/* For the launcher.  take: false when there is nothing; *all: probe every database. */
extern void sas_worker_request_serve(void); /* this process is the launcher from now on */
extern bool sas_worker_request_take(Oid *probes, int *nprobes, bool *all, bool *rescan);
extern void sas_worker_request_report(int slots_missing);
extern void sas_worker_request_probed(void);

#endif							/* SAS_WORKER_REQUEST_H */
