-- SPDX-License-Identifier: PostgreSQL
--
-- Answers: replies to runs that another session has locked. A reply does not wait for the run: it becomes a
-- row at once, with the time when it arrived, and ends the claim. It is applied when the run is free: by
-- the next writer of a reply to this run, or by the scheduler.
--
-- The writes of a function commit with this row. So a step whose claim has a row here is done, whatever is
-- decided about its run: functions that take steps back, or stop them, pass it by.

-- _sas.leave_answers(replies, now): stores replies to locked runs as rows. Returns the steps of those that
-- count, and the request_ids of the others.
--   locks   the leases: a tick that judges one of them comes first, or finds the row
--   writes  answer, message
--   wakes   the scheduler
--   next    _sas.answer_tick, or _sas.apply_beside
CREATE FUNCTION _sas.leave_answers(replies _sas.call_reply[], now timestamptz, OUT run_ids bigint[],
                                   OUT step_nos int[], OUT elements int[], OUT lost uuid[])
LANGUAGE plpgsql AS $$
BEGIN
    lost := '{}';
    IF replies IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.lock_leases(_sas.leases_of(replies));
    WITH kept AS (
        INSERT INTO _sas.answer AS a (run_id, step_no, element, request_id, verdict, attempt, output, error,
                                      in_doubt, again_in, arrived_at)
        SELECT p.run_id, p.step_no, p.element, p.request_id, p.verdict, p.attempt, p.output, p.error,
            p.in_doubt, p.again_in, coalesce(p.arrived_at, now)
        FROM unnest(replies) p
        CROSS JOIN LATERAL (SELECT * FROM _sas.step x WHERE x.run_id = p.run_id AND x.step_no = p.step_no
                            AND x.element = p.element AND x.request_id = p.request_id OFFSET 0) s
        -- for a task: the time to which a heartbeat has extended it while another session held the run
        WHERE greatest(s.complete_by, (SELECT h.extended_by FROM _sas.external_slot h
                                       WHERE h.request_id = p.request_id)) > coalesce(p.arrived_at, now)
        -- in one order, because two sessions may reply to the same claims
        ORDER BY p.run_id, p.step_no, p.element
        ON CONFLICT DO NOTHING
        RETURNING a.run_id, a.step_no, a.element)
    SELECT array_agg(k.run_id), array_agg(k.step_no), array_agg(k.element) INTO run_ids, step_nos, elements
    FROM kept k;
    lost := ARRAY(SELECT p.request_id FROM unnest(replies) p
                  WHERE NOT (p.run_id, p.step_no, p.element)
                        IN (SELECT * FROM unnest(run_ids, step_nos, elements)));
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT DISTINCT 'a'::"char", now, u, 'answer' FROM unnest(run_ids) u;
    PERFORM _sas.wake(scheduler => true);
END $$;

-- _sas.apply_answers(run_ids, most): writes the answers of these runs as replies are written, in the order in
-- which they arrived. Claims of outside programs end as those programs would end them. most: when they have
-- so many bytes, the rest gets another message.
--   holds   the locks of the runs
--   writes  answer, message, and what _sas.write_replies writes
CREATE FUNCTION _sas.apply_answers(run_ids bigint[], most bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    replies _sas.call_reply[];
    slots _sas.external_slot[];
    ends _sas.call_reply[];
BEGIN
    WITH taken AS (
        DELETE FROM _sas.answer a WHERE a.ctid = ANY (ARRAY(
            SELECT q.ctid
            FROM (SELECT x.ctid, sum(x.bytes) OVER (ORDER BY x.arrived_at, x.ctid) - x.bytes AS before
                  FROM (SELECT o.ctid, o.arrived_at, coalesce(pg_column_size(o.output), 0) AS bytes
                        FROM _sas.answer o WHERE o.run_id = ANY ($1)) x) q
            WHERE q.before <= $2 OR $2 IS NULL)) RETURNING a.*)
    SELECT array_agg(x.u) FILTER (WHERE x.place IS NULL), array_agg(x.u) FILTER (WHERE x.place > 0),
        array_agg(x.p) FILTER (WHERE x.place > 0)
    INTO replies, ends, slots
    FROM (SELECT p, p.place, _sas.make_call_reply(
                     run_id => t.run_id, step_no => t.step_no, element => t.element,
                     request_id => t.request_id, verdict => t.verdict, attempt => t.attempt,
                     output => t.output, error => t.error, in_doubt => t.in_doubt, again_in => t.again_in,
                     arrived_at => t.arrived_at) AS u
          FROM taken t LEFT JOIN _sas.external_slot p ON p.request_id = t.request_id
          ORDER BY t.arrived_at, t.run_id, t.step_no, t.element) x;
    IF slots IS NOT NULL THEN
        PERFORM _sas.end_claims(slots, ends);
    END IF;
    IF cardinality(replies) > 0 THEN
        PERFORM _sas.write_replies(replies, '{}');
    END IF;
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'a', sas.now(), u, 'answer' FROM unnest(run_ids) u
    WHERE most IS NOT NULL AND EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = u);
END $$;

-- _sas.apply_beside(run_ids, most): the same, called by the writer of a reply to these runs. If runs are
-- never free for long, the scheduler alone would not get to them. Errors are left to the scheduler, because
-- they must not cost the reply.
CREATE FUNCTION _sas.apply_beside(run_ids bigint[], most bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM _sas.answer a WHERE a.run_id = ANY ($1)) THEN
        PERFORM _sas.apply_answers($1, $2);
    END IF;
EXCEPTION WHEN OTHERS THEN
    NULL;
END $$;

-- _sas.answer_tick(quantity): applies the answers of runs that are free. Returns how many messages were
-- taken, and when the next one is due. An answer that raises an error is applied alone, so that it
-- holds up no other run. If the templates of all together cost too much, none is taken, as in
-- _sas.scheduler_tick.
--   locks   the runs of the messages that no other transaction holds; the other messages are deferred
--   reads   message
--   next    as after every reply
CREATE FUNCTION _sas.answer_tick(quantity int, OUT worked int, OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    taken _sas.message[];
    done record;
BEGIN
    BEGIN
        SELECT array_agg(d) INTO taken FROM _sas.take_messages('a', quantity) d;
        worked := coalesce(cardinality(taken), 0);
        IF worked > 0 THEN
            -- several messages may be about the same run
            SELECT array_agg(d) INTO taken
            FROM (SELECT DISTINCT ON (m.run_id) m.* FROM unnest(taken) m ORDER BY m.run_id) d;
            done := _sas.apart('NULL::bigint[] FROM _sas.apply_answers($1, 1048576)',
                               ARRAY(SELECT d.run_id FROM unnest(taken) WITH ORDINALITY AS d
                                     ORDER BY d.ordinality));
            PERFORM _sas.defer_message(taken[f.n], f.why, f.pause)
            FROM unnest(done.failed, done.errors, done.pauses) AS f (n, why, pause);
        END IF;
        next_due := _sas.next_message('a');
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        worked := 0;
        next_due := sas.now();
    END;
END $$;
