-- SPDX-License-Identifier: PostgreSQL
--
-- Elements: a map does its work for every element of an array, a step that
-- repeats does it turn after turn. Each element, or turn, is a step with a row,
-- a key, retries and an undo of its own; element 0 is the step as a whole,
-- suspended until the last has ended. All functions: runs locked by the caller.

-- How many elements of a map without "concurrency" are ready or running at once.
CREATE FUNCTION _sas.map_width() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1000 $$;

-- _sas.begin_maps(run_ids, step_nos, lists, from_states): these steps begin with an element for each item of
-- their list. list null: with a first turn, or what has begun before and failed continues where it was.
-- Writes: item, fan, step. Next: _sas.release_elements.
CREATE FUNCTION _sas.begin_maps(run_ids bigint[], step_nos int[], lists jsonb[], from_states text[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.item (run_id, step_no, element, item)
    SELECT u.run_id, u.step_no, i.n, i.value
    FROM unnest(run_ids, step_nos, lists) AS u (run_id, step_no, list)
    CROSS JOIN LATERAL jsonb_array_elements(u.list) WITH ORDINALITY AS i (value, n);
    INSERT INTO _sas.map_progress (run_id, step_no, total, fed, remaining, failed)
    SELECT u.run_id, u.step_no, n, 0, n, 0
    FROM unnest(run_ids, step_nos, lists) AS u (run_id, step_no, list)
    CROSS JOIN LATERAL (SELECT coalesce(jsonb_array_length(u.list), 0) AS n) l
    ON CONFLICT DO NOTHING;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => u.run_id, step_no => u.step_no, element => 0, from_state => u.from_state,
        to_state => 'suspended', started_at => sas.now(), waiting_kind => 'elements')))
    FROM unnest(run_ids, step_nos, from_states) AS u (run_id, step_no, from_state);
    PERFORM _sas.release_elements(run_ids, step_nos);
END $$;

-- _sas.waiting_children(run_id, step_no): how many children of this map wait for a place under their
-- concurrency key. More than map_width() of them are not begun ahead. A child that has just stopped may still
-- have its row; it is counted as ended already.
CREATE FUNCTION _sas.waiting_children(run_id bigint, step_no int) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*)
            FROM (SELECT FROM _sas.concurrency_slot p JOIN _sas.run c ON c.run_id = p.run_id
                  WHERE p.parent_run_id = $1 AND p.parent_step_no = $2 AND p.told
                      AND c.state = 'scheduled' LIMIT _sas.map_width()) w);
END $$;

-- _sas.release_elements(run_ids, step_nos): makes as many elements ready as may be on
-- their way at once, and ends the steps of which none remains. Children that wait for their concurrency key
-- are not counted. One that gets its key begins at once, so for a moment more than that may run.
-- Writes: fan. Next: _sas.make_ready for the elements; _sas.count_elements when one of them has ended.
CREATE FUNCTION _sas.release_elements(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    WITH open AS (
        SELECT f.run_id, f.step_no, f.fed, f.total, f.remaining, w.shape,
               s.waiting_until IS NULL AS asks,
               least(f.total::bigint, f.total - f.remaining
                     + coalesce((w.shape ->> 'concurrency')::bigint, _sas.map_width())
                     + CASE WHEN w.kind = 'workflow' AND f.fed < f.total
                         THEN _sas.waiting_children(u.run_id, u.step_no) ELSE 0 END)::int AS want
        FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos) AS u (run_id, step_no)) u
        JOIN _sas.map_progress f ON f.run_id = u.run_id AND f.step_no = u.step_no
        JOIN _sas.run r ON r.run_id = u.run_id AND r.abandon_as IS NULL AND r.state <> 'paused'
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
        JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = 0
            AND s.state = 'suspended'),
    fed AS (
        UPDATE _sas.map_progress f SET fed = o.want FROM open o
        WHERE f.run_id = o.run_id AND f.step_no = o.step_no AND o.want > o.fed
        RETURNING f.run_id, f.step_no, o.fed AS before, o.want),
    next AS (
        SELECT array_agg(e.run_id) AS run_ids, array_agg(e.step_no) AS step_nos,
            array_agg(e.element) AS elements
        FROM (SELECT d.run_id, d.step_no, g AS element FROM fed d
              CROSS JOIN LATERAL generate_series(d.before + 1, d.want) g ORDER BY 1, 2, 3) e)
    SELECT array_agg(o.run_id) FILTER (WHERE o.shape ? 'each') AS over_runs,
        array_agg(o.step_no) FILTER (WHERE o.shape ? 'each') AS over_nos,
           -- one that has its time for the next turn already is not asked again
           array_agg(o.run_id) FILTER (WHERE o.shape ? 'repeat' AND o.asks) AS turn_runs,
               array_agg(o.step_no) FILTER (WHERE o.shape ? 'repeat' AND o.asks) AS turn_nos,
           (SELECT n.run_ids FROM next n) AS next_runs, (SELECT n.step_nos FROM next n) AS next_nos,
               (SELECT n.elements FROM next n) AS next_elements
    INTO found
    FROM open o WHERE o.remaining = 0;
    PERFORM _sas.make_ready(found.next_runs, found.next_nos, found.next_elements);
    PERFORM _sas.end_maps(found.over_runs, found.over_nos) WHERE found.over_runs IS NOT NULL;
    PERFORM _sas.next_iterations(found.turn_runs, found.turn_nos) WHERE found.turn_runs IS NOT NULL;
