/* SPDX-License-Identifier: PostgreSQL */
/*
 * planned.h: what a function worker does for schedules.
 */
#ifndef SAS_FUNCTION_PLANNED_H
#define SAS_FUNCTION_PLANNED_H

/* Submits one run, if there is one to submit: it may take as long as a function. True: there may be more. */
extern bool sas_function_planned_tick(void);

/* There may be one. */
extern bool sas_function_planned_waits(void);

#endif							/* SAS_FUNCTION_PLANNED_H */
