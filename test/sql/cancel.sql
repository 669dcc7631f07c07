-- SPDX-License-Identifier: PostgreSQL
--
-- Cancel: what has not begun never does, what is done or in doubt is undone,
-- the result is cancelled.
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "undo": {"call": {"path": "/{{steps.b.key}}"}}}, "c": {"agent": "shipping", "call": {}, "after": ["a", "b"]}}') \g /dev/null

-- before it began
SELECT run_id FROM sas.submit('order');
SELECT * FROM sas.cancel(1, 'wrong address');
SELECT t.work();
SELECT t.brief(1);
SELECT error FROM sas.runs;
-- with one done, one on its way that fails in doubt
SELECT run_id FROM sas.submit('order');
SELECT t.claim('other'), t.answer('a');
SELECT changed, state, result FROM sas.cancel(2);
SELECT * FROM t.show(2);
SELECT t.work();
SELECT t.answer('b', 'doubt');
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
SELECT run_id FROM sas.submit('order', start_at => sas._now() + interval '1 day');
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
SELECT run_id, changed, state, refused FROM sas.cancel(ARRAY[7, 6, 1]);
SELECT t.answer('b');
SELECT t.work();
SELECT t.brief(7);
SELECT run_id, act, detail FROM sas.history ORDER BY run_id, act;
-- the timers of cancelled runs, which were scheduled or cooled off, mean nothing
SELECT t.later('1 day') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();
