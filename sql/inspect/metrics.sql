-- SPDX-License-Identifier: PostgreSQL
--
-- Metrics: numbers for monitoring, in the terms of OpenMetrics. Counters and histograms are in shared
-- memory (src/metrics) and start from zero with the server; gauges are counted from what is open. Nothing
-- here reads what has ended.

-- _sas.metric_families(): all families. Samples of a counter are named family || '_total'.
CREATE FUNCTION _sas.metric_families() RETURNS TABLE (family text, type text, help text)
LANGUAGE sql IMMUTABLE ROWS 40 AS $$
    VALUES
    ('sas_build', 'info', 'The version of the extension.'),
    ('sas_ok', 'gauge', '1: ok of sas.health() is true.'),
    ('sas_runs', 'counter', 'Runs that ended, by workflow and result.'),
    ('sas_run_seconds', 'histogram', 'From the first claim of a run to its end.'),
    ('sas_run_wait_seconds', 'histogram', 'From the submit of a run, or its start_at, to its first claim.'),
    ('sas_open_runs', 'gauge', 'Runs that have not ended, by state.'),
    ('sas_attempts', 'counter', 'Attempts by agent, workflow and outcome: succeeded, failed, timed_out, '
                                'lost. Without an agent: functions.'),
    ('sas_call_seconds', 'histogram',
     'Time in a remote service per attempt, or in a function: what is not spent in sas.'),
    ('sas_step_wait_seconds', 'histogram',
     'From ready to claimed: the step waits for a worker, a slot, the rate limit or a breaker.'),
    ('sas_window_seconds', 'histogram',
     'From a claim to its outcome, with all attempts and pauses: done, transient, permanent, hand_back.'),
    ('sas_steps_waiting', 'gauge', 'Steps of open runs by what they wait for.'),
    ('sas_functions_ready', 'gauge', 'Function steps that no worker has taken yet.'),
    ('sas_functions_oldest_ready_seconds', 'gauge', 'How long the oldest of them has waited.'),
    ('sas_agent_ready', 'gauge', 'Steps that wait for an agent.'),
    ('sas_agent_oldest_ready_seconds', 'gauge', 'How long the oldest of them has waited.'),
    ('sas_agent_in_flight', 'gauge', 'Calls of an agent in flight, or claimed tasks.'),
    ('sas_agent_max_in_flight', 'gauge', 'How many there may be.'),
    ('sas_agent_enabled', 'gauge', '0: the agent is paused.'),
    ('sas_agent_breaker_open', 'gauge', 'The breaker of an agent: 1 open, 0.5 half-open, 0 closed.'),
    ('sas_late_replies', 'counter', 'Replies after complete-by, or to a claim that is no longer valid.'),
    ('sas_queue_waiting', 'gauge', 'Steps that wait in a named queue.'),
    ('sas_queue_running', 'gauge', 'Steps that have a slot of it.'),
    ('sas_queue_max_running', 'gauge', 'How many slots it has.'),
    ('sas_replies_unread', 'gauge', 'Messages that wait in a reply queue.'),
    ('sas_transitions', 'counter', 'Changes of state of runs and steps.'),
    ('sas_alerts', 'counter', 'Alerts that were raised, by kind.'),
    ('sas_current_alerts', 'gauge',
     'Alerts whose cause has not ended, by kind and whether somebody has seen them.'),
    ('sas_workers_running', 'gauge', 'Workers of this database by actor.'),
    ('sas_worker_slots_missing', 'gauge', 'Workers that find no free process slot.'),
    ('sas_leader', 'gauge', '1: a supervisor leads.'),
    ('sas_call_slots', 'gauge', 'Calls that the agent workers can keep in flight.'),
    ('sas_call_slots_used', 'gauge',
     'Calls that they keep in flight now, with those that pause between two attempts.'),
    ('sas_lateness_seconds', 'gauge', 'How long the oldest due work has waited.'),
    ('sas_purge_overdue_seconds', 'gauge', 'How far the purge is behind.'),
    ('sas_found_late', 'counter', 'Work that was found a second or more after it became visible, without a '
                                  'wake-up: a wake-up was lost.'),
    ('sas_lock_timeouts', 'counter', 'Ticks that gave up a lock that a session held.'),
    ('sas_schedule_instants', 'counter', 'Instants of schedules, by outcome.'),
    ('sas_schedules_defined', 'gauge', 'Schedules by state.'),
    ('sas_schedules_due', 'gauge', 'Schedules that are due and have not been submitted.'),
    ('sas_schedule_late_seconds', 'gauge', 'How long the first of them has been due.'),
    ('sas_purged_runs', 'counter', 'Runs that were purged.'),
    ('sas_shared_memory_taken', 'gauge', 'Entries of a table in shared memory, of all databases.'),
    ('sas_shared_memory_capacity', 'gauge', 'How many there may be.'),
    ('sas_metrics_dropped', 'counter', 'Counts that found no room in shared memory.')
