-- SPDX-License-Identifier: PostgreSQL
--
-- The pause wins: what failed just before it, or during it, is neither undone
-- nor given up on resume. It gets new windows, whatever the supervisor had
-- asked for; until the first undo has begun.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"]}, "c": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
-- t.stop_after(n): a run whose b has failed for good, and of what follows that, n parts: told, decided, given to the scheduler, claimed
CREATE FUNCTION t.stop_after(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT run_id FROM sas.submit('order'));
BEGIN
    PERFORM t.claim(), t.answer('a', for_run => id), t.claim(), t.answer('b', 'permanent 400', for_run => id);
    PERFORM t.supervise() WHERE n >= 2;
    PERFORM t.schedule() WHERE n >= 3;
    PERFORM t.claim() WHERE n >= 4;
    RETURN id;
END $$;
CREATE FUNCTION t.pause_after(n int, OUT id bigint, OUT before text, OUT state text, OUT after text) LANGUAGE plpgsql AS $$
BEGIN
    id := t.stop_after(n);
    before := t.brief(id);
    state := (SELECT p.state FROM sas.pause(id) p);
    after := t.brief(id);
END $$;
SELECT p.* FROM generate_series(1, 4) n, t.pause_after(n) p;
SELECT t.settle(), t.claim();
-- the undo of the last one has begun
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT run_id, step, undo, status FROM sas.attempts WHERE status = 'succeeded' ORDER BY 1;
SELECT run_id, changed, state FROM sas.resume_runs('{1,2,3,4}');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
-- it fails again, and nobody pauses it: it is undone
SELECT t.stop_after(3);
SELECT changed FROM sas.pause(5);
SELECT changed FROM sas.resume(5);
SELECT t.work('{"b": "permanent 400"}');
SELECT t.brief(5);
-- what an operator or a deadline has ended is not taken back
SELECT t.stop_after(1);
SELECT changed, state FROM sas.compensate(6);
SELECT changed, state FROM sas.pause(6);
SELECT changed, state FROM sas.resume(6);
SELECT t.work();
SELECT t.brief(6);
SELECT run_id FROM sas.submit('order', deadline => '1 min');
SELECT t.claim(), t.answer('a'), t.later('1 min'), t.supervise() \g /dev/null
SELECT changed, state FROM sas.pause(7);
SELECT changed, state FROM sas.resume(7);
SELECT t.work();
SELECT t.brief(7);
SELECT * FROM t.left_over();

-- everything that was open is open again: what waits for others, for a time, for a signal, for its pause, for its elements, for its
-- child, for its turn; what was on its way has gone on, failed or come back meanwhile
SELECT t.clean() \g /dev/null
SELECT t.workflow('child', '{"x": {"agent": "payments", "call": {}, "undo": {"call": {}}}, "y": {"agent": "payments", "call": {}, "after": ["x"]}}') \g /dev/null
SELECT t.workflow('wide', '{
    "bad": {"agent": "payments", "call": {}},
    "done": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "well": {"agent": "inventory", "call": {}}, "ill": {"agent": "inventory", "call": {}}, "back": {"agent": "inventory", "call": {}},
    "rests": {"agent": "inventory", "call": {}}, "doubts": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "next": {"agent": "inventory", "call": {}, "after": ["well"]}, "queued": {"agent": "shipping", "call": {}, "after": ["done"]},
    "both": {"agent": "shipping", "call": {}, "after": ["done", "bad"]},
    "sleep": {"wait": {"for": "1 hour"}}, "ask": {"wait": {"signal": "go"}}, "told": {"wait": {"signal": "come"}},
    "map": {"agent": "inventory", "call": {}, "each": "{{input.ids}}", "concurrency": 1},
    "sub": {"workflow": "child"}}') \g /dev/null
