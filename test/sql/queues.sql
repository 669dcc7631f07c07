-- SPDX-License-Identifier: PostgreSQL
--
-- queues: steps that may run so many at a time, whatever their agent.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('slow', 2);
SELECT t.workflow('two', '{"a": {"agent": "inventory", "call": {}, "queue": "slow"}, "b": {"agent": "payments", "call": {}}, "f": {"function": "t.echo", "queue": "slow", "after": ["a"]}}') \g /dev/null
CREATE VIEW t.queue AS SELECT name, max_running, running, waiting, paused_at IS NOT NULL AS paused FROM sas.queues ORDER BY 1;
\echo only as many as the queue has places are claimed; other steps are not held up
SELECT run_id FROM sas.submit_batch('two', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT * FROM t.show(1);
SELECT t.claim();
SELECT t.schedule();
SELECT * FROM t.queue;
SELECT t.claim();
SELECT t.claim('v');
SELECT attempt, state, waiting_kind, waiting_on FROM sas.steps WHERE step = 'a' ORDER BY run_id;
\echo one that ends gives its place to the next, by rank
SELECT t.answer('a', for_run => 2);
SELECT t.schedule();
SELECT t.claim();
SELECT * FROM t.queue;
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT * FROM t.queue;
SELECT * FROM t.left_over();
\echo a failure gives the place back while it cools off; so does a hand-back; no attempt is burnt while it waits
SELECT t.clean() \g /dev/null
SELECT sas.alter_queue('slow', 1);
SELECT t.workflow('one', '{"a": {"agent": "inventory", "call": {}, "queue": "slow"}}') \g /dev/null
SELECT run_id FROM sas.submit_batch('one', ARRAY['{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('a', 'transient 503');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT t.answer('a', 'hand_back', again_in => '1 h');
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.later('1 h') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.claim();
SELECT t.answer('a', 'hand_back');
SELECT * FROM t.queue;
SELECT t.work();
SELECT run_id, step, attempt, failure_count FROM sas.steps ORDER BY 1;
SELECT * FROM t.left_over();
\echo the place of a worker that is gone is given back when its step is taken back
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('one', ARRAY['{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT t.claim('dies');
UPDATE t.worker SET alive = false WHERE name = 'dies';
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.claim();
DELETE FROM t.held WHERE worker = 'dies';
SELECT t.work();
SELECT t.later('1 min') \g /dev/null
SELECT t.work();
SELECT * FROM t.left_over();
\echo pause and cancel of a run give its places back; what waited is deferred
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('one', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT state FROM sas.pause_runs(ARRAY[1, 2]);
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT run_id, state, waiting_kind, waiting_on FROM sas.steps ORDER BY 1;
SELECT state FROM sas.cancel(3);
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT state FROM sas.resume_runs(ARRAY[1, 2]);
SELECT * FROM t.queue;
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
\echo pause of a queue: nothing more of it is claimed, what runs goes on
SELECT t.clean() \g /dev/null
SELECT sas.alter_queue('slow', 2);
SELECT run_id FROM sas.submit_batch('one', ARRAY['{}', '{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT t.claim(quantity => 1);
SELECT sas.pause_queue('slow');
SELECT sas.pause_queue('slow');
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.claim('v');
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT sas.resume_queue('slow');
SELECT sas.resume_queue('slow');
SELECT t.work();
SELECT * FROM t.queue;
\echo a limit that is raised or lowered
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit_batch('one', ARRAY['{}', '{}', '{}', '{}']::jsonb[]);
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT sas.alter_queue('slow', 3);
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT sas.alter_queue('slow', 1);
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.claim();
SELECT t.answer('a');
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.work();
SELECT * FROM t.left_over();
\echo by priority within a queue, with ageing; else first come, first served
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT run_id FROM sas.submit('one');
SELECT t.later('10 min') \g /dev/null
SELECT run_id FROM sas.submit('one');
SELECT run_id FROM sas.submit('one', priority => 1);
SELECT t.later('2 h') \g /dev/null
SELECT run_id FROM sas.submit('one', priority => 1);
CREATE FUNCTION t.one_by_one() RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        PERFORM t.settle();
        EXIT WHEN t.claim() = 'nothing';
        RETURN QUERY SELECT h.run_id FROM t.held h;
        PERFORM t.answer('a');
    END LOOP;
END $$;
SELECT * FROM t.one_by_one();
\echo the queue of the run holds for its steps unless they say otherwise, and for their undo
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('other', 1);
SELECT t.workflow('all', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "inventory", "call": {}, "queue": "other"}, "c": {"agent": "inventory", "call": {}, "queue": null}, "d": {"agent": "payments", "call": {}, "after": ["a", "b", "c"]}}', '{"queue": "slow"}') \g /dev/null
SELECT run_id FROM sas.submit('all');
SELECT queue FROM sas.runs;
SELECT step, state, waiting_kind, waiting_on FROM sas.steps ORDER BY 1;
SELECT t.work('{"d": "permanent 400"}');
SELECT t.brief(1);
SELECT * FROM t.left_over();
\echo children have the queue of their step
SELECT t.workflow('child', '{"x": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT t.workflow('above', '{"b": {"workflow": "child", "queue": "other"}, "d": {"workflow": "child"}, "e": {"workflow": "child", "each": "{{input.ids}}"}}', '{"queue": "slow"}') \g /dev/null
SELECT run_id FROM sas.submit('above', '{"ids": [1, 2]}');
SELECT t.settle() \g /dev/null
SELECT r.workflow, r.queue, w.name AS step, x.parent_element AS element FROM _sas.run p JOIN _sas.run x ON x.parent_run_id = p.run_id JOIN sas.runs r ON r.run_id = x.run_id JOIN _sas.workflow_step w ON w.version_id = p.version_id AND w.step_no = x.parent_step_no AND NOT w.undo WHERE p.run_id = 2 ORDER BY 3, 4;
SELECT t.work();
\echo verbs
SELECT sas.create_queue('Bad', 1);
SELECT sas.create_queue('zero', 0);
SELECT sas.alter_queue('nosuch', 1);
SELECT sas.pause_queue('nosuch');
SELECT sas.drop_queue('slow');
SELECT sas.create_queue('unused', 1);
SELECT sas.drop_queue('unused');
SELECT sas.drop_queue('unused');
SELECT * FROM t.queue;
SELECT * FROM t.left_over();
\echo the elements of a map wait in the queue of their step; a step that waits for something takes no place
SELECT t.clean() \g /dev/null
SELECT t.workflow('map', '{"m": {"function": "t.echo", "each": "{{input.items}}", "input": {"n": "{{item}}"}, "queue": "slow"}, "w": {"wait": {"signal": "go"}, "queue": "slow"}}') \g /dev/null
SELECT run_id FROM sas.submit('map', '{"items": [1, 2, 3]}');
SELECT t.settle() \g /dev/null
SELECT * FROM t.queue;
SELECT t.claim();
SELECT sas.signal(1, 'go') \g /dev/null
SELECT t.answer('m', output => '{}');
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- at most so many with the same key: here one of each role
SELECT t.clean() \g /dev/null
CREATE ROLE sas_test_first;
CREATE ROLE sas_test_second;
SELECT sas.grant_usage(r, 'user'), sas.grant_agent('inventory', r) FROM unnest('{sas_test_first,sas_test_second}'::regrole[]) r \g /dev/null
SELECT sas.create_queue('keyed', 3, key => '{{run.owner}}', per_key => 1);
SELECT name, max_running, key, per_key FROM sas.queues WHERE name = 'keyed';
SELECT t.workflow('short', '{"a": {"agent": "inventory", "call": {}, "queue": "keyed"}}') \g /dev/null
SELECT sas.grant_workflow('short', r) FROM unnest('{sas_test_first,sas_test_second}'::regrole[]) r \g /dev/null
SET ROLE sas_test_first;
SELECT count(*) FROM generate_series(1, 4) n, LATERAL sas.submit('short', jsonb_build_object('n', n));
SET ROLE sas_test_second;
SELECT count(*) FROM generate_series(1, 2) n, LATERAL sas.submit('short', jsonb_build_object('n', n));
RESET ROLE;
SELECT t.settle();
SELECT t.claim();
SELECT run_id, submitted_by FROM t.held JOIN sas.runs USING (run_id) ORDER BY 1;
SELECT running, waiting FROM sas.queues WHERE name = 'keyed';
SELECT run_id, waiting_kind, waiting_on FROM sas.steps WHERE waiting_kind LIKE 'queue%' ORDER BY 1;
SELECT text FROM sas.explain(2) WHERE step = 'a';
-- the next one of that role, in its order; the other role is not held up
SELECT t.answer('a', for_run => 1);
SELECT t.settle();
SELECT t.claim();
SELECT run_id FROM t.held ORDER BY 1;
-- one that rests gives its place back; what is paused, too
SELECT t.answer('a', 'transient 503', for_run => 5);
SELECT t.settle();
SELECT t.claim();
SELECT run_id FROM t.held ORDER BY 1;
SELECT changed FROM sas.halt_runs('{3}');
SELECT t.answer('a', for_run => 2);
SELECT t.settle();
SELECT t.claim();
SELECT run_id FROM t.held ORDER BY 1;
SELECT t.answer('a', for_run => 4), t.answer('a', for_run => 6);
SELECT t.later('1 min');
SELECT t.work();
SELECT run_id, state, result FROM sas.runs ORDER BY 1;
SELECT count(*) FROM _sas.parked_step;
SELECT * FROM t.left_over();

-- the queue has fewer places than keys: who stands behind one that has none is not parked, and begins when that one is cancelled
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('keyed', 1, key => '{{input.c}}', per_key => 1);
SELECT count(*) FROM sas.submit_batch('short', '{"{\"c\": 1}","{\"c\": 2}","{\"c\": 2}"}');
SELECT t.settle();
SELECT t.claim();
SELECT state FROM sas.cancel(2);
SELECT t.answer('a', for_run => 1);
SELECT t.settle();
SELECT t.claim();
SELECT run_id FROM t.held;
SELECT t.answer('a', for_run => 3);
SELECT t.settle();
SELECT * FROM t.left_over();

-- by a value of the input, elements of a map by their item; another priority reaches what is parked; null is no key
SELECT t.clean() \g /dev/null
SELECT sas.create_queue('keyed', 10, key => '{{item.c?}}', per_key => 2);
SELECT t.workflow('map', '{"m": {"agent": "inventory", "call": {"body": "{{item.n}}"}, "each": "{{input.l}}", "queue": "keyed"}}') \g /dev/null
SELECT run_id FROM sas.submit('map', '{"l": [{"c": "x", "n": 1}, {"c": "x", "n": 2}, {"c": "x", "n": 3}, {"c": "y", "n": 4}, {"n": 5}, {"n": 6}, {"n": 7}, {"c": 7, "n": 8}, {"c": "7", "n": 9}]}');
SELECT t.settle();
SELECT t.claim();
SELECT array_agg(asked -> 'body' ORDER BY element) FROM t.held;
SELECT run_id FROM sas.submit('map', '{"l": [{"c": "x", "n": 10}]}');
SELECT t.settle();
SELECT changed FROM sas.set_priority(2, 5);
SELECT t.answer('m', for_element => 1) FROM t.settle();
SELECT t.settle();
SELECT t.claim();
SELECT array_agg(asked -> 'body' ORDER BY run_id, element) FROM t.held;
-- the key of a queue is taken away: what was parked goes on
SELECT sas.create_queue('keyed', 10);
SELECT t.settle();
SELECT t.claim();
SELECT array_agg(asked -> 'body' ORDER BY run_id, element) FROM t.held;
SELECT act, detail FROM sas.history WHERE act = 'create_queue' ORDER BY at, detail;
DELETE FROM t.held;

-- the same for calls of an agent, beside a queue; who waits is in no one's way
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('keyed', 'http://127.0.0.1:1', options => '{"concurrency": {"key": "{{input.c?}}", "per_key": 2}}');
SELECT concurrency FROM sas.agents WHERE name = 'keyed';
SELECT t.workflow('calls', '{"a": {"agent": "keyed", "call": {"body": "{{input.n}}"}, "queue": "keyed", "undo": {"call": {}}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('calls', ARRAY['{"c": 1, "n": 1}', '{"c": 1, "n": 2}', '{"c": 1, "n": 3}', '{"c": 2, "n": 4}', '{"n": 5}', '{"n": 6}', '{"n": 7}', '{"c": 1, "n": 8}']::jsonb[]);
SELECT t.settle();
CREATE TABLE t.rank AS SELECT run_id, rank FROM _sas.ready;
SELECT t.later('1 s');
SELECT t.claim();
SELECT array_agg(asked -> 'body' ORDER BY run_id) FROM t.held;
SELECT waiting FROM sas.agents WHERE name = 'keyed';
SELECT run_id, waiting_kind, waiting_on FROM sas.steps WHERE waiting_kind LIKE '%key' ORDER BY 1;
SELECT text FROM sas.explain(3) WHERE step = 'a';
-- what waits under the key of its agent keeps its slot of the queue, and its place in the line
SELECT _sas.free_slots('{3,8}');
SELECT running FROM sas.queues WHERE name = 'keyed';
SELECT q.run_id, q.rank = r.rank AS kept FROM _sas.ready q JOIN t.rank r USING (run_id) ORDER BY 1;
DROP TABLE t.rank;
-- the next under the key; a failure that passes gives the slot back, and a cancel takes what waits away
SELECT t.answer('a', 'transient 503', for_run => 1);
SELECT t.settle();
SELECT t.claim();
SELECT array_agg(asked -> 'body' ORDER BY run_id) FROM t.held;
SELECT state FROM sas.cancel(8);
SELECT t.answer('a', for_run => n) FROM generate_series(2, 7) n;
SELECT t.later('1 min');
SELECT t.work();
-- undos are held to the key, too
SELECT sas.alter_agent('keyed', options => '{"concurrency": {"key": "{{input.c?}}"}}');
SELECT changed FROM sas.compensate_runs('{1,2,4}');
SELECT t.settle();
SELECT t.claim();
SELECT run_id FROM t.held ORDER BY 1;
SELECT t.answer('a', for_run => run_id) FROM t.held ORDER BY 1;
SELECT t.work();
-- the key is taken away: what was parked goes on
SELECT sas.alter_agent('keyed', options => '{"concurrency": {"key": "x"}}');
SELECT count(*) FROM sas.submit_batch('calls', ARRAY['{"n": 9}', '{"n": 10}', '{"n": 11}']::jsonb[]);
SELECT t.settle();
SELECT t.claim();
SELECT sas.alter_agent('keyed', reset => '{options}');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('a', for_run => n) FROM generate_series(9, 11) n;
SELECT t.settle();
SELECT result, count(*) FROM sas.runs GROUP BY 1 ORDER BY 1;
SELECT (SELECT count(*) FROM _sas.queue_slot) + (SELECT count(*) FROM _sas.parked_step) AS left_over;
SELECT * FROM t.left_over();
DROP OWNED BY sas_test_first, sas_test_second;
DROP ROLE sas_test_first, sas_test_second;
