-- SPDX-License-Identifier: PostgreSQL
--
-- Evaluate: what a reply means for its step: does it meet "expect", what is the output, and which state
-- follows.

-- _sas.judge_output(r, w, element, said, expects, keeps): applies "expect" and "output" of a step to the
-- reply of its call, task or function: result is what is stored; objection is the error if the step does
-- not accept the reply. The planner inlines it.
--   expects  whether to apply "expect"
--   keeps    whether to apply "output"
CREATE FUNCTION _sas.judge_output(r _sas.run, w _sas.workflow_step, element int, said jsonb, expects boolean,
                                  keeps boolean)
RETURNS TABLE (result jsonb, objection jsonb)
LANGUAGE sql STABLE AS $$
    SELECT kept.result,
           _sas.at_element(
           CASE WHEN expects AND e.met IS NOT TRUE
                THEN _sas.problem_object('expect',
                                         CASE WHEN e.met IS NULL THEN _sas.neither('expect', e.reason)
                                              ELSE format('the %s is not what was expected', e.name) END,
                                         w.expect #>> '{}',
                                         CASE w.kind WHEN 'call' THEN (said ->> 'status')::int END, r.run_id,
                                         w.name)
                WHEN kept.problem IS NOT NULL
                THEN _sas.output_error(kept.problem, r.run_id, w.name) END, element)
    FROM (SELECT CASE WHEN expects OR keeps THEN _sas.context(r, w, element) END AS root OFFSET 0) seen
    CROSS JOIN LATERAL (
        SELECT t.met, t.reason, CASE w.kind WHEN 'function' THEN 'result' ELSE 'reply' END AS name
        FROM _sas.meets(CASE WHEN expects THEN w.expect END, said, seen.root) t OFFSET 0) e
    -- arguments are evaluated before ON, so the CASE is needed
    LEFT JOIN LATERAL _sas.render(w.output,
                                  CASE WHEN keeps
                                       THEN _sas.with_member(seen.root, 'output', coalesce(said, 'null'))
                                       END) kept ON keeps
$$;

-- _sas.objection(run_id, step_no, element, undo, output): the error if a step does not accept the output of
-- its function, null if it does. It is asked before the writes of the function are kept.
CREATE FUNCTION _sas.objection(run_id bigint, step_no int, element int, undo boolean, output jsonb)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT o.objection
    FROM _sas.run r
    JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $2 AND w.undo = $4
    CROSS JOIN LATERAL _sas.judge_output(r, w, $3, $5, w.expect IS NOT NULL, w.output IS NOT NULL) o
    WHERE r.run_id = $1
$$;

-- _sas.state_after_reply(state, verdict, abandon_as, halted, again_in): the state of a step after a reply.
CREATE FUNCTION _sas.state_after_reply(state text, verdict text, abandon_as text, halted boolean,
                                       again_in interval) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN state = 'compensating'
                -- a halted run makes no further status request for an undo: what was done stands
                THEN CASE WHEN verdict = 'done' THEN 'compensated' WHEN halted THEN 'skipped'
                     ELSE 'compensating' END
                WHEN verdict = 'done' THEN 'succeeded'
                -- a run that cannot continue makes no further status request
                WHEN verdict IN ('started', 'asked')
                THEN CASE WHEN abandon_as IS NULL THEN 'suspended' ELSE 'failed' END
                WHEN verdict = 'fall' THEN 'ready'
                WHEN verdict = 'hand_back' THEN CASE WHEN again_in > '0' THEN 'suspended' ELSE 'ready' END
                ELSE 'failed' END
$$;

