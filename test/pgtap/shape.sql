-- SPDX-License-Identifier: PostgreSQL
--
-- Shape: what after, references, flow and include make of a definition.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE SCHEMA shop;
CREATE FUNCTION shop.f(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
GRANT USAGE ON SCHEMA shop TO PUBLIC;

-- steps(names): plain steps
CREATE FUNCTION pg_temp.steps(VARIADIC names text[]) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_object_agg(n, '{"function": "shop.f"}'::jsonb) FROM unnest(names) n
$$;
-- version(workflow): of its current version
CREATE FUNCTION pg_temp.version(workflow text) RETURNS int LANGUAGE sql AS $$
    SELECT v.version_id FROM _sas.workflow w JOIN _sas.workflow_version v USING (workflow_id, version) WHERE w.name = $1 AND w.dropped_at IS NULL
$$;
-- edges(workflow): "a>c b>c"
CREATE FUNCTION pg_temp.edges(workflow text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(f.name || '>' || t.name, ' ' ORDER BY f.name COLLATE "C", t.name COLLATE "C")
    FROM _sas.workflow_edge e
    JOIN _sas.workflow_step f ON f.version_id = e.version_id AND f.step_no = e.from_no AND NOT f.undo
    JOIN _sas.workflow_step t ON t.version_id = e.version_id AND t.step_no = e.to_no AND NOT t.undo
    WHERE e.version_id = pg_temp.version($1)
$$;
-- order_of(steps, flow)
CREATE FUNCTION pg_temp.order_of(steps jsonb, flow jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sas.create_workflow('shape', jsonb_build_object('steps', steps, 'flow', flow));
    RETURN pg_temp.edges('shape');
END $$;

-- flow ------------------------------------------------------------------------------------------

SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c'), '{"sequence": ["a", "b", "c"]}'), 'a>b b>c', 'a sequence is a chain');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c'), '{"concurrence": ["a", "b", "c"]}'), NULL, 'a concurrence is no order');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c', 'd'), '{"sequence": ["a", {"concurrence": ["b", "c"]}, "d"]}'), 'a>b a>c b>d c>d', 'a fork and a join');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c', 'd'), '{"sequence": [{"concurrence": ["a", "b"]}, {"concurrence": ["c", "d"]}]}'), 'a>c a>d b>c b>d',
          'every last step of a part comes before every first step of the next');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c', 'd', 'e', 'f'), '{"sequence": [{"concurrence": [{"sequence": ["a", "b"]}, "c"]}, {"sequence": ["d", {"concurrence": ["e", {"sequence": ["f"]}]}]}]}'),
          'a>b b>d c>d d>e d>f', 'shapes nest');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c', 'd', 'e'), '{"sequence": [{"concurrence": ["a", "b", "c"]}, {"concurrence": ["d", "e"]}]}'),
          '(join 1/1)>d (join 1/1)>e a>(join 1/1) b>(join 1/1) c>(join 1/1)', 'three steps before two: a hidden step between, five edges in place of six');
SELECT is((SELECT steps FROM sas.workflows WHERE workflow = 'shape'), 5, 'it does not count as a step');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b', 'c') || '{"d": {"function": "shop.f", "after": ["a"], "input": "{{steps.b.output}}"}}', '{"sequence": ["a", "d"]}'), 'a>d b>d',
          'flow, after and references combine, and steps need not be in the flow');
SELECT is((SELECT definition -> 'flow' FROM sas.workflows WHERE workflow = 'shape'), '{"sequence": ["a", "d"]}', 'the flow is to be seen as it was written');
SELECT is(pg_temp.order_of(pg_temp.steps('a', 'b') || '{"c": {"function": "shop.f", "after": ["a"]}, "d": {"function": "shop.f", "after": ["a", "b"]}}', '{"concurrence": ["a", "b"]}'), 'a>c a>d b>d',
          'nothing is put in order that need not be: c waits for a only');

-- include -----------------------------------------------------------------------------------------

SELECT sas.create_workflow('inner', '{"steps": {"a": {"function": "shop.f"}, "b": {"function": "shop.f", "input": {"x": "{{steps.a.output.x}}", "y": "{{input.y}}"}, "undo": {"function": "shop.f"}}},
    "output": {"sum": "{{steps.b.output}}"}, "on_failure": {"permanent": "skip"}, "recovery": {"max_failures": 3}}') \g /dev/null