$$;

-- _sas.bound(seconds): the upper bound of a bucket as the label le shows it.
CREATE FUNCTION _sas.bound(seconds float8) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN seconds = trunc(seconds) THEN seconds::bigint || '.0'
    ELSE seconds::text END $$;

-- _sas.counted(): counters and histograms, with names instead of ids. Objects that were dropped and created
-- again under the same name count together.
CREATE FUNCTION _sas.counted() RETURNS TABLE (family text, suffix text, labels jsonb, value float8)
LANGUAGE sql STABLE AS $$
    WITH s AS MATERIALIZED (
        SELECT s.metric, s.n, s.sum, s.buckets, s.label,
               jsonb_strip_nulls(CASE s.metric
                   WHEN 'call' THEN jsonb_build_object('agent', n.agent, 'workflow', n.workflow)
                   WHEN 'step' THEN jsonb_build_object('agent', n.agent, 'workflow', n.workflow, 'outcome',
                                                       s.label)
                   WHEN 'step_wait' THEN jsonb_build_object('agent', n.agent)
                   WHEN 'run_wait' THEN jsonb_build_object('workflow', n.workflow)
                   WHEN 'run' THEN jsonb_build_object('workflow', n.workflow, 'result', s.label)
                   WHEN 'alert' THEN jsonb_build_object('kind', s.label)
                   WHEN 'lock_timeout' THEN jsonb_build_object('actor', s.label)
                   WHEN 'schedule' THEN jsonb_build_object('outcome', s.label)
                   WHEN 'found_late' THEN jsonb_build_object('actor', split_part(s.label, ' ', 1), 'kind',
                                                             split_part(s.label, ' ', 2))
                   WHEN 'transition' THEN jsonb_build_object('subject', split_part(s.label, ' ', 1), 'from',
                                                             split_part(s.label, ' ', 2), 'to',
                                                             split_part(s.label, ' ', 3))
                   ELSE '{}' END) AS labels
        FROM _sas.series() s
        LEFT JOIN _sas.agent a ON s.metric IN ('call', 'step', 'step_wait') AND a.agent_id = s.id1
        LEFT JOIN _sas.workflow f ON f.workflow_id = CASE WHEN s.metric IN ('call', 'step') THEN s.id2
            WHEN s.metric IN ('run', 'run_wait') THEN s.id1 END
        -- entries that found no room are counted as one
        CROSS JOIN LATERAL (SELECT CASE WHEN s.label = '_other' THEN s.label ELSE a.name END AS agent,
                                   CASE WHEN s.label = '_other' THEN s.label ELSE f.name END AS workflow) n),
    h AS (
        SELECT s.*, x.family FROM s JOIN (VALUES ('call', 'sas_call_seconds'),
                                          ('step', 'sas_window_seconds'),
                                          ('step_wait', 'sas_step_wait_seconds'),
                                                ('run_wait', 'sas_run_wait_seconds'),
                                                    ('run', 'sas_run_seconds')) AS x (metric, family)
                                                    USING (metric))
    SELECT h.family, '_bucket', h.labels || jsonb_build_object('le', _sas.bound(b.bound)), sum(h.buckets[b.n])
    FROM h CROSS JOIN unnest(_sas.metric_bounds()) WITH ORDINALITY AS b (bound, n)
    GROUP BY h.family, h.labels, b.bound
    UNION ALL SELECT h.family, '_bucket', h.labels || '{"le": "+Inf"}', sum(h.n) FROM h
        GROUP BY h.family, h.labels
    UNION ALL SELECT h.family, '_count', h.labels, sum(h.n) FROM h GROUP BY h.family, h.labels
    UNION ALL SELECT h.family, '_sum', h.labels, sum(h.sum) FROM h GROUP BY h.family, h.labels
    UNION ALL SELECT 'sas_runs', '_total', s.labels, sum(s.n) FROM s WHERE s.metric = 'run' GROUP BY s.labels
    UNION ALL SELECT 'sas_attempts', '_total', s.labels || jsonb_build_object('outcome', s.label), sum(s.n)
        FROM s WHERE s.metric = 'call' GROUP BY s.labels, s.label
    UNION ALL SELECT 'sas_transitions', '_total', s.labels, s.n FROM s WHERE s.metric = 'transition'
    UNION ALL SELECT 'sas_alerts', '_total', s.labels, s.n FROM s WHERE s.metric = 'alert'
    UNION ALL SELECT 'sas_schedule_instants', '_total', s.labels, s.n FROM s WHERE s.metric = 'schedule'
    -- each actor has a row from the start: what is absent cannot be compared with zero
    UNION ALL SELECT 'sas_found_late', '_total', l.labels, sum(l.n)
        FROM (SELECT s.labels, s.n FROM s WHERE s.metric = 'found_late'
              UNION ALL SELECT jsonb_build_object('actor', z.actor, 'kind', z.kind), 0
              FROM (VALUES ('agent', 'step'), ('function', 'step'), ('function', 'items'),
                           ('scheduler', 'held'), ('supervisor', 'held'), ('supervisor', 'lease'),
                           ('supervisor', 'node')) AS z (actor, kind)) l GROUP BY l.labels
    UNION ALL SELECT 'sas_lock_timeouts', '_total', l.labels, sum(l.n)
        FROM (SELECT s.labels, s.n FROM s WHERE s.metric = 'lock_timeout'
              UNION ALL SELECT jsonb_build_object('actor', z.actor), 0
              FROM unnest('{agent,function,scheduler,supervisor}'::text[]) AS z (actor)) l GROUP BY l.labels
    UNION ALL SELECT 'sas_purged_runs', '_total', '{}', coalesce(sum(s.n), 0) FROM s WHERE s.metric = 'purged'
    UNION ALL SELECT 'sas_metrics_dropped', '_total', '{}', coalesce(sum(s.n), 0) FROM s
        WHERE s.metric = 'dropped'
    UNION ALL SELECT 'sas_late_replies', '_total', jsonb_build_object('agent', a.name), sum(g.stale_replies)
        FROM _sas.agent a JOIN _sas.agent_health g USING (agent_id) GROUP BY a.name
