-- SPDX-License-Identifier: PostgreSQL
--
-- Undo by a run of its own, and by a wait; fallbacks of these kinds.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('give_back', '{"refund": {"agent": "payments", "call": {"method": "POST", "path": "/refunds", "body": {"charge": "{{input.charge}}"}}}, "tell": {"agent": "shipping", "call": {}, "after": ["refund"]}}') \g /dev/null
SELECT t.workflow('buy', '{
    "take": {"agent": "inventory", "call": {"path": "/take"}, "undo": {"call": {"method": "DELETE", "path": "/take"}}},
    "charge": {"agent": "payments", "call": {"path": "/charge"}, "after": ["take"], "undo": {"workflow": "give_back", "input": {"charge": "{{steps.charge.output.body.id}}"}}},
    "ship": {"agent": "shipping", "call": {"path": "/ship"}, "after": ["charge"]}}', '{"deadline": "1 h"}') \g /dev/null

-- its run undoes a step; the step before it is undone after that
SELECT run_id FROM sas.submit('buy');
SELECT t.claim(), t.answer('take') \g /dev/null
SELECT t.claim(), t.answer('charge', output => '{"status": 200, "body": {"id": 42}}') \g /dev/null
SELECT t.claim(), t.answer('ship', 'permanent 400'), t.settle() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT step, state, waiting_kind, waiting_on FROM sas.steps WHERE run_id = 1 ORDER BY step;
-- it is bound by a deadline of its own, and belongs to its parent
SELECT run_id, workflow, parent_run_id, input, t.at(deadline) AS deadline FROM sas.runs ORDER BY 1;
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();

-- it is never cancelled with its parent, after whose deadline it goes on, nor begun again by a resume
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('buy');
SELECT t.work('{"ship": "permanent 400", "refund": "transient 503"}');
SELECT t.brief(1), t.brief(2);
SELECT changed, refused FROM sas.cancel(1);
SELECT changed FROM sas.pause(1);
SELECT changed FROM sas.resume(1);
SELECT t.settle() \g /dev/null
SELECT count(*) AS runs FROM sas.runs;
SELECT refused FROM sas.skip(1, 'charge');
SELECT t.later('2 h');
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();
-- nor with the run above its parent
SELECT t.clean() \g /dev/null
SELECT t.workflow('above', '{"buy": {"workflow": "buy"}, "last": {"agent": "inventory", "call": {"path": "/last"}, "after": ["buy"]}}') \g /dev/null
SELECT run_id FROM sas.submit('above');
SELECT t.work('{"last": "permanent 400", "refund": "transient 503"}');
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT changed FROM sas.cancel(1);
SELECT t.later('10 s'), t.work() \g /dev/null
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT * FROM t.left_over();
-- a run that it begins while all above is being cancelled is begun
SELECT t.clean() \g /dev/null
SELECT t.workflow('deep_back', '{"sub": {"workflow": "give_back", "input": {"charge": 1}}}') \g /dev/null
SELECT t.workflow('deep', '{"a": {"agent": "inventory", "call": {}, "undo": {"workflow": "deep_back"}}, "b": {"wait": {"signal": "never"}, "after": ["a"]}}') \g /dev/null
SELECT t.workflow('deeper', '{"c": {"workflow": "deep"}}') \g /dev/null
SELECT run_id FROM sas.submit('deeper');
SELECT t.work();
SELECT changed FROM sas.cancel(1);
SELECT t.work();
SELECT r.run_id, r.workflow, r.result, r.error ->> 'title' AS title FROM sas.runs r ORDER BY 1;
SELECT * FROM t.left_over();
-- a pause while it runs leaves it, and a halt stops it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('buy') UNION ALL SELECT run_id FROM sas.submit('buy');
SELECT t.work('{"ship": "permanent 400", "refund": "transient 503"}');
SELECT changed FROM sas.pause(1);
SELECT changed FROM sas.halt(2);
SELECT t.later('10 s');
SELECT t.work();
SELECT run_id, workflow, parent_run_id, state, result FROM sas.runs ORDER BY 1;
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();

