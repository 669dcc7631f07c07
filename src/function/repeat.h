/* SPDX-License-Identifier: PostgreSQL */
/*
 * repeat.h: what a function worker does for infinite tasks, beside steps.
 */
#ifndef SAS_FUNCTION_REPEAT_H
#define SAS_FUNCTION_REPEAT_H

#include "base/actor.h"

extern void sas_function_repeat_open(void);

/* At most one transaction for items, and one for a function that is called for ever. */
extern SasTick sas_function_repeat_tick(void);

/* deliver.c: items. True: there is more to do. */
extern void sas_function_deliver_open(void);
extern bool sas_function_deliver_tick(void);

/* When claimed items whose row was locked are tried again; -1: there are none. */
extern int64 sas_function_deliver_wake_in_ms(void);

#endif							/* SAS_FUNCTION_REPEAT_H */
