-- SPDX-License-Identifier: PostgreSQL
--
-- Watchers: what a definition of infinite tasks may contain, and how it is stored. A new definition applies
-- to all existing tasks of the watcher: their hosts reload it and keep the cursor.

-- _sas.check_templates(value, path, roots): errors of the references in a template of a watcher.
CREATE FUNCTION _sas.check_templates(value jsonb, path text, roots text[]) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT $2 || r.pointer, coalesce(r.problem, format('"%s" cannot be referenced here', left(r.path, 80))),
        coalesce(r.hint, 'Templates here can refer to: ' || array_to_string(roots, ', ') || '.'),
        CASE WHEN r.problem IS NULL THEN '42P10' WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.references(value) r WHERE r.problem IS NOT NULL OR NOT coalesce(r.root = ANY (roots), false)
$$;

-- _sas.check_watch_agent(definition, kind): streams and polls need an http agent; external tasks are hosted
-- by programs of an external agent.
CREATE FUNCTION _sas.check_watch_agent(definition jsonb, kind text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wanted text := CASE kind WHEN 'external' THEN 'external' ELSE 'http' END;
    found text := (SELECT a.kind FROM _sas.agent a WHERE a.name = definition ->> 'agent'
                   AND a.dropped_at IS NULL);
BEGIN
    IF $2 = 'function' THEN
        RETURN QUERY SELECT '/agent', 'a watcher with a function needs no agent', 'Leave it out.', '22023'
            WHERE definition ? 'agent';
    ELSIF jsonb_typeof(definition -> 'agent') IS DISTINCT FROM 'string' THEN
        RETURN NEXT ROW('/agent', format('a watcher with "%s" needs an agent', $2),
                        format('Name one of kind "%s".', wanted), '22023')::_sas.problem;
    ELSIF found IS NULL THEN
        RETURN NEXT ROW('/agent', format('agent "%s" does not exist', definition ->> 'agent'),
                        'Create it with sas.create_agent.', '42704')::_sas.problem;
    ELSIF found <> wanted THEN
        RETURN NEXT ROW('/agent', format('agent "%s" is of kind "%s"', definition ->> 'agent', found),
                        format('Name one of kind "%s".', wanted), '42809')::_sas.problem;
    END IF;
END $$;

-- _sas.check_stream(value), _sas.check_watch_poll(value): check the kind of a watcher.
CREATE FUNCTION _sas.check_stream(value jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(value, '/stream',
            '{format,method,path,query,headers,body,form,text,idle_timeout}');
    IF jsonb_typeof(value) = 'object' THEN
        RETURN QUERY SELECT * FROM _sas.check_choice(coalesce(value -> 'format', 'null'), '/stream/format',
                                                     '{sse,ndjson,ws,long_poll}');
        RETURN QUERY SELECT * FROM _sas.check_span(value -> 'idle_timeout', '/stream/idle_timeout');
        RETURN QUERY SELECT * FROM _sas.check_call(value - '{format,idle_timeout}'::text[], '/stream');
        RETURN QUERY SELECT * FROM _sas.check_templates(value, '/stream', '{watcher,key,input,cursor}');
    END IF;
END $$;

-- _sas.check_look_schedule(value, path): checks {"spec", "timezone", "jitter"}.
CREATE FUNCTION _sas.check_look_schedule(value jsonb, path text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    place text;
    hint text;
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(value, path, '{spec,timezone,jitter}');
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_span(value -> 'jitter', path || '/jitter', true);
    RETURN QUERY SELECT path || '/jitter', 'the jitter is longer than a day',
        'It is the span over which the tasks are spread.', '22023'
        WHERE _sas.span(value -> 'jitter') > '1 day';
    RETURN QUERY SELECT path || '/' || k, format('%s must be a string', k),
        CASE k WHEN 'spec' THEN 'Write a cron pattern such as "30 2 * * MON-FRI".'
        ELSE 'Write the name of a region, such as "Europe/London".' END, '22023'
        FROM unnest('{spec,timezone}'::text[]) k
        WHERE coalesce(jsonb_typeof(value -> k), CASE k WHEN 'timezone' THEN 'string' END)
              IS DISTINCT FROM 'string';
    IF jsonb_typeof(value -> 'spec') = 'string' THEN
        PERFORM _sas.check_spec(value ->> 'spec', value ->> 'timezone');
    END IF;
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT ROW(path || substring(place FROM '/[a-z]+'),
                    SQLERRM || coalesce(' (' || substring(place FROM 'field .*[)]') || ')', ''), hint,
                    SQLSTATE)::_sas.problem;
END $$;

-- _sas.check_looks(value, path, zero): checks when a task polls: either "every" or "schedule".
CREATE FUNCTION _sas.check_looks(value jsonb, path text, zero boolean) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT value ? 'schedule' THEN
        RETURN QUERY SELECT * FROM _sas.check_span(value -> 'every', path || '/every', zero)
        UNION ALL
        SELECT path, 'neither "every" nor "schedule" says when',
            'Write one of them, such as "every": "10 s".', '22023' WHERE NOT value ? 'every';
        RETURN;
    END IF;
    RETURN QUERY SELECT path || '/schedule', '"every" and "schedule" exclude each other',
        'Write one of them.', '22023' WHERE value ? 'every';
    RETURN QUERY SELECT * FROM _sas.check_look_schedule(value -> 'schedule', path || '/schedule');
END $$;

-- _sas.check_watch_poll(value): the problems of the key "poll" of a watcher.
CREATE FUNCTION _sas.check_watch_poll(value jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(value, '/poll', '{call,every,schedule}');
    IF jsonb_typeof(value) = 'object' THEN
        RETURN QUERY SELECT * FROM _sas.check_call(value -> 'call', '/poll/call');
        RETURN QUERY SELECT * FROM _sas.check_templates(value -> 'call', '/poll/call',
                                                        '{watcher,key,input,cursor}');
        RETURN QUERY SELECT * FROM _sas.check_looks(value, '/poll', false);
    END IF;
END $$;

-- _sas.check_target_table(value, caller): the value must name a table with a column "item jsonb" into which
-- the caller may insert.
CREATE FUNCTION _sas.check_target_table(value jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found oid;
BEGIN
    IF jsonb_typeof(value) <> 'string' OR NOT _sas.is_qualified(value #>> '{}') THEN
        RETURN NEXT ROW('/items/table', format('%s is not the name of a table', left(value::text, 80)),
                        'Write it with its schema, such as "shop.price".', '42602')::_sas.problem;
        RETURN;
    END IF;
    found := to_regclass(value #>> '{}');
    IF found IS NULL OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = found
                                    AND c.relkind IN ('r', 'p', 'v', 'f')) THEN
        RETURN NEXT ROW('/items/table', format('table %s does not exist', value #>> '{}'),
                        'Create it first, with a column "item jsonb".', '42P01')::_sas.problem;
    ELSIF NOT EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = found AND t.attname = 'item'
                      AND t.atttypid = 'jsonb'::regtype AND NOT t.attisdropped) THEN
        RETURN NEXT ROW('/items/table',
                        format('table %s has no column "item" of type jsonb', value #>> '{}'),
                        'Items are inserted there; columns "watcher" and "key" of type text are filled in as '
                        'well, all others get their defaults.', '42703')::_sas.problem;
    ELSIF NOT has_table_privilege(caller, found, 'INSERT')
        OR NOT has_schema_privilege(caller, (SELECT c.relnamespace FROM pg_class c WHERE c.oid = found),
                                    'USAGE') THEN
        RETURN NEXT ROW('/items/table', format('permission denied for table %s', value #>> '{}'),
                        format('Grant INSERT on it, and USAGE on its schema, to role "%s".',
                               pg_get_userbyid(caller)), '42501')::_sas.problem;
    ELSIF _sas.is_superuser(caller) AND _sas.table_distrust(found) IS NOT NULL THEN
        RETURN NEXT ROW('/items/table', format('table %s %s', value #>> '{}', _sas.table_distrust(found)),
                        format('Its triggers, defaults and checks would run with the rights of superuser '
                               '"%s". Do this as another role.', pg_get_userbyid(caller)),
                        '42501')::_sas.problem;
    END IF;
END $$;

-- _sas.check_target_workflow(value, caller): the value must name a workflow that the caller may submit.
CREATE FUNCTION _sas.check_target_workflow(value jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    f _sas.workflow;
BEGIN
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = value #>> '{}' AND jsonb_typeof(value) = 'string'
        AND w.dropped_at IS NULL;
    IF NOT FOUND THEN
        RETURN NEXT ROW('/items/workflow', format('workflow %s does not exist', left(value::text, 80)),
                        _sas.meant(value #>> '{}', _sas.submittable_names(caller))
                        || 'Create it with sas.create_workflow.', '42704')::_sas.problem;
    ELSIF NOT _sas.may_submit(caller, f) THEN
        RETURN NEXT ROW('/items/workflow', format('permission denied for workflow "%s"', f.name),
                        'Its owner can grant it with sas.grant_workflow.', '42501')::_sas.problem;
    END IF;
END $$;

-- _sas.check_targets(definition, kind, caller): checks where the items of a watcher go.
CREATE FUNCTION _sas.check_targets(definition jsonb, kind text, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    value jsonb := definition -> 'items';
    targets text[];
BEGIN
    IF kind = 'function' THEN
        RETURN QUERY SELECT '/items', 'a watcher with a function has no items',
            'Leave it out. The function handles what it finds, and its result is the next cursor.', '22023'
            WHERE definition ? 'items';
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(value, '/items', '{function,table,workflow,item,key}');
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    targets := ARRAY(SELECT t FROM unnest('{function,table,workflow}'::text[]) t WHERE value ? t);
    IF cardinality(targets) <> 1 THEN
        RETURN NEXT ROW('/items', 'items need one of function, table and workflow',
                        'Write exactly one of them.', '22023')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_function(value -> 'function', '/items/function', caller, true)
        WHERE value ? 'function';
    RETURN QUERY SELECT * FROM _sas.check_target_table(value -> 'table', caller) WHERE value ? 'table';
    RETURN QUERY SELECT * FROM _sas.check_target_workflow(value -> 'workflow', caller)
        WHERE value ? 'workflow';
    RETURN QUERY SELECT * FROM _sas.check_templates(value -> 'item', '/items/item',
                                                    '{watcher,key,input,cursor,item}') WHERE value ? 'item';
    RETURN QUERY SELECT * FROM _sas.check_templates(value -> 'key', '/items/key',
                                                    '{watcher,key,input,cursor,item}') WHERE value ? 'key';
    RETURN QUERY SELECT '/items/key', 'only runs have keys', 'Leave it out, or write "workflow".', '22023'
        WHERE value ? 'key' AND targets[1] <> 'workflow';
END $$;

-- _sas.check_watcher(definition, caller): errors of the definition of a watcher.
CREATE FUNCTION _sas.check_watcher(definition jsonb, caller oid) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds text[];
    retry jsonb := definition -> 'retry';
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(definition, '',
            '{agent,stream,poll,function,external,every,schedule,items,cursor,retry}');
    IF jsonb_typeof(definition) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_definition_size(definition);
    IF FOUND THEN
        RETURN;
    END IF;
    kinds := ARRAY(SELECT k FROM unnest('{stream,poll,function,external}'::text[]) k WHERE definition ? k);
    IF cardinality(kinds) <> 1 THEN
        RETURN NEXT ROW('', 'a watcher needs one of stream, poll, function and external',
                        'Write exactly one of them.', '22023')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_watch_agent(definition, kinds[1]);
    RETURN QUERY SELECT * FROM _sas.check_stream(definition -> 'stream') WHERE definition ? 'stream';
    RETURN QUERY SELECT * FROM _sas.check_watch_poll(definition -> 'poll') WHERE definition ? 'poll';
    RETURN QUERY SELECT * FROM _sas.check_function(definition -> 'function', '/function', caller, true)
        WHERE definition ? 'function';
    RETURN QUERY SELECT * FROM _sas.check_templates(definition -> 'external', '/external',
                                                    '{watcher,key,input,cursor}')
        WHERE definition ? 'external';
    IF kinds[1] = 'function' THEN
        RETURN QUERY SELECT * FROM _sas.check_looks(definition, '', true);
    ELSE
        RETURN QUERY SELECT '/' || k, format('a watcher with "%s" has no "%s" here', kinds[1], k),
            'It belongs to "function". For a poll, write it inside "poll".', '22023'
            FROM unnest('{every,schedule}'::text[]) k WHERE definition ? k;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_targets(definition, kinds[1], caller);
    RETURN QUERY SELECT p.* FROM _sas.agent a
        CROSS JOIN LATERAL _sas.check_watch_use(
            caller, a.agent_id, kinds[1], coalesce(definition -> 'stream', definition #> '{poll,call}')) p
        WHERE a.name = definition ->> 'agent' AND a.dropped_at IS NULL;
    IF definition ? 'cursor' THEN
        RETURN QUERY SELECT * FROM _sas.check_keys(definition -> 'cursor', '/cursor', '{start,next}');
        RETURN QUERY SELECT * FROM _sas.check_templates(definition #> '{cursor,start}', '/cursor/start',
                                                        '{watcher,key,input}');
        RETURN QUERY SELECT * FROM _sas.check_templates(definition #> '{cursor,next}', '/cursor/next',
                                                        '{watcher,key,input,cursor,item}');
        RETURN QUERY SELECT '/cursor/next', 'the result of the function is the next cursor', 'Leave it out.',
            '22023' WHERE kinds[1] = 'function' AND definition #> '{cursor,next}' IS NOT NULL;
    END IF;
    IF retry IS NOT NULL THEN
        RETURN QUERY SELECT * FROM _sas.check_keys(retry, '/retry',
                                                   '{max_failures,initial,max,backoff,jitter,reset_after}');
        IF jsonb_typeof(retry) = 'object' THEN
            RETURN QUERY SELECT * FROM _sas.check_pauses(retry - 'reset_after', '/retry', 'max_failures') c
                WHERE c.problem NOT LIKE 'unknown key%';
            RETURN QUERY SELECT * FROM _sas.check_span(retry -> 'reset_after', '/retry/reset_after');
        END IF;
    END IF;
END $$;

-- _sas.own_watcher(caller, watcher_name): the watcher, locked, if the caller may change it; else raises an
-- error.
CREATE FUNCTION _sas.own_watcher(caller oid, watcher_name text) RETURNS _sas.watcher
LANGUAGE plpgsql AS $$
DECLARE
    d _sas.watcher;
BEGIN
    SELECT * INTO d FROM _sas.watcher x WHERE x.name = watcher_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('watcher', watcher_name, '/name',
                                    'See sas.watchers for existing watchers.');
    END IF;
    IF NOT _sas.may_change(caller, d.owner) THEN
        RAISE EXCEPTION 'must be owner of watcher "%"', watcher_name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
            HINT = 'Its owner, or a role with level admin, can do this; a superuser''s, superusers alone.';
    END IF;
    RETURN d;
END $$;

-- _sas.ms_of(name, span): an object with this interval in milliseconds; empty without an interval.
CREATE FUNCTION _sas.ms_of(name text, span jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN span IS NULL THEN '{}'
        ELSE jsonb_build_object(name, (extract(epoch FROM _sas.span(span)) * 1000)::bigint) END
$$;

-- _sas.compiled_watcher(name, definition): a checked definition in the form that hosts need.
CREATE FUNCTION _sas.compiled_watcher(name text, definition jsonb) RETURNS _sas.watcher
LANGUAGE plpgsql STABLE AS $$
DECLARE
    d _sas.watcher;
    place text[] := CASE WHEN definition ? 'poll' THEN '{poll,schedule}' ELSE '{schedule}' END;
    look jsonb := definition #> place;
BEGIN
    d.name := name;
    d.spec := btrim(look ->> 'spec');
    d.timezone := CASE WHEN look IS NOT NULL THEN _sas.check_spec(d.spec, look ->> 'timezone') END;
    d.jitter := coalesce(_sas.span(look -> 'jitter'), '0');
    -- the time zone of the session is stored, and shown
    d.definition := CASE WHEN look IS NULL THEN definition
        ELSE jsonb_set(definition, place || '{timezone}'::text[], to_jsonb(d.timezone)) END;
    d.kind := (SELECT k FROM unnest('{stream,poll,function,external}'::text[]) k WHERE definition ? k);
    d.lane := CASE d.kind WHEN 'function' THEN 0
        ELSE (SELECT a.agent_id FROM _sas.agent a WHERE a.name = definition ->> 'agent'
              AND a.dropped_at IS NULL) END;
    d.function := definition ->> 'function';
    d.every := _sas.span(coalesce(definition #> '{poll,every}', definition -> 'every'));
    d.request := CASE d.kind
        WHEN 'stream' THEN (definition -> 'stream') - 'idle_timeout'
            || _sas.ms_of('idle_timeout_ms', definition #> '{stream,idle_timeout}')
        WHEN 'poll' THEN (definition #> '{poll,call}') - 'timeout'
            || _sas.ms_of('timeout_ms', definition #> '{poll,call,timeout}')
            || _sas.ms_of('every_ms', definition #> '{poll,every}')
        WHEN 'external' THEN definition -> 'external' END;
    d.target_kind := (SELECT t FROM unnest('{function,table,workflow}'::text[]) t
                      WHERE definition -> 'items' ? t);
    d.target := definition -> 'items' ->> d.target_kind;
    d.target_item := definition #> '{items,item}';
    d.target_key := definition #> '{items,key}';
    d.cursor_start := definition #> '{cursor,start}';
    d.cursor_next := definition #> '{cursor,next}';
    d.retry := '{"initial": "1 s", "max": "5 min", "backoff": "exponential", "jitter": true, "reset_after": '
               '"1 min"}'::jsonb || coalesce(definition -> 'retry', '{}');
    RETURN d;
END $$;

-- _sas.record_watcher(caller, act, name, old, new): records which parts of the definition have changed.
-- Requests, inputs and cursors belong to its owner: their values are not for every reader of sas.history.
CREATE FUNCTION _sas.record_watcher(caller oid, act text, name text, old jsonb, new jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record_change(caller, act, jsonb_build_object('watcher', name), old, new,
                              ARRAY(SELECT jsonb_object_keys(coalesce(old, '{}') || coalesce(new, '{}'))
                                    EXCEPT VALUES ('agent'), ('function'), ('every'), ('spec'),
                                        ('timezone'), ('retry')))
$$;

-- _sas.create_watcher_as(caller, name, definition): the body of sas.create_watcher: creates the watcher, or
-- changes its definition, which its tasks then take over.
-- Locks: the watcher, and what the definition names. Writes: watcher. Next: hosts reload their tasks; the
-- supervisor checks them again.
CREATE FUNCTION _sas.create_watcher_as(caller oid, name text, definition jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    old _sas.watcher;
    d _sas.watcher;
BEGIN
    PERFORM _sas.hold_named($3);
    PERFORM _sas.raise(wrong) FROM _sas.check_name($2, '/name') wrong;
    PERFORM _sas.raise(wrong) FROM _sas.check_watcher($3, caller) wrong;
    d := _sas.compiled_watcher($2, $3);
    INSERT INTO _sas.watcher (name, owner, definition, change, kind, lane, request, function, every, spec,
                              timezone, jitter, target_kind, target, target_item, target_key,
                              cursor_start, cursor_next, retry, created_at, changed_at)
    VALUES ($2, caller, d.definition, 1, d.kind, d.lane, d.request, d.function, d.every, d.spec,
            d.timezone, d.jitter, d.target_kind, d.target, d.target_item, d.target_key,
            d.cursor_start, d.cursor_next, d.retry, sas.now(), sas.now())
    ON CONFLICT (name) DO NOTHING;
    IF FOUND THEN
        PERFORM _sas.check_definitions(caller);
        PERFORM _sas.record_watcher(caller, 'create_watcher', $2, NULL, d.definition);
        RETURN;
    END IF;
    old := _sas.own_watcher(caller, $2);
    IF d.lane <> old.lane AND EXISTS (SELECT FROM _sas.watch w WHERE w.watcher_id = old.watcher_id
                                      AND w.state <> 'deleted') THEN
        RAISE EXCEPTION 'cannot change the kind or agent of watcher "%" because it has tasks', $2
            USING ERRCODE = 'dependent_objects_still_exist',
                DETAIL = _sas.at(CASE WHEN d.lane > 0 THEN '/agent' ELSE '' END),
                HINT = 'Stop them with sas.unwatch first, or create another watcher.';
    END IF;
    UPDATE _sas.watcher x
    SET definition = d.definition, change = x.change + 1, kind = d.kind, lane = d.lane, request = d.request,
        function = d.function, every = d.every, spec = d.spec, timezone = d.timezone, jitter = d.jitter,
        target_kind = d.target_kind, target = d.target, target_item = d.target_item,
        target_key = d.target_key,
        cursor_start = d.cursor_start, cursor_next = d.cursor_next, retry = d.retry, changed_at = sas.now()
    WHERE x.watcher_id = old.watcher_id;
    PERFORM _sas.notify_hosts(ARRAY(SELECT w.watch_id FROM _sas.watch w
                                    WHERE w.watcher_id = old.watcher_id AND w.state = 'processing'));
    PERFORM _sas.record_watcher(caller, 'create_watcher', $2, old.definition, d.definition);
    -- a task that is being claimed just now may have read the old definition
    PERFORM _sas.check_watches(ARRAY(SELECT w.watch_id FROM _sas.watch w
                                     WHERE w.watcher_id = old.watcher_id AND w.state <> 'deleted'), '1 s');
END $$;

-- _sas.drop_watcher_as(caller, name): the body of sas.drop_watcher. Raises an error if a task is not deleted.
-- Locks: the watcher. Writes: watcher, and the rows of its deleted tasks.
CREATE FUNCTION _sas.drop_watcher_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    d _sas.watcher := _sas.own_watcher(caller, name);
    open text;
BEGIN
    -- waits for who is starting a task of it
    PERFORM FROM _sas.watcher x WHERE x.watcher_id = d.watcher_id FOR UPDATE;
    SELECT w.key INTO open FROM _sas.watch w WHERE w.watcher_id = d.watcher_id AND w.state <> 'deleted'
    LIMIT 1;
    IF open IS NOT NULL THEN
        RAISE EXCEPTION 'watcher "%" has tasks', $2
            USING ERRCODE = 'dependent_objects_still_exist',
                DETAIL = format('Task "%s" is not deleted.', open),
                HINT = 'Stop them with sas.unwatch first, and wait until they have ended.';
    END IF;
    PERFORM _sas.check_latest_use('watcher', d.watcher_id::text);
    PERFORM _sas.forget_watches(ARRAY(SELECT w.watch_id FROM _sas.watch w WHERE w.watcher_id = d.watcher_id));
    DELETE FROM _sas.watcher x WHERE x.watcher_id = d.watcher_id;
    PERFORM _sas.record_watcher(caller, 'drop_watcher', $2, d.definition, NULL);
END $$;
