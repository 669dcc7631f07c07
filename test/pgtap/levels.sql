-- SPDX-License-Identifier: PostgreSQL
--
-- Levels: what a user, an operator, a monitor and an admin may do; whose runs
-- a role sees; who may submit what; and that secrets are readable by nobody.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE ann;
CREATE ROLE bob;
CREATE ROLE team;
CREATE ROLE carol IN ROLE team;
CREATE ROLE dan IN ROLE team;
CREATE ROLE "Odd ""Role" LOGIN;
CREATE ROLE op;
CREATE ROLE mon;
CREATE ROLE adm;
CREATE ROLE nobody;
CREATE ROLE wrk;
CREATE ROLE wrk_packer;
SELECT sas.grant_usage(r, 'user') FROM unnest('{ann,bob,team,carol,dan}'::regrole[]) r;
SELECT sas.grant_usage('op', 'operator');
SELECT sas.grant_usage('mon', 'monitor');
SELECT sas.grant_usage('adm', 'admin');
SELECT lives_ok($$SELECT sas.grant_usage('"Odd ""Role"', 'user')$$, 'a role with an odd name can be given a level');

SELECT sas.create_agent(n, kind => 'external') FROM unnest('{packer,printer}'::text[]) n;
SELECT sas.grant_usage('wrk', 'worker');
SELECT lives_ok($$SELECT sas.grant_usage('wrk_packer', 'worker', agent => 'packer')$$, 'level worker can be given for one agent');
SELECT lives_ok($$SELECT sas.grant_usage('wrk_packer', 'worker', agent => 'packer')$$, 'and again');

-- pgTAP's own functions are called as these roles, too
GRANT USAGE ON SCHEMA public TO PUBLIC;

