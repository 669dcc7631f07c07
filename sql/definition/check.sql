-- SPDX-License-Identifier: PostgreSQL
--
-- Check: all errors of a definition.

-- _sas.check_definition(definition, name, caller, included, rights): all errors, each once, the most
-- important first.
--   name      the name that the workflow will have, so that it cannot include itself; null: unknown
--   included  for the definition of a run, see _sas.scopes
--   rights    also check what the caller may not call, ask or start; else only what it may not include
CREATE FUNCTION _sas.check_definition(definition jsonb, name text, caller oid, included jsonb DEFAULT '{}',
                                      rights boolean DEFAULT true)
RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- of nobody no right is asked
    asked oid := CASE WHEN rights THEN caller END;
    steps jsonb;
    c record;
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_definition_size(definition);
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(definition, '',
            '{steps,plan,flow,output,on_failure,recovery,deadline,finalize,priority,concurrency,'
            'queue,hooks,auto_rescue,mask}');
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_on_failure(definition -> 'on_failure', '/on_failure')
    UNION ALL SELECT * FROM _sas.check_pauses(definition -> 'recovery', '/recovery', 'max_failures')
    UNION ALL SELECT * FROM _sas.check_span(definition -> 'deadline', '/deadline')
    UNION ALL SELECT * FROM _sas.check_number(definition -> 'priority', '/priority', -1000, 1000)
    UNION ALL SELECT * FROM _sas.check_boolean(definition -> 'auto_rescue', '/auto_rescue')
    UNION ALL SELECT * FROM _sas.check_starting(definition)
    UNION ALL SELECT * FROM _sas.check_hooks(definition -> 'hooks', asked);
    IF definition ? 'finalize' THEN
        RETURN QUERY SELECT * FROM _sas.check_function(definition -> 'finalize', '/finalize', asked, true);
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_plan(definition, asked);
    -- with a plan function they may all come from there
    definition := CASE WHEN definition ? 'plan' THEN '{"steps": {}}' ELSE '{}' END::jsonb || definition;
    steps := definition -> 'steps';
    IF jsonb_typeof(steps) IS DISTINCT FROM 'object' THEN
        RETURN NEXT ROW('/steps', 'steps must be an object with a body for each name', 'It may be empty.',
                        '22023')::_sas.problem;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM jsonb_object_keys(steps)) > _sas.max_steps() THEN
        RETURN NEXT ROW('/steps', format('there are more than %s steps', _sas.max_steps()),
                        'See the setting sas.max_steps.', '54000')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT p.* FROM jsonb_each(steps) s
        CROSS JOIN LATERAL _sas.check_step(s.key, s.value, _sas.pointer('/steps', s.key), asked) p;
    RETURN QUERY SELECT * FROM _sas.check_flow(definition -> 'flow', steps);

    RETURN QUERY SELECT * FROM _sas.check_mask(definition -> 'mask', '/mask', steps, definition ? 'plan');
    SELECT * INTO c FROM _sas.compile(definition, name, caller, included);
    RETURN QUERY SELECT * FROM unnest(c.problems);
    RETURN QUERY SELECT * FROM _sas.check_included(c.scopes, asked);
    RETURN QUERY SELECT * FROM _sas.check_included_runs(definition, name, caller);
    RETURN QUERY SELECT * FROM _sas.check_planned(c.scopes, c.nodes, c.refs);
    RETURN QUERY SELECT * FROM _sas.check_references(c.nodes, c.refs);
    RETURN QUERY SELECT * FROM _sas.check_predicate_roots(c.nodes);
    RETURN QUERY SELECT * FROM _sas.check_members(c.refs);
    RETURN QUERY SELECT * FROM _sas.check_call_outputs(c.nodes, c.refs);
    RETURN QUERY SELECT * FROM _sas.check_order(c.nodes, c.refs, c.from_nos, c.to_nos);
    IF rights AND NOT _sas.has_level(caller, 'admin') THEN
        RETURN QUERY
        SELECT * FROM _sas.check_uses(caller, ARRAY(SELECT u FROM _sas.agent_uses(definition, c.nodes) u));
    END IF;
END $$;

