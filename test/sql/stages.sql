-- SPDX-License-Identifier: PostgreSQL
--
-- Stages: middleware around calls, and child runs that are planned, each with
-- functions that a function worker calls before or after.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
CREATE FUNCTION t.tag(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.note(format('tag %s %s %s%s', c ->> 'step', c ->> 'element', CASE WHEN (c -> 'undo')::boolean THEN 'undo ' ELSE '' END, c -> 'request'));
    RETURN jsonb_build_object('request', c -> 'request' || jsonb_build_object('headers', jsonb_build_object('X-Run', c #>> '{run,id}')));
END $$;
CREATE FUNCTION t.strip(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.note(format('strip %s got %s', c ->> 'step', c -> 'response'));
    RETURN jsonb_build_object('response', (c -> 'response') - 'status' || jsonb_build_object('stripped', true));
END $$;
SELECT sas.create_middleware('tag', 'call', 't.tag(jsonb)', 't.strip(jsonb)') \g /dev/null
SELECT t.workflow('pay', '{"charge": {"agent": "payments", "call": {"path": "/charges/{{input.n}}", "body": {"n": "{{input.n}}"}}, "expect": "$.output.stripped == true", "output": "{{output}}",
                                      "undo": {"call": {"path": "/refunds/{{steps.charge.output.body.id}}"}}},
                           "book": {"function": "t.echo", "input": "{{steps.charge.output}}"}}') \g /dev/null

-- before, the call with what they made of it, after: each with a claim of its own; expect and output judge what comes out at last
SELECT run_id FROM sas.submit('pay', '{"n": 1}');
SELECT step, state, waiting_kind FROM sas.steps WHERE step = 'charge';
SELECT t.claim('w', 0) AS nothing_for_the_agent;
SELECT * FROM t.perform();
SELECT step, state, waiting_kind, waiting_on, attempt FROM sas.steps WHERE step = 'charge';
SELECT t.claim();
SELECT step, key IS NOT NULL AS has_key, asked FROM t.held;
SELECT t.answer('charge', 'done');
SELECT step, state, attempt, output FROM sas.steps WHERE step = 'charge';
SELECT * FROM t.perform();
SELECT step, state, attempt, output FROM sas.steps WHERE step = 'charge';
SELECT t.work();
SELECT t.brief(1);
SELECT count(*) FROM sas.attempts;
SELECT * FROM t.left_over();

-- a call that fails is tried again with the same request; the functions are not asked again
SELECT run_id FROM sas.submit('pay', '{"n": 2}');
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('charge', 'doubt'), t.settle();
SELECT t.later('20 s'), t.settle(), t.claim();
SELECT asked FROM t.held;
SELECT t.answer('charge', 'done');
SELECT claimed FROM t.perform();
SELECT t.work();
SELECT * FROM t.show(2);

-- a function that fails before the call leaves nothing in doubt, and is called again by resume
CREATE FUNCTION t.refuse(c jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
SELECT sas.create_middleware('tag', 'call', 't.refuse(jsonb)', 't.strip(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"n": 3}');
SELECT t.claim(), t.answer('charge', 'permanent'), t.settle();
SELECT t.brief(3);
SELECT * FROM t.left_over();
SELECT t.workflow('patient', '{"charge": {"agent": "payments", "call": {}, "on_failure": "pause", "undo": {"call": {}}}}') \g /dev/null
SELECT run_id FROM sas.submit('patient');
SELECT t.claim(), t.answer('charge', 'transient'), t.settle();
-- its worker dies: the call was never made
SELECT t.later('20 s'), t.settle(), t.claim('dies');
UPDATE t.worker SET alive = false WHERE name = 'dies';
DELETE FROM t.held;
SELECT t.settle();
SELECT t.brief(4);
SELECT t.later('1 min'), t.settle(), t.claim(), t.answer('charge', 'permanent'), t.settle();
SELECT t.brief(4);
SELECT sas.create_middleware('tag', 'call', 't.tag(jsonb)', 't.strip(jsonb)') \g /dev/null
SELECT changed FROM sas.resume(4);
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('charge', 'done');
SELECT claimed FROM t.perform();
SELECT t.brief(4);

-- one that fails after it: the call counts as done, and is not made again; when the run cannot go on it is undone with what the service answered
SELECT sas.create_middleware('tag', 'call', 't.tag(jsonb)', 't.refuse(jsonb)') \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"n": 5}');
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('charge', 'done');
SELECT t.claim(), t.answer('charge', 'permanent'), t.settle();
SELECT t.brief(5);
-- the undo is a call as any other
SELECT noted FROM t.perform();
SELECT t.claim();
SELECT undo, asked FROM t.held;
SELECT t.answer('charge', 'done');
SELECT t.brief(5);
SELECT t.claim(), t.answer('charge', 'transient'), t.settle();
SELECT sas.create_middleware('tag', 'call', 't.tag(jsonb)', 't.strip(jsonb)') \g /dev/null
SELECT t.later('20 s'), t.settle();
SELECT claimed FROM t.perform();
SELECT t.settle(), t.brief(5);
SELECT * FROM t.left_over();

-- undone in each stage: what is on its way is left to end
SELECT run_id FROM sas.submit_batch('pay', array_fill('{"n": 6}'::jsonb, ARRAY[3]));
SELECT t.claim(), t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 7), t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 8) \g /dev/null
SELECT t.claim(), t.answer('charge', 'done', for_run => 8);
SELECT run_id, changed FROM sas.compensate_runs(ARRAY[6, 7, 8]);
SELECT t.settle() \g /dev/null
SELECT t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 6), t.answer('charge', 'done', for_run => 7);
SELECT t.settle() \g /dev/null
SELECT t.brief(r) FROM generate_series(6, 8) r;
SELECT noted FROM t.perform();
SELECT t.claim(), t.answer('charge', for_run => 7), t.answer('charge', for_run => 8) \g /dev/null
SELECT claimed FROM t.perform();
SELECT t.settle() \g /dev/null
SELECT t.brief(r) FROM generate_series(6, 8) r;
SELECT * FROM t.left_over();

-- one that answers itself: no call is made; one that makes an unsound request fails the step before anything is sent
CREATE FUNCTION t.from_cache(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT CASE WHEN c #>> '{request,path}' = '/charges/9' THEN '{"response": {"body": {"id": "kept"}}}' END::jsonb $$;
CREATE FUNCTION t.elsewhere(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"request": {"path": "http://elsewhere/"}}'::jsonb $$;
SELECT sas.create_middleware('cache', 'call', 't.from_cache(jsonb)', goes_after => '{tag}') \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"n": 9}');
SELECT noted FROM t.perform();
SELECT t.work();
SELECT t.brief(9);
SELECT sas.create_middleware('cache', 'call', 't.elsewhere(jsonb)', goes_after => '{tag}') \g /dev/null
SELECT run_id FROM sas.submit('pay', '{"n": 10}');
SELECT claimed FROM t.perform();
SELECT t.settle(), t.brief(10);
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.runs WHERE run_id = 10;
SELECT sas.drop_middleware('cache') \g /dev/null

-- elements of a map, each; a poll: its call, not what it asks; in a queue each stage takes a place
SELECT sas.create_queue('narrow', 1) \g /dev/null
SELECT t.workflow('many', '{"m": {"agent": "payments", "each": "{{input.l}}", "call": {"path": "/{{item}}"}, "queue": "narrow"}}') \g /dev/null
SELECT run_id FROM sas.submit('many', '{"l": [1, 2]}');
CREATE FUNCTION t.turns() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    n text;
BEGIN
    FOR i IN 1..20 LOOP
        LOOP
            PERFORM t.settle();
            FOR n IN SELECT unnest(noted) FROM t.perform() LOOP
                RETURN NEXT n;
            END LOOP;
            EXIT WHEN NOT FOUND;
        END LOOP;
        n := t.claim();
        IF n <> 'nothing' THEN
            RETURN NEXT n || ' ' || (SELECT asked ->> 'path' FROM t.held);
            PERFORM t.answer(n);
        END IF;
        ASSERT (SELECT count(*) FROM t.held) = 0;
    END LOOP;
END $$;
SELECT * FROM t.turns();
SELECT t.brief(11);
SELECT * FROM t.left_over();
SELECT t.workflow('job', '{"j": {"agent": "payments", "call": {"path": "/jobs"}, "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.status == 200"}}}') \g /dev/null
SELECT run_id FROM sas.submit('job');
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('j');
SELECT claimed FROM t.perform();
SELECT t.later('1 s'), t.settle(), t.claim();
SELECT key, asked FROM t.held;
SELECT t.answer('j'), t.settle(), t.brief(12);
SELECT * FROM t.left_over();

-- stopped in each stage: before the call nothing was done, the call is in doubt, after it it is done
SELECT count(*) FROM sas.submit_batch('pay', array_fill('{"n": 6}'::jsonb, ARRAY[3]));
SELECT t.claim(), t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 14), t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 15) \g /dev/null
SELECT t.claim(), t.answer('charge', 'done', for_run => 15) \g /dev/null
SELECT t.claim();
SELECT run_id, changed FROM sas.cancel_runs(ARRAY[13, 14, 15]);
SELECT t.schedule(), t.schedule();
SELECT t.brief(r) FROM generate_series(13, 15) r;
SELECT step, run_id, status FROM sas.attempts WHERE run_id > 12 ORDER BY 2;
SELECT t.answer('charge', 'done', '{"request": {"path": "/x"}}', for_run => 13), t.answer('charge', for_run => 14), t.answer('charge', 'done', '{"response": {}}', for_run => 15);
SELECT changed FROM sas.halt_runs(ARRAY[14, 15]);
-- an input that an operator sets goes through the functions, too
SELECT run_id FROM sas.submit('pay', '{"n": 16}');
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('charge', 'transient 503');
SELECT t.settle() \g /dev/null
SELECT t.brief(16);
SELECT changed FROM sas.set_input(16, 'charge', '{"n": "mended"}');
SELECT changed FROM sas.retry(16, 'charge');
SELECT t.settle() \g /dev/null
SELECT noted FROM t.perform();
SELECT t.claim();
SELECT asked FROM t.held WHERE run_id = 16;
SELECT changed FROM sas.halt(16);
SELECT t.schedule() > 0 AS revoked;
SELECT * FROM t.left_over();

