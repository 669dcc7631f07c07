-- SPDX-License-Identifier: PostgreSQL
--
-- Views for operators: agents, queues, workers, alerts, history, infinite tasks, nodes, hooks; health.

CREATE VIEW sas.agents WITH (security_barrier) AS
SELECT a.name, a.kind, a.base_url, a.enabled, CASE a.kind
    WHEN 'external' THEN (SELECT count(*) FROM _sas.external_slot h WHERE h.agent_id = a.agent_id
                          AND h.request_id IS NOT NULL)::int
    ELSE coalesce(p.in_flight, 0) END AS in_flight, a.max_in_flight, a.rate_limit,
       -- an open breaker whose time is over lets the next claim through as a probe
       CASE WHEN a.kind = 'external' THEN NULL WHEN p.breaker = 'open' AND p.open_for_ms = 0 THEN 'half-open'
           ELSE coalesce(p.breaker, h.breaker, 'closed') END AS breaker,
       CASE WHEN coalesce(p.breaker, h.breaker) = 'open' THEN h.open_until END AS open_until,
       (SELECT jsonb_object_agg(a.breaker -> 'paths' ->> b.path_no - 1, b.breaker) FROM _sas.path_breakers() b
        WHERE b.agent_id = a.agent_id AND a.breaker -> 'paths' ->> b.path_no - 1 IS NOT NULL)
           AS path_breakers,
       (SELECT count(*) FROM _sas.ready q
        WHERE q.lane IN (a.agent_id, _sas.key_lane(-a.agent_id))) AS waiting,
       -- answers of the service to calls of other roles are only for roles that may read all payload, and not
       -- if the run has a mask, or is gone
       CASE WHEN h.last_error IS NULL
                 OR (SELECT _sas.sees_payload(10::oid)) AND (e.run_id IS NULL OR e.shown) THEN h.last_error
           ELSE jsonb_strip_nulls(jsonb_build_object('type', h.last_error -> 'type', 'title',
                                                     h.last_error -> 'title', 'status',
                                                     h.last_error -> 'status')) END AS last_error,
       h.last_error_at, coalesce(h.stale_replies, 0) AS stale_replies, a.request_timeout, a.retry,
       a.created_at, a.options -> 'concurrency' AS concurrency
FROM _sas.agent a
LEFT JOIN _sas.agent_health h USING (agent_id)
LEFT JOIN _sas.limit_entries() p ON p.agent_id = a.agent_id
CROSS JOIN LATERAL (SELECT i.run_id, EXISTS (
                        SELECT FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
                        WHERE r.run_id = i.run_id AND NOT _sas.hides(v.mask, r.owner)) AS shown
                    FROM (SELECT substring(h.last_error ->> 'instance' FROM '^/runs/([0-9]+)/')::bigint
                              AS run_id OFFSET 0) i OFFSET 0) e
WHERE a.dropped_at IS NULL;
COMMENT ON COLUMN sas.agents.path_breakers IS
    'Paths whose own breaker is not closed: {path: open or half-open}';
COMMENT ON COLUMN sas.agents.max_in_flight IS
    'Most calls in progress on this node. Each node of a Citus cluster has this limit for itself, as it has '
    'the rate limit and the breaker.';
COMMENT ON VIEW sas.agents IS
    'Agents: address, limits, calls in progress or tasks held, waiting steps, breaker and last error.';

-- Roles that may write everywhere (pg_write_all_data) can write through a view of one plain table, with the
-- rights of its owner. A WITH query keeps that off.
CREATE VIEW sas.queues WITH (security_barrier) AS
WITH u AS (SELECT q.* FROM _sas.queue q WHERE q.dropped_at IS NULL)
SELECT u.name, u.max_running, (SELECT count(*) FROM _sas.queue_slot p
                               WHERE p.queue_id = u.queue_id) AS running,
       (SELECT count(*) FROM _sas.ready q
        WHERE q.lane IN (-u.queue_id, _sas.key_lane(u.queue_id))) AS waiting, u.paused_at, u.created_at,
       u.key, u.per_key
FROM u;
COMMENT ON VIEW sas.queues IS
    'Named queues: how many steps may run at the same time, how many have a slot, how many wait, since when '
    'it is paused. key, per_key: how many steps with the same key may run at the same time.';

