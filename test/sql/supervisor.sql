-- SPDX-License-Identifier: PostgreSQL
--
-- The supervisor takes back what dead, stuck or silent workers hold.
SELECT t.clean() \g /dev/null
SELECT t.workflow('call', '{"a": {"agent": "inventory", "call": {}, "complete_in": "30 s"}}') \g /dev/null
SELECT t.workflow('local', '{"f": {"function": "t.echo", "complete_in": "30 s"}}') \g /dev/null

-- A8 silent past complete-by: taken back, counted, in doubt, tried again
SELECT run_id FROM sas.submit('call');
SELECT t.claim('slow');
SELECT t.later('29.999 s') \g /dev/null
SELECT t.supervise();
SELECT t.later('0.001 s') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT attempt, worker, status, error ->> 'type' AS type, error ->> 'title' AS title, error ->> 'detail' AS detail, t.at(started_at) AS started, t.at(finished_at) AS finished FROM sas.attempts;
-- A8 dead: the same, at once
SELECT run_id FROM sas.submit('call');
SELECT t.claim('dead');
SELECT t.supervise();
UPDATE t.worker SET alive = false WHERE name = 'dead';
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(2);
SELECT worker, status, error ->> 'title' AS title FROM sas.attempts WHERE run_id = 2;
-- A13 claimed under another start of the server: the same, though a worker with that number lives
SELECT run_id FROM sas.submit('call');
SELECT t.worker('old') \g /dev/null
UPDATE t.worker SET boot = 0 WHERE name = 'old';
SELECT t.claim('old');
UPDATE t.worker SET boot = 1 WHERE name = 'old';
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(3);
-- a worker that was born after the look is not judged
SELECT run_id FROM sas.submit('call');
SELECT t.claim('young');
SELECT worked FROM _sas.supervisor_tick(1, '{}', (SELECT max(id) - 1 FROM t.worker), 100);
SELECT t.brief(4);
SELECT t.later('1 h'), t.work(), t.later('1 h'), t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- A9 only those of a batch whose window is over; the lease waits for the rest
SELECT t.clean() \g /dev/null
SELECT t.workflow('long', '{"a": {"agent": "inventory", "call": {}, "complete_in": "10 min"}}') \g /dev/null
SELECT run_id FROM sas.submit('call');
SELECT run_id FROM sas.submit('long');
SELECT t.claim();
SELECT t.later('30 s'), t.settle() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT next_by - sas.now() AS looks_again_in FROM _sas.lease;
SELECT t.answer('a', for_run => 2);
SELECT t.brief(2);

-- the windows of an undo: its worker dies, it is undone again
SELECT t.clean() \g /dev/null
SELECT t.workflow('undo', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('undo');
SELECT t.claim(), t.answer('a'), t.claim(), t.answer('b', 'permanent 400'), t.settle() \g /dev/null
SELECT t.claim('dead');
UPDATE t.worker SET alive = false WHERE name = 'dead';
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT step, undo, status FROM sas.attempts ORDER BY step, undo;
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT t.brief(1);

-- local work of a dead worker was rolled back: counted, never in doubt, run alone
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('local');
SELECT t.claim('dead');
UPDATE t.worker SET alive = false;
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT run_id FROM sas.submit('local');
SELECT t.claim('w'), (SELECT count(*) FROM t.held WHERE worker = 'w');
SELECT t.claim('w');
SELECT t.answer('f', for_run => 1, holder => 'w'), t.answer('f', for_run => 2, holder => 'w');
-- a worker that died with several in hand: nobody knows which one killed it; each is run alone, no failure counted
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('local', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.claim('dead');
UPDATE t.worker SET alive = false;
SELECT t.supervise();
SELECT run_id, state, attempt, failure_count, in_doubt FROM sas.steps ORDER BY 1;
SELECT t.claim('w1');
SELECT t.claim('w2');
-- alone, it kills again: now it is known, and counted; a time-out stays with its step
UPDATE t.worker SET alive = false WHERE name = 'w1';
SELECT t.settle() \g /dev/null
SELECT state, failure_count, count(*) FROM sas.steps GROUP BY 1, 2 ORDER BY 1, 2;
SELECT t.later('30 s') \g /dev/null
SELECT worked FROM _sas.supervisor_tick(1, ARRAY(SELECT id FROM t.worker WHERE alive), 99, 100);
SELECT t.later('1 h'), t.work(), t.later('1 h'), t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- a worker of calls that dies with several: each failure is counted
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('call', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.claim('dead');
UPDATE t.worker SET alive = false;
SELECT t.settle() \g /dev/null
SELECT run_id, state, attempt, failure_count, in_doubt FROM sas.steps ORDER BY 1;

-- A9 when it looks again: the nearest of windows and timers; with nothing open, never
SELECT t.clean() \g /dev/null
SELECT next_due FROM _sas.supervisor_tick(1, '{}', 0, 100);
SELECT run_id FROM sas.submit('call');
SELECT next_due - sas.now() AS next_due FROM _sas.supervisor_tick(1, '{}', 0, 100);
SELECT t.claim();
SELECT next_due - sas.now() AS next_due FROM _sas.supervisor_tick(1, '{1}', 1, 100);
SELECT t.answer('a');
SELECT next_due FROM _sas.supervisor_tick(1, '{1}', 1, 100);

-- more than one turn can take: the rest in the next
SELECT count(*) FROM sas.submit_batch('call', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 25)));
SELECT t.claim('dead', 1) FROM generate_series(1, 25) \g /dev/null
UPDATE t.worker SET alive = false;
SELECT worked FROM generate_series(1, 5) n, LATERAL _sas.supervisor_tick(1, '{}', 99 + n * 0, 10);
SELECT state, count(*) FROM sas.steps WHERE run_id > 1 GROUP BY 1;
