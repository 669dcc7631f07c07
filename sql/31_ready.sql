-- SPDX-License-Identifier: PostgreSQL
--
-- Ready: steps go into the hot queue, and whoever can claim them is rung.

-- sas._index_ready(run_ids): the rows that these runs have in sas.ready are found by the run from now on, too. Before anybody looks for
-- rows of a run that may be pending. Waits for a claim that has one of them at this moment.
CREATE FUNCTION sas._index_ready(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sas.ready q SET fresh = false
    -- each by all that it is known by, whatever is known of the tables when this is planned
    FROM (SELECT r.run_id, r.created_at, (SELECT v.root_lanes[1] FROM sas.workflow_version v WHERE v.version_id = r.version_id) AS lane
          FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'pending' OFFSET 0) r
    WHERE q.lane = r.lane AND q.rank = r.created_at AND q.run_id = r.run_id AND q.fresh;
END $$;

-- sas._make_ready(...): puts steps into the hot queue and rings their lanes.
--
-- Arrays of equal length. The rank is fixed here: ready_at minus priority
-- times sas.priority_step. Steps that need thought before they begin are told
-- to the scheduler instead, unless it has thought already (entered).
CREATE FUNCTION sas._make_ready(run_ids bigint[], step_nos int[], elements int[], undos boolean[], alones boolean[], entered boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    lanes int[];
    thought boolean;
    staged boolean;
BEGIN
    IF coalesce(cardinality(run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM sas.middleware m WHERE m.phase = 'call') THEN
        PERFORM sas._open_stages(run_ids, step_nos, elements, undos);
    END IF;
    staged := EXISTS (SELECT FROM sas.stage);
    WITH next AS (
        SELECT u.*, CASE WHEN coalesce(w.queue_id, r.queue_id) > 0 THEN -coalesce(w.queue_id, r.queue_id)
                         WHEN staged THEN sas._lane_now(u.run_id, u.step_no, u.element, u.undo, w.lane) ELSE w.lane END AS lane, r.priority + w.priority AS priority, NOT entered AND w.enters AND (u.element = 0 OR w.elements_enter)
               AND (w.kind = 'workflow' OR NOT EXISTS (SELECT FROM sas.step s WHERE s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element AND s.attempt > 0)) AS enters
        FROM unnest(run_ids, step_nos, elements, undos, alones) AS u (run_id, step_no, element, undo, alone)
        JOIN sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL (SELECT s.kind, s.lane, s.priority, s.queue_id, s.enters, s.elements_enter FROM sas.workflow_step s
                            WHERE s.version_id = r.version_id AND s.step_no = u.step_no AND s.undo = u.undo OFFSET 0) w),
    put AS (
        INSERT INTO sas.ready (run_id, step_no, element, lane, rank, ready_at, undo, alone)
        SELECT n.run_id, n.step_no, n.element, n.lane, now - n.priority * sas._priority_step(), now, n.undo, n.alone
        -- what gets the same rank is claimed in this order, mostly
        FROM next n WHERE NOT n.enters ORDER BY n.run_id, n.step_no, n.element
        RETURNING lane),
    told AS (
        INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
        SELECT 's', now, n.run_id, 'enter', n.step_no, n.element FROM next n WHERE n.enters
        RETURNING 1)
    SELECT (SELECT array_agg(DISTINCT lane) FROM put), EXISTS (SELECT FROM told) INTO lanes, thought;
    IF 0 < ANY (lanes) THEN
        lanes := sas._tell_outside(lanes);
    END IF;
    IF 0 > ANY (lanes) THEN
        PERFORM sas._ring_queues(lanes);
    ELSE
        PERFORM sas._ring(lanes, thought, false, '{}');
    END IF;
END $$;

-- The same for forward steps that come for the first time. elements null: steps as a whole.
CREATE FUNCTION sas._make_ready(run_ids bigint[], step_nos int[], elements int[] DEFAULT NULL, entered boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(cardinality(run_ids), 0) > 0 THEN
        PERFORM sas._make_ready(run_ids, step_nos, coalesce(elements, array_fill(0, ARRAY[cardinality(run_ids)])),
                                array_fill(false, ARRAY[cardinality(run_ids)]), array_fill(false, ARRAY[cardinality(run_ids)]), entered);
    END IF;
END $$;
