/* SPDX-License-Identifier: PostgreSQL */
/* tick.h: shows in a worker's slot since when its tick has been running. */
#ifndef SAS_WORKER_TICK_H
#define SAS_WORKER_TICK_H

#include "worker/registry.h"

/* Called by a worker. open: once, before its first tick. */
extern void sas_worker_tick_open(void);
extern void sas_worker_tick_begin(void);
extern void sas_worker_tick_end(bool well, int in_flight, int64 memory);

/* Called through base/peers.h; NULL: that code has returned. */
extern void sas_worker_tick_user_code(const char *what);

/*
 * Called by any process: has that worker been in one tick for ten seconds,
 * without waiting for code of users?
 */
extern bool sas_worker_tick_stalled(const SasSlot *slot, int64 now_us);

#endif							/* SAS_WORKER_TICK_H */
