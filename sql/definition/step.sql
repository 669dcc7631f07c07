-- SPDX-License-Identifier: PostgreSQL
--
-- Step: what the body of a step may contain, apart from its relations to other steps.

-- _sas.check_step_agent(agent, kind, path, own): a call needs an http agent, a task an external one. own: an
-- undo or a fallback names it itself.
CREATE FUNCTION _sas.check_step_agent(agent text, kind text, path text, own boolean)
RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    is_kind text := (SELECT a.kind FROM _sas.agent a WHERE a.name = agent AND a.dropped_at IS NULL);
    wanted text := CASE $2 WHEN 'task' THEN 'external' ELSE 'http' END;
BEGIN
    IF agent IS NULL THEN
        RETURN NEXT ROW(path, format('a %s needs an agent', $2), 'Name one under "agent".',
                        '22023')::_sas.problem;
    ELSIF agent ~ E'\\{\\{' AND own AND path !~ '^/steps/[^/]*$' THEN
        -- only that of a step is looked up at submit
        RETURN NEXT ROW(path || '/agent', 'the agent must be a name, not a reference',
                        'Leave it out: then it is the agent of the step, which can be a reference.',
                        '22023')::_sas.problem;
    ELSIF agent ~ E'\\{\\{' THEN
        RETURN;  -- known only at submit: see _sas.check_agents
    ELSIF is_kind IS NULL THEN
        RETURN NEXT ROW(path || '/agent', format('agent "%s" does not exist', agent),
                        _sas.meant(agent, ARRAY(SELECT a.name FROM _sas.agent a
                                                WHERE a.dropped_at IS NULL AND a.kind = wanted))
                        || 'Create it with sas.create_agent.', '42704')::_sas.problem;
    ELSIF is_kind <> wanted THEN
        RETURN NEXT ROW(path || '/agent', format('agent "%s" is of kind "%s"', agent, is_kind),
                        format('A %s needs an agent of kind "%s".', $2, wanted), '42809')::_sas.problem;
    END IF;
END $$;

