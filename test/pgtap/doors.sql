-- SPDX-License-Identifier: PostgreSQL
--
-- Doors: levels, ownership, and who sees what.

CREATE ROLE sas_t_alice; CREATE ROLE sas_t_bob; CREATE ROLE sas_t_op; CREATE ROLE sas_t_mon; CREATE ROLE sas_t_adm; CREATE ROLE sas_t_none; CREATE ROLE sas_t_team;
GRANT sas_t_team TO sas_t_alice;
SELECT sas.grant_usage('sas_t_alice', 'user'), sas.grant_usage('sas_t_bob', 'user'), sas.grant_usage('sas_t_op', 'operator'),
       sas.grant_usage('sas_t_mon', 'monitor'), sas.grant_usage('sas_t_adm', 'admin'), sas.grant_usage('sas_t_team', 'user');
CREATE SCHEMA app;
GRANT USAGE ON SCHEMA app TO PUBLIC;
CREATE FUNCTION app.f(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
CREATE FUNCTION app.alices(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
REVOKE ALL ON FUNCTION app.alices FROM PUBLIC;
GRANT EXECUTE ON FUNCTION app.alices TO sas_t_alice;
CREATE FUNCTION app.submit_for(w text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT run_id FROM sas.submit(w) $$;
ALTER FUNCTION app.submit_for(text) OWNER TO sas_t_alice;
GRANT USAGE ON SCHEMA sas TO sas_t_none;
-- pgTAP's own functions are called as these roles
GRANT USAGE ON SCHEMA public TO PUBLIC;

SELECT no_plan();

SET ROLE sas_t_none;
SELECT throws_ok('SELECT * FROM sas.runs', '42501', NULL, 'a role without a level sees no runs');
SELECT throws_ok('SELECT * FROM sas.submit(''x'')', '42501', NULL, 'a role without a level submits nothing');

SET ROLE sas_t_alice;
SELECT is(sas.create_workflow('alices', '{"steps": {"a": {"function": "app.f"}}}'), 1, 'a user creates a workflow');
SELECT throws_ok('SELECT sas.create_agent(''x'', ''http://h'')', '42501', NULL, 'a user creates no agent');
SELECT throws_ok('SELECT sas.set_secret(''x'', ''y'')', '42501', NULL, 'a user sets no secret');
SELECT throws_ok('SELECT sas.grant_usage(''sas_t_none'', ''admin'')', '42501', NULL, 'a user gives no levels');
SELECT throws_ok('SELECT sas.reset_agent(''x'')', '42501', NULL, 'a user resets no agent');
SELECT is((SELECT created FROM sas.submit('alices', '{"secret_of": "alice"}', key => 'k')), true, 'a user submits an own workflow');
SELECT is((SELECT count(*) FROM sas.runs), 1::bigint, 'a role sees its own runs');
SELECT is((SELECT submitted_by FROM sas.runs), 'sas_t_alice'::name, 'the run belongs to who submitted it');

SET ROLE sas_t_bob;
SELECT throws_ok('SELECT * FROM sas.submit(''alices'')', '42501', NULL, 'a workflow of somebody else cannot be submitted');
SELECT throws_ok($$SELECT sas.create_workflow('alices', '{"steps": {}}')$$, '42501', NULL, 'a workflow of somebody else cannot be re-versioned');
SELECT throws_ok($$SELECT sas.drop_workflow('alices')$$, '42501', NULL, 'a workflow of somebody else cannot be dropped');
SELECT throws_ok($$SELECT sas.grant_workflow('alices', 'sas_t_bob')$$, '42501', NULL, 'a workflow of somebody else cannot be granted');
SELECT is((SELECT count(*) FROM sas.runs), 0::bigint, 'a role does not see runs of others');
SELECT is((SELECT count(*) FROM sas.steps), 0::bigint, 'nor their steps');
SELECT is((SELECT count(*) FROM sas.attempts), 0::bigint, 'nor their attempts');
SELECT is((SELECT count(*) FROM sas.run_details), 0::bigint, 'nor their details');
SELECT is((SELECT count(*) FROM sas.workflows), 0::bigint, 'nor their workflows');
SELECT is((SELECT count(*) FROM sas.cancel(1) WHERE changed), 0::bigint, 'and cannot cancel them');
SELECT matches((SELECT refused FROM sas.cancel(1)), 'does not exist, or is not yours', 'what is not one''s own is not told from what is not there');
SELECT throws_ok('SELECT * FROM sas.wait(1)', '42704', NULL, 'and cannot wait for them');
SELECT throws_ok(format('SELECT * FROM sas.%I', t), '42501', NULL, format('no private table can be read: %s', t))
FROM unnest('{run,step,ready,lease,due,attempt,secret,agent,agent_health,workflow,workflow_version,workflow_step,run_key,reply,alert,act}'::text[]) t;
SELECT throws_ok($$SELECT sas._submit(10::oid, 'alices', '{}', NULL, 0, NULL, NULL, NULL, NULL, NULL, '{}')$$, '42501', NULL, 'nobody can submit in the name of another role');
SELECT throws_ok($$SELECT sas._agents_for_workers()$$, '42501', NULL, 'nobody can read agents as the workers do');
SELECT throws_ok($$SELECT sas.create_workflow('w', '{"steps": {"a": {"function": "app.alices"}}}')$$, '42501', NULL, 'a function that may not be called cannot be defined');

SET ROLE sas_t_alice;
SELECT lives_ok($$SELECT sas.grant_workflow('alices', 'sas_t_bob')$$, 'an owner grants a workflow');
SELECT is(sas.create_workflow('with_right', '{"steps": {"a": {"function": "app.alices"}}}'), 1, 'who may call a function can define it');
SELECT lives_ok($$SELECT sas.grant_workflow('with_right', 'sas_t_bob')$$, 'and grant that workflow');
SET ROLE sas_t_bob;
SELECT is((SELECT created FROM sas.submit('alices', key => 'k')), true, 'a granted workflow can be submitted; keys are per owner');
SELECT throws_ok('SELECT * FROM sas.submit(''with_right'')', '42501', NULL, 'but not with a function that the submitter may not call');
SELECT is((SELECT count(*) FROM sas.runs), 1::bigint, 'one still sees one''s own only');
SET ROLE sas_t_alice;
SELECT lives_ok($$SELECT sas.revoke_workflow('alices', 'sas_t_bob')$$, 'an owner takes the grant back');
SET ROLE sas_t_bob;
SELECT throws_ok('SELECT * FROM sas.submit(''alices'')', '42501', NULL, 'then it cannot be submitted any more');

RESET ROLE;
SELECT ok(app.submit_for('alices') > 0, 'a security definer function of the application submits');
SELECT is((SELECT submitted_by FROM sas.runs ORDER BY run_id DESC LIMIT 1), 'sas_t_alice'::name, 'and its owner owns the run');
SELECT is(sas.create_workflow('of_superuser', '{"steps": {"a": {"function": "app.f"}}}'), 1, 'a superuser creates a workflow');
SET ROLE sas_t_bob;
SELECT is((SELECT created FROM sas.submit('of_superuser')), true, 'workflows of superusers can be submitted by users');
SET ROLE sas_t_adm;
SELECT is(sas.create_workflow('alices', '{"steps": {}}'), 2, 'an admin re-versions a workflow of somebody else');
SELECT lives_ok($$SELECT sas.create_agent('x', 'http://127.0.0.1:1')$$, 'an admin creates an agent');
SELECT lives_ok($$SELECT sas.set_secret('token', 'abc')$$, 'an admin sets a secret');
SELECT throws_ok('SELECT * FROM sas.secret', '42501', NULL, 'an admin cannot read a secret');

SET ROLE sas_t_op;
SELECT cmp_ok((SELECT count(*) FROM sas.runs), '>=', 4::bigint, 'an operator sees all runs');
SELECT is((SELECT changed FROM sas.pause(1)), true, 'an operator pauses a run of somebody else');
SELECT is((SELECT changed FROM sas.resume(1)), true, 'and resumes it');
SELECT throws_ok('SELECT * FROM sas.submit(''of_superuser'')', '42501', NULL, 'an operator submits nothing');
SELECT is((SELECT array_agg(act ORDER BY at) FROM sas.history WHERE run_id = 1), '{pause,resume}'::text[], 'the acts are recorded');
SELECT is((SELECT DISTINCT role FROM sas.history WHERE run_id = 1), 'sas_t_op', 'with who did them');

SET ROLE sas_t_mon;
SELECT cmp_ok((SELECT count(*) FROM sas.runs), '>=', 4::bigint, 'a monitor sees all runs');
SELECT is((SELECT count(*) FROM sas.runs WHERE input IS NOT NULL), 0::bigint, 'but no payload');
SELECT is((SELECT count(*) FROM sas.steps WHERE input IS NOT NULL OR output IS NOT NULL), 0::bigint, 'nor that of steps');
SELECT lives_ok('SELECT * FROM sas.health()', 'a monitor asks for health');
SELECT lives_ok('SELECT * FROM sas.agents', 'a monitor looks at agents');
SELECT throws_ok('SELECT * FROM sas.cancel(1)', '42501', NULL, 'a monitor cancels nothing');

RESET ROLE;
SELECT throws_ok($$SELECT sas.grant_usage('sas_t_none', 'king')$$, '22023', NULL, 'an unknown level is refused');
SELECT * FROM finish();

DROP OWNED BY sas_t_alice, sas_t_bob, sas_t_op, sas_t_mon, sas_t_adm, sas_t_none, sas_t_team;
DROP ROLE sas_t_alice, sas_t_bob, sas_t_op, sas_t_mon, sas_t_adm, sas_t_none, sas_t_team;
