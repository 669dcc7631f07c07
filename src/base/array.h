/* SPDX-License-Identifier: PostgreSQL */
/*
 * array.h: arrays of one dimension, from and to their elements; sorted numbers.
 */
#ifndef SAS_BASE_ARRAY_H
#define SAS_BASE_ARRAY_H

#include "utils/array.h"

/* Without nulls. */
extern ArrayType *sas_base_array(Datum *values, int n, Oid type);

/* nulls may be NULL, if there must be none. */
extern void sas_base_elements(ArrayType *array, Datum **values, bool **nulls, int *n);

/* Compares two int64, for qsort() and bsearch(). */
extern int	sas_base_compare_int64(const void *a, const void *b);

#endif							/* SAS_BASE_ARRAY_H */
