-- SPDX-License-Identifier: PostgreSQL
--
-- Nulls as arguments: each public function says in plain words what must not be null, and where.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

-- the error of a statement: SQLSTATE, message, DETAIL; none: an empty text
CREATE FUNCTION pg_temp.error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    BEGIN
        EXECUTE statement;
        RAISE SQLSTATE 'ZZ000';
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN RETURN '';
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        RETURN concat_ws(' ', SQLSTATE, SQLERRM, detail);
    END;
END $$;

CREATE TEMP TABLE call AS
SELECT p.proname AS verb, pg_temp.error_of(format('SELECT FROM sas.%I(%s)', p.proname, (
           SELECT string_agg(format('%s NULL::%s', CASE WHEN p.oid::oid = p.provariadic THEN 'VARIADIC' ELSE '' END, t::regtype), ', ' ORDER BY n)
           FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n)))) AS error
FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND p.pronargs > 0 AND p.provariadic = 0;

SELECT cmp_ok(count(*), '>', 100::bigint, 'every public function is called with nulls') FROM call;
SELECT unalike(error, '%<NULL>%', verb || ' does not print a null as if it were a name') FROM call;
SELECT unalike(error, '%""%', verb || ' does not print it as an empty name') FROM call;
SELECT unalike(error, '%"null"%', verb || ' nor as a name in quotes') FROM call;
SELECT is(pg_temp.error_of(statement), error, statement) FROM (VALUES
    ($$SELECT sas.drop_agent(NULL)$$, '22004 the agent must not be null At /name.'),
    ($$SELECT sas.grant_agent(NULL, 'postgres')$$, '22004 the agent must not be null At /agent.'),
    ($$SELECT sas.watch(NULL, 'a')$$, '22004 the watcher must not be null At /watcher.'),
    ($$SELECT sas.submit(NULL)$$, '22004 the workflow must not be null At /workflow.'),
    ($$SELECT sas.pause_workflow(NULL)$$, '22004 the workflow must not be null At /name.'),
    ($$SELECT sas.signal_key('a', NULL, 's')$$, '22004 the key must not be null At /key.'),
    ($$SELECT sas.create_queue(NULL, 1)$$, '22004 the name must not be null At /name.'),
    ($$SELECT sas.grant_usage('postgres', NULL)$$, '22023 null is not a level At /level.'),
    ($$SELECT sas.pause_workflow('a')$$, '42704 workflow "a" does not exist, or is not yours At /name.')) AS x (statement, error);
SELECT sas.create_workflow('empty', '{"steps": {"a": {"wait": {"for": "1 h"}}}}') \g /dev/null
SELECT is(pg_temp.error_of(format('SELECT sas.chunks(%s, NULL)', run_id)), '22004 the step must not be null At /step.', 'chunks of no step') FROM sas.submit('empty');

-- definitions: what is no name is not printed as an empty one, and a child gets an object
SELECT is((SELECT string_agg(concat_ws(' ', path, problem), '; ' ORDER BY path) FROM sas.validate_workflow(jsonb_build_object('steps', jsonb_build_object('a', body::jsonb)))), problems, 'refused: ' || body) FROM (VALUES
    ('{"wait": {"signal": 7}}', '/steps/a/wait/signal expected the name of a signal'),
    ('{"wait": {"signal": ["x", null]}}', '/steps/a/wait/signal/1 expected the name of a signal'),
    ('{"workflow": "empty", "input": 7}', '/steps/a/input the input of a run must be an object, not number'),
    ('{"workflow": "empty", "input": "seven"}', '/steps/a/input the input of a run must be an object, not string'),
    ('{"workflow": "empty", "input": "{{input}}"}', NULL),
    ('{"wait": {"for": "1 s"}, "undo": {"include": "empty", "input": []}}', '/steps/a/undo/input the input of a run must be an object, not array')) AS x (body, problems);
SELECT sas.create_agent('a', 'http://127.0.0.1:1') \g /dev/null
SELECT is((SELECT string_agg(concat_ws(' ', path, problem), '; ' ORDER BY path) FROM sas.validate_workflow('{"steps": {"a": {"agent": "a", "call": {"form": []}}, "b": {"agent": "a", "call": {"text": {}}}}}')),
    '/steps/a/call/form form must be an object; /steps/b/call/text text must be a string', 'the place is that of the body');
CREATE FUNCTION public.look(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT is(pg_temp.error_of($$SELECT sas.create_watcher('w', '{"function": "public.look"}')$$) ~ 'neither "every" nor "schedule"', true, 'a watcher whose function is never called is told so');

SELECT * FROM finish();
