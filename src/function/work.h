/* SPDX-License-Identifier: PostgreSQL */
/*
 * work.h: inside the function worker only: what it has claimed, and what that
 * has come to.
 */
#ifndef SAS_FUNCTION_WORK_H
#define SAS_FUNCTION_WORK_H

#include "function/give_up.h"
#include "store/store.h"
#include "work/invoke.h"

typedef struct SasFunctionBatch SasFunctionBatch;

typedef struct SasFunctionWork
{
	SasFunctionBatch *batch;
	SasClaimedFunction *step;
	int64		deadline_us;
	bool		solo;			/* failed beside others, or known to be slow or dangerous */
	SasAborts	aborts;
	bool		done;

	/* of the transaction that is open */
	SasInvoked	invoked;
	TimestampTz started_at;		/* 0: not called */
	const char *verdict;		/* NULL: none yet */
	const char *attempt_status;	/* status of the attempt's row; NULL: none */
	bool		lost;
	double		again_in_ms;
	TimestampTz arrived_at;
} SasFunctionWork;

/* What was claimed under one lease. */
struct SasFunctionBatch
{
	MemoryContext context;
	int64		lease_id;
	int			left;
	SasFunctionWork *work;
	int			n;
};

/*
 * In the transaction of that group: writes the replies of those that have a
 * verdict.  Those whose claim is over are lost.  Raises when the function of
 * one of these has done its work, since that must be rolled back.
 */
extern void sas_function_write_group(SasFunctionWork **group, int n_group);

#endif							/* SAS_FUNCTION_WORK_H */
