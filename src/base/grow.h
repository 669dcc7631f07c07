/* SPDX-License-Identifier: PostgreSQL */
/*
 * grow.h: arrays that grow one element at a time.
 */
#ifndef SAS_BASE_GROW_H
#define SAS_BASE_GROW_H

/*
 * Makes room for one element after the first n: returns the array, which may
 * have moved. NULL and a room of 0: a new one, in this context. On an error,
 * nothing has changed.
 */
extern void *sas_base_grow(MemoryContext context, void *array, int n, int *room, Size size);

#endif							/* SAS_BASE_GROW_H */
