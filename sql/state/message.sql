-- SPDX-License-Identifier: PostgreSQL
--
-- Messages to the scheduler and the supervisor: who takes them, when the next one is due, what puts one off.

-- _sas.take_messages(actor, quantity): messages that are due and whose runs are
-- free, deleted, runs locked. Those whose run somebody holds are put off by
-- a quarter of a second, and sooner if the holder rings; a run that only wants
-- its timer by more, since the function of a step may hold it for long.
-- Caller: a tick of the scheduler or the supervisor. Writes: due. Next: the tick carries the messages out.
CREATE FUNCTION _sas.take_messages(whose "char", quantity int) RETURNS SETOF _sas.message
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := _sas.now();
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    locked bigint[];
    found_ctids tid[];
    found_runs bigint[];
BEGIN
    SELECT array_agg(q.ctid), array_agg(q.run_id) INTO found_ctids, found_runs
    FROM (SELECT d.ctid, d.run_id FROM _sas.message d
          WHERE d.actor = whose AND d.due_at >= mark AND d.due_at <= now ORDER BY d.due_at
              LIMIT quantity FOR UPDATE SKIP LOCKED) q;
    IF found_ctids IS NULL THEN
        RETURN;
    END IF;
    locked := _sas.lock_runs(found_runs);
    UPDATE _sas.message d
    SET due_at = now + CASE d.kind WHEN 'young' THEN _sas.hold_pause(d.run_id)
                                   WHEN 'answer' THEN _sas.answer_pause(d.run_id, now)
                                   WHEN 'revoke' THEN interval '10 ms'
                                   ELSE interval '250 ms' END
    WHERE d.ctid = ANY (found_ctids) AND NOT d.run_id = ANY (locked)
      AND EXISTS (SELECT FROM _sas.run r WHERE r.run_id = d.run_id);
    RETURN QUERY
    WITH taken AS (
        DELETE FROM _sas.message d WHERE d.ctid = ANY (found_ctids) AND d.due_at <= now
        RETURNING d.*)
    SELECT t.* FROM taken t WHERE _sas.found('message', t.kind, t.due_at);
END $$;

-- _sas.next_message(actor): when the next message is due; null: never.
CREATE FUNCTION _sas.next_message(whose "char") RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    first timestamptz;
BEGIN
    SELECT d.due_at INTO first FROM _sas.message d WHERE d.actor = whose AND d.due_at >= mark
    ORDER BY d.due_at
    LIMIT 1;
    PERFORM _sas.raise_low_water('d', ascii(whose::text), first);
    RETURN first;
END $$;

-- _sas.defer_message(message, why): it could not be carried out: an alert, and another try in a minute.
CREATE FUNCTION _sas.defer_message(message _sas.message, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    message.due_at := _sas.now() + interval '1 min';
    INSERT INTO _sas.message SELECT message.*;
    PERFORM _sas.raise_alert('stuck', format('message %s', message.kind),
                       format('run %s: "%s" cannot be carried out: %s', message.run_id, message.kind, why),
                           NULL, message.run_id, message.step_no)
    WHERE EXISTS (SELECT FROM _sas.run r WHERE r.run_id = message.run_id);
END $$;

-- _sas.answer_pause(run_id, now): after which an answer to a run that somebody holds is checked again: as
-- long as it has waited, since it is mostly another worker that holds the run, for a moment.
CREATE FUNCTION _sas.answer_pause(of_run bigint, now timestamptz) RETURNS interval
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(least(now - (SELECT min(a.arrived_at) FROM _sas.answer a WHERE a.run_id = of_run),
                          interval '250 ms'), interval '5 ms');
END $$;

-- _sas.hold_pause(run_id): after which a young run that somebody holds is checked; less than half of what
-- is left until the first deadline.
CREATE FUNCTION _sas.hold_pause(run_id bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT make_interval(secs => 20 + run_id % 60) $$;
