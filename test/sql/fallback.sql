-- SPDX-License-Identifier: PostgreSQL
--
-- Fallback: another body in the stead of a step that failed for good, or whose
-- agent's breaker is open.
SELECT t.clean() \g /dev/null
SELECT t.workflow('ship', '{
    "take": {"agent": "inventory", "call": {"path": "/take"}, "undo": {"call": {"method": "DELETE", "path": "/take"}}},
    "ship": {"agent": "shipping", "call": {"method": "POST", "path": "/fast"}, "after": ["take"], "recovery": {"max_failures": 2, "initial": "5 s"},
             "fallback": {"agent": "inventory", "call": {"method": "POST", "path": "/slow", "body": {"key": "{{key}}", "took": "{{steps.take.output.body.id}}"}},
                          "output": {"by": "{{output.body.id}}"}, "undo": {"call": {"method": "DELETE", "path": "/slow/{{steps.ship.output.by}}"}}}},
    "mail": {"function": "t.echo", "input": {"by": "{{steps.ship.output}}"}},
    "end": {"agent": "payments", "call": {"path": "/end"}, "after": ["mail"]}}') \g /dev/null

-- one that succeeds needs none
SELECT * FROM t.try('ship');
SELECT step, kind, agent FROM sas.steps ORDER BY step;

-- failed for good: the fallback is tried under a key of its own, and the step has its output
SELECT run_id FROM sas.submit('ship');
SELECT t.work('{"ship": "permanent 400", "ship.fallback": "transient 503"}');
SELECT * FROM t.show(2);
SELECT count(DISTINCT idempotency_key) AS keys FROM sas.steps WHERE run_id = 2 AND step LIKE 'ship%';
SELECT input -> 'key' = to_jsonb(idempotency_key) AS its_key, input ->> 'took' AS took FROM sas.steps WHERE run_id = 2 AND step = 'ship.fallback';
SELECT t.later('10 s');
SELECT t.work();
SELECT t.brief(2);
SELECT step, agent, attempt, failure_count, output FROM sas.steps WHERE run_id = 2 ORDER BY step;
SELECT step, attempt, status FROM sas.attempts WHERE run_id = 2 ORDER BY step, attempt;
SELECT progress FROM sas.runs WHERE run_id = 2;
SELECT * FROM t.left_over();

-- recovery used up: the same; each has windows of its own
SELECT run_id FROM sas.submit('ship');
SELECT t.work('{"ship": "transient 503"}');
SELECT t.later('5 s');
SELECT t.work('{"ship": "transient 503", "end": "permanent 400"}');
-- what the fallback did is undone by its undo, and nothing else of the step
SELECT t.brief(3);
SELECT step, state, output FROM sas.steps WHERE run_id = 3 AND step LIKE 'ship%' ORDER BY step;
SELECT * FROM t.left_over();

-- both fail: the step has failed, and its rule decides by the kind of the last failure
SELECT * FROM t.try('ship', '{"ship": "permanent 400", "ship.fallback": "permanent 422"}');
SELECT error ->> 'status' AS status, error ->> 'instance' AS instance FROM sas.runs WHERE run_id = 4;
SELECT run_id FROM sas.submit('ship');
SELECT t.work('{"ship": "permanent 400", "ship.fallback": "doubt"}');
SELECT t.later('10 s') FROM t.work('{"ship.fallback": "doubt"}') \g /dev/null
DO $$ BEGIN FOR n IN 1..10 LOOP PERFORM t.later('15 min'); PERFORM t.work('{"ship.fallback": "doubt"}'); END LOOP; END $$;
SELECT * FROM t.show(5);
SELECT * FROM t.alerts();
-- resume goes on with the fallback, under its key; the step is not called again
SELECT step FROM sas.retry(5, 'ship');
SELECT step, failure_count FROM sas.steps WHERE run_id = 5 AND step LIKE 'ship%' ORDER BY step;
SELECT t.work();
SELECT t.brief(5);
SELECT * FROM t.left_over();

