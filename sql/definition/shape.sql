-- SPDX-License-Identifier: PostgreSQL
--
-- Shape: what makes a step more than one call: conditions, maps, iterations, waits, polls and child runs.

-- _sas.poll_shape(poll): a poll as the engine reads it, with all defaults filled in.
CREATE FUNCTION _sas.poll_shape(poll jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('every', '1 s', 'max_every',
                              10 * coalesce(_sas.span(poll -> 'every'), interval '1 s')) || poll
           || jsonb_build_object('call',
                                 jsonb_build_object('method', CASE
                                                    WHEN poll -> 'call' ?| '{body,form,text}' THEN 'POST'
                                                    ELSE 'GET' END) || (poll -> 'call'))
$$;

-- _sas.check_predicate(value, path, name): errors of a predicate.
CREATE FUNCTION _sas.check_predicate(value jsonb, path text, name text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF jsonb_typeof(value) = 'string' THEN
        RETURN QUERY SELECT * FROM _sas.check_path(value #>> '{}', path, name, '$.input.amount > 100');
    ELSIF value IS NOT NULL THEN
        RETURN NEXT ROW(path, format('%s is not a predicate: it is %s, not a string', name,
                                     jsonb_typeof(value)),
                        'Write an SQL/JSON path predicate, such as "$.input.amount > 100".',
                        '42601')::_sas.problem;
    END IF;
END $$;

-- _sas.check_awaited(value, path): the value must be the name of a signal, or an array of at most 100
-- different names.
CREATE FUNCTION _sas.check_awaited(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH said (value, path) AS (
        SELECT $1, $2 WHERE jsonb_typeof($1) <> 'array'
        UNION ALL
        SELECT e.value, $2 || '/' || e.n - 1
        FROM jsonb_array_elements(CASE jsonb_typeof($1) WHEN 'array' THEN $1 END)
            WITH ORDINALITY AS e (value, n))
    SELECT p.* FROM said s CROSS JOIN LATERAL _sas.check_name(s.value #>> '{}', s.path) p
    WHERE jsonb_typeof(s.value) = 'string'
    UNION ALL
    SELECT s.path, 'expected the name of a signal', 'Write it as a string.', '22023'
    FROM said s WHERE jsonb_typeof(s.value) <> 'string'
    UNION ALL
    SELECT path, 'a wait needs from 1 to 100 names of signals, each once',
        'Write one name, or an array such as ["approved", "rejected"].', '22023'
    WHERE CASE jsonb_typeof(value)
          WHEN 'array' THEN (SELECT count(*) NOT BETWEEN 1 AND 100 OR count(DISTINCT e) < count(*)
                             FROM jsonb_array_elements(value) e) END
$$;

-- _sas.check_wait(value, path): checks a wait: {signal (a name, or several) | until | for, timeout,
-- on_timeout}.
CREATE FUNCTION _sas.check_wait(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds int;
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(value, path, '{signal,until,for,timeout,on_timeout}');
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    kinds := (value ? 'signal')::int + (value ? 'until')::int + (value ? 'for')::int;
    IF kinds <> 1 THEN
        RETURN NEXT ROW(path, 'a wait needs exactly one of signal, until and for',
                        'Write {"signal": "name"}, {"until": "instant"} or {"for": "10 s"}.',
                        '22023')::_sas.problem;
        RETURN;
    END IF;
    IF value ? 'signal' THEN
        RETURN QUERY SELECT * FROM _sas.check_awaited(value -> 'signal', path || '/signal')
                     UNION ALL SELECT * FROM _sas.check_choice(value -> 'on_timeout', path || '/on_timeout',
                                                               '{fail,go_on}')
                     UNION ALL SELECT path || '/on_timeout', '"on_timeout" needs "timeout"',
            'Write a span of time, or leave "on_timeout" out.', '22023'
                               WHERE value ? 'on_timeout' AND NOT value ? 'timeout';
    ELSIF value ?| '{timeout,on_timeout}' THEN
        RETURN NEXT ROW(path || CASE WHEN value ? 'timeout' THEN '/timeout' ELSE '/on_timeout' END,
                        'only a wait for a signal has a timeout',
                        'Leave it out. "until" and "for" need no timeout.', '22023')::_sas.problem;
    END IF;
    IF value ? 'until'
       AND (jsonb_typeof(value -> 'until') <> 'string'
            OR value ->> 'until' !~ E'\\{\\{'
                AND NOT coalesce(isfinite(_sas.moment(value -> 'until')), false)) THEN
        RETURN NEXT ROW(path || '/until', format('%s is not an instant', left((value -> 'until')::text, 80)),
                        'Write a time stamp, such as "2030-01-01 00:00+00", or a reference to one.',
                        '22007')::_sas.problem;
    END IF;
    IF value ? 'for' AND (jsonb_typeof(value -> 'for') <> 'string' OR value ->> 'for' !~ E'\\{\\{') THEN
        RETURN QUERY SELECT * FROM _sas.check_span(value -> 'for', path || '/for', true);
    END IF;
    IF value ? 'timeout'
       AND (jsonb_typeof(value -> 'timeout') <> 'string' OR value ->> 'timeout' !~ E'\\{\\{') THEN
        RETURN QUERY SELECT * FROM _sas.check_span(value -> 'timeout', path || '/timeout');
    END IF;
END $$;

-- _sas.check_child(body, kind, path, caller): the value of the key kind must name a workflow that the caller
-- may submit, and the input must be an object, or a template of one. A workflow that does not exist yet is
-- refused as well: create the child first.
CREATE FUNCTION _sas.check_child(body jsonb, kind text, path text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT path || '/input', 'the input of a run must be an object, not ' || i.type,
        'Write an object, or one reference to one, such as "{{input.order}}".', '22023'
    FROM jsonb_typeof(body -> 'input') AS i (type)
    WHERE i.type <> 'object' AND NOT (i.type = 'string' AND body ->> 'input' LIKE '%{{%');
    path := path || '/' || kind;
    IF jsonb_typeof(body -> kind) <> 'string' THEN
        RETURN NEXT ROW(path, 'expected the name of a workflow', 'Write it as a string.',
                        '22023')::_sas.problem;
        RETURN;
    END IF;
    PERFORM _sas.submittable(caller, body ->> kind);
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    -- without a caller no right is checked
    IF caller IS NOT NULL OR SQLSTATE <> '42501' THEN
        RETURN NEXT ROW(path, SQLERRM, 'Create the child workflow first; its owner can grant it with '
                                       'sas.grant_workflow.', SQLSTATE)::_sas.problem;
    END IF;
END $$;

-- _sas.check_weight(value, path): checks the weight of a step in the progress of its run.
CREATE FUNCTION _sas.check_weight(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, format('%s is not a weight', left(value::text, 80)),
        'Write 0, or a number from 0.000001 to 1000000, without quotes.', '22023'
    WHERE value IS NOT NULL AND NOT CASE jsonb_typeof(value) WHEN 'number' THEN value::numeric = 0
        OR value::numeric BETWEEN 0.000001 AND 1000000 ELSE false END
$$;

-- _sas.check_poll(name, body, path): checks a poll beside a call: {call, every, max_every, until, timeout,
-- progress}. name: of the step; null: it is in an undo, which reports no progress.
CREATE FUNCTION _sas.check_poll(name text, body jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    poll jsonb := body -> 'poll';
BEGIN
    IF NOT body ? 'poll' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT path || '/poll', 'only a step that calls can poll',
        'Write "call" beside it. The call starts what the poll asks about.', '22023' WHERE NOT body ? 'call'
                 UNION ALL SELECT * FROM _sas.check_keys(
                     poll, path || '/poll', '{call,every,max_every,until,timeout}'
                     || CASE WHEN name IS NULL THEN '{}'::text[] ELSE '{progress}' END);
    IF jsonb_typeof(poll) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    IF poll ? 'call' THEN
        RETURN QUERY SELECT * FROM _sas.check_call(poll -> 'call', path || '/poll/call');
    ELSE
        RETURN NEXT ROW(path || '/poll', 'a poll needs "call"',
                        'Write the request that asks, such as {"path": "/jobs/{{started.body.id}}"}.',
                        '22023')::_sas.problem;
    END IF;
    RETURN QUERY
    SELECT path || '/poll', 'a poll needs "until"',
           E'Write the predicate that ends the poll, such as "$.output.body.state == \\"done\\"".', '22023'
    WHERE NOT poll ? 'until'
    UNION ALL SELECT * FROM _sas.check_predicate(poll -> 'until', path || '/poll/until', 'until')
    UNION ALL SELECT * FROM _sas.check_span(poll -> 'every', path || '/poll/every')
    UNION ALL SELECT * FROM _sas.check_span(poll -> 'max_every', path || '/poll/max_every')
    UNION ALL SELECT * FROM _sas.check_span(poll -> 'timeout', path || '/poll/timeout')
    UNION ALL SELECT path || '/poll/max_every', '"max_every" is shorter than "every"',
        'The pause grows from "every" (1 s) to "max_every" (ten times that).', '22023'
              WHERE _sas.span(poll -> 'max_every') < coalesce(_sas.span(poll -> 'every'), interval '1 s')
    UNION ALL SELECT path || '/poll/progress', '"progress" must be one reference to a number',
        'Write it as "{{output.body.progress}}": from 0 to 1.', '22023'
              WHERE poll ? 'progress'
                AND (jsonb_typeof(poll -> 'progress') <> 'string'
                     OR poll ->> 'progress' !~ E'^\\{\\{.*\\}\\}$')
    -- the undo may run while the poll has begun but not finished
    UNION ALL SELECT path || '/undo/' || u.key || r.pointer,
        format('"%s" may be missing when the poll is undone', r.path),
        'Refer to {{steps.NAME.started}}, which exists once the call has succeeded, or append "?".',
        '42P10'
              FROM jsonb_each(CASE jsonb_typeof(body -> 'undo') WHEN 'object' THEN body -> 'undo'
                              ELSE '{}' END) u
              CROSS JOIN LATERAL _sas.references(u.value) r
              WHERE u.key IN ('call', 'input') AND r.root = 'steps' AND r.member = name
                  AND r.third = 'output' AND NOT r.optional;
END $$;

-- _sas.check_fallback(name, body, path, caller): checks a fallback: a step body, and the conditions under
-- which it is tried.
CREATE FUNCTION _sas.check_fallback(name text, body jsonb, path text, caller oid)
RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    fallback jsonb := body -> 'fallback';
    place text := path || '/fallback';
    agent text;
BEGIN
    IF NOT body ? 'fallback' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(fallback, place,
            '{call,function,task,wait,workflow,include,agent,input,undo,poll,expect,output,retry,'
            'recovery,complete_in,on}');
    IF jsonb_typeof(fallback) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    IF fallback ? 'agent' AND jsonb_typeof(fallback -> 'agent') <> 'string' THEN
        RETURN NEXT ROW(place || '/agent', 'the agent must be a name',
                        'Write the name of an agent as a string.', '22023')::_sas.problem;
        RETURN;
    END IF;
    agent := coalesce(fallback ->> 'agent', CASE WHEN fallback ?| '{call,task}' THEN body ->> 'agent' END);
    RETURN QUERY SELECT * FROM _sas.check_body(fallback, place, caller, agent);
    RETURN QUERY SELECT * FROM _sas.check_undo(fallback -> 'undo', agent, place || '/undo', caller)
                 UNION ALL SELECT * FROM _sas.check_poll(name, fallback, place);
    RETURN QUERY
    SELECT w.place, coalesce(w.item || ' is neither "failed" nor "breaker_open"',
                             'expected an array of failed and breaker_open'),
        'Write ["failed"], which is the default, or ["breaker_open", "failed"].', '22023'
    FROM _sas.wrong_items(fallback -> 'on', '^(failed|breaker_open)$', place || '/on') w
    UNION ALL
    SELECT w.place, 'only the agent of a call has a breaker', 'Leave breaker_open out.', '22023'
    FROM _sas.wrong_items(fallback -> 'on', '^(?!breaker_open$)', place || '/on') w
    WHERE w.item = '"breaker_open"' AND NOT body ? 'call';
END $$;

-- _sas.check_map_places(value, path): checks "concurrency" of a map: a number, or {limit, key, per_key}.
-- The key of each element is built when the map begins, from nothing but the element.
CREATE FUNCTION _sas.check_map_places(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN QUERY SELECT * FROM _sas.check_number(value, path, 1, 1000000);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_keys(value, path, '{limit,key,per_key}')
    UNION ALL SELECT * FROM _sas.check_number(value -> 'limit', path || '/limit', 1, 1000000)
    UNION ALL SELECT * FROM _sas.check_number(value -> 'per_key', path || '/per_key', 1, 1000000)
    UNION ALL SELECT path || '/per_key', '"per_key" needs "key"',
        'Write what elements share, such as "{{item.customer}}".', '22023'
              WHERE value ? 'per_key' AND NOT value ? 'key'
    UNION ALL SELECT path || '/key', 'the key must be a string with a reference to the element',
        'Write it as "{{item.customer}}".', '22023'
              WHERE value ? 'key'
                AND NOT CASE jsonb_typeof(value -> 'key') WHEN 'string' THEN value ->> 'key' ~ E'\\{\\{'
                        ELSE false END
    UNION ALL SELECT path || '/key', coalesce(r.problem, format('"%s" cannot be referenced here', r.path)),
        coalesce(r.hint, 'The key of an element refers to item or index only.'),
        CASE WHEN r.problem IS NULL THEN '42P10' WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
              FROM _sas.references(value -> 'key') r
              WHERE r.problem IS NOT NULL OR r.root IS NULL OR r.root NOT IN ('item', 'index');
END $$;

-- _sas.check_shape(body, path): checks when, else, each, concurrency, max_failed and repeat.
CREATE FUNCTION _sas.check_shape(body jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM _sas.check_predicate(body -> 'when', path || '/when', 'when')
    UNION ALL SELECT * FROM _sas.check_choice(body -> 'else', path || '/else', '{skip,skip_cascade}')
    UNION ALL SELECT path || '/else', '"else" needs "when"',
        'Write a condition, or leave "else" out.', '22023' WHERE body ? 'else' AND NOT body ? 'when'
    UNION ALL SELECT path || '/each', '"each" must be one reference to an array',
        'Write it as "{{input.items}}".', '22023'
              WHERE body ? 'each'
                AND (jsonb_typeof(body -> 'each') <> 'string' OR body ->> 'each' !~ E'^\\{\\{.*\\}\\}$')
    UNION ALL SELECT * FROM _sas.check_map_places(body -> 'concurrency', path || '/concurrency')
    UNION ALL SELECT * FROM _sas.check_number(body -> 'max_failed', path || '/max_failed', 0, 1000000000)
    UNION ALL SELECT path || '/' || k, format('"%s" needs "each"', k), 'It belongs to a map.',
        '22023'
              FROM unnest('{concurrency,max_failed}'::text[]) k WHERE body ? k AND NOT body ? 'each'
    UNION ALL SELECT path || '/repeat', 'a step cannot have both each and repeat',
        'Put one of them into a workflow of its own and call that.', '22023' WHERE body ?& '{each,repeat}';
    IF body ? 'repeat' THEN
        RETURN QUERY SELECT * FROM _sas.check_keys(body -> 'repeat', path || '/repeat', '{while,max,every}');
        IF jsonb_typeof(body -> 'repeat') = 'object' THEN
            RETURN QUERY
            SELECT * FROM _sas.check_predicate(body #> '{repeat,while}', path || '/repeat/while', 'while')
            UNION ALL SELECT path || '/repeat', 'repeat needs "while"',
                'Write the predicate for another iteration, such as "$.last.more == true".',
                '22023' WHERE NOT body -> 'repeat' ? 'while'
            UNION ALL SELECT * FROM _sas.check_number(body #> '{repeat,max}', path || '/repeat/max', 1,
                                                      1000000)
            UNION ALL SELECT * FROM _sas.check_span(body #> '{repeat,every}', path || '/repeat/every');
        END IF;
    END IF;
END $$;

-- _sas.input_reads(body): the members of the input that the templates of a step use after it has begun;
-- null: the whole input. A map with many elements must not decode a large input for each of them.
CREATE FUNCTION _sas.input_reads(body jsonb) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN body ? 'workflow' AND NOT body ? 'input'
                     OR count(*) FILTER (WHERE r.member IS NULL) > 0
                THEN NULL
                ELSE coalesce(array_agg(DISTINCT r.member), '{}') END
    FROM _sas.body_references(body - '{each,when}'::text[], '') r WHERE r.root = 'input'
$$;

-- _sas.step_shape(body): the keys that the scheduler needs of a step; null: none.
CREATE FUNCTION _sas.step_shape(body jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT nullif(coalesce(jsonb_object_agg(e.key, CASE e.key WHEN 'poll' THEN _sas.poll_shape(e.value)
                                            ELSE e.value END), '{}'), '{}')
    FROM jsonb_each(body) e WHERE e.key IN ('when', 'else', 'each', 'concurrency', 'max_failed', 'repeat',
                                            'wait', 'workflow', 'pinned', 'poll', 'reverses')
$$;
