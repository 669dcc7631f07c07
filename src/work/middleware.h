/* SPDX-License-Identifier: PostgreSQL */
/*
 * middleware.h: the functions around a step.
 */
#ifndef SAS_WORK_MIDDLEWARE_H
#define SAS_WORK_MIDDLEWARE_H

#include "utils/array.h"
#include "utils/jsonb.h"

/* What a claimed step has in the place of its function when middleware applies to it. */
#define SAS_THROUGH_MIDDLEWARE "_sas.through_middleware"

/*
 * Calls each middleware as its own owner, and what they are around as the
 * owner of the run, whose rights hold now. in_worker: the session is its own
 * as well. The input and the result are told in middleware.c. The active
 * snapshot is the caller's own, and so is the GUC nest level.
 */
extern Jsonb *sas_work_through_middleware(Oid owner, Jsonb *input, bool in_worker, MemoryContext context);

/*
 * What a function of a middleware returned: nothing, which is an empty object,
 * or an object with no other keys than these; raises for anything else.
 */
extern Jsonb *sas_work_middleware_answer(const char *middleware, Jsonb *answer, ArrayType *keys);

#endif							/* SAS_WORK_MIDDLEWARE_H */
