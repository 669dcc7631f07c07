-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks of a definition: what they may contain, and how they are stored.

-- _sas.set_alert_hook_as(caller, function): the body of sas.set_alert_hook: replaces the alert hook; null:
-- removes it. The function is called as the caller.
-- Writes: alert_hook, workflow, workflow_hook.
CREATE FUNCTION _sas.set_alert_hook_as(caller oid, function regprocedure) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := _sas.middleware_function(caller, $2, '/function');
    flow int;
    version int;
    old jsonb;
BEGIN
    IF EXISTS (SELECT FROM _sas.alert_hook h WHERE NOT _sas.trusts(h.owner, caller)) THEN
        RAISE EXCEPTION 'must be superuser to change the alert hook of a superuser'
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /function.',
                HINT = 'Listen to sas_alert, or ask a superuser.';
    END IF;
    DELETE FROM _sas.alert_hook h RETURNING jsonb_build_object('function', h.function,
                                                               'owner', pg_get_userbyid(h.owner)) INTO old;
    PERFORM _sas.record_change(caller, 'set_alert_hook', '{}', old, CASE WHEN name IS NOT NULL THEN
        jsonb_build_object('function', name, 'owner', pg_get_userbyid(caller)) END)
    WHERE coalesce(old ->> 'function', name) IS NOT NULL;
    IF name IS NULL THEN
        RETURN;
    END IF;
    -- a workflow that is dropped from the beginning: no one can see, submit or change it
    INSERT INTO _sas.workflow (name, owner, version, created_at, dropped_at)
    VALUES ('alert_hook', caller, 1, sas.now(), sas.now()) RETURNING workflow_id INTO flow;
    PERFORM _sas.store_version(
        flow, 1,
        jsonb_build_object('steps', jsonb_build_object('hook', jsonb_build_object('function', name)),
                           'on_failure', 'fail'),
        caller);
    SELECT v.version_id INTO version FROM _sas.workflow_version v WHERE v.workflow_id = flow;
    INSERT INTO _sas.workflow_hook (version_id, hook_no, events, hook_version_id)
    VALUES (version, 0, '{}', version);
    INSERT INTO _sas.alert_hook (version_id, function, owner) VALUES (version, name, caller);
END $$;

