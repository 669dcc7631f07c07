-- SPDX-License-Identifier: PostgreSQL
--
-- Advance: what follows when steps have ended, in the transaction that has ended them. The caller holds the
-- lock of all runs.

-- _sas.advance(run_ids, step_nos): continues runs after these steps have succeeded or were skipped: makes
-- ready the steps that waited for them only, and stops the runs that have nothing left to do.
-- Caller: holds the lock of the runs. Writes: step, run. Next: _sas.make_ready wakes the workers that can
-- claim the ready steps; _sas.end_of_steps ends a run.
CREATE FUNCTION _sas.advance(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    next record;
BEGIN
    next := _sas.steps_after(run_ids, step_nos);
    IF next.changes IS NOT NULL THEN
        PERFORM _sas.move_steps(next.changes);
    END IF;
    IF next.ready_runs IS NOT NULL THEN
        PERFORM _sas.make_ready(next.ready_runs, next.ready_nos);
    END IF;
    IF next.counted IS NOT NULL THEN
        UPDATE _sas.run r SET open_steps = u.n FROM unnest(next.counted, next.counts) AS u (run_id, n)
        WHERE r.run_id = u.run_id;
    END IF;
    IF next.ended IS NOT NULL THEN
        PERFORM _sas.end_of_steps(next.ended);
    END IF;
    IF next.held IS NOT NULL THEN
        PERFORM _sas.check_hosted(next.held);
    END IF;
END $$;

-- _sas.steps_after(run_ids, step_nos): what follows from the end of these steps. A step that waits for
-- several others has a row with a counter as soon as the first of them has ended, so that each edge is
-- followed once.
--   changes                of steps that still wait for others, have waited, or are deferred
--   ready_runs, ready_nos  steps that are ready now
--   counted, counts        runs whose number of open steps changes
--   ended                  runs without an open step
--   held                   runs that continue beside a failure, see _sas.check_hosted
CREATE FUNCTION _sas.steps_after(run_ids bigint[], step_nos int[], OUT changes _sas.step_change[],
                                 OUT ready_runs bigint[], OUT ready_nos int[], OUT counted bigint[],
                                 OUT counts int[], OUT ended bigint[], OUT held bigint[])
LANGUAGE plpgsql AS $$
BEGIN
    WITH done AS (
        SELECT d.step_no, r.run_id, r.version_id, r.state, r.open_steps, r.paused_state
        FROM unnest(run_ids, step_nos) AS d (run_id, step_no) JOIN _sas.run r ON r.run_id = d.run_id),
    hit AS (
        SELECT d.run_id, d.version_id, d.state = 'paused' AS paused, e.to_no, count(*)::int AS n
        FROM done d
        -- OFFSET 0: without it the planner may use only the first column of the key, and walk all edges of
        -- the workflow, or all steps of the run
        CROSS JOIN LATERAL (SELECT x.to_no FROM _sas.workflow_edge x WHERE x.version_id = d.version_id
                            AND x.from_no = d.step_no OFFSET 0) e
        GROUP BY 1, 2, 3, 4),
    next AS (
        SELECT h.run_id, h.to_no, h.paused, s.state AS old_state,
            coalesce(s.needs_left, w.needs) - h.n AS needs_left
        FROM hit h
        CROSS JOIN LATERAL _sas.step_definition(h.version_id, h.to_no) w
        LEFT JOIN LATERAL _sas.step_row(h.run_id, h.to_no, 0) s ON true
        -- asked once, before the first of them is looked up
        WHERE (SELECT _sas.check_steps(count(*)) FROM hit) AND (s.state IS NULL OR s.state = 'waiting')),
    -- in a chain of steps the counter does not change
    sums AS (
        SELECT x.run_id, (max(x.open_steps) + sum(x.n))::int AS open_steps,
            bool_or(x.state = 'running') AS running, bool_or(x.paused_state = 'held') AS held
        FROM (SELECT d.run_id, -1 AS n, d.open_steps, d.state, d.paused_state FROM done d
              UNION ALL SELECT n.run_id, 1, NULL, NULL, NULL FROM next n WHERE n.needs_left = 0) x
        GROUP BY 1 HAVING sum(x.n) <> 0),
    follows AS (
        SELECT array_agg(_sas.make_step_change(
                   run_id => n.run_id, step_no => n.to_no, element => 0,
                   from_state => coalesce(n.old_state, 'none'),
                   to_state => CASE WHEN n.needs_left = 0 THEN 'ready' ELSE 'waiting' END,
                   needs_left => n.needs_left, deferred => n.needs_left = 0 AND n.paused))
                   FILTER (WHERE n.needs_left > 0 OR n.old_state IS NOT NULL OR n.paused) AS changes,
               array_agg(n.run_id) FILTER (WHERE n.needs_left = 0 AND NOT n.paused) AS run_ids,
               array_agg(n.to_no) FILTER (WHERE n.needs_left = 0 AND NOT n.paused) AS step_nos
        FROM next n),
    -- a run that ends is not written here: it is written once, with its end
    books AS (
        SELECT array_agg(s.run_id) FILTER (WHERE NOT (s.open_steps = 0 AND s.running)) AS counted,
               array_agg(s.open_steps) FILTER (WHERE NOT (s.open_steps = 0 AND s.running)) AS counts,
               array_agg(s.run_id) FILTER (WHERE s.open_steps = 0) AS ended,
               array_agg(s.run_id) FILTER (WHERE s.held) AS held
        FROM sums s)
    SELECT f.changes, f.run_ids, f.step_nos, b.counted, b.counts, b.ended, b.held
    INTO changes, ready_runs, ready_nos, counted, counts, ended, held
    FROM follows f CROSS JOIN books b;
END $$;

-- _sas.end_of_steps(run_ids): these runs have no open step and no abandon_as: makes the finalize step ready,
-- or stops the run. Returns how many have stopped. Caller: holds the lock of the runs. Writes: run, step.
-- Next: _sas.make_ready for the finalize step; _sas.end_runs or _sas.change_runs for the end.
CREATE FUNCTION _sas.end_of_steps(run_ids bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    pending bigint[];
    last_runs bigint[];
    last_nos int[];
    deferred _sas.step_change[];
    stops _sas.run_change[];
    ended bigint[] := _sas.end_runs(run_ids);
BEGIN
    IF cardinality(ended) = cardinality(run_ids) THEN
        RETURN cardinality(ended);
    END IF;
    -- a paused run that has nothing left to do stops when it is resumed
    SELECT array_agg(r.run_id) FILTER (WHERE r.state = 'pending'),
           array_agg(r.run_id) FILTER (WHERE f.is_due AND r.state <> 'paused'),
           array_agg(v.finalize_no) FILTER (WHERE f.is_due AND r.state <> 'paused'),
           array_agg(_sas.make_step_change(
               run_id => r.run_id, step_no => v.finalize_no, element => 0, from_state => 'none',
               to_state => 'ready', deferred => true))
               FILTER (WHERE f.is_due AND r.state = 'paused'),
           array_agg(_sas.make_run_change(
               run_id => r.run_id, from_state => 'running', to_state => 'stopped',
               result => CASE WHEN o.problem IS NOT NULL OR r.error IS NOT NULL THEN 'warning'
                              ELSE 'success' END,
               open_steps => 0, output => o.result,
               error => CASE WHEN o.problem IS NOT NULL
                   THEN _sas.problem_object('output', 'could not build the output of the run',
                                            _sas.problem_text(o.problem), NULL, r.run_id, NULL) END))
               FILTER (WHERE f.stops)
    INTO pending, last_runs, last_nos, deferred, stops
    FROM _sas.run r
    CROSS JOIN LATERAL (SELECT x.finalize_no, x.output, x.output_reads FROM _sas.workflow_version x
                        WHERE x.version_id = r.version_id OFFSET 0) v
    CROSS JOIN LATERAL (SELECT v.finalize_no IS NOT NULL
                        AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id
                                        AND s.step_no = v.finalize_no AND s.element = 0) AS is_due OFFSET 0) d
    CROSS JOIN LATERAL (SELECT d.is_due,
                               NOT d.is_due AND r.state IN ('pending', 'running') AS stops OFFSET 0) f
    LEFT JOIN LATERAL _sas.render(v.output, CASE WHEN v.output IS NOT NULL AND f.stops
                                                 THEN _sas.run_context(r, '', v.output_reads) END) o
        ON v.output IS NOT NULL AND f.stops
    WHERE r.run_id = ANY (run_ids);

    IF pending IS NOT NULL THEN
        PERFORM _sas.start_runs(pending);
    END IF;
    IF last_runs IS NOT NULL OR deferred IS NOT NULL THEN
        UPDATE _sas.run r SET open_steps = 1
        WHERE r.run_id = ANY (last_runs || ARRAY(SELECT p.run_id FROM unnest(deferred) p));
        PERFORM _sas.move_steps(deferred);
        PERFORM _sas.make_ready(last_runs, last_nos);
    END IF;
    PERFORM _sas.change_runs(stops);
    RETURN cardinality(ended) + coalesce(cardinality(stops), 0);
END $$;

-- _sas.abandon_children(run_ids, how, fates): ends the open child runs of these runs as well. how: abort or
-- halt; null: steps that are running in them may finish.
-- Writes: message. Wakes: the scheduler.
CREATE FUNCTION _sas.abandon_children(run_ids bigint[], how text, fates text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), c.run_id,
        coalesce(how, CASE f.abandon_as WHEN 'fail' THEN 'fail' ELSE 'cancel' END)
    FROM unnest(run_ids, fates) AS f (run_id, abandon_as)
    CROSS JOIN LATERAL (SELECT x.run_id, x.parent_element FROM _sas.run x WHERE x.parent_run_id = f.run_id
                        AND x.state <> 'stopped' OFFSET 0) c
    -- a child run that undoes a step continues, except in a halt
    WHERE (how = 'halt' OR c.parent_element >= 0) IS NOT FALSE;
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.hand_to_scheduler(run_ids): sends the scheduler a message about abandoned runs in which no step is
-- open, so that it undoes them.
-- Writes: message. Wakes: the scheduler. Next: _sas.undo_next.
CREATE FUNCTION _sas.hand_to_scheduler(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), r.run_id, 'undo'
    FROM _sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'compensating' AND r.open_steps = 0;
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.move_to_paused(run_ids, why, who, errors): pauses runs. Ready steps are deferred, in rows of their
-- own; running steps continue, and their replies count.
-- Caller: holds the lock of the runs. Writes: ready, step, run. Next: _sas.continue_runs, when the run is
-- resumed.
CREATE FUNCTION _sas.move_to_paused(run_ids bigint[], why text[], who text, errors jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    gone _sas.ready[] := _sas.take_ready(run_ids);
    changes _sas.step_change[];
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => g.run_id, step_no => g.step_no, element => g.element,
               from_state => coalesce(s.state, 'none'),
               to_state => CASE WHEN g.undo THEN 'compensating' ELSE 'ready' END, alone => g.alone,
               deferred => true))
    INTO changes
    FROM unnest(gone) g LEFT JOIN _sas.step s ON s.run_id = g.run_id AND s.step_no = g.step_no
        AND s.element = g.element;
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => r.run_id, from_state => r.state, to_state => 'paused',
        -- in a run that cannot go on, the first cause stays
        error => CASE WHEN r.abandon_as IS NULL THEN p.error ELSE _sas.with_undo_error(r.error, p.error) END,
        paused_for => p.why, paused_by => who, paused_state => r.state)))
    FROM unnest(run_ids, why, errors) AS p (run_id, why, error) JOIN _sas.run r ON r.run_id = p.run_id;
    PERFORM _sas.free_slots(run_ids);
