-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware: functions of an admin around what runs do, in the phases plan
-- (a submit), call, function (a step or undo of that kind) and finalize. Each wraps what
-- stands inside it: befores from the outermost to the innermost, then the
-- thing itself, then the afters the other way round.
--
-- They are called as the owner of the run, in the transaction of what they
-- wrap: a middleware gives nobody a right, and what it wrote goes with the rest.

CREATE TABLE sas.middleware (
    middleware_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    phase text NOT NULL,
    workflow_id int REFERENCES sas.workflow ON DELETE CASCADE,
    before_function text,
    after_function text,
    goes_before text[] NOT NULL,
    goes_after text[] NOT NULL,
    replaces text,
    place int,
    created_by regrole NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (phase, name)
);
COMMENT ON TABLE sas.middleware IS 'Functions around the phases of runs. place: the outermost of a phase is 1; one that replaces another has its place.';

-- sas._middleware_chain(phase, workflow_id): what applies to a workflow, the outermost first; null when nothing does.
CREATE FUNCTION sas._middleware_chain(for_phase text, for_workflow int) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    WITH here AS (SELECT m.* FROM sas.middleware m WHERE m.phase = for_phase AND (m.workflow_id IS NULL OR m.workflow_id = for_workflow))
    SELECT jsonb_agg(jsonb_build_object('name', h.name, 'before', h.before_function, 'after', h.after_function) ORDER BY h.place, h.workflow_id IS NOT NULL, h.middleware_id)
    FROM here h
    WHERE (h.before_function IS NOT NULL OR h.after_function IS NOT NULL) AND NOT EXISTS (SELECT FROM here r WHERE r.replaces = h.name)
$$;

