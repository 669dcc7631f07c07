-- SPDX-License-Identifier: PostgreSQL
--
-- Pause and resume.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "undo": {"call": {}}}, "c": {"agent": "shipping", "call": {}, "after": ["a"]}, "d": {"agent": "shipping", "call": {}, "after": ["b", "c"]}}') \g /dev/null

-- before its first claim: nothing is claimed; resumed, it is pending again
SELECT run_id FROM sas.submit('order');
SELECT * FROM sas.pause(1);
SELECT t.work();
SELECT * FROM t.show(1);
SELECT paused_by = current_user AS by_me, t.at(paused_at) AS at FROM sas.runs;
SELECT * FROM sas.resume(1);
SELECT paused_for, paused_by, paused_at FROM sas.runs;
-- in the middle: what is on its way is finished and counts, nothing new begins
SELECT t.claim();
SELECT changed, state FROM sas.pause(1);
SELECT t.answer('a'), t.answer('b');
SELECT t.work();
SELECT * FROM t.show(1);
SELECT changed, state FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- everything finished while paused: it stops when it is resumed
SELECT t.workflow('one', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT t.claim();
SELECT changed FROM sas.pause(2);
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(2);
SELECT changed, state, result FROM sas.resume(2);

-- a failure while paused: the pause holds, whatever on_failure says
SELECT t.clean() \g /dev/null
SELECT t.workflow('bad_' || p, jsonb_build_object('a', '{"agent": "inventory", "call": {}, "undo": {"call": {}}}'::jsonb,
    'b', jsonb_build_object('agent', 'payments', 'call', '{}'::jsonb, 'after', '["a"]'::jsonb, 'on_failure', p))) FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT p FROM unnest('{compensate,pause,skip,fail}'::text[]) p, sas.submit('bad_' || p);
SELECT t.claim(); SELECT t.answer('a', for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.claim();
SELECT changed FROM sas.pause_runs('{1,2,3,4}'::bigint[]);
SELECT t.answer('b', 'permanent 400', for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.work();
SELECT workflow, t.brief(run_id) FROM sas.runs ORDER BY run_id;
-- and resumed, each ends
SELECT changed, state, result FROM sas.resume_runs('{1,2,3,4}'::bigint[]);
SELECT t.work();
SELECT workflow, t.brief(run_id) FROM sas.runs ORDER BY run_id;
SELECT * FROM t.left_over();

-- claimed while the operator's session held the run, so that the claim could not say that it runs: resumed, it stops all the same
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT t.claim();
SET session_replication_role = replica;
UPDATE _sas.run SET state = 'pending', started_at = NULL;
RESET session_replication_role;
SELECT changed FROM sas.pause(1);
SELECT t.answer('a');
SELECT changed, state, result FROM sas.resume(1);

-- a transient failure cools off; its time comes while paused; resumed, it goes on
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT t.work('{"a": "transient 503"}');
SELECT changed FROM sas.pause(1);
SELECT * FROM t.show(1);
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT * FROM t.show(1);
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
-- resumed before its time: it waits for its time
SELECT run_id FROM sas.submit('one');
SELECT t.work('{"a": "transient 503"}');
SELECT changed FROM sas.pause(2);
SELECT changed FROM sas.resume(2);
SELECT t.work();
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT t.brief(2);

-- an undo can be paused: the one on its way is finished, the next waits
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('a'), t.answer('b') \g /dev/null
SELECT t.claim(), t.answer('c', 'permanent 400'), t.settle() \g /dev/null
SELECT t.claim();
SELECT changed, state FROM sas.pause(1);
SELECT t.settle(), t.claim();
SELECT * FROM t.show(1);
SELECT changed, state FROM sas.resume(1);
SELECT t.settle(), t.claim();
SELECT changed, state FROM sas.pause(1);
SELECT t.answer('b');
SELECT t.work();
SELECT * FROM t.show(1);
SELECT changed, state FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();
-- an undo that cools off, paused until after its time
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('a'), t.answer('b') \g /dev/null
SELECT t.work('{"c": "permanent 400", "undo b": "transient 503"}');
SELECT changed, state FROM sas.pause(2);
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT changed, state FROM sas.resume(2);
SELECT t.work();
SELECT t.brief(2);

-- a scheduled run
SELECT run_id FROM sas.submit('one', start_at => sas.now() + interval '1 h');
SELECT changed, state FROM sas.pause(3);
SELECT changed, state FROM sas.resume(3);
SELECT changed, state FROM sas.pause(3);
SELECT t.later('2 h') \g /dev/null
SELECT t.work();
SELECT changed, state FROM sas.resume(3);
SELECT t.work();
SELECT t.brief(3);

-- refusals: said run by run, the others are done
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT t.work();
SELECT run_id FROM sas.submit('one');
SELECT run_id FROM sas.submit('one');
SELECT changed FROM sas.pause(3);
SELECT * FROM sas.pause_runs(ARRAY[3, 1, 2, 2, 77, NULL]);
SELECT run_id FROM sas.submit('one');
SELECT * FROM sas.resume_runs(ARRAY[1, 2, 4, 77]);
SELECT * FROM sas.pause_runs('{}'::bigint[]);
-- a run of somebody else is as if it were not there
CREATE ROLE sas_test_other;
SELECT sas.grant_usage('sas_test_other', 'user') \g /dev/null
SET ROLE sas_test_other;
SELECT * FROM sas.pause(2);
SELECT * FROM sas.resume(3);
SELECT * FROM sas.cancel(3);
SELECT * FROM sas.retry(3);
RESET ROLE;
SELECT run_id, act FROM sas.history ORDER BY at, run_id, act;