-- taken away in the middle: what has begun ends
SELECT run_id FROM sas.submit('pay', '{"n": 17}');
SELECT claimed FROM t.perform();
SELECT t.claim(), t.answer('charge');
SELECT sas.drop_middleware('tag') \g /dev/null
SELECT claimed FROM t.perform();
SELECT t.settle(), t.work(), t.brief(17);
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null

-- a child run whose workflow has a plan function is planned by a function worker, as the owner; its error is that of the step
CREATE FUNCTION t.plan_two(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.note('planned for ' || (input ->> 'n') || ' as ' || current_user);
    IF input ->> 'n' = '3' THEN
        RAISE EXCEPTION 'nothing to plan';
    ELSIF input ->> 'n' = '4' THEN
        RETURN '{"steps": {"a": {"agent": "nobody", "call": {}}}}';
    END IF;
    RETURN jsonb_build_object('steps', (SELECT jsonb_object_agg('s' || g, '{"function": "t.echo"}'::jsonb) FROM generate_series(1, (input ->> 'n')::int) g), 'output', 'n{{input.n}}');
END $$;
SELECT sas.create_workflow('planned', '{"plan": "t.plan_two"}');
SELECT t.workflow('parent', '{"c": {"workflow": "planned", "each": "{{input.l}}", "input": {"n": "{{item}}"}, "max_failed": 2, "on_failure": "skip"}}', '{"output": "{{steps.c.output}}"}') \g /dev/null
SELECT run_id FROM sas.submit('parent', '{"l": [1, 2]}');
SELECT t.settle();
SELECT noted FROM t.perform();
SELECT t.work();
SELECT run_id, workflow, state, result, output, parent_run_id FROM sas.runs ORDER BY run_id;
SELECT * FROM t.left_over();
SELECT run_id FROM sas.submit('parent', '{"l": [3, 4, 1]}');
SELECT t.settle(), t.claim();
SELECT t.answer('c', 'permanent', for_element => 1), t.answer('c', 'done', t.plan_two('{"n": 4}'), for_element => 2), t.answer('c', 'done', t.plan_two('{"n": 1}'), for_element => 3);
SELECT t.work();
SELECT run_id, workflow, state, result, output FROM sas.runs WHERE run_id > 3 ORDER BY run_id;
SELECT element, state, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 4 ORDER BY element;
SELECT * FROM t.left_over();

-- one that failed is planned again by resume; cancelled while it is planned there is no child
SELECT t.workflow('one_child', '{"c": {"workflow": "planned", "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('one_child', '{"n": 1}');
SELECT t.settle(), t.claim(), t.answer('c', 'permanent'), t.settle();
SELECT t.brief(7);
SELECT changed FROM sas.resume(7);
SELECT t.settle(), t.claim(), t.answer('c', 'done', t.plan_two('{"n": 1}'));
SELECT t.work('{"s1": "permanent"}');
SELECT t.brief(7);
SELECT changed FROM sas.resume(7);
SELECT t.settle(), t.claim(), t.answer('c', 'done', t.plan_two('{"n": 1}'));
SELECT t.work();
SELECT t.brief(7);
SELECT run_id, workflow, state, result FROM sas.runs WHERE run_id > 6 ORDER BY run_id;
SELECT run_id FROM sas.submit('one_child', '{"n": 1}');
SELECT t.settle(), t.claim();
DELETE FROM t.held WHERE run_id <> 10;
SELECT changed FROM sas.cancel(10);
SELECT t.schedule();
SELECT t.answer('c', 'done', t.plan_two('{"n": 1}')), t.settle();
SELECT t.brief(10);
SELECT count(*) FROM sas.runs WHERE parent_run_id = 10;
SELECT * FROM t.left_over();
