-- SPDX-License-Identifier: PostgreSQL
--
-- Budgets: what the paths, predicates and templates of users may cost.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null

-- .** and like_regex are refused at define, wherever they are, with the way round
SELECT path, problem FROM sas.validate_workflow('{
    "steps": {
        "a": {"agent": "inventory", "when": "exists($.input.a.**.b)",
              "call": {"path": "/{{input.**}}", "query": {"q": "{{input.a ? (@.b like_regex \"x\")}}"}, "headers": {"X-A": "{{input.a.**{2}}}"},
                       "body": {"deep": [{"er": "a {{input.list[$.input.**.n]}} b"}]}},
              "expect": "$.output.body ? (exists(@.c ? (@.d like_regex \"^x\"))) == 1",
              "output": "{{output.**.id}}",
              "undo": {"call": {"body": "{{input.a.**}}"}, "expect": "$.output.**.x == 1"}},
        "b": {"agent": "inventory", "each": "{{input.**.items}}", "call": {"body": "{{item}}"}},
        "c": {"agent": "inventory", "call": {}, "repeat": {"while": "!($.last.** == 1)"}},
        "d": {"agent": "inventory", "call": {}, "poll": {"call": {"path": "/{{started.**}}"}, "every": "1 s", "until": "$.output.** == 1", "timeout": "1 h"}},
        "e": {"wait": {"until": "{{input.**.at}}"}},
        "f": {"agent": "inventory", "call": {}, "fallback": {"function": "t.echo", "input": {"x": "{{input.**}}"}, "expect": "$.** == 1", "on": ["failed"]}},
        "g": {"function": "t.echo", "input": {"x": "{{input.a.b.c ? (@ == \"x.**\")}}"}}},
    "output": {"o": "{{steps.a.output.**}}"},
    "hooks": [{"on": "success", "agent": "inventory", "call": {"body": "{{input.**}}"}}]}') ORDER BY path COLLATE "C";
SELECT hint COLLATE "C" AS hint FROM sas.validate_workflow('{"steps": {"a": {"agent": "inventory", "call": {"body": "{{input.**}}"}, "when": "$.input.a like_regex \"x\""}}}') GROUP BY 1 ORDER BY 1;
SELECT sas.create_workflow('deep', '{"steps": {"a": {"agent": "inventory", "call": {"body": {"x": "{{input.**}}"}}}}}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.create_workflow('deep', '{"steps": {"a": {"agent": "inventory", "call": {}, "when": "exists($.input ? (@.x like_regex \"y\"))"}}}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.create_workflow('deep', '{"steps": {}, "concurrency": {"key": "{{input.**}}"}}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.create_agent('deep', 'http://deep', headers => '{"X-A": "{{secret.**}}"}');
\echo :LAST_ERROR_SQLSTATE
SELECT sas.create_watcher('deep', '{"agent": "inventory", "stream": {"format": "sse", "path": "/{{input.**}}"}, "items": {"workflow": "deep"}, "cursor": {"next": "{{item.**}}"}}');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT sas.stub('inventory', '{"body": "{{request.body.**}}"}');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- in quotes they are names and values like any other
SELECT path, problem FROM sas.validate_workflow('{"steps": {"a": {"agent": "inventory", "call": {"body": "{{input.\"**\".\"like_regex\"}}"}, "when": "$.input.a == \".** like_regex\""}}}');
-- so are paths of more than 8 kB, and many or long products
SELECT left(problem, 70) AS problem, hint FROM sas.validate_workflow(jsonb_build_object('steps', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call',
    jsonb_build_object('body', '{{input.' || repeat('x', 8200) || '}}')))));
SELECT problem, hint FROM sas.validate_workflow(jsonb_build_object('steps', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb,
    'when', '$.input.n' || repeat(' * 2', 17) || ' > 1'))));
SELECT problem, hint FROM sas.validate_workflow('{"steps": {"a": {"agent": "inventory", "call": {}, "when": "$.input.n / 1e400 > 1"}}}');

