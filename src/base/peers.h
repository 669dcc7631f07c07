/* SPDX-License-Identifier: PostgreSQL */
/*
 * peers.h: what an actor may know of the other workers of its database.
 *
 * worker/registry has the answers and lends them through SasPeersMethods, so
 * that an actor need not include worker/.
 *
 * To find the leases of dead workers, call sas_base_peers_live() first and
 * read the leases afterwards. A lease of this boot whose worker_id is at
 * most *newest and not among the ids belongs to a dead worker; so does every
 * lease of another boot.
 */
#ifndef SAS_BASE_PEERS_H
#define SAS_BASE_PEERS_H

#include "base/actor.h"

/*
 * The workers of MyDatabaseId that are alive now, starting ones included.
 * Returns how many there are, and writes at most max of them; *newest is the
 * highest id that was assigned before the call.
 */
extern int	sas_base_peers_live(int64 *ids, int max, int64 *newest);

/* SIGTERM to that worker if it is alive and of this database: it gives nothing back. */
extern void sas_base_peers_terminate(int64 worker_id);

/*
 * Takes or keeps the lead of that actor in this database; true: this worker
 * leads. A worker leads until it exits; then the others are woken. A session
 * that is no worker takes nothing: the result says whether there is no leader.
 */
extern bool sas_base_peers_lead(SasActor actor);

/*
 * A local call of a worker that has not come back in time.  task: above 0,
 * an infinite task; below 0, a step.
 */
typedef struct SasPeerInvocation
{
	int64		worker_id;
	int64		task;
} SasPeerInvocation;

/* A local call that takes more than a second. */
typedef struct SasPeerCall
{
	int64		worker_id;
	int64		task;
	Oid			owner;			/* for whom it is */
} SasPeerCall;

/* The task of a step, for the calls below: made from the request_id of its claim. */
extern int64 sas_base_peers_step(const unsigned char request_id[16]);

/*
 * This worker begins to work for that task, and should finish by then
 * (monotonic clock). No worker is woken: the leader finds it at its
 * interval.
 */
extern void sas_base_peers_begin_invocation(int64 task, int64 until_us);
extern void sas_base_peers_end_invocation(void);

/*
 * At commit: the worker that works for that task is interrupted (SIGINT), and
 * should finish within some seconds.  It obeys only while it works for that
 * task: a cancel may reach it a moment later, and then means nothing.
 */
extern void sas_base_peers_interrupt_at_commit(int64 task);

/* Does a worker of this database work for that task now? */
extern bool sas_base_peers_works_for(int64 task);

/* This worker was cancelled while it worked for that task: was it meant, and was it for an earlier task? */
typedef enum SasInterrupted
{
	SAS_INTERRUPTED_NOT,
	SAS_INTERRUPTED_MEANT,
	SAS_INTERRUPTED_STRAY
} SasInterrupted;

/* May be asked after its function has ended. */
extern SasInterrupted sas_base_peers_interrupted(int64 task);

/*
 * enter: this worker calls functions of that owner from here on, unless as
 * many other workers as allowed do so already (SAS_ANY_WORKERS: no limit).
 * leave: it no longer calls them, and the workers that wait for an owner are
 * woken.  wait: this worker waits for an owner, or no longer.  others: the
 * owners whose functions the other workers of this database call, one for each
 * of these workers.
 */
#define SAS_ANY_WORKERS 64

/* False: as many other workers call functions of that owner already. */
extern bool sas_base_peers_enter_owner(Oid owner, int64 most);
extern void sas_base_peers_leave_owner(void);

/*
 * The owner whose functions are left to the other workers, as this is the
 * last one that no long call has; or none. begins: this worker does not wait
 * for an owner until it says so again.
 */
extern Oid	sas_base_peers_leave_last(bool begins);

/* That owner has something to do: the launcher starts another function worker, if there may be more. */
extern void sas_base_peers_left_last(void);

/* others returns how many owners there are, at most max. */
extern void sas_base_peers_wait_for_owner(bool waits);
extern bool sas_base_peers_waits_for_owner(void);
extern int	sas_base_peers_other_owners(Oid *owners, int max);

/*
 * This worker is about to note when a reply arrived, and has not written it
 * yet; or it has written all of them.  Steps of a worker with unwritten
 * replies are not taken back because of the time: the reply may have arrived
 * in time.
 */
extern void sas_base_peers_set_unwritten(bool unwritten);

/* The workers of this database with unwritten replies, at most max of them. */
extern int	sas_base_peers_unwritten(int64 *ids, int max);

/*
 * All calls of this worker are over then, on the monotonic clock; 0: it has none. If it has just claimed one: by so
 * much the server's clock was ahead of that before the claim; else 0.
 */
extern void sas_base_peers_hold_calls(int64 until_us, int64 ahead_us);

/*
 * The workers of this database, at most max of them, with calls that may have time left although the
 * clock says otherwise: it has jumped ahead since they were claimed.
 */
extern int	sas_base_peers_holding(int64 *ids, int max);

/*
 * The workers of this database that should have finished by now, at most max
 * of them. *next_us: when the next one should; 0: none works.
 */
extern int	sas_base_peers_overdue(SasPeerInvocation *invocations, int max, int64 *next_us);

/*
 * This worker waits for code of users: what names it. A call of more than a
 * second is no longer counted among the workers that others may wait for.
 */
extern void sas_base_peers_begin_user_code(const char *what);
extern void sas_base_peers_end_user_code(void);

/* Fills calls with the calls of this database's workers that take long, at most max. */
extern int	sas_base_peers_long_calls(SasPeerCall *calls, int max);

/*
 * Is each other function worker of this database in such a call, so that this one is all that is left?
 */
extern bool sas_base_peers_only_free(void);

/* This worker has too much to do: the launcher starts another function worker, if there may be more; or no longer. */
extern void sas_base_peers_lack(bool lacks);

/*
 * How many workers of this database have been in one tick for ten seconds
 * without waiting for code of users.
 */
extern int	sas_base_peers_stalled(void);

typedef struct SasPeersMethods
{
	int			(*live) (int64 *ids, int max, int64 *newest);
	void		(*terminate) (int64 worker_id);
	bool		(*lead) (SasActor actor);
	void		(*invocation) (int64 task, int64 until_us); /* task 0: none */
	void		(*interrupt) (int64 task);
	bool		(*works_for) (int64 task);
	SasInterrupted (*interrupted) (int64 task);
	bool		(*enter_owner) (Oid owner, int64 most);
	void		(*leave_owner) (void);
	Oid			(*leave_last) (bool begins);
	void		(*left_last) (void);
	void		(*wait_for_owner) (bool waits);
	bool		(*waits_for_owner) (void);
	int			(*other_owners) (Oid *owners, int max);
	void		(*set_unwritten) (bool unwritten);
	int			(*unwritten) (int64 *ids, int max);
	void		(*hold_calls) (int64 until_us, int64 ahead_us);
	int			(*holding) (int64 *ids, int max);
	int			(*overdue) (SasPeerInvocation *invocations, int max, int64 *next_us);
	void		(*user_code) (const char *what);	/* NULL: that code has returned */
	int			(*long_calls) (SasPeerCall *calls, int max);
	bool		(*only_free) (void);
	void		(*lack) (bool lacks);
	int			(*stalled) (void);
} SasPeersMethods;

/* By worker/, when shared memory is made; without them, the functions above do nothing. */
extern void sas_base_peers_set_methods(const SasPeersMethods *methods);

#endif							/* SAS_BASE_PEERS_H */
