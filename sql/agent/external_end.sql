-- SPDX-License-Identifier: PostgreSQL
--
-- The ends of claims by outside programs: what they reply becomes state, a batch at a time, in the way of all
-- replies (README.md).

-- _sas.answer_claims(slots, free, replies): ends these claims as _sas.end_claims does, now or when the run is
-- free; each reply is that of the slot at its position. Returns the request_ids whose reply counts: of the
-- others the time has just expired, or they have a reply already.
CREATE FUNCTION _sas.answer_claims(slots _sas.external_slot[], free boolean[], replies _sas.call_reply[])
RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    left_over _sas.call_reply[];
    lost uuid[];
    counted uuid[] := '{}';
BEGIN
    IF true = ALL (free) THEN
        RETURN _sas.end_claims(slots, replies);
    END IF;
    SELECT array_agg(x.p) FILTER (WHERE x.f), array_agg(x.u) FILTER (WHERE x.f),
        array_agg(x.u) FILTER (WHERE NOT x.f)
    INTO slots, replies, left_over
    FROM (SELECT unnest(slots) AS p, unnest(free) AS f, unnest(replies) AS u) x;
    IF slots IS NOT NULL THEN
        counted := _sas.end_claims(slots, replies);
    END IF;
    SELECT a.lost INTO lost FROM _sas.leave_answers(left_over, sas.now()) a;
    RETURN counted || ARRAY(SELECT u.request_id FROM unnest(left_over) u WHERE u.request_id <> ALL (lost));
END $$;

