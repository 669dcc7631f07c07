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
SELECT t.work(), waiting_until - sas.now() AS next_turn_in FROM sas.steps WHERE run_id = 2 AND element IS NULL;
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
SELECT deadline - sas.now() AS time_left FROM sas.runs WHERE run_id = 6;
SELECT t.work(), t.brief(6), t.later('1 min');
SELECT t.work(), t.brief(6);
-- resumed before its deadline it has the rest
SELECT changed, state FROM sas.resume(6);
SELECT t.work(), t.later('20 s');
SELECT changed, state FROM sas.pause(6);
SELECT changed, state FROM sas.resume(6);
SELECT deadline - sas.now() AS time_left FROM sas.runs WHERE run_id = 6;
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

-- a map of many is undone in reverse order, too, from a list; the outcome of one in doubt is asked first
SELECT t.workflow('wide', '{"a": {"agent": "inventory", "call": {"body": "{{item}}"}, "each": "{{input.l}}", "on_failure": "skip", "recovery": {"max_failures": 1},
                                  "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}, "z": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('wide', (SELECT jsonb_build_object('l', jsonb_agg(g)) FROM generate_series(1, 60) g)) \gset
SELECT t.settle(), t.claim() <> 'nothing' AS claimed;
SELECT count(*) AS answered FROM generate_series(1, 60) g WHERE t.answer('a', CASE g WHEN 7 THEN 'doubt' ELSE 'done' END, for_element => g) = 'taken';
SELECT t.settle(), t.claim(), t.answer('z', 'permanent 422'), t.settle();
SELECT count(*) AS listed FROM _sas.undo_order;
WITH done AS MATERIALIZED (SELECT t.work() AS said)
SELECT said = 'a[7], undo a[7], ' || (SELECT string_agg(format('undo a[%s]', g), ', ' ORDER BY g DESC) FROM generate_series(1, 60) g WHERE g <> 7) AS in_reverse_order FROM done;
SELECT state, result FROM sas.runs WHERE run_id = :run_id;

-- an element does not carry along the list that its map goes over, and still sees what else it names there
SELECT t.workflow('listed', '{"l": {"function": "t.echo"}, "b": {"function": "t.echo"},
    "m": {"function": "t.echo", "each": "{{steps.l.output.l}}", "when": "$.steps.l.output.n > 0", "input": {"item": "{{item}}", "b": "{{steps.b.output.n}}"}},
    "o": {"function": "t.echo", "each": "{{steps.l.output.l}}", "input": {"item": "{{item}}", "n": "{{steps.l.output.n}}"}}}') \g /dev/null
SELECT name, reads, enter_reads FROM _sas.workflow_step WHERE name IN ('m', 'o') AND version_id = (SELECT max(version_id) FROM _sas.workflow_version) ORDER BY 1;
SELECT run_id FROM sas.submit('listed', '{"n": 3, "l": ["x", "y"]}') \gset
SELECT t.work();
SELECT step, output FROM sas.steps WHERE run_id = :run_id AND step IN ('m', 'o') AND element IS NULL ORDER BY 1;
-- nor what it does not name of the input of an include
SELECT t.workflow('inner', '{"m": {"function": "t.echo", "each": "{{input.l}}", "input": {"item": "{{item}}", "n": "{{input.n}}"}}, "w": {"function": "t.echo"}}', '{"output": {"m": "{{steps.m.output}}", "w": "{{steps.w.output}}"}}') \g /dev/null
SELECT t.workflow('outer', '{"i": {"include": "inner", "input": {"l": "{{input.l}}", "n": "{{input.n}}"}}}', '{"output": "{{steps.i.output}}"}') \g /dev/null
SELECT name, input_reads FROM _sas.workflow_step WHERE name ~ 'i[.][mw]' AND version_id = (SELECT max(version_id) FROM _sas.workflow_version) ORDER BY 1;
SELECT run_id FROM sas.submit('outer', '{"n": 3, "l": ["x", "y"]}') \gset
SELECT t.work();
SELECT output FROM sas.runs WHERE run_id = :run_id;
SELECT * FROM t.left_over();

-- what a step is to be given is too large to be put together: it fails for good, and holds up nobody
SELECT t.clean() \g /dev/null
SELECT t.workflow('heavy', '{"c": {"agent": "inventory", "call": {"body": "heavy"}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT t.workflow('light', '{"c": {"agent": "inventory", "call": {"body": "light"}}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT t.workflow('last', '{"f": {"function": "t.echo"}}') \g /dev/null
SELECT w, run_id FROM unnest('{heavy,light,last}'::text[]) w CROSS JOIN LATERAL sas.submit(w) ORDER BY 2;
BEGIN;
-- as if it were: jsonb has a limit of 256 MB
CREATE OR REPLACE FUNCTION _sas.render_request(request jsonb, root jsonb, OUT result jsonb, OUT problem jsonb) LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF request ->> 'body' = 'heavy' THEN
        RAISE EXCEPTION 'total size of jsonb object elements exceeds the maximum' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    result := request;
END $$;
CREATE OR REPLACE FUNCTION _sas.finalizers(run_id bigint, version_id int, last text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RAISE EXCEPTION 'total size of jsonb object elements exceeds the maximum' USING ERRCODE = 'program_limit_exceeded';
END $$;
SELECT t.settle(), t.claim();
SELECT step, run_id, asked IS NOT NULL AS asked, problem FROM t.held ORDER BY run_id;
SELECT t.answer('c', 'permanent', for_run => 1), t.answer('c', for_run => 2), t.answer('f', output => '{}');
SELECT run_id FROM sas.submit('last');
SELECT t.settle(), t.claim();
SELECT step, run_id, asked IS NOT NULL AS asked, problem FROM t.held ORDER BY run_id;
SELECT t.answer('finalize', 'permanent'), t.answer('f', output => '{}'), t.settle();
SELECT t.brief(n) FROM generate_series(1, 4) n;
ROLLBACK;
-- the same with a task
SELECT t.clean() \g /dev/null
SELECT t.workflow('heavy_task', '{"c": {"agent": "robots", "task": {}, "input": "{{input.n}}"}}', '{"on_failure": "fail"}') \g /dev/null
SELECT run_id FROM generate_series(1, 2) n CROSS JOIN LATERAL sas.submit('heavy_task', jsonb_build_object('n', n));
BEGIN;
CREATE OR REPLACE FUNCTION _sas.context(r _sas.run, w _sas.workflow_step, element int) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF r.run_id = 1 THEN
        RAISE EXCEPTION 'total size of jsonb object elements exceeds the maximum' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    RETURN jsonb_build_object('input', r.input);
END $$;
SELECT t.settle();
SELECT run_id, step, request FROM sas.claim('robots', 'r2', 2);
SELECT t.settle();
SELECT t.brief(n) FROM generate_series(1, 2) n;
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 1;
ROLLBACK;

-- workflows that start each other come to an end, and a cancel catches up with them
SELECT t.clean() \g /dev/null
SELECT t.workflow('mirror', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('mirror', '{"a": {"workflow": "mirror"}}') \g /dev/null
SELECT run_id FROM sas.submit('mirror');
SELECT t.work();
SELECT count(*) AS runs, count(*) FILTER (WHERE state = 'stopped' AND result = 'error') AS failed, max(error ->> 'detail') FILTER (WHERE run_id = 101) AS why FROM sas.runs;
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('mirror');
SELECT count(*) AS ticks FROM generate_series(1, 20), LATERAL _sas.scheduler_tick(10);
SELECT changed, state FROM sas.cancel(1);
SELECT t.work();
SELECT count(*) < 30 AS soon, count(*) FILTER (WHERE result IN ('cancelled', 'error')) = count(*) AS ended FROM sas.runs;
SELECT * FROM t.left_over();
