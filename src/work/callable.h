/* SPDX-License-Identifier: PostgreSQL */
/*
 * callable.h: functions of users by their names.
 */
#ifndef SAS_WORK_CALLABLE_H
#define SAS_WORK_CALLABLE_H

/*
 * The function of that name, with its schema, which takes one jsonb and
 * returns one; raises when there is none that the role may call. In a
 * transaction.
 */
extern Oid	sas_work_callable(const char *name, Oid role);

/* Is there one that the role may call? In a transaction. */
extern bool sas_work_may_call(Oid role, const char *function);

#endif							/* SAS_WORK_CALLABLE_H */
