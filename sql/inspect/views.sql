-- SPDX-License-Identifier: PostgreSQL
--
-- Views: what a person looks at. They run as the owner of sas and show each
-- role its own runs and those of roles it is a member of; operators, admins
-- and monitors see all, monitors without payload.

-- _sas.sees_all(): may the current user look at runs of others? The levels are constants, bound by oid: the
-- current user may look up nothing in schema _sas.
CREATE FUNCTION _sas.sees_all() RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT has_function_privilege(current_user, '_sas.level_admin()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_operator()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_monitor()'::regprocedure, 'EXECUTE');
END;

-- _sas.sees_payload(owner): may the current user read inputs and outputs of this owner's runs?
CREATE FUNCTION _sas.sees_payload(owner oid) RETURNS boolean
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_has_role(current_user, owner, 'MEMBER')
        OR has_function_privilege(current_user, '_sas.level_admin()'::regprocedure, 'EXECUTE')
        OR has_function_privilege(current_user, '_sas.level_operator()'::regprocedure, 'EXECUTE');
END;

-- _sas.step_input(run_id, step_no, element): what a step is given, or sends, as far as it is known now; null
-- for who may not see it.
CREATE FUNCTION _sas.step_input(run_id bigint, step_no int, element int) RETURNS jsonb
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.step_input_as(caller oid, run_id bigint, step_no int, element int) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN d.input IS NOT NULL THEN d.input
                WHEN w.kind IN ('function', 'task', 'workflow') AND w.input IS NULL THEN r.input
                ELSE (SELECT i.result
                      FROM _sas.render(CASE w.kind WHEN 'call'
                                       THEN coalesce(w.request -> 'body', w.request -> 'form',
                                                     w.request -> 'text', 'null') ELSE w.input END,
                                       _sas.context(r, w, $4)) i) END
    FROM _sas.run r
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $3 AND NOT w.undo
    LEFT JOIN _sas.override d ON d.run_id = r.run_id AND d.step_no = $3 AND d.element = $4
    WHERE r.run_id = $2
      AND (pg_has_role(caller, r.owner, 'MEMBER') OR _sas.has_level(caller, 'admin')
           OR _sas.has_level(caller, 'operator'))
$$;

CREATE VIEW sas.workflows WITH (security_barrier) AS
SELECT w.name AS workflow, w.version, pg_get_userbyid(w.owner) AS owner, v.step_count AS steps, v.definition,
    w.created_at, v.created_at AS version_created_at, w.paused_at
FROM _sas.workflow w JOIN _sas.workflow_version v ON v.workflow_id = w.workflow_id AND v.version = w.version
WHERE w.dropped_at IS NULL
  AND (pg_has_role(current_user, w.owner, 'MEMBER') OR (SELECT _sas.sees_all())
       OR EXISTS (SELECT FROM _sas.workflow_grant g WHERE g.workflow_id = w.workflow_id
                  AND pg_has_role(current_user, g.role, 'MEMBER')));
COMMENT ON VIEW sas.workflows IS 'Workflows with their current version: those of one''s own, those granted, '
                                 'and for operators all.';

-- _sas.starts_after(run_id): what keeps a scheduled run from beginning.
CREATE FUNCTION _sas.starts_after(run_id bigint) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.starts_after_as(caller oid, run_id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM _sas.run_dependency a JOIN _sas.run e ON e.run_id = a.after_run
                             WHERE a.run_id = r.run_id AND e.state <> 'stopped') THEN 'run'
                WHEN r.start_at > _sas.now() THEN 'start_at'
                WHEN EXISTS (SELECT FROM _sas.deferred_run h JOIN _sas.workflow f USING (workflow_id)
                             WHERE h.run_id = r.run_id AND f.paused_at IS NOT NULL) THEN 'workflow'
                WHEN EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = r.run_id
                             AND p.state = 'waits')
                    THEN 'place'
                ELSE 'scheduler' END
    FROM _sas.run r
    WHERE r.run_id = $2
      AND (pg_has_role(caller, r.owner, 'MEMBER') OR _sas.has_level(caller, 'admin')
           OR _sas.has_level(caller, 'operator') OR _sas.has_level(caller, 'monitor'))
$$;

-- _sas.suggests(run_id, step_no, element): what on_failure says of this failed step of a paused run; null for
-- who may not see it, and of a fallback.
CREATE FUNCTION _sas.suggests(run_id bigint, step_no int, element int) RETURNS text
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_verb';

CREATE FUNCTION _sas.suggests_as(caller oid, run_id bigint, step_no int, element int) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p.policy = 'compensate'
                     AND EXISTS (SELECT FROM _sas.step x
                                 JOIN _sas.workflow_step xw ON xw.version_id = r.version_id
                                 AND xw.step_no = x.step_no AND xw.pivot WHERE x.run_id = r.run_id
                                 AND x.state = 'succeeded')
                THEN 'pause' ELSE p.policy END
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = $3 AND s.element = $4
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $3 AND NOT w.undo
        AND NOT coalesce(w.shape ? 'stands_in', false)
    CROSS JOIN LATERAL (SELECT CASE WHEN s.transient THEN coalesce(w.on_transient, v.on_transient)
                        ELSE coalesce(w.on_permanent, v.on_permanent) END AS policy) p
    WHERE r.run_id = $2
      AND (pg_has_role(caller, r.owner, 'MEMBER') OR _sas.has_level(caller, 'admin')
           OR _sas.has_level(caller, 'operator') OR _sas.has_level(caller, 'monitor'))
