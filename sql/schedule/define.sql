-- SPDX-License-Identifier: PostgreSQL
--
-- Schedules: how they are checked and stored, and when they are due.

-- _sas.schedule_from(s): instants later than this one have not been decided.
CREATE FUNCTION _sas.schedule_from(s _sas.schedule) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(s.last_scheduled_at, s.start_at - interval '1 us')
$$;

-- _sas.schedule_due(s): when the schedule is due next; null: never again, or never here.
CREATE FUNCTION _sas.schedule_due(s _sas.schedule) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    next timestamptz;
BEGIN
    IF s.copy OR s.runs >= s.max_runs THEN
        RETURN NULL;
    END IF;
    next := _sas.next_instant(s.spec, s.timezone, s.start_at, _sas.schedule_from(s));
    RETURN CASE WHEN coalesce(next <= s.end_at, true) THEN next + _sas.schedule_offset(s.name, s.jitter) END;
END $$;

-- _sas.refuse_schedule(problem, place, hint): raises this error.
CREATE FUNCTION _sas.refuse_schedule(problem text, place text, hint text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', problem
        USING ERRCODE = 'invalid_parameter_value', DETAIL = _sas.at(place), HINT = hint;
END $$;

-- _sas.check_schedulable(owner, workflow, workflow_owner): raises an error unless the owner of the schedule
-- exists and may submit that workflow. The workflow must still belong to workflow_owner, or to a role that
-- the schedule's owner trusts anyway; otherwise a role that creates a dropped workflow again would act with
-- the rights of the schedule's owner.
CREATE FUNCTION _sas.check_schedulable(owner oid, workflow text, workflow_owner oid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found oid := (SELECT f.owner FROM _sas.workflow f WHERE f.name = $2 AND f.dropped_at IS NULL);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = $1) THEN
        RAISE EXCEPTION 'the owner of the schedule does not exist' USING ERRCODE = 'undefined_object',
            DETAIL = format('Its runs were submitted as role %s.', $1),
            HINT = 'Remove it with sas.unschedule, and create it again.';
    END IF;
    PERFORM _sas.submittable($1, $2);
    IF _sas.is_superuser(found) THEN
        RETURN;
    END IF;
    IF found NOT IN ($1, $3) THEN
        RAISE EXCEPTION 'workflow "%" belongs to another role than when it was scheduled', $2
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /workflow.',
                HINT = 'Look at its definition, and call sas.schedule again.';
    END IF;
END $$;

-- _sas.owner_of_workflow(name): the owner of the workflow; null: it does not exist.
CREATE FUNCTION _sas.owner_of_workflow(name text) RETURNS regrole
LANGUAGE sql STABLE AS $$
    SELECT f.owner FROM _sas.workflow f WHERE f.name = $1 AND f.dropped_at IS NULL
$$;

-- _sas.check_schedule(s): raises an error if the schedule is not valid.
CREATE FUNCTION _sas.check_schedule(s _sas.schedule) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.raise(wrong) FROM _sas.check_name(s.name, '/name') wrong;
    PERFORM _sas.raise(wrong)
    FROM _sas.check_choice(coalesce(to_jsonb(s.overlap), 'null'), '/overlap',
                           '{skip,wait,once_more,replace,allow}') wrong;
    PERFORM _sas.raise(wrong)
    FROM _sas.check_choice(coalesce(to_jsonb(s.catch_up), 'null'), '/catch_up', '{none,last,all}') wrong;
    PERFORM _sas.refuse_schedule('the catch-up window must be positive, and at most ten years',
                                 '/catch_up_window', 'It is how old an instant may be that is caught up.')
    WHERE coalesce(s.catch_up_window <= '0' OR s.catch_up_window > '10 years', true);
    PERFORM _sas.refuse_schedule('the jitter must be between 0 and a day', '/jitter',
                                 'It is the span over which the schedules are spread.')
    WHERE coalesce(s.jitter < '0' OR s.jitter > '1 day', true);
    PERFORM _sas.refuse_schedule('max_runs must be 1 or more', '/max_runs', 'Omit it for no limit.')
    WHERE s.max_runs < 1;
    PERFORM _sas.refuse_schedule('pause_on_failure must be true or false', '/pause_on_failure',
                                 'The default is false.')
    WHERE s.pause_on_failure IS NULL;
    PERFORM _sas.refuse_schedule('start_at and end_at must be instants',
                                 CASE WHEN NOT isfinite(s.start_at) THEN '/start_at' ELSE '/end_at' END,
                                 'Omit what has no limit.')
    WHERE NOT isfinite(s.start_at) OR NOT isfinite(s.end_at);
    PERFORM _sas.refuse_schedule('end_at is before start_at', '/end_at',
                                 'Instants from start_at to end_at run.')
    WHERE s.end_at < s.start_at;
    PERFORM _sas.check_submit(inputs => ARRAY[s.input], keys => NULL, priority => s.priority,
                              start_at => NULL, start_before => NULL, deadline => NULL, reply_to => NULL,
                              labels => s.labels, is_child => false);
    PERFORM _sas.check_schedulable(s.owner, s.workflow, s.workflow_owner);
END $$;

-- _sas.schedule_facts(s): the definition of a schedule, for the history; null: it does not exist.
CREATE FUNCTION _sas.schedule_facts(s _sas.schedule) RETURNS jsonb
LANGUAGE sql STABLE SET intervalstyle = 'postgres' SET timezone = 'UTC' AS $$
    SELECT to_jsonb(x) FROM (SELECT s.spec, s.timezone, s.workflow, s.input, s.overlap, s.catch_up,
                             s.catch_up_window, s.jitter, s.start_at, s.end_at, s.max_runs,
                             s.pause_on_failure, s.priority, s.labels) x
    WHERE s.name IS NOT NULL
$$;

-- _sas.schedule_as(...): the body of sas.schedule. Next: _sas.put_schedule.
CREATE FUNCTION _sas.schedule_as(caller oid, name text, spec text, workflow text, input jsonb, timezone text,
                                 overlap text, catch_up text, catch_up_window interval, jitter interval,
                                 start_at timestamptz, end_at timestamptz, max_runs int,
                                 pause_on_failure boolean, priority int, labels jsonb) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s _sas.schedule;
BEGIN
    s.name := $2; s.owner := caller; s.spec := btrim($3); s.timezone := _sas.check_spec($3, $6);
    s.workflow := $4;
    s.input := $5; s.overlap := $7; s.catch_up := $8; s.catch_up_window := $9;
    s.jitter := $10; s.start_at := $11; s.end_at := $12; s.max_runs := $13; s.pause_on_failure := $14;
    s.priority := $15; s.labels := $16;
    -- the coordinator calls this, too
    s.copy := current_setting('sas.this_node_only') = 'copy';
    RETURN _sas.put_schedule(caller, s);
END $$;

-- _sas.put_schedule(caller, s): creates or changes the schedule. If two sessions create the same name at the
-- same time, the second one waits for the first, and changes its schedule. Returns when it runs next.
-- Writes: schedule. Wakes: the scheduler. Next: _sas.fire_schedules.
CREATE FUNCTION _sas.put_schedule(caller oid, s _sas.schedule) RETURNS timestamptz
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := sas.now();
    old _sas.schedule;
    made _sas.schedule;
BEGIN
    PERFORM _sas.wake_on_abort();
    -- nobody drops it until this is committed
    PERFORM FROM _sas.workflow f WHERE f.name = s.workflow AND f.dropped_at IS NULL FOR KEY SHARE;
    s.workflow_owner := _sas.owner_of_workflow(s.workflow);
    s.state := 'active'; s.last_scheduled_at := now; s.runs := 0; s.created_at := now;
    PERFORM _sas.check_schedule(s);
    INSERT INTO _sas.schedule AS t (name, owner, spec, timezone, workflow, workflow_owner, input, overlap,
        catch_up, catch_up_window, jitter, start_at, end_at, max_runs, pause_on_failure, priority, labels,
        state, due_at, last_scheduled_at, created_at, copy)
    SELECT s.name, s.owner, s.spec, s.timezone, s.workflow, s.workflow_owner, s.input, s.overlap,
        s.catch_up, s.catch_up_window, s.jitter, s.start_at, s.end_at, s.max_runs, s.pause_on_failure,
        s.priority, s.labels, s.state, _sas.schedule_due(s), s.last_scheduled_at, s.created_at, s.copy
    ON CONFLICT (name) DO NOTHING RETURNING t.* INTO made;
    IF FOUND THEN
        s := made;
        PERFORM _sas.refuse_rows(s.owner, 'schedules',
                                 (SELECT count(*) FROM _sas.schedule t WHERE t.owner = s.owner),
                                 format('role "%s" has too many schedules', pg_get_userbyid(s.owner)),
                                 '/name', 'Remove some with sas.unschedule()');
    ELSE
        old := _sas.own_schedule(caller, s.name, true);
        s := _sas.changed_schedule(old, s);
        PERFORM _sas.drop_plan(old.schedule_id);
        UPDATE _sas.schedule t SET spec = s.spec, timezone = s.timezone, workflow = s.workflow,
            workflow_owner = s.workflow_owner, input = s.input, overlap = s.overlap, catch_up = s.catch_up,
            catch_up_window = s.catch_up_window, jitter = s.jitter, start_at = s.start_at,
            end_at = s.end_at, max_runs = s.max_runs, pause_on_failure = s.pause_on_failure,
            priority = s.priority, labels = s.labels, state = s.state, failures = s.failures,
            error = s.error, due_at = s.due_at, last_scheduled_at = s.last_scheduled_at, copy = s.copy
        WHERE t.schedule_id = old.schedule_id;
    END IF;
    PERFORM _sas.refuse_schedule(format('schedule "%s" never happens', s.spec), '/spec',
                                 'No instant lies between now, start_at and end_at.')
    WHERE s.state = 'active' AND s.due_at IS NULL AND NOT s.copy;
    PERFORM _sas.record_change(caller, 'schedule', jsonb_build_object('schedule', s.name),
                               _sas.schedule_facts(old), _sas.schedule_facts(s), '{input,labels}');
    PERFORM _sas.wake(scheduler => true);
    RETURN s.due_at;
END $$;

-- _sas.changed_schedule(old, new): the schedule after it is defined again. Instants of the old spec, and
-- instants before a stop of any kind, are not run by the new one. If the times are unchanged, an instant
-- that is due just now is not lost. A paused schedule stays paused; open runs continue.
CREATE FUNCTION _sas.changed_schedule(old _sas.schedule, new _sas.schedule) RETURNS _sas.schedule
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.schedule := new;
BEGIN
    s.schedule_id := old.schedule_id;
    s.owner := old.owner;
    s.runs := old.runs;
    s.last_scheduled_at := old.last_scheduled_at;
    s.failures := 0;
    IF old.state <> 'active' OR old.copy OR (old.spec, old.timezone) IS DISTINCT FROM (new.spec, new.timezone)
       OR old.start_at IS DISTINCT FROM new.start_at THEN
        s.last_scheduled_at := greatest(old.last_scheduled_at, sas.now());
    END IF;
    s.due_at := _sas.schedule_due(s);
    IF old.state = 'paused' THEN
        s.state := 'paused';
        s.due_at := NULL;
    ELSIF s.runs >= s.max_runs AND NOT s.copy THEN
        s.state := 'finished';
    END IF;
    PERFORM _sas.close_alerts(ARRAY[format('schedule %s', s.name)]) WHERE old.failures > 0;
    RETURN s;
END $$;

-- _sas.own_schedule(caller, schedule_name, change): the schedule, locked, if the caller may use it. Only
-- members of its owner may change what it does, because its runs have that role's rights; operators and
-- admins may stop and continue it.
CREATE FUNCTION _sas.own_schedule(caller oid, schedule_name text, change boolean DEFAULT false)
RETURNS _sas.schedule
LANGUAGE plpgsql AS $$
DECLARE
    s _sas.schedule;
BEGIN
    PERFORM _sas.wake_on_abort();
    SELECT * INTO s FROM _sas.schedule x WHERE x.name = schedule_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('schedule', schedule_name, '/name',
                                    'See sas.schedules for existing schedules.');
    END IF;
    IF NOT _sas.may_stand_for(caller, s.owner)
       AND (change OR NOT _sas.is_operator(caller)) THEN
        RAISE EXCEPTION 'must be owner of schedule "%"', schedule_name
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /name.',
                HINT = 'Its runs have the rights of its owner. Use another name.';
    END IF;
    RETURN s;
END $$;
