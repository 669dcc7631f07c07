-- SPDX-License-Identifier: PostgreSQL
--
-- Stages: steps that a function worker has a hand in before or after what they
-- are. A call that middleware applies to goes through the functions before it,
-- then its agent, then the functions after it; a child run whose workflow has a
-- plan function is planned first. Each stage is claimed by itself, with a
-- window of its own; in between the step is ready. What one stage hands to the next is
-- a row, so that a crash costs that stage only.
--
--   before   the functions before a call; request is null
--   call     the call itself; request is what the functions made of it, null when there was none
--   after    the functions after it; response is what the service answered. The step counts as
--            done for its undo (sas.step.asks), with that as its output
--   plan     the plan function of a child run; request is the input of that

-- sas._stage_context(r, w, element): what is told to the functions around a call.
CREATE FUNCTION sas._stage_context(r sas.run, w sas.workflow_step, element int) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('chain', coalesce(sas._middleware_chain('call', v.workflow_id), '[]'), 'context', sas._middleware_context('call', r, v, f.name, w.name, element, w.undo))
    FROM sas.workflow_version v JOIN sas.workflow f USING (workflow_id) WHERE v.version_id = r.version_id
$$;

-- sas._staged_function(...): what a function worker is to call for a claimed step in a stage; no row when it is in none.
CREATE FUNCTION sas._staged_function(for_run bigint, for_no int, for_element int, for_undo boolean) RETURNS TABLE (function text, input jsonb, problem jsonb)
LANGUAGE sql STABLE AS $$
    SELECT CASE g.stage WHEN 'plan' THEN sas._plan_function(w.shape ->> 'workflow') WHEN 'before' THEN 'sas._before_call' WHEN 'after' THEN 'sas._after_call' END,
           CASE g.stage WHEN 'plan' THEN g.request
                        WHEN 'before' THEN sas._stage_context(r, w, g.element) || jsonb_build_object('request', c.request)
                        WHEN 'after' THEN sas._stage_context(r, w, g.element) || jsonb_build_object('request', coalesce(g.request, 'null'), 'response', g.response) END,
           c.problem
    FROM sas.stage g
    JOIN sas.run r ON r.run_id = g.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = g.step_no AND w.undo = g.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN g.stage = 'before' THEN sas._context(r, w, g.element) END AS root OFFSET 0) x
    LEFT JOIN sas.edit e ON e.run_id = g.run_id AND e.step_no = g.step_no AND e.element = g.element AND NOT g.undo
    LEFT JOIN LATERAL sas._filled_request(w.request, x.root, e.input) c ON g.stage = 'before'
    WHERE g.run_id = for_run AND g.step_no = for_no AND g.element = for_element AND g.undo = for_undo
$$;

