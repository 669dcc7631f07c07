-- SPDX-License-Identifier: PostgreSQL
--
-- Cancel: calls on their way are stopped, what has not begun never does, what
-- is done or in doubt is undone, the result is cancelled.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "undo": {"call": {"path": "/{{steps.b.key}}"}}}, "c": {"agent": "shipping", "call": {}, "after": ["a", "b"]}}') \g /dev/null

-- before it began
SELECT run_id FROM sas.submit('order');
SELECT * FROM sas.cancel(1, 'wrong address');
SELECT t.work();
SELECT t.brief(1);
SELECT error FROM sas.runs;
-- with one done, one on its way: that is stopped, and may have been carried out; its late reply does not count
SELECT run_id FROM sas.submit('order');
SELECT t.claim('other'), t.answer('a');
SELECT changed, state, result FROM sas.cancel(2);
SELECT t.schedule() > 0 AS revoked;
SELECT * FROM t.show(2);
SELECT step, attempt, status, error ->> 'title' AS title FROM sas.attempts WHERE run_id = 2 ORDER BY step;
SELECT t.answer('b');
SELECT name, stale_replies FROM sas.agents WHERE stale_replies > 0;
SELECT t.work();
SELECT t.brief(2);
-- one that cools off in doubt
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('a', 'transient 503'), t.answer('b', 'doubt'), t.settle() \g /dev/null
SELECT changed FROM sas.cancel(3);
SELECT t.work();
SELECT t.brief(3);
-- paused, scheduled, paused for a failed step
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('a'), t.answer('b') \g /dev/null
SELECT changed FROM sas.pause(4);
SELECT changed FROM sas.cancel(4);
SELECT t.work();
SELECT t.brief(4);
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 day');
SELECT changed FROM sas.cancel(5);
SELECT t.work();
SELECT t.brief(5);
SELECT t.workflow('stuck', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": "pause"}}') \g /dev/null
SELECT f.* FROM t.try('stuck', '{"b": "permanent 400"}') f;
SELECT changed FROM sas.cancel(6, 'give up');
SELECT t.work();
SELECT t.brief(6);
-- refused: has ended, or is being undone already
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('a') \g /dev/null
SELECT run_id, changed, state, refused FROM sas.cancel(7);
SELECT run_id, changed, state, refused FROM sas.cancel_runs(ARRAY[7, 6, 1]);
SELECT t.work();
SELECT t.brief(7);
-- an undo that needs the output: what was stopped is called once more, under its key, so that its outcome is known
SELECT t.workflow('needs', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('needs');
SELECT t.claim();
SELECT changed FROM sas.cancel(8);
DELETE FROM t.held;
SELECT t.settle(), t.claim();
SELECT undo, key = (SELECT idempotency_key FROM sas.steps WHERE run_id = 8) AS same_key FROM t.held;
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(8);
-- functions: one whose claim is revoked never counts; what is in a queue, or waits for a signal, is cancelled
SELECT t.workflow('local', '{"f": {"function": "t.echo", "undo": {"function": "t.echo"}}, "w": {"wait": {"signal": "go"}}, "g": {"function": "t.echo", "after": ["w"]}}') \g /dev/null
SELECT run_id FROM sas.submit('local');
SELECT t.settle(), t.claim();
SELECT changed FROM sas.cancel(9);
SELECT state, locked_by IS NOT NULL AS held FROM sas.steps WHERE run_id = 9 AND step = 'f';
SELECT t.schedule();
SELECT state, locked_by IS NOT NULL AS held FROM sas.steps WHERE run_id = 9 AND step = 'f';
SELECT t.answer('f', 'done', '{}');
SELECT t.work();
SELECT t.brief(9);
SELECT sas.signal(9, 'go');
SELECT run_id, act, detail FROM sas.history WHERE run_id IS NOT NULL ORDER BY run_id, act;
-- the timers of cancelled runs, which were scheduled or cooled off, mean nothing
SELECT t.later('1 day') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();
