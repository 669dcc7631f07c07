-- SPDX-License-Identifier: PostgreSQL
--
-- Bad input is refused at the door: SQLSTATE says the kind, DETAIL the place
-- as a JSON pointer, HINT what to do, and nothing is stored.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE SCHEMA shop;
CREATE FUNCTION shop.book(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.closed(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;
REVOKE ALL ON FUNCTION shop.closed FROM PUBLIC;
CREATE FUNCTION shop.wrong(input jsonb) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION shop.many(input jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT input $$;
CREATE FUNCTION shop.other_argument(input text) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
CREATE PROCEDURE shop.procedure(input jsonb) LANGUAGE sql AS $$ SELECT 1 $$;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
CREATE SCHEMA hidden;
CREATE FUNCTION hidden.f(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;

SELECT sas.create_agent('payments', 'http://127.0.0.1:1');
SELECT sas.create_agent('packer', kind => 'external', max_in_flight => 3);
SELECT sas.set_secret('token', 'very-secret');
SELECT sas.create_workflow('good', '{"steps": {"a": {"function": "shop.book"}}}');
SELECT sas.create_workflow('in_good', '{"steps": {"x": {"include": "good"}}}');
SELECT sas.create_workflow('undone_by_good', '{"steps": {"a": {"function": "shop.book", "undo": {"include": "good"}}}}');
SELECT sas.create_workflow('with_plan', '{"steps": {}, "plan": "shop.book"}');
SELECT sas.create_workflow('around_plan', '{"steps": {"i": {"include": "with_plan"}}}');

-- how much is stored
CREATE FUNCTION pg_temp.stored() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t regclass;
    n bigint;
    said text := '';
BEGIN
    FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = '_sas'::regnamespace AND c.relkind = 'r' ORDER BY c.relname LOOP
        EXECUTE format('SELECT count(*) FROM %s', t) INTO n;
        said := said || t || ' ' || n || '; ';
    END LOOP;
    RETURN said;
END $$;
-- somebody with level user, who is refused below
CREATE ROLE sas_definer;
SELECT sas.grant_usage('sas_definer', 'user') \g /dev/null
CREATE TEMP TABLE before AS SELECT pg_temp.stored() AS said;

-- refused(statement, SQLSTATE, JSON pointer, claim)
CREATE FUNCTION pg_temp.refused(statement text, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    got_code text := 'none';
    got_detail text;
    got_hint text;
    message text;
BEGIN
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS got_code = RETURNED_SQLSTATE, got_detail = PG_EXCEPTION_DETAIL, got_hint = PG_EXCEPTION_HINT, message = MESSAGE_TEXT;
    END;
    RETURN NEXT is(got_code, code, format('%s: SQLSTATE %s', claim, code));
    RETURN NEXT is(got_detail, format('At %s.', coalesce(nullif(pointer, ''), 'the top level')), format('%s: DETAIL tells the place', claim));
    RETURN NEXT ok(coalesce(got_hint, '') ~ '^[A-Z].*[.]$', format('%s: HINT says what to do', claim));
    RETURN NEXT ok(message ~ '^[a-z0-9"{-]' AND message !~ '[.]$', format('%s: the message begins small and has no period: %s', claim, to_json(message)));
END $$;

-- the same, for a definition; and validate says the same without raising
CREATE FUNCTION pg_temp.bad(definition jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT pg_temp.refused(format('SELECT sas.create_workflow(%L, %L)', 'bad', definition), code, pointer, claim);
    RETURN NEXT is((SELECT v.path FROM sas.validate_workflow(definition) v LIMIT 1), pointer, format('%s: validate_workflow tells the same place', claim));
END $$;

-- definitions: the run ---------------------------------------------------------------

SELECT pg_temp.bad('[]', '22023', '', 'a definition that is not an object');
SELECT pg_temp.bad('"steps"', '22023', '', 'a definition that is a string');
SELECT pg_temp.bad('null', '22023', '', 'a definition that is a JSON null');
SELECT pg_temp.refused('SELECT sas.create_workflow(''bad'', NULL)', '22023', '', 'a definition that is null');
SELECT pg_temp.bad('{}', '22023', '/steps', 'a definition without steps');
SELECT pg_temp.bad('{"steps": []}', '22023', '/steps', 'steps that are not an object');
SELECT pg_temp.bad('{"steps": {}, "colour": 1}', '22023', '/colour', 'an unknown key in a definition');
SELECT pg_temp.bad('{"steps": {}, "a/b~c": 1}', '22023', '/a~1b~0c', 'an unknown key with characters of a pointer');
SELECT pg_temp.bad('{"steps": {}, "deadline": "soon"}', '22007', '/deadline', 'a malformed deadline');
SELECT pg_temp.bad('{"steps": {}, "deadline": 5}', '22007', '/deadline', 'a deadline without a unit');
SELECT pg_temp.bad('{"steps": {}, "deadline": "-1 day"}', '22007', '/deadline', 'a negative deadline');
SELECT pg_temp.bad('{"steps": {}, "on_failure": "explode"}', '22023', '/on_failure', 'an unknown on_failure');
SELECT pg_temp.bad('{"steps": {}, "on_failure": {"transient": "explode"}}', '22023', '/on_failure/transient', 'an unknown on_failure of a kind');
SELECT pg_temp.bad('{"steps": {}, "on_failure": {"sometimes": "skip"}}', '22023', '/on_failure/sometimes', 'an unknown kind of failure');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"max_failures": -1}}', '22023', '/recovery/max_failures', 'a negative limit of failures');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"max_failures": 0}}', '22023', '/recovery/max_failures', 'a limit of no failures');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"max_failures": 1.5}}', '22023', '/recovery/max_failures', 'half a failure');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"max_failures": "3"}}', '22023', '/recovery/max_failures', 'a limit that is a string');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"initial": "ten"}}', '22007', '/recovery/initial', 'a malformed pause');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"backoff": "wild"}}', '22023', '/recovery/backoff', 'an unknown backoff');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"pauses": "1 s"}}', '22023', '/recovery/pauses', 'pauses that are no list');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"pauses": []}}', '22023', '/recovery/pauses', 'no pause at all');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"pauses": ["1 s", "soon"]}}', '22007', '/recovery/pauses/1', 'a pause that is no span');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"pauses": ["1 s"], "initial": "1 s"}}', '22023', '/recovery/pauses', 'pauses beside what computes them');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "complete_in": "10 s", "retry": {"pauses": ["4 s", "6 s"]}}}}', '22023', '/steps/a/retry/pauses', 'pauses that are no shorter than the window of the call');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"jitter": "yes"}}', '22023', '/recovery/jitter', 'a jitter that is no boolean');
SELECT pg_temp.bad('{"steps": {}, "recovery": {"tries": 3}}', '22023', '/recovery/tries', 'an unknown key in recovery');
SELECT pg_temp.bad('{"steps": {}, "recovery": 3}', '22023', '/recovery', 'a recovery that is a number');
SELECT pg_temp.bad('{"steps": {}, "priority": 5000}', '22023', '/priority', 'a priority out of bounds');
SELECT pg_temp.bad('{"steps": {}, "finalize": "shop.nope"}', '42883', '/finalize', 'a finalize that does not exist');
-- hooks
SELECT pg_temp.bad(('{"steps": {}, "hooks": ' || h || '}')::jsonb, code, pointer, claim)
FROM (VALUES
    ('{}', '22023', '/hooks', 'hooks that are no array'),
    ('[7]', '22023', '/hooks/0', 'a hook that is no object'),
    ('[{"on": "finished", "function": "shop.book"}]', '22023', '/hooks/0/on', 'a hook on a state that does not exist'),
    ('[{"on": ["success", "done"], "function": "shop.book"}]', '22023', '/hooks/0/on/1', 'one among several that does not exist'),
    ('[{"on": [], "function": "shop.book"}]', '22023', '/hooks/0/on', 'a hook needs a state or result'),
    ('[{"on": null, "function": "shop.book"}]', '22023', '/hooks/0/on', 'a hook on null'),
    ('[{"on": "success"}]', '22023', '/hooks/0', 'a hook that does nothing'),
    ('[{"on": "success", "function": "shop.book", "notify": "c"}]', '22023', '/hooks/0', 'a hook that does two things'),
    ('[{"on": "success", "notify": "c", "retry": {}}]', '22023', '/hooks/0', 'a notification with a retry'),
    ('[{"on": "success", "notify": "No Channel"}]', '42602', '/hooks/0/notify', 'a channel with an odd name'),
    ('[{"on": "success", "notify": 7}]', '22023', '/hooks/0/notify', 'a channel that is a number'),
    ('[{"on": "success", "function": "shop.nope"}]', '42883', '/hooks/0/function', 'a hook with a function that does not exist'),
    ('[{"on": "success", "function": "shop.wrong"}]', '42P13', '/hooks/0/function', 'a hook with a function of the wrong signature'),
    ('[{"on": "success", "function": "shop.book"}, {"on": "error", "agent": "nobody", "call": {}}]', '42704', '/hooks/1/agent', 'a hook with an agent that does not exist'),
    ('[{"on": "error", "call": {}}]', '22023', '/hooks/0', 'a hook that is a call without an agent'),
    ('[{"on": "error", "agent": 7, "call": {}}]', '22023', '/hooks/0/agent', 'a hook whose agent is a number'),
    ('[{"on": "error", "agent": "payments", "call": {"path": "nowhere"}}]', '22023', '/hooks/0/call/path', 'a hook with a bad call'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{steps.a.output}}"}}]', '42P10', '/hooks/0/call/body', 'a hook that refers to a step'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{run}}"}}]', '42P10', '/hooks/0/call/body', 'a hook that refers to the whole run'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{run.now}}"}}]', '42P10', '/hooks/0/call/body', 'a hook that refers to what its run has not'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{run .id}}"}}]', '42P10', '/hooks/0/call/body', 'a hook that writes run.id in a way that would mean its own run'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{run.\"id\"}}"}}]', '42P10', '/hooks/0/call/body', 'or in quotes'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{input.run_id ? (@ == $.run.id)}}"}}]', '42P10', '/hooks/0/call/body', 'or in a filter'),
    ('[{"on": "error", "agent": "payments", "call": {}, "expect": "$.run.id == 1"}]', '42P10', '/hooks/0/expect', 'a hook that refers to the run in what it expects'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{secret.token}}"}}]', '42501', '/hooks/0/call/body', 'a hook that refers to a secret'),
    ('[{"on": "error", "agent": "payments", "call": {"body": "{{input.}}"}}]', '42601', '/hooks/0/call/body', 'a hook with a malformed reference'),
    ('[{"on": "error", "function": "shop.book", "recovery": {"max_failures": 0}}]', '22023', '/hooks/0/recovery/max_failures', 'a hook with a recovery of nothing'),
    ('[{"on": "error", "function": "shop.book", "after": ["a"]}]', '22023', '/hooks/0/after', 'a hook with a key that it does not have')) AS x (h, code, pointer, claim);
