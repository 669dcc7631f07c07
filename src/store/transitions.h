/* SPDX-License-Identifier: PostgreSQL */
/*
 * transitions.h: the legal changes of state, of which a process keeps those
 * that it has looked up.
 */
#ifndef SAS_STORE_TRANSITIONS_H
#define SAS_STORE_TRANSITIONS_H

/* Is this change in _sas.transition? */
extern bool sas_store_is_legal(const char *subject, const char *from, const char *to);

/* The table has changed: every process looks again. */
extern void sas_store_announce_transitions(void);

#endif							/* SAS_STORE_TRANSITIONS_H */
