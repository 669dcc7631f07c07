-- SPDX-License-Identifier: PostgreSQL
--
-- Machine: which state may follow which, as data, and the functions that
-- alone write states: sas._move_steps and sas._move_runs for any change, and
-- beside them, since each step and each run goes through it once, one for each
-- first claim: sas._take_steps and sas._start_runs. Callers hold the lock of
-- every run that they change, or have just taken the step out of sas.ready.

CREATE TABLE sas.transition (
    subject text NOT NULL CHECK (subject IN ('run', 'step', 'watch')),
    from_state text NOT NULL,
    to_state text NOT NULL,
    comment text NOT NULL,
    PRIMARY KEY (subject, from_state, to_state)
);
COMMENT ON TABLE sas.transition IS 'The legal changes of state.';

INSERT INTO sas.transition VALUES
    ('run', 'none', 'scheduled', 'submitted, and something keeps it from beginning'),
    ('run', 'none', 'pending', 'submitted, its first steps are ready'),
    ('run', 'scheduled', 'pending', 'nothing keeps it from beginning any more'),
    ('run', 'scheduled', 'compensating', 'cancelled, too late, or the run that it was to follow failed'),
    ('run', 'scheduled', 'paused', 'an operator paused it before it began'),
    ('run', 'pending', 'running', 'a worker holds its first step'),
    ('run', 'pending', 'paused', 'an operator or a rule paused it'),
    ('run', 'pending', 'compensating', 'it cannot go on, what is done is undone'),
    ('run', 'running', 'paused', 'an operator or a rule paused it'),
    ('run', 'running', 'compensating', 'it cannot go on, what is done is undone'),
    ('run', 'running', 'stopped', 'all steps have ended, or an operator halted it'),
    ('run', 'paused', 'scheduled', 'resumed, what it waited for is looked at again'),
    ('run', 'paused', 'pending', 'resumed before its first claim'),
    ('run', 'paused', 'running', 'resumed'),
    ('run', 'paused', 'compensating', 'cancelled while paused, or its undo is resumed'),
    ('run', 'compensating', 'paused', 'an undo failed for good'),
    ('run', 'compensating', 'stopped', 'everything is undone, or an operator halted it'),
    ('run', 'scheduled', 'stopped', 'an operator halted it'),
    ('run', 'pending', 'stopped', 'an operator halted it'),
    ('run', 'paused', 'stopped', 'an operator halted it'),
    ('run', 'stopped', 'compensating', 'the run that it is a child of is undone, or an operator has it undone'),
    ('step', 'none', 'waiting', 'one of several that it waits for has ended'),
    ('step', 'none', 'ready', 'ready, but its run is paused'),
    ('step', 'none', 'running', 'claimed for the first time'),
    ('step', 'none', 'suspended', 'begins by waiting: for a signal, a time, its elements or a child run'),
    ('step', 'none', 'succeeded', 'needs no worker: an end of an include, or a point between the parts of a flow'),
    ('step', 'none', 'skipped', 'its condition is false, or a step before it was skipped with all that follows, or with what needs its output'),
    ('step', 'none', 'failed', 'it cannot begin'),
    ('step', 'none', 'cancelled', 'its run ended before it was claimed'),
    ('step', 'waiting', 'ready', 'the last that it waited for has ended'),
    ('step', 'waiting', 'waiting', 'another of several has ended'),
    ('step', 'waiting', 'skipped', 'a step before it was skipped with all that follows, or with what needs its output'),
    ('step', 'waiting', 'cancelled', 'its run cannot go on'),
    ('step', 'ready', 'running', 'claimed'),
    ('step', 'ready', 'ready', 'parked while its run is paused'),
    ('step', 'ready', 'suspended', 'begins by waiting: for a signal, a time, its elements or a child run'),
    ('step', 'ready', 'succeeded', 'needs no worker: an end of an include, or a point between the parts of a flow; or an operator completes it'),
    ('step', 'ready', 'skipped', 'its condition is false, or an operator skips it'),
    ('step', 'ready', 'cancelled', 'its run cannot go on'),
    ('step', 'ready', 'failed', 'it cannot begin, or its run cannot go on and its outcome is in doubt or not over'),
    ('step', 'running', 'succeeded', 'its worker reported success in time, or an operator completes it'),
    ('step', 'running', 'cancelled', 'its run was cancelled before its worker began'),
    ('step', 'running', 'failed', 'its worker reported failure, died or was silent past complete-by, or its call was stopped'),
    ('step', 'running', 'ready', 'given back by its worker, nothing counted'),
    ('step', 'running', 'suspended', 'given back by its worker until later, nothing counted, or begun and asked about later'),
    ('step', 'failed', 'suspended', 'cools off before another window, or leaves its work to its fallback'),
    ('step', 'failed', 'ready', 'an operator retries it, or its outcome is asked again before the undo'),
    ('step', 'failed', 'skipped', 'its failure is skipped'),
    ('step', 'failed', 'succeeded', 'an operator completes it'),
    ('step', 'failed', 'failed', 'its failure is final'),
    ('step', 'failed', 'compensating', 'in doubt, or begun and not over, so it is undone'),
    ('step', 'skipped', 'compensating', 'in doubt when its failure was skipped, so it is undone'),
    ('step', 'skipped', 'ready', 'in doubt when its failure was skipped, and its outcome is asked before the undo'),
    ('step', 'suspended', 'ready', 'its time has come'),
    ('step', 'suspended', 'succeeded', 'what it waited for has come, or an operator completes it'),
    ('step', 'suspended', 'skipped', 'an operator skips it'),
    ('step', 'suspended', 'failed', 'what it waited for failed or did not come in time, or its run cannot go on and its outcome is in doubt or not over'),
    ('step', 'suspended', 'cancelled', 'its run cannot go on'),
    ('step', 'succeeded', 'compensating', 'its undo is due'),
    ('step', 'compensating', 'compensating', 'its undo is claimed, failed or comes again'),
    ('step', 'compensating', 'compensated', 'its undo succeeded, or an operator completes it'),
    ('step', 'compensating', 'skipped', 'an operator skips its undo, or halts its run: what it did stands'),
    ('step', 'compensated', 'suspended', 'undone so that its fallback can be tried');

