/* SPDX-License-Identifier: PostgreSQL */
/* scheduler.h: the actor that carries out what has come due. */
#ifndef SAS_SCHEDULER_SCHEDULER_H
#define SAS_SCHEDULER_SCHEDULER_H

#include "base/actor.h"

extern const SasActorMethods sas_scheduler_methods;

#endif							/* SAS_SCHEDULER_SCHEDULER_H */
