-- SPDX-License-Identifier: PostgreSQL
--
-- Waits: steps that wait for a signal or a time. They hold no worker: a wait is a suspended row, and a
-- timer if it has an end. The caller holds the lock of the runs.

-- _sas.begin_waits(run_ids, step_nos, elements): suspends these steps. A signal that has already arrived is
-- taken at once.
-- Writes: step, message. Next: _sas.deliver_signals, or _sas.end_timers when the time has come.
CREATE FUNCTION _sas.begin_waits(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    b record;
    ending text;
    span interval;
    until timestamptz;
    made record;
    changes _sas.step_change[];
BEGIN
    FOR b IN SELECT u.run_id, u.step_no, u.element, w.name, w.shape -> 'wait' AS wait,
        coalesce(s.state, 'none') AS state, r, w.whole AS w
             FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
             JOIN _sas.run r ON r.run_id = u.run_id
             LEFT JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                                AND x.element = u.element OFFSET 0) s ON true
             CROSS JOIN LATERAL (SELECT x AS whole, x.name, x.shape FROM _sas.workflow_step x
                                 WHERE x.version_id = r.version_id AND x.step_no = u.step_no
                                     AND x.undo = (coalesce(s.state, '') = 'compensating') OFFSET 0) w
    LOOP
        until := NULL;
        ending := (SELECT k FROM unnest('{until,for,timeout}'::text[]) k WHERE b.wait ? k);
        IF ending IS NOT NULL THEN
            SELECT i.result, i.problem INTO made
            FROM _sas.render(b.wait -> ending, _sas.context(b.r, b.w, b.element)) i;
            span := CASE WHEN ending <> 'until' THEN _sas.span(made.result) END;
            until := CASE WHEN ending = 'until' THEN _sas.moment(made.result)
                          WHEN span BETWEEN '0' AND '10 years' THEN now + span END;
            IF until IS NULL OR NOT isfinite(until) THEN
                PERFORM _sas.fail_steps(ARRAY[b.run_id], ARRAY[b.step_no], ARRAY[b.element],
                    ARRAY[_sas.problem_object(
                        'wait',
                        format('"%s" needs %s', ending,
                               CASE ending WHEN 'until' THEN 'an instant' ELSE 'a span of time' END),
                        CASE WHEN made.problem IS NOT NULL
                             THEN format('%s: %s', made.problem ->> 'path', made.problem ->> 'what')
                             ELSE format('%s gives %s', b.wait ->> ending, left(made.result::text, 80)) END,
                        NULL, b.run_id, b.name)]);
                CONTINUE;
            END IF;
        END IF;
        changes := changes || _sas.make_step_change(
            run_id => b.run_id, step_no => b.step_no, element => b.element, from_state => b.state,
            to_state => CASE b.state WHEN 'compensating' THEN b.state ELSE 'suspended' END, started_at => now,
            waiting_kind => CASE WHEN b.wait ? 'signal' THEN 'signal' ELSE 'timer' END,
            waiting_until => until);
    END LOOP;
    PERFORM _sas.move_steps(changes);
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', c.waiting_until, c.run_id, 'timer', c.step_no, c.element FROM unnest(changes) c
    WHERE c.waiting_until IS NOT NULL;
    IF FOUND THEN
        PERFORM _sas.wake('{}', true, false, '{}');
    END IF;
    PERFORM _sas.deliver_signals(array_agg(DISTINCT c.run_id)) FROM unnest(changes) c
        WHERE c.waiting_kind = 'signal' HAVING count(*) > 0;
END $$;