$$;

CREATE VIEW sas.runs WITH (security_barrier) AS
SELECT r.run_id, w.name AS workflow, coalesce(v.of_version, v.version) AS version, r.key, r.state, r.result,
    r.priority, u.name AS queue,
       CASE WHEN p.sees THEN r.input END AS input, CASE WHEN p.sees THEN r.output END AS output, CASE
           WHEN p.sees THEN r.error ELSE r.error - '{detail,hint,context}'::text[] END AS error,
       CASE WHEN r.state = 'stopped' THEN 1.0
            WHEN v.step_count = 0 THEN 0.0
            -- by the weights of its steps; of one that is on its way, what it has told, or half
            ELSE (SELECT coalesce(sum(w.weight * CASE
                                      WHEN s.state IN ('succeeded', 'skipped', 'compensating', 'compensated')
                                      THEN 1
                                                      WHEN s.state IN ('running', 'suspended', 'failed')
                                                      THEN coalesce((SELECT (f.total - f.remaining)::float8
                                                                     / f.total FROM _sas.map_progress f
                                                                     WHERE f.run_id = s.run_id
                                                                         AND f.step_no = s.step_no
                                                                         AND w.shape ? 'each'
                                                                         AND f.total > 0),
                                                                    (SELECT k.progress FROM _sas.task k
                                                                     WHERE k.run_id = s.run_id
                                                                     AND k.step_no = s.step_no
                                                                     AND k.element = 0), s.progress,
                                                                    CASE s.state WHEN 'running' THEN 0.5
                                                                        ELSE 0 END)
                                                      ELSE 0 END) / nullif(sum(w.weight), 0), 0)
                  FROM _sas.workflow_step w
                  LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no AND s.element = 0
                  WHERE w.version_id = r.version_id AND NOT w.undo
                      AND w.step_no <= v.step_count) END AS progress,
       r.paused_for, r.paused_by, r.paused_at, pg_get_userbyid(r.owner) AS submitted_by, r.parent_run_id,
       r.labels, r.created_at, r.start_at, r.started_at, r.finished_at, r.deadline, r.trace AS trace_id,
       r.start_before, a.after_run, CASE WHEN r.state = 'scheduled'
           THEN _sas.starts_after(r.run_id) END AS waits_for,
       CASE WHEN r.state = 'paused' AND r.abandon_as IS NULL
            THEN (SELECT CASE count(DISTINCT x.says) WHEN 0 THEN NULL WHEN 1 THEN min(x.says) ELSE 'pause' END
                  FROM (SELECT _sas.suggests(r.run_id, s.step_no, s.element) AS says FROM _sas.step s
                        WHERE s.run_id = r.run_id AND s.state = 'failed') x) END AS suggested
FROM _sas.run r
JOIN _sas.workflow_version v USING (version_id)
JOIN _sas.workflow w USING (workflow_id)
LEFT JOIN _sas.run_dependency a ON a.run_id = r.run_id
LEFT JOIN _sas.queue u ON u.queue_id = r.queue_id
CROSS JOIN LATERAL (SELECT _sas.sees_payload(r.owner) AS sees OFFSET 0) p
WHERE (p.sees OR (SELECT _sas.sees_all())) AND r.hook_of IS NULL;
COMMENT ON VIEW sas.runs IS 'One row per run. state says where it is, result how it ended.';
COMMENT ON COLUMN sas.runs.state IS 'scheduled, pending, running, paused, compensating or stopped';
COMMENT ON COLUMN sas.runs.result IS 'null until stopped; then success, warning, error, compensated or '
                                     'cancelled';
COMMENT ON COLUMN sas.runs.waits_for IS 'What keeps a scheduled run: run (after_run), start_at, workflow (it '
                                        'is paused), place (concurrency), or scheduler (its turn is next)';
COMMENT ON COLUMN sas.runs.suggested IS 'Of a run paused with failed steps: what on_failure says of all of '
                                        'them; pause where they say different things';
COMMENT ON COLUMN sas.runs.error IS 'Why the run cannot go on: a problem object of RFC 9457; instance says '
                                    'where';

