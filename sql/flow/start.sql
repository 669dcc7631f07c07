-- SPDX-License-Identifier: PostgreSQL
--
-- Start: what keeps a run from beginning (an earlier run, start_at, start_before, a paused workflow, a slot
-- under its concurrency key), and how it begins.
--
-- A run that may have to wait is submitted as scheduled, with a message to the scheduler. The scheduler
-- decides after the commit, with the runs locked. Each change of something that a run waits for sends
-- another message. Therefore no decision depends on uncommitted data, and nothing polls.

-- _sas.begin_runs(run_ids): begins those of these runs that nothing keeps from beginning.
-- Caller: the scheduler; holds the lock of the runs. Writes: run; for runs that wait, what _sas.may_begin
-- writes. Next: _sas.make_ready for their first steps.
CREATE FUNCTION _sas.begin_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := _sas.may_begin(run_ids);
BEGIN
    IF begun IS NULL THEN
        RETURN;
    END IF;
    PERFORM _sas.change_runs(array_agg(_sas.make_run_change(
        run_id => b, from_state => 'scheduled', to_state => 'pending')))
    FROM unnest(begun) b;
    PERFORM _sas.make_roots_ready(begun);
    PERFORM _sas.end_of_steps(array_agg(r.run_id)) FROM _sas.run r WHERE r.run_id = ANY (begun)
        AND r.open_steps = 0;
END $$;

