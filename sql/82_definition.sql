-- SPDX-License-Identifier: PostgreSQL
--
-- Definition: a workflow as JSON is checked and compiled into steps and edges.

-- sas._check_body(...): what a step and its undo have in common.
CREATE FUNCTION sas._check_body(body jsonb, path text, caller oid, agent text) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds text[];
BEGIN
    SELECT coalesce(array_agg(k), '{}') INTO kinds FROM unnest('{call,function}'::text[]) k WHERE body ? k;
    IF cardinality(kinds) <> 1 THEN
        RETURN NEXT ROW(path, CASE cardinality(kinds) WHEN 0 THEN 'a step needs one of call and function' ELSE 'a step has only one of call and function' END,
                        'Write exactly one of them.', '22023')::sas._problem;
        RETURN;
    END IF;
    IF kinds[1] = 'call' THEN
        RETURN QUERY SELECT * FROM sas._check_call(body -> 'call', path || '/call');
        IF agent IS NULL THEN
            RETURN NEXT ROW(path, 'a call needs an agent', 'Name one under "agent".', '22023')::sas._problem;
        ELSIF NOT EXISTS (SELECT FROM sas.agent a WHERE a.name = agent AND a.dropped_at IS NULL AND a.kind = 'http') THEN
            RETURN NEXT ROW(path || '/agent', format('agent "%s" does not exist', agent), 'Create it with sas.create_agent.', '42704')::sas._problem;
        END IF;
        IF body ? 'input' THEN
            RETURN NEXT ROW(path || '/input', 'a call has no input', 'Write what is sent under call: body, form, text or query.', '22023')::sas._problem;
        END IF;
    ELSE
        RETURN QUERY SELECT * FROM sas._check_function(body -> 'function', path || '/function', caller);
        IF body ? 'agent' THEN
            RETURN NEXT ROW(path || '/agent', 'a function has no agent', 'Leave it out.', '22023')::sas._problem;
        END IF;
    END IF;
    RETURN QUERY
    SELECT * FROM sas._check_expect(body -> 'expect', path || '/expect', kinds[1])
    UNION ALL SELECT * FROM sas._check_pauses(body -> 'retry', path || '/retry', 'max_attempts')
    UNION ALL SELECT * FROM sas._check_pauses(body -> 'recovery', path || '/recovery', 'max_failures')
    UNION ALL SELECT * FROM sas._check_span(body -> 'complete_in', path || '/complete_in');
END $$;

