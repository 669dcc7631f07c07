/* SPDX-License-Identifier: PostgreSQL */
/*
 * secrets.h: which values are masked in what an agent answers.
 *
 * An agent that is read again keeps values that it had before, the newest of
 * them.  A call, and a connection of a watch, keeps those it was sent with
 * until its last answer is masked, however many changes came since.
 */
#ifndef SAS_WORK_SECRETS_H
#define SAS_WORK_SECRETS_H

#include "store/store.h"

/* Values of before that an agent keeps, and as many access tokens: a service may give a new one with each call. */
#define SAS_FORMER_SECRETS 64

/* The agent was read again: what it had is masked further on. */
extern void sas_work_secrets_carry(SasStoredAgent *agent, const SasStoredAgent *before);

/* The agent also sends this value, which no table has: an access token. The newest are masked. */
extern void sas_work_secrets_learn(SasStoredAgent *agent, const char *value);

/* The values that are sent now, copied into this context. NIL: there are none. */
extern List *sas_work_secrets_sent(const SasStoredAgent *agent, MemoryContext context);

/* The agent as masking has to see it: with its values and those that were sent. In the current context. */
extern const SasStoredAgent *sas_work_secrets_masking(const SasStoredAgent *agent, List *sent);

/* The files of its secrets are others than those that were read. */
extern bool sas_work_secrets_stale(const SasStoredAgent *agent);

#endif							/* SAS_WORK_SECRETS_H */
