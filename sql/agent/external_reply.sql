-- SPDX-License-Identifier: PostgreSQL
--
-- External agents: what programs outside the server report about the tasks that they have claimed.
--
-- These verbs lock the run, and write the end of the claim in the transaction of the caller. None waits for
-- a session that has locked the run: a reply then becomes a row of _sas.answer, and the slot stays in use
-- until it is applied; a heartbeat writes the slot, under the lock of the lease. The lease of an outside
-- program (boot 0, worker 0) is judged by time only.

-- _sas.claimed_until(request): until when this claim holds; null: there is no such claim.
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

-- _sas.lock_claims(caller, request_ids, counts): the slots of those of these claims that hold, in this order,
-- because they complete in it, and are undone in reverse; free: for each, whether its run is locked now.
-- counts: replies for the other claims count as stale for their agents. arrived_at: a claim that held then
-- does so still, however long it takes to lock the runs, unless it was taken back meanwhile.
-- Locks: the runs. Writes: agent_health, for stale replies.
CREATE FUNCTION _sas.lock_claims(caller oid, request_ids uuid[], counts boolean,
                                 OUT slots _sas.external_slot[], OUT free boolean[],
                                 OUT arrived_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    agents int[];
    runs bigint[];
    refused text;
BEGIN
    arrived_at := sas.now();
    PERFORM _sas.check_latest_claim(q, _sas.claimed_until(q)) FROM unnest(request_ids) q
        WHERE _sas.keeps_snapshot();
    SELECT array_agg(DISTINCT h.agent_id), array_agg(DISTINCT h.run_id) INTO agents, runs
    FROM _sas.external_slot h WHERE h.request_id = ANY ($2);
    IF runs IS NOT NULL THEN
        SELECT a.name INTO refused FROM _sas.agent a
        WHERE a.agent_id = ANY (agents) AND NOT _sas.may_work(caller, a.agent_id) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'permission denied for agent "%"', refused
                USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /request_id.',
                HINT = 'Only a role with level worker for the agent can answer for it.';
        END IF;
        PERFORM _sas.wake_on_abort();
        PERFORM _sas.commit_durably();
        runs := _sas.lock_runs_of_claims(runs);
        -- a session that has just ended a claim may have held the run
        PERFORM _sas.check_latest_claim(q, _sas.claimed_until(q)) FROM unnest(request_ids) q
            WHERE _sas.keeps_snapshot();
        SELECT array_agg(h ORDER BY o.n), array_agg(h.run_id = ANY (runs) ORDER BY o.n) INTO slots, free
        FROM _sas.external_slot h
        CROSS JOIN LATERAL (SELECT FROM _sas.step s
                            WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element
                                AND s.request_id = h.request_id
                                AND greatest(s.complete_by, h.extended_by) > arrived_at OFFSET 0) s
        CROSS JOIN LATERAL (SELECT array_position($2, h.request_id) AS n OFFSET 0) o
        WHERE h.request_id = ANY ($2);
    END IF;
    IF counts AND coalesce(cardinality(slots), 0) < cardinality(request_ids) THEN
        PERFORM _sas.count_stale_claims(caller, ARRAY(
            SELECT q FROM unnest(request_ids) q
            WHERE NOT q IN (SELECT h.request_id FROM unnest(slots) h)));
    END IF;
END $$;

-- _sas.lock_claim(caller, request_id, counts): the same for one claim; p is null if it does not hold.
CREATE FUNCTION _sas.lock_claim(caller oid, request_id uuid, counts boolean,
                                OUT p _sas.external_slot, OUT free boolean, OUT arrived_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    held record := _sas.lock_claims(caller, ARRAY[request_id], counts);
BEGIN
    p := held.slots[1];
    free := held.free[1];
    arrived_at := held.arrived_at;
END $$;

-- _sas.lock_runs_of_claims(ids): locks these runs and returns them, without those that another session has
-- had locked for a moment. It waits only so long, because usually a tick has locked a run.
CREATE FUNCTION _sas.lock_runs_of_claims(ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[] := '{}';
BEGIN
    FOR look IN 1 .. 20 LOOP
        locked := locked || ARRAY(SELECT r.run_id FROM _sas.run r
                                  WHERE r.run_id = ANY (ids) AND NOT r.run_id = ANY (locked)
                                  FOR NO KEY UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(locked) = cardinality(ids);
        PERFORM pg_sleep(0.005);
    END LOOP;
    RETURN locked;
END $$;

-- _sas.count_stale_claims(caller, request_ids): counts stale replies of outside programs for their agents: of
-- claims whose time has passed, and of those that were taken back from a program of the caller.
CREATE FUNCTION _sas.count_stale_claims(caller oid, request_ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.add_stale(array_agg(s.agent_id), array_agg(s.n))
    FROM (SELECT l.agent_id, count(*) AS n
          FROM (SELECT h.agent_id FROM _sas.external_slot h WHERE h.request_id = ANY ($2)
                UNION ALL
                SELECT w.lane FROM _sas.task t JOIN _sas.run r ON r.run_id = t.run_id
                JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = t.step_no
                    AND w.undo = t.undo
                WHERE t.lapsed = ANY ($2) AND _sas.may_work(caller, w.lane)) l
          GROUP BY l.agent_id) s
    HAVING count(*) > 0;
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
    RETURN (c.p).request_id IS NOT NULL AND _sas.fail_claim(c.p, c.free, error, permanent, c.arrived_at);
END $$;

-- _sas.fail_claim(p, free, error, permanent, arrived_at): the same for this claim; free: its run is locked.
CREATE FUNCTION _sas.fail_claim(p _sas.external_slot, free boolean, error text, permanent boolean,
                                arrived_at timestamptz) RETURNS boolean
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
    RETURN _sas.answer_claims(ARRAY[p], ARRAY[free], ARRAY[_sas.make_call_reply(
        run_id => p.run_id, step_no => p.step_no, element => p.element, request_id => p.request_id,
        verdict => CASE WHEN permanent THEN 'permanent'
                   WHEN n >= (policy ->> 'max_attempts')::int THEN 'transient' ELSE 'again' END,
        error => _sas.problem_object('task', 'the task failed', left(error, 2000), NULL, p.run_id, step_name),
        again_in => CASE WHEN given_up THEN interval '0' ELSE _sas.attempt_pause(policy, n) END,
        arrived_at => arrived_at)]) <> '{}';
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
--   next    _sas.held_steps reads it; _sas.end_claims writes it into the step
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
-- Writes: step, task.
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
    PERFORM _sas.check_size(checkpoint, _sas.max_input_size(), '/checkpoint',
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

-- _sas.hand_back_as(caller, request_id): the body of sas.hand_back: the task is offered again at once, and no
-- attempt is counted. Returns whether the claim held. Next: _sas.answer_claims.
CREATE FUNCTION _sas.hand_back_as(caller oid, request_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    c record := _sas.lock_claim(caller, request_id, false);
BEGIN
    RETURN (c.p).request_id IS NOT NULL
        AND _sas.answer_claims(ARRAY[c.p], ARRAY[c.free], ARRAY[_sas.make_call_reply(
            run_id => (c.p).run_id, step_no => (c.p).step_no, element => (c.p).element,
            request_id => (c.p).request_id, verdict => 'hand_back', again_in => '0',
            arrived_at => c.arrived_at)]) <> '{}';
END $$;
