-- SPDX-License-Identifier: PostgreSQL
--
-- Context: what templates see of a run and of its steps, and under which names; and how errors are shown.

-- _sas.step_key(...): the Idempotency-Key of a step: the same in every attempt, and another one for its
-- undo.
CREATE FUNCTION _sas.step_key(trace uuid, step text, element int, undo boolean) RETURNS text
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sas_api_step_key';

-- _sas.token(run_id, trace, step): the token that ends the wait of this step from outside; only those to
-- whom it is given know it. It is made from the name of the step, because its number may change with the
-- version of the run (sas.set_version).
CREATE FUNCTION _sas.token(run_id bigint, trace uuid, step text) RETURNS text
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN (SELECT format('%s-%s', $1,
                          left(encode(sha256(convert_to(format('%s %s %s %s', k.value, $1, $2, $3), 'UTF8')),
                                      'hex'), 40)) FROM _sas.token_key k);
END $$;

-- _sas.kept_output(state, output, error): the output of a step, as other steps see it. A reply that its step
-- did not accept stays in the row, for an undo that reads it. If the step is skipped, it has no output but
-- the one that an operator gave it.
CREATE FUNCTION _sas.kept_output(state text, output jsonb, error jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN state = 'skipped' AND error ->> 'type' IS DISTINCT FROM 'urn:sas:skipped' THEN NULL
           ELSE output END
$$;

-- _sas.has_failed(state, error): has the step failed for good, also if its failure was skipped?
CREATE FUNCTION _sas.has_failed(state text, error jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT state = 'failed' OR state = 'skipped' AND error ->> 'type' NOT IN ('urn:sas:skipped',
                                                                               'urn:sas:left-standing')
$$;

-- _sas.steps_of(for_run, for_version, trace, reads, own_no, own_element): what templates see under "steps".
-- An element of step own_no sees its own result under the name of its step. It returns one row as a set, so
-- that the planner makes it part of the calling statement and does not start it for each step.
CREATE FUNCTION _sas.steps_of(for_run bigint, for_version int, trace uuid, reads int[], own_no int,
                              own_element int) RETURNS TABLE (steps jsonb)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(
               w.local_name,
               jsonb_build_object('key', coalesce((SELECT k.key FROM _sas.override k
                                                   WHERE k.run_id = for_run AND k.step_no = w.step_no
                                                     AND k.element = e.element),
                                                  _sas.step_key(trace, w.name, e.element, false)),
                                  'state', coalesce(s.state, 'waiting'),
                                  'failed', coalesce(s.failed, false))
               || CASE WHEN s.started IS NOT NULL
                       THEN jsonb_build_object('started', s.started)
                            || CASE WHEN s.output IS NULL THEN '{}'
                                    ELSE jsonb_build_object('output', s.output) END
                       WHEN s.output IS NULL THEN '{}'
                       -- the call of a poll got a reply that was not expected; it is both
                       WHEN w.shape ? 'poll' AND NOT w.shape ?| '{each,repeat}'
                            OR w.shape ? 'poll' AND e.element > 0
                       THEN jsonb_build_object('output', s.output, 'started', s.output)
                       ELSE jsonb_build_object('output', s.output) END
               || CASE WHEN w.kind = 'wait'
                       THEN jsonb_build_object('token', _sas.token(for_run, trace, w.name))
                       ELSE '{}' END), '{}')
    FROM unnest(reads) AS n (step_no)
    CROSS JOIN LATERAL _sas.step_definition(for_version, n.step_no) w
    CROSS JOIN LATERAL (SELECT CASE WHEN w.step_no = own_no THEN own_element ELSE 0 END AS element) e
    LEFT JOIN LATERAL (SELECT x.state, x.started, _sas.kept_output(x.state, x.output, x.error) AS output,
                              _sas.has_failed(x.state, x.error) AS failed
                       FROM _sas.step x WHERE x.run_id = for_run
                       AND x.step_no = w.step_no AND x.element = e.element OFFSET 0) s ON true
$$;

-- _sas.run_context(r, step, reads): the root of the paths in a run's output and finalize. reads null: all
-- steps but those inside an include.
CREATE FUNCTION _sas.run_context(r _sas.run, step text, reads int[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT _sas.root(r.input, NULL, _sas.step_key(r.trace, step, 0, false), r.run_id, r.key, r.labels,
                     r.created_at, r.deadline,
                     CASE WHEN reads = '{}' THEN '{}'::jsonb
                          ELSE (SELECT x.steps
                                FROM _sas.steps_of(
                                    r.run_id, r.version_id, r.trace,
                                    coalesce(reads, ARRAY(SELECT w.step_no FROM _sas.workflow_step w
                                                          WHERE w.version_id = r.version_id AND NOT w.undo
                                                            AND NOT w.hidden AND strpos(w.name, '.') = 0)),
                                    NULL, 0) x) END,
                     r.schedule, r.scheduled_at)
$$;

-- _sas.root_of(for_run, for_version, trace, run_key, run_input, labels, created_at, deadline, schedule,
-- scheduled_at, w, element): the root of the paths in a step, or in its undo. It returns a set of one row, as
-- _sas.steps_of. It takes columns, not the row of the run, which would be built for each element of a map,
-- with its whole input. The root of an element has no copy of the array that the map works on: a long array
-- would be copied once per element.
CREATE FUNCTION _sas.root_of(for_run bigint, for_version int, trace uuid, run_key text, run_input jsonb,
                             labels jsonb, created_at timestamptz, deadline timestamptz, schedule text,
                             scheduled_at timestamptz, w _sas.workflow_step, element int)
RETURNS TABLE (root jsonb)
LANGUAGE sql STABLE AS $$
    SELECT _sas.root(
        -- the input of an included workflow may be of any type
        CASE WHEN w.scope_no IS NOT NULL
            THEN (SELECT o.output FROM _sas.step o WHERE o.run_id = for_run AND o.step_no = w.scope_no
                  AND o.element = 0) ELSE run_input END,
        CASE WHEN NOT w.enters OR $12 > 0 THEN w.input_reads END,
        coalesce((SELECT CASE WHEN w.undo THEN k.undo_key ELSE k.key END FROM _sas.override k
                  WHERE k.run_id = for_run AND k.step_no = w.step_no AND k.element = $12),
                 _sas.step_key(trace, w.name, $12, w.undo)),
        for_run, run_key, $6, $7, $8,
        CASE WHEN w.reads = '{}' AND (w.enter_reads = '{}' OR NOT w.enters OR $12 > 0 OR w.undo)
             THEN '{}'::jsonb
             ELSE (SELECT x.steps
                   FROM _sas.steps_of(for_run, for_version, trace,
                                      CASE WHEN w.enters AND $12 = 0 AND NOT w.undo
                                           THEN w.reads || w.enter_reads ELSE w.reads END,
                                      w.step_no, $12) x) END,
        $9, $10,
        CASE WHEN $12 > 0 THEN $12 - 1 END,
        CASE WHEN $12 > 0
             THEN (SELECT i.item FROM _sas.item i WHERE i.run_id = for_run
                   AND i.step_no = coalesce((w.shape ->> 'stands_in')::int, w.step_no)
                   AND i.element = $12) END,
        CASE WHEN $12 > 1 AND NOT coalesce(w.shape ? 'each', false)
             THEN (SELECT _sas.kept_output(s.state, s.output, s.error) FROM _sas.step s
                   WHERE s.run_id = for_run AND s.element = $12 - 1
                     AND s.step_no = coalesce((w.shape ->> 'stands_in')::int, w.step_no)) END)
$$;

-- _sas.context(r, w, element): the same for a single step, for callers that have few.
CREATE FUNCTION _sas.context(r _sas.run, w _sas.workflow_step, element int) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT x.root FROM _sas.root_of(r.run_id, r.version_id, r.trace, r.key, r.input, r.labels,
                                            r.created_at, r.deadline, r.schedule, r.scheduled_at, w,
                                            element) x);
END $$;

-- _sas.shown_name(name): the name under which a step is shown: the opening step of an include has the name
-- of the include.
CREATE FUNCTION _sas.shown_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT replace(name, '.(input)', '');
END;

-- _sas.problem_object(...): an error in the form of RFC 9457. run_id null: it is about no run.
CREATE FUNCTION _sas.problem_object(kind text, title text, detail text DEFAULT NULL, status int DEFAULT NULL,
                                    run_id bigint DEFAULT NULL, step text DEFAULT NULL)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'type', 'urn:sas:' || kind, 'title', title, 'detail', detail, 'status', status,
        'instance', '/runs/' || run_id || coalesce('/steps/' || _sas.shown_name(step), '')))
