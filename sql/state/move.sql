-- SPDX-License-Identifier: PostgreSQL
--
-- The only writers of the states of runs and steps. _sas.move_steps and _sas.move_runs make any legal
-- change. Beside them there is one function for each change that every step or run goes through: the first
-- claim (_sas.take_steps and _sas.move_started), the plain end of a step (_sas.move_done) and that of a run
-- (_sas.move_ended). They only write; what follows is in sql/flow. Callers hold the lock of every run that
-- they change, or have just taken the step out of _sas.ready.

-- _sas.are_legal(of_subject, moves): are these changes of state, each as "from to", all in _sas.transition? A
-- change that occurs several times in a batch is checked once.
CREATE FUNCTION _sas.are_legal(of_subject text, moves text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM unnest(moves) m
                       WHERE NOT EXISTS (SELECT FROM _sas.transition t
                                         WHERE t.subject = of_subject
                                             AND t.from_state = split_part(m, ' ', 1)
                                             AND t.to_state = split_part(m, ' ', 2)));
END $$;

-- _sas.move_steps(changes): writes these changes of steps. Inserts the rows whose from_state is 'none', and
-- updates the others if they are still in from_state. Raises an error if one of them is not, or if a change
-- is not in _sas.transition; that is a bug in sas.
-- Caller: holds the lock of the runs. Writes: step. Next: the caller does what follows from the new state.
CREATE FUNCTION _sas.move_steps(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(changes), 0);
    few boolean := _sas.add_steps(wanted);
    moves text[];
    inserted int := 0;
    updated int := 0;
BEGIN
    IF wanted = 0 THEN
        RETURN;
    END IF;
    moves := _sas.count_moves('step', changes);
    IF _sas.are_legal('step', moves) THEN
        IF ';' || array_to_string(moves, ';') LIKE '%;none %' THEN
            inserted := _sas.insert_steps(changes);
        END IF;
        IF inserted < wanted THEN
            UPDATE _sas.step s
            SET state = c.to_state,
                attempt = coalesce(c.attempt, s.attempt),
                failure_count = coalesce(c.failure_count, s.failure_count),
                in_doubt = coalesce(c.in_doubt, s.in_doubt),
                transient = coalesce(c.transient, s.transient),
                alone = coalesce(c.alone, s.alone),
                needs_left = coalesce(c.needs_left, s.needs_left),
                output = coalesce(c.output, s.output),
                error = CASE WHEN c.to_state IN ('succeeded', 'compensated') THEN NULL
                    ELSE coalesce(c.error, s.error) END,
                completion = coalesce(c.completion, s.completion),
                -- no attempt yet: an earlier claim was given back, and the attempt begins with this one
                started_at = CASE WHEN s.attempt = 0 AND s.state = 'ready' AND c.to_state = 'running'
                    THEN coalesce(c.started_at, s.started_at) ELSE coalesce(s.started_at, c.started_at) END,
                finished_at = coalesce(c.finished_at, s.finished_at),
                lease_id = c.lease_id,
                request_id = c.request_id,
                complete_by = c.complete_by,
                deferred = coalesce(c.deferred, false),
                waiting_kind = c.waiting_kind,
                waiting_until = c.waiting_until
            FROM unnest(changes) c
            WHERE c.from_state <> 'none'
              AND s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element
              AND s.state = c.from_state;
            GET DIAGNOSTICS updated = ROW_COUNT;
        END IF;
    END IF;
    IF inserted + updated <> wanted THEN
        RAISE EXCEPTION 'illegal change of step state'
            USING ERRCODE = 'internal_error',
                  DETAIL = (SELECT string_agg(format('run %s step %s: %s to %s', c.run_id, c.step_no,
                                                     c.from_state, c.to_state), '; ')
                            FROM (SELECT * FROM unnest(changes) LIMIT 5) c);
    END IF;
END $$;

