-- SPDX-License-Identifier: PostgreSQL
--
-- The claim: the store holds who has a step and until when; nobody gets what
-- another one has.
SELECT t.clean() \g /dev/null
SELECT t.workflow('call', '{"charge": {"agent": "payments", "call": {"method": "POST", "path": "/charges/{{input.id}}", "body": {"amount": "{{input.amount}}"}}, "complete_in": "20 s"}}') \g /dev/null
SELECT run_id FROM sas.submit('call', '{"id": "a/b", "amount": 7}');

-- A2 before the claim: ready, locked_by and complete_by null, no failure
SELECT step, agent, state, attempt, failure_count, locked_by, complete_by, waiting_kind, waiting_on, started_at FROM sas.steps;
SELECT waiting FROM sas.agents WHERE name = 'payments';
-- A2 after it: locked_by names the worker and complete_by is its window away
SELECT t.later('5 s') \g /dev/null
SELECT t.claim('agent 1');
SELECT step, state, attempt, failure_count, locked_by, t.at(complete_by) AS complete_by, waiting_kind, waiting_on, t.at(started_at) AS started_at FROM sas.steps;
SELECT state, t.at(started_at) AS started_at FROM sas.runs;
SELECT waiting FROM sas.agents WHERE name = 'payments';
-- what the worker gets: the request filled in, its window, and a key
SELECT step, asked, window_ms, key = (SELECT idempotency_key FROM sas.steps) AS key_is_told, request_id IS NOT NULL AS fenced FROM t.held;
-- A3 nobody else gets it
SELECT t.claim('agent 2');
-- A2 after the reply: nobody has it
SELECT t.answer('charge');
SELECT step, state, attempt, failure_count, locked_by, complete_by, waiting_kind, output, t.at(finished_at) AS finished_at FROM sas.steps;
SELECT state, result, progress FROM sas.runs;
SELECT * FROM t.left_over();

-- A3 a thousand runs, four workers in turn: each is handled by one
SELECT t.clean() \g /dev/null
SELECT count(*) FROM sas.submit_batch('call', ARRAY(SELECT jsonb_build_object('id', g, 'amount', g) FROM generate_series(1, 1000) g));
SELECT t.claim('worker ' || g % 4, 61) FROM generate_series(1, 17) g \g /dev/null
SELECT count(*) AS claims, count(DISTINCT run_id) AS runs, count(DISTINCT request_id) AS tokens, count(DISTINCT key) AS keys, count(DISTINCT worker) AS workers FROM t.held;
SELECT count(*) FROM sas.steps s JOIN t.held h USING (run_id) WHERE s.state = 'running' AND s.locked_by = h.worker;
-- the oldest come first
SELECT min(run_id), max(run_id) FROM t.held WHERE n <= 61;

-- only the lanes that are asked for, only as many as there is room
SELECT t.clean() \g /dev/null
SELECT t.workflow('lanes', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "payments", "call": {}}, "c": {"agent": "payments", "call": {}}, "f": {"function": "t.echo"}}') \g /dev/null
SELECT run_id FROM sas.submit('lanes');
SELECT count(*), min(a.name) AS agent
FROM _sas.claim_calls(ARRAY(SELECT agent_id FROM _sas.agent WHERE name IN ('inventory', 'payments') ORDER BY name), '{0,1}', 1, 1, 'w') c JOIN _sas.agent a USING (agent_id);
SELECT name, waiting FROM sas.agents ORDER BY name;

