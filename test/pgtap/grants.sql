-- SPDX-License-Identifier: PostgreSQL
--
-- Grants can be taken away, and seen: levels and workflows, tried as the roles themselves; DROP ROLE and DROP
-- OWNED.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE gr_ann; CREATE ROLE gr_bob; CREATE ROLE gr_team; CREATE ROLE gr_adm; CREATE ROLE gr_wrk; CREATE ROLE gr_mon;
GRANT gr_team TO gr_bob;
SELECT sas.create_agent('gr_packer', kind => 'external') \g /dev/null
SELECT sas.grant_usage('gr_adm', 'admin'), sas.grant_usage('gr_mon', 'monitor') \g /dev/null

CREATE FUNCTION pg_temp.as_role(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        RESET SESSION AUTHORIZATION;
        RETURN SQLSTATE;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN 'ok';
END $$;
-- what a role itself was given in the schemas of sas, as a text to compare
CREATE FUNCTION pg_temp.rights(who regrole) RETURNS text[] LANGUAGE sql AS $$
    SELECT ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p, aclexplode(p.proacl) x
                 WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND x.grantee = who
                 UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(c.relacl) x
                 WHERE c.relnamespace IN ('sas'::regnamespace, '_sas'::regnamespace) AND x.grantee = who
                 UNION ALL SELECT n.nspname FROM pg_namespace n, aclexplode(n.nspacl) x
                 WHERE n.nspname IN ('sas', '_sas') AND x.grantee = who ORDER BY 1)
$$;

-- one level of several: what is left is what the other gives alone --------------------------------------

SELECT sas.grant_usage('gr_bob', 'user') \g /dev/null
CREATE TEMP TABLE alone AS SELECT l AS level, '{}'::text[] AS rights FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l;
CREATE FUNCTION pg_temp.learn(l text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE ROLE gr_one; PERFORM sas.grant_usage('gr_one', l);
    UPDATE alone SET rights = pg_temp.rights('gr_one') WHERE level = l;
    DROP OWNED BY gr_one; DROP ROLE gr_one;
END $$;
SELECT pg_temp.learn(level) FROM alone \g /dev/null
CREATE FUNCTION pg_temp.left_of(l text, taken text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    said text[];
BEGIN
    CREATE ROLE gr_two; PERFORM sas.grant_usage('gr_two', l), sas.grant_usage('gr_two', taken);
    PERFORM sas.revoke_usage('gr_two', taken);
    said := pg_temp.rights('gr_two');
    DROP OWNED BY gr_two; DROP ROLE gr_two;
    RETURN said;
END $$;
SELECT ok(cardinality(rights) > 5, format('level %s gives rights', level)) FROM alone;
SELECT is(pg_temp.left_of(a.level, b.level), a.rights, format('%s is left whole when %s is taken', a.level, b.level))
FROM alone a, alone b WHERE a.level <> b.level AND (a.level, b.level) IN (('user', 'admin'), ('admin', 'user'), ('monitor', 'operator'), ('operator', 'monitor'), ('worker', 'admin'), ('user', 'worker'), ('monitor', 'user'));

-- all of them: nothing is left ---------------------------------------------------------------------------

SELECT sas.grant_usage('gr_ann', l) FROM unnest('{monitor,user,operator,admin,worker}'::text[]) l \g /dev/null
SELECT sas.grant_usage('gr_ann', 'worker', agent => 'gr_packer') \g /dev/null
SELECT is(pg_temp.as_role('gr_ann', 'SELECT FROM sas.runs'), 'ok', 'with levels one looks');
SELECT is(pg_temp.as_role('gr_adm', $$SELECT sas.revoke_usage('gr_ann')$$), 'ok', 'an admin takes all levels');
SELECT is(pg_temp.rights('gr_ann'), '{}', 'no right is left');
SELECT is(pg_temp.as_role('gr_ann', x), '42501', 'and none can be used: ' || x)
FROM unnest(ARRAY['SELECT FROM sas.runs', 'SELECT sas.health()', $$SELECT sas.create_workflow('gr_w', '{"steps": {}}')$$, $$SELECT sas.claim('gr_packer', 'x')$$, $$SELECT sas.grant_usage('gr_ann', 'admin')$$]) x;
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'gr_ann'), 0::bigint, 'sas.grants shows none');
SELECT lives_ok('DROP ROLE gr_ann', 'the role can be dropped');
SELECT lives_ok($$SELECT sas.revoke_usage('gr_team'), sas.revoke_usage('gr_team', 'user')$$, 'who has no level loses none');
SELECT is(pg_temp.as_role('gr_bob', format('SELECT sas.revoke_usage(%L)', w)), '42501', 'level user takes nothing from ' || w) FROM unnest('{gr_adm,gr_bob}'::text[]) w;

-- a worker of one agent ------------------------------------------------------------------------------------