SELECT pg_temp.bad('{"steps": {}, "output": {"a": "{{steps.nope.output}}"}}', '42P10', '/output/a', 'an output that refers to a step that is not there');
SELECT pg_temp.bad('{"steps": {}, "plan": {}}', '42602', '/plan', 'a plan that is no name of a function');
SELECT pg_temp.bad('{"plan": "shop.nope"}', '42883', '/plan', 'a plan function that does not exist');
SELECT pg_temp.bad('{"steps": {}, "singleton": true}', '22023', '/singleton', 'a word that concurrency says');
SELECT pg_temp.bad('{"steps": {}, "queue": "nope"}', '42704', '/queue', 'a queue of a run that does not exist');
SELECT pg_temp.bad('{"steps": {}, "queue": 7}', '22023', '/queue', 'a queue that is a number');
SELECT pg_temp.bad('{"steps": {}, "queue": {}}', '22023', '/queue', 'a queue that is an object');
SELECT pg_temp.bad('{"steps": {}, "concurrency": 3}', '22023', '/concurrency', 'a concurrency that is a number');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {}}', '22023', '/concurrency/key', 'a concurrency without key');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": 7}}', '22023', '/concurrency/key', 'a key of places that is a number');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "{{input.}}"}}', '42601', '/concurrency/key', 'a key of places that is malformed');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "{{steps.a.output}}"}}', '42P10', '/concurrency/key', 'a key of places that refers to a step');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "{{secret.token}}"}}', '42P10', '/concurrency/key', 'a key of places that refers to a secret');
SELECT pg_temp.bad(format('{"steps": {}, "concurrency": {"key": "{{run.%s}}"}}', m)::jsonb, '42P10', '/concurrency/key', format('a key of places that refers to run.%s', m)) FROM unnest('{submitted_by,owner,state,labels2}'::text[]) m;
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "{{run}}"}}', '42P10', '/concurrency/key', 'a key of places that is the whole run');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "x", "limit": 0}}', '22023', '/concurrency/limit', 'a limit of no runs');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "x", "limit": "2"}}', '22023', '/concurrency/limit', 'a limit that is a string');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "x", "max": 2}}', '22023', '/concurrency/max', 'an unknown key in concurrency');
SELECT pg_temp.bad(jsonb_build_object('steps', '{}'::jsonb, 'concurrency', jsonb_build_object('key', 'x', 'overlap', v)), '22023', '/concurrency/overlap', format('overlap %s', v)) FROM unnest('{"\"skip\"","\"\"",1,"[]","{}",null}'::jsonb[]) v;
SELECT pg_temp.bad('{"steps": {}, "concurrency": []}', '22023', '/concurrency', 'an array of no rules');
SELECT pg_temp.bad(jsonb_build_object('steps', '{}'::jsonb, 'concurrency', (SELECT jsonb_agg('{"key": "x"}'::jsonb) FROM generate_series(1, 11))), '22023', '/concurrency', 'eleven rules');
SELECT pg_temp.bad('{"steps": {}, "concurrency": [{"key": "x"}, {"limit": 2}]}', '22023', '/concurrency/1/key', 'a second rule without key');
SELECT pg_temp.bad('{"steps": {}, "concurrency": [{"key": "x"}, 7]}', '22023', '/concurrency/1', 'a second rule that is a number');
SELECT pg_temp.bad('{"steps": {}, "concurrency": [{"key": "{{run.deadline}}"}, {"key": "x", "overlap": "return"}]}', '42P10', '/concurrency/0/key', 'a key that a submit cannot look up beside one that it does');
SELECT pg_temp.bad('{"plan": "shop.plan", "concurrency": {"key": "x", "overlap": "once_more"}}', '0A000', '/concurrency', 'once_more beside a plan');
SELECT pg_temp.bad('{"steps": {}, "concurrency": {"key": "{{run.scheduled_at}}", "overlap": "refuse"}}', '42P10', '/concurrency/key', 'a key that a submit cannot look up');
SELECT pg_temp.bad(jsonb_build_object('steps', '{}'::jsonb, 'concurrency', jsonb_build_object('key', 'x', 'shared', v)), '22023', '/concurrency/shared', format('shared %s', v)) FROM unnest('{"\"yes\"",1,"{}",null}'::jsonb[]) v;
SELECT pg_temp.bad(jsonb_build_object('steps', '{}'::jsonb, 'concurrency', jsonb_build_object('key', 'x', 'scope', v)), '22023', '/concurrency/scope', format('scope %s', v)) FROM unnest('{"\"global\"","\"\"",1,"[]","{}",null}'::jsonb[]) v;

-- flow ---------------------------------------------------------------------------------------

CREATE FUNCTION pg_temp.bad_flow(flow jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.bad(jsonb_build_object('steps', '{"a": {"function": "shop.book"}, "b": {"function": "shop.book"}, "c": {"function": "shop.book", "after": ["a"]}}'::jsonb, 'flow', flow), code, pointer, claim)
$$;
SELECT pg_temp.bad_flow(f, '22023', '/flow', format('a flow that is %s', f)) FROM unnest('{null,7,"\"a\"","[\"a\"]","{}"}'::jsonb[]) f;
SELECT pg_temp.bad_flow('{"sequence": []}', '22023', '/flow', 'a sequence of nothing');
SELECT pg_temp.bad_flow('{"concurrence": "a"}', '22023', '/flow', 'a concurrence that is no array');
SELECT pg_temp.bad_flow('{"sequence": ["a"], "concurrence": ["b"]}', '22023', '/flow', 'a part that is both');
SELECT pg_temp.bad_flow('{"row": ["a"]}', '22023', '/flow', 'a part that is neither');
SELECT pg_temp.bad_flow('{"sequence": ["a", {"concurrence": ["b", {"sequence": []}]}]}', '22023', '/flow/sequence/1/concurrence/1', 'an empty part deep inside');
SELECT pg_temp.bad_flow('{"sequence": ["a", 7]}', '22023', '/flow/sequence/1', 'a part that is a number');
SELECT pg_temp.bad_flow('{"sequence": ["a", {"concurrence": ["b", "nope"]}]}', '42P10', '/flow/sequence/1/concurrence/1', 'a step in a flow that does not exist');
SELECT pg_temp.bad_flow('{"sequence": ["a", {"concurrence": ["b", "a"]}]}', '22023', '/flow/sequence/1/concurrence/1', 'a step that is in a flow twice');
SELECT pg_temp.bad_flow('{"sequence": ["c", "b", "a"]}', '42P17', '/steps/a', 'a cycle over after and flow');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book"}, "b": {"function": "shop.book", "input": "{{steps.c.output}}"}, "c": {"function": "shop.book", "after": ["a"]}}, "flow": {"sequence": ["b", "a"]}}',
                   '42P17', '/steps/a', 'a cycle over after, a reference and flow');

-- include ------------------------------------------------------------------------------------

SELECT pg_temp.bad('{"steps": {"a": {"include": "nope"}}}', '42704', '/steps/a/include', 'an include of a workflow that does not exist');
SELECT pg_temp.bad('{"steps": {"a": {"include": 7}}}', '22023', '/steps/a/include', 'an include that is not a name');
SELECT pg_temp.bad('{"steps": {"a": {"include": "good", "function": "shop.book"}}}', '22023', '/steps/a', 'an include that is a function besides');
SELECT pg_temp.bad(jsonb_build_object('steps', jsonb_build_object('a', jsonb_build_object('include', 'good', k, v))), '22023', '/steps/a/' || k, format('an include with %s', k))
FROM (VALUES ('agent', '"payments"'::jsonb), ('undo', '{"function": "shop.book"}'), ('expect', '"$.output == 1"'), ('output', '"x"'), ('retry', '{}'), ('on_failure', '"skip"'), ('complete_in', '"1 s"'), ('pivot', 'true'), ('priority', '1')) x (k, v);
SELECT pg_temp.bad('{"steps": {"a": {"include": "good", "input": "{{steps.a.output}}"}}}', '42P10', '/steps/a/input', 'an include that refers to its own result');
SELECT pg_temp.bad('{"steps": {"a": {"include": "good"}, "b": {"function": "shop.book", "input": "{{steps.a.a.output}} {{steps.c.output}}"}}}', '42P10', '/steps/b/input', 'a reference past an include to what is not there');
SELECT pg_temp.bad('{"steps": {"x": {"include": "good", "after": ["b"]}, "b": {"function": "shop.book", "input": "{{steps.x.output}}"}}}', '42P17', '/steps/b', 'a cycle through an include');
SELECT pg_temp.refused('SELECT sas.create_workflow(''good'', ''{"steps": {"a": {"include": "good"}}}'')', '42P19', '/steps/a/include', 'a workflow that includes itself');
SELECT pg_temp.refused('SELECT sas.create_workflow(''good'', ''{"steps": {"a": {"include": "in_good"}}}'')', '42P19', '/steps/a/include', 'a workflow that includes itself through another');
SELECT pg_temp.bad('{"steps": {"a": {"include": "with_plan", "input": {"x": "{{steps.b.output}}"}}, "b": {"function": "shop.book"}}}', '0A000', '/steps/a/input/x', 'an include of a workflow with plan whose input is known too late');
SELECT pg_temp.bad('{"steps": {"a": {"include": "with_plan", "input": "{{run.id}}"}}}', '0A000', '/steps/a/input', 'or is that of a run that is not there yet');
SELECT pg_temp.bad('{"steps": {"a": {"include": "around_plan", "input": {"x": "{{steps.b.output}}"}}, "b": {"function": "shop.book"}}}', '0A000', '/steps/a/input/x', 'or that of an include around it');

-- definitions: a step ------------------------------------------------------------------

CREATE FUNCTION pg_temp.bad_step(step jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.bad(jsonb_build_object('steps', jsonb_build_object('a', step)), code, pointer, claim)
$$;
SELECT pg_temp.bad_step('[]', '22023', '/steps/a', 'a step that is not an object');
SELECT pg_temp.bad_step('{"function": "shop.book", "colour": 1}', '22023', '/steps/a/colour', 'an unknown key in a step');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"function": "shop.book", "after": []}}', '22023', '/steps/a/undo/after', 'an unknown key in an undo');
SELECT pg_temp.bad_step('{}', '22023', '/steps/a', 'a step of no kind');
SELECT pg_temp.bad_step('{"function": "shop.book", "call": {}, "agent": "payments"}', '22023', '/steps/a', 'two kinds in one step');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"function": "shop.book", "call": {}}}', '22023', '/steps/a/undo', 'two kinds in one undo');
SELECT pg_temp.bad_step('{"call": {}, "agent": "{{input.to}}"}', '22023', '/steps/a/agents', 'an agent that is a reference to anything');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "agents": "pay*"}', '22023', '/steps/a/agent', 'a pattern beside the name of an agent');
SELECT pg_temp.bad_step('{"call": {}, "agent": "{{steps.b.output}}", "agents": "pay*"}', '22023', '/steps/a/agent', 'an agent that is known too late');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "undo": {"call": {}, "agent": "{{input.to}}"}}', '22023', '/steps/a/undo/agent', 'an undo whose agent is a reference');
SELECT pg_temp.bad_step('{"call": {}, "agent": "{{input.to}}", "agents": "pay*", "fallback": {"call": {}, "agent": "{{input.to}}"}}', '22023', '/steps/a/fallback/agent', 'a fallback whose agent is a reference');
SELECT pg_temp.bad('{"steps": {}, "hooks": [{"call": {}, "agent": "{{secret.token}}"}]}', '22023', '/hooks/0/agent', 'a hook whose agent is a reference');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "undo": {"call": {}, "agent": 5}}', '22023', '/steps/a/undo/agent', 'an undo whose agent is a number');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "undo": {"call": {}, "agent": null}}', '22023', '/steps/a/undo/agent', 'an undo whose agent is null');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "expect": [200, null]}', '22023', '/steps/a/expect/1', 'an expected status that is null');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "retry": {"on": [null, 409]}}', '22023', '/steps/a/retry/on/0', 'a status to retry on that is null');
SELECT pg_temp.bad_step('{"include": "good", "when": "go"}', '42P10', '/steps/a/when', 'a condition of an include over what is not there');
SELECT pg_temp.bad_step('{"include": "good", "when": "$.output == 1"}', '42P10', '/steps/a/when', 'a condition of an include over its output');
SELECT pg_temp.bad_step('{"call": {}, "agent": "{{input.to}}", "agents": "Pay!"}', '22023', '/steps/a/agents', 'a pattern that no agent can have');

