-- SPDX-License-Identifier: PostgreSQL
--
-- The end of elements and of maps: counts, output, and the next iteration of a step that repeats.

-- _sas.count_elements(run_ids, step_nos, elements, failures): counts these elements as ended. failures: 1
-- if they have failed, else 0.
-- Writes: map_progress, map_key. Next: _sas.release_elements.
CREATE FUNCTION _sas.count_elements(run_ids bigint[], step_nos int[], elements int[],
                                    failures int DEFAULT 0) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    scans boolean;
BEGIN
    WITH counted AS (
        UPDATE _sas.map_progress f SET remaining = f.remaining - d.n, failed = f.failed + failures * d.n,
            open = f.open - d.n
        FROM (SELECT u.run_id, u.step_no, count(*)::int AS n
              FROM unnest(run_ids, step_nos) AS u (run_id, step_no) GROUP BY 1, 2) d
        WHERE f.run_id = d.run_id AND f.step_no = d.step_no RETURNING f.open)
    SELECT bool_or(c.open IS NOT NULL) INTO scans FROM counted c;
    PERFORM _sas.count_keys(run_ids, step_nos, elements, 1) WHERE scans;
    PERFORM _sas.release_elements(run_ids, step_nos, elements);
    PERFORM _sas.check_hosted(array_agg(r.run_id))
    FROM (SELECT DISTINCT unnest(run_ids) AS run_id) u
    JOIN _sas.run r ON r.run_id = u.run_id AND r.paused_state = 'held' HAVING count(*) > 0;
END $$;

-- _sas.count_keys(run_ids, step_nos, elements, n): counts n ended elements under its key for each of these
-- elements; n is -1 to take that back.
-- Writes: map_key.
CREATE FUNCTION _sas.count_keys(run_ids bigint[], step_nos int[], elements int[], n int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
BEGIN
    FOR m IN SELECT u.run_id, u.step_no, array_agg(u.element) AS elements
             FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element) GROUP BY 1, 2 LOOP
        UPDATE _sas.map_key k SET ended = k.ended + d.n * count_keys.n
        FROM _sas.places_of_keys(m.run_id, m.step_no, m.elements) d WHERE k.ctid = d.place;
    END LOOP;
END $$;

-- _sas.uncount_elements(run_ids, step_nos, elements): takes back the count of those of these elements that
-- have failed and count as ended because their map runs through, since an operator settles them now.
-- Writes: map_progress.
CREATE FUNCTION _sas.uncount_elements(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    nos int[];
    those int[];
BEGIN
    SELECT array_agg(s.run_id), array_agg(s.step_no), array_agg(s.element) INTO ids, nos, those
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                        AND x.element = u.element AND x.state = 'failed'
                        AND x.waiting_kind = 'map_end' OFFSET 0) s;
    IF ids IS NOT NULL THEN
        UPDATE _sas.map_progress f SET remaining = f.remaining + d.n, failed = f.failed - d.n,
            open = f.open + d.n
        FROM (SELECT u.run_id, u.step_no, count(*)::int AS n
              FROM unnest(ids, nos) AS u (run_id, step_no) GROUP BY 1, 2) d
        WHERE f.run_id = d.run_id AND f.step_no = d.step_no;
        PERFORM _sas.count_keys(ids, nos, those, -1);
    END IF;
END $$;

