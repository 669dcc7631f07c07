-- SPDX-License-Identifier: PostgreSQL
--
-- set_version: open runs go on with another version of their workflow.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE VIEW t.now_at AS SELECT r.run_id, r.version, r.state AS run, s.step, s.state, s.waiting_on FROM sas.runs r LEFT JOIN sas.steps s ON s.run_id = r.run_id AND s.element IS NULL WHERE r.parent_run_id IS NULL ORDER BY r.run_id, s.position;
\echo steps come before, beside and after those that have not begun; their numbers are others
SELECT t.workflow('sv_flow', '{"m": {"agent": "inventory", "call": {}}, "n": {"agent": "payments", "call": {}, "after": ["m"]}, "o": {"agent": "shipping", "call": {}, "after": ["n"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_flow') \gset
SELECT t.claim(); SELECT t.answer('m'); SELECT t.settle() \g /dev/null
SELECT t.workflow('sv_flow', '{"a": {"agent": "inventory", "call": {}}, "m": {"agent": "inventory", "call": {}}, "k": {"agent": "inventory", "call": {}, "after": ["m", "a"]}, "n": {"agent": "payments", "call": {"body": 1}, "after": ["k"]}, "z": {"function": "t.echo", "after": ["m"]}}', '{"output": {"n": "{{steps.n.output.status}}"}}') \g /dev/null
SELECT * FROM sas.set_version(:run_id);
SELECT * FROM t.now_at;
SELECT act, detail FROM sas.history WHERE act = 'set_version';
SELECT t.work();
SELECT state, result, output FROM sas.runs WHERE run_id = :run_id;
SELECT step, state FROM sas.steps WHERE run_id = :run_id ORDER BY position;
SELECT * FROM t.left_over();
\echo back to an older version, by its number; one that it has, one that is not there, one that has stopped
SELECT run_id FROM sas.submit('sv_flow') \gset
SELECT changed, refused FROM sas.set_version(:run_id, 1);
SELECT changed, refused FROM sas.set_version(:run_id, 1);
SELECT changed, refused FROM sas.set_version(:run_id, 7);
SELECT t.work();
SELECT step, state FROM sas.steps WHERE run_id = :run_id ORDER BY position;
SELECT changed, refused FROM sas.set_version(:run_id);
SELECT changed, refused FROM sas.set_version(99);
SELECT * FROM t.left_over();
\echo not while a step is claimed
SELECT run_id FROM sas.submit('sv_flow') \gset
SELECT t.claim();
SELECT changed, refused FROM sas.set_version(:run_id, 1);
SELECT changed, refused FROM sas.set_version_runs(ARRAY[:run_id], 1);
SELECT t.answer('m'), t.answer('a'); SELECT t.settle() \g /dev/null
\echo nor where what has begun is another
SELECT changed, refused FROM sas.set_version(:run_id, 1);
SELECT t.work() \g /dev/null
SELECT t.workflow('sv_begun', '{"a": {"agent": "inventory", "call": {}}, "w": {"wait": {"signal": "go"}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_begun') \gset
SELECT t.work();
CREATE FUNCTION t.refused(run_id bigint, steps jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.workflow('sv_begun', steps);
    RETURN (SELECT refused FROM sas.set_version($1));
END $$;
SELECT t.refused(:run_id, '{"w": {"wait": {"signal": "go"}}}');
SELECT t.refused(:run_id, '{"a": {"function": "t.echo"}, "w": {"wait": {"signal": "go"}, "after": ["a"]}}');
SELECT t.refused(:run_id, '{"a": {"agent": "payments", "call": {}}, "w": {"wait": {"signal": "go"}, "after": ["a"]}}');
SELECT t.refused(:run_id, '{"a": {"agent": "inventory", "call": {"path": "/b"}}, "w": {"wait": {"signal": "go"}, "after": ["a"]}}');
SELECT t.refused(:run_id, '{"a": {"agent": "inventory", "call": {}}, "w": {"wait": {"signal": "gone"}, "after": ["a"]}}');
SELECT t.refused(:run_id, '{"a": {"agent": "inventory", "call": {}}, "w": {"wait": {"signal": "go"}}}');
SELECT t.refused(:run_id, '{"a": {"agent": "inventory", "call": {}}, "w": {"wait": {"signal": "go"}, "after": ["a"], "each": "{{input.x}}"}}');
\echo a wait that has begun goes on, as does its signal
SELECT t.refused(:run_id, '{"a": {"agent": "inventory", "call": {}, "retry": {"max_attempts": 2}}, "aa": {"function": "t.echo"}, "w": {"wait": {"signal": "go"}, "after": ["a"]}, "x": {"agent": "payments", "call": {}, "after": ["w"]}}');
SELECT sas.signal(:run_id, 'go');
SELECT t.work();
SELECT result FROM sas.runs WHERE run_id = :run_id;
SELECT * FROM t.left_over();
\echo a token that was handed out before is good after
SELECT t.workflow('sv_token', '{"ask": {"agent": "inventory", "call": {"body": {"end_with": "{{steps.w.token}}"}}}, "w": {"wait": {"signal": "go"}, "after": ["ask"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_token') \gset
SELECT t.claim();
SELECT asked #>> '{body,end_with}' AS token FROM t.held \gset
SELECT t.answer('ask'); SELECT t.work() \g /dev/null
SELECT t.workflow('sv_token', '{"a": {"function": "t.echo"}, "ask": {"agent": "inventory", "call": {"body": {"end_with": "{{steps.w.token}}"}}}, "b": {"function": "t.echo"}, "w": {"wait": {"signal": "go"}, "after": ["ask"]}}') \g /dev/null
SELECT changed, refused FROM sas.set_version(:run_id);
SELECT sas.signal_token(:'token', '{"ok": true}');
SELECT t.work();
SELECT result FROM sas.runs WHERE run_id = :run_id;
SELECT * FROM t.left_over();
\echo what a step was given goes with it when the new version lacks it, and stays where it does not
SELECT t.workflow('sv_given', '{"a": {"agent": "inventory", "call": {"body": "{{input}}"}}, "b": {"function": "t.echo"}, "z": {"wait": {"signal": "go"}}, "y": {"wait": {"signal": "on"}, "after": ["z"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_given') \gset
SELECT t.settle() \g /dev/null
SELECT changed, refused FROM sas.set_input(:run_id, 'a', '{"for": "a"}');
SELECT changed, refused FROM sas.set_input(:run_id, 'b', '{"for": "b"}');
SELECT FROM _sas.run r, _sas.workflow_step w, sas.signal_token(_sas.token(r.run_id, r.trace, w.name), '{"for": "y"}') s WHERE r.run_id = :run_id AND w.version_id = r.version_id AND w.name = 'y';
SELECT t.workflow('sv_given', '{"b": {"function": "t.echo"}, "c": {"function": "t.echo", "input": {"for": "c"}}, "x": {"wait": {"signal": "on"}, "after": ["z"]}, "z": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT changed, refused FROM sas.set_version(:run_id);
SELECT sas.signal(:run_id, 'go'); SELECT t.work();
SELECT step, state, output FROM sas.steps WHERE run_id = :run_id AND step IN ('b', 'c', 'x') ORDER BY step;
SELECT sas.signal(:run_id, 'on'); SELECT t.work();
SELECT * FROM t.left_over();
\echo a failure that is mended: another expect, and the run continues
SELECT t.clean() \g /dev/null
SELECT t.workflow('sv_mend', '{"a": {"agent": "inventory", "call": {}}, "b": {"function": "t.echo", "input": {"n": 1}, "expect": "$.output.n == 2", "after": ["a"], "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_mend') \gset
SELECT t.claim(); SELECT t.answer('a'); SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('b', 'permanent'); SELECT t.settle() \g /dev/null
SELECT * FROM t.now_at;
SELECT t.workflow('sv_mend', '{"a": {"agent": "inventory", "call": {}}, "aa": {"function": "t.echo"}, "b": {"function": "t.echo", "input": {"n": 2}, "after": ["a"], "on_failure": "pause"}}') \g /dev/null
SELECT changed, state, refused FROM sas.set_version(:run_id);
SELECT * FROM t.now_at;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id = :run_id;
SELECT * FROM t.left_over();
\echo an undo that failed for good is mended
SELECT t.clean() \g /dev/null
SELECT t.workflow('sv_undone', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/wrong"}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_undone') \gset
SELECT t.claim(); SELECT t.answer('a'); SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('b', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT * FROM t.now_at;
SELECT t.workflow('sv_undone', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT changed, refused FROM sas.set_version(:run_id);
SELECT t.workflow('sv_undone', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/right"}}}, "aa": {"function": "t.echo"}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT changed, state, refused FROM sas.set_version(:run_id);
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id = :run_id;
SELECT * FROM t.left_over();
\echo a map and child runs in the middle; the run pauses, is moved, and resumes
SELECT t.clean() \g /dev/null
SELECT t.workflow('sv_kid', '{"k": {"wait": {"signal": "done"}}}') \g /dev/null
SELECT t.workflow('sv_big', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 2}, "n": {"workflow": "sv_kid", "each": "{{input.items}}"}, "z": {"function": "t.echo", "after": ["m", "n"]}}') \g /dev/null
SELECT run_id FROM sas.submit('sv_big', '{"items": [1, 2, 3]}') \gset
SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('m', for_element => 1), t.answer('m', for_element => 2); SELECT t.settle() \g /dev/null
SELECT state FROM sas.pause(:run_id);
SELECT t.workflow('sv_big', '{"b": {"function": "t.echo"}, "m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 1}, "mm": {"function": "t.echo", "after": ["m"]}, "n": {"workflow": "sv_kid", "each": "{{input.items}}"}, "y": {"function": "t.echo", "after": ["n"]}, "z": {"function": "t.echo", "after": ["mm", "y"]}}') \g /dev/null
SELECT changed, state, refused FROM sas.set_version(:run_id);
SELECT * FROM t.now_at;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT sas.signal(:run_id, 'done') FROM generate_series(1, 3);
SELECT t.work();
SELECT sas.signal(r.run_id, 'done') FROM sas.runs r WHERE r.parent_run_id = :run_id AND r.state <> 'stopped';
SELECT t.work();
SELECT state, result FROM sas.runs WHERE run_id = :run_id;
SELECT step, count(*) FILTER (WHERE element IS NOT NULL) AS elements, count(*) FILTER (WHERE state = 'succeeded') AS done FROM sas.steps WHERE run_id = :run_id GROUP BY 1, position ORDER BY position;
SELECT * FROM t.left_over();
\echo before the start, and when nothing is left to do
SELECT t.workflow('sv_late', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "inventory", "call": {}}, "c": {"agent": "payments", "call": {}, "after": ["a", "b"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id AS early FROM sas.submit('sv_late', start_at => sas.now() + interval '1 h') \gset
SELECT run_id FROM sas.submit('sv_late') \gset
SELECT t.claim(); SELECT t.answer('a', for_run => :run_id), t.answer('b', for_run => :run_id); SELECT t.settle() \g /dev/null
SELECT t.workflow('sv_late', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "inventory", "call": {}}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT changed, state FROM sas.set_version_runs(ARRAY[:run_id, :early]);
SELECT t.work();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT state, result, version FROM sas.runs WHERE workflow = 'sv_late' ORDER BY run_id;
SELECT * FROM t.left_over();
\echo not by others; steps that a function plans
CREATE ROLE sas_ann; SELECT FROM sas.grant_usage('sas_ann', 'user');
SELECT run_id FROM sas.submit('sv_late') \gset
SET ROLE sas_ann;
SELECT changed, refused FROM sas.set_version(:run_id, 1);
RESET ROLE;
DROP OWNED BY sas_ann; DROP ROLE sas_ann;
SELECT t.work() \g /dev/null
CREATE FUNCTION t.sv_plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {"w": {"wait": {"signal": "go"}}}}'::jsonb $$;
SELECT FROM sas.create_workflow('sv_thought', '{"plan": "t.sv_plan"}');
SELECT run_id FROM sas.submit('sv_thought') \gset
SELECT FROM sas.create_workflow('sv_thought', '{"steps": {"w": {"wait": {"signal": "go"}}}}');
SELECT changed, refused FROM sas.set_version(:run_id);
SELECT FROM sas.cancel(:run_id);
SELECT t.work() \g /dev/null
SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow('sv_thought');
DROP FUNCTION t.sv_plan(jsonb), t.refused(bigint, jsonb);
DROP VIEW t.now_at;