-- A step that has no row is waiting, ready when it stands in the queue, and
-- cancelled when its run has ended without it.
CREATE VIEW sas.steps WITH (security_barrier) AS
SELECT r.run_id, w.name AS step, w.position, nullif(e.element, 0) AS element,
       CASE w.kind WHEN 'join' THEN 'include' ELSE w.kind END AS kind, a.name AS agent,
       coalesce(s.state, CASE WHEN q.lane IS NOT NULL THEN 'ready' WHEN r.state = 'stopped'
                OR r.abandon_as IS NOT NULL THEN 'cancelled' ELSE 'waiting' END) AS state,
       coalesce(s.attempt, 0) AS attempt, coalesce(s.failure_count, 0) AS failure_count,
       CASE WHEN s.request_id IS NOT NULL
           THEN (SELECT l.locked_by FROM _sas.lease l WHERE l.lease_id = s.lease_id) END AS locked_by,
           s.complete_by,
       y.waiting_kind,
       CASE y.waiting_kind
           WHEN 'steps' THEN y.before
           WHEN 'signal' THEN w.shape #>> '{wait,signal}'
           WHEN 'child' THEN w.shape ->> 'workflow'
           WHEN 'fallback' THEN w.name || '.fallback'
           WHEN 'resume' THEN r.paused_by
           WHEN 'run' THEN (SELECT f.after_run::text FROM _sas.run_dependency f WHERE f.run_id = r.run_id)
           WHEN 'workflow_paused' THEN (SELECT f.name FROM _sas.deferred_run h JOIN _sas.workflow f
                                        USING (workflow_id) WHERE h.run_id = r.run_id)
           WHEN 'place' THEN (SELECT f.key FROM _sas.concurrency_slot f WHERE f.run_id = r.run_id AND p.sees)
           ELSE CASE WHEN y.waiting_kind IN ('reply', 'worker', 'cool_off', 'retry', 'poll')
               THEN coalesce((SELECT o.name FROM _sas.agent o WHERE o.agent_id = u.lane), u.function)
                     WHEN q.lane IS NOT NULL THEN d.name END END AS waiting_on,
       CASE WHEN y.waiting_kind = 'reply' THEN s.complete_by
            WHEN y.waiting_kind = 'start_at' THEN r.start_at
            WHEN y.waiting_kind IN ('breaker', 'rate') THEN d.until
            WHEN y.waiting_kind IN ('cool_off', 'retry', 'signal', 'timer', 'poll') THEN s.waiting_until
            WHEN y.waiting_kind = 'turn' THEN y.turn_at END AS waiting_until,
       CASE WHEN y.waiting_kind IS NULL OR y.waiting_kind IN ('steps', 'retry') THEN NULL
            WHEN y.waiting_kind = 'resume' THEN r.paused_at
            WHEN r.state = 'scheduled' THEN r.created_at
            WHEN y.waiting_kind = 'reply'
                THEN coalesce((SELECT h.claimed_at FROM _sas.external_slot h
                               WHERE h.request_id = s.request_id),
                              s.complete_by - coalesce(u.complete_in, _sas.complete_in()))
            WHEN y.waiting_kind IN ('cool_off', 'supervisor', 'undo') THEN s.finished_at
            WHEN q.lane IS NOT NULL THEN q.ready_at
            ELSE s.started_at END AS waiting_since,
       CASE WHEN p.sees THEN _sas.step_input(r.run_id, w.step_no, e.element) END AS input,
       CASE WHEN p.sees THEN s.output END AS output, CASE WHEN p.sees THEN s.error
           ELSE s.error - '{detail,hint,context}'::text[] END AS error,
       coalesce(s.in_doubt, false) AS in_doubt, s.started_at, s.finished_at,
       coalesce((SELECT k.key FROM _sas.override k WHERE k.run_id = r.run_id AND k.step_no = w.step_no
                 AND k.element = e.element),
                _sas.step_key(r.trace, w.name, e.element, false)) AS idempotency_key,
       CASE WHEN s.state IN ('succeeded', 'skipped') THEN 1.0
            ELSE coalesce((SELECT k.progress FROM _sas.task k WHERE k.run_id = r.run_id
                           AND k.step_no = w.step_no AND k.element = e.element AND NOT k.undo),
                          s.progress) END AS progress,
       CASE WHEN p.sees THEN s.started END AS started, s.asks, r.state AS run_state,
       CASE WHEN r.state = 'paused' AND r.abandon_as IS NULL
           AND s.state = 'failed' THEN _sas.suggests(r.run_id, w.step_no, e.element) END AS suggested
FROM _sas.run r
-- in an expression of the list it would have that computed where it is not asked for
CROSS JOIN (SELECT _sas.now() AS now OFFSET 0) c
CROSS JOIN LATERAL (SELECT _sas.sees_payload(r.owner) AS sees OFFSET 0) p
JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
                         -- a fallback is shown once it has begun
                         AND (NOT w.hidden OR w.shape ? 'stands_in')
CROSS JOIN LATERAL (SELECT 0 AS element
                    UNION ALL
                    SELECT i.element
                    FROM (SELECT x.element FROM _sas.step x WHERE x.run_id = r.run_id
                          AND x.step_no = w.step_no AND x.element > 0
                          UNION SELECT x.element FROM _sas.ready x WHERE x.run_id = r.run_id
                              AND x.step_no = w.step_no AND x.element > 0 AND NOT x.fresh) i
                    WHERE w.shape ?| '{each,repeat}') e
