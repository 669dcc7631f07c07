-- SPDX-License-Identifier: PostgreSQL
--
-- The SQL surface is there, explains itself, and is closed to those who were given nothing.

SELECT no_plan();

SELECT has_view('sas', v, format('view sas.%s is there', v))
FROM unnest('{runs,steps,attempts,agents,workflows,workers,alerts,transitions,history,settings,run_details}'::text[]) v;

SELECT columns.claim FROM (
    SELECT ok(NOT EXISTS (SELECT FROM unnest(string_to_array(w.columns, ' ')) c
                          WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = ('sas.' || w.view)::regclass AND a.attname = c AND NOT a.attisdropped)),
              format('sas.%s has its columns', w.view)) AS claim
    FROM (VALUES
        ('runs', 'run_id workflow version key state result priority queue input output error progress paused_for paused_by paused_at submitted_by parent_run_id labels created_at start_at started_at finished_at deadline'),
        ('steps', 'run_id step element kind agent state attempt failure_count locked_by complete_by waiting_kind waiting_on waiting_until input output error started_at finished_at'),
        ('attempts', 'run_id step element attempt undo agent worker status http_status error started_at finished_at'),
        ('agents', 'name kind base_url enabled in_flight max_in_flight rate_limit breaker open_until waiting last_error'),
        ('workers', 'pid actor database leader in_flight started_at last_activity_at'),
        ('alerts', 'alert_id kind agent run_id step message occurrences created_at last_at acknowledged_at'),
        ('run_details', 'runid workflow status return_message start_time end_time')) AS w (view, columns)) columns;

-- named arguments work as documented
SELECT lives_ok($$SELECT sas.create_agent(name => 'a', base_url => 'http://127.0.0.1:1', kind => 'http', headers => '{}', max_in_flight => 5, rate_limit => '500/min',
    request_timeout => '30 s', retry => '{"max_attempts": 3}', breaker => '{"off": true}', options => '{"max_response": "8 MB"}')$$, 'create_agent takes its arguments by name');
SELECT lives_ok($$SELECT sas.alter_agent('a', enabled => false, reset => '{rate_limit}')$$, 'alter_agent changes and resets');
SELECT is((SELECT rate_limit FROM sas.agents WHERE name = 'a'), NULL, 'what was reset has its default');
SELECT is((SELECT max_in_flight FROM sas.agents WHERE name = 'a'), 5, 'what was not named stays');
SELECT lives_ok($$SELECT sas.create_agent('a', 'http://127.0.0.1:2')$$, 'create_agent replaces by name');
SELECT is((SELECT max_in_flight FROM sas.agents WHERE name = 'a'), 100, 'what is written is exactly what holds');
SELECT is(sas.create_workflow('w', '{"steps": {}}'), 1, 'create_workflow returns the first version');
SELECT is(sas.create_workflow('w', '{"steps": {}, "deadline": "1 day"}'), 2, 'create_workflow on an existing name makes a new version');
SELECT is((SELECT count(*) FROM sas.validate_workflow('{"steps": {}}')), 0::bigint, 'validate_workflow finds nothing wrong with what is right');
SELECT is((SELECT (h).version FROM sas.health() h), '0.1', 'health answers with one row');
SELECT lives_ok('SELECT sas.drop_workflow(''w'')', 'drop_workflow drops');
SELECT lives_ok('SELECT sas.drop_agent(''a'')', 'drop_agent drops');
SELECT lives_ok('SELECT sas.create_agent(''a'', ''http://127.0.0.1:1'')', 'the name of a dropped agent can be used again');

-- it explains itself
SELECT is(array(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND p.proname !~ '^_' AND obj_description(p.oid, 'pg_proc') IS NULL),
          '{}', 'every public function has a comment');
SELECT is(array(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind IN ('v', 'r') AND obj_description(c.oid, 'pg_class') IS NULL),
          '{}', 'every view and table has a comment');
SELECT isnt(obj_description((SELECT oid FROM pg_extension WHERE extname = 'sas'), 'pg_extension'), NULL, 'the extension has a comment');

-- nothing is granted to PUBLIC, every definer function fixes its path
SELECT is(array(SELECT p.oid::regprocedure::text FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
                WHERE p.pronamespace = 'sas'::regnamespace AND x.grantee = 0), '{}', 'no function is granted to PUBLIC');
SELECT is(array(SELECT c.relname::text FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) x WHERE c.relnamespace = 'sas'::regnamespace AND x.grantee = 0),
          '{}', 'no table or view is granted to PUBLIC');
SELECT is(array(SELECT n.nspname::text FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) x WHERE n.nspname = 'sas' AND x.grantee = 0), '{}', 'the schema is not granted to PUBLIC');
SELECT is(array(SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'sas'::regnamespace AND p.prosecdef
                  AND NOT coalesce(array_to_string(p.proconfig, ','), '') ~ 'search_path=pg_catalog'), '{}', 'every security definer function sets search_path');
SELECT is(array(SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'sas'::regnamespace AND c.relkind = 'v' AND c.relname NOT IN ('transitions', 'settings')
                  AND NOT coalesce(array_to_string(c.reloptions, ','), '') ~ 'security_barrier'), '{}', 'every view over runs is a security barrier');

SELECT * FROM finish();
