-- SPDX-License-Identifier: PostgreSQL
--
-- 600 roles have tasks at one outside agent: of as many tasks as there are roles, each role has one, however many
-- one of them has submitted before, and however few tasks a program claims at once.
\set QUIET on
\pset format unaligned
\pset tuples_only on
\pset pager off
SELECT no_plan();

CREATE ROLE mo_all;
SELECT sas.grant_usage('mo_all', 'user') \g /dev/null
SELECT sas.create_agent('mo_away', kind => 'external', max_in_flight => 10000) \g /dev/null
SELECT sas.grant_agent('mo_away', 'mo_all') \g /dev/null
SELECT sas.create_workflow('mo_task', '{"steps": {"a": {"agent": "mo_away", "task": {}}}}') \g /dev/null
SELECT sas.grant_workflow('mo_task', 'mo_all') \g /dev/null
DO $$ BEGIN FOR n IN 1 .. 600 LOOP EXECUTE format('CREATE ROLE mo_%s IN ROLE mo_all', n); END LOOP; END $$;
CREATE FUNCTION pg_temp.submits(n int, quantity int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL ROLE mo_%s', n);
    PERFORM FROM sas.submit_batch('mo_task', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, quantity)));
    RESET ROLE;
END $$;
SELECT pg_temp.submits(300, 2000) \g /dev/null
SELECT count(pg_temp.submits(n, 2)) FROM generate_series(1, 600) n WHERE n <> 300 \g /dev/null
CREATE TEMP TABLE claimed (claim int, run_id bigint);
SELECT format('INSERT INTO claimed SELECT %s, c.run_id FROM sas.claim(''mo_away'', ''w'', 25) c', n) FROM generate_series(1, 24) n \gexec
SELECT is((SELECT count(*) FROM claimed), 600::bigint, '24 claims take 25 tasks each');
SELECT is((SELECT count(DISTINCT r.submitted_by) FROM claimed c JOIN sas.runs r USING (run_id)), 600::bigint, 'each of 600 roles has one of 600 tasks, the one with 2,000, too');
SELECT format('INSERT INTO claimed SELECT %s, c.run_id FROM sas.claim(''mo_away'', ''w'', 1) c', n) FROM generate_series(25, 84) n \gexec
SELECT is((SELECT count(DISTINCT r.submitted_by) FROM claimed c JOIN sas.runs r USING (run_id) WHERE c.claim > 24), 60::bigint, 'claims of one task go round, too');

SELECT * FROM finish();
