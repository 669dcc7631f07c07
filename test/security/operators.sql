-- SPDX-License-Identifier: PostgreSQL
--
-- Operators and the runs of superusers: they stop them, send them on and settle them, as those of others. They do not
-- choose what such a run is given or does, and they reach no process that executes it.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE os_op LOGIN; CREATE ROLE os_adm LOGIN; CREATE ROLE os_user LOGIN; CREATE ROLE os_both LOGIN;
SELECT sas.grant_usage('os_user', 'user'), sas.grant_usage('os_both', 'user'), sas.grant_usage('os_both', 'operator') \g /dev/null
SELECT sas.grant_usage('os_op', 'operator'), sas.grant_usage('os_adm', 'admin') \g /dev/null
CREATE SCHEMA os; GRANT USAGE ON SCHEMA os TO PUBLIC;
CREATE FUNCTION os.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION os.plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {}}'::jsonb $$;
-- ok, or the SQLSTATE; of a verb for runs what it said. It is rolled back, but where the next claim asks for more of it
CREATE FUNCTION pg_temp.says(who text, statement text, keep boolean DEFAULT false) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN coalesce(nullif(x.said, ''), 'ok') ELSE x.code END FROM login.as_role(who, statement, keep) x $$;
SELECT sas.create_workflow('os_w', '{"steps": {"w": {"wait": {"signal": "go"}}, "a": {"function": "os.act", "after": ["w"]}}}'),
       sas.create_workflow('os_asks', '{"steps": {"ask": {"function": "os.act", "input": {"token": "{{steps.w.token}}"}}, "w": {"wait": {"signal": "go"}, "after": ["ask"]}}}'),
       sas.create_workflow('os_planned', '{"plan": "os.plan"}') \g /dev/null

SELECT run_id AS run FROM sas.submit('os_w', key => 'os_key') \gset
SELECT run_id AS planned FROM sas.submit('os_planned') \gset
SELECT run_id AS asking FROM sas.submit('os_asks') \gset

-- what they may
SELECT is(pg_temp.says(who, format('SELECT coalesce(refused, changed::text) FROM ' || verb, :run), true), 'true', format('%s on a superuser''s run: %s', who, verb))
FROM unnest('{os_op,os_adm}'::text[]) who, unnest('{sas.pause(%s),sas.resume(%s),"sas.set_priority(%s, 3)"}'::text[]) verb;
SELECT is(pg_temp.says('os_op', format('SELECT coalesce(refused, changed::text) FROM ' || verb, :run)), 'true', 'an operator ends a superuser''s run: ' || verb)
FROM unnest('{sas.cancel(%s)}'::text[]) verb;
SELECT is(pg_temp.says('os_op', format('SELECT coalesce(refused, changed::text) FROM ' || verb, :run)), 'true', 'an operator ends a superuser''s run: ' || verb)
FROM unnest('{sas.halt(%s)}'::text[]) verb;

-- and of its schedules: they begin runs that are as the superuser has written them, and stop them
SELECT sas.create_workflow('os_plain', '{"steps": {"a": {"function": "os.act"}}}'), sas.schedule('os_sched', '0 3 1 1 *', 'os_plain'), sas.schedule('os_plans', '0 3 1 1 *', 'os_planned') \g /dev/null
SELECT isnt(left(pg_temp.says(who, statement, true), 2), '42', format('%s on a superuser''s schedule: %s', who, statement))
FROM unnest('{os_op,os_adm}'::text[]) who, unnest(ARRAY['SELECT created FROM sas.trigger_schedule(''os_sched'')', 'SELECT count(*) FROM sas.backfill_schedule(''os_sched'', now() - interval ''2 years'', now())',
    'SELECT sas.pause_schedule(''os_sched'')', 'SELECT sas.resume_schedule(''os_sched'')']) statement;
SELECT ok((SELECT bool_and(r.submitted_by = current_user::regrole::text AND r.input = '{}') FROM sas.runs r WHERE r.schedule = 'os_sched'), 'its runs are the superuser''s, with the input of the superuser');
SELECT is(pg_temp.says(who, statement), '42501', format('%s cannot: %s', who, statement))
FROM unnest('{os_op,os_adm}'::text[]) who, unnest(ARRAY['SELECT created FROM sas.trigger_schedule(''os_plans'')', 'SELECT count(*) FROM sas.backfill_schedule(''os_plans'', now() - interval ''2 years'', now())',
    'SELECT sas.schedule(''os_sched'', ''0 3 * * *'', ''os_plain'', input => ''{"evil": true}'')']) statement;
SELECT is(pg_temp.says(who, 'SELECT sas.unschedule(''os_sched'')', true), '42501', format('%s does not remove it', who)) FROM unnest('{os_op,os_adm,os_both}'::text[]) who;
SELECT is((SELECT count(*) FROM sas.schedules s WHERE s.name = 'os_sched'), 1::bigint, 'it is there');
GRANT USAGE ON SCHEMA os TO os_user;
SELECT is(pg_temp.says('os_user', s, true), said, 'a user: ' || s)
FROM (VALUES (1, $$SELECT sas.create_workflow('os_users', '{"steps": {"a": {"function": "os.act"}}}')$$, '1'), (2, $$SELECT sas.schedule('os_users', '0 3 1 1 *', 'os_users') IS NOT NULL$$, 'true')) v (n, s, said) ORDER BY n;
SELECT is(pg_temp.says('os_op', 'SELECT sas.unschedule(''os_users'')', true), 'ok', 'that of a user they remove, and sas.history says who did');
SELECT is((SELECT h.role::text FROM sas.history h WHERE h.act = 'unschedule' AND h.detail ->> 'schedule' = 'os_users'), 'os_op', 'as it says');

