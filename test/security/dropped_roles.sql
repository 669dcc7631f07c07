-- SPDX-License-Identifier: PostgreSQL
--
-- Dropped roles: DROP ROLE, DROP OWNED and REASSIGN OWNED of a role with open runs, schedules, infinite tasks and
-- grants. What stays of a role that is gone runs nothing with the rights of another.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE dr_ann; CREATE ROLE dr_heir;
SELECT sas.grant_usage(r, 'user') FROM unnest('{dr_ann,dr_heir}'::regrole[]) r \g /dev/null
CREATE SCHEMA dr; GRANT ALL ON SCHEMA dr TO PUBLIC;
CREATE FUNCTION dr.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
SELECT sas.create_agent('dr_agent', kind => 'external') \g /dev/null
SELECT sas.grant_agent('dr_agent', 'dr_ann') \g /dev/null

-- no worker sees it
BEGIN;
SET SESSION AUTHORIZATION dr_ann;
SELECT sas.create_workflow('dr_w', '{"steps": {"a": {"function": "dr.act"}}}'), sas.create_watcher('dr_watcher', '{"function": "dr.act", "every": "1 h"}') \g /dev/null
SELECT sas.schedule('dr_s', '0 * * * *', 'dr_w') \g /dev/null
SELECT sas.watch('dr_watcher', 'k') \g /dev/null
SELECT run_id AS run FROM sas.submit('dr_w', key => 'dr_key', labels => '{"dr": "label"}') \gset
RESET SESSION AUTHORIZATION;
CREATE FUNCTION pg_temp.dropped(role text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    what text;
BEGIN
    EXECUTE 'DROP ROLE ' || role;
    RETURN 'dropped';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS what = PG_EXCEPTION_DETAIL;
    RETURN SQLSTATE || ' ' || what;
END $$;
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

-- DROP ROLE says what is left
SELECT is(pg_temp.dropped('dr_ann'), E'2BP01 owner of 1 open run\nowner of schedule "dr_s"\nowner of infinite task "k" of watcher "dr_watcher"\nowner of watcher "dr_watcher"\nowner of workflow "dr_w"',
          'a role that owns something is not dropped, and DROP ROLE says what that is');
SELECT is(pg_temp.as_role('dr_heir', 'DROP ROLE dr_ann'), '42501', 'but not to those who may drop no role');
CREATE ROLE dr_maker CREATEROLE; CREATE ROLE dr_super SUPERUSER;
SET SESSION AUTHORIZATION dr_super;
SELECT sas.create_workflow('dr_supers', '{"steps": {}}') \g /dev/null
RESET SESSION AUTHORIZATION;
SELECT is(pg_temp.as_role('dr_maker', 'DROP ROLE dr_super'), '42501', 'nor to those who may create roles, of a superuser');
SELECT is(pg_temp.as_role('dr_maker', 'DROP ROLE dr_ann'), CASE WHEN current_setting('server_version_num')::int < 160000 THEN '2BP01' ELSE '42501' END, 'nor, from PostgreSQL 16 on, of a role that they do not administer');
SELECT sas.drop_workflow('dr_supers') \g /dev/null

-- DROP OWNED leaves what is at work, and keeps the role
SAVEPOINT whole;
SELECT lives_ok('DROP OWNED BY dr_ann', 'DROP OWNED');
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'dr_ann'), 0::bigint, 'takes levels and grants');
SELECT is((SELECT state FROM sas.runs WHERE run_id = :run), 'pending', 'and leaves its runs');
SELECT is((SELECT count(*) FROM sas.schedules WHERE name = 'dr_s'), 1::bigint, 'and its schedules');
SELECT is((SELECT count(*) FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = 'dr_ann'::regrole AND d.classid = 'pg_namespace'::regclass AND d.objid = 'sas'::regnamespace), 1::bigint,
          'the role stays tied to schema sas: no other database drops it');