END $$;

-- _sas.close_steps(run_ids): counts one open step less for each entry, in abandoned runs. A halted run has
-- no open steps.
-- Caller: holds the lock of the runs. Writes: run. Next: _sas.undo_next, by the scheduler, when no step is
-- open.
CREATE FUNCTION _sas.close_steps(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.run r SET open_steps = r.open_steps - d.n
    FROM (SELECT u.run_id, count(*)::int AS n FROM unnest(run_ids) AS u (run_id) GROUP BY 1) d
    WHERE r.run_id = d.run_id AND r.state <> 'stopped';
    PERFORM _sas.hand_to_scheduler(run_ids);
END $$;

-- _sas.notify_supervisor(failed): sends the supervisor a message for each of these failed steps, which wait
-- for its decision.
-- Writes: message. Wakes: the supervisor. Next: _sas.decide_due.
CREATE FUNCTION _sas.notify_supervisor(failed _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 'v', sas.now(), f.run_id, 'failed', f.step_no, f.element FROM unnest(failed) f;
    PERFORM _sas.wake(supervisor => true);
END $$;

-- _sas.queue_again(again): offers steps again that a worker has given back: now, or by a timer later.
-- Writes: message, ready. Wakes: the scheduler for the timer.
CREATE FUNCTION _sas.queue_again(again _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', a.waiting_until, a.run_id, 'ready', a.step_no, a.element
    FROM unnest(again) a WHERE a.waiting_until IS NOT NULL;
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
    PERFORM _sas.requeue(array_agg(a.run_id), array_agg(a.step_no), array_agg(a.element))
    FROM unnest(again) a WHERE a.waiting_until IS NULL;
END $$;

-- _sas.requeue(...): puts steps in state ready or compensating into the ready queue. Steps of paused runs
-- are deferred. Steps of abandoned runs are cancelled, or undone if they have begun.
-- Caller: holds the lock of the runs. Writes: step, run. Next: _sas.make_ready.
CREATE FUNCTION _sas.requeue(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    doomed bigint[];
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
               to_state => CASE WHEN r.state = 'paused' THEN s.state
                                WHEN s.in_doubt THEN 'ready'
                                WHEN s.asks IS NOT NULL THEN 'failed'
                                ELSE 'cancelled' END,
               deferred => r.state = 'paused'))
               FILTER (WHERE r.state = 'paused' OR r.abandon_as IS NOT NULL AND s.state = 'ready'
                       AND NOT s.in_doubt),
           array_agg(s.run_id) FILTER (WHERE r.state <> 'paused' AND r.abandon_as IS NOT NULL
                                       AND s.state = 'ready'
                                       AND NOT s.in_doubt)
    INTO changes, doomed
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    JOIN _sas.run r ON r.run_id = u.run_id;
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.close_steps(doomed) WHERE doomed IS NOT NULL;

    PERFORM _sas.make_ready(array_agg(s.run_id), array_agg(s.step_no), array_agg(s.element),
                            array_agg(s.state = 'compensating'), array_agg(s.alone))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    JOIN _sas.run r ON r.run_id = u.run_id
    WHERE r.state <> 'paused' AND s.state IN ('ready', 'compensating');
END $$;
