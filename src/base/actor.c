/* SPDX-License-Identifier: PostgreSQL */
/*
 * actor.c: the actors' names, and the identity of this process.
 */
#include "postgres.h"

#include "base/actor.h"

SasSelf		sas_base_self;
bool		sas_base_retire = false;
bool		sas_base_leaving = false;
volatile sig_atomic_t sas_base_stopping = false;
volatile sig_atomic_t sas_base_in_user_code = false;
bool		sas_base_tick_cancelled = false;
bool		sas_base_tick_lacked = false;
SasTickError sas_base_tick_error;
TimestampTz sas_base_last_tick = 0;

const char *
sas_base_actor_name(SasActor actor)
{
	static const char *const names[SAS_ACTORS] = {"scheduler", "agent", "function", "supervisor"};

	return (int) actor >= 0 && actor < SAS_ACTORS ? names[actor] : "unknown";
}
