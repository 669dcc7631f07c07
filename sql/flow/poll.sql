-- SPDX-License-Identifier: PostgreSQL
--
-- Polls: a call that starts a job at a service, and status requests until the job has finished. Between two
-- requests the step is suspended and holds no worker. _sas.step.asks is not null once the call has
-- succeeded; _sas.step.started is the reply to it. An undo that polls has a phase for that: the row of the
-- step still describes what is undone.

-- _sas.poll_of(s): what is known of the poll of a step, or of its undo if it is being undone: the reply to
-- its call, the number of status requests, and when it fails. asks is null until the call has succeeded.
CREATE FUNCTION _sas.poll_of(s _sas.step) RETURNS TABLE (started jsonb, asks int, ask_until timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT s.started, s.asks, s.ask_until WHERE s.state <> 'compensating'
    UNION ALL
    SELECT g.response, g.asks, g.ask_until FROM _sas.phase g
    WHERE s.state = 'compensating' AND g.run_id = s.run_id AND g.step_no = s.step_no
      AND g.element = s.element AND g.undo AND g.stage = 'poll'
$$;

-- _sas.asks_until(s): when it fails. Not part of the statement that calls it: few steps are polls that are
-- being undone.
CREATE FUNCTION _sas.asks_until(s _sas.step) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT o.ask_until FROM _sas.poll_of(s) o);
END $$;

