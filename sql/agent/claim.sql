-- SPDX-License-Identifier: PostgreSQL
--
-- Claim of agent workers: steps go from the hot queue to one worker, in batches, under one lease. It needs
-- no lock on a run (see _sas.ready) and waits for nothing.

-- _sas.claim_calls(...): claims calls for an agent worker, and returns what to send.
--
-- request is {method, path, query, headers, body | form | text, timeout}. If its templates could not be
-- filled in, request is null and problem says why, and whether the problem may pass. policy is {retry,
-- expect} of the step. For a poll whose call has succeeded, the request is the status request, which has no
-- key and must be answered with 2xx; in an undo also with what its call may be answered with.
-- apart: as in _sas.claim_ready.
-- If the templates of the batch cost too much (src/template/budget.h), nothing is claimed: the last row is
-- null. The worker claims fewer steps next time.
--   holds   nothing; locks no run, and skips a ready row that another session has locked
--   writes  ready, lease, step, run (_sas.claim_ready)
--   next    _sas.write_replies, or _sas.take_back
CREATE FUNCTION _sas.claim_calls(lanes int[], quantities int[], boot bigint, worker_id bigint, locked_by text,
                                 apart boolean DEFAULT false)
RETURNS SETOF _sas.wanted_call
LANGUAGE plpgsql AS $$
DECLARE
    batch record;
    c _sas.claimed;
BEGIN
    BEGIN
        batch := _sas.claim_ready(lanes, quantities, boot, worker_id, locked_by, apart => apart);
        IF batch.claimed IS NULL THEN
            RETURN;
        END IF;
        BEGIN
            RETURN QUERY SELECT * FROM _sas.calls_wanted(batch.lease_id, batch.claimed, batch.plain);
            RETURN;
        EXCEPTION WHEN OTHERS THEN
            IF NOT _sas.is_of_item(SQLSTATE) THEN
                RAISE;
            END IF;
        END;
        FOREACH c IN ARRAY batch.claimed LOOP
            BEGIN
                RETURN QUERY SELECT * FROM _sas.calls_wanted(batch.lease_id, ARRAY[c], batch.plain);
            EXCEPTION WHEN OTHERS THEN
                IF NOT _sas.is_of_item(SQLSTATE) THEN
                    RAISE;
                END IF;
                RETURN QUERY
                SELECT batch.lease_id, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
                       c.request_id, date_part('epoch', c.complete_in) * 1000, r.trace,
                       _sas.step_key(r.trace, w.name, c.element, c.undo), NULL::jsonb,
                       jsonb_strip_nulls(jsonb_build_object('retry', w.retry)),
                       _sas.template_fault(SQLSTATE, SQLERRM), v.workflow_id, r.owner::oid
                FROM _sas.run r JOIN _sas.workflow_version v USING (version_id)
                JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no
                    AND w.undo = c.undo
                WHERE r.run_id = c.run_id;
            END;
        END LOOP;
    EXCEPTION WHEN SQLSTATE 'SAS01' THEN
        RETURN NEXT NULL;
    END;
END $$;

-- _sas.calls_wanted(under_lease, claimed, plain): what to send for these claimed steps. It is not inlined,
-- so that it returns nothing at all when it raises an error. plain: they are calls that see nothing but the
-- run and its input; if there are no phases and no overrides, fewer tables are read.
CREATE FUNCTION _sas.calls_wanted(under_lease bigint, claimed _sas.claimed[], plain boolean)
RETURNS SETOF _sas.wanted_call
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT c.run_id FROM unnest(claimed) c);
    staged boolean := _sas.are_staged(ids);
    edited boolean := _sas.are_edited(ids);
