-- SPDX-License-Identifier: PostgreSQL
--
-- A12 A permanent error is there to be seen; an operator mends its cause and
-- retries that step.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}, "c": {"agent": "shipping", "call": {}, "after": ["a"]}}', '{"on_failure": "pause"}') \g /dev/null
SELECT f.* FROM t.try('order', '{"b": "permanent 402"}') f;
SELECT step, state, error ->> 'status' AS status, error ->> 'instance' AS instance FROM sas.steps WHERE state = 'failed';
SELECT * FROM t.alerts();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
-- a step that has not failed, or is not there, cannot be retried
SELECT * FROM sas.retry(1, 'a');
SELECT * FROM sas.retry(1, 'nope');
SELECT t.brief(1);
-- the one that has: another window, its failures start anew, the rest is not done again
SELECT * FROM sas.retry(1, 'b');
SELECT * FROM t.show(1);
SELECT t.work();
SELECT t.brief(1);
SELECT step, attempt FROM sas.steps WHERE run_id = 1 ORDER BY 1;
-- the act is written down
SELECT run_id, t.at(at) AS at, role = current_user AS by_me, act, step FROM sas.history;
-- a run that has ended, one that is not there, one that goes on
SELECT run_id FROM sas.submit('order');
SELECT * FROM sas.retry(ARRAY[1, 2, 99]);
SELECT t.work() \g /dev/null
-- both that failed
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402", "c": "permanent 400"}');
SELECT kind, step, occurrences FROM t.alerts();
SELECT run_id, step, changed, state, refused FROM sas.retry(3) ORDER BY step;
SELECT t.work('{"b": "permanent 402"}');
-- it fails again: the alert counts
SELECT kind, step, occurrences FROM t.alerts() WHERE run_id = 3;
-- closed when its run was resumed, the next one is a new row; also what nobody had seen can be acknowledged
SELECT sas.acknowledge(ARRAY(SELECT alert_id FROM sas.alerts WHERE run_id = 3));
SELECT sas.acknowledge(ARRAY(SELECT alert_id FROM sas.alerts WHERE run_id = 3));
SELECT changed FROM sas.retry(3, 'b');
SELECT t.work('{"b": "permanent 402"}');
SELECT kind, step, occurrences FROM t.alerts() WHERE run_id = 3;
-- what else has failed gets another window with it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402", "c": "permanent 400"}');
SELECT step, changed FROM sas.retry(1, 'b');
SELECT t.work();
SELECT t.brief(1);
-- not in this release
SELECT * FROM sas.retry(1, 'b', new_key => true);