-- sas._move_steps(changes): the one writer of step states.
--
-- Inserts the rows whose from_state is 'none' and updates the others where
-- they still are in from_state. Raises when one of them is not, or when the
-- change is not in sas.transition: that is a mistake in sas.
CREATE FUNCTION sas._move_steps(changes sas._step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(changes), 0);
    inserted int := 0;
    updated int := 0;
BEGIN
    IF wanted = 0 THEN
        RETURN;
    END IF;
    INSERT INTO sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, transient, alone, parked,
                          needs_left, lease_id, request_id, complete_by, waiting_kind, waiting_until, completion,
                          started_at, finished_at, output, error)
    SELECT c.run_id, c.step_no, c.element, c.to_state, coalesce(c.attempt, 0), coalesce(c.failure_count, 0),
           coalesce(c.in_doubt, false), c.transient, coalesce(c.alone, false), coalesce(c.parked, false),
           c.needs_left, c.lease_id, c.request_id, c.complete_by, c.waiting_kind, c.waiting_until, c.completion,
           c.started_at, c.finished_at, c.output, c.error
    FROM unnest(changes) c
    WHERE c.from_state = 'none'
      AND EXISTS (SELECT FROM sas.transition t
                  WHERE t.subject = 'step' AND t.from_state = 'none' AND t.to_state = c.to_state);
    GET DIAGNOSTICS inserted = ROW_COUNT;

    IF inserted < wanted THEN
        UPDATE sas.step s
        SET state = c.to_state,
            attempt = coalesce(c.attempt, s.attempt),
            failure_count = coalesce(c.failure_count, s.failure_count),
            in_doubt = coalesce(c.in_doubt, s.in_doubt),
            transient = coalesce(c.transient, s.transient),
            alone = coalesce(c.alone, s.alone),
            needs_left = coalesce(c.needs_left, s.needs_left),
            output = coalesce(c.output, s.output),
            error = CASE WHEN c.to_state IN ('succeeded', 'compensated') THEN NULL ELSE coalesce(c.error, s.error) END,
            completion = coalesce(c.completion, s.completion),
            started_at = coalesce(s.started_at, c.started_at),
            finished_at = coalesce(c.finished_at, s.finished_at),
            lease_id = c.lease_id,
            request_id = c.request_id,
            complete_by = c.complete_by,
            parked = coalesce(c.parked, false),
            waiting_kind = c.waiting_kind,
            waiting_until = c.waiting_until
        FROM unnest(changes) c
        WHERE c.from_state <> 'none'
          AND s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element
          AND s.state = c.from_state
          AND EXISTS (SELECT FROM sas.transition t
                      WHERE t.subject = 'step' AND t.from_state = c.from_state AND t.to_state = c.to_state);
        GET DIAGNOSTICS updated = ROW_COUNT;
    END IF;

    IF inserted + updated <> wanted THEN
        RAISE EXCEPTION 'illegal change of step state'
            USING ERRCODE = 'internal_error',
                  DETAIL = (SELECT string_agg(format('run %s step %s: %s to %s', c.run_id, c.step_no, c.from_state, c.to_state), '; ')
                            FROM (SELECT * FROM unnest(changes) LIMIT 5) c);
    END IF;
    PERFORM sas._count_moves('step', changes);
