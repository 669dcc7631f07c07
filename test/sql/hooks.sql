-- SPDX-License-Identifier: PostgreSQL
--
-- Hooks: functions and calls that are told of a run's states, in runs of
-- their own. They never change the run that they tell of.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never
CREATE FUNCTION t.told(id bigint) RETURNS TABLE (hook int, target text, told text, stands text, attempt int) LANGUAGE sql AS $$
    SELECT h.hook, h.target, concat_ws('/', h.told_state, h.told_result), concat_ws('/', h.state, h.result), h.attempt FROM sas.hook_runs h WHERE h.run_id = id ORDER BY h.hook_run_id
$$;
-- HK1 without "on": every state that the run comes to, the first one included
SELECT t.workflow('all', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"function": "t.echo"}]}');
SELECT run_id FROM sas.submit('all');
SELECT * FROM t.told(1);
SELECT t.work();
SELECT * FROM t.told(1);
-- they are not among the runs, nor their steps among the steps
SELECT run_id, workflow, version, state, result FROM sas.runs;
SELECT run_id, step FROM sas.steps;
SELECT * FROM t.left_over();
-- and no change of a hook's own run is told
SELECT count(*) FROM sas.hook_runs;

-- the event, as a function gets it
SELECT t.clean() \g /dev/null
SELECT t.workflow('shopping', '{"a": {"agent": "inventory", "call": {}}}',
                  '{"output": {"id": "{{steps.a.output.body.id}}"},
                    "hooks": [{"on": "success", "function": "t.echo"},
                              {"on": ["failure", "paused"], "agent": "payments", "call": {"method": "PUT", "path": "/runs/{{input.run_id}}", "body": {"is": "{{input.state}}", "was": "{{input.result}}", "of": "{{input.key}}", "n": "{{input.input.n}}", "why": "{{input.error.title?}}"}}}]}') \g /dev/null
SELECT run_id FROM sas.submit('shopping', '{"n": 1}', key => 'k1', labels => '{"tenant": "x"}', priority => 3);
SELECT t.claim();
SELECT t.answer('a');
SELECT t.claim();
SELECT jsonb_pretty(asked) FROM t.held;
SELECT t.answer('hook') \g /dev/null
SELECT * FROM t.told(1);
SELECT output ->> 'status' AS status, finished_at IS NOT NULL AS finished FROM sas.hook_runs;
-- and what a call is made of
SELECT run_id FROM sas.submit('shopping', '{"n": 2}', key => 'k2');
SELECT t.work('{"a": "permanent 400"}') AS carried_out;
SELECT * FROM t.told(3);
SELECT run_id FROM sas.submit('shopping', '{"n": 3}', key => 'k3');
SELECT t.claim();
SELECT t.answer('a', 'permanent 400'), t.settle();
SELECT t.claim();
SELECT asked FROM t.held;
SELECT t.answer('hook');
-- failure stands for error, compensated and cancelled; a warning is none of them
SELECT t.workflow('ends', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "on_failure": {"permanent": "compensate"}}, "c": {"agent": "shipping", "call": {}, "after": ["a"], "on_failure": "skip"}}',
                  '{"hooks": [{"on": "failure", "function": "t.echo"}, {"on": ["success", "warning"], "function": "t.echo"}, {"on": ["compensating", "compensated"], "function": "t.echo"}]}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('ends', array_fill('{}'::jsonb, ARRAY[4]));
SELECT (sas.cancel(4)).changed;
SELECT t.claim();
SELECT t.answer('a', for_run => 1), t.answer('a', for_run => 2), t.answer('a', 'permanent 400', for_run => 3), t.settle();
SELECT t.claim();
SELECT t.answer('b', for_run => 1), t.answer('b', 'permanent 400', for_run => 2), t.answer('c', for_run => 1, what => 'permanent 404'), t.answer('c', for_run => 2), t.settle();
SELECT t.work() <> '' AS worked;
SELECT r.run_id, r.result, t.hook, t.told FROM sas.runs r CROSS JOIN LATERAL t.told(r.run_id) t ORDER BY 1, 2, 3, 4;