CREATE FUNCTION t.fail_bad() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT run_id FROM sas.submit('wide', '{"ids": [1, 2, 3]}'));
BEGIN
    PERFORM t.settle();
    PERFORM t.claim();
    PERFORM t.answer('done'), t.answer('rests', 'transient 503'), t.answer('doubts', 'doubt'), t.supervise(), sas.signal(id, 'come'), t.answer('bad', 'permanent 400'), t.supervise();
    RETURN id;
END $$;
SELECT t.fail_bad();
SELECT * FROM t.show(1);
SELECT t.answer('well'), t.answer('ill', 'permanent 400'), t.answer('back', 'hand_back'), t.answer('map');
-- the child is told, and has begun to end
SELECT t.settle();
SELECT t.brief(1), t.brief(2);
SELECT changed FROM sas.pause(1);
SELECT t.settle();
SELECT * FROM t.show(1);
SELECT t.brief(2);
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT * FROM t.show(1);
SELECT t.later('1 h') \g /dev/null
SELECT count(*) FROM sas.signal(1, 'go');
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT * FROM t.left_over();
-- the child is not told yet; its own pause stays
SELECT t.fail_bad();
SELECT changed FROM sas.pause(4);
SELECT changed FROM sas.pause(3);
SELECT kind, run_id FROM _sas.message WHERE run_id = 4 AND kind <> 'deadline';
SELECT t.settle();
SELECT t.brief(3), t.brief(4);
SELECT count(*) FILTER (WHERE changed) FROM sas.resume_runs('{3,4}');
SELECT count(*) FROM sas.signal(3, 'go');
SELECT t.work();
SELECT t.later('1 h') \g /dev/null
SELECT t.work();
SELECT t.brief(3), t.brief(4);
SELECT * FROM t.left_over();
-- the undo of the child has begun: it ends, and its step has another one
SELECT t.clean() \g /dev/null
SELECT t.workflow('over', '{"bad": {"agent": "payments", "call": {}}, "sub": {"workflow": "child"}}') \g /dev/null
SELECT run_id FROM sas.submit('over');
SELECT t.settle(), t.claim(), t.answer('x'), t.answer('bad', 'permanent 400'), t.settle() \g /dev/null
SELECT t.claim();
SELECT t.brief(1), t.brief(2);
SELECT changed FROM sas.pause(1);
SELECT t.work();
SELECT t.brief(1), t.brief(2);
SELECT changed FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1), t.brief(3);
-- a child that is to be undone, and is not told yet
SELECT t.workflow('after', '{"sub": {"workflow": "child"}, "bad": {"agent": "shipping", "call": {}, "after": ["sub"]}}') \g /dev/null
SELECT run_id FROM sas.submit('after');
SELECT t.settle(), t.claim(), t.answer('x'), t.claim(), t.answer('y'), t.settle(), t.claim(), t.answer('bad', 'permanent 400'), t.supervise(), t.schedule() \g /dev/null
SELECT t.brief(4), t.brief(5);
SELECT changed FROM sas.pause(4);
SELECT t.settle();
SELECT t.brief(4), t.brief(5);
SELECT changed FROM sas.resume(4);
SELECT t.work();
SELECT t.brief(4), t.brief(5);
SELECT * FROM t.left_over();

