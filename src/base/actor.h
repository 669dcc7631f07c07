/* SPDX-License-Identifier: PostgreSQL */
/*
 * actor.h: what an actor is, seen from the loop that runs it.
 *
 * An actor is a struct of functions. The roof (sas.c) hands the structs to
 * worker/, which never includes an actor. An actor reads its identity from
 * sas_base_self and never includes worker/.
 */
#ifndef SAS_BASE_ACTOR_H
#define SAS_BASE_ACTOR_H

#include <signal.h>

#include "datatype/timestamp.h"

typedef enum SasActor
{
	SAS_SCHEDULER,
	SAS_AGENT,
	SAS_FUNCTION,
	SAS_SUPERVISOR
} SasActor;

#define SAS_ACTORS 4

/* "scheduler", "agent", "function", "supervisor" */
extern const char *sas_base_actor_name(SasActor actor);

/*
 * The identity of this process. worker_id counts from 1 since the start of
 * shared memory, boot is a random number chosen at that start: the pair is
 * never used twice. In a backend that is no worker, worker_id is 0 and name
 * is empty.
 */
typedef struct SasSelf
{
	int64		worker_id;
	int64		boot;
	SasActor	actor;
	char		name[64];		/* "agent 12345": actor and pid */
} SasSelf;

extern SasSelf sas_base_self;

/*
 * Set by a tick that finds the extension dropped, or in a version that this
 * library does not know. The loop then exits quietly, and the launcher
 * forgets the database until a request to probe it.
 */
extern bool sas_base_retire;

/*
 * This worker is one too many: its ticks take nothing more and hand back
 * what they can; the process ends when nothing is left.
 */
extern bool sas_base_leaving;

/*
 * The worker was asked to end (SIGTERM). A tick that begins now only gives
 * back what it can, and writes what has ended; sas_base_leaving is set, too.
 */
extern volatile sig_atomic_t sas_base_stopping;

/* Is code of users running, which a stop cancels? */
extern volatile sig_atomic_t sas_base_in_user_code;

/*
 * The last tick was cancelled (pg_cancel_backend), or gave up a lock that a
 * session holds: its work is tried again, and the failure is not counted.
 */
extern bool sas_base_tick_cancelled;

/* The last tick failed since the server lacked memory, disk or room in a table: what the tick tried may be right. */
extern bool sas_base_tick_lacked;

/* The error of the last tick that failed. */
typedef struct SasTickError
{
	int			sqlstate;
	char		message[512];	/* cut where it is longer */
} SasTickError;

extern SasTickError sas_base_tick_error;

/* When the last tick began that ended without an error; 0: there was none yet. */
extern TimestampTz sas_base_last_tick;

/* The result of a tick. */
typedef struct SasTick
{
	bool		again;			/* there is more to do: do not sleep */
	int64		wake_in_ms;		/* -1: only a wake-up */
} SasTick;

typedef struct SasActorMethods
{
	/*
	 * Once, connected to the database, no transaction open, a context that
	 * lives as long as the worker current.
	 */
	void		(*start) (void);

	/* One tick, in a context that is reset afterwards; may raise ERROR. */
	SasTick		(*tick) (void);

	/* A further descriptor to wait on until it is readable; NULL or -1: none. */
	int			(*pollfd) (void);

	/* At exit, whatever the reason but a crash; must not ereport; may be NULL. */
	void		(*stop) (void);

	/* How many calls or functions are under way, for sas.workers; may be NULL. */
	int			(*in_flight) (void);

	/* A worker that is asked to end ticks on until nothing is in flight, for a moment: it gives work back. */
	bool		gives_back;

	/* It has slept, and is to tick: how long it lets work gather before; may be NULL. */
	int64		(*gather_us) (void);

	/* Bytes of requests and answers that it holds, likewise; may be NULL. */
	int64		(*memory) (void);
} SasActorMethods;

#endif							/* SAS_BASE_ACTOR_H */
