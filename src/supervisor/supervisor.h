/* SPDX-License-Identifier: PostgreSQL */
/* supervisor.h: the actor that finds what is overdue or failed, and asks. */
#ifndef SAS_SUPERVISOR_SUPERVISOR_H
#define SAS_SUPERVISOR_SUPERVISOR_H

#include "base/actor.h"

extern const SasActorMethods sas_supervisor_methods;

#endif							/* SAS_SUPERVISOR_SUPERVISOR_H */
