-- SPDX-License-Identifier: PostgreSQL
--
-- Reply: the results of workers become state, in batches, under the fence.

-- _sas.write_replies(replies, done_leases, under_leases): writes replies and what follows from them, with one
-- statement per table. Returns the positions of the replies that do not count.
--
-- A reply counts if it has the current request_id and arrived before complete_by. Other replies are stale:
-- they are counted per agent and change nothing. A reply to a run that another session has locked becomes a
-- row of _sas.answer. under_leases: the writes of a function commit together with its reply. Therefore the
-- leases of these claims are locked first; only ticks lock leases, and only for a moment. From then on the
-- claims hold to the end of this transaction. If a reply "done" does not count, the caller rolls all of it
-- back.
--
-- Most replies are "done" for a step that asks nothing more; these are written at once. All others are
-- evaluated (sql/agent/evaluate.sql).
--   locks   under_leases; then the runs that no other transaction holds
--   reads   phase, run, step, workflow_step
--   writes  step, run, attempt, ready, message, lease, agent_health; answer
--   wakes   workers that can do the next steps, and the supervisor for failed steps
--   next    _sas.write_locked; _sas.answer_tick, for replies that became answers
CREATE FUNCTION _sas.write_replies(replies _sas.call_reply[], done_leases bigint[],
                                   under_leases bigint[] DEFAULT '{}') RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    wanted int := coalesce(cardinality(replies), 0);
    all_replies _sas.call_reply[] := replies;
    locked record;
    left_over record;
    written record;
    lost uuid[] := '{}';
    claimed int;
    n int;
BEGIN
    IF under_leases <> '{}' THEN
        claimed := _sas.lock_leases(under_leases);
    END IF;
    locked := _sas.lock_replied_runs(replies);
    IF coalesce(cardinality(locked.free), 0) < wanted THEN
        left_over := _sas.leave_answers(ARRAY(SELECT replies[g] FROM generate_series(1, wanted) g
                                              WHERE NOT g IN (SELECT unnest(locked.free))), now);
        lost := left_over.lost;
        replies := ARRAY(SELECT replies[f] FROM unnest(locked.free) f);
        locked := _sas.lock_replied_runs(replies);
    ELSE
        left_over := _sas.leave_answers(NULL, now);
    END IF;
    IF _sas.has_pages('_sas.answer') THEN
        PERFORM _sas.apply_beside(locked.run_ids, 1048576)
        WHERE EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = ANY (locked.run_ids));
    END IF;
    written := _sas.write_locked(replies, now, locked.free, locked.run_ids, locked.plain, locked.pending,
                                 locked.queued, locked.last);
    lost := lost || written.lost;
    IF lost <> '{}' THEN
        PERFORM _sas.count_stale(all_replies, lost);
    END IF;
    IF cardinality(done_leases) > 0 THEN
        n := _sas.end_leases(done_leases, written.run_ids || left_over.run_ids,
                             written.step_nos || left_over.step_nos,
                             written.elements || left_over.elements,
                             lost = '{}' AND claimed = wanted AND under_leases = done_leases);
    END IF;
    IF lost = '{}' THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT g FROM generate_subscripts(all_replies, 1) g
                 WHERE (all_replies[g]).request_id = ANY (lost));
END $$;

