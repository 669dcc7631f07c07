-- SPDX-License-Identifier: PostgreSQL
--
-- Skipped: steps that were skipped for a failure, or by an operator, are run after all, by sas.retry.

-- _sas.can_run_later(r, w): nothing that has happened since it was skipped stands in the way: the functions
-- at the end of the run have not begun, no element of a map, and no fallback; it is no include, and in none
-- that was skipped.
CREATE FUNCTION _sas.can_run_later(r _sas.run, w _sas.workflow_step) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT w.kind <> 'join'
       AND NOT EXISTS (SELECT FROM _sas.workflow_version v
                       WHERE v.version_id = r.version_id
                         AND (EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id
                                      AND s.step_no = v.finalize_no)
                              OR EXISTS (SELECT FROM _sas.ready q WHERE q.run_id = r.run_id
                                         AND q.step_no = v.finalize_no)))
       AND NOT EXISTS (SELECT FROM _sas.map_progress f WHERE f.run_id = r.run_id AND f.step_no = w.step_no)
       AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id AND s.step_no = w.step_no
                       AND s.element > 0)
       AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id
                       AND s.step_no = (w.shape #>> '{fallback,no}')::int)
       AND NOT EXISTS (SELECT FROM _sas.workflow_step i
                       JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = i.step_no AND s.element = 0
                       WHERE i.version_id = r.version_id AND i.kind = 'join' AND w.step_no = ANY (i.covers)
                         AND s.state = 'skipped')
$$;

-- _sas.skipped_with(run_ids, step_nos): these skipped steps, and what was skipped for want of their output
-- only, directly or not, as _sas.after_skip found it.
CREATE FUNCTION _sas.skipped_with(INOUT run_ids bigint[], INOUT step_nos int[])
LANGUAGE plpgsql STABLE AS $$
DECLARE
    named int := cardinality(run_ids);
    before int;
BEGIN
    WITH RECURSIVE back AS (
        SELECT u.run_id, r.version_id, u.step_no, u.n
        FROM unnest(run_ids, step_nos) WITH ORDINALITY AS u (run_id, step_no, n)
        JOIN _sas.run r ON r.run_id = u.run_id
        UNION
        SELECT b.run_id, b.version_id, n.step_no, named + 1
        FROM back b
        JOIN _sas.workflow_step o ON o.version_id = b.version_id AND o.step_no = b.step_no AND NOT o.undo
        CROSS JOIN LATERAL (
            SELECT w.step_no FROM _sas.workflow_edge e
            JOIN _sas.workflow_step w ON w.version_id = e.version_id AND w.step_no = e.to_no AND NOT w.undo
            WHERE e.version_id = b.version_id AND e.from_no = b.step_no AND _sas.needs_output(w, o.local_name)
            UNION ALL SELECT unnest(o.covers)) n
        JOIN _sas.step s ON s.run_id = b.run_id AND s.step_no = n.step_no AND s.element = 0
            AND s.state = 'skipped' AND s.error IS NULL AND s.output IS NULL)
    SELECT array_agg(x.run_id ORDER BY x.n), array_agg(x.step_no ORDER BY x.n) INTO run_ids, step_nos
    FROM (SELECT b.run_id, b.step_no, min(b.n) AS n FROM back b GROUP BY 1, 2) x;
    LOOP
        before := cardinality(run_ids);
        -- without those that another skipped step keeps away still
        SELECT array_agg(u.run_id ORDER BY u.n), array_agg(u.step_no ORDER BY u.n) INTO run_ids, step_nos
        FROM unnest(run_ids, step_nos) WITH ORDINALITY AS u (run_id, step_no, n)
        JOIN _sas.run r ON r.run_id = u.run_id
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
        WHERE u.n <= named OR NOT EXISTS (
            SELECT FROM _sas.workflow_step o
            JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = o.step_no AND s.element = 0
                AND s.state = 'skipped'
                AND _sas.kept_output(s.state, s.output, s.error) IS NULL
            LEFT JOIN _sas.workflow_edge e ON e.version_id = o.version_id AND e.from_no = o.step_no
                AND e.to_no = u.step_no
            WHERE o.version_id = r.version_id AND NOT o.undo
              AND (u.step_no = ANY (o.covers) OR e.to_no IS NOT NULL
                   AND (_sas.needs_output(w, o.local_name) OR o.shape ->> 'else' = 'skip_cascade'))
              AND NOT EXISTS (SELECT FROM unnest(run_ids, step_nos) AS b (run_id, step_no)
                              WHERE b.run_id = u.run_id AND b.step_no = o.step_no));
        EXIT WHEN cardinality(run_ids) = before;
    END LOOP;
END $$;

-- _sas.reopen_skipped(targets): these skipped steps are ready. What was skipped for want of their output,
-- and what comes after them and has not begun, waits for them.
--
-- Caller: holds the lock of the runs, and of what is ready of them. Writes: ready, step, run. Next:
-- _sas.requeue, here; of a paused run _sas.continue_runs.
CREATE FUNCTION _sas.reopen_skipped(targets _sas.target[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    first record;
    back record;
    changes _sas.step_change[];
BEGIN
    SELECT array_agg(t.run_id) AS runs, array_agg(t.step_no) AS nos INTO first
    FROM unnest(targets) t WHERE t.situation = 'skipped';
    IF first.runs IS NULL THEN
        RETURN;
    END IF;
    back := _sas.skipped_with(first.runs, first.nos);
    WITH back AS (
        SELECT u.run_id, r.version_id, u.step_no, 'skipped' AS state
        FROM unnest(back.run_ids, back.step_nos) AS u (run_id, step_no)
        JOIN _sas.run r ON r.run_id = u.run_id),
    behind AS (
        SELECT DISTINCT b.run_id, b.version_id, e.to_no AS step_no, coalesce(s.state, 'none') AS state
        FROM back b
        JOIN _sas.workflow_edge e ON e.version_id = b.version_id AND e.from_no = b.step_no
        LEFT JOIN _sas.step s ON s.run_id = b.run_id AND s.step_no = e.to_no AND s.element = 0
        WHERE (s.run_id IS NULL OR s.state = 'waiting'
               OR s.state = 'ready' AND s.attempt = 0 AND s.started_at IS NULL AND s.request_id IS NULL)
          AND NOT EXISTS (SELECT FROM back x WHERE x.run_id = b.run_id AND x.step_no = e.to_no))
    SELECT array_agg(_sas.make_step_change(
               run_id => c.run_id, step_no => c.step_no, element => 0, from_state => c.state,
               to_state => CASE WHEN f.run_id IS NOT NULL THEN 'ready' ELSE 'waiting' END,
               failure_count => CASE WHEN f.run_id IS NOT NULL THEN 0 END,
               deferred => f.run_id IS NOT NULL AND r.state = 'paused',
               needs_left => CASE WHEN f.run_id IS NULL THEN (
                   SELECT count(*)::int FROM _sas.workflow_edge e
                   LEFT JOIN back x ON x.run_id = c.run_id AND x.step_no = e.from_no
                   LEFT JOIN _sas.step s ON s.run_id = c.run_id AND s.step_no = e.from_no AND s.element = 0
                       AND s.state IN ('succeeded', 'skipped')
                   WHERE e.version_id = c.version_id AND e.to_no = c.step_no
                     AND (x.run_id IS NOT NULL OR s.run_id IS NULL)) END))
    INTO changes
    FROM (SELECT * FROM back UNION ALL SELECT * FROM behind) c
    JOIN _sas.run r ON r.run_id = c.run_id
    LEFT JOIN unnest(first.runs, first.nos) AS f (run_id, step_no) ON f.run_id = c.run_id
        AND f.step_no = c.step_no;
    PERFORM _sas.take_ready_steps(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
    FROM unnest(changes) c WHERE c.from_state IN ('none', 'ready') HAVING count(*) > 0;
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.forget_skips(changes);
    PERFORM _sas.requeue(first.runs, first.nos, array_fill(0, ARRAY[cardinality(first.runs)]));
END $$;

-- _sas.forget_skips(changes): steps that were skipped are open, or wait again: what was noted of their ends
-- is over, and so is the warning of runs in which nothing else was skipped for a failure.
-- Writes: step, run.
CREATE FUNCTION _sas.forget_skips(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.step s SET output = NULL, error = NULL, finished_at = NULL
    FROM unnest(changes) c
    WHERE c.from_state = 'skipped' AND s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = 0;
    UPDATE _sas.run r
    SET open_steps = r.open_steps + d.n,
        error = CASE WHEN r.state = 'paused' THEN r.error
                     ELSE _sas.skip_error(r.run_id) END
    FROM (SELECT c.run_id, (count(*) FILTER (WHERE c.to_state = 'ready')
                            - count(*) FILTER (WHERE c.from_state IN ('none', 'ready')))::int AS n
          FROM unnest(changes) c GROUP BY 1) d
    WHERE r.run_id = d.run_id;
END $$;
