-- SPDX-License-Identifier: PostgreSQL
--
-- Logins: what a role that has logged in itself can do with who it is (SET ROLE, SET SESSION AUTHORIZATION), and with
-- settings that it has given itself for every login. No level leads up; what sas does for a role it does for the role
-- that is current. The other files of this folder log in like this, but for four: call_paths and dropped_roles, where
-- rights depend on the current user alone and all is undone at the end; and maintenance and shared_schemas, where a
-- superuser is the victim, in a session of its own. These use SET SESSION AUTHORIZATION, which differs from a login in
-- one thing only: who may set it again, which no attack there does, and which is tried here.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE lo_user LOGIN; CREATE ROLE lo_mon LOGIN; CREATE ROLE lo_op LOGIN; CREATE ROLE lo_adm LOGIN; CREATE ROLE lo_work LOGIN; CREATE ROLE lo_none LOGIN;
CREATE ROLE lo_team; CREATE ROLE lo_mate LOGIN IN ROLE lo_team; CREATE ROLE lo_boss SUPERUSER LOGIN;
SELECT sas.create_agent('lo_away', kind => 'external') \g /dev/null
SELECT sas.grant_usage('lo_user', 'user'), sas.grant_usage('lo_team', 'user'), sas.grant_usage('lo_mon', 'monitor'), sas.grant_usage('lo_op', 'operator'), sas.grant_usage('lo_adm', 'admin'),
       sas.grant_usage('lo_work', 'worker', 'lo_away') \g /dev/null
