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
SET ROLE dr_ann;
SELECT sas.create_workflow('dr_w', '{"steps": {"a": {"function": "dr.act"}}}'), sas.create_watcher('dr_watcher', '{"function": "dr.act", "every": "1 h"}') \g /dev/null
SELECT sas.schedule('dr_s', '0 * * * *', 'dr_w') \g /dev/null
SELECT sas.watch('dr_watcher', 'k') \g /dev/null
SELECT run_id AS run FROM sas.submit('dr_w') \gset
RESET ROLE;
SELECT throws_ok('DROP ROLE dr_ann', '2BP01', NULL, 'a role with a level is not dropped');
SELECT lives_ok('REASSIGN OWNED BY dr_ann TO dr_heir', 'REASSIGN OWNED is no error');
SELECT is((SELECT submitted_by::text FROM sas.runs WHERE run_id = :run), 'dr_ann', 'and gives nobody the runs of another');
SELECT is((SELECT owner::text FROM sas.workflows WHERE workflow = 'dr_w'), 'dr_ann', 'nor the workflows');
SELECT throws_ok('DROP ROLE dr_ann', '2BP01', NULL, 'the role keeps its level, and is not dropped');
SELECT lives_ok('DROP OWNED BY dr_ann', 'DROP OWNED');
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'dr_ann'), 0::bigint, 'takes levels and grants');
SELECT is((SELECT state FROM sas.runs WHERE run_id = :run), 'pending', 'and leaves its runs');
SELECT is((SELECT count(*) FROM sas.schedules WHERE name = 'dr_s'), 1::bigint, 'and its schedules');
SELECT lives_ok('DROP ROLE dr_ann', 'then the role can be dropped');
SELECT is((SELECT state FROM sas.runs WHERE run_id = :run), 'pending', 'an operator sees its run');
SELECT is((SELECT changed FROM sas.cancel(:run)), true, 'and cancels it');
SELECT throws_ok($$SELECT sas.submit('dr_w')$$, '42501', NULL, 'its workflow runs with the rights of no superuser');
CREATE ROLE dr_ann;
SELECT sas.grant_usage('dr_ann', 'user') \g /dev/null
SET ROLE dr_ann;
SELECT is((SELECT count(*) FROM sas.runs), 0::bigint, 'another role of that name sees no run of it');
SELECT throws_ok($$SELECT sas.submit('dr_w')$$, '42501', NULL, 'and does not own its workflow');
SELECT throws_ok($$SELECT sas.create_workflow('dr_w', '{"steps": {}}')$$, '42501', NULL, 'nor re-versions it');
RESET ROLE;
SELECT lives_ok($$SELECT sas.unschedule('dr_s')$$, 'a superuser removes its schedule');

SELECT * FROM finish();
ROLLBACK;
