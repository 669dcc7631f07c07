/* SPDX-License-Identifier: PostgreSQL */
/*
 * actor.h: what an actor is, seen from the loop that runs it.
 *
 * An actor is a struct of functions.  The roof (sas.c) hands the structs to
 * worker/, which never includes an actor; an actor learns who it is from
 * sas_base_self and never includes worker/.
 */
#ifndef SAS_BASE_ACTOR_H
#define SAS_BASE_ACTOR_H

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
 * Who this process is.  worker_id counts from 1 since the start of shared
 * memory, boot is a random number chosen at that start: the pair never comes
 * back.  In a backend that is no worker worker_id is 0 and name is empty.
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
 * Set by a turn that finds the extension gone, or of a version that this
 * library does not know: the loop leaves quietly and the launcher forgets the
 * database until it is told to look again.
 */
extern bool sas_base_retire;

/*
 * Somebody cancelled the last turn (pg_cancel_backend): what it was at is no
 * worse for it, and is tried again without being counted.
 */
extern bool sas_base_tick_cancelled;

/* The answer of a turn. */
typedef struct SasTick
{
	bool		again;			/* there is more to do: do not sleep */
	int64		wake_in_ms;		/* -1: only the bell wakes */
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
} SasActorMethods;

#endif							/* SAS_BASE_ACTOR_H */
