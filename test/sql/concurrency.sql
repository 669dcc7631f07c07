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
SELECT run_id FROM _sas.submit_runs(current_user::regrole::oid, 'pay', ARRAY['{"account": "c"}', '{"account": "c"}']::jsonb[], NULL, 0, NULL, NULL, NULL, NULL, NULL, '{}', ARRAY[ROW(5, 1, 1), ROW(5, 1, 2)]::_sas.parent[]) \g /dev/null
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
\echo scope owner: workflows that name the same key take turns with it, in the order of their submits
SELECT t.clean() \g /dev/null
SELECT t.workflow(w, '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "host-{{input.host}}", "scope": "owner"}}') FROM unnest(ARRAY['patch', 'reboot']) w \g /dev/null
SELECT t.workflow('read', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "host-{{input.host}}", "scope": "owner", "shared": true}}') \g /dev/null
SELECT t.workflow('alone', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "host-{{input.host}}"}}') \g /dev/null
CREATE VIEW t.locks AS SELECT key, scope, workflow, run_id, state, shared, t.at(since) AS since, position FROM sas.locks ORDER BY key, scope, state, run_id;
SELECT count(*) FROM unnest(ARRAY['patch', 'reboot', 'alone', 'patch', 'reboot']) WITH ORDINALITY AS u (w, n), LATERAL sas.submit(w, jsonb_build_object('host', CASE n WHEN 5 THEN 6 ELSE 5 END));
SELECT t.settle() \g /dev/null
SELECT * FROM t.locks;
SELECT t.claim();
SELECT t.answer('a', for_run => (SELECT run_id FROM sas.runs WHERE workflow = 'patch' AND state = 'running'));
SELECT t.later('1 min') \g /dev/null
SELECT * FROM t.locks;
SELECT t.work();
SELECT * FROM t.locks;
SELECT * FROM t.left_over();
\echo shared runs hold a key together, however many; one that is not shared waits for all of them, and those behind it wait for it
SELECT t.clean() \g /dev/null
SELECT count(*) FROM unnest(ARRAY['read', 'read', 'patch', 'read', 'reboot', 'read', 'read']) WITH ORDINALITY AS u (w, n), LATERAL sas.submit(w, '{"host": 5}');
SELECT t.settle() \g /dev/null
SELECT run_id, workflow, state, position FROM t.locks;
SELECT t.claim();
SELECT t.answer('a', for_run => 1);
SELECT t.settle() \g /dev/null
SELECT run_id, workflow, state, position FROM t.locks;
SELECT t.answer('a', for_run => 2);
SELECT t.settle() \g /dev/null
SELECT run_id, workflow, state, position FROM t.locks;
\echo one that waits is paused: those behind it come
SELECT state FROM sas.pause(5);
SELECT state FROM sas.cancel(3);
SELECT t.settle() \g /dev/null
SELECT run_id, workflow, state, position FROM t.locks;
SELECT state FROM sas.resume(5);
SELECT t.settle() \g /dev/null
SELECT run_id, workflow, state, position FROM t.locks;
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
\echo many shared runs behind one that is not: all begin when it ends
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('patch', '{"host": 5}');
SELECT count(*) FROM sas.submit_batch('read', array_fill('{"host": 5}'::jsonb, ARRAY[450]));
SELECT t.settle() \g /dev/null
SELECT state, count(*) FROM sas.locks GROUP BY 1 ORDER BY 1;
SELECT state FROM sas.cancel(1);
SELECT t.settle() \g /dev/null
SELECT state, count(*) FROM sas.locks GROUP BY 1 ORDER BY 1;
\echo each owner has keys of its own, unless the scope is all
SELECT t.clean() \g /dev/null
SELECT t.workflow(w, '{"a": {"agent": "inventory", "call": {}}}', jsonb_build_object('concurrency', jsonb_build_object('key', 'x', 'scope', w))) FROM unnest(ARRAY['workflow', 'owner', 'all']) w \g /dev/null
CREATE ROLE locker; CREATE ROLE watching;
SELECT sas.grant_usage('locker', 'user'); SELECT sas.grant_usage('watching', 'monitor');
SELECT sas.grant_agent('inventory', 'locker');
SELECT count(*) FROM unnest(ARRAY['workflow', 'owner', 'all']) w, LATERAL sas.submit(w);
SET ROLE locker;
SELECT count(*) FROM unnest(ARRAY['workflow', 'owner', 'all']) w, LATERAL sas.submit(w);
RESET ROLE;
SELECT t.settle() \g /dev/null
SELECT * FROM t.locks;
\echo a role sees the locks of the runs that it sees; a monitor sees no keys
SET ROLE locker;
SELECT key, scope, workflow, run_id, state, position FROM sas.locks ORDER BY run_id;
SET ROLE watching;
SELECT key, scope, workflow, run_id, state, position FROM sas.locks ORDER BY run_id;
\echo who is no admin defines no key of everybody
SET ROLE locker;
SELECT sas.create_workflow('mine', '{"steps": {}, "concurrency": {"key": "x", "scope": "all"}}');
SELECT sas.create_workflow('mine', '{"steps": {}, "concurrency": {"key": "x", "scope": "owner"}}');
RESET ROLE;
SELECT t.work();
SELECT sas.drop_workflow('mine');
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
SELECT sas.revoke_usage('locker', 'user'); SELECT sas.revoke_usage('watching', 'monitor'); SELECT sas.revoke_agent('inventory', 'locker');
DROP OWNED BY locker, watching;
DROP ROLE locker, watching;
\echo overlap return: a submit without room returns the open run; it makes none, and takes no key
SELECT t.workflow('met', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.host}}", "limit": 2, "overlap": "return"}}') \g /dev/null
SELECT * FROM sas.submit_batch('met', ARRAY['{"host": 1}', '{"host": 1}', '{"host": 2}', '{"host": 1}']::jsonb[], ARRAY['a', 'b', 'c', 'd']);
SELECT * FROM sas.submit('met', '{"host": 1}', key => 'e');
SELECT key, run_id FROM sas.runs ORDER BY 2;
SELECT t.settle() \g /dev/null
SELECT * FROM t.locks;
\echo paused runs are open
SELECT state FROM sas.pause(1);
SELECT * FROM sas.submit('met', '{"host": 1}');
SELECT state FROM sas.resume(1);
\echo one that has stopped makes room; what is rolled back was not there
SELECT t.work();
BEGIN;
SELECT created FROM sas.submit('met', '{"host": 1}');
SELECT created FROM sas.submit('met', '{"host": 1}');
SELECT created FROM sas.submit('met', '{"host": 1}');
ROLLBACK;
SELECT created FROM sas.submit('met', '{"host": 1}', key => 'e');
SELECT t.work();
SELECT * FROM t.left_over();
\echo the key must be known
SELECT * FROM sas.submit('met', '{"acount": 1}');
\echo overlap refuse: 55006, nothing stored
SELECT t.clean() \g /dev/null
SELECT t.workflow('met', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.host}}", "overlap": "refuse", "scope": "owner"}}') \g /dev/null
SELECT t.workflow('also', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.host}}", "scope": "owner"}}') \g /dev/null
SELECT * FROM sas.submit('met', '{"host": 1}');
\set VERBOSITY sqlstate
SELECT * FROM sas.submit('met', '{"host": 1}');
\set VERBOSITY default
SELECT * FROM sas.submit_batch('met', ARRAY['{"host": 2}', '{"host": 2}']::jsonb[]);
SELECT * FROM sas.submit('met', '{"host": 2}');
\echo a workflow that waits for the same key counts, from its submit to its end
SELECT * FROM sas.submit('also', '{"host": 3}');
SELECT * FROM sas.submit('met', '{"host": 3}');
SELECT t.settle() \g /dev/null
SELECT * FROM sas.submit('met', '{"host": 3}');
SELECT * FROM sas.submit('also', '{"host": 1}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.locks;
SELECT t.work();
SELECT created FROM unnest(ARRAY[1, 2, 3]) h, LATERAL sas.submit('met', jsonb_build_object('host', h));
SELECT t.work();
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
