-- SPDX-License-Identifier: PostgreSQL
--
-- Check: everything that is wrong with a definition.

-- sas._check_definition(definition, name, caller): all problems, each once, in reading order of importance.
-- name: the workflow that it is to be, so that it cannot include itself; null when that is not known.
CREATE FUNCTION sas._check_definition(definition jsonb, name text, caller oid) RETURNS SETOF sas._problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    steps jsonb;
    c record;
BEGIN
    IF octet_length(definition::text) > sas._max_definition_size() THEN
        RETURN NEXT ROW('', format('the definition has more than %s bytes', sas._max_definition_size()), 'See the setting sas.max_definition_size.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM sas._check_keys(definition, '', '{steps,plan,flow,output,on_failure,recovery,deadline,finalize,priority,concurrency,singleton,queue,hooks,auto_rescue}');
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM sas._check_on_failure(definition -> 'on_failure', '/on_failure')
    UNION ALL SELECT * FROM sas._check_pauses(definition -> 'recovery', '/recovery', 'max_failures')
    UNION ALL SELECT * FROM sas._check_span(definition -> 'deadline', '/deadline')
    UNION ALL SELECT * FROM sas._check_number(definition -> 'priority', '/priority', -1000, 1000)
    UNION ALL SELECT * FROM sas._check_boolean(definition -> 'auto_rescue', '/auto_rescue')
    UNION ALL SELECT * FROM sas._check_starting(definition)
    UNION ALL SELECT * FROM sas._check_hooks(definition -> 'hooks', caller);
    IF definition ? 'finalize' THEN
        RETURN QUERY SELECT * FROM sas._check_function(definition -> 'finalize', '/finalize', caller);
    END IF;
    RETURN QUERY SELECT * FROM sas._check_plan(definition, caller);
    -- with a plan function they may all come from there
    definition := CASE WHEN definition ? 'plan' THEN '{"steps": {}}' ELSE '{}' END::jsonb || definition;
    steps := definition -> 'steps';
    IF jsonb_typeof(steps) IS DISTINCT FROM 'object' THEN
        RETURN NEXT ROW('/steps', 'the steps must be an object: a body by name', 'It may be empty.', '22023')::sas._problem;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(steps)) > sas._max_steps() THEN
        RETURN NEXT ROW('/steps', format('there are more than %s steps', sas._max_steps()), 'See the setting sas.max_steps.', '54000')::sas._problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT p.* FROM jsonb_each(steps) s CROSS JOIN LATERAL sas._check_step(s.key, s.value, sas._pointer('/steps', s.key), caller) p;
    RETURN QUERY SELECT * FROM sas._check_flow(definition -> 'flow', steps);

    SELECT * INTO c FROM sas._compile(definition, name, caller);
    RETURN QUERY SELECT * FROM unnest(c.problems);
    RETURN QUERY SELECT * FROM sas._check_included(c.scopes, caller);
    RETURN QUERY SELECT * FROM sas._check_references(c.nodes, c.refs);
    RETURN QUERY SELECT * FROM sas._check_order(c.nodes, c.refs, c.from_nos, c.to_nos);
END $$;

-- sas._check_included(scopes, caller): what has become wrong with the steps of included workflows since they
-- were created, or is wrong for this caller.
CREATE FUNCTION sas._check_included(scopes sas._scope[], caller oid) RETURNS SETOF sas._problem
LANGUAGE sql STABLE AS $$
    SELECT s.path || '/include', format('in workflow "%s", at %s: %s', s.workflow, p.path, p.problem), p.hint, p.code
    FROM unnest(scopes) s
    CROSS JOIN LATERAL jsonb_each(s.definition -> 'steps') e
    CROSS JOIN LATERAL sas._check_step(e.key, e.value, sas._pointer('/steps', e.key), caller) p
    WHERE s.no > 1
$$;
