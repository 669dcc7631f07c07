-- SPDX-License-Identifier: PostgreSQL
--
-- Polls: a call begins something, and the step asks how it goes until it is
-- over. Between two asks nobody holds it.
SELECT t.clean() \g /dev/null
SELECT t.workflow('job', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"},
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.body.state == \"done\"", "progress": "{{output.body.done}}"}},
    "use": {"function": "t.echo", "input": {"what": "{{steps.job.output.body}}", "from": "{{steps.job.started.body.id}}"}}}') \g /dev/null

-- PO1 the call once, under its key; then it is asked, without one, until it is over
SELECT run_id FROM sas.submit('job');
SELECT t.claim();
SELECT step, asked ->> 'method' AS method, asked ->> 'path' AS path, key <> 'none' AS has_key FROM t.held;
SELECT t.answer('job', output => '{"status": 202, "body": {"id": 7}}');
SELECT t.settle();
SELECT * FROM t.show(1);
SELECT started, asks, progress FROM sas.steps WHERE step = 'job';
SELECT t.claim();
SELECT t.later('1 s');
SELECT t.settle();
SELECT t.claim();
SELECT step, asked ->> 'method' AS method, asked ->> 'path' AS path, key <> 'none' AS has_key FROM t.held;
-- PO6 progress comes from the reply; what is no number changes nothing, what is beyond is cut
SELECT t.answer('job', output => '{"status": 200, "body": {"state": "busy", "done": 0.3}}');
SELECT state, asks, progress, waiting_kind, waiting_on, t.at(waiting_until) FROM sas.steps WHERE step = 'job';
-- PO2 the pause doubles, up to ten times the first
CREATE FUNCTION pg_temp.next(answer jsonb) RETURNS interval LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.set_clock((SELECT waiting_until FROM sas.steps WHERE step = 'job'));
    PERFORM t.work(jsonb_build_object('job', answer));
    RETURN (SELECT waiting_until FROM sas.steps WHERE step = 'job') - sas.now();
END $$;
SELECT pg_temp.next('{"status": 200, "body": {"done": "half"}}') AS pause FROM generate_series(1, 2);
SELECT asks, progress FROM sas.steps WHERE step = 'job';
SELECT pg_temp.next('{"status": 200, "body": {"done": 7}}') AS pause FROM generate_series(1, 3);
SELECT asks, progress FROM sas.steps WHERE step = 'job';
SELECT t.later('10 s');
SELECT t.work('{"job": {"status": 200, "body": {"state": "done", "url": "/x"}}}');
SELECT t.brief(1);
SELECT step, output, attempt, asks, progress FROM sas.steps ORDER BY step;
SELECT step, attempt, status, http_status FROM sas.attempts ORDER BY step, attempt;
SELECT * FROM t.left_over();

-- PO3 asks that fail are windows as any other, and one that is answered forgets them
SELECT t.clean() \g /dev/null
SELECT t.workflow('shaky', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "recovery": {"max_failures": 3, "initial": "5 s"},
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "every": "2 s", "max_every": "2 s", "until": "$.output.body.state == \"done\""},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('shaky');
SELECT t.work();
SELECT t.later('2 s');
SELECT t.work('{"job": "doubt"}');
SELECT * FROM t.show(1);
SELECT t.later('5 s');
SELECT t.work('{"job": "transient 503"}');
SELECT t.later('10 s');
SELECT t.work('{"job": {"status": 200, "body": {}}}');
SELECT * FROM t.show(1);
SELECT t.later('2 s');
SELECT t.work('{"job": "transient 503"}');
SELECT t.later('5 s');
SELECT t.work('{"job": "transient 503"}');
SELECT t.later('10 s');
-- the third in a row is one too many: the rule decides
SELECT t.work('{"job": "transient 503"}');
SELECT * FROM t.show(1);
-- PO4 resume asks about the same job, and calls nothing again
SELECT changed FROM sas.resume(1);
SELECT t.claim() FROM t.settle();
SELECT asked ->> 'path' AS path FROM t.held;
SELECT t.answer('job', output => '{"status": 200, "body": {"state": "done"}}');
SELECT t.brief(1);
SELECT step, attempt, status, http_status FROM sas.attempts ORDER BY step, attempt;