CREATE SCHEMA shop;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.guarded(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
REVOKE ALL ON FUNCTION shop.guarded FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shop.guarded TO ann;
SELECT sas.set_secret('token', 'sesame-4711');
SELECT sas.create_agent('payments', 'http://127.0.0.1:1', headers => '{"Authorization": "Bearer {{secret.token}}"}', options => '{"query": {"key": "{{secret.token}}"}}');
SELECT sas.grant_agent(name, r) FROM sas.agents, unnest('{ann,bob,team,carol,dan}'::regrole[]) r \g /dev/null

-- as(role, statement): what it raises, or 'ok'
CREATE FUNCTION pg_temp.as_role(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text := 'ok';
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        said := SQLSTATE;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;
-- the first column of the first row as that role sees it
CREATE FUNCTION pg_temp.sees(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    BEGIN
        EXECUTE statement INTO said;
    EXCEPTION WHEN OTHERS THEN
        said := SQLSTATE || ' ' || SQLERRM;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;

-- who may do what ------------------------------------------------------------------------

CREATE TEMP TABLE may (level text, who text, verbs text);
INSERT INTO may VALUES
('user', 'ann', 'health next_times now follow chunks emit schedule unschedule pause_schedule resume_schedule trigger_schedule backfill_schedule create_workflow validate_workflow drop_workflow grant_workflow revoke_workflow subscribe unsubscribe distribute_keys submit submit_batch signal signal_key signal_token wait read_replies pause pause_runs resume resume_runs retry retry_runs skip skip_runs force_complete force_complete_runs set_input set_input_runs cancel cancel_runs halt halt_runs compensate compensate_runs rerun rerun_runs set_priority set_priority_runs set_start_at set_start_at_runs set_version set_version_runs pause_workflow resume_workflow set_clock move_clock release_clock stub unstub stub_signal run_inline continue_inline stubbed_calls create_watcher drop_watcher watch unwatch pause_watch resume_watch'),
('operator', 'op', 'health next_times now follow chunks unschedule pause_schedule resume_schedule trigger_schedule backfill_schedule metrics metrics_text validate_workflow wait signal signal_key pause pause_runs resume resume_runs retry retry_runs skip skip_runs force_complete force_complete_runs set_input set_input_runs cancel cancel_runs halt halt_runs compensate compensate_runs rerun rerun_runs set_priority set_priority_runs set_start_at set_start_at_runs set_version set_version_runs acknowledge acknowledge_alerts purge reset_agent pause_agent resume_agent pause_workflow resume_workflow pause_queue resume_queue unwatch pause_watch resume_watch rebalance'),
('monitor', 'mon', 'health next_times now follow chunks metrics metrics_text'),
('admin', 'adm', 'health next_times now follow chunks emit schedule unschedule pause_schedule resume_schedule trigger_schedule backfill_schedule metrics metrics_text create_workflow validate_workflow drop_workflow grant_workflow revoke_workflow subscribe unsubscribe distribute_keys submit submit_batch signal signal_key signal_token wait read_replies pause pause_runs resume resume_runs retry retry_runs skip skip_runs force_complete force_complete_runs set_input set_input_runs cancel cancel_runs halt halt_runs compensate compensate_runs rerun rerun_runs set_priority set_priority_runs set_start_at set_start_at_runs set_version set_version_runs acknowledge acknowledge_alerts purge set_limit set_alert_hook reset_agent pause_agent resume_agent pause_workflow resume_workflow pause_queue resume_queue create_queue alter_queue drop_queue create_agent alter_agent drop_agent set_secret set_secret_file drop_secret worker_restart release grant_usage revoke_usage grant_agent revoke_agent create_middleware drop_middleware set_clock move_clock release_clock stub unstub stub_signal run_inline continue_inline stubbed_calls claim complete complete_tasks fail heartbeat hand_back create_watcher drop_watcher watch unwatch pause_watch resume_watch rebalance register_node claim_watchers heartbeat_node append_items fail_watch release_watches leave_node'),
('worker', 'wrk', 'claim complete complete_tasks fail heartbeat emit hand_back register_node claim_watchers heartbeat_node append_items fail_watch release_watches leave_node'),
('worker of one agent', 'wrk_packer', 'claim complete complete_tasks fail heartbeat emit hand_back register_node claim_watchers heartbeat_node append_items fail_watch release_watches leave_node'),
('no level', 'nobody', '');
SELECT is(ARRAY(SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND has_function_privilege(m.who, p.oid, 'EXECUTE') ORDER BY 1),
          -- who defines workflows may build them; who looks at runs may have them explained and drawn
          ARRAY(SELECT v FROM unnest(string_to_array(m.verbs, ' ')) v
                UNION
                SELECT split_part(substr(g.signature, 5), '(', 1) FROM _sas.privilege g
                WHERE g.signature LIKE 'sas.%'
                  AND (g.part = 'builder' AND m.verbs LIKE '%create_workflow%'
                       OR g.part = 'look' AND m.verbs LIKE '%health%')
                ORDER BY 1), format('with %s one may execute these', m.level))
FROM may m;
-- by whole signatures, of which each must be there: a name may stand for several functions
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND has_function_privilege(m.who, p.oid, 'EXECUTE') ORDER BY 1),
          ARRAY(SELECT g.function::text FROM _sas.privileges(split_part(m.level, ' ', 1)) g
                WHERE m.level <> 'worker of one agent' OR g.part <> 'level' ORDER BY 1),
          format('with %s one may execute these functions and no others of their names', m.level))
FROM may m;
-- what is internal is executed within what is public only: views, and bodies that are bound by oid
SELECT is(ARRAY(SELECT g.function::text FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l,
                       _sas.privileges(l) g JOIN pg_proc p ON p.oid = g.function
                WHERE g.part = 'called' AND (p.prosecdef OR p.proname ~ '_as$') ORDER BY 1),
          '{}', 'nobody may execute what runs with the rights of its owner, but by a verb');
SELECT is(ARRAY(SELECT DISTINCT g.signature FROM _sas.privilege g WHERE g.signature LIKE '\_sas.%' ORDER BY 1),
          '{_sas.level_admin(),_sas.level_monitor(),_sas.level_operator(),_sas.level_user(),_sas.level_worker(),_sas.open_run_ids()}',
          'of internal functions only those are named that nothing is bound to');
SELECT is(ARRAY(SELECT l FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l
                WHERE has_function_privilege(m.who, format('_sas.level_%s()', l), 'EXECUTE')),
          CASE WHEN m.level IN ('worker of one agent', 'no level') THEN '{}' ELSE ARRAY[m.level] END,
          format('with %s one has that level and no other', m.level))
FROM may m;
-- the right to execute it is all that such a function is for; that nobody can name it hides it, too
GRANT USAGE ON SCHEMA _sas TO PUBLIC;
SELECT is(ARRAY(SELECT l || ' ' || pg_temp.as_role(m.who, format('SELECT _sas.level_%s()', l))
                FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l),
          ARRAY(SELECT l || CASE l WHEN m.level THEN ' ok' ELSE ' 42501' END
                FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l),
          format('with %s one executes the function of that level and of no other', m.level))
FROM may m;
REVOKE USAGE ON SCHEMA _sas FROM PUBLIC;
SELECT is(ARRAY(SELECT format('%s %s %s', p.proname, p.prosecdef, regexp_replace(pg_get_functiondef(p.oid), '.*BEGIN ATOMIC\s*(.*)END\s*$', '<\1>'))
                FROM pg_proc p WHERE p.pronamespace = '_sas'::regnamespace AND p.proname ~ '^level_' ORDER BY 1),
          '{level_admin f <>,level_monitor f <>,level_operator f <>,level_user f <>,level_worker f <>}', 'and it does nothing');
SELECT is(ARRAY(SELECT (g.level, g.signature::regprocedure)::text FROM _sas.privilege g
                GROUP BY g.level, g.signature::regprocedure HAVING count(*) > 1), '{}', 'none is named twice');
SELECT is(pg_temp.as_role(m.who, $$SELECT _sas.count_metric('sas_x_total', 1, 1, 'x', 1)$$), '42501',
          format('with %s one does not count in the metrics of the server', m.level))
FROM may m;
ALTER FUNCTION sas.pause_queue(text) RENAME TO hold_queue;
SELECT throws_ok($$SELECT sas.grant_usage('nobody', 'operator')$$, '42883', NULL,
                 'a level with a function that is not there is not given by halves');
ALTER FUNCTION sas.hold_queue(text) RENAME TO pause_queue;
SELECT is((SELECT count(*) FROM pg_proc p
           WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND has_function_privilege('nobody', p.oid, 'EXECUTE')), 0::bigint, 'and nothing of it');
SELECT is(ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '_sas'::regnamespace AND has_function_privilege(m.who, p.oid, 'EXECUTE')
                  AND (p.prosecdef OR p.proname ~ '^(move|claim|write|submit|store|secret|render|context|steps_context|agents_for|decide|doom|pause|cancel|halt|stop|settle|ring|append|fail|release|register|settle|take|watch|finish)') ORDER BY 1),
          '{}', format('with %s one may execute no internal function that acts, reads or takes a role', m.level))
