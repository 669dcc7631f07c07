-- SPDX-License-Identifier: PostgreSQL
--
-- Conditions of the server and of agents that an operator should know about. At its interval, the leading
-- supervisor compares the conditions with the open alerts: it raises an alert for a new condition, and
-- closes the alert of a condition that has ended.

-- _sas.crash_loops(): kinds of workers of this database that have failed several times in a row, each time
-- soon after their start.
CREATE FUNCTION _sas.crash_loops(OUT actor text, OUT failures int) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_crash_loops';

-- _sas.late_after(): an actor that is late by this much has a problem.
CREATE FUNCTION _sas.late_after() RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT greatest(current_setting('sas.supervisor_interval')::interval / 2, interval '5 s')
$$;

-- _sas.lateness(whose): how long something that is due for the supervisor (v) or the scheduler (s) has been
-- waiting; null: nothing is. Neither the time before the workers of this database were started counts, nor
-- the time before the actor's last tick: messages of a long transaction may have been due long before its
-- commit.
CREATE FUNCTION _sas.lateness(whose "char") RETURNS interval
LANGUAGE plpgsql STABLE AS $$
DECLARE
    due timestamptz := CASE WHEN whose = 'v'
        THEN least(_sas.next_message('v'), _sas.first_lease())
        ELSE _sas.next_message('s') END;
BEGIN
    IF due IS NULL OR due > sas.now() THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT sas.now() - greatest(
                       due, min(w.started_at),
                       max(w.last_activity_at) FILTER (
                           WHERE w.last_activity_at > w.started_at
                             AND CASE whose WHEN 'v' THEN w.leader ELSE w.actor = 'scheduler' END))
            FROM _sas.all_workers() w WHERE w.database = current_database());
END $$;

-- _sas.report_lateness(): raises an alert if the supervisor, which begins its tick, is too late.
CREATE FUNCTION _sas.report_lateness() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    late interval := _sas.lateness('v');
BEGIN
    -- if no worker runs, ticks are called by hand
    IF late > _sas.late_after() AND EXISTS (SELECT FROM _sas.all_workers() w
                                            WHERE w.database = current_database() AND w.actor = 'supervisor')
        THEN
        PERFORM _sas.raise_alert('late', 'supervisor late',
                                 format('the supervisor was %s late; meanwhile nothing overdue was taken '
                                        'back', date_trunc('second', late)));
    END IF;
END $$;