CREATE VIEW sas.workers WITH (security_barrier) AS
SELECT w.pid, w.actor, w.database, w.leader, w.in_flight, w.memory, w.started_at,
    w.last_activity_at, w.turn_for, w.calls
FROM _sas.all_workers() w WHERE w.database = current_database();
COMMENT ON VIEW sas.workers IS
    'The background workers of this database. turn_for: how long the current tick of the worker has been '
    'running, null while it sleeps; calls: whose code it waits for.';
COMMENT ON COLUMN sas.workers.memory IS
    'Bytes of requests and answers that an agent worker holds; see sas.agent_memory';

CREATE VIEW sas.alerts WITH (security_barrier) AS
SELECT l.alert_id, l.kind, a.name AS agent, f.name AS workflow, pg_get_userbyid(l.owner) AS owner, l.run_id,
    l.run_ids, replace(w.name, '.(input)', '') AS step,
    CASE WHEN _sas.sees_payload(coalesce(l.owner, 10))
        AND NOT coalesce(_sas.hides((SELECT v.mask FROM _sas.workflow_version v
                                     WHERE v.version_id = r.version_id), r.owner), false)
    THEN coalesce(l.private_message, l.message)
    ELSE l.message END AS message, l.occurrences, l.created_at, l.last_at, l.acknowledged_at,
    l.acknowledged_by, l.closed_at
FROM _sas.alert l
LEFT JOIN _sas.agent a ON a.agent_id = l.agent_id
LEFT JOIN _sas.workflow f ON f.workflow_id = l.workflow_id
LEFT JOIN _sas.run r ON r.run_id = l.run_id
LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = l.step_no AND NOT w.undo
WHERE (SELECT _sas.sees_all()) OR _sas.stands_for(l.owner);
COMMENT ON VIEW sas.alerts IS
    'What an operator should see: one row per cause, with a count; alerts of runs have one row per cause, '
    'workflow and owner. New alerts send NOTIFY sas_alert.';
COMMENT ON COLUMN sas.alerts.run_ids IS
    'The latest ten runs, the newest occurrence first; run_id, step and message belong to the first of them';
COMMENT ON COLUMN sas.alerts.closed_at IS
    'When its cause ended; null: the cause lasts, or its end cannot be detected and the alert is not '
    'acknowledged';

-- with the union inside, as in sas.attempts
CREATE VIEW sas.limits WITH (security_barrier) AS
SELECT u.* FROM (
SELECT pg_get_userbyid(r.role) AS role, n.name, coalesce(own.value, each.value, n.value) AS value,
    CASE n.name WHEN 'open_runs' THEN coalesce(s.open_runs, 0) WHEN 'children' THEN coalesce(s.children, 0)
    WHEN 'bytes' THEN coalesce(s.bytes, 0) WHEN 'watches' THEN coalesce(s.watches, 0)
    WHEN 'function_workers' THEN (SELECT count(*) FROM _sas.function_owners() f WHERE f = r.role)
    WHEN 'schedules' THEN (SELECT count(*) FROM _sas.schedule x WHERE x.owner = r.role)
    WHEN 'nodes' THEN (SELECT count(*) FROM _sas.node x WHERE x.role = r.role AND x.kind = 'outside'
                       AND x.ended_at IS NULL)
    WHEN 'definitions' THEN (SELECT coalesce(sum(f.version), 0) FROM _sas.workflow f WHERE f.owner = r.role)
        + (SELECT count(*) FROM _sas.watcher d WHERE d.owner = r.role) END AS used
FROM _sas.limit_names() n
CROSS JOIN (SELECT s.owner AS role FROM _sas.quotas() s
            UNION SELECT l.role::oid FROM _sas.role_limit l WHERE l.role IS NOT NULL) r
LEFT JOIN _sas.quotas() s ON s.owner = r.role
LEFT JOIN _sas.role_limit own ON own.role = r.role AND own.name = n.name
LEFT JOIN _sas.role_limit each ON each.role IS NULL AND each.name = n.name
WHERE (SELECT _sas.sees_all()) OR _sas.stands_for(r.role)
UNION ALL
SELECT NULL, n.name, coalesce(each.value, n.value), NULL
FROM _sas.limit_names() n LEFT JOIN _sas.role_limit each ON each.role IS NULL AND each.name = n.name) u;
COMMENT ON VIEW sas.limits IS
    'How much each role may have open, and has. role null: the limit of each role that has none of its own.';
