-- SPDX-License-Identifier: PostgreSQL
--
-- Stop: takes work away from workers, for runs that an operator ends; and pauses runs in which only failed
-- steps are left. The caller of each function holds the lock of the runs.
--
-- The verb writes the run and leaves a message. The scheduler revokes the claims when no worker is about to
-- reply to one. A cancel does not revoke the call of a worker that lives: the worker stops it and replies so,
-- so that nothing is undone before the connection is closed. Child runs get messages of their own.

-- _sas.stop_work(run_ids): the claims of workers in these runs are revoked once this transaction is
-- committed. A verb writes the run, never a claim: a step that is answered in between is done.
-- Writes: message. Wakes: the scheduler. Next: _sas.revoke_claims.
CREATE FUNCTION _sas.stop_work(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT DISTINCT 's'::"char", sas.now(), s.run_id, 'revoke' FROM _sas.step s
    WHERE s.run_id = ANY ($1) AND s.request_id IS NOT NULL;
    PERFORM _sas.wake(scheduler => true) WHERE FOUND;
END $$;

-- _sas.is_function(run_id, step_no, element, lane, undo): does a function worker hold the claim of this
-- step? The functions around a call count as functions, the call itself does not.
CREATE FUNCTION _sas.is_function(run_id bigint, step_no int, element int, lane int, undo boolean)
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT lane = 0 OR EXISTS (SELECT FROM _sas.phase p WHERE p.run_id = $1 AND p.step_no = $2
                               AND p.element = $3 AND p.undo = $5 AND p.stage NOT IN ('call', 'poll'))
$$;

-- _sas.settles(run_id, step_no, element): does the undo of this step need the output of its call? Then a
-- call in doubt is repeated until its outcome is known.
CREATE FUNCTION _sas.settles(run_id bigint, step_no int, element int) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT w.reads_own_output AND s.output IS NULL AND s.asks IS NULL
                     AND r.abandon_as <> 'fail'
                     FROM _sas.run r
                     JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $2 AND w.undo
                     JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = $2 AND s.element = $3
                     WHERE r.run_id = $1), false)
$$;

-- _sas.is_cancelled(run_state, abandon_as, s): does a cancel stop the work on this step? It does not stop an
-- undo, nor a call that is repeated to learn its outcome: it would only be repeated once more.
CREATE FUNCTION _sas.is_cancelled(run_state text, abandon_as text, s _sas.step) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN run_state <> 'stopped' AND coalesce(abandon_as = 'cancel', false) AND s.state = 'running'
           THEN NOT (s.in_doubt AND _sas.settles(s.run_id, s.step_no, s.element)) ELSE false END
$$;

-- _sas.revocable_claims(run_ids): the claims in these runs that a halt or a cancel revokes. Outside
-- programs learn of a cancel from their heartbeats and may finish their work.
--   answered  the claim has a reply that only waits for its run
--   told      its run was cancelled, and it is a call of a worker that lives: that stops it, and replies
CREATE FUNCTION _sas.revocable_claims(run_ids bigint[], OUT step _sas.step, OUT def _sas.workflow_step,
                                      OUT is_function boolean, OUT answered boolean, OUT told boolean)
RETURNS SETOF record
LANGUAGE plpgsql STABLE AS $$
DECLARE
    live bigint[] := _sas.live_workers();
BEGIN
    RETURN QUERY
    SELECT s.whole, w, f.is_function,
           EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = s.run_id AND a.step_no = s.step_no
                   AND a.element = s.element AND a.request_id = s.request_id),
           r.state <> 'stopped' AND w.kind = 'call' AND NOT f.is_function
               AND EXISTS (SELECT FROM _sas.lease l WHERE l.lease_id = s.lease_id
                           AND l.boot = _sas.current_boot() AND l.worker_id = ANY (live))
    FROM _sas.run r
    -- OFFSET 0: where one run has most of all steps, the planner would read the whole table
    CROSS JOIN LATERAL (SELECT x AS whole, x.* FROM _sas.step x
                        WHERE x.run_id = r.run_id AND x.request_id IS NOT NULL OFFSET 0) s
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    CROSS JOIN LATERAL (SELECT _sas.is_function(s.run_id, s.step_no, s.element, w.lane, w.undo)
                        AS is_function OFFSET 0) f
    WHERE r.run_id = ANY ($1)
      AND (r.state = 'stopped'
           OR _sas.is_cancelled(r.state, r.abandon_as, s.whole) AND (w.kind <> 'task' OR f.is_function));
