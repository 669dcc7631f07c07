-- SPDX-License-Identifier: PostgreSQL
--
-- Bad input is refused at the door, with SQLSTATE, place and hint, and nothing is stored.

CREATE SCHEMA t;

-- t.refused(statement, sqlstate, place, claim): fails as it should, says where and what to do.
CREATE FUNCTION t.refused(statement text, code text, place text, claim text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    got text; message text; detail text; hint text;
BEGIN
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS got = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    END;
    RETURN NEXT is(got, code, claim || ': SQLSTATE');
    IF place IS NOT NULL THEN
        RETURN NEXT is(detail, format('The place is "%s".', place), claim || ': place');
    END IF;
    RETURN NEXT unalike(coalesce(message, ''), '%internal%', claim || ': no internal error');
END $$;

-- t.bad(definition, ...): a workflow that is refused, and validate says the same
CREATE FUNCTION t.bad(definition jsonb, code text, place text, claim text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM t.refused(format('SELECT sas.create_workflow(%L, %L)', 'w', definition), code, place, claim);
    RETURN NEXT ok(EXISTS (SELECT FROM sas.validate_workflow(definition) v WHERE v.path = place), claim || ': validate_workflow names the place');
END $$;

CREATE FUNCTION t.f(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
CREATE FUNCTION t.wrong(input jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
CREATE FUNCTION t.secret_one(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
REVOKE ALL ON FUNCTION t.secret_one FROM PUBLIC;
SELECT sas.create_agent('shop', 'http://127.0.0.1:1');

SELECT no_plan();

-- definitions
SELECT t.bad('{"steps": {}, "nonsense": 1}', '22023', '/nonsense', 'an unknown key of the run');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "nonsense": 1}}}', '22023', '/steps/a/nonsense', 'an unknown key of a step');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x", "nonsense": 1}}}}', '22023', '/steps/a/call/nonsense', 'an unknown key of a call');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "retry": {"nonsense": 1}}}}', '22023', '/steps/a/retry/nonsense', 'an unknown key of retry');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "undo": {"function": "t.f", "pivot": true}}}}', '22023', '/steps/a/undo/pivot', 'an unknown key of an undo');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "agent": "shop", "call": {"path": "/x"}}}}', '22023', '/steps/a', 'two kinds in one step');
SELECT t.bad('{"steps": {"a": {"after": []}}}', '22023', '/steps/a', 'a step of no kind');
SELECT t.bad('{"steps": {"a": {"agent": "nobody", "call": {"path": "/x"}}}}', '42704', '/steps/a/agent', 'an unknown agent');
SELECT t.bad('{"steps": {"a": {"call": {"path": "/x"}}}}', '22023', '/steps/a', 'a call without an agent');
SELECT t.bad('{"steps": {"a": {"function": "t.nobody"}}}', '42883', '/steps/a/function', 'a function that does not exist');
SELECT t.bad('{"steps": {"a": {"function": "t.wrong"}}}', '42P13', '/steps/a/function', 'a function of another signature');
SELECT t.bad('{"steps": {"a": {"function": "f"}}}', '42602', '/steps/a/function', 'a function without its schema');
SELECT t.bad('{"steps": {}, "finalize": "t.nobody"}', '42883', '/finalize', 'a finalize that does not exist');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "after": ["b"]}, "b": {"function": "t.f", "after": ["a"]}}}', '42P17', '/steps/a', 'a cycle by after');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{steps.b.output}}"}}, "b": {"function": "t.f", "after": ["a"]}}}', '42P17', '/steps/a', 'a cycle by after and reference');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "after": ["a"]}}}', '42P17', '/steps/a', 'a step after itself');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "after": ["nobody"]}}}', '42P10', '/steps/a/after', 'after a step that is not there');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{steps.nobody.output}}"}}}}', '42P10', '/steps/a/input/x', 'a reference to a step that is not there');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{steps.a.output}}"}}}}', '42P10', '/steps/a/input/x', 'a reference to the step itself');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "undo": {"function": "t.f", "input": {"x": "{{steps.b.output}}"}}}, "b": {"function": "t.f", "after": ["a"]}}}', '42P10', '/steps/a/undo/input/x', 'an undo that refers to a step not before it');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{nonsense.y}}"}}}}', '42P10', '/steps/a/input/x', 'a reference to nothing that is known');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{input.y"}}}}', '42601', '/steps/a/input/x', 'a reference without its end');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "input": {"x": "{{secret.y}}"}}}}', '42501', '/steps/a/input/x', 'a secret in a workflow');
SELECT t.bad('{"steps": {}, "output": {"x": "{{steps.nobody.output}}"}}', '42P10', '/output/x', 'an output of a step that is not there');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "complete_in": "soon"}}}', '22007', '/steps/a/complete_in', 'a malformed duration');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "complete_in": "10"}}}', '22007', '/steps/a/complete_in', 'a duration without a unit');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "complete_in": 10}}}', '22007', '/steps/a/complete_in', 'a duration that is a number');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "complete_in": "-1 s"}}}', '22007', '/steps/a/complete_in', 'a negative duration');
SELECT t.bad('{"steps": {}, "deadline": "never"}', '22007', '/deadline', 'a malformed deadline');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "retry": {"max_attempts": -1}}}}', '22023', '/steps/a/retry/max_attempts', 'a negative limit');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "recovery": {"max_failures": 0}}}}', '22023', '/steps/a/recovery/max_failures', 'a limit of nothing');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "recovery": {"backoff": "wild"}}}}', '22023', '/steps/a/recovery/backoff', 'an unknown backoff');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "on_failure": "explode"}}}', '22023', '/steps/a/on_failure', 'an unknown on_failure');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "pivot": "yes"}}}', '22023', '/steps/a/pivot', 'a pivot that is no boolean');
SELECT t.bad('{"steps": {"a": {"function": "t.f", "expect": "$.output =="}}}', '42601', '/steps/a/expect', 'an expect that is no predicate');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x"}, "expect": ["9xx"]}}}', '22023', '/steps/a/expect', 'an expect that is no status');
SELECT t.bad('{"steps": {"A": {"function": "t.f"}}}', '42602', '/steps/A', 'a step name that is no plain identifier');
SELECT t.bad('{"steps": {"finalize": {"function": "t.f"}}}', '42602', '/steps/finalize', 'a step named finalize');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "x"}}}}', '22023', '/steps/a/call/path', 'a path that begins with neither / nor ?');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "@evil.example/x"}}}}', '22023', '/steps/a/call/path', 'a path that would change the host');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "//evil.example/x"}}}}', '22023', '/steps/a/call/path', 'a path that names a host');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "http://evil.example/x"}}}}', '22023', '/steps/a/call/path', 'a path that is another address');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x/../y"}}}}', '22023', '/steps/a/call/path', 'a path with dot segments');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x/%2e%2e/y"}}}}', '22023', '/steps/a/call/path', 'a path with encoded dot segments');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x", "method": "BREW"}}}}', '22023', '/steps/a/call/method', 'an unknown method');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x", "headers": {"X-A": "b\r\nc: d"}}}}}', '22023', '/steps/a/call/headers/X-A', 'a header with a line break');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x", "headers": {"X A": "b"}}}}}', '22023', '/steps/a/call/headers/X A', 'a header name with a blank');
SELECT t.bad('{"steps": {"a": {"agent": "shop", "call": {"path": "/x", "body": 1, "text": "x"}}}}', '22023', '/steps/a/call', 'two bodies');
SELECT t.bad('{"steps": 7}', '22023', '/steps', 'steps that are no object');
SELECT t.bad('[]', '22023', '', 'a definition that is no object');
SELECT t.bad('{"steps": {"a": 7}}', '22023', '/steps/a', 'a step that is no object');