COMMENT ON COLUMN sas.limits.used IS
    'Includes what open transactions have submitted; null: it is not counted';

CREATE VIEW sas.history WITH (security_barrier) AS
SELECT h.run_id, h.at, h.role, h.act, h.step,
       -- texts of users, and inputs given to a step, are only for roles that may read payload; inputs not
       -- if the run has a mask
       CASE WHEN NOT p.sees THEN h.detail - '{input,output,reason}'::text[]
            WHEN p.hides THEN h.detail - '{input,output}'::text[] ELSE h.detail END AS detail,
       h.session_role, h.client,
       h.application,
       CASE WHEN p.sees THEN coalesce(h.detail ->> 'reason', h.reason) END AS reason
FROM _sas.operator_action h
LEFT JOIN _sas.run r ON r.run_id = h.run_id
LEFT JOIN _sas.workflow_version v ON v.version_id = r.version_id
CROSS JOIN LATERAL (SELECT _sas.sees_payload(coalesce(r.owner, 10)) AS sees,
                           _sas.hides(v.mask, r.owner) AS hides OFFSET 0) p
WHERE (SELECT _sas.sees_all()) OR _sas.stands_for(r.owner);
COMMENT ON VIEW sas.history IS
    'What operators and admins have done: who, when, from where, which verb. run_id is null if it was not '
    'about a run; then detail names the object, and its values before and after.';
COMMENT ON COLUMN sas.history.reason IS 'The reason given to the verb, else the setting sas.reason';
COMMENT ON COLUMN sas.history.session_role IS
    'The role that is logged in; role: the role that called the verb';
COMMENT ON COLUMN sas.history.client IS 'The address of the client; null: a local socket, or a worker';

CREATE VIEW sas.watches WITH (security_barrier) AS
SELECT w.watch_id, d.name AS watcher, w.key, w.state, n.name AS node, h.node_id, w.since, w.restarts,
    g.items - g.discarded AS items, f.items - g.items AS waiting, f.last_item_at,
       CASE WHEN e.of_host THEN f.failures ELSE g.failures END AS failures,
       CASE WHEN p.sees AND NOT _sas.hides(m.mask, w.owner) THEN e.error
           ELSE _sas.public_error(e.error) END AS last_error, CASE
           WHEN e.of_host THEN f.last_error_at ELSE g.last_error_at END AS last_error_at,
       CASE WHEN w.state IN ('created', 'processing', 'on_deleting')
           THEN (SELECT x.at FROM (SELECT CASE WHEN e.of_host THEN f.retry_at ELSE g.retry_at END AS at) x
                 WHERE x.at > sas.now()) END AS retry_at,
       CASE WHEN p.sees THEN f.cursor END AS cursor, CASE
           WHEN p.sees THEN w.input END AS input, pg_get_userbyid(w.owner) AS owner, w.epoch, w.moving,
           w.created_at, w.changed_at,
           CASE WHEN d.spec IS NOT NULL AND w.state = 'processing' THEN f.next_at END AS next_at
FROM _sas.watch w
JOIN _sas.watcher d USING (watcher_id)
JOIN _sas.watch_flow f USING (watch_id)
JOIN _sas.watch_done g USING (watch_id)
LEFT JOIN _sas.watch_held h USING (watch_id)
LEFT JOIN _sas.node n ON n.node_id = h.node_id
CROSS JOIN LATERAL (SELECT _sas.sees_payload(w.owner) AS sees OFFSET 0) p
CROSS JOIN LATERAL (SELECT x.of_host, CASE WHEN x.of_host THEN f.last_error ELSE g.last_error END AS error
                    FROM (SELECT coalesce(f.last_error_at, '-infinity') >= coalesce(g.last_error_at,
                                    '-infinity') AS of_host) x OFFSET 0) e
-- of the runs that its items become, as in sas.schedules
CROSS JOIN LATERAL (SELECT array_agg(k.path) AS mask
                    FROM _sas.workflow b
                    JOIN _sas.workflow_version v ON v.workflow_id = b.workflow_id AND v.of_version IS NULL
                    CROSS JOIN LATERAL unnest(v.mask) AS k (path)
                    WHERE d.target_kind = 'workflow' AND b.name = d.target AND b.dropped_at IS NULL
                      AND (v.version = b.version
                           OR EXISTS (SELECT FROM _sas.workflow_grant q
                                      WHERE q.workflow_id = b.workflow_id
                                        AND (q.version = v.version OR q.future AND q.version < v.version)
                                        AND _sas.may_stand_for(w.owner, q.role))) OFFSET 0) m
