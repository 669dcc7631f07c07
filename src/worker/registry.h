/* SPDX-License-Identifier: PostgreSQL */
/*
 * registry.h: which workers run in which database, in shared memory.
 */
#ifndef SAS_WORKER_REGISTRY_H
#define SAS_WORKER_REGISTRY_H

#include "datatype/timestamp.h"

#include "base/actor.h"

/* The short-lived process that checks whether a database has the extension. */
#define SAS_PROBE SAS_ACTORS

typedef enum SasSlotState
{
	SAS_SLOT_FREE,
	SAS_SLOT_STARTING,
	SAS_SLOT_RUNNING,
	SAS_SLOT_STOPPING,
	SAS_SLOT_EXITED
} SasSlotState;

typedef enum SasExit
{
	SAS_EXIT_FAILED,			/* an error, or no reason given */
	SAS_EXIT_ORDERLY,			/* asked to stop */
	SAS_EXIT_RETIRED,			/* found no extension that it knows */
	SAS_EXIT_PRESENT,			/* a probe's answers */
	SAS_EXIT_ABSENT
} SasExit;

#define SAS_USER_CODE_LEN 128

typedef struct SasSlot
{
	SasSlotState state;
	SasExit		exit;			/* when EXITED */
	int64		worker_id;
	Oid			dboid;
	int			actor;			/* a SasActor, or SAS_PROBE */
	int			index;			/* from 0, among the workers of that actor */
	int			pid;			/* 0 until it runs */
	bool		leader;
	int			in_flight;
	int64		memory;			/* bytes of requests and answers */
	TimestampTz started_at;
	int64		started_us;		/* the same, monotonic */
	TimestampTz last_activity_at;
	int64		invocation;		/* the task or step that it calls a function for (base/peers.h); 0: none */
	int64		invocation_until_us; /* when that should be over, monotonic */
	int64		tick_since_us;	/* begin of its tick, monotonic; 0: it is between two ticks */
	int64		tick_ended_us;	/* end of its last tick, monotonic */
	int			failed_ticks;	/* in a row, up to the last one */
	bool		has_worked;		/* a tick of it has ended well */
	char		user_code[SAS_USER_CODE_LEN];	/* the code of users that the tick waits for; empty: none */
	bool		long_call;		/* for more than a second */
	bool		lacks;			/* it has more to do than it gets done beside the long calls */
	bool		leaves_last;	/* it is the last one, and leaves what the owner of the long calls has to do */
	bool		dismissed;
	int64		interrupted;	/* the one for which it was interrupted last; 0: none */
	int64		interrupted_until_us; /* when that should be over, then */
	bool		unwritten;		/* has replies that it has not written yet */
	int64		calls_until_us; /* all its calls are over then, monotonic */
	int64		calls_ahead_us; /* by how much the clock was ahead of the monotonic one when it claimed last */
	int64		calls_jumped_us;	/* calls from before a jump of the clock are over then, monotonic */
	bool		end_now;		/* its next SIGTERM is no planned stop */
	Oid			function_owner; /* the role whose functions it calls now; InvalidOid: none */
	Oid			last_owner;		/* the last such role; InvalidOid: none yet */
	bool		several_owners; /* it has called functions of several roles */
	bool		waits_for_owner;	/* it has skipped steps of an owner who has all the workers allowed */
} SasSlot;

typedef struct SasLauncherState
{
	int			pid;			/* 0: none now */
	int			slots_missing;	/* workers wanted now that found no free process slot */
	TimestampTz missing_since;	/* 0 when none is missing */
	TimestampTz probed_at;		/* 0: never */
} SasLauncherState;

/* A slot whose workers failed that often in a row, each within a minute of its start. */
typedef struct SasTrouble
{
	Oid			dboid;			/* InvalidOid: free */
	int			actor;
	int			index;
	int			failures;
} SasTrouble;

/* For the hooks of shared memory: when it is requested, and when it is made. */
extern Size sas_worker_registry_shmem_size(void);
extern void sas_worker_registry_shmem_init(void); /* lends itself to base/peers.h too */

/*
 * For the launcher. reserve: the slot's number, or -1 when all are taken.
 * release: frees the slot of a process that is gone, and returns the reason
 * of its exit.
 */
extern int	sas_worker_registry_reserve(Oid dboid, int actor, int index, int64 *worker_id);
extern SasExit sas_worker_registry_release(int64 worker_id);
extern bool sas_worker_registry_stop(int64 worker_id);
extern void sas_worker_registry_dismiss(int64 worker_id); /* it leaves once it holds nothing */
extern void sas_worker_registry_forget_starting(void);
extern void sas_worker_registry_trouble(Oid dboid, int actor, int index, int failures); /* 0: none */

/*
 * For a worker. attach: false when it is not wanted any longer. The reason
 * of the exit is FAILED until it is set; set_exit may be called more than
 * once.
 */
extern bool sas_worker_registry_attach(int slot, int64 worker_id);
extern void sas_worker_registry_set_exit(SasExit reason);

/* For everybody.  snapshot: the slots that are not free, in palloc'd memory. */
extern int	sas_worker_registry_snapshot(SasSlot **slots);
extern SasLauncherState sas_worker_registry_launcher(void);
extern bool sas_worker_registry_has_workers(Oid dboid);

/* Slots of that database whose workers fail again and again, in palloc'd memory; without those whose worker has lived for a minute. */
extern int	sas_worker_registry_crash_loops(Oid dboid, SasTrouble **troubles);

/* SIGTERM to all workers of that database; how many. */
extern int	sas_worker_registry_terminate(Oid dboid);

#endif							/* SAS_WORKER_REGISTRY_H */
