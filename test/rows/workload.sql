-- SPDX-License-Identifier: PostgreSQL
--
-- One workload for tools/check_rows: every kind of step, undo, child runs, watchers and verbs, by some thousand runs
-- under fixed keys and a frozen clock. After test/sql/setup.sql, whose functions do the work of the workers by hand.
\set ON_ERROR_STOP on
\set n 150
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT t.clean() \g /dev/null
UPDATE _sas.agent SET created_at = sas.now();
SELECT t.watching() \g /dev/null
SELECT sas.create_agent('packer', kind => 'external', retry => '{"jitter": false}') \g /dev/null
SELECT sas.create_queue('narrow', 200, key => '{{item}}', per_key => 20) \g /dev/null

-- t.planned(input): a plan of as many steps as the input says
CREATE FUNCTION t.planned(input jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('steps', jsonb_object_agg('s' || g, '{"function": "t.echo"}'::jsonb))
    FROM generate_series(1, 1 + (input ->> 'n')::int % 3) g
$$;
-- t.around(call): before a call and after it, as a middleware
CREATE FUNCTION t.around(c jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT c -> CASE WHEN c ? 'response' THEN 'response' ELSE 'request' END $$;

-- t.load(workflow, n): that many runs with keys, every tenth with a priority, every seventh later, some with an answer
CREATE FUNCTION t.load(name text, n int, more jsonb DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM s.run_id FROM generate_series(1, n) g
    CROSS JOIN LATERAL sas.submit(name, more || jsonb_build_object('n', g, 'ids', jsonb_build_array('a' || g % 5, 'b', 'c')), key => name || '-' || g,
                                  priority => g % 10 / 9, start_at => CASE WHEN g % 7 = 0 THEN sas.now() + '1 min' END,
                                  labels => jsonb_build_object('third', (g % 3)::text),
                                  reply_to => CASE WHEN g % 50 = 0 THEN 'shop' END) s;
END $$;

-- t.go_on(rules, until): the clock goes from instant to instant at which a message is due, and everybody works
CREATE FUNCTION t.go_on(rules jsonb, span interval) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := sas.now() + span;
    at timestamptz;
    task record;
BEGIN
    LOOP
        PERFORM t.work(rules);
        FOR task IN SELECT c.request_id, c.run_id FROM sas.claim('packer', 'p', 1000, '1 min') c ORDER BY c.run_id LOOP
            PERFORM CASE task.run_id % 4 WHEN 0 THEN sas.fail(task.request_id, 'no room') WHEN 1 THEN sas.hand_back(task.request_id)
                    ELSE sas.complete(task.request_id, jsonb_build_object('box', task.run_id)) END;
        END LOOP;
        PERFORM t.work(rules);
        at := (SELECT min(d.due_at) FROM (SELECT m.due_at FROM _sas.message m UNION ALL SELECT s.due_at FROM _sas.schedule s) d
               WHERE d.due_at > sas.now());
        EXIT WHEN at IS NULL OR at > until;
        -- in steps of a second at least, so that this ends
        PERFORM t.set_clock(greatest(at, sas.now() + '1 s'));
    END LOOP;
    PERFORM t.set_clock(until);
    PERFORM t.work(rules);
END $$;

-- definitions --------------------------------------------------------------------------
SELECT t.workflow('order', '{
    "take": {"agent": "inventory", "call": {"path": "/take/{{input.n}}"}, "output": {"id": "{{output.body.id}}"}, "undo": {"call": {"method": "DELETE", "path": "/take"}}},
    "charge": {"agent": "payments", "call": {"body": {"of": "{{steps.take.output.id}}"}}, "after": ["take"], "undo": {"call": {"path": "/refund"}}},
    "book": {"function": "t.echo", "input": {"n": "{{input.n}}"}, "after": ["charge"], "undo": {"function": "t.echo"}}}',
    '{"output": {"booked": "{{steps.book.output}}"}, "hooks": [{"on": "success", "function": "t.echo"}]}') \g /dev/null
SELECT t.workflow('undone', '{
    "take": {"agent": "inventory", "call": {}, "undo": {"call": {"method": "DELETE"}}},
    "child": {"workflow": "order", "input": "{{input}}", "after": ["take"], "undo": {"workflow": "order", "input": "{{input}}"}},
    "fails": {"agent": "shipping", "call": {}, "after": ["child"]}}', '{"on_failure": "compensate"}') \g /dev/null
SELECT t.workflow('pivot', '{
    "take": {"function": "t.echo", "undo": {"function": "t.echo"}}, "pay": {"agent": "payments", "call": {}, "pivot": true, "after": ["take"]},
    "fails": {"agent": "shipping", "call": {}, "after": ["pay"]}}') \g /dev/null
SELECT t.workflow('shaky', '{"shaky": {"agent": "payments", "call": {}, "recovery": {"max_failures": 3, "initial": "5 s"}, "on_failure": "skip"}, "end": {"function": "t.echo", "after": ["shaky"]}}') \g /dev/null
SELECT t.workflow('doubtful', '{"doubtful": {"agent": "payments", "call": {"method": "POST"}, "recovery": {"max_failures": 2, "initial": "5 s"}, "undo": {"call": {}}}}') \g /dev/null
SELECT t.workflow('pack', '{"pack": {"agent": "packer", "task": {}, "input": "{{input}}", "recovery": {"initial": "2 s", "max_failures": 3}, "undo": {"task": {}}}}') \g /dev/null
SELECT t.workflow('waits', '{
    "nap": {"wait": {"for": "30 s"}}, "day": {"wait": {"until": "2026-01-01T00:10:00Z"}},
    "word": {"wait": {"signal": "go", "timeout": "5 min", "on_timeout": "go_on"}}, "end": {"function": "t.echo", "after": ["nap", "day", "word"]}}') \g /dev/null
SELECT t.workflow('maps', '{
    "each": {"each": "{{input.ids}}", "function": "t.echo", "input": {"id": "{{item}}"}, "undo": {"function": "t.echo"}},
    "calls": {"each": "{{input.ids}}", "agent": "inventory", "call": {"path": "/{{item}}"}, "concurrency": 2, "after": ["each"]},
    "children": {"each": "{{input.ids}}", "workflow": "shaky", "after": ["each"]},
    "queued": {"each": "{{input.ids}}", "function": "t.echo", "queue": "narrow", "after": ["calls"]}}') \g /dev/null
SELECT t.workflow('map_fails', '{
    "take": {"each": "{{input.ids}}", "agent": "inventory", "call": {}, "undo": {"call": {"method": "DELETE"}}},
    "fails": {"each": "{{input.ids}}", "agent": "shipping", "call": {}, "after": ["take"], "on_failure": "compensate"}}') \g /dev/null
SELECT t.workflow('pages', '{
    "page": {"function": "t.echo", "repeat": {"while": "$.index < 2", "max": 5}, "input": {"i": "{{index}}"}, "undo": {"function": "t.echo"}},
    "end": {"function": "t.echo", "when": "$.input.n > 10", "after": ["page"]}}') \g /dev/null
SELECT t.workflow('polls', '{"job": {"agent": "payments", "call": {"method": "POST", "path": "/jobs"}, "poll": {"call": {"path": "/jobs"}, "every": "10 s", "until": "$.output.body.id == \"job-id\""}}}') \g /dev/null
SELECT t.workflow('falls_back', '{
    "fails": {"agent": "shipping", "call": {}, "fallback": {"function": "t.echo", "input": {"slow": true}, "undo": {"function": "t.echo"}}},
    "end": {"agent": "inventory", "call": {}, "after": ["fails"]}}', '{"finalize": "t.echo"}') \g /dev/null
SELECT t.workflow('includes', '{"first": {"include": "shaky", "input": "{{input}}"}, "then": {"include": "order", "input": "{{input}}", "after": ["first"]}}') \g /dev/null
SELECT sas.create_workflow('planned', '{"plan": "t.planned"}') \g /dev/null
SELECT t.workflow('alone', '{"nap": {"wait": {"for": "20 s"}}}', '{"concurrency": {"key": "all", "limit": 3}}') \g /dev/null
SELECT t.workflow('late', '{"word": {"wait": {"signal": "never"}}}', '{"deadline": "3 min"}') \g /dev/null
SELECT t.workflow('middle', '{"call": {"agent": "inventory", "call": {"path": "/middle"}}}') \g /dev/null
SELECT sas.create_middleware('around', 'call', 't.around(jsonb)', 't.around(jsonb)', workflow => 'middle') \g /dev/null
SELECT t.workflow('mails', '{"mail": {"function": "t.echo"}}') \g /dev/null
SELECT sas.subscribe('pages', 'mails') \g /dev/null
SELECT sas.schedule('minutely', '* * * * *', 'mails') \g /dev/null

-- runs ---------------------------------------------------------------------------------
SELECT t.load(w, :n) FROM unnest('{order,undone,pivot,shaky,doubtful,pack,waits,maps,map_fails,pages,polls,falls_back,includes,planned,alone,late,middle,mails}'::text[]) w \g /dev/null
-- one after the other
SELECT s.run_id FROM generate_series(1, 20) g CROSS JOIN LATERAL sas.submit('order', '{"n": 1}', key => 'follows-' || g,
    after_run => (SELECT r.run_id FROM sas.runs r WHERE r.key = 'waits-' || g)) s \g /dev/null
SELECT t.go_on('{"fails": "permanent 400", "shaky": "transient 503", "doubtful": "doubt"}', '1 min') \g /dev/null
SELECT sas.signal_key('waits', 'waits-' || g, 'go', '{"by": "hand"}') FROM generate_series(1, :n, 2) g \g /dev/null

-- verbs --------------------------------------------------------------------------------
-- t.some(workflow, i): every tenth of its runs, from the i-th on
CREATE FUNCTION t.some(workflow text, i int) RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(r.run_id ORDER BY r.run_id) FROM sas.runs r WHERE r.workflow = $1 AND (r.input ->> 'n')::int % 10 = i AND r.key LIKE $1 || '-%'
$$;
SELECT count(*) FROM sas.pause_runs(t.some('waits', 1)) \g /dev/null
SELECT count(*) FROM sas.set_priority_runs(t.some('waits', 2), 5) \g /dev/null
SELECT count(*) FROM sas.cancel_runs(t.some('waits', 3), 'not wanted') \g /dev/null
SELECT count(*) FROM sas.halt_runs(t.some('late', 4)) \g /dev/null
SELECT count(*) FROM sas.compensate_runs(t.some('late', 5)) \g /dev/null
SELECT count(*) FROM sas.skip_runs(t.some('pivot', 1), 'fails') \g /dev/null
SELECT count(*) FROM sas.force_complete_runs(t.some('pivot', 2), 'fails', '{"by": "hand"}') \g /dev/null
SELECT count(*) FROM sas.retry_runs(t.some('pivot', 3)) \g /dev/null
SELECT count(*) FROM sas.set_input_runs(t.some('pivot', 4), 'fails', '{"path": "/other"}') \g /dev/null
SELECT count(*) FROM sas.compensate_runs(t.some('pivot', 5)) \g /dev/null
SELECT count(*) FROM sas.rerun_runs(t.some('pivot', 6)) \g /dev/null
SELECT sas.pause_workflow('mails'), sas.pause_queue('narrow') \g /dev/null
SELECT t.go_on('{"fails": "permanent 400", "shaky": "transient 503", "doubtful": "doubt"}', '2 min') \g /dev/null
SELECT count(*) FROM sas.resume_runs(t.some('waits', 1)) \g /dev/null
SELECT sas.resume_workflow('mails'), sas.resume_queue('narrow') \g /dev/null
SELECT t.go_on('{}', '15 min') \g /dev/null
SELECT count(*) FROM sas.read_replies('shop', 5) \g /dev/null

-- watchers -----------------------------------------------------------------------------
SELECT sas.create_watcher('lines', '{"agent": "feed", "stream": {"format": "ndjson", "path": "/{{key}}"}, "items": {"table": "t.item"}, "cursor": {"next": "{{item.seq}}"}, "retry": {"max_failures": 3, "initial": "1 s", "jitter": false}}') \g /dev/null
SELECT sas.create_watcher('starts', '{"agent": "feed", "stream": {"format": "ndjson", "path": "/{{key}}"}, "items": {"workflow": "mails"}, "retry": {"jitter": false}}') \g /dev/null
SELECT t.node('n', 1000) \g /dev/null
SELECT count(*) FROM generate_series(1, :n) g, sas.watch('lines', 'line-' || g) \g /dev/null
SELECT count(*) FROM generate_series(1, 20) g, sas.watch('starts', 'start-' || g) \g /dev/null
SELECT t.claim_watches('n', 1000) \g /dev/null
SELECT t.append('n', w.key, jsonb_build_array(jsonb_build_object('seq', 1, 'n', 1), jsonb_build_object('seq', 2, 'n', 2)), '2') FROM _sas.watch w ORDER BY w.watch_id \g /dev/null
SELECT t.deliver('{line-3,line-4}') FROM generate_series(1, 10) \g /dev/null
SELECT t.lose('n', 'line-5'), t.lose('n', 'line-6') \g /dev/null
SELECT count(*) FROM sas.pause_watch('lines', '{line-7,line-8}') \g /dev/null
SELECT count(*) FROM sas.unwatch('lines', '{line-9,line-10}') \g /dev/null
SELECT t.later('5 s') \g /dev/null
SELECT t.claim_watches('n', 1000), t.news('n'), t.deliver() \g /dev/null
SELECT t.go_on('{}', '2 min') \g /dev/null
