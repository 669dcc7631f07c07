-- SPDX-License-Identifier: PostgreSQL
--
-- Agents are granted: what a role may ask of which agent, tried as the roles themselves at define, submit and
-- claim; what has begun goes on.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE ag_ann; CREATE ROLE ag_bob; CREATE ROLE ag_team; CREATE ROLE ag_adm; CREATE ROLE ag_op; CREATE ROLE ag_mon;
GRANT ag_team TO ag_bob;
SELECT sas.grant_usage(r::regrole, 'user') FROM unnest('{ag_ann,ag_bob,ag_team}'::text[]) r \g /dev/null
SELECT sas.grant_usage('ag_adm', 'admin'), sas.grant_usage('ag_op', 'operator'), sas.grant_usage('ag_mon', 'monitor') \g /dev/null
SELECT sas.create_agent('pay', 'http://127.0.0.1:1/v1'), sas.create_agent('mail', 'http://127.0.0.1:1'), sas.create_agent('packer', kind => 'external') \g /dev/null

-- as_role(role, statement): 'ok', or SQLSTATE and message
CREATE FUNCTION pg_temp.as_role(who text, statement text, brief boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text := 'ok';
    place text;
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS place = PG_EXCEPTION_DETAIL;
        said := CASE WHEN brief THEN SQLSTATE ELSE concat_ws(' ', SQLERRM, place) END;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;
CREATE FUNCTION pg_temp.defines(who text, steps text, brief boolean DEFAULT true) RETURNS text LANGUAGE sql AS $$
    SELECT pg_temp.as_role(who, format('SELECT sas.create_workflow(%L, %L)', 'w_' || who, '{"steps": {"a": ' || steps || '}}'), brief)
$$;
-- the claim of one step by a worker: the error it is refused with; null: it would be sent. The step stays claimed.
CREATE FUNCTION pg_temp.claims(agent text) RETURNS text LANGUAGE sql AS $$
    SELECT c.problem #>> '{error,title}' FROM _sas.claim_calls(ARRAY(SELECT a.agent_id FROM _sas.agent a WHERE a.name = $1 AND a.dropped_at IS NULL), '{1}', 1, 1, 'w') c
$$;

-- none by default -----------------------------------------------------------------------------------------

SELECT is(pg_temp.defines('ag_ann', s, false), format('permission denied for agent "%s" At %s.', a, p), format('level user has no agent: %s', p))
FROM (VALUES ('{"agent": "pay", "call": {}}', 'pay', '/steps/a/call'),
             ('{"agent": "packer", "task": {}}', 'packer', '/steps/a/task'),
             ('{"wait": {"signal": "x"}, "undo": {"agent": "pay", "call": {}}}', 'pay', '/steps/a/undo/call'),
             ('{"wait": {"signal": "x"}, "fallback": {"agent": "pay", "call": {}}}', 'pay', '/steps/a/fallback/call')) AS x (s, a, p);
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.create_workflow('w', '{"steps": {}, "hooks": [{"on": "success", "agent": "pay", "call": {}}]}')$$, false),
          'permission denied for agent "pay" At /hooks/0/call.', 'nor in a hook');
SELECT is((SELECT array_agg(problem) FROM pg_temp.as_role('ag_ann', 'SELECT') x, sas.validate_workflow('{"steps": {"a": {"agent": "pay", "call": {}}}}')), NULL, 'a superuser has all');
SELECT is(pg_temp.defines(r, '{"agent": "pay", "call": {}, "undo": {"agent": "mail", "call": {}}}'), 'ok', 'an admin has all') FROM unnest('{ag_adm}'::text[]) r;
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('w_ag_adm')$$, false), 'permission denied for agent "pay" At /workflow.', 'who submits what an admin wrote needs the grant');

-- who grants -------------------------------------------------------------------------------------------------

