-- SPDX-License-Identifier: PostgreSQL
--
-- beside: a step that failed waits for an operator; the branches that do not depend on it go on.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE VIEW t.now_at AS SELECT r.state AS run, r.result, r.paused_for, string_agg(s.step || ' ' || s.state, ', ' ORDER BY s.position) AS steps FROM sas.runs r JOIN sas.steps s USING (run_id) GROUP BY r.run_id, r.state, r.result, r.paused_for ORDER BY r.run_id;
SELECT t.workflow('two_ways', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}, "b": {"agent": "payments", "call": {}}, "c": {"function": "t.echo", "after": ["b"]}, "d": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('two_ways') \gset
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
\echo it is told at once, and the run goes on
SELECT * FROM t.now_at;
SELECT kind, step, occurrences FROM sas.alerts WHERE closed_at IS NULL;
SELECT t.answer('b'); SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT * FROM t.now_at;
\echo when nothing else can go on it is paused, and told of once
SELECT t.answer('c'); SELECT t.settle() \g /dev/null
SELECT * FROM t.now_at;
SELECT kind, step, occurrences FROM sas.alerts WHERE closed_at IS NULL;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT * FROM t.now_at;
SELECT * FROM t.left_over();
\echo it is tried again while the others go on
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('two_ways') \gset
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT step, changed, state, refused FROM sas.retry(:run_id, 'a');
SELECT t.claim(); SELECT t.answer('a'); SELECT t.settle() \g /dev/null
SELECT t.answer('b'); SELECT t.settle() \g /dev/null
SELECT t.work();
SELECT * FROM t.now_at;
SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL;
SELECT * FROM t.left_over();
\echo or skipped
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('two_ways') \gset
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT step, changed, state, refused FROM sas.skip(:run_id, 'a');
SELECT t.answer('b'); SELECT t.settle() \g /dev/null
SELECT t.work();
SELECT * FROM t.now_at;
SELECT count(*) FROM sas.alerts WHERE closed_at IS NULL;
SELECT * FROM t.left_over();
\echo what fails beside it waits, too, but for what may be skipped
SELECT t.clean() \g /dev/null
SELECT t.workflow('three_ways', '{"a": {"agent": "inventory", "call": {}, "on_failure": "pause"}, "b": {"agent": "payments", "call": {}, "on_failure": "compensate"}, "c": {"agent": "shipping", "call": {}, "on_failure": "skip"}, "d": {"function": "t.echo", "after": ["c"]}}') \g /dev/null
SELECT run_id FROM sas.submit('three_ways') \gset
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT t.answer('b', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT t.answer('c', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT * FROM t.now_at;
SELECT t.work();
SELECT * FROM t.now_at;
SELECT step FROM sas.alerts WHERE closed_at IS NULL ORDER BY 1;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT * FROM t.now_at;
SELECT * FROM t.left_over();
\echo a cancel, a halt and a pause of the run meanwhile
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('two_ways', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.claim(); SELECT t.answer('a', 'permanent 400', for_run => 1), t.answer('a', 'permanent 400', for_run => 2), t.answer('a', 'permanent 400', for_run => 3); SELECT t.settle() \g /dev/null
SELECT state FROM sas.cancel(1);
SELECT state FROM sas.halt(2);
SELECT state FROM sas.pause(3);
SELECT t.answer('b', for_run => 1), t.answer('b', for_run => 3); SELECT t.settle() \g /dev/null
SELECT * FROM t.now_at;
SELECT state FROM sas.resume(3);
SELECT t.work();
SELECT * FROM t.now_at;
SELECT kind, run_id FROM sas.alerts WHERE closed_at IS NULL;
SELECT * FROM t.left_over();
\echo an element of a map: the others go on, and what stands beside the map
SELECT t.clean() \g /dev/null
SELECT t.workflow('map_ways', '{"m": {"agent": "inventory", "call": {"path": "/{{item}}"}, "each": "{{input.items}}", "concurrency": 2, "on_failure": "pause"}, "b": {"agent": "payments", "call": {}}, "c": {"function": "t.echo", "after": ["b"]}, "d": {"function": "t.echo", "after": ["m"]}}') \g /dev/null
SELECT run_id FROM sas.submit('map_ways', '{"items": [1, 2, 3, 4]}') \gset
SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('m', 'permanent 400', for_element => 1); SELECT t.settle() \g /dev/null
SELECT run, paused_for FROM t.now_at;
SELECT kind, step, occurrences FROM sas.alerts WHERE closed_at IS NULL;
SELECT t.work();
\echo it keeps its place in the map
SELECT t.brief(:run_id), paused_for FROM sas.runs;
SELECT error ->> 'instance' AS instance FROM sas.runs;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT t.brief(:run_id);
SELECT * FROM t.left_over();
\echo one of two is skipped while the run goes on, the other tried again when it is paused
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('map_ways', '{"items": [1, 2, 3]}') \gset
SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('m', 'permanent 400', for_element => 1), t.answer('m', 'permanent 400', for_element => 2); SELECT t.settle() \g /dev/null
SELECT t.brief(:run_id);
SELECT step, changed, refused FROM sas.skip(:run_id, 'm[1]');
SELECT t.work();
SELECT t.brief(:run_id);
SELECT step, changed, refused FROM sas.retry(:run_id, 'm');
SELECT t.work();
SELECT t.brief(:run_id), result FROM sas.runs;
SELECT * FROM t.left_over();
\echo nothing else goes on: the last element, a repeating step, a run that is cancelled meanwhile
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('map_ways', '{"items": [1]}') \gset
SELECT t.work('{"m": "permanent 400"}');
SELECT t.brief(:run_id);
SELECT step, changed FROM sas.retry(:run_id, 'm');
SELECT t.work();
SELECT t.brief(:run_id);
SELECT t.workflow('turn_ways', '{"r": {"agent": "inventory", "call": {}, "repeat": {"while": "false == true"}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('turn_ways') \gset
SELECT t.work('{"r": "permanent 400"}');
SELECT t.brief(:run_id);
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT t.brief(:run_id);
SELECT run_id FROM sas.submit('map_ways', '{"items": [1, 2]}') \gset
SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('m', 'permanent 400', for_element => 1); SELECT t.settle() \g /dev/null
SELECT changed, state FROM sas.cancel(:run_id);
SELECT t.work();
SELECT t.brief(:run_id);
SELECT * FROM t.left_over();
\echo a map that pauses at its end runs through beside it
SELECT t.clean() \g /dev/null
SELECT t.workflow('end_ways', '{"a": {"agent": "payments", "call": {}, "on_failure": "pause"}, "m": {"agent": "inventory", "call": {"path": "/{{item}}"}, "each": "{{input.items}}", "concurrency": 1, "on_failure": "pause_at_end"}}') \g /dev/null
SELECT run_id FROM sas.submit('end_ways', '{"items": [1, 2]}') \gset
SELECT t.settle() \g /dev/null
SELECT t.claim(); SELECT t.answer('a', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT t.answer('m', 'permanent 400'); SELECT t.settle() \g /dev/null
SELECT t.work();
SELECT t.brief(:run_id), (SELECT error ->> 'title' FROM sas.steps WHERE step = 'm' AND element IS NULL) FROM sas.runs;
SELECT state FROM sas.resume(:run_id);
SELECT t.work();
SELECT t.brief(:run_id);
SELECT * FROM t.left_over();
DROP VIEW t.now_at;
