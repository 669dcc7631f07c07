-- SPDX-License-Identifier: PostgreSQL
--
-- Undo: completed steps are undone one after the other, in reverse order of completion.

-- _sas.wake_steps(...): continues steps whose pause is over.
-- Caller: the scheduler; holds the lock of the runs. Writes: step. Next: _sas.requeue, or a fallback if the
-- breaker of the agent is open now.
CREATE FUNCTION _sas.wake_steps(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    doors int[] := CASE WHEN NOT _sas.is_testing() THEN ARRAY(SELECT b FROM _sas.open_breakers() b) END;
BEGIN
    -- a timer is ignored if its step has got another time, or another state, since
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
               to_state => CASE s.state WHEN 'suspended' THEN 'ready' ELSE s.state END))
    INTO changes
    FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    WHERE s.state IN ('suspended', 'compensating') AND s.waiting_until <= sas.now();
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.requeue(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
        FROM unnest(changes) c;
    PERFORM _sas.end_polls(run_ids, step_nos, elements) WHERE changes IS NOT NULL;
    PERFORM _sas.leave_closed_runs(array_agg(DISTINCT c.run_id), doors)
        FROM unnest(changes) c WHERE doors <> '{}' HAVING count(*) > 0;
END $$;

-- _sas.to_undo(run_id, version_id, abandon_as): what has to be undone in a run, the next one first.
CREATE FUNCTION _sas.to_undo(run_id bigint, version_id int, abandon_as text)
RETURNS TABLE (step_no int, element int, place bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.step_no, s.element,
           row_number() OVER (ORDER BY s.completion DESC NULLS FIRST, s.step_no DESC, s.element DESC)
    FROM _sas.step s
    JOIN _sas.workflow_step w ON w.version_id = $2 AND w.step_no = s.step_no AND w.undo
    WHERE s.run_id = $1 AND (s.state = 'succeeded' OR s.state IN ('failed', 'skipped')
                             AND (s.in_doubt OR s.asks IS NOT NULL))
      -- an operator has left this step as it is
      AND NOT (s.state = 'skipped' AND coalesce(s.error ->> 'type' = 'urn:sas:left-standing', false))
      -- maps and repeating steps are undone element by element
      AND $3 <> 'fail' AND NOT (s.element = 0 AND coalesce(w.shape ?| '{each,repeat}', false))
      -- the undo of its fallback undoes the work of the fallback
      AND NOT coalesce(w.shape ? 'fallback' AND s.state = 'succeeded'
                       AND EXISTS (SELECT FROM _sas.step f WHERE f.run_id = s.run_id
                                   AND f.step_no = (w.shape #>> '{fallback,no}')::int
                                   AND f.element = s.element AND f.completion IS NOT NULL), false)
    ORDER BY 3;
END $$;

-- _sas.leaves_something(run_id, version_id): has a run, or a run below it, done what can be undone? A child
-- run is undone by its own undos, of which it may have none.
CREATE FUNCTION _sas.leaves_something(run_id bigint, version_id int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM _sas.to_undo($1, $2, 'compensate') u
        JOIN _sas.workflow_step w ON w.version_id = $2 AND w.step_no = u.step_no AND w.undo
        WHERE CASE WHEN w.shape ? 'reverses'
              THEN (SELECT true FROM _sas.run c
                    WHERE c.parent_run_id = $1 AND c.parent_step_no = u.step_no
                      AND c.parent_element = u.element AND c.result IN ('success', 'warning')
                      AND (SELECT true FROM _sas.workflow_step x WHERE x.version_id = c.version_id
                           AND x.undo LIMIT 1)
                      AND _sas.leaves_something(c.run_id, c.version_id) LIMIT 1)
              ELSE true END);
END $$;

-- _sas.line_up(run_ids): stores the list of what has to be undone, for abandoned runs with many steps in
-- which no step is open. Without the list, each undo would scan all steps of the run. The list stays
-- complete, because nothing else happens in the run.
-- Writes: undo_order.
CREATE FUNCTION _sas.line_up(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    many bigint[];
BEGIN
    SELECT array_agg(r.run_id) INTO many
    FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND r.state = 'compensating' AND r.open_steps = 0
      AND CASE WHEN EXISTS (SELECT FROM _sas.undo_order l WHERE l.run_id = r.run_id) THEN false
          ELSE EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id OFFSET 50) END;
    IF many IS NOT NULL THEN
        INSERT INTO _sas.undo_order (run_id, place, step_no, element)
        SELECT r.run_id, u.place, u.step_no, u.element
        FROM _sas.run r CROSS JOIN LATERAL _sas.to_undo(r.run_id, r.version_id, r.abandon_as) u
        WHERE r.run_id = ANY (many);
    END IF;
END $$;

-- _sas.first_to_undo(...): the next step, or element, to undo; from the list, if there is one. Entries that
-- an operator has settled meanwhile are passed by.
CREATE FUNCTION _sas.first_to_undo(run_id bigint, version_id int, abandon_as text, OUT step_no int,
                                   OUT element int, OUT place bigint, OUT state text,
                                   OUT reads_own_output boolean, OUT output jsonb, OUT asks int)
RETURNS SETOF record
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT l.step_no, l.element, l.place, s.state, w.reads_own_output, s.output, s.asks
    FROM (SELECT x.* FROM _sas.undo_order x WHERE x.run_id = $1 ORDER BY x.place) l
    CROSS JOIN LATERAL _sas.step_row($1, l.step_no, l.element) s
    CROSS JOIN LATERAL _sas.step_definition($2, l.step_no, true) w
    WHERE s.state = 'succeeded' OR s.state IN ('failed', 'skipped') AND (s.in_doubt OR s.asks IS NOT NULL)
        AND NOT (s.state = 'skipped' AND coalesce(s.error ->> 'type' = 'urn:sas:left-standing', false))
    LIMIT 1;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM _sas.undo_order x WHERE x.run_id = $1) THEN
        RETURN QUERY
        SELECT u.step_no, u.element, u.place, s.state, w.reads_own_output, s.output, s.asks
        FROM (SELECT x.* FROM _sas.to_undo($1, $2, $3) x LIMIT 1) u
        JOIN _sas.step s ON s.run_id = $1 AND s.step_no = u.step_no AND s.element = u.element
        JOIN _sas.workflow_step w ON w.version_id = $2 AND w.step_no = u.step_no AND w.undo;
    END IF;
END $$;

-- _sas.keep_success(changes): stores the attempt of steps that have succeeded at once and are now undone,
-- because their row will describe the undo.
-- Writes: attempt.
CREATE FUNCTION _sas.keep_success(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, status, http_status,
                              started_at, finished_at)
    SELECT s.run_id, s.step_no, s.element, 1, false, nullif(w.lane, 0), 'succeeded',
           CASE WHEN w.kind = 'call' AND w.output IS NULL THEN (s.output ->> 'status')::int END,
           s.started_at, s.finished_at
    FROM unnest(changes) c
    CROSS JOIN LATERAL _sas.step_row(c.run_id, c.step_no, c.element) s
    JOIN _sas.run r ON r.run_id = c.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, c.step_no) w
    WHERE c.from_state = 'succeeded' AND s.attempt = 1 AND s.asks IS NULL;
END $$;

-- _sas.undone_as_a_whole(run_ids): in runs that have nothing left to undo, sets maps and repeating steps
-- (undone element by element) and includes (undone step by step) to compensated, if all their parts are
-- undone.
-- Writes: step.
CREATE FUNCTION _sas.undone_as_a_whole(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.mark_undone(array_agg(s.run_id), array_agg(s.step_no), array_agg(0))
    FROM _sas.run r
    CROSS JOIN LATERAL (SELECT x.version_id, x.step_no, x.covers FROM _sas.workflow_step x
                        WHERE x.version_id = r.version_id
                            AND (x.undo AND x.shape ?| '{each,repeat}' OR x.covers IS NOT NULL) OFFSET 0) w
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = r.run_id
                        AND x.step_no = coalesce(w.covers[cardinality(w.covers)], w.step_no)
                        AND x.element = 0 OFFSET 0) s
    -- the parts, by their key; for maps and repeating steps the elements only
    CROSS JOIN LATERAL (SELECT array_agg(o.step_no) AS nos,
                        coalesce(array_agg(o.step_no) FILTER (WHERE o.shape ?| '{each,repeat}'),
                                 '{}') AS wholes
                        FROM _sas.workflow_step o
                        WHERE o.version_id = w.version_id AND o.undo
                            AND o.step_no = ANY (coalesce(w.covers, ARRAY[w.step_no])) OFFSET 0) p
    CROSS JOIN LATERAL (SELECT bool_or(x.state = 'compensated') AS some,
                               bool_or(x.state = 'succeeded' OR x.state = 'skipped'
                                       AND x.error ->> 'type' = 'urn:sas:left-standing') AS standing
                        FROM _sas.step x
                        WHERE x.run_id = r.run_id AND x.step_no = ANY (p.nos)
                            AND (x.element > 0 OR x.step_no <> ALL (p.wholes))) e
    WHERE r.run_id = ANY (run_ids) AND s.state = 'succeeded' AND e.some AND e.standing IS NOT TRUE;
END $$;

-- _sas.mark_undone(run_ids, step_nos, elements): sets these succeeded steps to compensated: they have no
-- undo of their own, but are undone together with other steps.
-- Writes: step.
CREATE FUNCTION _sas.mark_undone(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => u.run_id, step_no => u.step_no, element => u.element, from_state => 'succeeded',
        to_state => 'compensating')))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element);
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => u.run_id, step_no => u.step_no, element => u.element, from_state => 'compensating',
        to_state => 'compensated', finished_at => sas.now())))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element);
