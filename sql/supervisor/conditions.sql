-- SPDX-License-Identifier: PostgreSQL
--
-- Watch: conditions of the server and of agents that an operator should know
-- of. The leading supervisor compares what holds with the alerts that are
-- open, at its interval: what is new is raised, what has ended is closed.

-- sas._crash_loops(): posts of this database whose workers failed several times in a row, each soon after its start.
CREATE FUNCTION sas._crash_loops(OUT actor text, OUT failures int) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_crash_loops';

-- sas._late_after(): who is so late has a problem.
CREATE FUNCTION sas._late_after() RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT greatest(current_setting('sas.supervisor_interval')::interval / 2, interval '5 s')
$$;

-- sas._lateness(actor): for how long something that is due for the supervisor (v) or the scheduler (s) has been left
-- lying; null: nothing is. Since when counts neither time before the workers of this database were started, nor before
-- its last turn: what a long transaction has left behind may have been due long before its commit.
CREATE FUNCTION sas._lateness(whose "char") RETURNS interval
LANGUAGE plpgsql STABLE AS $$
DECLARE
    due timestamptz := CASE WHEN whose = 'v' THEN least(sas._next_due('v'), (SELECT l.next_by FROM sas.lease l ORDER BY l.next_by LIMIT 1)) ELSE sas._next_due('s') END;
BEGIN
    IF due IS NULL OR due > sas._now() THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT sas._now() - greatest(due, min(w.started_at), max(w.last_activity_at) FILTER (WHERE w.last_activity_at > w.started_at AND CASE whose WHEN 'v' THEN w.leader ELSE w.actor = 'scheduler' END))
            FROM sas._workers() w WHERE w.database = current_database());
END $$;

-- sas._tell_lateness(): the supervisor begins its turn, and should have begun it long ago.
CREATE FUNCTION sas._tell_lateness() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    late interval := sas._lateness('v');
BEGIN
    -- where no worker runs, ticks come by hand
    IF late > sas._late_after() AND EXISTS (SELECT FROM sas._workers() w WHERE w.database = current_database() AND w.actor = 'supervisor') THEN
        PERFORM sas._alert('late', 'supervisor late', format('the supervisor was %s late; meanwhile nothing overdue was taken back', date_trunc('second', late)));
    END IF;
END $$;

-- sas._conditions(): what holds now, of the kinds that the watch closes. raise false: it goes on, but is no reason to begin an alert.
CREATE FUNCTION sas._conditions() RETURNS TABLE (kind text, cause text, message text, agent_id int, raise boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'breaker-open', format('agent %s breaker', a.name), format('the breaker of agent "%s" is open', a.name), a.agent_id, coalesce(p.breaker, h.breaker) = 'open'
    FROM sas.agent a
    JOIN sas.agent_health h ON h.agent_id = a.agent_id
    LEFT JOIN sas._places() p ON p.agent_id = a.agent_id
    WHERE a.dropped_at IS NULL AND a.kind = 'http' AND coalesce(p.breaker, h.breaker) <> 'closed' AND a.breaker -> 'off' IS DISTINCT FROM 'true'
    UNION ALL
    SELECT 'worker-slots', 'worker slots', format('%s workers find no free process slot; see max_worker_processes', l.slots_missing), NULL, true
    FROM sas._launcher_state() l WHERE l.slots_missing > 0
    UNION ALL
    SELECT 'agent-places', c.cause, c.message, NULL, c.raise
    FROM sas._places_state() p
    CROSS JOIN LATERAL (VALUES
        ('agent places', p.taken * 10 >= p.places * 7, p.taken * 5 >= p.places * 4,
         format('%s of the %s places for busy agents of all databases are taken; see sas.max_agents',
                p.taken, p.places)),
        -- one look at least sees it
        ('no agent place',
         p.alone_ms_ago * interval '1 ms' < 2 * current_setting('sas.supervisor_interval')::interval, true,
         format('agents find none of the %s places for busy agents of all databases and are called more '
                'slowly, one call at a time in each worker; see sas.max_agents', p.places))
    ) AS c (cause, lasts, raise, message)
    WHERE c.lasts
    UNION ALL
    SELECT 'crash-loop', format('crash loop of %s workers', c.actor),
           format('a worker of actor "%s" has failed %s times in a row; it is started anew with growing pauses, see the log of the server', c.actor, max(c.failures)), NULL, true
    FROM sas._crash_loops() c GROUP BY c.actor
    UNION ALL
    SELECT 'crash-loop', 'crash loop of the server', format('the server has begun anew %s times within ten minutes; see its log', count(*)), NULL, true
    FROM sas.boot b WHERE b.at > sas._now() - interval '10 min' HAVING count(*) >= 5
    UNION ALL
    SELECT 'late', 'scheduler late', 'what is due for the scheduler is not looked at; see sas.workers and the log of the server', NULL, true
    WHERE sas._lateness('s') > sas._late_after() AND EXISTS (SELECT FROM sas._workers() w WHERE w.database = current_database());
END $$;

-- sas._watch(): raises what is new, closes what has ended. Writes nothing as long as nothing changes.
-- Returns whether anything is open that may want another look soon: work at workers, an alert, a breaker that is not closed.
CREATE FUNCTION sas._watch() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    causes text[];
BEGIN
    IF sas._boot() <> 0 AND NOT EXISTS (SELECT FROM sas.boot b WHERE b.boot = sas._boot()) THEN
        DELETE FROM sas.boot b WHERE b.at < now - interval '1 h';
        INSERT INTO sas.boot VALUES (sas._boot(), now);
    END IF;
    SELECT array_agg(c.cause) INTO causes FROM sas._conditions() c;
    PERFORM sas._alert(c.kind, c.cause, c.message, c.agent_id) FROM sas._conditions() c
    WHERE c.raise AND NOT EXISTS (SELECT FROM sas.alert l WHERE l.cause = c.cause AND l.closed_at IS NULL);
    PERFORM sas._close_alerts(array_agg(l.cause)) FROM sas.alert l
    WHERE l.closed_at IS NULL
      AND (l.kind IN ('breaker-open', 'worker-slots', 'agent-places', 'crash-loop')
           AND NOT coalesce(l.cause = ANY (causes), false)
           -- what is raised again and again as long as it lasts
           OR l.kind IN ('stuck', 'late') AND NOT coalesce(l.cause = ANY (causes), false) AND l.last_at < now - interval '3 min'
           OR l.kind = 'purge-failed' AND l.last_at < now - interval '3 h'
           -- a session was just acknowledging it when its run was resumed
           OR l.kind IN ('step-failed', 'undo-failed', 'deadline') AND l.acknowledged_at IS NOT NULL
              AND NOT EXISTS (SELECT FROM sas.run r WHERE r.run_id = l.run_id AND r.state = 'paused'))
    HAVING count(*) > 0;
    RETURN causes IS NOT NULL OR EXISTS (SELECT FROM sas.lease) OR EXISTS (SELECT FROM sas.alert l WHERE l.closed_at IS NULL);
END $$;
