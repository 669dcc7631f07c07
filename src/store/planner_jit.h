/* SPDX-License-Identifier: PostgreSQL */
/*
 * planner_jit.h: statements that read the views of sas are not compiled.
 */
#ifndef SAS_STORE_PLANNER_JIT_H
#define SAS_STORE_PLANNER_JIT_H

/* Once, when the library is loaded: from then on, in each session. */
extern void sas_store_planner_jit_install(void);

#endif							/* SAS_STORE_PLANNER_JIT_H */