-- _sas.check_included(scopes, caller): errors that steps of included workflows have got since they were
-- created, or have for this caller; caller null: for any role.
CREATE FUNCTION _sas.check_included(scopes _sas.scope[], caller oid) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT s.path || '/include', format('in workflow "%s", at %s: %s', s.workflow, p.path, p.problem),
        p.hint, p.code
    FROM unnest(scopes) s
    CROSS JOIN LATERAL jsonb_each(s.definition -> 'steps') e
    CROSS JOIN LATERAL _sas.check_step(e.key, e.value, _sas.pointer('/steps', e.key), caller) p
    WHERE s.no > 1
    UNION ALL
    SELECT s.path || '/include', format('in workflow "%s", at /plan: %s', s.workflow, p.problem),
        p.hint, p.code
    FROM unnest(scopes) s CROSS JOIN LATERAL _sas.check_plan(s.definition, caller) p
    WHERE s.no > 1
$$;

-- _sas.check_planned(scopes, nodes, refs): errors of includes that are planned at submit: their input must
-- be known then, so no include around them, directly or not, may refer to results of steps.
CREATE FUNCTION _sas.check_planned(scopes _sas.scope[], nodes _sas.flow_node[], refs _sas.flow_reference[])
RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE planned AS (
        SELECT s.no, s.parent, s.workflow FROM unnest(scopes) s
        WHERE s.no > 1 AND _sas.is_planned(s.definition)
        UNION
        SELECT s.no, s.parent, p.workflow FROM planned p JOIN unnest(scopes) s ON s.no = p.parent
        WHERE s.no > 1)
    SELECT DISTINCT CASE WHEN opens.scope = 1 THEN r.pointer ELSE opens.path || '/include' END,
           format('workflow "%s" is planned at submit, and "%s" is not known there', p.workflow, r.reference),
           'Refer to the input of the run only, or start it as a run of its own with "workflow".', '0A000'
    FROM planned p
    JOIN unnest(nodes) closes ON closes.kind = 'close' AND closes.sees = p.no
    JOIN unnest(nodes) opens ON opens.no = closes.entry
    JOIN unnest(refs) r ON r.node = opens.no AND r.root IS DISTINCT FROM 'input' AND r.problem IS NULL
        AND starts_with(r.pointer || '/', opens.path || '/input/')
    ORDER BY 1, 2
$$;

-- _sas.included_names(definition): the workflows that a definition includes, with their places. is_run: the
-- undo, or the fallback, of a step does.
CREATE FUNCTION _sas.included_names(definition jsonb) RETURNS TABLE (path text, workflow text, is_run boolean)
LANGUAGE sql STABLE AS $$
    SELECT _sas.pointer('/steps', s.key) || '/' || array_to_string(p.keys, '/'), s.value #>> p.keys,
           cardinality(p.keys) > 1
    FROM jsonb_each(CASE jsonb_typeof(definition -> 'steps') WHEN 'object' THEN definition -> 'steps' END) s
    CROSS JOIN (VALUES ('{include}'::text[]), ('{undo,include}'), ('{fallback,include}'),
                ('{fallback,undo,include}')) AS p (keys)
    WHERE jsonb_typeof(s.value #> p.keys) = 'string'
$$;

-- _sas.check_included_runs(definition, name, caller): errors of undos and fallbacks by which a workflow
-- would include itself. Each new version of it would be bound to the one before, and differ from it.
CREATE FUNCTION _sas.check_included_runs(definition jsonb, name text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE reached AS (
        SELECT i.path, i.workflow, i.is_run FROM _sas.included_names($1) i WHERE $2 IS NOT NULL
        UNION
        SELECT r.path, i.workflow, r.is_run OR i.is_run
        FROM reached r
        JOIN _sas.workflow f ON f.name = r.workflow AND f.dropped_at IS NULL
        JOIN _sas.workflow_version x ON x.workflow_id = f.workflow_id
            AND x.version = coalesce(_sas.runnable_version($3, f), f.version)
        CROSS JOIN LATERAL _sas.included_names(x.definition) i
        WHERE r.workflow <> $2)
    SELECT r.path, format('workflow "%s" includes itself', r.workflow),
        'Start it as a run of its own with "workflow" instead.', '42P19'
    FROM reached r WHERE r.is_run AND r.workflow = $2
$$;
