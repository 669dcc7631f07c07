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

-- _sas.stuck_messages(whose): the ids in _sas.deferred_work of messages to this actor that a tick could
-- neither delete nor defer. A row that cannot be written keeps its place, so the id is made of that.
CREATE FUNCTION _sas.stuck_messages(whose "char") RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(SELECT d.id FROM _sas.deferred_work d WHERE d.kind = format('message %s', whose)
                 AND d.until > sas.now());
END $$;

-- _sas.stuck_id(place, by): the id of the message at this place, which this transaction has stored.
CREATE FUNCTION _sas.stuck_id(place tid, by xid) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended($1::text || ' ' || $2::text, 0) $$;

-- _sas.is_stuck(place, by, stuck): is that one of these ids?
CREATE FUNCTION _sas.is_stuck(place tid, by xid, stuck bigint[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT $3 <> '{}' AND _sas.stuck_id($1, $2) = ANY ($3) $$;

-- _sas.rows_of_share(whose, of_owner, mark, now, share, stuck): how many of the first messages of this owner
-- that are due it takes to have as many as this share; each element counts. stuck: not these.
CREATE FUNCTION _sas.rows_of_share(whose "char", of_owner oid, mark timestamptz, now timestamptz, share int,
                                   stuck bigint[])
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*)
            FROM (SELECT sum(q.n) OVER (ROWS UNBOUNDED PRECEDING) - q.n AS before
                  FROM (SELECT coalesce(cardinality(d.together), 1) AS n FROM _sas.message d
                        WHERE d.actor = whose AND d.owner = of_owner AND d.due_at >= mark AND d.due_at <= $4
                          AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
                        ORDER BY d.due_at, d.run_id, d.step_no, d.element LIMIT share) q) x
            WHERE x.before < share);
END $$;

-- _sas.lock_messages(whose, mark, now, quantity): locks messages that are due and that no other transaction
-- has locked. If more than quantity are due, owners take turns, with equal shares. Half of the quantity is
-- for urgent messages. Owners who let others go first are left out, and so are messages that are stuck.
-- A message about several elements counts as so many. most: only so many of its elements are in the share of
-- its owner; null: all.
CREATE FUNCTION _sas.lock_messages(whose "char", mark timestamptz, now timestamptz, quantity int)
RETURNS TABLE (ctid tid, run_id bigint, most int)
LANGUAGE plpgsql AS $$
DECLARE
    s record;
    first tid[];
    left_out oid[] := CASE whose WHEN 's' THEN _sas.owners_in_wait() ELSE '{}' END;
    stuck bigint[] := _sas.stuck_messages(whose);
BEGIN
    IF left_out = '{}' AND coalesce((SELECT sum(q.n)
                                     FROM (SELECT coalesce(cardinality(d.together), 1) AS n
                                           FROM _sas.message d
                                           WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
                                             AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
                                           ORDER BY d.due_at LIMIT $4 + 1) q) <= $4, true) THEN
        RETURN QUERY
        SELECT x.ctid, x.run_id, CASE WHEN x.before + x.n > $4 THEN ($4 - x.before)::int END
        FROM (SELECT q.*, sum(q.n) OVER (ROWS UNBOUNDED PRECEDING) - q.n AS before
              FROM (SELECT d.ctid, d.run_id, coalesce(cardinality(d.together), 1) AS n FROM _sas.message d
                    WHERE d.actor = $1 AND d.due_at >= $2 AND d.due_at <= $3
                      AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
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
                              AND d.urgent AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
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
                AND d.ctid <> ALL (first) AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
              -- elements of a map begin in their order
              ORDER BY d.due_at, d.run_id, d.step_no, d.element
              LIMIT CASE o.share WHEN 1 THEN 1
                    ELSE _sas.rows_of_share($1, o.owner, o.mark, $3, o.share, stuck) END
              FOR UPDATE SKIP LOCKED) q) x
    WHERE NOT o.owner = ANY (left_out) AND x.before < o.share
    UNION ALL
    SELECT d.ctid, d.run_id, NULL FROM _sas.message d WHERE d.ctid = ANY (first);
END $$;

-- _sas.hold_net(): for how long a message is deferred whose run another transaction has locked, if the end of
-- that transaction does not wake this worker before.
CREATE FUNCTION _sas.hold_net() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '1 s' $$;

-- _sas.hasten_messages(whose, run_ids, dues, now): messages about these runs that were deferred until one of
-- these instants are due now.
-- Writes: message.
CREATE FUNCTION _sas.hasten_messages(whose "char", run_ids bigint[], dues timestamptz[], now timestamptz)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- not before it was deferred, when it was due: what it is about compares its own instant with a clock
    -- that may have been set back since
    UPDATE _sas.message d SET due_at = greatest(now, d.due_at - _sas.hold_net())
    WHERE d.ctid = ANY (ARRAY(SELECT m.ctid FROM unnest(run_ids) AS r
                              CROSS JOIN unnest(dues) AS f (due_at)
                              JOIN _sas.message m ON m.actor = whose AND m.due_at = f.due_at AND m.run_id = r
                              FOR UPDATE OF m SKIP LOCKED));