-- polls
CREATE FUNCTION pg_temp.bad_poll(poll jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.bad(jsonb_build_object('steps', jsonb_build_object('a', '{"agent": "payments", "call": {}}'::jsonb || jsonb_build_object('poll', poll))), code, '/steps/a/poll' || pointer, claim)
$$;
SELECT pg_temp.bad_poll(p, '22023', '', format('a poll that is %s', p)) FROM jsonb_array_elements('[null, 7, "/jobs", []]') p;
SELECT pg_temp.bad_poll('{"until": "$.output.status == 200"}', '22023', '', 'a poll without call');
SELECT pg_temp.bad_poll('{"call": {}}', '22023', '', 'a poll without until');
SELECT pg_temp.bad_poll('{"call": {}, "until": "$.a ==", "every": "1 s"}', '42601', '/until', 'an until that is no predicate');
SELECT pg_temp.bad_poll('{"call": {}, "until": true}', '42601', '/until', 'an until that is no string');
SELECT pg_temp.bad_poll('{"call": {"verb": "GET"}, "until": "$.a == 1"}', '22023', '/call/verb', 'an unknown key in the call of a poll');
SELECT pg_temp.bad_poll('{"call": {"path": "http://elsewhere/"}, "until": "$.a == 1"}', '22023', '/call/path', 'a poll that leaves the origin of its agent');
SELECT pg_temp.bad_poll(jsonb_build_object('call', '{}'::jsonb, 'until', '$.a == 1', k, v), '22007', '/' || k, format('%s of a poll that is %s', k, v))
FROM unnest('{every,max_every,timeout}'::text[]) k, unnest('{"\"soon\"",5,"\"0 s\"","\"-1 s\""}'::jsonb[]) v;
SELECT pg_temp.bad_poll('{"call": {}, "until": "$.a == 1", "every": "1 min", "max_every": "10 s"}', '22023', '/max_every', 'a poll whose pause would shrink');
SELECT pg_temp.bad_poll('{"call": {}, "until": "$.a == 1", "max_every": "500 ms"}', '22023', '/max_every', 'a poll whose longest pause is below the first by default');
SELECT pg_temp.bad_poll('{"call": {}, "until": "$.a == 1", "progress": 0.5}', '22023', '/progress', 'a progress that is no reference');
SELECT pg_temp.bad_poll('{"call": {}, "until": "$.a == 1", "unit": "s"}', '22023', '/unit', 'an unknown key in a poll');
SELECT pg_temp.bad_poll('{"call": {"path": "/{{output.body.id}}"}, "until": "$.a == 1"}', '42P10', '/call/path', 'an ask that refers to the last one');
SELECT pg_temp.bad_poll('{"call": {"path": "/{{steps.a.started.body.id}}"}, "until": "$.a == 1"}', '42P10', '/call/path', 'an ask that refers to its own step');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "poll": {"call": {}, "until": "$.a == 1"}}}}', '22023', '/steps/a/poll', 'a poll beside a function');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "packer", "task": {}, "poll": {"call": {}, "until": "$.a == 1"}}}}', '22023', '/steps/a/poll', 'a poll beside a task');
SELECT pg_temp.bad('{"steps": {"a": {"include": "good", "poll": {"call": {}, "until": "$.a == 1"}}}}', '22023', '/steps/a/poll', 'a poll of an include');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "output": "{{started.body}}"}}}', '42P10', '/steps/a/output', 'a reference to started where nothing polls');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}}, "b": {"function": "shop.book", "input": "{{steps.a.started.body}}"}}}', '42P10', '/steps/b/input', 'a reference to what another step has started, which does not poll');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "poll": {"call": {}, "until": "$.a == 1"}, "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}}}', '42P10', '/steps/a/undo/call/path', 'an undo of a poll that needs its end');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "poll": {"call": {}, "until": "$.a == 1"}, "undo": {"call": {}, "poll": {}}}}}', '22023', '/steps/a/undo/poll', 'a poll in an undo without a call');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "undo": {"call": {}, "poll": {"call": {}, "until": "$.a == 1", "progress": "{{output.body.x}}"}}}}}', '22023', '/steps/a/undo/poll/progress', 'progress of an undo');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "undo": {"call": {"path": "/{{started.body.id}}"}, "poll": {"call": {}, "until": "$.a == 1"}}}}}', '42P10', '/steps/a/undo/call/path', 'the call of an undo that refers to its reply');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "undo": {"call": {}, "fallback": {"call": {}}}}}}', '22023', '/steps/a/undo/fallback', 'a fallback in an undo');

