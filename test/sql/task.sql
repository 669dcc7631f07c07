-- SPDX-License-Identifier: PostgreSQL
--
-- Tasks: outside programs claim them, extend their lease, report, fail, or give them back.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('packer', kind => 'external', retry => '{"max_attempts": 3, "initial": "1 s", "jitter": false}') \g /dev/null

-- t.take(worker, quantity, lease): claims and keeps what it got, by step; says what and until when
CREATE TABLE t.taken (n bigint GENERATED ALWAYS AS IDENTITY, worker text, request_id uuid, run_id bigint, step text, undo boolean, key text, request jsonb, checkpoint jsonb, lease_until timestamptz);
CREATE FUNCTION t.take(worker text DEFAULT 'p1', quantity int DEFAULT 1, lease interval DEFAULT '30 s') RETURNS text LANGUAGE sql AS $$
    WITH c AS (
        INSERT INTO t.taken (worker, request_id, run_id, step, undo, key, request, checkpoint, lease_until)
        SELECT $1, c.* FROM sas.claim('packer', $1, $2, $3) c RETURNING *)
    SELECT coalesce(string_agg(CASE WHEN undo THEN 'undo ' ELSE '' END || step || ' of run ' || run_id || ' until ' || t.at(lease_until) || coalesce(', checkpoint ' || checkpoint::text, ''), '; ' ORDER BY n), 'nothing') FROM c
$$;
-- t.holds(worker, run): the request_id of what this one took last
CREATE FUNCTION t.holds(worker text DEFAULT 'p1', of_run bigint DEFAULT NULL) RETURNS uuid LANGUAGE sql AS $$
    SELECT request_id FROM t.taken WHERE taken.worker = $1 AND (of_run IS NULL OR run_id = of_run) ORDER BY n DESC LIMIT 1
$$;
SELECT t.workflow('pack', '{"pack": {"agent": "packer", "task": {}, "input": {"sku": "{{input.sku}}"}, "undo": {"task": {}, "input": {"was": "{{steps.pack.output.box}}"}}},
                            "ship": {"agent": "shipping", "call": {"body": {"box": "{{steps.pack.output.box}}"}}}}') \g /dev/null

-- a task is claimed with its argument and its key, and held until the lease ends
SELECT run_id FROM sas.submit('pack', '{"sku": "a-1"}');
SELECT step, kind, agent, state, waiting_kind, waiting_on, progress FROM sas.steps ORDER BY step;
SELECT name, kind, in_flight, waiting, breaker FROM sas.agents WHERE name = 'packer';
SELECT t.claim();
SELECT t.take();
SELECT step, state, locked_by, t.at(complete_by) AS complete_by, waiting_kind, t.at(waiting_until) AS until, input, progress FROM sas.steps WHERE step = 'pack';
SELECT name, in_flight, waiting FROM sas.agents WHERE name = 'packer';
SELECT request, checkpoint, key = (SELECT idempotency_key FROM sas.steps WHERE step = 'pack') AS same_key FROM t.taken;
SELECT t.take('p2');
-- done: what waited for it goes on
SELECT sas.complete(t.holds(), '{"box": 7}');
SELECT step, state, locked_by, output, progress FROM sas.steps ORDER BY step;
SELECT name, in_flight, waiting FROM sas.agents WHERE name = 'packer';
SELECT sas.complete(t.holds(), '{"box": 8}');
SELECT t.work();
SELECT * FROM t.show(1);
SELECT step, attempt, status, worker FROM sas.attempts ORDER BY 1;
SELECT * FROM t.left_over();
SELECT count(*) FROM _sas.task;

