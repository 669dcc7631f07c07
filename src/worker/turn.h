/* SPDX-License-Identifier: PostgreSQL */
/*
 * turn.h: what a worker shows of its turn, and since when it has been in it.
 */
#ifndef SAS_WORKER_TURN_H
#define SAS_WORKER_TURN_H

#include "worker/registry.h"

/* For a worker. open: once, before its first turn. */
extern void sas_worker_turn_open(void);
extern void sas_worker_turn_begin(void);
extern void sas_worker_turn_end(int in_flight, int64 memory);

/* Lent to base/peers.h; NULL: that code has returned. */
extern void sas_worker_turn_user_code(const char *what);

/* For everybody: has that worker been in one turn for ten seconds, without waiting for code of users? */
extern bool sas_worker_turn_stalled(const SasSlot *slot, int64 now_us);

#endif							/* SAS_WORKER_TURN_H */