-- _sas.insert_steps(changes): inserts those of these steps that have no row yet. Returns how many.
-- Writes: step.
CREATE FUNCTION _sas.insert_steps(changes _sas.step_change[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    inserted int;
BEGIN
    INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, transient,
                           alone, deferred, needs_left, lease_id, request_id, complete_by, waiting_kind,
                           waiting_until, completion, started_at, finished_at, output, error)
    SELECT c.run_id, c.step_no, c.element, c.to_state, coalesce(c.attempt, 0), coalesce(c.failure_count, 0),
           coalesce(c.in_doubt, false), c.transient, coalesce(c.alone, false), coalesce(c.deferred, false),
           c.needs_left, c.lease_id, c.request_id, c.complete_by, c.waiting_kind, c.waiting_until,
           c.completion, c.started_at, c.finished_at, c.output, c.error
    FROM unnest(changes) c
    WHERE c.from_state = 'none';
    GET DIAGNOSTICS inserted = ROW_COUNT;
    RETURN inserted;
END $$;

-- _sas.take_steps(claimed, under_lease, at): writes that these steps are claimed, under that lease, at that
-- time.
--
-- A step that is claimed for the first time gets its row here. If the change were not in _sas.transition,
-- its state would be null, which the row refuses. _sas.move_steps writes the other steps. Returns how many
-- steps were claimed for the first time.
-- Caller: has just taken the steps out of _sas.ready. Writes: step.
CREATE FUNCTION _sas.take_steps(claimed _sas.claimed[], under_lease bigint, at timestamptz) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    inserted int;
    counted int;
BEGIN
    INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred,
                           lease_id, request_id, complete_by, started_at)
    SELECT c.run_id, c.step_no, c.element,
           (SELECT _sas.legal_state('step', 'none', 'running')),
           0, 0, false, c.alone, false, under_lease, c.request_id, at + c.complete_in, at
    FROM unnest(claimed) c WHERE c.from_state = 'none' AND NOT c.undo;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    IF inserted > 0 THEN
        counted := _sas.count_metric('transition', 0, 0, 'step none running', inserted);
    END IF;
    IF inserted < cardinality(claimed) THEN
        PERFORM _sas.move_steps(array_agg(_sas.make_step_change(
            run_id => c.run_id, step_no => c.step_no, element => c.element, from_state => c.from_state,
            to_state => CASE WHEN c.undo THEN 'compensating' ELSE 'running' END, alone => c.alone,
            started_at => at, lease_id => under_lease, request_id => c.request_id,
            complete_by => at + c.complete_in)))
        FROM unnest(claimed) c WHERE c.from_state <> 'none' OR c.undo;
    END IF;
    RETURN inserted;
END $$;

-- _sas.move_done(replies, now): moves claimed steps from running to succeeded, if their claims still hold:
-- their run continues, and nothing of the reply remains to be evaluated. Returns the steps that were moved;
-- the others are unchanged.
--
-- The fence and the change are one statement. It writes what _sas.move_steps would write for the same
-- reply. If the change were not in _sas.transition, its state would be null, which the column refuses.
-- Caller: holds the lock of the runs. Writes: step. Next: _sas.go_on.
CREATE FUNCTION _sas.move_done(replies _sas.call_reply[], now timestamptz, OUT run_ids bigint[],
                               OUT step_nos int[], OUT elements int[])
LANGUAGE plpgsql AS $$
DECLARE
    -- steps complete in the order of the replies, whatever the join does
    completions bigint[] := _sas.next_numbers('_sas.completion_seq', cardinality(replies));
    counted int;
BEGIN
    WITH moved AS (
        UPDATE _sas.step s
        SET state = (SELECT _sas.legal_state('step', 'running', 'succeeded')),
            attempt = s.attempt + p.attempt, in_doubt = false, transient = false,
            output = coalesce(p.output, s.output), error = NULL,
            completion = completions[p.n], finished_at = now,
            lease_id = NULL, request_id = NULL, complete_by = NULL, deferred = false,
            waiting_kind = NULL, waiting_until = NULL
        FROM unnest(replies) WITH ORDINALITY AS p (run_id, step_no, element, request_id, verdict, attempt,
                                                   output, error, in_doubt, again_in, arrived_at, n)
        WHERE s.run_id = p.run_id AND s.step_no = p.step_no AND s.element = p.element
          AND s.state = 'running' AND s.request_id = p.request_id
          AND s.complete_by > coalesce(p.arrived_at, now)
        RETURNING s.run_id, s.step_no, s.element)
    SELECT array_agg(m.run_id), array_agg(m.step_no), array_agg(m.element) INTO run_ids, step_nos, elements
    FROM moved m;
    IF run_ids IS NOT NULL THEN
        counted := _sas.count_metric('transition', 0, 0, 'step running succeeded', cardinality(run_ids));
    END IF;
END $$;

