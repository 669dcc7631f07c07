-- SPDX-License-Identifier: PostgreSQL
--
-- Verbs of operators about steps and runs: what each does in which state, and
-- what it says when it does nothing.
\set SHOW_CONTEXT never

-- skip -----------------------------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}},
    "needs": {"function": "t.echo", "input": {"id": "{{steps.b.output.body.id}}"}}, "after": {"function": "t.echo", "after": ["b"], "input": {}}}', '{"on_failure": "pause"}') \g /dev/null
SELECT run_id FROM sas.submit('order') UNION ALL SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402"}');
-- without another output what needs it is skipped, too; the run goes on by itself, and ends with a warning
SELECT * FROM sas.skip(1, 'b');
SELECT t.work();
SELECT t.brief(1);
SELECT error ->> 'title' AS error FROM sas.runs WHERE run_id = 1;
-- ER7 with one, that is seen by what comes after
SELECT * FROM sas.skip(2, 'b', '{"body": {"id": "by hand"}}');
SELECT t.work();
SELECT t.brief(2);
SELECT step, state, output FROM sas.steps WHERE run_id = 2 AND step IN ('b', 'needs') ORDER BY 1;
-- of a run that an operator paused it stays paused
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "transient 503"}');
SELECT changed FROM sas.pause(3);
SELECT changed, state FROM sas.skip(3, 'b');
SELECT t.work();
SELECT t.brief(3);
SELECT changed FROM sas.resume(3);
SELECT t.work();
SELECT t.brief(3);
-- one that rests, in a run that goes on; its time comes and means nothing
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "transient 503"}');
SELECT changed, state FROM sas.skip(4, 'b');
SELECT t.work();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(4);
-- one that is ready, before a closed door; one that has no row yet
SELECT sas.alter_agent('payments', enabled => false);
SELECT run_id FROM sas.submit('order');
SELECT t.work();
SELECT t.brief(5);
SELECT changed, state FROM sas.skip(5, 'b', '{"body": {"id": 5}}');
SELECT t.work();
SELECT t.brief(5);
SELECT sas.alter_agent('payments', enabled => true);
-- CA3 one of two that wait
SELECT t.workflow('two', '{"x": {"wait": {"signal": "x", "timeout": "1 h"}}, "y": {"wait": {"signal": "y", "timeout": "1 h"}}}') \g /dev/null
SELECT run_id FROM sas.submit('two');
SELECT t.work();
SELECT changed, state FROM sas.skip(6, 'x');
SELECT t.brief(6);
SELECT sas.signal(6, 'x');
SELECT sas.signal(6, 'y');
SELECT t.work();
SELECT t.brief(6);
-- an element of a map, or all that have failed
SELECT t.workflow('map', '{"m": {"function": "t.echo", "each": "{{input.items}}", "input": {"i": "{{item}}"}, "on_failure": "pause"}, "z": {"function": "t.echo", "input": {"all": "{{steps.m.output}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('map', '{"items": [1, 2, 3, 4]}');
SELECT t.work('{"m[2]": "permanent", "m[3]": "permanent", "m[4]": "permanent"}');
SELECT * FROM sas.skip(7, 'm[2]', '{"i": "two"}');
SELECT t.brief(7);
SELECT * FROM sas.skip(7, 'm');
SELECT t.work();
SELECT t.brief(7);
SELECT output FROM sas.steps WHERE run_id = 7 AND step = 'm' AND element IS NULL;
SELECT * FROM t.left_over();

-- force_complete -----------------------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402"}');
SELECT * FROM sas.force_complete(1, 'b', '{"body": {"id": "by hand"}}');
SELECT t.work();
SELECT t.brief(1);
SELECT output FROM sas.steps WHERE run_id = 1 AND step = 'needs';
-- one that a worker holds: its reply is stale. Undone with the rest, later
SELECT run_id FROM sas.submit('order');
SELECT t.claim();
SELECT changed, state FROM sas.force_complete(2, 'a', '{"body": {"id": 2}}');
SELECT t.answer('a', 'permanent 400');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(2);
SELECT changed FROM sas.compensate(2, 'after all');
SELECT t.work();
SELECT t.brief(2);
-- one that is ready, one that waits for a signal, a turn, the last step
SELECT t.workflow('kinds', '{"w": {"wait": {"signal": "go"}}, "r": {"agent": "inventory", "call": {"path": "/{{last.n?}}"}, "repeat": {"while": "$.last.n < 2"}, "after": ["w"]}, "k": {"workflow": "two", "after": ["r"]}}', '{"on_failure": "pause", "finalize": "t.echo", "output": {"n": "{{steps.r.output}}", "w": "{{steps.w.output}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('kinds');
SELECT t.work();
SELECT changed, state FROM sas.force_complete(3, 'w', '{"who": "me"}');
SELECT t.settle(), t.claim();
SELECT t.answer('r', 'permanent 400');
SELECT t.settle();
SELECT step, changed, state FROM sas.force_complete(3, 'r', '{"n": 1}');
SELECT t.work('{"r[2]": "{\"n\": 2}"}');
SELECT t.brief(3);
-- a child is acted on itself
SELECT * FROM sas.force_complete(3, 'k');
SELECT step, changed, state FROM sas.force_complete(4, 'x') UNION ALL SELECT step, changed, state FROM sas.force_complete(4, 'y');
SELECT t.work('{"finalize": "permanent"}');
SELECT step, changed, state, result FROM sas.force_complete(3, 'finalize');
SELECT t.brief(3);
SELECT output FROM sas.runs WHERE run_id = 3;
-- a fallback
SELECT t.workflow('falls', '{"a": {"agent": "inventory", "call": {}, "fallback": {"agent": "shipping", "call": {}}}, "b": {"function": "t.echo", "input": {"id": "{{steps.a.output.body.id}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('falls');
SELECT t.work('{"a": "permanent 400", "a.fallback": "transient 503"}');
SELECT t.brief(5);
SELECT * FROM sas.force_complete(5, 'a');
SELECT step, changed, state FROM sas.force_complete(5, 'a.fallback', '{"body": {"id": 7}}');
SELECT t.work();
SELECT t.brief(5);
SELECT * FROM t.left_over();

-- set_input ------------------------------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('inputs', '{"call": {"agent": "inventory", "call": {"path": "/x", "body": {"n": "{{input.n}}"}}}, "form": {"agent": "inventory", "call": {"form": {"n": "{{input.n}}"}}}, "text": {"agent": "inventory", "call": {"text": "n"}}, "get": {"agent": "inventory", "call": {"path": "/{{input.n}}"}},
    "f": {"function": "t.echo", "input": {"n": "{{input.gone}}"}}}', '{"on_failure": "pause", "finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('inputs', '{"n": 1}');
SELECT t.work('{"call": "permanent 422", "form": "permanent 422", "text": "permanent 422", "get": "permanent 404", "f": "permanent"}');
SELECT t.brief(1);
-- what fits is taken, of the rest it is said why not
SELECT s.step, v.changed, v.refused FROM unnest('{call,form,text,get,f,finalize,nope}'::text[]) WITH ORDINALITY AS s (step, n), sas.set_input(1, s.step, '[7]') v ORDER BY s.n;
SELECT v.step, v.changed, v.state FROM unnest('{call,form,text,f}'::text[], ARRAY['{"n": 2, "note": "{{input.n}}"}', '{"n": "3"}', '"four"', '{"n": 5}']::jsonb[]) AS i (step, input), sas.set_input(1, i.step, i.input) v ORDER BY 1;
-- RS2 it is shown, and used when the step is tried next; nothing in it is expanded
SELECT step, input FROM sas.steps WHERE run_id = 1 ORDER BY 1;
SELECT changed FROM sas.resume(1);
SELECT t.claim();
SELECT step, asked - 'method' AS asked, problem FROM t.held ORDER BY step;
SELECT t.answer('call'), t.answer('form'), t.answer('text'), t.answer('get'), t.answer('f', output => '{"n": 5}');
SELECT t.work('{"finalize": "permanent"}');
SELECT refused FROM sas.set_input(1, 'finalize', '{}');
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
-- a map is given its array, a child run its input; a wait has none
SELECT t.workflow('inner', '{"k": {"workflow": "two", "input": {"n": "{{input.n}}"}}, "m": {"function": "t.echo", "each": "{{input.n}}", "input": {"i": "{{item}}"}}, "w": {"wait": {"until": "{{input.n}}"}}}', '{"on_failure": "pause"}') \g /dev/null
SELECT run_id FROM sas.submit('inner', '{"m": 1}');
SELECT t.work();
SELECT t.brief(2);
SELECT s.step, v.changed, v.refused FROM unnest('{k,m,w}'::text[]) AS s (step), sas.set_input(2, s.step, '"text"') v;
SELECT step, changed FROM sas.set_input(2, 'k', '{"n": 9}') UNION ALL SELECT step, changed FROM sas.set_input(2, 'm', '["a", "b"]');
SELECT changed, state FROM sas.force_complete(2, 'w');
SELECT changed FROM sas.resume(2);
SELECT t.settle();
SELECT run_id, input FROM sas.runs WHERE parent_run_id = 2;
SELECT t.work();
SELECT output FROM sas.steps WHERE run_id = 2 AND step = 'm' AND element IS NULL;
-- of elements one at a time
SELECT run_id AS over FROM sas.submit('map', '{"items": [1, 2, 3]}') \gset
SELECT t.work('{"m[1]": "permanent", "m[3]": "permanent"}');
SELECT changed, replace(refused, :'over', 'N') AS refused FROM sas.set_input(:over, 'm', '{"i": "x"}');
SELECT step, changed FROM sas.set_input(:over, 'm[3]', '{"i": "three"}');
SELECT changed FROM sas.retry(:over);
SELECT t.work();
SELECT output FROM sas.steps WHERE run_id = :over AND step = 'm' AND element IS NULL;
-- a poll that has begun only asks
SELECT t.workflow('poll', '{"p": {"agent": "inventory", "call": {"body": {"n": 1}}, "poll": {"call": {"path": "/ask"}, "until": "$.output.body.over == true"}}}', '{"on_failure": "pause"}') \g /dev/null
SELECT run_id AS poll FROM sas.submit('poll') \gset
SELECT t.work('{"p": "permanent 422"}');
SELECT changed FROM sas.set_input(:poll, 'p', '{"n": 2}');
SELECT changed FROM sas.resume(:poll);
SELECT t.claim();
SELECT asked -> 'body' AS body FROM t.held;
SELECT t.answer('p');
SELECT t.later('1 s') \g /dev/null
SELECT t.settle(), t.claim();
SELECT asked FROM t.held;
SELECT t.answer('p', 'permanent 400');
SELECT t.work();
SELECT replace(refused, :'poll', 'N') AS refused FROM sas.set_input(:poll, 'p', '{"n": 3}');
-- a task, before it is claimed for the first time
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('people', kind => 'external') \g /dev/null
SELECT t.workflow('task', '{"t": {"agent": "people", "task": {}, "input": {"n": 1}}}') \g /dev/null
SELECT run_id FROM sas.submit('task');
SELECT step, changed, refused FROM sas.set_input(1, 't', '{"n": 2}');
SELECT run_id, step, request FROM sas.claim('people', 'ann');
SELECT step, changed, refused FROM sas.set_input(1, 't', '{"n": 3}');
SELECT sas.set_input(1, 't', NULL);
SELECT sas.set_input(1, NULL, '{}');

-- CA5 halt: stops now, whatever it is at ----------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('big', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}}, "f": {"function": "t.echo", "after": ["a"]}, "w": {"wait": {"signal": "go"}, "after": ["a"]}, "t": {"agent": "people", "task": {}, "after": ["a"]},
    "k": {"workflow": "two", "after": ["a"]}, "c": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT run_id FROM sas.submit('big', start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit('big');
SELECT * FROM sas.halt_runs('{1,2}'::bigint[], 'wrong prices');
SELECT t.brief(n) FROM generate_series(1, 2) n;
-- in the middle: what is running is not waited for, late replies do not count, nothing is undone, children stop as well
SELECT run_id FROM sas.submit('big');
SELECT t.claim();
SELECT t.answer('a');
SELECT t.settle(), t.claim();
SELECT request_id FROM sas.claim('people', 'ann') \gset
SELECT t.brief(3);
SELECT changed, state, result FROM sas.halt(3, 'wrong prices');
SELECT t.brief(3);
-- what workers hold goes on until its claims are revoked
SELECT t.schedule();
SELECT t.brief(3);
SELECT t.answer('b'), t.answer('f', output => '{}'), sas.heartbeat(:'request_id'), sas.complete(:'request_id', '{}');
SELECT sas.signal(3, 'go');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs WHERE run_id > 2 ORDER BY 1;
SELECT error, paused_for FROM sas.runs WHERE run_id = 3;
SELECT run_id, kind, replace(message, current_user, 'me') AS message FROM t.alerts();
SELECT step, attempt, status FROM sas.attempts WHERE run_id = 3 ORDER BY step;
SELECT count(*) AS places_taken FROM _sas.external_slot WHERE request_id IS NOT NULL;
SELECT * FROM t.left_over();
-- paused, resting, being undone, with an undo on its way
SELECT t.workflow('undo', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}}, "c": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('undo', ARRAY['{}', '{}', '{}', '{}']::jsonb[]);
SELECT changed FROM sas.pause(5);
SELECT t.claim();
SELECT t.answer('a', for_run => n) FROM generate_series(6, 8) n \g /dev/null
SELECT t.claim();
SELECT t.answer('b', 'transient 503', for_run => 6), t.answer('b', for_run => 7), t.answer('b', for_run => 8);
SELECT t.claim();
SELECT t.answer('c', 'permanent 400', for_run => 7), t.answer('c', 'permanent 400', for_run => 8);
SELECT t.settle(), t.claim('w2', 1);
SELECT count(*) FROM t.held WHERE undo;
SELECT run_id, t.brief(run_id) FROM sas.runs WHERE run_id > 4 ORDER BY 1;
SELECT run_id, changed, state, result FROM sas.halt_runs(ARRAY(SELECT r.run_id FROM sas.runs r WHERE r.run_id > 4));
SELECT t.work();
SELECT t.answer('b', holder => 'w2');
SELECT run_id, t.brief(run_id) FROM sas.runs WHERE run_id > 4 ORDER BY 1;
SELECT run_id, replace(message, current_user, 'me') AS message FROM t.alerts() WHERE run_id > 4;
SELECT t.later('2 h') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();
-- CA6 it stays so
SELECT v.run_id, v.refused FROM sas.resume(6) v UNION ALL SELECT v.run_id, v.refused FROM sas.retry(6) v UNION ALL SELECT v.run_id, v.refused FROM sas.halt(6) v UNION ALL SELECT v.run_id, v.refused FROM sas.skip(6, 'b') v;

-- its alert tells a step whose undo is on its way, and one in doubt whose undo had not begun
SELECT t.clean() \g /dev/null
SELECT t.workflow('undo', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}}}, "c": {"agent": "shipping", "call": {}, "after": ["b"], "undo": {"call": {"path": "/{{steps.c.key}}"}}}}', '{"recovery": {"max_failures": 1}, "on_failure": "compensate"}') \g /dev/null
SELECT run_id FROM sas.submit('undo');
SELECT t.claim(), t.answer('a'), t.claim(), t.answer('b'), t.claim();
SELECT t.answer('c', 'permanent 400'), t.settle(), t.claim('w2', 1);
SELECT t.brief(1);
SELECT changed FROM sas.halt(1);
SELECT message = format('run 1 was halted by %s; done: a; undo not finished: b', current_user) AS told FROM t.alerts();
SELECT run_id AS run FROM sas.submit('undo') \gset
SELECT t.claim(), t.answer('a', for_run => :run), t.claim(), t.answer('b', for_run => :run), t.claim();
SELECT t.answer('c', 'doubt', for_run => :run), t.settle();
SELECT changed FROM sas.halt(:run);
SELECT t.brief(:run);
SELECT message = format('run %s was halted by %s; done: a, b; in doubt: c', :run, current_user) AS told, message FROM t.alerts();