CREATE SCHEMA lo; GRANT ALL ON SCHEMA lo TO PUBLIC;
CREATE TABLE lo.seen (what text, said text); GRANT ALL ON lo.seen TO PUBLIC;
CREATE FUNCTION pg_temp.says(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(nullif(x.code, 'ok'), x.said) FROM login.as_role(who, statement) x $$;

-- who it is: not by what was current before, and not by a way up
SELECT is(pg_temp.says(who, $$SELECT concat_ws(' ', session_user, current_user, current_setting('is_superuser'), current_setting('role'))$$), format('%s %1$s off none', who), who || ' has logged in as itself')
FROM unnest('{lo_user,lo_mon,lo_op,lo_adm,lo_work,lo_none,lo_mate}'::text[]) who;
SELECT is(pg_temp.says('lo_boss', $$SELECT concat_ws(' ', session_user, current_setting('is_superuser'))$$), 'lo_boss on', 'a superuser, too');
SELECT is(string_agg(pg_temp.says(who, statement), ' '), '0 0 0 0', who || ' has nothing to go back to')
FROM unnest('{lo_user,lo_mon,lo_op,lo_adm,lo_work,lo_none,lo_mate}'::text[]) who, unnest('{RESET ROLE,SET ROLE NONE,RESET SESSION AUTHORIZATION,SET SESSION AUTHORIZATION DEFAULT}'::text[]) statement GROUP BY who;
SELECT is(pg_temp.says(who, statement), '42501', format('%s does not: %s', who, statement))
FROM unnest('{lo_user,lo_mon,lo_op,lo_adm,lo_work,lo_none,lo_mate}'::text[]) who,
     unnest(ARRAY['SET SESSION AUTHORIZATION postgres', 'SET SESSION AUTHORIZATION lo_team', 'SET ROLE postgres', 'SET ROLE lo_boss', 'SELECT set_config(''role'', ''lo_boss'', false)',
                  'SELECT set_config(''session_authorization'', ''postgres'', false)', 'ALTER ROLE lo_boss PASSWORD ''x''', 'SET session_preload_libraries = ''sas''']) statement;
SELECT is(pg_temp.says(who, 'SELECT current_user'), who, who || ' is still itself') FROM unnest('{lo_user,lo_mon,lo_op,lo_adm,lo_work,lo_none,lo_mate}'::text[]) who;

-- what runs in its session runs as the role that is current there, and leads no further up
CREATE FUNCTION lo.tries(what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s text;
BEGIN
    INSERT INTO lo.seen VALUES (what, concat_ws(' ', session_user, current_user, current_setting('is_superuser')));
    FOREACH s IN ARRAY '{SET ROLE postgres,SET SESSION AUTHORIZATION postgres,RESET SESSION AUTHORIZATION,SET ROLE lo_boss,ALTER ROLE lo_user SUPERUSER,SET ROLE lo_adm}'::text[] LOOP
        BEGIN
            EXECUTE s;
            INSERT INTO lo.seen SELECT what, s FROM pg_roles r WHERE r.rolname = current_user AND (r.rolsuper OR r.rolname = 'lo_adm');
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END $$;
SELECT is(pg_temp.says('lo_user', $do$
CREATE FUNCTION lo.plan(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM lo.tries('plan'); RETURN '{"steps": {}}'; END $$;
CREATE FUNCTION lo.step(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM lo.tries('step'); RETURN (SELECT jsonb_agg(s) FROM lo.seen s); END $$$do$), '0', 'a user writes functions that look for a way up');
SELECT is(pg_temp.says('lo_user', s), '1', 'and workflows with them: ' || s) FROM unnest(ARRAY[$$SELECT sas.create_workflow('lo_planned', '{"plan": "lo.plan"}')$$, $$SELECT sas.create_workflow('lo_steps', '{"steps": {"a": {"function": "lo.step"}}}')$$]) s;
SELECT is(pg_temp.says('lo_user', $$SELECT s.created FROM sas.submit('lo_planned') s$$), 'true', 'it submits one');
SELECT is(string_agg(what || ': ' || said, '; '), 'plan: lo_user lo_user off', 'the plan function was the user, and came no further') FROM lo.seen;
SELECT is((login.as_role('lo_user', $$SELECT r.output FROM sas.run_inline('lo_steps') r$$, false)).code, 'ok', 'a step in its session');
SELECT is(pg_temp.says('lo_user', $$SELECT s.created FROM sas.submit('lo_steps') s$$), 'true', 'is submitted, too');

-- a member that acts as its group: the run is the group's, and the history has both
SELECT is(pg_temp.says('lo_mate', s), '0', s) FROM unnest('{SET ROLE lo_team}'::text[]) s;
SELECT is(pg_temp.says('lo_mate', $$SELECT sas.create_workflow('lo_of_team', '{"steps": {"w": {"wait": {"signal": "go"}}}}')$$), '1', 'a member writes a workflow as its group');
SELECT is(pg_temp.says('lo_mate', $$SELECT s.created FROM sas.submit('lo_of_team') s$$), 'true', 'and submits it');
SELECT is(pg_temp.says('lo_mate', $$SELECT x.changed FROM sas.runs r, sas.pause(r.run_id) x WHERE r.workflow = 'lo_of_team'$$), 'true', 'and pauses the run');
SELECT is((SELECT r.submitted_by::text FROM sas.runs r WHERE r.workflow = 'lo_of_team'), 'lo_team', 'which is the group''s');
SELECT is((SELECT string_agg(DISTINCT concat_ws(' ', h.session_role, h.role), ',') FROM sas.history h WHERE h.act = 'pause'), 'lo_mate lo_team', 'the history has who was logged in, and who was current');
SELECT is(pg_temp.says('lo_mate', 'RESET ROLE'), '0', 'it goes back to itself');

-- settings that come with the login
CREATE SCHEMA lo_first; GRANT ALL ON SCHEMA lo_first TO PUBLIC;
CREATE TEMP TABLE look AS
SELECT who, statement, pg_temp.says(who, statement) AS said
FROM unnest('{lo_user,lo_mon,lo_op}'::text[]) who,
     unnest(ARRAY['SELECT pg_catalog.count(*) FROM sas.runs', 'SELECT pg_catalog.count(input) FROM sas.runs', 'SELECT pg_catalog.string_agg(s::text, '','') FROM (SELECT * FROM sas.steps ORDER BY run_id, step) s',
                  'SELECT pg_catalog.count(*) FROM sas.find_runs(''{}'')', 'SELECT pg_catalog.count(*) FROM sas.history', 'SELECT pg_catalog.string_agg(workflow, '','' ORDER BY workflow) FROM sas.workflows']) statement;
SELECT isnt(said, NULL, format('%s sees by itself: %s', who, statement)) FROM look WHERE statement LIKE '%count(%';
SELECT is(pg_temp.says('lo_user', $do$
CREATE FUNCTION lo_first.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; CREATE FUNCTION lo_first.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION lo_first.has_function_privilege(oid, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; CREATE FUNCTION lo_first.count(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint';
CREATE FUNCTION lo_first.same(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR lo_first.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = lo_first.same)$do$), '0', 'a user has objects that stand before those of the system');
SELECT format('ALTER ROLE %I SET %s', who, setting)
FROM unnest('{lo_user,lo_mon,lo_op}'::text[]) who,
     unnest(ARRAY['search_path = lo_first, pg_catalog', 'standard_conforming_strings = off', 'escape_string_warning = off', 'transform_null_equals = on', 'array_nulls = off', 'DateStyle = ''SQL, DMY''', 'IntervalStyle = sql_standard',
                  'quote_all_identifiers = on', 'enable_seqscan = off', 'enable_indexscan = off', 'plan_cache_mode = force_generic_plan', 'xmloption = document', 'bytea_output = escape', 'timezone = ''Asia/Kolkata''',
                  'default_transaction_isolation = ''repeatable read''', 'plpgsql.variable_conflict = use_variable']) setting \gexec
SELECT login.dblink_disconnect(who) FROM unnest('{lo_user,lo_mon,lo_op}'::text[]) who \g /dev/null
SELECT is(pg_temp.says(who, 'SHOW search_path'), 'lo_first, pg_catalog', who || ' logs in again, with settings of its own') FROM unnest('{lo_user,lo_mon,lo_op}'::text[]) who;
SELECT is(pg_temp.says(l.who, l.statement), l.said, format('and %s sees no more and no less: %s', l.who, l.statement)) FROM look l WHERE l.statement NOT LIKE '%sas.steps%';
SELECT is(pg_temp.says('lo_user', $$SELECT s.created FROM sas.submit('lo_steps') s$$), 'true', 'a submit does what it did');
ALTER ROLE lo_user SET row_security = off;
SELECT login.dblink_disconnect('lo_user') \g /dev/null
SELECT is(pg_temp.says('lo_user', 'SELECT pg_catalog.count(*) FROM sas.runs'), '42501', 'without row security it is refused, and not shown all');
SELECT is(pg_temp.says('lo_user', $$SELECT s.created FROM sas.submit('lo_steps') s$$), 'true', 'a submit does what it did');

SELECT * FROM finish();
