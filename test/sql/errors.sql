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
CREATE FUNCTION t.call_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.submit('misplanned', '{"n": 0}');
END $$;
SELECT sas.create_workflow('misspelled', '{"steps": {"a": {"function": "t.echo"}}}');
SELECT sas.create_workflow('misplanned', '{"plan": "t.ratio"}');
\echo keys, choices, steps, agents, queues and workflows: the nearest name
SELECT sas.create_workflow('x', '{"steps": {"a": {"functon": "t.echo"}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo"}}, "on_failure": "puase"}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}, "b": {"function": "t.echo", "after": ["chagre"]}}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}, "b": {"function": "t.echo", "input": "{{steps.chrge.output}}"}}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}}, "flow": {"sequence": ["charg"]}}');
SELECT sas.create_workflow('x', '{"steps": {"charge": {"function": "t.echo"}}, "mask": ["steps.chargee.output"]}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"agent": "paymnts", "call": {}}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"include": "misspellt"}}}');
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo", "queue": "zzflsh"}}}');
SELECT sas.create_queue('zzflush', 2);
SELECT sas.create_workflow('x', '{"steps": {"a": {"function": "t.echo", "queue": "zzflsh"}}}');
SELECT sas.alter_queue('zzflash', 2);
SELECT sas.alter_agent('inventroy');
SELECT sas.alter_agent('payments', options => '{"http_versoin": "2"}');
SELECT * FROM sas.submit('misspelled_');
\echo in a list, the place is that of the element
SELECT path, problem FROM sas.validate_workflow('{"steps": {
    "a": {"agent": "payments", "call": {}, "expect": ["2xx", "9xx", null], "retry": {"on": [503, "zz"]}},
    "b": {"agent": "payments", "call": {}, "after": ["a", 5, {}], "fallback": {"on": ["failed", "late"], "call": {}}},
    "c": {"function": "t.echo", "fallback": {"on": ["failed", "breaker_open"], "function": "t.echo"}},
    "d": {"function": "t.echo", "expect": ["2xx"], "after": "a", "fallback": {"on": [], "function": "t.echo"}}}}') \g (format=unaligned)
SELECT path, problem, hint FROM sas.validate_workflow('{"steps": {"charge": {"function": "t.echo"},
    "b": {"function": "t.echo", "after": ["charge", "chagre"]}}}') \g (format=unaligned)
SELECT sas.create_agent('zz', 'http://127.0.0.1:9', breaker => '{"paths": ["/a", "b"]}');
SELECT sas.grant_agent('payments', current_user::regrole, methods => '{GET,get}');
SELECT sas.grant_agent('payments', current_user::regrole, methods => '{}');
SELECT sas.grant_agent('payments', current_user::regrole, paths => '{/a,b}');
SELECT sas.grant_agent('payments', current_user::regrole, paths => '{/a,NULL}');
SELECT * FROM sas.submit('misspelled', after_runs => '{1,NULL}');
SELECT sas.alter_agent('payments', reset => '{breaker,speed}');
SELECT sas.alter_agent('payments', reset => '{breaker,NULL}');
SELECT sas.create_agent('zz', 'http://127.0.0.1:9', options => '{"sign": {"scheme": "standard-webhooks", "secret": ["{{secret.a}}", "b"]}}');
SELECT sas.create_agent('zz', 'http://127.0.0.1:9', options => '{"sign": {"scheme": "standard-webhooks", "secret": "b"}}');
\echo an agent that the input names: the fact, its place, and where the name comes from
SELECT sas.create_workflow('chosen', '{"steps": {"a": {"agent": "{{input.agent}}", "agents": "pay*", "call": {}}}}'),
    sas.create_workflow('chooses', '{"steps": {"b": {"include": "chosen"}}}') \g /dev/null
SELECT * FROM sas.submit('chosen', '{"agent": "paypal"}');
SELECT * FROM sas.submit('chooses', '{"agent": "paypal"}');
\echo nothing is near; no name; a name that nobody means
SELECT * FROM sas.submit('something_else');
SELECT * FROM sas.submit(NULL);
SELECT * FROM sas.submit(repeat('order', 20));
\echo a role is not told of workflows that it may not submit
CREATE ROLE sas_test_speller;
CREATE ROLE sas_test_spelled;
SELECT sas.grant_usage(r::regrole, 'user'), t.allow(r::regrole) FROM unnest('{sas_test_speller,sas_test_spelled}'::text[]) r \g /dev/null
SET ROLE sas_test_speller;
SELECT sas.create_workflow('strange', '{"steps": {"a": {"function": "t.echo"}}}');
SELECT * FROM sas.submit('strangely');
SET ROLE sas_test_spelled;
SELECT * FROM sas.submit('strangely');
SELECT * FROM sas.submit('misspelled_');
RESET ROLE;
SELECT sas.drop_workflow('strange');
SELECT sas.revoke_usage(r::regrole) FROM unnest('{sas_test_speller,sas_test_spelled}'::text[]) r \g /dev/null
DROP OWNED BY sas_test_speller, sas_test_spelled;
DROP ROLE sas_test_speller, sas_test_spelled;
\echo functions of the user stay, on both sides
SELECT * FROM sas.submit('misplanned', '{"n": 0}');
SELECT t.call_all();
DO $$ BEGIN PERFORM sas.submit('misspelled_'); END $$;
\echo an error is caught like any other, and what follows has its own context
DO $$
DECLARE
    said text;
BEGIN
    BEGIN
        PERFORM sas.submit('misspelled_');
    EXCEPTION WHEN undefined_object THEN
        GET STACKED DIAGNOSTICS said = PG_EXCEPTION_CONTEXT;
    END;
    RAISE NOTICE '%', said;
    PERFORM 1 / 0;
END $$;
SELECT sas.drop_queue('zzflush');
SELECT sas.drop_workflow('misplanned'), sas.drop_workflow('misspelled');
DROP FUNCTION t.call_all(), t.ratio(jsonb);