-- HK4 a hook that fails is tried again in windows of its own; it fails alone, with an alert, one for all runs
SELECT t.clean() \g /dev/null
SELECT t.workflow('fails', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "success", "agent": "payments", "call": {}, "recovery": {"max_failures": 2, "initial": "1 min", "jitter": false}}]}') \g /dev/null
SELECT run_id FROM sas.submit('fails');
SELECT t.work('{"hook": "transient 503"}');
SELECT t.brief(1);
SELECT attempt, failure_count, t.at(waiting_until) AS again, error ->> 'title' AS error FROM sas.hook_runs;
SELECT t.later('1 min') \g /dev/null
SELECT t.work('{"hook": "transient 503"}');
SELECT * FROM t.told(1);
SELECT t.brief(1);
SELECT * FROM t.alerts();
SELECT run_id FROM sas.submit('fails');
SELECT t.work('{"hook": "permanent 404"}');
SELECT kind, occurrences, message FROM t.alerts();
SELECT run_id, state, result, error FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- HK5 a run that starts later is told of at once; cancelled before it began it has failed; paused and resumed
SELECT t.clean() \g /dev/null
SELECT t.workflow('later', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": ["scheduled", "pending", "paused", "failure"], "function": "t.echo"}]}') \g /dev/null
SELECT run_id FROM sas.submit('later', start_at => t.start() + '1 hour');
SELECT * FROM t.told(1);
SELECT changed FROM sas.cancel(1);
SELECT t.work();
SELECT * FROM t.told(1);
SELECT run_id FROM sas.submit('later', start_at => t.start() + '1 hour');
SELECT t.later('1 hour') \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT t.claim('w') LIKE '%a%' AS begun;
SELECT changed FROM sas.pause(4);
SELECT t.answer('a');
SELECT changed FROM sas.resume(4);
SELECT t.work();
SELECT * FROM t.told(4);
SELECT t.brief(4);
-- paused by the rule of a step
SELECT t.workflow('stuck', '{"a": {"agent": "inventory", "call": {}}}', '{"on_failure": "pause", "hooks": [{"on": "paused", "function": "t.echo"}]}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('stuck');
SELECT t.work('{"a": "permanent 400"}');
SELECT * FROM t.told(1);

-- a run without steps comes to its states in one go
SELECT t.clean() \g /dev/null
SELECT t.workflow('empty', '{}', '{"hooks": [{"function": "t.echo"}]}') \g /dev/null
SELECT run_id FROM sas.submit('empty');
SELECT t.work();
SELECT * FROM t.told(1);

-- with the run's transaction, or not at all
SELECT t.clean() \g /dev/null
BEGIN;
SELECT run_id FROM sas.submit('empty');
ROLLBACK;
SELECT count(*) FROM sas.hook_runs;

-- a run keeps the hooks of its version; what they use cannot be dropped, and what waits to be told does not hold up a workflow
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('fails');
SELECT t.workflow('fails', '{"a": {"agent": "inventory", "call": {}}}', '{"hooks": [{"on": "success", "agent": "shipping", "call": {}}]}');
SELECT t.work('{"hook": "transient 503"}');
SELECT hook, target, state FROM sas.hook_runs;
SELECT sas.create_agent('listener', 'http://127.0.0.1:1') \g /dev/null
SELECT t.workflow('uses', '{}', '{"hooks": [{"on": "success", "agent": "listener", "call": {}}]}') \g /dev/null
SELECT sas.drop_agent('listener');
SELECT sas.drop_workflow('uses') \g /dev/null
SELECT sas.drop_agent('listener');
SELECT sas.drop_workflow('fails');
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT state, result FROM sas.hook_runs;
-- after the run's deadline, too
SELECT t.clean() \g /dev/null
SELECT t.workflow('brief', '{"a": {"agent": "inventory", "call": {}}}', '{"deadline": "1 min", "on_failure": "fail", "hooks": [{"on": "error", "function": "t.echo"}]}') \g /dev/null
SELECT run_id FROM sas.submit('brief');
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT * FROM t.told(1);
-- a run that waits for its turn is told of; what tells of it waits for no place, no queue and no pause of the workflow
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('hooks_queue', 1) \g /dev/null
SELECT t.workflow('turns', '{"a": {"agent": "inventory", "call": {}}}', '{"queue": "hooks_queue", "concurrency": {"key": "all"}, "hooks": [{"function": "t.echo"}]}') \g /dev/null
SELECT run_id FROM sas.submit_batch('turns', ARRAY['{}', '{}']::jsonb[]);
SELECT sas.pause_queue('hooks_queue'), sas.pause_workflow('turns');
SELECT t.work();
SELECT r.run_id, r.queue, r.state, t.hook, t.told, t.stands FROM sas.runs r CROSS JOIN LATERAL t.told(r.run_id) t ORDER BY 1, 5;
SELECT sas.resume_queue('hooks_queue'), sas.resume_workflow('turns');
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY run_id;
SELECT result, count(*) FROM sas.hook_runs GROUP BY 1;
-- a run that is open is not told of anew when a submit meets it; one that follows a run which ended otherwise fails, and that is told
SELECT t.clean() \g /dev/null
SELECT t.workflow('turns', '{"a": {"agent": "inventory", "call": {}}}', '{"concurrency": {"key": "one", "overlap": "return"}, "hooks": [{"on": ["pending", "scheduled", "error"], "function": "t.echo"}]}') \g /dev/null
SELECT run_id, created FROM sas.submit('turns');
SELECT run_id, created FROM sas.submit('turns');
SELECT changed FROM sas.cancel(1);
SELECT t.settle() \g /dev/null
SELECT run_id, created FROM sas.submit('turns', after_run => 1);
SELECT t.work();
SELECT * FROM t.told(1);
SELECT r.run_id, r.result, t.told, t.stands FROM sas.runs r CROSS JOIN LATERAL t.told(r.run_id) t ORDER BY 1, 3;
-- "run" in a call is the run of the event, not that of the hook
SELECT t.clean() \g /dev/null
SELECT t.workflow('named', '{}', '{"hooks": [{"on": "success", "agent": "payments", "call": {"method": "POST", "path": "/runs/{{ run.id }}",
    "body": {"id": "{{run.id}}", "key": "{{run.key}}", "tenant": "{{run.labels.tenant}}", "text": "{{run.key}} of {{run.id}}, not \\{{run.id}}"}}}]}') \g /dev/null
SELECT run_id FROM sas.submit('named', key => 'k', labels => '{"tenant": "x"}');
SELECT t.claim() FROM t.settle();
SELECT hook_run_id FROM sas.hook_runs;
SELECT asked ->> 'path' AS path, asked -> 'body' AS body FROM t.held;
SELECT t.answer('hook');
SELECT * FROM t.left_over();
SELECT sas.drop_workflow(w) FROM unnest('{all,shopping,ends,later,stuck,empty,brief,turns,named}'::text[]) w \g /dev/null
DELETE FROM _sas.workflow_version v USING _sas.workflow w WHERE w.workflow_id = v.workflow_id AND w.dropped_at IS NOT NULL;
SELECT count(*) AS hooks_left FROM _sas.workflow_hook;
SELECT sas.drop_queue('hooks_queue');
