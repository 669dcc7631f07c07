-- SPDX-License-Identifier: PostgreSQL
--
-- Finalize: one last function step, once every step has succeeded or was
-- skipped. It sees the whole run.
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "on_failure": "skip"}, "f": {"function": "t.echo", "after": ["a"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id FROM sas.submit('order', '{"id": 1}', key => 'k', labels => '{"tenant": "x"}');
SELECT t.claim();
SELECT t.answer('a'), t.answer('b', 'permanent 400'), t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('f', 'done', '{"booked": true}');
SELECT t.claim();
-- the context: input, run and every step, with output where there is one
SELECT jsonb_pretty(jsonb_set(asked #- '{steps,a,key}' #- '{steps,b,key}' #- '{steps,f,key}' #- '{steps,finalize,key}' #- '{key}' #- '{run,created_at}' #- '{run,deadline}', '{}', '0')) FROM t.held;
SELECT t.brief(1);
SELECT t.answer('finalize', 'done', '{"ok": 1}');
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- its failure pauses, whatever the run says of other failures; retried, it ends the run
SELECT t.workflow('strict', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}}', '{"finalize": "t.echo", "on_failure": "compensate"}') \g /dev/null
SELECT f.* FROM t.try('strict', '{"finalize": "permanent"}') f;
SELECT * FROM t.alerts();
SELECT changed, step, state FROM sas.retry(2, 'finalize');
SELECT t.work();
SELECT t.brief(2);
-- transient failures of it cool off
SELECT run_id FROM sas.submit('strict');
SELECT t.work('{"finalize": "transient"}');
SELECT * FROM t.show(3);
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT t.brief(3);
-- no finalize where the run was undone or left
SELECT f.* FROM t.try('strict', '{"a": "permanent 400"}') f;
-- a workflow of a finalize only
SELECT t.workflow('only', '{}', '{"finalize": "t.echo"}') \g /dev/null
SELECT f.* FROM t.try('only') f;
-- it waits while the run is paused
SELECT run_id FROM sas.submit('strict');
SELECT t.claim();
SELECT changed FROM sas.pause(6);
SELECT t.answer('a');
SELECT t.work();
SELECT * FROM t.show(6);
SELECT changed, state FROM sas.resume(6);
SELECT t.work();
SELECT t.brief(6);
SELECT * FROM t.left_over();

-- PH9: no finalize while a step is failed; a skipped step does not prevent it
SELECT t.workflow('waits', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}, "b": {"function": "t.echo"}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT run_id AS id FROM sas.submit('waits') \gset
SELECT t.work('{"a": "permanent 400"}');
SELECT t.brief(:id);
SELECT changed FROM sas.resume(:id);
SELECT t.work('{"a": "permanent 400"}');
SELECT changed FROM sas.skip(:id, 'a');
SELECT t.work();
SELECT t.brief(:id);
SELECT * FROM t.left_over();