-- sas._check_step(...): a step, without what relates it to others.
CREATE FUNCTION sas._check_step(name text, body jsonb, path text, caller oid) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    later text[] := '{task,wait,workflow,include,poll,agents,flow,each,concurrency,max_failed,repeat,when,else,fallback,queue,finalize,weight}';
BEGIN
    RETURN QUERY SELECT * FROM sas._check_name(name, path);
    IF name = 'finalize' THEN
        RETURN NEXT ROW(path, 'the name "finalize" is taken', 'It names the last step of a run, which sas adds itself.', '42602')::sas._problem;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_keys(body, path, '{call,function,agent,input,after,undo,expect,output,retry,recovery,on_failure,complete_in,pivot,priority}', later);
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' OR body ?| later THEN
        RETURN;
    END IF;
    IF body ? 'agent' AND jsonb_typeof(body -> 'agent') <> 'string' THEN
        RETURN NEXT ROW(path || '/agent', 'the agent must be a name', 'Write the name of an agent as a string.', '22023')::sas._problem;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_body(body, path, caller, body ->> 'agent');
    IF body ? 'after' AND (jsonb_typeof(body -> 'after') <> 'array' OR body @? '$.after[*] ? (@.type() != "string")') THEN
        RETURN NEXT ROW(path || '/after', 'an array of step names is needed here', 'Write it as ["name", "name"].', '22023')::sas._problem;
    END IF;
    RETURN QUERY
    SELECT * FROM sas._check_on_failure(body -> 'on_failure', path || '/on_failure')
    UNION ALL SELECT * FROM sas._check_boolean(body -> 'pivot', path || '/pivot')
    UNION ALL SELECT * FROM sas._check_number(body -> 'priority', path || '/priority', -1000, 1000);
    IF body ? 'undo' THEN
        RETURN QUERY SELECT * FROM sas._check_keys(body -> 'undo', path || '/undo', '{call,function,agent,input,expect,retry,recovery,complete_in}', later);
        IF jsonb_typeof(body -> 'undo') = 'object' THEN
            RETURN QUERY SELECT * FROM sas._check_body(body -> 'undo', path || '/undo', caller,
                                                       coalesce(body #>> '{undo,agent}', CASE WHEN body #> '{undo}' ? 'call' THEN body ->> 'agent' END));
        END IF;
    END IF;
END $$;

-- sas._body_references(body): the references in the templates of a step's or undo's body.
CREATE FUNCTION sas._body_references(body jsonb, path text) RETURNS TABLE (pointer text, reference text, root text, member text, third text, problem text)
LANGUAGE sql STABLE AS $$
    SELECT $2 || '/' || part.key || r.pointer, r.path, r.root, r.member, r.third, r.problem
    FROM (SELECT e.key, e.value FROM jsonb_each(CASE jsonb_typeof(body) WHEN 'object' THEN body ELSE '{}' END) e WHERE e.key IN ('call', 'input', 'output')) part
    CROSS JOIN LATERAL sas._references(part.value) r
    UNION ALL
    SELECT $2 || '/expect', r.path, r.root, r.member, r.third, NULL
    FROM sas._predicate_references(CASE jsonb_typeof(body -> 'expect') WHEN 'string' THEN body ->> 'expect' END) r
    WHERE r.problem IS NULL AND r.root = 'steps'
$$;

-- sas._check_references(steps, path): references that name nothing, or what may not be named.
CREATE FUNCTION sas._check_references(definition jsonb) RETURNS SETOF sas._problem
LANGUAGE sql STABLE AS $$
    WITH body AS (
        SELECT s.key AS name, false AS undo, s.value AS body, sas._pointer('/steps', s.key) AS path FROM jsonb_each(definition -> 'steps') s
        UNION ALL
        SELECT s.key, true, s.value -> 'undo', sas._pointer('/steps', s.key) || '/undo' FROM jsonb_each(definition -> 'steps') s
        WHERE jsonb_typeof(s.value) = 'object' AND s.value ? 'undo'
        UNION ALL
        SELECT NULL, false, jsonb_build_object('output', definition -> 'output'), '' WHERE definition ? 'output'),
    reference AS (SELECT b.name, b.undo, r.* FROM body b CROSS JOIN LATERAL sas._body_references(b.body, b.path) r)
    SELECT r.pointer, format('malformed reference: %s', r.problem), 'A reference is {{ path }}, an SQL/JSON path without its leading "$.".', '42601'
    FROM reference r WHERE r.problem IS NOT NULL
    UNION ALL
    SELECT r.pointer, format('reference to secret in a workflow: "%s"', r.reference), 'Secrets stand in the headers, query and options of agents only.', '42501'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'secret'
    UNION ALL
    SELECT r.pointer, format('"%s" refers to nothing that can be seen from here', r.reference), 'A reference begins with input, steps, run or key; in the output of a step also with output.', '42P10'
    FROM reference r
    WHERE r.problem IS NULL AND r.root IS DISTINCT FROM 'secret'
      AND (r.root IS NULL OR NOT r.root IN ('input', 'steps', 'run', 'key', 'output')
           OR r.root = 'output' AND (r.name IS NULL OR r.pointer ~ '^/steps/[^/]*/(undo/)?(call|input)(/|$)'))
    UNION ALL
    SELECT r.pointer, format('step "%s" does not exist', coalesce(r.member, '')), 'A reference to a step is {{steps.NAME.output}}, with more path behind it if need be.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND (r.member IS NULL OR NOT definition -> 'steps' ? r.member)
    UNION ALL
    SELECT r.pointer, format('step "%s" refers to its own result', r.name), 'Only its undo can refer to what a step has returned.', '42P10'
    FROM reference r WHERE r.problem IS NULL AND r.root = 'steps' AND r.member = r.name AND NOT r.undo
    UNION ALL
    SELECT sas._pointer('/steps', s.key) || '/after', format('step "%s" does not exist', a), 'Name steps of this definition.', '42P10'
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE WHEN jsonb_typeof(s.value) = 'object' AND jsonb_typeof(s.value -> 'after') = 'array' THEN s.value -> 'after' ELSE '[]' END) a
    WHERE NOT definition -> 'steps' ? a
$$;

-- sas._edges(definition): which step comes before which.
CREATE FUNCTION sas._edges(definition jsonb) RETURNS TABLE (from_name text, to_name text)
LANGUAGE sql STABLE AS $$
    SELECT a, s.key
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(s.value -> 'after') WHEN 'array' THEN s.value -> 'after' ELSE '[]' END) a
    UNION
    SELECT r.member, s.key
    FROM jsonb_each(definition -> 'steps') s
    CROSS JOIN LATERAL sas._body_references(s.value, '') r
    WHERE r.root = 'steps' AND r.member IS NOT NULL
