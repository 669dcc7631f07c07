-- SPDX-License-Identifier: PostgreSQL
--
-- Child runs: a step of kind workflow is a run of its own. Its parent holds no worker; the child sends the
-- scheduler a message when it has stopped. Parents and children are never locked together: messages of its
-- own change each run.

-- _sas.undo_element(element): the parent_element of a run that undoes this element of a step, and the other
-- way round: -1 - n. So the run that did the work and the run that undoes it differ.
CREATE FUNCTION _sas.undo_element(element int) RETURNS int
LANGUAGE sql IMMUTABLE AS $$ SELECT -1 - element $$;

-- _sas.alike_children(...): these steps, or elements, grouped by what their child runs have in common: owner,
-- workflow and version, queue, priority and labels. A key of concurrency belongs to the root of the parent;
-- so the child runs of each parent are a group if the workflow has such keys. states: of the steps; none: it
-- has no row yet.
CREATE FUNCTION _sas.alike_children(run_ids bigint[], step_nos int[], elements int[], inputs jsonb[],
                                    states text[])
RETURNS TABLE (owner oid, workflow_id int, included int, undo boolean, parents _sas.parent[],
               parent_inputs jsonb[], parent_states text[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH step AS MATERIALIZED (
        SELECT d.*, (_sas.child_workflow(d.run_id, d.step_no, d.undo)).workflow_id,
               _sas.included_version(d.run_id, d.step_no, d.undo) AS included,
               _sas.queue_of_step(d.run_id, d.step_no) AS queue_id
        FROM (SELECT u.run_id, u.step_no, u.state = 'compensating' AS undo,
                     array_agg(u.element ORDER BY u.element) AS elements,
                     array_agg(u.input ORDER BY u.element) AS inputs,
                     array_agg(u.state ORDER BY u.element) AS states
              FROM unnest(run_ids, step_nos, elements, inputs, states)
                  AS u (run_id, step_no, element, input, state)
              GROUP BY 1, 2, 3) d),
    flow AS MATERIALIZED (
        SELECT w.workflow_id, EXISTS (SELECT FROM _sas.workflow_version x WHERE x.workflow_id = w.workflow_id
                                        AND x.concurrency IS NOT NULL) AS keyed
        FROM (SELECT DISTINCT t.workflow_id FROM step t) w)
    SELECT r.owner::oid, t.workflow_id, t.included, t.undo,
           array_agg(ROW(t.run_id, t.step_no, e.element)::_sas.parent
                     ORDER BY t.run_id, t.step_no, e.element),
           array_agg(e.input ORDER BY t.run_id, t.step_no, e.element),
           array_agg(e.state ORDER BY t.run_id, t.step_no, e.element)
    FROM step t
    CROSS JOIN LATERAL unnest(t.elements, t.inputs, t.states) AS e (element, input, state)
    JOIN _sas.run r ON r.run_id = t.run_id
    LEFT JOIN flow f ON f.workflow_id = t.workflow_id
    -- labels that are equal may be written differently
    GROUP BY 1, 2, 3, 4, t.queue_id, r.priority, r.labels::text, CASE WHEN f.keyed THEN r.run_id END
    ORDER BY min(r.run_id), min(t.step_no);
END $$;

-- _sas.begin_children(...): submits a child run for each of these steps, or elements, as the owner of its
-- parent. For a step whose state is compensating, the child run undoes it. What is alike is submitted
-- together; a step whose child cannot be submitted fails.
-- Caller: the scheduler; holds the lock of the parents. Writes: run (the children), step. Next: a child
-- that stops sends a message (_sas.note_ends), and _sas.children_ended ends the step.
CREATE FUNCTION _sas.begin_children(run_ids bigint[], step_nos int[], elements int[], inputs jsonb[],
                                    states text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    g record;
    p record;
BEGIN
    FOR g IN SELECT * FROM _sas.alike_children(run_ids, step_nos, elements, inputs, states) LOOP
        PERFORM _sas.check_budget();
        -- no function of a user runs in a scheduler, nor what takes long
        IF NOT _sas.calls_plans(g.owner, g.workflow_id, g.included)
            AND NOT EXISTS (SELECT FROM _sas.run r WHERE r.run_id = (g.parents[1]).run_id
                            AND _sas.is_dear_plan(r, (g.parents[1]).step_no, g.undo)) THEN
            PERFORM _sas.submit_alike(g.parents, g.undo, g.parent_inputs, g.parent_states);
            CONTINUE;
        END IF;
        FOR p IN SELECT u.run_id, u.step_no, array_agg(u.element ORDER BY u.n) AS elements,
                     array_agg(g.parent_inputs[u.n] ORDER BY u.n) AS inputs
                 FROM unnest(g.parents) WITH ORDINALITY AS u (run_id, step_no, element, n)
                 GROUP BY 1, 2 ORDER BY 1, 2 LOOP
            PERFORM _sas.check_budget();
            PERFORM _sas.plan_children(p.run_id, p.step_no, g.undo, p.elements, p.inputs);
        END LOOP;
    END LOOP;
END $$;

-- _sas.submit_alike(parents, of_undo, inputs, states): submits child runs that are alike, a thousand at most
-- together. A wrong input must not fail the others: those that cannot be submitted are halved until one is
-- left.
CREATE FUNCTION _sas.submit_alike(parents _sas.parent[], of_undo boolean, inputs jsonb[], states text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    n int := cardinality(parents);
    why text;
BEGIN
    PERFORM _sas.check_budget();
    IF n <= 1000 THEN
        why := _sas.submit_children(parents, of_undo, inputs, states);
        IF why IS NULL OR n = 1 THEN
            PERFORM _sas.fail_children(parents, why) WHERE why IS NOT NULL;
            RETURN;
        END IF;
    END IF;
    PERFORM _sas.submit_alike(parents[: n / 2], of_undo, inputs[: n / 2], states[: n / 2]);
    PERFORM _sas.submit_alike(ARRAY(SELECT p FROM unnest(parents[n / 2 + 1 :]) p), of_undo,
                              ARRAY(SELECT i FROM unnest(inputs[n / 2 + 1 :]) i),
                              ARRAY(SELECT s FROM unnest(states[n / 2 + 1 :]) s));
END $$;

-- _sas.child_workflow(parent_id, parent_no, of_undo): the workflow of the child runs of this step, or of its
-- undo. It may have been dropped; a workflow that was created later under the same name is another one.
CREATE FUNCTION _sas.child_workflow(parent_id bigint, parent_no int, of_undo boolean) RETURNS _sas.workflow
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT f FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id
            AND w.step_no = parent_no AND w.undo = of_undo
        JOIN _sas.workflow f ON f.workflow_id = w.bound_id
        WHERE r.run_id = parent_id);
END $$;

-- _sas.included_version(parent_id, parent_no, of_undo): the version that the child runs of this step, or of
-- its undo, have, because the definition includes it; null: they get the newest that their owner may run.
CREATE FUNCTION _sas.included_version(parent_id bigint, parent_no int, of_undo boolean) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT (w.request ->> 'version')::int FROM _sas.run r
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = parent_no
            AND w.undo = of_undo
        WHERE r.run_id = parent_id AND w.kind = 'workflow');
END $$;

-- _sas.queue_of_step(parent_id, parent_no): the queue of the child runs of this step.
CREATE FUNCTION _sas.queue_of_step(parent_id bigint, parent_no int) RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(w.queue_id, r.queue_id) FROM _sas.run r
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = parent_no AND NOT w.undo
        WHERE r.run_id = parent_id);
END $$;

-- _sas.starts_itself(parent_id, parent_no, of_undo): is the parent, or a run above it, a run of the same
-- workflow as the child run of this step?
CREATE FUNCTION _sas.starts_itself(parent_id bigint, parent_no int, of_undo boolean) RETURNS boolean
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE above AS (
        SELECT r.run_id, r.parent_run_id, r.version_id FROM _sas.run r WHERE r.run_id = parent_id
        UNION ALL
        SELECT r.run_id, r.parent_run_id, r.version_id FROM above a
        JOIN _sas.run r ON r.run_id = a.parent_run_id)
    SELECT EXISTS (SELECT FROM above a JOIN _sas.workflow_version v USING (version_id)
                   WHERE v.workflow_id = (_sas.child_workflow(parent_id, parent_no, of_undo)).workflow_id)
$$;

-- _sas.why_childless(parents, of_undo): why one of these steps gets no child run; null: each may get one.
CREATE FUNCTION _sas.why_childless(parents _sas.parent[], of_undo boolean) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    above record;
    deepest bigint;
BEGIN
    WITH RECURSIVE above AS (
        SELECT d.run_id AS below, r.run_id, r.parent_run_id, r.parent_element, r.abandon_as, of_undo AS undoes
        FROM (SELECT DISTINCT p.run_id FROM unnest(parents) p) d JOIN _sas.run r ON r.run_id = d.run_id
        UNION ALL
        SELECT a.below, r.run_id, r.parent_run_id, r.parent_element, r.abandon_as,
               a.undoes OR a.parent_element < 0
        FROM above a JOIN _sas.run r ON r.run_id = a.parent_run_id)
    SELECT max(c.levels) AS levels, bool_or(c.doomed) AS doomed INTO above
    FROM (SELECT count(*) AS levels, bool_or(a.abandon_as IS NOT NULL AND NOT a.undoes) AS doomed
          FROM above a GROUP BY a.below) c;
    -- workflows that start each other endlessly would grow faster than a cancel could follow them down
    IF above.doomed THEN
        RETURN 'a run above it cannot continue';
    END IF;
    deepest := (SELECT _sas.limit_of(r.owner::oid, 'depth') FROM _sas.run r
                WHERE r.run_id = (parents[1]).run_id);
    RETURN CASE WHEN above.levels > deepest
                THEN format('child runs below each other are limited to %s', deepest) END;
END $$;

-- _sas.submit_children(...): submits child runs of these steps, or elements, whose runs have one owner,
-- priority, labels and queue. Returns null, or why that was not possible; then none is submitted. states: of
-- the steps; plans: what their plan function has returned for each. A run that undoes a step has neither the
-- deadline of its parent, nor does it end with the runs above it: what is done must be undone, however long
-- that takes.
-- Writes: run, step. Next: the child continues on its own; see _sas.begin_children.
CREATE FUNCTION _sas.submit_children(parents _sas.parent[], of_undo boolean, inputs jsonb[], states text[],
                                     plans jsonb[] DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    one _sas.parent := parents[1];
    child _sas.workflow := _sas.child_workflow(one.run_id, one.step_no, of_undo);
    why text := _sas.why_childless(parents, of_undo);
    pinned int := _sas.included_version(one.run_id, one.step_no, of_undo);
    queue_id int := _sas.queue_of_step(one.run_id, one.step_no);
    above record;
    r _sas.run;
    rank int;
    detail text;
BEGIN
    IF why IS NOT NULL THEN
        RETURN why;
    END IF;
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = one.run_id;
    -- priorities of the levels add up, and may exceed what one submit may ask for
    rank := least(greatest(r.priority, -1000), 1000);
    SELECT array_agg(u.run_id) AS run_ids, array_agg(u.step_no) AS step_nos, array_agg(u.element) AS elements,
           CASE WHEN NOT of_undo THEN array_agg(greatest(u.deadline, sas.now() + interval '1 s')) END
               AS deadlines
    INTO above
    FROM (SELECT p.run_id, p.step_no, x.deadline,
                 CASE WHEN of_undo THEN _sas.undo_element(p.element) ELSE p.element END AS element
          FROM unnest(parents) WITH ORDINALITY AS p (run_id, step_no, element, n)
          JOIN _sas.run x ON x.run_id = p.run_id ORDER BY p.n) u;
    IF plans IS NOT NULL OR pinned IS NOT NULL OR queue_id IS NOT NULL OR _sas.is_testing()
        OR NOT _sas.submit_plain_children(r.owner::oid, child.name, child.workflow_id, rank, r.labels, inputs,
                                          above.run_ids, above.step_nos, above.elements,
                                          above.deadlines) THEN
        PERFORM _sas.submit_runs(
            caller => r.owner::oid, workflow => child.name, inputs => inputs, keys => NULL, priority => rank,
            start_at => NULL, start_before => NULL, deadline => NULL, after_runs => NULL, reply_to => NULL,
            labels => r.labels,
            parents => ARRAY(SELECT ROW(u.run_id, u.step_no, u.element)::_sas.parent
                             FROM unnest(above.run_ids, above.step_nos, above.elements)
                                 AS u (run_id, step_no, element)),
            deadlines => above.deadlines, plans => plans, for_workflow => child.workflow_id,
            included => pinned, child_queue => queue_id);
    END IF;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => p.run_id, step_no => p.step_no, element => p.element, from_state => p.state,
        to_state => CASE WHEN of_undo THEN 'compensating' ELSE 'suspended' END, started_at => sas.now(),
        waiting_kind => 'child')))
    FROM unnest(parents, states) AS p (run_id, step_no, element, state);
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    -- an owner's limit frees up after a while, but not if the runs above, which wait for this one, use it
    -- up
    IF (NOT _sas.is_of_item(SQLSTATE) OR left(SQLSTATE, 2) IN ('53', '57'))
       AND NOT (SQLSTATE = '53400' AND EXISTS (SELECT FROM unnest(parents) p
                                               WHERE _sas.starts_itself(p.run_id, p.step_no, of_undo))) THEN
        RAISE;  -- a passing condition, no fault of the child
    END IF;
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat(SQLERRM, ' (' || nullif(rtrim(detail, '.'), '') || ')');
END $$;

