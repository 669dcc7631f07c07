-- SPDX-License-Identifier: PostgreSQL
--
-- errors: what a user reads of an error: message, DETAIL with the place, HINT with the name that was meant,
-- and in CONTEXT the user's own functions, but none of sas.
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.ratio(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 / (input ->> 'n')::int;
    RETURN '{}';
END $$;
CREATE FUNCTION t.order_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.submit('planned', '{"n": 0}');
END $$;
SELECT sas.create_workflow('orders', '{"steps": {"a": {"function": "t.echo"}}}');
SELECT sas.create_workflow('planned', '{"plan": "t.ratio"}');
\echo keys, choices, steps, agents, queues and workflows: the nearest name
SELECT sas.create_workflow('x', '{"steps": {"a": {"functon": "t.echo"}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo"}}, "on_failure": "puase"}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}, "b": {"function": "t.echo", "after": ["chagre"]}}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}, "b": {"function": "t.echo", "input": "{{steps.chrge.output}}"}}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}}, "flow": {"sequence": ["charg"]}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}}, "mask": ["steps.chargee.output"]}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"agent": "paymnts", "call": {}}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"include": "ordres"}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo", "queue": "flsh"}}}');
SELECT sas.create_queue('flush', 2);
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo", "queue": "flsh"}}}');
SELECT sas.alter_queue('flash', 2);
SELECT sas.alter_agent('inventroy');
SELECT sas.alter_agent('payments', options => '{"http_versoin": "2"}');
SELECT * FROM sas.submit('order');
\echo nothing is near; no name; a name that nobody means
SELECT * FROM sas.submit('something_else');
SELECT * FROM sas.submit(NULL);
SELECT * FROM sas.submit(repeat('order', 20));
\echo a role is not told of workflows that it may not submit
CREATE ROLE sas_test_stranger;
CREATE ROLE sas_test_other;
SELECT sas.grant_usage(r::regrole, 'user'), t.allow(r::regrole) FROM unnest('{sas_test_stranger,sas_test_other}'::text[]) r \g /dev/null
SET ROLE sas_test_stranger;
SELECT sas.create_workflow('strange', '{"steps": {"a": {"function": "t.echo"}}}');
SELECT * FROM sas.submit('strangely');
SET ROLE sas_test_other;
SELECT * FROM sas.submit('strangely');
SELECT * FROM sas.submit('order');
RESET ROLE;
SELECT sas.drop_workflow('strange');
SELECT sas.revoke_usage(r::regrole) FROM unnest('{sas_test_stranger,sas_test_other}'::text[]) r \g /dev/null
DROP OWNED BY sas_test_stranger, sas_test_other;
DROP ROLE sas_test_stranger, sas_test_other;
\echo functions of the user stay, on both sides
SELECT * FROM sas.submit('planned', '{"n": 0}');
SELECT t.order_all();
DO $$ BEGIN PERFORM sas.submit('order'); END $$;
\echo an error is caught like any other, and what follows has its own context
DO $$
DECLARE
    said text;
BEGIN
    BEGIN
        PERFORM sas.submit('order');
    EXCEPTION WHEN undefined_object THEN
        GET STACKED DIAGNOSTICS said = PG_EXCEPTION_CONTEXT;
    END;
    RAISE NOTICE '%', said;
    PERFORM 1 / 0;
END $$;
SELECT sas.drop_queue('flush');
SELECT sas.drop_workflow('planned'), sas.drop_workflow('orders');
DROP FUNCTION t.order_all(), t.ratio(jsonb);
