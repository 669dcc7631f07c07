-- SPDX-License-Identifier: PostgreSQL
--
-- What all tests of this layer share: the extension, and a schema t whose
-- functions act as the workers, by hand, under a frozen clock. Every file
-- begins with t.clean(): no runs, run ids count from 1, the clock stands at
-- midnight.
CREATE EXTENSION sas;
\set ECHO none
\set QUIET on

CREATE SCHEMA t;

-- workers by name; their ids go from 1 on, their boot is 1
CREATE TABLE t.worker (id bigint GENERATED ALWAYS AS IDENTITY, name text PRIMARY KEY, alive boolean NOT NULL DEFAULT true, boot bigint NOT NULL DEFAULT 1);

-- what they hold
CREATE TABLE t.held (worker text, n bigint GENERATED ALWAYS AS IDENTITY, lease_id bigint, run_id bigint, step_no int, element int, step text, undo boolean,
                     request_id uuid, key text, asked jsonb, problem jsonb, window_ms float8);

-- which changes of state the tests have made, for the file "coverage"
CREATE TABLE t.seen (subject text, from_state text, to_state text, PRIMARY KEY (subject, from_state, to_state));

CREATE FUNCTION t.see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.seen VALUES (TG_TABLE_NAME, CASE TG_OP WHEN 'INSERT' THEN 'none' ELSE OLD.state END, NEW.state) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
-- not of runs that are put in: sas.submit writes those by itself only where no trigger listens, see the file "submit_ways"
CREATE TRIGGER see AFTER UPDATE OF state ON _sas.run FOR EACH ROW EXECUTE FUNCTION t.see();
CREATE TRIGGER see AFTER INSERT OR UPDATE OF state ON _sas.step FOR EACH ROW EXECUTE FUNCTION t.see();
CREATE TRIGGER see AFTER INSERT OR UPDATE OF state ON _sas.watch FOR EACH ROW EXECUTE FUNCTION t.see();

CREATE FUNCTION t.start() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$ SELECT '2026-01-01 00:00:00+00'::timestamptz $$;

