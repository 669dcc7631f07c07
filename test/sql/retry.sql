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
SELECT run_id, t.at(at) AS at, role = current_user AS by_me, act, step FROM sas.history WHERE run_id IS NOT NULL ORDER BY at, run_id, act, step;
-- a run that has ended, one that is not there, one that goes on
SELECT run_id FROM sas.submit('order');
SELECT * FROM sas.retry_runs(ARRAY[1, 2, 99]);
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
SELECT * FROM sas.acknowledge_alerts(ARRAY(SELECT alert_id FROM sas.alerts WHERE run_id = 3));
SELECT * FROM sas.acknowledge_alerts(ARRAY(SELECT alert_id FROM sas.alerts WHERE run_id = 3));
SELECT changed FROM sas.retry(3, 'b');
SELECT t.work('{"b": "permanent 402"}');
SELECT kind, step, occurrences FROM t.alerts() WHERE run_id = 3;
-- what else has failed stays as it is; the run is paused for it again when nothing else is left to do
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402", "c": "permanent 400"}');
SELECT step, changed, state FROM sas.retry(1, 'b');
SELECT * FROM t.show(1);
SELECT t.work();
SELECT t.brief(1);
SELECT paused_for, paused_by FROM sas.runs;
SELECT kind, step, occurrences FROM t.alerts();
SELECT step, changed, state FROM sas.retry(1, 'c');
SELECT t.work();
SELECT t.brief(1);
-- one after the other, before the first is done
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "permanent 402", "c": "permanent 400"}');
SELECT step, changed, state FROM sas.retry(2, 'b');
SELECT step, changed, state FROM sas.retry(2, 'c');
SELECT t.work();
SELECT t.brief(2);
SELECT * FROM t.left_over();
-- beside a map of which an element has failed, and a step that rests
SELECT t.workflow('map', '{"m": {"function": "t.echo", "input": {"i": "{{item}}"}, "each": "{{input.items}}"}, "b": {"agent": "payments", "call": {}}, "z": {"function": "t.echo", "after": ["m", "b"]}}', '{"on_failure": "pause"}') \g /dev/null
SELECT run_id FROM sas.submit('map', '{"items": [1, 2, 3]}');
SELECT t.work('{"m[2]": "permanent", "b": "permanent 400"}');
SELECT step, changed, state FROM sas.retry(3, 'b');
SELECT t.work('{"b": "transient 503"}');
SELECT t.brief(3);
SELECT t.later('10 s') \g /dev/null
SELECT t.work();
SELECT t.brief(3);
SELECT step, changed, state FROM sas.retry(3, 'm');
SELECT t.work();
SELECT t.brief(3);
SELECT * FROM t.left_over();
-- an element is not retried alone
SELECT * FROM sas.retry(3, 'm[2]');

-- what rests before another window has it now, in a run that goes on or is paused
SELECT run_id FROM sas.submit('order');
SELECT t.work('{"b": "transient 503"}');
SELECT * FROM sas.retry(4);
SELECT step, changed, state FROM sas.retry(4, 'b');
SELECT t.work('{"b": "transient 503"}');
SELECT failure_count FROM sas.steps WHERE run_id = 4 AND step = 'b';
SELECT changed FROM sas.pause(4);
SELECT step, changed, state FROM sas.retry(4, 'b');
SELECT t.work();
SELECT t.brief(4);

-- new_key: what was refused is called under another key from then on; what stands after it sees that key
SELECT t.clean() \g /dev/null
SELECT t.workflow('keyed', '{"a": {"agent": "inventory", "call": {"path": "/{{key}}"}, "undo": {"call": {"path": "/{{steps.a.key}}"}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"on_failure": {"transient": "pause", "permanent": "pause"}, "recovery": {"max_failures": 1, "jitter": false}}') \g /dev/null
CREATE FUNCTION t.key(id bigint, of_step text) RETURNS text LANGUAGE sql AS $$ SELECT s.idempotency_key FROM sas.steps s WHERE s.run_id = id AND s.step = of_step $$;
SELECT run_id FROM sas.submit('keyed');
SELECT t.key(1, 'a') AS first_key \gset
SELECT t.work('{"a": "permanent 402"}');
SELECT step, changed, state FROM sas.retry(1, new_key => true);
SELECT t.key(1, 'a') AS second_key \gset
SELECT :'first_key' <> :'second_key' AS another;
SELECT t.claim();
SELECT key = :'second_key' AS sent, asked ->> 'path' = '/' || :'second_key' AS rendered FROM t.held;
SELECT t.answer('a', 'transient 503');
SELECT t.work();
-- it stays until another is asked for
SELECT step, changed FROM sas.retry(1, 'a');
SELECT t.claim();
SELECT key = :'second_key' AS kept FROM t.held;
SELECT t.answer('a');
SELECT t.work('{"b": "permanent 400"}');
SELECT changed FROM sas.compensate(1);
SELECT t.settle(), t.claim();
SELECT undo, asked ->> 'path' = '/' || :'second_key' AS names_it, key <> :'second_key' AS own_key FROM t.held;
SELECT key AS undo_key FROM t.held \gset
SELECT t.answer('a', 'permanent 400');
SELECT t.work();
SELECT step, changed, state FROM sas.retry(1, 'a', new_key => true);
SELECT t.settle(), t.claim();
SELECT undo, asked ->> 'path' = '/' || :'second_key' AS names_it, key <> :'undo_key' AS another FROM t.held;
SELECT t.answer('a');
SELECT t.work();
SELECT t.brief(1);
SELECT act, step, detail FROM sas.history WHERE act = 'retry' ORDER BY at, step, detail;
-- one in doubt: only for a step that is named; its doubt is over then
SELECT run_id FROM sas.submit('keyed');
SELECT t.work('{"a": "doubt"}');
SELECT t.key(2, 'a') AS first_key \gset
SELECT * FROM sas.retry(2, new_key => true);
SELECT t.key(2, 'a') = :'first_key' AS same;
SELECT step, changed FROM sas.retry(2, 'a', new_key => true);
SELECT t.key(2, 'a') = :'first_key' AS same;
SELECT t.work('{"a": "permanent 400"}');
SELECT t.brief(2);
-- each element has its own
SELECT t.workflow('elements', '{"m": {"agent": "inventory", "call": {}, "each": "{{input.items}}", "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('elements', '{"items": [1, 2, 3]}');
SELECT t.work('{"m[2]": "permanent 402", "m[3]": "permanent 402"}');
CREATE TEMP TABLE before AS SELECT element, idempotency_key FROM sas.steps WHERE run_id = 3;
SELECT step, changed FROM sas.retry(3, 'm', new_key => true);
SELECT s.element, s.idempotency_key <> b.idempotency_key AS another FROM sas.steps s JOIN before b ON b.element = s.element WHERE s.run_id = 3 ORDER BY 1;
SELECT t.work();
SELECT t.brief(3), count(DISTINCT idempotency_key) FROM sas.steps WHERE run_id = 3;