-- one in doubt: what was asked before its undo, or undone, is another window of what failed
SELECT t.clean() \g /dev/null
SELECT t.workflow('doubt_' || n, jsonb_build_object('a', jsonb_build_object('agent', 'inventory', 'call', '{}'::jsonb, 'recovery', '{"max_failures": 1}'::jsonb, 'on_failure', 'compensate', 'undo', jsonb_build_object('call', jsonb_build_object('path', p)))))
FROM (VALUES ('asks', '/{{steps.a.output.body.id}}'), ('undoes', '/{{steps.a.key}}')) v (n, p) \g /dev/null
SELECT run_id FROM sas.submit_batch('doubt_asks', '{"{}","{}"}') UNION ALL SELECT run_id FROM sas.submit_batch('doubt_undoes', '{"{}","{}"}');
SELECT t.claim(); SELECT t.answer('a', 'doubt', for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.supervise(), t.schedule() \g /dev/null
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT count(*) FILTER (WHERE changed) FROM sas.pause_runs('{1,3}');
SELECT t.claim();
SELECT changed FROM sas.pause_runs('{2,4}');
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT count(*) FILTER (WHERE changed) FROM sas.resume_runs('{1,2,3,4}');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();

-- a fallback that was on its way fails, or a step is undone for it
SELECT t.clean() \g /dev/null
SELECT t.workflow('other', '{"bad": {"agent": "payments", "call": {}}, "pay": {"agent": "inventory", "call": {}, "undo": {"call": {}}, "recovery": {"max_failures": 1}, "fallback": {"agent": "shipping", "call": {}}}}') \g /dev/null
SELECT count(*) FROM sas.submit_batch('other', array_fill('{}'::jsonb, '{4}'));
SELECT t.claim();
SELECT t.answer('pay', CASE WHEN g < 3 THEN 'permanent 400' ELSE 'doubt' END, for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.settle(), t.claim();
SELECT t.answer('bad', 'permanent 400', for_run => g) FROM generate_series(1, 4) g \g /dev/null
SELECT t.settle();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT t.answer('pay.fallback', 'permanent 400', for_run => 1), t.answer('pay.fallback', for_run => 2), t.answer('pay', for_run => 3);
SELECT count(*) FILTER (WHERE changed) FROM sas.pause_runs('{1,2,3,4}');
SELECT t.settle();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT count(*) FILTER (WHERE changed) FROM sas.resume_runs('{1,2,3,4}');
SELECT t.work();
SELECT run_id, t.brief(run_id) FROM sas.runs ORDER BY 1;
SELECT * FROM t.left_over();
-- a timer that was due, and deferred because a session had locked the run, is there again, though it was found
-- in between
SELECT t.clean() \g /dev/null
SELECT t.workflow('slept', '{"done": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "bad": {"agent": "payments", "call": {}, "after": ["done"]}, "sleep": {"wait": {"for": "1 s"}}}') \g /dev/null
SELECT run_id FROM sas.submit('slept');
SELECT t.schedule(), t.claim(), t.answer('done'), t.schedule(), t.claim(), t.later('1 s') \g /dev/null
UPDATE _sas.message SET due_at = due_at + interval '1 s' WHERE kind = 'timer' RETURNING due_at - sas.now() AS deferred_by;
SELECT t.answer('bad', 'permanent 400'), t.supervise() \g /dev/null
SELECT t.later('1 s'), t.schedule() > 0 AS found;
SELECT count(*) AS timers FROM _sas.message WHERE kind = 'timer';
SELECT changed, state FROM sas.pause(1);
SELECT t.brief(1);
SELECT changed, state FROM sas.resume(1);
SELECT t.work();
SELECT t.brief(1);
SELECT * FROM t.left_over();

-- and so is a step that had to begin, whose message was deferred in that way
SELECT t.clean() \g /dev/null
SELECT t.workflow('begun', '{"done": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "bad": {"agent": "payments", "call": {}, "after": ["done"]}, "sleep": {"wait": {"for": "1 s"}, "after": ["done"]}}') \g /dev/null
SELECT run_id FROM sas.submit('begun');
SELECT t.claim(), t.answer('done'), t.claim();
UPDATE _sas.message SET due_at = due_at + interval '1 s' WHERE kind = 'enter' RETURNING due_at - sas.now() AS deferred_by;
SELECT t.answer('bad', 'permanent 400'), t.supervise() \g /dev/null
SELECT t.later('1 s'), t.schedule() > 0 AS found;
SELECT count(*) AS messages FROM _sas.message WHERE kind = 'enter';
SELECT changed, state FROM sas.pause(1);
SELECT t.brief(1);
SELECT changed, state FROM sas.resume(1);
SELECT t.work(), t.later('1 s'), t.schedule() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

DROP FUNCTION t.stop_after, t.pause_after, t.fail_bad;
