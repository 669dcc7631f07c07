/* SPDX-License-Identifier: PostgreSQL */
/*
 * middleware.h: the functions around a step.
 */
#ifndef SAS_WORK_MIDDLEWARE_H
#define SAS_WORK_MIDDLEWARE_H

#include "utils/array.h"
#include "utils/jsonb.h"

/* The function of a claimed step that middleware applies to. */
#define SAS_THROUGH_MIDDLEWARE "_sas.through_middleware"

/*
 * Calls each middleware as its own owner, and the step's function as the owner
 * of the run, whose current rights count. in_worker: session_user becomes that
 * role as well. The input and the result are described in middleware.c. The
 * active snapshot is the caller's own, and so is the GUC nest level.
 */
extern Jsonb *sas_work_through_middleware(Oid owner, Jsonb *input, bool in_worker, MemoryContext context);

/*
 * What a function of a middleware returned: nothing, which is an empty object,
 * or an object with no other keys than these; raises for anything else.
 */
extern Jsonb *sas_work_middleware_answer(const char *middleware, Jsonb *answer, ArrayType *keys);

#endif							/* SAS_WORK_MIDDLEWARE_H */