END $$;

-- _sas.find_messages(whose, quantity): locks messages that are due; first, those are due now whose holder has
-- ended. If that cannot be written, they are due a little later anyway.
-- Caller: a tick of the scheduler or the supervisor. Writes: message. Next: _sas.take_messages.
CREATE FUNCTION _sas.find_messages(whose "char", quantity int) RETURNS _sas.found_messages
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    mark timestamptz;
    freed_runs bigint[];
    freed_dues timestamptz[];
    found _sas.found_messages;
BEGIN
    SELECT array_agg(f.run_id), array_agg(f.due_at) INTO freed_runs, freed_dues FROM _sas.freed_runs(whose) f;
    IF freed_runs IS NOT NULL THEN
        PERFORM _sas.apart(format('NULL::bigint[] FROM _sas.hasten_messages(%L, $1, %L, %L)', whose,
                                  freed_dues, now), freed_runs);
    END IF;
    -- one that is stuck is found when it is tried again, however long it has been due
    PERFORM _sas.passed_by('message', EXISTS (SELECT FROM _sas.deferred_work d
                                              WHERE d.kind LIKE 'message %' AND d.until > now));
    mark := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    SELECT array_agg(q.ctid), array_agg(q.run_id), array_agg(q.ctid) FILTER (WHERE q.most IS NOT NULL),
           array_agg(q.most) FILTER (WHERE q.most IS NOT NULL)
    INTO found.ctids, found.run_ids, found.cut_ctids, found.mosts
    FROM _sas.lock_messages(whose, mark, now, quantity) q;
    RETURN found;
END $$;

-- _sas.take_messages(whose, found): deletes these messages if their runs are free, locks these runs, and
-- returns the messages. Messages about a run that another transaction has locked are deferred until that
-- transaction ends and wakes this worker; a second later they are due anyway. A message that only sets a
-- deadline timer is deferred for longer. A message about several elements is returned as one of each; of the
-- last of an owner's, only some elements may be taken: the others are left, in a message of their own.
-- Caller: a tick of the scheduler or the supervisor that has just found them; if this raises an error, see
-- _sas.defer_stuck. Writes: message. Next: the tick carries the messages out.
CREATE FUNCTION _sas.take_messages(whose "char", found _sas.found_messages) RETURNS SETOF _sas.message
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    locked bigint[];
    kept bigint[] := '{}';
