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
FROM sas._claim_calls(ARRAY(SELECT agent_id FROM sas.agent WHERE name IN ('inventory', 'payments') ORDER BY name), '{0,1}', 1, 1, 'w') c JOIN sas.agent a USING (agent_id);
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
