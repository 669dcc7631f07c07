/* SPDX-License-Identifier: PostgreSQL */
/*
 * wakeup.h: wakes sleeping workers and waiting sessions, at commit.
 *
 * A session marks what its transaction made ready; the marks are rung once,
 * when the transaction has committed and its rows can be seen.  Without shared
 * memory (library not preloaded) every function does nothing.
 */
#ifndef SAS_WAKE_WAKEUP_H
#define SAS_WAKE_WAKEUP_H

#include "base/actor.h"
#include "datatype/timestamp.h"

extern Size sas_wake_shmem_size(void);
extern void sas_wake_shmem_init(void);
extern void sas_wake_install(void); /* the transaction callback, once per server */

/* At commit, in MyDatabaseId. */
extern void sas_wake_actor_at_commit(SasActor actor);

/* At commit; counts for the lane; lane 0 rings SAS_FUNCTION, others SAS_AGENT. */
extern void sas_wake_lane_at_commit(int lane);

/* At commit: infinite tasks have items for function workers. */
extern void sas_wake_items_at_commit(void);

/*
 * At commit: something is due for the supervisor at that instant; it is rung
 * when it means to sleep longer.
 */
extern void sas_wake_due_at_commit(TimestampTz at);

/*
 * The leading supervisor tells until when it means to sleep: DT_NOEND before
 * it looks, so that what is committed while it looks rings it for certain.
 */
extern void sas_wake_supervisor_sleeps_until(TimestampTz at);

/*
 * At commit: agents have changed.  The version is counted up before the
 * agent workers are rung, so that one that wakes sees it.
 */
extern void sas_wake_agents_at_commit(void);
extern uint32 sas_wake_agents_version(void);

/*
 * At commit: hosts of infinite tasks should look (a task waits for a node, or
 * there is news about one).  The version is counted up before the agent and
 * function workers are rung.
 */
extern void sas_wake_watches_at_commit(void);
extern uint32 sas_wake_watches_version(void);

/*
 * When this session ends, however that is, the supervisor is rung; departures
 * counts such ends in all databases.
 */
extern void sas_wake_report_departure(void);
extern uint32 sas_wake_departures(void);

/*
 * At commit: some claims of calls hold no more, and their calls are to be
 * stopped.  Counted up before the agent workers are rung, too.
 */
extern void sas_wake_stops_at_commit(void);
extern uint32 sas_wake_stops_version(void);

/* At commit: the callers of sas.wait() for this run. */
extern void sas_wake_run_at_commit(int64 run_id);

/*
 * At the end, by commit or by abort, ring everything of this database: for a
 * session that locks rows which workers then set aside.  A worker that marks
 * this does not wake itself.
 */
extern void sas_wake_all_at_end(void);

/* Now: everything in that database, with all its lanes. */
extern void sas_wake_database(Oid dboid);

/* Now: every worker of that actor in that database. */
extern void sas_wake_actor(Oid dboid, SasActor actor);

/* Now: every other worker of that actor in this database. */
extern void sas_wake_others(SasActor actor);

/*
 * This worker's latch hears the bell of MyDatabaseId until the process exits.
 * A worker looks everywhere in its first turn, whatever was counted before.
 */
extern void sas_wake_attach(SasActor actor);

/*
 * How often this worker has been rung; read after its latch was reset and
 * compared before it sleeps.  A wait within a turn (for a lock, for a
 * synchronous standby, in a function) resets the latch that tells of a ring.
 */
extern uint32 sas_wake_count(void);

/*
 * How often a lane, and the items of infinite tasks, were rung in this database.
 * Each worker keeps the number that it read before it looked, and looks again
 * when it is another one: no worker can take a ring away from another one, or
 * from another agent.  Agents whose numbers are alike modulo SAS_WAKE_LANES
 * share a count, which costs a needless look.  Zero in a session that is not
 * attached.
 */
#define SAS_WAKE_LANES 4096
extern uint32 sas_wake_lane_count(int lane);
extern uint32 sas_wake_items_count(void);

/*
 * Counts without waking anybody: work may be left for others, which
 * sas_wake_others() wakes.
 */
extern void sas_wake_count_lane(int lane);
extern void sas_wake_count_items(void);

/*
 * MyLatch is set when this run is marked, from begin until end, error or the
 * end of the transaction.  False: no place free, look every 100 ms instead.
 */
extern bool sas_wake_wait_begin(int64 run_id);
extern void sas_wake_wait_end(void);

#endif							/* SAS_WAKE_WAKEUP_H */