-- sas._place_middleware(phase): gives each its place: what was said of their order first, then those of all workflows outside
-- those of one, then as they were created. Raises when they go round in a circle.
CREATE FUNCTION sas._place_middleware(for_phase text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ids int[] := ARRAY(SELECT m.middleware_id FROM sas.middleware m WHERE m.phase = for_phase AND m.replaces IS NULL ORDER BY m.workflow_id IS NOT NULL, m.middleware_id);
    from_nos int[];
    to_nos int[];
    cycle int[];
    placed int[] := '{}';
    next int;
BEGIN
    -- one that replaces another stands for it
    WITH m AS (SELECT x.*, array_position(ids, coalesce(y.middleware_id, x.middleware_id)) AS no
               FROM sas.middleware x LEFT JOIN sas.middleware y ON y.phase = for_phase AND y.name = x.replaces WHERE x.phase = for_phase)
    SELECT array_agg(e.a), array_agg(e.b) INTO from_nos, to_nos
    FROM (SELECT a.no AS a, b.no AS b FROM m a JOIN m b ON b.name = ANY (a.goes_before)
          UNION SELECT b.no, a.no FROM m a JOIN m b ON b.name = ANY (a.goes_after)) e;
    cycle := sas._find_cycle(coalesce(from_nos, '{}'), coalesce(to_nos, '{}'), cardinality(ids));
    IF cardinality(cycle) > 0 THEN
        RAISE EXCEPTION 'the middleware of phase % goes round in a circle: %', for_phase,
                (SELECT string_agg(m.name, ' -> ' ORDER BY c.n) FROM unnest(cycle || cycle[1]) WITH ORDINALITY AS c (no, n) JOIN sas.middleware m ON m.middleware_id = ids[c.no])
            USING ERRCODE = 'invalid_object_definition', DETAIL = 'The place is "/goes_before".', HINT = 'Change goes_before or goes_after of one of them.';
    END IF;
    WHILE cardinality(placed) < cardinality(ids) LOOP
        SELECT g INTO STRICT next FROM generate_series(1, cardinality(ids)) g
        WHERE NOT g = ANY (placed)
          AND NOT EXISTS (SELECT FROM unnest(from_nos, to_nos) AS e (a, b) WHERE e.b = g AND NOT e.a = ANY (placed))
        ORDER BY g LIMIT 1;
        placed := placed || next;
    END LOOP;
    UPDATE sas.middleware m SET place = array_position(placed, array_position(ids, coalesce(o.middleware_id, m.middleware_id)))
    FROM sas.middleware x LEFT JOIN sas.middleware o ON o.phase = for_phase AND o.name = x.replaces
    WHERE x.middleware_id = m.middleware_id AND m.phase = for_phase;
END $$;

-- sas._middleware_function(f, path): the name of a function (jsonb) returns jsonb, for keeping.
CREATE FUNCTION sas._middleware_function(caller oid, f regprocedure, path text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text := (SELECT format('%I.%I', n.nspname, p.proname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = f);
    p sas._problem;
BEGIN
    IF f IS NULL THEN
        RETURN NULL;
    END IF;
    IF name IS NULL THEN
        RAISE EXCEPTION 'the function does not exist' USING ERRCODE = 'undefined_function', DETAIL = format('The place is "%s".', path), HINT = 'It takes one jsonb and returns jsonb.';
    ELSIF to_regprocedure(name || '(pg_catalog.jsonb)') IS DISTINCT FROM f THEN
        RAISE EXCEPTION 'function % does not take one jsonb', f
            USING ERRCODE = 'invalid_function_definition', DETAIL = format('The place is "%s".', path), HINT = 'It must be a plain function (context jsonb) that returns jsonb.';
    END IF;
    FOR p IN SELECT * FROM sas._check_function(to_jsonb(name), path, caller) LOOP
        PERFORM sas._raise(p);
    END LOOP;
    RETURN name;
END $$;

CREATE FUNCTION sas._create_middleware(caller oid, name text, phase text, before regprocedure, after regprocedure, workflow text, goes_before text[], goes_after text[], replaces text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    f int;
    p sas._problem;
    other text;
BEGIN
    FOR p IN SELECT * FROM sas._check_name($2, '/name') UNION ALL SELECT * FROM sas._check_choice(to_jsonb(coalesce($3, '')), '/phase', '{plan,call,function,finalize}') LOOP
        PERFORM sas._raise(p);
    END LOOP;
    IF $4 IS NULL AND $5 IS NULL AND $9 IS NULL THEN
        RAISE EXCEPTION 'a middleware needs a function before or after' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/before".',
            HINT = 'Only one that replaces another may do nothing: it takes the other away.';
    END IF;
    IF $6 IS NOT NULL THEN
        SELECT w.workflow_id INTO f FROM sas.workflow w WHERE w.name = $6 AND w.dropped_at IS NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'workflow "%" does not exist', $6 USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/workflow".', HINT = 'Leave it out for all workflows.';
        END IF;
    END IF;
    LOCK TABLE sas.middleware IN SHARE ROW EXCLUSIVE MODE;
    SELECT u INTO other FROM unnest($7 || $8 || $9) u
    WHERE u IS NOT NULL AND (u = $2 OR NOT EXISTS (SELECT FROM sas.middleware m WHERE m.phase = $3 AND m.name = u)) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no other middleware "%" in phase %', other, $3
            USING ERRCODE = 'undefined_object', DETAIL = format('The place is "%s".', CASE WHEN other = ANY ($7) THEN '/goes_before' WHEN other = ANY ($8) THEN '/goes_after' ELSE '/replaces' END),
                  HINT = 'See sas.middlewares for those that there are.';
    END IF;
    IF $9 IS NOT NULL AND (cardinality($7) + cardinality($8) > 0 OR EXISTS (SELECT FROM sas.middleware m WHERE m.phase = $3 AND (m.name = $9 AND m.replaces IS NOT NULL OR m.replaces = $2))) THEN
        RAISE EXCEPTION 'a middleware that replaces another has its place, and neither replaces a replacement nor is replaced'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'The place is "/replaces".', HINT = 'Leave out goes_before and goes_after, and name the one that was there first.';
    END IF;
    INSERT INTO sas.middleware AS m (name, phase, workflow_id, before_function, after_function, goes_before, goes_after, replaces, created_by, created_at)
    VALUES ($2, $3, f, sas._middleware_function(caller, $4, '/before'), sas._middleware_function(caller, $5, '/after'), coalesce($7, '{}'), coalesce($8, '{}'), $9, caller, sas._now())
    ON CONFLICT (phase, name) DO UPDATE
    SET workflow_id = EXCLUDED.workflow_id, before_function = EXCLUDED.before_function, after_function = EXCLUDED.after_function, goes_before = EXCLUDED.goes_before,
        goes_after = EXCLUDED.goes_after, replaces = EXCLUDED.replaces;
    PERFORM sas._place_middleware($3);
END $$;

CREATE FUNCTION sas._drop_middleware(caller oid, name text, phase text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, sas, pg_temp AS $$
#variable_conflict use_column
DECLARE
    other text;
BEGIN
    LOCK TABLE sas.middleware IN SHARE ROW EXCLUSIVE MODE;
    SELECT m.name INTO other FROM sas.middleware m
    WHERE ($3 IS NULL OR m.phase = $3) AND m.name <> $2 AND $2 = ANY (m.goes_before || m.goes_after || m.replaces)
      AND EXISTS (SELECT FROM sas.middleware x WHERE x.phase = m.phase AND x.name = $2) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'middleware "%" is in use', $2
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = format('Middleware "%s" names it.', other), HINT = 'Change or drop that one first.';
    END IF;
    DELETE FROM sas.middleware m WHERE m.name = $2 AND ($3 IS NULL OR m.phase = $3);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'middleware "%" does not exist', $2 USING ERRCODE = 'undefined_object', DETAIL = 'The place is "/name".', HINT = 'See sas.middlewares for those that there are.';
    END IF;
    PERFORM sas._place_middleware(x) FROM unnest('{plan,call,function,finalize}'::text[]) x WHERE $3 IS NULL OR x = $3;
END $$;

-- sas._answer_of(middleware, answer, keys): what a function of a middleware returned: null, or an object with these keys.
CREATE FUNCTION sas._answer_of(middleware text, answer jsonb, keys text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, sas, pg_temp AS $$
BEGIN
    IF coalesce(jsonb_typeof(answer), 'null') = 'null' THEN
        RETURN '{}';
    ELSIF jsonb_typeof(answer) <> 'object' OR answer - keys <> '{}' THEN
        RAISE EXCEPTION 'middleware "%" returned %', middleware, CASE jsonb_typeof(answer) WHEN 'object' THEN 'unknown keys' ELSE jsonb_typeof(answer) END
            USING ERRCODE = 'invalid_parameter_value', HINT = format('It returns null, or an object with %s.', array_to_string(keys, ' or '));
    END IF;
    RETURN answer;
END $$;

-- sas._call_local(function, argument): calls a function under its own search_path, as whoever is the user.
CREATE FUNCTION sas._call_local(function text, argument jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    outer_path text := pg_catalog.current_setting('search_path');
    answer jsonb;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, ' || (SELECT p.pronamespace::pg_catalog.regnamespace::text FROM pg_catalog.pg_proc p
                                                                   WHERE p.oid = pg_catalog.to_regprocedure(function || '(pg_catalog.jsonb)')) || ', pg_temp', true);
    EXECUTE pg_catalog.format('SELECT %s($1)', function) INTO answer USING argument;
    PERFORM pg_catalog.set_config('search_path', outer_path, true);
    RETURN answer;
END $$;

-- sas._through_middleware(call): what a function worker calls in the place of the function, as the owner of the run.
--   call: {chain, context, function, request}; function: a line for each, or none at all; the response is that of the last. A before
--   may change the request, or give the response itself: then what is inside is not called, and the afters of those
--   outside see it. An after may change the response.
CREATE FUNCTION sas._through_middleware(call jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    i record;
    name text;
BEGIN
    SELECT * INTO i FROM sas._go_in(call);
    IF i.response IS NULL THEN
        i.response := 'null';
        FOREACH name IN ARRAY string_to_array(call ->> 'function', E'\n') LOOP
            i.response := coalesce(sas._call_local(name, i.request), 'null');
        END LOOP;
    END IF;
    RETURN sas._go_out(call, i.request, i.response, i.last);
END $$;

-- sas._go_in(call): the befores, from the outermost on: the request that comes out; the response when one answers itself; the last that is to see the response.
CREATE FUNCTION sas._go_in(call jsonb, OUT request jsonb, OUT response jsonb, OUT last int)
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    chain jsonb := call -> 'chain';
    answer jsonb;
BEGIN
    request := call -> 'request';
    last := jsonb_array_length(chain) - 1;
    FOR n IN 0 .. last LOOP
        CONTINUE WHEN chain -> n ->> 'before' IS NULL;
        answer := sas._answer_of(chain -> n ->> 'name', sas._call_local(chain -> n ->> 'before', call -> 'context' || jsonb_build_object('middleware', chain -> n ->> 'name', 'request', request)),
                                 '{request,response}');
        request := coalesce(answer -> 'request', request);
        IF answer ? 'response' THEN
            response := answer -> 'response';
            last := n - 1;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- sas._go_out(call, request, response, last): the afters, from the last on to the outermost: the response that comes out.
CREATE FUNCTION sas._go_out(call jsonb, request jsonb, response jsonb, last int) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, sas, pg_temp AS $$
DECLARE
    chain jsonb := call -> 'chain';
    context jsonb;
    answer jsonb;
BEGIN
    FOR n IN REVERSE last .. 0 LOOP
        CONTINUE WHEN chain -> n ->> 'after' IS NULL;
        context := call -> 'context' || jsonb_build_object('middleware', chain -> n ->> 'name', 'request', request, 'response', response);
        answer := sas._answer_of(chain -> n ->> 'name', sas._call_local(chain -> n ->> 'after', context), '{response}');
        response := coalesce(answer -> 'response', response);
    END LOOP;
    RETURN response;
END $$;

-- sas._middleware_context(...): what the functions around a step are told of it.
CREATE FUNCTION sas._middleware_context(phase text, r sas.run, v sas.workflow_version, workflow text, step text, element int, undo boolean) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('phase', phase, 'workflow', workflow, 'version', coalesce(v.of_version, v.version), 'step', step, 'element', element, 'undo', undo,
                              'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels, 'created_at', r.created_at, 'deadline', r.deadline))
$$;

-- sas._wrap(...): what a function worker is to call for a claimed step that middleware applies to; no row when none does.
CREATE FUNCTION sas._wrap(for_run bigint, for_step text, element int, undo boolean, function text, request jsonb) RETURNS TABLE (wrapper text, input jsonb)
LANGUAGE sql STABLE AS $$
    SELECT 'sas._through_middleware',
           jsonb_build_object('chain', c.chain, 'function', $5, 'request', $6, 'context', sas._middleware_context(p.phase, r, v, f.name, $2, $3, $4))
    FROM sas.run r
    JOIN sas.workflow_version v USING (version_id)
    JOIN sas.workflow f USING (workflow_id)
    CROSS JOIN LATERAL (SELECT CASE WHEN $2 = 'finalize' THEN 'finalize' ELSE 'function' END AS phase) p
    CROSS JOIN LATERAL (SELECT sas._middleware_chain(p.phase, f.workflow_id) AS chain OFFSET 0) c
    WHERE r.run_id = $1 AND c.chain IS NOT NULL
$$;

-- sas._plan_before(...): inputs and labels of a submit as the middleware of phase plan wants them.
CREATE FUNCTION sas._plan_before(caller oid, workflow text, INOUT inputs jsonb[], keys text[], INOUT labels jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := sas._middleware_chain('plan', (SELECT f.workflow_id FROM sas.workflow f WHERE f.name = $2 AND f.dropped_at IS NULL));
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
            answer := sas._answer_of(m ->> 'name', sas._call_as(caller, m ->> 'before', jsonb_build_object('phase', 'plan', 'middleware', m -> 'name', 'workflow', workflow,
                                                                                                          'run', jsonb_build_object('key', keys[n]), 'request', request)), '{request}');
            request := request || sas._answer_of(m ->> 'name', answer -> 'request', '{input,labels}');
        END LOOP;
        inputs[n] := request -> 'input';
        shared := shared || CASE jsonb_typeof(request -> 'labels') WHEN 'object' THEN request -> 'labels' ELSE '{}' END;
    END LOOP;
    labels := shared;
END $$;

-- sas._plan_after(...): the runs are there; the afters of phase plan are told of each that was made.
CREATE FUNCTION sas._plan_after(caller oid, workflow text, run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    chain jsonb := sas._middleware_chain('plan', (SELECT f.workflow_id FROM sas.workflow f WHERE f.name = $2 AND f.dropped_at IS NULL));
    r record;
    m jsonb;
BEGIN
    IF chain IS NULL THEN
        RETURN;
    END IF;
    FOR r IN SELECT x.run_id, x.key, x.labels, x.input, x.state FROM sas.run x WHERE x.run_id = ANY (run_ids) ORDER BY x.run_id LOOP
        FOR m IN SELECT e FROM jsonb_array_elements(chain) WITH ORDINALITY AS j (e, n) ORDER BY n DESC LOOP
            CONTINUE WHEN m ->> 'after' IS NULL;
            PERFORM sas._answer_of(m ->> 'name', sas._call_as(caller, m ->> 'after', jsonb_build_object('phase', 'plan', 'middleware', m -> 'name', 'workflow', workflow,
                                       'run', jsonb_build_object('id', r.run_id, 'key', r.key, 'labels', r.labels), 'request', jsonb_build_object('input', r.input, 'labels', r.labels),
                                       'response', jsonb_build_object('run_id', r.run_id, 'state', r.state))), '{}');
        END LOOP;
    END LOOP;
END $$;

-- sas._check_middleware(caller, workflow): raises when who submits may not call what will be called as him.
CREATE FUNCTION sas._check_middleware(caller oid, workflow text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    p sas._problem;
BEGIN
    FOR p IN
        SELECT c.*
        FROM sas.workflow f
        CROSS JOIN unnest('{plan,call,function,finalize}'::text[]) AS phase
        CROSS JOIN LATERAL jsonb_array_elements(sas._middleware_chain(phase, f.workflow_id)) m
        CROSS JOIN LATERAL (SELECT m -> 'before' AS name WHERE m ->> 'before' IS NOT NULL UNION ALL SELECT m -> 'after' WHERE m ->> 'after' IS NOT NULL) x
        CROSS JOIN LATERAL sas._check_function(x.name, '/workflow', caller) c
        WHERE f.name = workflow AND f.dropped_at IS NULL
    LOOP
        PERFORM sas._raise(p);
    END LOOP;
END $$;