WHERE p.sees OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.watches IS
    'Infinite tasks: state, the node that hosts them and since when, how often they moved to another node, '
    'how many items were brought to their target and how many wait, last error and cursor.';
COMMENT ON COLUMN sas.watches.next_at IS 'When a task with a schedule polls next';
COMMENT ON COLUMN sas.watches.failures IS
    'Failures in a row of what failed last: taking items in, or bringing them to their target';

CREATE VIEW sas.nodes WITH (security_barrier) AS
SELECT n.node_id, n.name, n.kind, n.version, n.capacity, x.watches,
    greatest(0, n.capacity - x.watches) AS free,
       ARRAY(SELECT a.name FROM _sas.agent a WHERE a.agent_id = ANY (n.lanes) ORDER BY a.name) AS agents,
       n.pid, n.created_at, n.modified_at, n.lease_until, n.ended_at IS NOT NULL AS is_deleted, n.ended_at,
           n.ended_for
FROM _sas.node n
CROSS JOIN LATERAL (SELECT count(*) AS watches FROM _sas.watch_held h WHERE h.node_id = n.node_id) x
WHERE (SELECT _sas.sees_all()) OR n.role IS NULL OR _sas.stands_for(n.role);
COMMENT ON VIEW sas.nodes IS
    'Processes that host infinite tasks: workers of this server and outside programs, with their capacity '
    'and load. A node that has ended is shown for a day, or until its name registers again.';

-- Positions count all waiting runs, also those that the role may not see.
CREATE VIEW sas.locks WITH (security_barrier) AS
SELECT CASE WHEN _sas.sees_payload(r.owner) AND NOT _sas.hides(v.mask, r.owner) THEN l.key END AS key,
       l.scope, w.name AS workflow, l.run_id,
       CASE l.state WHEN 'holds' THEN 'holder' ELSE 'waiter' END AS state, l.shared, l.since,
       CASE l.state WHEN 'waits' THEN l.position END AS position
FROM (SELECT p.key, p.run_id, p.state, p.shared, p.since,
             CASE WHEN p.owner = 0 THEN 'all' WHEN p.workflow_id = 0 THEN 'owner'
                 ELSE 'workflow' END AS scope,
             row_number() OVER (PARTITION BY p.owner, p.workflow_id, p.key, p.state
                                ORDER BY p.run_id) AS position
      FROM _sas.concurrency_slot p
      WHERE p.state IN ('holds', 'waits')) l
JOIN _sas.run r ON r.run_id = l.run_id
JOIN _sas.workflow_version v ON v.version_id = r.version_id
JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
WHERE (SELECT _sas.sees_all()) OR _sas.stands_for(r.owner);
COMMENT ON VIEW sas.locks IS
    'Runs that hold concurrency keys, and runs that wait for them, with their position in the line.';

-- A hook that is a function or call is a run with one step; sas.runs and sas.steps leave it out.
CREATE VIEW sas.hook_runs WITH (security_barrier) AS
SELECT nullif(r.hook_of, 0) AS run_id, w.name AS workflow, h.hook_no AS hook, r.run_id AS hook_run_id,
    coalesce(ws.function, a.name) AS target,
       r.input ->> 'state' AS told_state, r.input ->> 'result' AS told_result, r.state, r.result,
           coalesce(s.attempt, 0) AS attempt, coalesce(s.failure_count, 0) AS failure_count,
       s.waiting_until,
       CASE WHEN p.hides AND s.output IS NOT NULL THEN to_jsonb('***'::text)
            WHEN p.sees THEN s.output END AS output, CASE
           WHEN p.sees AND NOT p.hides THEN coalesce(s.error, r.error)
           ELSE _sas.public_error(coalesce(s.error, r.error)) END AS error,
       r.created_at, r.started_at, r.finished_at
