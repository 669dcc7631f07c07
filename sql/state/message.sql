-- SPDX-License-Identifier: PostgreSQL
--
-- Messages to the scheduler and the supervisor: taking them, when the next one is due, and deferring them.

-- _sas.await_holders(actor, run_ids, due_at): messages to this actor about these runs, which other
-- transactions have locked, are deferred until due_at. Returns the runs whose holder will wake this worker
-- when it ends, by commit or by abort (src/wake/holders.h). Actor l: leases, for the supervisor.
CREATE FUNCTION _sas.await_holders(actor "char", run_ids bigint[], due_at timestamptz) RETURNS bigint[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_await_holders';

-- _sas.await_senders(actor, run_ids, due_at): as _sas.await_holders, for those of these runs to which an open
-- transaction has sent a signal. If there is no room to note the sender, the message is due at due_at.
CREATE FUNCTION _sas.await_senders(actor "char", run_ids bigint[], due_at timestamptz) RETURNS bigint[]
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_await_senders';

-- _sas.run_is_held(run_id): does another transaction lock this run now?
-- _sas.await_run(run_id): waits for the end of that transaction. Only sessions wait; a tick never does.
CREATE FUNCTION _sas.run_is_held(run_id bigint) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_run_is_held';

CREATE FUNCTION _sas.await_run(run_id bigint) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_await_run';

-- _sas.freed_runs(actor): the messages that this worker has deferred in that way, and whose holder has
-- ended.
CREATE FUNCTION _sas.freed_runs(actor "char", OUT run_id bigint, OUT due_at timestamptz) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 10 AS 'MODULE_PATHNAME', 'sas_api_freed_runs';

-- _sas.lock_messages(whose, mark, now, quantity): locks messages that are due and that no other transaction
-- has locked. If more than quantity are due, owners take turns, with equal shares. Half of the quantity is
-- for urgent messages. Owners who let others go first are left out.
CREATE FUNCTION _sas.lock_messages(whose "char", mark timestamptz, now timestamptz, quantity int)
RETURNS TABLE (ctid tid, run_id bigint)
LANGUAGE plpgsql AS $$
DECLARE
    s record;
    first tid[];
    left_out oid[] := CASE whose WHEN 's' THEN _sas.owners_in_wait() ELSE '{}' END;
BEGIN
    IF left_out = '{}' AND NOT EXISTS (SELECT FROM _sas.message d
                                       WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
                                       ORDER BY d.due_at OFFSET $4 LIMIT 1) THEN
        RETURN QUERY
        SELECT d.ctid, d.run_id FROM _sas.message d
        WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
        -- other messages may have come meanwhile, so the limit counts here, too
        ORDER BY d.due_at, d.run_id, d.step_no, d.element
        LIMIT $4 FOR UPDATE SKIP LOCKED;
        RETURN;
    END IF;
    s := _sas.share_due(ascii(upper($1::text)), $3, ($4 + 1) / 2);
    first := ARRAY(
        SELECT q.ctid FROM unnest(s.owners, s.shares, s.marks) AS o (owner, share, mark)
        CROSS JOIN LATERAL (SELECT d.ctid FROM _sas.message d
                            WHERE d.actor = $1 AND d.owner = o.owner AND d.due_at >= o.mark AND d.due_at <= $3
                              AND d.urgent
                            ORDER BY d.due_at LIMIT o.share FOR UPDATE SKIP LOCKED) q
        WHERE NOT o.owner = ANY (left_out));
    s := _sas.share_due(ascii($1::text), $3, $4 - cardinality(first));
    RETURN QUERY
    SELECT q.ctid, q.run_id FROM unnest(s.owners, s.shares, s.marks) AS o (owner, share, mark)
    CROSS JOIN LATERAL (SELECT d.ctid, d.run_id FROM _sas.message d
                        WHERE d.actor = $1 AND d.owner = o.owner AND d.due_at >= o.mark AND d.due_at <= $3
                          AND d.ctid <> ALL (first)
                        -- elements of a map begin in their order
                        ORDER BY d.due_at, d.run_id, d.step_no, d.element
                        LIMIT o.share FOR UPDATE SKIP LOCKED) q
    WHERE NOT o.owner = ANY (left_out)
    UNION ALL
    SELECT d.ctid, d.run_id FROM _sas.message d WHERE d.ctid = ANY (first);
END $$;

-- _sas.hold_net(): for how long a message is deferred whose run another transaction has locked, if the end of
-- that transaction does not wake this worker before.
CREATE FUNCTION _sas.hold_net() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '1 s' $$;

-- _sas.take_messages(whose, quantity): deletes messages that are due and whose runs are free, locks these
-- runs, and returns the messages. Messages about a run that another transaction has locked are deferred
-- until that transaction ends and wakes this worker; a second later they are due anyway. A message that
-- only sets a deadline timer is deferred for longer.
-- Caller: a tick of the scheduler or the supervisor. Writes: message. Next: the tick carries the messages
-- out.
CREATE FUNCTION _sas.take_messages(whose "char", quantity int) RETURNS SETOF _sas.message
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    mark timestamptz;
    locked bigint[];
    found_ctids tid[];
    found_runs bigint[];
    freed_runs bigint[];
    freed_dues timestamptz[];
BEGIN
    SELECT array_agg(f.run_id), array_agg(f.due_at) INTO freed_runs, freed_dues FROM _sas.freed_runs(whose) f;
    IF freed_runs IS NOT NULL THEN
        -- not before it was deferred, when it was due: what it is about compares its own instant with a clock
        -- that may have been set back since
        UPDATE _sas.message d SET due_at = greatest(now, d.due_at - _sas.hold_net())
        WHERE d.ctid = ANY (ARRAY(SELECT m.ctid FROM unnest(freed_runs, freed_dues) AS f (run_id, due_at)
                                  JOIN _sas.message m ON m.actor = whose AND m.due_at = f.due_at
                                      AND m.run_id = f.run_id
                                  FOR UPDATE OF m SKIP LOCKED));
    END IF;
    mark := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    SELECT array_agg(q.ctid), array_agg(q.run_id) INTO found_ctids, found_runs
    FROM _sas.lock_messages(whose, mark, now, quantity) q;
    IF found_ctids IS NULL THEN
        RETURN;
    END IF;
    locked := _sas.lock_runs(found_runs);
    IF NOT found_runs <@ locked THEN
        PERFORM _sas.set_aside(whose, found_ctids, ARRAY(SELECT DISTINCT r FROM unnest(found_runs) r
                                                         WHERE r <> ALL (locked)), now);
    END IF;
    RETURN QUERY
    WITH taken AS (
        DELETE FROM _sas.message d WHERE d.ctid = ANY (found_ctids) AND d.due_at <= now
        RETURNING d.*)
    SELECT t.* FROM taken t WHERE _sas.found('message', t.kind, t.due_at);
END $$;

-- _sas.set_aside(whose, ctids, held_runs, now): defers those of these messages whose runs other
-- transactions have locked, and what was stored together with them, beyond the limit of this tick: elements
-- of a map begin in their order. If the holder has ended meanwhile, or there is no room to note it, the
-- message is due again in a moment.
-- Writes: message.
CREATE FUNCTION _sas.set_aside(whose "char", ctids tid[], held_runs bigint[], now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    net timestamptz := now + _sas.hold_net();
    awaited bigint[] := _sas.await_holders(whose, held_runs, net);
BEGIN
    UPDATE _sas.message d
    SET due_at = CASE WHEN d.kind = 'young' THEN now + _sas.hold_pause(d.run_id)
                      WHEN d.run_id = ANY (awaited) THEN net
                      ELSE now + interval '20 ms' END
    WHERE d.ctid = ANY (ARRAY(
        SELECT m.ctid
        FROM (SELECT DISTINCT t.due_at, t.run_id FROM _sas.message t
              WHERE t.ctid = ANY (ctids) AND t.run_id = ANY (held_runs)) t
        JOIN _sas.message m ON m.actor = whose AND m.due_at = t.due_at AND m.run_id = t.run_id
        -- the holder may delete some of them: they wait for nothing
        FOR UPDATE OF m SKIP LOCKED))
      AND EXISTS (SELECT FROM _sas.run r WHERE r.run_id = d.run_id);
END $$;

-- _sas.next_message(whose): when the next message of this actor is due; null: there is none.
CREATE FUNCTION _sas.next_message(whose "char") RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    first timestamptz;
BEGIN
    SELECT d.due_at INTO first FROM _sas.message d WHERE d.actor = whose AND d.due_at >= mark
    ORDER BY d.due_at
    LIMIT 1;
    PERFORM _sas.raise_low_water('d', ascii(whose::text), 0, first);
    RETURN first;
END $$;

-- _sas.defer_message(message, why, pause): a message that could not be carried out: raises an alert, and
-- stores the message again, due after this pause.
-- Writes: message, alert.
CREATE FUNCTION _sas.defer_message(message _sas.message, why text, pause interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    message.due_at := sas.now() + pause;
    INSERT INTO _sas.message SELECT message.*;
    PERFORM _sas.raise_alert('stuck', format('message %s', message.kind),
                       format('run %s: "%s" cannot be carried out: %s', message.run_id, message.kind, why),
                           NULL, message.run_id, message.step_no)
    WHERE EXISTS (SELECT FROM _sas.run r WHERE r.run_id = message.run_id);
END $$;

-- _sas.hold_pause(run_id): how long an untimed run that a session has locked waits until it is checked
-- again; less than half of the time until the first deadline.
CREATE FUNCTION _sas.hold_pause(run_id bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT make_interval(secs => 20 + run_id % 60) $$;
