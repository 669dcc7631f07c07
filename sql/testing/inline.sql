-- SPDX-License-Identifier: PostgreSQL
--
-- Inline: runs a run to its end in the session that tests it, without workers and network. It uses the same
-- claims, replies and ticks as the workers, called one after the other, only for the runs of this family:
-- the run, its child runs and its hook runs. When nothing is left to do at this instant, the clock jumps to
-- the next instant at which something is due.
--
-- A test touches nothing that relates runs to each other, so that no session and no worker waits for a
-- test: no slot under a concurrency key, no queue; no rate, slot or breaker of an agent. Claims are made in
-- lanes of their own, under leases of worker -1.

-- _sas.inline_lane(): the first lane of tests.
CREATE FUNCTION _sas.inline_lane() RETURNS int
LANGUAGE sql IMMUTABLE AS $$ SELECT 1000000000 $$;

-- _sas.inline_family(root): the run, its child runs and its hook runs.
CREATE FUNCTION _sas.inline_family(root bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE f AS (
            SELECT root AS run_id
            UNION ALL
            SELECT c.run_id
            FROM f CROSS JOIN LATERAL (SELECT r.run_id FROM _sas.run r WHERE r.parent_run_id = f.run_id
                                       UNION ALL SELECT r.run_id FROM _sas.run r
                                           WHERE r.hook_of = f.run_id OFFSET 0) c)
        SELECT f.run_id FROM f);
END $$;

