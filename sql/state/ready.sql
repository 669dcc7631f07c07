-- SPDX-License-Identifier: PostgreSQL
--
-- Ready: puts steps into the hot queue and wakes the workers that can claim them; takes steps out that must
-- not be claimed. Besides these functions, only claims delete rows (sql/flow/claim.sql,
-- sql/agent/external.sql), and only the scheduler moves rows between the lane of a queue and that of an
-- agent (sql/flow/queue.sql).

-- _sas.take_ready(run_ids, undos): deletes the ready rows of these runs and returns them. undos: also those
-- of undos.
-- Caller: holds the lock of the runs. Waits for a claim that has one of the rows locked at this moment.
-- Writes: ready.
CREATE FUNCTION _sas.take_ready(run_ids bigint[], undos boolean DEFAULT true) RETURNS _sas.ready[]
LANGUAGE plpgsql AS $$
DECLARE
    taken _sas.ready[];
BEGIN
    WITH gone AS (
        DELETE FROM _sas.ready q WHERE q.run_id = ANY (run_ids) AND (undos OR NOT q.undo)
        RETURNING q.*)
    SELECT array_agg(g) INTO taken FROM gone g;
    RETURN taken;
END $$;

-- _sas.take_ready_steps(run_ids, step_nos, elements): deletes the ready rows of these steps.
-- Caller: holds the lock of the runs. Writes: ready.
CREATE FUNCTION _sas.take_ready_steps(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM _sas.ready q USING unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    WHERE q.run_id = u.run_id AND q.step_no = u.step_no AND q.element = u.element;
END $$;

-- _sas.rank_again(run_ids, deltas): the priority of these runs has changed by these amounts: changes the
-- rank of their ready steps.
-- Caller: holds the lock of the runs. Writes: ready, parked_step.
CREATE FUNCTION _sas.rank_again(run_ids bigint[], deltas int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.ready q SET rank = q.rank - u.delta * _sas.priority_step()
    FROM unnest(run_ids, deltas) AS u (run_id, delta)
    WHERE q.run_id = u.run_id AND u.delta <> 0;
    UPDATE _sas.parked_step p SET rank = p.rank - u.delta * _sas.priority_step()
    FROM unnest(run_ids, deltas) AS u (run_id, delta)
    WHERE p.run_id = u.run_id AND u.delta <> 0;
END $$;

-- _sas.make_ready(...): puts steps into the hot queue and wakes the workers of their lanes.
--
-- Arrays of equal length; null: all of them are whole steps (element 0), forward, not alone. The rank is
-- fixed here: ready_at minus priority times sas.priority_step, plus a microsecond for each earlier run or
-- element, so that a low-water mark can be set between them (src/store/submit.c). Steps that are more than
-- a call get a message to the scheduler instead, unless it has begun them already (entered).
-- Caller: holds the lock of the runs, or has just created them. Writes: ready, phase; message, for the
-- scheduler. Wakes: workers that can claim the steps, or the scheduler. Next: a claim.
CREATE FUNCTION _sas.make_ready(run_ids bigint[], step_nos int[], elements int[] DEFAULT NULL,
                                undos boolean[] DEFAULT NULL,
                                alones boolean[] DEFAULT NULL, entered boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    few boolean := _sas.add_steps(cardinality(run_ids));
    lanes int[];
    thought boolean;
    staged boolean;
    spread float8 := least(1.0, 100000.0 / nullif(cardinality(run_ids), 0));
BEGIN
    IF coalesce(cardinality(run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    elements := coalesce(elements, array_fill(0, ARRAY[cardinality(run_ids)]));
    undos := coalesce(undos, array_fill(false, ARRAY[cardinality(run_ids)]));
    alones := coalesce(alones, array_fill(false, ARRAY[cardinality(run_ids)]));
    PERFORM _sas.check_latest_rows('middleware', 0) WHERE _sas.keeps_snapshot();
    IF _sas.has_pages('_sas.middleware') THEN
        PERFORM _sas.open_phases(run_ids, step_nos, elements, undos)
        WHERE EXISTS (SELECT FROM _sas.middleware m WHERE m.phase = 'call');
    END IF;
    staged := _sas.are_staged(run_ids);
    WITH next AS (
        SELECT u.*, CASE WHEN coalesce(w.queue_id, r.queue_id) > 0 THEN -coalesce(w.queue_id, r.queue_id)
                         WHEN staged THEN _sas.lane_now(u.run_id, u.step_no, u.element, u.undo, w.lane)
                         ELSE w.lane END AS lane,
               r.owner, r.priority + w.priority AS priority,
               NOT entered AND w.enters AND (u.element = 0 OR w.elements_enter)
               -- a step with attempts was begun before; but if its undo is a run or a wait, these are not
               -- attempts of the undo
               AND (w.kind IN ('workflow', 'wait')
                    OR (SELECT true FROM _sas.step s WHERE s.run_id = u.run_id
                        AND s.step_no = u.step_no AND s.element = u.element
                        AND s.attempt > 0 LIMIT 1) IS NULL) AS enters
        FROM unnest(run_ids, step_nos, elements, undos, alones) AS u (run_id, step_no, element, undo, alone)
        JOIN _sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL (SELECT s.kind, s.lane, s.priority, s.queue_id, s.enters, s.elements_enter
                            FROM _sas.workflow_step s
                            WHERE s.version_id = r.version_id AND s.step_no = u.step_no
                                AND s.undo = u.undo OFFSET 0) w),
    put AS (
        INSERT INTO _sas.ready (run_id, step_no, element, lane, owner, rank, ready_at, undo, alone)
        SELECT n.run_id, n.step_no, n.element, n.lane, n.owner,
            now - n.priority * _sas.priority_step()
                + interval '1 us' * (spread * (row_number() OVER (PARTITION BY n.step_no
                                                                  ORDER BY n.run_id, n.element) - 1)),
            now, n.undo, n.alone
        -- steps with the same rank are mostly claimed in this order
        FROM next n WHERE NOT n.enters ORDER BY n.run_id, n.step_no, n.element
        RETURNING lane),
    told AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
        SELECT 's', now, n.run_id, 'enter', n.step_no, n.element FROM next n WHERE n.enters
        RETURNING 1)
    SELECT (SELECT array_agg(DISTINCT lane) FROM put), EXISTS (SELECT FROM told) INTO lanes, thought;
    IF 0 < ANY (lanes) THEN
        lanes := _sas.notify_outside(lanes);
    END IF;
    IF 0 > ANY (lanes) THEN
        PERFORM _sas.wake_queues(lanes);
    ELSE
        PERFORM _sas.wake(lanes, thought);
    END IF;
END $$;

-- _sas.key_lane(queue_id): the lane of steps of a queue, or of an agent (queue_id is -agent_id), that wait
-- until one with the same key has ended.
CREATE FUNCTION _sas.key_lane(queue_id int) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT -1000000000 - queue_id;
END;

-- _sas.lane_let_out(lane): the lane from which a step with a row in this lane is claimed: that of its agent,
-- also while there is no room under its key, or of functions. Null: the step waits in a queue.
CREATE FUNCTION _sas.lane_let_out(lane int) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN lane >= 0 THEN lane
                WHEN lane BETWEEN -999999999 AND -500000000 THEN lane + 1000000000 END;
END;

-- _sas.park_calls(claimed, keys): puts these claimed calls of agents back, with their rank, each in the key
-- lane of its agent, because there is no room under its key.
-- Writes: ready, parked_step.
CREATE FUNCTION _sas.park_calls(claimed _sas.claimed[], keys text[]) RETURNS void
LANGUAGE sql AS $$
    WITH parked AS (
        SELECT c.*, r.owner, k.key
        FROM unnest($1) WITH ORDINALITY AS c (run_id, step_no, element, undo, alone, version_id, lane,
                                              from_state, attempt, complete_in, request_id, rank, ready_at, n)
        JOIN unnest($2) WITH ORDINALITY AS k (key, n) USING (n)
        JOIN _sas.run r ON r.run_id = c.run_id),
    back AS (
        INSERT INTO _sas.ready (run_id, step_no, element, lane, owner, rank, ready_at, undo, alone)
        SELECT p.run_id, p.step_no, p.element, _sas.key_lane(-p.lane), p.owner, p.rank, p.ready_at, p.undo,
               p.alone
        FROM parked p)
    INSERT INTO _sas.parked_step AS s (run_id, step_no, element, queue_id, key, rank)
    SELECT p.run_id, p.step_no, p.element, -p.lane, p.key, p.rank FROM parked p
    ON CONFLICT (run_id, step_no, element) DO UPDATE
        SET queue_id = EXCLUDED.queue_id, key = EXCLUDED.key, rank = EXCLUDED.rank
$$;

-- _sas.leave_key_lane(run_id, step_no, element, queue_id): returns this step to its queue, or to the lane of
-- its agent. Caller: holds the lock of its row. Writes: ready.
CREATE FUNCTION _sas.leave_key_lane(run_id bigint, step_no int, element int, queue_id int) RETURNS void
LANGUAGE sql AS $$
    UPDATE _sas.ready q SET lane = -$4 WHERE q.run_id = $1 AND q.step_no = $2 AND q.element = $3
$$;

-- _sas.empty_key_lane(queue_id, quantity): returns steps in the key lane of this queue to the queue, at most
-- quantity. Returns how many. Skips rows that a session has locked. Caller: a scheduler with the mutex
-- "queues". Writes: ready, parked_step.
CREATE FUNCTION _sas.empty_key_lane(queue_id int, quantity int) RETURNS int
LANGUAGE sql AS $$
    WITH free AS (
        SELECT q.run_id, q.step_no, q.element FROM _sas.ready q WHERE q.lane = _sas.key_lane($1)
        LIMIT $2 FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM _sas.parked_step k USING free f
        WHERE k.run_id = f.run_id AND k.step_no = f.step_no AND k.element = f.element),
    moved AS (
        UPDATE _sas.ready q SET lane = -$1 FROM free f
        WHERE q.run_id = f.run_id AND q.step_no = f.step_no AND q.element = f.element RETURNING 1)
    SELECT count(*)::int FROM moved
$$;

-- _sas.late_lane(): the lane of steps that no worker may claim: because start_before of their run has
-- passed, or because they were put aside.
CREATE FUNCTION _sas.late_lane() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN -2147483647;

-- _sas.move_to_late_lane(claimed, kind, until): puts these taken steps back, in the late lane, with a message
-- of this kind about each run, due then. Their lanes are scanned again: a claim that returns fewer steps than
-- it asked for does not mean that there were no more.
-- Writes: ready, message. Wakes: the scheduler, workers of these lanes.
CREATE FUNCTION _sas.move_to_late_lane(claimed _sas.claimed[], kind text, until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    INSERT INTO _sas.ready (run_id, step_no, element, lane, owner, rank, ready_at, undo, alone)
    SELECT c.run_id, c.step_no, c.element, _sas.late_lane(), r.owner, now, now, c.undo, c.alone
    FROM unnest(claimed) c JOIN _sas.run r ON r.run_id = c.run_id;
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT DISTINCT 's'::"char", until, c.run_id, $2 FROM unnest(claimed) c;
    PERFORM _sas.wake(array_agg(DISTINCT c.lane), true) FROM unnest(claimed) c;
END $$;

-- _sas.defer_late(claimed): puts those of these claimed steps into the late lane whose runs have passed their
-- start_before, and returns the others; null: none. The scheduler, which locks the run, decides about them.
CREATE FUNCTION _sas.defer_late(claimed _sas.claimed[]) RETURNS _sas.claimed[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    late bigint[] := ARRAY(SELECT r.run_id FROM _sas.run r
                           WHERE r.run_id = ANY (ARRAY(SELECT c.run_id FROM unnest(claimed) c))
                             AND r.state = 'pending' AND r.start_before <= now);
BEGIN
    IF late = '{}' THEN
        RETURN claimed;
    END IF;
    PERFORM _sas.move_to_late_lane(ARRAY(SELECT c FROM unnest(claimed) c WHERE c.run_id = ANY (late)),
                                   'late', now);
    RETURN nullif(ARRAY(SELECT c FROM unnest(claimed) c WHERE c.run_id <> ALL (late)), '{}');
END $$;

-- _sas.put_aside(claimed, until): puts these taken steps, which cannot be claimed, into the late lane.
-- Writes: deferred_work.
CREATE FUNCTION _sas.put_aside(claimed _sas.claimed[], until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.move_to_late_lane(claimed, 'aside', until);
    INSERT INTO _sas.deferred_work AS d (kind, id, until)
    SELECT DISTINCT 'claim', c.run_id, $2 FROM unnest(claimed) c
    ON CONFLICT (kind, id) DO UPDATE SET until = excluded.until;
END $$;

-- _sas.end_aside(run_ids): makes ready again what was put aside of these runs.
-- Caller: holds the lock of the runs. Writes: ready. Wakes: workers that can claim the steps.
CREATE FUNCTION _sas.end_aside(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.make_ready(array_agg(b.run_id), array_agg(b.step_no), array_agg(b.element),
                            array_agg(b.undo), array_agg(b.alone), entered => true)
    FROM unnest(_sas.take_late(run_ids)) b;
END $$;

-- _sas.take_late(run_ids): deletes the rows of these runs in the late lane and returns them.
-- Caller: holds the lock of the runs. Writes: ready.
CREATE FUNCTION _sas.take_late(run_ids bigint[]) RETURNS _sas.ready[]
LANGUAGE plpgsql AS $$
DECLARE
    taken _sas.ready[];
BEGIN
    WITH gone AS (
        DELETE FROM _sas.ready q
        WHERE q.run_id = ANY (run_ids) AND q.lane = _sas.late_lane()
        RETURNING q.*)
    SELECT array_agg(g) INTO taken FROM gone g;
    RETURN taken;
END $$;

-- _sas.hand_to_functions(run_ids, step_nos, elements): moves calls that wait for their agent to the lane of
-- functions.
-- Writes: ready. Wakes: function workers.
CREATE FUNCTION _sas.hand_to_functions(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.ready q SET lane = 0
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    WHERE q.run_id = u.run_id AND q.step_no = u.step_no AND q.element = u.element AND q.lane > 0;
    PERFORM _sas.wake('{0}');
END $$;

-- _sas.middleware_chain(for_phase, for_workflow, for_owner): the middleware that applies to runs of this role
-- and workflow, outermost first; null if none does. Leaves out middleware whose creator the role does not
-- trust: an admin can neither change nor stop what superusers submit. A former admin has no more right to see
-- or change what others submit. Its middleware is marked: it may be a rule that must not be passed by in
-- silence, so nobody goes through it, until an admin has decided what becomes of it.
CREATE FUNCTION _sas.middleware_chain(for_phase text, for_workflow int, for_owner oid) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    WITH here AS (SELECT m.*, m.created_by <> for_owner
                             AND NOT _sas.has_level(m.created_by, 'admin') AS former
                  FROM _sas.middleware m WHERE m.phase = for_phase
                  AND (m.workflow_id IS NULL OR m.workflow_id = for_workflow)
                  AND _sas.trusts(for_owner, m.created_by))
    SELECT jsonb_agg(jsonb_build_object('name', h.name, 'owner', h.created_by::oid::bigint,
                                        'former', h.former,
                                        'before', h.before_function, 'after', h.after_function)
                     ORDER BY h.place, h.workflow_id IS NOT NULL, h.middleware_id)
    FROM here h
    WHERE (h.before_function IS NOT NULL OR h.after_function IS NOT NULL OR h.former)
        AND NOT EXISTS (SELECT FROM here r WHERE r.replaces = h.name)
$$;

-- _sas.open_phases(...): calls that begin now and have middleware get their first phase. Status requests of
-- polls are not wrapped.
-- Writes: phase.
CREATE FUNCTION _sas.open_phases(run_ids bigint[], step_nos int[], elements int[], undos boolean[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.phase (run_id, step_no, element, undo, stage)
    SELECT u.run_id, u.step_no, u.element, u.undo,
           CASE WHEN c.chain @? '$[*] ? (@.before != null || @.former == true)' THEN 'before' ELSE 'call' END
    FROM unnest(run_ids, step_nos, elements, undos) AS u (run_id, step_no, element, undo)
    JOIN _sas.run r ON r.run_id = u.run_id
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no, u.undo) w
    CROSS JOIN LATERAL (SELECT CASE WHEN w.kind = 'call'
                        THEN _sas.middleware_chain('call', v.workflow_id, r.owner) END AS chain OFFSET 0) c
    WHERE c.chain IS NOT NULL
      AND NOT (u.element = 0 AND coalesce(w.shape ?| '{each,repeat}', false))
      AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = u.run_id AND s.step_no = u.step_no
                      AND s.element = u.element AND s.asks IS NOT NULL AND NOT u.undo)
    ON CONFLICT DO NOTHING;
END $$;

-- _sas.lane_now(...): the lane in which a step is claimed: its own lane, or the lane of functions while it
-- is in a phase that function workers handle.
CREATE FUNCTION _sas.lane_now(for_run bigint, for_no int, for_element int, for_undo boolean, lane int)
RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM _sas.phase g WHERE g.run_id = for_run AND g.step_no = for_no
                             AND g.element = for_element AND g.undo = for_undo
                             AND g.stage NOT IN ('call', 'poll'))
                THEN 0 ELSE lane END
$$;

-- _sas.wake_queues(lanes): some of these lanes are queues: wakes the scheduler for them, and the workers of
-- the others.
-- Wakes: the scheduler, the workers of the lanes.
CREATE FUNCTION _sas.wake_queues(lanes int[]) RETURNS void
LANGUAGE sql AS $$
    SELECT _sas.wake(ARRAY(SELECT l FROM unnest(lanes) l WHERE l >= 0), true)
$$;
