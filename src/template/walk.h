/* SPDX-License-Identifier: PostgreSQL */
/*
 * walk.h
 *		A jsonb iterator that knows its position in the template.
 */
#ifndef SAS_TEMPLATE_WALK_H
#define SAS_TEMPLATE_WALK_H

#include "utils/jsonb.h"

typedef struct SasWalkFrame
{
	bool		object;
	bool		scalar;			/* the pseudo-array around a scalar template */
	const char *key;			/* of the current member; NULL before the first */
	int			key_len;
	int			index;			/* of the current element; -1 before the first */
} SasWalkFrame;

typedef struct SasWalk
{
	JsonbIterator *iterator;
	SasWalkFrame *frames;
	int			depth;			/* frames in use */
	int			room;
} SasWalk;

/* Begins a walk; each call of next returns what JsonbIteratorNext does, and keeps the way to it. */
extern void sas_template_walk(SasWalk *walk, Jsonb *template);
extern JsonbIteratorToken sas_template_walk_next(SasWalk *walk, JsonbValue *value);

/* JSON pointer (RFC 6901) to the last result of sas_template_walk_next(). */
extern char *sas_template_walk_pointer(const SasWalk *walk);

#endif							/* SAS_TEMPLATE_WALK_H */
