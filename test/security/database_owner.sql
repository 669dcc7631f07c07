-- SPDX-License-Identifier: PostgreSQL
--
-- The owner of the database, who is no superuser: it may create schemas and trusted extensions, set settings of the
-- database, and drop it. It changes nothing of sas, reads nothing, and puts nothing where sas looks for its own.
\ir ../lib/login.sql
SELECT no_plan();

CREATE ROLE dbo_owner LOGIN; CREATE ROLE dbo_ann LOGIN;
SELECT format('ALTER DATABASE %I OWNER TO dbo_owner', current_database()) AS give \gset
:give;
SELECT sas.grant_usage('dbo_ann', 'user') \g /dev/null
-- what it is: ok, or the SQLSTATE
CREATE FUNCTION pg_temp.says(statement text) RETURNS text LANGUAGE sql AS $$ SELECT x.code FROM login.as_role('dbo_owner', statement, keep => false) x $$;
SELECT is(pg_temp.says('CREATE SCHEMA dbo_schema'), 'ok', 'the owner of the database creates a schema');

-- any trusted extension would do
SELECT coalesce((SELECT v.name FROM pg_available_extension_versions v
                 WHERE v.trusted AND v.relocatable AND v.schema IS NULL AND cardinality(coalesce(v.requires, '{}')) = 0
                   AND v.name NOT IN (SELECT e.extname FROM pg_extension e) ORDER BY v.name LIMIT 1), 'none') AS trusted \gset
SELECT CASE WHEN :'trusted' = 'none' THEN skip('no trusted extension is there', 1)
    ELSE is(pg_temp.says(format('CREATE EXTENSION %I SCHEMA public', :'trusted')), 'ok', 'and a trusted extension') END;
SELECT CASE WHEN :'trusted' = 'none' THEN skip('no trusted extension is there', 1)
    ELSE is(pg_temp.says(format('CREATE EXTENSION %I SCHEMA %I', :'trusted', s)), '42939', 'but none in schema ' || s) END
FROM unnest('{sas,_sas}'::text[]) s;
SELECT CASE WHEN :'trusted' = 'none' THEN skip('no trusted extension is there', 1)
    ELSE is(pg_temp.says(format('CREATE EXTENSION %I SCHEMA public; ALTER EXTENSION %1$I SET SCHEMA _sas', :'trusted')), '42501', 'it moves none there') END;

-- a right that roles have which replicate or load data: triggers are called nevertheless
GRANT SET ON PARAMETER session_replication_role TO dbo_owner;
SELECT CASE WHEN :'trusted' = 'none' THEN skip('no trusted extension is there', 1)
    ELSE is(pg_temp.says(format('SET session_replication_role = replica; CREATE EXTENSION %I SCHEMA sas', :'trusted')), '42939', 'nor while it sets session_replication_role') END;
SELECT is(string_agg(x.name, ' '), NULL, 'no trigger of sas can be left out like that')
FROM (SELECT t.tgrelid::regclass || '.' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
      WHERE c.relnamespace = '_sas'::regnamespace AND NOT t.tgisinternal AND t.tgenabled <> 'A'
      UNION ALL SELECT e.evtname FROM pg_event_trigger e WHERE e.evtname LIKE 'sas\_%' AND e.evtenabled <> 'A') x (name);
REVOKE SET ON PARAMETER session_replication_role FROM dbo_owner;
-- PostgreSQL 17 has another one; what sas does in event triggers is done nevertheless
SELECT current_setting('server_version_num')::int >= 170000 AS can_turn_off \gset
\if :can_turn_off
GRANT SET ON PARAMETER event_triggers TO dbo_owner, dbo_ann;
SELECT CASE WHEN :'trusted' = 'none' THEN skip('no trusted extension is there', 1)
    ELSE is(pg_temp.says(format('SET event_triggers = off; CREATE EXTENSION %I SCHEMA sas', :'trusted')), '42939', 'nor while it turns event triggers off') END;
SELECT is(pg_temp.says('SET event_triggers = off; CREATE SCHEMA dbo_other; DO $$BEGIN ASSERT current_setting(''event_triggers'') = ''off''; END$$'), 'ok', 'others stay off');
SELECT is(code, 'ok', 'who owns levels drops them') FROM login.as_role('dbo_ann', 'SET event_triggers = off; DROP OWNED BY dbo_ann');
SELECT is((SELECT count(*) FROM sas.grants g WHERE g.role = 'dbo_ann'), 0::bigint, 'and they are gone, though event triggers are off');
SELECT sas.grant_usage('dbo_ann', 'user') \g /dev/null
REVOKE SET ON PARAMETER event_triggers FROM dbo_owner, dbo_ann;
\else
SELECT skip('event triggers cannot be turned off', 4);
\endif

SELECT is(pg_temp.says(statement), '42501', 'it does not: ' || statement)
FROM unnest(ARRAY[
    'DROP EXTENSION sas CASCADE', 'ALTER EXTENSION sas UPDATE', 'ALTER EXTENSION sas SET SCHEMA public', 'ALTER EXTENSION sas DROP FUNCTION sas.now()',
    'COMMENT ON EXTENSION sas IS ''x''', 'COMMENT ON SCHEMA sas IS ''x''', 'COMMENT ON EVENT TRIGGER sas_keep_out IS ''x''',
    'ALTER EVENT TRIGGER sas_keep_out DISABLE', 'DROP SCHEMA sas CASCADE', 'ALTER SCHEMA _sas RENAME TO old', 'GRANT USAGE ON SCHEMA _sas TO dbo_owner WITH GRANT OPTION',
    'CREATE FUNCTION sas.mine() RETURNS int LANGUAGE sql RETURN 1', 'CREATE TABLE _sas.mine ()', 'REINDEX TABLE _sas.run', 'LOCK TABLE _sas.run', 'LOCK TABLE sas.runs',
    'SELECT FROM sas.runs', 'SELECT sas.now()', 'CREATE PUBLICATION p FOR ALL TABLES', 'CREATE PUBLICATION p FOR TABLES IN SCHEMA _sas',
    'CREATE EVENT TRIGGER x ON ddl_command_end EXECUTE FUNCTION _sas.keep_out()',
    'REASSIGN OWNED BY dbo_ann TO dbo_owner', 'DROP OWNED BY dbo_ann', 'SELECT sas.grant_usage(''dbo_owner'', ''admin'')',
    'ALTER DEFAULT PRIVILEGES FOR ROLE dbo_ann GRANT ALL ON TABLES TO dbo_owner']) statement;
SELECT is(pg_temp.says(format('ALTER DATABASE %I SET %s', current_database(), s.name || ' = ' || quote_literal(s.setting))), '42501', 'nor does it set ' || s.name)
FROM pg_settings s WHERE s.name LIKE 'sas.%' AND s.context = 'superuser';

SELECT * FROM finish();
