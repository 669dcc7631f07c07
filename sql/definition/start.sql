-- SPDX-License-Identifier: PostgreSQL
--
-- What a definition says about the beginning of its runs: concurrency keys and a queue.

-- _sas.check_starting(definition): checks concurrency and queue of a run.
CREATE FUNCTION _sas.check_starting(definition jsonb) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c jsonb := definition -> 'concurrency';
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_queue(definition -> 'queue', '/queue');
    IF c IS NULL THEN
        RETURN;
    END IF;
    IF jsonb_typeof(c) = 'array' AND jsonb_array_length(c) NOT BETWEEN 1 AND 10 THEN
        RETURN QUERY SELECT '/concurrency', 'concurrency must have 1 to 10 rules',
            'Write one rule, or an array of rules.', '22023';
    END IF;
    RETURN QUERY
    SELECT p.* FROM _sas.concurrency_rules(c) r
    CROSS JOIN LATERAL _sas.check_rule(r.rule, r.path, EXISTS (
        SELECT FROM _sas.concurrency_rules(c) o WHERE coalesce(o.rule ->> 'overlap', 'wait') <> 'wait')) p
    UNION ALL
    SELECT '/concurrency', 'overlap once_more cannot stand beside a plan function',
        'The run that waits would have the plan of an older input. Plan in a child run.', '0A000'
    FROM _sas.concurrency_rules(c) r WHERE definition ? 'plan' AND r.rule -> 'overlap' = '"once_more"'
    LIMIT 1;
END $$;

-- _sas.concurrency_rules(said): one rule, or the rules of an array, with their paths in the definition.
CREATE FUNCTION _sas.concurrency_rules(said jsonb) RETURNS TABLE (rule_no int, path text, rule jsonb)
LANGUAGE sql IMMUTABLE AS $$
    SELECT 1, '/concurrency', said WHERE jsonb_typeof(said) <> 'array'
    UNION ALL
    SELECT e.n::int, '/concurrency/' || e.n - 1, e.value
    FROM jsonb_array_elements(CASE jsonb_typeof(said) WHEN 'array' THEN said END)
        WITH ORDINALITY AS e (value, n)
$$;

-- _sas.check_rule(c, path, met): checks one rule of concurrency. met: a submit evaluates its key, before
-- the run exists.
CREATE FUNCTION _sas.check_rule(c jsonb, path text, met boolean) RETURNS SETOF _sas.problem
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM _sas.check_keys(c, $2, '{key,limit,shared,scope,overlap}');
    IF jsonb_typeof(c) <> 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_number(c -> 'limit', $2 || '/limit', 1, 1000000)
    UNION ALL
    SELECT * FROM _sas.check_boolean(c -> 'shared', $2 || '/shared')
    UNION ALL
    SELECT $2 || '/scope', 'the scope must be workflow, owner or all',
        'Write "workflow": this workflow''s runs of one owner; "owner": all runs of one owner; "all": '
        'everybody''s.', '22023'
    WHERE c ? 'scope' AND (c -> 'scope' IN ('"workflow"', '"owner"', '"all"')) IS NOT TRUE
    UNION ALL
    SELECT $2 || '/overlap', 'the overlap must be wait, return, refuse, replace or once_more',
        'Write "wait": the run waits for its place; "return": submit returns the open run; "refuse": '
        'submit fails; "replace": the open run is cancelled; "once_more": one run follows the open one.',
        '22023'
    WHERE c ? 'overlap' AND NOT coalesce(
        jsonb_typeof(c -> 'overlap') = 'string'
        AND c ->> 'overlap' IN ('wait', 'return', 'refuse', 'replace', 'once_more'), false)
    UNION ALL
    SELECT $2 || '/key', 'the concurrency key must be a string',
        'Write a template such as "{{input.account}}"; a constant counts all runs of the workflow.', '22023'
    WHERE jsonb_typeof(c -> 'key') IS DISTINCT FROM 'string'
    UNION ALL
    SELECT $2 || '/key', CASE WHEN r.problem IS NOT NULL THEN r.problem
        ELSE format('"%s" is not known before the run begins', r.path) END,
           coalesce(r.hint, 'A reference here begins with input, or is run.id, run.key, run.labels, '
               'run.created_at, run.deadline, run.schedule or run.scheduled_at; the last three only where '
               'all rules wait.'),
           CASE WHEN r.problem IS NULL THEN '42P10' WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.references(CASE jsonb_typeof(c -> 'key') WHEN 'string' THEN c -> 'key' ELSE 'null' END) r
    -- members of run: those that _sas.start_context has
    WHERE r.problem IS NOT NULL OR r.root IS NULL OR NOT r.root IN ('input', 'run')
       OR r.root = 'run' AND (r.member = ANY ('{id,key,labels,created_at}')
                              OR r.member = ANY ('{deadline,schedule,scheduled_at}') AND NOT met) IS NOT TRUE;
END $$;

-- _sas.check_scope(for_version): raises an error if a key is shared by all owners, and the owner of the
-- workflow is neither an admin nor a superuser: runs of other roles would wait for it.
CREATE FUNCTION _sas.check_scope(for_version int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    place text;
BEGIN
    SELECT c.path INTO place FROM _sas.workflow_version v
    JOIN _sas.workflow w USING (workflow_id)
    CROSS JOIN unnest(v.concurrency) c
    WHERE v.version_id = for_version AND c.scope = 'all' AND NOT _sas.has_level(w.owner, 'admin')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'scope all needs a workflow that an admin or a superuser owns'
            USING ERRCODE = 'insufficient_privilege', DETAIL = _sas.at(place || '/scope'),
                HINT = 'Use "owner" for a key over all runs of each owner.';
    END IF;
END $$;

-- _sas.store_starting(id, said): stores the queue and the concurrency rules of a version.
-- Writes: workflow_version.
CREATE FUNCTION _sas.store_starting(id int, said jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.workflow_version v
    SET queue_id = _sas.queue_id(said -> 'queue'),
        concurrency = (SELECT array_agg(ROW(r.rule_no, r.path, r.rule -> 'key',
                                            coalesce((r.rule ->> 'limit')::int, 1),
                                            coalesce((r.rule ->> 'shared')::boolean, false),
                                            coalesce(r.rule ->> 'scope', 'workflow'),
                                            coalesce(r.rule ->> 'overlap', 'wait'))::_sas.concurrency_rule
                                        ORDER BY r.rule_no)
                       FROM _sas.concurrency_rules(said -> 'concurrency') r)
    WHERE v.version_id = id AND said ?| '{queue,concurrency}';
    PERFORM _sas.check_scope(id);
END $$;