-- heartbeats extend the lease; progress and checkpoint are kept
SELECT run_id FROM sas.submit('pack', '{"sku": "a-2"}');
SELECT t.take();
SELECT t.later('20 s') \g /dev/null
SELECT sas.heartbeat(t.holds());
SELECT t.later('20 s') \g /dev/null
SELECT sas.heartbeat(t.holds(), 0.4, '{"page": 4}');
SELECT sas.heartbeat(t.holds(), 0.5);
SELECT t.at(complete_by) AS complete_by, progress FROM sas.steps WHERE run_id = 2 AND step = 'pack';
SELECT t.supervise(), t.brief(2);
-- a silent one loses it: a failure, in doubt, and it cools off
SELECT t.later('30 s') \g /dev/null
SELECT sas.heartbeat(t.holds());
SELECT sas.complete(t.holds(), '{}');
SELECT stale_replies FROM sas.agents WHERE name = 'packer';
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(2);
SELECT step, attempt, worker, status, error ->> 'title' AS title, t.at(started_at) AS started, t.at(finished_at) AS finished FROM sas.attempts WHERE run_id = 2;
SELECT name, in_flight FROM sas.agents WHERE name = 'packer';
-- also when it comes after that
SELECT sas.complete(t.holds(), '{}'), sas.fail(t.holds(), 'late'), sas.hand_back(t.holds()), sas.heartbeat(t.holds());
SELECT stale_replies FROM sas.agents WHERE name = 'packer';
-- the next one goes on from the checkpoint, under the same key
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT t.take('p2', lease => '1 min');
SELECT count(DISTINCT key) AS keys, count(DISTINCT request_id) AS claims FROM t.taken WHERE run_id = 2;
SELECT sas.complete(t.holds('p1'), '{}'), sas.complete(t.holds('p2'), '{"box": 9}');
SELECT t.work(), t.brief(2);
SELECT attempt, worker, status FROM sas.attempts WHERE run_id = 2 AND step = 'pack' ORDER BY 1;

-- given back: nothing counted, at once there for others, the checkpoint stays
SELECT run_id FROM sas.submit('pack', '{"sku": "a-3"}');
SELECT t.take();
SELECT sas.heartbeat(t.holds(), NULL, '"half"');
SELECT sas.hand_back(t.holds()), sas.hand_back(t.holds());
SELECT t.take('p2');
SELECT attempt, failure_count FROM sas.steps WHERE run_id = 3 AND step = 'pack';

-- failed: offered again after the pause of retry, the third time in a row counts a failure
SELECT sas.fail(t.holds('p2'), 'no box left');
SELECT step, state, attempt, failure_count, waiting_kind, t.at(waiting_until) AS until FROM sas.steps WHERE run_id = 3 AND step = 'pack';
SELECT t.settle(), t.take();
SELECT t.later('1 s'), t.settle() \g /dev/null
SELECT t.take();
SELECT sas.fail(t.holds(), 'no box left');
SELECT t.later('1999 ms'), t.settle(), t.take();
SELECT t.later('1 ms'), t.settle() \g /dev/null
SELECT t.take();
SELECT sas.fail(t.holds(), 'no box left');
SELECT t.settle() \g /dev/null
SELECT step, state, attempt, failure_count, in_doubt, waiting_kind, t.at(waiting_until) AS until, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 3 AND step = 'pack';
-- the series begins anew
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT t.take();
SELECT sas.fail(t.holds(), 'no box left');
SELECT state, failure_count, waiting_kind FROM sas.steps WHERE run_id = 3 AND step = 'pack';
SELECT t.later('1 s'), t.settle() \g /dev/null
-- for good: the rule of the step
SELECT t.take();
SELECT sas.fail(t.holds(), 'no such thing', permanent => true);
SELECT t.work();
SELECT t.brief(3);
SELECT attempt, worker, status, error ->> 'detail' AS detail FROM sas.attempts WHERE run_id = 3 ORDER BY 1;

-- complete_in bounds what heartbeats can extend
SELECT t.clean() \g /dev/null
SELECT t.workflow('bounded', '{"a": {"agent": "packer", "task": {}, "complete_in": "50 s"}}') \g /dev/null
SELECT run_id FROM sas.submit('bounded');
SELECT t.take();
SELECT request FROM t.taken ORDER BY n DESC LIMIT 1;
SELECT t.later('25 s') \g /dev/null
SELECT sas.heartbeat(t.holds());
SELECT t.at(complete_by) FROM sas.steps;
SELECT t.later('25 s') \g /dev/null
SELECT sas.heartbeat(t.holds());
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
-- and the lease
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT t.take(lease => '1 h');
SELECT sas.complete(t.holds(), NULL);
SELECT state, output FROM sas.steps;

