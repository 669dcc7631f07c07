/* SPDX-License-Identifier: PostgreSQL */
/* agent.h: the actor that makes HTTP calls. */
#ifndef SAS_AGENT_AGENT_H
#define SAS_AGENT_AGENT_H

#include "base/actor.h"

extern const SasActorMethods sas_agent_methods;

#endif							/* SAS_AGENT_AGENT_H */
