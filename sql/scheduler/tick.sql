-- SPDX-License-Identifier: PostgreSQL
--
-- Scheduler: carries out messages that are due: delayed starts, steps whose pause is over, signals, child
-- runs, and the undo of abandoned runs, step by step.

-- _sas.carry_out(taken): carries out these messages, one kind after the other.
CREATE FUNCTION _sas.carry_out(taken _sas.message[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    d record;
BEGIN
    FOR d IN SELECT m.kind, array_agg(m.run_id) AS runs, array_agg(m.step_no) AS nos,
                    array_agg(m.element) AS elements
             FROM (SELECT u.kind, u.run_id, u.step_no, u.element FROM unnest(taken) WITH ORDINALITY AS u
                   ORDER BY u.kind, u.ordinality) m
             GROUP BY m.kind
             ORDER BY array_position('{late,leave,ended,start,ready,aside,enter,timer,iteration,room,signal,'
                                     'child,cancel,abort,fail,replace,halt,revoke,reverse,undo,held}',
                                     m.kind) LOOP
        CASE d.kind
        WHEN 'late' THEN PERFORM _sas.stop_late_runs(d.runs);
        WHEN 'leave' THEN PERFORM _sas.leave_line(d.runs);
        WHEN 'ended' THEN PERFORM _sas.tell_followers(d.runs);
        WHEN 'start' THEN PERFORM _sas.begin_runs(d.runs);
        WHEN 'ready' THEN PERFORM _sas.wake_steps(d.runs, d.nos, d.elements);
        WHEN 'aside' THEN PERFORM _sas.end_aside(d.runs);
        WHEN 'enter' THEN
            PERFORM _sas.stop_late_runs(array_agg(r.run_id))
            FROM _sas.run r WHERE r.run_id = ANY (d.runs) AND r.start_before <= sas.now() HAVING count(*) > 0;
            PERFORM _sas.begin_steps(d.runs, d.nos, d.elements);
        WHEN 'timer' THEN PERFORM _sas.end_timers(d.runs, d.nos, d.elements);
        WHEN 'iteration' THEN PERFORM _sas.begin_iterations(d.runs, d.nos);
        WHEN 'room' THEN
            PERFORM _sas.load_elements(d.runs, d.nos);
            PERFORM _sas.begin_parked(d.runs, d.nos);
            PERFORM _sas.release_elements(d.runs, d.nos, of_room => true);
            PERFORM _sas.check_hosted(array_agg(r.run_id)) FROM _sas.run r
            WHERE r.run_id = ANY (d.runs) AND r.paused_state = 'held' HAVING count(*) > 0;
        WHEN 'signal' THEN PERFORM _sas.deliver_signals(ARRAY(SELECT DISTINCT unnest(d.runs)));
        WHEN 'child' THEN PERFORM _sas.children_ended(d.runs, d.nos, d.elements);
        WHEN 'cancel', 'abort', 'fail' THEN PERFORM _sas.end_children(d.runs, d.kind);
        WHEN 'replace' THEN PERFORM _sas.end_replaced(d.runs);
        WHEN 'halt' THEN PERFORM _sas.halt_now(d.runs, NULL);
        WHEN 'revoke' THEN PERFORM _sas.revoke_claims(ARRAY(SELECT DISTINCT unnest(d.runs)));
        WHEN 'reverse' THEN PERFORM _sas.reverse_runs(d.runs);
        WHEN 'undo' THEN PERFORM _sas.undo_next(ARRAY(SELECT DISTINCT unnest(d.runs)));
        WHEN 'held' THEN PERFORM _sas.pause_held(ARRAY(SELECT DISTINCT unnest(d.runs)));
        END CASE;
    END LOOP;
END $$;

-- _sas.message_parts(taken, by_owner, quantity): which of these messages are carried out together: all; or a
-- few of each owner in turn. A tick that may take so few follows one that cost too much: then each is apart.
CREATE FUNCTION _sas.message_parts(taken _sas.message[], by_owner boolean, quantity int)
RETURNS TABLE (messages _sas.message[])
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT by_owner THEN
        RETURN QUERY SELECT taken WHERE cardinality(taken) > 0;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT array_agg(taken[m.n] ORDER BY m.n)
    FROM (SELECT u.n, (taken[u.n]).owner AS whose,
                 (row_number() OVER (PARTITION BY (taken[u.n]).owner ORDER BY u.n) - 1)
                     / CASE WHEN quantity <= 2 THEN 1 ELSE 5 END AS part
          FROM generate_series(1, cardinality(taken)) AS u (n)) m
    GROUP BY m.part, m.whose
    ORDER BY m.part, m.whose;
END $$;

-- _sas.scheduler_tick(quantity, by_owner): one tick of the scheduler. Returns how many messages were carried
-- out and when the next one is due. A message that raises an error is carried out alone, so that it holds up
-- no other run. If the templates of all together cost too much (src/template/budget.h), none is taken; the
-- next tick takes fewer. by_owner: a few of each owner are carried out together, in turn, and their time is
-- charged to the owner. What comes after one that has changed very many steps, or after the tick has taken
-- long, is left for the next tick.
--   locks   the runs of the messages that no other transaction holds; the other messages are deferred
--   reads   message
--   writes  message
--   next    _sas.carry_out; workers, for the steps that are ready then
CREATE FUNCTION _sas.scheduler_tick(quantity int, by_owner boolean DEFAULT false, OUT worked int,
                                    OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    taken _sas.message[];
    part record;
    began_us bigint;
    done record;
    given bigint;
BEGIN
    BEGIN
        SELECT array_agg(d ORDER BY d.run_id, d.step_no, d.element) INTO taken
        FROM _sas.take_messages('s', quantity) d;
        worked := 0;
        -- all together; but if some cost much, each owner's apart, to know whose do. Else those of one kind
        -- stay together
        by_owner := by_owner OR cardinality(taken) <= 2;
        FOR part IN SELECT * FROM _sas.message_parts(taken, by_owner, quantity) LOOP
            IF worked > 0 AND _sas.budget_is_spent() THEN
                INSERT INTO _sas.message SELECT m.* FROM unnest(part.messages) m;
                CONTINUE;
            END IF;
            began_us := _sas.processor_us();
            done := _sas.apart('NULL::bigint[] FROM _sas.carry_out($1)', part.messages);
            worked := worked + cardinality(part.messages);
            PERFORM _sas.charge_owner((part.messages[1]).owner, _sas.processor_us() - began_us,
                                      cardinality(part.messages)) WHERE by_owner;
            PERFORM _sas.defer_message(part.messages[f.n], f.why, f.pause)
            FROM unnest(done.failed, done.errors, done.pauses) AS f (n, why, pause);
        END LOOP;
        given := 0;
        IF _sas.are_queues_used() THEN
            given := _sas.part('give out slots of queues', format('_sas.give_queue_slots(%s)', quantity));
            next_due := _sas.next_deferred('queue');
        END IF;
        worked := worked + coalesce(given, 0);
        next_due := least(next_due, _sas.next_message('s'),
                          CASE WHEN given IS NULL THEN sas.now() + interval '100 ms' END);
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        worked := 0;
        next_due := sas.now();
    END;
END $$;
