-- SPDX-License-Identifier: PostgreSQL
--
-- after_run: a run that follows another.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('later', '{"b": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT t.workflow('fails', '{"x": {"agent": "inventory", "call": {}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT t.workflow('skips', '{"x": {"agent": "inventory", "call": {}, "on_failure": "skip"}}') \g /dev/null
\echo it stays scheduled until that run has stopped, and begins then
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('later', after_run => 1);
SELECT run_id FROM sas.submit('later', after_run => 2);
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT run_id, state, after_run, waits_for FROM sas.runs ORDER BY 1;
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT run_id, state, after_run, waits_for FROM sas.runs ORDER BY 1;
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
\echo who follows whom is seen from both sides
SELECT run_id FROM sas.runs WHERE after_run = 2;
\echo after one that has ended already
SELECT run_id FROM sas.submit('later', after_run => 1);
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id = 4;
\echo after one that failed or was cancelled it stops, and says which
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('fails');
SELECT run_id FROM sas.submit('later', after_run => 1);
SELECT run_id FROM sas.submit('later', after_run => 2);
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit('later', after_run => 4);
SELECT t.work('{"x": "permanent 400"}');
SELECT state FROM sas.cancel(4);
SELECT t.work();
SELECT run_id, state, result, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.runs ORDER BY 1;
\echo unless it was said otherwise
SELECT run_id FROM sas.submit('later', after_run => 1, after_result => '{error,cancelled}');
SELECT run_id FROM sas.submit('later', after_run => 4, after_result => '{success,warning,error,compensated,cancelled}');
SELECT run_id FROM sas.submit('skips');
SELECT run_id FROM sas.submit('later', after_run => 8);
SELECT run_id FROM sas.submit('later', after_run => 8, after_result => '{success}');
SELECT run_id FROM sas.submit('later', after_run => 8, after_result => '{compensated}');
SELECT t.work('{"x": "permanent 400"}');
SELECT run_id, state, result, error ->> 'title' AS title FROM sas.runs WHERE run_id > 5 ORDER BY 1;
SELECT * FROM t.left_over();
\echo after a paused run it waits
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('later', after_run => 1);
SELECT state FROM sas.pause(1);
SELECT t.later('1 day') \g /dev/null
SELECT t.work();
SELECT state FROM sas.runs WHERE run_id = 2;
SELECT state FROM sas.resume(1);
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id = 2;
\echo start_at and the pause of its own hold one that nothing else keeps
SELECT run_id FROM sas.submit('later', after_run => 1, start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit('later', after_run => 1, start_at => sas.now() + interval '1 h');
SELECT state FROM sas.pause(4);
SELECT t.work();
SELECT run_id, state, waits_for FROM sas.runs WHERE run_id > 2 ORDER BY 1;
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT run_id, state, result FROM sas.runs WHERE run_id > 2 ORDER BY 1;
SELECT state FROM sas.resume(4);
SELECT t.work();
SELECT run_id, state, result FROM sas.runs WHERE run_id > 2 ORDER BY 1;
\echo one that failed while start_at is ahead is told at once
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('fails');
SELECT run_id FROM sas.submit('later', after_run => 1, start_at => sas.now() + interval '1 h');
SELECT t.work('{"x": "permanent 400"}');
SELECT state, result FROM sas.runs WHERE run_id = 2;
\echo a batch
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit_batch('later', ARRAY['{}', '{}']::jsonb[], after_run => 3);
SELECT t.work();
SELECT run_id, state, result FROM sas.runs WHERE run_id > 3 ORDER BY 1;
\echo the deadline counts while it waits
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('later', after_run => 6, deadline => '1 h');
SELECT t.later('1 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT state, result, error ->> 'title' AS title FROM sas.runs WHERE run_id = 7;
\echo after several: it begins when the last of them has stopped
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order'), generate_series(1, 1);
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('fails');
SELECT run_id FROM sas.submit('later', after_run => 1, after_runs => '{2,1}');
SELECT run_id FROM sas.submit('later', after_runs => '{1,2,3}', start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit_batch('later', '{"{}","{}"}', after_runs => '{2,3}', after_result => '{success,error}');
SELECT t.settle() \g /dev/null
SELECT run_id, state, after_run, after_runs, waits_for FROM sas.runs WHERE run_id > 3 ORDER BY 1;
SELECT step, waiting_kind, waiting_on FROM sas.steps WHERE run_id = 5;
SELECT text FROM sas.explain(4) UNION ALL SELECT text FROM sas.explain(5);
SELECT state FROM sas.pause(2);
SELECT t.work('{"x": "permanent 400"}');
SELECT run_id, state, result, waits_for, error ->> 'title' AS title FROM sas.runs ORDER BY 1;
SELECT step, waiting_kind, waiting_on FROM sas.steps WHERE run_id = 4;
SELECT text FROM sas.explain(4);
SELECT state FROM sas.resume(2);
SELECT t.work();
SELECT run_id, state, result FROM sas.runs WHERE run_id > 3 ORDER BY 1;
SELECT * FROM t.left_over();
\echo none of them, and what is refused
SELECT run_id AS run FROM sas.submit('later', after_runs => '{}') \gset
SELECT state, after_runs FROM sas.runs WHERE run_id = :run;
SELECT run_id FROM sas.submit('later', after_runs => '{1,99}');
SELECT run_id FROM sas.submit('later', after_runs => '{99}');
SELECT run_id FROM sas.submit('later', after_run => 99, after_runs => '{1}');
SELECT run_id FROM sas.submit('later', after_run => 99, after_runs => '[0:2]={1,98,97}'::bigint[]);
SELECT run_id FROM sas.submit('later', after_runs => ARRAY(SELECT generate_series(101, 200)));
SELECT run_id FROM sas.submit('later', after_runs => '{1,null}');
SELECT run_id FROM sas.submit('later', after_runs => '{{1,2}}');
SELECT run_id FROM sas.submit('later', after_runs => ARRAY(SELECT 1 FROM generate_series(1, 1001)));
SELECT count(*) FROM sas.runs;
\echo another time for a run that has not begun
SELECT t.clean() \g /dev/null
SELECT t.workflow('timed', '{"a": {"agent": "inventory", "call": {}}}', '{"deadline": "2 hours"}') \g /dev/null
SELECT run_id FROM sas.submit('timed', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '5 h') \gset
SELECT t.settle() \g /dev/null
SELECT changed, state, refused FROM sas.set_start_at(:run_id, sas.now() + interval '3 h');
SELECT t.at(start_at), t.at(deadline), waits_for FROM sas.runs WHERE run_id = :run_id;
SELECT t.later('1 h'); SELECT t.settle(), t.claim();
\echo it comes earlier; never after start_before
SELECT changed, state, replace(refused, 'run ' || :run_id, 'the run') AS refused FROM sas.set_start_at(:run_id, sas.now() + interval '4 h 1 s');
SELECT changed, state FROM sas.set_start_at(:run_id, sas.now() + interval '10 min');
SELECT t.later('10 min'); SELECT t.work();
SELECT result FROM sas.runs WHERE run_id = :run_id;
SELECT changed, replace(refused, 'run ' || :run_id, 'the run') AS refused FROM sas.set_start_at(:run_id, sas.now());
SELECT * FROM t.left_over();
\echo at once; while it is paused; what else it waits for stays
SELECT run_id FROM sas.submit('timed', start_at => sas.now() + interval '1 day') \gset
SELECT run_id AS follows FROM sas.submit('timed', after_run => :run_id, start_at => sas.now() + interval '2 days') \gset
SELECT t.settle() \g /dev/null
SELECT changed FROM sas.pause(:run_id);
SELECT run_id = :run_id AS first, changed, state, refused FROM sas.set_start_at_runs(ARRAY[:run_id, :follows], NULL) ORDER BY run_id;
SELECT t.settle(), t.claim();
SELECT t.at(start_at), t.at(deadline), waits_for FROM sas.runs WHERE run_id = :follows;
SELECT changed FROM sas.resume(:run_id);
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id IN (:run_id, :follows);
SELECT sas.set_start_at(1, 'infinity');
SELECT count(*), min(detail ->> 'start_at') AS no_time FROM sas.history WHERE act = 'set_start_at' AND run_id = :follows;
SELECT * FROM t.left_over();
SELECT t.clean(), sas.drop_workflow('timed') \g /dev/null
\echo results without earlier runs have no effect, but are checked; a list of runs may be empty
SELECT t.clean() \g /dev/null
SELECT created FROM sas.submit('order', after_run => NULL, after_result => '{error}');
SELECT created FROM sas.submit_batch('order', '{"{}"}', after_result => '{error}');
SELECT * FROM sas.submit('order', after_result => '{eror}');
SELECT state FROM sas.runs;
SELECT created FROM sas.submit('order', after_runs => '{}', after_result => '{error}');
SELECT created FROM sas.submit('order', after_result => '{success,warning}');
SELECT * FROM sas.submit('order', after_runs => '{1}', after_result => '{error,eror}');
