-- SPDX-License-Identifier: PostgreSQL
--
-- Undos that poll: a call begins the undo, and the step asks until it is over.
\set SHOW_CONTEXT never
SELECT t.clean() \g /dev/null
SELECT t.workflow('machine', '{
    "make": {"agent": "payments", "call": {"method": "POST", "path": "/machines"},
             "poll": {"call": {"path": "/jobs/{{started.body.job}}"}, "until": "$.output.body.state == \"done\"", "timeout": "2 s"},
             "undo": {"call": {"method": "DELETE", "path": "/machines/{{steps.make.started.body.id}}"}, "recovery": {"max_failures": 2, "initial": "5 s"},
                      "poll": {"call": {"path": "/jobs/{{started.body.job}}", "query": {"of": "{{steps.make.started.body.id}}"}}, "every": "2 s", "max_every": "8 s",
                               "until": "$.output.body.state == $.started.body.wants", "timeout": "30 s"}}},
    "use": {"agent": "shipping", "call": {"path": "/use"}, "after": ["make"]}}') \g /dev/null
-- t.machine_made(started): a run whose machine is there, and cannot be used; the call of the undo is answered
CREATE FUNCTION t.machine_made(started jsonb DEFAULT '{"status": 202, "body": {"job": 8, "wants": "gone"}}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    run bigint := (SELECT s.run_id FROM sas.submit('machine') s);
BEGIN
    PERFORM t.work('{"make": {"status": 202, "body": {"id": "m1", "job": 7}}}');
    PERFORM t.later('1 s');
    PERFORM t.work(jsonb_build_object('make', '{"status": 200, "body": {"state": "done"}}'::jsonb, 'use', 'permanent 400', 'undo make', started));
    RETURN t.brief(run);
END $$;
-- t.ask_undo(reply): the next status request, and the state after this reply
CREATE FUNCTION t.ask_undo(reply jsonb, OUT method text, OUT path text, OUT has_key boolean, OUT brief text, OUT asks int, OUT waits text, OUT pause interval) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM t.settle();
    PERFORM t.claim();
    SELECT h.asked ->> 'method', (h.asked ->> 'path') || coalesce('?' || (h.asked ->> 'query'), ''), h.key <> 'none' INTO method, path, has_key FROM t.held h WHERE h.undo;
    PERFORM t.answer('make', output => reply), t.settle();
    SELECT s.asks, s.waiting_kind, s.waiting_until - sas.now(), t.brief(s.run_id) INTO asks, waits, pause, brief FROM sas.steps s WHERE s.step = 'make' ORDER BY s.run_id DESC LIMIT 1;
END $$;

\echo the call of the undo under its key; then it is asked, without one, until it is over
SELECT t.machine_made('"transient 503"');
\echo one that fails comes again after a pause, whatever time the poll of the step itself had
SELECT waiting_kind, waiting_until - sas.now() AS pause FROM sas.steps WHERE step = 'make';
SELECT t.later('5 s') \g /dev/null
SELECT * FROM t.ask_undo('{"status": 202, "body": {"job": 8, "wants": "gone"}}');
SELECT state, result FROM sas.runs;
SELECT text FROM sas.explain(1) WHERE step IS NOT NULL;
\echo nobody holds it meanwhile
SELECT t.claim() FROM t.settle();
SELECT t.later('2 s') \g /dev/null
SELECT * FROM t.ask_undo('{"status": 200, "body": {"state": "busy"}}');
SELECT t.later('4 s') \g /dev/null
SELECT * FROM t.ask_undo('{"status": 200, "body": {"state": "busy"}}');
SELECT t.later('8 s') \g /dev/null
SELECT * FROM t.ask_undo('{"status": 200, "body": {"state": "gone"}}');
\echo the step keeps what it says of its own work
SELECT started, output, asks FROM sas.steps WHERE step = 'make';
SELECT result FROM sas.runs;
SELECT step, attempt, undo, status, http_status FROM sas.attempts ORDER BY step, undo, attempt;
SELECT * FROM t.left_over();

\echo status requests that fail have windows of their own, with pauses
SELECT t.clean() \g /dev/null
SELECT t.machine_made();
SELECT t.later('2 s'), t.settle(), t.claim(), t.answer('make', 'transient 503'), t.settle() \g /dev/null
SELECT state, waiting_kind, waiting_until - sas.now() AS pause, asks FROM sas.steps WHERE step = 'make';
SELECT t.later('5 s') \g /dev/null
SELECT path, brief, asks FROM t.ask_undo('{"status": 200, "body": {"state": "busy"}}');
\echo one that is refused is a failure for good: the run pauses
SELECT t.later('4 s'), t.settle(), t.claim(), t.answer('make', 'permanent 400'), t.settle() \g /dev/null
SELECT state, paused_for FROM sas.runs;
\echo resume asks about the same undo, and calls nothing again
SELECT changed FROM sas.resume(1);
SELECT path, brief, waits FROM t.ask_undo('{"status": 200, "body": {"state": "busy"}}');
\echo so is a time-out
SELECT t.later('30 s'), t.settle(), t.settle() \g /dev/null
SELECT state, waiting_kind, error ->> 'title' AS title FROM sas.steps WHERE step = 'make';
SELECT state, paused_for FROM sas.runs;
\echo with its time again
SELECT changed FROM sas.resume(1);
SELECT path, brief, waits, pause FROM t.ask_undo('{"status": 200, "body": {"state": "busy"}}');
\echo one that goes well is not retried; with another key, and by name, the undo is called again
SELECT changed, refused FROM sas.retry(1);
SELECT changed, refused FROM sas.retry(1, new_key => true);
SELECT changed, refused FROM sas.retry(1, 'make');
SELECT t.later('8 s') FROM t.settle() \g /dev/null
SELECT t.settle(), t.claim(), t.answer('make', 'permanent 400'), t.settle() \g /dev/null
SELECT state FROM sas.runs;
SELECT changed FROM sas.retry(1, 'make', new_key => true);
SELECT method, path, has_key, brief FROM t.ask_undo('{"status": 202, "body": {"job": 9, "wants": "gone"}}');
SELECT t.later('2 s') \g /dev/null
SELECT method, path, has_key, brief FROM t.ask_undo('{"status": 200, "body": {"state": "gone"}}');
SELECT * FROM t.left_over();

\echo a cancel, and a pause meanwhile, leave it as it is
SELECT t.clean() \g /dev/null
SELECT t.machine_made();
SELECT changed, refused FROM sas.cancel(1);
SELECT changed FROM sas.pause(1);
SELECT t.later('10 min'), t.settle(), t.claim() \g /dev/null
SELECT count(*) AS asked FROM t.held;
SELECT changed FROM sas.resume(1);
SELECT path, brief FROM t.ask_undo('{"status": 200, "body": {"state": "gone"}}');
SELECT * FROM t.left_over();

\echo its window ends with its time
SELECT t.clean() \g /dev/null
SELECT t.machine_made();
SELECT t.later('2 s'), t.settle(), t.claim() \g /dev/null
SELECT window_ms FROM t.held;
\echo a status request that is taken back leaves nothing in doubt
SELECT t.later('40 s'), t.settle() \g /dev/null
SELECT state, in_doubt, waiting_kind FROM sas.steps WHERE step = 'make';

\echo a halt: what comes in then is not asked about any more, and stands
SELECT t.clean() \g /dev/null
SELECT t.machine_made('"transient 503"'), t.later('5 s'), t.settle(), t.claim() \g /dev/null
SELECT changed FROM sas.halt(1);
SELECT t.answer('make', output => '{"status": 202, "body": {"job": 8, "wants": "gone"}}');
SELECT t.settle(), t.later('1 min'), t.settle() \g /dev/null
SELECT step, state, error ->> 'title' AS title, error ->> 'detail' AS detail, started FROM sas.steps WHERE step = 'make';
SELECT * FROM t.left_over();
SELECT changed, refused FROM sas.compensate(1);
SELECT t.settle(), t.brief(1);
\echo so does one while it is asked about
SELECT t.clean() \g /dev/null
SELECT t.machine_made(), t.later('2 s'), t.settle(), t.claim() \g /dev/null
SELECT changed FROM sas.halt(1);
SELECT t.answer('make', output => '{"status": 200, "body": {"state": "gone"}}');
SELECT t.settle(), t.later('1 min'), t.settle(), t.brief(1);
SELECT * FROM t.left_over();

\echo and an undo without a poll whose answer is not what it expects
SELECT t.clean() \g /dev/null
SELECT t.workflow('picky', '{"make": {"agent": "payments", "call": {}, "undo": {"call": {}, "expect": "$.output.body.gone == true"}}, "use": {"agent": "shipping", "call": {}, "after": ["make"]}}') \g /dev/null
SELECT run_id FROM sas.submit('picky') \g /dev/null
SELECT t.settle(), t.claim(), t.answer('make'), t.settle(), t.claim(), t.answer('use', 'permanent 400'), t.settle(), t.claim() \g /dev/null
SELECT changed FROM sas.halt(1);
SELECT t.answer('make'), t.settle(), t.later('1 min'), t.settle(), t.brief(1);
SELECT error ->> 'title' AS title FROM sas.steps WHERE step = 'make';
SELECT * FROM t.left_over();

\echo an undo that an operator has completed is forgotten: a later one of the step is called
SELECT t.clean() \g /dev/null
SELECT t.workflow('falls', '{
    "make": {"agent": "payments", "call": {"method": "POST", "path": "/machines"}, "recovery": {"max_failures": 1}, "on_failure": "pause",
             "poll": {"call": {"path": "/jobs/{{started.body.job}}"}, "until": "$.output.body.state == \"done\""},
             "undo": {"call": {"method": "DELETE", "path": "/machines/{{key}}"}, "poll": {"call": {"path": "/undone/{{started.body.job}}"}, "until": "$.output.body.state == \"gone\""}},
             "fallback": {"agent": "shipping", "call": {"path": "/fall"}}},
    "use": {"agent": "shipping", "call": {"path": "/use"}, "after": ["make"]}}') \g /dev/null
SELECT run_id FROM sas.submit('falls') \g /dev/null
SELECT t.settle(), t.claim(), t.answer('make', output => '{"status": 202, "body": {"job": 7}}'), t.later('1 s'), t.settle(), t.claim(), t.answer('make', 'permanent 400'), t.settle(), t.claim() \g /dev/null
SELECT t.answer('make', output => '{"status": 202, "body": {"job": 8}}'), t.settle(), t.brief(1);
SELECT changed, refused FROM sas.skip(1, 'make');
SELECT changed, refused FROM sas.force_complete(1, 'make');
SELECT t.settle(), t.claim(), t.answer('make.fallback', 'permanent 400'), t.settle() \g /dev/null
SELECT changed FROM sas.force_complete(1, 'make', '{"status": 200, "body": {"id": "byhand"}}');
SELECT t.settle(), t.claim(), t.answer('use', 'permanent 400'), t.settle(), t.claim() \g /dev/null
SELECT step, asked ->> 'method' AS method FROM t.held;

\echo a version whose undo asks in another way does not fit a run in which the undo has begun
SELECT t.clean() \g /dev/null
SELECT t.machine_made() \g /dev/null
SELECT sas.create_workflow('machine', jsonb_set(v.definition, '{steps,make,undo}', (v.definition #> '{steps,make,undo}') - 'poll')) FROM sas.versions v WHERE v.workflow = 'machine' ORDER BY v.version DESC LIMIT 1;
SELECT changed, refused FROM sas.set_version(1);

\echo each element of a map has its own; an undo of a function may be a call that polls
SELECT t.clean() \g /dev/null
SELECT t.workflow('machines', '{
    "make": {"function": "t.echo", "each": "{{input.names}}", "input": "{{item}}",
             "undo": {"agent": "payments", "call": {"method": "DELETE", "path": "/machines/{{item}}"},
                      "poll": {"call": {"path": "/jobs/{{started.body.job}}/{{item}}"}, "until": "$.output.body.gone == true"}}},
    "use": {"agent": "shipping", "call": {"path": "/use"}, "after": ["make"]}}') \g /dev/null
SELECT run_id FROM sas.submit('machines', '{"names": ["a", "b"]}') \g /dev/null
SELECT t.work('{"use": "permanent 400", "undo make": {"status": 202, "body": {"job": 1}}}') \g /dev/null
SELECT element, state, waiting_kind FROM sas.steps WHERE step = 'make' ORDER BY 1;
SELECT t.later('1 s'), t.settle(), t.claim() \g /dev/null
SELECT asked ->> 'path' AS path FROM t.held;
SELECT t.answer('make', output => '{"status": 200, "body": {"gone": true}}'), t.settle() \g /dev/null
SELECT t.work('{"undo make": {"status": 202, "body": {"job": 2}}}') \g /dev/null
SELECT element, state, waiting_kind FROM sas.steps WHERE step = 'make' ORDER BY 1;
SELECT t.later('1 s'), t.settle(), t.claim() \g /dev/null
SELECT asked ->> 'path' AS path FROM t.held;
SELECT t.answer('make', output => '{"status": 200, "body": {"gone": true}}'), t.settle() \g /dev/null
SELECT t.brief(1);
SELECT * FROM t.left_over();

\echo what is refused
SELECT v.path, v.problem FROM sas.validate_workflow('{"steps": {"a": {"agent": "payments", "call": {}, "undo": {"call": {}, "poll": {"call": {"path": "/{{started.id}}/{{output.body.x}}"}, "until": "$.output.state == 1", "progress": "{{output.body.x}}"}}}}}') v;
SELECT v.path, v.problem FROM sas.validate_workflow('{"steps": {"a": {"agent": "payments", "call": {"path": "/{{started.body.id}}"}, "undo": {"function": "t.echo", "poll": {"call": {}, "until": "true"}}}}}') v;
SELECT v.path, v.problem FROM sas.validate_workflow('{"steps": {"a": {"agent": "payments", "call": {}, "undo": {"call": {"path": "/{{started.body.id}}/{{steps.a.started.body.id}}"}, "poll": {"call": {}, "until": "$.output.body.gone == true"}}}}}') v;

SELECT t.clean() \g /dev/null
DROP FUNCTION t.machine_made, t.ask_undo;
SELECT sas.drop_workflow(w) FROM unnest('{machine,machines,falls,picky}'::text[]) w \g /dev/null
