-- SPDX-License-Identifier: PostgreSQL
--
-- Testing aids: clock, stubs, runs carried out in the session, as users call them.
SELECT t.clean() \g /dev/null
\set SHOW_CONTEXT never

-- t.tell(run): what its agents were asked and answered, in order, with the time since midnight
CREATE FUNCTION t.tell(id bigint DEFAULT NULL) RETURNS TABLE (at interval, call text, attempt int, answer text) LANGUAGE sql AS $$
    SELECT t.at(c.at), CASE WHEN c.undo THEN 'undo ' ELSE '' END || c.step || coalesce('[' || c.element || ']', '') || coalesce(': ' || c.method || ' ' || c.path, ''), c.attempt,
           coalesce(c.answer ->> 'error', c.answer ->> 'status', c.answer::text)
    FROM sas.stubbed_calls() c WHERE id IS NULL OR c.run_id = id
$$;
-- t.tried(run): its attempts that are told
CREATE FUNCTION t.tried(id bigint) RETURNS TABLE (step text, attempt int, status text, http int, why text, began interval, ended interval) LANGUAGE sql AS $$
    SELECT CASE WHEN a.undo THEN 'undo ' ELSE '' END || a.step || coalesce('[' || a.element || ']', ''), a.attempt, a.status, a.http_status, a.error ->> 'title', t.at(a.started_at), t.at(a.finished_at)
    FROM sas.attempts a WHERE a.run_id = id ORDER BY a.finished_at, a.step, a.attempt
$$;
\set plain '{"recovery": {"max_failures": 3, "initial": "10 s", "max": "1 min"}}'

-- an answer for ever, templates in it, and what was asked -------------------------------
SELECT t.workflow('one', '{"pay": {"agent": "payments", "call": {"path": "/charges/{{input.n}}", "query": {"a": "x y"}, "headers": {"X-Who": "{{run.labels.who}}"}, "body": {"n": "{{input.n}}"}}}}',
                  '{"output": "{{steps.pay.output}}"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '{"status": 201, "headers": {"x_seen": "{{request.headers.x_who}}"}, "body": {"n": "{{request.body.n}}", "first": "{{attempt}}", "call": "{{n}}"}}');
SELECT * FROM sas.run_inline('one', '{"n": 7}', key => 'k', labels => '{"who": "ann"}');
SELECT method, path, request - 'headers' AS request, request -> 'headers' ->> 'x_who' AS who,
       idempotency_key = (SELECT s.idempotency_key FROM sas.steps s WHERE s.run_id = c.run_id) AND idempotency_key = request #>> '{headers,idempotency_key}' AS key_is_the_steps
FROM sas.stubbed_calls('payments') c;
SELECT key, state, result, labels, t.at(finished_at) FROM sas.runs;
SELECT * FROM t.left_over();
SELECT sas.run_inline('one', '{"n": 7}', key => 'k');
ROLLBACK;
SELECT count(*) FROM sas.runs;

-- answers in order; pauses of the worker, windows and cool-offs of the supervisor: the clock jumps over them ------------
SELECT t.workflow('tries', '{"pay": {"agent": "payments", "call": {"path": "/p", "timeout": "5 s"}, "retry": {"max_attempts": 3, "initial": "2 s"}, "complete_in": "20 s"}}', :'plain') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '[{"error": "no connection"}, 503, {"error": "timeout"}, {"status": 429, "headers": {"retry_after": "60"}}, {"delay": "3 s", "status": 200, "text": "well"}]');
SELECT state, result FROM sas.run_inline('tries');
SELECT * FROM t.tell();
SELECT * FROM t.tried(1);
SELECT t.show(1);
ROLLBACK;

