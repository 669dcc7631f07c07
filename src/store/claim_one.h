/* SPDX-License-Identifier: PostgreSQL */
/*
 * claim_one.h: claims a single call without the interpreter.
 *
 * On an idle system calls are claimed one at a time, and to start the
 * statements of _sas.claim_calls() takes most of the time between the commit
 * of a submit and the first byte.  The code here claims the first attempt at
 * a step that is one call and sees nothing but its run; everything else in
 * the lane is left to SQL.
 */
#ifndef SAS_STORE_CLAIM_ONE_H
#define SAS_STORE_CLAIM_ONE_H

#include "store/store.h"

/* What is cached of a step that is one call and whose templates see nothing but the run and its input. */
typedef struct SasPlainCall
{
	char	   *name;
	int			workflow_id;
	double		window_ms;		/* below 0: the setting sas.complete_in */
	Jsonb	   *request;		/* with its templates */
	Jsonb	   *policy;
	int			reads;			/* members of the input that the templates see; -1: all */
	text	  **members;
} SasPlainCall;

typedef struct SasSingleCall
{
	const SasPlainCall *call;
	SasStepId	id;
	TimestampTz rank;
	TimestampTz ready_at;
	pg_uuid_t	trace;
	text	   *run_key;		/* NULL: none */
	Jsonb	   *input;
	Jsonb	   *labels;
	TimestampTz created_at;
	TimestampTz deadline;

	/* once it is claimed */
	int64		lease_id;
	double		window_ms;
	TimestampTz complete_by;
	bool		begins;			/* it is the first of its run, which is set to running now */
} SasSingleCall;

typedef enum SasClaimOne
{
	SAS_CLAIM_ONE_NOTHING,		/* the lane is empty */
	SAS_CLAIM_ONE_FOUND,
	SAS_CLAIM_ONE_OTHER			/* more than one step, or one that SQL has to claim */
} SasClaimOne;

/*
 * Scans a lane from that low-water mark.  After SAS_CLAIM_ONE_FOUND either
 * sas_store_claim_one_take or sas_store_claim_one_release must follow.
 */
extern SasClaimOne sas_store_claim_one_find(int lane, TimestampTz mark, SasSingleCall *single);

/*
 * Claims what was found, for this worker: writes what _sas.claim_ready() would
 * write.  False, and nothing is written: another session has the row locked.
 * The caller wakes the supervisor for complete_by, and counts.
 */
extern bool sas_store_claim_one_take(SasSingleCall *single);
extern void sas_store_claim_one_release(void);

#endif							/* SAS_STORE_CLAIM_ONE_H */
