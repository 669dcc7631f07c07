-- SPDX-License-Identifier: PostgreSQL
--
-- Agents: how they are created, changed, switched, reset and dropped. The public verbs are C functions:
-- they pass the caller's role on to _sas.<verb>_as, which runs with the rights of the owner of the
-- extension.

-- _sas.furnish(for_agent, places): gives an external agent that many slots. A slot in use is kept until it
-- is free.
-- Writes: external_slot.
CREATE FUNCTION _sas.furnish(for_agent int, places int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.external_slot (agent_id, place) SELECT for_agent, n
    FROM generate_series(1, places) n ON CONFLICT DO NOTHING;
    DELETE FROM _sas.external_slot d
    WHERE d.agent_id = for_agent
      AND d.place = ANY (ARRAY(SELECT p.place FROM _sas.external_slot p WHERE p.agent_id = for_agent
                               AND p.place > places AND p.request_id IS NULL FOR UPDATE SKIP LOCKED));
END $$;

-- _sas.rate_per_second(rate): tokens per second of a rate such as '500/min'; null if it is malformed.
CREATE FUNCTION _sas.rate_per_second(rate text) RETURNS float8
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN m[1]::float8 > 0 THEN
        m[1]::float8 / CASE m[2] WHEN 's' THEN 1 WHEN 'sec' THEN 1 WHEN 'second' THEN 1
                                 WHEN 'min' THEN 60 WHEN 'minute' THEN 60
                                 WHEN 'h' THEN 3600 WHEN 'hour' THEN 3600 ELSE 86400 END END
    FROM (SELECT regexp_match(rate, E'^\\s*([0-9]{1,9}(?:\\.[0-9]{1,6})?)'
                                    || E'\\s*/\\s*(s|sec|second|min|minute|h|hour|d|day)\\s*$') AS m) x
    WHERE m IS NOT NULL
$$;

-- _sas.check_rate(rate): errors of a rate.
CREATE FUNCTION _sas.check_rate(rate text) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT '/rate_limit', format('invalid rate "%s"', rate),
        'Write a positive number per s, min, h or day, such as "500/min".', '22023'
    WHERE rate IS NOT NULL AND _sas.rate_per_second(rate) IS NULL
$$;

-- _sas.check_external(a): errors of an external agent. It is a queue of tasks, so options for HTTP calls
-- have no meaning.
CREATE FUNCTION _sas.check_external(a _sas.agent) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT '/name', format('the name of an external agent has at most 53 bytes, not %s',
                           octet_length(a.name)), 'The channel sas_agent_<name> must be a name, too.', '42602'
    WHERE octet_length(a.name) BETWEEN 54 AND 63
    UNION ALL SELECT '/' || p.key, format('an external agent has no %s', p.key),
        'Outside programs claim its tasks with sas.claim; nothing is called.', '22023'
    FROM (VALUES ('base_url', a.base_url IS NOT NULL), ('headers', a.headers <> '{}'),
          ('request_timeout', a.request_timeout <> '30 s'), ('breaker', a.breaker <> '{}'),
          ('options', a.options <> '{}')) AS p (key, said) WHERE p.said
    UNION ALL SELECT * FROM _sas.check_rate(a.rate_limit)
    UNION ALL SELECT '/max_in_flight', format('max_in_flight %s is not between 1 and 10000', a.max_in_flight),
        'It is the number of tasks that may be held at once.', '22023'
        WHERE a.max_in_flight NOT BETWEEN 1 AND 10000
    UNION ALL SELECT * FROM _sas.check_pauses(a.retry, '/retry', 'max_attempts')
    UNION ALL SELECT * FROM _sas.check_task_retry(a.retry, '/retry')
$$;

-- _sas.check_agent(a): errors of an agent.
CREATE FUNCTION _sas.check_agent(a _sas.agent) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    why text;
    plain jsonb := CASE jsonb_typeof(a.options) WHEN 'object' THEN a.options - 'concurrency' ELSE '{}' END;
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_name(a.name, '/name');
    IF a.kind = 'external' THEN
        RETURN QUERY SELECT * FROM _sas.check_external(a);
        RETURN;
    ELSIF a.kind IS DISTINCT FROM 'http' THEN
        RETURN NEXT ROW('/kind', format('unknown kind of agent "%s"', a.kind), 'Use "http" or "external".',
                        '22023')::_sas.problem;
    END IF;
    why := CASE WHEN a.base_url IS NULL THEN 'it is missing' ELSE _sas.url_problem(a.base_url) END;
    IF why IS NOT NULL THEN
        RETURN NEXT ROW('/base_url', format('base_url is not usable: %s', why),
                        'Write an absolute http or https URL without user, query and fragment.',
                        '22023')::_sas.problem;
    END IF;
    IF a.max_in_flight NOT BETWEEN 1 AND 1000000 THEN
        RETURN NEXT ROW('/max_in_flight',
                        format('max_in_flight %s is not between 1 and 1000000', a.max_in_flight),
                        'It is the number of calls that may be in flight at once.', '22023')::_sas.problem;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_rate(a.rate_limit);
    IF a.request_timeout <= '0' OR a.request_timeout > '1 day' THEN
        RETURN NEXT ROW('/request_timeout', 'request_timeout must be positive and at most a day',
                        'Write it with a unit, such as ''30 s''.', '22023')::_sas.problem;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_headers(a.headers, '/headers')
    UNION ALL SELECT * FROM _sas.check_pauses(a.retry, '/retry', 'max_attempts')
    UNION ALL SELECT * FROM _sas.check_keys(a.breaker, '/breaker', '{failures,window,open_for,off,paths}')
    UNION ALL SELECT * FROM _sas.check_number(a.breaker -> 'failures', '/breaker/failures', 1, 1000000)
    UNION ALL SELECT * FROM _sas.check_span(a.breaker -> 'window', '/breaker/window')
    UNION ALL SELECT * FROM _sas.check_span(a.breaker -> 'open_for', '/breaker/open_for')
    UNION ALL SELECT * FROM _sas.check_boolean(a.breaker -> 'off', '/breaker/off')
    UNION ALL SELECT * FROM _sas.check_breaker_paths(a.breaker -> 'paths')
    UNION ALL SELECT * FROM _sas.check_agent_options(a.options)
    UNION ALL SELECT '/headers/' || h, 'an agent with oauth2 makes this header itself', 'Leave it out.',
        '22023'
    FROM jsonb_object_keys(CASE jsonb_typeof(a.headers) WHEN 'object' THEN a.headers ELSE '{}' END) h
    WHERE a.options ? 'oauth2' AND lower(h) = 'authorization'
    UNION ALL SELECT part.place || r.pointer,
        format('"%s" is not a reference to a secret', coalesce(r.path, '')),
        'Templates of an agent can refer to {{secret.NAME}} only.', '42P10'
    FROM (VALUES ('/headers', a.headers), ('/options', plain)) AS part (place, value)
    CROSS JOIN LATERAL _sas.references(part.value) r
    WHERE r.problem IS NOT NULL OR r.root IS DISTINCT FROM 'secret' OR r.member IS NULL
    UNION ALL SELECT part.place || r.pointer, format('secret "%s" does not exist', r.member),
        'Set it with sas.set_secret first.', '42704'
    FROM (VALUES ('/headers', a.headers), ('/options', plain)) AS part (place, value)
    CROSS JOIN LATERAL _sas.references(part.value) r
    WHERE r.problem IS NULL AND r.root = 'secret'
      AND NOT EXISTS (SELECT FROM _sas.secret s WHERE s.name = r.member);
END $$;

-- _sas.check_breaker_paths(paths): errors of the list of paths that have a breaker of their own.
CREATE FUNCTION _sas.check_breaker_paths(paths jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql STABLE AS $$
    SELECT '/breaker/paths', 'expected an array of at most 15 paths, each of which begins with /',
        'Write it as ["/charges", "/refunds"].', '22023'
    WHERE CASE jsonb_typeof(paths) WHEN 'array' THEN jsonb_array_length(paths) > 15 ELSE true END
      AND paths IS NOT NULL
    UNION ALL
    SELECT w.place, w.item || ' is not a path such as "/charges"', 'Write it as ["/charges", "/refunds"].',
        '22023'
    FROM _sas.wrong_items(paths, '^/[^?#]*$', '/breaker/paths') w WHERE w.item IS NOT NULL
$$;

-- _sas.live_agent(agent_name, place): the agent, locked; raises an error if it does not exist. place: the
-- argument that names it.
CREATE FUNCTION _sas.live_agent(agent_name text, place text DEFAULT '/name') RETURNS _sas.agent
LANGUAGE plpgsql AS $$
DECLARE
    a _sas.agent;
BEGIN
    SELECT * INTO a FROM _sas.agent WHERE agent.name = agent_name AND dropped_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('agent', agent_name, place, 'See sas.agents for existing agents.',
                                    ARRAY(SELECT x.name FROM _sas.agent x WHERE x.dropped_at IS NULL));
    END IF;
    RETURN a;
END $$;

-- _sas.hold_secrets(headers, options): no other session drops the secrets that an agent names, until this
-- transaction ends. Comes before the check of that agent.
-- Locks: the secrets.
CREATE FUNCTION _sas.hold_secrets(headers jsonb, options jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.secret s WHERE s.name = ANY (_sas.secrets_named(headers, options))
    ORDER BY s.name FOR KEY SHARE;
END $$;

-- _sas.publish_agent(agent_id): makes workers reload the agents, and wakes those that can work for this
-- one.
-- Wakes: the workers of the agent.
CREATE FUNCTION _sas.publish_agent(agent_id int) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.announce_agents();
    SELECT _sas.wake(_sas.notify_outside(ARRAY[agent_id]));
    SELECT _sas.notify_lanes(ARRAY[agent_id])
    WHERE EXISTS (SELECT FROM _sas.watch_wait q WHERE q.lane = agent_id);
$$;

-- _sas.agent_facts(a): the definition of an agent, for the history; null: it does not exist.
CREATE FUNCTION _sas.agent_facts(a _sas.agent) RETURNS jsonb
LANGUAGE sql STABLE SET intervalstyle = 'postgres' AS $$
    SELECT to_jsonb(a)
           - '{agent_id,name,rate_per_s,created_at,dropped_at,secrets,by_superuser}'::text[]
    WHERE a.name IS NOT NULL
$$;

-- _sas.record_agent(caller, act, old, new): records a change of an agent. Headers and options may contain
-- secrets: the history says that they changed, not their values.
CREATE FUNCTION _sas.record_agent(caller oid, act text, old _sas.agent, new _sas.agent) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.record_change(caller, act, jsonb_build_object('agent', coalesce(new.name, old.name)),
                              _sas.agent_facts(old), _sas.agent_facts(new), '{headers,options}')
$$;

-- _sas.create_agent_as(caller, name, ...): the body of sas.create_agent: creates the agent, or replaces all
-- of its definition except its kind.
-- Locks: the agent; its secrets. Writes: agent, agent_health, external_slot. Next: workers reload the agents.
CREATE FUNCTION _sas.create_agent_as(caller oid, name text, base_url text, kind text, headers jsonb,
                                     max_in_flight int, rate_limit text, request_timeout interval,
                                     retry jsonb, breaker jsonb, options jsonb)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    a _sas.agent;
    before _sas.agent;
    old int;
BEGIN
    SELECT * INTO before FROM _sas.agent x WHERE x.name = name AND x.dropped_at IS NULL FOR NO KEY UPDATE;
    old := before.agent_id;
    a := ROW(old, name, kind, regexp_replace(base_url, '/+$', ''), coalesce(headers, '{}'),
             coalesce(max_in_flight, 100), rate_limit, _sas.rate_per_second(rate_limit),
             coalesce(request_timeout, '30 s'), coalesce(retry, '{}'), coalesce(breaker, '{}'),
                 coalesce(options, '{}'), true, sas.now(), NULL, '{}', false)::_sas.agent;
    PERFORM _sas.hold_secrets(a.headers, a.options);
    PERFORM _sas.raise(wrong) FROM _sas.check_agent(a) wrong;
    PERFORM _sas.check_agent_files(caller, before.options, a.options);
    a.by_superuser := _sas.check_destination(caller, before, a, true);
    IF EXISTS (SELECT FROM _sas.agent x WHERE x.agent_id = old AND x.kind <> kind) THEN
        RAISE EXCEPTION 'the kind of agent "%" cannot be changed', name
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /kind.',
            HINT = 'Create another agent.';
    END IF;
    IF old IS NULL THEN
        INSERT INTO _sas.agent (name, kind, base_url, headers, max_in_flight, rate_limit, rate_per_s,
                                request_timeout, retry, breaker, options, created_at, secrets, by_superuser)
        VALUES (a.name, a.kind, a.base_url, a.headers, a.max_in_flight, a.rate_limit, a.rate_per_s,
                a.request_timeout, a.retry, a.breaker, a.options, a.created_at,
                _sas.secrets_named(a.headers, a.options), a.by_superuser)
        RETURNING agent_id INTO old;
        INSERT INTO _sas.agent_health (agent_id) VALUES (old);
    ELSE
        PERFORM _sas.write_agent(a);
        PERFORM _sas.key_has_changed(before, a);
        PERFORM _sas.say_defaults(before, a);
    END IF;
    PERFORM _sas.furnish(old, a.max_in_flight) WHERE a.kind = 'external';
    PERFORM _sas.publish_agent(old);
    PERFORM _sas.record_agent(caller, 'create_agent', before, a);
END $$;

-- _sas.agent_defaults(): the options of an agent that has none of its own.
CREATE FUNCTION _sas.agent_defaults() RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('headers', '{}'::jsonb, 'max_in_flight', 100, 'rate_limit', NULL,
                              'request_timeout', '30 s'::interval, 'retry', '{}'::jsonb,
                              'breaker', '{}'::jsonb, 'options', '{}'::jsonb, 'enabled', true)
$$;

-- _sas.say_defaults(before, a): sends a NOTICE with the options that create_agent has reset to their
-- default in an existing agent. create_agent replaces everything, and an omitted option is easily
-- forgotten.
CREATE FUNCTION _sas.say_defaults(before _sas.agent, a _sas.agent) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    names text := (SELECT string_agg(f.key, ', ' ORDER BY f.key) FROM jsonb_each(_sas.agent_defaults()) f
                   WHERE to_jsonb(a) -> f.key = f.value AND to_jsonb(before) -> f.key <> f.value);
BEGIN
    IF names IS NOT NULL THEN
        RAISE NOTICE 'agent "%" exists, and went back to the default of: %', a.name, names
            USING HINT = 'sas.alter_agent leaves what is not named as it is.';
    END IF;
END $$;

-- _sas.secrets_named(headers, options): the secrets to which an agent refers.
CREATE FUNCTION _sas.secrets_named(headers jsonb, options jsonb) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT DISTINCT r.member FROM _sas.references(jsonb_build_array(headers, options)) r
                 WHERE r.root = 'secret' AND r.member IS NOT NULL ORDER BY 1)
$$;

-- _sas.check_destination(caller, before, a, says): by_superuser of an agent that this role writes. says: it
-- has given parts of the definition that determine where the agent sends its secrets. Raises an error if a
-- role that is no superuser would determine that for a secret of a superuser. The secrets are locked, so that
-- _sas.write_secret sees the agent.
CREATE FUNCTION _sas.check_destination(caller oid, before _sas.agent, a _sas.agent, says boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    harmless text[] := '{max_response,max_streams,connect_timeout,keep,http_version,concurrency}';
    r record;
BEGIN
    IF says AND _sas.is_superuser(caller) THEN
        RETURN true;
    ELSIF before.name IS NOT NULL AND (before.base_url, before.headers, before.options - harmless)
          IS NOT DISTINCT FROM (a.base_url, a.headers, a.options - harmless) THEN
        RETURN before.by_superuser;
    END IF;
    PERFORM FROM _sas.secret s WHERE s.name = ANY (_sas.secrets_named(a.headers, a.options))
    ORDER BY s.name FOR SHARE;
    SELECT s.name, part.place || x.pointer AS place INTO r
    FROM (VALUES ('/headers', a.headers), ('/options', a.options)) AS part (place, value)
    CROSS JOIN LATERAL _sas.references(part.value) x
    JOIN _sas.secret s ON x.root = 'secret' AND s.name = x.member AND s.by_superuser
    ORDER BY 2 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'permission denied for secret "%"', r.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = _sas.at(r.place),
                HINT = 'A superuser has set it. Only superusers determine where it is sent: by base_url, '
                       'headers and options of an agent.';
    END IF;
    RETURN false;
END $$;

-- _sas.write_agent(a): stores the definition of an agent that exists.
-- Caller: holds the lock of its row. Writes: agent.
CREATE FUNCTION _sas.write_agent(a _sas.agent) RETURNS void
LANGUAGE sql AS $$
    UPDATE _sas.agent
    SET base_url = a.base_url, headers = a.headers, max_in_flight = a.max_in_flight,
        rate_limit = a.rate_limit, rate_per_s = a.rate_per_s, request_timeout = a.request_timeout,
        retry = a.retry, breaker = a.breaker, options = a.options, enabled = a.enabled,
        secrets = _sas.secrets_named(a.headers, a.options), by_superuser = a.by_superuser
    WHERE agent.agent_id = a.agent_id;
$$;

-- _sas.key_has_changed(before, a): what is parked under the old key of this agent gets a new key.
-- Writes: freed_key. Wakes: the scheduler.
CREATE FUNCTION _sas.key_has_changed(before _sas.agent, a _sas.agent) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF before.options -> 'concurrency' IS DISTINCT FROM a.options -> 'concurrency' THEN
        INSERT INTO _sas.freed_key (queue_id) VALUES (-a.agent_id);
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.alter_agent_as(caller, name, ..., reset): the body of sas.alter_agent: changes what is given, and sets
-- what "reset" names to its default.
-- Locks: the agent; its secrets. Writes: agent, external_slot. Next: workers reload the agents.
CREATE FUNCTION _sas.alter_agent_as(caller oid, name text, base_url text, kind text, headers jsonb,
                                    max_in_flight int, rate_limit text, request_timeout interval, retry jsonb,
                                    breaker jsonb, options jsonb, enabled boolean, reset text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a _sas.agent := _sas.live_agent(name);
    before _sas.agent := a;
    known text[] := '{headers,max_in_flight,rate_limit,request_timeout,retry,breaker,options,enabled}';
    given text;
    unknown record;
BEGIN
    FOR unknown IN SELECT x.name, x.n - 1 AS n FROM unnest(reset) WITH ORDINALITY AS x (name, n)
                   WHERE (x.name = ANY (known)) IS NOT TRUE ORDER BY x.n LOOP
        RAISE EXCEPTION 'cannot reset %', coalesce('"' || unknown.name || '"', 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = _sas.at('/reset/' || unknown.n),
                HINT = 'These can be reset: ' || array_to_string(known, ', ') || '.';
    END LOOP;
    SELECT g.key INTO given
    FROM jsonb_each(jsonb_build_object('headers', headers, 'max_in_flight', max_in_flight, 'rate_limit',
                                       rate_limit, 'request_timeout', request_timeout, 'retry', retry,
                                       'breaker', breaker, 'options', options, 'enabled', enabled)) g
    WHERE g.key = ANY (reset) AND g.value <> 'null' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% is both given and reset', given
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /reset.',
            HINT = 'Give a value, or reset it to its default.';
    ELSIF kind IS NOT NULL AND kind <> a.kind THEN
        RAISE EXCEPTION 'the kind of agent "%" cannot be changed', name
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /kind.',
            HINT = 'Create another agent.';
    END IF;
    a := jsonb_populate_record(a, (SELECT jsonb_object_agg(d.key, d.value)
                                   FROM jsonb_each(_sas.agent_defaults()) d WHERE d.key = ANY (reset)));
    a.base_url := coalesce(regexp_replace(base_url, '/+$', ''), a.base_url);
    a.headers := coalesce(headers, a.headers);
    a.max_in_flight := coalesce(max_in_flight, a.max_in_flight);
    a.rate_limit := coalesce(rate_limit, a.rate_limit);
    a.rate_per_s := _sas.rate_per_second(a.rate_limit);
    a.request_timeout := coalesce(request_timeout, a.request_timeout);
    a.retry := coalesce(retry, a.retry);
    a.breaker := coalesce(breaker, a.breaker);
    a.options := coalesce(options, a.options);
    a.enabled := coalesce(enabled, a.enabled);
    PERFORM _sas.hold_secrets(a.headers, a.options);
    PERFORM _sas.raise(wrong) FROM _sas.check_agent(a) wrong;
    PERFORM _sas.check_agent_files(caller, (SELECT x.options FROM _sas.agent x WHERE x.agent_id = a.agent_id),
                                   a.options);
    a.by_superuser := _sas.check_destination(
        caller, before, a, num_nonnulls(base_url, headers, options) > 0 OR reset && '{headers,options}');
    PERFORM _sas.write_agent(a);
    PERFORM _sas.key_has_changed(before, a);
    PERFORM _sas.furnish(a.agent_id, a.max_in_flight) WHERE a.kind = 'external';
    PERFORM _sas.publish_agent(a.agent_id);
    PERFORM _sas.record_agent(caller, 'alter_agent', before, a);
END $$;

-- _sas.switch_agent(caller, name, enable): allows claims for an agent, or stops them. False: nothing has
-- changed.
-- Next: workers reload the agent.
CREATE FUNCTION _sas.switch_agent(caller oid, name text, enable boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    a _sas.agent := _sas.live_agent(name);
BEGIN
    IF a.enabled = enable THEN
        RETURN false;
    END IF;
    a.enabled := enable;
    PERFORM _sas.write_agent(a);
    PERFORM _sas.publish_agent(a.agent_id);
    PERFORM _sas.record_change(caller, CASE WHEN enable THEN 'resume_agent' ELSE 'pause_agent' END,
                               jsonb_build_object('agent', a.name));
    RETURN true;
END $$;

-- _sas.pause_agent_as(caller, name): the body of sas.pause_agent.
CREATE FUNCTION _sas.pause_agent_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_agent(caller, name, false)
$$;

-- _sas.resume_agent_as(caller, name): the body of sas.resume_agent.
CREATE FUNCTION _sas.resume_agent_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_agent(caller, name, true)
$$;

-- _sas.reset_agent_as(caller, name): the body of sas.reset_agent: an open breaker lets a probe through, and
-- the cool-offs of this agent's steps end now.
-- Locks: the agent, the runs of these steps that no other session has locked. Writes: message, step. Wakes:
-- the scheduler, workers of the agent.
CREATE FUNCTION _sas.reset_agent_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    a _sas.agent := _sas.live_agent(name);
    ids bigint[];
    now timestamptz := sas.now();
BEGIN
    -- in shared memory only: the row belongs to the workers, and no session may lock it. At commit: a worker
    -- that took work before this transaction announces it would count that as found late
    PERFORM _sas.half_open(a.agent_id);
    -- locks the runs whose cool-offs end here first, so that no tick waits for this transaction; a run that
    -- another session has locked keeps its cool-off
    PERFORM _sas.wake_on_abort();
    ids := _sas.lock_runs(ARRAY(
        SELECT d.run_id FROM _sas.message d
        JOIN _sas.step s ON s.run_id = d.run_id AND s.step_no = d.step_no AND s.element = d.element
        JOIN _sas.run x ON x.run_id = d.run_id
        JOIN _sas.workflow_step w ON w.version_id = x.version_id AND w.step_no = d.step_no
            AND w.undo = (s.state = 'compensating')
        WHERE d.actor = 's' AND d.kind = 'ready' AND d.due_at > now AND w.lane = a.agent_id));
    -- cool-offs of this agent's steps are due now; its rate and slots release them
    UPDATE _sas.message d SET due_at = now
    FROM _sas.step s, _sas.run r, _sas.workflow_step w
    WHERE d.actor = 's' AND d.kind = 'ready' AND d.due_at > now AND d.run_id = ANY (ids)
      AND s.run_id = d.run_id AND s.step_no = d.step_no AND s.element = d.element
      AND r.run_id = d.run_id AND w.version_id = r.version_id AND w.step_no = d.step_no
          AND w.undo = (s.state = 'compensating') AND w.lane = a.agent_id;
    UPDATE _sas.step s SET waiting_until = now
    FROM _sas.message d
    WHERE d.actor = 's' AND d.kind = 'ready' AND d.due_at <= now AND d.run_id = ANY (ids)
      AND s.run_id = d.run_id AND s.step_no = d.step_no AND s.element = d.element
          AND s.waiting_until > now;
    PERFORM _sas.publish_agent(a.agent_id);
    PERFORM _sas.wake(scheduler => true);
    PERFORM _sas.record_change(caller, 'reset_agent', jsonb_build_object('agent', name));
END $$;