-- fallbacks
CREATE FUNCTION pg_temp.bad_fallback(fallback jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.bad(jsonb_build_object('steps', jsonb_build_object('b', '{"function": "shop.book", "after": ["a"]}'::jsonb, 'a', '{"agent": "payments", "call": {}}'::jsonb || jsonb_build_object('fallback', fallback))), code, '/steps/a/fallback' || pointer, claim)
$$;
SELECT pg_temp.bad_fallback(p, '22023', '', format('a fallback that is %s', p)) FROM jsonb_array_elements('[null, 7, "skip", []]') p;
SELECT pg_temp.bad_fallback('{"on": ["failed"]}', '22023', '', 'a fallback without a kind');
SELECT pg_temp.bad_fallback('{"call": {}, "function": "shop.book"}', '22023', '', 'a fallback of two kinds');
SELECT pg_temp.bad_fallback('{"function": "shop.book", "agent": "payments"}', '22023', '/agent', 'a function with an agent as a fallback');
SELECT pg_temp.bad_fallback('{"call": {}, "agent": "nope"}', '42704', '/agent', 'a fallback through an agent that does not exist');
SELECT pg_temp.bad_fallback('{"task": {}, "agent": "payments"}', '42809', '/agent', 'a task of an http agent as a fallback');
SELECT pg_temp.bad_fallback('{"function": "shop.nope"}', '42883', '/function', 'a fallback to a function that does not exist');
SELECT pg_temp.bad_fallback('{"call": {"verb": 1}}', '22023', '/call/verb', 'an unknown key in the call of a fallback');
SELECT pg_temp.bad_fallback(jsonb_build_object('call', '{}'::jsonb, 'on', o), '22023', '/on' || CASE WHEN jsonb_typeof(o) = 'array' AND o <> '[]' THEN '/0' ELSE '' END, format('a fallback on %s', o)) FROM jsonb_array_elements('["failed", [], ["sometimes"], [1], {}, null]') o;
SELECT pg_temp.bad_fallback('{"call": {}, "on_failure": "skip"}', '22023', '/on_failure', 'a fallback with a rule of its own');
SELECT pg_temp.bad_fallback('{"call": {}, "complete_in": 3}', '22007', '/complete_in', 'a fallback with a bad window');
SELECT pg_temp.bad_fallback('{"call": {}, "poll": {"call": {}}}', '22023', '/poll', 'a fallback with a poll without an end');
SELECT pg_temp.bad_fallback('{"function": "shop.book", "poll": {"call": {}, "until": "$.a == 1"}}', '22023', '/poll', 'a fallback that calls nothing and polls');
SELECT pg_temp.bad_fallback('{"call": {"path": "/{{started.body.id}}"}, "poll": {"call": {}, "until": "$.a == 1"}}', '42P10', '/call/path', 'a fallback whose call refers to its own reply');
SELECT pg_temp.bad_fallback('{"call": {}, "undo": {"call": {"path": "/{{steps.a.started.body.id}}"}}}', '42P10', '/undo/call/path', 'an undo of a fallback that does not poll that refers to its start');
SELECT pg_temp.bad_fallback('{"call": {}, "poll": {"call": {}, "until": "$.a == 1"}, "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}', '42P10', '/undo/call/path', 'an undo of a fallback that polls that needs its end');
SELECT pg_temp.bad_fallback('{"include": "nope"}', '42704', '/include', 'a fallback that includes nothing');
SELECT pg_temp.bad_fallback('{"include": "good", "complete_in": "1 s"}', '22023', '/complete_in', 'an include with a window as a fallback');
SELECT pg_temp.bad_fallback('{"workflow": "nope"}', '42704', '/workflow', 'a fallback that is a run of nothing');
SELECT pg_temp.bad_fallback('{"wait": {"signal": "x", "until": "now"}}', '22023', '/wait', 'a fallback that waits for two things');
SELECT pg_temp.bad_fallback('{"workflow": "good", "retry": {}}', '22023', '/retry', 'a fallback that is a run with retry');
SELECT pg_temp.bad_fallback('{"call": {}, "undo": {"include": "nope"}}', '42704', '/undo/include', 'an undo of a fallback that includes nothing');
SELECT pg_temp.bad_fallback('{"call": {}, "undo": {}}', '22023', '/undo', 'a fallback whose undo has no kind');
SELECT pg_temp.bad_fallback('{"call": {}, "undo": {"function": "shop.nope"}}', '42883', '/undo/function', 'a fallback whose undo does not exist');
SELECT pg_temp.bad_fallback('{"call": {"path": "/{{steps.a.output.id}}"}}', '42P10', '/call/path', 'a fallback that refers to the result of its step');
SELECT pg_temp.bad_fallback('{"call": {"path": "/{{steps.c.output.id}}"}}', '42P10', '/call/path', 'a fallback that refers to a step that is not there');
SELECT pg_temp.bad_fallback('{"call": {}, "undo": {"call": {"path": "/{{steps.b.output.id}}"}}}', '42P10', '/undo/call/path', 'a fallback whose undo refers to what comes later');
SELECT pg_temp.bad_fallback('{"call": {"path": "/{{output.id}}"}}', '42P10', '/call/path', 'a fallback that refers to a result that is not there yet');
SELECT pg_temp.bad('{"steps": {"a": {"agent": "payments", "call": {}, "fallback": {"function": "shop.book", "input": "{{steps.b.output}}"}}, "b": {"function": "shop.book", "after": ["a"]}}}', '42P17', '/steps/a', 'a cycle over a fallback');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "fallback": {"function": "shop.book", "on": ["breaker_open"]}}}}', '22023', '/steps/a/fallback/on/0', 'a fallback for the breaker of a function');
SELECT pg_temp.bad('{"steps": {"a": {"include": "good", "fallback": {"function": "shop.book"}}}}', '22023', '/steps/a/fallback', 'a fallback of an include');
SELECT pg_temp.bad_step('{"wait": {}}', '22023', '/steps/a/wait', 'a wait for nothing');
SELECT pg_temp.bad_step('{"wait": {"signal": "go", "for": "1 s"}}', '22023', '/steps/a/wait', 'a wait for two things');
SELECT pg_temp.bad_step('{"wait": {"signal": "Go!"}}', '42602', '/steps/a/wait/signal', 'a signal with a bad name');
SELECT pg_temp.bad_step('{"wait": {"signal": "go", "timeout": "soon"}}', '22007', '/steps/a/wait/timeout', 'a time-out that is no span');
SELECT pg_temp.bad_step('{"wait": {"for": "1 s", "timeout": "2 s"}}', '22023', '/steps/a/wait/timeout', 'a timer with a time-out');
SELECT pg_temp.bad_step('{"wait": {"signal": ["go", "Go!"]}}', '42602', '/steps/a/wait/signal/1', 'one of several signals with a bad name');
SELECT pg_temp.bad_step('{"wait": {"signal": []}}', '22023', '/steps/a/wait/signal', 'a wait for none of no signals');
SELECT pg_temp.bad_step('{"wait": {"signal": ["go", "go"]}}', '22023', '/steps/a/wait/signal', 'a wait for the same signal twice');
SELECT pg_temp.bad_step('{"wait": {"signal": "go", "timeout": "1 s", "on_timeout": "skip"}}', '22023', '/steps/a/wait/on_timeout', 'another end of a time-out');
SELECT pg_temp.bad_step('{"wait": {"signal": "go", "on_timeout": "go_on"}}', '22023', '/steps/a/wait/on_timeout', 'the end of a time-out without one');
SELECT pg_temp.bad_step('{"wait": {"for": "1 s", "on_timeout": "go_on"}}', '22023', '/steps/a/wait/on_timeout', 'a timer with the end of a time-out');
SELECT pg_temp.bad_step('{"wait": {"signal": "go", "timeout": "{{nowhere.x}}"}}', '42P10', '/steps/a/wait/timeout', 'a time-out from nowhere');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": "{{run.nothing}}"}', '42P10', '/steps/a/input', 'what a run does not have');
SELECT pg_temp.bad_step('{"function": "shop.book", "when": "$.run.nothing == 1"}', '42P10', '/steps/a/when', 'what a run does not have, in a predicate');
SELECT pg_temp.bad_step(jsonb_build_object(kind, body, k, v), '22023', '/steps/a/' || k, format('a %s with %s', kind, k)) FROM (VALUES ('wait', '{"signal": "go"}'::jsonb), ('workflow', '"good"')) y (kind, body), (VALUES ('retry', '{"max_attempts": 2}'::jsonb), ('recovery', '{"max_failures": 2}'), ('complete_in', '"1 s"')) x (k, v);
SELECT pg_temp.bad_step('{"wait": {"for": "1"}}', '22007', '/steps/a/wait/for', 'a wait without a unit');
SELECT pg_temp.bad_step('{"wait": {"until": "later"}}', '22007', '/steps/a/wait/until', 'an instant that is none');
SELECT pg_temp.bad_step('{"wait": {"until": "infinity"}}', '22007', '/steps/a/wait/until', 'an instant that never comes');
SELECT pg_temp.bad_step('{"agent": "payments", "call": {}, "undo": {"wait": {"until": "-infinity"}}}', '22007', '/steps/a/undo/wait/until', 'an instant that never comes, in an undo');
SELECT pg_temp.bad_step('{"wait": {"signal": "go"}, "input": {}}', '22023', '/steps/a/input', 'a wait with an input');
SELECT pg_temp.bad_step('{"wait": {"signal": "go"}, "agent": "payments"}', '22023', '/steps/a/agent', 'a wait with an agent');
SELECT pg_temp.bad_step('{"workflow": 5}', '22023', '/steps/a/workflow', 'a child that is no name');
SELECT pg_temp.bad_step('{"workflow": "nope"}', '42704', '/steps/a/workflow', 'a child workflow that does not exist');
SELECT pg_temp.bad_step('{"function": "shop.book", "when": "$.input.x >"}', '42601', '/steps/a/when', 'a condition that is no path');
SELECT pg_temp.bad_step('{"function": "shop.book", "when": true}', '42601', '/steps/a/when', 'a condition that is no string');
SELECT pg_temp.bad_step('{"function": "shop.book", "when": "$.input.x > 1", "else": "stop"}', '22023', '/steps/a/else', 'an else that is none');
SELECT pg_temp.bad_step('{"function": "shop.book", "else": "skip"}', '22023', '/steps/a/else', 'an else without a condition');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "input.items"}', '22023', '/steps/a/each', 'an each that is no reference');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{item}}"}', '42P10', '/steps/a/each', 'an each over its own item');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.items}}", "concurrency": 0}', '22023', '/steps/a/concurrency', 'a map that does nothing at a time');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.items}}", "max_failed": -1}', '22023', '/steps/a/max_failed', 'a negative number of failures');
SELECT pg_temp.bad_step('{"function": "shop.book", "concurrency": 3}', '22023', '/steps/a/concurrency', 'concurrency without a map');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.items}}", "repeat": {"while": "$.last.x == 1"}}', '22023', '/steps/a/repeat', 'a map that repeats');
SELECT pg_temp.bad_step('{"function": "shop.book", "repeat": {}}', '22023', '/steps/a/repeat', 'a repeat without while');
SELECT pg_temp.bad_step('{"function": "shop.book", "repeat": {"while": "$.last.x == 1", "max": 0}}', '22023', '/steps/a/repeat/max', 'a repeat of no turns');
SELECT pg_temp.bad_step('{"function": "shop.book", "repeat": {"while": "$.last.x == 1", "every": "often"}}', '22007', '/steps/a/repeat/every', 'a pause that is no span');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": "{{item}}"}', '42P10', '/steps/a/input', 'an item outside a map');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": "{{last}}"}', '42P10', '/steps/a/input', 'a last turn where nothing repeats');
SELECT pg_temp.bad_step('{"function": "shop.book", "weight": "2"}', '22023', '/steps/a/weight', 'a weight that is a string');
SELECT pg_temp.bad_step('{"function": "shop.book", "weight": -1}', '22023', '/steps/a/weight', 'a negative weight');
SELECT pg_temp.bad_step('{"function": "shop.book", "finalize": "shop.nope"}', '42883', '/steps/a/finalize', 'a finalize of a step that does not exist');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": "{{steps.a.token}}"}', '42P10', '/steps/a/input', 'a token of a step that waits for nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "queue": "nope"}', '42704', '/steps/a/queue', 'a queue of a step that does not exist');
SELECT pg_temp.bad_step('{"function": "shop.book", "queue": ["x"]}', '22023', '/steps/a/queue', 'a queue of a step that is an array');
SELECT pg_temp.bad_step('{"call": {}, "agent": "nobody"}', '42704', '/steps/a/agent', 'an unknown agent');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "undo": {"call": {}, "agent": "nobody"}}', '42704', '/steps/a/undo/agent', 'an unknown agent of an undo');
SELECT pg_temp.bad_step('{"call": {}}', '22023', '/steps/a', 'a call without an agent');
SELECT pg_temp.bad_step('{"call": {}, "agent": 7}', '22023', '/steps/a/agent', 'an agent that is not a name');
SELECT pg_temp.bad_step('{"function": "shop.book", "agent": "payments"}', '22023', '/steps/a/agent', 'a function with an agent');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "input": {}}', '22023', '/steps/a/input', 'a call with an input');
SELECT pg_temp.bad_step('{"call": {}, "agent": "packer"}', '42809', '/steps/a/agent', 'a call through an external agent');
SELECT pg_temp.bad_step('{"task": {}, "agent": "payments"}', '42809', '/steps/a/agent', 'a task for an http agent');
SELECT pg_temp.bad_step('{"task": {}, "agent": "nobody"}', '42704', '/steps/a/agent', 'a task for an unknown agent');
SELECT pg_temp.bad_step('{"task": {}}', '22023', '/steps/a', 'a task without an agent');
SELECT pg_temp.bad_step('{"task": true, "agent": "packer"}', '22023', '/steps/a/task', 'a task that is not an object');
SELECT pg_temp.bad_step('{"task": {"body": 1}, "agent": "packer"}', '22023', '/steps/a/task/body', 'an unknown key in a task');
SELECT pg_temp.bad_step('{"task": {}, "agent": "packer", "retry": {"on": ["5xx"]}}', '22023', '/steps/a/retry/on', 'a task that retries on statuses');
SELECT pg_temp.bad_step('{"task": {}, "agent": "packer", "expect": [200]}', '22023', '/steps/a/expect', 'a task that expects statuses');
SELECT pg_temp.bad_step('{"task": {}, "agent": "packer", "complete_in": "soon"}', '22007', '/steps/a/complete_in', 'a task whose complete_in is no span');
SELECT pg_temp.bad_step('{"task": {}, "agent": "packer", "call": {}}', '22023', '/steps/a', 'a step that is a task and a call');
SELECT pg_temp.bad_step('{"task": {}, "agent": "packer", "undo": {"call": {}}}', '42809', '/steps/a/undo/agent', 'a call that undoes a task without an agent of its own');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"task": {}}}', '22023', '/steps/a/undo', 'a task that undoes a function without an agent');
SELECT pg_temp.bad_step('{"function": "shop.nope"}', '42883', '/steps/a/function', 'a function that does not exist');
SELECT pg_temp.bad_step('{"function": "nope.book"}', '42883', '/steps/a/function', 'a function in a schema that does not exist');
SELECT pg_temp.bad_step('{"function": "shop.other_argument"}', '42883', '/steps/a/function', 'a function of something else than jsonb');
SELECT pg_temp.bad_step('{"function": "shop.wrong"}', '42P13', '/steps/a/function', 'a function that does not return jsonb');
SELECT pg_temp.bad_step('{"function": "shop.many"}', '42P13', '/steps/a/function', 'a function that returns a set');
SELECT pg_temp.bad_step('{"function": "shop.procedure"}', '42P13', '/steps/a/function', 'a procedure');
SELECT pg_temp.bad_step('{"function": "book"}', '42602', '/steps/a/function', 'a function without its schema');
SELECT pg_temp.bad_step('{"function": "shop.book(jsonb)"}', '42602', '/steps/a/function', 'a function with arguments');
SELECT pg_temp.bad_step('{"function": "shop.book; DROP TABLE x"}', '42602', '/steps/a/function', 'a function with more SQL behind it');
SELECT pg_temp.bad_step('{"function": {"name": "shop.book"}}', '42602', '/steps/a/function', 'a function that is not a string');
SELECT pg_temp.bad_step('{"function": "shop.nope", "after": ["a"]}', '42883', '/steps/a/function', 'two mistakes: the first');
SELECT pg_temp.bad_step('{"function": "shop.book", "after": "b"}', '22023', '/steps/a/after', 'an after that is not an array');
SELECT pg_temp.bad_step('{"function": "shop.book", "after": [1]}', '22023', '/steps/a/after/0', 'an after that does not hold names');
SELECT pg_temp.bad_step('{"function": "shop.book", "after": [["b"]]}', '22023', '/steps/a/after/0', 'an after that holds an array of names');
SELECT pg_temp.bad_step('{"function": "shop.book", "after": ["nope"]}', '42P10', '/steps/a/after/0', 'an after that names a step that is not there');
SELECT pg_temp.bad_step('{"function": "shop.book", "complete_in": "a while"}', '22007', '/steps/a/complete_in', 'a malformed window');
SELECT pg_temp.bad_step('{"function": "shop.book", "complete_in": "-5 s"}', '22007', '/steps/a/complete_in', 'a negative window');
SELECT pg_temp.bad_step('{"function": "shop.book", "complete_in": "0 s"}', '22007', '/steps/a/complete_in', 'a window of nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "complete_in": "1000000 years"}', '22007', '/steps/a/complete_in', 'a window without end');
SELECT pg_temp.bad_step('{"function": "shop.book", "complete_in": "10"}', '22007', '/steps/a/complete_in', 'a window without a unit');
SELECT pg_temp.bad_step('{"function": "shop.book", "pivot": "yes"}', '22023', '/steps/a/pivot', 'a pivot that is no boolean');
SELECT pg_temp.bad_step('{"function": "shop.book", "priority": -5000}', '22023', '/steps/a/priority', 'a priority of a step out of bounds');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "retry": {"max_attempts": -1}}', '22023', '/steps/a/retry/max_attempts', 'a negative number of attempts');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "retry": {"on": [999]}}', '22023', '/steps/a/retry/on/0', 'a retry on what is no status');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "expect": [99]}', '22023', '/steps/a/expect/0', 'an expect of what is no status');
SELECT pg_temp.bad_step('{"call": {}, "agent": "payments", "expect": "$.output ==="}', '42601', '/steps/a/expect', 'an expect that is no predicate');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": "nope"}}', '42704', '/steps/a/undo/include', 'an undo that includes nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": ["good"]}}', '22023', '/steps/a/undo/include', 'an undo that includes what is no name');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": "good", "workflow": "good"}}', '22023', '/steps/a/undo', 'an undo that is an include and a run');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": "good", "agent": "payments"}}', '22023', '/steps/a/undo/agent', 'an include with an agent as an undo');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": "good", "recovery": {}}}', '22023', '/steps/a/undo/recovery', 'an include with recovery as an undo');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"include": "good", "input": "{{steps.nope.output}}"}}', '42P10', '/steps/a/undo/input', 'an undo that includes what it gives nothing of');
SELECT pg_temp.refused('SELECT sas.create_workflow(''good'', ''{"steps": {"a": {"function": "shop.book", "undo": {"include": "good"}}}}'')', '42P19', '/steps/a/undo/include', 'an undo by which a workflow includes itself');
SELECT pg_temp.refused('SELECT sas.create_workflow(''good'', ''{"steps": {"a": {"function": "shop.book", "fallback": {"include": "in_good"}}}}'')', '42P19', '/steps/a/fallback/include', 'or by which it includes what includes it');
SELECT pg_temp.refused('SELECT sas.create_workflow(''good'', ''{"steps": {"a": {"include": "undone_by_good"}}}'')', '42P19', '/steps/a/include', 'an include of what is undone by it');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"workflow": "nope"}}', '42704', '/steps/a/undo/workflow', 'an undo that is a run of nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"workflow": "good", "recovery": {}}}', '22023', '/steps/a/undo/recovery', 'an undo that is a run with recovery');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"wait": {}}}', '22023', '/steps/a/undo/wait', 'an undo that waits for nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"wait": {"for": "soon"}}}', '22007', '/steps/a/undo/wait/for', 'an undo that waits for no span');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": {"wait": {"for": "{{output.x}}"}}}', '42P10', '/steps/a/undo/wait/for', 'an undo that waits for what is not there yet');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"limit": 0}}', '22023', '/steps/a/concurrency/limit', 'a map without places');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"per_key": 2}}', '22023', '/steps/a/concurrency/per_key', 'places per key without a key');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": "{{item}}", "per_key": "2"}}', '22023', '/steps/a/concurrency/per_key', 'places per key as text');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": "same"}}', '22023', '/steps/a/concurrency/key', 'a key that all elements share');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": ["{{item}}"]}}', '22023', '/steps/a/concurrency/key', 'a key that is no string');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": "{{item.a}}-{{input.b}}"}}', '42P10', '/steps/a/concurrency/key', 'a key of what is no element');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": "{{item..}}"}}', '42601', '/steps/a/concurrency/key', 'a key that is no path');
SELECT pg_temp.bad_step('{"function": "shop.book", "each": "{{input.x}}", "concurrency": {"key": "{{item}}", "scope": "all"}}', '22023', '/steps/a/concurrency/scope', 'a map with a scope');
SELECT pg_temp.bad_step('{"function": "shop.book", "concurrency": {"key": "{{item}}"}}', '22023', '/steps/a/concurrency', 'places per key without a map');
SELECT pg_temp.bad_step('{"function": "shop.book", "on_failure": "pause_at_end"}', '22023', '/steps/a/on_failure', 'a step that is no map and pauses at its end');
SELECT pg_temp.bad_step('{"function": "shop.book", "on_failure": {"transient": "pause_at_end"}}', '22023', '/steps/a/on_failure/transient', 'nor after one kind of failure');
SELECT pg_temp.bad('{"steps": {}, "on_failure": "pause_at_end"}', '22023', '/on_failure', 'a run that pauses at its end');
SELECT pg_temp.bad_step('{"function": "shop.book", "undo": []}', '22023', '/steps/a/undo', 'an undo that is not an object');