-- _sas.start_runs(run_ids, at): moves those of these runs that are pending to running: a claim or a reply
-- shows that they have begun, at that time. Returns how many. Passes by a run that another session has
-- locked.
-- Caller: needs no lock. Writes: run (_sas.move_started), and what hooks write.
CREATE FUNCTION _sas.start_runs(run_ids bigint[], at timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := _sas.move_started(run_ids, at);
BEGIN
    IF begun IS NULL THEN
        RETURN 0;
    END IF;
    IF _sas.has_pages('_sas.workflow_hook') THEN
        PERFORM _sas.fire_hooks(begun);
    END IF;
    RETURN cardinality(begun);
END $$;

-- _sas.make_roots_ready(run_ids): makes ready the steps of these pending runs that depend on no other step.
CREATE FUNCTION _sas.make_roots_ready(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.make_ready(array_agg(f.run_id), array_agg(f.step_no))
    FROM (SELECT r.run_id, w.step_no, row_number() OVER () AS n
          FROM _sas.run r
          JOIN _sas.workflow_version v USING (version_id)
          CROSS JOIN LATERAL (SELECT x.step_no FROM _sas.workflow_step x
                              WHERE x.version_id = r.version_id AND NOT x.undo AND x.needs = 0
                                  AND (x.step_no IS DISTINCT FROM v.finalize_no OR v.step_count = 0)
                              OFFSET 0) w
          WHERE r.run_id = ANY (run_ids)) f
    WHERE _sas.check_steps(f.n);
END $$;

-- _sas.note_start(v, run_ids, parent_run_id, after_runs, results, waits): stores what new runs wait for.
-- waits: only the lines under their concurrency keys keep them.
-- Writes: run_dependency, concurrency_slot.
CREATE FUNCTION _sas.note_start(v _sas.workflow_version, run_ids bigint[], parent_run_id bigint,
                                after_runs bigint[], results text[], waits boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.run_dependency (run_id, after_run, results)
    SELECT u, e, $5 FROM unnest(run_ids) u CROSS JOIN unnest(after_runs) e;
    IF v.concurrency IS NOT NULL THEN
        -- child runs of several parents that the workflow had no keys for when they were put together
        IF EXISTS (SELECT FROM _sas.run r WHERE r.run_id = ANY (run_ids)
                   AND r.parent_run_id <> note_start.parent_run_id) THEN
            RAISE EXCEPTION 'child runs of several parents cannot share a place'
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        PERFORM _sas.note_places(v, run_ids, parent_run_id, waits);
    END IF;
END $$;

-- _sas.earlier_runs(caller, after_run, after_runs): both arguments as one list, each run once. Null: no runs.
CREATE FUNCTION _sas.earlier_runs(caller oid, after_run bigint, after_runs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    ids bigint[];
BEGIN
    IF cardinality(after_runs) > 1000 THEN
        RAISE EXCEPTION 'after_runs names more than 1000 runs'
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /after_runs.',
            HINT = 'Let a run with children wait for them, and name that one.';
    ELSIF array_ndims(after_runs) > 1 THEN
        RAISE EXCEPTION 'after_runs must have one dimension'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /after_runs.',
            HINT = 'Write run ids only, such as ''{7,8}''.';
    ELSIF array_position(after_runs, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'after_runs must not contain nulls'
            USING ERRCODE = 'null_value_not_allowed',
            DETAIL = _sas.at('/after_runs/' || array_position(after_runs, NULL) - array_lower(after_runs, 1)),
            HINT = 'Leave out what is not known.';
    END IF;
    ids := (SELECT array_agg(DISTINCT e) FROM unnest(after_runs || after_run) e WHERE e IS NOT NULL);
    IF ids IS NOT NULL THEN
        PERFORM _sas.check_earlier(caller, ids, after_run, after_runs);
    END IF;
    RETURN ids;
END $$;

-- _sas.check_earlier(caller, ids, after_run, after_runs): raises an error that names the runs among ids that
-- the caller may not operate, or that are on another node. The last two arguments tell the place.
CREATE FUNCTION _sas.check_earlier(caller oid, ids bigint[], after_run bigint, after_runs bigint[])
RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    unknown bigint[] := ARRAY(
        SELECT e FROM unnest(ids) e
        WHERE NOT EXISTS (SELECT FROM _sas.run r WHERE r.run_id = e AND _sas.may_operate(caller, r.owner))
        ORDER BY e);
    elsewhere bigint := (
        SELECT e FROM unnest(unknown) e
        WHERE e >> _sas.node_shift() <> _sas.id_base() >> _sas.node_shift()
          AND to_regclass('pg_catalog.pg_dist_node') IS NOT NULL
        LIMIT 1);
    n int := cardinality(unknown);
    place text := CASE WHEN after_run = coalesce(elsewhere, unknown[1]) THEN '/after_run'
        ELSE '/after_runs/' || array_position(after_runs, coalesce(elsewhere, unknown[1]))
                                - array_lower(after_runs, 1) END;
BEGIN
    IF elsewhere IS NOT NULL THEN
        RAISE EXCEPTION 'run % is on node %, and a run follows only runs of its own node', elsewhere,
                elsewhere >> _sas.node_shift()
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = _sas.at(place),
                HINT = format('This run would be on node %s. Submit it on the node of the other run.',
                              _sas.id_base() >> _sas.node_shift());
    ELSIF n = 1 THEN
        RAISE EXCEPTION 'run % does not exist, or is not yours', unknown[1]
            USING ERRCODE = 'undefined_object', DETAIL = _sas.at(place),
                HINT = 'Name a run of your own, as sas.runs shows it.';
    ELSIF n > 1 THEN
        RAISE EXCEPTION 'runs % do not exist, or are not yours',
                array_to_string(unknown[: 10], ', ') || CASE WHEN n > 10 THEN format(' and %s more', n - 10)
                                                         ELSE '' END
            USING ERRCODE = 'undefined_object', DETAIL = _sas.at(place),
                HINT = 'Name runs of your own, as sas.runs shows them.';
    END IF;
END $$;

-- _sas.check_start(start_at, start_before, results): raises an error if the arguments
-- of a submit about its start are wrong.
CREATE FUNCTION _sas.check_start(start_at timestamptz, start_before timestamptz, results text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    IF start_before < start_at THEN
        RAISE EXCEPTION 'start_before is before start_at: the run could never begin'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /start_before.',
                HINT = 'The run begins at start_at or later, and before start_before: name a later time.';
    END IF;
    FOR wrong IN SELECT * FROM _sas.wrong_items(coalesce(to_jsonb(results), '[]'),
                     '^(success|warning|error|compensated|cancelled)$', '/after_result') LOOP
        RAISE EXCEPTION '%', coalesce(wrong.item || ' is not a result', 'after_result must name results')
            USING ERRCODE = 'invalid_parameter_value', DETAIL = _sas.at(wrong.place),
                HINT = 'Name some of success, warning, error, compensated and cancelled.';
    END LOOP;
END $$;

-- _sas.release_waiting(run_ids, timed): these runs have stopped: sends a message to each run that waits for
-- one of them, and releases what they held. timed: those of them that have start_at or start_before.
-- Writes: message, phase, concurrency_slot. Wakes: the scheduler. Returns how many messages it has sent.
CREATE FUNCTION _sas.release_waiting(run_ids bigint[], timed bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    sent int;
BEGIN
    IF timed IS NOT NULL THEN
        DELETE FROM _sas.message d
        USING _sas.run r CROSS JOIN LATERAL (VALUES (r.start_at, 'start'),
                                                    (r.start_before, 'late')) AS t (due_at, kind)
        WHERE r.run_id = ANY (timed)
          AND d.actor = 's' AND d.due_at = t.due_at AND d.run_id = r.run_id AND d.kind = t.kind;
    END IF;
    IF _sas.are_staged(run_ids) THEN
        DELETE FROM _sas.phase g WHERE g.run_id = ANY (run_ids);
    END IF;
    IF NOT (_sas.has_pages('_sas.run_dependency') OR _sas.has_pages('_sas.concurrency_slot')
            OR _sas.keeps_snapshot()) THEN
        RETURN 0;
    END IF;
    -- mostly nobody waits, and the start of that statement costs more than to ask
    IF NOT EXISTS (SELECT FROM _sas.run_dependency a WHERE a.after_run = ANY ($1))
       AND NOT EXISTS (SELECT FROM _sas.concurrency_slot p WHERE p.run_id = ANY ($1))
       AND NOT _sas.keeps_snapshot() THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        UPDATE _sas.concurrency_slot p SET state = 'left', told = false WHERE p.run_id = ANY ($1)
        RETURNING p.run_id)
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), a.run_id, 'start' FROM _sas.run_dependency a WHERE a.after_run = ANY ($1)
    UNION ALL
    SELECT DISTINCT 's'::"char", sas.now(), g.run_id, 'leave' FROM gone g
    UNION ALL
    -- this snapshot may be too old to see a run that waits, so the scheduler checks later
    SELECT 's', sas.now(), u, 'ended' FROM unnest($1) u
    WHERE _sas.keeps_snapshot();
    GET DIAGNOSTICS sent = ROW_COUNT;
    IF sent > 0 THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
    RETURN sent;
END $$;

-- _sas.tell_followers(run_ids): these runs have stopped: sends a message to the runs that wait for them.
-- Caller: the scheduler. Writes: message.
CREATE FUNCTION _sas.tell_followers(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT 's', sas.now(), a.run_id, 'start' FROM _sas.run_dependency a WHERE a.after_run = ANY ($1);
END $$;

-- _sas.make_room(run_ids): these runs are paused: those of them that wait in line leave it, so that the
-- runs behind them are next.
-- Writes: message. Wakes: the scheduler.
CREATE FUNCTION _sas.make_room(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.message (actor, due_at, run_id, kind)
    SELECT DISTINCT 's'::"char", sas.now(), p.run_id, 'leave' FROM _sas.concurrency_slot p
    WHERE p.run_id = ANY ($1) AND (p.state = 'waits' OR p.told);
    IF FOUND THEN
        PERFORM _sas.wake(scheduler => true);
    END IF;
END $$;

-- _sas.may_begin(run_ids): the scheduled runs among these that can begin now; null if there are none. Runs
-- whose start_before has passed are stopped.
CREATE FUNCTION _sas.may_begin(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    ids bigint[];
    late bigint[];
BEGIN
    SELECT array_agg(r.run_id) FILTER (WHERE r.start_before <= now),
        array_agg(r.run_id) FILTER (WHERE coalesce(r.start_before > now, true))
    INTO late, ids
    FROM _sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'scheduled';
    PERFORM _sas.stop_late_runs(late) WHERE late IS NOT NULL;
    ids := _sas.past_earlier(ids);
    ids := ARRAY(SELECT r.run_id FROM _sas.run r WHERE r.run_id = ANY (ids)
                 AND coalesce(r.start_at <= now, true));
    ids := _sas.past_pause(ids);
    RETURN nullif(_sas.past_line(ids), '{}');
END $$;

-- _sas.check_later(run_ids, kind): sends the scheduler a message of this kind about these runs, which is due
-- in a moment, because another transaction is just changing what they wait for.
-- Writes: message.
CREATE FUNCTION _sas.check_later(run_ids bigint[], kind text) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', sas.now() + interval '50 ms', u, $2
    FROM unnest(run_ids) u
$$;

-- _sas.take_mutex(of_what): takes a mutex, a row of _sas.lock_row, if it is free. Returns whether it has.
-- What is counted under it cannot change until this transaction ends. It never waits, because a session may
-- hold the row.
CREATE FUNCTION _sas.take_mutex(of_what text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.lock_row t WHERE t.what = of_what FOR UPDATE SKIP LOCKED;
    RETURN FOUND;
END $$;

-- _sas.past_earlier(run_ids): these runs, without those that must wait for an earlier run. If an earlier
-- run has ended with another result than the run requires, the run stops, whatever the other earlier runs
-- do.
--
-- Nothing is locked, and nothing polls while an earlier run continues: its end sends a message to the runs
-- that wait for it (_sas.release_waiting). Those runs are committed, so a transaction that stops the
-- earlier run later finds them. A transaction that has stopped it but not yet committed may have looked
-- before they were committed. Only in that case is the run checked again in a moment.
CREATE FUNCTION _sas.past_earlier(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ending bigint[];
    again bigint[];
    left_behind bigint[];
    errors jsonb[];
    ids bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM _sas.run_dependency a WHERE a.run_id = ANY (run_ids)) THEN
        RETURN run_ids;
    END IF;
    ending := _sas.ending(ARRAY(SELECT DISTINCT a.after_run FROM _sas.run_dependency a
                                WHERE a.run_id = ANY (run_ids)));
    -- a statement of its own, because it must see what was committed meanwhile
    SELECT array_agg(u.id) FILTER (WHERE u.open IS NULL AND u.otherwise IS NULL),
           array_agg(u.id) FILTER (WHERE u.otherwise IS NOT NULL),
           array_agg(_sas.problem_object('after-run',
                                         format('run %s ended with result %s', u.otherwise, u.result),
                                         format('The run needed one of these results: %s.',
                                                array_to_string(u.results, ', ')), NULL, u.id, NULL))
               FILTER (WHERE u.otherwise IS NOT NULL),
           array_agg(u.id) FILTER (WHERE u.otherwise IS NULL AND u.open && ending)
    INTO ids, left_behind, errors, again
    FROM (SELECT r.id, (array_agg(o.run_id ORDER BY o.run_id) FILTER (WHERE o.otherwise))[1] AS otherwise,
              (array_agg(o.result ORDER BY o.run_id) FILTER (WHERE o.otherwise))[1] AS result,
              array_agg(o.run_id) FILTER (WHERE o.state <> 'stopped') AS open, min(o.results) AS results
          FROM (SELECT DISTINCT i FROM unnest(run_ids) i) AS r (id)
          LEFT JOIN LATERAL (SELECT e.run_id, e.state, e.result, a.results,
                                    e.state = 'stopped' AND e.result <> ALL (a.results) AS otherwise
                             FROM _sas.run_dependency a JOIN _sas.run e ON e.run_id = a.after_run
                             WHERE a.run_id = r.id) o ON true
          GROUP BY r.id) u;
    IF left_behind IS NOT NULL THEN
        PERFORM _sas.abandon(left_behind, array_fill('fail'::text, ARRAY[cardinality(left_behind)]), errors);
    END IF;
    PERFORM _sas.check_later(again, 'start') WHERE again IS NOT NULL;
    RETURN ids;
END $$;

-- _sas.past_pause(run_ids): these runs, without those whose workflow is paused; its resume sends them a
-- message. The row of the workflow is locked meanwhile, so that a resume cannot miss them; if it cannot be
-- locked, the run is checked again in a moment.
-- Writes: deferred_run, message.
CREATE FUNCTION _sas.past_pause(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    paused int[];
    locked int[];
    held bigint[];
    again bigint[];
BEGIN
    SELECT array_agg(DISTINCT f.workflow_id) INTO paused
    FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow f USING (workflow_id)
    WHERE r.run_id = ANY (run_ids) AND f.paused_at IS NOT NULL;
    IF paused IS NULL THEN
        RETURN run_ids;
    END IF;
    locked := ARRAY(SELECT l.workflow_id
                    FROM (SELECT f.workflow_id FROM _sas.workflow f WHERE f.workflow_id = ANY (paused)
                          ORDER BY 1 FOR SHARE SKIP LOCKED) l);
    SELECT array_agg(r.run_id) FILTER (WHERE f.workflow_id = ANY (locked)),
        array_agg(r.run_id) FILTER (WHERE NOT f.workflow_id = ANY (locked))
    INTO held, again
    FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow f USING (workflow_id)
    WHERE r.run_id = ANY (run_ids) AND f.paused_at IS NOT NULL;
    INSERT INTO _sas.deferred_run (run_id, workflow_id)
    SELECT r.run_id, v.workflow_id FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
    WHERE r.run_id = ANY (held)
    ON CONFLICT DO NOTHING;
    PERFORM _sas.check_later(again, 'start') WHERE again IS NOT NULL;
    RETURN ARRAY(SELECT u FROM unnest(run_ids) u WHERE u <> ALL (coalesce(held, '{}'))
                 AND u <> ALL (coalesce(again, '{}')));
END $$;

-- _sas.stop_late_runs(run_ids): stops those of these runs that have not begun by their start_before.
-- Next: _sas.abandon.
CREATE FUNCTION _sas.stop_late_runs(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    ids bigint[];
    free tid[];
    busy bigint[];
    late bigint[];
    begun bigint[];
    errors jsonb[];
BEGIN
    SELECT array_agg(r.run_id) INTO ids
    FROM _sas.run r
    WHERE r.run_id = ANY (run_ids) AND r.start_before <= now AND r.started_at IS NULL AND r.abandon_as IS NULL
        AND r.state IN ('scheduled', 'pending', 'paused');
    ids := coalesce(ids, '{}');
    -- a locked row is being claimed at this moment; soon the run has begun, or not
    free := ARRAY(SELECT l.ctid FROM (SELECT q.ctid FROM _sas.ready q WHERE q.run_id = ANY (ids)
                                      FOR UPDATE SKIP LOCKED) l);
    busy := ARRAY(SELECT DISTINCT q.run_id FROM _sas.ready q WHERE q.run_id = ANY (ids)
                  AND q.ctid <> ALL (free));
    PERFORM _sas.check_later(busy, 'late');
    SELECT array_agg(r.run_id),
           array_agg(_sas.problem_object(
               'start-before', 'could not be started before its set time',
               to_char(r.start_before AT TIME ZONE 'UTC',
                       '"It was to begin before "YYYY-MM-DD HH24:MI:SS" UTC."'),
               NULL, r.run_id, NULL))
    INTO late, errors
    FROM _sas.run r
    WHERE r.run_id = ANY (ids) AND r.run_id <> ALL (busy)
      AND NOT EXISTS (SELECT FROM _sas.step s WHERE s.run_id = r.run_id
                      AND (s.started_at IS NOT NULL OR s.state NOT IN ('waiting', 'ready')));
    IF late IS NOT NULL THEN
        PERFORM _sas.abandon(late, array_fill('fail'::text, ARRAY[cardinality(late)]), errors);
    END IF;
    -- these have begun in time
    begun := ARRAY(SELECT DISTINCT u FROM unnest(run_ids) u WHERE u <> ALL (busy)
                   AND u <> ALL (coalesce(late, '{}')));
    PERFORM _sas.start_runs(ARRAY(SELECT u FROM unnest(begun) u WHERE u = ANY (ids)));
    PERFORM _sas.make_ready(array_agg(b.run_id), array_agg(b.step_no), array_agg(b.element),
                            array_agg(b.undo), array_agg(b.alone)) FROM unnest(_sas.take_late(begun)) b;
END $$;

-- _sas.switch_workflow(caller, name, pause): pauses or resumes a workflow of the caller, or any for operators
-- and admins. False: nothing has changed.
-- Writes: workflow, deferred_run, message. Wakes: the scheduler.
CREATE FUNCTION _sas.switch_workflow(caller oid, name text, pause boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    f _sas.workflow;
BEGIN
    PERFORM _sas.wake_on_abort();
    SELECT * INTO f FROM _sas.workflow w WHERE w.name = $2 AND w.dropped_at IS NULL
        AND _sas.may_operate(caller, w.owner);
    IF NOT FOUND THEN
        PERFORM _sas.refuse_missing('workflow', name, '/name', 'See sas.workflows for existing workflows.',
                                    doubt => ', or is not yours');
    END IF;
    UPDATE _sas.workflow w SET paused_at = CASE WHEN pause THEN sas.now() END
    WHERE w.workflow_id = f.workflow_id AND (w.paused_at IS NULL) = pause;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT pause THEN
        WITH held AS (DELETE FROM _sas.deferred_run h WHERE h.workflow_id = f.workflow_id RETURNING h.run_id)
        INSERT INTO _sas.message (actor, due_at, run_id, kind) SELECT 's', sas.now(), h.run_id, 'start'
        FROM held h;
        PERFORM _sas.wake(scheduler => true);
    END IF;
    PERFORM _sas.record_change(caller, CASE WHEN pause THEN 'pause_workflow' ELSE 'resume_workflow' END,
                               jsonb_build_object('workflow', name));
    RETURN true;
END $$;

-- _sas.pause_workflow_as(caller, name): the body of sas.pause_workflow.
CREATE FUNCTION _sas.pause_workflow_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_workflow(caller, name, true)
$$;

-- _sas.resume_workflow_as(caller, name): the body of sas.resume_workflow.
CREATE FUNCTION _sas.resume_workflow_as(caller oid, name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _sas.switch_workflow(caller, name, false)
$$;
