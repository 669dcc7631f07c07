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
CREATE FUNCTION _sas.run_is_held(run_id bigint) RETURNS boolean
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_run_is_held';

-- _sas.await_run(run_id): waits for the end of the transaction that locks this run now. Only sessions wait; a
-- tick never does.
CREATE FUNCTION _sas.await_run(run_id bigint) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_await_run';

-- _sas.freed_runs(actor): the messages that this worker has deferred in that way, and whose holder has
-- ended.
CREATE FUNCTION _sas.freed_runs(actor "char", OUT run_id bigint, OUT due_at timestamptz) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT ROWS 10 AS 'MODULE_PATHNAME', 'sas_api_freed_runs';

-- _sas.most_together(): how many elements one message is about at most: as many as a first tick takes, and
-- so few that its row is not compressed.
CREATE FUNCTION _sas.most_together() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 200 $$;

-- _sas.of_each_element(m, most): this message, or, if it is about several elements, one of each of the
-- first of them, most at most (null: all).
CREATE FUNCTION _sas.of_each_element(m _sas.message, most int DEFAULT NULL) RETURNS SETOF _sas.message
LANGUAGE sql IMMUTABLE AS $$
    SELECT m.actor, m.due_at, m.run_id, m.kind, m.step_no,
           unnest(CASE WHEN m.together IS NULL THEN ARRAY[m.element]
                       WHEN most IS NULL THEN m.together
                       ELSE m.together[: most] END),
           m.alert_id, m.owner, m.urgent, NULL::int[]
$$;

-- _sas.rows_of_share(whose, of_owner, mark, now, share): how many of the first messages of this owner that
-- are due it takes to have as many as this share; each element counts.
CREATE FUNCTION _sas.rows_of_share(whose "char", of_owner oid, mark timestamptz, now timestamptz, share int)
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*)
            FROM (SELECT sum(q.n) OVER (ROWS UNBOUNDED PRECEDING) - q.n AS before
                  FROM (SELECT coalesce(cardinality(d.together), 1) AS n FROM _sas.message d
                        WHERE d.actor = whose AND d.owner = of_owner AND d.due_at >= mark AND d.due_at <= $4
                        ORDER BY d.due_at, d.run_id, d.step_no, d.element LIMIT share) q) x
            WHERE x.before < share);
END $$;

-- _sas.lock_messages(whose, mark, now, quantity): locks messages that are due and that no other transaction
-- has locked. If more than quantity are due, owners take turns, with equal shares. Half of the quantity is
-- for urgent messages. Owners who let others go first are left out. A message about several elements counts
-- as so many. most: only so many of its elements are in the share of its owner; null: all.
CREATE FUNCTION _sas.lock_messages(whose "char", mark timestamptz, now timestamptz, quantity int)
RETURNS TABLE (ctid tid, run_id bigint, most int)
LANGUAGE plpgsql AS $$
DECLARE
    s record;
    first tid[];
    left_out oid[] := CASE whose WHEN 's' THEN _sas.owners_in_wait() ELSE '{}' END;
BEGIN
    IF left_out = '{}' AND coalesce((SELECT sum(q.n)
                                     FROM (SELECT coalesce(cardinality(d.together), 1) AS n
                                           FROM _sas.message d
                                           WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
                                           ORDER BY d.due_at LIMIT $4 + 1) q) <= $4, true) THEN
        RETURN QUERY
        SELECT x.ctid, x.run_id, CASE WHEN x.before + x.n > $4 THEN ($4 - x.before)::int END
        FROM (SELECT q.*, sum(q.n) OVER (ROWS UNBOUNDED PRECEDING) - q.n AS before
              FROM (SELECT d.ctid, d.run_id, coalesce(cardinality(d.together), 1) AS n FROM _sas.message d
                    WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
                    -- other messages may have come meanwhile, so the limit counts here, too
                    ORDER BY d.due_at, d.run_id, d.step_no, d.element
                    LIMIT $4 FOR UPDATE SKIP LOCKED) q) x
        WHERE x.before < $4;
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
    SELECT x.ctid, x.run_id, CASE WHEN x.before + x.n > o.share THEN (o.share - x.before)::int END
    FROM unnest(s.owners, s.shares, s.marks) AS o (owner, share, mark)
    CROSS JOIN LATERAL (
        SELECT q.*, sum(q.n) OVER (ROWS UNBOUNDED PRECEDING) - q.n AS before
        FROM (SELECT d.ctid, d.run_id, coalesce(cardinality(d.together), 1) AS n FROM _sas.message d
              WHERE d.actor = $1 AND d.owner = o.owner AND d.due_at >= o.mark AND d.due_at <= $3
                AND d.ctid <> ALL (first)
              -- elements of a map begin in their order
              ORDER BY d.due_at, d.run_id, d.step_no, d.element
              LIMIT CASE o.share WHEN 1 THEN 1
                    ELSE _sas.rows_of_share($1, o.owner, o.mark, $3, o.share) END
              FOR UPDATE SKIP LOCKED) q) x
    WHERE NOT o.owner = ANY (left_out) AND x.before < o.share
    UNION ALL
    SELECT d.ctid, d.run_id, NULL FROM _sas.message d WHERE d.ctid = ANY (first);
