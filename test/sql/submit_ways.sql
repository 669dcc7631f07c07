-- SPDX-License-Identifier: PostgreSQL
--
-- Plain runs are written by sas.submit itself, all others by statements. Both leave the same rows and the same errors,
-- and what is kept of a workflow holds no longer than the workflow is as it was.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SET track_functions = 'pl';

-- t.way(submit): runs it, and says who has written the rows
CREATE FUNCTION t.way(submit text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    calls bigint := coalesce((SELECT sum(f.calls) FROM pg_stat_xact_user_functions f WHERE f.schemaname = '_sas' AND f.funcname = 'submit_batch_as'), 0);
BEGIN
    EXECUTE submit;
    RETURN CASE WHEN coalesce((SELECT sum(f.calls) FROM pg_stat_xact_user_functions f WHERE f.schemaname = '_sas' AND f.funcname = 'submit_batch_as'), 0) > calls THEN 'statements' ELSE 'itself' END;
END $$;
-- t.outcome(submit): what it raises, in full
CREATE FUNCTION t.outcome(submit text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a text; b text; c text; d text;
BEGIN
    EXECUTE submit;
    RETURN 'submitted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS a = RETURNED_SQLSTATE, b = MESSAGE_TEXT, c = PG_EXCEPTION_DETAIL, d = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', a, b, c, d);
END $$;

SELECT t.workflow('way_one', '{"a": {"function": "t.echo"}}') \g /dev/null
SELECT t.workflow('way_three', '{"a": {"agent": "inventory", "call": {"path": "/a"}, "priority": 7}, "b": {"function": "t.echo"}, "c": {"agent": "payments", "call": {"path": "/c"}, "priority": -2}, "d": {"function": "t.echo", "after": ["a", "b", "c"]}}',
                  '{"priority": 4, "deadline": "1 month 2 days 03:04:05"}') \g /dev/null
SELECT t.workflow('way_held', '{"a": {"function": "t.echo"}}', '{"concurrency": {"key": "one", "overlap": "return"}}') \g /dev/null

-- the same submits, either way ---------------------------------------------------------
CREATE TABLE t.submit (n int GENERATED ALWAYS AS IDENTITY, plain boolean, text text);
INSERT INTO t.submit (plain, text) VALUES
    (true, $$SELECT FROM sas.submit('way_one')$$),
    (true, $$SELECT FROM sas.submit('way_one', '{"n": 1}', key => 'k1')$$),
    (true, $$SELECT FROM sas.submit('way_one', '{"n": 2}', priority => 1000, labels => '{"tenant": "a"}', deadline => '90 s')$$),
    (true, $$SELECT FROM sas.submit('way_one', '{"n": 3}', key => '', priority => -1000, deadline => '10 years')$$),
    (true, $$SELECT FROM sas.submit('way_three', '{"n": 4}')$$),
    (true, $$SELECT FROM sas.submit('way_three', '{"n": 5}', key => 'k1', priority => 3)$$),
    (true, $$SELECT FROM sas.submit('way_one', jsonb_build_object('much', repeat('x', 100000), 'more', (SELECT jsonb_agg(sha256(g::text::bytea)::text) FROM generate_series(1, 1000) g)))$$),
    (true, $$SELECT FROM sas.submit_batch('way_one', ARRAY['{"n": 6}', '{"n": 7}', '{"n": 7}']::jsonb[])$$),
    (true, $$SELECT FROM sas.submit_batch('way_three', ARRAY(SELECT jsonb_build_object('n', g) FROM generate_series(1, 100) g), priority => 2, labels => '{"b": 1}', deadline => '2 h')$$),
    (false, $$SELECT FROM sas.submit_batch('way_one', '{}')$$),
    (false, $$SELECT FROM sas.submit_batch('way_one', ARRAY['{"n": 8}', '{"n": 9}']::jsonb[], ARRAY['k8', NULL])$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 10}', start_at => t.start() + interval '1 h')$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 11}', reply_to => 'shop')$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 12}', after_run => 1)$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 13}', start_before => t.start() + interval '1 h')$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 14}', after_result => '{error}', after_run => 1)$$),
    (true, $$SELECT FROM sas.submit('way_one', '{"n": 15}', after_result => NULL)$$),
    (true, $$SELECT FROM sas.submit('way_one', '{"n": 16}', after_result => '{success,warning}')$$),
    (false, $$SELECT FROM sas.submit('way_one', '{"n": 17}', after_result => NULL, after_run => 1)$$),
    (false, $$SELECT FROM sas.submit('way_held')$$);