-- what is evaluated has a budget of time and memory; which of them is spent first depends on the machine
CREATE FUNCTION t.spent(text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace($1, 'takes more than 100 ms to evaluate|needs more than 16 MB to evaluate', 'SPENT') $$;
CREATE VIEW t.costly AS SELECT jsonb_build_object('list', jsonb_agg(i), 'path', '/x') AS input FROM generate_series(1, 40000) i;
GRANT SELECT ON t.costly TO PUBLIC;
\set costly '$.input.list[*] ? (@ > $.input.list[*] && @ < 0)'
SELECT p.met, t.spent(p.reason) FROM t.costly, _sas.predicate('exists(' || :'costly' || ')', jsonb_build_object('input', input)) p;
SELECT t.spent(r.problem ->> 'what') AS what, r.problem ->> 'path' AS path, r.result FROM t.costly, _sas.render(jsonb_build_array('{{' || substr(:'costly', 3) || '}}'), jsonb_build_object('input', input)) r;
-- every place counts together what it makes: repeated references, subscripts that give an element again and again, text
SELECT t.spent(r.problem ->> 'what') AS what FROM t.costly, _sas.render((SELECT jsonb_agg('{{input.list}}'::text) FROM generate_series(1, 1000)), jsonb_build_object('input', input)) r;
SELECT t.spent(r.problem ->> 'what') AS what FROM t.costly, _sas.render((SELECT to_jsonb(string_agg('{{input.list}}', ' ')) FROM generate_series(1, 1000)), jsonb_build_object('input', input)) r;
SELECT t.spent(r.problem ->> 'what') AS what FROM t.costly, _sas.render('["{{input.list[0 to last, 0 to last, 0 to last, 0 to last, 0 to last, 0 to last, 0 to last, 0 to last, 0 to last]}}"]', jsonb_build_object('input', input)) r;
SELECT r.problem ->> 'what' AS what, r.problem ->> 'hint' AS hint
FROM _sas.render((SELECT jsonb_agg('{{input.t}}'::text) FROM generate_series(1, 3)), jsonb_build_object('input', jsonb_build_object('t', repeat('x', 8000000)))) r;
SELECT r.problem, length(r.result ->> 0) FROM _sas.render('["{{input.t}}"]', jsonb_build_object('input', jsonb_build_object('t', repeat('x', 8000000)))) r;
-- a list that is passed on costs little
SELECT r.problem, jsonb_array_length(r.result -> 'x'), jsonb_array_length(r.result -> 'y') FROM t.costly, _sas.render('{"x": "{{input.list}}", "y": "{{input.list[*]}}"}', jsonb_build_object('input', input)) r;
-- a product of long numbers cannot be interrupted, so it is not begun
SELECT p.* FROM _sas.predicate('$.a * $.a > 1', ('{"a": ' || repeat('9', 100000) || '}')::jsonb) p;
SELECT p.* FROM _sas.predicate('$.a / 7 > 1', '{"a": 1e131000}') p;
SELECT r.problem FROM _sas.render('"{{a % 7}}"', '{"a": 1e-16000}') r;
SELECT p.* FROM _sas.predicate('$.a * $.b / $.c == 3', '{"a": 2, "b": 3, "c": 2}') p;

-- a cancel of the user, or of a timeout, is no spent budget
SET statement_timeout = 30;
\set VERBOSITY sqlstate
SELECT count(p.reason) FROM t.costly, generate_series(1, 100000) g, _sas.predicate('exists(' || :'costly' || ')', jsonb_build_object('input', input, 'g', g)) p;
\set VERBOSITY default
RESET statement_timeout;
SELECT p.met, t.spent(p.reason) FROM t.costly, _sas.predicate('exists(' || :'costly' || ')', jsonb_build_object('input', input)) p;

-- the step fails for good, with that reason; what is beside it goes on
SELECT t.workflow('costly_when', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'when', 'exists(' || :'costly' || ')'))) \g /dev/null
SELECT t.workflow('costly_call', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', jsonb_build_object('body', '{{' || substr(:'costly', 3) || '}}')))) \g /dev/null
SELECT t.workflow('costly_expect', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'expect', 'exists(' || :'costly' || ')'))) \g /dev/null
SELECT t.workflow('costly_output', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'output', '{{' || substr(:'costly', 3) || '}}'))) \g /dev/null
SELECT t.workflow('costly_each', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'each', '{{' || substr(:'costly', 3) || '}}'))) \g /dev/null
SELECT t.workflow('costly_while', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'repeat', jsonb_build_object('while', 'exists(' || :'costly' || ')')))) \g /dev/null
SELECT t.workflow('costly_until', jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'poll',
    jsonb_build_object('call', '{}'::jsonb, 'every', '1 s', 'timeout', '1 h', 'until', 'exists(' || :'costly' || ')')))) \g /dev/null
SELECT t.workflow('costly_function', jsonb_build_object('a', jsonb_build_object('function', 't.echo', 'input', jsonb_build_object('x', '{{' || substr(:'costly', 3) || '}}')))) \g /dev/null
SELECT t.workflow('costly_wait', jsonb_build_object('a', jsonb_build_object('wait', jsonb_build_object('until', '{{' || substr(:'costly', 3) || '}}')))) \g /dev/null
SELECT t.workflow('costly_run', '{"a": {"agent": "inventory", "call": {}}}', jsonb_build_object('output', '{{' || substr(:'costly', 3) || '}}')) \g /dev/null
SELECT t.workflow('cheap', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT count(r.run_id) FROM t.costly, unnest('{when,expect,output,each,while,until,wait,run}'::text[]) w, sas.submit('costly_' || w, input) r;
SELECT run_id FROM sas.submit('cheap');
SELECT t.work() \g /dev/null
SELECT t.later('2 s');
SELECT t.work() \g /dev/null
SELECT r.workflow, r.state, r.result, s.state AS step, t.spent(s.error ->> 'title') AS title, t.spent(s.error ->> 'detail') AS detail, t.spent(r.error ->> 'detail') AS run
FROM sas.runs r LEFT JOIN sas.steps s USING (run_id) WHERE s.element IS NULL ORDER BY r.run_id;
-- a worker hears of a request, and an input, that cannot be made; a view shows no input that it cannot make
SELECT count(r.run_id) FROM t.costly, unnest('{call,function}'::text[]) w, sas.submit('costly_' || w, input) r;
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT h.step, h.asked, t.spent(h.problem ->> 'what') AS what FROM t.held h JOIN sas.runs r USING (run_id) WHERE r.workflow IN ('costly_call', 'costly_function');
SELECT count(s.input) AS inputs, count(*) FROM sas.steps s JOIN sas.runs r USING (run_id) WHERE r.workflow = 'costly_function';
-- a key that cannot be made refuses the submit
SELECT t.workflow('costly_key', '{}', jsonb_build_object('concurrency', jsonb_build_object('key', '{{' || substr(:'costly', 3) || '}}'))) \g /dev/null
DO $$
BEGIN
    PERFORM run_id FROM t.costly, sas.submit('costly_key', input);
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE NOTICE '%', t.spent(sqlerrm);
END $$;
DROP VIEW t.costly;
DROP FUNCTION t.spent;
SELECT t.clean() \g /dev/null