-- definitions: references and order -----------------------------------------------------

SELECT pg_temp.bad_step('{"function": "shop.book", "input": {"x": "{{steps.nope.output}}"}}', '42P10', '/steps/a/input/x', 'a reference to a step that is not there');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": {"x": "{{steps.a.output}}"}}', '42P10', '/steps/a/input/x', 'a reference of a step to itself');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": {"x": "{{nothing.x}}"}}', '42P10', '/steps/a/input/x', 'a reference to nothing');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": {"x": "{{output.x}}"}}', '42P10', '/steps/a/input/x', 'an input that refers to the output');
SELECT pg_temp.bad_step('{"function": "shop.book", "input": {"x": "{{input.x"}}', '42601', '/steps/a/input/x', 'a malformed reference');
SELECT is((SELECT problem FROM sas.validate_workflow('{"steps": {}, "output": "{{}}"}')), 'malformed reference: it is empty', 'that a reference is malformed is said once');
SELECT pg_temp.bad_step('{"call": {"headers": {"Authorization": "{{secret.token}}"}}, "agent": "payments"}', '42501', '/steps/a/call/headers/Authorization', 'a secret in a workflow');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "after": ["c"]}, "b": {"function": "shop.book", "after": ["a"]}, "c": {"function": "shop.book", "after": ["b"]}}}',
                   '42P17', '/steps/a', 'a cycle');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "input": {"x": "{{steps.b.output}}"}}, "b": {"function": "shop.book", "after": ["a"]}}}', '42P17', '/steps/a', 'a cycle over a reference');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "after": ["a"]}}}', '42P17', '/steps/a', 'a step after itself');
SELECT pg_temp.bad('{"steps": {"a": {"function": "shop.book", "undo": {"function": "shop.book", "input": {"x": "{{steps.b.output}}"}}}, "b": {"function": "shop.book"}}}',
                   '42P10', '/steps/a/undo/input/x', 'an undo that refers to a step not before its own');

-- definitions: calls ----------------------------------------------------------------------