$$;

-- sas._check_order(definition): cycles, and undos that refer to what is not before them.
CREATE FUNCTION sas._check_order(definition jsonb) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    names text[] := ARRAY(SELECT jsonb_object_keys(definition -> 'steps'));
    from_nos int[];
    to_nos int[];
    cycle int[];
BEGIN
    SELECT array_agg(f.n), array_agg(t.n) INTO from_nos, to_nos
    FROM sas._edges(definition) e
    JOIN unnest(names) WITH ORDINALITY AS f (name, n) ON f.name = e.from_name
    JOIN unnest(names) WITH ORDINALITY AS t (name, n) ON t.name = e.to_name;
    cycle := sas._find_cycle(coalesce(from_nos, '{}'), coalesce(to_nos, '{}'), cardinality(names));
    IF cardinality(cycle) > 0 THEN
        RETURN NEXT ROW(sas._pointer('/steps', names[cycle[1]]),
                        format('the steps wait for each other: %s', (SELECT string_agg(names[c], ' -> ' ORDER BY n) FROM unnest(cycle || cycle[1]) WITH ORDINALITY AS x (c, n))),
                        'Take one of the steps, or the reference to it, out of the cycle.', '42P17')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE wanted AS (
        SELECT s.key AS name, r.member, r.pointer
        FROM jsonb_each(definition -> 'steps') s
        CROSS JOIN LATERAL sas._body_references(s.value -> 'undo', sas._pointer('/steps', s.key) || '/undo') r
        WHERE r.root = 'steps' AND r.member <> s.key),
    edge AS (SELECT * FROM sas._edges(definition) WHERE EXISTS (SELECT FROM wanted)),
    before AS (
        SELECT DISTINCT w.name, e.from_name FROM wanted w JOIN edge e ON e.to_name = w.name
        UNION
        SELECT b.name, e.from_name FROM before b JOIN edge e ON e.to_name = b.from_name)
    SELECT w.pointer, format('step "%s" is not before step "%s"', w.member, w.name), 'An undo can refer to its own step and to those before it.', '42P10'
    FROM wanted w WHERE NOT EXISTS (SELECT FROM before b WHERE b.name = w.name AND b.from_name = w.member);
END $$;

-- sas._check_definition(definition, caller): everything that is wrong with it, in reading order of importance.
CREATE FUNCTION sas._check_definition(definition jsonb, caller oid) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    later text[] := '{flow,concurrency,singleton,queue,plan,hooks}';
    steps jsonb;
    sound boolean;
