-- SPDX-License-Identifier: PostgreSQL
--
-- Fallback: another body, tried instead of a step that has failed for good, or whose agent's breaker is
-- open. It is compiled as a step of its own, "NAME.fallback", to which no edge leads; so its key, windows
-- and undo are its own. Meanwhile the step itself is suspended. It succeeds with the output of its
-- fallback, and fails when the fallback fails.

-- _sas.open_breakers(): the agents whose breaker is open now.
CREATE FUNCTION _sas.open_breakers() RETURNS SETOF int
LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- a test has breakers of its own
    IF _sas.is_testing() THEN
        RETURN QUERY SELECT b FROM _sas.stubbed_limits() b;
        RETURN;
    END IF;
    RETURN QUERY SELECT b.agent_id FROM _sas.breakers() b WHERE b.refuses;
END $$;

-- _sas.fall_back(run_ids, step_nos, elements): suspends these steps and begins their fallbacks.
-- Caller: holds the lock of the runs. Writes: step. Next: _sas.make_ready for the fallbacks; when a
-- fallback ends, _sas.substituted or _sas.fail_substitute ends its step.
CREATE FUNCTION _sas.fall_back(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => u.run_id, step_no => u.step_no, element => u.element,
               from_state => coalesce(s.state, 'none'), to_state => 'suspended', in_doubt => false,
               started_at => sas.now(), waiting_kind => 'fallback')) AS changes,
           array_agg(_sas.make_step_change(
               run_id => u.run_id, step_no => (w.shape #>> '{fallback,no}')::int, element => u.element,
               from_state => 'none', to_state => 'ready', deferred => true))
               FILTER (WHERE r.state = 'paused') AS deferred,
           array_agg(u.run_id) FILTER (WHERE r.state <> 'paused') AS run_ids,
           array_agg((w.shape #>> '{fallback,no}')::int) FILTER (WHERE r.state <> 'paused') AS nos,
           array_agg(u.element) FILTER (WHERE r.state <> 'paused') AS elements
    INTO f
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    JOIN _sas.run r ON r.run_id = u.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
    LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s ON true;
    PERFORM _sas.move_steps(f.changes);
    -- the job of a poll is undone by now
    UPDATE _sas.step s SET started = NULL, asks = NULL, ask_until = NULL, progress = NULL
    FROM unnest(f.changes) c WHERE s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element
        AND s.asks IS NOT NULL;
    PERFORM _sas.move_steps(f.deferred);
    PERFORM _sas.make_ready(f.run_ids, f.nos, f.elements);
END $$;

-- _sas.substituted(run_ids, step_nos, elements): steps have succeeded in runs that continue: those of them
-- that are fallbacks hand their output to the steps that they substitute. Returns the same list, with those
-- steps instead of their fallbacks.
-- Writes: step.
CREATE FUNCTION _sas.substituted(INOUT run_ids bigint[], INOUT step_nos int[], INOUT elements int[])
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    stands_for int[];
BEGIN
    SELECT array_agg(coalesce((w.shape ->> 'stands_in')::int, u.step_no) ORDER BY u.n),
           array_agg(_sas.make_step_change(
               run_id => u.run_id, step_no => (w.shape ->> 'stands_in')::int, element => u.element,
               from_state => 'suspended', to_state => 'succeeded', in_doubt => false,
               output => (SELECT s.output FROM _sas.step s WHERE s.run_id = u.run_id
                          AND s.step_no = u.step_no AND s.element = u.element),
               completion => nextval('_sas.completion_seq'), finished_at => sas.now()))
               FILTER (WHERE w.shape ? 'stands_in')
    INTO stands_for, changes
    FROM unnest(run_ids, step_nos, elements) WITH ORDINALITY AS u (run_id, step_no, element, n)
    JOIN _sas.run r ON r.run_id = u.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w;
    PERFORM _sas.move_steps(changes);
    step_nos := stands_for;
END $$;

-- _sas.undone_substitute(changes): fallbacks among these steps were undone: sets the steps that they have
-- substituted to compensated.
-- Writes: step.
CREATE FUNCTION _sas.undone_substitute(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.mark_undone(array_agg(s.run_id), array_agg(s.step_no), array_agg(s.element))
    FROM unnest(changes) c
    JOIN _sas.run r ON r.run_id = c.run_id
    CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = c.step_no AND NOT x.undo AND x.shape ? 'stands_in' OFFSET 0) w
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = c.run_id
                        AND x.step_no = (w.shape ->> 'stands_in')::int AND x.element = c.element
                        AND x.state = 'succeeded' OFFSET 0) s
    WHERE c.to_state = 'compensated';
END $$;

-- _sas.fell_back(run_id, element, shape): was the fallback of this step tried, and has it failed?
CREATE FUNCTION _sas.fell_back(run_id bigint, element int, shape jsonb) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM _sas.step f WHERE f.run_id = $1 AND f.step_no = ($3 #>> '{fallback,no}')::int
                   AND f.element = $2 AND f.state = 'failed');
END $$;

-- _sas.way_back(run_id, step_no, element): a step has failed for good and has a fallback: what has to
-- happen to its own work before the fallback begins. 'none': nothing; 'undo': it is undone first; 'known':
-- its call is repeated first, until its outcome is known.
CREATE FUNCTION _sas.way_back(run_id bigint, step_no int, element int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT CASE WHEN w.step_no IS NULL OR NOT s.in_doubt AND s.asks IS NULL THEN 'none'
                        WHEN w.reads_own_output AND s.output IS NULL AND s.asks IS NULL THEN 'known'
                        ELSE 'undo' END
            FROM _sas.step s JOIN _sas.run r ON r.run_id = s.run_id
            LEFT JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $2 AND w.undo
            WHERE s.run_id = $1 AND s.step_no = $2 AND s.element = $3);
END $$;

-- _sas.fail_substitute(run_id, step_no, element, error, transient): a fallback has failed for good: the
-- step fails with it, and its rule decides.
-- Writes: step, message. Wakes: the supervisor. Next: _sas.decide_due.
CREATE FUNCTION _sas.fail_substitute(run_id bigint, step_no int, element int, error jsonb, transient boolean)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    failed _sas.step_change[] := ARRAY[_sas.make_step_change(
        run_id => $1, step_no => $2, element => $3, from_state => 'suspended', to_state => 'failed',
        transient => $5, error => $4, finished_at => sas.now(), waiting_kind => 'supervisor')];
BEGIN
    PERFORM _sas.move_steps(failed);
    PERFORM _sas.notify_supervisor(failed);
END $$;

-- _sas.resume_fallbacks(run_ids, only_runs, only_nos): the runs are resumed: a step that has failed with
-- its fallback continues with the fallback. only_runs, only_nos: only these steps. Elements of a map that
-- has run through count as ended: when it begins them again, _sas.continue_fallbacks does this.
-- Writes: step. Next: _sas.requeue.
CREATE FUNCTION _sas.resume_fallbacks(run_ids bigint[], only_runs bigint[], only_nos int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => 'failed',
               to_state => 'suspended', failure_count => 0, waiting_kind => 'fallback')) AS steps,
           array_agg(_sas.make_step_change(
               run_id => f.run_id, step_no => f.step_no, element => f.element, from_state => 'failed',
               to_state => 'ready', failure_count => 0)) AS fallbacks,
           array_agg(f.run_id) AS run_ids, array_agg(f.step_no) AS nos, array_agg(f.element) AS elements
    INTO g
    FROM _sas.run r
    JOIN _sas.step s ON s.run_id = r.run_id AND s.state = 'failed'
        AND s.waiting_kind IS DISTINCT FROM 'map_end'
    CROSS JOIN LATERAL (SELECT x.shape FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = s.step_no AND NOT x.undo AND x.shape ? 'fallback' OFFSET 0) w
    CROSS JOIN LATERAL (SELECT x.* FROM _sas.step x WHERE x.run_id = s.run_id
                        AND x.step_no = (w.shape #>> '{fallback,no}')::int AND x.element = s.element
                        AND x.state = 'failed' OFFSET 0) f
    WHERE r.run_id = ANY ($1) AND r.abandon_as IS NULL
      AND (only_runs IS NULL OR EXISTS (SELECT FROM unnest(only_runs, only_nos) AS o (run_id, step_no)
                                        WHERE o.run_id = s.run_id AND o.step_no = s.step_no));
    PERFORM _sas.move_steps(g.steps);
    PERFORM _sas.move_steps(g.fallbacks);
    PERFORM _sas.requeue(g.run_ids, g.nos, g.elements) WHERE g.run_ids IS NOT NULL;
END $$;

-- _sas.continue_fallbacks(for_run, for_no, elements): elements of a map that has run through begin again and
-- are ready: those that had failed with their fallback continue with the fallback. Returns the others.
-- Caller: holds the lock of the run. Writes: step. Next: _sas.requeue for the fallbacks.
CREATE FUNCTION _sas.continue_fallbacks(for_run bigint, for_no int, elements int[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    fallback_no int := (SELECT (w.shape #>> '{fallback,no}')::int
                        FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id
                            AND w.step_no = for_no AND NOT w.undo
                        WHERE r.run_id = for_run);
    begun int[];
BEGIN
    IF fallback_no IS NULL THEN
        RETURN elements;
    END IF;
    SELECT array_agg(f.element) INTO begun
    FROM unnest(elements) e
    CROSS JOIN LATERAL (SELECT x.element FROM _sas.step x WHERE x.run_id = for_run AND x.step_no = fallback_no
                        AND x.element = e AND x.state = 'failed' OFFSET 0) f;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => for_run, step_no => for_no, element => e, from_state => 'ready', to_state => 'suspended',
        waiting_kind => 'fallback'))) FROM unnest(begun) e;
    PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
        run_id => for_run, step_no => fallback_no, element => e, from_state => 'failed', to_state => 'ready',
        failure_count => 0))) FROM unnest(begun) e;
    PERFORM _sas.requeue(array_agg(for_run), array_agg(fallback_no), array_agg(e)) FROM unnest(begun) e
    HAVING count(*) > 0;
    RETURN ARRAY(SELECT e FROM unnest(elements) e WHERE e <> ALL (coalesce(begun, '{}')));
