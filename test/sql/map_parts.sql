-- SPDX-License-Identifier: PostgreSQL
--
-- Maps with many elements: a tick writes some of them, and the next one continues. None begins before all are written.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('plain', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 1}}') \g /dev/null
SELECT t.workflow('keyed', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "concurrency": {"limit": 2, "key": "{{item.k?}}"}}}') \g /dev/null
-- t.ticks(): how many ticks there are, and the most elements that one has written
CREATE PROCEDURE t.ticks(OUT ticks int, OUT most bigint) LANGUAGE plpgsql AS $$
BEGIN
    ticks := 0;
    WHILE (SELECT worked FROM _sas.scheduler_tick(100)) > 0 LOOP
        COMMIT;
        ticks := ticks + 1;
    END LOOP;
    SELECT max(n) INTO most FROM (SELECT count(*) AS n FROM _sas.item GROUP BY xmin::text) x;
END $$;
-- t.numbers(): elements, their keys, and whether each has its place among those of its key
CREATE FUNCTION t.numbers() RETURNS TABLE (elements bigint, keys bigint, with_key bigint, in_order boolean, counted boolean) LANGUAGE sql AS $$
    SELECT count(*), count(DISTINCT i.key_no), count(i.key_no),
        bool_and(i.nth = i.should AND i.of_key = 1) FILTER (WHERE i.key_no IS NOT NULL),
        bool_and((SELECT k.n = i.n AND k.key = i.item -> 'k' FROM _sas.map_key k WHERE k.run_id = i.run_id AND k.key_no = i.key_no)) FILTER (WHERE i.key_no IS NOT NULL)
    FROM (SELECT i.*, row_number() OVER w AS should, count(*) OVER (PARTITION BY i.key_no) AS n,
              dense_rank() OVER (PARTITION BY i.item -> 'k' ORDER BY i.key_no) AS of_key
          FROM _sas.item i WINDOW w AS (PARTITION BY i.item -> 'k' ORDER BY i.element)) i
$$;
SELECT run_id FROM sas.submit('plain', jsonb_build_object('items', (SELECT jsonb_agg(n) FROM generate_series(1, 6000) n)));
CALL t.ticks(NULL, NULL);
SELECT count(*), bool_and(item = to_jsonb(element)) AS in_order FROM _sas.item;
SELECT waiting_kind FROM sas.steps WHERE element IS NULL;
SELECT element, state FROM sas.steps WHERE element IS NOT NULL;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', jsonb_build_object('items', (SELECT jsonb_agg(CASE WHEN n % 7 = 0 THEN '{}' ELSE jsonb_build_object('k', CASE WHEN n % 2 = 0 THEN to_jsonb(n / 5) ELSE '"same"' END) END ORDER BY n) FROM generate_series(1, 4000) n)));
CALL t.ticks(NULL, NULL);
SELECT * FROM t.numbers();
SELECT element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1;
-- keys of which none has room are passed by some thousands at a time, too
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', jsonb_build_object('items', (SELECT jsonb_agg('{"k": 1}'::jsonb) FROM generate_series(1, 12000) n)));
SELECT worked FROM generate_series(1, 13) n, LATERAL _sas.scheduler_tick(100 + 0 * n) WHERE worked <> 1;
SELECT fed FROM _sas.map_progress;
SELECT worked FROM _sas.scheduler_tick(100);
SELECT fed FROM _sas.map_progress;
SELECT t.settle() \g /dev/null
SELECT fed FROM _sas.map_progress;
SELECT count(*) FROM _sas.message WHERE actor = 's';

-- three at a time: what is asked of a map in between
CREATE OR REPLACE FUNCTION _sas.most_loaded(slow boolean DEFAULT false) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3';
CREATE FUNCTION t.list(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('items', jsonb_agg(jsonb_build_object('k', g % 2) ORDER BY g)) FROM generate_series(1, n) g $$;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', t.list(7));
SELECT worked FROM _sas.scheduler_tick(100);
SELECT count(*) AS written, (SELECT loaded FROM _sas.map_list) FROM _sas.item;
SELECT step, element, state, waiting_kind FROM sas.steps;
SELECT text FROM sas.explain(1);
-- a pause: it is complete, but nothing begins
SELECT changed FROM sas.pause(1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.numbers();
SELECT count(*) FROM _sas.map_list;
SELECT element, state FROM sas.steps WHERE element IS NOT NULL;
SELECT changed FROM sas.resume(1);
SELECT t.settle() \g /dev/null
SELECT element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1;
SELECT t.work('{"m[2]": "permanent 400", "m[3]": "permanent 400", "m[5]": "permanent 400", "m[6]": "permanent 400", "m[7]": "permanent 400"}') \g /dev/null
SELECT t.brief(1);
-- what has failed is tried again, three at a time
SELECT count(*) FROM sas.retry(1, 'm') WHERE changed;
SELECT worked FROM _sas.scheduler_tick(100);
SELECT loaded, list FROM _sas.map_list;
SELECT remaining, failed FROM _sas.map_progress;
-- one of them is settled meanwhile
SELECT changed, state FROM sas.skip(1, 'm[7]');
SELECT t.settle() \g /dev/null
SELECT element, state FROM sas.steps WHERE element IS NOT NULL ORDER BY 1;
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();
-- a cancel, a skip of the map, and a deadline
SELECT t.clean() \g /dev/null
SELECT t.workflow('late', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}"}}', '{"deadline": "10 s"}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('keyed', ARRAY[t.list(7), t.list(8)]);
SELECT run_id FROM sas.submit('late', t.list(9));
SELECT worked FROM _sas.scheduler_tick(100);
SELECT run_id, loaded FROM _sas.map_list ORDER BY 1;
SELECT changed FROM sas.cancel(1);
SELECT changed, refused IS NOT NULL AS refused FROM sas.skip(2, 'm');
SELECT t.later('11 s'), t.work() \g /dev/null
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT count(*) FROM _sas.map_list;
SELECT * FROM t.left_over();
-- the key of a later one cannot be built: nothing of the map is left
SELECT t.clean() \g /dev/null
SELECT t.workflow('strict', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": {"key": "{{item.k}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('strict', '{"items": [{"k": 1}, {"k": 2}, {"k": 1}, {"k": 1}, {}]}');
SELECT t.work() \g /dev/null
SELECT t.brief(1), (SELECT error ->> 'detail' FROM sas.steps) AS detail;
SELECT (SELECT count(*) FROM _sas.item) AS items, (SELECT count(*) FROM _sas.map_key) AS keys, (SELECT count(*) FROM _sas.map_list) AS lists, (SELECT count(*) FROM _sas.map_progress) AS maps;
-- a run that has gone on with another version of its definition
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('keyed', t.list(7));
SELECT worked FROM _sas.scheduler_tick(100);
SELECT t.workflow('keyed', '{"a": {"agent": "inventory", "call": {}}, "b": {"agent": "inventory", "call": {}}, "m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause_at_end", "recovery": {"max_failures": 1}, "concurrency": {"limit": 2, "key": "{{item.k?}}"}}}') \g /dev/null
SELECT changed FROM sas.set_version(1);
SELECT t.work() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();
CREATE OR REPLACE FUNCTION _sas.most_loaded(slow boolean DEFAULT false) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT CASE WHEN slow THEN 1000 ELSE 2500 END $$;
SELECT t.clean() \g /dev/null