BEGIN
    IF found.ctids IS NULL THEN
        RETURN;
    END IF;
    locked := _sas.lock_runs(found.run_ids);
    IF NOT found.run_ids <@ locked THEN
        kept := _sas.set_aside(whose, found.ctids, ARRAY(SELECT DISTINCT r FROM unnest(found.run_ids) r
                                                         WHERE r <> ALL (locked)), now);
    END IF;
    PERFORM _sas.leave_elements(found.cut_ctids, found.mosts, locked) WHERE found.cut_ctids IS NOT NULL;
    RETURN QUERY
    WITH taken AS (
        DELETE FROM _sas.message d
        WHERE d.ctid = ANY (found.ctids) AND d.due_at <= now AND d.run_id <> ALL (kept)
        RETURNING d AS message, d.kind, d.due_at,
                  found.mosts[array_position(found.cut_ctids, d.ctid)] AS most)
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
-- message is due again in a moment. Returns those of these runs whose messages could not be written; they
-- stay as they are, and are tried again later.
-- Writes: message, deferred_work.
CREATE FUNCTION _sas.set_aside(whose "char", ctids tid[], held_runs bigint[], now timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    awaited bigint[] := _sas.await_holders(whose, held_runs, now + _sas.hold_net());
    done record := _sas.apart(format('NULL::bigint[] FROM _sas.delay_messages(%L, %L, $1, %L, %L)', whose,
                                     ctids, awaited, now), held_runs);
BEGIN
    PERFORM _sas.leave_stuck(whose, ARRAY(SELECT m.ctid FROM _sas.message m
                                          WHERE m.ctid = ANY (ctids) AND m.run_id = held_runs[f.n]),
                             f.why, _sas.hold_net())
    FROM unnest(done.failed, done.errors) AS f (n, why);
    RETURN ARRAY(SELECT held_runs[n] FROM unnest(done.failed) n);
END $$;

-- _sas.delay_messages(whose, ctids, run_ids, awaited, now): writes until when those of these messages that
-- are about these runs, and what was stored together with them, are deferred. awaited: the runs whose holder
-- wakes this worker.
-- Writes: message.
CREATE FUNCTION _sas.delay_messages(whose "char", ctids tid[], run_ids bigint[], awaited bigint[],
                                    now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.message d
    SET due_at = CASE WHEN d.kind = 'young' THEN now + _sas.hold_pause(d.run_id)
                      WHEN d.run_id = ANY (awaited) THEN now + _sas.hold_net()
                      ELSE now + interval '20 ms' END
    WHERE d.ctid = ANY (ARRAY(
        SELECT m.ctid
        FROM (SELECT DISTINCT t.due_at, t.run_id FROM _sas.message t
              WHERE t.ctid = ANY (ctids) AND t.run_id = ANY (delay_messages.run_ids)) t
        JOIN _sas.message m ON m.actor = whose AND m.due_at = t.due_at AND m.run_id = t.run_id
        -- the holder may delete some of them: they wait for nothing
        FOR UPDATE OF m SKIP LOCKED))
      AND EXISTS (SELECT FROM _sas.run r WHERE r.run_id = d.run_id);
END $$;

-- _sas.defer_stuck(whose, ctids): the tick that has found these messages has raised an error. Finds out which
-- of them can be neither deleted nor stored again: a tick does that with what it takes, and with what it
-- defers. Defers these, with an alert, so that the next tick takes the others. Returns whether there were
-- any; if not, something else is at fault.
-- Writes: deferred_work.
CREATE FUNCTION _sas.defer_stuck(whose "char", ctids tid[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    done record := _sas.apart(format('NULL::bigint[] FROM _sas.try_messages(%L, $1)', whose), ctids);
BEGIN
    PERFORM _sas.leave_stuck(whose, ctids[f.n : f.n], f.why, f.pause)
    FROM unnest(done.failed, done.errors, done.pauses) AS f (n, why, pause);
    RETURN done.failed IS NOT NULL;
END $$;

-- _sas.try_messages(whose, ctids): can these messages be deleted and stored again without an error? All of it
-- is rolled back. Those that another transaction has locked meanwhile are passed by.
-- Writes: message.
CREATE FUNCTION _sas.try_messages(whose "char", ctids tid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM _sas.message d
        WHERE d.ctid = ANY (ARRAY(SELECT m.ctid FROM _sas.message m
                                  WHERE m.ctid = ANY (ctids) AND m.actor = whose FOR UPDATE SKIP LOCKED))
        RETURNING d AS message)
    INSERT INTO _sas.message SELECT (g.message).* FROM gone g;
    RAISE EXCEPTION 'undone' USING ERRCODE = 'SAS00';
EXCEPTION WHEN SQLSTATE 'SAS00' THEN
    NULL;
END $$;

-- _sas.leave_stuck(whose, ctids, why, pause): these messages could not be written: raises an alert, and keeps
-- them from ticks for this pause.
-- Writes: deferred_work.
CREATE FUNCTION _sas.leave_stuck(whose "char", ctids tid[], why jsonb, pause interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.deferred_work AS d (kind, id, until)
    SELECT DISTINCT format('message %s', whose), _sas.stuck_id(m.ctid, m.xmin), sas.now() + pause
    FROM _sas.message m WHERE m.ctid = ANY (ctids)
    ON CONFLICT (kind, id) DO UPDATE SET until = excluded.until;
    PERFORM _sas.raise_failing('stuck', format('message %s stuck', m.kind),
                               format('%s"%s" can be neither carried out nor deferred',
                                      'run ' || m.run || ': ', m.kind), why, m.run)
    FROM (SELECT DISTINCT x.kind, nullif(x.run_id, 0) AS run FROM _sas.message x
          WHERE x.ctid = ANY (ctids)) m;
END $$;

-- _sas.next_message(whose): when the next message of this actor is due; null: there is none. One that is
-- stuck is due when it is tried again.
CREATE FUNCTION _sas.next_message(whose "char") RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii(whose::text)]))[1];
    first timestamptz;
    stuck bigint[];
BEGIN
    SELECT d.due_at INTO first FROM _sas.message d WHERE d.actor = whose AND d.due_at >= mark
    ORDER BY d.due_at
    LIMIT 1;
    PERFORM _sas.raise_low_water('d', ascii(whose::text), 0, first);
    IF first <= sas.now() THEN
        stuck := _sas.stuck_messages(whose);
        IF stuck <> '{}' THEN
            SELECT d.due_at INTO first FROM _sas.message d
            WHERE d.actor = whose AND d.due_at >= mark AND NOT _sas.is_stuck(d.ctid, d.xmin, stuck)
            ORDER BY d.due_at LIMIT 1;
            first := least(first, _sas.next_deferred(format('message %s', whose)));
        END IF;
    END IF;
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
