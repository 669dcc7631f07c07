-- SPDX-License-Identifier: PostgreSQL
--
-- Rescue: what becomes of a run one of whose steps has failed for good: what
-- on_failure says, of the step or of the run, or what an operator makes of it.
\set SHOW_CONTEXT never

-- on_failure, of the step and of the run, for a permanent failure and for one whose windows are used up
SELECT t.clean() \g /dev/null
SELECT t.workflow('step_' || p, jsonb_build_object('a', '{"agent": "inventory", "call": {}, "undo": {"call": {}}}'::jsonb,
           'b', jsonb_build_object('agent', 'payments', 'call', '{}'::jsonb, 'after', '["a"]'::jsonb, 'recovery', '{"max_failures": 1}'::jsonb, 'on_failure', p),
           'c', '{"agent": "shipping", "call": {}, "after": ["b"]}'::jsonb)),
       t.workflow('run_' || p, '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "recovery": {"max_failures": 1}},
                                 "c": {"agent": "shipping", "call": {}, "after": ["b"]}}', jsonb_build_object('on_failure', p))
FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT w || '_' || p AS workflow, k AS failure, f.* FROM unnest('{step,run}'::text[]) w, unnest('{compensate,pause,skip,fail}'::text[]) WITH ORDINALITY AS o (p, n), unnest('{permanent 400,transient 503}'::text[]) k,
       t.try(w || '_' || p, jsonb_build_object('b', k)) f ORDER BY w DESC, n, k;
