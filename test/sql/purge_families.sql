-- SPDX-License-Identifier: PostgreSQL
--
-- A run with very many child runs is purged in parts, so that the supervisor has time for others in between: the run
-- itself first, then some thousands of its child runs at a time, and theirs. What cannot go is tried again later.
SELECT t.clean() \g /dev/null
-- a hundredth of what they are
CREATE OR REPLACE FUNCTION _sas.purged_family() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 50';
CREATE OR REPLACE FUNCTION _sas.purged_rows() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 100';
SELECT t.workflow('leaf', '{}') \g /dev/null
SELECT t.workflow('small', '{"m": {"workflow": "leaf", "each": "{{input.items}}", "input": {}}}') \g /dev/null
SELECT t.workflow('branch', '{"m": {"workflow": "leaf", "each": "{{input.items}}", "concurrency": 10000, "input": {}}}', '{"hooks": [{"on": "success", "notify": "ends"}]}') \g /dev/null
SELECT t.workflow('tree', '{"m": {"workflow": "branch", "each": "{{input.lists}}", "input": {"items": "{{item}}"}}}') \g /dev/null
CREATE FUNCTION t.items(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_agg(true) FROM generate_series(1, n) $$;
-- t.purge_all(): what the ticks of a purge leave, and whether there is more at once
CREATE FUNCTION t.purge_all() RETURNS TABLE (roots bigint, runs bigint, steps bigint, rests bigint, goes_on boolean) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        goes_on := (SELECT coalesce(k.next_due <= sas.now(), false) FROM _sas.purge_tick(500) k);
        SELECT count(*) FILTER (WHERE r.parent_run_id IS NULL AND r.hook_of IS NULL), count(*) INTO roots, runs FROM _sas.run r;
        SELECT (SELECT count(*) FROM _sas.step), (SELECT count(*) FROM _sas.purged_run) INTO steps, rests;
        RETURN NEXT;
        EXIT WHEN NOT goes_on;
    END LOOP;
END $$;
SELECT count(*) FROM sas.submit_batch('small', array_fill(jsonb_build_object('items', t.items(4)), '{20}'));
SELECT t.settle() \g /dev/null
SELECT t.later('1 s') \g /dev/null
SELECT run_id AS tree FROM sas.submit('tree', jsonb_build_object('lists', jsonb_build_array(t.items(70), t.items(40))), key => 'big') \gset
SELECT t.work() \g /dev/null
SELECT result, count(*) FROM _sas.run GROUP BY result;
SELECT t.later('400 days') \g /dev/null
SELECT * FROM t.purge_all();
SELECT * FROM t.left_over();
SELECT (SELECT count(*) FROM _sas.run_key) AS keys, (SELECT count(*) FROM _sas.finished_run) AS ended, (SELECT count(*) FROM _sas.item) AS items, (SELECT count(*) FROM _sas.map_progress) AS maps;

-- one is open again when the first part of its family has gone, another one is awaited
-- (which no verb does: it is no change of state for the file "coverage")
ALTER TABLE _sas.run DISABLE TRIGGER see;
SELECT run_id AS tree FROM sas.submit('tree', jsonb_build_object('lists', jsonb_build_array(t.items(70)))) \gset
SELECT t.work() \g /dev/null
SELECT t.later('400 days') \g /dev/null
SELECT worked FROM _sas.purge_tick(500);
SELECT count(*) FROM sas.runs WHERE run_id = :tree;
SELECT max(run_id) AS leaf, min(run_id) AS other FROM sas.runs WHERE workflow = 'leaf' \gset
UPDATE _sas.run SET state = 'running' WHERE run_id = :leaf;
SELECT run_id AS follower FROM sas.submit('leaf', after_run => :other, start_at => sas.now() + interval '5 min') \gset
SELECT * FROM t.purge_all();
SELECT workflow, count(*) FROM sas.runs GROUP BY workflow;
UPDATE _sas.run SET state = 'stopped' WHERE run_id = :leaf;
SELECT t.later('10 min') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT * FROM t.purge_all();
SELECT workflow, count(*) FROM sas.runs GROUP BY workflow;

-- one that is open keeps the whole family
SELECT t.clean() \g /dev/null
SELECT run_id AS tree FROM sas.submit('tree', jsonb_build_object('lists', jsonb_build_array(t.items(70)))) \gset
SELECT t.work() \g /dev/null
SELECT max(run_id) AS leaf FROM sas.runs WHERE workflow = 'leaf' \gset
UPDATE _sas.run SET state = 'running' WHERE run_id = :leaf;
SELECT t.later('400 days') \g /dev/null
SELECT * FROM t.purge_all();
UPDATE _sas.run SET state = 'stopped' WHERE run_id = :leaf;
SELECT t.later('10 min') \g /dev/null
SELECT * FROM t.purge_all();
ALTER TABLE _sas.run ENABLE TRIGGER see;
CREATE OR REPLACE FUNCTION _sas.purged_family() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 5000 $$;
CREATE OR REPLACE FUNCTION _sas.purged_rows() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 10000 $$;
