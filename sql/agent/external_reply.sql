-- SPDX-License-Identifier: PostgreSQL
--
-- External agents: what programs outside the server report about the tasks that they have claimed.
--
-- These verbs lock the run, and write the end of the claim in the transaction of the caller. None waits for
-- a session that has locked the run: a reply then becomes a row of _sas.answer, and the slot stays in use
-- until it is applied; a heartbeat writes the slot, under the lock of the lease. The lease of an outside
-- program (boot 0, worker 0) is judged by time only.

-- _sas.claimed_until(request_id): until when this claim holds; null: there is no such claim.
CREATE FUNCTION _sas.claimed_until(request uuid) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT greatest(s.complete_by, h.extended_by)
    FROM _sas.external_slot h
    JOIN _sas.step s ON s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element
        AND s.request_id = h.request_id
    WHERE h.request_id = request
$$;

-- _sas.check_latest_claim(request_id, seen): raises an error (40001) if this claim is not, as it is committed
-- now, what the older snapshot of this transaction shows: seen is its _sas.claimed_until.
CREATE FUNCTION _sas.check_latest_claim(request_id uuid, seen timestamptz) RETURNS void
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_check_latest_claim';

-- _sas.lock_claim(caller, request_id, counts): the claim, if it holds, else null; counts: then the reply
-- counts as stale for its agent. free: its run is locked now. It is waited for only a moment, because
-- usually a tick has locked it.
-- Locks: the run. Writes: agent_health, for a stale reply.
CREATE FUNCTION _sas.lock_claim(caller oid, request_id uuid, counts boolean,
                                OUT p _sas.external_slot, OUT free boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found_slot _sas.external_slot;
    lapsed_of int;
BEGIN
    PERFORM _sas.check_latest_claim($2, _sas.claimed_until($2)) WHERE _sas.keeps_snapshot();
    SELECT * INTO found_slot FROM _sas.external_slot h WHERE h.request_id = $2;
    IF NOT FOUND THEN
        SELECT w.lane INTO lapsed_of
        FROM _sas.task t JOIN _sas.run r ON r.run_id = t.run_id
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no AND w.undo = t.undo
        WHERE t.lapsed = $2;
        IF NOT FOUND OR NOT _sas.may_work(caller, lapsed_of) THEN
            RETURN;
        END IF;
    ELSIF NOT _sas.may_work(caller, found_slot.agent_id) THEN
        RAISE EXCEPTION 'permission denied for agent "%"',
            (SELECT a.name FROM _sas.agent a WHERE a.agent_id = found_slot.agent_id)
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /request_id.',
            HINT = 'Only a role with level worker for the agent can answer for it.';
    ELSE
        PERFORM _sas.wake_on_abort();
        PERFORM _sas.commit_durably();
        free := _sas.lock_run_of_claim(found_slot.run_id);
        -- a session that has just ended the claim may have held the run
        PERFORM _sas.check_latest_claim($2, _sas.claimed_until($2)) WHERE _sas.keeps_snapshot();
        IF EXISTS (SELECT FROM _sas.step s
                   WHERE s.run_id = found_slot.run_id AND s.step_no = found_slot.step_no
                       AND s.element = found_slot.element
                       AND s.request_id = $2
                       AND greatest(s.complete_by, found_slot.extended_by) > sas.now()) THEN
            p := found_slot;
            RETURN;
        END IF;
    END IF;
    IF counts THEN
        -- for an external agent only sessions write this row; none waits for another
        UPDATE _sas.agent_health h SET stale_replies = h.stale_replies + 1
        WHERE h.agent_id = (SELECT l.agent_id FROM _sas.agent_health l
                            WHERE l.agent_id = coalesce(found_slot.agent_id, lapsed_of)
                            FOR UPDATE SKIP LOCKED);
    END IF;
END $$;

-- _sas.lock_run_of_claim(id): locks the run; false: another session has had it locked for a moment.
CREATE FUNCTION _sas.lock_run_of_claim(id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    FOR look IN 1 .. 20 LOOP
        PERFORM FROM _sas.run r WHERE r.run_id = id FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.005);
    END LOOP;
    RETURN false;
END $$;

-- _sas.answer_claim(p, free, ...): ends the claim as _sas.end_claim does, now or when the run is free.
-- False: its time has just expired, or it has a reply already.
CREATE FUNCTION _sas.answer_claim(p _sas.external_slot, free boolean, verdict text, output jsonb, error jsonb,
                                  again_in interval)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF free THEN
        RETURN _sas.end_claim(p, verdict, output, error, again_in, sas.now());
    END IF;
    RETURN (SELECT a.lost = '{}' FROM _sas.leave_answers(ARRAY[_sas.make_call_reply(
        run_id => p.run_id, step_no => p.step_no, element => p.element, request_id => p.request_id,
        verdict => verdict, output => output, error => error, again_in => again_in)], sas.now()) a);
END $$;

-- _sas.end_claim(p, verdict, output, error, again_in, arrived_at): ends a claim: writes the reply and the
-- attempt, and frees the slot. False: its time has just expired.
--   holds   the lock of the run
--   writes  attempt, task, external_slot, and what _sas.write_replies writes
--   next    as after every reply; a free slot wakes programs that wait for one
CREATE FUNCTION _sas.end_claim(p _sas.external_slot, verdict text, output jsonb, error jsonb,
                               again_in interval, arrived_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    s _sas.step;
BEGIN
    -- the program gives it up in a run that cannot continue, and an earlier claim has left it in doubt: the
    -- supervisor settles it
    IF verdict IN ('again', 'hand_back') AND NOT p.undo AND NOT p.settles
       AND EXISTS (SELECT FROM _sas.run r JOIN _sas.step x USING (run_id)
                   WHERE r.run_id = p.run_id AND r.abandon_as IS NOT NULL AND x.step_no = p.step_no
                       AND x.element = p.element AND x.in_doubt) THEN
        verdict := 'transient';
        error := coalesce(error, _sas.problem_object('task', 'the task was given up', NULL, NULL, p.run_id,
                                                     NULL));
    END IF;
    -- the time to which a heartbeat has extended the claim while another session held the run
    UPDATE _sas.step x SET complete_by = p.extended_by
    WHERE x.run_id = p.run_id AND x.step_no = p.step_no AND x.element = p.element
      AND x.request_id = p.request_id AND x.complete_by < p.extended_by;
    PERFORM _sas.write_replies(ARRAY[_sas.make_call_reply(
        run_id => p.run_id, step_no => p.step_no, element => p.element, request_id => p.request_id,
        verdict => CASE WHEN verdict = 'again' THEN 'hand_back' ELSE verdict END,
        attempt => (verdict <> 'hand_back')::int, output => output, error => error, again_in => again_in,
        arrived_at => arrived_at)], ARRAY[p.lease_id]);
    SELECT * INTO s FROM _sas.step x WHERE x.run_id = p.run_id AND x.step_no = p.step_no
        AND x.element = p.element;
    IF s.request_id = p.request_id THEN
        RETURN false;
    END IF;
    PERFORM _sas.observe(m, ARRAY[p.agent_id], ARRAY[v.workflow_id],
                         ARRAY[CASE WHEN m = 'step' THEN CASE verdict WHEN 'again' THEN 'hand_back'
                               ELSE verdict END
                                    WHEN verdict = 'done' AND s.state IN ('succeeded', 'compensated')
                                        THEN 'succeeded' ELSE 'failed' END],
                         ARRAY[extract(epoch FROM arrived_at - p.claimed_at)::float8])
    FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) CROSS JOIN unnest('{call,step}'::text[]) m
    WHERE r.run_id = p.run_id AND (m = 'step' OR verdict <> 'hand_back');
    -- a first attempt that succeeded is only in the row of its step
    IF verdict <> 'hand_back' AND NOT (s.state = 'succeeded' AND s.attempt = 1) THEN
        INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error,
                                  started_at, finished_at)
        SELECT p.run_id, p.step_no, p.element, s.attempt, p.undo, p.agent_id, p.worker, CASE
            WHEN x.ok THEN 'succeeded' ELSE 'failed' END,
               CASE WHEN NOT x.ok THEN _sas.at_element(coalesce(error, s.error), p.element) END,
               p.claimed_at, arrived_at
        FROM (SELECT verdict = 'done' AND s.state IN ('succeeded', 'compensated') AS ok) x;
    END IF;
    -- what was left for the next claim is kept until one succeeds; a counted failure ends a series of
    -- attempts
    IF s.state IN ('succeeded', 'compensated') THEN
        DELETE FROM _sas.task t WHERE t.run_id = p.run_id AND t.step_no = p.step_no AND t.element = p.element
            AND t.undo = p.undo AND t.lapsed IS NULL;
        UPDATE _sas.task t SET checkpoint = NULL, progress = NULL, tries = 0
        WHERE t.run_id = p.run_id AND t.step_no = p.step_no AND t.element = p.element AND t.undo = p.undo;
    ELSIF verdict <> 'hand_back' THEN
        INSERT INTO _sas.task AS t (run_id, step_no, element, undo, tries)
        VALUES (p.run_id, p.step_no, p.element, p.undo, (verdict = 'again')::int)
        ON CONFLICT (run_id, step_no, element, undo) DO UPDATE SET tries = CASE
            WHEN verdict = 'again' THEN t.tries + 1 ELSE 0 END;
    END IF;
    PERFORM _sas.free_slot(p);
    RETURN true;
