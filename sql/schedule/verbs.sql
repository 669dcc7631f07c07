-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: the verbs for existing schedules.

-- _sas.unschedule_as(...): the body of sas.unschedule. What a superuser has defined only a superuser removes;
-- operators pause it.
-- Writes: schedule.
CREATE FUNCTION _sas.unschedule_as(caller oid, name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s _sas.schedule := _sas.own_schedule(caller, name);
BEGIN
    IF NOT _sas.trusts(s.owner, caller) THEN
        RAISE EXCEPTION 'must be superuser to remove schedule "%" of a superuser', s.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
                HINT = 'Pause it with sas.pause_schedule.';
    END IF;
    DELETE FROM _sas.schedule x WHERE x.schedule_id = s.schedule_id;
    PERFORM _sas.close_alerts(ARRAY[format('schedule %s', s.name), format('schedule %s paused', s.name)]);
    PERFORM _sas.record_change(caller, 'unschedule', jsonb_build_object('schedule', s.name),
                               _sas.schedule_facts(s), NULL, '{input,labels}');
END $$;

-- _sas.pause_schedule_as(caller, name, reason): the body of sas.pause_schedule. False: it was paused already.
-- Locks: the schedule. Writes: schedule. An instant that is being planned is withdrawn.
CREATE FUNCTION _sas.pause_schedule_as(caller oid, name text, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s _sas.schedule := _sas.own_schedule(caller, name);
BEGIN
    PERFORM _sas.check_bytes(octet_length(reason), 10000, '/reason', 'the reason');
    reason := nullif(reason, '');
    IF s.state <> 'active' THEN
        RETURN false;
    END IF;
    UPDATE _sas.schedule x SET state = 'paused', paused_reason = reason, due_at = NULL
    WHERE x.schedule_id = s.schedule_id;
    PERFORM _sas.drop_plan(s.schedule_id);
    PERFORM _sas.record_change(caller, 'pause_schedule', jsonb_strip_nulls(jsonb_build_object(
        'schedule', s.name, 'reason', reason)));
    RETURN true;
END $$;

-- _sas.resume_schedule_as(...): the body of sas.resume_schedule. The schedule continues with its next
-- instant; instants during the pause are not made up for.
-- Writes: schedule. Wakes: the scheduler.
CREATE FUNCTION _sas.resume_schedule_as(caller oid, name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s _sas.schedule := _sas.own_schedule(caller, name);
BEGIN
    IF s.state NOT IN ('paused', 'failed') THEN
        RETURN false;
    END IF;
    s.last_scheduled_at := greatest(s.last_scheduled_at, sas.now());
    s.due_at := _sas.schedule_due(s);
    UPDATE _sas.schedule x
    SET state = CASE WHEN s.due_at IS NULL AND NOT s.copy THEN 'finished' ELSE 'active' END,
        paused_reason = NULL,
        failures = 0, error = NULL, last_scheduled_at = s.last_scheduled_at, due_at = s.due_at,
        open_run_ids = _sas.still_open(x.open_run_ids)
    WHERE x.schedule_id = s.schedule_id;
    PERFORM _sas.close_alerts(ARRAY[format('schedule %s', s.name), format('schedule %s paused', s.name)]);
    PERFORM _sas.record_change(caller, 'resume_schedule', jsonb_build_object('schedule', s.name));
    PERFORM _sas.wake(scheduler => true);
    RETURN true;
END $$;

-- _sas.check_by_hand(caller, s): raises an error if the schedule fires on another node; or if functions of
-- users plan the run and the caller is not the owner: they run in the session that submits it, with the
-- rights of the owner, so only in a session of the owner.
CREATE FUNCTION _sas.check_by_hand(caller oid, s _sas.schedule) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF s.copy THEN
        RAISE EXCEPTION 'schedule "%" fires on the coordinator, not here', s.name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'At /name.',
                HINT = 'Connect to the coordinator. A node that has left its cluster fires a schedule that '
                    'is defined again on it, with sas.schedule().';
    END IF;
    IF caller <> s.owner AND _sas.plans_by_function(s.owner, s.workflow) THEN
        RAISE EXCEPTION 'permission denied for schedule "%": its runs are planned by functions', s.name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
                HINT = format('Call it as role "%s": the functions run in your session.',
                              pg_get_userbyid(s.owner));
    END IF;
END $$;

-- _sas.raise_instant(caller, s, i): raises an error that says why the instant could not be submitted. later:
-- other sessions are in its way, and not the workflow. Who sees *** in place of values of the run sees of its
-- error what a monitor does.
CREATE FUNCTION _sas.raise_instant(caller oid, s _sas.schedule, i _sas.schedule_instant) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    later boolean := i.outcome = 'later';
BEGIN
    IF caller <> s.owner AND _sas.masks_runs(s.owner, s.workflow) THEN
        i.error := _sas.public_error(i.error);
    END IF;
    RAISE EXCEPTION 'the run of % could not be submitted: %', i.scheduled_at, i.error ->> 'title'
        USING ERRCODE = CASE WHEN NOT later THEN 'object_not_in_prerequisite_state'
                             WHEN current_setting('transaction_isolation')
                                 IN ('repeatable read', 'serializable') THEN 'serialization_failure'
                             ELSE 'lock_not_available' END,
              DETAIL = coalesce(i.error ->> 'detail', 'At /name.'),
              HINT = CASE WHEN later THEN 'Another session holds what it needs, or was first. Try again.'
                     ELSE 'Submit the workflow as the owner of the schedule to see the whole cause.' END;
END $$;

-- _sas.trigger_schedule_as(caller, name): the body of sas.trigger_schedule: submits one run now, by the
-- overlap rule of the schedule.
-- Locks: the schedule. Next: _sas.submit_instants.
CREATE FUNCTION _sas.trigger_schedule_as(caller oid, name text, OUT run_id bigint, OUT created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    s _sas.schedule := _sas.own_schedule(caller, $2);
    i _sas.schedule_instant;
BEGIN
    PERFORM _sas.check_by_hand(caller, s);
    i.schedule_id := s.schedule_id;
    i.scheduled_at := sas.now();
    i := (_sas.submit_instants(ARRAY[i], NULL, true))[1];
    PERFORM _sas.raise_instant(caller, s, i) WHERE i.outcome IN ('failed', 'later');
    run_id := coalesce(i.run_id, (_sas.still_open(s.open_run_ids))[1]);
    created := i.outcome = 'run';
    PERFORM _sas.record(caller, ARRAY[run_id], 'trigger_schedule', NULL,
                        jsonb_build_object('schedule', s.name, 'created', created));
END $$;

-- _sas.backfill_schedule_as(caller, name, from_at, to_at, overlap): the body of sas.backfill_schedule:
-- submits one run for each instant of the span, at most 1000. overlap null: the rule of the schedule.
-- Locks: the schedule. Next: _sas.submit_instants.
CREATE FUNCTION _sas.backfill_schedule_as(caller oid, name text, from_at timestamptz, to_at timestamptz,
                                          overlap text)
RETURNS TABLE (scheduled_at timestamptz, run_id bigint, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    s _sas.schedule := _sas.own_schedule(caller, $2);
    instants timestamptz[];
    i _sas.schedule_instant;
BEGIN
    PERFORM _sas.check_by_hand(caller, s);
    PERFORM _sas.raise(wrong)
    FROM _sas.check_choice(to_jsonb($5), '/overlap', '{skip,wait,once_more,replace,allow}') wrong;
    PERFORM _sas.refuse_schedule('the span must begin before it ends, and end before now', '/to_at',
                                 'What lies ahead is run by the schedule.')
    WHERE coalesce(from_at > to_at OR to_at > sas.now() OR NOT isfinite(from_at), true);
    instants := ARRAY(SELECT _sas.instants(s.spec, s.timezone, s.start_at, from_at - interval '1 us', to_at,
                                           1001));
    PERFORM _sas.refuse_schedule('the span has more than 1000 instants', '/to_at',
                                 'Call it for several shorter spans.')
    WHERE cardinality(instants) > 1000;
    FOREACH scheduled_at IN ARRAY instants LOOP
        i := (_sas.submit_instants(ARRAY[_sas.make_instant(s.schedule_id, scheduled_at)], $5, true))[1];
        PERFORM _sas.raise_instant(caller, s, i) WHERE i.outcome IN ('failed', 'later');
        run_id := i.run_id;
        created := i.outcome = 'run';
        RETURN NEXT;
    END LOOP;
    PERFORM _sas.record_change(caller, 'backfill_schedule', jsonb_build_object(
        'schedule', s.name, 'from_at', from_at, 'to_at', to_at, 'overlap', $5, 'instants',
        cardinality(instants)));
END $$;

-- _sas.calendar_of(s, from_at, to_at, most): its next runs within a span of time.
CREATE FUNCTION _sas.calendar_of(s _sas.schedule, from_at timestamptz, to_at timestamptz, most int)
RETURNS SETOF _sas.calendar_entry
LANGUAGE sql STABLE AS $$
    SELECT s.schedule_id, s.name, i.at + j.late, i.at
    FROM (SELECT _sas.schedule_offset(s.name, s.jitter) AS late) j
    CROSS JOIN LATERAL _sas.instants(
        s.spec, s.timezone, s.start_at,
        greatest(from_at - j.late - interval '1 us', _sas.schedule_from(s)), least(to_at - j.late, s.end_at),
        least(most, s.max_runs - s.runs)::int) AS i (at)
$$;

-- _sas.calendar_as(...): the body of sas.calendar. Schedules are read in growing batches. Once there are
-- enough rows, the last row bounds how far the others are computed; so 100,000 schedules of every second
-- cost little more than a few.
CREATE FUNCTION _sas.calendar_as(caller oid, from_at timestamptz, to_at timestamptz)
RETURNS TABLE (run_at timestamptz, scheduled_at timestamptz, schedule text, workflow text, owner text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    most int := 10000;
    batch int := 10;
    begins timestamptz := coalesce(from_at, sas.now());
    until timestamptz := coalesce(to_at, sas.now() + interval '1 day');
    done int := 0;
    todo int[] := ARRAY(SELECT s.schedule_id FROM _sas.schedule s
                        WHERE s.state = 'active' AND NOT s.copy AND coalesce(s.due_at <= until, true)
                          AND _sas.may_see(caller, s.owner)
                        ORDER BY s.due_at);
    found _sas.calendar_entry[] := '{}';
BEGIN
    WHILE done < cardinality(todo) LOOP
        found := ARRAY(
            SELECT e FROM (
                SELECT e FROM unnest(found) e
                UNION ALL
                SELECT _sas.calendar_of(s, begins, until, most) FROM _sas.schedule s
                WHERE s.schedule_id = ANY (todo[done + 1 : done + batch])) x
            ORDER BY (e).run_at, (e).name LIMIT most);
        IF cardinality(found) = most THEN
            until := least(until, (found[most]).run_at);
        END IF;
        done := done + batch;
        batch := least(batch * 2, 5000);
    END LOOP;
    RETURN QUERY SELECT (e).run_at, (e).scheduled_at, s.name, s.workflow, pg_get_userbyid(s.owner)::text
    FROM unnest(found) e JOIN _sas.schedule s ON s.schedule_id = (e).schedule_id ORDER BY 1, 3;
END $$;