END $$;

-- _sas.hold_net(): for how long a message is deferred whose run another transaction has locked, if the end of
-- that transaction does not wake this worker before.
CREATE FUNCTION _sas.hold_net() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '1 s' $$;

-- _sas.take_messages(whose, quantity): deletes messages that are due and whose runs are free, locks these
-- runs, and returns the messages. Messages about a run that another transaction has locked are deferred
-- until that transaction ends and wakes this worker; a second later they are due anyway. A message that
-- only sets a deadline timer is deferred for longer. A message about several elements is returned as one of
-- each; of the last of an owner's, only some elements may be taken: the others are left, in a message of
-- their own.
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
    cut_ctids tid[];
    mosts int[];
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
    SELECT array_agg(q.ctid), array_agg(q.run_id), array_agg(q.ctid) FILTER (WHERE q.most IS NOT NULL),
           array_agg(q.most) FILTER (WHERE q.most IS NOT NULL)
    INTO found_ctids, found_runs, cut_ctids, mosts
    FROM _sas.lock_messages(whose, mark, now, quantity) q;
    IF found_ctids IS NULL THEN
        RETURN;
    END IF;
    locked := _sas.lock_runs(found_runs);
    IF NOT found_runs <@ locked THEN
        PERFORM _sas.set_aside(whose, found_ctids, ARRAY(SELECT DISTINCT r FROM unnest(found_runs) r
                                                         WHERE r <> ALL (locked)), now);
    END IF;
    PERFORM _sas.leave_elements(cut_ctids, mosts, locked) WHERE cut_ctids IS NOT NULL;
    RETURN QUERY
    WITH taken AS (
        DELETE FROM _sas.message d WHERE d.ctid = ANY (found_ctids) AND d.due_at <= now
        RETURNING d AS message, d.kind, d.due_at, mosts[array_position(cut_ctids, d.ctid)] AS most)
    SELECT e.* FROM taken t CROSS JOIN LATERAL _sas.of_each_element(t.message, t.most) e
    WHERE _sas.found('message', t.kind, t.due_at);
END $$;

-- _sas.leave_elements(ctids, mosts, run_ids): of these messages, which are taken if they are about these
-- runs, the elements after the first mosts are left, in messages of their own.
-- Writes: message.
CREATE FUNCTION _sas.leave_elements(ctids tid[], mosts int[], run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind, step_no, element, owner, urgent, together)
    SELECT m.actor, m.due_at, m.run_id, m.kind, m.step_no, m.together[u.most + 1], m.owner, m.urgent,
           m.together[u.most + 1 :]
    FROM unnest(ctids, mosts) AS u (place, most)
    CROSS JOIN LATERAL (SELECT * FROM _sas.message x WHERE x.ctid = u.place OFFSET 0) m
    WHERE m.run_id = ANY (leave_elements.run_ids);
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

-- _sas.defer_message(message, why, pause): a message that raised this error: raises an alert, and
-- stores the message again, due after this pause.
-- Writes: message, alert.
CREATE FUNCTION _sas.defer_message(message _sas.message, why jsonb, pause interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    message.due_at := sas.now() + pause;
    INSERT INTO _sas.message SELECT message.*;
    PERFORM _sas.raise_failing('stuck', format('message %s', message.kind),
                               format('run %s: "%s" cannot be carried out', message.run_id, message.kind),
                               why, message.run_id, message.step_no)
    WHERE EXISTS (SELECT FROM _sas.run r WHERE r.run_id = message.run_id);
END $$;

-- _sas.hold_pause(run_id): how long an untimed run that a session has locked waits until it is checked
-- again; less than half of the time until the first deadline.
CREATE FUNCTION _sas.hold_pause(run_id bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT make_interval(secs => 20 + run_id % 60) $$;
