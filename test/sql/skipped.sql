-- SPDX-License-Identifier: PostgreSQL
--
-- A skipped step is run later: by sas.retry of it, while its run is open. What was skipped with it for want of
-- its output, and what comes after it and has not begun, waits for it.
SELECT t.clean() \g /dev/null
SELECT t.workflow('late', '{
    "a": {"agent": "inventory", "call": {}},
    "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": "skip"},
    "c": {"agent": "inventory", "call": {"body": {"id": "{{steps.b.output.body.id}}"}}},
    "d": {"agent": "inventory", "call": {"body": {"id": "{{steps.c.output.body.id}}"}}},
    "e": {"agent": "inventory", "call": {}, "after": ["b"]},
    "hold": {"wait": {"signal": "go"}, "after": ["a"]},
    "f": {"agent": "inventory", "call": {}, "after": ["b", "hold"]}}', '{"output": {"id": "{{steps.d.output.body.id?}}"}}') \g /dev/null

-- by a rule; what went on has gone on
SELECT run_id FROM sas.submit('late');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(1);
SELECT step, changed, state, refused FROM sas.retry(1, 'b');
SELECT t.brief(1);
SELECT error FROM sas.runs;
-- f waits for it, too, though its other step ends first
SELECT sas.signal(1, 'go') \g /dev/null
SELECT t.claim() FROM t.settle();
SELECT t.brief(1);
SELECT t.answer('b');
SELECT t.work();
SELECT t.brief(1);
SELECT output, error FROM sas.runs;
SELECT act, step FROM sas.history ORDER BY act;
SELECT * FROM t.left_over();

-- by an operator, whose run goes on at once: what is ready and not claimed waits again
SELECT run_id FROM sas.submit('late');
SELECT t.claim();
SELECT t.answer('a');
SELECT changed FROM sas.skip(2, 'b');
SELECT t.brief(2);
SELECT changed FROM sas.retry(2, 'b');
SELECT t.brief(2);
SELECT step, needs_left FROM _sas.step s JOIN sas.steps USING (run_id) WHERE run_id = 2 AND s.step_no = sas.steps.position AND s.state = 'waiting' ORDER BY 1;
SELECT t.claim();
SELECT t.answer('b');
SELECT t.settle();
SELECT t.brief(2);
SELECT changed FROM sas.skip(2, 'hold');
SELECT t.work();
SELECT t.brief(2);
SELECT * FROM t.left_over();

-- it fails again: the rule again; another output counts as any, and is forgotten when the step is run
SELECT run_id FROM sas.submit('late');
SELECT t.work('{"b": "permanent 400"}');
SELECT changed FROM sas.retry(3, 'b');
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(3);
SELECT changed FROM sas.retry(3, 'b');
SELECT changed FROM sas.skip(3, 'b', '{"body": {"id": "by hand"}}');
SELECT t.work();
SELECT t.brief(3);
SELECT changed FROM sas.retry(3, 'b');
SELECT output, error FROM sas.steps WHERE run_id = 3 AND step = 'b';
SELECT t.work('{"b": {"status": 200, "body": {"id": "later"}}}');
SELECT output -> 'body' AS output, state FROM sas.steps WHERE run_id = 3 AND step = 'b';
-- undone in the order in which things were done
SELECT changed FROM sas.cancel(3);
SELECT t.work();
SELECT t.brief(3);

-- a paused run continues, as with any retry of a step
SELECT run_id FROM sas.submit('late');
SELECT t.work('{"b": "permanent 400"}');
SELECT changed FROM sas.pause(4);
SELECT changed, state FROM sas.retry(4, 'b');
SELECT t.work();
SELECT t.brief(4);
SELECT sas.signal(4, 'go') \g /dev/null
SELECT t.work();
SELECT t.brief(4);
SELECT * FROM t.left_over();