-- _sas.move_runs(changes): writes these changes of runs. Raises errors as _sas.move_steps does.
-- Caller: holds the lock of the runs; only _sas.change_runs calls it, and does what follows. Writes: run.
CREATE FUNCTION _sas.move_runs(changes _sas.run_change[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(changes), 0);
    updated int := 0;
BEGIN
    IF wanted = 0 THEN
        RETURN;
    END IF;
    IF _sas.are_legal('run', _sas.count_moves('run', changes)) THEN
        UPDATE _sas.run r
        SET state = c.to_state,
            result = CASE WHEN c.from_state <> 'stopped' THEN coalesce(c.result, r.result) END,
            abandon_as = coalesce(c.abandon_as, r.abandon_as),
            open_steps = coalesce(c.open_steps, r.open_steps),
            output = coalesce(c.output, r.output),
            error = coalesce(c.error, CASE c.from_state WHEN 'paused' THEN r.error - 'undo_error'
                                      ELSE r.error END),
            started_at = CASE WHEN c.to_state = 'running' THEN coalesce(r.started_at, sas.now())
                ELSE r.started_at END,
            finished_at = CASE WHEN c.to_state = 'stopped' THEN sas.now() END,
            paused_for = c.paused_for,
            paused_by = c.paused_by,
            paused_at = CASE WHEN c.to_state = 'paused' THEN sas.now() END,
            paused_state = c.paused_state,
            overdue = CASE WHEN c.to_state <> 'stopped' THEN r.overdue END
        FROM unnest(changes) c
        WHERE r.run_id = c.run_id AND r.state = c.from_state;
        GET DIAGNOSTICS updated = ROW_COUNT;
    END IF;
    IF updated <> wanted THEN
        RAISE EXCEPTION 'illegal change of run state'
            USING ERRCODE = 'internal_error',
                  DETAIL = (SELECT string_agg(format('run %s: %s to %s', c.run_id, c.from_state, c.to_state),
                                              '; ')
                            FROM (SELECT * FROM unnest(changes) LIMIT 5) c);
    END IF;
END $$;

-- _sas.move_started(run_ids, at): moves those of these runs that are pending to running: a claim or a reply
-- shows that they have begun. Returns them; null if there are none. They begin with their first step, but
-- not after this time; if both are unknown, now.
--
-- Never waits: if a session has locked a run, its reply starts it later.
-- Caller: needs no lock. Writes: run. Next: _sas.start_runs does what follows.
CREATE FUNCTION _sas.move_started(run_ids bigint[], at timestamptz) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[];
    counted int;
BEGIN
    IF run_ids IS NULL THEN
        RETURN NULL;
    END IF;
    WITH started AS (
        UPDATE _sas.run r
        SET state = (SELECT _sas.legal_state('run', 'pending', 'running')),
            -- where one step is left to do, that is the one which begins now
            started_at = coalesce(r.started_at, CASE WHEN r.open_steps = 1 THEN at END,
                                  least(at, (SELECT min(s.started_at) FROM _sas.step s
                                             WHERE s.run_id = r.run_id)),
                                  sas.now())
        WHERE r.ctid = ANY (ARRAY(SELECT l.ctid FROM _sas.run l WHERE l.run_id = ANY (run_ids)
                                  AND l.state = 'pending' FOR NO KEY UPDATE SKIP LOCKED))
        RETURNING r.run_id)
    SELECT array_agg(s.run_id) INTO begun FROM started s;
    IF begun IS NOT NULL THEN
        counted := _sas.count_metric('transition', 0, 0, 'run pending running', cardinality(begun));
    END IF;
    RETURN begun;
END $$;

-- _sas.move_ended(run_ids): moves those of these runs from running to stopped, with success, that have no
-- step left to do, no output to build, no finalize step and no error. Returns them.
--
-- It writes what _sas.move_runs would write for the same end.
-- Caller: holds the lock of the runs. Writes: run. Next: _sas.end_runs does what follows.
CREATE FUNCTION _sas.move_ended(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[];
    counted int;
BEGIN
    WITH stopped AS (
        UPDATE _sas.run r
        SET state = (SELECT _sas.legal_state('run', 'running', 'stopped')),
            result = 'success', open_steps = 0, finished_at = sas.now(), overdue = NULL,
            paused_for = NULL, paused_by = NULL, paused_at = NULL, paused_state = NULL
        WHERE r.run_id = ANY (run_ids) AND r.state = 'running' AND r.error IS NULL
          AND (SELECT v.finalize_no IS NULL AND v.output IS NULL FROM _sas.workflow_version v
               WHERE v.version_id = r.version_id)
        RETURNING r.run_id)
    SELECT coalesce(array_agg(s.run_id), '{}') INTO ended FROM stopped s;
    IF ended <> '{}' THEN
        counted := _sas.count_metric('transition', 0, 0, 'run running stopped', cardinality(ended));
    END IF;
    RETURN ended;
END $$;

-- _sas.lock_runs(run_ids): locks those of these runs that no other transaction has locked, and returns
-- them. Never waits.
CREATE FUNCTION _sas.lock_runs(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    -- plpgsql keeps the plan; a function in SQL that is not inlined is planned again in each statement
    RETURN (SELECT coalesce(array_agg(l.run_id), '{}')
            FROM (SELECT r.run_id FROM _sas.run r WHERE r.run_id = ANY (run_ids)
                  ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED) l);
END $$;
