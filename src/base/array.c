/* SPDX-License-Identifier: PostgreSQL */
/*
 * array.c: arrays of one dimension, from and to their elements.
 */
#include "postgres.h"

#include "base/array.h"
#include "utils/lsyscache.h"

ArrayType *
sas_base_array(Datum *values, int n, Oid type)
{
	int16		length;
	bool		by_value;
	char		alignment;

	get_typlenbyvalalign(type, &length, &by_value, &alignment);
	return construct_array(values, n, type, length, by_value, alignment);
}

void
sas_base_elements(ArrayType *array, Datum **values, bool **nulls, int *n)
{
	int16		length;
	bool		by_value;
	char		alignment;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &alignment);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, alignment, values, nulls, n);
}

int
sas_base_compare_int64(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : (x > y);
}