-- by the whole key: a run may have a hundred thousand elements. An include whose input cannot be made fails
-- at its open end
LEFT JOIN LATERAL (SELECT * FROM _sas.step x
                   WHERE x.run_id = r.run_id AND x.element = e.element
                     AND x.step_no = CASE WHEN w.kind = 'join'
                         AND EXISTS (SELECT FROM _sas.step o WHERE o.run_id = r.run_id
                                     AND o.step_no = w.scope_no AND o.element = 0 AND o.state = 'failed')
                                          THEN w.scope_no ELSE w.step_no END OFFSET 0) s ON true
LEFT JOIN LATERAL (SELECT x.lane, x.ready_at FROM _sas.ready x
                   WHERE r.state <> 'stopped' AND x.run_id = r.run_id AND x.step_no = w.step_no
                       AND x.element = e.element AND NOT x.fresh
                   UNION ALL
                   SELECT x.lane, x.ready_at FROM _sas.ready x
                   WHERE r.state = 'pending' AND x.lane = w.lane AND x.rank = r.created_at
                       AND x.run_id = r.run_id AND x.step_no = w.step_no AND x.element = e.element
                       AND x.fresh) q ON true
LEFT JOIN _sas.agent a ON a.agent_id = w.lane
-- of the lane that it stands in, or will; beside q alone the planner would look through all doors for each
-- step
LEFT JOIN _sas.limits() d ON d.lane = coalesce(q.lane, w.lane)
-- what is being done: the step, or its undo
CROSS JOIN LATERAL (SELECT CASE s.state WHEN 'compensating' THEN o.lane ELSE w.lane END AS lane, CASE s.state
                    WHEN 'compensating' THEN o.function ELSE w.function END AS function,
                           CASE s.state WHEN 'compensating' THEN o.complete_in
                               ELSE w.complete_in END AS complete_in
                    FROM (SELECT) one LEFT JOIN _sas.workflow_step o ON s.state = 'compensating'
                        AND o.version_id = r.version_id AND o.step_no = w.step_no AND o.undo OFFSET 0) u
