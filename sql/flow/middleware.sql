-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware at work: functions around submits, calls, function steps and finalize.

-- _sas.answer_of(middleware, answer, keys): what a function of a middleware returned: null, or an object with
-- these keys.
CREATE FUNCTION _sas.answer_of(middleware text, answer jsonb, keys text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(jsonb_typeof(answer), 'null') = 'null' THEN
        RETURN '{}';
    ELSIF jsonb_typeof(answer) <> 'object' OR answer - keys <> '{}' THEN
        RAISE EXCEPTION 'middleware "%" returned %', middleware, CASE jsonb_typeof(answer)
            WHEN 'object' THEN 'unknown keys' ELSE jsonb_typeof(answer) END
            USING ERRCODE = 'invalid_parameter_value',
                HINT = format('It returns null, or an object with %s.', array_to_string(keys, ' or '));
    END IF;
    RETURN answer;
END $$;

-- _sas.call_local(function, argument): calls a function under its own search_path, as whoever is the user.
CREATE FUNCTION _sas.call_local(function text, argument jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outer_path text := pg_catalog.current_setting('search_path');
    answer jsonb;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, '
                                  || (SELECT p.pronamespace::pg_catalog.regnamespace::text
                                      FROM pg_catalog.pg_proc p
                                                                   WHERE p.oid
                                                                       = pg_catalog.to_regprocedure(function
                                                                               || '(pg_catalog.jsonb)'))
                                                                       || ', pg_temp', true);
    EXECUTE pg_catalog.format('SELECT %s($1)', function) INTO answer USING argument;
    PERFORM pg_catalog.set_config('search_path', outer_path, true);
    RETURN answer;
END $$;

-- _sas.through_middleware(call): what a function worker calls in the place of the function, as the owner of
-- the run.
--   call: {chain, context, function, request}; function: a line for each, or none at all; the response is
--   that of the last. A before
--   may change the request, or give the response itself: then what is inside is not called, and the afters of
--   those
--   outside see it. An after may change the response.
CREATE FUNCTION _sas.through_middleware(call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    i record;
    name text;
BEGIN
    SELECT * INTO i FROM _sas.go_in(call);
    IF i.response IS NULL THEN
        i.response := 'null';
        FOREACH name IN ARRAY string_to_array(call ->> 'function', E'\n') LOOP
            i.response := coalesce(_sas.call_local(name, i.request), 'null');
        END LOOP;
    END IF;
    RETURN _sas.go_out(call, i.request, i.response, i.last);
END $$;

-- _sas.go_in(call): the befores, from the outermost on: the request that comes out; the response when one
-- answers itself; the last that is to see the response.
CREATE FUNCTION _sas.go_in(call jsonb, OUT request jsonb, OUT response jsonb, OUT last int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chain jsonb := call -> 'chain';
    answer jsonb;
BEGIN
    request := call -> 'request';
    last := jsonb_array_length(chain) - 1;
    FOR n IN 0 .. last LOOP
        CONTINUE WHEN chain -> n ->> 'before' IS NULL;
        answer := _sas.answer_of(chain -> n ->> 'name',
                                 _sas.call_local(chain -> n ->> 'before', call -> 'context'
                                                 || jsonb_build_object('middleware', chain -> n ->> 'name',
                            'request', request)),
                                 '{request,response}');
        request := coalesce(answer -> 'request', request);
        IF answer ? 'response' THEN
            response := answer -> 'response';
            last := n - 1;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- _sas.go_out(call, request, response, last): the afters, from the last on to the outermost: the response
-- that comes out.
CREATE FUNCTION _sas.go_out(call jsonb, request jsonb, response jsonb, last int) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chain jsonb := call -> 'chain';
    context jsonb;
    answer jsonb;
BEGIN
    FOR n IN REVERSE last .. 0 LOOP
        CONTINUE WHEN chain -> n ->> 'after' IS NULL;
        context := call -> 'context' || jsonb_build_object('middleware', chain -> n ->> 'name', 'request',
                                                           request, 'response', response);
        answer := _sas.answer_of(chain -> n ->> 'name', _sas.call_local(chain -> n ->> 'after', context),
                                 '{response}');
        response := coalesce(answer -> 'response', response);
    END LOOP;
    RETURN response;
END $$;

-- _sas.middleware_context(...): what the functions around a step are told of it.
CREATE FUNCTION _sas.middleware_context(phase text, r _sas.run, v _sas.workflow_version, workflow text,
                                        step text, element int, undo boolean) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('phase', phase, 'workflow', workflow, 'version',
                              coalesce(v.of_version, v.version), 'step', step, 'element', element, 'undo',
                              undo,
                              'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels,
                                                        'created_at', r.created_at, 'deadline', r.deadline))
$$;

-- _sas.wrap(...): what a function worker is to call for a claimed step that middleware applies to; no row
-- when none does.
CREATE FUNCTION _sas.wrap(for_run bigint, for_step text, element int, undo boolean, function text,
                          request jsonb) RETURNS TABLE (wrapper text, input jsonb)
LANGUAGE sql STABLE AS $$
    SELECT '_sas.through_middleware',
           jsonb_build_object('chain', c.chain, 'function', $5, 'request', $6, 'context',
                              _sas.middleware_context(p.phase, r, v, f.name, $2, $3, $4))
    FROM _sas.run r
    JOIN _sas.workflow_version v USING (version_id)
    JOIN _sas.workflow f USING (workflow_id)
    CROSS JOIN LATERAL (SELECT CASE WHEN $2 = 'finalize' THEN 'finalize' ELSE 'function' END AS phase) p
    CROSS JOIN LATERAL (SELECT _sas.middleware_chain(p.phase, f.workflow_id) AS chain OFFSET 0) c
    WHERE r.run_id = $1 AND c.chain IS NOT NULL
$$;

-- _sas.plan_before(...): inputs and labels of a submit as the middleware of phase plan wants them.
CREATE FUNCTION _sas.plan_before(caller oid, workflow text, INOUT inputs jsonb[], keys text[],
                                 INOUT labels jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := _sas.middleware_chain('plan',
                                         (SELECT f.workflow_id FROM _sas.workflow f WHERE f.name = $2
                                          AND f.dropped_at IS NULL));
    shared jsonb := labels;
    request jsonb;
    answer jsonb;
    m jsonb;
BEGIN
    -- one submit has one set of labels: what is planned first says them
    FOR n IN 1 .. CASE WHEN chain IS NULL THEN 0 ELSE coalesce(cardinality(inputs), 0) END LOOP
        request := jsonb_build_object('input', inputs[n], 'labels', labels);
        FOR m IN SELECT * FROM jsonb_array_elements(chain) LOOP
            CONTINUE WHEN m ->> 'before' IS NULL;
            answer := _sas.answer_of(m ->> 'name',
                                     _sas.call_as(caller, m ->> 'before',
                                                  jsonb_build_object('phase', 'plan', 'middleware',
                                m -> 'name', 'workflow', workflow,
                                        'run', jsonb_build_object('key', keys[n]), 'request', request)),
                                            '{request}');
            request := request || _sas.answer_of(m ->> 'name', answer -> 'request', '{input,labels}');
        END LOOP;
        inputs[n] := request -> 'input';
        shared := shared || CASE jsonb_typeof(request -> 'labels') WHEN 'object' THEN request -> 'labels'
            ELSE '{}' END;
    END LOOP;
    labels := shared;
END $$;

-- _sas.plan_after(...): the runs are there; the afters of phase plan are told of each that was made.
CREATE FUNCTION _sas.plan_after(caller oid, workflow text, run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := _sas.middleware_chain('plan',
                                         (SELECT f.workflow_id FROM _sas.workflow f WHERE f.name = $2
                                          AND f.dropped_at IS NULL));
    r record;
    m jsonb;
BEGIN
    IF chain IS NULL THEN
        RETURN;
    END IF;
    FOR r IN SELECT x.run_id, x.key, x.labels, x.input, x.state FROM _sas.run x
        WHERE x.run_id = ANY (run_ids) ORDER BY x.run_id LOOP
        FOR m IN SELECT e FROM jsonb_array_elements(chain) WITH ORDINALITY AS j (e, n) ORDER BY n DESC LOOP
            CONTINUE WHEN m ->> 'after' IS NULL;
            PERFORM _sas.answer_of(m ->> 'name',
                                   _sas.call_as(caller, m ->> 'after',
                                                jsonb_build_object('phase', 'plan', 'middleware',
                                m -> 'name', 'workflow', workflow,
                                       'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels',
                                                   r.labels), 'request',
                                           jsonb_build_object('input', r.input, 'labels', r.labels),
                                       'response', jsonb_build_object('run_id', r.run_id, 'state',
                                                   r.state))), '{}');
        END LOOP;
    END LOOP;
END $$;
