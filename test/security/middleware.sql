-- SPDX-License-Identifier: PostgreSQL
--
-- Middleware: what an admin puts around the submits of others runs with his own rights, in their session, and
-- leaves nothing there that runs with theirs. t/490_middleware_rights has the phases of workers.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE mw_adm LOGIN; CREATE ROLE mw_ann LOGIN; CREATE ROLE mw_root LOGIN SUPERUSER;
SELECT sas.grant_usage('mw_adm', 'admin'), sas.grant_usage('mw_ann', 'user') \g /dev/null
CREATE SCHEMA mw; GRANT ALL ON SCHEMA mw TO PUBLIC;
-- the error, or ok, of a submit as that role
CREATE FUNCTION pg_temp.submits(who text, workflow text DEFAULT 'mw_w') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(x.message, x.code) FROM login.as_role(who, format('SELECT s.created FROM sas.submit(%L) s', workflow)) x $$;
-- an admin has this as the before and after of his only middleware
CREATE FUNCTION pg_temp.around(body text, which text DEFAULT 'before') RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(x.message, ' ')
    FROM unnest(ARRAY[format('CREATE OR REPLACE FUNCTION mw.act(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS %L', 'BEGIN ' || body || ' RETURN NULL; END'),
                      format('SELECT sas.create_middleware(''mw_m'', ''plan'', %s => ''mw.act(jsonb)'')', which)]) WITH ORDINALITY AS s (statement, n),
         LATERAL login.as_role('mw_adm', statement) x $$;