END $$;

-- sas._take_steps(claimed, under_lease, at): steps are claimed, under that lease, at that time.
--
-- One that comes for the first time gets its row here; what is not in sas.transition gives the null that the row
-- refuses. The others are for sas._move_steps. Returns how many came for the first time.
CREATE FUNCTION sas._take_steps(claimed sas._claimed[], under_lease bigint, at timestamptz) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    inserted int;
    counted int;
BEGIN
    INSERT INTO sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, parked, lease_id, request_id, complete_by, started_at)
    SELECT c.run_id, c.step_no, c.element,
           (SELECT t.to_state FROM sas.transition t WHERE t.subject = 'step' AND t.from_state = 'none' AND t.to_state = 'running'),
           0, 0, false, c.alone, false, under_lease, c.request_id, at + c.complete_in, at
    FROM unnest(claimed) c WHERE c.from_state = 'none' AND NOT c.undo;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    IF inserted > 0 THEN
        counted := sas._count('transition', 0, 0, 'step none running', inserted);
    END IF;
    IF inserted < cardinality(claimed) THEN
        PERFORM sas._move_steps(array_agg(ROW(c.run_id, c.step_no, c.element, c.from_state, CASE WHEN c.undo THEN 'compensating' ELSE 'running' END,
                                              NULL, NULL, NULL, NULL, c.alone, NULL, NULL, NULL, NULL, at, NULL,
                                              under_lease, c.request_id, at + c.complete_in, NULL, NULL, NULL)::sas._step_change))
        FROM unnest(claimed) c WHERE c.from_state <> 'none' OR c.undo;
    END IF;
    RETURN inserted;
END $$;

