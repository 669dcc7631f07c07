-- SPDX-License-Identifier: PostgreSQL
--
-- Phases: steps that a function worker handles before or after their own work. A call with middleware goes
-- through the functions before it, then its agent, then the functions after it. A child run whose workflow
-- has a plan function is planned first. Each phase is claimed separately, with its own window; between
-- two phases the step is ready. What one phase hands to the next is a row of _sas.phase, so that a crash
-- costs only the current phase.
--   before   the functions before a call; request is null
--   call     the call itself; request is what the functions made of it, null if there were none
--   after    the functions after it; response is the answer of the service. The step counts as done for its
--            undo (_sas.step.asks), with this answer as its output
--   plan     a plan function of a child run: of its workflow, or of a workflow that this includes; request
--            comes from _sas.next_plan, with the results of the plan functions before
--   poll     an undo whose call has succeeded, and which asks until the job has ended (_sas.poll_of);
--            response is the reply to the call

-- _sas.phase_context(r, w, element): what the functions around a call get to know about it.
CREATE FUNCTION _sas.phase_context(r _sas.run, w _sas.workflow_step, element int) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'chain', coalesce(_sas.middleware_chain('call', v.workflow_id, r.owner), '[]'),
        'context', _sas.middleware_context('call', r, v, f.name, w.name, element, w.undo))
    FROM _sas.workflow_version v JOIN _sas.workflow f USING (workflow_id) WHERE v.version_id = r.version_id
$$;

-- _sas.phase_function(...): the function that a function worker calls for a claimed step in a phase; no row
-- if it is in none.
CREATE FUNCTION _sas.phase_function(for_run bigint, for_no int, for_element int, for_undo boolean)
RETURNS TABLE (function text, input jsonb, problem jsonb)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN g.stage = 'plan' THEN g.request ->> 'function'
                WHEN g.stage IN ('before', 'after') THEN '_sas.through_middleware' END,
           CASE g.stage WHEN 'plan' THEN g.request -> 'input'
                        WHEN 'before' THEN _sas.phase_context(r, w, g.element)
                            || jsonb_build_object('request', c.request)
                        WHEN 'after' THEN _sas.phase_context(r, w, g.element)
                            || jsonb_build_object('request', coalesce(g.request, 'null'), 'response',
                                                  g.response) END,
           c.problem
    FROM _sas.phase g
    JOIN _sas.run r ON r.run_id = g.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = g.step_no AND w.undo = g.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN g.stage = 'before'
                        THEN _sas.context(r, w, g.element) END AS root OFFSET 0) x
    LEFT JOIN _sas.override e ON e.run_id = g.run_id AND e.step_no = g.step_no AND e.element = g.element
        AND NOT g.undo
    LEFT JOIN LATERAL _sas.filled_request(w.request, x.root, e.input) c ON g.stage = 'before'
    WHERE g.run_id = for_run AND g.step_no = for_no AND g.element = for_element AND g.undo = for_undo
$$;

-- _sas.end_phases(replies, locked): processes replies that end a phase well, if another phase follows.
-- Returns the other replies: results of last phases, failures, and replies of steps without phases. Checks
-- the fence as well.
-- Caller: holds the lock of the runs in "locked". Writes: phase, step.
CREATE FUNCTION _sas.end_phases(replies _sas.call_reply[], locked bigint[]) RETURNS _sas.call_reply[]
LANGUAGE plpgsql AS $$
DECLARE
    rest _sas.call_reply[] := '{}';
    answer _sas.call_reply;
    g _sas.phase;
    s _sas.step;
    r _sas.run;
BEGIN
    FOREACH answer IN ARRAY replies LOOP
        g := NULL;
        SELECT x.* INTO s FROM _sas.step x
        WHERE answer.verdict = 'done' AND answer.run_id = ANY (locked) AND x.run_id = answer.run_id
            AND x.step_no = answer.step_no AND x.element = answer.element
          AND x.request_id = answer.request_id
          AND x.complete_by > coalesce(answer.arrived_at, sas.now());
        IF FOUND THEN
            SELECT x.* INTO g FROM _sas.phase x WHERE x.run_id = s.run_id AND x.step_no = s.step_no
                AND x.element = s.element AND x.undo = (s.state = 'compensating');
            SELECT x.* INTO r FROM _sas.run x WHERE x.run_id = s.run_id;
        END IF;
        answer := CASE g.stage WHEN 'before' THEN _sas.end_before(answer, g, s)
                               WHEN 'call' THEN _sas.end_call(answer, g, s, r)
                               WHEN 'after' THEN _sas.end_after(answer, g, s)
                               WHEN 'plan' THEN _sas.end_plan(answer, g, s, r)
                               ELSE answer END;
        IF answer.run_id IS NOT NULL THEN
            rest := rest || answer;
        END IF;
    END LOOP;
    RETURN rest;
