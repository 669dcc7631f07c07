/* SPDX-License-Identifier: PostgreSQL */
/*
 * work.h: inside the function worker only: what it has claimed, and what the
 * kinds of such work tell the machine that carries all of them out (machine.c).
 */
#ifndef SAS_FUNCTION_WORK_H
#define SAS_FUNCTION_WORK_H

#include "function/give_up.h"
#include "nodes/pg_list.h"
#include "utils/timestamp.h"
#include "work/invoke.h"

typedef struct SasFunctionKind SasFunctionKind;

/* What was claimed at once. Its context is deleted when nothing is left. */
typedef struct SasFunctionBatch
{
	MemoryContext context;
	int			left;
} SasFunctionBatch;

/* What has become of a work in the transaction that is open. */
typedef enum SasFunctionFate
{
	SAS_FATE_OPEN,				/* nothing yet; after the transaction: it is done again, by itself */
	SAS_FATE_NEXT,				/* made ready: the next transaction calls it, at once */
	SAS_FATE_DONE,				/* w->invoked says what it has come to */
	SAS_FATE_BACK,				/* not begun, or undone as if it had not been: it is given back */
	SAS_FATE_LOCKED,			/* another transaction holds its row: it is done again in a moment */
	SAS_FATE_LOST				/* its claim is over */
} SasFunctionFate;

/* What is done as an owner. The first member of what its kind knows of it. */
typedef struct SasFunctionWork
{
	SasFunctionKind *kind;
	SasFunctionBatch *batch;	/* NULL: it is of none */
	int64		task;			/* its name for other workers: base/peers.h */
	Oid			owner;
	const char *instance;		/* of its problem objects */
	const char *function;		/* whose time is noted; NULL: none */
	double		window_ms;
	int64		deadline_us;
	bool		solo;			/* in a transaction of its own: failed beside others, or known to be slow or dangerous */
	Jsonb	   *problem;		/* it fails with this, and nothing is called; NULL: it does not */
	SasAborts	aborts;
	int64		not_before_us;	/* 0: now */
	int64		pause_us;

	/* of the transaction that is open */
	SasFunctionFate fate;
	SasInvoked	invoked;
	bool		late;			/* its time was over when that was known */
	TimestampTz started_at;		/* 0: not called */
	TimestampTz arrived_at;
	bool		leaves;
} SasFunctionWork;

/*
 * A kind of work. The machine calls these, one transaction of a group at a time:
 *
 *	  looks, claim, claimed
 *	  due
 *	  check, call for each, called, write
 *	  leave for each, written
 */
struct SasFunctionKind
{
	int			most;			/* of one owner in a transaction */
	bool		hosts;			/* it looks although something that it has claimed can be done */

	/* Is there a reason to look for more? */
	bool		(*looks) (void);

	/* In a transaction: claims works, and returns them. They count when it has committed. */
	List	   *(*claim) (void);

	/* After that commit, n were claimed: true: there may be more. */
	bool		(*claimed) (int n);

	/* The last transaction of what is claimed may claim what comes next along; NULL: it may not. */
	bool		(*claims_along) (void);

	/* Adds to what is claimed what has come due here; may be NULL. */
	void		(*due) (void);

	/* In the transaction of the group: which claims are valid, and what the functions are called with. Sets fates. */
	void		(*check) (SasFunctionWork **group, int n);

	/* Calls it, within that time. */
	void		(*call) (SasFunctionWork *w, int64 timeout_ms);

	/* It was called, or failed without; it took so long. May be NULL. */
	void		(*called) (SasFunctionWork *w, int64 spent_us);

	/*
	 * Locks the claims, checks them again, and writes what became of the group.
	 * False: what a function did must not be kept, and the transaction is rolled
	 * back as a whole.
	 */
	bool		(*write) (SasFunctionWork **group, int n);

	/* After the commit: this worker has nothing more to do with it, unless it is added again. May be NULL. */
	void		(*leave) (SasFunctionWork *w);

	/*
	 * After the commit, or before something is claimed along: what the group took
	 * without these, for the n that were not given back.  May be NULL.
	 */
	void		(*written) (int64 spent_us, int n, bool was_slow);

	/* After a transaction that was rolled back: it was only too much for one, and each is done by itself; NULL: it was not. */
	bool		(*overran) (void);

	/* There may be more after a group, though nothing that is claimed is left; NULL: there may. */
	bool		(*more) (void);

	/* The worker leaves: what it holds beside its claims goes to others; may be NULL. */
	void		(*release) (void);

	/* When something comes due here, beside what is claimed; -1: never. May be NULL. */
	int64		(*wake_in_ms) (void);

	/* of the machine: what is claimed, oldest first */
	SasFunctionWork **works;
	int			n_works;
	int			room;
};

/* How long a worker that was woken lets steps gather. */
extern int64 sas_function_step_gather_us(void);

extern SasFunctionKind sas_function_steps;
extern SasFunctionKind sas_function_plans;
extern SasFunctionKind sas_function_items;
extern SasFunctionKind sas_function_tasks;

/* Steps, plans and items live in batches: an empty one, and a work of it with its first fields filled in. */
extern SasFunctionBatch *sas_function_batch_open(void);
extern void *sas_function_work_new(SasFunctionKind *kind, SasFunctionBatch *batch, Size size, Oid owner, double window_ms);

/* Adds work that is to be done. */
extern void sas_function_add(SasFunctionWork *w);

/* For memory that lives as long as the worker. */
extern MemoryContext sas_function_context;

/* call.c: calls those of a group whose claims are valid, and sets their fates; true when the last one was slow. */
extern bool sas_function_call_group(SasFunctionWork **group, int n);

/* What a function of an earlier transaction left is in memory that is gone. */
extern void sas_function_clear(SasFunctionWork *w);

/* Did it fail? NULL: no, or it was not done; else why. */
extern Jsonb *sas_function_error(const SasFunctionWork *w);

/* There may be a run of a schedule to submit. */
extern bool sas_function_plan_waits(void);

/* task_host.c, before the first tick. */
extern void sas_function_hosted_open(void);

#endif							/* SAS_FUNCTION_WORK_H */