$$;

-- _sas.gauges_of_agents(): limits of agents, and the steps that wait for them. It reads all agents and all
-- that is ready, and joins them by hash.
CREATE FUNCTION _sas.gauges_of_agents() RETURNS TABLE (family text, labels jsonb, value float8)
LANGUAGE sql STABLE SET enable_seqscan = on SET enable_hashjoin = on AS $$
    WITH q AS MATERIALIZED (SELECT coalesce(_sas.lane_let_out(r.lane), r.lane) AS lane, count(*) AS n,
                            min(r.ready_at) AS oldest FROM _sas.ready r GROUP BY 1),
    a AS MATERIALIZED (
        SELECT jsonb_build_object('agent', a.name) AS labels, a.enabled, a.max_in_flight, a.kind, q.n,
            q.oldest,
               CASE a.kind WHEN 'external' THEN (SELECT count(*) FROM _sas.external_slot h
                                                 WHERE h.agent_id = a.agent_id AND h.request_id IS NOT NULL)
                   ELSE coalesce(p.in_flight, 0) END AS in_flight,
               CASE WHEN p.breaker = 'open' AND p.open_for_ms = 0 THEN 'half-open'
                   ELSE coalesce(p.breaker, h.breaker, 'closed') END AS breaker
        FROM _sas.agent a
        LEFT JOIN _sas.agent_health h ON h.agent_id = a.agent_id
        LEFT JOIN _sas.limit_entries() p ON p.agent_id = a.agent_id
        LEFT JOIN q ON q.lane = a.agent_id
        WHERE a.dropped_at IS NULL)
    SELECT 'sas_agent_ready', a.labels, coalesce(a.n, 0) FROM a
    UNION ALL SELECT 'sas_agent_oldest_ready_seconds', a.labels,
        coalesce(extract(epoch FROM sas.now() - a.oldest), 0) FROM a
    UNION ALL SELECT 'sas_agent_in_flight', a.labels, a.in_flight FROM a
    UNION ALL SELECT 'sas_agent_max_in_flight', a.labels, a.max_in_flight FROM a
    UNION ALL SELECT 'sas_agent_enabled', a.labels, a.enabled::int FROM a
    UNION ALL SELECT 'sas_agent_breaker_open', a.labels, CASE a.breaker WHEN 'open' THEN 1
        WHEN 'half-open' THEN 0.5 ELSE 0 END FROM a WHERE a.kind = 'http'
    UNION ALL SELECT 'sas_functions_ready', '{}', coalesce((SELECT q.n FROM q WHERE q.lane = 0), 0)
    UNION ALL SELECT 'sas_functions_oldest_ready_seconds', '{}',
        coalesce((SELECT extract(epoch FROM sas.now() - q.oldest) FROM q WHERE q.lane = 0), 0)
    UNION ALL SELECT 'sas_queue_waiting', jsonb_build_object('queue', u.name),
        coalesce((SELECT sum(q.n) FROM q WHERE q.lane IN (-u.queue_id, _sas.key_lane(u.queue_id))), 0)
        FROM _sas.queue u WHERE u.dropped_at IS NULL
    UNION ALL SELECT 'sas_queue_running', jsonb_build_object('queue', u.name),
        (SELECT count(*) FROM _sas.queue_slot p WHERE p.queue_id = u.queue_id) FROM _sas.queue u
        WHERE u.dropped_at IS NULL
    UNION ALL SELECT 'sas_queue_max_running', jsonb_build_object('queue', u.name), u.max_running
        FROM _sas.queue u WHERE u.dropped_at IS NULL