END $$;

CREATE FUNCTION _sas.complete_as(caller oid, request_id uuid, output jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    c record;
BEGIN
    PERFORM _sas.check_bytes(_sas.share_size(output), _sas.max_output_size(), '/output', 'the output');
    c := _sas.lock_claim(caller, request_id, true);
    RETURN (c.p).request_id IS NOT NULL
        AND _sas.answer_claim(c.p, c.free, 'done', coalesce(output, 'null'), NULL, NULL);
END $$;

-- _sas.fail_as(...): the body of sas.fail. The task is offered again after the pause of its retry policy,
-- until max_attempts of this series are used up; then its window has failed, and the supervisor decides. In
-- a run that cannot continue there is no further attempt.
CREATE FUNCTION _sas.fail_as(caller oid, request_id uuid, error text, permanent boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_variable
DECLARE
    c record := _sas.lock_claim(caller, request_id, true);
BEGIN
    RETURN (c.p).request_id IS NOT NULL AND _sas.fail_claim(c.p, c.free, error, permanent);
END $$;

-- _sas.fail_claim(p, free, error, permanent): the same for this claim; free: its run is locked.
CREATE FUNCTION _sas.fail_claim(p _sas.external_slot, free boolean, error text, permanent boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    n int;
    policy jsonb;
    step_name text;
    given_up boolean;
BEGIN
    SELECT _sas.merge_pauses(_sas.merge_pauses(
               '{"max_attempts": 5, "initial_ms": 200, "max_ms": 30000, "backoff": "exponential", '
               '"jitter": true}',
               _sas.read_retry(a.retry)), w.retry),
           w.name, coalesce(t.tries, 0) + 1, r.abandon_as IS NOT NULL AND NOT p.undo AND NOT s.in_doubt
    INTO policy, step_name, n, given_up
    FROM _sas.run r
    JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = p.step_no AND s.element = p.element
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = p.step_no AND w.undo = p.undo
    JOIN _sas.agent a ON a.agent_id = p.agent_id
    LEFT JOIN _sas.task t ON t.run_id = r.run_id AND t.step_no = p.step_no AND t.element = p.element
        AND t.undo = p.undo
    WHERE r.run_id = p.run_id;
    RETURN _sas.answer_claim(
        p, free,
        CASE WHEN permanent THEN 'permanent'
             WHEN n >= (policy ->> 'max_attempts')::int THEN 'transient' ELSE 'again' END,
        NULL, _sas.problem_object('task', 'the task failed', left(error, 2000), NULL, p.run_id, step_name),
        CASE WHEN given_up THEN interval '0' ELSE _sas.attempt_pause(policy, n) END);
END $$;

-- _sas.attempt_pause(policy, tries): the pause before another attempt; with jitter, a random part of it.
CREATE FUNCTION _sas.attempt_pause(policy jsonb, tries int) RETURNS interval
LANGUAGE sql VOLATILE AS $$
    SELECT greatest(0.001, CASE WHEN policy ? 'pauses'
                           THEN (policy -> 'pauses'
                                 ->> least(tries, jsonb_array_length(policy -> 'pauses')) - 1)::float8
                           ELSE least((policy ->> 'max_ms')::float8,
                                      (policy ->> 'initial_ms')::float8 * CASE policy ->> 'backoff'
                                          WHEN 'exponential' THEN 2 ^ least(tries - 1, 30)
                                          WHEN 'linear' THEN tries ELSE 1 END) END
                           * CASE WHEN (policy ->> 'jitter')::boolean AND NOT _sas.is_testing() THEN random()
                               ELSE 1 END) * interval '1 ms'
$$;

-- _sas.extend_place(p): another session has locked the run of this claim, so the slot stores how long the
-- claim holds. False: a tick has just taken it back. Only ticks, and programs under the same lease, lock
-- leases; ticks only for a moment.
--   locks   the lease: a tick that judges it comes first, or passes it by
--   writes  external_slot
--   next    _sas.held_steps reads it; _sas.end_claim writes it into the step
CREATE FUNCTION _sas.extend_place(p _sas.external_slot) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.lease l WHERE l.lease_id = p.lease_id FOR NO KEY UPDATE;
    UPDATE _sas.external_slot h
    SET extended_by = greatest(h.extended_by, least(sas.now() + p.lease, p.last_by))
    WHERE h.agent_id = p.agent_id AND h.place = p.place AND h.request_id = p.request_id;
    RETURN FOUND;
END $$;

-- _sas.heartbeat_as(...): the body of sas.heartbeat. It reports a cancel for work that was claimed before
-- the run was abandoned; an undo, and a task that is repeated to learn its outcome, continue.
CREATE FUNCTION _sas.heartbeat_as(caller oid, request_id uuid, progress float8, checkpoint jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_variable
DECLARE
    c record;
    p _sas.external_slot;
    cancelled boolean;
BEGIN
    IF progress IS NOT NULL AND NOT progress BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'progress % is not between 0 and 1', progress
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /progress.',
            HINT = 'Progress is the fraction that is done.';
    END IF;
    PERFORM _sas.check_bytes(_sas.share_size(checkpoint), _sas.max_input_size(), '/checkpoint',
                             'the checkpoint');
    c := _sas.lock_claim(caller, request_id, false);
    p := c.p;
    IF p.request_id IS NULL THEN
        RETURN 'lost';
    END IF;
    IF c.free THEN
        UPDATE _sas.step s SET complete_by = greatest(s.complete_by, least(sas.now() + p.lease, p.last_by))
        WHERE s.run_id = p.run_id AND s.step_no = p.step_no AND s.element = p.element;
    ELSIF NOT _sas.extend_place(p) THEN
        RETURN 'lost';
    END IF;
    IF progress IS NOT NULL OR checkpoint IS NOT NULL THEN
        INSERT INTO _sas.task AS t (run_id, step_no, element, undo, progress, checkpoint)
        VALUES (p.run_id, p.step_no, p.element, p.undo, progress, checkpoint)
        ON CONFLICT (run_id, step_no, element, undo)
        DO UPDATE SET progress = coalesce(EXCLUDED.progress, t.progress),
            checkpoint = coalesce(EXCLUDED.checkpoint, t.checkpoint);
    END IF;
    SELECT r.abandon_as IS NOT NULL AND NOT p.undo AND NOT p.settles INTO cancelled FROM _sas.run r
    WHERE r.run_id = p.run_id;
    RETURN CASE WHEN cancelled THEN 'cancel' ELSE 'go' END;
END $$;

CREATE FUNCTION _sas.hand_back_as(caller oid, request_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    c record := _sas.lock_claim(caller, request_id, false);
BEGIN
    RETURN (c.p).request_id IS NOT NULL AND _sas.answer_claim(c.p, c.free, 'hand_back', NULL, NULL, '0');
END $$;