END $$;

-- _sas.revoke_claims(run_ids): revokes the claims of workers in these runs, which were cancelled or halted,
-- and stops the work. A claim whose lease is locked is about to get its reply, and one that has its reply
-- only waits for its run: both are tried again in a moment.
--
-- A reply that still comes is stale. A call may have been carried out, so its outcome is in doubt. A status
-- request of a poll changes nothing, and what a function did is rolled back. After a cancel, the worker of a
-- call keeps its claim until it has replied; the supervisor takes it back if that worker dies, or is late.
--   holds   the locks of the runs
--   locks   the leases that no other transaction holds
--   writes  step, run, attempt, external_slot, message
--   wakes   at commit: the worker that runs such a function, which is cancelled, and ended after a while
--           (base/peers.h); agent workers, which stop such calls; the scheduler, for the undo
--   next    _sas.undo_next; _sas.write_stopped, for calls
CREATE FUNCTION _sas.revoke_claims(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    wanted bigint[];
    free bigint[];
    changes _sas.step_change[];
    requests uuid[];
    outside bigint[];
    calls boolean;
BEGIN
    wanted := ARRAY(SELECT DISTINCT (c.step).lease_id FROM _sas.revocable_claims($1) c
                    WHERE NOT c.answered AND NOT c.told);
    free := ARRAY(SELECT l.lease_id FROM _sas.lease l WHERE l.lease_id = ANY (wanted)
                  FOR UPDATE SKIP LOCKED);
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    -- a worker locks its lease for a moment; a session that replies to a task keeps the lock until its
    -- transaction ends
    SELECT DISTINCT 's'::"char", now + CASE l.worker_id WHEN 0 THEN interval '250 ms'
        ELSE interval '10 ms' END, (c.step).run_id, 'revoke'
    FROM _sas.revocable_claims($1) c LEFT JOIN _sas.lease l ON l.lease_id = (c.step).lease_id
    WHERE c.answered OR NOT c.told AND NOT l.lease_id = ANY (free);

    SELECT array_agg(_sas.revoked_step(c.step, c.def, c.is_function, l.locked_by, now))
               FILTER (WHERE f.free),
           array_agg((c.step).request_id) FILTER (WHERE f.free AND c.is_function),
           array_agg(DISTINCT l.lease_id) FILTER (WHERE f.free AND l.worker_id = 0),
           bool_or((c.def).kind = 'call' AND NOT c.is_function)
    INTO changes, requests, outside, calls
    FROM _sas.revocable_claims($1) c
    LEFT JOIN _sas.lease l ON l.lease_id = (c.step).lease_id
    -- without a lease: its worker has replied, and the reply did not count
    CROSS JOIN LATERAL (SELECT NOT c.told AND (l.lease_id = ANY (free) OR l.lease_id IS NULL) AS free) f
    WHERE NOT c.answered;
    PERFORM _sas.stop_calls() WHERE calls;
    IF changes IS NOT NULL THEN
        PERFORM _sas.record_revoked(changes);
        PERFORM _sas.move_steps(changes);
        PERFORM _sas.interrupt_functions(requests) WHERE requests IS NOT NULL;
        PERFORM _sas.expire_leases(outside) WHERE outside IS NOT NULL;
        PERFORM _sas.free_slots($1);
        PERFORM _sas.close_steps(array_agg(c.run_id)) FROM unnest(changes) c;
    END IF;
END $$;

-- _sas.revoked_step(s, def, is_function, holder, now, tries, sent): the change of a step whose claim is
-- revoked, or whose call was stopped. tries: attempts under the claim; sent: a call may have been carried
-- out.
CREATE FUNCTION _sas.revoked_step(s _sas.step, def _sas.workflow_step, is_function boolean, holder text,
                                  now timestamptz, tries int DEFAULT 1, sent boolean DEFAULT true)
RETURNS _sas.step_change
LANGUAGE sql STABLE AS $$
    SELECT _sas.make_step_change(
        run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
        to_state => CASE WHEN def.undo THEN 'skipped'
                         WHEN (is_function OR NOT sent) AND NOT s.in_doubt AND s.asks IS NULL THEN 'cancelled'
                         ELSE 'failed' END,
        attempt => CASE WHEN NOT is_function THEN s.attempt + tries END,
        in_doubt => CASE WHEN NOT is_function AND NOT def.undo THEN s.in_doubt OR sent AND s.asks IS NULL END,
        error => CASE WHEN def.undo THEN _sas.left_by_halt(s.run_id, def.name, CASE
                          WHEN NOT is_function THEN stopped.title
                          WHEN s.error ? 'title' THEN _sas.title(s.error) END)
                      WHEN NOT is_function AND sent
                          THEN _sas.problem_object('cancelled', stopped.title, 'held by ' || holder, NULL,
                                                   s.run_id, def.name) END,
        finished_at => now)
    FROM (SELECT CASE def.kind WHEN 'task' THEN 'its task was taken back'
                 ELSE 'its call was stopped' END AS title) stopped
$$;

-- _sas.record_revoked(changes): stores the attempts that end with these claims; a function leaves none.
-- Caller: before it moves the steps, because their claims say which worker held them, and since when.
-- Writes: attempt.
CREATE FUNCTION _sas.record_revoked(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error,
                              started_at, finished_at)
    SELECT c.run_id, c.step_no, c.element, c.attempt, w.undo, w.lane, l.locked_by, 'cancelled', c.error,
           coalesce((SELECT p.claimed_at FROM _sas.external_slot p WHERE p.request_id = s.request_id),
                    s.complete_by - coalesce(w.complete_in, _sas.complete_in())), c.finished_at
    FROM unnest(changes) c
    CROSS JOIN LATERAL _sas.step_row(c.run_id, c.step_no, c.element) s
    JOIN _sas.run r ON r.run_id = s.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    LEFT JOIN _sas.lease l ON l.lease_id = s.lease_id
    WHERE c.attempt IS NOT NULL;
END $$;

-- _sas.left_by_halt(run_id, name, detail): the error of a step whose run was halted before the step was
-- undone.
CREATE FUNCTION _sas.left_by_halt(run_id bigint, name text, detail text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.problem_object('left-standing', 'its run was halted before it was undone', detail, NULL,
                               run_id, name)
$$;

-- _sas.claims_of_calls(run_ids, step_nos, elements, request_ids): for each of these claims: held; stop: its
-- run was cancelled; or lost. Locks nothing.
CREATE FUNCTION _sas.claims_of_calls(run_ids bigint[], step_nos int[], elements int[], request_ids uuid[])
RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE WHEN s.request_id IS DISTINCT FROM u.request_id THEN 'lost'
                    WHEN _sas.is_cancelled(r.state, r.abandon_as, s) THEN 'stop'
                    ELSE 'held' END
        FROM unnest(run_ids, step_nos, elements, request_ids) WITH ORDINALITY AS u (run_id, step_no, element,
                    request_id, n)
        LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s ON true
        LEFT JOIN LATERAL (SELECT x.state, x.abandon_as FROM _sas.run x WHERE x.run_id = u.run_id OFFSET 0) r
            ON true
        ORDER BY u.n);
END $$;

-- _sas.part_stopped(replies): divides replies into those that end work which was stopped, and the others.
-- Nothing that is handed back in a cancelled run is tried again. If a pause has taken the end of the run back
-- meanwhile, the step of a call that was stopped gets another window.
CREATE FUNCTION _sas.part_stopped(replies _sas.call_reply[], OUT stopped _sas.call_reply[],
                                  OUT others _sas.call_reply[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(replies) p WHERE p.verdict <> 'done') THEN
        others := replies;
        RETURN;
    END IF;
    SELECT array_agg(replies[n] ORDER BY n) FILTER (WHERE e.stops),
           array_agg(CASE p.verdict WHEN 'stopped' THEN _sas.make_call_reply(
                         p.run_id, p.step_no, p.element, p.request_id, 'transient', p.attempt, p.output,
                         p.error, p.in_doubt, p.again_in, p.arrived_at) ELSE replies[n] END ORDER BY n)
               FILTER (WHERE NOT e.stops)
    INTO stopped, others
    FROM generate_subscripts(replies, 1) n
    CROSS JOIN LATERAL (SELECT (replies[n]).* OFFSET 0) p
    JOIN _sas.run r ON r.run_id = p.run_id
    CROSS JOIN LATERAL _sas.step_row(p.run_id, p.step_no, p.element) s
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    CROSS JOIN LATERAL (
        SELECT CASE p.verdict WHEN 'stopped' THEN r.state = 'stopped' OR r.abandon_as IS NOT NULL
                    WHEN 'hand_back' THEN _sas.is_cancelled(r.state, r.abandon_as, s)
                        AND (w.kind <> 'task'
                             OR _sas.is_function(s.run_id, s.step_no, s.element, w.lane, w.undo))
                    ELSE false END AS stops OFFSET 0) e;
END $$;

-- _sas.write_stopped(replies, now): the workers have stopped this work. Returns the steps whose replies
-- counted.
--   holds   the locks of the runs
--   writes  step, run, message
--   wakes   the scheduler, for the undo
--   next    _sas.undo_next
CREATE FUNCTION _sas.write_stopped(replies _sas.call_reply[], now timestamptz, OUT run_ids bigint[],
                                   OUT step_nos int[], OUT elements int[])
LANGUAGE plpgsql AS $$
DECLARE
    changes _sas.step_change[];
BEGIN
    SELECT array_agg(_sas.revoked_step(s, w, _sas.is_function(s.run_id, s.step_no, s.element, w.lane, w.undo),
                                       l.locked_by, $2, p.attempt, p.in_doubt)),
           array_agg(p.run_id), array_agg(p.step_no), array_agg(p.element)
    INTO changes, run_ids, step_nos, elements
    FROM unnest(replies) p
    CROSS JOIN LATERAL _sas.step_row(p.run_id, p.step_no, p.element) s
    JOIN _sas.run r ON r.run_id = p.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    LEFT JOIN _sas.lease l ON l.lease_id = s.lease_id
    WHERE s.request_id = p.request_id AND s.complete_by > coalesce(p.arrived_at, $2);
    IF changes IS NOT NULL THEN
        PERFORM _sas.move_steps(changes);
        PERFORM _sas.free_slots(run_ids);
        PERFORM _sas.close_steps(run_ids);
    END IF;
END $$;

-- _sas.halt_now(run_ids, errors): stops these runs now. Nothing is undone, and nothing is waited for.
-- errors null: they are halted together with their parent.
-- Writes: ready, step, undo_order, run, message, abandoned_run, map_list. Wakes: agent workers; the
-- scheduler, for child runs.
CREATE FUNCTION _sas.halt_now(run_ids bigint[], errors jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    ids bigint[] := ARRAY(SELECT r.run_id FROM _sas.run r WHERE r.run_id = ANY (run_ids)
                          AND r.state <> 'stopped');
    changes _sas.step_change[];
BEGIN
    IF ids = '{}' THEN
        RETURN;
    END IF;
    -- for runs that continued beside a failure; for a paused run the change of state closes its alerts
    PERFORM _sas.close_alerts_of(ARRAY(SELECT r.run_id FROM _sas.run r
                                       WHERE r.run_id = ANY (ids) AND r.paused_state = 'held'));
    PERFORM _sas.cancel_ready(ids, true);
    PERFORM _sas.stop_work(ids);
    PERFORM _sas.forget_timers(ids, NULL, NULL);

    SELECT array_agg(_sas.make_step_change(
               run_id => s.run_id, step_no => s.step_no, element => s.element, from_state => s.state,
               to_state => CASE WHEN s.state = 'compensating' THEN 'skipped'
                                WHEN s.state = 'failed' OR s.in_doubt OR s.asks IS NOT NULL THEN 'failed'
                                ELSE 'cancelled' END,
               error => CASE WHEN s.state = 'compensating'
                   THEN _sas.left_by_halt(s.run_id, (SELECT w.name FROM _sas.run r
                                                     JOIN _sas.workflow_step w ON w.version_id = r.version_id
                                                         AND w.step_no = s.step_no AND NOT w.undo
                                                     WHERE r.run_id = s.run_id),
                                          CASE WHEN s.error ? 'title' THEN _sas.title(s.error) END) END,
               finished_at => now))
    INTO changes
    FROM _sas.step s
    -- _sas.revoke_claims handles claims that workers still hold
    WHERE s.run_id = ANY (ids) AND s.request_id IS NULL
        AND (s.state IN ('waiting', 'ready', 'suspended', 'compensating')
             OR s.state = 'failed' AND s.waiting_kind = 'supervisor');
    PERFORM _sas.move_steps(changes);
    DELETE FROM _sas.undo_order l WHERE l.run_id = ANY (ids);
    DELETE FROM _sas.abandoned_run a WHERE a.run_id = ANY (ids);
    DELETE FROM _sas.map_list l WHERE l.run_id = ANY (ids);
    PERFORM _sas.abandon_children(ids, 'halt', array_fill('fail'::text, ARRAY[cardinality(ids)]));
    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => r.run_id, from_state => r.state, to_state => 'stopped', result => 'error',
            abandon_as => 'fail',
        open_steps => 0,
        error => coalesce(u.error,
                          _sas.problem_object('parent', 'its parent run was halted',
                                              NULL, NULL, r.run_id, NULL)))))
    FROM unnest(run_ids, errors) AS u (run_id, error)
    CROSS JOIN LATERAL (SELECT x.run_id, x.state FROM _sas.run x WHERE x.run_id = u.run_id
                        AND x.state <> 'stopped' OFFSET 0) r;
    PERFORM _sas.free_slots(ids);