-- slower than its time-out, slower than its window, an answer too large for the agent: as with a worker -----------------
SELECT sas.create_agent('small', 'http://127.0.0.1:1', request_timeout => '10 s', options => '{"max_response": "10 bytes"}') \g /dev/null
SELECT t.workflow('slow', '{"it": {"agent": "small", "call": {"path": "/it"}, "complete_in": "8 s", "retry": {"max_attempts": 1},
                            "undo": {"call": {"method": "DELETE", "path": "/it"}}}}', '{"recovery": {"max_failures": 3, "initial": "10 s"}, "on_failure": "compensate"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('small', '[{"delay": "9 s", "status": 200}, {"body": "far too much for it"}, {"error": "broken"}]', undo => false);
SELECT sas.stub('small', '404', undo => true);
SELECT state, result, error ->> 'title' AS why FROM sas.run_inline('slow');
SELECT * FROM t.tell();
SELECT * FROM t.tried(1);
SELECT t.show(1);
ROLLBACK;

-- a request that cannot be made, an answer that is not as expected, a status that retry names --------------------------
SELECT t.workflow('bad', '{"it": {"agent": "payments", "call": {"path": "/{{input.where}}"}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT t.workflow('expects', '{"it": {"agent": "payments", "call": {"path": "/it"}, "expect": "$.output.body.ok == true", "retry": {"on": [404], "initial": "1 s"}}}', '{"on_failure": "fail"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '[404, {"body": {"ok": false}}]');
SELECT state, result, error ->> 'detail' AS why FROM sas.run_inline('bad', '{"where": ".."}');
SELECT state, result, error ->> 'title' AS why FROM sas.run_inline('expects');
SELECT * FROM t.tried(2);
SELECT * FROM t.tell();
ROLLBACK;

-- which stub answers: the last that fits and is not used up ---------------------------------------------------------
SELECT t.workflow('pick', '{"get": {"agent": "payments", "each": "{{input.items}}", "concurrency": 1, "call": {"path": "/items/{{item}}", "query": {"n": "{{index}}"}}}, "put": {"agent": "payments", "after": ["get"], "call": {"method": "PUT", "path": "/done_x"}}}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '{"status": 200, "body": "any"}');
SELECT sas.stub('payments', '[{"body": "once"}]', path => '/items/*');
SELECT sas.stub('payments', '{"body": "put"}', method => 'put', path => '/done_x');
SELECT sas.stub('payments', '{"body": "not this: _ is no pattern"}', path => '/done?x');
SELECT sas.stub('payments', '[503, {"body": "third"}]', step => 'get', element => 3);
SELECT state, result FROM sas.run_inline('pick', '{"items": [10, 20, 30]}');
SELECT step, element, attempt, method, path, answer -> 'body' AS body FROM sas.stubbed_calls();
SELECT sas.unstub('inventory'), sas.unstub('payments'), sas.unstub();
SELECT * FROM sas.run_inline('pick', '{"items": [1]}');
ROLLBACK;

-- undo, in reverse order; a paused run, mended and resumed ---------------------------------------------------------
SELECT t.workflow('order', '{"reserve": {"agent": "inventory", "call": {"method": "POST", "path": "/r"}, "undo": {"call": {"method": "DELETE", "path": "/r/{{steps.reserve.output.body.id}}"}}},
                             "charge": {"agent": "payments", "after": ["reserve"], "call": {"method": "POST", "path": "/c"}, "undo": {"call": {"method": "POST", "path": "/refunds", "body": {"of": "{{steps.charge.output.body.id}}"}}}},
                             "ship": {"agent": "shipping", "after": ["charge"], "call": {"method": "POST", "path": "/s"}}}', :'plain') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub(a, '{"status": 201, "body": {"id": "{{request.path}}"}}') FROM unnest('{inventory,payments}'::text[]) a;
SELECT sas.stub('shipping', '409');
SELECT run_id, state, result, error ->> 'title' AS why FROM sas.run_inline('order');
SELECT * FROM t.tell();
SELECT sas.stub('shipping', '{"error": "no connection"}');
SELECT run_id, state, result FROM sas.run_inline('order');
SELECT paused_for FROM sas.runs WHERE run_id = 2;
SELECT * FROM t.alerts();
SELECT sas.stub('shipping', '[201]');
SELECT changed FROM sas.resume(2);
SELECT run_id, state, result FROM sas.continue_inline(2);
SELECT t.show(2);
ROLLBACK;

-- waits: a signal beforehand, one in time, none; a timer; a token handed out ----------------------------------------
SELECT t.workflow('ask', '{"tell": {"agent": "shipping", "call": {"method": "POST", "path": "/ask", "body": {"token": "{{steps.wait.token}}"}}},
                           "wait": {"wait": {"signal": "decision", "timeout": "2 days"}, "after": ["tell"]}, "rest": {"wait": {"for": "1 h"}, "after": ["wait"]}}', '{"output": "{{steps.wait.output}}", "on_failure": "fail"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('shipping', '200');
SELECT sas.stub_signal('decision', '{"n": 1}', after => '3 h');
SELECT state, result, output FROM sas.run_inline('ask');
SELECT step, state, t.at(started_at) AS began, t.at(finished_at) AS ended FROM sas.steps WHERE run_id = 1 ORDER BY 3, 1;
SELECT state, result, error ->> 'title' AS why FROM sas.run_inline('ask');
SELECT t.at(sas.move_clock('0'));
SELECT state, result FROM sas.run_inline('ask', within => '1 day');
SELECT step, state, waiting_kind, waiting_on FROM sas.steps WHERE run_id = 3 ORDER BY 1;
SELECT t.at(sas.move_clock('0'));
SELECT sas.signal_token(request #>> '{body,token}', '{"by": "token"}') FROM sas.stubbed_calls() WHERE run_id = 3;
SELECT state, result, output FROM sas.continue_inline(3);
ROLLBACK;

-- what waits for nothing but its deadline is left; a moved clock brings it ----------------------------------------------
SELECT t.workflow('open', '{"wait": {"wait": {"signal": "never"}}}', '{"deadline": "10 days", "on_failure": "fail"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT state, result FROM sas.run_inline('open');
SELECT t.at(sas.move_clock('9 days 23 h'));
SELECT state, result FROM sas.continue_inline(1);
SELECT t.at(sas.move_clock('1 h'));
SELECT state, result, error ->> 'title' AS why FROM sas.continue_inline(1);
ROLLBACK;

-- maps, turns, children, and a child that is undone -------------------------------------------------------------
SELECT t.workflow('box', '{"pack": {"agent": "shipping", "call": {"method": "POST", "path": "/boxes/{{input.n}}"}, "undo": {"call": {"method": "DELETE", "path": "/boxes/{{input.n}}"}}}}', '{"output": "{{input.n}}"}') \g /dev/null
SELECT t.workflow('many', '{"boxes": {"workflow": "box", "each": "{{input.items}}", "input": {"n": "{{item}}"}},
                            "page": {"agent": "inventory", "after": ["boxes"], "repeat": {"while": "$.last.body.next != null", "every": "1 min"}, "call": {"path": "/page/{{index}}"}},
                            "last": {"agent": "payments", "after": ["page"], "call": {"path": "/last"}}}', '{"output": "{{steps.boxes.output}}", "on_failure": "compensate"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('shipping', '200');
SELECT sas.stub('inventory', '[{"body": {"next": 1}}, {"body": {"next": null}}]');
SELECT sas.stub('payments', '200');
SELECT run_id, state, result, output FROM sas.run_inline('many', '{"items": [5, 6]}');
SELECT run_id, parent_run_id, state, result, t.at(finished_at) FROM sas.runs ORDER BY 1;
SELECT sas.stub('inventory', '[{"body": {"next": null}}]'), sas.stub('payments', '[400]');
SELECT run_id, state, result FROM sas.run_inline('many', '{"items": [7]}');
SELECT * FROM t.tell() WHERE at >= '1 min';
SELECT * FROM t.left_over();
ROLLBACK;

-- functions: as the owner of the run, writes kept or rolled back, their own kinds of failure ----------------------------
CREATE TABLE t.ledger (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, who text DEFAULT current_user);
CREATE FUNCTION t.book(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.ledger (n) VALUES ((input ->> 'n')::int);
    IF input ? 'raise' THEN RAISE EXCEPTION 'told to' USING ERRCODE = input ->> 'raise'; END IF;
    RETURN input;
END $$;
SELECT t.workflow('booked', '{"book": {"function": "t.book", "retry": {"max_attempts": 2, "initial": "3 s"}}}', '{"recovery": {"max_failures": 2, "initial": "10 s"}, "finalize": "t.echo", "on_failure": {"transient": "pause", "permanent": "fail"}}') \g /dev/null
CREATE ROLE regress_aids_user;
SELECT sas.grant_usage('regress_aids_user', 'user');
SELECT sas.grant_workflow('booked', 'regress_aids_user');
GRANT USAGE ON SCHEMA t TO regress_aids_user;
GRANT SELECT, INSERT ON t.ledger TO regress_aids_user;
SELECT t.clean() \g /dev/null
BEGIN;
SET LOCAL ROLE regress_aids_user;
SELECT state, result FROM sas.run_inline('booked', '{"n": 1}');
SELECT state, result, error ->> 'type' AS why FROM sas.run_inline('booked', '{"n": 2, "raise": "23514"}');
SELECT state, result, error ->> 'type' AS why FROM sas.run_inline('booked', '{"n": 3, "raise": "40001"}');
SELECT state, result, error ->> 'type' AS why FROM sas.run_inline('booked', '{"n": 1}');
TABLE t.ledger;
RESET ROLE;
SELECT * FROM t.tried(3);
-- the deferred check was only looked at: it is still the session's
INSERT INTO t.ledger VALUES (1);
ROLLBACK;
CREATE FUNCTION t.nest(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(sas.move_clock('1 h')) $$;
SELECT t.workflow('nested', '{"it": {"function": "t.nest"}}', '{"on_failure": "fail"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT state, result, error ->> 'title' AS why FROM sas.run_inline('nested');
ROLLBACK;

-- tasks of outside agents ------------------------------------------------------------------------------------
-- other files make an agent of that name, too
SET client_min_messages = warning;
SELECT sas.create_agent('packer', kind => 'external') \g /dev/null
RESET client_min_messages;
SELECT t.workflow('task', '{"pack": {"agent": "packer", "task": {}, "input": {"sku": "{{input.sku}}"}, "complete_in": "1 min", "retry": {"max_attempts": 3, "initial": "1 s"}}}', '{"output": "{{steps.pack.output}}"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('packer', '[{"fail": "jam"}, {"hand_back": true}, {"lapse": true}, {"delay": "5 s", "output": {"box": "{{request.input.sku}}"}}]');
SELECT state, result, output FROM sas.run_inline('task', '{"sku": "book"}');
SELECT * FROM t.tell();
SELECT * FROM t.tried(1);
SELECT sas.stub('packer', '[{"fail": "no such thing", "permanent": true}]');
SELECT state, result, error ->> 'detail' AS why FROM sas.run_inline('task', '{"sku": "book"}');
SELECT state, result, error ->> 'detail' AS why FROM sas.run_inline('task', '{}');
ROLLBACK;

-- polls and fallbacks ------------------------------------------------------------------------------------------
SELECT t.workflow('job', '{"it": {"agent": "inventory", "call": {"method": "POST", "path": "/jobs"}, "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "every": "10 s", "until": "$.output.body.state == \"done\""}}}', '{"output": "{{steps.it.output.body}}"}') \g /dev/null
SELECT t.workflow('falls', '{"it": {"agent": "payments", "call": {"path": "/a"}, "fallback": {"agent": "shipping", "call": {"path": "/b"}, "on": ["breaker_open", "failed"]}}}', '{"output": "{{steps.it.output.status}}"}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('inventory', '{"status": 202, "body": {"id": 9}}', method => 'POST');
SELECT sas.stub('inventory', '[{"body": {"state": "going"}}, {"body": {"state": "going"}}, {"body": {"state": "done"}}]', method => 'GET');
SELECT state, result, output FROM sas.run_inline('job');
SELECT * FROM t.tell();
SELECT sas.stub('payments', '410'), sas.stub('shipping', '203');
SELECT run_id, state, result, output FROM sas.run_inline('falls');
SELECT sas.stub('payments', '{"error": "breaker open"}');
SELECT run_id, state, result, output FROM sas.run_inline('falls');
SELECT run_id, state, result FROM sas.run_inline('one', '{"n": 1}', labels => '{"who": "bob"}');
SELECT call, answer FROM t.tell() WHERE call NOT LIKE '% /jobs%';
SELECT sas.stub('payments', '200');
SELECT run_id, state, result FROM sas.continue_inline(4);
ROLLBACK;

-- hooks are carried out with the run; queues, places and a pause of the workflow hold up no test but the last -----------
SELECT sas.create_queue('narrow', 1) \g /dev/null
SELECT t.workflow('kept', '{"a": {"agent": "payments", "call": {"path": "/a"}}, "b": {"agent": "payments", "call": {"path": "/b"}}}',
                  '{"queue": "narrow", "concurrency": {"key": "k"}, "hooks": [{"on": "success", "agent": "shipping", "call": {"method": "POST", "path": "/told", "body": {"run": "{{input.run_id}}"}}}, {"on": "success", "function": "t.echo"}]}') \g /dev/null
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('kept');
SELECT run_id FROM sas.submit('one', '{"n": 1}', labels => '{"who": "real"}');
SELECT run_id FROM sas.submit('booked', '{"n": 1}', start_at => t.start() + interval '1 min');
BEGIN;
SELECT sas.move_clock('1 h') IS NOT NULL AS later;
SELECT sas.stub(a, '200') FROM unnest('{payments,shipping}'::text[]) a;
SELECT run_id, state, result FROM sas.run_inline('kept');
SELECT * FROM t.tell();
SELECT target, told_state, state, result FROM sas.hook_runs ORDER BY target;
SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'lock_row' AND l.mode = 'RowShareLock';
SELECT run_id, workflow, state FROM sas.runs WHERE run_id <= 3 ORDER BY 1;
SELECT sas.continue_inline(1);
ROLLBACK;
SELECT sas.pause_workflow('one');
SELECT t.clean() \g /dev/null
BEGIN;
SELECT state FROM sas.run_inline('one', '{"n": 1}', labels => '{"who": "ann"}');
SELECT waits_for FROM sas.runs;
ROLLBACK;
SELECT sas.resume_workflow('one');

-- middleware around a call, a child run that is planned ------------------------------------------------------------------
CREATE FUNCTION t.aid_sign(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('request', jsonb_set(context -> 'request', '{headers}', '{"X-Signed": "yes"}')) $$;
CREATE FUNCTION t.aid_open(context jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('response', jsonb_set(context -> 'response', '{body}', '"opened"')) $$;
CREATE FUNCTION t.plan_it(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('steps', jsonb_build_object('pay', jsonb_build_object('agent', 'payments', 'call', jsonb_build_object('path', '/planned/' || (input ->> 'n'))))) $$;
SELECT sas.create_workflow('planned', '{"plan": "t.plan_it"}') \g /dev/null
SELECT t.workflow('signed', '{"pay": {"agent": "payments", "call": {"method": "POST", "path": "/p"}}, "child": {"workflow": "planned", "input": {"n": 4}, "after": ["pay"]}}', '{"output": "{{steps.pay.output.body}}"}');
SELECT sas.create_middleware('aid_sign', 'call', before => 't.aid_sign(jsonb)', after => 't.aid_open(jsonb)', workflow => 'signed') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '{"body": "closed"}');
SELECT state, result, output FROM sas.run_inline('signed');
SELECT run_id, path, request #>> '{headers,x_signed}' AS signed FROM sas.stubbed_calls();
SELECT * FROM t.left_over();
ROLLBACK;
SELECT sas.drop_middleware('aid_sign') \g /dev/null

-- a run that the application submits itself, and one of another transaction ----------------------------------------
SELECT t.clean() \g /dev/null
BEGIN;
CREATE FUNCTION t.buy(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
BEGIN
    BEGIN
        SELECT run_id INTO id FROM sas.submit('one', jsonb_build_object('n', n), start_at => sas.now() + interval '1 h', labels => '{"who": "app"}');
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    RETURN id;
END $$;
SELECT sas.stub('payments', '200');
SELECT state, result FROM sas.continue_inline(t.buy(3));
SELECT t.at(at), request -> 'body' AS body FROM sas.stubbed_calls();
ROLLBACK;
SELECT sas.continue_inline(999);

-- the clock ----------------------------------------------------------------------------------------------------
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.set_clock('2040-02-29 12:00+00') AT TIME ZONE 'UTC' AS at;
SELECT sas.move_clock('1 year') AT TIME ZONE 'UTC' AS at;
SELECT run_id FROM sas.submit('one', '{"n": 1}');
SELECT created_at AT TIME ZONE 'UTC' AS at FROM sas.runs;
SELECT sas.release_clock() BETWEEN now() - interval '1 h' AND now() + interval '1 h' AS is_now;
ROLLBACK;
SELECT t.at(sas.now());

-- nothing of it can be committed ---------------------------------------------------------------------------------
BEGIN; SELECT sas.move_clock('1 s') IS NULL AS x; COMMIT;
BEGIN; SELECT sas.stub('payments', '200') IS NULL AS x; COMMIT;
BEGIN; SELECT state FROM sas.run_inline('open'); COMMIT;
BEGIN; SELECT sas.stub_signal('x'); PREPARE TRANSACTION 'x';
SELECT sas.stub('payments', '200');
BEGIN; SAVEPOINT a; SELECT sas.stub('payments', '200') IS NULL AS x; RELEASE a; COMMIT;
BEGIN; SAVEPOINT a; SELECT sas.stub('payments', '200') IS NULL AS x; ROLLBACK TO a; COMMIT;
SELECT count(*) FROM sas.stubbed_calls();
SELECT (SELECT count(*) FROM _sas.stub) + (SELECT count(*) FROM _sas.stub_flight) + (SELECT count(*) FROM sas.runs WHERE workflow = 'open') AS left_behind;

-- the cause of a failure, without what called the function ----------------------------------------------------
CREATE FUNCTION t.sold_out(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'sold out' USING DETAIL = 'Two are left.', HINT = 'Order two.';
END $$;
SELECT t.workflow('sold_out', '{"it": {"function": "t.sold_out", "on_failure": "pause"}}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT state, jsonb_pretty(error) FROM sas.run_inline('sold_out');
SELECT kind, message FROM t.alerts();
ROLLBACK;

-- a poll that no stub ends is an error, not a month of requests ----------------------------------------------------
SELECT t.workflow('endless', '{
    "a": {"agent": "payments", "call": {"method": "POST", "path": "/a"}, "poll": {"call": {"path": "/b"}, "until": "$.output.body.done == true"}}}') \g /dev/null
SELECT t.clean() \g /dev/null
BEGIN;
SELECT sas.stub('payments', '{"body": {}}') \g /dev/null
SAVEPOINT a;
SELECT state FROM sas.run_inline('endless', within => '1 min');
ROLLBACK TO a;
SELECT state FROM sas.run_inline('endless');
ROLLBACK;

-- refusals ----------------------------------------------------------------------------------------------------
SELECT sas.stub('nobody', '200');
SELECT sas.stub('payments', '"ok"');
SELECT sas.stub('payments', '[200, {"stauts": 200}]');
SELECT sas.stub('payments', '{"status": 99}');
SELECT sas.stub('payments', '{"error": "tired"}');
SELECT sas.stub('payments', '{"error": "timeout", "status": 200}');
SELECT sas.stub('payments', '{"delay": "00:10:00"}');
SELECT sas.stub('payments', '{"body": "{{secret.x}}"}');
SELECT sas.stub('payments', '[]');
SELECT sas.stub('payments', '{"error": "breaker open"}', path => '/x');
SELECT sas.stub('packer', '{"status": 200}');
SELECT sas.stub('packer', '{"output": 1, "lapse": true}');
SELECT sas.stub('packer', '{"output": 1}', path => '/x');
SELECT sas.stub_signal('Bad Name');
SELECT sas.stub_signal('x', after => '-1 s');
SELECT sas.set_clock(NULL);
SELECT sas.set_clock('infinity');
SELECT sas.run_inline('open', within => '-1 s');
SELECT sas.run_inline('no_such_workflow');
