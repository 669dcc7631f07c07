/* SPDX-License-Identifier: PostgreSQL */
/*
 * machine.h: carries out what a function worker has claimed, of all kinds.
 */
#ifndef SAS_FUNCTION_MACHINE_H
#define SAS_FUNCTION_MACHINE_H

#include "base/actor.h"
#include "function/work.h"

/* Once in a function worker, before the first tick. */
extern void sas_function_machine_open(void);

/* One tick of these kinds: at most one transaction with code of users for each. */
extern SasTick sas_function_machine_tick(SasFunctionKind *const *kinds, int n);

/* How much is claimed. */
extern int	sas_function_machine_count(SasFunctionKind *const *kinds, int n);

#endif							/* SAS_FUNCTION_MACHINE_H */
