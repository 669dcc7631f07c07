-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: instants become runs, under the overlap rule of their schedule. They are submitted as its
-- owner, in the same way as every other run.

-- _sas.instant_key(name, instant): the key of the run of this instant.
CREATE FUNCTION _sas.instant_key(name text, instant timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'schedule:' || name || ':'
        || rtrim(rtrim(to_char(instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
$$;

-- _sas.still_open(run_ids): those of these runs that have not stopped, in their order.
CREATE FUNCTION _sas.still_open(run_ids bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(u.id ORDER BY u.n), '{}') FROM unnest(run_ids) WITH ORDINALITY AS u (id, n)
    WHERE EXISTS (SELECT FROM _sas.run r WHERE r.run_id = u.id AND r.state <> 'stopped')
$$;

-- _sas.open_of(s): its runs that may be open, in their order: exactly the open ones if the rule needs that,
-- or if it is cheap to find out. If many may be open at the same time, only the last fifty are checked; so
-- a schedule of every second does not check a thousand runs.
CREATE FUNCTION _sas.open_of(s _sas.schedule) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    size int := cardinality(s.open_run_ids);
BEGIN
    IF size = 0 OR size > 50 AND s.overlap IN ('allow', 'wait')
        AND EXISTS (SELECT FROM _sas.run r WHERE r.run_id = ANY (s.open_run_ids[size - 49 :])
                    AND r.state <> 'stopped') THEN
        RETURN s.open_run_ids;
    END IF;
    RETURN _sas.still_open(s.open_run_ids);
END $$;

-- _sas.last_open(run_ids): the last of these runs that has not stopped.
CREATE FUNCTION _sas.last_open(run_ids bigint[]) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    FOR n IN REVERSE cardinality(run_ids) .. 1 LOOP
        IF EXISTS (SELECT FROM _sas.run r WHERE r.run_id = run_ids[n] AND r.state <> 'stopped') THEN
            RETURN run_ids[n];
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- _sas.apply_overlap(instants, rule): decides for each of these instants, at most one for each schedule,
-- whether it is skipped, or which run it follows. rule: instead of that of the schedules.
-- Caller: holds the locks of the schedules. Writes: message, to replace runs. Wakes: the
-- scheduler.
CREATE FUNCTION _sas.apply_overlap(instants _sas.schedule_instant[], rule text)
RETURNS _sas.schedule_instant[]
LANGUAGE plpgsql AS $$
DECLARE
    decided _sas.schedule_instant[];
BEGIN
    WITH asked AS (
        SELECT i, coalesce($2, s.overlap) AS rule, o.open
        FROM unnest(instants) i
        JOIN _sas.schedule s ON s.schedule_id = i.schedule_id
        -- a call by hand may name another rule
        CROSS JOIN LATERAL (SELECT CASE WHEN coalesce($2, s.overlap) IN ('allow', 'wait')
                                          OR s.open_run_ids = '{}' THEN s.open_run_ids
                                   ELSE _sas.still_open(s.open_run_ids) END AS open OFFSET 0) o),
    replaced AS (
        INSERT INTO _sas.message (actor, due_at, run_id, kind)
        SELECT 's', sas.now(), o, 'replace' FROM asked a CROSS JOIN LATERAL unnest(a.open) o
        -- not again, where to undo what they have done takes long
        WHERE a.rule = 'replace'
          AND EXISTS (SELECT FROM _sas.run r WHERE r.run_id = o AND r.abandon_as IS NULL))
    SELECT array_agg(ROW((a.i).schedule_id, (a.i).scheduled_at, (a.i).missed,
                         CASE WHEN a.rule = 'skip' AND a.open <> '{}'
                                   OR a.rule = 'once_more' AND cardinality(a.open) > 1 THEN 'skipped' END,
                         NULL,
                         -- of the replaced runs, only the first can have begun
                         CASE a.rule WHEN 'wait' THEN _sas.last_open(a.open)
                                     WHEN 'once_more' THEN a.open[1]
                                     WHEN 'replace' THEN a.open[1] END, NULL)::_sas.schedule_instant)
    INTO decided FROM asked a;
    PERFORM _sas.wake(scheduler => true);
    RETURN decided;
END $$;

-- _sas.decide_all(instants, outcome, error): these instants with this outcome.
CREATE FUNCTION _sas.decide_all(instants _sas.schedule_instant[], outcome text, error jsonb)
RETURNS _sas.schedule_instant[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT ROW(i.schedule_id, i.scheduled_at, i.missed, $2, i.run_id, i.after_run,
                            $3)::_sas.schedule_instant FROM unnest(instants) i)
$$;

-- _sas.submit_group(owner, workflow, workflow_owner, priority, labels, after_run, instants, waits): one
-- submit for many instants. done: all with their outcome. If the group fails, its instants are submitted one
-- by one, so that a refused one does not affect others.
--
-- A session may hold a lock that many instants of one owner need (such as a key that is just being
-- submitted). Each waits shortly for it. After three waits without success (waits: those of this owner in
-- this tick) the others are submitted later, in another order, so that other owners need not wait for them.
CREATE FUNCTION _sas.submit_group(owner oid, workflow text, workflow_owner oid, priority int, labels jsonb,
                                  after_run bigint, instants _sas.schedule_instant[], INOUT waits int,
                                  OUT done _sas.schedule_instant[])
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    place text;
    became text := 'later';
    error jsonb := _sas.problem_object('schedule', 'other instants wait for locks');
    named record;
    part record;
    n int;
BEGIN
    IF waits < 3 THEN
        PERFORM _sas.check_schedulable(owner, workflow, workflow_owner);
        SELECT array_agg(s.input ORDER BY x) AS inputs, array_agg(s.name ORDER BY x) AS schedules,
               array_agg(_sas.instant_key(s.name, instants[x].scheduled_at) ORDER BY x) AS keys,
               array_agg(instants[x].scheduled_at ORDER BY x) AS ats
        INTO named
        FROM generate_subscripts(instants, 1) x
        -- OFFSET: the planner takes them for a thousand, and would read all schedules
        CROSS JOIN LATERAL (SELECT b.input, b.name FROM _sas.schedule b
                            WHERE b.schedule_id = instants[x].schedule_id OFFSET 0) s;
        done := ARRAY(
            SELECT ROW(t.schedule_id, t.scheduled_at, t.missed,
                       CASE WHEN b.created THEN 'run' ELSE 'skipped' END, b.run_id, t.after_run,
                       NULL)::_sas.schedule_instant
            FROM _sas.submit_runs(owner, workflow, named.inputs, named.keys, priority, NULL, NULL, NULL,
                                  CASE WHEN after_run IS NOT NULL THEN ARRAY[after_run] END, NULL, labels,
                                  after_result => '{success,warning,error,compensated,cancelled}',
                                  schedules => named.schedules, scheduled_ats => named.ats)
                WITH ORDINALITY AS b (run_id, created, n)
            CROSS JOIN LATERAL (SELECT (instants[b.n]).*) t);
        RETURN;
    END IF;
    done := _sas.decide_all(instants, became, error);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL;
    waits := waits + (SQLSTATE = '55P03')::int;
    IF cardinality(instants) = 1 THEN
        -- its key is taken: the instant has had its run, with another input; or a run is open, and the
        -- workflow refuses another one
        became := CASE WHEN SQLSTATE IN ('23505', '55006') THEN 'skipped'
            WHEN left(SQLSTATE, 2) = '40' OR SQLSTATE = '55P03' THEN 'later' ELSE 'failed' END;
        error := _sas.problem_object('schedule', SQLERRM, nullif(place, ''));
        done := _sas.decide_all(instants, became, error);
        RETURN;
    END IF;
    done := '{}';
    FOR n IN SELECT x FROM generate_subscripts(instants, 1) x
        ORDER BY CASE waits WHEN 0 THEN x ELSE random() END
    LOOP
        part := _sas.submit_group(owner, workflow, workflow_owner, priority, labels, after_run,
                                  instants[n:n], waits);
        waits := part.waits;
        done := done || part.done;
    END LOOP;
END $$;

-- _sas.submit_decided(instants, most_us): submits the instants that are not skipped, in groups that differ
-- only in input and key. Returns all with their outcome.
--
-- most_us: how much processor time this may take, which owners share; null: any. Each owner begins with one
-- instant. Instants that are left when its share is used up have the outcome "left".
CREATE FUNCTION _sas.submit_decided(instants _sas.schedule_instant[], most_us bigint DEFAULT NULL)
RETURNS _sas.schedule_instant[]
LANGUAGE plpgsql AS $$
DECLARE
    done _sas.schedule_instant[] := ARRAY(SELECT i FROM unnest(instants) i WHERE i.outcome IS NOT NULL);
    waits jsonb := '{}';
    spent jsonb := '{}';
    share_us bigint := most_us / greatest(1, (SELECT count(DISTINCT s.owner) FROM unnest(instants) i
                                              JOIN _sas.schedule s USING (schedule_id)
                                              WHERE i.outcome IS NULL));
    g record;
    part record;
    size int;
    took_us bigint;
BEGIN
    FOR g IN
        SELECT a.owner::oid::text AS owner, a.workflow, a.workflow_owner, a.priority, a.labels,
            (a.i).after_run, array_agg(a.i ORDER BY a.name, (a.i).scheduled_at) AS instants
        FROM (SELECT i, s.owner, s.workflow, s.workflow_owner, s.priority, s.labels, s.name
              FROM unnest(instants) i JOIN _sas.schedule s ON s.schedule_id = i.schedule_id
              WHERE i.outcome IS NULL OFFSET 0) a
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY min(a.name) LOOP
        size := CASE WHEN share_us IS NULL THEN cardinality(g.instants) ELSE 1 END;
        WHILE cardinality(g.instants) > 0 LOOP
            IF coalesce((spent ->> g.owner)::bigint, 0) > share_us THEN
                done := done || _sas.decide_all(g.instants, 'left', NULL);
                EXIT;
            END IF;
            took_us := -_sas.processor_us();
            part := _sas.submit_group(g.owner::oid, g.workflow, g.workflow_owner, g.priority, g.labels,
                                      g.after_run, g.instants[:size],
                                      coalesce((waits ->> g.owner)::int, 0));
            took_us := took_us + _sas.processor_us();
            waits := waits || jsonb_build_object(g.owner, part.waits);
            spent := spent || jsonb_build_object(g.owner,
                                                 coalesce((spent ->> g.owner)::bigint, 0) + took_us);
            done := done || part.done;
            g.instants := g.instants[size + 1 :];
            -- few at a time: those that come next may cost more than those before
            size := least(size * 2, greatest(1, size * 20000 / greatest(took_us, 1)), 8);
        END LOOP;
    END LOOP;
    RETURN done;
END $$;

-- _sas.note_instants(instants, by_hand): stores the outcome of these instants, at most one for each
-- schedule, in the commit that submits. by_hand: none of them comes from the clock.
-- Caller: holds the locks of the schedules. Writes: schedule, alert.
CREATE FUNCTION _sas.note_instants(instants _sas.schedule_instant[], by_hand boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    PERFORM _sas.close_alerts(array_agg(format('schedule %s', s.name)))
    FROM unnest(instants) i JOIN _sas.schedule s ON s.schedule_id = i.schedule_id AND s.failures > 0
    WHERE i.outcome = 'run' HAVING count(*) > 0;
    UPDATE _sas.schedule s
    SET last_scheduled_at = n.last, runs = n.runs, missed = s.missed + n.missed,
        skipped = s.skipped + (i.outcome = 'skipped' AND NOT by_hand)::int,
        last_run_at = CASE i.outcome WHEN 'run' THEN now ELSE s.last_run_at END,
        last_run_id = CASE i.outcome WHEN 'run' THEN i.run_id ELSE s.last_run_id END,
        open_run_ids = CASE WHEN i.outcome = 'run'
                            THEN (o.open || i.run_id)[greatest(cardinality(o.open) - 998, 1):]
                            ELSE o.open END,
        failures = n.failures,
        error = CASE i.outcome WHEN 'failed' THEN i.error WHEN 'run' THEN NULL ELSE s.error END,
        state = CASE WHEN n.failures >= 10 THEN 'failed' ELSE s.state END
    FROM unnest(instants) i
    JOIN _sas.schedule b ON b.schedule_id = i.schedule_id
    CROSS JOIN LATERAL (
        SELECT CASE WHEN by_hand OR i.outcome IN ('later', 'planned') THEN b.last_scheduled_at
                    ELSE greatest(b.last_scheduled_at, i.scheduled_at) END AS last,
               b.runs + (i.outcome = 'run' AND NOT by_hand)::int AS runs,
               CASE WHEN i.outcome IN ('later', 'planned') THEN 0
                    ELSE coalesce(i.missed, 0) END AS missed,
               CASE i.outcome WHEN 'run' THEN 0 WHEN 'failed' THEN b.failures + 1
                    ELSE b.failures END AS failures) n
    CROSS JOIN LATERAL (SELECT _sas.open_of(b) AS open OFFSET 0) o
    WHERE s.schedule_id = i.schedule_id;
    PERFORM _sas.raise_alert('schedule-failed', format('schedule %s', s.name),
                             format('%s%s', m.what, m.ended),
                             private => format('%s%s%s', m.what, ': ' || m.why, m.ended))
    FROM unnest(instants) i JOIN _sas.schedule s ON s.schedule_id = i.schedule_id
    CROSS JOIN LATERAL (
        SELECT format('schedule "%s" could not submit its run of %s', s.name,
                      to_char(i.scheduled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')) AS what,
               -- the error may repeat values that the runs of the workflow mask
               CASE WHEN NOT _sas.masks_runs(s.owner, s.workflow) THEN i.error ->> 'title' END AS why,
               CASE s.state WHEN 'failed' THEN '; it is stopped' ELSE '' END AS ended) m
    WHERE i.outcome = 'failed';
END $$;

-- _sas.count_instants(instants): counts the outcomes of these instants, for sas.metrics().
CREATE FUNCTION _sas.count_instants(instants _sas.schedule_instant[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.count_metric('schedule', 0, 0, d.outcome, count(*)::int)
    FROM unnest(instants) d WHERE d.outcome NOT IN ('later', 'planned', 'missed') GROUP BY d.outcome;
    PERFORM _sas.count_metric('schedule', 0, 0, 'missed', sum(d.missed)::int)
    FROM unnest(instants) d WHERE d.missed > 0 AND d.outcome NOT IN ('later', 'planned') HAVING count(*) > 0;
END $$;

-- _sas.submit_instants(instants, rule, by_hand, most_us): submits runs for these instants, at most one for
-- each schedule. Returns the outcome of each. most_us: as in _sas.submit_decided.
CREATE FUNCTION _sas.submit_instants(instants _sas.schedule_instant[], rule text, by_hand boolean,
                                     most_us bigint DEFAULT NULL)
RETURNS _sas.schedule_instant[]
LANGUAGE plpgsql AS $$
DECLARE
    all_done _sas.schedule_instant[] := _sas.apply_overlap(instants, rule);
    done _sas.schedule_instant[];
BEGIN
    IF NOT by_hand THEN
        all_done := _sas.offer_instants(all_done);
    END IF;
    all_done := _sas.submit_decided(all_done, most_us);
    done := ARRAY(SELECT i FROM unnest(all_done) i WHERE i.outcome <> 'left');
    PERFORM _sas.note_instants(done, by_hand);
    PERFORM _sas.count_instants(done);
    RETURN all_done;
END $$;