CREATE TABLE t.written (way text, what text, n bigint, body jsonb);
-- timers that are written later are written by then
CREATE FUNCTION t.write_down(of_way text) RETURNS void LANGUAGE sql AS $$
    SELECT t.later('1 min'), _sas.set_timers(NULL, NULL, NULL);
    INSERT INTO t.written SELECT of_way, x.what, x.n, x.body
    FROM (SELECT 'run', r.run_id, to_jsonb(r) - 'trace' FROM _sas.run r UNION ALL SELECT 'ready', q.run_id, to_jsonb(q) FROM _sas.ready q
          UNION ALL SELECT 'due', d.run_id, to_jsonb(d) FROM _sas.message d UNION ALL SELECT 'key', k.run_id, to_jsonb(k) FROM _sas.run_key k UNION ALL SELECT 'label', l.run_id, to_jsonb(l) FROM _sas.run_label l
          UNION ALL SELECT 'reply', p.run_id, to_jsonb(p) - 'reply_id' FROM _sas.reply p) AS x (what, n, body)
$$;
-- the limits of the owner are read by the first submit after they have changed
SELECT FROM sas.submit('way_one') \g /dev/null
SELECT t.clean() \g /dev/null
\echo the short way is taken by those that are plain, and by no other
SELECT s.text FROM t.submit s, LATERAL t.way(s.text) w WHERE (w = 'itself') IS DISTINCT FROM s.plain ORDER BY s.n;
SELECT t.write_down('itself') \g /dev/null
SELECT count(*) AS runs, count(DISTINCT trace) AS traces, bool_and(trace::text ~ '^.{14}4.{4}[89ab]') AS random FROM _sas.run;
SELECT t.clean() \g /dev/null
-- where a trigger listens, statements write the rows
CREATE TRIGGER see_insert AFTER INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION t.see();
SELECT w, count(*) FROM t.submit s, LATERAL t.way(s.text) w GROUP BY 1;
SELECT t.write_down('statements') \g /dev/null
SELECT what, count(*) FROM t.written WHERE way = 'itself' GROUP BY 1 ORDER BY 1;
SELECT a.*, b.* FROM (SELECT what, n, body FROM t.written WHERE way = 'itself') a FULL JOIN (SELECT what, n, body FROM t.written WHERE way = 'statements') b ON (a.what, a.n, a.body) = (b.what, b.n, b.body)
WHERE a.n IS NULL OR b.n IS NULL;

-- the same errors ----------------------------------------------------------------------
CREATE TABLE t.refused (n int GENERATED ALWAYS AS IDENTITY, text text, outcome text);
INSERT INTO t.refused (text) VALUES
    ($$SELECT FROM sas.submit('none')$$), ($$SELECT FROM sas.submit(NULL)$$), ($$SELECT FROM sas.submit(repeat('x', 100))$$),
    ($$SELECT FROM sas.submit('way_one', NULL)$$), ($$SELECT FROM sas.submit('way_one', '[]')$$), ($$SELECT FROM sas.submit('way_one', '7')$$),
    ($$SELECT FROM sas.submit('way_one', '{}', priority => 1001)$$), ($$SELECT FROM sas.submit('way_one', '{}', priority => NULL)$$),
    ($$SELECT FROM sas.submit('way_one', '{}', deadline => '0')$$), ($$SELECT FROM sas.submit('way_one', '{}', deadline => '10 years 1 s')$$), ($$SELECT FROM sas.submit('way_one', '{}', deadline => '-1 s')$$),
    ($$SELECT FROM sas.submit('way_one', '{}', labels => '[]')$$), ($$SELECT FROM sas.submit('way_one', '{}', labels => NULL)$$),
    ($$SELECT FROM sas.submit('way_one', '{}', after_result => '{sucess}')$$),
    ($$SELECT FROM sas.submit('way_one', '{"n": 99}', key => 'k1')$$), ($$SELECT FROM sas.submit('way_one', '{"n": 1}', key => 'k1')$$),
    ($$SELECT FROM sas.submit('way_one', jsonb_build_object('n', repeat('x', 1100000)))$$),
    ($$SELECT FROM sas.submit_batch('way_one', NULL)$$), ($$SELECT FROM sas.submit_batch('way_one', ARRAY['{}', NULL]::jsonb[])$$), ($$SELECT FROM sas.submit_batch('way_one', ARRAY['{}', '[]']::jsonb[])$$),
    ($$SELECT set_config('transaction_read_only', 'on', true), sas.submit('way_one')$$);