-- _sas.fail_children(parents, why): fails these steps, because their child runs could not be submitted.
CREATE FUNCTION _sas.fail_children(parents _sas.parent[], why text) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.fail_steps(array_agg(p.run_id), array_agg(p.step_no), array_agg(p.element),
                           array_agg(_sas.child_problem(p.run_id, p.step_no, why)))
    FROM unnest(parents) p
$$;

-- _sas.child_problem(...): the error that a child run could not be submitted, with the reason.
CREATE FUNCTION _sas.child_problem(parent_id bigint, parent_no int, why text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.problem_object('child', 'the child run could not be submitted', why, NULL, parent_id,
                               (SELECT w.name FROM _sas.run r
                                JOIN _sas.workflow_step w ON w.version_id = r.version_id
                                AND w.step_no = parent_no AND NOT w.undo WHERE r.run_id = parent_id))
$$;

-- _sas.last_child(parent_id, parent_no, parent_element): the last child run of a step. A step that has failed
-- and is tried again has several.
CREATE FUNCTION _sas.last_child(parent_id bigint, parent_no int, parent_element int) RETURNS _sas.run
LANGUAGE sql STABLE AS $$
    SELECT c FROM _sas.run c
    WHERE c.parent_run_id = parent_id AND c.parent_step_no = parent_no AND c.parent_element = $3
    ORDER BY c.run_id DESC LIMIT 1
$$;

-- _sas.child_to_undo(parent_id, parent_no, parent_element): the last child run of a step that has done what
-- can be undone. A step that was tried again may have several of them.
CREATE FUNCTION _sas.child_to_undo(parent_id bigint, parent_no int, parent_element int) RETURNS _sas.run
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT c FROM _sas.run c
        WHERE c.parent_run_id = parent_id AND c.parent_step_no = parent_no AND c.parent_element = $3
            AND c.state = 'stopped' AND c.result IN ('success', 'warning')
            AND _sas.leaves_something(c.run_id, c.version_id)
        ORDER BY c.run_id DESC LIMIT 1);