-- sas._move_runs(changes): the one writer of run states.
--
-- A run that stops loses its deadline timer and its ready rows are gone
-- already; its reply queue hears of it, sas.wait callers are rung.
CREATE FUNCTION sas._move_runs(changes sas._run_change[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := coalesce(cardinality(changes), 0);
    updated int;
    rung bigint[];
    ended bigint[];
    resumed bigint[];
BEGIN
    IF wanted = 0 THEN
        RETURN;
    END IF;
    UPDATE sas.run r
    SET state = c.to_state,
        result = CASE WHEN c.from_state <> 'stopped' THEN coalesce(c.result, r.result) END,
        fate = coalesce(c.fate, r.fate),
        open_steps = coalesce(c.open_steps, r.open_steps),
        output = coalesce(c.output, r.output),
        error = coalesce(c.error, r.error),
        started_at = CASE WHEN c.to_state = 'running' THEN coalesce(r.started_at, sas._now()) ELSE r.started_at END,
        finished_at = CASE WHEN c.to_state = 'stopped' THEN sas._now() END,
        paused_for = c.paused_for,
        paused_by = c.paused_by,
        paused_at = CASE WHEN c.to_state = 'paused' THEN sas._now() END,
        paused_state = c.paused_state
    FROM unnest(changes) c
    WHERE r.run_id = c.run_id AND r.state = c.from_state
      AND EXISTS (SELECT FROM sas.transition t
                  WHERE t.subject = 'run' AND t.from_state = c.from_state AND t.to_state = c.to_state);
    GET DIAGNOSTICS updated = ROW_COUNT;
    IF updated <> wanted THEN
        RAISE EXCEPTION 'illegal change of run state'
            USING ERRCODE = 'internal_error',
                  DETAIL = (SELECT string_agg(format('run %s: %s to %s', c.run_id, c.from_state, c.to_state), '; ')
                            FROM (SELECT * FROM unnest(changes) LIMIT 5) c);
    END IF;

    PERFORM sas._count_moves('run', changes);
    IF EXISTS (SELECT FROM sas.workflow_hook) THEN
        PERFORM sas._fire_hooks(ARRAY(SELECT c.run_id FROM unnest(changes) c));
    END IF;
    SELECT array_agg(c.run_id) FILTER (WHERE c.to_state IN ('stopped', 'paused')), array_agg(c.run_id) FILTER (WHERE c.to_state = 'stopped'),
           array_agg(c.run_id) FILTER (WHERE c.from_state = 'paused' OR c.from_state = 'compensating' AND c.to_state = 'stopped')
    INTO rung, ended, resumed FROM unnest(changes) c;
    PERFORM sas._close_alerts_of(resumed) WHERE resumed IS NOT NULL;
    PERFORM sas._note_ends(ended) WHERE ended IS NOT NULL;
    IF rung IS NULL THEN
        RETURN;
    END IF;
    PERFORM sas._let_go(changes);
    DELETE FROM sas.due d
    USING unnest(changes) c, sas.run r
    WHERE c.to_state = 'stopped' AND r.run_id = c.run_id
      AND d.actor = 'v' AND d.due_at = r.deadline AND d.run_id = c.run_id AND d.kind = 'deadline';
    PERFORM sas._reply_to(rung);
    -- the step that waits for a child run; its run may be held by others now, so the scheduler looks
    INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', sas._now(), r.parent_run_id, 'child', r.parent_step_no, r.parent_element
    FROM sas.run r WHERE r.run_id = ANY (rung) AND r.parent_run_id IS NOT NULL AND r.state = 'stopped';
    PERFORM sas._ring('{}', FOUND, false, rung);
END $$;

-- sas._start_runs(run_ids): a claim or reply shows that those of them which are pending have begun.
--
-- Never waits: a session may hold a run; its reply starts it then. As sas._move_runs, for what every run goes through.
-- Returns how many have begun.
CREATE FUNCTION sas._start_runs(run_ids bigint[]) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    free tid[];
    begun bigint[];
    hooked boolean;
BEGIN
    IF run_ids IS NULL THEN
        RETURN 0;
    END IF;
    SELECT array_agg(l.ctid), array_agg(l.run_id), EXISTS (SELECT FROM sas.workflow_hook) INTO free, begun, hooked
    FROM (SELECT r.ctid, r.run_id FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.state = 'pending' FOR NO KEY UPDATE SKIP LOCKED) l;
    IF free IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE sas.run r
    SET state = (SELECT t.to_state FROM sas.transition t WHERE t.subject = 'run' AND t.from_state = 'pending' AND t.to_state = 'running'),
        started_at = coalesce(r.started_at, sas._now())
    WHERE r.ctid = ANY (free);
    IF hooked THEN
        PERFORM sas._fire_hooks(begun);
    END IF;
    RETURN sas._count('transition', 0, 0, 'run pending running', cardinality(free));
END $$;

-- sas._reply_to(run_ids): a message in the reply queue of each stopped run
-- that named one, and one NOTIFY per queue.
CREATE FUNCTION sas._reply_to(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM sas.run r WHERE r.run_id = ANY (run_ids) AND r.reply_to IS NOT NULL) THEN
        RETURN;
    END IF;
    INSERT INTO sas.reply (queue, owner, event, run_id, workflow, key, result, output, error, created_at)
    SELECT r.reply_to, r.owner, CASE WHEN r.result IN ('success', 'warning') THEN 'completed' ELSE 'failed' END,
           r.run_id, w.name, r.key, r.result, r.output, r.error, sas._now()
    FROM sas.run r
    JOIN sas.workflow_version v USING (version_id)
    JOIN sas.workflow w USING (workflow_id)
    WHERE r.run_id = ANY (run_ids) AND r.state = 'stopped' AND r.reply_to IS NOT NULL;
    PERFORM pg_notify('sas_reply', q.reply_to)
    FROM (SELECT DISTINCT reply_to FROM sas.run WHERE run_id = ANY (run_ids) AND state = 'stopped' AND reply_to IS NOT NULL) q;
END $$;

-- sas._lock_runs(run_ids): locks those that nobody else holds and returns them; never waits.
CREATE FUNCTION sas._lock_runs(run_ids bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    -- plpgsql keeps the plan; a function in SQL that is not inlined is planned anew by every statement
    RETURN (SELECT coalesce(array_agg(l.run_id), '{}')
            FROM (SELECT r.run_id FROM sas.run r WHERE r.run_id = ANY (run_ids) ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED) l);
END $$;

-- sas._make_ready(...): puts steps into the hot queue and rings their lanes.
--
-- Arrays of equal length. The rank is fixed here: ready_at minus priority
-- times sas.priority_step. Steps that need thought before they begin are told
-- to the scheduler instead, unless it has thought already (entered).
CREATE FUNCTION sas._make_ready(run_ids bigint[], step_nos int[], elements int[], undos boolean[], alones boolean[], entered boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    lanes int[];
    thought boolean;
    staged boolean;
BEGIN
    IF coalesce(cardinality(run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM sas.middleware m WHERE m.phase = 'call') THEN
        PERFORM sas._open_stages(run_ids, step_nos, elements, undos);
    END IF;
    staged := EXISTS (SELECT FROM sas.stage);
    WITH next AS (
        SELECT u.*, CASE WHEN coalesce(w.queue_id, r.queue_id) > 0 THEN -coalesce(w.queue_id, r.queue_id)
                         WHEN staged THEN sas._lane_now(u.run_id, u.step_no, u.element, u.undo, w.lane) ELSE w.lane END AS lane, r.priority + w.priority AS priority, NOT entered AND w.enters AND (u.element = 0 OR w.elements_enter)
               AND (w.kind = 'workflow' OR NOT EXISTS (SELECT FROM sas.step s WHERE s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element AND s.attempt > 0)) AS enters
        FROM unnest(run_ids, step_nos, elements, undos, alones) AS u (run_id, step_no, element, undo, alone)
        JOIN sas.run r ON r.run_id = u.run_id
        CROSS JOIN LATERAL (SELECT s.kind, s.lane, s.priority, s.queue_id, s.enters, s.elements_enter FROM sas.workflow_step s
                            WHERE s.version_id = r.version_id AND s.step_no = u.step_no AND s.undo = u.undo OFFSET 0) w),
    put AS (
        INSERT INTO sas.ready (run_id, step_no, element, lane, rank, ready_at, undo, alone)
        SELECT n.run_id, n.step_no, n.element, n.lane, now - n.priority * sas._priority_step(), now, n.undo, n.alone
        -- what gets the same rank is claimed in this order, mostly
        FROM next n WHERE NOT n.enters ORDER BY n.run_id, n.step_no, n.element
        RETURNING lane),
    told AS (
        INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
        SELECT 's', now, n.run_id, 'enter', n.step_no, n.element FROM next n WHERE n.enters
        RETURNING 1)
    SELECT (SELECT array_agg(DISTINCT lane) FROM put), EXISTS (SELECT FROM told) INTO lanes, thought;
    IF 0 < ANY (lanes) THEN
        lanes := sas._tell_outside(lanes);
    END IF;
    IF 0 > ANY (lanes) THEN
        PERFORM sas._ring_queues(lanes);
    ELSE
        PERFORM sas._ring(lanes, thought, false, '{}');
    END IF;
END $$;

-- The same for forward steps that come for the first time. elements null: steps as a whole.
CREATE FUNCTION sas._make_ready(run_ids bigint[], step_nos int[], elements int[] DEFAULT NULL, entered boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(cardinality(run_ids), 0) > 0 THEN
        PERFORM sas._make_ready(run_ids, step_nos, coalesce(elements, array_fill(0, ARRAY[cardinality(run_ids)])),
                                array_fill(false, ARRAY[cardinality(run_ids)]), array_fill(false, ARRAY[cardinality(run_ids)]), entered);
    END IF;
END $$;

-- sas._step_key(...): the Idempotency-Key of a step: the same in every
-- attempt, another one for its undo.
CREATE FUNCTION sas._step_key(trace uuid, step text, element int, undo boolean) RETURNS text
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_step_key';

-- sas._token(run_id, trace, step_no): what ends the wait of this step from outside: known to whom it is given only.
CREATE FUNCTION sas._token(run_id bigint, trace uuid, step_no int) RETURNS text
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN (SELECT format('%s-%s-%s', $1, $3, left(encode(sha256(convert_to(format('%s %s %s %s', k.value, $1, $2, $3), 'UTF8')), 'hex'), 40)) FROM sas.token_key k);
END $$;

-- sas._steps_of(run_id, version_id, trace, reads, own_no, own_element): what templates see under "steps". An element of
-- step own_no sees its own result under the name of its step. One row; a set, so that it is
-- planned as part of the statement that asks, and not started anew for each step.
CREATE FUNCTION sas._steps_of(for_run bigint, for_version int, trace uuid, reads int[], own_no int, own_element int) RETURNS TABLE (steps jsonb)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(w.local_name,
                       jsonb_build_object('key', coalesce((SELECT k.key FROM sas.edit k WHERE k.run_id = for_run AND k.step_no = w.step_no AND k.element = e.element), sas._step_key(trace, w.name, e.element, false)),
                                          'state', coalesce(s.state, 'waiting'),
                                          'failed', coalesce(s.state = 'failed', false))
                       || CASE WHEN s.started IS NOT NULL
                               THEN jsonb_build_object('started', s.started) || CASE WHEN s.output IS NULL THEN '{}' ELSE jsonb_build_object('output', s.output) END
                               WHEN s.output IS NULL THEN '{}'
                               -- the reply to the call of a poll, which was not what was expected
                               WHEN w.shape ? 'poll' AND NOT w.shape ?| '{each,repeat}' OR w.shape ? 'poll' AND e.element > 0 THEN jsonb_build_object('output', s.output, 'started', s.output)
                               ELSE jsonb_build_object('output', s.output) END
                       || CASE WHEN w.kind = 'wait' THEN jsonb_build_object('token', sas._token(for_run, trace, w.step_no)) ELSE '{}' END), '{}')
    FROM unnest(reads) AS n (step_no)
    CROSS JOIN LATERAL (SELECT x.step_no, x.name, x.local_name, x.shape, x.kind FROM sas.workflow_step x WHERE x.version_id = for_version AND x.step_no = n.step_no AND NOT x.undo OFFSET 0) w
    CROSS JOIN LATERAL (SELECT CASE WHEN w.step_no = own_no THEN own_element ELSE 0 END AS element) e
    LEFT JOIN LATERAL (SELECT x.state, x.started, x.output FROM sas.step x WHERE x.run_id = for_run AND x.step_no = w.step_no AND x.element = e.element OFFSET 0) s ON true
$$;

-- sas._run_context(run, step name, reads): the root that the paths of a run's output and finalize start from. reads
-- null: all steps but those inside an include.
CREATE FUNCTION sas._run_context(r sas.run, step text, reads int[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT sas._root(r.input, NULL, sas._step_key(r.trace, step, 0, false), r.run_id, r.key, r.labels, r.created_at, r.deadline,
        CASE WHEN reads = '{}' THEN '{}'::jsonb
             ELSE (SELECT x.steps FROM sas._steps_of(r.run_id, r.version_id, r.trace,
                       coalesce(reads, ARRAY(SELECT w.step_no FROM sas.workflow_step w WHERE w.version_id = r.version_id AND NOT w.undo AND NOT w.hidden AND strpos(w.name, '.') = 0)), NULL, 0) x) END)
$$;

-- sas._root_of(run, step, element): the root that the paths of a step, or of its undo, start from. A set of one row, as sas._steps_of.
-- An element of a map does not carry along what the map goes over: a list of many would be copied as often.
CREATE FUNCTION sas._root_of(r sas.run, w sas.workflow_step, element int) RETURNS TABLE (root jsonb)
LANGUAGE sql STABLE AS $$
    SELECT sas._root(
        -- the input of an included workflow may be of any type
        CASE WHEN w.scope_no IS NOT NULL THEN (SELECT o.output FROM sas.step o WHERE o.run_id = r.run_id AND o.step_no = w.scope_no AND o.element = 0) ELSE r.input END,
        CASE WHEN NOT w.enters OR element > 0 THEN w.input_reads END,
        coalesce((SELECT CASE WHEN w.undo THEN k.undo_key ELSE k.key END FROM sas.edit k WHERE k.run_id = r.run_id AND k.step_no = w.step_no AND k.element = $3), sas._step_key(r.trace, w.name, element, w.undo)),
        r.run_id, r.key, r.labels, r.created_at, r.deadline,
        CASE WHEN w.enters AND element = 0 AND NOT w.undo AND w.enter_reads <> '{}'
             THEN (SELECT x.steps FROM sas._steps_of(r.run_id, r.version_id, r.trace, w.reads || w.enter_reads, w.step_no, element) x)
             WHEN w.reads = '{}' THEN '{}'::jsonb ELSE (SELECT x.steps FROM sas._steps_of(r.run_id, r.version_id, r.trace, w.reads, w.step_no, element) x) END)
        || CASE WHEN element > 0
                THEN (SELECT jsonb_build_object(
                          'index', element - 1,
                          'item', (SELECT i.item FROM sas.item i WHERE i.run_id = r.run_id AND i.step_no = f.no AND i.element = $3),
                          'last', (SELECT s.output FROM sas.step s WHERE s.run_id = r.run_id AND s.step_no = f.no AND s.element = $3 - 1 AND $3 > 1))
                      FROM (SELECT coalesce((w.shape ->> 'stands_in')::int, w.step_no) AS no OFFSET 0) f)
                ELSE '{}' END
$$;

-- sas._context(run, step, element): the same for one step, where there are few.
CREATE FUNCTION sas._context(r sas.run, w sas.workflow_step, element int) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT x.root FROM sas._root_of(r, w, element) x);
END $$;

-- sas._shown_name(name): the name under which a step is shown: the open end of an include is told as the include.
CREATE FUNCTION sas._shown_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT replace(name, '.(input)', '')
$$;

-- sas._problem_object(...): an error as RFC 9457 has it.
CREATE FUNCTION sas._problem_object(kind text, title text, detail text, status int, run_id bigint, step text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'type', 'urn:sas:' || kind, 'title', title, 'detail', detail, 'status', status,
        'instance', '/runs/' || run_id || coalesce('/steps/' || sas._shown_name(step), '')))
$$;
