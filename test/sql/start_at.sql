-- SPDX-License-Identifier: PostgreSQL
--
-- start_at: a run that begins later.
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}}, "f": {"function": "t.echo"}, "z": {"function": "t.echo", "after": ["a"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('order', start_at => t.start() + interval '1 h');
SELECT state, t.at(start_at) AS start_at, started_at FROM sas.runs;
SELECT * FROM t.show(1);
SELECT t.work();
SELECT next_due - sas.now() AS next_due FROM _sas.scheduler_tick(10);
SELECT t.later('59 min 59 s') \g /dev/null
SELECT t.work();
SELECT t.later('1 s') \g /dev/null
SELECT t.work();
SELECT t.brief(1), (SELECT t.at(started_at) FROM sas.runs) AS started_at;
-- one that lies in the past starts at once
SELECT run_id FROM sas.submit('order', start_at => t.start() - interval '1 h');
SELECT t.work();
SELECT t.brief(2);
-- a batch
SELECT run_id FROM sas.submit_batch('order', ARRAY['{}', '{}']::jsonb[], start_at => sas.now() + interval '1 h');
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
-- a workflow without steps, with and without finalize
SELECT t.workflow('empty', '{}') \g /dev/null
SELECT t.workflow('only', '{}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('empty', start_at => sas.now() + interval '1 h');
SELECT run_id FROM sas.submit('only', start_at => sas.now() + interval '1 h');
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT run_id, state, result FROM sas.runs WHERE run_id > 4 ORDER BY 1;
SELECT * FROM t.left_over();
