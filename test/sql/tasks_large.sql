-- SPDX-License-Identifier: PostgreSQL
--
-- Inputs of tasks are so large that one claim would return very much: it builds those of each role up to 16 MB, and
-- gives the others back.
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('large_tasks', kind => 'external', max_in_flight => 100) \g /dev/null
SELECT t.workflow('large_task', '{"t": {"agent": "large_tasks", "task": {}, "input": {"a": "{{input}}", "b": "{{input}}", "c": "{{input}}"}}}') \g /dev/null
CREATE ROLE tasks_other;
SELECT sas.grant_usage('tasks_other', 'user'), sas.grant_agent('large_tasks', 'tasks_other'), sas.grant_workflow('large_task', 'tasks_other') \g /dev/null
SELECT count(*) FROM sas.submit_batch('large_task', array_fill(jsonb_build_object('d', repeat('x', 1000000)), '{20}'));
SET ROLE tasks_other;
SELECT count(*) FROM sas.submit_batch('large_task', array_fill('{"d": 1}'::jsonb, '{3}'));
RESET ROLE;
CREATE FUNCTION t.claims() RETURNS TABLE (large bigint, small bigint) LANGUAGE sql AS $$
    SELECT count(*) FILTER (WHERE length(request::text) > 1000), count(*) FILTER (WHERE length(request::text) < 1000)
    FROM sas.claim('large_tasks', 'w', 50)
$$;
SELECT large BETWEEN 5 AND 7 AS some_large, small FROM t.claims();
SELECT large BETWEEN 5 AND 7 AS some_large, small FROM t.claims();
SELECT state, count(*) BETWEEN 5 AND 20 AS several FROM sas.steps GROUP BY state ORDER BY state;
DROP FUNCTION t.claims();
SELECT t.clean() \g /dev/null