FROM may m;
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind IN ('r', 'S')
                  AND (has_table_privilege(m.who, c.oid, 'SELECT') OR has_any_column_privilege(m.who, c.oid, 'INSERT,UPDATE')
                       OR NOT c.relrowsecurity AND has_any_column_privilege(m.who, c.oid, 'SELECT')) ORDER BY 1),
          '{}', format('with %s one reads no private table without row security', m.level))
FROM may m;
SELECT ok(NOT has_schema_privilege(m.who, '_sas', 'USAGE'), format('with %s one can name nothing of schema _sas', m.level)) FROM may m;
SELECT is(ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' AND has_table_privilege(m.who, c.oid, 'INSERT,UPDATE,DELETE,TRUNCATE') ORDER BY 1),
          '{}', format('with %s one changes nothing through a view', m.level))
FROM may m;
SELECT is((SELECT count(*)::int FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' AND has_table_privilege(m.who, c.oid, 'SELECT')),
          CASE WHEN m.level ~ '^(no level|worker)' THEN 0 ELSE 27 END, format('with %s one may look at this many views', m.level))
FROM may m;
-- each view can be read to its last column
SELECT is(pg_temp.as_role(m.who, format('SELECT * FROM sas.%I', m.relname)), 'ok', format('with %s one can read sas.%s', m.level, m.relname))
FROM (SELECT m.who, m.level, c.relname FROM may m, pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' AND m.level !~ '^(no level|worker)' ORDER BY m.level, c.relname OFFSET 0) m;

SELECT is(pg_temp.as_role('ann', $$SELECT sas.create_agent('x', 'http://127.0.0.1')$$), '42501', 'a user makes no agents');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.set_secret('x', 'y')$$), '42501', 'a user sets no secrets');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.set_secret_file('x', 'y')$$), '42501', 'nor from files');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.grant_usage('ann', 'admin')$$), '42501', 'a user gives himself no level');
SELECT is(pg_temp.as_role('op', $$SELECT sas.grant_usage('op', 'admin')$$), '42501', 'an operator gives himself no level');
SELECT is(pg_temp.as_role('adm', $$SELECT sas.create_agent('x', 'http://127.0.0.1')$$), 'ok', 'an admin makes agents');
SELECT is(pg_temp.as_role('nobody', $$SELECT * FROM sas.submit('x')$$), '42501', 'without a level one submits nothing');
SELECT is(pg_temp.as_role('nobody', $$SELECT * FROM sas.runs$$), '42501', 'without a level one sees nothing');

-- nobody acts in the name of another
SELECT is(pg_temp.as_role(w, format($$SELECT * FROM _sas.submit_as(%s, 'x', '{}', NULL, 0, NULL, NULL, NULL, NULL, NULL, '{}', NULL, '{success}')$$, 'bob'::regrole::oid)), '42501', w || ' cannot call the internal submit with the role of another')
FROM unnest('{ann,op,mon,adm}'::text[]) w;
SELECT is(pg_temp.as_role(w, format($$SELECT _sas.grant_usage_as(%s, %L, 'admin', NULL)$$, '10', w)), '42501', w || ' cannot call the internal grant_usage with the role of another')
FROM unnest('{ann,op,mon}'::text[]) w;
SELECT is(pg_temp.as_role(w, $$SELECT _sas.move_runs('{}')$$), '42501', w || ' cannot move states') FROM unnest('{ann,op,mon,adm}'::text[]) w;
SELECT is(pg_temp.as_role(w, $$SELECT * FROM _sas.claim_calls('{1}', '{1}', 1, 1, 'x')$$), '42501', w || ' cannot claim') FROM unnest('{ann,op,mon,adm}'::text[]) w;
SELECT is(pg_temp.as_role(w, $$SET sas.clock = '2020-01-01'$$), '42501', w || ' cannot set the clock') FROM unnest('{ann,op,mon,adm}'::text[]) w;

-- whose workflows -----------------------------------------------------------------------------

SET SESSION AUTHORIZATION ann;
SELECT is(sas.create_workflow('anns', '{"steps": {"a": {"function": "shop.book", "input": {"pin": "{{input.pin}}"}}, "b": {"function": "shop.book", "input": {"was": "{{steps.a.output.pin}}"}}, "c": {"agent": "payments", "call": {"body": {"was": "{{steps.a.key}}"}}, "after": ["b"]}}}'), 1, 'a user makes a workflow');
SELECT is(sas.create_workflow('guarded', '{"steps": {"a": {"function": "shop.guarded"}}}'), 1, 'and one with a function that only he may call');
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION team;
SELECT is(sas.create_workflow('teams', '{"steps": {"a": {"function": "shop.book"}}}'), 1, 'a group makes one');
RESET SESSION AUTHORIZATION;
SELECT is(sas.create_workflow('supers', '{"steps": {"a": {"function": "shop.book"}}}'), 1, 'a superuser makes one');
SET SESSION AUTHORIZATION adm;
SELECT is(sas.create_workflow('admins', '{"steps": {"a": {"function": "shop.book"}}}'), 1, 'an admin makes one');
RESET SESSION AUTHORIZATION;