CREATE FUNCTION pg_temp.bad_call(call jsonb, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.bad_step(jsonb_build_object('agent', 'payments', 'call', call), code, '/steps/a/call' || pointer, claim)
$$;
SELECT pg_temp.bad_call('"GET /"', '22023', '', 'a call that is not an object');
SELECT pg_temp.bad_call('{"verb": "GET"}', '22023', '/verb', 'an unknown key in a call');
SELECT pg_temp.bad_call('{"method": "get it"}', '22023', '/method', 'an unknown method');
SELECT pg_temp.bad_call(jsonb_build_object('path', p), '22023', '/path', format('path %s, which would leave the origin', to_json(p)))
FROM unnest(ARRAY['http://evil.example/', '//evil.example/', '@evil.example/', 'x', '/a/../b', '/a/%2e%2E/b', '/./a', '/a b', E'/a\nb', '/a\b', '/a#b', '.evil.example/']) p;
SELECT pg_temp.bad_call('{"path": 7}', '22023', '/path', 'a path that is not a string');
SELECT pg_temp.bad_call(jsonb_build_object('headers', jsonb_build_object('X-A', v)), '22023', '/headers/X-A', format('a header with a control character, %s', to_json(v)))
FROM unnest(ARRAY[E'a\r\nX-B: b', E'a\nb', E'a\rb', E'\x01']) v;
SELECT pg_temp.bad_call('{"headers": {"X A": "b"}}', '22023', '/headers/X A', 'a header name with a space');
SELECT pg_temp.bad_call('{"headers": {"X-A\r\nB": "b"}}', '22023', E'/headers/X-A\r\nB', 'a header name with a line break');
SELECT pg_temp.bad_call('{"headers": {"X-A": 7}}', '22023', '/headers/X-A', 'a header that is not a string');
SELECT pg_temp.bad_call(jsonb_build_object('headers', jsonb_build_object(h, 'x')), '22023', '/headers/' || h, format('header %s, which sas sets itself', h))
FROM unnest('{Host,content-length,Transfer-Encoding,Connection,Expect,Idempotency-Key,traceparent,Transfer_Encoding,content_length,IDEMPOTENCY_KEY,Keep-Alive,Upgrade,Proxy_Connection,HTTP2-Settings,Trailer,proxy-authorization}'::text[]) h;
SELECT pg_temp.bad_call('{"headers": []}', '22023', '/headers', 'headers that are not an object');
SELECT pg_temp.bad_call('{"query": "a=b"}', '22023', '/query', 'a query that is not an object');
SELECT pg_temp.bad_call('{"body": {}, "text": "x"}', '22023', '', 'a body and a text');
SELECT pg_temp.bad_call('{"form": "x"}', '22023', '/form', 'a form that is not an object');
SELECT pg_temp.bad_call('{"timeout": "never"}', '22007', '/timeout', 'a malformed time-out');

-- definitions: names and sizes --------------------------------------------------------------

SELECT pg_temp.refused(format('SELECT sas.create_workflow(%L, %L)', n, '{"steps": {}}'), '42602', '/name', format('a workflow named %s', to_json(left(n, 20))))
FROM unnest(ARRAY['', 'Order', '1st', 'a-b', 'a b', 'ü', 'a"b', repeat('a', 64), E'a\nb', E'a\n']) n;
SELECT pg_temp.refused('SELECT sas.create_workflow(NULL, ''{"steps": {}}'')', '22004', '/name', 'a workflow without a name');
SELECT pg_temp.bad(jsonb_build_object('steps', jsonb_build_object(n, '{"function": "shop.book"}'::jsonb)), '42602', '/steps/' || n, format('a step named %s', to_json(left(n, 20))))
FROM unnest(ARRAY['', 'A', 'a-b', repeat('a', 64), 'finalize']) n;
SELECT pg_temp.bad(jsonb_build_object('steps', '{}'::jsonb, 'output', repeat('x', 1048576)), '54000', '', 'a definition over the size cap');
SELECT pg_temp.bad(jsonb_build_object('steps', (SELECT jsonb_object_agg('s' || g, '{"function": "shop.book"}'::jsonb) FROM generate_series(1, 10001) g)), '54000', '/steps', 'more steps than the cap');

-- definitions: who -----------------------------------------------------------------------------

SET ROLE sas_definer;
SELECT pg_temp.bad_step('{"function": "shop.closed"}', '42501', '/steps/a/function', 'a function that the caller may not call');
SELECT pg_temp.bad_step('{"function": "hidden.f"}', '42501', '/steps/a/function', 'a function in a schema that the caller may not use');
SELECT pg_temp.bad('{"steps": {}, "hooks": [{"on": "success", "function": "shop.closed"}]}', '42501', '/hooks/0/function', 'a hook with a function that the caller may not call');
SELECT pg_temp.bad('{"steps": {}, "finalize": "shop.closed"}', '42501', '/finalize', 'a finalize that the caller may not call');
RESET ROLE;

-- agents -------------------------------------------------------------------------------------

SELECT pg_temp.refused(format('SELECT sas.create_agent(%L, %L)', n, 'http://127.0.0.1'), '42602', '/name', format('an agent named %s', to_json(left(n, 20))))
FROM unnest(ARRAY['', 'Payments', 'pay-ments', repeat('a', 64)]) n;
SELECT pg_temp.refused(format('SELECT sas.create_agent(%L, %L)', 'x', u), '22023', '/base_url', format('base_url %s', to_json(u)))
FROM unnest(ARRAY['ftp://127.0.0.1', 'file:///etc/passwd', '127.0.0.1', '', 'http://', 'http:///x', 'http://user:pw@host', 'http://host?x=1', 'http://host/#x', 'http://host:99999',
                  'gopher://host', 'javascript:alert(1)', E'http://host\n/x', 'http://ho st']) u;
SELECT pg_temp.refused('SELECT sas.create_agent(''x'')', '22023', '/base_url', 'an agent without a base_url');
SELECT pg_temp.refused(format('SELECT sas.create_agent(''x'', ''http://127.0.0.1'', %s => %L)', part, value), '22023', '/' || part, format('%s of an agent that are no object: %s', part, value))
FROM unnest('{headers,options}'::text[]) part, unnest(ARRAY['"1 h"', '1', 'true', 'null', '[1]']) value WHERE (part, value) <> ('headers', 'null');
CREATE FUNCTION pg_temp.bad_agent(arguments text, code text, pointer text, claim text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_temp.refused(format('SELECT sas.create_agent(''x'', ''http://127.0.0.1'', %s)', arguments), code, pointer, claim)
    UNION ALL
    SELECT pg_temp.refused(format('SELECT sas.alter_agent(''payments'', %s)', arguments), code, pointer, claim || ', altered')
$$;
SELECT pg_temp.bad_agent('max_in_flight => -1', '22023', '/max_in_flight', 'a negative max_in_flight');
SELECT pg_temp.bad_agent('max_in_flight => 0', '22023', '/max_in_flight', 'a max_in_flight of nothing');
SELECT pg_temp.bad_agent(format('rate_limit => %L', r), '22023', '/rate_limit', format('a rate_limit of %L', r)) FROM unnest('{-5/min,0/s,fast,5,5/fortnight}'::text[]) r;
SELECT pg_temp.bad_agent('request_timeout => ''-1 s''', '22023', '/request_timeout', 'a negative request_timeout');
SELECT pg_temp.bad_agent('retry => ''{"max_attempts": -1}''', '22023', '/retry/max_attempts', 'negative attempts of an agent');
SELECT pg_temp.bad_agent('retry => ''{"initial": "soon"}''', '22007', '/retry/initial', 'a malformed pause of an agent');
SELECT pg_temp.bad_agent('breaker => ''{"failures": -1}''', '22023', '/breaker/failures', 'a breaker after negative failures');
SELECT pg_temp.bad_agent('breaker => ''{"colour": 1}''', '22023', '/breaker/colour', 'an unknown key in a breaker');
SELECT pg_temp.bad_agent('breaker => ''{"window": "x"}''', '22007', '/breaker/window', 'a malformed window of a breaker');
SELECT pg_temp.bad_agent('breaker => ''[]''', '22023', '/breaker', 'a breaker that is not an object');
SELECT pg_temp.bad_agent('options => ''{"colour": 1}''', '22023', '/options/colour', 'an unknown option');
SELECT pg_temp.bad_agent('options => ''{"max_response": "huge"}''', '22023', '/options/max_response', 'a malformed size');
SELECT pg_temp.bad_agent('options => ''{"max_response": "-1 MB"}''', '22023', '/options/max_response', 'a negative size');
SELECT pg_temp.bad_agent('options => ''{"http_version": "9"}''', '22023', '/options/http_version', 'an unknown version of HTTP');
SELECT pg_temp.bad_agent(format('options => ''{"keep": %s}''', k), '22023', '/options/keep' || p, format('keep %s', k)) FROM (VALUES ('"body"', ''), ('{}', ''), ('null', ''), ('[7]', '/0'), ('["body.id", "cookies"]', '/1'), ('["headers.X-A"]', '/0'), ('["body..id"]', '/0'), ('[""]', '/0')) AS x (k, p);
SELECT pg_temp.bad_agent(format('options => ''{"proxy": %s}''', to_json(p)), '22023', '/options/proxy', format('proxy %s', to_json(p)))
FROM unnest(ARRAY['file:///etc/passwd', 'unix:///tmp/x', 'socks5h://localhost/var/run/x.sock', 'ftp://127.0.0.1:1', E'http://127.0.0.1:1\r\nX: y', '', 'http://', 'http://a b:1', 'http://127.0.0.1:1/path', 'http://127.0.0.1:1?x']) p;
SELECT is((SELECT count(*) FROM _sas.check_agent_options(jsonb_build_object('proxy', p))), 0::bigint, 'nothing is wrong with proxy ' || p)
FROM unnest(ARRAY['http://127.0.0.1:3128', 'HTTP://127.0.0.1:3128', 'https://proxy.example:8443/', 'socks5h://127.0.0.1:1080', 'proxy:3128', 'http://{{secret.token}}@[::1]:3128', '{{secret.token}}']) p;
SELECT pg_temp.bad_agent('options => ''{"sign": "standard-webhooks"}''', '22023', '/options/sign', 'sign is no object');
SELECT pg_temp.bad_agent('options => ''{"sign": {"secret": "{{secret.token}}"}}''', '22023', '/options/sign/scheme', 'sign has no scheme');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "md5", "secret": "{{secret.token}}"}}''', '22023', '/options/sign/scheme', 'sign has an unknown scheme');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256"}}''', '22023', '/options/sign/secret', 'sign has no secret');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256", "secret": "open to all"}}''', '22023', '/options/sign/secret', 'the secret of sign is no reference');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256", "secret": ["{{secret.token}}"]}}''', '22023', '/options/sign/secret', 'one header takes one signature');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "standard-webhooks", "secret": []}}''', '22023', '/options/sign/secret', 'sign has an empty array of secrets');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256", "secret": "{{secret.none}}"}}''', '42704', '/options/sign/secret', 'the secret of sign is not set');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256", "secret": "{{secret.token}}", "header": "a b"}}''', '22023', '/options/sign/header', 'the header of sign is no name');
SELECT pg_temp.bad_agent(format('options => ''{"sign": {"scheme": "hmac-sha256", "secret": "{{secret.token}}", "%s": "%s"}}''', k, h), '22023', '/options/sign/' || k, format('%s %s of sign', k, h))
FROM unnest('{header,timestamp_header}'::text[]) k, unnest('{Host,Content_Length,Idempotency-Key,Upgrade,Accept-Encoding}'::text[]) h;
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "hmac-sha256", "secret": "{{secret.token}}", "encoding": "utf8"}}''', '22023', '/options/sign/encoding', 'sign has an unknown encoding');
SELECT pg_temp.bad_agent('options => ''{"sign": {"scheme": "standard-webhooks", "secret": "{{secret.token}}", "header": "X"}}''', '22023', '/options/sign/header', 'the headers of standard-webhooks are fixed');
SELECT pg_temp.bad_agent(format('options => ''{"oauth2": %s}''', o), code, '/options/oauth2' || p, what)
FROM (VALUES ('"on"', '22023', '', 'oauth2 is no object'), ('{}', '22023', '/token_url', 'oauth2 has nothing'),
    ('{"token_url": "https://t.example/x?y", "client_id": "c", "client_secret": "{{secret.token}}"}', '22023', '/token_url', 'the URL of the token service has a query'),
    ('{"token_url": "https://t.example/x", "client_secret": "{{secret.token}}"}', '22023', '/client_id', 'oauth2 has no client_id'),
    ('{"token_url": "https://t.example/x", "client_id": "c"}', '22023', '/client_secret', 'oauth2 has no client_secret'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "open to all"}', '22023', '/client_secret', 'the client_secret is no reference'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.none}}"}', '42704', '/client_secret', 'the client_secret is not set'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}", "scope": ["a"]}', '22023', '/scope', 'the scope is no string'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}", "auth": "digest"}', '22023', '/auth', 'an unknown way to authenticate'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}", "params": {"a": 1}}', '22023', '/params', 'a parameter is no string'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}", "params": {"scope": "a"}}', '22023', '/params/scope', 'a parameter that is set anyway'),
    ('{"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}", "grant": "password"}', '22023', '/grant', 'an unknown key of oauth2')) AS x (o, code, p, what);