-- _sas.hook_events(value): the states and results that "on" means; without "on", every state.
CREATE FUNCTION _sas.hook_events(value jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value IS NULL THEN '{scheduled,pending,running,paused,compensating,stopped}'::text[]
                ELSE ARRAY(SELECT DISTINCT x
                           FROM jsonb_array_elements_text(CASE jsonb_typeof(value) WHEN 'array' THEN value
                                                          ELSE jsonb_build_array(value) END) e
                           CROSS JOIN LATERAL unnest(CASE e
                                                     WHEN 'failure' THEN '{error,compensated,cancelled}'
                                                     ELSE ARRAY[e] END) x ORDER BY x) END
$$;

-- _sas.check_hook_events(value, path): errors of the states and results that a hook names.
CREATE FUNCTION _sas.check_hook_events(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT path, 'a hook needs a state or result',
           'Name states or results, or leave "on" out for every state.', '22023'
    WHERE value = '[]'
    UNION ALL
    SELECT p.*
    FROM (SELECT value, path WHERE jsonb_typeof(value) <> 'array'
          UNION ALL SELECT e.value, path || '/' || e.n - 1
              FROM jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value END)
                  WITH ORDINALITY AS e (value, n)) AS said (value, path)
    CROSS JOIN LATERAL _sas.check_choice(said.value, said.path,
            '{scheduled,pending,running,paused,compensating,stopped,success,warning,error,compensated,'
            'cancelled,failure}') p
$$;

-- _sas.check_hook(hook, path, caller): errors of one hook of a definition, an object.
CREATE FUNCTION _sas.check_hook(hook jsonb, path text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_hook_events(hook -> 'on', path || '/on');
    IF (hook ? 'function')::int + (hook ? 'notify')::int + (hook ? 'call')::int <> 1 THEN
        RETURN NEXT ROW(path, 'a hook needs one of function, notify and call',
                        'Write exactly one of them, and with call an agent.', '22023')::_sas.problem;
    ELSIF hook ? 'notify' THEN
        IF jsonb_typeof(hook -> 'notify') <> 'string' THEN
            RETURN NEXT ROW(path || '/notify', 'the channel must be a name',
                            'Write the name of a channel as a string.', '22023')::_sas.problem;
        ELSE
            RETURN QUERY SELECT * FROM _sas.check_name(hook ->> 'notify', path || '/notify');
        END IF;
        IF hook ?| '{agent,retry,recovery,complete_in,expect}' THEN
            RETURN NEXT ROW(path, 'a notification can have "on" only, because it is sent with the commit',
                            'Leave out agent, retry, recovery, complete_in and expect.',
                            '22023')::_sas.problem;
        END IF;
    ELSIF hook ? 'agent' AND jsonb_typeof(hook -> 'agent') <> 'string' THEN
        RETURN NEXT ROW(path || '/agent', 'the agent must be a name',
                        'Write the name of an agent as a string.', '22023')::_sas.problem;
    ELSE
        RETURN QUERY SELECT * FROM _sas.check_body(hook - 'on', path, caller, hook ->> 'agent');
        RETURN QUERY
        SELECT r.pointer, coalesce(r.problem,
                                   format('"%s" cannot be referenced here', r.reference)),
               coalesce(r.hint, 'A hook refers to the event as {{input.run_id}}, {{input.workflow}}, '
                                '{{input.output.NAME}} and so on; besides, there are key, and in '
                                'a call {{run.id}}, {{run.key}} and {{run.labels}}.'),
               CASE WHEN r.hint IS NOT NULL THEN '0A000' WHEN r.problem IS NOT NULL THEN '42601'
                    WHEN r.root = 'secret' THEN '42501' ELSE '42P10' END
        FROM _sas.body_references(hook, path) r
        WHERE r.problem IS NOT NULL OR r.root IS NULL
           OR NOT (r.root IN ('input', 'key')
                   -- only those that _sas.of_event finds
                   OR r.root = 'run' AND r.reference ~ E'^run\\.(id|key|labels)\\M(?!.*[$])'
                      AND starts_with(r.pointer, path || '/call/'));
    END IF;
END $$;

-- _sas.check_hooks(value, caller): errors of the hooks of a definition.
CREATE FUNCTION _sas.check_hooks(value jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    hook jsonb;
    path text;
BEGIN
    IF jsonb_typeof(value) <> 'array' THEN
        RETURN NEXT ROW('/hooks', format('hooks must be an array, not %s', jsonb_typeof(value)),
                        'Write it as [{"on": "success", "notify": "channel"}].', '22023')::_sas.problem;
    ELSIF jsonb_array_length(value) > 100 THEN
        RETURN NEXT ROW('/hooks', 'there are more than 100 hooks', 'One hook can cover several states.',
                        '54000')::_sas.problem;
    ELSIF value IS NOT NULL THEN
        FOR n IN 0 .. jsonb_array_length(value) - 1 LOOP
            hook := value -> n;
            path := '/hooks/' || n;
            RETURN QUERY SELECT * FROM _sas.check_keys(hook, path,
                    '{on,function,notify,agent,call,retry,recovery,complete_in,expect}');
            RETURN QUERY SELECT * FROM _sas.check_hook(hook, path, caller)
                WHERE jsonb_typeof(hook) = 'object';
        END LOOP;
    END IF;
END $$;

-- _sas.of_event(call): the call of a hook. It is made by a run of its own, whose input is the event, and
-- "run" in its templates is the run of the event: {{run.id}} becomes {{input.run_id}}. \{{ is no reference.
CREATE FUNCTION _sas.of_event(call jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(
               regexp_replace(call::text, E'(?<!\\\\)\\{\\{\\s*run\\.id\\M', '{{input.run_id', 'g'),
               E'(?<!\\\\)\\{\\{\\s*run\\.(key|labels)\\M', E'{{input.\\1', 'g')::jsonb
$$;

-- _sas.store_hooks(for_version): stores the hooks of a version that has just been stored. A hook that is a
-- function or call gets a hidden version of its own, of the same workflow, with a negative number.
-- Writes: workflow_version, workflow_hook.
CREATE FUNCTION _sas.store_hooks(for_version int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v _sas.workflow_version;
    hook jsonb;
    n int := 0;
    hidden int;
    hidden_id int;
BEGIN
    SELECT * INTO v FROM _sas.workflow_version x WHERE x.version_id = for_version;
    FOR hook IN SELECT CASE WHEN h ? 'call' THEN jsonb_set(h, '{call}', _sas.of_event(h -> 'call'))
                       ELSE h END
                FROM jsonb_array_elements(v.definition -> 'hooks') h LOOP
        n := n + 1;
        hidden_id := NULL;
        IF NOT hook ? 'notify' THEN
            hidden := _sas.hidden_version();
            PERFORM _sas.store_version(v.workflow_id, hidden,
                                       jsonb_build_object('steps', jsonb_build_object('hook', hook - 'on'),
                                                          'on_failure', 'fail', 'auto_rescue', true)
                                       -- its input has values of the run, and its output may repeat them
                                       || CASE WHEN v.mask IS NULL THEN '{}' ELSE
                                          '{"mask": ["input", "output", "steps.hook"]}' END::jsonb,
                                       v.created_by);
            UPDATE _sas.workflow_version x SET of_version = coalesce(v.of_version, v.version)
            WHERE x.workflow_id = v.workflow_id AND x.version = hidden
            RETURNING x.version_id INTO hidden_id;
        END IF;
        INSERT INTO _sas.workflow_hook
        VALUES (v.version_id, n, _sas.hook_events(hook -> 'on'), hook ->> 'notify', hidden_id);
    END LOOP;
    -- a role that submits must be allowed to call them, like the functions of steps
    UPDATE _sas.workflow_version x
    SET functions = ARRAY(
        SELECT DISTINCT f
        FROM unnest(x.functions || ARRAY(SELECT h ->> 'function'
                                         FROM jsonb_array_elements(v.definition -> 'hooks') h
                                         WHERE h ? 'function')) f)
    WHERE x.version_id = for_version AND n > 0;
END $$;
