-- SPDX-License-Identifier: PostgreSQL
--
-- Edges: what would leave a run standing, or lose something, where two things meet.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null

-- a signal that came in time counts, also when the scheduler looks only after the time-out
SELECT t.workflow('late_look', '{"a": {"wait": {"signal": "go", "timeout": "10 s"}}}') \g /dev/null
SELECT run_id FROM sas.submit('late_look');
SELECT t.settle(), t.later('5 s');
SELECT sas.signal(1, 'go', '{"x": 1}'), t.later('10 s');
SELECT t.work(), t.brief(1);

-- a pause does not hurry a step that repeats: its next turn comes when it was to come
SELECT t.workflow('paced', '{"a": {"agent": "inventory", "call": {}, "repeat": {"while": "$.index < 3", "every": "10 s"}}}') \g /dev/null
SELECT run_id FROM sas.submit('paced');
SELECT t.work(), t.later('5 s');
SELECT changed, state FROM sas.pause(2);
SELECT changed, state FROM sas.resume(2);
SELECT t.work(), waiting_until - sas._now() AS next_turn_in FROM sas.steps WHERE run_id = 2 AND element IS NULL;
SELECT t.later('5 s');
SELECT t.work(), t.later('5 s');
SELECT t.work(), t.later('5 s');
SELECT t.work(), t.brief(2);
-- and one that is cancelled meanwhile leaves no timer behind
SELECT run_id FROM sas.submit('paced');
SELECT t.work();
SELECT changed, state FROM sas.cancel(3);
SELECT t.work(), t.brief(3);
SELECT * FROM t.left_over();

-- in doubt when its failure was skipped: it is undone when the run cannot go on
SELECT t.clean() \g /dev/null
SELECT t.workflow('doubtful', '{
    "a": {"agent": "inventory", "call": {}, "on_failure": "skip", "recovery": {"max_failures": 1}, "undo": {"call": {"path": "/{{steps.a.key}}"}}},
    "b": {"agent": "payments", "call": {}, "on_failure": "skip", "recovery": {"max_failures": 1}, "after": ["a"], "undo": {"call": {"path": "/{{steps.b.output.body.id}}"}}},
    "c": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT * FROM t.try('doubtful', '{"a": "doubt", "b": "doubt", "c": "permanent 422"}');
-- the outcome of b must be known first: it is asked until it is
SELECT changed, state FROM sas.resume(1);
SELECT t.work(), t.brief(1);
-- one that ends well leaves it as it is
SELECT * FROM t.try('doubtful', '{"a": "doubt", "b": "doubt"}');
SELECT * FROM t.left_over();

-- a task may return what it likes: "status" means nothing there
SELECT sas.create_agent('robots', kind => 'external') \g /dev/null
SELECT t.workflow('robot', '{"a": {"agent": "robots", "task": {}, "expect": "$.output.status == \"well\""}}') \g /dev/null
SELECT run_id FROM sas.submit('robot');
SELECT t.settle();
SELECT sas.complete(request_id, '{"status": "ill"}') FROM sas.claim('robots', 'r2');
SELECT t.settle(), t.brief(3);
SELECT error ->> 'title' AS title, error -> 'status' AS status FROM sas.steps WHERE run_id = 3;

-- priorities add up on the way to a child, and never keep it from beginning
SELECT t.workflow('child', '{"a": {"agent": "inventory", "call": {}}}', '{"priority": 600}') \g /dev/null
SELECT t.workflow('parent', '{"a": {"workflow": "child"}}', '{"priority": 600}') \g /dev/null
SELECT run_id FROM sas.submit('parent', priority => 600);
SELECT t.work(), t.brief(4);

-- a run that was paused for its deadline has that of its workflow anew when it is resumed: every run has an end
SELECT t.workflow('endless', '{"a": {"wait": {"signal": "never"}}}', '{"deadline": "1 min", "on_failure": "pause"}') \g /dev/null
SELECT run_id FROM sas.submit('endless');
SELECT t.work(), t.later('1 min');
SELECT t.work(), t.brief(6);
SELECT t.later('1 hour');
SELECT changed, state FROM sas.resume(6);
SELECT deadline - sas._now() AS time_left FROM sas.runs WHERE run_id = 6;
SELECT t.work(), t.brief(6), t.later('1 min');
SELECT t.work(), t.brief(6);
-- resumed before its deadline it has the rest
SELECT changed, state FROM sas.resume(6);
SELECT t.work(), t.later('20 s');
SELECT changed, state FROM sas.pause(6);
SELECT changed, state FROM sas.resume(6);
SELECT deadline - sas._now() AS time_left FROM sas.runs WHERE run_id = 6;
SELECT changed, state FROM sas.cancel(6);
SELECT t.work(), t.brief(6);

-- instants that never come, and spans without end, are refused
SELECT run_id FROM sas.submit('child', start_at => 'infinity');
SELECT run_id FROM sas.submit('child', start_before => 'infinity');
SELECT run_id FROM sas.submit('child', start_at => '200000-01-01');
SELECT run_id FROM sas.submit('child', deadline => '300000 years');
-- so are numbers that are whole and do not look it, and weights that vanish
SELECT path, problem FROM sas.validate_workflow('{"recovery": {"max_failures": 3.0}, "priority": 1.0, "steps": {
    "a": {"agent": "inventory", "call": {}, "each": "{{input.l}}", "concurrency": 5.0, "retry": {"max_attempts": 2.00}, "weight": 1e-400}}}') ORDER BY 1;
SELECT * FROM t.left_over();