-- sas._before_call({chain, context, request}), as the owner of the run: {request}, or {response} when a function answers itself.
CREATE FUNCTION sas._before_call(call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    i record;
BEGIN
    SELECT * INTO i FROM sas._go_in(call);
    RETURN CASE WHEN i.response IS NULL THEN jsonb_build_object('request', i.request)
                ELSE jsonb_build_object('response', sas._go_out(call, i.request, i.response, i.last)) END;
END $$;

-- sas._after_call({chain, context, request, response}), as the owner of the run: the response that comes out.
CREATE FUNCTION sas._after_call(call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
BEGIN
    RETURN sas._go_out(call, call -> 'request', call -> 'response', jsonb_array_length(call -> 'chain') - 1);
END $$;

-- sas._end_stages(replies, locked): the replies of stages that ended well and that others come after are carried out here. Returns
-- the replies that are left: what came out at last, failures, and what no stage has to do with. The fence is asked here as well.
CREATE FUNCTION sas._end_stages(replies sas._reply[], locked bigint[]) RETURNS sas._reply[]
LANGUAGE plpgsql AS $$
DECLARE
    rest sas._reply[] := '{}';
    answer sas._reply;
    g sas.stage;
    s sas.step;
    r sas.run;
BEGIN
    FOREACH answer IN ARRAY replies LOOP
        g := NULL;
        SELECT x.* INTO s FROM sas.step x
        WHERE answer.verdict = 'done' AND answer.run_id = ANY (locked) AND x.run_id = answer.run_id AND x.step_no = answer.step_no AND x.element = answer.element
          AND x.request_id = answer.request_id AND x.complete_by > sas._now();
        IF FOUND THEN
            SELECT x.* INTO g FROM sas.stage x WHERE x.run_id = s.run_id AND x.step_no = s.step_no AND x.element = s.element AND x.undo = (s.state = 'compensating');
            SELECT x.* INTO r FROM sas.run x WHERE x.run_id = s.run_id;
        END IF;
        answer := CASE g.stage WHEN 'before' THEN sas._end_before(answer, g, s) WHEN 'call' THEN sas._end_call(answer, g, s, r)
                               WHEN 'after' THEN sas._end_after(answer, g, s) WHEN 'plan' THEN sas._end_plan(answer, g, s, r) ELSE answer END;
        IF answer.run_id IS NOT NULL THEN
            rest := rest || answer;
        END IF;
    END LOOP;
    RETURN rest;
END $$;

-- sas._next_stage(g, s, tries, output): the step is ready for the stage that its row names now.
CREATE FUNCTION sas._next_stage(g sas.stage, s sas.step, tries int, output jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas._move_steps(ARRAY[ROW(s.run_id, s.step_no, s.element, s.state, CASE s.state WHEN 'running' THEN 'ready' ELSE s.state END, s.attempt + tries, NULL, false, NULL, NULL, NULL, output, NULL, NULL,
                                      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change]);
    UPDATE sas.stage x SET stage = g.stage, request = g.request, response = g.response
    WHERE x.run_id = g.run_id AND x.step_no = g.step_no AND x.element = g.element AND x.undo = g.undo;
    IF g.stage = 'after' AND NOT g.undo THEN
        UPDATE sas.step x SET asks = 0, started = g.response WHERE x.run_id = s.run_id AND x.step_no = s.step_no AND x.element = s.element;
    END IF;
    PERFORM sas._free_places(ARRAY[s.run_id]);
    PERFORM sas._requeue(ARRAY[s.run_id], ARRAY[s.step_no], ARRAY[s.element]);
END $$;

CREATE FUNCTION sas._close_stage(g sas.stage) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM sas.stage x WHERE x.run_id = g.run_id AND x.step_no = g.step_no AND x.element = g.element AND x.undo = g.undo;
END $$;

-- The four ends: the reply that is left, or null.
CREATE FUNCTION sas._end_before(answer sas._reply, g sas.stage, s sas.step) RETURNS sas._reply
LANGUAGE plpgsql AS $$
DECLARE
    p sas._problem;
BEGIN
    IF answer.output ? 'response' THEN
        PERFORM sas._close_stage(g);
        answer.output := answer.output -> 'response';
        RETURN answer;
    END IF;
    SELECT * INTO p FROM sas._check_call(answer.output -> 'request', '/request') LIMIT 1;
    IF FOUND THEN
        answer.verdict := 'permanent';
        answer.error := sas._problem_object('middleware', 'the request that the middleware made is not sound', format('%s: %s', p.path, p.problem), NULL, s.run_id, NULL);
        RETURN answer;
    END IF;
    g.stage := 'call';
    g.request := answer.output -> 'request';
    PERFORM sas._next_stage(g, s, 0, NULL);
    RETURN NULL;
END $$;

CREATE FUNCTION sas._end_call(answer sas._reply, g sas.stage, s sas.step, r sas.run) RETURNS sas._reply
LANGUAGE plpgsql AS $$
BEGIN
    -- in a run that cannot go on it is undone with what the service answered; a status that is not expected has failed already
    IF r.fate IS NOT NULL AND NOT g.undo
       OR EXISTS (SELECT FROM sas.workflow_step w WHERE w.version_id = r.version_id AND w.step_no = g.step_no AND w.undo = g.undo AND jsonb_typeof(w.expect) = 'array' AND NOT sas._met(w.expect, answer.output, NULL))
       OR NOT coalesce(sas._middleware_chain('call', (SELECT v.workflow_id FROM sas.workflow_version v WHERE v.version_id = r.version_id)) @? '$[*].after ? (@ != null)', false) THEN
        PERFORM sas._close_stage(g);
        RETURN answer;
    END IF;
    g.stage := 'after';
    g.response := answer.output;
    PERFORM sas._next_stage(g, s, answer.attempt, CASE WHEN NOT g.undo THEN answer.output END);
    RETURN NULL;
END $$;

CREATE FUNCTION sas._end_after(answer sas._reply, g sas.stage, s sas.step) RETURNS sas._reply
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas._close_stage(g);
    UPDATE sas.step x SET asks = NULL, started = NULL WHERE x.run_id = s.run_id AND x.step_no = s.step_no AND x.element = s.element AND NOT g.undo;
    answer.attempt := 0;
    RETURN answer;
END $$;

CREATE FUNCTION sas._end_plan(answer sas._reply, g sas.stage, s sas.step, r sas.run) RETURNS sas._reply
LANGUAGE plpgsql AS $$
DECLARE
    why text := CASE WHEN r.fate IS NULL THEN sas._submit_children(s.run_id, s.step_no, ARRAY[s.element], ARRAY[g.request], ARRAY[answer.output]) ELSE 'its parent cannot go on' END;
BEGIN
    IF why IS NULL THEN
        PERFORM sas._close_stage(g);
        RETURN NULL;
    END IF;
    answer.verdict := 'permanent';
    answer.error := sas._child_problem(s.run_id, s.step_no, why);
    RETURN answer;
END $$;

-- sas._plan_function(workflow): the plan function of the current version, or null.
CREATE FUNCTION sas._plan_function(workflow text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT v.definition ->> 'plan' FROM sas.workflow f JOIN sas.workflow_version v ON v.workflow_id = f.workflow_id AND v.version = f.version
    WHERE f.name = $1 AND f.dropped_at IS NULL
$$;

-- sas._plan_children(...): these child runs are planned first, each in a stage of its step.
CREATE FUNCTION sas._plan_children(run_ids bigint[], step_nos int[], elements int[], inputs jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sas.stage AS g (run_id, step_no, element, undo, stage, request)
    SELECT u.run_id, u.step_no, u.element, false, 'plan', u.input FROM unnest(run_ids, step_nos, elements, inputs) AS u (run_id, step_no, element, input)
    ON CONFLICT (run_id, step_no, element, undo) DO UPDATE SET request = EXCLUDED.request;
    PERFORM sas._make_ready(run_ids, step_nos, elements, true);
END $$;
