-- SPDX-License-Identifier: PostgreSQL
--
-- How a step begins that is more than one call, and how a step ends without a worker. The scheduler calls
-- these functions with the runs locked.

-- _sas.go_on(run_ids, step_nos, elements): continues runs after these steps, or elements of steps, have
-- succeeded or were skipped.
-- Next: _sas.advance for steps, _sas.count_elements for elements.
CREATE FUNCTION _sas.go_on(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF 0 = ALL (elements) THEN
        PERFORM _sas.advance(run_ids, step_nos);
        RETURN;
    END IF;
    PERFORM _sas.advance(array_agg(u.run_id), array_agg(u.step_no))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element) WHERE u.element = 0
    HAVING count(*) > 0;
    PERFORM _sas.count_elements(array_agg(u.run_id), array_agg(u.step_no), array_agg(u.element))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element) WHERE u.element > 0
    HAVING count(*) > 0;
END $$;

-- _sas.fail_steps(..., errors, doubts): these steps, or their undos, fail for good, without a worker. The
-- supervisor decides what follows. doubts: true for a step that has done its work and must be undone.
-- Writes: step, message. Wakes: the supervisor. Next: _sas.decide_due.
CREATE FUNCTION _sas.fail_steps(run_ids bigint[], step_nos int[], elements int[], errors jsonb[],
                                doubts boolean[] DEFAULT NULL, outputs jsonb[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => u.run_id, step_no => u.step_no, element => u.element,
               from_state => coalesce(s.state, 'none'),
               to_state => CASE s.state WHEN 'compensating' THEN s.state ELSE 'failed' END,
               in_doubt => u.doubt, transient => false, output => u.output, error => u.error,
               started_at => sas.now(), finished_at => sas.now(), waiting_kind => 'supervisor'))
    INTO changes
    FROM unnest(run_ids, step_nos, elements, errors, doubts, outputs)
        AS u (run_id, step_no, element, error, doubt, output)
    LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s ON true;
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.notify_supervisor(changes) WHERE changes IS NOT NULL;
END $$;