BEGIN
    IF plain AND NOT staged AND NOT edited THEN
        RETURN QUERY
        SELECT under_lease, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
               c.request_id, date_part('epoch', c.complete_in) * 1000, r.trace, k.key,
               (b.body).result,
               CASE WHEN w.retry IS NULL AND w.expect IS NULL THEN '{}'
                   ELSE jsonb_strip_nulls(jsonb_build_object('retry', w.retry, 'expect', w.expect)) END,
               _sas.call_problem((b.body).problem, r.owner, c, w.lane, w.name, (b.body).result, false),
               v.workflow_id, r.owner::oid
        FROM unnest(claimed) c
        JOIN _sas.workflow_version v ON v.version_id = c.version_id
        JOIN _sas.run r ON r.run_id = c.run_id
        CROSS JOIN LATERAL (SELECT x.name, x.lane, x.request, x.retry, x.expect, x.input_reads
                            FROM _sas.workflow_step x
                            WHERE x.version_id = c.version_id AND x.step_no = c.step_no
                                AND x.undo = c.undo OFFSET 0) w
        CROSS JOIN LATERAL (SELECT _sas.step_key(r.trace, w.name, 0, c.undo) AS key OFFSET 0) k
        CROSS JOIN LATERAL (SELECT _sas.render_request(w.request,
                                                       _sas.root(r.input, w.input_reads, k.key, r.run_id,
                            r.key, r.labels, r.created_at, r.deadline, '{}', r.schedule,
                            r.scheduled_at)) AS body OFFSET 0) b;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT under_lease, c.lane, c.run_id, c.step_no, c.element, w.name, c.undo, c.attempt,
           c.request_id, date_part('epoch', c.complete_in) * 1000, r.trace,
           CASE WHEN k.started IS NULL THEN x.root ->> 'key' END, coalesce(g.request, body.request),
           jsonb_strip_nulls(jsonb_build_object('retry', w.retry, 'expect', CASE
                                                WHEN k.started IS NULL OR c.undo THEN w.expect END)),
           _sas.call_problem(body.problem, r.owner, c, w.lane, w.name, coalesce(g.request, body.request),
                             k.started IS NOT NULL), v.workflow_id, r.owner::oid
    FROM unnest(claimed) c
    JOIN _sas.workflow_version v ON v.version_id = c.version_id
    JOIN _sas.run r ON r.run_id = c.run_id
    JOIN _sas.workflow_step w ON w.version_id = c.version_id AND w.step_no = c.step_no AND w.undo = c.undo
    CROSS JOIN LATERAL (SELECT CASE WHEN w.shape ? 'poll'
                                    THEN (SELECT o.started FROM _sas.step s, LATERAL _sas.poll_of(s) o
                                          WHERE s.run_id = c.run_id AND s.step_no = c.step_no
                                            AND s.element = c.element) END AS started OFFSET 0) k
    CROSS JOIN LATERAL (
        SELECT (SELECT h.root
                FROM _sas.root_of(r.run_id, r.version_id, r.trace, r.key, r.input, r.labels, r.created_at,
                                  r.deadline, r.schedule, r.scheduled_at, w, c.element) h)
               || CASE WHEN k.started IS NULL THEN '{}'
                       ELSE jsonb_build_object('started', k.started) END AS root,
               CASE WHEN k.started IS NULL THEN w.request
                    ELSE w.shape #> '{poll,call}' END AS request OFFSET 0) x
    -- the request as middleware has changed it, or the body that an operator has set
    LEFT JOIN LATERAL (SELECT p.request FROM _sas.phase p WHERE staged AND p.run_id = c.run_id
                       AND p.step_no = c.step_no AND p.element = c.element AND p.undo = c.undo OFFSET 0) g
        ON staged
    LEFT JOIN LATERAL (SELECT d.input FROM _sas.override d WHERE edited AND d.run_id = c.run_id
                       AND d.step_no = c.step_no AND d.element = c.element AND NOT c.undo
                       AND k.started IS NULL OFFSET 0) e ON edited
    LEFT JOIN LATERAL _sas.filled_request(x.request, x.root, e.input) body ON g.request IS NULL;
END $$;
