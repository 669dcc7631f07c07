-- SPDX-License-Identifier: PostgreSQL
--
-- Maps whose elements are being written, or passed by in search of keys with room, while something else happens to their
-- run.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.keys(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('items', jsonb_agg(jsonb_build_object('k', g % 2) ORDER BY g)) FROM generate_series(1, n) g $$;
-- while a failed element waits for an operator, the elements that can begin do so, however far away they are
SELECT t.workflow('far', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause", "concurrency": {"limit": 2, "key": "{{item.k}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('far', jsonb_build_object('items', (SELECT jsonb_agg(jsonb_build_object('k', CASE WHEN g > 6000 THEN 2 ELSE 1 END) ORDER BY g) FROM generate_series(1, 6001) g)));
SELECT worked FROM generate_series(1, 7) n, LATERAL _sas.scheduler_tick(100 + 0 * n) WHERE worked <> 1;
SELECT fed FROM _sas.map_progress;
SELECT t.claim(), t.answer('m', 'permanent 400');
SELECT t.supervise() > 0 AS decided;
SELECT state FROM sas.runs;
SELECT t.settle() \g /dev/null
SELECT element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1;
SELECT t.work() \g /dev/null
SELECT element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1;
SELECT state FROM sas.runs;
-- and none of them is left: the run is paused
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('far', jsonb_build_object('items', (SELECT jsonb_agg('{"k": 1}'::jsonb) FROM generate_series(1, 6001) g)));
SELECT worked FROM generate_series(1, 7) n, LATERAL _sas.scheduler_tick(100 + 0 * n) WHERE worked <> 1;
SELECT t.claim(), t.answer('m', 'permanent 400');
SELECT t.settle() \g /dev/null
SELECT state FROM sas.runs;

-- three at a time from here on
CREATE OR REPLACE FUNCTION _sas.most_loaded(slow boolean DEFAULT false) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3';
-- a failure ends the run, and a pause takes that back: the rest of the elements is written then
SELECT t.clean() \g /dev/null
SELECT t.workflow('beside', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}, "m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "after": ["a"], "concurrency": {"limit": 2, "key": "{{item.k}}"}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('beside', array_fill(t.keys(8), '{3}'));
SELECT t.claim() \g /dev/null
SELECT t.answer('a', for_run => g) FROM generate_series(1, 3) g;
SELECT worked FROM _sas.scheduler_tick(100);
SELECT run_id, loaded FROM _sas.map_list ORDER BY 1;
SELECT t.claim() \g /dev/null
SELECT t.answer('b', 'permanent 400', for_run => g) FROM generate_series(1, 3) g;
-- the first is paused before the message to write more is carried out, the second one after that, the third one never
SELECT t.supervise() > 0 AS decided;
SELECT changed FROM sas.pause(1);
SELECT worked > 0 AS worked FROM _sas.scheduler_tick(100);
SELECT changed FROM sas.pause(2);
SELECT t.settle() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT count(*) FROM sas.resume_runs('{1,2}') WHERE changed;
SELECT t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT run_id, count(*) FROM sas.steps WHERE element IS NOT NULL AND state = 'succeeded' GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM _sas.map_list;
SELECT * FROM t.left_over();
-- a step fails while failed elements are written to be tried again: they are, before the run is paused
SELECT t.clean() \g /dev/null
SELECT t.workflow('again', '{"a": {"agent": "payments", "call": {}}, "m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "concurrency": {"limit": 9, "key": "{{item.k}}", "per_key": 9}}}') \g /dev/null
SELECT run_id FROM sas.submit('again', t.keys(8));
SELECT t.settle(), t.claim() \g /dev/null
SELECT DISTINCT t.answer('m', 'permanent 400', for_element => g) FROM generate_series(1, 8) g;
SELECT t.settle() \g /dev/null
SELECT count(*) FROM sas.retry(1, 'm') WHERE changed;
SELECT worked > 0 AS worked FROM _sas.scheduler_tick(100);
SELECT loaded FROM _sas.map_list;
SELECT t.answer('a', 'permanent 400'), t.supervise() > 0 AS decided;
SELECT state FROM sas.runs;
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT changed FROM sas.resume(1);
SELECT t.work() \g /dev/null
SELECT state, result FROM sas.runs;
SELECT count(*) FROM _sas.map_list;

-- a version whose map has no keys: the elements that waited for their key begin, too
SELECT t.clean() \g /dev/null
SELECT t.workflow('keyed', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": {"limit": 3, "key": "{{item.k}}"}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('keyed', ARRAY[t.keys(7), t.keys(7)]);
SELECT t.schedule() \g /dev/null
-- it has not begun, the other one has
SELECT changed FROM sas.pause(2);
SELECT t.settle() \g /dev/null
SELECT run_id, element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1, 2;
SELECT t.workflow('keyed', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 3}}') \g /dev/null
SELECT run_id, changed FROM sas.set_version_runs('{1,2}');
SELECT changed FROM sas.resume(2);
SELECT t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;

-- maps with few elements count as few: many of them begin in one tick
SELECT t.clean() \g /dev/null
CREATE OR REPLACE FUNCTION _sas.most_loaded(slow boolean DEFAULT false) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT CASE WHEN slow THEN 1000 ELSE 2500 END $$;
ALTER FUNCTION _sas.add_steps RENAME TO add_steps_of_turn;
CREATE TABLE t.added (n bigint);
CREATE FUNCTION _sas.add_steps(n bigint) RETURNS boolean LANGUAGE sql STRICT AS 'INSERT INTO t.added VALUES (n) RETURNING true';
SELECT t.workflow('keyed', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": {"key": "{{item.k}}"}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('keyed', array_fill(t.keys(2), '{20}'));
SELECT worked FROM _sas.scheduler_tick(100);
SELECT sum(n) < 500 AS few FROM t.added;
DROP FUNCTION _sas.add_steps(bigint);
DROP TABLE t.added;
ALTER FUNCTION _sas.add_steps_of_turn RENAME TO add_steps;
SELECT t.clean() \g /dev/null