-- expect and output are asked as for other steps
SELECT t.workflow('judged', '{"a": {"agent": "packer", "task": {}, "expect": "$.output.n > 1", "output": {"double": "{{output.n}}{{output.n}}"}, "undo": {"task": {}}}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('judged', ARRAY['{"i": 1}', '{"i": 2}']::jsonb[]);
SELECT t.take(quantity => 5);
SELECT sas.complete(t.holds('p1', 2), '{"n": 2}'), sas.complete(t.holds('p1', 3), '{"n": 1}');
SELECT t.settle() \g /dev/null
SELECT t.brief(2), t.brief(3);
SELECT output FROM sas.steps WHERE run_id = 2;
-- what was done otherwise than expected is undone, by a task
SELECT t.take();
SELECT sas.complete(t.holds(), '{}');
SELECT t.settle(), t.brief(3) \g /dev/null
SELECT t.brief(3);

-- a cancelled run: heartbeat says so, what is done all the same is undone
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('pack', ARRAY['{"sku": 1}', '{"sku": 2}', '{"sku": 3}', '{"sku": 4}']::jsonb[]);
SELECT t.take(quantity => 4);
SELECT sas.heartbeat(t.holds('p1', 1));
SELECT changed, state FROM sas.pause(1);
SELECT sas.heartbeat(t.holds('p1', 1));
SELECT changed, state FROM sas.resume(1);
SELECT changed, state FROM sas.cancel_runs(ARRAY[1, 2, 3, 4], 'enough');
SELECT sas.heartbeat(t.holds('p1', 1)), sas.heartbeat(t.holds('p1', 2)), sas.heartbeat(t.holds('p1', 3)), sas.heartbeat(t.holds('p1', 4));
SELECT sas.complete(t.holds('p1', 1), '{"box": 1}'), sas.hand_back(t.holds('p1', 2)), sas.fail(t.holds('p1', 3), 'stopped');
SELECT t.settle() \g /dev/null
SELECT t.brief(1), t.brief(2), t.brief(3), t.brief(4);
SELECT t.take('p2', 5);
SELECT request, sas.heartbeat(request_id) FROM t.taken WHERE worker = 'p2' ORDER BY n DESC LIMIT 1;
SELECT sas.complete(t.holds('p2'), '{}');
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
-- the fourth is silent: in doubt, and its undo needs the output, so its outcome is asked; that goes on
SELECT t.later('30 s'), t.settle() \g /dev/null
SELECT t.brief(4);
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT t.take('p2', 5);
SELECT sas.heartbeat(t.holds('p2'));
SELECT sas.complete(t.holds('p2'), '{"box": 4}');
SELECT t.settle(), t.take('p2', 5);
SELECT sas.fail(t.holds('p2'), 'not now');
SELECT state, waiting_kind, t.at(waiting_until) AS until FROM sas.steps WHERE run_id = 4 AND step = 'pack';
SELECT t.later('1 s'), t.settle(), t.take('p2', 5);
SELECT sas.complete(t.holds('p2'), '{}');
SELECT t.settle() \g /dev/null
SELECT t.brief(4);
SELECT * FROM t.left_over();

-- a paused run takes its tasks off the queue; resumed, they are there again
SELECT run_id FROM sas.submit('bounded');
SELECT changed FROM sas.pause(5);
SELECT t.take();
SELECT changed FROM sas.resume(5);
SELECT t.take();
SELECT changed FROM sas.pause(5);
SELECT sas.complete(t.holds(), '1');
SELECT t.brief(5);
SELECT changed FROM sas.resume(5);
SELECT t.brief(5);

-- no more than max_in_flight are held at once, whoever claims
SELECT sas.alter_agent('packer', max_in_flight => 3) \g /dev/null
SELECT count(*) FROM sas.submit_batch('bounded', array_fill('{}'::jsonb, ARRAY[5]));
SELECT t.take('p1', 2), t.take('p2', 2), t.take('p3', 2);
SELECT name, in_flight, max_in_flight, waiting FROM sas.agents WHERE name = 'packer';
SELECT sas.complete(t.holds('p2'), '1');
SELECT t.take('p3', 2);
SELECT sas.alter_agent('packer', max_in_flight => 1) \g /dev/null
SELECT sas.hand_back(t.holds('p3')), sas.hand_back(t.holds('p1'));
SELECT t.take('p3', 2);
SELECT sas.alter_agent('packer', reset => '{max_in_flight}') \g /dev/null
SELECT sas.alter_agent('packer', enabled => false) \g /dev/null
SELECT t.take('p3', 9);
SELECT sas.alter_agent('packer', enabled => true) \g /dev/null
SELECT t.take('p3', 9);
SELECT count(*) FROM t.taken JOIN _sas.external_slot USING (request_id);
SELECT bool_and(sas.complete(request_id, '1')) FROM (SELECT t.request_id FROM t.taken t JOIN _sas.external_slot USING (request_id) OFFSET 0) x;
SELECT t.settle() \g /dev/null
SELECT * FROM t.left_over();

-- priority goes first
SELECT run_id FROM sas.submit('bounded');
SELECT run_id FROM sas.submit('bounded', priority => 5);
SELECT t.take(), t.take();
SELECT sas.hand_back(request_id) FROM t.taken JOIN _sas.external_slot USING (request_id) \g /dev/null

-- an input that cannot be made fails for good; the next task is given instead
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('pack', ARRAY['{}', '{"sku": 2}']::jsonb[]);
SELECT t.take();
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
SELECT state, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 1 AND step = 'pack';
SELECT name, in_flight FROM sas.agents WHERE name = 'packer';

-- a lease of an outside worker outlives the server: only its time counts
SELECT _sas.supervisor_tick(4711, '{}', 1000000, 100);
SELECT t.brief(2);
SELECT sas.complete(t.holds('p1', 2), '{"box": 1}');
SELECT t.work(), t.brief(2);

-- the run's deadline: what is held is told to stop
SELECT run_id FROM sas.submit('pack', '{"sku": 3}', deadline => '10 s');
SELECT t.take();
SELECT t.later('10 s'), t.settle() \g /dev/null
SELECT sas.heartbeat(t.holds());
SELECT sas.hand_back(t.holds());
SELECT t.settle() \g /dev/null
SELECT t.brief(3);

-- given up for a cancelled run when an earlier claim had left it in doubt: it is undone, not begun again
SELECT t.workflow('plain', '{"a": {"agent": "packer", "task": {}, "undo": {"task": {}, "input": {"key": "{{steps.a.key}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('plain', array_fill('{}'::jsonb, ARRAY[2]));
SELECT t.take(quantity => 2);
SELECT t.later('30 s'), t.settle(), t.later('10 s'), t.settle() \g /dev/null
SELECT t.take('p2', 2);
SELECT changed FROM sas.cancel_runs(ARRAY[4,5]);
SELECT sas.hand_back(t.holds('p2', 4)), sas.fail(t.holds('p2', 5), 'stopped');
SELECT t.settle() \g /dev/null
SELECT t.brief(4), t.brief(5);
SELECT t.take('p2', 5);
SELECT sas.complete(t.holds('p2', 4), '{}'), sas.complete(t.holds('p2', 5), '{}');
SELECT t.settle() \g /dev/null
SELECT t.brief(4), t.brief(5);

-- an agent that is reset: what cools off is there at once; one in use cannot be dropped
SELECT run_id FROM sas.submit('bounded');
SELECT t.take();
SELECT t.later('30 s'), t.settle(), t.take();
SELECT sas.reset_agent('packer') \g /dev/null
SELECT t.settle(), t.take();
SELECT sas.drop_agent('packer');
SELECT sas.complete(t.holds(), '1');
SELECT t.settle() \g /dev/null
SELECT t.brief(6);

-- a map of tasks: each element has a claim, a key and a checkpoint of its own
SELECT t.workflow('map', '{"a": {"agent": "packer", "task": {}, "each": "{{input.items}}", "input": {"item": "{{item}}"}}}', '{"output": "{{steps.a.output}}"}') \g /dev/null
TRUNCATE t.taken;
SELECT run_id FROM sas.submit('map', '{"items": ["x", "y", "z"]}');
SELECT t.settle(), t.take(quantity => 5);
SELECT count(DISTINCT key) AS keys, string_agg(request ->> 'item', ' ' ORDER BY n) AS items FROM t.taken WHERE run_id = 7;
SELECT bool_and(sas.heartbeat(request_id, 0.5, request -> 'item') = 'go') FROM t.taken WHERE run_id = 7;
SELECT element, state, locked_by, input, progress FROM sas.steps WHERE run_id = 7 ORDER BY 1;
SELECT bool_and(sas.complete(request_id, to_jsonb(request ->> 'item' || '!'))) FROM t.taken WHERE run_id = 7 AND request ->> 'item' <> 'y';
SELECT sas.hand_back(request_id) FROM t.taken WHERE run_id = 7 AND request ->> 'item' = 'y';
SELECT t.settle(), t.take('p2');
SELECT sas.complete(t.holds('p2'), '"y, too"');
SELECT t.settle() \g /dev/null
SELECT state, result, output FROM sas.runs WHERE run_id = 7;

-- a claim and what became of it are durable, whatever the session is set to
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT count(*) FROM sas.submit('pack', '{"sku": 4}');
SHOW synchronous_commit;
SELECT t.take();
SHOW synchronous_commit;
ROLLBACK;
SHOW synchronous_commit;

-- the attempt began with the claim that was not given back
SELECT t.workflow('once', '{"a": {"agent": "packer", "task": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('once');
SELECT t.take(), sas.hand_back(t.holds()), t.later('1 h'), t.take('p2');
SELECT t.later('10 s'), sas.complete(t.holds('p2'), '1');
SELECT attempt, status, finished_at - started_at AS took FROM sas.attempts WHERE run_id = (SELECT max(run_id) FROM sas.runs);

-- several are completed together: each as by itself, in lists with any lower bound. One that is named twice
-- counts once, what nobody holds does not count, and what does not meet expect fails as ever
SELECT t.workflow('checked', '{"a": {"agent": "packer", "task": {}, "expect": "$.output.box > 0", "undo": {"task": {}}},
                               "b": {"agent": "packer", "task": {}, "after": ["a"]}}') \g /dev/null
CREATE TABLE t.together AS SELECT run_id, row_number() OVER () AS n FROM sas.submit_batch('checked', ARRAY['{"sku": 1}', '{"sku": 2}', '{"sku": 3}', '{"sku": 4}']::jsonb[]);
SELECT count(*) FROM (SELECT t.take('p3', 4)) x;
SELECT t.take('p4', 1);
SELECT sas.complete_tasks(('[0:6]=' || array_agg(h.request_id ORDER BY h.o)::text)::uuid[], array_agg(h.output ORDER BY h.o))
FROM (SELECT o, request_id, output FROM (VALUES (1, 1, '{"box": 1}'::jsonb), (2, 2, '{"box": 2}'), (3, 1, '{"box": 11}'), (4, 0, '{"box": 0}'), (5, 3, '{"box": -3}'), (6, 9, '{"box": 9}'), (7, 4, NULL)) AS v (o, n, output)
      LEFT JOIN t.together g USING (n) LEFT JOIN t.taken k ON k.run_id = g.run_id AND k.step = 'a' AND k.worker = 'p3') h;
SELECT g.n, s.step, s.state, s.attempt, s.output, s.error ->> 'title' AS title FROM sas.steps s JOIN t.together g USING (run_id) ORDER BY 1, s.position;
SELECT g.n, a.step, a.attempt, a.status, a.worker, a.error ->> 'title' AS title FROM sas.attempts a JOIN t.together g USING (run_id) ORDER BY 1, 2, 3;
SELECT name, in_flight, waiting FROM sas.agents WHERE name = 'packer';
-- one whose lease has ended is late, and the others of the list are not
SELECT count(*) FROM (SELECT t.take('p5', 1, '10 s')) x;
SELECT t.later('5 s'), count(*) FROM (SELECT t.take('p6', 1, '30 s')) x;
SELECT t.later('20 s') \g /dev/null
SELECT stale_replies FROM sas.agents WHERE name = 'packer';
SELECT sas.complete_tasks(ARRAY[t.holds('p5'), t.holds('p6')], '{5,6}');
SELECT stale_replies FROM sas.agents WHERE name = 'packer';
-- an error completes none
SELECT sas.complete_tasks(ARRAY[t.holds('p6'), gen_random_uuid()], '{7}');
-- they complete, and are undone, in the order of the list
SELECT run_id FROM sas.submit('map', '{"items": [1, 2, 3, 4, 5, 6, 7, 8]}') \gset
SELECT t.settle() \g /dev/null
SELECT count(*) FROM (SELECT t.take('p7', 20)) x;
SELECT sas.complete_tasks(array_agg(request_id ORDER BY (request ->> 'item')::int DESC), array_agg('0'::jsonb)) FROM t.taken WHERE run_id = :run_id;
SELECT array_agg(element ORDER BY completion) FROM _sas.step WHERE run_id = :run_id AND element > 0;
