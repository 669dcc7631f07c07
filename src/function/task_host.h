/* SPDX-License-Identifier: PostgreSQL */
/*
 * task_host.h: inside the function worker only: the infinite tasks that the
 * worker hosts, and when each of them is due.
 */
#ifndef SAS_FUNCTION_TASK_HOST_H
#define SAS_FUNCTION_TASK_HOST_H

#include "function/work.h"
#include "lib/pairingheap.h"
#include "store/items.h"

typedef struct SasHostedTask
{
	SasWatchId	id;				/* the key of the table is its watch_id */
	SasFunctionWork work;		/* while it is due */
	char		instance[32];
	bool		due;			/* it is among what the machine is to do, and not in the heap */
	pairingheap_node node;		/* by due_us */
	int64		due_us;
	TimestampTz next_at;		/* it has a schedule, and is not called before; DT_NOEND: it has none */
	bool		slow;			/* it was, when it was called last, or was not called here */

	/* of the transaction that is open */
	SasIteration iteration;
	double		again_in_ms;	/* -1: it is not hosted here any longer */
} SasHostedTask;

/* The worker as a node; 0: not born yet. */
extern int64 sas_function_hosted_node;

/* NULL: it is not hosted here. */
extern SasHostedTask *sas_function_hosted_find(int64 watch_id);
extern int	sas_function_hosted_count(void);

/* It is due in so many milliseconds. */
extern void sas_function_hosted_set_due(SasHostedTask *task, double in_ms);

/* It is not hosted here any longer. */
extern void sas_function_hosted_forget(SasHostedTask *task);

/* Its schedule does not want it called yet; it is looked at again in so many milliseconds. */
extern bool sas_function_hosted_rests(const SasHostedTask *task, double *in_ms);

/* What the machine asks this kind of work for: see SasFunctionKind. */
extern bool sas_function_hosted_looks(void);
extern List *sas_function_hosted_claim(void);
extern bool sas_function_hosted_claimed(int n);
extern void sas_function_hosted_due(void);
extern bool sas_function_hosted_more(void);
extern void sas_function_hosted_release(void);
extern int64 sas_function_hosted_wake_in_ms(void);

#endif							/* SAS_FUNCTION_TASK_HOST_H */
