-- SPDX-License-Identifier: PostgreSQL
--
-- Supervisor: finds steps that are overdue or have failed, and decides: another window, a longer wait, an
-- undo or a pause. It does not know what workflows are about, and calls nothing.

-- _sas.nudge_forgotten(): wakes workers for work whose wake-up was lost, so that it does not wait for the
-- next wake-up. The worker that takes such work counts it as found late.
CREATE FUNCTION _sas.nudge_forgotten() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lanes int[] := ARRAY(SELECT 0 AS lane UNION ALL SELECT agent_id FROM _sas.agent WHERE enabled
                         AND kind = 'http');
    unknown int[] := _sas.find_unknown(lanes);
BEGIN
    PERFORM _sas.nudge(lanes => ARRAY(SELECT DISTINCT l.lane FROM _sas.lines(lanes) l
                                      WHERE _sas.first_ready(l.lane, l.owner, l.mark) IS NOT NULL
                                      UNION
                                      SELECT u FROM unnest(_sas.unknown_lines('r', unknown)) u
                                      WHERE EXISTS (SELECT FROM _sas.ready q WHERE q.lane = u)),
                       scheduler => _sas.next_message('s') <= sas.now());
END $$;

-- _sas.supervisor_tick(boot, live, newest, quantity): one tick of the leading supervisor, for runs;
-- _sas.supervise_watches is the one for infinite tasks.
--   live    worker ids alive in this database, read before the call
--   newest  the highest worker id given out by then: leases of later workers are not judged
-- Returns how much was found, and when the next tick is due (null: only when woken). If all together costs
-- too much, or changes too many steps, none is taken, as in _sas.scheduler_tick.
--   locks   leases and runs that no other transaction holds; the others are checked again
--   reads   lease, message, ready
--   next    _sas.take_back, then _sas.decide_due
CREATE FUNCTION _sas.supervisor_tick(boot bigint, live bigint[], newest bigint, quantity int,
                                     OUT worked int, OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM _sas.part('report lateness', 'NULL::int FROM _sas.report_lateness()');
        worked := coalesce(_sas.part('take steps back',
                                     format('_sas.take_back(%s, %L::bigint[], %s, %s)', boot, live, newest,
                                            quantity)), 0)
            + coalesce(_sas.part('decide on failures', format('_sas.decide_due(%s)', quantity)), 0)
            + coalesce(_sas.part('leave closed limits', format('_sas.leave_closed_limits(%s)', quantity)), 0);
        IF worked = 0 THEN
            PERFORM _sas.part('check low-water marks', 'NULL::int FROM _sas.check_low_water()');
            PERFORM _sas.part('look for forgotten work', 'NULL::int FROM _sas.nudge_forgotten()');
        END IF;
        next_due := least(_sas.next_message('v'), _sas.first_lease(), _sas.next_deferred('fallback'),
                          CASE WHEN _sas.walk_is_open() THEN sas.now() END);
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        worked := 0;
        next_due := sas.now();
    END;
END $$;

-- _sas.take_back(boot, live, newest, quantity): steps whose worker is gone, or whose complete_by has
-- passed, fail. A call may have been carried out, so its outcome is in doubt; a function was rolled back
-- with its worker. The lease of an outside worker (0) is judged by time only: it holds whatever happens to
-- the server. If a worker died with a batch of functions, the function that caused it is unknown; then each
-- is run alone, and no failure is counted. The size of the batch matters, not what is still held, because
-- an earlier tick may have taken a part of it back.
--
-- A function that continues after complete_by ignores its cancellation. Its worker is ended, and the step
-- is taken back with it, as after a crash. A step that has ended its worker twice is parked
-- (_sas.decide_failure).
--   locks  the leases that no other session has locked
--   next   _sas.take_back_leases
CREATE FUNCTION _sas.take_back(boot bigint, live bigint[], newest bigint, quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    found _sas.lease[];
    judged _sas.lease[];
    done record;
BEGIN
    PERFORM _sas.judge_freed(now);
    found := _sas.lock_judged(boot, live, newest, now, quantity);
    -- the lease of a worker that has died since the last tick could be found since then
    PERFORM _sas.found('lease', 'lease', CASE WHEN l.next_by <= now THEN l.next_by ELSE _sas.last_tick() END)
    FROM unnest(found) l;
    IF found IS NULL THEN
        RETURN 0;
    END IF;
    judged := _sas.pass_by_writing(found, boot, live);
    done := _sas.apart(format('NULL::bigint[] FROM _sas.take_back_leases($1, %s, %L::bigint[], %s)', boot,
                              live, newest), judged);
    PERFORM _sas.take_back_apart(judged[f.n], boot, live, newest) FROM unnest(done.failed) AS f (n);
    RETURN cardinality(found);
END $$;

-- _sas.judge_freed(now): judges leases again that were deferred because another transaction held a run of
-- theirs, and that transaction has ended.
-- Writes: lease.
CREATE FUNCTION _sas.judge_freed(now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    runs bigint[];
    dues timestamptz[];
BEGIN
    SELECT array_agg(f.run_id), array_agg(f.due_at) INTO runs, dues FROM _sas.freed_runs('l') f;
    IF runs IS NOT NULL THEN
        UPDATE _sas.lease u SET next_by = now
        WHERE u.lease_id = ANY (ARRAY(SELECT l.lease_id FROM unnest(runs, dues) AS f (run_id, due_at)
                                      JOIN _sas.lease l ON l.next_by = f.due_at
                                          AND f.run_id = ANY (l.run_ids)
                                      FOR UPDATE OF l SKIP LOCKED));
    END IF;
END $$;

-- _sas.is_judged(l, boot, live, newest, now): is this lease overdue, or its worker gone? A lease that is
-- due within a second waits until then, because it may be a deferred one, which each tick would defer
-- again.
CREATE FUNCTION _sas.is_judged(l _sas.lease, boot bigint, live bigint[], newest bigint, now timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT l.next_by <= now
        OR l.worker_id > 0 AND l.next_by > now + interval '1 s'
            AND _sas.is_gone(l.boot, l.worker_id, $2, live, newest)
$$;

-- _sas.lock_judged(boot, live, newest, now, quantity): locks leases to judge that no other session has
-- locked. Owners take turns for leases of single steps; leases of several steps have a turn together.
CREATE FUNCTION _sas.lock_judged(boot bigint, live bigint[], newest bigint, now timestamptz, quantity int)
RETURNS _sas.lease[]
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := _sas.lease_mark();
BEGIN
    RETURN (
        WITH judged AS MATERIALIZED (
            SELECT l.lease_id, l.next_by, CASE WHEN cardinality(l.run_ids) = 1 THEN l.run_ids[1] END AS run_id
            FROM _sas.lease l WHERE l.next_by >= mark AND _sas.is_judged(l, $1, $2, $3, $4)),
        turn AS (
            SELECT j.lease_id, j.next_by, row_number() OVER (PARTITION BY r.owner ORDER BY j.next_by) AS n
            FROM judged j LEFT JOIN _sas.run r ON r.run_id = j.run_id)
        SELECT array_agg(q.lease)
        FROM (SELECT l AS lease FROM turn t JOIN _sas.lease l ON l.lease_id = t.lease_id
              -- checked again, because another tick may have judged it just now
              WHERE _sas.is_judged(l, $1, $2, $3, $4) AND NOT _sas.is_deferred('lease', l.lease_id)
              ORDER BY t.n, t.next_by LIMIT $5 FOR UPDATE OF l SKIP LOCKED) q);
END $$;

-- _sas.take_back_apart(of_lease, boot, live, newest): a step under this lease cannot be taken back: takes
-- back the others, and tries this one again after a pause.
-- Writes: lease.
CREATE FUNCTION _sas.take_back_apart(of_lease _sas.lease, boot bigint, live bigint[], newest bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    runs bigint[] := ARRAY(SELECT DISTINCT unnest(of_lease.run_ids));
    done record := _sas.apart(format('NULL::bigint[] FROM _sas.take_back_leases(ARRAY[%L::_sas.lease], %s, '
                                     '%L::bigint[], %s, $1)', of_lease, boot, live, newest), runs);
BEGIN
    IF done.failed IS NOT NULL THEN
        UPDATE _sas.lease l SET next_by = sas.now() + (SELECT max(p) FROM unnest(done.pauses) p)
        WHERE l.lease_id = of_lease.lease_id;
        PERFORM _sas.defer_apart('lease', array_fill(of_lease.lease_id, ARRAY[cardinality(runs)]),
                                 done.failed, done.errors, done.pauses, runs);
    END IF;
END $$;

-- _sas.pass_by_writing(leases, boot, live): those of these leases that are judged now. A worker that has
-- unwritten replies may have one that came in time; its leases are checked again in a moment. The workers
-- are asked after the time was read: a worker that has no reply by now cannot get one that is in time. A
-- worker measures windows on the monotonic clock: if the clock jumps ahead, its calls still have their time.
--   holds   the locks of the leases
--   writes  lease
CREATE FUNCTION _sas.pass_by_writing(leases _sas.lease[], boot bigint, live bigint[]) RETURNS _sas.lease[]
LANGUAGE plpgsql AS $$
DECLARE
    -- first: it reads the clock by which their calls are over
    holding bigint[] := _sas.holding_workers();
    writing bigint[] := _sas.writing_workers();
    passed bigint[] := holding || writing;
BEGIN
    IF passed = '{}' THEN
        RETURN leases;
    END IF;
    UPDATE _sas.lease u
    SET next_by = sas.now() + interval '20 ms' * CASE WHEN l.worker_id = ANY (writing) THEN 1 ELSE 50 END
    FROM unnest(leases) l
    WHERE u.lease_id = l.lease_id AND l.boot = $2 AND l.worker_id = ANY (live)
      AND l.worker_id = ANY (passed);
    RETURN ARRAY(SELECT l FROM unnest(leases) l
                 WHERE NOT (l.boot = $2 AND l.worker_id = ANY (live) AND l.worker_id = ANY (passed)));
END $$;

-- _sas.held_steps(leases, boot, live, newest): the steps that are still held under these leases. A step
-- whose claim has a reply in _sas.answer is not held: it only waits for its run.
--   dead      its worker is gone. A worker that continues five seconds after complete_by counts as lost:
--             nothing in the database can end it
--   overdue   it is time to take the step back; not while its function continues, because its worker is being
--             ended
--   together  how many steps were claimed with it, each of which may have ended the worker; 1: it is the
--             one that the worker calls
CREATE FUNCTION _sas.held_steps(leases _sas.lease[], boot bigint, live bigint[], newest bigint)
RETURNS TABLE (lease_id bigint, worker_id bigint, locked_by text, dead boolean, overdue boolean,
               together int, run_id bigint, step_no int, element int, name text, lane int, state text,
               attempt int, in_doubt boolean,
               alone boolean, asks int, complete_by timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT l.lease_id, l.worker_id, l.locked_by,
           e.dead OR e.goes_on AND t.complete_by < c.now - interval '5 s',
           t.complete_by <= c.now AND NOT e.goes_on,
           CASE WHEN e.goes_on THEN 1 ELSE cardinality(l.run_ids) END, s.run_id, s.step_no, s.element, w.name,
           _sas.lane_now(s.run_id, s.step_no, s.element, w.undo, w.lane), s.state, s.attempt, s.in_doubt,
           s.alone, (SELECT o.asks FROM _sas.poll_of(s) o), t.complete_by
    -- one instant: a step that is not asked for whether its function continues is not overdue, either
    FROM (SELECT sas.now() AS now OFFSET 0) c
    CROSS JOIN unnest(leases) l
    CROSS JOIN LATERAL unnest(l.run_ids, l.step_nos, l.elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    JOIN _sas.run r ON r.run_id = s.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    -- for a task: the time to which a heartbeat has extended it while another session held the run
    CROSS JOIN LATERAL (
        SELECT greatest(s.complete_by,
                        CASE WHEN l.worker_id = 0
                             THEN (SELECT h.extended_by FROM _sas.external_slot h
                                   WHERE h.request_id = s.request_id) END) AS complete_by OFFSET 0) t
    CROSS JOIN LATERAL (
        SELECT l.worker_id > 0 AND _sas.is_gone(l.boot, l.worker_id, $2, live, newest) AS dead,
               CASE WHEN t.complete_by <= c.now AND l.worker_id > 0 THEN _sas.is_executed(s.request_id)
                   ELSE false END AS goes_on OFFSET 0) e
    WHERE s.lease_id = l.lease_id AND s.request_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = s.run_id AND a.step_no = s.step_no
                      AND a.element = s.element AND a.request_id = s.request_id)
$$;

-- _sas.take_back_leases(leases, boot, live, newest, only_runs): takes back what is overdue under these
-- leases, of only_runs or of all runs, if their runs are free. A worker that still calls the function of
-- such a step can no longer commit it, and is ended (base/peers.h).
--   holds   the locks of the leases
--   locks   the runs that no other transaction holds
--   writes  attempt, step, lease; message or ready, for what follows
--   wakes   the supervisor for failed steps, workers for steps that continue
--   next    _sas.decide_due, for failed steps
CREATE FUNCTION _sas.take_back_leases(leases _sas.lease[], boot bigint, live bigint[], newest bigint,
                                      only_runs bigint[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    locked bigint[];
    failed _sas.step_change[];
    again _sas.step_change[];
BEGIN
    locked := _sas.lock_runs(coalesce(only_runs,
                                      ARRAY(SELECT DISTINCT unnest(l.run_ids) FROM unnest(leases) l)));

    WITH held AS MATERIALIZED (SELECT * FROM _sas.held_steps(leases, boot, live, newest)),
    over AS (
        SELECT h.*, h.dead AND h.lane = 0 AND h.together > 1 AND NOT h.alone AS crowd
        FROM held h WHERE (h.dead OR h.overdue) AND h.run_id = ANY (locked)),
    change AS (
        SELECT o.crowd,
               _sas.make_step_change(
                   run_id => o.run_id, step_no => o.step_no, element => o.element, from_state => o.state,
                   to_state => CASE WHEN o.state = 'compensating' THEN 'compensating'
                                    WHEN o.crowd THEN 'ready'
                                    ELSE 'failed' END,
                   attempt => o.attempt + 1, in_doubt => o.in_doubt OR o.lane > 0 AND o.asks IS NULL,
                   transient => true, alone => o.dead AND o.lane = 0 OR o.alone,
                   error => _sas.problem_object(CASE WHEN o.crowd THEN 'batch-lost'
                                                    WHEN o.dead THEN 'worker-lost'
                                                    ELSE 'complete-by' END,
                                                CASE WHEN o.dead THEN 'the worker that held the step is gone'
                                                     ELSE 'no reply before complete-by' END,
                                                'held by ' || o.locked_by, NULL, o.run_id, o.name),
                   finished_at => CASE WHEN NOT o.crowd THEN now END,
                   waiting_kind => CASE WHEN NOT o.crowd THEN 'supervisor' END) AS c
        FROM over o)
    SELECT array_agg(x.c) FILTER (WHERE NOT x.crowd), array_agg(x.c) FILTER (WHERE x.crowd)
    INTO failed, again
    FROM change x;

    PERFORM _sas.record_lost(failed || again, now);
    PERFORM _sas.move_steps(failed || again);
    PERFORM _sas.update_leases(leases, boot, live, newest, now, locked);
    PERFORM _sas.expire_leases(array_agg(l.lease_id)) FROM unnest(leases) l WHERE l.worker_id = 0
        HAVING count(*) > 0;
    PERFORM _sas.notify_supervisor(failed) WHERE failed IS NOT NULL;
    PERFORM _sas.requeue(array_agg(a.run_id), array_agg(a.step_no), array_agg(a.element))
        FROM unnest(again) a;
    PERFORM _sas.free_slots(locked);
END $$;

-- _sas.record_lost(changes, now): stores the attempts of steps that are being taken back, and counts them.
-- Caller: before it moves the steps, because their claims say which worker held them, and since when.
-- Reads: step, lease, external_slot. Writes: attempt.
CREATE FUNCTION _sas.record_lost(changes _sas.step_change[], now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    counted int;
BEGIN
    WITH lost AS MATERIALIZED (
        SELECT c.*, w.undo, w.lane, v.workflow_id, l.locked_by,
               CASE c.error ->> 'type' WHEN 'urn:sas:complete-by' THEN 'timed_out' ELSE 'lost' END AS status,
               CASE l.worker_id WHEN 0 THEN (SELECT p.claimed_at FROM _sas.external_slot p
                                             WHERE p.request_id = s.request_id)
                                ELSE s.complete_by - coalesce(w.complete_in, _sas.complete_in()) END AS since
        FROM unnest(changes) c
        CROSS JOIN LATERAL _sas.step_row(c.run_id, c.step_no, c.element) s
        JOIN _sas.lease l ON l.lease_id = s.lease_id
        JOIN _sas.run r ON r.run_id = c.run_id
        JOIN _sas.workflow_version v ON v.version_id = r.version_id
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, c.step_no, c.from_state = 'compensating') w),
    recorded AS (
        INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error,
                                  started_at, finished_at)
        SELECT x.run_id, x.step_no, x.element, x.attempt, x.undo,
               nullif(_sas.lane_now(x.run_id, x.step_no, x.element, x.undo, x.lane), 0), x.locked_by,
               x.status, x.error, x.since, now
        FROM lost x)
    SELECT count(_sas.count_metric('call', x.lane, x.workflow_id, x.status, 1)) INTO counted FROM lost x;
END $$;

-- _sas.update_leases(leases, boot, live, newest, now, locked): deletes those of these leases that no longer
-- hold a step. The others are checked again when the first of their steps is overdue; if one already is,
-- another session has locked its run and wakes the supervisor at its end, or its function is being ended.
--   holds   the locks of the leases, and of the runs in "locked"; the steps have moved before
--   writes  lease
CREATE FUNCTION _sas.update_leases(leases _sas.lease[], boot bigint, live bigint[], newest bigint,
                                   now timestamptz, locked bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    net timestamptz := now + interval '1 s';
    held_runs bigint[];
    awaited bigint[];
BEGIN
    held_runs := ARRAY(SELECT DISTINCT h.run_id FROM _sas.held_steps(leases, boot, live, newest) h
                       WHERE (h.dead OR h.overdue) AND NOT h.run_id = ANY (locked));
    awaited := _sas.await_holders('l', held_runs, net);
    WITH held AS MATERIALIZED (
        SELECT h.lease_id, min(h.complete_by) AS next_by, bool_or(h.dead OR h.complete_by <= now) AS soon,
               bool_or(h.run_id = ANY (held_runs) AND NOT h.run_id = ANY (awaited)) AS free,
               bool_or(h.run_id = ANY (awaited)) AS awaits
        FROM _sas.held_steps(leases, boot, live, newest) h GROUP BY h.lease_id),
    over AS (
        DELETE FROM _sas.lease d USING unnest(leases) l
        WHERE d.lease_id = l.lease_id AND NOT EXISTS (SELECT FROM held h WHERE h.lease_id = l.lease_id))
    UPDATE _sas.lease u
    SET next_by = CASE WHEN h.free THEN now + interval '20 ms'
                       WHEN h.awaits THEN net
                       WHEN h.soon THEN now + interval '250 ms' ELSE h.next_by END
    FROM held h WHERE u.lease_id = h.lease_id;
END $$;