-- _sas.end_claims(slots, replies): ends these claims: writes the replies and the attempts, and frees the
-- slots; each reply is that of the slot at its position. Returns the request_ids whose reply counted: of the
-- others the time has just expired.
--   holds   the locks of the runs
--   writes  step, attempt, task, external_slot, and what _sas.write_replies writes
--   next    as after every reply; a free slot wakes programs that wait for one
CREATE FUNCTION _sas.end_claims(slots _sas.external_slot[], replies _sas.call_reply[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
    lost int[];
    ended _sas.external_slot[];
    ends _sas.claim_end[];
BEGIN
    IF EXISTS (SELECT FROM unnest(replies) u WHERE u.verdict IN ('again', 'hand_back')) THEN
        replies := _sas.settle_given_up(slots, replies);
    END IF;
    IF EXISTS (SELECT FROM unnest(slots) p WHERE p.extended_by IS NOT NULL) THEN
        -- the time to which a heartbeat has extended a claim while another session held the run
        UPDATE _sas.step x SET complete_by = p.extended_by
        FROM unnest(slots) p
        WHERE x.run_id = p.run_id AND x.step_no = p.step_no AND x.element = p.element
          AND x.request_id = p.request_id AND x.complete_by < p.extended_by;
    END IF;
    lost := _sas.write_replies(
        ARRAY(SELECT _sas.make_call_reply(
                  run_id => u.run_id, step_no => u.step_no, element => u.element, request_id => u.request_id,
                  verdict => CASE WHEN u.verdict = 'again' THEN 'hand_back' ELSE u.verdict END,
                  attempt => (u.verdict <> 'hand_back')::int, output => u.output, error => u.error,
                  again_in => u.again_in, arrived_at => coalesce(u.arrived_at, now))
              FROM unnest(replies) u),
        ARRAY(SELECT DISTINCT p.lease_id FROM unnest(slots) p));
    -- an earlier reply to the same claim, which waited for the run, may have ended it just now
    SELECT array_agg(x.p),
        array_agg(ROW(x.p, (x.u).verdict, coalesce((x.u).error, s.error), coalesce((x.u).arrived_at, now),
                      s.workflow_id, s.state, s.attempt,
                      (x.u).verdict = 'done' AND s.state IN ('succeeded', 'compensated'))::_sas.claim_end)
            FILTER (WHERE NOT x.n = ANY (lost))
    INTO ended, ends
    FROM (SELECT unnest(slots) AS p, unnest(replies) AS u, generate_subscripts(slots, 1) AS n) x
    CROSS JOIN LATERAL (SELECT t.error, t.state, t.attempt, v.workflow_id
                        FROM _sas.step t JOIN _sas.run r ON r.run_id = t.run_id
                        JOIN _sas.workflow_version v ON v.version_id = r.version_id
                        WHERE t.run_id = (x.p).run_id AND t.step_no = (x.p).step_no
                            AND t.element = (x.p).element
                            AND t.request_id IS DISTINCT FROM (x.p).request_id OFFSET 0) s;
    IF ended IS NOT NULL THEN
        PERFORM _sas.free_external_slots(ended);
    END IF;
    IF ends IS NULL THEN
        RETURN '{}';
    END IF;
    PERFORM _sas.observe_claims(ends);
    PERFORM _sas.note_claims(ends);
    RETURN ARRAY(SELECT ((e).slot).request_id FROM unnest(ends) e);
END $$;

-- _sas.settle_given_up(slots, replies): these replies; a program that gives up a task of a run that cannot
-- continue, which an earlier claim has left in doubt, has failed: so the supervisor settles it.
CREATE FUNCTION _sas.settle_given_up(slots _sas.external_slot[], replies _sas.call_reply[])
RETURNS _sas.call_reply[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE WHEN (x.u).verdict IN ('again', 'hand_back') AND NOT (x.p).undo AND NOT (x.p).settles
                         AND EXISTS (SELECT FROM _sas.run r JOIN _sas.step s USING (run_id)
                                     WHERE r.run_id = (x.p).run_id AND r.abandon_as IS NOT NULL
                                         AND s.step_no = (x.p).step_no AND s.element = (x.p).element
                                         AND s.in_doubt)
               THEN _sas.make_call_reply(
                   run_id => (x.u).run_id, step_no => (x.u).step_no, element => (x.u).element,
                   request_id => (x.u).request_id, verdict => 'transient', output => (x.u).output,
                   error => coalesce((x.u).error,
                                     _sas.problem_object('task', 'the task was given up', NULL, NULL,
                                                         (x.p).run_id, NULL)),
                   again_in => (x.u).again_in, arrived_at => (x.u).arrived_at)
               ELSE x.u END
        FROM (SELECT unnest(slots) AS p, unnest(replies) AS u) x);
END $$;

-- _sas.observe_claims(ends): how long these claims took, in the metrics of calls and of steps.
CREATE FUNCTION _sas.observe_claims(ends _sas.claim_end[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _sas.observe(o.metric, array_agg((o.e).slot.agent_id), array_agg((o.e).workflow_id),
                         array_agg(CASE WHEN o.metric = 'call'
                                   THEN CASE WHEN (o.e).ok THEN 'succeeded' ELSE 'failed' END
                                   WHEN (o.e).verdict = 'again' THEN 'hand_back' ELSE (o.e).verdict END),
                         array_agg(extract(epoch FROM (o.e).arrived_at - (o.e).slot.claimed_at)::float8))
    FROM (SELECT m AS metric, e FROM unnest(ends) e CROSS JOIN unnest('{call,step}'::text[]) m) o
    WHERE o.metric = 'step' OR (o.e).verdict <> 'hand_back'
    GROUP BY o.metric;
END $$;

-- _sas.note_claims(ends): writes the attempts, and what the next claim of each task has to know: what was
-- left for it is kept until one succeeds; a counted failure ends a series of attempts. A first attempt that
-- succeeded is only in the row of its step.
-- Writes: attempt, task.
CREATE FUNCTION _sas.note_claims(ends _sas.claim_end[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, error,
                              started_at, finished_at)
    SELECT (e.slot).run_id, (e.slot).step_no, (e.slot).element, e.attempt, (e.slot).undo, (e.slot).agent_id,
        (e.slot).worker, CASE WHEN e.ok THEN 'succeeded' ELSE 'failed' END,
        CASE WHEN NOT e.ok THEN _sas.at_element(e.error, (e.slot).element) END, (e.slot).claimed_at,
        e.arrived_at
    FROM unnest(ends) e
    WHERE e.verdict <> 'hand_back' AND NOT (e.state = 'succeeded' AND e.attempt = 1);
    IF EXISTS (SELECT FROM _sas.task t WHERE t.run_id = ANY (ARRAY(SELECT (e.slot).run_id
                                                                   FROM unnest(ends) e))) THEN
        DELETE FROM _sas.task t USING unnest(ends) e
        WHERE e.state IN ('succeeded', 'compensated')
          AND t.run_id = (e.slot).run_id AND t.step_no = (e.slot).step_no AND t.element = (e.slot).element
          AND t.undo = (e.slot).undo AND t.lapsed IS NULL;
        UPDATE _sas.task t SET checkpoint = NULL, progress = NULL, tries = 0
        FROM unnest(ends) e
        WHERE e.state IN ('succeeded', 'compensated')
          AND t.run_id = (e.slot).run_id AND t.step_no = (e.slot).step_no AND t.element = (e.slot).element
          AND t.undo = (e.slot).undo;
    END IF;
    INSERT INTO _sas.task AS t (run_id, step_no, element, undo, tries)
    SELECT (e.slot).run_id, (e.slot).step_no, (e.slot).element, (e.slot).undo, (e.verdict = 'again')::int
    FROM unnest(ends) e
    WHERE e.verdict <> 'hand_back' AND NOT e.state IN ('succeeded', 'compensated')
    ON CONFLICT (run_id, step_no, element, undo)
    DO UPDATE SET tries = CASE WHEN EXCLUDED.tries > 0 THEN t.tries + 1 ELSE 0 END;
END $$;

-- _sas.complete_claims(caller, request_ids, outputs): completes these tasks. Returns those whose claim held.
-- A request_id that is named twice counts once, with its first output.
CREATE FUNCTION _sas.complete_claims(caller oid, request_ids uuid[], outputs jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    c record := _sas.lock_claims(caller, request_ids, true);
BEGIN
    IF c.slots IS NULL THEN
        RETURN '{}';
    END IF;
    RETURN _sas.answer_claims(c.slots, c.free, ARRAY(
        SELECT _sas.make_call_reply(
            run_id => p.run_id, step_no => p.step_no, element => p.element, request_id => p.request_id,
            verdict => 'done', output => coalesce(outputs[array_position(request_ids, p.request_id)], 'null'),
            arrived_at => c.arrived_at)
        FROM unnest(c.slots) WITH ORDINALITY AS p ORDER BY p.ordinality));
END $$;

-- _sas.complete_as(caller, request_id, output): the body of sas.complete. Returns whether the claim held.
-- Locks: the run, see _sas.complete_claims.
CREATE FUNCTION _sas.complete_as(caller oid, request_id uuid, output jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM _sas.check_size(output, _sas.max_output_size(), '/output', 'the output');
    RETURN _sas.complete_claims(caller, ARRAY[request_id], ARRAY[output]) <> '{}';
END $$;

-- _sas.complete_tasks_as(caller, request_ids, outputs): the body of sas.complete_tasks.
CREATE FUNCTION _sas.complete_tasks_as(caller oid, request_ids uuid[], outputs jsonb[]) RETURNS boolean[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    counted uuid[];
BEGIN
    PERFORM _sas.check_task_lists(request_ids, outputs);
    -- whatever their subscripts are, from here on they begin with one
    request_ids := ARRAY(SELECT unnest(request_ids));
    outputs := ARRAY(SELECT unnest(outputs));
    counted := _sas.complete_claims(caller, request_ids, outputs);
    RETURN ARRAY(SELECT q IS NOT NULL AND q = ANY (counted) AND array_position(request_ids, q) = o.ordinality
                 FROM unnest(request_ids) WITH ORDINALITY AS o (q) ORDER BY o.ordinality);
END $$;

-- _sas.check_task_lists(request_ids, outputs): raises an error if they are not two lists of one length.
CREATE FUNCTION _sas.check_task_lists(request_ids uuid[], outputs jsonb[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted int := cardinality(request_ids);
BEGIN
    IF request_ids IS NULL OR outputs IS NULL THEN
        RAISE EXCEPTION 'request_ids and outputs must not be null'
            USING ERRCODE = 'null_value_not_allowed',
            DETAIL = CASE WHEN request_ids IS NULL THEN 'At /request_ids.' ELSE 'At /outputs.' END,
            HINT = 'Give an output for each request_id, null where there is none.';
    ELSIF array_ndims(request_ids) > 1 OR array_ndims(outputs) > 1 OR cardinality(outputs) <> wanted THEN
        RAISE EXCEPTION 'the number of request_ids (%) differs from the number of outputs (%)',
            wanted, cardinality(outputs)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'At /outputs.',
            HINT = 'Give an output for each request_id, in lists of one dimension.';
    ELSIF wanted > 1000 THEN
        RAISE EXCEPTION 'at most 1000 tasks can be completed together'
            USING ERRCODE = 'program_limit_exceeded', DETAIL = 'At /request_ids.',
            HINT = 'Complete them in several calls.';
    END IF;
    PERFORM _sas.check_size(o.output, _sas.max_output_size(),
                            format('/outputs/%s', o.ordinality - 1), 'the output')
    FROM unnest(outputs) WITH ORDINALITY AS o (output);
END $$;