-- _sas.doubt_after_reply(doubted, verdict, to_state, asks, told, tells, error): is a step in doubt after a
-- reply that says "told", and makes it "verdict"?
CREATE FUNCTION _sas.doubt_after_reply(doubted boolean, verdict text, to_state text, asks boolean, told text,
                                       tells boolean, error jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN verdict IN ('done', 'started') OR asks THEN false
                WHEN to_state = 'skipped' THEN doubted
                -- done, but not as expected: it has to be undone
                WHEN told = 'done' THEN true
                WHEN verdict = 'permanent'
                THEN (doubted OR tells) AND coalesce((error ->> 'status')::int IN (409, 422), true)
                ELSE doubted OR tells END
$$;

-- _sas.leaves_closed_path(step, state, stands): the breaker of the call's path is open: does the fallback of
-- the step take over? If the step would have to be undone first (stands), its own call settles it.
CREATE FUNCTION _sas.leaves_closed_path(step _sas.workflow_step, state text, stands boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(step.shape #> '{fallback,on}' ? 'breaker_open', false) AND state = 'running'
        AND (NOT stands OR NOT EXISTS (SELECT FROM _sas.workflow_step u WHERE u.version_id = step.version_id
                                       AND u.step_no = step.step_no AND u.undo));
END $$;

-- _sas.evaluate_replies(replies, now): for each reply that counts, the change of its step and the verdict:
-- that of the worker, or what the step makes of it: permanent if it is not as expected; for a poll also
-- started (its call has succeeded) and asked (not finished yet); fall if the breaker of its path is open, and
-- its fallback takes over.
--   queued    one of the steps has a slot in a queue
--   falls     one of them has a fallback, or is one
--   objected  one of them is a call that was done, and whose step does not accept the reply
--   noted     beside the changes: the replies to polls, and those that were not accepted
--   holds     the locks of the runs
--   reads     run, step, workflow_step, what their templates name; writes nothing
--   next      _sas.move_steps
CREATE FUNCTION _sas.evaluate_replies(replies _sas.call_reply[], now timestamptz,
                                      OUT changes _sas.step_change[], OUT verdicts text[], OUT queued boolean,
                                      OUT falls boolean, OUT objected boolean, OUT noted _sas.call_reply[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(_sas.make_step_change(
               run_id => p.run_id, step_no => p.step_no, element => p.element, from_state => s.state,
               to_state => f.to_state,
               -- a status request that was answered is no attempt
               attempt => s.attempt + p.attempt - CASE WHEN h.asks AND p.verdict = 'done' THEN 1 ELSE 0 END,
               failure_count => CASE WHEN f.verdict IN ('started', 'asked') THEN 0 END,
               in_doubt => _sas.doubt_after_reply(s.in_doubt, f.verdict, f.to_state, h.asks, p.verdict,
                                                  p.in_doubt, p.error),
               transient => f.verdict = 'transient',
               output => CASE WHEN f.verdict IN ('started', 'asked') OR s.state <> 'running' THEN NULL
                              WHEN h.asks THEN h.output
                              WHEN p.verdict = 'done' THEN coalesce(o.result, p.output) END,
               error => CASE WHEN f.verdict IN ('transient', 'permanent') THEN coalesce(f.error, p.error)
                             WHEN f.to_state = 'skipped' THEN _sas.left_by_halt(r.run_id, (w.whole).name,
                                                                         'its undo had not finished') END,
               completion => CASE WHEN f.to_state = 'succeeded' OR f.verdict = 'started'
                                      AND s.state = 'running' THEN nextval('_sas.completion_seq') END,
               finished_at => CASE WHEN f.verdict NOT IN ('hand_back', 'fall') AND NOT f.asks_again
                                   THEN now END,
               waiting_kind => CASE WHEN f.verdict = 'hand_back' AND p.again_in > '0' THEN 'agent'
                                    WHEN f.verdict IN ('transient', 'permanent') THEN 'supervisor'
                                    WHEN f.asks_again THEN 'poll' END,
               waiting_until => CASE WHEN f.verdict = 'hand_back' AND p.again_in > '0' THEN now + p.again_in
                                     WHEN f.asks_again THEN h.next_at END)),
           array_agg(f.verdict), bool_or(coalesce(w.queue_id, r.queue_id) > 0),
           bool_or(w.shape ?| '{stands_in,fallback}'), bool_or(
               p.verdict = 'done' AND f.verdict = 'permanent' AND w.kind = 'call' AND h.asks IS NOT TRUE),
           array_agg(CASE WHEN w.polls OR p.verdict = 'done' AND f.verdict = 'permanent' THEN p END)
    INTO changes, verdicts, queued, falls, objected, noted
    FROM unnest(replies) p
    -- OFFSET 0: by the whole key, not by its first column through all steps of the run
    CROSS JOIN LATERAL _sas.step_row(p.run_id, p.step_no, p.element) s
    JOIN _sas.run r ON r.run_id = p.run_id
    CROSS JOIN LATERAL (
        SELECT k AS whole, k.kind, k.queue_id, k.shape,
               p.verdict = 'done' AND k.expect IS NOT NULL AS expects,
               p.verdict = 'done' AND k.output IS NOT NULL AS keeps,
               coalesce(k.shape ? 'poll', false) AS polls
        FROM _sas.workflow_step k WHERE k.version_id = r.version_id AND k.step_no = p.step_no
            AND k.undo = (s.state = 'compensating') OFFSET 0) w
    CROSS JOIN LATERAL (SELECT (x.asked).*
        FROM (SELECT CASE WHEN w.polls THEN _sas.judge_poll(r, w.whole, p.element, p.verdict, p.output) END
              AS asked OFFSET 0) x OFFSET 0) h
    CROSS JOIN LATERAL _sas.judge_output(r, w.whole, p.element, p.output,
                                         w.expects AND h.asks IS NOT TRUE, w.keeps AND NOT w.polls) o
    CROSS JOIN LATERAL (
        SELECT CASE WHEN o.objection IS NOT NULL THEN 'permanent'
                    WHEN p.verdict = 'hand_back' AND p.error IS NOT NULL AND r.abandon_as IS NULL
                         AND _sas.leaves_closed_path(w.whole, s.state,
                                                     s.in_doubt OR p.in_doubt OR s.asks IS NOT NULL)
                    THEN 'fall' ELSE coalesce(h.verdict, p.verdict) END AS verdict,
               coalesce(o.objection, h.error) AS error OFFSET 0) v
    CROSS JOIN LATERAL (
        SELECT CASE t.to_state WHEN 'skipped' THEN 'asked' ELSE v.verdict END AS verdict, v.error, t.to_state,
               v.verdict IN ('started', 'asked') AND t.to_state IN ('suspended', 'compensating') AS asks_again
        FROM (SELECT _sas.state_after_reply(s.state, v.verdict, r.abandon_as, r.state = 'stopped',
                                            p.again_in) AS to_state) t OFFSET 0) f
    WHERE s.request_id = p.request_id AND s.complete_by > coalesce(p.arrived_at, now)
      AND (r.state <> 'stopped' OR p.verdict = 'done');  -- it was halted, and this was done all the same
END $$;

-- _sas.note_objections(replies, changes): stores attempts of calls that the worker took for done, and whose
-- step does not accept the reply (expect, output), as failed. A first attempt has no row yet; the row of a
-- further attempt, or of an undo, says that it succeeded. replies: beside the changes.
-- Caller: before it moves the steps, because their claims say which worker it was, and when. Writes:
-- attempt.
CREATE FUNCTION _sas.note_objections(replies _sas.call_reply[], changes _sas.step_change[]) RETURNS void
LANGUAGE sql AS $$
    WITH objection AS MATERIALIZED (
        SELECT c.run_id, c.step_no, c.element, c.attempt, w.undo, w.lane, l.locked_by,
            (p.output ->> 'status')::int AS http_status, c.error,
               s.complete_by - coalesce(w.complete_in, _sas.complete_in()) AS started_at
        FROM (SELECT unnest(changes) AS change, unnest(replies) AS reply) u
        CROSS JOIN LATERAL (SELECT (u.change).* OFFSET 0) c
        CROSS JOIN LATERAL (SELECT (u.reply).verdict, (u.reply).output OFFSET 0) p
        JOIN _sas.run r ON r.run_id = c.run_id
        CROSS JOIN LATERAL (SELECT x.*, (SELECT o.asks FROM _sas.poll_of(x) o) AS polled
                            FROM _sas.step x WHERE x.run_id = c.run_id AND x.step_no = c.step_no
                            AND x.element = c.element OFFSET 0) s
        CROSS JOIN LATERAL _sas.step_definition(r.version_id, c.step_no, s.state = 'compensating') w
        LEFT JOIN _sas.lease l ON l.lease_id = s.lease_id
        WHERE p.verdict = 'done' AND w.kind = 'call' AND c.error IS NOT NULL
            AND NOT (coalesce(w.shape ? 'poll', false) AND s.polled IS NOT NULL)),
    told AS (
        UPDATE _sas.attempt a SET status = 'failed', error = o.error
        FROM objection o
        WHERE a.run_id = o.run_id AND a.step_no = o.step_no AND a.element = o.element
            AND a.attempt = o.attempt AND a.undo = o.undo
        RETURNING a.run_id, a.step_no, a.element)
    INSERT INTO _sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, http_status,
                              error, started_at, finished_at)
    SELECT o.run_id, o.step_no, o.element, o.attempt, o.undo, o.lane, o.locked_by, 'failed', o.http_status,
        o.error, o.started_at, sas.now()
    FROM objection o
    WHERE NOT EXISTS (SELECT FROM told t WHERE t.run_id = o.run_id AND t.step_no = o.step_no
                      AND t.element = o.element)
$$;