$$;

-- _sas.gauges_of_runs(): open runs, and what their steps wait for.
CREATE FUNCTION _sas.gauges_of_runs() RETURNS TABLE (family text, labels jsonb, value float8)
LANGUAGE sql STABLE AS $$
    WITH o AS MATERIALIZED (SELECT * FROM _sas.open_runs_of(NULL)),
    w AS (
        SELECT CASE WHEN q.lane = 0 THEN 'worker' WHEN _sas.lane_let_out(q.lane) > 0 THEN 'agent'
            ELSE 'queue' END AS kind, count(*) AS n FROM _sas.ready q GROUP BY 1
        UNION ALL
        SELECT s.kind, count(*)
        FROM o CROSS JOIN LATERAL (SELECT CASE WHEN x.request_id IS NOT NULL THEN 'reply'
                                   ELSE x.waiting_kind END AS kind
                                   FROM _sas.step x WHERE x.run_id = o.run_id
                                       AND (x.request_id IS NOT NULL
                                            OR x.waiting_kind IS NOT NULL) OFFSET 0) s GROUP BY 1)
    SELECT 'sas_open_runs', jsonb_build_object('state', k), (SELECT count(*) FROM o WHERE o.state = k)
    FROM unnest('{scheduled,pending,running,paused,compensating}'::text[]) k
    UNION ALL SELECT 'sas_steps_waiting', jsonb_build_object('kind', w.kind), sum(w.n) FROM w GROUP BY w.kind
$$;

-- _sas.gauges_of_schedules(): how many schedules there are, and whether one is late.
CREATE FUNCTION _sas.gauges_of_schedules() RETURNS TABLE (family text, labels jsonb, value float8)
LANGUAGE sql STABLE AS $$
    SELECT 'sas_schedules_defined', jsonb_build_object('state', k),
        (SELECT count(*) FROM _sas.schedule s WHERE s.state = k AND NOT s.copy)
    FROM unnest('{active,paused,finished,failed}'::text[]) k
    UNION ALL SELECT 'sas_schedules_due', '{}',
        (SELECT count(*) FROM _sas.schedule s WHERE s.due_at <= (SELECT sas.now()))
        + (SELECT count(*) FROM _sas.schedule_plan)
    UNION ALL SELECT 'sas_schedule_late_seconds', '{}',
        greatest(coalesce(extract(epoch FROM sas.now() - least(
            (SELECT min(s.due_at) FROM _sas.schedule s),
            (SELECT min((p.instant).scheduled_at) FROM _sas.schedule_plan p))), 0), 0)
$$;