CREATE FUNCTION t.set_clock(at timestamptz) RETURNS void LANGUAGE sql AS $$
    SELECT set_config('sas.clock', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00', false)
$$;

-- t.later(span): the clock goes on by that much
CREATE FUNCTION t.later(span interval) RETURNS void LANGUAGE sql AS $$ SELECT t.set_clock(sas.now() + span) $$;

-- t.at(instant): as a span since the clock's start
CREATE FUNCTION t.at(instant timestamptz) RETURNS interval LANGUAGE sql STABLE AS $$ SELECT instant - t.start() $$;

-- t.allow(role): it may use every agent
CREATE FUNCTION t.allow(role regrole) RETURNS void LANGUAGE sql AS $$ SELECT sas.grant_agent(name, role) FROM sas.agents $$;

CREATE FUNCTION t.clean() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE _sas.chunk, _sas.run, _sas.run_key, _sas.run_label, _sas.run_dependency, _sas.concurrency_slot, _sas.concurrency_key, _sas.deferred_run, _sas.queue_slot, _sas.parked_step, _sas.freed_key, _sas.queue_user, _sas.step, _sas.override, _sas.ready, _sas.lease, _sas.answer, _sas.message, _sas.deadline_sweep, _sas.deferred_work, _sas.item, _sas.map_key, _sas.map_list, _sas.map_progress, _sas.phase, _sas.undo_order, _sas.abandoned_run, _sas.signal, _sas.attempt, _sas.task, _sas.operator_action, _sas.alert, _sas.alert_run, _sas.finished_run, _sas.purged_run, _sas.boot, _sas.idle_version, _sas.delayed_note, _sas.reply, _sas.schedule, _sas.schedule_plan, t.worker, t.held RESTART IDENTITY;
    TRUNCATE _sas.watch, _sas.watch_ended, _sas.watch_flow, _sas.watch_done, _sas.watch_batch, _sas.watch_work, _sas.watch_wait, _sas.watch_held, _sas.watch_note, _sas.watch_check, _sas.node RESTART IDENTITY;
    TRUNCATE _sas.stub, _sas.stub_signal, _sas.stubbed_call, _sas.stub_flight RESTART IDENTITY;
    UPDATE _sas.external_slot SET request_id = NULL, lease_id = NULL, run_id = NULL, step_no = NULL, element = NULL, worker = NULL, extended_by = NULL;
    UPDATE _sas.agent_health SET stale_replies = 0, breaker = 'closed', open_until = NULL;
    PERFORM t.set_clock(t.start());
END $$;

-- t.workflow(name, steps, more): recovery without jitter, so that times can be told
CREATE FUNCTION t.workflow(name text, steps jsonb, more jsonb DEFAULT '{}') RETURNS int LANGUAGE sql AS $$
    SELECT sas.create_workflow(name, '{"recovery": {"jitter": false}}'::jsonb || more || jsonb_build_object('steps', steps))
$$;

CREATE FUNCTION t.worker(name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO t.worker (name) VALUES ($1) ON CONFLICT DO NOTHING;
    RETURN (SELECT w.id FROM t.worker w WHERE w.name = $1);
END $$;

-- t.claim(worker, quantity): claims calls of every agent and functions; says what it got, by name
CREATE FUNCTION t.claim(worker text DEFAULT 'w', quantity int DEFAULT 100) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    lanes int[] := ARRAY(SELECT agent_id FROM _sas.agent WHERE dropped_at IS NULL AND enabled AND kind = 'http' ORDER BY agent_id);
    boot bigint;
    got text;
BEGIN
    PERFORM t.worker(worker);
    boot := (SELECT w.boot FROM t.worker w WHERE w.name = worker);
    WITH c AS (
        INSERT INTO t.held (worker, lease_id, run_id, step_no, element, step, undo, request_id, key, asked, problem, window_ms)
        SELECT $1, c.lease_id, c.run_id, c.step_no, c.element, c.step, c.undo, c.request_id, coalesce(c.idempotency_key, 'none'), c.request, c.problem, c.window_ms
        FROM _sas.claim_calls(lanes, array_fill(quantity, ARRAY[cardinality(lanes)]), boot, t.worker(worker), worker) c ORDER BY c.run_id, c.step_no, c.element
        RETURNING n, held.step, held.undo),
    f AS (
        INSERT INTO t.held (worker, lease_id, run_id, step_no, element, step, undo, request_id, asked, problem, window_ms)
        SELECT $1, c.lease_id, c.run_id, c.step_no, c.element, c.step, c.undo, c.request_id, c.input, c.problem, c.window_ms
        FROM _sas.claim_functions(quantity, boot, t.worker(worker), worker) c ORDER BY c.run_id, c.step_no, c.element
        RETURNING n, held.step, held.undo)
    SELECT string_agg(CASE WHEN a.undo THEN 'undo ' ELSE '' END || a.step, ', ' ORDER BY a.step, a.undo) INTO got
    FROM (SELECT * FROM c UNION ALL SELECT * FROM f) a;
    RETURN coalesce(got, 'nothing');
END $$;

-- t.answer(step, what, ...): a worker reports the outcome of what it holds.
--   what   'done', 'transient', 'doubt' (transient, no usable answer), 'permanent', 'hand_back'; a status may follow: 'permanent 404'
-- Says whether it was taken.
CREATE FUNCTION t.answer(step text, what text DEFAULT 'done', output jsonb DEFAULT NULL, for_run bigint DEFAULT NULL, again_in interval DEFAULT '0', tries int DEFAULT 1,
                         holder text DEFAULT NULL, keep boolean DEFAULT false, for_element int DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    h t.held;
    verdict text := CASE split_part(what, ' ', 1) WHEN 'doubt' THEN 'transient' ELSE split_part(what, ' ', 1) END;
    status int := nullif(split_part(what, ' ', 2), '')::int;
    before _sas.step;
    now _sas.step;
    lost int[];
BEGIN
    SELECT * INTO STRICT h FROM t.held
    WHERE held.step = $1 AND (for_run IS NULL OR held.run_id = for_run) AND (holder IS NULL OR held.worker = holder) AND (for_element IS NULL OR held.element = for_element) ORDER BY held.n LIMIT 1;
    IF NOT keep THEN
        DELETE FROM t.held WHERE n = h.n;
    END IF;
    SELECT * INTO before FROM _sas.step s WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element;
    lost := _sas.write_replies(
        ARRAY[ROW(h.run_id, h.step_no, h.element, h.request_id, verdict, tries,
                  CASE WHEN verdict = 'done' THEN coalesce(output, jsonb_build_object('status', coalesce(status, 200), 'body', jsonb_build_object('id', h.step || '-id'))) END,
                  CASE WHEN verdict IN ('transient', 'permanent')
                       THEN _sas.problem_object('http', 'the service answered ' || coalesce(status::text, 'nothing'), NULL, status, h.run_id, h.step) END,
                  what LIKE 'doubt%', again_in, NULL)::_sas.call_reply],
        ARRAY(SELECT h.lease_id WHERE NOT EXISTS (SELECT FROM t.held x WHERE x.lease_id = h.lease_id)));
    SELECT * INTO now FROM _sas.step s WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element;
    RETURN CASE WHEN cardinality(lost) > 0 AND before IS NOT DISTINCT FROM now THEN 'not taken' WHEN cardinality(lost) = 0 AND before IS DISTINCT FROM now THEN 'taken' ELSE 'half taken' END;
END $$;

CREATE FUNCTION t.schedule() RETURNS int LANGUAGE sql AS $$
    SELECT (SELECT worked FROM _sas.answer_tick(100)) + (SELECT worked FROM _sas.scheduler_tick(100)) + (SELECT worked FROM _sas.fire_schedules(100))
$$;

CREATE FUNCTION t.supervise() RETURNS int LANGUAGE sql AS $$
    SELECT FROM _sas.set_timers(NULL, NULL, NULL);
    SELECT (SELECT worked FROM _sas.supervisor_tick(1, l.live, l.newest, 100)) + (SELECT worked FROM _sas.supervise_watches(1, l.live, l.newest))
    FROM (SELECT coalesce(array_agg(id) FILTER (WHERE alive AND boot = 1), '{}') AS live, coalesce(max(id), 0) AS newest FROM t.worker) l
$$;

-- t.settle(): scheduler and supervisor, until neither finds anything to do now
CREATE FUNCTION t.settle() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..1000 LOOP
        EXIT WHEN t.schedule() + t.supervise() = 0;
        ASSERT n < 1000, 'the actors find no rest';
    END LOOP;
END $$;

-- t.work(rules): everything goes on until all is quiet at this instant. rules
-- says which steps do not succeed: {"charge": "permanent 402", "undo charge": "transient", "pack[2]": "doubt"}, or
-- what the service answers: {"job": {"status": 200, "body": {"state": "done"}}}.
-- Returns what was carried out, in order, steps of one claim by name.
CREATE FUNCTION t.work(rules jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text := '';
    h t.held;
    what text;
BEGIN
    FOR n IN 1..1000 LOOP
        PERFORM t.settle();
        EXIT WHEN t.claim('w') = 'nothing' AND NOT EXISTS (SELECT FROM t.held WHERE worker = 'w');
        ASSERT n < 1000, 'the workers find no rest';
        FOR h IN SELECT * FROM t.held WHERE worker = 'w' ORDER BY held.undo, held.step, held.run_id, held.element LOOP
            what := coalesce(rules ->> (CASE WHEN h.undo THEN 'undo ' ELSE '' END || h.step || coalesce('[' || nullif(h.element, 0) || ']', '')),
                             rules ->> (CASE WHEN h.undo THEN 'undo ' ELSE '' END || h.step), 'done');
            said := said || ', ' || CASE WHEN h.undo THEN 'undo ' ELSE '' END || h.step || coalesce('[' || nullif(h.element, 0) || ']', '') || CASE what WHEN 'done' THEN '' ELSE ': ' || what END;
            -- a function returns its input
            PERFORM t.answer(h.step, CASE WHEN what LIKE '{%' THEN 'done' ELSE what END, output => CASE WHEN what LIKE '{%' THEN what::jsonb WHEN h.asked IS NOT NULL AND h.key IS NULL THEN h.asked END, for_run => h.run_id, holder => 'w', for_element => h.element);
        END LOOP;
    END LOOP;
    RETURN CASE said WHEN '' THEN 'nothing' ELSE substr(said, 3) END;
END $$;

-- t.show(run): the run, then its steps
CREATE FUNCTION t.show(id bigint) RETURNS TABLE (what text, state text, attempt int, failures int, doubt text, note text) LANGUAGE sql AS $$
    SELECT 'run', r.state || coalesce('/' || r.result, ''), NULL::int, NULL::int, NULL, concat_ws('; ', r.paused_for, r.error ->> 'title')
    FROM sas.runs r WHERE r.run_id = id
    UNION ALL
    (SELECT s.step || coalesce('[' || s.element || ']', ''), s.state, s.attempt, s.failure_count, CASE WHEN s.in_doubt THEN 'in doubt' END, concat_ws('; ', s.waiting_kind || coalesce(' ' || s.waiting_on, ''), 'until ' || t.at(s.waiting_until))
     FROM sas.steps s WHERE s.run_id = id ORDER BY s.step, s.element NULLS FIRST)
$$;

-- t.brief(run): the same in one line
CREATE FUNCTION t.brief(id bigint) RETURNS text LANGUAGE sql AS $$
    SELECT r.state || coalesce('/' || r.result, '') || ': '
           || (SELECT string_agg(s.step || coalesce('[' || s.element || ']', '') || ' ' || s.state || CASE WHEN s.in_doubt THEN ' (in doubt)' ELSE '' END, ', ' ORDER BY s.step, s.element NULLS FIRST) FROM sas.steps s WHERE s.run_id = id)
    FROM sas.runs r WHERE r.run_id = id
$$;

-- t.try(workflow, rules): submits it and works on it until all is quiet now; what was carried out, and how it stands
CREATE FUNCTION t.try(workflow text, rules jsonb DEFAULT '{}', OUT carried_out text, OUT stands text) LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT run_id FROM sas.submit(workflow));
BEGIN
    carried_out := t.work(rules);
    stands := t.brief(id);
END $$;

-- t.alerts(): what is open
CREATE FUNCTION t.alerts() RETURNS TABLE (kind text, run_id bigint, step text, message text, occurrences int) LANGUAGE sql AS $$
    SELECT a.kind, a.run_id, a.step, a.message, a.occurrences FROM sas.alerts a WHERE a.acknowledged_at IS NULL AND a.closed_at IS NULL ORDER BY a.run_id, a.step, a.alert_id
$$;

-- t.blocks(query): how many blocks it reads
CREATE FUNCTION t.blocks(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan;
    RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::bigint + (plan #>> '{0,Plan,Shared Read Blocks}')::bigint;
END $$;

-- t.left_over(): what stands in the private tables when all runs have ended; nothing should
CREATE FUNCTION t.left_over() RETURNS TABLE (what text, n bigint) LANGUAGE sql AS $$
    SELECT * FROM (SELECT 'ready', count(*) FROM _sas.ready UNION ALL SELECT 'lease', count(*) FROM _sas.lease UNION ALL SELECT 'answer', count(*) FROM _sas.answer UNION ALL SELECT 'due', count(*) FROM _sas.message
                   UNION ALL SELECT 'place', count(*) FROM _sas.concurrency_slot UNION ALL SELECT 'queue place', count(*) FROM _sas.queue_slot UNION ALL SELECT 'concurrency key', count(*) FROM _sas.concurrency_key UNION ALL SELECT 'stage', count(*) FROM _sas.phase UNION ALL SELECT 'to undo', count(*) FROM _sas.undo_order UNION ALL SELECT 'abandoned', count(*) FROM _sas.abandoned_run
                   UNION ALL SELECT 'open run', count(*) FROM _sas.run WHERE run.state <> 'stopped'
                   UNION ALL SELECT 'open step', count(*) FROM _sas.step WHERE step.state IN ('ready', 'running', 'suspended', 'compensating', 'waiting')) x (what, n)
    WHERE n > 0
$$;

-- what functions note, in order
CREATE TABLE t.trace (n serial, what text);
GRANT ALL ON t.trace, t.trace_n_seq TO PUBLIC;
GRANT USAGE ON SCHEMA t TO PUBLIC;
CREATE FUNCTION t.note(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO t.trace (what) VALUES (what) $$;
-- t.perform(): what a function worker does with what it claimed, by hand; what the functions noted. Plans of child
-- runs that need no function are made beside them.
CREATE FUNCTION t.perform(OUT claimed text, OUT noted text[]) LANGUAGE plpgsql AS $$
DECLARE
    c record;
    answer jsonb;
    n int;
BEGIN
    TRUNCATE t.trace;
    LOOP
        n := 0;
        FOR c IN SELECT * FROM _sas.claim_functions(10, 1, t.worker('w'), 'w') ORDER BY run_id, step_no, element LOOP
            n := n + 1;
            IF c.function = '_sas.plan_child' THEN
                answer := _sas.plan_child(c.owner, c.input);
            ELSE
                claimed := concat_ws(', ', claimed, c.step);
                EXECUTE format('SELECT %s($1)', c.function) INTO answer USING c.input;
            END IF;
            PERFORM _sas.write_replies(ARRAY[ROW(c.run_id, c.step_no, c.element, c.request_id, 'done', 1, answer, NULL, false, NULL, NULL)::_sas.call_reply], ARRAY[c.lease_id]);
        END LOOP;
        EXIT WHEN n = 0 OR claimed IS NOT NULL AND NOT EXISTS (SELECT FROM _sas.phase g WHERE g.request ->> 'function' = '_sas.plan_child');
    END LOOP;
    noted := ARRAY(SELECT what FROM t.trace ORDER BY n);
END $$;

-- infinite tasks ----------------------------------------------------------------

-- t.watching(): the agents of watchers
CREATE FUNCTION t.watching() RETURNS void LANGUAGE sql AS $$
    SELECT sas.create_agent('host', kind => 'external');
    SELECT sas.create_agent('feed', 'http://127.0.0.1:1/feed');
$$;

-- t.node(name, capacity, kind): a worker that hosts them, or another life of it
CREATE FUNCTION t.node(name text, capacity int DEFAULT 10, kind text DEFAULT 'agent') RETURNS bigint LANGUAGE sql AS $$
    SELECT _sas.register_worker(kind, name, capacity, (SELECT w.boot FROM t.worker w WHERE w.id = i.id), i.id) FROM (SELECT t.worker(name) AS id OFFSET 0) i
$$;

-- t.node_id(name): of the node of that name that lives
CREATE FUNCTION t.node_id(name text) RETURNS bigint LANGUAGE sql AS $$ SELECT max(n.node_id) FROM _sas.node n WHERE n.name = $1 $$;

-- t.claim_watches(node, quantity): it claims tasks that wait; says which
CREATE FUNCTION t.claim_watches(node text, quantity int DEFAULT 100) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(w.key, ', ' ORDER BY w.key), 'nothing') FROM _sas.claim_watches(t.node_id(node), quantity) c JOIN _sas.watch w USING (watch_id)
$$;

-- t.append(node, key, items, cursor, epoch): it takes items in; the answer, and how many more may come
CREATE FUNCTION t.append(node text, key text, items jsonb, cursor jsonb DEFAULT NULL, in_epoch bigint DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT a.answer || ', room ' || a.room
    FROM _sas.watch w, _sas.append_batches(t.node_id(node), ARRAY[w.watch_id], ARRAY[coalesce(in_epoch, w.epoch)], ARRAY[items], ARRAY[cursor], ARRAY[NULL]::text[]) a WHERE w.key = $2
$$;

CREATE FUNCTION t.lose(node text, key text, why text DEFAULT 'it broke', at_least float8 DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT f.answer || CASE f.answer WHEN 'retry' THEN ' after ' || f.pause_ms || ' ms' ELSE '' END
    FROM _sas.watch w, _sas.fail_watches(t.node_id(node), ARRAY[w.watch_id], ARRAY[w.epoch], ARRAY[CASE WHEN why IS NOT NULL THEN _sas.problem_object('host', why, NULL) END], ARRAY[at_least]) f WHERE w.key = $2
$$;

CREATE FUNCTION t.news(node text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(w.key || ': ' || n.news, ', ' ORDER BY w.key), 'none') FROM _sas.node_news(t.node_id(node)) n JOIN _sas.watch w USING (watch_id)
$$;

CREATE FUNCTION t.release(node text, keys text[]) RETURNS void LANGUAGE sql AS $$
    SELECT _sas.give_back_watches(t.node_id(node), array_agg(w.watch_id), array_agg(w.epoch)) FROM _sas.watch w WHERE w.key = ANY (keys)
$$;

-- t.deliver(fails, worker, quantity): a function worker claims inboxes and brings them to their targets; those of the keys in fails are not taken
CREATE FUNCTION t.deliver(fails text[] DEFAULT '{}', worker text DEFAULT 'f', quantity int DEFAULT 50) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
    said text := '';
BEGIN
    FOR c IN SELECT * FROM _sas.claim_items(quantity, 1, t.worker(worker)) LOOP
        ASSERT (_sas.lock_items(ARRAY[c.watch_id], ARRAY[c.request_id]))[1] = 'held';
        PERFORM _sas.finish_items(ARRAY[c.watch_id], ARRAY[c.up_to], ARRAY[coalesce(c.problem, CASE WHEN c.key = ANY (fails) THEN _sas.problem_object('test', 'the target is broken', NULL) END)], ARRAY[false]);
        said := said || format('; %s: %s%s', c.key, coalesce(c.problem ->> 'detail', c.items::text), CASE WHEN c.key = ANY (fails) THEN ' fails' ELSE '' END);
    END LOOP;
    RETURN CASE said WHEN '' THEN 'nothing' ELSE substr(said, 3) END;
END $$;

-- t.watches(): how they stand
CREATE FUNCTION t.watches() RETURNS TABLE (watcher text, key text, state text, node text, restarts bigint, items bigint, waiting bigint, failures int, error text, cursor jsonb) LANGUAGE sql AS $$
    SELECT w.watcher, w.key, w.state, w.node, w.restarts, w.items, w.waiting, w.failures, w.last_error ->> 'title', w.cursor FROM sas.watches w ORDER BY w.watch_id
$$;

CREATE FUNCTION t.echo(input jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT input $$;

CREATE TABLE t.item (id int GENERATED ALWAYS AS IDENTITY, watcher text, key text, item jsonb NOT NULL);
CREATE FUNCTION t.take_items(items jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT 'null'::jsonb $$;
SELECT sas.create_agent(n, 'http://127.0.0.1:1/' || n) FROM unnest('{inventory,payments,shipping}'::text[]) n \g /dev/null
