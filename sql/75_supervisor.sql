-- SPDX-License-Identifier: PostgreSQL
--
-- Supervisor: finds what is overdue or failed, counts, and asks for another
-- window, a longer wait, an undo or a pause. It knows nothing of the business
-- and calls nothing.

-- sas._cool_off(recovery, failures): the pause before the next window.
-- recovery is complete: max_failures, initial, max, backoff, jitter.
CREATE FUNCTION sas._cool_off(recovery jsonb, failures int) RETURNS interval
LANGUAGE sql VOLATILE AS $$
    SELECT least(extract(epoch FROM (recovery ->> 'max')::interval),
                 extract(epoch FROM (recovery ->> 'initial')::interval)
                 * CASE recovery ->> 'backoff' WHEN 'exponential' THEN 2 ^ least(failures - 1, 30) WHEN 'linear' THEN failures ELSE 1 END)::float8
           * interval '1 s' * CASE WHEN (recovery ->> 'jitter')::boolean AND NOT sas._rehearsing() THEN 0.5 + random() / 2 ELSE 1 END
$$;

-- sas._supervisor_tick(boot, live, newest, quantity): one turn of the leading supervisor.
--   live    worker ids alive in this database, as looked up before the call
--   newest  the highest worker id that had been given out by then: a lease of a later one is not judged
-- Returns how much was found, when to look again (null: only when rung), and
-- the workers that hold local steps past complete-by plus a second.
CREATE FUNCTION sas._supervisor_tick(boot bigint, live bigint[], newest bigint, quantity int,
                                     OUT worked int, OUT next_due timestamptz, OUT stuck bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    leases int;
    watched record;
BEGIN
    PERFORM sas._tell_lateness();
    SELECT o.leases, o.stuck INTO leases, stuck FROM sas._take_back(boot, live, newest, quantity) o;
    SELECT * INTO watched FROM sas._supervise_watches(boot, live, newest);
    worked := leases + sas._decide(quantity) + sas._leave_closed_doors(quantity) + watched.worked;
    stuck := stuck || watched.stuck;
    -- a row of the queue that a session held when a worker looked was passed by, and nobody rings for it
    IF worked = 0 THEN
        PERFORM sas._ring(ARRAY(SELECT a.lane FROM (SELECT 0 AS lane UNION ALL SELECT agent_id FROM sas.agent WHERE enabled AND kind = 'http') a
                                WHERE EXISTS (SELECT FROM sas.ready q WHERE q.lane = a.lane)), false, false, '{}');
    END IF;
    next_due := least(sas._next_due('v'), watched.next_due, (SELECT l.next_by FROM sas.lease l ORDER BY l.next_by LIMIT 1));
END $$;

-- sas._take_back(...): steps whose worker is gone, or whose complete-by has
-- passed, fail. A call may have been made, so its outcome is in doubt; a local
-- step was rolled back with its worker. The lease of an outside worker (0) is
-- judged by time only: it holds whatever becomes of the server. When a worker died with a batch of local
-- steps nobody knows which one killed it: each is run alone then, and no
-- failure counted. The size of the batch counts, not what is still held: some
-- of it may have been taken back by an earlier look.
CREATE FUNCTION sas._take_back(boot bigint, live bigint[], newest bigint, quantity int, OUT leases int, OUT stuck bigint[])
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    found sas.lease[];
BEGIN
    SELECT array_agg(q) INTO found
    FROM (SELECT l.* FROM sas.lease l
          WHERE l.next_by <= now OR l.worker_id > 0 AND (l.boot <> $1 OR l.worker_id <= newest AND NOT l.worker_id = ANY (live))
          ORDER BY l.next_by LIMIT quantity FOR UPDATE SKIP LOCKED) q;
    leases := coalesce(cardinality(found), 0);
    IF leases > 0 THEN
        stuck := sas._take_back(found, boot, live, newest);
    END IF;
END $$;

-- The same of these leases, which the caller has locked. Returns the workers that are stuck.
CREATE FUNCTION sas._take_back(leases sas.lease[], boot bigint, live bigint[], newest bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    found sas.lease[] := leases;
    locked bigint[];
    failed sas._step_change[];
    again sas._step_change[];
    stuck bigint[];
BEGIN
    locked := sas._lock_runs(ARRAY(SELECT DISTINCT unnest(f.run_ids) FROM unnest(found) f));

    WITH held AS (
        SELECT f.lease_id, f.worker_id, f.worker_id > 0 AND (f.boot <> $2 OR f.worker_id <= newest AND NOT f.worker_id = ANY (live)) AS dead,
               cardinality(f.run_ids) AS together, s AS step, w AS def, sas._lane_now(s.run_id, s.step_no, s.element, w.undo, w.lane) AS lane, f.locked_by, r.trace
        FROM unnest(found) f
        CROSS JOIN LATERAL unnest(f.run_ids, f.step_nos, f.elements) AS u (run_id, step_no, element)
        JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element AND s.lease_id = f.lease_id
        JOIN sas.run r ON r.run_id = s.run_id
        JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND w.undo = (s.state = 'compensating')
        WHERE s.request_id IS NOT NULL),
    over AS (
        SELECT h.*, h.dead AND h.lane = 0 AND h.together > 1 AND NOT (h.step).alone AS crowd
        FROM held h WHERE (h.dead OR (h.step).complete_by <= now) AND (h.step).run_id = ANY (locked)),
    change AS (
        SELECT o.*,
               ROW((o.step).run_id, (o.step).step_no, (o.step).element, (o.step).state,
                   CASE WHEN (o.step).state = 'compensating' THEN 'compensating' WHEN o.crowd THEN 'ready' ELSE 'failed' END,
                   (o.step).attempt + 1, NULL, (o.step).in_doubt OR o.lane > 0 AND (o.step).asks IS NULL, true,
                   o.dead AND o.lane = 0 OR (o.step).alone, NULL, NULL,
                   sas._problem_object(CASE WHEN o.dead THEN 'worker-lost' ELSE 'complete-by' END,
                                       CASE WHEN o.dead THEN 'the worker that held the step is gone' ELSE 'no reply before complete-by' END,
                                       'held by ' || o.locked_by, NULL, (o.step).run_id, (o.def).name),
                   NULL, NULL, CASE WHEN NOT o.crowd THEN now END, NULL, NULL, NULL, NULL, CASE WHEN NOT o.crowd THEN 'supervisor' END, NULL)::sas._step_change AS c
        FROM over o),
    told AS (
        INSERT INTO sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error, started_at, finished_at)
        SELECT (c.c).run_id, (c.c).step_no, (c.c).element, (c.c).attempt, (c.step).state = 'compensating', nullif(c.lane, 0),
               c.locked_by, CASE WHEN c.dead THEN 'lost' ELSE 'timed_out' END, (c.c).error,
               CASE c.worker_id WHEN 0 THEN (SELECT p.claimed_at FROM sas.place p WHERE p.request_id = (c.step).request_id)
                                ELSE (c.step).complete_by - coalesce((c.def).complete_in, sas._complete_in()) END, now
        FROM change c),
    kept AS (
        UPDATE sas.lease l
        SET next_by = CASE WHEN k.soon THEN now + interval '250 ms' ELSE k.next_by END
        FROM (SELECT h.lease_id, min((h.step).complete_by) AS next_by, bool_or(h.dead OR (h.step).complete_by <= now) AS soon
              FROM held h
              WHERE NOT EXISTS (SELECT FROM over o WHERE (o.step).run_id = (h.step).run_id AND (o.step).step_no = (h.step).step_no AND (o.step).element = (h.step).element)
              GROUP BY h.lease_id) k
        WHERE l.lease_id = k.lease_id
        RETURNING l.lease_id),
    dropped AS (
        DELETE FROM sas.lease l USING unnest(found) f
        WHERE l.lease_id = f.lease_id
          AND NOT EXISTS (SELECT FROM held h
                          WHERE h.lease_id = f.lease_id
                            AND NOT EXISTS (SELECT FROM over o WHERE (o.step).run_id = (h.step).run_id AND (o.step).step_no = (h.step).step_no AND (o.step).element = (h.step).element)))
    SELECT array_agg(c.c) FILTER (WHERE NOT c.crowd), array_agg(c.c) FILTER (WHERE c.crowd),
           -- its worker holds the run while the function runs, so this one cannot be taken back before it is ended
           (SELECT array_agg(DISTINCT h.worker_id) FROM held h
            WHERE NOT h.dead AND h.lane = 0 AND (h.step).complete_by + interval '500 ms' <= now)
    INTO failed, again, stuck
    FROM change c;

    PERFORM sas._move_steps(failed || again);
    PERFORM sas._count('call', w.lane, v.workflow_id, CASE (c.error ->> 'type') WHEN 'urn:sas:worker-lost' THEN 'lost' ELSE 'timed_out' END, 1)
    FROM unnest(failed || again) c
    JOIN sas.run r ON r.run_id = c.run_id
    JOIN sas.workflow_version v ON v.version_id = r.version_id
    CROSS JOIN LATERAL (SELECT x.lane FROM sas.workflow_step x WHERE x.version_id = r.version_id AND x.step_no = c.step_no AND x.undo = (c.from_state = 'compensating') OFFSET 0) w;
    PERFORM sas._lapse(array_agg(f.lease_id)) FROM unnest(found) f WHERE f.worker_id = 0 HAVING count(*) > 0;
    PERFORM sas._tell_supervisor(failed) WHERE failed IS NOT NULL;
    PERFORM sas._requeue(array_agg(a.run_id), array_agg(a.step_no), array_agg(a.element)) FROM unnest(again) a;
    PERFORM sas._free_places(locked);
    RETURN stuck;
END $$;

-- sas._decide(quantity): what becomes of failed steps and of runs past their
-- deadline. Returns how many were looked at. One that raises is decided by
-- itself, so that it holds up no other run.
CREATE FUNCTION sas._decide(quantity int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    taken sas.due[];
    message sas.due;
BEGIN
    SELECT array_agg(d) INTO taken FROM sas._take_due('v', quantity) d;
    IF taken IS NULL THEN
        RETURN 0;
    END IF;
    BEGIN
        PERFORM sas._decide_on(taken);
    EXCEPTION WHEN OTHERS THEN
        FOREACH message IN ARRAY taken LOOP
            BEGIN
                PERFORM sas._decide_on(ARRAY[message]);
            EXCEPTION WHEN OTHERS THEN
                PERFORM sas._put_off(message, SQLERRM);
            END;
        END LOOP;
    END;
    RETURN cardinality(taken);
END $$;

-- sas._auto_rescue(): is what on_failure says carried out, or told to an operator only, where a workflow does not say?
CREATE FUNCTION sas._auto_rescue() RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT coalesce(current_setting('sas.auto_rescue', true), 'on')::boolean $$;

-- sas._suggestion(policy, run_id, step): what an operator could do, as an alert says it. step null: about the run.
CREATE FUNCTION sas._suggestion(policy text, run_id bigint, step text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE policy WHEN 'pause' THEN ''
                       WHEN 'compensate' THEN format('; suggested: sas.compensate(%s)', run_id)
                       WHEN 'skip' THEN CASE WHEN step IS NULL THEN format('; suggested: sas.halt(%s)', run_id) ELSE format('; suggested: sas.skip(%s, %L)', run_id, step) END
                       ELSE format('; suggested: sas.halt(%s)', run_id) END
$$;

-- sas._decide_on(taken): decides on what these messages tell.
CREATE FUNCTION sas._decide_on(taken sas.due[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    r record;
    change sas._step_change;
    changes sas._step_change[] := '{}';
    skipped_runs bigint[];
    skipped_nos int[];
    skipped_elements int[];
    closed bigint[];
    doomed bigint[];
    fates text[];
    errors jsonb[];
    paused bigint[];
    whys text[];
    reasons jsonb[];
    policy text;
    suggested text;
    borne boolean;
    failures int;
    spent boolean;
    way text;
    settle_runs bigint[];
    settle_nos int[];
    settle_elements int[];
    fall_runs bigint[];
    fall_nos int[];
    fall_elements int[];
BEGIN
    FOR r IN
        SELECT d.kind, d.run_id, d.step_no, d.element, run.state AS run_state, run.fate, s.state, s.failure_count, s.transient, s.in_doubt, s.ask_until,
               s.error, s.output, w.name, w.recovery, w.on_transient, w.on_permanent, w.undo, w.lane,
               w.shape, coalesce(v.auto_rescue, sas._auto_rescue()) AS auto_rescue, v.on_transient AS run_on_transient, v.on_permanent AS run_on_permanent,
               EXISTS (SELECT FROM sas.workflow_step pw
                       CROSS JOIN LATERAL (SELECT FROM sas.step p WHERE p.run_id = d.run_id AND p.step_no = pw.step_no AND p.state = 'succeeded' OFFSET 0) p
                       WHERE pw.version_id = run.version_id AND pw.pivot AND NOT pw.undo) AS past_pivot
        FROM (SELECT DISTINCT d.kind, d.run_id, d.step_no, d.element FROM unnest(taken) d ORDER BY d.run_id, d.kind DESC, d.step_no, d.element) d
        JOIN sas.run ON run.run_id = d.run_id
        JOIN sas.workflow_version v ON v.version_id = run.version_id
        LEFT JOIN sas.step s ON s.run_id = d.run_id AND s.step_no = d.step_no AND s.element = d.element
        LEFT JOIN sas.workflow_step w ON w.version_id = run.version_id AND w.step_no = d.step_no AND w.undo = (s.state = 'compensating')
        WHERE d.kind = 'deadline' OR s.waiting_kind = 'supervisor'
    LOOP
        IF r.run_id = ANY (doomed) OR r.run_id = ANY (paused) AND r.kind = 'deadline' THEN
            CONTINUE;  -- decided in this very turn
        END IF;
        IF r.kind = 'deadline' THEN
            -- a paused run has no way on but an operator's; resume sets the timer again
            IF r.run_state = 'paused' THEN
                PERFORM sas._alert('deadline', format('run %s deadline', r.run_id), format('run %s is paused, and its deadline has passed', r.run_id), NULL, r.run_id);
            ELSIF r.run_state = 'compensating' THEN
                PERFORM sas._alert('deadline', format('run %s deadline', r.run_id), format('run %s is not undone yet, and its deadline has passed', r.run_id), NULL, r.run_id);
            END IF;
            IF r.run_state NOT IN ('scheduled', 'pending', 'running') OR r.fate IS NOT NULL THEN
                CONTINUE;
            END IF;
            policy := CASE WHEN r.past_pivot THEN 'pause' ELSE r.run_on_permanent END;
            IF policy = 'pause' OR NOT r.auto_rescue THEN
                paused := paused || r.run_id;
                whys := whys || 'its deadline has passed'::text;
                reasons := reasons || sas._problem_object('deadline', 'the deadline of the run has passed', NULL, NULL, r.run_id, NULL);
                PERFORM sas._alert('deadline', format('run %s deadline', r.run_id), format('run %s is paused: its deadline has passed', r.run_id) || sas._suggestion(policy, r.run_id, NULL), NULL, r.run_id);
            ELSE
                doomed := doomed || r.run_id;
                fates := fates || CASE policy WHEN 'skip' THEN 'fail' ELSE policy END;
                errors := errors || sas._problem_object('deadline', 'the deadline of the run has passed', NULL, NULL, r.run_id, NULL);
            END IF;
            CONTINUE;
        END IF;

        suggested := '';
        borne := false;
        failures := r.failure_count + 1;
        change := ROW(r.run_id, r.step_no, r.element, r.state, r.state, NULL, failures,
                      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.state = 'compensating', NULL, NULL)::sas._step_change;
        spent := r.shape ? 'fallback' AND sas._fell(r.run_id, r.element, r.shape);
        way := CASE WHEN r.state = 'failed' AND r.fate IS NULL AND r.shape #> '{fallback,on}' ? 'failed' AND NOT spent THEN sas._way_back(r.run_id, r.step_no, r.element) END;
        -- one in doubt is asked for as many windows again before its fallback
        IF r.transient AND failures < (r.recovery ->> 'max_failures')::int * (CASE way WHEN 'known' THEN 2 ELSE 1 END) AND spent IS NOT TRUE
           AND (r.fate IS NULL OR r.undo OR r.in_doubt AND sas._settles(r.run_id, r.step_no, r.element)) THEN
            change.to_state := CASE r.state WHEN 'failed' THEN 'suspended' ELSE r.state END;
            change.parked := false;
            change.waiting_kind := 'cool_off';
            change.waiting_until := least(now + sas._cool_off(r.recovery, failures), r.ask_until);
            changes := changes || change;
            INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
            VALUES ('s', change.waiting_until, r.run_id, 'ready', r.step_no, r.element);
            PERFORM sas._ring('{}', true, false, '{}');
            CONTINUE;
        END IF;
        IF way = 'undo' THEN
            change.to_state := 'compensating';
            change.failure_count := 0;
            settle_runs := settle_runs || r.run_id; settle_nos := settle_nos || r.step_no; settle_elements := settle_elements || r.element;
        ELSIF way = 'none' THEN
            fall_runs := fall_runs || r.run_id; fall_nos := fall_nos || r.step_no; fall_elements := fall_elements || r.element;
        ELSIF r.state = 'failed' AND r.fate IS NULL AND r.shape ? 'stands_in' THEN
            PERFORM sas._fail_in_stead(r.run_id, (r.shape ->> 'stands_in')::int, r.element, r.error, r.transient);
        END IF;
        changes := changes || change;
        CONTINUE WHEN way IN ('undo', 'none') OR r.state = 'failed' AND r.fate IS NULL AND r.shape ? 'stands_in';

        IF r.undo OR r.fate IS NOT NULL AND r.in_doubt AND sas._settles(r.run_id, r.step_no, r.element) THEN
            policy := 'pause';
            IF NOT r.undo THEN
                closed := closed || r.run_id;  -- resume asks for the next undo, which is this one again
            END IF;
        ELSIF r.fate IS NOT NULL THEN
            closed := closed || r.run_id;
            CONTINUE;
        ELSE
            policy := CASE WHEN r.transient THEN coalesce(r.on_transient, r.run_on_transient) ELSE coalesce(r.on_permanent, r.run_on_permanent) END;
            -- a map bears so many failed elements
            IF r.element > 0 AND policy <> 'skip' AND coalesce((r.shape ->> 'max_failed')::int, 0)
                > (SELECT f.failed FROM sas.fan f WHERE f.run_id = r.run_id AND f.step_no = r.step_no)
                  + (SELECT count(*) FROM unnest(skipped_runs, skipped_nos) AS u (run_id, step_no) WHERE u.run_id = r.run_id AND u.step_no = r.step_no) THEN
                policy := 'skip';
                borne := true;
            END IF;
            -- an operator's pause holds: the failure waits for resume, which gives it another window
            IF r.past_pivot AND policy = 'compensate' OR r.run_state = 'paused' AND policy IN ('compensate', 'fail') THEN
                policy := 'pause';
            ELSIF NOT r.auto_rescue AND NOT borne THEN
                suggested := sas._suggestion(policy, r.run_id, sas._shown_name(r.name) || coalesce('[' || nullif(r.element, 0) || ']', ''));
                policy := 'pause';
            END IF;
        END IF;
        CASE policy
        WHEN 'pause' THEN
            IF r.run_state <> 'paused' AND NOT coalesce(r.run_id = ANY (paused), false) THEN
                paused := paused || r.run_id;
                whys := whys || format('%s "%s" failed: %s', CASE WHEN r.undo THEN 'the undo of step' ELSE 'step' END, sas._shown_name(r.name), r.error ->> 'title');
                reasons := reasons || r.error;
            END IF;
            PERFORM sas._alert(CASE WHEN r.undo THEN 'undo-failed' ELSE 'step-failed' END, format('run %s step %s', r.run_id, r.name),
                               format('run %s: %s "%s" failed: %s', r.run_id, CASE WHEN r.undo THEN 'the undo of step' ELSE 'step' END, sas._shown_name(r.name), r.error ->> 'title') || suggested,
                               nullif(r.lane, 0), r.run_id, r.step_no);
        WHEN 'skip' THEN
            skipped_runs := skipped_runs || r.run_id;
            skipped_nos := skipped_nos || r.step_no;
            skipped_elements := skipped_elements || r.element;
            UPDATE sas.run SET error = r.error WHERE run_id = r.run_id;
        ELSE
            doomed := doomed || r.run_id;
            fates := fates || policy;
            errors := errors || r.error;
        END CASE;
    END LOOP;

    -- the states first, then what follows from them
    PERFORM sas._move_steps(changes);
    PERFORM sas._requeue(settle_runs, settle_nos, settle_elements) WHERE settle_runs IS NOT NULL;
    PERFORM sas._fall_back(fall_runs, fall_nos, fall_elements) WHERE fall_runs IS NOT NULL;
    IF skipped_runs IS NOT NULL THEN
        PERFORM sas._move_steps(array_agg(ROW(u.run_id, u.step_no, u.element, 'failed', 'skipped', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                              NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::sas._step_change))
        FROM unnest(skipped_runs, skipped_nos, skipped_elements) AS u (run_id, step_no, element) WHERE NOT coalesce(u.run_id = ANY (doomed), false);
        PERFORM sas._after_skip(array_agg(u.run_id), array_agg(u.step_no))
        FROM unnest(skipped_runs, skipped_nos, skipped_elements) AS u (run_id, step_no, element) WHERE u.element = 0 AND NOT coalesce(u.run_id = ANY (doomed), false) HAVING count(*) > 0;
        PERFORM sas._count_elements(array_agg(u.run_id), array_agg(u.step_no), 1)
        FROM unnest(skipped_runs, skipped_nos, skipped_elements) AS u (run_id, step_no, element) WHERE u.element > 0 AND NOT coalesce(u.run_id = ANY (doomed), false) HAVING count(*) > 0;
    END IF;
    PERFORM sas._doom(doomed, fates, errors) WHERE doomed IS NOT NULL;
    PERFORM sas._pause(array_agg(p.run_id), array_agg(p.why), 'sas supervisor', array_agg(p.reason))
    FROM unnest(paused, whys, reasons) AS p (run_id, why, reason)
    JOIN sas.run pr ON pr.run_id = p.run_id AND pr.state <> 'stopped'
    WHERE NOT coalesce(p.run_id = ANY (doomed), false);
    PERFORM sas._close_steps(closed) WHERE closed IS NOT NULL;
END $$;

-- sas._settles(run_id, step_no, element): does the undo of this step need the output
-- of its call? Then a call in doubt is repeated until its outcome is known.
CREATE FUNCTION sas._settles(run_id bigint, step_no int, element int) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT w.reads_own_output AND s.output IS NULL AND s.asks IS NULL AND r.fate <> 'fail'
                     FROM sas.run r
                     JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $2 AND w.undo
                     JOIN sas.step s ON s.run_id = r.run_id AND s.step_no = $2 AND s.element = $3
                     WHERE r.run_id = $1), false)
$$;
