-- SPDX-License-Identifier: PostgreSQL
--
-- The claim that workers of all kinds make: ready rows go, a lease comes, the steps say running.

-- _sas.low_water_rows(lanes, quantities, marks, urgent): how many rows of each lane a claim takes, and from
-- where on; notes where the first one stands. urgent: of a lane whose first rows have a higher priority than
-- what stands behind
-- them, these only. That is seen among the first 20, so priorities that alternate make no batch smaller.
CREATE FUNCTION _sas.low_water_rows(lanes int[], quantities int[], marks timestamptz[], urgent boolean)
RETURNS TABLE (lane int, quantity int, mark timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT raised.lane, coalesce(f.drop_at - 1, l.quantity)::int, l.mark
    FROM unnest($1, $2, $3) AS l (lane, quantity, mark)
    CROSS JOIN LATERAL (
        SELECT min(x.rank) AS first, max(x.n) FILTER (WHERE x.drops) AS drop_at
        FROM (SELECT c.rank, row_number() OVER front AS n, lag(c.lead) OVER front > c.lead AS drops
              -- the rank is the time minus the priority
              FROM (SELECT q.rank, q.ready_at - q.rank AS lead FROM _sas.ready q WHERE q.lane = l.lane
                    AND q.rank >= l.mark ORDER BY q.rank
                    LIMIT CASE WHEN urgent AND l.quantity > 20 THEN 21 ELSE 1 END) c
              WINDOW front AS (ROWS UNBOUNDED PRECEDING)) x) f
    -- its answer is the lane, so that nothing is looked for before it is told
    CROSS JOIN LATERAL _sas.raise_low_water('r', l.lane, f.first) AS raised (lane)
$$;

-- _sas.claim_ready(...): takes up to quantities[i] steps of lanes[i]; urgent: see _sas.low_water_rows.
--
-- What was found beside a crash is claimed by itself: a function that is to run
-- alone ends the batch before it. This is seen to in the statement that takes the
-- rows, since an earlier look would miss what was made ready in between.
-- Returns what was claimed; the rows of _sas.step say running (an undo says
-- compensating) with a fresh request_id and complete_by. The lease names the worker.
-- plain: each is one step by itself, in no map, include, poll or fallback, whose templates see no other step.
-- Caller: nothing; never waits for a lock. Writes: ready, lease, step, run. Next: the work, then
-- _sas.write_replies.
CREATE FUNCTION _sas.claim_ready(lanes int[], quantities int[], boot bigint, worker_id bigint,
                                 locked_by text, urgent boolean DEFAULT false,
                            OUT lease_id bigint, OUT claimed _sas.claimed[], OUT plain boolean)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    marks timestamptz[] := _sas.begin_low_water('r', lanes);
    n int;
    begun bigint[];
    late boolean;
BEGIN
    WITH taken AS (
        DELETE FROM _sas.ready r
        WHERE r.ctid = ANY (ARRAY(
            SELECT unnest(q.free)
            FROM _sas.low_water_rows(lanes, quantities, marks, urgent) l,
                 LATERAL (SELECT (array_agg(c.ctid))[:greatest(coalesce(array_position(array_agg(c.alone
                                             AND l.lane <= 0), true) - 1, l.quantity), 1)] AS free
                          FROM (SELECT x.ctid, x.alone FROM _sas.ready x WHERE x.lane = l.lane
                                AND x.rank >= l.mark ORDER BY x.rank
                                LIMIT l.quantity FOR UPDATE SKIP LOCKED) c) q))
        RETURNING r.run_id, r.step_no, r.element, r.lane, r.rank, r.ready_at, r.undo, r.alone)
    SELECT count(_sas.waited(t.lane, t.ready_at)),
           array_agg(ROW(t.run_id, t.step_no, t.element, t.undo, t.alone, r.version_id, t.lane,
                         coalesce(s.state, 'none'),
                         coalesce(s.attempt, 0),
                         CASE WHEN s.ask_until IS NULL
                             OR t.undo THEN coalesce(w.complete_in, _sas.complete_in())
                              ELSE greatest(least(coalesce(w.complete_in, _sas.complete_in()),
                                                  s.ask_until - now), interval '1 s') END,
                                  gen_random_uuid())::_sas.claimed
                     ORDER BY t.rank, t.run_id, t.step_no, t.element),
                         array_agg(t.run_id) FILTER (WHERE r.state = 'pending'),
                         bool_or(r.state = 'pending' AND r.start_before <= now),
           bool_and(w.plain)
    INTO n, claimed, begun, late, plain
    FROM taken t
    JOIN _sas.run r ON r.run_id = t.run_id
    -- OFFSET 0: by the whole key, not by its first column through all steps of the workflow, or of the run
    CROSS JOIN LATERAL (SELECT x.complete_in, x.shape IS NULL AND x.scope_no IS NULL
                        AND x.reads = '{}' AS plain FROM _sas.workflow_step x
                        WHERE x.version_id = r.version_id AND x.step_no = t.step_no
                            AND x.undo = t.undo OFFSET 0) w
    LEFT JOIN LATERAL (SELECT x.state, x.attempt, x.ask_until FROM _sas.step x WHERE x.run_id = t.run_id
                       AND x.step_no = t.step_no AND x.element = t.element OFFSET 0) s ON true;
    IF late THEN
        claimed := _sas.defer_late(claimed);
        begun := ARRAY(SELECT c.run_id FROM unnest(claimed) c);
    END IF;
    IF claimed IS NULL THEN
        RETURN;
    END IF;

    INSERT INTO _sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
    SELECT $3, $4, $5, _sas.due_by(now + min(c.complete_in)), array_agg(c.run_id), array_agg(c.step_no),
        array_agg(c.element)
    FROM unnest(claimed) c
    RETURNING lease.lease_id INTO lease_id;
    n := _sas.take_steps(claimed, claim_ready.lease_id, now);
    n := _sas.start_runs(begun);
END $$;
