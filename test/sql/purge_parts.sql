-- SPDX-License-Identifier: PostgreSQL
--
-- Old runs with very many steps are purged at once, but the rows of their steps are deleted some thousands at a time,
-- so that the supervisor has time for others in between.
SELECT t.clean() \g /dev/null
SELECT t.workflow('wide', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "concurrency": 1}}') \g /dev/null
SELECT t.workflow('small', '{"a": {"agent": "inventory", "call": {}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('small', array_fill('{}'::jsonb, '{20}'));
SELECT count(*) FROM sas.submit_batch('wide', array_fill(jsonb_build_object('items', (SELECT jsonb_agg(true) FROM generate_series(1, 8000))), '{4}'));
SELECT t.settle(), t.settle(), t.settle() \g /dev/null
SELECT count(*) FROM _sas.item;
SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs)) \g /dev/null
SELECT t.work() \g /dev/null
SELECT count(*) FROM sas.runs WHERE state <> 'stopped';
SELECT t.later('400 days') \g /dev/null
-- t.purges(): what the ticks of a purge leave, and whether there is more at once
CREATE FUNCTION t.purges() RETURNS TABLE (runs bigint, items bigint, rests bigint, goes_on boolean) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        goes_on := (SELECT coalesce(k.next_due <= sas.now(), false) FROM _sas.purge_tick(500) k);
        SELECT (SELECT count(*) FROM _sas.run), (SELECT count(*) FROM _sas.item), (SELECT count(*) FROM _sas.purged_run) INTO runs, items, rests;
        RETURN NEXT;
        EXIT WHEN NOT goes_on;
    END LOOP;
END $$;
SELECT * FROM t.purges();
SELECT (SELECT count(*) FROM _sas.step) AS steps, (SELECT count(*) FROM _sas.map_progress) AS maps, (SELECT count(*) FROM _sas.attempt) AS attempts;
SELECT * FROM t.left_over();
-- by hand all is deleted at once
SELECT count(*) FROM sas.submit_batch('wide', array_fill(jsonb_build_object('items', (SELECT jsonb_agg(true) FROM generate_series(1, 8000))), '{2}'));
SELECT t.settle() \g /dev/null
SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT run_id FROM sas.runs)) \g /dev/null
SELECT t.work() \g /dev/null
SELECT runs FROM sas.purge('0');
SELECT (SELECT count(*) FROM _sas.item) AS items, (SELECT count(*) FROM _sas.purged_run) AS rests;
-- many runs with few steps are taken together
INSERT INTO _sas.purged_run SELECT generate_series(1, 2500);
BEGIN;
SELECT seq_scan AS before FROM pg_stat_xact_user_tables WHERE relid = '_sas.purged_run'::regclass \gset
SELECT _sas.purge_rest(5000) AS rows;
SELECT seq_scan - :before < 20 AS few_scans FROM pg_stat_xact_user_tables WHERE relid = '_sas.purged_run'::regclass;
COMMIT;
SELECT count(*) FROM _sas.purged_run;
