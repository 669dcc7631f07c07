-- SPDX-License-Identifier: PostgreSQL
--
-- singleton: one open run of a workflow and owner.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('sync', '{"a": {"agent": "inventory", "call": {}}}', '{"singleton": true}') \g /dev/null
\echo a second submit gets the open run
SELECT * FROM sas.submit('sync');
SELECT * FROM sas.submit('sync', '{"other": 1}');
SELECT * FROM sas.submit_batch('sync', ARRAY['{}', '{}']::jsonb[]);
\echo also while it is paused
SELECT state FROM sas.pause(1);
SELECT created FROM sas.submit('sync');
SELECT state FROM sas.resume(1);
SELECT count(*) FROM sas.runs;
\echo once it has stopped there may be another
SELECT t.work();
SELECT created FROM sas.submit('sync');
SELECT state FROM sas.cancel((SELECT max(run_id) FROM sas.runs));
SELECT created FROM sas.submit('sync');
SELECT t.work();
SELECT * FROM t.left_over();
\echo a batch makes one, and all inputs get it
SELECT array_agg(created), count(DISTINCT run_id) FROM sas.submit_batch('sync', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.work();
\echo with keys: the run that has the key comes first; the key of what was not made is not taken
SELECT t.clean() \g /dev/null
SELECT * FROM sas.submit('sync', key => 'x');
SELECT * FROM sas.submit('sync', key => 'y');
SELECT t.work();
SELECT created FROM sas.submit('sync', key => 'x');
SELECT created FROM sas.submit('sync', key => 'y');
SELECT count(*) FROM sas.runs;
SELECT t.work();
\echo per owner: nobody is told of a run that he may not see
CREATE ROLE sas_ann;
SELECT sas.grant_usage('sas_ann', 'user');
SELECT t.allow('sas_ann') \g /dev/null
SELECT created FROM sas.submit('sync');
SET ROLE sas_ann;
SELECT created FROM sas.submit('sync');
SELECT created FROM sas.submit('sync');
RESET ROLE;
SELECT count(*) FROM _sas.singleton;
SELECT t.work();
SELECT * FROM t.left_over();
\echo what is rolled back was not there
BEGIN;
SELECT created FROM sas.submit('sync');
ROLLBACK;
SELECT created FROM sas.submit('sync');
SELECT t.work();
DROP OWNED BY sas_ann;
DROP ROLE sas_ann;
\echo a child run is not counted: it belongs to its step
SELECT t.workflow('parent', '{"c": {"workflow": "sync"}}') \g /dev/null
SELECT created FROM sas.submit('sync');
SELECT created FROM sas.submit('parent');
SELECT t.settle() \g /dev/null
SELECT workflow, state, count(*) FROM sas.runs WHERE state <> 'stopped' GROUP BY 1, 2 ORDER BY 1;
SELECT t.work();
SELECT * FROM t.left_over();
