-- SPDX-License-Identifier: PostgreSQL
--
-- What the open runs wait for is the same whether each is looked at or fifty of those that wait alike, and what is read
-- does not grow with the steps of each.
SELECT t.clean() \g /dev/null
SELECT t.workflow('row', '{"a": {"wait": {"signal": "go"}}, "b": {"agent": "inventory", "call": {}, "after": ["a"]}, "c": {"agent": "inventory", "call": {}, "after": ["b"]},
    "d": {"agent": "inventory", "call": {}, "after": ["c"]}, "e": {"agent": "inventory", "call": {}, "after": ["d"]}, "f": {"agent": "inventory", "call": {}, "after": ["e"]}}') \g /dev/null
SELECT t.workflow('two', '{"a": {"wait": {"signal": "go"}}, "b": {"agent": "inventory", "call": {}}, "c": {"wait": {"for": "1 h"}}}') \g /dev/null
SELECT sas.create_workflow('one_each', '{"steps": {"a": {"wait": {"signal": "go"}}}, "concurrency": {"key": "{{input.k}}"}}') \g /dev/null
SELECT t.workflow('mapped', '{"m": {"wait": {"signal": "go"}, "each": "{{input.l}}"}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('row', array_fill('{}'::jsonb, '{400}'));
SELECT min(run_id) AS first FROM _sas.run \gset
SELECT count(*) FROM sas.submit_batch('two', array_fill('{}'::jsonb, '{130}'));
SELECT count(*) FROM sas.submit_batch('row', array_fill('{}'::jsonb, '{60}'), start_at => sas.now() + interval '1 h');
SELECT count(*) FROM sas.submit_batch('row', array_fill('{}'::jsonb, '{60}'), after_run => :first);
SELECT count(*) FROM sas.submit_batch('row', array_fill('{}'::jsonb, '{60}'), after_run => :first + 1);
SELECT count(*) FROM sas.submit_batch('one_each', ARRAY(SELECT jsonb_build_object('k', n % 2) FROM generate_series(1, 122) n));
SELECT run_id AS large FROM sas.submit('mapped', jsonb_build_object('l', (SELECT jsonb_agg(n) FROM generate_series(1, 201) n))) \gset
SELECT count(*) FROM sas.submit_batch('mapped', array_fill('{"l": [1, 2, 3]}'::jsonb, '{70}'));
-- due in another order than they were submitted, and two causes with times of their own
SELECT t.workflow('timed', '{"a": {"wait": {"until": "{{input.until}}"}}, "b": {"wait": {"signal": "go", "timeout": "{{input.timeout}}"}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('timed', ARRAY(SELECT jsonb_build_object('until', sas.now() + interval '1 h' * (200 - n), 'timeout', n || ' min') FROM generate_series(10, 130) n));
SELECT count(sas.submit('row', start_at => sas.now() + interval '1 min' * (70 - n))) FROM generate_series(1, 61) n;
SELECT sas.create_agent('alike_outside', kind => 'external', max_in_flight => 1000) \g /dev/null
SELECT t.workflow('task', '{"a": {"agent": "alike_outside", "task": {}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('task', array_fill('{}'::jsonb, '{120}'));
SELECT t.settle() \g /dev/null
SELECT count(*) FROM sas.claim('alike_outside', 'w', 100);
-- as if a session held some of their runs; the lowest are among those that are read
INSERT INTO _sas.answer (run_id, step_no, element, request_id, verdict, attempt, in_doubt, arrived_at)
SELECT run_id, step_no, element, request_id, 'success', attempt, false, sas.now() FROM _sas.step WHERE request_id IS NOT NULL ORDER BY run_id LIMIT 10;
INSERT INTO _sas.answer (run_id, step_no, element, request_id, verdict, attempt, in_doubt, arrived_at)
SELECT run_id, step_no, element, request_id, 'success', attempt, false, sas.now() FROM _sas.step WHERE request_id IS NOT NULL ORDER BY run_id DESC LIMIT 5;
-- as if one could not be put into its queue
UPDATE _sas.ready SET lane = -2000000 WHERE run_id IN (SELECT run_id FROM sas.runs WHERE workflow = 'two');
INSERT INTO _sas.deferred_work (kind, id, until) SELECT 'queue', max(run_id), sas.now() + interval '5 min' FROM _sas.ready WHERE lane = -2000000;
SELECT count(*) FROM sas.pause_runs(ARRAY(SELECT run_id FROM _sas.run WHERE run_id BETWEEN :first + 2 AND :first + 81));
SELECT waiting_kind, waiting_on = (:first)::text AS on_first, runs, steps FROM sas.explain() ORDER BY runs DESC, 1, waiting_on;
\echo as all steps of all runs say
CREATE TEMP TABLE each AS
SELECT waiting_kind, waiting_on, count(DISTINCT run_id) AS runs, count(*) AS steps, min(waiting_since) AS since, min(waiting_until) AS until
FROM sas.steps WHERE run_state <> 'stopped' AND waiting_kind <> 'steps' GROUP BY 1, 2;
SELECT count(*) > 5 AS several FROM each;
SELECT * FROM each EXCEPT SELECT waiting_kind, waiting_on, runs, steps, since, until FROM sas.explain();
\echo and each run is looked at once, not each of its steps
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('row', array_fill('{}'::jsonb, '{1000}'));
SELECT t.settle() \g /dev/null
SELECT runs, first = ARRAY(SELECT run_id FROM _sas.run ORDER BY run_id LIMIT 25) AS the_first FROM _sas.open_groups();
SELECT t.blocks('SELECT FROM sas.explain()') AS few, t.blocks($$SELECT count(waiting_kind), count(waiting_on) FROM sas.steps WHERE run_state <> 'stopped'$$) AS many \gset
SELECT :few * 3 < :many AS few, CASE WHEN :few * 3 >= :many THEN format('%s of %s', :few, :many) END AS of;
SELECT t.clean() \g /dev/null
