-- SPDX-License-Identifier: PostgreSQL
--
-- Supervisor: finds what is overdue or failed, counts, and asks for another
-- window, a longer wait, an undo or a pause. It knows nothing of the business
-- and calls nothing.

-- _sas.supervisor_tick(boot, live, newest, quantity): one turn of the leading supervisor, of runs; that of
-- infinite tasks is _sas.supervise_watches.
--   live    worker ids alive in this database, as looked up before the call
--   newest  the highest worker id that had been given out by then: a lease of a later one is not judged
-- Returns how much was found, when to look again (null: only when rung), and
-- the workers that hold local steps past complete-by plus a second.
--   locks   leases and runs that nobody else holds; the others are looked at again
--   reads   lease, due, ready
--   next    _sas.take_back, then _sas.decide
CREATE FUNCTION _sas.supervisor_tick(boot bigint, live bigint[], newest bigint, quantity int,
                                     OUT worked int, OUT next_due timestamptz, OUT stuck bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    leases int;
    lanes int[];
    marks timestamptz[];
BEGIN
    PERFORM _sas.tell_lateness();
    SELECT o.leases, o.stuck INTO leases, stuck FROM _sas.take_back(boot, live, newest, quantity) o;
    worked := leases + _sas.decide(quantity) + _sas.leave_closed_doors(quantity);
    -- a row of the queue that a session held when a worker looked was passed by, and nobody rings for it
    IF worked = 0 THEN
        PERFORM _sas.check_fronts();
        lanes := ARRAY(SELECT 0 AS lane UNION ALL SELECT agent_id FROM _sas.agent WHERE enabled
                       AND kind = 'http');
        marks := _sas.begin_fronts('r', lanes);
        PERFORM _sas.ring(ARRAY(SELECT a.lane FROM unnest(lanes, marks) AS a (lane, mark)
                                WHERE EXISTS (SELECT FROM _sas.ready q WHERE q.lane = a.lane
                                              AND q.rank >= a.mark)), false, false, '{}');
    END IF;
    next_due := least(_sas.next_due('v'), (SELECT l.next_by FROM _sas.lease l ORDER BY l.next_by LIMIT 1));
END $$;

-- _sas.take_back(...): steps whose worker is gone, or whose complete-by has
-- passed, fail. A call may have been made, so its outcome is in doubt; a local
-- step was rolled back with its worker. The lease of an outside worker (0) is
-- judged by time only: it holds whatever becomes of the server. When a worker died with a batch of local
-- steps nobody knows which one killed it: each is run alone then, and no
-- failure counted. The size of the batch counts, not what is still held: some
-- of it may have been taken back by an earlier look.
CREATE FUNCTION _sas.take_back(boot bigint, live bigint[], newest bigint, quantity int, OUT leases int,
                               OUT stuck bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    found _sas.lease[];
BEGIN
    SELECT array_agg(q) INTO found
    FROM (SELECT l.* FROM _sas.lease l
          WHERE l.next_by <= now OR l.worker_id > 0
              AND (l.boot <> $1 OR l.worker_id <= newest AND NOT l.worker_id = ANY (live))
          ORDER BY l.next_by LIMIT quantity FOR UPDATE SKIP LOCKED) q;
    leases := coalesce(cardinality(found), 0);
    IF leases > 0 THEN
        stuck := _sas.take_back_leases(found, boot, live, newest);
    END IF;
END $$;

-- The same of these leases, which the caller has locked. Returns the workers that are stuck.
CREATE FUNCTION _sas.take_back_leases(leases _sas.lease[], boot bigint, live bigint[], newest bigint)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    found _sas.lease[] := leases;
    locked bigint[];
    failed _sas.step_change[];
    again _sas.step_change[];
    stuck bigint[];
BEGIN
    locked := _sas.lock_runs(ARRAY(SELECT DISTINCT unnest(f.run_ids) FROM unnest(found) f));

    WITH held AS (
        SELECT f.lease_id, f.worker_id, f.worker_id > 0
            AND (f.boot <> $2 OR f.worker_id <= newest AND NOT f.worker_id = ANY (live)) AS dead,
               cardinality(f.run_ids) AS together, s AS step, w AS def,
                   _sas.lane_now(s.run_id, s.step_no, s.element, w.undo, w.lane) AS lane, f.locked_by, r.trace
        FROM unnest(found) f
        CROSS JOIN LATERAL unnest(f.run_ids, f.step_nos, f.elements) AS u (run_id, step_no, element)
        JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
            AND s.lease_id = f.lease_id
        JOIN _sas.run r ON r.run_id = s.run_id
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no
            AND w.undo = (s.state = 'compensating')
        WHERE s.request_id IS NOT NULL),
    over AS (
        SELECT h.*, h.dead AND h.lane = 0 AND h.together > 1 AND NOT (h.step).alone AS crowd
        FROM held h WHERE (h.dead OR (h.step).complete_by <= now) AND (h.step).run_id = ANY (locked)),
    change AS (
        SELECT o.*,
               _sas.make_step_change(
                   run_id => (o.step).run_id, step_no => (o.step).step_no, element => (o.step).element,
                   from_state => (o.step).state,
                   to_state => CASE WHEN (o.step).state = 'compensating' THEN 'compensating'
                                    WHEN o.crowd THEN 'ready'
                                    ELSE 'failed' END,
                   attempt => (o.step).attempt + 1,
                   in_doubt => (o.step).in_doubt OR o.lane > 0 AND (o.step).asks IS NULL, transient => true,
                   alone => o.dead AND o.lane = 0 OR (o.step).alone,
                   error => _sas.problem_object(CASE WHEN o.dead THEN 'worker-lost' ELSE 'complete-by' END,
                                                CASE WHEN o.dead THEN 'the worker that held the step is gone'
                                                    ELSE 'no reply before complete-by' END,
                                                'held by ' || o.locked_by, NULL, (o.step).run_id,
                                                (o.def).name),
                   finished_at => CASE WHEN NOT o.crowd THEN now END,
                   waiting_kind => CASE WHEN NOT o.crowd THEN 'supervisor' END) AS c
        FROM over o),
    told AS (
        INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error,
                                  started_at, finished_at)
        SELECT (c.c).run_id, (c.c).step_no, (c.c).element, (c.c).attempt, (c.step).state = 'compensating',
            nullif(c.lane, 0),
               c.locked_by, CASE WHEN c.dead THEN 'lost' ELSE 'timed_out' END, (c.c).error,
               CASE c.worker_id WHEN 0 THEN (SELECT p.claimed_at FROM _sas.place p
                                             WHERE p.request_id = (c.step).request_id)
                                ELSE (c.step).complete_by - coalesce((c.def).complete_in,
                                            _sas.complete_in()) END, now
        FROM change c),
    kept AS (
        UPDATE _sas.lease l
        SET next_by = CASE WHEN k.soon THEN now + interval '250 ms' ELSE k.next_by END
        FROM (SELECT h.lease_id, min((h.step).complete_by) AS next_by,
              bool_or(h.dead OR (h.step).complete_by <= now) AS soon
              FROM held h
              WHERE NOT EXISTS (SELECT FROM over o WHERE (o.step).run_id = (h.step).run_id
                                AND (o.step).step_no = (h.step).step_no
                                AND (o.step).element = (h.step).element)
              GROUP BY h.lease_id) k
        WHERE l.lease_id = k.lease_id
        RETURNING l.lease_id),
    dropped AS (
        DELETE FROM _sas.lease l USING unnest(found) f
        WHERE l.lease_id = f.lease_id
          AND NOT EXISTS (SELECT FROM held h
                          WHERE h.lease_id = f.lease_id
                            AND NOT EXISTS (SELECT FROM over o WHERE (o.step).run_id = (h.step).run_id
                                            AND (o.step).step_no = (h.step).step_no
                                            AND (o.step).element = (h.step).element)))
    SELECT array_agg(c.c) FILTER (WHERE NOT c.crowd), array_agg(c.c) FILTER (WHERE c.crowd),
           -- its worker holds the run while the function runs, so this one cannot be taken back before it is
           -- ended
           (SELECT array_agg(DISTINCT h.worker_id) FROM held h
            WHERE NOT h.dead AND h.lane = 0 AND (h.step).complete_by + interval '500 ms' <= now)
    INTO failed, again, stuck
    FROM change c;

    PERFORM _sas.move_steps(failed || again);
    PERFORM _sas.count_metric('call', w.lane, v.workflow_id, CASE (c.error ->> 'type')
                              WHEN 'urn:sas:worker-lost' THEN 'lost' ELSE 'timed_out' END, 1)
    FROM unnest(failed || again) c
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_version v ON v.version_id = r.version_id
    CROSS JOIN LATERAL (SELECT x.lane FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = c.step_no AND x.undo = (c.from_state = 'compensating') OFFSET 0) w;
    PERFORM _sas.lapse(array_agg(f.lease_id)) FROM unnest(found) f WHERE f.worker_id = 0 HAVING count(*) > 0;
    PERFORM _sas.tell_supervisor(failed) WHERE failed IS NOT NULL;
    PERFORM _sas.requeue(array_agg(a.run_id), array_agg(a.step_no), array_agg(a.element))
        FROM unnest(again) a;
    PERFORM _sas.free_places(locked);
    RETURN stuck;
END $$;
