-- SPDX-License-Identifier: PostgreSQL
--
-- All or undone.
SELECT t.clean() \g /dev/null
SELECT t.workflow('order', '{
    "a": {"agent": "inventory", "call": {}, "undo": {"call": {"method": "DELETE", "path": "/a/{{steps.a.output.body.id}}"}}},
    "b": {"agent": "payments", "call": {}, "undo": {"call": {"method": "POST", "path": "/b", "body": {"key": "{{steps.b.key}}"}}}},
    "c": {"function": "t.echo", "undo": {"function": "t.echo", "input": {"a": "{{steps.a.output.body.id}}", "c": "{{steps.c.output}}"}}, "after": ["a"]},
    "none": {"agent": "inventory", "call": {}},
    "last": {"agent": "shipping", "call": {}, "after": ["b", "c", "none"]}}') \g /dev/null

-- in reverse order of completion, one after the other; a step without undo leaves nothing standing
SELECT run_id FROM sas.submit('order');
SELECT t.claim();
SELECT t.answer('a');
SELECT t.claim();
SELECT t.answer('c', 'done', '{"booked": 7}'), t.answer('none'), t.answer('b');
SELECT t.claim();
SELECT t.answer('last', 'permanent 409');
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT t.claim();
SELECT t.settle(), t.claim();
-- an undo sees what the step has returned, and its key
SELECT asked ->> 'path' AS path, asked #>> '{body,key}' = (SELECT idempotency_key FROM sas.steps WHERE step = 'b') AS names_the_key, key <> (SELECT idempotency_key FROM sas.steps WHERE step = 'b') AS own_key FROM t.held;
SELECT t.answer('b');
SELECT t.settle(), t.claim();
SELECT asked FROM t.held;
SELECT t.answer('c');
SELECT t.settle(), t.claim();
SELECT asked FROM t.held;
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT error FROM sas.runs;
SELECT * FROM t.left_over();

-- another order of completion, another order of the undo
SELECT run_id FROM sas.submit('order');
SELECT t.claim(), t.answer('b'), t.answer('a'), t.answer('none');
SELECT t.claim(), t.answer('c', 'done', '{}');
SELECT t.work('{"last": "permanent 409"}');
SELECT t.brief(2);

-- nothing done: result error, nothing compensated
SELECT t.clean() \g /dev/null
SELECT f.* FROM t.try('order', '{"a": "permanent 400", "b": "permanent 400", "none": "permanent 400"}') f;

-- 404 and 410 of an undo: there is nothing left to undo
SELECT f.* FROM unnest('{404,410}'::text[]) s, t.try('order', jsonb_build_object('last', 'permanent 400', 'undo a', 'done ' || s, 'undo b', 'done ' || s)) f;
-- unless expect says otherwise
SELECT t.workflow('strict', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}, "expect": ["2xx"]}}, "last": {"agent": "shipping", "call": {}, "after": ["a"]}}') \g /dev/null
SELECT f.* FROM t.try('strict', '{"last": "permanent 400", "undo a": "done 404"}') f;

-- A11 an undo is retried and watched like a step
SELECT t.clean() \g /dev/null
SELECT t.workflow('two', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"agent": "payments", "call": {}, "after": ["a"], "undo": {"call": {}, "recovery": {"max_failures": 3}}},
                           "last": {"agent": "shipping", "call": {}, "after": ["b"]}}') \g /dev/null
SELECT run_id FROM sas.submit('two');
SELECT t.work('{"last": "permanent 400", "undo b": "transient 503"}');
SELECT * FROM t.show(1);
SELECT t.later('10 s') \g /dev/null
SELECT t.work('{"undo b": "doubt"}');
SELECT * FROM t.show(1);
-- used up: the run is paused with an alert, what comes before it stays as it is
SELECT t.later('20 s') \g /dev/null
SELECT t.work('{"undo b": "transient 503"}');
SELECT * FROM t.show(1);
SELECT paused_for FROM sas.runs;
SELECT * FROM t.alerts();
SELECT t.later('10 days') \g /dev/null
SELECT t.work();
-- an operator mends and lets it go on: it is undone
SELECT * FROM sas.retry(1, 'b');
SELECT t.work();
SELECT t.brief(1);
-- a permanent failure of an undo pauses at once
SELECT run_id FROM sas.submit('two');
SELECT t.work('{"last": "permanent 400", "undo b": "permanent 403"}');
SELECT * FROM t.show(2);
-- the first cause stays the error of the run, and that of the undo is beside it until a resume
SELECT paused_for, error - 'undo_error' AS error, error -> 'undo_error' AS undo_error FROM sas.runs WHERE run_id = 2;
SELECT text FROM sas.explain(2) LIMIT 1;
SELECT error ->> 'status' AS first, error #>> '{undo_error,status}' AS undo FROM sas.wait(2);
SELECT _sas.public_error('{"type": "urn:sas:http", "title": "a", "detail": "b", "undo_error": {"type": "urn:sas:sqlstate:22012", "title": "c", "detail": "d", "context": "e"}}');
SELECT changed, state FROM sas.resume(2);
SELECT error ->> 'status' AS first, error -> 'undo_error' AS undo_error FROM sas.runs WHERE run_id = 2;
SELECT t.work();
SELECT t.brief(2);
SELECT result, error ->> 'status' AS status FROM sas.runs WHERE run_id = 2;