-- _sas.ask_next(poll, asks, ask_until, now): when the next status request is due. The pause doubles from
-- request to request.
CREATE FUNCTION _sas.ask_next(poll jsonb, asks int, ask_until timestamptz, now timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least(now + least((poll ->> 'max_every')::interval,
                             (poll ->> 'every')::interval * (2 ^ least(coalesce(asks + 1, 0), 30))),
                 CASE WHEN asks IS NULL THEN now + (poll ->> 'timeout')::interval ELSE ask_until END)
$$;

-- _sas.judge_poll(r, w, element, verdict, reply): what a reply to the call or to a status request of a poll
-- means. If the job has finished, the step has succeeded, and the result has its output.
CREATE FUNCTION _sas.judge_poll(r _sas.run, w _sas.workflow_step, element int, verdict text, reply jsonb)
RETURNS _sas.asked
LANGUAGE plpgsql STABLE AS $$
DECLARE
    known record;
    result _sas.asked;
    met boolean;
    root jsonb;
    reason text;
    made record;
BEGIN
    SELECT o.* INTO known FROM _sas.step s CROSS JOIN LATERAL _sas.poll_of(s) o
    WHERE s.run_id = r.run_id AND s.step_no = w.step_no AND s.element = $3;
    result.asks := known.asks IS NOT NULL;
    result.next_at := _sas.ask_next(w.shape -> 'poll', known.asks, known.ask_until, sas.now());
    result.verdict := CASE WHEN verdict <> 'done' THEN verdict WHEN result.asks THEN 'asked'
                           ELSE 'started' END;
    IF result.verdict <> 'asked' THEN
        RETURN result;
    END IF;
    root := _sas.context(r, w, element) || jsonb_build_object('started', known.started, 'output', reply);
    SELECT p.met, p.reason INTO met, reason FROM _sas.predicate(w.shape #>> '{poll,until}', root) p;
    IF met IS NULL THEN
        result.verdict := 'permanent';
        result.error := _sas.problem_object('poll', _sas.neither('"until"', reason),
                                            w.shape #>> '{poll,until}', (reply ->> 'status')::int, r.run_id,
                                            w.name);
    ELSIF NOT met AND known.ask_until <= sas.now() THEN
        result.verdict := 'permanent';
        result.error := _sas.late_poll(r.run_id, w);
    ELSIF met THEN
        SELECT o.result, o.problem INTO made FROM _sas.render(w.output, root) o WHERE w.output IS NOT NULL;
        result.verdict := CASE WHEN made.problem IS NULL THEN 'done' ELSE 'permanent' END;
        result.output := CASE WHEN w.output IS NULL THEN reply ELSE made.result END;
        result.error := _sas.output_error(made.problem, r.run_id, w.name);
    END IF;
    RETURN result;
END $$;

-- _sas.late_poll(run_id, w): the error of a poll that did not finish in time.
CREATE FUNCTION _sas.late_poll(run_id bigint, w _sas.workflow_step) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.problem_object('timeout', 'it did not finish in time', w.shape #>> '{poll,timeout}', NULL,
                               run_id, w.name)
$$;

-- _sas.note_asks(replies, changes, verdicts): stores what the replies to calls and status requests of polls
-- say: the reply to the call, the number of requests, the progress. Also stores the attempt that has
-- started the job, because failed requests count on from it. Arrays of equal length.
-- Writes: attempt, step, phase.
CREATE FUNCTION _sas.note_asks(replies _sas.call_reply[], changes _sas.step_change[], verdicts text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, status, http_status,
                              started_at, finished_at)
    SELECT s.run_id, s.step_no, s.element, 1, false, w.lane, 'succeeded', (u.output ->> 'status')::int,
        s.started_at, now
    FROM _sas.asks_of(replies, changes, verdicts) u
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    JOIN _sas.run r ON r.run_id = u.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
    WHERE u.verdict = 'started' AND NOT u.undo AND s.attempt = 1;
    UPDATE _sas.step s
    SET started = CASE a.verdict WHEN 'started' THEN a.output ELSE s.started END,
        asks = coalesce(s.asks + 1, 0),
        ask_until = CASE a.verdict WHEN 'started' THEN now + ((a.def).shape #>> '{poll,timeout}')::interval
            ELSE s.ask_until END,
        progress = coalesce(_sas.reported_progress(a.r, a.def, s, a.output), s.progress)
    FROM (SELECT u.*, r, w AS def FROM _sas.asks_of(replies, changes, verdicts) u
          JOIN _sas.run r ON r.run_id = u.run_id
          CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no) w
          WHERE NOT u.undo OFFSET 0) a
    WHERE s.run_id = a.run_id AND s.step_no = a.step_no AND s.element = a.element;
    INSERT INTO _sas.phase AS g (run_id, step_no, element, undo, stage, response, asks, ask_until)
    SELECT u.run_id, u.step_no, u.element, true, 'poll', u.output, 0,
           now + (w.shape #>> '{poll,timeout}')::interval
    FROM _sas.asks_of(replies, changes, verdicts) u
    JOIN _sas.run r ON r.run_id = u.run_id
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, u.step_no, true) w
    WHERE u.undo AND u.undoes
    ON CONFLICT (run_id, step_no, element, undo) DO UPDATE SET asks = g.asks + 1;
END $$;

-- _sas.asks_of(replies, changes, verdicts): the steps among these whose poll goes on, with the output of
-- their reply. undo: it was the undo that was polled; undoes: and it is not over.
CREATE FUNCTION _sas.asks_of(replies _sas.call_reply[], changes _sas.step_change[], verdicts text[])
RETURNS TABLE (run_id bigint, step_no int, element int, verdict text, output jsonb, undo boolean,
               undoes boolean)
LANGUAGE sql IMMUTABLE AS $$
    SELECT (u.c).run_id, (u.c).step_no, (u.c).element, u.v, (u.p).output, (u.c).from_state = 'compensating',
           (u.c).to_state = 'compensating'
    FROM (SELECT unnest($1) AS p, unnest($2) AS c, unnest($3) AS v) u
    WHERE u.v IN ('started', 'asked')
$$;

-- _sas.end_undo_polls(changes): deletes what was noted of the polls of those undos that have ended.
-- Writes: phase.
CREATE FUNCTION _sas.end_undo_polls(changes _sas.step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(changes) c WHERE c.to_state IN ('compensated', 'skipped')) THEN
        DELETE FROM _sas.phase g USING unnest(changes) c
        WHERE c.to_state IN ('compensated', 'skipped') AND g.run_id = c.run_id AND g.step_no = c.step_no
          AND g.element = c.element AND g.undo AND g.stage = 'poll';
    END IF;
END $$;

-- _sas.reported_progress(r, w, s, reply): the progress that the reply to a status request reports. Null if
-- it reports no number.
CREATE FUNCTION _sas.reported_progress(r _sas.run, w _sas.workflow_step, s _sas.step, reply jsonb)
RETURNS float8
LANGUAGE plpgsql STABLE AS $$
DECLARE
    told jsonb;
BEGIN
    IF s.asks IS NULL OR NOT w.shape -> 'poll' ? 'progress' THEN
        RETURN NULL;
    END IF;
    SELECT o.result INTO told
    FROM _sas.render(w.shape #> '{poll,progress}',
                     _sas.context(r, w, s.element)
                     || jsonb_build_object('started', s.started, 'output', reply)) o;
    RETURN CASE WHEN jsonb_typeof(told) = 'number' THEN least(greatest(told::numeric, 0), 1)::float8 END;
END $$;

-- _sas.end_polls(run_ids, step_nos, elements): fails those of these steps, whose next status request is
-- due, that have exceeded their timeout. In a paused run no request is made, and no poll fails.
CREATE FUNCTION _sas.end_polls(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    late record;
BEGIN
    SELECT array_agg(s.run_id) AS run_ids, array_agg(s.step_no) AS step_nos,
        array_agg(s.element) AS elements, array_agg(_sas.late_poll(s.run_id, w)) AS errors INTO late
    FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
    CROSS JOIN LATERAL _sas.step_row(u.run_id, u.step_no, u.element) s
    JOIN _sas.run r ON r.run_id = u.run_id AND r.state <> 'paused'
        AND (r.abandon_as IS NULL OR s.state = 'compensating')
    CROSS JOIN LATERAL _sas.step_definition(r.version_id, s.step_no, s.state = 'compensating') w
    CROSS JOIN LATERAL _sas.poll_of(s) o
    WHERE w.shape ? 'poll' AND s.state IN ('ready', 'compensating') AND s.request_id IS NULL
      AND o.ask_until <= sas.now();
    IF late.run_ids IS NOT NULL THEN
        PERFORM _sas.take_ready_steps(late.run_ids, late.step_nos, late.elements);
        PERFORM _sas.fail_steps(late.run_ids, late.step_nos, late.elements, late.errors);
    END IF;
END $$;

-- _sas.ask_anew(run_ids): restarts the timeout of polls that have exceeded it, when these runs are resumed.
-- Writes: step, phase.
CREATE FUNCTION _sas.ask_anew(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.step s SET ask_until = sas.now() + (w.shape #>> '{poll,timeout}')::interval
    FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
        AND w.shape ? 'poll'
    WHERE r.run_id = ANY (run_ids) AND r.abandon_as IS NULL
      AND s.run_id = r.run_id AND s.step_no = w.step_no AND s.state = 'ready' AND s.ask_until <= sas.now();
    UPDATE _sas.phase g SET ask_until = sas.now() + (w.shape #>> '{poll,timeout}')::interval
    FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.undo AND w.shape ? 'poll'
    WHERE r.run_id = ANY (run_ids)
      AND g.run_id = r.run_id AND g.step_no = w.step_no AND g.undo AND g.ask_until <= sas.now();
END $$;
