-- SPDX-License-Identifier: PostgreSQL
--
-- Input: an operator gives a step another input for its next attempt.

-- _sas.set_input_runs_as(...): the body of sas.set_input_runs: stores what the step is given, or sends,
-- when it is tried next: for a call the body, form or text; for a whole map the array. It does not start an
-- attempt; sas.retry does.
-- Writes: override.
CREATE FUNCTION _sas.set_input_runs_as(caller oid, run_ids bigint[], for_step text, input jsonb)
RETURNS TABLE (run_id bigint, step text, changed boolean, state text, result text, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    named _sas.named[];
    targets _sas.target[];
    p record;
    wrong record;
BEGIN
    PERFORM _sas.must_name($3);
    IF $4 IS NULL THEN
        RAISE EXCEPTION 'the input must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /input.',
            HINT = 'Pass jsonb, ''null'' for a JSON null.';
    END IF;
    PERFORM _sas.check_input_size($4, '/input', 'the input');
    named := _sas.refuse_data(caller, _sas.operate(caller, run_ids), true);
    targets := _sas.by_element(_sas.targets(named, $3));
    SELECT * INTO p FROM _sas.pick_targets(targets, '{failed,deciding,resting,ready}');
    SELECT array_agg(x.run_id) AS ids, array_agg(x.why) AS whys INTO wrong
    FROM (SELECT DISTINCT ON (t.run_id) t.run_id, y.why
          FROM (SELECT f.*, f AS target, count(*) OVER (PARTITION BY f.run_id) AS n FROM unnest(p.fit) f) t
          JOIN _sas.run r ON r.run_id = t.run_id
          CROSS JOIN LATERAL _sas.step_definition(r.version_id, t.step_no) w
          CROSS JOIN LATERAL (
              SELECT CASE WHEN t.n > 1
                          THEN format('step "%s" of run %s has %s elements; name one, such as "%s"', $3,
                                      t.run_id, t.n, t.label)
                          ELSE format('step "%s" of run %s ', t.label, t.run_id)
                               || _sas.unfit_input(r, w, t.target, $4) END AS why OFFSET 0) y
          WHERE y.why IS NOT NULL ORDER BY t.run_id, t.element) x;
    p.fit := ARRAY(SELECT ROW(t.*)::_sas.target FROM unnest(p.fit) t
                   WHERE NOT coalesce(t.run_id = ANY (wrong.ids), false)
                   ORDER BY t.run_id, t.step_no, t.element);
    INSERT INTO _sas.override (run_id, step_no, element, input) SELECT t.run_id, t.step_no, t.element, $4
    FROM unnest(p.fit) t
    ON CONFLICT (run_id, step_no, element) DO UPDATE SET input = EXCLUDED.input;
    PERFORM _sas.reopen_phases(p.fit, $4);
    PERFORM _sas.record_steps(caller, p.fit, 'set_input', jsonb_build_object('input', $4));
    RETURN QUERY
    SELECT t.run_id, t.step, t.changed, t.state, t.result,
        coalesce((SELECT u.why FROM unnest(wrong.ids, wrong.whys) AS u (run_id, why)
                     WHERE u.run_id = t.run_id), t.refused)
    FROM _sas.report_steps('set_input', named, $3, p.fit, p.unfit) t;
END $$;

-- _sas.reopen_phases(targets, input): repeats the "before" functions of these steps, because their input
-- has changed.
-- Writes: phase.
CREATE FUNCTION _sas.reopen_phases(targets _sas.target[], input jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.phase g SET stage = CASE WHEN g.stage = 'call' AND g.request IS NOT NULL THEN 'before'
        ELSE g.stage END, request = CASE g.stage WHEN 'plan' THEN $2 END, response = NULL
    FROM unnest(targets) t WHERE g.run_id = t.run_id AND g.step_no = t.step_no AND g.element = t.element
        AND NOT g.undo;
    IF FOUND THEN
        PERFORM _sas.hand_to_functions(array_agg(t.run_id), array_agg(t.step_no), array_agg(t.element))
        FROM unnest(targets) t
        CROSS JOIN LATERAL (SELECT FROM _sas.phase x WHERE x.run_id = t.run_id AND x.step_no = t.step_no
                            AND x.element = t.element AND NOT x.undo AND x.stage = 'before' OFFSET 0) g;
    END IF;
END $$;

-- _sas.unfit_input(r, w, t, input): why this cannot be the input of that step; null if it can.
CREATE FUNCTION _sas.unfit_input(r _sas.run, w _sas.workflow_step, t _sas.target, input jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.abandon_as IS NOT NULL THEN 'belongs to a run that cannot continue'
                WHEN (SELECT s.asks IS NOT NULL FROM _sas.step s WHERE s.run_id = t.run_id
                      AND s.step_no = t.step_no AND s.element = t.element)
                    THEN 'has sent its call already, and only polls'
                WHEN t.element = 0 AND w.shape ? 'each' THEN CASE
                    WHEN jsonb_typeof(input) <> 'array' THEN 'is a map, so its input must be an array'
                                                                  WHEN EXISTS (SELECT FROM _sas.map_progress f
                                                                              WHERE f.run_id = t.run_id
                                                                              AND f.step_no = t.step_no)
                                        THEN 'has begun its elements' END
                WHEN t.element = 0 AND w.shape ? 'repeat'
                    THEN 'repeats, and its input is built for each iteration'
                WHEN r.version_id IS NOT NULL
                    AND w.step_no = (SELECT v.finalize_no FROM _sas.workflow_version v
                                     WHERE v.version_id = r.version_id)
                    THEN 'is given the whole run; what it reads cannot be set'
                WHEN w.kind IN ('wait', 'join') THEN 'has no input'
                WHEN w.kind = 'workflow' AND jsonb_typeof(input) <> 'object'
                    THEN 'begins a run, whose input must be an object'
                WHEN w.kind = 'call' THEN CASE _sas.body_part(w.request)
                    WHEN 'form' THEN CASE WHEN jsonb_typeof(input) <> 'object'
                        THEN 'sends a form, which must be an object' END
                    WHEN 'text' THEN CASE WHEN jsonb_typeof(input) <> 'string'
                        THEN 'sends text, which must be a string' END
                    WHEN 'body' THEN NULL
                    ELSE 'sends no body; its path and query cannot be set, but sas.force_complete '
                         'can store its result' END
           END
$$;
