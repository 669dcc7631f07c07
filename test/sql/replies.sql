-- SPDX-License-Identifier: PostgreSQL
--
-- A16 The application learns from its reply queue: accepted, completed,
-- failed, each with the run and its key.
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}}}', '{"output": {"id": "{{steps.a.output.body.id}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('order', '{"n": 1}', key => 'k1', reply_to => 'shop');
SELECT run_id FROM sas.submit('order', '{"n": 2}', key => 'k2', reply_to => 'shop');
SELECT run_id FROM sas.submit('order', '{"n": 3}', reply_to => 'other');
SELECT run_id FROM sas.submit('order', '{"n": 4}');
-- accepted at once, oldest first, as many as asked for, each once
SELECT event, run_id, workflow, key, result, t.at(created_at) AS at FROM sas.read_replies('shop');
SELECT event, run_id, key FROM sas.read_replies('shop', 10);
SELECT event FROM sas.read_replies('shop', 10);
-- the same key again is no second message
SELECT created FROM sas.submit('order', '{"n": 1}', key => 'k1', reply_to => 'shop');
SELECT event FROM sas.read_replies('shop', 10);
-- how they end
SELECT t.claim();
SELECT t.answer('a', for_run => 1), t.answer('a', 'permanent 400', for_run => 2), t.answer('a', for_run => 3), t.answer('a', for_run => 4), t.settle();
SELECT event, run_id, key, result, output, error ->> 'title' AS error FROM sas.read_replies('shop', 10);
SELECT event, run_id, key, result, output FROM sas.read_replies('other', 10);
SELECT event FROM sas.read_replies('nobody');
SELECT event FROM sas.read_replies('shop', 0);
-- read in a transaction that is rolled back: still there
SELECT run_id FROM sas.submit('order', reply_to => 'shop');
BEGIN;
SELECT event FROM sas.read_replies('shop');
ROLLBACK;
SELECT event FROM sas.read_replies('shop');
-- one that was cancelled has failed
SELECT changed FROM sas.cancel(6);
SELECT t.work();
SELECT event, run_id, result FROM sas.read_replies('shop', 10);
-- paused, by an operator and by a rule: each time, with the error if there is one, and no result; the end comes later
SELECT t.workflow('shaky', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('shaky', key => 'k7', reply_to => 'shop');
SELECT run_id FROM sas.submit('shaky');
SELECT changed FROM sas.pause_runs('{7,8}');
SELECT changed FROM sas.resume_runs('{7,8}');
SELECT t.claim();
SELECT t.answer('a', 'permanent 400', for_run => 7), t.answer('a', 'permanent 400', for_run => 8), t.settle();
SELECT event, run_id, key, result, output, error ->> 'title' AS error FROM sas.read_replies('shop', 10);
SELECT changed FROM sas.skip_runs('{7,8}', 'a');
SELECT t.settle();
SELECT event, run_id, result, error ->> 'title' AS error FROM sas.read_replies('shop', 10);
-- nobody reads what another role submitted
SELECT run_id FROM sas.submit('order', reply_to => 'shop');
CREATE ROLE sas_test_reader;
SELECT sas.grant_usage('sas_test_reader', 'user') \g /dev/null
SET ROLE sas_test_reader;
SELECT event FROM sas.read_replies('shop', 10);
RESET ROLE;
SELECT event FROM sas.read_replies('shop', 10);
SELECT count(*) FROM _sas.reply;