-- a fallback in doubt in a run that cannot go on: it is settled by its own call, then undone
SELECT run_id FROM sas.submit('ship');
SELECT t.work('{"ship": "permanent 400", "ship.fallback": "doubt"}');
SELECT changed FROM sas.cancel(6);
SELECT t.brief(6);
SELECT t.work();
SELECT t.brief(6);
-- one that ends well when its run cannot go on any more is undone, with its own output
SELECT run_id FROM sas.submit('ship');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('take');
SELECT t.claim();
SELECT t.answer('ship', 'permanent 400');
SELECT t.settle();
SELECT t.claim();
SELECT changed FROM sas.compensate(7);
SELECT t.answer('ship.fallback', output => '{"status": 200, "body": {"id": 77}}');
SELECT t.settle();
SELECT t.claim();
SELECT step, undo, asked ->> 'path' AS path FROM t.held;
SELECT t.answer('ship.fallback');
SELECT t.work();
SELECT t.brief(7);
-- one that waits in the queue is cancelled
SELECT run_id FROM sas.submit('ship');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('take');
SELECT t.claim();
SELECT t.answer('ship', 'permanent 400');
SELECT t.settle();
SELECT changed FROM sas.cancel(8);
SELECT t.work();
SELECT t.brief(8);
SELECT * FROM t.left_over();

-- in doubt: its undo needs nothing of the output, so it is undone first
SELECT t.clean() \g /dev/null
SELECT t.workflow('pay', '{
    "pay": {"agent": "payments", "call": {"method": "POST", "path": "/card"}, "recovery": {"max_failures": 1},
            "undo": {"call": {"method": "DELETE", "path": "/card/{{steps.pay.key}}"}},
            "fallback": {"function": "t.echo", "input": {"by": "transfer"}}}}', '{"output": {"by": "{{steps.pay.output.by}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('pay');
SELECT t.work('{"pay": "doubt", "undo pay": "transient 503"}');
SELECT * FROM t.show(1);
SELECT t.later('10 s');
SELECT t.work();
SELECT t.brief(1);
SELECT result, output FROM sas.runs;
SELECT step, attempt, undo, status FROM sas.attempts ORDER BY step, attempt;
-- cancelled meanwhile: undone, and no fallback
SELECT run_id FROM sas.submit('pay');
SELECT t.work('{"pay": "doubt", "undo pay": "transient 503"}');
SELECT changed FROM sas.cancel(2);
SELECT t.brief(2);
SELECT t.later('10 s');
SELECT t.work();
SELECT t.brief(2);
-- an undo that fails for good pauses the run; resume tries it again, cancel too
SELECT run_id FROM sas.submit('pay') UNION ALL SELECT run_id FROM sas.submit('pay');
SELECT t.work('{"pay": "doubt", "undo pay": "permanent 400"}');
SELECT t.brief(3), t.brief(4);
SELECT changed FROM sas.resume(3);
SELECT changed FROM sas.cancel(4);
SELECT t.work();
SELECT t.brief(3), t.brief(4);
SELECT * FROM t.left_over();

-- in doubt, and the undo needs the output: its call is repeated under its key first
SELECT t.clean() \g /dev/null
SELECT t.workflow('book', '{
    "book": {"agent": "payments", "call": {"method": "POST", "path": "/book"}, "recovery": {"max_failures": 1, "initial": "5 s"},
             "undo": {"call": {"method": "DELETE", "path": "/book/{{steps.book.output.body.id}}"}},
             "fallback": {"agent": "inventory", "call": {"method": "POST", "path": "/other"}}}}', '{"on_failure": "pause"}') \g /dev/null
-- done: no fallback is needed
SELECT run_id FROM sas.submit('book');
SELECT t.work('{"book": "doubt"}');
SELECT * FROM t.show(1);
SELECT t.later('5 s');
SELECT t.work();
SELECT t.brief(1);
-- still nobody knows: no fallback, the rule decides
SELECT run_id FROM sas.submit('book');
SELECT t.work('{"book": "doubt"}');
SELECT t.later('5 s');
SELECT t.work('{"book": "doubt"}');
SELECT t.brief(2);
-- not done after all
SELECT changed FROM sas.resume(2);
SELECT t.work('{"book": "permanent 404"}');
SELECT t.brief(2);
-- done, but not as expected: undone with what it answered, then the fallback
SELECT t.workflow('strict', '{
    "book": {"agent": "payments", "call": {"method": "POST", "path": "/book"}, "expect": "$.output.body.ok == true",
             "undo": {"call": {"method": "DELETE", "path": "/book/{{steps.book.output.body.id}}"}},
             "fallback": {"agent": "inventory", "call": {"method": "POST", "path": "/other"}}}}') \g /dev/null
SELECT * FROM t.try('strict', '{"book": {"status": 200, "body": {"id": 5, "ok": false}}}');
SELECT step, output FROM sas.steps WHERE run_id = 3 ORDER BY step;
-- a poll that has begun something and does not come to an end
SELECT t.workflow('polled', '{
    "job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "poll": {"call": {"path": "/jobs"}, "until": "$.output.body.over == true"},
            "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.job.started.body.id}}"}},
            "fallback": {"agent": "inventory", "call": {"method": "POST", "path": "/other"}}},
    "end": {"agent": "shipping", "call": {"path": "/end"}, "after": ["job"]}}') \g /dev/null
