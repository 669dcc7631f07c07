-- SPDX-License-Identifier: PostgreSQL
--
-- What a definition says of the beginning of its runs: one at a time, places under a key.

-- _sas.check_starting(definition): concurrency, singleton and queue of a run.
CREATE FUNCTION _sas.check_starting(definition jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c jsonb := definition -> 'concurrency';
BEGIN
    RETURN QUERY
    SELECT * FROM _sas.check_boolean(definition -> 'singleton', '/singleton')
    UNION ALL SELECT * FROM _sas.check_queue(definition -> 'queue', '/queue');
    IF c IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM _sas.check_keys(c, '/concurrency', '{key,limit,shared,scope,overlap}');
    IF jsonb_typeof(c) <> 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_number(c -> 'limit', '/concurrency/limit', 1, 1000000)
    UNION ALL
    SELECT * FROM _sas.check_boolean(c -> 'shared', '/concurrency/shared')
    UNION ALL
    SELECT '/concurrency/scope', 'the scope must be workflow, owner or all',
        'Write "workflow": this workflow''s runs of one owner; "owner": all runs of one owner; "all": '
        'everybody''s.', '22023'
    WHERE c ? 'scope' AND (c -> 'scope' IN ('"workflow"', '"owner"', '"all"')) IS NOT TRUE
    UNION ALL
    SELECT * FROM _sas.check_overlap(c)
    UNION ALL
    SELECT '/concurrency/key', 'the concurrency key must be a string',
        'Write a template such as "{{input.account}}"; a constant counts all runs of the workflow.', '22023'
    WHERE jsonb_typeof(c -> 'key') IS DISTINCT FROM 'string'
    UNION ALL
    SELECT '/concurrency/key', CASE WHEN r.problem IS NOT NULL THEN r.problem
        ELSE format('"%s" is not known before the run begins', r.path) END,
           coalesce(r.hint, 'A reference here begins with input, or is run.id, run.key, run.labels, '
               'run.created_at, run.deadline, run.schedule or run.scheduled_at.'),
           CASE WHEN r.problem IS NULL THEN '42P10' WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.references(CASE jsonb_typeof(c -> 'key') WHEN 'string' THEN c -> 'key' ELSE 'null' END) r
    -- of run: what _sas.start_context knows
    WHERE r.problem IS NOT NULL OR r.root IS NULL OR NOT r.root IN ('input', 'run')
       OR r.root = 'run' AND (r.member = ANY ('{id,key,labels,created_at}') OR r.member = ANY (
           '{deadline,schedule,scheduled_at}') AND coalesce(c ->> 'overlap', 'wait') = 'wait') IS NOT TRUE;
END $$;

-- _sas.check_overlap(concurrency): what it says a submit meets when there is no room.
CREATE FUNCTION _sas.check_overlap(c jsonb) RETURNS SETOF _sas.problem
LANGUAGE sql IMMUTABLE AS $$
    SELECT '/concurrency/overlap', 'the overlap must be wait, return or refuse',
        'Write "wait": the run waits for its place; "return": submit returns the open run; "refuse": '
        'submit fails.', '22023'
    WHERE c ? 'overlap' AND (c -> 'overlap' IN ('"wait"', '"return"', '"refuse"')) IS NOT TRUE
    UNION ALL
    SELECT '/concurrency/shared', 'a shared key has no overlap but wait',
        'Leave out "shared" or "overlap".', '0A000'
    WHERE c -> 'shared' = 'true' AND c -> 'overlap' IN ('"return"', '"refuse"')
$$;

-- _sas.check_scope(version_id): raises where a key is everybody's and the owner of the workflow is neither an
-- admin nor a superuser: runs of others would wait for it.
CREATE FUNCTION _sas.check_scope(for_version int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM _sas.workflow_version v
    JOIN _sas.workflow w USING (workflow_id)
    WHERE v.version_id = for_version AND v.place_scope = 'all' AND NOT _sas.has_level(w.owner, 'admin');
    IF FOUND THEN
        RAISE EXCEPTION 'scope all needs a workflow that an admin or a superuser owns'
            USING ERRCODE = 'insufficient_privilege', DETAIL = 'At /concurrency/scope.',
                HINT = 'Use "owner" for a key over all runs of each owner.';
    END IF;
END $$;

-- _sas.store_starting(version_id, said): what a version says about its queue and about how many runs there
-- may be.
CREATE FUNCTION _sas.store_starting(id int, said jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.workflow_version v
    SET queue_id = _sas.queue_id(said -> 'queue'),
        singleton = coalesce((said ->> 'singleton')::boolean, false),
        place_key = said #> '{concurrency,key}',
        place_limit = CASE WHEN said ? 'concurrency'
            THEN coalesce((said #>> '{concurrency,limit}')::int, 1) END,
        place_shared = CASE WHEN said ? 'concurrency'
            THEN coalesce((said #>> '{concurrency,shared}')::boolean, false) END,
        place_scope = CASE WHEN said ? 'concurrency'
            THEN coalesce(said #>> '{concurrency,scope}', 'workflow') END,
        overlap = nullif(said #>> '{concurrency,overlap}', 'wait')
    WHERE v.version_id = id AND said ?| '{queue,singleton,concurrency}';
    PERFORM _sas.check_scope(id);
END $$;
