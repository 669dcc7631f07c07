/* SPDX-License-Identifier: PostgreSQL */
/*
 * schedules.h: the calls about schedules.
 */
#ifndef SAS_STORE_SCHEDULES_H
#define SAS_STORE_SCHEDULES_H

#include "utils/jsonb.h"
#include "utils/uuid.h"

/* worked, and the span until the next due time in *next_ms (-1: none) */
extern int	sas_store_fire_schedules(int quantity, int64 *next_ms);

/* Instants that function workers submit, and that nobody is at, are offered again; *next_ms as above. */
extern void sas_store_offer_plans(const int64 *live, int n_live, int64 newest, int64 *next_ms);

/* An instant that a function worker submits. */
typedef struct SasClaimedPlan
{
	int			schedule_id;
	char	   *name;
	pg_uuid_t	request_id;
	Oid			owner;
	double		window_ms;
} SasClaimedPlan;

/* NULL: there is none. */
extern SasClaimedPlan *sas_store_claim_plan(void);

/* done: what the submit returned; else error. Raises when the claim is over. */
extern void sas_store_end_plan(const SasClaimedPlan *plan, Jsonb *done, int sqlstate, Jsonb *error);
extern void sas_store_put_back_plan(const SasClaimedPlan *plan);

#endif							/* SAS_STORE_SCHEDULES_H */
