/* SPDX-License-Identifier: PostgreSQL */
/*
 * sql_function.h: functions of users in SQL whose body is one expression.
 */
#ifndef SAS_WORK_SQL_FUNCTION_H
#define SAS_WORK_SQL_FUNCTION_H

#include "utils/jsonb.h"

/*
 * Evaluates the body of that function, in place of a call of it, with the
 * rights and under the search_path that hold now.  False: it has to be called.
 */
extern bool sas_work_sql_evaluate(Oid function, Jsonb *input, Datum *result, bool *isnull);

#endif							/* SAS_WORK_SQL_FUNCTION_H */