-- an ask that is refused has failed for good: the job is undone, though it has not ended well
SELECT run_id FROM sas.submit('shaky');
SELECT t.work();
SELECT t.later('2 s');
SELECT t.claim() FROM t.settle();
SELECT t.answer('job', 'permanent 404');
SELECT t.brief(2);
SELECT t.settle();
SELECT t.claim();
SELECT undo, asked ->> 'path' AS path FROM t.held;
SELECT t.answer('job');
SELECT t.settle();
SELECT t.brief(2);
SELECT * FROM t.left_over();

-- PO5 a time-out counts from the start, and is a permanent failure
SELECT t.clean() \g /dev/null
SELECT t.workflow('slow', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "on_failure": "pause",
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "every": "2 s", "max_every": "2 s", "until": "$.output.body.state == \"done\"", "timeout": "5 s"}}}') \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.work();
SELECT t.later('2 s');
SELECT t.work('{"job": {"status": 200, "body": {}}}');
SELECT t.later('2 s');
SELECT t.work('{"job": {"status": 200, "body": {}}}');
SELECT * FROM t.show(1);
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {}}}');
SELECT * FROM t.show(1);
SELECT error, asks FROM sas.steps;
-- after resume it has its time again
SELECT changed FROM sas.resume(1);
SELECT t.work('{"job": {"status": 200, "body": {}}}');
SELECT * FROM t.show(1);
SELECT t.later('2 s');
SELECT t.work('{"job": {"status": 200, "body": {"state": "done"}}}');
SELECT t.brief(1);
-- an ask never outlasts the time, and cooling off does not either
SELECT run_id FROM sas.submit('slow');
SELECT t.work();
SELECT t.later('2 s');
SELECT t.settle();
SELECT t.claim();
SELECT window_ms FROM t.held;
SELECT t.answer('job', 'transient 503');
SELECT t.settle();
SELECT t.at(waiting_until) - t.at(sas.now()) AS cools_off FROM sas.steps WHERE run_id = 2;
SELECT t.later('3 s');
SELECT t.work();
SELECT * FROM t.show(2);
-- an answer in time that was not over before the time was
SELECT changed FROM sas.resume(2);
SELECT t.settle();
SELECT t.claim();
SELECT t.later('4.5 s') FROM t.answer('job', output => '{"status": 200, "body": {}}');
SELECT t.settle();
SELECT t.claim();
SELECT window_ms FROM t.held;
SELECT t.later('700 ms');
SELECT t.answer('job', output => '{"status": 200, "body": {}}');
SELECT error ->> 'title' AS title FROM sas.steps WHERE run_id = 2;
SELECT t.work();

-- a pause: nothing is asked and nothing fails for it
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow');
SELECT t.work();
SELECT changed FROM sas.pause(1);
SELECT t.later('1 hour');
SELECT t.work();
SELECT t.brief(1);
SELECT changed FROM sas.resume(1);
SELECT t.work('{"job": {"status": 200, "body": {"state": "done"}}}');
SELECT t.brief(1);

-- undo: it counts as done once its call has succeeded, wherever it is
SELECT t.clean() \g /dev/null
SELECT t.workflow('beside', '{
    "first": {"agent": "inventory", "call": {"path": "/first"}, "undo": {"call": {"method": "DELETE", "path": "/first"}}},
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "after": ["first"],
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.body.state == \"done\""},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}", "query": {"was": "{{steps.job.output.body.state?}}"}}}},
    "other": {"agent": "shipping", "call": {"path": "/other"}, "after": ["first"]}}') \g /dev/null
