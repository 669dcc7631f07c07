-- SPDX-License-Identifier: PostgreSQL
--
-- The views over all nodes, on a server alone: a query may leave them before it has read all rows.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
BEGIN;
SELECT no_plan();
SELECT sas.create_workflow('cluster_views', '{"steps": {"a": {"wait": {"signal": "go"}}, "b": {"wait": {"signal": "go"}}}}') \g /dev/null
SELECT count(*) FROM generate_series(1, 3), LATERAL sas.submit('cluster_views', '{}', key => generate_series::text) \g /dev/null
COMMIT;

CREATE FUNCTION pg_temp.number(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (%s) x', query) INTO n;
    RETURN n;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
SELECT is(pg_temp.number(format('SELECT FROM sas.%s LIMIT 2', v)), '2', format('%s: as many rows as a query asks for', v))
FROM unnest('{cluster_runs,cluster_steps}'::text[]) v;
SELECT lives_ok('SELECT run_id FROM sas.cluster_runs LIMIT 1', 'a query that asks for one row');
SELECT ok(EXISTS (SELECT FROM sas.cluster_runs), 'a query that asks whether there is one');
SELECT is((SELECT count(*) FROM (VALUES (1), (2)) x (n), LATERAL (SELECT FROM sas.cluster_steps s WHERE s.run_id > x.n LIMIT 1) y), 2::bigint, 'one that reads them twice');
SELECT lives_ok($$DO 'BEGIN FOR i IN 1 .. 2 LOOP PERFORM FROM sas.cluster_runs LIMIT 1; END LOOP; END'$$, 'and in a function');

BEGIN;
DECLARE early CURSOR FOR SELECT count(*) OVER () > 0 FROM sas.cluster_runs LIMIT 2;
FETCH early \g /dev/null
CLOSE early;
DECLARE kept CURSOR WITH HOLD FOR SELECT run_id FROM sas.cluster_runs;
FETCH kept \g /dev/null
COMMIT;
SELECT is((SELECT count(*) FROM pg_cursors WHERE name ~ '^sas_'), 0::bigint, 'no cursor of them is left');
MOVE ALL kept;
SELECT pass('a cursor that outlives its transaction reads on');

SELECT * FROM finish();
