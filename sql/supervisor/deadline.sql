-- SPDX-License-Identifier: PostgreSQL
--
-- Deadline timers. Most runs end long before their deadline; therefore a submit writes no timer for a run
-- that has more than five minutes. The supervisor writes it when the run has lived for a minute and is still
-- open. It sweeps over _sas.run by run_id, from the end of the last sweep. A low-water mark moves the start
-- back to runs below that point that were committed later. Neither survives a crash; then the sweep begins at
-- _sas.deadline_sweep, which is some thousands of runs behind.

-- _sas.take_noted_untimed(): the lowest run_id that was noted since the last call, or a lower one; null:
-- unknown. Call it before the statement that reads the runs. If this transaction is rolled back, the next
-- call returns it again.
CREATE FUNCTION _sas.take_noted_untimed() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_take_noted_untimed';

-- _sas.timer_age(): how long a run lives without a timer. The supervisor sees it within twice that time;
-- src/store/submit.c relies on that.
CREATE FUNCTION _sas.timer_age() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 min' $$;

-- _sas.lack_timer(run_ids): those of these runs that are open, whose deadline was not handled, and that
-- have no timer. If the deadline has passed, its timer may have been deferred by _sas.take_messages or
-- _sas.defer_message.
CREATE FUNCTION _sas.lack_timer(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    now timestamptz := sas.now();
    lacking bigint[];
    late bigint[];
BEGIN
    SELECT coalesce(array_agg(r.run_id ORDER BY r.run_id), '{}'),
        array_agg(r.run_id) FILTER (WHERE r.deadline <= now) INTO lacking, late
    FROM _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.state <> 'stopped' AND r.overdue IS NULL
      -- with its owner: see _sas.note_ends
      AND (SELECT true FROM _sas.message d WHERE d.actor = 'v' AND d.owner = r.owner
           AND d.due_at = r.deadline AND d.run_id = r.run_id AND d.kind = 'deadline' LIMIT 1) IS NULL;
    IF late IS NOT NULL THEN
        late := ARRAY(SELECT d.run_id FROM _sas.message d WHERE d.actor = 'v'
                      AND d.due_at BETWEEN now - interval '1 min' AND now + interval '1 min'
                      AND d.kind = 'deadline' AND d.run_id = ANY (late));
        lacking := ARRAY(SELECT l FROM unnest(lacking) l EXCEPT SELECT p FROM unnest(late) p ORDER BY 1);
    END IF;
    RETURN lacking;
END $$;

-- _sas.write_timers(run_ids): writes timers for those of these runs that still lack one.
-- Caller: holds the lock of the runs. Writes: message.
CREATE FUNCTION _sas.write_timers(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lacking bigint[] := _sas.lack_timer(run_ids);
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'v', r.deadline, r.run_id, 'deadline' FROM _sas.run r WHERE r.run_id = ANY (lacking);
END $$;

-- _sas.scan_for_timers(first): one part of the sweep: gives timers to those of the next runs, from "first"
-- on, that are old enough. Runs that another session has locked get a message of their own, since they may
-- be many. The part is small, so that no session waits long for a lock. upto: the first run that was not
-- checked; if it is too young, created_at is its age. A run with a future created_at gets its timer at
-- once.
-- Locks: runs that no other transaction holds. Writes: message.
CREATE FUNCTION _sas.scan_for_timers(first bigint, OUT upto bigint, OUT created_at timestamptz,
                                     OUT more boolean)
LANGUAGE plpgsql SET enable_bitmapscan = off AS $$
DECLARE
    now timestamptz := sas.now();
    seen int;
    open bigint[];
    locked bigint[];
    done record;
BEGIN
    WITH s AS MATERIALIZED (
        SELECT r.run_id, r.created_at, r.state FROM _sas.run r
        WHERE r.run_id BETWEEN first AND 9223372036854775807 ORDER BY r.run_id LIMIT 2000),
    y AS (SELECT s.run_id, s.created_at FROM s WHERE s.created_at > now - _sas.timer_age()
          AND s.created_at <= now ORDER BY s.run_id LIMIT 1)
    SELECT count(*), coalesce(min(y.run_id), max(s.run_id) + 1, first), min(y.created_at),
           coalesce(array_agg(s.run_id) FILTER (WHERE s.state <> 'stopped'
                                                AND s.run_id < coalesce(y.run_id, s.run_id + 1)), '{}')
    INTO seen, upto, created_at, open
    FROM s LEFT JOIN y ON true;
    more := seen = 2000 AND created_at IS NULL;
    IF open <> '{}' THEN
        open := _sas.lack_timer(open);
        -- while the lock is held, no run can end without seeing its timer
        locked := _sas.lock_runs(open);
        done := _sas.apart('NULL::bigint[] FROM _sas.write_timers($1)', locked);
        PERFORM _sas.defer_apart('timer', locked, done.failed, done.errors, done.pauses, locked);
        open := ARRAY(SELECT o FROM unnest(open) o EXCEPT SELECT l FROM unnest(locked) l);
        IF open <> '{}' THEN
            INSERT INTO _sas.message (actor, due_at, run_id, kind)
            SELECT 'v', now + _sas.hold_pause(h.run_id), h.run_id, 'young'
            FROM (SELECT o FROM unnest(open) o
                  EXCEPT SELECT d.run_id FROM _sas.message d WHERE d.actor = 'v'
                      AND d.due_at BETWEEN now - interval '1 min' AND now + interval '2 min'
                      AND d.kind = 'young') AS h (run_id);
        END IF;
    END IF;
END $$;

-- _sas.next_possible_id(): no run of this node has this id or a larger one yet.
CREATE FUNCTION _sas.next_possible_id() RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT _sas.id_base() + s.last_value + 1 FROM _sas.run_run_id_seq s $$;

-- _sas.set_timers(at, again, settles): one part of a sweep over the runs, in a transaction of its own. The
-- results are the arguments of the next part, once this one is committed; nulls: nothing is known.
--   at         how far the sweep has come
--   again      where the next sweep begins, because runs there were committed late; null: where this one ends
--   settles    the end of this sweep advances _sas.deadline_sweep to this run
--   more       the sweep has not reached its end
--   next_look  when the first run that is too young will be old enough, together with others; or now if
--              something has to be checked again
-- Writes: deadline_sweep.
CREATE FUNCTION _sas.set_timers(INOUT at bigint, INOUT again bigint, INOUT settles bigint, OUT more boolean,
                                OUT next_look timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    noted bigint := _sas.take_noted_untimed();
    t _sas.deadline_sweep;
    looked record;
    looked_at bigint;
BEGIN
    -- The sequence was restarted, the server has the number of a lower node (sas.node_id), or a session has
    -- used a number that it had cached for long (CACHE). The sweep begins with the next part, because the
    -- transaction id of this one is older than its view of the runs.
    DELETE FROM _sas.deadline_sweep x WHERE x.upto > _sas.next_possible_id();
    IF NOT FOUND THEN
        UPDATE _sas.deadline_sweep x SET upto = noted, until_xid = NULL WHERE x.upto > noted;
    END IF;
    IF FOUND THEN
        at := NULL;
        again := NULL;
        settles := NULL;
        more := true;
        RETURN;
    END IF;
    SELECT * INTO t FROM _sas.deadline_sweep;
    t.upto := coalesce(t.upto, 0);
    -- greatest() and least() ignore nulls
    at := greatest(at, t.upto);
    -- runs noted further on are seen by the next parts
    IF coalesce(noted, t.upto) < at THEN
        again := greatest(least(again, coalesce(noted, t.upto)), t.upto);
    END IF;

    SELECT * INTO looked FROM _sas.scan_for_timers(at);
    at := looked.upto;
    more := looked.more;
    next_look := looked.created_at + 2 * _sas.timer_age();
    IF more THEN
        RETURN;
    END IF;

    -- Runs before the end of a sweep are settled once every transaction has ended that had begun by then,
    -- because a run gets its id after its transaction has got its own. Then they are swept once more,
    -- because all of them are visible.
    looked_at := settles;
    settles := NULL;
    IF looked_at <= at THEN
        -- runs of a higher node, which this server had before, are beyond what it gives out: never settled
        UPDATE _sas.deadline_sweep SET upto = least(looked_at, _sas.next_possible_id()), until_xid = NULL;
    ELSIF t.until_xid <= pg_snapshot_xmin(pg_current_snapshot()) THEN
        again := t.upto;
        settles := t.next_upto;
    ELSIF t.until_xid IS NULL AND at >= t.upto + 10000 THEN
        INSERT INTO _sas.deadline_sweep AS x (upto, next_upto, until_xid)
        VALUES (t.upto, at, pg_current_xact_id())
        ON CONFLICT (one) DO UPDATE SET next_upto = excluded.next_upto, until_xid = excluded.until_xid;
    END IF;
    IF again < at THEN
        at := again;
        next_look := sas.now();
    END IF;
    again := NULL;
END $$;