-- _sas.check_body(...): what a step and its undo have in common.
CREATE FUNCTION _sas.check_body(body jsonb, path text, caller oid, agent text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds text[] := ARRAY(SELECT k FROM unnest('{call,function,task,wait,workflow,include}'::text[]) k
                          WHERE body ? k);
BEGIN
    IF cardinality(kinds) <> 1 THEN
        RETURN NEXT ROW(path, CASE cardinality(kinds)
                        WHEN 0 THEN 'a step needs one of call, function, task, wait, workflow and include'
                        ELSE 'a step can have only one of call, function, task, wait, workflow and '
                             'include' END,
                        'Write exactly one of them.', '22023')::_sas.problem;
    ELSIF kinds[1] IN ('call', 'task') AND coalesce(jsonb_typeof(body -> 'agent') = 'string', true) THEN
        RETURN QUERY SELECT * FROM _sas.check_step_agent(agent, kinds[1], path, body ? 'agent');
    END IF;
    IF cardinality(kinds) <> 1 THEN
        NULL;
    ELSIF kinds[1] = 'task' THEN
        RETURN QUERY SELECT * FROM _sas.check_task(body -> 'task', path || '/task')
                     UNION ALL SELECT * FROM _sas.check_task_retry(body -> 'retry', path || '/retry');
    ELSIF kinds[1] = 'call' THEN
        RETURN QUERY SELECT * FROM _sas.check_call(body -> 'call', path || '/call');
        IF body ? 'input' THEN
            RETURN NEXT ROW(path || '/input', 'a call has no input',
                            'Write what is sent under call: body, form, text or query.',
                            '22023')::_sas.problem;
        END IF;
    ELSE
        IF kinds[1] = 'function' THEN
            RETURN QUERY SELECT * FROM _sas.check_function(body -> 'function', path || '/function', caller,
                                                             path ~ '^/hooks/');
        ELSIF kinds[1] = 'wait' THEN
            RETURN QUERY SELECT * FROM _sas.check_wait(body -> 'wait', path || '/wait');
            IF body ? 'input' THEN
                RETURN NEXT ROW(path || '/input', 'a wait has no input', 'Leave it out.',
                                '22023')::_sas.problem;
            END IF;
        ELSE
            RETURN QUERY SELECT * FROM _sas.check_child(body, kinds[1], path, caller);
        END IF;
        IF body ? 'agent' THEN
            RETURN NEXT ROW(path || '/agent',
                            format('%s %s has no agent', CASE kinds[1] WHEN 'include' THEN 'an' ELSE 'a' END,
                                   kinds[1]), 'Leave it out.', '22023')::_sas.problem;
        END IF;
        -- no worker claims these kinds, and their end is final
        RETURN QUERY
        SELECT path || '/' || k,
               format('%s %s has no %s', CASE kinds[1] WHEN 'include' THEN 'an' ELSE 'a' END, kinds[1], k),
               CASE kinds[1]
               WHEN 'wait' THEN 'Leave it out. A wait for a signal can have a timeout.'
               ELSE 'Write it at the steps of that workflow.' END, '22023'
        FROM unnest('{retry,recovery,complete_in}'::text[]) k
        WHERE kinds[1] IN ('wait', 'workflow', 'include') AND body ? k;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_expect(body -> 'expect', path || '/expect', CASE
                                    WHEN cardinality(kinds) = 1 THEN kinds[1] ELSE 'call' END)
    UNION ALL SELECT * FROM _sas.check_pauses(body -> 'retry', path || '/retry', 'max_attempts')
    UNION ALL SELECT * FROM _sas.check_pauses(body -> 'recovery', path || '/recovery', 'max_failures')
    UNION ALL SELECT * FROM _sas.check_span(body -> 'complete_in', path || '/complete_in')
    UNION ALL SELECT * FROM _sas.check_pauses_fit(body, path || '/retry/pauses') WHERE body ? 'call';
END $$;

-- _sas.check_pauses_fit(body, path): a call keeps its window between its attempts, so its pauses must fit
-- into the window. Functions and tasks are claimed again after each pause.
CREATE FUNCTION _sas.check_pauses_fit(body jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, 'the pauses take as long as the window of the call, or longer',
        'Raise complete_in, or write long pauses under recovery: they are between windows.', '22023'
    FROM (SELECT coalesce(_sas.span(body -> 'complete_in'), _sas.complete_in()) AS window_of,
                 sum(_sas.span(e)) AS rests
          FROM jsonb_array_elements(CASE jsonb_typeof(body #> '{retry,pauses}')
                                    WHEN 'array' THEN body #> '{retry,pauses}' ELSE '[]' END) e) s
    WHERE s.rests >= s.window_of
$$;

-- _sas.check_include(body, path): a step that includes another workflow. _sas.scopes checks that workflow.
CREATE FUNCTION _sas.check_include(body jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF jsonb_typeof(body -> 'include') <> 'string' THEN
        RETURN NEXT ROW(path || '/include', 'expected the name of a workflow', 'Write it as a string.',
                        '22023')::_sas.problem;
    END IF;
    RETURN QUERY
    SELECT path || '/' || k, format('an include has no %s', k),
        'Write it at the steps of the included workflow. An include can have input, after, when and else.',
        '22023'
    FROM unnest(
                '{agent,agents,undo,expect,output,retry,recovery,on_failure,complete_in,pivot,priority,'
                'queue,each,repeat,finalize,weight,poll,fallback}'::text[]) k WHERE body ? k;
END $$;

-- _sas.check_step(...): errors of a step, apart from its relations to other steps.
CREATE FUNCTION _sas.check_step(name text, body jsonb, path text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_name(name, path);
    IF name = 'finalize' THEN
        RETURN NEXT ROW(path, 'the name "finalize" is reserved',
                        'The last step, which sas adds, has this name.', '42602')::_sas.problem;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(body, path,
            '{call,function,task,wait,workflow,include,agent,input,after,when,else,each,concurrency,'
            'max_failed,repeat,poll,fallback,undo,expect,output,retry,recovery,on_failure,complete_in,pivot,'
            'priority,queue,finalize,weight,agents}');
    IF jsonb_typeof(body) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    IF body ? 'agent' AND jsonb_typeof(body -> 'agent') <> 'string' THEN
        RETURN NEXT ROW(path || '/agent', 'the agent must be a name',
                        'Write the name of an agent as a string.', '22023')::_sas.problem;
    END IF;
    IF body ? 'include' AND NOT body ?| '{call,function,task,wait,workflow}' THEN
        RETURN QUERY SELECT * FROM _sas.check_include(body, path);
    ELSE
        RETURN QUERY SELECT * FROM _sas.check_body(body, path, caller, body ->> 'agent');
    END IF;
    RETURN QUERY
    SELECT path || '/after', 'expected an array of step names',
        'Write it as ["name", "name"].', '22023'
    WHERE jsonb_typeof(body -> 'after') <> 'array'
    UNION ALL
    SELECT format('%s/after/%s', path, e.n - 1),
        'expected the name of a step, not ' || left(e.value::text, 80),
        'Write it as ["name", "name"].', '22023'
    FROM jsonb_array_elements(CASE jsonb_typeof(body -> 'after') WHEN 'array' THEN body -> 'after' END)
        WITH ORDINALITY AS e (value, n)
    WHERE jsonb_typeof(e.value) <> 'string'
    UNION ALL
    SELECT * FROM _sas.check_on_failure(body -> 'on_failure', path || '/on_failure', body ? 'each')
    UNION ALL SELECT * FROM _sas.check_shape(body, path)
    UNION ALL SELECT * FROM _sas.check_poll(name, body, path)
    UNION ALL SELECT * FROM _sas.check_fallback(name, CASE WHEN body ? 'include' THEN '{}'
                                                      ELSE body END, path, caller)
    UNION ALL SELECT * FROM _sas.check_boolean(body -> 'pivot', path || '/pivot')
    UNION ALL SELECT * FROM _sas.check_number(body -> 'priority', path || '/priority', -1000, 1000)
    UNION ALL SELECT * FROM _sas.check_queue(body -> 'queue', path || '/queue')
    UNION ALL SELECT * FROM _sas.check_weight(body -> 'weight', path || '/weight')
    UNION ALL SELECT * FROM _sas.check_agents(body, path);
    IF body ? 'finalize' THEN
        RETURN QUERY SELECT * FROM _sas.check_function(body -> 'finalize', path || '/finalize', caller, true);
    END IF;
    IF NOT body ? 'include' THEN
        RETURN QUERY SELECT * FROM _sas.check_undo(body -> 'undo', body ->> 'agent', path || '/undo', caller);
    END IF;
END $$;

-- _sas.check_undo(undo, agent, path, caller): errors of the undo of a step, or of a fallback, with that
-- agent.
CREATE FUNCTION _sas.check_undo(undo jsonb, agent text, path text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF undo IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(undo, path,
            '{call,function,task,wait,workflow,include,agent,input,poll,expect,retry,recovery,complete_in}');
    IF jsonb_typeof(undo -> 'agent') <> 'string' THEN
        RETURN NEXT ROW(path || '/agent', 'the agent must be a name',
                        'Write the name of an agent as a string.', '22023')::_sas.problem;
    ELSIF jsonb_typeof(undo) = 'object' THEN
        RETURN QUERY SELECT * FROM _sas.check_body(undo, path, caller, coalesce(undo ->> 'agent', CASE
                                                   WHEN undo ?| '{call,task}' THEN agent END))
                     UNION ALL SELECT * FROM _sas.check_poll(NULL, undo, path);
    END IF;
END $$;
