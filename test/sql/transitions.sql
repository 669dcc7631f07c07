-- SPDX-License-Identifier: PostgreSQL
--
-- The machine as data: which state may follow which. A change here is a
-- change of the contract.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null

-- the golden list
SELECT * FROM sas.transitions ORDER BY subject, from_state = 'none' DESC, from_state, to_state;

-- every state of the contract is there, and no other
WITH contract (subject, state) AS (
    SELECT 'run', unnest('{none,scheduled,pending,running,paused,compensating,stopped}'::text[])
    UNION ALL
    SELECT 'step', unnest('{none,waiting,ready,running,succeeded,failed,skipped,cancelled,suspended,compensating,compensated}'::text[])
    UNION ALL
    SELECT 'watch', unnest('{none,created,processing,on_deleting,deleted,paused,failed}'::text[])),
listed AS (SELECT subject, from_state AS state FROM sas.transitions UNION SELECT subject, to_state FROM sas.transitions)
SELECT * FROM contract c FULL JOIN listed l USING (subject, state) WHERE c IS NULL OR l IS NULL;

-- no state is unreachable
WITH RECURSIVE reached AS (
    SELECT DISTINCT subject, 'none' AS state FROM sas.transitions
    UNION
    SELECT t.subject, t.to_state FROM reached r JOIN sas.transitions t ON t.subject = r.subject AND t.from_state = r.state)
SELECT t.subject, t.to_state FROM sas.transitions t
WHERE NOT EXISTS (SELECT FROM reached r WHERE r.subject = t.subject AND r.state = t.to_state);

-- only these have no way out: the ends
SELECT DISTINCT t.subject, t.to_state AS ends FROM sas.transitions t
WHERE NOT EXISTS (SELECT FROM sas.transitions o WHERE o.subject = t.subject AND o.from_state = t.to_state AND o.to_state <> t.to_state)
ORDER BY 1, 2;

-- from every state an end can be reached
WITH RECURSIVE ends (subject, state) AS (
    VALUES ('run', 'stopped'), ('step', 'succeeded'), ('step', 'skipped'), ('step', 'cancelled'), ('step', 'compensated'), ('watch', 'deleted')
    UNION
    SELECT t.subject, t.from_state FROM ends e JOIN sas.transitions t ON t.subject = e.subject AND t.to_state = e.state)
SELECT t.subject, t.from_state FROM sas.transitions t
WHERE NOT EXISTS (SELECT FROM ends e WHERE e.subject = t.subject AND e.state = t.from_state);

-- each has its comment
SELECT count(*) FROM sas.transitions WHERE comment = '';

-- one function writes the states of steps, one those of runs, and beside them there is one for each first claim and for a plain end; only submit and what tells of a run make runs (and src/store/submit.c, which does what _sas.submit_runs does)
SELECT p.proname,
       p.prosrc ~ 'UPDATE _sas\.step( \w+)?\s+SET\s+([^;]*,\s*)?state =' AS step_states,
       p.prosrc ~ 'INSERT INTO _sas\.step\M' AS new_steps,
       p.prosrc ~ 'UPDATE _sas\.run( \w+)?\s+SET\s+([^;]*,\s*)?state =' AS run_states,
       p.prosrc ~ 'INSERT INTO _sas\.run\M' AS new_runs
FROM pg_proc p
WHERE p.pronamespace IN ('sas'::regnamespace, '_sas'::regnamespace)
  AND p.prosrc ~ '(UPDATE _sas\.(step|run)( \w+)?\s+SET\s+([^;]*,\s*)?state =|INSERT INTO _sas\.(step|run)\M)'
ORDER BY 1;

-- what makes a change takes each column of it by name, in its order, and is gone when a statement has been planned
SELECT c.relname, p.oid IS NULL AS missing
FROM pg_class c
LEFT JOIN pg_proc p ON p.pronamespace = c.relnamespace AND p.proname = 'make_' || c.relname
  AND (p.proargnames, p.proargtypes::text) = (SELECT array_agg(a.attname::text ORDER BY a.attnum), string_agg(a.atttypid::text, ' ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
WHERE c.relnamespace = '_sas'::regnamespace AND c.relname IN ('step_change', 'run_change', 'decision')
ORDER BY 1;
EXPLAIN (VERBOSE, COSTS OFF) SELECT _sas.make_run_change(run_id => r.run_id, from_state => r.state, to_state => 'stopped', open_steps => 0) FROM _sas.run r;

-- and they make no change that is not listed, or from a state that is not the present one
SELECT t.workflow('one', '{"a": {"function": "t.echo"}}') \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT _sas.move_steps(ARRAY[_sas.make_step_change(run_id => 1, step_no => 1, element => 0, from_state => 'none',
    to_state => 'compensated')]);
SELECT _sas.move_runs(ARRAY[_sas.make_run_change(run_id => 1, from_state => 'running', to_state => 'paused')]);
SELECT _sas.move_runs(ARRAY[_sas.make_run_change(run_id => 1, from_state => 'pending', to_state => 'scheduled')]);
SELECT state FROM sas.runs;
BEGIN;
DELETE FROM _sas.transition WHERE (subject, from_state, to_state) IN (('step', 'none', 'running'), ('run', 'pending', 'running'));
SAVEPOINT here;
\set VERBOSITY sqlstate
SELECT _sas.take_steps(ARRAY[ROW(1, 1, 0, false, false, 1, 0, 'none', 0, '1 min', gen_random_uuid(), now(), now())::_sas.claimed], 1, now());
ROLLBACK TO here;
SELECT _sas.start_runs('{1}');
\set VERBOSITY default
ROLLBACK;
SELECT _sas.start_runs('{1}');
SELECT _sas.take_steps(ARRAY[ROW(1, 1, 0, false, false, 1, 0, 'none', 0, '1 min', gen_random_uuid(), now(), now())::_sas.claimed], 1, now());
SELECT _sas.start_runs('{1}');
SELECT r.state AS run, s.state AS step FROM sas.runs r JOIN _sas.step s USING (run_id);
-- a step that is running is not claimed for the first time again
\set VERBOSITY sqlstate
SELECT _sas.take_steps(ARRAY[ROW(1, 1, 0, false, false, 1, 0, 'none', 0, '1 min', gen_random_uuid(), now(), now())::_sas.claimed], 1, now());
\set VERBOSITY default
