-- SPDX-License-Identifier: PostgreSQL
--
-- Enter: steps that need thought before they begin, and what ends them without
-- a worker. Called by the scheduler, with the runs locked.

-- sas._go_on(run_ids, step_nos, elements): these steps, or elements, of runs that go on have succeeded or were skipped.
CREATE FUNCTION sas._go_on(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF 0 = ALL (elements) THEN
        PERFORM sas._advance(run_ids, step_nos);
        RETURN;
    END IF;
    PERFORM sas._advance(array_agg(u.run_id), array_agg(u.step_no))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element) WHERE u.element = 0 HAVING count(*) > 0;
    PERFORM sas._count_elements(array_agg(u.run_id), array_agg(u.step_no))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element) WHERE u.element > 0 HAVING count(*) > 0;
END $$;

-- sas._fail_steps(..., errors): these steps fail for good, without a worker; the supervisor decides.
CREATE FUNCTION sas._fail_steps(run_ids bigint[], step_nos int[], elements int[], errors jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
BEGIN
    SELECT array_agg(ROW(u.run_id, u.step_no, u.element, coalesce(s.state, 'none'), 'failed', NULL, NULL, NULL, false, NULL, NULL, NULL, u.error, NULL,
                         sas._now(), sas._now(), NULL, NULL, NULL, NULL, 'supervisor', NULL)::sas._step_change)
    INTO changes
    FROM unnest(run_ids, step_nos, elements, errors) AS u (run_id, step_no, element, error)
    LEFT JOIN LATERAL (SELECT * FROM sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s ON true;
    PERFORM sas._move_steps(changes);
    PERFORM sas._tell_supervisor(changes) WHERE changes IS NOT NULL;
END $$;

-- sas._succeed_steps(..., outputs): these steps have what they waited for. expect and output of a
-- step with elements are asked of each element, not of the whole.
CREATE FUNCTION sas._succeed_steps(run_ids bigint[], step_nos int[], elements int[], outputs jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
    failed_runs bigint[];
    failed_nos int[];
    failed_elements int[];
    errors jsonb[];
BEGIN
    WITH judged AS (
        SELECT u.run_id, u.step_no, u.element, coalesce(s.state, 'none') AS from_state, coalesce(o.result, u.output) AS output,
               CASE WHEN m.met IS NULL THEN sas._problem_object('expect', 'expect is neither true nor false', w.expect #>> '{}', NULL, u.run_id, w.name)
                    WHEN NOT m.met THEN sas._problem_object('expect', 'the result is not what was expected', w.expect #>> '{}', NULL, u.run_id, w.name)
                    WHEN o.problem IS NOT NULL THEN sas._problem_object('output', 'the output of the step could not be made',
                                                                        format('%s: %s', o.problem ->> 'path', o.problem ->> 'what'), NULL, u.run_id, w.name) END AS error
        FROM unnest(run_ids, step_nos, elements, outputs) AS u (run_id, step_no, element, output)
        JOIN sas.run r ON r.run_id = u.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo
        LEFT JOIN LATERAL (SELECT * FROM sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s ON true
        CROSS JOIN LATERAL (SELECT u.element = 0 AND coalesce(w.shape ?| '{each,repeat}', false) AS whole) h
        CROSS JOIN LATERAL (SELECT CASE WHEN NOT h.whole AND (w.expect IS NOT NULL OR w.output IS NOT NULL) THEN sas._context(r, w, u.element) END AS root OFFSET 0) x
        CROSS JOIN LATERAL (SELECT h.whole OR sas._met(w.expect, u.output, x.root) AS met OFFSET 0) m
        LEFT JOIN LATERAL sas._render(w.output, x.root || jsonb_build_object('output', u.output)) o ON NOT h.whole AND w.output IS NOT NULL)
    SELECT array_agg(ROW(j.run_id, j.step_no, j.element, j.from_state, 'succeeded', NULL, NULL, false, NULL, NULL, NULL, j.output, NULL, nextval('sas.completion_seq'),
                         sas._now(), sas._now(), NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change) FILTER (WHERE j.error IS NULL),
           array_agg(j.run_id) FILTER (WHERE j.error IS NOT NULL), array_agg(j.step_no) FILTER (WHERE j.error IS NOT NULL),
           array_agg(j.element) FILTER (WHERE j.error IS NOT NULL), array_agg(j.error) FILTER (WHERE j.error IS NOT NULL)
    INTO changes, failed_runs, failed_nos, failed_elements, errors
    FROM judged j;
    PERFORM sas._move_steps(changes);
    PERFORM sas._go_on(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
    FROM unnest(changes) c JOIN sas.run r ON r.run_id = c.run_id AND r.fate IS NULL HAVING count(*) > 0;
    PERFORM sas._close_steps(array_agg(c.run_id))
    FROM unnest(changes) c JOIN sas.run r ON r.run_id = c.run_id AND r.fate IS NOT NULL HAVING count(*) > 0;
    PERFORM sas._fail_steps(failed_runs, failed_nos, failed_elements, errors) WHERE failed_runs IS NOT NULL;
END $$;

-- sas._skip_steps(run_ids, step_nos, cascades): their condition is false; with
-- cascade what depends on them, directly or not, is skipped as well.
CREATE FUNCTION sas._skip_steps(run_ids bigint[], step_nos int[], cascades boolean[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
BEGIN
    WITH RECURSIVE first AS (
        SELECT u.run_id, r.version_id, u.step_no, u.cascade, w.covers
        FROM unnest(run_ids, step_nos, cascades) AS u (run_id, step_no, cascade)
        JOIN sas.run r ON r.run_id = u.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo),
    gone AS (
        SELECT f.run_id, f.version_id, x.step_no, x.cascade
        FROM first f
        -- of an include all that is inside is skipped; its close end has what follows
        CROSS JOIN LATERAL (SELECT f.step_no, f.cascade AND f.covers IS NULL AS cascade
                            UNION ALL
                            SELECT c, f.cascade AND c = f.covers[cardinality(f.covers)] FROM unnest(f.covers) c) x
        UNION
        SELECT g.run_id, g.version_id, e.to_no, true
        FROM gone g JOIN sas.workflow_edge e ON e.version_id = g.version_id AND e.from_no = g.step_no
        WHERE g.cascade)
    SELECT array_agg(ROW(g.run_id, g.step_no, 0, coalesce(s.state, 'none'), 'skipped', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         NULL, sas._now(), NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change)
    INTO changes
    FROM (SELECT DISTINCT gone.run_id, gone.step_no FROM gone) g
    LEFT JOIN sas.step s ON s.run_id = g.run_id AND s.step_no = g.step_no AND s.element = 0
    WHERE coalesce(s.state, 'none') IN ('none', 'waiting', 'ready');
    PERFORM sas._move_steps(changes);
    -- all that follows a cascade is skipped already: only the first one is counted
    PERFORM sas._advance(array_agg(u.run_id), array_agg(coalesce(w.covers[cardinality(w.covers)], u.step_no)))
    FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
    JOIN sas.run r ON r.run_id = u.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo;
END $$;

-- sas._enter_steps(run_ids, step_nos, elements): asks the condition of each, and begins it as its kind wants.
CREATE FUNCTION sas._enter_steps(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    e record;
    root jsonb;
    met boolean;
    made record;
    parked sas._step_change[];
    skip_runs bigint[];
    skip_nos int[];
    skip_cascades boolean[];
    fail_runs bigint[];
    fail_nos int[];
    fail_elements int[];
    fail_errors jsonb[];
    pass_runs bigint[];
    pass_nos int[];
    pass_elements int[];
    fan_runs bigint[];
    fan_nos int[];
    fan_totals int[];
    fan_states text[];
    done_runs bigint[];
    done_nos int[];
    done_elements int[];
    done_outputs jsonb[];
    child_runs bigint[];
    child_nos int[];
    child_elements int[];
    child_inputs jsonb[];
    wait_runs bigint[];
    wait_nos int[];
    wait_elements int[];
    fall_runs bigint[];
    fall_nos int[];
    fall_elements int[];
BEGIN
    PERFORM sas._start_runs(run_ids);
    FOR e IN
        SELECT u.run_id, u.step_no, u.element, r, w, coalesce(s.state, 'none') AS state, r.state = 'paused' AS paused,
               (SELECT d.input FROM sas.edit d WHERE d.run_id = u.run_id AND d.step_no = u.step_no AND d.element = u.element) AS new_input,
               CASE WHEN NOT w.undo AND r.state <> 'paused' THEN (SELECT h.root FROM sas._root_of(r, w, u.element) h) END AS root
        FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
        JOIN sas.run r ON r.run_id = u.run_id
        LEFT JOIN LATERAL (SELECT * FROM sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s ON true
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND w.undo = (coalesce(s.state, '') = 'compensating')
        WHERE CASE WHEN w.undo THEN r.state = 'compensating' ELSE r.fate IS NULL AND r.state IN ('pending', 'running', 'paused') AND coalesce(s.state, 'ready') = 'ready' END
        ORDER BY 1, 2, 3
    LOOP
        IF (e.w).undo THEN
            PERFORM sas._undo_children(ARRAY[e.run_id], ARRAY[e.step_no], ARRAY[e.element]);
            CONTINUE;
        END IF;
        IF e.paused THEN
            parked := parked || ROW(e.run_id, e.step_no, e.element, e.state, 'ready', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                    NULL, NULL, NULL, NULL, NULL, true, NULL, NULL)::sas._step_change;
            CONTINUE;
        END IF;
        root := e.root;
        IF e.element = 0 AND (e.w).shape ? 'when' THEN
            met := sas._predicate((e.w).shape ->> 'when', root);
            IF met IS NULL THEN
                fail_runs := fail_runs || e.run_id; fail_nos := fail_nos || e.step_no; fail_elements := fail_elements || e.element;
                fail_errors := fail_errors || sas._problem_object('when', '"when" is neither true nor false', (e.w).shape ->> 'when', NULL, e.run_id, (e.w).name);
                CONTINUE;
            ELSIF NOT met THEN
                skip_runs := skip_runs || e.run_id; skip_nos := skip_nos || e.step_no;
                skip_cascades := skip_cascades || coalesce((e.w).shape ->> 'else' = 'skip_cascade', false);
                CONTINUE;
            END IF;
        END IF;
        IF e.element = 0 AND (e.w).shape ?| '{each,repeat}' THEN
            IF (e.w).shape ? 'each' AND NOT EXISTS (SELECT FROM sas.fan f WHERE f.run_id = e.run_id AND f.step_no = e.step_no) THEN
                IF e.new_input IS NOT NULL THEN
                    SELECT e.new_input AS result, NULL::jsonb AS problem INTO made;
                ELSE
                    SELECT i.result, i.problem INTO made FROM sas._render((e.w).shape -> 'each', root) i;
                END IF;
                IF made.problem IS NOT NULL OR jsonb_typeof(made.result) <> 'array' THEN
                    fail_runs := fail_runs || e.run_id; fail_nos := fail_nos || e.step_no; fail_elements := fail_elements || 0;
                    fail_errors := fail_errors || sas._problem_object('each', '"each" needs an array',
                        CASE WHEN made.problem IS NOT NULL THEN format('%s: %s', made.problem ->> 'path', made.problem ->> 'what')
                             ELSE format('%s gives %s', (e.w).shape ->> 'each', CASE jsonb_typeof(made.result) WHEN 'object' THEN 'an object' ELSE 'a ' || jsonb_typeof(made.result) END) END, NULL, e.run_id, (e.w).name);
                    CONTINUE;
                END IF;
                INSERT INTO sas.item (run_id, step_no, element, item)
                SELECT e.run_id, e.step_no, i.n, i.value FROM jsonb_array_elements(made.result) WITH ORDINALITY AS i (value, n);
                fan_totals := fan_totals || jsonb_array_length(made.result);
            ELSE
                fan_totals := fan_totals || 0;  -- a first turn, or one that goes on where it failed
            END IF;
            fan_runs := fan_runs || e.run_id; fan_nos := fan_nos || e.step_no; fan_states := fan_states || e.state;
            CONTINUE;
        END IF;
        CASE (e.w).kind
        WHEN 'wait' THEN
            wait_runs := wait_runs || e.run_id; wait_nos := wait_nos || e.step_no; wait_elements := wait_elements || e.element;
        WHEN 'workflow', 'join' THEN
            made := NULL;
            IF e.new_input IS NOT NULL THEN
                SELECT e.new_input AS result, NULL::jsonb AS problem INTO made;
            ELSE
                SELECT i.result, i.problem INTO made
                FROM sas._render(coalesce((e.w).input, CASE (e.w).kind WHEN 'join' THEN 'null'::jsonb ELSE '"{{input}}"' END), root) i;
            END IF;
            IF made.problem IS NOT NULL OR (e.w).kind = 'workflow' AND jsonb_typeof(made.result) <> 'object' THEN
                fail_runs := fail_runs || e.run_id; fail_nos := fail_nos || e.step_no; fail_elements := fail_elements || e.element;
                fail_errors := fail_errors || sas._problem_object('template', 'the input of the step cannot be made',
                    CASE WHEN made.problem IS NOT NULL THEN format('%s: %s', made.problem ->> 'path', made.problem ->> 'what')
                         ELSE format('the input of a run must be an object, not %s', jsonb_typeof(made.result)) END, NULL, e.run_id, (e.w).name);
            ELSIF (e.w).kind = 'join' THEN
                done_runs := done_runs || e.run_id; done_nos := done_nos || e.step_no; done_elements := done_elements || e.element;
                done_outputs := done_outputs || made.result;
            ELSE
                child_runs := child_runs || e.run_id; child_nos := child_nos || e.step_no; child_elements := child_elements || e.element;
                child_inputs := child_inputs || made.result;
            END IF;
        ELSE
            IF (e.w).shape #> '{fallback,on}' ? 'breaker_open' AND (e.w).lane IN (SELECT sas._open_breakers()) THEN
                fall_runs := fall_runs || e.run_id; fall_nos := fall_nos || e.step_no; fall_elements := fall_elements || e.element;
                CONTINUE;
            END IF;
            pass_runs := pass_runs || e.run_id; pass_nos := pass_nos || e.step_no; pass_elements := pass_elements || e.element;
        END CASE;
    END LOOP;

    PERFORM sas._move_steps(parked);
    PERFORM sas._make_ready(pass_runs, pass_nos, pass_elements, true);
    PERFORM sas._begin_fans(fan_runs, fan_nos, fan_totals, fan_states) WHERE fan_runs IS NOT NULL;
    PERFORM sas._begin_children(child_runs, child_nos, child_elements, child_inputs) WHERE child_runs IS NOT NULL;
    PERFORM sas._begin_waits(wait_runs, wait_nos, wait_elements) WHERE wait_runs IS NOT NULL;
    PERFORM sas._fall_back(fall_runs, fall_nos, fall_elements) WHERE fall_runs IS NOT NULL;
    PERFORM sas._fail_steps(fail_runs, fail_nos, fail_elements, fail_errors) WHERE fail_runs IS NOT NULL;
    PERFORM sas._skip_steps(skip_runs, skip_nos, skip_cascades) WHERE skip_runs IS NOT NULL;
    PERFORM sas._succeed_steps(done_runs, done_nos, done_elements, done_outputs) WHERE done_runs IS NOT NULL;
END $$;

-- sas._needs_output(w, name): does this step refer to the output of a step before it as to something that must be there?
CREATE FUNCTION sas._needs_output(w sas.workflow_step, name text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM sas._references(jsonb_build_array(w.request, w.input, w.output, w.shape -> 'each', w.shape -> 'wait', w.shape #> '{poll,call}')) r
                   WHERE r.root = 'steps' AND r.member = name AND r.third IN ('output', 'started') AND NOT r.optional)
$$;

-- sas._after_skip(run_ids, step_nos): these steps of runs that go on had failed, or waited, and were skipped: what needs
-- their output is skipped with them, and what needs the output of that; what only comes after goes on. One that was given
-- another output counts as any that has ended.
CREATE FUNCTION sas._after_skip(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
BEGIN
    WITH RECURSIVE gone AS (
        SELECT u.run_id, r.version_id, u.step_no
        FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
        JOIN sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL (SELECT x.output FROM sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no AND x.element = 0 OFFSET 0) s
        WHERE s.output IS NULL
        UNION
        SELECT g.run_id, g.version_id, n.step_no
        FROM gone g
        CROSS JOIN LATERAL (SELECT x.local_name, x.covers FROM sas.workflow_step x WHERE x.version_id = g.version_id AND x.step_no = g.step_no AND NOT x.undo OFFSET 0) o
        CROSS JOIN LATERAL (
            SELECT w.step_no
            FROM sas.workflow_edge e
            CROSS JOIN LATERAL (SELECT x AS whole, x.step_no FROM sas.workflow_step x WHERE x.version_id = g.version_id AND x.step_no = e.to_no AND NOT x.undo OFFSET 0) w
            WHERE e.version_id = g.version_id AND e.from_no = g.step_no AND sas._needs_output(w.whole, o.local_name)
            UNION ALL
            -- of an include all that is inside
            SELECT unnest(o.covers)) n)
    SELECT array_agg(ROW(g.run_id, g.step_no, 0, coalesce(s.state, 'none'), 'skipped', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         NULL, sas._now(), NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change)
    INTO changes
    FROM gone g
    LEFT JOIN LATERAL (SELECT x.state FROM sas.step x WHERE x.run_id = g.run_id AND x.step_no = g.step_no AND x.element = 0 OFFSET 0) s ON true
    WHERE coalesce(s.state, 'waiting') = 'waiting';
    PERFORM sas._move_steps(changes);
    -- these were not open: they are counted before they are counted off
    UPDATE sas.run r SET open_steps = r.open_steps + d.n
    FROM (SELECT c.run_id, count(*)::int AS n FROM unnest(changes) c GROUP BY 1) d WHERE r.run_id = d.run_id;
    PERFORM sas._advance(run_ids || ARRAY(SELECT c.run_id FROM unnest(changes) c), step_nos || ARRAY(SELECT c.step_no FROM unnest(changes) c));
END $$;