END $$;

-- _sas.next_phase(g, s, tries, output): makes the step ready for the phase that g names.
-- Writes: step, phase. Next: _sas.requeue.
CREATE FUNCTION _sas.next_phase(g _sas.phase, s _sas.step, tries int, output jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.move_steps(ARRAY[_sas.make_step_change(
        run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
        to_state => CASE s.state WHEN 'running' THEN 'ready' ELSE s.state END, attempt => s.attempt + tries,
        in_doubt => false, output => output)]);
    UPDATE _sas.phase x SET stage = g.stage, request = g.request, response = g.response
    WHERE x.run_id = g.run_id AND x.step_no = g.step_no AND x.element = g.element AND x.undo = g.undo;
    IF g.stage = 'after' AND NOT g.undo THEN
        UPDATE _sas.step x SET asks = 0, started = g.response WHERE x.run_id = s.run_id
            AND x.step_no = s.step_no AND x.element = s.element;
    END IF;
    PERFORM _sas.free_slots(ARRAY[s.run_id]);
    PERFORM _sas.requeue(ARRAY[s.run_id], ARRAY[s.step_no], ARRAY[s.element]);
END $$;

-- _sas.close_phase(g): deletes the row of g: the step is no longer in a phase.
-- Writes: phase.
CREATE FUNCTION _sas.close_phase(g _sas.phase) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.phase x WHERE x.run_id = g.run_id AND x.step_no = g.step_no AND x.element = g.element
        AND x.undo = g.undo;
END $$;

-- The end of each of the four phases. Each function returns what remains of the reply, or null if another
-- phase follows.
-- Caller: holds the lock of the run. Writes: phase, step. Next: what _sas.next_phase does.

-- _sas.end_before(answer, g, s): the functions before a call have returned a request, which is sent, or the
-- response, which is used instead of a call.
CREATE FUNCTION _sas.end_before(answer _sas.call_reply, g _sas.phase, s _sas.step) RETURNS _sas.call_reply
LANGUAGE plpgsql AS $$
DECLARE
    p _sas.problem;
BEGIN
    IF answer.output ? 'response' THEN
        PERFORM _sas.close_phase(g);
        answer.output := answer.output -> 'response';
        RETURN answer;
    END IF;
    SELECT * INTO p FROM _sas.check_call(answer.output -> 'request', '/request') LIMIT 1;
    IF FOUND THEN
        answer.verdict := 'permanent';
        answer.error := _sas.problem_object('middleware',
                                            'the middleware returned an invalid request',
                                            format('%s: %s', p.path, p.problem), NULL, s.run_id, NULL);
        RETURN answer;
    END IF;
    g.stage := 'call';
    g.request := answer.output -> 'request';
    PERFORM _sas.next_phase(g, s, 0, NULL);
    RETURN NULL;
END $$;

-- _sas.end_call(answer, g, s, r): the call has been made: the functions after it follow, if there are any and
-- they are to see this reply.
CREATE FUNCTION _sas.end_call(answer _sas.call_reply, g _sas.phase, s _sas.step, r _sas.run)
RETURNS _sas.call_reply
LANGUAGE plpgsql AS $$
BEGIN
    -- in a run that cannot continue, the step is undone with the answer of the service; a status that is not
    -- expected is a failure already
    IF r.abandon_as IS NOT NULL AND NOT g.undo
       OR EXISTS (SELECT FROM _sas.workflow_step w WHERE w.version_id = r.version_id
                  AND w.step_no = g.step_no AND w.undo = g.undo AND jsonb_typeof(w.expect) = 'array'
                  AND NOT _sas.has_expected_status(w.expect, answer.output))
       OR NOT coalesce(_sas.middleware_chain('call',
                                             (SELECT v.workflow_id FROM _sas.workflow_version v
                                              WHERE v.version_id = r.version_id), r.owner)
                       @? '$[*].after ? (@ != null)', false) THEN
        PERFORM _sas.close_phase(g);
        RETURN answer;
    END IF;
    g.stage := 'after';
    g.response := answer.output;
    PERFORM _sas.next_phase(g, s, answer.attempt, CASE WHEN NOT g.undo THEN answer.output END);
    RETURN NULL;
END $$;

-- _sas.end_after(answer, g, s): the functions after a call have returned what counts as its reply.
-- Writes: step.
CREATE FUNCTION _sas.end_after(answer _sas.call_reply, g _sas.phase, s _sas.step) RETURNS _sas.call_reply
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.close_phase(g);
    UPDATE _sas.step x SET asks = NULL, started = NULL WHERE x.run_id = s.run_id AND x.step_no = s.step_no
        AND x.element = s.element AND NOT g.undo;
    answer.attempt := 0;
    RETURN answer;
END $$;

-- _sas.end_plan(answer, g, s, r): a plan function of a child run has returned: the next one follows, or the
-- child run begins. The writes of the last plan function and the new child run are one commit.
CREATE FUNCTION _sas.end_plan(answer _sas.call_reply, g _sas.phase, s _sas.step, r _sas.run)
RETURNS _sas.call_reply
LANGUAGE plpgsql AS $$
DECLARE
    planned boolean := g.request ->> 'function' = '_sas.plan_child';
    made jsonb := g.request -> 'made' || CASE WHEN planned THEN '{}'
        ELSE jsonb_build_object(g.request ->> 'prefix', answer.output) END;
    next record;
    why text := CASE WHEN r.abandon_as IS NOT NULL AND NOT g.undo THEN 'its parent run cannot continue'
        WHEN planned THEN answer.output ->> 'problem' END;
BEGIN
    IF why IS NULL THEN
        SELECT n.request, n.problem INTO next
        FROM _sas.next_plan(r, s.step_no, g.undo, g.request -> 'of', made) n;
        why := next.problem;
        IF why IS NULL AND next.request IS NULL AND NOT planned
            AND _sas.is_dear_plan(r, s.step_no, g.undo) THEN
            next.request := _sas.dear_plan(r, s.step_no, g.undo, g.request -> 'of', made);
        END IF;
        IF next.request IS NOT NULL THEN
            PERFORM _sas.plan_further(g, s, r, next.request);
            RETURN NULL;
        END IF;
    END IF;
    IF why IS NULL THEN
        why := _sas.submit_children(ARRAY[ROW(s.run_id, s.step_no, s.element)::_sas.parent], g.undo,
                                    ARRAY[g.request -> 'of'], ARRAY[s.state], ARRAY[made]);
    END IF;
    IF why IS NULL THEN
        PERFORM _sas.close_phase(g);
        RETURN NULL;
    END IF;
    answer.verdict := 'permanent';
    answer.error := _sas.child_problem(s.run_id, s.step_no, why);
    RETURN answer;
END $$;

-- _sas.plan_further(g, s, r, request): makes the step ready for the next plan function of its child run. If
-- the run is paused, its resume begins the step again, see _sas.plan_children.
-- Writes: phase, step. Next: _sas.make_ready.
CREATE FUNCTION _sas.plan_further(g _sas.phase, s _sas.step, r _sas.run, request jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.phase x SET request = $4 WHERE x.run_id = g.run_id AND x.step_no = g.step_no
        AND x.element = g.element AND x.undo = g.undo;
    PERFORM _sas.move_steps(ARRAY[_sas.make_step_change(
        run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
        to_state => CASE s.state WHEN 'running' THEN 'ready' ELSE s.state END,
        deferred => r.state = 'paused')]);
    PERFORM _sas.free_slots(ARRAY[s.run_id]);
    PERFORM _sas.make_ready(ARRAY[s.run_id], ARRAY[s.step_no], ARRAY[s.element], ARRAY[g.undo],
                            entered => true) WHERE r.state <> 'paused';
END $$;

-- _sas.next_plan(parent, parent_no, of_undo, input, made): the plan function that a child run of this step,
-- or of its undo, needs next, as the request of a phase: {of (the input of the run), made, prefix, function,
-- input}. Null: none. problem: why that cannot be determined.
CREATE FUNCTION _sas.next_plan(parent _sas.run, parent_no int, of_undo boolean, input jsonb, made jsonb,
                               OUT request jsonb, OUT problem text)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    v _sas.workflow_version;
BEGIN
    SELECT c.* INTO v
    FROM _sas.planned_by(parent.owner, (_sas.child_workflow(parent.run_id, parent_no, of_undo)).workflow_id,
                         _sas.included_version(parent.run_id, parent_no, of_undo)) c;
    SELECT jsonb_build_object('of', input, 'made', made, 'prefix', p.prefix, 'function', p.function,
                              'input', p.function_input)
    INTO request
    FROM _sas.wanted_plan(parent.owner, v, input, made) p WHERE v.planned AND p.function IS NOT NULL;
EXCEPTION WHEN OTHERS THEN
    IF NOT _sas.is_of_item(SQLSTATE) THEN
        RAISE;
    END IF;
    problem := SQLERRM;
END $$;

-- _sas.is_dear_plan(parent, parent_no, of_undo): may it take long to plan a child run of this step, or of its
-- undo, even without functions?
CREATE FUNCTION _sas.is_dear_plan(parent _sas.run, parent_no int, of_undo boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM _sas.planned_by(parent.owner,
                                    (_sas.child_workflow(parent.run_id, parent_no, of_undo)).workflow_id,
                                    _sas.included_version(parent.run_id, parent_no, of_undo)) v
        WHERE _sas.value_size(v.definition) > 16384 OR v.definition @? '$.steps.*.include');
END $$;

-- _sas.dear_plan(parent, parent_no, of_undo, input, made): the request of a phase in which a function worker
-- plans such a run, or finds the function that it needs, before anything waits for it.
CREATE FUNCTION _sas.dear_plan(parent _sas.run, parent_no int, of_undo boolean, input jsonb, made jsonb)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('of', input, 'made', made, 'prefix', '', 'function', '_sas.plan_child', 'input',
        jsonb_build_object('of', input, 'made', made, 'included',
                           _sas.included_version(parent.run_id, parent_no, of_undo), 'workflow_id',
                           (_sas.child_workflow(parent.run_id, parent_no, of_undo)).workflow_id))
$$;

-- _sas.plan_child(owner, asked): plans a run, as far as that needs no function: its version is stored. asked:
-- input of a request of _sas.dear_plan. A function worker calls it as it calls the function of a step, within
-- its time. Returns {problem} if the plan is not sound.
-- Writes: versions. Next: _sas.end_plan.
CREATE FUNCTION _sas.plan_child(owner oid, asked jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
    SET enable_nestloop = off SET enable_hashjoin = on AS $$
DECLARE
    v _sas.workflow_version;
    detail text;
BEGIN
    FOR v IN SELECT c.* FROM _sas.planned_by(owner, (asked ->> 'workflow_id')::int,
                                             (asked ->> 'included')::int) c LOOP
        PERFORM _sas.plan_run(owner, v, asked -> 'of', true, asked -> 'made')
        FROM _sas.wanted_plan(owner, v, asked -> 'of', asked -> 'made') w WHERE w.function IS NULL;
    END LOOP;
    RETURN '{}';
EXCEPTION WHEN OTHERS THEN
    IF NOT _sas.is_of_item(SQLSTATE) OR left(SQLSTATE, 2) IN ('53', '57') THEN
        RAISE;
    END IF;
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN jsonb_build_object('problem', concat(SQLERRM, ' (' || nullif(rtrim(detail, '.'), '') || ')'));
END $$;

-- _sas.plan_children(...): plans the child runs of this step, or of its undo, each in a phase of its own,
-- before they are submitted. Results that plan functions have returned for the same input are used again. A
-- step fails if its next plan function cannot be determined.
-- Writes: phase. Next: _sas.make_ready, _sas.fail_children.
CREATE FUNCTION _sas.plan_children(parent_id bigint, parent_no int, of_undo boolean, elements int[],
                                   inputs jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    planned record;
    dear boolean := _sas.is_dear_plan(r, parent_no, of_undo) FROM _sas.run r WHERE r.run_id = parent_id;
BEGIN
    SELECT array_agg(u.element) FILTER (WHERE n.request IS NOT NULL) AS elements,
           array_agg(n.request) FILTER (WHERE n.request IS NOT NULL) AS requests,
           array_agg(u.element) FILTER (WHERE n.request IS NULL) AS failed,
           array_agg(coalesce(n.problem, 'its workflow has no plan function any more'))
               FILTER (WHERE n.request IS NULL) AS problems
    INTO planned
    FROM unnest(elements, inputs) AS u (element, input)
    LEFT JOIN LATERAL (SELECT * FROM _sas.phase x WHERE x.run_id = parent_id AND x.step_no = parent_no
                       AND x.element = u.element AND x.undo = of_undo
                       AND x.request -> 'of' = u.input OFFSET 0) g ON true
    JOIN _sas.run r ON r.run_id = parent_id
    CROSS JOIN LATERAL (SELECT coalesce(g.request -> 'made', '{}') AS made OFFSET 0) m
    CROSS JOIN LATERAL (
        SELECT _sas.dear_plan(r, parent_no, of_undo, u.input, m.made) AS request, NULL AS problem WHERE dear
        UNION ALL
        SELECT x.request, x.problem FROM _sas.next_plan(r, parent_no, of_undo, u.input, m.made) x
        WHERE NOT dear) n;
    INSERT INTO _sas.phase AS g (run_id, step_no, element, undo, stage, request)
    SELECT parent_id, parent_no, u.element, of_undo, 'plan', u.request
    FROM unnest(planned.elements, planned.requests) AS u (element, request)
    ON CONFLICT (run_id, step_no, element, undo) DO UPDATE SET request = EXCLUDED.request;
    PERFORM _sas.make_ready(array_fill(parent_id, ARRAY[n]), array_fill(parent_no, ARRAY[n]),
                            planned.elements, array_fill(of_undo, ARRAY[n]), entered => true)
    FROM cardinality(planned.elements) n WHERE n > 0;
    PERFORM _sas.fail_children(ARRAY[ROW(parent_id, parent_no, u.element)::_sas.parent], u.problem)
    FROM unnest(planned.failed, planned.problems) AS u (element, problem);
END $$;
