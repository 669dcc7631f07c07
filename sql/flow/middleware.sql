-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware at run time: functions around submits, calls, function steps and finalize.

-- _sas.through_middleware(input): the function that a function worker calls instead of the function of a
-- step. src/work/middleware.c describes input and result.
CREATE FUNCTION _sas.through_middleware(input jsonb) RETURNS jsonb
LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sas_api_through_middleware';

-- _sas.middleware_answer(middleware, answer, keys): the result of a middleware function, checked: an object
-- with these keys, or null, which becomes an empty object.
CREATE FUNCTION _sas.middleware_answer(middleware text, answer jsonb, keys text[]) RETURNS jsonb
LANGUAGE C IMMUTABLE AS 'MODULE_PATHNAME', 'sas_api_middleware_answer';

-- _sas.middleware_context(...): what the functions around a step get to know about it.
CREATE FUNCTION _sas.middleware_context(phase text, r _sas.run, v _sas.workflow_version, workflow text,
                                        step text, element int, undo boolean) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'phase', phase, 'workflow', workflow, 'version', coalesce(v.of_version, v.version),
        'step', step, 'element', element, 'undo', undo,
        'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels,
                                  'created_at', r.created_at, 'deadline', r.deadline))
$$;

-- _sas.wrap_function(...): what a function worker calls for a claimed step that has middleware; no row if
-- it has none.
CREATE FUNCTION _sas.wrap_function(for_run bigint, for_step text, element int, undo boolean, function text,
                                   request jsonb) RETURNS TABLE (wrapper text, input jsonb)
LANGUAGE sql STABLE AS $$
    SELECT '_sas.through_middleware',
           jsonb_build_object('chain', c.chain, 'function', $5, 'request', $6,
                              'context', _sas.middleware_context(p.phase, r, v, f.name, $2, $3, $4))
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.workflow f USING (workflow_id)
    CROSS JOIN LATERAL (SELECT CASE WHEN $2 = 'finalize' THEN 'finalize' ELSE 'function' END AS phase) p
    CROSS JOIN LATERAL (SELECT _sas.middleware_chain(p.phase, f.workflow_id, r.owner) AS chain OFFSET 0) c
    WHERE r.run_id = $1 AND c.chain IS NOT NULL
$$;

-- _sas.plan_chain(caller, workflow): the middleware of phase plan. Null: there is none.
CREATE FUNCTION _sas.plan_chain(caller oid, workflow text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.middleware_chain('plan', (SELECT f.workflow_id FROM _sas.workflow f
                                          WHERE f.name = $2 AND f.dropped_at IS NULL), caller)
$$;

-- _sas.plan_before(...): inputs and labels of a submit after the middleware of phase plan has changed them.
CREATE FUNCTION _sas.plan_before(caller oid, workflow text, INOUT inputs jsonb[], keys text[],
                                 INOUT labels jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := _sas.plan_chain(caller, workflow);
    shared jsonb := labels;
    request jsonb;
    answer jsonb;
    m jsonb;
BEGIN
    -- all runs of a submit have the same labels, so the labels of all answers are merged
    FOR n IN 1 .. CASE WHEN chain IS NULL THEN 0 ELSE coalesce(cardinality(inputs), 0) END LOOP
        request := jsonb_build_object('input', inputs[n], 'labels', labels);
        FOR m IN SELECT * FROM jsonb_array_elements(chain) LOOP
            CONTINUE WHEN m ->> 'before' IS NULL;
            answer := _sas.call_as(caller, (m ->> 'owner')::oid, m ->> 'before', jsonb_build_object(
                'phase', 'plan', 'middleware', m -> 'name', 'workflow', workflow,
                'run', jsonb_build_object('key', keys[n]), 'request', request));
            answer := _sas.middleware_answer(m ->> 'name', answer, '{request}');
            request := request || _sas.middleware_answer(m ->> 'name', answer -> 'request', '{input,labels}');
        END LOOP;
        inputs[n] := request -> 'input';
        shared := shared || CASE jsonb_typeof(request -> 'labels') WHEN 'object' THEN request -> 'labels'
                            ELSE '{}' END;
    END LOOP;
    labels := shared;
END $$;

-- _sas.plan_after(...): calls the "after" functions of phase plan for each run that was created.
CREATE FUNCTION _sas.plan_after(caller oid, workflow text, run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := _sas.plan_chain(caller, workflow);
    r record;
    m jsonb;
    answer jsonb;
BEGIN
    IF chain IS NULL THEN
        RETURN;
    END IF;
    FOR r IN SELECT x.run_id, x.key, x.labels, x.input, x.state FROM _sas.run x
             WHERE x.run_id = ANY (run_ids) ORDER BY x.run_id LOOP
        FOR m IN SELECT e FROM jsonb_array_elements(chain) WITH ORDINALITY AS j (e, n) ORDER BY n DESC LOOP
            CONTINUE WHEN m ->> 'after' IS NULL;
            answer := _sas.call_as(caller, (m ->> 'owner')::oid, m ->> 'after', jsonb_build_object(
                'phase', 'plan', 'middleware', m -> 'name', 'workflow', workflow,
                'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels),
                'request', jsonb_build_object('input', r.input, 'labels', r.labels),
                'response', jsonb_build_object('run_id', r.run_id, 'state', r.state)));
            PERFORM _sas.middleware_answer(m ->> 'name', answer, '{}');
        END LOOP;
    END LOOP;
END $$;
