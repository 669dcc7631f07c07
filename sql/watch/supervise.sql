-- SPDX-License-Identifier: PostgreSQL
--
-- Supervision of infinite tasks: nodes that are gone, requests to stop that no host answers, tasks whose
-- state has to be derived again, and wake-ups for what has come due.

-- _sas.supervise_watches(boot, live, newest): one tick of the leading supervisor, for infinite tasks;
-- arguments and results are as in _sas.supervisor_tick. A part that raises an error becomes an alert, and
-- holds up no other part.
--   locks   what no other transaction holds; the rest is checked again
--   writes  node, watch, watch_held, watch_flow, watch_done, watch_note
--   wakes   hosts that have room or have news, workers of inboxes that are due
CREATE FUNCTION _sas.supervise_watches(boot bigint, live bigint[], newest bigint, OUT worked int,
                                       OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    worked := coalesce(_sas.part('end nodes',
                                 format('_sas.end_nodes(%s, %L::bigint[], %s)', boot, live, newest)), 0);
    IF NOT EXISTS (SELECT FROM _sas.watch) THEN
        next_due := least(_sas.next_lease(), _sas.next_deferred('node'));
        RETURN;
    END IF;
    worked := worked
        + coalesce(_sas.part('take over infinite tasks', '_sas.take_over(1000)'), 0)
        + coalesce(_sas.part('take items back',
                             format('_sas.take_back_items(%s, %L::bigint[], %s, 1000)', boot, live,
                                    newest)), 0)
        + coalesce(_sas.part('check infinite tasks', '_sas.check_requested(1000)'), 0)
        + coalesce(_sas.part('ask hosts', '_sas.ask_again()'), 0);
    PERFORM _sas.part('wake hosts', 'NULL::int FROM _sas.wake_hosts()');
    next_due := least(_sas.next_lease(), _sas.next_watch_due());
END $$;

-- _sas.end_nodes(boot, live, newest): ends nodes that are gone. Workers are known by their id; outside
-- programs by the session that registered them, and by their lease. Nulls: only outside programs are
-- checked. Returns how many.
-- Writes: node.
CREATE FUNCTION _sas.end_nodes(boot bigint, live bigint[], newest bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    done record;
BEGIN
    SELECT array_agg(g.node_id) INTO ids
    FROM (SELECT x.node_id FROM _sas.node x
          WHERE x.ended_at IS NULL
            AND CASE WHEN x.worker_id IS NOT NULL
                     THEN _sas.is_gone(x.boot, x.worker_id, $1, live, newest)
                     ELSE x.lease_until <= sas.now()
                         OR x.by_connection AND NOT _sas.session_lives(x.pid, x.backend_start) END
            AND NOT _sas.is_deferred('node', x.node_id)
          ORDER BY x.node_id FOR UPDATE SKIP LOCKED) g;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    done := _sas.apart('NULL::bigint[] FROM _sas.end_these_nodes($1)', ids);
    PERFORM _sas.defer_apart('node', ids, done.failed, done.errors, done.pauses);
    RETURN cardinality(ids);
END $$;

-- _sas.gone_worker(): why a node of a worker has ended if nobody knows what ended the worker.
CREATE FUNCTION _sas.gone_worker() RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT 'its worker is gone' $$;

-- _sas.end_these_nodes(ids): writes that these nodes have ended, and why.
-- Caller: holds the locks of the nodes. Writes: node.
CREATE FUNCTION _sas.end_these_nodes(ids bigint[]) RETURNS void
LANGUAGE sql AS $$
    WITH gone AS (
        SELECT x.node_id,
               CASE WHEN x.worker_id IS NOT NULL THEN _sas.gone_worker()
                    WHEN x.lease_until <= sas.now() THEN 'it was silent for longer than its lease'
                    ELSE 'its connection is gone' END AS why,
               _sas.found('node', 'node', CASE WHEN x.lease_until <= sas.now() THEN x.lease_until
                                          ELSE _sas.last_tick() END) AS found
        FROM _sas.node x WHERE x.node_id = ANY (ids))
    UPDATE _sas.node e SET ended_at = sas.now(), ended_for = g.why, modified_at = sas.now() FROM gone g
    WHERE e.node_id = g.node_id
$$;

-- _sas.check_watch_rights(): hosts of tasks whose owner may no longer ask of the agent what the watcher asks
-- read their requests again, and find that they are refused. sas.revoke_agent announces that; this is for
-- memberships and levels that were taken away. If a path depends on the task, only its host can tell. Tasks
-- whose row another transaction has locked are left out. Returns how many these are.
-- Writes: watch_held.
CREATE FUNCTION _sas.check_watch_rights() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    refused bigint[];
    ids bigint[];
BEGIN
    WITH pair AS MATERIALIZED (
        SELECT DISTINCT w.watcher_id, w.owner
        FROM _sas.watch_held h JOIN _sas.watch w USING (watch_id) WHERE h.lane > 0),
    gone AS MATERIALIZED (
        SELECT p.* FROM pair p JOIN _sas.watcher d USING (watcher_id)
        WHERE CASE WHEN _sas.agent_right(p.owner::oid, d.lane) <> 'a'
              THEN d.kind IN ('stream', 'poll') AND d.request ->> 'path' LIKE '%{{%'
                  OR EXISTS (SELECT FROM _sas.check_watch_use(p.owner::oid, d.lane, d.kind, d.request)) END)
    SELECT array_agg(h.watch_id) INTO refused
    FROM gone g JOIN _sas.watch w USING (watcher_id, owner) JOIN _sas.watch_held h USING (watch_id);
    IF refused IS NULL THEN
        RETURN 0;
    END IF;
    WITH free AS (
        SELECT h.watch_id FROM _sas.watch_held h WHERE h.watch_id = ANY (refused) ORDER BY h.watch_id
        FOR UPDATE SKIP LOCKED),
    marked AS (
        UPDATE _sas.watch_held h SET change = h.change - 1 FROM free f WHERE h.watch_id = f.watch_id
        RETURNING h.watch_id)
    SELECT coalesce(array_agg(m.watch_id), '{}') INTO ids FROM marked m;
    PERFORM _sas.notify_hosts(ids);
    RETURN cardinality(refused) - cardinality(ids);
END $$;

-- _sas.session_lives(pid, backend_start): does this session still exist?
CREATE FUNCTION _sas.session_lives(pid int, backend_start timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT FROM pg_stat_get_activity($1) a WHERE a.backend_start = $2)
$$;

-- _sas.take_over(quantity): gives the tasks of ended nodes to others. Returns how many tasks.
-- Writes: watch_held, watch_flow, node.
CREATE FUNCTION _sas.take_over(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    n record;
    ids bigint[];
    done record;
    total int := 0;
BEGIN
    FOR n IN SELECT x.node_id, x.kind = 'function' AS is_function,
                    -- also after the blamed task has left the node: _sas.free_tasks
                    x.ended_for <> _sas.gone_worker()
                        OR EXISTS (SELECT FROM _sas.watch_held h
                                   CROSS JOIN LATERAL (SELECT y.called_at FROM _sas.watch_flow y
                                                       WHERE y.watch_id = h.watch_id OFFSET 0) f
                                   WHERE h.node_id = x.node_id AND f.called_at IS NOT NULL) AS known
             FROM _sas.node x WHERE x.ended_at IS NOT NULL
                 AND EXISTS (SELECT FROM _sas.watch_held h WHERE h.node_id = x.node_id) LOOP
        -- a transaction that writes for a task has locked its row
        SELECT array_agg(f.watch_id) INTO ids
        -- the blamed task comes last, because otherwise others would be blamed
        FROM (SELECT h.watch_id FROM _sas.watch_held h JOIN _sas.watch_flow c USING (watch_id)
              WHERE h.node_id = n.node_id AND NOT _sas.is_deferred('task', h.watch_id)
              ORDER BY c.called_at IS NOT NULL LIMIT quantity) h
        CROSS JOIN LATERAL (SELECT x.watch_id FROM _sas.watch_flow x
                            WHERE x.watch_id = h.watch_id FOR NO KEY UPDATE SKIP LOCKED) f;
        IF ids IS NOT NULL THEN
            done := _sas.apart(format('NULL::bigint[] FROM _sas.free_tasks(%s, %L, %L, $1)', n.node_id,
                                      n.is_function, n.known), ids);
            PERFORM _sas.defer_apart('task', ids, done.failed, done.errors, done.pauses);
            total := total + cardinality(ids);
        END IF;
    END LOOP;
    RETURN total;
END $$;

-- _sas.free_tasks(of_node, is_function, known, ids): this ended node no longer holds these tasks. A function
-- may have ended its worker. If its call was noted (known), this function is blamed, and fails in the end as
-- its retry policy says. If none was noted, the cause is unknown, and each task continues: at once the first
-- time, then after a pause. That a function is blamed is noted with the node: for tasks that are locked, or
-- cannot be taken over now.
-- Caller: holds the locks of their rows in watch_flow. Writes: watch_held, watch_flow, node.
CREATE FUNCTION _sas.free_tasks(of_node bigint, is_function boolean, known boolean, ids bigint[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    taken record;
BEGIN
    WITH freed AS (
        DELETE FROM _sas.watch_held h WHERE h.watch_id = ANY ($4) AND h.node_id = of_node
        RETURNING h.watch_id),
    told AS (
        SELECT f.watch_id, d.retry, x.called_at,
               w.state = 'processing' AND is_function AND (NOT known OR x.called_at IS NOT NULL) AS suspect,
               CASE WHEN x.retry_at IS NULL OR x.last_error_at <= w.resumed_at
                   OR sas.now() - x.retry_at >= (d.retry ->> 'reset_after')::interval THEN 0
                   ELSE x.failures END + 1 AS failures
        FROM freed f JOIN _sas.watch w USING (watch_id) JOIN _sas.watcher d USING (watcher_id)
        JOIN _sas.watch_flow x USING (watch_id)),
    paused AS (
        SELECT t.*, CASE WHEN t.suspect AND t.failures > 1 THEN _sas.cool_off(t.retry, t.failures - 1)
            ELSE '0' END AS after FROM told t),
    marked AS (
        UPDATE _sas.watch_flow x SET failures = p.failures, retry_at = sas.now() + p.after,
            last_error_at = sas.now(), called_at = NULL,
               last_error = _sas.problem_object('worker-lost',
                                                'the worker that called the function is gone'),
               given_up_at = CASE WHEN p.called_at IS NOT NULL
                   AND p.failures >= (p.retry ->> 'max_failures')::int THEN sas.now()
                   ELSE x.given_up_at END
        FROM paused p WHERE p.suspect AND x.watch_id = p.watch_id)
    SELECT array_agg(p.watch_id) AS ids, array_agg(p.after) AS after,
           bool_or(p.suspect AND p.called_at IS NOT NULL) AS blames INTO taken FROM paused p;
    IF taken.blames THEN
        UPDATE _sas.node x SET ended_for = 'a function has ended its worker', modified_at = sas.now()
        WHERE x.node_id = ANY (ARRAY(SELECT y.node_id FROM _sas.node y WHERE y.node_id = of_node
                                     FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    PERFORM _sas.gone_from_host(of_node, taken.ids, taken.after) WHERE taken.ids IS NOT NULL;
END $$;

-- _sas.give_up_invocations(boot, workers, watches): workers have called the function of a task for longer
-- than it may take, and it has ignored its cancellation; these workers are going to be ended.
CREATE FUNCTION _sas.give_up_invocations(boot bigint, workers bigint[], watches bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.part('give up a function that does not end',
                      format('NULL::int FROM _sas.give_up_invocation(%s, %s, %s)', boot, u.worker, u.id))
    FROM unnest(workers, watches) AS u (worker, id);
END $$;

-- _sas.give_up_invocation(boot, worker, watch): counts a failure of that task; all other tasks of the
-- worker go to other nodes without one. Rows that another transaction has locked are passed by: the worker
-- is ended anyway, and the supervisor finds its tasks then.
CREATE FUNCTION _sas.give_up_invocation(boot bigint, worker bigint, watch bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    n _sas.node;
BEGIN
    SELECT * INTO n FROM _sas.node x WHERE x.worker_id = $2 AND x.boot = $1
        AND x.ended_at IS NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM _sas.watch_flow f WHERE f.watch_id = $3 FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM _sas.fail_watches(n.node_id, ARRAY[h.watch_id], ARRAY[h.epoch],
                              ARRAY[_sas.problem_object('timeout',
                                                        'the function did not end in time, and its worker '
                                                        'was ended')], ARRAY[NULL]::float8[])
    FROM _sas.watch_held h WHERE h.watch_id = $3 AND h.node_id = n.node_id;
    PERFORM _sas.give_back(n.node_id, ARRAY[$3]);
    PERFORM _sas.end_node(n, 'a function did not end in time');
END $$;

-- _sas.relieve_hosts(boot, workers, tasks, owners): these workers are in a call that takes long: their other
-- tasks go to free workers, and so do the items that they have claimed. Those of the owner that is called for
-- may share a transaction with the call: of these only what comes after it in its claim, whose order is that
-- of the calls. Returns whether a task is left that waits for a worker with time.
--   locks   what no other transaction holds
--   writes  node, watch_held, watch_done, watch_work
--   wakes   other function workers
CREATE FUNCTION _sas.relieve_hosts(boot bigint, workers bigint[], tasks bigint[], owners oid[])
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    inboxes bigint[];
BEGIN
    PERFORM _sas.make_way(n.node_id, u.task, workers)
    FROM unnest(workers, tasks) AS u (worker, task)
    JOIN _sas.node n ON n.worker_id = u.worker AND n.boot = $1 AND n.ended_at IS NULL
    WHERE EXISTS (SELECT FROM _sas.watch_held h WHERE h.node_id = n.node_id AND h.watch_id <> u.task);

    SELECT array_agg(l.watch_id) INTO inboxes
    FROM (SELECT d.watch_id FROM unnest(workers, owners) AS u (worker, owner)
          JOIN _sas.watch_work k ON k.worker_id = u.worker AND k.boot = $1
          JOIN _sas.watch_done d ON d.watch_id = k.watch_id
          WHERE k.owner::oid <> u.owner
              OR k.watch_id > (SELECT min(x.watch_id)
                               FROM _sas.watch_work x JOIN _sas.watch_done e USING (watch_id)
                               WHERE x.worker_id = u.worker AND x.boot = $1 AND x.owner = k.owner
                                   AND x.due_at = k.due_at AND _sas.is_executed(e.request_id))
          ORDER BY d.watch_id FOR UPDATE OF k, d SKIP LOCKED) l;
    IF inboxes IS NOT NULL THEN
        PERFORM _sas.finish_items(inboxes, array_fill(NULL::bigint, ARRAY[cardinality(inboxes)]),
                                  array_fill(NULL::jsonb, ARRAY[cardinality(inboxes)]),
                                  array_fill(true, ARRAY[cardinality(inboxes)]));
        PERFORM _sas.wake_items();
    END IF;
    RETURN EXISTS (SELECT FROM unnest(workers, tasks) AS u (worker, task)
                   JOIN _sas.node n ON n.worker_id = u.worker AND n.boot = $1 AND n.ended_at IS NULL
                   JOIN _sas.watch_held h ON h.node_id = n.node_id AND h.watch_id <> u.task);
END $$;

-- _sas.check_requested(quantity): checks tasks for which a check was requested. Those that a session has
-- locked are deferred. If there are more than quantity, owners take turns.
-- Writes: watch_check.
CREATE FUNCTION _sas.check_requested(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    done record;
BEGIN
    WITH asked AS (
        SELECT x.ctid, x.due_at, row_number() OVER (PARTITION BY w.owner ORDER BY x.due_at) AS turn
        FROM _sas.watch_check x LEFT JOIN _sas.watch w USING (watch_id) WHERE x.due_at <= (SELECT sas.now())),
    due AS (
        DELETE FROM _sas.watch_check d
        WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM asked a JOIN _sas.watch_check x ON x.ctid = a.ctid
                                  ORDER BY a.turn, a.due_at LIMIT quantity FOR UPDATE OF x SKIP LOCKED))
        RETURNING d.watch_id)
    SELECT array_agg(DISTINCT d.watch_id) INTO ids FROM due d;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    done := _sas.apart('NULL::bigint[] FROM _sas.settle_free($1)', ids);
    PERFORM _sas.check_watches(array_agg(ids[u.n]), u.pause)
    FROM unnest(done.failed, done.pauses) AS u (n, pause) GROUP BY u.pause;
    PERFORM _sas.defer_apart('watch', ids, done.failed, done.errors, done.pauses);
    -- the definition has changed while a host was claiming the task
    PERFORM _sas.notify_hosts(array_agg(h.watch_id))
    FROM _sas.watch_held h JOIN _sas.watch w ON w.watch_id = h.watch_id JOIN _sas.watcher d USING (watcher_id)
    WHERE h.watch_id = ANY (ids) AND h.change <> d.change
      AND NOT EXISTS (SELECT FROM _sas.watch_note n WHERE n.watch_id = h.watch_id AND n.node_id = h.node_id
                      AND n.unread)
    HAVING count(*) > 0;
    RETURN cardinality(ids);
END $$;

-- _sas.ask_again(): repeats requests to hosts that were not answered in time. Returns how many.
-- Writes: watch_note. Wakes: the hosts.
CREATE FUNCTION _sas.ask_again() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    due _sas.watch_note[];
    done record;
BEGIN
    SELECT array_agg(x) INTO due
    FROM (SELECT * FROM _sas.watch_note n
          WHERE n.again_at <= (SELECT sas.now()) AND NOT _sas.is_deferred('note', n.watch_id)
          ORDER BY n.again_at LIMIT 1000 FOR UPDATE SKIP LOCKED) x;
    IF due IS NULL THEN
        RETURN 0;
    END IF;
    done := _sas.apart('ARRAY[_sas.repeat_notes($1)]', due);
    PERFORM _sas.defer_apart('note', ARRAY(SELECT d.watch_id FROM unnest(due) WITH ORDINALITY d
                                           ORDER BY d.ordinality),
                             done.failed, done.errors, done.pauses);
    RETURN (SELECT sum(r) FROM unnest(done.results) r);
END $$;

-- _sas.repeat_notes(due): repeats these requests. Those about tasks that the node no longer holds are
-- deleted. Returns how many were repeated.
-- Caller: holds the locks of the notes. Writes: watch_note. Wakes: the hosts.
CREATE FUNCTION _sas.repeat_notes(due _sas.watch_note[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
    lanes int[];
BEGIN
    WITH told AS (
        SELECT d.node_id, d.watch_id, h.lane FROM unnest(due) d
        LEFT JOIN _sas.watch_held h ON h.watch_id = d.watch_id AND h.node_id = d.node_id),
    forgotten AS (
        DELETE FROM _sas.watch_note x USING told t
        WHERE x.watch_id = t.watch_id AND x.node_id = t.node_id AND t.lane IS NULL),
    again AS (
        UPDATE _sas.watch_note u SET unread = true, asked = u.asked + 1,
            again_at = sas.now() + least(interval '1 min', interval '5 s' * 2 ^ least(u.asked, 10))
        FROM told t WHERE u.watch_id = t.watch_id AND u.node_id = t.node_id AND t.lane IS NOT NULL
            AND u.again_at <= (SELECT sas.now())
        RETURNING t.lane)
    SELECT count(*), array_agg(DISTINCT a.lane) INTO n, lanes FROM again a;
    IF n > 0 THEN
        PERFORM _sas.notify_lanes(lanes, 'news');
    END IF;
    RETURN n;
END $$;

-- _sas.wake_hosts(): wakes hosts that have room for waiting tasks, and function workers for inboxes whose
-- pause is over. It announces what has come due since the last tick. What was due before that was announced
-- then; for that it only nudges them.
-- Wakes: the hosts of waiting tasks, function workers.
CREATE FUNCTION _sas.wake_hosts() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    before timestamptz := _sas.last_tick();
    lanes int[];
    due int[];
BEGIN
    SELECT array_agg(l.lane),
           -- after two seconds, nodes also take tasks beyond their share
           array_agg(l.lane) FILTER (WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = l.lane
                                                   AND q.due_at <= now AND q.due_at + interval '2 s' > before
                                                   AND (q.due_at > before
                                                        OR q.due_at + interval '2 s' <= now)))
    INTO lanes, due
    FROM (SELECT 0 AS lane, 'function' AS kind UNION ALL SELECT a.agent_id, CASE a.kind
          WHEN 'http' THEN 'agent' ELSE 'outside' END FROM _sas.agent a WHERE a.enabled
          AND a.dropped_at IS NULL) l
    WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = l.lane AND q.due_at <= now)
      AND EXISTS (SELECT FROM _sas.node n WHERE n.ended_at IS NULL AND n.kind = l.kind
                  AND (n.lanes IS NULL OR l.lane = ANY (n.lanes))
                  AND n.capacity > (SELECT count(*) FROM _sas.watch_held h WHERE h.node_id = n.node_id));
    IF due IS NOT NULL THEN
        PERFORM _sas.notify_lanes(due);
    END IF;
    PERFORM _sas.wake_items() WHERE EXISTS (SELECT FROM _sas.watch_work k WHERE k.due_at <= now
                                            AND k.due_at > before);
    PERFORM _sas.nudge(items => EXISTS (SELECT FROM _sas.watch_work k WHERE k.due_at <= now),
                       watches => lanes IS NOT NULL);
END $$;

-- _sas.next_lease(): when the lease of the next outside node expires; null: there is none. A node that is put
-- off does not count: see _sas.next_watch_due.
CREATE FUNCTION _sas.next_lease() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT min(n.lease_until) FROM _sas.node n
    WHERE n.ended_at IS NULL AND n.worker_id IS NULL AND NOT _sas.is_deferred('node', n.node_id)
$$;

-- _sas.next_watch_due(): when something about infinite tasks is due next; what is due now was checked.
CREATE FUNCTION _sas.next_watch_due() RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least((SELECT k.due_at FROM _sas.watch_work k WHERE k.due_at > (SELECT sas.now()) ORDER BY k.due_at
                  LIMIT 1),
                 (SELECT l.due_at FROM _sas.watch_check l ORDER BY l.due_at LIMIT 1),
                 (SELECT n.again_at FROM _sas.watch_note n WHERE NOT _sas.is_deferred('note', n.watch_id)
                  ORDER BY n.again_at LIMIT 1),
                 -- what was put off, of whatever kind: a tick carries it out then
                 (SELECT min(d.until) FROM _sas.deferred_work d WHERE d.until > (SELECT sas.now())),
                 (SELECT min(CASE WHEN q.due_at > sas.now() THEN q.due_at ELSE q.due_at + interval '2 s' END)
                  FROM (SELECT 0 AS lane UNION ALL SELECT a.agent_id FROM _sas.agent a
                        WHERE a.dropped_at IS NULL) l
                  CROSS JOIN LATERAL (SELECT x.due_at FROM _sas.watch_wait x WHERE x.lane = l.lane
                                      AND x.due_at > (SELECT sas.now()) - interval '2 s' ORDER BY x.due_at
                                      LIMIT 1) q))
$$;
