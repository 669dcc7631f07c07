-- SPDX-License-Identifier: PostgreSQL
--
-- What a call returns has a known shape: status, headers and body. What is
-- read beside them is refused where a workflow is defined.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();
SELECT sas.create_agent('a', 'http://127.0.0.1:1'), sas.create_agent('o', kind => 'external') \g /dev/null
CREATE SCHEMA sh;
CREATE FUNCTION sh.f(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';

-- x is a call, with what is said besides; y reads it
CREATE FUNCTION pg_temp.found(reads jsonb, more jsonb DEFAULT '{}', run jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s %s (%s)', path, problem, substring(hint FROM 'did you mean .*')), ', ' ORDER BY path), '')
    FROM sas.validate_workflow(run || jsonb_build_object('steps', jsonb_build_object(
        'x', '{"agent": "a", "call": {}}'::jsonb || more, 'y', '{"agent": "a", "call": {}}'::jsonb || reads)))
$$;
SELECT is(pg_temp.found('{"call": {"body": {"a": ["{{steps.x.output.id}}"]}}}'), '/steps/y/call/body/a/0 the output of step "x" has no "id" (did you mean output.body.id?)', 'a body');
SELECT throws_ok($$SELECT sas.create_workflow('w', '{"steps": {"x": {"agent": "a", "call": {}}, "y": {"agent": "a", "call": {"body": "{{steps.x.output.id}}"}}}}')$$, '42P10', 'the output of step "x" has no "id"', 'it is refused at define');
SELECT is(pg_temp.found(reads), said, reads::text) FROM (VALUES
    ('{"call": {"path": "/{{steps.x.output.id}}"}}'::jsonb, '/steps/y/call/path the output of step "x" has no "id" (did you mean output.body.id?)'),
    ('{"call": {"path": "/{{steps.\"x\".output.\"id\".more?}}"}}', '/steps/y/call/path the output of step "x" has no "id" (did you mean output.body.id?)'),
    ('{"when": "$.steps.x.output.ready == true"}', '/steps/y/when the output of step "x" has no "ready" (did you mean output.body.ready?)'),
    ('{"when": "exists($.input.a[*] ? (@.id == $.steps.x.output.id))"}', '/steps/y/when the output of step "x" has no "id" (did you mean output.body.id?)'),
    ('{"expect": "$.output.ok == true"}', '/steps/y/expect the answer has no "ok" (did you mean output.body.ok?)'),
    ('{"expect": "$.steps.x.output.ok == $.output.body.ok"}', '/steps/y/expect the output of step "x" has no "ok" (did you mean output.body.ok?)'),
    ('{"output": {"id": "{{output.id}}"}}', '/steps/y/output/id the answer has no "id" (did you mean output.body.id?)'),
    ('{"undo": {"call": {"path": "/{{steps.y.output.id}}"}}}', '/steps/y/undo/call/path the output of step "y" has no "id" (did you mean output.body.id?)'),
    ('{"undo": {"call": {}, "expect": "$.output.gone == true"}}', '/steps/y/undo/expect the answer has no "gone" (did you mean output.body.gone?)'),
    ('{"each": "{{steps.x.output.items}}"}', '/steps/y/each the output of step "x" has no "items" (did you mean output.body.items?)'),
    ('{"poll": {"call": {"path": "/{{started.id}}"}, "every": "1 s", "until": "$.output.done == true"}}', '/steps/y/poll/call/path the answer has no "id" (did you mean started.body.id?), /steps/y/poll/until the answer has no "done" (did you mean output.body.done?)'),
    -- what is there
    ('{"call": {"body": ["{{steps.x.output}}", "{{steps.x.output.status}}", "{{steps.x.output.headers.etag?}}", "{{steps.x.output.body.id}}", "{{steps.x.output.*}}", "{{steps.x.output.size()}}"]}}', ''),
    ('{"expect": "$.output.status == 201 && $.output.body.ok == true"}', ''), ('{"output": "{{output.body.id}}"}', ''), ('{"expect": [200, "2xx"]}', '')) AS v (reads, said);
SELECT is(pg_temp.found('{}', run => '{"output": {"n": "{{steps.x.output.n}}"}}'), '/output/n the output of step "x" has no "n" (did you mean output.body.n?)', 'the output of the run');
SELECT is(pg_temp.found('{"call": {"body": "{{steps.x.output.id}}"}}', more), said, 'x with ' || more::text) FROM (VALUES
    ('{"output": {"id": "{{output.body.id}}"}}'::jsonb, ''), ('{"each": "{{input.l}}"}', '/steps/y/call/body the output of step "x" has no "id" (did you mean output.body.id?)'),
    ('{"fallback": {"function": "sh.f"}}', ''), ('{"fallback": {"agent": "a", "call": {}, "output": {"id": 1}}}', ''), ('{"fallback": {"agent": "a", "call": {}}}', '/steps/y/call/body the output of step "x" has no "id" (did you mean output.body.id?)')) AS v (more, said);
SELECT is(pg_temp.found(jsonb_build_object('call', jsonb_build_object('body', format('{{steps.x.output%s.id?}}', chosen))), '{"each": "{{input.l}}"}'),
    '/steps/y/call/body the output of step "x" has no "id" (did you mean output.body.id?)', 'elements of a map, chosen by ' || chosen)
FROM unnest('{[0],[*],[last],[0 to 2],[*] ? (@.status == 200)}'::text[]) chosen;
SELECT is(pg_temp.found('{"when": "$.steps.x.output[*].ok == true"}', '{"each": "{{input.l}}"}'), '/steps/y/when the output of step "x" has no "ok" (did you mean output.body.ok?)', 'elements of a map in a predicate');
SELECT is(pg_temp.found('{"call": {"body": ["{{steps.x.output[0].body.id}}", "{{steps.x.output[*].body[0].id}}", "{{steps.x.output[*] ? (@.status == 200).body}}", "{{steps.x.output[0]}}", "{{steps.x.output[*].*}}"]}}', '{"each": "{{input.l}}"}'), '', 'what elements of a map have');
SELECT is(pg_temp.found('{"call": {"body": ["{{steps.x.started.id}}", "{{steps.x.started.body.id}}"]}}', '{"poll": {"call": {}, "every": "1 s", "until": "$.output.body.done == true"}, "output": {"id": 1}}'),
    '/steps/y/call/body/0 the first reply of step "x" has no "id" (did you mean started.body.id?)', 'the first reply of a poll, whatever output is made');
SELECT is((SELECT count(*) FROM sas.validate_workflow(jsonb_build_object('steps', jsonb_build_object('x', x, 'y', '{"agent": "a", "call": {"body": "{{steps.x.output.id}}"}}'::jsonb)))), 0::bigint, 'not where another shape comes back: ' || x::text)
FROM unnest(ARRAY['{"function": "sh.f"}', '{"agent": "o", "task": {}}', '{"wait": {"signal": "s"}}']::jsonb[]) x;
CREATE FUNCTION sh.after(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT sas.create_middleware('m', 'call', after => 'sh.after(jsonb)') \g /dev/null
SELECT is(pg_temp.found('{"call": {"body": "{{steps.x.output.id}}"}}'), '', 'nor where middleware of calls may answer in its own way');
SELECT * FROM finish();