SELECT is(pg_temp.as_role(r, $$SELECT sas.grant_agent('pay', 'ag_ann')$$), '42501', r || ' grants no agent') FROM unnest('{ag_ann,ag_op,ag_mon}'::text[]) r;
SELECT is(pg_temp.as_role(r, $$SELECT sas.revoke_agent('pay', 'ag_ann')$$), '42501', r || ' revokes none') FROM unnest('{ag_ann,ag_op,ag_mon}'::text[]) r;
SELECT is(pg_temp.as_role('ag_adm', $$SELECT sas.grant_agent('pay', 'ag_ann'), sas.grant_agent('packer', 'ag_team')$$), 'ok', 'an admin does');
SELECT is(pg_temp.as_role('ag_adm', 'SELECT sas.grant_agent(' || args || ')'), code, format('grant_agent(%s): %s', args, code))
FROM (VALUES ($$'none', 'ag_ann'$$, '42704'), ($$'pay', '4711'$$, '42704'), ($$'pay', NULL$$, '22004'), ($$NULL, 'ag_ann'$$, '22004'),
             ($$'pay', 'ag_ann', '{}'$$, '22023'), ($$'pay', 'ag_ann', '{post}'$$, '22023'), ($$'pay', 'ag_ann', '{NULL}'$$, '22023'), ($$'pay', 'ag_ann', '{{GET}}'$$, '22023'),
             ($$'pay', 'ag_ann', paths => '{}'$$, '22023'), ($$'pay', 'ag_ann', paths => '{NULL}'$$, '22023'), ($$'pay', 'ag_ann', paths => '{charges}'$$, '22023'),
             ($$'pay', 'ag_ann', paths => '{/a/../b}'$$, '22023'), ($$'pay', 'ag_ann', paths => '{//x}'$$, '22023'), ($$'pay', 'ag_ann', paths => ARRAY['/{{input.x}}']$$, '22023'), ($$'pay', 'ag_ann', paths => '{/a?b}'$$, '22023'),
             ($$'pay', 'ag_ann', paths => '{/orders/*}'$$, '22023'), ($$'pay', 'ag_ann', paths => '{/**/x}'$$, '22023'),
             ($$'packer', 'ag_ann', methods => '{GET}'$$, '22023'), ($$'packer', 'ag_ann', paths => '{/}'$$, '22023')) AS x (args, code);
SELECT is((SELECT array_agg((role, kind, name, granted_by, methods, paths)::text ORDER BY role) FROM sas.grants WHERE kind = 'agent'), '{"(ag_ann,agent,pay,ag_adm,,)","(ag_team,agent,packer,ag_adm,,)"}', 'sas.grants shows them');
SELECT is((SELECT array_agg((role, act, detail)::text ORDER BY at) FROM sas.history WHERE act ~ 'grant_agent'),
          ARRAY[$$(ag_adm,grant_agent,"{""role"": ""ag_ann"", ""agent"": ""pay""}")$$, $$(ag_adm,grant_agent,"{""role"": ""ag_team"", ""agent"": ""packer""}")$$], 'so does sas.history');
SELECT is(pg_temp.defines('ag_ann', '{"agent": "pay", "call": {"path": "{{input.path}}", "method": "DELETE"}, "undo": {"call": {"path": "{{input.path}}"}}}'), 'ok', 'a grant without limits allows all');
SELECT is(pg_temp.defines('ag_bob', '{"agent": "packer", "task": {}}'), 'ok', 'a grant to a role holds for its members');
SELECT is(pg_temp.defines('ag_ann', '{"agent": "packer", "task": {}}'), '42501', 'and for nobody else');

-- methods and paths -------------------------------------------------------------------------------------------

SELECT sas.grant_agent('pay', 'ag_ann', '{GET,POST}', '{/charges,/slots/}') \g /dev/null
SELECT is(pg_temp.defines('ag_ann', format('{"agent": "pay", "call": %s}', call)), code, format('%s: %s', call, code))
FROM (VALUES ('{"path": "/charges"}', 'ok'), ('{"path": "/charges/7", "body": {}}', 'ok'), ('{"path": "/charges?a=b"}', 'ok'), ('{"path": "/slots/7"}', 'ok'),
             ('{"path": "/charges/{{input.id}}"}', 'ok'), ('{"path": "{{input.path}}"}', 'ok'), ('{"path": "/{{input.path}}"}', 'ok'), ('{"path": "/charges{{input.q}}"}', 'ok'),
             ('{"path": "/charges", "method": "DELETE"}', '42501'), ('{"path": "/charges", "method": "PUT"}', '42501'), ('{}', '42501'), ('{"path": "/"}', '42501'), ('{"path": "?x"}', '42501'),
             ('{"path": "/charges_old"}', '42501'), ('{"path": "/refunds"}', '42501'), ('{"path": "/refunds/{{input.id}}"}', '42501'), ('{"path": "/slots"}', '42501'), ('{"path": "/Charges"}', '42501'), ('{"path": "/%63harges"}', '42501'),
             ('{"path": "/charges/../refunds"}', '22023'), ('{"path": "/charges/%2e%2e/refunds"}', '22023')) AS x (call, code);
