-- SPDX-License-Identifier: PostgreSQL
--
-- Output: what a step and a run keep.
SELECT t.clean() \g /dev/null
-- the whole output of a step; of a run nothing
SELECT t.workflow('plain', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('plain');
SELECT t.work();
SELECT s.output AS step, r.output AS run FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE run_id = 1;
-- only what the template says; later steps and the run see that
SELECT t.workflow('kept', '{"a": {"agent": "inventory", "call": {}, "output": {"id": "{{output.body.id}}", "from": "{{input.id}}"}},
                            "b": {"agent": "payments", "call": {"body": "{{steps.a.output}}"}}}',
                  '{"output": {"reserved": "{{steps.a.output.id}}", "order": "{{input.id}}", "run": "{{run.id}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('kept', '{"id": 7}');
SELECT t.claim(), t.answer('a'), t.claim();
SELECT asked -> 'body' AS body FROM t.held;
SELECT t.answer('b');
SELECT s.step, s.output FROM sas.steps s WHERE run_id = 2 ORDER BY 1;
SELECT state, result, output FROM sas.runs WHERE run_id = 2;
-- the output of a step cannot be made: that step has failed, though its call was done: it is undone
SELECT t.workflow('missing', '{"a": {"agent": "inventory", "call": {}, "output": {"id": "{{output.body.nope}}"}, "undo": {"call": {"path": "/{{steps.a.key}}"}}}}') \g /dev/null
SELECT f.* FROM t.try('missing') f;
SELECT error FROM sas.steps WHERE run_id = 3;
-- the output of a run cannot be made: it has succeeded, with a warning that says what is missing
SELECT t.workflow('warned', '{"a": {"agent": "inventory", "call": {}}}', '{"output": {"id": "{{steps.a.output.body.nope}}"}}') \g /dev/null
SELECT f.* FROM t.try('warned') f;
SELECT result, output, error FROM sas.runs WHERE run_id = 4;
-- unless it may be missing
SELECT t.workflow('optional', '{"a": {"agent": "inventory", "call": {}}}', '{"output": {"id": "{{steps.a.output.body.nope?}}"}}') \g /dev/null
SELECT f.* FROM t.try('optional') f;
SELECT result, output, error FROM sas.runs WHERE run_id = 5;
-- an undo does not change the output of its step
SELECT t.workflow('undone', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT f.* FROM t.try('undone', '{"b": "permanent 400", "undo a": "done 204"}') f;
SELECT step, state, output FROM sas.steps WHERE run_id = 6 ORDER BY 1;
-- a run without output that a step returned null for
SELECT t.workflow('null', '{"f": {"function": "t.echo"}, "g": {"function": "t.echo", "input": {"f": "{{steps.f.output?}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('null');
SELECT t.claim(), t.answer('f', 'done', 'null');
SELECT t.claim();
SELECT asked FROM t.held;
SELECT t.answer('g', 'done', 'null');
SELECT t.brief(7);
