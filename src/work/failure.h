/* SPDX-License-Identifier: PostgreSQL */
/*
 * failure.h: the cause of a failure, as it is stored and as the server log shows it.
 */
#ifndef SAS_WORK_FAILURE_H
#define SAS_WORK_FAILURE_H

#include "store/store.h"

/*
 * A problem object with message, DETAIL, HINT and the first lines of CONTEXT,
 * each of limited size.  The context ends before the line that begins with
 * outermost, or that of a function in PL/pgSQL whose name does; it may be NULL.
 */
extern Jsonb *sas_work_failure_problem(const ErrorData *edata, const char *instance, const char *outermost);

/*
 * Writes "<what> failed: <title>" to the server log, with all that the problem
 * object says.  A worker writes a limited number of such lines in a given time
 * and counts the others.
 */
extern void sas_work_failure_log(const char *what, Jsonb *problem);
extern void sas_work_failure_log_step(const SasStepId *id, const char *step, bool undo, int attempt, Jsonb *problem);

/* Does the verdict end a step, or its window? Only such failures are logged. */
extern bool sas_work_failure_is_final(const char *verdict);

#endif							/* SAS_WORK_FAILURE_H */
