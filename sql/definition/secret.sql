-- SPDX-License-Identifier: PostgreSQL
--
-- Secrets, and agents as workers know them: with the values of their secrets filled in.

-- _sas.read_secret_file(file): the value in a file below sas.secret_directory. value null: problem says why
-- the file cannot be used, with its SQLSTATE.
CREATE FUNCTION _sas.read_secret_file(file text, OUT value text, OUT problem text, OUT sqlstate text)
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_read_secret_file';

-- _sas.secret_file_stamp(file): a stamp of the file; if it differs from an earlier one, the file may have
-- another value.
CREATE FUNCTION _sas.secret_file_stamp(file text) RETURNS text
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_secret_file_stamp';

-- _sas.secret_file_identity(file): which file that is, whatever leads to it; null: it cannot be opened.
CREATE FUNCTION _sas.secret_file_identity(file text) RETURNS text
LANGUAGE sql VOLATILE STRICT AS $$
    SELECT substring(_sas.secret_file_stamp(file) FROM '^[0-9]+[.][0-9]+[.]')
$$;

-- _sas.keep_former_secret(secret, former): keeps a former value, so that it is still masked: a call with it
-- may be open, or be tried again, and a service may repeat it. The newest 16 values of a secret are kept.
-- Writes: former_secret. Next: _sas.forget_secrets.
CREATE FUNCTION _sas.keep_former_secret(secret text, former text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.former_secret AS f VALUES (secret, former, sas.now())
    ON CONFLICT ON CONSTRAINT former_secret_pkey DO UPDATE SET changed_at = EXCLUDED.changed_at;
    DELETE FROM _sas.former_secret f
    USING (SELECT x.value FROM _sas.former_secret x WHERE x.name = secret
           ORDER BY x.changed_at DESC OFFSET 16) surplus
    WHERE f.name = secret AND f.value = surplus.value;
$$;

-- _sas.own_secret(caller, secret): the secret, locked; null: it does not exist. Raises an error if a
-- superuser has set it and the caller is none.
CREATE FUNCTION _sas.own_secret(caller oid, secret text) RETURNS _sas.secret
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.secret;
BEGIN
    SELECT * INTO s FROM _sas.secret x WHERE x.name = secret FOR UPDATE;
    IF s.by_superuser AND NOT _sas.is_superuser(caller) THEN
        RAISE EXCEPTION 'permission denied for secret "%"', secret
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
                HINT = 'A superuser has set it. Only superusers change or drop it.';
    END IF;
    RETURN s;
END $$;

-- _sas.check_senders(secret, file, by_superuser): what a superuser has set is sent only by agents that a
-- superuser has defined, and has its value from a file that no other role uses. Raises an error otherwise.
CREATE FUNCTION _sas.check_senders(secret text, file text, by_superuser boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    other text;
    identity text := _sas.secret_file_identity($2);
BEGIN
    SELECT a.name INTO other FROM _sas.agent a
    WHERE a.dropped_at IS NULL AND secret = ANY (a.secrets) AND NOT a.by_superuser AND $3
    ORDER BY a.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'agent "%" would send secret "%"', other, secret
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'You are a superuser, and a role that is none determines where this agent sends it.',
                HINT = 'Set it as that role (SET ROLE). Or check the agent, and then give its base_url, '
                       'headers or options with sas.alter_agent.';
    END IF;
    -- the same file may have several names
    SELECT s.name INTO other FROM _sas.secret s
    WHERE s.name <> secret AND s.by_superuser <> $3
      AND (s.file = $2 OR _sas.secret_file_identity(s.file) = identity)
    ORDER BY s.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'file "%" has the value of secret "%"', file, other
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /file.',
                HINT = CASE WHEN by_superuser THEN 'A role that is no superuser has set it. Drop it first.'
                       ELSE 'A superuser has set it. Name another file.' END;
    END IF;
    -- a platform replaces files: two names of one file may have led to the old and to the new one
    IF _sas.secret_file_identity($2) IS DISTINCT FROM identity THEN
        RAISE EXCEPTION 'file "%" has just changed', file
            USING ERRCODE = 'object_in_use', DETAIL = 'At /file.', HINT = 'Try again.';
    END IF;
END $$;

-- _sas.write_secret(caller, act, name, value, file): stores a secret; either value or file is null.
-- Writes: secret. Wakes: the workers of the agents that refer to it. Next: they reload these agents.
CREATE FUNCTION _sas.write_secret(caller oid, act text, name text, value text, file text) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    before _sas.secret;
BEGIN
    -- one after another, so that no two of them use the same file
    LOCK TABLE _sas.secret IN SHARE ROW EXCLUSIVE MODE;
    PERFORM _sas.check_latest_secrets() WHERE file IS NOT NULL;
    before := _sas.own_secret(caller, name);
    INSERT INTO _sas.secret AS s (name, value, file, changed_at, by_superuser)
    VALUES (name, value, file, sas.now(), _sas.is_superuser(caller))
    ON CONFLICT ON CONSTRAINT secret_pkey DO UPDATE
        SET value = EXCLUDED.value, file = EXCLUDED.file, changed_at = EXCLUDED.changed_at,
            by_superuser = EXCLUDED.by_superuser;
    PERFORM _sas.check_senders(name, file, _sas.is_superuser(caller));
    PERFORM _sas.keep_former_secret(name, before.value)
    WHERE before.value IS NOT NULL AND before.value IS DISTINCT FROM value;
    PERFORM _sas.announce_agents();
    -- steps of an agent whose secret was missing wait for this only
    PERFORM _sas.wake(ARRAY(SELECT a.agent_id FROM _sas.agent a
                            WHERE a.dropped_at IS NULL AND name = ANY (a.secrets)));
    PERFORM _sas.record_change(caller, act, jsonb_strip_nulls(jsonb_build_object(
        'secret', name, 'file', file, 'changed', before.name IS NOT NULL)));
END $$;

-- _sas.set_secret_as(caller, name, value): the body of sas.set_secret. Next: _sas.write_secret.
CREATE FUNCTION _sas.set_secret_as(caller oid, name text, value text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name(name, '/name') wrong;
    IF coalesce(value, '') = '' OR value ~ E'[\\x01-\\x1f\\x7f]' THEN
        RAISE EXCEPTION 'the value of secret "%" is empty or contains control characters', name
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /value.',
                HINT = 'Use sas.drop_secret to take a secret away.';
    END IF;
    PERFORM _sas.write_secret(caller, 'set_secret', name, value, NULL);
END $$;

-- _sas.set_secret_file_as(caller, name, file): the body of sas.set_secret_file: stores the path; workers read
-- the file. It is read here once, so that a wrong path is an error now. Next: _sas.write_secret.
CREATE FUNCTION _sas.set_secret_file_as(caller oid, name text, file text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    problem text;
    sqlstate text;
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name(name, '/name') wrong;
    SELECT r.problem, r.sqlstate INTO problem, sqlstate
    FROM _sas.read_secret_file(coalesce(file, '')) r;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'file "%" of secret "%" %', coalesce(file, ''), name, problem
            USING ERRCODE = sqlstate, DETAIL = 'At /file.',
                HINT = 'A superuser sets sas.secret_directory; write the path below it, such as "token" or '
                       '"payments/token".';
    END IF;
    PERFORM _sas.write_secret(caller, 'set_secret_file', name, NULL, file);
END $$;

-- _sas.drop_secret_as(caller, name): the body of sas.drop_secret. Raises an error if an agent refers to the
-- secret.
-- Locks: the secret. Writes: secret.
CREATE FUNCTION _sas.drop_secret_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    used text;
BEGIN
    PERFORM _sas.own_secret(caller, name);
    SELECT a.name INTO used FROM _sas.agent a
    WHERE a.dropped_at IS NULL AND $2 = ANY (a.secrets) ORDER BY a.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'secret "%" is in use', name
            USING ERRCODE = 'dependent_objects_still_exist',
            DETAIL = format('Agent "%s" refers to it.', used),
            HINT = 'Change the agent first, or set the secret to another value.';
    END IF;
    PERFORM _sas.check_latest_use('secret', name);
    DELETE FROM _sas.secret s WHERE s.name = $2;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('secret', name, '/name',
                                    'Set it with sas.set_secret; an agent that needs it names it as '
                                    '{{secret.NAME}}.');
    END IF;
    PERFORM _sas.record_change(caller, 'drop_secret', jsonb_build_object('secret', name));
END $$;

-- _sas.secret_values(names): these secrets with their values, former values, and errors of their files. The
-- stamp is taken first, so that a file which changes meanwhile is read again.
CREATE FUNCTION _sas.secret_values(names text[])
RETURNS TABLE (name text, value text, former text[], file text, stamp text, problem text,
               by_superuser boolean)
LANGUAGE sql VOLATILE AS $$
    WITH stamped AS MATERIALIZED (
        SELECT s.name, s.value, s.file, _sas.secret_file_stamp(s.file) AS stamp, s.by_superuser
        FROM _sas.secret s WHERE s.name = ANY (names))
    SELECT s.name, coalesce(s.value, f.value, ''),
           ARRAY(SELECT o.value FROM _sas.former_secret o WHERE o.name = s.name), s.file, s.stamp,
           format('file "%s" of secret "%s" ', s.file, s.name) || f.problem, s.by_superuser
    FROM stamped s LEFT JOIN LATERAL _sas.read_secret_file(s.file) f ON s.file IS NOT NULL
$$;

-- _sas.shared_agents(): the agents that several roles may use, by grants.
CREATE FUNCTION _sas.shared_agents() RETURNS int[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(x.agent_id), '{}')
    FROM (SELECT g.agent_id FROM _sas.agent_grant g GROUP BY 1
          HAVING count(*) > 1
              OR bool_or(EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = g.role))) x
$$;

-- _sas.agents_with(secrets, wanted): these agents as a worker needs them. secrets: rows of
-- _sas.secret_values, by name.
CREATE FUNCTION _sas.agents_with(secrets jsonb, wanted int[]) RETURNS SETOF _sas.worker_agent
LANGUAGE sql STABLE AS $$
    -- read once, whatever the planner thinks of the number of agents
    WITH shared AS MATERIALIZED (SELECT _sas.shared_agents() AS agents),
    known AS MATERIALIZED (
        SELECT coalesce(jsonb_object_agg(key, value -> 'value'), '{}') AS of_all,
               coalesce(jsonb_object_agg(key, value -> 'value')
                        FILTER (WHERE NOT (value ->> 'by_superuser')::boolean), '{}') AS of_others
        FROM jsonb_each($1))
    SELECT a.agent_id, a.name, a.base_url,
           a.enabled AND h.problem IS NULL AND o.problem IS NULL, a.max_in_flight,
           coalesce(a.rate_per_s, 0), extract(epoch FROM a.request_timeout)::float8 * 1000,
           h.result, o.result -> 'query', o.result,
           CASE WHEN a.retry = '{}' THEN '{}' ELSE coalesce(_sas.read_retry(a.retry), '{}') END,
           CASE WHEN (a.breaker ->> 'off')::boolean THEN 0
                ELSE coalesce((a.breaker ->> 'failures')::int, 10) END,
           extract(epoch FROM coalesce(_sas.span(a.breaker -> 'window'), '30 s'))::float8 * 1000,
           extract(epoch FROM coalesce(_sas.span(a.breaker -> 'open_for'), '30 s'))::float8 * 1000,
           coalesce(g.breaker, 'closed'),
               greatest(0, extract(epoch FROM g.open_until - sas.now()))::float8 * 1000,
           coalesce(_sas.size_bytes(a.options ->> 'max_response'), 8 * 1024 * 1024),
           extract(epoch FROM coalesce(_sas.span(a.options -> 'connect_timeout'), '5 s'))::float8 * 1000,
           -- longest first: one secret may be the beginning of another, and must be masked after it
           ARRAY(SELECT v FROM (SELECT c FROM unnest(k.current) c
                                UNION SELECT f FROM jsonb_array_elements_text(k.former) f) x (v)
                 ORDER BY length(v) DESC, v),
           ARRAY(SELECT jsonb_array_elements_text(a.breaker -> 'paths')), NULL::text, k.current, k.files,
           k.stamps, k.problem, a.agent_id = ANY (shared.agents)
    FROM _sas.agent a
    LEFT JOIN _sas.agent_health g USING (agent_id)
    CROSS JOIN shared
    CROSS JOIN known
    CROSS JOIN LATERAL (SELECT jsonb_build_object('secret', CASE WHEN a.by_superuser THEN known.of_all
                                                            ELSE known.of_others END)) x (root)
    CROSS JOIN LATERAL _sas.render(a.headers, x.root) h
    CROSS JOIN LATERAL _sas.render(a.options - 'concurrency', x.root) o
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(e ->> 'value') FILTER (WHERE e ->> 'value' <> ''), '{}'),
               (SELECT coalesce(jsonb_agg(f), '[]')
                FROM unnest(a.secrets) m, jsonb_array_elements($1 -> m -> 'former') f),
               array_agg(e ->> 'file' ORDER BY n) FILTER (WHERE e ->> 'file' IS NOT NULL),
               array_agg(e ->> 'stamp' ORDER BY n) FILTER (WHERE e ->> 'file' IS NOT NULL),
               string_agg(DISTINCT e ->> 'problem', '; ')
        FROM unnest(a.secrets) n
        CROSS JOIN LATERAL (SELECT $1 -> n) s (e)) k (current, former, files, stamps, problem)
    WHERE a.agent_id = ANY (wanted)
$$;

-- _sas.agent_versions(): the agents that workers call, each with a version made of the transaction ids that
-- wrote it and its secrets, and of whether several roles share it; so every change gives another version.
-- Versions are compared for equality only, because transactions commit in any order.
CREATE FUNCTION _sas.agent_versions() RETURNS TABLE (agent_id int, version text)
LANGUAGE sql VOLATILE AS $$
    WITH shared AS MATERIALIZED (SELECT _sas.shared_agents() AS agents)
    SELECT a.agent_id,
           CASE WHEN a.agent_id = ANY (shared.agents) THEN 'shared ' ELSE '' END
           || CASE WHEN a.secrets = '{}' THEN a.xmin::text
                   ELSE a.xmin::text || ' ' || ARRAY(SELECT concat_ws(' ', s.name, s.xmin,
                                                                      _sas.secret_file_stamp(s.file))
                                                     FROM _sas.secret s WHERE s.name = ANY (a.secrets)
                                                     ORDER BY s.name)::text END
    FROM _sas.agent a
    CROSS JOIN shared
    WHERE a.dropped_at IS NULL AND a.kind = 'http'
$$;

-- _sas.agents_for_workers(known, versions): the agents that a worker does not know in their current
-- version, with secrets filled in; and agents that it knows but that are gone, with agent_id only.
-- Superusers only.
CREATE FUNCTION _sas.agents_for_workers(known int[], versions text[]) RETURNS SETOF _sas.worker_agent
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    changed jsonb;
    gone int[];
    ids int[];
    secrets jsonb;
    agent _sas.worker_agent;
BEGIN
    SELECT jsonb_object_agg(v.agent_id, v.version) FILTER (WHERE v.version IS NOT NULL),
           array_agg(v.agent_id) FILTER (WHERE v.version IS NOT NULL),
           array_agg(k.agent_id) FILTER (WHERE v.version IS NULL)
    INTO changed, ids, gone
    FROM _sas.agent_versions() v
    FULL JOIN unnest(known, agents_for_workers.versions) AS k (agent_id, version) ON k.agent_id = v.agent_id
    WHERE k.version IS DISTINCT FROM v.version;
    SELECT coalesce(jsonb_object_agg(s.name, to_jsonb(s)), '{}') INTO secrets
    FROM _sas.secret_values(ARRAY(SELECT DISTINCT unnest(a.secrets) FROM _sas.agent a
                                  WHERE a.agent_id = ANY (ids))) s;
    FOR agent IN SELECT * FROM _sas.agents_with(secrets, ids) LOOP
        agent.version := changed ->> agent.agent_id::text;
        RETURN NEXT agent;
    END LOOP;
    RETURN QUERY
    SELECT (jsonb_populate_record(NULL::_sas.worker_agent, jsonb_build_object('agent_id', g))).*
    FROM unnest(gone) g;
END $$;

-- _sas.agents_for_stubs(): agents as a test sees them: without the values of headers and parameters,
-- because roles that submit runs must not see those.
CREATE FUNCTION _sas.agents_for_stubs() RETURNS SETOF _sas.worker_agent
LANGUAGE sql STABLE AS $$
    SELECT (jsonb_populate_record(a, jsonb_build_object(
        'headers', (SELECT jsonb_object_agg(h.key, '***') FROM jsonb_each(x.headers) h),
        'query', (SELECT jsonb_object_agg(q.key, '***') FROM jsonb_each(x.options -> 'query') q),
        'options', x.options))).*
    FROM _sas.agent x CROSS JOIN LATERAL _sas.agents_with('{}', ARRAY[x.agent_id]) a
    WHERE x.dropped_at IS NULL AND x.kind = 'http'
$$;

-- _sas.write_health(...): stores what a worker has noticed of agents: changes of breakers (null: none) and
-- last errors. Arrays of equal length, in the order of agents.
-- Writes: agent_health. Wakes: the supervisor.
CREATE FUNCTION _sas.write_health(agent_ids int[], breakers text[], open_in_ms float8[], last_errors jsonb[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    opened record;
BEGIN
    UPDATE _sas.agent_health h
    SET breaker = coalesce(u.breaker, h.breaker),
        open_until = CASE WHEN u.breaker = 'open' THEN sas.now() + u.open_in * interval '1 ms'
            WHEN u.breaker IS NULL THEN h.open_until END,
        last_error = coalesce(u.last_error, h.last_error),
        last_error_at = CASE WHEN u.last_error IS NULL THEN h.last_error_at ELSE sas.now() END
    FROM unnest(agent_ids, breakers, open_in_ms, last_errors) AS u (agent_id, breaker, open_in, last_error)
    WHERE h.agent_id = u.agent_id
      AND h.agent_id IN (SELECT l.agent_id FROM _sas.agent_health l
                         WHERE l.agent_id = ANY (agent_ids) FOR UPDATE SKIP LOCKED);
    FOR opened IN
        SELECT a.agent_id, a.name FROM unnest(agent_ids, breakers) AS u (agent_id, breaker)
        JOIN _sas.agent a ON a.agent_id = u.agent_id WHERE u.breaker = 'open'
    LOOP
        PERFORM _sas.raise_alert('breaker-open', format('agent %s breaker', opened.name),
                                 format('the breaker of agent "%s" is open', opened.name), opened.agent_id);
        -- steps that wait for this agent may have a fallback
        PERFORM _sas.wake(supervisor => true);
    END LOOP;
    IF 'closed' = ANY (breakers) THEN
        PERFORM _sas.close_alerts(ARRAY(SELECT format('agent %s breaker', a.name)
                                        FROM unnest(agent_ids, breakers) AS u (agent_id, breaker)
                                        JOIN _sas.agent a ON a.agent_id = u.agent_id
                                            WHERE u.breaker = 'closed'));
    END IF;
END $$;