-- suspended
SELECT run_id FROM sas.submit('beside');
SELECT t.work();
SELECT t.brief(1);
SELECT changed FROM sas.cancel(1);
SELECT t.brief(1);
SELECT t.settle();
SELECT t.claim();
SELECT undo, asked FROM t.held;
SELECT t.answer('job');
SELECT t.work();
SELECT t.brief(1);
-- ready to be asked about
SELECT run_id FROM sas.submit('beside');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.settle();
SELECT changed FROM sas.cancel(2);
SELECT t.work();
SELECT t.brief(2);
-- while it is asked: an answer that it is not over, a failure, and the claim given back
SELECT run_id FROM sas.submit_batch('beside', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.work();
SELECT t.later('1 s');
SELECT t.settle();
SELECT t.claim();
SELECT count(*) FROM sas.compensate_runs('{3,4,5}'::bigint[]);
SELECT t.answer('job', for_run => 3, output => '{"status": 200, "body": {}}'), t.answer('job', 'doubt', for_run => 4), t.answer('job', 'hand_back', for_run => 5);
SELECT t.brief(3);
SELECT t.work();
SELECT t.brief(3), t.brief(4), t.brief(5);
-- while it is asked, and it is over: it has succeeded, and is undone with its output
SELECT run_id FROM sas.submit('beside');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.settle();
SELECT t.claim();
SELECT count(*) FROM sas.compensate(6);
SELECT t.answer('job', output => '{"status": 200, "body": {"state": "done"}}');
SELECT t.settle();
SELECT t.claim();
SELECT asked -> 'query' AS query FROM t.held;
SELECT t.answer('job');
SELECT t.work();
-- while it is begun
SELECT run_id FROM sas.submit('beside');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('first');
SELECT t.claim();
SELECT count(*) FROM sas.compensate(7);
SELECT t.answer('job'), t.answer('other');
SELECT t.brief(7);
SELECT t.work();
SELECT t.brief(7);
-- begun, and nobody knows: it is settled by its call, under its key, then undone
SELECT run_id FROM sas.submit('beside');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('first');
SELECT t.claim();
SELECT count(*) FROM sas.compensate(8);
SELECT t.answer('job', 'doubt'), t.answer('other');
SELECT t.settle();
SELECT t.later('10 s');
SELECT t.settle();
SELECT t.claim();
SELECT undo, asked ->> 'method' AS method, key = (SELECT s.idempotency_key FROM sas.steps s WHERE s.run_id = 8 AND s.step = 'job') AS its_key FROM t.held;
SELECT t.answer('job');
SELECT t.work();
SELECT t.brief(8);
SELECT * FROM t.left_over();

-- expect is asked of the reply to the call; what it began is undone, and is called again by a retry
SELECT t.clean() \g /dev/null
SELECT t.workflow('picky', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "expect": "$.output.body.ok == true", "output": {"started": "{{started.body.id}}", "is": "{{output.body.what}}"},
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.body.state == $.started.body.wants"},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}"}}}}') \g /dev/null
SELECT * FROM t.try('picky', '{"job": {"status": 200, "body": {"id": 1, "ok": false}}}');
SELECT run_id FROM sas.submit('picky');
SELECT t.work('{"job": {"status": 200, "body": {"id": 2, "ok": true, "wants": "x"}}}');
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {"state": "x", "what": "y"}}}');
SELECT state, output FROM sas.steps WHERE run_id = 2;
-- neither true nor false, and an output that cannot be made, fail for good
SELECT t.workflow('neither', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "poll": {"call": {"path": "/jobs"}, "until": "$.output.body.n > 3"}}}') \g /dev/null
SELECT run_id FROM sas.submit('neither');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {"n": "four"}}}');
SELECT t.brief(3), error FROM sas.steps WHERE run_id = 3;
SELECT run_id FROM sas.submit('picky');
SELECT t.work('{"job": {"status": 200, "body": {"id": 2, "ok": true, "wants": 1}}}');
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {"state": 1, "url": 7}}}');
SELECT t.brief(4);

