-- SPDX-License-Identifier: PostgreSQL
--
-- Children: a step of kind workflow is a run of its own. Its parent holds no
-- worker; the child tells the scheduler when it has stopped. Parents and
-- children are never locked together: each is changed by its own messages.

-- sas._begin_children(...): submits a run for each, as the owner of its parent.
-- Those of one step go together; what cannot be submitted fails its step.
CREATE FUNCTION sas._begin_children(run_ids bigint[], step_nos int[], elements int[], inputs jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    g record;
    why text;
    changes sas._step_change[];
BEGIN
    FOR g IN SELECT u.run_id, u.step_no, array_agg(u.element ORDER BY u.element) AS elements, array_agg(u.input ORDER BY u.element) AS inputs
             FROM unnest(run_ids, step_nos, elements, inputs) AS u (run_id, step_no, element, input) GROUP BY 1, 2 ORDER BY 1, 2
    LOOP
        -- no function of a user runs in a scheduler
        IF sas._plan_function(sas._child_workflow(g.run_id, g.step_no)) IS NOT NULL THEN
            PERFORM sas._plan_children(array_fill(g.run_id, ARRAY[cardinality(g.elements)]), array_fill(g.step_no, ARRAY[cardinality(g.elements)]), g.elements, g.inputs);
            CONTINUE;
        END IF;
        why := sas._submit_children(g.run_id, g.step_no, g.elements, g.inputs);
        -- one bad input must not cost the others
        IF why IS NOT NULL AND cardinality(g.elements) > 1 THEN
            FOR n IN 1 .. cardinality(g.elements) LOOP
                why := sas._submit_children(g.run_id, g.step_no, g.elements[n : n], g.inputs[n : n]);
                PERFORM sas._fail_children(g.run_id, g.step_no, g.elements[n : n], why) WHERE why IS NOT NULL;
            END LOOP;
        ELSIF why IS NOT NULL THEN
            PERFORM sas._fail_children(g.run_id, g.step_no, g.elements, why);
        END IF;
    END LOOP;
END $$;

-- sas._child_workflow(run_id, step_no): the name of the workflow whose runs are the children of this step.
CREATE FUNCTION sas._child_workflow(parent_id bigint, parent_no int) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT w.shape ->> 'workflow' FROM sas.run r JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = parent_no AND NOT w.undo WHERE r.run_id = parent_id
$$;

-- How many runs may stand in a row, each a child of the one before.
CREATE FUNCTION sas._child_levels() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 100 $$;

-- sas._submit_children(...): null, or why they could not be submitted. plans: what their plan function returned for each.
CREATE FUNCTION sas._submit_children(parent_id bigint, parent_no int, parent_elements int[], inputs jsonb[], plans jsonb[] DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    p record;
    levels int;
    doomed boolean;
BEGIN
    WITH RECURSIVE above AS (
        SELECT r.run_id, r.parent_run_id, r.fate FROM sas.run r WHERE r.run_id = parent_id
        UNION ALL
        SELECT r.run_id, r.parent_run_id, r.fate FROM above a JOIN sas.run r ON r.run_id = a.parent_run_id)
    SELECT count(*), bool_or(a.fate IS NOT NULL) INTO levels, doomed FROM above a;
    -- workflows that start each other without an end would grow faster than a cancel could follow them down
    IF doomed THEN
        RETURN 'a run above it cannot go on';
    ELSIF levels >= sas._child_levels() THEN
        RETURN format('child runs go no deeper than %s levels', sas._child_levels());
    END IF;
    -- what the levels above said adds up, and may be more than one submit may say
    SELECT r.owner, least(greatest(r.priority, -1000), 1000) AS priority, r.labels, greatest(r.deadline - sas._now(), interval '1 s') AS time_left INTO p FROM sas.run r WHERE r.run_id = parent_id;
    PERFORM sas._submit_runs(p.owner::oid, sas._child_workflow(parent_id, parent_no), inputs, NULL, p.priority, NULL, NULL, p.time_left, NULL, NULL, p.labels, parent_id, parent_no, parent_elements, plans => plans);
    PERFORM sas._move_steps(array_agg(ROW(parent_id, parent_no, e, coalesce(s.state, 'none'), 'suspended', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                          sas._now(), NULL, NULL, NULL, NULL, NULL, 'child', NULL)::sas._step_change))
    FROM unnest(parent_elements) e
    LEFT JOIN LATERAL (SELECT x.state FROM sas.step x WHERE x.run_id = parent_id AND x.step_no = parent_no AND x.element = e OFFSET 0) s ON true;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    IF left(SQLSTATE, 2) IN ('40', '53', '57') OR SQLSTATE = '55P03' THEN
        RAISE;  -- that is about the moment, not about the child
    END IF;
    RETURN SQLERRM;
END $$;

CREATE FUNCTION sas._fail_children(parent_id bigint, parent_no int, parent_elements int[], why text) RETURNS void
LANGUAGE sql AS $$
    SELECT sas._fail_steps(array_agg(parent_id), array_agg(parent_no), array_agg(e),
                           array_agg(sas._child_problem(parent_id, parent_no, why)))
    FROM unnest(parent_elements) e
$$;

CREATE FUNCTION sas._child_problem(parent_id bigint, parent_no int, why text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT sas._problem_object('child', 'the child run could not be submitted', why, NULL, parent_id,
                               (SELECT w.name FROM sas.run r JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = parent_no AND NOT w.undo WHERE r.run_id = parent_id))
$$;

-- sas._child(run_id, step_no, element): the last child of a step; one that failed and is tried again has several.
CREATE FUNCTION sas._child(parent_id bigint, parent_no int, parent_element int) RETURNS sas.run
LANGUAGE sql STABLE AS $$
    SELECT c FROM sas.run c
    WHERE c.parent_run_id = parent_id AND c.parent_step_no = parent_no AND c.parent_element = $3 ORDER BY c.run_id DESC LIMIT 1
$$;

-- sas._children_ended(run_ids, step_nos, elements): their child runs have stopped.
CREATE FUNCTION sas._children_ended(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    well record;
BEGIN
    FOR well IN
        SELECT array_agg(x.run_id) FILTER (WHERE x.well) AS run_ids, array_agg(x.step_no) FILTER (WHERE x.well) AS step_nos,
               array_agg(x.element) FILTER (WHERE x.well) AS elements, array_agg(coalesce(x.output, 'null')) FILTER (WHERE x.well) AS outputs,
               array_agg(x.run_id) FILTER (WHERE x.ill) AS ill_runs, array_agg(x.step_no) FILTER (WHERE x.ill) AS ill_nos, array_agg(x.element) FILTER (WHERE x.ill) AS ill_elements,
               array_agg(sas._problem_object('child', format('child run %s ended with result %s', x.child_id, x.result), x.error ->> 'title', NULL, x.run_id, x.name)) FILTER (WHERE x.ill) AS errors,
               array_agg(ROW(x.run_id, x.step_no, x.element, x.state, CASE x.state WHEN 'suspended' THEN 'cancelled' ELSE 'compensated' END,
                             NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                             NULL, sas._now(), NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change) FILTER (WHERE NOT x.well AND NOT x.ill) AS gone
        FROM (SELECT u.*, s.state, w.name, c.run_id AS child_id, c.result, c.output, c.error,
                     s.state = 'suspended' AND c.result IN ('success', 'warning') AS well,
                     s.state = 'suspended' AND c.result NOT IN ('success', 'warning') AND r.fate IS NULL AS ill
              FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
              JOIN sas.run r ON r.run_id = u.run_id
              CROSS JOIN LATERAL (SELECT * FROM sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s
              JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = u.step_no AND NOT w.undo AND w.kind = 'workflow'
              CROSS JOIN LATERAL sas._child(u.run_id, u.step_no, u.element) c
              WHERE c.state = 'stopped'
                AND (s.state = 'suspended' AND s.waiting_kind = 'child' OR s.state = 'compensating' AND c.result NOT IN ('success', 'warning'))) x
    LOOP
        PERFORM sas._move_steps(well.gone);
        PERFORM sas._close_steps(array_agg(g.run_id)) FROM unnest(well.gone) g HAVING count(*) > 0;
        PERFORM sas._succeed_steps(well.run_ids, well.step_nos, well.elements, well.outputs) WHERE well.run_ids IS NOT NULL;
        PERFORM sas._fail_steps(well.ill_runs, well.ill_nos, well.ill_elements, well.errors) WHERE well.ill_runs IS NOT NULL;
    END LOOP;
END $$;

-- sas._undo_children(run_ids, step_nos, elements): the undo of a child that did
-- its work is that the child is undone. One that is gone, or undone already, is done with.
CREATE FUNCTION sas._undo_children(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    undone sas._step_change[];
BEGIN
    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 's', sas._now(), c.run_id, 'reverse'
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL sas._child(u.run_id, u.step_no, u.element) c
    WHERE c.state = 'stopped' AND c.result IN ('success', 'warning');
    IF FOUND THEN
        PERFORM sas._ring('{}', true, false, '{}');
    END IF;
    SELECT array_agg(ROW(u.run_id, u.step_no, u.element, 'compensating', 'compensated', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         NULL, sas._now(), NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change)
    INTO undone
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    LEFT JOIN LATERAL sas._child(u.run_id, u.step_no, u.element) c ON true
    WHERE c.run_id IS NULL OR c.state = 'stopped' AND c.result NOT IN ('success', 'warning');
    PERFORM sas._move_steps(undone);
    PERFORM sas._close_steps(array_agg(d.run_id)) FROM unnest(undone) d HAVING count(*) > 0;
END $$;

-- sas._reverse_runs(run_ids): runs that had ended well are undone with the run that they are children of.
CREATE FUNCTION sas._reverse_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    back bigint[];
BEGIN
    SELECT array_agg(r.run_id) INTO back FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'stopped' AND r.result IN ('success', 'warning');
    PERFORM sas._move_runs(array_agg(ROW(b, 'stopped', 'compensating', NULL, 'compensate', 0, NULL,
                                         sas._problem_object('parent', 'the run that it is a child of is undone', NULL, NULL, b, NULL), NULL, NULL, NULL)::sas._run_change))
    FROM unnest(back) b;
    PERFORM sas._hand_to_scheduler(back);
END $$;

-- sas._end_children(run_ids, how): the run that they are children of cannot go on.
-- how: cancel, fail; abort: as cancel, and what is running is stopped.
CREATE FUNCTION sas._end_children(run_ids bigint[], how text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    doomed bigint[];
BEGIN
    SELECT array_agg(r.run_id) INTO doomed FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state <> 'stopped' AND r.fate IS NULL;
    IF doomed IS NOT NULL THEN
        PERFORM sas._doom(doomed, array_fill(CASE how WHEN 'abort' THEN 'cancel' ELSE how END, ARRAY[cardinality(doomed)]),
                          ARRAY(SELECT sas._problem_object('parent', 'the run that it is a child of cannot go on', NULL, NULL, d, NULL) FROM unnest(doomed) d), how = 'abort');
    END IF;
END $$;
