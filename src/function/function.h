/* SPDX-License-Identifier: PostgreSQL */
/* function.h: the agent worker that calls functions of this database. */
#ifndef SAS_FUNCTION_FUNCTION_H
#define SAS_FUNCTION_FUNCTION_H

#include "base/actor.h"

extern const SasActorMethods sas_function_methods;

#endif							/* SAS_FUNCTION_FUNCTION_H */
