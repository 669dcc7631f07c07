-- SPDX-License-Identifier: PostgreSQL
--
-- The claim, for workers of all kinds: deletes ready rows, inserts a lease, and sets the steps to running.

-- _sas.take_from_lanes(lanes, quantities, urgent): takes up to quantities[i] steps of lanes[i] out of the
-- ready queue; owners take turns. urgent: see _sas.urgent_shares.
--
-- After a crash, a function that may have caused it is claimed alone: a function that must run alone ends
-- the batch before it. The statement that takes the rows does this itself, because an earlier check would
-- miss rows that become ready in between.
--   begun   the runs that begin with this claim; late: one of them has passed its start_before
--   plain   each is one step by itself: in no map, include, poll or fallback, with templates that read no
--           other step, and not finalize
--   shared  as in _sas.share_lanes
-- Never waits for a lock.
-- Writes: ready.
CREATE FUNCTION _sas.take_from_lanes(lanes int[], quantities int[], urgent boolean,
                                     OUT claimed _sas.claimed[], OUT begun bigint[], OUT late boolean,
                                     OUT plain boolean, OUT shared int[])
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    turns record;
    taken record;
    further boolean := false;
BEGIN
    LOOP
        turns := _sas.share_lanes(lanes, quantities, urgent, further);
        EXIT WHEN turns.shares IS NULL;
        taken := _sas.take_shared(turns.in_lanes, turns.owners, turns.shares, turns.marks, now);
        claimed := taken.claimed;
        begun := taken.begun;
        late := taken.late;
        plain := taken.plain;
        -- other transactions had locked all that was shared out: the next owners have their turn
        EXIT WHEN claimed IS NOT NULL OR NOT turns.remaining;
        further := true;
    END LOOP;
    shared := turns.shared;
END $$;

-- _sas.take_shared(in_lanes, owners, shares, marks, now): takes up to shares[i] steps of owners[i], from
-- marks[i] on, out of in_lanes[i]. Returns what _sas.take_from_lanes returns. n: how many.
-- Writes: ready.
CREATE FUNCTION _sas.take_shared(in_lanes int[], owners oid[], shares int[], marks timestamptz[],
                                 now timestamptz, OUT n int, OUT claimed _sas.claimed[], OUT begun bigint[],
                                 OUT late boolean, OUT plain boolean)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT count(_sas.waited(t.lane, t.ready_at)),
           array_agg(ROW(t.run_id, t.step_no, t.element, t.undo, t.alone, r.version_id, t.lane,
                         coalesce(s.state, 'none'), coalesce(s.attempt, 0),
                         CASE WHEN s.ask_until IS NULL
                              THEN coalesce(w.complete_in, _sas.complete_in())
                              ELSE greatest(least(coalesce(w.complete_in, _sas.complete_in()),
                                                  s.ask_until - now), interval '1 s') END,
                         gen_random_uuid(), t.rank, t.ready_at)::_sas.claimed
                     ORDER BY t.rank, t.run_id, t.step_no, t.element),
           array_agg(t.run_id) FILTER (WHERE r.state = 'pending'),
           bool_or(r.state = 'pending' AND r.start_before <= now),
           bool_and(w.plain)
    INTO n, claimed, begun, late, plain
    FROM _sas.claim_rows(in_lanes, owners, shares, marks) t
    JOIN _sas.run r ON r.run_id = t.run_id
    -- OFFSET 0: without it the planner may use only the first column of the key, and walk all steps of
    -- the workflow, or of the run
    CROSS JOIN LATERAL (SELECT x.complete_in, x.shape IS NULL AND x.scope_no IS NULL
                        AND x.reads = '{}' AND x.name <> 'finalize' AS plain FROM _sas.workflow_step x
                        WHERE x.version_id = r.version_id AND x.step_no = t.step_no
                            AND x.undo = t.undo OFFSET 0) w
    LEFT JOIN LATERAL (SELECT x.state, x.attempt,
                              CASE WHEN t.undo THEN _sas.asks_until(x)
                              ELSE x.ask_until END AS ask_until FROM _sas.step x WHERE x.run_id = t.run_id
                       AND x.step_no = t.step_no AND x.element = t.element OFFSET 0) s ON true;
END $$;