END $$;

-- _sas.children_ended(run_ids, step_nos, elements): continues parents whose child runs have stopped.
-- elements: parent_element of the children, see _sas.undo_element.
-- Caller: the scheduler; holds the lock of the parents. Next: _sas.follow_success, _sas.succeed_steps,
-- _sas.fail_steps.
CREATE FUNCTION _sas.children_ended(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    well record;
BEGIN
    FOR well IN
        SELECT array_agg(x.run_id) FILTER (WHERE x.well AND NOT x.plain) AS run_ids,
               array_agg(x.step_no) FILTER (WHERE x.well AND NOT x.plain) AS step_nos,
               array_agg(x.element) FILTER (WHERE x.well AND NOT x.plain) AS elements,
               array_agg(coalesce(x.output, 'null')) FILTER (WHERE x.well AND NOT x.plain) AS outputs,
               array_agg(_sas.make_step_change(
                   run_id => x.run_id, step_no => x.step_no, element => x.element, from_state => x.state,
                   to_state => 'succeeded', in_doubt => false, output => coalesce(x.output, 'null'),
                   completion => nextval('_sas.completion_seq'), started_at => sas.now(),
                   finished_at => sas.now())) FILTER (WHERE x.well AND x.plain) AS done,
               array_agg(x.run_id) FILTER (WHERE x.ill) AS ill_runs,
               array_agg(x.step_no) FILTER (WHERE x.ill) AS ill_nos,
               array_agg(x.element) FILTER (WHERE x.ill) AS ill_elements,
               array_agg(_sas.problem_object('child',
                                             format('child run %s ended with result %s', x.child_id,
                                                    x.result),
                                             CASE WHEN x.error ? 'title' THEN _sas.title(x.error) END,
                                             NULL, x.run_id, x.name)) FILTER (WHERE x.ill) AS errors,
               array_agg(_sas.make_step_change(
                   run_id => x.run_id, step_no => x.step_no, element => x.element, from_state => x.state,
                   -- an earlier child has done its work, and has to be undone
                   to_state => CASE WHEN x.in_doubt THEN 'failed' ELSE 'cancelled' END,
                   finished_at => sas.now()))
                   FILTER (WHERE NOT x.well AND NOT x.ill AND x.state = 'suspended') AS gone,
               array_agg(x.run_id) FILTER (WHERE x.undone) AS undone_runs,
               array_agg(x.step_no) FILTER (WHERE x.undone) AS undone_nos,
               array_agg(x.element) FILTER (WHERE x.undone) AS undone_elements
        FROM (SELECT e.*, NOT e.well AND NOT e.ill AND e.state <> 'suspended' AS undone
              FROM _sas.ended_children($1, $2, $3) e) x
    LOOP
        IF well.gone IS NOT NULL THEN
            PERFORM _sas.move_steps(well.gone);
            PERFORM _sas.close_steps(array_agg(g.run_id)) FROM unnest(well.gone) g;
        END IF;
        -- the next one, if there are several
        PERFORM _sas.undo_children(well.undone_runs, well.undone_nos, well.undone_elements)
            WHERE well.undone_runs IS NOT NULL;
        IF well.done IS NOT NULL THEN
            PERFORM _sas.move_steps(well.done);
            PERFORM _sas.follow_success(well.done, false);
        END IF;
        PERFORM _sas.succeed_steps(well.run_ids, well.step_nos, well.elements, well.outputs)
            WHERE well.run_ids IS NOT NULL;
        PERFORM _sas.fail_steps(well.ill_runs, well.ill_nos, well.ill_elements, well.errors)
            WHERE well.ill_runs IS NOT NULL;
    END LOOP;
END $$;

-- _sas.ended_children(run_ids, step_nos, elements): the outcome of those of these steps whose child runs
-- have stopped. well: the step, or its undo, has succeeded; ill: it has failed. Neither: the child was
-- undone, or ended with its parent. plain: the output of the child is that of the step, and nothing is asked.
CREATE FUNCTION _sas.ended_children(run_ids bigint[], step_nos int[], elements int[])
RETURNS TABLE (run_id bigint, step_no int, element int, state text, name text, child_id bigint, result text,
               output jsonb, error jsonb, in_doubt boolean, plain boolean, well boolean, ill boolean)
LANGUAGE sql STABLE AS $$
    SELECT u.run_id, u.step_no, e.element, s.state, w.name, c.run_id, c.result, c.output, c.error, s.in_doubt,
           w.plain, d.does AND d.well, d.does AND NOT d.well AND (u.undoes OR r.abandon_as IS NULL)
    -- the elements of a step have the run and the definition of the step in common
    FROM (SELECT o.run_id, o.step_no, o.element < 0 AS undoes, array_agg(DISTINCT o.element) AS elements
          FROM unnest($1, $2, $3) AS o (run_id, step_no, element) GROUP BY 1, 2, 3) u
    JOIN _sas.run r ON r.run_id = u.run_id
    CROSS JOIN LATERAL (SELECT x.name, NOT x.undo AND x.expect IS NULL AND x.output IS NULL
                               AND coalesce(NOT x.shape ?| '{fallback,stands_in}', true) AS plain
                        FROM _sas.workflow_step x WHERE x.version_id = r.version_id AND x.step_no = u.step_no
                            AND x.undo = u.undoes AND x.kind = 'workflow' OFFSET 0) w
    CROSS JOIN LATERAL (SELECT n AS child_element,
                               CASE WHEN u.undoes THEN _sas.undo_element(n) ELSE n END AS element
                        FROM unnest(u.elements) n) e
    CROSS JOIN LATERAL (SELECT x.state, x.in_doubt, x.waiting_kind FROM _sas.step x WHERE x.run_id = u.run_id
                        AND x.step_no = u.step_no AND x.element = e.element OFFSET 0) s
    CROSS JOIN LATERAL (SELECT x.run_id, x.state, x.result, x.output, x.error FROM _sas.run x
                        WHERE x.parent_run_id = u.run_id AND x.parent_step_no = u.step_no
                            AND x.parent_element = e.child_element ORDER BY x.run_id DESC LIMIT 1) c
    CROSS JOIN LATERAL (SELECT s.state = 'suspended' OR u.undoes AS does,
                               c.result IN ('success', 'warning') AS well) d
    WHERE c.state = 'stopped'
      AND CASE WHEN u.undoes OR s.state = 'suspended'
               THEN s.waiting_kind = 'child' AND s.state IN ('suspended', 'compensating')
               ELSE s.state = 'compensating'
                   AND (SELECT true FROM _sas.run x WHERE x.parent_run_id = u.run_id
                        AND x.parent_step_no = u.step_no AND x.parent_element = e.element
                        AND x.result NOT IN ('success', 'warning') LIMIT 1) END
$$;

-- _sas.undo_children(run_ids, step_nos, elements): undoes child runs that have done their work, as the undo
-- of their steps. A child that is purged, undone already, or has nothing to undo keeps its result; its step
-- counts as undone.
-- Writes: message, step. Wakes: the scheduler. Next: _sas.reverse_runs.
CREATE FUNCTION _sas.undo_children(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    undone _sas.step_change[];
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), c.run_id, 'reverse'
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL _sas.child_to_undo(u.run_id, u.step_no, u.element) c
    WHERE c.run_id IS NOT NULL;
    IF FOUND THEN
        PERFORM _sas.wake('{}', true, false, '{}');
    END IF;
    SELECT array_agg(_sas.make_step_change(
               run_id => u.run_id, step_no => u.step_no, element => u.element, from_state => 'compensating',
               to_state => 'compensated', finished_at => sas.now()))
    INTO undone
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    WHERE (_sas.child_to_undo(u.run_id, u.step_no, u.element)).run_id IS NULL
      AND NOT EXISTS (SELECT FROM _sas.run c WHERE c.parent_run_id = u.run_id AND c.parent_step_no = u.step_no
                      AND c.parent_element = u.element AND c.state <> 'stopped');
    PERFORM _sas.move_steps(undone);
    PERFORM _sas.follow_success(undone, true) WHERE undone IS NOT NULL;
END $$;

-- _sas.reverse_runs(run_ids): undoes child runs that had ended well, because their parent run is being
-- undone.
CREATE FUNCTION _sas.reverse_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.undo_stopped_runs(array_agg(r.run_id), array_agg(_sas.problem_object(
        'parent', 'its parent run is being undone', NULL, NULL, r.run_id, NULL)))
    FROM _sas.run r
    WHERE r.run_id = ANY ($1) AND r.state = 'stopped' AND r.result IN ('success', 'warning');
END $$;

-- _sas.end_children(run_ids, how): abandons child runs, as their parent run cannot continue. how: cancel,
-- fail; abort: as cancel, and running work is stopped. Next: _sas.abandon.
CREATE FUNCTION _sas.end_children(run_ids bigint[], how text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    doomed bigint[];
BEGIN
    SELECT array_agg(r.run_id) INTO doomed FROM _sas.run r WHERE r.run_id = ANY (run_ids)
        AND r.state <> 'stopped' AND r.abandon_as IS NULL;
    IF doomed IS NOT NULL THEN
        PERFORM _sas.abandon(
            doomed,
            array_fill(CASE how WHEN 'abort' THEN 'cancel' ELSE how END, ARRAY[cardinality(doomed)]),
            ARRAY(SELECT _sas.problem_object('parent', 'its parent run cannot continue', NULL, NULL, d, NULL)
                  FROM unnest(doomed) d),
            how = 'abort', CASE WHEN how <> 'abort' THEN 'parent' END);
    END IF;
END $$;

-- _sas.end_replaced(run_ids): cancels these runs: the next run of their schedule, or a newer run under
-- their concurrency key, replaces them.
-- Next: _sas.abandon.
CREATE FUNCTION _sas.end_replaced(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
BEGIN
    SELECT array_agg(r.run_id ORDER BY r.run_id) INTO ended FROM _sas.run r WHERE r.run_id = ANY ($1)
        AND r.state <> 'stopped' AND r.abandon_as IS NULL;
    PERFORM _sas.abandon(ended, array_fill('cancel'::text, ARRAY[cardinality(ended)]),
                         ARRAY(SELECT _sas.problem_object(
                             'replaced', CASE WHEN r.schedule IS NULL
                                 THEN 'a newer run replaced it under its concurrency key'
                                 ELSE 'the next run of its schedule replaced it' END, NULL, NULL, e, NULL)
                               FROM unnest(ended) e JOIN _sas.run r ON r.run_id = e ORDER BY e), true)
    WHERE ended IS NOT NULL;
END $$;
