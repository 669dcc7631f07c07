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
    RETURN QUERY SELECT * FROM _sas.check_keys(c, '/concurrency', '{key,limit}');
    IF jsonb_typeof(c) <> 'object' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT * FROM _sas.check_number(c -> 'limit', '/concurrency/limit', 1, 1000000)
    UNION ALL
    SELECT '/concurrency/key', 'the concurrency key must be a string',
        'Write a template such as "{{input.account}}"; a constant counts all runs of the workflow.', '22023'
    WHERE jsonb_typeof(c -> 'key') IS DISTINCT FROM 'string'
    UNION ALL
    SELECT '/concurrency/key', CASE WHEN r.problem IS NOT NULL THEN r.problem
        ELSE format('"%s" is not known before the run begins', r.path) END,
           coalesce(r.hint, 'A reference here begins with input or run.'),
           CASE WHEN r.problem IS NULL THEN '42P10' WHEN r.hint IS NULL THEN '42601' ELSE '0A000' END
    FROM _sas.references(CASE jsonb_typeof(c -> 'key') WHEN 'string' THEN c -> 'key' ELSE 'null' END) r
    WHERE r.problem IS NOT NULL OR r.root IS NULL OR NOT r.root IN ('input', 'run');
END $$;

-- _sas.store_starting(version_id, said): what a version says about its queue and about how many runs there
-- may be.
CREATE FUNCTION _sas.store_starting(id int, said jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE _sas.workflow_version v
    SET queue_id = _sas.queue_id(said -> 'queue'),
        singleton = coalesce((said ->> 'singleton')::boolean, false),
        place_key = said #> '{concurrency,key}', place_limit = CASE
            WHEN said ? 'concurrency' THEN coalesce((said #>> '{concurrency,limit}')::int, 1) END
    WHERE v.version_id = id AND said ?| '{queue,singleton,concurrency}';
END $$;
