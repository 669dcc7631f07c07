/* SPDX-License-Identifier: PostgreSQL */
/*
 * give_up.h: inside the function worker only: the end of work with which
 * transactions abort as a whole.
 */
#ifndef SAS_FUNCTION_GIVE_UP_H
#define SAS_FUNCTION_GIVE_UP_H

#include "utils/jsonb.h"

typedef struct SasAborts
{
	int			tries;			/* transactions that aborted with the work */
	Jsonb	   *problem;		/* it is given up: it fails with this, and is not tried again; NULL: it is not */
} SasAborts;

/*
 * In the tick after the abort: counts it.  Gives the work up when it has been
 * tried often enough, or when less than half of its window is left.  The
 * problem is allocated in that context.  False: the failure could not be
 * written either, and the work is left to its complete-by.
 */
extern bool sas_function_count_abort(SasAborts *aborts, int64 deadline_us, double window_ms, const char *instance, MemoryContext context);

#endif							/* SAS_FUNCTION_GIVE_UP_H */