END $$;

-- _sas.undo_stopped_runs(run_ids, errors): undoes runs that have stopped.
-- Caller: holds the lock of the runs. Writes: run, message. Wakes: the scheduler, which undoes them step by
-- step.
CREATE FUNCTION _sas.undo_stopped_runs(run_ids bigint[], errors jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => u.run_id, from_state => 'stopped', to_state => 'compensating', abandon_as => 'compensate',
        -- the run was halted, and a worker has not stopped yet
        open_steps => (SELECT count(*)::int FROM _sas.step s
                       WHERE s.run_id = u.run_id AND s.request_id IS NOT NULL), error => u.error)))
    FROM unnest(run_ids, errors) AS u (run_id, error);
    -- their end has deleted the timers
    UPDATE _sas.run r SET overdue = true WHERE r.run_id = ANY (run_ids) AND r.deadline <= sas.now();
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'v', r.deadline, r.run_id, 'deadline' FROM _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.overdue IS NULL AND _sas.due_by(r.deadline) IS NOT NULL;
    PERFORM _sas.hand_to_scheduler(run_ids);
END $$;

-- _sas.has_undone(run_id, version_id): was a step undone? A child run that has nothing to undo keeps its
-- result, though its step counts as undone.
CREATE FUNCTION _sas.has_undone(run_id bigint, version_id int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM _sas.step s
        LEFT JOIN _sas.workflow_step w ON w.version_id = $2 AND w.step_no = s.step_no AND w.undo
        WHERE s.run_id = $1 AND s.state = 'compensated'
          AND CASE WHEN w.shape ? 'reverses'
              THEN (SELECT true FROM _sas.last_child(s.run_id, s.step_no, s.element) c
                    WHERE c.result IN ('success', 'warning')) IS NULL
              ELSE true END);