SELECT is(pg_temp.as_role(who, format('SELECT * FROM sas.submit(%L)', flow)), code, format('%s submits %s: %s', who, flow, code))
FROM (VALUES ('ann', 'anns', 'ok'), ('bob', 'anns', '42501'), ('carol', 'anns', '42501'), ('ann', 'teams', '42501'), ('carol', 'teams', 'ok'), ('dan', 'teams', 'ok'),
             ('bob', 'supers', 'ok'), ('bob', 'admins', 'ok'), ('adm', 'anns', '42501'), ('ann', 'guarded', 'ok')) AS x (who, flow, code);
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.submit_batch('anns', ARRAY['{}']::jsonb[])$$), '42501', 'a batch asks the same');
-- granted and revoked
SELECT is(pg_temp.as_role('bob', $$SELECT sas.grant_workflow('anns', 'bob')$$), '42501', 'only its owner grants a workflow');
SELECT is(pg_temp.as_role('bob', $$SELECT sas.create_workflow('anns', '{"steps": {}}')$$), '42501', 'only its owner re-versions a workflow');
SELECT is(pg_temp.as_role('bob', $$SELECT sas.drop_workflow('anns')$$), '42501', 'only its owner drops a workflow');
SELECT is(pg_temp.as_role('op', $$SELECT sas.drop_workflow('anns')$$), '42501', 'an operator drops none');
SELECT is(pg_temp.as_role('adm', $$SELECT sas.create_workflow('anns', (SELECT definition FROM sas.workflows WHERE workflow = 'anns'))$$), 'ok', 'an admin re-versions it, too');
SELECT is((SELECT owner::text FROM sas.workflows WHERE workflow = 'anns'), 'ann', 'and it stays its owner''s');
SELECT is(pg_temp.sees('bob', $$SELECT count(*) FROM sas.workflows WHERE workflow = 'anns'$$), '0', 'what is not granted is not seen');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.grant_workflow('anns', 'bob')$$), 'ok', 'its owner grants it');
SELECT is(pg_temp.sees('bob', $$SELECT count(*) FROM sas.workflows WHERE workflow = 'anns'$$), '1', 'then it is seen');
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.submit('anns', '{"pin": "bob-0815"}', key => 'k')$$), 'ok', 'and submitted');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.grant_workflow('guarded', 'bob')$$), 'ok', 'granted, with a function that bob may not call');
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.submit('guarded')$$), '42501', 'EXECUTE is checked at submit, for who submits');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.create_workflow('hooked', '{"steps": {}, "hooks": [{"on": "success", "function": "shop.guarded"}]}')$$), 'ok', 'one with a hook that only he may call');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.grant_workflow('hooked', 'bob')$$), 'ok', 'granted');
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.submit('hooked')$$), '42501', 'EXECUTE of a hook is checked at submit, too');
SELECT is(pg_temp.as_role('ann', $$SELECT * FROM sas.submit('hooked')$$), 'ok', 'who may call it submits');
SELECT is(pg_temp.sees('ann', $$SELECT count(*) FROM sas.hook_runs WHERE workflow = 'hooked'$$), '1', 'and sees what is told');
SELECT is(pg_temp.sees('bob', $$SELECT count(*) FROM sas.hook_runs WHERE workflow = 'hooked'$$), '0', 'which another does not');
SELECT is(pg_temp.sees('mon', $$SELECT count(*) || ' ' || count(output) FROM sas.hook_runs WHERE workflow = 'hooked'$$), '1 0', 'and a monitor without payload');
SELECT is(pg_temp.as_role('bob', $$SELECT sas.subscribe('supers', 'anns')$$), '42501', 'who may submit a workflow may not subscribe to it');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.subscribe('guarded', 'admins')$$), '42501', 'nor to that of an admin');
SELECT is(pg_temp.as_role(who, $$SELECT sas.create_middleware('x', 'plan', 'shop.book(jsonb)')$$), '42501', who || ' makes no middleware') FROM unnest('{ann,op,mon,nobody}'::text[]) who;
SELECT is(pg_temp.as_role('adm', $$SELECT sas.create_middleware('x', 'plan', 'shop.guarded(jsonb)')$$), '42501', 'an admin makes none of what he may not call himself');
SELECT is(pg_temp.as_role(w, format($$SELECT _sas.call_as(%1$s, %1$s, 'shop.guarded', '{}')$$, 'ann'::regrole::oid)), '42501', w || ' calls nothing as another role') FROM unnest('{ann,bob,op,mon,adm}'::text[]) w;
SELECT is(pg_temp.as_role('ann', $$SELECT sas.grant_workflow('anns', 'team')$$), 'ok', 'granted to a group');
SELECT is(pg_temp.as_role('carol', $$SELECT * FROM sas.submit('anns')$$), 'ok', 'its members submit');
SELECT is(pg_temp.as_role('ann', 'SELECT sas.revoke_workflow(''anns'', ' || r || ')'), CASE r WHEN 'NULL' THEN '22004' ELSE '42704' END, 'no grant is revoked from ' || r) FROM unnest(ARRAY['NULL', '''4711''']) r;
SELECT is(pg_temp.as_role('ann', $$SELECT sas.revoke_workflow('anns', 'team')$$), 'ok', 'revoked');
SELECT is(pg_temp.as_role('carol', $$SELECT * FROM sas.submit('anns')$$), '42501', 'they no longer do');

-- whose runs ------------------------------------------------------------------------------------

