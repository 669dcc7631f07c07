-- SPDX-License-Identifier: PostgreSQL
--
-- Pauses that are written one by one, in place of what computes them.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null

-- recovery: the list says how often, and its pauses are meant as they are written
SELECT t.workflow('listed', '{"charge": {"agent": "payments", "call": {}, "recovery": {"pauses": ["1 s", "10 s", "1 min"]}}}') \g /dev/null
CREATE FUNCTION t.fail_again(step text, n int) RETURNS TABLE (state text, failures int, pause interval, run text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.settle(), t.claim(), t.answer($1, 'transient 503'), t.settle();
    RETURN QUERY SELECT s.state, s.failure_count, s.waiting_until - sas.now(), r.state FROM sas.steps s JOIN sas.runs r USING (run_id)
        WHERE s.run_id = (SELECT max(x.run_id) FROM sas.runs x) AND s.step = $1;
    PERFORM t.later(coalesce((SELECT max(waiting_until) - sas.now() FROM sas.steps), '0'));
END $$;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('listed');
SELECT f.* FROM generate_series(1, 4) n CROSS JOIN LATERAL t.fail_again('charge', n) f;
-- with max_failures beside it the last pause is repeated
SELECT t.workflow('repeats', '{"charge": {"agent": "payments", "call": {}}}', '{"recovery": {"pauses": ["1 s", "10 s"], "max_failures": 5}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('repeats');
SELECT f.* FROM generate_series(1, 5) n CROSS JOIN LATERAL t.fail_again('charge', n) f;
-- what a step says takes the place of what the run says: a list of pauses computed ones, and the other way round
SELECT t.workflow('over', '{"a": {"agent": "payments", "call": {}, "recovery": {"initial": "20 s", "jitter": false}}}', '{"recovery": {"pauses": ["1 s", "10 s"]}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('over');
SELECT f.* FROM generate_series(1, 3) n CROSS JOIN LATERAL t.fail_again('a', n) f;
SELECT t.workflow('over', '{"a": {"agent": "payments", "call": {}, "recovery": {"pauses": ["3 s"]}}}', '{"recovery": {"initial": "20 s", "max_failures": 7}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('over');
SELECT f.* FROM generate_series(1, 2) n CROSS JOIN LATERAL t.fail_again('a', n) f;
-- an included workflow likewise
SELECT t.workflow('outer', '{"x": {"include": "over"}}', '{"recovery": {"max_failures": 3}}') \g /dev/null
SELECT recovery FROM _sas.workflow_step JOIN _sas.workflow_version USING (version_id) JOIN _sas.workflow w USING (workflow_id) WHERE w.name = 'outer' AND step_no = 1;
-- with jitter anything from half of it
SELECT count(DISTINCT p) > 50 AS differ, min(p) >= '5 s' AS at_least_half, max(p) <= '10 s' AS at_most_all
FROM (SELECT _sas.cool_off('{"pauses": ["10 s"], "jitter": true}', 7) AS p FROM generate_series(1, 100)) x;

-- retry: attempts end with the list, or its last pause is repeated; of a step over that of its agent
SELECT _sas.read_retry('{"pauses": ["100 ms", "1 s", "1 min"], "on": [409]}') AS retry;
SELECT _sas.read_retry('{"pauses": ["0 s"], "max_attempts": 9, "jitter": true}') AS retry;
SELECT _sas.merge_pauses('{"pauses": [1], "max_attempts": 2, "jitter": false}', '{"initial_ms": 5}') AS computed, _sas.merge_pauses('{"initial_ms": 5, "max_ms": 6, "backoff": "linear", "max_attempts": 7}', '{"pauses": [1], "max_attempts": 2}') AS listed, _sas.merge_pauses('{"pauses": [1]}', '{"max_attempts": 2}') AS counted, _sas.merge_pauses('{"pauses": [1]}', NULL) AS left;
SELECT sas.create_agent('boxer', kind => 'external', retry => '{"pauses": ["1 s", "5 s"]}') \g /dev/null
SELECT t.workflow('tasks', '{"a": {"agent": "boxer", "task": {}}, "b": {"agent": "boxer", "task": {}, "retry": {"pauses": ["2 s"], "max_attempts": 4}, "after": ["a"]}}', '{"recovery": {"pauses": ["1 h"]}}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('tasks');
CREATE FUNCTION t.fail_task(n int) RETURNS TABLE (step text, attempt int, failures int, pause interval) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.settle();
    PERFORM sas.fail(c.request_id, 'no') FROM sas.claim('boxer', 'w') c;
    PERFORM t.settle();
    RETURN QUERY SELECT s.step, s.attempt, s.failure_count, s.waiting_until - sas.now() FROM sas.steps s WHERE s.waiting_until > sas.now();
    PERFORM t.later(coalesce((SELECT max(waiting_until) - sas.now() FROM sas.steps), '0'));
END $$;
SELECT f.* FROM generate_series(1, 4) n CROSS JOIN LATERAL t.fail_task(n) f;
SELECT t.settle() \g /dev/null
SELECT sas.complete(c.request_id, '{}') FROM sas.claim('boxer', 'w') c;
SELECT f.* FROM generate_series(1, 4) n CROSS JOIN LATERAL t.fail_task(n) f;
DROP FUNCTION t.fail_task, t.fail_again;
SELECT t.clean() \g /dev/null
SELECT sas.drop_workflow('tasks'), sas.drop_agent('boxer') \g /dev/null