-- a worker that dies while it asks leaves nothing in doubt
SELECT run_id FROM sas.submit('neither');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.settle();
SELECT t.claim('gone');
UPDATE t.worker SET alive = false WHERE name = 'gone';
SELECT t.settle();
SELECT * FROM t.show(5);
DELETE FROM t.held;
SELECT t.later('10 s');
SELECT t.work('{"job": {"status": 200, "body": {"n": 4}}}');
SELECT t.brief(5);

-- in a map each element begins and is asked about by itself; with a condition
SELECT t.clean() \g /dev/null
SELECT t.workflow('many', '{
    "job": {"agent": "payments", "each": "{{input.ids}}", "when": "$.input.go == true", "call": {"method": "POST", "path": "/jobs/{{item}}"},
            "poll": {"call": {"path": "/jobs/{{item}}/{{started.body.id}}"}, "until": "$.output.body.state == \"done\""},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}"}}}}', '{"output": {"all": "{{steps.job.output}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('many', '{"go": true, "ids": [1, 2]}');
SELECT run_id FROM sas.submit('many', '{"go": false, "ids": [1, 2]}');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.settle();
SELECT t.claim();
SELECT element, asked ->> 'path' AS path FROM t.held ORDER BY element;
SELECT t.answer('job', for_element => 1, output => '{"status": 200, "body": {"state": "done"}}'), t.answer('job', for_element => 2, output => '{"status": 200, "body": {}}');
SELECT t.brief(1), t.brief(2);
SELECT t.later('2 s');
SELECT t.work('{"job[2]": "permanent 410"}');
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- What the call has begun is gone: a retry under a new key, of the step by name, makes the call again; the undo knows the new one only
SELECT t.clean() \g /dev/null
SELECT t.workflow('gone', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "on_failure": "pause",
            "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.body.state == \"done\"", "timeout": "1 min", "progress": "{{output.body.done}}"},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}", "headers": {"x-key": "{{steps.job.key}}"}}}},
    "last": {"wait": {"signal": "go"}, "after": ["job"]}}') \g /dev/null
SELECT run_id FROM sas.submit('gone');
SELECT t.claim();
SELECT key AS first_key FROM t.held \gset
SELECT t.answer('job', output => '{"status": 202, "body": {"id": 7}}') FROM t.settle();
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {"done": 0.5}}}');
SELECT t.later('2 s');
SELECT t.work('{"job": "permanent 404"}');
SELECT * FROM t.show(1);
-- all that has failed is too wide a word for that; without a new key the same job is asked about
SELECT changed, refused FROM sas.retry(1, new_key => true);
SELECT started -> 'body' AS started, asks, progress FROM sas.steps WHERE step = 'job';
SELECT changed FROM sas.retry(1, 'job', new_key => true);
SELECT started, asks, progress FROM sas.steps WHERE step = 'job';
SELECT t.claim() FROM t.settle();
SELECT step, asked ->> 'method' AS method, asked ->> 'path' AS path, key <> :'first_key' AS other_key FROM t.held;
SELECT t.answer('job', output => '{"status": 202, "body": {"id": 8}}') FROM t.settle();
SELECT started -> 'body' AS started, asks, state, waiting_kind FROM sas.steps WHERE step = 'job';
-- between two asks it has not failed; under a new key it is begun anew all the same
SELECT changed, refused FROM sas.retry(1, 'job');
SELECT changed FROM sas.retry(1, 'job', new_key => true);
SELECT t.work('{"job": {"status": 202, "body": {"id": 9}}}') FROM t.settle();
SELECT started -> 'body' AS started, asks, state FROM sas.steps WHERE step = 'job';
SELECT t.later('1 s');
SELECT t.work('{"job": {"status": 200, "body": {"state": "done"}}}');
SELECT changed FROM sas.cancel(1);
SELECT t.claim() FROM t.settle();
SELECT undo, asked ->> 'path' AS path FROM t.held;
SELECT t.answer('job');
SELECT t.settle();
SELECT t.brief(1);
SELECT * FROM t.left_over();