SELECT is(pg_temp.as_role('carol', $$SELECT * FROM sas.submit('teams', '{"pin": "carol"}')$$), 'ok', 'carol submits');
SELECT is(pg_temp.as_role('team', $$SELECT * FROM sas.submit('teams', '{"pin": "team"}')$$), 'ok', 'the group submits');
SELECT is(pg_temp.as_role('ann', $$SELECT * FROM sas.submit('anns', '{"pin": "ann-4711"}')$$), 'ok', 'ann submits');
SELECT is(pg_temp.sees(who, 'SELECT string_agg(DISTINCT submitted_by::text, '','' ORDER BY submitted_by::text) FROM sas.runs'), owners, format('%s sees the runs of %s', who, coalesce(owners, 'nobody')))
FROM (VALUES ('ann', 'ann'), ('bob', 'bob'), ('team', 'team'), ('carol', 'carol,team'), ('dan', 'dan,team'), ('op', 'ann,bob,carol,dan,team'), ('mon', 'ann,bob,carol,dan,team'), ('adm', 'adm,ann,bob,carol,dan,team')) AS x (who, owners)
WHERE who NOT IN ('op', 'mon', 'adm');
SELECT is(pg_temp.sees(who, 'SELECT count(*) FROM sas.runs'), (SELECT count(*)::text FROM _sas.run WHERE hook_of IS NULL), who || ' sees all runs') FROM unnest('{op,mon,adm}'::text[]) who;
SELECT is(pg_temp.sees('bob', format('SELECT count(DISTINCT run_id) FROM sas.%I', v)), pg_temp.sees('bob', 'SELECT count(*) FROM sas.runs'), format('sas.%s picks the same runs', v)) FROM unnest('{steps}'::text[]) v;
SELECT is(pg_temp.sees('bob', format('SELECT count(*) FROM sas.%I WHERE run_id NOT IN (SELECT run_id FROM sas.runs)', v)), '0', format('sas.%s shows none of another', v)) FROM unnest('{steps,attempts,alerts,history}'::text[]) v;
SELECT is(pg_temp.sees('bob', 'SELECT count(*) FROM sas.run_details WHERE runid NOT IN (SELECT run_id FROM sas.runs)'), '0', 'sas.run_details shows none of another');
-- no view leaks by a cheap function in the condition
CREATE FUNCTION public.peek(j jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN IF j::text LIKE '%4711%' THEN RAISE EXCEPTION 'leaked %', j; END IF; RETURN true; END $$;
SELECT is(pg_temp.sees('bob', format('SELECT count(*) > 0 FROM sas.%I WHERE public.peek(to_jsonb(input))', v)), 'true', format('a cheap function in a condition sees no other rows of sas.%s', v)) FROM unnest('{runs,steps}'::text[]) v;

-- payload: own runs, operators and admins; monitors see none
SELECT is(pg_temp.sees('ann', $$SELECT input ->> 'pin' FROM sas.runs WHERE input ? 'pin'$$), 'ann-4711', 'one sees one''s own input');
SELECT is(pg_temp.sees('ann', $$SELECT s.input ->> 'pin' FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.input ? 'pin' AND s.step = 'a'$$), 'ann-4711', 'and that of one''s steps');
SELECT is(pg_temp.as_role('ann', $$SELECT * FROM sas.steps$$), 'ok', 'steps that refer to others can be looked at by who submitted them');
SELECT is(pg_temp.sees('op', $$SELECT input ->> 'pin' FROM sas.runs WHERE submitted_by = 'ann' AND input ? 'pin'$$), 'ann-4711', 'an operator sees the input');
SELECT is(pg_temp.sees('op', $$SELECT s.input ->> 'pin' FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.submitted_by = 'ann' AND r.input ? 'pin' AND s.step = 'a'$$), 'ann-4711', 'and that of the steps');
SELECT is(pg_temp.sees('mon', $$SELECT count(*) FROM sas.runs WHERE input IS NOT NULL OR output IS NOT NULL$$), '0', 'a monitor sees no input and no output of runs');
SELECT is(pg_temp.sees('mon', $$SELECT count(*) FROM sas.steps WHERE input IS NOT NULL OR output IS NOT NULL$$), '0', 'nor of steps');
SELECT is(pg_temp.sees('mon', $$SELECT count(*) FROM sas.agents WHERE last_error IS NOT NULL$$), '0', 'an agent without an error has none for a monitor either');
UPDATE _sas.agent_health SET last_error = '{"type": "urn:sas:http", "title": "the service answered 402", "detail": "card 4711", "status": 402, "instance": "/runs/1/steps/a"}' WHERE agent_id = (SELECT min(agent_id) FROM _sas.agent_health);
SELECT is(pg_temp.sees(r, $$SELECT last_error FROM sas.agents WHERE last_error IS NOT NULL$$), '{"type": "urn:sas:http", "title": "the service answered 402", "status": 402}', format('%s sees of the last error of an agent its type, title and status, no payload', r)) FROM unnest('{mon,ann}'::text[]) r;
UPDATE _sas.agent_health SET last_error = NULL;
SELECT is(pg_temp.sees('bob', format('SELECT _sas.step_input(%s, 1, 0)', (SELECT run_id FROM sas.runs WHERE submitted_by = 'ann' AND input ? 'pin'))), '42501 permission denied for schema _sas', 'what the views call is for nobody by itself');

-- verbs on runs of others: as if they were not there
SELECT is(pg_temp.sees('bob', format('SELECT refused FROM sas.%I(%s)', v, r.run_id)), format('run %s does not exist, or is not yours; see sas.runs for your runs', r.run_id), format('bob cannot %s a run of ann', v))
FROM unnest('{pause,resume,retry,cancel,halt,compensate,rerun}'::text[]) v, (SELECT min(run_id) AS run_id FROM sas.runs WHERE submitted_by = 'ann') r;
SELECT is((SELECT count(*) FROM sas.runs WHERE state = 'paused'), 0::bigint, 'and nothing has happened to it');
SELECT is(pg_temp.sees('op', format('SELECT changed FROM sas.pause(%s)', r.run_id)), 'true', 'an operator can') FROM (SELECT min(run_id) AS run_id FROM sas.runs WHERE submitted_by = 'ann') r;
SELECT is(pg_temp.sees('ann', 'SELECT paused_by FROM sas.runs WHERE state = ''paused'''), 'op', 'and it is told who did');
SELECT is(pg_temp.sees('ann', 'SELECT role || '' '' || act FROM sas.history'), 'op pause', 'and written down');
SELECT is(pg_temp.sees('bob', 'SELECT count(*) FROM sas.history'), '0', 'for who may see the run');
SELECT is(pg_temp.sees('dan', format('SELECT changed FROM sas.pause(%s)', r.run_id)), 'true', 'a member of the group can, with the group''s runs') FROM (SELECT min(run_id) AS run_id FROM sas.runs WHERE submitted_by = 'team') r;

SELECT is(pg_temp.as_role('bob', format('SELECT * FROM sas.wait(%s)', r.run_id)), '42704', 'bob cannot wait for a run of ann') FROM (SELECT min(run_id) AS run_id FROM sas.runs WHERE submitted_by = 'ann') r;
SELECT is(pg_temp.sees('ann', $$SELECT created FROM sas.submit('anns', '{"pin": "other"}', key => 'k')$$), 'true', 'the same key of another owner is another run');

-- in a SECURITY DEFINER function the run is the function owner's
CREATE FUNCTION public.order_now() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT run_id FROM sas.submit('supers') $$;
ALTER FUNCTION public.order_now() OWNER TO ann;
SELECT pg_temp.as_role('nobody', 'SELECT public.order_now()') \g /dev/null
SELECT is((SELECT submitted_by::text FROM sas.runs ORDER BY run_id DESC LIMIT 1), 'ann', 'in a SECURITY DEFINER function the run is its owner''s');

-- outside workers ---------------------------------------------------------------------------------

SELECT sas.create_workflow('outside', '{"steps": {"a": {"agent": "packer", "task": {}}, "b": {"agent": "printer", "task": {}}}}') \g /dev/null
SELECT run_id FROM sas.submit('outside', '{"pin": "task-1"}') \g /dev/null
SELECT is(pg_temp.as_role(who, format('SELECT * FROM sas.claim(%L, ''x'')', agent)), code, format('%s claims from %s: %s', who, agent, code))
FROM (VALUES ('wrk_packer', 'printer', '42501'), ('ann', 'packer', '42501'), ('op', 'packer', '42501'), ('mon', 'packer', '42501'), ('nobody', 'packer', '42501')) AS x (who, agent, code);
SELECT is(pg_temp.sees('wrk_packer', $$SELECT request ->> 'pin' FROM sas.claim('packer', 'p1')$$), 'task-1', 'the worker of an agent is given its tasks');
SELECT is(pg_temp.sees('wrk', $$SELECT request ->> 'pin' FROM sas.claim('printer', 'p2')$$), 'task-1', 'the worker of all those of any');
SELECT is(pg_temp.sees('wrk_packer', format('SELECT sas.%s', call)), '42501 permission denied for agent "printer"', format('what another agent''s worker holds is not his: %s', split_part(call, '(', 1)))
FROM _sas.external_slot p, unnest(ARRAY[format('complete(%L, ''1'')', p.request_id), format('complete_tasks(''{%s,%s}'', ''{1,2}'')', (SELECT request_id FROM _sas.external_slot WHERE worker = 'p1'), p.request_id), format('fail(%L, ''x'')', p.request_id), format('heartbeat(%L)', p.request_id), format('hand_back(%L)', p.request_id)]) call
WHERE p.worker = 'p2';
SELECT is(pg_temp.sees('wrk_packer', format('SELECT sas.complete(%L, ''1'')', (SELECT request_id FROM _sas.external_slot WHERE worker = 'p1'))), 'true', 'he completes his own');
SELECT is(pg_temp.sees('adm', format('SELECT sas.complete(%L, ''1'')', (SELECT request_id FROM _sas.external_slot WHERE worker = 'p2'))), 'true', 'an admin any');
SELECT is(pg_temp.as_role('wrk_packer', format('SELECT * FROM sas.%I', v)), '42501', 'a worker does not look at sas.' || v) FROM unnest('{runs,steps,agents}'::text[]) v;
SELECT sas.drop_workflow('outside') \g /dev/null
SELECT sas.drop_agent('packer') \g /dev/null
SELECT sas.create_agent('packer', kind => 'external') \g /dev/null
SELECT sas.grant_agent(name, r) FROM sas.agents, unnest('{ann,bob,team,carol,dan}'::regrole[]) r \g /dev/null
SELECT is(pg_temp.as_role('wrk_packer', $$SELECT * FROM sas.claim('packer', 'x')$$), '42501', 'the right ends with its agent, another of that name is another');

-- infinite tasks ------------------------------------------------------------------------------------

CREATE TABLE shop.price (id int GENERATED ALWAYS AS IDENTITY, item jsonb NOT NULL);
GRANT INSERT ON shop.price TO ann;
SELECT is(pg_temp.as_role(who, format($$SELECT sas.create_watcher(%L, '{"agent": "printer", "external": {"pin": "{{input.pin?}}"}, "items": {"table": "shop.price"}}')$$, who || 's')), code, format('%s watches into a table that only ann may write to: %s', who, code))
FROM (VALUES ('ann', 'ok'), ('bob', '42501'), ('op', '42501'), ('wrk', '42501'), ('nobody', '42501')) AS x (who, code);
SELECT is(pg_temp.as_role(who, format($$SELECT sas.create_watcher(%L, '{"function": "shop.guarded", "every": "1 h"}')$$, who || '_calls')), code, format('%s has a function called that only ann may call: %s', who, code))
FROM (VALUES ('ann', 'ok'), ('bob', '42501')) AS x (who, code);
SELECT sas.create_watcher('for_all', '{"agent": "printer", "external": {}, "items": {"table": "shop.price"}}') \g /dev/null
SELECT is(pg_temp.as_role('bob', format('SELECT sas.create_watcher(%L, %L)', name, '{"function": "shop.book", "every": "1 h"}')), '42501', format('bob does not define %s anew', name)) FROM unnest('{anns,for_all}'::text[]) name;
SELECT is(pg_temp.as_role('bob', 'SELECT sas.drop_watcher(''anns'')'), '42501', 'nor drop it');
SELECT is(pg_temp.as_role(who, format('SELECT * FROM sas.watch(%L, %L, %L)', name, who, '{"pin": 1}')), code, format('%s watches with %s: %s', who, name, code))
FROM (VALUES ('ann', 'anns', 'ok'), ('bob', 'anns', '42501'), ('ann', 'for_all', 'ok'), ('bob', 'for_all', '42501'), ('bob', 'ann_calls', '42501'), ('op', 'for_all', '42501')) AS x (who, name, code);
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.watch('for_all', 'ann', adopt => true)$$), '42501', 'the key of another cannot be adopted');
SELECT is(pg_temp.as_role('bob', $$SELECT * FROM sas.watch('for_all', 'ann')$$), '42501', 'nor is told what state its task is in');
SELECT is(pg_temp.sees(who, 'SELECT count(*) FROM sas.watches'), n, format('%s sees %s tasks', who, n)) FROM (VALUES ('ann', '2'), ('bob', '0'), ('op', '2'), ('mon', '2')) AS x (who, n);
SELECT is(pg_temp.sees(who, 'SELECT count(*) FROM sas.watches WHERE input IS NOT NULL'), n, format('%s sees %s inputs of tasks', who, n)) FROM (VALUES ('ann', '2'), ('op', '2'), ('mon', '0')) AS x (who, n);
SELECT is(pg_temp.sees('bob', format($$SELECT refused FROM sas.%I('anns', '{ann}')$$, v)), 'task "ann" does not exist, or is not yours', format('bob cannot %s a task of ann', v)) FROM unnest('{unwatch,pause_watch,resume_watch}'::text[]) v;
SELECT is(pg_temp.sees('op', $$SELECT state FROM sas.pause_watch('anns', '{ann}')$$), 'paused', 'an operator can');
SELECT is(pg_temp.sees('ann', $$SELECT state FROM sas.resume_watch('anns', '{ann}')$$), 'created', 'and ann, since it is hers');
SELECT _sas.settle_watches(array_agg(watch_id)) FROM sas.watches \g /dev/null
SELECT is(pg_temp.as_role(who, $$SELECT sas.register_node('n', 5, '{printer}')$$), code, format('%s hosts tasks of the printer: %s', who, code))
FROM (VALUES ('wrk_packer', '42501'), ('ann', '42501'), ('op', '42501'), ('wrk', 'ok'), ('adm', 'ok')) AS x (who, code);
SELECT is(pg_temp.sees('wrk', format('SELECT count(*) FROM sas.%s x', call)), format('42501 node %s is not yours', n.node_id), format('a node of another is not his: %s', split_part(call, '(', 1)))
FROM (SELECT max(node_id) AS node_id FROM sas.nodes WHERE NOT is_deleted) n, unnest(ARRAY[format('claim_watchers(%s, 1)', n.node_id), format('heartbeat_node(%s)', n.node_id), format('release_watches(%s, ''{1}'')', n.node_id), format('leave_node(%s)', n.node_id)]) call;
SELECT is(pg_temp.as_role('wrk', $$SELECT sas.register_node('n', 5, '{printer}')$$), '42501', 'nor is its name');
SELECT is(pg_temp.sees('adm', format('SELECT count(*) FROM sas.claim_watchers(%s, 10)', n.node_id)), '2', 'its own role claims') FROM (SELECT max(node_id) AS node_id FROM sas.nodes WHERE NOT is_deleted) n;
SELECT is(pg_temp.sees('wrk', format('SELECT sas.append_items(%s, 1, ''[1]'')', w.watch_id)), format('42501 node %s is not yours', w.node_id), 'and nobody else writes for it') FROM (SELECT * FROM sas.watches x WHERE x.state = 'processing' ORDER BY x.watch_id LIMIT 1) w;

