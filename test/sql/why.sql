-- SPDX-License-Identifier: PostgreSQL
--
-- Why: every way in which a run can wait is told by sas.steps, where it
-- groups, and by sas.explain in words; both stop telling it when it is over.
-- The rate of an agent, its places and its workers need workers: test/t/131_doors.pl.
SELECT t.clean() \g /dev/null
SET timezone = 'UTC';
CREATE FUNCTION pg_temp.why(id bigint) RETURNS TABLE (step text, kind text, waits_on text, until interval, since interval) LANGUAGE sql AS $$
    SELECT s.step || coalesce('[' || s.element || ']', ''), s.waiting_kind, s.waiting_on, t.at(s.waiting_until), t.at(s.waiting_since)
    FROM sas.steps s WHERE s.run_id = id AND s.waiting_kind IS NOT NULL ORDER BY s.step, s.element NULLS FIRST
$$;
CREATE FUNCTION pg_temp.words(id bigint) RETURNS SETOF text LANGUAGE sql AS $$ SELECT e.text FROM sas.explain(id) e $$;
CREATE FUNCTION pg_temp.id(workflow text, input jsonb DEFAULT '{}', start_at timestamptz DEFAULT NULL, after_run bigint DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$ SELECT run_id FROM sas.submit(workflow, input, start_at => start_at, after_run => after_run) $$;
CREATE FUNCTION pg_temp.agent(name text) RETURNS int LANGUAGE sql AS $$ SELECT agent_id FROM _sas.agent a WHERE a.name = $1 AND dropped_at IS NULL $$;

-- UI3 IO9 for its agent, other steps, its worker, the supervisor, the end of a cool-off, an operator
SELECT t.workflow('order', '{"reserve": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "charge": {"agent": "payments", "call": {}, "undo": {"agent": "shipping", "call": {}}, "after": ["reserve"]},
    "book": {"function": "t.echo", "after": ["charge"]}, "send": {"agent": "shipping", "call": {}, "after": ["charge", "book"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT pg_temp.id('order') AS id \gset
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.claim();
SELECT t.later('3 s');
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.answer('reserve');
SELECT t.claim();
SELECT t.answer('charge', 'transient 503');
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.supervise();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT changed FROM sas.pause(:id);
SELECT t.later('10 s');
SELECT t.settle();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT changed FROM sas.resume(:id);
SELECT t.claim();
SELECT t.answer('charge');
-- for a function worker
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.claim();
SELECT * FROM pg_temp.why(:id);
-- what is done waits for the undo of what was done after it, and that for its agent and its worker
SELECT t.answer('book');
SELECT t.claim();
SELECT t.answer('send', 'permanent 402');
SELECT t.settle();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.claim();
SELECT * FROM pg_temp.why(:id);
-- an undo that failed for good waits for an operator
SELECT t.answer('charge', 'permanent 409');
SELECT t.settle();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT changed FROM sas.resume(:id);
SELECT t.work();
SELECT count(*) FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);

-- for what an agent waits: its breaker, an administrator, a secret. It is looked up, not stored: it is right at once
SELECT t.clean() \g /dev/null
SELECT t.workflow('one', '{"one": {"agent": "payments", "call": {}}, "two": {"agent": "shipping", "call": {}, "after": ["one"]}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('one', array_fill('{}'::jsonb, ARRAY[300]));
SELECT _sas.write_health(ARRAY[pg_temp.agent('payments')], '{open}', '{30000}', ARRAY['{"title": "the service answered 503"}'::jsonb]);
SELECT waiting_kind, waiting_on, count(*), t.at(min(waiting_until)) AS until FROM sas.steps GROUP BY 1, 2 ORDER BY 1, 2;
SELECT runs, steps, t.at(since) AS since, t.at(until) AS until, text FROM sas.explain();
SELECT * FROM pg_temp.words(1);
SELECT t.later('40 s');
SELECT waiting_kind, waiting_until FROM sas.steps WHERE run_id = 1;
SELECT text FROM sas.explain();
SELECT _sas.write_health(ARRAY[pg_temp.agent('payments')], '{closed}', '{0}', ARRAY[NULL]::jsonb[]);
SELECT text FROM sas.explain();
SELECT sas.alter_agent('payments', enabled => false);
SELECT waiting_kind, waiting_on, text FROM sas.explain();
SELECT sas.alter_agent('payments', enabled => true);
SELECT sas.set_secret('why_token', 'sesame');
SELECT sas.alter_agent('payments', headers => '{"X-Token": "{{secret.why_token}}"}');
SELECT waiting_kind FROM sas.explain();
DELETE FROM _sas.secret WHERE name = 'why_token';
SELECT waiting_kind, waiting_on, text FROM sas.explain();
SELECT sas.alter_agent('payments', reset => '{headers}');
SELECT waiting_kind FROM sas.explain();

-- the places of an external agent; a task that an outside program gave back until later
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('why_packer', kind => 'external', max_in_flight => 1);
SELECT t.workflow('pack', '{"pack": {"agent": "why_packer", "task": {}}}') \g /dev/null
SELECT pg_temp.id('pack') FROM generate_series(1, 2);
SELECT * FROM pg_temp.words(1);
SELECT request_id FROM sas.claim('why_packer', 'program 1') \gset
SELECT run_id, w.* FROM sas.runs, pg_temp.why(run_id) w ORDER BY 1;
SELECT w FROM sas.runs, pg_temp.words(run_id) WITH ORDINALITY AS x (w, n) ORDER BY run_id, n;
SELECT sas.fail(:'request_id', 'the paper is out');
SELECT run_id, step, kind, waits_on, until > since AS later FROM sas.runs, pg_temp.why(run_id) w ORDER BY 1;

-- queues: their places, and their pause
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('why_imports', 1);
SELECT t.workflow('import', '{"one": {"function": "t.echo"}}', '{"queue": "why_imports"}') \g /dev/null
SELECT pg_temp.id('import') FROM generate_series(1, 2);
SELECT t.schedule();
SELECT run_id, w.* FROM sas.runs, pg_temp.why(run_id) w ORDER BY 1;
SELECT waiting_kind, waiting_on, text FROM sas.explain() ORDER BY 1;
SELECT sas.pause_queue('why_imports');
SELECT t.schedule();
SELECT waiting_kind, waiting_on, runs, text FROM sas.explain();

-- waits: a signal with and without an end, a time; a step that the scheduler has not looked at yet
SELECT t.clean() \g /dev/null
SELECT t.workflow('waits', '{"signal": {"wait": {"signal": "decision", "timeout": "2 days"}}, "ever": {"wait": {"signal": "decision"}}, "time": {"wait": {"for": "90 s"}}}') \g /dev/null
SELECT pg_temp.id('waits') AS id \gset
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.settle();
SELECT t.later('5 s');
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);

-- a poll, until it is asked again; after "leave me alone" of a service
SELECT t.clean() \g /dev/null
SELECT t.workflow('job', '{"job": {"agent": "payments", "call": {}, "poll": {"call": {}, "every": "20 s", "until": "$.output.body.over == true"}}}') \g /dev/null
SELECT pg_temp.id('job') AS id \gset
SELECT t.claim();
SELECT t.answer('job', output => '{"status": 202, "body": {}}');
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.later('20 s');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('job', output => '{"status": 200, "body": {"over": false}}');
SELECT * FROM pg_temp.words(:id);
SELECT t.later('5 min');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('job', 'hand_back', again_in => '2 min');
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);

-- elements of a map, the next turn of a step that repeats, child runs and what those wait for, a fallback
SELECT t.clean() \g /dev/null
SELECT t.workflow('child', '{"ask": {"wait": {"signal": "yes"}}}') \g /dev/null
SELECT t.workflow('many', '{"map": {"function": "t.echo", "each": "{{input.l}}"}, "turns": {"function": "t.echo", "repeat": {"while": "$.index < 3", "every": "1 min"}},
    "child": {"workflow": "child"}, "children": {"workflow": "child", "each": "{{input.l}}", "concurrency": 2}}') \g /dev/null
SELECT pg_temp.id('many', '{"l": [1, 2, 3, 4, 5]}') AS id \gset
SELECT t.settle();
SELECT * FROM pg_temp.why(:id);
SELECT t.claim(quantity => 3);
SELECT t.answer('map', for_element => 1);
SELECT * FROM pg_temp.why(:id);
SELECT * FROM sas.explain(:id);
SELECT t.work();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);
SELECT t.workflow('instead', '{"one": {"agent": "payments", "call": {}, "fallback": {"agent": "shipping", "call": {}}}}') \g /dev/null
SELECT pg_temp.id('instead') AS id \gset
SELECT t.claim();
SELECT t.answer('one', 'permanent 402');
SELECT t.settle();
SELECT * FROM pg_temp.why(:id);
SELECT * FROM pg_temp.words(:id);

-- several elements in one sentence
SELECT t.clean() \g /dev/null
SELECT t.workflow('several', '{"m": {"agent": "payments", "call": {}, "each": "{{input.l}}"}}') \g /dev/null
SELECT pg_temp.id('several', '{"l": [1, 2, 3]}') AS id \gset
SELECT t.settle();
SELECT t.claim(quantity => 3);
SELECT * FROM pg_temp.words(:id);
SELECT t.answer('m', 'transient 503', for_element => 1), t.answer('m', 'transient 503', for_element => 2), t.answer('m', for_element => 3);
SELECT * FROM pg_temp.words(:id);
SELECT t.settle();
SELECT * FROM pg_temp.words(:id);

-- runs that have not begun: an earlier run, a set start, the pause of the workflow, a place under their key, the scheduler
SELECT t.clean() \g /dev/null
SELECT t.workflow('keyed', '{"one": {"function": "t.echo"}, "two": {"function": "t.echo", "after": ["one"]}}', '{"concurrency": {"key": "{{input.k}}"}}') \g /dev/null
SELECT pg_temp.id('keyed', '{"k": "acme"}') AS first \gset
SELECT * FROM pg_temp.why(:first);
SELECT t.schedule();
SELECT pg_temp.id('keyed', '{"k": "acme"}') AS place \gset
SELECT pg_temp.id('one', after_run => :first) AS follows \gset
SELECT pg_temp.id('one', start_at => t.start() + interval '2 h') AS later \gset
SELECT sas.pause_workflow('one');
SELECT pg_temp.id('one') AS held \gset
SELECT t.schedule();
SELECT run_id, w.* FROM sas.runs, pg_temp.why(run_id) w ORDER BY 1, 2;
SELECT w FROM sas.runs, pg_temp.words(run_id) WITH ORDINALITY AS x (w, n) ORDER BY run_id, n;
SELECT waiting_kind, waiting_on, runs, text FROM sas.explain() ORDER BY 1;
SELECT sas.resume_workflow('one');

-- a deadline that has passed
SELECT t.later('31 days');
SELECT pg_temp.words(:first) LIMIT 1;

-- no such run
\set SHOW_CONTEXT never
SELECT * FROM sas.explain(4711);
SELECT * FROM sas.timeline(4711);
SELECT sas.graph(4711);
SELECT sas.console(4711);
SELECT sas.graph_workflow('no_such_workflow');
SELECT sas.graph(1, 'gif');
SELECT * FROM sas.timeline(1, width => 3);

-- the timeline: attempts, waits, what goes on, on one axis; the first attempt of what is undone is there too
SELECT t.clean() \g /dev/null
SELECT t.workflow('tale', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"wait": {"for": "20 s"}, "after": ["a"]}, "c": {"agent": "payments", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT pg_temp.id('tale') AS id \gset
SELECT t.claim();
SELECT t.later('10 s');
SELECT t.answer('a');
SELECT t.settle();
SELECT * FROM sas.timeline(:id, 20);
SELECT t.later('20 s');
SELECT t.settle();
SELECT t.claim();
SELECT t.later('5 s');
SELECT * FROM sas.timeline(:id, 35);
SELECT t.answer('c', 'permanent 402');
SELECT t.settle();
SELECT t.claim();
SELECT t.later('5 s');
SELECT t.answer('a');
SELECT t.settle();
SELECT step, attempt, undo, status, took, bar FROM sas.timeline(:id, 40);
SELECT step, attempt, undo, status FROM sas.attempts ORDER BY started_at, undo;

-- the graph: steps with their states, points where flows meet, a fallback once it is there; of a workflow, what is defined
\pset format unaligned
\pset tuples_only on
SELECT sas.graph(:id);
SELECT sas.graph(:id, 'dot');
SELECT t.workflow('shapes', '{"a": {"function": "t.echo"}, "b": {"function": "t.echo"}, "c": {"agent": "payments", "call": {}, "fallback": {"agent": "shipping", "call": {}}}, "i": {"include": "one"}}',
    '{"flow": {"sequence": [{"concurrence": ["a", "b"]}, {"concurrence": ["c", "i"]}]}, "finalize": "t.echo"}') \g /dev/null
SELECT sas.graph_workflow('shapes');
SELECT pg_temp.id('shapes') AS id \gset
SELECT t.work('{"c": "permanent 402", "c.fallback": "permanent 402"}') \g /dev/null
SELECT sas.graph(:id);
SELECT _sas.mermaid_text(E'a "b" <c> #d; `e` & \n'), _sas.dot_text(E'a "b" \\ \n');
SELECT t.clean() \g /dev/null

-- in doubt, and then refused: what was tried first may have been carried out; explain and the alert say how that is settled
SELECT t.clean() \g /dev/null
SELECT t.workflow('doubted', '{"a": {"agent": "payments", "call": {"method": "POST"}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('doubted');
SELECT t.work('{"a": "doubt"}');
SELECT t.later('1 h');
SELECT t.work('{"a": "permanent 422"}');
SELECT text FROM sas.explain(1) WHERE step = 'a';
SELECT message FROM sas.alerts;
SELECT changed FROM sas.retry(1, 'a', new_key => true);
SELECT t.work('{"a": "permanent 422"}');
SELECT text FROM sas.explain(1) WHERE step = 'a';
SELECT message FROM sas.alerts WHERE closed_at IS NULL;