-- what another skipped step keeps away stays so
SELECT t.workflow('two', '{
    "a": {"agent": "inventory", "call": {}, "on_failure": "skip"},
    "b": {"agent": "inventory", "call": {}, "on_failure": "skip"},
    "both": {"function": "t.echo", "input": {"a": "{{steps.a.output.body.id}}", "b": "{{steps.b.output.body.id}}"}},
    "then": {"function": "t.echo", "input": "{{steps.both.output}}"},
    "hold": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT run_id FROM sas.submit('two');
SELECT t.work('{"a": "permanent 400", "b": "permanent 400"}');
SELECT t.brief(5);
SELECT changed FROM sas.retry(5, 'a');
SELECT t.work();
SELECT t.brief(5);
SELECT changed FROM sas.retry(5, 'b');
SELECT t.work();
SELECT t.brief(5);
SELECT sas.signal(5, 'go') \g /dev/null
SELECT t.work();
SELECT t.brief(5);
SELECT * FROM t.left_over();

-- an include of which what it needs was skipped comes back as a whole
SELECT t.workflow('part', '{"x": {"function": "t.echo", "input": "{{input}}"}, "y": {"function": "t.echo", "after": ["x"], "input": 1}}', '{"output": "{{steps.x.output}}"}') \g /dev/null
SELECT t.workflow('whole', '{
    "a": {"agent": "inventory", "call": {}, "on_failure": "skip"},
    "part": {"include": "part", "input": {"id": "{{steps.a.output.body.id}}"}},
    "use": {"function": "t.echo", "input": "{{steps.part.output}}"},
    "hold": {"wait": {"signal": "go"}}}') \g /dev/null
SELECT run_id FROM sas.submit('whole');
SELECT t.work('{"a": "permanent 400"}');
SELECT t.brief(6);
-- what is inside an include that is skipped cannot begin; nor what was skipped for another step
SELECT refused FROM sas.retry(6, 'part.x');
SELECT refused FROM sas.retry(6, 'use');
SELECT changed FROM sas.retry(6, 'a');
SELECT t.work();
SELECT t.brief(6);
SELECT output FROM sas.steps WHERE run_id = 6 AND step = 'use';
SELECT sas.signal(6, 'go') \g /dev/null
SELECT t.work();
SELECT t.brief(6);
SELECT * FROM t.left_over();

-- refused: its condition was false; the functions at the end have begun; the run has stopped
SELECT t.workflow('no', '{
    "a": {"agent": "inventory", "call": {}, "when": "$.input.go == true"},
    "b": {"agent": "inventory", "call": {}, "on_failure": "skip"}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('no');
SELECT t.claim() FROM t.settle();
SELECT refused FROM sas.retry(7, 'a');
SELECT t.answer('b', 'permanent 400');
SELECT t.work('{"finalize": "permanent"}');
SELECT t.brief(7);
SELECT refused FROM sas.retry(7, 'b');
SELECT changed FROM sas.resume(7);
SELECT t.work();
SELECT refused FROM sas.retry(7, 'b');
SELECT * FROM t.left_over();

-- so does what is ready in a paused run
SELECT run_id AS run FROM sas.submit('late') \gset
SELECT t.claim();
SELECT changed FROM sas.pause(:run);
SELECT t.answer('a');
SELECT step, changed FROM sas.skip(:run, 'b');
SELECT t.brief(:run);
SELECT step, state FROM sas.steps WHERE run_id = :run AND state = 'ready';
SELECT step, changed FROM sas.retry(:run, 'b');
SELECT t.brief(:run);
SELECT sas.signal(:run, 'go') \g /dev/null
SELECT t.work();
SELECT t.brief(:run);
SELECT * FROM t.left_over();

-- a reply that was not accepted is no output: null in the array of a map; a step that needs it is skipped; an undo still reads it
SELECT t.workflow('rejected', '{
    "each": {"agent": "inventory", "each": "{{input.list}}", "call": {}, "expect": "$.output.body.good == true", "on_failure": "skip"},
    "one": {"agent": "payments", "call": {}, "expect": "$.output.body.good == true", "on_failure": "skip",
            "undo": {"call": {"method": "POST", "body": "{{steps.one.output.body.id}}"}}},
    "need": {"function": "t.echo", "input": "{{steps.one.output.body.id}}"},
    "may": {"function": "t.echo", "input": {"id": "{{steps.one.output.body.id?}}"}},
    "hold": {"wait": {"signal": "go"}, "after": ["each", "may"]}}', '{"output": {"each": "{{steps.each.output}}", "one": "{{steps.one.output?}}"}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('rejected', '{"list": [1, 2]}') \gset
SELECT t.claim() FROM t.settle();
SELECT t.answer('each', output => '{"status": 200, "body": {"good": true}}', for_element => 1);
SELECT t.answer('each', output => '{"status": 200, "body": {"good": false}}', for_element => 2);
SELECT t.answer('one', output => '{"status": 200, "body": {"good": false, "id": 7}}');
SELECT t.work();
SELECT step, element, state, output -> 'body' AS body FROM sas.steps WHERE run_id = :run AND step <> 'each' OR element > 0 ORDER BY position, element;
SELECT output FROM sas.steps WHERE run_id = :run AND step IN ('each', 'may') AND element IS NULL ORDER BY step;
SELECT changed FROM sas.cancel(:run);
SELECT t.settle();
SELECT t.claim();
SELECT asked ->> 'body' AS undo_body FROM t.held;
SELECT t.work();
SELECT state, result, output FROM sas.runs WHERE run_id = :run;
-- so too if an operator skips it; another output that the operator gives is one, and the reason stays
SELECT t.workflow('held', '{
    "one": {"agent": "payments", "call": {}, "expect": "$.output.body.good == true", "on_failure": "pause"},
    "need": {"function": "t.echo", "input": "{{steps.one.output.body.id}}"}}', '{"output": {"one": "{{steps.one.output.body.id?}}", "need": "{{steps.need.output?}}"}}') \g /dev/null
SELECT run_id AS first, run_id + 1 AS second FROM sas.submit('held') \gset
SELECT run_id FROM sas.submit('held') \g /dev/null
SELECT t.claim() FROM t.settle();
SELECT t.answer('one', output => '{"status": 200, "body": {"good": false, "id": 7}}', for_run => :first);
SELECT t.answer('one', output => '{"status": 200, "body": {"good": false, "id": 8}}', for_run => :second);
SELECT t.settle();
SELECT changed FROM sas.skip(:first, 'one');
SELECT changed FROM sas.skip(:second, 'one', '{"body": {"id": "by hand"}}');
SELECT t.work();
SELECT result, output, error ->> 'title' AS error, error ->> 'detail' AS detail FROM sas.runs WHERE run_id IN (:first, :second) ORDER BY run_id;
SELECT * FROM t.left_over();
-- a run that goes on after a pause and ends with a warning names the step that is still skipped, not the pause
SELECT t.workflow('warned', '{
    "a": {"agent": "inventory", "call": {}, "on_failure": "skip"},
    "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": "pause"}}') \g /dev/null
SELECT run_id AS run FROM sas.submit('warned') \gset
SELECT t.work('{"a": "permanent 400", "b": "permanent 402"}');
SELECT t.brief(:run), error ->> 'title' AS error FROM sas.runs WHERE run_id = :run;
SELECT changed FROM sas.resume(:run);
SELECT t.work();
SELECT t.brief(:run), error ->> 'title' AS error FROM sas.runs WHERE run_id = :run;

-- later steps can ask whether a step was skipped because it had failed: not if its condition was false, nor if it was given an output
SELECT t.workflow('asks', '{
    "a": {"agent": "inventory", "call": {}, "on_failure": {"permanent": "skip", "transient": "pause"}, "recovery": {"max_failures": 1}},
    "off": {"function": "t.echo", "when": "$.input.go == true"},
    "then": {"function": "t.echo", "after": ["a"], "when": "$.steps.a.failed == true", "input": "{{steps.a.state}}"}}',
    '{"output": {"a": "{{steps.a.failed}}", "off": "{{steps.off.failed}}", "then": "{{steps.then.output?}}"}}') \g /dev/null
SELECT run_id AS first, run_id + 1 AS second, run_id + 2 AS third FROM sas.submit('asks') \gset
SELECT count(*) FROM sas.submit_batch('asks', '{"{}", "{}"}');
SELECT t.claim() FROM t.settle();
SELECT t.answer('a', 'permanent 400', for_run => :first);
SELECT t.answer('a', 'transient 500', for_run => :second);
SELECT t.answer('a', 'transient 500', for_run => :third);
SELECT t.settle();
SELECT changed FROM sas.skip(:second, 'a');
SELECT changed FROM sas.skip(:third, 'a', '{}');
SELECT t.work();
SELECT run_id - :first AS n, result, output FROM sas.runs WHERE workflow = 'asks' ORDER BY 1;
SELECT * FROM t.left_over();
