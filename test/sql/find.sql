-- SPDX-License-Identifier: PostgreSQL
--
-- Find: runs and steps are found by plain queries over the views; what is not
-- asked for is not read.
SELECT t.clean() \g /dev/null
SELECT t.workflow('find', '{"a": {"agent": "inventory", "call": {"body": "{{input.host}}"}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}}', '{"on_failure": "pause"}') \g /dev/null
SELECT t.workflow('other', '{"a": {"function": "t.echo"}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('find', ARRAY['{"host": 5}', '{"host": 6}', '{"host": 5}', '{"host": 7}']::jsonb[], ARRAY['k1', 'k2', 'k3', 'k4'], labels => '{"team": "net"}');
SELECT run_id FROM sas.submit('other', labels => '{"team": "web"}');
SELECT run_id FROM sas.submit('other', start_at => t.start() + interval '1 day');
SELECT changed FROM sas.pause_runs(ARRAY[2, 3]);
SELECT t.later('2 h');
SELECT t.work('{"b": "permanent 402"}');

-- PE1 UI1 UI6 by state, workflow, label, input, duration, who; several at once, in order, page by page
SELECT run_id, workflow, state, result FROM sas.runs ORDER BY run_id;
SELECT run_id FROM sas.runs WHERE state IN ('paused', 'stopped') AND workflow = 'find' ORDER BY created_at DESC, run_id DESC LIMIT 2;
SELECT run_id FROM sas.runs WHERE state IN ('paused', 'stopped') AND workflow = 'find' ORDER BY created_at DESC, run_id DESC LIMIT 2 OFFSET 2;
SELECT run_id FROM sas.runs WHERE state = ANY ('{}') ORDER BY 1;
SELECT run_id FROM sas.runs WHERE labels @> '{"team": "web"}' ORDER BY 1;
SELECT run_id FROM sas.runs WHERE input ->> 'host' = '5' AND coalesce(finished_at, sas.now()) - created_at >= '1 h' ORDER BY 1;
SELECT run_id FROM sas.runs WHERE state = 'scheduled' AND start_at > sas.now() ORDER BY 1;
SELECT DISTINCT run_id FROM sas.steps WHERE agent = 'payments' AND error ->> 'title' LIKE '%402%' ORDER BY 1;
SELECT run_id FROM sas.runs WHERE colour = 'red';

-- PE2 counts, states by id, what ended after an instant
SELECT state, result, count(*) FROM sas.runs GROUP BY 1, 2 ORDER BY 1, 2;
SELECT jsonb_object_agg(run_id, concat_ws('/', state, result)) FROM sas.runs;
SELECT count(*) FROM sas.runs WHERE finished_at > t.start() + interval '1 h';

-- PE3 inputs are made of templates only where they are asked for
CREATE FUNCTION pg_temp.plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query; END $$;
SELECT bool_or(p LIKE '%_step_input%') AS reads_input, bool_or(p LIKE '%_step_key%') AS makes_keys FROM pg_temp.plan('SELECT run_id, step, state FROM sas.steps') p;
SELECT bool_or(p LIKE '%_step_input%') AS reads_input FROM pg_temp.plan('SELECT run_id, input FROM sas.steps') p;
SELECT t.clean() \g /dev/null
