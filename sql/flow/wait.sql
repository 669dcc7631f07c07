-- SPDX-License-Identifier: PostgreSQL
--
-- Waits: steps that wait for a signal or a time. They hold no worker: a wait is a suspended row, and a
-- timer if it has an end. The caller holds the lock of the runs.

-- _sas.begin_waits(run_ids, step_nos, elements): suspends these steps. A signal that has already arrived is
-- taken at once.
-- Writes: step, message. Wakes: the scheduler. Next: _sas.deliver_signals, or _sas.end_timers when the time
-- has come.
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
        coalesce(s.state, 'none') AS state, r, w
             FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
             JOIN _sas.run r ON r.run_id = u.run_id
             LEFT JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s ON true
             CROSS JOIN LATERAL _sas.step_definition(
                 r.version_id, u.step_no, coalesce(s.state, '') = 'compensating') w
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
                        coalesce(_sas.problem_text(made.problem),
                                 format('%s gives %s', b.wait ->> ending, left(made.result::text, 80))),
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
        PERFORM _sas.wake(scheduler => true);
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
        CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
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
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
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
    unserved bigint[] := _sas.serve_waits(run_ids, step_nos, elements);
BEGIN
    -- a timer is ignored if its step has got its signal, or another time
    WITH due AS (
        SELECT s.run_id, s.step_no, s.element, s.waiting_until, w.name, w.shape -> 'wait' AS wait,
               CASE WHEN s.waiting_kind = 'timer' THEN to_jsonb(s.waiting_until)
                    WHEN w.shape #>> '{wait,on_timeout}' = 'go_on' THEN 'null' END AS output
        FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
        CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
        JOIN _sas.run r ON r.run_id = s.run_id
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
        WHERE s.state IN ('suspended', 'compensating') AND s.waiting_until <= now
          AND (s.waiting_kind = 'timer' OR s.waiting_kind = 'signal' AND s.run_id <> ALL (unserved)))
    SELECT array_agg(d.run_id) FILTER (WHERE d.output IS NOT NULL) AS run_ids,
           array_agg(d.step_no) FILTER (WHERE d.output IS NOT NULL) AS step_nos,
           array_agg(d.element) FILTER (WHERE d.output IS NOT NULL) AS elements,
           array_agg(d.output) FILTER (WHERE d.output IS NOT NULL) AS outputs,
           array_agg(d.run_id) FILTER (WHERE d.output IS NULL) AS late_runs,
           array_agg(d.step_no) FILTER (WHERE d.output IS NULL) AS late_nos,
           array_agg(d.element) FILTER (WHERE d.output IS NULL) AS late_elements,
           array_agg(_sas.problem_object(
               'timeout',
               format('signal "%s" did not arrive in time',
                      btrim(replace(d.wait ->> 'signal', '", "', '" or "'), '["]')),
               -- a reference is shown as the instant that it gave
               CASE WHEN d.wait ->> 'timeout' LIKE '%{{%'
                    THEN 'until ' || (to_jsonb(d.waiting_until) #>> '{}')
                    ELSE d.wait ->> 'timeout' END,
               NULL, d.run_id, d.name)) FILTER (WHERE d.output IS NULL) AS errors
    INTO done FROM due d;
    PERFORM _sas.succeed_steps(done.run_ids, done.step_nos, done.elements, done.outputs)
        WHERE done.run_ids IS NOT NULL;
    PERFORM _sas.fail_steps(done.late_runs, done.late_nos, done.late_elements, done.errors)
        WHERE done.late_runs IS NOT NULL;
END $$;

-- _sas.deliver_signals(run_ids): gives the oldest signals to the steps that have waited longest for a
-- signal of that name. A signal for one step goes to that step. A run may have thousands of both, and the
-- paths of each step may cost much. So after 200 ms the rest is left for another message. To find out which
-- step gets which takes as long if few are given: that is done once, and does not count. Returns the runs
-- with such a rest.
-- Writes: signal, message. Wakes: the scheduler. Next: _sas.succeed_steps.
CREATE FUNCTION _sas.deliver_signals(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    matches _sas.signal_match[];
    taken record;
    began_us bigint := _sas.processor_us();
    took_us bigint;
    gave_us bigint := 0;
    size int := 1;
    given int;
    unserved bigint[];
BEGIN
    -- a wait for several names may have kept other signals back; and steps that have begun to wait
    -- meanwhile may take signals
    WHILE EXISTS (SELECT FROM unnest(deliver_signals.run_ids) u WHERE (
        SELECT g.signal_id FROM _sas.signal g WHERE g.run_id = u
        ORDER BY g.signal_id LIMIT 1) IS NOT NULL) LOOP
        IF gave_us > 0 AND _sas.processor_us() - began_us > 200000 OR gave_us > 200000 THEN
            unserved := ARRAY(SELECT u FROM unnest(run_ids) u
                              WHERE EXISTS (SELECT FROM _sas.signal g WHERE g.run_id = u));
            INSERT INTO _sas.message (actor, due_at, run_id, kind)
            SELECT 's', sas.now(), u, 'signal' FROM unnest(unserved) u;
            PERFORM _sas.wake(scheduler => true);
            EXIT;
        END IF;
        matches := ARRAY(SELECT m FROM _sas.match_signals(deliver_signals.run_ids, 10000) m
                         ORDER BY m.signal_id);
        EXIT WHEN matches = '{}';
        given := 0;
        WHILE given < cardinality(matches) AND gave_us <= 200000 LOOP
            took_us := -_sas.processor_us();
            SELECT array_agg(g.run_id) AS run_ids, array_agg(g.step_no) AS step_nos,
                array_agg(g.element) AS elements, array_agg(g.payload) AS payloads, count(*) AS n INTO taken
            FROM _sas.take_signals(matches[given + 1 : given + size], given = 0) g;
            EXIT WHEN taken.n = 0;
            PERFORM _sas.forget_timers(taken.run_ids, taken.step_nos, taken.elements);
            PERFORM _sas.succeed_steps(taken.run_ids, taken.step_nos, taken.elements, taken.payloads);
            took_us := took_us + _sas.processor_us();
            gave_us := gave_us + greatest(took_us, 1);
            -- what those have changed is matched again
            EXIT WHEN taken.n < least(size, cardinality(matches) - given);
            given := given + size;
            size := least(10000, greatest(1, size * least(16, 100000.0 / greatest(took_us, 1))));
        END LOOP;
    END LOOP;
    RETURN coalesce(unserved, '{}');
END $$;

-- _sas.match_signals(run_ids, most): which signals can be delivered now, and to which steps: the oldest ones
-- and no more than most. A wait for several names is in the line of each name. If it is first in two lines,
-- the signals from the second one on are left for the next call, because the lines are different then.
CREATE FUNCTION _sas.match_signals(run_ids bigint[], most int) RETURNS SETOF _sas.signal_match
LANGUAGE sql STABLE AS $$
    WITH waiting AS (
        SELECT s.run_id, s.step_no, s.element, w.shape #> '{wait,signal}' AS names, s.started_at,
               jsonb_typeof(w.shape #> '{wait,signal}') = 'array' AS several, g.signal_id
        FROM _sas.run r
        -- OFFSET 0: where one run has most of all steps, the planner would read the whole table
        CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = r.run_id
                            AND x.state IN ('suspended', 'compensating') AND x.waiting_kind = 'signal'
                            OFFSET 0) s
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
        -- a signal for this step
        LEFT JOIN LATERAL (SELECT x.signal_id FROM _sas.signal x WHERE x.run_id = s.run_id
                           AND x.step_no = s.step_no AND x.element = s.element OFFSET 0) g ON true
        WHERE r.run_id = ANY ($1) AND (r.abandon_as IS NULL OR w.undo)),
    in_line AS (
        SELECT w.run_id, e.name, row_number() OVER (
            PARTITION BY w.run_id, e.name ORDER BY w.started_at, w.step_no, w.element) AS n,
               w.step_no, w.element, w.started_at, w.several
        FROM waiting w
        CROSS JOIN LATERAL jsonb_array_elements_text(CASE WHEN w.several THEN w.names
                                                     ELSE jsonb_build_array(w.names) END) e (name)
        WHERE w.signal_id IS NULL),
    lined AS (
        SELECT l.run_id, l.name, l.n, l.step_no, l.element, l.started_at, l.several, NULL::bigint AS signal_id
        FROM in_line l
        UNION ALL
        -- no more than there are waits: thousands of signals may wait for a step that is far away
        SELECT l.run_id, l.name, row_number() OVER (PARTITION BY l.run_id, l.name ORDER BY g.signal_id) AS n,
               NULL AS step_no, NULL AS element, NULL AS started_at, NULL AS several, g.signal_id
        FROM (SELECT i.run_id, i.name, count(*) AS n FROM in_line i GROUP BY 1, 2) l
        CROSS JOIN LATERAL (SELECT x.signal_id FROM _sas.signal x
                            WHERE x.run_id = l.run_id AND x.name = l.name AND x.step_no IS NULL
                            ORDER BY x.signal_id + 0 LIMIT l.n) g),  -- see _sas.signal
    -- grouped, because a join would compare each wait with each signal
    matched AS (
        SELECT p.*, row_number() OVER (PARTITION BY p.run_id, p.step_no, p.element ORDER BY p.signal_id)
            AS choice
        FROM (SELECT l.run_id, max(l.step_no) AS step_no, max(l.element) AS element,
                     max(l.started_at) AS started_at, bool_or(l.several) AS several,
                     max(l.signal_id) AS signal_id
              FROM lined l GROUP BY l.run_id, l.name, l.n HAVING count(*) = 2) p),
    given AS (
        SELECT w.run_id, w.step_no, w.element, w.started_at, w.several, w.signal_id FROM waiting w
        WHERE w.signal_id IS NOT NULL
        UNION ALL
        SELECT m.run_id, m.step_no, m.element, m.started_at, m.several, m.signal_id
        FROM (SELECT m.*, min(m.signal_id) FILTER (WHERE m.choice = 2) OVER (PARTITION BY m.run_id) AS changed
              FROM matched m) m
        WHERE m.changed IS NULL OR m.signal_id < m.changed
        ORDER BY signal_id LIMIT $2)
    SELECT v.run_id, v.step_no, v.element, v.started_at, v.several, v.signal_id FROM given v
$$;

-- _sas.take_signals(matches, sure): deletes these signals, up to the first whose step does not wait any more
-- as it did when they were matched. sure: nothing has changed since.
-- Writes: signal.
CREATE FUNCTION _sas.take_signals(matches _sas.signal_match[], sure boolean)
RETURNS TABLE (run_id bigint, step_no int, element int, payload jsonb)
LANGUAGE sql AS $$
    WITH given AS (
        SELECT u.*, count(*) FILTER (WHERE NOT $2 AND NOT EXISTS (
            SELECT FROM _sas.step_row(u.run_id, u.step_no, u.element) s JOIN _sas.run r ON r.run_id = s.run_id
            WHERE s.state IN ('suspended', 'compensating') AND s.waiting_kind = 'signal'
              AND s.started_at = u.started_at
              AND (r.abandon_as IS NULL OR s.state = 'compensating'))) OVER (ORDER BY u.n) AS changed
        FROM unnest($1) WITH ORDINALITY AS u (run_id, step_no, element, started_at, several, signal_id, n))
    DELETE FROM _sas.signal g USING given v
    WHERE v.changed = 0 AND g.run_id = v.run_id AND g.signal_id = v.signal_id
    RETURNING v.run_id, v.step_no, v.element, CASE WHEN v.several
        THEN jsonb_build_object('signal', g.name, 'payload', g.payload) ELSE g.payload END
$$;
