/* SPDX-License-Identifier: PostgreSQL */
/*
 * launcher.h: the process that starts all others.
 */
#ifndef SAS_WORKER_LAUNCHER_H
#define SAS_WORKER_LAUNCHER_H

/* In _PG_init, while shared_preload_libraries are loaded. */
extern void sas_worker_launcher_register(void);

/* The entry point of its process. */
extern PGDLLEXPORT void sas_worker_launcher_main(Datum arg);

#endif							/* SAS_WORKER_LAUNCHER_H */
