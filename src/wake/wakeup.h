/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup.h: wakes sleeping workers and waiting sessions, at commit.
 *
 * A session collects what its transaction made ready.  It wakes the workers
 * once, when the transaction has committed and its rows are visible.  Without
 * shared memory (library not preloaded) every function does nothing.
 */
#ifndef SAS_WAKE_WAKEUP_H
#define SAS_WAKE_WAKEUP_H

#include "base/actor.h"
#include "datatype/timestamp.h"

/* For the hooks of shared memory: when it is requested, and when it is made. */
extern Size sas_wake_shmem_size(void);
extern void sas_wake_shmem_init(void);
extern void sas_wake_install(void); /* the transaction callback, once per server */

/*
 * At commit, in MyDatabaseId.  nudge: these look for work, and nothing is
 * announced: the supervisor has seen work that nobody may know of.  That
 * changes none of the counts below, so that the worker knows that its look is
 * unprompted (work/late.h).
 */
extern void sas_wake_actor_at_commit(SasActor actor, bool nudge);

/* At commit; counts for the lane; lane 0 wakes SAS_FUNCTION, others SAS_AGENT. */
extern void sas_wake_lane_at_commit(int lane, bool nudge);

/*
 * The same for one function step.  If that is all that this transaction has for
 * function workers, it goes to one of them, and the others are not woken
 * (hand_over.c).
 */
extern void sas_wake_step_at_commit(void);

/* Will this transaction announce function steps? */
extern bool sas_wake_steps_at_commit(void);

/*
 * It is about to claim: if it finds all, what it has announced up to now need
 * not be announced.  Else that is restored.
 */
extern int	sas_wake_withdraw_steps(void);
extern void sas_wake_restore_steps(int steps);

/* At commit: infinite tasks have items for function workers. */
extern void sas_wake_items_at_commit(bool nudge);

/*
 * At commit: something is due for the supervisor at that instant.  Wakes it
 * when it means to sleep longer.
 */
extern void sas_wake_due_at_commit(TimestampTz at);

/*
 * The leading supervisor reports until when it means to sleep.  It reports
 * DT_NOEND before it scans, so that a commit during the scan wakes it for
 * certain.
 */
extern void sas_wake_supervisor_sleeps_until(TimestampTz at);

/* What goes up when something has changed in this database. */
typedef enum SasWakeVersion
{
	SAS_WAKE_AGENTS,			/* agents */
	SAS_WAKE_STOPS,				/* some claims of calls are no longer valid: their calls are to be stopped */
	SAS_WAKE_WATCHES,			/* a task waits for a node, or there is news for a host of infinite tasks */
	SAS_WAKE_WATCHES_NUDGED		/* the same, as a nudge */
} SasWakeVersion;

#define SAS_WAKE_VERSIONS (SAS_WAKE_WATCHES_NUDGED + 1)

/*
 * At commit.  The version goes up before the agent workers are woken, and for
 * infinite tasks the function workers, so that a worker that wakes sees it.
 */
extern void sas_wake_version_at_commit(SasWakeVersion version);

/* Only for workers; to any other process, it always is the same. */
extern uint32 sas_wake_version(SasWakeVersion version);

/* When this session ends, for whatever reason, the supervisor is woken. */
extern void sas_wake_report_departure(void);

/* Goes up at each such end, in any database. */
extern uint32 sas_wake_departures(void);

/*
 * For the next half minute, changes in this database cause a NOTIFY
 * sas_change, at most two a second.
 */
extern void sas_wake_follow(void);

/* At commit: the callers of sas.wait() for this run. */
extern void sas_wake_run_at_commit(int64 run_id);

/*
 * At the end, by commit or by abort: everything of this database.  For a
 * session that locks rows, which workers then defer.  A worker that calls this
 * does not wake itself.
 */
extern void sas_wake_all_at_end(void);

/* Now: everything in that database, with all its lanes. */
extern void sas_wake_database(Oid dboid);

/* Now: every worker of that actor in that database. */
extern void sas_wake_actor(Oid dboid, SasActor actor);

/* Now: every other worker of that actor in this database. */
extern void sas_wake_others(SasActor actor);

/*
 * From now on wake-ups in MyDatabaseId set this worker's latch, until the
 * process exits.  A worker scans everything in its first tick, whatever was
 * counted before.
 */
extern void sas_wake_attach(SasActor actor);

/* How often this worker has been woken because something was announced: nudges do not count. */
extern uint32 sas_wake_count(void);

/*
 * How often this worker has been woken or nudged.  The loop reads it after it
 * has reset the latch and compares it before it sleeps: a wait within a tick
 * (for a lock, for a synchronous standby, in a function) resets the latch and
 * so hides a wake-up.
 */
extern uint32 sas_wake_latch_count(void);

/* The same without the steps that it alone was woken for. */
extern uint32 sas_wake_told_count(void);

/*
 * Function workers, and the steps that one of them is woken for (hand_over.c).
 *
 *	tick_over		a tick has ended
 *	may_be_slow		what it does now may take long: no more for it, and the others have what it has not looked for
 *	pass_on			the same, but it will be quick
 *	left_none		a claim that had read that count of lane 0 has committed, and left nothing behind
 *	steps_open		has anything come since that count of which nobody has said so?
 *	may_gather		it was woken for one alone, and no session waits: it may wait for others
 *	sleep			it is about to sleep. False: it was handed a step. nap_ms: then it calls sleep_on; -1: it need not
 *	sleep_on		false: it is to look
 */
extern void sas_wake_tick_over(void);
extern void sas_wake_may_be_slow(void);
extern void sas_wake_pass_on(void);
extern void sas_wake_left_none(uint32 seen);
extern bool sas_wake_steps_open(uint32 seen);
extern bool sas_wake_may_gather(void);
extern bool sas_wake_sleep(int *nap_ms);
extern bool sas_wake_sleep_on(int *nap_ms);

/*
 * A worker that begins a tick answers all wake-ups up to now.  Any process:
 * since when (monotonic) that worker has had one to answer; 0: it has none.
 */
extern void sas_wake_answer(void);
extern int64 sas_wake_unanswered_us(Oid dboid, int pid);

/*
 * How often there was work for a lane, or for the items of infinite tasks, in
 * this database.  Each worker stores the count that it read before it scanned,
 * and scans again when the count has changed.  So no worker can take a wake-up
 * away from another worker, or from another agent.  Agents whose numbers are
 * equal modulo SAS_WAKE_LANES share a count, which costs a needless scan.  Zero
 * in a session that is not attached.
 */
#define SAS_WAKE_LANES 4096
/* Of a lane; of the items. */
extern uint32 sas_wake_lane_count(int lane);
extern uint32 sas_wake_items_count(void);

/* Likewise, how often they were nudged. */
extern uint32 sas_wake_lane_nudges(int lane);
extern uint32 sas_wake_items_nudges(void);

/* Counts without waking anybody: for work that is left to others, before sas_wake_others(). */
extern void sas_wake_count_lane(int lane);
extern void sas_wake_count_items(void);

/*
 * From begin to end, or to an error or the end of the transaction, a wake-up
 * for this run sets MyLatch.  False: no entry is free; check every 100 ms
 * instead.
 */
extern bool sas_wake_wait_begin(int64 run_id);
extern void sas_wake_wait_end(void);

/*
 * How many wake-ups for this run there were, between begin and end.  Read it
 * before a check, and sleep only if it is the same: while the check waits for
 * a lock or a page, the server resets the latch.
 */
extern uint32 sas_wake_wait_told(void);

#endif							/* SAS_WAKE_WAKEUP_H */
