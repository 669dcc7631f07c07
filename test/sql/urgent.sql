-- SPDX-License-Identifier: PostgreSQL
--
-- A function worker claims what is urgent without the bulk behind it: the
-- batch ends where the priority drops among its first 20 steps.
SELECT t.clean() \g /dev/null
SELECT t.workflow('bulk', '{"a": {"function": "t.echo"}}') \g /dev/null
-- runs of these priorities, a second apart: for each priority how many
CREATE FUNCTION t.bring(priorities int[]) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM unnest(priorities) WITH ORDINALITY AS p (priority, n)
    CROSS JOIN LATERAL (SELECT t.later('1 s') OFFSET 0) l
    CROSS JOIN LATERAL sas.submit('bulk', priority => p.priority)
$$;
-- what a claim takes: how many of which priority, the highest first
CREATE FUNCTION t.grab(quantity int, urgent boolean DEFAULT true) RETURNS text LANGUAGE sql AS $$
    WITH c AS (SELECT * FROM _sas.claim_functions(quantity, 1, t.worker('w'), 'w', urgent => grab.urgent)),
    runs AS (SELECT r.priority, count(*) AS n FROM c JOIN _sas.run r USING (run_id) GROUP BY 1)
    SELECT coalesce(string_agg(n || ' of ' || priority, ', ' ORDER BY priority DESC), 'nothing') FROM runs
$$;
-- one that is urgent goes before the bulk; whoever does not ask takes both
SELECT t.bring(array_fill(0, ARRAY[60]) || 5) AS came;
SELECT t.grab(30) AS first, t.grab(30) AS then;
SELECT t.bring('{5}') AS came;
SELECT t.grab(100, urgent => false) AS both;
SELECT t.clean() \g /dev/null
-- several kinds of urgent ones go together; the bulk does not
SELECT t.bring(array_fill(0, ARRAY[60]) || '{7, 5, 9, 5}') AS came;
SELECT t.grab(100) AS first, t.grab(100) AS then;
SELECT t.clean() \g /dev/null
-- many that are urgent are a batch like others
SELECT t.bring(array_fill(0, ARRAY[40]) || array_fill(3, ARRAY[40])) AS came;
SELECT t.grab(100) AS all;
SELECT t.clean() \g /dev/null
-- of priorities that alternate, because the lower ones have waited for longer, no batch is made of one or two
SELECT _sas.priority_step() = '1 hour' AS step;
SELECT count(*) FROM generate_series(1, 60) n
CROSS JOIN LATERAL (SELECT t.later(CASE WHEN n % 2 = 0 THEN interval '59 min 59 s' ELSE interval '-59 min' END) OFFSET 0) l
CROSS JOIN LATERAL sas.submit('bulk', priority => 1 - n % 2);
SELECT t.later('1 day') \g /dev/null
SELECT t.grab(100) AS first, t.grab(100) AS then;
SELECT t.clean() \g /dev/null
-- small claims stay as they are
SELECT t.bring(array_fill(0, ARRAY[60]) || 5) AS came;
SELECT t.grab(20) AS twenty;
DROP FUNCTION t.bring(int[]), t.grab(int, boolean);
