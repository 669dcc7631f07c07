/* SPDX-License-Identifier: PostgreSQL */
/*
 * ready_walk.h: how far a look at all ready steps of an owner in a lane has come.
 *
 * A look that finds the end at once is not remembered, so that the next one
 * begins at the first step again.  One that does not goes on in the next tick,
 * and then only to the steps that have come since, for a while.  An abort
 * forgets all of them, since what they have passed is there again.
 */
#ifndef SAS_STORE_READY_WALK_H
#define SAS_STORE_READY_WALK_H

#include "store/ready_index.h"

/* A tick begins.  What the last one did not go on with is forgotten: nobody looks there any more. */
extern void sas_store_ready_walks_begin(void);

/* Where it goes on; false: with the first step. */
extern bool sas_store_ready_walk_from(int lane, Oid owner, SasReadyPlace *at);

/* All steps up to that one were looked at; ended: there are none behind it. */
extern void sas_store_ready_walk_to(int lane, Oid owner, const SasReadyPlace *at, bool ended);

/* Has this tick left one that has not come to its end? */
extern bool sas_store_ready_walk_is_open(void);

#endif							/* SAS_STORE_READY_WALK_H */