-- secrets -----------------------------------------------------------------------------------------

SELECT is(pg_temp.as_role(w, 'SELECT * FROM _sas.secret'), '42501', w || ' cannot read secrets') FROM unnest('{ann,op,mon,adm,nobody}'::text[]) w;
SELECT is(pg_temp.as_role(w, 'SELECT * FROM _sas.agents_for_workers()'), '42501', w || ' cannot read agents with their secrets filled in') FROM unnest('{ann,op,mon,adm,nobody}'::text[]) w;
SELECT is(pg_temp.as_role(w, 'SELECT * FROM _sas.agent'), '42501', w || ' cannot read the headers of agents') FROM unnest('{ann,op,mon,adm}'::text[]) w;
-- a superuser looks through every view: the value is in none
SELECT is((SELECT count(*) FROM query_to_xml(format('SELECT * FROM sas.%I', c.relname), true, false, '') x WHERE x::text LIKE '%sesame%'), 0::bigint, format('sas.%s shows no secret', c.relname))
FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' ORDER BY c.relname;
SELECT throws_ok($$SELECT sas.drop_secret('token')$$, '2BP01', NULL, 'a secret in use cannot be dropped');
SELECT is(pg_temp.as_role('adm', $$SELECT sas.set_secret('mine', 'other-4711')$$), 'ok', 'an admin sets one');
SELECT is(pg_temp.as_role('adm', $$SELECT sas.set_secret('mine', 'other-4712')$$), 'ok', 'and again, without seeing the old one');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.create_workflow('thief', '{"steps": {"a": {"agent": "payments", "call": {"body": "{{secret.token}}"}}}}')$$), '42501', 'a workflow cannot send one');