END $$;

-- _sas.closed_runs(of_lane, of_owner, mark, quantity, pass): the runs of this owner with steps that are ready
-- in this lane, from the mark on, and have a fallback for an open breaker; at most quantity. It looks at so
-- many steps; the next call goes on behind them. The last run of that many is among them in any case: further
-- steps of it may come behind.
CREATE FUNCTION _sas.closed_runs(of_lane int, of_owner oid, mark timestamptz, quantity int, pass bigint)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    at record := _sas.walk_from(of_lane, of_owner);
    seen record;
    upto int;
BEGIN
    SELECT max(g.looked_at) AS looked_at, array_agg(g.run_id ORDER BY g.rank, g.run_id) AS ids,
           array_agg(g.rank ORDER BY g.rank, g.run_id) AS ranks,
           array_agg(g.falls AND NOT _sas.is_deferred('fallback', g.run_id)
                     ORDER BY g.rank, g.run_id) AS falls
    INTO seen
    FROM (SELECT x.rank, x.run_id, max(x.looked_at) AS looked_at,
                 max(x.n) = pass OR bool_or(coalesce(w.falls, false)) AS falls
          FROM (SELECT y.*, row_number() OVER (ORDER BY y.rank, y.run_id) AS n,
                       count(*) OVER () AS looked_at
                FROM (SELECT q.rank, q.run_id, q.step_no, q.undo FROM _sas.ready q
                      WHERE q.lane = of_lane AND q.owner = of_owner AND q.rank >= mark
                        AND (q.rank, q.run_id) > (at.rank, at.run_id)
                      ORDER BY q.rank, q.run_id LIMIT pass) y) x
          JOIN _sas.run r ON r.run_id = x.run_id
          LEFT JOIN LATERAL (SELECT s.shape #> '{fallback,on}' ? 'breaker_open' AS falls
                             FROM _sas.workflow_step s WHERE s.version_id = r.version_id
                                 AND s.step_no = x.step_no AND NOT s.undo AND NOT x.undo OFFSET 0) w ON true
          GROUP BY 1, 2) g;
    IF seen.ids IS NULL THEN
        PERFORM _sas.walk_to(of_lane, of_owner, at.rank, at.run_id, true);
        RETURN '{}';
    END IF;
    upto := coalesce((SELECT f.n FROM unnest(seen.falls) WITH ORDINALITY AS f (falls, n) WHERE f.falls
                      ORDER BY f.n OFFSET quantity - 1 LIMIT 1), cardinality(seen.ids));
    PERFORM _sas.walk_to(of_lane, of_owner, seen.ranks[upto], seen.ids[upto],
                         seen.looked_at < pass AND upto = cardinality(seen.ids));
    RETURN ARRAY(SELECT DISTINCT seen.ids[n] FROM generate_series(1, upto) n WHERE seen.falls[n]);