-- _sas.succeed_steps(..., outputs): these steps, or their undos, have got what they waited for; outputs are
-- their results. expect and output of a step with elements apply to each element, not to the step as a
-- whole. The result of an undo is not stored. A child run whose result is not what was expected has done its
-- work: its step is undone.
-- Writes: step. Next: _sas.follow_success.
CREATE FUNCTION _sas.succeed_steps(run_ids bigint[], step_nos int[], elements int[], outputs jsonb[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    judged record;
BEGIN
    WITH judged AS (
        SELECT u.run_id, u.step_no, u.element, coalesce(s.state, 'none') AS from_state, w.falls,
               nullif(w.kind = 'workflow' AND NOT w.undo, false) AS doubt,
               coalesce(j.result, u.output) AS output,
               CASE WHEN NOT w.asks THEN NULL
                    WHEN j.met IS NULL
                    THEN _sas.problem_object('expect', _sas.neither('expect', j.reason), w.expect #>> '{}',
                                             NULL, u.run_id, w.name)
                    WHEN NOT j.met
                    THEN _sas.problem_object('expect', 'the result is not what was expected',
                                             w.expect #>> '{}', NULL, u.run_id, w.name)
                    WHEN j.problem IS NOT NULL
                    THEN _sas.output_error(j.problem, u.run_id, w.name) END AS error
        FROM unnest(run_ids, step_nos, elements, outputs) AS u (run_id, step_no, element, output)
        JOIN _sas.run r ON r.run_id = u.run_id
        -- OFFSET 0: each is looked up by its whole key, and what asks nothing is not evaluated
        LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s ON true
        CROSS JOIN LATERAL (SELECT x.name, x.kind, x.undo, x.expect, x.output,
                                   coalesce(x.shape ?| '{fallback,stands_in}', false) AS falls,
                                   (x.expect IS NOT NULL OR x.output IS NOT NULL)
                                   AND NOT (u.element = 0 AND coalesce(x.shape ?| '{each,repeat}', false))
                                       AS asks
                            FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                                AND x.step_no = u.step_no
                                AND x.undo = (coalesce(s.state, '') = 'compensating') OFFSET 0) w
        LEFT JOIN LATERAL (SELECT t.met, t.reason, o.result, o.problem
                           FROM (SELECT _sas.context(r, x, u.element) AS root FROM _sas.workflow_step x
                                 WHERE x.version_id = r.version_id AND x.step_no = u.step_no
                                     AND x.undo = w.undo OFFSET 0) x
                           CROSS JOIN LATERAL _sas.meets(w.expect, u.output, x.root) t
                           LEFT JOIN LATERAL _sas.render(
                               w.output, x.root || jsonb_build_object('output', u.output)) o
                               ON w.output IS NOT NULL
                           WHERE w.asks OFFSET 0) j ON true)
    SELECT array_agg(_sas.make_step_change(
               run_id => j.run_id, step_no => j.step_no, element => j.element, from_state => j.from_state,
               to_state => CASE WHEN o.undone THEN 'compensated' ELSE 'succeeded' END, in_doubt => false,
               output => CASE WHEN NOT o.undone THEN j.output END,
               completion => CASE WHEN NOT o.undone THEN nextval('_sas.completion_seq') END,
               started_at => sas.now(), finished_at => sas.now()))
               FILTER (WHERE j.error IS NULL) AS changes,
           bool_or(j.falls) AS falls,
           array_agg(j.run_id) FILTER (WHERE j.error IS NOT NULL) AS failed_runs,
           array_agg(j.step_no) FILTER (WHERE j.error IS NOT NULL) AS failed_nos,
           array_agg(j.element) FILTER (WHERE j.error IS NOT NULL) AS failed_elements,
           array_agg(j.error) FILTER (WHERE j.error IS NOT NULL) AS errors,
           array_agg(j.doubt) FILTER (WHERE j.error IS NOT NULL) AS doubts,
           -- for an undo that reads it
           array_agg(CASE WHEN j.doubt THEN j.output END) FILTER (WHERE j.error IS NOT NULL) AS results
    INTO judged
    FROM judged j CROSS JOIN LATERAL (SELECT j.from_state = 'compensating' AS undone) o;
    PERFORM _sas.move_steps(judged.changes);
    PERFORM _sas.follow_success(judged.changes, judged.falls);
    PERFORM _sas.fail_steps(judged.failed_runs, judged.failed_nos, judged.failed_elements, judged.errors,
                            judged.doubts, judged.results) WHERE judged.failed_runs IS NOT NULL;
END $$;

-- _sas.follow_success(changes, falls): continues after these steps have succeeded, or were undone, without a
-- worker. falls: one that has succeeded may be a fallback.
-- Next: _sas.go_on; _sas.fall_back for a step that was undone before its fallback; _sas.close_steps in a
-- run that cannot continue.
CREATE FUNCTION _sas.follow_success(changes _sas.step_change[], falls boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ok record;
BEGIN
    PERFORM _sas.undone_substitute(changes)
    WHERE EXISTS (SELECT FROM unnest(changes) c WHERE c.to_state = 'compensated');
    SELECT array_agg(c.run_id) FILTER (WHERE c.to_state = 'succeeded' AND r.abandon_as IS NULL) AS run_ids,
           array_agg(c.step_no) FILTER (WHERE c.to_state = 'succeeded' AND r.abandon_as IS NULL) AS step_nos,
           array_agg(c.element) FILTER (WHERE c.to_state = 'succeeded' AND r.abandon_as IS NULL) AS elements,
           array_agg(c.run_id) FILTER (WHERE c.to_state = 'compensated' AND r.abandon_as IS NULL)
               AS undone_runs,
           array_agg(c.step_no) FILTER (WHERE c.to_state = 'compensated' AND r.abandon_as IS NULL)
               AS undone_nos,
           array_agg(c.element) FILTER (WHERE c.to_state = 'compensated' AND r.abandon_as IS NULL)
               AS undone_elements,
           array_agg(c.run_id) FILTER (WHERE r.abandon_as IS NOT NULL) AS closed
    INTO ok
    FROM unnest(changes) c JOIN _sas.run r ON r.run_id = c.run_id;
    IF ok.undone_runs IS NOT NULL THEN
        PERFORM _sas.fall_back(ok.undone_runs, ok.undone_nos, ok.undone_elements);
    END IF;
    IF ok.run_ids IS NOT NULL AND falls THEN
        SELECT i.run_ids, i.step_nos, i.elements INTO ok.run_ids, ok.step_nos, ok.elements
        FROM _sas.substituted(ok.run_ids, ok.step_nos, ok.elements) i;
    END IF;
    IF ok.run_ids IS NOT NULL THEN
        PERFORM _sas.go_on(ok.run_ids, ok.step_nos, ok.elements);
    END IF;
    IF ok.closed IS NOT NULL THEN
        PERFORM _sas.close_steps(ok.closed);
    END IF;
END $$;

-- _sas.skip_steps(run_ids, step_nos, cascades): skips these steps, because their condition is false. With
-- cascade, all steps that depend on them, directly or not, are skipped as well.
CREATE FUNCTION _sas.skip_steps(run_ids bigint[], step_nos int[], cascades boolean[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
BEGIN
    WITH RECURSIVE first AS (
        SELECT u.run_id, r.version_id, u.step_no, u.cascade, w.covers
        FROM unnest(run_ids, step_nos, cascades) AS u (run_id, step_no, cascade)
        JOIN _sas.run r ON r.run_id = u.run_id
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo),
    gone AS (
        SELECT f.run_id, f.version_id, x.step_no, x.cascade
        FROM first f
        -- when an include is skipped, all steps inside are; what follows depends on its closing step
        CROSS JOIN LATERAL (SELECT f.step_no, f.cascade AND f.covers IS NULL AS cascade
                            UNION ALL
                            SELECT c, f.cascade AND c = f.covers[cardinality(f.covers)]
                            FROM unnest(f.covers) c) x
        UNION
        SELECT g.run_id, g.version_id, e.to_no, true
        FROM gone g JOIN _sas.workflow_edge e ON e.version_id = g.version_id AND e.from_no = g.step_no
        WHERE g.cascade)
    SELECT array_agg(_sas.make_step_change(
               run_id => g.run_id, step_no => g.step_no, element => 0,
               from_state => coalesce(s.state, 'none'), to_state => 'skipped', finished_at => sas.now()))
    INTO changes
    FROM (SELECT DISTINCT gone.run_id, gone.step_no FROM gone) g
    LEFT JOIN _sas.step s ON s.run_id = g.run_id AND s.step_no = g.step_no AND s.element = 0
    WHERE coalesce(s.state, 'none') IN ('none', 'waiting', 'ready');
    PERFORM _sas.move_steps(changes);
    -- a cascade has skipped everything that follows, so only the first step is counted
    PERFORM _sas.advance(array_agg(u.run_id), array_agg(coalesce(w.covers[cardinality(w.covers)], u.step_no)))
    FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
    JOIN _sas.run r ON r.run_id = u.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo;
END $$;

-- _sas.begin_steps(run_ids, step_nos, elements): evaluates the condition of each step, and begins the step
-- as its kind requires.
-- Caller: the scheduler; holds the lock of the runs. Next: one function for each way in which a step begins
-- (_sas.beginnings).
CREATE FUNCTION _sas.begin_steps(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    b record;
BEGIN
    PERFORM _sas.start_runs(run_ids);
    FOR b IN
        SELECT g.what, array_agg(g.run_id) AS runs, array_agg(g.step_no) AS nos,
            array_agg(g.element) AS elements, array_agg(g.state) AS states, array_agg(g.value) AS values
        FROM (SELECT n.* FROM _sas.beginnings(run_ids, step_nos, elements) n
              ORDER BY n.run_id, n.step_no, n.element) g
        GROUP BY g.what
        ORDER BY array_position('{undo,park,pass,fan,child,wait,fall,fail,skip,cascade,done}', g.what) LOOP
        CASE b.what
        WHEN 'undo' THEN PERFORM _sas.undo_children(b.runs, b.nos, b.elements);
        WHEN 'park' THEN
            PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
                run_id => u.run_id, step_no => u.step_no, element => u.element, from_state => u.state,
                to_state => 'ready', deferred => true)))
            FROM unnest(b.runs, b.nos, b.elements, b.states) AS u (run_id, step_no, element, state);
        WHEN 'pass' THEN PERFORM _sas.make_ready(b.runs, b.nos, b.elements, entered => true);
        WHEN 'fan' THEN PERFORM _sas.begin_maps(b.runs, b.nos, b.values, b.states);
        WHEN 'child' THEN PERFORM _sas.begin_children(b.runs, b.nos, b.elements, b.values, b.states);
        WHEN 'wait' THEN PERFORM _sas.begin_waits(b.runs, b.nos, b.elements);
        WHEN 'fall' THEN PERFORM _sas.fall_back(b.runs, b.nos, b.elements);
        WHEN 'fail' THEN PERFORM _sas.fail_steps(b.runs, b.nos, b.elements, b.values);
        WHEN 'skip', 'cascade' THEN
            PERFORM _sas.skip_steps(b.runs, b.nos,
                                    array_fill(b.what = 'cascade', ARRAY[cardinality(b.runs)]));
        WHEN 'done' THEN PERFORM _sas.succeed_steps(b.runs, b.nos, b.elements, b.values);
        END CASE;
    END LOOP;
END $$;

-- _sas.entering(run_ids, step_nos, elements): those of these steps, or elements, that may begin, and what
-- decides how. It is one statement: the elements of a map have most of what it reads in common.
--   fans      it is a map, or repeats
--   asks      it has a condition
--   template  gives the array of a map, the input of a child run, the output of a step without a worker
--   input     an operator has set this instead (_sas.override)
--   root      of the paths in both; null where nothing is evaluated
CREATE FUNCTION _sas.entering(run_ids bigint[], step_nos int[], elements int[])
RETURNS TABLE (run_id bigint, step_no int, element int, state text, paused boolean, name text, kind text,
               shape jsonb, lane int, fans boolean, asks boolean, template jsonb, input jsonb, root jsonb)
LANGUAGE sql STABLE AS $$
    SELECT g.run_id, g.step_no, u.element, g.state, r.state = 'paused', w.name, w.kind, w.shape, w.lane,
           h.fans, h.asks, t.template,
           CASE WHEN t.template IS NOT NULL AND g.state <> 'compensating'
                THEN (SELECT d.input FROM _sas.override d WHERE d.run_id = g.run_id AND d.step_no = g.step_no
                      AND d.element = u.element) END,
           CASE WHEN h.asks OR t.template IS NOT NULL
                THEN (SELECT k.root FROM _sas.root_of(
                          r.run_id, r.version_id, r.trace, r.key, r.input, r.labels, r.created_at, r.deadline,
                          r.schedule, r.scheduled_at, w, u.element) k) END
    FROM (SELECT n.run_id, n.step_no, coalesce(s.state, 'none') AS state,
                 array_agg(DISTINCT n.element) AS those
          FROM unnest($1, $2, $3) AS n (run_id, step_no, element)
          LEFT JOIN LATERAL _sas.step_row(n.run_id, n.step_no, n.element) s ON true
          WHERE coalesce(s.state, 'ready') = 'ready' OR s.state = 'compensating' AND s.waiting_kind IS NULL
          GROUP BY 1, 2, 3) g
    JOIN _sas.run r ON r.run_id = g.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, g.step_no, g.state = 'compensating') w
    CROSS JOIN unnest(g.those) AS u (element)
    CROSS JOIN LATERAL (
        SELECT w.shape IS NOT NULL AND u.element = 0 AND w.shape ?| '{each,repeat}' AS fans,
               w.shape IS NOT NULL AND u.element = 0 AND w.shape ? 'when' AS asks,
               r.state <> 'paused' AND NOT coalesce(w.shape ? 'reverses', false) AS begins OFFSET 0) h
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT h.begins THEN NULL
                    -- "repeat" has no array, and a map that is tried again has its elements
                    WHEN h.fans
                    THEN CASE WHEN NOT EXISTS (SELECT FROM _sas.map_progress f WHERE f.run_id = g.run_id
                                               AND f.step_no = g.step_no) THEN w.shape -> 'each' END
                    WHEN w.kind = 'workflow' THEN coalesce(w.input, '"{{input}}"')
                    WHEN w.kind = 'join' THEN coalesce(w.input, 'null') END AS template OFFSET 0) t
    -- a resume begins the undo of a paused run again; a run goes on after the undo before a fallback
    WHERE CASE WHEN g.state = 'compensating' THEN r.state IN ('pending', 'running', 'compensating')
          ELSE r.abandon_as IS NULL AND r.state IN ('pending', 'running', 'paused') END
    -- the root is built once, however many columns are made from it
    OFFSET 0
$$;

-- _sas.weighed(run_ids, step_nos, elements): the same, with what was evaluated.
--   met      its condition holds; null: it is neither true nor false, and reason may say why
--   result   what its template gives, or what was set instead; problem: why there is none
--   is_kind  the result is what it must be: the array of a map, the object of a child run
-- No join stands between them: a join would keep each root, to find an equal one.
CREATE FUNCTION _sas.weighed(run_ids bigint[], step_nos int[], elements int[])
RETURNS TABLE (run_id bigint, step_no int, element int, state text, paused boolean, name text, kind text,
               shape jsonb, lane int, fans boolean, met boolean, reason text, result jsonb, problem text,
               is_kind boolean)
LANGUAGE sql STABLE AS $$
    SELECT m.run_id, m.step_no, m.element, m.state, m.paused, m.name, m.kind, m.shape, m.lane, m.fans, m.met,
           (m.asked).reason, m.result, m.problem,
           coalesce(m.problem IS NULL
                    AND jsonb_typeof(m.result) = CASE WHEN m.fans THEN 'array' WHEN m.kind = 'workflow'
                                                      THEN 'object' END, m.problem IS NULL)
    FROM (SELECT j.*, CASE WHEN j.met THEN coalesce(j.input, (j.made).result) END AS result,
                 _sas.problem_text((j.made).problem) AS problem
          FROM (SELECT a.*, _sas.render(CASE WHEN a.met AND a.input IS NULL THEN a.template END, a.root)
                           AS made
                FROM (SELECT c.*, CASE WHEN c.asks THEN (c.asked).met ELSE true END AS met
                      FROM (SELECT e.*, _sas.predicate(CASE WHEN e.asks AND NOT e.paused
                                                            THEN e.shape ->> 'when' END, e.root) AS asked
                            FROM _sas.entering($1, $2, $3) e OFFSET 0) c) a OFFSET 0) j) m
$$;

-- _sas.beginnings(run_ids, step_nos, elements): how those of these steps, or elements, begin that may.
--   undo     its child runs are undone
--   park     its run is paused, so the step is deferred
--   pass     a worker can claim it
--   fan      it has elements; value: the array, null for iterations and for a map that continues
--   child    it is a child run; value: the input of that run
--   wait     it waits for a signal or a time
--   fall     its fallback takes over
--   fail     it cannot begin; value: the error
--   skip     its condition is false; cascade: what depends on it is skipped, too
--   done     it needs no worker; value: its output
CREATE FUNCTION _sas.beginnings(run_ids bigint[], step_nos int[], elements int[])
RETURNS TABLE (what text, run_id bigint, step_no int, element int, state text, value jsonb)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN e.shape ? 'reverses' THEN 'undo'
                WHEN e.paused THEN 'park'
                WHEN wrong.error IS NOT NULL THEN 'fail'
                WHEN NOT e.met THEN CASE e.shape ->> 'else' WHEN 'skip_cascade' THEN 'cascade' ELSE 'skip' END
                WHEN e.fans THEN 'fan'
                WHEN e.kind = 'wait' THEN 'wait'
                WHEN e.kind = 'workflow' THEN 'child'
                WHEN e.kind = 'join' THEN 'done'
                WHEN e.shape #> '{fallback,on}' ? 'breaker_open'
                     AND e.lane IN (SELECT _sas.open_breakers()) THEN 'fall'
                ELSE 'pass' END,
           e.run_id, e.step_no, e.element, e.state, coalesce(wrong.error, e.result)
    FROM _sas.weighed($1, $2, $3) e
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.met IS NULL
                    THEN _sas.problem_object('when', _sas.neither('"when"', e.reason), e.shape ->> 'when',
                                             NULL, e.run_id, e.name)
                    WHEN NOT e.is_kind AND e.fans
                    THEN _sas.problem_object('each', '"each" needs an array',
                                             coalesce(e.problem,
                                                      format('%s gives %s', e.shape ->> 'each',
                                                             CASE jsonb_typeof(e.result)
                                                             WHEN 'object' THEN 'an object'
                                                             ELSE 'a ' || jsonb_typeof(e.result) END)),
                                             NULL, e.run_id, e.name)
                    WHEN NOT e.is_kind
                    THEN _sas.problem_object('template', 'could not build the input of the step',
                                             coalesce(e.problem, 'the input of a run must be an object, not '
                                                                 || jsonb_typeof(e.result)),
                                             NULL, e.run_id, e.name)
                    WHEN e.fans AND jsonb_array_length(e.result) > _sas.most_elements()
                    THEN _sas.problem_object('each', '"each" has more than ' || _sas.most_elements()
                                             || ' elements', NULL, NULL, e.run_id, e.name) END AS error
        OFFSET 0) wrong
$$;

-- _sas.needs_output(w, name): does this step refer to the output of that step in a way that fails when
-- there is none?
CREATE FUNCTION _sas.needs_output(w _sas.workflow_step, name text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM _sas.references(jsonb_build_array(
                       w.request, w.input, w.output, w.shape -> 'each', w.shape -> 'wait',
                       w.shape #> '{poll,call}')) r
                   WHERE r.root = 'steps' AND r.member = name AND r.third IN ('output', 'started')
                       AND NOT r.optional)
$$;

-- _sas.after_skip(run_ids, step_nos): continues runs after these steps, which had failed or waited, were
-- skipped. Steps that need the output of a skipped step are skipped with it, and so on; steps that only
-- come after it continue. A skipped step that was given another output counts like one that has succeeded.
-- Writes: run.
CREATE FUNCTION _sas.after_skip(run_ids bigint[], step_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
BEGIN
    WITH RECURSIVE gone AS (
        SELECT u.run_id, r.version_id, u.step_no
        FROM unnest(run_ids, step_nos) AS u (run_id, step_no)
        JOIN _sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, 0) s
        WHERE _sas.kept_output(s.state, s.output, s.error) IS NULL
        UNION
        SELECT g.run_id, g.version_id, n.step_no
        FROM gone g
        CROSS JOIN LATERAL _sas.step_definition(g.version_id, g.step_no) o
        CROSS JOIN LATERAL (
            SELECT w.step_no
            FROM _sas.workflow_edge e
            CROSS JOIN LATERAL _sas.step_definition(g.version_id, e.to_no) w
            WHERE e.version_id = g.version_id AND e.from_no = g.step_no
                AND _sas.needs_output(w, o.local_name)
            UNION ALL
            -- an include is skipped with all steps inside
            SELECT unnest(o.covers)) n)
    SELECT array_agg(_sas.make_step_change(
               run_id => g.run_id, step_no => g.step_no, element => 0,
               from_state => coalesce(s.state, 'none'), to_state => 'skipped', finished_at => sas.now()))
    INTO changes
    FROM gone g
    LEFT JOIN LATERAL _sas.step_row(g.run_id, g.step_no, 0) s ON true
    WHERE coalesce(s.state, 'waiting') = 'waiting';
    PERFORM _sas.move_steps(changes);
    -- these steps were not open: open_steps is raised here, because advance() lowers it for each of them
    UPDATE _sas.run r SET open_steps = r.open_steps + d.n
    FROM (SELECT c.run_id, count(*)::int AS n FROM unnest(changes) c GROUP BY 1) d WHERE r.run_id = d.run_id;
    PERFORM _sas.advance(run_ids || ARRAY(SELECT c.run_id FROM unnest(changes) c),
                         step_nos || ARRAY(SELECT c.step_no FROM unnest(changes) c));
END $$;