SELECT matches(pg_temp.dropped('dr_ann'), '^2BP01 owner of 1 open run', 'nor does this one');
SELECT is((SELECT changed FROM sas.cancel(:run)), true, 'an operator cancels the run');
SELECT sas.unschedule('dr_s') \g /dev/null
SELECT FROM sas.unwatch('dr_watcher', '{k}') \g /dev/null
UPDATE _sas.watch SET state = 'deleted' WHERE owner = 'dr_ann'::regrole; -- as its host does
UPDATE _sas.run SET state = 'stopped' WHERE owner = 'dr_ann'::regrole; -- as the scheduler does
SELECT is(pg_temp.dropped('dr_ann'), E'2BP01 owner of watcher "dr_watcher"\nowner of workflow "dr_w"', 'definitions keep it, as functions do');
DELETE FROM _sas.watch WHERE owner = 'dr_ann'::regrole;
SELECT sas.drop_watcher('dr_watcher'), sas.drop_workflow('dr_w') \g /dev/null
SELECT is(pg_temp.dropped('dr_ann'), 'dropped', 'when these are gone, the role can be dropped');
ROLLBACK TO whole;

-- so does revoke_usage
SAVEPOINT whole;
SELECT sas.revoke_usage('dr_ann'), sas.revoke_agent('dr_agent', 'dr_ann') \g /dev/null
SELECT is((SELECT count(*) FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = 'dr_ann'::regrole AND d.classid = 'pg_namespace'::regclass AND d.objid = 'sas'::regnamespace), 1::bigint,
          'a role that loses its level stays tied to what it owns');
ROLLBACK TO whole;

-- a role that is gone all the same: restored without its roles, or the library was not preloaded
SAVEPOINT whole;
SELECT is(pg_temp.as_role('dr_ann', 'DROP OWNED BY dr_ann'), 'ok', 'a role drops what is its own');
DELETE FROM pg_authid WHERE rolname = 'dr_ann';
SELECT is((SELECT state FROM sas.runs WHERE run_id = :run), 'pending', 'an operator sees the run of a role that is gone');
SELECT is((SELECT changed FROM sas.cancel(:run)), true, 'and cancels it');
SELECT throws_ok($$SELECT sas.submit('dr_w')$$, '42501', NULL, 'its workflow runs with the rights of no superuser');
CREATE ROLE dr_ann;
SELECT sas.grant_usage('dr_ann', 'user') \g /dev/null
SET SESSION AUTHORIZATION dr_ann;
SELECT is((SELECT count(*) FROM sas.runs), 0::bigint, 'another role of that name sees no run of it');
SELECT throws_ok($$SELECT sas.submit('dr_w')$$, '42501', NULL, 'and does not own its workflow');
SELECT throws_ok($$SELECT sas.create_workflow('dr_w', '{"steps": {}}')$$, '42501', NULL, 'nor re-versions it');
RESET SESSION AUTHORIZATION;
SELECT lives_ok($$SELECT sas.unschedule('dr_s')$$, 'a superuser removes its schedule');
ROLLBACK TO whole;

-- REASSIGN OWNED moves all of it
SELECT is(pg_temp.as_role('dr_ann', 'REASSIGN OWNED BY dr_ann TO dr_heir'), '42501', 'a role gives nothing to roles that it is no member of');
SELECT is(pg_temp.as_role('dr_heir', 'REASSIGN OWNED BY dr_ann TO dr_heir'), '42501', 'nor does one take');
SELECT is((SELECT submitted_by::text FROM sas.runs WHERE run_id = :run), 'dr_ann', 'and nothing has moved');
SAVEPOINT whole;
SELECT sas.grant_workflow('dr_w', 'dr_heir') \g /dev/null
SET SESSION AUTHORIZATION dr_heir;
SELECT run_id FROM sas.submit('dr_w', key => 'dr_key') \g /dev/null
RESET SESSION AUTHORIZATION;
SELECT throws_ok('REASSIGN OWNED BY dr_ann TO dr_heir', '23505', 'role "dr_heir" has a run with the key of a run of role "dr_ann"', 'not while both have a run with one key');
ROLLBACK TO whole;
-- grants are rights, and no property
SELECT sas.create_agent('dr_http', 'http://127.0.0.1:1'), sas.create_agent('dr_other', 'http://127.0.0.1:1'),
       sas.create_workflow('dr_granted', '{"steps": {}}') \g /dev/null