END $$;

-- _sas.undo_next(run_ids): begins the next undo of abandoned runs in which no step is open, in reverse
-- order of completion. A run that has nothing left to undo stops.
--
-- A step in doubt comes first. It is undone if its undo needs nothing of its output; else its call is
-- repeated under its key until the outcome is known. A poll counts as done once its call has succeeded.
-- With abandon_as fail, nothing is undone.
-- Caller: the scheduler; holds the lock of the runs. Writes: undo_order, step, run, attempt, ready,
-- abandoned_run, map_list. Next: a worker claims the undo; its reply closes the step, and the scheduler calls
-- this function again.
CREATE FUNCTION _sas.undo_next(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    stops _sas.run_change[];
BEGIN
    PERFORM _sas.line_up(run_ids);
    WITH doomed AS (
        SELECT r.* FROM _sas.run r
        WHERE r.run_id = ANY (run_ids) AND r.state = 'compensating' AND r.open_steps = 0),
    next AS (
        SELECT d.run_id, n.*, CASE WHEN n.state IN ('failed', 'skipped') AND n.reads_own_output
            AND n.output IS NULL AND n.asks IS NULL THEN 'ready' ELSE 'compensating' END AS to_state
        FROM doomed d
        CROSS JOIN LATERAL _sas.first_to_undo(d.run_id, d.version_id, d.abandon_as) n),
    -- a step whose outcome is asked first stays in the list
    gone AS (
        DELETE FROM _sas.undo_order l USING next n WHERE l.run_id = n.run_id
            AND l.place <= n.place - (n.to_state = 'ready')::int)
    SELECT (SELECT array_agg(_sas.make_step_change(
                run_id => n.run_id, step_no => n.step_no, element => n.element, from_state => n.state,
                to_state => n.to_state, failure_count => 0)) FROM next n),
           (SELECT array_agg(_sas.make_run_change(
               run_id => d.run_id, from_state => d.state, to_state => 'stopped',
               result => CASE WHEN d.abandon_as = 'cancel' THEN 'cancelled'
                              -- an operator has left a step as it is
                              WHEN (SELECT true FROM _sas.step s
                                    WHERE s.run_id = d.run_id AND s.state = 'skipped'
                                      AND s.error ->> 'type' = 'urn:sas:left-standing' LIMIT 1) THEN 'error'
                              WHEN _sas.has_undone(d.run_id, d.version_id) THEN 'compensated'
                              ELSE 'error' END))
            FROM doomed d WHERE NOT EXISTS (SELECT FROM next n WHERE n.run_id = d.run_id))
    INTO changes, stops;

    DELETE FROM _sas.undo_order l USING unnest(stops) c WHERE l.run_id = c.run_id;
    DELETE FROM _sas.abandoned_run a USING unnest(stops) c WHERE a.run_id = c.run_id;
    DELETE FROM _sas.map_list l USING unnest(stops) c WHERE l.run_id = c.run_id;
    PERFORM _sas.note_undo(changes) WHERE changes IS NOT NULL;
    PERFORM _sas.undone_as_a_whole(array_agg(c.run_id)) FROM unnest(stops) c HAVING count(*) > 0;
    PERFORM _sas.change_runs(stops);
    PERFORM _sas.keep_success(changes);
    PERFORM _sas.move_steps(changes);
    UPDATE _sas.run r SET open_steps = 1 WHERE r.run_id IN (SELECT c.run_id FROM unnest(changes) c);
    PERFORM _sas.make_ready(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element),
                            array_agg(c.to_state = 'compensating'), array_agg(false)) FROM unnest(changes) c;
END $$;
