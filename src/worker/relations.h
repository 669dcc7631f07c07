/* SPDX-License-Identifier: PostgreSQL */
/*
 * relations.h: all tables, views and sequences of sas.
 */
#ifndef SAS_WORKER_RELATIONS_H
#define SAS_WORKER_RELATIONS_H

/* Locks them (ACCESS EXCLUSIVE) until the end of the transaction, for a statement that drops or changes them. */
extern void sas_worker_lock_relations(void);

#endif							/* SAS_WORKER_RELATIONS_H */
