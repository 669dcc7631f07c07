-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: the tick. The scheduler calls it beside its own tick, in a transaction of its own.
--
-- A schedule is due at due_at. The tick takes schedules that are due and not locked, decides every instant
-- up to now, and advances last_scheduled_at and due_at, all in the commit that submits the runs. So after a
-- crash everything or nothing is repeated, and a decided instant is never checked again, whatever the clock
-- says. The scheduler sleeps until the next due_at; a session that writes a schedule wakes it.

-- _sas.instants_per_tick(): how many instants one tick submits.
CREATE FUNCTION _sas.instants_per_tick() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 1000 $$;

-- _sas.instants_at_once(): how many of them may be of one schedule.
CREATE FUNCTION _sas.instants_at_once() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 100 $$;

-- _sas.missed_at_most(): up to what number missed instants are counted.
CREATE FUNCTION _sas.missed_at_most() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 10000 $$;

-- _sas.on_time_within(): how late an instant may be so that catch_up none still runs it.
CREATE FUNCTION _sas.on_time_within() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 min' $$;

-- _sas.due_instants(s, now, most): the instants to submit, at most "most", in order, each with the number of
-- missed instants before it. If there is nothing to submit, one row with the outcome "missed" counts the
-- instants that will not be submitted. No rows: nothing is due.
CREATE FUNCTION _sas.due_instants(s _sas.schedule, now timestamptz, most int)
RETURNS SETOF _sas.schedule_instant
LANGUAGE plpgsql STABLE AS $$
DECLARE
    since timestamptz := _sas.schedule_from(s);
    latest timestamptz := now - _sas.schedule_offset(s.name, s.jitter);
    until timestamptz := least(latest, s.end_at);
    oldest timestamptz := latest - CASE s.catch_up WHEN 'none' THEN _sas.on_time_within()
        ELSE s.catch_up_window END;
    n record;
    many int := least(most, s.max_runs - s.runs);
BEGIN
    SELECT * INTO n FROM _sas.newest_instant(s.spec, s.timezone, s.start_at, since, until,
                                             _sas.missed_at_most());
    IF n.passed = 0 THEN
        RETURN;
    ELSIF n.newest <= oldest THEN
        RETURN NEXT _sas.make_instant(s.schedule_id, n.newest, missed => n.passed, outcome => 'missed');
    ELSIF s.catch_up = 'all' THEN
        RETURN QUERY
        SELECT s.schedule_id, i.at, CASE i.n WHEN 1 THEN o.passed::bigint ELSE 0 END, NULL::text,
            NULL::bigint, NULL::bigint, NULL::jsonb
        FROM _sas.instants(s.spec, s.timezone, s.start_at, greatest(since, oldest), until, many)
            WITH ORDINALITY AS i (at, n)
        CROSS JOIN _sas.newest_instant(s.spec, s.timezone, s.start_at, since, oldest,
                                       _sas.missed_at_most()) o;
    ELSE
        RETURN NEXT _sas.make_instant(s.schedule_id, n.newest, missed => n.passed - 1);
    END IF;
END $$;