-- _sas.carry_inline(root, until): does everything that there is to do, up to that instant; null: until only
-- deadlines are left.
CREATE FUNCTION _sas.carry_inline(root bigint, until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ticks int := 0;
    next_at timestamptz;
BEGIN
    LOOP
        IF NOT _sas.inline_tick(_sas.inline_family(root)) THEN
            next_at := _sas.inline_next(_sas.inline_family(root));
            EXIT WHEN next_at IS NULL OR next_at > until;
            PERFORM _sas.freeze_clock(greatest(next_at, sas.now()));
        END IF;
        ticks := ticks + 1;
        IF until IS NULL AND ticks % 50 = 0 THEN
            PERFORM _sas.check_inline_polls(_sas.inline_family(root));
        END IF;
        IF ticks > 100000 THEN
            RAISE EXCEPTION 'run % did not stop', root
                USING ERRCODE = 'program_limit_exceeded',
                DETAIL = format('The clock of the test shows %s.', sas.now()),
                HINT = 'See sas.stubbed_calls() for calls that repeat. Pass within => ''1 h'' stops '
                       'the clock there.';
        END IF;
    END LOOP;
    IF until > sas.now() THEN
        PERFORM _sas.freeze_clock(until) FROM _sas.run r WHERE r.run_id = root AND r.state <> 'stopped';
    END IF;
END $$;

-- _sas.check_inline_polls(ids): raises an error if a poll without timeout, of a step or of an undo, has had
-- 200 answers and none that ends it. Stubs that give no such answer would go on until the deadline, a
-- month of requests.
CREATE FUNCTION _sas.check_inline_polls(ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    poll record;
BEGIN
    SELECT s.run_id, _sas.shown_name(w.name) AS step, w.undo, w.shape #>> '{poll,until}' AS until INTO poll
    FROM _sas.run r
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.shape ? 'poll'
        AND NOT (w.shape -> 'poll') ? 'timeout'
    JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no
        AND w.undo = (s.state = 'compensating')
    CROSS JOIN LATERAL _sas.poll_of(s) o
    WHERE r.run_id = ANY (ids) AND o.asks >= 200 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the poll of %step "%" does not end: it has had 200 answers',
            CASE WHEN poll.undo THEN 'the undo of ' ELSE '' END, poll.step
            USING ERRCODE = 'program_limit_exceeded',
            DETAIL = format('Run %s; until: %s; the clock of the test shows %s.', poll.run_id, poll.until,
                            sas.now()),
            HINT = 'Stub an answer that ends it, give the poll a timeout, or pass within => ''1 h'' to stop '
                   'the clock there.';
    END IF;
END $$;

-- _sas.inline_tick(ids): does something that is due at this instant; false: nothing is.
-- Writes: concurrency_slot, message.
CREATE FUNCTION _sas.inline_tick(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    taken _sas.message[];
    leases _sas.lease[];
    f _sas.stub_flight;
    moved boolean := false;
BEGIN
    DELETE FROM _sas.concurrency_slot p WHERE p.run_id = ANY (ids);
    WITH t AS (DELETE FROM _sas.message d WHERE d.actor = 's' AND d.due_at <= now AND d.run_id = ANY (ids)
               RETURNING d.*)
    SELECT array_agg(e) INTO taken FROM t CROSS JOIN LATERAL _sas.of_each_element(t::_sas.message) e;
    IF taken IS NOT NULL THEN
        PERFORM _sas.carry_out(taken);
        RETURN true;
    END IF;
    WITH t AS (DELETE FROM _sas.message d WHERE d.actor = 'v' AND d.due_at <= now AND d.run_id = ANY (ids)
               RETURNING d.*)
    SELECT array_agg(t::_sas.message) INTO taken FROM t;
    IF taken IS NOT NULL THEN
        PERFORM _sas.decide_on(taken);
        RETURN true;
    END IF;
    SELECT array_agg(l) INTO leases FROM _sas.lease l WHERE l.worker_id = -1 AND l.next_by <= now
        AND l.run_ids && ids;
    IF leases IS NOT NULL THEN
        PERFORM _sas.take_back_leases(leases, 0, '{}', 0);
        RETURN true;
    END IF;
    FOR f IN SELECT x.* FROM _sas.stub_flight x WHERE x.run_id = ANY (ids) AND x.at <= now
        ORDER BY x.at, x.run_id, x.step_no, x.element LOOP
        PERFORM _sas.move_stub_flight(f);
        moved := true;
    END LOOP;
    RETURN moved OR _sas.send_stub_signals(ids) OR _sas.claim_inline(ids);
END $$;

-- _sas.inline_next(ids): when something is due next; null: nothing but deadlines and start_before.
CREATE FUNCTION _sas.inline_next(ids bigint[]) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    next_at timestamptz;
    deadline timestamptz;
BEGIN
    SELECT min(x.at) FILTER (WHERE NOT x.guard), min(x.at) FILTER (WHERE x.guard) INTO next_at, deadline
    FROM (SELECT d.due_at, d.kind IN ('deadline', 'reminder', 'late') FROM _sas.message d
          WHERE d.actor IN ('s', 'v') AND d.run_id = ANY (ids)
          UNION ALL SELECT f.at, false FROM _sas.stub_flight f WHERE f.run_id = ANY (ids)
          UNION ALL SELECT w.at, false FROM _sas.awaited_signals(ids) w) AS x (at, guard);
    -- a deadline ends whatever would come later
    RETURN CASE WHEN next_at IS NOT NULL THEN least(next_at, deadline) END;
END $$;

-- claims ------------------------------------------------------------------------------

-- _sas.claim_inline(ids): claims ready steps: functions are called, calls and tasks begin. False: nothing
-- is ready.
-- Writes: ready.
CREATE FUNCTION _sas.claim_inline(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    base int := _sas.inline_lane();
    calls int[];
    tasks int[];
    functions boolean;
    begun int := 0;
BEGIN
    -- steps of an agent whose breaker is open wait
    WITH moved AS (
        UPDATE _sas.ready q SET lane = base + _sas.lane_now(q.run_id, q.step_no, q.element, q.undo, w.lane)
        FROM _sas.run r, _sas.workflow_step w
        WHERE q.run_id = ANY (ids) AND q.lane <> _sas.late_lane()
          AND r.run_id = q.run_id AND w.version_id = r.version_id AND w.step_no = q.step_no
              AND w.undo = q.undo
          AND w.lane NOT IN (SELECT _sas.stubbed_limits())
        RETURNING q.lane)
    SELECT array_agg(DISTINCT m.lane) FILTER (WHERE a.kind = 'http'),
        array_agg(DISTINCT m.lane) FILTER (WHERE a.kind = 'external'), bool_or(m.lane = base)
    INTO calls, tasks, functions FROM moved m LEFT JOIN _sas.agent a ON a.agent_id = m.lane - base;

    IF calls IS NOT NULL THEN
        begun := _sas.claim_stub_calls(calls);
    END IF;
    IF tasks IS NOT NULL THEN
        begun := begun + _sas.claim_stub_tasks(tasks);
    END IF;
    IF functions THEN
        begun := begun + _sas.invoke_inline(base);
    END IF;
    RETURN begun > 0;
END $$;

-- _sas.claim_stub_calls(lanes): claims calls, which then wait to be sent. Returns how many.
-- Writes: stub_flight.
CREATE FUNCTION _sas.claim_stub_calls(lanes int[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    begun int;
BEGIN
    INSERT INTO _sas.stub_flight (run_id, step_no, element, step, undo, is_task, settles, agent_id, lease_id,
                                  request_id, trace, key, attempt, request, policy, problem, last_by, at)
    SELECT c.run_id, c.step_no, c.element, c.step, c.undo, false, false, c.agent_id - _sas.inline_lane(),
        c.lease_id, c.request_id, c.trace, c.idempotency_key, c.attempt, c.request,
           c.policy || jsonb_build_object('retry', coalesce(c.policy -> 'retry', '{}')
                                          || '{"jitter": false}'), c.problem,
           sas.now() + c.window_ms * interval '1 ms', sas.now()
    FROM _sas.claim_calls(lanes, array_fill(1000000, ARRAY[cardinality(lanes)]), 0, -1, 'stub') c;
    GET DIAGNOSTICS begun = ROW_COUNT;
    RETURN begun;
END $$;

-- _sas.claim_stub_tasks(lanes): claims tasks of outside agents; a task whose input cannot be built fails
-- for good. Returns how many.
-- Writes: stub_flight.
CREATE FUNCTION _sas.claim_stub_tasks(lanes int[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    batch record := _sas.claim_ready(lanes, array_fill(1000000, ARRAY[cardinality(lanes)]), 0, -1, 'stub');
BEGIN
    INSERT INTO _sas.stub_flight (run_id, step_no, element, step, undo, is_task, settles, agent_id, lease_id,
                                  request_id, key, attempt, request, problem, last_by, at)
    SELECT t.run_id, t.step_no, t.element, t.name, t.undo, true, r.abandon_as IS NOT NULL,
        t.lane - _sas.inline_lane(), batch.lease_id, t.request_id, t.key, s.attempt,
           jsonb_build_object('input', t.asked, 'checkpoint', t.checkpoint), t.problem,
               sas.now() + t.complete_in, sas.now()
    FROM _sas.tasks(batch.claimed) t
    JOIN _sas.run r ON r.run_id = t.run_id
    JOIN _sas.step s ON s.run_id = t.run_id AND s.step_no = t.step_no AND s.element = t.element;
    RETURN coalesce(cardinality(batch.claimed), 0);
END $$;

-- _sas.invoke_inline(lane): calls function steps, one after the other, each in a subtransaction, as the
-- owner of its run.
CREATE FUNCTION _sas.invoke_inline(lane int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    c record;
    v record;
    n int := 0;
    begun_at timestamptz;
BEGIN
    FOR c IN SELECT * FROM _sas.claim_functions(1000000, 0, -1, 'this session', lane) LOOP
        n := n + 1;
        begun_at := sas.now();
        v := _sas.stub_invoke(c.owner, c.run_id, c.step_no, c.element, c.step, c.undo, c.attempt,
                               c.function, c.input, c.problem,
                               coalesce(c.retry, '{}') || '{"jitter": false}', c.judges);
        PERFORM _sas.write_attempts(ARRAY[c.run_id], ARRAY[c.step_no], ARRAY[c.element],
                                    ARRAY[c.attempt + 1], ARRAY[c.undo], ARRAY[0],
                                    'this session', ARRAY[v.told], ARRAY[0], ARRAY[v.why], ARRAY[begun_at],
                                        ARRAY[sas.now()]) WHERE v.told IS NOT NULL;
        PERFORM _sas.write_replies(ARRAY[_sas.make_call_reply(
            c.run_id, c.step_no, c.element, c.request_id, v.reply, output => v.output, error => v.why,
            again_in => v.pause_ms * interval '1 ms')], ARRAY[c.lease_id], ARRAY[c.lease_id]);
    END LOOP;
    RETURN n;
END $$;

-- flights -----------------------------------------------------------------------------

-- _sas.move_stub_flight(f): the next instant of this call has come: an attempt begins, its answer arrives,
-- or its window is over.
-- Writes: stub_flight, lease.
CREATE FUNCTION _sas.move_stub_flight(f _sas.stub_flight) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = f.run_id AND s.step_no = f.step_no
                   AND s.element = f.element AND s.request_id = f.request_id) THEN
        -- its claim no longer holds: there is nothing to write
        DELETE FROM _sas.stub_flight x WHERE x.run_id = f.run_id AND x.step_no = f.step_no
            AND x.element = f.element;
    ELSIF f.last_by <= sas.now() THEN
        -- after complete_by there is no reply; the lease expires
        DELETE FROM _sas.stub_flight x WHERE x.run_id = f.run_id AND x.step_no = f.step_no
            AND x.element = f.element;
        UPDATE _sas.lease l SET next_by = sas.now() WHERE l.lease_id = f.lease_id;
    ELSIF f.answer IS NULL THEN
        PERFORM _sas.begin_stub_attempt(f);
    ELSIF f.is_task THEN
        PERFORM _sas.answer_stub_task(f);
    ELSE
        PERFORM _sas.answer_stub_call(f);
    END IF;
END $$;

-- _sas.begin_stub_attempt(f): builds what would be sent, and finds the answer and when it arrives.
-- Writes: stubbed_call, stub_flight.
CREATE FUNCTION _sas.begin_stub_attempt(f _sas.stub_flight) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    made record;
    said jsonb;
    takes interval;
BEGIN
    f.tries := f.tries + 1;
    f.started_at := now;
    IF f.is_task THEN
        SELECT f.request AS sent, NULL::float8 AS timeout_ms, f.problem AS why INTO made;
    ELSE
        made := _sas.stub_compose(f.agent_id, f.run_id, f.step, f.undo, f.attempt, f.trace, f.key, f.request,
                                  f.policy, f.problem, extract(epoch FROM f.last_by - now)::float8 * 1000);
    END IF;
    IF made.why IS NOT NULL THEN
        PERFORM _sas.end_stub_flight(f, 'permanent', 'failed', 0, NULL, made.why, NULL);
        RETURN;
    END IF;
    said := _sas.stub_answer(f, made.sent);
    takes := coalesce(_sas.span(said -> 'delay'), '0');
    IF said ->> 'error' = 'timeout' OR takes >= made.timeout_ms * interval '1 ms' THEN
        said := said || '{"error": "timeout"}';
        takes := made.timeout_ms * interval '1 ms';
    ELSIF (said ->> 'lapse')::boolean THEN
        takes := f.last_by - now;
    END IF;
    INSERT INTO _sas.stubbed_call (run_id, step_no, element, step, undo, attempt, agent_id, at,
                                   idempotency_key, request, answer)
    VALUES (f.run_id, f.step_no, f.element, f.step, f.undo, f.attempt + f.tries, f.agent_id, now, f.key,
            made.sent, said);
    UPDATE _sas.stub_flight x SET tries = f.tries, started_at = now, answer = said,
        at = least(now + takes, f.last_by)
    WHERE x.run_id = f.run_id AND x.step_no = f.step_no AND x.element = f.element;
END $$;

-- _sas.stub_answer(f, sent): the answer of the last stub that matches; an error if none does.
-- Writes: stub.
CREATE FUNCTION _sas.stub_answer(f _sas.stub_flight, sent jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.stub;
    agent_name text := (SELECT a.name FROM _sas.agent a WHERE a.agent_id = f.agent_id);
    made record;
BEGIN
    SELECT * INTO s FROM _sas.stub t
    WHERE t.agent_id = f.agent_id AND (t.for_ever OR t.used < jsonb_array_length(t.answers))
      AND (t.method IS NULL OR t.method = sent ->> 'method')
          AND (t.path IS NULL OR _sas.matches_pattern(t.path, sent ->> 'path'))
      AND (t.step IS NULL OR t.step = _sas.shown_name(f.step))
          AND (t.element IS NULL OR t.element = f.element)
      AND (t.attempt IS NULL OR t.attempt = f.attempt + f.tries) AND (t.undo IS NULL OR t.undo = f.undo)
    ORDER BY t.stub_id DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no stub matches %', CASE
            WHEN f.is_task THEN format('a task of agent "%s"', agent_name)
                                                  ELSE format('%s %s of agent "%s"', sent ->> 'method',
                                                              sent ->> 'path', agent_name) END
            USING ERRCODE = 'undefined_object',
                  DETAIL = format('%s "%s"%s of run %s, attempt %s.', CASE
                                  WHEN f.undo THEN 'The undo of step'
                                  ELSE 'Step' END, _sas.shown_name(f.step),
                                  coalesce(' element ' || nullif(f.element, 0), ''), f.run_id,
                                      f.attempt + f.tries),
                  HINT = format('SELECT sas.stub(%L, %L);', agent_name, CASE
                                WHEN f.is_task THEN '{"output": {}}' ELSE '{"status": 200, "body": {}}' END);
    END IF;
    UPDATE _sas.stub t SET used = t.used + 1 WHERE t.stub_id = s.stub_id;
    made := _sas.render(s.answers -> CASE WHEN s.for_ever THEN 0 ELSE s.used END,
                        jsonb_build_object('request', sent, 'key', f.key, 'n', s.used + 1, 'attempt',
                                           f.attempt + f.tries));
    IF made.problem IS NOT NULL THEN
        RAISE EXCEPTION 'the stub for agent "%" cannot answer: %: %', agent_name, made.problem ->> 'path',
            made.problem ->> 'what'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /response.',
            HINT = 'Mend the answer: SELECT sas.stub(...) again; the last stub that matches answers.';
    END IF;
    RETURN made.result;
END $$;

-- _sas.answer_stub_call(f): judges the answer as a worker does: a verdict, or another attempt after a
-- pause.
-- Writes: stub_flight.
CREATE FUNCTION _sas.answer_stub_call(f _sas.stub_flight) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v record := _sas.stub_evaluate(f.agent_id, f.run_id, f.step, f.undo, f.attempt, f.trace, f.key, f.request,
                                f.policy, f.tries, f.in_doubt, f.answer,
                                extract(epoch FROM f.last_by - sas.now())::float8 * 1000);
BEGIN
    f.in_doubt := v.in_doubt;
    IF v.reply IS NOT NULL THEN
        PERFORM _sas.end_stub_flight(f, v.reply, v.told, v.http_status, v.output, v.why,
                                     v.pause_ms * interval '1 ms');
        RETURN;
    END IF;
    PERFORM _sas.report_stub_attempt(f, v.told, v.http_status, v.why);
    UPDATE _sas.stub_flight x SET answer = NULL, in_doubt = f.in_doubt,
        at = least(sas.now() + v.pause_ms * interval '1 ms', f.last_by)
    WHERE x.run_id = f.run_id AND x.step_no = f.step_no AND x.element = f.element;
END $$;

-- _sas.report_stub_attempt(f, told, status, error): stores an attempt as a worker does.
CREATE FUNCTION _sas.report_stub_attempt(f _sas.stub_flight, told text, status int, error jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.write_attempts(ARRAY[f.run_id], ARRAY[f.step_no], ARRAY[f.element],
                               ARRAY[f.attempt + f.tries], ARRAY[f.undo], ARRAY[f.agent_id],
                               'stub', ARRAY[told], ARRAY[status], ARRAY[error], ARRAY[f.started_at],
                                   ARRAY[sas.now()])
$$;

-- _sas.end_stub_flight(...): writes the end of the claim.
-- Writes: stub_flight.
CREATE FUNCTION _sas.end_stub_flight(f _sas.stub_flight, reply text, told text, status int, output jsonb,
                                     error jsonb, again_in interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.stub_flight x WHERE x.run_id = f.run_id AND x.step_no = f.step_no
        AND x.element = f.element;
    PERFORM _sas.report_stub_attempt(f, told, status, error) WHERE told IS NOT NULL;
    PERFORM _sas.write_replies(ARRAY[_sas.make_call_reply(
        f.run_id, f.step_no, f.element, f.request_id, reply, f.tries, output,
        CASE WHEN reply <> 'hand_back' THEN error END, f.in_doubt, again_in)], ARRAY[f.lease_id]);
END $$;

-- _sas.answer_stub_task(f): writes the reply of the outside program.
-- Writes: stub_flight.
CREATE FUNCTION _sas.answer_stub_task(f _sas.stub_flight) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    p _sas.external_slot := ROW(f.agent_id, 0, f.request_id, f.lease_id, f.run_id, f.step_no, f.element,
                                f.undo,
                        f.settles, 'stub', f.last_by - f.started_at, f.started_at,
                            f.last_by, NULL)::_sas.external_slot;
BEGIN
    DELETE FROM _sas.stub_flight x WHERE x.run_id = f.run_id AND x.step_no = f.step_no
        AND x.element = f.element;
    IF f.answer ? 'fail' THEN
        PERFORM _sas.fail_claim(p, true, f.answer ->> 'fail',
                                coalesce((f.answer ->> 'permanent')::boolean, false), sas.now());
    ELSE
        PERFORM _sas.end_claims(ARRAY[p], ARRAY[_sas.make_call_reply(
            run_id => p.run_id, step_no => p.step_no, element => p.element, request_id => p.request_id,
            verdict => CASE WHEN f.answer ? 'hand_back' THEN 'hand_back' ELSE 'done' END,
            output => CASE WHEN NOT f.answer ? 'hand_back' THEN coalesce(f.answer -> 'output', 'null') END,
            again_in => CASE WHEN f.answer ? 'hand_back' THEN interval '0' END)]);
    END IF;
END $$;

-- verbs ---------------------------------------------------------------------------------

-- _sas.continue_inline_as(caller, id, within): the body of sas.continue_inline. Raises an error if the run is
-- open and was not submitted in this transaction. Next: _sas.carry_inline.
CREATE FUNCTION _sas.continue_inline_as(caller oid, id bigint, within interval)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r _sas.run;
BEGIN
    IF $3 < '0' THEN
        RAISE EXCEPTION 'within must not be negative'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /within.',
            HINT = 'It limits how far the clock may advance.';
    END IF;
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = $2 AND _sas.may_stand_for(caller, x.owner);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % does not exist, or is not yours', coalesce($2::text, 'null')
            USING ERRCODE = 'undefined_object', DETAIL = 'At /run_id.',
                HINT = 'Name a run that was submitted in this transaction.';
    END IF;
    -- no other session knows such a run
    IF r.state <> 'stopped' AND NOT _sas.submitted_here(r.run_id) THEN
        RAISE EXCEPTION 'run % was not submitted in this transaction', $2
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /run_id.',
            HINT = 'The workers run it. Call sas.wait to wait for it.';
    END IF;
    PERFORM _sas.write_timers(ARRAY[r.run_id]);
    PERFORM _sas.freeze_clock(sas.now());
    PERFORM _sas.carry_inline(r.run_id, sas.now() + $3);
    RETURN QUERY SELECT x.run_id, x.state, x.result, x.output, x.error FROM _sas.run x
        WHERE x.run_id = r.run_id;
END $$;

-- _sas.run_inline_as(caller, workflow, input, ..., within): the body of sas.run_inline: submits the run, and
-- carries it as sas.continue_inline does.
CREATE FUNCTION _sas.run_inline_as(caller oid, workflow text, input jsonb, key text, deadline interval,
                                   labels jsonb, within interval)
RETURNS TABLE (run_id bigint, state text, result text, output jsonb, error jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made record;
BEGIN
    PERFORM _sas.freeze_clock(sas.now());
    SELECT s.* INTO made FROM _sas.submit_runs(caller, $2, ARRAY[$3], CASE
                                               WHEN $4 IS NOT NULL THEN ARRAY[$4] END, 0, NULL, NULL, $5,
                                               NULL, NULL, $6) s;
    IF NOT made.created THEN
        RAISE EXCEPTION 'run % already exists: it has this key, or is the only open run of workflow "%"',
            made.run_id, $2
            USING ERRCODE = 'unique_violation', DETAIL = _sas.at(CASE WHEN $4 IS NULL THEN '/workflow'
                                                                  ELSE '/key' END),
            HINT = 'If it was submitted in this transaction, pass its id to sas.continue_inline.';
    END IF;
    RETURN QUERY SELECT * FROM _sas.continue_inline_as(caller, made.run_id, $7);
END $$;
