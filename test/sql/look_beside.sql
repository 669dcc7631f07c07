-- SPDX-License-Identifier: PostgreSQL
--
-- A role that looks at its own open runs does not wait for the open runs of others: what its statements read does not
-- grow with these.
SELECT t.clean() \g /dev/null
CREATE ROLE lone; CREATE ROLE crowd;
SELECT sas.grant_usage('lone', 'user'), sas.grant_usage('crowd', 'user') \g /dev/null
SELECT t.workflow('crowded', '{"a": {"wait": {"signal": "go"}}}'), sas.grant_workflow('crowded', 'lone'), sas.grant_workflow('crowded', 'crowd') \g /dev/null
SELECT t.workflow('crowded_ended', '{}'), sas.grant_workflow('crowded_ended', 'lone') \g /dev/null
SET ROLE lone;
SELECT count(*) FROM sas.submit_batch('crowded_ended', array_fill('{}'::jsonb, '{3000}'));
SELECT run_id AS timed FROM sas.submit('crowded') \gset
-- t.beside_reads(query): how many pages it reads, as its caller
RESET ROLE;
CREATE FUNCTION t.beside_reads(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, FORMAT JSON) ' || query INTO plan;
    RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::bigint + (plan #>> '{0,Plan,Shared Read Blocks}')::bigint;
END $$;
GRANT USAGE ON SCHEMA t TO lone, crowd;
SET ROLE crowd;
SELECT count(*) FROM sas.submit_batch('crowded', array_fill('{}'::jsonb, '{21000}'));
RESET ROLE;
SELECT t.settle() \g /dev/null
SELECT sum(open_runs) > 20000 AS many_are_open FROM _sas.quotas();
-- as the supervisor has left it
SELECT _sas.write_timers(ARRAY(SELECT run_id FROM _sas.run WHERE state <> 'stopped')) \g /dev/null
INSERT INTO _sas.deadline_sweep (upto, next_upto) SELECT max(run_id) + 1, max(run_id) + 1 FROM _sas.run;
SET ROLE lone;
-- too young for the sweep
SELECT run_id AS young FROM sas.submit('crowded') \gset
RESET ROLE;
SELECT t.settle() \g /dev/null
VACUUM ANALYZE _sas.run, _sas.step, _sas.message;
SET ROLE lone;
\echo it sees its open runs
SELECT array_agg(run_id ORDER BY run_id) = ARRAY[:timed, :young]::bigint[] AS its_own FROM sas.runs WHERE state <> 'stopped';
SELECT array_agg(run_id ORDER BY run_id) = ARRAY[:timed, :young]::bigint[] AS its_own FROM sas.find_runs('{"state": ["pending", "running"]}', 10);
SELECT waiting_kind, waiting_on, runs, steps FROM sas.explain();
SELECT version, open_runs FROM sas.versions WHERE workflow = 'crowded';
\echo and reads few pages for that
SELECT q.query, r.pages < q.few AS few, CASE WHEN r.pages >= q.few THEN r.pages END AS many
FROM (VALUES ('SELECT * FROM sas.explain()', 600), ('SELECT * FROM sas.runs WHERE state <> ''stopped'' ORDER BY run_id DESC LIMIT 20', 600),
    ('SELECT * FROM sas.versions', 600), ('SELECT * FROM sas.find_runs(''{"state": "paused"}'')', 2000)) AS q (query, few)
CROSS JOIN LATERAL (SELECT t.beside_reads(q.query) AS pages) r;
RESET ROLE;
\echo and no message of others
BEGIN;
SELECT seq_tup_read + idx_tup_fetch AS before FROM pg_stat_xact_user_tables WHERE relid = '_sas.message'::regclass \gset
SET LOCAL ROLE lone;
SELECT count(*) FROM sas.explain();
RESET ROLE;
SELECT seq_tup_read + idx_tup_fetch - :before < 100 AS few_messages_were_read FROM pg_stat_xact_user_tables WHERE relid = '_sas.message'::regclass;
ROLLBACK;
\echo what others have let pass, and what an alert names
UPDATE _sas.run SET overdue = true WHERE run_id IN (:timed, :young) OR owner = 'crowd'::regrole AND run_id % 2 = 0;
DELETE FROM _sas.message WHERE run_id = :timed;
SET ROLE lone;
SELECT array_agg(run_id ORDER BY run_id) = ARRAY[:timed, :young]::bigint[] AS its_own FROM sas.runs WHERE state <> 'stopped';
RESET ROLE;
UPDATE _sas.run SET overdue = NULL WHERE run_id = :timed;
SELECT _sas.raise_run_alert('stuck', 'test of ' || :timed, 'it is stuck', NULL, NULL, :timed, NULL) \g /dev/null
SET ROLE lone;
SELECT array_agg(run_id ORDER BY run_id) = ARRAY[:timed, :young]::bigint[] AS its_own FROM sas.runs WHERE state <> 'stopped';
RESET ROLE;
\echo a role that passes by row security sees all runs, also where it asks for the open ones
ALTER ROLE lone BYPASSRLS;
SET ROLE lone;
SELECT count(*) FILTER (WHERE state <> 'stopped') AS open FROM sas.runs \gset
SELECT count(*) = :open AND count(*) > 20000 AS sees_all FROM sas.runs WHERE state <> 'stopped';
RESET ROLE;
SELECT t.clean() \g /dev/null
DROP FUNCTION t.beside_reads;
DROP OWNED BY lone, crowd; DROP ROLE lone; DROP ROLE crowd;
