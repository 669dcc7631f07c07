/* SPDX-License-Identifier: PostgreSQL */
/* keep.h: stores only parts of an answer when the agent says so. */
#ifndef SAS_WORK_KEEP_H
#define SAS_WORK_KEEP_H

#include "store/store.h"

/*
 * The parts of an output that the agent lets be stored; the whole output if
 * the agent does not say.
 */
extern Jsonb *sas_work_keep(const SasStoredAgent *agent, Jsonb *output);

/* Does the agent say which parts are stored? */
extern bool sas_work_keeps_parts(const SasStoredAgent *agent);

/* The body of an output as text; NULL: it has none. */
extern char *sas_work_kept_text(Jsonb *output);

#endif							/* SAS_WORK_KEEP_H */