FROM _sas.run r
JOIN _sas.workflow_hook h ON h.hook_version_id = r.version_id
JOIN _sas.workflow_version v ON v.version_id = r.version_id
JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
JOIN _sas.workflow_step ws ON ws.version_id = r.version_id AND ws.step_no = 1 AND NOT ws.undo
LEFT JOIN _sas.agent a ON a.agent_id = ws.lane
LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = 1 AND s.element = 0
CROSS JOIN LATERAL (SELECT _sas.sees_payload(r.owner) AS sees,
                           _sas.hides(v.mask, r.owner) AS hides OFFSET 0) p
WHERE (p.sees OR (SELECT _sas.sees_all())) AND r.hook_of IS NOT NULL;
COMMENT ON VIEW sas.hook_runs IS
    'One row per function or call of a hook: the change that triggered it, how often it was tried, how it '
    'ended. sas.attempts has its attempts under hook_run_id.';

-- With the rights of its reader, as sas.runs.
CREATE VIEW sas.run_details WITH (security_invoker) AS
SELECT s.schedule_id AS jobid, r.run_id AS runid, NULL::int AS job_pid, current_database()::text AS database,
    r.submitted_by::text AS username, r.workflow AS command,
    CASE WHEN r.state = 'pending' THEN 'starting' WHEN r.state <> 'stopped' THEN r.state
         WHEN r.result IN ('success', 'warning') THEN 'succeeded' ELSE 'failed' END AS status,
    coalesce(r.error ->> 'title', r.result, r.paused_for) AS return_message, r.started_at AS start_time,
    r.finished_at AS end_time, r.workflow, r.schedule AS jobname
FROM sas.runs r LEFT JOIN sas.schedules s ON s.name = r.schedule;
COMMENT ON VIEW sas.run_details IS
    'Runs under the column names of cron.job_run_details, for dashboards that were made for pg_cron.';
COMMENT ON COLUMN sas.run_details.jobid IS
    'The id of its schedule; null: it has none, or the schedule was dropped';
COMMENT ON COLUMN sas.run_details.job_pid IS 'Always null: several workers carry out a run';
COMMENT ON COLUMN sas.run_details.command IS 'The workflow';
COMMENT ON COLUMN sas.run_details.jobname IS 'The schedule; null: the run was submitted by hand';

-- _sas.held_by(): in words, the sessions and prepared transactions that keep workers waiting: by a lock on
-- a table, index or sequence of sas that conflicts with theirs, which they have or wait for, or because they
-- restore a dump; null: there is none.
CREATE FUNCTION _sas.held_by() RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT string_agg(h.what, '; ' ORDER BY h.what)
    FROM (SELECT format('%s %s is %s by %s (%s)',
                        CASE c.relkind WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' ELSE 'index' END,
                        c.relname, CASE WHEN l.granted THEN 'locked' ELSE 'to be locked' END,
                        coalesce('process ' || l.pid, format('prepared transaction "%s"', (
                            SELECT x.gid FROM pg_locks t
                            JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
                            WHERE t.locktype = 'transactionid' AND t.pid IS NULL
                              AND t.virtualtransaction = l.virtualtransaction))), l.mode) AS what
          FROM pg_locks l JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = '_sas'::regnamespace
          WHERE l.locktype = 'relation' AND c.relkind IN ('r', 'S', 'i')
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
          UNION ALL
          SELECT format('process %s restores a dump, or changes the extension', s.excluded_by)
          FROM _sas.launcher_state() s WHERE s.excluded_by IS NOT NULL) h
$$;

-- _sas.run_holders(since): in words, the sessions and prepared transactions that have held runs for so long,
-- although these runs have work to do: a tick passes such a run by and looks again, within a second. A row is
-- held by the transaction in its xmax, as long as that is open; several that share it are not found. Workers
-- are left out: they hold a run no longer than a tick.
CREATE FUNCTION _sas.run_holders(since interval) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    holders xid[];
    who text[];