SELECT run_id FROM sas.submit('polled');
SELECT t.work();
SELECT t.later('1 s');
SELECT t.work('{"job": "permanent 404", "end": "permanent 400"}');
SELECT t.brief(4);
SELECT * FROM t.left_over();

-- the breaker of its agent is open
SELECT t.clean() \g /dev/null
SELECT t.workflow('guarded', '{
    "ask": {"agent": "payments", "call": {"path": "/ask"}, "undo": {"call": {"method": "DELETE", "path": "/ask"}},
            "fallback": {"function": "t.echo", "input": {"by": "guess"}, "on": ["breaker_open"]}}}') \g /dev/null
UPDATE _sas.agent_health h SET breaker = 'open', open_until = t.start() + interval '1 min' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'payments';
SELECT * FROM t.try('guarded');
SELECT step, attempt, failure_count, output FROM sas.steps WHERE run_id = 1 ORDER BY step;
SELECT * FROM sas.attempts;
-- it opens while the step waits for its agent
UPDATE _sas.agent_health SET breaker = 'closed';
SELECT run_id FROM sas.submit('guarded');
SELECT t.settle();
SELECT t.brief(2);
UPDATE _sas.agent_health h SET breaker = 'open' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'payments';
SELECT t.work();
SELECT t.brief(2);
-- between two windows
UPDATE _sas.agent_health SET breaker = 'closed';
SELECT run_id FROM sas.submit('guarded') UNION ALL SELECT run_id FROM sas.submit('guarded');
SELECT t.settle();
SELECT t.claim();
SELECT t.answer('ask', 'transient 503', for_run => 3), t.answer('ask', 'doubt', for_run => 4);
SELECT t.settle();
UPDATE _sas.agent_health h SET breaker = 'open' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'payments';
SELECT t.later('10 s');
SELECT t.settle();
-- one in doubt waits: its own call settles it
SELECT t.brief(3), t.brief(4);
SELECT t.claim();
SELECT t.answer('ask.fallback'), t.answer('ask');
SELECT t.brief(3), t.brief(4);
-- it is no answer to a failure, and without breaker_open an open breaker is waited for
UPDATE _sas.agent_health SET breaker = 'closed';
SELECT * FROM t.try('guarded', '{"ask": "permanent 400"}');
UPDATE _sas.agent_health h SET breaker = 'open' FROM _sas.agent a WHERE a.agent_id = h.agent_id AND a.name = 'payments';
SELECT run_id FROM sas.submit('pay');
SELECT t.settle();
SELECT t.brief(6);
UPDATE _sas.agent_health SET breaker = 'closed', open_until = NULL;
SELECT t.work();
SELECT t.brief(6);
SELECT * FROM t.left_over();

-- in a map each element falls back by itself, and in turns each turn; not while it is paused
SELECT t.clean() \g /dev/null
SELECT t.workflow('each_one', '{
    "send": {"agent": "shipping", "each": "{{input.ids}}", "call": {"method": "POST", "path": "/send/{{item}}"},
             "fallback": {"agent": "inventory", "call": {"method": "POST", "path": "/other/{{item}}"}, "undo": {"call": {"method": "DELETE", "path": "/other/{{item}}/{{steps.send.output.body.id}}"}}}},
    "end": {"agent": "payments", "call": {"path": "/end"}, "after": ["send"]}}') \g /dev/null
SELECT run_id FROM sas.submit('each_one', '{"ids": ["a", "b", "c"]}');
SELECT t.settle();
SELECT t.claim();
SELECT changed FROM sas.pause(1);
SELECT t.answer('send', 'permanent 400', for_element => 2), t.answer('send', for_element => 1), t.answer('send', 'permanent 400', for_element => 3);
SELECT t.work();
SELECT t.brief(1);
SELECT changed FROM sas.resume(1);
SELECT t.claim();
SELECT t.answer('send', 'permanent 400', for_element => 2), t.answer('send', 'permanent 400', for_element => 3);
SELECT t.settle();
SELECT t.claim();
SELECT step, element, asked ->> 'path' AS path FROM t.held ORDER BY element;
SELECT t.answer('send.fallback', for_element => 2), t.answer('send.fallback', for_element => 3);
SELECT t.work('{"end": "permanent 400"}');
SELECT t.brief(1);
SELECT t.workflow('turns', '{
    "page": {"agent": "shipping", "repeat": {"while": "$.last.body.more == true"}, "call": {"path": "/page/{{index}}"},
             "fallback": {"agent": "inventory", "call": {"path": "/other/{{index}}"}}}}', '{"output": {"last": "{{steps.page.output.body}}"}}') \g /dev/null