CREATE TABLE mw.seen (who text, at text); GRANT ALL ON mw.seen TO PUBLIC;
CREATE FUNCTION mw.step(input jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT input $$;
SELECT is(string_agg(x.code, ' '), 'ok ok ok ok', 'a user has a table, a workflow and a setting')
FROM unnest(ARRAY['CREATE TABLE mw.anns (secret text)', $$INSERT INTO mw.anns VALUES ('of ann')$$, $$SELECT sas.create_workflow('mw_w', '{"steps": {"a": {"function": "mw.step"}}}')$$,
                  $$SELECT set_config('mw.of_ann', 'hers', false)$$]) s, LATERAL login.as_role('mw_ann', s) x;

-- with whose rights
SELECT pg_temp.around($$INSERT INTO mw.seen VALUES (current_user, 'before');$$) \g /dev/null
SELECT is(pg_temp.submits('mw_ann'), 'ok', 'a user submits, with middleware of an admin around it');
SELECT is((SELECT string_agg(who, ' ') FROM mw.seen), 'mw_adm', 'which runs as the admin');
SELECT pg_temp.around($$PERFORM secret FROM mw.anns;$$) \g /dev/null
SELECT is(pg_temp.submits('mw_ann'), 'permission denied for table anns', 'it reads no table of who submits');
SELECT pg_temp.around($$PERFORM secret FROM mw.anns;$$, 'after') \g /dev/null
SELECT is(pg_temp.submits('mw_ann'), 'permission denied for table anns', 'nor does an after');
SELECT pg_temp.around($$EXECUTE 'SET ROLE mw_ann';$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot set parameter "role" within security-%', 'it does not become who submits');
SELECT pg_temp.around($$EXECUTE 'RESET ROLE';$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot set parameter "role" within security-%', 'nor who the session belongs to');

-- what it leaves in the session
SELECT pg_temp.around($$CREATE TEMP TABLE trap (n int);$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot create temporary table within security-restricted operation', 'it leaves no temporary table');
SELECT pg_temp.around($$EXECUTE 'PREPARE trap AS SELECT 1';$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot execute PREPARE within security-restricted operation', 'nor a prepared statement');
SELECT pg_temp.around($$EXECUTE 'DECLARE trap CURSOR WITH HOLD FOR SELECT 1';$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), '%within security-restricted operation', 'nor a held cursor');
SELECT pg_temp.around($$EXECUTE 'LISTEN trap';$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot execute LISTEN within security-restricted operation', 'nor does it listen');
SELECT is(x.code, 'ok', 'an admin has a table with a deferred trigger')
FROM login.as_role('mw_adm', $do$
CREATE TABLE mw.trap (n int);
CREATE FUNCTION mw.spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mw.seen VALUES (current_user, 'deferred'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER spring AFTER INSERT ON mw.trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mw.spring();$do$) x;
SELECT pg_temp.around($$INSERT INTO mw.trap VALUES (1);$$) \g /dev/null
SELECT alike(pg_temp.submits('mw_ann'), 'cannot fire deferred trigger within security-restricted operation', 'nor a deferred trigger, which would run as who submits');
SELECT pg_temp.around($$PERFORM set_config('search_path', 'mw', false), set_config('mw.of_ann', 'not hers', false);$$) \g /dev/null
SELECT said AS path FROM login.as_role('mw_ann', 'SHOW search_path') \gset
SELECT is(pg_temp.submits('mw_ann'), 'ok', 'settings it may change');
SELECT is((login.as_role('mw_ann', $$SELECT current_setting('mw.of_ann') || ' ' || current_setting('search_path')$$)).said, 'hers ' || :'path', 'and they are what they were');

-- superusers
SELECT pg_temp.around($$INSERT INTO mw.seen VALUES (current_user, 'before');$$) \g /dev/null
SELECT sas.create_workflow('mw_super', '{"steps": {"a": {"function": "mw.step"}}}') \g /dev/null
DELETE FROM mw.seen;
SELECT is(pg_temp.submits('mw_root', 'mw_super'), 'ok', 'middleware of an admin stops no superuser''s submit');
SELECT is((SELECT count(*) FROM mw.seen), 0::bigint, 'which takes nothing of it');
SELECT sas.create_middleware('mw_supers', 'plan', before => 'mw.step(jsonb)') \g /dev/null
SELECT is((login.as_role('mw_adm', $$SELECT sas.create_middleware('mw_replaces', 'plan', before => 'mw.act(jsonb)', replaces => 'mw_supers')$$)).message,
          'must be superuser to change middleware "mw_supers" of a superuser', 'an admin puts nothing in the place of a superuser''s middleware');
SELECT sas.create_middleware('mw_replaces', 'plan', before => 'mw.step(jsonb)', replaces => 'mw_supers') \g /dev/null
UPDATE _sas.middleware SET created_by = 'mw_adm' WHERE name = 'mw_replaces';
SELECT is((SELECT array_agg(e ->> 'name') FROM jsonb_array_elements(_sas.middleware_chain('plan', 0, 'mw_root'::regrole)) e), '{mw_supers}', 'what a role that is superuser no longer has put there is not there for superusers');
SELECT sas.drop_middleware('mw_replaces'), sas.drop_middleware('mw_supers') \g /dev/null
SELECT sas.set_alert_hook('mw.step(jsonb)') \g /dev/null
SELECT is((login.as_role('mw_adm', format('SELECT sas.set_alert_hook(%s)', f))).message, 'must be superuser to change the alert hook of a superuser', 'an admin neither removes nor replaces the alert hook of a superuser: ' || f)
FROM unnest(ARRAY['NULL', '''mw.act(jsonb)''']) f;
SELECT sas.set_alert_hook(NULL) \g /dev/null
SELECT is((login.as_role('mw_adm', format('SELECT sas.set_alert_hook(%s)', f))).code, 'ok', 'its own it does: ' || f) FROM unnest(ARRAY['''mw.act(jsonb)''', 'NULL']) f;
SELECT sas.grant_usage('mw_ann', 'admin') \g /dev/null
SELECT is(pg_temp.submits('mw_ann', 'mw_super'), 'ok', 'an admin''s run does');
ALTER FUNCTION mw.act OWNER TO mw_adm;
SELECT throws_ok($$SELECT sas.create_middleware('mw_m', 'plan', before => 'mw.act(jsonb)')$$, '42501', 'function mw.act(jsonb) is not owned by a superuser', 'a superuser makes no middleware of a function that an admin may change');
CREATE FUNCTION mw.super_act(c jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ INSERT INTO mw.seen VALUES (current_user, 'super'); SELECT NULL::jsonb $$;
SELECT sas.create_middleware('mw_m', 'plan', before => 'mw.super_act(jsonb)') \g /dev/null
SELECT is(pg_temp.submits('mw_ann'), 'ok', 'middleware of a superuser is around the runs of others');
SELECT is((SELECT string_agg(DISTINCT who, ' ') FROM mw.seen WHERE at = 'super'), current_user::text, 'as the superuser, like a definer function');
ALTER FUNCTION mw.super_act OWNER TO mw_adm;
SELECT is(pg_temp.submits('mw_ann'), 'function mw.super_act(jsonb) is not owned by a superuser', 'but not when another role owns its function since');
SELECT throws_ok($$SELECT sas.create_workflow('mw_internal', '{"steps": {"a": {"function": "_sas.through_middleware"}}}')$$, '42883', NULL, 'no step names what calls middleware, with roles of its input');
SELECT throws_ok($$SELECT sas.create_workflow('mw_internal', '{"steps": {"a": {"function": "_sas.public_error"}}}')$$, '42883', NULL, 'nor any other internal function, although it is there');

-- what is deferred in the transaction of who submits is that role's: it does not run with the rights of who created
-- middleware, whose functions may well want to have all constraints checked
BEGIN;
DELETE FROM _sas.middleware;
CREATE TABLE mw.ran (who text); GRANT ALL ON mw.ran TO PUBLIC;
SET LOCAL SESSION AUTHORIZATION mw_adm;
CREATE FUNCTION mw.checks(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN SET CONSTRAINTS ALL IMMEDIATE; RETURN NULL; END $$;
SELECT sas.create_middleware('mw_checks', 'plan', before => 'mw.checks(jsonb)') \g /dev/null
SET LOCAL SESSION AUTHORIZATION mw_ann;
CREATE TABLE mw.late (n int);
CREATE FUNCTION mw.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mw.ran VALUES (current_user); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mw.late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mw.late();
SELECT sas.create_workflow('mw_late', '{"steps": {}}') \g /dev/null
INSERT INTO mw.late VALUES (1);
DO $$ BEGIN PERFORM sas.submit('mw_late'); EXCEPTION WHEN insufficient_privilege THEN NULL; END $$;
SET CONSTRAINTS ALL IMMEDIATE;
RESET SESSION AUTHORIZATION;
SELECT string_agg(who, ' ') AS who FROM mw.ran \gset
ROLLBACK;
SELECT is(:'who'::text, 'mw_ann', 'a deferred trigger of who submits does not run as who created a middleware');

SELECT * FROM finish();
