-- SPDX-License-Identifier: PostgreSQL
--
-- Trust between roles: an admin is no superuser, and nothing that another role defines runs with a superuser's
-- rights.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE tr_adm; CREATE ROLE tr_ann; CREATE ROLE tr_root SUPERUSER;
SELECT sas.grant_usage('tr_adm', 'admin'), sas.grant_usage('tr_ann', 'user') \g /dev/null
CREATE SCHEMA tr; GRANT ALL ON SCHEMA tr TO PUBLIC;
CREATE FUNCTION pg_temp.as_role(who text, statement text, brief boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text := 'ok';
BEGIN
    EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', who);
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        said := CASE WHEN brief THEN SQLSTATE ELSE SQLERRM END;
    END;
    RESET SESSION AUTHORIZATION;
    RETURN said;
END $$;
-- what an admin would run as a superuser
CREATE FUNCTION tr.ours(input jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT coalesce(input -> 'input', input) $$;
SET SESSION AUTHORIZATION tr_adm;
CREATE FUNCTION tr.climb(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        ALTER ROLE tr_adm SUPERUSER;
    END IF;
    RETURN '{"steps": {}}';
END $$;
RESET SESSION AUTHORIZATION;

-- a superuser's things ---------------------------------------------------------------------------------------

SELECT sas.create_workflow('tr_super', '{"steps": {"a": {"function": "tr.ours"}}}'), sas.create_watcher('tr_super', '{"function": "tr.ours", "every": "1 h"}') \g /dev/null
SELECT sas.create_middleware('tr_super', 'plan', before => 'tr.ours(jsonb)') \g /dev/null
SELECT is(pg_temp.as_role('tr_adm', s), '42501', 'an admin cannot: ' || s)
FROM unnest(ARRAY[$$SELECT sas.create_workflow('tr_super', '{"steps": {}, "plan": "tr.climb"}')$$, $$SELECT sas.drop_workflow('tr_super')$$,
                  $$SELECT sas.grant_workflow('tr_super', 'tr_ann')$$, $$SELECT sas.subscribe('tr_super', 'tr_super')$$, $$SELECT sas.create_watcher('tr_super', '{"function": "tr.climb", "every": "1 h"}')$$, $$SELECT sas.drop_watcher('tr_super')$$,
                  $$SELECT sas.create_middleware('tr_super', 'plan', before => 'tr.climb(jsonb)')$$, $$SELECT sas.drop_middleware('tr_super')$$, $$SELECT sas.drop_middleware('tr_super', 'plan')$$]) s;
SELECT is(pg_temp.as_role('tr_root', s), 'ok', 'another superuser can: ' || s)
FROM unnest(ARRAY[$$SELECT sas.create_workflow('tr_super', '{"steps": {"a": {"function": "tr.ours"}}}')$$, $$SELECT sas.create_watcher('tr_super', '{"function": "tr.ours", "every": "1 h"}')$$, $$SELECT sas.drop_middleware('tr_super')$$]) s;
SELECT sas.create_workflow('tr_other', '{"steps": {}}') \g /dev/null
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.create_workflow('tr_adms', '{"steps": {}}')$$), 'ok', 'an admin has workflows of his own');
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.subscribe('tr_adms', 'tr_other')$$, false), 'must be owner of workflow "tr_other"', 'and subscribes them to none of a superuser''s');
SELECT is(pg_temp.as_role('tr_ann', $$SELECT sas.create_workflow('tr_anns', '{"steps": {}}')$$), 'ok', 'a user has workflows');
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.create_workflow('tr_anns', '{"steps": {}}')$$), 'ok', 'which an admin may change');

-- what runs as a superuser ------------------------------------------------------------------------------------

SELECT throws_ok(s, '42501', 'function tr.climb(jsonb) is not owned by a superuser', 'a superuser does not: ' || s)
FROM unnest(ARRAY[$$SELECT sas.create_workflow('tr_mine', '{"steps": {"a": {"function": "tr.climb"}}}')$$, $$SELECT sas.create_workflow('tr_mine', '{"steps": {}, "plan": "tr.climb"}')$$,
                  $$SELECT sas.create_workflow('tr_mine', '{"steps": {}, "finalize": "tr.climb"}')$$, $$SELECT sas.create_workflow('tr_mine', '{"steps": {}, "hooks": [{"function": "tr.climb"}]}')$$,
                  $$SELECT sas.create_watcher('tr_mine', '{"function": "tr.climb", "every": "1 h"}')$$, $$SELECT sas.create_middleware('tr_mine', 'plan', before => 'tr.climb(jsonb)')$$]) s;
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.create_workflow('tr_adms', '{"plan": "tr.climb"}')$$), 'ok', 'an admin writes a plan function');
SELECT throws_ok($$SELECT sas.submit('tr_adms')$$, '42501', NULL, 'a superuser that submits it is refused');
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.submit('tr_adms')$$), 'ok', 'the admin is not');
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.create_middleware('tr_all', 'plan', before => 'tr.climb(jsonb)')$$), 'ok', 'an admin makes middleware');
SELECT lives_ok($$SELECT sas.submit('tr_super')$$, 'which does not run as a superuser, nor stops what superusers submit');
SELECT is(pg_temp.as_role('tr_adm', $$SELECT sas.drop_middleware('tr_all')$$), 'ok', 'he drops it');
ALTER FUNCTION tr.ours OWNER TO tr_adm;
SELECT throws_ok($$SELECT sas.submit('tr_super')$$, '42501', NULL, 'a function that another role owns since is refused');
SELECT ok(NOT (SELECT rolsuper FROM pg_roles WHERE rolname = 'tr_adm'), 'the admin is no superuser');
ALTER FUNCTION tr.ours OWNER TO CURRENT_USER;

SELECT * FROM finish();
