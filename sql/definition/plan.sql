-- SPDX-License-Identifier: PostgreSQL
--
-- Plan: what a run is to do may be known at its submit only: a workflow names
-- a function that returns its steps, or steps whose agent is a reference to
-- the input. Such a run gets a version of its own, shared with all runs for
-- which the same came out.

-- _sas.hidden_version(): a version number for what nobody has written: negative, and never given twice.
CREATE FUNCTION _sas.hidden_version() RETURNS int
LANGUAGE sql AS $$ SELECT (-nextval('_sas.workflow_version_version_id_seq'))::int $$;

-- _sas.is_planned(definition): is it complete only with the input of a run?
CREATE FUNCTION _sas.is_planned(definition jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT definition ? 'plan' OR definition @? '$.steps.* ? (exists (@.agents))'
$$;

-- _sas.check_plan(value, path, caller)
CREATE FUNCTION _sas.check_plan(definition jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF definition ? 'plan' THEN
        RETURN QUERY SELECT * FROM _sas.check_function(definition -> 'plan', '/plan', caller);
    END IF;
END $$;

-- _sas.check_agents(body, path): an agent that is known at submit only: one reference to the input, and the
-- names that it may give.
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

-- _sas.matches(name, pattern): * stands for any characters.
CREATE FUNCTION _sas.matches(name text, pattern text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT name LIKE replace(replace(pattern, '_', E'\\_'), '*', '%') $$;

-- _sas.resolve_agents(definition, input): the agents that this input names put in their places; refuses those
-- that may not be.
CREATE FUNCTION _sas.resolve_agents(definition jsonb, input jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s record;
    place text[];
    named record;
BEGIN
    FOR s IN SELECT e.key AS name, e.value AS body FROM jsonb_each(definition -> 'steps') e
        WHERE jsonb_typeof(e.value) = 'object' AND e.value ? 'agents' LOOP
        SELECT i.result, i.problem INTO named
        FROM _sas.render(s.body -> 'agent', jsonb_build_object('input', input)) i;
        IF named.problem IS NOT NULL OR jsonb_typeof(named.result) <> 'string'
            OR NOT _sas.matches(named.result #>> '{}', s.body ->> 'agents') THEN
            RAISE EXCEPTION 'step "%" has no agent: %', s.name,
                CASE WHEN named.problem IS NOT NULL
                    THEN format('%s: %s', named.problem ->> 'path', named.problem ->> 'what')
                     ELSE format('%s gives %s, which is not one of "%s"', s.body ->> 'agent',
                                 left(named.result::text, 80), s.body ->> 'agents') END
                USING ERRCODE = 'invalid_parameter_value',
                    DETAIL = _sas.at(_sas.pointer('/steps', s.name) || '/agent'),
                    HINT = 'The input of the run names it.';
        END IF;
        definition := jsonb_set(definition, ARRAY['steps', s.name], (s.body - 'agents')
                                || jsonb_build_object('agent', named.result));
    END LOOP;
    RETURN definition;
END $$;

-- _sas.plan_run(caller, version, input, child, more): the version for a run with this input. more: what the
-- plan function has returned; else it is called as the caller; what it returns is added to the definition,
-- and checked like one.
CREATE FUNCTION _sas.plan_run(caller oid, v _sas.workflow_version, input jsonb, child boolean,
                              more jsonb DEFAULT NULL) RETURNS _sas.workflow_version
LANGUAGE plpgsql SET jit = off SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    f _sas.workflow;
    number int := coalesce(v.of_version, v.version);
    whole jsonb := v.definition - 'plan';
    mark text;
    found_id int;
    hidden int;
    p _sas.problem;
BEGIN
    PERFORM _sas.refuse_unbound(v);
    SELECT * INTO f FROM _sas.workflow w WHERE w.workflow_id = v.workflow_id;
    IF v.definition ? 'plan' THEN
        IF more IS NULL AND child THEN
            RAISE EXCEPTION 'workflow "%" has a plan function now', f.name
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Resume the run.';
        END IF;
        more := coalesce(more, _sas.call_as(caller, v.definition ->> 'plan', input));
        FOR p IN SELECT * FROM _sas.check_keys(more, '',
                '{steps,flow,output,on_failure,recovery,deadline,finalize,priority}') LOOP
            RAISE EXCEPTION 'the plan function of workflow "%" did not return a plan: %', f.name, p.problem
                USING ERRCODE = p.code, DETAIL = format('At /plan%s.', p.path), HINT = p.hint;
        END LOOP;
        whole := whole || more || jsonb_build_object('steps', coalesce(whole -> 'steps', '{}')
                                                     || coalesce(more -> 'steps', '{}'));
    END IF;
    whole := _sas.resolve_agents(whole, input);
    mark := md5(whole::text);
    SELECT d.version_id INTO found_id FROM _sas.planned d WHERE d.workflow_id = v.workflow_id
        AND d.version = v.version AND d.digest = mark;
    -- not purged until this is committed; if it is just gone, or a session holds it, it is made again
    PERFORM FROM _sas.workflow_version x WHERE x.version_id = found_id FOR KEY SHARE SKIP LOCKED;
    IF FOUND THEN
        SELECT * INTO v FROM _sas.workflow_version x WHERE x.version_id = found_id;
        FOR p IN SELECT c.* FROM unnest(v.functions) fn
            CROSS JOIN LATERAL _sas.check_function(to_jsonb(fn), '/plan', caller) c
            UNION ALL SELECT * FROM _sas.check_uses(caller, v.uses) LOOP
            PERFORM _sas.raise(p);
        END LOOP;
        RETURN v;
    END IF;
    FOR p IN SELECT * FROM _sas.check_definition(whole, f.name, caller) LOOP
        RAISE EXCEPTION 'invalid plan of workflow "%": %', f.name, p.problem
            USING ERRCODE = p.code, DETAIL = _sas.at(CASE
                                                    WHEN v.definition ? 'plan' THEN '/plan'
                                                    ELSE '' END || p.path), HINT = coalesce(p.hint, '');
    END LOOP;
    hidden := _sas.hidden_version();
    PERFORM _sas.store_version(v.workflow_id, hidden, whole, caller);
    UPDATE _sas.workflow_version x SET of_version = number WHERE x.workflow_id = v.workflow_id
        AND x.version = hidden;
    INSERT INTO _sas.planned (workflow_id, version, digest, version_id)
    SELECT v.workflow_id, v.version, mark, x.version_id FROM _sas.workflow_version x
    WHERE x.workflow_id = v.workflow_id AND x.version = hidden
      -- whose transaction is open has made the same: this one is for this run, so that none waits for it
      AND pg_try_advisory_xact_lock('_sas.planned'::regclass::oid::int, hashtext(number || mark))
    ON CONFLICT DO NOTHING;
    SELECT * INTO v FROM _sas.workflow_version x WHERE x.workflow_id = v.workflow_id AND x.version = hidden;
    RETURN v;
END $$;
