-- SPDX-License-Identifier: PostgreSQL
--
-- Waits: for a signal, an instant, a span of time. They hold no worker.
SELECT t.clean() \g /dev/null
SELECT t.workflow('approval', '{
    "ask":     {"function": "t.echo"},
    "approve": {"wait": {"signal": "decision", "timeout": "2 days"}, "expect": "$.output.approved == true", "after": ["ask"]},
    "ship":    {"function": "t.echo", "input": {"by": "{{steps.approve.output.by}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('approval', key => 'k1');
SELECT t.work();
SELECT * FROM t.show(1);
-- the payload is the output
SELECT sas.signal(1, 'decision', '{"approved": true, "by": "ann"}');
SELECT t.work();
SELECT * FROM t.show(1);
SELECT step, output FROM sas.steps WHERE run_id = 1 ORDER BY step;
SELECT * FROM t.left_over();

-- EV6 one that comes early is kept, and more than one in their order
SELECT t.workflow('two', '{
    "a": {"function": "t.echo"},
    "first": {"wait": {"signal": "go"}, "after": ["a"]},
    "second": {"wait": {"signal": "go"}, "after": ["first"]}}') \g /dev/null
SELECT run_id FROM sas.submit('two', key => 'k2');
SELECT sas.signal_key('two', 'k2', 'go', '1'), sas.signal_key('two', 'k2', 'go', '2');
SELECT count(*) AS kept FROM _sas.signal;
SELECT t.work();
SELECT t.brief(2);
SELECT step, output FROM sas.steps WHERE run_id = 2 ORDER BY started_at, step;
SELECT count(*) AS kept FROM _sas.signal;

-- false where something is expected: a permanent failure
SELECT run_id FROM sas.submit('approval', key => 'k3');
SELECT t.work();
SELECT sas.signal_key('approval', 'k3', 'decision', '{"approved": false}');
SELECT t.work();
SELECT t.brief(3);
SELECT error FROM sas.steps WHERE run_id = 3 AND step = 'approve';

-- EV8 a time-out is a permanent failure; its timer is a row
SELECT run_id FROM sas.submit('approval', key => 'k4');
SELECT t.work();
SELECT t.later('1 day 23 hours');
SELECT t.work();
SELECT t.brief(4);
SELECT t.later('1 hour');
SELECT t.work();
SELECT t.brief(4);
SELECT error FROM sas.steps WHERE run_id = 4 AND step = 'approve';

-- EV4 refused with a reason when nobody can ever take it
SELECT sas.signal(4, 'decision', '{}');
SELECT sas.signal_key('two', 'k2', 'go');
SELECT run_id FROM sas.submit('two', key => 'k5');
SELECT sas.signal(5, 'nope');
SELECT sas.signal(99, 'go');
SELECT sas.signal_key('two', 'none', 'go');
SELECT sas.signal(5, 'go', NULL);
SELECT t.work();
SELECT sas.signal(5, 'go', '1');
SELECT t.work();
SELECT t.brief(5);
-- what is cancelled takes none
SELECT changed FROM sas.cancel(5);
SELECT sas.signal(5, 'go', '2');
SELECT t.work();
SELECT t.brief(5);

-- a signal to a paused run is taken; what follows waits for resume
SELECT run_id FROM sas.submit('approval', key => 'k6');
SELECT t.work();
SELECT changed FROM sas.pause(6);
SELECT sas.signal(6, 'decision', '{"approved": true, "by": "bob"}');
SELECT t.work();
SELECT t.brief(6);
SELECT changed FROM sas.resume(6);
SELECT t.work();
SELECT t.brief(6);
SELECT * FROM t.left_over();

-- a time-out that pauses the run: after resume it waits anew
SELECT t.workflow('patient', '{"a": {"wait": {"signal": "go", "timeout": "1 hour"}, "on_failure": "pause"}}') \g /dev/null
SELECT run_id FROM sas.submit('patient');
SELECT t.work();
SELECT t.later('1 hour');
SELECT t.work();
SELECT t.brief(7);
SELECT * FROM t.alerts();
SELECT changed FROM sas.resume(7);
SELECT t.work();
SELECT * FROM t.show(7);
SELECT sas.signal(7, 'go', '"late"');
SELECT t.work();
SELECT t.brief(7);

-- until and for: written in the definition, or known at run time
SELECT t.clean() \g /dev/null
SELECT t.workflow('times', '{
    "a": {"wait": {"for": "10 s"}},
    "b": {"wait": {"for": "{{input.span}}"}},
    "c": {"wait": {"until": "2026-01-01 00:00:30+00"}},
    "d": {"wait": {"until": "{{input.at}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('times', '{"span": "20 s", "at": "2026-01-01 00:00:40+00"}');
SELECT t.work();
SELECT * FROM t.show(1);
SELECT t.later('10 s') FROM t.work() \g /dev/null
SELECT t.work();
SELECT t.brief(1);
SELECT t.later('20 s');
SELECT t.work();
SELECT t.brief(1);
SELECT t.later('10 s');
SELECT t.work();
SELECT t.brief(1);
-- what is no time fails the step, and says what it is
SELECT run_id FROM sas.submit('times', '{"span": 7, "at": "soon"}');
SELECT t.work();
SELECT t.brief(2);
SELECT step, error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 2 AND error IS NOT NULL ORDER BY 1;
SELECT * FROM t.left_over();
-- a time beyond all bounds is none either
SELECT run_id FROM sas.submit('times', '{"span": "290000 years", "at": "infinity"}');
SELECT t.work();
SELECT step, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 3 AND error IS NOT NULL ORDER BY 1;
-- what cannot be carried out holds up no other run: an alert, and another try
CREATE FUNCTION t.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'disk full, say' USING ERRCODE = 'disk_full'; END $$;
SELECT run_id FROM sas.submit('times', '{"span": "1 s", "at": "2026-01-01 00:00:41+00"}');
SELECT run_id FROM sas.submit('times', '{"span": "1 s", "at": "2026-01-01 00:00:41+00"}');
CREATE TRIGGER refuse BEFORE INSERT ON _sas.step FOR EACH ROW WHEN (NEW.run_id = 4) EXECUTE FUNCTION t.refuse();
SELECT t.work();
SELECT t.brief(4), t.brief(5);
SELECT * FROM t.alerts() WHERE kind = 'stuck';
DROP TRIGGER refuse ON _sas.step;
-- the server may have room again: the next try is a second later
SELECT t.later('1 s');
SELECT t.work();
SELECT t.brief(4), t.brief(5);
SELECT t.later('1 min'), t.work() \g /dev/null
SELECT t.brief(4), t.brief(5);
SELECT * FROM t.left_over();
DROP FUNCTION t.refuse();

-- one of several signals: the output says which one; the other names are kept for who waits for them
SELECT t.clean() \g /dev/null
SELECT t.workflow('answer', '{
    "a": {"wait": {"signal": ["accepted", "refused"], "timeout": "{{input.patience}}", "on_timeout": "go_on"}},
    "b": {"function": "t.echo", "input": {"said": "{{steps.a.output}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('answer', '{"patience": "1 hour"}');
SELECT t.work();
SELECT step, waiting_kind, waiting_on, waiting_until FROM sas.steps WHERE run_id = 1 AND step = 'a';
SELECT sas.signal(1, 'refused', '{"by": "ann"}');
SELECT t.work();
SELECT t.brief(1);
SELECT step, output FROM sas.steps WHERE run_id = 1 ORDER BY step;
-- a time-out goes on with null, without a failure in the books
SELECT run_id FROM sas.submit('answer', '{"patience": "1 hour"}');
SELECT t.work();
SELECT t.later('1 hour');
SELECT t.work();
SELECT t.brief(2);
SELECT step, output, error FROM sas.steps WHERE run_id = 2 ORDER BY step;
SELECT count(*) AS failures FROM sas.attempts WHERE run_id = 2 AND error IS NOT NULL;
SELECT result FROM sas.runs WHERE run_id = 2;
-- a time-out that is no span fails the step, and says what it is
SELECT run_id FROM sas.submit('answer', '{"patience": 7}');
SELECT t.work();
SELECT t.brief(3);
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 3 AND step = 'a';
SELECT sas.signal(3, 'else');
-- without go_on it is a failure that names what did not come
SELECT t.workflow('strict', '{"a": {"wait": {"signal": ["accepted", "refused"], "timeout": "{{input.patience}}"}}}') \g /dev/null
SELECT run_id FROM sas.submit('strict', '{"patience": "1 min"}');
SELECT t.work();
SELECT t.later('1 min');
SELECT t.work();
SELECT error ->> 'title' AS title, error ->> 'detail' AS detail FROM sas.steps WHERE run_id = 4;
-- a wait for several names takes one signal, the oldest; each other goes to the step next in its line
SELECT t.workflow('lines', '{
    "f": {"function": "t.echo"},
    "a": {"wait": {"signal": ["x", "y"]}, "after": ["f"]},
    "b": {"wait": {"signal": "x"}, "after": ["f"]},
    "c": {"wait": {"signal": ["y", "x"]}, "after": ["f"]}}') \g /dev/null
SELECT run_id FROM sas.submit('lines');
SELECT sas.signal(5, 'y', '1'), sas.signal(5, 'x', '2'), sas.signal(5, 'x', '3'), sas.signal(5, 'y', '4');
SELECT t.work();
SELECT t.brief(5);
SELECT step, output FROM sas.steps WHERE run_id = 5 AND step <> 'f' ORDER BY step;
SELECT name, payload FROM _sas.signal ORDER BY signal_id;
SELECT run_id FROM sas.submit('lines') \g /dev/null
SELECT t.work() \g /dev/null
SELECT sas.signal(6, 'x', '1') \g /dev/null
SELECT t.work() \g /dev/null
SELECT sas.signal(6, 'x', '2') \g /dev/null
SELECT t.work() \g /dev/null
SELECT sas.signal(6, 'y', '3') \g /dev/null
SELECT t.work() \g /dev/null
SELECT step, output FROM sas.steps WHERE run_id = 6 AND step <> 'f' ORDER BY step;
-- so does each of many, of which only one can be given its signal at a time
SELECT t.workflow('many', jsonb_object_agg('w' || i, '{"wait": {"signal": ["x", "y"]}}'::jsonb)) FROM generate_series(1, 30) i \g /dev/null
SELECT run_id FROM sas.submit('many') \g /dev/null
SELECT t.work() \g /dev/null
SELECT count(sas.signal(7, CASE i % 2 WHEN 0 THEN 'x' ELSE 'y' END)) FROM generate_series(1, 30) i;
SELECT t.work() \g /dev/null
SELECT state, result FROM sas.runs WHERE run_id = 7;
SELECT * FROM t.left_over();

-- run.now is the clock when a template or a predicate is evaluated
SELECT t.clean() \g /dev/null
SELECT t.workflow('clock', '{
    "a": {"wait": {"for": "1 min"}},
    "b": {"function": "t.echo", "input": {"now": "{{run.now}}", "began": "{{run.created_at}}"}, "after": ["a"]},
    "c": {"function": "t.echo", "when": "$.run.now == $.run.created_at"},
    "d": {"function": "t.echo", "when": "$.run.now == $.run.created_at", "after": ["a"]}}') \g /dev/null
SELECT run_id FROM sas.submit('clock');
SELECT t.work();
SELECT t.later('1 min');
SELECT t.work();
SELECT t.brief(1);
SELECT (output ->> 'now')::timestamptz - (output ->> 'began')::timestamptz AS passed FROM sas.steps WHERE run_id = 1 AND step = 'b';

-- a delivery reads no more signals than steps wait for
SELECT t.clean() \g /dev/null
SELECT t.workflow('far', '{"a": {"wait": {"signal": "first"}}, "b": {"wait": {"signal": "x"}, "after": ["a"]}, "c": {"wait": {"signal": "last"}, "after": ["b"]}}') \g /dev/null
SELECT run_id FROM sas.submit('far');
SELECT t.work() \g /dev/null
SELECT count(sas.signal(1, 'x', to_jsonb(i))) FROM generate_series(1, 500) i;
CREATE FUNCTION t.signals_read() RETURNS bigint LANGUAGE sql AS $$
    SELECT sum(pg_stat_get_xact_tuples_returned(o) + pg_stat_get_xact_tuples_fetched(o))
    FROM (SELECT '_sas.signal'::regclass::oid UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = '_sas.signal'::regclass) x (o) $$;
DO $$
DECLARE
    before bigint := t.signals_read();
BEGIN
    PERFORM _sas.deliver_signals('{1}');
    RAISE NOTICE 'few: %', t.signals_read() - before < 20;
END $$;
-- neither does a signal to another run, whatever the planner knows of the table
ANALYZE _sas.signal;
SELECT run_id FROM sas.submit('far');
SELECT t.work() \g /dev/null
DO $$
DECLARE
    before bigint;
BEGIN
    PERFORM sas.signal(2, 'x', '"of another run"');
    before := t.signals_read();
    PERFORM sas.signal(2, 'x');
    RAISE NOTICE 'few: %', t.signals_read() - before < 20;
    before := t.signals_read();
    PERFORM _sas.deliver_signals('{2}');
    RAISE NOTICE 'few: %', t.signals_read() - before < 20;
END $$;
SELECT sas.signal(run_id, 'first') FROM sas.runs \g /dev/null
SELECT t.work() \g /dev/null
SELECT run_id, step, output FROM sas.steps WHERE step = 'b' ORDER BY 1;
DROP FUNCTION t.signals_read;