$$;

-- _sas.problem_text(problem): what _sas.render reports, as text; null: nothing.
CREATE FUNCTION _sas.problem_text(problem jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (problem ->> 'path') || ': ' || (problem ->> 'what')
$$;

-- _sas.output_error(problem, run_id, step): the error of a step whose output could not be built; null: it
-- could.
CREATE FUNCTION _sas.output_error(problem jsonb, run_id bigint, step text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT _sas.problem_object('output', 'could not build the output of the step',
                               _sas.problem_text(problem), NULL, run_id, step) WHERE problem IS NOT NULL
$$;

-- _sas.with_undo_error(error, undo_error): the error of a run that cannot go on, and beside it what keeps
-- the run from being undone. A resume takes that away again (_sas.move_runs).
CREATE FUNCTION _sas.with_undo_error(error jsonb, undo_error jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN error IS NULL OR undo_error IS NULL THEN coalesce(undo_error, error)
           ELSE error || jsonb_build_object('undo_error', undo_error) END
$$;

-- _sas.public_part(error): the part of one error that is shown to roles which may not see payloads. The
-- message of a function, or of SQL, may contain anything; only its SQLSTATE remains.
CREATE FUNCTION _sas.public_part(error jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN error ->> 'type' ~ '^urn:sas:(sqlstate|schedule)' AND error ? 'title'
                THEN error || jsonb_build_object('title', concat(
                    'an error', ' with SQLSTATE ' || substring(error ->> 'type' FROM 'sqlstate:(.*)')))
                ELSE error END - '{detail,hint,context,undo_error}'::text[];
END;

-- _sas.public_error(error): the same of an error and of the error of an undo beside it.
CREATE FUNCTION _sas.public_error(error jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN error ? 'undo_error'
           THEN _sas.public_part(error)
                || jsonb_build_object('undo_error', _sas.public_part(error -> 'undo_error'))
           ELSE _sas.public_part(error) END;
END;

-- _sas.title(error): an error in one line: its title, detail, hint and the first line of its context, as
-- far as they exist. Roles that may not see payloads get this of _sas.public_error.
CREATE FUNCTION _sas.title(error jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE
               WHEN error ? 'title'
               THEN translate(concat(left(error ->> 'title', 200),
                                     ': ' || left(rtrim(error ->> 'detail', '.'), 300),
                                     ' (' || left(split_part(error ->> 'context', E'\n', 1), 200) || ')',
                                     '; hint: ' || left(rtrim(error ->> 'hint', '.'), 200)),
                              E'\r\n\t', '   ')
               ELSE 'no error is stored' END;
END;

-- _sas.doubt_told(run_id, step, element): how an operator settles a call in doubt that the service answers
-- with a refusal, as alerts and explain end. element null: of all elements.
CREATE FUNCTION _sas.doubt_told(run_id bigint, step text, element int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('; an earlier attempt may have been carried out: if it was, '
                  'sas.force_complete(%1$s, %2$L, ...), if not, sas.retry(%1$s, %3$L, new_key => true)',
                  run_id,
                  step || coalesce('[' || nullif(element, 0) || ']', ''), step);
END;

-- _sas.filled_request(template, root, input): the request of a call with its templates filled in, or what
-- is wrong with them. input: sent instead of its body, form or text; null: these are sent.
CREATE FUNCTION _sas.filled_request(template jsonb, root jsonb, input jsonb)
RETURNS TABLE (request jsonb, problem jsonb)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN input IS NULL THEN body.result
        ELSE body.result || jsonb_build_object(_sas.body_part(template), input) END, body.problem
    FROM _sas.render_request(CASE WHEN input IS NULL THEN template
                             ELSE template - '{body,form,text}'::text[] END, root) body
$$;

-- _sas.body_part(request): the key under which a call has its payload: body, form or text; null if it has
-- none.
CREATE FUNCTION _sas.body_part(request jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN request ? 'body' THEN 'body' WHEN request ? 'form' THEN 'form'
        WHEN request ? 'text' THEN 'text' END
$$;

-- _sas.has_expected_status(expect, output): is the status of the reply one of these, such as 200 or "2xx"?
CREATE FUNCTION _sas.has_expected_status(expect jsonb, output jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    -- middleware may remove the status; the agent worker has checked it already
    SELECT NOT output ? 'status'
        OR EXISTS (SELECT FROM jsonb_array_elements_text(expect) e
                   WHERE output ->> 'status' LIKE replace(e, 'x', '_'))
$$;

-- _sas.meets(expect, output, root): does the reply meet the "expect" of the step? The planner inlines it.
--   met     true if expect is null; else true, false, or null for a predicate that is neither
--   reason  why it is neither, if that is known: the budget is spent
CREATE FUNCTION _sas.meets(expect jsonb, output jsonb, root jsonb) RETURNS TABLE (met boolean, reason text)
LANGUAGE sql STABLE AS $$
    SELECT CASE jsonb_typeof(expect) WHEN 'array' THEN _sas.has_expected_status(expect, output)
                                     WHEN 'string' THEN tested.met ELSE true END,
           tested.reason
    -- the predicate is strict: null arguments cost nothing
    FROM _sas.predicate(CASE jsonb_typeof(expect) WHEN 'string' THEN expect #>> '{}' END,
                        CASE jsonb_typeof(expect) WHEN 'string'
                            THEN _sas.with_member(root, 'output', coalesce(output, 'null')) END) tested
$$;

-- _sas.neither(name, reason): the text that a predicate is neither true nor false.
CREATE FUNCTION _sas.neither(name text, reason text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT name || coalesce(' cannot be evaluated: it ' || reason, ' is neither true nor false')
$$;