END $$;

-- _sas.leave_closed_limits(quantity): steps that are ready for an agent whose breaker is open, and have a
-- fallback for that case, leave the queue and fall back. A step that would have to be undone first stays;
-- its call settles it. Returns how many fell back; one more if there are steps that were not looked at.
-- Caller: a tick. Locks: runs that no other transaction holds. Next: _sas.leave_closed_lanes.
CREATE FUNCTION _sas.leave_closed_limits(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    doors int[] := ARRAY(SELECT b FROM _sas.open_breakers() b);
    ids bigint[];
BEGIN
    PERFORM _sas.begin_walks();
    -- a test does not touch ready steps of other sessions
    IF doors = '{}' OR _sas.is_testing()
        OR NOT EXISTS (SELECT FROM _sas.workflow_step w WHERE w.lane = ANY (doors)
                       AND w.shape #> '{fallback,on}' ? 'breaker_open') THEN
        RETURN 0;
    END IF;
    PERFORM _sas.find_unknown(doors);
    -- each owner has a share
    SELECT array_agg(DISTINCT x) INTO ids
    FROM (SELECT l.*, greatest(1, quantity / count(*) OVER ())::int AS share,
                 least(1000, greatest(20, 5000 / count(*) OVER ())) AS pass
          FROM (SELECT * FROM _sas.lines(doors)
                UNION ALL
                -- for lanes without room for a line
                SELECT * FROM _sas.owners_of(_sas.unknown_lines('r', doors))) l) line
    CROSS JOIN LATERAL unnest(_sas.closed_runs(line.lane, line.owner, line.mark, line.share,
                                               line.pass)) x;
    RETURN _sas.leave_closed_runs(ids, doors) + _sas.walk_is_open()::int;
END $$;

-- _sas.leave_closed_runs(run_ids, lanes): the same for the steps of these runs in these lanes.
-- Locks: runs that no other transaction holds. Next: _sas.leave_closed_lanes.
CREATE FUNCTION _sas.leave_closed_runs(run_ids bigint[], lanes int[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := _sas.lock_runs(run_ids);
    done record;
BEGIN
    IF ids = '{}' THEN
        RETURN 0;
    END IF;
    done := _sas.apart(format('ARRAY[_sas.leave_closed_lanes($1, %L)]', lanes), ids);
    PERFORM _sas.defer_apart('fallback', ids, done.failed, done.errors, done.pauses, ids);
    RETURN (SELECT coalesce(sum(n), 0) FROM unnest(done.results) n);
END $$;

-- _sas.leave_closed_lanes(run_ids, lanes): those steps of these runs fall back that are ready in these
-- lanes and have a fallback for an open breaker. Returns how many.
-- Caller: holds the lock of the runs. Writes: ready, step. Next: _sas.fall_back.
CREATE FUNCTION _sas.leave_closed_lanes(run_ids bigint[], lanes int[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    SELECT array_agg(f.run_id) AS run_ids, array_agg(f.step_no) AS step_nos, array_agg(f.element) AS elements
    INTO gone
    FROM (SELECT q.run_id, q.step_no, q.element
          FROM _sas.ready q
          JOIN _sas.run r ON r.run_id = q.run_id AND r.abandon_as IS NULL
          CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                              AND x.step_no = q.step_no AND NOT x.undo
                              AND x.shape #> '{fallback,on}' ? 'breaker_open' OFFSET 0) w
          LEFT JOIN LATERAL _sas.step_row(q.run_id, q.step_no, q.element) s ON true
          WHERE q.run_id = ANY ($1) AND q.lane = ANY (lanes) AND NOT q.undo
            AND (s.run_id IS NULL OR _sas.way_back(q.run_id, q.step_no, q.element) = 'none')
          FOR UPDATE OF q SKIP LOCKED) f;
    IF gone.run_ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM _sas.take_ready_steps(gone.run_ids, gone.step_nos, gone.elements);
    PERFORM _sas.start_runs(gone.run_ids);
    PERFORM _sas.fall_back(gone.run_ids, gone.step_nos, gone.elements);
    PERFORM _sas.free_slots(gone.run_ids);
    RETURN cardinality(gone.run_ids);
END $$;