SELECT is(pg_temp.defines('ag_ann', format('{"agent": "pay", "call": {"path": "/charges"}, %s}', part)), code, format('%s: %s', part, code))
FROM (VALUES ('"undo": {"call": {"path": "/charges/{{steps.a.output.body.id}}"}}', 'ok'), ('"undo": {"call": {"path": "/slots/{{input.id}}"}}', 'ok'), ('"undo": {"call": {"path": "/charges"}}', 'ok'),
             ('"undo": {"call": {"path": "/charges{{input.x}}"}}', '42501'), ('"undo": {"call": {"path": "{{input.x}}"}}', '42501'), ('"undo": {"call": {"path": "/{{input.x}}"}}', '42501'), ('"undo": {"call": {"path": "/charges/1", "method": "DELETE"}}', '42501'),
             ('"poll": {"call": {"path": "/charges/{{started.body.id}}"}, "until": "$.output.body.done == true"}', 'ok'), ('"poll": {"call": {"path": "{{started.body.url}}"}, "until": "$.output.body.done == true"}', '42501'),
             ('"fallback": {"call": {"path": "/refunds"}}', '42501'), ('"fallback": {"call": {"path": "/slots/1"}, "undo": {"call": {"path": "/slots{{input.x}}"}}}', '42501')) AS x (part, code);
SELECT is((SELECT (methods, paths)::text FROM sas.grants WHERE role = 'ag_ann' AND kind = 'agent'), '("{GET,POST}","{/charges,/slots/}")', 'a second grant replaces the first');
SELECT sas.grant_agent('pay', 'ag_bob', '{GET}', '{/a}'), sas.grant_agent('pay', 'ag_team', '{POST}', '{/b}') \g /dev/null
SELECT is(pg_temp.defines('ag_bob', format('{"agent": "pay", "call": {"path": %s}}', p)), code, format('of two grants one must allow it: %s', p))
FROM (VALUES ('"/a", "method": "GET"', 'ok'), ('"/b", "method": "POST"', 'ok'), ('"/a", "method": "POST"', '42501'), ('"/b", "method": "GET"', '42501')) AS x (p, code);

-- included, subscribed, planned ------------------------------------------------------------------------------

SELECT sas.create_workflow('refund', '{"steps": {"r": {"agent": "pay", "call": {"path": "/refunds"}}}}') \g /dev/null
SELECT is(pg_temp.defines('ag_ann', '{"include": "refund"}'), '42501', 'what is included is asked of him who includes');
SELECT sas.create_workflow('undoes', '{"steps": {"w": {"wait": {"signal": "x"}, "undo": {"include": "refund"}}}}') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('undoes')$$, false), 'permission denied for path "/refunds" of agent "pay" At /workflow.', 'and what an undo includes, of who submits');
SELECT sas.create_workflow('open', '{"steps": {"o": {"agent": "pay", "call": {"path": "/charges"}}}}') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$), 'ok', 'who has the grant submits a workflow of a superuser');
SELECT sas.subscribe('refund', 'open') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$, false), 'permission denied for path "/refunds" of agent "pay" At /workflow.', 'but not when a subscriber asks for more');
SELECT sas.unsubscribe('refund', 'open') \g /dev/null
SELECT sas.create_workflow('chosen', '{"steps": {"c": {"agent": "{{input.agent}}", "agents": "*", "call": {"path": "/charges"}}}}') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', format($$SELECT sas.submit('chosen', '{"agent": "%s"}')$$, a)), code, format('an agent that the input names: %s, %s', a, code)) FROM (VALUES ('mail', '42501'), ('pay', 'ok')) AS x (a, code);
SELECT sas.submit('chosen', '{"agent": "mail"}') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('chosen', '{"agent": "mail"}')$$), '42501', 'also when that version is there');
CREATE SCHEMA ag; GRANT USAGE ON SCHEMA ag TO PUBLIC;
CREATE FUNCTION ag.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {"p": {"agent": "mail", "call": {}}}}'::jsonb $$;
SELECT sas.create_workflow('by_plan', '{"plan": "ag.plan"}') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('by_plan')$$), '42501', 'nor by a plan function');
DELETE FROM _sas.ready;

-- at the claim ------------------------------------------------------------------------------------------------