-- _sas.pause_failing(schedule_ids): pauses those of these schedules that pause on a failure, if a run of
-- theirs has failed. Returns the others.
-- Writes: schedule.
CREATE FUNCTION _sas.pause_failing(schedule_ids int[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    stopped int[];
BEGIN
    WITH failing AS (
        UPDATE _sas.schedule s
        SET state = 'paused', paused_reason = format('run %s ended with result %s', f.run_id, f.result),
            due_at = NULL, open_run_ids = _sas.still_open(s.open_run_ids)
        FROM _sas.schedule b
        CROSS JOIN LATERAL (SELECT r.run_id, r.result FROM _sas.run r WHERE r.run_id = ANY (b.open_run_ids)
                            AND r.state = 'stopped' AND r.result NOT IN ('success', 'warning')
                            ORDER BY r.run_id LIMIT 1) f
        WHERE b.schedule_id = ANY ($1) AND b.pause_on_failure AND s.schedule_id = b.schedule_id
        RETURNING s.schedule_id, s.name, s.paused_reason, f.run_id),
    told AS (
        SELECT f.schedule_id,
               _sas.raise_alert('schedule-paused', format('schedule %s paused', f.name),
                                format('schedule "%s" is paused: %s', f.name, f.paused_reason)) AS alert
        FROM failing f)
    SELECT array_agg(t.schedule_id) INTO stopped FROM told t WHERE t.alert IS NOT NULL;
    RETURN ARRAY(SELECT u FROM unnest(schedule_ids) u WHERE u <> ALL (coalesce(stopped, '{}')));
END $$;

-- _sas.set_due(schedule_ids, later): sets when each schedule is due next; those in "later" in a second. A
-- schedule whose instant a function worker is submitting is due when that has ended.
-- Writes: schedule.
CREATE FUNCTION _sas.set_due(schedule_ids int[], later int[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.schedule s
    SET due_at = CASE WHEN s.state <> 'active' OR n.planned THEN NULL
                      WHEN s.schedule_id = ANY (later) THEN sas.now() + interval '1 s' ELSE n.due END,
        state = CASE WHEN s.state = 'active' AND n.due IS NULL AND NOT n.planned THEN 'finished'
                     ELSE s.state END
    FROM _sas.schedule b
    CROSS JOIN LATERAL (SELECT _sas.schedule_due(b) AS due,
                               EXISTS (SELECT FROM _sas.schedule_plan p
                                       WHERE p.schedule_id = b.schedule_id) AS planned OFFSET 0) n
    WHERE b.schedule_id = ANY (schedule_ids) AND s.schedule_id = b.schedule_id;
END $$;

-- _sas.fire_due(schedule_ids, most_us): decides all instants of these schedules up to now, and sets when each
-- is due next. most_us: how much processor time it may take to submit them; null: any. Schedules with
-- instants that are left then stay due. Returns how many.
CREATE FUNCTION _sas.fire_due(schedule_ids int[], most_us bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    began_us bigint := _sas.processor_us();
    instants _sas.schedule_instant[];
    later int[] := '{}';
    left_out int[] := '{}';
    round _sas.schedule_instant[];
    most int := greatest(1, least(_sas.instants_at_once(),
                                  _sas.instants_per_tick() / greatest(cardinality(schedule_ids), 1)));
BEGIN
    SELECT array_agg(i ORDER BY i.scheduled_at) INTO instants
    FROM _sas.schedule s CROSS JOIN LATERAL _sas.due_instants(s, now, most) i
    WHERE s.schedule_id = ANY (schedule_ids);
    PERFORM _sas.note_instants(array_agg(i), false) FROM unnest(instants) i WHERE i.outcome = 'missed'
        HAVING count(*) > 0;
    PERFORM _sas.count_instants(array_agg(i)) FROM unnest(instants) i WHERE i.outcome = 'missed'
        HAVING count(*) > 0;
    -- the first instant of every schedule, then the second one of each, and so on
    FOR round IN SELECT array_agg(n.i) FROM (SELECT i, row_number() OVER (PARTITION BY i.schedule_id
                                             ORDER BY i.scheduled_at) AS n
                                             FROM unnest(instants) i WHERE i.outcome IS NULL) n
                 GROUP BY n.n ORDER BY n.n LOOP
        round := ARRAY(SELECT i FROM unnest(round) i JOIN _sas.schedule s USING (schedule_id)
                       WHERE i.schedule_id <> ALL (later) AND i.schedule_id <> ALL (left_out)
                         AND s.state = 'active');
        round := _sas.submit_instants(round, NULL, false, most_us);
        later := later || ARRAY(SELECT i.schedule_id FROM unnest(round) i
                                WHERE i.outcome IN ('later', 'planned'));
        left_out := left_out || ARRAY(SELECT i.schedule_id FROM unnest(round) i WHERE i.outcome = 'left');
        -- later instants of the same schedules are due after this
        EXIT WHEN _sas.processor_us() - began_us > most_us;
    END LOOP;
    PERFORM _sas.set_due(ARRAY(SELECT u FROM unnest(schedule_ids) u WHERE u <> ALL (left_out)), later);
    RETURN cardinality(left_out);
END $$;

-- _sas.take_due(mark, now, quantity): locks schedules that are due. If there are more than quantity, owners
-- take turns, so that schedules of one owner delay those of another owner by one tick at most.
CREATE FUNCTION _sas.take_due(mark timestamptz, now timestamptz, quantity int) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    turns record;
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.schedule s WHERE s.due_at >= mark AND s.due_at <= now
                   ORDER BY s.due_at OFFSET quantity LIMIT 1) THEN
        RETURN ARRAY(SELECT s.schedule_id FROM _sas.schedule s WHERE s.due_at >= mark AND s.due_at <= now
                     ORDER BY s.due_at LIMIT quantity FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    turns := _sas.share_due(ascii('c'), now, quantity);
    RETURN ARRAY(
        SELECT t.schedule_id FROM unnest(turns.owners, turns.shares, turns.marks) AS o (owner, share, mark)
        CROSS JOIN LATERAL (SELECT s.schedule_id FROM _sas.schedule s
                            WHERE s.owner = o.owner AND s.due_at >= o.mark AND s.due_at <= now
                            ORDER BY s.due_at LIMIT o.share FOR NO KEY UPDATE SKIP LOCKED) t);
END $$;

-- _sas.fire_schedules(quantity, most_us): the tick. Returns how many schedules that were due are done, and
-- when the next one is due. A schedule that a session has locked is passed by. A schedule that raises an
-- error holds up no other. most_us: the processor time for submits; see _sas.submit_decided.
--   locks   schedules that are due and that no other transaction holds
--   next    the runs continue on their own
CREATE FUNCTION _sas.fire_schedules(quantity int, most_us bigint DEFAULT NULL, OUT worked int,
                                    OUT next_due timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    mark timestamptz := (_sas.begin_low_water('d', ARRAY[ascii('c')]))[1];
    ids int[];
    done record;
BEGIN
    ids := _sas.take_due(mark, now, quantity);
    worked := cardinality(ids);
    IF worked > 0 THEN
        done := _sas.apart(format('ARRAY[_sas.fire_due(_sas.pause_failing($1), %L)]', most_us), ids);
        worked := worked - coalesce((SELECT sum(u) FROM unnest(done.results) u), 0);
        PERFORM _sas.defer_schedule(ids[f.n], f.why, f.pause)
        FROM unnest(done.failed, done.errors, done.pauses) AS f (n, why, pause);
    END IF;
    SELECT s.due_at INTO next_due FROM _sas.schedule s WHERE s.due_at >= mark ORDER BY s.due_at LIMIT 1;
    PERFORM _sas.raise_low_water('d', ascii('c'), 0, next_due);
END $$;

-- _sas.defer_schedule(id, why, pause): the schedule could not be processed: raises an alert, and tries again
-- after this pause. It counts as a failure, because only a schedule with failures closes its alert when it
-- submits a run (_sas.note_instants).
-- Writes: schedule.
CREATE FUNCTION _sas.defer_schedule(id int, why jsonb, pause interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.schedule;
BEGIN
    UPDATE _sas.schedule x SET due_at = sas.now() + pause, failures = greatest(x.failures, 1)
    WHERE x.schedule_id = id
    RETURNING * INTO s;
    PERFORM _sas.raise_failing('schedule-failed', format('schedule %s', s.name),
                               format('schedule "%s" cannot be carried out', s.name), why);
END $$;