-- compensate -------------------------------------------------------------------------------
-- what a halt left standing, what ended well, what failed and was left; each but once
SELECT t.clean() \g /dev/null
SELECT t.workflow('left', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": "fail"}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('left', ARRAY['{}', '{}', '{}', '{}']::jsonb[]);
SELECT changed FROM sas.cancel(4);
SELECT t.claim();
SELECT t.answer('a', for_run => n) FROM generate_series(1, 3) n \g /dev/null
SELECT t.claim();
SELECT t.answer('b', for_run => 1), t.answer('b', 'permanent 400', for_run => 2);
SELECT changed FROM sas.halt(3);
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM sas.compensate_runs('{1,2,3,4,5}'::bigint[], 'recalled');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT run_id, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.runs ORDER BY 1;
SELECT run_id, changed, refused FROM sas.compensate_runs('{1,2}'::bigint[]);
-- nothing to undo; a child, whose parent is open
SELECT t.workflow('bare', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('of', '{"k": {"workflow": "left"}, "z": {"wait": {"signal": "go"}, "after": ["k"]}}') \g /dev/null
SELECT run_id FROM sas.submit('bare') UNION ALL SELECT run_id FROM sas.submit('of');
SELECT t.work();
SELECT run_id, parent_run_id, state FROM sas.runs WHERE run_id > 4 ORDER BY 1;
SELECT run_id, changed, refused FROM sas.compensate_runs('{5,7}'::bigint[]);
-- an open one: what is on its way is left to end, then undone
SELECT run_id FROM sas.submit('left');
SELECT t.claim();
SELECT changed, state FROM sas.compensate(8);
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(8);
SELECT run_id, refused FROM sas.compensate(8) UNION ALL SELECT run_id, refused FROM sas.cancel(8);

-- rerun ------------------------------------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('left', '{"n": 1}', key => 'order 1', priority => 3, labels => '{"tenant": "a"}', reply_to => 'done');
SELECT run_id FROM sas.submit('left', '{"n": 2}');
SELECT t.work('{"b": "permanent 400"}');
SELECT * FROM sas.rerun_runs('{1,2,9}'::bigint[]);
SELECT run_id, key, input, priority, labels, state FROM sas.runs ORDER BY 1;
SELECT count(DISTINCT idempotency_key) FROM sas.steps WHERE step = 'a';
-- the key leads to the new one
SELECT run_id, created FROM sas.submit('left', '{"n": 1}', key => 'order 1');
SELECT run_id, changed, refused FROM sas.rerun_runs('{1,3}'::bigint[]);
SELECT t.work();
SELECT event, run_id, key FROM sas.read_replies('done', 10);
SELECT run_id, act, detail FROM sas.history ORDER BY run_id, act, detail;
-- the current version
SELECT t.workflow('left', '{"only": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT new_run_id FROM sas.rerun(3) \gset
SELECT t.work();
SELECT t.brief(:new_run_id);
-- one open run, what cannot be submitted any more, children, what is gone
SELECT t.workflow('single', '{"w": {"wait": {"signal": "go"}}}', '{"concurrency": {"key": "one", "overlap": "return"}}') \g /dev/null
SELECT run_id AS first FROM sas.submit('single') \gset
SELECT changed FROM sas.halt(:first);
SELECT run_id AS second FROM sas.submit('single') \gset
SELECT changed, replace(replace(refused, :'first', 'FIRST'), :'second', 'SECOND') AS refused FROM sas.rerun(:first);
SELECT t.workflow('asks', '{"w": {"wait": {"signal": "go"}}}', '{"concurrency": {"key": "{{input.who}}"}}') \g /dev/null
SELECT run_id AS first FROM sas.submit('asks', '{"who": "ann"}', key => 'ann') \gset
SELECT changed FROM sas.halt(:first);
SELECT t.workflow('asks', '{"w": {"wait": {"signal": "go"}}}', '{"concurrency": {"key": "{{input.whose}}"}}') \g /dev/null
SELECT changed, replace(refused, :'first', 'FIRST') AS refused FROM sas.rerun(:first);
-- nothing of that is left behind
SELECT run_id = :first AS same, created FROM sas.submit('asks', '{"who": "ann"}', key => 'ann');
SELECT run_id AS parent FROM sas.submit('of') \gset
SELECT t.work();
SELECT run_id AS child FROM sas.runs WHERE parent_run_id = :parent \gset
SELECT changed, replace(replace(refused, :'parent', 'PARENT'), :'child', 'CHILD') AS refused FROM sas.rerun(:child);
SELECT changed FROM sas.halt(:parent);
SELECT t.work();
SELECT sas.drop_workflow('of');
SELECT changed, replace(refused, :'parent', 'PARENT') AS refused FROM sas.rerun(:parent);

-- set_priority --------------------------------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT t.workflow('low', '{"a": {"agent": "inventory", "call": {}}}', '{"priority": -2}') \g /dev/null
SELECT t.workflow('above', '{"k": {"workflow": "low"}}') \g /dev/null
SELECT run_id FROM sas.submit('low') UNION ALL SELECT run_id FROM sas.submit('low') UNION ALL SELECT run_id FROM sas.submit('above');
SELECT t.settle();
SELECT q.run_id, q.rank - q.ready_at AS later FROM _sas.ready q ORDER BY 1;
SELECT * FROM sas.set_priority_runs('{2,3,77}'::bigint[], 5);
SELECT run_id, priority FROM sas.runs ORDER BY 1;
SELECT q.run_id, q.rank - q.ready_at AS later FROM _sas.ready q ORDER BY q.rank, q.run_id;
SELECT t.work();
SELECT run_id, changed, refused FROM sas.set_priority(1, 1);
SELECT sas.set_priority(1, 1001);
SELECT sas.set_priority(1, NULL);

-- fed by a query: one by one, or as an array ------------------------------------------------------
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('two', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 4)));
SELECT v.run_id, v.changed, v.state FROM sas.runs r, LATERAL sas.pause(r.run_id) v WHERE r.run_id <= 2 ORDER BY 1;
SELECT v.run_id, v.changed, v.state FROM sas.resume_runs(ARRAY(SELECT r.run_id FROM sas.runs r WHERE r.state = 'paused')) v;
SELECT run_id, changed, refused FROM sas.cancel_runs(ARRAY[4, NULL, 3, 4, 99, 3]);
SELECT * FROM sas.halt_runs('{}'::bigint[]);
SELECT * FROM sas.skip_runs(NULL::bigint[], 'x');
SELECT sas.skip(1, NULL);
SELECT sas.force_complete_runs('{1}'::bigint[], NULL);

-- someone else's run is as if it were not there; operators see and act on all --------------------------
SELECT t.clean() \g /dev/null
CREATE ROLE sas_test_user;
CREATE ROLE sas_test_operator;
SELECT sas.grant_usage('sas_test_user', 'user'), sas.grant_usage('sas_test_operator', 'operator') \g /dev/null
SELECT run_id FROM sas.submit('two');
SET ROLE sas_test_user;
SELECT sas.create_workflow('mine', '{"steps": {"w": {"wait": {"signal": "go"}}}}');
SELECT run_id FROM sas.submit('mine');
SELECT v.run_id, v.changed, v.refused FROM sas.skip_runs('{1,2}'::bigint[], 'w') v
UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.force_complete(1, 'x') v UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.set_input(1, 'x', '{}') v
UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.halt(1) v UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.compensate(1) v
UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.rerun(1) v UNION ALL SELECT v.run_id, v.changed, v.refused FROM sas.set_priority(1, 1) v;
RESET ROLE;
SELECT t.settle() \g /dev/null
SET ROLE sas_test_operator;
SELECT v.run_id, v.step, v.changed, v.state FROM sas.skip_runs('{1,2}'::bigint[], 'w') v UNION ALL SELECT v.run_id, v.step, v.changed, v.state FROM sas.skip_runs('{1,2}'::bigint[], 'x') v;
SELECT run_id, changed, state FROM sas.halt_runs('{1,2}'::bigint[], 'night');
RESET ROLE;
-- every act has its role and its time; those about an agent, a workflow or a queue have no run
SET ROLE sas_test_operator;
SELECT sas.reset_agent('payments'), sas.pause_workflow('two'), sas.resume_workflow('two'), sas.resume_workflow('two');
RESET ROLE;
SELECT sas.alter_agent('payments', enabled => true, max_in_flight => 100, reset => '{rate_limit}');
SELECT run_id, t.at(at) AS at, CASE role WHEN current_user THEN 'me' ELSE role END AS role, act, step, detail FROM sas.history ORDER BY at, run_id NULLS LAST, act, detail;
-- a role that sees its own runs only sees no acts about anything else
SET ROLE sas_test_user;
SELECT run_id, role, act FROM sas.history ORDER BY run_id, role, act;
RESET ROLE;
-- an operator does not run functions of others by running their runs again
CREATE FUNCTION public.sas_test_plan(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"steps": {}}'::jsonb $$;
SET ROLE sas_test_user;
SELECT sas.create_workflow('own_plan', '{"plan": "public.sas_test_plan"}');
SELECT run_id, created FROM sas.submit('own_plan');
SET ROLE sas_test_operator;
SELECT run_id, changed, refused FROM sas.rerun(3);
SET ROLE sas_test_user;
SELECT run_id, changed, new_run_id FROM sas.rerun(3);
RESET ROLE;
DROP FUNCTION public.sas_test_plan;
