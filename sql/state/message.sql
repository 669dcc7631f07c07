-- SPDX-License-Identifier: PostgreSQL
--
-- Messages to the scheduler and the supervisor: who takes them, when the next one is due, what puts one off.

-- sas._take_due(actor, quantity): messages that are due and whose runs are
-- free, deleted, runs locked. Those whose run somebody holds are put off by
-- a quarter of a second, and sooner if the holder rings; a run that only wants
-- its timer by more, since the function of a step may hold it for long.
CREATE FUNCTION sas._take_due(whose "char", quantity int) RETURNS SETOF sas.due
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    mark timestamptz := (sas._begin_fronts('d', ARRAY[ascii(whose::text)]))[1];
    locked bigint[];
    found_ctids tid[];
    found_runs bigint[];
BEGIN
    SELECT array_agg(q.ctid), array_agg(q.run_id) INTO found_ctids, found_runs
    FROM (SELECT d.ctid, d.run_id FROM sas.due d
          WHERE d.actor = whose AND d.due_at >= mark AND d.due_at <= now ORDER BY d.due_at LIMIT quantity FOR UPDATE SKIP LOCKED) q;
    IF found_ctids IS NULL THEN
        RETURN;
    END IF;
    locked := sas._lock_runs(found_runs);
    UPDATE sas.due d SET due_at = now + CASE d.kind WHEN 'young' THEN sas._hold_pause(d.run_id) ELSE interval '250 ms' END
    WHERE d.ctid = ANY (found_ctids) AND NOT d.run_id = ANY (locked)
      AND EXISTS (SELECT FROM sas.run r WHERE r.run_id = d.run_id);
    RETURN QUERY DELETE FROM sas.due d WHERE d.ctid = ANY (found_ctids) AND d.due_at <= now RETURNING d.*;
END $$;

-- sas._next_due(actor): when the next message is due; null: never.
CREATE FUNCTION sas._next_due(whose "char") RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := (sas._begin_fronts('d', ARRAY[ascii(whose::text)]))[1];
    first timestamptz;
BEGIN
    SELECT d.due_at INTO first FROM sas.due d WHERE d.actor = whose AND d.due_at >= mark ORDER BY d.due_at LIMIT 1;
    PERFORM sas._raise_front('d', ascii(whose::text), first);
    RETURN first;
END $$;

-- sas._put_off(message, why): it could not be carried out: an alert, and another try in a minute.
CREATE FUNCTION sas._put_off(message sas.due, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    message.due_at := sas._now() + interval '1 min';
    INSERT INTO sas.due SELECT message.*;
    PERFORM sas._alert('stuck', format('run %s stuck', message.run_id),
                       format('run %s: "%s" cannot be carried out: %s', message.run_id, message.kind, why), NULL, message.run_id, message.step_no)
    WHERE EXISTS (SELECT FROM sas.run r WHERE r.run_id = message.run_id);
END $$;

-- sas._hold_pause(run_id): after which a young run that somebody holds is looked at; less than half of what is left until the first deadline.
CREATE FUNCTION sas._hold_pause(run_id bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT make_interval(secs => 20 + run_id % 60) $$;