SELECT pg_temp.bad_agent('headers => ''{"authorization": "x"}'', options => ''{"oauth2": {"token_url": "https://t.example/x", "client_id": "c", "client_secret": "{{secret.token}}"}}''', '22023', '/headers/authorization', 'oauth2 beside a header Authorization');
SELECT pg_temp.bad_agent('headers => ''{"X-A": "a\nb"}''', '22023', '/headers/X-A', 'a header of an agent with a line break');
SELECT pg_temp.bad_agent('headers => ''{"X-A": "{{secret.nope}}"}''', '42704', '/headers/X-A', 'a secret that is not there');
SELECT pg_temp.bad_agent('headers => ''{"X-A": "{{input.x}}"}''', '42P10', '/headers/X-A', 'an agent that refers to an input');
SELECT pg_temp.refused(format('SELECT sas.create_agent(''x'', kind => ''external'', %s)', argument), code, pointer, format('an external agent with %s', argument))
FROM (VALUES ('base_url => ''http://127.0.0.1''', '22023', '/base_url'), ('headers => ''{"X-A": "b"}''', '22023', '/headers'), ('breaker => ''{"off": true}''', '22023', '/breaker'),
             ('options => ''{"proxy": "x"}''', '22023', '/options'), ('request_timeout => ''5 s''', '22023', '/request_timeout'), ('rate_limit => ''fast''', '22023', '/rate_limit'), ('max_in_flight => 0', '22023', '/max_in_flight'),
             ('max_in_flight => 10001', '22023', '/max_in_flight'), ('retry => ''{"on": [500]}''', '22023', '/retry/on'), ('retry => ''{"max_attempts": 0}''', '22023', '/retry/max_attempts')) AS x (argument, code, pointer);