-- _sas.relieve_claims(boot, workers, owners): these workers are in a call that takes long: function steps
-- that they have claimed beside it are given back, and count nothing. Those of the owner that is called for
-- may share a transaction with the call: of these only what comes after it under its lease, which is in the
-- order of the calls, so that none of them has been called yet. Returns how many.
--   locks   the runs that no other transaction holds
--   wakes   other function workers
--   next    _sas.claim_functions
CREATE FUNCTION _sas.relieve_claims(boot bigint, workers bigint[], owners oid[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := _sas.lease_mark();
    replies _sas.call_reply[];
BEGIN
    WITH claimed AS (
        SELECT s.run_id, s.step_no, s.element, s.request_id, r.owner::oid <> u.owner AS of_others, h.n,
               min(h.n) FILTER (WHERE r.owner::oid = u.owner AND _sas.is_executed(s.request_id))
                   OVER (PARTITION BY l.lease_id) AS called
        FROM unnest(workers, owners) AS u (worker, owner)
        JOIN _sas.lease l ON l.next_by >= mark AND l.worker_id = u.worker AND l.boot = $1
        CROSS JOIN LATERAL unnest(l.run_ids, l.step_nos, l.elements)
            WITH ORDINALITY AS h (run_id, step_no, element, n)
        CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = h.run_id AND x.step_no = h.step_no
                            AND x.element = h.element AND x.lease_id = l.lease_id
                            AND x.request_id IS NOT NULL OFFSET 0) s
        JOIN _sas.run r ON r.run_id = s.run_id)
    SELECT array_agg(_sas.make_call_reply(run_id => c.run_id, step_no => c.step_no, element => c.element,
                                          request_id => c.request_id, verdict => 'hand_back', attempt => 0,
                                          arrived_at => sas.now())) INTO replies
    FROM claimed c WHERE c.of_others OR c.n > c.called;
    IF replies IS NULL THEN
        RETURN 0;
    END IF;
    RETURN cardinality(replies) - cardinality(_sas.write_replies(replies, '{}'));
END $$;

-- _sas.leases_of(replies): the leases under which these steps are claimed, as far as the claims hold.
CREATE FUNCTION _sas.leases_of(replies _sas.call_reply[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT s.lease_id
        FROM unnest(replies) p
        CROSS JOIN LATERAL (SELECT x.lease_id, x.request_id FROM _sas.step x WHERE x.run_id = p.run_id
                            AND x.step_no = p.step_no AND x.element = p.element OFFSET 0) s
        WHERE s.request_id = p.request_id);
END $$;

-- _sas.lock_leases(lease_ids): locks these leases; waits for a tick that judges one of them. The following
-- statements see what that tick has decided. The lock is shared: two programs may reply under one lease at
-- the same time. Returns how many steps were claimed under them.
CREATE FUNCTION _sas.lock_leases(lease_ids bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT sum(cardinality(k.run_ids))
            FROM (SELECT l.run_ids FROM _sas.lease l WHERE l.lease_id = ANY (lease_ids)
                  ORDER BY l.lease_id FOR KEY SHARE) k);
END $$;

-- _sas.write_locked(replies, now, ...): writes the replies to runs that are locked now; the other arguments
-- come from _sas.lock_replied_runs. Returns the steps whose replies counted, and the request_ids of the
-- others.
--   holds   the locks of the runs
--   writes  step, run, attempt, ready, message
--   next    _sas.move_done, _sas.write_stopped or _sas.write_evaluated, then _sas.go_on, for what waits for
--           the step
CREATE FUNCTION _sas.write_locked(replies _sas.call_reply[], now timestamptz, free int[],
                                  locked_runs bigint[], positions int[], pending boolean, queued boolean,
                                  last boolean, OUT run_ids bigint[], OUT step_nos int[], OUT elements int[],
                                  OUT lost uuid[])
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(replies), 0);
    plain _sas.call_reply[];
    others _sas.call_reply[];
    stopped _sas.call_reply[];
    done record;
    n int;
BEGIN
    IF wanted > 0 AND _sas.are_staged(locked_runs) THEN
        replies := _sas.end_phases(replies, locked_runs);
        wanted := cardinality(replies);
        others := replies;
    ELSIF cardinality(positions) = wanted THEN
        plain := replies;
    ELSE
        SELECT s.plain, s.others INTO plain, others
        FROM _sas.sort_replies(replies, free, locked_runs, positions) s;
    END IF;
    IF plain IS NOT NULL THEN
        done := _sas.move_done(plain, now);
        run_ids := done.run_ids;
        step_nos := done.step_nos;
        elements := done.elements;
        IF coalesce(cardinality(run_ids), 0) < cardinality(plain) THEN
            others := others || ARRAY(SELECT p FROM unnest(plain) p
                                      WHERE NOT (p.run_id, p.step_no, p.element)
                                            IN (SELECT * FROM unnest(run_ids, step_nos, elements)));
        END IF;
    END IF;
    IF run_ids IS NOT NULL AND last AND cardinality(run_ids) = wanted THEN
        n := _sas.end_of_steps(run_ids);
    ELSIF run_ids IS NOT NULL THEN
        IF pending THEN
            n := _sas.start_runs(run_ids);
        END IF;
        PERFORM _sas.go_on(run_ids, step_nos, elements);
    END IF;
    IF cardinality(others) > 0 THEN
        SELECT p.stopped, p.others INTO stopped, others FROM _sas.part_stopped(others) p;
        IF stopped IS NOT NULL THEN
            SELECT run_ids || j.runs, step_nos || j.nos, elements || j.which INTO run_ids, step_nos, elements
            FROM _sas.write_stopped(stopped, now) AS j (runs, nos, which);
        END IF;
    END IF;
    IF cardinality(others) > 0 THEN
        SELECT run_ids || j.runs, step_nos || j.nos, elements || j.which, queued OR j.places
        INTO run_ids, step_nos, elements, queued
        FROM _sas.write_evaluated(others, now, pending) AS j (runs, nos, which, places);
    END IF;
    IF queued OR _sas.are_keys_taken() THEN
        PERFORM _sas.free_slots(locked_runs);
    END IF;
    lost := '{}';
    IF coalesce(cardinality(run_ids), 0) < wanted THEN
        lost := ARRAY(SELECT p.request_id FROM unnest(replies) p
                      WHERE NOT (p.run_id, p.step_no, p.element)
                            IN (SELECT * FROM unnest(run_ids, step_nos, elements)));
    END IF;
END $$;

-- _sas.lock_replied_runs(replies): locks the runs that no other transaction holds, and describes their
-- replies:
--   free      the positions of those whose run is locked now, with run_ids beside them
--   plain     the positions of replies "done" for steps that ask nothing more, in runs that continue
--   pending   one of the runs is not marked as begun yet
--   queued    one of the steps has a slot in a queue
--   last      each of the steps is all that is left of its run: nothing else is open, and none waits for it
CREATE FUNCTION _sas.lock_replied_runs(replies _sas.call_reply[], OUT free int[], OUT run_ids bigint[],
                                       OUT plain int[], OUT pending boolean, OUT queued boolean,
                                       OUT last boolean)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(l.n), array_agg(l.run_id), array_agg(l.n) FILTER (WHERE l.goes_on AND w.is_plain),
        bool_or(l.pending), bool_or(coalesce(w.queue_id, l.queue_id) > 0),
        bool_and(l.alone AND NOT EXISTS (SELECT FROM _sas.workflow_edge e WHERE e.version_id = l.version_id
                                         AND e.from_no = l.step_no))
    INTO free, run_ids, plain, pending, queued, last
    FROM (SELECT p.n::int, p.run_id, p.step_no, r.version_id, r.queue_id, r.state = 'pending' AS pending,
          p.verdict = 'done' AND r.abandon_as IS NULL AS goes_on,
          p.element = 0 AND r.open_steps = 1 AND r.state = 'running' AS alone
          FROM unnest(replies) WITH ORDINALITY AS p (run_id, step_no, element, request_id, verdict, attempt,
                                                     output, error, in_doubt, again_in, arrived_at, n)
          JOIN _sas.run r ON r.run_id = p.run_id
          FOR NO KEY UPDATE OF r SKIP LOCKED) l
    -- OFFSET 0: by the whole key, not by its first column through all steps of the workflow
    LEFT JOIN LATERAL (SELECT k.queue_id, k.expect IS NULL AND k.output IS NULL
                       AND coalesce(NOT k.shape ?| '{poll,fallback,stands_in}', true) AS is_plain
                       FROM _sas.workflow_step k WHERE k.version_id = l.version_id AND k.step_no = l.step_no
                           AND NOT k.undo OFFSET 0) w ON true;
END $$;

-- _sas.sort_replies(replies, free, run_ids, positions): divides the replies at positions "free" into plain
-- ones and others. Replies of one run stay together, because they are written, and undone, in their order.
CREATE FUNCTION _sas.sort_replies(replies _sas.call_reply[], free int[], run_ids bigint[], positions int[],
                                  OUT plain _sas.call_reply[], OUT others _sas.call_reply[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(replies[s.n] ORDER BY s.n) FILTER (WHERE s.is_plain),
        array_agg(replies[s.n] ORDER BY s.n) FILTER (WHERE NOT s.is_plain)
    INTO plain, others
    FROM (SELECT u.n, bool_and(u.n IN (SELECT unnest(positions))) OVER (PARTITION BY u.run_id) AS is_plain
          FROM unnest(free, run_ids) AS u (n, run_id)) s;
END $$;

-- _sas.write_evaluated(replies, now, pending): writes replies that may be failures, or to which the step
-- applies "expect" or "output". pending: some of the runs may not be marked as begun. Returns the steps
-- whose replies counted.
--   holds   the locks of the runs
--   writes  step, attempt, run, and what follows: ready, message
--   next    _sas.go_on for success, _sas.decide_due for failure, a claim for what was handed back
CREATE FUNCTION _sas.write_evaluated(replies _sas.call_reply[], now timestamptz, pending boolean,
                                     OUT run_ids bigint[], OUT step_nos int[], OUT elements int[],
                                     OUT queued boolean)
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
    verdicts text[];
    noted _sas.call_reply[];
    falls boolean;
    objected boolean;
    ok_runs bigint[];
    ok_nos int[];
    ok_elements int[];
    undone bigint[];
    failed _sas.step_change[];
    again _sas.step_change[];
BEGIN
    SELECT j.changes, j.verdicts, j.queued, j.falls, j.objected, j.noted
    INTO changes, verdicts, queued, falls, objected, noted FROM _sas.evaluate_replies(replies, now) j;
    IF changes IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.note_objections(noted, changes) WHERE objected;
    PERFORM _sas.move_steps(changes);
    PERFORM _sas.note_asks(noted, changes, verdicts) WHERE verdicts && '{started,asked}';
    PERFORM _sas.end_undo_polls(changes);

    SELECT array_agg((x.c).run_id), array_agg((x.c).step_no), array_agg((x.c).element),
           array_agg((x.c).run_id) FILTER (WHERE x.ok AND r.abandon_as IS NULL),
               array_agg((x.c).step_no) FILTER (WHERE x.ok AND r.abandon_as IS NULL),
           array_agg((x.c).element) FILTER (WHERE x.ok AND r.abandon_as IS NULL),
           array_agg((x.c).run_id) FILTER (WHERE r.abandon_as IS NOT NULL AND (
               x.ok OR (x.c).to_state = 'compensated' OR x.v IN ('started', 'asked'))),
           array_agg(x.c) FILTER (WHERE x.v IN ('transient', 'permanent')),
           array_agg(x.c) FILTER (WHERE x.v = 'hand_back')
    INTO run_ids, step_nos, elements, ok_runs, ok_nos, ok_elements, undone, failed, again
    FROM (SELECT u.c, (u.c).to_state = 'succeeded' AS ok,
                 CASE (u.c).waiting_kind WHEN 'poll' THEN 'hand_back' ELSE u.v END AS v
          FROM (SELECT unnest(changes) AS c, unnest(verdicts) AS v) u) x
    JOIN _sas.run r ON r.run_id = (x.c).run_id;
    PERFORM _sas.start_runs(run_ids) WHERE pending;

    IF falls THEN
        PERFORM _sas.undone_substitute(changes);
        -- undone in a run that continues, or the breaker of its path is open: its fallback begins
        PERFORM _sas.fall_back(array_agg((x.c).run_id), array_agg((x.c).step_no), array_agg((x.c).element))
        FROM (SELECT unnest(changes) AS c, unnest(verdicts) AS v) x
        JOIN _sas.run r ON r.run_id = (x.c).run_id AND r.abandon_as IS NULL
        WHERE (x.c).to_state = 'compensated' OR x.v = 'fall' HAVING count(*) > 0;
        IF ok_runs IS NOT NULL THEN
            SELECT i.run_ids, i.step_nos, i.elements INTO ok_runs, ok_nos, ok_elements
            FROM _sas.substituted(ok_runs, ok_nos, ok_elements) i;
        END IF;
    END IF;
    IF ok_runs IS NOT NULL THEN
        PERFORM _sas.go_on(ok_runs, ok_nos, ok_elements);
    END IF;
    IF undone IS NOT NULL THEN
        PERFORM _sas.close_steps(undone);
    END IF;
    IF failed IS NOT NULL THEN
        PERFORM _sas.notify_supervisor(failed);
    END IF;
    IF again IS NOT NULL THEN
        PERFORM _sas.queue_again(again);
    END IF;
END $$;

-- _sas.end_leases(lease_ids, run_ids, step_nos, elements, whole): deletes these leases, except one under
-- which a reply came too late: the supervisor takes its step back. The listed steps are known not to be held
-- any more. A lease under which more is held is not even locked: a session may reply to one of many tasks,
-- and keep its transaction open, while others report on the rest. Returns how many were deleted.
-- whole: the steps are all that were claimed under them, by a function worker, which has locked the leases.
-- Writes: lease.
CREATE FUNCTION _sas.end_leases(lease_ids bigint[], run_ids bigint[], step_nos int[], elements int[],
                                whole boolean DEFAULT false) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    deleted int;
BEGIN
    IF whole THEN
        -- a tick that gives steps back may share the lock, and wait for an answer that is written here
        DELETE FROM _sas.lease d
        WHERE d.ctid = ANY (ARRAY(SELECT l.ctid FROM _sas.lease l WHERE l.lease_id = ANY (lease_ids)
                                  FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        RETURN deleted;
    END IF;
    DELETE FROM _sas.lease d
    -- another program may be replying under this lease in its own transaction; then the supervisor finds
    -- the lease
    USING (
        SELECT l.lease_id FROM _sas.lease l
        WHERE l.lease_id = ANY (lease_ids)
          AND NOT EXISTS (SELECT
                          FROM (SELECT *
                                FROM unnest(l.run_ids, l.step_nos, l.elements) AS u (run_id, step_no, element)
                                WHERE NOT (u.run_id, u.step_no, u.element)
                                    IN (SELECT * FROM unnest($2, $3, $4)) OFFSET 0) u
                          CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id
                                              AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s
                          WHERE s.lease_id = l.lease_id AND s.request_id IS NOT NULL
                            AND NOT EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = s.run_id
                                            AND a.step_no = s.step_no AND a.element = s.element
                                            AND a.request_id = s.request_id))
        FOR UPDATE SKIP LOCKED) free
    WHERE d.lease_id = free.lease_id;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;

-- _sas.count_stale(replies, lost): counts stale replies per agent: they came too late, or from a claim that
-- no longer holds.
-- Writes: agent_health.
CREATE FUNCTION _sas.count_stale(replies _sas.call_reply[], lost uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    outside int[];
    counts bigint[];
BEGIN
    WITH stale AS MATERIALIZED (
        SELECT w.lane, count(*) AS n
        FROM unnest(replies) p
        JOIN _sas.run r ON r.run_id = p.run_id
        CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                            AND x.step_no = p.step_no AND NOT x.undo AND x.lane > 0 OFFSET 0) w
        WHERE p.request_id = ANY (lost)
        GROUP BY w.lane),
    of_workers AS (
        INSERT INTO _sas.agent_health AS h (agent_id, stale_replies)
        SELECT s.lane, s.n FROM stale s JOIN _sas.agent a ON a.agent_id = s.lane AND a.kind <> 'external'
        ORDER BY s.lane
        ON CONFLICT (agent_id) DO UPDATE SET stale_replies = h.stale_replies + EXCLUDED.stale_replies)
    SELECT array_agg(s.lane), array_agg(s.n) INTO outside, counts
    FROM stale s JOIN _sas.agent a ON a.agent_id = s.lane AND a.kind = 'external';
    PERFORM _sas.add_stale(outside, counts) WHERE outside IS NOT NULL;
END $$;

-- _sas.add_stale(agent_ids, counts): so many more stale replies of outside programs. Sessions write these
-- rows, and nobody waits for one: what comes while another counts is not counted.
-- Locks: rows of agent_health that no other transaction has locked. Writes: agent_health.
CREATE FUNCTION _sas.add_stale(agent_ids int[], counts bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH free AS (
        SELECT h.agent_id, u.n
        FROM unnest($1, $2) AS u (agent_id, n) JOIN _sas.agent_health h ON h.agent_id = u.agent_id
        FOR UPDATE OF h SKIP LOCKED)
    UPDATE _sas.agent_health h SET stale_replies = h.stale_replies + f.n
    FROM free f WHERE h.agent_id = f.agent_id;
END $$;

-- _sas.write_attempts(...): stores the failed and further attempts of workers. Arrays of equal length.
-- Writes: attempt.
CREATE FUNCTION _sas.write_attempts(run_ids bigint[], step_nos int[], elements int[], attempts int[],
                                    undos boolean[], agent_ids int[],
                                    worker text, statuses text[], http_statuses int[], errors jsonb[],
                                    started_ats timestamptz[], finished_ats timestamptz[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, http_status,
                              error, started_at, finished_at)
    SELECT u.run_id, u.step_no, u.element, u.attempt, u.undo, nullif(u.agent_id, 0), worker, u.status,
        nullif(u.http_status, 0), u.error, u.started_at, u.finished_at
    FROM unnest(run_ids, step_nos, elements, attempts, undos, agent_ids, statuses, http_statuses, errors,
                started_ats, finished_ats)
         AS u (run_id, step_no, element, attempt, undo, agent_id, status, http_status, error, started_at,
               finished_at)
$$;

-- _sas.rehearse_replies(): executes the statements that write the plain replies of functions and calls, for
-- no run, so that a worker has opened their tables and planned them before its first reply. Changes nothing.
CREATE FUNCTION _sas.rehearse_replies() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    none bigint[] := '{-1}';
BEGIN
    PERFORM _sas.lock_leases(none);
    PERFORM _sas.lock_replied_runs('{}');
    PERFORM _sas.move_done('{}', now);
    PERFORM _sas.start_runs(none);
    PERFORM _sas.go_on(none, '{1}', '{0}');
    PERFORM _sas.end_of_steps(none);
    PERFORM _sas.note_ends(none);
    PERFORM _sas.end_leases(none, none, '{1}', '{0}'), _sas.end_leases(none, none, '{1}', '{0}', true);
    PERFORM _sas.write_replies('{}', '{}');
END $$;
