-- SPDX-License-Identifier: PostgreSQL
--
-- Grants: what a role was granted is one version of a workflow. Who owns the workflow runs no later code with the
-- rights of that role; and a superuser's run takes only what superusers have written.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE se_eve LOGIN; CREATE ROLE se_bob LOGIN; CREATE ROLE se_adm LOGIN; CREATE ROLE se_root LOGIN SUPERUSER;
SELECT sas.grant_usage(r, 'user') FROM unnest('{se_eve,se_bob}'::regrole[]) r \g /dev/null
SELECT sas.grant_usage('se_adm', 'admin') \g /dev/null
CREATE SCHEMA se; GRANT ALL ON SCHEMA se TO PUBLIC;
CREATE FUNCTION pg_temp.as_role(who text, statement text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE x.code WHEN 'ok' THEN coalesce(nullif(x.said, ''), 'ok') ELSE x.code END FROM login.as_role(who, statement) x $$;
-- the version that a run has
CREATE FUNCTION se.version_of(id bigint) RETURNS text LANGUAGE sql AS $$ SELECT version::text FROM sas.runs WHERE run_id = id $$;
CREATE FUNCTION se.steps_of(id bigint) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(step, ',') FROM sas.steps WHERE run_id = id $$;
CREATE FUNCTION pg_temp.submits(who text, workflow text, version int DEFAULT NULL) RETURNS text LANGUAGE sql AS
    $$ SELECT pg_temp.as_role(who, format('SELECT se.version_of(run_id) FROM sas.submit(%L, version => %L)', workflow, version)) $$;
CREATE FUNCTION pg_temp.writes(who text, workflow text, definition text DEFAULT '{"steps": {}}') RETURNS text LANGUAGE sql AS
    $$ SELECT pg_temp.as_role(who, format('SELECT sas.create_workflow(%L, %L)', workflow, definition)) $$;

-- versions ---------------------------------------------------------------------------------------------------

SELECT is(pg_temp.writes('se_eve', 'se_w'), '1', 'eve writes a workflow');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '42501', 'which bob cannot submit');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob')$$), 'ok', 'until she grants it');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '1', 'then he does');
SELECT is(pg_temp.writes('se_eve', 'se_w', '{"steps": {}, "output": {"mine": true}}'), '2', 'eve writes another version');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '1', 'bob runs the one that was granted');
SELECT is(pg_temp.submits('se_bob', 'se_w', 2), '42501', 'and cannot name the other one');
SELECT is(pg_temp.submits('se_bob', 'se_w', 3), '42704', 'nor one that is not there');
SELECT is(pg_temp.submits('se_eve', 'se_w'), '2', 'the owner runs the newest');
SELECT is(pg_temp.submits('se_eve', 'se_w', 1), '1', 'and each that she names');
SELECT is(pg_temp.as_role('se_bob', $$SELECT se.version_of(run_id) FROM sas.submit_batch('se_w', '{"{}"}', version => 1)$$), '1', 'a batch names a version, too');
SELECT is(pg_temp.as_role('se_bob', $$SELECT se.version_of(run_id) FROM sas.submit_batch('se_w', '{"{}"}', version => 2)$$), '42501', 'with the same rights');
SELECT is(pg_temp.as_role('se_bob', $$SELECT se.version_of(run_id) FROM sas.submit_batch('se_w', '{"{}"}')$$), '1', 'and takes the one that was granted otherwise');
SELECT is((SELECT array_agg((version, future)::text) FROM sas.grants WHERE role = 'se_bob' AND kind = 'workflow'), '{"(1,f)"}', 'sas.grants shows the version');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob', 2, future => true)$$), 'ok', 'eve grants the second and later ones');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '2', 'bob runs the newest of those');
SELECT is(pg_temp.writes('se_eve', 'se_w', '{"steps": {}, "output": {"mine": 3}}'), '3', 'eve writes a third');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '3', 'which bob was granted beforehand');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob', 2)$$), 'ok', 'she grants the second alone');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '2', 'and the third no more');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.revoke_workflow('se_w', 'se_bob', 2)$$), 'ok', 'she takes the second back');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '1', 'the first is left');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.revoke_workflow('se_w', 'se_bob')$$), 'ok', 'she takes all back');
SELECT is(pg_temp.submits('se_bob', 'se_w'), '42501', 'nothing is left');
SELECT is(pg_temp.as_role('se_bob', $$SELECT sas.grant_workflow('se_w', 'se_bob')$$), '42501', 'bob grants himself nothing');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob', 9)$$), '42704', 'what is not written cannot be granted');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob', future => NULL)$$), '22004', 'future is said');

