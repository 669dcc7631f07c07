-- SPDX-License-Identifier: PostgreSQL
--
-- Shape in runs: flow and include.
-- a flow is walked as it is written; a hidden step stands between three and two
SELECT t.clean() \g /dev/null
SELECT t.workflow('flow', (SELECT jsonb_object_agg(n, '{"agent": "inventory", "call": {}}'::jsonb) FROM unnest('{a,b,c,d,e,f}'::text[]) n),
                  '{"flow": {"sequence": [{"concurrence": ["a", "b", {"sequence": ["c", "f"]}]}, {"concurrence": ["d", "e"]}]}}') \g /dev/null
SELECT run_id FROM sas.submit('flow');
SELECT t.claim();
SELECT t.answer('a'), t.answer('b'), t.answer('c');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.brief(1), (SELECT round(progress::numeric, 2) FROM sas.runs);
SELECT t.answer('f');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('d'), t.answer('e');
SELECT t.brief(1), (SELECT progress FROM sas.runs);
SELECT * FROM t.left_over();

-- what is included sees its own input and its own steps; its output is that of the step that includes it
SELECT t.clean() \g /dev/null
SELECT t.workflow('inner', '{"a": {"agent": "inventory", "call": {"body": {"who": "{{input.who}}"}}, "undo": {"agent": "inventory", "call": {"body": {"who": "{{input.who}}", "id": "{{steps.a.output.body.id}}"}}}},
                             "b": {"function": "t.echo", "after": ["a"]}}', '{"output": {"got": "{{steps.a.output.body.id}}"}}') \g /dev/null
SELECT t.workflow('outer', '{"a": {"agent": "inventory", "call": {}}, "x": {"include": "inner", "input": {"who": "{{steps.a.output.body.id}}"}}, "last": {"function": "t.echo", "input": {"x": "{{steps.x.output.got}}", "mine": "{{steps.a.output.body.id}}"}}}',
                  '{"output": "{{steps.x}}"}') \g /dev/null
SELECT run_id FROM sas.submit('outer');
SELECT t.claim();
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT asked -> 'body' FROM t.held;
SELECT t.answer('x.a');
SELECT t.claim();
SELECT asked FROM t.held;
SELECT t.answer('x.b');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT asked FROM t.held;
SELECT step, kind, state, output FROM sas.steps ORDER BY 1;
-- and is undone like any other step
SELECT t.answer('last', 'permanent');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT asked -> 'body' FROM t.held;
SELECT t.answer('x.a');
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- the output of the run sees the include as a step
SELECT t.clean() \g /dev/null
SELECT * FROM t.try('outer');
SELECT output - 'key' FROM sas.runs;

-- nested, twice, with and without steps; nothing refers to the outer scope
SELECT t.clean() \g /dev/null
SELECT t.workflow('none', '{}', '{"output": {"in": "{{input}}"}}') \g /dev/null
SELECT t.workflow('nest', '{"p": {"include": "outer"}, "q": {"include": "outer"}, "n": {"include": "none", "input": {"k": "{{steps.p.state}}"}}}', '{"flow": {"sequence": ["p", "q"]}, "output": "{{steps.n.output}}"}') \g /dev/null
SELECT run_id FROM sas.submit('nest', '{"z": 1}');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('p.a');
SELECT t.work();
SELECT t.brief(1);
SELECT output FROM sas.runs;
SELECT * FROM t.left_over();

-- an input that cannot be made fails the include before anything inside begins
SELECT t.clean() \g /dev/null
SELECT t.workflow('hole', '{"x": {"include": "inner", "input": {"who": "{{input.nobody}}"}}, "y": {"function": "t.echo", "after": ["x"]}}') \g /dev/null
SELECT run_id FROM sas.submit('hole');
SELECT t.settle() \g /dev/null
SELECT t.brief(1), (SELECT error ->> 'detail' FROM sas.runs), (SELECT error ->> 'instance' FROM sas.runs);
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
SELECT t.workflow('hole', '{"x": {"include": "inner", "input": {"who": "{{input.nobody}}"}}}', '{"on_failure": "pause"}') \g /dev/null
SELECT run_id FROM sas.submit('hole');
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT step, message FROM sas.alerts;
SELECT * FROM sas.retry(1, 'x');
SELECT changed FROM sas.cancel(1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.left_over();

-- an include whose condition is false is skipped with all that is inside
SELECT t.clean() \g /dev/null
SELECT t.workflow('perhaps', '{"x": {"include": "nest", "when": "$.input.go == true"}, "y": {"function": "t.echo", "input": "{{steps.x.output?}}", "after": ["x"]}}') \g /dev/null
SELECT run_id FROM sas.submit('perhaps', '{"go": false}');
SELECT t.work();
SELECT t.brief(1);
SELECT t.workflow('perhaps', '{"x": {"include": "inner", "when": "$.input.go == true", "else": "skip_cascade"}, "y": {"function": "t.echo", "after": ["x"]}, "z": {"function": "t.echo"}}') \g /dev/null
SELECT run_id FROM sas.submit('perhaps', '{"go": false}');
SELECT t.work();
SELECT t.brief(2);
SELECT run_id FROM sas.submit('perhaps', '{"go": true, "who": "eve"}');
SELECT t.work();
SELECT t.brief(3);
SELECT * FROM t.left_over();

-- a pause between keeps the include, resume goes on with it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('outer');
SELECT t.claim();
SELECT changed FROM sas.pause(1);
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.brief(1);
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- an include of which nothing stands any more is compensated as a whole, also inside of another; one that had nothing to undo stays as it is
SELECT t.clean() \g /dev/null
SELECT t.workflow('pair', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "m": {"agent": "inventory", "each": "{{input.l}}", "call": {}, "undo": {"call": {}}, "after": ["a"]}}') \g /dev/null
SELECT t.workflow('around', '{"p": {"include": "pair", "input": {"l": [1, 2]}}, "b": {"function": "t.echo", "after": ["p"]}}') \g /dev/null
SELECT t.workflow('idle', '{"f": {"function": "t.echo"}}') \g /dev/null
SELECT t.workflow('far', '{"o": {"include": "around"}, "i": {"include": "idle"}, "last": {"agent": "payments", "call": {}, "after": ["o", "i"]}}') \g /dev/null
SELECT run_id FROM sas.submit('far');
SELECT t.work('{"last": "permanent 402"}');
SELECT t.brief(1);
SELECT * FROM t.left_over();