BEGIN
    SELECT array_agg(h.transaction), array_agg(h.who) INTO holders, who
    FROM (SELECT l.transactionid, 'process ' || l.pid
          FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.locktype = 'transactionid' AND l.granted AND a.xact_start < clock_timestamp() - since
            AND a.backend_type NOT LIKE 'sas %'
          UNION ALL
          SELECT x.transaction, format('prepared transaction "%s"', x.gid)
          FROM pg_prepared_xacts x
          WHERE x.prepared < clock_timestamp() - since) AS h (transaction, who);
    IF holders IS NOT NULL THEN
        RETURN QUERY
        SELECT format('%s holds run %s%s', h.who, min(r.run_id), CASE WHEN count(*) > 1
                      THEN format(' and %s others', count(*) - 1) ELSE '' END)
        -- what was passed by is due the latest, however long the line is
        FROM (SELECT DISTINCT m.run_id
              FROM unnest('{s,a,v}'::"char"[]) u
              CROSS JOIN LATERAL (SELECT x.run_id FROM _sas.message x
                                  WHERE x.actor = u AND x.due_at < (SELECT sas.now()) + interval '1 s'
                                  ORDER BY x.due_at DESC LIMIT 1000) m) d
        CROSS JOIN LATERAL (SELECT o.run_id, o.xmax AS holder FROM _sas.run o
                            WHERE o.run_id = d.run_id OFFSET 0) r
        JOIN unnest(holders, who) AS h (transaction, who) ON h.transaction = r.holder
        GROUP BY h.who;
    END IF;
END $$;

-- _sas.left_prepared(since): in words, the prepared transactions with work of sas that have been left for so
-- long. They may hold up nobody, but what they submit, signal or cancel happens only when they commit.
CREATE FUNCTION _sas.left_prepared(since interval) RETURNS SETOF text
LANGUAGE sql VOLATILE AS $$
    SELECT format('prepared transaction "%s" has waited for %s to be committed or rolled back: what it does '
                  'in sas has not happened yet', x.gid, date_trunc('second', clock_timestamp() - x.prepared))
    FROM pg_prepared_xacts x
    WHERE x.database = current_database() AND x.prepared < clock_timestamp() - since
      AND EXISTS (SELECT FROM pg_locks t
                  JOIN pg_locks l ON l.virtualtransaction = t.virtualtransaction AND l.pid IS NULL
                      AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
                      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                  JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = '_sas'::regnamespace
                  WHERE t.locktype = 'transactionid' AND t.transactionid = x.transaction AND t.pid IS NULL)
$$;

-- _sas.problems(): in words, what stops work in this database now. Nothing is read from alerts: a stopped
-- supervisor raises none, and they stay open for a while. A stopped process reports nothing itself; the
-- others note when they wake it.
CREATE FUNCTION _sas.problems() RETURNS text[]
LANGUAGE sql VOLATILE AS $$
    WITH worker AS (SELECT w.* FROM _sas.all_workers() w WHERE w.database = current_database()),
    wanted AS (
        SELECT v.actor
        FROM (VALUES ('scheduler', true), ('supervisor', true),
                     ('function', current_setting('sas.function_workers') <> '0'
                                  OR EXISTS (SELECT FROM _sas.ready q WHERE q.lane = 0)),
                     ('agent', current_setting('sas.agents') <> '0'
                               OR EXISTS (SELECT FROM _sas.ready q
                                          JOIN _sas.agent a ON a.agent_id = q.lane AND a.kind = 'http'))
             ) AS v (actor, wanted)
        WHERE v.wanted),
    problem (what) AS (
        SELECT format('no %s worker runs', a.actor)
        FROM wanted a WHERE NOT EXISTS (SELECT FROM worker w WHERE w.actor = a.actor AND w.has_worked)
        UNION ALL
        SELECT 'the database refuses connections, those of workers too (ALLOW_CONNECTIONS false)'
        FROM pg_database d WHERE d.datname = current_database() AND NOT d.datallowconn
        UNION ALL
        SELECT 'no supervisor leads'
        FROM worker w WHERE w.actor = 'supervisor' HAVING count(*) > 0 AND NOT bool_or(w.leader)
        UNION ALL
        SELECT format('%s worker %s was woken %s ago and does nothing', w.actor, w.pid,
                      date_trunc('second', w.woken_for))
        FROM worker w WHERE w.woken_for > '5 s'
        UNION ALL
        SELECT format('%s ticks in a row of %s worker %s have failed; see the server log', w.failed_ticks,
                      w.actor, w.pid)
        FROM worker w WHERE w.failed_ticks >= 3
        UNION ALL
        SELECT format('the supervisor has left due work lying for %s', date_trunc('second', v.late))
        FROM _sas.lateness('v') AS v (late) WHERE v.late > '5 s'
        UNION ALL
        SELECT h.who FROM _sas.run_holders('5 s') h (who)
        UNION ALL
        SELECT p.told FROM _sas.left_prepared('5 s') p (told)
        UNION ALL
        SELECT c.message
        FROM _sas.conditions('5 s', '5 s', '5 s') c
        WHERE (c.raise OR c.kind = 'breaker-open') AND c.cause NOT LIKE 'crash loop of % workers'
          -- work continues, and a person has seen it
          AND NOT (c.kind IN ('shared-memory', 'crash-loop')
                   AND EXISTS (SELECT FROM _sas.alert l WHERE l.cause = c.cause AND l.closed_at IS NULL
                                                          AND l.acknowledged_at IS NOT NULL)))
    SELECT coalesce(array_agg(p.what ORDER BY p.what), '{}') FROM problem p
