-- SPDX-License-Identifier: PostgreSQL
--
-- Claims of function workers, and whether they still hold.

-- _sas.finalizers(run_id, version_id, last): the functions of the finalize step, a line each: those of the
-- steps that succeeded, in the order of the steps, then that of the run.
CREATE FUNCTION _sas.finalizers(run_id bigint, version_id int, last text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN concat_ws(E'\n', (SELECT string_agg(w.finalizer, E'\n' ORDER BY w.finalize_rank, w.step_no)
                             FROM _sas.workflow_step w
                             JOIN _sas.step s ON s.run_id = $1 AND s.step_no = w.step_no AND s.element = 0
                                 AND s.state = 'succeeded'
                             WHERE w.version_id = $2 AND NOT w.undo AND w.finalizer IS NOT NULL), last);
END $$;

-- _sas.claim_functions(...): for a function worker. lane: that of functions, but in a test.
-- apart: as in _sas.claim_ready. If the templates of the batch cost too much (src/template/budget.h), nothing
-- is claimed: the last row is null. The worker claims fewer steps next time.
--   holds   nothing; no run is locked, and a ready row that another session has locked is passed by
--   writes  ready, lease, step, run (_sas.claim_ready)
--   next    _sas.claims_held, the functions, _sas.write_replies; or _sas.take_back
CREATE FUNCTION _sas.claim_functions(quantity int, boot bigint, worker_id bigint, locked_by text,
                                     lane int DEFAULT 0, urgent boolean DEFAULT false,
                                     apart boolean DEFAULT false)
RETURNS SETOF _sas.wanted_function
LANGUAGE plpgsql AS $$
DECLARE
    batch record;
    c _sas.claimed;
BEGIN
    BEGIN
        batch := _sas.claim_ready(ARRAY[lane], ARRAY[quantity], boot, worker_id, locked_by, urgent, apart);
        IF batch.claimed IS NULL THEN
            RETURN;
        END IF;
        BEGIN
            RETURN QUERY SELECT * FROM _sas.functions_wanted(batch.lease_id, batch.claimed, batch.plain);
            RETURN;
        EXCEPTION WHEN OTHERS THEN
            IF NOT _sas.is_of_item(SQLSTATE) THEN
                RAISE;
            END IF;
        END;
        FOREACH c IN ARRAY batch.claimed LOOP
            BEGIN
                RETURN QUERY SELECT * FROM _sas.functions_wanted(batch.lease_id, ARRAY[c], batch.plain);
            EXCEPTION WHEN OTHERS THEN
                IF NOT _sas.is_of_item(SQLSTATE) THEN
                    RAISE;
                END IF;
                RETURN QUERY
                SELECT batch.lease_id, r.owner::oid, c.run_id, c.step_no, c.element, w.name, c.undo,
                       c.attempt, c.alone, c.request_id,
                       date_part('epoch', c.complete_in) * 1000, coalesce(w.function, ''),
                       NULL::jsonb, _sas.template_fault(SQLSTATE, SQLERRM), w.retry, false, v.workflow_id
                FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
                JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no
                    AND w.undo = c.undo WHERE r.run_id = c.run_id;
            END;
        END LOOP;
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        RETURN NEXT NULL;
    END;
END $$;

-- _sas.functions_wanted(under_lease, claimed, plain): the same with what middleware and stages make of it.
-- Not inlined: it returns nothing at all when it raises. plain: they see nothing but the run and its input
-- (_sas.take_from_lanes); if there are no phases, no middleware and no overrides, fewer tables are read.
CREATE FUNCTION _sas.functions_wanted(under_lease bigint, claimed _sas.claimed[], plain boolean)
RETURNS SETOF _sas.wanted_function
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
    staged boolean := false;
    wrapped boolean := false;
    edited boolean := false;
BEGIN
    IF _sas.has_pages('_sas.middleware') OR _sas.has_pages('_sas.phase')
       OR _sas.has_pages('_sas.override') THEN
        ids := ARRAY(SELECT c.run_id FROM unnest(claimed) c);
        staged := _sas.are_staged(ids);
        edited := _sas.are_edited(ids);
        wrapped := EXISTS (SELECT FROM _sas.middleware m WHERE m.phase IN ('function', 'finalize'));
    END IF;
    IF plain AND NOT staged AND NOT wrapped AND NOT edited THEN
        RETURN QUERY SELECT * FROM _sas.plain_functions(under_lease, claimed);
        RETURN;
    END IF;
    IF NOT staged AND NOT wrapped THEN
        RETURN QUERY SELECT * FROM _sas.functions_of(under_lease, claimed);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT q.lease_id, q.owner, q.run_id, q.step_no, q.element, q.step, q.undo, q.attempt, q.alone,
        q.request_id, q.window_ms,
           coalesce(g.function, m.wrapper, q.function), coalesce(g.input, m.input, q.input),
               coalesce(g.problem, q.problem), q.retry, q.judges, q.workflow_id
    FROM _sas.functions_of(under_lease, claimed) q
    LEFT JOIN LATERAL _sas.phase_function(q.run_id, q.step_no, q.element, q.undo) g ON staged
    LEFT JOIN LATERAL _sas.wrap_function(q.run_id, q.step, q.element, q.undo, q.function, q.input) m
        ON wrapped
        AND q.problem IS NULL AND g.function IS NULL;
END $$;

-- _sas.many_follow(): a step for which more steps than this wait has a transaction of its own: its end
-- changes each of them.
CREATE FUNCTION _sas.many_follow() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 200;

-- _sas.many_wait(version_id, step_no): do more steps than that wait for this one?
CREATE FUNCTION _sas.many_wait(version_id int, step_no int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM (SELECT FROM _sas.workflow_edge e WHERE e.version_id = $1 AND e.from_no = $2
                                  LIMIT _sas.many_follow() + 1) x) > _sas.many_follow();
END $$;

-- _sas.plain_functions(under_lease, claimed): what these steps call, which see nothing but the run and its
-- input, in the order of the claim.
CREATE FUNCTION _sas.plain_functions(under_lease bigint, claimed _sas.claimed[])
RETURNS SETOF _sas.wanted_function
LANGUAGE sql STABLE AS $$
    SELECT $1, r.owner::oid, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
           c.alone OR v.step_count > _sas.many_follow() AND NOT c.undo
               AND _sas.many_wait(c.version_id, c.step_no),
           c.request_id, date_part('epoch', c.complete_in) * 1000, w.function,
           CASE WHEN w.input IS NULL THEN r.input ELSE (b.body).result END, (b.body).problem, w.retry,
           w.expect IS NOT NULL OR w.output IS NOT NULL, v.workflow_id
    FROM ROWS FROM (unnest($2)) WITH ORDINALITY AS c
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_version v ON v.version_id = c.version_id
    JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo
    CROSS JOIN LATERAL (SELECT _sas.render(w.input, CASE
                                           WHEN w.input IS NOT NULL
                                           THEN _sas.root(r.input, w.input_reads,
                                                          _sas.step_key(r.trace, w.name, 0, c.undo), r.run_id,
                                                          r.key, r.labels, r.created_at, r.deadline, '{}',
                                                          r.schedule, r.scheduled_at) END) AS body OFFSET 0) b
    ORDER BY c.ordinality
$$;

-- _sas.functions_of(under_lease, claimed): what these steps call, with what, in the order of the claim.
CREATE FUNCTION _sas.functions_of(under_lease bigint, claimed _sas.claimed[])
RETURNS SETOF _sas.wanted_function
LANGUAGE sql STABLE AS $$
    SELECT $1, r.owner::oid, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
           c.alone OR v.step_count > _sas.many_follow() AND NOT c.undo
               AND _sas.many_wait(c.version_id, c.step_no)
               -- they begin when the last element of a map has ended
               AND (c.element = 0 OR (SELECT m.remaining FROM _sas.map_progress m WHERE m.run_id = c.run_id
                                      AND m.step_no = c.step_no) <= 20),
           c.request_id, date_part('epoch', c.complete_in) * 1000,
           CASE WHEN v.finalize_no = c.step_no THEN _sas.finalizers(c.run_id, c.version_id, w.function)
               ELSE w.function END,
           CASE WHEN v.finalize_no = c.step_no THEN x.root WHEN e.input IS NOT NULL THEN e.input
               WHEN w.input IS NULL THEN r.input ELSE body.result END,
           CASE WHEN e.input IS NULL THEN body.problem END, w.retry, w.expect IS NOT NULL
               OR w.output IS NOT NULL, v.workflow_id
    FROM ROWS FROM (unnest($2)) WITH ORDINALITY AS c
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_version v ON v.version_id = c.version_id
    JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN v.finalize_no = c.step_no THEN _sas.run_context(r, w.name, NULL)
                               WHEN w.input IS NOT NULL
                               THEN (SELECT h.root
                                     FROM _sas.root_of(r.run_id, r.version_id, r.trace, r.key, r.input,
                                                       r.labels, r.created_at, r.deadline, r.schedule,
                                                       r.scheduled_at, w, c.element) h) END AS root
                        OFFSET 0) x
    LEFT JOIN LATERAL _sas.render(w.input, x.root) body ON w.input IS NOT NULL
    LEFT JOIN LATERAL (SELECT d.input FROM _sas.override d WHERE d.run_id = c.run_id AND d.step_no = c.step_no
                       AND d.element = c.element AND NOT c.undo OFFSET 0) e ON true
    ORDER BY c.ordinality