-- _sas.failed_elements(for_run, for_no, name): the error that elements of this map have failed; null if none
-- has.
CREATE FUNCTION _sas.failed_elements(for_run bigint, for_no int, name text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.problem_object('elements', format('%s of %s elements failed', count(*),
                                                  (SELECT f.total FROM _sas.map_progress f
                                                   WHERE f.run_id = for_run AND f.step_no = for_no)),
                               format('element %s: %s', min(s.element),
                                      (array_agg(s.error ->> 'title' ORDER BY s.element))[1]),
                               NULL, for_run, name)
    FROM _sas.step s
    WHERE s.run_id = for_run AND s.step_no = for_no AND s.element > 0 AND s.state = 'failed'
      AND s.waiting_kind = 'map_end'
    HAVING count(*) > 0
$$;

-- _sas.end_maps(run_ids, step_nos): ends these maps: every element has ended. The output has what the
-- elements returned, in order, and null for elements that were skipped without an output. If on_failure is
-- pause_at_end and elements have failed, the step fails and its run is paused.
-- Next: _sas.succeed_steps, _sas.fail_steps.
CREATE FUNCTION _sas.end_maps(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m record;
    made jsonb;
    failed jsonb;
BEGIN
    FOR m IN SELECT u.run_id, u.step_no, w.name, 'pause_at_end' IN (w.on_transient, w.on_permanent) AS bears
             FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
             JOIN _sas.run r ON r.run_id = u.run_id
             CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w LOOP
        failed := CASE WHEN m.bears THEN _sas.failed_elements(m.run_id, m.step_no, m.name) END;
        IF failed IS NOT NULL THEN
            PERFORM _sas.fail_steps(ARRAY[m.run_id], ARRAY[m.step_no], ARRAY[0], ARRAY[failed]);
            CONTINUE;
        END IF;
        BEGIN
            SELECT coalesce(jsonb_agg(CASE WHEN s.state IN ('succeeded', 'skipped')
                                           THEN _sas.kept_output(s.state, s.output, s.error) END
                                      ORDER BY s.element), '[]') INTO made
            FROM _sas.step s WHERE s.run_id = m.run_id AND s.step_no = m.step_no AND s.element > 0;
            -- its text must fit, too, with escapes that make each byte six
            PERFORM _sas.check_size(made, 167772160, '/output', 'the array');
        EXCEPTION WHEN program_limit_exceeded THEN
            PERFORM _sas.fail_steps(
                ARRAY[m.run_id], ARRAY[m.step_no], ARRAY[0],
                ARRAY[_sas.problem_object('output',
                                          'the outputs of the elements are too large for one array',
                                          SQLERRM, NULL, m.run_id, m.name)]);
            CONTINUE;
        END;
        PERFORM _sas.succeed_steps(ARRAY[m.run_id], ARRAY[m.step_no], ARRAY[0], ARRAY[made]);
    END LOOP;
END $$;

-- _sas.next_iterations(run_ids, step_nos): an iteration of these steps has ended: decides whether the next
-- one begins, and when.
-- Writes: step, message. Wakes: the scheduler.
CREATE FUNCTION _sas.next_iterations(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    t record;
    at timestamptz;
BEGIN
    FOR t IN SELECT f.run_id, f.step_no, f.total, w.name, w.shape -> 'repeat' AS repeat, s.output AS last,
                    -- "while" is not evaluated before the first iteration
                    f.total = 0 OR asked.met AS goes_on, asked.reason
             FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
             JOIN _sas.map_progress f ON f.run_id = u.run_id AND f.step_no = u.step_no
             JOIN _sas.run r ON r.run_id = u.run_id
             CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
             LEFT JOIN LATERAL (SELECT _sas.kept_output(x.state, x.output, x.error) AS output
                                FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                                AND x.element = f.total OFFSET 0) s ON true
             LEFT JOIN LATERAL _sas.predicate(
                 w.shape #>> '{repeat,while}',
                 CASE WHEN f.total > 0
                      THEN _sas.context(r, w, 0)
                           -- between two iterations, the previous output is the output
                           || jsonb_build_object('last', s.output, 'output', s.output, 'index', f.total)
                      END) asked ON true LOOP
        IF t.goes_on IS NULL THEN
            PERFORM _sas.fail_steps(
                ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0],
                ARRAY[_sas.problem_object('repeat', _sas.neither('"while"', t.reason), t.repeat ->> 'while',
                                          NULL, t.run_id, t.name)]);
        ELSIF NOT t.goes_on THEN
            PERFORM _sas.succeed_steps(ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0], ARRAY[t.last]);
        ELSIF t.total >= coalesce((t.repeat ->> 'max')::int, 10000) THEN
            PERFORM _sas.fail_steps(
                ARRAY[t.run_id], ARRAY[t.step_no], ARRAY[0],
                ARRAY[_sas.problem_object('repeat', format('it would continue after %s iterations', t.total),
                                          t.repeat ->> 'while', NULL, t.run_id, t.name)]);
        ELSE
            at := CASE WHEN t.total > 0 THEN sas.now() + _sas.span(t.repeat -> 'every') END;
            IF at IS NULL THEN
                PERFORM _sas.begin_iterations(ARRAY[t.run_id], ARRAY[t.step_no]);
            ELSE
                UPDATE _sas.step s SET waiting_until = at WHERE s.run_id = t.run_id AND s.step_no = t.step_no
                    AND s.element = 0;
                INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
                VALUES ('s', at, t.run_id, 'iteration', t.step_no, 0);
                PERFORM _sas.wake(scheduler => true);
            END IF;
        END IF;
    END LOOP;
END $$;

-- _sas.begin_iterations(run_ids, step_nos): begins the next iteration of these steps. A message that comes
-- before its time belongs to an earlier iteration and is ignored.
-- Writes: map_progress, step. Next: _sas.release_elements.
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
