/* SPDX-License-Identifier: PostgreSQL */
/*
 * sign.h: signatures of calls, by the option "sign" of their agent.
 */
#ifndef SAS_WORK_SIGN_H
#define SAS_WORK_SIGN_H

#include "store/store.h"
#include "transport/transport.h"

/*
 * Adds the signature to the headers of a call, in the current context.  The
 * signature covers the body, so this comes last before the call is sent.  key:
 * identifies the message, the same in each attempt; NULL: a random one is
 * made.  Returns NULL when that went well or the agent does not sign, else the
 * reason (a fragment without secrets).
 */
extern const char *sas_work_sign(SasCall *call, const SasStoredAgent *agent, const char *key);

#endif							/* SAS_WORK_SIGN_H */
