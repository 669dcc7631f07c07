-- SPDX-License-Identifier: PostgreSQL
--
-- Limits of roles: what is refused at submit, what waits, what ends.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE ROLE alice;
SELECT sas.grant_usage('alice', 'user'), t.allow('alice') \g /dev/null
SELECT t.workflow('call', '{"a": {"agent": "inventory", "call": {}}}'), sas.grant_workflow('call', 'alice') \g /dev/null
SELECT t.workflow('timed', '{"a": {"agent": "inventory", "call": {}}}', '{"deadline": "1 min"}'), sas.grant_workflow('timed', 'alice') \g /dev/null
SELECT _sas.recount_quotas();
CREATE VIEW t.limits AS SELECT role, name, value, used FROM sas.limits WHERE role IS NULL OR role = 'alice' ORDER BY role, name;
GRANT SELECT ON t.limits TO alice;
-- the server of these tests may have any number of workers
SELECT role, name, CASE name WHEN 'function_workers' THEN NULL ELSE value END AS value, used FROM t.limits;
\echo an admin sets them, for one role and for all, and takes them away
SELECT sas.set_limit('alice', 'open_runs', 3), sas.set_limit(NULL, 'children', 50);
SELECT sas.set_limit('alice', 'runs', 3);
SELECT sas.set_limit('alice', 'open_runs', -1);
SELECT sas.set_limit(NULL, 'children', NULL);
SELECT act, detail - 'version' AS detail FROM sas.history WHERE act NOT IN ('grant_agent', 'create_workflow') ORDER BY at, detail - 'version';
\echo open runs: single submits, batches, other ways
SET ROLE alice;
SELECT sas.set_limit('alice', 'open_runs', 4);
SELECT run_id FROM sas.submit('call');
SELECT run_id FROM sas.submit_batch('call', '{"{}", "{}", "{}"}'::jsonb[]);
SELECT run_id FROM sas.submit('call', key => 'k');
SELECT run_id FROM sas.submit('timed', start_at => '2026-01-01 01:00+00');
SELECT * FROM t.limits WHERE role = 'alice' AND used > 0;
SELECT run_id FROM sas.submit('call');
SELECT run_id FROM sas.submit('timed');
SELECT run_id FROM sas.submit_batch('call', '{"{}"}'::jsonb[]);
\echo :LAST_ERROR_SQLSTATE
\echo a key that is taken needs no room
SELECT created FROM sas.submit('call', key => 'k');
\echo an abort gives back, also of a part; another role is not concerned
SELECT count(*) FROM sas.cancel((SELECT min(run_id) FROM sas.runs));
RESET ROLE;
SELECT t.settle() \g /dev/null
SET ROLE alice;
BEGIN;
SAVEPOINT s;
SELECT count(*) FROM sas.submit('call');
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'open_runs';
ROLLBACK TO s;
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'open_runs';
SELECT count(*) FROM sas.submit('call');
ROLLBACK;
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'open_runs';
RESET ROLE;
SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[5]));
\echo what stops makes room, and what is undone later counts again
SELECT t.work() \g /dev/null
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'open_runs';
\echo bytes
SELECT sas.set_limit('alice', 'bytes', 1000) \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit('call', jsonb_build_object('x', repeat('y', 900)));
SELECT count(*) FROM sas.submit('call', jsonb_build_object('x', repeat('y', 900)));
SELECT used > 900 AND used < 1000 AS used FROM t.limits WHERE role = 'alice' AND name = 'bytes';
RESET ROLE;
SELECT t.work() \g /dev/null
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'bytes';
SELECT sas.set_limit('alice', 'bytes', NULL), sas.set_limit('alice', 'open_runs', NULL) \g /dev/null
\echo children: a step waits for room, and is tried again; a recount finds the same
SELECT t.workflow('parent', '{"c": {"workflow": "call", "each": "{{input.n}}"}}'), sas.grant_workflow('parent', 'alice'), sas.set_limit('alice', 'children', 2) \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit('parent', '{"n": [1, 2, 3]}');
RESET ROLE;
SELECT t.settle() \g /dev/null
SELECT name, used FROM t.limits WHERE role = 'alice' AND name IN ('children', 'open_runs');
SELECT kind, message FROM t.alerts();
SELECT _sas.recount_quotas();
SELECT name, used FROM t.limits WHERE role = 'alice' AND name IN ('children', 'open_runs');
SELECT t.work();
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT name, used FROM t.limits WHERE role = 'alice' AND name IN ('children', 'open_runs');
SELECT state, result FROM sas.runs WHERE workflow = 'parent';
\echo a workflow that starts itself tenfold: the step fails, since the runs that wait hold what they wait for
SELECT t.workflow('bomb', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('bomb', '{"again": {"workflow": "bomb", "each": "{{input.ten}}"}}'), sas.grant_workflow('bomb', 'alice'), sas.set_limit('alice', 'children', 200) \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit('bomb', '{"ten": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}');
RESET ROLE;
SELECT t.work() \g /dev/null
SELECT count(*) < 1000 AS few, count(*) FILTER (WHERE state <> 'stopped') AS open FROM sas.runs WHERE workflow = 'bomb';
SELECT error #>> '{title}' AS title FROM sas.runs WHERE workflow = 'bomb' AND parent_run_id IS NULL;
SELECT name, used FROM t.limits WHERE role = 'alice' AND name IN ('children', 'open_runs');
SELECT * FROM t.left_over();
\echo depth
SELECT sas.set_limit('alice', 'depth', 3) \g /dev/null
SET ROLE alice;
SELECT count(*) FROM sas.submit('bomb', '{"ten": [1]}');
RESET ROLE;
SELECT t.work() \g /dev/null
SELECT count(*) FROM sas.runs WHERE input = '{"ten": [1]}';
\echo infinite tasks: deleted ones make room; one that is adopted needs none
CREATE FUNCTION t.turn(input jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
GRANT USAGE ON SCHEMA t TO alice;
SELECT sas.create_watcher('turns', '{"function": "t.turn", "every": "1 h"}') \g /dev/null
SELECT sas.set_limit('alice', 'watches', 2) \g /dev/null
SET ROLE alice;
SELECT count(*) FROM (VALUES ('a'), ('b')) v (key), sas.watch('turns', key);
SELECT count(*) FROM sas.watch('turns', 'c');
\echo :LAST_ERROR_SQLSTATE
SELECT created FROM sas.watch('turns', 'a', adopt => true);
BEGIN;
SELECT * FROM sas.unwatch('turns', '{a}');
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'watches';
COMMIT;
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'watches';
SELECT created FROM sas.watch('turns', 'a');
RESET ROLE;
SELECT _sas.recount_quotas();
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'watches';
SET ROLE alice;
SELECT count(*) FROM sas.unwatch('turns', '{a,b}');
RESET ROLE;
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'watches';
SELECT _sas.recount_quotas(), sas.drop_watcher('turns');
\echo schedules: another one of a name that is taken needs no room
SELECT t.workflow('mailbox', '{"w": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT t.workflow('mailboxes', '{"c": {"workflow": "mailbox"}}') \g /dev/null
SELECT sas.grant_workflow(w, 'alice') FROM unnest('{mailbox,mailboxes}'::text[]) w \g /dev/null
SELECT sas.set_limit('alice', 'schedules', 2) \g /dev/null
SET ROLE alice;
SELECT count(sas.schedule(n, 'every 1 h', 'mailbox')) FROM unnest('{a,b,b}'::text[]) n;
SELECT sas.schedule('c', 'every 1 h', 'mailbox');
\echo :LAST_ERROR_SQLSTATE
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'schedules';
SELECT sas.unschedule('a') \g /dev/null
SELECT sas.schedule('c', 'every 1 h', 'mailbox') IS NOT NULL;
SELECT count(sas.unschedule(n)) FROM unnest('{b,c}'::text[]) n;
\echo nodes that have not ended
RESET ROLE;
SELECT sas.create_agent('limited', kind => 'external'), sas.grant_usage('alice', 'worker', agent => 'limited'), sas.set_limit('alice', 'nodes', 2) \g /dev/null
SET ROLE alice;
SELECT count(sas.register_node(n, 1, '{limited}', lease => '1 h')) FROM unnest('{a,b,b}'::text[]) n;
SELECT sas.register_node('c', 1, '{limited}');
\echo :LAST_ERROR_SQLSTATE
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'nodes';
SELECT sas.leave_node(node_id) FROM sas.nodes WHERE name = 'a' AND NOT is_deleted;
SELECT sas.register_node('c', 1, '{limited}') IS NOT NULL;
\echo of those that have ended the newest thousand are kept
SELECT sas.leave_node(node_id) FROM sas.nodes WHERE name = 'c' AND NOT is_deleted;
SELECT count(sas.leave_node(sas.register_node('n' || g, 1, '{limited}'))) FROM generate_series(1, 1050) g;
SELECT sas.register_node('c', 1, '{limited}') IS NOT NULL;
SELECT count(*), min(substr(name, 2)::int) FROM sas.nodes WHERE is_deleted AND name ~ '^n';
RESET ROLE;
SELECT sas.revoke_usage('alice', 'worker'), sas.set_limit('alice', 'nodes', NULL) \g /dev/null
\echo signals that no step has taken, also for the runs below
RESET ROLE;
SELECT sas.set_limit('alice', 'signals', 2) \g /dev/null
SET ROLE alice;
SELECT run_id AS mailbox FROM sas.submit('mailbox') \gset
SELECT run_id AS mailboxes FROM sas.submit('mailboxes') \gset
SELECT count(sas.signal(:mailbox, 'go', n)) FROM unnest('{1,2}'::jsonb[]) n;
\set VERBOSITY sqlstate
SELECT sas.signal(:mailbox, 'go', '3');
\set VERBOSITY default
RESET ROLE;
SELECT t.work() \g /dev/null
SELECT output FROM sas.steps WHERE run_id = :mailbox;
SET ROLE alice;
SELECT count(sas.signal(:mailboxes, 'go', n)) FROM unnest('{1,2}'::jsonb[]) n;
\set VERBOSITY sqlstate
SELECT sas.signal(:mailboxes, 'go', '3');
\set VERBOSITY default
RESET ROLE;
SELECT t.work() \g /dev/null
SELECT state, result FROM sas.runs WHERE run_id = :mailboxes;
\echo definitions: each version of a workflow, and each watcher; what was dropped is kept
SELECT sas.set_limit('alice', 'definitions', 3) \g /dev/null
SET ROLE alice;
SELECT sas.create_workflow('hers', '{"steps": {}}'), sas.create_workflow('hers', '{"steps": {}, "priority": 1}'), sas.create_workflow('hers', '{"steps": {}, "priority": 1}');
SELECT sas.create_workflow('hers', '{"steps": {}, "priority": 2}'), sas.create_workflow('hers', '{"steps": {}, "priority": 3}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.create_watcher('beats', '{"function": "t.turn", "every": "1 h"}');
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'definitions';
SELECT sas.drop_workflow('hers'), sas.create_workflow('hers', '{"steps": {}}') \g /dev/null
SELECT used FROM t.limits WHERE role = 'alice' AND name = 'definitions';
SELECT sas.create_workflow('hers_too', '{"steps": {}}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.drop_watcher('beats'), sas.drop_workflow('hers') \g /dev/null
RESET ROLE;
SELECT t.clean() \g /dev/null
SELECT sas.set_limit('alice', n, NULL) FROM unnest('{children,depth,watches,schedules,signals,definitions}'::text[]) n \g /dev/null
\echo savepoints of two owners, released and rolled back
CREATE FUNCTION t.submits(n int) RETURNS void LANGUAGE sql AS $$ SELECT count(*) FROM sas.submit_batch('call', array_fill('{}'::jsonb, ARRAY[n])) $$;
CREATE VIEW t.open AS SELECT role, used FROM sas.limits WHERE name = 'open_runs' AND role IN ('alice', 'postgres') ORDER BY role;
GRANT SELECT ON t.open TO alice;
BEGIN;
SAVEPOINT a;
SELECT t.submits(1) \g /dev/null
SAVEPOINT b;
SET LOCAL ROLE alice;
SELECT t.submits(10) \g /dev/null
RESET ROLE;
SELECT t.submits(2) \g /dev/null
SAVEPOINT c;
SET LOCAL ROLE alice;
SELECT t.submits(20) \g /dev/null
RESET ROLE;
RELEASE c;
SELECT * FROM t.open;
RELEASE b;
SAVEPOINT d;
SELECT t.submits(100) \g /dev/null
ROLLBACK TO d;
SET LOCAL ROLE alice;
SELECT t.submits(100) \g /dev/null
RESET ROLE;
SELECT * FROM t.open;
RELEASE d;
SAVEPOINT e;
SELECT t.submits(1000) \g /dev/null
ROLLBACK TO e;
SELECT * FROM t.open;
ROLLBACK TO a;
SELECT t.submits(3) \g /dev/null
COMMIT;
SELECT * FROM t.open;
DROP VIEW t.open;
DROP FUNCTION t.submits;
SELECT t.work() \g /dev/null
\echo open runs are counted by their keys, as a worker plans: runs that are kept cost nothing
BEGIN;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SELECT sas.submit('call') FROM generate_series(1, 5) \g /dev/null
DO $$
DECLARE
    other text := (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = '_sas.run'::regclass
                   AND attnum > 0 AND attname NOT IN ('run_id', 'state', 'result', 'finished_at', 'key'));
BEGIN
    EXECUTE format('INSERT INTO _sas.run (run_id, state, result, finished_at, %1$s) OVERRIDING SYSTEM VALUE
        SELECT -g, ''stopped'', ''success'', now(), %1$s FROM generate_series(1, 3000) g,
               (SELECT * FROM _sas.run ORDER BY run_id DESC LIMIT 1) r', other);
END $$;
SELECT idx_tup_fetch AS before FROM pg_stat_xact_all_tables WHERE relid = '_sas.run'::regclass \gset
SELECT _sas.recount_quotas() > 0 AS counted;
SELECT idx_tup_fetch - :before < 1000 AS by_key FROM pg_stat_xact_all_tables WHERE relid = '_sas.run'::regclass;
ROLLBACK;
SELECT _sas.recount_quotas() \g /dev/null
\echo a flood of open runs is counted in one scan, not run by run: meanwhile the supervisor does nothing for others
BEGIN;
SELECT count(*) FROM sas.submit_batch('mailbox', array_fill('{}'::jsonb, '{21000}'));
SELECT idx_tup_fetch AS before FROM pg_stat_xact_all_tables WHERE relid = '_sas.run'::regclass \gset
SELECT _sas.recount_quotas() > 0 AS counted, runs_open >= 21000 AS seen FROM sas.health();
SELECT idx_tup_fetch - :before < 1000 AS in_one_scan FROM pg_stat_xact_all_tables WHERE relid = '_sas.run'::regclass;
SELECT used >= 21000 AS right FROM sas.limits WHERE role = current_user::regrole::text AND name = 'open_runs';
ROLLBACK;
SELECT _sas.recount_quotas() \g /dev/null
DROP VIEW t.limits;
DROP FUNCTION t.turn;
DROP OWNED BY alice;
DROP ROLE alice;
SELECT _sas.recount_quotas();