-- _sas.try_claim(claimed, keyed): would these taken steps be claimed without an error? keyed: agents with a
-- key. Changes nothing.
CREATE FUNCTION _sas.try_claim(claimed _sas.claimed[], keyed int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.key_of_step(a.options #>> '{concurrency,key}', c.run_id, c.step_no, c.element, c.undo)
    FROM unnest(claimed) c JOIN _sas.agent a ON a.agent_id = c.lane AND c.lane = ANY (keyed);
    PERFORM _sas.take_steps(claimed, 0, sas.now());
    PERFORM _sas.start_runs(array_agg(c.run_id)) FROM unnest(claimed) c;
    RAISE EXCEPTION 'undone' USING ERRCODE = 'SAS00';
EXCEPTION WHEN SQLSTATE 'SAS00' THEN
    NULL;
END $$;

-- _sas.claim_apart(claimed, keyed): a claim of these taken steps has raised an error, or one like it has.
-- Puts those aside, with an alert, that cannot be claimed by themselves, and returns the others; null: none.
-- Caller: has just taken the steps out of _sas.ready. Writes: ready, message, queue_slot, alert. Wakes:
-- workers of the lanes. Next: the scheduler makes what was put aside ready again after a pause
-- (_sas.end_aside).
CREATE FUNCTION _sas.claim_apart(claimed _sas.claimed[], keyed int[]) RETURNS _sas.claimed[]
LANGUAGE plpgsql AS $$
DECLARE
    done record := _sas.apart(format('NULL::bigint[] FROM _sas.try_claim($1, %L)', keyed), claimed);
BEGIN
    IF done.failed IS NULL THEN
        RETURN claimed;
    END IF;
    PERFORM _sas.put_aside(ARRAY(SELECT claimed[f.n] FROM unnest(done.failed) WITH ORDINALITY AS f (n, i)
                                 ORDER BY f.i), sas.now() + (SELECT max(p) FROM unnest(done.pauses) p));
    PERFORM _sas.free_slots(ARRAY(SELECT claimed[n].run_id FROM unnest(done.failed) n));
    PERFORM _sas.raise_failing('stuck', 'claim stuck',
                               format('run %s: a step cannot be claimed', claimed[f.n].run_id), f.why,
                               claimed[f.n].run_id, claimed[f.n].step_no)
    FROM unnest(done.failed, done.errors) AS f (n, why);
    RETURN (SELECT array_agg(claimed[n] ORDER BY n) FROM generate_subscripts(claimed, 1) n
            WHERE n <> ALL (done.failed));
END $$;

-- _sas.begin_lease(claimed, boot, worker_id, locked_by, at): the lease of the worker on these steps; null:
-- there are none. Writes: lease.
CREATE FUNCTION _sas.begin_lease(claimed _sas.claimed[], boot bigint, worker_id bigint, locked_by text,
                                 at timestamptz, OUT lease_id bigint)
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
    SELECT $2, $3, $4, _sas.due_by(at + min(c.complete_in)), array_agg(c.run_id), array_agg(c.step_no),
        array_agg(c.element)
    FROM unnest(claimed) c HAVING count(*) > 0
    RETURNING lease.lease_id INTO lease_id;
END $$;

-- _sas.claim_ready(...): claims up to quantities[i] steps of lanes[i] for a worker. Returns the claimed
-- steps; their rows in _sas.step are running (an undo is compensating) with a fresh request_id and
-- complete_by. The lease names the worker. plain: as in _sas.take_from_lanes. apart: the last claim of this
-- worker raised an error: steps that cannot be claimed are put aside.
-- Caller: needs no lock; never waits for one. Calls of agents with a key: takes the mutex "agent keys"; if it
-- is not free, they are claimed later. Writes: ready, lease, step, run, queue_slot. Wakes: workers of these
-- lanes, for what is left. Next: the work, then _sas.write_replies.
CREATE FUNCTION _sas.claim_ready(lanes int[], quantities int[], boot bigint, worker_id bigint, locked_by text,
                                 urgent boolean DEFAULT false, apart boolean DEFAULT false,
                                 OUT lease_id bigint, OUT claimed _sas.claimed[], OUT plain boolean)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz;
    taken record;
    keyed int[] := '{}';
    n int;
BEGIN
    -- in a test within one transaction agents have no keys: nobody else may wait for it
    IF lanes <> '{0}' AND worker_id <> -1 THEN
        keyed := ARRAY(SELECT a.agent_id FROM _sas.agent a WHERE a.options ? 'concurrency'
                       AND a.agent_id = ANY (lanes));
    END IF;
    IF keyed <> '{}' AND NOT _sas.take_mutex('agent keys') THEN
        -- another worker claims for them at this moment
        PERFORM _sas.wake(keyed, false, false, '{}');
        SELECT coalesce(array_agg(u.lane ORDER BY u.n), '{}'),
               coalesce(array_agg(u.quantity ORDER BY u.n), '{}') INTO lanes, quantities
        FROM unnest(lanes, quantities) WITH ORDINALITY AS u (lane, quantity, n) WHERE u.lane <> ALL (keyed);
        keyed := '{}';
    END IF;
    taken := _sas.take_from_lanes(lanes, quantities, urgent);
    -- read after it: a step may have become ready since this began, and begins after those before it ended
    now := sas.now();
    claimed := taken.claimed;
    plain := taken.plain;
    IF taken.late THEN
        claimed := _sas.defer_late(claimed);
    END IF;
    IF apart AND claimed IS NOT NULL THEN
        claimed := _sas.claim_apart(claimed, keyed);
    END IF;
    IF keyed <> '{}' THEN
        claimed := _sas.keep_to_keys(claimed, keyed);
    END IF;
    IF taken.late OR apart OR keyed <> '{}' THEN
        taken.begun := ARRAY(SELECT c.run_id FROM unnest(claimed) c
                             JOIN _sas.run r ON r.run_id = c.run_id AND r.state = 'pending');
    END IF;
    IF claimed IS NULL THEN
        RETURN;
    END IF;

    lease_id := _sas.begin_lease(claimed, boot, worker_id, locked_by, now);
    -- a step that must run alone was taken alone; the rows behind it were locked, so other workers have
    -- passed them by
    IF (claimed[1]).alone AND (claimed[1]).lane <= 0 THEN
        PERFORM _sas.wake(lanes, false, false, '{}');
    END IF;
    n := _sas.take_steps(claimed, claim_ready.lease_id, now);
    n := _sas.start_runs(taken.begun, now);
    IF taken.shared IS NOT NULL THEN
        PERFORM _sas.look_again(taken.shared, lanes, quantities, claimed);
    END IF;
END $$;