SELECT run_id FROM sas.submit('turns');
SELECT t.work('{"page[1]": {"status": 200, "body": {"more": true}}, "page[2]": "permanent 400", "page.fallback[2]": {"status": 200, "body": {"more": true}}}');
SELECT t.brief(2);
SELECT * FROM t.left_over();

-- a wait that nobody answers, and a child that fails, have other ways as well; inside of an include too
SELECT t.clean() \g /dev/null
SELECT t.workflow('child', '{"a": {"agent": "payments", "call": {"path": "/a"}}}') \g /dev/null
SELECT t.workflow('ways', '{
    "approve": {"wait": {"signal": "go", "timeout": "1 hour"}, "fallback": {"function": "t.echo", "input": {"by": "rule"}}},
    "sub": {"workflow": "child", "after": ["approve"], "fallback": {"function": "t.echo", "input": {"why": "{{steps.approve.output.by}}"}}}}') \g /dev/null
SELECT t.workflow('outer', '{"in": {"include": "ways"}}') \g /dev/null
SELECT run_id FROM sas.submit('outer');
SELECT t.work();
SELECT t.later('1 hour');
SELECT t.work('{"a": "permanent 400"}');
SELECT t.brief(1);
SELECT step, output FROM sas.steps WHERE run_id = 1 AND step LIKE '%sub%' ORDER BY step;
SELECT * FROM t.left_over();

-- a fallback that polls: the job that it has begun is undone if it does not finish
SELECT t.clean() \g /dev/null
SELECT t.workflow('slow_way', '{
    "film": {"agent": "payments", "call": {"path": "/quick"}, "fallback": {
        "agent": "inventory", "call": {"method": "POST", "path": "/jobs"},
        "poll": {"call": {"path": "/jobs/{{started.body.id}}"}, "until": "$.output.body.state == \"done\"", "every": "1 s", "timeout": "10 s"},
        "undo": {"call": {"method": "DELETE", "path": "/jobs/{{steps.film.started.body.id}}"}}, "output": {"job": "{{started.body.id}}", "film": "{{output.body.film}}"}}},
    "last": {"agent": "shipping", "call": {"body": "{{steps.film.output}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('slow_way') \gset
SELECT t.work('{"film": "permanent 400", "film.fallback": {"status": 202, "body": {"id": 7}}}');
SELECT t.brief(:run_id);
SELECT waiting_kind, t.at(waiting_until) AS until FROM sas.steps WHERE step = 'film.fallback';
SELECT t.later('1 s');
SELECT t.work('{"film.fallback": {"status": 200, "body": {"state": "works"}}}');
SELECT t.later('2 s');
SELECT t.claim() FROM t.settle();
SELECT asked ->> 'method' AS method, asked ->> 'path' AS path, key FROM t.held;
SELECT t.answer('film.fallback', output => '{"status": 200, "body": {"state": "done", "film": "f"}}');
SELECT t.work();
SELECT t.brief(:run_id), (SELECT output FROM sas.steps WHERE step = 'film') FROM sas.runs;
SELECT * FROM t.left_over();
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow_way') \gset
SELECT t.work('{"film": "permanent 400", "film.fallback": {"status": 202, "body": {"id": 8}}}');
SELECT t.later('1 s'); SELECT t.work('{"film.fallback": {"status": 200, "body": {"state": "works"}}}');
SELECT t.later('10 s'); SELECT t.work('{"film.fallback": {"status": 200, "body": {"state": "works"}}}');
SELECT t.brief(:run_id), error ->> 'title' AS title FROM sas.runs;
SELECT t.clean() \g /dev/null
SELECT run_id FROM sas.submit('slow_way') \gset
SELECT t.work('{"film": "permanent 400", "film.fallback": {"status": 202, "body": {"id": 9}}}');
SELECT t.later('1 s'); SELECT t.work('{"film.fallback": {"status": 200, "body": {"state": "done", "film": "g"}}, "last": "permanent 400"}');
SELECT t.brief(:run_id);
SELECT * FROM t.left_over();

