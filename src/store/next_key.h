/* SPDX-License-Identifier: PostgreSQL */
/*
 * next_key.h: the distinct values of a column of an index, one after the other.
 *
 * Rows are not looked at.  A value may be one that no visible row has: all of
 * its rows belong to transactions that have not ended, or were deleted.  A
 * query that asks for rows would pass all of them, and a role can have
 * millions; so this is for callers to whom a value too many does no harm.
 */
#ifndef SAS_STORE_NEXT_KEY_H
#define SAS_STORE_NEXT_KEY_H

/* Of that index of a table in schema _sas: a column, by its first columns. */
typedef struct SasKeySearch
{
	const char *table;
	const char *index;
	int			n;				/* columns before it that must be equal: 0 or 1 */
	RegProcedure equal;			/* for that column */
	Datum		prefix;
	RegProcedure greater;		/* for the column itself */
	Datum		after;
} SasKeySearch;

/* The smallest value behind "after"; false: there is none. Passed by value. */
extern bool sas_store_next_key(const SasKeySearch *search, Datum *found);

#endif							/* SAS_STORE_NEXT_KEY_H */
