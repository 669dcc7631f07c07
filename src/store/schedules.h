/* SPDX-License-Identifier: PostgreSQL */
/*
 * schedules.h: the calls about schedules.
 */
#ifndef SAS_STORE_SCHEDULES_H
#define SAS_STORE_SCHEDULES_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* worked, and the next due time in *next_due (DT_NOEND: none) */
extern int	sas_store_fire_schedules(int quantity, int64 most_us, TimestampTz *next_due);

/*
 * Offers instants again that a function worker is to submit and that no live
 * worker is submitting; *next_due as above.
 */
extern void sas_store_offer_plans(const int64 *live, int n_live, int64 newest, TimestampTz *next_due);

/* An instant of a schedule whose run a function worker submits. */
typedef struct SasClaimedPlan
{
	int			schedule_id;
	char	   *name;
	pg_uuid_t	request_id;
	Oid			owner;
	double		window_ms;
} SasClaimedPlan;

/* Claims the next instant; the claim is in that context. NULL: there is none. */
extern SasClaimedPlan *sas_store_claim_plan(MemoryContext context);

/* Is this claim valid?  It locks nothing. */
extern bool sas_store_valid_plan(const SasClaimedPlan *plan);

/*
 * Ends the claim. done: what the submit returned; NULL: see error. Returns
 * false when the claim is no longer valid, or the schedule has changed: the
 * caller rolls back what it submitted.
 */
extern bool sas_store_end_plan(const SasClaimedPlan *plan, Jsonb *done, int sqlstate, Jsonb *error);
extern void sas_store_put_back_plan(const SasClaimedPlan *plan);

#endif							/* SAS_STORE_SCHEDULES_H */