-- In doubt -------------------------------------------------------------------

-- a step in doubt never counts as not done: with an undo that needs its key only, it is undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('by_key', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/{{steps.a.key}}"}}, "recovery": {"max_failures": 1}, "on_failure": "compensate"}}') \g /dev/null
SELECT f.* FROM t.try('by_key', '{"a": "doubt"}') f;
-- known not done: no connection, a plain refusal
SELECT f.* FROM unnest('{transient,transient 503,permanent 400,permanent 409}'::text[]) k, t.try('by_key', jsonb_build_object('a', k)) f;
-- its undo finds nothing: fine
SELECT f.* FROM t.try('by_key', '{"a": "doubt", "undo a": "done 404"}') f;

-- 409 and 422 after doubt do not settle it; other permanent statuses do
SELECT t.clean() \g /dev/null
SELECT t.workflow('doubtful', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/{{steps.a.key}}"}}}}') \g /dev/null
CREATE FUNCTION t.doubt_then(workflow text, what text, OUT carried_out text, OUT stands text) LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT run_id FROM sas.submit(workflow));
BEGIN
    carried_out := t.work('{"a": "doubt"}');
    PERFORM t.later('10 s');
    carried_out := carried_out || ' / ' || t.work(jsonb_build_object('a', what));
    stands := t.brief(id);
END $$;
SELECT f.* FROM unnest('{permanent 409,permanent 422,permanent 400,permanent 404,done}'::text[]) k, t.doubt_then('doubtful', k) f;
-- a time-out of the window leaves doubt as well
SELECT run_id FROM sas.submit('by_key');
SELECT t.claim();
SELECT t.later('61 s') \g /dev/null
SELECT t.work();
SELECT t.brief(6);

-- an undo that needs the output: the call is repeated under its key until its outcome is known, then undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('by_output', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}, "recovery": {"max_failures": 4}},
                                 "b": {"agent": "payments", "call": {}}}') \g /dev/null
SELECT run_id FROM sas.submit('by_output');
SELECT t.claim();
CREATE TEMP TABLE first AS SELECT key FROM t.held WHERE step = 'a';
SELECT t.answer('a', 'doubt');
SELECT t.answer('b', 'permanent 400');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT undo, key = (SELECT key FROM first) AS same_key FROM t.held;
SELECT t.answer('a', 'doubt');
SELECT t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT t.later('1 min') \g /dev/null
SELECT t.settle(), t.claim();
SELECT undo, key = (SELECT key FROM first) AS same_key FROM t.held;
SELECT t.answer('a', 'done', '{"status": 200, "body": {"id": 99}}');
SELECT t.settle(), t.claim();
SELECT undo, asked ->> 'path' AS path, key <> (SELECT key FROM first) AS other_key FROM t.held;
SELECT t.answer('a');
SELECT t.settle() \g /dev/null
SELECT t.brief(1);
-- known not done after all: nothing to undo
SELECT run_id FROM sas.submit('by_output');
SELECT t.claim(), t.answer('a', 'doubt'), t.answer('b', 'permanent 400'), t.settle() \g /dev/null
SELECT t.work('{"a": "permanent 400"}');
SELECT t.brief(2);
-- 409 after doubt, and no output to undo by: paused with an alert, for an operator
SELECT run_id FROM sas.submit('by_output');
SELECT t.claim(), t.answer('a', 'doubt'), t.answer('b', 'permanent 400'), t.settle() \g /dev/null
SELECT t.work('{"a": "permanent 409"}');
SELECT t.brief(3);
SELECT * FROM t.alerts();
-- never known: within recovery, then paused with an alert
SELECT run_id FROM sas.submit('by_output');
SELECT t.claim(), t.answer('a', 'doubt'), t.answer('b', 'permanent 400'), t.settle() \g /dev/null
SELECT t.work('{"a": "doubt"}'), t.later('1 min') FROM generate_series(1, 5);
SELECT t.brief(4);
SELECT kind, run_id, step FROM t.alerts() WHERE run_id = 4;
SELECT changed FROM sas.retry(4);
SELECT t.work();
SELECT t.brief(4);

