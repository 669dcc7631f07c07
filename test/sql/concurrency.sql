-- SPDX-License-Identifier: PostgreSQL
--
-- concurrency: so many runs per key, in the order of their submits.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('pay', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"concurrency": {"key": "{{input.account}}"}}') \g /dev/null
CREATE VIEW t.line AS SELECT run_id, input ->> 'account' AS account, state, result, waits_for FROM sas.runs ORDER BY 1;
\echo one run per key, in order
SELECT run_id FROM sas.submit_batch('pay', ARRAY['{"account": "x"}', '{"account": "x"}', '{"account": "y"}', '{"account": "x"}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.claim();
SELECT t.answer('a', for_run => 1);
SELECT t.claim();
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.answer('b', for_run => 1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.work();
SELECT * FROM t.line;
SELECT * FROM t.left_over();
\echo a limit of two; paused and cooling ones keep their place
SELECT t.clean() \g /dev/null
SELECT t.workflow('pay', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.account}}", "limit": 2}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('pay', ARRAY['{"account": 7}', '{"account": 7}', '{"account": 7}', '{"account": 7}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT state FROM sas.pause(1);
SELECT t.claim();
SELECT t.answer('a', 'transient 503');
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.claim();
\echo a paused one that waits steps aside and comes back at its old place
SELECT state FROM sas.pause(3);
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT * FROM t.line;
SELECT state FROM sas.resume(3);
SELECT t.work();
SELECT * FROM t.line;
SELECT state FROM sas.resume(1);
SELECT t.work();
SELECT * FROM t.line;
SELECT * FROM t.left_over();
\echo one that waits can be cancelled, and the next comes; a holder that is cancelled gives its place when all is undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('pay', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"concurrency": {"key": "all"}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('pay', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('a');
SELECT state FROM sas.cancel(2);
SELECT state FROM sas.cancel(1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.claim();
SELECT * FROM t.line;
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT * FROM t.line;
SELECT t.work();
SELECT * FROM t.left_over();
\echo start_at and after_run come first: who waits for them is not in the line yet
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('pay', start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit('pay');
SELECT run_id FROM sas.submit('pay', after_run => 1);
SELECT run_id FROM sas.submit('pay');
SELECT t.work();
SELECT * FROM t.line;
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT * FROM t.line;
\echo the key is made at submit: what cannot be made is refused
SELECT t.workflow('pay', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.account}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"acount": 1}');
SELECT run_id FROM sas.submit('pay', '{"account": null}');
SELECT run_id FROM sas.submit('pay', '{"account": [1]}');
SELECT run_id FROM sas.submit('pay', jsonb_build_object('account', repeat('x', 1001)));
\echo places are per workflow; a workflow without steps needs one, too
SELECT t.clean() \g /dev/null
SELECT t.workflow('empty', '{}', '{"concurrency": {"key": "all"}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('empty', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT run_id FROM sas.submit('pay', '{"account": "all"}');
SELECT t.work();
SELECT * FROM t.line;
SELECT * FROM t.left_over();
\echo children share the place of their parent
SELECT run_id FROM sas.submit('pay', '{"account": "c"}');
SELECT t.settle() \g /dev/null
SELECT run_id FROM _sas.submit_runs(current_user::regrole::oid, 'pay', ARRAY['{"account": "c"}', '{"account": "d"}']::jsonb[], NULL, 0, NULL, NULL, NULL, NULL, NULL, '{}', 5, 1, ARRAY[1, 2]) \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"account": "c"}');
SELECT t.settle() \g /dev/null
SELECT run_id, parent_run_id, input ->> 'account' AS account, state FROM sas.runs WHERE run_id > 4 ORDER BY 1;
SELECT key, run_id, state FROM _sas.concurrency_slot ORDER BY 2;
SELECT t.work();
SELECT * FROM t.left_over();
\echo the pause of a workflow: new runs wait, those that have begun go on
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}}, "z": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('order', start_at => sas.now() + interval '1 h');
SELECT sas.pause_workflow('order');
SELECT sas.pause_workflow('order');
SELECT workflow, t.at(paused_at) AS paused_at FROM sas.workflows WHERE workflow IN ('order', 'pay') ORDER BY 1;
SELECT run_id FROM sas.submit('order');
SELECT run_id FROM sas.submit('pay', '{"account": 1}');
SELECT t.work();
SELECT run_id, state, result, waits_for FROM sas.runs ORDER BY 1;
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT run_id, state, result, waits_for FROM sas.runs ORDER BY 1;
SELECT sas.resume_workflow('order');
SELECT sas.resume_workflow('order');
SELECT t.work();
SELECT run_id, state, result, waits_for FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
SELECT count(*) FROM _sas.deferred_run;
SELECT sas.pause_workflow('nosuch');
\echo a child whose key cannot be made fails its step
SELECT t.workflow('parent', '{"c": {"workflow": "pay", "input": {"acount": 1}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT run_id FROM sas.submit('parent');
SELECT t.work();
SELECT state, result, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.runs ORDER BY run_id DESC LIMIT 1;
\echo a child that waits for its key takes no place of its map
SELECT t.clean() \g /dev/null
SELECT t.workflow('pay', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.account}}"}}') \g /dev/null
SELECT t.workflow('many', '{"each": {"workflow": "pay", "input": {"account": "{{item}}"}, "each": "{{input.accounts}}", "concurrency": 3}}') \g /dev/null
SELECT run_id FROM sas.submit('many', '{"accounts": ["x", "x", "x", "x", "x", "y", "z", "v", "w"]}');
SELECT t.settle() \g /dev/null
SELECT input ->> 'account' AS account, state, waits_for FROM sas.runs WHERE parent_run_id = 1 ORDER BY run_id;
SELECT t.claim();
\echo one ends: one more begins
SELECT t.answer('a', for_run => (SELECT run_id FROM sas.runs WHERE input ->> 'account' = 'y'));
SELECT t.settle() \g /dev/null
SELECT t.claim();
\echo the key comes free: the next child under it begins
SELECT t.answer('a', for_run => (SELECT min(run_id) FROM sas.runs WHERE input ->> 'account' = 'x'));
SELECT t.settle() \g /dev/null
SELECT input ->> 'account' AS account, state, waits_for FROM sas.runs WHERE parent_run_id = 1 ORDER BY run_id;
\echo one that waits is cancelled; a paused one counts again; the map ends
SELECT state FROM sas.pause((SELECT max(run_id) FROM sas.runs WHERE input ->> 'account' = 'x' AND state = 'scheduled'));
SELECT t.settle() \g /dev/null
SELECT count(*) FILTER (WHERE told) AS told, count(*) FROM _sas.concurrency_slot;
SELECT state FROM sas.resume((SELECT max(run_id) FROM sas.runs WHERE input ->> 'account' = 'x' AND state = 'paused'));
SELECT t.work() \g /dev/null
SELECT state, result FROM sas.runs WHERE run_id = 1;
SELECT * FROM t.left_over();
