-- SPDX-License-Identifier: PostgreSQL
--
-- External agents: programs outside the server work on tasks, over SQL.
--
-- A claim takes ready rows of the agent's lane, and one slot of the agent for each; the slot stores which
-- program holds which step, and request_id finds it. Unlike a worker, a session may keep its transaction
-- open, and no tick may wait for it. So a claim first takes shared locks of the runs (ticks then skip them),
-- and only then rows of _sas.ready. It skips rows that other sessions have locked.

-- _sas.tasks(claimed, most_us): the input of these claimed tasks; problem: why it cannot be built. A task
-- that is too large fails alone and holds up no other. most_us: what the templates of one owner may cost, and
-- a fifth of what all may; null: any. left_out: the input is not built, because they have cost more.
CREATE FUNCTION _sas.tasks(claimed _sas.claimed[], most_us bigint DEFAULT NULL)
RETURNS TABLE (run_id bigint, step_no int, element int, undo boolean, lane int, request_id uuid,
               complete_in interval, name text, key text,
               asked jsonb, problem jsonb, checkpoint jsonb, left_out boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c _sas.claimed;
    began_us bigint := _sas.evaluated_cost();
    spent jsonb := '{}';    -- by owner
    took_us bigint;
    of_owner text;
BEGIN
    FOREACH c IN ARRAY coalesce(claimed, '{}') LOOP
        took_us := _sas.evaluated_cost();
        -- while all are cheap, nobody asks whose they are
        of_owner := CASE WHEN spent <> '{}' THEN _sas.owner_of_run(c.run_id)::text END;
        IF (spent ->> of_owner)::bigint > most_us OR took_us - began_us > 5 * most_us THEN
            RETURN QUERY SELECT c.run_id, c.step_no, c.element, c.undo, c.lane, c.request_id, c.complete_in,
                NULL, NULL, NULL::jsonb, NULL::jsonb, NULL::jsonb, true;
            CONTINUE;
        END IF;
        BEGIN
            RETURN QUERY
            SELECT c.run_id, c.step_no, c.element, c.undo, c.lane, c.request_id, c.complete_in, w.name,
                coalesce(CASE WHEN c.undo THEN e.undo_key
                         ELSE e.key END, _sas.step_key(v.trace, w.name, c.element, c.undo)),
                   CASE WHEN e.input IS NOT NULL THEN e.input WHEN w.input IS NULL THEN v.input
                       ELSE body.result END,
                   CASE WHEN e.input IS NULL AND body.problem IS NOT NULL
                       THEN _sas.no_input(c.run_id, w.name, coalesce(body.problem ->> 'path', 'template'),
                                          body.problem ->> 'what')
                       WHEN NOT c.undo AND _sas.agent_right(v.owner, w.lane) = 'n'
                       THEN _sas.refused_call(v.owner, c, w.lane, w.name, NULL) -> 'error' END, t.checkpoint,
                   false
            FROM _sas.run v
            JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no
                AND w.undo = c.undo
            CROSS JOIN LATERAL (SELECT CASE WHEN w.input IS NOT NULL
                                THEN _sas.context(v, w, c.element) END AS root OFFSET 0) x
            LEFT JOIN LATERAL _sas.render(w.input, x.root) body ON w.input IS NOT NULL
            LEFT JOIN LATERAL (SELECT d.key, d.undo_key, CASE WHEN NOT c.undo THEN d.input END AS input
                               FROM _sas.override d WHERE d.run_id = c.run_id AND d.step_no = c.step_no
                               AND d.element = c.element OFFSET 0) e ON true
            LEFT JOIN _sas.task t ON t.run_id = c.run_id AND t.step_no = c.step_no AND t.element = c.element
                AND t.undo = c.undo
            WHERE v.run_id = c.run_id;
        EXCEPTION WHEN OTHERS THEN
            IF NOT _sas.is_of_item(SQLSTATE) OR _sas.may_pass(SQLSTATE) THEN
                RAISE;
            END IF;
            RETURN QUERY
            SELECT c.run_id, c.step_no, c.element, c.undo, c.lane, c.request_id, c.complete_in, w.name,
                NULL::text, NULL::jsonb, _sas.no_input(c.run_id, w.name, 'template', SQLERRM), NULL::jsonb,
                false
            FROM _sas.workflow_step w WHERE w.version_id = c.version_id AND w.step_no = c.step_no
                AND w.undo = c.undo;
        END;
        took_us := _sas.evaluated_cost() - took_us;
        IF took_us > 0 THEN
            of_owner := _sas.owner_of_run(c.run_id)::text;
            spent := spent
                || jsonb_build_object(of_owner, coalesce((spent ->> of_owner)::bigint, 0) + took_us);
        END IF;
    END LOOP;
END $$;

-- _sas.owner_of_run(of_run): its owner.
CREATE FUNCTION _sas.owner_of_run(of_run bigint) RETURNS oid
LANGUAGE sql STABLE AS $$ SELECT r.owner::oid FROM _sas.run r WHERE r.run_id = of_run $$;

-- _sas.no_input(run_id, step, path, why): the error of a task whose input cannot be built.
CREATE FUNCTION _sas.no_input(run_id bigint, step text, path text, why text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT _sas.problem_object('template', 'could not build the input of the step',
                               format('%s: %s', path, why), NULL, run_id, step)
$$;

-- _sas.check_claim(caller, agent, worker, quantity, lease): the external agent, if this claim is allowed;
-- else raises an error.
CREATE FUNCTION _sas.check_claim(caller oid, agent text, worker text, quantity int, lease interval)
RETURNS _sas.agent
LANGUAGE plpgsql STABLE AS $$
DECLARE
    a _sas.agent;
BEGIN
    SELECT * INTO a FROM _sas.agent x WHERE x.name = $2 AND x.dropped_at IS NULL;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('agent', $2, '/agent', 'Name an agent of kind "external".');
    END IF;
    IF NOT _sas.may_work(caller, a.agent_id) THEN
        RAISE EXCEPTION 'permission denied for agent "%"', $2
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /agent.',
            HINT = format('An admin can grant it: SELECT sas.grant_usage(%L, ''worker'', %L).',
                          caller::regrole, $2);
    END IF;
    IF a.kind <> 'external' THEN
        RAISE EXCEPTION 'agent "%" is not external', $2
            USING ERRCODE = 'wrong_object_type', DETAIL = 'At /agent.',
                HINT = 'The workers of sas make its calls.';
    END IF;
    IF coalesce(worker, '') = '' OR octet_length(worker) > 200 OR worker ~ E'[\\x01-\\x1f\\x7f]' THEN
        RAISE EXCEPTION
            'the name of the worker is empty, longer than 200 bytes or contains control characters'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /worker.',
                HINT = 'Name the process, for example by its host and process ID.';
    END IF;
    IF quantity IS NULL OR quantity NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'the quantity must be between 1 and 1000'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /quantity.',
            HINT = 'Claim only what the program can start at once.';
    END IF;
    IF lease IS NULL OR lease <= '0' OR lease > '30 days' THEN
        RAISE EXCEPTION 'the lease must be positive and at most 30 days'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /lease.',
            HINT = 'Use a short lease and extend it with sas.heartbeat.';
    END IF;
    RETURN a;
END $$;

-- _sas.lock_places(a, quantity): locks free slots of the agent: at most as many as there are ready tasks,
-- and at most quantity. If nothing is ready, nothing is locked.
-- Locks: slots that no other session has locked.
CREATE FUNCTION _sas.lock_places(a _sas.agent, quantity int) RETURNS int[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT p.place FROM _sas.external_slot p
        WHERE p.agent_id = a.agent_id AND p.place <= a.max_in_flight AND p.request_id IS NULL
        LIMIT greatest(0, least(_sas.some_ready(a.agent_id, a.agent_id, quantity),
                                a.max_in_flight - (SELECT count(*) FROM _sas.external_slot h
                                                   WHERE h.agent_id = a.agent_id
                                                   AND h.request_id IS NOT NULL)))
        FOR UPDATE SKIP LOCKED);
END $$;

-- _sas.take_tasks(agent_id, quantity, lease): takes this many ready tasks out of the queue of the agent, in
-- their order; null: other transactions have locked all that is ready.
--   locks   their runs (shared) first, then their rows in ready; skips locked ones
--   writes  ready
--   next    _sas.hold_tasks
CREATE FUNCTION _sas.take_tasks(agent_id int, quantity int, lease interval) RETURNS _sas.claimed[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    turns record;
    further boolean := false;
    claimed _sas.claimed[] := '{}';
    taken_now _sas.claimed[];
BEGIN
    PERFORM _sas.begin_taking(false);
    -- the part of its share that an owner does not use is shared out again
    WHILE cardinality(claimed) < $2 LOOP
        turns := _sas.share_lanes(ARRAY[$1], ARRAY[$2 - cardinality(claimed)], further => further);
        WITH taken AS (
            DELETE FROM _sas.ready r
            WHERE r.ctid = ANY ((SELECT _sas.lock_ready(turns.in_lanes, turns.owners, turns.shares,
                                                        turns.marks, locks_runs => true))::tid[])
            RETURNING r.run_id, r.step_no, r.element, r.lane, r.rank, r.ready_at, r.undo, r.alone)
        SELECT array_agg(ROW(t.run_id, t.step_no, t.element, t.undo, t.alone, v.version_id, t.lane,
                             coalesce(s.state, 'none'),
                             coalesce(s.attempt, 0), least(lease, w.complete_in),
                                 gen_random_uuid(), t.rank, t.ready_at)::_sas.claimed
                         ORDER BY t.rank, t.run_id, t.step_no, t.element)
        INTO taken_now
        FROM taken t
        JOIN _sas.run v ON v.run_id = t.run_id
        CROSS JOIN LATERAL _sas.step_definition(v.version_id, t.step_no, t.undo) w
        LEFT JOIN LATERAL _sas.step_row(t.run_id, t.step_no, t.element) s ON true;
        -- other transactions may have locked all that was shared out: the next owners have their turn
        further := taken_now IS NULL;
        EXIT WHEN further AND NOT turns.remaining;
        claimed := claimed || coalesce(taken_now, '{}');
        EXIT WHEN turns.shared IS NULL AND NOT turns.remaining;
    END LOOP;
    RETURN nullif(claimed, '{}');
END $$;

-- _sas.hold_tasks(agent_id, claimed, places, worker, lease, now): stores that the worker holds these tasks
-- from now on, each in one of these slots.
--   holds   the locks of the slots, and shared ones of the runs
--   writes  lease, external_slot, step, run
--   wakes   the supervisor, at the end of the lease
CREATE FUNCTION _sas.hold_tasks(agent_id int, claimed _sas.claimed[], places int[], worker text,
                                lease interval, now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    held_under bigint;
BEGIN
    INSERT INTO _sas.lease AS l (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
    SELECT 0, 0, worker, now + min(c.complete_in), array_agg(c.run_id), array_agg(c.step_no),
        array_agg(c.element)
    FROM unnest(claimed) c
    RETURNING l.lease_id INTO held_under;
    PERFORM _sas.due_by(now + min(c.complete_in)) FROM unnest(claimed) c;
    UPDATE _sas.external_slot p
    SET request_id = h.request_id, lease_id = held_under, run_id = h.run_id, step_no = h.step_no,
        element = h.element, undo = h.undo, settles = h.settles, worker = $4, lease = $5,
        claimed_at = now, last_by = now + h.complete_in
    -- OFFSET 0, and the agent in it: each slot is found by its whole key
    FROM (SELECT $1 AS agent_id, places[c.n] AS place, c.request_id, c.run_id, c.step_no, c.element, c.undo,
                 v.abandon_as IS NOT NULL AS settles, w.complete_in
          FROM unnest(claimed) WITH ORDINALITY AS c (run_id, step_no, element, undo, alone, version_id, lane,
                                                     from_state, attempt, complete_in, request_id, rank,
                                                     ready_at, n)
          JOIN _sas.run v ON v.run_id = c.run_id
          CROSS JOIN LATERAL _sas.step_definition(c.version_id, c.step_no, c.undo) w OFFSET 0) h
    WHERE p.agent_id = h.agent_id AND p.place = h.place;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => c.run_id, step_no => c.step_no, element => c.element, from_state => c.from_state,
        to_state => CASE WHEN c.undo THEN 'compensating' ELSE 'running' END, started_at => now,
        lease_id => held_under, request_id => c.request_id, complete_by => now + c.complete_in)))
    FROM unnest(claimed) c;
    PERFORM _sas.start_runs(array_agg(c.run_id), now) FROM unnest(claimed) c
        WHERE c.from_state IN ('none', 'ready');
END $$;

-- _sas.end_unfit(replies): ends the claims of tasks that are not given out after all.
CREATE FUNCTION _sas.end_unfit(replies _sas.call_reply[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.end_claims(array_agg(p ORDER BY u.ordinality), replies)
    FROM unnest(replies) WITH ORDINALITY AS u
    JOIN _sas.external_slot p ON p.request_id = u.request_id;
END $$;

-- _sas.claim_as(caller, agent, worker, quantity, lease): the body of sas.claim. Each claimed task is held
-- for the lease, at most for its complete_in. A task whose input cannot be built fails for good, and
-- another one is claimed instead. Tasks whose templates would take too long together are given back. If it
-- ends before it has come behind the tasks that other sessions hold, programs are told to claim again.
--   locks   slots of the agent, then runs (shared), then their rows in ready; skips locked ones
--   writes  ready, external_slot, lease, step, run
--   wakes   NOTIFY for outside programs
--   next    sas.complete, sas.fail, sas.heartbeat or sas.hand_back of the worker; _sas.take_back
CREATE FUNCTION _sas.claim_as(caller oid, agent text, worker text, quantity int, lease interval)
RETURNS TABLE (request_id uuid, run_id bigint, step text, undo boolean, idempotency_key text, request jsonb,
               checkpoint jsonb, lease_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- the session of the caller may have any planner settings; these statements read few rows, by an index,
    -- and take locks in its order
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_bitmapscan = off SET enable_sort = off SET enable_tidscan = on AS $$
#variable_conflict use_column
DECLARE
    a _sas.agent := _sas.check_claim(caller, agent, worker, quantity, lease);
    now timestamptz;
    places int[];
    claimed _sas.claimed[];
    r record;
    unfit _sas.call_reply[];
    given int := 0;
    looks int := 1;
    tokens int := 0;
    dear boolean := false;  -- some inputs are left for another claim
BEGIN
    PERFORM _sas.begin_taking(true);
    WHILE a.enabled AND given = 0 AND _sas.quarantined_for() IS NULL LOOP
        places := _sas.lock_places(a, quantity);
        EXIT WHEN places = '{}';
        -- tokens that this claim does not use are lost: it is better to be too slow than too fast
        IF a.rate_per_s IS NOT NULL AND tokens < cardinality(places) THEN
            tokens := tokens + _sas.spend_tokens(a.agent_id, a.rate_per_s, cardinality(places) - tokens);
            places := places[: tokens];
            EXIT WHEN tokens = 0;
        END IF;
        PERFORM _sas.wake_on_abort(), _sas.commit_durably();
        claimed := _sas.take_tasks(a.agent_id, cardinality(places), lease);
        IF claimed IS NULL THEN
            -- it goes on behind those that others hold; if these hold all, usually for a moment only
            CONTINUE WHEN _sas.taking_was_cut(a.agent_id);
            EXIT WHEN looks = 10;
            looks := looks + 1;
            PERFORM pg_sleep(0.005);
            CONTINUE;
        END IF;
        -- after those ended that the tasks waited for
        now := sas.now();
        BEGIN
            PERFORM _sas.hold_tasks(a.agent_id, claimed, places, worker, lease, now);
        EXCEPTION WHEN OTHERS THEN
            claimed := _sas.claim_apart(claimed, '{}');
            CONTINUE WHEN claimed IS NULL;
            PERFORM _sas.hold_tasks(a.agent_id, claimed, places, worker, lease, now);
        END;
        tokens := tokens - cardinality(claimed);
        unfit := '{}';
        FOR r IN SELECT * FROM _sas.tasks(claimed, 100000) LOOP
            IF r.left_out OR r.problem IS NOT NULL THEN
                unfit := unfit || _sas.make_call_reply(r.run_id, r.step_no, r.element, r.request_id,
                                                       CASE WHEN r.left_out THEN 'hand_back'
                                                       ELSE 'permanent' END, error => r.problem,
                                                       again_in => '0');
                dear := dear OR r.left_out;
            ELSE
                given := given + 1;
                RETURN QUERY SELECT r.request_id, r.run_id, r.name, r.undo, r.key, r.asked, r.checkpoint,
                    now + r.complete_in;
            END IF;
        END LOOP;
        PERFORM _sas.end_unfit(unfit) WHERE unfit <> '{}';
        EXIT WHEN dear;
    END LOOP;
    PERFORM _sas.notify_outside(ARRAY[a.agent_id])
    WHERE given BETWEEN 1 AND quantity - 1 AND _sas.taking_was_cut(a.agent_id);
END $$;
