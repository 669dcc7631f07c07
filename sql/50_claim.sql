-- SPDX-License-Identifier: PostgreSQL
--
-- Claim: steps go from the hot queue to one worker, in batches, under one
-- lease. No lock on a run is needed (see sas.ready) and nothing is waited for.

-- sas._front_rows(lanes, quantities, marks, urgent): how many rows of each lane a claim takes, and from where on; notes where
-- the first one stands. urgent: of a lane whose first rows have a higher priority than what stands behind
-- them, these only. That is seen among the first 20, so priorities that alternate make no batch smaller.
CREATE FUNCTION sas._front_rows(lanes int[], quantities int[], marks timestamptz[], urgent boolean)
RETURNS TABLE (lane int, quantity int, mark timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT raised.lane, coalesce(f.drop_at - 1, l.quantity)::int, l.mark
    FROM unnest($1, $2, $3) AS l (lane, quantity, mark)
    CROSS JOIN LATERAL (
        SELECT min(x.rank) AS first, max(x.n) FILTER (WHERE x.drops) AS drop_at
        FROM (SELECT c.rank, row_number() OVER front AS n, lag(c.lead) OVER front > c.lead AS drops
              -- the rank is the time minus the priority
              FROM (SELECT q.rank, q.ready_at - q.rank AS lead FROM sas.ready q WHERE q.lane = l.lane AND q.rank >= l.mark ORDER BY q.rank
                    LIMIT CASE WHEN urgent AND l.quantity > 20 THEN 21 ELSE 1 END) c
              WINDOW front AS (ROWS UNBOUNDED PRECEDING)) x) f
    -- its answer is the lane, so that nothing is looked for before it is told
    CROSS JOIN LATERAL sas._raise_front('r', l.lane, f.first) AS raised (lane)
$$;

-- sas._claim(...): takes up to quantities[i] steps of lanes[i]; urgent: see sas._front_rows.
--
-- What was found beside a crash is claimed by itself: one that is to run alone
-- ends the batch before it. This is seen to in the statement that takes the
-- rows, since an earlier look would miss what was made ready in between.
-- Returns what was claimed; the rows of sas.step say running (an undo says
-- compensating) with a fresh request_id and complete_by. The lease names the worker.
-- plain: each is one step by itself, in no map, include, poll or fallback, whose templates see no other step.
CREATE FUNCTION sas._claim(lanes int[], quantities int[], boot bigint, worker_id bigint, locked_by text, urgent boolean DEFAULT false,
                            OUT lease_id bigint, OUT claimed sas._claimed[], OUT plain boolean)
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas._now();
    marks timestamptz[] := sas._begin_fronts('r', lanes);
    n int;
    begun bigint[];
    late boolean;
BEGIN
    WITH taken AS (
        DELETE FROM sas.ready r
        WHERE r.ctid = ANY (ARRAY(
            SELECT unnest(q.free)
            FROM sas._front_rows(lanes, quantities, marks, urgent) l,
                 LATERAL (SELECT (array_agg(c.ctid))[:greatest(coalesce(array_position(array_agg(c.alone), true) - 1, l.quantity), 1)] AS free
                          FROM (SELECT x.ctid, x.alone FROM sas.ready x WHERE x.lane = l.lane AND x.rank >= l.mark ORDER BY x.rank LIMIT l.quantity FOR UPDATE SKIP LOCKED) c) q))
        RETURNING r.run_id, r.step_no, r.element, r.lane, r.rank, r.ready_at, r.undo, r.alone)
    SELECT count(sas._waited(t.lane, t.ready_at)),
           array_agg(ROW(t.run_id, t.step_no, t.element, t.undo, t.alone, r.version_id, t.lane, coalesce(s.state, 'none'),
                         coalesce(s.attempt, 0),
                         CASE WHEN s.ask_until IS NULL OR t.undo THEN coalesce(w.complete_in, sas._complete_in())
                              ELSE greatest(least(coalesce(w.complete_in, sas._complete_in()), s.ask_until - now), interval '1 s') END, gen_random_uuid())::sas._claimed
                     ORDER BY t.rank, t.run_id, t.step_no, t.element), array_agg(t.run_id) FILTER (WHERE r.state = 'pending'), bool_or(r.state = 'pending' AND r.start_before <= now),
           bool_and(w.plain)
    INTO n, claimed, begun, late, plain
    FROM taken t
    JOIN sas.run r ON r.run_id = t.run_id
    -- OFFSET 0: by the whole key, not by its first column through all steps of the workflow, or of the run
    CROSS JOIN LATERAL (SELECT x.complete_in, x.shape IS NULL AND x.scope_no IS NULL AND x.reads = '{}' AS plain FROM sas.workflow_step x
                        WHERE x.version_id = r.version_id AND x.step_no = t.step_no AND x.undo = t.undo OFFSET 0) w
    LEFT JOIN LATERAL (SELECT x.state, x.attempt, x.ask_until FROM sas.step x WHERE x.run_id = t.run_id AND x.step_no = t.step_no AND x.element = t.element OFFSET 0) s ON true;
    IF late THEN
        claimed := sas._set_late_aside(claimed);
        begun := ARRAY(SELECT c.run_id FROM unnest(claimed) c);
    END IF;
    IF claimed IS NULL THEN
        RETURN;
    END IF;

    INSERT INTO sas.lease (boot, worker_id, locked_by, next_by, run_ids, step_nos, elements)
    SELECT $3, $4, $5, sas._due_by(now + min(c.complete_in)), array_agg(c.run_id), array_agg(c.step_no), array_agg(c.element)
    FROM unnest(claimed) c
    RETURNING lease.lease_id INTO lease_id;
    n := sas._take_steps(claimed, _claim.lease_id, now);
    n := sas._start_runs(begun);
END $$;

-- sas._claim_calls(...): for an agent worker: claims and says what to send.
--
-- request is {method, path, query, headers, body | form | text, timeout}; when its templates could not be
-- filled in, problem says why and request is null. policy is {retry, expect} of the step.
-- Of a poll whose call has succeeded it is the ask, which bears no key and is expected to be 2xx.
CREATE FUNCTION sas._claim_calls(lanes int[], quantities int[], boot bigint, worker_id bigint, locked_by text)
RETURNS TABLE (lease_id bigint, agent_id int, run_id bigint, step_no int, element int, step text, undo boolean, attempt int,
               request_id uuid, window_ms float8, trace uuid, idempotency_key text, request jsonb, policy jsonb, problem jsonb, workflow_id int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    batch record;
    c sas._claimed;
BEGIN
    batch := sas._claim(lanes, quantities, boot, worker_id, locked_by);
    IF batch.claimed IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        RETURN QUERY SELECT * FROM sas._calls_wanted(batch.lease_id, batch.claimed, batch.plain);
        RETURN;
    EXCEPTION WHEN program_limit_exceeded OR internal_error OR out_of_memory THEN
        NULL;  -- see sas._claim_functions
    END;
    FOREACH c IN ARRAY batch.claimed LOOP
        BEGIN
            RETURN QUERY SELECT * FROM sas._calls_wanted(batch.lease_id, ARRAY[c], batch.plain);
        EXCEPTION WHEN program_limit_exceeded OR internal_error OR out_of_memory THEN
            RETURN QUERY
            SELECT batch.lease_id, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt, c.request_id, extract(epoch FROM c.complete_in)::float8 * 1000, r.trace,
                   sas._step_key(r.trace, w.name, c.element, c.undo), NULL::jsonb, jsonb_strip_nulls(jsonb_build_object('retry', w.retry)), jsonb_build_object('path', 'template', 'what', SQLERRM), v.workflow_id
            FROM sas.run r JOIN sas.workflow_version v USING (version_id) JOIN sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo WHERE r.run_id = c.run_id;
        END;
    END LOOP;
END $$;

-- sas._plain_call(version_id, step_no): a step that is one call, whose templates see nothing but the run and its input, and whose run
-- tells no hook that it begins: what src/store/lone.c has to know of it. name is null when it is not. window_ms: -1 without one of its own.
CREATE FUNCTION sas._plain_call(version_id int, step_no int, OUT name text, OUT workflow_id int, OUT window_ms float8, OUT request jsonb, OUT policy jsonb, OUT reads text[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    SELECT w.name, v.workflow_id, coalesce(extract(epoch FROM w.complete_in)::float8 * 1000, -1), w.request,
           CASE WHEN w.retry IS NULL AND w.expect IS NULL THEN '{}' ELSE jsonb_strip_nulls(jsonb_build_object('retry', w.retry, 'expect', w.expect)) END, w.input_reads
    INTO name, workflow_id, window_ms, request, policy, reads
    FROM sas.workflow_version v JOIN sas.workflow_step w ON w.version_id = v.version_id
    WHERE v.version_id = $1 AND w.step_no = $2 AND NOT w.undo AND w.kind = 'call' AND w.shape IS NULL AND w.scope_no IS NULL AND w.reads = '{}'
      AND NOT EXISTS (SELECT FROM sas.workflow_hook h WHERE h.version_id = v.version_id);
END $$;

-- sas._calls_wanted(under_lease, claimed, plain): what is to be sent for these claimed steps. Not inlined: it returns nothing at all when it raises.
-- plain: they are calls that see nothing but the run and its input; then, while nothing stands in the place of theirs,
-- fewer tables are asked.
CREATE FUNCTION sas._calls_wanted(under_lease bigint, claimed sas._claimed[], plain boolean)
RETURNS TABLE (lease_id bigint, agent_id int, run_id bigint, step_no int, element int, step text, undo boolean, attempt int,
               request_id uuid, window_ms float8, trace uuid, idempotency_key text, request jsonb, policy jsonb, problem jsonb, workflow_id int)
LANGUAGE plpgsql AS $$
DECLARE
    staged boolean;
    edited boolean;
BEGIN
    SELECT EXISTS (SELECT FROM sas.stage), EXISTS (SELECT FROM sas.edit) INTO staged, edited;
    IF plain AND NOT staged AND NOT edited THEN
        RETURN QUERY
        SELECT under_lease, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
               c.request_id, extract(epoch FROM c.complete_in)::float8 * 1000, r.trace, k.key, (b.body).result,
               CASE WHEN w.retry IS NULL AND w.expect IS NULL THEN '{}' ELSE jsonb_strip_nulls(jsonb_build_object('retry', w.retry, 'expect', w.expect)) END,
               (b.body).problem, v.workflow_id
        FROM unnest(claimed) c
        JOIN sas.workflow_version v ON v.version_id = c.version_id
        JOIN sas.run r ON r.run_id = c.run_id
        CROSS JOIN LATERAL (SELECT x.name, x.request, x.retry, x.expect, x.input_reads FROM sas.workflow_step x
                            WHERE x.version_id = c.version_id AND x.step_no = c.step_no AND x.undo = c.undo OFFSET 0) w
        CROSS JOIN LATERAL (SELECT sas._step_key(r.trace, w.name, 0, c.undo) AS key OFFSET 0) k
        CROSS JOIN LATERAL (SELECT sas._render_request(w.request, sas._root(r.input, w.input_reads, k.key, r.run_id, r.key, r.labels, r.created_at, r.deadline, '{}')) AS body OFFSET 0) b;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT under_lease, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
           c.request_id, extract(epoch FROM c.complete_in)::float8 * 1000, r.trace,
           CASE WHEN k.started IS NULL THEN x.root ->> 'key' END,
           coalesce(g.request, body.request),
           jsonb_strip_nulls(jsonb_build_object('retry', w.retry, 'expect', CASE WHEN k.started IS NULL THEN w.expect END)),
           body.problem, v.workflow_id
    FROM unnest(claimed) c
    JOIN sas.workflow_version v ON v.version_id = c.version_id
    JOIN sas.run r ON r.run_id = c.run_id
    JOIN sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN w.shape ? 'poll' AND NOT c.undo
                                    THEN (SELECT s.started FROM sas.step s WHERE s.run_id = c.run_id AND s.step_no = c.step_no AND s.element = c.element AND s.asks IS NOT NULL) END AS started OFFSET 0) k
    CROSS JOIN LATERAL (SELECT (SELECT h.root FROM sas._root_of(r, w, c.element) h) || CASE WHEN k.started IS NULL THEN '{}' ELSE jsonb_build_object('started', k.started) END AS root,
                               CASE WHEN k.started IS NULL THEN w.request ELSE w.shape #> '{poll,call}' END AS request OFFSET 0) x
    -- what middleware made of it, or an operator has put in the place of the body
    LEFT JOIN LATERAL (SELECT p.request FROM sas.stage p WHERE staged AND p.run_id = c.run_id AND p.step_no = c.step_no AND p.element = c.element AND p.undo = c.undo OFFSET 0) g ON staged
    LEFT JOIN LATERAL (SELECT d.input FROM sas.edit d WHERE edited AND d.run_id = c.run_id AND d.step_no = c.step_no AND d.element = c.element AND NOT c.undo AND k.started IS NULL OFFSET 0) e ON edited
    LEFT JOIN LATERAL sas._filled_request(x.request, x.root, e.input) body ON g.request IS NULL;
END $$;

-- sas._filled_request(request, root, input): the request of a call with its templates filled in, or what is wrong with them.
-- input: what is sent in the stead of its body, form or text; null: what they say.
CREATE FUNCTION sas._filled_request(template jsonb, root jsonb, input jsonb) RETURNS TABLE (request jsonb, problem jsonb)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN input IS NULL THEN body.result ELSE body.result || jsonb_build_object(sas._body_part(template), input) END, body.problem
    FROM sas._render_request(CASE WHEN input IS NULL THEN template ELSE template - '{body,form,text}'::text[] END, root) body
$$;

-- sas._body_part(request): under which name a call has what it sends: body, form or text; null when it sends nothing.
CREATE FUNCTION sas._body_part(request jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN request ? 'body' THEN 'body' WHEN request ? 'form' THEN 'form' WHEN request ? 'text' THEN 'text' END
$$;

-- sas._finalizers(run_id, version_id, last): the functions of the finalize step, a line each: those of the
-- steps that succeeded, in the order of the steps, then that of the run.
CREATE FUNCTION sas._finalizers(run_id bigint, version_id int, last text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN concat_ws(E'\n', (SELECT string_agg(w.finalizer, E'\n' ORDER BY w.finalize_rank, w.step_no)
                             FROM sas.workflow_step w
                             JOIN sas.step s ON s.run_id = $1 AND s.step_no = w.step_no AND s.element = 0 AND s.state = 'succeeded'
                             WHERE w.version_id = $2 AND NOT w.undo AND w.finalizer IS NOT NULL), last);
END $$;

-- sas._claim_functions(...): for a function worker. lane: that of functions, but in a test.
CREATE FUNCTION sas._claim_functions(quantity int, boot bigint, worker_id bigint, locked_by text, lane int DEFAULT 0, urgent boolean DEFAULT false)
RETURNS TABLE (lease_id bigint, owner oid, run_id bigint, step_no int, element int, step text, undo boolean, attempt int, alone boolean,
               request_id uuid, window_ms float8, function text, input jsonb, problem jsonb, retry jsonb, judges boolean, workflow_id int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    batch record;
    c sas._claimed;
BEGIN
    batch := sas._claim(ARRAY[lane], ARRAY[quantity], boot, worker_id, locked_by, urgent);
    BEGIN
        RETURN QUERY SELECT * FROM sas._functions_wanted(batch.lease_id, batch.claimed);
        RETURN;
    EXCEPTION WHEN program_limit_exceeded OR internal_error OR out_of_memory THEN
        NULL;  -- what one of them is to be given is too large: the others must not wait for it
    END;
    FOREACH c IN ARRAY batch.claimed LOOP
        BEGIN
            RETURN QUERY SELECT * FROM sas._functions_wanted(batch.lease_id, ARRAY[c]);
        EXCEPTION WHEN program_limit_exceeded OR internal_error OR out_of_memory THEN
            RETURN QUERY
            SELECT batch.lease_id, r.owner::oid, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt, c.alone, c.request_id,
                   extract(epoch FROM c.complete_in)::float8 * 1000, coalesce(w.function, ''), NULL::jsonb, jsonb_build_object('path', 'template', 'what', SQLERRM), w.retry, false, v.workflow_id
            FROM sas.run r JOIN sas.workflow_version v USING (version_id) JOIN sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo WHERE r.run_id = c.run_id;
        END;
    END LOOP;
END $$;

-- sas._functions_wanted(under_lease, claimed): the same with what middleware and stages make of it. Not inlined: it
-- returns nothing at all when it raises.
CREATE FUNCTION sas._functions_wanted(under_lease bigint, claimed sas._claimed[])
RETURNS TABLE (lease_id bigint, owner oid, run_id bigint, step_no int, element int, step text, undo boolean, attempt int, alone boolean,
               request_id uuid, window_ms float8, function text, input jsonb, problem jsonb, retry jsonb, judges boolean, workflow_id int)
LANGUAGE plpgsql AS $$
DECLARE
    staged boolean := EXISTS (SELECT FROM sas.stage);
    wrapped boolean := EXISTS (SELECT FROM sas.middleware m WHERE m.phase IN ('function', 'finalize'));
BEGIN
    IF NOT staged AND NOT wrapped THEN
        RETURN QUERY SELECT * FROM sas._functions_of(under_lease, claimed);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT q.lease_id, q.owner, q.run_id, q.step_no, q.element, q.step, q.undo, q.attempt, q.alone, q.request_id, q.window_ms,
           coalesce(g.function, m.wrapper, q.function), coalesce(g.input, m.input, q.input), coalesce(g.problem, q.problem), q.retry, q.judges, q.workflow_id
    FROM sas._functions_of(under_lease, claimed) q
    LEFT JOIN LATERAL sas._staged_function(q.run_id, q.step_no, q.element, q.undo) g ON staged
    LEFT JOIN LATERAL sas._wrap(q.run_id, q.step, q.element, q.undo, q.function, q.input) m ON wrapped AND q.problem IS NULL AND g.function IS NULL;
END $$;

-- sas._functions_of(under_lease, claimed): what these steps call, with what.
CREATE FUNCTION sas._functions_of(under_lease bigint, claimed sas._claimed[])
RETURNS TABLE (lease_id bigint, owner oid, run_id bigint, step_no int, element int, step text, undo boolean, attempt int, alone boolean,
               request_id uuid, window_ms float8, function text, input jsonb, problem jsonb, retry jsonb, judges boolean, workflow_id int)
LANGUAGE sql STABLE AS $$
    SELECT $1, r.owner::oid, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt, c.alone,
           c.request_id, extract(epoch FROM c.complete_in)::float8 * 1000,
           CASE WHEN v.finalize_no = c.step_no THEN sas._finalizers(c.run_id, c.version_id, w.function) ELSE w.function END,
           CASE WHEN v.finalize_no = c.step_no THEN x.root WHEN e.input IS NOT NULL THEN e.input WHEN w.input IS NULL THEN r.input ELSE body.result END,
           CASE WHEN e.input IS NULL THEN body.problem END, w.retry, w.expect IS NOT NULL OR w.output IS NOT NULL, v.workflow_id
    FROM unnest($2) c
    JOIN sas.run r ON r.run_id = c.run_id
    JOIN sas.workflow_version v ON v.version_id = c.version_id
    JOIN sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN v.finalize_no = c.step_no THEN sas._run_context(r, w.name, NULL)
                                    WHEN w.input IS NOT NULL THEN (SELECT h.root FROM sas._root_of(r, w, c.element) h) END AS root OFFSET 0) x
    LEFT JOIN LATERAL sas._render(w.input, x.root) body ON w.input IS NOT NULL
    LEFT JOIN LATERAL (SELECT d.input FROM sas.edit d WHERE d.run_id = c.run_id AND d.step_no = c.step_no AND d.element = c.element AND NOT c.undo OFFSET 0) e ON true
$$;

-- sas._held(...): which of these claims still hold, with their runs locked:
-- what a function worker asks before it calls the functions.
-- Returns one of held, locked (somebody has the run: try again), lost.
CREATE FUNCTION sas._held(run_ids bigint[], step_nos int[], elements int[], request_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[] := sas._lock_runs(run_ids);
    answer text[];
BEGIN
    -- nearly always all of them are; else a set is asked, not a list
    SELECT array_agg(CASE WHEN cardinality(locked) < cardinality(run_ids) AND NOT u.run_id IN (SELECT unnest(locked)) THEN 'locked'
                          WHEN s.request_id = u.request_id AND s.complete_by > sas._now() THEN 'held'
                          ELSE 'lost' END ORDER BY u.n)
    INTO answer
    FROM unnest(run_ids, step_nos, elements, request_ids) WITH ORDINALITY AS u (run_id, step_no, element, request_id, n)
    LEFT JOIN sas.step s ON s.run_id = u.run_id AND s.step_no = u.step_no AND s.element = u.element;
    RETURN answer;
END $$;
