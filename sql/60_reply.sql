-- SPDX-License-Identifier: PostgreSQL
--
-- Reply: what workers found out becomes state, in batches, under the fence.

-- sas._met(expect, output): did the reply meet what the step expects?
-- Null expect: yes. Otherwise true, false, or null for a predicate that is neither.
CREATE FUNCTION sas._met(expect jsonb, output jsonb, root jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE jsonb_typeof(expect)
               -- middleware may take the status away: the agent has looked at it
               WHEN 'array' THEN NOT output ? 'status' OR EXISTS (SELECT FROM jsonb_array_elements_text(expect) e
                                                                  WHERE output ->> 'status' LIKE replace(e, 'x', '_'))
               WHEN 'string' THEN sas._predicate(expect #>> '{}', root || jsonb_build_object('output', output))
               ELSE true END
$$;

-- sas._objection(run_id, step_no, element, undo, output): what a step has against the
-- output of its function, asked before the function's writes are kept: a
-- problem object, or null.
CREATE FUNCTION sas._objection(run_id bigint, step_no int, element int, undo boolean, output jsonb) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN m.met IS NULL THEN sas._problem_object('expect', 'expect is neither true nor false', w.expect #>> '{}', NULL, r.run_id, w.name)
                WHEN NOT m.met THEN sas._problem_object('expect', 'the result is not what was expected', w.expect #>> '{}', NULL, r.run_id, w.name)
                WHEN o.problem IS NOT NULL THEN sas._problem_object('output', 'the output of the step could not be made',
                                                                    format('%s: %s', o.problem ->> 'path', o.problem ->> 'what'), NULL, r.run_id, w.name) END
    FROM sas.run r
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = $2 AND w.undo = $4
    CROSS JOIN LATERAL (SELECT sas._context(r, w, $3) AS root OFFSET 0) x
    CROSS JOIN LATERAL (SELECT sas._met(w.expect, $5, x.root) AS met OFFSET 0) m
    LEFT JOIN LATERAL sas._render(w.output, x.root || jsonb_build_object('output', $5)) o ON w.output IS NOT NULL
    WHERE r.run_id = $1
$$;

-- sas._write_replies(replies, done_leases): writes what came back, and what
-- follows from it, in one statement per table.
--
-- A reply counts with the current request_id and before complete-by; others
-- are counted per agent and change nothing. Runs that somebody else holds
-- are set aside: the answer holds the positions of those replies, to be
-- written again later. strict: raises instead when one does not count, so that
-- what a function wrote is rolled back with it.
CREATE FUNCTION sas._write_replies(replies sas._reply[], done_leases bigint[], strict boolean DEFAULT false) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    locked bigint[];
    aside int[];
    changes sas._step_change[];
    verdicts text[];
    queued boolean;
    falls boolean;
    objected boolean;
    ok_runs bigint[];
    ok_nos int[];
    ok_elements int[];
    undone bigint[];
    failed sas._step_change[];
    again sas._step_change[];
BEGIN
    SELECT sas._lock_runs(array_agg(DISTINCT p.run_id)) INTO locked FROM unnest(replies) p;
    SELECT coalesce(array_agg(p.n::int), '{}') INTO aside
    FROM unnest(replies) WITH ORDINALITY AS p (run_id, step_no, element, request_id, verdict, attempt, output, error, in_doubt, again_in, n)
    WHERE NOT p.run_id = ANY (locked);
    IF EXISTS (SELECT FROM sas.stage) THEN
        replies := sas._end_stages(replies, locked);
    END IF;

    -- the fence, and what the step makes of the reply
    SELECT array_agg(ROW(p.run_id, p.step_no, p.element, s.state, f.to_state,
                         -- an ask that was answered is no attempt
                         s.attempt + p.attempt - CASE WHEN h.asks AND p.verdict = 'done' THEN 1 ELSE 0 END,
                         CASE WHEN f.verdict IN ('started', 'asked') THEN 0 END,
                         CASE WHEN f.verdict IN ('done', 'started') OR h.asks THEN false
                              WHEN p.verdict = 'done' THEN true  -- done, but not as expected: it is undone
                              WHEN f.verdict = 'permanent'
                                   THEN (s.in_doubt OR p.in_doubt) AND coalesce((p.error ->> 'status')::int IN (409, 422), true)
                              ELSE s.in_doubt OR p.in_doubt END,
                         f.verdict = 'transient', NULL, NULL,
                         CASE WHEN f.verdict IN ('started', 'asked') THEN NULL
                              WHEN h.asks THEN (a.asked).output
                              WHEN p.verdict = 'done' AND s.state = 'running' THEN coalesce(o.result, p.output) END,
                         CASE WHEN f.verdict IN ('transient', 'permanent') THEN coalesce(f.error, p.error) END,
                         CASE WHEN f.to_state = 'succeeded' OR f.verdict = 'started' THEN nextval('sas.completion_seq') END,
                         NULL, CASE WHEN f.verdict <> 'hand_back' AND f.to_state <> 'suspended' THEN now END,
                         NULL, NULL, NULL, NULL,
                         CASE WHEN f.verdict = 'hand_back' AND p.again_in > '0' THEN 'agent'
                              WHEN f.verdict IN ('transient', 'permanent') THEN 'supervisor'
                              WHEN f.to_state = 'suspended' THEN 'poll' END,
                         CASE WHEN f.verdict = 'hand_back' AND p.again_in > '0' THEN now + p.again_in
                              WHEN f.to_state = 'suspended' THEN sas._ask_next(w.shape -> 'poll', s.whole, now) END)::sas._step_change),
           array_agg(f.verdict), bool_or(coalesce(w.queue_id, r.queue_id) > 0), bool_or(w.shape ?| '{stands_in,fallback}'),
           bool_or(p.verdict = 'done' AND f.verdict = 'permanent' AND w.kind = 'call' AND NOT h.asks)
    INTO changes, verdicts, queued, falls, objected
    FROM unnest(replies) p
    -- OFFSET 0: by the whole key, not by its first column through all steps of the run, or of the workflow
    CROSS JOIN LATERAL (SELECT x AS whole, x.* FROM sas.step x WHERE x.run_id = p.run_id AND x.step_no = p.step_no AND x.element = p.element OFFSET 0) s
    JOIN sas.run r ON r.run_id = p.run_id
    CROSS JOIN LATERAL (
        SELECT k AS whole, k.name, k.kind, k.expect, k.output, k.queue_id, k.shape FROM sas.workflow_step k
        WHERE k.version_id = r.version_id AND k.step_no = p.step_no AND k.undo = (s.state = 'compensating') OFFSET 0) w
    -- of a poll: is this its call, or does it ask?
    CROSS JOIN LATERAL (SELECT coalesce(w.shape ? 'poll' AND s.state = 'running' AND s.asks IS NULL, false) AS starts,
                               coalesce(w.shape ? 'poll' AND s.state = 'running' AND s.asks IS NOT NULL, false) AS asks OFFSET 0) h
    CROSS JOIN LATERAL (SELECT CASE WHEN h.asks AND p.verdict = 'done' THEN sas._judge_ask(r, w.whole, s.whole, p.output) END AS asked OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT CASE WHEN w.expect IS NULL OR p.verdict <> 'done' OR h.asks THEN NULL
                    ELSE sas._context(r, w.whole, p.element) END AS root OFFSET 0) x
    CROSS JOIN LATERAL (
        SELECT p.verdict <> 'done' OR w.expect IS NULL OR h.asks AS unasked,
               CASE WHEN p.verdict = 'done' AND w.expect IS NOT NULL AND NOT h.asks THEN sas._met(w.expect, p.output, x.root) END AS met OFFSET 0) m
    -- arguments are evaluated before ON is asked, hence the CASE
    LEFT JOIN LATERAL sas._render(w.output, CASE WHEN p.verdict = 'done' AND w.output IS NOT NULL AND NOT h.starts AND NOT h.asks
        THEN sas._context(r, w.whole, p.element) || jsonb_build_object('output', p.output) END) o
        ON p.verdict = 'done' AND w.output IS NOT NULL AND NOT h.starts AND NOT h.asks
    CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT m.unasked AND m.met IS NOT TRUE OR o.problem IS NOT NULL THEN 'permanent'
                    WHEN h.asks AND p.verdict = 'done' THEN (a.asked).verdict
                    WHEN h.starts AND p.verdict = 'done' THEN 'started' ELSE p.verdict END AS verdict,
               CASE WHEN NOT m.unasked AND m.met IS NOT TRUE
                    THEN sas._problem_object('expect', CASE WHEN m.met IS NULL THEN 'expect is neither true nor false' ELSE 'the reply is not what was expected' END,
                                             w.expect #>> '{}', CASE w.kind WHEN 'call' THEN (p.output ->> 'status')::int END, p.run_id, w.name)
                    WHEN o.problem IS NOT NULL
                    THEN sas._problem_object('output', 'the output of the step could not be made',
                                             format('%s: %s', o.problem ->> 'path', o.problem ->> 'what'), NULL, p.run_id, w.name)
                    ELSE (a.asked).error END AS error OFFSET 0) v
    CROSS JOIN LATERAL (
        SELECT v.verdict, v.error,
               CASE WHEN s.state = 'compensating' THEN CASE v.verdict WHEN 'done' THEN 'compensated' ELSE 'compensating' END
                    WHEN v.verdict = 'done' THEN 'succeeded'
                    -- in a run that cannot go on nobody asks any more
                    WHEN v.verdict IN ('started', 'asked') THEN CASE WHEN r.fate IS NULL THEN 'suspended' ELSE 'failed' END
                    WHEN v.verdict = 'hand_back' THEN CASE WHEN p.again_in > '0' THEN 'suspended' ELSE 'ready' END
                    ELSE 'failed' END AS to_state OFFSET 0) f
    WHERE p.run_id = ANY (locked)
      AND s.request_id = p.request_id AND s.complete_by > now;

    IF strict AND coalesce(cardinality(changes), 0) < cardinality(replies) THEN
        RAISE EXCEPTION 'a claim was lost before its function committed' USING ERRCODE = 'lock_not_available';
    END IF;
    IF coalesce(cardinality(changes), 0) < cardinality(replies) - cardinality(aside) THEN
        PERFORM sas._count_stale(replies, locked, changes);
    END IF;
    IF objected THEN
        PERFORM sas._note_objections(replies, changes);
    END IF;
    PERFORM sas._move_steps(changes);
    PERFORM sas._note_asks(replies, changes, verdicts) WHERE verdicts && '{started,asked}';
    PERFORM sas._start_runs(array_agg(c.run_id)) FROM unnest(changes) c;

    SELECT array_agg((x.c).run_id) FILTER (WHERE (x.c).to_state = 'succeeded' AND r.fate IS NULL),
           array_agg((x.c).step_no) FILTER (WHERE (x.c).to_state = 'succeeded' AND r.fate IS NULL),
           array_agg((x.c).element) FILTER (WHERE (x.c).to_state = 'succeeded' AND r.fate IS NULL),
           array_agg((x.c).run_id) FILTER (WHERE r.fate IS NOT NULL AND ((x.c).to_state IN ('compensated', 'succeeded') OR x.v IN ('started', 'asked'))),
           array_agg(x.c) FILTER (WHERE x.v IN ('transient', 'permanent')),
           array_agg(x.c) FILTER (WHERE x.v = 'hand_back' OR (x.c).waiting_kind = 'poll')
    INTO ok_runs, ok_nos, ok_elements, undone, failed, again
    FROM (SELECT unnest(changes) AS c, unnest(verdicts) AS v) x
    JOIN sas.run r ON r.run_id = (x.c).run_id;

    IF falls THEN
        PERFORM sas._undone_in_stead(changes);
        -- undone in a run that goes on: its fallback is next
        PERFORM sas._fall_back(array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element))
        FROM unnest(changes) c JOIN sas.run r ON r.run_id = c.run_id AND r.fate IS NULL WHERE c.to_state = 'compensated' HAVING count(*) > 0;
        IF ok_runs IS NOT NULL THEN
            SELECT i.run_ids, i.step_nos, i.elements INTO ok_runs, ok_nos, ok_elements FROM sas._stood_in(ok_runs, ok_nos, ok_elements) i;
        END IF;
    END IF;
    IF ok_runs IS NOT NULL THEN
        PERFORM sas._go_on(ok_runs, ok_nos, ok_elements);
    END IF;
    IF undone IS NOT NULL THEN
        PERFORM sas._close_steps(undone);
    END IF;
    IF failed IS NOT NULL THEN
        PERFORM sas._tell_supervisor(failed);
    END IF;
    IF again IS NOT NULL THEN
        PERFORM sas._queue_again(again);
    END IF;
    IF queued THEN
        PERFORM sas._free_places(locked);
    END IF;
    -- a lease under which a reply came too late stays: the supervisor takes its step back
    DELETE FROM sas.lease l
    WHERE l.lease_id = ANY (done_leases)
      AND NOT EXISTS (SELECT FROM unnest(l.run_ids, l.step_nos, l.elements) AS u (run_id, step_no, element)
                      JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
                      WHERE s.lease_id = l.lease_id AND s.request_id IS NOT NULL);
    RETURN aside;
END $$;

-- sas._close_steps(run_ids): one open step less for each entry, in doomed runs.
CREATE FUNCTION sas._close_steps(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sas.run r SET open_steps = r.open_steps - d.n
    FROM (SELECT u.run_id, count(*)::int AS n FROM unnest(run_ids) AS u (run_id) GROUP BY 1) d
    WHERE r.run_id = d.run_id;
    PERFORM sas._hand_to_scheduler(run_ids);
END $$;

-- sas._tell_supervisor(failed): failed steps wait for its decision.
CREATE FUNCTION sas._tell_supervisor(failed sas._step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
    SELECT 'v', sas._now(), f.run_id, 'failed', f.step_no, f.element FROM unnest(failed) f;
    PERFORM sas._ring('{}', false, true, '{}');
END $$;

-- sas._queue_again(again): steps that were given back: into the queue now, or a timer for later.
CREATE FUNCTION sas._queue_again(again sas._step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sas.due (actor, due_at, run_id, kind, step_no, element)
    SELECT 's', a.waiting_until, a.run_id, 'ready', a.step_no, a.element
    FROM unnest(again) a WHERE a.waiting_until IS NOT NULL;
    IF FOUND THEN
        PERFORM sas._ring('{}', true, false, '{}');
    END IF;
    PERFORM sas._requeue(array_agg(a.run_id), array_agg(a.step_no), array_agg(a.element))
    FROM unnest(again) a WHERE a.waiting_until IS NULL;
END $$;

-- sas._requeue(...): steps that stand at ready or compensating go into the
-- queue; those of paused runs are parked, those of doomed ones are cancelled, or undone when they have begun.
CREATE FUNCTION sas._requeue(run_ids bigint[], step_nos int[], elements int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    changes sas._step_change[];
    doomed bigint[];
BEGIN
    SELECT array_agg(ROW(s.run_id, s.step_no, s.element, s.state,
                         CASE WHEN r.state = 'paused' THEN s.state WHEN s.in_doubt THEN 'ready' WHEN s.asks IS NOT NULL THEN 'failed' ELSE 'cancelled' END,
                         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                         r.state = 'paused', NULL, NULL)::sas._step_change)
               FILTER (WHERE r.state = 'paused' OR r.fate IS NOT NULL AND s.state = 'ready' AND NOT s.in_doubt),
           array_agg(s.run_id) FILTER (WHERE r.state <> 'paused' AND r.fate IS NOT NULL AND s.state = 'ready' AND NOT s.in_doubt)
    INTO changes, doomed
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
    JOIN sas.run r ON r.run_id = u.run_id;
    PERFORM sas._move_steps(changes);
    PERFORM sas._close_steps(doomed) WHERE doomed IS NOT NULL;

    PERFORM sas._make_ready(array_agg(s.run_id), array_agg(s.step_no), array_agg(s.element),
                            array_agg(s.state = 'compensating'), array_agg(s.alone))
    FROM unnest(run_ids, step_nos, elements) AS u (run_id, step_no, element)
    JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element
    JOIN sas.run r ON r.run_id = u.run_id
    WHERE r.state <> 'paused' AND s.state IN ('ready', 'compensating');
END $$;

-- sas._count_stale(...): replies that came too late or from a claim that holds no more.
CREATE FUNCTION sas._count_stale(replies sas._reply[], locked bigint[], changes sas._step_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sas.agent_health AS h (agent_id, stale_replies)
    SELECT w.lane, count(*)
    FROM unnest(replies) p
    JOIN sas.run r ON r.run_id = p.run_id
    JOIN sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = p.step_no AND NOT w.undo AND w.lane > 0
    WHERE p.run_id = ANY (locked)
      AND NOT EXISTS (SELECT FROM unnest(changes) c
                      WHERE c.run_id = p.run_id AND c.step_no = p.step_no AND c.element = p.element)
    GROUP BY w.lane ORDER BY w.lane
    ON CONFLICT (agent_id) DO UPDATE SET stale_replies = h.stale_replies + EXCLUDED.stale_replies;
END $$;

-- sas._note_objections(replies, changes): attempts of calls that the worker took for done, and whose step does not (expect,
-- output): failed ones. A first attempt has no row yet; that of a further one, or of an undo, says that it succeeded. Before
-- the steps are moved: their claims tell who it was, and when.
CREATE FUNCTION sas._note_objections(replies sas._reply[], changes sas._step_change[]) RETURNS void
LANGUAGE sql AS $$
    WITH objection AS MATERIALIZED (
        SELECT c.run_id, c.step_no, c.element, c.attempt, w.undo, w.lane, l.locked_by, (p.output ->> 'status')::int AS http_status, c.error,
               s.complete_by - coalesce(w.complete_in, sas._complete_in()) AS started_at
        FROM unnest(changes) c
        JOIN unnest(replies) p ON p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element AND p.verdict = 'done'
        JOIN sas.run r ON r.run_id = c.run_id
        CROSS JOIN LATERAL (SELECT * FROM sas.step x WHERE x.run_id = c.run_id AND x.step_no = c.step_no AND x.element = c.element OFFSET 0) s
        CROSS JOIN LATERAL (SELECT x.undo, x.lane, x.kind, x.complete_in, x.shape FROM sas.workflow_step x
                            WHERE x.version_id = r.version_id AND x.step_no = c.step_no AND x.undo = (s.state = 'compensating') OFFSET 0) w
        LEFT JOIN sas.lease l ON l.lease_id = s.lease_id
        WHERE w.kind = 'call' AND c.error IS NOT NULL AND NOT (coalesce(w.shape ? 'poll', false) AND s.asks IS NOT NULL)),
    told AS (
        UPDATE sas.attempt a SET status = 'failed', error = o.error
        FROM objection o
        WHERE a.run_id = o.run_id AND a.step_no = o.step_no AND a.element = o.element AND a.attempt = o.attempt AND a.undo = o.undo
        RETURNING a.run_id, a.step_no, a.element)
    INSERT INTO sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, http_status, error, started_at, finished_at)
    SELECT o.run_id, o.step_no, o.element, o.attempt, o.undo, o.lane, o.locked_by, 'failed', o.http_status, o.error, o.started_at, sas._now()
    FROM objection o
    WHERE NOT EXISTS (SELECT FROM told t WHERE t.run_id = o.run_id AND t.step_no = o.step_no AND t.element = o.element)
$$;

-- sas._write_attempts(...): the failed and further attempts of workers; arrays of equal length.
CREATE FUNCTION sas._write_attempts(run_ids bigint[], step_nos int[], elements int[], attempts int[], undos boolean[], agent_ids int[],
                                    worker text, statuses text[], http_statuses int[], errors jsonb[],
                                    started_ats timestamptz[], finished_ats timestamptz[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO sas.attempt (run_id, step_no, element, attempt, undo, agent_id, worker, status, http_status, error, started_at, finished_at)
    SELECT u.run_id, u.step_no, u.element, u.attempt, u.undo, nullif(u.agent_id, 0), worker, u.status, nullif(u.http_status, 0), u.error, u.started_at, u.finished_at
    FROM unnest(run_ids, step_nos, elements, attempts, undos, agent_ids, statuses, http_statuses, errors, started_ats, finished_ats)
         AS u (run_id, step_no, element, attempt, undo, agent_id, status, http_status, error, started_at, finished_at)
$$;
