-- SPDX-License-Identifier: PostgreSQL
--
-- A drop finds out which open runs use an agent, a queue or a workflow. It reads no run that has ended, of which there
-- may be very many.
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('leaving', kind => 'external') \g /dev/null
SELECT sas.create_queue('leaving', 5) \g /dev/null
SELECT t.workflow('leaving', '{"a": {"agent": "leaving", "task": {}, "queue": "leaving"}}') \g /dev/null
SELECT run_id AS open FROM sas.submit('leaving') \gset
SELECT t.workflow('leaving', '{}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('leaving', array_fill('{}'::jsonb, '{100}'));
SELECT t.settle() \g /dev/null
SELECT state, count(*) FROM sas.runs GROUP BY state ORDER BY state;
-- as the supervisor has left it
SELECT _sas.write_timers(ARRAY[:open]::bigint[]) \g /dev/null
INSERT INTO _sas.deadline_sweep (upto, next_upto) SELECT max(run_id) + 1, max(run_id) + 1 FROM _sas.run;
SET enable_seqscan = off;
BEGIN;
SELECT seq_tup_read + idx_tup_fetch AS before FROM pg_stat_xact_user_tables WHERE relid = '_sas.run'::regclass \gset
\set ON_ERROR_ROLLBACK on
SELECT sas.drop_agent('leaving');
SELECT sas.drop_queue('leaving');
SELECT sas.drop_workflow('leaving');
\set ON_ERROR_ROLLBACK off
DELETE FROM _sas.ready WHERE run_id = :open;
UPDATE _sas.run SET state = 'stopped' WHERE run_id = :open;
SELECT sas.drop_agent('leaving');
SELECT sas.drop_queue('leaving');
SELECT sas.drop_workflow('leaving');
SELECT seq_tup_read + idx_tup_fetch - :before < 20 AS few_runs_were_read FROM pg_stat_xact_user_tables WHERE relid = '_sas.run'::regclass;
ROLLBACK;
RESET enable_seqscan;
SELECT t.clean() \g /dev/null
