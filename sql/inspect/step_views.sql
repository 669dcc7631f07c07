-- SPDX-License-Identifier: PostgreSQL
--
-- Views of steps and attempts, with the rights of sas.runs (run_views.sql).

-- A step without a row is waiting; it is ready if it is in the queue, and cancelled if its run has ended
-- without it.
CREATE VIEW sas.steps WITH (security_barrier) AS
SELECT r.run_id, w.name AS step, w.position, e.shown AS element,
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
           WHEN 'signal' THEN btrim(replace(u.shape #>> '{wait,signal}', '", "', ' or '), '["]')
           WHEN 'child' THEN u.shape ->> 'workflow'
           WHEN 'fallback' THEN w.name || '.fallback'
           WHEN 'resume' THEN r.paused_by
           WHEN 'run' THEN (SELECT string_agg(f.after_run::text, ', ' ORDER BY f.after_run)
                            FROM _sas.run_dependency f JOIN _sas.run o ON o.run_id = f.after_run
                            WHERE f.run_id = r.run_id AND o.state <> 'stopped')
           WHEN 'workflow_paused' THEN (SELECT f.name FROM _sas.deferred_run h JOIN _sas.workflow f
                                        USING (workflow_id) WHERE h.run_id = r.run_id)
           WHEN 'place' THEN (SELECT string_agg(f.key, ', ' ORDER BY f.rule_no) FROM _sas.concurrency_slot f
                              WHERE f.run_id = r.run_id AND p.sees)
           WHEN 'function_workers' THEN pg_get_userbyid(r.owner)
           ELSE CASE WHEN y.waiting_kind IN ('reply', 'answered', 'worker', 'cool_off', 'retry', 'poll')
               THEN coalesce((SELECT o.name FROM _sas.agent o WHERE o.agent_id = u.lane), u.function)
                     WHEN q.lane IS NOT NULL THEN d.name END END AS waiting_on,
       CASE WHEN y.waiting_kind = 'reply' THEN s.complete_by
            WHEN y.waiting_kind = 'start_at' THEN r.start_at
            WHEN y.waiting_kind IN ('breaker', 'rate') THEN d.until
            WHEN y.waiting_kind IN ('cool_off', 'retry', 'signal', 'timer', 'poll') THEN s.waiting_until
            WHEN y.waiting_kind = 'turn' THEN y.iteration_at
            WHEN y.waiting_kind = 'aside' THEN y.aside_until END AS waiting_until,
       CASE WHEN y.waiting_kind IS NULL OR y.waiting_kind IN ('steps', 'retry') THEN NULL
            WHEN y.waiting_kind = 'resume' THEN r.paused_at
            WHEN r.state = 'scheduled' THEN r.created_at
            WHEN y.waiting_kind = 'reply'
                THEN coalesce((SELECT h.claimed_at FROM _sas.external_slot h
                               WHERE h.request_id = s.request_id),
                              s.complete_by - coalesce(u.complete_in, _sas.complete_in()))
            WHEN y.waiting_kind = 'answered'
                THEN (SELECT h.arrived_at FROM _sas.answer h
                      WHERE h.run_id = r.run_id AND h.step_no = w.step_no AND h.element = e.element
                        AND h.request_id = s.request_id)
            WHEN y.waiting_kind IN ('cool_off', 'supervisor', 'undo') THEN s.finished_at
            WHEN q.lane IS NOT NULL THEN q.ready_at
            ELSE s.started_at END AS waiting_since,
       CASE WHEN p.sees THEN _sas.step_input(r.run_id, w.step_no, e.element) END AS input,
       CASE WHEN p.hides
           THEN _sas.masked_part(s.output, p.mask, w.name, 'output',
                                 w.scope_no IS NOT NULL AND w.kind <> 'join')
           WHEN p.sees THEN s.output END AS output, CASE WHEN p.sees AND NOT p.hides THEN s.error
           ELSE _sas.public_error(s.error) END AS error,
       coalesce(s.in_doubt, false) AS in_doubt, s.started_at, s.finished_at,
       coalesce((SELECT k.key FROM _sas.override k WHERE k.run_id = r.run_id AND k.step_no = w.step_no
                 AND k.element = e.element),
                _sas.step_key(r.trace, w.name, e.element, false)) AS idempotency_key,
       CASE WHEN s.state IN ('succeeded', 'skipped') THEN 1.0
            ELSE coalesce((SELECT k.progress FROM _sas.task k WHERE k.run_id = r.run_id
                           AND k.step_no = w.step_no AND k.element = e.element AND NOT k.undo),
                          s.progress) END AS progress,
       CASE WHEN p.hides
           THEN _sas.masked_part(s.started, p.mask, w.name, 'started',
                                 w.scope_no IS NOT NULL AND w.kind <> 'join')
           WHEN p.sees THEN s.started END AS started,
       CASE s.state WHEN 'compensating' THEN coalesce((SELECT g.asks FROM _sas.phase g
                                                       WHERE g.run_id = r.run_id AND g.step_no = w.step_no
                                                         AND g.element = e.element AND g.undo
                                                         AND g.stage = 'poll'), s.asks)
           ELSE s.asks END AS asks, r.state AS run_state,
       CASE WHEN r.state = 'paused' AND r.abandon_as IS NULL
           AND s.state = 'failed' THEN _sas.suggests(r.run_id, w.step_no, e.element) END AS suggested
FROM _sas.run r
-- in an expression of the list it would be computed even if the query does not ask for it
CROSS JOIN (SELECT sas.now() AS now OFFSET 0) c
CROSS JOIN LATERAL (SELECT x.sees, x.sees AND _sas.hides(x.mask, r.owner) AS hides, x.mask
                    FROM (SELECT _sas.sees_payload(r.owner) AS sees,
                                 (SELECT v.mask FROM _sas.workflow_version v
                                  WHERE v.version_id = r.version_id) AS mask OFFSET 0) x OFFSET 0) p
JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
                         -- a fallback is shown once it has begun
                         AND (NOT w.hidden OR w.shape ? 'stands_in')
-- shown: a condition of the reader on it becomes a condition on the indexes
CROSS JOIN LATERAL (SELECT 0 AS element, NULL::int AS shown
                    UNION ALL
                    SELECT i.element, i.element
                    FROM (SELECT x.element FROM _sas.step x WHERE x.run_id = r.run_id
                          AND x.step_no = w.step_no AND x.element > 0
                          UNION SELECT x.element FROM _sas.ready x WHERE x.run_id = r.run_id
                              AND x.step_no = w.step_no AND x.element > 0) i
                    WHERE w.shape ?| '{each,repeat}') e
-- by the whole key: a run may have a hundred thousand elements. If the input of an include cannot be built,
-- its opening step fails
LEFT JOIN LATERAL (SELECT * FROM _sas.step x
                   WHERE x.run_id = r.run_id AND x.element = e.element
                     AND x.step_no = CASE WHEN w.kind = 'join'
                         AND EXISTS (SELECT FROM _sas.step o WHERE o.run_id = r.run_id
                                     AND o.step_no = w.scope_no AND o.element = 0 AND o.state = 'failed')
                                          THEN w.scope_no ELSE w.step_no END OFFSET 0) s ON true
LEFT JOIN LATERAL (SELECT x.lane, x.ready_at FROM _sas.ready x
                   WHERE r.state <> 'stopped' AND x.run_id = r.run_id AND x.step_no = w.step_no
                       AND x.element = e.element OFFSET 0) q ON true
LEFT JOIN _sas.agent a ON a.agent_id = w.lane
-- the lane that the step is in, or will be in; with q alone the planner would scan all limits for each step
LEFT JOIN _sas.lane_limits() d ON d.lane = coalesce(q.lane, w.lane)
-- what is in progress: the step, or its undo
CROSS JOIN LATERAL (SELECT CASE s.state WHEN 'compensating' THEN o.lane ELSE w.lane END AS lane, CASE s.state
                    WHEN 'compensating' THEN o.function ELSE w.function END AS function,
                           CASE s.state WHEN 'compensating' THEN o.complete_in
                               ELSE w.complete_in END AS complete_in,
                           CASE s.state WHEN 'compensating' THEN o.shape ELSE w.shape END AS shape
                    FROM (SELECT) one LEFT JOIN _sas.workflow_step o ON s.state = 'compensating'
                        AND o.version_id = r.version_id AND o.step_no = w.step_no AND o.undo OFFSET 0) u
CROSS JOIN LATERAL (
    SELECT CASE WHEN r.state = 'stopped' THEN NULL
                WHEN s.request_id IS NOT NULL
                THEN CASE WHEN EXISTS (SELECT FROM _sas.answer h
                                       WHERE h.run_id = r.run_id AND h.step_no = w.step_no
                                         AND h.element = e.element AND h.request_id = s.request_id)
                          THEN 'answered' ELSE 'reply' END
                WHEN s.waiting_kind = 'agent' THEN 'retry'
                WHEN s.waiting_kind = 'elements' AND n.iteration_at IS NOT NULL THEN 'turn'
                WHEN s.waiting_kind IS NOT NULL THEN s.waiting_kind
                WHEN r.state = 'paused' AND (coalesce(s.state, CASE
                                                      WHEN r.abandon_as IS NULL
                                                          THEN 'waiting' END) IN ('waiting',
                                'ready', 'compensating') OR s.state = 'failed'
                                             AND (r.abandon_as IS NULL OR s.in_doubt)) THEN 'resume'
                WHEN q.lane < 0 AND n.aside_until IS NOT NULL THEN 'aside'
                WHEN q.lane = 0 THEN CASE WHEN r.owner::oid IN (SELECT _sas.full_owners())
                    THEN 'function_workers' ELSE 'worker' END
                WHEN d.kind = 'agent' AND q.lane > 0 AND _sas.lacks_slots(q.lane, r.owner) THEN 'role_slots'
                WHEN q.lane IS NOT NULL THEN coalesce(d.kind, 'scheduler')
                WHEN coalesce(s.state, 'waiting') = 'waiting' AND r.abandon_as IS NULL
                THEN CASE WHEN n.before IS NOT NULL
                    OR w.step_no = (SELECT v.finalize_no FROM _sas.workflow_version v
                                    WHERE v.version_id = r.version_id AND v.step_count > 0) THEN 'steps'
                          WHEN e.element > 0 THEN 'map_slot'
                          WHEN r.state <> 'scheduled' THEN 'scheduler'
                          -- as in sas.runs.waits_for
                          WHEN EXISTS (SELECT FROM _sas.run_dependency f
                                       JOIN _sas.run o ON o.run_id = f.after_run
                                       WHERE f.run_id = r.run_id AND o.state <> 'stopped') THEN 'run'
                          WHEN r.start_at > c.now THEN 'start_at'
                          WHEN EXISTS (SELECT FROM _sas.deferred_run h JOIN _sas.workflow f
                                       USING (workflow_id)
                                       WHERE h.run_id = r.run_id AND f.paused_at IS NOT NULL)
                              THEN 'workflow_paused'
                          WHEN EXISTS (SELECT FROM _sas.concurrency_slot f WHERE f.run_id = r.run_id
                                       AND (f.state = 'waits' OR f.told)) THEN 'place'
                          ELSE 'scheduler' END
                WHEN s.state = 'compensating' THEN CASE w.kind WHEN 'workflow' THEN 'child'
                    ELSE 'scheduler' END
                WHEN s.state = 'ready' THEN 'scheduler'
                -- as in _sas.to_undo
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
           n.before, n.iteration_at, n.aside_until
    FROM (SELECT CASE WHEN q.lane < 0
                      THEN (SELECT k.until FROM _sas.deferred_work k
                            WHERE k.kind = CASE q.lane WHEN _sas.late_lane() THEN 'claim' ELSE 'queue' END
                                AND k.id = r.run_id) END AS aside_until,
                 CASE WHEN w.needs > 0 AND q.lane IS NULL AND coalesce(s.state, 'waiting') = 'waiting'
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
                                AND f.remaining = 0) END AS iteration_at OFFSET 0) n OFFSET 0) y
WHERE (p.sees OR (SELECT _sas.sees_all())) AND r.hook_of IS NULL
  AND NOT coalesce(w.shape ? 'stands_in' AND s.run_id IS NULL AND q.lane IS NULL, false);
COMMENT ON VIEW sas.steps IS
    'One row per step of each run: its state, which worker holds it until when, and what it waits for.';
COMMENT ON COLUMN sas.steps.position IS
    'From 1 on, in an order in which steps can follow: by the length of the longest path to it, then as the '
    'flow lists it, then by name. finalize is the last; a fallback has the position of its step';
COMMENT ON COLUMN sas.steps.waiting_kind IS
    'Why it does not go on now; null if it has ended. Use it for GROUP BY: one query shows what thousands '
    'of runs wait for; sas.explain says it in words for one run';
COMMENT ON COLUMN sas.steps.waiting_on IS
    'What it waits for: the agent or function, steps, signal, queue, workflow, earlier run, key, or the '
    'role that paused the run';
COMMENT ON COLUMN sas.steps.waiting_until IS 'When that ends by itself, if it is known';
COMMENT ON COLUMN sas.steps.waiting_since IS 'Since when, if it is known';
COMMENT ON COLUMN sas.steps.run_state IS 'The state of its run';
COMMENT ON COLUMN sas.steps.progress IS
    'From 0 to 1, as the worker of a task, or the progress of a poll, has reported it; 1 once the step has '
    'succeeded';
COMMENT ON COLUMN sas.steps.started IS 'For a poll: the reply to its call';
COMMENT ON COLUMN sas.steps.asks IS
    'For a poll, of the step or of its undo: how often the service has answered "not finished yet"; not null '
    'once its call has succeeded';
COMMENT ON COLUMN sas.steps.suggested IS
    'For a failed step in a paused run: what on_failure says: compensate, pause, skip or fail';
COMMENT ON COLUMN sas.steps.in_doubt IS
    'A call was made, and it is unknown whether it was carried out; or a child run has done its work, which '
    'is not what was expected';

-- The union is inside of the view: a view that is a union itself is flattened by the planner, and its barrier
-- is gone. Then a condition of the reader would be evaluated on rows of others.
CREATE VIEW sas.attempts WITH (security_barrier) AS
SELECT u.* FROM (
SELECT t.run_id, w.name AS step, w.position, nullif(t.element, 0) AS element, t.attempt, t.undo,
       a.name AS agent, t.worker, t.status, t.http_status,
       CASE WHEN _sas.sees_payload(r.owner)
            AND NOT _sas.hides((SELECT v.mask FROM _sas.workflow_version v
                                WHERE v.version_id = r.version_id), r.owner) THEN t.error
            ELSE _sas.public_error(t.error) END AS error,
       t.started_at, t.finished_at
FROM _sas.attempt t
JOIN _sas.run r ON r.run_id = t.run_id
-- OFFSET 0: without it the planner may compare all attempts of a run with all steps of its definition
CROSS JOIN LATERAL (SELECT x.name, x.position FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                    AND x.step_no = t.step_no AND NOT x.undo OFFSET 0) w
LEFT JOIN _sas.agent a ON a.agent_id = t.agent_id
WHERE (SELECT _sas.sees_all()) OR _sas.stands_for(r.owner)
UNION ALL
SELECT s.run_id, w.name, w.position, nullif(s.element, 0), s.attempt, false, a.name, NULL, 'succeeded',
       CASE WHEN w.kind = 'call' AND w.output IS NULL THEN (s.output ->> 'status')::int END, NULL,
       s.started_at, s.finished_at
FROM _sas.step s
JOIN _sas.run r ON r.run_id = s.run_id
CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                    AND x.step_no = s.step_no AND NOT x.undo OFFSET 0) w
LEFT JOIN _sas.agent a ON a.agent_id = w.lane
WHERE s.completion IS NOT NULL AND s.attempt = 1 AND s.asks IS NULL AND s.state = 'succeeded'
  -- attempts of its fallback are shown under the fallback
  AND NOT coalesce(w.shape ? 'fallback'
                   AND EXISTS (SELECT FROM _sas.step f WHERE f.run_id = s.run_id
                               AND f.step_no = (w.shape #>> '{fallback,no}')::int AND f.element = s.element
                               AND f.completion IS NOT NULL), false)
  AND ((SELECT _sas.sees_all()) OR _sas.stands_for(r.owner))) u;
COMMENT ON VIEW sas.attempts IS
    'One row per attempt of a step or of its undo. status is succeeded, failed, timed_out, lost or '
    'cancelled.';