-- the Idempotency-Key of a step: the same after a failure, another one for the undo, for other steps and other runs
SELECT t.clean() \g /dev/null
SELECT t.workflow('keys', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('keys');
SELECT run_id FROM sas.submit('keys');
SELECT t.claim();
CREATE TABLE t.keys AS SELECT run_id, step, undo, key FROM t.held;
SELECT t.answer('a', 'transient', for_run => 1), t.answer('a', for_run => 2);
SELECT t.settle() \g /dev/null
SELECT t.later('1 min'), t.settle() \g /dev/null
SELECT t.claim();
INSERT INTO t.keys SELECT run_id, step, undo, key FROM t.held;
SELECT t.answer('a', for_run => 1), t.answer('b', 'permanent', for_run => 2);
SELECT t.settle() \g /dev/null
SELECT t.claim();
INSERT INTO t.keys SELECT run_id, step, undo, key FROM t.held;
SELECT run_id, step, undo, count(*), count(DISTINCT key) AS keys FROM t.keys GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT count(DISTINCT key) FROM t.keys;

-- what shows only at claim: the template cannot be filled in; the claim says where and what
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('call', '{"id": "x"}');
SELECT t.claim();
SELECT step, asked, problem FROM t.held;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('call', '{"id": "..", "amount": 1}');
SELECT t.claim();
SELECT step, asked, problem FROM t.held;
DROP TABLE t.keys;

-- what is sent is the same by the short way of plain calls and by that of all others
SELECT t.clean() \g /dev/null
SELECT t.workflow('shapes', '{
    "path": {"agent": "inventory", "call": {"path": "/a/{{input.id}}/{{run.id}}"}, "undo": {"call": {"method": "DELETE", "path": "/{{input.id}}"}}},
    "full": {"agent": "inventory", "call": {"path": "{{input.path}}", "query": {"all": "{{input}}", "one": "{{input.list[1]}}", "none": "{{input.none?}}"}}},
    "body": {"agent": "inventory", "call": {"method": "PUT", "path": "/x", "timeout": "3 s", "body": {"run": "{{run}}", "key": "{{key}}", "list": "{{input.list[*]}}", "as": "\\{{ {{input.id}}"},
                                           "headers": {"X-Labels": "{{run.labels.a}}"}}, "expect": [200, "404"], "retry": {"max_attempts": 2, "initial": "1 s"}},
    "text": {"agent": "inventory", "call": {"text": "{{input.id}} of {{run.key}}"}},
    "form": {"agent": "inventory", "call": {"form": {"a": "{{input.id}}"}}, "expect": "$.output.body.ok == true"},
    "less": {"agent": "inventory", "call": {}},
    "bad":  {"agent": "inventory", "call": {"path": "/{{input.dots}}", "headers": {"a": "{{input.missing}}"}}},
    "dots": {"agent": "inventory", "call": {"path": "/{{input.dots}}", "body": "{{input.id}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('shapes', '{"id": "a/b", "path": "/p?q=1", "list": [1, {"b": 2}], "dots": ".."}', key => 'k', labels => '{"a": "b"}');
CREATE TABLE t.both AS
SELECT w.way AND b.plain AS way, c.* FROM _sas.claim_ready(ARRAY(SELECT agent_id FROM _sas.agent WHERE name = 'inventory'), '{100}', 1, 1, 'w') b
CROSS JOIN (VALUES (true), (false)) AS w (way) CROSS JOIN LATERAL _sas.calls_wanted(b.lease_id, b.claimed, w.way AND b.plain) c;
SELECT step, replace(coalesce(request, problem)::text, idempotency_key, 'its key') AS sent, policy FROM t.both WHERE way ORDER BY step;
SELECT count(*) AS ways, count(DISTINCT way) AS both FROM t.both;
SELECT count(*) AS different FROM (SELECT (to_jsonb(b) - 'way') AS told FROM t.both b GROUP BY 1 HAVING count(*) <> 2) x;
-- what an operator has put in the place of a step's own is found by those that are plain, too
INSERT INTO _sas.override (run_id, step_no, element, key, input) SELECT run_id, step_no, 0, 'other', '"mine"' FROM t.both WHERE way AND step = 'body';
SELECT b.step, c.idempotency_key = b.idempotency_key AS same_key, c.request - 'body' = b.request - 'body' AS same_rest, c.request -> 'body' AS body
FROM t.both b CROSS JOIN _sas.run r
CROSS JOIN LATERAL _sas.calls_wanted(1, ARRAY[ROW(b.run_id, b.step_no, 0, false, false, r.version_id, b.agent_id, 'none', 0, '1 min', b.request_id, now(), now())::_sas.claimed], true) c
WHERE b.way AND b.step IN ('body', 'text') ORDER BY 1;
DELETE FROM _sas.override;
DROP TABLE t.both;

-- functions: the same; and undos, which are given here as if they were claimed
SELECT t.clean() \g /dev/null
SELECT t.workflow('function_shapes', '{
    "less": {"function": "t.echo", "undo": {"function": "t.echo"}},
    "whole": {"function": "t.echo", "input": "{{input}}", "undo": {"function": "t.echo", "input": {"mine": "{{key}}"}}},
    "parts": {"function": "t.echo", "input": {"run": "{{run}}", "key": "{{key}}", "list": "{{input.list[*]}}", "none": "{{input.none?}}", "label": "{{run.labels.a}}", "as": "\\{{ {{input.id}}"}, "complete_in": "7 s"},
    "null": {"function": "t.echo", "input": null},
    "judged": {"function": "t.echo", "expect": "$.output.id == \"a/b\"", "retry": {"max_attempts": 2, "initial": "1 s"}},
    "kept": {"function": "t.echo", "input": 7, "output": "{{output}}"},
    "bad": {"function": "t.echo", "input": "{{input.missing}}"},
    "many": {"function": "t.echo", "input": 1, "undo": {"function": "t.echo", "input": "{{input.id}}"}}}'::jsonb
    || (SELECT jsonb_object_agg('s' || g, '{"wait": {"for": "1 s"}, "after": ["many"]}'::jsonb) FROM generate_series(1, 201) g)) \g /dev/null
SELECT run_id FROM sas.submit('function_shapes', '{"id": "a/b", "list": [1, {"b": 2}]}', key => 'k', labels => '{"a": "b"}');
CREATE TABLE t.both AS
SELECT w.way AND b.plain AS way, c.* FROM _sas.claim_ready('{0}', '{100}', 1, 1, 'w') b
CROSS JOIN (VALUES (true), (false)) AS w (way) CROSS JOIN LATERAL _sas.functions_wanted(b.lease_id, b.claimed, w.way AND b.plain) c;
INSERT INTO t.both
SELECT w.way, c.* FROM (SELECT array_agg(ROW(r.run_id, x.step_no, 0, true, false, r.version_id, 0, 'succeeded', 1, '1 min', '00000000-0000-0000-0000-000000000001', sas.now(), sas.now())::_sas.claimed ORDER BY x.step_no) AS claimed
                        FROM _sas.run r JOIN _sas.workflow_step x USING (version_id) WHERE x.undo) b
CROSS JOIN (VALUES (true), (false)) AS w (way) CROSS JOIN LATERAL _sas.functions_wanted(1, b.claimed, w.way) c;
SELECT step, undo, alone, replace(coalesce(b.input, problem)::text, _sas.step_key(r.trace, step, 0, undo), 'its key') AS given, retry, judges, window_ms
FROM t.both b JOIN _sas.run r USING (run_id) WHERE way ORDER BY step, undo;
SELECT count(*) AS ways, count(DISTINCT way) AS both FROM t.both;
SELECT count(*) AS different FROM (SELECT (to_jsonb(b) - 'way') AS told FROM t.both b GROUP BY 1 HAVING count(*) <> 2) x;
-- a key or an input that an operator has set is found by those that are plain, too
INSERT INTO _sas.override (run_id, step_no, element, key, input) SELECT run_id, step_no, 0, 'other', '"mine"' FROM t.both WHERE way AND step = 'parts';
SELECT b.step, c.input = b.input AS same_input, c.input
FROM t.both b CROSS JOIN _sas.run r
CROSS JOIN LATERAL _sas.functions_wanted(1, ARRAY[ROW(b.run_id, b.step_no, 0, false, false, r.version_id, 0, 'none', 0, '1 min', b.request_id, now(), now())::_sas.claimed], true) c
WHERE b.way AND b.step IN ('parts', 'kept') ORDER BY 1;
DELETE FROM _sas.override;
DROP TABLE t.both;

-- a function that is to run alone ends the batch before it; calls run in no worker, and go together
SELECT t.clean() \g /dev/null
SELECT t.workflow('sides', '{"a": {"agent": "inventory", "call": {}}, "b": {"function": "t.echo"}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('sides', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 6)));
UPDATE _sas.ready SET alone = true WHERE run_id IN (3, 4);
CREATE FUNCTION t.sides() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c.step || c.run_id, ' ' ORDER BY c.step, c.run_id)
    FROM (SELECT c.step, c.run_id FROM _sas.claim_calls(ARRAY(SELECT agent_id FROM _sas.agent WHERE name = 'inventory'), '{10}', 1, 1, 'w') c
          UNION ALL SELECT f.step, f.run_id FROM _sas.claim_functions(10, 1, 1, 'w') f) c
$$;
SELECT t.sides();
SELECT t.sides();
SELECT t.sides();
SELECT t.sides();
SELECT t.sides();
DROP FUNCTION t.sides();