-- _sas.activity_of(pid): what that process is doing, in words: which process, or what, it waits for.
CREATE FUNCTION _sas.activity_of(pid int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    blockers int[] := pg_catalog.pg_blocking_pids(pid);
BEGIN
    RETURN CASE WHEN blockers <> '{}'
                THEN 'waits for a lock of process ' || array_to_string(blockers, ', ')
                ELSE coalesce((SELECT format('waits for %s %s', a.wait_event_type, a.wait_event)
                               FROM pg_stat_activity a
                               WHERE a.pid = activity_of.pid AND a.wait_event IS NOT NULL),
                              'computes') END;
END $$;

-- _sas.conditions(stalled_for, late_for, full_for): the current conditions, of the kinds whose alerts this
-- room closes. raise false: an open alert stays open, but no new one is raised. A tick that takes
-- stalled_for is stalled, a scheduler that leaves due work lying for late_for is late, a table in shared
-- memory that has refused somebody within full_for is full.
CREATE FUNCTION _sas.conditions(stalled_for interval, late_for interval, full_for interval)
RETURNS TABLE (kind text, cause text, message text, agent_id int, raise boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'breaker-open', format('agent %s breaker', a.name),
        format('the breaker of agent "%s" is open', a.name), a.agent_id,
        b.breaker = 'open'
    FROM _sas.breakers() b
    CROSS JOIN LATERAL (SELECT x.* FROM _sas.agent x WHERE x.agent_id = b.agent_id OFFSET 0) a
    WHERE a.dropped_at IS NULL AND a.kind = 'http' AND a.breaker -> 'off' IS DISTINCT FROM 'true'
    UNION ALL
    SELECT 'breaker-open', format('agent %s breaker %s', a.name, u.path),
        format('the breaker of agent "%s" for path "%s" is open', a.name, u.path), a.agent_id,
        b.breaker = 'open'
    FROM _sas.path_breakers() b
    CROSS JOIN LATERAL (SELECT x.* FROM _sas.agent x WHERE x.agent_id = b.agent_id OFFSET 0) a
    CROSS JOIN LATERAL (SELECT a.breaker -> 'paths' ->> b.path_no - 1 AS path) u
    WHERE a.dropped_at IS NULL AND u.path IS NOT NULL
    UNION ALL
    SELECT 'worker-slots', 'worker slots',
        format('%s workers find no free process slot; see max_worker_processes', l.slots_missing), NULL, true
    FROM _sas.launcher_state() l WHERE l.slots_missing > 0
    UNION ALL
    SELECT 'shared-memory', t.name || c.cause, c.message, NULL, c.raise
    FROM _sas.shared_tables() t
    CROSS JOIN LATERAL (VALUES
        (' fill', t.taken * 10 >= t.capacity * 7, t.taken * 5 >= t.capacity * 4,
         format('%s of %s %s in shared memory are taken, in all databases; see %s', t.taken, t.capacity,
                t.name, t.setting)),
        (' full', t.refused_ms_ago * interval '1 ms' < full_for, true,
         format('all %s %s in shared memory are taken, in all databases: what finds none is slower or less '
                'exact; see %s', t.capacity, t.name, t.setting))
    ) AS c (cause, lasts, raise, message)
    WHERE c.lasts
    UNION ALL
    SELECT 'stalled', format('%s worker %s stalled', w.actor, w.pid),
        format('%s worker %s has been in one tick for %s; it %s', w.actor, w.pid,
               date_trunc('second', w.turn_for), _sas.activity_of(w.pid)), NULL, true
    FROM _sas.all_workers() w WHERE w.database = current_database() AND w.turn_for >= stalled_for
        AND w.calls IS NULL
    UNION ALL
    SELECT 'crash-loop', format('crash loop of %s workers', c.actor),
           format('a worker of actor "%s" has failed %s times in a row; it is restarted with growing '
                  'pauses; see the server log', c.actor, max(c.failures)), NULL, true
    FROM _sas.crash_loops() c GROUP BY c.actor
    UNION ALL
    SELECT 'crash-loop', 'crash loop of the server',
        format('the server has restarted %s times within ten minutes; see its log', count(*)), NULL, true
    FROM _sas.boot b WHERE b.at > sas.now() - interval '10 min' HAVING count(*) >= 5
    UNION ALL
    SELECT 'late', 'scheduler late',
        'the scheduler does not process due work; see sas.workers and the server log', NULL,
        true
    WHERE _sas.lateness('s') > late_for
        AND EXISTS (SELECT FROM _sas.all_workers() w WHERE w.database = current_database());
END $$;

-- _sas.note_boot(): stores a start of the server; the alert for crash loops counts these rows.
-- Writes: boot.
CREATE FUNCTION _sas.note_boot() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF _sas.current_boot() <> 0 AND NOT EXISTS (SELECT FROM _sas.boot b WHERE b.boot = _sas.current_boot())
        THEN
        DELETE FROM _sas.boot b WHERE b.at < sas.now() - interval '1 h';
        INSERT INTO _sas.boot VALUES (_sas.current_boot(), sas.now());
    END IF;
END $$;

-- _sas.raise_conditions(): raises an alert for each new condition, and closes alerts whose condition has
-- ended. Returns how many conditions there are.
CREATE FUNCTION _sas.raise_conditions() RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    causes text[];
    -- long enough for at least one check to see that a table is full, also on a busy server
    full_for interval := greatest(interval '10 s', 2 * current_setting('sas.supervisor_interval')::interval);
BEGIN
    SELECT array_agg(c.cause) INTO causes FROM _sas.conditions('10 s', _sas.late_after(), full_for) c;
    PERFORM _sas.raise_alert(c.kind, c.cause, c.message, c.agent_id)
    FROM _sas.conditions('10 s', _sas.late_after(), full_for) c
    -- each cause is looked up; an anti join may compare all of them with all open alerts
    WHERE c.raise AND (SELECT true FROM _sas.alert l WHERE l.cause = c.cause AND l.closed_at IS NULL
                       LIMIT 1) IS NULL;
    PERFORM _sas.close_alerts(array_agg(l.cause)) FROM _sas.alert l
    WHERE l.closed_at IS NULL
      AND (l.cause NOT IN (SELECT unnest(causes))
           AND (l.kind IN ('breaker-open', 'worker-slots', 'shared-memory', 'crash-loop', 'stalled',
                           'quarantine')
                -- kinds that are raised repeatedly as long as they last
                OR l.kind IN ('stuck', 'late') AND l.last_at < sas.now() - interval '3 min')
           OR l.kind = 'purge-failed' AND l.last_at < sas.now() - interval '3 h')
    HAVING count(*) > 0;
    RETURN (causes IS NOT NULL)::int;
END $$;

-- _sas.close_settled(): closes alerts whose runs are all settled; they stay open if a session had the alert
-- locked, or if two sessions resumed its last runs at the same time.
CREATE FUNCTION _sas.close_settled() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.close_resolved(array_agg(l.alert_id)) FROM _sas.alert l
    WHERE l.closed_at IS NULL AND l.run_id IS NOT NULL AND _sas.has_runs(l.kind) AND l.kind <> 'stuck'
      AND NOT EXISTS (SELECT FROM _sas.alert_run m WHERE m.alert_id = l.alert_id)
    HAVING count(*) > 0;
END $$;

-- _sas.count_open(): counts what roles have open. Prepared transactions hold locks, and no process does.
CREATE FUNCTION _sas.count_open() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.note_prepared()
    WHERE EXISTS (SELECT FROM pg_locks l WHERE l.pid IS NULL AND l.relation = '_sas.run'::regclass
                  AND l.mode = 'RowExclusiveLock'
                  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
    PERFORM _sas.part('count what roles have open', '_sas.recount_quotas()::int');
END $$;

-- _sas.check_conditions(): raises new alerts and closes those whose cause has ended. Writes nothing as long
-- as nothing changes. A part that raises an error becomes an alert, and holds up no other part. Returns
-- whether something is open that should be checked again soon: work at workers, deferred work, an alert, a
-- breaker that is not closed.
CREATE FUNCTION _sas.check_conditions() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    any_holds bigint;
BEGIN
    PERFORM _sas.part('note the start of the server', 'NULL::int FROM _sas.note_boot()');
    PERFORM _sas.part('retry what was deferred', 'NULL::int FROM _sas.retry_deferred()');
    any_holds := _sas.part('check conditions', '_sas.raise_conditions()');
    PERFORM _sas.part('close alerts', 'NULL::int FROM _sas.close_settled()');
    RETURN coalesce(any_holds, 1) > 0 OR _sas.first_lease() IS NOT NULL
        OR EXISTS (SELECT FROM _sas.deferred_work)
        OR EXISTS (SELECT FROM _sas.alert l WHERE l.closed_at IS NULL);
END $$;