-- one that fails pauses its parent, with an alert; resume begins another one, and an operator may settle it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('buy') UNION ALL SELECT run_id FROM sas.submit('buy') UNION ALL SELECT run_id FROM sas.submit('buy');
SELECT t.work('{"ship": "permanent 400", "refund": "permanent 422"}') \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.alerts();
SELECT changed FROM sas.resume(1);
SELECT step, changed, state FROM sas.skip(2, 'charge');
SELECT step, changed, state FROM sas.retry(3, 'charge');
SELECT t.work();
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT run_id, parent_run_id, result FROM sas.runs WHERE workflow = 'give_back' ORDER BY 1;
SELECT * FROM t.left_over();
-- what cannot be submitted fails its undo
SELECT t.clean() \g /dev/null
SELECT t.workflow('wrong', '{"a": {"agent": "inventory", "call": {}, "undo": {"workflow": "give_back", "input": "{{input.list}}"}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('wrong', '{"list": [1]}') UNION ALL SELECT run_id FROM sas.submit('wrong');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT run_id, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE step = 'a' ORDER BY 1;

-- what it returns is expected like the reply of any undo
SELECT t.clean() \g /dev/null
SELECT t.workflow('says', '{"a": {"function": "t.echo"}}', '{"output": "{{steps.a.output}}"}') \g /dev/null
SELECT t.workflow('expects', '{"a": {"agent": "inventory", "call": {}, "undo": {"workflow": "says", "input": {"ok": "{{input.ok}}"}, "expect": "$.output.ok == true"}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('expects', '{"ok": true}') UNION ALL SELECT run_id FROM sas.submit('expects', '{"ok": false}');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT output -> 'status' AS status FROM sas.steps WHERE run_id = 1 AND step = 'a';
SELECT * FROM t.alerts();
SELECT changed FROM sas.force_complete(2, 'a');
SELECT t.work() \g /dev/null
SELECT t.brief(2);
SELECT * FROM t.left_over();

-- of a map each element by a run of its own, one after the other, the last one first
SELECT t.clean() \g /dev/null
SELECT t.workflow('boxes', '{"m": {"agent": "inventory", "call": {"path": "/{{item}}"}, "each": "{{input.items}}", "undo": {"workflow": "give_back", "input": {"charge": "{{item}}"}}}, "b": {"agent": "payments", "call": {}, "after": ["m"]}}') \g /dev/null
SELECT run_id FROM sas.submit('boxes', '{"items": ["x", "y", "z"]}');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(1);
SELECT run_id, input ->> 'charge' AS charge, parent_run_id FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- of a step that is a run itself it takes the place of that one's own undos
SELECT t.clean() \g /dev/null
SELECT t.workflow('whole', '{"go": {"workflow": "give_back", "input": {"charge": 1}, "undo": {"workflow": "says", "input": {"was": "{{steps.go.output?}}"}}}, "b": {"agent": "payments", "call": {"path": "/b"}, "after": ["go"]}}') \g /dev/null
SELECT run_id FROM sas.submit('whole');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT * FROM t.left_over();

-- planned by a function, each in a claim of its own
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.plan_back(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('s', jsonb_build_object('function', 't.echo', 'input', input))) $$;
SELECT t.workflow('planned_back', '{}', '{"plan": "t.plan_back"}') \g /dev/null
SELECT t.workflow('plans', '{"a": {"agent": "inventory", "call": {}, "undo": {"workflow": "planned_back", "input": {"x": 1}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('plans');
SELECT t.work('{"b": "permanent 400", "undo a": {"steps": {"s": {"function": "t.echo"}}}}');
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();

-- an undo that waits for a signal, and one for a time
SELECT t.clean() \g /dev/null
SELECT t.workflow('ask', '{
    "first": {"agent": "inventory", "call": {}, "undo": {"wait": {"for": "{{input.rest}}"}}},
    "second": {"agent": "payments", "call": {}, "after": ["first"], "undo": {"wait": {"signal": "given_back", "timeout": "1 day"}, "expect": "$.output.ok == true"}},
    "third": {"agent": "shipping", "call": {}, "after": ["second"]}}') \g /dev/null
SELECT run_id FROM sas.submit('ask', '{"rest": "10 min"}') UNION ALL SELECT run_id FROM sas.submit('ask', '{"rest": "10 min"}') UNION ALL SELECT run_id FROM sas.submit('ask', '{"rest": "10 min"}') UNION ALL SELECT run_id FROM sas.submit('ask', '{"rest": 7}');
-- a signal that comes before it is kept
SELECT sas.signal(1, 'given_back', '{"ok": true}');
SELECT t.work('{"third": "permanent 400"}') \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT step, waiting_kind, waiting_on, t.at(waiting_until) AS until FROM sas.steps WHERE run_id = 2 AND step = 'second';
SELECT sas.signal(2, 'given_back', '{"ok": true}'), sas.signal(3, 'given_back', '{"ok": false}'), sas.signal(4, 'given_back', '{"ok": true}');
SELECT t.work();
SELECT t.brief(1), t.brief(2), t.brief(3), t.brief(4);
SELECT run_id, kind, step, message FROM t.alerts();
-- a pause while it rests
SELECT changed FROM sas.pause(1);
SELECT changed FROM sas.resume(1);
SELECT t.later('10 min');
SELECT t.work();
SELECT t.brief(1), t.brief(2);
-- nobody sends it: the undo has failed; resume waits again
SELECT changed FROM sas.resume(3);
SELECT t.settle();
SELECT t.later('1 day');
SELECT t.work();
SELECT t.brief(3);
SELECT changed FROM sas.resume(3);
SELECT t.settle() \g /dev/null
SELECT sas.signal(3, 'given_back', '{"ok": true}');
SELECT t.work(), t.later('10 min'), t.work() \g /dev/null
SELECT t.brief(3);
-- no step waits for it any more, or for anything of that name
SELECT sas.signal(3, 'given_back');
SELECT sas.signal(4, 'given_back');
SELECT sas.signal(4, 'other');
SELECT step, changed FROM sas.skip(4, 'first');
SELECT t.work() \g /dev/null
SELECT t.brief(4);
SELECT * FROM t.left_over();

-- in doubt: undone by a run before its fallback is tried
SELECT t.clean() \g /dev/null
SELECT t.workflow('instead', '{"pay": {"agent": "payments", "call": {"path": "/pay"}, "recovery": {"max_failures": 1}, "undo": {"workflow": "give_back", "input": {"charge": "{{steps.pay.key}}"}},
                                       "fallback": {"workflow": "says", "input": {"by": "transfer"}}}, "end": {"function": "t.echo", "input": {"by": "{{steps.pay.output.by}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('instead');
SELECT t.work('{"pay": "doubt"}');
SELECT t.brief(1), t.brief(2), t.brief(3);
SELECT * FROM t.left_over();

-- cancelled meanwhile: that run goes on, and there is no fallback
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('instead');
SELECT t.work('{"pay": "doubt", "refund": "transient 503"}') \g /dev/null
SELECT changed FROM sas.cancel(1);
SELECT t.settle() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT t.later('10 s'), t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();

-- fallbacks that are runs and waits: their output is that of the step
SELECT t.clean() \g /dev/null
SELECT t.workflow('ways', '{
    "a": {"agent": "payments", "call": {"path": "/a"}, "fallback": {"workflow": "buy"}},
    "b": {"agent": "inventory", "call": {"path": "/b"}, "after": ["a"], "fallback": {"wait": {"signal": "by_hand", "timeout": "1 h"}, "output": {"by": "{{output.who}}"}}},
    "c": {"function": "t.echo", "input": {"who": "{{steps.b.output.by}}"}},
    "d": {"agent": "shipping", "call": {"path": "/d"}, "after": ["c"]}}') \g /dev/null
SELECT run_id FROM sas.submit('ways');
SELECT t.work('{"a": "permanent 400", "b": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
SELECT sas.signal(1, 'by_hand', '{"who": "ann"}');
SELECT t.work();
SELECT t.brief(1);
SELECT step, output FROM sas.steps WHERE run_id = 1 AND step IN ('b', 'c') ORDER BY 1;
-- it is undone with its parent by its own undos, as any child
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('ways');
SELECT t.work('{"a": "permanent 400", "d": "permanent 400"}');
SELECT t.brief(1), t.brief(2);
-- cancelled while it runs, or waits
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('ways') UNION ALL SELECT run_id FROM sas.submit('ways');
SELECT t.work('{"a": "permanent 400", "b": "permanent 400", "take": "transient 503"}') \g /dev/null
SELECT changed FROM sas.cancel(1);
SELECT t.work() \g /dev/null
SELECT t.later('10 s'), t.work('{"b": "permanent 400"}') \g /dev/null
SELECT t.brief(2);
SELECT changed FROM sas.cancel(2);
SELECT t.work() \g /dev/null
SELECT t.brief(1), t.brief(2);
-- it fails: with it the step, whose rule decides; resume goes on with it
SELECT t.workflow('paused_ways', '{"b": {"agent": "inventory", "call": {"path": "/b"}, "on_failure": "pause", "fallback": {"wait": {"signal": "by_hand", "timeout": "1 h"}}}, "c": {"agent": "payments", "call": {}, "on_failure": "pause", "after": ["b"], "fallback": {"workflow": "buy"}}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id AS id FROM sas.submit('paused_ways') \gset
SELECT t.work('{"b": "permanent 400"}'), t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(:id);
SELECT changed FROM sas.resume(:id);
SELECT t.settle() \g /dev/null
SELECT sas.signal(:id, 'by_hand');
SELECT t.work('{"c": "permanent 400", "ship": "permanent 400"}');
SELECT t.brief(:id);
SELECT changed FROM sas.resume(:id);
SELECT t.work();
SELECT t.brief(:id);
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