SELECT pg_temp.refused(format('SELECT sas.create_agent(%L, kind => ''external'')', repeat('x', 54)), '42602', '/name', 'an external agent with a name of 54 bytes');
SELECT pg_temp.refused('SELECT sas.create_agent(''payments'', kind => ''external'')', '22023', '/kind', 'an agent that would change its kind');
SELECT pg_temp.refused('SELECT sas.alter_agent(''packer'', base_url => ''http://127.0.0.1'')', '22023', '/base_url', 'an external agent that is given a base_url');
SELECT pg_temp.refused('SELECT sas.alter_agent(''packer'', request_timeout => ''5 s'')', '22023', '/request_timeout', 'an external agent that is given a request_timeout');
SELECT pg_temp.refused(format('SELECT sas.register_node(''me'', 1, %s)', agents), code, '/agents', format('a node for %s', agents))
FROM (VALUES ('''{nope}''', '42704'), ('''{payments}''', '42704'), ('''{}''', '22004'), ('NULL', '22004'), ('''{NULL}''', '22004')) AS x (agents, code);
SELECT pg_temp.refused(format('SELECT * FROM sas.claim(%s)', arguments), code, pointer, format('a claim of %s', arguments))
FROM (VALUES ('''nope'', ''w''', '42704', '/agent'), ('''payments'', ''w''', '42809', '/agent'), ('''packer'', ''''', '22023', '/worker'), ('''packer'', NULL', '22023', '/worker'),
             ('''packer'', E''a\nb''', '22023', '/worker'), ('''packer'', repeat(''w'', 201)', '22023', '/worker'), ('''packer'', ''w'', 0', '22023', '/quantity'), ('''packer'', ''w'', 1001', '22023', '/quantity'),
             ('''packer'', ''w'', NULL', '22023', '/quantity'), ('''packer'', ''w'', 1, ''0 s''', '22023', '/lease'), ('''packer'', ''w'', 1, ''31 days''', '22023', '/lease'), ('''packer'', ''w'', 1, NULL', '22023', '/lease')) AS x (arguments, code, pointer);
SELECT pg_temp.refused(format('SELECT sas.heartbeat(gen_random_uuid(), %L::float8)', p), '22023', '/progress', format('a progress of %s', p)) FROM unnest('{-0.1,1.1,NaN,Infinity}'::text[]) p;
SELECT pg_temp.refused(format('SELECT sas.complete_tasks(%s)', arguments), code, pointer, format('tasks completed with %s', left(arguments, 60)))
FROM (VALUES ('NULL, ''{}''', '22004', '/request_ids'), ('''{}'', NULL', '22004', '/outputs'), ('''{}'', ''{1}''', '22023', '/outputs'), ('ARRAY[gen_random_uuid()], ''{}''', '22023', '/outputs'),
             ('ARRAY[ARRAY[gen_random_uuid()]], ''{1}''', '22023', '/outputs'), ('array_fill(gen_random_uuid(), ''{1001}''), array_fill(''1''::jsonb, ''{1001}'')', '54000', '/request_ids'),
             ('''{NULL,NULL}'', ARRAY[''1'', to_jsonb(repeat(''x'', 20000000))]', '54000', '/outputs/1')) AS x (arguments, code, pointer);
SELECT is(sas.complete_tasks(ARRAY[gen_random_uuid(), NULL], '{1,NULL}'), '{f,f}'::boolean[], 'claims that nobody holds are not completed');
SELECT is(sas.complete_tasks('{}', '{}'), '{}'::boolean[], 'nor are none');
SELECT is((SELECT (sas.complete(r, '{}'), sas.fail(r, 'x'), sas.hand_back(r), sas.heartbeat(r))), (false, false, false, 'lost'::text), format('a claim %s is held by nobody', coalesce(r::text, 'null')))
FROM unnest(ARRAY[gen_random_uuid(), NULL]) r;
SELECT pg_temp.refused('SELECT sas.create_agent(''x'', ''http://127.0.0.1'', kind => ''smtp'')', '22023', '/kind', 'an unknown kind of agent');
SELECT pg_temp.refused('SELECT sas.alter_agent(''nobody'')', '42704', '/name', 'an agent that is not there cannot be altered');
SELECT pg_temp.refused('SELECT sas.alter_agent(''payments'', reset => ''{colour}'')', '22023', '/reset/0', 'what an agent does not have cannot be reset');
SELECT pg_temp.refused('SELECT sas.alter_agent(''payments'', max_in_flight => 7, reset => ''{retry,max_in_flight}'')', '22023', '/reset', 'what is given a value cannot be reset as well');
SELECT pg_temp.refused('SELECT sas.drop_agent(''nobody'')', '42704', '/name', 'an agent that is not there cannot be dropped');
SELECT pg_temp.refused('SELECT sas.distribute_keys(''nobody'', NULL)', '42704', '/workflow', 'the keys of a workflow that is not there follow nothing');
SELECT pg_temp.refused('SELECT sas.reset_agent(''nobody'')', '42704', '/name', 'an agent that is not there cannot be reset');
SELECT pg_temp.refused('SELECT sas.drop_secret(''nope'')', '42704', '/name', 'a secret that is not there cannot be dropped');
SELECT pg_temp.refused('SELECT sas.set_secret(''Bad'', ''x'')', '42602', '/name', 'a secret whose name is not plain');
SELECT pg_temp.refused(format('SELECT sas.set_secret(''nl'', %L)', E'a\r\nX-Evil: 1'), '22023', '/value', 'a secret with a line break');
SELECT pg_temp.refused('SELECT sas.set_secret(''empty'', '''')', '22023', '/value', 'an empty secret');
SELECT pg_temp.refused('SELECT sas.set_secret_file(''Bad'', ''x'')', '42602', '/name', 'a secret in a file whose name is not plain');
SELECT pg_temp.refused('SELECT sas.set_secret_file(''in_file'', ''x'')', '55000', '/file', 'a secret in a file without a directory for it');

-- submit -------------------------------------------------------------------------------------

SELECT pg_temp.refused('SELECT * FROM sas.submit(''nope'')', '42704', '/workflow', 'an unknown workflow');
SELECT pg_temp.refused('SELECT * FROM sas.submit(NULL)', '22004', '/workflow', 'no workflow');
SELECT pg_temp.refused(format('SELECT sas.create_agent(''k'', ''http://127.0.0.1:1'', options => %L)', jsonb_build_object('concurrency', o::jsonb)), code, '/options/concurrency' || path, format('concurrency %s of an agent', o)) FROM (VALUES ('7', '22023', ''), ('{}', '22023', '/key'), ('{"key": 7}', '22023', '/key'), ('{"key": "x", "limit": 1}', '22023', '/limit'), ('{"key": "x", "per_key": 0}', '22023', '/per_key'), ('{"key": "{{steps.a.output}}"}', '42P10', '/key'), ('{"key": "{{input..}}"}', '42601', '/key')) AS v (o, code, path);
SELECT pg_temp.refused(format('SELECT * FROM sas.read_replies(''shop'', %s)', n), '22023', '/quantity', format('%s replies', n)) FROM unnest('{-1,NULL::int}'::text[]) n;
SELECT pg_temp.refused(format('SELECT sas.stub(''payments'', ''200'', %s)', argument), '22023', pointer, format('a stub with %s', argument))
FROM (VALUES ('method => ''POSTT''', '/method'), ('method => ''''', '/method'), ('attempt => 0', '/attempt'), ('element => -1', '/element')) AS x (argument, pointer);
SELECT pg_temp.refused(format('SELECT * FROM sas.read_replies(%L)', n), CASE WHEN n IS NULL THEN '22004' ELSE '42602' END, '/queue', format('replies of queue %s', coalesce(left(n, 20), 'null'))) FROM unnest(ARRAY['', 'Not Plain', repeat('x', 64), NULL]) n;
SELECT pg_temp.refused(format('SELECT * FROM sas.submit(''good'', %L)', i), '22023', '/input', format('input %s, which is not an object', i)) FROM unnest('{[1],7,"\"x\"",null}'::text[]) i;
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', NULL)', '22023', '/input', 'an input that is null');
SELECT pg_temp.refused(format('SELECT * FROM sas.submit(''good'', jsonb_build_object(''x'', repeat(''x'', 1048577)))'), '54000', '/input', 'an input over the size cap');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', deadline => ''-1 s'')', '22023', '/deadline', 'a deadline before the start');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', priority => 100000)', '22023', '/priority', 'a priority of a run out of bounds');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', priority => NULL)', '22023', '/priority', 'a priority that is null');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', labels => ''[]'')', '22023', '/labels', 'labels that are not an object');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', reply_to => ''Not Plain'')', '42602', '/reply_to', 'a reply queue whose name is not plain');
SELECT pg_temp.refused('SELECT * FROM sas.submit_batch(''good'', ARRAY[''{}'']::jsonb[], ''{a,b}'')', '22023', '/keys', 'more keys than inputs');
SELECT pg_temp.refused('SELECT * FROM sas.submit_batch(''good'', NULL, ''{a}'')', '22023', '/keys', 'keys without inputs');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', start_at => now() + interval ''1 h'', start_before => now())', '22023', '/start_before', 'a start_before that is not after start_at');
SELECT pg_temp.refused('SELECT sas.signal(4711, ''go'')', '42704', '/run_id', 'a signal to a run that does not exist');
SELECT pg_temp.refused('SELECT sas.signal_key(''good'', ''no such key'', ''go'')', '42704', '/key', 'a signal to a key that no run has');
SELECT pg_temp.refused('SELECT * FROM sas.submit(''good'', after_run => 4711)', '42704', '/after_run', 'an earlier run that does not exist');
SELECT pg_temp.refused(format('SELECT * FROM sas.submit(''good'', after_runs => ''{}'', after_result => %L)', r), '22023', '/after_result' || CASE r WHEN '{}' THEN '' ELSE '/0' END, format('after_result %s', coalesce(r, 'null'))) FROM unnest('{"{}","{done}","{NULL}"}'::text[]) r;
SELECT pg_temp.refused(format('SELECT sas.%s_workflow(''nope'')', v), '42704', '/name', format('a workflow that is not there: %s', v)) FROM unnest('{pause,resume}'::text[]) v;
SELECT pg_temp.refused('SELECT sas.create_queue(''Not Plain'', 1)', '42602', '/name', 'a queue whose name is not plain');
SELECT pg_temp.refused(format('SELECT sas.create_queue(''q'', %s)', n), '22023', '/max_running', format('a queue of %s', n)) FROM unnest('{0,-1,1000001,NULL}'::text[]) n WHERE n IS NOT NULL;
SELECT pg_temp.refused(format('SELECT sas.create_queue(''q'', 1, %L, %s)', k, n), code, path, format('a queue with key %s, per_key %s', k, n)) FROM (VALUES (NULL, '1', '22023', '/per_key'), ('x', '0', '22023', '/per_key'), ('{{run.foo}}', 'NULL', '42P10', '/key'), ('{{steps.a.output}}', 'NULL', '42P10', '/key'), ('{{input..}}', 'NULL', '42601', '/key')) AS v (k, n, code, path);
SELECT pg_temp.refused(format('SELECT sas.%s_queue(''nope'')', v), '42704', '/name', format('%s of a queue that is not there', v)) FROM unnest('{drop,pause,resume}'::text[]) v;
SELECT pg_temp.refused('SELECT sas.alter_queue(''nope'', 1)', '42704', '/name', 'alter of a queue that is not there');
SELECT pg_temp.refused('SELECT sas.drop_workflow(''nope'')', '42704', '/name', 'a workflow that is not there cannot be dropped');
SELECT pg_temp.refused('SELECT sas.grant_workflow(''nope'', ''sas_definer'')', '42704', '/workflow', 'a workflow that is not there cannot be granted');
SELECT pg_temp.refused(format('SELECT sas.grant_workflow(''good'', %s)', r), '42704', '/role', format('role %s cannot be granted a workflow', r)) FROM unnest('{0::regrole,999999::regrole}'::text[]) r;
SELECT pg_temp.refused('SELECT sas.grant_workflow(''good'', NULL)', '22004', '/role', 'nobody cannot be granted a workflow');
SELECT pg_temp.refused(format('SELECT sas.grant_usage(%s, ''user'')', r), '42704', '/role', format('role %s cannot be given a level', r)) FROM unnest('{0::regrole,999999::regrole}'::text[]) r;
SELECT pg_temp.refused('SELECT sas.grant_usage(NULL, ''user'')', '22004', '/role', 'nobody cannot be given a level');
SELECT pg_temp.refused(format('SELECT sas.revoke_usage(%s, ''user'')', r), '42704', '/role', format('from role %s no level can be taken', r)) FROM unnest('{0,4294967295}'::text[]) r;
SELECT pg_temp.refused('SELECT sas.revoke_usage(NULL)', '22004', '/role', 'nor from nobody');
SELECT pg_temp.refused('SELECT sas.revoke_usage(''sas_definer'', ''king'')', '22023', '/level', 'an unknown level cannot be taken away');
SELECT pg_temp.refused('SELECT sas.grant_usage(''sas_definer'', ''king'')', '22023', '/level', 'an unknown level cannot be granted');
SELECT pg_temp.refused('SELECT sas.grant_usage(''sas_definer'', ''worker'', ''nope'')', '42704', '/agent', 'level worker cannot be granted for an agent that is not there');
SELECT pg_temp.refused('SELECT sas.grant_usage(''sas_definer'', ''worker'', ''payments'')', '42704', '/agent', 'nor for one that is not external');
SELECT pg_temp.refused('SELECT sas.grant_usage(''sas_definer'', ''user'', ''packer'')', '22023', '/agent', 'another level cannot be granted for one agent');

-- nothing was stored ---------------------------------------------------------------------------

SELECT is(pg_temp.stored(), (SELECT said FROM before), 'of all this nothing is stored');
SELECT is((SELECT max_in_flight FROM sas.agents WHERE name = 'payments'), 100, 'and nothing altered');

-- verbs of runs that are there ------------------------------------------------------------------

SELECT sas.create_workflow('waits', '{"steps": {"w": {"wait": {"signal": "go"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('waits', key => 'one') \gset
SELECT pg_temp.refused(format('SELECT * FROM sas.wait(%s, %s)', r, t), '22004', path, claim) FROM (VALUES ('NULL', '''1 s''', '/run_id', 'to wait for no run'), ('1', 'NULL', '/timeout', 'to wait for no time')) AS v (r, t, path, claim);
SELECT pg_temp.refused('SELECT * FROM sas.wait(1, ''-1 s'')', '22023', '/timeout', 'to wait for less than no time');
SELECT pg_temp.refused(format('SELECT sas.signal(%s, NULL)', :run_id), '22004', '/name', 'a signal without a name');
SELECT pg_temp.refused(format('SELECT sas.signal(%s, ''go'', NULL)', :run_id), '22004', '/payload', 'a signal without a payload');
SELECT pg_temp.refused(format('SELECT sas.signal(%s, ''stop'')', :run_id), '55000', '/name', 'a signal for which no step waits');
SELECT pg_temp.refused('SELECT sas.signal_key(''waits'', ''one'', ''stop'')', '55000', '/name', 'the same by the key of the run');
SELECT pg_temp.refused('SELECT sas.drop_workflow(''waits'')', '2BP01', '/name', 'to drop a workflow that has open runs');
SELECT pg_temp.refused('SELECT sas.step(NULL, ''{}'')', '22004', '/name', 'a step without a name');
SELECT pg_temp.refused('SELECT sas.steps(sas.step(''a'', ''{}''), sas.step(''a'', ''{}''))', '42710', '/steps', 'two steps of one name');

-- what is not one's own --------------------------------------------------------------------------

SELECT sas.create_watcher('listens', '{"agent": "packer", "external": {}, "items": {"function": "shop.book"}}') \g /dev/null
SELECT sas.grant_usage('sas_definer', 'worker'), sas.create_agent('others', kind => 'external') \g /dev/null
SELECT sas.revoke_usage('sas_definer', 'worker'), sas.grant_usage('sas_definer', 'worker', 'others') \g /dev/null
SET ROLE sas_definer;
SELECT pg_temp.refused('SELECT * FROM sas.claim(''packer'', ''me'')', '42501', '/agent', 'to claim of an agent that one may not work for');
SELECT pg_temp.refused('SELECT sas.register_node(''me'', 1, ''{packer}'')', '42501', '/agents', 'to be a node for one');
SELECT pg_temp.refused('SELECT sas.drop_workflow(''waits'')', '42501', '/name', 'to drop the workflow of another role');
SELECT pg_temp.refused('SELECT sas.create_watcher(''listens'', ''{"function": "shop.book", "every": "1 s"}'')', '42501', '/name', 'to replace the watcher of another role');
RESET ROLE;

-- and what is good is taken --------------------------------------------------------------------

SELECT is((SELECT count(*) FROM sas.validate_workflow('{"steps": {"a": {"agent": "payments", "call": {"method": "POST", "path": "/charges/{{input.id}}?x=1", "query": {"q": null}, "headers": {"X-A": "b\tc"}, "body": {"a": 1}, "timeout": "5 s"},
    "expect": ["2xx", 409], "retry": {"max_attempts": 3, "on": [500, "5xx", "40001"]}, "undo": {"call": {"path": "{{steps.a.output.body.link}}"}}, "complete_in": "20 s", "pivot": true, "priority": 5,
    "on_failure": {"transient": "skip"}}, "b": {"function": "shop.book", "input": {"x": "{{steps.a.output.body.id?}}"}, "expect": "$.output.ok == true", "after": ["a"]}},
    "output": {"x": "{{steps.b.output}}"}, "on_failure": "pause", "recovery": {"max_failures": 3}, "deadline": "3 days", "finalize": "shop.book", "priority": -3}')), 0::bigint,
    'a definition with every key of this release has no problem');
SELECT lives_ok($$SELECT sas.create_workflow('partly', '{"steps": {"a": {"function": "shop.book", "on_failure": {"permanent": "skip"}}}}')$$, 'on_failure may say one kind only');
SELECT is(sas.create_workflow('empty', '{"steps": {}}'), 1, 'a workflow without steps is one');
SELECT is((SELECT count(*) FROM sas.validate_workflow('{"steps": {"a": {"agent": "packer", "task": {}, "input": {"x": "{{input.x}}"}, "expect": "$.output.ok == true", "output": "{{output.n}}", "retry": {"max_attempts": 3}, "recovery": {"max_failures": 2},
    "complete_in": "1 h", "on_failure": "skip", "undo": {"task": {}, "input": {"n": "{{steps.a.output}}"}}}, "b": {"function": "shop.book", "undo": {"agent": "packer", "task": {}}}}}')), 0::bigint, 'a task with every key of this release has no problem');
SELECT lives_ok(format('SELECT sas.create_agent(%L, kind => ''external'')', repeat('x', 53)), 'the name of an external agent may have 53 bytes');
SELECT lives_ok(format('SELECT sas.create_workflow(%L, ''{"steps": {}}'')', repeat('a', 63)), 'a name may have 63 bytes');
SELECT lives_ok(format('SELECT sas.create_agent(%L, %L)', 'u' || row_number() OVER (), u), format('base_url %s is good', u))
FROM unnest(ARRAY['http://host', 'https://host:8443/base/', 'http://[::1]:80', 'HTTP://Host/a/b']) u;
SELECT ok(octet_length((sas.create_workflow('large', jsonb_build_object('steps', '{}'::jsonb, 'output', repeat('x', 1000000))))::text) > 0, 'a definition just below the cap is taken');

-- null instead of an id: what a search that finds nothing gives. Each verb says so in a row, as of an id that there is not.
CREATE FUNCTION pg_temp.rows_of(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE format('SELECT string_agg(concat_ws('' '', run_id, changed, substring(refused FROM ''run null does not exist|no such alert'')), ''; '') FROM sas.%s', call) INTO said;
    RETURN said;
END $$;
SELECT is(pg_temp.rows_of(v || '(' || args || ')'), 'f ' || CASE WHEN v ~ '^ack' THEN 'no such alert' ELSE 'run null does not exist' END, v || ' of null is refused')
FROM (VALUES ('pause', ''), ('resume', ''), ('retry', ''), ('retry', $$, 'a'$$), ('skip', $$, 'a'$$), ('force_complete', $$, 'a'$$), ('set_input', $$, 'a', '{}'$$), ('set_version', ''), ('cancel', ''),
             ('halt', ''), ('compensate', ''), ('rerun', ''), ('set_priority', ', 1'), ('set_start_at', ', now()')) AS x (verb, more)
CROSS JOIN LATERAL (VALUES (verb, 'NULL' || more), (verb || '_runs', 'ARRAY[NULL, NULL]::bigint[]' || more)) AS y (v, args)
UNION ALL SELECT is(pg_temp.rows_of('acknowledge(NULL)'), 'f no such alert', 'an alert, too')
UNION ALL SELECT is(pg_temp.rows_of('pause_runs(NULL)'), NULL, 'no array is no run');
SELECT * FROM finish();