$$;

CREATE FUNCTION sas.health(OUT workers_loaded boolean, OUT launcher_pid int, OUT workers int,
                           OUT slots_missing int, OUT leader_pid int, OUT held_by text, OUT runs_open bigint,
                           OUT runs_paused bigint, OUT steps_ready bigint, OUT oldest_ready_at timestamptz,
                           OUT breakers_open bigint, OUT alerts_open bigint, OUT found_late bigint,
                           OUT in_recovery boolean, OUT quarantined boolean, OUT version text,
                           OUT problems text[], OUT ok boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '500ms' SET jit = off AS $$
DECLARE
    alerts_left bigint;  -- that _sas.problems() does not know better
BEGIN
    SELECT l.loaded, l.launcher_pid, l.slots_missing INTO workers_loaded, launcher_pid, slots_missing
    FROM _sas.launcher_state() l;
    SELECT count(*), min(w.pid) FILTER (WHERE w.leader AND w.actor = 'supervisor') INTO workers, leader_pid
    FROM sas.workers w;
    held_by := _sas.held_by();
    BEGIN
        SELECT coalesce(sum(o.runs), 0), coalesce(sum(o.paused), 0) INTO runs_open, runs_paused
        FROM _sas.count_open_runs() o;
        SELECT count(*), min(q.ready_at) INTO steps_ready, oldest_ready_at FROM _sas.ready q;
        -- as sas.agents has them, which may compare all agents with all breakers
        SELECT count(*) INTO breakers_open FROM _sas.breakers() b
        CROSS JOIN LATERAL (SELECT FROM _sas.agent a WHERE a.agent_id = b.agent_id AND a.dropped_at IS NULL
                            AND a.kind <> 'external' OFFSET 0) a;
        SELECT count(*), count(*) FILTER (WHERE a.kind <> ALL (
                   '{worker-slots,shared-memory,crash-loop,stalled,late,breaker-open,quarantine}'))
            INTO alerts_open, alerts_left
        FROM _sas.alert a WHERE a.closed_at IS NULL AND a.acknowledged_at IS NULL;
        quarantined := _sas.quarantined_for() IS NOT NULL;
        IF launcher_pid IS NOT NULL AND NOT quarantined THEN
            problems := _sas.problems();
        END IF;
    EXCEPTION WHEN lock_not_available THEN
        NULL;  -- held_by says who
    END;
    SELECT coalesce(sum(s.n), 0) INTO found_late FROM _sas.series() s WHERE s.metric = 'found_late';
    in_recovery := pg_is_in_recovery();
    SELECT e.extversion INTO version FROM pg_extension e WHERE e.extname = 'sas';
    problems := array_remove(ARRAY[
        CASE WHEN NOT workers_loaded THEN 'shared_preload_libraries does not contain sas'
             WHEN launcher_pid IS NULL AND in_recovery THEN 'this server is a standby'
             WHEN launcher_pid IS NULL THEN 'the launcher does not run' END,
        held_by,
        CASE WHEN quarantined IS NULL AND held_by IS NULL THEN 'tables cannot be read: see pg_locks' END,
        CASE WHEN quarantined THEN 'this is a copy in quarantine: see sas.release()' END,
        CASE WHEN alerts_left > 0 THEN format('%s alerts are open: see sas.alerts', alerts_left) END], NULL)
        || coalesce(problems, '{}');
    ok := problems = '{}';
END $$;
COMMENT ON FUNCTION sas.health IS
    'One row for a monitor: do the workers run, what is open, what waits. problems: why ok is false.';
