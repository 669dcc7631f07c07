-- SPDX-License-Identifier: PostgreSQL
--
-- Scheduler: carries out messages that are due: delayed starts, steps whose pause is over, signals, child
-- runs, and the undo of abandoned runs, step by step.

-- _sas.carry_out(taken): carries out these messages, one kind after the other.
CREATE FUNCTION _sas.carry_out(taken _sas.message[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.stop_late_runs(array_agg(d.run_id)) FROM unnest(taken) d
        LEFT JOIN _sas.run r ON r.run_id = d.run_id AND d.kind = 'enter'
    WHERE d.kind = 'late' OR r.start_before <= sas.now() HAVING count(*) > 0;
    PERFORM _sas.leave_line(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'leave'
        HAVING count(*) > 0;
    PERFORM _sas.tell_followers(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'ended'
        HAVING count(*) > 0;
    PERFORM _sas.begin_runs(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'start'
        HAVING count(*) > 0;
    PERFORM _sas.wake_steps(array_agg(d.run_id), array_agg(d.step_no), array_agg(d.element))
        FROM unnest(taken) d WHERE d.kind = 'ready' HAVING count(*) > 0;
    PERFORM _sas.end_aside(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'aside'
        HAVING count(*) > 0;
    PERFORM _sas.begin_steps(array_agg(d.run_id), array_agg(d.step_no), array_agg(d.element))
        FROM unnest(taken) d WHERE d.kind = 'enter' HAVING count(*) > 0;
    PERFORM _sas.end_timers(array_agg(d.run_id), array_agg(d.step_no), array_agg(d.element))
        FROM unnest(taken) d WHERE d.kind = 'timer' HAVING count(*) > 0;
    PERFORM _sas.begin_iterations(array_agg(d.run_id), array_agg(d.step_no)) FROM unnest(taken) d
        WHERE d.kind = 'turn' HAVING count(*) > 0;
    PERFORM _sas.release_elements(array_agg(d.run_id), array_agg(d.step_no)) FROM unnest(taken) d
        WHERE d.kind = 'room' HAVING count(*) > 0;
    PERFORM _sas.deliver_signals(array_agg(DISTINCT d.run_id)) FROM unnest(taken) d WHERE d.kind = 'signal'
        HAVING count(*) > 0;
    PERFORM _sas.children_ended(array_agg(d.run_id), array_agg(d.step_no), array_agg(d.element))
        FROM unnest(taken) d WHERE d.kind = 'child' HAVING count(*) > 0;
    PERFORM _sas.end_children(array_agg(d.run_id), d.kind) FROM unnest(taken) d
        WHERE d.kind IN ('cancel', 'abort', 'fail') GROUP BY d.kind;
    PERFORM _sas.end_replaced(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'replace'
        HAVING count(*) > 0;
    PERFORM _sas.halt_now(array_agg(d.run_id), NULL) FROM unnest(taken) d WHERE d.kind = 'halt'
        HAVING count(*) > 0;
    PERFORM _sas.revoke_claims(array_agg(DISTINCT d.run_id)) FROM unnest(taken) d WHERE d.kind = 'revoke'
        HAVING count(*) > 0;
    PERFORM _sas.reverse_runs(array_agg(d.run_id)) FROM unnest(taken) d WHERE d.kind = 'reverse'
        HAVING count(*) > 0;
    PERFORM _sas.undo_next(array_agg(DISTINCT d.run_id)) FROM unnest(taken) d WHERE d.kind = 'undo'
        HAVING count(*) > 0;
    PERFORM _sas.pause_held(array_agg(DISTINCT d.run_id)) FROM unnest(taken) d WHERE d.kind = 'held'
        HAVING count(*) > 0;
END $$;

-- _sas.scheduler_tick(quantity, by_owner): one tick of the scheduler. Returns how many messages were taken
-- and when the next one is due. A message that raises an error is carried out alone, so that it holds up no
-- other run. If the templates of all together cost too much (src/template/budget.h), none is taken; the next
-- tick takes fewer. by_owner: each owner's are carried out together, and their time is charged to the owner.
--   locks   the runs of the messages that no other transaction holds; the other messages are deferred
--   reads   message
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
        SELECT array_agg(d) INTO taken FROM _sas.take_messages('s', quantity) d;
        worked := coalesce(cardinality(taken), 0);
        -- all together; but if some cost much, each owner's apart, to know whose do
        by_owner := by_owner OR worked <= 2;
        FOR part IN SELECT array_agg(d ORDER BY d.run_id, d.step_no, d.element) AS messages
                    FROM unnest(taken) d GROUP BY CASE WHEN by_owner THEN d.owner END LOOP
            began_us := _sas.processor_us();
            done := _sas.apart('NULL::bigint[] FROM _sas.carry_out($1)', part.messages);
            PERFORM _sas.charge_owner((part.messages[1]).owner, _sas.processor_us() - began_us,
                                      cardinality(part.messages)) WHERE by_owner;
            PERFORM _sas.defer_message(part.messages[f.n], f.why)
            FROM unnest(done.failed, done.errors) AS f (n, why);
        END LOOP;
        given := _sas.part('give out slots of queues', format('_sas.give_queue_slots(%s)', quantity));
        worked := worked + coalesce(given, 0);
        next_due := least(_sas.next_message('s'),
                          CASE WHEN given IS NULL THEN sas.now() + interval '100 ms' END);
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        worked := 0;
        next_due := sas.now();
    END;
END $$;