-- _sas.gauges_of_workers(): the workers, and whether something is late.
CREATE FUNCTION _sas.gauges_of_workers() RETURNS TABLE (family text, labels jsonb, value float8)
LANGUAGE sql STABLE AS $$
    WITH w AS MATERIALIZED (SELECT x.* FROM _sas.all_workers() x WHERE x.database = current_database())
    SELECT 'sas_workers_running', jsonb_build_object('actor', k),
        (SELECT count(*) FROM w WHERE w.actor = k)::float8
    FROM unnest('{scheduler,agent,function,supervisor}'::text[]) k
    UNION ALL SELECT 'sas_leader', '{}', (SELECT count(*) FROM w WHERE w.actor = 'supervisor' AND w.leader)
    UNION ALL SELECT 'sas_call_slots', '{}',
        (SELECT count(*) FROM w WHERE w.actor = 'agent') * current_setting('sas.agent_slots')::int
    UNION ALL SELECT 'sas_call_slots_used', '{}',
        (SELECT coalesce(sum(w.in_flight), 0) FROM w WHERE w.actor = 'agent')
    UNION ALL SELECT 'sas_shared_memory_' || k.what, jsonb_build_object('table', t.name), k.n
        FROM _sas.shared_tables() t CROSS JOIN LATERAL (VALUES ('taken', t.taken),
                                                               ('capacity', t.capacity)) AS k (what, n)
    UNION ALL SELECT 'sas_worker_slots_missing', '{}', l.slots_missing FROM _sas.launcher_state() l
    UNION ALL SELECT 'sas_lateness_seconds',
        jsonb_build_object('actor', CASE k WHEN 'v' THEN 'supervisor' ELSE 'scheduler' END),
        coalesce(extract(epoch FROM _sas.lateness(k::"char")), 0) FROM unnest('{v,s}'::text[]) k
    UNION ALL SELECT 'sas_purge_overdue_seconds', '{}',
        greatest(coalesce(extract(epoch FROM sas.now() - _sas.next_purge()), 0), 0)
    UNION ALL SELECT 'sas_current_alerts',
        jsonb_build_object('kind', a.kind, 'acknowledged', (a.acknowledged_at IS NOT NULL)::text), count(*)
        FROM _sas.alert a WHERE a.closed_at IS NULL GROUP BY a.kind, a.acknowledged_at IS NOT NULL
    UNION ALL SELECT 'sas_replies_unread', jsonb_build_object('queue', r.queue), count(*) FROM _sas.reply r
        GROUP BY r.queue
$$;

