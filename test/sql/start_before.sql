-- SPDX-License-Identifier: PostgreSQL
--
-- start_before: a run that has not begun by then never does.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "complete_in": "1 day"}, "z": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
\echo one that has begun in time goes on after it
SELECT run_id FROM sas.submit('order', start_before => t.start() + interval '1 h');
SELECT t.claim();
SELECT t.later('2 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(1);
\echo one that no worker has taken by then stops, with nothing called
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order', start_before => t.start() + interval '1 h');
SELECT next_due - sas.now() AS next_due FROM _sas.scheduler_tick(10);
SELECT t.later('59 min 59 s') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT state FROM sas.runs;
SELECT t.later('1 s') \g /dev/null
SELECT t.work();
SELECT state, result, error - 'instance' AS error, started_at, t.at(finished_at) AS finished_at FROM sas.runs;
SELECT t.brief(1);
SELECT * FROM t.left_over();
\echo one that is scheduled: both times passed while nobody was there
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '2 h');
SELECT t.later('3 h') \g /dev/null
SELECT t.work();
SELECT t.brief(2);
\echo ... even when the message of start_at is seen first
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '2 h');
SELECT t.later('3 h') \g /dev/null
SELECT _sas.scheduler_tick(1) IS NOT NULL AS ticked;
SELECT state, error ->> 'title' AS title FROM sas.runs WHERE run_id = 3;
SELECT t.work();
\echo one that waits for an earlier run; one that waits for its place
SELECT t.workflow('one', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "all"}}') \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT run_id FROM sas.submit('one', start_before => sas.now() + interval '1 min');
SELECT run_id FROM sas.submit('order', after_run => 4, start_before => sas.now() + interval '1 min');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT run_id, waits_for FROM sas.runs WHERE state = 'scheduled' ORDER BY 1;
SELECT t.later('1 min') \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT run_id, state, result, error ->> 'title' AS title FROM sas.runs WHERE run_id >= 4 ORDER BY 1;
\echo one that is paused before it began stops as well; one paused after it began does not
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order', start_before => sas.now() + interval '1 min');
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '30 s', start_before => sas.now() + interval '1 min');
SELECT run_id FROM sas.submit('order', start_before => sas.now() + interval '1 min');
SELECT t.claim(quantity => 1);
SELECT run_id, changed, state FROM sas.pause_runs(ARRAY[1, 2, 3]);
SELECT t.later('1 min') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT run_id, state, result, error ->> 'title' AS title FROM sas.runs ORDER BY 1;
SELECT t.answer('a');
SELECT run_id, state FROM sas.resume_runs(ARRAY[1, 2, 3]);
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
\echo a claim that comes after start_before gets nothing of a run that has not begun, even if it is quicker than the scheduler
SELECT run_id FROM sas.submit('order', start_before => sas.now() + interval '1 min');
SELECT run_id FROM sas.submit('order');
SELECT t.later('1 min') \g /dev/null
SELECT t.claim();
SELECT t.settle() \g /dev/null
SELECT t.brief(4);
SELECT t.answer('a');
SELECT t.work();
SELECT * FROM t.left_over();
\echo one before start_at is refused; one in the past is taken and stops, recorded
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '59 min');
SELECT run_id FROM sas.submit('order', start_before => sas.now() - interval '1 h');
SELECT t.work();
SELECT state, result, error ->> 'title' AS title FROM sas.runs ORDER BY run_id DESC LIMIT 1;
\echo so does one at start_at, once it is that time
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '1 h');
SELECT t.work();
SELECT state FROM sas.runs ORDER BY run_id DESC LIMIT 1;
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT state, result, error ->> 'title' AS title FROM sas.runs ORDER BY run_id DESC LIMIT 1;
SELECT * FROM t.left_over();
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h', start_before => sas.now() + interval '2 h');
SELECT changed, refused FROM sas.set_start_at((SELECT max(run_id) FROM sas.runs), sas.now() + interval '2 h 1 s');
SELECT changed, refused FROM sas.set_start_at((SELECT max(run_id) FROM sas.runs), sas.now() + interval '2 h');
\echo a first step that the scheduler lets begin (a wait) counts as well
SELECT t.clean() \g /dev/null
SELECT t.workflow('waits', '{"w": {"wait": {"for": "1 h"}}}') \g /dev/null
SELECT run_id FROM sas.submit('waits', start_before => sas.now() + interval '1 min');
SELECT run_id FROM sas.submit('waits', start_before => sas.now() + interval '3 min');
SELECT t.later('2 min') \g /dev/null
SELECT _sas.scheduler_tick(1) IS NOT NULL AS ticked;
SELECT t.settle() \g /dev/null
SELECT run_id, state, result, error ->> 'title' AS title FROM sas.runs ORDER BY 1;
SELECT t.later('2 min') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.brief(2);
\echo SP12 runs spread over a window: each begins at its time if there is a place for it, and not at all once the window is over
SELECT t.clean() \g /dev/null
SELECT t.workflow('spread', '{"a": {"function": "t.echo"}}', '{"concurrency": {"key": "all", "limit": 2}}') \g /dev/null
SELECT count(s.run_id) FROM generate_series(0, 4) g CROSS JOIN LATERAL sas.submit('spread', start_at => sas.now() + g * interval '2 s', start_before => sas.now() + interval '10 s') s;
SELECT t.settle(), t.claim();
SELECT t.later('2 s'), t.settle(), t.claim();
SELECT t.later('2 s'), t.settle(), t.claim() AS both_places_are_taken;
SELECT t.answer('a', for_run => 1), t.settle(), t.claim();
SELECT t.later('6 s') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT run_id, state, result, error ->> 'title' AS title FROM sas.runs ORDER BY 1;
SELECT t.work();
SELECT * FROM t.left_over();