SELECT sas.create_workflow('any', '{"steps": {"a": {"agent": "pay", "call": {"path": "{{input.path}}"}}}}') \g /dev/null
CREATE FUNCTION pg_temp.sends(who text, path text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    PERFORM sas.submit('any', jsonb_build_object('path', path));
    RESET SESSION AUTHORIZATION;
    RETURN pg_temp.claims('pay');
END $$;
SELECT is(pg_temp.sends('ag_ann', p), said, format('a path that is known at the claim only: %s', p))
FROM (VALUES ('/charges/9', NULL), ('http://127.0.0.1:1/v1/charges/9', NULL), ('/refunds', 'permission denied for path "/refunds" of agent "pay"'),
             ('/charges_old', 'permission denied for path "/charges_old" of agent "pay"'), ('http://127.0.0.1:1/v1/refunds', 'permission denied for path "/refunds" of agent "pay"')) AS x (p, said);
CREATE FUNCTION pg_temp.submits(who text, workflow text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    SELECT run_id INTO id FROM sas.submit(workflow, '{}');
    RESET SESSION AUTHORIZATION;
    RETURN id;
END $$;
SELECT sas.grant_agent('pay', 'ag_ann') \g /dev/null
SELECT pg_temp.submits('ag_ann', 'open') FROM generate_series(1, 3) \g /dev/null
SELECT is(pg_temp.claims('pay'), NULL, 'what is granted is sent');
SELECT sas.revoke_agent('pay', 'ag_ann') \g /dev/null
SELECT is(pg_temp.claims('pay'), 'permission denied for agent "pay"', 'after a revoke what has not begun is refused');
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$), '42501', 'and a submit, too');
SELECT sas.grant_agent('pay', 'ag_ann') \g /dev/null
SELECT is(pg_temp.claims('pay'), NULL, 'a grant holds at once');
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$), 'ok', 'for submits, too');
DELETE FROM _sas.ready;
BEGIN;
SELECT sas.revoke_agent('pay', 'ag_ann') \g /dev/null
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$), '42501', 'a revoke holds in its own transaction');
ROLLBACK;
SELECT is(pg_temp.as_role('ag_ann', $$SELECT sas.submit('open')$$), 'ok', 'and is gone with it');
SELECT is(pg_temp.claims('pay'), NULL, 'for claims, too');
-- a step in doubt, and an ask of a poll
CREATE FUNCTION pg_temp.in_state(ask boolean, doubt boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id bigint := pg_temp.submits('ag_ann', 'open');
BEGIN
    PERFORM sas.revoke_agent('pay', 'ag_ann');
    INSERT INTO _sas.step (run_id, step_no, element, state, attempt, failure_count, in_doubt, alone, deferred, asks)
    SELECT id, 1, 0, 'ready', 1, 1, doubt, false, false, CASE WHEN ask THEN 1 END;
    RETURN coalesce(pg_temp.claims('pay'), 'sent');
END $$;
SELECT sas.grant_agent('pay', 'ag_ann') \g /dev/null
SELECT is(pg_temp.in_state(false, true), 'sent', 'what is in doubt is settled');
SELECT sas.grant_agent('pay', 'ag_ann') \g /dev/null
SELECT is(pg_temp.in_state(false, false), 'permission denied for agent "pay"', 'what is known to have failed is not tried again');

-- levels and roles -------------------------------------------------------------------------------------------

SELECT sas.grant_usage('ag_ann', 'admin') \g /dev/null
SELECT is(pg_temp.defines('ag_ann', '{"agent": "mail", "call": {}}'), 'ok', 'level admin gives all agents');
SELECT pg_temp.submits('ag_ann', 'w_ag_ann') \g /dev/null
SELECT is(pg_temp.claims('mail'), NULL, 'at the claim, too');
SELECT pg_temp.submits('ag_ann', 'w_ag_ann') \g /dev/null
SELECT sas.revoke_usage('ag_ann', 'admin'), sas.grant_usage('ag_ann', 'user') \g /dev/null
SELECT is(pg_temp.claims('mail'), 'permission denied for agent "mail"', 'and is taken away with it');
GRANT ag_team TO ag_ann; SELECT sas.grant_agent('mail', 'ag_team') \g /dev/null
SELECT pg_temp.submits('ag_ann', 'w_ag_ann') FROM generate_series(1, 2) \g /dev/null
SELECT is(pg_temp.claims('mail'), NULL, 'a member of a role that has it sends');
REVOKE ag_team FROM ag_ann;
SELECT is(pg_temp.claims('mail'), 'permission denied for agent "mail"', 'and one who is no longer a member does not');

SELECT throws_ok('DROP ROLE ag_op', '2BP01', NULL, 'a role with a level is not dropped');
SELECT sas.revoke_usage('ag_op'), sas.grant_agent('pay', 'ag_op') \g /dev/null
SELECT throws_ok('DROP ROLE ag_op', '2BP01', NULL, 'nor one with an agent');
SELECT sas.revoke_usage('ag_op') \g /dev/null
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'ag_op'), 1::bigint, 'revoke_usage leaves agents');
DROP OWNED BY ag_op;
SELECT is((SELECT count(*) FROM _sas.agent_grant WHERE role = 'ag_op'::regrole), 0::bigint, 'DROP OWNED takes them');
SELECT lives_ok('DROP ROLE ag_op', 'then the role can be dropped');
SELECT sas.create_agent('short', 'http://127.0.0.1:1'), sas.grant_agent('short', 'ag_ann') \g /dev/null
SELECT sas.drop_agent('short') \g /dev/null
SELECT is((SELECT count(*) FROM _sas.agent_grant g JOIN _sas.agent a USING (agent_id) WHERE a.name = 'short'), 0::bigint, 'grants go with their agent');
SELECT sas.create_agent('short', 'http://127.0.0.1:1') \g /dev/null
SELECT is(pg_temp.defines('ag_ann', '{"agent": "short", "call": {}}'), '42501', 'and another of that name has none');

SELECT * FROM finish();