-- _sas.metrics_as(caller, families): the body of sas.metrics. families null: all. Raises an error if there is
-- no metric of such a name.
CREATE FUNCTION _sas.metrics_as(caller oid, families text[])
RETURNS TABLE (name text, type text, labels jsonb, value float8, help text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- few rows of many, by an index, however full the tables are
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    -- looked up, not joined: a join would compare each value with all families
    known jsonb := (SELECT jsonb_object_agg(f.family, jsonb_build_object('type', f.type, 'help', f.help))
                    FROM _sas.metric_families() f);
BEGIN
    IF NOT known ?& families OR array_position(families, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'metric "%" does not exist',
            (SELECT u FROM unnest(families) u WHERE NOT known ? u LIMIT 1)
            USING ERRCODE = 'undefined_object', DETAIL = 'At /families.',
                HINT = 'Write names without _total, _bucket, _sum and _count. '
                       'Omit the argument for all metrics.';
    END IF;
    RETURN QUERY
    SELECT x.family || x.suffix, known #>> ARRAY[x.family, 'type'], x.labels, x.value,
        known #>> ARRAY[x.family, 'help']
    FROM (SELECT c.family, c.suffix, c.labels, c.value FROM _sas.counted() c
          WHERE families IS NULL
              OR families && '{sas_runs,sas_run_seconds,sas_run_wait_seconds,sas_attempts,sas_call_seconds,'
                             'sas_step_wait_seconds,sas_window_seconds,sas_late_replies,sas_transitions,'
                             'sas_alerts,sas_found_late,sas_lock_timeouts,sas_schedule_instants,'
                             'sas_purged_runs,'
                             'sas_metrics_dropped}'
          UNION ALL SELECT g.family, '', g.labels, g.value FROM _sas.gauges_of_agents() g
          WHERE families IS NULL OR EXISTS (SELECT FROM unnest(families) u
                                            WHERE u ~ '^sas_(agent|functions|queue)_')
          UNION ALL SELECT g.family, '', g.labels, g.value FROM _sas.gauges_of_schedules() g
          WHERE families IS NULL
              OR families && '{sas_schedules_defined,sas_schedules_due,sas_schedule_late_seconds}'
          UNION ALL SELECT g.family, '', g.labels, g.value FROM _sas.gauges_of_runs() g
          WHERE families IS NULL OR families && '{sas_open_runs,sas_steps_waiting}'
          UNION ALL SELECT g.family, '', g.labels, g.value FROM _sas.gauges_of_workers() g
          WHERE families IS NULL
              OR families && '{sas_workers_running,sas_leader,sas_call_slots,sas_call_slots_used,'
                             'sas_worker_slots_missing,sas_lateness_seconds,sas_purge_overdue_seconds,'
                             'sas_current_alerts,sas_replies_unread,sas_shared_memory_taken,'
                             'sas_shared_memory_capacity}'
          UNION ALL SELECT 'sas_ok', '', '{}', (SELECT h.ok::int FROM sas.health() h) WHERE families IS NULL
              OR 'sas_ok' = ANY (families)
          UNION ALL SELECT 'sas_build', '_info', jsonb_build_object('version', e.extversion), 1
              FROM pg_extension e WHERE e.extname = 'sas'
              AND (families IS NULL OR 'sas_build' = ANY (families))) x
    WHERE families IS NULL OR x.family = ANY (families)
    ORDER BY x.family, x.labels - 'le', x.suffix, CASE x.labels ->> 'le' WHEN '+Inf' THEN 'infinity'::float8
        ELSE (x.labels ->> 'le')::float8 END;
END $$;

CREATE FUNCTION sas.metrics(families text[] DEFAULT NULL)
RETURNS TABLE (name text, type text, labels jsonb, value float8, help text)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.metrics IS
    'Numbers for monitoring in the terms of OpenMetrics, one row per sample. families: only these, such as '
    '{sas_runs,sas_call_seconds}. Counters and histograms start from zero with the server.';

-- _sas.metrics_text_as(caller, format): the body of sas.metrics_text: one text, in the format openmetrics or
-- prometheus.
CREATE FUNCTION _sas.metrics_text_as(caller oid, format text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF format IS NULL OR NOT format IN ('openmetrics', 'prometheus') THEN
        RAISE EXCEPTION '% is not a metrics format', coalesce('"' || format || '"', 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /format.',
            HINT = 'Use openmetrics, or prometheus for its older text format.';
    END IF;
    RETURN (
        SELECT string_agg(l.line, E'\n' ORDER BY l.n) || E'\n' || CASE format
            WHEN 'openmetrics' THEN E'# EOF\n' ELSE '' END
        FROM (
            SELECT CASE WHEN lag(s.family) OVER (ORDER BY s.n) IS DISTINCT FROM s.family
                        THEN format(E'# TYPE %s %s\n%s# HELP %s %s\n', s.shown, CASE WHEN s.type = 'info'
                                    AND $2 = 'prometheus' THEN 'gauge' ELSE s.type END,
                                    CASE WHEN s.family LIKE E'%\\_seconds' AND $2 = 'openmetrics'
                                         THEN format(E'# UNIT %s seconds\n', s.family) ELSE '' END,
                                    s.shown, s.help)
                        ELSE '' END
                   || s.name
                   || CASE WHEN s.labels = '{}' THEN ''
                           ELSE '{' || (SELECT string_agg(format('%s="%s"', e.key, replace(replace(replace(
                                            e.value, E'\\', E'\\\\'), '"', E'\\"'), E'\n', E'\\n')), ','
                                                   ORDER BY e.key = 'le', e.key)
                                                                     FROM jsonb_each_text(s.labels) e)
                                                                         || '}' END
                   || ' ' || s.value AS line, s.n
            FROM (SELECT m.*, row_number() OVER () AS n, f.family,
                         -- in the older format a counter has the name of its sample
                         CASE WHEN $2 = 'prometheus' AND f.type IN ('counter', 'info') THEN m.name
                             ELSE f.family END AS shown
                  FROM _sas.metrics_as(caller, NULL) m
                  JOIN _sas.metric_families() f ON f.family = CASE m.type WHEN 'gauge' THEN m.name
                      ELSE regexp_replace(m.name, '_(total|bucket|sum|count|info)$', '') END) s) l);
END $$;

CREATE FUNCTION sas.metrics_text(format text DEFAULT 'openmetrics') RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_verb';
COMMENT ON FUNCTION sas.metrics_text IS
    'The same as text that a scraper reads: openmetrics, or prometheus for its older format.';