END $$;

-- _sas.count_elements(run_ids, step_nos, failures): an element has ended, for each entry; failures of them
-- failed.
CREATE FUNCTION _sas.count_elements(run_ids bigint[], step_nos int[], failures int DEFAULT 0) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.map_progress f SET remaining = f.remaining - d.n, failed = f.failed + failures * d.n
    FROM (SELECT u.run_id, u.step_no, count(*)::int AS n
          FROM unnest(run_ids, step_nos) AS u (run_id, step_no) GROUP BY 1, 2) d
    WHERE f.run_id = d.run_id AND f.step_no = d.step_no;
    PERFORM _sas.release_elements(run_ids, step_nos);
    PERFORM _sas.check_hosted(array_agg(DISTINCT r.run_id))
    FROM unnest(run_ids) u JOIN _sas.run r ON r.run_id = u AND r.paused_state = 'held' HAVING count(*) > 0;
END $$;

-- _sas.end_maps(run_ids, step_nos): every element has ended: the output is
-- what they returned, in order, null for those that were skipped without another.
CREATE FUNCTION _sas.end_maps(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    made jsonb;
    kind text;
BEGIN
    FOR m IN SELECT u.run_id, u.step_no, w.name FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
             JOIN _sas.run r ON r.run_id = u.run_id
             JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no
                 AND NOT w.undo LOOP
        BEGIN
            SELECT coalesce(jsonb_agg(CASE WHEN s.state IN ('succeeded', 'skipped') THEN s.output END
                                      ORDER BY s.element), '[]') INTO made
            FROM _sas.step s WHERE s.run_id = m.run_id AND s.step_no = m.step_no AND s.element > 0;
        EXCEPTION WHEN program_limit_exceeded THEN
            PERFORM _sas.fail_steps(ARRAY[m.run_id], ARRAY[m.step_no], ARRAY[0],
                                    ARRAY[_sas.problem_object('output',
                                                              'the outputs of the elements are too large for '
                                                              'one array', SQLERRM, NULL, m.run_id, m.name)]);
            CONTINUE;
        END;
        PERFORM _sas.succeed_steps(ARRAY[m.run_id], ARRAY[m.step_no], ARRAY[0], ARRAY[made]);
    END LOOP;
END $$;

-- _sas.next_iterations(run_ids, step_nos): a turn has ended: the next one, or the end.
CREATE FUNCTION _sas.next_iterations(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    t record;
    at timestamptz;
BEGIN
    FOR t IN SELECT f.run_id, f.step_no, f.total, w.name, w.shape -> 'repeat' AS repeat, s.output AS last,
                    -- the first turn is not asked for
                    f.total = 0 OR asked.met AS goes_on, asked.reason
             FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
             JOIN _sas.map_progress f ON f.run_id = u.run_id AND f.step_no = u.step_no
             JOIN _sas.run r ON r.run_id = u.run_id
             JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
             LEFT JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no
                 AND s.element = f.total
             LEFT JOIN LATERAL _sas.predicate(w.shape #>> '{repeat,while}', CASE WHEN f.total > 0 THEN
                     _sas.context(r, w, 0) || jsonb_build_object('last', s.output, 'index', f.total) END)
                 asked ON true LOOP
        IF t.goes_on IS NULL THEN
            PERFORM _sas.fail_steps(ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0],
                                    ARRAY[_sas.problem_object('repeat', _sas.neither('"while"', t.reason),
                                                              t.repeat ->> 'while', NULL, t.run_id, t.name)]);
        ELSIF NOT t.goes_on THEN
            PERFORM _sas.succeed_steps(ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0], ARRAY[t.last]);
        ELSIF t.total >= coalesce((t.repeat ->> 'max')::int, 10000) THEN
            PERFORM _sas.fail_steps(ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0],
                                    ARRAY[_sas.problem_object('repeat',
                                                              format('it would continue after %s iterations',
                                                        t.total), t.repeat ->> 'while', NULL, t.run_id,
                                                              t.name)]);
        ELSE
            at := CASE WHEN t.total > 0 THEN sas.now() + _sas.span(t.repeat -> 'every') END;
            IF at IS NULL THEN
                PERFORM _sas.begin_iterations(ARRAY[t.run_id], ARRAY[t.step_no]);
            ELSE
                UPDATE _sas.step s SET waiting_until = at WHERE s.run_id = t.run_id AND s.step_no = t.step_no
                    AND s.element = 0;
                INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
                VALUES ('s', at, t.run_id, 'turn', t.step_no, 0);
                PERFORM _sas.wake('{}', true, false, '{}');
            END IF;
        END IF;
    END LOOP;
END $$;

-- _sas.begin_iterations(run_ids, step_nos): one turn more. A message that comes before its time is of an
-- earlier turn.
CREATE FUNCTION _sas.begin_iterations(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH begun AS (
        UPDATE _sas.map_progress f SET total = f.total + 1, remaining = 1
        FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
        JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = 0
            AND s.state = 'suspended' AND coalesce(s.waiting_until <= sas.now(), true)
        WHERE f.run_id = u.run_id AND f.step_no = u.step_no AND f.remaining = 0
        RETURNING f.run_id, f.step_no)
    UPDATE _sas.step s SET waiting_until = NULL FROM begun b WHERE s.run_id = b.run_id
        AND s.step_no = b.step_no AND s.element = 0 AND s.waiting_until IS NOT NULL;
    PERFORM _sas.release_elements(run_ids, step_nos);
END $$;
