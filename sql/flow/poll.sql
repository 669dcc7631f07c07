-- SPDX-License-Identifier: PostgreSQL
--
-- Polls: a call that starts a job at a service, and status requests until the job has finished. Between two
-- requests the step is suspended and holds no worker. _sas.step.asks is not null once the call has
-- succeeded; _sas.step.started is the reply to it.

-- _sas.ask_next(poll, s, now): when the next status request is due. The pause doubles from request to
-- request.
CREATE FUNCTION _sas.ask_next(poll jsonb, s _sas.step, now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least(now + least((poll ->> 'max_every')::interval,
                             (poll ->> 'every')::interval * (2 ^ least(coalesce(s.asks + 1, 0), 30))),
                 CASE WHEN s.asks IS NULL THEN now + (poll ->> 'timeout')::interval ELSE s.ask_until END)
$$;

-- _sas.evaluate_poll(r, w, s, reply): has the job finished? If it has, the step has succeeded, and the
-- result has its output.
CREATE FUNCTION _sas.evaluate_poll(r _sas.run, w _sas.workflow_step, s _sas.step, reply jsonb)
RETURNS _sas.asked
LANGUAGE plpgsql STABLE AS $$
DECLARE
    root jsonb := _sas.context(r, w, s.element) || jsonb_build_object('started', s.started, 'output', reply);
    over boolean;
    reason text;
    made record;
BEGIN
    SELECT p.met, p.reason INTO over, reason FROM _sas.predicate(w.shape #>> '{poll,until}', root) p;
    IF over IS NULL THEN
        RETURN ROW('permanent', NULL, _sas.problem_object('poll', _sas.neither('"until"', reason),
                                                          w.shape #>> '{poll,until}',
                                                          (reply ->> 'status')::int, r.run_id,
                                                          w.name))::_sas.asked;
    ELSIF NOT over AND s.ask_until <= sas.now() THEN
        RETURN ROW('permanent', NULL, _sas.late_poll(r.run_id, w))::_sas.asked;
    ELSIF NOT over THEN
        RETURN ROW('asked', NULL, NULL)::_sas.asked;
    ELSIF w.output IS NULL THEN
        RETURN ROW('done', reply, NULL)::_sas.asked;
    END IF;
    SELECT o.result, o.problem INTO made FROM _sas.render(w.output, root) o;
    IF made.problem IS NULL THEN
        RETURN ROW('done', made.result, NULL)::_sas.asked;
    END IF;
    RETURN ROW('permanent', NULL, _sas.problem_object('output', 'could not build the output of the step',
                                                      format('%s: %s', made.problem ->> 'path',
                                                             made.problem ->> 'what'), NULL, r.run_id,
                                                      w.name))::_sas.asked;
END $$;

-- _sas.late_poll(run_id, w): the error of a poll that did not finish in time.
CREATE FUNCTION _sas.late_poll(run_id bigint, w _sas.workflow_step) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.problem_object('timeout', 'it did not finish in time', w.shape #>> '{poll,timeout}', NULL,
                               run_id, w.name)
$$;

-- _sas.note_asks(replies, changes, verdicts): stores what the replies to calls and status requests of polls
-- say: the reply to the call, the number of requests, the progress. Also stores the attempt that has
-- started the job, because failed requests count on from it.
-- Writes: attempt, step.
CREATE FUNCTION _sas.note_asks(replies _sas.call_reply[], changes _sas.step_change[], verdicts text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, status, http_status,
                              started_at, finished_at)
    SELECT s.run_id, s.step_no, s.element, 1, false, w.lane, 'succeeded', (p.output ->> 'status')::int,
        s.started_at, now
    FROM unnest(changes) WITH ORDINALITY AS c
    JOIN unnest(verdicts) WITH ORDINALITY AS v (verdict, n) ON v.n = c.ordinality AND v.verdict = 'started'
    JOIN unnest(replies) p ON p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element
    JOIN _sas.step s ON s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element
        AND s.attempt = 1
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = c.step_no AND NOT w.undo;
    UPDATE _sas.step s
    SET started = CASE v.verdict WHEN 'started' THEN p.output ELSE s.started END,
        asks = coalesce(s.asks + 1, 0),
        ask_until = CASE v.verdict WHEN 'started' THEN now + (w.shape #>> '{poll,timeout}')::interval
            ELSE s.ask_until END,
        progress = coalesce(_sas.reported_progress(r, w, s, p.output), s.progress)
    FROM unnest(changes) WITH ORDINALITY AS c
    JOIN unnest(verdicts) WITH ORDINALITY AS v (verdict, n) ON v.n = c.ordinality
        AND v.verdict IN ('started', 'asked')
    JOIN unnest(replies) p ON p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = c.step_no AND NOT w.undo
    WHERE s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element;
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
    JOIN _sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
    JOIN _sas.run r ON r.run_id = u.run_id AND r.abandon_as IS NULL AND r.state <> 'paused'
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
    WHERE s.state = 'ready' AND s.ask_until <= sas.now();
    IF late.run_ids IS NOT NULL THEN
        PERFORM _sas.take_ready_steps(late.run_ids, late.step_nos, late.elements);
        PERFORM _sas.fail_steps(late.run_ids, late.step_nos, late.elements, late.errors);
    END IF;
END $$;

-- _sas.ask_anew(run_ids): restarts the timeout of polls that have exceeded it, when these runs are resumed.
CREATE FUNCTION _sas.ask_anew(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.step s SET ask_until = sas.now() + (w.shape #>> '{poll,timeout}')::interval
    FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
        AND w.shape ? 'poll'
    WHERE r.run_id = ANY (run_ids) AND r.abandon_as IS NULL
      AND s.run_id = r.run_id AND s.step_no = w.step_no AND s.state = 'ready' AND s.ask_until <= sas.now();
END $$;