-- testing aids ---------------------------------------------------------------------------------------

SET SESSION AUTHORIZATION ann;
SELECT sas.create_workflow('charged', '{"steps": {"a": {"agent": "payments", "call": {"path": "/c", "headers": {"X-Own": "mine"}}}}}') \g /dev/null
RESET SESSION AUTHORIZATION;
-- as ann, and rolled back: such a transaction is not committed
CREATE FUNCTION pg_temp.asked_in_a_test() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    SET LOCAL SESSION AUTHORIZATION ann;
    BEGIN
        PERFORM sas.stub('payments', '{"status": 200}');
        PERFORM sas.run_inline('charged');
        SELECT (c.request - 'url') || jsonb_build_object('headers', (c.request -> 'headers') - '{traceparent,idempotency_key}'::text[]) INTO said FROM sas.stubbed_calls() c;
        RAISE EXCEPTION '%', said USING ERRCODE = 'ZZ001';
    EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
        said := SQLERRM;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;
SELECT is(pg_temp.asked_in_a_test(), '{"method": "GET", "path": "/c", "query": "key=%2A%2A%2A", "headers": {"x_own": "mine", "user_agent": "sas", "authorization": "***"}}',
          'a test shows what its workflow sends, and of the headers of the agent only their names');
SELECT is(pg_temp.as_role('bob', $$SELECT sas.run_inline('charged')$$), '42501', 'whom a workflow was not granted to cannot test it');
SELECT is(pg_temp.as_role('bob', format('SELECT sas.continue_inline(%s)', (SELECT min(run_id) FROM sas.runs WHERE submitted_by = 'ann'))), '42704', 'a run of another role is not carried on');
SELECT is(pg_temp.as_role('op', 'SELECT sas.set_clock(now())'), '42501', 'an operator moves no clock');
SELECT sas.drop_workflow('charged') \g /dev/null

