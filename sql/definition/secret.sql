-- SPDX-License-Identifier: PostgreSQL
--
-- Secrets, and agents as workers know them: with the values of their secrets filled in.

CREATE FUNCTION _sas.set_secret_as(caller oid, name text, value text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    p _sas.problem;
    known boolean := EXISTS (SELECT FROM _sas.secret s WHERE s.name = name);
BEGIN
    FOR p IN SELECT * FROM _sas.check_name(name, '/name') LOOP
        PERFORM _sas.raise(p);
    END LOOP;
    IF coalesce(value, '') = '' OR value ~ E'[\\x01-\\x1f\\x7f]' THEN
        RAISE EXCEPTION 'the value of secret "%" is empty or contains control characters', name
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /value.',
                HINT = 'Use sas.drop_secret to take a secret away.';
    END IF;
    INSERT INTO _sas.secret AS s VALUES (name, value, sas.now())
    ON CONFLICT ON CONSTRAINT secret_pkey DO UPDATE
        SET value = EXCLUDED.value, changed_at = EXCLUDED.changed_at;
    PERFORM _sas.announce_agents();
    -- an agent whose secret was missing has steps that wait for nothing else
    PERFORM _sas.wake(ARRAY(SELECT a.agent_id FROM _sas.agent a
                            WHERE a.dropped_at IS NULL AND name = ANY (a.secrets)), false, false, '{}');
    PERFORM _sas.record_change(caller, 'set_secret', jsonb_build_object('secret', name, 'changed', known));
END $$;

CREATE FUNCTION _sas.drop_secret_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    used text;
BEGIN
    SELECT a.name INTO used FROM _sas.agent a
    WHERE a.dropped_at IS NULL AND $2 = ANY (a.secrets) ORDER BY a.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'secret "%" is in use', name
            USING ERRCODE = 'dependent_objects_still_exist',
            DETAIL = format('Agent "%s" refers to it.', used);
    END IF;
    DELETE FROM _sas.secret s WHERE s.name = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'secret "%" does not exist', name
            USING ERRCODE = 'undefined_object', DETAIL = 'At /name.',
                HINT = 'Set it with sas.set_secret; an agent that needs it names it as {{secret.NAME}}.';
    END IF;
    PERFORM _sas.record_change(caller, 'drop_secret', jsonb_build_object('secret', name));
END $$;

-- _sas.agents_with(secrets, wanted): these agents as a worker needs them, with these values for secrets.
CREATE FUNCTION _sas.agents_with(secrets jsonb, wanted int[])
RETURNS TABLE (agent_id int, name text, base_url text, enabled boolean, max_in_flight int, rate_per_s float8,
    request_timeout_ms float8, headers jsonb, query jsonb, options jsonb, retry jsonb, breaker_failures int,
        breaker_window_ms float8, breaker_open_ms float8,
    breaker text, open_for_ms float8, max_response bigint, connect_timeout_ms float8, secrets text[],
    breaker_paths text[])
LANGUAGE sql STABLE AS $$
    SELECT a.agent_id, a.name, a.base_url, a.enabled AND h.problem IS NULL
        AND o.problem IS NULL, a.max_in_flight, coalesce(a.rate_per_s, 0),
           extract(epoch FROM a.request_timeout)::float8 * 1000, h.result, o.result -> 'query', o.result,
               coalesce(_sas.read_retry(a.retry), '{}'),
           CASE WHEN (a.breaker ->> 'off')::boolean THEN 0
               ELSE coalesce((a.breaker ->> 'failures')::int, 10) END,
           extract(epoch FROM coalesce(_sas.span(a.breaker -> 'window'), '30 s'))::float8 * 1000,
           extract(epoch FROM coalesce(_sas.span(a.breaker -> 'open_for'), '30 s'))::float8 * 1000,
           coalesce(g.breaker, 'closed'),
               greatest(0, extract(epoch FROM g.open_until - sas.now()))::float8 * 1000,
           coalesce(_sas.size_bytes(a.options ->> 'max_response'), 8 * 1024 * 1024),
           extract(epoch FROM coalesce(_sas.span(a.options -> 'connect_timeout'), '5 s'))::float8 * 1000,
           -- the longest first: one may be the beginning of another, and is masked after it
           ARRAY(SELECT $1 ->> n FROM unnest(a.secrets) n WHERE $1 ? n ORDER BY length($1 ->> n) DESC, n),
           ARRAY(SELECT jsonb_array_elements_text(a.breaker -> 'paths'))
    FROM _sas.agent a
    LEFT JOIN _sas.agent_health g USING (agent_id)
    CROSS JOIN (SELECT jsonb_build_object('secret', $1) AS root) x
    CROSS JOIN LATERAL _sas.render(a.headers, x.root) h
    CROSS JOIN LATERAL _sas.render(a.options, x.root) o
    WHERE a.agent_id = ANY (wanted)
$$;

-- _sas.agent_versions(): the agents that workers call, each with the numbers of the transactions that wrote
-- it and its secrets: whatever changes one of those gives another version. Versions are compared for
-- equality only, since transactions commit in any order.
CREATE FUNCTION _sas.agent_versions() RETURNS TABLE (agent_id int, version text)
LANGUAGE sql STABLE AS $$
    SELECT a.agent_id,
           CASE WHEN a.secrets = '{}' THEN a.xmin::text
                ELSE a.xmin::text || ' ' || ARRAY(SELECT s.name || ' ' || s.xmin::text FROM _sas.secret s
                                                  WHERE s.name = ANY (a.secrets) ORDER BY s.name)::text END
    FROM _sas.agent a WHERE a.dropped_at IS NULL AND a.kind = 'http'
$$;

-- _sas.agents_for_workers(known, versions): of the agents those that a worker does not know in the version
-- that they have now, with secrets filled in; and those it knows that are gone, by agent_id alone.
-- Superusers only.
CREATE FUNCTION _sas.agents_for_workers(known int[], versions text[])
RETURNS TABLE (agent_id int, name text, base_url text, enabled boolean, max_in_flight int, rate_per_s float8,
    request_timeout_ms float8, headers jsonb, query jsonb, options jsonb, retry jsonb, breaker_failures int,
        breaker_window_ms float8, breaker_open_ms float8,
    breaker text, open_for_ms float8, max_response bigint, connect_timeout_ms float8, secrets text[],
    breaker_paths text[], version text)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    changed jsonb;
    gone int[];
    ids int[];
BEGIN
    SELECT jsonb_object_agg(v.agent_id, v.version) FILTER (WHERE v.version IS NOT NULL),
           array_agg(v.agent_id) FILTER (WHERE v.version IS NOT NULL),
           array_agg(k.agent_id) FILTER (WHERE v.version IS NULL)
    INTO changed, ids, gone
    FROM _sas.agent_versions() v
    FULL JOIN unnest(known, agents_for_workers.versions) AS k (agent_id, version) ON k.agent_id = v.agent_id
    WHERE k.version IS DISTINCT FROM v.version;
    RETURN QUERY
    SELECT w.*, changed ->> w.agent_id::text
    FROM _sas.agents_with((SELECT coalesce(jsonb_object_agg(s.name, s.value), '{}') FROM _sas.secret s
                           WHERE s.name IN (SELECT unnest(a.secrets) FROM _sas.agent a
                                            WHERE a.agent_id = ANY (ids))), ids) w;
    FOREACH agent_id IN ARRAY coalesce(gone, '{}') LOOP
        RETURN NEXT;
    END LOOP;
END $$;

-- _sas.agents_for_stubs(): as a test sees them: without the values of headers and parameters, which are not
-- for those who submit runs.
CREATE FUNCTION _sas.agents_for_stubs()
RETURNS TABLE (agent_id int, name text, base_url text, enabled boolean, max_in_flight int, rate_per_s float8,
    request_timeout_ms float8, headers jsonb, query jsonb, options jsonb, retry jsonb, breaker_failures int,
        breaker_window_ms float8, breaker_open_ms float8,
    breaker text, open_for_ms float8, max_response bigint, connect_timeout_ms float8, secrets text[],
    breaker_paths text[])
LANGUAGE sql STABLE AS $$
    SELECT a.agent_id, a.name, a.base_url, a.enabled, a.max_in_flight, a.rate_per_s, a.request_timeout_ms,
           (SELECT jsonb_object_agg(h.key, '***') FROM jsonb_each(x.headers) h),
               (SELECT jsonb_object_agg(q.key, '***') FROM jsonb_each(x.options -> 'query') q),
           a.options, a.retry, a.breaker_failures, a.breaker_window_ms, a.breaker_open_ms, a.breaker,
               a.open_for_ms, a.max_response, a.connect_timeout_ms, '{}'::text[], a.breaker_paths
    FROM _sas.agent x CROSS JOIN LATERAL _sas.agents_with('{}', ARRAY[x.agent_id]) a
    WHERE x.dropped_at IS NULL AND x.kind = 'http'
$$;

-- _sas.write_health(...): what a worker saw of an agent: breaker changes (null: none) and last errors. Arrays
-- of equal length, agents in order.
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
        -- some that wait before it may have a fallback
        PERFORM _sas.wake('{}', false, true, '{}');
    END LOOP;
    IF 'closed' = ANY (breakers) THEN
        PERFORM _sas.close_alerts(ARRAY(SELECT format('agent %s breaker', a.name)
                                        FROM unnest(agent_ids, breakers) AS u (agent_id, breaker)
                                        JOIN _sas.agent a ON a.agent_id = u.agent_id
                                            WHERE u.breaker = 'closed'));
    END IF;
END $$;