-- by way of others -------------------------------------------------------------------------------------------

SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_w', 'se_bob', 1)$$), 'ok', 'eve grants the first');
SELECT is(pg_temp.writes('se_bob', 'se_child', '{"steps": {"c": {"workflow": "se_w"}}}'), '1', 'bob has it as a child');
SELECT is(pg_temp.writes('se_bob', 'se_include', '{"steps": {"c": {"include": "se_w"}}}'), '1', 'and includes it');
SELECT is((SELECT w.request ->> 'version' FROM _sas.workflow_step w JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow f USING (workflow_id)
           WHERE f.name = 'se_include' AND w.name = 'c'), '1', 'the version that was granted is included');
CREATE FUNCTION se.act(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
SELECT is(pg_temp.writes('se_bob', 'se_undo', '{"steps": {"c": {"function": "se.act", "undo": {"include": "se_w"}, "fallback": {"include": "se_w"}}}}'), '1', 'and includes it as an undo, and as a fallback');
CREATE FUNCTION pg_temp.pinned() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(DISTINCT w.request ->> 'version', ' ') FROM _sas.workflow_step w JOIN _sas.workflow_version v USING (version_id) JOIN _sas.workflow f USING (workflow_id)
    WHERE f.name = 'se_undo' AND v.version = f.version AND w.request ? 'version' $$;
SELECT is(pg_temp.pinned(), '1', 'both in the version that was granted');
SELECT is(pg_temp.writes('se_bob', 'se_target'), '1', 'bob has another workflow');
SELECT is(pg_temp.as_role('se_bob', $$SELECT sas.subscribe('se_w', 'se_target')$$), 'ok', 'which eve''s subscribes to');
CREATE FUNCTION pg_temp.composed() RETURNS text LANGUAGE sql AS $$
    SELECT w.request ->> 'version' FROM _sas.composition m JOIN _sas.workflow_step w USING (version_id) JOIN _sas.workflow f ON f.workflow_id = m.workflow_id
    WHERE f.name = 'se_target' AND m.current AND w.name = 'se_w' $$;
SELECT is(pg_temp.composed(), '1', 'in the version that was granted');
SELECT is(pg_temp.writes('se_eve', 'se_w', '{"steps": {}, "output": {"mine": 4}}'), '4', 'eve writes a fourth');
SELECT is(pg_temp.composed(), '1', 'that does not come in by the subscription');
SELECT is(pg_temp.writes('se_bob', 'se_undo', '{"steps": {"c": {"function": "se.act", "undo": {"include": "se_w"}, "fallback": {"include": "se_w"}, "priority": 1}}}'), '2', 'bob writes his undo and fallback anew');
SELECT is(pg_temp.pinned(), '1', 'nor does it come in there');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_target', 'se_eve')$$), '42501', 'eve does not grant herself the target');
SELECT is(pg_temp.writes('se_bob', 'se_target', '{"steps": {}, "output": {"second": true}}'), '2', 'bob writes a second version of the target');
SELECT is(pg_temp.as_role('se_bob', $$SELECT se.steps_of(run_id) FROM sas.submit('se_target', version => 1)$$), 'se_w',
          'an older version that is named has its subscribers, too');
CREATE FUNCTION pg_temp.plans(who regrole) RETURNS text LANGUAGE sql AS $$
    SELECT p.function FROM _sas.workflow w, _sas.planned_by(who, w.workflow_id, NULL) v, _sas.wanted_plan(who, v, '{}', '{}') p
    WHERE w.name = 'se_w' AND v.planned $$;
SELECT is(pg_temp.plans('se_bob'), NULL, 'no plan function is called');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.create_workflow('se_w', '{"plan": "se.climb"}')$$), '42883', 'one that is not there is refused');
CREATE FUNCTION se.climb(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {}}'::jsonb $$;
SELECT is(pg_temp.writes('se_eve', 'se_w', '{"plan": "se.climb"}'), '5', 'eve writes a plan function');
SELECT is(pg_temp.plans('se_bob'), NULL, 'it is not called for bob''s children');
SELECT is(pg_temp.plans('se_eve'), 'se.climb', 'only for hers');

