/* SPDX-License-Identifier: PostgreSQL */
/*
 * rights.h: what runs of a role may ask of an agent, cached.
 */
#ifndef SAS_STORE_RIGHTS_H
#define SAS_STORE_RIGHTS_H

#include "postgres.h"

/*
 * The answer of _sas.read_agent_right(): a all, s some, n nothing. A grant or
 * revoke that has committed counts at once.
 */
extern char sas_store_agent_right(Oid role, int agent_id);

/*
 * If a role, a membership or a level has changed: infinite tasks whose owner
 * has lost its right on their agent end.  In a transaction of the supervisor.
 */
extern void sas_store_check_watch_rights(void);

#endif							/* SAS_STORE_RIGHTS_H */