SELECT sas.grant_agent('dr_http', 'dr_ann', '{GET}'), sas.grant_agent('dr_other', 'dr_ann', '{GET}'), sas.grant_workflow('dr_granted', 'dr_ann') \g /dev/null
SELECT is(_sas.kept_grants('dr_ann'::regrole, 'dr_heir'::regrole), E'agent "dr_agent"\nagent "dr_http"\nagent "dr_other"\nversion 1 of workflow "dr_granted"', 'REASSIGN OWNED is about to tell of grants that the new role has not');
SELECT sas.grant_agent('dr_other', 'dr_heir'), sas.grant_agent('dr_http', 'dr_heir', '{POST}'), sas.grant_workflow('dr_granted', 'dr_heir', 1, true) \g /dev/null
SELECT is(_sas.kept_grants('dr_ann'::regrole, 'dr_heir'::regrole), E'agent "dr_agent"\nagent "dr_http"', 'and not of those that it has');
SELECT is(_sas.kept_grants('dr_ann'::regrole, current_user::regrole), NULL, 'nor that a superuser needs some');
SET client_min_messages = error;
SELECT lives_ok('REASSIGN OWNED BY dr_ann TO dr_heir', 'REASSIGN OWNED');
RESET client_min_messages;
SELECT is((SELECT array_agg(g.role::text || ' ' || coalesce(g.methods::text, 'all') ORDER BY 1) FROM _sas.agent_grant g JOIN _sas.agent a USING (agent_id) WHERE a.name = 'dr_http'), ARRAY['dr_ann {GET}', 'dr_heir {POST}'], 'gives nobody a right to an agent that no admin has given');
SELECT is((SELECT submitted_by::text || ' ' || state FROM sas.runs WHERE run_id = :run), 'dr_heir pending', 'moves open runs');
SELECT is((SELECT owner::text FROM sas.workflows WHERE workflow = 'dr_w'), 'dr_heir', 'workflows');
SELECT is((SELECT owner::text FROM sas.schedules WHERE name = 'dr_s'), 'dr_heir', 'schedules');
SELECT is((SELECT string_agg(DISTINCT owner::text, ' ') FROM sas.watches WHERE watcher = 'dr_watcher'), 'dr_heir', 'infinite tasks');
SELECT is((SELECT count(*) FROM (SELECT 1 FROM _sas.ready WHERE owner = 'dr_ann'::regrole UNION ALL SELECT 1 FROM _sas.message WHERE owner = 'dr_ann'::regrole UNION ALL SELECT 1 FROM _sas.run_key WHERE owner = 'dr_ann'::regrole
                                  UNION ALL SELECT 1 FROM _sas.run_label WHERE owner = 'dr_ann'::regrole) x), 0::bigint, 'and all that goes with a run');
SELECT is((SELECT detail::text FROM sas.history WHERE act = 'reassign_owned'), '{"to": "dr_heir", "from": "dr_ann"}', 'which is in the history');
SET SESSION AUTHORIZATION dr_heir;
SELECT is((SELECT run_id FROM sas.submit('dr_w', key => 'dr_key')), :run::bigint, 'the key is that of the new owner');
SELECT is((SELECT count(*) FROM sas.find_runs('{"labels": {"dr": "label"}}')), 1::bigint, 'who finds it by its label');
SELECT is((SELECT changed FROM sas.cancel(:run)), true, 'and cancels it');
RESET SESSION AUTHORIZATION;
SELECT alike(pg_temp.dropped('dr_ann'), '2BP01 privileges for schema sas%', 'grants do not move, as those of tables do not');
SELECT lives_ok('DROP OWNED BY dr_ann', 'DROP OWNED takes them');
SELECT is(pg_temp.dropped('dr_ann'), 'dropped', 'and the role can be dropped');

SELECT * FROM finish();
ROLLBACK;
