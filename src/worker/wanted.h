/* SPDX-License-Identifier: PostgreSQL */
/*
 * wanted.h: which workers of a database are wanted.
 *
 * A function worker whose call is long is not counted among those that are
 * wanted, so another one is started beside it, up to
 * sas.function_workers_max.
 */
#ifndef SAS_WORKER_WANTED_H
#define SAS_WORKER_WANTED_H

#include "postgres.h"

#include "worker/databases.h"

/* How many workers of this actor the database has by the settings. */
extern int	sas_worker_n_wanted(const SasDatabase *database, int actor);

/*
 * Is this one of the workers of that number, or one that may take the place
 * of a function worker whose call is long, or one more where others lack it?
 */
extern bool sas_worker_is_wanted(SasDatabase *database, int actor, int index);

#endif							/* SAS_WORKER_WANTED_H */