-- the rest of the format, refused as not supported yet
SELECT t.bad(format('{"steps": {"a": {%s: {}}}}', to_json(k))::jsonb, '0A000', '/steps/a/' || k, format('step key %s is of a later release', k))
FROM unnest('{task,wait,workflow,include,poll,each,repeat,when,fallback,flow,queue}'::text[]) k;
SELECT t.bad(format('{"steps": {}, %s: {}}', to_json(k))::jsonb, '0A000', '/' || k, format('run key %s is of a later release', k))
FROM unnest('{flow,concurrency,singleton,queue,plan,hooks}'::text[]) k;

SET sas.max_steps = 2;
RESET sas.max_steps;
SELECT t.bad((SELECT jsonb_build_object('steps', jsonb_object_agg('s' || g, '{"function": "t.f"}'::jsonb)) FROM generate_series(1, 10001) g), '54000', '/steps', 'more steps than sas.max_steps');
SELECT t.bad(jsonb_build_object('steps', '{}'::jsonb, 'output', repeat('x', 1100000)), '54000', '', 'a definition over the size cap');

-- agents
SELECT t.refused($$SELECT sas.create_agent('x', 'ftp://h')$$, '22023', '/base_url', 'a base_url that is not http');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://u:p@h')$$, '22023', '/base_url', 'a base_url with a password');
SELECT t.refused($$SELECT sas.create_agent('x', 'nonsense')$$, '22023', '/base_url', 'a base_url that is none');
SELECT t.refused($$SELECT sas.create_agent('x')$$, '22023', '/base_url', 'no base_url');
SELECT t.refused($$SELECT sas.create_agent('X y', 'http://h')$$, '42602', '/name', 'an agent name that is no plain identifier');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', max_in_flight => -1)$$, '22023', '/max_in_flight', 'a negative max_in_flight');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', rate_limit => 'fast')$$, '22023', '/rate_limit', 'a malformed rate');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', request_timeout => '-1 s')$$, '22023', '/request_timeout', 'a negative time-out');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', headers => '{"A": "b\nc"}')$$, '22023', '/headers/A', 'an agent header with a line break');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', headers => '{"A": "{{input.x}}"}')$$, '42P10', '/headers/A', 'an agent header that refers to input');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', headers => '{"A": "{{secret.nobody}}"}')$$, '42704', '/headers/A', 'an agent header that refers to an unknown secret');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', breaker => '{"failures": 0}')$$, '22023', '/breaker/failures', 'a breaker that opens at nothing');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', options => '{"nonsense": 1}')$$, '22023', '/options/nonsense', 'an unknown option');
SELECT t.refused($$SELECT sas.create_agent('x', 'http://h', options => '{"sign": {}}')$$, '0A000', '/options/sign', 'an option of a later release');
SELECT t.refused($$SELECT sas.alter_agent('nobody', enabled => false)$$, '42704', NULL, 'an unknown agent');
SELECT t.refused($$SELECT sas.drop_secret('nobody')$$, '42704', NULL, 'an unknown secret');

