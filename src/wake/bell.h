/* SPDX-License-Identifier: PostgreSQL */
/*
 * bell.h: wakes sleeping workers and waiting sessions, at commit.
 *
 * A session marks what its transaction made ready; the marks are rung once,
 * when the transaction has committed and its rows can be seen.  Without shared
 * memory (library not preloaded) every function does nothing.
 */
#ifndef SAS_WAKE_BELL_H
#define SAS_WAKE_BELL_H

#include "base/actor.h"
#include "datatype/timestamp.h"

extern Size sas_bell_shmem_size(void);
extern void sas_bell_shmem_init(void);
extern void sas_bell_install(void); /* the transaction callback, once per server */

/* At commit, in MyDatabaseId. */
extern void sas_bell_mark(SasActor actor);

/* At commit; counts for the lane; lane 0 rings SAS_FUNCTION, others SAS_AGENT. */
extern void sas_bell_mark_lane(int lane);

/* At commit: infinite tasks have items for function workers. */
extern void sas_bell_mark_items(void);

/*
 * At commit: something is due for the supervisor at that instant; it is rung
 * when it means to sleep longer.
 */
extern void sas_bell_mark_due(TimestampTz at);

/*
 * The leading supervisor tells until when it means to sleep: DT_NOEND before
 * it looks, so that what is committed while it looks rings it for certain.
 */
extern void sas_bell_supervisor_sleeps_until(TimestampTz at);

/*
 * At commit: agents have changed.  The version is counted up before the
 * agent workers are rung, so that one that wakes sees it.
 */
extern void sas_bell_mark_agents(void);
extern uint32 sas_bell_agents_version(void);

/*
 * At commit: hosts of infinite tasks should look (a task waits for a node, or
 * there is news about one).  The version is counted up before the agent and
 * function workers are rung.
 */
extern void sas_bell_mark_watches(void);
extern uint32 sas_bell_watches_version(void);

/*
 * When this session ends, however that is, the supervisor is rung; departures
 * counts such ends in all databases.
 */
extern void sas_bell_tell_departure(void);
extern uint32 sas_bell_departures(void);

/*
 * At commit: some claims of calls hold no more, and their calls are to be
 * stopped.  Counted up before the agent workers are rung, too.
 */
extern void sas_bell_mark_stops(void);
extern uint32 sas_bell_stops_version(void);

/* At commit: the callers of sas.wait() for this run. */
extern void sas_bell_mark_run(int64 run_id);

/*
 * At the end, by commit or by abort, ring everything of this database: for a
 * session that locks rows which workers then set aside.  A worker that marks
 * this does not wake itself.
 */
extern void sas_bell_mark_on_abort(void);

/* Now: everything in that database, with all its lanes. */
extern void sas_bell_ring_database(Oid dboid);

/* Now: every worker of that actor in that database. */
extern void sas_bell_ring_actor(Oid dboid, SasActor actor);

/* Now: every other worker of that actor in this database. */
extern void sas_bell_wake_other(SasActor actor);

/*
 * This worker's latch hears the bell of MyDatabaseId until the process exits.
 * A worker looks everywhere in its first turn, whatever was counted before.
 */
extern void sas_bell_attach(SasActor actor);

/*
 * How often this worker has been rung; read after its latch was reset and
 * compared before it sleeps.  A wait within a turn (for a lock, for a
 * synchronous standby, in a function) resets the latch that tells of a ring.
 */
extern uint32 sas_bell_rings(void);

/*
 * How often a lane, and the items of infinite tasks, were rung in this database.
 * Each worker keeps the number that it read before it looked, and looks again
 * when it is another one: no worker can take a ring away from another one, or
 * from another agent.  Agents whose numbers are alike modulo SAS_BELL_LANES
 * share a count, which costs a needless look.  Zero in a session that is not
 * attached.
 */
#define SAS_BELL_LANES 4096
extern uint32 sas_bell_lane_rings(int lane);
extern uint32 sas_bell_items_rings(void);

/*
 * Counts without waking anybody: work may be left for others, which
 * sas_bell_wake_other() wakes.
 */
extern void sas_bell_pass_lane(int lane);
extern void sas_bell_pass_items(void);

/*
 * MyLatch is set when this run is marked, from begin until end, error or the
 * end of the transaction.  False: no place free, look every 100 ms instead.
 */
extern bool sas_bell_wait_begin(int64 run_id);
extern void sas_bell_wait_end(void);

#endif							/* SAS_WAKE_BELL_H */
