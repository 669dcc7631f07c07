-- SPDX-License-Identifier: PostgreSQL
--
-- A map of child runs with concurrency keys: a child that waits for its key takes no place of the map, and one
-- whose key is free begins only if the map has room.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE VIEW t.children AS SELECT run_id, coalesce(input ->> 'key', '-') AS key, state, result FROM sas.runs ORDER BY 1;
CREATE FUNCTION t.keys_of_children() RETURNS TABLE (run_id bigint, key text, state text, told boolean) LANGUAGE sql AS $$
    SELECT p.run_id, p.key, p.state, p.told FROM _sas.concurrency_slot p ORDER BY 1 $$;
SELECT t.workflow('leaf', '{"a": {"wait": {"signal": "go", "timeout": "2 days"}}}', '{"concurrency": {"key": "{{input.key}}"}}') \g /dev/null
SELECT t.workflow('all', '{"m": {"workflow": "leaf", "input": {"key": "{{item}}"}, "each": "{{input.items}}", "concurrency": 2}}') \g /dev/null
\echo a run holds key a: its child waits, and the map begins two others
SELECT run_id FROM sas.submit('leaf', '{"key": "a"}');
SELECT t.settle() \g /dev/null
SELECT run_id FROM sas.submit('all', '{"items": ["a", "b", "c", "d", "e"]}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
\echo key a is free: the map has no room, and a run behind the child takes the key
SELECT run_id FROM sas.submit('leaf', '{"key": "a"}');
SELECT t.settle() \g /dev/null
SELECT FROM sas.signal(1, 'go');
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
\echo it ends, and nobody takes the key
SELECT FROM sas.signal((SELECT max(run_id) FROM sas.runs), 'go');
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
SELECT * FROM t.keys_of_children();
SELECT waiting_kind, waiting_on FROM sas.steps WHERE run_id = 3 AND step = 'a';
\echo a child ends: the one with key a is next, before the rest of the map
SELECT FROM sas.signal(4, 'go');
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
\echo one after the other, all end
SELECT FROM sas.signal(3, 'go');
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
SELECT count(sas.signal(run_id, 'go')) FROM sas.runs WHERE state <> 'stopped' AND run_id <> 2;
SELECT t.settle() \g /dev/null
SELECT count(sas.signal(run_id, 'go')) FROM sas.runs WHERE state <> 'stopped' AND run_id <> 2;
SELECT t.settle() \g /dev/null
SELECT * FROM t.children;
SELECT * FROM t.left_over();
\echo many children of one key and of others, several maps: no map ever runs more than its limit, and all end
SELECT t.clean() \g /dev/null
SELECT t.workflow('leaf', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "{{input.key}}"}}') \g /dev/null
SELECT t.workflow('all', '{"m": {"workflow": "leaf", "input": {"key": "{{item}}"}, "each": "{{input.items}}", "concurrency": 3}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('all', ARRAY(SELECT jsonb_build_object('items', (SELECT jsonb_agg((g * n) % (3 + n)) FROM generate_series(1, 30) g)) FROM generate_series(1, 4) n));
CREATE PROCEDURE t.end_one_by_one(OUT most int, OUT most_of_key int) LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    most := 0; most_of_key := 0;
    LOOP
        PERFORM t.settle();
        SELECT coalesce(max(c.n), 0) AS n, coalesce(max(c.of_key), 0) AS of_key INTO f
        FROM (SELECT count(*) OVER (PARTITION BY r.parent_run_id) AS n, count(*) OVER (PARTITION BY r.input ->> 'key') AS of_key
              FROM _sas.run r WHERE r.parent_run_id IS NOT NULL AND r.state NOT IN ('scheduled', 'stopped')) c;
        EXIT WHEN f.n = 0;
        most := greatest(most, f.n);
        most_of_key := greatest(most_of_key, f.of_key);
        -- one of those that run ends
        PERFORM _sas.write_replies(ARRAY[ROW(c.run_id, c.step_no, c.element, c.request_id, 'done', 1, '{}', NULL, false, NULL, NULL)::_sas.call_reply], ARRAY[c.lease_id])
        FROM _sas.claim_calls(ARRAY(SELECT a.agent_id FROM _sas.agent a WHERE a.name = 'inventory'), ARRAY[1], 1, t.worker('w'), 'w') c;
        COMMIT;
    END LOOP;
END $$;
CALL t.end_one_by_one(NULL, NULL);
SELECT state, result, count(*) FROM sas.runs GROUP BY 1, 2;
SELECT * FROM t.left_over();
SELECT count(*) FROM sas.alerts;
