-- SPDX-License-Identifier: PostgreSQL
--
-- Plan: some runs are complete only with their input: their workflow names a function that returns its
-- steps, or has steps whose agent is a reference to the input. Such a run gets a version of its own, shared
-- by all runs for which planning has the same result.

-- _sas.hidden_version(): a number for a version that sas generates: negative, and never used twice.
CREATE FUNCTION _sas.hidden_version() RETURNS int
LANGUAGE sql AS $$ SELECT (-nextval('_sas.workflow_version_version_id_seq'))::int $$;

-- _sas.is_planned(definition): is the definition complete only with the input of a run?
CREATE FUNCTION _sas.is_planned(definition jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT definition ? 'plan' OR definition @? '$.steps.* ? (exists (@.agents))'
$$;

-- _sas.check_plan(definition, caller): checks the plan function of a definition.
CREATE FUNCTION _sas.check_plan(definition jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF definition ? 'plan' THEN
        RETURN QUERY SELECT * FROM _sas.check_function(definition -> 'plan', '/plan', caller);
    END IF;
END $$;

-- _sas.check_agents(body, path): checks an agent that is known only at submit: one reference to the input,
-- and a pattern of allowed names.
CREATE FUNCTION _sas.check_agents(body jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path || '/agents', 'agents must be a pattern of names',
        'Write names of agents with * for any characters, such as "payments_*".', '22023'
    WHERE body ? 'agents' AND (jsonb_typeof(body -> 'agents') <> 'string'
                               OR body ->> 'agents' !~ '^[a-z*][a-z0-9_*]*$')
    UNION ALL
    SELECT path || '/agent', 'with "agents", the agent must be one reference to the input',
        'Write it as "{{input.agent}}".', '22023'
    WHERE body ? 'agents'
      AND (jsonb_typeof(body -> 'agent') IS DISTINCT FROM 'string'
           OR body ->> 'agent' !~ E'^\\{\\{ *input\\.[^{}]*\\}\\}$')
    UNION ALL
    SELECT path || '/agents', 'an agent that is a reference needs "agents"',
        'Name the agents that it may select, such as "payments_*".', '22023'
    WHERE NOT body ? 'agents' AND body ->> 'agent' ~ E'\\{\\{'
$$;

-- _sas.resolve_agents(definition, input, prefix): replaces references by the agents that this input names;
-- raises an error if one is not allowed. prefix: that of an included workflow, else empty.
CREATE FUNCTION _sas.resolve_agents(definition jsonb, input jsonb, prefix text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s record;
    named record;
BEGIN
    FOR s IN SELECT e.key AS name, e.value AS body FROM jsonb_each(definition -> 'steps') e
        WHERE jsonb_typeof(e.value) = 'object' AND e.value ? 'agents' LOOP
        SELECT i.result, i.problem INTO named
        FROM _sas.render(s.body -> 'agent', jsonb_build_object('input', input)) i;
        IF named.problem IS NOT NULL OR jsonb_typeof(named.result) <> 'string'
            OR NOT _sas.matches_pattern(s.body ->> 'agents', named.result #>> '{}') THEN
            RAISE EXCEPTION 'step "%" has no agent: %', prefix || s.name,
                coalesce(_sas.problem_text(named.problem),
                         format('%s gives %s, which is not one of "%s"', s.body ->> 'agent',
                                left(named.result::text, 80), s.body ->> 'agents'))
                USING ERRCODE = 'invalid_parameter_value',
                    DETAIL = _sas.at(CASE prefix WHEN '' THEN _sas.pointer('/steps', s.name) || '/agent'
                                     ELSE _sas.include_place(prefix) END),
                    HINT = 'The input of the run names it.';
        END IF;
        definition := jsonb_set(definition, ARRAY['steps', s.name], (s.body - 'agents')
                                || jsonb_build_object('agent', named.result));
    END LOOP;
    RETURN definition;
END $$;

-- _sas.include_place(prefix): the place in the definition of the run where the include with this prefix
-- begins.
CREATE FUNCTION _sas.include_place(prefix text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT _sas.pointer('/steps', split_part(prefix, '.', 1)) || '/include' $$;

-- _sas.add_plan(workflow, definition, more): the definition together with what its plan function has
-- returned.
CREATE FUNCTION _sas.add_plan(workflow text, definition jsonb, more jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    p _sas.problem;
BEGIN
    FOR p IN SELECT * FROM _sas.check_keys(more, '',
            '{steps,flow,output,on_failure,recovery,deadline,finalize,priority}') LOOP
        RAISE EXCEPTION 'the plan function of workflow "%" did not return a plan: %', workflow, p.problem
            USING ERRCODE = p.code, DETAIL = format('At /plan%s.', p.path), HINT = p.hint;
    END LOOP;
    IF jsonb_typeof(more -> 'steps') <> 'object' THEN
        RAISE EXCEPTION 'the plan function of workflow "%" did not return a plan: steps must be an object '
                        'with a body for each name', workflow
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /plan/steps.', HINT = 'It may be empty.';
    END IF;
    RETURN definition - 'plan' || more
           || jsonb_build_object('steps', coalesce(definition -> 'steps', '{}')
                                 || coalesce(more -> 'steps', '{}'));
END $$;

-- _sas.wanted_plan(caller, v, input, made): the definition of a run with this input, and what planning
-- makes of its includes (see _sas.scopes). made: what plan functions have returned, by prefix; the run
-- itself has the prefix ''. If a result is missing, only its prefix, the function and its input are
-- returned. So plan functions can be called in a session, or each under a claim of its own.
CREATE FUNCTION _sas.wanted_plan(caller oid, v _sas.workflow_version, input jsonb, made jsonb,
                                 OUT whole jsonb, OUT included jsonb, OUT prefix text, OUT function text,
                                 OUT function_input jsonb)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    names text[] := ARRAY(SELECT w.name FROM _sas.workflow w WHERE w.workflow_id = v.workflow_id);
    prefixes text[] := '{""}';
    chains text[] := ARRAY['/' || names[1] || '/'];
    inputs jsonb[] := ARRAY[input];
    problems text[] := '{""}';
    definitions jsonb[] := ARRAY[v.definition];
    d jsonb;
    e record;
    at int := 1;
BEGIN
    included := '{}';
    WHILE at <= least(cardinality(prefixes), _sas.max_steps()) LOOP
        d := '{"steps": {}}' || definitions[at];
        IF _sas.is_planned(d) THEN
            IF inputs[at] IS NULL THEN
                RAISE EXCEPTION 'could not plan workflow "%": its input could not be built: %', names[at],
                        problems[at]
                    USING ERRCODE = 'invalid_parameter_value',
                        DETAIL = _sas.at(_sas.include_place(prefixes[at])),
                        HINT = 'What includes it may refer to the input of the run only.';
            ELSIF d ? 'plan' AND NOT made ? prefixes[at] THEN
                prefix := prefixes[at];
                function := d ->> 'plan';
                function_input := inputs[at];
                RETURN;
            ELSIF d ? 'plan' THEN
                d := _sas.add_plan(names[at], d, made -> prefixes[at]);
            END IF;
            d := _sas.resolve_agents(d, inputs[at], prefixes[at]);
        END IF;
        IF at = 1 THEN
            whole := d;
        ELSIF d <> '{"steps": {}}' || definitions[at] THEN
            included := included || jsonb_build_object(prefixes[at], d);
        END IF;
        FOR e IN SELECT * FROM _sas.planned_includes(caller, d, inputs[at], chains[at]) LOOP
            names := names || e.workflow;
            prefixes := prefixes || (prefixes[at] || e.step || '.');
            chains := chains || (chains[at] || e.workflow || '/');
            inputs := array_append(inputs, e.input);
            problems := problems || coalesce(e.problem, problems[at]);
            definitions := definitions || e.definition;
        END LOOP;
        at := at + 1;
    END LOOP;
END $$;

-- _sas.planned_includes(caller, definition, input, chain): the includes of a definition that are planned,
-- or that include others, with their input; null: it is unknown before the run, and problem says why. A
-- workflow that would include itself is left out; _sas.scopes refuses it.
CREATE FUNCTION _sas.planned_includes(caller oid, definition jsonb, input jsonb, chain text)
RETURNS TABLE (step text, workflow text, input jsonb, problem text, definition jsonb)
LANGUAGE sql STABLE AS $$
    SELECT s.key, f.name, CASE WHEN $3 IS NOT NULL AND i.problem IS NULL THEN i.result END,
           CASE WHEN $3 IS NOT NULL THEN _sas.problem_text(i.problem) END, x.definition
    FROM jsonb_each($2 -> 'steps') s
    JOIN _sas.workflow f ON f.name = CASE jsonb_typeof(s.value -> 'include')
        WHEN 'string' THEN s.value ->> 'include' END AND f.dropped_at IS NULL
    JOIN _sas.workflow_version x ON x.workflow_id = f.workflow_id
        AND x.version = coalesce(_sas.runnable_version($1, f), f.version)
    LEFT JOIN LATERAL _sas.render(coalesce(s.value -> 'input', '"{{input}}"'),
                                  jsonb_build_object('input', $3)) i ON true
    WHERE strpos($4, '/' || f.name || '/') = 0
      AND (_sas.is_planned(x.definition) OR x.definition @? '$.steps.*.include')
    ORDER BY s.key
$$;

-- _sas.planned_by(owner, for_workflow, included): the version that a run of this workflow gets, or the
-- included one, if its runs are planned by their input.
CREATE FUNCTION _sas.planned_by(owner oid, for_workflow int, included int)
RETURNS SETOF _sas.workflow_version
LANGUAGE sql STABLE AS $$
    SELECT v.*
    FROM _sas.workflow f
    JOIN _sas.workflow_version x ON x.workflow_id = f.workflow_id
        AND x.version = coalesce($3, _sas.runnable_version($1, f))
    CROSS JOIN LATERAL (SELECT c.* FROM _sas.composed(x) c WHERE $3 IS NULL
                        UNION ALL SELECT x.* WHERE $3 IS NOT NULL) v
    WHERE f.workflow_id = $2 AND f.dropped_at IS NULL AND v.planned
$$;

-- _sas.calls_plans(owner, for_workflow, included): does a submit of this workflow, or of its included
-- version, by that role call plan functions, its own or those of includes? A scheduler must not make such a
-- submit.
CREATE FUNCTION _sas.calls_plans(owner oid, for_workflow int, included int DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT EXISTS (SELECT FROM _sas.planned_by($1, $2, $3) v JOIN _sas.workflow f USING (workflow_id)
                       CROSS JOIN LATERAL _sas.scopes(v.definition, f.name, $1, '{}') c
                       CROSS JOIN LATERAL unnest(c.scopes) s WHERE s.definition ? 'plan'));
END $$;

-- _sas.check_plans(included, caller): errors in the planned definitions of included workflows, each checked
-- by itself; as a part of the definition of the run, only their steps are checked.
CREATE FUNCTION _sas.check_plans(included jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT _sas.include_place(i.key), format('of "%s", at %s: %s', rtrim(i.key, '.'), p.path, p.problem),
           p.hint, p.code
    FROM jsonb_each(included) i
    CROSS JOIN LATERAL (SELECT coalesce(jsonb_object_agg(substr(o.key, length(i.key) + 1), o.value), '{}')
                        AS parts
                        FROM jsonb_each(included) o WHERE starts_with(o.key, i.key) AND o.key <> i.key) inner_
    CROSS JOIN LATERAL _sas.check_definition(i.value, NULL, caller, inner_.parts) p
$$;

-- _sas.plan_run(caller, v, input, child, made): the version for a run with this input. made: what plan
-- functions have returned already, by prefix; the others are called as the caller. Their results are added
-- to the definition and checked like it.
-- Writes: workflow_version, planned.
CREATE FUNCTION _sas.plan_run(caller oid, v _sas.workflow_version, input jsonb, child boolean,
                              made jsonb DEFAULT NULL) RETURNS _sas.workflow_version
LANGUAGE plpgsql SET jit = off SET enable_nestloop = off SET enable_hashjoin = on AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow;
    number int := coalesce(v.of_version, v.version);
    plan record;
    mark text;
    found_id int;
    hidden int;
    p _sas.problem;
BEGIN
    PERFORM _sas.refuse_unbound(v);
    SELECT * INTO f FROM _sas.workflow w WHERE w.workflow_id = v.workflow_id;
    made := coalesce(made, '{}');
    LOOP
        SELECT * INTO plan FROM _sas.wanted_plan(caller, v, input, made);
        EXIT WHEN plan.function IS NULL;
        IF child THEN
            RAISE EXCEPTION 'workflow "%" has a plan function now', f.name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                    DETAIL = 'It had none when the child run was claimed.', HINT = 'Resume the run.';
        END IF;
        made := made || jsonb_build_object(plan.prefix, _sas.call_as(caller, caller, plan.function,
                                                                     plan.function_input));
    END LOOP;
    mark := md5(plan.whole::text || plan.included);
    SELECT d.version_id INTO found_id FROM _sas.planned d WHERE d.workflow_id = v.workflow_id
        AND d.version = v.version AND d.digest = mark;
    -- locked against the purge until this is committed; if it was just purged, or a session has locked it,
    -- it is generated again
    PERFORM FROM _sas.workflow_version x WHERE x.version_id = found_id FOR KEY SHARE SKIP LOCKED;
    IF FOUND THEN
        SELECT * INTO v FROM _sas.workflow_version x WHERE x.version_id = found_id;
        PERFORM _sas.raise(c)
        FROM unnest(v.functions) fn
        CROSS JOIN LATERAL _sas.check_function(to_jsonb(fn), '/plan', caller, true) c;
        PERFORM _sas.raise(wrong) FROM _sas.check_uses(caller, v.uses) wrong;
        RETURN v;
    END IF;
    -- child runs are planned by a scheduler
    PERFORM _sas.hold_named(plan.whole, NOT child), _sas.hold_named(plan.included, NOT child);
    FOR p IN SELECT * FROM _sas.check_plans(plan.included, caller)
             UNION ALL
             SELECT CASE WHEN v.definition ? 'plan' THEN '/plan' ELSE '' END || c.path, c.problem, c.hint,
                    c.code
             FROM _sas.check_definition(plan.whole, f.name, caller, plan.included) c LOOP
        -- without plan functions, only agents come from the input
        RAISE EXCEPTION '%', CASE WHEN made <> '{}' THEN format('invalid plan of workflow "%s": ', f.name)
                             ELSE '' END || p.problem
            USING ERRCODE = p.code, DETAIL = _sas.at(p.path),
                HINT = CASE WHEN made = '{}' AND p.problem ~ 'agent "' THEN 'The input of the run names it. '
                       ELSE '' END || coalesce(p.hint, '');
    END LOOP;
    hidden := _sas.hidden_version();
    PERFORM _sas.store_version(v.workflow_id, hidden, plan.whole, caller, plan.included);
    UPDATE _sas.workflow_version x SET of_version = number WHERE x.workflow_id = v.workflow_id
        AND x.version = hidden;
    INSERT INTO _sas.planned (workflow_id, version, digest, version_id)
    SELECT v.workflow_id, v.version, mark, x.version_id FROM _sas.workflow_version x
    WHERE x.workflow_id = v.workflow_id AND x.version = hidden
      -- an open transaction has generated the same version: this run gets one of its own, so that neither
      -- waits
      AND _sas.try_lock(format('planned %s %s %s', v.workflow_id, number, mark))
    ON CONFLICT DO NOTHING;
    SELECT * INTO v FROM _sas.workflow_version x WHERE x.workflow_id = v.workflow_id AND x.version = hidden;
    RETURN v;
END $$;