BEGIN
    IF octet_length(definition::text) > sas._max_definition_size() THEN
        RETURN NEXT ROW('', format('the definition has more than %s bytes', sas._max_definition_size()), 'See the setting sas.max_definition_size.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_keys(definition, '', '{steps,output,on_failure,recovery,deadline,finalize,priority}', later);
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    steps := definition -> 'steps';
    IF jsonb_typeof(steps) IS DISTINCT FROM 'object' THEN
        RETURN NEXT ROW('/steps', 'the steps must be an object: a body by name', 'It may be empty.', '22023')::sas._problem;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(steps)) > sas._max_steps() THEN
        RETURN NEXT ROW('/steps', format('there are more than %s steps', sas._max_steps()), 'See the setting sas.max_steps.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM sas._check_on_failure(definition -> 'on_failure', '/on_failure')
    UNION ALL SELECT * FROM sas._check_pauses(definition -> 'recovery', '/recovery', 'max_failures')
    UNION ALL SELECT * FROM sas._check_span(definition -> 'deadline', '/deadline')
    UNION ALL SELECT * FROM sas._check_number(definition -> 'priority', '/priority', -1000, 1000);
    IF definition ? 'finalize' THEN
        RETURN QUERY SELECT * FROM sas._check_function(definition -> 'finalize', '/finalize', caller);
    END IF;
    RETURN QUERY SELECT p.* FROM jsonb_each(steps) s CROSS JOIN LATERAL sas._check_step(s.key, s.value, sas._pointer('/steps', s.key), caller) p;

    SELECT coalesce(bool_and(jsonb_typeof(s.value) = 'object'), true) INTO sound FROM jsonb_each(steps) s;
    IF NOT sound THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_references(definition);
    IF NOT EXISTS (SELECT FROM sas._check_references(definition)) THEN
        RETURN QUERY SELECT * FROM sas._check_order(definition);
    END IF;
END $$;

-- sas._pauses(value): retry or recovery with its spans in a form that the
-- machine reads without thinking: recovery keeps spans, retry has milliseconds.
CREATE FUNCTION sas._retry_policy(value jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value IS NOT NULL THEN
        jsonb_strip_nulls(jsonb_build_object(
            'max_attempts', value -> 'max_attempts',
            'initial_ms', extract(epoch FROM sas._span(value -> 'initial')) * 1000,
            'max_ms', extract(epoch FROM sas._span(value -> 'max')) * 1000,
            'backoff', value -> 'backoff', 'jitter', value -> 'jitter', 'on', value -> 'on')) END
$$;

-- sas._store_version(...): writes a checked definition as a version of a workflow.
CREATE FUNCTION sas._store_version(for_workflow int, new_version int, definition jsonb, caller oid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    id int;
    names text[] := ARRAY(SELECT jsonb_object_keys(definition -> 'steps'));
    policy jsonb := '{"transient": "pause", "permanent": "compensate"}'::jsonb
                    || CASE jsonb_typeof(definition -> 'on_failure') WHEN 'object' THEN definition -> 'on_failure'
                            WHEN 'string' THEN jsonb_build_object('transient', definition -> 'on_failure', 'permanent', definition -> 'on_failure')
                            ELSE '{}' END;
    recovery jsonb := '{"max_failures": 10, "initial": "10 s", "max": "15 min", "backoff": "exponential", "jitter": true}'::jsonb
                      || coalesce(definition -> 'recovery', '{}');
BEGIN
    INSERT INTO sas.workflow_version (workflow_id, version, definition, step_count, finalize_no, functions, output, output_reads,
                                      on_transient, on_permanent, deadline, priority, created_by, created_at)
    SELECT for_workflow, new_version, definition, cardinality(names),
           CASE WHEN definition ? 'finalize' THEN cardinality(names) + 1 END,
           ARRAY(SELECT DISTINCT f FROM (SELECT s.value ->> 'function' AS f FROM jsonb_each(definition -> 'steps') s
                                         UNION ALL SELECT s.value #>> '{undo,function}' FROM jsonb_each(definition -> 'steps') s
                                         UNION ALL SELECT definition ->> 'finalize') x WHERE f IS NOT NULL),
           definition -> 'output',
           ARRAY(SELECT DISTINCT n.n::int FROM sas._body_references(jsonb_build_object('output', definition -> 'output'), '') r
                 JOIN unnest(names) WITH ORDINALITY AS n (name, n) ON r.root = 'steps' AND n.name = r.member),
           policy ->> 'transient', policy ->> 'permanent', sas._span(definition -> 'deadline'),
           coalesce((definition ->> 'priority')::int, 0), caller, sas._now()
    RETURNING version_id INTO id;

    INSERT INTO sas.workflow_edge (version_id, from_no, to_no)
    SELECT id, f.n, t.n
    FROM sas._edges(definition) e
    JOIN unnest(names) WITH ORDINALITY AS f (name, n) ON f.name = e.from_name
    JOIN unnest(names) WITH ORDINALITY AS t (name, n) ON t.name = e.to_name;

    INSERT INTO sas.workflow_step (version_id, step_no, undo, name, kind, lane, function, request, input, output, expect, complete_in, retry, recovery,
                                   on_transient, on_permanent, pivot, priority, needs, reads, reads_own_output)
    SELECT id, n.n, b.undo, n.name, CASE WHEN b.body ? 'call' THEN 'call' ELSE 'function' END, coalesce(a.agent_id, 0),
           b.body ->> 'function',
           CASE WHEN b.body ? 'call'
                THEN jsonb_build_object('method', CASE WHEN b.body -> 'call' ?| '{body,form,text}' THEN 'POST' ELSE 'GET' END) || (b.body -> 'call') END,
           b.body -> 'input', b.body -> 'output',
           coalesce(b.body -> 'expect', CASE WHEN b.undo AND b.body ? 'call' THEN '["2xx", "404", "410"]'::jsonb END),
           sas._span(b.body -> 'complete_in'), sas._retry_policy(b.body -> 'retry'), recovery || coalesce(b.body -> 'recovery', '{}'),
           coalesce(CASE jsonb_typeof(b.body -> 'on_failure') WHEN 'object' THEN b.body #>> '{on_failure,transient}' WHEN 'string' THEN b.body ->> 'on_failure' END, policy ->> 'transient'),
           coalesce(CASE jsonb_typeof(b.body -> 'on_failure') WHEN 'object' THEN b.body #>> '{on_failure,permanent}' WHEN 'string' THEN b.body ->> 'on_failure' END, policy ->> 'permanent'),
           coalesce((b.body ->> 'pivot')::boolean, false), coalesce((b.body ->> 'priority')::int, 0),
           (SELECT count(*) FROM sas.workflow_edge e WHERE e.version_id = id AND e.to_no = n.n),
           ARRAY(SELECT DISTINCT m.n::int FROM sas._body_references(b.body, '') r
                 JOIN unnest(names) WITH ORDINALITY AS m (name, n) ON r.root = 'steps' AND m.name = r.member),
           EXISTS (SELECT FROM sas._body_references(b.body, '') r WHERE r.root = 'steps' AND r.member = n.name AND r.third IS DISTINCT FROM 'key')
    FROM unnest(names) WITH ORDINALITY AS n (name, n)
    CROSS JOIN LATERAL (SELECT definition -> 'steps' -> n.name AS step OFFSET 0) d
    CROSS JOIN LATERAL (
        SELECT false AS undo, d.step AS body
        UNION ALL
        SELECT true, CASE WHEN d.step #> '{undo}' ? 'call' THEN jsonb_build_object('agent', d.step -> 'agent') ELSE '{}' END || (d.step -> 'undo')
        WHERE d.step ? 'undo') b
    LEFT JOIN sas.agent a ON a.name = b.body ->> 'agent' AND a.dropped_at IS NULL;

    IF definition ? 'finalize' THEN
        INSERT INTO sas.workflow_step (version_id, step_no, undo, name, kind, lane, function, recovery, on_transient, on_permanent, pivot, priority, needs, reads, reads_own_output)
        VALUES (id, cardinality(names) + 1, false, 'finalize', 'function', 0, definition ->> 'finalize', recovery, 'pause', 'pause', false, 0, 0, '{}', false);
    END IF;
END $$;