UPDATE t.refused SET outcome = t.outcome(text);
DROP TRIGGER see_insert ON _sas.run;
SELECT t.outcome(text) = outcome AS same, outcome FROM t.refused ORDER BY n;
SELECT count(*) FROM _sas.run;

-- what is kept -------------------------------------------------------------------------
-- t.now(): version and way of a run of a workflow now
CREATE FUNCTION t.now(name text DEFAULT 'way_one') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    way text := t.way(format('SELECT FROM sas.submit(%L)', name));
BEGIN
    RETURN way || (SELECT format(', version %s, %s', r.version, r.state) FROM sas.runs r ORDER BY r.run_id DESC LIMIT 1);
END $$;
SELECT t.now();
\echo a new version holds from the next statement on, and not when it is rolled back, wholly or in part
BEGIN;
SELECT t.workflow('way_one', '{"b": {"function": "t.echo"}, "c": {"function": "t.echo"}}'), t.now();
SELECT t.now();
SAVEPOINT s;
SELECT t.workflow('way_one', '{"d": {"function": "t.echo"}}'), t.now();
ROLLBACK TO s;
SELECT t.now();
ROLLBACK;
SELECT t.now();
SELECT t.workflow('way_one', '{"b": {"function": "t.echo"}}'), t.now();
\echo so do a pause, what is resumed, a first hook, and the end of a workflow
SELECT sas.pause_workflow('way_one'), t.now();
SELECT sas.resume_workflow('way_one'), t.now();
BEGIN;
SELECT t.workflow('way_one', '{"b": {"function": "t.echo"}}', '{"hooks": [{"on": "pending", "notify": "told"}]}'), t.now();
ROLLBACK;
SELECT t.workflow('way_one', '{"b": {"function": "t.echo", "priority": 0}}'), t.now();
BEGIN;
SELECT t.clean(), sas.drop_workflow('way_one') \g /dev/null
SELECT t.now();
ROLLBACK;
SELECT t.now();
\echo a middleware and a subscription
CREATE FUNCTION t.quiet(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
SELECT sas.create_middleware('watch', 'plan', before => 't.quiet(jsonb)') \g /dev/null
SELECT t.now();
SELECT sas.drop_middleware('watch'), t.now();
SELECT t.workflow('way_audit', '{"z": {"function": "t.echo"}}'), sas.subscribe('way_audit', 'way_one') \g /dev/null
SELECT left(t.now('way_three'), 10), left(t.now('way_audit'), 10);
SELECT sas.unsubscribe('way_audit', 'way_one'), t.now('way_audit');

-- whose right it is ---------------------------------------------------------------------
CREATE ROLE sas_test_ways;
CREATE ROLE sas_test_ways_group;
SELECT sas.grant_usage('sas_test_ways', 'user') \g /dev/null
CREATE ROLE sas_test_ways_owner;
SELECT sas.grant_usage('sas_test_ways_owner', 'user') \g /dev/null
GRANT USAGE ON SCHEMA t TO sas_test_ways, sas_test_ways_owner;
CREATE FUNCTION t.mine(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
REVOKE EXECUTE ON FUNCTION t.mine(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION t.mine(jsonb) TO sas_test_ways_owner, sas_test_ways;
GRANT ALL ON ALL TABLES IN SCHEMA t TO sas_test_ways;
SET ROLE sas_test_ways_owner;
SELECT sas.create_workflow('way_mine', '{"steps": {"a": {"function": "t.mine"}}}');
RESET ROLE;
CREATE FUNCTION t.as_ways() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ROLE sas_test_ways;
    RETURN t.outcome('SELECT FROM sas.submit(''way_mine'')') || coalesce((SELECT ' by ' || r.submitted_by FROM sas.runs r ORDER BY r.run_id DESC LIMIT 1), '');
END $$;
\echo not before it is granted; then also to a session that has tried before
SELECT t.as_ways();
RESET ROLE;
SELECT sas.grant_workflow('way_mine', 'sas_test_ways') \g /dev/null
SELECT t.as_ways();
RESET ROLE;
SELECT t.way('SET LOCAL ROLE sas_test_ways; SELECT FROM sas.submit(''way_mine'')');
RESET ROLE;
\echo not when the function may not be called any more
REVOKE EXECUTE ON FUNCTION t.mine(jsonb) FROM sas_test_ways;
SELECT t.as_ways();
RESET ROLE;
GRANT EXECUTE ON FUNCTION t.mine(jsonb) TO sas_test_ways;
SELECT t.as_ways();
RESET ROLE;
\echo not when the grant is taken back; by a role of which one becomes a member, until that ends
SELECT sas.revoke_workflow('way_mine', 'sas_test_ways') \g /dev/null
SELECT t.as_ways();
RESET ROLE;
SELECT sas.grant_workflow('way_mine', 'sas_test_ways_group') \g /dev/null
GRANT sas_test_ways_group TO sas_test_ways;
SELECT t.as_ways();
RESET ROLE;
REVOKE sas_test_ways_group FROM sas_test_ways;
SELECT t.as_ways();
RESET ROLE;

\echo in FROM and in a list of columns, what comes back is the same: the names, the types, a row as a whole
BEGIN;
SELECT pg_typeof(s.run_id), pg_typeof(s.created), (s).created, row_to_json(s) ->> 'created' AS "as json" FROM sas.submit('way_one') s;
SELECT (s).created FROM sas.submit('way_one', key => 'typed') s;
SELECT (sas.submit('way_one')).created;
SELECT count(x), bool_and(y), max(g), max(n) FROM ROWS FROM (sas.submit('way_one'), generate_series(1, 2)) WITH ORDINALITY AS s (x, y, g, n);
SELECT (s).created FROM sas.submit('way_held') s;
ROLLBACK;

-- tables that are not as the library knows them are written by statements ----------------
SELECT t.now();
BEGIN; ALTER TABLE _sas.run ADD COLUMN further text; SELECT t.now(); ROLLBACK;
BEGIN; ALTER TABLE _sas.run ADD COLUMN further text DEFAULT 'x'; SELECT t.now(); ROLLBACK;
BEGIN; ALTER TABLE _sas.ready ADD CHECK (lane > -100); SELECT t.now(); ROLLBACK;
\echo every kind of index is kept
BEGIN; CREATE INDEX ON _sas.run ((input ->> 'n')); SELECT t.now(); ROLLBACK;
BEGIN; CREATE INDEX ON _sas.run (priority) WHERE priority > 0; SELECT t.now(); ROLLBACK;
BEGIN; CREATE INDEX ON _sas.run USING gin (labels); SELECT t.now(); ROLLBACK;
CREATE INDEX further_one ON _sas.run ((priority + 0), run_id);
CREATE INDEX further_two ON _sas.run (run_id) WHERE parent_run_id IS NULL;
SELECT t.now();
SET enable_seqscan = off;
SELECT (SELECT count(*) FROM _sas.run WHERE priority + 0 = 0 AND run_id > 0) = (SELECT count(*) FROM _sas.run WHERE priority = 0) AS one,
       (SELECT count(*) FROM _sas.run WHERE run_id > 0 AND parent_run_id IS NULL) = (SELECT count(*) FROM _sas.run WHERE parent_run_id IS NULL) AS two;
RESET enable_seqscan;
DROP INDEX _sas.further_one, _sas.further_two;
SELECT t.now();
\echo a partial index that such a row may enter is kept, whatever its predicate is made of
CREATE INDEX further_one ON _sas.run (created_at) WHERE key IS NOT NULL;
CREATE INDEX further_two ON _sas.run (created_at) WHERE NOT own_version;
CREATE INDEX further_three ON _sas.run (created_at) WHERE own_version OR priority = 0;
CREATE INDEX further_four ON _sas.run (created_at) WHERE hook_of IS NULL AND (parent_run_id IS NOT NULL OR start_at IS NULL);
SELECT t.way($$SELECT FROM sas.submit('way_one', key => 'in an index')$$);
SET enable_seqscan = off;
SELECT c.relname,
       (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM _sas.run WHERE created_at > ''-infinity'' AND %s', pg_get_expr(i.indpred, i.indrelid)), true, true, '')))[1]::text::int =
       (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM _sas.run WHERE (%s) IS TRUE', pg_get_expr(i.indpred, i.indrelid)), true, true, '')))[1]::text::int AS same,
       (SELECT max(run_id) FROM _sas.run) = (xpath('/row/n/text()', query_to_xml(format('SELECT max(run_id) AS n FROM _sas.run WHERE created_at > ''-infinity'' AND %s', pg_get_expr(i.indpred, i.indrelid)), true, true, '')))[1]::text::int AS last
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE 'further\_%' ORDER BY 1;
RESET enable_seqscan;
DROP INDEX _sas.further_one, _sas.further_two, _sas.further_three, _sas.further_four;

-- a transaction with an old snapshot sees the workflow of its snapshot: see the races; with one of its own, the new one
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT t.now();
SELECT t.workflow('way_one', '{"q": {"function": "t.echo"}}'), t.now();
ROLLBACK;
SELECT t.now();

\echo a run is seen by the command after, by a function that is called after, and goes with its savepoint
BEGIN;
SELECT t.clean() \g /dev/null
SELECT count(*) AS before FROM sas.submit('way_one') s JOIN sas.runs USING (run_id);
CREATE FUNCTION t.how_many() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM _sas.run); END $$;
SELECT t.how_many() AS and_by_a_function_of_this_command FROM sas.submit('way_one');
SAVEPOINT s;
SELECT (SELECT run_id FROM sas.submit('way_one') OFFSET 0) AS id, (SELECT count(*) FROM _sas.run) AS in_this_command;
SELECT (SELECT count(*) FROM _sas.run) AS runs, (SELECT count(*) FROM _sas.ready) AS ready, (SELECT count(*) FROM _sas.message) AS due;
ROLLBACK TO s;
SELECT (SELECT count(*) FROM _sas.run) AS runs, (SELECT count(*) FROM _sas.ready) AS ready, (SELECT count(*) FROM _sas.message) AS due;
ROLLBACK;

-- child runs ---------------------------------------------------------------------------
-- t.by_statements(work): does it, and says how many submits were written by statements
CREATE FUNCTION t.by_statements(work text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    calls bigint := coalesce((SELECT sum(f.calls) FROM pg_stat_xact_user_functions f WHERE f.schemaname = '_sas' AND f.funcname = 'submit_runs'), 0);
BEGIN
    EXECUTE work;
    RETURN coalesce((SELECT sum(f.calls) FROM pg_stat_xact_user_functions f WHERE f.schemaname = '_sas' AND f.funcname = 'submit_runs'), 0) - calls;
END $$;
SELECT t.workflow('way_parent', '{"all": {"workflow": "way_three", "input": {"n": "{{item}}"}, "each": "{{input.items}}"}, "one": {"workflow": "way_one"}}', '{"priority": 3}') \g /dev/null
CREATE FUNCTION t.families() RETURNS void LANGUAGE sql AS $$
    SELECT FROM sas.submit('way_parent', '{"items": [1, 2, 3]}', priority => 5, labels => '{"tenant": "a"}');
    SELECT FROM sas.submit('way_parent', '{"items": [4, 5]}', deadline => '90 s');
$$;
SELECT t.clean() \g /dev/null
TRUNCATE t.written;
\echo child runs of a plain workflow are written without statements, and the rows are the same
SELECT t.families() \g /dev/null
SELECT t.by_statements('SELECT t.settle()');
SELECT t.write_down('itself') \g /dev/null
SELECT t.clean() \g /dev/null
CREATE TRIGGER see_insert AFTER INSERT ON _sas.run FOR EACH ROW EXECUTE FUNCTION t.see();
SELECT t.families() \g /dev/null
SELECT t.by_statements('SELECT t.settle()') > 0 AS by_statements;
SELECT t.write_down('statements') \g /dev/null
DROP TRIGGER see_insert ON _sas.run;
SELECT what, count(*) FROM t.written WHERE way = 'itself' GROUP BY 1 ORDER BY 1;
SELECT a.*, b.* FROM (SELECT what, n, body FROM t.written WHERE way = 'itself') a FULL JOIN (SELECT what, n, body FROM t.written WHERE way = 'statements') b ON (a.what, a.n, a.body) = (b.what, b.n, b.body)
WHERE a.n IS NULL OR b.n IS NULL;

SELECT t.clean() \g /dev/null
DROP OWNED BY sas_test_ways, sas_test_ways_owner, sas_test_ways_group;
SELECT sas.drop_workflow('way_mine') \g /dev/null
SELECT sas.drop_workflow('way_parent') \g /dev/null
DROP TABLE t.submit, t.written, t.refused;
DROP FUNCTION t.way, t.outcome, t.write_down, t.now, t.as_ways, t.mine, t.quiet, t.by_statements, t.families;
RESET track_functions;
