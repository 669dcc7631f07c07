-- SPDX-License-Identifier: PostgreSQL
--
-- Owners with ready steps take turns within a lane: what one role has submitted delays nobody else.
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('inventory', 'http://127.0.0.1:9/') \g /dev/null
SELECT sas.create_agent('packer', kind => 'external', max_in_flight => 10) \g /dev/null
SELECT sas.create_queue('shared', 4) \g /dev/null
SELECT t.workflow('turn_call', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT t.workflow('turn_task', '{"a": {"agent": "packer", "task": {}}}') \g /dev/null
SELECT t.workflow('turn_function', '{"a": {"function": "t.echo"}}') \g /dev/null
SELECT t.workflow('turn_queue', '{"a": {"function": "t.echo", "queue": "shared"}}') \g /dev/null
CREATE ROLE sas_test_turn_a;
CREATE ROLE sas_test_turn_b;
CREATE ROLE sas_test_turn_c;
SELECT sas.grant_usage(r::regrole, 'user'), t.allow(r::regrole) FROM unnest('{sas_test_turn_a,sas_test_turn_b,sas_test_turn_c}'::text[]) r \g /dev/null
GRANT USAGE ON SCHEMA t TO sas_test_turn_a, sas_test_turn_b, sas_test_turn_c;
-- t.flood(owner, workflow, n): so many runs of that role, submitted together
CREATE FUNCTION t.flood(owner text, workflow text, n int, priority int DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('role', 'sas_test_turn_' || owner, true);
    SELECT count(*) INTO made FROM sas.submit_batch(workflow, ARRAY(SELECT '{}'::jsonb FROM generate_series(1, n)), priority => priority);
    PERFORM set_config('role', 'none', true);
    RETURN made;
END $$;
-- t.batch(how, n): the owners of the next batch of that kind, and how much of it is theirs
CREATE FUNCTION t.batch(how text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    CASE how
        WHEN 'call' THEN SELECT array_agg(c.run_id) INTO ids FROM _sas.claim_calls(ARRAY(SELECT agent_id FROM _sas.agent WHERE name = 'inventory'), ARRAY[n], 1, 1, 'w') c;
        WHEN 'task' THEN SELECT array_agg(c.run_id) INTO ids FROM sas.claim('packer', 'w', n) c;
        WHEN 'function' THEN SELECT array_agg(c.run_id) INTO ids FROM _sas.claim_functions(n, 1, 1, 'w') c;
        WHEN 'urgent' THEN SELECT array_agg(c.run_id) INTO ids FROM _sas.claim_functions(n, 1, 1, 'w', urgent => true) c;
    END CASE;
    RETURN (SELECT string_agg(right(x.owner, 1) || ' ' || x.n, ', ' ORDER BY x.owner) FROM (SELECT r.owner::text, count(*) AS n FROM _sas.run r WHERE r.run_id = ANY (ids) GROUP BY 1) x);
END $$;

\echo one run beside a thousand of another role is in the next batch
SELECT t.flood('a', 'turn_function', 1000), t.flood('b', 'turn_function', 1);
SELECT t.batch('function', 100);
SELECT t.flood('b', 'turn_function', 1);
SELECT t.batch('function', 100);
\echo whoever is alone has all of it
SELECT t.batch('function', 100);
\echo also where the other role submitted first, with a higher priority
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_call', 100, priority => 1000), t.flood('b', 'turn_call', 2), t.flood('c', 'turn_call', 100);
SELECT t.batch('call', 12);
SELECT t.batch('call', 12);
SELECT t.batch('call', 12);
\echo with more owners than steps to take, those come first that have waited
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_call', 100), t.flood('b', 'turn_call', 3), t.flood('c', 'turn_call', 3);
SELECT n, string_agg(x.b, ' ' ORDER BY x.b) FROM (SELECT g AS n, t.batch('call', 1) AS b FROM generate_series(1, 3) g, generate_series(1, 3) OFFSET 0) x GROUP BY n ORDER BY n;
\echo priority orders the work of one owner
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_function', 100), t.flood('b', 'turn_function', 100), t.flood('a', 'turn_function', 3, priority => 5);
SELECT t.batch('urgent', 50);
SELECT count(*) AS of_high_priority FROM _sas.step s JOIN _sas.run r USING (run_id) WHERE r.priority = 5;
\echo tasks of an outside agent, and places in a queue
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_task', 50), t.flood('b', 'turn_task', 1);
SELECT t.batch('task', 6);
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_queue', 50), t.flood('b', 'turn_queue', 1);
SELECT t.schedule() \g /dev/null
SELECT t.batch('function', 10);

\echo a new owner is found between those that this session knows, and nobody is passed by while there are many
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_call', 5), t.flood('c', 'turn_call', 5);
SELECT t.batch('call', 2);
SELECT t.flood('b', 'turn_call', 5);
SELECT t.batch('call', 3);
SELECT count(t.batch('call', 100)) FROM generate_series(1, 3);
SELECT count(*) AS left_over FROM _sas.ready;
CREATE FUNCTION t.many() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    claims int := 0;
BEGIN
    -- owners that were dropped since
    UPDATE _sas.ready q SET owner = (100000 + q.run_id)::oid::regrole;
    WHILE EXISTS (SELECT FROM _sas.ready) LOOP
        PERFORM t.batch('call', 40);
        claims := claims + 1;
    END LOOP;
    RETURN claims;
END $$;
SELECT t.clean() \g /dev/null
SELECT t.flood('a', 'turn_call', 600);
SELECT t.many() < 600 AS together;

SELECT t.clean() \g /dev/null
DROP FUNCTION t.flood, t.batch, t.many;
SELECT sas.drop_workflow(w) FROM unnest('{turn_call,turn_task,turn_function,turn_queue}'::text[]) w \g /dev/null
SELECT sas.drop_queue('shared') \g /dev/null
SELECT sas.drop_agent('packer') \g /dev/null
DROP OWNED BY sas_test_turn_a, sas_test_turn_b, sas_test_turn_c;
DROP ROLE sas_test_turn_a, sas_test_turn_b, sas_test_turn_c;
