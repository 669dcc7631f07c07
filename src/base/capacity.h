/* SPDX-License-Identifier: PostgreSQL */
/*
 * capacity.h: how much of the machine a worker may use where nobody says so.
 */
#ifndef SAS_BASE_CAPACITY_H
#define SAS_BASE_CAPACITY_H

/*
 * How many infinite tasks one worker hosts: sas.watch_slots. If that is -1,
 * an eighth of the memory of the machine, or of the control group of the
 * server if that has less, is for the tasks of all agent workers of a
 * database.
 */
extern int	sas_base_capacity_watches(void);

#endif							/* SAS_BASE_CAPACITY_H */
