-- SPDX-License-Identifier: PostgreSQL
--
-- When: a step whose condition is false is skipped, with what depends on it or without.
SELECT t.clean() \g /dev/null
SELECT t.workflow('gate', '{
    "a": {"function": "t.echo"},
    "b": {"function": "t.echo", "when": "$.steps.a.output.amount > 100"},
    "c": {"function": "t.echo", "after": ["b"]},
    "d": {"function": "t.echo"}}', '{"output": {"b": "{{steps.b.state}}"}}') \g /dev/null
-- true: it is carried out after what it refers to
SELECT run_id FROM sas.submit('gate', '{"amount": 200}');
SELECT t.work();
SELECT t.brief(1), (SELECT output FROM sas.runs WHERE run_id = 1);
-- false: skipped; what comes after it only goes on; the run succeeds
SELECT run_id FROM sas.submit('gate', '{"amount": 100}');
SELECT t.work();
SELECT t.brief(2), (SELECT output FROM sas.runs WHERE run_id = 2);
-- neither true nor false: the step fails with place and path, and is decided like any failure
SELECT run_id FROM sas.submit('gate', '{"amount": "many"}');
SELECT t.work();
SELECT t.brief(3);
SELECT error FROM sas.steps WHERE run_id = 3 AND step = 'b';

-- skip_cascade: what depends on it, directly or not, is skipped; the rest goes on
SELECT t.clean() \g /dev/null
SELECT t.workflow('cascade', '{
    "a": {"function": "t.echo"},
    "b": {"function": "t.echo", "when": "$.input.go == true", "else": "skip_cascade"},
    "c": {"function": "t.echo", "after": ["b"]},
    "d": {"function": "t.echo", "after": ["c", "a"]},
    "e": {"function": "t.echo", "after": ["a"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('cascade', '{"go": false}');
-- one that has waited for another already is skipped, too
SELECT t.claim();
SELECT t.answer('a');
SELECT t.settle();
SELECT t.brief(1);
SELECT t.work();
SELECT t.brief(1);

-- a step that was skipped and a pause: what waits for thought is deferred, and thought about after resume
SELECT run_id FROM sas.submit('cascade', '{"go": true}');
SELECT changed, state FROM sas.pause(2);
SELECT t.work();
SELECT t.brief(2);
SELECT changed, state FROM sas.resume(2);
SELECT t.work();
SELECT t.brief(2);

-- paused before its condition was asked: it is asked after resume
SELECT run_id FROM sas.submit('cascade', '{"go": false}');
SELECT changed, state FROM sas.pause(3);
SELECT t.work();
SELECT changed, state FROM sas.resume(3);
SELECT t.work();
SELECT t.brief(3);

-- a cancelled run thinks no more
SELECT run_id FROM sas.submit('cascade', '{"go": true}');
SELECT changed, state FROM sas.cancel(4);
SELECT t.work();
SELECT t.brief(4);

-- a condition and cool-off: it is not asked again once the step has begun
SELECT t.workflow('again', '{"a": {"agent": "inventory", "call": {}, "when": "$.input.go == true", "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}, "b": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('again', '{"go": true}');
SELECT t.work('{"a": "doubt", "b": "permanent 402"}');
SELECT t.brief(5);
-- in doubt in a run that cannot go on: the call is repeated under its key, then undone
SELECT t.later('1 min');
SELECT t.work();
SELECT t.brief(5);
SELECT * FROM t.left_over();