-- a step that says one of the two takes the other from the run
SELECT t.workflow('half', '{"b": {"agent": "payments", "call": {}, "recovery": {"max_failures": 1}, "on_failure": {"transient": "skip"}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT k AS failure, f.* FROM unnest('{permanent 400,transient 503}'::text[]) k, t.try('half', jsonb_build_object('b', k)) f;

-- ER4 three that fail beside each other, each to be skipped: what follows goes on, the run ends with a warning
SELECT t.clean() \g /dev/null
SELECT t.workflow('three', '{"a": {"agent": "inventory", "call": {}, "on_failure": "skip"}, "b": {"agent": "inventory", "call": {}, "on_failure": "skip"}, "c": {"agent": "inventory", "call": {}, "on_failure": "skip"},
    "d": {"agent": "shipping", "call": {}, "after": ["a", "b", "c"]}}') \g /dev/null
SELECT f.* FROM t.try('three', '{"a": "permanent 400", "c": "permanent 400"}') f;

-- RS3 what needs the output of a skipped step is skipped with it, and what needs the output of that; what only comes after goes on,
-- and so does what can do without
SELECT t.workflow('needs', '{"a": {"agent": "inventory", "call": {}, "on_failure": "skip", "finalize": "t.echo"},
    "direct": {"agent": "payments", "call": {"path": "/{{steps.a.output.body.id}}"}},
    "through": {"function": "t.echo", "input": {"id": "{{steps.direct.output.body.id}}"}},
    "maybe": {"function": "t.echo", "input": {"id": "{{steps.a.output.body.id?}}", "state": "{{steps.a.state}}"}},
    "after": {"function": "t.echo", "after": ["a"], "input": {}},
    "later": {"function": "t.echo", "after": ["through", "maybe"], "input": {}},
    "over": {"function": "t.echo", "each": "{{steps.a.output.body.items}}"},
    "both": {"function": "t.echo", "input": {"a": "{{steps.a.output.body.id}}", "b": "{{steps.maybe.output.state}}"}}}') \g /dev/null
SELECT f.* FROM t.try('needs', '{"a": "permanent 400"}') f;
SELECT * FROM t.left_over();
-- the same of an include
SELECT t.workflow('bill', '{"charge": {"agent": "payments", "call": {}, "on_failure": "skip"}, "note": {"function": "t.echo", "input": {"id": "{{steps.charge.output.body.id}}"}}}', '{"output": {"id": "{{steps.charge.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('order', '{"bill": {"include": "bill"}, "ship": {"agent": "shipping", "call": {"path": "/{{steps.bill.output.id}}"}}, "tell": {"function": "t.echo", "input": {}, "after": ["ship"]}}') \g /dev/null
SELECT f.* FROM t.try('order', '{"bill.charge": "permanent 400"}') f;
SELECT * FROM t.left_over();

-- ER8 finalize fails: the run is paused; skipped, it ends with a warning
SELECT t.clean() \g /dev/null
SELECT t.workflow('final', '{"a": {"agent": "inventory", "call": {}}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT f.* FROM t.try('final', '{"finalize": "permanent"}') f;
SELECT * FROM sas.skip(1, 'finalize');
SELECT t.brief(1);
-- ER9 a worker that is gone goes the same way
SELECT t.workflow('killed', '{"a": {"function": "t.echo", "recovery": {"max_failures": 1}, "on_failure": "skip"}, "b": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('killed');
SELECT t.claim('doomed');
UPDATE t.worker SET alive = false WHERE name = 'doomed';
SELECT t.work();
SELECT t.brief(2);
-- ER8 finalize follows skip and fail of the run; all steps have succeeded, so nothing is undone for it
SELECT t.workflow('final_' || p, '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}', jsonb_build_object('finalize', 't.echo', 'on_failure', p))
FROM unnest('{skip,fail,pause,compensate}'::text[]) p \g /dev/null
SELECT p, f.* FROM unnest('{skip,fail,pause,compensate}'::text[]) WITH ORDINALITY AS o (p, n), t.try('final_' || p, '{"finalize": "permanent"}') f ORDER BY n;
SELECT t.workflow('final_mixed', '{}', '{"finalize": "t.echo", "on_failure": {"permanent": "skip"}, "recovery": {"max_failures": 1}}') \g /dev/null
SELECT f.* FROM t.try('final_mixed', '{"finalize": "transient"}') f;
SELECT f.* FROM t.try('final_mixed', '{"finalize": "permanent"}') f;

-- auto_rescue off: what on_failure says is told, not done -----------------------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('told_' || p, jsonb_build_object('a', '{"agent": "inventory", "call": {}, "undo": {"call": {}}}'::jsonb,
           'b', jsonb_build_object('agent', 'payments', 'call', '{}'::jsonb, 'after', '["a"]'::jsonb, 'on_failure', p),
           'c', '{"agent": "shipping", "call": {}, "after": ["b"]}'::jsonb), '{"auto_rescue": false}')
FROM unnest('{compensate,pause,skip,fail}'::text[]) p \g /dev/null
SELECT p, f.* FROM unnest('{compensate,pause,skip,fail}'::text[]) WITH ORDINALITY AS o (p, n), t.try('told_' || p, '{"b": "permanent 400"}') f ORDER BY n;
-- ER6 the view says what is suggested, and the alert how it is said
SELECT r.workflow, r.suggested, s.suggested AS of_step FROM sas.runs r JOIN sas.steps s ON s.run_id = r.run_id AND s.step = 'b' ORDER BY r.run_id;
SELECT run_id, kind, message FROM t.alerts();
-- it is done when somebody says so
SELECT run_id, changed, state FROM sas.compensate(1) UNION ALL SELECT run_id, changed, state FROM sas.skip(3, 'b') UNION ALL SELECT run_id, changed, state FROM sas.halt(4) ORDER BY 1;
SELECT t.work();
SELECT r.workflow, t.brief(r.run_id), r.suggested FROM sas.runs r ORDER BY r.run_id;
-- ER3 of several that say the same it is that, of others pause
SELECT t.clean() \g /dev/null
SELECT t.workflow('mixed', '{"a": {"agent": "inventory", "call": {}, "on_failure": "skip"}, "b": {"agent": "payments", "call": {}, "on_failure": "skip"}, "c": {"agent": "shipping", "call": {}, "on_failure": "fail"}}', '{"auto_rescue": false}') \g /dev/null
SELECT run_id FROM sas.submit_batch('mixed', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.claim();
SELECT t.answer('a', 'permanent 400', for_run => n), t.answer('b', CASE n WHEN 2 THEN 'done' ELSE 'permanent 400' END, for_run => n), t.answer('c', CASE n WHEN 1 THEN 'done' WHEN 2 THEN 'done' ELSE 'permanent 400' END, for_run => n) FROM generate_series(1, 3) n \g /dev/null
SELECT t.work();
SELECT run_id, state, suggested FROM sas.runs ORDER BY 1;
-- past a pivot nothing is suggested but to look
SELECT t.workflow('pivot', '{"a": {"agent": "inventory", "call": {}, "pivot": true}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"auto_rescue": false}') \g /dev/null
SELECT f.* FROM t.try('pivot', '{"b": "permanent 400"}') f;
SELECT suggested FROM sas.runs WHERE run_id = 4;
-- the deadline
SELECT t.workflow('slow', '{"a": {"wait": {"signal": "go"}}}', '{"auto_rescue": false, "deadline": "1 h"}') \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.work();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(5);
SELECT message FROM t.alerts() WHERE run_id = 5;
-- what an undo needs is decided by nobody else; a map bears what it was told to bear
SELECT t.workflow('bears', '{"m": {"function": "t.echo", "each": "{{input.items}}", "input": {"i": "{{item}}"}, "max_failed": 1}}', '{"auto_rescue": false}') \g /dev/null
SELECT run_id FROM sas.submit('bears', '{"items": [1, 2]}');
SELECT t.work('{"m[1]": "permanent"}');
SELECT t.brief(6);
-- the setting holds where the workflow does not say
SELECT name, setting FROM sas.settings WHERE name = 'sas.auto_rescue';
SELECT * FROM sas.validate_workflow('{"steps": {}, "auto_rescue": "no"}');

-- an undo that fails for good: retried, skipped or completed by an operator --------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('undo', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}}, "c": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('undo', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.work('{"c": "permanent 400", "undo b": "permanent 403"}');
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT kind, run_id, step, message FROM t.alerts();
SELECT run_id, step, changed, state FROM sas.retry(1, 'b') UNION ALL SELECT run_id, step, changed, state FROM sas.skip(2, 'b') UNION ALL SELECT run_id, step, changed, state FROM sas.force_complete(3, 'b') ORDER BY 1;
SELECT t.work();
-- what was skipped stands, so the run is not compensated
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT error FROM sas.steps WHERE run_id = 2 AND step = 'b';
SELECT * FROM t.left_over();
-- one that rests between two windows of its undo, in a run that goes on
SELECT run_id FROM sas.submit_batch('undo', ARRAY['{}', '{}']::jsonb[]);
SELECT t.work('{"c": "permanent 400", "undo b": "transient 503"}');
SELECT t.brief(4);
SELECT run_id, step, changed, state FROM sas.skip(4, 'b') UNION ALL SELECT run_id, step, changed, state FROM sas.force_complete(5, 'b') ORDER BY 1;
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs WHERE run_id > 3 ORDER BY 1;
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();
-- one in doubt whose outcome nobody can tell: it is left standing, or said to be done and undone then
SELECT t.clean() \g /dev/null
SELECT t.workflow('doubt', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}, "recovery": {"max_failures": 1}}, "b": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('doubt', ARRAY['{}', '{}']::jsonb[]);
SELECT t.claim(); SELECT t.answer('b', 'permanent 400', for_run => g) FROM generate_series(1, 2) g \g /dev/null
SELECT t.work('{"a": "doubt"}');
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT run_id, step, changed, state FROM sas.skip(1, 'a') UNION ALL SELECT run_id, step, changed, state FROM sas.force_complete(2, 'a', '{"body": {"id": 77}}') ORDER BY 1;
SELECT t.settle(), t.claim();
SELECT undo, asked ->> 'path' AS path FROM t.held;
SELECT t.answer('a');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- the undo of a map undoes each element, the last first; that of a child is the child's own undo ---
SELECT t.clean() \g /dev/null
SELECT t.workflow('child', '{"x": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "y": {"agent": "inventory", "call": {}, "after": ["x"], "undo": {"call": {}}}}') \g /dev/null
SELECT t.workflow('parent', '{"m": {"agent": "payments", "call": {}, "each": "{{input.items}}", "undo": {"call": {"path": "/{{index}}"}}}, "k": {"workflow": "child", "input": {}, "after": ["m"]}, "z": {"agent": "shipping", "call": {}, "after": ["k"]}}') \g /dev/null
SELECT run_id FROM sas.submit('parent', '{"items": ["a", "b", "c"]}');
SELECT t.work('{"z": "permanent 400"}');
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
-- an element whose undo fails: it alone is settled by hand
SELECT run_id FROM sas.submit('parent', '{"items": ["a", "b"]}');
SELECT t.work('{"z": "permanent 400", "undo m[2]": "permanent 403"}');
SELECT * FROM sas.force_complete(3, 'm[1]');
SELECT run_id, step, changed, state FROM sas.force_complete(3, 'm');
SELECT t.work();
SELECT t.brief(3);
SELECT * FROM t.left_over();