SELECT sas.create_workflow('outer', '{"steps": {"before": {"function": "shop.f"}, "x": {"include": "inner", "input": {"y": "{{input.z}}"}, "after": ["before"]}, "a": {"function": "shop.f", "input": "{{steps.x.output.sum}}"}},
    "on_failure": {"transient": "fail"}, "recovery": {"initial": "1 s"}}') \g /dev/null
SELECT is(pg_temp.edges('outer'), 'before>x.(input) x>a x.(input)>x.a x.a>x.b x.b>x', 'what is included stands between the two ends of its include');
SELECT is((SELECT string_agg(w.name, ' ' ORDER BY w.step_no) FROM _sas.workflow_step w WHERE w.version_id = pg_temp.version('outer') AND NOT w.undo AND NOT w.hidden), 'a x.a x.b x before',
          'its steps bear the name of the include before their own, and there may be another "a" outside');
SELECT is((SELECT w.input FROM _sas.workflow_step w WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x.a'), '"{{input}}"', 'an included function without input gets the input of the include');
SELECT is((SELECT o.name FROM _sas.workflow_step w JOIN _sas.workflow_step o ON o.version_id = w.version_id AND o.step_no = w.scope_no WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x.b' AND NOT w.undo),
          'x.(input)', 'and what it sees as input is the result of the open end');
SELECT is((SELECT array_agg(f.name) FROM _sas.workflow_step w JOIN _sas.workflow_step f ON f.version_id = w.version_id AND f.step_no = ANY (w.reads) WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x.b' AND NOT w.undo AND NOT f.undo),
          '{x.a}', 'steps.a means the one beside it');
SELECT is((SELECT (w.on_transient, w.on_permanent, w.recovery ->> 'max_failures', w.recovery ->> 'initial')::text FROM _sas.workflow_step w WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x.a'),
          '(fail,skip,3,"1 s")', 'on_failure and recovery of the included workflow hold for its steps, over those of the run');
SELECT is((SELECT (w.kind, w.input, w.request ->> 'version')::text FROM _sas.workflow_step w WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x'),
          '(join,"{""sum"": ""{{steps.b.output}}""}",1)', 'its output is the output of the include, and its version is kept');
SELECT is((SELECT array_agg(f.name ORDER BY f.step_no) FROM _sas.workflow_step w JOIN _sas.workflow_step f ON f.version_id = w.version_id AND f.step_no = ANY (w.covers) AND NOT f.undo
           WHERE w.version_id = pg_temp.version('outer') AND w.name = 'x.(input)'), '{x.a,x.b,x}', 'what is skipped with it');
SELECT is((SELECT string_agg(v.path || ' ' || v.problem, '; ') FROM sas.validate_workflow('{"steps": {"r": {"include": "empty"}}}') v), '/steps/r/include workflow "empty" does not exist', 'there is no workflow "empty" yet');
SELECT sas.create_workflow('empty', '{"steps": {}, "output": 7}') \g /dev/null
SELECT sas.create_workflow('most', '{"steps": {"p": {"include": "outer"}, "q": {"include": "outer"}, "r": {"include": "empty"}}, "flow": {"sequence": ["p", "q"]}}') \g /dev/null
SELECT is(pg_temp.edges('most'), 'p>q.(input) p.(input)>p.before p.a>p p.before>p.x.(input) p.x>p.a p.x.(input)>p.x.a p.x.a>p.x.b p.x.b>p.x '
          || 'q.(input)>q.before q.a>q q.before>q.x.(input) q.x>q.a q.x.(input)>q.x.a q.x.a>q.x.b q.x.b>q.x r.(input)>r', 'includes nest, come twice, stand in a flow, and may be of nothing');
SELECT sas.create_workflow('inner', '{"steps": {"other": {"function": "shop.f"}}}') \g /dev/null
SELECT ok(pg_temp.edges('outer') LIKE '%x.a>x.b%', 'a new version of what is included changes nothing');
SELECT sas.create_workflow('outer', definition) FROM sas.workflows WHERE workflow = 'outer' \g /dev/null
SELECT is(pg_temp.edges('outer'), 'before>x.(input) x>a x.(input)>x.other x.other>x', 'until the outer one is created anew');

SELECT throws_ok($$SELECT sas.create_workflow('inner', '{"steps": {"a": {"include": "outer"}}}')$$, '42P19', 'workflow "inner" includes itself: inner -> outer -> inner', 'recursion is refused with its chain');

-- a foreign workflow
CREATE ROLE shape_a; CREATE ROLE shape_b;
SELECT sas.grant_usage('shape_a', 'user'), sas.grant_usage('shape_b', 'user') \g /dev/null
SET ROLE shape_a;
SELECT sas.create_workflow('theirs', '{"steps": {"a": {"function": "shop.f"}}}') \g /dev/null
SET ROLE shape_b;
SELECT throws_ok($$SELECT sas.create_workflow('mine', '{"steps": {"a": {"include": "theirs"}}}')$$, '42501', 'permission denied for workflow "theirs"', 'one includes what one may submit');
SET ROLE shape_a;
SELECT sas.grant_workflow('theirs', 'shape_b') \g /dev/null
SET ROLE shape_b;
SELECT lives_ok($$SELECT sas.create_workflow('mine', '{"steps": {"a": {"include": "theirs"}}}')$$, 'and what was granted');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION shop.f FROM PUBLIC;
SET ROLE shape_b;
SELECT throws_ok($$SELECT sas.create_workflow('mine', '{"steps": {"a": {"include": "theirs"}}}')$$, '42501', 'in workflow "theirs", at /steps/a/function: permission denied for function shop.f(jsonb)',
                 'a function that only the other may call is refused');
RESET ROLE;
GRANT EXECUTE ON FUNCTION shop.f TO PUBLIC;

-- all problems at once ------------------------------------------------------------------------------

SELECT results_eq($$SELECT path, problem FROM sas.validate_workflow('{"colour": 1, "deadline": "soon", "steps": {
        "a": {"function": "shop.f", "colour": 1, "retry": {"max": 1}, "input": "{{item}} {{steps.n.output}}"}, "b": {"function": "shop.f", "call": 7, "after": ["q", "c"]}, "c": {"function": "shop.f", "after": ["b"]},
        "d": 7, "e": {"agent": 7, "call": {"path": 7}, "undo": {"function": "shop.no"}}, "f": {"function": "shop.f", "undo": {"function": "shop.f", "input": "{{steps.a.output}}"}}},
        "flow": {"sequence": ["a", "w", []]}, "output": "{{steps.z.output}}"}')$$,
    $$VALUES ('/colour', 'unknown key "colour"'), ('/deadline', '"soon" is not a valid span of time'),
             ('/steps/a/colour', 'unknown key "colour"'), ('/steps/a/retry/max', '1 is not a valid span of time'),
             ('/steps/b', 'a step can have only one of call, function, task, wait, workflow and include'),
             ('/steps/d', 'expected an object, not number'),
             ('/steps/e/agent', 'the agent must be a name'), ('/steps/e/call/path', 'the path must be a string'), ('/steps/e/undo/function', 'function shop.no(jsonb) does not exist'),
             ('/flow/sequence/2', 'a part of a flow is the name of a step, or an object with one of sequence and concurrence that contains an array of parts'), ('/flow/sequence/1', 'step "w" does not exist'),
             ('/steps/a/input', '"item" cannot be referenced here'),
             ('/steps/a/input', 'step "n" does not exist'), ('/output', 'step "z" does not exist'),
             ('/steps/b/after/0', 'step "q" does not exist'), ('/steps/b', 'the steps form a cycle: b -> c -> b')$$, 'every problem is told, and each once');
SELECT results_eq($$SELECT path, problem FROM sas.validate_workflow('{"steps": {
        "a": {"function": "shop.f", "when": "$.inptu.n > 1", "expect": "$.item.n == 1", "fallback": {"function": "shop.f", "expect": "$.started == 1"}, "undo": {"function": "shop.f", "expect": "$.outptu == 1"}},
        "b": {"function": "shop.f", "when": "$.output.n > 1", "each": "{{input.all}}", "expect": "$.item.n == $.index && $.output.n > 1 && $.last == 1"},
        "c": {"function": "shop.f", "when": "$.last == 1", "repeat": {"while": "$.last.n > 1 && $.output.n > $.index || $.item == 1"}, "expect": "exists($.last.n) || $.key == \"a\""},
        "d": {"function": "shop.f", "when": "exists($.input.all ? (@.n > $.nothing))", "expect": "$.output.n == $.run.id && 1 == 1"}}}')$$,
    $$VALUES ('/steps/a/when', '"$.inptu" cannot be referenced here'), ('/steps/a/expect', '"$.item" cannot be referenced here'),
             ('/steps/a/undo/expect', '"$.outptu" cannot be referenced here'), ('/steps/a/fallback/expect', '"$.started" cannot be referenced here'),
             ('/steps/b/when', '"$.output" cannot be referenced here'), ('/steps/b/expect', '"$.last" cannot be referenced here'),
             ('/steps/c/when', '"$.last" cannot be referenced here'), ('/steps/c/repeat/while', '"$.item" cannot be referenced here'),
             ('/steps/d/when', '"$.nothing" cannot be referenced here')$$, 'a predicate over what is not there is told, since it would be false for ever');
SELECT results_eq($$SELECT path, problem, hint LIKE 'Did you mean "output"? Refer to output, key, %' FROM sas.validate_workflow('{"steps": {
        "a": {"function": "shop.f"}, "in": {"include": "inner"},
        "b": {"function": "shop.f", "when": "$.steps.a.outptu == 1", "input": {"x": "{{steps.a.output.any}} {{steps.a.outptu?}}", "y": "{{steps.in.s.output}}"}},
        "c": {"function": "shop.f", "input": "{{steps.a}} {{steps.a.*}} {{steps.a.state}} {{steps.a.failed}} {{steps.a.key}} {{steps.in.output}}"}},
        "output": "{{steps.a.\"outptu\".x}}"}') ORDER BY path$$,
    $$VALUES ('/output', 'a step has no "outptu" in templates', true), ('/steps/b/input/x', 'a step has no "outptu" in templates', true),
             ('/steps/b/input/y', 'a step has no "s" in templates', false), ('/steps/b/when', 'a step has no "outptu" in templates', true)$$,
    'a reference to a member that no step has is told');
SELECT is((SELECT string_agg(path || ': ' || problem, '; ') FROM sas.validate_workflow('{"steps": {"a": {"function": "shop.f"}, "f": {"function": "shop.f", "undo": {"function": "shop.f", "input": "{{steps.a.output}}"}}}}')),
          '/steps/f/undo/input: step "a" is not before step "f"', 'an undo refers to what comes before');
SELECT is((SELECT count(*) FROM sas.validate_workflow('{"steps": {"a": {"function": "shop.f"}, "b": {"function": "shop.f", "after": ["a"]}, "f": {"function": "shop.f", "after": ["b"], "undo": {"function": "shop.f", "input": "{{steps.a.output}}"}}}}')),
          0::bigint, 'also over others');
SELECT results_eq($$SELECT path, problem FROM sas.validate_workflow(jsonb_build_object('steps', (SELECT jsonb_object_agg(n || g, jsonb_build_object('function', 'shop.f', 'after', jsonb_build_array(n || 3 - g))) FROM unnest('{a,b,c}'::text[]) n, generate_series(1, 2) g)))$$,
    $$VALUES ('/steps/a1', 'the steps form a cycle: a1 -> a2 -> a1'), ('/steps/b1', 'the steps form a cycle: b1 -> b2 -> b1'), ('/steps/c1', 'the steps form a cycle: c1 -> c2 -> c1')$$, 'each cycle is told');

-- ten thousand steps ----------------------------------------------------------------------------------

ALTER SYSTEM SET sas.max_definition_size = '8MB';
SELECT pg_reload_conf() \g /dev/null
SELECT pg_sleep(0.2) \g /dev/null
CREATE TEMP TABLE chain AS SELECT 's' || g AS name, 's' || g - 1 AS before FROM generate_series(1, 10000) g;
SET statement_timeout = '10 min';
SELECT lives_ok($$SELECT sas.create_workflow('by_after', jsonb_build_object('steps', (SELECT jsonb_object_agg(name, jsonb_build_object('function', 'shop.f', 'after', CASE before WHEN 's0' THEN '[]'::jsonb ELSE jsonb_build_array(before) END)) FROM chain)))$$,
                'a chain of 10,000 steps by after');
SELECT lives_ok($$SELECT sas.create_workflow('by_reference', jsonb_build_object('steps', (SELECT jsonb_object_agg(name, jsonb_build_object('function', 'shop.f', 'input', CASE before WHEN 's0' THEN '1' ELSE '{{steps.' || before || '.output}}' END,
                                                                                    'undo', jsonb_build_object('function', 'shop.f', 'input', '{{steps.s1.output}} {{steps.' || name || '.output}}'))) FROM chain)))$$,
                'by reference, with undos that refer far back');
SELECT lives_ok($$SELECT sas.create_workflow('by_flow', jsonb_build_object('steps', jsonb_object_agg(name, '{"function": "shop.f"}'::jsonb), 'flow', jsonb_build_object('sequence', jsonb_agg(name)))) FROM chain$$, 'by flow');
SELECT lives_ok($$SELECT sas.create_workflow('two_halves', jsonb_build_object('steps', jsonb_object_agg(name, '{"function": "shop.f"}'::jsonb), 'flow', jsonb_build_object('sequence',
                  jsonb_build_array(jsonb_build_object('concurrence', jsonb_agg(name) FILTER (WHERE length(name) < 5)), jsonb_build_object('concurrence', jsonb_agg(name) FILTER (WHERE length(name) > 4)))))) FROM chain$$, 'and a part of 999 before one of 9,001');
RESET statement_timeout;
SELECT is((SELECT count(*) FROM _sas.workflow_edge WHERE version_id = pg_temp.version('by_flow')), 9999::bigint, 'a chain has an edge less than steps');
SELECT is((SELECT count(*) FROM _sas.workflow_edge WHERE version_id = pg_temp.version('two_halves')), 10000::bigint, 'and the parts have one for each step');
SELECT is((SELECT problem FROM sas.validate_workflow(jsonb_build_object('steps', (SELECT jsonb_object_agg(name, jsonb_build_object('function', 'shop.f', 'after', jsonb_build_array(CASE before WHEN 's0' THEN 's10000' ELSE before END))) FROM chain)))),
          'the steps form a cycle: s1 -> s2 -> s3 -> s4 -> s5 -> s6 -> s7 -> s8 -> s9 -> s10 -> ... -> s9992 -> s9993 -> s9994 -> s9995 -> s9996 -> s9997 -> s9998 -> s9999 -> s10000 -> s1', 'of a long cycle both ends are told');
SELECT throws_ok($$SELECT sas.create_workflow('too_many', '{"steps": {"a": {"include": "by_flow"}}}')$$, '54000', NULL, 'what is included counts towards the limit of steps');

ALTER SYSTEM RESET sas.max_definition_size;
SELECT pg_reload_conf() \g /dev/null
-- names that need quotes ---------------------------------------------------------------------------

CREATE SCHEMA "an ""odd"" Shop";
CREATE FUNCTION "an ""odd"" Shop"."it's a ""f."(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"odd"'::jsonb $$;
CREATE TABLE "an ""odd"" Shop"."an ""item""" (item jsonb);
CREATE FUNCTION pg_temp.odd() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said jsonb;
BEGIN
    PERFORM sas.create_workflow('odd', sas.workflow(jsonb_build_object('a', sas.function('"an ""odd"" Shop"."it''s a ""f."')), output => '"{{steps.a.output}}"'));
    SELECT r.output INTO said FROM sas.run_inline('odd') r;
    RAISE EXCEPTION '%', said USING ERRCODE = 'ZZ001';
EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
    RETURN SQLERRM;
END $$;
SELECT is(pg_temp.odd(), '"odd"', 'a function with quotes in its name is called');
SELECT sas.create_agent('odd', 'http://127.0.0.1:1') \g /dev/null
SELECT lives_ok($$SELECT sas.create_watcher('odd', '{"agent": "odd", "poll": {"call": {}, "every": "1 min"}, "items": {"table": "\"an \"\"odd\"\" Shop\".\"an \"\"item\"\"\""}}')$$, 'a table with quotes in its name takes items');
SELECT lives_ok($$SELECT sas.create_middleware('odd', 'function', before => '"an ""odd"" Shop"."it''s a ""f."(jsonb)')$$, 'and such a function is middleware');
SELECT is(ARRAY(SELECT p.problem FROM unnest('{"\"a\"b\".f","a.f\"","a.\"f\"\"","\"\".f"}'::text[]) n, sas.validate_workflow(sas.workflow(jsonb_build_object('a', jsonb_build_object('function', n)))) p),
          ARRAY(SELECT to_jsonb(n)::text || ' is not the name of a function' FROM unnest('{"\"a\"b\".f","a.f\"","a.\"f\"\"","\"\".f"}'::text[]) n), 'quotes that do not match are refused');

SELECT * FROM finish();