$$;

-- _sas.claims_held(...): which of these claims still hold: what a function worker asks before it calls the
-- functions. Nothing is locked: whether one holds to the end is asked when its reply is written.
-- Returns held or lost for each.
CREATE FUNCTION _sas.claims_held(run_ids bigint[], step_nos int[], elements int[], request_ids uuid[])
RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT array_agg(CASE WHEN s.request_id = u.request_id AND s.complete_by > sas.now() THEN 'held'
                                  ELSE 'lost' END ORDER BY u.n)
            FROM unnest(run_ids, step_nos, elements, request_ids)
                 WITH ORDINALITY AS u (run_id, step_no, element, request_id, n)
            LEFT JOIN LATERAL (SELECT x.request_id, x.complete_by FROM _sas.step x WHERE x.run_id = u.run_id
                               AND x.step_no = u.step_no AND x.element = u.element OFFSET 0) s ON true);
END $$;

-- _sas.rehearse_functions(): the same as _sas.rehearse_replies for a claim of functions. Changes nothing.
CREATE FUNCTION _sas.rehearse_functions() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now timestamptz := sas.now();
BEGIN
    PERFORM _sas.take_shared('{}', '{}', '{}', '{}', now);
    PERFORM _sas.begin_lease('{}', -1, -1, '', now);
    PERFORM _sas.take_steps('{}', -1, now);
    PERFORM FROM _sas.functions_wanted(-1, '{}', true);
    PERFORM FROM _sas.functions_wanted(-1, '{}', false);
    PERFORM _sas.claims_held('{}', '{}', '{}', '{}');
END $$;
