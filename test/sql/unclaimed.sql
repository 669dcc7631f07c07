-- A run that nobody has claimed yet: verbs, views and the supervisor find what is ready of it.
SELECT t.clean() \g /dev/null
SELECT sas.create_agent('inventory', 'http://127.0.0.1:9/') \g /dev/null
SELECT t.workflow('one', '{"a": {"agent": "inventory", "call": {}, "undo": {"call": {}}}, "b": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
SELECT t.workflow('two', '{"a": {"agent": "inventory", "call": {}}, "b": {"function": "t.echo"}}') \g /dev/null
SELECT t.workflow('high', '{"a": {"agent": "inventory", "call": {}, "priority": 1}}') \g /dev/null
SELECT t.workflow('falls', '{"a": {"agent": "inventory", "call": {}, "fallback": {"on": ["breaker_open"], "function": "t.echo"}}}') \g /dev/null
SELECT t.workflow('tested', '{"a": {"function": "t.echo"}, "b": {"function": "t.echo", "after": ["a"]}}') \g /dev/null
-- How many rows are ready.
CREATE FUNCTION t.ready() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM _sas.ready $$;
-- What a command makes of a run that nobody has claimed; the run is number 1.
CREATE FUNCTION t.told(command text, workflow text DEFAULT 'one', OUT before bigint, OUT answer text, OUT after bigint, OUT stands text, OUT left_over text) LANGUAGE plpgsql
SET plpgsql.extra_errors = 'none' AS $$     -- a command may have more columns than are told
BEGIN
    PERFORM t.clean();
    PERFORM sas.submit(workflow);
    before := t.ready();
    EXECUTE command INTO answer;
    PERFORM t.schedule();
    PERFORM t.supervise();
    after := t.ready();
    stands := t.brief(1);
    PERFORM t.work();
    left_over := (SELECT string_agg(l.what || ' ' || l.n, ', ') FROM t.left_over() l);
END $$;

\echo a run that begins with one step, with two, with a priority
SELECT w AS workflow, f.before FROM unnest('{one,two,high,falls,tested}'::text[]) w, t.told('SELECT 1', w) f;
SELECT t.clean() \g /dev/null
SELECT sas.submit('one', priority => 1) \g /dev/null
SELECT t.ready();
SELECT t.clean() \g /dev/null
SELECT sas.submit_batch('one', ARRAY['{}', '{}', '{}']::jsonb[]) \g /dev/null
SELECT t.ready();

\echo it is shown as any other
SELECT run_id, step, state, waiting_kind, waiting_on, t.at(waiting_since) AS since FROM sas.steps ORDER BY 1, 2;
SELECT waiting FROM sas.agents WHERE name = 'inventory';

\echo verbs find it
SELECT command, f.* FROM (VALUES
    (1, 'SELECT c FROM sas.cancel(1) c'), (2, 'SELECT c FROM sas.halt(1) c'), (3, 'SELECT c FROM sas.compensate(1) c'), (4, 'SELECT c FROM sas.pause(1) c'),
    (5, 'SELECT c FROM sas.set_priority(1, 7) c'), (6, 'SELECT c FROM sas.skip(1, ''a'') c'), (7, 'SELECT c FROM sas.force_complete(1, ''a'', ''{}'') c'),
    (8, 'SELECT c FROM sas.set_input(1, ''a'', ''{"x": 1}'') c'), (9, 'SELECT c FROM sas.retry(1, ''a'') c'), (10, 'SELECT t.later(''1 min''), _sas.set_timers(NULL, NULL, NULL), t.later(''2 days'')')) AS v (n, command),
    LATERAL t.told(command) f ORDER BY n;

\echo of many by one command
SELECT t.clean() \g /dev/null
SELECT sas.submit_batch('one', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, 300))) \g /dev/null
SELECT count(*) FROM sas.cancel_runs(ARRAY(SELECT g FROM generate_series(1, 150) g));
SELECT t.schedule() \g /dev/null
SELECT t.ready();
SELECT state, result, count(*) FROM sas.runs GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) FROM sas.set_priority_runs(ARRAY(SELECT g FROM generate_series(151, 200) g), 2);
SELECT t.ready();
SELECT min(run_id), max(run_id) FROM (SELECT run_id FROM _sas.ready ORDER BY lane, rank LIMIT 50) q;

\echo after a pause it is as it was
SELECT t.clean() \g /dev/null
SELECT sas.submit('one') \g /dev/null
SELECT sas.pause(1) \g /dev/null
SELECT sas.resume(1) \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT t.ready(), t.brief(1);

\echo and when it is given back
SELECT t.clean() \g /dev/null
SELECT sas.submit('one') \g /dev/null
SELECT t.claim();
SELECT t.answer('a', 'transient') \g /dev/null
SELECT t.settle() \g /dev/null
SELECT t.later('1 h') \g /dev/null
SELECT t.schedule() \g /dev/null
SELECT t.ready(), t.brief(1);

\echo a test carries it out
SELECT t.clean() \g /dev/null
BEGIN;
SELECT run_id FROM sas.submit('tested', '{"n": 1}');
SELECT t.ready();
SELECT state, result FROM sas.continue_inline(1);
SELECT t.ready();
ROLLBACK;

\echo one step of a run cannot be ready twice
SELECT t.clean() \g /dev/null
SELECT sas.submit('one') \g /dev/null
INSERT INTO _sas.ready SELECT * FROM _sas.ready;
SELECT t.clean() \g /dev/null
DROP FUNCTION t.told, t.ready;
SELECT sas.drop_workflow(w) FROM unnest('{one,two,high,falls,tested}'::text[]) w \g /dev/null
