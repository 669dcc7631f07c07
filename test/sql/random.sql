-- SPDX-License-Identifier: PostgreSQL
--
-- Random: workflows of every kind, put together by dice, under operators,
-- workers and clocks that act by dice, too. Whatever happens: after every few
-- acts the counters are right and no limit is passed; in the end every run
-- has stopped, nothing is left in the hot tables, and the books of the
-- services say what the runs say: done and kept, or done and undone, in
-- reverse order. The dice are those of random(), so a seed tells its story again.
SELECT t.clean() \g /dev/null
SET client_min_messages = warning;

-- What the services know: a call counts once under its key, whatever it takes.
CREATE TABLE t.book (n bigint GENERATED ALWAYS AS IDENTITY, run_id bigint, step_no int, element int, stands boolean, undone_at bigint, PRIMARY KEY (run_id, step_no, element));
CREATE SEQUENCE t.moment;
CREATE TABLE t.odd (n bigint GENERATED ALWAYS AS IDENTITY, what text);

-- t.dice(n): 0 to n - 1; t.often(share): yes, with that share
CREATE FUNCTION t.dice(n int) RETURNS int LANGUAGE sql VOLATILE AS $$ SELECT floor(random() * n)::int $$;
CREATE FUNCTION t.often(share float8) RETURNS boolean LANGUAGE sql VOLATILE AS $$ SELECT random() < share $$;
CREATE FUNCTION t.any_of(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT choices[1 + t.dice(cardinality(choices))] $$;

-- t.dice_step(name, before, children): the body of a step that may come after those before it
CREATE FUNCTION t.dice_step(name text, before text[], children text[], parts text[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    kind text := t.any_of('call', 'call', 'call', 'function', 'function', 'function', 'for', 'signal', 'task',
                          CASE WHEN cardinality(children) > 0 THEN 'workflow' ELSE 'call' END, CASE WHEN cardinality(parts) > 0 THEN 'include' ELSE 'function' END);
    body jsonb := CASE kind
        WHEN 'call' THEN jsonb_build_object('agent', t.any_of('inventory', 'payments', 'shipping'), 'call', jsonb_build_object('body', '{{input.n}}'))
        WHEN 'function' THEN '{"function": "t.echo"}'
        WHEN 'for' THEN jsonb_build_object('wait', jsonb_build_object('for', (1 + t.dice(60)) || ' s'))
        WHEN 'signal' THEN jsonb_build_object('wait', jsonb_build_object('signal', t.any_of('go', 'stop'), 'timeout', (10 + t.dice(100)) || ' s'))
        WHEN 'task' THEN '{"agent": "robots", "task": {}, "complete_in": "2 min", "retry": {"max_attempts": 2, "jitter": false}}'
        WHEN 'workflow' THEN jsonb_build_object('workflow', t.any_of(VARIADIC children))
        WHEN 'include' THEN jsonb_build_object('include', t.any_of(VARIADIC parts)) END;
    shaped text := CASE WHEN kind = 'include' THEN 'no' ELSE t.any_of('no', 'no', 'no', 'each', 'repeat') END;
BEGIN
    body := body || jsonb_build_object('after', ARRAY(SELECT DISTINCT b FROM (SELECT b FROM unnest(before) b WHERE t.often(0.4) LIMIT 4) x));
    IF t.often(0.2) THEN
        body := body || jsonb_build_object('when', '$.input.n ' || t.any_of('<', '>') || ' ' || t.dice(10));
        body := body || CASE WHEN t.often(0.5) THEN '{"else": "skip_cascade"}' ELSE '{}' END::jsonb;
    END IF;
    IF kind = 'include' THEN
        RETURN body;
    END IF;
    IF kind IN ('call', 'function', 'task') THEN
        body := body || '{"recovery": {"max_failures": 2, "initial": "10 s", "jitter": false}}';
        IF kind = 'call' AND t.often(0.25) THEN
            body := body || jsonb_build_object('poll', jsonb_build_object('call', '{"path": "/{{started.body}}"}'::jsonb, 'until', '$.output.body == "over"', 'every', (1 + t.dice(9)) || ' s')
                                                       || CASE WHEN t.often(0.5) THEN jsonb_build_object('timeout', (10 + t.dice(60)) || ' s') ELSE '{}' END);
        END IF;
        IF t.often(0.7) THEN
            body := body || jsonb_build_object('undo',
                CASE t.dice(3) WHEN 0 THEN '{"function": "t.echo"}'
                               WHEN 1 THEN jsonb_build_object('agent', 'payments', 'call', jsonb_build_object('body', CASE WHEN t.often(0.5) THEN format(CASE WHEN body ? 'poll' THEN '{{steps.%s.started.body}}' ELSE '{{steps.%s.output.body}}' END, name) ELSE 'x' END))
                               ELSE '{"agent": "robots", "task": {}, "complete_in": "2 min"}' END || '{"recovery": {"max_failures": 2, "initial": "10 s", "jitter": false}}');
        END IF;
        IF t.often(0.2) THEN
            body := body || jsonb_build_object('fallback', CASE WHEN t.often(0.5) THEN '{"function": "t.echo"}' ELSE '{"agent": "payments", "call": {}}' END::jsonb || '{"recovery": {"max_failures": 2, "initial": "10 s", "jitter": false}}'
                                                           || CASE WHEN t.often(0.5) THEN '{"undo": {"function": "t.echo"}}' ELSE '{}' END::jsonb);
        END IF;
        body := body || CASE WHEN t.often(0.1) THEN '{"expect": "$.output.body != \"odd\""}' ELSE '{}' END::jsonb || CASE WHEN t.often(0.15) THEN '{"queue": "narrow"}' ELSE '{}' END::jsonb
                     || CASE WHEN t.often(0.1) THEN '{"finalize": "t.echo"}' ELSE '{}' END::jsonb;
    END IF;
    body := body || CASE shaped WHEN 'each' THEN '{"each": "{{input.items}}"}'::jsonb || CASE WHEN t.often(0.5) THEN jsonb_build_object('concurrency', 1 + t.dice(3)) ELSE '{}' END
                                             || CASE WHEN t.often(0.3) THEN jsonb_build_object('max_failed', t.dice(3)) ELSE '{}' END
                                WHEN 'repeat' THEN jsonb_build_object('repeat', jsonb_build_object('while', format('$.index < %s', 1 + t.dice(4))) || CASE WHEN t.often(0.4) THEN jsonb_build_object('every', '5 s') ELSE '{}' END)
                                ELSE '{}' END;
    IF t.often(0.4) THEN
        body := body || jsonb_build_object('on_failure', t.any_of('compensate', 'pause', 'skip', 'skip', 'fail'));
    END IF;
    RETURN body || CASE WHEN t.often(0.05) THEN '{"pivot": true}' ELSE '{}' END::jsonb || CASE WHEN t.often(0.2) THEN jsonb_build_object('priority', t.dice(5)) ELSE '{}' END;
END $$;

-- t.dice_workflow(name, size, children, parts): children may be started, parts included
CREATE FUNCTION t.dice_workflow(name text, size int, children text[], parts text[], part boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    steps jsonb := '{}';
    body jsonb;
    more jsonb := '{"recovery": {"jitter": false}}';
BEGIN
    FOR n IN 1 .. size LOOP
        body := t.dice_step('s' || n, ARRAY(SELECT 's' || g FROM generate_series(1, n - 1) g), children, parts);
        steps := steps || jsonb_build_object('s' || n, CASE WHEN part THEN body - 'finalize' ELSE body END);
    END LOOP;
    IF t.often(0.5) THEN
        more := more || jsonb_build_object('on_failure', jsonb_build_object('transient', t.any_of('compensate', 'pause', 'skip'), 'permanent', t.any_of('compensate', 'compensate', 'pause', 'skip', 'fail')));
    END IF;
    IF size > 0 AND t.often(0.3) THEN
        more := more || jsonb_build_object('output', jsonb_build_object('last', format('{{steps.s%s.output?}}', size)));
    END IF;
    IF NOT part THEN
        more := more || CASE WHEN t.often(0.3) THEN '{"deadline": "10 min"}' ELSE '{"deadline": "1 day"}' END::jsonb || CASE WHEN t.often(0.2) THEN '{"finalize": "t.echo"}' ELSE '{}' END::jsonb
                     || CASE WHEN t.often(0.3) THEN jsonb_build_object('concurrency', jsonb_build_object('key', '{{input.k}}', 'limit', 1 + t.dice(2), 'scope', t.any_of('workflow', 'owner'), 'overlap', t.any_of('wait', 'replace', 'once_more'))) ELSE '{}' END
                     || CASE WHEN t.often(0.1) THEN jsonb_build_object('concurrency', jsonb_build_array(jsonb_build_object('key', '{{input.k}}', 'scope', 'owner', 'shared', t.often(0.5)),
                            jsonb_build_object('key', 'also-{{input.k}}', 'scope', 'owner', 'overlap', t.any_of('wait', 'return')))) ELSE '{}' END
                     || CASE WHEN t.often(0.1) THEN '{"concurrency": {"key": "one", "overlap": "return"}}' ELSE '{}' END::jsonb || CASE WHEN t.often(0.1) THEN '{"queue": "narrow"}' ELSE '{}' END::jsonb
                     || CASE WHEN t.often(0.1) THEN '{"hooks": [{"on": ["paused", "failure"], "function": "t.echo"}]}' ELSE '{}' END::jsonb;
    END IF;
    PERFORM sas.create_workflow(name, more || jsonb_build_object('steps', steps));
END $$;

-- t.note(h, acts): what the service's book says of what a worker did
CREATE FUNCTION t.note(run bigint, no int, elem int, undoes boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF undoes THEN
        UPDATE t.book b SET stands = false, undone_at = nextval('t.moment') WHERE b.run_id = run AND b.step_no = no AND b.element = elem AND b.stands;
    ELSE
        INSERT INTO t.book AS b (run_id, step_no, element, stands) VALUES (run, no, elem, true) ON CONFLICT (run_id, step_no, element) DO NOTHING;
        -- a service that has undone something does not do it again under the same key; sas must not ask for it
        IF EXISTS (SELECT FROM t.book b WHERE b.run_id = run AND b.step_no = no AND b.element = elem AND NOT b.stands) THEN
            INSERT INTO t.odd (what) VALUES (format('run %s step %s[%s] is done after its undo', run, no, elem));
        END IF;
    END IF;
END $$;

-- t.dice_answer(kind): the outcomes of workers; kind 'kind' is a world in which everything succeeds
CREATE FUNCTION t.dice_answer(good boolean) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN good OR t.often(0.6) THEN 'done' ELSE t.any_of('done', 'transient', 'transient', 'doubt', 'doubt', 'permanent', 'hand_back', 'later', 'odd') END
$$;

-- t.dice_reply(good): a worker answers for something that it holds
CREATE FUNCTION t.dice_reply(good boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    h t.held;
    what text := t.dice_answer(good);
    local_ boolean;
    before uuid;
    aside int[];
BEGIN
    SELECT * INTO h FROM t.held ORDER BY n OFFSET t.dice((SELECT least(count(*), 5)::int FROM t.held)) LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM t.held WHERE n = h.n;
    local_ := h.key IS NULL;
    IF h.problem IS NOT NULL THEN
        what := 'permanent';
    ELSIF local_ AND what IN ('doubt', 'odd') THEN
        what := 'transient';
    END IF;
    before := (SELECT s.request_id FROM _sas.step s WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element);
    aside := _sas.write_replies(
        ARRAY[ROW(h.run_id, h.step_no, h.element, h.request_id, CASE what WHEN 'odd' THEN 'done' WHEN 'doubt' THEN 'transient' WHEN 'later' THEN 'hand_back' ELSE what END, 1,
                  CASE WHEN what IN ('done', 'odd') THEN jsonb_build_object('status', 200, 'body', CASE WHEN h.key = 'none' THEN CASE WHEN good OR t.often(0.4) THEN 'over' ELSE 'going' END WHEN what = 'odd' THEN 'odd' ELSE h.step END) END,
                  CASE WHEN what IN ('transient', 'doubt', 'permanent') THEN _sas.problem_object('http', what, NULL, NULL, h.run_id, h.step) END,
                  what = 'doubt', CASE what WHEN 'later' THEN interval '7 s' ELSE '0' END, NULL)::_sas.call_reply],
        ARRAY(SELECT h.lease_id WHERE NOT EXISTS (SELECT FROM t.held x WHERE x.lease_id = h.lease_id)));
    -- a local step does its work with the reply or not at all; a remote one did it whether the reply counts or not
    IF h.problem IS NULL AND coalesce(h.key <> 'none', true) AND (CASE WHEN local_ THEN what = 'done' AND before = h.request_id AND aside = '{}'
                                      AND EXISTS (SELECT FROM _sas.step s WHERE s.run_id = h.run_id AND s.step_no = h.step_no AND s.element = h.element AND s.state IN ('succeeded', 'compensated'))
                                  ELSE what IN ('done', 'odd') OR what = 'doubt' AND t.often(0.5) END) THEN
        PERFORM t.note(h.run_id, h.step_no, h.element, h.undo);
    END IF;
    RETURN true;
END $$;

-- t.dice_task(good): an outside program claims a task, and does something about it now or later
CREATE TABLE t.task (request_id uuid, run_id bigint, step_no int, element int, undo boolean, n bigint GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION t.dice_task(good boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    h t.task;
    taken boolean := false;
BEGIN
    IF good OR t.often(0.5) THEN
        INSERT INTO t.task (request_id, run_id, undo) SELECT c.request_id, c.run_id, c.undo FROM sas.claim('robots', 'robot', 1 + t.dice(3)) c;
        taken := FOUND;
        UPDATE t.task k SET step_no = p.step_no, element = p.element FROM _sas.external_slot p WHERE p.request_id = k.request_id;
    END IF;
    SELECT * INTO h FROM t.task ORDER BY n LIMIT 1;
    IF h.request_id IS NULL THEN
        RETURN taken;
    END IF;
    CASE (CASE WHEN good THEN 0 ELSE t.dice(8) END)
    WHEN 0, 1, 2 THEN
        PERFORM t.note(h.run_id, h.step_no, h.element, h.undo);
        PERFORM sas.complete(h.request_id, '{"body": "done"}');
    WHEN 3 THEN
        PERFORM sas.fail(h.request_id, 'failed', t.often(0.3));
    WHEN 4 THEN
        PERFORM sas.hand_back(h.request_id);
    WHEN 5 THEN
        PERFORM sas.heartbeat(h.request_id, 0.5, '{"at": 1}');
        RETURN true;
    WHEN 6 THEN
        NULL;  -- it is gone, and did its work or not
        IF t.often(0.5) THEN
            PERFORM t.note(h.run_id, h.step_no, h.element, h.undo);
        END IF;
    ELSE
        RETURN true;
    END CASE;
    DELETE FROM t.task WHERE request_id = h.request_id;
    RETURN true;
END $$;

-- t.more_steps(run): the workflow of a run has one step more, which one of the others comes after
CREATE FUNCTION t.more_steps(id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    w record;
    before text;
    more text;
BEGIN
    SELECT f.name, v.definition INTO w FROM _sas.run r JOIN _sas.workflow_version o ON o.version_id = r.version_id JOIN _sas.workflow f USING (workflow_id)
    JOIN _sas.workflow_version v ON v.workflow_id = o.workflow_id AND v.version = coalesce(o.of_version, o.version) WHERE r.run_id = id AND r.hook_of IS NULL;
    before := (SELECT k FROM jsonb_object_keys(w.definition -> 'steps') k ORDER BY k OFFSET t.dice((SELECT count(*)::int FROM jsonb_object_keys(w.definition -> 'steps'))) LIMIT 1);
    more := 'aa' || (SELECT count(*) FROM jsonb_object_keys(w.definition -> 'steps') k WHERE k LIKE 'aa%');
    IF before IS NULL OR more = 'aa4' OR w.definition ? 'flow' THEN
        RETURN;
    END IF;
    w.definition := jsonb_set(w.definition, ARRAY['steps', more], '{"function": "t.echo"}');
    IF t.often(0.5) THEN
        w.definition := jsonb_set(w.definition, ARRAY['steps', before, 'after'], coalesce(w.definition #> ARRAY['steps', before, 'after'], '[]') || to_jsonb(more));
    END IF;
    PERFORM sas.create_workflow(w.name, w.definition);
END $$;

-- t.dice_act(workflows): somebody does something
CREATE FUNCTION t.dice_act(workflows int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    id bigint := (SELECT run_id FROM _sas.run WHERE state <> 'stopped' ORDER BY run_id OFFSET t.dice((SELECT count(*)::int FROM _sas.run WHERE state <> 'stopped')) LIMIT 1);
    act text := t.any_of('submit', 'submit', 'submit', 'claim', 'claim', 'claim', 'claim', 'reply', 'reply', 'reply', 'reply', 'reply', 'reply', 'reply', 'reply',
                         'schedule', 'schedule', 'schedule', 'schedule', 'supervise', 'supervise', 'later', 'later', 'task', 'task', 'task', 'signal', 'signal',
                         'pause', 'resume', 'resume', 'cancel', 'retry', 'die', 'crash', 'queue', 'workflow', 'version', 'version');
    who text := 'w' || t.dice(3);
    started timestamptz := CASE WHEN t.often(0.15) THEN sas.now() + t.dice(30) * interval '1 s' END;
BEGIN
    CASE act
    WHEN 'submit' THEN
        PERFORM run_id FROM sas.submit('w' || 1 + t.dice(workflows),
            jsonb_build_object('n', t.dice(10), 'k', t.any_of('a', 'b'), 'items', (SELECT coalesce(jsonb_agg(g), '[]') FROM generate_series(1, t.dice(5)) g)),
            priority => t.dice(5), start_at => started, start_before => CASE WHEN t.often(0.1) THEN coalesce(started, sas.now()) + (1 + t.dice(30)) * interval '1 s' END,
            after_run => CASE WHEN t.often(0.15) THEN id END, after_result => CASE WHEN t.often(0.5) THEN '{success,warning}' ELSE '{success,warning,error,compensated,cancelled}' END::text[]);
    WHEN 'claim' THEN
        PERFORM t.claim(who, 1 + t.dice(5));
    WHEN 'reply' THEN
        PERFORM t.dice_reply(false);
    WHEN 'schedule' THEN
        PERFORM _sas.scheduler_tick(1 + t.dice(20));
    WHEN 'supervise' THEN
        PERFORM t.supervise();
    WHEN 'later' THEN
        PERFORM t.later(t.dice(20) * interval '1 s');
    WHEN 'task' THEN
        PERFORM t.dice_task(false);
    WHEN 'signal' THEN
        BEGIN
            PERFORM sas.signal(id, t.any_of('go', 'stop'), '{"ok": true}') WHERE id IS NOT NULL;
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL;
        END;
    WHEN 'pause' THEN
        PERFORM sas.pause(id);
    WHEN 'resume' THEN
        PERFORM sas.resume(run_id) FROM (SELECT run_id FROM _sas.run WHERE state = 'paused' ORDER BY run_id OFFSET t.dice(2) LIMIT 1) r;
    WHEN 'cancel' THEN
        PERFORM sas.cancel(id) WHERE t.often(0.5);
    WHEN 'retry' THEN
        PERFORM sas.retry(run_id) FROM (SELECT run_id FROM _sas.run WHERE state = 'paused' ORDER BY run_id LIMIT 1) r;
    WHEN 'die' THEN
        -- its successor has another id
        UPDATE t.worker w SET alive = false, name = name || ' ' || w.id WHERE w.name = who;
        DELETE FROM t.held h WHERE h.worker = who;
    WHEN 'crash' THEN
        BEGIN
            PERFORM _sas.scheduler_tick(20), t.supervise(), t.claim('w0', 3);
            RAISE EXCEPTION 'the server is gone' USING ERRCODE = 'QQ000';
        EXCEPTION WHEN SQLSTATE 'QQ000' THEN
            NULL;
        END;
    WHEN 'queue' THEN
        PERFORM CASE WHEN t.often(0.3) THEN sas.pause_queue('narrow') ELSE sas.resume_queue('narrow') END;
    WHEN 'workflow' THEN
        PERFORM CASE WHEN t.often(0.3) THEN sas.pause_workflow('w' || 1 + t.dice(workflows)) ELSE sas.resume_workflow('w' || 1 + t.dice(workflows)) END;
    WHEN 'version' THEN
        PERFORM t.more_steps(id);
        PERFORM sas.set_version_runs(ARRAY[id]);
    END CASE;
    RETURN act;
END $$;

-- t.stands_in(version, step): is it a fallback?
CREATE FUNCTION t.stands_in(version int, no int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT w.shape ? 'stands_in' FROM _sas.workflow_step w WHERE w.version_id = $1 AND w.step_no = $2 AND NOT w.undo), false)
$$;

-- t.look(): what must hold at every moment; writes down what does not
CREATE FUNCTION t.look(moment text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO t.odd (what)
    -- a step that goes on is counted once, whether it has a row or stands in the queue or at the scheduler's door only
    SELECT format('%s: run %s (%s, %s) counts %s open steps and has %s', moment, r.run_id, r.state, coalesce(r.abandon_as, 'goes on'), r.open_steps, x.n)
    FROM _sas.run r
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT s.step_no, s.element FROM _sas.step s
            WHERE s.run_id = r.run_id
              -- what a fallback does is counted with the step that it stands in for
              AND CASE WHEN r.abandon_as IS NULL THEN s.element = 0 AND s.state IN ('ready', 'running', 'suspended', 'failed', 'compensating') AND NOT t.stands_in(r.version_id, s.step_no)
                       ELSE s.state IN ('ready', 'running', 'suspended') OR s.state = 'compensating' OR s.state = 'failed' AND s.waiting_kind = 'supervisor' END
            UNION SELECT q.step_no, q.element FROM _sas.ready q WHERE q.run_id = r.run_id AND (r.abandon_as IS NOT NULL OR q.element = 0 AND NOT t.stands_in(r.version_id, q.step_no))
            UNION SELECT d.step_no, d.element FROM _sas.message d WHERE d.run_id = r.run_id AND d.kind = 'enter' AND r.abandon_as IS NULL AND d.element = 0) o) x
    WHERE r.state NOT IN ('stopped', 'scheduled') AND x.n <> r.open_steps
      -- before a run that is paused while it is scheduled begins, its roots are counted already
      AND NOT (r.state = 'paused' AND r.paused_state = 'scheduled')
    UNION ALL
    SELECT format('%s: run %s step %s is %s before step %s has ended', moment, s.run_id, s.step_no, s.state, e.from_no)
    FROM _sas.step s JOIN _sas.run r USING (run_id) JOIN _sas.workflow_edge e ON e.version_id = r.version_id AND e.to_no = s.step_no
    LEFT JOIN _sas.step p ON p.run_id = s.run_id AND p.step_no = e.from_no AND p.element = 0
    WHERE r.abandon_as IS NULL AND s.state NOT IN ('waiting', 'skipped', 'cancelled') AND coalesce(p.state, 'none') NOT IN ('succeeded', 'skipped')
    UNION ALL
    SELECT format('%s: %s places of workflow %s, key %s are held', moment, count(*), p.workflow_id, p.key)
    FROM _sas.concurrency_slot p JOIN _sas.run r USING (run_id) JOIN _sas.workflow_version v USING (version_id) WHERE p.state = 'holds' GROUP BY p.owner, p.workflow_id, p.key
        HAVING count(*) FILTER (WHERE NOT p.shared) > max(p.places) OR bool_or(p.shared) AND bool_or(NOT p.shared)
    UNION ALL
    SELECT format('%s: run %s has some of its places', moment, p.run_id) FROM _sas.concurrency_slot p GROUP BY p.run_id HAVING count(DISTINCT p.state) > 1
    UNION ALL
    SELECT format('%s: queue %s has %s places taken', moment, q.name, count(*)) FROM _sas.queue_slot p JOIN _sas.queue q USING (queue_id) GROUP BY q.name, q.max_running HAVING count(*) > q.max_running
    UNION ALL
    SELECT format('%s: run %s step %s has %s elements at once', moment, s.run_id, s.step_no, count(*))
    FROM _sas.step s JOIN _sas.run r USING (run_id) JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo
    WHERE s.element > 0 AND s.state IN ('running', 'suspended', 'ready') AND r.abandon_as IS NULL AND w.shape ? 'concurrency'
    GROUP BY s.run_id, s.step_no, w.shape HAVING count(*) > (w.shape ->> 'concurrency')::int
    UNION ALL
    SELECT format('%s: %s runs of workflow %s are open', moment, count(*), v.workflow_id)
    FROM _sas.run r JOIN _sas.workflow_version v USING (version_id) JOIN _sas.concurrency_slot p USING (run_id) WHERE p.overlap = 'return' AND r.state <> 'stopped' GROUP BY v.workflow_id HAVING count(*) > 1
    UNION ALL
    SELECT format('%s: %s', moment, a.message) FROM _sas.alert a WHERE a.kind = 'stuck'
    UNION ALL
    -- whoever holds nothing needs a message, a place in the queue, or an operator
    SELECT format('%s: run %s step %s[%s] is %s (%s) and nothing will move it', moment, s.run_id, s.step_no, s.element, s.state, coalesce(s.waiting_kind, '-'))
    FROM _sas.step s JOIN _sas.run r USING (run_id)
    WHERE r.state NOT IN ('paused', 'stopped') AND (s.state IN ('ready', 'compensating') AND s.request_id IS NULL OR s.state = 'suspended' AND coalesce(s.waiting_kind, '') NOT IN ('elements', 'child', 'signal', 'fallback'))
      AND NOT EXISTS (SELECT FROM _sas.ready q WHERE q.run_id = s.run_id AND q.step_no = s.step_no AND q.element = s.element)
      AND NOT EXISTS (SELECT FROM _sas.message d WHERE d.run_id = s.run_id AND d.step_no = s.step_no AND s.element = ANY (coalesce(d.together, ARRAY[d.element])))
      AND NOT EXISTS (SELECT FROM _sas.run c WHERE c.parent_run_id = s.run_id AND c.parent_step_no = s.step_no AND c.parent_element = s.element AND (c.state <> 'stopped' OR EXISTS (SELECT FROM _sas.message d WHERE d.run_id = c.run_id)))
    UNION ALL
    SELECT format('%s: run %s step %s[%s] is held and no lease says so', moment, s.run_id, s.step_no, s.element)
    FROM _sas.step s WHERE s.request_id IS NOT NULL AND NOT EXISTS (SELECT FROM _sas.lease l WHERE l.lease_id = s.lease_id)
$$;

-- t.audit(): what must hold when all has come to its end
CREATE FUNCTION t.audit() RETURNS void LANGUAGE sql AS $$
    INSERT INTO t.odd (what)
    SELECT format('%s %s left over', l.n, l.what) FROM t.left_over() l
    UNION ALL
    SELECT format('place %s of agent %s is held', p.place, p.agent_id) FROM _sas.external_slot p WHERE p.request_id IS NOT NULL
    UNION ALL
    SELECT format('run %s has ended as %s, and step %s[%s] is %s', r.run_id, r.result, s.step_no, s.element, s.state)
    FROM _sas.run r JOIN _sas.step s USING (run_id) WHERE r.result IN ('success', 'warning') AND s.state NOT IN ('succeeded', 'skipped') AND NOT t.stands_in(r.version_id, s.step_no)
    UNION ALL
    SELECT format('run %s has ended as %s, and %s of %s steps have a row', r.run_id, r.result, count(s.*), count(w.*))
    FROM _sas.run r JOIN _sas.workflow_step w ON w.version_id = r.version_id AND NOT w.undo
    LEFT JOIN _sas.step s ON s.run_id = r.run_id AND s.step_no = w.step_no AND s.element = 0
    WHERE r.result IN ('success', 'warning') AND NOT t.stands_in(r.version_id, w.step_no) GROUP BY r.run_id, r.result HAVING count(s.*) <> count(w.*)
    UNION ALL
    SELECT format('run %s has ended as %s, and what step %s[%s] (%s) did %s', r.run_id, r.result, s.step_no, s.element, s.state, CASE WHEN b.stands THEN 'stands' ELSE 'is undone' END)
    FROM _sas.run r JOIN _sas.step s USING (run_id) JOIN t.book b ON b.run_id = s.run_id AND b.step_no = s.step_no AND b.element = s.element
    WHERE CASE WHEN r.result IN ('success', 'warning') OR r.abandon_as = 'fail' THEN s.state = 'succeeded' AND NOT b.stands AND NOT EXISTS (SELECT FROM _sas.workflow_step f WHERE f.version_id = r.version_id AND f.step_no = s.step_no AND f.shape ? 'fallback')
               ELSE b.stands AND EXISTS (SELECT FROM _sas.workflow_step u WHERE u.version_id = r.version_id AND u.step_no = s.step_no AND u.undo) END
    UNION ALL
    SELECT format('run %s: step %s[%s] succeeded, and the service knows nothing of it', r.run_id, s.step_no, s.element)
    FROM _sas.run r JOIN _sas.step s USING (run_id) JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo AND w.kind IN ('call', 'function', 'task') AND w.name <> 'finalize'
    WHERE s.state = 'succeeded' AND (s.element > 0 OR NOT coalesce(w.shape ?| '{each,repeat}', false)) AND NOT coalesce(w.shape ? 'fallback', false) AND NOT EXISTS (SELECT FROM t.book b WHERE b.run_id = s.run_id AND b.step_no = s.step_no AND b.element = s.element)
    UNION ALL
    SELECT format('run %s: step %s[%s] was undone after step %s[%s], which had ended before it', r.run_id, s.step_no, s.element, o.step_no, o.element)
    FROM _sas.run r
    JOIN _sas.step s USING (run_id) JOIN t.book b ON b.run_id = s.run_id AND b.step_no = s.step_no AND b.element = s.element
    JOIN _sas.step o ON o.run_id = s.run_id AND o.completion < s.completion JOIN t.book ob ON ob.run_id = o.run_id AND ob.step_no = o.step_no AND ob.element = o.element
    WHERE b.undone_at > ob.undone_at AND s.state = 'compensated' AND o.state = 'compensated'
    UNION ALL
    SELECT format('run %s: step %s is %s and its elements say %s', s.run_id, s.step_no, s.output, x.made)
    FROM _sas.step s JOIN _sas.run r USING (run_id) JOIN _sas.workflow_step w ON w.version_id = r.version_id AND w.step_no = s.step_no AND NOT w.undo AND w.shape ? 'each'
    CROSS JOIN LATERAL (SELECT coalesce(jsonb_agg(e.output ORDER BY e.element), '[]') AS made FROM _sas.step e WHERE e.run_id = s.run_id AND e.step_no = s.step_no AND e.element > 0) x
    WHERE s.element = 0 AND s.state = 'succeeded' AND r.result = 'success' AND s.output IS DISTINCT FROM x.made
$$;

-- t.storm(seed, acts): one story. Returns how many runs ended how, then what was odd.
CREATE FUNCTION t.storm(seed float8, acts int, every int DEFAULT 10) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    busy int;
    next timestamptz;
BEGIN
    PERFORM setseed(seed), t.clean();
    TRUNCATE t.book, t.odd, t.task RESTART IDENTITY;
    ALTER SEQUENCE t.moment RESTART;
    PERFORM sas.create_queue('narrow', 2), sas.resume_queue('narrow'), sas.create_agent('robots', kind => 'external', max_in_flight => 3);
    FOR n IN 1 .. 2 LOOP
        PERFORM t.dice_workflow('p' || n, t.dice(4), '{}', '{}', true);
        PERFORM t.dice_workflow('c' || n, t.dice(4), '{}', ARRAY(SELECT 'p' || g FROM generate_series(1, n) g), false);
    END LOOP;
    FOR n IN 1 .. 6 LOOP
        PERFORM t.dice_workflow('w' || n, t.dice(8), '{c1,c2}', '{p1,p2}', false);
        PERFORM sas.resume_workflow('w' || n);
    END LOOP;
    FOR n IN 1 .. acts LOOP
        PERFORM t.dice_act(6);
        IF n % every = 0 THEN
            PERFORM t.look('act ' || n);
            EXIT WHEN EXISTS (SELECT FROM t.odd);
        END IF;
    END LOOP;
    -- then the world is kind, and somebody resumes whatever is paused
    PERFORM sas.resume_queue('narrow'), sas.resume_workflow('w' || n) FROM generate_series(1, 6) n;
    DELETE FROM t.held;
    UPDATE t.worker SET alive = false, name = name || ' ' || id;
    FOR n IN 1 .. 300 LOOP
        LOOP
            busy := (SELECT worked FROM _sas.scheduler_tick(50)) + t.supervise();
            busy := busy + (t.claim('last', 20) <> 'nothing')::int + t.dice_reply(true)::int + t.dice_task(true)::int;
            EXIT WHEN busy = 0;
        END LOOP;
        -- who waits for a signal that nobody sends is resumed a few times only
        PERFORM sas.cancel(run_id) FROM (SELECT run_id FROM _sas.run WHERE state = 'paused' ORDER BY run_id) r WHERE n > 40;
        PERFORM sas.resume(run_id) FROM (SELECT run_id FROM _sas.run WHERE state = 'paused' ORDER BY run_id) r;
        CONTINUE WHEN FOUND;
        EXIT WHEN NOT EXISTS (SELECT FROM _sas.run WHERE state <> 'stopped') AND NOT EXISTS (SELECT FROM _sas.message) OR EXISTS (SELECT FROM t.odd);
        next := least(_sas.next_message('s'), _sas.next_message('v'), (SELECT min(next_by) FROM _sas.lease));
        EXIT WHEN next IS NULL;
        PERFORM t.set_clock(greatest(next, sas.now() + interval '1 s'));
        PERFORM t.look('end');
    END LOOP;
    PERFORM t.audit() WHERE NOT EXISTS (SELECT FROM t.odd);
    RETURN QUERY SELECT count(*) || ' ' || coalesce(result, state) FROM _sas.run GROUP BY coalesce(result, state) ORDER BY coalesce(result, state);
    RETURN QUERY SELECT what FROM t.odd ORDER BY n LIMIT 20;
END $$;

-- each story ends well; a seed that does not says what is odd
SELECT s AS seed, count(*) FILTER (WHERE e !~ '^[0-9]+ (success|warning|error|compensated|cancelled)$') AS odd,
       string_agg(e, '; ') FILTER (WHERE e !~ '^[0-9]+ (success|warning|error|compensated|cancelled)$') AS what
FROM generate_series(1, 3) s CROSS JOIN LATERAL t.storm(s / 1000.0, 250) e GROUP BY 1 ORDER BY 1;
SELECT t.clean() \g /dev/null