-- superusers -------------------------------------------------------------------------------------------------

SELECT is(pg_temp.submits('se_root', 'se_w'), '42501', 'a superuser does not submit a workflow of a user');
SELECT is(pg_temp.writes('se_adm', 'se_adms'), '1', 'an admin writes a workflow');
SELECT is(pg_temp.submits('se_root', 'se_adms'), '42501', 'a superuser does not submit it');
SELECT is(pg_temp.submits('se_bob', 'se_adms'), '1', 'a user does');
SELECT is(pg_temp.writes('se_root', 'se_roots'), '1', 'a superuser writes one');
SELECT is(pg_temp.submits('se_bob', 'se_roots'), '1', 'which a user submits');
SELECT is(pg_temp.submits(current_user::text, 'se_roots'), '1', 'and another superuser');
SELECT is(pg_temp.writes('se_root', 'se_root_child', format('{"steps": {"c": {"%s": "se_adms"}}}', k)), '42501', 'a superuser has none of an admin''s under ' || k)
FROM unnest('{workflow,include}'::text[]) k;
SELECT is(pg_temp.writes('se_root', 'se_root_child', format('{"steps": {"c": {"function": "se.act", "%s": {"%s": "se_adms"}}}}', part, k)), '42501', format('nor in an %s under %s', part, k))
FROM unnest('{undo,fallback}'::text[]) part, unnest('{workflow,include}'::text[]) k;
SELECT is(pg_temp.as_role('se_root', $$SELECT sas.subscribe('se_adms', 'se_roots')$$), '42501', 'nor as a subscriber');

-- nor does one come in by an admin, who may change workflows of users, or by a watcher
SELECT is(pg_temp.writes('se_eve', 'se_sub'), '1', 'eve writes a subscriber');
SELECT is(pg_temp.as_role('se_eve', $$SELECT sas.grant_workflow('se_sub', 'se_bob')$$), 'ok', 'and grants it to bob');
SELECT is(pg_temp.as_role('se_adm', $$SELECT sas.subscribe('se_sub', 'se_target')$$), '42501', 'an admin subscribes nothing that it may not submit itself to a workflow of bob');
SELECT is(pg_temp.as_role('se_eve', s), 'ok', 'eve grants it to the admin, and no more to bob') FROM unnest(ARRAY[$$SELECT sas.grant_workflow('se_sub', 'se_adm')$$, $$SELECT sas.revoke_workflow('se_sub', 'se_bob')$$]) s;
SELECT is(pg_temp.as_role('se_adm', $$SELECT sas.subscribe('se_sub', 'se_target')$$), '42501', 'nor anything that bob may not submit');
SELECT sas.create_agent('se_away', kind => 'external'), sas.grant_agent('se_away', 'se_bob') \g /dev/null
SELECT is(pg_temp.as_role('se_bob', format($$SELECT sas.create_watcher('se_feed', '{"agent": "se_away", "external": {}, "items": {"workflow": "%s"}}')$$, w)), code, format('bob has items submitted to %s: %s', w, code))
FROM (VALUES ('se_sub', '42501'), ('se_target', 'ok')) v (w, code);

-- whose the workflow is counts, and who wrote the version
SELECT is(pg_temp.writes('se_eve', 'se_hers'), '1', 'eve writes another');
SELECT is(pg_temp.writes('se_root', 'se_hers', '{"steps": {}, "output": {"roots": true}}'), '2', 'a superuser writes a version of it');
SELECT is(pg_temp.submits('se_root', 'se_hers'), '42501', 'and does not submit it, since it is still hers');
CREATE ROLE se_was LOGIN SUPERUSER;
SELECT is(pg_temp.writes('se_was', 'se_roots', '{"steps": {}, "output": {"was": true}}'), '2', 'another superuser writes a version of a superuser''s');
SELECT is(pg_temp.submits('se_root', 'se_roots'), '2', 'which superusers submit');
ALTER ROLE se_was NOSUPERUSER;
SELECT is(pg_temp.submits('se_root', 'se_roots'), '42501', 'until its author is none any more');

SELECT * FROM finish();
