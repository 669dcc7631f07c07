/* SPDX-License-Identifier: PostgreSQL */
/*
 * grow.c: arrays that grow one element at a time.
 */
#include "postgres.h"

#include "base/grow.h"
#include "utils/memutils.h"

void *
sas_base_grow(MemoryContext context, void *array, int n, int *room, Size size)
{
	int			more = Max(64, *room * 2);

	if (n < *room)
		return array;
	array = *room == 0 ? MemoryContextAlloc(context, size * more) : repalloc_huge(array, size * more);
	*room = more;
	return array;
}
