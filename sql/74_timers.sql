-- SPDX-License-Identifier: PostgreSQL
--
-- Timers of deadlines. Most runs end long before their deadline, so sas.submit
-- writes no timer for a run that has more than five minutes: the supervisor
-- does, once the run has lived for one and is still there. What was looked at
-- is told by a front, of sas.run by run_id, which knows what is committed late.
-- It does not survive a crash; sas.timed does, and is behind by some thousands of runs.

-- sas._begin_young(): the first run that may lack its timer; null: nobody has looked since the server has started. Before the statement that looks.
CREATE FUNCTION sas._begin_young() RETURNS bigint
LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'sas_api_begin_young';

-- sas._raise_young(run_id): it was looked at all before this one.
CREATE FUNCTION sas._raise_young(run_id bigint) RETURNS void
LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'sas_api_raise_young';

-- sas._young_front(): the same, to be told of it only.
CREATE FUNCTION sas._young_front() RETURNS bigint
LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'sas_api_young_front';

-- sas._timer_age(): how long a run lives without a timer. Within twice that the supervisor looks: src/store/submit.c counts on it.
CREATE FUNCTION sas._timer_age() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 min' $$;

-- sas._lack_timer(run_ids): those of these runs that are open and whose deadline is neither judged nor going to be. It was
-- judged if the run does not go on and there is an alert, or a reminder, of the deadline: twice would be an alert too many.
CREATE FUNCTION sas._lack_timer(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT r.run_id FROM sas.run r
        WHERE r.run_id = ANY (run_ids) AND r.state <> 'stopped'
          AND (SELECT true FROM sas.due d WHERE d.actor = 'v' AND d.due_at = r.deadline AND d.run_id = r.run_id AND d.kind = 'deadline' LIMIT 1) IS NULL
          AND (r.deadline > sas._now() OR r.state IN ('scheduled', 'pending', 'running') AND r.fate IS NULL
               OR (SELECT true FROM sas.alert a WHERE a.run_id = r.run_id AND a.kind = 'deadline' LIMIT 1) IS NULL
                  AND (SELECT true FROM sas.due d WHERE d.actor = 'v' AND d.due_at = sas._remind_at(r.deadline) AND d.run_id = r.run_id AND d.kind = 'deadline' LIMIT 1) IS NULL)
        ORDER BY r.run_id);
END $$;

-- sas._write_timers(run_ids): these runs, which the caller has locked, have a timer from now on, if they still lack it.
CREATE FUNCTION sas._write_timers(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sas.due (actor, due_at, run_id, kind)
    SELECT 'v', r.deadline, r.run_id, 'deadline' FROM sas.run r WHERE r.run_id = ANY (sas._lack_timer(run_ids));
END $$;

-- sas._look_for_timers(first, last): gives a timer to the runs from first to before last that have lived for long
-- enough. Those that somebody holds are looked at by themselves. A thousand get one at most, so that nobody waits for
-- the lock for long. upto: the first that was not looked at, if it is too young with the time of its creation; null: there is none.
CREATE FUNCTION sas._look_for_timers(first bigint, last bigint, OUT upto bigint, OUT created_at timestamptz, OUT more boolean)
LANGUAGE plpgsql SET enable_bitmapscan = off AS $$
DECLARE
    now timestamptz := sas._now();
    seen int;
    open bigint[];
    locked bigint[];
BEGIN
    WITH s AS MATERIALIZED (
        SELECT r.run_id, r.created_at, r.state FROM sas.run r WHERE r.run_id >= first AND r.run_id < last ORDER BY r.run_id LIMIT 10000),
    y AS (SELECT s.run_id, s.created_at FROM s WHERE s.created_at > now - sas._timer_age() ORDER BY s.run_id LIMIT 1)
    SELECT count(*), coalesce(min(y.run_id), max(s.run_id) + 1), min(y.created_at), array_agg(s.run_id) FILTER (WHERE s.state <> 'stopped' AND s.run_id < coalesce(y.run_id, last))
    INTO seen, upto, created_at, open
    FROM s LEFT JOIN y ON true;
    more := seen = 10000 AND created_at IS NULL;
    open := CASE WHEN open IS NULL THEN '{}' ELSE (sas._lack_timer(open))[:1000] END;
    IF cardinality(open) = 1000 THEN
        upto := open[1000] + 1;
        created_at := NULL;
        more := true;
    END IF;
    IF open <> '{}' THEN
        -- with the lock held none of them ends without seeing its timer
        locked := sas._lock_runs(open);
        PERFORM sas._write_timers(locked);
        INSERT INTO sas.due (actor, due_at, run_id, kind) SELECT 'v', now, h.run_id, 'young' FROM (SELECT unnest(open) EXCEPT SELECT unnest(locked)) AS h (run_id);
    END IF;
END $$;

-- sas._set_timers(): gives a timer to the next runs that have lived for long enough. more: there are others;
-- next_look: when the first that is too young has lived for long enough, and others with it.
CREATE FUNCTION sas._set_timers(OUT more boolean, OUT next_look timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    first bigint := sas._begin_young();
    t sas.timed;
    looked record;
    again record;
BEGIN
    SELECT * INTO t FROM sas.timed;
    SELECT * INTO looked FROM sas._look_for_timers(coalesce(first, t.upto, 0), 9223372036854775807);
    more := looked.more;
    next_look := looked.created_at + 2 * sas._timer_age();
    PERFORM sas._raise_young(looked.upto);

    -- What stands before the front is settled once every transaction is over that had begun when it was read: a run
    -- gets its number after its transaction got its own. Then it is looked at once more, and all of it can be seen.
    IF t.until_xid <= pg_snapshot_xmin(pg_current_snapshot()) THEN
        SELECT * INTO again FROM sas._look_for_timers(t.upto, t.next_upto);
        more := more OR again.more;
        UPDATE sas.timed SET upto = coalesce(again.upto, t.next_upto), until_xid = CASE WHEN again.more THEN t.until_xid END;
    ELSIF t.until_xid IS NULL AND looked.upto > coalesce(t.upto, 0) + 10000 THEN
        INSERT INTO sas.timed AS x (upto, next_upto, until_xid) VALUES (coalesce(t.upto, 0), looked.upto, pg_current_xact_id())
        ON CONFLICT (one) DO UPDATE SET next_upto = looked.upto, until_xid = pg_current_xact_id();
    END IF;
END $$;
