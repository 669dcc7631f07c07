-- SPDX-License-Identifier: PostgreSQL
--
-- Stubs: aids for testing workflows: a clock that is stopped and moved, answers instead of services, and a
-- record of the calls.
--
-- All of it lasts for one transaction, which can only be rolled back (_sas.begin_testing). So other
-- sessions never see these rows, no worker sees a run of a test, and a moved clock cannot affect a fence or
-- a queue.

-- clock ---------------------------------------------------------------------------

-- _sas.freeze_clock(at): sets the clock of this transaction to that instant, until it is moved.
CREATE FUNCTION _sas.freeze_clock(at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    IF at IS NULL OR NOT isfinite(at) THEN
        RAISE EXCEPTION 'the clock cannot be set to %', coalesce(at::text, 'null')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /at.',
                HINT = 'Pass a timestamp, or an interval to move the clock by.';
    END IF;
    PERFORM _sas.begin_testing();
    PERFORM set_config('sas.clock', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00',
                       true);
    RETURN sas.now();
END $$;

-- _sas.set_clock_as(caller, at): the body of sas.set_clock.
CREATE FUNCTION _sas.set_clock_as(caller oid, at timestamptz) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.freeze_clock(at)
$$;

-- _sas.move_clock_as(caller, span): the body of sas.move_clock.
CREATE FUNCTION _sas.move_clock_as(caller oid, span interval) RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.freeze_clock(sas.now() + span)
$$;

-- _sas.release_clock_as(caller): the body of sas.release_clock. Returns the time of the machine.
CREATE FUNCTION _sas.release_clock_as(caller oid) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('sas.clock', '', true);
    RETURN sas.now();
END $$;

-- _sas.check_answer(answer, path, kind): errors of an answer for an agent of that kind.
CREATE FUNCTION _sas.check_answer(answer jsonb, path text, kind text) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
    IF jsonb_typeof(answer) <> 'object' THEN
        RETURN NEXT ROW(path, format('an answer must be an object, not %s', jsonb_typeof(answer)),
                        CASE kind WHEN 'http' THEN 'Write it as {"status": 201, "body": {"id": 7}}, or a '
                                                   'status alone.'
                            ELSE 'Write it as {"output": {"id": 7}}.' END, '22023')::_sas.problem;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_keys(answer, path, CASE kind
                                  WHEN 'http' THEN '{status,headers,body,text,error,delay}'
                                  ELSE '{output,fail,permanent,hand_back,lapse,delay}' END::text[])
    UNION ALL SELECT * FROM _sas.check_number(answer -> 'status', path || '/status', 100, 999)
    UNION ALL SELECT * FROM _sas.check_choice(answer -> 'error', path || '/error',
                                              '{no connection,timeout,broken,breaker open}')
    UNION ALL SELECT * FROM _sas.check_span(answer -> 'delay', path || '/delay')
    UNION ALL SELECT * FROM _sas.check_boolean(answer -> 'permanent', path || '/permanent')
    UNION ALL SELECT * FROM _sas.check_boolean(answer -> 'hand_back', path || '/hand_back')
    UNION ALL SELECT * FROM _sas.check_boolean(answer -> 'lapse', path || '/lapse')
    UNION ALL SELECT path || '/headers', 'headers must be an object of strings',
        'Write it as {"retry_after": "30"}.', '22023'
              WHERE answer ? 'headers' AND jsonb_typeof(answer -> 'headers') <> 'object'
    UNION ALL SELECT path || '/' || k, format('%s must be a string', k), 'Write it as a string.', '22023'
              FROM unnest('{text,fail}'::text[]) k WHERE answer ? k AND jsonb_typeof(answer -> k) <> 'string'
    UNION ALL SELECT path, 'an answer is one of output, fail, hand_back and lapse',
        'Write one of them, as {"output": {"id": 7}}.', '22023'
              WHERE kind = 'external' AND (SELECT count(*)
                                           FROM unnest('{output,fail,hand_back,lapse}'::text[]) k
                                           WHERE answer ? k) <> 1
    UNION ALL SELECT path, 'an answer with an error has no status, headers, body or text',
        'Leave out one or the other.', '22023'
              WHERE answer ? 'error' AND answer ?| '{status,headers,body,text}'
    UNION ALL SELECT path || r.pointer, r.problem,
        coalesce(r.hint,
                 'A response refers to the call as {{request.body.NAME}}, {{key}}, {{n}} or {{attempt}}.'),
        CASE WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
              FROM _sas.references(answer) r WHERE r.problem IS NOT NULL
    UNION ALL SELECT path || r.pointer, format('"%s" is not a part of a call', r.path),
        'A response refers to the call as {{request.body.NAME}}, {{key}}, {{n}} or {{attempt}}.', '42P10'
              FROM _sas.references(answer) r WHERE r.problem IS NULL
                  AND (r.root IS NULL OR NOT r.root IN ('request', 'key', 'n', 'attempt'));
END $$;

-- _sas.check_selection(method, element, attempt): raises an error if no call can have these.
CREATE FUNCTION _sas.check_selection(method text, element int, attempt int) RETURNS void
LANGUAGE sql STABLE AS $$
    SELECT _sas.raise(c) FROM _sas.check_choice(to_jsonb(method), '/method',
                                                '{GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS}') c;
    SELECT _sas.raise(ROW('/' || n.name, format('no call has %s %s', n.name, n.value), 'It counts from 1.',
                          '22023'))
    FROM (VALUES ('element', element), ('attempt', attempt)) AS n (name, value) WHERE n.value < 1
$$;

-- _sas.stub_as(caller, agent, response, ...): the body of sas.stub: answers instead of an agent until the
-- end of the transaction. An array is used up one answer after the other; anything else answers forever.
-- Writes: stub.
CREATE FUNCTION _sas.stub_as(caller oid, agent text, response jsonb, method text, path text, step text,
                             element int, attempt int, undo boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    a _sas.agent;
    list jsonb := CASE jsonb_typeof(response) WHEN 'array' THEN response ELSE jsonb_build_array(response) END;
BEGIN
    SELECT * INTO a FROM _sas.agent x WHERE x.name = agent AND x.dropped_at IS NULL;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('agent', agent, '/agent', 'See sas.agents for existing agents.');
    END IF;
    IF response IS NULL OR list = '[]' THEN
        RAISE EXCEPTION 'a stub needs an answer'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /response.',
            HINT = 'Pass one as an object, or several in an array.';
    END IF;
    list := (SELECT jsonb_agg(CASE WHEN jsonb_typeof(e.value) = 'number'
                              AND a.kind = 'http' THEN jsonb_build_object('status', e.value) ELSE e.value END
                              ORDER BY e.n)
             FROM jsonb_array_elements(list) WITH ORDINALITY AS e (value, n));
    PERFORM _sas.raise(c)
    FROM jsonb_array_elements(list) WITH ORDINALITY AS e (value, n)
    CROSS JOIN LATERAL _sas.check_answer(e.value, '/response' || CASE jsonb_typeof(response)
                                         WHEN 'array' THEN '/' || e.n - 1 ELSE '' END, a.kind) c;
    IF EXISTS (SELECT FROM jsonb_array_elements(list) e WHERE e ->> 'error' = 'breaker open')
       AND (jsonb_typeof(response) = 'array' OR num_nonnulls(method, path, step, element, attempt, undo) > 0)
           THEN
        RAISE EXCEPTION 'an open breaker applies to all calls of an agent'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /response.',
            HINT = format('SELECT sas.stub(%L, ''{"error": "breaker open"}''), and sas.unstub or another '
                          'stub to close it.', agent);
    END IF;
    IF a.kind = 'external' AND (method IS NOT NULL OR path IS NOT NULL) THEN
        RAISE EXCEPTION 'tasks of agent "%" have no method and no path', agent
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = _sas.at(CASE WHEN method IS NOT NULL THEN '/method' ELSE '/path' END),
            HINT = 'Select them by step, element, attempt and undo.';
    END IF;
    PERFORM _sas.check_selection(upper(method), element, attempt);
    PERFORM _sas.begin_testing();
    INSERT INTO _sas.stub AS s (agent_id, method, path, step, element, attempt, undo, answers, for_ever)
    VALUES (a.agent_id, upper(method), path, step, element, attempt, undo, list,
            jsonb_typeof(response) <> 'array');
END $$;

-- _sas.unstub_as(caller, agent): the body of sas.unstub: deletes the stubs of the agent; null: of all.
-- Returns how many.
-- Writes: stub.
CREATE FUNCTION _sas.unstub_as(caller oid, agent text) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n int;
BEGIN
    DELETE FROM _sas.stub s WHERE $2 IS NULL
        OR s.agent_id = (SELECT a.agent_id FROM _sas.agent a WHERE a.name = $2 AND a.dropped_at IS NULL);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- _sas.stub_signal_as(caller, name, payload, after, times): the body of sas.stub_signal. Writes: stub_signal.
-- From then on the transaction cannot be committed.
CREATE FUNCTION _sas.stub_signal_as(caller oid, name text, payload jsonb, after interval, times int)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name(name, '/name') wrong;
    IF payload IS NULL OR after IS NULL OR after < '0' OR times IS NULL OR times < 1 THEN
        RAISE EXCEPTION
            'a stubbed signal needs a payload, an interval that is not negative, and at least one time'
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = _sas.at(CASE WHEN payload IS NULL THEN '/payload' WHEN coalesce(after < '0', true)
                             THEN '/after' ELSE '/times' END),
            HINT = 'Such as sas.stub_signal(''decision'', ''{"approved": true}'', after => ''2 h'').';
    END IF;
    PERFORM _sas.begin_testing();
    INSERT INTO _sas.stub_signal (name, payload, after, times) VALUES ($2, $3, $4, $5);
END $$;

-- _sas.stubbed_calls_as(caller, agent): the body of sas.stubbed_calls; agent null: of all.
CREATE FUNCTION _sas.stubbed_calls_as(caller oid, agent text)
RETURNS TABLE (call_no int, agent text, run_id bigint, step text, element int, undo boolean, attempt int,
               idempotency_key text, method text, path text, request jsonb, answer jsonb, at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.n::int, a.name, c.run_id, _sas.shown_name(c.step), nullif(c.element, 0), c.undo, c.attempt,
        c.idempotency_key, c.request ->> 'method', c.request ->> 'path', c.request, c.answer, c.at
    FROM (SELECT x.*, row_number() OVER (ORDER BY x.call_no) AS n FROM _sas.stubbed_call x) c
    JOIN _sas.agent a USING (agent_id) JOIN _sas.run r USING (run_id)
    WHERE ($2 IS NULL OR a.name = $2)
      AND _sas.may_operate(caller, r.owner)
    ORDER BY c.call_no
$$;

-- signals -----------------------------------------------------------------------------

-- _sas.awaited_signals(ids): the stubbed signals that steps of these runs wait for, one for each run and
-- name.
CREATE FUNCTION _sas.awaited_signals(ids bigint[])
RETURNS TABLE (run_id bigint, stub_signal_id int, at timestamptz)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT ON (s.stub_signal_id) w.run_id, s.stub_signal_id, greatest(w.since + s.after, sas.now())
    FROM (SELECT t.run_id, n.name, min(t.started_at) AS since
          FROM _sas.step t JOIN _sas.run r ON r.run_id = t.run_id
          JOIN _sas.workflow_step k ON k.version_id = r.version_id AND k.step_no = t.step_no
              AND k.undo = (t.state = 'compensating')
          CROSS JOIN LATERAL (SELECT k.shape #> '{wait,signal}' AS names) a
          CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(a.names) WHEN 'array' THEN a.names
                                                       ELSE jsonb_build_array(a.names) END) n (name)
          WHERE t.run_id = ANY (ids) AND t.state IN ('suspended', 'compensating')
              AND t.waiting_kind = 'signal' AND (r.abandon_as IS NULL OR k.undo) GROUP BY 1, 2) w
    CROSS JOIN LATERAL (SELECT * FROM _sas.stub_signal g WHERE g.name = w.name AND g.used < g.times
                        ORDER BY g.stub_signal_id LIMIT 1) s
    ORDER BY s.stub_signal_id, w.since, w.run_id;
END $$;

-- _sas.send_stub_signals(ids): sends the stubbed signals that are due.
-- Writes: stub_signal.
CREATE FUNCTION _sas.send_stub_signals(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    a record;
    r _sas.run;
    sent boolean := false;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.stub_signal g WHERE g.used < g.times) THEN
        RETURN false;
    END IF;
    FOR a IN SELECT w.run_id, g.* FROM _sas.awaited_signals(ids) w JOIN _sas.stub_signal g
        USING (stub_signal_id) WHERE w.at <= sas.now() LOOP
        SELECT * INTO r FROM _sas.run x WHERE x.run_id = a.run_id;
        PERFORM _sas.send_signal(r.owner::oid, r, a.name, a.payload, NULL, NULL);
        UPDATE _sas.stub_signal g SET used = g.used + 1 WHERE g.stub_signal_id = a.stub_signal_id;
        sent := true;
    END LOOP;
    RETURN sent;
END $$;

-- what would be sent, and what an answer means: the code of the agent workers ---------------

-- _sas.stub_compose(agent_id, run_id, step, ...): the request that an agent worker would send, or why it
-- cannot be sent (why).
CREATE FUNCTION _sas.stub_compose(agent_id int, run_id bigint, step text, undo boolean, attempt int,
                                  trace uuid, key text, request jsonb, policy jsonb, problem jsonb,
                                  left_ms float8,
                                  OUT sent jsonb, OUT timeout_ms float8, OUT why jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_stub_compose';

-- _sas.stub_evaluate(agent_id, run_id, step, ..., answer, left_ms): what an agent worker would make of this
-- answer to the request.
CREATE FUNCTION _sas.stub_evaluate(agent_id int, run_id bigint, step text, undo boolean, attempt int,
                                   trace uuid, key text, request jsonb, policy jsonb, tries int,
                                   doubt boolean, answer jsonb, left_ms float8, OUT reply text,
                                   OUT pause_ms float8, OUT told text, OUT http_status int,
                                   OUT in_doubt boolean, OUT output jsonb, OUT why jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_stub_evaluate';

-- _sas.stub_invoke(owner, run_id, step_no, ...): calls the function of a step as a function worker does, as
-- its owner, and says what comes of it.
CREATE FUNCTION _sas.stub_invoke(owner oid, run_id bigint, step_no int, element int, step text, undo boolean,
                                 attempt int, function text, input jsonb, problem jsonb, retry jsonb,
                                 judges boolean, OUT reply text, OUT pause_ms float8, OUT told text,
                                 OUT output jsonb, OUT why jsonb)
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_stub_invoke';