-- _sas.serve_waits(run_ids, step_nos, elements): the time of these steps has come, but a signal that came in
-- time counts, however late the scheduler runs: delivers the signals of these runs. Returns the runs whose
-- waits must not end yet: there are more signals than one tick delivers, or a transaction that has sent one
-- is still open. Their timers are stored again, until the next tick or the end of that transaction.
-- Writes: message. Next: _sas.deliver_signals.
CREATE FUNCTION _sas.serve_waits(run_ids bigint[], step_nos int[], elements int[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    net timestamptz := sas.now() + _sas.hold_net();
    waiting bigint[] := ARRAY(
        SELECT DISTINCT s.run_id FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
        CROSS JOIN LATERAL (SELECT x.run_id, x.waiting_kind FROM _sas.step x WHERE x.run_id = u.run_id
                            AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s
        WHERE s.waiting_kind = 'signal');
    sent bigint[];
    unserved bigint[];
BEGIN
    IF waiting = '{}' THEN
        RETURN waiting;
    END IF;
    -- first, because the next statement delivers what they have committed meanwhile
    sent := _sas.await_senders('s', waiting, net);
    unserved := _sas.deliver_signals(waiting);
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', CASE WHEN s.run_id = ANY (sent) THEN net ELSE sas.now() END, s.run_id, 'timer', s.step_no,
        s.element
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                        AND x.element = u.element OFFSET 0) s
    WHERE s.run_id = ANY (unserved || sent) AND s.waiting_kind = 'signal';
    RETURN unserved || sent;
END $$;

-- _sas.end_timers(run_ids, step_nos, elements): the time of these steps has come: a timer succeeds; a wait
-- for a signal fails, or continues with output null (on_timeout).
-- Next: _sas.succeed_steps, _sas.fail_steps.
CREATE FUNCTION _sas.end_timers(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- before the signals are read: see _sas.send_signal
    now timestamptz := sas.now();
    done record;
    late record;
    unserved bigint[] := _sas.serve_waits(run_ids, step_nos, elements);
BEGIN
    -- a timer is ignored if its step has got its signal, or another time
    SELECT array_agg(s.run_id) AS run_ids, array_agg(s.step_no) AS step_nos,
        array_agg(s.element) AS elements,
        array_agg(CASE s.waiting_kind WHEN 'timer' THEN to_jsonb(s.waiting_until) ELSE 'null' END) AS outputs
            INTO done
    FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                        AND x.element = u.element OFFSET 0) s
    JOIN _sas.run r ON r.run_id = s.run_id
    CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = s.step_no AND x.undo = (s.state = 'compensating') OFFSET 0) w
    WHERE s.state IN ('suspended', 'compensating') AND s.waiting_until <= now
      AND (s.waiting_kind = 'timer'
           OR s.waiting_kind = 'signal' AND w.shape #>> '{wait,on_timeout}' = 'go_on'
               AND s.run_id <> ALL (unserved));
    SELECT array_agg(s.run_id) AS run_ids, array_agg(s.step_no) AS step_nos, array_agg(s.element) AS elements,
           array_agg(_sas.problem_object('timeout',
                                         format('signal "%s" did not arrive in time',
                                                btrim(replace(w.shape #>> '{wait,signal}', '", "', '" or "'),
                                                      '["]')),
                                         -- a reference is shown as the instant that it gave
                                         CASE WHEN w.shape #>> '{wait,timeout}' LIKE '%{{%'
                                              THEN 'until ' || (to_jsonb(s.waiting_until) #>> '{}')
                                              ELSE w.shape #>> '{wait,timeout}' END,
                                         NULL, s.run_id, w.name)) AS errors
               INTO late
    FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
    CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = u.run_id AND x.step_no = u.step_no
                        AND x.element = u.element OFFSET 0) s
    JOIN _sas.run r ON r.run_id = s.run_id
    CROSS JOIN LATERAL (SELECT * FROM _sas.workflow_step x WHERE x.version_id = r.version_id
                        AND x.step_no = s.step_no AND x.undo = (s.state = 'compensating') OFFSET 0) w
    WHERE s.state IN ('suspended', 'compensating') AND s.waiting_kind = 'signal'
      AND s.waiting_until <= now AND s.run_id <> ALL (unserved)
      AND w.shape #>> '{wait,on_timeout}' IS DISTINCT FROM 'go_on';
    PERFORM _sas.succeed_steps(done.run_ids, done.step_nos, done.elements, done.outputs)
        WHERE done.run_ids IS NOT NULL;
    PERFORM _sas.fail_steps(late.run_ids, late.step_nos, late.elements, late.errors)
        WHERE late.run_ids IS NOT NULL;
END $$;

-- _sas.deliver_signals(run_ids): gives the oldest signals to the steps that have waited longest for a
-- signal of that name. A signal for one step goes to that step. A run may have thousands of both, and the
-- paths of each step may cost much. So after 200 ms the rest is left for another message. Returns the runs
-- with such a rest.
-- Writes: signal, message. Next: _sas.succeed_steps.
CREATE FUNCTION _sas.deliver_signals(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    taken record;
    began_us bigint := _sas.processor_us();
    took_us bigint;
    size int := 1;
    unserved bigint[];
BEGIN
    LOOP
        took_us := -_sas.processor_us();
        SELECT array_agg(g.run_id) AS run_ids, array_agg(g.step_no) AS step_nos,
            array_agg(g.element) AS elements, array_agg(g.payload) AS payloads INTO taken
        FROM _sas.take_signals(deliver_signals.run_ids, size) g;
        EXIT WHEN taken.run_ids IS NULL;
        PERFORM _sas.forget_timers(taken.run_ids, taken.step_nos, taken.elements);
        PERFORM _sas.succeed_steps(taken.run_ids, taken.step_nos, taken.elements, taken.payloads);
        -- a wait for several names may have kept other signals back; and steps that have begun to wait
        -- above may take signals
        EXIT WHEN NOT EXISTS (SELECT FROM _sas.signal g WHERE g.run_id = ANY (deliver_signals.run_ids));
        took_us := took_us + _sas.processor_us();
        -- a call may take one signal only, however many it could: size must not grow without end
        size := least(10000, greatest(1, size * least(16, 100000.0 / greatest(took_us, 1))));
        IF _sas.processor_us() - began_us > 200000 THEN
            unserved := ARRAY(SELECT u FROM unnest(run_ids) u
                              WHERE EXISTS (SELECT FROM _sas.signal g WHERE g.run_id = u));
            INSERT INTO _sas.message (actor, due_at, run_id, kind)
            SELECT 's', sas.now(), u, 'signal' FROM unnest(unserved) u;
            PERFORM _sas.wake('{}', true, false, '{}');
            EXIT;
        END IF;
    END LOOP;
    RETURN coalesce(unserved, '{}');
END $$;

-- _sas.take_signals(run_ids, most): deletes signals that can be delivered now, the oldest ones and no more
-- than most, and returns the step that each goes to. A wait for several names is in the line of each name. If
-- it is first in two lines, the signals from the second one on are left for the next call, because the lines
-- are different then.
-- Writes: signal.
CREATE FUNCTION _sas.take_signals(run_ids bigint[], most int)
RETURNS TABLE (run_id bigint, step_no int, element int, payload jsonb)
LANGUAGE sql AS $$
    WITH waiting AS (
        SELECT s.run_id, s.step_no, s.element, w.shape #> '{wait,signal}' AS names, s.started_at,
               jsonb_typeof(w.shape #> '{wait,signal}') = 'array' AS several, g.signal_id
        FROM _sas.run r
        JOIN _sas.step s ON s.run_id = r.run_id AND s.state IN ('suspended', 'compensating')
            AND s.waiting_kind = 'signal'
        CROSS JOIN LATERAL (SELECT x.shape, x.undo FROM _sas.workflow_step x
                            WHERE x.version_id = r.version_id AND x.step_no = s.step_no
                                AND x.undo = (s.state = 'compensating') OFFSET 0) w
        -- a signal for this step
        LEFT JOIN LATERAL (SELECT x.signal_id FROM _sas.signal x WHERE x.run_id = s.run_id
                           AND x.step_no = s.step_no AND x.element = s.element OFFSET 0) g ON true
        WHERE r.run_id = ANY ($1) AND (r.abandon_as IS NULL OR w.undo)),
    in_line AS (
        SELECT w.run_id, e.name, row_number() OVER (
            PARTITION BY w.run_id, e.name ORDER BY w.started_at, w.step_no, w.element) AS n,
               w.step_no, w.element, w.several
        FROM waiting w
        CROSS JOIN LATERAL jsonb_array_elements_text(CASE WHEN w.several THEN w.names
                                                     ELSE jsonb_build_array(w.names) END) e (name)
        WHERE w.signal_id IS NULL),
    lined AS (
        SELECT l.*, NULL::bigint AS signal_id FROM in_line l
        UNION ALL
        -- no more than there are waits: thousands of signals may wait for a step that is far away
        SELECT l.run_id, l.name, row_number() OVER (PARTITION BY l.run_id, l.name ORDER BY g.signal_id),
               NULL, NULL, NULL, g.signal_id
        FROM (SELECT i.run_id, i.name, count(*) AS n FROM in_line i GROUP BY 1, 2) l
        CROSS JOIN LATERAL (SELECT x.signal_id FROM _sas.signal x
                            WHERE x.run_id = l.run_id AND x.name = l.name AND x.step_no IS NULL
                            ORDER BY x.signal_id + 0 LIMIT l.n) g),  -- see _sas.signal
    -- grouped, because a join would compare each wait with each signal
    matched AS (
        SELECT p.*, row_number() OVER (PARTITION BY p.run_id, p.step_no, p.element ORDER BY p.signal_id)
            AS choice
        FROM (SELECT l.run_id, max(l.step_no) AS step_no, max(l.element) AS element,
                     bool_or(l.several) AS several, max(l.signal_id) AS signal_id
              FROM lined l GROUP BY l.run_id, l.name, l.n HAVING count(*) = 2) p),
    given AS (
        SELECT w.run_id, w.step_no, w.element, w.several, w.signal_id FROM waiting w
        WHERE w.signal_id IS NOT NULL
        UNION ALL
        SELECT m.run_id, m.step_no, m.element, m.several, m.signal_id
        FROM (SELECT m.*, min(m.signal_id) FILTER (WHERE m.choice = 2) OVER (PARTITION BY m.run_id) AS changed
              FROM matched m) m
        WHERE m.changed IS NULL OR m.signal_id < m.changed
        ORDER BY signal_id LIMIT $2)
    DELETE FROM _sas.signal g USING given v WHERE g.run_id = v.run_id AND g.signal_id = v.signal_id
    RETURNING v.run_id, v.step_no, v.element, CASE WHEN v.several
        THEN jsonb_build_object('signal', g.name, 'payload', g.payload) ELSE g.payload END
$$;

-- _sas.refuse_signal(r, signal, step_no, element): the reason why no step of this run, nor the undo of one,
-- can ever take a signal of that name; null if one can. for_step, for_element: the step that the signal is
-- for.
CREATE FUNCTION _sas.refuse_signal(r _sas.run, signal text, for_step int, for_element int) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN r.state = 'stopped' THEN format('run %s has stopped', r.run_id)
                WHEN can.take THEN NULL
                WHEN r.abandon_as IS NOT NULL
                THEN format('run %s is being undone, and no undo waits for it', r.run_id)
                WHEN can.take IS NULL
                THEN format('no step of run %s waits for a signal "%s"', r.run_id, signal)
                ELSE format('every step of run %s that waited for a signal "%s" has ended', r.run_id,
                            signal) END
    FROM (SELECT bool_or(CASE WHEN w.undo
                         THEN coalesce(s.state, 'waiting') NOT IN ('compensated', 'cancelled')
                         ELSE r.abandon_as IS NULL
                             AND (coalesce(s.state, 'waiting') IN ('waiting', 'ready', 'suspended')
                                  -- not before it is decided that the run waits for an operator: a signal is
                                  -- not accepted for a run that is undone a moment later
                                  OR s.state = 'failed'
                                     AND (s.waiting_kind IS DISTINCT FROM 'supervisor' OR r.state = 'paused'
                                          OR coalesce(w.on_permanent, v.on_permanent) = 'pause')) END) AS take
          FROM _sas.workflow_step w
          JOIN _sas.workflow_version v ON v.version_id = w.version_id
          LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no
              AND s.element = coalesce(for_element, 0)
          WHERE w.version_id = r.version_id AND w.kind = 'wait'
            AND w.shape #> '{wait,signal}' @> to_jsonb(signal)
            AND (for_step IS NULL OR w.step_no = for_step AND NOT w.undo)) can
$$;

-- _sas.latest_refusal(run_id, signal, for_step, for_element): _sas.refuse_signal of the run as it is
-- committed now, for a transaction whose snapshot is older; null in READ COMMITTED, where no snapshot is.
CREATE FUNCTION _sas.latest_refusal(run_id bigint, signal text, for_step int, for_element int) RETURNS text
LANGUAGE C AS 'MODULE_PATHNAME', 'sas_api_latest_refusal';

-- _sas.check_takers(r, signal, for_step, for_element): raises an error if no step can ever take the signal.
CREATE FUNCTION _sas.check_takers(r _sas.run, signal text, for_step int, for_element int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    why text := coalesce(_sas.refuse_signal(r, signal, for_step, for_element),
                         _sas.latest_refusal(r.run_id, signal, for_step, for_element));
BEGIN
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'signal "%" cannot be delivered: %', signal, why
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = _sas.at(CASE WHEN for_step IS NULL THEN '/name' ELSE '/token' END),
            HINT = 'See sas.steps for what the run waits for.';
    END IF;
END $$;

-- _sas.check_signals(r): raises an error if as many signals wait in this run as its owner may have. They are
-- counted only if there can be as many, from the first id to the last.
CREATE FUNCTION _sas.check_signals(r _sas.run) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := _sas.limit_of(r.owner, 'signals');
    span bigint := (SELECT max(g.signal_id) - min(g.signal_id) + 1 FROM _sas.signal g
                    WHERE g.run_id = r.run_id);
BEGIN
    IF coalesce(span, 0) >= most THEN
        PERFORM _sas.refuse_rows(r.owner, 'signals',
                                 (SELECT count(*) + 1 FROM _sas.signal g WHERE g.run_id = r.run_id),
                                 format('too many signals wait in run %s', r.run_id), '/run_id',
                                 'Wait until steps have taken some');
    END IF;
END $$;

-- _sas.waits_to_end(ids, signal): those of these runs in which the time of a wait for that signal has come.
CREATE FUNCTION _sas.waits_to_end(ids bigint[], signal text) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT ARRAY(
        SELECT DISTINCT r.run_id FROM _sas.run r
        JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.kind = 'wait'
            AND w.shape #> '{wait,signal}' @> to_jsonb($2)
        JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no AND s.waiting_kind = 'signal'
        WHERE r.run_id = ANY ($1) AND s.waiting_until <= sas.now())
$$;

-- _sas.await_ends(ids, signal): a signal has been stored for each of these runs. A tick that ends a wait
-- after that sees it and leaves the wait alone (_sas.serve_waits). A tick that may have looked before holds
-- the run: waits for its end, so that the caller can check what is left to take the signal.
CREATE FUNCTION _sas.await_ends(ids bigint[], signal text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    held bigint[] := ARRAY(SELECT u FROM unnest(ids) u WHERE _sas.run_is_held(u));
BEGIN
    IF held <> '{}' THEN
        PERFORM _sas.await_run(u) FROM unnest(_sas.waits_to_end(held, signal)) u;
    END IF;
END $$;

-- _sas.send_signal(...): stores a signal and sends the scheduler a message; raises an error if no step can
-- ever take it. for_step: the step that it is for; null: any step that waits for the name.
-- Writes: signal, message. Wakes: the scheduler. Next: _sas.deliver_signals.
CREATE FUNCTION _sas.send_signal(caller oid, r _sas.run, name text, payload jsonb, for_step int,
                                 for_element int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF $3 IS NULL THEN
        RAISE EXCEPTION 'the name of a signal must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /name.',
            HINT = 'Name the signal that a step waits for; see sas.steps.';
    ELSIF payload IS NULL THEN
        RAISE EXCEPTION 'the payload of a signal must not be null'
            USING ERRCODE = 'null_value_not_allowed', DETAIL = 'At /payload.',
            HINT = 'Pass jsonb such as {"approved": true}.';
    ELSIF _sas.share_size(payload) > _sas.max_input_size() THEN
        RAISE EXCEPTION 'the payload has more than % bytes', _sas.max_input_size()
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /payload.',
            HINT = 'See the setting sas.max_input_size.';
    END IF;
    PERFORM _sas.check_takers(r, $3, for_step, for_element);
    PERFORM _sas.check_signals(r);
    INSERT INTO _sas.signal (run_id, name, step_no, element, payload, sent_by, created_at)
    VALUES (r.run_id, $3, for_step, for_element, $4, caller, sas.now())
    ON CONFLICT (run_id, step_no, element) WHERE step_no IS NOT NULL DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the token has already been used'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /token.',
            HINT = 'A token can be used once.';
    END IF;
    -- since the check, an earlier signal by the same token may have been delivered, for whose commit the
    -- INSERT has waited, or the time of the wait may have come
    PERFORM _sas.await_ends(ARRAY[r.run_id], $3);
    PERFORM _sas.check_takers(r, $3, for_step, for_element);
    INSERT INTO _sas.message (actor, due_at, run_id, kind) VALUES ('s', sas.now(), r.run_id, 'signal');
    PERFORM _sas.wake('{}', true, false, '{}');
END $$;

-- _sas.waiting_below(run_id, signal): the open runs below this one that are waiting for this signal now.
CREATE FUNCTION _sas.waiting_below(run_id bigint, signal text) RETURNS SETOF _sas.run
LANGUAGE sql AS $$
    WITH RECURSIVE below AS (
        SELECT x.run_id, x.version_id FROM _sas.run x
        WHERE x.parent_run_id = $1 AND x.state <> 'stopped'
        UNION ALL
        SELECT c.run_id, c.version_id
        FROM below b
        CROSS JOIN LATERAL (SELECT x.run_id, x.version_id FROM _sas.run x WHERE x.parent_run_id = b.run_id
                            AND x.state <> 'stopped' OFFSET 0) c)
    SELECT x.* FROM below b JOIN _sas.run x ON x.run_id = b.run_id
    WHERE EXISTS (SELECT FROM _sas.workflow_step w
                  CROSS JOIN LATERAL (SELECT FROM _sas.step x
                                      WHERE x.run_id = b.run_id AND x.step_no = w.step_no
                                          AND x.waiting_kind = 'signal'
                                          AND x.state = CASE WHEN w.undo THEN 'compensating'
                                              ELSE 'suspended' END OFFSET 0) s
                  WHERE w.version_id = b.version_id AND w.kind = 'wait'
                    AND w.shape #> '{wait,signal}' @> to_jsonb($2))
$$;

-- _sas.signal_children(caller, run_id, name, payload): sends the signal to each open run below this one
-- that is waiting for it now. Returns how many.
-- Writes: signal, message.
CREATE FUNCTION _sas.signal_children(caller oid, run_id bigint, name text, payload jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    sent bigint[];
    ended bigint[];
BEGIN
    WITH waits AS (SELECT x.run_id, _sas.check_signals(x) FROM _sas.waiting_below($2, $3) x),
    stored AS (
        INSERT INTO _sas.signal (run_id, name, payload, sent_by, created_at)
        SELECT w.run_id, $3, $4, $1, sas.now() FROM waits w RETURNING run_id, signal_id)
    SELECT array_agg(s.run_id), array_agg(s.signal_id) INTO ids, sent FROM stored s;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM _sas.await_ends(ids, $3);
    ended := ARRAY(SELECT unnest(ids) EXCEPT SELECT x.run_id FROM _sas.waiting_below($2, $3) x);
    IF ended <> '{}' THEN
        DELETE FROM _sas.signal g WHERE g.run_id = ANY (ended) AND g.signal_id = ANY (sent);
        ids := ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(ended));
    END IF;
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), u, 'signal' FROM unnest(ids) u;
    RETURN cardinality(ids);
END $$;

-- _sas.check_giver(caller, r, payload): raises an error if the caller may not give this run the payload.
CREATE FUNCTION _sas.check_giver(caller oid, r _sas.run, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF payload <> '{}' AND NOT pg_has_role(caller, r.owner, 'MEMBER') AND NOT _sas.trusts(r.owner, caller)
        THEN
        RAISE EXCEPTION 'only a member of role "%" can give data to run %', pg_get_userbyid(r.owner),
                r.run_id
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /payload.',
                HINT = 'Send the signal without a payload, or as that role.';
    END IF;
END $$;

-- _sas.signal_run(caller, r, name, payload): sends the signal to a run and the runs below it. If the run
-- itself cannot take it, an error is raised unless a run below takes it. A payload is data for the steps
-- that follow; therefore only a superuser can give one to a superuser's run. What another role than the
-- owner does to a run is an act for sas.history; the row of a signal is gone when a step has taken it.
CREATE FUNCTION _sas.signal_run(caller oid, r _sas.run, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM _sas.check_giver(caller, r, $4);
    PERFORM _sas.record(caller, ARRAY[r.run_id], 'signal', NULL, jsonb_build_object('name', $3))
    WHERE caller <> r.owner;
    IF NOT EXISTS (SELECT FROM _sas.run x WHERE x.parent_run_id = r.run_id AND x.state <> 'stopped') THEN
        PERFORM _sas.send_signal(caller, r, $3, $4, NULL, NULL);
        RETURN;
    END IF;
    BEGIN
        PERFORM _sas.send_signal(caller, r, $3, $4, NULL, NULL);
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        IF _sas.signal_children(caller, r.run_id, $3, $4) = 0 THEN
            RAISE;
        END IF;
        PERFORM _sas.wake('{}', true, false, '{}');
        RETURN;
    END;
    PERFORM _sas.signal_children(caller, r.run_id, $3, $4);
END $$;

CREATE FUNCTION _sas.signal_as(caller oid, run_id bigint, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r _sas.run;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = $2
       AND (pg_has_role(caller, x.owner, 'MEMBER') OR _sas.has_level(caller, 'operator')
            OR _sas.has_level(caller, 'admin'));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % does not exist, or is not yours', coalesce($2::text, 'null')
            USING ERRCODE = 'undefined_object', DETAIL = 'At /run_id.',
            HINT = 'See sas.runs for your runs.';
    END IF;
    PERFORM _sas.signal_run(caller, r, $3, $4);
END $$;

CREATE FUNCTION _sas.signal_key_as(caller oid, workflow text, key text, name text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    r _sas.run;
BEGIN
    -- the caller's own run first: runs of different owners may have the same key
    SELECT array_agg(x.run_id ORDER BY (x.owner = caller) DESC) INTO ids
    FROM _sas.workflow f
    CROSS JOIN _sas.run_owners() AS o (owner)
    -- OFFSET 0: by the whole key, for each owner; else all keys may be read
    CROSS JOIN LATERAL (SELECT y.run_id FROM _sas.run_key y
                        WHERE y.owner = o.owner AND y.workflow_id = f.workflow_id AND y.key = $3 OFFSET 0) k
    JOIN _sas.run x ON x.run_id = k.run_id
    WHERE f.name = $2 AND f.dropped_at IS NULL
      AND (pg_has_role(caller, o.owner, 'MEMBER') OR _sas.has_level(caller, 'operator')
           OR _sas.has_level(caller, 'admin'));
    IF ids IS NULL THEN
        RAISE EXCEPTION 'workflow "%" has no run of yours with key "%"', $2, $3
            USING ERRCODE = 'undefined_object', DETAIL = 'At /key.',
            HINT = 'See sas.runs for your runs.';
    END IF;
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = ids[1];
    IF cardinality(ids) > 1 AND r.owner <> caller THEN
        RAISE EXCEPTION 'key "%" of workflow "%" is ambiguous: it matches % runs', $3, $2, cardinality(ids)
            USING ERRCODE = 'cardinality_violation', DETAIL = 'At /key.',
            HINT = 'Name the run by its id, with sas.signal.';
    END IF;
    PERFORM _sas.signal_run(caller, r, $4, $5);
END $$;

-- _sas.signal_token_as(...): the token is the authorization: its holder may end that wait, once. Operators
-- and admins can read it in the views; so it gives them no more than sas.signal does.
CREATE FUNCTION _sas.signal_token_as(caller oid, token text, payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    parts text[] := regexp_match($2, '^([0-9]{1,18})-[0-9a-f]{40}$');
    r _sas.run;
    waits _sas.workflow_step;
BEGIN
    SELECT * INTO r FROM _sas.run x WHERE x.run_id = parts[1]::bigint;
    SELECT * INTO waits FROM _sas.workflow_step w
    WHERE w.version_id = r.version_id AND w.kind = 'wait' AND NOT w.undo
      AND _sas.token(r.run_id, r.trace, w.name) = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the token is not valid'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /token.',
            HINT = 'Pass the value of {{steps.NAME.token}}.';
    END IF;
    PERFORM _sas.check_giver(caller, r, $3)
    WHERE _sas.has_level(caller, 'operator') OR _sas.has_level(caller, 'admin');
    PERFORM _sas.send_signal(caller, r, waits.shape #>> '{wait,signal}', $3, waits.step_no, 0);
    PERFORM _sas.record(caller, ARRAY[r.run_id], 'signal', _sas.shown_name(waits.name),
                        jsonb_build_object('name', waits.shape #>> '{wait,signal}'))
    WHERE caller <> r.owner;
END $$;