-- what is said to be granted -------------------------------------------------------------------------

-- the statement that a refusal names is carried out as it stands, until there is no refusal; what is said then
CREATE FUNCTION pg_temp.grants_told(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    FOR i IN 1 .. 3 LOOP
        EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
        BEGIN
            EXECUTE statement;
            RESET SESSION AUTHORIZATION;
            RETURN 'ok after ' || i - 1;
        EXCEPTION WHEN insufficient_privilege THEN
            GET STACKED DIAGNOSTICS said = PG_EXCEPTION_HINT;
        END;
        RESET SESSION AUTHORIZATION;
        EXECUTE rtrim(regexp_replace(said, '^.* can grant it: ', ''), '.');
    END LOOP;
    RETURN said;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
SET SESSION AUTHORIZATION ann;
SELECT sas.create_workflow('odd_inner', '{"steps": {}}'), sas.create_workflow('odd_calls', '{"steps": {"a": {"agent": "payments", "call": {"path": "/c"}}}}') \g /dev/null
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.grants_told('Odd "Role', x.statement), x.wanted, 'a refusal names a statement that helps: ' || x.statement)
FROM (VALUES ('SELECT FROM sas.submit(''odd_calls'')', 'ok after 2'),
             ('SELECT sas.create_workflow(''odd_outer'', ''{"steps": {"i": {"include": "odd_inner"}}}'')', 'ok after 1')) AS x (statement, wanted);
CREATE ROLE "Odd ""Worker";
SELECT sas.grant_usage('"Odd ""Worker"', 'worker', agent => 'printer') \g /dev/null
SELECT is(pg_temp.grants_told('Odd "Worker', x.statement), 'ok after 1', 'a worker, too: ' || x.statement)
FROM (VALUES ('SELECT FROM sas.claim(''packer'', ''w'')')) AS x (statement);
SELECT sas.revoke_usage('"Odd ""Worker"', 'worker'), sas.grant_usage('"Odd ""Worker"', 'worker', agent => 'printer') \g /dev/null
SELECT is(pg_temp.grants_told('Odd "Worker', 'SELECT sas.register_node(''odd'', 1, ''{packer}'')'), 'ok after 1', 'and a node');
SELECT sas.drop_workflow('odd_outer'), sas.drop_workflow('odd_inner') \g /dev/null

-- what is in use stays -----------------------------------------------------------------------------

SELECT is(pg_temp.as_role('adm', $$SELECT sas.drop_agent('payments')$$), '2BP01', 'an agent in use cannot be dropped');
SELECT is(pg_temp.as_role('ann', $$SELECT sas.drop_workflow('anns')$$), '2BP01', 'a workflow with open runs cannot be dropped');
SELECT is(pg_temp.as_role('adm', $$SELECT sas.drop_agent('x')$$), 'ok', 'an agent that nothing uses can');

SELECT * FROM finish();