SELECT sas.grant_usage('gr_wrk', 'worker', agent => 'gr_packer') \g /dev/null
SELECT is((SELECT (kind, name, granted_by)::text FROM sas.grants WHERE role = 'gr_wrk'), format('(worker,gr_packer,%s)', current_user), 'level worker for one agent is shown');
SELECT is(pg_temp.as_role('gr_wrk', $$SELECT sas.claim('gr_packer', 'x')$$), 'ok', 'it claims');
SELECT sas.revoke_usage('gr_wrk', 'worker') \g /dev/null
SELECT is(pg_temp.rights('gr_wrk'), '{}', 'level worker for one agent is taken away like the level');
SELECT sas.grant_usage('gr_wrk', 'monitor') \g /dev/null
SELECT is(_sas.may_work('gr_wrk'::regrole, (SELECT agent_id FROM _sas.agent WHERE name = 'gr_packer' AND dropped_at IS NULL)), false, 'and does not come back with another level');

-- what is shown, and to whom ----------------------------------------------------------------------------

SET SESSION AUTHORIZATION gr_adm;
SELECT sas.create_workflow('gr_mine', '{"steps": {}}') \g /dev/null
SELECT sas.grant_workflow('gr_mine', 'gr_team') \g /dev/null
RESET SESSION AUTHORIZATION;
CREATE FUNCTION pg_temp.shown(who text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    SELECT string_agg(concat_ws(' ', role, kind, name, granted_by), ', ' ORDER BY role, kind, name) INTO said FROM sas.grants WHERE role LIKE 'gr\_%';
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;
SELECT is(pg_temp.shown('gr_bob'), format('gr_bob level user %s, gr_team workflow gr_mine gr_adm', current_user), 'a user sees what he and his groups have');
SELECT is(pg_temp.shown('gr_mon'), format('gr_adm level admin %1$s, gr_bob level user %1$s, gr_mon level monitor %1$s, gr_team workflow gr_mine gr_adm, gr_wrk level monitor %1$s', current_user), 'a monitor all');
SELECT is((SELECT string_agg(act || ' ' || detail::text, ', ' ORDER BY at, act) FROM sas.history WHERE act ~ 'grant|revoke' AND detail ->> 'role' = 'gr_team'),
          'grant_workflow {"role": "gr_team", "future": false, "version": 1, "workflow": "gr_mine"}', 'sas.history has who was granted what');
SELECT is((SELECT detail -> 'levels' FROM sas.history WHERE act = 'revoke_usage' AND role = 'gr_adm'), '["admin", "monitor", "operator", "user", "worker"]', 'and what an admin took');
GRANT EXECUTE ON FUNCTION _sas.level_worker() TO gr_mon;
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'gr_mon' AND name = 'worker' AND granted_by IS NULL), 1::bigint, 'a level that was given by hand is shown, by nobody');

-- DROP ROLE, DROP OWNED ----------------------------------------------------------------------------------

SELECT throws_ok('DROP ROLE gr_team', '2BP01', NULL, 'a role with a workflow granted cannot be dropped');
SELECT sas.revoke_usage('gr_team') \g /dev/null
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'gr_team'), 1::bigint, 'a workflow is no level: it stays when levels are taken');
DROP OWNED BY gr_team;
SELECT is((SELECT count(*) FROM _sas.workflow_grant g WHERE g.role = 'gr_team'::regrole), 0::bigint, 'DROP OWNED takes it away');
SELECT is((SELECT count(*) FROM sas.grants WHERE role IN ('gr_bob', 'gr_mon')), 3::bigint, 'and from others nothing');
SELECT lives_ok('DROP ROLE gr_team', 'then the role can be dropped');
DROP OWNED BY gr_bob;
SELECT is(pg_temp.rights('gr_bob'), '{}', 'DROP OWNED takes levels');
SELECT is((SELECT count(*) FROM _sas.level_grant g WHERE g.role = 'gr_bob'::regrole), 0::bigint, 'with what is known of them');

-- a role that drops what is its own: what sas granted, sas takes away
CREATE ROLE gr_self; CREATE ROLE gr_group; GRANT gr_group TO gr_self; CREATE ROLE gr_other;
SELECT sas.grant_usage(r::regrole, 'user'), sas.grant_workflow('gr_mine', r::regrole) FROM unnest('{gr_self,gr_group,gr_other}'::text[]) r \g /dev/null
SELECT is(pg_temp.as_role('gr_self', 'DROP OWNED BY gr_other'), '42501', 'nobody drops for another role');
SELECT is((SELECT count(*) FROM sas.grants WHERE role = 'gr_other'), 2::bigint, 'which keeps its grants');
SELECT is(pg_temp.as_role('gr_self', 'DROP OWNED BY CURRENT_USER, gr_group'), 'ok', 'a role with a level drops what is its own, and its group''s');
SELECT is(pg_temp.rights(r::regrole), '{}', format('%s has no right left', r)) FROM unnest('{gr_self,gr_group}'::text[]) r;
SELECT is((SELECT count(*) FROM sas.grants WHERE role IN ('gr_self', 'gr_group')), 0::bigint, 'nor a grant');
SELECT lives_ok('DROP ROLE gr_self; DROP ROLE gr_group', 'and can be dropped');

SELECT * FROM finish();