-- submit
SELECT sas.create_workflow('good', '{"steps": {"a": {"function": "t.f"}}}');
SELECT t.refused($$SELECT * FROM sas.submit('nobody')$$, '42704', NULL, 'an unknown workflow');
SELECT t.refused($$SELECT * FROM sas.submit('good', '[1]')$$, '22023', '/input', 'an input that is not an object');
SELECT t.refused($$SELECT * FROM sas.submit('good', NULL)$$, '22023', '/input', 'no input');
SELECT t.refused($$SELECT * FROM sas.submit('good', jsonb_build_object('x', repeat('y', 1100000)))$$, '54000', '/input', 'an input over the size cap');
SELECT t.refused($$SELECT * FROM sas.submit('good', deadline => '-1 s')$$, '22023', '/deadline', 'a negative deadline');
SELECT t.refused($$SELECT * FROM sas.submit('good', priority => 5000)$$, '22023', '/priority', 'a priority out of range');
SELECT t.refused($$SELECT * FROM sas.submit('good', reply_to => 'Not A Queue')$$, '42602', '/reply_to', 'a reply queue with no plain name');
SELECT t.refused($$SELECT * FROM sas.submit('good', labels => '7')$$, '22023', '/labels', 'labels that are no object');
SELECT t.refused($$SELECT * FROM sas.submit('good', after_run => 1)$$, '0A000', NULL, 'after_run is of a later release');

-- nothing of all that was stored
SELECT is((SELECT count(*) FROM sas.workflows), 1::bigint, 'no refused workflow was stored');
SELECT is((SELECT count(*) FROM sas.agents), 1::bigint, 'no refused agent was stored');
SELECT is((SELECT count(*) FROM sas.runs), 0::bigint, 'no refused run was stored');
SELECT is((SELECT count(*) FROM sas.workflow_step), 1::bigint, 'no step of a refused workflow was stored');

SELECT * FROM finish();