CROSS JOIN LATERAL (
    SELECT CASE WHEN r.state = 'stopped' THEN NULL
                WHEN s.request_id IS NOT NULL THEN 'reply'
                WHEN s.waiting_kind = 'agent' THEN 'retry'
                WHEN s.waiting_kind = 'elements' AND n.turn_at IS NOT NULL THEN 'turn'
                WHEN s.waiting_kind IS NOT NULL THEN s.waiting_kind
                WHEN r.state = 'paused' AND (coalesce(s.state, CASE
                                                      WHEN r.abandon_as IS NULL
                                                          THEN 'waiting' END) IN ('waiting',
                                'ready', 'compensating') OR s.state = 'failed'
                                             AND (r.abandon_as IS NULL OR s.in_doubt)) THEN 'resume'
                WHEN q.lane = 0 THEN 'worker'
                WHEN q.lane IS NOT NULL THEN coalesce(d.kind, 'scheduler')
                WHEN coalesce(s.state, 'waiting') = 'waiting' AND r.abandon_as IS NULL
                THEN CASE WHEN n.before IS NOT NULL
                    OR w.step_no = (SELECT v.finalize_no FROM _sas.workflow_version v
                                    WHERE v.version_id = r.version_id AND v.step_count > 0) THEN 'steps'
                          WHEN r.state <> 'scheduled' THEN 'scheduler'
                          -- as sas.runs.waits_for has it
                          WHEN EXISTS (SELECT FROM _sas.run_dependency f
                                       JOIN _sas.run o ON o.run_id = f.after_run
                                       WHERE f.run_id = r.run_id AND o.state <> 'stopped') THEN 'run'
                          WHEN r.start_at > c.now THEN 'start_at'
                          WHEN EXISTS (SELECT FROM _sas.deferred_run h JOIN _sas.workflow f
                                       USING (workflow_id)
                                       WHERE h.run_id = r.run_id AND f.paused_at IS NOT NULL)
                              THEN 'workflow_paused'
                          WHEN EXISTS (SELECT FROM _sas.concurrency_slot f WHERE f.run_id = r.run_id
                                       AND f.state = 'waits') THEN 'place'
                          ELSE 'scheduler' END
                WHEN s.state = 'compensating' THEN CASE w.kind WHEN 'workflow' THEN 'child'
                    ELSE 'scheduler' END
                WHEN s.state = 'ready' THEN 'scheduler'
                -- as _sas.to_undo has it
                WHEN r.abandon_as <> 'fail' AND (s.state = 'succeeded' OR s.state IN ('failed', 'skipped')
                                           AND (s.in_doubt OR s.asks IS NOT NULL)
                                           AND NOT (s.state = 'skipped'
                                                    AND coalesce(s.error ->> 'type'
                                                           = 'urn:sas:left-standing', false)))
                                               AND NOT (e.element = 0
                                                        AND coalesce(w.shape ?| '{each,repeat}', false))
                     AND NOT coalesce(w.shape ? 'fallback' AND s.state = 'succeeded'
                                      AND EXISTS (SELECT FROM _sas.step o WHERE o.run_id = r.run_id
                                                  AND o.step_no = (w.shape #>> '{fallback,no}')::int
                                                  AND o.element = e.element AND o.completion IS NOT NULL),
                                          false)
                     AND EXISTS (SELECT FROM _sas.workflow_step o WHERE o.version_id = r.version_id
                                 AND o.step_no = w.step_no AND o.undo) THEN 'undo' END AS waiting_kind,
           n.before, n.turn_at
    FROM (SELECT CASE WHEN w.needs > 0 AND q.lane IS NULL AND coalesce(s.state, 'waiting') = 'waiting'
          AND r.abandon_as IS NULL AND r.state NOT IN ('stopped', 'paused')
                      THEN (SELECT string_agg(_sas.shown_name(fw.name), ', ' ORDER BY fw.name)
                            FROM _sas.workflow_edge g
                            JOIN _sas.workflow_step fw ON fw.version_id = g.version_id
                                AND fw.step_no = g.from_no AND NOT fw.undo
                            LEFT JOIN LATERAL (SELECT x.state FROM _sas.step x WHERE x.run_id = r.run_id
                                               AND x.step_no = g.from_no AND x.element = 0 OFFSET 0) fs
                                ON true
                            WHERE g.version_id = r.version_id AND g.to_no = w.step_no
                                AND coalesce(fs.state, 'waiting') NOT IN ('succeeded',
                                        'skipped')) END AS before,
                 CASE WHEN s.waiting_kind = 'elements' AND w.shape #> '{repeat,every}' IS NOT NULL
                      THEN (SELECT coalesce(t.finished_at, c.now) + (w.shape #>> '{repeat,every}')::interval
                            FROM _sas.map_progress f JOIN _sas.step t ON t.run_id = f.run_id
                                AND t.step_no = f.step_no
                                AND t.element = f.total
                            WHERE f.run_id = r.run_id AND f.step_no = w.step_no
                                AND f.remaining = 0) END AS turn_at OFFSET 0) n OFFSET 0) y
WHERE (p.sees OR (SELECT _sas.sees_all())) AND r.hook_of IS NULL
  AND NOT coalesce(w.shape ? 'stands_in' AND s.run_id IS NULL AND q.lane IS NULL, false);
COMMENT ON VIEW sas.steps IS 'One row per step of each run: state, who holds it until when, and what it '
                             'waits for.';
COMMENT ON COLUMN sas.steps.position IS 'From 1 on, in an order in which steps can follow: by how many '
                                        'come before a step at most, then as the flow lists it, then by '
                                        'name. finalize is the last; a fallback has that of its step';
COMMENT ON COLUMN sas.steps.waiting_kind IS 'Why it does not go on just now, null when it has ended. These '
                                            'group: one query tells what thousands of runs wait for; '
                                            'sas.explain tells it of one run in words';
COMMENT ON COLUMN sas.steps.waiting_on IS 'Whom or what it waits for: the agent or function, steps, signal, '
                                          'queue, workflow, earlier run, key, or who paused the run';
COMMENT ON COLUMN sas.steps.waiting_until IS 'When that is over by itself, where this is known';
COMMENT ON COLUMN sas.steps.waiting_since IS 'Since when, where this is known';
COMMENT ON COLUMN sas.steps.run_state IS 'The state of its run';
COMMENT ON COLUMN sas.steps.progress IS 'From 0 to 1, as far as the worker of a task, or the progress of a '
                                        'poll, has told; 1 once the step has succeeded';
COMMENT ON COLUMN sas.steps.started IS 'Of a poll: the reply to its call';
COMMENT ON COLUMN sas.steps.asks IS 'Of a poll: how often it was answered that it is not over yet; not null '
                                    'since its call has succeeded';
COMMENT ON COLUMN sas.steps.suggested IS 'Of a failed step in a paused run: what on_failure says: '
                                         'compensate, pause, skip or fail';
COMMENT ON COLUMN sas.steps.in_doubt IS 'A call was made and nobody knows whether it did anything';

CREATE VIEW sas.attempts WITH (security_barrier) AS
SELECT t.run_id, w.name AS step, w.position, nullif(t.element, 0) AS element, t.attempt, t.undo,
       a.name AS agent, t.worker, t.status, t.http_status,
       CASE WHEN _sas.sees_payload(r.owner) THEN t.error
            ELSE t.error - '{detail,hint,context}'::text[] END AS error,
       t.started_at, t.finished_at
FROM _sas.attempt t
JOIN _sas.run r ON r.run_id = t.run_id
JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND NOT w.undo
LEFT JOIN _sas.agent a ON a.agent_id = t.agent_id
WHERE (SELECT _sas.sees_all()) OR pg_has_role(current_user, r.owner, 'MEMBER')
UNION ALL
SELECT s.run_id, w.name, w.position, nullif(s.element, 0), s.attempt, false, a.name, NULL, 'succeeded',
       CASE WHEN w.kind = 'call' AND w.output IS NULL THEN (s.output ->> 'status')::int END, NULL,
       s.started_at, s.finished_at
FROM _sas.step s
JOIN _sas.run r ON r.run_id = s.run_id
JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
LEFT JOIN _sas.agent a ON a.agent_id = w.lane
WHERE s.completion IS NOT NULL AND s.attempt = 1 AND s.asks IS NULL AND s.state = 'succeeded'
  -- what its fallback did is told by that
  AND NOT coalesce(w.shape ? 'fallback'
                   AND EXISTS (SELECT FROM _sas.step f WHERE f.run_id = s.run_id
                               AND f.step_no = (w.shape #>> '{fallback,no}')::int AND f.element = s.element
                               AND f.completion IS NOT NULL), false)
  AND ((SELECT _sas.sees_all()) OR pg_has_role(current_user, r.owner, 'MEMBER'));
COMMENT ON VIEW sas.attempts IS 'One row per try of a step or of its undo: status is succeeded, failed, '
                                'timed_out or lost.';

CREATE VIEW sas.agents WITH (security_barrier) AS
SELECT a.name, a.kind, a.base_url, a.enabled, CASE a.kind
    WHEN 'external' THEN (SELECT count(*) FROM _sas.external_slot h WHERE h.agent_id = a.agent_id
                          AND h.request_id IS NOT NULL)::int
    ELSE coalesce(p.in_flight, 0) END AS in_flight, a.max_in_flight, a.rate_limit,
       -- an open one whose time is over lets the next claim through as a probe
       CASE WHEN a.kind = 'external' THEN NULL WHEN p.breaker = 'open' AND p.open_for_ms = 0 THEN 'half-open'
           ELSE coalesce(p.breaker, h.breaker, 'closed') END AS breaker,
       CASE WHEN coalesce(p.breaker, h.breaker) = 'open' THEN h.open_until END AS open_until,
       (SELECT count(*) FROM _sas.ready q WHERE q.lane = a.agent_id) AS waiting,
       -- what the service answered to somebody's call is for those who may read all payload
       CASE WHEN h.last_error IS NULL OR (SELECT _sas.sees_payload(10::oid)) THEN h.last_error
           ELSE jsonb_strip_nulls(jsonb_build_object('title', h.last_error -> 'title', 'status',
                                                     h.last_error -> 'status')) END AS last_error,
       h.last_error_at, coalesce(h.stale_replies, 0) AS stale_replies, a.request_timeout, a.retry,
           a.created_at
FROM _sas.agent a
LEFT JOIN _sas.agent_health h USING (agent_id)
LEFT JOIN _sas.limit_entries() p ON p.agent_id = a.agent_id
WHERE a.dropped_at IS NULL;
COMMENT ON VIEW sas.agents IS 'Agents: address, limits, calls on their way or tasks that are held, steps '
                              'that wait, breaker and last error.';

CREATE VIEW sas.queues WITH (security_barrier) AS
SELECT u.name, u.max_running, (SELECT count(*) FROM _sas.queue_slot p
                               WHERE p.queue_id = u.queue_id) AS running,
       (SELECT count(*) FROM _sas.ready q WHERE q.lane = -u.queue_id) AS waiting, u.paused_at, u.created_at
FROM _sas.queue u WHERE u.dropped_at IS NULL;
COMMENT ON VIEW sas.queues IS 'Named queues: how many steps may run at once, how many have a place, how many '
                              'wait, since when it is paused.';

CREATE VIEW sas.workers WITH (security_barrier) AS
SELECT w.pid, w.actor, w.database, w.leader, w.in_flight, w.started_at, w.last_activity_at
FROM _sas.all_workers() w WHERE w.database = current_database();
COMMENT ON VIEW sas.workers IS 'The background workers of this database.';

CREATE VIEW sas.alerts WITH (security_barrier) AS
SELECT l.alert_id, l.kind, a.name AS agent, l.run_id, replace(w.name, '.(input)', '') AS step,
    CASE WHEN _sas.sees_payload(coalesce(r.owner, 10)) THEN coalesce(l.private_message, l.message)
    ELSE l.message END AS message, l.occurrences, l.created_at, l.last_at, l.acknowledged_at,
    l.acknowledged_by, l.closed_at
FROM _sas.alert l
LEFT JOIN _sas.agent a ON a.agent_id = l.agent_id
LEFT JOIN _sas.run r ON r.run_id = l.run_id
LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = l.step_no AND NOT w.undo
WHERE (SELECT _sas.sees_all()) OR pg_has_role(current_user, r.owner, 'MEMBER');
COMMENT ON VIEW sas.alerts IS 'What an operator should see: one row per cause, with a count. LISTEN '
                              'sas_alert tells of new ones.';
COMMENT ON COLUMN sas.alerts.closed_at IS 'When its cause ended; null: it lasts, or nobody can see its end '
                                          'and nobody has acknowledged it';

CREATE VIEW sas.history WITH (security_barrier) AS
SELECT h.run_id, h.at, h.role, h.act, h.step, h.detail
FROM _sas.operator_action h LEFT JOIN _sas.run r ON r.run_id = h.run_id
WHERE (SELECT _sas.sees_all()) OR pg_has_role(current_user, r.owner, 'MEMBER');
COMMENT ON VIEW sas.history IS 'What operators did: who, when, which verb. run_id is null for what is about '
                               'an agent, a workflow, a queue or an alert; detail says which.';

CREATE VIEW sas.watchers WITH (security_barrier) AS
SELECT d.name AS watcher, d.kind, a.name AS agent, pg_get_userbyid(d.owner) AS owner, d.definition,
       (SELECT count(*) FROM _sas.watch w WHERE w.watcher_id = d.watcher_id
        AND w.state <> 'deleted') AS watches, d.created_at, d.changed_at
FROM _sas.watcher d LEFT JOIN _sas.agent a ON a.agent_id = d.lane
WHERE pg_has_role(current_user, d.owner, 'MEMBER') OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.watchers IS 'Definitions of infinite tasks, and how many tasks of each there are.';

CREATE VIEW sas.watches WITH (security_barrier) AS
SELECT w.watch_id, d.name AS watcher, w.key, w.state, n.name AS node, h.node_id, w.since, w.restarts,
    g.items, f.items - g.items AS waiting, f.last_item_at,
       CASE WHEN e.of_host THEN f.failures ELSE g.failures END AS failures,
       CASE WHEN p.sees THEN e.error ELSE e.error - '{detail,hint,context}'::text[] END AS last_error, CASE
           WHEN e.of_host THEN f.last_error_at ELSE g.last_error_at END AS last_error_at,
       CASE WHEN w.state IN ('created', 'processing', 'on_deleting')
           THEN (SELECT x.at FROM (SELECT CASE WHEN e.of_host THEN f.retry_at ELSE g.retry_at END AS at) x
                 WHERE x.at > _sas.now()) END AS retry_at,
       CASE WHEN p.sees THEN f.cursor END AS cursor, CASE
           WHEN p.sees THEN w.input END AS input, pg_get_userbyid(w.owner) AS owner, w.epoch, w.moving,
           w.created_at, w.changed_at
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
WHERE p.sees OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.watches IS 'Infinite tasks: state, the node that hosts them and since when, how often '
                               'they were given to another, how many items were brought to their target and '
                               'how many wait, last error and cursor.';
COMMENT ON COLUMN sas.watches.failures IS 'One after the other, of what failed last: taking items in, or '
                                          'bringing them to their target';

CREATE VIEW sas.nodes WITH (security_barrier) AS
SELECT n.node_id, n.name, n.kind, n.version, n.capacity, x.watches,
    greatest(0, n.capacity - x.watches) AS free,
       ARRAY(SELECT a.name FROM _sas.agent a WHERE a.agent_id = ANY (n.lanes) ORDER BY a.name) AS agents,
       n.pid, n.created_at, n.modified_at, n.lease_until, n.ended_at IS NOT NULL AS is_deleted, n.ended_at,
           n.ended_for
FROM _sas.node n
CROSS JOIN LATERAL (SELECT count(*) AS watches FROM _sas.watch_held h WHERE h.node_id = n.node_id) x
WHERE (SELECT _sas.sees_all()) OR n.role IS NULL OR pg_has_role(current_user, n.role, 'MEMBER');
COMMENT ON VIEW sas.nodes IS 'Processes that host infinite tasks: workers of this server and outside '
                             'programs, with what they can host and do. Those that have ended stay for a '
                             'day, or until their name comes back.';

CREATE VIEW sas.transitions AS
SELECT t.subject, t.from_state, t.to_state, t.comment FROM _sas.transition t;
COMMENT ON VIEW sas.transitions IS 'Which state may follow which, for runs, steps and infinite tasks, and '
                                   'why.';

CREATE VIEW sas.subscriptions WITH (security_barrier) AS
SELECT w.name AS workflow, t.name AS to_workflow, s.input, pg_get_userbyid(s.created_by) AS created_by,
    s.created_at
FROM _sas.subscription s JOIN _sas.workflow w ON w.workflow_id = s.workflow_id
JOIN _sas.workflow t ON t.workflow_id = s.to_workflow_id
WHERE pg_has_role(current_user, t.owner, 'MEMBER') OR (SELECT _sas.sees_all());
COMMENT ON VIEW sas.subscriptions IS 'Which workflow is planned along with which.';

CREATE VIEW sas.middlewares AS
SELECT m.phase, m.place, m.name, w.name AS workflow, m.before_function AS before, m.after_function AS after,
    m.goes_before, m.goes_after, m.replaces, pg_get_userbyid(m.created_by) AS created_by, m.created_at
FROM _sas.middleware m LEFT JOIN _sas.workflow w USING (workflow_id);
COMMENT ON VIEW sas.middlewares IS 'Functions around the phases of runs; place 1 is the outermost of its '
                                   'phase.';

CREATE VIEW sas.settings AS
SELECT s.name, s.setting, s.unit, s.boot_val AS default_setting,
       CASE s.context WHEN 'postmaster' THEN 'at restart' WHEN 'sighup' THEN 'at reload'
       WHEN 'superuser' THEN 'at once, for superusers' ELSE 'at once' END AS takes_effect,
       s.pending_restart, s.short_desc AS description
FROM pg_settings s WHERE s.name LIKE 'sas.%' ORDER BY s.name;
COMMENT ON VIEW sas.settings IS 'The settings of sas by name, as this session sees them.';
COMMENT ON COLUMN sas.settings.default_setting IS 'What holds where nothing is set, in the same unit';
COMMENT ON COLUMN sas.settings.takes_effect IS 'When a change takes effect: at restart or at reload of the '
                                               'server, or at once by SET';
COMMENT ON COLUMN sas.settings.pending_restart IS 'It was changed in the configuration, and the server was '
                                                  'not restarted since';

-- A hook that is a function or call is a run with one step; sas.runs and sas.steps leave it out.
CREATE VIEW sas.hook_runs WITH (security_barrier) AS
SELECT nullif(r.hook_of, 0) AS run_id, w.name AS workflow, h.hook_no AS hook, r.run_id AS hook_run_id,
    coalesce(ws.function, a.name) AS target,
       r.input ->> 'state' AS told_state, r.input ->> 'result' AS told_result, r.state, r.result,
           coalesce(s.attempt, 0) AS attempt, coalesce(s.failure_count, 0) AS failure_count,
       s.waiting_until, CASE WHEN p.sees THEN s.output END AS output, CASE
           WHEN p.sees THEN coalesce(s.error, r.error)
           ELSE coalesce(s.error, r.error) - '{detail,hint,context}'::text[] END AS error,
       r.created_at, r.started_at, r.finished_at
FROM _sas.run r
JOIN _sas.workflow_hook h ON h.hook_version_id = r.version_id
JOIN _sas.workflow_version v ON v.version_id = r.version_id
JOIN _sas.workflow w ON w.workflow_id = v.workflow_id
JOIN _sas.workflow_step ws ON ws.version_id = r.version_id AND ws.step_no = 1 AND NOT ws.undo
LEFT JOIN _sas.agent a ON a.agent_id = ws.lane
LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = 1 AND s.element = 0
CROSS JOIN LATERAL (SELECT _sas.sees_payload(r.owner) AS sees OFFSET 0) p
WHERE (p.sees OR (SELECT _sas.sees_all())) AND r.hook_of IS NOT NULL;
COMMENT ON VIEW sas.hook_runs IS 'One row per function or call of a hook: which change it tells of, how '
                                 'often it was tried, how it ended. sas.attempts has its tries under '
                                 'hook_run_id.';

CREATE VIEW sas.run_details WITH (security_barrier) AS
SELECT r.run_id AS runid, r.workflow, CASE WHEN r.state <> 'stopped' THEN CASE r.state
    WHEN 'pending' THEN 'starting' ELSE r.state END
                                           WHEN r.result IN ('success', 'warning') THEN 'succeeded'
                                               ELSE 'failed' END AS status,
       coalesce(r.error ->> 'title', r.result, r.paused_for) AS return_message, r.started_at AS start_time,
           r.finished_at AS end_time
FROM sas.runs r;
COMMENT ON VIEW sas.run_details IS 'Runs under the column names of cron.job_run_details, for dashboards made '
                                   'for that.';

CREATE FUNCTION sas.health(OUT workers_loaded boolean, OUT launcher_pid int, OUT workers int,
                           OUT slots_missing int, OUT leader_pid int,
                           OUT runs_open bigint, OUT runs_paused bigint, OUT steps_ready bigint,
                               OUT oldest_ready_at timestamptz, OUT breakers_open bigint,
                           OUT alerts_open bigint, OUT in_recovery boolean, OUT version text, OUT ok boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT l.loaded, l.launcher_pid, l.slots_missing INTO workers_loaded, launcher_pid, slots_missing
    FROM _sas.launcher_state() l;
    SELECT count(*), min(w.pid) FILTER (WHERE w.leader AND w.actor = 'supervisor') INTO workers, leader_pid
    FROM sas.workers w;
    SELECT count(*), count(*) FILTER (WHERE o.state = 'paused') INTO runs_open, runs_paused
    FROM _sas.open_runs() o;
    SELECT count(*), min(q.ready_at) INTO steps_ready, oldest_ready_at FROM _sas.ready q;
    SELECT count(*) INTO breakers_open FROM sas.agents a WHERE a.breaker <> 'closed';
    SELECT count(*) INTO alerts_open FROM _sas.alert a WHERE a.closed_at IS NULL
        AND a.acknowledged_at IS NULL;
    in_recovery := pg_is_in_recovery();
    SELECT e.extversion INTO version FROM pg_extension e WHERE e.extname = 'sas';
    ok := workers_loaded AND launcher_pid IS NOT NULL AND workers > 0 AND slots_missing = 0
        AND breakers_open = 0 AND alerts_open = 0;
END $$;
COMMENT ON FUNCTION sas.health IS 'One row for a monitor: are the workers there, what is open, what waits, '
                                  'what an operator should look at.';
