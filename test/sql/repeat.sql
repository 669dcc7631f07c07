-- SPDX-License-Identifier: PostgreSQL
--
-- Repeat: turns one after the other, each with the output of the last.
SELECT t.clean() \g /dev/null
SELECT t.workflow('pages', '{
    "page": {"agent": "inventory", "repeat": {"while": "$.last.body.next != null", "max": 5}, "call": {"path": "/list", "query": {"cursor": "{{last.body.next?}}", "turn": "{{index}}"}},
             "undo": {"call": {"method": "DELETE", "path": "/{{steps.page.output.body.next?}}"}}},
    "end": {"agent": "payments", "call": {"body": {"last": "{{steps.page.output.body.n}}"}}}}') \g /dev/null
SELECT run_id FROM sas.submit('pages');
SELECT t.settle(), t.claim();
SELECT asked -> 'query' AS query FROM t.held;
SELECT t.answer('page', output => '{"status": 200, "body": {"n": 1, "next": "b"}}');
SELECT t.settle(), t.claim();
SELECT asked -> 'query' AS query FROM t.held;
SELECT t.answer('page', output => '{"status": 200, "body": {"n": 2, "next": null}}');
SELECT t.brief(1);
-- the output is that of the last turn
SELECT t.claim();
SELECT asked -> 'body' AS body FROM t.held;
-- a turn has a key of its own, and is undone by its own undo, the last one first
SELECT count(DISTINCT idempotency_key) AS keys FROM sas.steps WHERE step = 'page' AND element IS NOT NULL;
SELECT t.answer('end', 'permanent 402');
SELECT t.settle(), t.claim();
SELECT element, asked ->> 'path' AS path FROM t.held;
SELECT t.work();
SELECT t.brief(1);
-- it does not go on for ever
SELECT run_id FROM sas.submit('pages');
SELECT t.settle();
DO $$ BEGIN
    FOR n IN 1..5 LOOP
        PERFORM t.claim(), t.settle();
        PERFORM t.answer('page', output => '{"status": 200, "body": {"n": 2, "next": "x"}}');
    END LOOP;
END $$;
SELECT t.settle();
SELECT error ->> 'title' AS title FROM sas.steps WHERE run_id = 2 AND element IS NULL AND step = 'page';
SELECT t.work();
SELECT t.brief(2);
-- neither true nor false
SELECT t.workflow('odd', '{"a": {"function": "t.echo", "repeat": {"while": "$.last.n > 1", "every": "10 s"}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('odd', '{"n": "x"}');
SELECT t.work();
SELECT t.brief(3), (SELECT error ->> 'title' FROM sas.steps WHERE run_id = 3 AND element IS NULL);
SELECT changed FROM sas.cancel(3);
SELECT t.work();
-- every: so long between the turns; a turn that fails is retried alone
SELECT run_id FROM sas.submit('odd', '{"n": 2}');
SELECT t.work();
SELECT t.work();
SELECT t.brief(4);
SELECT t.later('10 s');
SELECT t.work('{"a": "transient"}');
SELECT t.brief(4);
SELECT t.later('10 s');
SELECT t.settle(), t.claim();
SELECT t.answer('a', output => '{"n": 1}');
SELECT t.brief(4);
-- between two turns, the output is that of the last one
SELECT t.workflow('also', '{"a": {"function": "t.echo", "repeat": {"while": "$.output.n > 1"}}}') \g /dev/null
SELECT run_id FROM sas.submit('also', '{"n": 2}');
SELECT t.settle(), t.claim();
SELECT t.answer('a', output => '{"n": 2}');
SELECT t.settle(), t.claim();
SELECT t.answer('a', output => '{"n": 1}');
SELECT t.brief(5);
SELECT * FROM t.left_over();