-- 2xx that is not as expected is done: it is a permanent failure, and undone
SELECT t.clean() \g /dev/null
SELECT t.workflow('expecting', '{"a": {"agent": "inventory", "call": {}, "expect": "$.output.body.ok == true", "undo": {"call": {"path": "/{{steps.a.output.body.id}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('expecting');
SELECT t.claim();
SELECT t.answer('a', 'done', '{"status": 200, "body": {"ok": false, "id": 5}}');
SELECT t.settle() \g /dev/null
SELECT t.claim();
SELECT asked ->> 'path' AS path FROM t.held;
SELECT t.answer('a'), t.settle() \g /dev/null
SELECT t.brief(1), (SELECT error ->> 'title' FROM sas.runs WHERE run_id = 1) AS error;
-- neither true nor false fails as well
SELECT run_id FROM sas.submit('expecting');
SELECT t.claim();
SELECT t.answer('a', 'done', '{"status": 200, "body": {"id": 6}}');
SELECT t.work();
SELECT t.brief(2), (SELECT error ->> 'title' FROM sas.runs WHERE run_id = 2) AS error;
-- the attempt is told as one that failed, with its status and who made it
SELECT run_id, step, attempt, undo, agent, worker IS NOT NULL AS worker, status, http_status, error ->> 'title' AS error, started_at = finished_at AS at_once
FROM sas.attempts WHERE run_id IN (1, 2) AND NOT undo ORDER BY 1;
-- as expected: fine
SELECT run_id FROM sas.submit('expecting');
SELECT t.claim();
SELECT t.answer('a', 'done', '{"status": 200, "body": {"ok": true}}');
SELECT t.brief(3);

-- Others of the run that cannot go on ------------------------------------------------

-- a step on its way when the run is given up is waited for; its success is undone, too
SELECT t.clean() \g /dev/null
SELECT t.workflow('wide', '{
    "bad": {"agent": "shipping", "call": {}},
    "busy": {"agent": "inventory", "call": {}, "undo": {"call": {}}},
    "cold": {"agent": "payments", "call": {}, "undo": {"call": {"path": "/{{steps.cold.key}}"}}},
    "next": {"agent": "inventory", "call": {}, "after": ["busy"]},
    "join": {"agent": "inventory", "call": {}, "after": ["busy", "cold"]}}') \g /dev/null
SELECT run_id FROM sas.submit('wide');
SELECT t.claim();
SELECT t.answer('cold', 'doubt'), t.settle() \g /dev/null
SELECT t.answer('bad', 'permanent 400'), t.settle() \g /dev/null
SELECT * FROM t.show(1);
SELECT t.claim();
SELECT t.answer('busy');
SELECT t.work();
SELECT t.brief(1);
-- its failure leaves nothing to undo; one in doubt is undone
SELECT run_id FROM sas.submit('wide');
SELECT t.claim(), t.answer('bad', 'permanent 400'), t.settle(), t.answer('busy', 'transient 503'), t.answer('cold', 'doubt') \g /dev/null
SELECT t.work();
SELECT t.brief(2);
-- given back by its worker: it never begins again
SELECT run_id FROM sas.submit('wide');
SELECT t.claim(), t.answer('bad', 'permanent 400'), t.settle(), t.answer('busy', 'hand_back', tries => 0), t.answer('cold', 'hand_back', again_in => '30 s', tries => 0) \g /dev/null
SELECT t.work();
SELECT t.later('30 s') \g /dev/null
SELECT t.work();
SELECT t.brief(3);

-- in doubt and cooling off, then ready again but not yet claimed, when the run is given up: still in doubt, so undone
SELECT run_id FROM sas.submit('wide');
SELECT t.claim(), t.answer('cold', 'doubt'), t.answer('busy'), t.settle(), t.later('10 s'), t.settle() \g /dev/null
SELECT step, state, in_doubt FROM sas.steps WHERE run_id = 4 AND step = 'cold';
SELECT t.answer('bad', 'permanent 400'), t.settle() \g /dev/null
SELECT t.work();
SELECT t.brief(4);

-- fail leaves what is done as it is, and in doubt as well
SELECT t.workflow('leave', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "d": {"agent": "payments", "call": {}, "undo": {"call": {}}}, "last": {"agent": "shipping", "call": {}, "after": ["a"], "on_failure": "fail"}}') \g /dev/null
SELECT run_id FROM sas.submit('leave');
SELECT t.claim(), t.answer('a'), t.answer('d', 'doubt'), t.settle() \g /dev/null
SELECT t.work('{"last": "permanent 400"}');
SELECT t.brief(5);
-- timers of steps that cooled off are all that is left, and mean nothing
SELECT t.later('1 h'), t.work();
SELECT * FROM t.left_over();
DROP FUNCTION t.doubt_then;