END $$;

-- _sas.forget_timers(run_ids, step_nos, elements, in_state): deletes the timers of these steps. step_nos
-- null: of all steps of the runs, or of those in this state.
-- Writes: message.
CREATE FUNCTION _sas.forget_timers(run_ids bigint[], step_nos int[], elements int[],
                                   in_state text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- OFFSET 0: step by step, each by its whole key; else the messages of all runs may be scanned
    IF step_nos IS NULL THEN
        DELETE FROM _sas.message d WHERE d.ctid = ANY (ARRAY(
            SELECT m.ctid
            FROM (SELECT x.* FROM _sas.step x WHERE x.run_id = ANY (run_ids) AND x.waiting_until IS NOT NULL
                  AND (in_state IS NULL OR x.state = in_state) OFFSET 0) s
            CROSS JOIN LATERAL (SELECT x.ctid FROM _sas.message x
                                WHERE x.actor = 's' AND x.due_at = s.waiting_until AND x.run_id = s.run_id
                                    AND x.step_no = s.step_no AND x.element = s.element OFFSET 0) m));
    ELSE
        DELETE FROM _sas.message d WHERE d.ctid = ANY (ARRAY(
            SELECT m.ctid
            FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
            CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
            CROSS JOIN LATERAL (SELECT x.ctid FROM _sas.message x
                                WHERE x.actor = 's' AND x.due_at = s.waiting_until AND x.run_id = u.run_id
                                    AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) m));
    END IF;
END $$;


-- A run in which a failed step waits for an operator continues beside it; its paused_state is 'held'
-- meanwhile. It is paused when only failed steps are left. The same holds for a run in which an operator
-- has one of several failed steps tried again. Each function that ends a step of such a run sends the
-- scheduler a message.

-- _sas.hold_runs(run_ids): steps of these runs have failed and wait for an operator. Pauses those of these
-- runs in which nothing else is in progress.
-- Caller: holds the lock of the runs. Writes: run.
CREATE FUNCTION _sas.hold_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.run r SET paused_state = 'held'
    WHERE r.run_id = ANY ($1) AND r.state = 'running' AND r.abandon_as IS NULL;
    PERFORM _sas.pause_held($1);
END $$;

-- _sas.check_hosted(run_ids): a step of these runs has ended: the scheduler checks whether anything is
-- still in progress.
-- Writes: message. Wakes: the scheduler. Next: _sas.pause_held.
CREATE FUNCTION _sas.check_hosted(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT DISTINCT 's'::"char", sas.now(), u, 'held'
    FROM unnest(run_ids) u;
    PERFORM _sas.wake(scheduler => true);
END $$;

-- _sas.pause_held(run_ids): pauses those of these runs in which nothing is in progress.
-- Writes: as _sas.move_to_paused; alert.
CREATE FUNCTION _sas.pause_held(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    stuck record;
BEGIN
    SELECT array_agg(r.run_id) AS ids,
        array_agg(format('step "%s" failed: %s', _sas.shown_name(f.name), f.error ->> 'title')) AS whys,
        array_agg(f.error) AS errors
    INTO stuck
    FROM _sas.run r
    CROSS JOIN LATERAL (SELECT w.name, s.error FROM _sas.step s
                        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no
                            AND NOT w.undo AND NOT coalesce(w.shape ? 'stands_in', false)
                        WHERE s.run_id = r.run_id AND s.state = 'failed' ORDER BY s.step_no, s.element
                            LIMIT 1) f
    WHERE r.run_id = ANY (run_ids) AND r.paused_state = 'held' AND r.state = 'running'
        AND r.abandon_as IS NULL
      AND NOT EXISTS (SELECT FROM _sas.ready q WHERE q.run_id = r.run_id)
      AND NOT EXISTS (SELECT FROM _sas.message d
                      WHERE d.run_id = r.run_id AND d.kind IN ('enter', 'child', 'room'))
      AND NOT EXISTS (SELECT FROM _sas.step s
                      WHERE s.run_id = r.run_id
                        AND (s.state IN ('running', 'ready', 'compensating') OR s.state = 'failed'
                             AND s.waiting_kind = 'supervisor'
                             OR s.state = 'suspended' AND s.waiting_kind NOT IN ('elements', 'fallback')
                             -- a repeating step waits for its next iteration
                             OR s.state = 'suspended' AND s.waiting_kind = 'elements'
                                 AND (SELECT true FROM _sas.map_progress f WHERE f.run_id = s.run_id
                                      AND f.step_no = s.step_no AND (f.remaining = 0 OR f.loading) LIMIT 1)));
    IF stuck.ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.move_to_paused(stuck.ids, stuck.whys, 'sas supervisor', stuck.errors);
    -- their alerts were closed when the run was resumed
    PERFORM _sas.raise_alert('step-failed', format('step %s', w.name),
                             format('run %s: step "%s" failed: %s', r.run_id, _sas.shown_name(w.name),
                                    s.error ->> 'title'), nullif(w.lane, 0), r.run_id, s.step_no, s.error)
    FROM _sas.run r
    JOIN _sas.step s ON s.run_id = r.run_id AND s.state = 'failed'
    CROSS JOIN LATERAL (SELECT x.name, x.lane FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = s.step_no AND NOT x.undo
                        AND NOT coalesce(x.shape ? 'stands_in', false) OFFSET 0) w
    WHERE r.run_id = ANY (stuck.ids)
      AND NOT EXISTS (SELECT FROM _sas.alert_run a JOIN _sas.alert l USING (alert_id)
                      WHERE a.run_id = r.run_id AND a.cause = format('step %s', w.name)
                          AND l.closed_at IS NULL);
END $$;
