-- SPDX-License-Identifier: PostgreSQL
--
-- Submit is transactional, and a key stands for one run.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"reserve": {"agent": "inventory", "call": {"path": "/r"}}, "charge": {"agent": "payments", "call": {"path": "/c"}, "after": ["reserve"]}}') \g /dev/null
SELECT t.workflow('other', '{"a": {"function": "t.echo"}}') \g /dev/null
CREATE TABLE t.shop_order (id int PRIMARY KEY);

-- rolled back: neither the business row nor the run, its timers or its queue exist
BEGIN;
INSERT INTO t.shop_order VALUES (1);
SELECT run_id, created FROM sas.submit('order', '{"id": 1}', key => 'order-1', reply_to => 'shop');
ROLLBACK;
SELECT (SELECT count(*) FROM t.shop_order) AS orders, (SELECT count(*) FROM _sas.run) AS runs, (SELECT count(*) FROM _sas.run_key) AS keys,
       (SELECT count(*) FROM _sas.ready) AS ready, (SELECT count(*) FROM _sas.message) AS due, (SELECT count(*) FROM _sas.reply) AS replies;

-- a rolled back savepoint takes its run along and leaves the others
BEGIN;
INSERT INTO t.shop_order VALUES (2);
SELECT run_id, created FROM sas.submit('order', '{"id": 2, "sku": "x"}', key => 'order-2');
SAVEPOINT s;
SELECT run_id, created FROM sas.submit('order', '{"id": 3}', key => 'order-3');
ROLLBACK TO s;
COMMIT;
SELECT id FROM t.shop_order;
SELECT run_id, workflow, version, key, state, result, input, priority, progress, t.at(created_at) AS created_at, started_at, deadline - created_at AS deadline FROM sas.runs ORDER BY run_id;
SELECT * FROM t.show(2);

-- the same key with the same input gives the run that is there, also in another order of its members
SELECT * FROM sas.submit('order', '{"sku": "x", "id": 2}', key => 'order-2');
SELECT count(*) FROM sas.runs;
-- with another input it is refused
SELECT * FROM sas.submit('order', '{"id": 99}', key => 'order-2');
SELECT count(*) FROM sas.runs;
-- another workflow, and no key, are other runs
SELECT created FROM sas.submit('other', '{"id": 2}', key => 'order-2');
SELECT created FROM sas.submit('order', '{"id": 2}');
-- the key holds when the run has ended
SELECT t.work();
SELECT run_id, created, (SELECT r.state FROM sas.runs r WHERE r.run_id = s.run_id) FROM sas.submit('order', '{"id": 2, "sku": "x"}', key => 'order-2') s;

-- another owner has keys of its own
CREATE ROLE sas_test_submitter;
SELECT sas.grant_usage('sas_test_submitter', 'user'), t.allow('sas_test_submitter') \g /dev/null
SELECT sas.grant_workflow('order', 'sas_test_submitter') \g /dev/null
SET ROLE sas_test_submitter;
SELECT created FROM sas.submit('order', '{"id": 77}', key => 'order-2');
SELECT key, submitted_by FROM sas.runs;
RESET ROLE;

-- a batch: in order, with keys, known ones among them, one of them twice
SELECT t.clean() \g /dev/null
SELECT * FROM sas.submit('order', '{"id": 1}', key => 'k1');
CREATE TEMP TABLE batch AS SELECT b.* FROM sas.submit_batch('order', ARRAY['{"id": 2}', '{"id": 1}', '{"id": 3}', '{"id": 2}', '{"id": 4}']::jsonb[], ARRAY['k2', 'k1', 'k3', 'k2', NULL], priority => 3, labels => '{"tenant": "a"}') WITH ORDINALITY AS b (run_id, created, n);
SELECT b.created, r.key, r.input, r.priority, r.labels FROM batch b JOIN sas.runs r USING (run_id) ORDER BY n;
SELECT count(*) AS runs, count(DISTINCT idempotency_key) AS step_keys FROM sas.runs JOIN sas.steps USING (run_id);
-- one that is refused refuses them all
SELECT * FROM sas.submit_batch('order', ARRAY['{"id": 8}', '{"id": 9}']::jsonb[], ARRAY['k8', 'k1']);
SELECT * FROM sas.submit_batch('order', ARRAY['{"id": 8}', '[9]']::jsonb[]);
SELECT * FROM sas.submit_batch('order', ARRAY['{"id": 8}']::jsonb[], ARRAY['k8', 'k9']);
-- no inputs: no runs
SELECT * FROM sas.submit_batch('order', '{}');
SELECT * FROM sas.submit_batch('order', '{}', '{}');
SELECT count(*) FROM sas.runs;

-- a run keeps the version that it was submitted with
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT t.workflow('order', '{"only": {"function": "t.echo"}}') AS version \gset
SELECT run_id FROM sas.submit('order');
SELECT t.work();
SELECT r.run_id, r.version = :version AS newest, r.state, r.result, string_agg(s.step, ', ' ORDER BY s.step) AS steps FROM sas.runs r JOIN sas.steps s USING (run_id) GROUP BY 1, 2, 3, 4 ORDER BY 1;

-- a workflow without steps succeeds at once
SELECT t.workflow('empty', '{}') \g /dev/null
SELECT run_id FROM sas.submit('empty');
SELECT state, result, output, progress, t.at(started_at) AS started_at, t.at(finished_at) AS finished_at FROM sas.runs WHERE run_id = 3;
SELECT * FROM t.left_over();
