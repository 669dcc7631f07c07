/* SPDX-License-Identifier: PostgreSQL */
/*
 * loop.h: the process of one actor in one database.
 */
#ifndef SAS_WORKER_LOOP_H
#define SAS_WORKER_LOOP_H

#include "base/actor.h"

/* From the roof, before anything runs. */
extern void sas_worker_set_methods(SasActor actor, const SasActorMethods *methods);

/* Entry points of background workers; the argument is the slot's number. */
extern PGDLLEXPORT void sas_worker_main(Datum arg);
extern PGDLLEXPORT void sas_worker_probe_main(Datum arg);

#endif							/* SAS_WORKER_LOOP_H */
