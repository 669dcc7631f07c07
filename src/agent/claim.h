/* SPDX-License-Identifier: PostgreSQL */
/*
 * claim.h: calls are claimed, in a transaction of the store.
 */
#ifndef SAS_AGENT_CLAIM_H
#define SAS_AGENT_CLAIM_H

#include "nodes/pg_list.h"

/*
 * Up to quantities[i] calls of lanes[i]: a list of SasClaimedCall. plainly:
 * the only call of the only lane may be claimed the short way.
 */
extern List *sas_agent_claim(const int *lanes, const int *quantities, int n, bool plainly);

#endif							/* SAS_AGENT_CLAIM_H */
