-- SPDX-License-Identifier: PostgreSQL
--
-- Pivot: once it has succeeded, later failures pause the run instead of
-- undoing it.
SELECT t.clean() \g /dev/null
SELECT t.workflow('pivoted', '{
    "a": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "p": {"agent": "payments", "call": {}, "after": ["a"], "pivot": true, "undo": {"call": {}}},
    "z": {"agent": "shipping", "call": {}, "after": ["p"]}}', '{"on_failure": "compensate"}') \g /dev/null
-- before it: undone
SELECT f.* FROM t.try('pivoted', '{"p": "permanent 400"}') f;
-- after it: paused, with an alert, nothing undone
SELECT f.* FROM t.try('pivoted', '{"z": "permanent 400"}') f;
SELECT * FROM t.alerts();
SELECT * FROM sas.retry(2, 'z');
SELECT t.work();
SELECT t.brief(2);
-- skip and fail are as they were asked for
SELECT t.workflow('pivot_' || p, jsonb_build_object('p', '{"agent": "payments", "call": {}, "pivot": true, "undo": {"call": {}}}'::jsonb,
    'z', jsonb_build_object('agent', 'shipping', 'call', '{}'::jsonb, 'after', '["p"]'::jsonb, 'on_failure', p))) FROM unnest('{skip,fail,pause}'::text[]) p \g /dev/null
SELECT p, f.* FROM unnest('{skip,fail,pause}'::text[]) p, t.try('pivot_' || p, '{"z": "permanent 400"}') f;
-- the deadline after it pauses
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('pivoted', deadline => '1 h');
SELECT t.claim(), t.answer('a'), t.claim(), t.answer('p') \g /dev/null
SELECT t.later('1 h'), t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT * FROM t.alerts();
-- an operator's cancel undoes, also after it
SELECT changed, state FROM sas.cancel(1, 'enough');
SELECT t.work();
SELECT t.brief(1);
-- the pivot of a child is about the child's own failures: a parent that is undone undoes it, unless its step is a
-- pivot, too
SELECT t.clean() \g /dev/null
SELECT t.workflow('parent_' || p, jsonb_build_object('c', jsonb_build_object('workflow', 'pivoted', 'input', '{}'::jsonb, 'pivot', p),
    'last', '{"agent": "inventory", "call": {}, "after": ["c"]}'::jsonb), '{"on_failure": "compensate"}') FROM unnest('{false,true}'::bool[]) p \g /dev/null
SELECT p, f.* FROM unnest('{false,true}'::bool[]) p, t.try('parent_' || p, '{"last": "permanent 400"}') f;
