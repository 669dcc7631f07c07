/* SPDX-License-Identifier: PostgreSQL */
/*
 * callable.h: functions of users by their names, and how one is called.
 */
#ifndef SAS_WORK_CALLABLE_H
#define SAS_WORK_CALLABLE_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/*
 * The function of that name, with its schema, which takes one jsonb and
 * returns one; raises when there is none that the role may call. In a
 * transaction.
 */
extern Oid	sas_work_callable(const char *name, Oid role);

/* The same for names, a line each. */
extern List *sas_work_callables(const char *names, Oid role);

/* Is there one that the role may call? In a transaction. */
extern bool sas_work_may_call(Oid role, const char *function);

/*
 * Calls one with the rights that hold now, under the search_path of its own
 * schema. The result, a jsonb null in the place of NULL, is copied into that
 * context. The caller has a GUC nest level that it rolls back.
 */
extern Jsonb *sas_work_call(Oid function, Jsonb *input, MemoryContext context);

/*
 * The same, in the session of another role, within its transaction.  What that
 * role has deferred there must not happen meanwhile (api/deferred.c).
 */
extern Jsonb *sas_work_call_beside(Oid function, Jsonb *input, MemoryContext context);

extern bool sas_work_is_beside;

/*
 * Calls them one after the other, each with what those before it wrote in
 * sight: a finalize step names several. The last result; of none a jsonb null.
 * The active snapshot is the caller's own.
 */
extern Jsonb *sas_work_call_all(List *functions, Jsonb *input, MemoryContext context);

#endif							/* SAS_WORK_CALLABLE_H */
