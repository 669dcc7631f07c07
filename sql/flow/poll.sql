-- SPDX-License-Identifier: PostgreSQL
--
-- Polls: a call that begins something, and asks how it goes until it is over.
-- Between two asks the step is suspended and holds no worker. sas.step.asks
-- says that the call has succeeded; sas.step.started is its reply.

-- sas._ask_next(poll, s, now): when the next ask is due: the pause doubles from ask to ask.
CREATE FUNCTION sas._ask_next(poll jsonb, s sas.step, now timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least(now + least((poll ->> 'max_every')::interval, (poll ->> 'every')::interval * (2 ^ least(coalesce(s.asks + 1, 0), 30))),
                 CASE WHEN s.asks IS NULL THEN now + (poll ->> 'timeout')::interval ELSE s.ask_until END)
$$;

-- sas._judge_ask(r, w, s, reply): is it over? Then the step has succeeded, with the output that it keeps.
CREATE FUNCTION sas._judge_ask(r sas.run, w sas.workflow_step, s sas.step, reply jsonb) RETURNS sas._asked
LANGUAGE plpgsql STABLE AS $$
DECLARE
    root jsonb := sas._context(r, w, s.element) || jsonb_build_object('started', s.started, 'output', reply);
    over boolean := sas._predicate(w.shape #>> '{poll,until}', root);
    made record;
BEGIN
    IF over IS NULL THEN
        RETURN ROW('permanent', NULL, sas._problem_object('poll', '"until" is neither true nor false', w.shape #>> '{poll,until}', (reply ->> 'status')::int, r.run_id, w.name))::sas._asked;
    ELSIF NOT over AND s.ask_until <= sas._now() THEN
        RETURN ROW('permanent', NULL, sas._late_poll(r.run_id, w))::sas._asked;
    ELSIF NOT over THEN
        RETURN ROW('asked', NULL, NULL)::sas._asked;
    ELSIF w.output IS NULL THEN
        RETURN ROW('done', reply, NULL)::sas._asked;
    END IF;
    SELECT o.result, o.problem INTO made FROM sas._render(w.output, root) o;
    IF made.problem IS NULL THEN
        RETURN ROW('done', made.result, NULL)::sas._asked;
    END IF;
    RETURN ROW('permanent', NULL, sas._problem_object('output', 'the output of the step could not be made', format('%s: %s', made.problem ->> 'path', made.problem ->> 'what'), NULL, r.run_id, w.name))::sas._asked;
END $$;

-- sas._late_poll(run_id, w): the error of a poll that was not over in time.
CREATE FUNCTION sas._late_poll(run_id bigint, w sas.workflow_step) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT sas._problem_object('timeout', 'it was not over in time', w.shape #>> '{poll,timeout}', NULL, run_id, w.name)
$$;

-- sas._note_asks(replies, changes, verdicts): what is kept of the replies to calls and asks of polls.
-- The attempt that began it is told here, since asks that fail count on from it.
CREATE FUNCTION sas._note_asks(replies sas._reply[], changes sas._step_change[], verdicts text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
BEGIN
    INSERT INTO sas.attempt (run_id, step_no, element, attempt, undo, agent_id, status, http_status, started_at, finished_at)
    SELECT s.run_id, s.step_no, s.element, 1, false, w.lane, 'succeeded', (p.output ->> 'status')::int, s.started_at, now
    FROM unnest(changes) WITH ORDINALITY AS c
    JOIN unnest(verdicts) WITH ORDINALITY AS v (verdict, n) ON v.n = c.ordinality AND v.verdict = 'started'
    JOIN unnest(replies) p ON p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element
    JOIN sas.step s ON s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element AND s.attempt = 1
    JOIN sas.run r ON r.run_id = c.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = c.step_no AND NOT w.undo;
    UPDATE sas.step s
    SET started = CASE v.verdict WHEN 'started' THEN p.output ELSE s.started END,
        asks = coalesce(s.asks + 1, 0),
        ask_until = CASE v.verdict WHEN 'started' THEN now + (w.shape #>> '{poll,timeout}')::interval ELSE s.ask_until END,
        progress = coalesce(sas._told_progress(r, w, s, p.output), s.progress)
    FROM unnest(changes) WITH ORDINALITY AS c
    JOIN unnest(verdicts) WITH ORDINALITY AS v (verdict, n) ON v.n = c.ordinality AND v.verdict IN ('started', 'asked')
    JOIN unnest(replies) p ON p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element
    JOIN sas.run r ON r.run_id = c.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = c.step_no AND NOT w.undo
    WHERE s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element;
END $$;

-- sas._told_progress(r, w, s, reply): how far it is, from the reply to an ask; null when it does not say a number.
CREATE FUNCTION sas._told_progress(r sas.run, w sas.workflow_step, s sas.step, reply jsonb) RETURNS float8
LANGUAGE plpgsql STABLE AS $$
DECLARE
    told jsonb;
BEGIN
    IF s.asks IS NULL OR NOT w.shape -> 'poll' ? 'progress' THEN
        RETURN NULL;
    END IF;
    SELECT o.result INTO told FROM sas._render(w.shape #> '{poll,progress}', sas._context(r, w, s.element) || jsonb_build_object('started', s.started, 'output', reply)) o;
    RETURN CASE WHEN jsonb_typeof(told) = 'number' THEN least(greatest(told::numeric, 0), 1)::float8 END;
END $$;

-- sas._end_polls(run_ids, step_nos, elements): of steps that were to be asked about now, those whose time is over have failed.
-- In a run that is paused nothing is asked, and nothing fails for it.
CREATE FUNCTION sas._end_polls(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    late record;
BEGIN
    SELECT array_agg(s.run_id) AS run_ids, array_agg(s.step_no) AS step_nos, array_agg(s.element) AS elements, array_agg(sas._late_poll(s.run_id, w)) AS errors INTO late
    FROM (SELECT DISTINCT * FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)) u
    JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
    JOIN sas.run r ON r.run_id = u.run_id AND r.fate IS NULL AND r.state <> 'paused'
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
    WHERE s.state = 'ready' AND s.ask_until <= sas._now();
    IF late.run_ids IS NOT NULL THEN
        DELETE FROM sas.ready q USING unnest(late.run_ids, late.step_nos, late.elements) AS u (run_id, step_no, element)
        WHERE q.run_id = u.run_id AND q.step_no = u.step_no AND q.element = u.element AND NOT q.fresh;
        PERFORM sas._fail_steps(late.run_ids, late.step_nos, late.elements, late.errors);
    END IF;
END $$;

-- sas._ask_anew(run_ids): these runs are resumed: a poll that was not over in time has its time again.
CREATE FUNCTION sas._ask_anew(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sas.step s SET ask_until = sas._now() + (w.shape #>> '{poll,timeout}')::interval
    FROM sas.run r JOIN sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo AND w.shape ? 'poll'
    WHERE r.run_id = ANY (run_ids) AND r.fate IS NULL
      AND s.run_id = r.run_id AND s.step_no = w.step_no AND s.state = 'ready' AND s.ask_until <= sas._now();
END $$;
