-- SPDX-License-Identifier: PostgreSQL
--
-- Timers of deadlines. Most runs end long before their deadline, so sas.submit
-- writes no timer for a run that has more than five minutes: the supervisor
-- does, once the run has lived for one and is still there. It sweeps over
-- _sas.run by run_id, from where the last sweep has ended; a front tells it what
-- was committed before that since. Neither survives a crash: then it begins
-- with _sas.deadline_sweep, which is behind by some thousands of runs.

-- _sas.take_noted_untimed(): the least run_id that was noted since this was asked last, or less; null: that
-- is not known.
-- Before the statement that looks. When this transaction is rolled back it is told again.
CREATE FUNCTION _sas.take_noted_untimed() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_take_noted_untimed';

-- _sas.timer_age(): how long a run lives without a timer. Within twice that the supervisor looks:
-- src/store/submit.c counts on it.
CREATE FUNCTION _sas.timer_age() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 min' $$;

-- _sas.lack_timer(run_ids): those of these runs that are open and whose deadline is neither judged nor going
-- to be. When it has passed its timer may have been put off, by _sas.take_messages or _sas.defer_message.
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
      AND (SELECT true FROM _sas.message d WHERE d.actor = 'v' AND d.due_at = r.deadline
           AND d.run_id = r.run_id
           AND d.kind = 'deadline' LIMIT 1) IS NULL;
    IF late IS NOT NULL THEN
        late := ARRAY(SELECT d.run_id FROM _sas.message d WHERE d.actor = 'v'
                      AND d.due_at BETWEEN now - interval '1 min' AND now + interval '1 min'
                      AND d.kind = 'deadline' AND d.run_id = ANY (late));
        lacking := ARRAY(SELECT l FROM unnest(lacking) l EXCEPT SELECT p FROM unnest(late) p ORDER BY 1);
    END IF;
    RETURN lacking;
END $$;

-- _sas.write_timers(run_ids): these runs, which the caller has locked, have a timer from now on, if they
-- still lack it.
CREATE FUNCTION _sas.write_timers(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 'v', r.deadline, r.run_id, 'deadline' FROM _sas.run r
    WHERE r.run_id = ANY (_sas.lack_timer(run_ids));
END $$;

-- _sas.scan_for_timers(first): gives a timer to those of the next runs, from this one on, that have lived for
-- long enough; those that somebody holds are checked by themselves, in their own time: they may be many. So
-- few that nobody waits for the lock for long. upto: the first that was not checked; if it is too young,
-- created_at says how young. A run of the future has its timer at once.
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
        -- with the lock held none of them ends without seeing its timer
        locked := _sas.lock_runs(open);
        done := _sas.apart('NULL::bigint[] FROM _sas.write_timers($1)', locked);
        PERFORM _sas.defer_apart('timer', array_agg(locked[f.n]), array_agg(f.why), array_agg(locked[f.n]))
        FROM unnest(done.failed, done.errors) AS f (n, why) HAVING count(*) > 0;
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

-- _sas.set_timers(at, again, settles): one step of a sweep over the runs, in a transaction of its own. What
-- it returns is given to the next step, once it is committed; nulls: nothing is known.
--   at       up to where it has come
--   again    from where the next sweep begins, since something was committed there late; null: where this one
--   ends
--   settles  with this one _sas.deadline_sweep goes up to there
-- more: it is not at its end; next_look: when the first run that is too young has lived for long enough, and
-- others with
-- it, or now if there is something to be checked again.
CREATE FUNCTION _sas.set_timers(INOUT at bigint, INOUT again bigint, INOUT settles bigint, OUT more boolean,
                                OUT next_look timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    noted bigint := _sas.take_noted_untimed();
    t _sas.deadline_sweep;
    looked record;
    looked_at bigint;
BEGIN
    -- Numbers that begin anew, or one that a session has kept for long (CACHE). The walk begins with the next
    -- step, since this one has its transaction's number before it has seen a run.
    DELETE FROM _sas.deadline_sweep x WHERE x.upto > (SELECT s.last_value + 1 FROM _sas.run_run_id_seq s);
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
    -- greatest() and least() take no notice of nulls
    at := greatest(at, t.upto);
    -- what was noted further on is seen by the steps that come
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

    -- What stands before the end of a sweep is settled once every transaction is over that had begun by then:
    -- a run gets its number after its transaction got its own. Then it is checked once more, since all of
    -- it can be seen.
    looked_at := settles;
    settles := NULL;
    IF looked_at <= at THEN
        UPDATE _sas.deadline_sweep SET upto = looked_at, until_xid = NULL;
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