-- what they may not: say what it is given
SELECT is(pg_temp.says(who, format(statement, :run)), '42501', format('%s sends a superuser''s run no payload: %s', who, statement))
FROM unnest('{os_op,os_adm}'::text[]) who,
     unnest(ARRAY[$$SELECT sas.signal(%s, 'go', '{"evil": true}')$$, $$SELECT sas.signal_key('os_w', 'os_key', 'go', '{"evil": true}')$$]) statement;
SELECT is((SELECT count(*) FROM _sas.signal), 0::bigint, 'nothing of it is kept');
-- nor by the token of the wait, which they can read in the input of the step that passes it on
SELECT _sas.token(r.run_id, r.trace, 'w') AS token FROM _sas.run r WHERE r.run_id = :asking \gset
SELECT is(pg_temp.says(who, format($$SELECT sas.signal_token(%L, '{"evil": true}')$$, :'token')), '42501', format('%s sends it no payload with a token, either', who)) FROM unnest('{os_adm,os_both}'::text[]) who;
SELECT is(pg_temp.says('os_user', format($$SELECT sas.signal_token(%L, '{"approved": true}')$$, :'token')), 'ok', 'a user to whom the token was given does');
SELECT is(pg_temp.says('os_adm', format($$SELECT sas.signal_token(%L)$$, :'token')), 'ok', 'without a payload an admin does');
SELECT is(pg_temp.says('os_op', format($$SELECT sas.signal(%s, 'go')$$, :run)), 'ok', 'a signal without one they send');
SELECT unalike(pg_temp.says('os_op', format('SELECT coalesce(refused, changed::text) FROM ' || verb, :run)), 'true', 'an operator says nothing that it is given: ' || verb)
FROM unnest(ARRAY[$$sas.set_input(%s, 'a', '{"evil": true}')$$, $$sas.skip(%s, 'w', '{"evil": true}')$$, $$sas.force_complete(%s, 'w', '{"evil": true}')$$]) verb;
-- nor by an older version, which may do what the superuser has corrected
SELECT sas.create_workflow('os_w', '{"steps": {"w": {"wait": {"signal": "go"}}, "a": {"function": "os.act", "after": ["w"], "input": {"second": true}}}}') \g /dev/null
SELECT run_id AS newer FROM sas.submit('os_w') \gset
SELECT is(pg_temp.says(who, format('SELECT coalesce(refused, changed::text) FROM ' || verb, :newer)), 'role "' || current_user || '" is a superuser, and you are not: its runs continue with the current version only',
          format('%s gives it no older version: %s', who, verb))
FROM unnest('{os_op,os_adm}'::text[]) who, unnest('{"sas.set_version(%s, 1)","sas.set_version_runs(ARRAY[%s::bigint], 1)"}'::text[]) verb;
SELECT is(pg_temp.says('os_op', format('SELECT coalesce(refused, changed::text) FROM sas.set_version(%s)', :run)), 'true', 'the current one they do');
-- nor run it again with what a function plans now, nor reach the processes
SELECT FROM generate_series(1, 5) n, LATERAL _sas.scheduler_tick(100 + 0 * n) \g /dev/null
SELECT is((SELECT state FROM sas.runs WHERE run_id = :planned), 'stopped', 'a run that a function has planned has ended');
SELECT matches(pg_temp.says(who, format('SELECT coalesce(refused, new_run_id::text) FROM sas.rerun(%s)', :planned)), 'is planned by functions, with the rights of ', who || ' does not run functions that plan') FROM unnest('{os_op,os_adm}'::text[]) who;
SELECT is(pg_temp.says(who, statement), '42501', format('%s cannot: %s', who, statement))
FROM unnest('{os_op}'::text[]) who, unnest(ARRAY['SELECT sas.worker_restart()', 'SELECT sas.submit(''os_w'')', 'SELECT pg_reload_conf()']) statement;
-- nor hide what they have done
SELECT run_id AS ended FROM sas.submit('os_w') \gset
SELECT is((SELECT changed FROM sas.set_priority(:ended, 2)), true, 'a superuser has a run, on which it acts itself');
SELECT is(pg_temp.says('os_op', format('SELECT changed FROM sas.halt(%s, ''no reason'')', :ended), true), 'true', 'an operator halts it');
SELECT FROM generate_series(1, 5) n, LATERAL _sas.scheduler_tick(100 + 0 * n) \g /dev/null
SELECT is(pg_temp.says('os_op', $$SELECT runs FROM sas.purge('0 s', workflow => 'os_w')$$, true), '1', 'and purges it');
SELECT is((SELECT count(*) FROM sas.runs WHERE run_id = :ended), 0::bigint, 'the run is gone');
SELECT is((SELECT array_agg((h.role, h.act, h.run_id, h.detail ->> 'run_id')::text) FROM sas.history h WHERE h.act IN ('halt', 'set_priority') AND coalesce(h.run_id, (h.detail ->> 'run_id')::bigint) = :ended),
          ARRAY[format('(os_op,halt,,%s)', :ended)], 'but not who halted it; what its owner did is');
SELECT is((SELECT count(*) FROM sas.history h WHERE h.act = 'purge' AND h.role = 'os_op'), 1::bigint, 'nor who purged it');
SELECT ok(NOT pg_has_role(who, r, 'MEMBER'), format('%s is no member of %s, which signals processes or reads all', who, r))
FROM unnest('{os_op,os_adm}'::text[]) who, unnest('{pg_signal_backend,pg_read_all_data,pg_write_all_data,pg_monitor}'::text[]) r;

SELECT * FROM finish();
